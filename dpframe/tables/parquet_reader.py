"""Parquet in: files, directories and globs, read as one table in batches."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpframe.errors import FileError
from dpframe.tables.batches import Writer
from dpframe.tables.files import FileInput, attempt, repeated, shown
from dpframe.tables.metadata import metadata_text
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.types import as_coded, is_list, is_text, nests_dictionary
from dpframe.tables.unification import cast_nearest

_EXTENSION_DTYPES = {
    "boolean",
    "string",
    "Float32",
    "Float64",
    *(f"{u}Int{b}" for u in ("", "U") for b in (8, 16, 32, 64)),
}


_ARROW_SUFFIX = "[pyarrow]"
"""Ending of the names of pandas' Arrow dtypes."""


def _open_file(path: Path, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    # Buffering ahead would keep every byte read until the file is closed.
    options: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False, "read_dictionary": list(dictionaries)}
    # Without checksums, damage that decodes to other values goes unnoticed; their cost is negligible.
    options["page_checksum_verification"] = True
    has_known_ending = path.suffix.lower() in _ENDINGS
    hint = (
        "it is damaged or cut off, so write it anew"
        if has_known_ending
        else "a CSV file is known by its name, which ends in .csv"
    )
    return attempt(path, f"is not a readable Parquet file; {hint}", lambda: pq.ParquetFile(path, **options))


