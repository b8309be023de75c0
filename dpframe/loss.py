"""Privacy loss as data: exact curves δ(ε) of the channels that are sampled, and budgets.

All values are bounds from above, whatever the rounding: curves are evaluated with 50 digits and rounded
outward to floats, budgets are split and added in exact fractions.

ε is the largest factor e^ε by which one person's row can change the probability of anything that is
released, and δ the probability mass that may escape that bound.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any, SupportsFloat

from dpframe.errors import ParameterError

__all__ = [
    "Budget",
    "LaplaceLoss",
    "NullableLoss",
    "PrivacyLoss",
    "ResponseLoss",
    "check_delta",
    "check_epsilon",
    "compose",
    "laplace_delta",
    "laplace_rate",
    "laplace_scale",
    "laplace_scale_sufficient",
    "response_probability",
    "round_down",
    "round_up",
    "shares_of",
    "upward",
]

_DIGITS = Context(prec=60)
_SLACK = Decimal(10) ** -50
_TINY = 1e-20
"""Below it e^ε − 1 loses too many of the digits."""
_HUGE = 1e4
"""Above it e^ε is as good as infinite: no table resolves it, and a decimal may not hold it."""


def _as_float(value: SupportsFloat) -> float:
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):  # an integer beyond all floats, an array
        return math.nan


def check_epsilon(epsilon: Any, name: str = "epsilon") -> float:
    """Return ``epsilon`` as a float, or raise `ParameterError` unless it is finite and positive."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, SupportsFloat):
        raise ParameterError(f"{name} must be a number above 0, e.g. {name}=1.0")
    value = _as_float(epsilon)
    if not (math.isfinite(value) and value > 0):
        raise ParameterError(f"{name} must be finite and above 0, e.g. {name}=1.0; got {value}")
    return value


def check_delta(delta: Any, name: str = "delta") -> float:
    """Return ``delta`` as a float, or raise `ParameterError` unless it lies in [0, 1)."""
    if isinstance(delta, bool) or not isinstance(delta, SupportsFloat):
        raise ParameterError(f"{name} must be a number in [0, 1), e.g. {name}=1e-6")
    value = _as_float(delta)
    if not 0 <= value < 1:
        raise ParameterError(f"{name} must lie in [0, 1), e.g. {name}=0 or {name}=1e-6; got {value}")
    return value


def round_up(x: Decimal | Fraction) -> float:
    """Return the least float that is not below an exact number."""
    value = float(x)
    return value if Fraction(value) >= Fraction(x) else math.nextafter(value, math.inf)


def round_down(x: Decimal | Fraction) -> float:
    """Return the largest float that is not above an exact number."""
    value = float(x)
    return value if Fraction(value) <= Fraction(x) else math.nextafter(value, -math.inf)


def upward(x: float) -> str:
    """Return a loss in four digits, rounded up.

    Examples
    --------
    >>> upward(9.00927), upward(1.0), upward(0.0)
    ('9.01', '1', '0')
    """
    if not 1e-300 < x < 1e15:
        return f"{x:.4g}"
    scale = 10.0 ** (3 - math.floor(math.log10(x)))
    return f"{math.ceil(x * scale - 1e-6) / scale:.4g}"


