"""Tables that are not held in memory, as readers of releases see them: files, and frames of engines."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpframe.spaces import Space
from dpframe.spaces.field import Field

CodedColumns = dict[str, npt.NDArray[np.unsignedinteger]]


class Streamed(ABC):
    """A table that is read part by part."""

    apart: ClassVar[bool] = False
    """Whether a release's description lies in a file of its own, which may be another's."""
    checked_rows: ClassVar[int] = 0
    """Rows up to which a release is compared with its digest as it is opened, which reads it once; `verify` checks any.
    """
    indices: tuple[str, ...] = ()
    """Columns in which pandas stored an index that has no name."""
    n: int
    text: str | None

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Column names, in order."""

    @abstractmethod
    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return what is public about columns."""

    def typed(self, spaces: Mapping[str, Space]) -> Self:
        """Return the table with the types that columns are read as, where it does not say them."""
        return self

    @abstractmethod
    def coded(self, spaces: Mapping[str, Space], rows: int) -> Iterator[CodedColumns]:
        """Yield the codes of columns, about so many rows at a time.

        Raises `ColumnError` with the position of a value that is no code, where rows have positions.
        """


ENGINES = {"dask": "dpframe.engines.dask", "pyspark": "dpframe.engines.spark"}
"""By the package of a frame, the module that works on it."""


def engine_of(table: Any) -> Any:
    """Return the module of a frame's engine; None for other tables."""
    module = ENGINES.get(type(table).__module__.split(".")[0])
    return None if module is None else importlib.import_module(module)


def of_engine(table: Any) -> Streamed | None:
    """Return a frame of an engine as a streamed table; None for other tables."""
    engine = engine_of(table)
    if engine is None:
        return None
    found: Streamed = engine.opened(table)
    return found
