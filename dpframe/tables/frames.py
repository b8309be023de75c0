"""Tables of any kind become Arrow columns here, and come back as their own kind.

Nothing of the input reaches the output but names and types: no index, attrs, metadata or dictionary.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from dpframe.errors import ColumnError, ParameterError
from dpframe.noise.keystream import U64
from dpframe.plan.plan import Plan
from dpframe.spaces import Space, as_arrow
from dpframe.spaces.columns import elements
from dpframe.spaces.entries import Entries
from dpframe.spaces.field import Field
from dpframe.spaces.object_reading import read_as
from dpframe.tables.metadata import METADATA_KEY, arrow_metadata, keep_text, kept_text, metadata_text
from dpframe.tables.persons import row_counts
from dpframe.tables.table import SHUFFLED, Codes, Counters, Spaces, located
from dpframe.tables.types import (
    Order,
    as_coded,
    coded_field,
    copied,
    decode_as,
    has_dictionary,
    is_text,
    output_type,
    passed,
)
from dpframe.totals.counts import count_batches

_MAX_CATEGORIES = 1_000_000
"""Limit on the categories of a pandas categorical column."""


class Frame(ABC):
    """A table of one kind, read column by column."""

    kind: str
    held: ClassVar[bool] = True
    index_names: Sequence[Any] = ()
    """Names of a frame's index levels; files and engines have none."""
    checked_rows: ClassVar[int] = 1 << 18
    indices: ClassVar[tuple[str, ...]] = ()

    chosen: tuple[Frame, npt.NDArray[np.intp]] | None = None
    """The table that rows were chosen from, and their places."""
    origin: U64 | None = None
    """The places of that table's rows in a larger one."""

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
        """Return the public fields of columns."""

    @abstractmethod
    def array(self, name: str) -> pa.Array:
        """Return a column as one Arrow array."""

    def arrays(self, name: str) -> Iterator[pa.Array]:
        """Yield a column as one Arrow array."""
        yield self.array(name)

    def texts(self, name: str) -> Iterator[pa.Array]:
        """Yield a column of objects as text: its words, and its numbers as text; null for all others."""
        yield self.array(name).cast(pa.string())

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield all rows as one batch of Arrow arrays, and lists of objects for object columns."""
        yield {name: self.array(name) for name in names}

    def typed(self, spaces: Mapping[str, Space], inferred: Collection[str] = ()) -> Self:
        """Return the table itself, which already has types."""
        return self

    def count(self, counters: Counters) -> None:
        """Add all rows of columns to a counter for each."""
        count_batches(self.batches, counters)

    def person_counts(self, person: str, rows: int, key: bytes) -> npt.NDArray[np.uint8]:
        """Return how often each row is repeated, so that every person has ``rows`` rows."""
        return row_counts(partial(self.arrays, person), self.n, rows, key)

    def of_persons(self, person: str, counts: npt.NDArray[np.uint8]) -> Self:
        """Return a table that repeats each row by its count, without the column of persons."""
        rows = np.repeat(np.arange(self.n), counts)
        frame = self._select_rows(rows, person)
        frame.chosen = self, rows
        return frame

    @abstractmethod
    def first(self, rows: int) -> Self:
        """Return the first rows, at most ``rows``."""

    @abstractmethod
    def _select_rows(self, rows: npt.NDArray[np.intp], without: str) -> Self:
        """Return the rows at these positions, with repeats, without one column."""

    @abstractmethod
    def rebuild(self, plan: Plan, spaces: Spaces, codes: Mapping[str, Any], order: Order, text: str) -> Any:
        """Return codes as values of some spaces, with the columns passed through, as a table of this kind."""

    @abstractmethod
    def emptied(self, table: Any, names: Collection[str]) -> Any:
        """Return a table of this kind whose columns of these names are null."""

    def codes(self, spaces: Mapping[str, Space], nulls: str, inferred: Collection[str] = ()) -> Codes:
        """Return the codes of columns, in the order of their spaces; see `Table.codes`.

        Rows that were not chosen are read as well: an error reveals nothing of the choice.
        """
        if self.chosen is not None:
            source_frame, rows = self.chosen
            return {name: codes[rows] for name, codes in source_frame.codes(spaces, nulls, inferred).items()}
        return {
            name: self.encode(name, space, "impute" if name in inferred else nulls, name in inferred)
            for name, space in spaces.items()
        }

    def encode(self, name: str, space: Space, nulls: str, tolerant: bool = False) -> npt.NDArray[np.unsignedinteger]:
        """Return a column's codes; a tolerant column reads values outside the space as null."""
        try:
            array = self.array(name)
            space.check_type(output_type(self.fields([name])[0].type))
            return space.encode(array, nulls=nulls, tolerant=tolerant)
        except ColumnError as error:
            raise located(error, name) from None

    def output_names(self, plan: Plan) -> list[str]:
        """Return the names of the output's columns, in the table's order."""
        released_names = {*plan.names, *plan.passthrough}
        return [name for name in self.names if name in released_names]


