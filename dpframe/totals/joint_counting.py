"""Many joints counted in few passes over the rows: as margins of joints of more columns."""

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
"""Columns of few cells, whose tuples of cells are numbered, and how many cells each has."""

Key = tuple[int, ...]
"""The places of some blocks, in their order."""

_LIMITS = (512, 362, 256, 181, 128, 90, 64, 45, 32, 16, 1)
"""Tuples that a block may have, as they are tried (limit of time)."""

_MOST_CELLS = 1 << 23
"""Cells of all joints that only serve to count others (limit of memory)."""

_MOST_ROWS = (1 << 31) - 1
"""Rows whose counts fit into 32 bits (limit of the format)."""

_FEW_ROWS = 1 << 16
"""Rows below which counts by NumPy take less time than the import of SciPy (limit of time)."""


class _Scratch:
    """Memory that is taken once, for any rows, and how many rows were counted since joints were settled."""

    def __init__(self, blocks: int) -> None:
        self.blocks = np.empty((blocks, 0), dtype=np.int32)
        self.numbers = self.zeros = self.ones = self.blocks[:1]
        self.rows = 0

    def of(self, rows: int) -> Numbers:
        """Return room for every block's numbers, shape (blocks, rows)."""
        if self.blocks.shape[1] < rows:
            self.blocks = np.empty((len(self.blocks), rows), dtype=np.int32)
            self.numbers, self.zeros = np.empty(rows, dtype=np.int32), np.zeros(rows, dtype=np.int32)
            self.ones = np.ones(rows, dtype=np.int32)
        return self.blocks[:, :rows]


@dataclass(frozen=True)
class _Pass:
    """Joints that are margins of the joint of some blocks, which is counted in their place."""

    key: Key
    blocks: Sequence[Block]
    margins: Sequence[Margin]
    whole: Numbers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        *others, last = map(_size, self.blocks)
        object.__setattr__(self, "whole", np.zeros((math.prod(others), last), dtype=np.int32))

    @cached_property
    def _counting(self) -> coo_array:
        from scipy.sparse import coo_array

        return coo_array(self.whole.shape, dtype=np.int32)

    def add(self, numbers: Sequence[Numbers], scratch: _Scratch) -> None:
        """Count rows by the numbers of their tuples in every block; they are below its size."""
        *others, last = (numbers[key] for key in self.key)
        rows, number = len(last), scratch.numbers[: len(last)]
        at = others[0] if others else scratch.zeros[:rows]
        for other, block in zip(others[1:], self.blocks[1:], strict=False):
            np.multiply(at, np.int32(_size(block)), out=number)
            at = np.add(number, other, out=number)
        if rows < _FEW_ROWS:
            np.multiply(at, np.int32(self.whole.shape[1]), out=number)
            np.add(number, last, out=number)
            counts = np.bincount(number, minlength=self.whole.size)
            np.add(self.whole, counts.reshape(self.whole.shape), out=self.whole, casting="same_kind")
            return
        # SciPy finds the place of two numbers and counts it in one go, in half the time of np.bincount.
        self._counting.coords, self._counting.data = (at, last), scratch.ones[:rows]
        np.add(self.whole, self._counting.toarray(), out=self.whole)

    def settle(self) -> None:
        """Add to each joint its margin of what was counted."""
        widths = {name: width for block in self.blocks for name, width in block.items()}
        names, counts = list(widths), self.whole.reshape(tuple(widths.values()))
        for own, joint in self.margins:
            # A sum over short axes takes three times as long by counts.sum.
            axes = [names.index(name) for name in own]
            joint.counts += np.einsum(counts, range(len(names)), axes, dtype=np.int64, casting="safe")
        self.whole[...] = 0


def _size(block: Block) -> int:
    return math.prod(block.values())


