"""Values without a common type: pandas object columns, lists. Each is converted by itself.

Arrow would choose one type for all of them, and with it one row would change how every other row is read. So
what an element means is decided here from just the element.
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
    """Return the elements of a column that has no type of its own, or None where a type says what they are."""
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
    inner = (dtype, getattr(getattr(dtype, "categories", None), "dtype", None), getattr(dtype, "subtype", None))
    if not any(isinstance(kind, np.dtype) and kind.hasobject for kind in inner):
        return None
    objects = np.asarray(values, dtype=object)
    if objects.ndim != 1:
        raise ColumnError("is no column; pass an array, a Series or a list of values")
    listed: list[Any] = objects.tolist()
    return listed


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
    # By name: a caller who holds one has imported pandas, and others need not.
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
    """Return a point in time as nanoseconds since 1970 in UTC, or a duration; None if it is not such a one.

    Times without a zone count as UTC, dates as their midnight, times of day as the time since midnight; anything
    finer is cut off.
    """
    try:
        if hasattr(value, "to_timedelta64" if duration else "to_datetime64"):  # pandas keeps nanoseconds
            value = value.to_timedelta64() if duration else value.asm8
        if isinstance(value, np.timedelta64 if duration else np.datetime64):
            return _ticks(value)
        if duration and isinstance(value, dt.time):
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return (seconds * 10**6 + value.microsecond) * 1000
        if duration:
            return _span(value) if isinstance(value, dt.timedelta) else None
        if isinstance(value, dt.datetime):
            # In whole numbers, for the first and last days of the calendar have no UTC in every zone.
            offset = value.utcoffset()
            passed = _span(value.replace(tzinfo=None) - dt.datetime(1970, 1, 1))
            return passed if offset is None else passed - _span(offset)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return (value.toordinal() - 719_163) * 86_400 * 10**9 if isinstance(value, dt.date) else None


def _span(value: dt.timedelta) -> int:
    return ((value.days * 86_400 + value.seconds) * 10**6 + value.microseconds) * 1000


UNITS = {"W": 7 * 86_400 * 10**9, "D": 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9}
UNITS |= {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_FINER = {"ps": 1000, "fs": 10**6, "as": 10**9}


def _ticks(value: np.datetime64 | np.timedelta64) -> int | None:
    """Return a NumPy time in nanoseconds, of any unit and however far away."""
    unit, count = np.datetime_data(value.dtype)
    ticks = int(value.astype(np.int64)) * count
    if unit in UNITS:
        return ticks * UNITS[unit]
    if unit in _FINER:
        return ticks // _FINER[unit]
    if isinstance(value, np.timedelta64) or unit not in ("Y", "M"):
        return None
    # NumPy's calendar overflows silently; beyond a million years all spaces have ended.
    most = 10**6 if unit == "Y" else 12 * 10**6
    days = np.array(min(max(ticks, -most), most)).astype(f"datetime64[{unit}]").astype("datetime64[D]")
    return int(days.astype(np.int64)) * UNITS["D"]


def as_arrow(values: Any) -> pa.Array:
    """Return values as one Arrow array; NaN and None of pandas and lists become null.

    Values without a type of their own must all be of one kind; then they get the widest type of that kind.
    """
    if isinstance(values, pa.ChunkedArray):
        return _combined(values)
    if isinstance(values, pa.Array):
        return values
    listed = elements(values)
    array = _typed(values) if listed is None else _of_one_kind(listed)
    if array is None:
        # Out here, for what Arrow raises quotes the value, and would be kept as this error's context.
        raise ColumnError(_MIXED)
    return _combined(array) if isinstance(array, pa.ChunkedArray) else array


def _combined(values: pa.ChunkedArray) -> pa.Array:
    """Return chunks as one array, of any dictionaries.

    Arrow unites none that list nulls, and none with more entries than their indices can count: a single row decides it.
    """
    with contextlib.suppress(pa.ArrowInvalid):
        return values.combine_chunks()
    if not pa.types.is_dictionary(values.type):
        return values.cast(_without_dictionaries(values.type)).combine_chunks()
    entries = [chunk.dictionary for chunk in values.chunks]
    starts = np.cumsum([0, *map(len, entries[:-1])]).tolist()
    indices = [
        pc.add(chunk.indices.cast(pa.int64()), first) for chunk, first in zip(values.chunks, starts, strict=True)
    ]
    # An entry may stand in several places.
    whole = pa.concat_arrays(indices), pa.concat_arrays(entries)
    return pa.DictionaryArray.from_arrays(*whole, ordered=values.type.ordered, safe=False)


def _without_dictionaries(type_: pa.DataType) -> pa.DataType:
    """Return a type in which the values that dictionaries mean stand for them; other types as they are."""
    t = pa.types
    if t.is_dictionary(type_):
        return type_.value_type
    if t.is_struct(type_):
        return pa.struct([field.with_type(_without_dictionaries(field.type)) for field in type_])
    if t.is_list(type_) or t.is_fixed_size_list(type_):
        return pa.list_(_without_dictionaries(type_.value_type), getattr(type_, "list_size", -1))
    return pa.large_list(_without_dictionaries(type_.value_type)) if t.is_large_list(type_) else type_


def _typed(values: Any) -> Any:
    # Arrow asks a pandas Series for `__arrow_array__`, which is looked up among the labels of its index too: those of
    # rows, which must decide nothing.
    own = getattr(values, "array", values)
    try:
        return pa.array(own, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _of_one_kind(values: Sequence[Any]) -> pa.Array | None:
    """Return objects as an array of their one kind, of Python's own numbers and text; None if they have several kinds.

    Arrow never guesses: of some mixtures it makes nonsense, and of others a crash.
    """
    missing = np.fromiter(map(is_missing, values), np.bool_, len(values))
    present = [value for value, null in zip(values, missing, strict=True) if not null]
    if not present:
        return pa.nulls(len(values))
    if all(map(is_collection, present)):
        sizes = [0 if null else len(value) for value, null in zip(values, missing, strict=True)]
        inner = _of_one_kind([item for value, null in zip(values, missing, strict=True) if not null for item in value])
        if inner is None:
            return None
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, inner, mask=pa.array(missing) if missing.any() else None)
    for fits, convert, type_ in _KINDS:
        if all(map(fits, present)):
            converted: Iterator[Any] = map(convert, present)
            try:
                return pa.array([None if null else next(converted) for null in missing], type_)
            except (pa.ArrowException, ValueError, OverflowError):
                return None
    return None


def _is_time(value: Any) -> bool:
    return isinstance(value, dt.datetime | np.datetime64)


def _micros(value: Any, duration: bool) -> int | None:
    ticks = nanoseconds(value, duration)
    return None if ticks is None else min(max(ticks // 1000, -(2**63) + 1), 2**63 - 1)


_KINDS: list[tuple[Callable[[Any], bool], Callable[[Any], Any], pa.DataType]] = [
    (lambda v: isinstance(v, bool | np.bool_), bool, pa.bool_()),
    (lambda v: isinstance(as_number(v), int), as_number, pa.int64()),
    (lambda v: as_number(v) is not None, lambda v: float(as_number(v) or 0), pa.float64()),
    (lambda v: as_text(v) is not None, as_text, pa.string()),
    (lambda v: isinstance(v, dt.date) and not _is_time(v), lambda v: v, pa.date32()),
    (lambda v: _is_time(v), lambda v: _micros(v, False), pa.timestamp("us")),
    (lambda v: isinstance(v, dt.timedelta | np.timedelta64), lambda v: _micros(v, True), pa.duration("us")),
    (lambda v: isinstance(v, dt.time), lambda v: v, pa.time64("us")),
]
