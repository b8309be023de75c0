"""Arrow types, as they come in, as they are coded and as they leave.

Times of day are coded as the time since midnight. Decimals are coded as floats, on a grid of their last digit or of
whole multiples of that digit, so that released values are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.spaces import Space, as_arrow
from dpframe.spaces.field import Field, is_open

_EXACT_DIGITS = 18
"""Limit on the digits of whole numbers in 64 bits; longer numbers become floats."""
_TICKS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def is_text(type_: pa.DataType) -> bool:
    """Return whether values are strings, whose declared values are read as dictionaries and never row by row."""
    t = pa.types
    return bool(t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_))


def is_list(type_: pa.DataType) -> bool:
    """Return whether values are lists, of variable or fixed size."""
    t = pa.types
    return bool(t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_))


def has_dictionary(type_: pa.DataType) -> bool:
    """Return whether a type is a dictionary or contains one."""
    return bool(pa.types.is_dictionary(type_)) or nests_dictionary(type_)


def nests_dictionary(type_: pa.DataType) -> bool:
    """Return whether a type contains dictionaries."""
    inner_types = [type_.field(i).type for i in range(type_.num_fields)]
    return any(map(has_dictionary, inner_types))


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type by which a column is copied: no dictionary, no view, no metadata of inner fields.

    A dictionary reveals the order of the input's values, and values of removed rows; Arrow
    cannot reorder views. An ordered dictionary stays: its order has a meaning.
    """
    t = pa.types
    if t.is_dictionary(type_):
        return type_ if type_.ordered else plain_type(type_.value_type)
    if t.is_string_view(type_):
        return pa.string()
    if t.is_binary_view(type_):
        return pa.binary()
    if t.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if t.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field), type_.keys_sorted)
    if t.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    if t.is_list(type_):
        return pa.list_(_plain_field(type_.value_field))
    if t.is_large_list(type_):
        return pa.large_list(_plain_field(type_.value_field))
    return type_


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type), field.nullable)


def output_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of released values: the column's type, with dictionaries indexed by int32.

    The width of a dictionary's index reveals the number of observed categories, so the width is replaced. Lists of a
    fixed size become lists: noise changes the size.
    """
    if is_list(type_):
        item_field = pa.field(type_.value_field.name, output_type(type_.value_type), type_.value_field.nullable)
        return pa.large_list(item_field) if pa.types.is_large_list(type_) else pa.list_(item_field)
    if pa.types.is_dictionary(type_):
        return pa.dictionary(pa.int32(), type_.value_type, ordered=type_.ordered)
    return type_


def coded_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which a column is coded: usually the column's type.

    >>> coded_type(pa.time32("s")), coded_type(pa.int64())
    (DurationType(duration[s]), DataType(int64))
    """
    type_ = _listed_time(type_)
    if _is_decimal(type_):
        return pa.int64() if type_.scale == 0 and type_.precision <= _EXACT_DIGITS else pa.float64()
    return pa.duration(type_.unit) if pa.types.is_time(type_) else type_


def coded_field(name: str, type_: pa.DataType, nullable: bool) -> Field:
    """Return the public field of a column, with its type for coding."""
    type_ = _listed_time(type_)
    decimal = (type_.precision, type_.scale) if _is_decimal(type_) else None
    of_day, empty = bool(pa.types.is_time(type_)), is_open(type_)
    return Field(name, coded_type(type_), nullable, of_day=of_day, decimal=decimal, empty=empty)


