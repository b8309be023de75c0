"""Tables of every kind go in and come back: dtypes kept, and nothing else of the input."""

from __future__ import annotations

import datetime as dt
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from readings import released_codes

import dpframe as dpf
from dpframe import Boolean, Categorical, Datetime, Integer, Nullable, Ordinal, Real
from dpframe.errors import AlreadySanitizedError, ColumnError, ParameterError, PlanError

KEY = bytes(32)
SECRET = "swordfish"
DAY = dt.timedelta(days=1)
N = 40

TEXT = Nullable(Categorical(["a", "bb", "ccc"]))
RANKS = Nullable(Ordinal(["a", "bb", "ccc"]))
WHOLE = Nullable(Integer(0, 100))
NUMBER = Nullable(Real(0, 100, steps=200))
MOMENT = Nullable(Datetime("1960-01-01", "2030-01-01", "D"))
SPAN = Nullable(Datetime(0 * DAY, 9 * DAY, "D"))


def repeated(*values: Any) -> list[Any]:
    """Return N values."""
    return [values[i % len(values)] for i in range(N)]


WORDS = repeated("a", "bb", None)
DATES = pd.to_datetime(repeated("1965-03-01", "2020-02-29", None))

SERIES: dict[str, tuple[pd.Series, Any]] = {
    "object text": (pd.Series(WORDS, dtype=object), TEXT),
    "object whole": (pd.Series(repeated(1, None, 99), dtype=object), WHOLE),
    "object real": (pd.Series(repeated(1.5, None, 99), dtype=object), NUMBER),
    "object bool": (pd.Series(repeated(True, None, False), dtype=object), Nullable(Boolean())),
    "object date": (pd.Series(repeated(dt.date(1965, 3, 1), None), dtype=object), MOMENT),
    "str": (pd.Series(WORDS, dtype="str"), TEXT),
    "string python": (pd.Series(WORDS, dtype="string[python]"), TEXT),
    "string pyarrow": (pd.Series(WORDS, dtype="string[pyarrow]"), TEXT),
    "ordinal text": (pd.Series(WORDS, dtype="str"), Nullable(Ordinal(["a", "bb", "ccc"]))),
    "Int64": (pd.Series(repeated(1, None, 99), dtype="Int64"), WHOLE),
    "UInt8": (pd.Series(repeated(1, None, 99), dtype="UInt8"), WHOLE),
    "Float64": (pd.Series(repeated(1.5, None, 99.0), dtype="Float64"), NUMBER),
    "Float32": (pd.Series(repeated(1.5, None, 99.0), dtype="Float32"), NUMBER),
    "boolean": (pd.Series(repeated(True, None, False), dtype="boolean"), Nullable(Boolean())),
    "int8": (pd.Series(repeated(1, 99), dtype="int8"), Integer(0, 100)),
    "int64": (pd.Series(repeated(1, 99), dtype="int64"), Integer(0, 100)),
    "uint64": (pd.Series(repeated(1, 99), dtype="uint64"), Integer(0, 100, step=4)),
    "listed ints": (pd.Series(repeated(1, 99), dtype="int32"), Categorical([1, 99])),
    "float16": (pd.Series(repeated(1.5, None, 99), dtype="float16"), Nullable(Real(0, 100, steps=50))),
    "float32": (pd.Series(repeated(1.5, None, 99), dtype="float32"), NUMBER),
    "float64": (pd.Series(repeated(1.5, None, 99), dtype="float64"), NUMBER),
    "float whole": (pd.Series(repeated(1.0, None, 99), dtype="float64"), WHOLE),
    "bool": (pd.Series(repeated(True, False), dtype="bool"), Boolean()),
    "category": (pd.Series(pd.Categorical(WORDS, ["a", "bb", "ccc"])), TEXT),
    "ordered": (
        pd.Series(pd.Categorical(WORDS, ["a", "bb", "ccc"], ordered=True)),
        Nullable(Ordinal(["a", "bb", "ccc"])),
    ),
    "ordered listed": (pd.Series(pd.Categorical(WORDS, ["a", "bb", "ccc"], ordered=True)), TEXT),
    "category ranks": (pd.Series(pd.Categorical(WORDS, ["a", "bb", "ccc"])), RANKS),
    "category ints": (pd.Series(pd.Categorical(repeated(7, 5), [7, 5])), Categorical([7, 5])),
    "timedelta64": (pd.Series(pd.to_timedelta(repeated("1D", None, "20D")), dtype="timedelta64[ms]"), SPAN),
    **{f"datetime64 {u}": (pd.Series(DATES.as_unit(u)), MOMENT) for u in ("s", "ms", "us", "ns")},
    **{
        f"datetime64 {u} {z}": (pd.Series(DATES.as_unit(u).tz_localize(z)), MOMENT)
        for u, z in (("s", "UTC"), ("us", "Asia/Kathmandu"), ("ns", "Europe/Berlin"))
    },
    **{
        f"arrow {type_}": (pd.Series(pa.array(values, type_), dtype=pd.ArrowDtype(type_)), space)
        for type_, values, space in [
            (pa.string(), WORDS, TEXT),
            (pa.large_string(), WORDS, TEXT),
            (pa.int16(), repeated(1, None), WHOLE),
            (pa.float32(), repeated(1.5, None), NUMBER),
            (pa.bool_(), repeated(True, None), Nullable(Boolean())),
            (pa.date32(), repeated(dt.date(2000, 1, 1), None), MOMENT),
            (pa.timestamp("ms", "UTC"), repeated(dt.datetime(2000, 1, 1), None), MOMENT),
            (pa.duration("us"), repeated(DAY, None), SPAN),
        ]
    },
    "arrow dictionary": (
        pd.Series(pa.array(WORDS).dictionary_encode(), dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
        TEXT,
    ),
}


def refused(error: type[Exception], match: str, call: Callable[[], Any]) -> None:
    """Check that a call is refused in one line, which shows nothing of the data."""
    with pytest.raises(error, match=match) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


def sanitized(table: Any, spaces: Any, epsilon: float = 2.0, **options: Any) -> Any:
    return dpf.sanitize(table, epsilon=epsilon, spaces=spaces, key=KEY, **options)


def members(space: Any, values: list[Any]) -> None:
    """Check that every value belongs to the space (null ones too, where it has them)."""
    plain = [None if value is pd.NA or value is pd.NaT or value != value else value for value in values]
    assert all(space.contains(v) for v in plain), [v for v in plain if not space.contains(v)][:3]


# ---------------------------------------------------------------------------------------------- pandas


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("shuffle", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_pandas_dtypes_come_back(name: str, shuffle: bool) -> None:
    series, space = SERIES[name]
    frame = pd.DataFrame({"x": series})
    before = frame.copy(deep=True)
    safe = sanitized(frame, {"x": space}, shuffle=shuffle)
    assert safe["x"].dtype == series.dtype
    assert type(safe["x"].dtype) is type(series.dtype)
    assert isinstance(safe.index, pd.RangeIndex)
    assert safe.index.equals(pd.RangeIndex(N))
    assert safe.index.name == ("shuffled" if shuffle else None)
    members(space, safe["x"].tolist())
    assert safe["x"].nunique(dropna=False) > 1
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.walk(11)
@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("shuffle", [True, False])
def test_pandas_columns_hold_the_released_codes(name: str, shuffle: bool) -> None:
    series, space = SERIES[name]
    frame = pd.DataFrame({"x": series})
    plan = dpf.plan(frame, 3.0, spaces={"x": space}, shuffle=shuffle)
    expected = released_codes({"x": space.encode(series)}, plan, KEY, in_order=True)["x"]
    safe = dpf.sanitize(frame, plan=plan, key=KEY)["x"]
    assert space.encode(safe).tolist() == expected.tolist()


@pytest.mark.parametrize("epsilon", [0.5, 600.0])
@pytest.mark.filterwarnings("ignore:the input is sorted:dpframe.OrderLeakWarning")
def test_shuffling_reorders_whole_rows_and_nothing_else(epsilon: float) -> None:
    frame = pd.DataFrame({"x": np.arange(N), "y": np.arange(N), "z": np.arange(N)})
    spaces = {"x": list(range(N)), "y": list(range(N))}
    kept = sanitized(frame, spaces, epsilon, shuffle=False, passthrough=["z"])
    assert kept["z"].tolist() == list(range(N))
    moved = sanitized(frame, spaces, epsilon, passthrough=["z"])
    assert sorted(moved["z"]) == list(range(N))
    assert moved["z"].tolist() != list(range(N))
    if epsilon > 100:
        assert moved["x"].tolist() == moved["y"].tolist() == moved["z"].tolist()


def test_leak_index_attrs_and_column_metadata_stay_behind() -> None:
    frame = pd.DataFrame({"x": [1, 2, 3], "y": pd.Categorical(["a", "b", "a"])}, index=[SECRET, "i", "j"])
    frame.index.name = SECRET
    frame.columns.name = SECRET
    frame.attrs = {SECRET: SECRET}
    frame["x"].attrs = {SECRET: SECRET}
    frame = frame.set_flags(allows_duplicate_labels=False)
    for shuffle in (True, False):
        safe = sanitized(frame, {"x": (0, 9), "y": ["a", "b"]}, shuffle=shuffle)
        assert isinstance(safe.index, pd.RangeIndex)
        assert list(safe.attrs) == ["dpframe"]
        assert SECRET not in json.dumps(safe.attrs)
        assert SECRET not in safe.to_csv()
        assert safe.columns.name is None
        assert safe.flags.allows_duplicate_labels
        assert all(not safe[c].attrs or list(safe[c].attrs) == ["dpframe"] for c in safe)
    passed = sanitized(frame, {"x": (0, 9)}, passthrough=["y"])
    assert isinstance(passed["y"].index, pd.RangeIndex)
    assert SECRET not in json.dumps(passed.attrs) + passed.to_csv()


def test_leak_categories_are_those_declared_in_their_order() -> None:
    observed = pd.DataFrame({"x": pd.Categorical(["m", SECRET, "a", None], [SECRET, "m", "a"])})
    space = Nullable(Categorical(["z", "m", "a"], other="rest"))
    safe = sanitized(observed, {"x": space})
    assert safe["x"].cat.categories.tolist() == ["z", "m", "a", "rest"]
    assert not safe["x"].cat.ordered
    arrow = sanitized(pa.Table.from_pandas(observed), {"x": space})
    assert all(chunk.dictionary.to_pylist() == ["z", "m", "a", "rest"] for chunk in arrow["x"].chunks)


def test_categories_of_codes_wider_than_a_byte() -> None:
    labels = [f"c{i}" for i in range(300)]
    frame = pd.DataFrame({"x": pd.Categorical(["c299", "c0"], ["c0", "c299"])})
    safe = sanitized(frame, {"x": labels}, epsilon=100.0, shuffle=False)
    assert safe["x"].tolist() == ["c299", "c0"]
    assert safe["x"].cat.categories.tolist() == labels


def neighbours() -> list[Any]:
    """Return pairs of tables that differ in one row's value."""
    return [
        ([1, 2, 3], [1, 2, 3.5], (0, 9)),
        ([1, 2, 3], [1, 2, None], Nullable(Integer(0, 9))),
        ([1.5, 2, 3], [1, 2, 3], Real(0, 9)),
        ([1, 2, 3], [2**53 + 1, 2, 3], Real(0, 9)),
        ([None, None], [None, 3.5], Nullable(Real(0, 9))),
        ([None, None], ["a", None], TEXT),
        (["a", "a"], ["a", "bb"], TEXT),
        ([True, True], [True, None], Nullable(Boolean())),
        ([dt.date(2000, 1, 1), None], [dt.datetime(2000, 1, 1, 5), None], MOMENT),
        ([None, None], [pd.Timestamp("2000-01-01", tz="UTC"), None], MOMENT),
    ]


@pytest.mark.walk(4)
@pytest.mark.parametrize(("first", "second", "space"), neighbours())
def test_leak_dtypes_of_object_columns_do_not_follow_the_data(first: Any, second: Any, space: Any) -> None:
    kinds = []
    for values in (first, second):
        safe = sanitized(pd.DataFrame({"x": pd.Series(values, dtype=object)}), {"x": space}, epsilon=0.1)
        codes = as_declared(space)
        kinds.append((safe["x"].dtype, codes.natural_type))
        kind = {type(v) for v in safe["x"] if v is not None}
        assert len(kind) <= 1
        assert kind <= {type(codes.decode([0]).to_pylist()[0])}
    assert kinds[0] == kinds[1]


def as_declared(space: Any) -> Any:
    return Integer(*space) if isinstance(space, tuple) else space


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["a", "b"], ["a", "a"]),
        (["a", "b"], [None, None]),
        ([None, "c"], ["c", "c"]),
    ],
)
@pytest.mark.parametrize("ordered", [False, True])
def test_leak_categorical_dtypes_do_not_follow_the_data(first: list[Any], second: list[Any], ordered: bool) -> None:
    space = Nullable(Categorical(["c", "b", "a"]))
    dtypes = []
    for values in (first, second):
        series = pd.Series(pd.Categorical(values, ordered=ordered))
        dtypes.append(sanitized(pd.DataFrame({"x": series}), {"x": space})["x"].dtype)
    assert dtypes[0] == dtypes[1] == pd.CategoricalDtype(["c", "b", "a"], ordered=ordered)


