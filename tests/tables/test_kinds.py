"""Columns that are coded as another kind: times of day, sparse columns; and frames that are not collected yet."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe.tables.frames import wrap
from dpframe.tables.types import as_coded, as_stored, coded_type

N = 2_000
RNG = np.random.default_rng(0)
TIMES = [dt.time(int(h), int(m)) for h, m in zip(RNG.integers(7, 24, N), RNG.integers(0, 60, N), strict=True)]
SECONDS = np.mean([time.hour * 3_600 + time.minute * 60 for time in TIMES])
TYPES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]


@pytest.mark.walk(2)
@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.slow
def test_times_of_day_are_coded_from_midnight_and_come_back(type_, tmp_path):
    """Means within five standard errors: fails with probability 1e-6."""
    values = pa.array([*TIMES[:50], None, dt.time(0), dt.time(23, 59)], type_)
    assert as_stored(as_coded(values), type_).equals(values)
    assert as_coded(values).type == coded_type(type_)
    table = pa.table({"x": pa.array(TIMES, type_), "y": RNG.integers(0, 3, N)})
    for bounds in (None, ("00:00", "23:59"), dpf.Datetime(dt.time(6), "23:59", "min")):
        spaces = {"y": (0, 2)} | ({} if bounds is None else {"x": bounds})
        infer = "private" if bounds is None else "public"
        safe = dpf.sanitize(table, epsilon=8.0, delta=1e-5, spaces=spaces, infer=infer)
        assert safe.schema.field("x").type == type_
        mean = dpf.Estimates(safe).mean("x")
        assert abs(mean["estimate"].total_seconds() - SECONDS) < 5 * mean["std_error"].total_seconds()
    pq.write_table(table, tmp_path / "in.parquet")
    plan = dpf.Estimates(safe).plan
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan)
    assert dpf.verify(tmp_path / "out.parquet").ok
    assert pa.types.is_time(pq.read_schema(tmp_path / "out.parquet").field("x").type)


def test_a_time_of_day_needs_no_inference():
    table = pa.table({"x": pa.array(TIMES, pa.time64("us"))})
    field = pa.schema([pa.field("x", pa.time64("us"), nullable=False)])
    plan = dpf.plan(pa.table(table.columns, schema=field), 1.0)
    assert plan.inferred is None
    assert plan["x"].space == dpf.Datetime("00:00", "23:59", "min")


def test_bounds_beyond_the_day_are_refused():
    table = pa.table({"x": pa.array(TIMES, pa.time32("s"))})
    for bounds in ((dt.timedelta(0), dt.timedelta(hours=25)), (dt.timedelta(hours=-1), dt.timedelta(hours=5))):
        with pytest.raises(dpf.ColumnError, match=r"'x': holds times of.*a day; declare"):
            dpf.plan(table, 1.0, spaces={"x": bounds})


@pytest.mark.parametrize("kind", ["polars", "lazy", "arrow dtype"])
def test_other_frames_have_times(kind):
    frame = {
        "polars": lambda: pl.DataFrame({"x": TIMES}),
        "lazy": lambda: pl.LazyFrame({"x": TIMES}),
        "arrow dtype": lambda: pd.DataFrame({"x": pd.array(TIMES, dtype="time64[us][pyarrow]")}),
    }[kind]()
    plan = dpf.plan(frame, 4.0, spaces={"x": ("00:00", "23:59")})
    safe = dpf.sanitize(frame, plan=plan)
    if kind == "arrow dtype":
        assert safe["x"].dtype == frame["x"].dtype
        assert safe.dp.mean("x")["estimate"] > pd.Timedelta(hours=12)
    else:
        assert safe.schema == pl.Schema({"x": pl.Time})
        assert isinstance(safe, pl.DataFrame)
        assert dpf.Estimates(safe, plan).mean("x")["estimate"] > pd.Timedelta(hours=12)


def test_sparse_columns_come_back_sparse():
    frame = pd.DataFrame(
        {
            "count": pd.arrays.SparseArray(RNG.integers(0, 3, N)),
            "ill": pd.arrays.SparseArray(RNG.random(N) < 0.1),
            "dose": pd.arrays.SparseArray(np.where(RNG.random(N) < 0.5, np.nan, RNG.random(N)), fill_value=np.nan),
        }
    )
    spaces = {"count": (0, 2), "ill": dpf.Boolean(), "dose": dpf.Nullable(dpf.Real(0, 1))}
    safe = frame.dp.sanitize(8.0, 1e-5, spaces=spaces)
    assert safe.dtypes.equals(frame.dtypes)
    mean = safe.dp.mean("count")
    assert abs(mean["estimate"] - np.asarray(frame["count"]).mean()) < 5 * mean["std_error"]


def test_a_column_that_parquet_cannot_hold_is_named(tmp_path):
    frame = pd.DataFrame({"ill": [True, False] * 200, "count": pd.arrays.SparseArray([0, 1] * 200)})
    safe = frame.dp.sanitize(8.0, 1e-5, spaces={"ill": dpf.Boolean(), "count": (0, 1)})
    for name in ("safe.parquet", "safe.csv"):
        with pytest.raises(dpf.errors.ParameterError, match=r"column 'count' cannot .*sparse\.to_dense\(\)"):
            dpf.write(safe, tmp_path / name)
    dense = safe.assign(count=safe["count"].sparse.to_dense())
    assert dpf.write(dense, tmp_path / "safe.parquet") == safe.dp.release


ARROW = {
    "list": pa.array([["x"], ["x", "y"]] * 200),
    "large list": pa.array([["x"], ["x", "y"]] * 200, pa.large_list(pa.large_string())),
    "list of a dictionary": pa.array([["x"], ["x", "y"]] * 200, pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "vector": pa.array([[0.1, 0.2], [0.3, 0.0]] * 200),
    "dictionary": pa.array(["x", "y"] * 200).dictionary_encode(),
    "ordered": pa.DictionaryArray.from_arrays([0, 1] * 200, ["x", "y"], ordered=True),
    "string": pa.array(["x", "y"] * 200),
    "view": pa.array(["x", "y"] * 200, pa.string_view()),
    "int64": pa.array([0, 1] * 200),
    "date": pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2)] * 200),
    "time": pa.array([dt.time(1), dt.time(2)] * 200),
    "zoned": pa.array([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2)] * 200, pa.timestamp("us", "Asia/Tokyo")),
}


@pytest.mark.walk(5)
@pytest.mark.parametrize("way", ["released", "passed through"])
@pytest.mark.parametrize("kind", ARROW)
def test_frames_of_arrow_dtypes_are_read_back(kind, way, tmp_path):
    """The walk: Arrow types × ways out × writers; what is read is what was written, and verifies."""
    frame = pd.DataFrame({"x": pd.arrays.ArrowExtensionArray(ARROW[kind]), "sex": ["F", "M"] * 200})
    options = {} if way == "released" else {"passthrough": ["x"]}
    spaces = {"sex": ["F", "M"]}
    safe = dpf.sanitize(frame, epsilon=8, key=bytes(32), spaces=spaces, **options)
    dpf.write(safe, tmp_path / "written.parquet")
    safe.to_parquet(tmp_path / "pandas.parquet")
    for name in ("written", "pandas"):
        back = dpf.read(tmp_path / f"{name}.parquet")
        assert back.dtypes.equals(safe.dtypes)
        assert back["x"].to_list() == safe["x"].to_list()
        assert back.dp.verify() and dpf.verify(tmp_path / f"{name}.parquet")


LISTED = [dt.date(2020, 1, 1), dt.datetime(2020, 1, 2), dt.time(3), dt.timedelta(hours=4)]


@pytest.mark.parametrize("value", LISTED, ids=lambda value: type(value).__name__)
def test_dictionaries_of_times_are_coded_as_times(value, tmp_path):
    table = pa.table({"x": pa.array([value, None] * 200).dictionary_encode()})
    safe = dpf.sanitize(table, epsilon=8, key=bytes(32))
    assert safe.schema.field("x").type == pa.dictionary(pa.int32(), table.schema.field("x").type.value_type)
    dpf.write(safe, tmp_path / "safe.parquet")
    assert dpf.read(tmp_path / "safe.parquet").dp.verify()


def test_an_index_is_known_by_what_pandas_wrote(tmp_path):
    path, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    frame = pd.DataFrame({"__index_level_0__": [0, 1] * 200, "sex": ["F", "M"] * 200})
    spaces = {"__index_level_0__": (0, 1), "sex": ["F", "M"]}
    frame.to_parquet(path)
    dpf.sanitize(path, out, epsilon=8, spaces=spaces)
    assert list(dpf.read(out)) == list(frame) and dpf.verify(out).ok
    safe = dpf.sanitize(frame, epsilon=8, spaces=spaces)
    dpf.write(safe, out)
    assert list(dpf.read(out)) == list(frame) and dpf.read(out).dp.verify() and dpf.verify(out).ok
    frame[["sex"]].set_axis(range(0, 800, 2)).sample(frac=1, random_state=0).to_parquet(path)
    dpf.sanitize(path, out, epsilon=8, spaces={"sex": ["F", "M"]})
    assert list(dpf.read(out)) == ["sex"] == list(dpf.read(path)) and dpf.verify(out).ok
    frame.set_index("sex").to_parquet(path)
    assert set(dpf.read(path)) == set(frame)


DECIMALS = [Decimal(int(x)) / 100 for x in RNG.integers(-500, 10_000, N)]


@pytest.mark.walk(1)
@pytest.mark.parametrize("type_", [pa.decimal128(10, 2), pa.decimal256(40, 2), pa.decimal128(12, 4)], ids=str)
@pytest.mark.slow
def test_decimals_are_released_exactly(type_, tmp_path):
    """Means within five standard errors: fails with probability 1e-6."""
    table = pa.table({"x": pa.array([*DECIMALS[:-1], None], type_)})
    assert as_stored(as_coded(table["x"].combine_chunks()), type_).equals(table["x"].combine_chunks())
    truth = float(sum(DECIMALS[:-1])) / (N - 1)
    for space in (None, dpf.Nullable(dpf.Real(-10, 100)), dpf.Nullable(dpf.Real(-10, 100, steps=11))):
        safe = dpf.sanitize(table, epsilon=8.0, delta=1e-5, spaces={} if space is None else {"x": space})
        estimates = dpf.Estimates(safe)
        assert safe.schema.field("x").type == type_
        mean = estimates.mean("x")
        assert abs(mean["estimate"] - truth) < 5 * mean["std_error"] + 0.01
    assert estimates.plan["x"].space.inner.steps == 11, "a coarser grid of whole decimals is kept"
    pq.write_table(table, tmp_path / "in.parquet")
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 4.0, 1e-5, spaces={"x": space})
    assert dpf.verify(tmp_path / "out.parquet").ok
    assert pq.read_schema(tmp_path / "out.parquet").field("x").type == type_


@pytest.mark.slow
def test_decimals_without_digits_are_whole_numbers_and_objects_are_numbers():
    table = pa.table({"x": pa.array([Decimal(i % 7) for i in range(N)], pa.decimal128(5, 0))})
    safe = dpf.sanitize(table, epsilon=8.0, delta=1e-5, spaces={"x": (0, 6)})
    assert isinstance(dpf.Estimates(safe).plan["x"].space, dpf.Integer)
    assert safe.schema == pa.schema([("x", pa.decimal128(5, 0))])
    frame = pd.DataFrame({"x": DECIMALS})
    mean = frame.dp.sanitize(8.0, 1e-5, spaces={"x": dpf.Real(-5, 100)}).dp.mean("x")
    assert abs(mean["estimate"] - float(frame["x"].mean())) < 5 * mean["std_error"] + 0.01
    polars = pl.DataFrame({"x": DECIMALS})
    plan = dpf.plan(polars, 8.0, 1e-5, spaces={"x": (-5, 100)})
    assert dpf.sanitize(polars, plan=plan).schema["x"].is_decimal()


@pytest.mark.parametrize(("lower", "upper", "scale"), [(0, 1, 2), (-0.005, 99.999, 2), (0, 1e12, 3), (-1e-3, 1e-3, 6)])
def test_grids_in_decimals_are_as_wide_and_of_whole_digits(lower, upper, scale):
    space = dpf.Real(lower, upper).in_decimals(38, scale)
    assert space.lower <= lower < upper <= space.upper
    assert space.in_decimals(38, scale) == space
    values = space.numbers(np.arange(0, space.size, max(1, space.size // 1_000)))
    assert np.abs(values * 10**scale - np.rint(values * 10**scale)).max() < 1e-3
    far = dpf.Real(1e20, 1e20 + 1e6, 4).in_decimals(38, 10)
    assert far.lower <= 1e20
    assert far.upper >= 1e20 + 1e6
    assert dpf.Integer(0, 9).in_decimals(1, 0) == dpf.Integer(0, 9)
    assert dpf.Integer(-5, 100, 5).in_decimals(2, 0) == dpf.Integer(-5, 95, 5)
    assert dpf.Nullable(dpf.Real(0, 1_000)).in_decimals(4, 2).inner.upper == 99.99
    assert dpf.Integer(100, 200).in_decimals(2, 0) == dpf.Integer(-99, 99)
    assert dpf.Integer(10**17, 10**17 + 9).in_decimals(15, 0).upper == 10**15 - 1
    assert dpf.Real(1_000, 2_000).in_decimals(4, 2) == dpf.Real(-99.99, 99.99, 19_998)
    assert dpf.Categorical(["a"]).in_decimals(4, 2) == dpf.Categorical(["a"])


@pytest.mark.parametrize("ends", [(0.0, 1e20), (0.0, 1e40), (-1e22, 1e23), (-1e40, 1e40), (9.9e19, 1e20)])
def test_bounds_of_many_digits_are_floats_that_the_decimals_hold(ends):
    """10^20 is the float next to 10^20 − 0.01, and one digit too long; Arrow's error would show the bound."""
    type_ = pa.decimal128(22, 2)
    space = dpf.Real(*ends).in_decimals(22, 2)
    assert -1e20 < space.lower < space.upper < 1e20
    codes = np.array([0, space.size // 2, space.size - 1])
    assert len(as_stored(space.decode(codes, pa.float64()), type_)) == 3


NARROW = {
    "two behind": (pa.decimal128(4, 2), [Decimal(int(x)) / 100 for x in RNG.integers(0, 10_000, N)], 99.99),
    "whole": (pa.decimal128(2, 0), [Decimal(int(x)) for x in RNG.integers(0, 100, N)], 99),
    "wide": (pa.decimal128(38, 0), [Decimal(10) ** 30 * int(x) for x in RNG.integers(1, 100, N)], 1e38),
}


@pytest.mark.walk(2)
@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("infer", ["private", "data"])
@pytest.mark.filterwarnings("ignore::dpframe.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore:values are clipped to bounds")
@pytest.mark.slow
def test_what_is_found_of_decimals_is_what_they_hold(name, infer):
    """Bounds that inference rounds outwards stay within the type; what is far out is clamped and does not wrap."""
    type_, values, most = NARROW[name]
    table = pa.table({"x": pa.array(values, type_)})
    safe = dpf.sanitize(table, epsilon=8.0, delta=1e-5, infer=infer)
    assert safe.schema.field("x").type == type_
    space = dpf.Estimates(safe).plan["x"].space.inner_space
    assert abs(float(space.upper)) <= most
    assert dpf.Estimates(safe).mean("x")["estimate"] > 0
    clamped = dpf.sanitize(table, epsilon=50.0, delta=1e-5, spaces={"x": (0, 10)})
    mean = np.clip([float(value) for value in values], 0, 10).mean()
    assert abs(dpf.Estimates(clamped).mean("x")["estimate"] - mean) < 0.3
    if name != "wide":
        with pytest.raises(dpf.ColumnError, match="digits, and its bounds reach beyond; choose within"):
            dpf.plan(table, 1.0, spaces={"x": (0, 1_000)})


def test_decimals_of_whole_hundreds_are_refused_as_before():
    table = pa.table({"x": pa.array([Decimal(300)] * N, pa.decimal128(5, -2))})
    with pytest.raises(dpf.ColumnError, match="for which bounds mean nothing"):
        dpf.plan(table, 1.0, spaces={"x": (0, 1_000)})


def test_intervals_of_a_categorical_are_categories_of_text():
    ages = pd.Series(np.arange(2_000) % 80)
    frame = pd.DataFrame({"a": pd.cut(ages, [-1, 20, 50, 80])})
    labels = ["(-1, 20]", "(20, 50]", "(50, 80]"]
    safe = dpf.sanitize(frame, epsilon=3)
    assert set(safe["a"].cat.categories) == {*labels, "other"}
    counts = safe.dp.value_counts("a")["estimate"]
    assert abs(counts["(20, 50]"] - 750) < 100
    ordered = dpf.sanitize(frame, epsilon=3, spaces={"a": dpf.Ordinal(labels)})
    assert ordered["a"].cat.ordered
    assert ordered["a"].cat.categories.tolist() == labels
    assert ordered.dp.verify()


def test_leak_bounds_of_intervals_are_no_declaration():
    frame = pd.DataFrame({"a": pd.qcut(np.r_[np.zeros(50), np.arange(150)], 5, duplicates="drop")})
    field = wrap(frame).fields(["a"])[0]
    assert (field.order, field.type) == ((), pa.dictionary(pa.int32(), pa.null()))


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        (pd.period_range("2020-01", periods=4, freq="M"), r"\.dt\.to_timestamp\(\)"),
        (pd.interval_range(0, 4), r"\.astype\(str\)"),
    ],
)
def test_periods_and_intervals_are_refused_with_what_to_do(values, remedy):
    frame = pd.DataFrame({"a": values})
    for spaces in (None, {"a": (0, 4)}):
        with pytest.raises(dpf.ColumnError, match=f"column 'a': has dtype .*, which has no space; .*{remedy}"):
            dpf.sanitize(frame, epsilon=1, spaces=spaces)
    assert len(dpf.sanitize(frame.assign(b=True), epsilon=1, drop=["a"])) == 4


def test_a_relation_of_duckdb_is_a_table():
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql("select i % 7 as x, ['a', 'b'][1 + i % 2] as s from range(5000) t(i)")
    safe = dpf.sanitize(relation, epsilon=2, spaces={"x": (0, 6), "s": ["a", "b"]}, key=bytes(32))
    assert isinstance(safe, pa.Table)
    row = dpf.Estimates(safe).mean("x")
    assert abs(row["estimate"] - 3) < 5 * row["std_error"] + 0.01
