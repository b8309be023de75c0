"""A watch for input whose order reveals its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpframe.errors import OrderLeakWarning, name_list, warn
from dpframe.noise.keystream import U64


@dataclass(frozen=True)
class Order:
    """The order of a column's rows: sorted, or grouped by code."""

    is_sorted: bool
    is_grouped: bool
    groups: int
    weight: float
    """Σ ln(length!) over the runs of equal codes."""

    def surely_sorted(self, rows: int) -> bool:
        """Return whether the column is sorted and a random order is very unlikely to be."""
        return self.is_sorted and self._is_unlikely(rows, math.log(2))

    def surely_grouped(self, rows: int) -> bool:
        """Return whether the column is grouped and a random order is very unlikely to be."""
        return self.is_grouped and self._is_unlikely(rows, math.lgamma(self.groups + 1))

    def _is_unlikely(self, rows: int, orders: float) -> bool:
        """Return whether a random order is unlikely; ``orders`` is ln of the number of matching orders of runs."""
        chance = orders + self.weight - math.lgamma(rows + 1)
        return rows >= SortedWatch.LEAST_ROWS and chance <= math.log(SortedWatch.CHANCE)


@dataclass
class _Runs:
    """Summary of a column's runs of equal codes, up to the previous batch."""

    last: int
    length: int = 0
    up: bool = True
    down: bool = True
    grouped: bool = True
    weight: float = 0.0
    """Σ ln(length!) over the runs that have ended."""
    ended: set[int] = field(default_factory=set)
    """Codes of these runs, as long as every code had one."""

    def update(self, column: npt.NDArray[np.integer]) -> None:
        """Add a batch that is not empty."""
        starts = np.concatenate([[0], np.flatnonzero(column[1:] != column[:-1]) + 1])
        heads = column[starts].astype(np.int64)
        lengths = np.diff(starts, append=len(column))
        # A run of equal codes may cross the border of two batches.
        if heads[0] == self.last:
            lengths[0] += self.length
        else:
            heads, lengths = np.insert(heads, 0, self.last), np.insert(lengths, 0, self.length)
        self.up = self.up and bool((heads[1:] > heads[:-1]).all())
        self.down = self.down and bool((heads[1:] < heads[:-1]).all())
        # No code of these runs had one before, and there are few of them.
        has_few_groups = len(self.ended) + len(heads) <= SortedWatch.MOST_GROUPS
        occurs_once = self.grouped and has_few_groups and len(np.unique(heads)) == len(heads)
        self.grouped = occurs_once and self.ended.isdisjoint(heads.tolist())
        if self.grouped:
            self.ended.update(heads[:-1].tolist())
        if self.up or self.down or self.grouped:
            counts = zip(*np.unique(lengths[:-1], return_counts=True), strict=True)
            self.weight += sum(int(times) * math.lgamma(int(length) + 1) for length, times in counts)
        self.last, self.length = int(heads[-1]), int(lengths[-1])

    @property
    def order(self) -> Order:
        """The order of all rows so far."""
        weight = self.weight + math.lgamma(self.length + 1)
        # A constant column is both ascending and descending, and its order reveals nothing.
        return Order(self.up != self.down, self.grouped, len(self.ended) + 1, weight)


