"""Currencies of a ledger: (ε, δ), or the (μ², δ₀) of Gaussian differential privacy with a slack.

A dataset keeps one of the two for good. Either sum may be held to its total although each release chooses its budget
by earlier results (basic composition, Rogers–Roth–Ullman–Vadhan 2016; sums of μ², Smith–Thakurta 2022,
Koskela–Tobaben–Honkela 2022). Taking whichever of the two still fits may not: that is a third rule, unproven. One
exception is safe, as nothing was seen when it is made: a first release that is the total's (ε, δ) and no more may have
the dataset for itself, with any step. Nothing else fits then, unless its step leaves room.

*Sums are exact.* ε, δ and δ₀ are read as the decimals that Python prints for them, and μ as the float itself, whose
square is a fraction: no rounding piles up, and a total is never exceeded, not by the last digit. 1 − δ₀ multiplies;
the sum of δ₀ bounds that from above, and is exact.

*A total (ε, δ) in Gaussian accounting* becomes M² and a pool of δ₀ when the dataset is created, where M is the
largest with pool + (1 − pool)·G_M(ε) ≤ δ. A spend known only by (ε, δ) enters as δ₀ = δ and the μ of pure ε,
which dominates it.

*Parts.* If rows lie in public, disjoint parts, a replaced row lies in one: spends on a part add up there,
and the largest sum counts together with the spends on the whole. If a replaced row may move, it leaves one part
and enters another: the two largest sums count.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import inf, nextafter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import Budget, round_down, round_up, upward
from dpframe.accounting.gaussian_dp import Step, dominating_step, gaussian_mu, log_gaussian, promise_step
from dpframe.accounting.unit import ROW, Unit
from dpframe.errors import BudgetExceeded, ParameterError, name_list
from dpframe.spaces.base import forwarded

POOL = Fraction(1, 2)
"""Share of a total's δ that is its pool of δ₀.

A release takes a tenth of its own δ for δ₀, and a spend known only by its (ε, δ) takes all of its δ: half of the
total leaves room for both. M² loses 6 % by it at (1, 1e-6), at which the pool costs 0.03.
"""

NIGHTS = 365

_LARGEST_TOTAL_EPSILON = 1e6
"""Largest ε of a total that is turned into M; above it M stays constant, which promises more."""


@dataclass(frozen=True)
class Amount:
    """An amount (ε, δ) that may be nothing at all, unlike a `Budget`.

    In Gaussian accounting ε is stated at the dataset's δ, with the whole pool set aside; δ is δ₀, of the pool.
    """

    epsilon: float
    delta: float = 0.0

    def __str__(self) -> str:
        return f"epsilon={shown(self.epsilon)}, delta={shown(self.delta)}"


class StoredAmount(NamedTuple):
    """A total or a spend as the file stores it, as text: (ε, δ), μ and δ₀."""

    epsilon: str
    delta: str
    mu: str
    slack: str

    @classmethod
    def of(cls, budget: Budget, step: Step | None) -> StoredAmount:
        """Return an amount as text; without a step it is dominated by pure ε and a slack of δ."""
        stored_step = dominated(budget) if step is None else step
        return cls(str(budget.epsilon), str(budget.delta), str(stored_step.mu), str(stored_step.delta))

    @property
    def budget(self) -> Budget:
        """The amount as (ε, δ)."""
        return Budget(float(self.epsilon), float(self.delta))

    @property
    def step(self) -> Step:
        """The amount as (μ, δ₀)."""
        return Step(float(self.mu), float(self.slack))


class Sum(NamedTuple):
    """An exact amount: (ε, δ) or (μ², δ₀)."""

    loss: Fraction
    slack: Fraction

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """Add another amount, so many times."""
        return Sum(self.loss + times * other.loss, self.slack + times * other.slack)

    def fits(self, total: Sum) -> bool:
        """Return whether neither coordinate exceeds a total's."""
        return self.loss <= total.loss and self.slack <= total.slack

    def times_in(self, left: Sum) -> int | None:
        """Return how often this amount fits into a remaining sum; None if it is zero, and fits forever."""
        # A coordinate of zero limits nothing.
        ratios = [available / amount for amount, available in zip(self, left, strict=True) if amount]
        # A first release of the whole total may have a larger step than M, which makes the remaining sum negative.
        return math.floor(max(Fraction(0), min(ratios))) if ratios else None

    def share_of(self, total: Sum) -> float:
        """Return the larger of the two shares of a total, infinite of a total of nothing."""
        return max(float(amount / limit) if limit else inf for amount, limit in zip(self, total, strict=True) if amount)


