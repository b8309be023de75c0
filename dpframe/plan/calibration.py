"""Calibrates columns' losses to the budget of a whole release, and computes the δ of columns' losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from dpframe.accounting import Bound, ColumnLoss, composed_delta, shuffled_delta, unsampled
from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import Budget, compose, fewer_digits_down
from dpframe.accounting.composition import mixed_delta, response_parts
from dpframe.accounting.gaussian_dp import Step, composed_steps, promise_step, remaining_step, step_delta
from dpframe.accounting.secret_order import ShuffledRows, likely_total, rows_cover
from dpframe.accounting.undercurve import Cover
from dpframe.channels import Mechanism
from dpframe.errors import ParameterError
from dpframe.plan.columns import Randomised
from dpframe.spaces.arrays import FloatArray

Maker = Callable[[float, float], Randomised]
"""Makes a column or group from its (ε, δ)."""

_LARGEST_COLUMN_LOSS = 42.0
"""Loss of a column beyond which its tables get no finer (limit of the format)."""
_ENOUGH_DELTA_SHARE = 0.999
"""Share of δ at which a search stops (tolerance)."""
_ENOUGH_MU_SHARE, _MU_LOG_MARGIN = 0.985, 0.004
"""Share of a curve's μ at which a search stops, and its target's log distance below μ: 2e-3 and 5e-4 of a loss
(tolerance)."""
_MU_SLOPE = 7.5
"""About d ln μ/d ln(total loss) of shuffled rows (tolerance)."""
_CURVED_TURNS = 24
"""Most candidates of a total under a curve (limit of time)."""
_FINE_MU_WIDTH = 4e-4
"""Relative width of a second proof of μ, if a coarser one cannot decide whether rows fit (tolerance)."""
_LARGEST_MU_FACTOR = 10.0
"""Largest factor of μ by which one step moves a total (tolerance)."""
_UNPROVED_TOTALS = 2
"""Totals that units are made for before any is proved (limit of time)."""
_SEARCH_WIDTH = 1e-6
"""Relative width at which the search for the columns' losses stops (tolerance)."""
_LEAP_WIDTH = 2e-4
"""Relative width at which the search stops after a leap of the cost over δ (tolerance)."""
_LEAST_BRACKET_FRACTION = 0.3
"""Least distance of a candidate from either end of its bracket, as a fraction of the bracket (tolerance)."""
_MODEL_TURNS = 4
"""Totals from the model before interpolation takes over (limit of time)."""
_LEAST_PROBABILITY = 1e-300
"""Least probability that has a logarithm (tolerance)."""
_NO_STEP = Step(0.0)
"""The step that loses nothing (theory: zero)."""
_SUM_ROUNDING_FACTOR = 1 + Fraction(1, 10**12)
"""Factor on a sum of losses that division in floats may add (tolerance)."""


