"""Cells of the line: grids of cells, and their counts by least squares over all rounds of inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.inference.inferred import Measured
from dpframe.observe.observation import update
from dpframe.spaces.arrays import FloatArray

Edge = int | float
Places = npt.NDArray[np.intp]

_SINGLE_NUMBER_WIDTH = 1e-12
"""Width of a cell of floats that contains a single number, in parts of this number (tolerance)."""


@dataclass(frozen=True)
class Grid:
    """Cells of the line: ``edges`` ascend, cell i is [edge i−1, edge i), and the first and last are open.

    Edges are all whole numbers or all floats, like the values; ``least`` and ``most`` are the type's limits. Grids that
    count floats have infinite limits: their outermost cells count the infinities, and later steps ignore them.
    """

    edges: tuple[Edge, ...]
    least: Edge
    most: Edge

    def count(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the number of values in every cell; infinities belong to the outermost cells."""
        edges = np.array(self.edges, dtype=np.int64 if values.dtype.kind == "i" else np.float64)
        if values.dtype.kind == "i" and len(values) and int(values.max()) - int(values.min()) < len(values):
            # Whole numbers that repeat are counted by value first, which is far faster than to look each one up.
            weights = np.bincount(values - values.min())
            cells = np.searchsorted(edges, np.arange(len(weights)) + values.min(), side="right")
            return np.bincount(cells, weights, minlength=len(edges) + 1).astype(np.int64)
        # Few edges are looked up among sorted values, three times as fast as many values among the edges.
        below = np.searchsorted(np.sort(values), edges)
        return np.diff(below, prepend=0, append=len(values)).astype(np.int64)

    def opened(self) -> Grid:
        """Return the grid with cells for the infinities, if values may be infinite."""
        return self if self.whole else Grid((self.least, *self.edges, self.most), -math.inf, math.inf)

    @property
    def limits(self) -> tuple[Edge, Edge]:
        """The type's limits, or the infinities."""
        return self.least, self.most

    @property
    def ends(self) -> tuple[Edge, ...]:
        """All edges, the type's limits included: one more than there are cells."""
        return (self.least, *self.edges, self.most)

    @property
    def whole(self) -> bool:
        """Whether values are whole numbers."""
        return isinstance(self.least, int)


@dataclass(frozen=True)
class Cells:
    """Estimated counts of a grid's cells, and their covariance."""

    grid: Grid
    counts: FloatArray
    covariance: FloatArray

    def reversed(self) -> Cells:
        """Return the cells in the opposite order."""
        return Cells(self.grid, self.counts[::-1], self.covariance[::-1, ::-1])


@lru_cache(maxsize=8)
def fit_intervals(measured: tuple[Measured, ...]) -> tuple[FloatArray, FloatArray]:
    """Return the rows of the finest intervals by least squares over all counts, and their covariance.

    ``measured``: counts of intervals, or of norms; each histogram divides the intervals of its predecessor.
    """
    finest = measured[-1]
    rows, covariance = np.array(finest.counts, dtype=np.float64), np.diag(np.full(len(finest.counts), finest.variance))
    # Cells of earlier rounds are unions of the finest cells.
    for coarser in reversed(measured[:-1]):
        rows, covariance = update(rows, covariance, coarser.to_observation(finest.cells))
    return rows, covariance


def fit_cells(measured: Sequence[Measured], limits: tuple[Edge, Edge]) -> Cells:
    """Return the counts of the finest cells, from the last round, by weighted least squares over all rounds.

    ``limits``: ends of the outermost cells; if infinite, these cells have the infinities, and are left out.
    """
    (counts, covariance), edges = fit_intervals(tuple(measured)), measured[-1].cells
    if math.isfinite(limits[1]):
        return Cells(Grid(edges, *limits), counts, covariance)
    return Cells(Grid(edges[1:-1], edges[0], edges[-1]), counts[1:-1], covariance[1:-1, 1:-1])


class RunSums:
    """Sums of runs of neighbouring cells, each from its start to before its stop, and their standard errors."""

    def __init__(self, counts: FloatArray, covariance: FloatArray) -> None:
        self._counts = np.concatenate([[0.0], np.cumsum(counts)])
        self._covariance = np.pad(covariance.cumsum(0).cumsum(1), ((1, 0), (1, 0)))

    def scores(self, starts: Places, stops: Places) -> FloatArray:
        """Return the sums of runs in standard errors; a run without variance has a score of 0."""
        covariance = self._covariance
        # The variance of a run's sum is a difference of four cumulative covariances.
        variances = covariance[stops, stops] - 2 * covariance[starts, stops] + covariance[starts, starts]
        return np.asarray((self._counts[stops] - self._counts[starts]) / np.sqrt(np.maximum(variances, 1e-300)))


def is_single_float(start: Any, stop: Any) -> Any:
    """Return whether a cell of floats, or each of several cells, contains a single number."""
    # Halved: the difference of two floats may be beyond all floats.
    return stop / 2 - start / 2 < _SINGLE_NUMBER_WIDTH / 2 * abs(start)


def largest_number(start: float, stop: float, is_whole: bool) -> float:
    """Return the largest number of a cell: its end for floats, unless the cell contains a single number."""
    return start if is_single_float(start, stop) else stop - is_whole
