"""A curator: ranks its rows by the shared secret, pads their codes, and hands out message and pad.

A tag is the image of an id under a pseudorandom function whose key comes from the curators' secret and the run's fresh
nonce: AES-256 of one block, which holds the id itself, or its keyed BLAKE2b where it is long. Rows are ranked by their
tags and the m lowest are the sample, in that order. Without the secret it is a uniformly random choice in a uniformly
random order, for any order of the table. Theorem III.2 of the sampling paper needs the random order as well: it is
false for a random sample that keeps the order of the table.
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

from dpframe.disk import atomic
from dpframe.errors import AlreadySanitizedError, ColumnError, FileError, ParameterError
from dpframe.ledger.account import Job, OpenAccount
from dpframe.noise.keystream import AES_BLOCK_BYTES, U64, Keystream, block_cipher
from dpframe.release.info import packed
from dpframe.release.noisy_tables import Tables
from dpframe.release.spill import SPILL_BUCKET_ROWS, Spill
from dpframe.spaces import Space, as_arrow
from dpframe.tables.batches import Batch, length, row_groups
from dpframe.tables.files import FileInput
from dpframe.tables.frames import wrap
from dpframe.tables.inputs import open_input
from dpframe.tables.table import Table, check_types, located
from dpframe.tables.types import is_text
from dpframe.vertical.keys import Identity
from dpframe.vertical.messages import (
    MESSAGE_BATCH_ROWS,
    Header,
    MessageWriter,
    check_new,
    header_file,
    read_header,
    write_header,
)
from dpframe.vertical.pads import PadStream, add_pads
from dpframe.vertical.run import Member, Run

_SHORT_ID_BYTES, _LONG_ID_MARK = 15, 255
"""Bytes of an id that fit into a block next to their number, and the number that marks longer ids."""


def tag_key(secret: bytes, run: bytes) -> bytes:
    """Return the key of a run's tags."""
    return Keystream(secret, run).column("", "records").words(0, 0, 4).tobytes()


def row_tags(ids: pa.Array, key: bytes, first_row: int = 0) -> U64:
    """Return the 128-bit tag of each record id, shape (rows, 2), low half first.

    Whole numbers are read as their decimal digits: 7 and "7" are one record.
    """
    ids = as_arrow(ids)
    if ids.null_count:
        row = int(np.flatnonzero(pc.is_null(ids).to_numpy(zero_copy_only=False))[0]) + first_row
        raise ColumnError("is null, and every row needs the id of its record; drop such rows, or fill them", row=row)
    if pa.types.is_dictionary(ids.type):
        # Each distinct id is encrypted once.
        positions = ids.indices.to_numpy(zero_copy_only=False)
        return np.asarray(row_tags(ids.dictionary, key, first_row)[positions])
    if not pa.types.is_integer(ids.type) and not is_text(ids.type):
        raise ColumnError(f"has type {ids.type}, and ids must be whole numbers or text; cast it to text")
    texts = ids.cast(pa.large_string()).cast(pa.large_binary())
    return np.frombuffer(block_cipher(key).update(_id_blocks(texts, key).data), dtype="<u8").reshape(-1, 2)


def _id_blocks(texts: pa.LargeBinaryArray, key: bytes) -> npt.NDArray[np.uint8]:
    """Return a block of 16 bytes for each text, shape (rows, 16); different texts have different blocks.

    A text of up to 15 bytes is in the block itself, followed by its length; a longer one is its keyed BLAKE2b and 255.
    """
    offsets, raw = (
        np.frombuffer(buffer, kind) for buffer, kind in zip(texts.buffers()[1:], ("<i8", "u1"), strict=True)
    )
    starts = offsets[texts.offset : texts.offset + len(texts)]
    sizes = offsets[texts.offset + 1 : texts.offset + len(texts) + 1] - starts
    blocks = np.zeros((len(texts), AES_BLOCK_BYTES), dtype=np.uint8)
    # Byte by byte over all rows: no Python object is made for a row.
    for position in range(min(_SHORT_ID_BYTES, int(sizes.max(initial=0)))):
        long_rows = np.flatnonzero(sizes > position)
        blocks[long_rows, position] = raw[starts[long_rows] + position]
    blocks[:, -1] = np.minimum(sizes, _LONG_ID_MARK)
    # Keyed: without the key nobody can look for two ids with one block.
    id_key = hashlib.blake2b(b"long ids", key=key, digest_size=32).digest()
    for row in np.flatnonzero(sizes > _SHORT_ID_BYTES).tolist():
        digest = hashlib.blake2b(texts[row].as_py(), key=id_key, digest_size=_SHORT_ID_BYTES).digest()
        blocks[row] = np.frombuffer(digest + bytes([_LONG_ID_MARK]), dtype=np.uint8)
    return blocks


