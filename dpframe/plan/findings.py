"""What private inference did not find: a forecast of the errors of means, from only its noisy counts.

A plan holds the counts that inference measured, the noise's variance and the number of rows; what is made of them is
post-processing, and costs nothing. A column is *found* if its mean will err by less than its standard deviation.

*Beyond the bounds.* If a share q of the rows lies beyond one, the mean of the clipped column falls short of the
column's by at most √(q/(1 − q)) standard deviations (Cauchy and Schwarz): by half of one where q is a fifth. The counts
say q with a standard error, and a column is lost where q is more than a fifth by two of them, or may be more than three
fifths.

*Noise.* The noise of a sum grows with the width of the bounds, which is compared with the standard deviation that the
counts show; and with the root of the number of columns that are measured. Those with most noise are left out, until
that of all others is small.

*Chance.* Bounds are chosen among hundreds, so that some of many columns get bounds far too narrow, and nothing that is
measured between them shows it. So rows that are spread out over cells further from 0, each of which drowns, are looked
for in sums; and where one value has most of the rows, the others must be seen where the bounds are, or all counts fit
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

from dpframe.observe.overlap import overlap_cells
from dpframe.observe.significance import DETECTION_SE, HINT_SE
from dpframe.plan.inferred import Asked, AskedOf, Inferred, Measured, fit_intervals, null_count
from dpframe.plan.kinds import unread_kind
from dpframe.plan.spikes import POINT, Others, others_of
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

MOST_OUTSIDE = 0.2
"""Share of the rows that may lie in ``other``, or beyond a bound (tuned; effect not measured)."""

MOST_UNSEEN = 0.6
"""Share of the rows that may lie there for all that counts say; estimates have it in their intervals (tuned; effect not
measured)."""

MOST_NOISE, _MOST_PLACED = 0.5, 0.35
"""Standard error of a mean, by the noise of its sum, in standard deviations of the column: its interval is one to each
side. Of rows that show in no cell, whose standard deviation is less known, less (tuned; effect not measured)."""

_SPIKE, _MOST = 0.35, 0.6
"""Shares of the rows in one value: from which on the others must be seen by themselves, and from which on they are few
(tuned; effect not measured).

Noise that stands out by chance had bounds of 0 and 2.4e-10 where half of the rows were 0, and amounts the others.
"""

_WITHIN = 0.15
"""Standard deviation of the rows within a cell, in its widths: half of what it is where they are spread evenly (tuned;
effect not measured)."""

_RUNS, _RUNS_FALSE_ALARM = (1, 2, 3, 4, 6, 8), 0.01
"""Numbers of neighbouring cells that are looked at together, and the chance that noise alone passes for rows (tuned;
effect not measured)."""

YEARS = (1900, 2041)
"""Years that numbers may be: inference counts them by decades (tuned; effect not measured)."""

_CHANCE, _CHANCE_SELDOM, _SELDOM = 3.75, 4.75, 2.0**16
"""Standard errors that rows within bounds must show, as bounds were chosen among hundreds; and where values seldom are:
beyond a size, or among floats in the cells of years (tuned; effect not measured).

In three releases of 340 real tables 19 columns with such bounds showed between the two, and six of them had no row
there; of 439 other columns two had none.
"""

_SPREAD, _SURELY = (12, 16, 20), 2.75
"""Numbers of cells beyond a bound whose rows are summed, and the standard errors that such a sum must show (tuned;
effect not measured)."""

_FEW, _LEAST_SEEN = 0.08, 2.5
"""Share of the rows that a spike of whole numbers may leave unseen, where floats may be of any size; and standard
errors by which the rarer of two values shows (tuned; effect not measured)."""

_ODDS, _ODDS_OF_FLOATS = (22.0, 2.0), 0.3
"""Odds that a column with bounds 0 and 1 has no other values, of whole numbers and of floats, as fifty real tables of
150 to 30,000 rows have them; of whole numbers as columns of either kind, to which the table's own are added (tuned;
effect not measured)."""

_MOST_CHANCE, UNLIKELY = 0.3, 0.1
"""The largest chance of others with which such a column counts as found, and the chance from which on that is said
(tuned; effect not measured).