@dataclass(frozen=True)
class AccountingContext:
    """Inputs of the accountant: budget, number of rows, sample, shuffling, contributions, and other parts of the
    release.

    ``budget`` is a person's, for the whole release; without ``central`` for the rows. ``sample`` is the number of rows
    chosen in secret. ``secret`` is whether rows are shuffled and no other output reveals their order: otherwise neither
    order nor sampling earns credit. ``central`` is the step of everything released in addition to the rows, for one
    person (`gaussian_dp`). ``local`` is the limit of each row's loss, even to someone who knows its position.
    """

    budget: Budget
    rows: int | None = None
    sample: int | None = None
    secret: bool = True
    contributions: int = 1
    central: Step | None = None
    local: Budget | None = None

    @property
    def samples(self) -> bool:
        """Whether a secret sample earns credit."""
        return self.sample is not None and bool(self.rows) and self.secret

    @cached_property
    def sampled_budget(self) -> Budget:
        """The budget that δ is compared with: of one sampled row without central steps, else of the whole release.

        Sampling is applied last, and k rows of a person are k times one row (`Budget.per_row`). With central steps both
        act on the profile of the rows instead, point by point (`secret_order`).
        """
        if self.central is not None:
            return self.budget
        row = self.budget.per_row(self.contributions)
        if not self.samples or self.sample is None or not self.rows:
            return row
        return Budget(*unsampled(row.epsilon, row.delta, self.sample, self.rows))

    @property
    def shuffled_rows(self) -> int | None:
        """Rows that are shuffled together, if shuffling earns credit: it needs δ > 0 and a known number of rows."""
        if not self.secret or not self.rows or self.budget.delta == 0:
            return None
        return self.rows if self.sample is None else self.sample

    @cached_property
    def curve(self) -> Step:
        """The step for shuffled rows: the whole budget's step, less the central one.

        It follows from public facts only. A curve chosen by the results of inference would not keep the budget: the
        mean of profiles within the budget over outcomes may exceed it.
        """
        promise = promise_step(self.budget)
        return promise if self.central is None else remaining_step(promise, self.central)

    @property
    def permutation(self) -> ShuffledRows:
        """The rows as they are permuted and sampled."""
        assert self.rows
        return ShuffledRows(self.rows, self.sample, self.contributions)

    def delta_of(self, units: Sequence[Randomised]) -> Bound:
        """Return the certified δ at `sampled_budget`'s ε of rows randomised by these units, with its method."""
        # Without δ all units are pure, which the accounting of shuffled rows needs.
        slack = math.fsum(unit.mechanism.delta for unit in units)
        if slack == 0:
            return self.delta_of_losses([unit.column_loss for unit in units])
        if any(unit.step for unit in units):
            return self.delta_of_steps(*_split_steps([unit.mechanism for unit in units]))
        parts = response_parts([unit.certified.epsilon for unit in units])
        if self.central is None:
            # The theory of shuffling and of privacy-loss distributions here is for pure columns.
            composed = compose(unit.certified for unit in units)
            bound = Bound(composed.delta if composed.epsilon <= self.sampled_budget.epsilon else 1.0, "composition")
        else:
            bound = replace(self, local=None).failing(slack).delta_of_losses(parts)
        return self._cap_bound(bound, parts, Step(0.0, slack))

    def failing(self, delta: float) -> AccountingContext:
        """Return the terms for pure unshuffled channels, together with channels that fail with this total probability.

        Randomised response of ε that fails with chance δ dominates an (ε, δ) channel (`dominating_step`).
        """
        assert self.central is not None
        # Rounded up for the product's float error; a step needs δ below 1.
        failure = Step(0.0, min(delta * self.contributions * (1 + 1e-12), 1 - 1e-9))
        return replace(self, central=composed_steps([self.central, failure]), secret=False, sample=None)

    def delta_of_steps(self, steps: Sequence[Step], epsilons: Sequence[float], slack: float = 0.0) -> Bound:
        """Return the certified δ of unshuffled rows, from the steps of some columns and the pure losses of others.

        ``slack`` is the chance that one of the other columns fails.
        """
        parts, row_steps = response_parts(epsilons), [*steps, Step(0.0, slack)]
        if self.central is None:
            delta = mixed_delta(parts, composed_steps(row_steps), self.sampled_budget.epsilon)
        else:
            # Central steps are a person's, and all k rows of a person compose with them.
            k = self.contributions
            delta = mixed_delta(parts * k, composed_steps([self.central, *row_steps * k]), self.budget.epsilon)
        return self._cap_bound(Bound(delta, "composition"), parts, composed_steps(row_steps))

    def _cap_bound(self, bound: Bound, parts: Sequence[ColumnLoss], step: Step = _NO_STEP) -> Bound:
        """Return a bound, raised above δ in proportion if a row loses more than ``local``.

        ``parts`` are the row's pure losses, ``step`` is the loss of its other columns.
        """
        if self.local is None or not (parts or step.mu or step.delta):
            return bound
        # A cap without δ limits the sum of losses, and has no δ in proportion to which a bound could rise.
        if self.local.delta == 0:
            epsilon_sum = sum((Fraction(part.epsilon) for part in parts), Fraction(0))
            is_within = (
                not (step.mu or step.delta) and epsilon_sum <= Fraction(self.local.epsilon) * _SUM_ROUNDING_FACTOR
            )
            return bound if is_within else Bound(1.0, bound.method)
        is_pure = step == _NO_STEP
        cap = self.local.epsilon
        cap_delta = composed_delta(tuple(parts), cap) if is_pure else mixed_delta(parts, step, cap)
        # In proportion, so that the searches see by how much a total exceeds the cap.
        excess = cap_delta / self.local.delta * self.sampled_budget.delta
        return Bound(min(1.0, max(bound.value, excess)), bound.method)

    def delta_of_losses(self, parts: Sequence[ColumnLoss]) -> Bound:
        """Return the certified δ of pure columns from their column losses."""
        losses = tuple(parts)
        if self.central is None:
            bound = _rows_delta(losses, self.shuffled_rows, self.sampled_budget.epsilon)
        else:
            bound = _delta_with_central(losses, self)
        return self._cap_bound(bound, losses)

    def allow(self, units: Sequence[Randomised]) -> bool:
        """Return whether these units stay within the budget."""
        return not units or self.delta_of(units).value <= self.sampled_budget.delta


