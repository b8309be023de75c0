"""Columns whose spaces private inference did not find: a forecast of the errors of means, from only noisy counts.

A plan has the counts that inference measured, the noise's variance and the number of rows. The forecast is
post-processing, and costs no budget. A column is *found* if its mean will err by less than its standard deviation.

*Beyond the bounds.* If a share q of the rows lies beyond one bound, clipping changes the mean by at most √(q/(1 − q))
standard deviations (Cauchy and Schwarz): half a standard deviation for q = 1/5. The counts estimate q with a standard
error. A column is lost if q exceeds 1/5 by two standard errors, or may exceed 3/5.

*Noise.* The noise of a sum grows with the width of the bounds, and with the root of the number of measured columns.
The noise is compared with the standard deviation that the counts show. Columns with most noise are left out, until
the noise of all other columns is small.

*Chance.* Bounds are chosen among hundreds, so that some of many columns get bounds far too narrow. Measurements between
these bounds cannot show it. So sums of cells reveal rows that are spread out further from 0, although each cell is
below its noise. If one value has most of the rows, the others must show within the bounds, or all counts must fit
the two values 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.inference.inferred import Asked, AskedOf, Inferred, Measured, fit_intervals, null_count
from dpframe.inference.kinds import unread_kind
from dpframe.inference.spikes import POINT, Others, others_of
from dpframe.observe.overlap import overlap_cells
from dpframe.observe.significance import DETECTION_SE, HINT_SE
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

MOST_OUTSIDE = 0.2
"""Share of the rows that may lie in ``other``, or beyond a bound (tuned; effect not measured)."""

MOST_UNSEEN = 0.6
"""Upper limit on the share of the rows there, by the counts and two standard errors; estimates include this share in
their intervals (tuned; effect not measured)."""

MOST_NOISE, _MAX_FAINT_NOISE_SD = 0.5, 0.35
"""Standard error of a mean, by the noise of its sum, in standard deviations of the column; and a smaller limit
for rows that show in no cell, as their standard deviation is less certain (tuned; effect not measured)."""

_SPIKE_SHARE, _DOMINANT_SHARE = 0.35, 0.6
"""Shares of the rows in one value: from which on the others must be seen by themselves, and from which on they are few
(tuned; effect not measured).

