"""Exact counts and sums that come in batches, and the noise that is added to them: whole numbers throughout.

Measured tables count codes; inference, which has no codes yet, counts the values of Arrow columns. The totals of a
counter depend neither on the division of rows into batches nor on the order of batches.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.noise.gaussian import Ints, gaussian_table
from dpframe.noise.keystream import ColumnStream, Rows
from dpframe.spaces import Space
from dpframe.spaces.cells import ball_of, is_cut, item_count, size_starts
from dpframe.spaces.set_bits import cut, set_sizes

Codes = npt.NDArray[Any]
Places = npt.NDArray[np.intp]

_UNPACKED_BITS = 1 << 22
"""Bits of sets that are unpacked at a time (limit of memory)."""

_BITS_OF_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.int64)
"""Which bits are set in each byte, shape (256, 8) (theory: binary numbers)."""

_PENDING = 1 << 20
"""Partial counts of values in memory before they are added up (limit of memory)."""


def cells_of(codes: Codes, space: Space, max_cells: int) -> Places:
    """Return the cell of every code: the code itself, or one of ``max_cells`` cells of equal width for larger grids.

    Special values and null have the cells after the last.
    """
    if not is_cut(space, max_cells):
        return codes.astype(np.intp)
    # Whole numbers: floats would put codes at the edge of a cell into either one.
    cells = (codes.astype(np.uint64) * np.uint64(max_cells) // np.uint64(space.values)).astype(np.intp)
    if space.flag_codes:
        is_flag = codes >= space.values
        cells[is_flag] = max_cells + codes[is_flag].astype(np.intp) - space.values
    return cells


class Counter(ABC):
    """Exact totals of rows, as secret as the rows. Totals of batches add up."""

    counts: Ints

    @abstractmethod
    def add(self, *args: Any, **kwargs: Any) -> None:
        """Count a batch of rows."""

    def merge(self, counter: Self) -> None:
        """Add the totals of an equal counter of other rows."""
        self.counts += counter.counts


@dataclass
class Joint(Counter):
    """Counts of the tuples of some columns' cells."""

    shape: tuple[int, ...]
    counts: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.shape, dtype=np.int64)

    def add(self, cells: Sequence[Places]) -> None:
        """Count rows by their cells in each column."""
        # The fewest bytes that can contain a place: wider multiplications would take most of the time.
        kind: Any = np.uint16 if self.counts.size <= 1 << 16 else np.intp
        place = cells[0].astype(kind, copy=False)
        for column, width in zip(cells[1:], self.shape[1:], strict=True):
            place = place * kind(width)
            place += column.astype(kind, copy=False)
        self.counts += np.bincount(place, minlength=self.counts.size).reshape(self.shape)


@dataclass
class Total(Counter):
    """The sum of the codes of values, without special values and nulls; counts are Python integers, for any rows."""

    space: Space
    counts: npt.NDArray[Any] = field(default_factory=lambda: np.zeros(1, dtype=object), init=False, repr=False)

    def add(self, codes: Codes) -> None:
        """Add codes up."""
        # The flag's codes are subtracted, which is cheaper than a filtered copy.
        flag = range(self.space.values, self.space.size)
        self.counts += int(codes.sum(dtype=np.uint64)) - sum(code * np.count_nonzero(codes == code) for code in flag)


