"""The work of workers: encode and count rows, randomise them, divide them into buckets, and order each bucket."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpframe.api.public import Plan
from dpframe.engines.forms import OutputForm
from dpframe.errors import ColumnError, FileError
from dpframe.noise.gaussian import Ints
from dpframe.noise.keystream import U64, Rows, derived_key
from dpframe.release.noisy_tables import Tables
from dpframe.release.order_watch import Stretch, merged, stretches
from dpframe.release.rows import Digest, Selection, order_words, rank, release
from dpframe.spaces import Space
from dpframe.tables.batches import Batch, joined, length, taken
from dpframe.tables.frames import Frame
from dpframe.tables.row_checks import RowChecks, added, sum_bytes
from dpframe.tables.table import Codes

_NONCE = 12


@dataclass(frozen=True)
class BucketRows:
    """Released rows of one bucket, in input order."""

    words: U64
    """Words that order the rows, 128 bits each, low half first; shape (rows, 2)."""
    checks: U64
    """A keyed check of each original row and its address."""
    batch: Batch


@dataclass(frozen=True)
class Seal:
    """Encrypts rows under a derived key (AES-256-GCM with random nonces); altered bytes are refused.

    >>> import numpy as np
    >>> rows = BucketRows(np.zeros((1, 2), np.uint64), np.zeros(1, np.uint64), {"sex": np.array([1], np.uint8)})
    >>> seal = Seal(bytes(32))
    >>> seal.open(seal.close(rows, 7), 7).batch
    {'sex': array([1], dtype=uint8)}
    """

    key: bytes = field(repr=False)

    @cached_property
    def _cipher(self) -> AESGCM:
        return AESGCM(derived_key(self.key, b"rows between workers"))

    def __getstate__(self) -> dict[str, bytes]:
        return {"key": self.key}

    def close(self, rows: BucketRows, bucket: int) -> bytes:
        """Return the rows of a bucket as bytes."""
        # The bucket is authenticated: rows cannot be moved to another bucket.
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, pickle.dumps(rows, protocol=5), bucket.to_bytes(4, "little"))

    def open(self, content: bytes, bucket: int) -> BucketRows:
        """Return the rows of this bucket; `cryptography.exceptions.InvalidTag` for other bytes or another bucket."""
        plain = self._cipher.decrypt(content[:_NONCE], content[_NONCE:], bucket.to_bytes(4, "little"))
        rows: BucketRows = pickle.loads(plain)  # noqa: S301 (authenticated: of this release's own workers)
        return rows


Pieces = Iterator[tuple[Frame, Rows]]
"""Frames of a part of a table, each with the position of its first row, or the addresses of all its rows."""

SCATTER_ROWS = 1 << 18
"""Rows that are divided into buckets at a time (limit of memory)."""

CHANGED = "the table's rows or partitions changed after its release was prepared; release it anew"


def compact_rows(rows: U64) -> Rows:
    """Return the first of consecutive positions, and other addresses unchanged.

    >>> compact_rows(np.array([4, 5, 6], dtype=np.uint64)), compact_rows(np.array([4, 6], dtype=np.uint64))
    (4, array([4, 6], dtype=uint64))
    """
    if rows.ndim > 1 or not len(rows):
        return rows
    # Noise for consecutive rows is much faster to draw.
    return int(rows[0]) if bool((np.diff(rows) == 1).all()) else rows


def row_places(rows: Rows, count: int) -> U64:
    """Return the positions or addresses of all rows, one for each row."""
    return rows if isinstance(rows, np.ndarray) else np.arange(rows, rows + count, dtype=np.uint64)


def encode_rows(frame: Frame, rows: Rows, spaces: Mapping[str, Space], nulls: str, inferred: Collection[str]) -> Codes:
    """Return the codes of columns, or raise `ColumnError` with the row's position in the table, if it has one."""
    try:
        return frame.codes(spaces, nulls, inferred)
    except ColumnError as error:
        if error.row is None or error.column is None:
            raise
        places = row_places(rows, frame.n) if frame.origin is None else frame.origin
        # Addresses by id have two words, and are no positions.
        row = None if places.ndim > 1 else int(places[error.row])
        raise ColumnError(error.rule, column=error.column, row=row) from None


def row_checks(plan: Plan, key: bytes) -> RowChecks:
    """Return the keyed checks of the rows that a plan releases."""
    return RowChecks(derived_key(key, b"checks of rows"), plan.passthrough)


