"""Objects of plain classes are coded all at once: with the codes, nulls and refusals of each read by itself."""

from __future__ import annotations

import datetime as dt
import enum
import gc
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import examples

from dpframe.errors import ColumnError
from dpframe.spaces import Boolean, Categorical, Datetime, Integer, Nullable, Ordinal, Real, Space, Subset, Vector
from dpframe.spaces.object_codes import uncollected
from dpframe.spaces.python_values import is_missing

DAY = dt.timedelta(days=1)


Shade = enum.Enum("Shade", {"DARK": "a"}, type=str)
"""Hashes as something else than its text."""


class Row(list[Any]):
    """A list of a class of its own."""


class Hostile(str):
    """Raises where its hash is asked for."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise RuntimeError("hashed")


class Liar(str):
    """Takes itself for another text."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash("b")

    def __eq__(self, other: object) -> bool:
        return other == "b"


def unit(value: Any) -> Any:
    return np.array(value, dtype=object)


SCALARS: list[Any] = [
    *(0, 1, 2, -5, 50, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**70, -(10**400), True, np.True_, False),
    *(0.5, 1.0, -0.0, 2.5, math.nan, math.inf, -math.inf, 1e300, np.float32(0.5), np.float64(2.5), np.int8(1)),
    *(
        "a",
        "b",
        "1",
        "",
        np.str_("a"),
        np.str_("x"),
        Liar("a"),
        Shade("a"),
        b"a",
        "\ud800",
        None,
        pd.NA,
        pd.NaT,
        object(),
    ),
    *(dt.date(2020, 1, 2), dt.date.min, dt.date.max, dt.datetime(2020, 1, 2, 12), dt.datetime.min, dt.datetime.max),
    *(dt.datetime(2020, 1, 2, 23, tzinfo=dt.UTC), pd.Timestamp("2020-01-02 11:59:59.999999999")),
    *(dt.timedelta(hours=12), dt.timedelta(hours=11.99), dt.timedelta.max, dt.timedelta.min, np.timedelta64(3, "h")),
]
LISTS: list[Any] = [
    *([], ["a"], ["b", "a"], ("a",), {"a", "b"}, frozenset({"b"}), ["a", "a"], ["x"], ["x", "y"], ["a", "x", "y"]),
    *(["a", None], [None], ["a", math.nan], [["a"]], ["a", b"a"], [np.str_("a"), "b"], [Shade("a"), "b"], Row(["a"])),
    *([np.str_("x")], [np.str_("b"), np.str_("a")], [np.str_("a"), "a"], (np.str_("\ud800"),), {np.str_("a"), "b"}),
    *([Liar("a")], [Liar("x"), "a"], [np.str_("b"), Liar("a")], [np.int64(1), 2], [np.int64(3)], [np.int64(1), 1.0]),
    *([np.True_, False], [np.True_, True], [np.int64(1), np.timedelta64(2, "D")], [np.int64(2), np.int8(1)]),
    *([Hostile("a")], unit(["a", "b"]), unit(["a", None]), unit([]), np.array(["b", "a"]), np.array([["a"]])),
    *([1, 2], {2}, [1, 1], [1, True], [1.0, 2], np.array([1, 2]), np.array([1, 2], np.int8), [3], [math.nan, 1]),
    *([True, False], [0.1, 0.5], np.array([0.1, 0.5]), np.array([0.1], np.float32), [np.float32(0.1)], ["\ud800"]),
    *([0.25, -0.5], (0.5, 0.5), [0.5], [0.5, math.nan], [0.5, math.inf], [1, 0], [0.5, 1], [0.5, "a"], [0.5, None]),
    *(np.array([0.25, -0.5]), np.array([0.25, -0.5], np.float32), unit([0.25, -0.5]), np.array([1, 0]), {0.5, 0.25}),
    *(None, math.nan, "a", 1, {"a": 1}, pd.NA),
]
SPACES: list[Space] = [
    *(Boolean(), Categorical(["a", "b", "1"]), Categorical(["a", "1"], other="rest"), Ordinal(["", "a", "b"])),
    *(Categorical([1, 2, 2**53 + 1], other=9), Categorical([0.5, 1.0], other=2.5), Categorical([True, False])),
    *(Integer(0, 100), Integer(-5, 5, step=5), Integer(-(2**60), 2**60, 2**40), Integer(2**53 - 10, 2**53 + 10)),
    *(Real(0, 1), Real(-3, 3, 7), Real(-1e300, 1e300), Real(1, 1 + 2**-30)),
    *(Datetime("2020-01-01", "2020-02-01", r) for r in ("D", "h", "min")),
    *(Datetime("2020-01-02T00:00:00", "2020-01-02T00:00:01", "ns"), Datetime("0001-01-01", "9999-12-31")),
    *(Datetime(0 * DAY, 10 * DAY), Datetime(-DAY / 86400, 3 * DAY / 86400, "ns")),
    *(Subset(["a", "b"]), Subset(["a", "b"], max_size=1, strict=True), Subset(["a"], other="rest"), Subset([1, 2])),
    *(Subset(["a", "x"], other="x"), Subset([1, 2, 3], other=3), Subset([0.1, 0.5]), Subset([True, False])),
    *(Vector(2, 1.0), Vector(2, 1.0, "l1"), Subset([f"{i}" for i in range(64)] + ["a"], other="b")),
]
ALL = [*SPACES, *map(Nullable, SPACES)]
SOON = settings(max_examples=examples(80))