@dataclass
class Items(Counter):
    """Number of sets that contain each item, each set cut to ``max_items`` items that its row's random word selects."""

    space: Space
    max_items: int
    stream: ColumnStream = field(repr=False)
    counts: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(item_count(self.space), dtype=np.int64)

    def add(self, codes: Codes, rows: Rows) -> None:
        """Count the items of sets; ``rows`` is the table row of the first set, or the rows of all sets."""
        stream, first_row = self.stream.at(rows)
        step = max(1, _UNPACKED_BITS // (64 * codes.shape[1]))
        for start in range(0, len(codes), step):
            words_of = partial(stream.words, 0, first_row + start)
            part = cut(codes[start : start + step].astype(np.uint64), self.max_items, words_of)
            self.counts += self._of(part.astype("<u8").view(np.uint8)[:, : -(-item_count(self.space) // 8)])

    def _of(self, raw: npt.NDArray[np.uint8]) -> Ints:
        """Return the counts of sets, which are given as bytes of item bits."""
        # The frequency of each byte value gives the frequency of each of its bits, without unpacking.
        counts = [np.bincount(column, minlength=256) @ _BITS_OF_BYTES for column in raw.T]
        return np.concatenate(counts)[: len(self.counts)]


@dataclass
class ItemPairs(Items):
    """Number of sets that contain both items of each pair, with sets cut as by `Items` of an equal ``max_items``."""

    def __post_init__(self) -> None:
        self.counts = np.zeros(math.comb(item_count(self.space), 2), dtype=np.int64)

    def _of(self, raw: npt.NDArray[np.uint8]) -> Ints:
        items = item_count(self.space)
        # Counts of so few rows are exact in float32, whose matrix product is the fastest.
        memberships = np.unpackbits(raw, axis=1, count=items, bitorder="little").astype(np.float32)
        return np.asarray((memberships.T @ memberships)[np.triu_indices(items, 1)].astype(np.int64))


@dataclass
class SetSizes(Counter):
    """Number of sets whose size lies in each cell of `size_starts`; null has no size."""

    space: Space
    counts: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(size_starts(self.space)), dtype=np.int64)

    def add(self, codes: Codes) -> None:
        """Count sets by their size."""
        space: Any = self.space
        present_codes = codes[~space.is_null(codes)] if space.has_null else codes
        starts = size_starts(space)
        sizes = np.bincount(set_sizes(present_codes.astype(np.uint64)), minlength=starts[-1] + 1)
        # A cell has all sizes from its start to the next cell's.
        self.counts += np.add.reduceat(sizes, starts)


@dataclass
class Vectors(Counter):
    """The sums of vectors' whole coordinates u and U times their count, in the cells of another column or in one.

    If the grid has ``room`` around the ball, u is multiplied by ``room``, so that sums keep their meaning up to
    rounding. Vectors are projected to their ball first, as their mechanism does: a row moves sums by no more than the
    accountant assumes.
    """

    space: Space
    cells: int
    counts: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros((self.cells, ball_of(self.space).length + 1), dtype=np.int64)

    def add(self, codes: Codes, cells: Places) -> None:
        """Add up rows by their cells; null adds nothing."""
        space: Any = self.space
        ball = ball_of(space)
        has_value = ~space.is_null(codes) if space.has_null else np.ones(len(codes), dtype=np.bool_)
        words, places = codes[has_value][:, : ball.words].astype(np.uint64), cells[has_value]
        step = max(1, _UNPACKED_BITS // (64 * ball.words))
        for start in range(0, len(words), step):
            coordinates = ball.room * ball.odd(ball.unpack(ball.within(words[start : start + step])))
            part = places[start : start + step]
            for i, column in enumerate(coordinates.T):
                # Sums of so few small whole numbers are exact in floats.
                self.counts[:, i] += np.bincount(part, weights=column, minlength=self.cells).astype(np.int64)
            self.counts[:, -1] += ball.unit * np.bincount(part, minlength=self.cells)


@dataclass
class OfColumn(Counter):
    """Counter of one column in inference: ``of`` maps an Arrow array, or objects, to the totals of its rows."""

    of: Callable[[Any], Any]

    def after(self, read: Callable[[Any], pa.Array]) -> Self:
        """Return the counter, still at zero, of batches that ``read`` converts first."""
        return replace(self, of=_Chained(read, self.of))


@dataclass(frozen=True)
class _Chained:
    """One function after another; unlike a closure it can be pickled for an engine's workers."""

    first: Callable[[Any], Any]
    then: Callable[[Any], Any]

    def __call__(self, values: Any) -> Any:
        return self.then(self.first(values))


@dataclass
class Cells(OfColumn):
    """Counts of cells that do not depend on the rows."""

    size: int
    counts: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.size, dtype=np.int64)

    def add(self, values: Any) -> None:
        """Count a batch."""
        self.counts += self.of(values)


@dataclass
class Values(OfColumn):
    """Counts of the values that occur, as bytes; ``counts`` has the number of nulls.

    ``of`` gives the nulls of a batch, its values, and the rows of each.
    """

    counts: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64), init=False, repr=False)
    _parts: list[pa.Table] = field(default_factory=list, init=False, repr=False)
    _pending: int = field(default=0, init=False, repr=False)

    def add(self, values: Any) -> None:
        """Count a batch."""
        nulls, batch_values, rows = self.of(values)
        self.counts += nulls
        self._keep(batch_values, rows)

    def merge(self, counter: Self) -> None:
        """Add the totals of an equal counter of other rows."""
        super().merge(counter)
        table = counter._summed()
        self._keep(table["value"], table["rows"])

    def _keep(self, values: pa.Array, rows: pa.Array) -> None:
        self._parts.append(pa.table({"value": values, "rows": rows}))
        self._pending += len(values)
        if self._pending > _PENDING:
            self._parts = [self._summed()]
            self._pending = 0

    def _summed(self) -> pa.Table:
        if not self._parts:
            return pa.table({"value": pa.array([], pa.large_binary()), "rows": pa.array([], pa.int64())})
        table = pa.concat_tables(self._parts).group_by("value").aggregate([("rows", "sum")])
        return pa.table({"value": table["value"], "rows": table["rows_sum"]})

    def listed(self) -> tuple[pa.Array, Ints]:
        """Return all values in the order of their bytes, and the rows of each."""
        table = self._summed().sort_by("value")
        return table["value"].combine_chunks(), np.asarray(table["rows"]).astype(np.int64)


def noisy(counts: Ints | Sequence[int], sigma2: float, stream: ColumnStream) -> Ints:
    """Return counts or sums, flat or not, with discrete Gaussian noise of parameter σ² from a stream of their own.

    All central noise is sampled here: of measured tables, and of the counts of private inference. A result beyond 64
    bits, which no table's counts reach, is clipped to 64 bits.
    """
    exact = np.asarray(counts, dtype=np.int64)
    noise = gaussian_table(sigma2).sample(stream, 0, exact.size).reshape(exact.shape)
    total = exact + noise
    # Two numbers of one sign whose sum has the other sign have left 64 bits.
    overflows = ((exact < 0) == (noise < 0)) & ((total < 0) != (exact < 0))
    return np.where(overflows, np.where(exact < 0, np.iinfo(np.int64).min, np.iinfo(np.int64).max), total)


Read = Callable[[Sequence[str]], Iterator[Mapping[str, Any]]]
"""Yields the named columns in batches; columns without a type as objects."""

Count = Callable[[Mapping[str, OfColumn]], None]
"""Adds all rows of columns to a counter for each."""


def count_batches(read: Read, counters: Mapping[str, OfColumn]) -> None:
    """Count all batches that ``read`` yields, by a counter for each column."""
    for batch in read(list(counters)):
        for name, counter in counters.items():
            counter.add(batch[name])
