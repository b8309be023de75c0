"""The accountant's description of a column, and the law of likelihood ratios that dominates all such columns.

Fix two neighbouring rows x, x', let μ(y) = min over all rows of P(y|·), γ = Σμ, and look at one output y through
A = P(y|x)/μ(y) and B = P(y|x')/μ(y): y is drawn from μ, and with the missing probability 1 − γ the pair is (0, 0).
So E[A] = E[B] = 1, and a column of pure loss ε has A, B in [1, E], E = e^ε. The blanket bound (see `secret_order`) is
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

*Products.* A column that is itself h independent bits enters as h columns (`BitsLoss`): nothing is lost.

*Sets of at most s items*, each shown with probability p if held and q < p if not (`ItemsLoss`). With
R = p(1 − q)/(q(1 − p)) and g = (1 − p)/(1 − q), P(y|x) = P(y|∅)·Π_{i∈x} g·R^{yᵢ} ≥ g^s·P(y|∅), which is taken for μ:
γ = g^s, under μ items are shown independently with probability q, and A = g^{|x|−s}·R^i with i the shown items of x.

4. *Missing items*: 1/g = E[R^bit] for a bit of probability q, so that a set of fewer than s items is spread to one
   with s by items that are held by nobody.
5. *Common items* multiply A and B by one factor R^bit; f is submodular in two factors, so that independent ones raise
   it: the worst pair has no item in common.

Hence A = R^i, B = R^j, with i and j ~ Bin(s, q) independent: a product of s columns in which A and B are 1 or E = R,
independent given the blanket mass g (a set that was cut at random is a mixture of sets, and f is convex). As
E[A] = 1, q = (1/γ − 1)/(E − 1). If 2s ≤ h such a pair exists, and μ is min P(·|x) on all sets of at most h − s items.
Such a law too gets worse with E, spreading A and B on their own, and as γ shrinks while q ≤ 1/(1 + √E), which is
γ ≥ 1/√E: there q, γq² and γq(1 − q) all grow, so that only (1, 1) is spread, to the other atoms and (0, 0). A γ below
1/√E first enlarges E to 1/γ².

*Blocks*: m columns of either kind are dominated by one column of that kind with E^m and γ^m (by 1; A and B spread
separately remain independent). Blocks reduce the number of factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np

from dpframe.accounting.arrays import FloatArray
from dpframe.errors import ParameterError, check_whole

_ULPS = 2e-15
"""Relative error of the few float operations that make an atom's mass; masses are rounded up by it."""
_MASS_ERROR = 1e-15
"""Absolute rounding of a mass that is a difference."""
_RELATIVE_TOLERANCE = 1e-9
_MIN_EPSILON = 1e-12
"""Least loss: smaller losses are enlarged, so that their squares do not underflow."""


def _binomial(count: int, one: float, zero: float) -> FloatArray:
    """Return C(count, k)·one^k·zero^(count−k) for k = 0…count, by sums of non-negative terms."""
    law = np.zeros(count + 1)
    law[0] = 1.0
    for k in range(count):
        law[1 : k + 2] = law[1 : k + 2] * zero + law[: k + 1] * one
        law[0] *= zero
    return law


@lru_cache(maxsize=4)
def _halves(size: int) -> FloatArray:
    """Return C(t, k)/2^t for t and k = 0…most."""
    law = np.zeros((size + 1, size + 1))
    law[0, 0] = 1.0
    for t in range(size):
        law[t + 1, : t + 2] = law[t, : t + 2] / 2
        law[t + 1, 1 : t + 2] += law[t, : t + 1] / 2
    return law


