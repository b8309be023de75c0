"""Wishart noise on a matrix of second moments, which stays positive semidefinite; of floats, unlike all other noise.

The release is Y = A + W with A = Σ z zᵀ over rows with |z|² ≤ B² and W ~ Wishart_p(V = B²·I, k), as if k normal rows
were added (Sheffet 2015, arXiv 1507.00056; ALT 2019). Sheffet's k is p + ⌊28 ln(4/δ)/ε²⌋, for rows that are added or
removed; here k is about the least for replaced rows, as `dpframe.totals.wishart_loss` proves its profile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from dpframe.accounting.gaussian_dp import Step, gaussian_mu, mu_of
from dpframe.accounting.undercurve import cover
from dpframe.errors import ParameterError
from dpframe.noise.keystream import ColumnStream
from dpframe.spaces.arrays import FloatArray
from dpframe.totals.answers import MOST_EPSILON, Portion
from dpframe.totals.least_noise import CLEAREST, FAINTEST
from dpframe.totals.wishart_loss import WishartLoss

_LEAST = 3
"""Fewest degrees for which the law is log-concave and has finite losses."""
_MOST = 1 << 18
"""Most degrees of freedom: of 2²⁰ SciPy's series for chances of 1e-7 ends too early, by 8e-9 of them, of 2²⁴ by 2 %."""
_NEAR = 1e-3
"""Part of the degrees of freedom by which they may exceed the least."""
_TOLERANCE = 1e-3
"""Relative width to which μ is found, rounded up."""


@dataclass(frozen=True)
class WishartNoise:
    """Wishart noise for rows of ``size`` numbers of |z|² ≤ ``bound``, with ``degrees`` degrees of freedom.

    It is drawn in floats, from words of the keyed stream: the promise is that of the real-valued law, and outside
    the one of exact sampling.
    """

    size: int
    bound: float
    degrees: int

    @classmethod
    def of(cls, size: int, bound: float, portion: Portion, contributions: int = 1) -> WishartNoise:
        """Return the noise of about the fewest degrees that a portion pays for, for a person of so many rows."""
        if portion.budget.delta <= 0:
            raise ParameterError('wishart needs delta above 0; raise delta, or take mechanism="geometric"')
        return cls(size, bound, _fewest(portion, contributions, size == 1) + size - 1)

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


@lru_cache(maxsize=256)
def _fewest(portion: Portion, rows: int, single: bool) -> int:
    """Return about the fewest m = k − p + 1 that fit, from those that a normal law would need on."""
    step, budget = portion.step, portion.budget
    epsilon, delta = (budget.epsilon, budget.delta) if step is None else (0.0, step.delta)
    if delta < FAINTEST:
        raise ParameterError("delta is too small for wishart noise; raise delta or the share")
    goal = gaussian_mu(min(epsilon, MOST_EPSILON), delta) if step is None else min(step.mu, CLEAREST)

    def excess(m: int) -> float:
        """Return the μ that noise needs, at ε or everywhere, over the one that there is: at most 1 if it fits."""
        profile = WishartLoss(m, rows, single, epsilon, delta / 64).profile
        if step is not None:
            return cover(profile, Step(goal, delta), _TOLERANCE).ratio
        found = profile(epsilon)
        needed = float(mu_of(math.log(found), epsilon)) / goal if found < 1 else math.inf
        return min(needed, 1.0) if found <= delta else max(needed, 1 + _NEAR)

    low, high, tried = _LEAST - 1, 0, max(_LEAST, math.ceil(min((rows / goal) ** 2, _MOST)))
    while True:
        ratio = excess(tried)
        low, high = (low, tried) if ratio <= 1 else (tried, high)
        if high and high - low <= max(1, _NEAR * high):
            return high
        if low >= _MOST:
            raise ParameterError(
                "epsilon is too small for wishart noise; raise epsilon or the share, or take another mechanism"
            )
        # μ is about 1/√m; an eighth of what is open is settled at least.
        guess, inner = math.ceil(tried * min(ratio, 2.0) ** 2 * (1 + _NEAR / 2)), max(1, (high - low) // 8)
        tried = min(max(guess, low + inner), high - inner) if high else min(max(guess, low + 1), _MOST)
