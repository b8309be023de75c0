"""Values without a common type: pandas object columns, lists. Each is converted by itself.

Arrow would choose one type for all of them, and with it one row would change how every other row is read. So
what an element means is decided here from the element alone.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError

_MIXED = "holds values of mixed or unsupported types, or beyond 64 bits; convert it to one type"


def elements(values: Any) -> Sequence[Any] | None:
    """Return the elements of a column that has no type of its own, or None where a type says what they are.

    Raises
    ------
    ColumnError
        If the values are no column at all.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return None
    dtype = getattr(values, "dtype", None)
    if dtype is None:
        if any(hasattr(values, f"__arrow_{name}__") for name in ("array", "c_array", "c_stream")):
            return None
        if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
            return list(values)
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
    """Tell whether an element is null: None, NaN, pandas' NA and NaT, NumPy's NaT."""
    if value is None:
        return True
    if isinstance(value, float | np.floating):
        return bool(value != value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    if isinstance(value, Decimal):
        return value.is_nan()
    # By name, for whoever holds one has imported pandas, and nobody else has to.
    kind = type(value)
    return kind.__name__ in ("NAType", "NaTType") and kind.__module__.startswith("pandas.")


def is_collection(value: Any) -> bool:
    """Tell whether an element is a list of values: a list, tuple, set, or an array in one dimension."""
    return isinstance(value, list | tuple | set | frozenset) or (isinstance(value, np.ndarray) and value.ndim == 1)


def as_number(value: Any) -> int | float | None:
    """Return an element as a Python number, or None if it is none; booleans are none."""
    if isinstance(value, int | np.integer):
        # NumPy's durations count among its integers.
        return None if isinstance(value, bool | np.timedelta64) else int(value)
    return float(value) if isinstance(value, float | np.floating | Decimal) else None


def as_text(value: Any) -> str | None:
    """Return an element as a Python string, or None if it is none."""
    # Members of an enumeration are strings that print, and hash, as something else.
    return str.__str__(value) if isinstance(value, str) else None


def nanoseconds(value: Any, duration: bool) -> int | None:
    """Return a point in time as nanoseconds since 1970 in UTC, or a duration; None if it is not such a one.

    Times without a zone count as UTC, dates as their midnight, times of day as the time since midnight; whatever is
    finer is cut off.
    """
    try:
        if hasattr(value, "to_timedelta64" if duration else "to_datetime64"):  # pandas keeps nanoseconds
            value = value.to_timedelta64() if duration else value.asm8
        if isinstance(value, np.timedelta64 if duration else np.datetime64):
            return _ticks(value)
        if duration and isinstance(value, dt.time):
            return _since_midnight(value)
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


def _since_midnight(value: dt.time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 10**6 + value.microsecond) * 1000


def _span(value: dt.timedelta) -> int:
    return ((value.days * 86_400 + value.seconds) * 10**6 + value.microseconds) * 1000


_UNITS = {"W": 7 * 86_400 * 10**9, "D": 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9}
_UNITS |= {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_FINER = {"ps": 1000, "fs": 10**6, "as": 10**9}


def _ticks(value: np.datetime64 | np.timedelta64) -> int | None:
    """Return a NumPy time in nanoseconds, of any unit and however far away."""
    unit, count = np.datetime_data(value.dtype)
    ticks = int(value.astype(np.int64)) * count
    if unit in _UNITS:
        return ticks * _UNITS[unit]
    if unit in _FINER:
        return ticks // _FINER[unit]
    if isinstance(value, np.timedelta64) or unit not in ("Y", "M"):
        return None
    # NumPy's calendar overflows silently; beyond a million years all spaces have ended.
    most = 10**6 if unit == "Y" else 12 * 10**6
    days = np.array(min(max(ticks, -most), most)).astype(f"datetime64[{unit}]").astype("datetime64[D]")
    return int(days.astype(np.int64)) * _UNITS["D"]


def as_arrow(values: Any) -> pa.Array:
    """Return values as one Arrow array; NaN and None of pandas and lists become null.

    Values without a type of their own must all be of one kind; then they get the widest type of that kind.

    Raises
    ------
    ColumnError
        If the values are of mixed types or of one that Arrow does not know.
    """
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    listed = elements(values)
    array = _typed(values) if listed is None else _of_one_kind(listed)
    if array is None:
        # Out here, for what Arrow raises quotes the value, and would be kept as this error's context.
        raise ColumnError(_MIXED)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _typed(values: Any) -> Any:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _of_one_kind(values: Sequence[Any]) -> pa.Array | None:
    """Return objects as an array of their one kind, made of Python's own numbers and text; None if there is none.

    Arrow never guesses: of some mixtures it makes nonsense, and of others a crash.
    """
    missing = np.fromiter(map(is_missing, values), np.bool_, len(values))
    present = [value for value, null in zip(values, missing, strict=True) if not null]
    if not present:
        return pa.nulls(len(values))
    if all(map(is_collection, present)):
        return _lists(values, missing)
    for fits, convert, type_ in _KINDS:
        if all(map(fits, present)):
            converted: Iterator[Any] = map(convert, present)
            try:
                return pa.array([None if null else next(converted) for null in missing], type_)
            except (pa.ArrowException, ValueError, OverflowError):
                return None
    return None


def _lists(values: Sequence[Any], missing: Any) -> pa.Array | None:
    """Return collections as an array of lists, if their elements are all of one kind."""
    sizes = [0 if null else len(value) for value, null in zip(values, missing, strict=True)]
    inner = _of_one_kind([item for value, null in zip(values, missing, strict=True) if not null for item in value])
    if inner is None:
        return None
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, inner, mask=pa.array(missing) if missing.any() else None)


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
]