@lru_cache(maxsize=4096)
def _rows_delta(parts: tuple[ColumnLoss, ...], permuted: int | None, epsilon: float) -> Bound:
    """Return the δ of rows without central steps, shuffled if their number is given."""
    if permuted is None:
        return Bound(composed_delta(parts, epsilon), "composition")
    return shuffled_delta(parts, permuted, epsilon)


@lru_cache(maxsize=4096)
def _delta_with_central(parts: tuple[ColumnLoss, ...], terms: AccountingContext) -> Bound:
    """Return the δ of rows composed with the central steps."""
    assert terms.central is not None
    if terms.shuffled_rows is None:
        # Two outcomes of each column's ε, for any space: the bound may not depend on the results of inference.
        losses = response_parts([part.epsilon for part in parts] * terms.contributions)
        return Bound(mixed_delta(losses, terms.central, terms.budget.epsilon), "composition")
    rows = rows_step(parts, terms)
    if rows is None:
        return Bound(1.0, "gaussian")
    return Bound(step_delta(composed_steps([rows, terms.central]), terms.budget.epsilon), "gaussian")


@lru_cache(maxsize=4096)
def _rows_cover(parts: tuple[ColumnLoss, ...], terms: AccountingContext) -> Cover:
    """Return the Gaussian cover of shuffled rows, proved to a finer width if the coarse proof cannot decide."""
    # Only a cover whose lower bound fits may still fit at a finer width.
    rough = rows_cover(parts, terms.permutation, terms.curve)
    return (
        rough
        if rough.ratio <= 1 or rough.least > 1
        else rows_cover(parts, terms.permutation, terms.curve, _FINE_MU_WIDTH)
    )


def rows_step(parts: tuple[ColumnLoss, ...], terms: AccountingContext) -> Step | None:
    """Return about the least step of shuffled rows with these columns; None without a proof."""
    cover = _rows_cover(parts, terms)
    return cover.step if math.isfinite(cover.ratio) else None


def _split_steps(mechanisms: Sequence[Mechanism]) -> tuple[list[Step], list[float], float]:
    """Return the mechanisms' steps, the pure losses of those without one, and the chance that one of these fails."""
    unstepped = [m for m in mechanisms if m.loss.step is None]
    steps = [m.loss.step for m in mechanisms if m.loss.step is not None]
    return steps, [m.certified.epsilon for m in unstepped], math.fsum(m.delta for m in unstepped)


def _pure_losses(
    mechanisms: Sequence[Mechanism], terms: AccountingContext
) -> tuple[list[ColumnLoss], AccountingContext]:
    """Return the mechanisms as pure ones, and terms that account for their chance to fail."""
    failure_probability = math.fsum(m.delta for m in mechanisms)
    if failure_probability == 0:
        return [m.column_loss for m in mechanisms], terms
    return response_parts([m.certified.epsilon for m in mechanisms]), terms.failing(failure_probability)


_DELTA_SHARE = 0.5
"""Share of δ for columns whose noise needs δ > 0 (tuned; effect not measured)."""


def slacks_of(columns_needing_delta: Sequence[bool], terms: AccountingContext) -> list[float]:
    """Return the δ of each column: half of a row's δ in equal parts for columns whose noise needs δ, else 0."""
    count = sum(columns_needing_delta)
    rows = terms.contributions if terms.central is not None else 1
    return [
        terms.sampled_budget.delta * _DELTA_SHARE / count / rows if takes else 0.0 for takes in columns_needing_delta
    ]


