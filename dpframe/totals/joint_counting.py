"""Many joints counted in few passes over the rows: as margins of joints of more columns."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from dpframe.noise.gaussian import Ints
from dpframe.totals.counts import Joint, Places

Numbers = npt.NDArray[np.int32]

Margin = tuple[tuple[Hashable, ...], Joint]
"""The columns of a joint, and the joint."""

Block = dict[Any, int]
"""Columns of few cells, whose tuples of cells are numbered, and how many cells each has."""

Key = tuple[int, ...]
"""The places of some blocks, in their order."""

_LIMITS = (512, 362, 256, 181, 128, 90, 64, 45, 32, 16, 1)
"""Tuples that a block may have, as they are tried."""

_MOST_CELLS = 1 << 23
"""Cells of all joints that only serve to count others."""

_ENTRIES = 1 << 20
"""Rows, times joints of blocks, that are counted in one call: they stay in cache, too."""


@dataclass(frozen=True)
class _Pass:
    """Joints that are margins of the joint of some blocks, which is counted in their place."""

    key: Key
    blocks: Sequence[Block]
    margins: Sequence[Margin]

    @property
    def first(self) -> int:
        """The number of tuples of all blocks but the last."""
        return math.prod(map(_size, self.blocks[:-1]))

    def numbers(self, numbers: Sequence[Numbers], out: Numbers) -> None:
        """Write the number of each row's tuple in all blocks but the last."""
        out[...] = numbers[self.key[0]] if len(self.key) > 1 else 0
        for place, block in zip(self.key[1:-1], self.blocks[1:-1], strict=True):
            out *= np.int32(_size(block))
            out += numbers[place]

    def settle(self, whole: Ints) -> None:
        """Add to each joint its margin of the counts of all tuples."""
        widths = {name: width for block in self.blocks for name, width in block.items()}
        names, counts = list(widths), whole.reshape(tuple(widths.values()))
        for own, joint in self.margins:
            # The axes that stay come in the order of the pass.
            kept = [name for name in names if name in own]
            margin = counts.sum(axis=tuple(i for i, name in enumerate(names) if name not in own))
            joint.counts += margin.transpose([kept.index(name) for name in own])


@dataclass(frozen=True)
class _Stack:
    """Passes whose last block is the same: their counts are below one another, as rows of one matrix."""

    last: int
    width: int
    passes: Sequence[_Pass]
    whole: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "whole", np.zeros((self.edges[-1], self.width), dtype=np.int64))

    @cached_property
    def edges(self) -> list[int]:
        """Where the counts of each pass begin, and where the last one's end."""
        return list(accumulate((each.first for each in self.passes), initial=0))

    def add(self, numbers: Sequence[Numbers]) -> None:
        """Count rows by the numbers of their tuples in every block."""
        rows = np.empty((len(self.passes), len(numbers[self.last])), dtype=np.int32)
        for each, edge, out in zip(self.passes, self.edges[:-1], rows, strict=True):
            each.numbers(numbers, out)
            out += np.int32(edge)
        places = rows.reshape(-1), np.tile(numbers[self.last], len(rows))
        # Half the time of np.bincount, which wants one number of 64 bits a row and looks for their ends first.
        self.whole[...] += coo_array((np.ones(rows.size, dtype=np.int32), places), self.whole.shape).toarray()

    def settle(self) -> None:
        """Add to each joint what was counted for it."""
        for each, (start, stop) in zip(self.passes, pairwise(self.edges), strict=True):
            each.settle(self.whole[start:stop])
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
        blocks = _blocks(widths, limit)
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

    def stacks(self, joints: Sequence[Margin], rows: int) -> Iterator[_Stack]:
        """Yield the passes, for so many rows at a time."""
        by_last: dict[int, dict[Key, list[Margin]]] = {}
        for key, joint in zip(self.keys, joints, strict=True):
            if key is not None:
                by_last.setdefault(key[-1], {}).setdefault(key, []).append(joint)
        step = max(1, _ENTRIES // rows)
        for last, margins in by_last.items():
            passes = [_Pass(key, [self.blocks[place] for place in key], own) for key, own in margins.items()]
            for start in range(0, len(passes), step):
                yield _Stack(last, _size(self.blocks[last]), passes[start : start + step])


def _blocks(widths: Mapping[Any, int], limit: int) -> list[Block]:
    """Return columns in blocks: the widest first, each in the first block that has room."""
    blocks: list[Block] = []
    for name in sorted(widths, key=lambda name: -widths[name]):
        room = (block for block in blocks if _size(block) * widths[name] <= limit)
        block = next(room, None)
        if block is None:
            blocks.append(block := {})
        block[name] = widths[name]
    return blocks


@dataclass(frozen=True)
class JointCounting:
    """How many joints of few columns are counted in few passes: as margins of joints of more columns.

    Columns of few cells form blocks, and all pairs between two blocks are margins of these blocks' joint, so that one
    pass over the rows counts them. The counts are those of `Joint.add`, once they are settled. (A product of matrices
    that are 1 where a row is in a cell counts all pairs at once, but takes two operations a row and pair of cells: less
    than a pass only for pairs of up to 16 cells, and one pass counts hundreds of those.)

    Parameters
    ----------
    blocks
        The columns.
    single
        Joints of columns whose blocks have too many cells together, which are counted by themselves.
    stacks
        Joints that are counted together.

    Examples
    --------
    >>> joints = {names: Joint((2, 3)) for names in (("a", "x"), ("b", "x"))}
    >>> counting = JointCounting.of({"a": 2, "b": 2, "x": 3}, list(joints.items()), rows=2)
    >>> counting.add({"a": np.array([0, 1]), "b": np.array([1, 1]), "x": np.array([2, 0])})
    >>> counting.settle()
    >>> [joint.counts.tolist() for joint in joints.values()]
    [[[0, 0, 1], [1, 0, 0]], [[0, 0, 0], [1, 0, 1]]]
    """

    blocks: Sequence[Block]
    single: Sequence[Margin]
    stacks: Sequence[_Stack]

    @classmethod
    def of(cls, widths: Mapping[Any, int], joints: Sequence[Margin], rows: int, most: int = 1 << 17) -> JointCounting:
        """Return the fewest passes for some joints.

        Parameters
        ----------
        widths
            The cells of each column.
        joints
            Names of columns, and the joint of them.
        rows
            Most rows that are added at a time.
        most
            Cells of a pass: so many that they stay in the cache.
        """
        divisions = [_Division.of(widths, joints, limit, most) for limit in _LIMITS]
        small = [division for division in divisions if division.cells <= _MOST_CELLS]
        best = min(small or divisions[-1:], key=lambda division: division.cost)
        single = [joint for key, joint in zip(best.keys, joints, strict=True) if key is None]
        return cls(best.blocks, single, list(best.stacks(joints, rows)))

    def add(self, cells: Mapping[Any, Places]) -> None:
        """Count rows by their cells in each column."""
        for own, joint in self.single:
            joint.add([cells[name] for name in own])
        numbers = [_numbers(block, cells) for block in self.blocks] if self.stacks else []
        for each in self.stacks:
            each.add(numbers)

    def settle(self) -> None:
        """Add to the joints what was counted of them in common."""
        for each in self.stacks:
            each.settle()


def _numbers(block: Block, cells: Mapping[Any, Places]) -> Numbers:
    """Return the number of each row's tuple of cells, shape (n,)."""
    first, *others = block
    numbers = cells[first].astype(np.int32)
    for name in others:
        numbers *= np.int32(block[name])
        numbers += cells[name].astype(np.int32, copy=False)
    return numbers