KINDS = (
    "null",
    "text",
    "bytes",
    "boolean",
    "whole number",
    "number",
    "date",
    "timestamp",
    "duration",
    "time of day",
    "set of text",
    "set of whole numbers",
    "list of numbers",
    "empty set",
    "other",
)
"""Kinds of objects, by name. The list is public: which of them a column holds is not."""

_COLLECTION = "collection"

Objects = npt.NDArray[np.object_]

_MOST_READ = 1 << 16
"""Distinct values of a type whose reading is kept."""

_CLASSES: list[tuple[str, tuple[type, ...]]] = [
    ("boolean", (bool, np.bool_)),
    ("duration", (dt.timedelta, np.timedelta64)),  # NumPy's durations count among its integers
    ("whole number", (int, np.integer)),
    ("number", (float, np.floating, Decimal)),
    ("text", (str,)),
    ("bytes", (bytes,)),
    ("timestamp", (dt.datetime, np.datetime64)),
    ("date", (dt.date,)),
    ("time of day", (dt.time,)),
    (_COLLECTION, (list, tuple, set, frozenset, np.ndarray)),
    ("null", (type(None),)),
]


def _kind_of(type_: type) -> str:
    """Return the kind of all objects of a class: the class alone says it, so that no object's own code runs."""
    if type_.__name__ in ("NAType", "NaTType") and type_.__module__.startswith("pandas."):
        return "null"
    return next((name for name, classes in _CLASSES if issubclass(type_, classes)), "other")


def by_type(values: Sequence[Any]) -> Iterator[tuple[type, npt.NDArray[np.intp], Objects]]:
    """Yield the classes of some objects, each with the positions and the objects that are of it."""
    n = len(values)
    objects = np.fromiter(values, dtype=object, count=n)
    # By their ids: a class may have a hash of its own. All of it for every column, for what is left out where all
    # objects are of one class would tell by the time of one that is not.
    ids = pa.array(np.fromiter(map(id, map(type, objects)), dtype=np.int64, count=n)).dictionary_encode()
    groups = np.asarray(ids.indices)
    for group in range(len(ids.dictionary)):
        rows = np.flatnonzero(groups == group)
        alike = objects[rows]
        yield type(alike[0]), rows, alike


