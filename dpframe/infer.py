"""Where the space of a column comes from when it is not declared."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError, PlanError, PrivacyLeakWarning, name_list, warn
from dpframe.plan import Plan
from dpframe.spaces import Boolean, Categorical, Datetime, Integer, Nullable, Real, Space, Subset, as_space
from dpframe.spaces.base import LARGEST_GRID

__all__ = ["IDENTIFIER", "INFER", "Field", "any_space", "from_type", "infer_spaces", "integers", "reals", "times"]

INFER = ("private", "public", "data")

IDENTIFIER = re.compile(
    r"(^|[\W_])(id|ids|uuid|guid|ssn|nino|iban|passport|e?mail|phone|address|surname|first_?name|last_?name"
    r"|full_?name|name)$",
    re.IGNORECASE,
)

Reader = Callable[[str], Iterable[pa.Array]]
"""Gives the arrays of a column, in one pass."""


@dataclass(frozen=True)
class Field:
    """What is public about a column: its name, Arrow type and whether nulls may occur.

    ``order`` has the values of an ordered dictionary of text, in their order: a declaration.
    """

    name: str
    type: pa.DataType
    nullable: bool
    order: tuple[str, ...] = ()


def infer_spaces(
    columns: Sequence[Field],
    spaces: Mapping[str, Any] | Plan | None,
    infer: str,
    read: Reader,
) -> tuple[dict[str, Space], list[Field], list[str]]:
    """Return the spaces that are known, the columns left to private inference, and leaks.

    Parameters
    ----------
    columns
        The columns to randomise.
    spaces
        Declarations by column name (`as_space`), or a plan whose spaces are taken, and its leaks with them.
    infer
        ``"private"``: undeclared columns are left, unless their type says all. ``"public"``: undeclared columns
        only where the type itself says the space (booleans, 8-bit integers). ``"data"``: read off the data, with
        a `PrivacyLeakWarning`.
    read
        Gives a column's data; called with ``infer="data"`` only.

    Raises
    ------
    ParameterError
        For an unknown mode, a declared column that is not there, or columns without a space: one message
        for all of them, with the declaration to paste.
    """
    if infer not in INFER:
        raise ParameterError('infer must be "private", "public" or "data"; declare spaces={…} to need none')
    declared = _declared(spaces)
    names = [column.name for column in columns]
    stray = [name for name in declared if name not in names]
    if stray and not isinstance(spaces, Plan):
        raise ParameterError(
            f"spaces names {stray[0]!r}, which is not a column to randomise; columns are {name_list(names)}"
        )
    found: dict[str, Space] = {}
    missing: list[Field] = []
    for column in columns:
        space = _declared_space(column, declared) if column.name in declared else from_type(column)
        if space is None or (infer == "private" and column.name not in declared and column.nullable):
            missing.append(column)
        else:
            found[column.name] = space
    if missing and infer == "public":
        raise ParameterError(_request(missing))
    fresh = [column.name for column in missing if infer == "data"]
    for column in missing:
        if column.name in fresh:
            found[column.name] = _from_data(column, read)
    # A plan's spaces tell no less of the data for having been read off it earlier.
    earlier = [name for name in (spaces.leaks if isinstance(spaces, Plan) else ()) if name in names]
    for leaks, when in ((fresh, "were read off the data"), (earlier, "were read off the data earlier")):
        if leaks:
            warn(
                f"spaces of {name_list(leaks)} {when}: the guarantee does not cover what their "
                "bounds and categories reveal; declare them with spaces={…}",
                PrivacyLeakWarning,
            )
    left = [column for column in missing if column.name not in fresh]
    return found, left, [name for name in names if name in fresh or name in earlier]


def _declared(spaces: Mapping[str, Any] | Plan | None) -> Mapping[str, Any]:
    if isinstance(spaces, Plan):
        return {column.name: column.space for column in spaces.columns}
    if spaces is None:
        return {}
    if not isinstance(spaces, Mapping):
        raise ParameterError("spaces must be a mapping {column: space}, or a plan")
    return spaces


def _declared_space(column: Field, declared: Mapping[str, Any]) -> Space:
    inner = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    type_ = None if pa.types.is_null(inner) else column.type
    try:
        space = as_space(declared[column.name], type_)
        if type_ is not None:
            space.check_type(type_)
    except ColumnError as error:
        raise error.located(column.name) from None
    except (ParameterError, PlanError) as error:
        raise type(error)(f"column {column.name!r}: {error}") from None
    return space


def from_type(column: Field) -> Space | None:
    """Return the space that a type alone says."""
    space: Space
    if pa.types.is_boolean(column.type):
        space = Boolean()
    elif pa.types.is_int8(column.type):
        space = Integer(-128, 127)
    elif pa.types.is_uint8(column.type):
        space = Integer(0, 255)
    else:
        return None
    return Nullable(space) if column.nullable else space


def any_space(column: Field) -> Space:
    """Return a space that a column's type allows, whatever its values: a stand-in for the one that is to be found."""
    type_ = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    finder = next((find for fits, find in _FINDERS if fits(type_)), _texts)
    return from_type(Field(column.name, column.type, False)) or finder(type_, ())


