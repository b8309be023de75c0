"""Batches of released codes and copied columns, and the open files that they are written to."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Batch = dict[str, Any]
"""Released codes (NumPy) and columns passed through (Arrow), by name."""


def indexed(type_: pa.DataType) -> pa.DataType:
    """Return the type a copied column has on disk."""
    return pa.dictionary(pa.int32(), pa.large_string() if pa.types.is_large_string(type_) else pa.string())


def length(batch: Batch) -> int:
    """Return the rows of a batch."""
    return len(next(iter(batch.values()), ()))


def taken(batch: Batch, rows: npt.NDArray[np.intp]) -> Batch:
    """Return the rows of a batch at these positions."""
    return {
        name: column.take(rows, axis=0) if isinstance(column, np.ndarray) else column.take(pa.array(rows))
        for name, column in batch.items()
    }


def joined(batches: list[Batch]) -> Batch:
    """Return the rows of all batches as one batch, with every column in one piece."""
    if len(batches) == 1:
        return dict(batches[0])
    columns = {}
    # Every batch has the columns of the first one.
    for name, first in batches[0].items():
        parts = [batch[name] for batch in batches]
        if isinstance(first, np.ndarray):
            columns[name] = np.concatenate(parts)
        else:
            chunks = [chunk for part in parts for chunk in getattr(part, "chunks", [part])]
            columns[name] = pa.chunked_array(chunks, first.type).unify_dictionaries().combine_chunks()
    return columns


def row_groups(batches: Iterator[Batch], most: int) -> Iterator[Batch]:
    """Gather batches to row groups, whose sizes and pages reveal nothing of batches and input files."""
    buffer, rows = [], 0
    for batch in batches:
        buffer.append(batch)
        rows += length(batch)
        while rows >= most:
            buffered_rows = joined(buffer)
            yield {name: column[:most] for name, column in buffered_rows.items()}
            buffer = [{name: column[most:] for name, column in buffered_rows.items()}]
            rows -= most
    if rows:
        yield joined(buffer)


class Writer(AbstractContextManager["Writer"], ABC):
    """An open file that tables are written to."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.inner.close()

    @abstractmethod
    def write(self, table: pa.Table, group_rows: int) -> None:
        """Write rows, in groups of ``group_rows`` if the format has groups."""

    def describe(self, metadata: Mapping[str, str]) -> None:
        """Write the release's description after all rows, if the format has a place for descriptions."""


@dataclass(frozen=True)
class RowsWriter:
    """Writer of released codes in row groups, and of the release's description after the last group."""

    write: Callable[[Batch], None]
    describe: Callable[[Mapping[str, str]], None]


Part = TypeVar("Part")
Result = TypeVar("Result")

_END: Any = object()
"""Mark of the end, after the last part."""

MOST_THREADS = 4
"""Default limit on threads: each thread holds a batch, and a few keep pace with reading and writing."""


def usual_threads() -> int:
    """Return the number of processors of this process, at most `MOST_THREADS`.

    >>> 1 <= usual_threads() <= MOST_THREADS
    True
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(processors or 1, MOST_THREADS)


def ordered(work: Callable[[Part], Result], parts: Iterable[Part], threads: int) -> Generator[Result, None, None]:
    """Yield the result of work on every part, in order; n > 1 threads keep n + 1 parts in memory.

    An error is raised in place of its part's result: of several errors, the first part's is raised.
    """
    if threads == 1:
        yield from map(work, parts)
        return
    futures: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="dpframe-worker") as pool:
        try:
            for part in parts:
                futures.append(pool.submit(work, part))
                if len(futures) > threads:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
        finally:
            # The pool waits for every future when it closes: parts that nobody needs any more must not start.
            for future in futures:
                future.cancel()


def ahead(parts: Iterator[Part], threads: int) -> Generator[Part, None, None]:
    """Yield parts; with several threads, another thread makes the next part meanwhile."""
    if threads == 1:
        yield from parts
        return
    with ThreadPoolExecutor(1, thread_name_prefix="dpframe-reader") as thread:
        next_part = thread.submit(next, parts, _END)
        while (part := next_part.result()) is not _END:
            next_part = thread.submit(next, parts, _END)
            yield part


def written(write: Callable[[Batch], None], groups: Iterator[Batch], threads: int) -> int:
    """Write each group and return the number of rows; with several threads, one writes while another makes groups."""
    rows = 0
    if threads == 1:
        for group in groups:
            write(group)
            rows += length(group)
        return rows
    write_future: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="dpframe-writer") as thread:
        for group in groups:
            # One group waits at most: more would fill the memory, and an error of the writer would show late.
            if write_future is not None:
                write_future.result()
            rows += length(group)
            write_future = thread.submit(write, group)
        if write_future is not None:
            write_future.result()
    return rows