@dataclass(frozen=True)
class Check:
    """A pass before the spend: checks every value, counts rows, and sums up a digest of the table."""

    spaces: Mapping[str, Space]
    nulls: str
    inferred: Collection[str]
    checks: RowChecks | None = None

    def __call__(self, pieces: Pieces) -> tuple[int, int, int]:
        """Return the number of rows, and the two halves of the sum of their checks."""
        count, low, high = 0, 0, 0
        for frame, rows in pieces:
            codes = encode_rows(frame, rows, self.spaces, self.nulls, self.inferred)
            count += frame.n
            if self.checks is not None:
                low_sum, high_sum = added(self.checks(codes, rows, frame.n, frame))
                low, high = low + low_sum, high + high_sum
        return count, low, high


@dataclass
class FirstPass:
    """Statistics of the first pass over the rows."""

    rows: int
    tally: Ints
    """Number of released rows, by bucket."""
    checks: U64
    """Sum of the first halves of the released rows' checks, by bucket."""
    sums: U64
    """Sum of the checks of all rows, in two halves: the digest of the input."""
    digest: Digest
    counts: list[Ints] = field(repr=False)
    """Exact counts of the measured tables, before their noise."""
    stretches: dict[str, Stretch] = field(default_factory=dict, repr=False)
    """Positions of each code's rows, if rows keep their order."""
    blocks: list[tuple[int, tuple[str, int, int]]] = field(default_factory=list, repr=False)
    """Files and offsets of the released rows, by bucket, if they were written."""

    @property
    def input_digest(self) -> bytes:
        """Keyed digest of the input rows."""
        return sum_bytes(*self.sums.tolist())

    def merge(self, part: FirstPass) -> None:
        """Add the statistics of other rows, except counts of measured tables."""
        # The caller adds these counts to one set of tables, which may be large.
        self.rows += part.rows
        self.tally += part.tally
        self.checks += part.checks
        self.sums += part.sums
        self.digest.merge(part.digest)
        self.stretches = merged(self.stretches, part.stretches)
        self.blocks += part.blocks


@dataclass(frozen=True)
class Bucket:
    """Consecutive rows of the release: their positions, and the sum of their checks."""

    number: int
    first: int
    rows: int
    check: int


@dataclass(frozen=True)
class _SampledRows:
    """Sampled rows: their indices in the frame, their order words and checks, and their released codes."""

    selected: Any
    words: U64
    checks: U64
    sums: U64
    released: Batch