def _listed_time(type_: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary of times; other types unchanged."""
    return type_.value_type if pa.types.is_dictionary(type_) and pa.types.is_temporal(type_.value_type) else type_


def without_listed_times(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries of times, as Parquet loses their type."""
    for place, field in enumerate(table.schema):
        type_ = _listed_time(field.type)
        if type_ != field.type:
            table = table.set_column(place, field.with_type(type_), table.column(place).cast(type_))
    return table


def _is_decimal(type_: pa.DataType) -> bool:
    """Return whether values are decimals with a scale of 0 or more; Arrow casts no floats to other decimals."""
    return bool(pa.types.is_decimal(type_) and type_.scale >= 0)


def as_coded(array: pa.Array) -> pa.Array:
    """Return values in the type for coding."""
    if _listed_time(array.type) != array.type:
        array = array.dictionary_decode()
    if _is_decimal(array.type):
        return array.cast(coded_type(array.type), safe=False)
    if not pa.types.is_time(array.type):
        return array
    ticks = array.view(pa.int32() if pa.types.is_time32(array.type) else pa.int64())
    return ticks.cast(pa.int64()).view(coded_type(array.type))


def decode_as(space: Space, codes: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Return the values of codes in a column's type, or as text if a special value is a word."""
    released_type = space.output_type(type_)
    return as_stored(space.decode(codes, output_type(coded_type(released_type))), released_type)


def as_stored(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return decoded values in a column's type; times of day are clipped to the day."""
    if _listed_time(type_) != type_:
        values = as_stored(array, type_.value_type)
        distinct_values = values.unique().drop_null()
        entries = distinct_values.take(pc.array_sort_indices(distinct_values))
        return pa.DictionaryArray.from_arrays(pc.index_in(values, entries), entries, ordered=type_.ordered)
    if _is_decimal(type_):
        # Arrow casts whole numbers only by way of a decimal that can hold all of them.
        return (array.cast(pa.decimal128(19, 0)) if pa.types.is_integer(array.type) else array).cast(type_)
    if not pa.types.is_time(type_):
        return array
    is_missing = np.asarray(array.is_null())
    # Noise may leave the day, and Arrow does not check the range of times.
    ticks = np.clip(np.asarray(array.view(pa.int64()).fill_null(0)), 0, _TICKS_PER_DAY[type_.unit] - 1)
    tick_type = np.int32 if pa.types.is_time32(type_) else np.int64
    return pa.array(ticks.astype(tick_type), mask=is_missing if is_missing.any() else None).view(type_)


Order = npt.NDArray[np.intp] | None


def copied(column: pa.ChunkedArray, order: Order) -> Any:
    """Return a column that is passed through, in the output's order and without traces of the input's order."""
    type_ = column.type
    if pa.types.is_dictionary(type_) and not type_.ordered:
        # The entries have the order of the input's values, and include entries of absent rows.
        plain_column = copied(column.cast(type_.value_type), order)
        return plain_column.dictionary_encode()
    # Copied even if the order stays: `take` does not copy values under null slots.
    places = pa.array(np.arange(len(column)) if order is None else order)
    if pa.types.is_dictionary(type_):
        return _drop_absent_entries(column.unify_dictionaries().combine_chunks().take(places))
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):  # Arrow cannot take from views
        view_free_type = pa.large_string() if pa.types.is_string_view(type_) else pa.large_binary()
        return column.cast(view_free_type).take(places).cast(type_)
    if pa.types.is_struct(type_):
        array = as_arrow(column)
        parts = [copied(pa.chunked_array([part]), order) for part in array.flatten()]
        parts = [part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part for part in parts]
        if not parts:
            return array if order is None else array.take(pa.array(order))
        is_missing = np.asarray(array.is_null())
        fields = [pa.field(f.name, part.type) for f, part in zip(array.type, parts, strict=True)]
        return pa.StructArray.from_arrays(
            parts, fields=fields, mask=pa.array(is_missing if order is None else is_missing[order])
        )
    if is_list(type_) and nests_dictionary(type_):
        array = as_arrow(column).take(places)
        items = copied(pa.chunked_array([array.values]), None)
        items = items.combine_chunks() if isinstance(items, pa.ChunkedArray) else items
        field = pa.field(array.type.value_field.name, items.type, array.type.value_field.nullable)
        mask = array.is_null()
        if pa.types.is_fixed_size_list(array.type):
            return pa.FixedSizeListArray.from_arrays(items, type=pa.list_(field, array.type.list_size), mask=mask)
        if pa.types.is_large_list(array.type):
            return pa.LargeListArray.from_arrays(array.offsets, items, type=pa.large_list(field), mask=mask)
        return pa.ListArray.from_arrays(array.offsets, items, type=pa.list_(field), mask=mask)
    return column.take(places)


def _drop_absent_entries(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return an ordered dictionary column without entries that no row has."""
    used_codes, indices = np.unique(np.asarray(array.indices.drop_null()), return_inverse=True)
    places = np.zeros(len(array), dtype=np.int32)
    is_missing = np.asarray(array.indices.is_null())
    places[~is_missing] = indices
    codes = pa.array(places, mask=is_missing)
    return pa.DictionaryArray.from_arrays(
        codes, array.dictionary.take(pa.array(used_codes)), ordered=array.type.ordered
    )


def passed(series: pd.Series[Any], order: Order) -> pd.Series[Any]:
    """Return a column that is passed through, with only its values: no unused category."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.cat.remove_unused_categories()
    dtype: Any = series.dtype
    if isinstance(dtype, pd.ArrowDtype) or hasattr(dtype, "numpy_dtype"):
        # These dtypes keep values under null slots, too.
        column = copied(pa.chunked_array([as_arrow(series)]), order)
        column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        rewritten: pd.Series[Any] = pd.Series(dtype.__from_arrow__(column))
        return rewritten
    row_values: pd.Series[Any] = series.take(range(len(series)) if order is None else order)
    return row_values