def alone(space: Space, value: Any, lenient: bool) -> int | str | None:
    """Return the code of an object as its space has it for one, None for null, or the rule that it breaks."""
    if is_missing(value):
        return None
    try:
        return space._object_code(value, lenient)
    except ColumnError as error:
        return error.rule


def expected(space: Space, values: list[Any], lenient: bool) -> tuple[list[int | None], tuple[str, int] | None]:
    """Return codes, or the refusal that comes first."""
    found = [alone(space, value, lenient) for value in values]
    refusals = [(rule, row) for row, rule in enumerate(found) if isinstance(rule, str)]
    return [code for code in found if not isinstance(code, str)], refusals[0] if refusals else None


def together(space: Space, values: list[Any], lenient: bool) -> tuple[list[int | None], tuple[str, int] | None]:
    try:
        codes, missing = space._encode_objects(values, lenient)
    except ColumnError as error:
        assert error.row is not None
        return [], (error.rule, error.row)
    absent = np.zeros(len(values), dtype=np.bool_) if missing is None else missing
    return [None if null else code for code, null in zip(space.code_list(codes), absent, strict=True)], None


def check(space: Space, values: list[Any], lenient: bool) -> None:
    """Compare, where nothing is refused; else the first refusal, and what is left without those refused."""
    inner = space.inner_space if isinstance(space, Nullable) else space
    codes, refusal = expected(inner, values, lenient or space is not inner)
    if refusal is not None:
        _, found = together(space, values, lenient)
        # Lists of numbers are checked for NaN and infinity after their form, of all rows.
        assert found == refusal or (inner.holds_vectors and found is not None)
        values = [value for value in values if not isinstance(alone(inner, value, lenient or space is not inner), str)]
    if space is not inner:
        codes = [space.null if code is None else code for code in codes]
    assert together(space, values, lenient) == (codes, None)


@pytest.mark.walk(20)
@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("space", ALL, ids=repr)
def test_objects_have_the_codes_that_each_has_by_itself(space: Space, lenient: bool) -> None:
    pool = [*SCALARS, *LISTS]
    check(space, pool, lenient)
    check(space, pool[::-1], lenient)
    for value in pool:
        check(space, [value, value], lenient)


@SOON
@given(st.data(), st.sampled_from(ALL), st.booleans())
def test_leak_rows_are_coded_alike_whatever_others_hold(data: st.DataObject, space: Space, lenient: bool) -> None:
    anything = st.sampled_from([*SCALARS, *LISTS]) | st.integers() | st.floats() | st.text(max_size=2)
    anything |= st.lists(st.sampled_from(["a", "b", "x", None]) | st.floats(width=16) | st.integers(0, 3), max_size=3)
    check(space, data.draw(st.lists(anything, max_size=20)), lenient)


def test_a_hash_that_is_foreign_is_never_asked_for() -> None:
    """A subclass of text may have one that raises, or lies."""
    assert Subset(["a", "b"]).encode([[Hostile("a")], ["b"]]).tolist() == [[1], [2]]


@pytest.mark.parametrize("made", [str, np.str_])
def test_items_that_are_many_objects_are_each_coded(made: type[str]) -> None:
    """More of them than are known again, in more rows than are read at a time."""
    space, texts = Subset([f"item {i}" for i in range(20)], other="rest"), [f"item {i}" for i in range(22)]
    draws = np.random.default_rng(0).integers(0, 22, (40_000, 2)).tolist()
    rows = [[made(texts[one]), made(texts[two])] for one, two in draws]
    codes = [(1 << min(one, 20)) | (1 << min(two, 20)) for one, two in draws]
    assert space.encode(rows, nulls="impute")[:, 0].tolist() == codes


@pytest.mark.parametrize("late", [20_000, 39_999])
def test_the_first_refusal_is_told_of_rows_that_are_read_apart(late: int) -> None:
    rows: list[Any] = [["a"]] * 40_000
    rows[late], rows[-1] = ["x"], ["a", "a"]
    with pytest.raises(ColumnError, match=("outside" if late < 39_999 else "twice") + f".*position {late}$"):
        Subset(["a", "b"]).encode(rows)


@pytest.mark.parametrize("space", ALL, ids=repr)
def test_objects_that_are_given_back_are_those_of_a_typed_array(space: Space) -> None:
    last = min(space.size - 1, 2**20)
    codes = space.code_array([0, last, last // 2, *([space.size - 1] if space.has_null else [])])
    if space.holds_vectors:
        codes = space.encode([[0.5, 0.25], [0.0, -1.0], *([None] if space.has_null else [])])
    natural: Any = space.natural_type
    plain = getattr(natural, "value_type", natural) if str(natural).startswith("dictionary") else natural
    listed, found = space.decode(codes, plain).to_pylist(), space.objects(codes)
    assert found.dtype == object
    assert found.tolist() == listed
    assert list(map(type, found)) == list(map(type, listed))


def test_lists_given_back_are_each_a_list_of_its_own() -> None:
    first, second = Subset(["a", "b"]).objects([3, 3])
    first.append("c")
    assert second == ["a", "b"]


@pytest.mark.parametrize("turn", [gc.enable, gc.disable])
def test_the_collector_is_left_as_it_was(turn: Callable[[], None]) -> None:
    was = gc.isenabled()
    try:
        turn()
        before = gc.isenabled()
        with pytest.raises(KeyError), uncollected():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is before
    finally:
        (gc.enable if was else gc.disable)()