class RecordSet:
    """Digest under a key of a set of records, whose tags arrive in ascending order; refuses a repeated record."""

    def __init__(self, key: bytes) -> None:
        self._digest = hashlib.blake2b(b"records", key=key, digest_size=32)
        self._last_tag: U64 = np.zeros((0, 2), dtype=np.uint64)

    def add(self, tags: U64) -> None:
        """Add the next tags."""
        # Equal tags are neighbours, also across two calls.
        adjacent_tags = np.concatenate([self._last_tag, tags])
        if (adjacent_tags[1:] == adjacent_tags[:-1]).all(axis=1).any():
            raise ColumnError("has an id twice; each record must have one row, so drop or join the others")
        self._digest.update(np.ascontiguousarray(tags, dtype="<u8").tobytes())
        self._last_tag = adjacent_tags[-1:]

    def hexdigest(self) -> str:
        """Return the digest: equal for equal sets of records in one run; it reveals nothing without the key."""
        return self._digest.hexdigest()


_ENCRYPTED = "encrypted for this run"


@dataclass(frozen=True)
class Curator:
    """A party that has some columns of the records.

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
        # A folder of another party is refused at once, and not after the table was read.
        _ = self.member

    @cached_property
    def identity(self) -> Identity:
        """The curator's keys."""
        return Identity(Path(self.folder))

    @cached_property
    def member(self) -> Member:
        """The curator's entry in the run: name, columns and public key."""
        public_key = self.identity.public
        for member in self.run.curators:
            if member.key == public_key:
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
            The file, only for the server, of mode 0600: uniform noise without the pad, and the plain sample with the
            pad. Its header, which reveals no values, is written next to it (``.header``).
        pad
            The file for the researcher, of mode 0600: its holder can read the message before the server adds noise,
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
            If a file exists already, the run was encrypted before, or ``beside`` has other records.
        ParameterError, ColumnError
            For a table that does not fit the run: another number of rows, an id that is null or repeated, or a value
            outside its space.
        BudgetExceeded, LedgerError
            If the ledger does not allow the spend; nothing is drawn then.
        """
        account, table = OpenAccount.of(ledger, dataset), self._open_table(source, id)
        message, pad = Path(message), Path(pad)
        for path in (message, pad, header_file(message)):
            check_new(path, "encrypted")
        if pad.resolve() in {path.resolve() for path in (message, header_file(message))}:
            raise FileError(
                f"message and pad are both {pad}, or pad is the message's header; take another name for pad"
            )
        # Refused before the table is read; the mark itself is set when the budget is spent.
        self.identity.check_unused(f"{self.run.id}.encrypted", _ENCRYPTED)
        with Spill(message.parent, (table.n // SPILL_BUCKET_ROWS).bit_length()) as spill:
            return _Encryption(self, table, id, beside, account, spill, message, pad).run()

    def _open_table(self, source: Any, id: str) -> Table:
        """Return the table, or raise an error unless it has the columns, types and rows of the run."""
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
        # Frames are checked value by value; the types of files can be refused before any value is read.
        if isinstance(table, FileInput):
            table = table.typed(spaces)
            check_types(table.fields(list(spaces)), spaces)
        return table

    def _collect_rows(self, table: Table, id: str, spill: Spill) -> Tables | None:
        """Encode all rows into buckets by their tags, and count the curator's measured tables."""
        key, plan = tag_key(self.identity.shared, self.run.digest), self.run.plan
        cut_stream = Keystream(secrets.token_bytes(32), self.run.digest)
        measures = self.run.tables_of(self.member)
        tables = Tables(replace(plan, measures=measures), secrets.token_bytes(32)) if measures else None
        first_row = 0
        for ids, codes in self._read_codes(table, id):
            if tables is not None:
                tables.add(codes, first_row)
            for unit in plan.columns:
                if unit.name in codes:
                    # Sets beyond the largest size are truncated now: under a pad the server cannot do it.
                    mechanism = unit.mechanism
                    codes[unit.name] = mechanism.before_pad(codes[unit.name], cut_stream.column(unit.name), first_row)
            try:
                spill.add(row_tags(ids, key, first_row), codes)
            except ColumnError as error:
                raise located(error, id) from None
            first_row += len(ids)
        return tables

    def _read_codes(self, table: Table, id: str) -> Iterator[tuple[pa.Array, Batch]]:
        """Yield ids and codes of all rows in batches."""
        spaces, plan = self.run.spaces(self.member.columns), self.run.plan
        # A table in memory is encoded at once; other tables are read once, with ids and codes together.
        if table.held:
            all_codes, first_row = table.codes(spaces, plan.nulls), 0
            for ids in table.arrays(id):
                codes = {name: column[first_row : first_row + len(ids)] for name, column in all_codes.items()}
                yield ids, codes
                first_row += len(ids)
            return
        first_row = 0
        for batch in table.batches([id, *spaces]):
            codes = {}
            for name, space in spaces.items():
                try:
                    codes[name] = space.encode(batch[name], nulls=plan.nulls_of(name))
                except ColumnError as error:
                    raise located(error, name, first_row) from None
            yield batch[id], codes
            first_row += len(batch[id])

    def _digest_records(self, spill: Spill, id: str) -> str:
        """Return the keyed digest of the records; `ColumnError` if a record has two rows."""
        records = RecordSet(tag_key(self.identity.shared, self.run.digest))
        for bucket in range(spill.buckets):
            content = spill.read(bucket, words=True)
            try:
                if content:
                    records.add(content[""])
            except ColumnError as error:
                raise located(error, id) from None
        return records.hexdigest()

    def _compare_records(self, records: str, beside: Sequence[str | Path]) -> None:
        """Raise `FileError` for headers of other records."""
        for path in beside:
            header = read_header(path, self.run.id, lambda name: self.run.member(name).key)
            if header.facts.get("records") != records:
                raise FileError(
                    f"{path} is of other records, or was made with another shared secret: curators need one secret and "
                    "the same ids; nothing was spent"
                )

    def _describe_fields(self, table: Table) -> str:
        """Return the columns' names and types as text for the public header."""
        spaces = self.run.spaces(self.member.columns)
        fields = [pa.field(f.name, public_type(spaces[f.name], f.type)) for f in table.fields(list(spaces))]
        return base64.b64encode(pa.schema(fields).serialize().to_pybytes()).decode()

    def _write_files(
        self,
        spill: Spill,
        facts: Mapping[str, Any],
        table_facts: Mapping[str, Any],
        message: Path,
        pad: Path,
        secret: bytes,
    ) -> Header:
        """Pad the sample's rows, in the order of their tags, and write both files.

        The measured tables go with the pad, which is only for the researcher.
        """
        run, spaces = self.run, self.run.spaces(self.member.columns)
        key = secret if run.pad == "stream" else None
        pads = PadStream(spaces, key, run.digest)
        # Files get their names in reverse order: a pad is there only if its message is.
        with ExitStack() as stack:
            pad_file = stack.enter_context(atomic(pad, 0o600))
            message_file = stack.enter_context(atomic(message, 0o600))
            pad_writer = MessageWriter(pad_file, spaces if key is None else {})
            writer = MessageWriter(message_file, spaces)
            for codes in row_groups(_lowest_rows(spill, run.rows), MESSAGE_BATCH_ROWS):
                pad_values = pads.take(length(codes))
                writer.write(add_pads(spaces, codes, pad_values))
                if key is None:
                    pad_writer.write(pad_values)
            header = writer.finish(Header("codes", run.id, self.member.name, 0, facts), self.identity)
            pad_facts = {"message": header.digest, "pad": run.pad, **table_facts} | (
                {} if key is None else {"key": key.hex()}
            )
            pad_writer.finish(Header("pad", run.id, self.member.name, 0, pad_facts), self.identity)
        write_header(header_file(message), header, self.identity)
        return header


