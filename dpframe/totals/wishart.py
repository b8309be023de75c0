"""Wishart noise on a matrix of second moments, which stays positive semidefinite; of floats, unlike all other noise.

The release is Y = A + W with A = Σ z zᵀ over rows with |z|² ≤ B² and W ~ Wishart_p(V = B²·I, k), as if k normal rows
were added (Sheffet 2015, arXiv 1507.00056; ALT 2019). Sheffet's k is p + ⌊28 ln(4/δ)/ε²⌋, for rows that are added or
removed; here k is about the least for replaced rows, by the profile that is proved below.

Noise is W ~ Wishart_p(V, k), rows have zᵀV⁻¹z ≤ 1, and a person has s of them. Neighbouring tables move the release by
a matrix D = s·(M − N), M and N positive semidefinite of trace at most 1 in units of V (N or M is 0 where rows are added
or removed). With f the density of W, the divergence at e^ε is 1 − g(D), g(D) = ∫ min(f(Y), e^ε·f(Y − D)) dY.

*The worst rows.* f is log-concave for k ≥ p + 1, and so is the integrand, in Y and D together; then so is g
(Prékopa 1973), and the divergence is quasi-convex in D. It is largest at an extreme point of the possible D: s·yyᵀ,
−s·xxᵀ, or s·(yyᵀ − xxᵀ) of orthogonal x and y, all of length 1. (For x and y at an angle θ the last is sin θ times the
D of orthogonal ones, and between it and 0.) W is invariant to turns of V's axes, so that these are three divergences.
Let m = k − p + 1.

*One row.* The ratio of the densities of W + s·yyᵀ and W is (1 − s/t)^(m/2 − 1)·e^(s/2), t = 1/(yᵀY⁻¹y) with the law of
χ²_m under W (Muirhead 1982, Thm 3.2.12) and of χ²_m + s under the other (Sherman and Morrison), so that

    up(ε) = P(χ² + s > t) − e^ε·P(χ² > t),        (1 − s/t)^(m/2 − 1)·e^(s/2) = e^ε,   0 for ε ≥ s/2,
    down(ε) = P(χ² < t) − e^ε·P(χ² + s < t),      (1 − s/t)^(m/2 − 1)·e^(s/2) = e^−ε.

*Orthogonal rows.* Traces cancel, and the ratio needs no more of Y than T, the inverse of the 2 × 2 block of Y⁻¹ at x
and y, with the law of Wishart_2(I, m + 1) under W: L = (m/2 − 1)·ln(det T/det(T + s·diag(−1, 1))). With Bartlett's
a ~ χ²_(m+1), u ~ χ²_m and v ~ χ²_1, independent, det T = au and det(T + s·diag(−1, 1)) = (a − s)(u + s) − sv, so that

    L > ℓ  if and only if  a < α = (u + s + v)/(1 + κu),   κ = (1 − e^(−ℓ/(m/2 − 1)))/s,

and the profile is ∫_ε^∞ e^(ε − ℓ)·P(L > ℓ) dℓ: a sum of positive terms. It is bounded from above cell by cell, for
cells of u and v of known chance and mean, F being the distribution of a:

- α is straight in v, so that F(α) is convex in v where F is convex, α ≤ m − 1; in ℓ there too, where α is convex.
- α is concave in u, and F(α) convex where F''/F' = (m − 1)/2α − ½ ≥ −α''/α'² = 2κ(1 + κu)/(1 − κ(s + v)), which is
  hardest at a cell's corner of largest u and v.

A convex function has at most the mean of its chord; elsewhere a cell has its largest value, at a corner.

The divergence is equal in the other direction, since x and y can change places. Profiles are convex in e^ε, so that
between two ε the chord is above them. SciPy's incomplete gamma functions are taken to be right to 1e-12, as they are
up to 4·10⁵ degrees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from dpframe.accounting.gaussian_dp import Step, gaussian_mu, mu_of
from dpframe.accounting.undercurve import cover
from dpframe.errors import ParameterError
from dpframe.noise.keystream import ColumnStream
from dpframe.spaces.arrays import FloatArray
from dpframe.totals.answers import MAX_CALIBRATED_EPSILON, Portion
from dpframe.totals.least_noise import CLEAREST, FAINTEST

_U_CELLS = 72
"""Cells of u (tolerance)."""
_V_CELLS = 48
"""Cells of v (tolerance)."""
_LOSS_COUNT = 96
"""Losses at which P(L > ℓ) is computed (tolerance)."""
_BEFORE = 3.0
"""Standard deviations below the mean from which on u is one cell: only a's rarest values lose much there
(tolerance)."""
_EXTRA_REACH_SD = 1.5
"""Standard deviations that cells and losses reach beyond a normal law's, so that little mass is outside
(tolerance)."""
_CHANCE_ERROR = 1e-11
"""Relative error of computed chances and means (tolerance)."""
_MAX_EXPONENT = 700.0
"""Largest ε with a float e^ε (limit of the format)."""
_LOSS_GROWTH = 1.2
"""Factor by which the range of losses grows in the search for its end (tolerance)."""


@dataclass(frozen=True)
class WishartLoss:
    """The profile of noise of m = k − p + 1 degrees of freedom, for a person of ``rows`` rows of |z|² ≤ 1.

    ``m``: k − p + 1, at least 3. ``rows``: rows that one person may own. ``single``: whether releases are of one
    number, so that no two rows are orthogonal. ``first``, ``smallest``: range of the profile that is needed: ε from
    ``first`` on, and values down to about ``smallest``.
    """

    m: int
    rows: int
    single: bool
    first: float
    smallest: float

    def profile(self, epsilon: float) -> float:
        """Return a bound from above on the largest divergence at e^ε of neighbouring tables, for ε from ``first`` on.

        It is the larger of the divergences of orthogonal rows and of one row.
        """
        one = max(part(min(epsilon, _MAX_EXPONENT)) for part in (self.up, self.down))
        if self.single:
            return min(1.0, one)
        losses, bounds = self._losses, self._bounds
        # The chord is straight in e^ε between losses; beyond the last loss P(L > ℓ) bounds the profile.
        last = float(losses[-1])
        orthogonal = float(np.interp(math.exp(min(epsilon - last, 0.0)), np.exp(losses - last), bounds))
        return min(1.0, max(one, orthogonal))

    def up(self, epsilon: float) -> float:
        """Return D_ε(χ² + s ‖ χ²), of a row that is added, rounded up."""
        if epsilon >= self.rows / 2:
            return 0.0
        t = -self.rows / math.expm1((epsilon - self.rows / 2) / (self.m / 2 - 1))
        return _chance_difference(_above(self.m, t - self.rows), math.exp(epsilon) * _above(self.m, t))

    def down(self, epsilon: float) -> float:
        """Return D_ε(χ² ‖ χ² + s), of a row that is removed, rounded up."""
        t = -self.rows / math.expm1(-(epsilon + self.rows / 2) / (self.m / 2 - 1))
        return _chance_difference(_below(self.m, t), math.exp(epsilon) * _below(self.m, t - self.rows))

    @cached_property
    def _tails(self) -> _LossTails:
        return _LossTails(self.m, self.rows, math.sqrt(-2 * math.log(self.smallest)) + _EXTRA_REACH_SD)

    @cached_property
    def _losses(self) -> FloatArray:
        """Losses from ``first`` on, closer at the start, until P(L > ℓ) is below ``smallest`` if it ever is."""
        loss_sd = reach = self.rows / math.sqrt(self.m)
        while self._tails.above(self.first + reach) > self.smallest and reach < _MAX_EXPONENT * loss_sd:
            reach *= _LOSS_GROWTH
        return np.asarray(self.first + np.linspace(0.0, 1.0, _LOSS_COUNT) ** 1.5 * reach)

    @cached_property
    def _bounds(self) -> FloatArray:
        """Bounds from above on the profile of orthogonal rows at each of the losses."""
        tails, losses = self._tails, self._losses
        tails_at = [tails.at(float(loss)) for loss in losses]
        bounds = [tails.above(float(losses[-1]))]
        for gap, (here, convex), (there, also) in zip(
            np.diff(losses)[::-1], tails_at[-2::-1], tails_at[:0:-1], strict=True
        ):
            # ∫ e^(−t) over the gap, and ∫ e^(−t) times a straight line from 0 to 1.
            gap_weight, rising = -math.expm1(-gap), -math.expm1(-gap) / gap - math.exp(-gap)
            chord = convex & also
            inside = (gap_weight - rising) * here[chord].sum() + rising * there[chord].sum()
            flat = gap_weight * (here[~chord].sum() + tails.outside)
            bounds.append(math.exp(-gap) * bounds[-1] + float(inside + flat))
        return np.array(bounds[::-1]) * (1 + 100 * _CHANCE_ERROR)


class _LossTails:
    """Bounds on P(L > ℓ) of orthogonal rows from cells of u and v."""

    def __init__(self, m: int, rows: int, reach: float) -> None:
        self.m, self.rows = m, rows
        places = np.concatenate([[-reach - _EXTRA_REACH_SD], np.linspace(-_BEFORE, reach + _EXTRA_REACH_SD, _U_CELLS)])
        u = np.unique(np.maximum(math.sqrt(m - 0.5) + places / math.sqrt(2), 0.0) ** 2)
        v = np.linspace(0.0, reach + _EXTRA_REACH_SD, _V_CELLS + 1) ** 2
        (of_u, along_u), (of_v, along_v) = _cells(m, u), _cells(1, v)
        # Chances of u and v multiply, as both are independent under W.
        self.u, self.v = u[:, None], v[None, :]
        self.along_u, self.along_v = along_u[:, None], along_v[None, :]
        self.chances = of_u[:, None] * of_v[None, :]
        self.outside = float(_below(m, u[0]) + _above(m, u[-1]) + _above(1, v[-1]))
        """Bound on the mass outside all cells."""

    def above(self, loss: float) -> float:
        """Return a bound on P(L > ℓ)."""
        return float(self.at(loss)[0].sum()) + self.outside

    def at(self, loss: float) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return bounds on P(L > ℓ and the cell), and whether F is convex in ℓ there, shape (cells of u, of v)."""
        kappa = -math.expm1(-loss / (self.m / 2 - 1)) / self.rows
        ends = (self.u + self.rows + self.v) / (1 + kappa * self.u)
        below = _below(self.m + 1, ends)
        # α rises in v, and rises or falls in u.
        top, largest_end = (np.maximum(of[:-1, 1:], of[1:, 1:]) for of in (below, ends))
        rises = 1 - kappa * (self.rows + self.v[:, 1:])
        convex = (rises > 0) & (((self.m - 1) / largest_end - 1) * rises >= 4 * kappa * (1 + kappa * self.u[1:]))
        along = (1 - self.along_u) * below[:-1] + self.along_u * below[1:]
        # A function convex in both places lies under the mean of its chords, first in u, then in v.
        chord = (1 - self.along_v) * along[:, :-1] + self.along_v * along[:, 1:]
        return np.where(convex, chord, top) * self.chances, convex


