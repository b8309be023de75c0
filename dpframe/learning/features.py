"""Functions of columns for moments, and their surrogates row by row."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.errors import ParameterError
from dpframe.estimate.axes import NoiseBlock
from dpframe.estimate.moments import Scale
from dpframe.estimate.surrogates import LARGEST_TABLE, Codes
from dpframe.learning.base import FloatArray
from dpframe.plan.columns import Column, Group

MOST_LEVELS = 1 << 8
"""Most values of a column that becomes indicators."""


@dataclass(frozen=True)
class OwnRows:
    """The surrogates of functions z of one column, or of the constant, 0 where it is null, at some released rows.

    z·zᵀ is diagonal, as indicators exclude each other.
    """

    first: FloatArray
    """Surrogates of z, shape (n, q)."""
    squares: FloatArray
    present: FloatArray
    """Surrogates of "not null", shape (n,)."""

    def gram(self, weight: FloatArray) -> FloatArray:
        """Return Σ weight·(surrogate of z·zᵀ), shape (q, q)."""
        return np.diag(self.squares.T @ weight)

    def form(self, v: FloatArray) -> FloatArray:
        """Return the surrogates of (vᵀz)² for vectors v of shape (q, d), shape (n, d)."""
        return np.asarray(self.squares @ v**2)

    def times(self, v: FloatArray) -> FloatArray:
        """Return the surrogates of z·zᵀv for a vector v, shape (n, q)."""
        return self.squares * v


@dataclass(frozen=True)
class GroupRows:
    """Columns that share a noise block: surrogates from functions at the released tuple and their means over all."""

    noise: NoiseBlock
    values: FloatArray
    """z at the released tuple, shape (n, q)."""
    there: FloatArray
    """Whether no column is null there, shape (n,)."""
    mean: FloatArray
    """z̄."""
    second: FloatArray
    """The mean of z·zᵀ over all tuples."""
    share: float
    """The share of tuples without nulls."""

    @property
    def first(self) -> FloatArray:
        """Surrogates of z."""
        return self.noise.sums(self.values, self.mean)

    @property
    def present(self) -> FloatArray:
        """Surrogates of "not null"."""
        return self.noise.sums(self.there, self.share)

    def gram(self, weight: FloatArray) -> FloatArray:
        """Return the weighted sums of the surrogates of z·zᵀ."""
        return self.noise.sums((self.values * weight[:, None]).T @ self.values, self.second, weight.sum())

    def form(self, v: FloatArray) -> FloatArray:
        """Return the surrogates of (vᵀz)²."""
        return self.noise.sums((self.values @ v) ** 2, np.einsum("jd,jk,kd->d", v, self.second, v))

    def times(self, v: FloatArray) -> FloatArray:
        """Return the surrogates of z·zᵀv."""
        return self.noise.sums(self.values * (self.values @ v)[:, None], self.second @ v)


Rows = OwnRows | GroupRows
"""The surrogates of a block at some released rows."""


class FeatureBlock(ABC):
    """Functions in the moment matrix whose noise is independent of all others': a constant, a column, a group."""

    @property
    @abstractmethod
    def members(self) -> tuple[ColumnBlock, ...]:
        """The columns, whose functions follow each other."""

    @property
    @abstractmethod
    def has_nulls(self) -> bool:
        """Whether rows are left out where a column is null (null is one more value of categories)."""

    @abstractmethod
    def rows(self, codes: Codes) -> Rows:
        """Return the surrogates at released codes."""


class Constant(FeatureBlock):
    """The function 1."""

    members = ()
    has_nulls = False

    def rows(self, codes: Codes) -> Rows:
        """Return ones."""
        one = np.ones((len(next(iter(codes.values()))), 1))
        return OwnRows(one, one, one[:, 0])


