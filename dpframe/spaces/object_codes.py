"""Codes of objects: Python's own classes in bulk, all others one by one.

An object's code follows only from the object. So each class is read separately; rows that the class's reader cannot
code are read one by one. Errors are found in this way too, in order and independently of the other rows.
"""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter, is_
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError
from dpframe.spaces.object_reading import CachedReader, FlatItems, Objects, by_type, is_plain_collection, object_words
from dpframe.spaces.python_values import is_missing

_UNREADABLE = "holds an object that cannot be read, as its own code fails; convert it to a plain value"

UNKNOWN_CODE = -1
"""Code of a value that a list does not have."""

_OBJECT_CHUNK_ROWS = 1 << 14
"""Number of objects that are read at a time, so that they and their items stay in cache."""

_SLOTS = 1 << 12
"""Number of objects whose place is remembered while items of collections are coded."""

T = TypeVar("T")
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.unsignedinteger]


class ObjectReader(Protocol):
    """A reader of objects: a space."""

    def code_array(self, codes: Sequence[int]) -> Codes:
        """Return codes given as Python integers as an array."""

    def _object_code(self, value: Any, lenient: bool) -> int: ...

    def _class_codes(self, class_: type, objects: Objects, lenient: bool) -> tuple[Codes, Bools] | None: ...


def encode_objects(space: ObjectReader, values: Sequence[Any], lenient: bool) -> tuple[Codes, Bools | None]:
    """Return the code of every object (any valid code for null), and a mask of nulls, or None without nulls."""
    example_code = space.code_array([0])
    codes, missing = (
        np.zeros((len(values), *example_code.shape[1:]), dtype=example_code.dtype),
        np.zeros(len(values), dtype=np.bool_),
    )
    is_unread = np.ones(len(values), dtype=np.bool_)
    for start in range(0, len(values), _OBJECT_CHUNK_ROWS):
        for class_, places, objects in by_type(values[start : start + _OBJECT_CHUNK_ROWS]):
            rows, is_null = places + start, np.full(len(objects), class_ is type(None))
            # NaN is null, and is found for all floats at once.
            if class_ is float:
                is_null = np.isnan(objects.astype(np.float64))
            missing[rows[is_null]], is_unread[rows[is_null]] = True, False
            if is_null.any():
                rows, objects = rows[~is_null], objects[~is_null]
            class_codes = space._class_codes(class_, objects, lenient) if len(rows) else None
            if class_codes is not None:
                row_codes, is_coded = class_codes
                codes[rows[is_coded]], is_unread[rows[is_coded]] = row_codes, False
    unread_rows = np.flatnonzero(is_unread)
    if len(unread_rows):
        codes[unread_rows], missing[unread_rows] = _encode_one_by_one(
            space, [values[row] for row in unread_rows.tolist()], unread_rows, lenient
        )
    return codes, missing if missing.any() else None


def _encode_one_by_one(
    space: ObjectReader, values: Sequence[Any], rows: npt.NDArray[np.intp], lenient: bool
) -> tuple[Codes, Bools]:
    """Return the codes of objects, read one by one, and a mask of nulls."""
    results = np.empty(len(values), dtype=object)

    def read(value: Any) -> int | str | None:
        return value_or_rule(value, lambda v: space._object_code(v, lenient), _UNREADABLE)

    for class_, places, objects in by_type(values):
        # Another cache for each class, as 1 equals True.
        results[places] = CachedReader(read).each(class_, objects)
    for row, result in zip(rows.tolist(), results, strict=True):
        if isinstance(result, str):
            raise ColumnError(result, row=row)
    missing = np.fromiter((result is None for result in results), dtype=np.bool_, count=len(results))
    return space.code_array([result or 0 for result in results]), missing


def value_or_rule(value: Any, read: Callable[[Any], T], unreadable: str) -> T | str | None:
    """Return the result of a reader for an object, None for null, or the violated rule."""
    try:
        return None if is_missing(value) else read(value)
    except ColumnError as error:
        return error.rule
    except Exception:  # the code of a foreign class may raise anything
        return unreadable