@dataclass(frozen=True)
class _Encryption(Job[tuple[Tables | None, str], Header]):
    """The job of a curator's message: collect and compare records, spend the budget, then pad the rows."""

    curator: Curator
    table: Table
    id: str
    beside: Sequence[str | Path]
    account: OpenAccount | None
    spill: Spill
    message: Path
    pad: Path

    def check(self) -> tuple[Tables | None, str]:
        tables = self.curator._collect_rows(self.table, self.id, self.spill)
        records = self.curator._digest_records(self.spill, self.id)
        self.curator._compare_records(records, self.beside)
        return tables, records

    def spend(self, checked: tuple[Tables | None, str]) -> None:
        run, identity = self.curator.run, self.curator.identity
        # The mark comes first, so that only one of two processes pays. A restored folder has lost the mark: it pays
        # again, for pads that it draws again.
        with identity.using(f"{run.id}.encrypted", _ENCRYPTED):
            if self.account is not None:
                note = f"vertical {self.curator.member.name} {run.id[:32]}"
                self.account.spend(self.account.cost(run.plan), note)

    def key(self) -> bytes:
        return secrets.token_bytes(32)

    def draw(self, checked: tuple[Tables | None, str], receipt: str | None, key: bytes) -> Header:
        tables, records = checked
        facts = {"records": records, "fields": self.curator._describe_fields(self.table)}
        table_facts = {} if tables is None else {"tables": packed(tables.measured())}
        return self.curator._write_files(self.spill, facts, table_facts, self.message, self.pad, key)


