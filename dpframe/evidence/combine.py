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

from dpframe.arrays import FloatArray

_FIELLER = 1.96**2
"""Square of the half-width of a 95 % interval in standard errors."""

_FAR = 2.0
"""Standard errors by which an estimate is far from the others' mean."""

_FEWEST = 4
"""Estimates from which on their common spread is told well enough to draw them together."""


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
        from scipy.special import log_ndtr

        if not np.isfinite(self.threshold).any():
            return self
        here, sigma = self.matrix @ rows, np.sqrt(self.variances)
        z = np.clip((here - self.threshold) / sigma, -30.0, 30.0)
        lift = np.exp(-(z**2) / 2 - math.log(2 * math.pi) / 2 - log_ndtr(z))
        kept = np.clip(1 - z * lift - lift**2, 1e-3, 1.0)
        return Observation(self.matrix, here + (self.counts - here - sigma * lift) / kept, self.variances / kept)


def updated(rows: FloatArray, covariance: FloatArray, facts: Observation) -> tuple[FloatArray, FloatArray]:
    """Return numbers of rows and their covariance when facts are known as well.

    Examples
    --------
    >>> facts = Observation(np.array([[1.0, 1.0]]), np.array([11.0]), np.array([1.0]))
    >>> rows, covariance = updated(np.array([6.0, 2.0]), np.eye(2), facts)
    >>> rows.round(6).tolist(), covariance.round(3).tolist()
    ([7.0, 3.0], [[0.667, -0.333], [-0.333, 0.667]])
    """
    from scipy.linalg import cho_factor, cho_solve

    if not len(facts.counts):
        return rows, covariance
    shared = covariance @ facts.matrix.T
    inner = facts.matrix @ shared + np.diag(facts.variances)
    gain = cho_solve(cho_factor(inner, lower=True), shared.T).T
    left = np.eye(len(rows)) - gain @ facts.matrix
    # Joseph's form: no difference of what may be far larger.
    kept = left @ covariance @ left.T + (gain * facts.variances) @ gain.T
    return rows + gain @ (facts.counts - facts.matrix @ rows), (kept + kept.T) / 2


def likely(rows: FloatArray, covariance: FloatArray, facts: Observation) -> float:
    """Return the probability of facts as far from an estimate, or farther, were they of the same rows: by χ².

    Examples
    --------
    >>> facts = Observation(np.array([[1.0, 1.0]]), np.array([11.0]), np.array([2.0]))
    >>> round(likely(np.array([6.0, 2.0]), np.eye(2), facts), 3)
    0.134
    """
    from scipy.stats import chi2

    apart = facts.counts - facts.matrix @ rows
    inner = facts.matrix @ covariance @ facts.matrix.T + np.diag(facts.variances)
    return float(chi2.sf(float(apart @ np.linalg.solve(inner, apart)), len(apart)))


def few_rows(rows: npt.ArrayLike, variance: npt.ArrayLike) -> FloatArray:
    """Return the factor of a ratio's standard error by which its interval is wider as its base is uncertain.

    Fieller's interval (1954) of a ratio is 1/(1 − g) of that of the delta method, with g the squared quotient of the
    base's half-width and the base; from three quarters on the base may be nothing, and four stands for all.

    Examples
    --------
    >>> few_rows([100.0, 100.0, 10.0], [0.0, 100.0, 100.0]).round(2).tolist()
    [1.0, 1.04, 4.0]
    """
    base = np.maximum(np.asarray(rows, dtype=np.float64), 1.0)
    return np.asarray(1 / (1 - np.minimum(_FIELLER * np.asarray(variance) / base**2, 0.75)))


def drawn_together(values: FloatArray, variances: FloatArray, centre: float | None = None) -> FloatArray:
    """Return estimates drawn to a centre, by default their common mean, by how much of their differences is noise.

    The variance τ² between truths is by moments (DerSimonian and Laird 1986), and v/(v + τ²) of each one's distance
    from the mean is taken away (Efron and Morris 1973). What that adds to the bias it takes from the spread: the errors
    stay v, and hold on average over the estimates: of fewer than four each is left as it is, as are those that are not
    finite.

    Examples
    --------
    >>> values = np.array([1.0, 5.0, 2.0, 4.0])
    >>> drawn_together(values, np.full(4, 9.0)).round(2).tolist()
    [3.0, 3.0, 3.0, 3.0]
    >>> drawn_together(values, np.array([0.01, 0.01, 0.01, 9.0])).round(1).tolist()
    [1.0, 5.0, 2.0, 3.2]
    """
    usable = np.isfinite(values) & np.isfinite(variances) & (variances > 0)
    if usable.sum() < _FEWEST:
        return values
    found, v = values[usable], variances[usable]
    weights = 1 / v
    total = float(weights.sum())
    apart = float(weights @ (found - (float(weights @ found) / total if centre is None else centre)) ** 2)
    between = max(apart - (len(v) - (centre is None)), 0.0) / max(total - float(weights @ weights) / total, 1e-300)
    weights = 1 / (v + between)
    mean = float(weights @ found) / float(weights.sum()) if centre is None else centre
    # One that is far from the others for its own noise is taken at its word.
    far = (found - mean) ** 2
    own = np.where(far > _FAR**2 * v, np.maximum(far - v, between), between)
    out = values.copy()
    out[usable] = found + v / (v + own) * (mean - found)
    return out