def calibrate(
    makers: Sequence[Maker],
    shares: Sequence[float],
    ready: Sequence[Randomised],
    terms: AccountingContext,
    slacks: Sequence[float] = (),
) -> list[Randomised]:
    """Return the units with the largest losses within the budget, in the proportion of their shares.

    ``ready`` units have fixed losses. Columns are pure, for any δ: it buys more in the accounting of the whole release.
    Only a single column without credit for its order has the whole δ, and columns with a part in ``slacks`` (by default
    none).
    """
    sampled_budget = terms.sampled_budget
    if not makers:
        return []
    any_takes_delta, rows_only = any(slacks), terms.central is None and terms.local is None
    if len(makers) == 1 and not ready and rows_only and (terms.shuffled_rows is None or any_takes_delta):
        return [makers[0](sampled_budget.epsilon, sampled_budget.delta)]
    if any_takes_delta:
        return _calibrate_steps(makers, shares, ready, terms, slacks)
    failure_probability = math.fsum(unit.mechanism.delta for unit in ready)
    # Other accounting needs δ > 0, and channels that cannot fail if there are no central steps.
    if sampled_budget.delta == 0 or (failure_probability > 0 and terms.central is None):
        budget = (
            sampled_budget
            if terms.local is None
            else Budget(min(sampled_budget.epsilon, terms.local.epsilon), sampled_budget.delta)
        )
        remainder = budget.less(compose(unit.certified for unit in ready)) if ready else budget
        return [make(part.epsilon, 0.0) for make, part in zip(makers, remainder.split(shares), strict=True)]
    if ready and terms.delta_of(ready).value >= sampled_budget.delta:
        sampled_budget.less(compose(unit.certified for unit in ready))  # raises an error with their sum
        raise ParameterError(_READY_MESSAGE)
    model = _LossModel.beside(ready, shares, terms)
    if model.curved:
        return _calibrate_shuffled(makers, shares, ready, terms, model)
    return (
        _calibrate_rows_only(makers, shares, ready, terms)
        if terms.central is None
        else _calibrate_unshuffled(makers, shares, terms, model)
    )


def _make_units(makers: Sequence[Maker], shares: Sequence[float], total: float) -> list[Randomised]:
    """Return pure units with their shares of a total loss."""
    return [make(total * share, 0.0) for make, share in zip(makers, shares, strict=True)]


@lru_cache(maxsize=256)
def recalibrate(units: tuple[Randomised, ...], terms: AccountingContext) -> tuple[Randomised, ...]:
    """Return units calibrated for other terms, in their order, with their shares and fixed channels unchanged."""
    adjustable = [unit for unit in units if not unit.mechanism.fixed]
    fixed = [unit for unit in units if unit.mechanism.fixed]
    shares, slacks = _shares_of_sum(adjustable), slacks_of([u.takes_delta for u in adjustable], terms)
    calibrated = calibrate([u.remade for u in adjustable], shares, fixed, terms, slacks)
    # Adjustable and fixed units return to their original order.
    by_names = {unit.names: unit for unit in [*calibrated, *fixed]}
    return tuple(by_names[unit.names] for unit in units)


def _shares_of_sum(units: Sequence[Randomised]) -> list[float]:
    """Return each unit's part of the summed ε, which scales with the total."""
    epsilon_sum = math.fsum(unit.mechanism.epsilon for unit in units)
    return [unit.mechanism.epsilon / epsilon_sum for unit in units]


def likely_units(units: tuple[Randomised, ...], terms: AccountingContext) -> tuple[Randomised, ...]:
    """Return about the units of `recalibrate`, with losses within 2 % of its own, without proof: for forecasts."""
    if any(unit.mechanism.fixed or unit.takes_delta for unit in units):
        return recalibrate(units, terms)
    shares = _shares_of_sum(units)
    model = _LossModel.beside([], shares, terms)
    if not model.curved:
        return recalibrate(units, terms)
    model.learn(math.fsum(unit.mechanism.epsilon for unit in units), units)
    guess = model.under_curve(_LARGEST_COLUMN_LOSS / min(shares))[0]
    return tuple(_make_units([unit.remade for unit in units], shares, guess))