def _lowest_rows(spill: Spill, rows: int) -> Iterator[Batch]:
    """Yield the rows with the lowest tags, in the order of their tags."""
    for bucket in range(spill.buckets):
        content = spill.read(bucket)
        if content and rows:
            part = {name: column[:rows] for name, column in content.items()}
            rows -= length(part)
            yield part


def public_type(space: Space, type_: pa.DataType) -> pa.DataType:
    """Return the type in which a column is released, which is in a public header.

    It is the type of the space. A table keeps only facts that no value decides and no space knows: whether text has
    categories, and ordered ones; whether days are times, and their zone.

    >>> from dpframe.spaces import as_space
    >>> public_type(as_space((0, 99)), pa.float64()), public_type(as_space(["a", "b"]), pa.large_string())
    (DataType(int64), DataType(string))
    """
    # Readers of files may choose a type by the values: one null makes whole numbers floats, and would show here.
    natural, types = space.natural_type, pa.types
    if types.is_timestamp(type_) or types.is_duration(type_):
        unit = natural.unit if natural in (pa.timestamp("ns"), pa.duration("ns")) else "us"
        return pa.duration(unit) if types.is_duration(type_) else pa.timestamp(unit, type_.tz)
    if not types.is_dictionary(natural):
        return natural
    value_type = natural.value_type
    return pa.dictionary(pa.int32(), value_type, type_.ordered) if types.is_dictionary(type_) else value_type


def read_fields(header: Header, names: Sequence[str]) -> dict[str, pa.Field]:
    """Return the columns' types from a curator's header, or raise `FileError`."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(header.facts.get("fields", ""))))
    except (ValueError, TypeError, pa.ArrowException):
        schema = pa.schema([])
    if set(schema.names) != set(names):
        raise FileError(f"the message of curator {header.sender} has no types of its columns; make a new run")
    return {field.name: field for field in schema}
