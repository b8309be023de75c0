"""Contribution bounding on workers, with the choice that one machine would make.

Workers find the candidate rows of every person. The driver chooses among them and has one byte for each row, its count,
which goes to the workers compressed. A repeated row has consecutive positions, as on one machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.engines.readers import Reader
from dpframe.engines.work import CHANGED, Pieces, compact_rows, row_places
from dpframe.errors import FileError, ParameterError
from dpframe.noise.keystream import U64
from dpframe.spaces.base import forwarded
from dpframe.tables.persons import Candidates, Counts, PersonChoice, PersonRows

_BLOCK_ROWS = 64
"""Rows of a block, for each of which the number of rows before it is stored (limit of memory)."""


@dataclass(frozen=True)
class RowCounts:
    """How often a release repeats each row of a table, or of a part of a table.

    >>> counts = RowCounts.of(np.array([1, 0, 2, 1], dtype=np.uint8))
    >>> counts.counts_of(np.array([2, 0])), counts.new_places(np.array([2, 0]))
    (array([2, 1], dtype=uint8), array([1, 2, 0], dtype=uint64))
    """

    first_row: int
    """Position of the part's first row in the table."""
    n: int
    rows_before: int
    """Number of released rows before the part."""
    packed_counts: bytes = field(repr=False)

    @classmethod
    def of(cls, counts: Counts, first_row: int = 0, rows_before: int = 0) -> RowCounts:
        """Return counts in compressed form."""
        return cls(first_row, len(counts), rows_before, zlib.compress(counts.tobytes(), 1))

    def __getstate__(self) -> dict[str, Any]:
        # Without the cached properties, which are larger than the compressed counts.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def _blocks(self) -> Counts:
        counts = np.frombuffer(zlib.decompress(self.packed_counts), np.uint8)
        return np.pad(counts, (0, -len(counts) % _BLOCK_ROWS)).reshape(-1, _BLOCK_ROWS)

    @cached_property
    def _rows_before_blocks(self) -> U64:
        ends: U64 = np.cumsum(self._blocks.sum(axis=1, dtype=np.uint64), dtype=np.uint64)
        return np.concatenate([np.zeros(1, np.uint64), ends]) + np.uint64(self.rows_before)

    def counts_of(self, rows: U64) -> Counts:
        """Return the counts of some rows."""
        return self._blocks.ravel().take(self._positions_of(rows))

    def _positions_of(self, rows: U64) -> npt.NDArray[np.intp]:
        """Return the positions of rows within the part; `FileError` for a row beyond its end."""
        if len(rows) and int(rows.max()) - self.first_row >= self.n:
            raise FileError(CHANGED)
        return rows.astype(np.intp) - self.first_row

    def new_places(self, rows: U64) -> U64:
        """Return the positions of some rows in the release before shuffling, repeated by their counts."""
        block, position = np.divmod(self._positions_of(rows), _BLOCK_ROWS)
        # Cumulative sums of few blocks, and not of all rows of the table.
        distinct_blocks, block_indices = np.unique(block, return_inverse=True)
        ends = np.cumsum(self._blocks[distinct_blocks], axis=1, dtype=np.uint64)
        row_counts = self.counts_of(rows)
        starts = self._rows_before_blocks[block] + ends[block_indices, position] - row_counts
        repeat_numbers = np.arange(int(row_counts.sum(dtype=np.int64))) - np.repeat(
            np.cumsum(row_counts, dtype=np.int64) - row_counts, row_counts
        )
        places: U64 = np.repeat(starts, row_counts) + repeat_numbers.astype(np.uint64)
        return places


@dataclass(frozen=True)
class RepeatReader:
    """Repeats the rows of another reader by their counts, without the column of persons.

    ``row_counts`` are those of the table, or None if each part brings its own.
    """

    inner: Reader
    person: str
    row_counts: RowCounts | None = None

    columns: ClassVar[list[str]] = forwarded("inner.columns")

    def only(self, names: Sequence[str], plain: Collection[str]) -> RepeatReader:
        """Return a reader of some columns."""
        return replace(self, inner=self.inner.only([*names, self.person], [*plain, self.person]))

    def keyed(self, key: bytes) -> RepeatReader:
        """Return the reader itself, as rows are known by their positions."""
        return self

    def __call__(self, part: Any, first: Any) -> Pieces:
        """Yield repeated rows with their new positions."""
        inner, row_counts = part if self.row_counts is None else (part, self.row_counts)
        for frame, rows in self.inner(inner, first):
            origin = row_places(rows, frame.n)
            repeated_frame = frame.of_persons(self.person, row_counts.counts_of(origin))
            # Errors name rows of the original table.
            repeated_frame.origin = origin
            yield repeated_frame, compact_rows(row_counts.new_places(origin))


def find_candidates(person: str, choice: PersonChoice, turn: int, pieces: Pieces) -> Candidates:
    """Return the rows of a part that can be chosen, with their persons and tags."""
    person_rows = PersonRows(choice.rows)
    for frame, rows in pieces:
        person_rows.add(*choice.candidates(frame.array(person), rows, turn), frame.n)
    return person_rows.candidates()


def check_candidates(candidates: Iterator[Candidates], n: int) -> Iterator[Candidates]:
    """Yield candidates; `FileError` for a row that was not there when rows were counted."""
    for persons, tags, positions in candidates:
        if len(positions) and int(positions.max()) >= n:
            raise FileError(CHANGED)
        yield persons, tags, positions


def check_places(by_id: bool) -> None:
    """Raise `ParameterError` for rows that are known by id."""
    # A repeated row needs a second address, which is the position after its own.
    if by_id:
        raise ParameterError(
            "privacy_id needs positions of rows, which rows with id= lack; write the table to Parquet first"
        )