@dataclass(frozen=True)
class Budget:
    """A promise (ε, δ).

    Raises
    ------
    ParameterError
        Unless ε is finite and above 0, and δ lies in [0, 1).

    Examples
    --------
    >>> Budget(1.0).split([0.5, 0.25, 0.25])
    (Budget(epsilon=0.5, delta=0.0), Budget(epsilon=0.25, delta=0.0), Budget(epsilon=0.25, delta=0.0))
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))

    def stated(self) -> str:
        """Return it as text, ε in four digits, rounded up.

        Examples
        --------
        >>> Budget(1.21671, 1e-6).stated()
        'epsilon=1.217, delta=1e-06'
        """
        return f"epsilon={upward(self.epsilon)}, delta={self.delta:g}"

    def split(self, shares: Sequence[float]) -> tuple[Budget, ...]:
        """Divide by shares that sum to at most 1; the parts never add up to more than the whole."""
        exact = [Fraction(share) for share in shares]
        excess = max(Fraction(1), sum(exact, Fraction(0)))
        return tuple(
            Budget(round_down(Fraction(self.epsilon) * s / excess), round_down(Fraction(self.delta) * s / excess))
            for s in exact
        )

    def less(self, spent: Budget, what: str = "mechanisms that are given ready") -> Budget:
        """Return what is left after a spend, rounded down; `ParameterError` if that is nothing."""
        epsilon, delta = (
            round_down(Fraction(mine) - Fraction(theirs))
            for mine, theirs in ((self.epsilon, spent.epsilon), (self.delta, spent.delta))
        )
        if epsilon <= 0 or delta < 0:
            raise ParameterError(
                f"{what} spend epsilon={spent.epsilon:g}, delta={spent.delta:g} a row, and leave nothing for the "
                "columns; raise epsilon or delta"
            )
        return Budget(epsilon, delta)

    def per_row(self, contributions: int) -> Budget:
        """Return what one row may spend when a person may own ``contributions`` rows (group privacy).

        k steps of (ε/k, δ') make (ε, δ'·(e^ε−1)/(e^(ε/k)−1)); δ' is solved for (Vadhan 2017, Lemma 2.2).
        """
        if isinstance(contributions, bool) or not isinstance(contributions, int) or contributions < 1:
            raise ParameterError("contributions must be a whole number of rows per person, at least 1")
        if contributions == 1:
            return self
        epsilon = round_down(Fraction(self.epsilon) / contributions)
        with localcontext(_DIGITS):
            row, person = Decimal(epsilon), Decimal(self.epsilon)
            # (e^row − 1)/(e^person − 1) by exponentials that cannot overflow; it is at least e^−person/k.
            ratio = (-person).exp() / contributions
            if self.epsilon > _TINY:
                ratio = (row - person).exp() * (1 - (-row).exp()) / (1 - (-person).exp())
            return Budget(epsilon, round_down(Decimal(self.delta) * ratio * (1 - _SLACK * 10**20)))


def compose(budgets: Iterable[Budget]) -> Budget:
    """Add budgets up: (Σεᵢ, Σδᵢ), rounded up (basic composition, Dwork–Roth 2014, Thm 3.16)."""
    parts = list(budgets)
    epsilon = sum((Fraction(b.epsilon) for b in parts), Fraction(0))
    delta = sum((Fraction(b.delta) for b in parts), Fraction(0))
    return Budget(round_up(epsilon), round_up(delta))


def shares_of(
    names: Sequence[Any], allocation: str | Mapping[Any, float], weights: Sequence[int] | None = None
) -> list[float]:
    """Turn ``allocation`` into one share per column.

    ``"uniform"`` gives every column the same. A mapping gives the named columns their shares; the others
    divide the rest equally. With ``weights`` both are in proportion to these.
    """
    whole = dict(zip(names, [1] * len(names) if weights is None else weights, strict=True))
    if allocation == "uniform":
        return [weight / sum(whole.values()) for weight in whole.values()]
    if not isinstance(allocation, Mapping):
        raise ParameterError('allocation must be "uniform", "error" or a mapping {column: share}')
    unknown = [name for name in allocation if name not in names]
    if unknown:
        raise ParameterError(f"allocation names {unknown[0]!r}, which is not a randomised column")
    given = {name: check_epsilon(share, f"allocation[{name!r}]") for name, share in allocation.items()}
    total, others = math.fsum(given.values()), sum(weight for name, weight in whole.items() if name not in given)
    if total > 1 + 1e-9 or (others and total >= 1):
        raise ParameterError("allocation shares must add up to 1, or to less when columns are left out of it")
    if not others and total < 1 - 1e-9:
        raise ParameterError("allocation shares of all columns must add up to 1")
    return [given.get(name, (1 - total) * weight / others if others else 0.0) for name, weight in whole.items()]


class PrivacyLoss(ABC):
    """The worst hockey-stick divergence between neighbouring rows, as a curve."""

    @abstractmethod
    def pure(self) -> float:
        """Return the ε at which δ(ε) = 0, rounded up."""

    @abstractmethod
    def _curve(self, epsilon: float) -> Decimal:
        """Return δ(ε) or more, for 0 ≤ ε < pure."""

    def delta(self, epsilon: float) -> float:
        """Return the least δ, rounded up, for which the channel is (ε, δ)-private."""
        if not epsilon >= 0:
            raise ParameterError("epsilon must be at least 0")
        if epsilon >= self.pure():
            return 0.0
        with localcontext(_DIGITS):
            return min(1.0, round_up(max(Decimal(0), self._curve(epsilon))))

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the least ε, rounded up, for which the channel is (ε, δ)-private."""
        delta = check_delta(delta)
        low, high = 0.0, self.pure()
        if delta == 0 or high == 0:
            return high
        if self.delta(0.0) <= delta:
            return 0.0
        while (middle := (low + high) / 2) not in (low, high):
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high


