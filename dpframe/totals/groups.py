"""Which rows a question is about, group by group: those that meet conditions, by a public list of another column's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.accounting.unit import Unit
from dpframe.spaces.arrays import IntArray
from dpframe.totals.answers import Numbers
from dpframe.totals.counts import Codes

Holds = Callable[[Codes], npt.NDArray[np.generic]]
"""Which codes meet a condition."""


def met(conditions: Mapping[str, Holds], codes: Mapping[str, Codes]) -> npt.NDArray[np.bool_]:
    """Return which rows of a batch meet all conditions."""
    inside = [np.asarray(holds(codes[name])).astype(np.bool_) for name, holds in conditions.items()]
    rows = len(next(iter(codes.values())))
    return np.logical_and.reduce(inside) if inside else np.ones(rows, dtype=np.bool_)


@dataclass(frozen=True)
class Groups:
    """The groups of rows that a question is about: one, or those of the values of a column.

    Parameters
    ----------
    conditions
        By column, which codes meet its condition; rows that do not meet all are in no group.
    by
        The column of the groups.
    count
        How many groups.
    place
        The group of each of that column's codes; ``count`` and beyond for none.
    """

    conditions: Mapping[str, Holds] = field(default_factory=dict)
    by: str | None = None
    count: int = 1
    place: Callable[[Codes], npt.NDArray[Any]] | None = None

    @property
    def whole(self) -> bool:
        """Whether all rows are in the one group there is."""
        return self.by is None and not self.conditions

    def of(self, codes: Mapping[str, Codes]) -> IntArray:
        """Return the group of every row of a batch, or the number of groups."""
        inside = met(self.conditions, codes)
        if self.by is None or self.place is None:
            return np.where(inside, 0, 1)
        return np.where(inside, np.minimum(self.place(codes[self.by]), self.count), self.count).astype(np.int64)


WHOLE = Groups()
"""All rows, in one group."""


def table_of_counts(unit: Unit, size: int) -> Numbers:
    """Return how far a person moves a table of counts: a row that is replaced leaves a cell and enters another."""
    return Numbers(size, 1 if unit.added else min(2, size), 1, unit.rows)


def group_sums(unit: Unit, count: int, most: int) -> Numbers:
    """Return how far a person moves groups' sums of numbers within ±most, a row in no group being 0.

    A row that is added moves one sum by ``most``; one that is replaced moves one by twice that, or two by that each.
    """
    if unit.added:
        return Numbers(count, 1, most, unit.rows)
    return Numbers(count, 1, 2 * most, unit.rows, also=(2, most) if count > 1 else None)
