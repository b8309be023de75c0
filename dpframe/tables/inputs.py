"""Files of every supported format, by the endings of their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpframe.tables.csv_reader import CsvInput
from dpframe.tables.files import FileInput, paths_of
from dpframe.tables.parquet_reader import ParquetInput

FORMATS: dict[str, type[FileInput]] = {format.ending: format for format in (ParquetInput, CsvInput)}
"""Formats by ending; files of another ending are Parquet. A new format is one class, and its name here."""


def format_of(path: Path) -> type[FileInput]:
    """Return the format of a file, by its name."""
    return FORMATS.get(path.suffix.lower(), ParquetInput)


def input_format(source: Any) -> type[FileInput]:
    """Return the format of a file, of the first file of a directory, or of a glob."""
    files = paths_of(source) if isinstance(source, str | Path) else []
    return format_of(Path(files[0][0] if files else source if isinstance(source, str | Path) else ""))


def open_input(source: Any) -> FileInput:
    """Open a file, a directory or a glob; see `FileInput.open`."""
    return input_format(source).open(source)
