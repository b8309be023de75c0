"""Codes of objects: those of Python's own classes all at once, every other by itself.

An object's code follows only from the object. So each class is read for itself; rows that its reader is not sure of
are read one by one, and so are all refusals found, in order and independently of the rest of the column.
"""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import attrgetter, is_
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError
from dpframe.spaces.object_reading import Objects, by_type, object_words
from dpframe.spaces.python_values import is_missing

_MOST_KEPT = 1 << 16
"""Codes of more objects than these are not kept while a column is read."""

_KEPT_TYPES = (str, int, float, bool)
"""Types whose equal values have equal codes; a datetime equals another one at the end of summer time."""

_UNREADABLE = "holds an object that cannot be read, as its own code fails; convert it to a plain value"

UNKNOWN = -1
"""Code of a value that a list does not have."""

_ROWS = 1 << 14
"""Objects that are read at a time: they and what they hold stay in cache from one pass to the next."""

_SLOTS = 1 << 12
"""Objects that are known again while items of collections are coded."""

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.unsignedinteger]


class ObjectReader(Protocol):
    """What reads objects: a space."""

    def code_array(self, codes: Sequence[int]) -> Codes:
        """Return codes given as Python integers as an array."""

    def _object_code(self, value: Any, lenient: bool) -> int: ...

    def _class_codes(self, class_: type, objects: Objects, lenient: bool) -> tuple[Codes, Bools] | None: ...


def encode_objects(space: ObjectReader, values: Sequence[Any], lenient: bool) -> tuple[Codes, Bools | None]:
    """Return the code of every object (any valid one where null), and where objects are null, if any is."""
    first = space.code_array([0])
    codes, missing = np.zeros((len(values), *first.shape[1:]), dtype=first.dtype), np.zeros(len(values), dtype=np.bool_)
    alone = np.ones(len(values), dtype=np.bool_)
    for start in range(0, len(values), _ROWS):
        for class_, places, objects in by_type(values[start : start + _ROWS]):
            rows, null = places + start, np.full(len(objects), class_ is type(None))
            if class_ is float:
                null = np.isnan(objects.astype(np.float64))
            missing[rows[null]], alone[rows[null]] = True, False
            if null.any():
                rows, objects = rows[~null], objects[~null]
            found = space._class_codes(class_, objects, lenient) if len(rows) else None
            if found is not None:
                read, sure = found
                codes[rows[sure]], alone[rows[sure]] = read, False
    left = np.flatnonzero(alone)
    if len(left):
        codes[left], missing[left] = _one_by_one(space, [values[row] for row in left.tolist()], left, lenient)
    return codes, missing if missing.any() else None


def _one_by_one(
    space: ObjectReader, values: Sequence[Any], rows: npt.NDArray[np.intp], lenient: bool
) -> tuple[Codes, Bools]:
    """Return the codes of objects, each read by itself, and which of them are null."""
    codes: list[int] = []
    missing = np.zeros(len(values), dtype=np.bool_)
    # By their ids: a class may have a hash of its own.
    kept: dict[int, dict[Any, int]] = {id(kind): {} for kind in _KEPT_TYPES}
    for at, value in enumerate(values):
        known = kept.get(id(type(value)))
        code = None if known is None else known.get(value)
        if code is None:
            code_or_rule = _code_or_rule(space, value, lenient)
            if isinstance(code_or_rule, str):
                raise ColumnError(code_or_rule, row=int(rows[at]))
            missing[at] = code_or_rule is None
            code = code_or_rule or 0
            if code_or_rule is not None and known is not None and len(known) < _MOST_KEPT:
                known[value] = code
        codes.append(code)
    return space.code_array(codes), missing


def _code_or_rule(space: ObjectReader, value: Any, lenient: bool) -> int | str | None:
    """Return the code of an object, None for a null one, or the rule that it breaks."""
    try:
        return None if is_missing(value) else space._object_code(value, lenient)
    except ColumnError as error:
        return error.rule
    except Exception:  # the code of a foreign class may raise anything
        return _UNREADABLE


