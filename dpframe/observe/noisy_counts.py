"""Noisy counts of the cells of one or several columns: sums onto coarser cells, halves, replicates, and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dpframe.observe.cells import Cells
from dpframe.observe.observation import Observation, Runs, draw_noise
from dpframe.spaces.arrays import FloatArray


def through(matrix: FloatArray, values: FloatArray, place: int) -> FloatArray:
    """Multiply an array by a matrix along one dimension."""
    if not place and values.ndim <= 2:
        return np.asarray(matrix @ values)
    return np.moveaxis(np.tensordot(matrix, values, axes=(1, place)), 0, place)


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Counts by the cells of some columns, or of noisy rows by their classes, each with independent Gaussian noise.

    ``columns`` are positions or names, one for each dimension of ``counts``. ``variance`` is one number, or one per
    cell, in rows². ``axes`` are the `Cells` of every column, or none if only the caller knows the cells. Counts of
    noisy rows have ``channels``, P(class | cell) of every column.
    """

    columns: tuple[Any, ...]
    counts: FloatArray
    variance: float | FloatArray
    axes: tuple[Any, ...] = ()
    channels: tuple[FloatArray, ...] = ()

    @property
    def sigma(self) -> Any:
        """Standard deviation of the noise: one number, or one per cell."""
        return np.sqrt(self.variance)

    @cached_property
    def variances(self) -> FloatArray:
        """Variance of every cell's count."""
        # Squares of rounded standard deviations: draws of a law depend on the last bits of its variances.
        return np.broadcast_to(np.asarray(self.sigma**2, dtype=np.float64), self.counts.shape)

    def axis(self, column: Any) -> Any:
        """Return a column's cells."""
        return self.axes[self.columns.index(column)]

    def times(self, weight: float) -> NoisyCounts:
        """Return the counts and their noise times a weight."""
        return replace(self, counts=self.counts * weight, variance=(self.sigma * weight) ** 2)

    def replicate(self, generator: np.random.Generator) -> NoisyCounts:
        """Return the counts with noise added once more."""
        return replace(self, counts=self.counts + draw_noise(self.variances, generator))

    def split(self, scale: float, generator: np.random.Generator, sign: float = 1.0) -> tuple[NoisyCounts, NoisyCounts]:
        """Return two copies of independent noise: y + √a·σz and y − σz/√a, a = ``scale``.

        Their noise has the variances σ²(1 + a) and σ²(1 + 1/a). With ``sign`` −1, z is replaced by −z.
        """
        noise = sign * np.sqrt(scale) * draw_noise(self.variances, generator)
        return (
            replace(self, counts=self.counts + noise, variance=(self.sigma * np.sqrt(1 + scale)) ** 2),
            replace(self, counts=self.counts - noise / scale, variance=(self.sigma * np.sqrt(1 + 1 / scale)) ** 2),
        )

    def onto(self, place: int, weights: FloatArray) -> NoisyCounts:
        """Return weighted sums along one column's cells, ``weights`` of shape (sums, cells)."""
        counts, variances = through(weights, self.counts, place), through(weights**2, self.variances, place)
        return NoisyCounts(self.columns, counts, variances)

    def sum_to(self, columns: Sequence[Any]) -> NoisyCounts:
        """Return the counts summed to some of the columns, in the given order."""
        if tuple(columns) == self.columns:
            return self
        other_axes = tuple(i for i, c in enumerate(self.columns) if c not in columns)
        table_order = [c for c in self.columns if c in columns]
        order = [table_order.index(c) for c in columns]
        counts = self.counts.sum(axis=other_axes).transpose(order)
        axes = tuple(self.axis(c) for c in columns) if self.axes else ()
        # Equal variances have equal sums, which need no array.
        if isinstance(self.variance, float):
            sigma = self.sigma * math.sqrt(self.counts.size / counts.size)
            return NoisyCounts(tuple(columns), counts, sigma**2, axes)
        return NoisyCounts(tuple(columns), counts, self.variances.sum(axis=other_axes).transpose(order), axes)

    def merge_cells(self, axes: Sequence[Cells]) -> NoisyCounts | None:
        """Return the counts of the cells of other axes, or None if these cut a cell."""
        changes = [
            (place, own, axis)
            for place, (own, axis) in enumerate(zip(self.axes, axes, strict=True))
            if not own.has_cells_of(axis)
        ]
        if not all(own.refines(axis) for _, own, axis in changes):
            return None
        counts = self
        for place, own, axis in changes:
            counts = counts.onto(place, own.overlap_with(axis))
        return replace(counts, axes=tuple(axes))

    def to_observation(self, cells: Cells) -> Observation:
        """Return one column's counts as an observation of its other cells, of which they may count parts."""
        return Observation(cells.overlap_with(self.axes[0]), self.counts, self.variances)

    @property
    def by_code(self) -> Observation:
        """One column's counts as an observation of its codes, null's last."""
        starts, stops = self.axes[0].stretches
        variances = np.broadcast_to(np.asarray(self.variance, dtype=np.float64), self.counts.shape)
        return Observation(Runs(starts, stops, int(stops[-1])), self.counts, variances)


def pool(counts: Sequence[NoisyCounts]) -> NoisyCounts:
    """Return several counts of the same cells as one, weighted by precision.

    >>> one, other = (NoisyCounts(("x",), np.array([value]), variance) for value, variance in ((4.0, 1.0), (9.0, 4.0)))
    >>> both = pool([one, other])
    >>> both.counts.tolist(), both.variances.round(3).tolist()
    ([5.0], [0.8])
    """
    if len(counts) == 1:
        return counts[0]
    # Most tables have one variance for all cells: no array is made.
    variances = [one.sigma**2 for one in counts]
    precision = sum(1 / variance for variance in variances)
    mean = np.asarray(sum(one.counts / variance for one, variance in zip(counts, variances, strict=True)) / precision)
    return NoisyCounts(counts[0].columns, mean, np.broadcast_to(1 / precision, mean.shape), counts[0].axes)


def pool_one_ways(counts: Sequence[NoisyCounts]) -> list[NoisyCounts]:
    """Pool the one-ways of each column; if a column has several, one-ways come last."""
    one_ways: dict[tuple[Any, ...], list[NoisyCounts]] = {}
    for one in counts:
        if len(one.columns) == 1:
            one_ways.setdefault(one.columns, []).append(one)
    if all(len(own) == 1 for own in one_ways.values()):
        return list(counts)
    return [one for one in counts if len(one.columns) > 1] + [pool(own) for own in one_ways.values()]