@dataclass(frozen=True)
class _Division:
    """Columns in blocks, and of every joint the blocks whose joint it is counted with; None where they are too many."""

    blocks: Sequence[Block]
    keys: Sequence[Key | None]

    @classmethod
    def of(cls, widths: Mapping[Any, int], joints: Sequence[Margin], limit: int, most: int) -> _Division:
        """Return the division into blocks of up to ``limit`` tuples; joints of blocks have up to ``most`` cells."""
        blocks: list[Block] = []
        for name in sorted(widths, key=lambda name: -widths[name]):
            block = next((block for block in blocks if _size(block) * widths[name] <= limit), None)
            if block is None:
                blocks.append(block := {})
            block[name] = widths[name]
        sizes = [_size(block) for block in blocks]
        home = {name: place for place, block in enumerate(blocks) for name in block}
        own = [tuple(sorted({home[name] for name in names})) for names, _ in joints]
        found: dict[Key, Key] = {}
        # Those of many blocks first: they serve for one or two of their blocks as well.
        for key in sorted(set(own), key=lambda key: (-len(key), key)):
            if math.prod(sizes[place] for place in key) <= most:
                found.setdefault(key, key)
                for few in (*combinations(key, 1), *combinations(key, 2)):
                    found.setdefault(few, found[key])
        return cls(blocks, [found.get(key) for key in own])

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
        for key, own in margins.items():
            yield _Pass(key, [self.blocks[place] for place in key], own)


@dataclass(frozen=True)
class JointCounting:
    """How many joints of few columns are counted in few passes: as margins of joints of more columns.

    Columns of few cells form blocks, and all pairs between two blocks are margins of these blocks' joint, so that one
    pass over the rows counts them. The counts are those of `Joint.add`, once they are settled. (A product of matrices
    that are 1 where a row is in a cell counts all pairs at once, but takes two operations a row and pair of cells: less
    than a pass only for pairs of up to 16 cells, and one pass counts hundreds of those.)

    ``blocks``: the columns; ``single``: joints of columns whose blocks have too many cells together, which are counted
    by themselves; ``fused``: joints that are counted together.
    """

    blocks: Sequence[Block]
    single: Sequence[Margin]
    fused: Sequence[_Pass]
    _scratch: _Scratch = field(repr=False, compare=False)

    @classmethod
    def of(cls, widths: Mapping[Any, int], joints: Sequence[Margin], most: int = 1 << 17) -> JointCounting:
        """Return the fewest passes for some joints.

        ``widths``: the cells of each column. ``joints``: names of columns, and the joint of them. ``most``: cells of a
        pass: so many that they stay in the cache.
        """
        divisions = [_Division.of(widths, joints, limit, most) for limit in _LIMITS]
        small = [division for division in divisions if division.cells <= _MOST_CELLS]
        best = min(small or divisions[-1:], key=lambda division: division.cost)
        single = [joint for key, joint in zip(best.keys, joints, strict=True) if key is None]
        return cls(best.blocks, single, list(best.passes(joints)), _Scratch(len(best.blocks)))

    def add(self, cells: Mapping[Any, Places]) -> None:
        """Count rows by their cells in each column."""
        for own, joint in self.single:
            joint.add([cells[name] for name in own])
        if not self.fused:
            return
        rows = len(next(iter(cells.values())))
        if self._scratch.rows + rows > _MOST_ROWS:
            self.settle()
        self._scratch.rows += rows
        numbers = self._scratch.of(rows)
        for block, out in zip(self.blocks, numbers, strict=True):
            first, *others = block
            np.copyto(out, cells[first], casting="unsafe")
            for name in others:
                np.multiply(out, np.int32(block[name]), out=out)
                np.add(out, cells[name], out=out, casting="unsafe")
            if len(out) and not 0 <= out.min() <= out.max() < _size(block):  # SciPy writes wherever a number leads
                raise IndexError("a cell is beyond its column's last one")
        for each in self.fused:
            each.add(list(numbers), self._scratch)

    def settle(self) -> None:
        """Add to the joints what was counted of them in common."""
        for each in self.fused:
            each.settle()
        self._scratch.rows = 0
