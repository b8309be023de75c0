"""From the promise of a whole release to what each column may lose, and back."""

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
"""Makes a column or group from the (ε, δ) that it may lose."""

_MOST = 42.0
"""Loss of a column beyond which its tables are as fine as they get (limit of the format)."""
_USED = 0.999
"""Share of δ that is enough to stop at (tolerance)."""
_FILLED, _AIM = 0.985, 0.004
"""Part of a curve's μ that is enough to stop at, and what is aimed at below all of it: 2e-3 and 5e-4 of a loss
(tolerance)."""
_STEEP = 7.5
"""About d ln μ/d ln(total loss) of shuffled rows (tolerance)."""
_CURVED_TURNS = 24
"""Guesses of a total under a curve (limit of time)."""
_FINE = 4e-4
"""Relative width to which μ is proved where a coarser proof leaves open whether rows fit (tolerance)."""
_FAR = 10.0
"""The factor of μ by which a guess is moved at the most (tolerance)."""
_GUESSES = 2
"""Totals that units are made for before any is proved (limit of time)."""
_WIDTH = 1e-6
"""Relative width at which the search for the columns' losses stops, where their cost is steep (tolerance)."""
_LEAP = 2e-4
"""The same once guesses between two totals have taken over, because their cost leaps over δ (tolerance)."""
_AWAY = 0.3
"""Part of the way between two totals that a guess keeps from either (tolerance)."""
_TURNS = 4
"""Totals that are found by the model before these take over (limit of time)."""
_FLOOR = 1e-300
"""Least probability that has a logarithm (tolerance)."""
_NO_STEP = Step(0.0)
"""The step that loses nothing (theory: zero)."""
_ROUNDED = 1 + Fraction(1, 10**12)
"""Up to which losses that were divided in floats are taken for their sum (tolerance)."""