class ArrowFrame(Frame):
    """A `pyarrow.Table`, also one that was read from an Arrow C stream."""

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
        """Return the public fields of columns."""
        return [coded_field(f.name, f.type, f.nullable) for f in map(self.table.schema.field, names)]

    def array(self, name: str) -> pa.Array:
        """Return a column as one Arrow array."""
        return as_coded(as_arrow(self.table.column(name)))

    def first(self, rows: int) -> Self:
        """Return the first rows, at most ``rows``."""
        frame = copy(self)
        frame.table = self.table.slice(0, rows)
        return frame

    def _select_rows(self, rows: npt.NDArray[np.intp], without: str) -> Self:
        frame, table = copy(self), without_views(self.table.drop_columns([without]))
        # Arrow takes rows of dictionaries that it can unite.
        columns = [as_arrow(part) if has_dictionary(part.type) else part for part in table.columns]
        fields = [field.with_type(part.type) for field, part in zip(table.schema, columns, strict=True)]
        frame.table = pa.Table.from_arrays([part.take(pa.array(rows)) for part in columns], schema=pa.schema(fields))
        return frame

    def rebuild(self, plan: Plan, spaces: Spaces, codes: Mapping[str, Any], order: Order, text: str) -> pa.Table:
        """Return a Table with fresh metadata."""
        columns, fields = [], []
        for name in self.output_names(plan):
            field = self.table.schema.field(name)
            if name in codes:
                space = spaces[name]
                released_codes = codes[name] if order is None else codes[name].take(order, axis=0)
                array = decode_as(space, released_codes, field.type)
                fields.append(pa.field(name, array.type, nullable=field.nullable or space.has_null))
            else:
                column = self.table.column(name)
                if not (pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type)):
                    # Arrow cannot take rows of lists and dictionaries of views.
                    column = column.cast(_type_without_views(column.type))
                array = copied(column, order)
                fields.append(pa.field(name, array.type, nullable=field.nullable))
            columns.append(array)
        return pa.table(columns, schema=pa.schema(fields, metadata=arrow_metadata(text)))

    def emptied(self, table: Any, names: Collection[str]) -> Any:
        """Return a Table whose columns of these names are null."""
        for name in names:
            place = table.schema.get_field_index(name)
            field = table.schema.field(place).with_nullable(True)
            table = table.set_column(place, field, pa.nulls(table.num_rows, field.type))
        return table