In one column, half of the rows were 0 and the others amounts: noise led to bounds of 0 and 2.4e-10.
"""

_WITHIN_CELL_SD = 0.15
"""Standard deviation of the rows within a cell, in widths of the cell: half of an even spread's (tuned; effect not
measured)."""

_RUN_WIDTHS, _RUN_FALSE_ALARM = (1, 2, 3, 4, 6, 8), 0.01
"""Numbers of neighbouring cells that are looked at together, and the chance that noise passes for rows (tuned;
effect not measured)."""

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

_SMALL_REMAINDER_SHARE, _RARER_VALUE_SE = 0.08, 2.5
"""Share of the rows that a spike of whole numbers may leave unseen, as floats may have any size; and standard
errors by which the rarer of two values shows (tuned; effect not measured)."""

_TWO_VALUE_COUNTS, _TWO_VALUE_FLOAT_ODDS = (22.0, 2.0), 0.3
"""Odds that a column with bounds 0 and 1 has no other values, of whole numbers and of floats, as fifty real tables of
150 to 30,000 rows have them; of whole numbers as columns of either kind, to which the table's own are added (tuned;
effect not measured)."""

_MAX_OTHERS_CHANCE, UNLIKELY = 0.3, 0.1
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
"""Standard errors that rows of numbers as small as that must show next to a spike (tuned; effect not measured)."""

_DEPTH_FACTORS, _MIN_FLOAT_BOUND = {True: (math.inf,), False: (4.0, 16.0)}, 2.0**-8
"""How many times smaller than a bound numbers are that are summed, at the most; and the least bound of floats (tuned;
effect not measured)."""


@dataclass(frozen=True)
class NotFound:
    """A column whose space private inference did not find.

    ``why`` states the reason, and ``placeholder`` is the form of a declaration, with no value of the data. ``times`` is
    the factor on ε with which inference probably finds the column, four times in five. It is None if a larger factor is
    needed, or if the counts do not show one. ``unread`` says that values of some kind are read as null, so that the
    column's nulls are unknown, too.
    """

    column: str
    why: str
    placeholder: str
    times: float | None = None
    unread: bool = False


def judge(inferred: Inferred, spaces: Mapping[str, Space], n: int) -> tuple[NotFound, ...]:
    """Return the columns of ``n`` rows whose spaces inference did not find, in their order."""
    failures: dict[str, _Missing] = {}
    noises: dict[str, float] = {}
    odds, asked_histograms = odds_of_two_values(inferred.measured, n), dict(inferred.asked or ())
    for name, space in spaces.items():
        column_histograms = [histogram for histogram in inferred.measured if histogram.column == name]
        usable_histograms = [
            histogram
            for histogram in column_histograms
            if histogram.kind != "steps" and _is_countable(histogram, space)
        ]
        if not usable_histograms or n <= 0 or name not in inferred.columns:
            continue
        final_histograms = tuple(
            histogram for histogram in usable_histograms if histogram.kind == usable_histograms[-1].kind
        )
        rule = _RULES.get(final_histograms[-1].kind)
        failure = _find_unread_kind(column_histograms, asked_histograms.get(name, ()))
        if failure is None and rule is not None:
            failure = rule(final_histograms, space, n, odds)
        if failure is not None:
            failures[name] = failure
        elif final_histograms[-1].kind == "intervals":
            noises[name] = noise_of_mean(final_histograms, space, n)
    failures |= _find_noisy_means(noises, len(spaces) - len(failures), len(inferred.columns))
    why = ((name, space.inner_space.tag, failures[name]) for name, space in spaces.items() if name in failures)
    return tuple(
        NotFound(name, m.why, m.placeholder or _DECLARATIONS.get(tag, "SPACE"), m.times, m.unread)
        for name, tag, m in why
    )


def hinted_nulls(inferred: Inferred, spaces: Mapping[str, Space]) -> tuple[str, ...]:
    """Return the columns without nulls in their spaces whose counts hint at nulls, too few to show beyond the noise.

    >>> from dpframe import Budget, Integer
    >>> counts = Measured("a", "nulls", (), (), 100.0, 25), Measured("b", "nulls", (), (), 100.0, 15)
    >>> hinted_nulls(Inferred(Budget(1.0, 0.0), ("a", "b"), counts), {"a": Integer(0, 9), "b": Integer(0, 9)})
    ('a',)
    """
    counts = {name: null_count(m for m in inferred.measured if m.column == name) for name in inferred.columns}
    return tuple(
        name
        for name, space in spaces.items()
        if not space.has_null and (nulls := counts.get(name)) and nulls[0] > HINT_SE * math.sqrt(nulls[1])
    )


def shares_made_null(inferred: Inferred, spaces: Mapping[str, Space], n: int) -> dict[str, float]:
    """Return by column the share of ``n`` rows that are null because inference did not find their values.

    Columns whose share is below its noise are left out.

    >>> from dpframe import Budget, Categorical, Nullable
    >>> counts = Measured("a", "values", ("1", "2"), (500, 300), 100.0, 0)
    >>> shares_made_null(Inferred(Budget(1.0, 0.0), ("a",), (counts,)), {"a": Nullable(Categorical(["1", "2"]))}, 1_000)
    {'a': 0.2}
    """
    null_shares = {}
    for histogram in inferred.measured:
        space: Any = spaces.get(histogram.column)
        if histogram.kind == "values" and n and space is not None and space.has_null:
            hidden_rows = n - sum(histogram.counts) - max(histogram.missing or 0, 0)
            error = math.sqrt((len(histogram.counts) + 1) * histogram.variance)
            if getattr(space.inner_space, "other", None) is None and hidden_rows > HINT_SE * error:
                null_shares[histogram.column] = hidden_rows / n
    return null_shares


def _find_unread_kind(histograms: Sequence[Measured], specs: Sequence[Asked]) -> _Missing | None:
    """Return the failure of a column whose counts show a further kind of values, or None."""
    ways = {spec.way for spec in specs if spec.way is not None}
    if not ways or histograms[0].kind != "kinds":
        return None
    kinds = dict(zip(histograms[0].cells, histograms[0].counts, strict=True))
    unread = unread_kind(kinds, histograms[0].variance, null_count(histograms), ways)
    if unread is None:
        return None
    why = f"its values of another kind ({unread}) would become null; make all of them text, or these null"
    return _Missing(why, placeholder=_DECLARATIONS["categorical"], unread=True)


def _find_noisy_means(noises: Mapping[str, float], found_columns: int, inferred_columns: int) -> dict[str, _Missing]:
    """Return the columns whose means are mostly noise, after the columns with most noise are left out.

    ``noises`` are forecasts for as many measured columns as were inferred. Sums share the cost of tables, so that noise
    grows with the root of the number of measured columns.
    """
    order = sorted(noises, key=noises.__getitem__)
    usable_count = len(order)
    # Fewer measured columns share the budget, so that each has less noise.
    while (
        usable_count
        and _noise_ratio(noises[order[usable_count - 1]], found_columns - len(order) + usable_count, inferred_columns)
        > 1
    ):
        usable_count -= 1
    ratios = (
        (name, _noise_ratio(noises[name], found_columns - len(order) + usable_count + 1, inferred_columns))
        for name in order[usable_count:]
    )
    why = "its mean would have more noise than half of its standard deviation"
    return {name: _Missing(why, _epsilon_factor_hint(ratio)) for name, ratio in ratios}


def _noise_ratio(noise: float, measured_columns: int, inferred_columns: int) -> float:
    """Return a forecast of the noise of a mean, in parts of the noise limit, for this many measured columns."""
    return noise * math.sqrt(measured_columns / max(inferred_columns, 1)) / MOST_NOISE


def _is_countable(histogram: Measured, space: Space) -> bool:
    """Return whether counts of this kind can belong to a space; an edited plan may have another space."""
    inner_space = space.inner_space
    if histogram.kind == "norms":
        return inner_space.holds_vectors
    is_interval_space = (inner_space.is_numeric or inner_space.is_time) and not inner_space.is_listed
    return histogram.kind != "intervals" or (is_interval_space and inner_space.is_time == (histogram.unit is not None))


@dataclass(frozen=True)
class _Missing:
    """A reason why a column was not found, and its remedies."""

    why: str
    times: float | None = None
    placeholder: str | None = None
    unread: bool = False


# Every view of a release reads its plan anew, and checks the bounds again.
@lru_cache(maxsize=1024)
def _check_bounds(histograms: tuple[Measured, ...], space: Space, n: int, odds: float) -> _Missing | None:
    """Return the reason why the bounds of a column are not reliable, or None."""
    share, error = share_outside(histograms, space, n)
    if share - HINT_SE * error > MOST_OUTSIDE or _has_long_tail(histograms, space, n):
        return _Missing("more than a fifth of the rows lies beyond its bounds", _EPSILON_FACTORS[1])
    has_spike = histograms[-1].kind == "intervals" and _has_spike(histograms, space, n)
    if has_spike and _has_hidden_others(histograms, space, n, odds):
        why = "one value has most of the rows, and where the others lie is hidden by the noise"
        return _Missing(why, _EPSILON_FACTORS[1])
    # Truth values were not chosen among hundreds of bounds.
    bounds = bounds_of_counts(space.inner_space, histograms[-1].unit)
    bounds_se = _RARE_BOUNDS_SE if _has_rare_bounds(histograms[-1], space, bounds) else _BOUNDS_SE
    required_se = 0.0 if has_spike and bounds == [0.0, 1.0] else bounds_se
    noise_factor = max(HINT_SE * error / max(MOST_UNSEEN - share, 1e-9), required_se * error / max(1 - share, 1e-9))
    if noise_factor > 1:
        return _Missing("its bounds rest on counts within their noise", _epsilon_factor_hint(noise_factor))
    return None


def _has_rare_bounds(histogram: Measured, space: Space, bounds: Sequence[float]) -> bool:
    """Return whether numbers seldom have these bounds: large numbers, or floats among years."""
    low, high = bounds
    if histogram.kind != "intervals" or histogram.unit is not None:
        return False
    are_years = not _is_whole([histogram], space) and low >= YEARS[0] and high < YEARS[1]
    return are_years or max(abs(low), abs(high)) > _RARE_SIZE


_EPSILON_FACTORS = (1.5, 2.0, 3.0)
"""Factors of ε by which a column is said to be about to be found (limit of a message)."""


def _epsilon_factor_hint(noise_factor: float) -> float | None:
    """Return the factor on ε that probably finds a column whose errors are ``noise_factor`` times too large.

    Errors fall with 1/ε. The factor is larger by half, as the next noise differs from the noise here.
    """
    return next((factor for factor in _EPSILON_FACTORS if 1.5 * noise_factor <= factor), None)


def _fit_cells(histograms: tuple[Measured, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the ends of the finest cells, the fitted counts and the covariance of the counts."""
    return np.array([-math.inf, *histograms[-1].cells, math.inf], dtype=np.float64), *fit_intervals(histograms)


