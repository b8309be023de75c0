"""Tables of any kind become Arrow columns here, and come back as their own kind.

Nothing of the input reaches the output but names and types: no index, attrs, metadata or dictionary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_object_dtype

from dpframe.errors import ColumnError, ParameterError
from dpframe.infer import Field
from dpframe.plan import Plan
from dpframe.release import METADATA_KEY, arrow_metadata, metadata_text
from dpframe.spaces import Space, as_arrow

__all__ = ["Frame", "check_columns", "located", "output_type", "release_text", "wrap"]

Order = npt.NDArray[np.intp] | None

_MOST_CATEGORIES = 1_000_000
"""More than these a pandas categorical column is not given."""


def output_type(type_: pa.DataType) -> pa.DataType:
    """Return the type released values are given: the column's own, with dictionaries indexed by int32.

    The width of a dictionary's index follows the number of categories observed, so it is not kept.
    """
    if pa.types.is_dictionary(type_):
        return pa.dictionary(pa.int32(), type_.value_type, ordered=type_.ordered)
    return type_


def check_columns(names: Sequence[str], plan: Plan) -> None:
    """Raise `ColumnError` unless a table's columns are exactly those the plan speaks of."""
    planned = [*plan.names, *plan.passthrough]
    for name in planned:
        if name not in names:
            raise ColumnError("is in the plan but not in the table; make the plan from this table", column=name)
    for name in names:
        if name not in planned and name not in plan.drop:
            raise ColumnError("is in the table but not in the plan; declare it, or pass drop=[…]", column=name)


def located(error: ColumnError, name: str, first_row: int = 0) -> ColumnError:
    """Return the error with the column's name and row position filled in."""
    return error.located(name, first_row) if error.column is None else error


class Frame(ABC):
    """A table of one kind, read column by column."""

    kind: str

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Column names, in order."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of rows."""

    @property
    @abstractmethod
    def text(self) -> str | None:
        """The description that a release carries, if the table is one."""

    @abstractmethod
    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return what is public about columns."""

    @abstractmethod
    def array(self, name: str) -> pa.Array:
        """Return a column as one Arrow array."""

    @abstractmethod
    def rebuild(self, plan: Plan, codes: Mapping[str, Any], order: Order, text: str) -> Any:
        """Return released codes, decoded, beside the columns passed through, as a table of this kind."""

    def encode(self, name: str, space: Space, nulls: str) -> npt.NDArray[np.unsignedinteger]:
        """Return a column's codes."""
        try:
            array = self.array(name)
            space.check_type(output_type(self.fields([name])[0].type))
            return space.encode(array, nulls=nulls)
        except ColumnError as error:
            raise located(error, name) from None

    def output_names(self, plan: Plan) -> list[str]:
        """Return the names of the output's columns, in the table's order."""
        kept = {*plan.names, *plan.passthrough}
        return [name for name in self.names if name in kept]


