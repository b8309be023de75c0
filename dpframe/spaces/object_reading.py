"""Objects whose kinds are not known: counted by kind, and read as one type, each by itself and each class at once."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from operator import eq
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.spaces.python_values import UNITS, is_collection, is_missing, nanoseconds

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

LEADING_ZEROS = "digits with leading zeros"
"""One more kind of values that are written as text."""

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


_NAMES = type.__dict__["__name__"], type.__dict__["__module__"]


def _kind_of(type_: type) -> str:
    """Return the kind of all objects of a class: only the class decides, so that no object's own code runs."""
    # Past the class's own class, which may have code of its own.
    name, module = (read.__get__(type_) for read in _NAMES)
    if name in ("NAType", "NaTType") and isinstance(module, str) and module.startswith("pandas."):
        return "null"
    return next((name for name, classes in _CLASSES if issubclass(type_, classes)), "other")


def by_type(values: Sequence[Any] | Objects) -> Iterator[tuple[type, npt.NDArray[np.intp], Objects]]:
    """Yield the classes of some objects, each with the positions and the objects that are of it."""
    n = len(values)
    objects = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=object, count=n)
    # By their addresses: a class may have a hash of its own. Never skipped: if it were for columns of one class, the
    # time that it takes would reveal an object of another.
    classes = pa.array(object_words(np.fromiter(map(type, objects), dtype=object, count=n))).dictionary_encode()
    groups = np.asarray(classes.indices)
    for group in range(len(classes.dictionary)):
        rows = np.flatnonzero(groups == group)
        alike = objects[rows]
        yield type(alike[0]), rows, alike


def object_words(objects: Objects) -> npt.NDArray[np.intp]:
    """Return an array of objects as words, equal where the objects are the same one: NumPy keeps their addresses."""
    return np.frombuffer(objects, dtype=np.intp)


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
        """Return what is made of a value of any class."""
        try:
            return self._read(value)
        except Exception:  # the code of a foreign class may raise anything
            return None

    def each(self, class_: type, values: Objects) -> list[Any]:
        """Return what is made of every value of a class."""
        return list(map(self.__getitem__ if class_ in _PLAIN else self.of, values))


_PLAIN = (str, bytes, bool, int, float)
"""Classes whose equal objects are read alike, and whose hash is Python's own."""


def kind_counts(
    values: Sequence[Any] | Objects, weights: npt.NDArray[np.integer] | None = None
) -> npt.NDArray[np.int64]:
    """Return how many of some objects are of each of the `KINDS`; with weights each counts as often as is said.

    An object whose own code raises is null.
    """
    times = np.ones(len(values), dtype=np.int64) if weights is None else weights
    counts: Counter[str] = Counter()
    for type_, rows, items in by_type(values):
        kind = _kind_of(type_)
        if kind in ("number", "timestamp", "duration"):
            missing, whole = _missing(type_, items), times[rows]
            counts.update({kind: int(whole[~missing].sum()), "null": int(whole[missing].sum())})
        elif kind == _COLLECTION:
            many = items if weights is None else np.repeat(items, times[rows])
            counts.update(_collection_kinds(type_, many))
        else:
            counts[kind] += int(times[rows].sum())
    return np.array([counts[name] for name in KINDS], dtype=np.int64)


def _missing(class_: type, values: Objects) -> npt.NDArray[np.bool_]:
    """Return which objects of a class are null, though their class is not one of nulls."""
    if class_ is float:
        return np.isnan(values.astype(np.float64))
    if not issubclass(class_, float | np.generic | Decimal):
        return np.zeros(len(values), dtype=np.bool_)
    known = _Read(lambda value: is_missing(value) is False).each(class_, values)
    return np.fromiter((is_known is not True for is_known in known), dtype=np.bool_, count=len(values))


_KINDS_OF_COLLECTIONS = {
    "text": "set of text",
    "bytes": "set of text",
    "number": "list of numbers",
    "whole number": "set of whole numbers",
}
"""What a collection is of: of text if some item is, else of numbers if they have fractions."""


def _collection_kind(value: Any) -> str:
    """Return what a collection is of."""
    held = {_kind_of(class_) for class_ in set(map(type, _items(value)))}
    kind_held = next((name for kind, name in _KINDS_OF_COLLECTIONS.items() if kind in held), None)
    return kind_held or ("other" if held - {"null"} else "empty set")