class _Read(dict[Any, Any]):
    """What a reader makes of values, None where it fails; each value of a plain class is read once."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, value: Any) -> Any:
        read = self.of(value)
        if len(self) < _MOST_READ:
            self[value] = read
        return read

    def of(self, value: Any) -> Any:
        """Return what is made of a value, whatever its class."""
        try:
            return self._read(value)
        except Exception:  # the code of a foreign class may raise anything
            return None

    def each(self, class_: type, values: Objects) -> list[Any]:
        """Return what is made of every value of a class."""
        return list(map(self.__getitem__ if class_ in _PLAIN else self.of, values))


_PLAIN = (str, bytes, bool, int, float)
"""Classes whose equal objects are read alike, and whose hash is Python's own."""


def kind_counts(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return how many of some objects are of each of the `KINDS`.

    An object whose own code raises is null.
    """
    counts: Counter[str] = Counter()
    for type_, _, items in by_type(values):
        kind = _kind_of(type_)
        if kind in ("number", "timestamp", "duration"):
            present = len(items) - _missing(type_, items)
            counts.update({kind: present, "null": len(items) - present})
        elif kind == _COLLECTION:
            counts.update(name or "null" for name in _Read(_collection_kind).each(type_, items))
        else:
            counts[kind] += len(items)
    return np.array([counts[name] for name in KINDS], dtype=np.int64)


def _missing(class_: type, values: Objects) -> int:
    """Return how many objects of a class are null, though their class is none of nulls."""
    if class_ is float:
        return int(np.isnan(values.astype(np.float64)).sum())
    if not issubclass(class_, float | np.generic | Decimal):
        return 0
    return len(values) - _Read(lambda value: is_missing(value) is False).each(class_, values).count(True)


def _collection_kind(value: Any) -> str:
    """Return what a collection is of: of text if some item is, else of numbers if they have fractions."""
    held = {_kind_of(class_) for class_ in set(map(type, _items(value)))}
    kinds = {"text": "set of text", "bytes": "set of text", "number": "list of numbers"}
    kinds |= {"whole number": "set of whole numbers"}
    kind_held = next((name for kind, name in kinds.items() if kind in held), None)
    return kind_held or ("other" if held - {"null"} else "empty set")


def _items(value: Any) -> Iterable[Any]:
    return value.ravel().tolist() if isinstance(value, np.ndarray) else value


def read_as(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return objects as an Arrow array of a type; what is of another kind, or cannot be read, is null.

    Nothing is refused, and every object is read by itself, each class of objects at once: what one of them is
    changes neither how another is read nor, to speak of, the time. ``type_`` is bool, int64, double, string, a date,
    a timestamp, a duration, or a list of these.
    """
    readers, physical = _readers(type_), _physical(type_)
    order: list[npt.NDArray[np.intp]] = []
    parts: list[pa.Array] = []
    for class_, rows, items in by_type(values):
        read = readers.get(_kind_of(class_))
        order.append(rows)
        parts.append(pa.nulls(len(rows), physical) if read is None else _part(class_, items, read, physical))
    if not parts:
        return pa.nulls(0, type_)
    places = np.empty(len(values), dtype=np.int64)
    places[np.concatenate(order)] = np.arange(len(values))
    array = pa.concat_arrays(parts).take(pa.array(places))
    return array if physical == type_ else array.view(type_)


def _physical(type_: pa.DataType) -> pa.DataType:
    """Return the type of whole numbers that times are made of, or the type itself."""
    if pa.types.is_date32(type_):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(type_) else type_


def _part(class_: type, items: Objects, read: Callable[[Any], Any], physical: pa.DataType) -> pa.Array:
    """Return the objects of one class as an array, all at once where the class allows it."""
    if class_ is float and pa.types.is_float64(physical):
        return pa.array(items.astype(np.float64), from_pandas=True)
    if class_ is int and pa.types.is_int64(physical):
        return pa.array(np.clip(items, -(2**63), 2**63 - 1).astype(np.int64))
    if class_ is not str:
        return pa.array(_Read(read).each(class_, items), physical)
    # A lone surrogate makes Arrow refuse all of an array, so that every distinct text is tried by itself.
    places = _Places()
    indices = np.fromiter(map(places.__getitem__, items), dtype=np.int64, count=len(items))
    return pa.array(list(map(_Read(read).of, places)), physical).take(pa.array(indices))


class _Places(dict[Any, int]):
    """Numbers values in the order of their first appearance."""

    def __missing__(self, value: Any) -> int:
        self[value] = place = len(self)
        return place


def _readers(type_: pa.DataType) -> Mapping[str, Callable[[Any], Any]]:
    """Return how the kinds of objects that a type holds are read."""
    t = pa.types
    if t.is_list(type_) and t.is_floating(type_.value_type):
        return {_COLLECTION: _reader_of_numbers(_readers(type_.value_type))}
    if t.is_list(type_):
        return {_COLLECTION: _reader_of_lists(_readers(type_.value_type))}
    if t.is_boolean(type_):
        return {"boolean": bool}
    if t.is_int64(type_):
        return {"whole number": lambda v: _clamped(int(v)), "number": _rounded}
    if t.is_float64(type_):
        return {"whole number": _floated, "number": lambda v: None if is_missing(v) else float(v)}
    if t.is_string(type_):
        return {"text": _stored, "bytes": bytes.decode}
    if t.is_duration(type_):
        return dict.fromkeys(("duration", "time of day"), lambda v: _ticked(v, True, type_))
    return dict.fromkeys(("date", "timestamp"), lambda v: _ticked(v, False, type_))


def _reader_of_lists(readers: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], list[Any]]:
    """Return what reads a collection: those of its items that can be read."""

    cached = {kind: _Read(reader) for kind, reader in readers.items()}
    plain = {class_: cached.get(_kind_of(class_)) for class_ in _PLAIN}

    def item_of(item: Any) -> Any:
        class_ = type(item)
        if any(class_ is one for one in _PLAIN):  # of others the hash may be foreign
            known = plain[class_]
            return None if known is None else known[item]
        reader = cached.get(_kind_of(class_))
        return None if reader is None else reader.of(item)

    def read(value: Any) -> list[Any]:
        return [item for item in map(item_of, _items(value)) if item is not None]

    return read


