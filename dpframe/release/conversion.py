"""One file out of a table, a plan and a key: stream, randomise, shuffle, write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError
from dpframe.noise.keystream import U64
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo
from dpframe.release.library import installed_library
from dpframe.release.noisy_tables import Tables
from dpframe.release.order_watch import SortedWatch
from dpframe.release.rows import Digest, Selection, order_words, release
from dpframe.release.spill import SPILL_BUCKET_ROWS, Spill
from dpframe.tables.batches import Batch, ahead, length, ordered, row_groups, taken, written
from dpframe.tables.files import FileInput
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.sinks import Sink
from dpframe.tables.table import check_types, located

Progress = Callable[[int, int], None]
"""Called with the rows done and the rows in all."""


@dataclass
class Conversion:
    """One conversion: reads batches, releases them, orders them if asked, writes row groups."""

    table: FileInput
    plan: Plan
    measured: bool
    key: bytes
    batch_rows: int
    progress: Progress
    threads: int = 1
    """With several threads, some read, code and randomise, and one writes; a single thread does everything in turn."""
    part: str | None = None

    def __post_init__(self) -> None:
        self.table = self.table.typed(self.plan.spaces, self.plan.imputed)
        self.table = replace(self.table, alone=self.threads == 1)
        self.form = ParquetForm(self.plan, self.table.schema, self.table.pandas_types)
        check_types(self.table.fields(self.plan.names), self.plan.spaces)
        self.digest = Digest(self.plan)
        # Whole numbers may be added up in any order.
        self.counting = threading.Lock()
        self.tables = Tables(self.plan, self.key)
        self.selection = Selection(self.plan, self.key, self.table.n)
        self.watch = None if self.plan.shuffle else SortedWatch(self.table.partitions)

    def run(self, file: IO[bytes], sink: Sink) -> ReleaseInfo:
        """Write the output file, and spill rows to the sink's folder; return the release's description."""
        sink.check(self.form.schema)
        batches = self._shuffle_rows(sink.path.parent) if self.plan.shuffle else self._release_batches()
        # Closed by hand: a stored error would keep threads and spilled rows alive, too.
        with closing(batches), sink.rows(file, self.form) as writer:
            rows = written(writer.write, row_groups(batches, self.form.group_rows), self.threads)
            if self.watch is not None:
                self.watch.warn()
            table_rows = None if self.plan.sample is None else self.table.n
            # After the last row is read and before the file has a name: rows of a changed input must not leave.
            self.table.check_unchanged()
            tables = self.tables.measured()
            digest = self.digest.hexdigest(tables)
            info = ReleaseInfo(
                self.plan, rows, digest, table_rows, self.measured, tables, self.part, library=installed_library()
            )
            writer.describe(self.form.metadata(info.to_json()))
        return info

    def _release_batches(self) -> Generator[Batch, None, None]:
        """Yield released codes, and columns passed through, in input order."""
        with closing(self._randomise_batches()) as batches:
            for batch in batches:
                yield batch.released

    def _randomise_batches(self) -> Generator[_RandomisedBatch, None, None]:
        """Yield the randomised batches in input order, and update the digest, the watch and the progress."""
        with closing(ordered(self._randomise, self._number_batches(), self.threads)) as batches:
            for batch in batches:
                if self.watch is not None:
                    self.watch.update(batch.codes)
                self.digest.merge(batch.digest)
                yield batch
                self.progress(batch.first_row + batch.count, self.table.n)

    def _number_batches(self) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """Yield batches of the table with the number of their first row."""
        first_row = 0
        for batch in self.table.batches(self.form.names, self.batch_rows, self.plan.passthrough):
            yield first_row, batch
            first_row += length(batch)

    def _randomise(self, numbered_batch: tuple[int, dict[str, pa.Array]]) -> _RandomisedBatch:
        """Randomise a batch; the result depends only on the key, the batch and its first row's number."""
        first_row, batch = numbered_batch
        # Codes do not depend on threads, so encoding needs no lock; only the counters below do.
        codes = {c.name: self._encode(c, batch[c.name], first_row) for c in self.plan.columns}
        with self.counting:
            self.tables.add(codes, first_row)
        released: Batch = dict(release(codes, self.plan, self.key, first_row))
        released.update((name, self.form.plain(name, batch[name])) for name in self.plan.passthrough)
        count, digest = length(batch), Digest(self.plan)
        words = order_words(self.plan, self.key, first_row, count) if self.plan.shuffle else None
        # After randomisation: word r of the stream decides row r, whether the row is chosen or not.
        mask = self.selection.mask(first_row, count)
        if mask is not None:
            rows = np.flatnonzero(mask)
            released = taken(released, rows)
            words = None if words is None else words[rows]
        digest.update(released)
        return _RandomisedBatch(first_row, count, codes, released, words, digest)

    def _encode(self, column: Column, array: pa.Array, first_row: int) -> npt.NDArray[np.unsignedinteger]:
        try:
            is_imputed = column.name in self.plan.imputed
            return column.space.encode(array, nulls=self.plan.nulls_of(column.name), tolerant=is_imputed)
        except ColumnError as error:
            raise located(error, column.name, first_row) from None

    def _shuffle_rows(self, folder: Path) -> Generator[Batch, None, None]:
        """Yield the released rows in their shuffled order, through encrypted buckets on disk."""
        with Spill(folder, ((self.plan.sample or self.table.n) // SPILL_BUCKET_ROWS).bit_length()) as spill:
            with closing(self._randomise_batches()) as batches:
                for batch in batches:
                    if batch.words is not None:
                        spill.add(batch.words, batch.released)
            yield from ahead(map(spill.read, range(spill.buckets)), self.threads)


@dataclass(frozen=True)
class _RandomisedBatch:
    """A batch of randomised rows, with its digest and order words."""

    first_row: int
    count: int
    codes: Mapping[str, npt.NDArray[np.unsignedinteger]]
    """Codes of the original rows, for the watch."""
    released: Batch
    words: U64 | None
    """Order words of the released rows, if their order is secret."""
    digest: Digest
