"""Generalised least squares (Aitken 1936): an estimate and its covariance, updated by noisy linear facts.

With x of covariance C, facts y = H·x + noise of variances M, and K = C Hᵀ (H C Hᵀ + M)⁻¹,

    x ← x + K (y − H x),    C ← C − K H C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpframe.accounting.gaussian_dp import mills_ratio
from dpframe.plan.threads import one_thread
from dpframe.spaces.arrays import FloatArray

_FIELLER = 1.96**2
"""Square of the half-width of a 95 % interval in standard errors."""

RHO = np.linspace(0.0, 8.0, 161)
"""Values of ρ that are averaged over, in standard deviations of its prior."""

_FARTHER = 2.0 ** np.arange(5)
"""Scales that truths far off may differ by, each half as likely as the one before."""

_LEAST = 1e-12
"""Least variance of noise."""

_SCORINGS = 6
"""Steps for counts that were released above a threshold."""


@dataclass(frozen=True, eq=False)
class Observation:
    """Noisy linear facts about numbers of rows by cell: ``counts`` = ``matrix`` · rows + independent noise.

    ``matrix`` has the shape (facts, cells), ``counts`` and ``variances`` (facts,). ``least`` is what a count had to
    reach to be released, by default −∞ for each.
    """

    matrix: FloatArray
    counts: FloatArray
    variances: FloatArray
    least: FloatArray | None = None

    @classmethod
    def joined(cls, parts: Sequence[Observation], cells: int) -> Observation:
        """Return several observations of the same cells as one."""
        nothing = cls(np.zeros((0, cells)), np.zeros(0), np.zeros(0))
        found = [nothing, *parts]
        least = np.concatenate([one.threshold for one in found])
        matrix, counts, variances = (
            np.concatenate([getattr(one, name) for one in found]) for name in ("matrix", "counts", "variances")
        )
        return cls(matrix, counts, variances, least)

    @property
    def threshold(self) -> FloatArray:
        """What each count had to reach."""
        return np.full(len(self.counts), -np.inf) if self.least is None else self.least

    def about(self, rows: FloatArray) -> Observation:
        """Return the facts as they are without selection, linear about numbers of rows by cell.

        Given that a threshold τ was reached, y has the mean hx + σζ and the variance σ²κ, with z = (hx − τ)/σ,
        ζ = φ(z)/Φ(z), κ = 1 − zζ − ζ²; and κ is the slope of that mean too. So Fisher scoring for the truncated
        likelihood replaces y by what is linear in x about the last estimate, at the variance σ²/κ: counts far above τ
        stay as they are, those about τ hardly count.
        """
        if not np.isfinite(self.threshold).any():
            return self
        here, sigma = self.matrix @ rows, np.sqrt(self.variances)
        lift, kept = cut_below((here - self.threshold) / sigma)
        kept = np.maximum(kept, 1e-3)
        return Observation(self.matrix, here + (self.counts - here - sigma * lift) / kept, self.variances / kept)


def cut_below(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return by how much the mean of a standard normal law rises that is cut at −z, and the variance that it keeps."""
    z = np.clip(z, -30.0, 30.0)
    lift = 1 / mills_ratio(-z)
    return lift, np.clip(1 - z * lift - lift**2, 0.0, 1.0)


@one_thread
def updated(rows: FloatArray, covariance: FloatArray, facts: Observation) -> tuple[FloatArray, FloatArray]:
    """Return numbers of rows and their covariance when facts are known as well.

    It needs no inverse of the covariance, which is singular where the number of all rows is known.
    """
    if not len(facts.counts):
        return rows, covariance
    told = facts
    for _ in range(_SCORINGS if np.isfinite(facts.threshold).any() else 1):
        gain = gain_of(covariance, facts.matrix, told.variances)
        found, variances = rows + gain @ (told.counts - facts.matrix @ rows), told.variances
        told = facts.about(found)
    return found, left_by(covariance, gain, facts.matrix, variances)


@one_thread
def gain_of(covariance: FloatArray, matrix: FloatArray, variances: FloatArray) -> FloatArray:
    """Return K, shape (cells, facts): by how much an estimate follows facts that differ from it."""
    shared = covariance @ matrix.T
    return np.asarray(np.linalg.solve(matrix @ shared + np.diag(variances), shared.T).T)