def _is_whole(histograms: Sequence[Measured], space: Space) -> bool:
    """Return whether the values are whole numbers or times."""
    return bool(space.inner_space.is_whole or histograms[-1].unit is not None)


def _has_spike(histograms: tuple[Measured, ...], space: Space, n: int, min_share: float = _SPIKE_SHARE) -> bool:
    """Return whether a single value has at least this share of the rows that are not null."""
    ends, counts, _ = _fit_cells(histograms)
    spike = int(np.argmax(counts))
    start, stop = ends[spike], ends[spike + 1]
    half_width = stop / 2 - start / 2  # the difference of floats may be beyond them all
    is_single_value = (
        half_width <= 0.5 if _is_whole(histograms, space) else half_width < POINT / 2 * abs(start) or start < 0 < stop
    )
    return bool(is_single_value and counts[spike] > min_share * max(n - max(histograms[-1].missing or 0, 0), 1))


def _has_hidden_others(histograms: tuple[Measured, ...], space: Space, n: int, odds: float) -> bool:
    """Return whether rows may lie outside the fullest cell while no cell within the bounds shows them.

    The number of these rows follows from n and the count of the fullest cell. This difference is far more precise than
    the sum of the other cells. Truth values have one public cell for them.
    """
    ends, counts, covariance = _fit_cells(histograms)
    spike, unit = int(np.argmax(counts)), histograms[-1].unit
    is_inside = _shares_inside(ends, space, unit) > 0
    is_inside[spike] = False
    remainder, error = _count_remainder(histograms, n, [spike])
    is_small_remainder = remainder + HINT_SE * error < _SMALL_REMAINDER_SHARE * (
        n - max(histograms[-1].missing or 0, 0)
    ) and _is_whole(histograms, space)
    if bounds_of_counts(space.inner_space, unit) != [0.0, 1.0]:
        is_visible = (
            _has_significant_rows(counts, covariance, is_inside, ends)
            or _has_likely_remainder(histograms, space, n)
            or are_placed(histograms, space, n)
        )
        return not (is_small_remainder and remainder < HINT_SE * error) and not is_visible
    truth_cells = _find_truth_cells(ends)
    rarer_cell = min(truth_cells, key=counts.__getitem__)
    is_visible = counts[rarer_cell] >= _RARER_VALUE_SE * math.sqrt(covariance[rarer_cell, rarer_cell])
    if not is_visible and chance_of_others(histograms, space, n, odds) > _MAX_OTHERS_CHANCE:
        return True
    remainder, error = _count_remainder(histograms, n, sorted({spike, *truth_cells}))
    return remainder > HINT_SE * error and not _has_significant_run(counts, covariance, is_inside)


