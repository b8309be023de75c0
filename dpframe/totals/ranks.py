"""Quantiles by ranks: the cell of a rank, by the exponential mechanism or by a search with noisy counts.

With q = a/b, the score of a cell is minus the distance of the goal a·n from the ranks b·[rows before it, rows up to it]
that the cell has; it is 0 of the cell that holds the quantile (Smith 2011). n is the number of rows of the group, which
moves with them. A row that is replaced within a group moves a score by at most b, so that scores move apart by 2b; one
that enters or leaves moves it by max(a, b − a), and with several groups a replaced row may leave one and enter another.
A cell before the first and one after the last, of no rows, make 0 the best score for any goal.

An interval is one more choice: of how far it goes to both sides of the chosen cell, in distances that double in four
steps. Its **margin** is the smaller of its two b·(rows) between the goal and an end; for an end of the grid the margin
is beyond all numbers. A row moves margins no further than ranks, so that scores of equal sensitivity select the
first distance whose margin reaches its goal.

With q = a/b, the **excess** of an edge between cells is b·(rows before it) − a·(rows): it rises with the edge, and
passes 0 at the quantile. One count of known noise says little of the far side of a table and much of a place near the
quantile, so that places are looked for one by one (Burnashev and Zigangirov 1974; Waeber, Frazier and Henderson 2013,
"Bisecting search with noisy responses"): edges in the middle of the interval that is still open, and then three on
each side. The first of the three is so far off that it hardly ever fails to bound the quantile; the others come nearer,
with less noise. The budget covers all readings before the first is sampled. The place of a reading depends on noisy
readings only, so that they compose.

*The interval* needs no law of the whole search. A reading below −r says that the quantile is beyond its edge, and is
wrong with the chance that the noise of just that reading exceeds r, as no earlier noise enters it. These chances add up
to half of the miss probability on either side. The last reading has the largest part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np

from dpframe.accounting.unit import Unit
from dpframe.noise.keystream import ColumnStream
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.cells import equal_starts
from dpframe.totals.answers import Noise, Numbers
from dpframe.totals.counts import Codes, cells_of
from dpframe.totals.questions import ALL_ROWS, QUANTILE_CELLS, Groups, filled
from dpframe.totals.selection import Scores

_MAX_GROUP_CELLS = 1 << 16
"""Most cells of one group (limit of memory)."""
_ALL_CELLS = 1 << 22
"""Most cells of all groups, as long as each has 4,096 (limit of memory)."""
_MAX_LEVEL_DENOMINATOR = 10**6
"""Largest denominator of a level (limit of the format)."""
_DISTANCES = np.unique(np.floor(2.0 ** (np.arange(68) / 4)).astype(np.int64))
"""Positive distances of an interval's ends from its middle (tolerance)."""
_UNREACHED_MARGIN = 1 << 62
"""Margin of an end of the grid, beyond all margins of rows (limit of the format)."""


