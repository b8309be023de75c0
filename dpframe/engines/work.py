"""What workers do with rows: code and count them, randomise and part them into buckets, put each bucket in order."""

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
from dpframe.spaces import Space
from dpframe.tables.batches import Batch, joined, length, taken
from dpframe.tables.frames import Frame
from dpframe.tables.noisy_tables import Tables
from dpframe.tables.order_watch import Stretch, merged, stretches
from dpframe.tables.release import Digest, Selection, order_words, rank, release
from dpframe.tables.row_checks import RowChecks, added, sum_bytes
from dpframe.tables.table import Codes

_NONCE = 12


@dataclass(frozen=True)
class BucketRows:
    """Released rows of one bucket, in input order."""

    words: U64
    """What they are ordered by, 128 bits a row, low half first; shape (rows, 2)."""
    checks: U64
    """A keyed word of what each row was before, and of its address."""
    batch: Batch


@dataclass(frozen=True)
class Seal:
    """Encrypts rows under a key of its own (AES-256-GCM with random nonces); what was altered is refused.

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
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, pickle.dumps(rows, protocol=5), bucket.to_bytes(4, "little"))

    def open(self, content: bytes, bucket: int) -> BucketRows:
        """Return rows that were closed for this bucket; `cryptography.exceptions.InvalidTag` for any other bytes."""
        plain = self._cipher.decrypt(content[:_NONCE], content[_NONCE:], bucket.to_bytes(4, "little"))
        rows: BucketRows = pickle.loads(plain)  # noqa: S301 (authenticated: of this release's own workers)
        return rows


Pieces = Iterator[tuple[Frame, Rows]]
"""Rows of a part of a table, some at a time, and their places in it: the first row's place, or each row's."""

AT_ONCE = 1 << 18
"""Rows that are parted into buckets at a time."""

CHANGED = (
    "the table is not what it was when its release was prepared: its rows or partitions changed since; release it anew"
)


def consecutive(rows: U64) -> Rows:
    """Return the first of rows that follow one another, and other rows as they are.

    >>> consecutive(np.array([4, 5, 6], dtype=np.uint64)), consecutive(np.array([4, 6], dtype=np.uint64))
    (4, array([4, 6], dtype=uint64))
    """
    if rows.ndim > 1 or not len(rows):
        return rows
    return int(rows[0]) if bool((np.diff(rows) == 1).all()) else rows


def placed(rows: Rows, count: int) -> U64:
    """Return the places, or addresses, of all rows."""
    return rows if isinstance(rows, np.ndarray) else np.arange(rows, rows + count, dtype=np.uint64)


def coded(frame: Frame, rows: Rows, spaces: Mapping[str, Space], nulls: str, inferred: Collection[str]) -> Codes:
    """Return the codes of columns, or raise `ColumnError` with the row's place in the whole table, if it has one."""
    try:
        return frame.codes(spaces, nulls, inferred)
    except ColumnError as error:
        if error.row is None or error.column is None:
            raise
        places = placed(rows, frame.n) if frame.origin is None else frame.origin
        row = None if places.ndim > 1 else int(places[error.row])
        raise ColumnError(error.rule, column=error.column, row=row) from None


def row_checks(plan: Plan, key: bytes) -> RowChecks:
    """Return the checks of the rows that a plan releases under a key."""
    return RowChecks(derived_key(key, b"checks of rows"), plan.passthrough)


@dataclass(frozen=True)
class Check:
    """A pass before anything is spent: reads every value, counts rows, and sums up a digest of the table."""

    spaces: Mapping[str, Space]
    nulls: str
    inferred: Collection[str]
    checks: RowChecks | None = None

    def __call__(self, pieces: Pieces) -> tuple[int, int, int]:
        """Return the number of rows, and the sum of their checks, if any are made."""
        count, low, high = 0, 0, 0
        for frame, rows in pieces:
            codes = coded(frame, rows, self.spaces, self.nulls, self.inferred)
            count += frame.n
            if self.checks is not None:
                more_low, more_high = added(self.checks(codes, rows, frame.n, frame))
                low, high = low + more_low, high + more_high
        return count, low, high