@dataclass(frozen=True)
class DominatingLaw:
    """The dominating law of a column: (A, B) is (E, 1) or (1, E) with ``differ`` each, (1, 1) with ``equal_mass``.

    ``rate`` is ln E. The masses are rounded up: they are a measure above the law's.
    """

    rate: float
    blanket: float

    @property
    def enlarged(self) -> DominatingLaw:
        """The law that stays valid with other columns: ``rate`` is at least ln(2/γ − 1), and γ at least e^−ε."""
        # A stated γ below e^−ε is only a loose bound: no channel of that loss has less.
        gamma = max(self.blanket, math.exp(-self.rate) * (1 - _ULPS))
        return DominatingLaw(max(self.rate, math.log1p(2 * (1 - gamma) / gamma) * (1 + _ULPS)), gamma)

    @property
    def differ(self) -> float:
        """Return (1 − γ)/(E − 1)."""
        return min(self.blanket / 2, (1 - self.blanket) / math.expm1(self.rate)) * (1 + _ULPS)

    @property
    def equal_mass(self) -> float:
        """Return the remainder of γ: the mass of (1, 1)."""
        return max(0.0, self.blanket - 2 * self.differ) + _ULPS

    @property
    def both_mass(self) -> float:
        """Return the mass of (E, E)."""
        return 0.0

    @property
    def square_and_product(self) -> tuple[float, float]:
        """Return E[A²] and E[AB]."""
        ratio, differ = math.exp(self.rate), self.differ
        in_both = self.both_mass * ratio**2
        return differ * (ratio**2 + 1) + self.equal_mass + in_both, 2 * differ * ratio + self.equal_mass + in_both

    def power(self, count: int) -> FloatArray:
        """Return the masses of (E^i, E^j) for so many independent columns, shape (count + 1, count + 1)."""
        law = np.zeros((count + 1, count + 1))
        total, first = np.tril_indices(count + 1)
        # In each column that differs, A or B is E with equal chance: a binomial law of one half.
        masses = _binomial(count, 2 * self.differ, self.equal_mass)
        law[first, total - first] = masses[total] * _halves(count)[total, first]
        return law

    @property
    def ratio_masses(self) -> tuple[float, float, float]:
        """Return the probabilities of A/B = E, 1/E and 1 under B's law, rounded up; for one unshuffled row."""
        below = math.exp(-self.rate)
        if self.blanket <= 2 * below / (1 + below):
            return below / (1 + below), 1 / (1 + below), 0.0
        differ = (1 - self.blanket) * below / -math.expm1(-self.rate)
        return differ, (1 - self.blanket) / -math.expm1(-self.rate), max(0.0, self.blanket - 2 * differ) + _MASS_ERROR


@dataclass(frozen=True)
class BinaryLaw(DominatingLaw):
    """The dominating law of a bit: (E, 1) and (1, E) with 1/(1 + E) each, which is all of γ."""

    @classmethod
    def of(cls, rate: float) -> BinaryLaw:
        """Return the law of randomised response on two outcomes."""
        return cls(rate, 2 * math.exp(-rate) / (1 + math.exp(-rate)) * (1 - _ULPS))

    @property
    def enlarged(self) -> DominatingLaw:
        """The law for this rate."""
        return BinaryLaw.of(self.rate)

    @property
    def differ(self) -> float:
        """Return 1/(1 + E)."""
        return math.exp(-self.rate) / (1 + math.exp(-self.rate)) * (1 + _ULPS)

    equal_mass = 0.0


@dataclass(frozen=True)
class IndependentLaw(DominatingLaw):
    """The dominating law of an item of a set: A and B are 1 or E, independently of each other given the blanket.

    (E, E) has mass ``both_mass``; γ is at least 1/√E.
    """

    @property
    def enlarged(self) -> DominatingLaw:
        """The law with ``rate`` at least −2·ln γ."""
        return IndependentLaw(max(self.rate, -2 * math.log(self.blanket) * (1 + _ULPS)), self.blanket)

    @property
    def _show_mass(self) -> float:
        """Return γq, which is (1 − γ)/(E − 1)."""
        return min((1 - self.blanket) / math.expm1(self.rate), self.blanket / 2)

    @property
    def differ(self) -> float:
        """Return γq(1 − q)."""
        return self._show_mass * (1 - self._show_mass / self.blanket) * (1 + _ULPS)

    @property
    def equal_mass(self) -> float:
        """Return γ(1 − q)²."""
        return (self.blanket - self._show_mass) ** 2 / self.blanket * (1 + _ULPS)

    @property
    def both_mass(self) -> float:
        """Return γq²."""
        return self._show_mass**2 / self.blanket * (1 + _ULPS)

    def power(self, count: int) -> FloatArray:
        """Return the masses of (E^i, E^j) for so many independent items, shape (count + 1, count + 1)."""
        show_chance = self._show_mass / self.blanket
        row_law = _binomial(count, show_chance, 1 - show_chance)
        return np.outer(row_law * self.blanket**count, row_law)

    @property
    def ratio_masses(self) -> tuple[float, float, float]:
        """Return the probabilities of A/B = E, 1/E and 1 under B's law, rounded up."""
        ratio = math.exp(self.rate)
        return self.differ, self.differ * ratio, self.equal_mass + self.both_mass * ratio