@dataclass(frozen=True)
class ResponseLoss(PrivacyLoss):
    """Loss of randomised response with weights ``keep`` and ``other`` out of ``total``.

    Equality in Theorem 8 of the categorical paper: δ(ε) = (keep − e^ε·other) / total.
    """

    keep: int
    other: int
    total: int

    def pure(self) -> float:
        """Return |ln(keep/other)|."""
        if self.keep == self.total:
            return 0.0
        with localcontext(_DIGITS):
            return round_up(abs((Decimal(self.keep) / self.other).ln()) + (0 if self.keep == self.other else _SLACK))

    def _curve(self, epsilon: float) -> Decimal:
        factor = Decimal(epsilon).exp() * (1 - _SLACK)
        large, small = max(self.keep, self.other), min(self.keep, self.other)
        return (large - factor * small) / self.total * (1 + _SLACK)


def laplace_delta(rate: float, distance: int, epsilon: Decimal | float) -> Decimal:
    """Return the exact δ(ε) between two-sided geometric laws ``distance`` steps apart, rounded up.

    P(k) ∝ e^(−rate·|k|). The likelihood ratio falls from e^(rate·distance) to e^(−rate·distance), so the
    positive part ends at the last k with rate·(distance − 2k) > ε; in the limit of fine grids this is
    1 − e^((ε − rate·distance)/2). Saturation at the ends of the grid changes nothing for the two ends.
    """
    with localcontext(_DIGITS):
        e, a = Decimal(epsilon), Decimal(rate)
        if e >= a * distance:
            return Decimal(0)
        if e < 0:  # hockey-stick symmetry, E_γ(P‖Q) = 1 − γ + γ·E_(1/γ)(Q‖P)
            return 1 - e.exp() + e.exp() * laplace_delta(rate, distance, -e)
        last = int(((distance - e / a) / 2).to_integral_value(rounding=ROUND_FLOOR))
        alpha, factor = (-a).exp(), e.exp()

        def up_to(j: int) -> Decimal:
            # Σ_{k≤j} P(k) − e^ε·Σ_{k≤j} P(k−distance)
            head = 1 - factor * (-a * distance).exp()
            body = 1 - (-a * j).exp()
            return (head + alpha * body - factor * (-a * (distance - j)).exp() * body) / (1 + alpha)

        return max(up_to(j) for j in (last - 1, last, last + 1) if 0 <= j < distance) * (1 + _SLACK) + _SLACK