@dataclass
class FirstPass:
    """Statistics of the first pass over the rows."""

    rows: int
    tally: Ints
    """Released rows, by bucket."""
    checks: U64
    """The sum of the first halves of their checks, by bucket."""
    sums: U64
    """The sum of the checks of all rows, in two halves: the digest of what was read."""
    digest: Digest
    counts: list[Ints] = field(repr=False)
    """Exact counts of the tables that are measured."""
    stretches: dict[str, Stretch] = field(default_factory=dict, repr=False)
    """The places of each code's rows, if they keep their order."""
    blocks: list[tuple[int, tuple[str, int, int]]] = field(default_factory=list, repr=False)
    """Where the released rows are, by bucket, if they were written to files."""

    @property
    def input_digest(self) -> bytes:
        """The digest of what was read."""
        return sum_bytes(*self.sums.tolist())

    def merge(self, other: FirstPass) -> None:
        """Add what was found in other rows; the caller adds the tables' counts."""
        self.rows += other.rows
        self.tally += other.tally
        self.checks += other.checks
        self.sums += other.sums
        self.digest.merge(other.digest)
        self.stretches = merged(self.stretches, other.stretches)
        self.blocks += other.blocks


@dataclass(frozen=True)
class Bucket:
    """Consecutive rows of the output: which they are in the shuffled order, and what they must add up to."""

    number: int
    first: int
    rows: int
    check: int


@dataclass(frozen=True)
class _Drawn:
    """Which of some rows are chosen, and of these what they are ordered and checked by, and the released codes."""

    kept: Any
    words: U64
    checks: U64
    sums: U64
    released: Batch


