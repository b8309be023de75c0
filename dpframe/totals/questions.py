"""Exact totals of a table's codes that questions ask for, and the most by which one row moves them.

All totals are whole numbers, in batches of any size. Neighbours differ in one replaced row, and n is public, so that a
mean is a sum over n; or in one row that is added, and n is a secret. With N the largest code (a grid of b − a in N
steps), and a replaced row:

- *a count* moves by 1;
- *a sum of codes* moves by N, which is b − a, and a mean by (b − a)/n;
- *a table of counts* loses 1 in the cell that a row leaves and gains 1 in the one that it enters: 2 in ℓ1, √2 in ℓ2;
- *a sum of products* of centred codes u = 2c − N, |u| ≤ N: Σuᵢuⱼ moves by 2NᵢNⱼ; u² lies in [0, N²] (from 1 on if
  N is odd), and its sum moves by the length of that interval. In the columns' units products of two move by half of
  (b − a)·(b' − a'), squares by a quarter of (b − a)².

*Groups.* Rows that meet no condition, or are in no group of another column's public list, count nowhere. A replaced row
leaves one group and enters another: it moves one sum of centred codes by 2N, or two by N each. How many rows a group
has is a secret, and is counted with a part of the portion. *An added row* moves a count by 1, a table by 1 in ℓ1 and
ℓ2, a sum of centred codes by N and of products by NᵢNⱼ; the table is then one group whose rows are counted.

*Nulls.* A code beyond the last one is null, and so is a value outside its space: no answer refuses a value, for a
refusal would reveal its row. A null meets no condition and lies only in the cell of nulls. If the space has nulls,
sums, means and quantiles are about the values without nulls, whose number is measured with them (a null is
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
"""Maps codes to whether they meet a condition."""


def match_rows(conditions: Mapping[str, Holds], codes: Mapping[str, Codes]) -> npt.NDArray[np.bool_]:
    """Return which rows of a batch meet all conditions."""
    inside = [np.asarray(holds(codes[name])).astype(np.bool_) for name, holds in conditions.items()]
    rows = len(next(iter(codes.values())))
    return np.logical_and.reduce(inside) if inside else np.ones(rows, dtype=np.bool_)


@dataclass(frozen=True)
class Groups:
    """The groups of rows that a question is about: one group, or a group for each value of a column.

    ``conditions``: by column, the test of its codes; rows that do not pass all tests are in no group. ``by``: the
    column of the groups. ``count``: number of groups. ``place``: maps that column's codes to groups; ``count`` and
    beyond mean no group.
    """

    conditions: Mapping[str, Holds] = field(default_factory=dict)
    by: str | None = None
    count: int = 1
    place: Callable[[Codes], npt.NDArray[Any]] | None = None

    @property
    def has_all_rows(self) -> bool:
        """Whether there is one group and all rows are in it."""
        return self.by is None and not self.conditions

    def of(self, codes: Mapping[str, Codes]) -> IntArray:
        """Return the group of every row of a batch, or the number of groups."""
        inside = match_rows(self.conditions, codes)
        if self.by is None or self.place is None:
            return np.where(inside, 0, 1)
        return np.where(inside, np.minimum(self.place(codes[self.by]), self.count), self.count).astype(np.int64)


ALL_ROWS = Groups()
"""All rows, in one group."""


def table_of_counts(unit: Unit, size: int) -> Numbers:
    """Return how far a person moves a table of counts: a replaced row leaves a cell and enters another."""
    return Numbers(size, 1 if unit.added else min(2, size), 1, unit.rows)


def group_sums(unit: Unit, count: int, bound: int) -> Numbers:
    """Return how far a person moves groups' sums of numbers within ±bound, a row in no group being 0.

    An added row moves one sum by ``bound``; a replaced row moves one sum by twice ``bound``, or two by ``bound`` each.
    """
    if unit.added:
        return Numbers(count, 1, bound, unit.rows)
    # A replaced row may stay in its group or change groups; noise has to cover both.
    return Numbers(count, 1, 2 * bound, unit.rows, also=(2, bound) if count > 1 else None)


_MAX_EXACT_RANGE = 1 << 16
"""Largest range of a total that is not rounded (limit of memory)."""
_MAX_PRODUCT_CODES = 1 << 20
"""Largest number of codes in products; columns of more codes enter by groups of codes (limit of memory)."""
FANOUT = 16
"""Number of cells in one cell of the next level of a tree (tuned; effect not measured)."""
QUANTILE_CELLS = FANOUT**3
"""Number of cells of a search for quantiles (tuned; effect not measured)."""

Totals = list[list[int]]


class Question(ABC):
    """The exact totals of one answer; `add` takes the codes of every column of the question."""

    @property
    @abstractmethod
    def numbers(self) -> tuple[Numbers, ...]:
        """The lists of numbers to count, and how far a person moves them."""

    @property
    def shares(self) -> tuple[float, ...]:
        """Each list's share of the answer's portion, in proportion."""
        return (1.0,) * len(self.numbers)

    @abstractmethod
    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows."""

    @property
    @abstractmethod
    def totals(self) -> Totals:
        """The exact totals, list by list."""


