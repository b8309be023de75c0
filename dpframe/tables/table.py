"""What planning and preparing a release need of a table, be it in memory or in files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.spaces import Space
from dpframe.spaces.field import Field
from dpframe.totals.counts import OfColumn

SHUFFLED = "shuffled"
"""Name of the index of a release in pandas whose rows were shuffled; programs that write the index make it a column."""

Codes = dict[str, npt.NDArray[np.unsignedinteger]]
Spaces = Mapping[str, Space]
Counters = Mapping[str, OfColumn]


class Table(Protocol):
    """A table of any kind; a new kind of frame or file is a class with these."""

    @property
    def held(self) -> bool:
        """Whether the table is held in memory, so that its codes may be too; else it is read in batches."""

    @property
    def objects(self) -> bool:
        """Whether type null means objects, whose types are open; else no value of such a column is released."""

    @property
    def names(self) -> list[str]:
        """Column names, in order."""

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def text(self) -> str | None:
        """The description that a release carries, if the table is one."""

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return what is public about columns."""

    def person_counts(self, person: str, rows: int, key: bytes) -> npt.NDArray[np.uint8]:
        """Return how often each row is taken, so that there are so many of every person; see `persons.row_counts`."""

    def of_persons(self, person: str, counts: npt.NDArray[np.uint8]) -> Self:
        """Return a table with each row as often as is said, without the column that names persons."""

    def arrays(self, name: str) -> Iterable[pa.Array]:
        """Return one column as Arrow arrays."""

    def batches(self, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Yield columns in batches, as Arrow arrays; of columns without a type lists of objects."""

    def count(self, counters: Counters) -> None:
        """Add all rows of columns to a counter for each."""

    def codes(self, spaces: Mapping[str, Space], nulls: str, inferred: Collection[str] = ()) -> Codes:
        """Read every value of some columns, and return their codes if the table is held in memory.

        ``spaces``: the space of each column. ``nulls``: ``"error"`` or ``"impute"``: what a null in a space without
        nulls is. ``inferred``: columns whose spaces private inference gave: every value there has a code.

        Raises `ColumnError` for a column whose type does not fit its space, or a value that the space cannot hold.
        """
