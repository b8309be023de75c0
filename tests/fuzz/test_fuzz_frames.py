"""Frames of every dtype, under any options: released whole in their dtypes, or refused in one line, for nothing.

A few cells hold values that no message may hold. What is refused costs the ledger nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fuzzing import ANYTHING, NUMBERS, SECRET, SECRET_NUMBER, cases, counted, outcome
from hypothesis import assume, given
from hypothesis import strategies as st

import dpframe as dpf

ZONES = ["UTC", "Asia/Kathmandu", "America/St_Johns"]

SECRETS: list[Any] = [SECRET, SECRET_NUMBER, float(SECRET_NUMBER), SECRET.encode(), [SECRET], {SECRET}, {SECRET: 1}]


def texts(rows: int) -> list[Any]:
    return [SECRET, *"abc" * rows][:rows]


Make = Callable[[int, st.DrawFn], Any]
"""Makes a column of so many rows."""


def _numpy(dtype: str) -> Make:
    def make(rows: int, draw: st.DrawFn) -> Any:
        return pd.Series(np.arange(rows) % 5).astype(dtype)

    return make


def _nullable(dtype: str) -> Make:
    def make(rows: int, draw: st.DrawFn) -> Any:
        return pd.Series([None if i % 4 == 3 else i % 2 for i in range(rows)], dtype=dtype)

    return make


def _secret_numbers(rows: int, draw: st.DrawFn) -> Any:
    return pd.Series([SECRET_NUMBER, *[1, 2, np.inf, -np.inf, np.nan] * rows][:rows], dtype="float64")


def _arrow(type_: pa.DataType) -> Make:
    def make(rows: int, draw: st.DrawFn) -> Any:
        values = pa.array([None if i % 3 == 2 else i % 3 for i in range(rows)], pa.int64())
        if pa.types.is_nested(type_):
            made = pa.array([None if i % 3 == 2 else [i] * (i % 3) for i in range(rows)], pa.list_(pa.int64()))
        elif pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_dictionary(type_):
            made = pa.array(texts(rows)).cast(type_)
        elif pa.types.is_temporal(type_) and not pa.types.is_int64(type_):
            width = pa.int32() if type_.bit_width == 32 else pa.int64()
            made = values.cast(width).view(type_) if not pa.types.is_date64(type_) else pa.array([None] * rows, type_)
        else:
            made = values.cast(type_)
        return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([made])))

    return make


def _strings(rows: int, draw: st.DrawFn) -> Any:
    return pd.Series(texts(rows), dtype=draw(st.sampled_from(["object", "string", "str", "category"])))


def _ordered(rows: int, draw: st.DrawFn) -> Any:
    return pd.Series(pd.Categorical(texts(rows), [SECRET, "unused", "c", "b", "a"], ordered=True))


def _times(rows: int, draw: st.DrawFn) -> Any:
    zone = draw(st.none() | st.sampled_from(ZONES))
    unit = draw(st.sampled_from(["s", "ms", "us", "ns"]))
    times = pd.Series(pd.date_range("2020-02-28", periods=rows, freq="12h", tz=zone)).dt.as_unit(unit)
    return times.mask(times.index == 2)


def _spans(rows: int, draw: st.DrawFn) -> Any:
    return pd.Series(pd.to_timedelta(np.arange(rows), unit="h"))


def _objects(rows: int, draw: st.DrawFn) -> Any:
    odd = st.sampled_from([*SECRETS, None, np.nan, pd.NA, pd.NaT, Decimal("1.5"), dt.date(2020, 1, 1), True, "a", 1])
    values = draw(st.lists(odd | ANYTHING, min_size=rows, max_size=rows))
    made = np.empty(rows, dtype=object)
    made[:] = [None] * rows
    for i, value in enumerate(values):
        made[i] = value
    return pd.Series(made, dtype=object)


def _lists(rows: int, draw: st.DrawFn) -> Any:
    inner = st.lists(st.sampled_from([SECRET, "a", "b"]), max_size=3) | st.lists(st.floats(-1, 1), max_size=3)
    return pd.Series([draw(inner) for _ in range(rows)], dtype=object)


def _absent(rows: int, draw: st.DrawFn) -> Any:
    return pd.Series([None] * rows, dtype=draw(st.sampled_from(["object", "float64", "Int64", "string", "category"])))


def _other(rows: int, draw: st.DrawFn) -> Any:
    spans = pd.interval_range(0, max(rows, 1))[:rows]
    kinds = {
        "period": pd.period_range("2020-01", periods=rows, freq="M"),
        "interval": spans,
        "sparse": pd.arrays.SparseArray(np.arange(rows) % 2),
        "complex": np.arange(rows) * 1j,
        "bytes": np.array([SECRET.encode()] * rows, dtype=object),
    }
    return pd.Series(kinds[draw(st.sampled_from(sorted(kinds)))])


COLUMNS: list[Make] = [
    *map(_numpy, ["bool", "int8", "int16", "int64", "uint8", "uint64", "float16", "float32", "float64"]),
    *map(_nullable, ["Int8", "Int64", "UInt32", "Float32", "Float64", "boolean"]),
    *map(_arrow, [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(30, 2), pa.string(), pa.large_string()]),
    *map(_arrow, [pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.date32(), pa.date64(), pa.duration("s")]),
    *map(_arrow, [pa.list_(pa.int64()), pa.dictionary(pa.int8(), pa.string()), pa.bool_(), pa.time64("us")]),
    *[_secret_numbers, _strings, _strings, _ordered, _times, _times, _spans, _objects, _objects, _lists, _absent],
    _other,
]

NAMES = ["a", "b", "c", "d", "é", "日本", "a b", "a.b", "\n", "x=y", "", "🂡", "id", "shuffled", "dp", "index", "\ud800"]


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Draw a frame of up to four columns: of no rows, of one, of a few."""
    rows = draw(st.sampled_from([0, 1, 2, 7, 40]))
    count = draw(st.integers(0, 4))
    columns = [draw(st.sampled_from(COLUMNS))(rows, draw) for _ in range(count)]
    frame = pd.concat([one.rename(i) for i, one in enumerate(columns)], axis=1) if columns else pd.DataFrame()
    names: list[Any] = draw(
        st.one_of(
            *[st.just(list("abcd")[:count])] * 6,
            st.lists(st.sampled_from(NAMES), min_size=count, max_size=count, unique=True),
            st.sampled_from([["a"] * count, [("a", i) for i in range(count)], list(range(count))]),
        )
    )
    kind = draw(st.integers(0, 19))
    tuples = bool(names) and isinstance(names[0], tuple)
    frame.columns = pd.MultiIndex.from_tuples(names) if tuples else pd.Index(names, dtype=object)
    if kind == 0:
        frame.index = pd.Index([SECRET] * len(frame), name="who" if draw(st.booleans()) else None)
    if kind == 1:
        frame.attrs = {"secret": SECRET}
    return frame