def test_columns_keep_their_order_and_names_of_any_script() -> None:
    names = ["Größe", "年齢", "a b\n", "🦓", "left out", "dp"]
    frame = pd.DataFrame({name: [1, 2, 3] for name in names})
    given = {name: (0, 9) for name in reversed(names) if name != "left out"}
    safe = sanitized(frame, given, drop=["left out"])
    assert list(safe.columns) == names[:4] + names[5:]
    table = sanitized(pa.Table.from_pandas(frame), given, drop=["left out"])
    assert table.column_names == list(safe.columns)
    assert sanitized(pl.DataFrame(frame.drop(columns="left out")), given).columns == list(safe.columns)


def test_names_with_line_breaks_and_surrogates_are_told_in_one_line() -> None:
    frame = pd.DataFrame({"a\nb": [1], "c": [2]})
    refused(ParameterError, r"columns are 'a\\nb', c$", lambda: sanitized(frame, {}, drop=["d"]))
    refused(ParameterError, r"columns are 'a\\nb', c$", lambda: sanitized(frame, {"d": (0, 9)}))
    foreign = pd.DataFrame([[True]], columns=pd.Index(["a\ud800"], dtype=object))
    refused(PlanError, r"^column name 'a\\ud800' is not valid Unicode; rename it$", lambda: sanitized(foreign, {}))


