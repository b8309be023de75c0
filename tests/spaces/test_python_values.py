"""Lists and object columns: every value is read by itself, as a typed array of such values would be."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import warnings
import zoneinfo
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from checks import SECRET, refused
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import columns, examples, spaces

from dpframe.errors import ColumnError, ParameterError
from dpframe.spaces import Boolean, Categorical, Datetime, Integer, Nullable, Ordinal, Real, Space, as_arrow

DAY = dt.timedelta(days=1)
SOON = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def unitless(kind: type[Any], value: Any) -> Any:
    """Return a time of NumPy without a unit: NumPy 2.5 deprecates to make one, but tables may hold them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return kind(value)


OBJECTS: list[tuple[Space, list[Any], str]] = [
    (Boolean(), [True, np.True_, 1], r"is no boolean, and Boolean\(\) holds nothing else; convert"),
    (Boolean(), [None, True, SECRET], "is no boolean"),
    (Boolean(), [True, pd.NA], "is null, and its space holds no nulls"),
    (Categorical(["a"]), ["a", np.str_("a"), b"a"], "holds a category outside the declared list"),
    (Categorical(["1"]), ["1", "1", 1], "holds a category outside"),
    (Categorical([1, 0]), [1, np.int8(0), True], "holds a category outside"),
    (Categorical([0.5]), [0.5, np.float32(0.5), 1], "holds a category outside"),
    (Categorical([True]), [True, np.True_, 1], "holds a category outside"),
    (Ordinal([1, 2]), [1, 2.0, SECRET], "holds a category outside"),
    (Categorical(["a"]), ["a", "a", "\ud800"], "holds a category outside"),
    (Integer(0, 9), [2**70, 1.5, True], r"is no number, and Integer\(…\) holds nothing else; convert"),
    (Integer(0, 9), [0, 1, math.inf], "is infinite; declare"),
    (Real(0, 9), [1, np.float16(2), SECRET], r"is no number, and Real\(…\) holds nothing else"),
    (Real(0, 9), [1, np.float16(2), unitless(np.timedelta64, 5)], "is no number"),
    (Datetime("2020-01-01", "2020-01-02"), [dt.date.max, dt.datetime.min, SECRET], r"is no date or timestamp, and"),
    (Datetime("2020-01-01", "2020-01-02"), [dt.date.max, dt.datetime.min, DAY], "is no date or timestamp"),
    (Datetime(0 * DAY, DAY), [DAY, pd.Timedelta("1h"), dt.date.max], "is no duration"),
    (Datetime(0 * DAY, DAY), [DAY, DAY, np.timedelta64(1, "M")], "is no duration"),
]


@pytest.mark.parametrize(("space", "values", "match"), OBJECTS)
def test_objects_that_do_not_fit_are_refused_with_their_row(space: Space, values: list[Any], match: str) -> None:
    row = len(values) - 1
    refused(ColumnError, rf"^({match}).* at row position {row}$", lambda: space.encode(values))


class Shade(str, enum.Enum):  # noqa: UP042 (not one that prints as its text)
    """Prints, and hashes, as something else than its text."""

    DARK = "a"


MIXED: list[Any] = [
    *(0, 1, 2, 3, -5, 2**53 + 1, 2**63 + 7, 2**70, -(2**70), 10**400, True, np.True_, False),
    *(0.5, 0.1, 1.0, -0.0, 2.5, math.nan, math.inf, -math.inf, 1e300, np.float16(0.1), np.float32(0.1)),
    *(np.float64(0.1), np.longdouble(0.1), np.int8(1), np.uint64(2**64 - 1)),
    *(1j, decimal.Decimal("0.1"), Fraction(1, 2)),
    *("a", "b", "1", "", "True", "2020-01-01", np.str_("a"), Shade.DARK, b"a", "\ud800", "a\x00b"),
    *(None, pd.NA, pd.NaT, decimal.Decimal("NaN")),
    *(unitless(np.datetime64, "NaT"), unitless(np.timedelta64, "NaT"), np.datetime64("NaT", "s")),
    *(dt.date(2020, 1, 2), dt.date.min, dt.date.max, dt.datetime(2020, 1, 2, 23), dt.datetime.min, dt.datetime.max),
    *(dt.datetime.min.replace(tzinfo=dt.timezone(14 * DAY / 24)), dt.datetime(2020, 1, 2, 23, tzinfo=dt.UTC)),
    *(dt.datetime(2020, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=fold) for fold in (0, 1)),
    *(pd.Timestamp("2020-01-02 23:29:59.999999999"), pd.Timestamp("2020-01-02 23:00", tz="Asia/Tokyo")),
    *(np.datetime64("2020-01-02"), np.datetime64("2020-01-02T23:29:59.999999999"), np.datetime64(2**62, "Y")),
    *(np.datetime64(-(2**62), "M"), np.datetime64(2**62, "W"), np.datetime64("2020-01-02T23", "as")),
    *(dt.timedelta(seconds=1.5), dt.timedelta.max, dt.timedelta.min, pd.Timedelta("1500000001ns")),
    *(np.timedelta64(1500, "ms"), np.timedelta64(2**62, "W"), np.timedelta64(1, "Y"), unitless(np.timedelta64, 3)),
    *(dt.time(3), [1], {}, (1, 2), {1}, object(), np.ones(2), pd.Period("2020-01"), pd.Interval(0, 1), type),
]