_CENTRAL_MESSAGE = "epsilon is too small for inference and measured tables; raise it, or declare spaces"
_READY_MESSAGE = "epsilon is too small for the mechanisms that are given ready; raise epsilon, or lower measure_share"


_RESERVE_SHARE = 1e-3
"""Share of ε that ready mechanisms must leave for the other columns (tolerance)."""


def check_ready(ready: Sequence[Mechanism], terms: AccountingContext) -> None:
    """Raise `ParameterError` if ready mechanisms leave nothing for central steps, before these are spent."""
    if terms.central is None:
        return
    reserve = terms.budget.epsilon * _RESERVE_SHARE
    if any(m.loss.step for m in ready):
        steps, losses, failure_probability = _split_steps(ready)
        bound = terms.delta_of_steps(steps, [*losses, reserve], failure_probability)
    else:
        pure_losses, accounting = _pure_losses(ready, terms)
        bound = accounting.delta_of_losses([*pure_losses, *response_parts([reserve])])
    if bound.value > terms.budget.delta:
        raise ParameterError(_READY_MESSAGE)


def _calibrate_rows_only(
    makers: Sequence[Maker], shares: Sequence[float], ready: Sequence[Randomised], terms: AccountingContext
) -> list[Randomised]:
    """Return units with nearly the largest total loss within the budget, without central steps.

    Making units may take a second (linear programmes), so that the search tries few totals: each comes from a model of
    the units so far. Costs may leap (optima do); bisection of the bracket then takes over.
    """
    sampled_budget, model = terms.sampled_budget, _LossModel.beside(ready, shares, terms)
    upper_limit = _LARGEST_COLUMN_LOSS / min(shares)
    best: list[Randomised] | None = None
    low, high, total = 0.0, math.inf, model.largest(min(sampled_budget.epsilon, upper_limit / 2), upper_limit)
    deltas: dict[float, float] = {}
    basic_total = sampled_budget.epsilon
    while True:
        total = _round_total(total, upper_limit)
        units = _make_units(makers, shares, total)
        deltas[total] = value = terms.delta_of([*ready, *units]).value
        if value <= sampled_budget.delta:
            low, best = total, units
            if value >= _ENOUGH_DELTA_SHARE * sampled_budget.delta or total >= upper_limit:
                return units
        else:
            high = total
        # Even vanishing losses exceed δ beside the ready units.
        if high < sampled_budget.epsilon * 1e-9:
            raise ParameterError(_READY_MESSAGE)
        model.learn(total, units)
        width = low * (1 + (_SEARCH_WIDTH if model.known < _MODEL_TURNS else _LEAP_WIDTH))
        previous, total = total, model.largest(total, upper_limit)
        if best is not None and min(high, total if previous == low else math.inf) <= width:
            return best
        if model.known >= _MODEL_TURNS or not low < total < high:
            total = _interpolate_total(low, high, deltas, sampled_budget.delta) or _total_between(
                low, high, basic_total, upper_limit
            )
            # The basic total is rounded down to the previous one, and has been tried.
            if _round_total(total, upper_limit) == previous:
                basic_total, total = 0.0, _total_between(low, high, 0.0, upper_limit)


def _round_total(total: float, upper_limit: float) -> float:
    """Return a total loss rounded to few digits, so that every machine finds an equal one."""
    return fewer_digits_down(total) if total < upper_limit else upper_limit


def _interpolate_total(low: float, high: float, deltas: Mapping[float, float], delta: float) -> float | None:
    """Return the total at δ on a straight line through the bracket's log δ, or None without such a line."""
    if not (0 < deltas.get(low, 0.0) <= delta < deltas.get(high, 0.0)):
        return None
    fraction = math.log(delta / deltas[low]) / math.log(deltas[high] / deltas[low])
    return low + (high - low) * min(max(fraction, _LEAST_BRACKET_FRACTION), 1 - _LEAST_BRACKET_FRACTION)