@dataclass(frozen=True)
class PlainCodes:
    """The codes of listed values, by objects of some plain classes; of others the hash may be foreign.

    A class that is not Python's own comes with a function that makes Python's own objects of its objects.
    """

    classes: tuple[tuple[type, Callable[[Any], Any] | None], ...]
    codes: dict[Any, int] = field(repr=False)

    def of(self, class_: type, objects: Objects) -> npt.NDArray[np.int32] | None:
        """Return the codes of objects of a class, or `UNKNOWN`; None for any other class."""
        for plain, made in self.classes:
            if plain is class_:
                keys = objects if made is None else map(made, objects)
                return np.fromiter(map(self.codes.get, keys, repeat(UNKNOWN)), dtype=np.int32, count=len(objects))
        return None

    def of_items(self, items: Objects, other: int | None) -> npt.NDArray[np.int32]:
        """Return the codes of any objects, or `UNKNOWN`; text that is not listed has the code ``other``, if any."""
        first, codes = _first_of_same(items), np.full(len(items), UNKNOWN, dtype=np.int32)
        distinct = np.flatnonzero(first == np.arange(len(items)))
        for class_, places, objects in by_type(items[distinct]):
            found = self.of(class_, objects)
            if found is not None:
                if other is not None and issubclass(class_, str):
                    found[found == UNKNOWN] = other
                codes[distinct[places]] = found
        return codes[first]


def _first_of_same(items: Objects) -> npt.NDArray[np.intp]:
    """Return for each item the place of the very same object, which is looked up for it; items are mostly few objects.

    Each slot knows one object, so that an item whose slot another one has is looked up for itself.
    """
    words, places = object_words(items), np.arange(len(items))
    slots = (words >> 4 ^ words >> 16) & (_SLOTS - 1)
    known = np.empty(_SLOTS, dtype=np.intp)
    known[slots] = places
    first = known[slots]
    return np.where(words[first] == words, first, places)


@dataclass(frozen=True)
class PlainLists:
    """Collections of objects in one row: the codes of their items, and where each collection's begin.

    ``sure`` marks collections whose items all have codes; the others are left out of ``codes`` and ``lengths``.
    """

    codes: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]
    sure: Bools

    @classmethod
    def of(cls, plain: PlainCodes, objects: Objects, other: int | None) -> PlainLists:
        """Read lists, tuples and sets; text outside the list has the code ``other``, if there is one."""
        count = len(objects)
        lengths = np.fromiter(map(len, objects), dtype=np.int64, count=count)
        items = np.fromiter(chain.from_iterable(objects), dtype=object, count=int(lengths.sum()))
        codes = plain.of_items(items, other)
        sure = np.ones(count, dtype=np.bool_)
        unknown = codes == UNKNOWN
        if unknown.any():
            owners = np.repeat(np.arange(count), lengths)
            sure[owners[unknown]] = False
            codes, lengths = codes[sure[owners]], lengths[sure]
        return cls(codes, lengths, sure)


def plain_lists(class_: type, objects: Objects, dtypes: str) -> Bools | None:
    """Return which objects of a class are lists, tuples or sets of anything; None for no such class.

    Arrays of dtypes with some letters are replaced by lists.
    """
    if any(class_ is one for one in (list, tuple, set, frozenset)):
        return np.ones(len(objects), dtype=np.bool_)
    if class_ is not np.ndarray:
        return None
    fits = [array.ndim == 1 and array.dtype.char in dtypes for array in objects]
    with uncollected():
        for at in np.flatnonzero(fits).tolist():
            objects[at] = objects[at].tolist()
    return np.array(fits)


def plain_times(class_: type, objects: Objects, duration: bool) -> tuple[pa.Array, Bools] | None:
    """Return times of Python's own classes to the microsecond, and which objects they are of; None for other classes.

    Times with a zone are left out.
    """
    sure = np.ones(len(objects), dtype=np.bool_)
    if duration:
        if class_ is not dt.timedelta:
            return None
        # Days beyond 64 bits of microseconds are left out.
        days = np.fromiter(map(attrgetter("days"), objects), dtype=np.int64, count=len(objects))
        sure = np.abs(days) < 10**8
        return pa.array(objects[sure], pa.duration("us")), sure
    if class_ is dt.date:
        return pa.array(objects, pa.date32()).cast(pa.timestamp("us")), sure
    if class_ is not dt.datetime:
        return None
    sure = np.fromiter(map(is_, map(attrgetter("tzinfo"), objects), repeat(None)), dtype=np.bool_, count=len(objects))
    return pa.array(objects[sure], pa.timestamp("us")), sure


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python from looking for garbage while very many containers are made, all of them in use.

    With a million lists in memory it would look through all of them again and again, for longer than the lists take.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