SPEC = st.one_of(
    st.tuples(st.integers(-3, 3), st.integers(1, 50)),
    st.sampled_from(
        [
            [["a", "b"], ["a"], [1, 2, 3], [True, False], [0.0, 1.0]],
            [dpf.Nullable(dpf.Integer(0, 9)), dpf.Nullable(dpf.Categorical(["a", "b"], other="b")), dpf.Boolean()],
            [dpf.Nullable(dpf.Subset(["a", "b"], 1)), dpf.Vector(2, 1.0), dpf.Datetime("2020-01-01", "2020-02-01")],
            [dpf.Real(0, 1), dpf.Nullable(dpf.Ordinal(["a", "b", "c"])), {"lower": 0, "upper": 9}],
        ]
    ).flatmap(st.sampled_from),
    ANYTHING,
)

OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "infer": st.sampled_from(["private", "private", "public", "data"]),
    "infer_share": st.sampled_from([0.01, 0.5, 0.99]),
    "measure": st.sampled_from(["auto", None, ["a"], [("a", "b")]]),
    "measure_share": st.sampled_from([0.01, 0.5, 0.99]),
    "allocation": st.sampled_from(["uniform", "error"]) | st.dictionaries(st.sampled_from(NAMES), NUMBERS),
    "groups": st.sampled_from([[("a", "b")], [["a", "b", "c"]]]),
    "mechanisms": st.dictionaries(
        st.sampled_from(NAMES), st.sampled_from(["optimal", "geometric", "exponential", "x"]), max_size=2
    ),
    "sample": st.sampled_from(["optimal", 1, 5]),
    "contributions": st.sampled_from([1, 2, 3]),
    "privacy_id": st.sampled_from(NAMES),
    "nulls": st.sampled_from(["error", "impute"]),
    "drop": st.lists(st.sampled_from(NAMES), max_size=2),
    "passthrough": st.lists(st.sampled_from(NAMES), max_size=2),
    "shuffle": st.booleans(),
    "local_epsilon": st.sampled_from([0.5, 3.0, 1e-3]),
    "max_items": st.integers(1, 20),
}


