"""What is refused spends nothing, whatever type a column has and whichever entry point is asked."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe.errors import ColumnError, DpframeError, ParameterError

pytestmark = pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")

N = 40
PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
DAY = dt.datetime(2026, 11, 27)


def _arrow(values: list[Any], type_: pa.DataType) -> pd.Series[Any]:
    array = pa.array(values * (N // len(values)), getattr(type_, "value_type", type_) if values == [None] else type_)
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array.cast(type_)])))


def _pandas(values: Any, dtype: Any = None) -> pd.Series[Any]:
    return pd.Series(list(values) * (N // len(values)), dtype=dtype)


TIMES = [pa.timestamp(unit, zone) for unit in ("s", "ns") for zone in (None, "UTC")]
COLUMNS: dict[str, pd.Series[Any]] = {
    **{str(np.dtype(one)): _pandas([0, 1], one) for one in ("bool", "int8", "uint8", "int64", "uint64", "float32")},
    **{one: _pandas([0, None], one) for one in ("boolean", "Int8", "Int64", "Float64")},
    **{one: _pandas([DAY, None], one) for one in ("datetime64[s]", "datetime64[ns]", "datetime64[us, UTC]")},
    "timedelta64": _pandas([dt.timedelta(1), None], "timedelta64[ns]"),
    "complex": _pandas([1j, 2], "complex128"),
    "str": _pandas(["a", "b"], "str"),
    "string": _pandas(["a", None], "string[python]"),
    "category": _pandas(["a", "b"], "category"),
    "category of numbers": _pandas([1, 2], "category"),
    "category of nothing": _pandas([None, None], "category"),
    "sparse": _pandas([0, 1], pd.SparseDtype("int64")),
    "sparse text": pd.Series(pd.arrays.SparseArray(["a", "b"] * (N // 2), fill_value="a")),
    "period": pd.Series(pd.period_range("2026-01", periods=N, freq="M")),
    "interval": pd.Series(pd.interval_range(0, N)),
    "objects": _pandas(["a", 1, None, object()], object),
    "objects of nulls": _pandas([None, np.nan], object),
    "lists": pd.Series([["a"], []] * (N // 2)),
    "NaN": _pandas([np.nan, np.nan], "float64"),
    "durations": _pandas([dt.timedelta(1), None], object),
    "category of durations": _pandas([dt.timedelta(1), None], object).astype("category"),
    **{
        f"Arrow {type_}": _arrow(values, type_)
        for values, type_ in [
            ([None], pa.null()),
            ([1, None], pa.int64()),
            ([1.5, None], pa.float16()),
            (["a", None], pa.string()),
            (["a", None], pa.large_string()),
            (["a", None], pa.string_view()),
            ([b"a", None], pa.binary()),
            ([True, None], pa.bool_()),
            *(([DAY, None], type_) for type_ in TIMES),
            ([DAY.date(), None], pa.date32()),
            ([DAY.time(), None], pa.time64("us")),
            ([dt.timedelta(1), None], pa.duration("s")),
            ([decimal.Decimal("1.5"), None], pa.decimal128(5, 2)),
            ([["a"], None], pa.list_(pa.string())),
            ([[None], None], pa.list_(pa.null())),
            ([[1.0, 2.0], None], pa.list_(pa.float64(), 2)),
            ([[[1]], None], pa.list_(pa.list_(pa.int64()))),
            ([{"a": 1}, None], pa.struct([("a", pa.int64())])),
            ([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            (["a", None], pa.dictionary(pa.int8(), pa.string())),
            ([None], pa.dictionary(pa.int8(), pa.null())),
        ]
    },
}


def _arrow_table(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


ENTRIES: dict[str, Callable[..., Any]] = {
    "frame": lambda frame, path, **paid: dpf.sanitize(frame, **PROMISE, **paid),
    "declared": lambda frame, path, **paid: dpf.sanitize(
        frame, **PROMISE, spaces={"x": dpf.Nullable(dpf.Categorical(["a"], other="other"))}, nulls="impute", **paid
    ),
    "kept order": lambda frame, path, **paid: dpf.sanitize(frame, **PROMISE, shuffle=False, **paid),
    "Parquet": lambda frame, path, **paid: dpf.sanitize(frame, path / "out.parquet", **PROMISE, **paid),
    "CSV": lambda frame, path, **paid: dpf.sanitize(frame, path / "out.csv", **PROMISE, **paid),
    "plan": lambda frame, path, **paid: dpf.plan(frame, **PROMISE, **paid),
    "Arrow": lambda frame, path, **paid: dpf.sanitize(_arrow_table(frame), **PROMISE, **paid),
    "Arrow to CSV": lambda frame, path, **paid: dpf.sanitize(
        _arrow_table(frame), path / "arrow.csv", **PROMISE, **paid
    ),
    "polars": lambda frame, path, **paid: dpf.sanitize(pl.from_arrow(_arrow_table(frame)), **PROMISE, **paid),
    "Sanitizer": lambda frame, path, **paid: dpf.Sanitizer(**PROMISE, **paid).fit_transform(frame),
    "Queries": lambda frame, path, **paid: dpf.Queries(frame, **PROMISE, spaces={"x": ["a", "b"]}, **paid).histogram(
        "x", share=0.5
    ),
}
ARROW = ("Arrow", "Arrow to CSV", "polars")
OTHERS = ("complex", "sparse", "sparse text", "objects")
"""Columns that Arrow has no type for."""
OFTEN = ("Arrow null", "sparse", "lists", "durations")
"""Columns that are asked about in every run of the tests."""


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one not in OFTEN)) for one in COLUMNS])
def test_what_is_refused_spends_nothing(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": COLUMNS[name]})
    entries = {entry: ask for entry, ask in ENTRIES.items() if name not in OTHERS or entry not in ARROW}
    for entry, ask in entries.items():
        ledger = dpf.Ledger(tmp_path / f"{entry}.sqlite")
        ledger.create("survey", 10.0, 1e-3)
        try:
            ask(frame, tmp_path, ledger=ledger, dataset="survey")
        except DpframeError:
            assert not len(ledger.history()), entry
        else:
            assert len(ledger.history()) or entry == "plan", entry


@pytest.mark.parametrize("values", [[["a"], ["b", "a"]], [{"a"}, {"a", "b"}]], ids=["lists", "sets"])
def test_sets_that_csv_cannot_hold_spend_nothing(values: Any, tmp_path: Path) -> None:
    """The type of objects is not known before their space is."""
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 10.0, 1e-3)
    frame = pd.DataFrame({"x": values * 20})
    with pytest.raises(ColumnError, match="CSV cannot hold"):
        dpf.sanitize(
            frame,
            tmp_path / "out.csv",
            **PROMISE,
            spaces={"x": dpf.Subset(["a", "b"], 2)},
            ledger=ledger,
            dataset="survey",
        )
    assert not len(ledger.history())


OBJECTS: dict[str, list[Any]] = {
    "sets": [["a"], ["a", "b"], []],
    "sets of numbers": [[1], [1, 2]],
    "vectors": [[1.0, 2.0], [0.5, 1.5]],
    "durations": [dt.timedelta(hours=26), dt.timedelta(hours=-2, microseconds=3)],
    "times of day": [dt.time(8, 30), dt.time(22)],
}


@pytest.mark.walk(2)
@pytest.mark.parametrize(
    ("kind", "dtype"), [*((kind, object) for kind in OBJECTS), ("durations", "category"), ("times of day", "category")]
)
def test_objects_that_csv_cannot_hold_are_written_as_text(kind: str, dtype: Any, tmp_path: Path) -> None:
    """What objects are is known when inference is paid for: they were refused after that."""
    values = pd.Series(OBJECTS[kind] * (6_000 // len(OBJECTS[kind])), dtype=object).astype(dtype)
    frame = pd.DataFrame({"x": values, "sex": ["F", "M"] * 3_000})
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 10.0, 1e-3)
    dpf.sanitize(frame, tmp_path / "out.csv", epsilon=4.0, delta=1e-6, ledger=ledger, dataset="survey")
    assert len(ledger.history()) == 1
    assert dpf.verify(tmp_path / "out.csv").ok
    safe = dpf.read(tmp_path / "out.csv")
    assert not safe.dp.release.plan.not_found
    assert safe["x"].notna().mean() > 0.9
    with pytest.raises(ColumnError, match="CSV cannot hold"):
        dpf.sanitize(
            frame, tmp_path / "more.csv", plan=dpf.plan(frame, epsilon=4.0, delta=1e-6), ledger=ledger, dataset="survey"
        )
    assert len(ledger.history()) == 1


def test_what_passes_through_is_checked_before_anything_is_spent(tmp_path: Path) -> None:
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 10.0, 1e-3)
    frame = pd.DataFrame({"x": range(40), "tags": [["a"], ["b"]] * 20})
    with pytest.raises(ColumnError, match=r"^column 'tags': .*CSV cannot hold"):
        dpf.sanitize(
            frame,
            tmp_path / "out.csv",
            **PROMISE,
            spaces={"x": (0, 40)},
            passthrough=["tags"],
            ledger=ledger,
            dataset="survey",
        )
    assert not len(ledger.history())


NO_ENTRIES = pa.DictionaryArray.from_arrays(pa.array([None] * 300, pa.int32()), pa.nulls(0))
VOID = pa.table({"age": np.arange(300) % 90, "void": pa.nulls(300)})
KINDS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "Arrow": lambda table, path: table,
    "batch": lambda table, path: table.to_batches()[0],
    "pandas": lambda table, path: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda table, path: pl.from_arrow(table),
    "lazy polars": lambda table, path: pl.from_arrow(table).lazy(),  # type: ignore[union-attr]
    "categories": lambda table, path: table.set_column(1, "void", NO_ENTRIES),
    "pandas' categories": lambda table, path: (
        table.select(["age"]).to_pandas().assign(void=pd.arrays.ArrowExtensionArray(NO_ENTRIES))
    ),
    "Parquet": lambda table, path: pq.write_table(table, path / "in.parquet") or path / "in.parquet",
}


def _nulls(table: Any) -> int:
    frame = table if isinstance(table, pd.DataFrame) else table.to_pandas()
    return int(frame["void"].isna().sum())


@pytest.mark.walk(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", [None, "parquet", "csv"])
def test_columns_that_hold_nothing_stay_null_and_cost_nothing(kind: str, ending: str | None, tmp_path: Path) -> None:
    """Frames kept them, files and Arrow left them out, and columns of pandas were refused once they were paid for."""
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 10.0, 1e-3)
    options: dict[str, Any] = {**PROMISE, "spaces": {"age": (0, 90)}, "ledger": ledger, "dataset": "survey"}
    table = KINDS[kind](VOID, tmp_path)
    if ending is None:
        safe = dpf.sanitize(table, **options)
    else:
        target = tmp_path / f"out.{ending}"
        dpf.sanitize(table, target, **options)
        assert dpf.verify(target).ok
        safe = dpf.read(target)
    assert _nulls(safe) == 300
    assert len(ledger.history()) == 1
    plan = dpf.Estimates(safe).plan
    assert plan.names == ("age", "void")
    alone = dpf.plan(VOID.select(["age"]), **PROMISE, spaces={"age": (0, 90)})
    assert plan["age"].mechanism == alone["age"].mechanism
    assert plan.measures == alone.measures
    assert dpf.Plan.from_json(plan.to_json()) == plan


def test_estimates_of_a_column_that_holds_nothing() -> None:
    safe = VOID.to_pandas(types_mapper=pd.ArrowDtype).dp.sanitize(**PROMISE, spaces={"age": (0, 90)})
    assert safe.dp.null_rate("void")[["estimate", "lower", "upper"]].tolist() == [1.0, 1.0, 1.0]
    assert not len(safe.dp.value_counts("void"))
    assert safe.dp.synthesize()["void"].isna().all()
    safe.dp.describe()
    safe.dp.report()


@pytest.mark.parametrize("target", [None, "out.csv", "out.parquet"])
@pytest.mark.parametrize("options", [{}, {"drop": ["void"]}, {"passthrough": ["void"]}], ids=str)
def test_a_table_that_holds_nothing_takes_no_budget(options: Any, target: str | None, tmp_path: Path) -> None:
    """All of the promise was spent on rows that are alike in every table of the schema."""
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 10.0, 1e-3)
    where = () if target is None else (tmp_path / target,)
    with pytest.raises(ParameterError, match=r"nothing needs a budget;.*and dataset out"):
        dpf.sanitize(VOID.select(["void"]), *where, **PROMISE, **options, ledger=ledger, dataset="survey")
    assert not len(ledger.history())
    if not options.get("drop"):
        safe = dpf.sanitize(VOID.select(["void"]), *where, **PROMISE, **options)
        assert _nulls(dpf.read(where[0]) if where else safe) == 300


def test_a_column_that_holds_nothing_is_no_plan_for_values(tmp_path: Path) -> None:
    plan = dpf.plan(VOID, **PROMISE, spaces={"age": (0, 90)})
    for values in (pa.array(["a"] * 300), pa.array(range(300))):
        with pytest.raises(ColumnError, match=r"^column 'void': has type .*, which Empty\(\) cannot hold"):
            dpf.sanitize(VOID.set_column(1, "void", values), plan=plan)