def _calibrate_shuffled(
    makers: Sequence[Maker],
    shares: Sequence[float],
    ready: Sequence[Randomised],
    terms: AccountingContext,
    model: _LossModel,
) -> list[Randomised]:
    """Return units with nearly the largest total loss within the budget, for shuffled rows with central steps.

    A model proposes totals, and their units are then proved.
    """
    sampled_budget, upper_limit = terms.sampled_budget, _LARGEST_COLUMN_LOSS / min(shares)
    total, slope = _total_under_curve(tuple(shares), tuple(model.ready), model.terms, upper_limit)
    for _ in range(_UNPROVED_TOTALS):
        model.learn(total, _make_units(makers, shares, total))
        total, slope = model.under_curve(upper_limit)
    best: list[Randomised] | None = None
    low, high, previous = 0.0, math.inf, (0.0, 0.0)
    for _ in range(_CURVED_TURNS):
        total = _round_total(total, upper_limit)
        units = _make_units(makers, shares, total)
        ratio = _rows_cover(tuple(unit.column_loss for unit in [*ready, *units]), terms).ratio
        fits = terms.delta_of([*ready, *units]).value <= sampled_budget.delta
        if fits:
            low, best = total, units
        else:
            high = total
        capped = fits and terms.local is not None and ratio < _ENOUGH_MU_SHARE
        filled = fits and (ratio >= _ENOUGH_MU_SHARE or total >= upper_limit)
        if filled or capped or (best is not None and high <= low * (1 + _LEAP_WIDTH)):
            break
        # ln μ is nearly linear in ln(total), so that a secant step lands near the limit.
        # A ratio without proof is infinite: the limits keep its logarithm finite.
        gap = math.log(min(max(ratio, 1e-6), 1e6)) + _MU_LOG_MARGIN
        if previous[0] and abs(math.log(total / previous[0])) > _LEAP_WIDTH:
            slope = min(max((gap - previous[1]) / math.log(total / previous[0]), 0.5), 4 * _MU_SLOPE)
        previous = total, gap
        # A ratio within 1 whose δ does not fit is over the cap of each row: step back a little.
        candidate = total * (math.exp(-gap / slope) if fits or ratio > 1 else 1 - 10 * _LEAP_WIDTH)
        total = min(candidate, upper_limit) if low < candidate < high else math.sqrt(low * high) if low else high / 2
    if best is None:
        raise ParameterError(_READY_MESSAGE if any(unit.mechanism.fixed for unit in ready) else _CENTRAL_MESSAGE)
    return best


def _calibrate_unshuffled(
    makers: Sequence[Maker], shares: Sequence[float], terms: AccountingContext, model: _LossModel
) -> list[Randomised]:
    """Return unshuffled units with central steps: their losses follow from public facts, not from their spaces.

    Units lose at most their requested ε, and the bound grows with ε. A bound from the results of inference could exceed
    δ in the mean over outcomes, though every outcome is within it.
    """
    accounting, upper_limit = model.terms, _LARGEST_COLUMN_LOSS / min(shares)

    def losses(total: float) -> list[ColumnLoss]:
        return [*model.ready, *response_parts([total * share for share in shares])]

    def fits(total: float) -> bool:
        return accounting.delta_of_losses(losses(total)).value <= accounting.budget.delta

    total = _last_total(fits, accounting.budget.epsilon, upper_limit, bool(model.ready))
    return _make_units(makers, shares, total)


def _last_total(fits: Callable[[float], bool], start: float, upper_limit: float, ready: bool) -> float:
    """Return nearly the largest total loss that fits; raise `ParameterError` if none does."""
    low, high = 0.0, min(start, upper_limit)
    # With δ > 0 the columns' losses may add up to more than ε.
    while high < upper_limit and fits(high):
        low, high = high, min(2 * high, upper_limit)
    total = _round_total(bisected(fits, low, high, _SEARCH_WIDTH, start * 1e-9), upper_limit)
    if total == 0:
        raise ParameterError(_READY_MESSAGE if ready else _CENTRAL_MESSAGE)
    return total