class ArrowFrame(Frame):
    """A `pyarrow.Table`, or anything that speaks the Arrow C stream and was read into one."""

    kind = "arrow"

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self.table.column_names)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def text(self) -> str | None:
        """The description that a release carries."""
        return metadata_text(self.table.schema.metadata)

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return what is public about columns."""
        return [Field(f.name, f.type, f.nullable) for f in map(self.table.schema.field, names)]

    def array(self, name: str) -> pa.Array:
        """Return a column as one Arrow array."""
        return as_arrow(self.table.column(name))

    def rebuild(self, plan: Plan, codes: Mapping[str, Any], order: Order, text: str) -> pa.Table:
        """Return a Table with fresh metadata."""
        columns, fields = [], []
        for name in self.output_names(plan):
            field = self.table.schema.field(name)
            if name in codes:
                space = plan[name].space
                released = codes[name] if order is None else codes[name][order]
                array = space.decode(released, output_type(field.type))
                fields.append(pa.field(name, array.type, nullable=field.nullable or space.tag == "nullable"))
            else:
                array = _copied(self.table.column(name), order)
                fields.append(pa.field(name, array.type, nullable=field.nullable))
            columns.append(array)
        return pa.table(columns, schema=pa.schema(fields, metadata=arrow_metadata(text)))


def _copied(column: pa.ChunkedArray, order: Order) -> Any:
    """Return a column that is passed through, in the output's order and with nothing of the input's order."""
    type_ = column.type
    if pa.types.is_dictionary(type_) and not type_.ordered:
        # Entries stand in the order in which the input met them, those of absent rows included.
        plain = _copied(column.cast(type_.value_type), order)
        return plain.dictionary_encode()
    if order is None:
        return column
    if pa.types.is_string_view(type_):  # Arrow cannot take from views
        return column.cast(pa.large_string()).take(pa.array(order)).cast(type_)
    return column.take(pa.array(order))


class PolarsFrame(ArrowFrame):
    """A polars DataFrame; polars keeps no metadata, so attach the plan to estimate."""

    kind = "polars"

    def __init__(self, table: pa.Table, schema: Any) -> None:
        super().__init__(table)
        self.schema = schema

    def rebuild(self, plan: Plan, codes: Mapping[str, Any], order: Order, text: str) -> Any:
        """Return a polars DataFrame."""
        import polars as pl

        frame = pl.from_arrow(super().rebuild(plan, codes, order, text))
        assert isinstance(frame, pl.DataFrame)
        # In Arrow an Enum is a dictionary like any other; its categories are those declared.
        declared = {name: plan[name].space.labels() for name in codes if isinstance(self.schema[name], pl.Enum)}
        enums = {name: pl.Enum([label for label in labels if label is not None]) for name, labels in declared.items()}
        return frame.cast(enums)  # type: ignore[arg-type]


class PandasFrame(Frame):
    """A pandas DataFrame; every dtype arrives as Arrow and comes back as it was."""

    kind = "pandas"

    def __init__(self, frame: pd.DataFrame) -> None:
        for name in frame.columns:
            if not isinstance(name, str):
                raise ParameterError(
                    f"column names must be strings, one level; rename {type(name).__name__} names with "
                    "df.rename(columns=str)"
                )
        self.frame = frame

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self.frame.columns)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.frame)

    @property
    def text(self) -> str | None:
        """The description that a release carries in ``attrs``."""
        return release_text(self.frame)

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Return what is public about columns; the content of an object column is not."""
        return [self._field(name) for name in names]

    def _field(self, name: str) -> Field:
        dtype = self.frame[name].dtype
        if is_object_dtype(dtype):
            return Field(name, pa.null(), True)
        if isinstance(dtype, pd.CategoricalDtype) and not len(dtype.categories):
            # pandas makes this of a column without values, whatever they would have been.
            return Field(name, pa.null(), True)
        # The dtype alone decides: an empty slice has it, and nothing else.
        empty = self.frame[name].iloc[:0]
        try:
            type_ = pa.array(empty, from_pandas=True).type
        except (pa.ArrowException, TypeError, ValueError):
            raise ColumnError(f"has dtype {dtype}, which is not supported; pass drop=[…]", column=name) from None
        return Field(name, type_, not (isinstance(dtype, np.dtype) and dtype.kind in "biu"))

    def array(self, name: str) -> pa.Array:
        """Return a column as one Arrow array; NaN is null."""
        series = self.frame[name]
        if isinstance(series.dtype, pd.CategoricalDtype) and not len(series.dtype.categories):
            return pa.nulls(len(series))
        return as_arrow(series)

    def encode(self, name: str, space: Space, nulls: str) -> npt.NDArray[np.unsignedinteger]:
        """Return a column's codes; numbers in an object column may be whole without being Integer."""
        field = self.fields([name])[0]
        if isinstance(self.frame[name].dtype, pd.CategoricalDtype) and space.size > _MOST_CATEGORIES:
            raise ColumnError(
                "is categorical, with more values than can be listed; convert the column to numbers", column=name
            )
        if not field.nullable and "nullable" in space.tag:
            dtype = self.frame[name].dtype
            raise ColumnError(
                f"has dtype {dtype}, which holds no nulls, but a Nullable space; declare the inner space, or "
                "convert_dtypes() first",
                column=name,
            )
        try:
            array = self.array(name)
            if not pa.types.is_null(field.type):
                space.check_type(output_type(field.type))
            elif pa.types.is_integer(array.type) and pa.types.is_floating(space.natural_type):
                # Safe casting would refuse, and quote, what floats cannot hold; the grid is coarser anyway.
                array = array.cast(pa.float64(), safe=False)
            return space.encode(array, nulls=nulls)
        except ColumnError as error:
            raise located(error, name) from None

    def rebuild(self, plan: Plan, codes: Mapping[str, Any], order: Order, text: str) -> pd.DataFrame:
        """Return a DataFrame with a fresh index, and the plan in ``attrs``."""
        data = {}
        index = pd.RangeIndex(self.n, name="shuffled" if plan.shuffle else None)
        for name in self.output_names(plan):
            series = self.frame[name]
            if name in codes:
                released = codes[name] if order is None else codes[name][order]
                data[name] = _restore(plan[name].space, released, series.dtype, index)
            else:
                data[name] = series.take(range(self.n) if order is None else order).set_axis(index)
        out = pd.DataFrame(data, index=index)
        out.attrs = {METADATA_KEY: text}
        return out


