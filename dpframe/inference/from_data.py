"""Spaces that a type determines, and spaces read off the data, without a budget: a leak that the plan records."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError
from dpframe.inference.categories import is_text, text_of
from dpframe.spaces import Boolean, Categorical, Datetime, Empty, Integer, Nullable, Real, Space, Subset, Vector
from dpframe.spaces.arrays import float_norms, float_rows, is_list_of_floats, list_lengths
from dpframe.spaces.base import LARGEST_GRID, decoded
from dpframe.spaces.field import Field

IDENTIFIER = re.compile(
    r"(^|[\W_]|(?-i:(?<=[a-z])(?=[A-Z])))"  # a word starts: also after a small letter, as in PassengerId
    r"((id|ids|uuid|guid|ssn|nino|mrn|iban|passport|e?mail|(tele)?phone|telefon|address|surname|nachname|vorname|first_?name|last_?name"
    r"|full_?name|name)"
    r"|(account|admission|badge|booking|card|case|client|contract|customer|emp|employee|enrol?ment|file|insur(ance|ed)|invoice"
    r"|licen[cs]e|matriculation|member(ship)?|nhs|order|participant|passport|patient|payroll|pers|person(al|nel)?|(tele)?phone"
    r"|policy|pupil|receipt|record|registration|respondent|security|serial|ssn|staff|student|subject|subscriber|sv|tax"
    r"|ticket|user|worker)[\W_]*(no|nr|nbr|num|number|#)\.?"
    r"|(client|customer|emp|employee|member|participant|patient|pers|person(al|nel)?|pupil|respondent|staff|student|subscriber"
    r"|user|worker)[\W_]*(code|key|ref|reference)"
    r"|\w*(ausweis|auftrags|kunden|konto|matrikel|mitglieds?|patienten|person(en|al)?|rechnungs|steuer|sv|telefon"
    r"|versicherungs|versicherten|vertrags)[\W_]*(nr\.?|nummer))$",
    re.IGNORECASE,
)
"""Names of columns that identify a row: `id`, or the number or code of a person or document, as in `member_no`."""


Reader = Callable[[str], Iterable[pa.Array]]
"""Gives the arrays of a column, in one pass."""


def from_data(column: Field, read: Reader) -> Space:
    """Return a column's space, read off its values."""
    check_is_no_identifier(column)
    try:
        return _read_space(column, read)
    except ColumnError as error:
        raise error.located(column.name) from None


def check_is_no_identifier(column: Field) -> None:
    """Raise `ColumnError` for a column whose name says that it identifies rows."""
    if IDENTIFIER.search(column.name):
        raise ColumnError(
            "looks like an identifier, which no noise makes useful; pass drop=[…], passthrough=[…] or declare "
            "its space",
            column=column.name,
        )


def unknown_type(type_: pa.DataType, name: str | None = None) -> ColumnError:
    """Return the error for a type that no space is known for."""
    is_records = pa.types.is_nested(type_) and type_.num_fields == 1 and pa.types.is_struct(type_.field(0).type)
    space = "declare dpf.Records({FIELD: space}, max_rows=…)" if is_records else "declare its space"
    message = f"has type {type_}, for which no space is known; pass drop=[…], passthrough=[…] or {space}"
    return ColumnError(message, column=name)


def _read_space(column: Field, reader: Reader) -> Space:
    """Return a column's space by the reader of its type."""
    arrays = iter(reader(column.name))
    first_array = next(arrays, pa.nulls(0, column.type))
    type_ = first_array.type.value_type if pa.types.is_dictionary(first_array.type) else first_array.type
    finder = next((find for fits, find in FINDERS if fits(type_)), None)
    if finder is None:
        raise unknown_type(type_)
    nulls = 0

    def clean_arrays() -> Iterator[pa.Array]:
        """Yield the arrays without infinities and NaN, and count their nulls."""
        nonlocal nulls
        for array in chain([first_array], arrays):
            array = decoded(array)
            if pa.types.is_floating(array.type):
                # Arrow compares no half floats.
                array = array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
                array = pc.if_else(pc.is_finite(array), array, pa.scalar(None, array.type))
            nulls += array.null_count
            yield array

    space = finder(type_, clean_arrays())
    return Nullable(space) if nulls and column.nullable else space