In four simulated releases of 27 real tables, and three of 69, the rarer value does not show in 284 columns of tables
with more than 300 rows. Above the first lie ten of two values and 14 of others, where minutes at work next to many
zeros are seen in no cell; between .08 and it 44 and four. The chance is .083 where counts speak for neither, so that
what is said is that they speak against two values: of 24 columns above .08 in 58 later releases 11 are above .1, and
both that have others."""

_HELD, _HELD_RATIO = {True: 2.5, False: 3.0}, {True: 5.0, False: 8.0}
"""Standard errors that the rows within bounds must show next to a spike where no run of cells stands out; and twice the
logarithm of the likelihood by which they are the rows that the spike leaves, rather than noise. Of whole numbers (True)
and of floats, whose sum is the best of some (tuned; effect not measured).

Among numbers that are 0 in 70 to 97 % of 1,400 to 4,700 rows a third of those that were lost is found; their means are
off by less than three errors. With less, amounts of hundreds have bounds of 0 and 2."""

_TINY = 5.0
"""Standard errors that rows of numbers as small as that must show next to a spike (tuned; effect not measured)."""

_DEPTHS, _LEAST_HELD = {True: (math.inf,), False: (4.0, 16.0)}, 2.0**-8
"""How many times smaller than a bound numbers are that are summed, at the most; and the least bound of floats (tuned;
effect not measured)."""


@dataclass(frozen=True)
class NotFound:
    """A column whose space private inference did not find.

    ``why`` says on which grounds, and ``placeholder`` is the form of a declaration, with no value of the data.
    ``times`` is by how much more ε the column is about to be found: inferred anew with that much, it is found four
    times in five. None where what it needs is more, or does not show in its counts. ``unread`` says that values of some
    kind are read as null, so that the column's nulls are unknown, too.
    """

    column: str
    why: str
    placeholder: str
    times: float | None = None
    unread: bool = False


def judge(inferred: Inferred, spaces: Mapping[str, Space], n: int) -> tuple[NotFound, ...]:
    """Return the columns of ``n`` rows whose spaces inference did not find, in their order."""
    lost: dict[str, _Missing] = {}
    noises: dict[str, float] = {}
    odds, asked = odds_of_two_values(inferred.measured, n), dict(inferred.asked or ())
    for name, space in spaces.items():
        own = [measured for measured in inferred.measured if measured.column == name]
        known = [measured for measured in own if measured.kind != "steps" and _counts_of(measured, space)]
        if not known or n <= 0 or name not in inferred.columns:
            continue
        mine = tuple(measured for measured in known if measured.kind == known[-1].kind)
        rule = _RULES.get(mine[-1].kind)
        missing = _of_several_kinds(own, asked.get(name, ()))
        if missing is None and rule is not None:
            missing = rule(mine, space, n, odds)
        if missing is not None:
            lost[name] = missing
        elif mine[-1].kind == "intervals":
            noises[name] = noise_of_mean(mine, space, n)
    lost |= _drowned(noises, len(spaces) - len(lost), len(inferred.columns))
    why = ((name, space.inner_space.tag, lost[name]) for name, space in spaces.items() if name in lost)
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
    """Return by column the share of ``n`` rows whose values were not found and are null, where it exceeds its noise.

    >>> from dpframe import Budget, Categorical, Nullable
    >>> counts = Measured("a", "values", ("1", "2"), (500, 300), 100.0, 0)
    >>> shares_made_null(Inferred(Budget(1.0, 0.0), ("a",), (counts,)), {"a": Nullable(Categorical(["1", "2"]))}, 1_000)
    {'a': 0.2}
    """
    found = {}
    for measured in inferred.measured:
        space: Any = spaces.get(measured.column)
        if measured.kind == "values" and n and space is not None and space.has_null:
            hidden = n - sum(measured.counts) - max(measured.missing or 0, 0)
            error = math.sqrt((len(measured.counts) + 1) * measured.variance)
            if getattr(space.inner_space, "other", None) is None and hidden > HINT_SE * error:
                found[measured.column] = hidden / n
    return found


def _of_several_kinds(measured: Sequence[Measured], asked: Sequence[Asked]) -> _Missing | None:
    """Return that a column has values of a kind that it is not read as, where its counts show them."""
    ways = {histogram.way for histogram in asked if histogram.way is not None}
    if not ways or measured[0].kind != "kinds":
        return None
    kinds = dict(zip(measured[0].cells, measured[0].counts, strict=True))
    unread = unread_kind(kinds, measured[0].variance, null_count(measured), ways)
    if unread is None:
        return None
    why = f"its values of another kind ({unread}) would become null; make all of them text, or these null"
    return _Missing(why, placeholder=_DECLARATIONS["categorical"], unread=True)


def _drowned(noises: Mapping[str, float], found: int, inferred: int) -> dict[str, _Missing]:
    """Return the columns whose means noise hides, if as many others as can be are measured.

    ``noises`` are forecasts where as many columns are measured as were inferred: sums share what tables cost.
    """
    order = sorted(noises, key=noises.__getitem__)
    kept = len(order)
    while kept and _share_of(noises[order[kept - 1]], found - len(order) + kept, inferred) > 1:
        kept -= 1
    rest = ((name, _share_of(noises[name], found - len(order) + kept + 1, inferred)) for name in order[kept:])
    why = "its mean would have more noise than half of its standard deviation"
    return {name: _Missing(why, _soon(times)) for name, times in rest}


def _share_of(noise: float, measured: int, inferred: int) -> float:
    return noise * math.sqrt(measured / max(inferred, 1)) / MOST_NOISE


def _counts_of(measured: Measured, space: Space) -> bool:
    """Return whether counts can be of a space's values: a plan may be edited, and another space put in its place."""
    inner = space.inner_space
    if measured.kind == "norms":
        return inner.holds_vectors
    bounded = (inner.is_numeric or inner.is_time) and not inner.is_listed
    return measured.kind != "intervals" or (bounded and inner.is_time == (measured.unit is not None))