class BatchFrame(ArrowFrame):
    """A `pyarrow.RecordBatch`."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__(pa.Table.from_batches([batch]))

    def rebuild(self, plan: Plan, spaces: Spaces, codes: Mapping[str, Any], order: Order, text: str) -> pa.RecordBatch:
        """Return a RecordBatch with fresh metadata."""
        return _to_record_batch(super().rebuild(plan, spaces, codes, order, text))

    def emptied(self, table: Any, names: Collection[str]) -> Any:
        """Return a RecordBatch whose columns of these names are null."""
        return _to_record_batch(super().emptied(pa.Table.from_batches([table]), names))


def _to_record_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


def _type_without_views(type_: pa.DataType) -> pa.DataType:
    """Return a type without views: short texts leave views without data, on which polars crashes before pyarrow 26."""
    if pa.types.is_large_list(type_):
        return pa.large_list(type_.value_field.with_type(_type_without_views(type_.value_type)))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_type_without_views(type_.value_type)))
    if pa.types.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _type_without_views(type_.value_type), type_.ordered)
    if pa.types.is_string_view(type_):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(type_) else type_


def without_views(table: pa.Table) -> pa.Table:
    """Return a table without view types, as Arrow cannot select rows of views."""
    return table.cast(pa.schema([field.with_type(_type_without_views(field.type)) for field in table.schema]))


class PolarsFrame(ArrowFrame):
    """A polars DataFrame; polars has no metadata, so only the release's own frame object has a plan."""

    kind = "polars"

    def __init__(self, table: pa.Table, frame: Any) -> None:
        text = kept_text(frame)
        super().__init__(table if text is None else table.replace_schema_metadata(arrow_metadata(text)))
        self.schema = frame.schema

    def rebuild(self, plan: Plan, spaces: Spaces, codes: Mapping[str, Any], order: Order, text: str) -> Any:
        """Return a polars DataFrame."""
        import polars as pl

        table = super().rebuild(plan, spaces, codes, order, text)
        frame = pl.from_arrow(without_views(table))
        assert isinstance(frame, pl.DataFrame)
        # In Arrow an Enum is a dictionary like any other; its categories are those declared.
        enums: Any = {}
        for name in codes:
            space, dtype = spaces[name], self.schema[name]
            if isinstance(dtype, pl.Enum):
                enums[name] = pl.Enum([label for label in space.labels() if label is not None])
            elif isinstance(getattr(dtype, "inner", None), pl.Enum):
                items: Any = space.inner_space
                enums[name] = pl.List(pl.Enum(items.listed.labels()))
        release_frame = frame.cast(enums)
        # After the cast, which makes a new object: descriptions of polars frames belong to one object.
        keep_text(release_frame, text)
        return release_frame

    def emptied(self, table: Any, names: Collection[str]) -> Any:
        """Return a polars DataFrame whose columns of these names are null."""
        import polars as pl

        null_frame = table.with_columns([pl.lit(None, dtype=table.schema[name]).alias(name) for name in names])
        if (text := kept_text(table)) is not None:
            keep_text(null_frame, text)
        return null_frame


_CONVERSIONS: Mapping[type, str] = {
    pd.PeriodDtype: "convert it with .dt.to_timestamp(), or with .astype(str) for categories",
    pd.IntervalDtype: "convert it with .astype(str) for categories, or take the middle, pd.arrays.IntervalArray(…).mid",
}
"""Remedies for dtypes that are not coded."""


