"""Counting many joints in few passes over the rows, as margins of joints of more columns."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpframe.totals.counts import Joint, Places

if TYPE_CHECKING:
    from scipy.sparse import coo_array

Numbers = npt.NDArray[np.int32]

Margin = tuple[tuple[Hashable, ...], Joint]
"""The columns of a joint, and the joint."""

Block = dict[Any, int]
"""Columns of few cells with their numbers of cells; their tuples of cells are numbered."""

Key = tuple[int, ...]
"""The places of some blocks, in their order."""

_LIMITS = (512, 362, 256, 181, 128, 90, 64, 45, 32, 16, 1)
"""Largest number of tuples of a block, in the order of trial (limit of time)."""

_MAX_AUXILIARY_CELLS = 1 << 23
"""Cells of all joints that only serve to count others (limit of memory)."""

_MAX_ROWS = (1 << 31) - 1
"""Rows whose counts fit into 32 bits (limit of the format)."""

_MIN_SPARSE_ROWS = 1 << 16
"""Rows below which counts by NumPy take less time than the import of SciPy (limit of time)."""


class _Scratch:
    """Buffers that all batches reuse, and the number of rows counted since joints were last settled."""

    def __init__(self, blocks: int) -> None:
        self.blocks = np.empty((blocks, 0), dtype=np.int32)
        self.numbers = self.zeros = self.ones = self.blocks[:1]
        self.rows = 0

    def of(self, rows: int) -> Numbers:
        """Return the buffer of every block's numbers, shape (blocks, rows)."""
        if self.blocks.shape[1] < rows:
            self.blocks = np.empty((len(self.blocks), rows), dtype=np.int32)
            self.numbers, self.zeros = np.empty(rows, dtype=np.int32), np.zeros(rows, dtype=np.int32)
            self.ones = np.ones(rows, dtype=np.int32)
        return self.blocks[:, :rows]


@dataclass(frozen=True)
class _Pass:
    """Joints that are margins of one joint of some blocks, which is counted in their place."""

    key: Key
    blocks: Sequence[Block]
    margins: Sequence[Margin]
    counts: Numbers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        *leading, last = map(_size, self.blocks)
        object.__setattr__(self, "counts", np.zeros((math.prod(leading), last), dtype=np.int32))

    @cached_property
    def _counting(self) -> coo_array:
        from scipy.sparse import coo_array

        return coo_array(self.counts.shape, dtype=np.int32)

    def add(self, numbers: Sequence[Numbers], scratch: _Scratch) -> None:
        """Count rows by the numbers of their tuples in every block; a number is below its block's size."""
        *leading, last = (numbers[key] for key in self.key)
        rows, number = len(last), scratch.numbers[: len(last)]
        at = leading[0] if leading else scratch.zeros[:rows]
        for block_numbers, block in zip(leading[1:], self.blocks[1:], strict=False):
            np.multiply(at, np.int32(_size(block)), out=number)
            at = np.add(number, block_numbers, out=number)
        if rows < _MIN_SPARSE_ROWS:
            np.multiply(at, np.int32(self.counts.shape[1]), out=number)
            np.add(number, last, out=number)
            counts = np.bincount(number, minlength=self.counts.size)
            np.add(self.counts, counts.reshape(self.counts.shape), out=self.counts, casting="same_kind")
            return
        # SciPy finds the place of two numbers and counts it in one go, in half the time of np.bincount.
        self._counting.coords, self._counting.data = (at, last), scratch.ones[:rows]
        np.add(self.counts, self._counting.toarray(), out=self.counts)

    def settle(self) -> None:
        """Add to each joint its margin of the counts, and set the counts to 0."""
        widths = {name: width for block in self.blocks for name, width in block.items()}
        names, counts = list(widths), self.counts.reshape(tuple(widths.values()))
        for columns, joint in self.margins:
            # A sum over short axes takes three times as long by counts.sum.
            axes = [names.index(name) for name in columns]
            joint.counts += np.einsum(counts, range(len(names)), axes, dtype=np.int64, casting="safe")
        self.counts[...] = 0


def _size(block: Block) -> int:
    return math.prod(block.values())


