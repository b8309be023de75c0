"""Objects of unknown kinds: counted by kind, and read as one type, class by class."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, count
from operator import eq
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.spaces.python_values import (
    COLLECTION,
    PLAIN_COLLECTIONS,
    PYTHON_KINDS,
    is_collection,
    is_missing,
    kind_of,
    to_ticks,
)

KINDS = tuple(PYTHON_KINDS)
"""Kinds of objects, by name. The list is public; the kinds in a column are secret."""

LEADING_ZEROS = "digits with leading zeros"
"""Additional kind of values that are written as text."""

Objects = npt.NDArray[np.object_]

_MAX_CACHED_READINGS = 1 << 16
"""Limit on the distinct values of a class whose reading is cached."""


def by_type(values: Sequence[Any] | Objects) -> Iterator[tuple[type, npt.NDArray[np.intp], Objects]]:
    """Yield each class of objects, with the positions and the objects of the class."""
    n = len(values)
    objects = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=object, count=n)
    # Classes are keyed by address, as a class may define a hash. Never skipped for columns of one class: the time
    # difference would reveal an object of another class.
    classes = pa.array(object_words(np.fromiter(map(type, objects), dtype=object, count=n))).dictionary_encode()
    groups = np.asarray(classes.indices)
    for group in range(len(classes.dictionary)):
        rows = np.flatnonzero(groups == group)
        class_objects = objects[rows]
        yield type(class_objects[0]), rows, class_objects


def object_words(objects: Objects) -> npt.NDArray[np.intp]:
    """Return the addresses of objects as words; identical objects have equal words."""
    return np.frombuffer(objects, dtype=np.intp)


class CachedReader(dict[Any, Any]):
    """Cache of a reader's results, None for failures; each value of a plain class is read once."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, value: Any) -> Any:
        result = self.of(value)
        if len(self) < _MAX_CACHED_READINGS:
            self[value] = result
        return result

    def of(self, value: Any) -> Any:
        """Return the reader's result for a value of any class."""
        try:
            return self._read(value)
        except Exception:  # the code of a foreign class may raise anything
            return None

    def for_class(self, class_: type) -> Callable[[Any], Any]:
        """Return the function that reads values of a class, from the cache if the hash of the class is Python's own."""
        return self.__getitem__ if any(class_ is plain_class for plain_class in _PLAIN_CLASSES) else self.of

    def each(self, class_: type, values: Objects) -> list[Any]:
        """Return the reader's result for every value of a class."""
        return list(map(self.for_class(class_), values))


_PLAIN_CLASSES = (str, bytes, bool, int, float)
"""Classes whose equal objects have equal readings, and whose hash is Python's own."""


def kind_counts(
    values: Sequence[Any] | Objects, weights: npt.NDArray[np.integer] | None = None
) -> npt.NDArray[np.int64]:
    """Return the number of objects of each of the `KINDS`, or the sum of their weights.

    An object whose own code raises is null.
    """
    times = np.ones(len(values), dtype=np.int64) if weights is None else weights
    counts: Counter[str] = Counter()
    for type_, rows, items in by_type(values):
        kind = kind_of(type_)
        if kind in ("number", "timestamp", "duration"):
            is_null, item_weights = _is_missing_mask(type_, items), times[rows]
            counts.update({kind: int(item_weights[~is_null].sum()), "null": int(item_weights[is_null].sum())})
        elif kind == COLLECTION:
            repeated_items = items if weights is None else np.repeat(items, times[rows])
            counts.update(_count_collection_kinds(type_, repeated_items))
        else:
            counts[kind] += int(times[rows].sum())
    return np.array([counts[name] for name in KINDS], dtype=np.int64)


def _is_missing_mask(class_: type, values: Objects) -> npt.NDArray[np.bool_]:
    """Return a mask of null objects of a class whose objects may have values."""
    if class_ is float:
        return np.isnan(values.astype(np.float64))
    if not issubclass(class_, float | np.generic | Decimal):
        return np.zeros(len(values), dtype=np.bool_)
    has_value = CachedReader(lambda value: is_missing(value) is False).each(class_, values)
    return np.fromiter((is_known is not True for is_known in has_value), dtype=np.bool_, count=len(values))


