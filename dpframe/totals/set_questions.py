"""What questions count of sets, and of values that occur at all.

A replaced row takes the items of one set away and brings those of another, up to c each: counts of items move by 1, up
to 2c of them (c where a row is added), and the number of distinct items by c at most, that of distinct values of a
column of one value a row by 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.accounting.unit import Unit
from dpframe.noise.keystream import ColumnStream
from dpframe.spaces.arrays import IntArray
from dpframe.spaces.set_bits import cut, set_sizes
from dpframe.totals.answers import Numbers
from dpframe.totals.counts import Codes
from dpframe.totals.questions import Holds, Question, Totals, met

Bits = npt.NDArray[np.bool_]


def held(codes: Codes, count: int) -> tuple[Bits, Bits]:
    """Return which of so many items each set holds, shape (rows, items), and which rows are null."""
    rows = np.ascontiguousarray(codes, dtype="<u8").view(np.uint8)
    bits = np.unpackbits(rows, axis=1, bitorder="little").view(np.bool_)
    return bits[:, :count], bits[:, count]


def holds_items(count: int, places: Sequence[int], how: str, wrong: bool) -> Holds:
    """Return the condition that a set holds all, or any, of some items; or, if ``wrong``, that it does not.

    Null meets neither.
    """
    test: Callable[..., Any] = {"all": np.all, "any": np.any}[how]

    def holds(codes: Codes) -> Bits:
        bits, null = held(codes, count)
        return np.asarray((test(bits[:, list(places)], axis=1) != wrong) & ~null)

    return holds


def size_places(count: int) -> Callable[[Codes], IntArray]:
    """Return what gives the size of each set of so many items, and count + 1 for null."""

    def places(codes: Codes) -> IntArray:
        wide = codes.astype(np.uint64)
        return np.where(held(wide, count)[1], count + 1, set_sizes(wide))

    return places


@dataclass
class ItemCounts(Question):
    """In how many sets each item lies, each set cut to ``most`` items by its row's word.

    Without a stream sets are not cut: for scores, which move by 1 each for sets of any size.
    """

    name: str
    count: int
    most: int
    unit: Unit
    stream: ColumnStream | None = field(default=None, repr=False)
    conditions: Mapping[str, Holds] = field(default_factory=dict)
    rows: int = 0
    counts: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.count, dtype=np.int64)

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """The items' counts."""
        moved = min(self.count, self.most * (1 if self.unit.added else 2))
        return (Numbers(self.count, moved, 1, self.unit.rows),)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count sets by their items."""
        mine, inside = codes[self.name].astype(np.uint64), met(self.conditions, codes)
        if self.stream is not None:
            null = held(mine, self.count)[1]
            mine = np.where(null[:, None], np.uint64(0), mine)
            mine = cut(mine, self.most, partial(self.stream.words, 0, self.rows))
        self.rows += len(mine)
        bits, null = held(mine, self.count)
        self.counts += bits[inside & ~null].sum(axis=0, dtype=np.int64)

    @property
    def totals(self) -> Totals:
        """The counts."""
        return [self.counts.tolist()]


@dataclass
class ChosenCounts(Question):
    """The counts of some cells or items of another question, chosen without looking at that question's totals."""

    whole: Question
    places: tuple[int, ...]

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """The counts."""
        (every,) = self.whole.numbers
        size = len(self.places)
        return (replace(every, size=size, moved=min(size, every.moved)),)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows."""
        self.whole.add(codes)

    @property
    def totals(self) -> Totals:
        """The counts."""
        (every,) = self.whole.totals
        return [[every[place] for place in self.places]]


@dataclass
class Distinct(Question):
    """How many cells of a table of counts, or items, occur at all: one row moves it by at most what it holds."""

    whole: Question
    most: int

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """One number."""
        (every,) = self.whole.numbers
        return (Numbers(span=self.most, contributions=every.contributions),)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows."""
        self.whole.add(codes)

    @property
    def totals(self) -> Totals:
        """The number of distinct values."""
        (every,) = self.whole.totals
        return [[sum(count > 0 for count in every)]]
