"""Contribution bounding on workers: the rows that one machine would choose of every person, and their places then.

Workers find the rows of every person that can be chosen, the driver chooses, and keeps a byte for each row, which goes
to the workers packed. A row that is taken several times is repeated in consecutive places, as on one machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.engines.readers import Reader
from dpframe.engines.work import CHANGED, Pieces, consecutive, placed
from dpframe.errors import FileError, ParameterError
from dpframe.noise.keystream import U64
from dpframe.tables.persons import Candidates, Counts, PersonChoice, PersonRows

_BLOCK = 64
"""Rows for which it is kept how many are taken before them."""


@dataclass(frozen=True)
class Chosen:
    """How often each row of a table, or of a part of it, is taken.

    >>> chosen = Chosen.of(np.array([1, 0, 2, 1], dtype=np.uint8))
    >>> chosen.often(np.array([2, 0])), chosen.places(np.array([2, 0]))
    (array([2, 1], dtype=uint8), array([1, 2, 0], dtype=uint64))
    """

    first: int
    """The place of the part's first row in the table."""
    n: int
    taken: int
    """How many rows are taken before the part's."""
    packed: bytes = field(repr=False)

    @classmethod
    def of(cls, counts: Counts, first: int = 0, taken: int = 0) -> Chosen:
        """Return counts in few bytes."""
        return cls(first, len(counts), taken, zlib.compress(counts.tobytes(), 1))

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def _blocks(self) -> Counts:
        counts = np.frombuffer(zlib.decompress(self.packed), np.uint8)
        return np.pad(counts, (0, -len(counts) % _BLOCK)).reshape(-1, _BLOCK)

    @cached_property
    def _before(self) -> U64:
        ends: U64 = np.cumsum(self._blocks.sum(axis=1, dtype=np.uint64), dtype=np.uint64)
        return np.concatenate([np.zeros(1, np.uint64), ends]) + np.uint64(self.taken)

    def often(self, rows: U64) -> Counts:
        """Return how often some rows are taken."""
        return self._blocks.ravel().take(self._within(rows))

    def _within(self, rows: U64) -> npt.NDArray[np.intp]:
        """Return the places of rows in the part."""
        if len(rows) and int(rows.max()) - self.first >= self.n:
            raise FileError(CHANGED)
        return rows.astype(np.intp) - self.first

    def places(self, rows: U64) -> U64:
        """Return the places of some rows once rows are chosen, each as often as it is taken."""
        block, place = np.divmod(self._within(rows), _BLOCK)
        known, which = np.unique(block, return_inverse=True)
        ends = np.cumsum(self._blocks[known], axis=1, dtype=np.uint64)
        often = self.often(rows)
        starts = self._before[block] + ends[which, place] - often
        again = np.arange(int(often.sum(dtype=np.int64))) - np.repeat(np.cumsum(often, dtype=np.int64) - often, often)
        places: U64 = np.repeat(starts, often) + again.astype(np.uint64)
        return places


@dataclass(frozen=True)
class ChosenReader:
    """Reads the rows that another reader reads, each as often as it is taken, without the column of persons.

    How often that is, comes with each part, or is said here of all of them.
    """

    inner: Reader
    person: str
    chosen: Chosen | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return self.inner.columns

    def only(self, names: Sequence[str], plain: Collection[str]) -> ChosenReader:
        """Return a reader of some columns."""
        return replace(self, inner=self.inner.only([*names, self.person], [*plain, self.person]))

    def keyed(self, key: bytes) -> ChosenReader:
        """Return the reader: rows are known by their places."""
        return self

    def __call__(self, part: Any, first: Any) -> Pieces:
        """Yield rows with the places that they have among those that are taken."""
        inner, chosen = part if self.chosen is None else (part, self.chosen)
        for frame, rows in self.inner(inner, first):
            origin = placed(rows, frame.n)
            taken = frame.of_persons(self.person, chosen.often(origin))
            taken.origin = origin
            yield taken, consecutive(chosen.places(origin))


def candidates(person: str, choice: PersonChoice, turn: int, pieces: Pieces) -> Candidates:
    """Return the rows of a part that can be chosen."""
    kept = PersonRows(choice.rows)
    for frame, rows in pieces:
        kept.add(*choice.candidates(frame.array(person), rows, turn), frame.n)
    return kept.candidates()


def within(found: Iterator[Candidates], n: int) -> Iterator[Candidates]:
    """Yield candidates, refused unless all are rows that were counted."""
    for persons, tags, at in found:
        if len(at) and int(at.max()) >= n:
            raise FileError(CHANGED)
        yield persons, tags, at


def check_places(by_id: bool) -> None:
    """Raise `ParameterError` for rows without places: a repeated row has no place next to itself."""
    if by_id:
        raise ParameterError(
            "privacy_id needs places, which rows by id have not; write the table to Parquet first, or leave id out"
        )