NOTHING = Sum(Fraction(0), Fraction(0))


def decimals(epsilon: float | str, delta: float | str) -> Sum:
    """Return amounts as the decimals they print as."""
    return Sum(Fraction(str(epsilon)), Fraction(str(delta)))


def up(exact: Fraction) -> float:
    """Return the float nearest to ``exact`` whose decimal does not lie below it."""
    return _round_toward(exact, inf)


def down(exact: Fraction) -> float:
    """Return the float nearest to ``exact`` whose decimal does not lie above it, at least 0."""
    return _round_toward(max(exact, Fraction(0)), -inf)


def _round_toward(fraction: Fraction, direction: float) -> float:
    try:
        # 365 nights of a huge ε exceed the largest float: `yearly` then shows infinity.
        value = float(fraction)
    except OverflowError:
        return inf
    # The printed decimal counts, not the float: it may lie on the other side of the exact value.
    is_wrong_side = Fraction(str(value)) < fraction if direction > 0 else Fraction(str(value)) > fraction
    return nextafter(value, direction) if is_wrong_side else value


def shown(value: float) -> str:
    """Return a number as text; whole numbers have no decimals."""
    return str(value).removesuffix(".0")


@lru_cache(maxsize=1024)
def dominated(budget: Budget) -> Step:
    """Return the step of anything (ε, δ)-private, for every ε that is a float.

    Pure ε is μ = 2Φ⁻¹(e^ε/(1 + e^ε)). Where e^ε is no float, 1 − Φ(t) ≤ e^(−t²/2)/2 bounds it by 2√(2ε); where half of
    ε is no float either, μ ≤ √(π/2)·ε ≤ 2ε.
    """
    if budget.epsilon < 1e-300:
        return Step(2 * budget.epsilon, budget.delta)
    if budget.epsilon >= 600:
        # The factor exceeds the rounding errors of both roots, as a dominating μ must not lie below the exact one.
        return Step(2 * math.sqrt(2) * math.sqrt(budget.epsilon) * (1 + 1e-15), budget.delta)
    return dominating_step(budget)


class Currency(ABC):
    """How a dataset's spends add up."""

    name: ClassVar[str]

    @abstractmethod
    def whole(self, budget: Budget) -> StoredAmount:
        """Return a total in stored form."""

    @abstractmethod
    def exact(self, kept: StoredAmount) -> Sum:
        """Return the exact amount of a total or a spend."""

    @abstractmethod
    def spent(self, sums: Sequence[Sum], total: DatasetTotal) -> list[Amount]:
        """Return sums of spends as (ε, δ), rounded up."""

    @abstractmethod
    def left(self, rest: Sum, total: DatasetTotal) -> Amount:
        """Return a remaining sum as (ε, δ), rounded down."""

    def alone(self, kept: StoredAmount, total: DatasetTotal) -> bool:
        """Return whether an unspent dataset may be spent at once, by another rule than its sum."""
        return False

    @abstractmethod
    def shortage(self, left: Sum, asked: StoredAmount, total: DatasetTotal) -> str:
        """Return an error text: the remaining amount, the requested one, and a remedy."""


class BasicCurrency(Currency):
    """(Σεᵢ, Σδᵢ)."""

    name = "basic"

    def whole(self, budget: Budget) -> StoredAmount:
        """Return just ε and δ."""
        return StoredAmount(str(budget.epsilon), str(budget.delta), "", "")

    def exact(self, kept: StoredAmount) -> Sum:
        """Return ε and δ as decimals."""
        return decimals(kept.epsilon, kept.delta)

    def spent(self, sums: Sequence[Sum], total: DatasetTotal) -> list[Amount]:
        """Return ε and δ rounded up."""
        return [Amount(up(spent_sum.loss), up(spent_sum.slack)) for spent_sum in sums]

    def left(self, rest: Sum, total: DatasetTotal) -> Amount:
        """Return ε and δ rounded down: they can be spent to the last digit."""
        return Amount(down(rest.loss), down(rest.slack))

    def shortage(self, left: Sum, asked: StoredAmount, total: DatasetTotal) -> str:
        """Return the error text with (ε, δ) of the remaining, total and requested amounts."""
        total_amount, requested_amount = self.left(total.exact, total), Amount(float(asked.epsilon), float(asked.delta))
        remaining_amount = self.left(left, total)
        advice = "ask for no more than is left, or " if remaining_amount.epsilon > 0 else ""
        if requested_amount.epsilon <= remaining_amount.epsilon:
            # The smaller epsilon hides that only δ is missing.
            advice = f"the left delta is too small: ask for delta={remaining_amount.delta:g}, or "
        return (
            f"{remaining_amount} left of {total_amount}, and {requested_amount} was asked: {_NOTHING_SPENT}; "
            f"{advice}{_LARGER_TOTAL_ADVICE}"
        )