def _request(columns: Sequence[Field]) -> str:
    """Return one line that asks for every missing declaration, with placeholders and never data."""
    entries = ", ".join(f"{column.name!r}: {_placeholder(column.type)}" for column in columns)
    return (
        f"{len(columns)} column{'s need' if len(columns) > 1 else ' needs'} a declared space; fill in and pass "
        f"spaces={{{entries}}} (Nullable(…) around a space keeps nulls), or name them in drop=[…] or "
        "passthrough=[…], or let them be found with infer='private', or accept a leak with infer='data'"
    )


def _placeholder(type_: pa.DataType) -> str:
    t = pa.types
    if t.is_integer(type_) or t.is_floating(type_):
        return "(LOWER, UPPER)"
    if t.is_temporal(type_):
        return "(FROM, TO)"
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return "Subset([ITEM, …])"
    if t.is_string(type_) or t.is_large_string(type_) or t.is_dictionary(type_) or t.is_string_view(type_):
        return "[CATEGORY, …]"
    return "SPACE"


def _from_data(column: Field, read: Reader) -> Space:
    name = column.name
    if IDENTIFIER.search(name):
        raise ColumnError(
            "looks like an identifier, which no noise makes useful; pass drop=[…], passthrough=[…] or declare "
            "its space",
            column=name,
        )
    try:
        return _found(column, read)
    except ColumnError as error:
        raise error.located(name) from None


def _found(column: Field, read: Reader) -> Space:
    arrays = iter(read(column.name))
    first = next(arrays, pa.nulls(0, column.type))
    type_ = first.type.value_type if pa.types.is_dictionary(first.type) else first.type
    finder = next((find for fits, find in _FINDERS if fits(type_)), None)
    if finder is None:
        raise ColumnError(
            f"has type {type_}, for which no space is known; pass drop=[…], passthrough=[…] or declare its space"
        )
    nulls = 0

    def counted() -> Iterator[pa.Array]:
        nonlocal nulls
        for array in _chain(first, arrays):
            array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            if pa.types.is_floating(array.type):
                # Arrow compares no half floats.
                array = array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
                array = pc.if_else(pc.is_finite(array), array, pa.scalar(None, array.type))
            nulls += array.null_count
            yield array

    space = finder(type_, counted())
    return Nullable(space) if nulls and column.nullable else space


def _chain(first: pa.Array, rest: Iterator[pa.Array]) -> Iterator[pa.Array]:
    yield first
    yield from rest


def _extremes(arrays: Iterable[pa.Array], empty: Any) -> tuple[Any, Any]:
    low = high = None
    for array in arrays:
        found = pc.min_max(array).as_py()
        if found["min"] is not None:
            low = found["min"] if low is None else min(low, found["min"])
            high = found["max"] if high is None else max(high, found["max"])
    return (empty, empty) if low is None else (low, high)


