"""Noisy counts of cells, and an estimate's update by them: generalised least squares (Aitken 1936).

With numbers of rows x of covariance C, and values y = H·x + noise of variances M,

    K = C Hᵀ (H C Hᵀ + M)⁻¹,    x ← x + K (y − H x),    C ← C − K H C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpframe.accounting.gaussian_dp import mills_ratio
from dpframe.errors import ParameterError
from dpframe.observe.overlap import overlap_cells
from dpframe.spaces.arrays import FloatArray, IntArray

_SCORING_STEPS = 6
"""Steps of Fisher scoring for values that were reported above a threshold (tolerance)."""

_LEAST_VARIANCE_SHARE = 1e-3
"""Share of the noise's variance that a truncated value keeps at least (tolerance)."""


@dataclass(frozen=True, eq=False)
class Runs:
    """A design of zeros and ones: each value counts a run of neighbouring cells, from its start to before its stop."""

    starts: IntArray
    stops: IntArray
    cells: int

    @classmethod
    def between(cls, ends: Sequence[int]) -> Runs:
        """Return the runs from each end to the next one, which together are all cells."""
        places = np.array(ends, dtype=np.int64)
        return cls(places[:-1], places[1:], int(ends[-1]))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of values, and of cells."""
        return len(self.starts), self.cells

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sum of the values of each run's cells, along the first axis."""
        # A run may stop after the last cell.
        padded = np.concatenate([values, np.zeros((1, *values.shape[1:]))])
        return np.asarray(np.add.reduceat(padded, np.stack([self.starts, self.stops], axis=1).ravel())[::2])

    @property
    def widths(self) -> FloatArray:
        """Number of cells of each run."""
        return (self.stops - self.starts).astype(np.float64)

    def __getitem__(self, part: slice) -> Runs:
        return Runs(self.starts[part], self.stops[part], self.cells)

    def __array__(self, dtype: Any = None, copy: Any = None) -> FloatArray:
        return overlap_cells(np.arange(self.cells + 1), self.starts, self.stops)


@dataclass(frozen=True, eq=False)
class Observation:
    """One statement about numbers of rows by cell: ``values`` = ``design`` · rows + independent noise of ``variances``.

    ``design``: weights of the cells, shape (values, cells), or the run of cells that each value counts. ``threshold``:
    what each value had to reach to be reported, or None if all values were reported.
    """

    design: FloatArray | Runs
    values: FloatArray
    variances: FloatArray
    threshold: FloatArray | None = None

    def __post_init__(self) -> None:
        vectors = [vector for vector in (self.values, self.variances, self.threshold) if vector is not None]
        if {vector.shape for vector in vectors} != {self.design.shape[:1]} or not (self.variances >= 0).all():
            raise ParameterError("an observation needs one value, and one variance of 0 or more, per row of its design")

    @classmethod
    def stack(cls, observations: Sequence[Observation], cells: int) -> Observation:
        """Return several observations of the same cells as one."""
        parts = [cls(np.zeros((0, cells)), np.zeros(0), np.zeros(0)), *observations]
        thresholds = [np.full(len(one), -np.inf) if one.threshold is None else one.threshold for one in parts]
        matrix, values, variances = (
            np.concatenate([getattr(one, name) for one in parts]) for name in ("matrix", "values", "variances")
        )
        return cls(matrix, values, variances, np.concatenate(thresholds))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def matrix(self) -> FloatArray:
        """The design's weights, shape (values, cells)."""
        return np.asarray(self.design)

    @property
    def runs(self) -> Runs:
        """The run of cells that each value counts, in a design of runs."""
        assert isinstance(self.design, Runs)
        return self.design

    @property
    def is_truncated(self) -> bool:
        """Whether some value had to reach a threshold."""
        return self.threshold is not None and bool(np.isfinite(self.threshold).any())

    def select(self, part: slice) -> Observation:
        """Return some of the values."""
        threshold = None if self.threshold is None else self.threshold[part]
        return Observation(self.design[part], self.values[part], self.variances[part], threshold)

    def replicate(self, rows: FloatArray, generator: np.random.Generator) -> FloatArray:
        """Return a draw of the values, given the numbers of rows by cell."""
        return self.matrix @ rows + draw_noise(self.variances, generator)

    def linearise(self, rows: FloatArray) -> Observation:
        """Return the observation without threshold that has the same score about numbers of rows by cell.

        Given that a threshold τ was reached, y has the mean hx + σζ and the variance σ²κ, with z = (hx − τ)/σ,
        ζ = φ(z)/Φ(z), κ = 1 − zζ − ζ²; and κ is the slope of that mean too. So Fisher scoring for the truncated
        likelihood replaces y by what is linear in x about the last estimate, at the variance σ²/κ: values far above τ
        stay as they are, those about τ hardly count.
        """
        if self.threshold is None or not self.is_truncated:
            return self
        here, sigma = self.matrix @ rows, np.sqrt(self.variances)
        mean, kept = truncated_normal_moments((here - self.threshold) / sigma)
        kept = np.maximum(kept, _LEAST_VARIANCE_SHARE)
        values = here + (self.values - here - sigma * mean) / kept
        return replace(self, values=values, variances=self.variances / kept, threshold=None)