class GaussianCurrency(Currency):
    """(Σμᵢ², Σδ₀ᵢ)."""

    name = "gaussian"

    def whole(self, budget: Budget) -> StoredAmount:
        """Return M and the pool with ε and δ: pool + (1 − pool)·G_M(ε) ≤ δ, of the decimals."""
        if budget.delta == 0:
            raise ParameterError(
                'accounting="gaussian" needs a delta above 0; raise delta, or create the dataset with '
                'accounting="basic"'
            )
        # Decimals of the floats, as people wrote them: 0.1 is one tenth.
        epsilon, delta = decimals(budget.epsilon, budget.delta)
        pool = str(down(delta * POOL))
        if round_up(Fraction(pool)) >= round_down(delta):  # floats next to 0 have no halves
            pool = "0.0"
        # ε and δ round down and the pool rounds up: M never allows more than the total.
        mu = gaussian_mu(min(round_down(epsilon), _LARGEST_TOTAL_EPSILON), round_down(delta), round_up(Fraction(pool)))
        return StoredAmount(str(budget.epsilon), str(budget.delta), str(mu), pool)

    def exact(self, kept: StoredAmount) -> Sum:
        """Return μ², a square of a float, and δ₀, a decimal."""
        return Sum(Fraction(float(kept.mu)) ** 2, Fraction(kept.slack))

    def spent(self, sums: Sequence[Sum], total: DatasetTotal) -> list[Amount]:
        """Return the spent ε, at the dataset's δ, and the spent δ₀, rounded up."""
        epsilons, total_epsilon = (
            _to_epsilons([up(spent_sum.loss) for spent_sum in sums], total, ceiling=True),
            total.budget.epsilon,
        )
        # All of M² is the total's ε, which its conversion there and back misses in the last digit. Nothing beyond the
        # total's promise is ever entered: more is only the step of a release that had the dataset for itself.
        total_loss = total.exact.loss
        capped_epsilons = [
            total_epsilon if spent_sum.loss >= total_loss else min(epsilon, total_epsilon)
            for epsilon, spent_sum in zip(epsilons, sums, strict=True)
        ]
        return [Amount(epsilon, up(spent_sum.slack)) for epsilon, spent_sum in zip(capped_epsilons, sums, strict=True)]

    def alone(self, kept: StoredAmount, total: DatasetTotal) -> bool:
        """Return whether a first spend keeps the total's promise as (ε, δ), with any step."""
        return BASIC.exact(kept).fits(BASIC.exact(total.kept))

    def left(self, rest: Sum, total: DatasetTotal) -> Amount:
        """Return the ε, at the dataset's δ, of the remaining μ², and the remaining pool, rounded down."""
        # The conversion to M² and back misses the last digit, which an unspent total must show.
        is_unspent = rest.loss >= total.exact.loss
        epsilon = total.budget.epsilon if is_unspent else _to_epsilons([down(rest.loss)], total, ceiling=False)[0]
        return Amount(epsilon, down(rest.slack))

    def shortage(self, left: Sum, asked: StoredAmount, total: DatasetTotal) -> str:
        """Return the error text with the remaining ε and the largest fitting amounts; it names cheaper accounting."""
        requested_sum, total_sum = self.exact(asked), total.exact
        remaining_amount, largest_sizes = self.left(left, total), {}
        shortage_text = (
            f"epsilon={remaining_amount.epsilon:.4g} left of {shown(total.budget.epsilon)} at its "
            f"delta={total.kept.delta}"
        )
        if requested_sum.slack > left.slack:
            shortage_text += (
                f" and {remaining_amount.delta:.4g} of the {down(total_sum.slack):.4g} that it may fail with"
            )
            largest_sizes["delta"] = _round_to_three_digits(
                float(asked.delta) * float(left.slack / requested_sum.slack)
            )
        if requested_sum.loss > left.loss:
            largest_sizes["epsilon"] = _largest_epsilon(asked, left)
        size_advice = "; ".join(
            f"the largest {name} that still fits is {size:g}" for name, size in largest_sizes.items()
        )
        # The rest above is at the dataset's delta, and may well be the smaller one.
        at_release_delta = " at this release's delta" if "epsilon" in largest_sizes else ""
        remedy = (
            f"{size_advice}{at_release_delta}: ask for no more, or {_LARGER_TOTAL_ADVICE}"
            if all(largest_sizes.values())
            else f"nothing fits any more; {_LARGER_TOTAL_ADVICE}"
        )
        gaussian_share, basic_share = (
            requested_sum.share_of(total_sum),
            BASIC.exact(asked).share_of(BASIC.exact(total.kept)),
        )
        comparison = (
            f"; this release takes {_percent_text(gaussian_share)} of the total in Gaussian accounting and "
            f"{_percent_text(basic_share)} by "
            'addition: unshuffled releases belong in a dataset created with accounting="basic"'
        )
        return (
            f"{shortage_text}, too little for this release of epsilon={shown(float(asked.epsilon))}, "
            f"delta={shown(float(asked.delta))}: {_NOTHING_SPENT}; "
            f"{remedy}{comparison if gaussian_share > basic_share else ''}"
        )


