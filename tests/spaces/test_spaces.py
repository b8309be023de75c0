"""Spaces: coding, metric, clamping, nulls, shorthands, refusals."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from checks import check_space, refused, sampled_codes, stored_under_nulls
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import columns, datetimes, examples, integers, reals, spaces, types_of

from dpframe.api.verbs import plan as plan_of
from dpframe.errors import ColumnError, ParameterError, PlanError
from dpframe.spaces import (
    SPACES,
    Boolean,
    Categorical,
    Curve,
    Datetime,
    Empty,
    Integer,
    Nullable,
    Ordinal,
    Real,
    Space,
    Subset,
    Vector,
    as_space,
    space_from_json,
)

DAY = dt.timedelta(days=1)
SOON = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
SECRET = "swordfish"


def times(*texts: str | None, type_: pa.DataType = pa.timestamp("s")) -> pa.Array:  # noqa: B008
    """Return ISO texts as an Arrow array."""
    return pa.array(texts).cast(pa.timestamp("ns")).cast(type_, safe=False)


EXAMPLES: list[tuple[Space, Any]] = [
    (Boolean(), [True, False, False, True, True]),
    (Empty(), [None, None]),
    (Categorical(["F", "M"]), ["M", "F", "F", "M"]),
    (Categorical(["only"]), ["only"] * 3),
    (Categorical(["a", "b"], other="other"), ["b", "zebra", "a", "", "other"]),
    (Categorical(["a", "b"], other="b"), ["b", "zebra", "a"]),
    (Categorical(["", "ß", "日本", "🦓", "a\x00b"]), ["🦓", "", "a\x00b", "日本"]),
    (Categorical([3, 1, 2]), pa.array([1, 2, 3, 3], pa.int16())),
    (Categorical([0.5, -1.0, 1e300]), [1e300, 0.5, -1.0]),
    (Categorical([True, False]), [False, True, True]),
    (Categorical(range(1000)), pa.array([999, 0, 127, 128, 255, 256])),
    (Categorical(["a", "b"]), pa.array(["b", "a", "b"], pa.string_view())),
    (Categorical(["a", "b"]), pa.array(["b", "a", "b"], pa.large_string())),
    (Categorical(["a", "b"]), pa.array(["b", "a", "b"]).dictionary_encode()),
    (Ordinal(["low", "middle", "high"]), ["high", "low", "middle", "low"]),
    (Ordinal([1, 5, 25]), [25, 1, 5]),
    (Integer(0, 120), [-5, 0, 33, 120, 400, 2**62]),
    (Integer(-20, 100, step=5), [-100, -23, -22, -20, 0, 2, 3, 97, 98, 1000]),
    (Integer(-100, 100), pa.array([-128, 127, 0, -1], pa.int8())),
    (Integer(0, 255), pa.array([0, 255, 7], pa.uint8())),
    (Integer(2**62, 2**62 + 9), pa.array([0, 2**62 + 3, 2**64 - 1], pa.uint64())),
    (Integer(-5, 5), pa.array([-1e300, -5.5, 0.49, 2.51, 1e300])),
    (Integer(0, 2**32 - 1), [-1, 0, 2**31, 2**32 - 1, 2**32]),
    (Integer(-(2**63), 2**63 - 1, step=2**32 + 1), [-(2**63), -1, 0, 1, 2**63 - 1]),
    (Integer(3, 7), pa.array([3, 7, 100, -100]).dictionary_encode()),
    (Real(-1.5, 2.5, steps=7), [-9.0, -1.5, 0.1, 2.5, 1e300]),
    (Real(0.1, 0.7, steps=3), pa.array([0.0, 0.1, 0.3, 0.7, 1.0], pa.float32())),
    (Real(0.0, 100.0, steps=50), pa.array(np.array([-60000, 0, 99.5, 60000], dtype=np.float16))),
    (Real(-1e300, 1e300), [-1e308, 0.0, 5e-324, 1e308]),
    (Real(0.0, 1.0, steps=2**32 - 1), [0.0, 0.5, 1.0]),
    (Datetime("1960-02-28", "2020-03-01"), pa.array([-(2**31), -3000, 0, 18000, 2**31 - 1], pa.int32()).view("date32")),
    (Datetime("1960-01-01", "2020-03-01"), pa.array([-(10**15), -1, 0, 10**15]).view(pa.date64())),
    (Datetime("1969-12-31", "1970-01-02", "s"), times("1950-01-01", "1969-12-31T23:59:59", "1970-01-01T12:00:01")),
    (
        Datetime("1969-12-31", "1970-01-02", "h"),
        times("1969-12-31T00:29:59", "1969-12-31T00:30", type_=pa.timestamp("ms")),
    ),
    (
        Datetime("2020-01-01", "2020-01-02", "min"),
        times("2020-01-01T07:15", type_=pa.timestamp("us", "Asia/Kathmandu")),
    ),
    (
        Datetime("2020-01-01", "2020-01-01T00:00:01", "us"),
        times("2020-01-01T00:00:00.000007", type_=pa.timestamp("ns")),
    ),
    (Datetime(-DAY, 2 * DAY, "ms"), pa.array([-(2**63), -1, 0, 5 * 10**9, 2**63 - 1]).view(pa.duration("us"))),
    (Datetime("2000-01-01T00:00:01", "2000-02-01T00:00:01", "D"), times("2000-01-01", "2000-01-02T12:00:00")),
    (
        Datetime("2000-01-01T00:00:00.000007", "2000-01-01T01:00:00.000007", "s"),
        times("2000-01-01", type_=pa.timestamp("us")),
    ),
    (Subset(["a", "b", "c"]), [["b", "a"], [], ["c"], ["a", "b", "c"]]),
    (Subset(["a", "b", "c"], max_size=2), [["b", "a"], [], ["c"], ["a", "b", "c"]]),
    (Subset(["a"], other="b"), [["zebra", "a", "yak"], ["b"], []]),
    (Subset([3, 1, 2], other=7), pa.array([[1, 2], [9, 8], []], pa.large_list(pa.int16()))),
    (Subset([0.5, -1.0]), pa.array([[0.5], [-1.0, 0.5]], pa.list_(pa.float32()))),
    (Subset([True, False]), [[True, False], []]),
    (Subset([str(i) for i in range(64)], max_size=9), [["63", "0"], [], ["31"]]),
    (Subset(range(65)), [[64], [0, 64, 63], []]),
    (Subset(range(300), max_size=40), [[299, 0, 64], [], list(range(200))]),
    (Subset(["a", "b"]), pa.array([["b"], ["a", "b"], []], pa.list_(pa.dictionary(pa.int8(), pa.string())))),
    (Subset(["a", "b"]), pa.array([["b"], ["a", "b"], []], pa.large_list(pa.string_view()))),
    (Nullable(Subset(["a", "b", "c"], max_size=1)), [None, ["b"], [], ["a"], None]),
    (Nullable(Subset([str(i) for i in range(64)])), [["63", "0"], None, ["31"], []]),
    (Vector(2, 1.0), [[0.3, -0.4], [30.0, -40.0], [0.0, 0.0], (1.0, 0.0)]),
    (Vector(3, 2.5, "l1", bits=8), pa.array([[1.0, 2.0, 3.0], [0.0, 0.1, -0.2]], pa.list_(pa.float32(), 3))),
    (Vector(2, 1.0, "linf", bits=4), pa.array([[1.0, -2.0], [0.0, 0.1]], pa.large_list(pa.float64()))),
    (Vector(5, 1e-3, "l2", bits=16), [[1e300] * 5, [-1e-300] * 5, np.zeros(5), np.arange(5)]),
    (Vector(1, 1.0, "l2", bits=2), [[0.2], [-1.0], [7.0]]),
    (Curve(range(6), 2.0, {"name": "RBF", "length_scale": 2.0}, 3), [np.zeros(6), np.arange(6.0), [1.0] * 6]),
    (Curve((0.0, 0.5, 2.0), 1.0, {"name": "Matern", "length_scale": 1.0, "nu": 1.5}, 3, bits=4), [[1.0, 0.5, 0.0]]),
    (Nullable(Curve(range(8), 1.0, {"name": "RBF", "length_scale": 3.0}, 2)), [None, [0.1] * 8, [9.0] * 8]),
    (Nullable(Vector(4, 1.0)), [None, [1.0, 2.0, 3.0, 4.0], np.ones(4, np.float32), None]),
    (Nullable(Vector(2, 1.0, "l1", bits=4)), [[1.0, 2.0], None, [0.0, 0.0]]),
    (Nullable(Boolean()), [None, True, False, None]),
    (Nullable(Categorical(["a", "b"], other="c")), ["a", None, "zebra", "b"]),
    (Nullable(Categorical([1.0, 2.0])), [1.0, math.nan, 2.0, None]),
    (Nullable(Categorical(["a", "b"])), pa.array(["a", None, "b"]).dictionary_encode()),
    (Nullable(Categorical(["a", "b"])), pa.nulls(4)),
    (Nullable(Ordinal(["low", "high"])), ["high", None, "low"]),
    (Nullable(Integer(0, 254)), [None, -1, 255, 300, None]),
    (Nullable(Integer(-5, 5)), pa.array([3, None, 100]).dictionary_encode()),
    (Nullable(Real(-1, 1, steps=10)), [None, math.nan, math.inf, -math.inf, 0.3]),
    (Nullable(Datetime("1960-01-01", "2020-01-01")), [None, dt.date(1950, 1, 1), dt.date(2000, 2, 29)]),
    (Nullable(Datetime(0 * DAY, DAY, "s")), [None, -DAY, dt.timedelta(seconds=7)]),
]


def test_examples_cover_the_registry() -> None:
    assert {space.tag for space, _ in EXAMPLES} == set(SPACES)
    assert {space.inner.tag for space, _ in EXAMPLES if isinstance(space, Nullable)} == set(SPACES) - {
        "empty",
        "nullable",
    }


@pytest.mark.parametrize(("space", "values"), EXAMPLES, ids=lambda v: repr(v)[:60] if isinstance(v, Space) else "")
def test_every_space_keeps_the_common_promises(space: Space, values: Any) -> None:
    check_space(space, values)


@SOON
@given(st.data())
def test_any_space_keeps_the_common_promises(data: st.DataObject) -> None:
    space = data.draw(spaces())
    check_space(space, data.draw(columns(space)))


@SOON
@given(st.data())
def test_round_trip_in_every_accepted_type(data: st.DataObject) -> None:
    space = data.draw(spaces())
    codes = sampled_codes(space, 40)
    for type_ in types_of(space):
        assert space.encode(space.decode(codes, type_)).tolist() == codes.tolist(), type_


# ---------------------------------------------------------------------------------------------- lists


def test_categorical_codes_follow_the_declaration_not_the_data() -> None:
    space = Categorical(["z", "a", "m"])
    assert space.encode(["m", "a", "z"]).tolist() == [2, 1, 0]
    decoded = space.decode([1, 1])
    assert decoded.dictionary.to_pylist() == ["z", "a", "m"]
    assert decoded.to_pylist() == ["a", "a"]


@given(st.lists(st.text(max_size=3).filter(str.isprintable), min_size=1, unique=True), st.lists(st.text(max_size=3)))
@settings(max_examples=examples(60))
def test_categorical_beside_a_dictionary(categories: list[str], values: list[str]) -> None:
    assume(all(v.isprintable() for v in values))
    table = {c: i for i, c in enumerate(categories)}
    outside = [v for v in values if v not in table]
    rest = table.get("other", len(categories))
    assert Categorical(categories, other="other").encode(pa.array(values, pa.string())).tolist() == [
        table.get(v, rest) for v in values
    ]
    if outside:
        row = next(i for i, v in enumerate(values) if v not in table)
        with pytest.raises(ColumnError) as caught:
            Categorical(categories).encode(values)
        assert caught.value.row == row


def test_other_is_the_last_code_or_the_one_it_names() -> None:
    assert Categorical(["a", "b"], other="z").labels() == ["a", "b", "z"]
    assert Categorical(["a", "b"], other="a").labels() == ["a", "b"]
    assert Categorical(["a", "b"], other="a").encode(["x", "b", "a"]).tolist() == [0, 1, 0]
    assert not Categorical(["a", "b"], other="z").contains("x")
    assert Categorical(["a", "b"], other="z").contains("z")


def test_numbers_of_other_widths_are_the_same_categories() -> None:
    space = Categorical([1, 2, 40])
    for values in ([40, 1], pa.array([40, 1], pa.uint8()), pa.array([40.0, 1.0], pa.float32()), np.float16([40, 1])):
        assert space.encode(values).tolist() == [2, 0]
    assert Categorical([1.0, 2.0]).encode(pa.array([2, 1], pa.int32())).tolist() == [1, 0]


def test_negative_zero_is_zero() -> None:
    assert Categorical([0.0, 1.0]).encode([-0.0, 1.0, 0.0]).tolist() == [0, 1, 0]
    assert Categorical([-0.0, 1.0]).encode([0.0, -0.0]).tolist() == [0, 0]
    assert Categorical(["a"]) == Categorical(np.array(["a"])) == Categorical(pd.Index(["a"]))


def test_dictionaries_with_unused_repeated_and_null_entries() -> None:
    space = Nullable(Categorical(["a", "b"]))
    entries = pa.array([SECRET, "b", None, "a", "b"])
    array = pa.DictionaryArray.from_arrays(pa.array([1, 4, 3, 2, None, 3], pa.int8()), entries)
    assert space.encode(array).tolist() == [1, 1, 0, 2, 2, 0]
    assert space.encode(array[2:]).tolist() == [0, 2, 2, 0]
    floats = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.uint32()), pa.array([math.nan, 2.0]))
    assert Nullable(Categorical([2.0])).encode(floats).tolist() == [1, 0, 1]
    empty = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    assert space.encode(empty).tolist() == [2, 2]
    refused(ColumnError, "outside the declared list.* at row position 1$", lambda: space.encode(
        pa.DictionaryArray.from_arrays(pa.array([1, 0, 0]), entries)
    ))  # fmt: skip


def test_dictionary_chunks_with_different_entries() -> None:
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "b", "a"]).dictionary_encode()]
    assert Categorical(["b", "a"]).encode(pa.chunked_array(chunks)).tolist() == [1, 0, 0, 0, 1]


def chunk(indices: list[int | None], entries: list[str | None]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(entries))


@pytest.mark.parametrize("last", [[f"b{i}" for i in range(100)], ["a0", None]], ids=["many", "null"])
def test_leak_chunks_whose_dictionaries_arrow_does_not_unite_are_read_as_their_values(last: list[str | None]) -> None:
    first = [f"a{i}" for i in range(100)]
    chunks = [chunk([*range(100), None], first), chunk([*range(len(last))], last)]
    space, plain = Nullable(Categorical(["a0", "a99", "rest"], other="rest")), [*first, None, *last]
    assert space.encode(pa.chunked_array(chunks)).tolist() == space.encode(plain).tolist()
    lists = [pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), part) for part in chunks]
    sets, plain_sets = Subset(["a0", "a1", "rest"], other="rest"), [["a0"], ["a1"], *([item] for item in last[:2])]
    found = sets.encode(pa.chunked_array(lists), tolerant=True)
    assert found.tolist() == sets.encode(pa.array(plain_sets), tolerant=True).tolist()


def test_a_category_outside_hidden_under_a_null_is_not_seen() -> None:
    indices = pa.array(np.array([0, 1, 0]), mask=np.array([False, True, False]))
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["a", SECRET]))
    assert Nullable(Categorical(["a"])).encode(array).tolist() == [0, 1, 0]


@pytest.mark.parametrize("asked", [pa.int8(), pa.uint8(), pa.int32()])
def test_dictionary_index_holds_every_code(asked: pa.DataType) -> None:
    space = Categorical([f"c{i}" for i in range(300)])
    decoded = space.decode(np.arange(300), pa.dictionary(asked, pa.string()))
    assert decoded.to_pylist() == space.labels()
    assert decoded.type.index_type == (pa.int32() if asked == pa.int32() else pa.int16())


def test_ordinal_distance_is_in_ranks() -> None:
    space = Ordinal(["low", "middle", "high"])
    assert [space.distance("low", v) for v in space.labels()] == [0, 1, 2]
    assert (space.diameter, space.unit, space.fixed_point) == (2, "ranks", 1)
    assert pa.types.is_dictionary(space.natural_type)
    assert space.natural_type.ordered


def test_boolean_numbers_are_shares() -> None:
    assert Boolean().numbers(np.array([1, 0, 1])).mean() == pytest.approx(2 / 3)


BAD_LISTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Categorical([]), "categories must be at least 1 strings, or as many numbers, all of one type"),
    (lambda: Ordinal(["a"]), "categories must be at least 2 strings"),
    (lambda: Categorical(["a", 1]), "all of one type"),
    (lambda: Categorical([1, 1.5]), "all of one type"),
    (lambda: Categorical([0, True]), "all of one type"),
    (lambda: Categorical(["a", None]), "all of one type"),
    (lambda: Categorical([dt.date(2020, 1, 1)]), "all of one type"),
    (lambda: Categorical(["a", "b", "a"]), "categories holds a value twice; list every category once"),
    (lambda: Ordinal([1, 1]), "holds a value twice"),
    (lambda: Categorical([0.0, -0.0]), "holds a value twice"),
    (lambda: Categorical([1.0, math.nan]), r"must be finite; nulls are declared with Nullable\(…\)"),
    (lambda: Categorical([1.0, math.inf]), "must be finite"),
    (lambda: Categorical("FM"), r"must be a list of values, e\.g\. categories=\['F', 'M'\]"),
    (lambda: Categorical({"F", "M"}), "must be a list of values"),
    (lambda: Categorical(5), "must be a list of values"),
    (lambda: Categorical([2**70]), "within 64 bits"),
    (lambda: Categorical(["\ud800"]), "valid Unicode"),
    (lambda: Categorical(["a"], other=5), "other must be a value of the categories' type"),
    (lambda: Categorical([1, 2], other=True), "other must be a value of the categories' type"),
    (lambda: Categorical(["a"], other={}), "other must be a value of the categories' type"),
    (lambda: Categorical([1.0], other=math.nan), "must be finite"),
]


@pytest.mark.parametrize(("make", "match"), BAD_LISTS)
def test_bad_lists_are_refused(make: Callable[[], Any], match: str) -> None:
    refused(ParameterError, match, make)


def test_other_is_kept_as_a_plain_value() -> None:
    assert space_from_json(Categorical([1, 2], other=np.int64(3)).to_json()) == Categorical([1, 2], other=3)


# ---------------------------------------------------------------------------------------------- numbers


@SOON
@given(integers(), st.data())
def test_integer_beside_exact_fractions(space: Integer, data: st.DataObject) -> None:
    near = st.sampled_from([space.lower, space.upper]).flatmap(
        lambda b: st.integers(b - 3 * space.step, b + 3 * space.step)
    )
    whole = (st.integers() | near | st.integers(space.lower, space.upper)).filter(lambda v: -(2**63) <= v < 2**63)
    values = data.draw(st.lists(whole, max_size=30))
    codes = space.encode(pa.array(values, pa.int64())).tolist()
    decoded = space.decode(codes).to_pylist()
    for value, code, out in zip(values, codes, decoded, strict=True):
        clamped = min(max(value, space.lower), space.upper)
        assert out == space.lower + code * space.step
        assert space.lower <= out <= space.upper
        assert 2 * abs(out - clamped) <= space.step
        assert space.contains(value) == (value == out)


@pytest.mark.parametrize("type_", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint64()])
def test_integer_at_the_ends_of_its_type(type_: pa.DataType) -> None:
    info = np.iinfo(type_.to_pandas_dtype())
    low, high = int(info.min), min(int(info.max), 2**63 - 1)
    step = next(s for s in (1, 2**32 + 1, 92_737 * 649_657) if (high - low) % s == 0 and (high - low) // s < 2**32)
    space = Integer(low, high, step)
    values = pa.array([low, int(info.max), high], type_)
    assert space.decode(space.encode(values), type_).to_pylist() == [low, high, high]


def test_integer_of_float_columns_rounds_and_clamps() -> None:
    for type_ in (np.float16, np.float32, np.float64):
        values = np.array([-3, 0.4, 0.6, 99.6, 2000], dtype=type_)
        assert Integer(0, 100).encode(values).tolist() == [0, 0, 1, 100, 100]
        assert Integer(-10, 10, step=5).encode(values).tolist() == [1, 2, 2, 4, 4]
    decoded = Integer(0, 9).decode([3], pa.float32())
    assert (decoded.type, decoded.to_pylist()) == (pa.float32(), [3.0])


def test_a_large_grid_is_not_listed() -> None:
    space = Integer(0, 2**32 - 1)
    assert (space.size, space.code_type) == (2**32, np.dtype(np.uint32))
    assert space.decode([2**32 - 1]).to_pylist() == [2**32 - 1]
    refused(ParameterError, "too fine to be listed", space.labels)
    assert Nullable(space).code_type == np.uint64


@SOON
@given(reals(), st.data())
def test_real_beside_its_grid(space: Real, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.floats(space.lower, space.upper)))
    out = space.decode(space.encode(pa.array(values, pa.float64()))).to_numpy()
    clamped = np.clip(np.array(values, dtype=np.float64), space.lower, space.upper)
    assert ((out >= space.lower) & (out <= space.upper)).all()
    assert (np.abs(out - clamped) <= space.step * 0.5000001 + 2 * math.ulp(space.upper - space.lower)).all()
    assert space.decode([0, space.steps]).to_pylist() == [space.lower, space.upper]
    assert space.encode([space.lower, space.upper]).tolist() == [0, space.steps]


@SOON
@given(reals())
def test_real_bounds_hold_in_narrow_floats(space: Real) -> None:
    codes = sampled_codes(space, 60)
    for type_ in (pa.float16(), pa.float32()):
        if type_ not in types_of(space):
            continue
        decoded = space.decode(codes, type_)
        exact = [Fraction(float(v)) for v in decoded.to_pylist()]
        assert min(exact) >= Fraction(space.lower)
        assert max(exact) <= Fraction(space.upper)


def test_real_bounds_that_float32_rounds_outwards() -> None:
    # float32(0.1) lies above 0.1 and float32(0.7) below 0.7: turned round, both lie outside.
    for low, high in ((0.1, 0.7), (-0.7, -0.1), (0.3, 0.9), (-0.9, -0.3)):
        decoded = Real(low, high, steps=3).decode(range(4), pa.float32()).to_pylist()
        assert low <= decoded[0] < decoded[1] < decoded[2] < decoded[3] <= high
        assert Real(low, high, steps=3).encode(pa.array(decoded, pa.float32())).tolist() == [0, 1, 2, 3]


def test_the_upper_bound_is_exact_where_the_steps_miss_it() -> None:
    missed = 0
    for steps in range(1, 200):
        space = Real(0.1, 0.9, steps=steps)
        missed += space.lower + steps * space.step < space.upper
        assert space.decode([steps]).to_pylist() == [0.9]
    assert missed


@SOON
@given(st.integers(-1000, 1000), st.integers(1, 10**5), st.integers(0, 5), st.integers(1, 20))
def test_values_of_a_grid_of_decimals_are_the_decimals(first: int, steps: int, places: int, wide: int) -> None:
    written = [f"{first + wide * steps * part}e-{places}" for part in (0, 1)]
    space = Real(*map(float, written), steps=steps)
    codes = sampled_codes(space, 60)
    decimals = [float(f"{first + wide * int(code)}e-{places}") for code in codes]
    assert space.decode(codes).to_pylist() == decimals
    assert space.encode(decimals).tolist() == codes.tolist()


def test_a_step_of_a_tenth_gives_tenths() -> None:
    assert Real(0, 50, steps=500).decode([499]).to_pylist() == [49.9]
    assert Real(0, 50, steps=500).widened(7).decode([0, 506]).to_pylist() == [-0.7, 49.9]


@SOON
@given(reals())
def test_values_that_were_rounded_twice_have_the_same_codes(space: Real) -> None:
    # Until version 0.3.0 a value was its bound plus a multiple of the rounded step.
    codes = sampled_codes(space, 60)
    before = np.clip(codes.astype(np.float64) * space.step + space.lower, space.lower, space.upper)
    assert space.encode(pa.array(before)).tolist() == codes.tolist()


def test_values_below_normal_floats_are_refused_in_float32() -> None:
    refused(
        ColumnError, "give fewer steps or a wider float", lambda: Real(0, 1e-44, steps=100).check_type(pa.float32())
    )


def test_real_contains_and_distance_are_of_values_not_of_codes() -> None:
    space = Real(0, 10, steps=10)
    assert all(map(space.contains, [0, 10, 3.3, np.float32(2.5), np.int64(4)]))
    assert not any(map(space.contains, [-0.1, 11, True, "3", None, math.nan, math.inf]))
    assert space.distance(3.3, 3.4) == pytest.approx(0.1)
    assert Nullable(space).distance(3.3, 3.4) == pytest.approx(0.1)
    assert Nullable(space).distance(3.3, None) == 10
    assert Nullable(space).distance(None, None) == 0


BAD_NUMBERS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Integer(5, 5), "lower must be below upper"),
    (lambda: Integer(6, 5), "lower must be below upper"),
    (lambda: Integer(0, 2**63), "both within 64 bits"),
    (lambda: Integer(0, 1.5), r"upper must be a whole number, as in \(0, 120\)"),
    (lambda: Integer("0", 9), "lower must be a whole number"),
    (lambda: Integer(False, 9), "lower must be a whole number"),
    (lambda: Integer(math.nan, 9), "lower must be a whole number"),
    (lambda: Integer(None, 9), "lower must be a whole number"),
    (lambda: Integer(0, 9, step=0), "step must be a whole number, at least 1"),
    (lambda: Integer(0, 9, step=0.5), "step must be a whole number"),
    (lambda: Integer(0, 9, step=2), "step must divide upper − lower"),
    (lambda: Integer(0, 2**32), "at most 4294967295 steps; give a larger step"),
    (lambda: Real(1.0, 1.0), "lower must be below upper, both finite"),
    (lambda: Real(2.0, 1.0), "lower must be below upper"),
    (lambda: Real(0.0, math.inf), "both finite"),
    (lambda: Real(math.nan, 1.0), "both finite"),
    (lambda: Real(-1.7e308, 1.7e308), "both finite"),
    (lambda: Real("0", 1.0), "lower must be a number"),
    (lambda: Real(True, 2.0), "lower must be a number"),
    (lambda: Real(0.0, 1.0, steps=0), "steps must be a whole number from 1 to 4294967295"),
    (lambda: Real(0.0, 1.0, steps=2**32), "steps must be a whole number"),
    (lambda: Real(0.0, 1.0, steps=2.0), "steps must be a whole number"),
    (lambda: Real(1.0, 1.0 + 1e-15), "finer than floats between these bounds; give fewer"),
]


@pytest.mark.parametrize(("make", "match"), BAD_NUMBERS)
def test_bad_bounds_are_refused(make: Callable[[], Any], match: str) -> None:
    refused(ParameterError, match, make)


def test_numpy_scalars_declare_the_same_spaces() -> None:
    assert Integer(np.int8(0), np.float64(9), np.uint8(3)) == Integer(0, 9, 3)
    space = Real(np.float32(0), np.int64(1), np.int16(8))
    assert space == Real(0.0, 1.0, 8)
    assert space_from_json(space.to_json()) == space


# ---------------------------------------------------------------------------------------------- times


@SOON
@given(datetimes(), st.data())
def test_datetime_beside_exact_integers(space: Datetime, data: st.DataObject) -> None:
    width = {"D": 86400 * 10**9, "h": 3600 * 10**9, "min": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3}[
        space.resolution
    ]
    origin = dt.timedelta(0) if space.is_duration else dt.datetime(1970, 1, 1)
    bound: Any = (lambda t: dt.timedelta(seconds=float(t[2:-1]))) if space.is_duration else dt.datetime.fromisoformat
    start = (bound(space.lower) - origin) // dt.timedelta(microseconds=1) * 1000
    for type_ in types_of(space):
        if pa.types.is_date(type_) or pa.types.is_dictionary(type_):
            continue
        tick = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[type_.unit]
        near = start // tick
        ticks = data.draw(
            st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(near - 10**6, near + 10**6), max_size=6)
        )
        ticks = [t for t in ticks if -(2**63) <= t < 2**63]
        column = pa.array(ticks, pa.int64()).view(type_)
        codes = space.encode(column).tolist()
        out = space.decode(codes, type_).view(pa.int64()).to_pylist()
        for value, code, back in zip(ticks, codes, out, strict=True):
            assert back * tick == start + code * width
            clamped = min(max(value * tick, start), start + (space.size - 1) * width)
            assert 2 * abs(back * tick - clamped) <= width


def test_dates_before_1970_and_leap_days() -> None:
    space = Datetime("1899-12-31", "2000-03-01")
    days = [dt.date(1900, 2, 28), dt.date(1900, 3, 1), dt.date(1969, 12, 31), dt.date(2000, 2, 29), dt.date(1800, 1, 1)]
    codes = space.encode(days).tolist()
    assert codes == [(max(day, dt.date(1899, 12, 31)) - dt.date(1899, 12, 31)).days for day in days]
    assert space.decode(codes).to_pylist() == [*days[:4], dt.date(1899, 12, 31)]
    assert space.decode(codes, pa.date64()).to_pylist() == space.decode(codes).to_pylist()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_keep_unit_and_zone(unit: str, zone: str | None) -> None:
    type_ = pa.timestamp(unit, zone)
    values = times("1965-06-01T00:20:00", "2020-06-01T12:40:00", None, type_=type_)
    space = Nullable(Datetime("1960-01-01", "2021-01-01", "h"))
    decoded = space.decode(space.encode(values), type_)
    assert decoded.type == type_
    assert decoded.cast(pa.int64()).equals(
        times("1965-06-01T00:00", "2020-06-01T13:00", None, type_=type_).cast(pa.int64())
    )


def test_bounds_with_a_zone_are_points_in_time() -> None:
    plus2 = dt.timezone(dt.timedelta(hours=2))
    space = Datetime(dt.datetime(2020, 1, 1, 2, tzinfo=plus2), "2020-01-01T03:00+02:00", "min")
    assert (space.lower, space.upper, space.size) == ("2020-01-01", "2020-01-01T01:00:00", 61)


def test_bounds_of_every_kind_are_the_same_space() -> None:
    expected = Datetime("2020-01-01", "2020-12-31")
    for make in (dt.date.fromisoformat, dt.datetime.fromisoformat, pd.Timestamp, np.datetime64):
        assert Datetime(make("2020-01-01"), make("2020-12-31")) == expected
    span = Datetime(0 * DAY, 2 * DAY, "h")
    for kind in (pd.Timedelta, np.timedelta64):
        assert Datetime(kind(0, "h"), kind(48, "h"), "h") == span
    assert Datetime("PT0S", "PT172800S", "h") == span
    assert Datetime("PT0M", "P2D", "h") == Datetime("P0D", "P1DT23H60M0.0S", "h") == span


def test_duration_bounds_are_exact_beyond_the_precision_of_floats() -> None:
    lower = dt.timedelta(days=400 * 365, microseconds=1)
    space = Datetime(lower, lower + dt.timedelta(microseconds=2), "us")
    assert space.decode([0, 1]).to_pylist() == [lower, lower + dt.timedelta(microseconds=1)]
    assert space_from_json(space.to_json()) == space
    negative = Datetime(-dt.timedelta(microseconds=1_500_000), dt.timedelta(0), "ms")
    assert (negative.lower, negative.size) == ("PT-1.5S", 1501)


def test_durations_are_no_dates() -> None:
    dates, spans = Datetime("2020-01-01", "2020-01-09"), Datetime(0 * DAY, DAY, "s")
    refused(
        ColumnError, "the bounds ask for dates or timestamps", lambda: dates.encode(pa.array([1], pa.duration("s")))
    )
    refused(ColumnError, "the bounds ask for durations", lambda: spans.encode(pa.array([1], pa.timestamp("s"))))


BAD_TIMES: list[tuple[Callable[[], Any], str]] = [
    (lambda: Datetime("2020-01-02", "2020-01-01"), "lower must be before upper"),
    (lambda: Datetime("2020-01-01", "2020-01-01"), "lower must be before upper"),
    (lambda: Datetime("yesterday", "2020-01-01"), r"lower must be a date, a datetime, a timedelta or ISO text"),
    (lambda: Datetime("2020-01-01", pd.NaT), "upper must be a date"),
    (lambda: Datetime("2020-01-01", np.datetime64("NaT", "s")), "upper must be a date"),
    (lambda: Datetime(np.timedelta64("NaT", "s"), DAY), "lower must be a date"),
    (lambda: Datetime("2020-01-01", 5), "upper must be a date"),
    (lambda: Datetime("PTxS", "PT1S", "s"), "lower must be a date"),
    (lambda: Datetime("P", "PT1S", "s"), "lower must be a date.* or lower='PT2H' for a duration"),
    (lambda: Datetime("0h", "5h", "s"), "lower must be a date"),
    (lambda: Datetime("P1Y", "P2Y", "D"), "lower must be a date"),
    (lambda: Datetime("P999999999999D", "P2D", "D"), "lower must be a date"),
    (lambda: Datetime("PTNaNS", "PT1S", "s"), "lower must be a date"),
    (lambda: Datetime("PTInfinityS", "PT1S", "s"), "lower must be a date"),
    (lambda: Datetime("2020-01-01", DAY), "two points in time or two durations"),
    (lambda: Datetime("2020-01-01", "2020-01-02", "week"), "resolution must be one of D, h, min, s, ms, us, ns"),
    (lambda: Datetime("2020-01-01", "2020-01-02", ["D"]), "resolution must be one of"),
    (lambda: Datetime("2020-01-01", "2020-01-02T12:00"), "a whole number of steps of the resolution"),
    (lambda: Datetime("1900-01-01", "2020-01-01", "ms"), "at most 4294967295 steps; give a coarser resolution"),
]


@pytest.mark.parametrize(("make", "match"), BAD_TIMES)
def test_bad_times_are_refused(make: Callable[[], Any], match: str) -> None:
    refused(ParameterError, match, make)


# ---------------------------------------------------------------------------------------------- nulls

INNER: list[Space] = [
    Boolean(),
    Categorical(["a", "bb", "ccc"]),
    Categorical([7, 8]),
    Categorical([7.5, 8.5]),
    Ordinal(["a", "b"]),
    Integer(-3, 90),
    Real(-3, 90, steps=32),
    Datetime("1960-01-01", "2000-01-01"),
    Datetime(-DAY, DAY, "h"),
]


@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_nothing_is_left_under_null_slots(inner: Space) -> None:
    """values under null slots: the buffers of what is released are constant there."""
    space = Nullable(inner)
    seen = 0
    for type_ in types_of(space):
        if pa.types.is_string_view(type_):
            continue
        found = set()
        for shift in range(0, inner.size, max(1, inner.size // 20)):
            codes = np.array([shift, space.null, inner.size - 1 - shift, space.null] * 5)
            found |= stored_under_nulls(space.decode(codes, type_))
        assert len(found) == 1, type_
        seen += 1
    assert seen


def test_the_look_under_null_slots_sees_what_is_left() -> None:
    """The check above can fail: pyarrow does keep masked values of a NumPy array."""
    array = pa.array(np.array([1, 42, 3, 77]), mask=np.array([False, True, False, True]))
    assert len(stored_under_nulls(array)) == 2


@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_null_is_at_the_diameter_from_every_value(inner: Space) -> None:
    space = Nullable(inner)
    assert {space.code_distance(x, space.null) for x in range(inner.size)} == {inner.diameter}
    assert space.code_distance(space.null, space.null) == 0
    assert space.diameter == inner.diameter
    assert space.labels() == [*inner.labels(), None]


def test_nan_is_null_and_infinities_clamp_where_nulls_are_allowed() -> None:
    space = Nullable(Real(0, 4, steps=4))
    assert space.encode(pa.array([math.nan, None, math.inf, -math.inf, 2.2])).tolist() == [5, 5, 4, 0, 2]
    assert Nullable(Integer(0, 4)).encode(pa.array([math.nan, math.inf])).tolist() == [5, 4]
    assert Real(0, 4, steps=4).encode([math.nan, math.inf, 1.0], nulls="impute").tolist() == [2, 4, 1]


def test_values_under_null_slots_of_the_input_are_not_read() -> None:
    values = np.array([1.0, math.inf, 3.0, math.nan])
    array = pa.array(values, mask=np.array([False, True, False, True]))
    assert Real(0, 4, steps=4).encode(array, nulls="impute").tolist() == [1, 2, 3, 2]
    assert Nullable(Real(0, 4, steps=4)).encode(array).tolist() == [1, 5, 3, 5]


@pytest.mark.parametrize(
    ("space", "values", "match"),
    [
        (Real(0, 1), [0.5, math.nan], r"is null, and its space holds no nulls; declare Nullable\(…\).* position 1$"),
        (Real(0, 1), [0.5, 0.1, math.inf], r"is infinite; declare Nullable\(…\) or pass nulls='impute'.* position 2$"),
        (Integer(0, 1), pa.array([-math.inf, 0.1]), "is infinite.* row position 0$"),
        (Integer(0, 1), [1, 0, None], "is null.* row position 2$"),
        (Boolean(), [None], "is null.* row position 0$"),
        (Categorical(["a"]), ["a", None], "is null.* row position 1$"),
        (Categorical(["a"]), ["a", SECRET], "category outside the declared list; add it, or .* position 1$"),
        (Nullable(Categorical(["a"])), [None, SECRET], "outside the declared list.* row position 1$"),
        (Ordinal(["a", "b"]), ["a", "b", SECRET], "outside the declared list.* row position 2$"),
        (Datetime("2020-01-01", "2020-01-02"), [None], "is null.* row position 0$"),
        (Boolean(), pa.array([SECRET]), r"has type text, which Boolean\(\) cannot hold; convert the column to bool"),
        (Boolean(), pa.array([1]), r"has type int64, .* or for zeros and ones the bounds \(0, 1\)$"),
        (Categorical(["a"]), pa.array([1]), "has type int64, which a list of string categories cannot hold"),
        (Categorical([1]), pa.array([SECRET]), "has type text, which a list of int64 categories cannot hold"),
        (Categorical([1, 300]), pa.array([1], pa.int8()), "has type int8"),
        (Categorical([0.5]), pa.array([1]), "has type int64, which a list of double categories cannot hold"),
        (Categorical([0.1, 0.1 + 1e-12]), pa.array([0.1], pa.float32()), "has type float, "),
        (Categorical([True]), pa.array([1]), "has type int64, which a list of bool categories"),
        (Integer(0, 9), pa.array([SECRET]), r"has type text, which Integer\(…\) cannot hold; convert the column"),
        (Integer(0, 9), pa.array([True]), "has type bool"),
        (Integer(-1, 9), pa.array([1], pa.uint8()), "has type uint8, .* choose bounds from 0 to 255$"),
        (Integer(2**60, 2**60 + 9), pa.array([1.0]), "choose bounds within ±9007199254740992$"),
        (Real(0, 9), pa.array([1]), r"has type int64, which Real\(…\) cannot hold; declare Integer\(lower, upper\)"),
        (Real(0, 9), pa.array([SECRET]), r"has type text, which Real\(…\) cannot hold"),
        (Real(0, 1e39), pa.array([1], pa.float32()), "has type float, which this grid cannot hold; give fewer steps"),
        (Real(1990, 2020), pa.array([1990], pa.float32()), "this grid cannot hold; give fewer steps or a wider float"),
        (Datetime("2020-01-01", "2020-01-02"), pa.array([SECRET]), r"cannot hold; parse it with pandas\.to_datetime"),
        (Datetime("2020-01-01", "2020-01-02"), pa.array([5]), "the bounds ask for dates or timestamps"),
        (Datetime("2020-01-01", "2020-01-02", "h"), pa.array([5], pa.date32()), "give a coarser resolution"),
        (Datetime("0001-01-01", "2020-01-01"), pa.array([5], pa.timestamp("ns")), "choose bounds it can represent"),
        (Boolean(), pa.array([[1], [2]]), "has type list"),
        (Categorical(["a"]), pa.array([b"x"]), "has type binary"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused(space: Space, values: Any, match: str) -> None:
    refused(ColumnError, match, lambda: space.encode(values))


def test_rows_of_errors_count_through_chunks() -> None:
    chunks = pa.chunked_array([["a", "a"], [], ["a", SECRET]])
    refused(ColumnError, "row position 3$", lambda: Categorical(["a"]).encode(chunks))


# ---------------------------------------------------------------------------------------------- declarations


@pytest.mark.parametrize(
    ("spec", "type_", "expected"),
    [
        ((0, 120), None, Integer(0, 120)),
        ((0, 120), pa.int16(), Integer(0, 120)),
        ((0, 120), pa.float64(), Real(0, 120)),
        ((0, 120.5), None, Real(0, 120.5)),
        ((0.0, 120.0), pa.int32(), Integer(0, 120)),
        ((1990, 2020), pa.float32(), Real(1990, 2020, steps=16384)),
        ((0, 1), pa.float16(), Real(0, 1, steps=256)),
        ((0, 9), pa.dictionary(pa.int8(), pa.int64()), Integer(0, 9)),
        (("2020-01-01", "2020-12-31"), pa.date32(), Datetime("2020-01-01", "2020-12-31")),
        (("2020-01-01", "2020-12-31"), None, Datetime("2020-01-01", "2020-12-31")),
        ((0 * DAY, DAY), pa.duration("us"), Datetime(0 * DAY, DAY, "min")),
        (["b", "a"], None, Categorical(["b", "a"])),
        (pd.CategoricalDtype(["b", "a"]), None, Categorical(["b", "a"])),
        (pd.CategoricalDtype(["b", "a"], ordered=True), None, Ordinal(["b", "a"])),
        (pd.CategoricalDtype([3, 1]), None, Categorical([3, 1])),
        ({"lower": 0, "upper": 5}, pa.int64(), Integer(0, 5)),
        ({"space": "nullable", "inner": {"space": "boolean"}}, None, Nullable(Boolean())),
        (Boolean(), None, Boolean()),
    ],
)
def test_shorthands(spec: Any, type_: pa.DataType | None, expected: Space) -> None:
    assert as_space(spec, type_) == expected


def test_nullable_takes_shorthands() -> None:
    assert Nullable((0, 5)) == Nullable(Integer(0, 5))
    assert Nullable(["a", "b"]) == Nullable(Categorical(["a", "b"]))


@pytest.mark.parametrize(
    ("error", "make", "match"),
    [
        (ParameterError, lambda: as_space("age"), "a space is bounds, "),
        (ParameterError, lambda: as_space((1, 2, 3)), "a space is bounds"),
        (ParameterError, lambda: as_space(None), "a space is bounds"),
        (ParameterError, lambda: as_space(Integer), "a space is bounds"),
        (ParameterError, lambda: as_space(pd.CategoricalDtype()), "without categories declares nothing"),
        (ParameterError, lambda: as_space((5, 5)), "lower must be below upper"),
        (ParameterError, lambda: as_space((9, 5), pa.float64()), "lower must be below upper"),
        (ParameterError, lambda: as_space(("F", "M")), "lower must be a date"),
        (ColumnError, lambda: as_space(("F", "M"), pa.string()), "bounds mean nothing; .*, e.g. with pd.to_datetime$"),
        (ColumnError, lambda: as_space((0, 1), pa.bool_()), r"declare its categories instead, as a list \[…]$"),
        (ParameterError, lambda: Nullable(Nullable(Boolean())), "space is nullable already"),
        (PlanError, lambda: space_from_json({"space": "tensor"}), "unknown space tag; this version knows boolean, "),
        (PlanError, lambda: space_from_json({"space": ["boolean"]}), "unknown space tag"),
        (PlanError, lambda: space_from_json({}), "unknown space tag"),
        (PlanError, lambda: space_from_json({"space": "integer", "lower": 0}), "has the fields lower, upper"),
        (PlanError, lambda: space_from_json({"space": "nullable"}), "has the field inner, a space"),
        (ParameterError, lambda: space_from_json({"space": "integer", "lower": "a", "upper": 2}), "lower must be"),
        (ParameterError, lambda: Boolean().decode([0.5]), "codes must be integers in 0…1"),
        (ParameterError, lambda: Boolean().decode([2]), "codes must be integers in 0…1"),
    ],
)  # fmt: skip
def test_bad_declarations_are_refused(error: type[Exception], make: Callable[[], Any], match: str) -> None:
    refused(error, match, make)


PAIR = r"bounds as \{\"lower\": 0, \"upper\": 120\}, and categories as \{\"categories\": \[0, 1\]\}"


@pytest.mark.parametrize("type_", [pa.int64(), pa.float32(), pa.decimal128(5, 2)])
@pytest.mark.parametrize("pair", [[0, 120], [0.0, 1.5], [0, np.float64(3)]])
def test_a_list_of_two_numbers_is_refused_for_a_numeric_column(pair, type_):
    for spec in (pair, {"space": "nullable", "inner": pair}):
        refused(ParameterError, PAIR, lambda spec=spec: as_space(spec, type_))
    refused(ParameterError, PAIR, lambda: Nullable(pair))
    frame = pd.DataFrame({"age": [1, 2]})
    refused(ParameterError, "^column 'age': a list of two numbers", lambda: plan_of(frame, 1, spaces={"age": pair}))


def test_lists_that_can_mean_one_thing_only_are_categories():
    assert as_space([0, 1, 2], pa.int64()) == Categorical([0, 1, 2])
    assert as_space([7], pa.int64()) == Categorical([7])
    assert as_space(["a", "b"], pa.string()) == Categorical(["a", "b"])
    assert as_space([False, True], pa.bool_()) == Categorical([False, True])
    assert as_space({"categories": [0, 1]}, pa.int64()) == Categorical([0, 1])
    assert as_space({"categories": ["a"], "other": "rest"}, pa.string()) == Categorical(["a"], other="rest")
    refused(ParameterError, "a space in JSON has", lambda: as_space({"other": "rest"}))


def test_shorthands_within_nullable_follow_the_columns_type():
    def nullable(inner, type_):
        return as_space({"space": "nullable", "inner": inner}, type_)

    assert nullable({"lower": 0, "upper": 120}, pa.int64()) == Nullable(Integer(0, 120))
    assert nullable({"lower": 0, "upper": 120}, pa.float64()) == Nullable(as_space((0, 120), pa.float64()))
    assert nullable({"lower": "2020-01-01", "upper": "2021-01-01"}, pa.date32()).inner.tag == "datetime"
    assert nullable(["a", "b"], pa.string()) == Nullable(Categorical(["a", "b"]))
    assert nullable({"categories": [0, 1]}, pa.int64()) == Nullable(Categorical([0, 1]))
    assert nullable({"space": "boolean"}, pa.bool_()) == Nullable(Boolean())


def test_an_unknown_tag_names_the_column():
    frame = pd.DataFrame({"age": [1, 2]})
    for spec in ({"space": "circle"}, {"space": "nullable", "inner": {"space": "circle"}}):
        refused(
            PlanError,
            "^column 'age': unknown space tag",
            lambda spec=spec: plan_of(frame, 1, spaces={"age": spec}),
        )
    refused(ParameterError, "a space in JSON has .* or a tag, as", lambda: as_space({"lower": 0}))
