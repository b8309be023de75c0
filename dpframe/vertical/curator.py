"""A curator: ranks its rows by the shared secret, pads their codes, and hands out message and pad.

A tag is the image of an id under a pseudorandom function whose key comes from the curators' secret and the run's fresh
nonce: AES-256 of one block, which holds the id itself, or its keyed BLAKE2b where it is long. Rows are ranked by their
tags and the m lowest are the sample, in that order: to anyone without the secret a uniformly random choice in a
uniformly random order, for any order of the table. Theorem III.2 of the sampling paper needs that order, too: of
rows drawn at random that keep the table's order it is false.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.api.ledger.account import Job, OpenAccount
from dpframe.disk import atomic
from dpframe.errors import AlreadySanitizedError, ColumnError, FileError, ParameterError
from dpframe.noise.keystream import BLOCK_BYTES, U64, Keystream, block_cipher
from dpframe.spaces import Space, as_arrow
from dpframe.tables.batches import Batch, length, row_groups
from dpframe.tables.files import FileInput
from dpframe.tables.frames import wrap
from dpframe.tables.info import packed
from dpframe.tables.inputs import open_input
from dpframe.tables.noisy_tables import Tables
from dpframe.tables.spill import BUCKET_ROWS, Spill
from dpframe.tables.table import Table, check_types, located
from dpframe.tables.types import is_text
from dpframe.vertical.keys import Identity
from dpframe.vertical.messages import ROWS, Header, MessageWriter, check_new, header_file, read_header, write_header
from dpframe.vertical.pads import PadStream, padded
from dpframe.vertical.run import Member, Run

_SHORT, _LONG = 15, 255
"""Bytes of an id that fit into a block with their number, and what is written for the number of a longer one."""


def tag_key(secret: bytes, run: bytes) -> bytes:
    """Return the key of a run's tags."""
    return Keystream(secret, run).column("", "records").words(0, 0, 4).tobytes()


def row_tags(ids: pa.Array, key: bytes, first_row: int = 0) -> U64:
    """Return the 128-bit tag of each record id, shape (rows, 2), low half first.

    Whole numbers are taken as their decimal digits: 7 and "7" are one record.
    """
    ids = as_arrow(ids)
    if ids.null_count:
        row = int(np.flatnonzero(pc.is_null(ids).to_numpy(zero_copy_only=False))[0]) + first_row
        raise ColumnError("is null, and every row needs the id of its record; drop such rows, or fill them", row=row)
    if pa.types.is_dictionary(ids.type):
        places = ids.indices.to_numpy(zero_copy_only=False)
        return np.asarray(row_tags(ids.dictionary, key, first_row)[places])
    if not pa.types.is_integer(ids.type) and not is_text(ids.type):
        raise ColumnError(f"has type {ids.type}, and ids must be whole numbers or text; cast it to text")
    texts = ids.cast(pa.large_string()).cast(pa.large_binary())
    return np.frombuffer(block_cipher(key).update(_blocks(texts, key).data), dtype="<u8").reshape(-1, 2)


def _blocks(texts: pa.LargeBinaryArray, key: bytes) -> npt.NDArray[np.uint8]:
    """Return a block of 16 bytes for each text, shape (rows, 16): different where texts are.

    Up to 15 bytes are the text itself with its length behind it, more are their keyed BLAKE2b and 255.
    """
    offsets, raw = (
        np.frombuffer(buffer, kind) for buffer, kind in zip(texts.buffers()[1:], ("<i8", "u1"), strict=True)
    )
    starts = offsets[texts.offset : texts.offset + len(texts)]
    sizes = offsets[texts.offset + 1 : texts.offset + len(texts) + 1] - starts
    blocks = np.zeros((len(texts), BLOCK_BYTES), dtype=np.uint8)
    for place in range(min(_SHORT, int(sizes.max(initial=0)))):
        there = np.flatnonzero(sizes > place)
        blocks[there, place] = raw[starts[there] + place]
    blocks[:, -1] = np.minimum(sizes, _LONG)
    keyed = hashlib.blake2b(b"long ids", key=key, digest_size=32).digest()
    for row in np.flatnonzero(sizes > _SHORT).tolist():
        digest = hashlib.blake2b(texts[row].as_py(), key=keyed, digest_size=_SHORT).digest()
        blocks[row] = np.frombuffer(digest + bytes([_LONG]), dtype=np.uint8)
    return blocks