@dataclass(frozen=True)
class Terms:
    """What a promise rests on.

    ``budget`` is of a person, for the whole release; for only the rows where nothing is ``central``. ``sample`` is how
    many rows are chosen in secret, ``secret`` whether rows are shuffled, and nothing else in the output
    undoes it: else neither order nor sampling earns credit, as a row's position would reveal the choice. ``central``
    is what is released in addition to the rows, as one step for a person (`gaussian_dp`); ``local`` what each row may
    lose on top of it, even to someone who knows its place.
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
        """What δ is compared with: without central steps what one sampled row may cost, else the whole promise.

        Sampling is applied last, and k rows of a person are k times one row (`Budget.per_row`). Beside what is
        central both are done to the profile of the rows instead, point by point (`secret_order`).
        """
        if self.central is not None:
            return self.budget
        row = self.budget.per_row(self.contributions)
        if not self.samples or self.sample is None or not self.rows:
            return row
        return Budget(*unsampled(row.epsilon, row.delta, self.sample, self.rows))

    @property
    def shuffled_rows(self) -> int | None:
        """Rows that are shuffled together, if that earns credit: it needs δ > 0 and a known number of rows."""
        if not self.secret or not self.rows or self.budget.delta == 0:
            return None
        return self.rows if self.sample is None else self.sample

    @cached_property
    def curve(self) -> Step:
        """The step that shuffled rows may take in addition to what is central, or else the whole one.

        It follows from public facts only. One of several curves, chosen by what inference gave, would not keep the
        promise: the mean over outcomes of profiles that each keep it apart may exceed it.
        """
        promise = promise_step(self.budget)
        return promise if self.central is None else remaining_step(promise, self.central)

    @property
    def permutation(self) -> ShuffledRows:
        """The rows as they are permuted and sampled."""
        assert self.rows
        return ShuffledRows(self.rows, self.sample, self.contributions)

    def delta_of(self, units: Sequence[Randomised]) -> Bound:
        """Return the δ at `sampled_budget`'s ε of rows randomised by these units, certified, and how it was proved."""
        slack = math.fsum(unit.mechanism.delta for unit in units)
        if slack == 0:
            return self.delta_of_losses([unit.column_loss for unit in units])
        if any(unit.step for unit in units):
            return self.delta_of_steps(*_told(units))
        parts = response_parts([unit.certified.epsilon for unit in units])
        if self.central is None:
            # The theory of shuffling and of privacy-loss distributions here is for pure columns.
            composed = compose(unit.certified for unit in units)
            bound = Bound(composed.delta if composed.epsilon <= self.sampled_budget.epsilon else 1.0, "composition")
        else:
            bound = replace(self, local=None).failing(slack).delta_of_losses(parts)
        return self._capped(bound, parts, Step(0.0, slack))

    def failing(self, delta: float) -> Terms:
        """Return the terms of pure unshuffled channels, together with channels that fail with this probability in all.

        An (ε, δ) channel is dominated by randomised response of ε that fails with chance δ (`dominating_step`).
        """
        assert self.central is not None
        failure = Step(0.0, min(delta * self.contributions * (1 + 1e-12), 1 - 1e-9))
        return replace(self, central=composed_steps([self.central, failure]), secret=False, sample=None)

    def delta_of_steps(self, steps: Sequence[Step], epsilons: Sequence[float], slack: float = 0.0) -> Bound:
        """Return the same for unshuffled rows whose columns are steps, and others that lose so much.

        ``slack`` is the chance that one of the others fails.
        """
        parts, row_steps = response_parts(epsilons), [*steps, Step(0.0, slack)]
        if self.central is None:
            delta = mixed_delta(parts, composed_steps(row_steps), self.sampled_budget.epsilon)
        else:
            k = self.contributions
            delta = mixed_delta(parts * k, composed_steps([self.central, *row_steps * k]), self.budget.epsilon)
        return self._capped(Bound(delta, "composition"), parts, composed_steps(row_steps))

    def _capped(self, bound: Bound, parts: Sequence[ColumnLoss], step: Step = _NO_STEP) -> Bound:
        """Return a bound that is above δ where a row loses more than ``local``, in proportion.

        ``parts`` are the row's pure losses, ``beside`` is what else its columns lose.
        """
        if self.local is None or not (parts or step.mu or step.delta):
            return bound
        if self.local.delta == 0:
            epsilon_sum = sum((Fraction(part.epsilon) for part in parts), Fraction(0))
            is_within = not (step.mu or step.delta) and epsilon_sum <= Fraction(self.local.epsilon) * _ROUNDED
            return bound if is_within else Bound(1.0, bound.method)
        is_pure = step == _NO_STEP
        cap = self.local.epsilon
        cap_delta = composed_delta(tuple(parts), cap) if is_pure else mixed_delta(parts, step, cap)
        excess = cap_delta / self.local.delta * self.sampled_budget.delta
        return Bound(min(1.0, max(bound.value, excess)), bound.method)

    def delta_of_losses(self, parts: Sequence[ColumnLoss]) -> Bound:
        """Return the same for pure columns, from what the accountant knows."""
        losses = tuple(parts)
        if self.central is None:
            bound = _cost(losses, self.shuffled_rows, self.sampled_budget.epsilon)
        else:
            bound = _cost_beside(losses, self)
        return self._capped(bound, losses)

    def allow(self, units: Sequence[Randomised]) -> bool:
        """Return whether the promise is kept by these units."""
        return not units or self.delta_of(units).value <= self.sampled_budget.delta


@lru_cache(maxsize=4096)
def _cost(parts: tuple[ColumnLoss, ...], permuted: int | None, epsilon: float) -> Bound:
    if permuted is None:
        return Bound(composed_delta(parts, epsilon), "composition")
    return shuffled_delta(parts, permuted, epsilon)


@lru_cache(maxsize=4096)
def _cost_beside(parts: tuple[ColumnLoss, ...], terms: Terms) -> Bound:
    assert terms.central is not None
    if terms.shuffled_rows is None:
        # Two outcomes of each column's own ε, whatever its space: what inference gave decides nothing of the bound.
        losses = response_parts([part.epsilon for part in parts] * terms.contributions)
        return Bound(mixed_delta(losses, terms.central, terms.budget.epsilon), "composition")
    rows = rows_step(parts, terms)
    if rows is None:
        return Bound(1.0, "gaussian")
    return Bound(step_delta(composed_steps([rows, terms.central]), terms.budget.epsilon), "gaussian")


