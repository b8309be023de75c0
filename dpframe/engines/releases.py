"""Releases in an engine, as estimates read them: workers count codes, and what they counted comes to the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpframe.engines.table import EngineTable
from dpframe.engines.work import Pieces
from dpframe.noise.gaussian import Ints
from dpframe.spaces import Space
from dpframe.spaces.field import Field
from dpframe.tables.table import Codes, Streamed


@dataclass(frozen=True)
class CountCodes:
    """Counts the rows of each tuple of codes."""

    spaces: Mapping[str, Space]

    def __call__(self, pieces: Pieces) -> list[tuple[Codes, Ints]]:
        """Return the tuples that there are, and how many rows have each."""
        return [
            counted({name: frame.encode(name, space, "error") for name, space in self.spaces.items()})
            for frame, _ in pieces
        ]


def counted(codes: Codes) -> tuple[Codes, Ints]:
    """Return the tuples of codes that occur, and how often each does.

    >>> counted({"sex": np.array([1, 0, 1], np.uint8), "age": np.array([7, 7, 7], np.uint8)})
    ({'sex': array([0, 1], dtype=uint8), 'age': array([7, 7], dtype=uint8)}, array([1, 2]))
    """
    columns = [np.ascontiguousarray(column) for column in codes.values()]
    rows = len(columns[0])
    records = np.concatenate([column.view(np.uint8).reshape(rows, -1) for column in columns], axis=1)
    whole = np.ascontiguousarray(records).view(np.dtype((np.void, records.shape[1]))).ravel()
    _, first, counts = np.unique(whole, return_index=True, return_counts=True)
    return {name: column[first] for name, column in codes.items()}, counts


@dataclass(frozen=True)
class EngineRelease(Streamed):
    """A release in an engine."""

    table: EngineTable

    n: int
    text: str | None

    @classmethod
    def of(cls, table: EngineTable) -> EngineRelease:
        """Return a table as a release."""
        return cls(table, table.n, table.text)

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return self.table.names

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return what is public about columns."""
        return self.table.fields(names)

    def coded(self, spaces: Mapping[str, Space], rows: int) -> Iterator[Codes]:
        """Yield codes, equal tuples of a part after each other; see `Streamed.coded`."""
        for parts in self.table.only(list(spaces)).results(CountCodes(dict(spaces))):
            for codes, counts in parts:
                whole = np.repeat(np.arange(len(counts)), counts)
                for start in range(0, len(whole), rows):
                    yield {name: column[whole[start : start + rows]] for name, column in codes.items()}
