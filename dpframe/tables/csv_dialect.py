"""How a CSV file writes its values: separator, decimal mark, order of days and months, encoding of letters."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import FileError, ParameterError
from dpframe.tables.files import attempt, shown

_SEPARATORS = {
    ";": ("semicolons", 'sep=";", decimal=","'),
    "\t": ("tabs", r'sep="\t"'),
    ",": ("commas", 'sep=","'),
}
"""Separators of values in files that are called CSV, and the options with which pandas reads them."""

_MAX_HEADER_BYTES = 1 << 20
"""Limit on the bytes that are read of a line of names."""

_ENCODINGS = frozenset(
    [
        *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii", "mac-roman", "koi8-r", "koi8-u"),
        *("cp437", "cp850", "cp852", "cp858", "cp866", *(f"cp{page}" for page in range(1250, 1259))),
        *(f"iso8859-{part}" for part in range(1, 17) if part != 12),
    ]
)
"""Encodings without states or escapes, by Python's names: with others the bytes of one row may change later rows."""

_GROUPED_NUMBER = r"^\s*[+-]?[0-9]{1,3}(\.[0-9]{3})+(,[0-9]*)?\s*$"
_COMMA_NUMBER = r"^\s*([+-]?[0-9]*),([0-9]*([eE][+-]?[0-9]{1,4})?)\s*$"
_DAY_FIRST = re.compile(r"\s*([0-9]{1,2})[./-]([0-9]{1,2})[./-]([0-9]{4})(?:[T ]+([0-9]{1,2}:[0-9:.]+))?\s*")


@dataclass(frozen=True)
class CsvDialect:
    """The form of a CSV file's values.

    Parameters
    ----------
    sep
        The letter between values; ``tab`` stands for a tabulator.
    decimal
        The decimal mark, ``.`` or ``,``; with a comma, points between groups of three digits are left out.
    dayfirst
        Whether dates such as 31.1.2024 begin with the day.
    encoding
        The encoding of letters, as Python names it: UTF-8, UTF-16, or one byte a letter, such as ``cp1252``.

    Raises
    ------
    ParameterError
        If a value is none of these.

    Examples
    --------
    >>> texts = pa.array(["1.234,5", "0,25", "3.2.2024 8:30", "word, word"]).dictionary_encode()
    >>> CsvDialect(";", ",", dayfirst=True).to_standard(texts).to_pylist()
    ['1234.5', '0.25', '2024-02-03 08:30', 'word, word']
    """

    sep: str = ","
    decimal: str = "."
    dayfirst: bool = False
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sep", {"tab": "\t", r"\t": "\t"}.get(self.sep, self.sep))
        if len(self.sep) != 1 or not self.sep.isascii() or self.sep.isalnum() or self.sep in '"\r\n':
            raise ParameterError('sep must be the letter between values, e.g. sep=";" or sep="tab"')
        if self.decimal not in (".", ","):
            raise ParameterError('decimal must be a point or a comma, e.g. decimal=","')
        if self.decimal == self.sep:
            raise ParameterError('sep and decimal must differ; give both, e.g. sep=";" and decimal=","')
        try:
            is_stateless = codecs.lookup(self.encoding).name in _ENCODINGS
        except (LookupError, ValueError, TypeError):
            is_stateless = False
        if not is_stateless:
            raise ParameterError(
                'encoding must be "utf-8", "utf-16", "cp1252" or another encoding without states; convert the file to '
                "UTF-8"
            )

    @property
    def is_utf8(self) -> bool:
        """Whether letters are in UTF-8, which needs no conversion."""
        return codecs.lookup(self.encoding).name == "utf-8"

    def open(self, path: Path) -> Any:
        """Return what Arrow reads a file from: its path, or a stream of its letters in UTF-8."""
        return path if self.is_utf8 else pa.PythonFile(_Utf8Stream(path.open("rb"), self.encoding), mode="r")

    def to_standard(self, texts: pa.Array) -> pa.Array:
        """Return a dictionary of text with decimal points, and days as ISO 8601 writes them; other texts unchanged."""
        if self.decimal == "." and not self.dayfirst:
            return texts
        entries = texts.dictionary.cast(pa.string())
        if self.decimal == ",":
            is_grouped = pc.match_substring_regex(entries, _GROUPED_NUMBER)
            entries = pc.if_else(is_grouped, pc.replace_substring(entries, ".", ""), entries)
            entries = pc.replace_substring_regex(entries, _COMMA_NUMBER, r"\1.\2")
        if self.dayfirst:
            entries = pa.array(
                [None if text is None else _to_iso_day(text) for text in entries.to_pylist()], pa.string()
            )
        # Two texts may write one value: entries of a dictionary are distinct.
        return entries.take(texts.indices).dictionary_encode()