def _find_extremes(arrays: Iterable[pa.Array], empty: Any) -> tuple[Any, Any]:
    """Return the least and largest value of some arrays, or ``empty`` twice."""
    low = high = None
    for array in arrays:
        ends = pc.min_max(array).as_py()
        if ends["min"] is not None:
            low = ends["min"] if low is None else min(low, ends["min"])
            high = ends["max"] if high is None else max(high, ends["max"])
    return (empty, empty) if low is None else (low, high)


def _boolean_space(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    """Return the space of truth values; reads all arrays, so that their nulls are counted."""
    for _ in arrays:
        pass
    return Boolean()


def integers(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    """Return the space of integers between the extremes of some arrays."""
    low, high = (min(value, 2**63 - 1) for value in _find_extremes(arrays, 0))
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
    max_size = float(np.finfo(type_.to_pandas_dtype()).max) / 5
    low, high = (min(max(value, -max_size), max_size) for value in _find_extremes(arrays, 0.0))
    try:
        return Real.fitting(low, high, type_)
    except (ParameterError, ColumnError):
        # The values are equal, or too close for a grid between them.
        width = max(1.0, abs(low), abs(high))
        wider_bounds = (low, max(high, low + width)) if low >= 0 else (min(low, high - width), high)
        return Real.fitting(*wider_bounds, type_)


_YEAR_LIMITS_S = (-62_135_596_800, 253_402_300_799)
"""Seconds since 1970 of the first and last time of the years 1 to 9999 (limit of the format)."""


_DURATION_LIMITS_S = (-999_999_999 * 86_400, 999_999_999 * 86_400)
"""Seconds of the least and greatest `datetime.timedelta` (limit of the format)."""


def times(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    """Return the space of dates, timestamps or durations between the extremes of some arrays."""
    duration = pa.types.is_duration(type_)
    physical = pa.int32() if pa.types.is_date32(type_) else pa.int64()
    ticks = _find_extremes((array.view(physical) for array in arrays), 0)
    per_second, seconds = {"D": (1, 86_400), "s": (1, 1), "ms": (1000, 1), "us": (10**6, 1), "ns": (10**9, 1)}[
        "D" if pa.types.is_date32(type_) else "ms" if pa.types.is_date64(type_) else type_.unit
    ]
    # Python's own limits, years 1 to 9999 or a billion days, and the type's; times beyond are clamped.
    max_seconds = (2**63 - 1) * seconds // per_second
    min_seconds, max_time = _DURATION_LIMITS_S if duration else _YEAR_LIMITS_S
    lower_limit, upper_limit = max(-max_seconds, min_seconds), min(max_seconds, max_time)
    low, high = (
        min(max(tick * seconds // per_second, lower_limit), upper_limit)
        for tick in (ticks[0], ticks[1] + per_second - 1)
    )
    widths = {"D": 86_400} if pa.types.is_date(type_) else {"s": 1, "h": 3_600, "D": 86_400}
    resolution, width = next((r, w) for r, w in widths.items() if (high - low) // w <= LARGEST_GRID // 2)
    start = min(max(low // width, -(-lower_limit // width)), upper_limit // width - 1)
    stop = max(start + 1, min(-(-high // width), upper_limit // width))
    origin = dt.timedelta(0) if duration else dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    lower, upper = (origin + dt.timedelta(seconds=edge * width) for edge in (start, stop))
    return Datetime(lower, upper, resolution)


def _time_of_day_space(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    """Return the space of times of day between the extremes of some arrays."""
    duration = pa.duration(type_.unit)
    space: Any = times(duration, (array.view(pa.int64()).view(duration) for array in arrays))
    return cast(Space, space.within_day())


_MIN_NORM = 1e-90
"""Least bound of vectors that is read off the data, and the inverse of the largest (limit of the format)."""

_ITEM_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_integer,
    pa.types.is_boolean,
)


def _holds_sets(type_: pa.DataType) -> bool:
    """Return whether a type has lists of possible items; numbers with fractions are measurements, not items."""
    if not any(fits(type_) for fits in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)):
        return False
    inner = type_.value_type.value_type if pa.types.is_dictionary(type_.value_type) else type_.value_type
    return any(fits(inner) for fits in _ITEM_TYPES)


def _set_space(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    """Return the space of sets of all items, as large as the largest set."""
    items: set[Any] = set()
    max_items = 1
    for array in arrays:
        items.update(_distinct_values(array.flatten()))
        max_items = max(max_items, pc.max(pc.list_value_length(array)).as_py() or 0)
    inner = type_.value_type.value_type if pa.types.is_dictionary(type_.value_type) else type_.value_type
    placeholder = False if pa.types.is_boolean(inner) else 0 if pa.types.is_integer(inner) else "other"
    space = Subset(tuple(sorted(items - {None})) or (placeholder,), other="other" if placeholder == "other" else None)
    return Subset(space.items, min(max_items, space.count), space.other)


def _vector_space(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    """Return the space of vectors with the lists' length and largest norm."""
    lengths = {type_.list_size} if pa.types.is_fixed_size_list(type_) else set()
    largest = 0.0
    for array in arrays:
        lengths |= set(np.unique(list_lengths(array)).tolist()) - {-1}
        if len(lengths) > 1 or 0 in lengths:
            raise ColumnError(
                "holds lists of different lengths or none, which no space holds; cut or fill them, or pass drop=[…]"
            )
        if lengths:
            norms = float_norms(float_rows(array, max(lengths))[0])
            largest = max(largest, float(norms[np.isfinite(norms)].max(initial=0.0)))
    return Vector(max(lengths, default=1), min(max(largest, _MIN_NORM), 1 / _MIN_NORM) if largest else 1.0)


def texts(type_: pa.DataType, arrays: Iterable[pa.Array]) -> Space:
    """Return the space of a column of text."""
    values: set[Any] = set()
    for array in arrays:
        values.update(_distinct_values(array))
    return Categorical(tuple(sorted(values - {None})) or ("other",), other="other")


def _distinct_values(array: pa.Array) -> Iterable[Any]:
    """Return the distinct values of an array; text only if it is valid Unicode."""
    unique_values = pc.unique(array)
    if pa.types.is_dictionary(unique_values.type):
        unique_values = unique_values.cast(unique_values.type.value_type)
    if not is_text(unique_values.type):
        return list(unique_values.to_pylist())
    return map(text_of, unique_values.drop_null().cast(pa.large_string()).cast(pa.large_binary()).to_pylist())


FINDERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, Iterable[pa.Array]], Space]]] = [
    (pa.types.is_boolean, _boolean_space),
    (pa.types.is_integer, integers),
    (pa.types.is_floating, reals),
    (pa.types.is_date, times),
    (pa.types.is_timestamp, times),
    (pa.types.is_duration, times),
    (pa.types.is_time64, _time_of_day_space),
    (pa.types.is_string, texts),
    (pa.types.is_large_string, texts),
    (pa.types.is_string_view, texts),
    (_holds_sets, _set_space),
    (is_list_of_floats, _vector_space),
]


def from_type(column: Field) -> Space | None:
    """Return the space that a type determines."""
    space: Space
    if column.empty:
        return Empty()
    if pa.types.is_boolean(column.type):
        space = Boolean()
    elif pa.types.is_int8(column.type):
        space = Integer(-128, 127)
    elif pa.types.is_uint8(column.type):
        space = Integer(0, 255)
    elif column.of_day:
        space = Datetime("00:00", "23:59", "min").in_durations()
    else:
        return None
    return Nullable(space) if column.nullable else space


def any_space(column: Field) -> Space:
    """Return some space that a column's type allows, as a stand-in before inference."""
    type_ = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    finder = next((find for fits, find in FINDERS if fits(type_)), texts)
    return from_type(replace(column, nullable=False)) or finder(type_, ())