@dataclass(frozen=True)
class _Division:
    """Columns in blocks, and for every joint the blocks it is counted with; None if these have too many cells."""

    blocks: Sequence[Block]
    keys: Sequence[Key | None]

    @classmethod
    def of(cls, widths: Mapping[Any, int], joints: Sequence[Margin], limit: int, max_cells: int) -> _Division:
        """Return the division into blocks of up to ``limit`` tuples; a joint of blocks has up to ``max_cells``."""
        blocks: list[Block] = []
        for name in sorted(widths, key=lambda name: -widths[name]):
            # First fit from the widest column on fills blocks well, and depends on public widths only.
            block = next((block for block in blocks if _size(block) * widths[name] <= limit), None)
            if block is None:
                blocks.append(block := {})
            block[name] = widths[name]
        sizes = [_size(block) for block in blocks]
        block_of = {name: place for place, block in enumerate(blocks) for name in block}
        joint_keys = [tuple(sorted({block_of[name] for name in names})) for names, _ in joints]
        fused_keys: dict[Key, Key] = {}
        # Keys of many blocks first: their joints also serve the joints of one or two of their blocks.
        for key in sorted(set(joint_keys), key=lambda key: (-len(key), key)):
            if math.prod(sizes[place] for place in key) <= max_cells:
                fused_keys.setdefault(key, key)
                for part in (*combinations(key, 1), *combinations(key, 2)):
                    fused_keys.setdefault(part, fused_keys[key])
        return cls(blocks, [fused_keys.get(key) for key in joint_keys])

    @cached_property
    def cells(self) -> int:
        """Cells of all joints of blocks."""
        sizes = [_size(block) for block in self.blocks]
        return sum(math.prod(sizes[place] for place in key) for key in set(self.keys) if key is not None)

    @property
    def cost(self) -> tuple[int, int]:
        """The passes over the rows, and the cells."""
        return len(set(self.keys) - {None}) + self.keys.count(None), self.cells

    def passes(self, joints: Sequence[Margin]) -> Iterator[_Pass]:
        """Yield the passes."""
        margins: dict[Key, list[Margin]] = {}
        for key, joint in zip(self.keys, joints, strict=True):
            if key is not None:
                margins.setdefault(key, []).append(joint)
        for key, key_margins in margins.items():
            yield _Pass(key, [self.blocks[place] for place in key], key_margins)


@dataclass(frozen=True)
class JointCounting:
    """Plan to count many joints of few columns in few passes over the rows, as margins of joints of more columns.

    Columns of few cells form blocks, and all pairs between two blocks are margins of these blocks' joint, so that one
    pass over the rows counts them. Once settled, the counts equal the counts of `Joint.add`. (A product of indicator
    matrices counts all pairs at once, but takes two operations for each row and pair of cells. Only pairs of up to 16
    cells need less time by it than by a pass, and one pass counts hundreds of such pairs.)

    ``blocks``: the columns; ``single``: joints of columns whose blocks have too many cells together, which are counted
    by themselves; ``fused``: joints that are counted together.
    """

    blocks: Sequence[Block]
    single: Sequence[Margin]
    fused: Sequence[_Pass]
    _scratch: _Scratch = field(repr=False, compare=False)

    @classmethod
    def of(cls, widths: Mapping[Any, int], joints: Sequence[Margin], max_cells: int = 1 << 17) -> JointCounting:
        """Return the division of joints into passes that needs the fewest passes.

        ``widths``: the cells of each column. ``joints``: names of columns, and their joint. ``max_cells``: cells of a
        pass at most, so that they stay in the cache.
        """
        divisions = [_Division.of(widths, joints, limit, max_cells) for limit in _LIMITS]
        small = [division for division in divisions if division.cells <= _MAX_AUXILIARY_CELLS]
        best = min(small or divisions[-1:], key=lambda division: division.cost)
        single = [joint for key, joint in zip(best.keys, joints, strict=True) if key is None]
        return cls(best.blocks, single, list(best.passes(joints)), _Scratch(len(best.blocks)))

    def add(self, cells: Mapping[Any, Places]) -> None:
        """Count rows by their cells in each column."""
        for names, joint in self.single:
            joint.add([cells[name] for name in names])
        if not self.fused:
            return
        rows = len(next(iter(cells.values())))
        # Scratch counts have 32 bits; joints have 64.
        if self._scratch.rows + rows > _MAX_ROWS:
            self.settle()
        self._scratch.rows += rows
        numbers = self._scratch.of(rows)
        for block, out in zip(self.blocks, numbers, strict=True):
            first, *following = block
            np.copyto(out, cells[first], casting="unsafe")
            for name in following:
                np.multiply(out, np.int32(block[name]), out=out)
                np.add(out, cells[name], out=out, casting="unsafe")
            if len(out) and not 0 <= out.min() <= out.max() < _size(block):  # SciPy writes wherever a number leads
                raise IndexError("a cell is beyond its column's last one")
        for counting in self.fused:
            counting.add(list(numbers), self._scratch)

    def settle(self) -> None:
        """Add the counts of all passes to the joints."""
        for counting in self.fused:
            counting.settle()
        self._scratch.rows = 0