@st.composite
def options(draw: st.DrawFn, frame: pd.DataFrame) -> dict[str, Any]:
    """Draw arguments of a release: of some columns a declaration, of some options a value."""
    found: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=3, unique=True)):
        found[name] = draw(ANYTHING if draw(st.integers(0, 7)) == 0 else OPTIONS[name])
    if len(frame.columns) and draw(st.booleans()):
        own = draw(st.lists(st.sampled_from(list(frame.columns)), max_size=4))
        found["spaces"] = {name: draw(SPEC) for name in own}
    odd = draw(st.integers(0, 9))
    found["epsilon"] = draw(NUMBERS | ANYTHING if odd == 0 else st.sampled_from([1.0, 1.0, 0.1, 8.0]))
    if draw(st.booleans()):
        found["delta"] = draw(NUMBERS | ANYTHING if odd == 1 else st.sampled_from([0.0, 1e-6, 1e-3]))
    return found


def _same(frame: pd.DataFrame) -> Any:
    return frame


def _as_arrow(frame: pd.DataFrame) -> Any:
    return pa.Table.from_pandas(frame)


def _as_polars(frame: pd.DataFrame) -> Any:
    return pl.from_pandas(frame)


KINDS = [_same, _same, _same, _as_arrow, _as_polars]


def converted(kind: Callable[[pd.DataFrame], Any], frame: pd.DataFrame) -> Any:
    """Return a frame as another kind of table; cases that the other library cannot hold are left out."""
    try:
        return kind(frame)
    except (TypeError, ValueError, pa.ArrowException, pl.exceptions.PolarsError, AttributeError, OverflowError):
        assume(False)


def check(table: Any, given_options: dict[str, Any], account: dict[str, Any]) -> None:
    """Release a table, and check that what comes back is like it."""
    safe = dpf.sanitize(table, **given_options, **account)
    if not isinstance(table, pd.DataFrame):
        assert type(safe) is type(table)
        return
    kept = [name for name in table.columns if name in set(safe.columns)]
    assert list(safe.columns) == kept
    for mine, its in zip(safe.dtypes, table.dtypes[table.columns.isin(kept)], strict=True):
        # Observed categories are data, and so is the width of their codes: those released follow the space.
        assert mine == its or isinstance(its, pd.CategoricalDtype) or "dictionary" in str(its), (mine, its)
    assert safe.dp.release.n == len(safe)
    assert isinstance(repr(safe.dp), str)


@cases(0.05, 40)
@given(data=st.data())
def _released(found: Any, account: dict[str, Any], data: st.DataObject) -> None:
    frame = data.draw(frames())
    table = converted(data.draw(st.sampled_from(KINDS)), frame)
    arguments = data.draw(options(frame))
    charged = account if data.draw(st.integers(0, 3)) == 0 else {}
    before = len(account["ledger"].history()) if charged else 0
    how = outcome(lambda: check(table, arguments, charged))
    found[how] += 1
    if charged and how.endswith(("Error", "Exceeded")):
        assert len(account["ledger"].history()) == before


@pytest.mark.slow
def test_frames(tmp_path: Path) -> None:
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1e12, 0.9, accounting="basic")
    with counted("frames of every dtype") as found:
        _released(found, {"ledger": ledger, "dataset": "survey"})
    assert found["works"] > 0
