"""Spaces read off types, and off the data."""

from __future__ import annotations

import datetime as dt
import math
import re
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import TYPES, examples

import dpframe as dpf
from dpframe.errors import ColumnError, ParameterError, PrivacyLeakWarning
from dpframe.plan.declared import infer_spaces, warn_of_whole_bounds
from dpframe.spaces import Boolean, Categorical, Datetime, Integer, Nullable, Ordinal, Real, Space
from dpframe.spaces.field import Field

SECRET = "swordfish"
ASKING = [t for t in TYPES if t not in (pa.bool_(), pa.int8(), pa.uint8())]
"""Types that do not say their space."""


def unread(name: str) -> Iterable[pa.Array]:
    """Stand for data that may not be looked at."""
    raise AssertionError("the data were read")


def from_type(type_: pa.DataType, nullable: bool = False) -> Space:
    spaces, left, leaks = infer_spaces([Field("x", type_, nullable)], None, "public", unread)
    assert not leaks
    assert not left
    return spaces["x"]


def from_data(*arrays: pa.Array, name: str = "x", nullable: bool = True) -> Space:
    """Return the space read off arrays; it must be warned of, and hold every value but in other's bucket."""
    fields = [Field(name, arrays[0].type, nullable)]
    with pytest.warns(PrivacyLeakWarning, match=rf"^spaces of {name} were read off the data: .*spaces=\{{…\}}$"):
        spaces, left, leaks = infer_spaces(fields, None, "data", lambda _: iter(arrays))
    assert (left, leaks) == ([], [name])
    spaces[name].check_type(arrays[0].type)
    return spaces[name]


