"""Contribution bounding: an equal number of rows of every person, by a secret uniform choice.

A person who owns r rows keeps k of them, chosen uniformly; with r < k each is taken ⌊k/r⌋ or ⌈k/r⌉ times. So the
bounded table has k rows for every person, and its number of rows is k times the number of persons. That number does
not change when a person's rows are replaced by another person's, as in a table with one row per person: the bounded
table reveals nothing about anybody's number of rows. Two neighbouring tables then differ in k rows, as multisets,
if the choices within all other persons are equal: later steps have to hide k shuffled rows.

Whole numbers are distinguished exactly, text by two keyed hashes of 64 bits: two persons among n are taken for one with
a chance below n²·2⁻¹²⁸.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError
from dpframe.noise.keystream import Keystream, Rows
from dpframe.spaces import as_arrow
from dpframe.tables.types import is_text

PERSON_CHUNK_ROWS = 1 << 21
"""Limit on rows whose persons are in memory at a time; larger tables read the column of ids several times."""

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


def row_counts(
    read: Callable[[], Iterable[pa.Array]], n: int, rows: int, key: bytes, at_once: int = PERSON_CHUNK_ROWS
) -> Counts:
    """Return how often each row is repeated, so that every person has ``rows`` rows."""
    choice = PersonChoice(rows, key, max(1, -(-n // at_once)))

    def read_part(part: int) -> Iterator[Candidates]:
        first_row = 0
        for ids in read():
            yield choice.candidates(ids, first_row, part)
            first_row += len(ids)

    return choice.counts(n, read_part, at_once)


Candidates = tuple[Words, Words, Positions]
"""Persons, tags and positions of rows."""


@dataclass(frozen=True)
class PersonChoice:
    """Choice of ``rows`` rows of every person, with the smallest keyed tags, in a number of passes.

    The tag of a row is a function of its position, so that parts of a table may be gone through in any order.
    """

    rows: int
    key: bytes = field(repr=False)
    passes: int = 1

    def candidates(self, ids: pa.Array, places: Rows, part: int) -> Candidates:
        """Return rows whose persons belong to a pass, by their ids, and the first row's position or each row's."""
        count = len(ids)
        positions = places if isinstance(places, np.ndarray) else np.arange(places, places + count)
        try:
            persons = person_words(ids, self.key)
        except ColumnError as error:
            raise ColumnError(error.rule, row=None if error.row is None else int(positions[error.row])) from None
        stream, first_row = Keystream(self.key).column("rows", "persons").at(places)
        tags = stream.words(0, first_row, count)
        # Whole numbers are not hashed, so their words are mixed to spread persons evenly over the passes.
        with np.errstate(over="ignore"):
            person_hashes = (persons[:, 0] ^ persons[:, 1]) * np.uint64(0x9E3779B97F4A7C15)
        person_passes = (person_hashes >> np.uint64(32)) % np.uint64(self.passes)
        pass_rows = np.flatnonzero(person_passes == part) if self.passes > 1 else np.arange(count)
        return persons[pass_rows], tags[pass_rows], positions[pass_rows].astype(np.int64)

    def counts(self, n: int, read: Callable[[int], Iterable[Candidates]], at_once: int = PERSON_CHUNK_ROWS) -> Counts:
        """Return how often each row is repeated, from the candidates of each pass, in any order."""
        counts = np.zeros(n, dtype=np.uint8)
        for part in range(self.passes):
            person_rows = PersonRows(self.rows)
            for candidates in read(part):
                person_rows.add(*candidates, at_once)
            positions, repeats = person_rows.counted()
            counts[positions] = repeats
        return counts


class PersonRows:
    """The rows of each person with the smallest tags, at most ``rows`` per person."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._persons: list[Words] = []
        self._tags: list[Words] = []
        self._positions: list[Positions] = []
        self._row_count = 0

    def add(self, persons: Words, tags: Words, at: Positions, most: int) -> None:
        """Add rows; beyond 2 · ``most`` rows, discard the rows that can no longer be chosen."""
        self._persons.append(persons)
        self._tags.append(tags)
        self._positions.append(at)
        self._row_count += len(at)
        # Twice the limit, so that the cost of sorting is shared by many rows.
        if self._row_count > 2 * most:
            persons, tags, at = self.candidates()
            self._persons, self._tags, self._positions, self._row_count = [persons], [tags], [at], len(at)

    def candidates(self) -> Candidates:
        """Return the rows that can still be chosen, regardless of rows elsewhere."""
        if not self._row_count:
            return np.zeros((0, 2), np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64)
        persons, tags, positions, _, _ = self._rank_rows()
        return persons, tags, positions

    def _rank_rows(self) -> tuple[npt.NDArray[Any], ...]:
        """Return persons, tags, positions, ranks within a person, and candidates per person, of the candidate rows."""
        persons, tags, positions = (np.concatenate(part) for part in (self._persons, self._tags, self._positions))
        # The last key of `lexsort` is the first to sort by.
        order = np.lexsort((tags, persons[:, 1], persons[:, 0]))
        persons, tags, positions = persons[order], tags[order], positions[order]
        is_first_row = np.ones(len(positions), dtype=np.bool_)
        is_first_row[1:] = (persons[1:] != persons[:-1]).any(axis=1)
        starts = np.flatnonzero(is_first_row)
        sizes = np.diff(np.append(starts, len(positions)))
        ranks = np.arange(len(positions)) - np.repeat(starts, sizes)
        is_candidate = ranks < self._rows
        candidate_counts = np.repeat(np.minimum(sizes, self._rows), sizes)
        return (
            persons[is_candidate],
            tags[is_candidate],
            positions[is_candidate],
            ranks[is_candidate],
            candidate_counts[is_candidate],
        )

    def counted(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the positions of the chosen rows, and the number of repeats of each."""
        if not self._row_count:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        _, _, positions, ranks, candidate_counts = self._rank_rows()
        return positions, self._rows // candidate_counts + (ranks < self._rows % candidate_counts)


def person_words(
    ids: pa.Array, key: bytes, first_row: int = 0, role: str = "privacy_id", noun: str = "a person"
) -> Words:
    """Return 128 bits for each id, shape (rows, 2), equal for equal ids; messages name the ids by role and noun."""
    ids = as_arrow(ids)
    if ids.null_count:
        row = int(np.flatnonzero(pc.is_null(ids).to_numpy(zero_copy_only=False))[0]) + first_row
        raise ColumnError(f"is null, and {role} names {noun} in every row; drop such rows, or fill them", row=row)
    if pa.types.is_dictionary(ids.type):
        # Arrow decodes no dictionary of views; equal entries have equal words.
        entries = ids.dictionary
        if entries.null_count == 0 and len(entries):
            places: npt.NDArray[np.int64] = ids.indices.to_numpy(zero_copy_only=False)
            return np.asarray(person_words(entries, key, 0, role, noun)[places])
        return person_words(ids.cast(entries.type), key, first_row, role, noun)
    if pa.types.is_integer(ids.type):
        values = ids.to_numpy(zero_copy_only=False)
        integers = values if values.dtype.itemsize == 8 else values.astype(np.int64)
        return np.stack([integers.view(np.uint64), np.zeros(len(ids), dtype=np.uint64)], axis=1)
    if not is_text(ids.type):
        raise ColumnError(f"has type {ids.type}, and {role} must be whole numbers or text; cast it to text")
    # As bytes: text of a foreign maker may not be valid Unicode, and an error would quote it.
    texts = ids.cast(pa.large_string()).cast(pa.large_binary()).to_numpy(zero_copy_only=False)
    # Keyed, so that nobody can prepare two ids that pass for one person.
    hash_keys = blake2b(b"persons", key=key, digest_size=16).hexdigest()
    halves = [
        pd.util.hash_array(texts, hash_key=hash_key, categorize=False) for hash_key in (hash_keys[:16], hash_keys[16:])
    ]
    return np.stack(halves, axis=1)
