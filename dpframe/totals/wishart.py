"""Wishart noise on a matrix of second moments, which stays positive semidefinite; of floats, unlike all other noise.

The release is Y = A + W with A = Σ z zᵀ over rows with |z|² ≤ B² and W ~ Wishart_p(V = B²·I, k), as if k normal rows
were added (Sheffet 2015, arXiv 1507.00056; ALT 2019). Sheffet's k is p + ⌊28 ln(4/δ)/ε²⌋, for rows that are added or
removed; here k is the least one that the following proof allows, for a *replaced* row.

*Proof.* Let A = C + xxᵀ and A' = C + yyᵀ, and m = k − p + 1. Take a row away, then add one: with M the release of C
the triangle inequality of hockey-stick divergences is D_(ε₁+ε₂)(P ‖ P') ≤ D_ε₁(P ‖ M) + e^ε₁·D_ε₂(M ‖ P'), and by way
of C + xxᵀ + yyᵀ likewise. Each of them is a divergence in one dimension: the ratio of the densities of C + xxᵀ + W and
C + W at Y is (1 − xᵀ(Y − C)⁻¹x)^((m−2)/2)·e^(a/2) with a = xᵀV⁻¹x ≤ 1, and T = a/(xᵀ(Y − C)⁻¹x) has the law of χ²_m
in the second case (Muirhead 1982, Thm 3.2.12), and of χ²_m + a in the first (Sherman and Morrison). χ²_m is log-concave
for m ≥ 2, so that the divergences are largest at a = 1 and those of half-lines:

    up(ε) = P(χ² + 1 > y) − e^ε·P(χ² > y),        (1 − 1/y)^((m−2)/2)·e^(1/2) = e^ε,   0 for ε ≥ ½,
    down(ε) = P(χ² < y) − e^ε·P(χ² + 1 < y),      (1 − 1/y)^((m−2)/2)·e^(1/2) = e^−ε.

δ is at most the least of up(ε₁) + e^ε₁·down(ε − ε₁) and down(ε − ε₁) + e^(ε − ε₁)·up(ε₁) over ε₁ in [0, ½]. ∎
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from dpframe.accounting.budget import Budget
from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.noise.keystream import ColumnStream

_SPLITS = 129
"""Ways of dividing ε between the row that is taken away and the one that is added."""
_ROUNDED = 1e-11
_MOST = 1 << 24
"""Degrees of freedom beyond which the noise exceeds every table."""


def delta_of(m: int, epsilon: float) -> float:
    """Return the δ of the proof at m = k − p + 1 degrees of freedom, rounded up.

    Examples
    --------
    >>> f"{delta_of(100, 0.7):.2g} {delta_of(10_000, 0.06):.2g}"
    '4e-07 3.6e-08'
    """
    if m < 3:
        return 1.0
    first = np.linspace(0.0, min(epsilon, 0.5), _SPLITS)
    up, down = _up(m, first), _down(m, epsilon - first)
    found = np.minimum(up + np.exp(first) * down, down + np.exp(epsilon - first) * up)
    return min(1.0, float(found.min()) * (1 + 1e-9))


def _up(m: int, epsilons: FloatArray) -> FloatArray:
    """Return D_ε(χ² + 1 ‖ χ²), rounded up."""
    exponent = np.minimum((epsilons - 0.5) / (m / 2 - 1), -1e-300)
    y = -1 / np.expm1(exponent)
    return np.where(epsilons < 0.5, _apart(_above(m, y - 1), np.exp(epsilons) * _above(m, y)), 0.0)


def _down(m: int, epsilons: FloatArray) -> FloatArray:
    """Return D_ε(χ² ‖ χ² + 1), rounded up."""
    y = -1 / np.expm1(-(epsilons + 0.5) / (m / 2 - 1))
    return _apart(_below(m, y), np.exp(epsilons) * _below(m, y - 1))


def _below(m: int, y: FloatArray) -> FloatArray:
    return np.asarray(special.gammainc(m / 2, np.maximum(y, 0.0) / 2))


def _above(m: int, y: FloatArray) -> FloatArray:
    return np.asarray(special.gammaincc(m / 2, np.maximum(y, 0.0) / 2))


def _apart(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return a difference of two chances, which SciPy gives to some 1e-13 of themselves, rounded up."""
    return np.asarray(np.maximum(one - other, 0.0) + _ROUNDED * (one + other))


@dataclass(frozen=True)
class WishartNoise:
    """Wishart noise for rows of ``size`` numbers of |z|² ≤ ``bound``, with ``degrees`` degrees of freedom.

    It is drawn in floats, from words of the keyed stream: the promise is that of the real-valued law, and outside
    the one of exact sampling.

    Examples
    --------
    >>> import math
    >>> noise = WishartNoise.of(2, 2.0, Budget(1.0, 1e-6))
    >>> noise.degrees < 2 + 28 * math.log(4e6)  # Sheffet's
    True
    """

    size: int
    bound: float
    degrees: int

    @classmethod
    def of(cls, size: int, bound: float, budget: Budget, contributions: int = 1) -> WishartNoise:
        """Return the noise of least degrees that keeps a budget, for a person of several rows by group privacy.

        Raises
        ------
        ParameterError
            If δ is 0, or the noise would exceed every table.
        """
        row = budget.per_row(contributions)
        if row.delta <= 0:
            raise ParameterError('wishart needs delta above 0; raise delta, or take mechanism="geometric"')
        low, high = 1, 4
        while delta_of(high, row.epsilon) > row.delta:
            low, high = high, 2 * high
            if high > _MOST:
                raise ParameterError(
                    "epsilon is too small for wishart noise; raise epsilon or the share, or take another mechanism"
                )
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if delta_of(middle, row.epsilon) <= row.delta else (middle, high)
        return cls(size, bound, high + size - 1)

    @property
    def scale(self) -> FloatArray:
        """V, shape (size, size)."""
        return self.bound * np.eye(self.size)

    def sample(self, stream: ColumnStream) -> FloatArray:
        """Return a draw, shape (size, size): the moments of ``degrees`` normal rows."""
        return np.asarray(self.samples(stream, 1)[0])

    def samples(self, stream: ColumnStream, count: int) -> FloatArray:
        """Return independent draws, shape (count, size, size); the first of them is `sample`'s."""
        words = stream.words(0, 0, count * self.degrees * self.size).astype(np.uint64)
        uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        rows = special.ndtri(uniform).reshape(count, self.degrees, self.size)
        return np.asarray(self.bound * (rows.transpose(0, 2, 1) @ rows))
