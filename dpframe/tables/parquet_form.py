"""The form of a release in Parquet: its types and metadata, from only the input's types and the plan."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from dpframe.plan.plan import Plan
from dpframe.spaces import Space
from dpframe.spaces.field import is_open
from dpframe.tables.batches import Batch, indexed, length
from dpframe.tables.info import ReleaseInfo, arrow_metadata
from dpframe.tables.parquet_pages import FEW_VALUES, MOST_VALUES, Packed, PackedColumn, PackedLists, PackedWriter
from dpframe.tables.types import as_stored, coded_type, is_list, is_text, output_type, plain_type

ROW_GROUP_ROWS = 1 << 19


SMALL = ("zstd", "gzip", "brotli")
"""Codecs that are asked for where bytes matter more than time."""

MANY = 1 << 10
"""Values from which on a number is written without a dictionary: one of them all would take 8 KiB."""

_ROWS_OF_A_VALUE = 4
"""Rows of a group, for each value, from which on a page of all values takes less room than what it saves."""

_FLOATS = (pa.float32(), pa.float64())
_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())

GROUP_ITEMS = 32
"""Bits a row up to which row groups are whole: more would take more than 500 MiB before they are written."""


@dataclass(frozen=True)
class ParquetForm:
    """How released codes, and columns passed through, are written."""

    plan: Plan
    source: pa.Schema
    pandas_types: Mapping[str, str] = field(default_factory=dict)
    _pages: dict[str, Packed | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def names(self) -> list[str]:
        """Names of the columns that are released, in the input's order."""
        kept = {*self.plan.names, *self.plan.passthrough}
        return [name for name in self.source.names if name in kept]

    @cached_property
    def schema(self) -> pa.Schema:
        """The types that are written."""
        return pa.schema([self._field(name, self._stored_type(name)) for name in self.names])

    @cached_property
    def seen(self) -> pa.Schema:
        """The types that readers shall see."""
        return pa.schema([self._field(name, self._seen_type(name)) for name in self.names])

    def plain(self, name: str, array: pa.Array) -> pa.Array:
        """Return a column that is passed through, in the type in which it is written."""
        stored = plain_type(self.source.field(name).type)
        return array if array.type.equals(stored) else array.cast(stored)

    @property
    def group_rows(self) -> int:
        """Rows of a group: fewer where a row's sets may hold many items, which the plan says."""
        words = sum(column.space.code_words for column in self.plan.columns)
        return ROW_GROUP_ROWS // max(1, words * 64 // GROUP_ITEMS)

    def decoded(self, group: Batch, schema: pa.Schema | None = None) -> pa.Table:
        """Return released codes as values, in the types that are written, or in others that can hold them."""
        schema = self.schema if schema is None else schema
        arrays = [self._array(name, group[name], schema.field(name).type) for name in self.names]
        return pa.Table.from_arrays(arrays, schema=schema)

    def packed(self, rows: int) -> Mapping[str, Packed]:
        """Return the columns that are written from their codes in a group of so many rows.

        They are stored by themselves, and all of their values are few for the group; or they are sets of few items.
        """
        most = max(FEW_VALUES, min(MOST_VALUES, rows // _ROWS_OF_A_VALUE))
        spaces: dict[str, Any] = {name: self.plan[name].space for name in self.plan.names if name in self.names}
        sizes = {name: space.inner_space.count if space.holds_sets else space.size for name, space in spaces.items()}
        found = {name: self._page(name) for name, size in sizes.items() if size <= most}
        return {name: column for name, column in found.items() if column is not None}

    def _page(self, name: str) -> Packed | None:
        if name not in self._pages:
            field, space = self.schema.field(name), cast(Any, self.plan[name].released)
            page: Packed | None = None
            if space.holds_sets:
                items = _stored_by_itself(space.inner_space.listed, field.type.value_type)
                if items is not None and len(items) <= FEW_VALUES:
                    page = PackedLists.of(field, items)
            else:
                values = None if space.code_words else _stored_by_itself(space, field.type)
                if values is not None:
                    page = PackedColumn.of(name, values, field.nullable)
            self._pages[name] = page
        return self._pages[name]

    def writer(self, file: IO[bytes], compression: str) -> PackedWriter:
        """Return what row groups are written with."""
        return PackedWriter(file, self.schema, {**self.encodings(compression), "compression": compression})

    def write(self, writer: PackedWriter, group: Batch, compression: str) -> None:
        """Write released codes as a row group: Arrow encodes all columns if few bytes matter more than time."""
        packed = {} if compression in SMALL else self.packed(length(group))
        fields = (field for field in self.schema if field.name not in packed)
        arrays = {field.name: self._array(field.name, group[field.name], field.type) for field in fields}
        writer.write({**group, **arrays}, length(group), packed)

    def _array(self, name: str, column: Any, type_: pa.DataType) -> pa.Array:
        return _stored(self.plan[name].released, column, type_) if name in self.plan.names else column

    def _stored_type(self, name: str) -> pa.DataType:
        """Return the type that is written; strings to decode are dictionaries, so that none is touched per row."""
        type_ = self.source.field(name).type
        if name in self.plan.passthrough:
            return plain_type(type_)
        if is_list(type_) and is_text(type_.value_type):
            space: Any = self.plan[name].space
            # By the space, not the column; items are many, and a byte for each is enough more often than not.
            narrow = space.inner_space.listed.natural_type.index_type
            inner = pa.dictionary(narrow, indexed(type_.value_type).value_type)
            items = pa.field(type_.value_field.name, inner, type_.value_field.nullable)
            return pa.large_list(items) if pa.types.is_large_list(type_) else pa.list_(items)
        if is_open(type_):
            return pa.null()
        return indexed(type_) if is_text(type_) else output_type(type_)

    def _seen_type(self, name: str) -> pa.DataType:
        type_ = self.source.field(name).type
        return plain_type(type_) if type_.num_fields and name in self.plan.passthrough else output_type(type_)

    def _field(self, name: str, type_: pa.DataType) -> pa.Field:
        may_be_null = name in self.plan.names and self.plan[name].space.has_null
        return pa.field(name, type_, nullable=self.source.field(name).nullable or may_be_null)

    def encodings(self, compression: str) -> dict[str, Any]:
        """Return the options with which Parquet is written: for speed, or for few bytes if the codec is one for those.

        Noise has no order, so that statistics of its pages help no reader, and a number of many values gains little
        from a dictionary, which costs most of the time of writing. Columns passed through keep their statistics.
        """
        leaves = [(field.name, *leaf) for field in self.schema for leaf in _paths(field.name, field.type)]
        split = {} if compression in SMALL else {path: name for path, name in self._split(leaves) if name}
        return {
            "write_statistics": [path for root, path, _ in leaves if root in self.plan.passthrough],
            "use_dictionary": [path for _, path, _ in leaves if path not in split],
            "column_encoding": split,
        }

    def _split(self, leaves: list[tuple[str, str, pa.DataType]]) -> Iterator[tuple[str, str | None]]:
        """Yield the encoding of numbers of many values, by the path of their column; None for others."""
        for root, path, type_ in leaves:
            many = root in self.plan.names and self.plan[root].space.size > MANY
            kind = "BYTE_STREAM_SPLIT" if type_ in _FLOATS else "DELTA_BINARY_PACKED" if type_ in _WHOLE else None
            yield path, kind if many else None

    @property
    def pandas_metadata(self) -> str:
        """What pandas reads its dtypes from."""
        columns = [
            {
                "name": field.name,
                "field_name": field.name,
                "pandas_type": "unicode" if is_text(field.type) else str(field.type),
                "numpy_type": self.pandas_types.get(field.name, "object"),
                "metadata": None,
            }
            for field in self.seen
        ]
        return json.dumps(
            {"index_columns": [], "column_indexes": [], "columns": columns, "pandas_version": pd.__version__}
        )

    def metadata(self, info: ReleaseInfo) -> dict[str, str]:
        """Return fresh file metadata: the plan, pandas' dtypes, and the schema that readers shall see."""
        metadata = arrow_metadata(info.to_json()) | {"pandas": self.pandas_metadata}
        schema = self.seen.with_metadata(metadata)
        return metadata | {"ARROW:schema": base64.b64encode(schema.serialize().to_pybytes()).decode()}


def _stored(space: Space, codes: Any, type_: pa.DataType) -> pa.Array:
    return as_stored(space.decode(codes, coded_type(type_)), type_)


def _stored_by_itself(space: Space, type_: pa.DataType) -> pa.Array | None:
    """Return the values of all codes but null's as Parquet stores them, if they are few and have pages of their own."""
    inner = type_.value_type if pa.types.is_dictionary(type_) else type_
    # Parquet has no dictionaries of booleans, and no values of type null.
    if inner.num_fields or pa.types.is_boolean(inner) or pa.types.is_null(inner):
        return None
    values = _stored(space, np.arange(space.size - space.has_null), type_)
    if values.null_count:
        return None
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _paths(path: str, type_: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the paths and types of what Parquet stores of a column."""
    if is_list(type_):
        yield from _paths(f"{path}.list.element", type_.value_type)
    elif pa.types.is_map(type_):
        yield from _paths(f"{path}.key_value.key", type_.key_type)
        yield from _paths(f"{path}.key_value.value", type_.item_type)
    elif pa.types.is_struct(type_):
        for field in type_:
            yield from _paths(f"{path}.{field.name}", field.type)
    else:
        yield path, type_
