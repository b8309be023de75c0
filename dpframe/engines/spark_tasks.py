"""What Spark's Python workers run: functions of Arrow batches, around the tasks of `work`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpframe.engines.job import PreparedRelease
from dpframe.engines.readers import ID_USE, Reader, id_words
from dpframe.engines.work import Pieces, consecutive
from dpframe.errors import FileError
from dpframe.noise.keystream import derived_key
from dpframe.tables.frames import ArrowFrame

FILE, ROW = "__dpframe_file", "__dpframe_row"
"""Columns of addresses: a hash of a row's file, and its place in it."""
RESULT, BUCKET, ROWS = "result", "bucket", "rows"
AT_ONCE = 1 << 17
"""Rows that are worked on at a time: Spark's own batches are short."""
OUT_ROWS = 1 << 16


@dataclass(frozen=True)
class SparkReader:
    """Reads batches with the addresses of rows: of files, or by an id."""

    names: Sequence[str]
    firsts: dict[int, int] = field(default_factory=dict)
    """The place of the first row of each file, by the file's hash."""
    id: str | None = None
    key: bytes = field(default=bytes(32), repr=False)

    @property
    def columns(self) -> list[str]:
        """The columns that are read, those of addresses among them."""
        return [*self.names, *([FILE, ROW] if self.id is None else [self.id])]

    def only(self, names: Sequence[str], plain: Collection[str]) -> SparkReader:
        """Return a reader of some columns."""
        return replace(self, names=list(names))

    def keyed(self, key: bytes) -> SparkReader:
        """Return a reader of the same rows, whose addresses by id are hashes under another key."""
        return replace(self, key=derived_key(key, ID_USE))

    def __call__(self, part: Iterator[pa.RecordBatch], first: int) -> Pieces:
        """Yield rows, a fair number at a time."""
        for table in gathered(part, AT_ONCE):
            frame = ArrowFrame(table.select(list(self.names)))
            if self.id is not None:
                yield frame, id_words(table.column(self.id).combine_chunks(), self.id, self.key)
            else:
                yield frame, consecutive(self._places(table))

    def _places(self, table: pa.Table) -> Any:
        files, rows = (np.asarray(table.column(name).combine_chunks()) for name in (FILE, ROW))
        known, which = np.unique(files, return_inverse=True)
        if any(file not in self.firsts for file in known.tolist()):
            raise FileError("a file of the table is new since its rows were counted; release the table anew")
        return np.array([self.firsts[file] for file in known.tolist()], np.uint64)[which] + rows.astype(np.uint64)


@dataclass(frozen=True)
class PlainReader(SparkReader):
    """Reads batches of a release, whose rows have no addresses."""

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return list(self.names)

    def __call__(self, part: Iterator[pa.RecordBatch], first: int) -> Pieces:
        """Yield rows, a fair number at a time."""
        for table in gathered(part, AT_ONCE):
            yield ArrowFrame(table), 0


def gathered(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    """Yield tables of about so many rows out of short batches.

    >>> batch = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})
    >>> [table.num_rows for table in gathered([batch] * 5, 6)]
    [6, 6, 3]
    """
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(b.num_rows for b in waiting) >= most:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


@dataclass(frozen=True)
class Each:
    """Does a task with a partition, and gives what comes of it as bytes."""

    reader: Reader
    task: Callable[[Pieces], Any] = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row."""
        content = pickle.dumps(self.task(self.reader(batches, 0)))
        yield pa.RecordBatch.from_arrays([pa.array([content], pa.binary())], names=[RESULT])


@dataclass(frozen=True)
class Numbered:
    """Does a task with those of its inputs whose numbers it is given, and gives what comes of each as bytes."""

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
    """Gives the rows of a partition, sealed, with the bucket that they belong to."""

    reader: Reader
    ready: PreparedRelease = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of few and large values."""
        for bucket, content in self.ready.scattered(self.reader(batches, 0)):
            arrays = [pa.array([bucket], pa.int32()), pa.array([content], pa.binary())]
            yield pa.RecordBatch.from_arrays(arrays, names=[BUCKET, ROWS])


@dataclass(frozen=True)
class Gather:
    """Gives buckets in the order of the release.

    Every bucket has a row that is empty, so that one whose rows are all gone is missed.
    """

    ready: PreparedRelease = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield released rows."""
        sent: dict[int, list[bytes]] = {}
        for batch in batches:
            for bucket, content in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                sent.setdefault(bucket, []).extend([content] if content else [])
        for bucket in sorted(sent):
            table = self.ready.gathered(bucket, sent.pop(bucket)).replace_schema_metadata(None)
            yield from table.combine_chunks().to_batches(OUT_ROWS)