@dataclass(frozen=True, eq=False)
class ColumnBlock(FeatureBlock):
    """A column's functions: its scaled value (or rank), or indicators of all values but the first.

    Indicators have no ``scale``.
    """

    column: Column
    names: tuple[str, ...]
    scale: Scale | None = None

    @classmethod
    def of(cls, column: Column, centred: bool = True) -> ColumnBlock:
        """Make the block of a column."""
        space = column.space
        if space.code_words:
            raise ParameterError(
                f"column {column.name!r} holds {space.noun}, which are no numbers or categories; leave it out of X "
                f"({space.instead} describe it)"
            )
        if space.is_numeric or (space.is_listed and space.inner_space.metric == "line"):
            scale = Scale.of(column) if space.is_numeric else _ranks(column)
            return cls(column, (column.name,), scale if centred else _from_zero(scale))
        if space.size > MOST_LEVELS or space.size < 2:
            raise ParameterError(
                f"column {column.name!r} has {space.size:,} values, and from 2 to {MOST_LEVELS:,} can become "
                "indicators; leave it out of X"
            )
        labels = space.labels()[1:]
        return cls(column, tuple(f"{column.name}_{'null' if label is None else label}" for label in labels))

    @property
    def unit(self) -> tuple[float, float]:
        """Centre and width by which its functions are scaled."""
        return (self.scale.centre, self.scale.width) if self.scale else (0.0, 1.0)

    @property
    def members(self) -> tuple[ColumnBlock, ...]:
        """The block itself."""
        return (self,)

    @property
    def has_nulls(self) -> bool:
        """Whether a number or rank may be null."""
        return self.scale is not None and self.column.space.has_null

    def functions(self, codes: npt.NDArray[Any]) -> FloatArray:
        """Return the functions of codes, 0 where null, shape (n, q)."""
        if self.scale is None:
            return np.asarray(codes[:, None] == np.arange(1, self.column.space.size), dtype=np.float64)
        return np.asarray(self.scale.value(codes) * self.scale.present(codes))[:, None]

    def present(self, codes: npt.NDArray[Any]) -> FloatArray:
        """Return which codes are not left out."""
        return self.scale.present(codes) if self.scale else np.ones(len(codes))

    def truth(self, codes: Codes) -> FloatArray:
        """Return the functions of true codes; NaN where null."""
        x = codes[self.column.name]
        return np.where(self.present(x)[:, None] > 0, self.functions(x), np.nan)

    @cached_property
    def _tables(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The surrogates by released code."""
        if self.scale is None:
            indicators = self.column.mechanism.invert(np.eye(self.column.space.size)).T[:, 1:]
            return indicators, indicators, np.ones(self.column.space.size)
        return self._at(np.arange(self.column.mechanism.outputs))

    def _at(self, codes: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray, FloatArray]:
        at = self.column.mechanism.surrogate_at
        first = at(lambda c: self.functions(c)[:, 0], codes)
        second = at(lambda c: self.functions(c)[:, 0] ** 2, codes)
        there = at(self.present, codes) if self.has_nulls else np.ones(len(codes))
        return first[:, None], second[:, None], there

    def rows(self, codes: Codes) -> Rows:
        """Look the surrogates up."""
        y = codes[self.column.name]
        if self.column.mechanism.outputs > LARGEST_TABLE:
            return OwnRows(*self._at(y))
        return OwnRows(*(table[y] for table in self._tables))


@dataclass(frozen=True, eq=False)
class GroupFeatures(FeatureBlock):
    """Columns that were randomised together, each with its own functions."""

    parts: tuple[ColumnBlock, ...]
    group: Group

    @property
    def members(self) -> tuple[ColumnBlock, ...]:
        """The columns' blocks."""
        return self.parts

    @property
    def has_nulls(self) -> bool:
        """Whether one of them may be null."""
        return any(part.has_nulls for part in self.parts)

    @cached_property
    def _means(self) -> tuple[FloatArray, FloatArray, float]:
        """Means of z, z·zᵀ and presence over all tuples, whose coordinates are independent."""
        everywhere = [np.arange(part.column.space.size) for part in self.parts]
        values = [part.functions(codes) for part, codes in zip(self.parts, everywhere, strict=True)]
        shares = [float(part.present(codes).mean()) for part, codes in zip(self.parts, everywhere, strict=True)]
        share = math.prod(shares)
        # Per part relative to its own presence, so that leaving a part out is a division.
        means = [value.mean(axis=0) / there for value, there in zip(values, shares, strict=True)]
        mean = np.concatenate(means)
        second = np.outer(mean, mean)
        start = 0
        for value, there in zip(values, shares, strict=True):
            own = slice(start, start := start + value.shape[1])
            second[own, own] = value.T @ value / len(value) / there
        return mean * share, second * share, share

    def rows(self, codes: Codes) -> Rows:
        """Return the functions of the released tuples, and what their surrogates need."""
        there = np.ones(len(next(iter(codes.values()))))
        for part in self.parts:
            there = there * part.present(codes[part.column.name])
        values = np.concatenate([part.functions(codes[part.column.name]) for part in self.parts], axis=1)
        mean, second, share = self._means
        return GroupRows(NoiseBlock.of(self.group), values * there[:, None], there, mean, second, share)


class FunctionMoments:
    """What moments M = Σ z·zᵀ of a constant and columns' functions z say of their order, wherever they are from."""

    def __init__(self, columns: Sequence[ColumnBlock]) -> None:
        self.columns = list(columns)
        ends = np.cumsum([1, *(len(column.names) for column in columns)])
        self.places = [np.arange(a, b) for a, b in pairwise(ends)]
        self.size = int(ends[-1])

    @property
    def names(self) -> list[str]:
        """Names of the functions."""
        return ["intercept", *(name for column in self.columns for name in column.names)]

    @property
    def units(self) -> tuple[FloatArray, FloatArray]:
        """Centres and widths by which the functions are scaled."""
        pairs = [(0.0, 1.0), *(column.unit for column in self.columns for _ in column.names)]
        return np.array([centre for centre, _ in pairs]), np.array([width for _, width in pairs])


def make_blocks(members: Sequence[ColumnBlock], groups: Sequence[Group]) -> list[FeatureBlock]:
    """Return the blocks of a constant and of columns; columns of one group make one."""
    blocks: list[FeatureBlock] = [Constant()]
    made = {member.column.name: member for member in members}
    for name, block in made.items():
        group = next((group for group in groups if name in group.names), None)
        together = tuple(made[other] for other in made if group is not None and other in group.names)
        if group is None or len(together) < 2:
            blocks.append(block)
        elif together[0] is block:
            blocks.append(GroupFeatures(together, group))
    return blocks


def _ranks(column: Column) -> Scale:
    """Return the scale of an ordered column's ranks 0, 1, …, which are its codes."""
    last = column.space.values - 1
    half = max(last / 2, 0.5)

    def value(codes: npt.NDArray[Any]) -> FloatArray:
        return np.where(codes <= last, codes / half - 1, 0.0)

    def present(codes: npt.NDArray[Any]) -> FloatArray:
        return np.asarray(codes <= last, dtype=np.float64)

    return Scale(column, half, half, value, present)


def _from_zero(scale: Scale) -> Scale:
    """Return a scale that leaves 0 where it is: without a constant, values themselves are regressed."""
    width = abs(scale.centre) + scale.width

    def value(codes: npt.NDArray[Any]) -> FloatArray:
        return (scale.value(codes) * scale.width + scale.centre * scale.present(codes)) / width

    return replace(scale, centre=0.0, width=width, value=value)