def _calibrate_steps(
    makers: Sequence[Maker],
    shares: Sequence[float],
    ready: Sequence[Randomised],
    terms: AccountingContext,
    slacks: Sequence[float],
) -> list[Randomised]:
    """Return unshuffled units with steps among them: losses follow only from their requested (ε, δ).

    As in `_calibrate_unshuffled`. A unit with its own δ is accounted for as the largest step within its (ε, δ).
    """
    steps, losses, failure_probability = _split_steps([unit.mechanism for unit in ready])
    pairs = list(zip(shares, slacks, strict=True))

    def fits(total: float) -> bool:
        delta_steps = [promise_step(Budget(total * share, slack)) for share, slack in pairs if slack]
        pure_losses = [total * share for share, slack in pairs if not slack]
        bound = terms.delta_of_steps([*steps, *delta_steps], [*losses, *pure_losses], failure_probability)
        return bound.value <= terms.sampled_budget.delta

    total = _last_total(fits, terms.sampled_budget.epsilon, _LARGEST_COLUMN_LOSS / min(shares), bool(ready))
    return [make(total * share, slack) for make, (share, slack) in zip(makers, pairs, strict=True)]


def _total_between(low: float, high: float, basic_total: float, upper_limit: float) -> float:
    """Return a candidate between two totals: first the total of basic composition, at which δ may leap from 0."""
    if low < basic_total < high:
        return basic_total
    # No total has failed yet, and the model is nearly right: a small step is enough.
    if high == math.inf:
        return min(1.1 * low, upper_limit)
    return math.sqrt(low * high) if low else high / 2


class _LossModel:
    """Predicts column losses from a total loss, by the losses of units made so far.

    1/γ − 1 is (e^ε − 1)/size for randomised response and about e^(ε/2) for grids. So the logarithm of its ratio to e^ε
    − 1 is nearly linear; so is ε in the total, up to the rounding of tables. Before any unit is made all are taken as
    grids. ``ready`` are the losses of fixed units, and ``terms`` account for channels that may fail.
    """

    def __init__(self, shares: Sequence[float], ready: Sequence[ColumnLoss], terms: AccountingContext) -> None:
        self._shares = np.array(shares)
        self.ready, self.terms = list(ready), terms
        self._kinds = [ColumnLoss(1.0, 0.5) for _ in shares]
        self._seen: dict[float, tuple[FloatArray, FloatArray]] = {}

    @classmethod
    def beside(cls, ready: Sequence[Randomised], shares: Sequence[float], terms: AccountingContext) -> _LossModel:
        """Return a model of units with ready units, whose δ is a chance to fail."""
        return cls(shares, *_pure_losses([unit.mechanism for unit in ready], terms))

    @property
    def curved(self) -> bool:
        """Whether the rows must lie under a curve."""
        return self.terms.central is not None and self.terms.shuffled_rows is not None

    @property
    def known(self) -> int:
        """Number of totals that units were made for."""
        return len(self._seen)

    def learn(self, total: float, units: Sequence[Randomised]) -> None:
        """Record the column losses of units at this total."""
        self._kinds = parts = [unit.column_loss for unit in units]
        losses = np.array([max(part.epsilon, 1e-300) for part in parts])
        masses = np.array([part.blanket for part in parts])
        odds = np.log(np.maximum(1 - masses, _LEAST_PROBABILITY)) - np.log(masses)
        self._seen[total] = losses / total, odds - _log_expm1(losses)

    def parts(self, total: float) -> list[ColumnLoss]:
        """Return the expected column losses at a total, interpolated between the two nearest recorded totals."""
        if not self._seen:
            rates, odds = self._shares, -np.logaddexp(0.0, self._shares * total / 2)
        elif len(self._seen) == 1:
            rates, odds = next(iter(self._seen.values()))
        else:
            # A partner on the other side of the total interpolates rather than extrapolates.
            nearest = sorted(self._seen, key=lambda point: abs(math.log(point / total)))
            anchor, partner = (
                nearest[0],
                next(
                    (candidate for candidate in nearest[1:] if (candidate > total) != (nearest[0] > total)), nearest[1]
                ),
            )
            share = (total - anchor) / (partner - anchor)
            rates, odds = (a + share * (b - a) for a, b in zip(self._seen[anchor], self._seen[partner], strict=True))
        losses = np.maximum(rates, 0.0) * total
        logs = np.minimum(0.0, -np.logaddexp(0.0, odds + _log_expm1(np.maximum(losses, 1e-300))))
        # A blanket is at least e^−ε.
        masses = np.maximum(np.exp(np.maximum(logs, -losses)), _LEAST_PROBABILITY)
        return [k.at(float(loss), float(mass)) for k, loss, mass in zip(self._kinds, losses, masses, strict=True)]

    def largest(self, start: float, upper_limit: float) -> float:
        """Return the total at which the model's cost is just below δ, searched from a start.

        Regula falsi (Illinois) on logarithms, in which δ of the total is nearly straight.
        """
        # The middle of the accepted range: a total a little above δ would be refused.
        target = math.log(self.terms.sampled_budget.delta) + math.log((1 + _ENOUGH_DELTA_SHARE) / 2)

        def excess(x: float) -> float:
            value = self.terms.delta_of_losses([*self.ready, *self.parts(math.exp(x))]).value
            return math.log(max(value, 5e-324)) - target

        x = math.log(start)
        # A model of two totals predicts well: its search begins with small steps.
        height, step = excess(x), 0.02 if len(self._seen) > 1 else math.log(2)
        while True:
            previous, previous_height = x, height
            x += math.copysign(step, -height)
            if x >= math.log(upper_limit):
                return upper_limit
            height, step = excess(x), 2 * step
            if (height <= 0) != (previous_height <= 0) or x < math.log(start) - 50:
                break
        tolerance = (1 - _ENOUGH_DELTA_SHARE) / 5 if self.known > 1 else 0.03
        low, high = sorted([(previous, previous_height), (x, height)])
        return math.exp(_find_root(excess, low, high, tolerance))

    def under_curve(self, upper_limit: float) -> tuple[float, float]:
        """Return about the largest total of rows under the curve and within the local cap, and the slope of ln μ."""
        terms, total = self.terms, upper_limit
        local = terms.local
        if local is not None:

            def fits(total: float) -> bool:
                return composed_delta([*self.ready, *self.parts(total)], local.epsilon) <= local.delta

            # The model divides by the total.
            total = bisected(fits, 0.0, upper_limit, _LEAP_WIDTH / 2) or math.ulp(0.0)
        losses = [*self.ready, *self.parts(total)]
        # Below the curve, the cap on each row is the limit, and no search is needed.
        if total < upper_limit and rows_cover(losses, terms.permutation, terms.curve, tolerance=math.inf).least <= 1:
            return total, _MU_SLOPE
        cap = total
        total, slope = likely_total(lambda x: [*self.ready, *self.parts(x)], terms.permutation, terms.curve, cap)
        relative_mu = rows_cover(
            [*self.ready, *self.parts(total)], terms.permutation, terms.curve, tolerance=math.inf
        ).least
        gap = math.log(min(max(relative_mu, 1 / _LARGEST_MU_FACTOR), _LARGEST_MU_FACTOR)) + _MU_LOG_MARGIN
        return min(total * math.exp(-gap / slope), cap), slope


