"""How a CSV file is written, by its line of names, which is public: values never decide how a file is read."""

from __future__ import annotations

import codecs
import contextlib
from pathlib import Path

import pyarrow as pa

from dpframe.errors import FileError
from dpframe.tables.files import attempt, shown

_SEPARATORS = {";": ("semicolons", 'sep=";", decimal=","'), "\t": ("tabs", r'sep="\t"')}
"""Other separators of values in files that are called CSV, and how pandas reads what programs write with them."""

_LONGEST = 1 << 20
"""Bytes of a line of names that are looked at."""


def check_dialect(path: Path) -> None:
    """Raise `FileError` for a file that is not CSV in UTF-8, with how pandas reads it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "excel.csv"
    ...     _ = path.write_text("Größe;Gewicht", encoding="cp1252")
    ...     check_dialect(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    dpframe.errors.FileError: ...excel.csv has semicolons between its names, and letters that are not UTF-8: ...
    """
    start = attempt(path, "cannot be read", lambda: pa.input_stream(path).read(_LONGEST))
    if not start:
        raise FileError(f"{shown(path)} is empty; a CSV file begins with a line of names")
    line = (start.splitlines() or [b""])[0]
    encoding = _encoding(line)
    names = line.decode(encoding or "utf-8", errors="replace")
    mark = next((mark for mark in _SEPARATORS if mark in names and "," not in names), None)
    faults, options = [], []
    if mark is not None:
        marks, option = _SEPARATORS[mark]
        faults, options = [f"{marks} between its names"], [option]
    if encoding is not None:
        faults, options = [*faults, "letters that are not UTF-8"], [*options, f'encoding="{encoding}"']
    if faults:
        single = "; a single column is to be renamed" if mark is not None else ""
        raise FileError(
            f"{shown(path)} has {', and '.join(faults)}: sanitize the frame that pandas.read_csv(…, "
            f"{', '.join(options)}) reads, or write the file in UTF-8 with commas between values and decimal "
            f"points{single}"
        )


def _encoding(line: bytes) -> str | None:
    """Return the encoding of a line that is not UTF-8: what Windows writes in Western Europe, or UTF-16."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(line) < _LONGEST:  # a longer one may be cut within a letter
        with contextlib.suppress(UnicodeDecodeError):
            line.decode()
            return None
        return "cp1252"
    return None
