"""Exact counts and sums that come in batches, and the noise that is added to them: whole numbers throughout.

Measured tables count codes; inference, which has no codes yet, counts the values of Arrow columns. The totals of a
counter do not depend on how rows are divided into batches, nor on the order of these.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.channels.set_channel import cut
from dpframe.noise.gaussian import Ints, gaussian_table
from dpframe.noise.keystream import ColumnStream, Rows
from dpframe.spaces import Space
from dpframe.totals.cells import ball_of, is_cut, item_count

Codes = npt.NDArray[Any]
Places = npt.NDArray[np.intp]

_BITS = 1 << 22
"""Bits of sets that are unpacked at a time."""

_BLOCK = 200
"""Most cells of columns that are joined before joints are counted."""

_FUSED = 1 << 15
"""Most cells of a pass that counts several joints: sums over them cost less than another pass over the rows."""

_PENDING = 1 << 20
"""Partial counts of values that are kept before they are added up."""


def cells_of(codes: Codes, space: Space, most: int) -> Places:
    """Return the cell of every code: the code itself, or of a grid of more values one of ``most`` of equal width.

    Null is the last cell.
    """
    if not is_cut(space, most):
        return codes.astype(np.intp)
    found = (codes.astype(np.uint64) * np.uint64(most) // np.uint64(space.values)).astype(np.intp)
    if space.has_null:
        found[codes == space.values] = most
    return found


class Counter(ABC):
    """Exact totals of rows, as secret as the rows: whole numbers that add up."""

    counts: Ints

    @abstractmethod
    def add(self, *args: Any, **kwargs: Any) -> None:
        """Count a batch of rows."""

    def merge(self, other: Self) -> None:
        """Add what another counter of the same kind counted of other rows."""
        self.counts += other.counts


@dataclass
class Joint(Counter):
    """Counts of the tuples of some columns' cells.

    Examples
    --------
    >>> joint = Joint((2, 3))
    >>> joint.add([np.array([0, 1, 1]), np.array([2, 0, 0])])
    >>> joint.counts.tolist()
    [[0, 0, 1], [2, 0, 0]]
    """

    shape: tuple[int, ...]
    counts: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.shape, dtype=np.int64)

    def add(self, cells: Sequence[Places]) -> None:
        """Count rows by their cells in each column."""
        place = cells[0]
        for column, width in zip(cells[1:], self.shape[1:], strict=True):
            place = place * width + column
        self.counts += np.bincount(place, minlength=self.counts.size).reshape(self.shape)


@dataclass(frozen=True)
class JointCounting:
    """How many joints of few columns are counted in few passes: columns of few cells are joined once, in blocks.

    All pairs between two blocks of columns are margins of the blocks' joint, so that one pass over the rows counts
    them. The counts are those of `Joint.add`.

    Parameters
    ----------
    widths
        Cells of every column, by what names it.
    blocks
        The columns that are joined first.
    passes
        The blocks that are joined in a pass, and the joints that are margins of it.

    Examples
    --------
    >>> joints = {names: Joint((2, 3)) for names in (("a", "x"), ("b", "x"))}
    >>> counting = JointCounting.of({"a": 2, "b": 2, "x": 3}, list(joints.items()))
    >>> counting.add({"a": np.array([0, 1]), "b": np.array([1, 1]), "x": np.array([2, 0])})
    >>> [joint.counts.tolist() for joint in joints.values()]
    [[[0, 0, 1], [1, 0, 0]], [[0, 0, 0], [1, 0, 1]]]
    """

    widths: Mapping[Any, int]
    blocks: tuple[tuple[Hashable, ...], ...]
    passes: tuple[tuple[tuple[int, ...], tuple[tuple[tuple[Hashable, ...], Joint], ...]], ...]

    @classmethod
    def of(cls, widths: Mapping[Any, int], joints: Sequence[tuple[tuple[Hashable, ...], Joint]]) -> JointCounting:
        """Return the passes for some joints."""
        blocks: list[list[Hashable]] = []
        size = _BLOCK + 1
        for name in sorted(widths, key=widths.__getitem__):
            size *= widths[name]
            if size > _BLOCK:
                blocks.append([])
                size = widths[name]
            blocks[-1].append(name)
        home = {name: place for place, block in enumerate(blocks) for name in block}
        passes: dict[tuple[int, ...], list[tuple[tuple[Hashable, ...], Joint]]] = {}
        for names, joint in joints:
            passes.setdefault(tuple(sorted({home[name] for name in names})), []).append((names, joint))
        return cls(widths, tuple(map(tuple, blocks)), tuple((key, tuple(found)) for key, found in passes.items()))

    def add(self, cells: Mapping[Any, Places]) -> None:
        """Count rows by their cells in each column."""
        joined = [self._joined(block, cells) for block in self.blocks]
        for places, margins in self.passes:
            names = [name for i in places for name in self.blocks[i]]
            shape = tuple(self.widths[name] for name in names)
            if len(margins) == 1 or math.prod(shape) > _FUSED:
                for own, joint in margins:
                    joint.add([cells[name] for name in own])
                continue
            place = joined[places[0]]
            for i in places[1:]:
                place = place * math.prod(self.widths[name] for name in self.blocks[i]) + joined[i]
            whole = np.bincount(place, minlength=math.prod(shape)).reshape(shape)
            for own, joint in margins:
                # The axes that stay come in the order of the pass.
                kept = [name for name in names if name in own]
                margin = whole.sum(axis=tuple(i for i, name in enumerate(names) if name not in own))
                joint.counts += margin.transpose([kept.index(name) for name in own])

    def _joined(self, block: Sequence[Hashable], cells: Mapping[Any, Places]) -> Places:
        place = cells[block[0]]
        for name in block[1:]:
            place = place * self.widths[name] + cells[name]
        return place


@dataclass
class Total(Counter):
    """The sum of the codes that are not null's; those of more than 2³² rows still fit.

    Examples
    --------
    >>> from dpframe.spaces import Integer, Nullable
    >>> total = Total(Nullable(Integer(0, 9)))
    >>> total.add(np.array([3, 10, 4], dtype=np.uint8))
    >>> total.counts.tolist()
    [7]
    """

    space: Space
    counts: npt.NDArray[Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(1, dtype=object)

    def add(self, codes: Codes) -> None:
        """Add codes up."""
        kept = codes[codes != self.space.values] if self.space.has_null else codes
        self.counts += int(kept.sum(dtype=np.uint64))


@dataclass
class Items(Counter):
    """In how many sets each item lies, each set cut to ``most`` items by a choice that its row's word makes."""

    space: Space
    most: int
    stream: ColumnStream = field(repr=False)
    counts: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(item_count(self.space), dtype=np.int64)

    def add(self, codes: Codes, rows: Rows) -> None:
        """Count the items of sets; the first set is of this row of the table, or all are of these rows."""
        stream, first_row = self.stream.at(rows)
        step = max(1, _BITS // (64 * codes.shape[1]))
        for start in range(0, len(codes), step):
            part = cut(codes[start : start + step].astype(np.uint64), self.most, stream, first_row + start)
            held = np.unpackbits(part.astype("<u8").view(np.uint8), axis=1, bitorder="little")
            self.counts += held[:, : len(self.counts)].sum(axis=0, dtype=np.int64)


@dataclass
class Vectors(Counter):
    """The sums of vectors' whole coordinates u and U times their count, in the cells of another column or in one.

    Where the grid has room around the ball, u is counted so many times: what the sums mean is the same to a rounding.
    Vectors are drawn to their ball first, as by their mechanism: a row moves sums by no more than the accountant takes.

    Examples
    --------
    >>> from dpframe.spaces import Vector
    >>> space = Vector(2, 1.0, "l1", bits=4)
    >>> sums = Vectors(space, 1)
    >>> sums.add(space.encode([[0.5, 0.0], [0.5, 0.0]]), np.zeros(2, dtype=np.intp))
    >>> sums.counts.tolist()
    [[14, 2, 30]]
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
        kept = ~space.is_null(codes) if space.has_null else np.ones(len(codes), dtype=np.bool_)
        words, places = codes[kept][:, : ball.words].astype(np.uint64), cells[kept]
        step = max(1, _BITS // (64 * ball.words))
        for start in range(0, len(words), step):
            odd = ball.room * ball.odd(ball.unpack(ball.within(words[start : start + step])))
            part = places[start : start + step]
            for i, column in enumerate(odd.T):
                # Sums of so few small numbers are whole in floats.
                self.counts[:, i] += np.bincount(part, weights=column, minlength=self.cells).astype(np.int64)
            self.counts[:, -1] += ball.unit * np.bincount(part, minlength=self.cells)


@dataclass
class OfColumn(Counter):
    """What inference counts of one column: ``of`` takes an Arrow array, or objects, to the totals of its rows."""

    of: Callable[[Any], Any]

    def after(self, read: Callable[[Any], pa.Array]) -> Self:
        """Return the counter, still at zero, of batches that are read by a function first."""
        return replace(self, of=_Chained(read, self.of))


@dataclass(frozen=True)
class _Chained:
    """One function after another; unlike a closure it travels to an engine's workers."""

    first: Callable[[Any], Any]
    then: Callable[[Any], Any]

    def __call__(self, values: Any) -> Any:
        return self.then(self.first(values))


@dataclass
class Cells(OfColumn):
    """Counts of cells that are known before the rows are.

    Examples
    --------
    >>> cells = Cells(lambda values: np.array([values.null_count, len(values) - values.null_count]), 2)
    >>> cells.add(pa.array([3, None, 5]))
    >>> cells.counts.tolist()
    [1, 2]
    """

    size: int
    counts: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.size, dtype=np.int64)

    def add(self, values: Any) -> None:
        """Count a batch."""
        self.counts += self.of(values)


