"""Contribution bounding: the same number of rows of every person, by a secret uniform choice.

A person who owns r rows keeps k of them, chosen uniformly; with r < k each is taken ⌊k/r⌋ or ⌈k/r⌉ times. So the
bounded table has k rows for every person, and its number of rows is k times the number of persons. That number does
not change when a person's rows are replaced by another person's, as the number of rows does not where each owns one:
nothing about how many rows anybody owns is left in it. Two neighbouring tables then differ in k rows, as multisets,
once the choices within all other persons are taken to be the same: what follows has to hide k shuffled rows.

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

AT_ONCE = 1 << 21
"""Rows whose persons are held in memory at a time; of more rows the column of ids is read several times."""

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


def row_counts(read: Callable[[], Iterable[pa.Array]], n: int, rows: int, key: bytes, at_once: int = AT_ONCE) -> Counts:
    """Return how often each row is taken, so that there are ``rows`` of every person."""
    choice = PersonChoice(rows, key, max(1, -(-n // at_once)))

    def read_part(part: int) -> Iterator[Candidates]:
        first = 0
        for ids in read():
            yield choice.candidates(ids, first, part)
            first += len(ids)

    return choice.counts(n, read_part, at_once)


Candidates = tuple[Words, Words, Positions]
"""Persons, tags and positions of rows."""


@dataclass(frozen=True)
class PersonChoice:
    """How rows are chosen: ``rows`` of every person, those of the smallest keyed tags, in a number of passes.

    The tag of a row is a function of its position, so that parts of a table may be gone through in any order.
    """

    rows: int
    key: bytes = field(repr=False)
    passes: int = 1

    def candidates(self, ids: pa.Array, places: Rows, part: int) -> Candidates:
        """Return rows whose persons belong to a pass, by their ids, and the first row's position or each row's."""
        count = len(ids)
        at = places if isinstance(places, np.ndarray) else np.arange(places, places + count)
        try:
            persons = person_words(ids, self.key)
        except ColumnError as error:
            raise ColumnError(error.rule, row=None if error.row is None else int(at[error.row])) from None
        stream, first = Keystream(self.key).column("rows", "persons").at(places)
        tags = stream.words(0, first, count)
        # The hash of a person is uniform only where it is one: whole numbers are spread over the passes as well.
        with np.errstate(over="ignore"):
            mixed = (persons[:, 0] ^ persons[:, 1]) * np.uint64(0x9E3779B97F4A7C15)
        spread = (mixed >> np.uint64(32)) % np.uint64(self.passes)
        mine = np.flatnonzero(spread == part) if self.passes > 1 else np.arange(count)
        return persons[mine], tags[mine], at[mine].astype(np.int64)

    def counts(self, n: int, read: Callable[[int], Iterable[Candidates]], at_once: int = AT_ONCE) -> Counts:
        """Return how often each row is taken, from the candidates of each pass, in any order."""
        counts = np.zeros(n, dtype=np.uint8)
        for part in range(self.passes):
            kept = PersonRows(self.rows)
            for candidates in read(part):
                kept.add(*candidates, at_once)
            at, often = kept.counted()
            counts[at] = often
        return counts


class PersonRows:
    """The rows of each person with the smallest tags, so many at the most."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._persons: list[Words] = []
        self._tags: list[Words] = []
        self._at: list[Positions] = []
        self._held = 0

    def add(self, persons: Words, tags: Words, at: Positions, most: int) -> None:
        """Take in rows; where there are too many, rows that cannot be chosen any more are forgotten."""
        self._persons.append(persons)
        self._tags.append(tags)
        self._at.append(at)
        self._held += len(at)
        if self._held > 2 * most:
            persons, tags, at = self.candidates()
            self._persons, self._tags, self._at, self._held = [persons], [tags], [at], len(at)

    def candidates(self) -> Candidates:
        """Return the rows that can still be chosen, whichever rows there are elsewhere."""
        if not self._held:
            return np.zeros((0, 2), np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64)
        persons, tags, at, _, _ = self._smallest()
        return persons, tags, at

    def _smallest(self) -> tuple[npt.NDArray[Any], ...]:
        """Return persons, tags and positions of the rows kept, each row's rank within its person, and how many."""
        persons, tags, at = (np.concatenate(part) for part in (self._persons, self._tags, self._at))
        order = np.lexsort((tags, persons[:, 1], persons[:, 0]))
        persons, tags, at = persons[order], tags[order], at[order]
        new = np.ones(len(at), dtype=np.bool_)
        new[1:] = (persons[1:] != persons[:-1]).any(axis=1)
        starts = np.flatnonzero(new)
        sizes = np.diff(np.append(starts, len(at)))
        ranks = np.arange(len(at)) - np.repeat(starts, sizes)
        kept = ranks < self._rows
        owned = np.repeat(np.minimum(sizes, self._rows), sizes)
        return persons[kept], tags[kept], at[kept], ranks[kept], owned[kept]

    def counted(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the positions of the rows that are taken, and how often each is."""
        if not self._held:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        _, _, at, ranks, owned = self._smallest()
        return at, self._rows // owned + (ranks < self._rows % owned)


def person_words(
    ids: pa.Array, key: bytes, first_row: int = 0, role: str = "privacy_id", noun: str = "a person"
) -> Words:
    """Return 128 bits for each id, shape (rows, 2): equal where ids are; messages say what the ids are for."""
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
        wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)
        return np.stack([wide.view(np.uint64), np.zeros(len(ids), dtype=np.uint64)], axis=1)
    if not is_text(ids.type):
        raise ColumnError(f"has type {ids.type}, and {role} must be whole numbers or text; cast it to text")
    # As bytes: text of a foreign maker may not be valid Unicode, and an error would quote it.
    texts = ids.cast(pa.large_string()).cast(pa.large_binary()).to_numpy(zero_copy_only=False)
    secret = blake2b(b"persons", key=key, digest_size=16).hexdigest()
    halves = [pd.util.hash_array(texts, hash_key=half, categorize=False) for half in (secret[:16], secret[16:])]
    return np.stack(halves, axis=1)
