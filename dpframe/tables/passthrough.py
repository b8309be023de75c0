"""Columns that are copied unprotected: only values, nothing that reveals the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from dpframe.spaces import as_arrow
from dpframe.tables.types import is_list, nests_dictionary

Order = npt.NDArray[np.intp] | None


def copied(column: pa.ChunkedArray, order: Order) -> Any:
    """Return a column that is passed through, in the output's order and with nothing of the input's order."""
    type_ = column.type
    if pa.types.is_dictionary(type_) and not type_.ordered:
        # The entries' order is that in which the input met them, and they include those of absent rows.
        plain = copied(column.cast(type_.value_type), order)
        return plain.dictionary_encode()
    # Taken even where the order stays: what lies under null slots is not taken along.
    places = pa.array(np.arange(len(column)) if order is None else order)
    if pa.types.is_dictionary(type_):
        return _used(column.unify_dictionaries().combine_chunks().take(places))
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):  # Arrow cannot take from views
        stored = pa.large_string() if pa.types.is_string_view(type_) else pa.large_binary()
        return column.cast(stored).take(places).cast(type_)
    if pa.types.is_struct(type_):
        return _struct(as_arrow(column), order)
    if is_list(type_) and nests_dictionary(type_):
        return _list(as_arrow(column).take(places))
    return column.take(places)


def _list(array: pa.Array) -> pa.Array:
    """Return a list column, its items with dictionaries of their own."""
    items = copied(pa.chunked_array([array.values]), None)
    items = items.combine_chunks() if isinstance(items, pa.ChunkedArray) else items
    field = pa.field(array.type.value_field.name, items.type, array.type.value_field.nullable)
    mask = array.is_null()
    if pa.types.is_fixed_size_list(array.type):
        return pa.FixedSizeListArray.from_arrays(items, type=pa.list_(field, array.type.list_size), mask=mask)
    if pa.types.is_large_list(array.type):
        return pa.LargeListArray.from_arrays(array.offsets, items, type=pa.large_list(field), mask=mask)
    return pa.ListArray.from_arrays(array.offsets, items, type=pa.list_(field), mask=mask)


def _struct(array: pa.StructArray, order: Order) -> pa.StructArray:
    """Return a struct column in the output's order, its fields null where it is."""
    parts = [copied(pa.chunked_array([part]), order) for part in array.flatten()]
    parts = [part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part for part in parts]
    if not parts:
        return array if order is None else array.take(pa.array(order))
    missing = np.asarray(array.is_null())
    fields = [pa.field(f.name, part.type) for f, part in zip(array.type, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array(missing if order is None else missing[order]))


def _used(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return an ordered dictionary column with the entries that rows have, in their order."""
    used, indices = np.unique(np.asarray(array.indices.drop_null()), return_inverse=True)
    places = np.zeros(len(array), dtype=np.int32)
    missing = np.asarray(array.indices.is_null())
    places[~missing] = indices
    codes = pa.array(places, mask=missing)
    return pa.DictionaryArray.from_arrays(codes, array.dictionary.take(pa.array(used)), ordered=array.type.ordered)


def passed(series: pd.Series[Any], order: Order) -> pd.Series[Any]:
    """Return a column that is passed through, with its values and nothing else: no entry that no row has."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.cat.remove_unused_categories()
    dtype: Any = series.dtype
    if isinstance(dtype, pd.ArrowDtype) or hasattr(dtype, "numpy_dtype"):
        # Of these kinds values stay under null slots, too.
        column = copied(pa.chunked_array([as_arrow(series)]), order)
        column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        rewritten: pd.Series[Any] = pd.Series(dtype.__from_arrow__(column))
        return rewritten
    taken: pd.Series[Any] = series.take(range(len(series)) if order is None else order)
    return taken
