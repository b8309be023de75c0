"""Values without a common type: pandas object columns, lists. Each is converted by itself.

Arrow chooses one type for all elements, so that one row changes the reading of every other row. Here the meaning
of an element depends only on the element.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError

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


def is_missing(value: Any) -> bool:
    """Return whether an element is null: None, NaN, pandas' NA and NaT, NumPy's NaT."""
    if value is None:
        return True
    if isinstance(value, float | np.floating):
        return bool(value != value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    if isinstance(value, Decimal):
        return value.is_nan()
    # By name, so that callers without pandas do not import it.
    kind = type(value)
    return kind.__name__ in ("NAType", "NaTType") and kind.__module__.startswith("pandas.")


def is_collection(value: Any) -> bool:
    """Return whether an element is a list of values: a list, tuple, set, or an array in one dimension."""
    return isinstance(value, list | tuple | set | frozenset) or (isinstance(value, np.ndarray) and value.ndim == 1)


def as_number(value: Any) -> int | float | None:
    """Return an element as a Python number, or None for anything else; booleans are no numbers."""
    if isinstance(value, int | np.integer):
        # NumPy's durations count among its integers.
        return None if isinstance(value, bool | np.timedelta64) else int(value)
    return float(value) if isinstance(value, float | np.floating | Decimal) else None


def as_text(value: Any) -> str | None:
    """Return an element as a Python string, or None for anything else."""
    # Members of an enumeration are strings that print, and hash, as something else.
    return str.__str__(value) if isinstance(value, str) else None


def nanoseconds(value: Any, duration: bool) -> int | None:
    """Return a point in time as nanoseconds since 1970 in UTC, or a duration in nanoseconds; None for others.

    Times without a zone count as UTC, dates as their midnight, times of day as the time since midnight; anything
    finer is cut off.
    """
    try:
        if hasattr(value, "to_timedelta64" if duration else "to_datetime64"):  # pandas keeps nanoseconds
            value = value.to_timedelta64() if duration else value.asm8
        if isinstance(value, np.timedelta64 if duration else np.datetime64):
            return _to_ticks(value)
        if duration and isinstance(value, dt.time):
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return (seconds * 10**6 + value.microsecond) * 1000
        if duration:
            return _to_nanoseconds(value) if isinstance(value, dt.timedelta) else None
        if isinstance(value, dt.datetime):
            # In whole numbers, for the first and last days of the calendar have no UTC in every zone.
            offset = value.utcoffset()
            elapsed = _to_nanoseconds(value.replace(tzinfo=None) - dt.datetime(1970, 1, 1))
            return elapsed if offset is None else elapsed - _to_nanoseconds(offset)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return (value.toordinal() - 719_163) * 86_400 * 10**9 if isinstance(value, dt.date) else None


def _to_nanoseconds(value: dt.timedelta) -> int:
    return ((value.days * 86_400 + value.seconds) * 10**6 + value.microseconds) * 1000


UNITS = {"W": 7 * 86_400 * 10**9, "D": 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9}
UNITS |= {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_UNITS_BELOW_NS = {"ps": 1000, "fs": 10**6, "as": 10**9}


def _to_ticks(value: np.datetime64 | np.timedelta64) -> int | None:
    """Return a NumPy time of any unit in nanoseconds, without overflow."""
    unit, count = np.datetime_data(value.dtype)
    ticks = int(value.astype(np.int64)) * count
    if unit in UNITS:
        return ticks * UNITS[unit]
    if unit in _UNITS_BELOW_NS:
        return ticks // _UNITS_BELOW_NS[unit]
    if isinstance(value, np.timedelta64) or unit not in ("Y", "M"):
        return None
    # NumPy's calendar overflows silently; beyond a million years all spaces have ended.
    max_ticks = 10**6 if unit == "Y" else 12 * 10**6
    days = np.array(min(max(ticks, -max_ticks), max_ticks)).astype(f"datetime64[{unit}]").astype("datetime64[D]")
    return int(days.astype(np.int64)) * UNITS["D"]


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
        items = _to_array_of_one_kind(
            [item for value, null in zip(values, is_null, strict=True) if not null for item in value]
        )
        if items is None:
            return None
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, items, mask=pa.array(is_null) if is_null.any() else None)
    for fits, convert, type_ in _KINDS:
        if all(map(fits, present_values)):
            converted_values: Iterator[Any] = map(convert, present_values)
            try:
                return pa.array([None if null else next(converted_values) for null in is_null], type_)
            except (pa.ArrowException, ValueError, OverflowError):
                return None
    return None


def _is_time(value: Any) -> bool:
    return isinstance(value, dt.datetime | np.datetime64)


def _to_micros(value: Any, duration: bool) -> int | None:
    ticks = nanoseconds(value, duration)
    return None if ticks is None else min(max(ticks // 1000, -(2**63) + 1), 2**63 - 1)


_KINDS: list[tuple[Callable[[Any], bool], Callable[[Any], Any], pa.DataType]] = [
    (lambda v: isinstance(v, bool | np.bool_), bool, pa.bool_()),
    (lambda v: isinstance(as_number(v), int), as_number, pa.int64()),
    (lambda v: as_number(v) is not None, lambda v: float(as_number(v) or 0), pa.float64()),
    (lambda v: as_text(v) is not None, as_text, pa.string()),
    (lambda v: isinstance(v, dt.date) and not _is_time(v), lambda v: v, pa.date32()),
    (lambda v: _is_time(v), lambda v: _to_micros(v, False), pa.timestamp("us")),
    (lambda v: isinstance(v, dt.timedelta | np.timedelta64), lambda v: _to_micros(v, True), pa.duration("us")),
    (lambda v: isinstance(v, dt.time), lambda v: v, pa.time64("us")),
]
