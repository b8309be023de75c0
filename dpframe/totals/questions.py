"""What questions count of a table's codes, exactly, and how far one row moves what they count.

All totals are whole numbers, in batches of any size. Neighbours differ in one replaced row, and n is public, so that a
mean is a sum over n; or in one row that is added, and n is a secret. With N the largest code (a grid of b − a in N
steps), and a replaced row:

- *a count* moves by 1;
- *a sum of codes* moves by N, which is b − a, and a mean by (b − a)/n;
- *a table of counts* loses 1 in the cell that a row leaves and gains 1 in the one that it enters: 2 in ℓ1, √2 in ℓ2;
- *a sum of products* of centred codes u = 2c − N, |u| ≤ N: Σuᵢuⱼ moves by 2NᵢNⱼ; u² lies in [0, N²] (from 1 on where
  N is odd), and its sum moves by that. In the columns' units products of two move by half of (b − a)·(b' − a'), squares
  by a quarter of (b − a)².

*Groups.* Rows that meet no condition, or are in no group of another column's public list, count nowhere. A replaced row
leaves one group and enters another: it moves one sum of centred codes by 2N, or two by N each. How many rows a group
has is a secret, and is counted with a part of the portion. *An added row* moves a count by 1, a table by 1 in ℓ1 and
ℓ2, a sum of centred codes by N and of products by NᵢNⱼ; the table is then one group whose rows are counted.

*Nulls.* A code beyond the last one is null, and so is what its space cannot hold: no answer refuses a value, for a
refusal would reveal its row. A null meets no condition and lies in no cell but its own. Where the space holds nulls,
sums, means and quantiles are those of the values that are there, whose count is measured with them (a null is
0 in a sum about the middle of the bounds, which moves by no more for it); else a null is the space's fixed point.

*Wide grids.* A total T of a wide grid is rounded once, to ⌊T/q⌋, whose sensitivity is at most ⌈N/q⌉; the rounding lies
far below the noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.accounting.unit import Unit
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.cells import equal_starts
from dpframe.totals.answers import Numbers
from dpframe.totals.counts import Codes, cells_of

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

    ``conditions``: by column, which codes meet its condition; rows that do not meet all are in no group. ``by``: the
    column of the groups. ``count``: how many groups. ``place``: the group of each of that column's codes; ``count`` and
    beyond for none.
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


_FINEST = 1 << 16
"""Range of a total above which it is rounded (limit of memory)."""
_FINE = 1 << 20
"""Codes of a column above which products are of groups of codes (limit of memory)."""
FANOUT = 16
"""Cells that a cell of the next level of a tree is made of (tuned; effect not measured)."""
QUANTILE_CELLS = FANOUT**3
"""Cells in which quantiles are searched (tuned; effect not measured)."""

Totals = list[list[int]]


class Question(ABC):
    """What is counted for one answer; `add` takes the codes of every column that it names."""

    @property
    @abstractmethod
    def numbers(self) -> tuple[Numbers, ...]:
        """The lists of numbers that are counted, and how far a person moves them."""

    @property
    def shares(self) -> tuple[float, ...]:
        """What part of the answer's portion each list gets, in proportion."""
        return (1.0,) * len(self.numbers)

    @abstractmethod
    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows."""

    @property
    @abstractmethod
    def totals(self) -> Totals:
        """What was counted."""


def filled(codes: Codes, space: Space) -> IntArray:
    """Return codes with nulls at the fixed point, unless the space holds them."""
    wide = codes.astype(np.int64)
    return wide if space.has_null else np.where(wide >= space.values, space.fixed_point, wide)


@dataclass
class Summed(Question):
    """The sum of a column's codes; or by groups, twice that about the middle, and the number of values.

    Groups are those of the question, of the values that are there where the space holds nulls, and all rows where
    their number is a secret. ``weight`` is the part of the portion that the numbers of values get.
    """

    name: str
    space: Space
    unit: Unit
    weight: float = 0.2
    groups: Groups = WHOLE
    sums: IntArray = field(init=False, repr=False)
    present: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.sums = np.zeros(self.groups.count, dtype=np.int64)
        self.present = np.zeros(self.groups.count, dtype=np.int64)

    @property
    def last(self) -> int:
        """The largest code of a value, N."""
        return self.space.values - 1

    @property
    def partial(self) -> bool:
        """Whether the number of rows that are added up is a secret."""
        return self.space.has_null or self.unit.added or not self.groups.whole

    @property
    def _range(self) -> int:
        return max(1, self.last * (2 if self.partial and not self.unit.added else 1))

    @property
    def rounded(self) -> int:
        """What totals are rounded to, in codes, or in halves of them."""
        return -(-self._range // _FINEST)

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """The sums, and the numbers of values where not all rows have one."""
        if not self.partial:
            return (Numbers(span=-(-self._range // self.rounded), contributions=self.unit.rows),)
        most = -(-max(1, self.last) // self.rounded)
        return group_sums(self.unit, self.groups.count, most), table_of_counts(self.unit, self.groups.count)

    @property
    def shares(self) -> tuple[float, ...]:
        """Most to the sums."""
        return (1 - self.weight, self.weight) if self.partial else (1.0,)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Add rows up."""
        mine = filled(codes[self.name], self.space)
        if not self.partial:
            self.sums += mine.sum()
            return
        place, count = self.groups.of(codes), self.groups.count
        inside = (mine <= self.last) & (place < count)
        place, mine = place[inside], 2 * mine[inside] - self.last
        self.present += np.bincount(place, minlength=count)
        # Sums of a batch's whole numbers are whole in floats.
        self.sums += np.bincount(place, weights=mine, minlength=count).astype(np.int64)

    @property
    def totals(self) -> Totals:
        """The sums, rounded down to units, and the numbers of values."""
        found = (self.sums // self.rounded).tolist()
        return [found, self.present.tolist()] if self.partial else [found]


Axes = Mapping[str, tuple[int, Callable[[Codes], npt.NDArray[np.integer]]]]
"""The columns of a table of counts: of each the number of cells, and the cell of every code."""


@dataclass
class CellCounts(Question):
    """A table of counts: a replaced row leaves one cell and enters another.

    Without columns it is one count, of the rows that meet the conditions, which a row moves by 1.
    """

    axes: Axes
    unit: Unit
    conditions: Mapping[str, Holds] = field(default_factory=dict)
    counts: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(math.prod(self.shape), dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of each column."""
        return tuple(cells for cells, _ in self.axes.values())

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """The cells."""
        return (table_of_counts(self.unit, len(self.counts)),)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows by their cell."""
        inside = met(self.conditions, codes)
        place = np.zeros(len(inside), dtype=np.int64)
        for name, (cells, cell_of) in self.axes.items():
            mine = cell_of(codes[name]).astype(np.int64)
            inside &= mine < cells
            place = place * cells + mine
        self.counts += np.bincount(place[inside], minlength=len(self.counts))

    @property
    def totals(self) -> Totals:
        """The counts."""
        return [self.counts.tolist()]


@dataclass
class CellTree(Question):
    """Counts of a number's cells, of groups of 16 of them, and so on: what cumulative counts are added up from.

    A cumulative count is a sum of at most 15 counts a level, whose noise grows with the levels' number and not with
    that of the cells (Hay et al. 2010; Qardaji et al. 2013 on the fan-out). Rows that are left out, nulls or such that
    do not meet the conditions, are a cell of the coarsest level.
    """

    name: str
    space: Space
    unit: Unit
    conditions: Mapping[str, Holds] = field(default_factory=dict)
    counts: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.cells + self.partial, dtype=np.int64)

    @property
    def partial(self) -> bool:
        """Whether rows may be left out."""
        return self.space.has_null or bool(self.conditions)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return min(self.space.values, QUANTILE_CELLS)

    @property
    def starts(self) -> tuple[int, ...]:
        """First code of every cell, and the end."""
        return (*equal_starts(self.space.values, self.cells), self.space.values)

    @property
    def widths(self) -> list[int]:
        """Cells that a count of each level is of, coarsest first."""
        widths = [1]
        while widths[0] * FANOUT < self.cells:
            widths.insert(0, widths[0] * FANOUT)
        return widths

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """One table of counts a level."""
        sizes = [-(-self.cells // width) for width in self.widths]
        sizes[0] += self.partial
        return tuple(table_of_counts(self.unit, size) for size in sizes)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows by their cell."""
        place = cells_of(filled(codes[self.name], self.space), self.space, self.cells)
        if self.conditions:
            place = np.where(met(self.conditions, codes), place, self.cells)
        self.counts += np.bincount(place, minlength=len(self.counts))

    @property
    def totals(self) -> Totals:
        """The counts of each level, null's at the end of the first."""
        inner, null = self.counts[: self.cells], self.counts[self.cells :]
        levels = [np.add.reduceat(inner, np.arange(0, self.cells, width)) for width in self.widths]
        levels[0] = np.append(levels[0], null)
        return [level.tolist() for level in levels]

    def _parts(self) -> list[tuple[IntArray, IntArray]]:
        """Return, for each level, the first count and the one after the last of those that up to each cell add up."""
        ends, parts, before = np.arange(1, self.cells + 1), [], np.zeros(self.cells, dtype=np.int64)
        for width in self.widths:
            stop = ends // width
            parts.append((before, stop))
            before = stop * FANOUT
        return parts

    def cumulative(self, levels: Sequence[npt.NDArray[np.generic]]) -> IntArray:
        """Return the number of rows up to and in each cell, from the counts of the levels."""
        found = np.zeros(self.cells, dtype=np.int64)
        for counts, (start, stop) in zip(levels, self._parts(), strict=True):
            running = np.concatenate([[0], np.cumsum(counts.astype(np.int64))])
            found += running[stop] - running[start]
        return found

    def variances(self, of_levels: Sequence[float]) -> FloatArray:
        """Return the variance of each cumulative count, from that of a count of each level."""
        terms = zip(of_levels, self._parts(), strict=True)
        return np.asarray(sum((v * (stop - start) for v, (start, stop) in terms), np.zeros(self.cells)))


@dataclass
class ProductSums(Question):
    """Sums of some numbers' centred codes, and of the products of every two."""

    names: tuple[str, ...]
    spaces: tuple[Space, ...]
    unit: Unit
    conditions: Mapping[str, Holds] = field(default_factory=dict)
    first: list[int] = field(init=False)
    second: list[int] = field(init=False)
    rows: int = 0

    def __post_init__(self) -> None:
        self.first, self.second = [0] * len(self.names), [0] * len(self.pairs)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Every two columns, each with itself too, in the order of the sums of products."""
        return [(i, j) for i in range(len(self.names)) for j in range(i, len(self.names))]

    @property
    def grains(self) -> list[int]:
        """Codes of each column that are taken as one."""
        return [-(-space.values // _FINE) for space in self.spaces]

    @property
    def lasts(self) -> list[int]:
        """Largest code of each column, of groups of codes; 1 where there is only one value."""
        sizes = zip(self.spaces, self.grains, strict=True)
        return [max(1, (space.values - 1) // grain) for space, grain in sizes]

    @property
    def partial(self) -> bool:
        """Whether the number of rows that are added up is a secret, and counted."""
        return self.unit.added or bool(self.conditions)

    @property
    def _ranges(self) -> list[int]:
        n, ways = self.lasts, 1 if self.unit.added else 2
        # A row that is left out counts as 0, which squares of whole rows from 1 on are not.
        least = [0 if self.partial else last % 2 for last in n]
        return [
            *(ways * last for last in n),
            *(max(1, n[i] ** 2 - least[i]) if i == j else ways * n[i] * n[j] for i, j in self.pairs),
        ]

    @property
    def units(self) -> list[int]:
        """What each sum is rounded to."""
        return [-(-most // _FINEST) for most in self._ranges]

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """The sums of the columns, and of their products."""
        spans = [-(-most // unit) for most, unit in zip(self._ranges, self.units, strict=True)]
        counted = [1] if self.partial else []
        return tuple(Numbers(span=span, contributions=self.unit.rows) for span in (*spans, *counted))

    @property
    def shares(self) -> tuple[float, ...]:
        """In proportion to what each adds to a covariance's error: means little, squares half of products."""
        counted = [0.2] if self.partial else []
        return (*(0.2 for _ in self.names), *(0.25 if i == j else 0.5 for i, j in self.pairs), *counted)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Add rows up; of a batch of 2¹⁶ rows products of 2⁴⁰ still fit."""
        columns, inside = [], met(self.conditions, codes)
        self.rows += int(inside.sum())
        for name, space, grain, last in zip(self.names, self.spaces, self.grains, self.lasts, strict=True):
            columns.append((2 * (filled(codes[name], space) // grain) - last)[inside])
        for i, column in enumerate(columns):
            self.first[i] += int(column.sum())
        for at, (i, j) in enumerate(self.pairs):
            self.second[at] += int(columns[i] @ columns[j])

    @property
    def totals(self) -> Totals:
        """The sums, rounded down to units, and the number of rows where it is a secret."""
        sums = [[total // unit] for total, unit in zip([*self.first, *self.second], self.units, strict=True)]
        return [*sums, [self.rows]] if self.partial else sums