def _has_significant_rows(
    counts: FloatArray, covariance: FloatArray, is_inside: npt.NDArray[np.bool_], ends: FloatArray
) -> bool:
    """Return whether these cells have significant counts; cells of tiny numbers need stronger evidence."""
    cell_ends = np.concatenate([ends[:-1][is_inside], ends[1:][is_inside]])
    if np.abs(cell_ends).max(initial=0.0) > _MIN_FLOAT_BOUND:
        return _has_significant_run(counts, covariance, is_inside)
    return bool(
        counts[is_inside].sum() > _TINY_NUMBERS_SE * math.sqrt(covariance[np.ix_(is_inside, is_inside)].sum()) > 0
    )


def _has_likely_remainder(histograms: tuple[Measured, ...], space: Space, n: int) -> bool:
    """Return whether the rows within the bounds are probably the rows outside the fullest cell.

    The sum within the bounds is compared with n less the count of the fullest cell, and with zero plus noise. Floats
    have twice as many cells at each size, so that only cells near the bounds are summed.
    """
    ends, counts, covariance = _fit_cells(histograms)
    is_inside = _shares_inside(ends, space, histograms[-1].unit) > 0
    spike = int(np.argmax(counts))
    is_inside[spike] = False
    magnitudes = np.maximum(np.abs(ends[:-1]), np.abs(ends[1:]))
    max_magnitude, (remainder, error) = (
        float(magnitudes[is_inside].max(initial=0.0)),
        _count_remainder(histograms, n, [spike]),
    )
    is_whole = _is_whole(histograms, space)
    if max_magnitude <= (0.0 if is_whole else _MIN_FLOAT_BOUND):
        return False
    # A sum over fewer cells has less noise, but may miss rows of smaller numbers.
    for depth in _DEPTH_FACTORS[is_whole]:
        places = np.flatnonzero(is_inside & (magnitudes > max_magnitude / depth))
        rows, variance = float(counts[places].sum()), float(covariance[np.ix_(places, places)].sum())
        ratio = rows**2 / variance - (remainder - rows) ** 2 / (error**2 + variance)
        if rows > _REMAINDER_SE[is_whole] * math.sqrt(variance) and ratio > _REMAINDER_LOG_RATIO[is_whole]:
            return True
    return False


