"""Open files that released tables are written to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from dpframe.tables.batches import Batch


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