def test_a_stream_is_read_once_for_plan_and_release() -> None:
    table = pa.table({"x": [7, 9] * 20, "flag": [True, False] * 20})
    safe = dpf.sanitize(table.to_reader(8), epsilon=1, spaces={"x": (0, 9)})
    assert safe.num_rows == json.loads(safe.schema.metadata[b"dpframe"])["plan"]["n"] == 40
    with pytest.warns(dpf.PrivacyLeakWarning) as caught:
        safe = dpf.sanitize(table.to_reader(8), epsilon=1, infer="data")
    assert caught[0].filename == __file__
    assert json.loads(safe.schema.metadata[b"dpframe"])["plan"]["columns"][0]["space"]["lower"] == 7


def objects(*values: Any) -> pd.Series[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return pd.Series(column, dtype=object)


def test_leak_one_date_does_not_change_the_codes_of_a_column_of_datetimes() -> None:
    late = [dt.datetime(2020, 1, 1, 23)] * 9
    space = Datetime("2020-01-01", "2020-01-11", "D")
    for first in (dt.date(2020, 1, 5), dt.datetime(2020, 1, 5)):
        safe = sanitized(pd.DataFrame({"x": objects(first, *late)}), {"x": space}, 900.0, shuffle=False)
        assert safe["x"].tolist() == [dt.date(2020, 1, 5), *[dt.date(2020, 1, 2)] * 9]


def test_leak_an_unused_entry_does_not_change_the_codes_of_a_categorical() -> None:
    safe = {}
    for extra in (np.float32(0.2), 0.2, dt.date(2020, 1, 1), None):
        entries = pd.Index(objects(np.float32(0.1), *([] if extra is None else [extra])), dtype=object)
        frame = pd.DataFrame({"x": pd.Categorical.from_codes([0] * 9, entries)})
        safe[extra] = sanitized(frame, {"x": Categorical([0.1, 0.2], other=9.0)}, 900.0)["x"].tolist()
    assert list(safe.values()) == [[0.1] * 9] * 4


@pytest.mark.parametrize(
    "odd", [np.datetime64("2020-01-01"), np.datetime64("NaT", "s"), 2**63, -(2**70), b"x", [1], 1j, dt.time(3), {}]
)
def test_leak_one_odd_object_neither_crashes_nor_shows(odd: Any) -> None:
    """Arrow aborts the process on some of these mixtures; the line tells the row at most."""
    for like in (np.float32(1), np.float64(1), np.int64(1), 1, True, "a", dt.date(2020, 1, 1)):
        frame = pd.DataFrame({"x": objects(like, like, odd)})
        for spaces in ({"x": (0, 9)}, {"x": Real(0, 9)}, {"x": ["a"]}, {"x": MOMENT}, None):
            options = {} if spaces else {"infer": "data"}
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", dpf.PrivacyLeakWarning)
                    safe = sanitized(frame, spaces, **options)
            except ColumnError as error:
                assert "\n" not in str(error)
                assert str(odd) not in str(error).replace("64 bits", "")
            else:
                assert len(safe) == 3


def test_whole_numbers_of_any_size_clamp_in_object_columns() -> None:
    frame = pd.DataFrame({"x": objects(2**63, -(2**70), 10**400, 3, 2.5, np.float16(7))})
    assert sanitized(frame, {"x": (0, 9)}, 900.0, shuffle=False)["x"].tolist() == [9, 0, 9, 3, 2, 7]
    assert Real(0, 9, 18).encode(frame["x"]).tolist() == [18, 0, 18, 6, 5, 14]


@pytest.mark.walk(2)
@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("shuffle", [True, False])
def test_empty_and_single_rows(rows: int, shuffle: bool) -> None:
    for name, (series, space) in SERIES.items():
        frame = pd.DataFrame({"x": series.iloc[:rows]})
        safe = sanitized(frame, {"x": space}, shuffle=shuffle)
        assert safe.shape == (rows, 1), name
        assert safe["x"].dtype == series.dtype, name
        assert isinstance(safe.index, pd.RangeIndex)


@pytest.mark.parametrize("name", [n for n, (_, space) in SERIES.items() if isinstance(space, Nullable)])
def test_all_null(name: str) -> None:
    series, space = SERIES[name]
    frame = pd.DataFrame({"x": pd.Series([None] * N, dtype=series.dtype)})
    safe = sanitized(frame, {"x": space}, epsilon=0.1)
    assert safe["x"].dtype == series.dtype
    members(space, safe["x"].tolist())
    assert not safe["x"].isna().all()


def test_impute_gives_nulls_the_fixed_point() -> None:
    frame = pd.DataFrame({"x": [math.nan, math.inf, 3.0], "y": ["a", None, "b"]})
    safe = sanitized(frame, {"x": Real(0, 4, steps=4), "y": ["b", "a"]}, 900.0, nulls="impute", shuffle=False)
    assert safe["x"].tolist() == [2, 4, 3]
    assert safe["y"].tolist() == ["a", "b", "b"]


# ---------------------------------------------------------------------------------------------- Arrow


ARROW: list[tuple[pa.Array, Any]] = [
    (pa.array(WORDS), TEXT),
    (pa.array(WORDS, pa.large_string()), TEXT),
    (pa.array(WORDS, pa.string_view()), TEXT),
    (pa.array(repeated(True, None)), Nullable(Boolean())),
    (pa.array(repeated(1, None), pa.uint16()), WHOLE),
    (pa.array(repeated(np.float16(1.5), None), pa.float16()), Nullable(Real(0, 100, steps=50))),
    (pa.array(repeated(1.5, None), pa.float32()), NUMBER),
    (pa.array(repeated(dt.date(2000, 1, 1), None)), MOMENT),
    (pa.array(repeated(dt.date(2000, 1, 1), None), pa.date64()), MOMENT),
    (pa.array(repeated(dt.datetime(2000, 1, 1), None), pa.timestamp("s")), MOMENT),
    (pa.array(repeated(dt.datetime(2000, 1, 1), None), pa.timestamp("ns", "Asia/Kathmandu")), MOMENT),
    (pa.array(repeated(DAY, None), pa.duration("ms")), SPAN),
]


@pytest.mark.parametrize(("array", "space"), ARROW, ids=lambda v: str(v.type) if isinstance(v, pa.Array) else "")
def test_arrow_types_come_back_chunked_or_not(array: pa.Array, space: Any) -> None:
    whole = sanitized(pa.table({"x": array}), {"x": space})
    assert whole["x"].type == array.type
    members(space, whole["x"].to_pylist())
    pieces = pa.chunked_array([array[:1], array[1:1], array[1:7], array[7:]], array.type)
    offset = pa.concat_arrays([array[:5], array])[5:] if not pa.types.is_string_view(array.type) else array
    for other in (pieces, offset):
        assert sanitized(pa.table({"x": other}), {"x": space}).equals(whole, check_metadata=True)


def test_leak_field_and_schema_metadata_stay_behind() -> None:
    note = {b"note": SECRET.encode()}
    schema = pa.schema(
        [
            pa.field("x", pa.int64(), nullable=False, metadata=note),
            pa.field("y", pa.string(), metadata=note),
            pa.field("z", pa.string(), nullable=False, metadata=note),
        ],
        metadata={b"pandas": SECRET.encode()},
    )
    table = pa.table([[1, 2], ["a", None], ["p", "q"]], schema=schema)
    safe = sanitized(table, {"x": (0, 9), "y": TEXT}, passthrough=["z"])
    assert [f.metadata for f in safe.schema] == [None] * 3
    assert [(f.name, f.type, f.nullable) for f in safe.schema] == [(f.name, f.type, f.nullable) for f in schema]
    assert set(safe.schema.metadata) == {b"dpframe", b"PANDAS_ATTRS"}
    assert SECRET not in str(safe.schema.metadata)


@pytest.mark.parametrize("index", [pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
def test_leak_dictionary_index_does_not_follow_the_data(index: pa.DataType) -> None:
    entries = pa.array(["b", SECRET, "a"])
    array = pa.DictionaryArray.from_arrays(pa.array([2, 0, 0, None], index), entries)
    safe = sanitized(pa.table({"x": array}), {"x": Nullable(Categorical(["a", "b"]))})
    assert safe["x"].type == pa.dictionary(pa.int32(), pa.string())
    assert safe["x"].chunk(0).dictionary.to_pylist() == ["a", "b"]
    unified = pa.chunked_array([array, array.dictionary_decode().dictionary_encode().cast(array.type)])
    again = sanitized(pa.table({"x": unified}), {"x": Nullable(Categorical(["a", "b"]))})
    assert again.schema.types == safe.schema.types


def test_schema_does_not_depend_on_the_values() -> None:
    spaces = {"x": WHOLE, "y": TEXT, "z": NUMBER}
    full = pa.table({"x": [1, 2], "y": ["a", "bb"], "z": [1.5, 2.5]})
    empty = full.schema.empty_table()
    hollow = pa.table({f.name: pa.nulls(2, f.type) for f in full.schema})
    schemas = [sanitized(table, spaces).schema for table in (full, hollow, empty)]
    assert schemas[0].remove_metadata() == schemas[1].remove_metadata() == schemas[2].remove_metadata()
    plan = [json.loads(s.metadata[b"dpframe"])["plan"] for s in schemas]
    assert plan[0] == plan[1]


def test_a_non_nullable_field_may_be_declared_nullable_and_then_is() -> None:
    table = pa.table([[1, 2]], schema=pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    assert sanitized(table, {"x": WHOLE}).schema.field("x").nullable
    assert not sanitized(table, {"x": (0, 9)}).schema.field("x").nullable


def test_anything_with_the_arrow_stream_is_a_table() -> None:
    class Stream:
        def __init__(self, table: pa.Table) -> None:
            self._table = table

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self._table.__arrow_c_stream__(requested_schema)

    table = pa.table({"x": [1, 2, 3]})
    expected = sanitized(table, {"x": (0, 9)})
    assert sanitized(Stream(table), {"x": (0, 9)}).equals(expected)
    batch = sanitized(table.to_batches()[0], {"x": (0, 9)})
    assert pa.Table.from_batches([batch]).equals(expected)


def test_one_key_gives_every_kind_of_table_the_same_values() -> None:
    rows = {"x": [5, 1, 9, 3], "y": ["a", "bb", "a", "ccc"]}
    spaces = {"x": (0, 9), "y": ["a", "bb", "ccc"]}
    expected = sanitized(pd.DataFrame(rows), spaces).to_dict("list")
    assert sanitized(pa.table(rows), spaces).to_pydict() == expected
    assert sanitized(pl.DataFrame(rows), spaces).to_dict(as_series=False) == expected


# ---------------------------------------------------------------------------------------------- polars


def test_polars_types_come_back() -> None:
    frame = pl.DataFrame(
        {
            "text": pl.Series(WORDS, dtype=pl.String),
            "cat": pl.Series(WORDS, dtype=pl.Categorical),
            "enum": pl.Series(WORDS, dtype=pl.Enum(["a", "bb", "ccc"])),
            "i16": pl.Series(repeated(1, None), dtype=pl.Int16),
            "u64": pl.Series(repeated(1, None), dtype=pl.UInt64),
            "f32": pl.Series(repeated(1.5, None), dtype=pl.Float32),
            "bool": pl.Series(repeated(True, None), dtype=pl.Boolean),
            "date": pl.Series(repeated(dt.date(2000, 1, 1), None), dtype=pl.Date),
            "ms": pl.Series(repeated(dt.datetime(2000, 1, 1), None), dtype=pl.Datetime("ms")),
            "zone": pl.Series(repeated(dt.datetime(2000, 1, 1), None), dtype=pl.Datetime("ns", "Asia/Kathmandu")),
            "span": pl.Series(repeated(DAY, None), dtype=pl.Duration("us")),
        }
    )
    spaces = dict.fromkeys(["text", "cat", "enum"], TEXT)
    spaces |= {"i16": WHOLE, "u64": WHOLE, "f32": NUMBER, "bool": Nullable(Boolean())}
    spaces |= {"date": MOMENT, "ms": MOMENT, "zone": MOMENT, "span": SPAN}
    for rows in (frame, frame[:1], frame[:0], pl.concat([frame[:7], frame[7:]], rechunk=False)):
        safe = sanitized(rows, spaces, epsilon=20.0)
        assert isinstance(safe, pl.DataFrame)
        assert safe.schema == frame.schema
        assert safe.height == rows.height
        for name, space in spaces.items():
            if name != "zone":
                members(space, safe[name].to_list())
    hollow = sanitized(frame.with_columns(pl.lit(None, dtype=d).alias(c) for c, d in frame.schema.items()), spaces)
    assert hollow.schema == frame.schema


def test_polars_enums_have_the_declared_categories() -> None:
    frame = pl.DataFrame({"x": pl.Series(["a", "b"], dtype=pl.Enum([SECRET, "b", "a"]))})
    safe = sanitized(frame, {"x": Nullable(Categorical(["a", "b"], other="c"))})
    assert safe.schema["x"] == pl.Enum(["a", "b", "c"])


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.walk(4)
@pytest.mark.parametrize(
    ("dtype", "released"),
    [
        ("int64", "Int64"),
        ("int32", "Int32"),
        ("uint8", "UInt8"),
        ("bool", "boolean"),
        ("Sparse[int64]", "Int64"),
        ("float64", "float64"),
        ("Int64", "Int64"),
        ("int64[pyarrow]", "int64[pyarrow]"),
        ("category", "category"),
        ("object", "object"),
    ],
)
def test_a_codebook_with_nulls_serves_a_month_without(dtype: str, released: str) -> None:
    """A column of a dtype that holds no nulls was refused; it comes back in the one of pandas that holds them."""
    frame = pd.DataFrame({"x": pd.Series([0, 1] * 200, dtype=dtype)})
    space = Nullable(Boolean() if dtype == "bool" else Integer(0, 1))
    safe = dpf.sanitize(frame, epsilon=1, spaces={"x": space}, key=KEY, measure=None)
    assert safe["x"].isna().any()  # nulls of the noise: no one has a probability below 1e-9
    assert str(safe["x"].dtype) == released
    rate = safe.dp.null_rate("x")
    assert rate["lower"] <= 5 * rate["std_error"]
    assert safe.dp.synthesize(20, random_state=0)["x"].dtype == safe["x"].dtype
    assert dpf.verify(safe).ok


def one(values: Any, dtype: Any = None) -> pd.DataFrame:
    return pd.DataFrame({"x": pd.Series(values, dtype=dtype)})


@pytest.mark.parametrize(
    ("table", "space", "match"),
    [
        (one(["a", SECRET]), ["a", "b"], "^column 'x' at row position 1: holds a category outside the declared list; "),
        (one(["a", SECRET], object), ["a"], "^column 'x' at row position 1: holds a category outside"),
        (one(["a", SECRET], "category"), ["a"], "^column 'x' at row position 1: holds a category outside"),
        (pa.table({"x": pa.chunked_array([["a"], ["a", SECRET]])}), ["a"], "^column 'x' at row position 2: "),
        (pl.DataFrame({"x": ["a", SECRET]}), ["a"], "^column 'x' at row position 1: "),
        (one([0.5, math.nan]), Real(0, 1), r"^column 'x' at row position 1: is null, .*; declare Nullable\(…\)"),
        (one([0.5, math.inf]), Real(0, 1), r"^column 'x' at row position 1: is infinite; declare Nullable\(…\)"),
        (pa.table({"x": [0.5, math.nan]}), Real(0, 1), "^column 'x' at row position 1: is null"),
        (one([1, None], "Int64"), (0, 9), "^column 'x' at row position 1: is null"),
        (one(["a", 1], object), ["a"], "^column 'x' at row position 1: holds a category outside"),
        (one([object()], object), (0, 9), "^column 'x' at row position 0: is no number, and Integer"),
        (one([1.5, [SECRET]], object), Real(0, 1), "^column 'x' at row position 1: is no number, and Real"),
        (one([SECRET], object), MOMENT, "^column 'x' at row position 0: is no date or timestamp"),
        (
            one([SECRET], "string"),
            (0, 9),
            "^column 'x': has type text, for which bounds mean nothing; declare its",
        ),
        (
            one([SECRET], "string"),
            Integer(0, 9),
            "^column 'x': has type text, which Integer.* convert the column to numbers",
        ),
        (one([1.5j]), (0, 9), r"^column 'x': has dtype complex128, which is not supported; pass drop=\[…\]$"),
        (one(pd.period_range("2020", periods=2)), (0, 9), "^column 'x': has dtype period"),
        (one(pd.to_datetime(["2020-01-01"])), (0, 9), "^column 'x': lower must be a date"),
        (one([SECRET], "category"), MOMENT, "^column 'x' at row position 0: is no date or timestamp"),
        (one([7, 8], "category"), Integer(0, 2**31), "^column 'x': is categorical, .* convert the column to numbers"),
        (pa.table({"x": pa.nulls(2)}), WHOLE, "^column 'x': has type null, which Integer"),
        (pa.table({"x": [b"swordfish"]}), ["a"], "^column 'x': has type binary"),
    ],
)
@pytest.mark.slow
def test_columns_that_do_not_fit(table: Any, space: Any, match: str) -> None:
    refused(ColumnError if "lower" not in match else ParameterError, match, lambda: sanitized(table, {"x": space}))


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (pd.DataFrame({"": [1], "x": [1]}), "^a column has an empty name; rename it$"),
        (pa.table([[1]], names=[""]), "^a column has an empty name; rename it$"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "^column name 'x' appears twice; names must be unique$"),
        (pa.table([[1], [2]], names=["x", "x"]), "^column name 'x' appears twice"),
        (
            pd.DataFrame({0: [1]}),
            r"^column names must be strings, one level; rename int names with df.set_axis",
        ),
        (pd.DataFrame({("a", "b"): [1]}), "^column names must be strings, one level; rename tuple names"),
        (pl.Series("x", [1]), "^Series is no table; pass a pandas DataFrame, a polars DataFrame or LazyFrame"),
        (pa.chunked_array([[1]]), "^ChunkedArray is no table"),
        (pd.Series([1]), "^Series is no table"),
        ({"x": [1]}, "^list is no table"),
        (None, "^NoneType is no table"),
    ],
)
def test_what_is_no_table(table: Any, match: str) -> None:
    refused(ParameterError, match, lambda: sanitized(table, {"x": (0, 9)}))


def test_tables_that_do_not_fit_the_plan() -> None:
    frame = pd.DataFrame({"x": [1], "y": [2]})
    plan = dpf.plan(frame[["x"]], 1.0, spaces={"x": (0, 9)})
    refused(
        ColumnError,
        "^column 'y': is in the table but not in the plan; declare it, or pass drop",
        lambda: dpf.sanitize(frame, plan=plan),
    )
    refused(
        ColumnError, "^column 'x': is in the plan but not in the table", lambda: dpf.sanitize(frame[["y"]], plan=plan)
    )
    text = pd.DataFrame({"x": pd.array(["1"], dtype="string")})
    refused(ColumnError, "^column 'x': has type text, which Integer", lambda: dpf.sanitize(text, plan=plan))


def test_a_release_is_not_sanitized_again() -> None:
    frame = pd.DataFrame({"x": [1, 2]})
    for table in (frame, pa.Table.from_pandas(frame)):
        safe = sanitized(table, {"x": (0, 9)})
        refused(
            AlreadySanitizedError, "the table is a release already", lambda safe=safe: sanitized(safe, {"x": (0, 9)})
        )


@pytest.mark.parametrize("shuffle", [True, False])
def test_copied_columns_tell_nothing_of_the_input_order(shuffle):
    """Dictionary entries stood in order of first appearance, those of absent rows among them."""
    dictionary = pa.array(["absent", "late", "early"])
    column = pa.DictionaryArray.from_arrays(pa.array([2, 1] * 20), dictionary)
    views = pa.array(["x", "y"] * 20, pa.string_view())
    table = pa.table({"vote": [True, False] * 20, "copied": column, "view": views})
    out = dpf.sanitize(table, epsilon=1, passthrough=["copied", "view"], key=bytes(32), shuffle=shuffle)
    entries = out["copied"].combine_chunks().dictionary.to_pylist()
    assert entries == list(dict.fromkeys(out["copied"].to_pylist()))
    assert sorted(out["copied"].to_pylist()) == sorted(column.to_pylist())
    assert out["view"].type == pa.string_view()


def test_nullability_follows_the_space_and_not_the_rows():
    """Else whether any null was released would show in the schema."""
    schema = pa.schema([pa.field("vote", pa.bool_(), nullable=False)])
    table = pa.table({"vote": [True, False]}, schema=schema)
    spaces = {"vote": dpf.Nullable(dpf.Boolean())}
    for key in range(20):
        out = dpf.sanitize(table, epsilon=9, spaces=spaces, key=bytes([key] * 32))
        assert out.schema.field("vote").nullable


def _entries(array: pa.Array) -> list[Any]:
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    while not pa.types.is_dictionary(array.type):
        array = array.values if hasattr(array, "values") else array.field(0)
    return array.dictionary.to_pylist()


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("kind", ["list", "large", "fixed", "nested", "chunks", "pandas"])
def test_dictionaries_within_lists_that_are_passed_through_tell_of_no_other_rows(kind, shuffle):
    items = pa.DictionaryArray.from_arrays(pa.array([2, 1, 0, 2, 3, 3]), pa.array(["z", "y", "x", SECRET]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6]), items, mask=pa.array([False, False, True]))
    if kind == "large":
        lists = lists.cast(pa.large_list(items.type))
    if kind == "fixed":
        lists = pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array([False, False, True]))
    if kind == "nested":
        lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), lists)
    column = pa.chunked_array([lists.slice(0, 1), lists.slice(1)] if kind == "chunks" else [lists])
    table = pa.table({"x": [1, 2, 3], "p": column})
    if kind == "pandas":
        table = pd.DataFrame({"x": [1, 2, 3], "p": pd.Series(lists, dtype=pd.ArrowDtype(lists.type))})
    out = dpf.sanitize(table, epsilon=1, spaces={"x": (1, 3)}, passthrough=["p"], key=KEY, shuffle=shuffle)
    found = out["p"].array._pa_array if kind == "pandas" else out["p"]
    seen = list(dict.fromkeys(v for v in str(found.to_pylist()) if v in "xyz"))
    assert _entries(found) == seen
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, column.to_pylist()))


def test_categorical_columns_of_sets_are_refused_before_any_noise():
    frame = pd.DataFrame({"h": pd.Categorical([("a",), ("b", "a")])})
    for space in (dpf.Subset(["a", "b"]), Nullable(dpf.Subset(["a", "b"]))):
        with pytest.raises(ColumnError, match=r"'h': is categorical, and sets cannot be; .* astype\(object\)"):
            dpf.sanitize(frame, epsilon=1, spaces={"h": space})