class Records:
    """A set of records, from their tags in ascending order: whether one appears twice, and the set's keyed digest."""

    def __init__(self, key: bytes) -> None:
        self._digest = hashlib.blake2b(b"records", key=key, digest_size=32)
        self._last: U64 = np.zeros((0, 2), dtype=np.uint64)

    def add(self, tags: U64) -> None:
        """Add the next tags."""
        together = np.concatenate([self._last, tags])
        if (together[1:] == together[:-1]).all(axis=1).any():
            raise ColumnError("has an id twice; each record must have one row, so drop or join the others")
        self._digest.update(np.ascontiguousarray(tags, dtype="<u8").tobytes())
        self._last = together[-1:]

    def hexdigest(self) -> str:
        """Return the digest: equal for equal sets of records in one run, and nothing without the key."""
        return self._digest.hexdigest()


_DONE = "encrypted for this run"


@dataclass(frozen=True)
class Curator:
    """A party that holds columns of the records.

    Parameters
    ----------
    run
        The run.
    folder
        The curator's folder, with its signing key and the curators' shared secret.

    Raises
    ------
    ParameterError
        If the key in the folder is no curator's of the run.
    """

    run: Run
    folder: str | Path

    def __post_init__(self) -> None:
        _ = self.member

    @cached_property
    def identity(self) -> Identity:
        """The curator's keys."""
        return Identity(Path(self.folder))

    @cached_property
    def member(self) -> Member:
        """What the run says of the curator."""
        own = self.identity.public
        for member in self.run.curators:
            if member.key == own:
                return member
        raise ParameterError(f"the key in {self.folder} is no curator's of this run; pass the folder of one")

    def encrypt(
        self,
        source: Any,
        message: str | Path,
        pad: str | Path,
        *,
        id: str,
        beside: Sequence[str | Path] = (),
        ledger: Any = None,
        dataset: str | None = None,
    ) -> Header:
        """Write the padded codes of the sample for the server, and their pad for the researcher.

        Everything is checked first, then the budget is spent, then pads are drawn.

        Parameters
        ----------
        source
            A path of Parquet or CSV files, or a frame, with the ids and the curator's columns; others are not read.
        message
            The file, only for the server, of mode 0600: without the pad it is uniform noise, with it the
            plain sample. Its header, which reveals no values, is written next to it (``.header``).
        pad
            The file for the researcher, of mode 0600: with it one can read the message before the server adds noise,
            and has the curator's measured tables.
        id
            The column of record ids, whole numbers or text, each once.
        beside
            Headers of other curators' messages (``.header``), whose sets of records are compared with this one before
            anything is spent.
        ledger, dataset
            A `Ledger`, or its path, and the dataset in it from which the run spends all of its promise.

        Returns
        -------
        The header of the message.

        Raises
        ------
        FileError
            If a file is in the way, the run was encrypted before, or the records are not those of ``beside``.
        ParameterError, ColumnError
            For a table that does not fit the run: another number of rows, an id that is null or appears twice, a value
            that its space cannot hold.
        BudgetExceeded, LedgerError
            If the ledger does not allow the spend; nothing is drawn then.
        """
        account, table = OpenAccount.of(ledger, dataset), self._opened(source, id)
        message, pad = Path(message), Path(pad)
        for path in (message, pad, header_file(message)):
            check_new(path, "encrypted")
        if pad.resolve() in {path.resolve() for path in (message, header_file(message))}:
            raise FileError(
                f"message and pad are both {pad}, or pad is the message's header; take another name for pad"
            )
        self.identity.check_unused(f"{self.run.id}.encrypted", _DONE)
        with Spill(message.parent, (table.n // BUCKET_ROWS).bit_length()) as spill:
            return _Encryption(self, table, id, beside, account, spill, message, pad).run()

    def _opened(self, source: Any, id: str) -> Table:
        """Return the table, once it is known to have the columns, types and rows of the run."""
        table: Table = open_input(source) if isinstance(source, str | Path) else wrap(source)
        if table.text is not None:
            raise AlreadySanitizedError("the table is a release already; encrypt the original table")
        for name in (id, *self.member.columns):
            if name not in table.names:
                raise ColumnError(
                    "is in the run but not in the table; rename the table's, or make a new run", column=name
                )
        if id in self.member.columns:
            raise ParameterError(f"id {id!r} is a column of the run; ids do not leave, so take it out of the run")
        if table.n != self.run.plan.n:
            raise ParameterError(
                f"the run is for {self.run.plan.n:,} records and the table has {table.n:,}; make a new run for these"
            )
        spaces = self.run.spaces(self.member.columns)
        if isinstance(table, FileInput):
            table = table.typed(spaces)
            check_types(table.fields(list(spaces)), spaces)
        return table

    def _gather(self, table: Table, id: str, spill: Spill) -> Tables | None:
        """Code all rows into buckets by their tags; count the curator's tables."""
        key, plan = tag_key(self.identity.shared, self.run.digest), self.run.plan
        cuts = Keystream(secrets.token_bytes(32), self.run.digest)
        measures = self.run.tables_of(self.member)
        tables = Tables(replace(plan, measures=measures), secrets.token_bytes(32)) if measures else None
        first = 0
        for ids, codes in self._coded(table, id):
            if tables is not None:
                tables.add(codes, first)
            for unit in plan.columns:
                if unit.name in codes:
                    mechanism = unit.mechanism
                    codes[unit.name] = mechanism.before_pad(codes[unit.name], cuts.column(unit.name), first)
            try:
                spill.add(row_tags(ids, key, first), codes)
            except ColumnError as error:
                raise located(error, id) from None
            first += len(ids)
        return tables

    def _coded(self, table: Table, id: str) -> Iterator[tuple[pa.Array, Batch]]:
        """Yield ids and codes in batches."""
        spaces, plan = self.run.spaces(self.member.columns), self.run.plan
        if table.held:
            whole, first = table.codes(spaces, plan.nulls), 0
            for ids in table.arrays(id):
                codes = {name: column[first : first + len(ids)] for name, column in whole.items()}
                yield ids, codes
                first += len(ids)
            return
        first = 0
        for batch in table.batches([id, *spaces]):
            codes = {}
            for name, space in spaces.items():
                try:
                    codes[name] = space.encode(batch[name], nulls=plan.nulls_of(name))
                except ColumnError as error:
                    raise located(error, name, first) from None
            yield batch[id], codes
            first += len(batch[id])

    def _records(self, spill: Spill, id: str) -> str:
        """Return the keyed digest of the records; each must have one row."""
        records = Records(tag_key(self.identity.shared, self.run.digest))
        for bucket in range(spill.buckets):
            found = spill.read(bucket, words=True)
            try:
                if found:
                    records.add(found[""])
            except ColumnError as error:
                raise located(error, id) from None
        return records.hexdigest()

    def _compare(self, records: str, beside: Sequence[str | Path]) -> None:
        """Refuse headers of other records."""
        for path in beside:
            other = read_header(path, self.run.id, lambda name: self.run.member(name).key)
            if other.facts.get("records") != records:
                raise FileError(
                    f"{path} is of other records, or was made with another shared secret: curators need one secret and "
                    "the same ids; nothing was spent"
                )

    def _fields(self, table: Table) -> str:
        """Return the columns' names and types as text, which everybody may read."""
        spaces = self.run.spaces(self.member.columns)
        fields = [pa.field(f.name, public_type(spaces[f.name], f.type)) for f in table.fields(list(spaces))]
        return base64.b64encode(pa.schema(fields).serialize().to_pybytes()).decode()

    def _write(
        self,
        spill: Spill,
        facts: Mapping[str, Any],
        measured: Mapping[str, Any],
        message: Path,
        pad: Path,
        secret: bytes,
    ) -> Header:
        """Pad the sample's rows, in the order of their tags, and write both files; the pad has its name last.

        What was measured goes with the pad, which is only for the researcher.
        """
        run, spaces = self.run, self.run.spaces(self.member.columns)
        key = secret if run.pad == "stream" else None
        pads = PadStream(spaces, key, run.digest)
        with ExitStack() as stack:
            pad_file = stack.enter_context(atomic(pad, 0o600))
            message_file = stack.enter_context(atomic(message, 0o600))
            pad_writer = MessageWriter(pad_file, spaces if key is None else {})
            writer = MessageWriter(message_file, spaces)
            for codes in row_groups(_first(spill, run.rows), ROWS):
                drawn = pads.take(length(codes))
                writer.write(padded(spaces, codes, drawn))
                if key is None:
                    pad_writer.write(drawn)
            header = writer.finish(Header("codes", run.id, self.member.name, 0, facts), self.identity)
            told = {"message": header.digest, "pad": run.pad, **measured} | ({} if key is None else {"key": key.hex()})
            pad_writer.finish(Header("pad", run.id, self.member.name, 0, told), self.identity)
        write_header(header_file(message), header, self.identity)
        return header


@dataclass(frozen=True)
class _Encryption(Job[tuple[Tables | None, str], Header]):
    """The job of a curator's message: records are gathered and compared, then paid for, and then padded."""

    curator: Curator
    table: Table
    id: str
    beside: Sequence[str | Path]
    account: OpenAccount | None
    spill: Spill
    message: Path
    pad: Path

    def check(self) -> tuple[Tables | None, str]:
        tables = self.curator._gather(self.table, self.id, self.spill)
        records = self.curator._records(self.spill, self.id)
        self.curator._compare(records, self.beside)
        return tables, records

    def spend(self, checked: tuple[Tables | None, str]) -> None:
        run, identity = self.curator.run, self.curator.identity
        # The mark comes first: of two processes one pays. A folder that is restored forgets it, and pays anew for what
        # is then drawn anew.
        with identity.using(f"{run.id}.encrypted", _DONE):
            if self.account is not None:
                note = f"vertical {self.curator.member.name} {run.id[:32]}"
                self.account.spend(self.account.cost(run.plan), note)

    def key(self) -> bytes:
        return secrets.token_bytes(32)

    def draw(self, checked: tuple[Tables | None, str], receipt: str | None, key: bytes) -> Header:
        tables, records = checked
        facts = {"records": records, "fields": self.curator._fields(self.table)}
        measured = {} if tables is None else {"tables": packed(tables.measured())}
        return self.curator._write(self.spill, facts, measured, self.message, self.pad, key)


def _first(spill: Spill, rows: int) -> Iterator[Batch]:
    """Yield the rows of the lowest tags, in their order."""
    for bucket in range(spill.buckets):
        found = spill.read(bucket)
        if found and rows:
            part = {name: column[:rows] for name, column in found.items()}
            rows -= length(part)
            yield part


def public_type(space: Space, type_: pa.DataType) -> pa.DataType:
    """Return the type in which a column is released, which is in a public header.

    It is the space's own: a column's type is chosen by its values where the table's author let a reader choose it,
    and one null makes numbers of whole ones. What a space does not know is kept: whether text is of categories, and in
    their order; whether days are times, and their zone.

    >>> from dpframe.spaces import as_space
    >>> public_type(as_space((0, 99)), pa.float64()), public_type(as_space(["a", "b"]), pa.large_string())
    (DataType(int64), DataType(string))
    """
    natural, kinds = space.natural_type, pa.types
    if kinds.is_timestamp(type_) or kinds.is_duration(type_):
        unit = natural.unit if natural in (pa.timestamp("ns"), pa.duration("ns")) else "us"
        return pa.duration(unit) if kinds.is_duration(type_) else pa.timestamp(unit, type_.tz)
    if not kinds.is_dictionary(natural):
        return natural
    plain = natural.value_type
    return pa.dictionary(pa.int32(), plain, type_.ordered) if kinds.is_dictionary(type_) else plain


def fields_of(header: Header, names: Sequence[str]) -> dict[str, pa.Field]:
    """Read back the columns' types from a curator's header."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(header.facts.get("fields", ""))))
    except (ValueError, TypeError, pa.ArrowException):
        schema = pa.schema([])
    if set(schema.names) != set(names):
        raise FileError(f"the message of curator {header.sender} has no types of its columns; make a new run")
    return {field.name: field for field in schema}
