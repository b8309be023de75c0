"""Parquet in: files, directories and globs, read as one table in batches."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpframe.errors import ColumnError, FileError
from dpframe.infer import Field
from dpframe.release import METADATA_KEY

__all__ = ["ParquetInput", "is_text"]

_INDEX = re.compile(r"__index_level_\d+__")
"""The name under which pandas stores an index that has none: not a column."""

_EXTENSION_DTYPES = {
    "boolean",
    "string",
    "Float32",
    "Float64",
    *(f"{u}Int{b}" for u in ("", "U") for b in (8, 16, 32, 64)),
}

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def is_text(type_: pa.DataType) -> bool:
    """Tell whether a column holds strings, which are read as dictionaries and never row by row."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _open(path: Path, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, read_dictionary=list(dictionaries), buffer_size=1 << 20)
    except (pa.ArrowException, OSError, ValueError):
        raise FileError(f"{path} is not a readable Parquet file") from None


def _paths(source: str | Path) -> list[tuple[Path, dict[str, str | None]]]:
    """Return the files of a source in order, each with its Hive partition keys."""
    root = Path(source)
    if root.is_dir():
        found = sorted(
            path
            for path in root.rglob("*")
            if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
        )
        return [(path, _partition_keys(path.relative_to(root))) for path in found]
    if root.exists():
        return [(root, {})]
    # Path.glob takes no absolute pattern.
    return [(Path(path), {}) for path in sorted(glob.glob(str(source), recursive=True))]  # noqa: PTH207


def _partition_keys(path: Path) -> dict[str, str | None]:
    pairs = (part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    return {key: None if value == _NULL_PARTITION else unquote(value) for key, value in pairs}


@dataclass(frozen=True)
class ParquetInput:
    """One or more Parquet files of one schema, read as a table; made by `ParquetInput.open`.

    Hive partition keys of a directory (``region=north/part-0.parquet``) are columns like any other.
    """

    source: str
    files: tuple[tuple[Path, dict[str, str | None]], ...]
    schema: pa.Schema
    n: int
    text: str | None
    pandas_types: dict[str, str]

    @classmethod
    def open(cls, source: str | Path) -> ParquetInput:
        """Read every footer.

        Raises
        ------
        FileError
            If nothing is there, or a file is not Parquet.
        ColumnError
            If the files differ in columns, types or release metadata.
        """
        files = _paths(source)
        if not files:
            raise FileError(f"{source} does not exist or holds no Parquet file")
        readers = [_open(path) for path, _ in files]
        schema, text = readers[0].schema_arrow, _text(readers[0])
        for (path, keys), reader in zip(files, readers, strict=True):
            if not reader.schema_arrow.equals(schema) or set(keys) != set(files[0][1]):
                raise FileError(f"{path} has other columns or types than {files[0][0]}; convert them separately")
            if _text(reader) != text:
                raise FileError(f"{path} carries another release plan than {files[0][0]}; read them separately")
        rows = sum(reader.metadata.num_rows for reader in readers)
        for name in files[0][1]:
            if name in schema.names:
                raise ColumnError("is both a partition key and a column of the files", column=name)
            schema = schema.append(pa.field(name, _partition_type([keys[name] for _, keys in files])))
        types = _pandas_types(schema)
        for name in [name for name in schema.names if _INDEX.fullmatch(name)]:
            schema = schema.remove(schema.get_field_index(name))
        return cls(str(source), tuple(files), schema.remove_metadata(), rows, text, types)

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self.schema.names)

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return what is public about columns."""
        return [Field(f.name, f.type, f.nullable) for f in map(self.schema.field, names)]

    @cached_property
    def _text_columns(self) -> list[str]:
        return [field.name for field in self.schema if is_text(field.type)]

    def batches(self, names: Sequence[str], rows: int) -> Iterator[dict[str, pa.Array]]:
        """Yield up to ``rows`` rows at a time, strings as dictionaries; batches end where files do."""
        for path, keys in self.files:
            stored = [name for name in names if name not in keys]
            reader = _open(path, [name for name in self._text_columns if name in stored])
            for batch in _read(reader, path, rows, stored):
                columns = dict(zip(stored, batch.columns, strict=True)) if stored else {}
                for name in names:
                    if name in keys:
                        columns[name] = _repeat(keys[name], self.schema.field(name).type, batch.num_rows)
                yield columns

    def arrays(self, name: str) -> Iterator[pa.Array]:
        """Yield one column, in batches."""
        for batch in self.batches([name], 1 << 18):
            yield batch[name]


def _read(reader: pq.ParquetFile, path: Path, rows: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader.iter_batches(rows, columns=list(names))
    except (pa.ArrowException, OSError):
        raise FileError(f"{path} is damaged: a part of it cannot be read") from None


def _text(reader: pq.ParquetFile) -> str | None:
    found = (reader.metadata.metadata or {}).get(METADATA_KEY.encode())
    return None if found is None else found.decode("utf-8", "replace")


def _pandas_types(schema: pa.Schema) -> dict[str, str]:
    """Return the pandas extension dtypes that the columns of a file had: names of types, and only known ones."""
    try:
        columns = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["columns"]
        found = {column["name"]: column["numpy_type"] for column in columns}
    except (ValueError, KeyError, TypeError):
        return {}
    return {name: dtype for name, dtype in found.items() if isinstance(name, str) and dtype in _EXTENSION_DTYPES}


def _partition_type(values: Sequence[str | None]) -> pa.DataType:
    whole = all(value is None or value.removeprefix("-").isdecimal() for value in values)
    return pa.int64() if whole else pa.string()


def _repeat(value: str | None, type_: pa.DataType, count: int) -> pa.Array:
    if pa.types.is_string(type_):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value], type_))
    return pa.repeat(pa.scalar(None if value is None else int(value), type_), count)
