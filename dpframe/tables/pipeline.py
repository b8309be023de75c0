"""Work on the parts of a table in several threads, whose results come in the parts' own order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from dpframe.tables.batches import Batch, length

Part = TypeVar("Part")
Result = TypeVar("Result")

_END: Any = object()
"""What comes after the last part."""

MOST_THREADS = 4
"""Threads that are taken unless more are asked for: each holds a batch, and what reads and writes keeps up with few."""


def usual_threads() -> int:
    """Return as many threads as there are processors for this process, but few.

    >>> 1 <= usual_threads() <= MOST_THREADS
    True
    """
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(own or 1, MOST_THREADS)


def ordered(work: Callable[[Part], Result], parts: Iterable[Part], threads: int) -> Generator[Result, None, None]:
    """Yield what work makes of every part, in order; with several threads of as many parts and one more at a time.

    An error is raised in place of its part's result, so that the first part's is raised of several.

    >>> list(ordered(abs, [-3, 1, -2], 2))
    [3, 1, 2]
    """
    if threads == 1:
        yield from map(work, parts)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="dpframe-worker") as pool:
        try:
            for part in parts:
                waiting.append(pool.submit(work, part))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def ahead(parts: Iterator[Part], threads: int) -> Generator[Part, None, None]:
    """Yield parts; with several threads, the next one is made meanwhile in a thread of its own.

    >>> list(ahead(iter("abc"), 2))
    ['a', 'b', 'c']
    """
    if threads == 1:
        yield from parts
        return
    with ThreadPoolExecutor(1, thread_name_prefix="dpframe-reader") as thread:
        coming = thread.submit(next, parts, _END)
        while (part := coming.result()) is not _END:
            coming = thread.submit(next, parts, _END)
            yield part


def written(write: Callable[[Batch], None], groups: Iterator[Batch], threads: int) -> int:
    """Write each group, in a thread of its own while the next is made if there are several; return the rows written."""
    rows = 0
    if threads == 1:
        for group in groups:
            write(group)
            rows += length(group)
        return rows
    writing: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="dpframe-writer") as thread:
        for group in groups:
            if writing is not None:
                writing.result()
            rows += length(group)
            writing = thread.submit(write, group)
        if writing is not None:
            writing.result()
    return rows
