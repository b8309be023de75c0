"""P(class | cell) of a joint: of each axis by its own matrix, of the columns of a group by one γ-diagonal channel."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def shares_at(values: Sequence[FloatArray], positions: Sequence[int], dimensions: int) -> FloatArray:
    """Return the outer product of vectors, each along its own axis of an array of so many dimensions."""
    placed = [
        np.reshape(v, [-1 if i == at else 1 for i in range(dimensions)])
        for v, at in zip(values, positions, strict=True)
    ]
    return reduce(np.multiply, placed, np.ones([1] * dimensions))


class Part(ABC):
    """Some axes of a joint whose noise does not depend on that of the others."""

    @abstractmethod
    def spread(self, shares: FloatArray) -> FloatArray:
        """Apply the channel along the part's axes."""

    @abstractmethod
    def adjoint(self, values: FloatArray) -> FloatArray:
        """Apply its transpose."""

    @abstractmethod
    def randomise(self, rows: Counts, generator: np.random.Generator) -> Counts:
        """Draw the classes of rows that are counted by cell."""


@dataclass(frozen=True, eq=False)
class AxisPart(Part):
    """One axis, by its matrix."""

    position: int
    matrix: FloatArray

    def spread(self, shares: FloatArray) -> FloatArray:
        """Apply the matrix along the axis."""
        return np.moveaxis(np.tensordot(self.matrix, shares, axes=(1, self.position)), 0, self.position)

    def adjoint(self, values: FloatArray) -> FloatArray:
        """Apply its transpose."""
        return np.moveaxis(np.tensordot(self.matrix.T, values, axes=(1, self.position)), 0, self.position)

    def randomise(self, rows: Counts, generator: np.random.Generator) -> Counts:
        """Draw from a multinomial law per cell."""
        moved = np.moveaxis(rows, self.position, 0)
        laws = (self.matrix / self.matrix.sum(axis=0)).T
        if rows.ndim == 1:
            return np.asarray(generator.multinomial(rows, laws).sum(axis=0))
        out = np.zeros((self.matrix.shape[0], *moved.shape[1:]), dtype=np.int64)
        for law, part in zip(laws, moved, strict=True):
            drawn = generator.multinomial(part.ravel(), law)
            out += np.moveaxis(drawn.reshape(*part.shape, -1), -1, 0)
        return np.moveaxis(out, 0, self.position)


@dataclass(frozen=True, eq=False)
class GroupPart(Part):
    """The axes of a group: with probability ``signal`` a row keeps its cell, else all codes are equally likely.

    ``laws`` has the share of each axis's codes that its cells hold.
    """

    positions: tuple[int, ...]
    signal: float
    laws: tuple[FloatArray, ...]

    def spread(self, shares: FloatArray) -> FloatArray:
        """Return signal·t + (1 − signal)·uniform·Σt."""
        uniform = shares_at(self.laws, self.positions, shares.ndim)
        return np.asarray(
            self.signal * shares + (1 - self.signal) * uniform * shares.sum(axis=self.positions, keepdims=True)
        )

    def adjoint(self, values: FloatArray) -> FloatArray:
        """Return signal·v + (1 − signal)·Σ uniform·v."""
        uniform = shares_at(self.laws, self.positions, values.ndim)
        mean = (uniform * values).sum(axis=self.positions, keepdims=True)
        return np.asarray(self.signal * values + (1 - self.signal) * mean)

    def randomise(self, rows: Counts, generator: np.random.Generator) -> Counts:
        """Keep some rows of every cell, and spread the others evenly over the codes."""
        kept = generator.binomial(rows, self.signal)
        lost = (rows - kept).sum(axis=self.positions)
        uniform = reduce(np.multiply.outer, self.laws)
        drawn = generator.multinomial(lost.ravel(), uniform.ravel() / uniform.sum())
        spread = drawn.reshape(*lost.shape, *uniform.shape)
        ends = range(lost.ndim, lost.ndim + uniform.ndim)
        return np.asarray(kept + np.moveaxis(spread, list(ends), self.positions))


@dataclass(frozen=True, eq=False)
class JointChannel:
    """The channel of a joint.

    ``matrices`` are those of the axes, each on its own: shape (classes, cells). ``parts`` is how they act
    together.
    """

    matrices: tuple[FloatArray, ...]
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, channels: JointChannel | Sequence[FloatArray]) -> JointChannel:
        """Return the channel of axes that are independent of each other, from their matrices."""
        if isinstance(channels, JointChannel):
            return channels
        return cls(tuple(channels), tuple(AxisPart(i, matrix) for i, matrix in enumerate(channels)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each axis."""
        return tuple(matrix.shape[1] for matrix in self.matrices)

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    def spread(self, shares: FloatArray) -> FloatArray:
        """Return the law of the classes from that of the cells."""
        for part in self.parts:
            shares = part.spread(shares)
        return shares

    def adjoint(self, values: FloatArray) -> FloatArray:
        """Apply the transpose."""
        for part in self.parts:
            values = part.adjoint(values)
        return values

    def randomise(self, rows: Counts, generator: np.random.Generator) -> Counts:
        """Draw the classes of rows that are counted by cell."""
        for part in self.parts:
            rows = part.randomise(rows, generator)
        return rows
