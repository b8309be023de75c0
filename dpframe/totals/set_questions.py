"""Exact totals of sets, and numbers of distinct values, that questions ask for.

A replaced row removes the items of one set and adds the items of another, up to c each. Then up to 2c counts of items
move by 1 (c if a row is added). The number of distinct items moves by c at most, and the number of distinct values of a
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
from dpframe.totals.questions import Holds, Question, Totals, match_rows

Bits = npt.NDArray[np.bool_]


def unpack_sets(codes: Codes, count: int) -> tuple[Bits, Bits]:
    """Return whether each set contains each of ``count`` items, shape (rows, items), and whether each row is null."""
    rows = np.ascontiguousarray(codes, dtype="<u8").view(np.uint8)
    # The bit after the last item marks null.
    bits = np.unpackbits(rows, axis=1, bitorder="little").view(np.bool_)
    return bits[:, :count], bits[:, count]


def holds_items(count: int, places: Sequence[int], how: str, wrong: bool) -> Holds:
    """Return the condition that a set contains all, or any, of some items; or, if ``wrong``, that it does not.

    Null meets neither.
    """
    test: Callable[..., Any] = {"all": np.all, "any": np.any}[how]

    def holds(codes: Codes) -> Bits:
        bits, null = unpack_sets(codes, count)
        return np.asarray((test(bits[:, list(places)], axis=1) != wrong) & ~null)

    return holds


def size_places(count: int) -> Callable[[Codes], IntArray]:
    """Return a function that maps sets of ``count`` items to their sizes, and null to count + 1."""

    def places(codes: Codes) -> IntArray:
        words = codes.astype(np.uint64)
        return np.where(unpack_sets(words, count)[1], count + 1, set_sizes(words))

    return places


@dataclass
class ItemCounts(Question):
    """Number of sets that contain each item, each set cut to ``max_items`` items by its row's word.

    Without a stream sets are not cut. This serves scores, which move by 1 each for sets of any size.
    """

    name: str
    count: int
    max_items: int
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
        moves = min(self.count, self.max_items * (1 if self.unit.added else 2))
        return (Numbers(self.count, moves, 1, self.unit.rows),)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count sets by their items."""
        mine, inside = codes[self.name].astype(np.uint64), match_rows(self.conditions, codes)
        if self.stream is not None:
            null = unpack_sets(mine, self.count)[1]
            # The bit of null is no item; the cut must not choose it.
            mine = np.where(null[:, None], np.uint64(0), mine)
            mine = cut(mine, self.max_items, partial(self.stream.words, 0, self.rows))
        self.rows += len(mine)
        bits, null = unpack_sets(mine, self.count)
        self.counts += bits[inside & ~null].sum(axis=0, dtype=np.int64)

    @property
    def totals(self) -> Totals:
        """The counts."""
        return [self.counts.tolist()]


@dataclass
class ChosenCounts(Question):
    """The counts of some cells or items of another question, chosen without looking at that question's totals."""

    question: Question
    places: tuple[int, ...]

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """The counts."""
        (every,) = self.question.numbers
        size = len(self.places)
        # The choice is public, so that only the chosen numbers can move.
        return (replace(every, size=size, moves=min(size, every.moves)),)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows."""
        self.question.add(codes)

    @property
    def totals(self) -> Totals:
        """The counts."""
        (every,) = self.question.totals
        return [[every[place] for place in self.places]]


@dataclass
class Distinct(Question):
    """Number of cells of a table of counts, or of items, that occur: a row moves it by at most its number of items."""

    question: Question
    max_items: int

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """One number."""
        (every,) = self.question.numbers
        return (Numbers(span=self.max_items, contributions=every.contributions),)

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows."""
        self.question.add(codes)

    @property
    def totals(self) -> Totals:
        """The number of distinct values."""
        (every,) = self.question.totals
        return [[sum(count > 0 for count in every)]]
