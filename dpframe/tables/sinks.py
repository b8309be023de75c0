"""Files out: Parquet, whose footer has the release's description, and CSV, with a second file that has it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv

from dpframe.disk import atomic, check_writable, write_text
from dpframe.errors import ColumnError, FileError
from dpframe.tables.batches import RowsWriter, Writer
from dpframe.tables.files import SIDECAR, FileInput, sidecar
from dpframe.tables.inputs import FORMATS, format_of
from dpframe.tables.parquet_form import ParquetForm

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

    >>> check_ending(Path("release.xlsx"))
    Traceback (most recent call last):
    ...
    dpframe.errors.FileError: release.xlsx: .xlsx is not written; name a .parquet or .csv file
    """
    if path.suffix.lower() in OTHER_FORMATS - set(FORMATS):
        raise FileError(f"{path}: {path.suffix} is not written; name a .parquet or .csv file")


@dataclass(frozen=True)
class Sink:
    """A file to write, in the format of its name's ending; `FileError` for formats that are not written."""

    path: Path
    compression: str

    def __post_init__(self) -> None:
        check_ending(self.path)

    @property
    def format(self) -> type[FileInput]:
        """The format of the file, by the ending of its name."""
        return format_of(self.path)

    def check(self, fields: Iterable[pa.Field]) -> None:
        """Raise `ColumnError` for a column that the format cannot hold."""
        for field in fields:
            self.format.check_field(field)

    def holds(self, field: pa.Field) -> bool:
        """Return whether the format can hold a column."""
        with contextlib.suppress(ColumnError):
            self.check([field])
            return True
        return False

    def open(self, file: IO[bytes], schema: pa.Schema) -> Writer:
        """Begin to write to an open file."""
        return self.format.writer(file, schema, self.compression)

    def rows(self, file: IO[bytes], form: ParquetForm) -> AbstractContextManager[RowsWriter]:
        """Begin to write released codes to an open file, in the form of their release."""
        return self.format.rows_writer(file, form, self.compression)

    @contextmanager
    def publishing(self) -> Iterator[tuple[IO[bytes], Callable[[str], None]]]:
        """Yield the file to write, and a function that receives the release's description.

        An older description is removed before the file has its name, and the new description follows: no description
        ever belongs to another release's rows.
        """
        descriptions: list[str] = []
        with self._without_older_plan() as withdraw, atomic(self.path) as file:
            yield file, descriptions.append
            withdraw()
        if self.format.apart and descriptions:
            write_text(sidecar(self.path), descriptions[-1])

    @contextmanager
    def _without_older_plan(self) -> Iterator[Callable[[], None]]:
        """Yield a function that removes an older release's plan; a failure of the block restores the plan."""
        plan_path = sidecar(self.path)
        backup_path = plan_path.with_name(f".{plan_path.name}.old")

        def withdraw() -> None:
            if self.format.apart and plan_path.exists():
                plan_path.replace(backup_path)

        try:
            yield withdraw
        # Also for a keyboard interrupt: the older release is still in place and needs its plan.
        except BaseException:
            if backup_path.exists():
                backup_path.replace(plan_path)
            raise
        backup_path.unlink(missing_ok=True)


def check_place(path: Path) -> Path:
    """Return a path that may be written; raise `FileError` for folders and for paths outside a writable folder."""
    try:
        path.exists()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise FileError(f"{path} cannot be written: {error.strerror}") from None
    if path.is_dir():
        raise FileError(f"{path} is a directory; name a file to write")
    if path.name.endswith(SIDECAR):
        raise FileError(f"{path} ends as the plan of a release in CSV does; name another file to write")
    if format_of(path).apart and sidecar(path).is_dir():
        raise FileError(f"{sidecar(path)} is a directory, and the plan goes there; name another file to write")
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is not a regular file; name another one to write")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is not a directory; make it first")
    check_writable(path)
    return path


def check_target(path: Path, table: FileInput) -> Path:
    """Return a path that may be written; raise `FileError` for folders and for files of the input."""
    check_place(path)
    # A link may lead from another name to the input: only resolved paths show this.
    inputs = {file.resolve() for file, _ in table.files}
    is_in_source = Path(table.source).is_dir() and Path(table.source).resolve() in path.resolve().parents
    if path.resolve() in inputs or is_in_source:
        raise FileError(f"{path} is part of the input; write to another place")
    return path