@lru_cache(maxsize=4096)
def _cover(parts: tuple[ColumnLoss, ...], terms: Terms) -> Cover:
    rough = rows_cover(parts, terms.permutation, terms.curve)
    return rough if rough.ratio <= 1 or rough.least > 1 else rows_cover(parts, terms.permutation, terms.curve, _FINE)


def _needed(parts: Sequence[ColumnLoss], terms: Terms) -> float:
    """Return about the μ that rows need, relative to what they may take: a glance at a few nodes, no proof."""
    return rows_cover(parts, terms.permutation, terms.curve, tolerance=math.inf).least


def rows_step(parts: tuple[ColumnLoss, ...], terms: Terms) -> Step | None:
    """Return the least step, about, of shuffled rows with these columns; None where none could be proved."""
    cover = _cover(parts, terms)
    return cover.step if math.isfinite(cover.ratio) else None


def _told(units: Sequence[Randomised]) -> tuple[list[Step], list[float], float]:
    """Return the units' steps, what the others lose, and the chance that one of these fails."""
    unstepped = [unit for unit in units if unit.step is None]
    steps = [unit.step for unit in units if unit.step is not None]
    return steps, [unit.certified.epsilon for unit in unstepped], math.fsum(unit.mechanism.delta for unit in unstepped)


_TAKEN = 0.5
"""Part of δ that columns share whose noise needs some of their own (tuned; effect not measured)."""


def slacks_of(taking: Sequence[bool], terms: Terms) -> list[float]:
    """Return the δ of each column: equal parts of half of what a row may have for those whose noise needs some."""
    count = sum(taking)
    rows = terms.contributions if terms.central is not None else 1
    return [terms.sampled_budget.delta * _TAKEN / count / rows if takes else 0.0 for takes in taking]


def calibrate(
    makers: Sequence[Maker],
    shares: Sequence[float],
    ready: Sequence[Randomised],
    terms: Terms,
    slacks: Sequence[float] = (),
) -> list[Randomised]:
    """Return the units with the largest losses, in the proportion of their shares, that keep the promise.

    ``ready`` units have their losses already. Columns are pure, whatever δ: it buys more in the accounting of the
    whole. Only a single column without credit for its order takes δ itself, and those that have a part of it in
    ``slacks`` (by default none).
    """
    row_budget = terms.sampled_budget
    if not makers:
        return []
    any_takes_delta, rows_only = any(slacks), terms.central is None and terms.local is None
    if len(makers) == 1 and not ready and rows_only and (terms.shuffled_rows is None or any_takes_delta):
        return [makers[0](row_budget.epsilon, row_budget.delta)]
    if any_takes_delta:
        return _with_steps(makers, shares, ready, terms, slacks)
    failure_probability = math.fsum(unit.mechanism.delta for unit in ready)
    if row_budget.delta == 0 or (failure_probability > 0 and terms.central is None):
        budget = (
            row_budget
            if terms.local is None
            else Budget(min(row_budget.epsilon, terms.local.epsilon), row_budget.delta)
        )
        remainder = budget.less(compose(unit.certified for unit in ready)) if ready else budget
        return [make(part.epsilon, 0.0) for make, part in zip(makers, remainder.split(shares), strict=True)]
    if ready and terms.delta_of(ready).value >= row_budget.delta:
        row_budget.less(compose(unit.certified for unit in ready))  # refuses, and says what they spend
        raise ParameterError(_READY)
    model = _LossModel.beside(ready, shares, terms)
    if model.curved:
        return _curved(makers, shares, ready, terms, model)
    return _largest(makers, shares, ready, terms) if terms.central is None else _beside(makers, shares, terms, model)