@dataclass(frozen=True)
class Work:
    """The work of one release: everything that a worker needs, the key among it.

    ``bits`` is the logarithm of the number of buckets, ``span`` the bits of a row's place where rows keep their order.
    """

    plan: Plan
    form: OutputForm
    bits: int
    span: int
    selection: Selection = field(repr=False)
    key: bytes = field(repr=False)

    @property
    def buckets(self) -> int:
        """How many buckets there are."""
        return 1 << self.bits

    def coded(self, frame: Frame, rows: Rows) -> Codes:
        """Return the codes of the plan's columns."""
        return coded(frame, rows, self.plan.spaces, self.plan.nulls, self.plan.imputed)

    def words(self, rows: Rows, count: int) -> U64:
        """Return what rows are ordered by: their words of the shuffle, or their places."""
        if self.plan.shuffle:
            return order_words(self.plan, self.key, rows, count)
        places = placed(rows, count)
        return np.stack([np.zeros(count, np.uint64), places << np.uint64(64 - self.span)], axis=1)

    def places(self, words: U64) -> npt.NDArray[np.integer]:
        """Return the buckets of rows."""
        high = words[:, 1]
        # NumPy sorts numbers of two bytes by counting them.
        return (high >> np.uint64(64 - self.bits) if self.bits else np.zeros_like(high)).astype(
            np.uint16 if self.bits <= 16 else np.intp
        )

    @property
    def row_checks(self) -> RowChecks:
        """What passes are compared by, that of a job's digest among them."""
        return row_checks(self.plan, self.key)

    def first_pass(
        self, pieces: Pieces, send: Callable[[int, bytes], None] | None = None, seal: Seal | None = None
    ) -> FirstPass:
        """Return the counts of some rows; with ``send``, also send the released rows, sealed, to their buckets."""
        tables = Tables(self.plan, self.key)
        tally, sums = np.zeros(self.buckets, np.int64), np.zeros(self.buckets, np.uint64)
        first_pass = FirstPass(0, tally, sums, np.zeros(2, np.uint64), Digest(self.plan), tables.counts)
        parting = _Parting(self, seal or Seal(self.key))
        for frame, rows in pieces:
            codes = self.coded(frame, rows)
            if codes:
                tables.add(codes, rows)
            drawn = self._drawn(codes, frame, rows)
            first_pass.digest.update(drawn.released)
            places = self.places(drawn.words)
            if not self.plan.shuffle:
                first_pass.stretches = merged(first_pass.stretches, stretches(codes, placed(rows, frame.n)))
            first_pass.rows += frame.n
            first_pass.tally += np.bincount(places, minlength=self.buckets)
            np.add.at(first_pass.checks, places, drawn.checks)
            first_pass.sums += drawn.sums
            if send is not None:
                for bucket, content in parting.add(self._leaving(frame, drawn)):
                    send(bucket, content)
        if send is not None:
            for bucket, content in parting.rest():
                send(bucket, content)
        first_pass.counts = tables.counts
        return first_pass

    def _drawn(self, codes: Codes, frame: Frame, rows: Rows) -> _Drawn:
        """Choose rows and randomise them."""
        mask = self.selection.mask(rows, frame.n)
        kept = slice(None) if mask is None else np.flatnonzero(mask)
        released = {name: column[kept] for name, column in release(codes, self.plan, self.key, rows).items()}
        checks = self.row_checks(codes, rows, frame.n, frame)
        sums = checks.sum(axis=0, dtype=np.uint64)
        return _Drawn(kept, self.words(rows, frame.n)[kept], checks[kept, 0], sums, released)

    def _leaving(self, frame: Frame, drawn: _Drawn) -> Batch:
        """Return the chosen rows as they leave, with what they are ordered and checked by."""
        chosen = pa.array(np.arange(frame.n)[drawn.kept])
        passed = {name: self.form.copied(frame, name).take(chosen) for name in self.plan.passthrough}
        return {"": np.column_stack([drawn.words, drawn.checks]), **drawn.released, **passed}

    def scatter(self, pieces: Pieces) -> Iterator[tuple[int, bytes]]:
        """Yield released rows by bucket, sealed; of one bucket there may be several."""
        parting = _Parting(self, Seal(self.key))
        for frame, rows in pieces:
            yield from parting.add(self._leaving(frame, self._drawn(self.coded(frame, rows), frame, rows)))
        yield from parting.rest()

    def gather(self, bucket: Bucket, parts: Iterable[bytes], seal: Seal | None = None) -> Batch:
        """Return the rows of a bucket in their order; of none no columns."""
        seal = seal or Seal(self.key)
        opened = [seal.open(part, bucket.number) for part in parts]
        count, check = sum(len(rows.words) for rows in opened), 0
        for rows in opened:
            check += int(rows.checks.sum(dtype=np.uint64))
        if count != bucket.rows or check % (1 << 64) != bucket.check:
            raise FileError(CHANGED)
        if not opened:
            return {}
        words = np.concatenate([rows.words for rows in opened])
        order = rank(words)
        high = words[:, 1].take(order)
        alike = np.flatnonzero(high[1:] == high[:-1])
        if bool((words[order[alike], 0] == words[order[alike + 1], 0]).any()):
            raise FileError("two rows of the table have one address, and would have one noise; release it by id=")
        return taken(joined([rows.batch for rows in opened]), order)


@dataclass
class _Parting:
    """Collects rows until they are many, and parts these into sealed buckets, by number."""

    work: Work
    seal: Seal
    waiting: list[Batch] = field(default_factory=list, repr=False)

    def add(self, batch: Batch) -> Iterator[tuple[int, bytes]]:
        """Add rows; yield buckets once there are enough."""
        self.waiting.append(batch)
        if sum(map(length, self.waiting)) >= AT_ONCE:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """Yield the buckets of what was collected."""
        if not self.waiting:
            return
        batch, self.waiting = joined(self.waiting), []
        places = self.work.places(batch[""])
        order = np.argsort(places, kind="stable")
        edges = np.searchsorted(places[order], np.arange(self.work.buckets + 1))
        batch = taken(batch, order)
        for bucket in np.flatnonzero(np.diff(edges)).tolist():
            part = {name: column[edges[bucket] : edges[bucket + 1]] for name, column in batch.items()}
            words = part.pop("")
            yield bucket, self.seal.close(BucketRows(words[:, :2], words[:, 2], part), bucket)
