"""One file out of a table, a plan and a key: stream, randomise, put in a secret order, write."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from dpframe.central.tables import Tables
from dpframe.errors import ColumnError
from dpframe.io.batches import Batch, indexed, length, row_groups
from dpframe.io.checks import check_types, located
from dpframe.io.files import FileInput
from dpframe.io.kinds import as_stored, coded_type
from dpframe.io.sinks import Sink
from dpframe.io.spill import BUCKET_ROWS, Spill
from dpframe.io.types import is_list, is_text, output_type, plain_type
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo, arrow_metadata
from dpframe.release.order_watch import SortedWatch
from dpframe.release.release import Digest, Selection, order_words, release

ROW_GROUP_ROWS = 1 << 20


GROUP_ITEMS = 32
"""Bits a row up to which row groups are whole: more would take more than 500 MiB before they are written."""


Progress = Callable[[int, int], None]
"""Called with the rows done and the rows in all."""


@dataclass(frozen=True)
class Layout:
    """How the columns of a release lie in a file: types, row groups, and what the file says of itself.

    Parameters
    ----------
    plan
        The plan; columns that it does not randomise are copied.
    fields
        The Arrow fields of the columns that leave, in order, as they came in.
    pandas_types
        The pandas extension dtypes that columns had.
    """

    plan: Plan
    fields: Mapping[str, pa.Field]
    pandas_types: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.fields)

    @property
    def group_rows(self) -> int:
        """Rows of a group: fewer where a row's sets may hold many items, which the plan says."""
        words = sum(column.space.code_words for column in self.plan.columns)
        return ROW_GROUP_ROWS // max(1, words * 64 // GROUP_ITEMS)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns as they are written."""
        return pa.schema([self._field(name, self._stored_type(name)) for name in self.names])

    def decoded(self, group: Batch) -> pa.Table:
        """Return released codes, and columns passed through, as the table that is written."""
        arrays = [self._values(name, group[name]) if name in self.plan.names else group[name] for name in self.names]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _values(self, name: str, codes: Any) -> pa.Array:
        stored = self._stored_type(name)
        return as_stored(self.plan[name].space.decode(codes, coded_type(stored)), stored)

    def _stored_type(self, name: str) -> pa.DataType:
        """Return the type that is written; strings to decode are dictionaries, so that none is touched per row."""
        type_ = self.fields[name].type
        if name in self.plan.passthrough:
            return plain_type(type_)
        if is_list(type_) and is_text(type_.value_type):
            space: Any = self.plan[name].space
            # By the space, not the column; items are many, and a byte for each is enough more often than not.
            narrow = space.inner_space.listed.natural_type.index_type
            inner = pa.dictionary(narrow, indexed(type_.value_type).value_type)
            field = pa.field(type_.value_field.name, inner, type_.value_field.nullable)
            return pa.large_list(field) if pa.types.is_large_list(type_) else pa.list_(field)
        return indexed(type_) if is_text(type_) else output_type(type_)

    def _seen_type(self, name: str) -> pa.DataType:
        """Return the type that readers shall see."""
        type_ = self.fields[name].type
        return plain_type(type_) if type_.num_fields and name in self.plan.passthrough else output_type(type_)

    def _field(self, name: str, type_: pa.DataType) -> pa.Field:
        may_be_null = name in self.plan.names and "nullable" in self.plan[name].space.tag
        return pa.field(name, type_, nullable=self.fields[name].nullable or may_be_null)

    def metadata(self, info: ReleaseInfo) -> dict[str, str]:
        """Return fresh file metadata: the plan, pandas' dtypes, and the schema that readers shall see."""
        seen = [self._field(name, self._seen_type(name)) for name in self.names]
        metadata = arrow_metadata(info.to_json()) | {"pandas": _pandas_metadata(seen, self.pandas_types)}
        schema = pa.schema(seen, metadata=metadata)
        return metadata | {"ARROW:schema": base64.b64encode(schema.serialize().to_pybytes()).decode()}