def filled(codes: Codes, space: Space) -> IntArray:
    """Return codes with nulls at the fixed point, unless the space has nulls."""
    integers = codes.astype(np.int64)
    return integers if space.has_null else np.where(integers >= space.size, space.fixed_point, integers)


@dataclass
class Summed(Question):
    """The sum of a column's codes; or by groups, twice the sum about the middle, and the number of values.

    A question has groups if it asks for them, if the space has special values or nulls, or if the number of
    rows is a secret.
    ``weight`` is the share of the portion that the numbers of values get.
    """

    name: str
    space: Space
    unit: Unit
    weight: float = 0.2
    groups: Groups = ALL_ROWS
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
        """Whether the number of summands is a secret."""
        return self.space.flag_codes > 0 or self.unit.added or not self.groups.has_all_rows

    @property
    def _range(self) -> int:
        return max(1, self.last * (2 if self.partial and not self.unit.added else 1))

    @property
    def rounded(self) -> int:
        """Unit of the rounded totals, in codes, or in halves of codes about the middle."""
        return -(-self._range // _MAX_EXACT_RANGE)

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """The sums, and the numbers of values if not all rows have a value."""
        if not self.partial:
            return (Numbers(span=-(-self._range // self.rounded), contributions=self.unit.rows),)
        bound = -(-max(1, self.last) // self.rounded)
        return group_sums(self.unit, self.groups.count, bound), table_of_counts(self.unit, self.groups.count)

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of the sums and of the numbers of values."""
        return (1 - self.weight, self.weight) if self.partial else (1.0,)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Add rows up."""
        mine = filled(codes[self.name], self.space)
        if not self.partial:
            self.sums += mine.sum()
            return
        place, count = self.groups.of(codes), self.groups.count
        inside = (mine <= self.last) & (place < count)
        # Twice the centred code is whole; centring halves the sensitivity of an added row.
        place, mine = place[inside], 2 * mine[inside] - self.last
        self.present += np.bincount(place, minlength=count)
        # Sums of a batch's whole numbers are exact in floats.
        self.sums += np.bincount(place, weights=mine, minlength=count).astype(np.int64)

    @property
    def totals(self) -> Totals:
        """The sums, rounded down to units, and the numbers of values."""
        sums = (self.sums // self.rounded).tolist()
        return [sums, self.present.tolist()] if self.partial else [sums]


Axes = Mapping[str, tuple[int, Callable[[Codes], npt.NDArray[np.integer]]]]
"""The columns of a table of counts: for each its number of cells, and the map from codes to cells."""


@dataclass
class CellCounts(Question):
    """A table of counts: a replaced row leaves one cell and enters another.

    Without columns it is one count of the rows that meet the conditions. A row moves the count by 1.
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
        inside = match_rows(self.conditions, codes)
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
    """Counts of a number's cells, of groups of 16 cells, and so on, from which cumulative counts are summed.

    A cumulative count is a sum of at most 15 counts a level, whose noise grows with the number of levels and not with
    the number of cells (Hay et al. 2010; Qardaji et al. 2013 on the fan-out). Nulls, and rows that do not meet the
    conditions, have their own cell at the coarsest level.
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
        """Whether some rows may lie in no cell."""
        return self.space.flag_codes > 0 or bool(self.conditions)

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
        """Number of cells in one count of each level, coarsest level first."""
        widths = [1]
        while widths[0] * FANOUT < self.cells:
            widths.insert(0, widths[0] * FANOUT)
        return widths

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """One table of counts a level."""
        sizes = [-(-self.cells // width) for width in self.widths]
        # Rows in no cell are counted once, at the level of the fewest counts.
        sizes[0] += self.partial
        return tuple(table_of_counts(self.unit, size) for size in sizes)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows by their cell."""
        place = np.minimum(cells_of(filled(codes[self.name], self.space), self.space, self.cells), self.cells)
        if self.conditions:
            place = np.where(match_rows(self.conditions, codes), place, self.cells)
        self.counts += np.bincount(place, minlength=len(self.counts))

    @property
    def totals(self) -> Totals:
        """The counts of each level, null's at the end of the first."""
        inner, null = self.counts[: self.cells], self.counts[self.cells :]
        levels = [np.add.reduceat(inner, np.arange(0, self.cells, width)) for width in self.widths]
        levels[0] = np.append(levels[0], null)
        return [level.tolist() for level in levels]

    def _parts(self) -> list[tuple[IntArray, IntArray]]:
        """Return, for each level, the first and the end of the counts in the cumulative count of each cell."""
        ends, parts, before = np.arange(1, self.cells + 1), [], np.zeros(self.cells, dtype=np.int64)
        for width in self.widths:
            stop = ends // width
            parts.append((before, stop))
            # The coarser levels cover the cells before it, so that the next level counts only the remainder.
            before = stop * FANOUT
        return parts

    def cumulative(self, levels: Sequence[npt.NDArray[np.generic]]) -> IntArray:
        """Return the number of rows up to and in each cell, from the counts of the levels."""
        cumulative_counts = np.zeros(self.cells, dtype=np.int64)
        for counts, (start, stop) in zip(levels, self._parts(), strict=True):
            running = np.concatenate([[0], np.cumsum(counts.astype(np.int64))])
            cumulative_counts += running[stop] - running[start]
        return cumulative_counts

    def variances(self, of_levels: Sequence[float]) -> FloatArray:
        """Return the variance of each cumulative count, from the variance of a count of each level."""
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
        """Number of codes of each column that form one group."""
        # Sums of squares of larger codes would leave 64 bits within a batch.
        return [-(-space.values // _MAX_PRODUCT_CODES) for space in self.spaces]

    @property
    def lasts(self) -> list[int]:
        """Largest group of codes of each column; 1 if there is only one value."""
        sizes = zip(self.spaces, self.grains, strict=True)
        return [max(1, (space.values - 1) // grain) for space, grain in sizes]

    @property
    def partial(self) -> bool:
        """Whether the number of rows is a secret, and counted."""
        return self.unit.added or bool(self.conditions)

    @property
    def _ranges(self) -> list[int]:
        n, ways = self.lasts, 1 if self.unit.added else 2
        # A row outside the conditions counts as 0, below the square 1 that odd codes have at least.
        smallest_squares = [0 if self.partial else last % 2 for last in n]
        return [
            *(ways * last for last in n),
            *(max(1, n[i] ** 2 - smallest_squares[i]) if i == j else ways * n[i] * n[j] for i, j in self.pairs),
        ]

    @property
    def units(self) -> list[int]:
        """The unit to which each sum is rounded."""
        return [-(-total_range // _MAX_EXACT_RANGE) for total_range in self._ranges]

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """The sums of the columns, and of their products."""
        spans = [-(-total_range // unit) for total_range, unit in zip(self._ranges, self.units, strict=True)]
        row_spans = [1] if self.partial else []
        return tuple(Numbers(span=span, contributions=self.unit.rows) for span in (*spans, *row_spans))

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares by the effect on a covariance's error: means have little, squares half as much as products."""
        row_shares = [0.2] if self.partial else []
        return (*(0.2 for _ in self.names), *(0.25 if i == j else 0.5 for i, j in self.pairs), *row_shares)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Add rows up; of a batch of 2¹⁶ rows products of 2⁴⁰ still fit."""
        columns, inside = [], match_rows(self.conditions, codes)
        self.rows += int(inside.sum())
        for name, space, grain, last in zip(self.names, self.spaces, self.grains, self.lasts, strict=True):
            columns.append((2 * (filled(codes[name], space) // grain) - last)[inside])
        for i, column in enumerate(columns):
            self.first[i] += int(column.sum())
        for at, (i, j) in enumerate(self.pairs):
            self.second[at] += int(columns[i] @ columns[j])

    @property
    def totals(self) -> Totals:
        """The sums, rounded down to units, and the number of rows if it is a secret."""
        sums = [[total // unit] for total, unit in zip([*self.first, *self.second], self.units, strict=True)]
        return [*sums, [self.rows]] if self.partial else sums
