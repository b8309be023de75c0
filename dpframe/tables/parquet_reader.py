"""Parquet in: files, directories and globs, read as one table in batches."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpframe.errors import FileError
from dpframe.tables.batches import RowsWriter, Writer
from dpframe.tables.files import FileInput, attempt, repeated, shown
from dpframe.tables.info import metadata_text
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.types import as_coded, is_list, is_text, nests_dictionary

_INDEX = re.compile(r"__index_level_\d+__")
"""The name under which pandas stores an index that has none: not a column."""


_EXTENSION_DTYPES = {
    "boolean",
    "string",
    "Float32",
    "Float64",
    *(f"{u}Int{b}" for u in ("", "U") for b in (8, 16, 32, 64)),
}


def _open(path: Path, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    # Buffering ahead would keep every byte read until the file is closed.
    options: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False, "read_dictionary": list(dictionaries)}
    # Damage that decodes to other values would go unnoticed; where pages have checksums, they cost next to nothing.
    options["page_checksum_verification"] = True
    is_one = path.suffix.lower() in _ENDINGS
    hint = (
        "it is damaged or cut off, so write it anew"
        if is_one
        else "a CSV file is known by its name, which ends in .csv"
    )
    return attempt(path, f"is not a readable Parquet file; {hint}", lambda: pq.ParquetFile(path, **options))


_ENDINGS = ("", ".parquet", ".pq")
"""What the names of Parquet files end with."""


class _ParquetWriter(Writer):
    def write(self, table: pa.Table, group_rows: int) -> None:
        self.inner.write_table(table, row_group_size=group_rows)

    def describe(self, metadata: Mapping[str, str]) -> None:
        self.inner.add_key_value_metadata(metadata)


@dataclass(frozen=True)
class ParquetInput(FileInput):
    """One or more Parquet files; made by `ParquetInput.open`."""

    form: ClassVar[str] = "Parquet"
    ending: ClassVar[str] = ".parquet"

    groups: tuple[int, ...] | None = None
    """Row groups that are read of every file; None for all."""

    @staticmethod
    def writer(file: IO[bytes], schema: pa.Schema, compression: str) -> Writer:
        """Begin to write to an open file."""
        return _ParquetWriter(pq.ParquetWriter(file, schema, compression=compression))

    @classmethod
    @contextmanager
    def rows_writer(cls, file: IO[bytes], form: ParquetForm, compression: str) -> Iterator[RowsWriter]:
        """Begin to write released codes to an open file, in pages that are packed from them."""
        groups = form.writer(file, compression)
        yield RowsWriter(partial(form.write, groups, compression=compression), groups.close)

    def parts(self) -> Iterator[ParquetInput]:
        """Yield the table's parts, of one row group of one file each, in order."""
        for path, keys in self.files:
            with _open(path) as reader:
                rows = [reader.metadata.row_group(group).num_rows for group in range(reader.num_row_groups)]
            for group, count in enumerate(rows):
                yield replace(self, files=((path, keys),), n=count, groups=(group,))

    @staticmethod
    def _described(path: Path) -> tuple[pa.Schema, str | None, int]:
        with _open(path) as reader:
            return reader.schema_arrow, metadata_text(reader.metadata.metadata), reader.metadata.num_rows

    @staticmethod
    def _pandas_types(schema: pa.Schema) -> dict[str, str]:
        return pandas_types(schema)

    @staticmethod
    def _indices(schema: pa.Schema) -> tuple[str, ...]:
        return tuple(name for name in schema.names if _INDEX.fullmatch(name))

    def _dictionaries(self, path: Path, names: Collection[str]) -> list[str]:
        """Return the paths within a file of the strings in columns, which are read as dictionaries."""
        types = {name: self.schema.field(name).type for name in names}
        lists = tuple(f"{name}." for name, type_ in types.items() if is_list(type_) and _of_text(type_.value_type))
        leaves_of_text = [name for name, type_ in types.items() if _of_text(type_)]
        if lists:
            with _open(path) as reader:
                schema = reader.schema
                # How the parts of a list are called depends on who wrote the file.
                leaves = [schema.column(i).path for i in range(len(schema))]
            leaves_of_text += [leaf for leaf in leaves if leaf.startswith(lists)]
        return leaves_of_text

    def _every(self, names: Sequence[str], rows: int, plain: Collection[str]) -> Iterator[dict[str, pa.Array]]:
        for path, keys in self.files:
            stored = [name for name in names if name not in keys]
            texts = self._dictionaries(path, [name for name in stored if name not in plain])
            with _open(path, texts) as reader:
                for batch in self._read(reader, path, rows, stored):
                    columns = {
                        name: batch.column(name) if name in plain else as_coded(batch.column(name)) for name in stored
                    }
                    for name in names:
                        if name in keys:
                            columns[name] = repeated(keys[name], batch.num_rows)
                    yield columns

    def _read(self, reader: pq.ParquetFile, path: Path, rows: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        groups: list[list[int] | None] = [None if self.groups is None else list(self.groups)]
        if self.groups is None and any(nests_dictionary(reader.schema_arrow.field(name).type) for name in names):
            # Arrow cannot read these across the border of two row groups.
            groups = [[group] for group in range(reader.num_row_groups)]
        for group in groups:
            start = partial(reader.iter_batches, rows, group, list(names), use_threads=not self.alone)
            batches = attempt(path, _DAMAGED, start)
            while (batch := attempt(path, _DAMAGED, partial(next, batches, None))) is not None:
                _check_dictionaries(path, batch)
                yield batch

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return columns as one table, with the metadata that pandas wrote to the first file."""
        tables = []
        for path, keys in self.files:
            with _open(path) as reader:
                stored = [name for name in names if name not in keys]
                table = attempt(path, _DAMAGED, partial(reader.read, stored))
                _check_dictionaries(path, table)
            for key in map(self.schema.field, keys.keys() & set(names)):
                column = repeated(keys[key.name], table.num_rows)
                table = table.append_column(key, column.cast(key.type))
            tables.append(table.select(list(names)))
        return pa.concat_tables(tables)


_DAMAGED = "is damaged: a part of it cannot be read"


def _of_text(type_: pa.DataType) -> bool:
    """Return whether values are strings, or dictionaries of them: narrow ones Arrow casts, which invalid text stops."""
    return is_text(type_.value_type if pa.types.is_dictionary(type_) else type_)


def _check_dictionaries(path: Path, table: pa.Table | pa.RecordBatch) -> None:
    """Raise `FileError` where entries of a dictionary are named that it has not: Arrow itself reads them unseen.

    Text of one row that is not valid Unicode refuses nothing: other systems than Arrow write it.
    """
    for values in table.columns:
        for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
            _check_entries(path, chunk)


def _check_entries(path: Path, values: pa.Array) -> None:
    t = pa.types
    if t.is_dictionary(values.type) and is_text(values.type.value_type):
        attempt(path, _DAMAGED, partial(values.dictionary.cast(pa.large_binary()).validate, full=True))
        # Arrow's own validation of indices takes twenty times as long.
        ends = pc.min_max(values.indices)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None and (low < 0 or high >= len(values.dictionary)):
            raise FileError(f"{shown(path)} {_DAMAGED}")
    elif t.is_list(values.type) or t.is_large_list(values.type):
        _check_entries(path, values.values)
    elif t.is_dictionary(values.type) or nests_dictionary(values.type):
        attempt(path, _DAMAGED, partial(values.validate, full=True))


def pandas_types(schema: pa.Schema) -> dict[str, str]:
    """Return the pandas extension dtypes that the columns of a file had: names of types, and only known ones."""
    try:
        columns = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["columns"]
        numpy_types = {column["name"]: column["numpy_type"] for column in columns}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    types = {f.name: _pandas_type(numpy_types[f.name], f.type) for f in schema if f.name in numpy_types}
    return {name: dtype for name, dtype in types.items() if dtype is not None}


def _pandas_type(dtype: Any, type_: pa.DataType) -> str | None:
    if not isinstance(dtype, str):
        return None
    if dtype in _EXTENSION_DTYPES:
        return dtype
    if not dtype.endswith("[pyarrow]"):
        return None
    # Spelled from the type: the text found is not copied. Pandas reads few types with parameters.
    name = f"{'string' if is_text(type_) else type_}[pyarrow]"
    try:
        pd.api.types.pandas_dtype(name)
    except (TypeError, NotImplementedError):
        return None
    return name
