"""Budgets (ε, δ), their basic composition, and numbers that are checked and rounded outward."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any, SupportsFloat

from dpframe.errors import ParameterError, check_whole, is_one_of

LOSS_CONTEXT = Context(prec=60)
"""Decimal arithmetic of privacy losses, to 60 digits."""
DECIMAL_SLACK = Decimal(10) ** -50
"""Relative error that decimals of 60 digits are rounded outward by."""


_MIN_EXPM1_EPSILON = 1e-20
"""ε below which e^ε − 1 loses too many of its digits."""


def _as_float(value: Any) -> float | None:
    """Return a number as a float, NaN if it exceeds all floats, or None if the value is no number."""
    # Floats first: the look-up of a protocol's methods takes longer than the remainder of most checks.
    if not isinstance(value, float) and (isinstance(value, bool) or not isinstance(value, SupportsFloat)):
        return None
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):  # an integer beyond all floats, an array
        return math.nan


def check_epsilon(epsilon: Any, name: str = "epsilon") -> float:
    """Return ``epsilon`` as a float, or raise `ParameterError` unless it is finite and positive."""
    value = _as_float(epsilon)
    if value is None:
        raise ParameterError(f"{name} must be a number above 0, e.g. {name}=1.0")
    if not (math.isfinite(value) and value > 0):
        raise ParameterError(f"{name} must be finite and above 0, e.g. {name}=1.0; got {value}")
    return value


def check_delta(delta: Any, name: str = "delta") -> float:
    """Return ``delta`` as a float, or raise `ParameterError` unless it lies in [0, 1)."""
    value = _as_float(delta)
    if value is None:
        raise ParameterError(f"{name} must be a number in [0, 1), e.g. {name}=1e-6")
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

    >>> upward(9.00927), upward(1.0), upward(0.0)
    ('9.01', '1', '0')
    """
    if not 1e-300 < x < 1e15:
        return f"{x:.4g}"
    # 1e-6 of the last digit forgives the rounding of x itself, or 0.07 would become 0.07001.
    scale = 10.0 ** (3 - math.floor(math.log10(x)))
    return f"{math.ceil(x * scale - 1e-6) / scale:.4g}"


@dataclass(frozen=True)
class Budget:
    """A privacy budget (ε, δ).

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
        """Return the budget as text, ε in four digits, rounded up.

        Examples
        --------
        >>> Budget(1.21671, 1e-6).stated()
        'epsilon=1.217, delta=1e-06'
        """
        return f"epsilon={upward(self.epsilon)}, delta={self.delta:g}"

    def split(self, shares: Sequence[float]) -> tuple[Budget, ...]:
        """Divide by shares that sum to at most 1; the parts never add up to more than the budget."""
        fractions = [Fraction(share) for share in shares]
        # Shares are exact fractions of floats: ten shares of 0.1 sum to a little more than 1.
        excess = max(Fraction(1), sum(fractions, Fraction(0)))
        return tuple(
            Budget(round_down(Fraction(self.epsilon) * s / excess), round_down(Fraction(self.delta) * s / excess))
            for s in fractions
        )

    def less(
        self,
        spent: Budget,
        what: str = "mechanisms that are given ready",
        remedy: str = "raise epsilon or delta",
    ) -> Budget:
        """Return the remaining budget after a spend, rounded down; `ParameterError` if nothing remains."""
        epsilon, delta = (
            round_down(Fraction(mine) - Fraction(theirs))
            for mine, theirs in ((self.epsilon, spent.epsilon), (self.delta, spent.delta))
        )
        if epsilon <= 0 or delta < 0:
            raise ParameterError(
                f"{what} spend epsilon={spent.epsilon:g}, delta={spent.delta:g} a row, and leave nothing for the "
                f"columns; {remedy}"
            )
        return Budget(epsilon, delta)

    def per_row(self, contributions: int) -> Budget:
        """Return the budget of one row if a person may own ``contributions`` rows (group privacy).

        k steps of (ε/k, δ') make (ε, δ'·(e^ε−1)/(e^(ε/k)−1)); δ' is solved for (Vadhan 2017, Lemma 2.2).
        """
        if check_whole(contributions, "contributions", of="rows per person") == 1:
            return self
        epsilon = round_down(Fraction(self.epsilon) / contributions)
        with localcontext(LOSS_CONTEXT):
            row, person = Decimal(epsilon), Decimal(self.epsilon)
            # (e^row − 1)/(e^person − 1) by exponentials that cannot overflow; it is at least e^−person/k.
            ratio = (-person).exp() / contributions
            if self.epsilon > _MIN_EXPM1_EPSILON:
                ratio = (row - person).exp() * (1 - (-row).exp()) / (1 - (-person).exp())
            return Budget(epsilon, round_down(Decimal(self.delta) * ratio * (1 - DECIMAL_SLACK * 10**20)))


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

    ``"uniform"`` gives every column an equal share. A mapping gives the named columns their shares; the other columns
    divide the remainder equally. With ``weights`` the divisions are in proportion to these.
    """
    weight_of = dict(zip(names, [1] * len(names) if weights is None else weights, strict=True))
    if is_one_of(allocation, ["uniform"]):
        return [weight / sum(weight_of.values()) for weight in weight_of.values()]
    if not isinstance(allocation, Mapping):
        raise ParameterError('allocation must be "uniform", "error" or a mapping {column: share}')
    unknown = [name for name in allocation if name not in names]
    if unknown:
        raise ParameterError(f"allocation names {unknown[0]!r}, which is not a randomised column")
    named_shares = {name: check_epsilon(share, f"allocation[{name!r}]") for name, share in allocation.items()}
    total, open_weight = (
        math.fsum(named_shares.values()),
        sum(weight for name, weight in weight_of.items() if name not in named_shares),
    )
    if total > 1 + 1e-9 or (open_weight and total >= 1):
        raise ParameterError("allocation shares must add up to 1, or to less when columns are left out of it")
    if not open_weight and total < 1 - 1e-9:
        raise ParameterError("allocation shares of all columns must add up to 1")
    return [
        named_shares.get(name, (1 - total) * weight / open_weight if open_weight else 0.0)
        for name, weight in weight_of.items()
    ]


_ROUNDED_BINARY_DIGITS = 24
"""Binary digits: 1e-7 of a number is lost, and two machines that differ by 1e-14 rarely round to two numbers.

The last digits of a sum or an exponential depend on the processor: BLAS adds in another order on each, vector
instructions round otherwise. A plan's digest, and so the noise under a key, depends on every digit of the plan.
"""


def fewer_digits_down(number: float) -> float:
    """Return a positive number rounded down to 24 binary digits.

    >>> fewer_digits_down(0.1) <= 0.1, fewer_digits_down(0.1) == fewer_digits_down(0.1 + 1e-15)
    (True, True)
    """
    mantissa, exponent = math.frexp(number)
    return math.ldexp(math.floor(math.ldexp(mantissa, _ROUNDED_BINARY_DIGITS)), exponent - _ROUNDED_BINARY_DIGITS)


def fewer_digits_up(number: float) -> float:
    """Return a positive number rounded up to 24 binary digits.

    >>> fewer_digits_up(0.1) >= 0.1, fewer_digits_up(0.1) == fewer_digits_up(0.1 - 1e-15)
    (True, True)
    """
    return -fewer_digits_down(-number)
