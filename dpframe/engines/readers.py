"""Readers of parts of a table on workers: an engine's partition as frames with the addresses of their rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa

from dpframe.engines.work import Pieces
from dpframe.errors import ColumnError, FileError
from dpframe.noise.keystream import U64, derived_key
from dpframe.tables.files import READ_BATCH_ROWS
from dpframe.tables.frames import ArrowFrame, PandasFrame
from dpframe.tables.inputs import open_input
from dpframe.tables.metadata import arrow_metadata
from dpframe.tables.parquet_reader import ParquetInput
from dpframe.tables.persons import person_words

ID_USE = b"ids of rows"


class Reader(Protocol):
    """Reads a part of a table, from the engine's partition and the position of its first row."""

    def __call__(self, part: Any, first: int) -> Pieces:
        """Yield the part's rows, some at a time."""

    @property
    def columns(self) -> list[str]:
        """The columns to read, including columns of addresses."""

    def only(self, names: Sequence[str], plain: Collection[str]) -> Reader:
        """Return a reader of some columns; columns in ``plain`` are read as plain values."""

    def keyed(self, key: bytes) -> Reader:
        """Return a reader of these rows whose addresses, unless they are positions, are hashes under a key."""


@dataclass(frozen=True)
class PandasReader:
    """Reads pandas partitions, with addresses by id if there is a column of ids."""

    names: Sequence[str]
    id: str | None = None
    key: bytes = field(default=bytes(32), repr=False)

    def only(self, names: Sequence[str], plain: Collection[str]) -> PandasReader:
        """Return a reader of some columns."""
        return replace(self, names=list(names))

    def keyed(self, key: bytes) -> PandasReader:
        """Return a reader of these rows whose addresses are hashes under another key."""
        # A key of its own, so that addresses reveal nothing about the noise.
        return replace(self, key=derived_key(key, ID_USE))

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return [*self.names, *filter(None, [self.id])]

    def __call__(self, part: pd.DataFrame, first: int) -> Pieces:
        """Yield the partition."""
        frame = PandasFrame(part[list(self.names)])
        if self.id is None:
            yield frame, first
        else:
            yield frame, id_words(PandasFrame(part[[self.id]]).array(self.id), self.id, self.key)


@dataclass(frozen=True)
class ParquetReader:
    """Reads row groups of Parquet files that workers find under the driver's paths."""

    table: ParquetInput
    names: Sequence[str]
    plain: Collection[str] = ()

    def only(self, names: Sequence[str], plain: Collection[str]) -> ParquetReader:
        """Return a reader of some columns; columns in ``plain`` are read without dictionaries, as they are.

        Raises `FileError` if the unification of files would change values of the columns in ``plain``.
        """
        self.table.check_copied(plain)
        return replace(self, names=list(names), plain=tuple(plain))

    def keyed(self, key: bytes) -> ParquetReader:
        """Return the reader itself, as rows are known by their positions."""
        return self

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return list(self.names)

    def __call__(self, part: tuple[str, dict[str, str | None], int, int], first: int) -> Pieces:
        """Yield batches of a row group: its file, partition keys, number and rows."""
        path, keys, group, rows = part
        table = replace(self.table, files=((Path(path), keys),), n=rows, groups=(group,))
        # In batches, as a row group may be larger than the memory of a worker.
        for batch in table.batches(self.names, READ_BATCH_ROWS, self.plain):
            frame = ArrowFrame(pa.table(batch))
            yield frame, first
            first += frame.n


def parquet_files(source: str | Path) -> ParquetInput:
    """Open Parquet files; `FileError` for other formats, which have no parts to read."""
    files = open_input(source)
    if not isinstance(files, ParquetInput):
        raise FileError(f"{source} is {files.form}, and engines cannot read parts of it; convert it to Parquet")
    return files


def to_empty_table(files: ParquetInput) -> ArrowFrame:
    """Return a table with the columns and the description of files, without rows."""
    metadata = None if files.text is None else arrow_metadata(files.text)
    return ArrowFrame(files.schema.with_metadata(metadata).empty_table())


def parquet_parts(files: ParquetInput) -> list[tuple[tuple[str, dict[str, str | None], int, int], int]]:
    """Return row groups as `ParquetReader` takes them, each with the position of its first row."""
    parts, first = [], 0
    for part in files.parts():
        (path, keys), (group,) = part.files[0], part.groups or (0,)
        # Workers may run in another folder than the driver.
        parts.append(((str(path.absolute()), keys, group, part.n), first))
        first += part.n
    return parts


def id_words(ids: pa.Array, name: str, key: bytes) -> U64:
    """Return the addresses of rows by their ids: whole numbers themselves, text by a keyed hash of 128 bits."""
    try:
        return person_words(ids, key, role="id", noun="a row")
    except ColumnError as error:
        raise error.located(name) from None


@dataclass(frozen=True)
class PartTask:
    """Reads a part and does a task with its rows; an engine calls it on a worker."""

    reader: Reader
    task: Callable[[Pieces], Any] = field(repr=False)

    def __call__(self, part: Any, first: int) -> Any:
        """Return what the task returns."""
        return self.task(self.reader(part, first))