_KINDS_OF_COLLECTIONS = {
    "text": "set of text",
    "bytes": "set of text",
    "number": "list of numbers",
    "whole number": "set of whole numbers",
}
"""Kind of a collection by the kinds of its items; text has priority, then numbers with fractions."""


def _collection_kind(value: Any) -> str:
    """Return the kind of a collection."""
    item_kinds = {kind_of(class_) for class_ in set(map(type, _items(value)))}
    collection_kind = next((name for kind, name in _KINDS_OF_COLLECTIONS.items() if kind in item_kinds), None)
    return collection_kind or ("other" if item_kinds - {"null"} else "empty set")


def _count_collection_kinds(class_: type, values: Objects) -> Counter[str]:
    """Return the number of collections of each kind; collections of Python's own classes are read in bulk."""
    if not is_plain_collection(class_):
        return Counter(name or "null" for name in CachedReader(_collection_kind).each(class_, values))
    lists = FlatItems.of(values)
    owners = lists.owners
    rows_by_kind = {name: np.zeros(len(values), dtype=np.bool_) for name in (*_KINDS_OF_COLLECTIONS, "other")}
    for item_class, places, _ in by_type(lists.items):
        kind = kind_of(item_class)
        if kind != "null":
            rows_by_kind[kind if kind in rows_by_kind else "other"][owners[places]] = True
    counts: Counter[str] = Counter()
    is_uncounted = np.ones(len(values), dtype=np.bool_)
    for kind, rows in rows_by_kind.items():
        counts[_KINDS_OF_COLLECTIONS.get(kind, "other")] += int((is_uncounted & rows).sum())
        is_uncounted &= ~rows
    counts["empty set"] += int(is_uncounted.sum())
    return counts


def _items(value: Any) -> Iterable[Any]:
    return value.ravel().tolist() if isinstance(value, np.ndarray) else value


def read_as(values: Sequence[Any] | Objects, type_: pa.DataType) -> pa.Array:
    """Return objects as an Arrow array of a type; objects of another kind, or unreadable ones, are null.

    No object raises an error. Each object is read independently of the others: no object changes the
    reading of another, and hardly the time. ``type_`` is bool, int64, double, string, a date,
    a timestamp, a duration, or a list of these.
    """
    readers = _readers_of(type_)
    # Times are stored as whole numbers.
    physical = pa.int32() if pa.types.is_date32(type_) else pa.int64() if pa.types.is_temporal(type_) else type_
    order: list[npt.NDArray[np.intp]] = []
    parts: list[pa.Array] = []
    for class_, rows, items in by_type(values):
        reader = readers.get(kind_of(class_))
        order.append(rows)
        parts.append(pa.nulls(len(rows), physical) if reader is None else _read_class(class_, items, reader, physical))
    if not parts:
        return pa.nulls(0, type_)
    places = np.empty(len(values), dtype=np.int64)
    places[np.concatenate(order)] = np.arange(len(values))
    array = pa.concat_arrays(parts).take(pa.array(places))
    return array if physical == type_ else array.view(type_)


def _read_class(class_: type, items: Objects, reader: Callable[[Any], Any], physical: pa.DataType) -> pa.Array:
    """Return the objects of one class as an array, in bulk if the class allows it."""
    if class_ is float and pa.types.is_float64(physical):
        return pa.array(items.astype(np.float64), from_pandas=True)
    if class_ is int and pa.types.is_int64(physical):
        return pa.array(np.clip(items, -(2**63), 2**63 - 1).astype(np.int64))
    if is_plain_collection(class_) and not pa.types.is_floating(physical.value_type):
        return FlatItems.of(items).read_as(physical)
    if class_ is not str:
        return pa.array(CachedReader(reader).each(class_, items), physical)
    # Arrow refuses an array with a lone surrogate, so every distinct text is tried by itself.
    places: defaultdict[str, int] = defaultdict(count().__next__)
    indices = np.fromiter(map(places.__getitem__, items), dtype=np.int64, count=len(items))
    return pa.array(list(map(CachedReader(reader).of, places)), physical).take(pa.array(indices))