@lru_cache(maxsize=8)
def _fit_others(histograms: tuple[Measured, ...], is_whole: bool, n: int) -> Others:
    """Return the fitted distribution of the rows outside the fullest cell."""
    ends, counts, covariance = _fit_cells(histograms)
    if not is_whole:  # the outermost cells of floats hold the infinities
        finite_cells = slice(1, -1)
        ends, counts, covariance = ends[finite_cells], counts[finite_cells], covariance[finite_cells, finite_cells]
    missing = histograms[-1].missing
    missing_variance = 0.0 if missing is None else histograms[-1].variance
    return others_of(ends, counts, covariance, n - (missing or 0), missing_variance, is_whole)


def bounds_of_others(measured: tuple[Measured, ...], space: Space, n: int) -> tuple[float, float] | None:
    """Return bounds for the rows outside the fullest cell if a space probably misses them, or None."""
    if measured[-1].unit is not None or not _has_spike(measured, space, n):
        return None
    two_value_count, other_count = _TWO_VALUE_COUNTS
    are_visible = not (
        _has_hidden_others(measured, space, n, two_value_count / other_count) or are_faint(measured, space, n)
    )
    if are_visible or are_placed(measured, space, n):
        return None
    low, high = _fit_others(measured, _is_whole(measured, space), n).bounds
    return (low, high) if -math.inf < low < high < math.inf else None


@lru_cache(maxsize=1024)
def are_placed(measured: tuple[Measured, ...], space: Space, n: int) -> bool:
    """Return whether bounds probably contain nearly all rows outside the fullest cell, at little noise."""
    if measured[-1].unit is not None or not _has_spike(measured, space, n):
        return False
    others_fit = _fit_others(measured, _is_whole(measured, space), n)
    return others_fit.beyond(*bounds_of_counts(space.inner_space, None)) <= MOST_OUTSIDE and (
        _faint_mean_noise(measured, space, n) <= _MAX_FAINT_NOISE_SD
    )


def _faint_mean_noise(histograms: tuple[Measured, ...], space: Space, n: int) -> float:
    """Return the standard error of the mean from noise, in probable standard deviations of the column."""
    low, high = bounds_of_counts(space.inner_space, None)
    return _relative_sum_noise(histograms, space, n) / _fit_others(histograms, _is_whole(histograms, space), n).spread(
        low, high
    )


def _relative_sum_noise(histograms: tuple[Measured, ...], space: Space, n: int) -> float:
    """Return the noise of a sum in widths of the bounds, as a part of the rows that are not null."""
    nulls = max(histograms[-1].missing or 0, 0) if space.has_null else 0
    return math.sqrt(1 / math.fsum(1 / m.variance for m in histograms)) / max(n - nulls, 1)


@lru_cache(maxsize=1024)
def are_faint(measured: tuple[Measured, ...], space: Space, n: int) -> bool:
    """Return whether one value has most rows, and the others show in their sum but in no cell."""
    ends, counts, covariance = _fit_cells(measured)
    is_inside = _shares_inside(ends, space, measured[-1].unit) > 0
    is_inside[int(np.argmax(counts))] = False
    if not _has_spike(measured, space, n, _DOMINANT_SHARE) or _has_significant_run(counts, covariance, is_inside):
        return False
    return _has_likely_remainder(measured, space, n) or are_placed(measured, space, n)


def _find_truth_cells(ends: FloatArray) -> list[int]:
    """Return the cells of 0 and 1."""
    return [int(np.searchsorted(ends, value, side="right")) - 1 for value in (0.0, 1.0)]


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
        place = histogram.cells.index(1)
        rarer_count, commoner_count = sorted(histogram.counts[place : place + 2])
        present, error = n - max(histogram.missing or 0, 0), math.sqrt(histogram.variance)
        remainder, remainder_error = (
            present - rarer_count - commoner_count,
            error * math.sqrt(2 + (histogram.missing is not None)),
        )
        two_value_count += rarer_count > DETECTION_SE * error and remainder < HINT_SE * remainder_error
        other_count += commoner_count > _DOMINANT_SHARE * present and remainder > DETECTION_SE * remainder_error
    return two_value_count / other_count


