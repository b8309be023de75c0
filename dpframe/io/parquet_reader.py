"""Parquet in: files, directories and globs, read as one table in batches."""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpframe.errors import ColumnError, FileError, ParameterError
from dpframe.io.checks import check_types, located
from dpframe.io.kinds import as_coded, coded_field
from dpframe.io.table import Codes
from dpframe.io.types import is_list, is_text
from dpframe.release.info import metadata_text
from dpframe.spaces import Space
from dpframe.spaces.field import Field

_INDEX = re.compile(r"__index_level_\d+__")
"""The name under which pandas stores an index that has none: not a column."""


BATCH_ROWS = 1 << 17
"""Rows read at a time, where nothing else is said."""


_EXTENSION_DTYPES = {
    "boolean",
    "string",
    "Float32",
    "Float64",
    *(f"{u}Int{b}" for u in ("", "U") for b in (8, 16, 32, 64)),
}


_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


File = tuple[Path, dict[str, str | None]]
"""A file and its Hive partition keys."""


def _shown(path: Path) -> str:
    """Return a path for a message: the names of partition folders hold values, which are masked."""
    *folders, name = path.parts
    return str(Path(*(re.sub(r"=.*", "=…", part, flags=re.DOTALL) for part in folders), name))


T = TypeVar("T")


def _attempt(path: Path, rule: str, work: Callable[[], T]) -> T:
    """Return what work with a file returns, or tell in one line that it failed.

    Not in the ``except`` block: the error there may quote values or partition folders, and would be kept.
    """
    with contextlib.suppress(pa.ArrowException, OSError, ValueError):
        return work()
    raise FileError(f"{_shown(path)} {rule}")


def _open(path: Path, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    # Buffering ahead would keep every byte read until the file is closed.
    options: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False, "read_dictionary": list(dictionaries)}
    return _attempt(path, "is not a readable Parquet file", lambda: pq.ParquetFile(path, **options))


def _paths(source: str | Path) -> list[File]:
    """Return the files of a source in order, each with its Hive partition keys."""
    root = Path(source)
    if root.is_dir():
        return _listed(root, root.rglob("*"))
    if root.exists():
        return [(root, {})]
    fixed = itertools.takewhile(lambda part: not glob.has_magic(part), root.parts)
    # Path.glob takes no absolute pattern.
    return _listed(Path(*fixed), map(Path, glob.glob(str(source), recursive=True)))  # noqa: PTH207


def _listed(root: Path, paths: Iterable[Path]) -> list[File]:
    """Return files under a folder in order, without those that are hidden from tables by their names."""
    inner_paths = [(path, path.relative_to(root)) for path in sorted(set(paths)) if path.is_file()]
    return [
        (path, _partition_keys(inner))
        for path, inner in inner_paths
        if not any(part.startswith(("_", ".")) for part in inner.parts)
    ]


