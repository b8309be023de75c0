"""Noisy counts of a column of numbers, compared with the bounds of its space: rows outside, noise, and hidden rows.

Everything here is post-processing: it sees noisy counts and public facts, never the data.

*Rows outside.* If a share q of the rows lies beyond one bound, clipping changes the mean by at most √(q/(1 − q))
standard deviations (Cauchy and Schwarz): half a standard deviation for q = 1/5.

*Noise.* The noise of a sum grows with the width of the bounds. It is compared with the standard deviation that the
counts show.

*Minority.* If one value has most of the rows, the others are the minority. Bounds are chosen among hundreds, so that
some of many columns get bounds far too narrow, and measurements between these bounds cannot show it. So the minority
must show within the bounds: in a run of cells, in the sum of all cells, or by the likely sizes of its numbers
(`minority`). If the bounds are 0 and 1, all counts must fit these two values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.inference.cells import RunSums, fit_intervals, is_single_float
from dpframe.inference.inferred import Measured, null_count, word_count
from dpframe.inference.minority import Minority, fit_minority
from dpframe.inference.ranges import SHORT_RUN_WIDTHS, TINY_SIZE
from dpframe.observe.observation import Observation, Runs, update
from dpframe.observe.overlap import overlap_cells
from dpframe.observe.significance import DETECTION_SE, HINT_SE
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

MOST_OUTSIDE = 0.2
"""Share of the rows that may lie in ``other``, or beyond a bound (tuned; effect not measured)."""

_MOST_HIDDEN_OUTSIDE = 0.6
"""Upper limit on the share of the rows there, by the counts and two standard errors; estimates include this share in
their intervals (tuned; effect not measured)."""

_MAX_FAINT_NOISE_SD = 0.35
"""Standard error of a mean, in standard deviations of the column, up to which bounds for a minority that shows in no
cell are used: its standard deviation is less certain than others (tuned; effect not measured)."""

_SPIKE_SHARE, _DOMINANT_SHARE = 0.35, 0.6
"""Shares of the rows in one value: from which on the others must be seen by themselves, and from which on they are few
(tuned; effect not measured).

In one column, half of the rows were 0 and the others amounts: noise led to bounds of 0 and 2.4e-10.
"""

_WITHIN_CELL_SD = 0.15
"""Standard deviation of the rows within a cell, in widths of the cell: half of an even spread's (tuned; effect not
measured)."""

_RUN_FALSE_ALARM = 0.01
"""Chance that noise passes for rows in a run of cells (tuned; effect not measured)."""

YEARS = (1900, 2041)
"""Years that numbers may be: inference counts them by decades (tuned; effect not measured)."""

_BOUNDS_SE, _RARE_BOUNDS_SE, _RARE_SIZE = 3.75, 4.75, 2.0**16
"""Standard errors that rows within bounds must show, as bounds were chosen among hundreds; and a higher limit
for rare values: beyond a size, or floats in the cells of years (tuned; effect not measured).

In three releases of 340 real tables 19 columns with such bounds showed between the two, and six of them had no row
there; of 439 other columns two had none.
"""

_TAIL_WIDTHS, _TAIL_SE = (12, 16, 20), 2.75
"""Numbers of cells beyond a bound whose rows are summed, and the standard errors that such a sum must show (tuned;
effect not measured)."""

_SMALL_MINORITY_SHARE, _RARER_VALUE_SE = 0.08, 2.5
"""Share of the rows that a spike of whole numbers may leave unseen, as floats may have any size; and standard
errors by which the rarer of two values shows (tuned; effect not measured)."""

_TWO_VALUE_COUNTS, _TWO_VALUE_FLOAT_ODDS = (22.0, 2.0), 0.3
"""Odds that a column with bounds 0 and 1 has no other values, of whole numbers and of floats, as fifty real tables of
150 to 30,000 rows have them; of whole numbers as columns of either kind, to which the table's own are added (tuned;
effect not measured)."""

_MAX_OTHERS_CHANCE, MIN_REPORTED_CHANCE = 0.3, 0.1
"""The largest chance of other values of a found column, and the least chance that a message reports (tuned; effect not
measured).