def _booleans(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    for _ in arrays:
        pass
    return Boolean()


def integers(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    """Return the space of integers between the extremes of some arrays."""
    low, high = (min(value, 2**63 - 1) for value in _extremes(arrays, 0))
    step = -(-max(1, high - low) // LARGEST_GRID)
    span = step * max(1, -(-(high - low) // step))
    info = np.iinfo(type_.to_pandas_dtype())
    if low + span <= min(int(info.max), 2**63 - 1):
        return Integer(low, low + span, step)
    # A grid that ends beyond the type's largest value starts below the smallest value, or is a step shorter.
    return Integer(high - span, high, step) if high - span >= info.min else Integer(low, low + span - step, step)


def reals(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    """Return the space of floats between the extremes of some arrays."""
    # Well below the largest float, so that twice the range is finite too; values beyond are clamped.
    most = float(np.finfo(type_.to_pandas_dtype()).max) / 5
    low, high = (min(max(value, -most), most) for value in _extremes(arrays, 0.0))
    try:
        return Real.fitting(low, high, type_)
    except (ParameterError, ColumnError):
        # All values alike, or so near that no grid fits between them.
        width = max(1.0, abs(low), abs(high))
        wider = (low, max(high, low + width)) if low >= 0 else (min(low, high - width), high)
        return Real.fitting(*wider, type_)


_YEARS = (-62_135_596_800, 253_402_300_799)
_DAYS = (-999_999_999 * 86_400, 999_999_999 * 86_400)


def times(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    """Return the space of dates, timestamps or durations between the extremes of some arrays."""
    duration = pa.types.is_duration(type_)
    physical = pa.int32() if pa.types.is_date32(type_) else pa.int64()
    ticks = _extremes((array.view(physical) for array in arrays), 0)
    per_second, seconds = {"D": (1, 86_400), "s": (1, 1), "ms": (1000, 1), "us": (10**6, 1), "ns": (10**9, 1)}[
        "D" if pa.types.is_date32(type_) else "ms" if pa.types.is_date64(type_) else type_.unit
    ]
    # Python's own limits, years 1 to 9999 or a billion days, and the type's; times beyond are clamped.
    most = (2**63 - 1) * seconds // per_second
    least, latest = _DAYS if duration else _YEARS
    first, last = max(-most, least), min(most, latest)
    low, high = (min(max(tick * seconds // per_second, first), last) for tick in (ticks[0], ticks[1] + per_second - 1))
    widths = {"D": 86_400} if pa.types.is_date(type_) else {"s": 1, "h": 3_600, "D": 86_400}
    resolution, width = next((r, w) for r, w in widths.items() if (high - low) // w <= LARGEST_GRID // 2)
    start = min(max(low // width, -(-first // width)), last // width - 1)
    stop = max(start + 1, min(-(-high // width), last // width))
    origin = dt.timedelta(0) if duration else dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    lower, upper = (origin + dt.timedelta(seconds=edge * width) for edge in (start, stop))
    return Datetime(lower, upper, resolution)


_ITEMS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_integer,
    pa.types.is_boolean,
)


def _holds_sets(type_: pa.DataType) -> bool:
    """Tell whether a column holds lists of what can be an item; numbers with fractions are measurements."""
    if not any(fits(type_) for fits in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)):
        return False
    inner = type_.value_type.value_type if pa.types.is_dictionary(type_.value_type) else type_.value_type
    return any(fits(inner) for fits in _ITEMS)


def _sets(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    items: set[Any] = set()
    most = 1
    for array in arrays:
        items.update(pc.unique(array.flatten()).to_pylist())
        most = max(most, pc.max(pc.list_value_length(array)).as_py() or 0)
    inner = type_.value_type.value_type if pa.types.is_dictionary(type_.value_type) else type_.value_type
    only = False if pa.types.is_boolean(inner) else 0 if pa.types.is_integer(inner) else "other"
    space = Subset(tuple(sorted(items - {None})) or (only,), other="other" if only == "other" else None)
    return Subset(space.items, min(most, space.count), space.other)


def _texts(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    values: set[Any] = set()
    for array in arrays:
        values.update(pc.unique(array).to_pylist())
    return Categorical(tuple(sorted(values - {None})) or ("other",), other="other")


_FINDERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, Iterable[pa.Array]], Space]]] = [
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, integers),
    (pa.types.is_floating, reals),
    (pa.types.is_date, times),
    (pa.types.is_timestamp, times),
    (pa.types.is_duration, times),
    (pa.types.is_string, _texts),
    (pa.types.is_large_string, _texts),
    (pa.types.is_string_view, _texts),
    (_holds_sets, _sets),
]