@lru_cache(maxsize=256)
def recalibrate(units: tuple[Randomised, ...], terms: Terms) -> tuple[Randomised, ...]:
    """Return units calibrated for other terms, in their order: their shares are kept, and so are fixed channels."""
    adjustable = [unit for unit in units if not unit.mechanism.fixed]
    fixed = [unit for unit in units if unit.mechanism.fixed]
    epsilon_sum = math.fsum(unit.mechanism.epsilon for unit in adjustable)
    shares, slacks = (
        [u.mechanism.epsilon / epsilon_sum for u in adjustable],
        slacks_of([u.takes_delta for u in adjustable], terms),
    )
    calibrated = calibrate([u.remade for u in adjustable], shares, fixed, terms, slacks)
    by_names = {unit.names: unit for unit in [*calibrated, *fixed]}
    return tuple(by_names[unit.names] for unit in units)


def likely_units(units: tuple[Randomised, ...], terms: Terms) -> tuple[Randomised, ...]:
    """Return about the units of `recalibrate`, their losses within 2 % of its own, without proof: for forecasts."""
    if any(unit.mechanism.fixed or unit.takes_delta for unit in units):
        return recalibrate(units, terms)
    epsilon_sum = math.fsum(unit.mechanism.epsilon for unit in units)
    shares = [unit.mechanism.epsilon / epsilon_sum for unit in units]
    model = _LossModel.beside([], shares, terms)
    if not model.curved:
        return recalibrate(units, terms)
    model.learn(epsilon_sum, [unit.column_loss for unit in units])
    guess = model.under_curve(_MOST / min(shares))[0]
    return tuple(unit.remade(guess * share, 0.0) for unit, share in zip(units, shares, strict=True))


_CENTRAL = "epsilon is too small for what is spent centrally; raise it, or declare spaces"
_READY = (
    "epsilon is too small for the mechanisms that are given ready; raise it, or spend less elsewhere (infer_share, "
    "measure_share)"
)


_SOME = 1e-3
"""Part of ε that is to be left for the columns that are not given ready (tolerance)."""


def check_ready(ready: Sequence[Mechanism], terms: Terms) -> None:
    """Raise `ParameterError` if ready mechanisms leave nothing for what is central: before that is spent."""
    if not ready or terms.central is None:
        return
    failure_probability, reserve = math.fsum(m.delta for m in ready), response_parts([terms.budget.epsilon * _SOME])
    if any(m.loss.step for m in ready):
        steps = [m.loss.step for m in ready if m.loss.step is not None]
        other_mechanisms = [m for m in ready if m.loss.step is None]
        losses_of = [m.loss.epsilon(m.delta) or 5e-324 for m in other_mechanisms]
        slack = math.fsum(m.delta for m in other_mechanisms)
        if terms.delta_of_steps(steps, [*losses_of, terms.budget.epsilon * _SOME], slack).value > terms.budget.delta:
            raise ParameterError(_READY)
        return
    if failure_probability:
        accounting, losses = (
            terms.failing(failure_probability),
            response_parts([m.loss.epsilon(m.delta) or 5e-324 for m in ready]),
        )
    else:
        accounting, losses = terms, [m.column_loss for m in ready]
    if accounting.delta_of_losses([*losses, *reserve]).value > terms.budget.delta:
        raise ParameterError(_READY)


def _largest(
    makers: Sequence[Maker], shares: Sequence[float], ready: Sequence[Randomised], terms: Terms
) -> list[Randomised]:
    """Return units with nearly the largest total loss that keeps the promise; their own cost has been computed.

    Making units may take a second (linear programmes), so that few totals are tried: each is what a model of the
    units made so far says. Their cost may leap (optima do), which guesses between two totals close in on.
    """
    row_budget, model = terms.sampled_budget, _LossModel.beside(ready, shares, terms)
    upper_limit = _MOST / min(shares)
    best: list[Randomised] | None = None
    low, high, total = 0.0, math.inf, model.largest(min(row_budget.epsilon, upper_limit / 2), upper_limit)
    deltas: dict[float, float] = {}
    basic_total = row_budget.epsilon
    while True:
        total = _alike(total, upper_limit)
        units = [make(total * share, 0.0) for make, share in zip(makers, shares, strict=True)]
        deltas[total] = value = terms.delta_of([*ready, *units]).value
        if value <= row_budget.delta:
            low, best = total, units
            if value >= _USED * row_budget.delta or total >= upper_limit:
                return units
        else:
            high = total
        if high < row_budget.epsilon * 1e-9:
            raise ParameterError(_READY)
        model.learn(total, [unit.column_loss for unit in units])
        width = low * (1 + (_WIDTH if model.known < _TURNS else _LEAP))
        previous, total = total, model.largest(total, upper_limit)
        if best is not None and min(high, total if previous == low else math.inf) <= width:
            return best
        if model.known >= _TURNS or not low < total < high:
            total = _straight(low, high, deltas, row_budget.delta) or _between(low, high, basic_total, upper_limit)
            if _alike(total, upper_limit) == previous:  # the basic total is rounded down to the one that was just tried
                basic_total, total = 0.0, _between(low, high, 0.0, upper_limit)


