"""Wishart noise on a matrix of second moments, which stays positive semidefinite; of floats, unlike all other noise.

The release is Y = A + W with A = Σ z zᵀ over rows with |z|² ≤ B² and W ~ Wishart_p(V = B²·I, k), as if k normal rows
were added (Sheffet 2015, arXiv 1507.00056; ALT 2019). Sheffet's k is p + ⌊28 ln(4/δ)/ε²⌋, for rows that are added or
removed; here k is the least one that the following proof allows, for a *replaced* row.

*Proof.* Let A = C + xxᵀ and A' = C + yyᵀ, and W = Y − A, so that W' = Y − A' = W + xxᵀ − yyᵀ. The density of W is
proportional to |W|^((k−p−1)/2)·e^(−tr(V⁻¹W)/2). With a = xᵀV⁻¹x, b = yᵀV⁻¹y, both in [0, 1], s = xᵀW⁻¹x, t = yᵀW⁻¹y
and c = xᵀW⁻¹y, |W'|/|W| = (1 + s)(1 − t) + c² ≥ (1 + s)(1 − t), and W' is positive where t < 1. So with m = k − p + 1
the loss at Y is at most

    (m−2)/2 · (−ln(1 + s) − ln(1 − t)) + (a − b)/2.

a/s and b/t both have the law χ²_m, whatever x and y are (Muirhead 1982, Thm 3.2.12). Let u be its (1 − δ/2)-quantile
and v its (δ/2)-quantile: but for a chance of δ, s ≥ a/u and t ≤ b/v, and then the loss is at most g(a) + h(b),

    g(a) = a/2 − (m−2)/2·ln(1 + a/u),   h(b) = −(m−2)/2·ln(1 − b/v) − b/2,

both convex, so largest at 0 or 1. If that is at most ε, P(A) ≤ e^ε·P'(A) + δ. ∎
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from dpframe.accounting.budget import Budget
from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.noise.keystream import ColumnStream

_MOST = 1 << 24
"""Degrees of freedom beyond which the noise exceeds every table."""


def loss_of(m: int, delta: float) -> float:
    """Return the ε of the proof at m = k − p + 1 degrees of freedom; infinite where a support may be left.

    Examples
    --------
    >>> round(loss_of(100, 1e-6), 2), round(loss_of(10_000, 1e-6), 3)
    (0.83, 0.069)
    """
    above = 2 * float(special.gammainccinv(m / 2, delta / 2)) * (1 + 1e-12)
    below = 2 * float(special.gammaincinv(m / 2, delta / 2)) * (1 - 1e-12)
    if m < 2 or not below > 1:
        return math.inf
    first = 0.5 - (m - 2) / 2 * math.log1p(1 / above)
    second = -(m - 2) / 2 * math.log1p(-1 / below) - 0.5
    return (max(first, 0.0) + max(second, 0.0)) * (1 + 1e-9)


@dataclass(frozen=True)
class WishartNoise:
    """Wishart noise for rows of ``size`` numbers of |z|² ≤ ``bound``, with ``degrees`` degrees of freedom.

    It is drawn in floats, from words of the keyed stream: the promise is that of the real-valued law, and outside
    the one of exact sampling.

    Examples
    --------
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
        while loss_of(high, row.delta) > row.epsilon:
            low, high = high, 2 * high
            if high > _MOST:
                raise ParameterError(
                    "epsilon is too small for wishart noise; raise epsilon or the share, or take another mechanism"
                )
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if loss_of(middle, row.delta) <= row.epsilon else (middle, high)
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