class PandasFrame(Frame):
    """A pandas DataFrame; every dtype arrives as Arrow and comes back as it was."""

    kind = "pandas"

    def __init__(self, frame: pd.DataFrame) -> None:
        for name in frame.columns:
            if not isinstance(name, str):
                raise ParameterError(
                    f"column names must be strings, one level; rename {type(name).__name__} names with "
                    "df.set_axis(map(str, df.columns), axis=1)"
                )
        self.frame = frame
        self.index_names = tuple(frame.index.names)

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
        """Return the public fields of columns; the content of an object column is secret."""
        return [self._field(name) for name in names]

    def _coded_column(self, name: str) -> pd.Series[Any]:
        """Return a column in the form for coding: sparse values as dense ones, intervals as text."""
        series: Any = self.frame[name]
        column: pd.Series[Any] = series
        if isinstance(series.dtype, pd.SparseDtype):
            # Pandas' own conversion chooses between text and objects by the values.
            column = pd.Series(series.sparse.to_dense().to_numpy(), index=series.index, dtype=series.dtype.subtype)
        elif _is_category_of_intervals(series.dtype):
            # Unordered: pandas usually computes the bounds from the data, so inference treats them as unknown.
            texts = pd.Index(list(map(str, series.dtype.categories)), dtype="string")
            column = series.cat.rename_categories(texts).cat.as_unordered()
        return column

    def _field(self, name: str) -> Field:
        dtype: Any = self._coded_column(name).dtype
        if isinstance(dtype, pd.CategoricalDtype):
            # The entries and their dtype are no fact of the schema, except for an order of text.
            words = read_as(dtype.categories.tolist(), pa.string())
            has_ranks = dtype.ordered and words.null_count < len(words)
            order = self._entries(name).texts().dictionary.drop_null().to_pylist() if has_ranks else ()
            type_ = pa.dictionary(pa.int32(), pa.null(), ordered=bool(dtype.ordered))
            return Field(name, type_, True, tuple(order), listed=True)
        if _is_open(dtype):
            return Field(name, pa.null(), True)
        remedy = _CONVERSIONS.get(type(dtype))
        if remedy is not None:
            raise ColumnError(f"has dtype {dtype}, which has no space; {remedy}, or pass drop=[…]", column=name)
        type_ = _arrow_type(dtype)
        if type_ is None:
            raise ColumnError(f"has dtype {dtype}, which is not supported; pass drop=[…]", column=name)
        # NumPy's booleans and whole numbers cannot hold nulls.
        return coded_field(name, type_, not (isinstance(dtype, np.dtype) and dtype.kind in "biu"))

    def array(self, name: str) -> pa.Array:
        """Return a column as one Arrow array; NaN is null."""
        return as_coded(self._read_array(name))

    def arrays(self, name: str) -> Iterator[pa.Array]:
        """Yield a column as one Arrow array; times of day in object columns stay times, as no type marks them."""
        array = self._read_array(name)
        yield array if _is_open(self._coded_column(name).dtype) else as_coded(array)

    def texts(self, name: str) -> Iterator[pa.Array]:
        """Yield a column of objects as text: its words, and its numbers as text; null for all others."""
        yield Entries(self._list_objects(name), np.arange(self.n)).texts()

    def _read_array(self, name: str) -> pa.Array:
        series = self._coded_column(name)
        if isinstance(series.dtype, pd.StringDtype) and series.dtype.storage == "python":
            # Its strings may hold lone surrogates, which Arrow refuses: a refusal would reveal one row.
            series = series.map(lambda text: text.encode("utf-8", "replace").decode(), na_action="ignore")
        return as_arrow(list(series) if _is_open(series.dtype) else series)

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield all rows as one batch of Arrow arrays, and lists of objects for object columns."""
        yield {name: self._batch_values(name) for name in names}

    def _batch_values(self, name: str) -> Any:
        dtype: Any = self.frame[name].dtype
        if isinstance(dtype, pd.CategoricalDtype):
            entries = self._entries(name)
            return entries.texts() if self._field(name).order else entries
        return self._list_objects(name) if _is_open(dtype) else self.array(name)

    def _list_objects(self, name: str) -> list[Any]:
        """Return the objects of a column."""
        objects: list[Any] = self.frame[name].to_numpy(dtype=object).tolist()
        return objects

    def _entries(self, name: str) -> Entries:
        """Return a categorical column as entries and their numbers."""
        column = self._coded_column(name).cat
        is_float32 = column.categories.dtype == np.dtype(np.float32)  # its floats are those written so in short
        categories = [*column.categories.to_numpy()] if is_float32 else column.categories.tolist()
        return Entries(list(map(_normalise_entry, categories)), np.asarray(column.codes))

    def encode(self, name: str, space: Space, nulls: str, tolerant: bool = False) -> npt.NDArray[np.unsignedinteger]:
        """Return a column's codes; object columns are coded value by value."""
        field = self.fields([name])[0]
        if field.listed and space.size > _MAX_CATEGORIES:
            raise ColumnError(
                "is categorical, with more values than can be listed; convert the column to numbers", column=name
            )
        if field.listed and space.code_words:
            raise ColumnError(
                f"is categorical, and {space.noun} cannot be; convert the column with astype(object)", column=name
            )
        try:
            if tolerant and field.order:
                return space.encode(_replace_by_nearest(self._entries(name), space), nulls=nulls)
            if field.listed:
                return space.encode(self._entries(name), nulls=nulls, tolerant=tolerant)
            if _is_open(self.frame[name].dtype):
                return space.encode(self._list_objects(name), nulls=nulls, tolerant=tolerant)
            space.check_type(output_type(field.type))
            return space.encode(self.array(name), nulls=nulls, tolerant=tolerant)
        except ColumnError as error:
            raise located(error, name) from None

    def first(self, rows: int) -> Self:
        """Return the first rows, at most ``rows``."""
        return type(self)(self.frame.iloc[:rows])

    def _select_rows(self, rows: npt.NDArray[np.intp], without: str) -> Self:
        return type(self)(self.frame.drop(columns=without).iloc[rows])

    def rebuild(self, plan: Plan, spaces: Spaces, codes: Mapping[str, Any], order: Order, text: str) -> pd.DataFrame:
        """Return a DataFrame with a fresh index, unless the plan keeps the input's, and the plan in ``attrs``."""
        data = {}
        rows = self.n if order is None else len(order)
        index: pd.Index = pd.RangeIndex(rows, name=SHUFFLED if plan.shuffle else None)
        if plan.keeps_index:
            index = self.frame.index if order is None else self.frame.index[order]
        for name in self.output_names(plan):
            series = self.frame[name]
            if name in codes:
                released_codes = codes[name] if order is None else codes[name].take(order, axis=0)
                dtype = _to_nullable_dtype(series.dtype) if spaces[name].has_null else series.dtype
                if spaces[name].has_words and not _holds_text(dtype):
                    dtype = np.dtype(object)
                data[name] = _restore(spaces[name], released_codes, dtype, index)
            else:
                data[name] = passed(series, order).set_axis(index)
        out = pd.DataFrame(data, index=index)
        out.attrs = {METADATA_KEY: text}
        return out

    def emptied(self, table: Any, names: Collection[str]) -> Any:
        """Return a DataFrame whose columns of these names are null."""
        for name in names:
            # An assignment of None would turn the column into objects; `where` keeps a dtype that holds nulls.
            table[name] = table[name].where(np.zeros(len(table), dtype=np.bool_))
        return table