In four simulated releases of 27 real tables, and three of 69, the rarer value does not show in 284 columns of tables
with more than 300 rows. Above the first lie ten of two values and 14 of others, as minutes at work next to many
zeros show in no cell; between .08 and this limit 44 and four. The chance is .083 if counts favour neither hypothesis.
So a message means evidence against two values. Of 24 columns above .08 in 58 later releases 11 are above .1, and both
columns with other values."""

_REMAINDER_SE, _REMAINDER_LOG_RATIO = {True: 2.5, False: 3.0}, {True: 5.0, False: 8.0}
"""Standard errors that the rows within bounds must show next to a spike without a significant run; and twice the log
likelihood ratio of the rows outside the spike against noise. For whole numbers (True) and for floats, whose sum is the
largest of several (tuned; effect not measured).

Among numbers that are 0 in 70 to 97 % of 1,400 to 4,700 rows a third of those that were lost is found; their means are
off by less than three errors. With less, amounts of hundreds have bounds of 0 and 2."""

_TINY_NUMBERS_SE = 5.0
"""Standard errors that rows of tiny numbers must show next to a spike (tuned; effect not measured)."""

_DEPTH_FACTORS = {True: (math.inf,), False: (4.0, 16.0)}
"""How many times smaller than a bound numbers are that are summed, at the most (tuned; effect not measured)."""


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
        """Whether more than a fifth of the rows seems to lie beyond the bounds, or beyond one of them away from 0."""
        share, error = self.share_outside
        if share - HINT_SE * error > MOST_OUTSIDE:
            return True
        counts, covariance, (low, high) = self.counts, self.covariance, self.bounds
        inside_cells = np.flatnonzero(self.inside_shares > 0)
        if not len(inside_cells):
            return False
        start_cell, stop_cell = int(inside_cells[0]), int(inside_cells[-1]) + 1
        sides = [slice(stop_cell, stop_cell + width) for width in _TAIL_WIDTHS if high > 0]
        sides += [slice(max(start_cell - width, 0), start_cell) for width in _TAIL_WIDTHS if low < 0]
        remainder, error = self._count_remainder(range(start_cell, stop_cell))
        for side in sides:
            rows, variance = float(counts[side].sum()), max(float(covariance[side, side].sum()), 1e-300)
            # The rows there have two estimates: the sum of the cells, and n less the rows within the bounds.
            likely_rows = _precision_mean((rows, variance), (remainder, error**2))
            if rows > _TAIL_SE * math.sqrt(variance) and likely_rows > MOST_OUTSIDE * self.present:
                return True
        return False

    @property
    def bounds_noise_factor(self) -> float:
        """How many times too large the noise is for the rows within the bounds to show."""
        share, error = self.share_outside
        (low, high), has_intervals = self.bounds, self.measured[-1].kind == "intervals"
        # Truth values were not chosen among hundreds of bounds.
        are_public = has_intervals and self.has_spike() and (low, high) == (0.0, 1.0)
        # Numbers seldom have such bounds: large numbers, or floats among years.
        are_years = not self.is_whole and low >= YEARS[0] and high < YEARS[1]
        is_rare = has_intervals and (are_years or max(abs(low), abs(high)) > _RARE_SIZE)
        is_rare = is_rare and self.measured[-1].unit is None
        required_se = 0.0 if are_public else _RARE_BOUNDS_SE if is_rare else _BOUNDS_SE
        return max(
            HINT_SE * error / max(_MOST_HIDDEN_OUTSIDE - share, 1e-9), required_se * error / max(1 - share, 1e-9)
        )

    @cached_property
    def spike(self) -> int:
        """The cell with most rows."""
        return int(np.argmax(self.counts))

    def has_spike(self, min_share: float = _SPIKE_SHARE) -> bool:
        """Return whether the spike contains a single value, with at least this share of the rows."""
        start, stop = self.ends[self.spike : self.spike + 2]
        is_one_whole_number = stop / 2 - start / 2 <= 0.5  # the difference of floats may be beyond them all
        has_one_value = is_one_whole_number if self.is_whole else is_single_float(start, stop) or start < 0 < stop
        return bool(has_one_value and self.counts[self.spike] > min_share * self.present)

    def _count_remainder(self, cells: Sequence[int]) -> tuple[float, float]:
        """Return the number of rows that are outside these cells and not null, and its standard error.

        The number follows from n and few counts: it is far more precise than the sum of all other cells.
        """
        last_round, places = self.measured[-1], np.array(cells)
        variance = self.covariance[np.ix_(places, places)].sum()
        variance += last_round.variance_in_no_cell
        remainder = self.n - last_round.rows_in_no_cell - self.counts[places].sum()
        return float(remainder), math.sqrt(max(variance, 0.0))

    @cached_property
    def _inside_cells(self) -> npt.NDArray[np.bool_]:
        """Whether each cell lies within the bounds, in part at least, and is not the spike."""
        is_inside = self.inside_shares > 0
        is_inside[self.spike] = False
        return is_inside

    @cached_property
    def _has_significant_run(self) -> bool:
        """Whether the minority within the bounds shows in a run of cells: its sum exceeds the largest sum of noise."""
        is_inside, size = self._inside_cells, len(self.counts)
        # Bonferroni's inequality: all runs that are tested share the false alarm.
        threshold_se = NormalDist().inv_cdf(
            1 - _RUN_FALSE_ALARM / (len(SHORT_RUN_WIDTHS) * max(int(is_inside.sum()), 1))
        )
        runs = RunSums(self.counts * is_inside, self.covariance * np.outer(is_inside, is_inside))
        return any(
            bool((runs.scores(starts, starts + width) > threshold_se).any())
            for width, starts in ((width, np.arange(size + 1 - width)) for width in SHORT_RUN_WIDTHS)
        )

    @cached_property
    def _has_significant_sum(self) -> bool:
        """Whether the sum of the cells within the bounds is probably the minority, and not noise.

        The sum is compared with n less the spike, and with zero plus noise.
        """
        is_inside, is_whole, magnitudes = self._inside_cells, self.is_whole, self._magnitudes
        max_magnitude = float(magnitudes[is_inside].max(initial=0.0))
        if max_magnitude <= (0.0 if is_whole else TINY_SIZE):
            return False
        remainder, error = self._count_remainder([self.spike])
        # A sum over fewer cells has less noise, but may miss rows of smaller numbers. Floats have more cells.
        for depth in _DEPTH_FACTORS[is_whole]:
            places = np.flatnonzero(is_inside & (magnitudes > max_magnitude / depth))
            rows, variance = float(self.counts[places].sum()), float(self.covariance[np.ix_(places, places)].sum())
            ratio = rows**2 / variance - (remainder - rows) ** 2 / (error**2 + variance)
            if rows > _REMAINDER_SE[is_whole] * math.sqrt(variance) and ratio > _REMAINDER_LOG_RATIO[is_whole]:
                return True
        return False

    @property
    def _magnitudes(self) -> FloatArray:
        """Largest absolute number of every cell."""
        return np.maximum(np.abs(self.ends[:-1]), np.abs(self.ends[1:]))

    @cached_property
    def _minority(self) -> Minority:
        """The fitted distribution of the minority."""
        return _fit_minority(self.measured, self.is_whole, self.n)

    @cached_property
    def bounds_probably_cover(self) -> bool:
        """Whether the bounds probably contain nearly all of the minority, at little noise."""
        if self.measured[-1].unit is not None or not self.has_spike():
            return False
        return self._minority.beyond(*self.bounds) <= MOST_OUTSIDE and self._faint_mean_noise_sd <= _MAX_FAINT_NOISE_SD

    @cached_property
    def minority_is_faint(self) -> bool:
        """Whether one value has most rows, and the minority shows in its sum but in no cell."""
        if not self.has_spike(_DOMINANT_SHARE) or self._has_significant_run:
            return False
        return self._has_significant_sum or self.bounds_probably_cover

    def hides_minority(self, odds: float) -> bool:
        """Return whether there may be a minority that no cell within the bounds shows; ``odds`` as for two values."""
        if self.bounds == (0.0, 1.0):
            return self._hides_third_value(odds)
        remainder, error = self._count_remainder([self.spike])
        may_be_noise = remainder < HINT_SE * error
        if self.is_whole and may_be_noise and remainder + HINT_SE * error < _SMALL_MINORITY_SHARE * self.present:
            return False
        return not (self._has_significant_cells or self._has_significant_sum or self.bounds_probably_cover)

    @property
    def _has_significant_cells(self) -> bool:
        """Whether the minority shows in cells within the bounds; cells of tiny numbers need stronger evidence."""
        is_inside = self._inside_cells
        if self._magnitudes[is_inside].max(initial=0.0) > TINY_SIZE:
            return self._has_significant_run
        error = math.sqrt(self.covariance[np.ix_(is_inside, is_inside)].sum())
        return bool(self.counts[is_inside].sum() > _TINY_NUMBERS_SE * error > 0)

    def _hides_third_value(self, odds: float) -> bool:
        """Return whether a column with bounds 0 and 1 may have other values."""
        rarer_cell = min(self._truth_cells, key=self.counts.__getitem__)
        is_visible = self.counts[rarer_cell] >= _RARER_VALUE_SE * math.sqrt(self.covariance[rarer_cell, rarer_cell])
        if not is_visible and self.chance_of_others(odds) > _MAX_OTHERS_CHANCE:
            return True
        remainder, error = self._count_remainder(sorted({self.spike, *self._truth_cells}))
        return remainder > HINT_SE * error and not self._has_significant_run

    @property
    def _truth_cells(self) -> list[int]:
        """The cells of 0 and 1."""
        return [int(np.searchsorted(self.ends, value, side="right")) - 1 for value in (0.0, 1.0)]

    def chance_of_others(self, odds: float) -> float:
        """Return the probability that a column with bounds 0 and 1 has other values, if the rarer value is hidden.

        The number of rows outside the commoner value follows from n and the count of the commoner value. In a column of
        two values, these rows have the rarer value; in other columns, the rarer value may be absent. The two counts are
        compared by their likelihood under both hypotheses. ``odds`` are prior odds for whole numbers
        (`odds_of_two_values`); floats with a spike at 0 are more often amounts than codes of two categories.
        """
        rarer_cell, commoner_cell = sorted(self._truth_cells, key=self.counts.__getitem__)
        rarer_rows = float(self.counts[rarer_cell])
        variance = max(float(self.covariance[rarer_cell, rarer_cell]), 1e-300)
        remainder, error = self._count_remainder([commoner_cell])
        remainder_variance = max(error**2, 1e-300)
        likely_rows = max(_precision_mean((rarer_rows, variance), (remainder, remainder_variance)), 0.0)
        rarer_distance, remainder_distance = rarer_rows - likely_rows, remainder - likely_rows
        two_value_distance = rarer_distance**2 / variance + remainder_distance**2 / remainder_variance
        other_distance = rarer_rows**2 / variance + min(remainder, 0.0) ** 2 / remainder_variance
        prior_odds = odds if self.is_whole else _TWO_VALUE_FLOAT_ODDS
        # e^50 is as good as certain; the cut-off prevents overflow.
        return 1 / (1 + prior_odds * math.exp(min((other_distance - two_value_distance) / 2, 50.0)))

    @property
    def wider_bounds(self) -> tuple[float, float] | None:
        """Bounds for the minority if the space probably misses it, or None."""
        if self.measured[-1].unit is not None or not self.has_spike():
            return None
        is_visible = not (self.hides_minority(odds_of_two_values((), self.n)) or self.minority_is_faint)
        if is_visible or self.bounds_probably_cover:
            return None
        low, high = self._minority.bounds
        return (low, high) if -math.inf < low < high < math.inf else None

    @property
    def _relative_sum_noise(self) -> float:
        """Noise of a sum in widths of the bounds, as a part of the rows that are not null.

        It is about the noise of all rounds' counts together, because both get a similar budget.
        """
        rows = self.present if self.space.has_null else max(self.n, 1)
        return math.sqrt(1 / math.fsum(1 / m.variance for m in self.measured)) / rows

    @property
    def _faint_mean_noise_sd(self) -> float:
        """Standard error of the mean from noise, in probable standard deviations of the column."""
        return self._relative_sum_noise / self._minority.spread(*self.bounds)

    @cached_property
    def mean_noise_sd(self) -> float:
        """Standard error of the mean from noise, in standard deviations of the column.

        The standard deviation follows from the cells with visible rows; within a cell it is half of an even spread's.
        """
        ends, counts, (low, high) = self.ends, self.counts, self.bounds
        if self.minority_is_faint and self.bounds_probably_cover:
            return self._faint_mean_noise_sd
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
        variance = between_variance + float(rows @ (_WITHIN_CELL_SD * (stops - starts)) ** 2)
        # If one value has all visible rows, noise may hide as many rows as its standard deviation.
        return noise / math.sqrt(max(variance, noise if self.has_spike() else 0.0, 1e-300))


number_counts = lru_cache(maxsize=8)(NumberCounts)
"""Returns the counts of a column; eight are cached, as several tests of a column read them (limit of memory)."""


@lru_cache(maxsize=8)
def _fit_minority(measured: tuple[Measured, ...], is_whole: bool, n: int) -> Minority:
    """Return the fitted distribution of the rows outside the fullest cell."""
    ends = np.array([-math.inf, *measured[-1].cells, math.inf], dtype=np.float64)
    counts, covariance = fit_intervals(measured)
    if not is_whole:  # the outermost cells of floats hold the infinities
        ends, counts, covariance = ends[1:-1], counts[1:-1], covariance[1:-1, 1:-1]
    last_round = measured[-1]
    present, variance = n - last_round.rows_in_no_cell, last_round.variance_in_no_cell
    return fit_minority(ends, counts, covariance, present, variance, is_whole)


def _precision_mean(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Return the mean of two estimates, each with its variance, weighted by their precisions."""
    (a, a_variance), (b, b_variance) = first, second
    # Products with the other variance stay finite if one variance is 0.
    return (a * b_variance + b * a_variance) / (a_variance + b_variance)


@lru_cache(maxsize=64)
def odds_of_two_values(measured: tuple[Measured, ...], n: int) -> float:
    """Return the odds that whole numbers between 0 and 1 have no other values, by all columns of ``n`` rows.

    Tables with many columns of two values code their categories by 0 and 1. In other tables a spike at 0 is usually a
    count of rare events.
    """
    two_value_count, other_count = _TWO_VALUE_COUNTS
    for histogram in {m.column: m for m in measured if m.kind == "intervals" and m.unit is None}.values():
        if not {0, 1, 2} <= set(histogram.cells) or not isinstance(histogram.cells[0], int):
            continue
        place, error = histogram.cells.index(1), math.sqrt(histogram.variance)
        rarer_count, commoner_count = sorted(histogram.counts[place : place + 2])
        present = n - max(histogram.rows_in_no_cell, 0)
        remainder = present - rarer_count - commoner_count
        remainder_error = math.sqrt(2 * histogram.variance + histogram.variance_in_no_cell)
        two_value_count += rarer_count > DETECTION_SE * error and remainder < HINT_SE * remainder_error
        other_count += commoner_count > _DOMINANT_SHARE * present and remainder > DETECTION_SE * remainder_error
    return two_value_count / other_count


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
