"""Noisy counts of a column of numbers, compared with the bounds of its space: rows outside, noise, and hidden rows.

Everything here is post-processing: it sees noisy counts and public facts, never the data.

*Rows outside.* If a share q of the rows lies beyond one bound, clipping changes the mean by at most √(q/(1 − q))
standard deviations (Cauchy and Schwarz): half a standard deviation for q = 1/5. A column is found if this q is probable
enough by the counts.

*Noise.* The noise of a sum grows with the width of the bounds. It is compared with the standard deviation that the
counts show.

*Minority.* If one value has most of the rows, the others are the minority. The posterior of their sizes (`minority`)
gives the chance that the bounds miss most of them, and bounds that probably contain them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from dpframe.inference.cells import fit_intervals, is_single_float
from dpframe.inference.inferred import Measured, null_count, word_count
from dpframe.inference.minority import Minority, fit_minority
from dpframe.observe.observation import Observation, Runs, update
from dpframe.observe.overlap import overlap_cells
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

MOST_OUTSIDE = 0.2
"""Share of the rows that may lie in ``other``, or beyond a bound (tuned; effect not measured)."""

_MIN_COVER_CHANCE = 0.3
"""Least probability that at most a fifth of the rows lies beyond a found column's bounds (tuned; on tables of up to
1,000 rows .5 loses 1.5 % more columns, and .1 hides the error of 1 % more means)."""

MIN_REPORTED_CHANCE = 0.1
"""Least chance of rows beyond the bounds that a message reports (tuned; effect not measured)."""

_SPIKE_SHARE = 0.5
"""Share of the rows from which on a single value is a spike: most of the rows (theory: definition)."""

_FALSE_BOUNDS_CHANCE = 0.005
"""Chance that counts of noise pass for bounds, shared by all cells that bounds may end at (tuned; on real and made
tables, half and twice it lose about 1 % more and fewer columns of numbers)."""


@dataclass(frozen=True)
class NumberCounts:
    """Noisy counts of a column of numbers, times or norms, and the bounds of its space.

    ``measured``: the counts of every round; ``n``: rows of the table. The spike is the cell with most rows, and the
    minority are the rows that are neither in the spike nor null. Shares, rows and standard errors are estimates.
    """

    measured: tuple[Measured, ...]
    space: Space
    n: int

    @cached_property
    def counts(self) -> FloatArray:
        """Rows of the finest cells, fitted to all rounds."""
        return fit_intervals(self.measured)[0]

    @cached_property
    def covariance(self) -> FloatArray:
        """Covariance of the counts."""
        return fit_intervals(self.measured)[1]

    @cached_property
    def ends(self) -> FloatArray:
        """Ends of the finest cells; the outermost cells have none."""
        return np.array([-math.inf, *self.measured[-1].cells, math.inf], dtype=np.float64)

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The space's bounds, in the unit of the counts."""
        return bounds_of_counts(self.space.inner_space, self.measured[-1].unit)

    @property
    def is_whole(self) -> bool:
        """Whether the values are whole numbers or times."""
        return bool(self.space.inner_space.is_whole or self.measured[-1].unit is not None)

    @property
    def present(self) -> int:
        """Rows that are neither null nor a word, at least one."""
        return max(self.n - max(self.measured[-1].rows_in_no_cell, 0), 1)

    @cached_property
    def inside_shares(self) -> FloatArray:
        """Part of every cell between the bounds, if rows are spread evenly within cells."""
        grid, (low, high), ends, is_whole = self.space.inner_space, self.bounds, self.ends, self.is_whole
        parts: FloatArray = overlap_cells(ends, [low], [high + is_whole])[0]  # of whole numbers the last one is inside
        if not is_whole:  # the cell of floats around 0 is 0 itself, and 0 may be a bound
            starts, stops = ends[:-1], ends[1:]
            is_zero_cell, is_point = (starts < 0) & (stops > 0), is_single_float(starts, stops)
            parts[is_zero_cell] = float(low <= 0 <= high)
            parts[is_point] = (low <= starts[is_point]) & (starts[is_point] <= high)
            if not grid.holds_vectors and grid.size == 2:  # truth values: nothing between them is one
                parts[~(is_zero_cell | is_point)] = 0.0
        return parts

    @cached_property
    def share_outside(self) -> tuple[float, float]:
        """Share of the rows present beyond the bounds, at least 0, and its standard error.

        Nulls count as outside if the space has no nulls; words are neither. All cells of a round, the nulls and the
        words add up to n rows.
        """
        counts, covariance, outside_shares = self.counts, self.covariance, 1 - self.inside_shares
        flagged_counts = ((null_count(self.measured), float(not self.space.has_null)), (word_count(self.measured), 0.0))
        for estimate, outside_share in flagged_counts:
            if estimate is not None:
                counts, covariance = np.append(counts, estimate[0]), np.pad(covariance, (0, 1))
                covariance[-1, -1] = estimate[1]
                outside_shares = np.append(outside_shares, outside_share)
        all_rows = Observation(Runs.between([0, len(counts)]), np.array([float(self.n)]), np.zeros(1))
        counts, covariance = update(counts, covariance, all_rows)
        variance = max(float(outside_shares @ covariance @ outside_shares), 0.0)
        absent_rows = counts[len(self.counts) :] * (outside_shares[len(self.counts) :] == 0)
        present = max(self.n - float(absent_rows.sum()), 1.0)
        return max(float(outside_shares @ counts), 0.0) / present, math.sqrt(variance) / present

    @property
    def has_many_rows_outside(self) -> bool:
        """Whether more than a fifth of the rows may lie beyond the bounds."""
        share, error = self.share_outside
        return share + NormalDist().inv_cdf(_MIN_COVER_CHANCE) * error > MOST_OUTSIDE

    @property
    def bounds_noise_factor(self) -> float:
        """How many times too large the noise is for the rows within the bounds to show."""
        share, error = self.share_outside
        # The bounds 0 and 1 of a spike were not chosen among hundreds.
        if self.has_spike and self.bounds == (0.0, 1.0):
            return 0.0
        required_se = NormalDist().inv_cdf(1 - _FALSE_BOUNDS_CHANCE / len(self.counts))
        return required_se * error / max(1 - share, 1e-9)

    @cached_property
    def spike(self) -> int:
        """The cell with most rows."""
        return int(np.argmax(self.counts))

    @cached_property
    def has_spike(self) -> bool:
        """Whether the spike contains a single value that has most of the rows."""
        start, stop = self.ends[self.spike : self.spike + 2]
        is_one_whole_number = stop / 2 - start / 2 <= 0.5  # the difference of floats may be beyond them all
        has_one_value = is_one_whole_number if self.is_whole else is_single_float(start, stop) or start < 0 < stop
        is_number = self.measured[-1].unit is None
        return bool(is_number and has_one_value and self.counts[self.spike] > _SPIKE_SHARE * self.present)

    @cached_property
    def minority(self) -> Minority:
        """The posterior distribution of the rows that are neither in the spike nor null."""
        last_round = self.measured[-1]
        rounds = [
            (np.array([-math.inf, *m.cells, math.inf]), np.array(m.counts, dtype=np.float64), m.variance)
            for m in self.measured
        ]
        present, variance = self.n - last_round.rows_in_no_cell, last_round.variance_in_no_cell
        return fit_minority(rounds, self.spike, present, variance, self.is_whole)

    @cached_property
    def miss_chance(self) -> float:
        """Probability that most of the minority lies beyond the bounds; 0 without a spike."""
        return self.minority.miss_chance(self.inside_shares) if self.has_spike else 0.0

    @cached_property
    def others_chance(self) -> float:
        """Probability that some of the minority lies beyond the bounds; 0 without a spike."""
        return float(self.minority.chances @ (self.minority.shapes @ self.inside_shares < 1)) if self.has_spike else 0.0

    @property
    def hides_minority(self) -> bool:
        """Whether the bounds miss the minority with a chance above the share of rows that may lie beyond them."""
        return self.miss_chance > MOST_OUTSIDE

    @property
    def wider_bounds(self) -> tuple[float, float] | None:
        """Bounds for the minority if the space probably misses it, or None."""
        low, high = self.minority.bounds if self.hides_minority else (0.0, 0.0)
        return (low, high) if -math.inf < low < high < math.inf else None

    @property
    def _relative_sum_noise(self) -> float:
        """Noise of a sum in widths of the bounds, as a part of the rows that are not null.

        It is about the noise of all rounds' counts together, because both get a similar budget.
        """
        rows = self.present if self.space.has_null else max(self.n, 1)
        return math.sqrt(1 / math.fsum(1 / m.variance for m in self.measured)) / rows

    @cached_property
    def mean_noise_sd(self) -> float:
        """Standard error of the mean from noise, in standard deviations of the column.

        The standard deviation follows from the cells with visible rows, evenly spread within a cell; next to a spike
        from the posterior of the minority.
        """
        ends, counts, (low, high) = self.ends, self.counts, self.bounds
        if self.has_spike:
            return self._relative_sum_noise / self.minority.spread(low, high)
        width = high / 2 - low / 2  # halved, as the difference may be beyond all floats
        if not width > 0:
            return 0.0
        clipped_ends = np.clip(ends, low, high) / 2 - low / 2
        starts, stops = clipped_ends[:-1] / width, clipped_ends[1:] / width
        if self.is_whole:
            stops = np.maximum(stops - 0.5 * (ends[1:] <= high) / width, starts)
        # Less a standard error: among many cells noise makes rows, and more of a standard deviation the further out.
        rows = np.maximum(counts * self.inside_shares - np.sqrt(np.diag(self.covariance)), 0.0)
        noise = self._relative_sum_noise
        if not rows.any():
            return math.inf
        rows, middles = rows / rows.sum(), (starts + stops) / 2
        between_variance = float(rows @ (middles - rows @ middles) ** 2)
        variance = between_variance + float(rows @ (stops - starts) ** 2) / 12
        return noise / math.sqrt(max(variance, 1e-300))


number_counts = lru_cache(maxsize=8)(NumberCounts)
"""Returns the counts of a column; eight are cached, as several tests of a column read them (limit of memory)."""


def bounds_of_counts(grid: Any, unit: str | None) -> tuple[float, float]:
    """Return a space's bounds in the unit of its counts: times as numbers since 1970."""
    if grid.holds_vectors:
        return 0.0, float(grid.bound)
    if unit is None:
        return float(grid.lower), float(grid.upper)
    times = np.asarray(grid.instants(grid.numbers(np.array([0, grid.size - 1]))))
    low, high = times.astype(f"{times.dtype.kind}8[us]").astype(np.int64)
    return float(low) / _MICROSECONDS[unit], float(high) / _MICROSECONDS[unit]


_MICROSECONDS = {"D": 86_400_000_000, "s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1e-3}
"""Microseconds, or parts of one, of the units of times (theory: units of time)."""