def one_line(caught: pytest.ExceptionInfo[Exception]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message
    return message


# ---------------------------------------------------------------------------------------------- from types


def test_types_that_say_their_space() -> None:
    assert from_type(pa.bool_()) == Boolean()
    assert from_type(pa.int8()) == Integer(-128, 127)
    assert from_type(pa.uint8()) == Integer(0, 255)
    assert from_type(pa.int8(), nullable=True) == Nullable(Integer(-128, 127))
    assert from_type(pa.bool_(), nullable=True) == Nullable(Boolean())


@pytest.mark.parametrize("type_", ASKING, ids=str)
def test_other_types_ask_for_a_declaration(type_: pa.DataType) -> None:
    with pytest.raises(ParameterError, match="1 column needs a declared space") as caught:
        from_type(type_)
    assert "{'x': SPACE}" not in one_line(caught)


def test_one_error_for_all_columns_with_the_declaration_to_paste() -> None:
    frame = pd.DataFrame(
        {
            "flag": [True, False],
            "age": [31, 47],
            "o'name": pd.array([SECRET, SECRET], dtype="string"),
            "when": pd.to_datetime(["1999-03-04", "1999-05-06"]),
            "kind": pd.Categorical([SECRET, "b"]),
            "pay": [1234.5, 6789.5],
            "blob": pd.Series([SECRET, None], dtype=object),
        }
    )
    with pytest.raises(ParameterError) as caught:
        dpf.plan(frame, 1.0, infer="public")
    message = one_line(caught)
    assert message == (
        "6 columns need a declared space; fill in and pass spaces={'age': (LOWER, UPPER), \"o'name\": [CATEGORY, …], "
        "'when': (FROM, TO), 'kind': [CATEGORY, …], 'pay': (LOWER, UPPER), 'blob': SPACE} (Nullable(…) around a space "
        "keeps nulls), or infer='private'"
    )
    assert not any(value in message for value in ("31", "47", "1999", "1234", "6789"))


def test_the_pasted_declaration_works() -> None:
    frame = pd.DataFrame({"age": [31, 47], "kind": ["a", "b"]})
    spaces = {"age": (0, 120), "kind": ["a", "b"]}
    assert dpf.plan(frame, 1.0, spaces=spaces).names == ("age", "kind")
    assert dpf.plan(frame, 1.0, spaces={"age": (0, 120)}, drop=["kind"]).names == ("age",)


def test_public_mode_never_reads() -> None:
    fields = [Field("a", pa.bool_(), False), Field("b", pa.int64(), False), Field("c", pa.null(), True)]
    found, left, leaks = infer_spaces(fields, {"b": (0, 9), "c": ["x", "y"]}, "public", unread)
    assert found == {"a": Boolean(), "b": Integer(0, 9), "c": Categorical(["x", "y"])}
    assert list(found) == ["a", "b", "c"]
    assert (left, leaks) == ([], [])


def test_private_mode_leaves_what_types_do_not_say_and_nulls() -> None:
    fields = [
        Field("a", pa.bool_(), False),
        Field("b", pa.bool_(), True),
        Field("c", pa.int64(), False),
        Field("d", pa.int64(), False),
    ]
    found, left, leaks = infer_spaces(fields, {"d": (0, 9)}, "private", unread)
    assert found == {"a": Boolean(), "d": Integer(0, 9)}
    assert (left, leaks) == ([fields[1], fields[2]], [])


def test_a_declaration_wins_over_the_type() -> None:
    found, *_ = infer_spaces([Field("a", pa.int8(), True)], {"a": (0, 5)}, "public", unread)
    assert found == {"a": Integer(0, 5)}


def test_spaces_of_another_plan() -> None:
    frame = pd.DataFrame({"age": [31, 47], "kind": ["a", "b"]})
    plan = dpf.plan(frame, 1.0, spaces={"age": (0, 120), "kind": ["a", "b"]})
    again = dpf.plan(frame[["age"]], 2.0, spaces=plan)
    assert again["age"].space == Integer(0, 120)


@pytest.mark.parametrize(
    ("spaces", "infer", "error", "match"),
    [
        (
            {"ghost": (0, 1)},
            "public",
            ParameterError,
            "spaces names 'ghost', which is not a column to randomise; columns are x$",
        ),
        (None, "secret", ParameterError, 'infer must be "private", "public" or "data"; declare spaces'),
        (None, None, ParameterError, 'infer must be "private", "public" or "data"'),
        ([("x", (0, 1))], "public", ParameterError, r"spaces must be a mapping \{column: space\}, or a plan"),
        ({"x": (9, 1)}, "public", ParameterError, "^column 'x': lower must be below upper"),
        ({"x": "small"}, "public", ParameterError, "^column 'x': a space is bounds"),
        ({"x": [1, 1, 2]}, "public", ParameterError, "^column 'x': categories holds a value twice"),
        ({"x": ["a"]}, "public", ColumnError, "^column 'x': has type int64, which a list of string categories"),
        ({"x": Boolean()}, "public", ColumnError, r"^column 'x': has type int64, which Boolean\(\) cannot hold"),
        ({"x": Real(0, 1)}, "public", ColumnError, r"^column 'x': has type int64, .* declare Integer\(lower, upper\)$"),
    ],
)
def test_bad_declarations_name_their_column(spaces: Any, infer: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        infer_spaces([Field("x", pa.int64(), False)], spaces, infer, unread)
    one_line(caught)


@pytest.mark.parametrize(
    ("space", "warns"),
    [
        ((0, 1), True),
        ({"lower": 0, "upper": 10}, True),
        ({"space": "nullable", "inner": {"lower": 0, "upper": 1}}, True),
        ((0, 11), False),
        ((0.0, 1.0), False),
        (dpf.Integer(0, 1), False),
        ({"space": "integer", "lower": 0, "upper": 1}, False),
        ({"categories": [0, 1]}, False),
        ((dt.date(2024, 1, 1), dt.date(2024, 1, 9)), False),
    ],
)
def test_few_whole_bounds_of_text_warn_of_decimals(space, warns) -> None:
    """By the declaration and the kind of file, never by values: whether any has decimals is data."""
    text, typed = Field("x", pa.null(), True, written=True), Field("x", pa.float64(), True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_whole_bounds([text], {"x": space})
        said = [str(one.message) for one in caught]
        warn_of_whole_bounds([typed], {"x": (0, 1)})
        assert len(caught) == len(said) == warns
        warn_of_whole_bounds(
            [replace(text, name="unit_cost"), replace(text, name="costume")],
            dict.fromkeys(["unit_cost", "costume"], (0, 300)),
        )
        ((_, remark),) = [str(one.message).splitlines() for one in caught[len(said) :]]
        assert remark == "  unit_cost  decimals are rounded to whole numbers  spaces={'unit_cost': (0.0, 300.0)}"
    assert not warns or re.search(r"\n  x  decimals are rounded .* spaces=\{'x': \(0\.0, \d+\.0\)\}$", said[0])


def test_plans_and_queries_of_csv_warn_of_decimals(tmp_path) -> None:
    (tmp_path / "x.csv").write_text("x\n" + "0.25\n0.5\n" * 50)
    with pytest.warns(dpf.errors.InferenceWarning, match="decimals are rounded"):
        plan = dpf.plan(tmp_path / "x.csv", 1, spaces={"x": (0, 1)})
    with pytest.warns(dpf.errors.InferenceWarning, match="decimals are rounded"):
        dpf.Queries(tmp_path / "x.csv", 1.0, {"x": (0, 1)})
    # What warned when it was made warns of nothing when it is used: filters make a warning an error.
    dpf.sanitize(tmp_path / "x.csv", tmp_path / "safe.parquet", plan=plan)


def test_names_with_line_breaks_keep_the_message_on_one_line() -> None:
    with pytest.raises(ParameterError, match="ghost") as caught:
        infer_spaces([Field("a\nb", pa.int64(), False)], {"ghost": (0, 1)}, "public", unread)
    one_line(caught)
    with pytest.raises(ParameterError, match="declared space") as caught:
        infer_spaces([Field("a\nb", pa.int64(), False)], None, "public", unread)
    one_line(caught)


# ---------------------------------------------------------------------------------------------- from data


def test_data_mode_warns_once_and_names_the_columns() -> None:
    frame = pd.DataFrame({"age": [31, 47], "flag": [True, False], "kind": ["a", "b"]})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = dpf.plan(frame, 1.0, infer="data")
    assert [str(w.message)[:33] for w in caught] == ["spaces of age, kind were read off"]
    assert plan.leaks == ("age", "kind")
    assert "NOT COVERED" in str(plan)
    declared = dpf.plan(frame, 1.0, spaces={"age": (0, 120), "kind": ["a", "b"]}, infer="data")
    assert declared.leaks == ()


def test_leak_a_plan_whose_spaces_are_taken_hands_its_leaks_on() -> None:
    frame = pd.DataFrame({"age": [31, 47], "flag": [True, False], "kind": ["a", "b"], "more": [1, 2]})
    with pytest.warns(PrivacyLeakWarning):
        first = dpf.plan(frame[["kind", "age", "flag"]], 1.0, infer="data")
    rest = frame.drop(columns="more")
    with pytest.warns(PrivacyLeakWarning, match=r"^spaces of kind, age.*data earlier: ") as caught:
        second = dpf.plan(rest, 1.0, spaces=first)
    assert second.leaks == ("age", "kind")
    assert caught[0].filename == __file__
    with pytest.warns(PrivacyLeakWarning, match=r"spaces of kind were .* earlier"):
        assert dpf.plan(rest, 1.0, spaces=second, drop=["age"]).leaks == ("kind",)
    with pytest.warns(PrivacyLeakWarning) as caught:
        assert dpf.plan(frame, 1.0, spaces=first, infer="data").leaks == ("age", "kind", "more")
    assert [str(w.message)[:30] for w in caught] == ["spaces of more were read off t", "spaces of kind, age were read "]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dpf.plan(frame[["flag"]], 1.0, spaces=first).leaks == ()


@pytest.mark.filterwarnings("ignore::dpframe.PrivacyLeakWarning")
def test_objects_are_read_as_python_values_of_one_kind() -> None:
    def space_of(*values: Any) -> Space:
        column = np.empty(len(values), dtype=object)
        column[:] = values
        return dpf.plan(pd.DataFrame({"x": pd.Series(column)}), 1.0, infer="data")["x"].space

    assert space_of(1, np.int8(3), None) == Nullable(Integer(1, 3))
    assert space_of(1, np.float32(3)) == Real(1, 3)
    assert space_of("b", np.str_("a")) == Categorical(["a", "b"], other="other")
    assert space_of(dt.date(2020, 1, 1), dt.date(2020, 1, 9)) == Datetime("2020-01-01", "2020-01-09")
    entries = pd.Index([dt.date(2020, 1, 1), SECRET, dt.date(2020, 1, 9)], dtype=object)
    frame = pd.DataFrame({"x": pd.Categorical.from_codes([0, 2], entries)})
    assert dpf.plan(frame, 1.0, infer="data")["x"].space == Datetime("2020-01-01", "2020-01-09")
    for odd in (SECRET, True, 2**63, np.datetime64("2020-01-01"), dt.timedelta(1), b"x", [1]):
        with pytest.raises(ColumnError, match="holds values of mixed or unsupported types") as caught:
            space_of(1, 2, odd)
        one_line(caught)


def test_categories_in_sorted_order_whatever_the_order_of_rows() -> None:
    space = Categorical(["a", "b", "c"], other="other")
    for values in (["c", "a", "b", "a"], ["a", "b", "c"]):
        for type_ in (pa.string(), pa.large_string(), pa.string_view()):
            assert from_data(pa.array(values, type_)) == space
    assert from_data(pa.array(["c"]), pa.array(["a", "b"])) == space
    assert from_data(pa.array(["c", "b", "a"]).dictionary_encode()) == space


def test_nulls_anywhere_make_it_nullable_where_they_may_occur() -> None:
    assert from_data(pa.array([1, 3]), pa.array([2, None])) == Nullable(Integer(1, 3))
    assert from_data(pa.array([1, 3])) == Integer(1, 3)
    assert isinstance(from_data(pa.array([1.0, math.nan, 2.0])), Nullable)
    assert from_data(pa.array([1.0, math.inf, 3.0])) == Nullable(Real(1, 3))
    assert from_data(pa.array(["b", None]).dictionary_encode()) == Nullable(Categorical(["b"], other="other"))


WIDE = [pa.int16(), pa.int32(), pa.int64(), pa.uint16(), pa.uint32(), pa.uint64()]


@given(st.data(), st.sampled_from(WIDE))
@settings(max_examples=examples(80))
def test_bounds_of_integers_hold_the_values(data: st.DataObject, type_: pa.DataType) -> None:
    info = np.iinfo(type_.to_pandas_dtype())
    low, high = int(info.min), int(info.max)
    ends = st.sampled_from([low, low + 1, high - 1, high, min(high, 2**63 - 1)])
    values = data.draw(st.lists(st.integers(low, high) | ends, max_size=4))
    space = from_data(pa.array(values, type_))
    assert isinstance(space, Integer)
    assert low <= space.lower < space.upper <= high
    held = [v for v in values if v < 2**63]
    if held and max(held) - min(held) < 2**32 - 1 and min(held) < max(held):
        assert (space.lower, space.step) == (min(held), 1) or max(values) >= 2**63
    decoded = space.decode(space.encode(pa.array(values, type_)), type_).to_pylist()
    assert all(abs(d - v) <= space.step for d, v in zip(decoded, values, strict=True) if v < 2**63)


@given(st.data(), st.sampled_from([16, 32, 64]))
@settings(max_examples=examples(80))
def test_bounds_of_reals_hold_the_values(data: st.DataObject, width: Any) -> None:
    values = np.array(data.draw(st.lists(st.floats(width=width, allow_nan=False, allow_infinity=False), max_size=4)))
    values = values.astype(f"f{width // 8}")
    space = from_data(pa.array(values))
    assert isinstance(space, Real)
    most = float(np.finfo(values.dtype).max) / 5
    clamped = np.clip(values.astype(np.float64), -most, most)
    assert ((clamped >= space.lower) & (clamped <= space.upper)).all()


def test_bounds_of_nearly_equal_reals_hold_both() -> None:
    space = from_data(pa.array(np.array([0.0, -1.2e-7], np.float16)))
    assert isinstance(space, Real)
    assert space.lower < -1.0e-7
    assert space.upper == 0.0


def test_bounds_of_reals_are_the_extremes() -> None:
    assert from_data(pa.array([3.5, -1.0, 2.0])) == Real(-1.0, 3.5)
    years = from_data(pa.array([1990, 2020], pa.float32()))
    assert years == Real(1990, 2020, steps=16384)
    assert from_data(pa.array([5.0, 5.0])) == Real(5, 10)


EDGES = [-(2**63), -(2**62), -62_135_596_800, -1, 0, 1, 253_402_300_799, 2**31, 2**62, 2**63 - 1]


@given(st.lists(st.sampled_from(EDGES) | st.integers(-(10**12), 10**12), max_size=4), st.data())
@settings(max_examples=examples(80))
def test_bounds_of_times_never_fail(ticks: list[int], data: st.DataObject) -> None:
    temporal = [t for t in TYPES if pa.types.is_timestamp(t) or pa.types.is_duration(t)]
    type_ = data.draw(st.sampled_from(temporal))
    column = pa.array(ticks, pa.int64()).view(type_)
    space = from_data(column)
    assert isinstance(space, Datetime)
    assert space.is_duration == pa.types.is_duration(type_)
    assert len(space.encode(column)) == len(ticks)
    modest = {"s": 10**9, "ms": 10**12, "us": 10**15, "ns": 10**18}[type_.unit]
    if ticks and max(map(abs, ticks)) < modest:
        back = space.decode(space.encode(column), type_).view(pa.int64()).to_pylist()
        slack = {"s": 1, "ms": 500, "us": 500_000, "ns": 500_000_000}[type_.unit]
        assert all(abs(a - b) <= slack for a, b in zip(back, ticks, strict=True))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([dt.date(1950, 5, 1), dt.date(2020, 1, 1)], Datetime("1950-05-01", "2020-01-01")),
        ([dt.date(9999, 12, 31)], Datetime("9999-12-30", "9999-12-31")),
        ([dt.date(1, 1, 1)], Datetime("0001-01-01", "0001-01-02")),
        ([dt.datetime(1969, 12, 31, 23, 59, 59, 5)], Datetime("1969-12-31T23:59:59", "1970-01-01", "s")),
        (
            [dt.timedelta(seconds=-3), dt.timedelta(hours=2)],
            Datetime(dt.timedelta(seconds=-3), dt.timedelta(hours=2), "s"),
        ),
        ([dt.datetime(1, 1, 1), dt.datetime(2020, 1, 1)], Datetime("0001-01-01", "2020-01-01", "h")),
    ],
)
def test_bounds_of_times(values: list[Any], expected: Datetime) -> None:
    assert from_data(pa.array(values)) == expected


@pytest.mark.parametrize(
    "type_", [t for t in ASKING if not pa.types.is_dictionary(t) and t != pa.list_(pa.float64())], ids=str
)
def test_empty_and_null_columns_have_a_space_too(type_: pa.DataType) -> None:
    assert len(from_data(pa.nulls(0, type_)).encode(pa.nulls(0, type_))) == 0
    space = from_data(pa.nulls(3, type_))
    assert isinstance(space, Nullable)
    assert space.code_list(space.encode(pa.nulls(3, type_))) == [space.null] * 3


@pytest.mark.parametrize(
    "name",
    [
        *["id", "ID", "user_id", "patient-id", "e-mail", "Email", "phone", "ssn", "uuid", "telephone", "mrn"],
        *["PassengerId", "CustomerID", "EmployeeNumber"],
        *["member_no", "membership_no", "member_number", "customer_no", "patient_nr", "staff_no"],
        *["emp_no", "EmpNo", "pers_nr", "personnel_nr", "svnr", "sv_nr", "SV-Nummer", "personnummer", "insured_no"],
        *[
            "emp_code",
            "Nachname",
            "account_number",
            "order_no",
            "memberno",
            "staff_code",
            "CustomerCode",
            "patient_ref",
        ],
        *["Kundennummer", "Kunden-Nr", "social_security_number", "nhs_number"],
        *["first name", "last_name", "policy number"],
    ],
)
def test_identifiers_are_refused_by_name(name: str) -> None:
    with pytest.raises(ColumnError, match=f"^column '{name}': looks like an identifier.*pass drop") as caught:
        infer_spaces([Field(name, pa.string(), True)], None, "data", unread)
    one_line(caught)


@pytest.mark.parametrize(
    "name",
    [
        *["paid", "grid", "humid", "idle", "covid", "nickname", "AVOID", "phone_minutes", "number_of_rooms"],
        *["no_children", "order_size", "emp", "pers", "persons", "personal", "emp_status", "temp_no", "vpers_nrx"],
        *["account_balance", "policy", "staff", "member", "account", "num_orders", "number", "house_number"],
        *["Hausnummer", "customer_numbers"],
        *["ticket", "member_since", "piano", "order_date", "idNumeric", "visit_no"],
    ],
)
def test_names_that_only_end_alike_are_no_identifiers(name: str) -> None:
    assert from_data(pa.array([1, 2]), name=name) == Integer(1, 2)


def test_a_declared_identifier_is_taken() -> None:
    found, _, leaks = infer_spaces([Field("id", pa.int64(), False)], {"id": (0, 9)}, "data", unread)
    assert (found, leaks) == ({"id": Integer(0, 9)}, [])


@pytest.mark.parametrize(
    "array", [pa.array([[[1.5]]]), pa.array([b"x"]), pa.array([{"a": SECRET}]), pa.nulls(2)],
    ids=lambda a: str(a.type),
)  # fmt: skip
def test_unsupported_types_are_refused(array: pa.Array) -> None:
    with pytest.raises(ColumnError, match=r"^column 'x': has type.*, for which no.*known; pass drop=") as caught:
        infer_spaces([Field("x", array.type, True)], None, "data", lambda _: [array])
    one_line(caught)


def test_mixed_objects_are_refused_by_column() -> None:
    frame = pd.DataFrame({"x": pd.Series([1, SECRET], dtype=object)})
    with pytest.raises(ColumnError, match=r"^column 'x': holds values.*or unsupported types") as caught:
        dpf.plan(frame, 1.0, infer="data")
    one_line(caught)


def test_what_is_inferred_can_be_released() -> None:
    frame = pd.DataFrame(
        {
            "age": np.array([0, 0, 0], np.uint16),
            "year": np.array([1990, 2000, 2020], np.float32),
            "kind": ["a", None, "b"],
            "when": np.array(["9999-12-31"] * 3, "datetime64[s]"),
            "rank": pd.Categorical(["lo", "hi", "lo"], ["lo", "hi"], ordered=True),
        }
    )
    with pytest.warns(PrivacyLeakWarning):
        safe = dpf.sanitize(frame, epsilon=1.0, infer="data", key=bytes(32))
    assert safe.dtypes.drop("rank").equals(frame.dtypes.drop("rank"))
    assert safe["age"].between(0, 1).all()


def test_ordered_dtypes_declare_ranks() -> None:
    dtype = pd.CategoricalDtype(["lo", "hi"], ordered=True)
    type_ = pa.array(pd.Series(["hi"], dtype=dtype)).type
    found, *_ = infer_spaces([Field("x", type_, True)], {"x": dtype}, "public", unread)
    assert found == {"x": Ordinal(["lo", "hi"])}