READERS: list[Space] = [
    *(Boolean(), Categorical(["a", "b", "1"]), Categorical(["a", "1"], other="rest"), Ordinal(["", "a", "b"])),
    *(Categorical([1, 2, 2**53 + 1], other=9), Categorical([0.1, 0.5, 1.0], other=2.5), Categorical([True, False])),
    *(Integer(0, 100), Integer(-5, 5, step=5), Integer(2**53 - 10, 2**53 + 10), Real(0, 1), Real(-1e300, 1e300)),
    *(Datetime("2020-01-01", "2020-02-01", r) for r in ("D", "h", "s")),
    Datetime("2020-10-25", "2020-10-26", "h"),  # in its night one hour comes twice, equal to Python
    *(Datetime("0001-01-01", "9999-12-31"), Datetime("2020-01-02T23:29:59", "2020-01-02T23:30:00", "ns")),
    *(Datetime(0 * DAY, 10 * DAY, "s"), Datetime(-DAY / 86400, 3 * DAY / 86400, "ns")),
]


def alone(space: Space, value: Any) -> int | None:
    """Return the code of a value in a column of its own, or None if it has none."""
    try:
        return int(space.encode([value], nulls="impute")[0])
    except ColumnError as error:
        assert error.row == 0
        return None


@pytest.mark.walk(5)
@pytest.mark.parametrize("space", [*READERS, *map(Nullable, READERS)], ids=repr)
def test_leak_no_row_of_an_object_column_changes_how_another_is_read(space: Space) -> None:
    """Over all pairs of values, in both orders: a date in row 0 once made dates of all datetimes."""
    codes = [(value, code) for value in MIXED if (code := alone(space, value)) is not None]
    assert len(codes) > 4
    for first, code in codes:
        for second, other in codes:
            assert space.encode([first, first, second], nulls="impute").tolist() == [code, code, other]
    objects = np.empty(len(codes), dtype=object)
    objects[:] = [value for value, _ in codes]
    expected = [code for _, code in codes]
    for column in (objects, pd.Series(objects), pd.Index(objects), tuple(objects)):
        assert space.encode(column, nulls="impute").tolist() == expected
    for value in MIXED:
        if alone(space, value) is None:
            with pytest.raises(ColumnError) as caught:
                space.encode([*objects, value], nulls="impute")
            assert caught.value.row == len(codes)


@SOON
@given(st.data(), st.sampled_from([*READERS, *map(Nullable, READERS)]))
def test_leak_rows_of_mixed_lists_are_read_one_by_one(data: st.DataObject, space: Space) -> None:
    times = st.datetimes(timezones=st.none() | st.timezones()) | st.dates() | st.timedeltas()
    anything = (
        st.integers(0, len(MIXED) - 1).map(MIXED.__getitem__)
        | st.integers()
        | st.floats()
        | st.floats(width=32).map(np.float32)
        | times
    )
    values = data.draw(st.lists(anything | st.text(max_size=2) | st.booleans(), max_size=12))
    codes = [alone(space, value) for value in values]
    if None in codes:
        with pytest.raises(ColumnError) as caught:
            space.encode(values, nulls="impute")
        assert caught.value.row == codes.index(None)
    else:
        assert space.encode(values, nulls="impute").tolist() == codes


@SOON
@given(st.data(), spaces())
def test_objects_have_the_codes_of_typed_arrays_of_the_same_values(data: st.DataObject, space: Space) -> None:
    array = data.draw(columns(space))
    # The least 64-bit time is a time in Arrow and null in NumPy, which the objects come from.
    assume(not (pa.types.is_temporal(array.type) and pd.isna(array.to_numpy(zero_copy_only=False)).any()))
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    texts = (pa.string(), pa.large_string(), pa.string_view())
    # NumPy makes floats of whole numbers beside nulls, which do not hold those beyond 2^53.
    rounded = pa.types.is_integer(plain.type) and plain.null_count > 0
    listed = plain.type in texts or pa.types.is_nested(plain.type) or rounded
    objects = plain.to_pylist() if listed else list(plain.to_numpy(zero_copy_only=False))
    assert space.encode(objects).tolist() == space.encode(array).tolist()
    mixed = np.empty(len(objects) + 1, dtype=object)
    mixed[:-1], mixed[-1] = objects, None
    assert space.encode(mixed, nulls="impute")[:-1].tolist() == space.encode(array).tolist()