def _alike(total: float, upper_limit: float) -> float:
    """Return a total loss to make units for that every machine comes to: it fits where a larger one does."""
    return fewer_digits_down(total) if total < upper_limit else upper_limit


def _straight(low: float, high: float, deltas: Mapping[float, float], delta: float) -> float | None:
    """Return where a straight line through the logarithms of δ at both bounds is at a promise's δ, if there is one."""
    if not (0 < deltas.get(low, 0.0) <= delta < deltas.get(high, 0.0)):
        return None
    fraction = math.log(delta / deltas[low]) / math.log(deltas[high] / deltas[low])
    return low + (high - low) * min(max(fraction, _AWAY), 1 - _AWAY)


def _curved(
    makers: Sequence[Maker], shares: Sequence[float], ready: Sequence[Randomised], terms: Terms, model: _LossModel
) -> list[Randomised]:
    """Return the same for shuffled rows with central steps: the model says where, units are then proved."""
    row_budget, upper_limit = terms.sampled_budget, _MOST / min(shares)
    total, slope = _under_curve(tuple(shares), tuple(model.ready), model.terms, upper_limit)
    for _ in range(_GUESSES):
        model.learn(total, [make(total * share, 0.0).column_loss for make, share in zip(makers, shares, strict=True)])
        total, slope = model.under_curve(upper_limit)
    best: list[Randomised] | None = None
    low, high, previous = 0.0, math.inf, (0.0, 0.0)
    for _ in range(_CURVED_TURNS):
        total = _alike(total, upper_limit)
        units = [make(total * share, 0.0) for make, share in zip(makers, shares, strict=True)]
        ratio = _cover(tuple(unit.column_loss for unit in [*ready, *units]), terms).ratio
        fits = terms.delta_of([*ready, *units]).value <= row_budget.delta
        if fits:
            low, best = total, units
        else:
            high = total
        capped = fits and terms.local is not None and ratio < _FILLED
        filled = fits and (ratio >= _FILLED or total >= upper_limit)
        if filled or capped or (best is not None and high <= low * (1 + _LEAP)):
            break
        gap = math.log(min(max(ratio, 1e-6), 1e6)) + _AIM
        if previous[0] and abs(math.log(total / previous[0])) > _LEAP:
            slope = min(max((gap - previous[1]) / math.log(total / previous[0]), 0.5), 4 * _STEEP)
        previous = total, gap
        candidate = total * (math.exp(-gap / slope) if fits or ratio > 1 else 1 - 10 * _LEAP)
        total = min(candidate, upper_limit) if low < candidate < high else math.sqrt(low * high) if low else high / 2
    if best is None:
        raise ParameterError(_READY if any(unit.mechanism.fixed for unit in ready) else _CENTRAL)
    return best


def _beside(makers: Sequence[Maker], shares: Sequence[float], terms: Terms, model: _LossModel) -> list[Randomised]:
    """Return unshuffled units with central steps: their losses follow from public facts, not from their spaces.

    Units lose what is asked of them at the most, and the bound grows with that. Were it to follow what inference gave,
    the mean over outcomes could exceed δ though every outcome keeps it.
    """
    accounting, upper_limit = model.terms, _MOST / min(shares)

    def losses(total: float) -> list[ColumnLoss]:
        return [*model.ready, *response_parts([total * share for share in shares])]

    def fits(total: float) -> bool:
        return accounting.delta_of_losses(losses(total)).value <= accounting.budget.delta

    total = _last_total(fits, accounting.budget.epsilon, upper_limit, bool(model.ready))
    return [make(total * share, 0.0) for make, share in zip(makers, shares, strict=True)]