@lru_cache(maxsize=1024)
def _total_under_curve(
    shares: tuple[float, ...], ready: tuple[ColumnLoss, ...], terms: AccountingContext, upper_limit: float
) -> tuple[float, float]:
    """Return `_LossModel.under_curve` of units before any is made, cached for plans with equal shares."""
    return _LossModel(shares, ready, terms).under_curve(upper_limit)


def _find_root(
    excess: Callable[[float], float], low: tuple[float, float], high: tuple[float, float], tolerance: float
) -> float:
    """Return about the root of an increasing function, by regula falsi (Illinois) from two points of its graph."""
    (x, below), (y, above) = low, high
    while y - x > _SEARCH_WIDTH / 2:
        gap = above - below  # 0 if halves of the tiniest numbers vanish
        # The secant; a step too close to either end becomes a bisection.
        middle = x - below * (y - x) / gap if gap > 0 else x
        if not x + 0.01 * (y - x) < middle < y - 0.01 * (y - x):
            middle = (x + y) / 2
        height = excess(middle)
        if abs(height) < tolerance:
            return middle
        # Illinois: half the value at the end that stays, so that the secant does not stall.
        if height <= 0:
            x, below, above = middle, height, above / 2
        else:
            y, above, below = middle, height, below / 2
    return x


def _log_expm1(x: FloatArray) -> FloatArray:
    """Return ln(e^x − 1) without overflow."""
    return np.asarray(x + np.log(-np.expm1(-x)))