def draw_noise(variances: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Return a draw of independent normal noise."""
    return np.asarray(np.sqrt(variances) * generator.standard_normal(variances.shape))


def update(rows: FloatArray, covariance: FloatArray, observation: Observation) -> tuple[FloatArray, FloatArray]:
    """Return numbers of rows by cell, and their covariance, given an observation as well.

    No inverse of the covariance is needed, which is singular if the number of all rows is known.

    >>> rows, covariance = np.array([4.0, 4.0]), 2 * np.eye(2)
    >>> both = Observation(Runs.between([0, 2]), np.array([10.0]), np.array([1.0]))
    >>> found, left = update(rows, covariance, both)
    >>> found.round(2).tolist(), left.round(2).tolist()
    ([4.8, 4.8], [[1.2, -0.8], [-0.8, 1.2]])
    """
    if not len(observation):
        return rows, covariance
    if isinstance(observation.design, Runs) and not observation.is_truncated:
        return _update_by_runs(rows, covariance, observation)
    matrix, linear = observation.matrix, observation
    for _ in range(_SCORING_STEPS if observation.is_truncated else 1):
        gain = gain_of(covariance, matrix, linear.variances)
        found, variances = rows + gain @ (linear.values - matrix @ rows), linear.variances
        linear = observation.linearise(found)
    return found, remaining_covariance(covariance, gain, matrix, variances)


def _update_by_runs(
    rows: FloatArray, covariance: FloatArray, observation: Observation
) -> tuple[FloatArray, FloatArray]:
    """Return the update by one step of Kalman's filter (1960) a value, each within the cells correlated with its run.

    Covariances far larger than the noise lose digits here, which those of counts are not. If no cell is correlated with
    two runs, as in nested histograms, all steps are one.
    """
    runs = observation.runs
    shared = runs.sums(covariance)
    if (runs.starts < runs.stops).all() and (np.count_nonzero(shared, axis=0) <= 1).all():
        run_of_cell, shared_of_cell = (shared != 0).argmax(axis=0), shared.sum(axis=0)
        spread = np.diag(runs.sums(shared.T)) + observation.variances
        gain, residual = shared_of_cell / spread[run_of_cell], observation.values - runs.sums(rows)
        is_of_one_run = run_of_cell[:, None] == run_of_cell
        change = np.where(is_of_one_run, np.outer(gain, shared_of_cell), 0.0)
        return rows + gain * residual[run_of_cell], covariance - change
    rows, covariance = rows.copy(), covariance.copy()
    parts = (runs.starts, runs.stops, observation.values, observation.variances)
    for start, stop, value, variance in zip(*(part.tolist() for part in parts), strict=True):
        correlated = np.asarray(covariance[start:stop].any(axis=0))
        correlated[start:stop] = True
        places = correlated.nonzero()[0]
        first, last = places[0], places[-1] + 1
        block, run = covariance[first:last, first:last], slice(start - first, stop - first)
        shared = block[:, run].sum(axis=1)
        gain = shared / (shared[run].sum() + variance)
        rows[first:last] += gain * (value - rows[start:stop].sum())
        block -= np.outer(gain, shared)
    return rows, covariance


def gain_of(covariance: FloatArray, matrix: FloatArray, variances: FloatArray) -> FloatArray:
    """Return K, shape (cells, values): by how much an estimate follows values that differ from it."""
    shared = covariance @ matrix.T
    return np.asarray(np.linalg.solve(matrix @ shared + np.diag(variances), shared.T).T)


def remaining_covariance(
    covariance: FloatArray, gain: FloatArray, matrix: FloatArray, variances: FloatArray
) -> FloatArray:
    """Return the covariance after an update, in Joseph's form: no difference of what may be far larger."""
    left = np.eye(len(covariance)) - gain @ matrix
    kept = left @ covariance @ left.T + (gain * variances) @ gain.T
    return np.asarray((kept + kept.T) / 2)


def p_value(rows: FloatArray, covariance: FloatArray, observation: Observation) -> float:
    """Return the probability of values as far from an estimate, or farther, were they of the same rows: by χ²."""
    matrix, residual = observation.matrix, observation.values - observation.matrix @ rows
    spread = matrix @ covariance @ matrix.T + np.diag(observation.variances)
    return chi_square_tail(len(residual), float(residual @ np.linalg.solve(spread, residual)))


def truncated_normal_moments(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the variance of a standard normal law that is truncated below −z.

    >>> mean, variance = truncated_normal_moments(np.array([0.0, 30.0]))
    >>> mean.round(3).tolist(), variance.round(3).tolist()
    ([0.798, 0.0], [0.363, 1.0])
    """
    z = np.clip(z, -30.0, 30.0)
    mean = 1 / mills_ratio(-z)
    return mean, np.clip(1 - z * mean - mean**2, 0.0, 1.0)


def chi_square_tail(degrees: int, value: float) -> float:
    """Return P(χ² ≥ value) with so many degrees of freedom, by its finite sum: an import of SciPy takes longer."""
    half, odd = value / 2, degrees % 2
    if half <= 0 or half == math.inf:
        return float(half <= 0)
    first = -half + (0.5 * math.log(half / (math.pi / 4)) if odd else 0.0)
    logs = np.cumsum(np.log(half / np.arange(1 + odd / 2, degrees / 2)))
    terms = np.exp(first + np.append(0.0, logs))[: degrees // 2]
    return min(1.0, float(terms.sum()) + (math.erfc(math.sqrt(half)) if odd else 0.0))