@lru_cache(maxsize=1024)
def chance_of_others(
    measured: tuple[Measured, ...], space: Space, n: int, odds: float = _TWO_VALUE_COUNTS[0] / _TWO_VALUE_COUNTS[1]
) -> float:
    """Return the probability that a column with bounds 0 and 1 has other values, if the rarer value is hidden.

    The number of rows outside the commoner value follows from n and the count of the commoner value. In a column of two
    values, these rows have the rarer value; in other columns, the rarer value may be absent. The two counts are
    compared by their likelihood under both hypotheses. ``odds`` are prior odds for whole numbers; floats with a spike
    at 0 are more often amounts.
    """
    ends, counts, covariance = _fit_cells(measured)
    truth_cells = _find_truth_cells(ends)
    rarer_cell, spike = sorted(truth_cells, key=counts.__getitem__)
    rarer_count, variance = float(counts[rarer_cell]), max(float(covariance[rarer_cell, rarer_cell]), 1e-300)
    remainder, error = _count_remainder(measured, n, [spike])
    remainder_variance = max(error**2, 1e-300)
    expected_count = max(
        (rarer_count * remainder_variance + remainder * variance) / (variance + remainder_variance), 0.0
    )
    two_value_distance = (rarer_count - expected_count) ** 2 / variance + (
        remainder - expected_count
    ) ** 2 / remainder_variance
    other_distance = rarer_count**2 / variance + min(remainder, 0.0) ** 2 / remainder_variance
    # Floats are more often amounts than codes of two categories.
    prior_odds = odds if _is_whole(measured, space) else _TWO_VALUE_FLOAT_ODDS
    return 1 / (1 + prior_odds * math.exp(min((other_distance - two_value_distance) / 2, 50.0)))


def _count_remainder(histograms: tuple[Measured, ...], n: int, cells: Sequence[int]) -> tuple[float, float]:
    """Return the number of rows that are outside these cells and not null, and its standard error."""
    _, counts, covariance = _fit_cells(histograms)
    missing, cell_indices = histograms[-1].missing, np.array(cells)
    variance = covariance[np.ix_(cell_indices, cell_indices)].sum() + (
        histograms[-1].variance if missing is not None else 0.0
    )
    return float(n - (missing or 0) - counts[cell_indices].sum()), math.sqrt(max(variance, 0.0))


def _has_long_tail(histograms: tuple[Measured, ...], space: Space, n: int) -> bool:
    """Return whether more than a fifth of the rows seems to be spread out beyond a bound, away from 0.

    The number of rows beyond a bound has two estimates: the sum of the cells there, and n less the rows within the
    bounds. The function uses their mean, weighted by precision.
    """
    ends, counts, covariance = _fit_cells(histograms)
    inside_cells = np.flatnonzero(_shares_inside(ends, space, histograms[-1].unit) > 0)
    if not len(inside_cells):
        return False
    low, high = bounds_of_counts(space.inner_space, histograms[-1].unit)
    start_cell, stop_cell = int(inside_cells[0]), int(inside_cells[-1]) + 1
    sides = [slice(stop_cell, stop_cell + width) for width in _TAIL_WIDTHS if high > 0]
    sides += [slice(max(start_cell - width, 0), start_cell) for width in _TAIL_WIDTHS if low < 0]
    remainder, remainder_error = _count_remainder(histograms, n, range(start_cell, stop_cell))
    for side in sides:
        rows, variance = float(counts[side].sum()), max(float(covariance[side, side].sum()), 1e-300)
        expected_count = (remainder * variance + rows * remainder_error**2) / (variance + remainder_error**2)
        present = max(n - max(histograms[-1].missing or 0, 0), 1)
        if rows > _TAIL_SE * math.sqrt(variance) and expected_count > MOST_OUTSIDE * present:
            return True
    return False


@lru_cache(maxsize=1024)
def noise_of_mean(measured: tuple[Measured, ...], space: Space, n: int) -> float:
    """Return the standard error of a column's mean from noise, in standard deviations of the column.

    The noise of a sum, in widths of the bounds, is about the noise of all rounds' counts together, because both get a
    similar budget. The standard deviation follows from the cells with visible rows; within a cell it is half of an even
    spread's.
    """
    ends, counts, covariance = _fit_cells(measured)
    low, high = bounds_of_counts(space.inner_space, measured[-1].unit)
    if are_faint(measured, space, n) and are_placed(measured, space, n):
        return _faint_mean_noise(measured, space, n)
    width = high / 2 - low / 2  # halved, as the difference may be beyond all floats
    if not width > 0:
        return 0.0
    clipped_ends = np.clip(ends, low, high) / 2 - low / 2
    starts, stops = clipped_ends[:-1] / width, clipped_ends[1:] / width
    if _is_whole(measured, space):
        stops = np.maximum(stops - 0.5 * (ends[1:] <= high) / width, starts)
    rows = counts * _shares_inside(ends, space, measured[-1].unit)
    # Less a standard error: among many cells noise makes rows, and the more of a standard deviation the further out.
    rows = np.maximum(rows - np.sqrt(np.diag(covariance)), 0.0)
    noise = _relative_sum_noise(measured, space, n)
    if not rows.any():
        return math.inf
    rows, middles = rows / rows.sum(), (starts + stops) / 2
    between_variance = float(rows @ (middles - rows @ middles) ** 2)
    variance = between_variance + float(rows @ (_WITHIN_CELL_SD * (stops - starts)) ** 2)
    # If one value has all visible rows, noise may hide as many rows as its standard deviation.
    return noise / math.sqrt(max(variance, noise if _has_spike(measured, space, n) else 0.0, 1e-300))


