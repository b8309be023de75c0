"""Quantiles as choices: the cell of a number in which a rank lies, chosen by the exponential mechanism.

With q = a/b, the score of a cell is minus the distance of the goal a·n from the ranks b·[rows before it, rows up to it]
that the cell has; it is 0 of the cell that holds the quantile (Smith 2011). n is the number of rows of the group, which
moves with them. A row that is replaced within a group moves a score by at most b, so that scores move apart by 2b; one
that enters or leaves moves it by max(a, b − a), and with several groups a replaced row may leave one and enter another.
A cell before the first and one after the last, of no rows, make 0 the best score whatever the goal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from dpframe.accounting.unit import Unit
from dpframe.arrays import IntArray
from dpframe.spaces import Space
from dpframe.totals.cells import equal_starts
from dpframe.totals.counts import Codes
from dpframe.totals.groups import WHOLE, Groups
from dpframe.totals.questions import QUANTILE_CELLS, filled, fine_cells
from dpframe.totals.selection import Scores

_CELLS = 1 << 16
"""Most cells of one group."""
_ALL_CELLS = 1 << 22
"""Most cells of all groups, as long as each has as many as the ends of an interval."""
_FINEST = 10**6
"""Largest denominator of a level."""


@dataclass
class Ranks:
    """Counts of a number's cells in each group, from which cells are chosen.

    A quantile is one of up to 2¹⁶ cells. The ends of its interval are among coarser ones, of which fewer are far off by
    chance.

    Examples
    --------
    >>> from dpframe.spaces import Integer
    >>> ranks = Ranks("age", Integer(0, 3), Unit())
    >>> ranks.add({"age": np.array([0, 2, 2, 3])})
    >>> ranks.scores(0, Fraction(1, 2), 0)  # below 0, 0, 1, 2, 3, above 3
    [-4, -2, -2, 0, -2, -4]
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
    def merged(self) -> int:
        """Cells that the coarser ones are made of."""
        return -(-self.cells // QUANTILE_CELLS)

    def starts(self, merged: int) -> IntArray:
        """Return the first code of every cell, or of so many taken together, and the end."""
        firsts = np.array(equal_starts(self.space.values, self.cells), dtype=np.int64)
        return np.append(firsts[::merged], self.space.values)

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

    def scores(self, group: int, level: Fraction, shift: int, merged: int = 1) -> list[int]:
        """Return the score of every cell for a goal that is moved by ``shift``, the cells of no rows at both ends."""
        a, b = level.numerator, level.denominator
        counts = np.add.reduceat(self.counts[group], np.arange(0, self.cells, merged))
        ends = b * np.concatenate([[0], np.cumsum(counts)])
        goal = a * (int(ends[-1]) // b) + shift
        before, upto = ends[:-1], ends[1:]
        inner = np.maximum(np.maximum(before - goal, goal - upto), 0)
        return [-max(goal, 0), *(-inner).tolist(), -max(int(ends[-1]) - goal, 0)]


def level_of(q: float) -> Fraction:
    """Return a level as the fraction that it prints as, of a denominator up to a million.

    Examples
    --------
    >>> level_of(0.1), level_of(1 / 3)
    (Fraction(1, 10), Fraction(1, 3))
    """
    return Fraction(str(float(q))).limit_denominator(_FINEST)