@dataclass
class Values(OfColumn):
    """Counts of the values that there are, as bytes; ``counts`` has the number of nulls.

    ``of`` gives the nulls of a batch, its values, and the rows of each.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> found = Values(lambda values: (values.null_count, *pc.value_counts(values.drop_null()).flatten()))
    >>> found.add(pa.array([b"b", None, b"a", b"b"], pa.large_binary()))
    >>> found.counts.tolist(), found.listed()[1].tolist()
    ([1], [1, 2])
    """

    counts: Ints = field(init=False, repr=False)
    _parts: list[pa.Table] = field(default_factory=list, init=False, repr=False)
    _pending: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(1, dtype=np.int64)

    def add(self, values: Any) -> None:
        """Count a batch."""
        nulls, own, rows = self.of(values)
        self.counts += nulls
        self._keep(own, rows)

    def merge(self, other: Self) -> None:
        """Add what another counter of the same kind counted of other rows."""
        super().merge(other)
        table = other._summed()
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

    All that is central is drawn here: measured tables, and the counts of private inference. What would leave 64 bits,
    which no table's count does, ends there.
    """
    exact = np.asarray(counts, dtype=np.int64)
    noise = gaussian_table(sigma2).sample(stream, 0, exact.size).reshape(exact.shape)
    total = exact + noise
    turned = ((exact < 0) == (noise < 0)) & ((total < 0) != (exact < 0))
    return np.where(turned, np.where(exact < 0, np.iinfo(np.int64).min, np.iinfo(np.int64).max), total)
