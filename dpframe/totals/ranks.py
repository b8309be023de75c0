"""Quantiles by ranks: the cell of a number in which a rank lies, chosen, or found by noisy counts.

With q = a/b, the score of a cell is minus the distance of the goal a·n from the ranks b·[rows before it, rows up to it]
that the cell has; it is 0 of the cell that holds the quantile (Smith 2011). n is the number of rows of the group, which
moves with them. A row that is replaced within a group moves a score by at most b, so that scores move apart by 2b; one
that enters or leaves moves it by max(a, b − a), and with several groups a replaced row may leave one and enter another.
A cell before the first and one after the last, of no rows, make 0 the best score for any goal.

An interval is one more choice: of how far it goes to both sides of the chosen cell, in distances that double in four
steps. Its **margin** is the fewer of b·(rows) that it has between the goal and either of its ends; of an end that is
the grid's it is beyond all numbers. A row moves margins no further than ranks, so that the same scores show which
distance is the first whose margin reaches a goal of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np

from dpframe.accounting.unit import Unit
from dpframe.spaces import Space
from dpframe.spaces.arrays import IntArray
from dpframe.spaces.cells import equal_starts
from dpframe.totals.answers import Numbers
from dpframe.totals.counts import Codes
from dpframe.totals.groups import WHOLE, Groups
from dpframe.totals.questions import QUANTILE_CELLS, filled, fine_cells
from dpframe.totals.selection import Scores

_CELLS = 1 << 16
"""Most cells of one group."""
_ALL_CELLS = 1 << 22
"""Most cells of all groups, as long as each has 4,096."""
_FINEST = 10**6
"""Largest denominator of a level."""
_AWAY = np.unique(np.floor(2.0 ** (np.arange(68) / 4)).astype(np.int64))
"""Distances of an interval's ends from its middle, but for 0."""
_SURE = 1 << 62
"""Margin of an end beyond which no cell is."""


@dataclass
class RankCounts:
    """Counts of a number's cells in each group, from which cells are chosen.

    A quantile is one of up to 2¹⁶ cells.
    """

    name: str
    space: Space
    unit: Unit
    groups: Groups = WHOLE
    counts: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros((self.groups.count, self.cells), dtype=np.int64)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return min(self.space.values, max(QUANTILE_CELLS, min(_CELLS, _ALL_CELLS // self.groups.count)))

    @property
    def starts(self) -> IntArray:
        """The first code of every cell, and the end."""
        firsts = np.array(equal_starts(self.space.values, self.cells), dtype=np.int64)
        return np.append(firsts, self.space.values)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows by group and cell."""
        place = fine_cells(filled(codes[self.name], self.space), self.space, self.cells)
        group = self.groups.of(codes)
        inside = (group < self.groups.count) & (place < self.cells)
        flat = group[inside] * self.cells + place[inside]
        self.counts += np.bincount(flat, minlength=self.counts.size).reshape(self.counts.shape)

    def moved(self, level: Fraction) -> Scores:
        """Return how far one person moves the scores of all groups."""
        a, b = level.numerator, level.denominator
        crossing = (1 if self.unit.added else min(2, self.groups.count), 2 * max(a, b - a))
        return Scores((crossing,) if self.unit.added else ((1, 2 * b), crossing), self.unit.rows)

    def scores(self, group: int, level: Fraction) -> list[int]:
        """Return the score of every cell, the cells of no rows at both ends."""
        goal, ends = self._goal(group, level)
        before, upto = ends[:-1], ends[1:]
        inner = np.maximum(np.maximum(before - goal, goal - upto), 0)
        return [-max(goal, 0), *(-inner).tolist(), -max(int(ends[-1]) - goal, 0)]

    def margin_scores(self, group: int, level: Fraction, middle: int, margin: int) -> list[int]:
        """Return the score of each of `distances` about a cell, 0 of the first whose margin is ``margin`` or more."""
        goal, ends = self._goal(group, level)
        away = distances(self.cells)
        first, last = np.maximum(middle - away, 0), np.minimum(middle + away + 1, self.cells)
        below = np.where(first > 0, goal - ends[first], _SURE)
        above = np.where(last < self.cells, ends[last] - goal, _SURE)
        margins = np.minimum(below, above)
        before = np.concatenate([[-_SURE], margins[:-1]])
        scores: list[int] = np.minimum(0, np.minimum(margins - margin, margin - 1 - before)).tolist()
        return scores

    def _goal(self, group: int, level: Fraction) -> tuple[int, IntArray]:
        """Return a·n of a group, and b times its rows before every cell, and of all."""
        ends = level.denominator * np.concatenate([[0], np.cumsum(self.counts[group])])
        return level.numerator * (int(ends[-1]) // level.denominator), ends

    def excess_moved(self, level: Fraction) -> Numbers:
        """Return how far one person moves the excesses of all groups at edges that are given."""
        a, b = level.numerator, level.denominator
        crossing = max(a, b - a)
        if self.unit.added:
            return Numbers(self.groups.count, 1, crossing, self.unit.rows)
        also = (2, crossing) if self.groups.count > 1 else None
        return Numbers(self.groups.count, 1, b, self.unit.rows, also=also)

    def excess(self, level: Fraction, edges: IntArray) -> IntArray:
        """Return b·(rows in cells before an edge) − a·(rows), of each group at its edge."""
        a, b = level.numerator, level.denominator
        at = np.arange(self.groups.count)
        return np.asarray(b * self._running[at, edges] - a * self._running[:, -1])

    @cached_property
    def _running(self) -> IntArray:
        """The number of rows before every cell, and of all; once all rows are counted."""
        return np.hstack([np.zeros((self.groups.count, 1), dtype=np.int64), np.cumsum(self.counts, axis=1)])


def distances(cells: int) -> IntArray:
    """Return how many cells an interval may have on either side of its middle: all that there are, at the most.

    >>> distances(30).tolist()
    [0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 16, 19, 22, 26, 32]
    """
    return np.concatenate([[0], _AWAY[: int(np.searchsorted(_AWAY, cells - 1)) + 1]])


def distance_weights(cells: int) -> tuple[list[int], float]:
    """Return the base weight of each of `distances`, and the most that all before one weigh, in parts of its own."""
    found = [2 * int(away) or 1 for away in distances(cells)]
    sums = [0, *accumulate(found)]
    return found, max(before / weight for before, weight in zip(sums, found, strict=False))


def level_of(q: float) -> Fraction:
    """Return a level as the fraction that it prints as, of a denominator up to a million.

    >>> level_of(0.1), level_of(1 / 3)
    (Fraction(1, 10), Fraction(1, 3))
    """
    return Fraction(str(float(q))).limit_denominator(_FINEST)
