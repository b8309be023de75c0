"""The form of a release in Parquet: its types, encodings and metadata, from only the input's types and the plan."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpframe.plan.plan import Plan
from dpframe.spaces import Space
from dpframe.spaces.field import is_open
from dpframe.tables.batches import Batch, indexed
from dpframe.tables.metadata import arrow_metadata
from dpframe.tables.types import as_stored, coded_type, is_list, is_text, output_type, plain_type

ROW_GROUP_ROWS = 1 << 19


SMALL = ("zstd", "gzip", "brotli")
"""Codecs for users to whom file size matters more than time."""

GROUP_ITEMS = 32
"""Bits per row up to which row groups have full length: more would need over 500 MiB of memory."""


@dataclass(frozen=True)
class ParquetForm:
    """The Parquet form of released codes and of columns passed through."""

    plan: Plan
    source: pa.Schema
    pandas_types: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the columns that are released, in the input's order."""
        released_names = {*self.plan.names, *self.plan.passthrough}
        return [name for name in self.source.names if name in released_names]

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
        stored_type = plain_type(self.source.field(name).type)
        return array if array.type.equals(stored_type) else array.cast(stored_type)

    @property
    def group_rows(self) -> int:
        """Rows of a group: fewer if the plan's sets may have many items."""
        words = sum(column.space.code_words for column in self.plan.columns)
        return ROW_GROUP_ROWS // max(1, words * 64 // GROUP_ITEMS)

    def decoded(self, group: Batch, schema: pa.Schema | None = None) -> pa.Table:
        """Return released codes as values, in the types that are written, or in others that can hold them."""
        schema = self.schema if schema is None else schema
        arrays = [self._to_array(name, group[name], schema.field(name).type) for name in self.names]
        return pa.Table.from_arrays(arrays, schema=schema)

    def writer(self, file: IO[bytes], compression: str) -> pq.ParquetWriter:
        """Return pyarrow's writer of `decoded` tables, one row group each; `metadata` replaces the stored schema."""
        options = self._options(compression)
        # The stored schema has other types than readers shall see.
        return pq.ParquetWriter(file, self.schema, compression=compression, store_schema=False, **options)

    def _to_array(self, name: str, column: Any, type_: pa.DataType) -> pa.Array:
        return _decode_codes(self.plan[name].released, column, type_) if name in self.plan.names else column

    def _type(self, name: str) -> pa.DataType:
        """Return the type of a column's values: the input's, or text if a special value is a word."""
        type_ = self.source.field(name).type
        return self.plan[name].space.output_type(type_) if name in self.plan.names else type_

    def _stored_type(self, name: str) -> pa.DataType:
        """Return the written type; decoded strings are dictionaries, so that no string is handled per row."""
        type_ = self._type(name)
        if name in self.plan.passthrough:
            return plain_type(type_)
        if is_list(type_) and is_text(type_.value_type):
            space: Any = self.plan[name].space
            # The index width follows the space, not the column; one byte per item is usually enough.
            index_type = space.inner_space.listed.natural_type.index_type
            item_type = pa.dictionary(index_type, indexed(type_.value_type).value_type)
            items = pa.field(type_.value_field.name, item_type, type_.value_field.nullable)
            return pa.large_list(items) if pa.types.is_large_list(type_) else pa.list_(items)
        if is_open(type_):
            return pa.null()
        return indexed(type_) if is_text(type_) else output_type(type_)

    def _seen_type(self, name: str) -> pa.DataType:
        type_ = self._type(name)
        return plain_type(type_) if type_.num_fields and name in self.plan.passthrough else output_type(type_)

    def _field(self, name: str, type_: pa.DataType) -> pa.Field:
        may_be_null = name in self.plan.names and self.plan[name].space.has_null
        return pa.field(name, type_, nullable=self.source.field(name).nullable or may_be_null)

    def _options(self, compression: str) -> dict[str, Any]:
        """Return the options with which pyarrow writes: only columns that are passed through have statistics.

        Bounds of noise help no reader. The dictionary of text lists every value of the space, in the space's order.
        Numbers and dates have a dictionary only if small files are asked for: pyarrow hashes every value.
        """
        leaves = [(field.name, *leaf) for field in self.schema for leaf in _leaf_paths(field.name, field.type)]
        is_small = compression in SMALL
        encodings_by_path = {
            path: _encoding(type_) for root, path, type_ in leaves if root in self.plan.names and not is_small
        }
        encodings = {path: encoding for path, encoding in encodings_by_path.items() if encoding is not None}
        return {
            "write_statistics": [path for root, path, _ in leaves if root in self.plan.passthrough],
            "use_dictionary": [path for _, path, _ in leaves if path not in encodings],
            "column_encoding": encodings,
        }

    @property
    def pandas_metadata(self) -> str:
        """JSON metadata from which pandas reads its dtypes."""
        columns = [
            {
                "name": field.name,
                "field_name": field.name,
                "pandas_type": "unicode" if is_text(field.type) else str(field.type),
                "numpy_type": "object"
                if self._is_rewritten(field.name)
                else self.pandas_types.get(field.name, "object"),
                "metadata": None,
            }
            for field in self.seen
        ]
        return json.dumps(
            {"index_columns": [], "column_indexes": [], "columns": columns, "pandas_version": pd.__version__}
        )

    def _is_rewritten(self, name: str) -> bool:
        """Return whether a column's numbers are written as text."""
        return bool(self._type(name) != self.source.field(name).type)

    def metadata(self, description: str) -> dict[str, str]:
        """Return fresh file metadata: a release's description, pandas' dtypes, and the schema that readers see."""
        metadata = arrow_metadata(description) | {"pandas": self.pandas_metadata}
        schema = self.seen.with_metadata(metadata)
        return metadata | {"ARROW:schema": base64.b64encode(schema.serialize().to_pybytes()).decode()}


def _decode_codes(space: Space, codes: Any, type_: pa.DataType) -> pa.Array:
    return as_stored(space.decode(codes, coded_type(type_)), type_)


def _encoding(type_: pa.DataType) -> str | None:
    """Return the encoding without a dictionary of numbers, dates and times; None for other values."""
    if type_ in (pa.float32(), pa.float64()):
        return "BYTE_STREAM_SPLIT"
    # Whole numbers are not split by bytes: older versions of DuckDB refuse that.
    is_whole = pa.types.is_integer(type_) or pa.types.is_temporal(type_)
    return "DELTA_BINARY_PACKED" if is_whole else None


def _leaf_paths(path: str, type_: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the paths and types of the leaves that Parquet stores for a column."""
    if is_list(type_):
        # pyarrow writes every list's items as "element", by Parquet's specification.
        yield from _leaf_paths(f"{path}.list.element", type_.value_type)
    elif pa.types.is_map(type_):
        yield from _leaf_paths(f"{path}.key_value.key", type_.key_type)
        yield from _leaf_paths(f"{path}.key_value.value", type_.item_type)
    elif pa.types.is_struct(type_):
        for field in type_:
            yield from _leaf_paths(f"{path}.{field.name}", field.type)
    else:
        yield path, type_
