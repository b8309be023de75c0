"""Python objects one by one: the table of their kinds, and what an object of a kind means.

The class of an object decides its kind, so that no object's own code runs before the object is read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa


class Kind(NamedTuple):
    """A kind of Python objects."""

    name: str
    classes: tuple[type, ...] = ()
    """Classes of the kind's objects: the nearest class in the order of an object's bases decides."""
    type: pa.DataType | None = None
    """Arrow type of a column that has only this kind."""
    plain: Callable[[Any], Any] = lambda value: value
    """Converts an object to the value that Arrow stores."""
    pattern: str = ""
    """Regular expression of the texts that write a value of the kind."""


_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
_EXPONENT = r"([eE][+-]?[0-9]{1,4})?"
_MOMENT, _SPAN = pa.timestamp("us"), pa.duration("us")

PYTHON_KINDS = {
    kind.name: kind
    for kind in (
        Kind("null", (type(None),)),
        Kind("text", (str,), pa.string(), str.__str__),
        Kind("bytes", (bytes,)),
        Kind("boolean", (bool, np.bool_), pa.bool_(), bool, r"^(?i:true|false)$"),
        Kind("whole number", (int, np.integer), pa.int64(), int, r"^[+-]?(0|[1-9][0-9]{0,18})$"),
        Kind(
            "number",
            (float, np.floating, Decimal),
            pa.float64(),
            lambda value: float(value) + 0.0,  # 0.0 for −0.0
            rf"^[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+){_EXPONENT}$",
        ),
        Kind("date", (dt.date,), pa.date32(), pattern=f"^{_DATE}$"),
        Kind(
            "timestamp",
            (dt.datetime, np.datetime64),
            _MOMENT,
            lambda value: to_ticks(value, _MOMENT),
            f"^{_DATE}{_TIME}$",
        ),
        Kind("duration", (dt.timedelta, np.timedelta64), _SPAN, lambda value: to_ticks(value, _SPAN)),
        Kind("time of day", (dt.time,), pa.time64("us")),
        Kind("set of text"),
        Kind("set of whole numbers"),
        Kind("list of numbers"),
        Kind("empty set"),
        Kind("other"),
    )
}
"""Kinds of Python objects by name, in a public order. Text that writes a value has the first kind that matches."""

COLLECTION = "collection"
"""Name of all collections, whose kind follows from their items."""

PLAIN_COLLECTIONS = (list, tuple, set, frozenset)
"""Python's own classes of collections."""

# By address, for a class of a foreign metaclass may have a hash of its own.
_KIND_BY_CLASS = {id(class_): kind.name for kind in PYTHON_KINDS.values() for class_ in kind.classes}
_KIND_BY_CLASS |= {id(class_): COLLECTION for class_ in (*PLAIN_COLLECTIONS, np.ndarray)}
_NAME, _MODULE, _BASES = (type.__dict__[name] for name in ("__name__", "__module__", "__mro__"))


def kind_of(class_: type) -> str:
    """Return the kind of all objects of a class, `COLLECTION` for collections."""
    # Descriptors of `type` bypass the metaclass, which may have its own code.
    if _NAME.__get__(class_) in ("NAType", "NaTType"):  # by name, so that callers without pandas do not import it
        module = _MODULE.__get__(class_)
        if isinstance(module, str) and module.startswith("pandas."):
            return "null"
    return next((_KIND_BY_CLASS[id(base)] for base in _BASES.__get__(class_) if id(base) in _KIND_BY_CLASS), "other")


def common_kind(kinds: Collection[str]) -> Kind | None:
    """Return the kind as which a column of these kinds is read; None without one. Whole numbers are also numbers."""
    names = set(kinds) - ({"whole number"} if "number" in kinds else set())
    return PYTHON_KINDS.get(names.pop()) if len(names) == 1 else None


def is_missing(value: Any) -> bool:
    """Return whether an element is null: None, NaN, pandas' NA and NaT, NumPy's NaT."""
    if value is None:
        return True
    if isinstance(value, float | np.floating):
        return bool(value != value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return value.is_nan() if isinstance(value, Decimal) else kind_of(type(value)) == "null"


def is_collection(value: Any) -> bool:
    """Return whether an element is a list of values: a list, tuple, set, or an array in one dimension."""
    return isinstance(value, PLAIN_COLLECTIONS) or (isinstance(value, np.ndarray) and value.ndim == 1)


def refuse_decimal_classes(objects: Iterable[Any]) -> None:
    """Raise `TypeError` if an object, or an item within it, is of a subclass of Decimal.

    Arrow calls the ``is_nan`` of such objects, and the process crashes if it raises.
    """
    for value in objects:
        if isinstance(value, Decimal) and type(value) is not Decimal:
            raise TypeError("a subclass of Decimal")
        if isinstance(value, Mapping) or is_collection(value):
            refuse_decimal_classes(value.values() if isinstance(value, Mapping) else value)


def as_number(value: Any) -> int | float | None:
    """Return an element as a Python number, or None for anything else; booleans are no numbers."""
    kind = kind_of(type(value))
    return int(value) if kind == "whole number" else float(value) if kind == "number" else None


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


def to_ticks(value: Any, type_: pa.DataType) -> int | None:
    """Return a time in the unit of an Arrow type, clamped to the range of the type; None for null and for others."""
    ticks = None if is_missing(value) else nanoseconds(value, pa.types.is_duration(type_))
    if ticks is None:
        return None
    is_date = pa.types.is_date32(type_)
    max_ticks = 2**31 - 1 if is_date else 2**63 - 1
    return min(max(ticks // UNITS["D" if is_date else str(type_.unit)], -max_ticks), max_ticks)