def _to_iso_day(text: str) -> str:
    """Return a text that is a day before a month and a year, and perhaps a time, as ISO 8601 writes it."""
    match = _DAY_FIRST.fullmatch(text)
    if match is None:
        return text
    day, month, year, time = match.groups()
    return f"{year}-{month:0>2}-{day:0>2}" + ("" if time is None else f" {time:0>{len(time) + time.find(':') % 2}}")


class _Utf8Stream(io.RawIOBase):
    """The bytes of a file in UTF-8; bytes that the encoding lacks become a question mark, as an error would tell."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder(encoding)(errors="replace")

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, more than ``size`` if letters are wider; none at the end."""
        while content := self._file.read(size):
            text = self._decoder.decode(content)
            if text:
                return text.encode()
        return self._decoder.decode(b"", final=True).encode()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


STANDARD_DIALECT = CsvDialect()
"""The dialect of releases, and of files without options (limit of the format)."""

_dialect: ContextVar[CsvDialect] = ContextVar("dialect", default=STANDARD_DIALECT)


def current_dialect() -> CsvDialect:
    """Return the dialect of CSV files that are opened now."""
    return _dialect.get()


@contextmanager
def reading_dialect(dialect: CsvDialect) -> Iterator[None]:
    """Open CSV files in a dialect meanwhile: a command opens its source in several places, and all must agree."""
    token = _dialect.set(dialect)
    try:
        yield
    finally:
        _dialect.reset(token)


def check_dialect(path: Path, dialect: CsvDialect) -> None:
    """Raise `FileError` for a file whose line of names is of another dialect, with how it is read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "excel.csv"
    ...     _ = path.write_text("Größe;Gewicht", encoding="cp1252")
    ...     check_dialect(path, CsvDialect())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    dpframe.errors.FileError: ...excel.csv has semicolons between its names, and letters that are not UTF-8: ...
    """
    head = attempt(path, "cannot be read", lambda: pa.input_stream(path).read(_MAX_HEADER_BYTES))
    if not head:
        raise FileError(f"{shown(path)} is empty; a CSV file begins with a line of names")
    line = (head.splitlines() or [b""])[0]
    encoding = None
    if not dialect.is_utf8:
        line = line.decode(dialect.encoding, errors="replace").encode()
    elif line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif len(line) < _MAX_HEADER_BYTES:  # a longer one may be cut within a letter
        try:
            line.decode()
        except UnicodeDecodeError:
            encoding = "cp1252"  # what Windows writes in Western Europe
    names = line.decode(encoding or "utf-8", errors="replace")
    mark = next((mark for mark in _SEPARATORS if mark in names and dialect.sep not in names), None)
    faults, options = [], []
    if mark is not None:
        marks, option = _SEPARATORS[mark]
        faults, options = [f"{marks} between its names"], [option]
    if encoding is not None:
        faults, options = [*faults, "letters that are not UTF-8"], [*options, f'encoding="{encoding}"']
    if faults:
        rename_hint = "; rename the column if it is the only one" if mark is not None else ""
        raise FileError(
            f"{shown(path)} has {', and '.join(faults)}: sanitize the frame that pandas.read_csv(…, "
            f"{', '.join(options)}) reads, or write the file in UTF-8 with commas and decimal points"
            f"{rename_hint}"
        )