_NOTHING_SPENT = "nothing was spent and nothing was drawn"
_LARGER_TOTAL_ADVICE = "create a dataset with a larger total, which counts from 0: for the same people both add up"


def _round_to_three_digits(value: float) -> float:
    """Return a number rounded down to three digits: a margin for other roundings of releases of other sizes."""
    return 0.0 if value < 1e-300 else float(Decimal(value).normalize(Context(prec=3, rounding=ROUND_DOWN)))


_NEGLIGIBLE_EPSILON = 1e-6
"""Absolute tolerance of the search for the largest fitting ε."""


def _largest_epsilon(amount: StoredAmount, remaining_sum: Sum) -> float:
    """Return about the largest ε that fits into a remaining sum, by the requested amount's curve."""
    if remaining_sum.loss <= 0:
        return 0.0
    # Domination by (ε, δ) takes all of δ as slack; a smaller slack means a release under its promise's curve.
    step_of = dominated if amount.step.delta >= amount.budget.delta else promise_step
    step_ratio = max(1.0, amount.step.mu / step_of(amount.budget).mu)

    def fits(epsilon: float) -> bool:
        return Fraction(step_of(Budget(epsilon, amount.budget.delta)).mu * step_ratio) ** 2 <= remaining_sum.loss

    return _round_to_three_digits(bisected(fits, 0.0, amount.budget.epsilon, 1e-4, _NEGLIGIBLE_EPSILON))


def _percent_text(share: float) -> str:
    if not math.isfinite(share):
        return "more than all"
    return f"{100 * share:,.0f} %" if share >= 10 else f"{100 * share:.3g} %"


def _to_epsilons(squares: Sequence[float], total: DatasetTotal, ceiling: bool) -> list[float]:
    """Return the ε at which pool + (1 − pool)·G_μ(ε) is the dataset's δ, for each μ², rounded up or down."""
    pool, delta = Fraction(total.kept.slack), Fraction(total.kept.delta)
    share = (delta - pool) / (1 - pool)
    # Margins of 1e-15 cover the rounding errors of logarithms: spent ε rounds up, remaining ε down.
    goal = math.log(float(share)) + (-1 if ceiling else 1) * 1e-15 * (1 - math.log(float(share)))
    return _solve_log_gaussian(np.sqrt(np.asarray(squares)) * (1 + (1 if ceiling else -1) * 1e-15), goal, ceiling)