@one_thread
def left_by(covariance: FloatArray, gain: FloatArray, matrix: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the covariance that facts leave, in Joseph's form: no difference of what may be far larger."""
    left = np.eye(len(covariance)) - gain @ matrix
    kept = left @ covariance @ left.T + (gain * variances) @ gain.T
    return np.asarray((kept + kept.T) / 2)


def chi_square_tail(degrees: int, value: float) -> float:
    """Return P(χ² ≥ value) with so many degrees of freedom, by its finite sum: an import of SciPy takes longer."""
    half, odd = value / 2, degrees % 2
    if half <= 0 or half == math.inf:
        return float(half <= 0)
    first = -half + (0.5 * math.log(half / (math.pi / 4)) if odd else 0.0)
    logs = np.cumsum(np.log(half / np.arange(1 + odd / 2, degrees / 2)))
    terms = np.exp(first + np.append(0.0, logs))[: degrees // 2]
    return min(1.0, float(terms.sum()) + (math.erfc(math.sqrt(half)) if odd else 0.0))


def pooled(values: FloatArray) -> FloatArray:
    """Return the nearest numbers that never fall: those that fall are pooled, and take their mean."""
    levels: list[tuple[float, int]] = []
    for value in values.tolist():
        total, count = value, 1
        while levels and levels[-1][0] * count >= total * levels[-1][1]:
            more, many = levels.pop()
            total, count = total + more, count + many
        levels.append((total, count))
    return np.array([total / count for total, count in levels for _ in range(count)], dtype=np.float64)


def likely(rows: FloatArray, covariance: FloatArray, facts: Observation) -> float:
    """Return the probability of facts as far from an estimate, or farther, were they of the same rows: by χ²."""
    apart = facts.counts - facts.matrix @ rows
    inner = facts.matrix @ covariance @ facts.matrix.T + np.diag(facts.variances)
    return chi_square_tail(len(apart), float(apart @ np.linalg.solve(inner, apart)))


def project(values: FloatArray, variances: FloatArray | float = 1.0, total: float = 1.0) -> FloatArray:
    """Return the nearest numbers that are not negative and have a sum, distances weighted by inverse variances.

    One threshold per unit of variance leaves the sum right (Held, Wolfe and Crowder 1974).
    """
    if total <= 0 or not values.size:
        return np.zeros_like(values)
    flat, weights = values.ravel(), np.maximum(np.broadcast_to(variances, values.shape), 1e-12).ravel()
    # x = (y − λv)₊: λ from the entries that stay, in the order in which they leave.
    order = np.argsort(-flat / weights)
    y, v = np.cumsum(flat[order]), np.cumsum(weights[order])
    steps = (y - total) / v
    last = int(np.flatnonzero(flat[order] > steps * weights[order])[-1])
    return np.asarray(np.maximum(flat - steps[last] * weights, 0.0).reshape(values.shape))


def few_rows(rows: npt.ArrayLike, variance: npt.ArrayLike) -> FloatArray:
    """Return the factor of a ratio's standard error by which its interval is wider as its base is uncertain.

    Fieller's interval (1954) of a ratio is 1/(1 − g) of that of the delta method, with g the squared quotient of the
    base's half-width and the base; from three quarters on the base may be nothing, and four means all.
    """
    base = np.maximum(np.asarray(rows, dtype=np.float64), 1.0)
    return np.asarray(1 / (1 - np.minimum(_FIELLER * np.asarray(variance) / base**2, 0.75)))


def shrunk(
    apart: FloatArray,
    variances: FloatArray,
    scales: FloatArray,
    prior: float,
    far: float = 0.0,
    most: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return distances from what is likely, less what is noise of them, and their variances.

    The truths are ρ·scale·z, z standard normal, or with the probability ``far`` scale·z. How large ρ is shows in all
    of the distances together: it is averaged over its posterior, its prior half normal (empirical Bayes, Efron and
    Morris 1975). So where there is little evidence they are near 0, and near the distances where there is much.

    Nothing is known where ``apart`` or ``variances`` is not finite; ``prior`` is the standard deviation of ρ's prior.
    With ``most`` half of the truths that are far differ by the scale, a quarter by twice as much, and so on to 16
    scales, or to ``most``; by default all do by the scale.
    """
    known = np.isfinite(apart) & np.isfinite(variances)
    noise = np.where(known, np.maximum(variances, _LEAST), 1.0)
    seen = np.where(known, apart, 0.0)

    def law(spread: FloatArray) -> FloatArray:
        total = spread + noise
        return np.asarray(np.where(known, -0.5 * (np.log(total) + seen**2 / total), 0.0))

    near = (prior * RHO[:, None] * scales) ** 2
    reach = scales if most is None else np.maximum(most, scales)
    wide = np.array([np.minimum(factor * scales, reach) for factor in _FARTHER[: 1 if most is None else None]]) ** 2
    share = 1 / _FARTHER[: len(wide), None]
    with np.errstate(divide="ignore"):
        close, afar = law(near) + np.log(1 - far), law(wide) + np.log(far * share / share.sum())
    outer = np.logaddexp.reduce(afar, axis=0)
    score = np.logaddexp(close, outer)
    posterior = score.sum(axis=1) - RHO**2 / 2
    posterior = np.exp(posterior - posterior.max())
    posterior = (posterior / posterior.sum())[:, None]
    # How far a far truth is does not depend on ρ.
    beyond = np.exp(afar - outer) * (posterior * np.exp(outer - score)).sum(axis=0) if far > 0 else np.zeros_like(wide)
    weight = np.concatenate([posterior * np.exp(close - score), beyond])
    spread = np.concatenate([near, wide])
    gain = np.where(known, spread / (spread + noise), 0.0)
    mean = (weight * gain).sum(axis=0)
    left = (weight * spread * (1 - gain)).sum(axis=0) + (weight * (gain - mean) ** 2).sum(axis=0) * seen**2
    return mean * seen, left