def _cells(m: int, ends: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the chances of cells under χ²_m, and the mean's relative place in each, 0 to 1, both rounded up."""
    chances, means, widths = _between(m, ends), m * _between(m + 2, ends), np.diff(ends)
    with np.errstate(divide="ignore", invalid="ignore"):
        along = (means / chances - ends[:-1] + _CHANCE_ERROR * ends[1:]) / widths
    return chances * (1 + _CHANCE_ERROR), np.clip(np.nan_to_num(along, nan=1.0), 0.0, 1.0)


def _between(m: int, ends: FloatArray) -> FloatArray:
    """Return the chances of cells, by the tail on their side of the mean, so that digits do not cancel."""
    return np.asarray(np.where(ends[1:] < m, np.diff(_below(m, ends)), -np.diff(_above(m, ends))))


def _below(m: int, y: npt.ArrayLike) -> FloatArray:
    return np.asarray(special.gammainc(m / 2, np.maximum(y, 0.0) / 2))


def _above(m: int, y: npt.ArrayLike) -> FloatArray:
    return np.asarray(special.gammaincc(m / 2, np.maximum(y, 0.0) / 2))


def _chance_difference(larger: FloatArray, smaller: FloatArray) -> float:
    """Return a difference of two chances, rounded up; SciPy's relative errors are about 1e-13."""
    return max(float(larger) - float(smaller), 0.0) + _CHANCE_ERROR * (float(larger) + float(smaller))


_MIN_DEGREES = 3
"""Fewest degrees for which the law is log-concave and has finite losses (theory: Wishart law)."""
_MAX_DEGREES = 1 << 18
"""Most degrees of freedom: SciPy's series for chances of 1e-7 ends too early beyond, by 8e-9 of the chance at 2²⁰ and
by 2 % at 2²⁴ (limit of the format)."""
_DEGREES_TOLERANCE = 1e-3
"""Relative excess of the degrees of freedom over the fewest that fit (tolerance)."""
_WISHART_MU_TOLERANCE = 1e-3
"""Relative width to which μ is found, rounded up (tolerance)."""


@dataclass(frozen=True)
class WishartNoise:
    """Wishart noise for rows of ``size`` numbers of |z|² ≤ ``bound``, with ``degrees`` degrees of freedom.

    It is sampled in floats, from words of the keyed stream. The guarantee is about the real-valued law; exact sampling
    does not cover it.
    """

    size: int
    bound: float
    degrees: int

    @classmethod
    def of(cls, size: int, bound: float, portion: Portion, contributions: int = 1) -> WishartNoise:
        """Return the noise of about the fewest degrees within a portion, for a person of ``contributions`` rows."""
        if portion.budget.delta <= 0:
            raise ParameterError('wishart needs delta above 0; raise delta, or take mechanism="geometric"')
        return cls(size, bound, _fewest_degrees(portion, contributions, size == 1) + size - 1)

    @property
    def scale(self) -> FloatArray:
        """V, shape (size, size)."""
        return self.bound * np.eye(self.size)

    def sample(self, stream: ColumnStream) -> FloatArray:
        """Return one sample, shape (size, size): the moments of ``degrees`` normal rows."""
        return np.asarray(self.samples(stream, 1)[0])

    def samples(self, stream: ColumnStream, count: int) -> FloatArray:
        """Return independent samples, shape (count, size, size); the first is `sample`'s."""
        words = stream.words(0, 0, count * self.degrees * self.size).astype(np.uint64)
        # 53 bits and a half: neither 0 nor 1, whose normal quantiles are infinite.
        uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        rows = special.ndtri(uniform).reshape(count, self.degrees, self.size)
        return np.asarray(self.bound * (rows.transpose(0, 2, 1) @ rows))


@lru_cache(maxsize=256)
def _fewest_degrees(portion: Portion, rows: int, single: bool) -> int:
    """Return about the fewest m = k − p + 1 that fit, searched from the m that a normal law would need."""
    step, budget = portion.step, portion.budget
    epsilon, delta = (budget.epsilon, budget.delta) if step is None else (0.0, step.delta)
    if delta < FAINTEST:
        raise ParameterError("delta is too small for wishart noise; raise delta or the share")
    goal = gaussian_mu(min(epsilon, MAX_CALIBRATED_EPSILON), delta) if step is None else min(step.mu, CLEAREST)

    def excess(m: int) -> float:
        """Return the μ that the noise needs, at ε or everywhere, over the μ of the portion: at most 1 if it fits."""
        profile = WishartLoss(m, rows, single, epsilon, delta / 64).profile
        if step is not None:
            return cover(profile, Step(goal, delta), _WISHART_MU_TOLERANCE).ratio
        divergence = profile(epsilon)
        needed = float(mu_of(math.log(divergence), epsilon)) / goal if divergence < 1 else math.inf
        return min(needed, 1.0) if divergence <= delta else max(needed, 1 + _DEGREES_TOLERANCE)

    low, high, degrees = _MIN_DEGREES - 1, 0, max(_MIN_DEGREES, math.ceil(min((rows / goal) ** 2, _MAX_DEGREES)))
    while True:
        ratio = excess(degrees)
        low, high = (low, degrees) if ratio <= 1 else (degrees, high)
        if high and high - low <= max(1, _DEGREES_TOLERANCE * high):
            return high
        if low >= _MAX_DEGREES:
            raise ParameterError(
                "epsilon is too small for wishart noise; raise epsilon or the share, or take another mechanism"
            )
        # μ is about 1/√m; every turn settles at least an eighth of the open interval.
        guess, inner = (
            math.ceil(degrees * min(ratio, 2.0) ** 2 * (1 + _DEGREES_TOLERANCE / 2)),
            max(1, (high - low) // 8),
        )
        degrees = min(max(guess, low + inner), high - inner) if high else min(max(guess, low + 1), _MAX_DEGREES)