@dataclass(frozen=True)
class _Missing:
    why: str
    times: float | None = None
    placeholder: str | None = None
    unread: bool = False


# Every face of a release reads its plan anew, and asks this of it.
@lru_cache(maxsize=1024)
def _beyond_bounds(measured: tuple[Measured, ...], space: Space, n: int, odds: float) -> _Missing | None:
    share, error = share_outside(measured, space, n)
    if share - HINT_SE * error > MOST_OUTSIDE or _goes_on(measured, space, n):
        return _Missing("more than a fifth of the rows lies beyond its bounds", _TIMES[1])
    spiky = measured[-1].kind == "intervals" and _spiky(measured, space, n)
    if spiky and _hides_others(measured, space, n, odds):
        why = "one value has most of the rows, and where the others lie is hidden by the noise"
        return _Missing(why, _TIMES[1])
    # Truth values were not chosen among hundreds of bounds.
    bounds = bounds_of_counts(space.inner_space, measured[-1].unit)
    chance = _CHANCE_SELDOM if _lie_seldom(measured[-1], space, bounds) else _CHANCE
    chosen = 0.0 if spiky and bounds == [0.0, 1.0] else chance
    needed = max(HINT_SE * error / max(MOST_UNSEEN - share, 1e-9), chosen * error / max(1 - share, 1e-9))
    if needed > 1:
        return _Missing("its bounds rest on counts within their noise", _soon(needed))
    return None


def _lie_seldom(counts: Measured, space: Space, bounds: Sequence[float]) -> bool:
    """Return whether numbers seldom have such bounds: far out, or floats that are years."""
    low, high = bounds
    if counts.kind != "intervals" or counts.unit is not None:
        return False
    years = not _whole([counts], space) and low >= YEARS[0] and high < YEARS[1]
    return years or max(abs(low), abs(high)) > _SELDOM


_TIMES = (1.5, 2.0, 3.0)
"""Factors of ε by which a column is said to be about to be found (limit of a message)."""