@dataclass(frozen=True)
class ColumnLoss:
    """Loss of one randomised column, or of a group of columns randomised together, as the accountant needs it.

    ``epsilon`` is the certified pure loss of one row's channel, rounded up; ``blanket`` the certified blanket
    mass γ = Σ_y min_x P(y|x), rounded down, in (0, 1]. A part with δ > 0 has no place in this theory.

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

    @property
    def count(self) -> int:
        """Number of independent columns that the part is made of."""
        return 1

    def factors(self, max_factors: int) -> list[DominatingLaw]:
        """Return at most ``max_factors`` laws whose product dominates the part."""
        return [DominatingLaw(self.epsilon, self.blanket)]

    def at(self, epsilon: float, blanket: float) -> Self:
        """Return a part of this kind with another loss."""
        return replace(self, epsilon=epsilon, blanket=blanket)


@dataclass(frozen=True)
class BitsLoss(ColumnLoss):
    """A column that is several independent columns of equal loss, such as a set of any size: a bit for each item.

    ``epsilon`` and ``blanket``: of all columns together, as of any `ColumnLoss`; ``count``: number of columns.
    """

    count: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.count, "count", of="columns")

    def factors(self, max_factors: int) -> list[DominatingLaw]:
        """Return laws whose product dominates the part: one for each column, or for each block of columns."""
        size = -(-self.count // max_factors)
        share = size / self.count
        rate, blanket = self.epsilon * share * (1 + _ULPS), self.blanket**share * (1 - _ULPS)
        return [self._law(rate, blanket)] * -(-self.count // size)

    def _law(self, rate: float, blanket: float) -> DominatingLaw:
        # A bit whose γ is 2/(1 + E) up to rounding has no mass at (1, 1), and its powers have few atoms.
        binary = BinaryLaw.of(max(rate, math.log1p(2 * (1 - blanket) / blanket) * (1 + _ULPS)))
        is_binary = blanket <= binary.blanket * (1 + _RELATIVE_TOLERANCE) and binary.rate <= rate * (
            1 + _RELATIVE_TOLERANCE
        )
        return binary if is_binary else DominatingLaw(rate, blanket)


@dataclass(frozen=True)
class ItemsLoss(BitsLoss):
    """A column of sets of at most ``count`` items, each shown or not independently of the others.

    Its law is the product of ``count`` columns in which A and B are independent given the blanket (the module).
    """

    def _law(self, rate: float, blanket: float) -> DominatingLaw:
        return IndependentLaw(rate, blanket).enlarged


@dataclass(frozen=True)
class Bound:
    """A bound from above and the method that gave it.

    ``method`` is ``"blanket"`` (the columns' own blankets), ``"clones"`` (only the row's total loss),
    ``"closed form"`` (Feldman–McMillan–Talwar 2021, Theorem 3.1) or ``"none"`` (no credit for the shuffle).
    """

    value: float
    method: str


def check_losses(parts: Sequence[ColumnLoss]) -> tuple[ColumnLoss, ...]:
    """Return the parts that lose anything; a column of loss 0 says nothing of its row."""
    if not all(isinstance(part, ColumnLoss) for part in parts):
        raise ParameterError("parts must be a sequence of ColumnLoss, one for each randomised column")
    lossy = (part for part in parts if part.epsilon > 0 and part.blanket < 1)
    return tuple(part if part.epsilon >= _MIN_EPSILON else part.at(_MIN_EPSILON, part.blanket) for part in lossy)


def total_epsilon(parts: Sequence[ColumnLoss]) -> float:
    """Return Σε rounded up: the pure loss of a whole row."""
    losses = [part.epsilon for part in parts]
    value = math.fsum(losses)
    # A sum by fsum is the exact one, rounded once: its sign is exact.
    return value if math.fsum([*losses, -value]) <= 0 else math.nextafter(value, math.inf)


def factors(parts: Sequence[ColumnLoss], max_factors: int) -> list[DominatingLaw]:
    """Return laws whose product dominates a row of these parts, about ``max_factors`` of them if so many suffice."""
    columns = sum(part.count for part in parts)
    return [law for part in parts for law in part.factors(max(1, min(part.count, max_factors * part.count // columns)))]