@dataclass
class Job:
    """One conversion: reads batches, releases them, orders them if asked, writes row groups."""

    table: FileInput
    plan: Plan
    measured: bool
    key: bytes
    batch_rows: int
    progress: Progress

    def __post_init__(self) -> None:
        spaces = {column.name: column.space for column in self.plan.columns}
        self.table = self.table.typed(spaces, self.plan.imputed)
        kept = {*self.plan.names, *self.plan.passthrough}
        self.names = [name for name in self.table.names if name in kept]
        self.fields = {name: self.table.schema.field(name) for name in self.names}
        self.layout = Layout(self.plan, self.fields, self.table.pandas_types)
        check_types(self.table.fields(self.plan.names), spaces)
        self.digest, self.first_row = Digest(self.plan), 0
        self.tables = Tables(self.plan, self.key)
        self.selection = Selection(self.plan, self.key, self.table.n)
        self.watch = None if self.plan.shuffle else SortedWatch(self.table.partitions)

    def run(self, file: IO[bytes], sink: Sink) -> ReleaseInfo:
        """Write the whole output file; what is spilled goes to the folder of the sink."""
        layout = self.layout
        sink.check(layout.schema)
        batches = self._shuffled(sink.path.parent) if self.plan.shuffle else self._released()
        with sink.open(file, layout.schema) as writer:
            rows = in_background(
                lambda table: writer.write(table, layout.group_rows),
                map(layout.decoded, row_groups(batches, layout.group_rows)),
            )
            if self.watch is not None:
                self.watch.warn()
            drawn_from = None if self.plan.sample is None else self.table.n
            tables = self.tables.measured()
            info = ReleaseInfo(self.plan, rows, self.digest.hexdigest(tables), drawn_from, self.measured, tables)
            writer.describe(layout.metadata(info))
        return info

    def _released(self) -> Iterator[Batch]:
        """Yield released codes, and columns passed through, in input order."""
        return (batch for batch, _ in self._with_rows())

    def _with_rows(self) -> Iterator[tuple[Batch, slice | npt.NDArray[np.intp]]]:
        """Yield the same with which of the batch's rows they are, and move `first_row` along."""
        for batch in self.table.batches(self.names, self.batch_rows, self.plan.passthrough):
            count = length(batch)
            codes = {c.name: self._encode(c, batch[c.name], self.first_row) for c in self.plan.columns}
            if self.watch is not None:
                self.watch.update(codes)
            self.tables.add(codes, self.first_row)
            released: Batch = dict(release(codes, self.plan, self.key, self.first_row))
            released.update((name, self._plain(name, batch[name])) for name in self.plan.passthrough)
            mask = self.selection.mask(self.first_row, count)
            rows: slice | npt.NDArray[np.intp] = slice(None)
            if mask is not None:
                rows = np.flatnonzero(mask)
                released = {name: column.take(rows) for name, column in released.items()}
            self.digest.update(released)
            yield released, rows
            self.first_row += count
            self.progress(self.first_row, self.table.n)

    def _plain(self, name: str, array: pa.Array) -> pa.Array:
        stored = plain_type(self.fields[name].type)
        return array if array.type.equals(stored) else array.cast(stored)

    def _encode(self, column: Column, array: pa.Array, first_row: int) -> npt.NDArray[np.unsignedinteger]:
        try:
            own = column.name in self.plan.imputed
            return column.space.encode(array, nulls=self.plan.nulls_of(column.name), tolerant=own)
        except ColumnError as error:
            raise located(error, column.name, first_row) from None

    def _shuffled(self, folder: Path) -> Iterator[Batch]:
        """Yield the released rows in their secret order, through encrypted buckets on disk."""
        with Spill(folder, ((self.plan.sample or self.table.n) // BUCKET_ROWS).bit_length()) as spill:
            for batch, rows in self._with_rows():
                count = length(batch) if isinstance(rows, slice) else int(rows.max(initial=-1)) + 1
                spill.add(order_words(self.plan, self.key, self.first_row, count)[rows], batch)
            for bucket in range(spill.buckets):
                yield spill.read(bucket)


def _pandas_metadata(fields: list[pa.Field], dtypes: Mapping[str, str]) -> str:
    """Return pandas' schema metadata with dtypes only: no index, no names of index levels."""
    columns = [
        {
            "name": field.name,
            "field_name": field.name,
            "pandas_type": "unicode" if is_text(field.type) else str(field.type),
            "numpy_type": dtypes.get(field.name, "object"),
            "metadata": None,
        }
        for field in fields
    ]
    return json.dumps({"index_columns": [], "column_indexes": [], "columns": columns, "pandas_version": pd.__version__})


def in_background(write: Callable[[pa.Table], None], tables: Iterator[pa.Table]) -> int:
    """Write each table in a second thread, while the next is made; return the rows written."""
    rows = 0
    writing: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="dpframe-writer") as thread:
        for table in tables:
            if writing is not None:
                writing.result()
            rows += table.num_rows
            writing = thread.submit(write, table)
        if writing is not None:
            writing.result()
    return rows