@dataclass(frozen=True)
class FlatItems:
    """The items of collections as one array, and the number of items of each collection."""

    items: Objects
    lengths: npt.NDArray[np.int64]

    @classmethod
    def of(cls, collections: Objects) -> Self:
        """Return the items of collections of Python's own classes."""
        lengths = np.fromiter(map(len, collections), dtype=np.int64, count=len(collections))
        return cls(np.fromiter(chain.from_iterable(collections), dtype=object, count=int(lengths.sum())), lengths)

    @property
    def owners(self) -> npt.NDArray[np.intp]:
        """The collection of each item."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def read_as(self, type_: pa.DataType) -> pa.Array:
        """Return the collections as lists of their readable items."""
        items = read_as(self.items, type_.value_type)
        is_readable = np.asarray(items.is_valid())
        lengths = np.bincount(self.owners[is_readable], minlength=len(self.lengths))
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, items.drop_null(), type=type_)


def is_plain_collection(class_: type) -> bool:
    """Return whether a class is one of Python's own collections; the code of other classes might run."""
    return any(class_ is plain_class for plain_class in PLAIN_COLLECTIONS)


def _readers_of(type_: pa.DataType) -> Mapping[str, Callable[[Any], Any]]:
    """Return a reader for each kind of objects that a type allows."""
    t = pa.types
    if t.is_list(type_) and t.is_floating(type_.value_type):
        return {COLLECTION: _reader_of_numbers(_readers_of(type_.value_type))}
    if t.is_list(type_):
        return {COLLECTION: _reader_of_lists(_readers_of(type_.value_type))}
    if t.is_boolean(type_):
        return {"boolean": bool}
    if t.is_int64(type_):
        return {"whole number": lambda v: _clamp_to_int64(int(v)), "number": _round_to_int64}
    if t.is_float64(type_):
        return {"whole number": floated, "number": lambda v: None if is_missing(v) else float(v)}
    if t.is_string(type_):
        return {"text": _to_text, "bytes": bytes.decode}
    if t.is_duration(type_):
        return dict.fromkeys(("duration", "time of day"), lambda v: to_ticks(v, type_))
    return dict.fromkeys(("date", "timestamp"), lambda v: to_ticks(v, type_))


def _reader_of_lists(readers: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], list[Any]]:
    """Return a reader of collections, which drops unreadable items."""

    cached_readers = {kind: CachedReader(reader) for kind, reader in readers.items()}

    def item_of(item: Any) -> Any:
        reader = cached_readers.get(kind_of(type(item)))
        return None if reader is None else reader.for_class(type(item))(item)

    def read(value: Any) -> list[Any]:
        return [item for item in map(item_of, _items(value)) if item is not None]

    return read


def _reader_of_numbers(readers: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], list[float | None] | None]:
    """Return a reader of lists of numbers, with None for other items; sets are no lists."""

    def read(value: Any) -> list[float | None] | None:
        if type(value) is list and set(map(type, value)) == _ALL_FLOATS and all(map(eq, value, value)):
            return value  # no NaN, which is no number
        if not is_collection(value) or isinstance(value, set | frozenset):
            return None
        items: list[Any] = list(_items(value))
        item_readers = (readers.get(kind_of(type(item))) for item in items)
        return [None if reader is None else reader(item) for reader, item in zip(item_readers, items, strict=True)]

    return read


_ALL_FLOATS = {float}


def _to_text(value: str) -> str:
    text = str.__str__(value)
    _ = text.encode()  # a lone surrogate cannot be stored
    return text


def _clamp_to_int64(value: int) -> int:
    return min(max(value, -(2**63)), 2**63 - 1)


def _round_to_int64(value: Any) -> int | None:
    if is_missing(value):
        return None
    number = float(value)
    return _clamp_to_int64(round(min(max(number, -(2.0**63)), 2.0**63)))


def floated(value: Any) -> float:
    """Return a whole number as a float, infinite beyond the range of floats."""
    number = int(value)
    if abs(number) < 2**1023:
        return float(number)
    return math.inf if number > 0 else -math.inf
