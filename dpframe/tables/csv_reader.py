"""CSV in: columns of text, with the types of declared or inferred spaces, without guesses.

Other readers take a column's type from its values, so that one row decides how every other is read. Here every column
is text until its space is known; private inference counts its values with noise. A release has its plan in a
file of its own, which contains the spaces.

That files are well formed is taken as public: a row with more or fewer values than there are names, quotes that are
left open, or a row of more than 16 MiB are refused. Values are secret: if a space is inferred, no value is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dpframe.errors import ColumnError, FileError
from dpframe.spaces import Space
from dpframe.spaces.field import Field
from dpframe.spaces.written_values import is_blank, read_written, written_type
from dpframe.tables.batches import Writer
from dpframe.tables.csv_dialect import STANDARD_DIALECT, CsvDialect, check_dialect, current_dialect
from dpframe.tables.files import FileInput, attempt, repeated, shown, sidecar
from dpframe.tables.frames import without_views
from dpframe.tables.types import is_text

NULLS = ("", "#N/A", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null")
"""The texts of a missing value outside of quotes, as in pandas."""

_READ_BLOCK_BYTES = 1 << 24
"""Bytes read at a time; no row may be longer."""

_DAY_FIRST = "pd.to_datetime(…, dayfirst=True) reads columns of dates like 31.1.2024"
_TYPE_RULES: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (pa.types.is_null, "no empty field"),
    (pa.types.is_boolean, "neither true nor false"),
    (pa.types.is_integer, "no whole number"),
    (pa.types.is_floating, 'no number like 54.2 (pandas.read_csv(…, decimal=",") reads decimal commas)'),
    (pa.types.is_date, f"no date like 2024-01-31 ({_DAY_FIRST})"),
    (pa.types.is_timestamp, f"no time like 2024-01-31 08:00 ({_DAY_FIRST})"),
    (pa.types.is_list, 'no list like ["a", "b"]'),
    (pa.types.is_duration, "no duration like 1 days 02:00:00"),
]


class _CsvWriter(Writer):
    def write(self, table: pa.Table, group_rows: int) -> None:
        if table.num_columns == 1:
            # Other readers skip the empty line that a null would be.
            texts = table.column(0).cast(pa.string()).fill_null("")
            table = pa.table([texts], names=table.column_names)
        self.inner.write_table(without_views(table))


@dataclass(frozen=True)
class CsvInput(FileInput):
    """One or more CSV files with a line of names; made by `CsvInput.open`.

    A first column without a name is the index that pandas stores: it is not read.
    """

    form: ClassVar[str] = "CSV"
    ending: ClassVar[str] = ".csv"
    apart: ClassVar[bool] = True
    checked_rows: ClassVar[int] = 1 << 18

    types: Mapping[str, pa.DataType] = field(default_factory=lambda: MappingProxyType({}))
    """Types of the columns that are read as such; others are text."""
    lenient: frozenset[str] = frozenset()
    """Columns in which text that is not of the type is null."""
    empty: frozenset[str] = frozenset()
    """Columns without nulls in which the empty text is a value."""
    dialect: CsvDialect = STANDARD_DIALECT

    @classmethod
    def open(cls, source: str | Path) -> Self:
        """Read the names and the number of rows of every file; see `FileInput.open`."""
        table = super().open(source)
        # A release is in the standard dialect, which wrote it.
        return table if table.text is not None else replace(table, dialect=current_dialect())

    def digest(self) -> bytes:
        """Return a digest of the files and of their dialect: a job that is repeated has to read the same values."""
        if self.dialect == STANDARD_DIALECT:
            return super().digest()
        return hashlib.sha256(super().digest() + repr(self.dialect).encode()).digest()

    @staticmethod
    def _describe_file(path: Path) -> tuple[pa.Schema, str | None, int]:
        description_path = sidecar(path)
        dialect = STANDARD_DIALECT if description_path.exists() else current_dialect()
        check_dialect(path, dialect)
        names, rows = _read_header(path, dialect), 0
        # Repeated names fail in `open`, with a message that names them.
        if len(set(names)) == len(names):
            for batch in _read_texts(path, dialect):
                rows += batch.num_rows
        text = (
            attempt(description_path, "cannot be read", description_path.read_text)
            if description_path.exists()
            else None
        )
        return pa.schema([pa.field(name, pa.null()) for name in names]), text, rows

    @staticmethod
    def _indices(schema: pa.Schema) -> tuple[str, ...]:
        return ("",) if schema.names[:1] == [""] else ()

    @classmethod
    def check_field(cls, field: pa.Field) -> None:
        """Raise `ColumnError` for a column that is not written as text that is read back."""
        type_ = field.type
        t = pa.types
        value_type = type_.value_type if t.is_dictionary(type_) else type_
        is_plain = t.is_primitive(value_type) and not (
            t.is_duration(value_type) or t.is_time(value_type) or t.is_interval(value_type)
        )
        if not (
            is_plain
            or is_text(value_type)
            or t.is_boolean(value_type)
            or t.is_decimal(value_type)
            or t.is_null(value_type)
        ):
            raise ColumnError(
                f"has type {field.type}, which CSV cannot hold; write Parquet: name a target that ends in .parquet",
                column=field.name,
            )

    @staticmethod
    def writer(file: IO[bytes], schema: pa.Schema, compression: str) -> Writer:
        """Begin to write to an open file, which is not compressed."""
        texts = pa.schema([pa.field(schema.names[0], pa.string())]) if len(schema) == 1 else schema
        return _CsvWriter(pa.csv.CSVWriter(file, without_views(texts.empty_table()).schema))

    def typed(self, spaces: Mapping[str, Space], inferred: Collection[str] = ()) -> Self:
        """Return the table with the types of its columns' spaces; others are text."""
        types = {}
        for name, space in spaces.items():
            if name in self.names:
                try:
                    types[name] = written_type(space, released=self.text is not None)
                except ColumnError as error:
                    raise error.located(name) from None
        fields = [pa.field(name, types.get(name, pa.string())) for name in self.names]
        empty = frozenset(name for name, space in spaces.items() if not space.has_null and space.contains(""))
        return replace(self, schema=pa.schema(fields), types=types, lenient=frozenset(inferred), empty=empty)

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return the public fields of columns; columns without a type yet are marked as written text."""
        text_fields = super().fields(names)
        return [
            replace(field, written=field.empty and field.name not in self.types, empty=False) for field in text_fields
        ]

    def _read_batches(self, names: Sequence[str], rows: int, plain: Collection[str]) -> Iterator[dict[str, pa.Array]]:
        first_row = 0
        # Partition keys come from the names of folders, and are no columns of the file.
        is_single_column = len(self.names) + len(self.indices) - len(self.partitions) == 1
        for path, keys in self.files:
            for block in _read_texts(path, self.dialect, self.alone):
                for start in range(0, block.num_rows, rows):
                    batch = block.slice(start, rows)
                    # Files may differ in their columns: a file has nulls in the columns that it lacks.
                    stored = [name for name in names if name not in keys and name in block.schema.names]
                    columns = {
                        name: self.dialect.to_standard(
                            _decode_texts(batch.column(name), is_single_column and name not in self.empty)
                        )
                        for name in stored
                    }
                    columns |= {name: repeated(keys.get(name), batch.num_rows) for name in names if name not in stored}
                    yield {name: self._read_column(name, columns[name], first_row, name in plain) for name in names}
                    first_row += batch.num_rows

    def _read_column(self, name: str, texts: pa.Array, first_row: int, is_plain: bool) -> pa.Array:
        """Return a column in its type if that is known, else as text: plain strings or a dictionary."""
        type_ = self.types.get(name, pa.string())
        if is_text(type_):
            return texts.dictionary_decode() if is_plain else texts
        values = read_written(texts, type_)
        is_unreadable = np.asarray(values.is_null()) & ~is_blank(texts)
        if is_unreadable.any() and name not in self.lenient:
            row = int(is_unreadable.argmax())
            rule = next(rule for fits, rule in _TYPE_RULES if fits(type_))
            word = "" if pa.types.is_boolean(type_) else ", or list the word in special if it is a code"
            raise ColumnError(f"is {rule}; correct it, leave it empty{word}", column=name, row=first_row + row)
        return values

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return columns as one table."""
        schema = pa.schema([pa.field(name, self.types.get(name, pa.string())) for name in names])
        batches = [pa.RecordBatch.from_pydict(batch, schema) for batch in self._read_batches(names, self.n or 1, names)]
        return pa.Table.from_batches(batches, schema)


