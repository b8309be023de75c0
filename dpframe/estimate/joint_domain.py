"""The domain of a joint: its axes, and the blocks of axes with independent noise.

A single column is one block; the crossed columns of a group are one block. Sums over rows of products of surrogates,
and P(class | cell), are computed block by block: the Kronecker product is never formed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from dpframe.estimate.axes import Axis, NoiseBlock
from dpframe.estimate.evidence.likelihood import randomised
from dpframe.observe.noisy_counts import through
from dpframe.spaces.arrays import FloatArray

Counts = npt.NDArray[np.int64]

SQUARED = frozenset({"cell²", "base²", "cell·base"})


@dataclass(frozen=True, eq=False)
class AxisBlock:
    """One axis, at its position in a joint."""

    axis: Axis
    position: int

    def sums(self, counts: FloatArray, what: str, given: Collection[int], dropna: bool) -> FloatArray:
        """Return Σ counts·Φ, Φ², W, W² or Φ·W over the axis's classes, as `JointDomain.sums` says.

        If the axis is not given, its base is 1, or the surrogate of "not null".
        """
        class_counts = np.moveaxis(counts, self.position, 0)
        if self.position in given or what in ("cell", "cell²"):
            sums = self.axis.invert(class_counts, squared=what in SQUARED)
        else:
            if dropna and self.axis.has_null:
                weight = self.axis.present.reshape([-1] + [1] * (counts.ndim - 1))
                # The base is a weight per class; its squares enter only without products.
                class_counts = class_counts * (weight**2 if what == "base²" else weight)
            sums = self.axis.invert(class_counts) if what == "cell·base" else class_counts.sum(axis=0, keepdims=True)
        return np.moveaxis(sums, 0, self.position)

    def spread(self, shares: FloatArray) -> FloatArray:
        """Apply the axis's matrix."""
        return through(self.axis.channel, shares, self.position)

    def adjoint(self, values: FloatArray) -> FloatArray:
        """Apply its transpose."""
        return through(self.axis.channel.T, values, self.position)

    def randomise(self, rows: Counts, generator: np.random.Generator) -> Counts:
        """Draw from a multinomial law per cell."""
        return randomised(self.axis.channel, rows, self.position, generator)


@dataclass(frozen=True, eq=False)
class GroupBlock:
    """The crossed axes of a group, whose cells are their classes.

    The indicator of a set of tuples has the set's share as its mean over all tuples. All sums are of surrogates of such
    indicators, for cells and their bases.
    """

    axes: tuple[Axis, ...]
    positions: tuple[int, ...]

    @property
    def noise(self) -> NoiseBlock:
        """The noise of the group."""
        return self.axes[0].noise

    def sums(self, counts: FloatArray, what: str, given: Collection[int], dropna: bool) -> FloatArray:
        """Return the sums in closed form, summed-out axes kept with one cell."""
        n, law = counts.sum(axis=self.positions, keepdims=True), self._law(counts.ndim)
        if what == "cell":
            return self.noise.sums(counts, law, n)
        if what == "cell²":
            return self.noise.squares(counts, counts, law, n)
        free = tuple(at for at in self.positions if at not in given)
        if len(free) == len(self.positions) and not (dropna and any(axis.has_null for axis in self.axes)):
            # The base is all rows. Its surrogate is exactly 1, which the difference below would only approximate.
            return self.sums(counts, "cell", given, dropna) if what == "cell·base" else n
        in_base = [
            axis.not_null if dropna and at in free else np.ones(axis.cells)
            for axis, at in zip(self.axes, self.positions, strict=True)
        ]
        mask = self._outer_product(in_base, counts.ndim)
        base_counts, base = ((values * mask).sum(axis=free, keepdims=True) for values in (counts, law))
        if what == "base":
            return self.noise.sums(base_counts, base, n)
        if what == "base²":
            return self.noise.squares(base_counts, base_counts, base, n)
        # Without nulls, null cells lie in no base; they are not shown.
        return self.noise.products(counts, (counts, base_counts), (law, base), n)

    def _outer_product(self, vectors: Sequence[FloatArray], dimensions: int) -> FloatArray:
        """Return the product of a vector along each axis, in an array of the joint's dimensions."""
        shapes = [[-1 if i == at else 1 for i in range(dimensions)] for at in self.positions]
        return reduce(np.multiply, (vector.reshape(shape) for vector, shape in zip(vectors, shapes, strict=True)))

    def _law(self, dimensions: int) -> FloatArray:
        """Return the share of all tuples in each cell."""
        return self._outer_product([axis.law for axis in self.axes], dimensions)

    def spread(self, shares: FloatArray) -> FloatArray:
        """Keep the share s of all cells, and spread the rest evenly over all tuples."""
        law = self._law(shares.ndim)
        return self.noise.spread(shares, shares.sum(axis=self.positions, keepdims=True), law)

    def adjoint(self, values: FloatArray) -> FloatArray:
        """Keep the share s of all values, and add the rest of their mean."""
        mean = (self._law(values.ndim) * values).sum(axis=self.positions, keepdims=True)
        return self.noise.spread(values, mean, 1.0)

    def randomise(self, rows: Counts, generator: np.random.Generator) -> Counts:
        """Keep some rows of every cell, and spread the others evenly over all tuples."""
        kept_rows = generator.binomial(rows, self.noise.signal)
        lost_rows = (rows - kept_rows).sum(axis=self.positions)
        law = reduce(np.multiply.outer, [axis.law for axis in self.axes])
        noise_rows = generator.multinomial(lost_rows.ravel(), law.ravel() / law.sum()).reshape(
            *lost_rows.shape, *law.shape
        )
        ends = range(lost_rows.ndim, lost_rows.ndim + law.ndim)
        return np.asarray(kept_rows + np.moveaxis(noise_rows, list(ends), self.positions))