def _normalise_entry(entry: Any) -> Any:
    """Return an entry regardless of pandas' storage: whole floats as integers, intervals as text."""
    if type(entry) in (float, np.float64, np.float32):
        return int(entry) if entry.is_integer() else entry
    return str(entry) if type(entry) is pd.Interval else entry


def _replace_by_nearest(column: Entries, space: Space) -> pa.Array:
    """Return an ordered column, with entries outside the ranks replaced by the nearest rank.

    Only text is a declaration. Which numbers are entries follows the rows, as in partly labelled scales: a number lies
    halfway between the words beside it, however many others do.
    """
    texts, is_word = column.texts(), np.asarray(read_as(column.listed, pa.string()).is_valid())
    order, places = texts.dictionary.to_pylist(), np.cumsum(is_word) + 0.5 * ~is_word
    declared_labels = {label for label in space.labels() if label is not None} if "line" in space.metric else set()
    ranks = [place for place, entry in enumerate(order) if entry in declared_labels]
    if not ranks:
        return texts
    nearest = np.abs(np.subtract.outer(places, places[ranks])).argmin(axis=1)
    neighbours = [None if entry is None else order[ranks[at]] for entry, at in zip(order, nearest, strict=True)]
    # A rank replaces no other rank, even if two have equal places.
    entries = [
        entry if entry in declared_labels else neighbour for entry, neighbour in zip(order, neighbours, strict=True)
    ]
    return pa.DictionaryArray.from_arrays(texts.indices, pa.array(entries, pa.string()))


def _is_category_of_intervals(dtype: Any) -> bool:
    """Return whether a dtype is categorical with intervals, as from `pandas.cut`, whose texts are distinct."""
    if not isinstance(dtype, pd.CategoricalDtype) or not isinstance(dtype.categories.dtype, pd.IntervalDtype):
        return False
    return len(set(map(str, dtype.categories))) == len(dtype.categories)


def _is_open(dtype: Any) -> bool:
    """Return whether a dtype leaves the types of values open, so that values are read one by one."""
    # Pandas converts a column without values to a categorical without entries.
    is_empty = isinstance(dtype, pd.CategoricalDtype) and not len(dtype.categories)
    # Arrow's types determine the values; pandas cannot make an empty column of dictionaries of nulls.
    return is_empty or (not isinstance(dtype, pd.ArrowDtype) and elements(pd.Series([], dtype=dtype)) is not None)


def _arrow_type(dtype: Any) -> pa.DataType | None:
    """Return the Arrow type of an empty column of a dtype; None if Arrow has no such type."""
    if isinstance(dtype, pd.ArrowDtype):
        return dtype.pyarrow_dtype
    try:
        return pa.array(pd.Series([], dtype=dtype), from_pandas=True).type
    except (pa.ArrowException, TypeError, ValueError):
        return None


