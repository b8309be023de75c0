"""Functions of Arrow batches for Spark's Python workers, around the tasks of `work`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpframe.engines.job import PreparedRelease
from dpframe.engines.readers import ID_USE, Reader, id_words
from dpframe.engines.work import Pieces, compact_rows
from dpframe.errors import FileError
from dpframe.noise.keystream import derived_key
from dpframe.tables.frames import ArrowFrame

FILE, ROW = "__dpframe_file", "__dpframe_row"
"""Columns of addresses: a hash of the row's file, and its position in the file."""
RESULT, BUCKET, ROWS = "result", "bucket", "rows"
FRAME_ROWS = 1 << 17
"""Rows of a frame that is coded at once (limit of memory); batches of Spark are too short for fast code."""
OUT_ROWS = 1 << 16
"""Rows of a batch that returns to Spark (limit of memory)."""


@dataclass(frozen=True)
class SparkReader:
    """Reads batches with the addresses of rows, by file or by id."""

    names: Sequence[str]
    firsts: dict[int, int] = field(default_factory=dict)
    """Position of the first row of each file, by the file's hash."""
    id: str | None = None
    key: bytes = field(default=bytes(32), repr=False)

    @property
    def columns(self) -> list[str]:
        """The columns to read, including columns of addresses."""
        return [*self.names, *([FILE, ROW] if self.id is None else [self.id])]

    def only(self, names: Sequence[str], plain: Collection[str]) -> SparkReader:
        """Return a reader of some columns."""
        return replace(self, names=list(names))

    def keyed(self, key: bytes) -> SparkReader:
        """Return a reader of these rows whose addresses by id are hashes under another key."""
        return replace(self, key=derived_key(key, ID_USE))

    def __call__(self, part: Iterator[pa.RecordBatch], first: int) -> Pieces:
        """Yield rows, a fair number at a time."""
        for table in self.read_tables(part):
            frame = ArrowFrame(table.select(list(self.names)))
            if self.id is not None:
                yield frame, id_words(table.column(self.id).combine_chunks(), self.id, self.key)
            else:
                yield frame, compact_rows(self._read_places(table))

    def read_tables(self, part: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield batches as tables of a fair number of rows, with their columns' names."""
        return (table.rename_columns(self.columns) for table in merge_batches(part, FRAME_ROWS))

    def _read_places(self, table: pa.Table) -> Any:
        files, rows = (np.asarray(table.column(name).combine_chunks()) for name in (FILE, ROW))
        # A batch has rows of few files.
        distinct_files, file_indices = np.unique(files, return_inverse=True)
        if any(file not in self.firsts for file in distinct_files.tolist()):
            raise FileError("a file of the table is new since its rows were counted; release the table anew")
        return np.array([self.firsts[file] for file in distinct_files.tolist()], np.uint64)[file_indices] + rows.astype(
            np.uint64
        )


@dataclass(frozen=True)
class PlainReader(SparkReader):
    """Reads batches of a release, whose rows have no addresses."""

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return list(self.names)

    def __call__(self, part: Iterator[pa.RecordBatch], first: int) -> Pieces:
        """Yield rows, a fair number at a time."""
        for table in self.read_tables(part):
            yield ArrowFrame(table), 0


def merge_batches(batches: Iterable[pa.RecordBatch], least_rows: int) -> Iterator[pa.Table]:
    """Yield tables of at least ``least_rows`` rows, except the last one, out of short batches.

    >>> batch = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})
    >>> [table.num_rows for table in merge_batches([batch] * 5, 6)]
    [6, 6, 3]
    """
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(b.num_rows for b in waiting) >= least_rows:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


@dataclass(frozen=True)
class PartitionTask:
    """Runs a task on a partition, and returns the pickled result."""

    reader: Reader
    task: Callable[[Pieces], Any] = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row."""
        content = pickle.dumps(self.task(self.reader(batches, 0)))
        yield pa.RecordBatch.from_arrays([pa.array([content], pa.binary())], names=[RESULT])


@dataclass(frozen=True)
class NumberedTask:
    """Runs a task on the inputs with given numbers, and returns the pickled results."""

    task: Callable[..., Any] = field(repr=False)
    inputs: Sequence[tuple[Any, ...]] = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each number."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                content = pickle.dumps(self.task(*self.inputs[number]))
                yield pa.RecordBatch.from_arrays([pa.array([content], pa.binary())], names=[RESULT])


@dataclass(frozen=True)
class Scatter:
    """Returns the sealed rows of a partition with the numbers of their buckets."""

    reader: Reader
    ready: PreparedRelease = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each bucket of the partition."""
        # Few rows of large values: Spark's shuffle has costs for each row.
        for bucket, content in self.ready.scatter(self.reader(batches, 0)):
            arrays = [pa.array([bucket], pa.int32()), pa.array([content], pa.binary())]
            yield pa.RecordBatch.from_arrays(arrays, names=[BUCKET, ROWS])


@dataclass(frozen=True)
class Gather:
    """Returns the released rows of buckets in the order of the release.

    Every bucket has one empty row, so that a bucket without any other row is noticed.
    """

    ready: PreparedRelease = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield released rows."""
        sent: dict[int, list[bytes]] = {}
        for batch in batches:
            for bucket, content in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                sent.setdefault(bucket, []).extend([content] if content else [])
        for bucket in sorted(sent):
            # pop frees the sealed rows of a bucket before the next bucket is opened.
            table = self.ready.gather(bucket, sent.pop(bucket)).replace_schema_metadata(None)
            yield from table.combine_chunks().to_batches(OUT_ROWS)
