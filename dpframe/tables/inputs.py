"""Files of any format that is known, by the endings of their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpframe.tables.csv_reader import ENDING, CsvInput
from dpframe.tables.files import FileInput, paths_of
from dpframe.tables.parquet_reader import ParquetInput

FORMATS: dict[str, type[FileInput]] = {ENDING: CsvInput}
"""Formats by ending; files of another ending are Parquet."""


def open_input(source: Any) -> FileInput:
    """Open a file, a directory or a glob; see `FileInput.open`."""
    files = paths_of(source) if isinstance(source, str | Path) else []
    named = files[0][0] if files else source if isinstance(source, str | Path) else ""
    return FORMATS.get(Path(named).suffix.lower(), ParquetInput).open(source)