def _last_total(fits: Callable[[float], bool], start: float, upper_limit: float, ready: bool) -> float:
    """Return nearly the largest total loss that fits; where none does, say that too much is ready, or central."""
    low, high = 0.0, min(start, upper_limit)
    while high < upper_limit and fits(high):
        low, high = high, min(2 * high, upper_limit)
    total = _alike(bisected(fits, low, high, _WIDTH, start * 1e-9), upper_limit)
    if total == 0:
        raise ParameterError(_READY if ready else _CENTRAL)
    return total


def _with_steps(
    makers: Sequence[Maker],
    shares: Sequence[float],
    ready: Sequence[Randomised],
    terms: Terms,
    slacks: Sequence[float],
) -> list[Randomised]:
    """Return unshuffled units with steps among them: what is lost follows only from what is asked of them.

    As in `_beside`. A unit with a δ of its own is made for the largest step within its (ε, δ).
    """
    steps, losses, failure_probability = _told(ready)
    pairs = list(zip(shares, slacks, strict=True))

    def fits(total: float) -> bool:
        delta_steps = [promise_step(Budget(total * share, slack)) for share, slack in pairs if slack]
        pure_losses = [total * share for share, slack in pairs if not slack]
        bound = terms.delta_of_steps([*steps, *delta_steps], [*losses, *pure_losses], failure_probability)
        return bound.value <= terms.sampled_budget.delta

    total = _last_total(fits, terms.sampled_budget.epsilon, _MOST / min(shares), bool(ready))
    return [make(total * share, slack) for make, (share, slack) in zip(makers, pairs, strict=True)]


def _between(low: float, high: float, basic_total: float, upper_limit: float) -> float:
    """Return a total between bounds to try: first the one that basic composition allows, where δ may leap from 0."""
    if low < basic_total < high:
        return basic_total
    if high == math.inf:
        return min(1.1 * low, upper_limit)
    return math.sqrt(low * high) if low else high / 2


