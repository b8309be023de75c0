"""Batches of released codes and copied columns, and the open files that they are written to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

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
    """Return some rows of a batch.

    >>> taken({"sets": np.array([[1, 0], [2, 0], [3, 1]], dtype=np.uint64)}, np.array([2]))["sets"].tolist()
    [[3, 1]]
    """
    return {
        name: column.take(rows, axis=0) if isinstance(column, np.ndarray) else column.take(pa.array(rows))
        for name, column in batch.items()
    }


def joined(batches: list[Batch]) -> Batch:
    """Return batches as one, every column in one piece."""
    return {name: _concat([batch[name] for batch in batches]) for name in batches[0]}


def _concat(parts: list[Any]) -> Any:
    """Return batches as one."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    chunks = [chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    return pa.chunked_array(chunks, parts[0].type).unify_dictionaries().combine_chunks()


def row_groups(batches: Iterator[Batch], most: int) -> Iterator[Batch]:
    """Gather batches to row groups, whose sizes and pages reveal nothing of batches and input files."""
    waiting, rows = [], 0
    for batch in batches:
        waiting.append(batch)
        rows += length(batch)
        while rows >= most:
            whole = joined(waiting)
            yield {name: column[:most] for name, column in whole.items()}
            waiting = [{name: column[most:] for name, column in whole.items()}]
            rows -= most
    if rows:
        yield joined(waiting)


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
        """Write rows, in groups of so many where the format has groups."""

    def describe(self, metadata: Mapping[str, str]) -> None:
        """Write what the release says about itself, where the format has room for it; the last thing."""


@dataclass(frozen=True)
class RowsWriter:
    """Takes released codes in row groups, and after the last one what the release says about itself."""

    write: Callable[[Batch], None]
    describe: Callable[[Mapping[str, str]], None]