def _has_significant_run(counts: FloatArray, covariance: FloatArray, is_inside: npt.NDArray[np.bool_]) -> bool:
    """Return whether the sum of some run of these cells exceeds the largest sum that noise makes."""
    threshold_se = NormalDist().inv_cdf(1 - _RUN_FALSE_ALARM / (len(_RUN_WIDTHS) * max(int(is_inside.sum()), 1)))
    cumulative_counts = np.concatenate([[0.0], np.cumsum(counts * is_inside)])
    cumulative_covariance = np.pad((covariance * np.outer(is_inside, is_inside)).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    # The variance of a run's sum is a difference of four cumulative covariances.
    for width in (width for width in _RUN_WIDTHS if width <= len(counts)):
        start = np.arange(len(counts) + 1 - width)
        stop = start + width
        variance = (
            cumulative_covariance[stop, stop]
            - 2 * cumulative_covariance[start, stop]
            + cumulative_covariance[start, start]
        )
        if (
            cumulative_counts[stop] - cumulative_counts[start] > threshold_se * np.sqrt(np.maximum(variance, 1e-300))
        ).any():
            return True
    return False


def share_outside(measured: Sequence[Measured], space: Space, n: int) -> tuple[float, float]:
    """Return the estimated share of the rows present beyond a space's bounds, at least 0, and its standard error.

    Nulls count as outside if the space has no nulls. All cells of a round and the nulls add up to n rows. The function
    conditions counts x with covariance C on this sum: x + C1·(n − 1ᵀx)/(1ᵀC1), with covariance C − C11ᵀC/(1ᵀC1).
    """
    ends, counts, covariance = _fit_cells(tuple(measured))
    outside_shares = 1 - _shares_inside(ends, space, measured[-1].unit)
    nulls = null_count(measured)
    if nulls is not None:
        counts, covariance = np.append(counts, nulls[0]), np.pad(covariance, (0, 1))
        covariance[-1, -1] = nulls[1]
        outside_shares = np.append(outside_shares, float(not space.has_null))
    row_sums = covariance.sum(axis=1)
    counts = counts + row_sums * (n - counts.sum()) / row_sums.sum()
    covariance = covariance - np.outer(row_sums, row_sums) / row_sums.sum()
    variance = max(float(outside_shares @ covariance @ outside_shares), 0.0)
    # Among the rows that are not null, at least one.
    present = max(n - float(counts[-1]) if nulls is not None and space.has_null else n, 1.0)
    return max(float(outside_shares @ counts), 0.0) / present, math.sqrt(variance) / present


def _shares_inside(ends: FloatArray, space: Space, unit: str | None) -> FloatArray:
    """Return the part of every cell between a space's bounds, if rows are spread evenly within cells."""
    grid = space.inner_space
    low, high = bounds_of_counts(grid, unit)
    is_whole = grid.is_whole or unit is not None
    parts: FloatArray = overlap_cells(ends, [low], [high + is_whole])[0]  # of whole numbers the last one is inside
    if not is_whole:  # the cell of floats around 0 is 0 itself, and 0 may be a bound
        starts, stops = ends[:-1], ends[1:]
        is_zero_cell, is_point = (starts < 0) & (stops > 0), stops / 2 - starts / 2 < POINT / 2 * np.abs(starts)
        parts[is_zero_cell] = float(low <= 0 <= high)
        parts[is_point] = (low <= starts[is_point]) & (starts[is_point] <= high)
        if not grid.holds_vectors and grid.size == 2:  # truth values: nothing between them is one
            parts[~(is_zero_cell | is_point)] = 0.0
    return parts


def bounds_of_counts(grid: Any, unit: str | None) -> list[float]:
    """Return a space's bounds in the unit of its counts: times as numbers since 1970."""
    if grid.holds_vectors:
        return [0.0, float(grid.bound)]
    if unit is None:
        return [float(grid.lower), float(grid.upper)]
    times = np.asarray(grid.instants(grid.numbers(np.array([0, grid.size - 1]))))
    return [float(tick) / _MICROSECONDS[unit] for tick in times.astype(f"{times.dtype.kind}8[us]").astype(np.int64)]


_MICROSECONDS = {"D": 86_400_000_000, "s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1e-3}
"""Microseconds, or parts of one, of the units of times (theory: units of time)."""


def _check_values(histograms: tuple[Measured, ...], space: Space, n: int, odds: float) -> _Missing | None:
    """Return the reason why the values of a column were not found, or None."""
    histogram = histograms[-1]
    if not histogram.cells:
        return _Missing("no value cleared the threshold")
    nulls = max(histogram.missing or 0, 0) if space.has_null else 0
    if n - nulls - sum(histogram.counts) > MOST_OUTSIDE * n:
        return _Missing("more than a fifth of the rows seems to hold other values")
    return None


_Rule = Callable[[tuple[Measured, ...], Space, int, float], _Missing | None]


def _require_cells(why: str) -> _Rule:
    """Return the rule that counts fail if none of them reached its threshold."""
    return lambda histograms, *_: None if histograms[-1].cells else _Missing(why)


_RULES: dict[str, _Rule] = {
    "intervals": _check_bounds,
    "norms": _check_bounds,
    "values": _check_values,
    "ranks": _check_values,
    "items": _require_cells("no item cleared the threshold"),
    "lengths": _require_cells("no length of lists exceeds the noise"),
    "kinds": lambda *_: _Missing("no kind of value that a space holds exceeds the noise", unread=True),
}
"""Rule that a column must pass, by the kind of its last counts; ``"nulls"`` have no rule."""

_DECLARATIONS = {
    "datetime": "(FROM, TO)",
    "integer": "(LOWER, UPPER)",
    "real": "(LOWER, UPPER)",
    "categorical": "[CATEGORY, …]",
    "ordinal": "[CATEGORY, …]",
    "subset": "Subset([ITEM, …])",
    "vector": "Vector(SIZE, BOUND)",
    "curve": "Curve(GRID, BOUND, KERNEL, RANK)",
}


_LOSS_CURVES, _FLOAT_LOSS_CURVE = {"intervals": (0.15, 2.5), "values": (0.2, 2.0), "items": (0.2, 2.0)}, (0.085, 2.0)
"""Noise of inference, in parts of the rows, at which half of the columns are lost, of text its threshold; and a power:
the chance is 1/(1 + (half/noise)^power) (tuned; effect not measured).

Measured on a hundred real tables of 150 to 37,000 rows: by table, 7 % of the columns off in the mean. Floats have as
many cells again at each size, and hardly any are 0 and 1.
"""
_ACCEPTED_LOSS_CHANCE = 0.05
"""Chance that a column is lost, up to which rows are enough (tuned; effect not measured)."""


def expected_losses(
    asked_of: AskedOf, rows: int, noise: float = 1.0, floats: Collection[str] = ()
) -> tuple[float, int]:
    """Return the expected number of columns that inference loses, and the rows that make a loss rare (1 in 20).

    ``asked_of``: histograms that inference may measure, by column; ``rows``: rows of the table; ``noise``: a factor on
    the noise of every count, for inference at another μ; ``floats``: the columns of floats.

    >>> from dpframe.inference.inferred import Asked
    >>> asked = (("age", (Asked("intervals", 1, 400.0),)),)
    >>> round(expected_losses(asked, 1_000)[0], 2), round(expected_losses(asked, 1_000, noise=4)[0], 2)
    (0.01, 0.17)
    >>> round(expected_losses(asked, 1_000, floats=["age"])[0], 2)
    0.05
    """
    expected_count, required_rows = 0.0, 0.0
    for name, specs in asked_of:
        spec = max((h for h in specs if h.kind != "steps"), key=lambda h: (h.threshold, h.variance))
        noise_scale = noise * (spec.threshold or math.sqrt(spec.variance))
        is_float = spec.kind == "intervals" and name in floats
        half, power = _FLOAT_LOSS_CURVE if is_float else _LOSS_CURVES.get(spec.kind, (0.1, 2.0))
        # A table without rows loses every column.
        expected_count += 1 / (1 + (half * rows / noise_scale) ** power) if rows else 1.0
        required_rows = max(required_rows, noise_scale / half * (1 / _ACCEPTED_LOSS_CHANCE - 1) ** (1 / power))
    return expected_count, math.ceil(required_rows)
