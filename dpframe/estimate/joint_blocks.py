"""Blocks of a joint: axes whose noise is independent of that of all other axes.

A column is a block of its own; the columns of a group that are crossed with each other are one block. Sums over
rows of products of surrogates are taken block by block, and the Kronecker product is never formed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from dpframe.estimate.axes import Axis, MemberAxis
from dpframe.estimate.joint_channel import AxisPart, GroupPart, JointChannel, Part, shares_at
from dpframe.mechanisms import GammaDiagonal

FloatArray = npt.NDArray[np.float64]

SQUARED = frozenset({"cell²", "base²", "cell·base"})


class Block(ABC):
    """Some axes of a joint, at their positions in it.

    A *base* is what a cell is a share of: the rows that agree with it on the given axes, and (if nulls are left out)
    are not null on the others.
    """

    @abstractmethod
    def sums(self, counts: FloatArray, what: str, given: Collection[int], dropna: bool) -> FloatArray:
        """Return Σ counts·Φ, Φ², W, W² or Φ·W over the block's classes, as `surrogate_sums` says."""

    @property
    @abstractmethod
    def part(self) -> Part:
        """What the channel does to the block's axes."""


@dataclass(frozen=True, eq=False)
class AxisBlock(Block):
    """One axis."""

    axis: Axis
    position: int

    def sums(self, counts: FloatArray, what: str, given: Collection[int], dropna: bool) -> FloatArray:
        """Invert the axis; where it is not given the base is 1, or the surrogate of "not null"."""
        moved = np.moveaxis(counts, self.position, 0)
        if self.position in given or what in ("cell", "cell²"):
            found = self.axis.invert(moved, squared=what in SQUARED)
        else:
            if dropna and self.axis.has_null:
                weight = self.axis.present.reshape([-1] + [1] * (counts.ndim - 1))
                moved = moved * (weight**2 if what == "base²" else weight)
            found = self.axis.invert(moved) if what == "cell·base" else moved.sum(axis=0, keepdims=True)
        return np.moveaxis(found, 0, self.position)

    @property
    def part(self) -> Part:
        """The axis's own matrix."""
        return AxisPart(self.position, self.axis.channel)


@dataclass(frozen=True, eq=False)
class GroupBlock(Block):
    """The axes of a group.

    With p the probability of a wrong tuple and s that of the right one less p, a set C of tuples has the surrogate
    φ_C(y) = (1[y ∈ C] − p·|C|)/s. All sums below are of products of such, for cells v and their bases D ∋ v.
    """

    axes: tuple[MemberAxis, ...]
    positions: tuple[int, ...]

    @cached_property
    def mechanism(self) -> GammaDiagonal:
        """The channel of the block's columns."""
        return self.axes[0].group.marginal([axis.name for axis in self.axes])

    def sums(self, counts: FloatArray, what: str, given: Collection[int], dropna: bool) -> FloatArray:
        """Return the sums in closed form, summed-out axes kept with one cell."""
        s, n = self.mechanism.table.signal, counts.sum(axis=self.positions, keepdims=True)
        cell = self.mechanism.other * self._volumes(counts.ndim, self.positions, False)
        if what == "cell":
            return np.asarray((counts - cell * n) / s)
        if what == "cell²":
            return np.asarray((counts * (1 - 2 * cell) + cell**2 * n) / s**2)
        if not set(given) & set(self.positions) and not (dropna and any(axis.has_null for axis in self.axes)):
            # The base is everything, and its surrogate 1: not nearly so, as the difference below would make it.
            return self.sums(counts, "cell", given, dropna) if what == "cell·base" else n
        inside, base = self._within(counts, given, dropna)
        if what == "base":
            return np.asarray((inside - base * n) / s)
        if what == "base²":
            return np.asarray((inside * (1 - 2 * base) + base**2 * n) / s**2)
        # Cells that are null where nulls are left out lie in no base; they are not shown.
        return np.asarray((counts - base * counts - cell * inside + cell * base * n) / s**2)

    def _volumes(self, dimensions: int, positions: Collection[int], present: bool) -> FloatArray:
        """Return the number of tuples in cells of some axes, or only of those that are not null."""
        values = [
            axis.volumes * _not_null(axis) if present else axis.volumes
            for axis, at in zip(self.axes, self.positions, strict=True)
            if at in positions
        ]
        return shares_at(values, [at for at in self.positions if at in positions], dimensions)

    def _present(self, dimensions: int, given: Collection[int], dropna: bool) -> FloatArray:
        """Tell the cells that lie in their base: 1, or 0 where a free axis is null and nulls are left out."""
        free = [(_not_null(a), at) for a, at in zip(self.axes, self.positions, strict=True) if at not in given]
        if not dropna:
            return np.ones([1] * dimensions)
        return shares_at([mask for mask, _ in free], [at for _, at in free], dimensions)

    def _within(self, counts: FloatArray, given: Collection[int], dropna: bool) -> tuple[FloatArray, FloatArray]:
        """Return the counts of every base D, and p·|D|."""
        free = tuple(at for at in self.positions if at not in given)
        inside = (counts * self._present(counts.ndim, given, dropna)).sum(axis=free, keepdims=True)
        held = self._volumes(counts.ndim, [at for at in self.positions if at in given], False)
        others = self._volumes(counts.ndim, free, dropna).sum()
        return inside, self.mechanism.other * held * others

    @property
    def part(self) -> Part:
        """The group's channel."""
        laws = tuple(axis.volumes / axis.column.space.size for axis in self.axes)
        return GroupPart(self.positions, self.mechanism.table.signal, laws)


def _not_null(axis: Axis) -> FloatArray:
    mask = np.ones(axis.cells)
    mask[axis.cells - axis.has_null :] = 0.0
    return mask


def blocks_of(axes: Sequence[Axis]) -> list[Block]:
    """Return the blocks of a joint."""
    found: list[Block] = []
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, axis in enumerate(axes):
        if isinstance(axis, MemberAxis):
            groups.setdefault(axis.group.names, []).append(i)
        else:
            found.append(AxisBlock(axis, i))
    for positions in groups.values():
        members = tuple(axis for axis in (axes[i] for i in positions) if isinstance(axis, MemberAxis))
        found.append(GroupBlock(members, tuple(positions)))
    return found


def channel_of(axes: Sequence[Axis]) -> JointChannel:
    """Return P(class | cell) of a joint."""
    return JointChannel(tuple(axis.channel for axis in axes), tuple(block.part for block in blocks_of(axes)))


def surrogate_sums(
    counts: FloatArray, axes: Sequence[Axis], what: str = "cell", given: Collection[int] = (), dropna: bool = False
) -> FloatArray:
    """Sum surrogates over rows that are counted by class.

    Parameters
    ----------
    counts
        Rows by class, one dimension per axis.
    what
        ``"cell"`` for Φ, the surrogate of every cell's indicator; ``"base"`` for W, that of the cell's base (see
        `Block`), with one cell along the axes that it does not depend on; ``"cell²"``, ``"base²"``,
        ``"cell·base"`` for the products.
    given, dropna
        The axes on which a base agrees with its cell, by position, and whether it leaves out nulls elsewhere.
    """
    return reduce(lambda sums, block: block.sums(sums, what, given, dropna), blocks_of(axes), counts)