@dataclass(frozen=True)
class PlainCodes:
    """The codes of listed values, by objects of plain classes; other classes may define their own hash.

    A class that is not Python's own comes with a function that converts its objects to Python's own.
    """

    classes: tuple[tuple[type, Callable[[Any], Any] | None], ...]
    codes: dict[Any, int] = field(repr=False)

    def of(self, class_: type, objects: Objects) -> npt.NDArray[np.int32] | None:
        """Return the codes of objects of a class, or `UNKNOWN_CODE`; None for any other class."""
        for plain_class, convert in self.classes:
            if plain_class is class_:
                keys = objects if convert is None else map(convert, objects)
                return np.fromiter(map(self.codes.get, keys, repeat(UNKNOWN_CODE)), dtype=np.int32, count=len(objects))
        return None

    def of_items(self, items: Objects, other: int | None) -> npt.NDArray[np.int32]:
        """Return the codes of any objects, or `UNKNOWN_CODE`; text that is not listed has the code ``other``."""
        first_places, codes = _find_first_places(items), np.full(len(items), UNKNOWN_CODE, dtype=np.int32)
        distinct_places = np.flatnonzero(first_places == np.arange(len(items)))
        for class_, places, objects in by_type(items[distinct_places]):
            class_codes = self.of(class_, objects)
            if class_codes is not None:
                if other is not None and issubclass(class_, str):
                    class_codes[class_codes == UNKNOWN_CODE] = other
                codes[distinct_places[places]] = class_codes
        return codes[first_places]


def _find_first_places(items: Objects) -> npt.NDArray[np.intp]:
    """Return for each item the first place of its object, so that repeated objects are looked up once.

    Each slot remembers one object; an item whose slot has another object is looked up by itself.
    """
    words, places = object_words(items), np.arange(len(items))
    slots = (words >> 4 ^ words >> 16) & (_SLOTS - 1)
    slot_places = np.empty(_SLOTS, dtype=np.intp)
    slot_places[slots] = places
    first_places = slot_places[slots]
    return np.where(words[first_places] == words, first_places, places)


@dataclass(frozen=True)
class PlainLists:
    """Collections of objects as one array of item codes, and the number of items of each collection.

    ``sure`` marks collections whose items all have codes; other collections are left out of ``codes`` and ``lengths``.
    """

    codes: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]
    sure: Bools

    @classmethod
    def of(cls, plain: PlainCodes, objects: Objects, other: int | None) -> PlainLists:
        """Read lists, tuples and sets; text outside the list has the code ``other``, if there is one."""
        lists = FlatItems.of(objects)
        codes, lengths = plain.of_items(lists.items, other), lists.lengths
        is_coded = np.ones(len(objects), dtype=np.bool_)
        is_unknown = codes == UNKNOWN_CODE
        if is_unknown.any():
            owners = lists.owners
            is_coded[owners[is_unknown]] = False
            codes, lengths = codes[is_coded[owners]], lengths[is_coded]
        return cls(codes, lengths, is_coded)


def plain_lists(class_: type, objects: Objects, dtypes: str) -> Bools | None:
    """Return a mask of the objects that are lists, tuples or sets; None for other classes.

    One-dimensional arrays whose dtype character is in ``dtypes`` are replaced by lists.
    """
    if is_plain_collection(class_):
        return np.ones(len(objects), dtype=np.bool_)
    if class_ is not np.ndarray:
        return None
    is_list = [array.ndim == 1 and array.dtype.char in dtypes for array in objects]
    with uncollected():
        for row in np.flatnonzero(is_list).tolist():
            objects[row] = objects[row].tolist()
    return np.array(is_list)


def plain_times(class_: type, objects: Objects, duration: bool) -> tuple[pa.Array, Bools] | None:
    """Return times of Python's own classes in microseconds, and a mask of their objects; None for other classes.

    Times with a zone are left out.
    """
    is_coded = np.ones(len(objects), dtype=np.bool_)
    if duration:
        if class_ is not dt.timedelta:
            return None
        # Days beyond 64 bits of microseconds are left out.
        days = np.fromiter(map(attrgetter("days"), objects), dtype=np.int64, count=len(objects))
        is_coded = np.abs(days) < 10**8
        return pa.array(objects[is_coded], pa.duration("us")), is_coded
    if class_ is dt.date:
        return pa.array(objects, pa.date32()).cast(pa.timestamp("us")), is_coded
    if class_ is not dt.datetime:
        return None
    is_coded = np.fromiter(
        map(is_, map(attrgetter("tzinfo"), objects), repeat(None)), dtype=np.bool_, count=len(objects)
    )
    return pa.array(objects[is_coded], pa.timestamp("us")), is_coded


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable Python's garbage collection while very many containers are made, all of them in use.

    With a million lists in memory, repeated collections take longer than the creation of the lists.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