_ENDINGS = ("", ".parquet", ".pq")
"""Endings of the names of Parquet files."""


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
    def form_writer(cls, file: IO[bytes], form: ParquetForm, compression: str) -> Writer:
        """Begin to write decoded tables of a release to an open file, with the options that suit noise."""
        return _ParquetWriter(form.writer(file, compression))

    def parts(self) -> Iterator[ParquetInput]:
        """Yield the table's parts, of one row group of one file each, in order."""
        for path, keys in self.files:
            with _open_file(path) as reader:
                rows = [reader.metadata.row_group(group).num_rows for group in range(reader.num_row_groups)]
            for group, count in enumerate(rows):
                yield replace(self, files=((path, keys),), n=count, groups=(group,))

    @staticmethod
    def _describe_file(path: Path) -> tuple[pa.Schema, str | None, int]:
        with _open_file(path) as reader:
            return reader.schema_arrow, metadata_text(reader.metadata.metadata), reader.metadata.num_rows

    @staticmethod
    def _pandas_types(schema: pa.Schema) -> dict[str, str]:
        return pandas_types(schema)

    @staticmethod
    def _indices(schema: pa.Schema) -> tuple[str, ...]:
        metadata = _pandas_metadata(schema)
        levels = [level for level in metadata.get("index_columns", []) if isinstance(level, str)]
        named_columns = {name for name, column in _pandas_columns(metadata).items() if column.get("name") is not None}
        return tuple(name for name in schema.names if name in levels and name not in named_columns)

    def _schema_of(self, path: Path) -> pa.Schema:
        """Return the schema of a file; the table's own if the file has the same columns and types."""
        return self.file_schemas.get(path.absolute(), self.schema)

    def _stored_names(self, path: Path, names: Sequence[str]) -> list[str]:
        """Return the columns whose values a file stores: not partition keys, nor columns that are null in it."""
        if path.absolute() not in self.file_schemas:
            return [name for name in names if name not in self.partitions]
        file_types = {field.name: field.type for field in self.file_schemas[path.absolute()]}
        types = {name: self.schema.field(name).type for name in names if name in file_types}
        return [name for name in types if types[name] == file_types[name] or not pa.types.is_null(file_types[name])]

    def _find_text_paths(self, path: Path, names: Collection[str]) -> list[str]:
        """Return the paths within a file of the strings in columns, which are read as dictionaries."""
        schema = self._schema_of(path)
        types = {name: schema.field(name).type for name in names}
        lists = tuple(f"{name}." for name, type_ in types.items() if is_list(type_) and _holds_text(type_.value_type))
        leaves_of_text = [name for name, type_ in types.items() if _holds_text(type_)]
        if lists:
            with _open_file(path) as reader:
                schema = reader.schema
                # The names of a list's parts depend on the program that wrote the file.
                leaves = [schema.column(i).path for i in range(len(schema))]
            leaves_of_text += [leaf for leaf in leaves if leaf.startswith(lists)]
        return leaves_of_text

    def _read_batches(self, names: Sequence[str], rows: int, plain: Collection[str]) -> Iterator[dict[str, pa.Array]]:
        for path, keys in self.files:
            stored_names = self._stored_names(path, names)
            text_paths = self._find_text_paths(path, [name for name in stored_names if name not in plain])
            with _open_file(path, text_paths) as reader:
                for batch in self._read_record_batches(reader, path, rows, stored_names):
                    columns = {
                        name: self._conform(batch.column(name), name, path, name in plain) for name in stored_names
                    }
                    for name in names:
                        if name not in columns:
                            columns[name] = self._fill(name, keys, batch.num_rows)
                    yield columns

    def _conform(self, values: pa.Array, name: str, path: Path, is_plain: bool) -> pa.Array:
        """Return a file's values of a column in the table's type, or in the type for coding unless they are plain."""
        file_type, type_ = self._schema_of(path).field(name).type, self.schema.field(name).type
        # Text of every type is coded as dictionaries.
        is_text_for_coding = not is_plain and values.type != file_type
        if file_type != type_ and not is_text_for_coding:
            values = attempt(path, _DAMAGE_MESSAGE, partial(cast_nearest, values, type_))
        return values if is_plain else as_coded(values)

    def _fill(self, name: str, keys: Mapping[str, str | None], count: int) -> pa.Array:
        """Return the values of a column that a file does not store: a partition key, or nulls."""
        type_ = self.schema.field(name).type
        if name in keys or is_text(type_):
            return repeated(keys.get(name), count)
        return as_coded(pa.nulls(count, type_))

    def _read_record_batches(
        self, reader: pq.ParquetFile, path: Path, rows: int, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        groups: list[list[int] | None] = [None if self.groups is None else list(self.groups)]
        if self.groups is None and any(nests_dictionary(reader.schema_arrow.field(name).type) for name in names):
            # Arrow cannot read these across the border of two row groups.
            groups = [[group] for group in range(reader.num_row_groups)]
        for group in groups:
            start = partial(reader.iter_batches, rows, group, list(names), use_threads=not self.alone)
            batches = attempt(path, _DAMAGE_MESSAGE, start)
            while (batch := attempt(path, _DAMAGE_MESSAGE, partial(next, batches, None))) is not None:
                _check_dictionaries(path, batch)
                yield batch

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return columns as one table, with the metadata that pandas wrote to the first file."""
        tables: list[pa.Table] = []
        metadata = None
        for path, keys in self.files:
            stored_names = self._stored_names(path, names)
            with _open_file(path) as reader:
                table = attempt(path, _DAMAGE_MESSAGE, partial(reader.read, stored_names))
                _check_dictionaries(path, table)
            # pandas' metadata of other types would mislead pandas.
            if not tables and path.absolute() not in self.file_schemas:
                metadata = table.schema.metadata
            columns = {name: self._conform_chunks(table[name], name, path) for name in stored_names}
            absent = [name for name in names if name not in stored_names]
            fields = [self.schema.field(name) for name in names]
            columns |= {
                f.name: self._fill(f.name, keys, table.num_rows).cast(f.type) for f in fields if f.name in absent
            }
            tables.append(pa.table([columns[name] for name in names], schema=pa.schema(fields, metadata)))
        return pa.concat_tables(tables)

    def _conform_chunks(self, column: pa.ChunkedArray, name: str, path: Path) -> pa.ChunkedArray:
        type_ = self.schema.field(name).type
        if column.type == type_:
            return column
        chunks = [attempt(path, _DAMAGE_MESSAGE, partial(cast_nearest, chunk, type_)) for chunk in column.chunks]
        return pa.chunked_array(chunks, type_)


_DAMAGE_MESSAGE = "is damaged: a part of it cannot be read"


def _holds_text(type_: pa.DataType) -> bool:
    """Return whether values are strings or dictionaries of strings.

    Arrow casts narrow dictionaries, and the cast fails for invalid text."""
    return is_text(type_.value_type if pa.types.is_dictionary(type_) else type_)


def _check_dictionaries(path: Path, table: pa.Table | pa.RecordBatch) -> None:
    """Raise `FileError` if dictionary indices are out of range: Arrow itself does not check them.

    Text of one row that is not valid Unicode refuses nothing: other systems than Arrow write it.
    """
    for values in table.columns:
        for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
            _check_entries(path, chunk)


def _check_entries(path: Path, values: pa.Array) -> None:
    t = pa.types
    if t.is_dictionary(values.type) and is_text(values.type.value_type):
        attempt(path, _DAMAGE_MESSAGE, partial(values.dictionary.cast(pa.large_binary()).validate, full=True))
        # Arrow's own validation of indices takes twenty times as long.
        ends = pc.min_max(values.indices)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None and (low < 0 or high >= len(values.dictionary)):
            raise FileError(f"{shown(path)} {_DAMAGE_MESSAGE}")
    elif t.is_list(values.type) or t.is_large_list(values.type):
        _check_entries(path, values.values)
    elif t.is_dictionary(values.type) or nests_dictionary(values.type):
        attempt(path, _DAMAGE_MESSAGE, partial(values.validate, full=True))


def _pandas_metadata(schema: pa.Schema) -> dict[str, list[Any]]:
    """Return pandas' metadata of columns and index; empty if the metadata cannot be read."""
    with contextlib.suppress(ValueError, RecursionError):
        metadata = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        if isinstance(metadata, dict):
            return {key: value for key, value in metadata.items() if isinstance(value, list)}
    return {}


def _pandas_columns(metadata: Mapping[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """Return pandas' metadata of each column, by the column's name in the file."""
    columns = [column for column in metadata.get("columns", []) if isinstance(column, dict)]
    names = [column.get("field_name", column.get("name")) for column in columns]
    return {name: column for name, column in zip(names, columns, strict=True) if isinstance(name, str)}


def pandas_types(schema: pa.Schema) -> dict[str, str]:
    """Return the pandas extension dtypes that the columns of a file had: names of types, and only known ones."""
    columns = _pandas_columns(_pandas_metadata(schema))
    types = {f.name: _pandas_type(columns[f.name].get("numpy_type"), f.type) for f in schema if f.name in columns}
    return {name: dtype for name, dtype in types.items() if dtype is not None}


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return a table as pandas wrote it; Arrow dtypes come from its schema, as pandas cannot parse all their names."""
    metadata = _pandas_metadata(table.schema)
    dtypes = {name: column.get("numpy_type") for name, column in _pandas_columns(metadata).items()}
    arrow_columns = [name for name in table.column_names if str(dtypes.get(name)).endswith(_ARROW_SUFFIX)]
    plain_table = with_signed_indices(table)
    for name in arrow_columns:
        plain_table = plain_table.set_column(plain_table.schema.get_field_index(name), name, pa.nulls(len(table)))
    if arrow_columns:
        metadata["columns"] = [
            {**column, "numpy_type": "object"} if column.get("field_name", column["name"]) in arrow_columns else column
            for column in metadata["columns"]
        ]
        plain_table = plain_table.replace_schema_metadata({"pandas": json.dumps(metadata)})
    frame: pd.DataFrame = plain_table.to_pandas()
    # pandas turns stored index columns into the index, and a release has them as columns.
    index = [name for name in table.column_names if name not in frame.columns]
    frame = frame.reset_index(index)[table.column_names] if index else frame
    for name in arrow_columns:
        frame[name] = pd.arrays.ArrowExtensionArray(table.column(name))
    return frame


def with_signed_indices(table: pa.Table) -> pa.Table:
    """Return a table whose dictionaries have signed indices: older pyarrow converts no others to pandas."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and pa.types.is_unsigned_integer(field.type.index_type):
            type_ = pa.dictionary(pa.int64(), field.type.value_type, field.type.ordered)
            table = table.set_column(place, field.with_type(type_), table.column(place).cast(type_))
    return table


def _pandas_type(dtype: Any, type_: pa.DataType) -> str | None:
    if not isinstance(dtype, str):
        return None
    if dtype in _EXTENSION_DTYPES:
        return dtype
    if not dtype.endswith(_ARROW_SUFFIX):
        return None
    # Spelled from the type: the text found is not copied. Pandas reads few types with parameters.
    name = f"{'string' if is_text(type_) else type_}{_ARROW_SUFFIX}"
    try:
        pd.api.types.pandas_dtype(name)
    except (TypeError, NotImplementedError):
        return None
    return name