def test_leak_object_categories_are_read_one_by_one() -> None:
    """An entry that no row has once decided how the others were read."""
    for extra in (np.float32(0.2), 0.2, "text", dt.date(2020, 1, 1)):
        entries = np.empty(2, dtype=object)
        entries[:] = [np.float32(0.1), extra]
        column = pd.Series(pd.Categorical.from_codes([0, 0, -1], pd.Index(entries, dtype=object)))
        space = Nullable(Categorical([0.1, 0.2], other=9.0))
        assert space.encode(column).tolist() == [0, 0, 3]
        assert space.encode(column.array).tolist() == [0, 0, 3]


def test_an_object_column_of_sparse_kind_is_read_one_by_one() -> None:
    column = pd.arrays.SparseArray(np.array(["a", None, 3], dtype=object))
    assert Nullable(Categorical(["a"], other="b")).encode(column).tolist() == [0, 2, 1]


def test_what_is_no_column_is_refused() -> None:
    for values in ("swordfish", b"swordfish", {"a": 1}, 5, None, np.empty((2, 2), dtype=object), np.array(None)):
        refused(ColumnError, "^is no column; pass an array", lambda v=values: Boolean().encode(v))


def test_objects_of_one_kind_become_arrow_of_that_kind() -> None:
    moments = [dt.datetime(2020, 1, 1, 5), pd.Timestamp("2020-01-01 05:00", tz="UTC"), np.datetime64("2020-01-01T05")]
    for values, type_ in [
        ([1, np.int8(2), None], pa.int64()),
        ([1, 2.5, np.float32(1)], pa.float64()),
        ([True, np.False_], pa.bool_()),
        (["a", np.str_("b"), pd.NA], pa.string()),
        ([dt.date(2020, 1, 1), pd.NaT], pa.date32()),
        (moments, pa.timestamp("us")),
        ([DAY, pd.Timedelta("1h"), np.timedelta64(1, "s")], pa.duration("us")),
        ([None, math.nan], pa.null()),
    ]:
        array = as_arrow(values)
        assert array.type == type_
        assert len(array) == len(values)
    assert len(set(as_arrow(moments).to_pylist())) == 1


def test_leak_values_do_not_stay_in_the_context_of_errors() -> None:
    """Where tracebacks are logged whole, `raise … from None` hides a foreign message but keeps it."""
    text = pd.Series(["a", f"\ud800{SECRET}"], dtype="string[python]")
    for values in (text, [1, SECRET], [f"\ud800{SECRET}"], [object(), SECRET], np.array([[SECRET]])):
        refused(ColumnError, "mixed or unsupported", lambda v=values: as_arrow(v))
    refused(ParameterError, "valid Unicode", lambda: Categorical([f"\ud800{SECRET}"]))
    refused(ParameterError, "lower must be a date", lambda: Datetime(SECRET, SECRET))


@pytest.mark.parametrize(
    "values",
    [[1, SECRET], [SECRET, 1.5], [True, 2], [object()], [10**30], [SECRET, b"x", 1], np.ones((2, 2))],
    ids=["int and text", "text and float", "bool and int", "object", "10^30", "text and bytes", "two axes"],
)
def test_mixed_and_foreign_objects_are_refused_without_a_word_of_them(values: Any) -> None:
    message = refused(
        ColumnError, "mixed or unsupported types, or beyond 64 bits; convert it", lambda: as_arrow(values)
    )
    assert not any(digit in message.replace("64", "") for digit in "0123456789")


def test_pandas_series_of_every_backing_arrive_the_same() -> None:
    for dtype in ("Int64", "int64[pyarrow]", "float64", "object"):
        assert Nullable(Integer(0, 9)).encode(pd.Series([3, None, 5], dtype=dtype)).tolist() == [3, 10, 5]
    for dtype in ("str", "string[python]", "string[pyarrow]", "object", "category", pd.ArrowDtype(pa.string())):
        series = pd.Series(["b", None, "a"], dtype=dtype, index=[5, 5, 1])
        assert Nullable(Categorical(["a", "b"])).encode(series).tolist() == [1, 2, 0]
        assert isinstance(as_arrow(series), pa.Array)


def test_whole_numbers_that_sixteen_bits_do_not_hold_are_no_categories_of_such_a_column():
    column = pa.array([np.float16(-32768)], pa.float16())
    for space in (Categorical([0, -32769]), Nullable(Ordinal([0, -32769]))):
        with pytest.raises(ColumnError, match="a list of int64 categories cannot hold"):
            space.encode(column)
    assert Categorical([0, -32768]).encode(column).tolist() == [1]


def test_no_metaclass_decides_how_an_object_is_read():
    class Metaclass(type):
        def __eq__(cls, other):
            raise RuntimeError("swordfish")

        __hash__ = __eq__

    class Whole(int, metaclass=Metaclass):
        pass

    values = np.fromiter([Whole(3), 4], dtype=object, count=2)
    assert Integer(0, 9).encode(values).tolist() == [3, 4]
    assert Integer(0, 9).encode(values, tolerant=True).tolist() == [3, 4]
    assert as_arrow(list(values)).to_pylist() == [3, 4]
