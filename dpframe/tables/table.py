"""The interface of tables for planning and releases, and the base class of tables that are read in parts."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError
from dpframe.plan.plan import Plan
from dpframe.spaces import Space
from dpframe.spaces.field import Field, is_open
from dpframe.tables.types import output_type
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
    def names(self) -> list[str]:
        """Column names, in order."""

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def text(self) -> str | None:
        """The description that a release carries, if the table is one."""

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return the public fields of columns."""

    def person_counts(self, person: str, rows: int, key: bytes) -> npt.NDArray[np.uint8]:
        """Return how often each row is repeated, so that every person has ``rows`` rows; see `persons.row_counts`."""

    def of_persons(self, person: str, counts: npt.NDArray[np.uint8]) -> Self:
        """Return a table that repeats each row by its count, without the column of persons."""

    def arrays(self, name: str) -> Iterable[pa.Array]:
        """Return one column as Arrow arrays."""

    def batches(self, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Yield columns in batches, as Arrow arrays; columns without a type are lists of objects."""

    def count(self, counters: Counters) -> None:
        """Add all rows of columns to a counter for each."""

    def codes(self, spaces: Mapping[str, Space], nulls: str, inferred: Collection[str] = ()) -> Codes:
        """Read every value of columns, and return their codes if the table is in memory.

        ``spaces``: the space of each column. ``nulls``: ``"error"`` or ``"impute"``, for a null in a space without
        nulls. ``inferred``: columns with privately inferred spaces: every value there has a code.
        """


class Streamed(ABC):
    """A table that is read in parts."""

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
        """Return the public fields of columns."""

    def typed(self, spaces: Mapping[str, Space]) -> Self:
        """Return the table with the types of the columns' spaces, if the table has no types."""
        return self

    @abstractmethod
    def coded(self, spaces: Mapping[str, Space], rows: int) -> Iterator[Codes]:
        """Yield the codes of columns, about ``rows`` rows at a time.

        Raises `ColumnError` for a value without a code, with its position if rows have positions.
        """


ENGINES = {"dask": "dpframe.engines.dask", "pyspark": "dpframe.engines.spark"}
"""By the package of a frame, the module that works on it."""


LINKED_ENGINES = {"pyspark": "dpframe.engines.spark_linked"}
"""By the package of a frame, the module that links several of them."""


def engine_of(table: Any, modules: Mapping[str, str] = ENGINES) -> Any:
    """Return the module of a frame's engine; None for other tables."""
    # By the name of the type's package: an import of Dask or Spark is slow, and they may not be installed.
    module = modules.get(type(table).__module__.split(".")[0])
    return None if module is None else importlib.import_module(module)


def check_columns(names: Sequence[str], plan: Plan) -> None:
    """Raise `ColumnError` unless a table's columns are exactly the plan's columns."""
    plan_columns = [*plan.names, *plan.passthrough]
    for name in plan_columns:
        if name not in names:
            raise ColumnError(
                "is in the plan but not in the table; make the plan from this table",
                column=name,
            )
    for name in names:
        if name not in plan_columns and name not in plan.drop:
            raise ColumnError("is in the table but not in the plan; declare it, or pass drop=[…]", column=name)


def located(error: ColumnError, name: str, first_row: int = 0) -> ColumnError:
    """Return the error with the column's name and row position filled in."""
    return error.located(name, first_row) if error.column is None else error


def check_released_types(table: Table, plan: Plan) -> None:
    """Raise `ColumnError` for a column whose type cannot hold noisy values beyond its bounds."""
    widened_columns = [column.name for column in plan.columns if column.mechanism.releases_outside_bounds]
    for field in table.fields(widened_columns):
        try:
            if not is_open(field.type):
                plan[field.name].released.check_type(output_type(field.type))
        except ColumnError:
            raise ColumnError(
                f"has type {field.type}, too narrow for gaussian noise, which releases values beyond the bounds; "
                "convert the column to a wider type",
                column=field.name,
            ) from None


def check_types(fields: Sequence[Field], spaces: Mapping[str, Space]) -> None:
    """Raise `ColumnError` for a column whose type its space cannot hold."""
    for field in fields:
        try:
            spaces[field.name].check_type(output_type(field.type))
        except ColumnError as error:
            raise located(error, field.name) from None