class _LossModel:
    """Parts as functions of the total loss, from those of units that were made.

    1/γ − 1 is (e^ε − 1)/size for randomised response and about e^(ε/2) for grids, so that the logarithm of its
    ratio to e^ε − 1 is nearly linear; so is ε in the total, but for the rounding of tables. Before any is made they
    are taken as grids. ``ready`` are the losses of units that are made already, and ``terms`` take channels that
    may fail into account.
    """

    def __init__(self, shares: Sequence[float], ready: Sequence[ColumnLoss], terms: Terms) -> None:
        self._shares = np.array(shares)
        self.ready, self.terms = list(ready), terms
        self._kinds = [ColumnLoss(1.0, 0.5) for _ in shares]
        self._seen: dict[float, tuple[FloatArray, FloatArray]] = {}

    @classmethod
    def beside(cls, ready: Sequence[Randomised], shares: Sequence[float], terms: Terms) -> _LossModel:
        """Return a model of units together with others that are made already, whose δ, if any, is a chance to fail."""
        failure_probability = math.fsum(unit.mechanism.delta for unit in ready)
        if failure_probability == 0:
            return cls(shares, [unit.column_loss for unit in ready], terms)
        return cls(
            shares, response_parts([unit.certified.epsilon for unit in ready]), terms.failing(failure_probability)
        )

    @property
    def curved(self) -> bool:
        """Whether the rows are to lie under a curve."""
        return self.terms.central is not None and self.terms.shuffled_rows is not None

    @property
    def known(self) -> int:
        """Totals that units were made for."""
        return len(self._seen)

    def learn(self, total: float, parts: Sequence[ColumnLoss]) -> None:
        """Take in the parts of units that were made for a total loss."""
        self._kinds = list(parts)
        losses = np.array([max(part.epsilon, 1e-300) for part in parts])
        masses = np.array([part.blanket for part in parts])
        odds = np.log(np.maximum(1 - masses, _FLOOR)) - np.log(masses)
        self._seen[total] = losses / total, odds - _log_expm1(losses)

    def parts(self, total: float) -> list[ColumnLoss]:
        """Return what is expected of units made for a total loss, by the two nearest totals known."""
        if not self._seen:
            rates, odds = self._shares, -np.logaddexp(0.0, self._shares * total / 2)
        elif len(self._seen) == 1:
            rates, odds = next(iter(self._seen.values()))
        else:
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
        masses = np.maximum(np.exp(np.maximum(logs, -losses)), _FLOOR)
        return [k.at(float(loss), float(mass)) for k, loss, mass in zip(self._kinds, losses, masses, strict=True)]

    def largest(self, start: float, upper_limit: float) -> float:
        """Return the total at which the model's cost is just below δ, searched for about a start.

        Regula falsi (Illinois) on logarithms, in which δ of the total is nearly straight.
        """
        target = math.log(self.terms.sampled_budget.delta) + math.log((1 + _USED) / 2)

        def excess(x: float) -> float:
            value = self.terms.delta_of_losses([*self.ready, *self.parts(math.exp(x))]).value
            return math.log(max(value, 5e-324)) - target

        x = math.log(start)
        height, step = excess(x), 0.02 if len(self._seen) > 1 else math.log(2)
        while True:
            previous, previous_height = x, height
            x += math.copysign(step, -height)
            if x >= math.log(upper_limit):
                return upper_limit
            height, step = excess(x), 2 * step
            if (height <= 0) != (previous_height <= 0) or x < math.log(start) - 50:
                break
        tolerance = (1 - _USED) / 5 if self.known > 1 else 0.03
        low, high = sorted([(previous, previous_height), (x, height)])
        return math.exp(_root(excess, low, high, tolerance))

    def under_curve(self, upper_limit: float) -> tuple[float, float]:
        """Return about the largest total whose rows lie under the curve and within the local cap, and how μ grows."""
        terms, total = self.terms, upper_limit
        local = terms.local
        if local is not None:

            def fits(total: float) -> bool:
                return composed_delta([*self.ready, *self.parts(total)], local.epsilon) <= local.delta

            total = bisected(fits, 0.0, upper_limit, _LEAP / 2) or math.ulp(0.0)
        losses = [*self.ready, *self.parts(total)]
        if total < upper_limit and _needed(losses, terms) <= 1:
            return total, _STEEP
        cap = total
        total, slope = likely_total(lambda x: [*self.ready, *self.parts(x)], terms.permutation, terms.curve, cap)
        gap = math.log(min(max(_needed([*self.ready, *self.parts(total)], terms), 1 / _FAR), _FAR)) + _AIM
        return min(total * math.exp(-gap / slope), cap), slope


@lru_cache(maxsize=1024)
def _under_curve(
    shares: tuple[float, ...], ready: tuple[ColumnLoss, ...], terms: Terms, upper_limit: float
) -> tuple[float, float]:
    """Return `_LossModel.under_curve` of units that are not made yet: plans of as many columns begin alike."""
    return _LossModel(shares, ready, terms).under_curve(upper_limit)


def _root(
    excess: Callable[[float], float], low: tuple[float, float], high: tuple[float, float], tolerance: float
) -> float:
    """Return where an increasing function is nearly 0, by regula falsi (Illinois), from two points of its graph."""
    (x, below), (y, above) = low, high
    while y - x > _WIDTH / 2:
        gap = above - below  # 0 where halves of the tiniest numbers vanish
        middle = x - below * (y - x) / gap if gap > 0 else x
        if not x + 0.01 * (y - x) < middle < y - 0.01 * (y - x):
            middle = (x + y) / 2
        height = excess(middle)
        if abs(height) < tolerance:
            return middle
        if height <= 0:
            x, below, above = middle, height, above / 2
        else:
            y, above, below = middle, height, below / 2
    return x


def _log_expm1(x: FloatArray) -> FloatArray:
    return np.asarray(x + np.log(-np.expm1(-x)))