@dataclass(frozen=True)
class LaplaceLoss(PrivacyLoss):
    """Loss of two-sided geometric noise saturated at the ends of a grid of ``span`` steps.

    ``spread`` bounds ln(P/ideal) between any two events, so P ≤ e^spread·ideal and
    δ(ε) ≤ e^spread·δ_ideal(ε − spread).
    """

    span: int
    rate: float
    spread: float

    def pure(self) -> float:
        """Return rate·span + spread."""
        return round_up(Fraction(self.rate) * self.span + Fraction(self.spread))

    def _curve(self, epsilon: float) -> Decimal:
        return self.curve_at(self.span, Decimal(epsilon))

    def curve_at(self, distance: int, epsilon: Decimal) -> Decimal:
        """Return a bound on δ(ε) between two inputs ``distance`` steps apart; ε may be negative."""
        slack = Decimal(self.spread)
        return slack.exp() * (1 + _SLACK) * laplace_delta(self.rate, distance, epsilon - slack)


@dataclass(frozen=True)
class NullableLoss(PrivacyLoss):
    """Loss of a null flag by randomised response beside a grid value (DESIGN: null is a value)."""

    flag: ResponseLoss
    value: LaplaceLoss

    def pure(self) -> float:
        """Return max(value against value, flag plus half the grid)."""
        half = LaplaceLoss((self.value.span + 1) // 2, self.value.rate, self.value.spread)
        return max(self.value.pure(), round_up(Fraction(self.flag.pure()) + Fraction(half.pure())))

    def _curve(self, epsilon: float) -> Decimal:
        half = (self.value.span + 1) // 2
        keep = Decimal(self.flag.keep) / self.flag.total
        flip = Decimal(self.flag.other) / self.flag.total
        e, odds = Decimal(epsilon), (keep / flip).ln()
        zero = Decimal(0)
        between = keep * self.value.curve_at(self.value.span, e)
        from_null = max(zero, keep - e.exp() * flip) + flip * self.value.curve_at(half, e + odds)
        to_null = max(zero, flip - e.exp() * keep) + keep * self.value.curve_at(half, e - odds)
        return max(between, from_null, to_null) * (1 + _SLACK) + _SLACK


def response_probability(size: int, epsilon: float, delta: float, bits: int) -> int:
    """Return ⌈2^bits·p⌉ with p = (1−δ)/(e^ε + size − 1), optimal randomised response (Thm 8, 10)."""
    with localcontext(_DIGITS):
        p = (1 - Decimal(delta)) / (Decimal(min(epsilon, _HUGE)).exp() + size - 1)
        return max(1, math.ceil(p * (1 << bits)))


def laplace_scale(diameter: float, epsilon: float, delta: float = 0.0) -> float:
    """Return the tight (ε, δ) Laplace scale, diam/(ε − 2 ln(1−δ)), in the limit of fine grids.

    Examples
    --------
    >>> laplace_scale(10.0, 1.0)
    10.0
    """
    return diameter / (check_epsilon(epsilon) - 2 * math.log1p(-check_delta(delta)))


def laplace_scale_sufficient(diameter: float, epsilon: float, delta: float = 0.0) -> float:
    """Return diam/(ε − ln(1−δ)), the metric-spaces paper's Example 5: sufficient, and not tight."""
    return diameter / (check_epsilon(epsilon) - math.log1p(-check_delta(delta)))


def laplace_rate(span: int, epsilon: float, delta: float, spread: float = 0.0) -> float:
    """Return the largest loss per grid step, e^(−rate·|k|), whose `LaplaceLoss` meets (ε, δ)."""
    low, high = 0.0, (epsilon - 2 * math.log1p(-delta)) * 4 / span + 64 / span * (delta > 0)
    if delta == 0:
        rate = round_down((Fraction(epsilon) - Fraction(spread)) / span)
        return max(rate, 0.0)
    while (middle := (low + high) / 2) not in (low, high):
        fits = LaplaceLoss(span, middle, spread).delta(epsilon) <= delta
        low, high = (middle, high) if fits else (low, middle)
    return low
