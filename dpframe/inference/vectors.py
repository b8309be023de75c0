"""Columns of lists of floats: their length, if the type does not determine it, and a bound of their ℓ2 norm.

The most frequent length is chosen: a row counts under its length from 1 to 4,096, or under no cell. The bound is found
like a bound of numbers, from the norms of the lists of this length. Each row has one norm, so that every histogram has
sensitivity 2 (ℓ1) and √2 (ℓ2), like histograms of numbers. A list of another
length, or with a null or NaN in it, is no vector: it counts as null, or beyond all bounds if the type has no nulls.
"""

from __future__ import annotations

from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from dpframe.errors import ColumnError
from dpframe.inference.cells import Grid, fit_cells
from dpframe.inference.column import Task
from dpframe.inference.cost import SMALL_HISTOGRAM_SHARE, CountNoise, Histogram
from dpframe.inference.grids import first_grid
from dpframe.inference.inferred import Measured
from dpframe.inference.ranges import estimate_bounds, refine_grid, round_bounds
from dpframe.noise.gaussian import Ints
from dpframe.noise.keystream import ColumnStream
from dpframe.observe.significance import FALSE_ALARM
from dpframe.spaces import Space, Vector
from dpframe.spaces.arrays import float_norms, float_rows, list_lengths
from dpframe.spaces.ball import LONGEST
from dpframe.spaces.field import Field
from dpframe.totals.counts import Cells, OfColumn

_NORM_SHARES = (0.4, 0.5)
"""Shares of the budget for two rounds of norms, relative to 1 of a column of numbers (tuned; effect
not measured)."""

_MIN_BOUND, _MAX_BOUND = 1e-90, 1e90
"""Limits of a bound (limit of the format)."""


def _count_lengths(values: Any) -> Ints:
    """Return the number of null lists, and of lists by length; cell 0 has lengths that no vector has."""
    lengths = list_lengths(values)
    present = np.where(lengths > LONGEST, 0, lengths)[lengths >= 0]
    return np.concatenate([[int((lengths < 0).sum())], np.bincount(present, minlength=LONGEST + 1)])


def _count_norms(grid: Grid, length: int, nullable: bool, values: Any) -> Ints:
    """Return the number of lists that are no vectors, and the number of norms in each cell of a grid.

    If the type has no nulls, lists that are no vectors count beyond all bounds.
    """
    rows, fits = float_rows(values, length)
    counts = np.concatenate([[0], grid.count(float_norms(rows))])
    # Every row counts under exactly one cell, which keeps the sensitivity.
    counts[0 if nullable else -1] += len(fits) - len(rows)
    return counts


class Lists(Task):
    """A column of lists of floats."""

    def __init__(self, field: Field, n: int) -> None:
        super().__init__(field)
        self.n = n
        fixed = pa.types.is_fixed_size_list(field.type)
        self.length: int | None = field.type.list_size if fixed else None
        if self.length is not None and not 1 <= self.length <= LONGEST:
            raise ColumnError(
                f"has type {field.type}, and vectors have 1 to {LONGEST} numbers; cut the lists, or pass drop=[…]",
                column=field.name,
            )
        self._has_length_round = self.length is None
        float_grid = first_grid(pa.float64())
        # Norms are not negative.
        self._first_grid = Grid(tuple(edge for edge in float_grid.edges if edge > 0), 0.0, float_grid.most)
        self.grid = self._first_grid

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """The histogram of lengths, unless the type determines the length, and two histograms of norms."""
        norms = tuple(Histogram("norms", 1, share) for share in _NORM_SHARES)
        return (Histogram("lengths", 1, SMALL_HISTOGRAM_SHARE), *norms) if self._has_length_round else norms

    def asks(self, i: int) -> int | None:
        """Return the number of the round; without a found length, no norms are counted."""
        return None if i and self.length is None else super().asks(i)

    def counter(self) -> OfColumn:
        """Return a counter of lengths, then of norms."""
        if self.length is None:
            return Cells(_count_lengths, LONGEST + 2)
        grid = self._first_grid
        if self.rounds:
            grid = refine_grid(fit_cells(self.rounds, self.grid.limits), self.n)
        self.grid = grid.opened()
        return Cells(partial(_count_norms, self.grid, self.length, self.field.nullable), len(self.grid.edges) + 2)

    def measure(self, counter: OfColumn, noise: CountNoise, threshold: int, stream: ColumnStream) -> None:
        """Measure the lengths, or the norms of a round; the most frequent significant length becomes the column's."""
        noisy, missing = self._add_noise(counter.counts, noise, stream)
        if self.length is not None:
            counts = tuple(noisy.tolist())
            self.measured.append(Measured(self.field.name, "norms", self.grid.edges, counts, noise.variance, missing))
            return
        # Bonferroni: a false alarm among all lengths has probability FALSE_ALARM.
        threshold_count = NormalDist().inv_cdf(1 - FALSE_ALARM / LONGEST) * noise.variance**0.5
        visible_lengths = np.flatnonzero(noisy > threshold_count)
        visible_lengths = visible_lengths[visible_lengths > 0]
        lengths, counts = tuple(visible_lengths.tolist()), tuple(noisy[visible_lengths].tolist())
        self.measured.append(Measured(self.field.name, "lengths", lengths, counts, noise.variance, missing))
        if lengths:
            self.length = lengths[int(np.argmax(counts))]

    def inner(self) -> Space:
        """Return the space of vectors with the found length and bound; the default is 1."""
        norm_bounds = estimate_bounds(fit_cells(self.rounds, self.grid.limits), self.n) if self.rounds else None
        bound = 1.0 if norm_bounds is None else float(round_bounds(0.0, norm_bounds[1])[1])
        return Vector(self.length or 1, min(max(bound, _MIN_BOUND), _MAX_BOUND))
