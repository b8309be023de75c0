"""One file out of a table, a plan and a key: stream, randomise, put in a secret order, write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.central.tables import Tables
from dpframe.errors import ColumnError
from dpframe.io.batches import Batch, length, row_groups
from dpframe.io.checks import check_types, located
from dpframe.io.files import FileInput
from dpframe.io.parquet_form import ParquetForm
from dpframe.io.sinks import Sink
from dpframe.io.spill import BUCKET_ROWS, Spill
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo
from dpframe.release.order_watch import SortedWatch
from dpframe.release.release import Digest, Selection, order_words, release

Progress = Callable[[int, int], None]
"""Called with the rows done and the rows in all."""


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
        self.form = ParquetForm(self.plan, self.table.schema, self.table.pandas_types)
        check_types(self.table.fields(self.plan.names), spaces)
        self.digest, self.first_row = Digest(self.plan), 0
        self.tables = Tables(self.plan, self.key)
        self.selection = Selection(self.plan, self.key, self.table.n)
        self.watch = None if self.plan.shuffle else SortedWatch(self.table.partitions)

    def run(self, file: IO[bytes], sink: Sink) -> ReleaseInfo:
        """Write the whole output file; what is spilled goes to the folder of the sink."""
        sink.check(self.form.schema)
        batches = self._shuffled(sink.path.parent) if self.plan.shuffle else self._released()
        with sink.open(file, self.form.schema) as writer:
            rows = in_background(
                lambda table: writer.write(table, self.form.group_rows),
                map(self.form.decoded, row_groups(batches, self.form.group_rows)),
            )
            if self.watch is not None:
                self.watch.warn()
            drawn_from = None if self.plan.sample is None else self.table.n
            tables = self.tables.measured()
            info = ReleaseInfo(self.plan, rows, self.digest.hexdigest(tables), drawn_from, self.measured, tables)
            writer.describe(self.form.metadata(info))
        return info

    def _released(self) -> Iterator[Batch]:
        """Yield released codes, and columns passed through, in input order."""
        return (batch for batch, _ in self._with_rows())

    def _with_rows(self) -> Iterator[tuple[Batch, slice | npt.NDArray[np.intp]]]:
        """Yield the same with which of the batch's rows they are, and move `first_row` along."""
        for batch in self.table.batches(self.form.names, self.batch_rows, self.plan.passthrough):
            count = length(batch)
            codes = {c.name: self._encode(c, batch[c.name], self.first_row) for c in self.plan.columns}
            if self.watch is not None:
                self.watch.update(codes)
            self.tables.add(codes, self.first_row)
            released: Batch = dict(release(codes, self.plan, self.key, self.first_row))
            released.update((name, self.form.plain(name, batch[name])) for name in self.plan.passthrough)
            mask = self.selection.mask(self.first_row, count)
            rows: slice | npt.NDArray[np.intp] = slice(None)
            if mask is not None:
                rows = np.flatnonzero(mask)
                released = {name: column.take(rows) for name, column in released.items()}
            self.digest.update(released)
            yield released, rows
            self.first_row += count
            self.progress(self.first_row, self.table.n)

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