def _partition_keys(path: Path) -> dict[str, str | None]:
    pairs = (part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    return {unquote(key): None if value == _NULL_PARTITION else unquote(value) for key, value in pairs}


@dataclass(frozen=True)
class ParquetInput:
    """One or more Parquet files of one schema, read as a table; made by `ParquetInput.open`.

    Hive partition keys of a directory (``region=north/part-0.parquet``) are columns of text, whatever their values;
    ``__HIVE_DEFAULT_PARTITION__`` is null.
    """

    held: ClassVar[bool] = False
    objects: ClassVar[bool] = False

    source: str
    files: tuple[File, ...]
    schema: pa.Schema
    n: int
    text: str | None
    pandas_types: dict[str, str]
    indices: tuple[str, ...] = ()
    """Columns in which pandas keeps an index that has no name: they are not read."""
    counts: npt.NDArray[np.uint8] | None = field(default=None, repr=False, compare=False)
    """How often each row is read; None for every row once."""

    @classmethod
    def open(cls, source: str | Path) -> ParquetInput:
        """Read every footer.

        Raises
        ------
        FileError
            If nothing is there, a file is not Parquet, or the files differ in columns, types or release
            metadata.
        ColumnError
            If a partition key is also a column of the files.
        ParameterError
            If a column name appears twice or is empty.
        """
        if not isinstance(source, str | os.PathLike):
            raise ParameterError("a Parquet source is a path: of a file, a directory or a quoted glob")
        files = _paths(source)
        if not files:
            raise FileError(f"{source} does not exist or holds no Parquet file")
        first = _shown(files[0][0])
        schema, text, rows = _footer(files[0][0])
        for path, keys in files[1:]:
            other_schema, other_text, count = _footer(path)
            rows += count
            if not other_schema.equals(schema) or set(keys) != set(files[0][1]):
                raise FileError(f"{_shown(path)} has other columns or types than {first}; convert them separately")
            if other_text != text:
                raise FileError(f"{_shown(path)} carries another release plan than {first}; read them separately")
        for name in files[0][1]:
            if name in schema.names:
                raise ColumnError("is both a partition key and a column of the files", column=name)
            # Text whatever it looks like: a type chosen by the values would tell of them.
            schema = schema.append(pa.field(name, pa.string()))
        if "" in schema.names:
            raise ParameterError("a column has an empty name; rename it")
        twice = next((name for i, name in enumerate(schema.names) if name in schema.names[:i]), None)
        if twice is not None:
            raise ParameterError(f"column name {twice!r} appears twice; names must be unique")
        types = _pandas_types(schema)
        indices = tuple(name for name in schema.names if _INDEX.fullmatch(name))
        for name in indices:
            schema = schema.remove(schema.get_field_index(name))
        return cls(str(source), tuple(files), schema.remove_metadata(), rows, text, types, indices)

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self.schema.names)

    @property
    def partitions(self) -> list[str]:
        """Hive partition keys, by which rows are grouped."""
        return list(self.files[0][1])

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return what is public about columns."""
        return [coded_field(f.name, f.type, f.nullable) for f in map(self.schema.field, names)]

    def _dictionaries(self, path: Path, names: Collection[str]) -> list[str]:
        """Return the paths within a file of the strings in columns, which are read as dictionaries."""
        types = {name: self.schema.field(name).type for name in names}
        lists = tuple(f"{name}." for name, type_ in types.items() if is_list(type_) and is_text(type_.value_type))
        leaves_of_text = [name for name, type_ in types.items() if is_text(type_)]
        if lists:
            with _open(path) as reader:
                schema = reader.schema
                # How the parts of a list are called depends on who wrote the file.
                leaves = [schema.column(i).path for i in range(len(schema))]
            leaves_of_text += [leaf for leaf in leaves if leaf.startswith(lists)]
        return leaves_of_text

    def batches(
        self, names: Sequence[str], rows: int = BATCH_ROWS, plain: Collection[str] = ()
    ) -> Iterator[dict[str, pa.Array]]:
        """Yield up to ``rows`` rows of the files at a time, each as often as it is read; batches end where files do.

        Strings, and those in lists, come as dictionaries, but for the columns in ``plain``.
        """
        first = 0
        for batch in self._every(names, rows, plain):
            if self.counts is None:
                yield batch
                continue
            count = len(next(iter(batch.values()), ()))
            chosen = np.repeat(np.arange(count), self.counts[first : first + count])
            for start in range(0, len(chosen), rows):
                part = pa.array(chosen[start : start + rows])
                yield {name: column.take(part) for name, column in batch.items()}
            first += count

    def _every(self, names: Sequence[str], rows: int, plain: Collection[str]) -> Iterator[dict[str, pa.Array]]:
        for path, keys in self.files:
            stored = [name for name in names if name not in keys]
            texts = self._dictionaries(path, [name for name in stored if name not in plain])
            with _open(path, texts) as reader:
                for batch in _read(reader, path, rows, stored):
                    columns = {
                        name: batch.column(name) if name in plain else as_coded(batch.column(name)) for name in stored
                    }
                    for name in names:
                        if name in keys:
                            columns[name] = _repeat(keys[name], batch.num_rows)
                    yield columns

    def of_persons(self, person: str, counts: npt.NDArray[np.uint8]) -> Self:
        """Return a table that is read with each row as often as is said, without the column that names persons."""
        schema = self.schema.remove(self.schema.get_field_index(person))
        return replace(self, schema=schema, n=int(counts.sum(dtype=np.int64)), counts=counts)

    def arrays(self, name: str) -> Iterator[pa.Array]:
        """Yield one column, in batches."""
        for batch in self.batches([name], 1 << 18):
            yield batch[name]

    def codes(self, spaces: Mapping[str, Space], nulls: str, inferred: Collection[str] = ()) -> Codes:
        """Read every value, so that one that is refused is found; return no codes, see `Table.codes`.

        Rows that were not chosen are read as well: a refusal tells nothing of the choice.
        """
        check_types(self.fields(list(spaces)), spaces)
        first_row = 0
        for batch in self._every(list(spaces), BATCH_ROWS, ()) if spaces else ():
            for name, space in spaces.items():
                try:
                    space.encode(batch[name], nulls="impute" if name in inferred else nulls)
                except ColumnError as error:
                    raise located(error, name, first_row) from None
            first_row += len(next(iter(batch.values()), ()))
        return {}

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return columns as one table, with the metadata that pandas wrote to the first file."""
        tables = []
        for path, keys in self.files:
            with _open(path) as reader:
                stored = [name for name in names if name not in keys]
                table = _attempt(path, _DAMAGED, partial(reader.read, stored))
            for key in map(self.schema.field, keys.keys() & set(names)):
                column = _repeat(keys[key.name], table.num_rows)
                table = table.append_column(key, column.cast(key.type))
            tables.append(table.select(list(names)))
        return pa.concat_tables(tables)


_DAMAGED = "is damaged: a part of it cannot be read"


def _read(reader: pq.ParquetFile, path: Path, rows: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    groups: list[list[int] | None] = [None]
    if any(_nests_dictionary(reader.schema_arrow.field(name).type) for name in names):
        # Arrow cannot read these across the border of two row groups.
        groups = [[group] for group in range(reader.num_row_groups)]
    for group in groups:
        start = partial(reader.iter_batches, rows, row_groups=group, columns=list(names))
        batches = _attempt(path, _DAMAGED, start)
        while (batch := _attempt(path, _DAMAGED, partial(next, batches, None))) is not None:
            yield batch


def _nests_dictionary(type_: pa.DataType) -> bool:
    inner = [type_.field(i).type for i in range(type_.num_fields)]
    return any(pa.types.is_dictionary(t) or _nests_dictionary(t) for t in inner)


def _footer(path: Path) -> tuple[pa.Schema, str | None, int]:
    """Return a file's schema, the release description it carries, and its number of rows."""
    with _open(path) as reader:
        return reader.schema_arrow, metadata_text(reader.metadata.metadata), reader.metadata.num_rows


def _pandas_types(schema: pa.Schema) -> dict[str, str]:
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
    # Spelled from the type: the text found is not copied. Of types with parameters pandas reads few.
    name = f"{'string' if is_text(type_) else type_}[pyarrow]"
    try:
        pd.api.types.pandas_dtype(name)
    except (TypeError, NotImplementedError):
        return None
    return name


def _repeat(value: str | None, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value], pa.string()))