@dataclass
class RankCounts:
    """Counts of a number's cells in each group, from which cells are chosen.

    A quantile is one of up to 2¹⁶ cells.
    """

    name: str
    space: Space
    unit: Unit
    groups: Groups = ALL_ROWS
    counts: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros((self.groups.count, self.cells), dtype=np.int64)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return min(self.space.values, max(QUANTILE_CELLS, min(_MAX_GROUP_CELLS, _ALL_CELLS // self.groups.count)))

    @property
    def starts(self) -> IntArray:
        """The first code of every cell, and the end."""
        firsts = np.array(equal_starts(self.space.values, self.cells), dtype=np.int64)
        return np.append(firsts, self.space.values)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows by group and cell."""
        place = cells_of(filled(codes[self.name], self.space), self.space, self.cells)
        group = self.groups.of(codes)
        inside = (group < self.groups.count) & (place < self.cells)
        flat = group[inside] * self.cells + place[inside]
        self.counts += np.bincount(flat, minlength=self.counts.size).reshape(self.counts.shape)

    def score_sensitivity(self, level: Fraction) -> Scores:
        """Return how far one person moves the scores of all groups."""
        a, b = level.numerator, level.denominator
        crossing = (1 if self.unit.added else min(2, self.groups.count), 2 * max(a, b - a))
        return Scores((crossing,) if self.unit.added else ((1, 2 * b), crossing), self.unit.rows)

    def scores(self, group: int, level: Fraction) -> list[int]:
        """Return the score of every cell, with an empty cell at either end."""
        goal, ends = self._goal(group, level)
        before, upto = ends[:-1], ends[1:]
        inner = np.maximum(np.maximum(before - goal, goal - upto), 0)
        return [-max(goal, 0), *(-inner).tolist(), -max(int(ends[-1]) - goal, 0)]

    def margin_scores(self, group: int, level: Fraction, middle: int, margin: int) -> list[int]:
        """Return the score of each of `distances` about a cell; it is 0 for the first with at least ``margin``."""
        goal, ends = self._goal(group, level)
        away = distances(self.cells)
        first, last = np.maximum(middle - away, 0), np.minimum(middle + away + 1, self.cells)
        below = np.where(first > 0, goal - ends[first], _UNREACHED_MARGIN)
        above = np.where(last < self.cells, ends[last] - goal, _UNREACHED_MARGIN)
        margins = np.minimum(below, above)
        # The distance before must miss the goal, else it would be the first to reach it.
        before = np.concatenate([[-_UNREACHED_MARGIN], margins[:-1]])
        scores: list[int] = np.minimum(0, np.minimum(margins - margin, margin - 1 - before)).tolist()
        return scores

    def _goal(self, group: int, level: Fraction) -> tuple[int, IntArray]:
        """Return a·n of a group, and b times its rows before every cell, and of all."""
        ends = level.denominator * np.concatenate([[0], np.cumsum(self.counts[group])])
        # `ends` counts b times the rows; the goal a·n needs the rows themselves.
        return level.numerator * (int(ends[-1]) // level.denominator), ends

    def excess_sensitivity(self, level: Fraction) -> Numbers:
        """Return how far one person moves the excesses of all groups at fixed edges."""
        a, b = level.numerator, level.denominator
        crossing = max(a, b - a)
        if self.unit.added:
            return Numbers(self.groups.count, 1, crossing, self.unit.rows)
        also = (2, crossing) if self.groups.count > 1 else None
        return Numbers(self.groups.count, 1, b, self.unit.rows, also=also)

    def excess(self, level: Fraction, edges: IntArray) -> IntArray:
        """Return b·(rows in cells before an edge) − a·(rows) for each group at its edge."""
        a, b = level.numerator, level.denominator
        at = np.arange(self.groups.count)
        return np.asarray(b * self._running[at, edges] - a * self._running[:, -1])

    @cached_property
    def _running(self) -> IntArray:
        """The number of rows before every cell, and of all rows. Valid once all rows are counted."""
        return np.hstack([np.zeros((self.groups.count, 1), dtype=np.int64), np.cumsum(self.counts, axis=1)])


def distances(cells: int) -> IntArray:
    """Return the numbers of cells that an interval may have on either side of its middle, up to all cells.

    >>> distances(30).tolist()
    [0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 16, 19, 22, 26, 32]
    """
    return np.concatenate([[0], _DISTANCES[: int(np.searchsorted(_DISTANCES, cells - 1)) + 1]])


def distance_weights(cells: int) -> tuple[list[int], float]:
    """Return the base weight of each of `distances`, and the largest ratio of the weights before one to its weight."""
    weights = [2 * int(away) or 1 for away in distances(cells)]
    sums = [0, *accumulate(weights)]
    return weights, max(before / weight for before, weight in zip(sums, weights, strict=False))


def level_of(q: float) -> Fraction:
    """Return a level as the fraction of its printed digits, with a denominator of at most a million.

    >>> level_of(0.1), level_of(1 / 3)
    (Fraction(1, 10), Fraction(1, 3))
    """
    return Fraction(str(float(q))).limit_denominator(_MAX_LEVEL_DENOMINATOR)


_SIDES = (-1, 1)
"""Left and right of a quantile (theory: signs)."""
_HALVING_SHARE, _GROWTH = 0.4, 1.15
"""Part of the share for the halvings, and ratio of each halving's part to the part before (tuned; effect not
measured)."""
_HALVING_MISS_SHARE = 0.1
"""Share of the halvings in an interval's miss probability (tuned; effect not measured)."""
_FIT_RANGE_SD = 6.0
"""Range of the readings in the fitted line, in least standard deviations (tuned; effect not measured)."""
LAST_READING_ERROR_SD, LAST_READING_HALF_WIDTH_SD = 0.8, 4.9
"""Usual error, and half width of an interval, in standard deviations of the last readings (tuned; effect not
measured)."""


@dataclass(frozen=True)
class _End:
    """A reading on either side: its part of the share, its distance from the quantile in its standard deviations, and
    its part of the miss probability."""

    share: float
    distance_sd: float
    miss_share: float


_ENDS = (_End(0.05, 5.0, 2 / 15), _End(0.08, 4.0, 3 / 15), _End(0.17, 3.0, 10 / 15))
"""Tried on normal, lognormal and heaped numbers, 1,000 and 20,000 rows: one more end has wider intervals, ends that are
all equally far off three times as wide ones where the first fails (tuned; effect below)."""


@dataclass(frozen=True)
class Readings:
    """Noisy excesses at edges of cells, an answer a row: shapes (answers, readings), and their noise."""

    cells: int
    edges: IntArray
    values: FloatArray
    sigmas: FloatArray

    @classmethod
    def none(cls, answers: int, cells: int) -> Readings:
        """Return no readings."""
        empty = np.empty((answers, 0))
        return cls(cells, empty.astype(np.int64), empty, np.empty(0))

    def with_one(self, edges: IntArray, values: FloatArray, sigma: float) -> Readings:
        """Return the readings with one more for every answer."""
        return Readings(
            self.cells,
            np.column_stack([self.edges, edges]),
            np.column_stack([self.values, values]),
            np.append(self.sigmas, sigma),
        )

    @property
    def middles(self) -> FloatArray:
        """The edge that halves the posterior of the quantile's cell, from a uniform prior on the cells.

        A cell before an edge requires an excess of at least 0 there, so that a negative reading makes it as unlikely as
        noise of that size. A cell after an edge and a positive reading likewise.
        """
        ends = np.sort(self.edges, axis=1)
        starts = np.column_stack([np.zeros(len(ends)), ends])
        stops = np.column_stack([ends, np.full(len(ends), self.cells)])
        before = stops[:, :, None] <= self.edges[:, None, :]
        scaled = self.values / self.sigmas
        against = np.where(before, np.minimum(scaled, 0)[:, None, :], np.maximum(scaled, 0)[:, None, :])
        logs = -(against**2).sum(axis=2) / 2
        # The largest log is subtracted first, so that not all masses underflow.
        masses = np.exp(logs - logs.max(axis=1, keepdims=True)) * (stops - starts)
        passed = np.cumsum(masses, axis=1)
        half = passed[:, -1:] / 2
        at = (passed < half).sum(axis=1)[:, None]
        start, stop, mass, passed_mass = (np.take_along_axis(x, at, axis=1) for x in (starts, stops, masses, passed))
        return np.asarray((stop - (passed_mass - half) / mass * (stop - start))[:, 0])

    @property
    def fitted(self) -> tuple[FloatArray, FloatArray]:
        """Edges in order, and the rising excesses nearest to the readings (a minimum over maxima of means)."""
        order = np.argsort(self.edges, axis=1, kind="stable")
        edges = np.take_along_axis(self.edges, order, axis=1).astype(np.float64)
        weights = (1 / self.sigmas**2)[order]
        values = np.take_along_axis(self.values, order, axis=1)
        zero = np.zeros((len(edges), 1))
        sums = np.hstack([zero, np.cumsum(weights * values, axis=1)])
        totals = np.hstack([zero, np.cumsum(weights, axis=1)])
        count = edges.shape[1]
        first, last = np.arange(count)[:, None], np.arange(1, count + 1)[None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            means = (sums[:, last] - sums[:, first]) / (totals[:, last] - totals[:, first])
        means = np.where(first < last, means, np.inf)
        # The fitted value at i is max over starts ≤ i of min over ends > i of the mean between them.
        lowest = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]
        return edges, np.asarray(np.where(first < last, lowest, -np.inf).max(axis=1))

    def crossing(self, goal: float) -> FloatArray:
        """Return the edges, with fractions, at which the fitted excess passes a goal."""
        edges, values = self.fitted
        # Values beyond all readings at both ends make every goal pass between two edges.
        bound = 2 * abs(goal) + np.abs(values).max(axis=1, initial=1.0)[:, None]
        edges = np.hstack([np.zeros_like(bound), edges, np.full_like(bound, self.cells)])
        values = np.hstack([-bound, values, bound])
        at = (values < goal).sum(axis=1)[:, None]
        low, high, left_edge, right_edge = (
            np.take_along_axis(x, i, axis=1) for x in (values, edges) for i in (at - 1, at)
        )
        return np.asarray((left_edge + (goal - low) / (high - low) * (right_edge - left_edge))[:, 0])

    @property
    def estimates(self) -> FloatArray:
        """Zero of a line through the readings near 0, or of the fitted excess if there are too few such readings."""
        plain, (edges, fitted) = self.crossing(0.0), self.fitted
        order = np.argsort(self.edges, axis=1, kind="stable")
        is_near = np.abs(fitted) < _FIT_RANGE_SD * self.sigmas.min()
        weights = np.where(is_near, (1 / self.sigmas**2)[order], 0.0)
        values = np.take_along_axis(self.values, order, axis=1)
        weight_sum = np.maximum(weights.sum(axis=1), 1e-300)
        x, y = ((weights * part).sum(axis=1) / weight_sum for part in (edges, values))
        along = edges - x[:, None]
        edge_scatter = (weights * along**2).sum(axis=1)
        slope = (weights * along * values).sum(axis=1) / np.maximum(edge_scatter, 1e-300)
        has_line = (is_near.sum(axis=1) >= 3) & (edge_scatter > 0) & (slope > 0)
        low, high = (np.where(is_near, edges, default).T for default in (self.cells, 0))
        # Outside the readings of the line its slope is not known.
        line = np.clip(x - y / np.where(has_line, slope, 1.0), low.min(axis=0), high.max(axis=0))
        return np.where(has_line, line, plain)


def halvings(cells: int) -> int:
    """Return the number of halvings that isolate one cell."""
    return max(1, math.ceil(math.log2(cells)))


def search_shares(cells: int) -> tuple[float, ...]:
    """Return the parts of a share that the readings of one answer get, in their order."""
    growing = [_GROWTH**i for i in range(halvings(cells))]
    return (*(_HALVING_SHARE * part / sum(growing) for part in growing), *(end.share for end in _ENDS for _ in _SIDES))


def search_quantiles(
    excess: Callable[[IntArray], Sequence[int]],
    answers: int,
    cells: int,
    noises: Sequence[Noise],
    level: float,
    stream: Callable[[int], ColumnStream],
) -> IntArray:
    """Return a quantile's cell and the first and last cell of its interval, for every answer, shape (answers, 3).

    ``excess``: the exact excess at an edge of each answer, from 1 to cells − 1. ``noises`` and streams are in the order
    of `search_shares`. ``level``: the least probability that an interval contains its quantile.
    """
    readings, count = Readings.none(answers, cells), halvings(cells)
    low, high = np.zeros(answers, dtype=np.int64), np.full(answers, cells, dtype=np.int64)
    miss_chance = (1 - level) / 2
    plan = [(0, 0.0, _HALVING_MISS_SHARE / count)] * count
    plan += [(side, end.distance_sd, (1 - _HALVING_MISS_SHARE) * end.miss_share) for end in _ENDS for side in _SIDES]
    for at, ((side, distance, part), noise) in enumerate(zip(plan, noises, strict=True)):
        sigma = math.sqrt(noise.variance)
        goals = readings.crossing(side * distance * sigma) if side else readings.middles
        edges = np.clip(np.rint(goals), 1, cells - 1).astype(np.int64)
        values = np.array(noise.add([int(v) for v in excess(edges)], stream(at)), dtype=np.float64)
        readings = readings.with_one(edges, values, sigma)
        reach = noise.reach(1 - 2 * miss_chance * part)
        if side <= 0:
            low = np.where(values < -reach, np.maximum(low, edges), low)
        if side >= 0:
            high = np.where(values > reach, np.minimum(high, edges), high)
    # Noise can put the two bounds in the wrong order; the interval then spans both.
    first, last = np.minimum(low, high - 1), np.maximum(low, high - 1)
    cell = np.clip(np.floor(readings.estimates).astype(np.int64), first, last)
    return np.column_stack([cell, first, last])