Block = AxisBlock | GroupBlock
"""Some axes of a joint whose noise is independent of all other axes."""


@dataclass(frozen=True, eq=False)
class JointDomain:
    """The cells and classes of some axes crossed with each other, and the channel between them.

    Rows by cell and by class are arrays with one dimension per axis.
    """

    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each axis."""
        return tuple(axis.cells for axis in self.axes)

    @property
    def laws(self) -> list[FloatArray]:
        """P(class | cell) of each axis by itself."""
        return [axis.channel for axis in self.axes]

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of independent noise."""
        blocks: list[Block] = []
        groups: dict[tuple[str, ...], list[tuple[int, Axis]]] = {}
        for i, axis in enumerate(self.axes):
            if axis.group is not None:
                groups.setdefault(axis.group.names, []).append((i, axis))
            else:
                blocks.append(AxisBlock(axis, i))
        for members in groups.values():
            blocks.append(GroupBlock(tuple(axis for _, axis in members), tuple(i for i, _ in members)))
        return tuple(blocks)

    def sums(
        self, counts: FloatArray, what: str = "cell", given: Collection[int] = (), dropna: bool = False
    ) -> FloatArray:
        """Sum surrogates over rows that are counted by class.

        ``counts``: rows by class. ``what``: ``"cell"`` for Φ, the surrogate of every cell's indicator; ``"base"`` for
        W, the surrogate of a cell's base; ``"cell²"``, ``"base²"``, ``"cell·base"`` for the products. A cell's base has
        the rows that agree with the cell on the given axes. ``given``: positions of these axes. ``dropna``: whether a
        base excludes nulls on the other axes. A base has one cell along axes on which it does not depend.
        """
        return reduce(lambda sums, block: block.sums(sums, what, given, dropna), self.blocks, counts)

    def spread(self, shares: FloatArray) -> FloatArray:
        """Return the law of the classes from the law of the cells."""
        return reduce(lambda law, block: block.spread(law), self.blocks, shares)

    def adjoint(self, values: FloatArray) -> FloatArray:
        """Apply the transpose of `spread`."""
        return reduce(lambda part, block: block.adjoint(part), self.blocks, values)

    def randomise(self, rows: Counts, generator: np.random.Generator) -> Counts:
        """Draw the classes of rows that are counted by cell."""
        return reduce(lambda part, block: block.randomise(part, generator), self.blocks, rows)
