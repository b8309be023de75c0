"""Releases in an engine for estimates: workers count codes, and the driver gets their counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpframe.engines.table import EngineTable
from dpframe.engines.work import Pieces
from dpframe.noise.gaussian import Ints
from dpframe.spaces import Space
from dpframe.spaces.base import forwarded
from dpframe.spaces.field import Field
from dpframe.tables.table import Codes, Streamed


@dataclass(frozen=True)
class CountCodes:
    """Counts the rows of each tuple of codes."""

    spaces: Mapping[str, Space]

    def __call__(self, pieces: Pieces) -> list[tuple[Codes, Ints]]:
        """Return the distinct tuples of codes, and the number of rows of each."""
        return [
            count_records({name: frame.encode(name, space, "error") for name, space in self.spaces.items()})
            for frame, _ in pieces
        ]


def count_records(codes: Codes) -> tuple[Codes, Ints]:
    """Return the distinct tuples of codes, and the number of rows of each.

    >>> count_records({"sex": np.array([1, 0, 1], np.uint8), "age": np.array([7, 7, 7], np.uint8)})
    ({'sex': array([0, 1], dtype=uint8), 'age': array([7, 7], dtype=uint8)}, array([1, 2]))
    """
    columns = [np.ascontiguousarray(column) for column in codes.values()]
    rows = len(columns[0])
    # One sort of rows as bytes takes the place of a sort by each column.
    records = np.concatenate([column.view(np.uint8).reshape(rows, -1) for column in columns], axis=1)
    record_bytes = np.ascontiguousarray(records).view(np.dtype((np.void, records.shape[1]))).ravel()
    _, first, counts = np.unique(record_bytes, return_index=True, return_counts=True)
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

    names: ClassVar[list[str]] = forwarded("table.names")

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return the public facts about columns."""
        return self.table.fields(names)

    def coded(self, spaces: Mapping[str, Space], rows: int) -> Iterator[Codes]:
        """Yield codes, with equal tuples of a part next to each other; see `Streamed.coded`."""
        # Estimates count rows, so that their order does not matter.
        for parts in self.table.only(list(spaces)).results(CountCodes(dict(spaces))):
            for codes, counts in parts:
                repeated_places = np.repeat(np.arange(len(counts)), counts)
                for start in range(0, len(repeated_places), rows):
                    yield {name: column[repeated_places[start : start + rows]] for name, column in codes.items()}
