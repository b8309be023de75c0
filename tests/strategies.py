"""Hypothesis strategies for spaces and for Arrow columns that they can code."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import assume, settings
from hypothesis import strategies as st

from dpframe.errors import ColumnError, ParameterError
from dpframe.spaces import Boolean, Categorical, Datetime, Integer, Nullable, Ordinal, Real, Space, Subset, Vector
from dpframe.spaces.base import LARGEST_GRID


def examples(most: int) -> int:
    """Return how many examples are drawn of a costly property: ``most``, and fewer in a profile of fewer."""
    return max(3, most * settings().max_examples // 100)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
"""Text that UTF-8 can hold: empty, with zero bytes, and beyond the basic plane."""

TYPES = [
    pa.bool_(),
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint16(), pa.large_string()),
    pa.dictionary(pa.int32(), pa.int64()),
    pa.dictionary(pa.int16(), pa.float64(), ordered=True),
    pa.date32(),
    pa.date64(),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Kathmandu")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    pa.list_(pa.string()),
    pa.large_list(pa.string_view()),
    pa.list_(pa.dictionary(pa.int8(), pa.large_string())),
    pa.large_list(pa.int64()),
    pa.list_(pa.float64()),
    pa.list_(pa.bool_()),
]
"""Types that some space can code."""

SECONDS = {"D": 86_400, "h": 3_600, "min": 60, "s": 1, "ms": 1e-3, "us": 1e-6}


def types_of(space: Space) -> list[pa.DataType]:
    """Return those of `TYPES` that a space accepts."""
    found = []
    for type_ in TYPES:
        try:
            space.check_type(type_)
        except ColumnError:
            continue
        found.append(type_)
    return found


def category_lists(least: int = 1) -> st.SearchStrategy[tuple[Any, ...]]:
    """Return lists of categories of one type."""
    kinds = [
        TEXT,
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-120, 120),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
    ]
    return st.one_of([st.lists(kind, min_size=least, max_size=12, unique=True).map(tuple) for kind in kinds])


@st.composite
def categoricals(draw: st.DrawFn) -> Categorical:
    """Draw a Categorical, with or without ``other``."""
    categories = draw(category_lists())
    other = draw(st.sampled_from([None, *categories, *(["other one"] if isinstance(categories[0], str) else [])]))
    return Categorical(categories, other)


@st.composite
def integers(draw: st.DrawFn) -> Integer:
    """Draw an Integer anywhere within 64 bits, often near an edge of a type."""
    lower = draw(st.integers(-(2**63), 2**63 - 2) | st.integers(-300, 300))
    room = 2**63 - 1 - lower
    step = draw(st.just(1) | st.integers(1, min(room, 2**33)) | st.integers(1, min(room, 9)))
    steps = draw(st.integers(1, min(room // step, LARGEST_GRID)) | st.integers(1, min(room // step, 200)))
    return Integer(lower, lower + steps * step, step)


@st.composite
def reals(draw: st.DrawFn) -> Real:
    """Draw a Real whose grid floats can tell apart."""
    bound = st.floats(allow_nan=False, allow_infinity=False) | st.floats(-100, 100)
    lower, upper = sorted((draw(bound), draw(bound)))
    assume(lower < upper)
    try:
        return Real(lower, upper, draw(st.integers(1, 300) | st.integers(1, LARGEST_GRID)))
    except ParameterError:
        assume(False)
        raise


@st.composite
def datetimes(draw: st.DrawFn) -> Datetime:
    """Draw a Datetime of points in time or of durations, from the year 1 on."""
    resolution = draw(st.sampled_from(list(SECONDS)))
    width = dt.timedelta(seconds=SECONDS[resolution])
    grid = draw(st.sampled_from(["D", "s", "us"]))
    if draw(st.booleans()):
        lower: Any = draw(st.integers(-(10**6), 10**6)) * dt.timedelta(seconds=SECONDS[grid])
        room = dt.timedelta(days=10**6)
    else:
        lower = dt.datetime.combine(draw(st.dates(max_value=dt.date(9998, 1, 1))), dt.time())
        lower += draw(st.integers(0, 1000)) * dt.timedelta(seconds=SECONDS[grid])
        room = dt.datetime.max - lower
    assume(room >= width)
    most = min(room // width, LARGEST_GRID)
    steps = draw(st.integers(1, most) | st.integers(1, min(most, 400)))
    return Datetime(lower, lower + steps * width, resolution)


@st.composite
def subsets(draw: st.DrawFn) -> Subset:
    """Draw a Subset of few or of many items, with or without a bound and ``other``."""
    items = draw(category_lists() | st.integers(1, 140).map(lambda h: tuple(map(str, range(h)))))
    other = draw(st.sampled_from([None, items[0], *(["other one"] if isinstance(items[0], str) else [])]))
    space = Subset(items, None, other)
    return Subset(items, draw(st.none() | st.integers(1, space.count)), other)


@st.composite
def vectors(draw: st.DrawFn) -> Vector:
    """Draw a Vector of any norm and grid."""
    length, norm = draw(st.integers(1, 30)), draw(st.sampled_from(["l1", "l2", "linf"]))
    bits = draw(st.sampled_from([2, 4, 8, 16]))
    assume({"l1": length, "l2": length**0.5, "linf": 1}[norm] <= (1 << bits) - 1)
    return Vector(length, draw(st.floats(1e-6, 1e6)), norm, bits)


def plain_spaces() -> st.SearchStrategy[Space]:
    """Return spaces of every kind but Nullable."""
    ordinals = category_lists(2).map(Ordinal)
    return st.one_of(
        st.just(Boolean()), categoricals(), ordinals, integers(), reals(), datetimes(), subsets(), vectors()
    )


def spaces() -> st.SearchStrategy[Space]:
    """Return spaces of every kind."""
    return plain_spaces() | plain_spaces().map(Nullable)


@st.composite
def columns(draw: st.DrawFn, space: Space, max_size: int = 30) -> pa.Array:
    """Draw a column that a space can code: any accepted type, values outside the bounds, an offset."""
    accepted = types_of(space)
    assume(accepted)
    type_ = draw(st.sampled_from(accepted))
    codes = draw(st.lists(st.integers(0, space.size - 1), max_size=max_size))
    column = space.decode(codes, type_)
    raw = _outside(type_) if space.metric.endswith("line") and space.unit != "ranks" else None
    if raw is not None:
        column = pa.concat_arrays([column, draw(raw)])
    start = draw(st.integers(0, min(3, len(column))))
    return column[start:]


def _outside(type_: pa.DataType) -> st.SearchStrategy[pa.Array] | None:
    """Return a few values of a type, wherever the bounds may be."""
    if pa.types.is_dictionary(type_) or pa.types.is_date64(type_):
        return None
    if pa.types.is_floating(type_):
        width = type_.bit_width
        floats = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=width), max_size=8)
        return floats.map(lambda v: pa.array(np.array(v, dtype=type_.to_pandas_dtype())))
    physical = pa.int32() if pa.types.is_date32(type_) else type_ if pa.types.is_integer(type_) else pa.int64()
    info = np.iinfo(physical.to_pandas_dtype())
    whole = st.lists(st.integers(int(info.min), int(info.max)), max_size=8)
    return whole.map(lambda v: pa.array(v, physical).view(type_))
