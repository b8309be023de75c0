"""Columns of any kind as Arrow arrays. Values without a common type are read one by one: object columns, lists.

Arrow chooses one type for all elements, so that one row changes the reading of every other row. Here the meaning
of an element depends only on the element.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError
from dpframe.spaces.object_reading import by_type
from dpframe.spaces.python_values import common_kind, is_collection, is_missing, kind_of

_MIXED = "holds values of mixed or unsupported types, or beyond 64 bits; convert it to one type"


def elements(values: Any) -> Sequence[Any] | None:
    """Return the elements of a column without a type; None if a type determines the elements."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return None
    dtype = getattr(values, "dtype", None)
    if dtype is None:
        if any(hasattr(values, f"__arrow_{name}__") for name in ("array", "c_array", "c_stream")):
            return None
        if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
            return values if type(values) is list else list(values)
        raise ColumnError("is no column; pass an array, a Series or a list of values")
    # A categorical's entries, and the filled slots of a sparse array, may be objects too.
    dtypes = (dtype, getattr(getattr(dtype, "categories", None), "dtype", None), getattr(dtype, "subtype", None))
    if not any(isinstance(kind, np.dtype) and kind.hasobject for kind in dtypes):
        return None
    objects = np.asarray(values, dtype=object)
    if objects.ndim != 1:
        raise ColumnError("is no column; pass an array, a Series or a list of values")
    object_list: list[Any] = objects.tolist()
    return object_list


def as_arrow(values: Any) -> pa.Array:
    """Return values as one Arrow array; NaN and None of pandas and lists become null.

    Values without a type must all have one kind; their array has the widest type of the kind.
    """
    if isinstance(values, pa.ChunkedArray):
        return _combine_chunks(values)
    if isinstance(values, pa.Array):
        return values
    objects = elements(values)
    array = _to_typed_array(values) if objects is None else _to_array_of_one_kind(objects)
    if array is None:
        # Outside the except block: Arrow's error quotes the value and would become this error's context.
        raise ColumnError(_MIXED)
    return _combine_chunks(array) if isinstance(array, pa.ChunkedArray) else array


def _combine_chunks(values: pa.ChunkedArray) -> pa.Array:
    """Return chunks as one array, also for dictionaries that Arrow cannot unify.

    Arrow unifies no dictionaries with null entries, or with more entries than the index type allows.
    """
    with contextlib.suppress(pa.ArrowInvalid):
        return values.combine_chunks()
    if not pa.types.is_dictionary(values.type):
        return values.cast(_without_dictionaries(values.type)).combine_chunks()
    entries = [chunk.dictionary for chunk in values.chunks]
    starts = np.cumsum([0, *map(len, entries[:-1])]).tolist()
    indices = [
        pc.add(chunk.indices.cast(pa.int64()), entry_start)
        for chunk, entry_start in zip(values.chunks, starts, strict=True)
    ]
    # Entries may repeat across chunks.
    joined_arrays = pa.concat_arrays(indices), pa.concat_arrays(entries)
    return pa.DictionaryArray.from_arrays(*joined_arrays, ordered=values.type.ordered, safe=False)


def _without_dictionaries(type_: pa.DataType) -> pa.DataType:
    """Return a type with the value types of dictionaries in place of dictionaries."""
    t = pa.types
    if t.is_dictionary(type_):
        return type_.value_type
    if t.is_struct(type_):
        return pa.struct([field.with_type(_without_dictionaries(field.type)) for field in type_])
    if t.is_list(type_) or t.is_fixed_size_list(type_):
        return pa.list_(_without_dictionaries(type_.value_type), getattr(type_, "list_size", -1))
    return pa.large_list(_without_dictionaries(type_.value_type)) if t.is_large_list(type_) else type_


def _to_typed_array(values: Any) -> Any:
    # Arrow looks up `__arrow_array__` on a pandas Series, which also searches the labels of its index:
    # row labels must have no effect.
    array_values = getattr(values, "array", values)
    try:
        return pa.array(array_values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _to_array_of_one_kind(values: Sequence[Any]) -> pa.Array | None:
    """Return objects as an array of their common kind; None if they have several kinds.

    Arrow's own inference is not used: some mixtures of kinds give nonsense, and others crash.
    """
    is_null = np.fromiter(map(is_missing, values), np.bool_, len(values))
    present_values = [value for value, null in zip(values, is_null, strict=True) if not null]
    if not present_values:
        return pa.nulls(len(values))
    if all(map(is_collection, present_values)):
        sizes = [0 if null else len(value) for value, null in zip(values, is_null, strict=True)]
        items = _to_array_of_one_kind([item for value in present_values for item in value])
        if items is None:
            return None
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, items, mask=pa.array(is_null) if is_null.any() else None)
    kind = common_kind({kind_of(class_) for class_, _, _ in by_type(present_values)})
    if kind is None or kind.type is None:
        return None
    plain_values: Iterator[Any] = map(kind.plain, present_values)
    try:
        return pa.array([None if null else next(plain_values) for null in is_null], kind.type)
    except (pa.ArrowException, ValueError, OverflowError):
        return None
