"""What the accountant knows of a column, and the one law of likelihood ratios that dominates all such columns.

Fix two neighbouring rows x, x', let μ(y) = min over all rows of P(y|·), γ = Σμ, and look at one output y through
A = P(y|x)/μ(y) and B = P(y|x')/μ(y): y is drawn from μ, and with the missing probability 1 − γ the pair is (0, 0).
So E[A] = E[B] = 1, and a column of pure loss ε has A, B in [1, E], E = e^ε. The blanket bound (see `shuffle`) is
E[(Σ Aᵢ − e^ε'·Bᵢ)₊]/n over n independent rows; the A and B of a row are products over its columns. Given everything
but one column of one row it is f(A, B) = g(u·A − v·B), g convex and u, v ≥ 0. So f is jointly convex and
submodular, and each of the following only raises it, in any product of columns, for any n:

1. *Spreading* an atom without moving its mean, in particular (A, B) to the corners of [1, E]².
2. *Swapping* mass t on each of (E, E), (1, 1) for t on each of (E, 1), (1, E): f is submodular.
3. *Enlarging* E: a loss of ε is a loss of any ε₁ ≥ ε.

By 1 and 2 the law becomes a on (E, 1), a on (1, E) (equal, since E[A] = E[B]) and the rest of γ on (1, 1), if
γ ≥ 2/(1 + E); from E[A] = 1, a = (1 − γ)/(E − 1). If γ is smaller, the rest lies on (E, E) instead, and 3 is used
first, up to E = 2/γ − 1, where no rest is left. Columns in which x and x' agree are covered: A = B was not excluded.

γ is only known from below, so the law must get worse as γ shrinks. It does: spreading (1, 1) to (E, 1), (1, E), with
1/(1 + E) each, and (0, 0) leads from γ to any smaller γ. (The law with a rest on (E, E) would *not*: at γ = e^−ε it
claims that nothing is revealed.) And γ ≥ e^−ε always, since μ ≥ e^−ε·P(·|x).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpframe.errors import ParameterError

_ULPS = 2e-15
"""Relative error of the few float operations that make an atom's mass; masses are rounded up by it."""
_LEAST = 1e-12
"""Smaller losses are enlarged to it: their squares are still numbers."""


@dataclass(frozen=True)
class ColumnLoss:
    """What the accountant needs of one randomised column, or of a group of columns randomised together.

    ``epsilon`` is the certified pure loss of one row's channel, rounded up; ``blanket`` the certified blanket
    mass γ = Σ_y min_x P(y|x), rounded down, in (0, 1]. A part with δ > 0 has no place in this theory.

    Raises
    ------
    ParameterError
        Unless ε is finite and at least 0, and the blanket lies in (0, 1].

    Examples
    --------
    >>> ColumnLoss(epsilon=1.0, blanket=0.6)
    ColumnLoss(epsilon=1.0, blanket=0.6)
    """

    epsilon: float
    blanket: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise ParameterError(f"a part's epsilon must be finite and at least 0; got {self.epsilon}")
        if not 0 < self.blanket <= 1:
            raise ParameterError(f"a part's blanket must lie in (0, 1], the mass all rows share; got {self.blanket}")


@dataclass(frozen=True)
class Bound:
    """A bound from above and the method that gave it.

    ``method`` is ``"blanket"`` (the columns' own blankets), ``"clones"`` (the row's total loss alone),
    ``"closed form"`` (Feldman–McMillan–Talwar 2021, Theorem 3.1) or ``"none"`` (no credit for the shuffle).
    """

    value: float
    method: str


def check_losses(parts: Sequence[ColumnLoss]) -> tuple[ColumnLoss, ...]:
    """Return the parts that lose anything; a column of loss 0 says nothing of its row."""
    if not all(isinstance(part, ColumnLoss) for part in parts):
        raise ParameterError("parts must be a sequence of ColumnLoss, one for each randomised column")
    lossy = (part for part in parts if part.epsilon > 0 and part.blanket < 1)
    return tuple(ColumnLoss(max(part.epsilon, _LEAST), part.blanket) for part in lossy)


def check_rows(n: int, name: str = "n") -> int:
    """Return a number of rows, or raise `ParameterError` unless it is a whole number of at least 1."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ParameterError(f"{name} must be a whole number of rows, at least 1")
    return n


def total_epsilon(parts: Sequence[ColumnLoss]) -> float:
    """Return Σε rounded up: the pure loss of a whole row."""
    exact = sum((Fraction(part.epsilon) for part in parts), Fraction(0))
    value = float(exact)
    return value if Fraction(value) >= exact else math.nextafter(value, math.inf)


@dataclass(frozen=True)
class DominatingLaw:
    """The dominating law of a column: (A, B) is (E, 1) or (1, E) with ``differ`` each, (1, 1) with ``same``.

    ``rate`` is ln E, at least ln(2/γ − 1). The masses are rounded up: they are a measure above the law's.
    """

    rate: float
    blanket: float

    @property
    def differ(self) -> float:
        """Return (1 − γ)/(E − 1)."""
        return min(self.blanket / 2, (1 - self.blanket) / math.expm1(self.rate)) * (1 + _ULPS)

    @property
    def same(self) -> float:
        """Return the rest of γ."""
        return max(0.0, self.blanket - 2 * self.differ) + _ULPS


def dominating(part: ColumnLoss) -> DominatingLaw:
    """Return the law that dominates every column of this loss and at least this blanket mass."""
    gamma = max(part.blanket, math.exp(-part.epsilon) * (1 - _ULPS))
    return DominatingLaw(max(part.epsilon, math.log1p(2 * (1 - gamma) / gamma) * (1 + _ULPS)), gamma)