def _hash_sets(words: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return a hash per set: equal sets have equal hashes, and others almost never do. Sets have no order."""
    set_hashes = np.zeros(len(words), dtype=np.uint64)
    for word in words.T:
        set_hashes = (set_hashes ^ word) * np.uint64(0x9E3779B97F4A7C15)
        set_hashes ^= set_hashes >> np.uint64(29)
    return (set_hashes >> np.uint64(1)).astype(np.int64)  # not below 0: in one order with a sign and without


class SortedWatch:
    """Watches batches of codes for columns that are sorted or grouped, so that a row's position reveals its value.

    ``partitions``: keys of the folders that the input was read from: its rows are grouped by them.
    """

    LEAST_ROWS = 10
    """Fewer rows than this are sorted by chance too often to warn."""

    CHANCE = 0.01
    """A column in random order is warned of at most this often, and far less often unless it is tiny or constant except
    for a row or two: d values that occur n₁, …, n_d times are in d runs with probability d!·n₁!⋯n_d!/n!, and
    sorted with 2·n₁!⋯n_d!/n!."""

    MOST_GROUPS = 1 << 12
    """Columns of more groups are watched for being sorted only."""

    AT_ONCE = 1 << 14
    """Number of rows between two checks of whether any order remains."""

    def __init__(self, partitions: Iterable[str] = ()) -> None:
        self._partitions = list(partitions)
        self._runs: dict[str, _Runs] = {}
        self._rows = 0

    def update(self, codes: Mapping[str, npt.NDArray[np.integer]]) -> None:
        """Add a batch."""
        self._rows += len(next(iter(codes.values()), ()))
        for name, rows in codes.items():
            column = rows if rows.ndim == 1 else _hash_sets(rows)
            for start in range(0, len(column), self.AT_ONCE):
                runs = self._runs.setdefault(name, _Runs(int(column[0])))
                if not (runs.up or runs.down or runs.grouped):
                    break  # most columns end in the first piece
                runs.update(column[start : start + self.AT_ONCE])

    def warn(self) -> None:
        """Warn the curator of sorted and grouped columns; the plan has no such entry."""
        warn_of(self._rows, {name: runs.order for name, runs in self._runs.items()}, self._partitions)


def warn_of(rows: int, orders: Mapping[str, Order], partitions: Sequence[str] = ()) -> None:
    """Warn of columns that rows are sorted or grouped by; see `SortedWatch`."""
    # Folders always group the rows: partition keys have their own words in the message.
    column_orders = {name: order for name, order in orders.items() if name not in partitions}
    sorted_names = [name for name, order in column_orders.items() if order.surely_sorted(rows)]
    grouped_names = [
        name for name, order in column_orders.items() if name not in sorted_names and order.surely_grouped(rows)
    ]
    groups = (("sorted", sorted_names), ("grouped", grouped_names), ("partitioned", list(partitions)))
    description = " and ".join(f"{order_kind} by {name_list(names)}" for order_kind, names in groups if names)
    if description:
        warn(
            f"the input is {description} and keeps its order: positions reveal values; "
            "use shuffle=True or reorder the rows at random first",
            OrderLeakWarning,
        )


@dataclass
class Stretch:
    """The first and last place of the rows of each code of a column, and their number.

    Stretches can be merged in any order: rows of a code are together if their number equals last − first + 1. A column
    of many codes merges neighbouring codes, which leaves a sorted column sorted.
    """

    codes: U64
    first: U64
    last: U64
    count: U64
    shift: int = 0
    """How many of the codes' last bits were left out."""

    @classmethod
    def of(cls, column: npt.NDArray[np.integer], places: U64) -> Stretch:
        """Return the stretch of rows with these codes and places."""
        codes = (column if column.ndim == 1 else _hash_sets(column)).astype(np.uint64)
        return cls(codes, places, places, np.ones(len(codes), np.uint64))._limit_codes(0)

    def merged(self, other: Stretch) -> Stretch:
        """Return the stretch of the rows of both."""
        shift = max(self.shift, other.shift)
        self_codes, other_codes = (part.codes >> np.uint64(shift - part.shift) for part in (self, other))
        pairs = (
            (self_codes, other_codes),
            (self.first, other.first),
            (self.last, other.last),
            (self.count, other.count),
        )
        codes, first, last, count = map(np.concatenate, pairs)
        return Stretch(codes, first, last, count, shift)._limit_codes(shift)

    def _limit_codes(self, shift: int) -> Stretch:
        """Return a stretch with each code once, and with at most `SortedWatch.MOST_GROUPS` codes."""
        codes, code_places = np.unique(self.codes, return_inverse=True)
        while len(codes) > SortedWatch.MOST_GROUPS:
            shift += 1
            codes = codes >> np.uint64(1)  # sorted as before
            codes = codes[np.append(True, codes[1:] != codes[:-1])]
        if shift > self.shift:
            _, code_places = np.unique(self.codes >> np.uint64(shift - self.shift), return_inverse=True)
        by_code = np.argsort(code_places, kind="stable")
        starts = np.searchsorted(code_places[by_code], np.arange(len(codes)))
        if not len(codes):
            return self
        return Stretch(
            codes,
            np.minimum.reduceat(self.first[by_code], starts),
            np.maximum.reduceat(self.last[by_code], starts),
            np.add.reduceat(self.count[by_code], starts),
            shift,
        )

    @property
    def order(self) -> Order:
        """The order of the rows, if they are all rows of a table."""
        is_grouped = bool((self.last - self.first + np.uint64(1) == self.count).all())
        codes_by_place = self.codes[np.argsort(self.first)]
        is_ascending, is_descending = (
            bool((codes_by_place[1:] > codes_by_place[:-1]).all()),
            bool((codes_by_place[1:] < codes_by_place[:-1]).all()),
        )
        weight = math.fsum(math.lgamma(count + 1) for count in self.count.tolist())
        # Rows of merged codes may be together while the rows of each single code are not.
        return Order(
            is_grouped and is_ascending != is_descending, is_grouped and not self.shift, len(self.codes), weight
        )


def stretches(codes: Mapping[str, npt.NDArray[np.integer]], places: U64) -> dict[str, Stretch]:
    """Return the stretches of columns."""
    return {name: Stretch.of(column, places) for name, column in codes.items()}


def merged(one: Mapping[str, Stretch], other: Mapping[str, Stretch]) -> dict[str, Stretch]:
    """Return the stretches of the rows of both; either may have none."""
    shared_stretches = {name: one[name].merged(other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **shared_stretches}