def _collection_kinds(class_: type, values: Objects) -> Counter[str]:
    """Return how many collections of a class are of each kind: of all at once where their class is Python's own."""
    lists = _Flat.of(class_, values)
    if lists is None:
        return Counter(name or "null" for name in _Read(_collection_kind).each(class_, values))
    held = {name: np.zeros(len(values), dtype=np.bool_) for name in (*_KINDS_OF_COLLECTIONS, "other")}
    for item_class, places, _ in by_type(lists.items):
        kind = _kind_of(item_class)
        if kind != "null":
            held[kind if kind in held else "other"][lists.owners[places]] = True
    found: Counter[str] = Counter()
    left = np.ones(len(values), dtype=np.bool_)
    for kind, rows in held.items():
        found[_KINDS_OF_COLLECTIONS.get(kind, "other")] += int((left & rows).sum())
        left &= ~rows
    found["empty set"] += int(left.sum())
    return found


def _items(value: Any) -> Iterable[Any]:
    return value.ravel().tolist() if isinstance(value, np.ndarray) else value


def read_as(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return objects as an Arrow array of a type; what is of another kind, or cannot be read, is null.

    Nothing is refused, and every object is read by itself, each class of objects at once: what one of them is
    changes neither how another is read nor, to speak of, the time. ``type_`` is bool, int64, double, string, a date,
    a timestamp, a duration, or a list of these.
    """
    readers = _readers(type_)
    # The whole numbers that times are made of.
    physical = pa.int32() if pa.types.is_date32(type_) else pa.int64() if pa.types.is_temporal(type_) else type_
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


def _part(class_: type, items: Objects, read: Callable[[Any], Any], physical: pa.DataType) -> pa.Array:
    """Return the objects of one class as an array, all at once where the class allows it."""
    if class_ is float and pa.types.is_float64(physical):
        return pa.array(items.astype(np.float64), from_pandas=True)
    if class_ is int and pa.types.is_int64(physical):
        return pa.array(np.clip(items, -(2**63), 2**63 - 1).astype(np.int64))
    lists = _Flat.of(class_, items) if pa.types.is_list(physical) else None
    if lists is not None and not pa.types.is_floating(physical.value_type):
        return lists.read_as(physical)
    if class_ is not str:
        return pa.array(_Read(read).each(class_, items), physical)
    # A lone surrogate makes Arrow refuse all of an array, so that every distinct text is tried by itself.
    places = _Places()
    indices = np.fromiter(map(places.__getitem__, items), dtype=np.int64, count=len(items))
    return pa.array(list(map(_Read(read).of, places)), physical).take(pa.array(indices))


@dataclass(frozen=True)
class _Flat:
    """Collections as one row of their items, and the collection that each item is of."""

    items: list[Any]
    owners: npt.NDArray[np.intp]
    count: int

    @classmethod
    def of(cls, class_: type, values: Objects) -> Self | None:
        """Return collections of one of Python's own classes so; None for others, whose own code might run."""
        if not any(class_ is one for one in (list, tuple, set, frozenset)):
            return None
        lengths = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
        return cls(list(chain.from_iterable(values)), np.repeat(np.arange(len(values)), lengths), len(values))

    def read_as(self, type_: pa.DataType) -> pa.Array:
        """Return the collections as lists of those of their items that can be read."""
        items = read_as(self.items, type_.value_type)
        known = np.asarray(items.is_valid())
        lengths = np.bincount(self.owners[known], minlength=self.count)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, items.drop_null(), type=type_)


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
        return {"whole number": floated, "number": lambda v: None if is_missing(v) else float(v)}
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
    """Return what reads a list of numbers, None where an item is no number; what has no order is no list."""

    def read(value: Any) -> list[float | None] | None:
        if type(value) is list and set(map(type, value)) == _ALL_FLOATS and all(map(eq, value, value)):
            return value  # no NaN, which is no number
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


def floated(value: Any) -> float:
    """Return a whole number as a float, infinite where no float holds it."""
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
    unit = UNITS["D" if date else str(type_.unit)]
    most = 2**31 - 1 if date else 2**63 - 1
    return min(max(ticks // unit, -most), most)