def _soon(needed: float) -> float | None:
    """Return the factor of ε with which a column is about to be found whose errors are so many times too large.

    Errors fall with 1/ε. Half as much again, as the noise that was drawn here is not the one drawn then.
    """
    return next((most for most in _TIMES if 1.5 * needed <= most), None)


def _fitted(measured: tuple[Measured, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the ends of the finest cells, their counts and the covariance of these."""
    return np.array([-math.inf, *measured[-1].cells, math.inf], dtype=np.float64), *fit_intervals(measured)


def _whole(measured: Sequence[Measured], space: Space) -> bool:
    return bool(space.inner_space.is_whole or measured[-1].unit is not None)


def _spiky(measured: tuple[Measured, ...], space: Space, n: int, least: float = _SPIKE) -> bool:
    """Return whether a single value has many of the rows that are present."""
    ends, counts, _ = _fitted(measured)
    spike = int(np.argmax(counts))
    start, stop = ends[spike], ends[spike + 1]
    half = stop / 2 - start / 2  # the difference of floats may be beyond them all
    single = half <= 0.5 if _whole(measured, space) else half < POINT / 2 * abs(start) or start < 0 < stop
    return bool(single and counts[spike] > least * max(n - max(measured[-1].missing or 0, 0), 1))


def _hides_others(measured: tuple[Measured, ...], space: Space, n: int, odds: float) -> bool:
    """Return whether there are, or may be, other rows than those of the fullest cell, and none are seen in the bounds.

    How many there are is known from its count and n, far better than from the sum of their own. Truth values have one
    cell for them, known before anything was counted.
    """
    ends, counts, covariance = _fitted(measured)
    spike, unit = int(np.argmax(counts)), measured[-1].unit
    inside = _inside(ends, space, unit) > 0
    inside[spike] = False
    rest, error = _left(measured, n, [spike])
    few = rest + HINT_SE * error < _FEW * (n - max(measured[-1].missing or 0, 0)) and _whole(measured, space)
    if bounds_of_counts(space.inner_space, unit) != [0.0, 1.0]:
        seen = _shows(counts, covariance, inside, ends) or _held(measured, space, n) or are_placed(measured, space, n)
        return not (few and rest < HINT_SE * error) and not seen
    both = _truths(ends)
    other = min(both, key=counts.__getitem__)
    seen = counts[other] >= _LEAST_SEEN * math.sqrt(covariance[other, other])
    if not seen and chance_of_others(measured, space, n, odds) > _MOST_CHANCE:
        return True
    rest, error = _left(measured, n, sorted({spike, *both}))
    return rest > HINT_SE * error and not _stands_out(counts, covariance, inside)


def _shows(counts: FloatArray, covariance: FloatArray, inside: npt.NDArray[np.bool_], ends: FloatArray) -> bool:
    """Return whether rows stand out among some cells, by more where these are of tiny numbers, which hardly occur."""
    within = np.concatenate([ends[:-1][inside], ends[1:][inside]])
    if np.abs(within).max(initial=0.0) > _LEAST_HELD:
        return _stands_out(counts, covariance, inside)
    return bool(counts[inside].sum() > _TINY * math.sqrt(covariance[np.ix_(inside, inside)].sum()) > 0)


def _held(measured: tuple[Measured, ...], space: Space, n: int) -> bool:
    """Return whether the rows within the bounds are likely those that the fullest cell leaves.

    Their sum is compared with what n and that cell's count leave, far better known, and with noise around none. Of
    floats, which have as many cells again at each size, those near the bounds are summed.
    """
    ends, counts, covariance = _fitted(measured)
    inside = _inside(ends, space, measured[-1].unit) > 0
    spike = int(np.argmax(counts))
    inside[spike] = False
    far = np.maximum(np.abs(ends[:-1]), np.abs(ends[1:]))
    most, (rest, error) = float(far[inside].max(initial=0.0)), _left(measured, n, [spike])
    whole = _whole(measured, space)
    if most <= (0.0 if whole else _LEAST_HELD):
        return False
    for depth in _DEPTHS[whole]:
        places = np.flatnonzero(inside & (far > most / depth))
        rows, variance = float(counts[places].sum()), float(covariance[np.ix_(places, places)].sum())
        ratio = rows**2 / variance - (rest - rows) ** 2 / (error**2 + variance)
        if rows > _HELD[whole] * math.sqrt(variance) and ratio > _HELD_RATIO[whole]:
            return True
    return False


@lru_cache(maxsize=8)
def _others(measured: tuple[Measured, ...], whole: bool, n: int) -> Others:
    ends, counts, covariance = _fitted(measured)
    if not whole:  # the outermost cells of floats hold the infinities
        inside = slice(1, -1)
        ends, counts, covariance = ends[inside], counts[inside], covariance[inside, inside]
    missing = measured[-1].missing
    unsure = 0.0 if missing is None else measured[-1].variance
    return others_of(ends, counts, covariance, n - (missing or 0), unsure, whole)


def bounds_of_others(measured: tuple[Measured, ...], space: Space, n: int) -> tuple[float, float] | None:
    """Return bounds for the rows that the fullest cell leaves, where a space is unlikely to hold them, or None."""
    if measured[-1].unit is not None or not _spiky(measured, space, n):
        return None
    two, others = _ODDS
    shown = not (_hides_others(measured, space, n, two / others) or are_faint(measured, space, n))
    if shown or are_placed(measured, space, n):
        return None
    low, high = _others(measured, _whole(measured, space), n).bounds
    return (low, high) if -math.inf < low < high < math.inf else None


@lru_cache(maxsize=1024)
def are_placed(measured: tuple[Measured, ...], space: Space, n: int) -> bool:
    """Return whether bounds are likely to hold nearly all rows that the fullest cell leaves, at little noise."""
    if measured[-1].unit is not None or not _spiky(measured, space, n):
        return False
    others = _others(measured, _whole(measured, space), n)
    return others.beyond(*bounds_of_counts(space.inner_space, None)) <= MOST_OUTSIDE and (
        _noise_of_placed(measured, space, n) <= _MOST_PLACED
    )


def _noise_of_placed(measured: tuple[Measured, ...], space: Space, n: int) -> float:
    """Return the standard error of the mean by noise alone, in standard deviations that are likely."""
    low, high = bounds_of_counts(space.inner_space, None)
    return _noise(measured, space, n) / _others(measured, _whole(measured, space), n).spread(low, high)


def _noise(measured: tuple[Measured, ...], space: Space, n: int) -> float:
    """Return the noise of a sum in widths of the bounds, as a part of the rows that are not null."""
    nulls = max(measured[-1].missing or 0, 0) if space.has_null else 0
    return math.sqrt(1 / math.fsum(1 / m.variance for m in measured)) / max(n - nulls, 1)


@lru_cache(maxsize=1024)
def are_faint(measured: tuple[Measured, ...], space: Space, n: int) -> bool:
    """Return whether one value has most rows, and the others show in no cells but only in their sum."""
    ends, counts, covariance = _fitted(measured)
    inside = _inside(ends, space, measured[-1].unit) > 0
    inside[int(np.argmax(counts))] = False
    if not _spiky(measured, space, n, _MOST) or _stands_out(counts, covariance, inside):
        return False
    return _held(measured, space, n) or are_placed(measured, space, n)


def _truths(ends: FloatArray) -> list[int]:
    """Return the cells of 0 and 1."""
    return [int(np.searchsorted(ends, value, side="right")) - 1 for value in (0.0, 1.0)]


@lru_cache(maxsize=64)
def odds_of_two_values(measured: tuple[Measured, ...], n: int) -> float:
    """Return the odds that whole numbers between 0 and 1 are no others, by all columns of a table of ``n`` rows.

    Tables with many columns of two values code their categories so; in others a spike at 0 is a count of few.
    """
    two, others = _ODDS
    for last in {m.column: m for m in measured if m.kind == "intervals" and m.unit is None}.values():
        if not {0, 1, 2} <= set(last.cells) or not isinstance(last.cells[0], int):
            continue
        place = last.cells.index(1)
        rarer, commoner = sorted(last.counts[place : place + 2])
        present, error = n - max(last.missing or 0, 0), math.sqrt(last.variance)
        rest, unsure = present - rarer - commoner, error * math.sqrt(2 + (last.missing is not None))
        two += rarer > DETECTION_SE * error and rest < HINT_SE * unsure
        others += commoner > _MOST * present and rest > DETECTION_SE * unsure
    return two / others


@lru_cache(maxsize=1024)
def chance_of_others(measured: tuple[Measured, ...], space: Space, n: int, odds: float = _ODDS[0] / _ODDS[1]) -> float:
    """Return how likely it is that a column whose bounds are 0 and 1 has other values, where the rarer one is not seen.

    How many rows are not the commoner value is known from n and its count. If the column has two values, these are the
    rows of the other; if not, there may be none of these. Both are compared by the likelihood of the two counts, from
    the ``odds`` of whole numbers; floats with a spike at 0 are more often amounts, of all sizes.
    """
    ends, counts, covariance = _fitted(measured)
    both = _truths(ends)
    other, spike = sorted(both, key=counts.__getitem__)
    seen, variance = float(counts[other]), max(float(covariance[other, other]), 1e-300)
    rest, error = _left(measured, n, [spike])
    left = max(error**2, 1e-300)
    likely = max((seen * left + rest * variance) / (variance + left), 0.0)
    two = (seen - likely) ** 2 / variance + (rest - likely) ** 2 / left
    others = seen**2 / variance + min(rest, 0.0) ** 2 / left
    before = odds if _whole(measured, space) else _ODDS_OF_FLOATS
    return 1 / (1 + before * math.exp(min((others - two) / 2, 50.0)))


def _left(measured: tuple[Measured, ...], n: int, cells: Sequence[int]) -> tuple[float, float]:
    """Return how many rows that are not null some cells leave to all others, and the standard error of that."""
    _, counts, covariance = _fitted(measured)
    missing, places = measured[-1].missing, np.array(cells)
    variance = covariance[np.ix_(places, places)].sum() + (measured[-1].variance if missing is not None else 0.0)
    return float(n - (missing or 0) - counts[places].sum()), math.sqrt(max(variance, 0.0))


def _goes_on(measured: tuple[Measured, ...], space: Space, n: int) -> bool:
    """Return whether more than a fifth of the rows seems to be spread out beyond a bound, away from 0.

    If these and the rows within the bounds are all there are, both counts say how many. Their mean, by precision, does.
    """
    ends, counts, covariance = _fitted(measured)
    within = np.flatnonzero(_inside(ends, space, measured[-1].unit) > 0)
    if not len(within):
        return False
    low, high = bounds_of_counts(space.inner_space, measured[-1].unit)
    first, last = int(within[0]), int(within[-1]) + 1
    sides = [slice(last, last + most) for most in _SPREAD if high > 0]
    sides += [slice(max(first - most, 0), first) for most in _SPREAD if low < 0]
    rest, own = _left(measured, n, range(first, last))
    for side in sides:
        rows, variance = float(counts[side].sum()), max(float(covariance[side, side].sum()), 1e-300)
        likely = (rest * variance + rows * own**2) / (variance + own**2)
        present = max(n - max(measured[-1].missing or 0, 0), 1)
        if rows > _SURELY * math.sqrt(variance) and likely > MOST_OUTSIDE * present:
            return True
    return False


@lru_cache(maxsize=1024)
def noise_of_mean(measured: tuple[Measured, ...], space: Space, n: int) -> float:
    """Return the standard error of a column's mean by noise alone, in standard deviations of the column.

    The noise of a sum, in widths of the bounds, is about that of the counts of all rounds together: as much is spent on
    it. The standard deviation is that of the cells in which rows are seen, and within them half of an even spread's.
    """
    ends, counts, covariance = _fitted(measured)
    low, high = bounds_of_counts(space.inner_space, measured[-1].unit)
    if are_faint(measured, space, n) and are_placed(measured, space, n):
        return _noise_of_placed(measured, space, n)
    width = high / 2 - low / 2  # halved, as the difference may be beyond all floats
    if not width > 0:
        return 0.0
    within = np.clip(ends, low, high) / 2 - low / 2
    starts, stops = within[:-1] / width, within[1:] / width
    if _whole(measured, space):
        stops = np.maximum(stops - 0.5 * (ends[1:] <= high) / width, starts)
    rows = counts * _inside(ends, space, measured[-1].unit)
    # Less a standard error: among many cells noise makes rows, and the more of a standard deviation the further out.
    rows = np.maximum(rows - np.sqrt(np.diag(covariance)), 0.0)
    noise = _noise(measured, space, n)
    if not rows.any():
        return math.inf
    rows, middles = rows / rows.sum(), (starts + stops) / 2
    between = float(rows @ (middles - rows @ middles) ** 2)
    variance = between + float(rows @ (_WITHIN * (stops - starts)) ** 2)
    # Where one value has all the rows that are seen, noise hides as many as its standard deviation.
    return noise / math.sqrt(max(variance, noise if _spiky(measured, space, n) else 0.0, 1e-300))


def _stands_out(counts: FloatArray, covariance: FloatArray, inside: npt.NDArray[np.bool_]) -> bool:
    """Return whether some run of cells, among these, holds more than noise makes anywhere among them."""
    level = NormalDist().inv_cdf(1 - _RUNS_FALSE_ALARM / (len(_RUNS) * max(int(inside.sum()), 1)))
    sums = np.concatenate([[0.0], np.cumsum(counts * inside)])
    spread = np.pad((covariance * np.outer(inside, inside)).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    for width in (width for width in _RUNS if width <= len(counts)):
        start = np.arange(len(counts) + 1 - width)
        stop = start + width
        variance = spread[stop, stop] - 2 * spread[start, stop] + spread[start, start]
        if (sums[stop] - sums[start] > level * np.sqrt(np.maximum(variance, 1e-300))).any():
            return True
    return False


def share_outside(measured: Sequence[Measured], space: Space, n: int) -> tuple[float, float]:
    """Return the estimated share of the rows present beyond a space's bounds, at least 0, and its standard error.

    Nulls lie outside, too, where the space holds none. All cells of a round, and the nulls, add up to n rows: of
    counts x with the covariance C that knowledge leaves x + C1·(n − 1ᵀx)/(1ᵀC1), and C − C11ᵀC/(1ᵀC1).
    """
    ends, counts, covariance = _fitted(tuple(measured))
    outside = 1 - _inside(ends, space, measured[-1].unit)
    nulls = null_count(measured)
    if nulls is not None:
        counts, covariance = np.append(counts, nulls[0]), np.pad(covariance, (0, 1))
        covariance[-1, -1] = nulls[1]
        outside = np.append(outside, float(not space.has_null))
    spread = covariance.sum(axis=1)
    counts = counts + spread * (n - counts.sum()) / spread.sum()
    covariance = covariance - np.outer(spread, spread) / spread.sum()
    variance = max(float(outside @ covariance @ outside), 0.0)
    # Among the rows that are not null, at least one.
    present = max(n - float(counts[-1]) if nulls is not None and space.has_null else n, 1.0)
    return max(float(outside @ counts), 0.0) / present, math.sqrt(variance) / present


def _inside(ends: FloatArray, space: Space, unit: str | None) -> FloatArray:
    """Return the part of every cell that lies between a space's bounds, as if its rows were spread out evenly."""
    grid = space.inner_space
    low, high = bounds_of_counts(grid, unit)
    whole = grid.is_whole or unit is not None
    parts: FloatArray = overlap_cells(ends, [low], [high + whole])[0]  # of whole numbers the last one is inside
    if not whole:  # the cell of floats around 0 is 0 itself, where a bound may lie
        starts, stops = ends[:-1], ends[1:]
        zero, point = (starts < 0) & (stops > 0), stops / 2 - starts / 2 < POINT / 2 * np.abs(starts)
        parts[zero] = float(low <= 0 <= high)
        parts[point] = (low <= starts[point]) & (starts[point] <= high)
        if not grid.holds_vectors and grid.size == 2:  # truth values: nothing between them is one
            parts[~(zero | point)] = 0.0
    return parts


def bounds_of_counts(grid: Any, unit: str | None) -> list[float]:
    """Return a space's bounds as its column's counts have them: times in their unit, since 1970."""
    if grid.holds_vectors:
        return [0.0, float(grid.bound)]
    if unit is None:
        return [float(grid.lower), float(grid.upper)]
    times = np.asarray(grid.instants(grid.numbers(np.array([0, grid.size - 1]))))
    return [float(tick) / _MICROSECONDS[unit] for tick in times.astype(f"{times.dtype.kind}8[us]").astype(np.int64)]


_MICROSECONDS = {"D": 86_400_000_000, "s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1e-3}
"""Microseconds, or parts of one, of the units of times (theory: units of time)."""


def _other_values(measured: tuple[Measured, ...], space: Space, n: int, odds: float) -> _Missing | None:
    counts = measured[-1]
    if not counts.cells:
        return _Missing("no value cleared the threshold")
    nulls = max(counts.missing or 0, 0) if space.has_null else 0
    if n - nulls - sum(counts.counts) > MOST_OUTSIDE * n:
        return _Missing("more than a fifth of the rows seems to hold other values")
    return None


_Rule = Callable[[tuple[Measured, ...], Space, int, float], _Missing | None]


def _where_none(why: str) -> _Rule:
    """Return the rule of counts that all missed their threshold."""
    return lambda measured, *_: None if measured[-1].cells else _Missing(why)


_RULES: dict[str, _Rule] = {
    "intervals": _beyond_bounds,
    "norms": _beyond_bounds,
    "values": _other_values,
    "ranks": _other_values,
    "items": _where_none("no item cleared the threshold"),
    "lengths": _where_none("no length of lists exceeds the noise"),
    "kinds": lambda *_: _Missing("no kind of value that a space holds exceeds the noise", unread=True),
}
"""What is asked of a column, by the kind of its last counts; only ``"nulls"`` need nothing to be found."""

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


_LOSSES, _LOSSES_OF_FLOATS = {"intervals": (0.15, 2.5), "values": (0.2, 2.0), "items": (0.2, 2.0)}, (0.085, 2.0)
"""Noise of inference, in parts of the rows, at which half of the columns are lost, of text its threshold; and a power:
the chance is 1/(1 + (half/noise)^power) (tuned; effect not measured).

Measured on a hundred real tables of 150 to 37,000 rows: by table, 7 % of the columns off in the mean. Floats have as
many cells again at each size, and hardly any are 0 and 1.
"""
_FEW_LOST = 0.05
"""Chance that a column is lost, up to which rows are enough (tuned; effect not measured)."""


def expected_losses(
    asked_of: AskedOf, rows: int, noise: float = 1.0, floats: Collection[str] = ()
) -> tuple[float, int]:
    """Return how many columns inference will probably lose, and from how many rows on one of twenty.

    ``asked_of``: what may be asked of every column; ``rows``: rows of the table; ``noise``: a factor of the noise on
    every count, for inference at another μ; ``floats``: the columns of floats.

    >>> from dpframe.plan.inferred import Asked
    >>> asked = (("age", (Asked("intervals", 1, 400.0),)),)
    >>> round(expected_losses(asked, 1_000)[0], 2), round(expected_losses(asked, 1_000, noise=4)[0], 2)
    (0.01, 0.17)
    >>> round(expected_losses(asked, 1_000, floats=["age"])[0], 2)
    0.05
    """
    lost, needed = 0.0, 0.0
    for name, asked in asked_of:
        one = max((h for h in asked if h.kind != "steps"), key=lambda h: (h.threshold, h.variance))
        own = noise * (one.threshold or math.sqrt(one.variance))
        is_float = one.kind == "intervals" and name in floats
        half, power = _LOSSES_OF_FLOATS if is_float else _LOSSES.get(one.kind, (0.1, 2.0))
        lost += 1 / (1 + (half * rows / own) ** power) if rows else 1.0
        needed = max(needed, own / half * (1 / _FEW_LOST - 1) ** (1 / power))
    return lost, math.ceil(needed)