def _reader_of_numbers(readers: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], list[float | None] | None]:
    """Return what reads a list of numbers, None where an item is none; what has no order is no list."""

    def read(value: Any) -> list[float | None] | None:
        if type(value) is list and set(map(type, value)) == _ALL_FLOATS:
            return value
        if not is_collection(value) or isinstance(value, set | frozenset):
            return None
        items: list[Any] = list(_items(value))
        known = (readers.get(_kind_of(type(item))) for item in items)
        return [None if reader is None else reader(item) for reader, item in zip(known, items, strict=True)]

    return read


_ALL_FLOATS = {float}


def _stored(value: str) -> str:
    text = str.__str__(value)
    _ = text.encode()  # a lone surrogate cannot be stored
    return text


def _clamped(value: int) -> int:
    return min(max(value, -(2**63)), 2**63 - 1)


def _rounded(value: Any) -> int | None:
    if is_missing(value):
        return None
    number = float(value)
    return _clamped(round(min(max(number, -(2.0**63)), 2.0**63)))


def _floated(value: Any) -> float:
    number = int(value)
    if abs(number) < 2**1023:
        return float(number)
    return math.inf if number > 0 else -math.inf


def _ticked(value: Any, duration: bool, type_: pa.DataType) -> int | None:
    """Return a time in the unit of a type, within what it can hold."""
    ticks = None if is_missing(value) else nanoseconds(value, duration)
    if ticks is None:
        return None
    date = pa.types.is_date32(type_)
    unit = _UNITS["D" if date else str(type_.unit)]
    most = 2**31 - 1 if date else 2**63 - 1
    return min(max(ticks // unit, -most), most)
