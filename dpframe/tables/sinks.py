"""Files out: Parquet, whose footer has the release's description, and CSV, with a second file that has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dpframe.disk import atomic, check_writable
from dpframe.errors import ColumnError, FileError
from dpframe.tables.batches import Batch
from dpframe.tables.csv_reader import is_csv, sidecar
from dpframe.tables.files import SIDECAR, FileInput
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.types import is_text

# fmt: off
OTHER_FORMATS = {
    ".arrow", ".avro", ".bz2", ".db", ".dta", ".feather", ".gz", ".h5", ".html", ".ipc", ".json", ".jsonl",
    ".ndjson", ".ods", ".orc", ".pickle", ".pkl", ".rds", ".sas7bdat", ".sav", ".sqlite", ".tsv", ".txt", ".xls",
    ".xlsb", ".xlsm", ".xlsx", ".xml", ".xz", ".yaml", ".zip", ".zst",
}
# fmt: on
"""Endings that promise a format that is not written: programs would refuse such a file, or show noise as text."""


def check_ending(path: Path) -> None:
    """Raise `FileError` for a name that promises another format than Parquet or CSV.

    Examples
    --------
    >>> check_ending(Path("release.xlsx"))
    Traceback (most recent call last):
    ...
    dpframe.errors.FileError: release.xlsx: .xlsx is not written; name a .parquet or .csv file
    """
    if path.suffix.lower() in OTHER_FORMATS:
        raise FileError(f"{path}: {path.suffix} is not written; name a .parquet or .csv file")


class Writer(AbstractContextManager["Writer"], ABC):
    """An open file that tables are written to."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._inner.close()

    @abstractmethod
    def write(self, table: pa.Table, group_rows: int) -> None:
        """Write rows, in groups of so many where the format has groups."""

    def describe(self, metadata: Mapping[str, str]) -> None:
        """Write what the release says about itself, where the format has room for it; the last thing."""


class _ParquetWriter(Writer):
    def write(self, table: pa.Table, group_rows: int) -> None:
        self._inner.write_table(table, row_group_size=group_rows)

    def describe(self, metadata: Mapping[str, str]) -> None:
        self._inner.add_key_value_metadata(metadata)


class _CsvWriter(Writer):
    def write(self, table: pa.Table, group_rows: int) -> None:
        if table.num_columns == 1:
            # Other readers skip the empty line that a null would be.
            texts = table.column(0).cast(pa.string()).fill_null("")
            table = pa.table([texts], names=table.column_names)
        self._inner.write_table(table)


@dataclass(frozen=True)
class Rows:
    """Takes released codes in row groups, and after the last one what the release says about itself."""

    write: Callable[[Batch], None]
    describe: Callable[[Mapping[str, str]], None]


@dataclass(frozen=True)
class Sink:
    """A file to write: Parquet, or CSV where its name ends with ``.csv``; `FileError` for other formats' endings."""

    path: Path
    compression: str

    def __post_init__(self) -> None:
        check_ending(self.path)

    def check(self, fields: Iterable[pa.Field]) -> None:
        """Raise `ColumnError` for a column that the format cannot hold."""
        for field in fields:
            if is_csv(self.path) and not _is_flat(field.type):
                raise ColumnError(
                    f"has type {field.type}, which CSV cannot hold; write Parquet: name a target that ends in .parquet",
                    column=field.name,
                )

    def open(
        self,
        file: IO[bytes],
        schema: pa.Schema,
        encodings: Mapping[str, Any] | None = None,
        store_schema: bool = False,
    ) -> Writer:
        """Begin to write to an open file, Parquet with the encodings of its columns where they are known."""
        if is_csv(self.path):
            texts = pa.schema([pa.field(schema.names[0], pa.string())]) if len(schema) == 1 else schema
            return _CsvWriter(pa.csv.CSVWriter(file, texts))
        options = dict(encodings or {}, compression=self.compression, store_schema=store_schema)
        return _ParquetWriter(pq.ParquetWriter(file, schema, **options))

    @contextmanager
    def rows(self, file: IO[bytes], form: ParquetForm) -> Iterator[Rows]:
        """Begin to write released codes to an open file, in the form of their release."""
        if is_csv(self.path):
            with self.open(file, form.schema) as writer:
                yield Rows(lambda group: writer.write(form.decoded(group), form.group_rows), writer.describe)
        else:
            groups = form.writer(file, self.compression)
            yield Rows(partial(form.write, groups), groups.close)

    @contextmanager
    def publishing(self) -> Iterator[tuple[IO[bytes], Callable[[str], None]]]:
        """Give the file to write, and what takes the release's description, if that goes to a file of its own.

        An older description is gone before the file has its name, and the new one comes after: at no time does one
        describe another's rows.
        """
        told: list[str] = []
        with self._without_older_plan() as withdraw, atomic(self.path) as file:
            yield file, told.append
            withdraw()
        if is_csv(self.path) and told:
            with atomic(sidecar(self.path)) as beside:
                beside.write(told[-1].encode())

    @contextmanager
    def _without_older_plan(self) -> Iterator[Callable[[], None]]:
        """Give what takes away an older release's plan; it is back if the block fails after that."""
        beside = sidecar(self.path)
        aside = beside.with_name(f".{beside.name}.old")

        def withdraw() -> None:
            if is_csv(self.path) and beside.exists():
                beside.replace(aside)

        try:
            yield withdraw
        except BaseException:
            if aside.exists():
                aside.replace(beside)
            raise
        aside.unlink(missing_ok=True)


def _is_flat(type_: pa.DataType) -> bool:
    """Return whether values are written as text that is read back."""
    t = pa.types
    inner = type_.value_type if t.is_dictionary(type_) else type_
    plain = t.is_primitive(inner) and not (t.is_duration(inner) or t.is_time(inner) or t.is_interval(inner))
    return bool(plain or is_text(inner) or t.is_boolean(inner) or t.is_decimal(inner) or t.is_null(inner))


def check_place(path: Path) -> Path:
    """Return a path that may be written, or raise `FileError` if it is a folder, or in none for new files."""
    try:
        path.exists()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise FileError(f"{path} cannot be written: {error.strerror}") from None
    if path.is_dir():
        raise FileError(f"{path} is a directory; name a file to write")
    if path.name.endswith(SIDECAR):
        raise FileError(f"{path} ends as the plan of a release in CSV does; name another file to write")
    if is_csv(path) and sidecar(path).is_dir():
        raise FileError(f"{sidecar(path)} is a directory, and the plan goes there; name another file to write")
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is not a regular file; name another one to write")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is not a directory; make it first")
    check_writable(path)
    return path


def check_target(path: Path, table: FileInput) -> Path:
    """Return a path that may be written, or raise `FileError`: it is no folder, and no part of the input."""
    check_place(path)
    inputs = {file.resolve() for file, _ in table.files}
    inside = Path(table.source).is_dir() and Path(table.source).resolve() in path.resolve().parents
    if path.resolve() in inputs or inside:
        raise FileError(f"{path} is part of the input; write to another place")
    return path