def _restore(space: Space, codes: Any, dtype: Any, index: pd.Index) -> pd.Series:
    """Decode codes into a Series of the dtype a column had."""
    if isinstance(dtype, pd.CategoricalDtype):
        labels = space.labels()
        values = codes.astype(np.int64)
        if labels[-1] is None:
            labels, values = labels[:-1], np.where(values == len(labels) - 1, -1, values)
        return pd.Series(pd.Categorical.from_codes(values, labels, ordered=dtype.ordered), index=index)  # type: ignore[call-overload]
    if is_object_dtype(dtype):
        # Decoded by the space alone: what type the values had is not in the schema.
        natural = space.natural_type
        plain = natural.value_type if pa.types.is_dictionary(natural) else natural
        objects = np.empty(len(codes), dtype=object)
        objects[:] = space.decode(codes, plain).to_pylist()
        return pd.Series(objects, index=index, dtype=object)
    if isinstance(dtype, pd.ArrowDtype):
        array = space.decode(codes, output_type(dtype.pyarrow_dtype))
        return pd.Series(pd.arrays.ArrowExtensionArray(array), index=index)
    type_ = pa.array(pd.Series([], dtype=dtype), from_pandas=True).type
    array = space.decode(codes, type_)
    if hasattr(dtype, "__from_arrow__"):
        return pd.Series(dtype.__from_arrow__(pa.chunked_array([array])), index=index)
    series: pd.Series[Any] = pd.Series(array.to_pandas(), dtype=dtype)
    series.index = index
    return series


def release_text(frame: pd.DataFrame) -> str | None:
    """Return the description in ``attrs`` of a DataFrame, if there is one."""
    found = frame.attrs.get(METADATA_KEY)
    return found if isinstance(found, str) else None


def wrap(table: Any) -> Frame:
    """Return a table of any kind as a `Frame`.

    Raises
    ------
    ParameterError
        If it is no table, or its column names are not unique strings.
    """
    frame = _wrap(table)
    names = frame.names
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise ParameterError(f"column name {twice!r} appears twice; names must be unique")
    return frame


def _wrap(table: Any) -> Frame:
    if isinstance(table, pd.DataFrame):
        return PandasFrame(table)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        return ArrowFrame(table)
    try:
        arrow = pa.table(table) if hasattr(table, "__arrow_c_stream__") else None
    except pa.ArrowInvalid:  # the stream is of single values, as of a polars Series
        arrow = None
    if arrow is None:
        raise ParameterError(
            f"{type(table).__name__} is no table; pass a pandas or polars DataFrame (collect() a LazyFrame), a "
            "pyarrow Table, or anything with __arrow_c_stream__"
        )
    if type(table).__module__.split(".")[0] == "polars":
        return PolarsFrame(arrow, table.schema)
    return ArrowFrame(arrow)