def _holds_text(dtype: Any) -> bool:
    """Return whether a dtype holds words: text, categories and objects."""
    if isinstance(dtype, pd.CategoricalDtype) or _is_open(dtype):
        return True
    type_ = _arrow_type(dtype)
    return type_ is not None and is_text(type_)


def _to_nullable_dtype(dtype: Any) -> Any:
    """Return a dtype that can hold nulls: pandas' masked dtype for NumPy's integers and booleans.

    >>> [str(_to_nullable_dtype(np.dtype(name))) for name in ("int32", "bool", "float64")]
    ['Int32', 'boolean', 'float64']
    """
    dense_dtype = getattr(dtype, "subtype", dtype) if isinstance(dtype, pd.SparseDtype) else dtype
    holds_none = isinstance(dense_dtype, np.dtype) and dense_dtype.kind in "biu"
    return pd.Series([], dtype=dense_dtype).convert_dtypes().dtype if holds_none else dtype


def _restore(space: Space, codes: Any, dtype: Any, index: pd.Index) -> pd.Series:
    """Decode codes into a Series of the dtype a column had."""
    if isinstance(dtype, pd.SparseDtype):
        return _restore(space, codes, dtype.subtype, index).astype(dtype)
    if isinstance(dtype, pd.CategoricalDtype):
        labels: Any = space.labels()
        values = codes.astype(np.min_scalar_type(-len(labels)))  # as narrow as pandas' own
        if labels[-1] is None:
            labels = labels[:-1]
            values[values == len(labels)] = -1
        is_ordered = dtype.ordered and (not _is_category_of_intervals(dtype) or "line" in space.metric)
        return pd.Series(pd.Categorical.from_codes(values, labels, ordered=bool(is_ordered)), index=index)
    if _is_open(dtype):
        # Decoded only by the space: the schema has no type of the values.
        objects: pd.Series[Any] = pd.Series(space.objects(codes), index=index, dtype=dtype)
        return objects
    if isinstance(dtype, pd.ArrowDtype):
        type_ = dtype.pyarrow_dtype
        array = decode_as(space, codes, type_)
        return pd.Series(pd.arrays.ArrowExtensionArray(array), index=index)
    array = space.decode(codes, _arrow_type(dtype))
    if hasattr(dtype, "__from_arrow__"):
        extension_series: pd.Series[Any] = pd.Series(dtype.__from_arrow__(pa.chunked_array([array])), index=index)
        return extension_series
    series: pd.Series[Any] = pd.Series(array.to_pandas(), dtype=dtype)
    # An `index=` of the constructor would align the values by label and not by position.
    series.index = index
    return series


def release_text(frame: pd.DataFrame) -> str | None:
    """Return the description in ``attrs`` of a DataFrame, if there is one."""
    text = frame.attrs.get(METADATA_KEY)
    return text if isinstance(text, str) else None


def wrap(table: Any) -> Frame:
    """Return a table of any kind as a `Frame`.

    Raises `ParameterError` if it is no table, or its column names are not unique strings that are not empty.
    """
    module = type(table).__module__.split(".")[0]
    frame: Frame | None = None
    if isinstance(table, pd.DataFrame):
        frame = PandasFrame(table)
    elif isinstance(table, pa.RecordBatch):
        frame = BatchFrame(table)
    elif isinstance(table, pa.Table):
        frame = ArrowFrame(table)
    else:
        # Of a LazyFrame nothing is known before; a stream may be of single values, as of a polars Series.
        table = table.collect() if module == "polars" and hasattr(table, "collect") else table
        arrow: pa.Table | None = None
        with contextlib.suppress(pa.ArrowInvalid):
            arrow = pa.table(table) if hasattr(table, "__arrow_c_stream__") else None
        if arrow is not None:
            frame = PolarsFrame(arrow, table) if module == "polars" else ArrowFrame(arrow)
    if frame is None:
        raise ParameterError(
            f"{type(table).__name__} is no table; pass a pandas DataFrame, a polars DataFrame or LazyFrame, a "
            "pyarrow Table, or anything with __arrow_c_stream__"
        )
    names = frame.names
    if "" in names:
        raise ParameterError("a column has an empty name; rename it")
    duplicate_name = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if duplicate_name is not None:
        raise ParameterError(f"column name {duplicate_name!r} appears twice; names must be unique")
    return frame