@dataclass(frozen=True)
class Work:
    """The work of one release: everything that a worker needs, including the key.

    ``bits`` is the logarithm of the number of buckets, ``span`` the number of bits of a row's position.
    """

    plan: Plan
    form: OutputForm
    bits: int
    span: int
    selection: Selection = field(repr=False)
    key: bytes = field(repr=False)

    @property
    def buckets(self) -> int:
        """Number of buckets."""
        return 1 << self.bits

    def encode(self, frame: Frame, rows: Rows) -> Codes:
        """Return the codes of the plan's columns."""
        return encode_rows(frame, rows, self.plan.spaces, self.plan.nulls, self.plan.imputed)

    def words(self, rows: Rows, count: int) -> U64:
        """Return the words that order rows: words of the shuffle, or positions if rows keep their order."""
        if self.plan.shuffle:
            return order_words(self.plan, self.key, rows, count)
        # Positions in the highest bits, as the first bits of a word are the number of its bucket.
        places = row_places(rows, count)
        return np.stack([np.zeros(count, np.uint64), places << np.uint64(64 - self.span)], axis=1)

    def bucket_numbers(self, words: U64) -> npt.NDArray[np.integer]:
        """Return the bucket number of each row."""
        high_words = words[:, 1]
        # NumPy sorts integers of two bytes by radix, which is faster.
        return (high_words >> np.uint64(64 - self.bits) if self.bits else np.zeros_like(high_words)).astype(
            np.uint16 if self.bits <= 16 else np.intp
        )

    @property
    def row_checks(self) -> RowChecks:
        """Keyed checks by which both passes, and the digest of a job, are compared."""
        return row_checks(self.plan, self.key)

    def first_pass(
        self, pieces: Pieces, send: Callable[[int, bytes], None] | None = None, seal: Seal | None = None
    ) -> FirstPass:
        """Return the statistics of some rows; with ``send``, also send the sealed released rows to their buckets."""
        tables = Tables(self.plan, self.key)
        tally, sums = np.zeros(self.buckets, np.int64), np.zeros(self.buckets, np.uint64)
        first_pass = FirstPass(0, tally, sums, np.zeros(2, np.uint64), Digest(self.plan), tables.counts)
        splitter = _BucketSplitter(self, seal or Seal(self.key))
        for frame, rows in pieces:
            codes = self.encode(frame, rows)
            # A plan of passed-through columns only has no codes to count.
            if codes:
                tables.add(codes, rows)
            sampled_rows = self._randomise(codes, frame, rows)
            first_pass.digest.update(sampled_rows.released)
            bucket_numbers = self.bucket_numbers(sampled_rows.words)
            if not self.plan.shuffle:
                first_pass.stretches = merged(first_pass.stretches, stretches(codes, row_places(rows, frame.n)))
            first_pass.rows += frame.n
            first_pass.tally += np.bincount(bucket_numbers, minlength=self.buckets)
            np.add.at(first_pass.checks, bucket_numbers, sampled_rows.checks)
            first_pass.sums += sampled_rows.sums
            if send is not None:
                for bucket, content in splitter.add(self._assemble_batch(frame, sampled_rows)):
                    send(bucket, content)
        if send is not None:
            for bucket, content in splitter.flush():
                send(bucket, content)
        first_pass.counts = tables.counts
        return first_pass

    def _randomise(self, codes: Codes, frame: Frame, rows: Rows) -> _SampledRows:
        """Sample rows and randomise them."""
        mask = self.selection.mask(rows, frame.n)
        selected = slice(None) if mask is None else np.flatnonzero(mask)
        released = {name: column[selected] for name, column in release(codes, self.plan, self.key, rows).items()}
        checks = self.row_checks(codes, rows, frame.n, frame)
        sums = checks.sum(axis=0, dtype=np.uint64)
        return _SampledRows(selected, self.words(rows, frame.n)[selected], checks[selected, 0], sums, released)

    def _assemble_batch(self, frame: Frame, sampled_rows: _SampledRows) -> Batch:
        """Return the sampled rows as released, with a column ``""`` of their order words and checks."""
        row_indices = pa.array(np.arange(frame.n)[sampled_rows.selected])
        passthrough = {name: self.form.copy_column(frame, name).take(row_indices) for name in self.plan.passthrough}
        return {"": np.column_stack([sampled_rows.words, sampled_rows.checks]), **sampled_rows.released, **passthrough}

    def scatter(self, pieces: Pieces) -> Iterator[tuple[int, bytes]]:
        """Yield sealed released rows by bucket; a bucket may come several times."""
        splitter = _BucketSplitter(self, Seal(self.key))
        for frame, rows in pieces:
            yield from splitter.add(self._assemble_batch(frame, self._randomise(self.encode(frame, rows), frame, rows)))
        yield from splitter.flush()

    def gather(self, bucket: Bucket, parts: Iterable[bytes], seal: Seal | None = None) -> Batch:
        """Return the rows of a bucket in their order; no columns without rows."""
        seal = seal or Seal(self.key)
        opened_parts = [seal.open(part, bucket.number) for part in parts]
        count, check = sum(len(rows.words) for rows in opened_parts), 0
        for rows in opened_parts:
            check += int(rows.checks.sum(dtype=np.uint64))
        # A retry on changed data would give a second version of a row under one key, and so reveal its noise.
        if count != bucket.rows or check % (1 << 64) != bucket.check:
            raise FileError(CHANGED)
        if not opened_parts:
            return {}
        words = np.concatenate([rows.words for rows in opened_parts])
        order = rank(words)
        high_words = words[:, 1].take(order)
        # Only rows with equal high words, which are rare, can have one address.
        equal_words = np.flatnonzero(high_words[1:] == high_words[:-1])
        if bool((words[order[equal_words], 0] == words[order[equal_words + 1], 0]).any()):
            raise FileError("two rows of the table share an address and would share noise; pass id=")
        return taken(joined([rows.batch for rows in opened_parts]), order)


@dataclass
class _BucketSplitter:
    """Collects rows, and divides `SCATTER_ROWS` at a time into sealed buckets."""

    work: Work
    seal: Seal
    waiting: list[Batch] = field(default_factory=list, repr=False)

    def add(self, batch: Batch) -> Iterator[tuple[int, bytes]]:
        """Add rows; yield sealed buckets once there are enough rows."""
        self.waiting.append(batch)
        if sum(map(length, self.waiting)) >= SCATTER_ROWS:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[int, bytes]]:
        """Yield sealed buckets of the collected rows."""
        if not self.waiting:
            return
        batch, self.waiting = joined(self.waiting), []
        bucket_numbers = self.work.bucket_numbers(batch[""])
        order = np.argsort(bucket_numbers, kind="stable")
        edges = np.searchsorted(bucket_numbers[order], np.arange(self.work.buckets + 1))
        batch = taken(batch, order)
        for bucket in np.flatnonzero(np.diff(edges)).tolist():
            part = {name: column[edges[bucket] : edges[bucket + 1]] for name, column in batch.items()}
            words = part.pop("")
            yield bucket, self.seal.close(BucketRows(words[:, :2], words[:, 2], part), bucket)