def _solve_log_gaussian(mus: npt.NDArray[np.float64], goal: float, ceiling: bool) -> list[float]:
    """Return x with ln G_μ(x) = goal by halving, the upper end or the lower one; 0 if G_μ(0) is below."""
    # A μ of 0 has no logarithm; its result is replaced by 0 below.
    positive = np.where(mus > 0, mus, 1.0)

    def over(x: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        bounds = log_gaussian(positive, x)
        return np.asarray((mus > 0) & (bounds[1 if ceiling else 0] > goal))

    low, high = np.zeros_like(positive), positive * (positive / 2 + 1)
    # The first upper end is a guess: it doubles until the interval contains every root.
    while (is_too_low := over(high)).any():
        low, high = np.where(is_too_low, high, low), np.where(is_too_low, 2 * high, high)
    # Sixty halvings exceed the 53 bits of a float.
    for _ in range(60):
        middle = (low + high) / 2
        is_above = over(middle)
        low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
    has_solution = over(np.zeros_like(positive))
    return [float(x) for x in np.where(has_solution, high if ceiling else low, 0.0)]


BASIC, GAUSSIAN = BasicCurrency(), GaussianCurrency()

CURRENCIES: Mapping[str, Currency] = {currency.name: currency for currency in (GAUSSIAN, BASIC)}


def currency_of(accounting: Any, delta: float) -> Currency:
    """Return the currency of a new dataset; None chooses by δ."""
    if accounting is None:
        return GAUSSIAN if delta > 0 else BASIC
    if not isinstance(accounting, str) or accounting not in CURRENCIES:
        raise ParameterError('accounting must be "gaussian" or "basic"; give neither to choose by delta')
    return CURRENCIES[accounting]


@dataclass(frozen=True)
class DatasetTotal:
    """A dataset as it was created, and how its spends add up."""

    name: str
    currency: Currency
    kept: StoredAmount
    parts: tuple[str, ...] = ()
    moving: bool = False
    unit: Unit = ROW

    @property
    def exact(self) -> Sum:
        """The exact total."""
        return self.currency.exact(self.kept)

    budget: ClassVar[Budget] = forwarded("kept.budget")

    def check_unit(self, unit: Unit) -> None:
        """Raise `ParameterError` for a promise of another unit: the two would add up to a promise for nobody.

        A promise for 2k rows that are added or removed holds for k that are replaced, and adds up there.
        """
        # A promise for rows added or removed also holds for half as many replaced rows, never the reverse.
        converted = unit.added and not self.unit.added and unit.covers(self.unit)
        if unit != self.unit and not converted:
            remedies = [
                (f"create a dataset with unit={str(unit)!r}", unit),
                (f"ask with {self.unit.options}", self.unit),
            ]
            # The first remedy gives up no person's protection.
            (first_remedy, _), (second_remedy, protected) = remedies if self.unit.person is None else reversed(remedies)
            raise ParameterError(
                f"dataset {name_list([self.name])} adds up promises for {self.unit.words}, and this one is for "
                f"{unit.words}, which does not add up: {first_remedy}, or, to protect {protected.words}, "
                f"{second_remedy}; nothing "
                "was spent"
            )

    def check_part(self, part: str | None) -> None:
        """Raise `ParameterError` unless ``part`` is None or one of the parts."""
        if part is None or part in self.parts:
            return
        if not self.parts:
            raise ParameterError(
                f"part is not to be named: dataset {name_list([self.name])} has no parts; leave part out, or create "
                'a dataset with parts, e.g. parts=("north", "south")'
            )
        raise ParameterError(
            f"dataset {name_list([self.name])} has no part {name_list([part])}; its parts are {name_list(self.parts)}: "
            "name one of these"
        )


@dataclass
class Tally:
    """Sums of a dataset's spends: on the whole, and on each part."""

    total: DatasetTotal
    whole: Sum = NOTHING
    parts: dict[str, Sum] = field(default_factory=dict)

    def add(self, amount: Sum, part: str | None, times: int = 1) -> None:
        """Enter a spend, so many times."""
        if part is None:
            self.whole = self.whole.plus(amount, times)
        else:
            self.parts[part] = self.parts.get(part, NOTHING).plus(amount, times)

    @property
    def charged(self) -> Sum:
        """The cost of all spends for one row: the whole, and the largest part or the two largest."""
        return self._add_largest_parts(2 if self.total.moving else 1, self.parts.values())

    def left(self, part: str | None = None) -> Sum:
        """Return the remaining sum for the whole, or for a part."""
        if part is None:
            return self.total.exact.plus(self.charged, -1)
        # A row pays for the spends on its own part; a row that moves also pays for the largest other part.
        other_sums = [amount for name, amount in self.parts.items() if name != part]
        other_cost = self._add_largest_parts(1 if self.total.moving else 0, other_sums).plus(
            self.parts.get(part, NOTHING)
        )
        return self.total.exact.plus(other_cost, -1)

    def room(self, kept: StoredAmount, part: str | None) -> int | None:
        """Return how often an amount fits, by sums or at once; None if it is nothing, and fits forever."""
        times = self.total.currency.exact(kept).times_in(self.left(part))
        return 1 if times == 0 and self._may_spend_total_at_once(kept) else times

    def _may_spend_total_at_once(self, amount: StoredAmount) -> bool:
        """Return whether nothing was spent yet, and this may have the dataset for itself."""
        return self.whole == NOTHING and not self.parts and self.total.currency.alone(amount, self.total)

    def refuse(self, kept: StoredAmount, part: str | None) -> None:
        """Raise `BudgetExceeded` unless an amount fits."""
        remaining_sum, total = self.left(part), self.total
        if not total.currency.exact(kept).fits(remaining_sum) and not self._may_spend_total_at_once(kept):
            part_text = "" if part is None else f", part {name_list([part])},"
            raise BudgetExceeded(
                f"dataset {name_list([total.name])}{part_text} has "
                f"{total.currency.shortage(remaining_sum, kept, total)}"
            )

    def _add_largest_parts(self, largest: int, parts: Collection[Sum]) -> Sum:
        """Add the largest of some parts to the whole, of each coordinate for itself: every pair fits if these do."""
        columns = zip(*parts, strict=True) if parts else ((), ())
        # The two coordinates may come from different parts: their maxima bound every pair.
        largest_sums = [sum(sorted(column, reverse=True)[:largest], Fraction(0)) for column in columns]
        return self.whole.plus(Sum(*largest_sums))


def difference(whole: Budget, part: Budget) -> Budget:
    """Return an amount less a part, rounded so that both together never exceed the whole."""
    remaining_sum = decimals(whole.epsilon, whole.delta).plus(decimals(part.epsilon, part.delta), -1)
    return Budget(down(remaining_sum.loss), down(remaining_sum.slack))


def covers(paid: Budget, asked: Budget) -> bool:
    """Return whether an amount is at least another one, of ε and of δ."""
    return decimals(asked.epsilon, asked.delta).fits(decimals(paid.epsilon, paid.delta))


def enough_for(more: int | None) -> str:
    """Return a text on how many more releases of one size fit; None is any number.

    >>> enough_for(1_300), enough_for(None)
    ('what is left is enough for 1,300 more', 'what is left is enough for any number more')
    """
    return f"what is left is enough for {'any number' if more is None else f'{more:,}'} more"


def yearly(epsilon: float, delta: float = 0.0, step: Step | None = None) -> str:
    """Return a text on the sum of a year of nightly releases of this size; by its step as well if that is less."""
    night = Budget(epsilon, delta)
    year = NOTHING.plus(decimals(night.epsilon, night.delta), NIGHTS)
    total = Amount(up(year.loss), up(year.slack))
    says = f"one such release every night ({Amount(night.epsilon, night.delta)} each) would add up to {total} in a year"
    # Every mechanism, even one that prints the table, is (ε, 1)-private.
    says = says if total.delta < 1 else f"{says}, which promises nothing"
    composed = inf if step is None else _yearly_epsilon(step, year.slack)
    if composed >= total.epsilon:
        return says
    return f"{says}; in Gaussian accounting to {Amount(composed, total.delta)}"


def _yearly_epsilon(step: Step, delta: Fraction) -> float:
    """Return the ε, in four digits and rounded up, of a year of steps, at a δ; infinite if the slacks leave none."""
    slack = NIGHTS * Fraction(str(step.delta))
    if not slack < delta < 1:
        return inf
    share = float((delta - slack) / (1 - slack))
    goal = math.log(share) - 1e-15 * (1 - math.log(share))
    mus = np.asarray([math.sqrt(NIGHTS) * step.mu * (1 + 1e-15)])
    return float(upward(_solve_log_gaussian(mus, goal, ceiling=True)[0]))