def _decode_texts(column: pa.Array, is_single_column: bool) -> pa.Array:
    """Return bytes as a dictionary of text; values are decoded one by one, as an error would reveal a row.

    Nothing is null in a ``single`` column, which pandas writes in quotes there: an empty line would be lost.
    """
    dictionary_array = column.dictionary_encode()
    try:
        texts, is_distinct = dictionary_array.dictionary.cast(pa.string()), True
    except pa.ArrowInvalid:
        # A text that is written in two ways is one value: entries of a dictionary are distinct.
        texts, is_distinct = (
            pa.array(list(map(_decode_text, dictionary_array.dictionary.to_pylist())), pa.string()),
            False,
        )
    if is_single_column:
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    if is_distinct and not texts.null_count:
        return pa.DictionaryArray.from_arrays(dictionary_array.indices, texts)
    return texts.take(dictionary_array.indices).dictionary_encode()


def _decode_text(value: bytes) -> str:
    """Return bytes as text: UTF-8 if they are valid UTF-8, else Windows-1252, else Latin-1."""
    for encoding in ("utf-8", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode(encoding)
    # Latin-1 has a letter for every byte: no value is refused, as a refusal would reveal a row.
    return value.decode("latin-1")


_READ_OPTIONS = pa.csv.ReadOptions(block_size=_READ_BLOCK_BYTES)
_DAMAGE_MESSAGE = "is no CSV file in UTF-8 with a line of names and as many values in every row"
_HEADER_MESSAGE = "has a line of names that is not UTF-8; save the file as UTF-8"

T = TypeVar("T")


class _InvalidRowHandler:
    """Handler that remembers the number of a row with too many or too few values, and never a value."""

    def __init__(self) -> None:
        self.wrong = ""

    def __call__(self, row: pa.csv.InvalidRow) -> str:
        """Remember the first row that Arrow cannot read."""
        place = "a row" if row.number is None else f"row {row.number}, counting the line of names,"
        values = f"{row.actual_columns} value{'s' * (row.actual_columns != 1)}"
        self.wrong = self.wrong or f"cannot be read: {place} has {values} for {row.expected_columns} columns"
        return "error"

    def attempt(self, path: Path, work: Callable[[], T]) -> T:
        """Return the result of reading, or raise `FileError` with the number of the invalid row."""
        with contextlib.suppress(FileError):
            return attempt(path, _DAMAGE_MESSAGE, work)
        raise FileError(f"{shown(path)} {self.wrong or _DAMAGE_MESSAGE}")


def _read_header(path: Path, dialect: CsvDialect) -> list[str]:
    """Return the names of a file's columns."""
    rows = _InvalidRowHandler()
    parse_options = pa.csv.ParseOptions(delimiter=dialect.sep, newlines_in_values=True, invalid_row_handler=rows)
    with rows.attempt(
        path,
        lambda: pa.csv.open_csv(dialect.open(path), read_options=_READ_OPTIONS, parse_options=parse_options),
    ) as reader:
        return attempt(path, _HEADER_MESSAGE, lambda: list(reader.schema.names))


def _read_texts(path: Path, dialect: CsvDialect, is_single_thread: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows as text."""
    names = _read_header(path, dialect)
    rows = _InvalidRowHandler()
    # In a file of one column, an empty line is a missing value.
    parse_options = pa.csv.ParseOptions(
        delimiter=dialect.sep,
        newlines_in_values=True,
        ignore_empty_lines=len(names) > 1,
        invalid_row_handler=rows,
    )
    # Columns are bytes: as text, one row that is no UTF-8 would make Arrow refuse the file.
    convert_options = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.binary()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=list(NULLS),
    )
    read_options = pa.csv.ReadOptions(block_size=_READ_BLOCK_BYTES, use_threads=not is_single_thread)
    options = {"read_options": read_options, "parse_options": parse_options, "convert_options": convert_options}
    with rows.attempt(path, lambda: pa.csv.open_csv(dialect.open(path), **options)) as reader:
        if reader.schema.names != names:
            raise FileError(f"{shown(path)} begins with an empty line; drop it, so that the line of names is the first")
        while (batch := rows.attempt(path, partial(next, reader, None))) is not None:
            yield batch
