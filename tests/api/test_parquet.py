"""Parquet to Parquet: same values as in memory, nothing of the input in the file, all or nothing on disk."""

import base64
import datetime as dt
import decimal
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from readings import digest_of
from small_parts import small_parts

import dpframe as dpf
from dpframe import ReleaseInfo

KEY = bytes(range(32))
N = 6_000
SPACES = {
    "age": (0, 99),
    "sex": ["F", "M"],
    "job": dpf.Nullable(dpf.Categorical(["c0", "c1", "c2"])),
    "rank": dpf.Ordinal(["low", "mid", "high"]),
    "income": dpf.Nullable(dpf.Real(0.0, 100.0, 1_000)),
    "born": dpf.Datetime("1950-01-01", "2010-01-01"),
}


def people(n=N, seed=0):
    rng = np.random.default_rng(seed)
    income = rng.uniform(0, 100, n)
    return pa.table(
        {
            "age": rng.integers(0, 100, n),
            "sex": pa.array(rng.choice(["F", "M"], n).tolist(), pa.string()),
            "job": pa.array([None if x == 3 else f"c{x}" for x in rng.integers(0, 4, n)], pa.large_string()),
            "rank": pa.array(rng.choice(["low", "mid", "high"], n).tolist(), pa.string()).dictionary_encode(),
            "income": pa.array(income, mask=income < 10),
            "born": pa.array(rng.integers(0, 10_000, n).astype("datetime64[D]")),
        }
    )


def plan_of(table, **options):
    return dpf.plan(table, 6.0, spaces=SPACES, **options)


def convert(source, target, **options):
    dpf.sanitize(source, target, key=KEY, **options)
    return pq.read_table(target)


@pytest.fixture
def small(monkeypatch):
    """Several row groups, buckets and spills from a small table."""
    small_parts(monkeypatch, group_rows=1_024, bucket_rows=700, spill_rows=500, held_bytes=40_000)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.parquet"
    pq.write_table(people(), path, row_group_size=777)
    return path


def split(table, folder, edges):
    folder.mkdir()
    for i, (start, stop) in enumerate(zip([0, *edges], [*edges, table.num_rows], strict=True)):
        pq.write_table(table.slice(start, stop - start), folder / f"{i}.parquet", row_group_size=100 * i + 50)
    return folder


class TestSameAsInMemory:
    @pytest.mark.walk(2)
    @pytest.mark.parametrize("shuffle", [True, False])
    @pytest.mark.parametrize("batch_rows", [1_000, 65_536, 10**9])
    @pytest.mark.slow
    def test_census(self, tmp_path, census, census_spaces, shuffle, batch_rows):
        census.to_parquet(tmp_path / "in.parquet", row_group_size=1_700)
        plan = census.dp.plan(4.0, spaces=census_spaces, shuffle=shuffle)
        out = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, batch_rows=batch_rows)
        pandas = dpf.sanitize(census, plan=plan, key=KEY)
        arrow = dpf.sanitize(pa.Table.from_pandas(census), plan=plan, key=KEY)
        assert out.to_pylist() == arrow.to_pylist()
        back = dpf.read(tmp_path / "out.parquet")
        pd.testing.assert_frame_equal(back, pandas.reset_index(drop=True))
        assert json.loads(back.attrs["dpframe"]) == json.loads(pandas.attrs["dpframe"])
        assert not census.reset_index(drop=True).equals(back)

    @pytest.mark.walk(1)
    @pytest.mark.parametrize("shuffle", [True, False])
    @pytest.mark.slow
    def test_whole_file_is_the_same_from_any_layout(self, tmp_path, source, small, monkeypatch, shuffle):
        """Byte for byte: row groups, pages, dictionaries and metadata tell of no batch, bucket and input file."""
        table = people()
        folder = split(table, tmp_path / "folder", [1, 123, 123, 4_001])
        plan = plan_of(table, shuffle=shuffle)
        contents = set()
        for place in (source, folder, f"{folder}/*.parquet"):
            for batch_rows, spill_rows, held in ((97, 1, 50_000), (1_000, 2_500, 1 << 27), (N, 500, 0)):
                small_parts(monkeypatch, spill_rows=spill_rows, held_bytes=held)
                convert(place, tmp_path / "out.parquet", plan=plan, batch_rows=batch_rows)
                contents.add((tmp_path / "out.parquet").read_bytes())
        assert len(contents) == 1
        metadata = pq.read_metadata(tmp_path / "out.parquet")
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        assert groups == [1_024] * 5 + [N - 5 * 1_024]
        assert (
            pq.read_table(tmp_path / "out.parquet").to_pylist() == dpf.sanitize(table, plan=plan, key=KEY).to_pylist()
        )

    @pytest.mark.parametrize("shuffle", [True, False])
    def test_samples_of_sets_of_many_items(self, tmp_path, small, shuffle):
        """Codes of several words a row are chosen by rows, not by words."""
        table = pa.table({"set": [[i % 70, i % 69 + 1] if i % 70 != i % 69 + 1 else [] for i in range(2_000)]})
        spaces = {"set": dpf.Subset(range(70), max_size=2)}
        pq.write_table(table, tmp_path / "in.parquet")
        plan = dpf.plan(table, 8.0, spaces=spaces, shuffle=shuffle, sample=500)
        out = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, batch_rows=300)
        assert out.to_pylist() == dpf.sanitize(table, plan=plan, key=KEY).to_pylist()

    @pytest.mark.walk(2)
    @pytest.mark.parametrize("bucket_rows", [1, 10, 1_000, 10**6])
    @pytest.mark.slow
    def test_any_number_of_buckets(self, tmp_path, source, monkeypatch, bucket_rows):
        small_parts(monkeypatch, bucket_rows=bucket_rows)
        plan = plan_of(people())
        out = convert(source, tmp_path / "out.parquet", plan=plan)
        assert out.to_pylist() == dpf.sanitize(people(), plan=plan, key=KEY).to_pylist()

    def test_partition_keys_are_randomised_like_columns(self, tmp_path, small):
        table = people()
        root = tmp_path / "parts"
        for sex in ("F", "M"):
            (root / f"sex={sex}").mkdir(parents=True)
            pq.write_table(table.filter(pc.equal(table["sex"], sex)).drop(["sex"]), root / f"sex={sex}" / "0.parquet")
        whole = pa.concat_tables([table.filter(pc.equal(table["sex"], sex)) for sex in "FM"])
        whole = whole.select([*[n for n in whole.column_names if n != "sex"], "sex"])
        plan = plan_of(whole)
        out = convert(root, tmp_path / "out.parquet", plan=plan, batch_rows=999)
        assert out.to_pylist() == dpf.sanitize(whole, plan=plan, key=KEY).to_pylist()
        plan = plan_of(whole, shuffle=False)
        with pytest.warns(dpf.OrderLeakWarning, match=r"the input is partitioned.*keeps its order"):
            out = convert(root, tmp_path / "out.parquet", plan=plan, batch_rows=999)
        with pytest.warns(dpf.OrderLeakWarning, match="sorted by sex"):
            assert out.to_pylist() == dpf.sanitize(whole, plan=plan, key=KEY).to_pylist()
        assert out["sex"].to_pylist() != whole["sex"].to_pylist()

    def test_plan_parquet_is_the_plan_that_is_used(self, tmp_path, source):
        plan = dpf.plan(source, 6.0, spaces=SPACES)
        info = dpf.sanitize(source, tmp_path / "out.parquet", 6.0, spaces=SPACES, key=KEY)
        assert info.plan == plan == plan_of(people())
        assert plan.n == info.n == N

    def test_fresh_key_each_time(self, tmp_path, source):
        outputs = []
        for _ in range(2):
            dpf.sanitize(source, tmp_path / "out.parquet", 1.0, spaces=SPACES)
            outputs.append(pq.read_table(tmp_path / "out.parquet"))
        assert not outputs[0].equals(outputs[1])


COPIED = {
    "text": pa.array([None if i % 7 == 0 else f"text {i}" for i in range(N)]),
    "large text": pa.array([f"text {i % 50}" for i in range(N)], pa.large_string()),
    "view": pa.array([f"a text too long to be inlined {i % 50}" for i in range(N)], pa.string_view()),
    "dictionary": pa.array([f"text {i % 50}" for i in range(N)]).dictionary_encode(),
    "bytes": pa.array([bytes([i % 256]) for i in range(N)]),
    "fixed bytes": pa.array([bytes([i % 256]) * 4 for i in range(N)], pa.binary(4)),
    "list": pa.array([[i, None] if i % 3 else None for i in range(N)]),
    "texts": pa.array([[f"x{i % 5}"] * (i % 4) for i in range(N)]),
    "fixed list": pa.array([[i, i] for i in range(N)], pa.list_(pa.int64(), 2)),
    "struct": pa.array([{"a": i, "b": {"c": f"s{i % 3}"}} if i % 4 else None for i in range(N)]),
    "map": pa.array([[("k", i)] for i in range(N)], pa.map_(pa.string(), pa.int64())),
    "zone": pa.array(np.arange(N), pa.timestamp("us", "Europe/Berlin")),
    "nanoseconds": pa.array(np.arange(N), pa.timestamp("ns")),
    "duration": pa.array(np.arange(N), pa.duration("ms")),
    "time": pa.array(np.arange(N), pa.time64("us")),
    "decimal": pa.array([decimal.Decimal(i) for i in range(N)], pa.decimal128(10, 2)),
    "boolean": pa.array([None if i % 5 == 0 else i % 2 == 0 for i in range(N)]),
    "half": pa.array(np.arange(N).astype(np.float16)),
    "unsigned": pa.array(np.arange(N), pa.uint32()),
    "null": pa.nulls(N),
    "uuid": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([uuid.UUID(int=i).bytes for i in range(N)], pa.binary(16))
    ),
}


# Arrow cannot reorder views in memory.
PLAIN_VIEW = pa.schema([("age", pa.int64()), ("sex", pa.string()), ("copied", pa.string())])


class TestPassthrough:
    @pytest.mark.walk(3)
    @pytest.mark.parametrize("kind", COPIED)
    def test_same_as_in_memory(self, tmp_path, small, kind):
        table = people().select(["age", "sex"]).append_column("copied", COPIED[kind])
        pq.write_table(table, tmp_path / "in.parquet", row_group_size=777)
        spaces = {name: SPACES[name] for name in ("age", "sex")}
        for shuffle in (True, False):
            plan = dpf.plan(table, 2.0, spaces=spaces, passthrough=["copied"], shuffle=shuffle)
            expected = dpf.sanitize(table.cast(PLAIN_VIEW) if kind == "view" else table, plan=plan, key=KEY).to_pylist()
            for batch_rows in (300, N):
                out = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, batch_rows=batch_rows)
                assert out.to_pylist() == expected
            assert out.schema.field("copied").type == pq.read_schema(tmp_path / "in.parquet").field("copied").type
        assert out["copied"].to_pylist() == table["copied"].to_pylist()

    @pytest.mark.parametrize("encoded", [True, False])
    def test_dictionary_tells_neither_order_nor_absent_values(self, tmp_path, encoded):
        """The stored dictionary follows the output's order; a value without a row is not in the file."""
        values = pa.array([f"value {i:03}" for i in range(500)] + ["NOBODY HAS THIS"])
        column = pa.DictionaryArray.from_arrays(pa.array(np.arange(500, dtype=np.int32)), values)
        table = people(500).select(["age"]).append_column("c", column if encoded else column.dictionary_decode())
        pq.write_table(table, tmp_path / "in.parquet")
        plan = dpf.plan(table, 1.0, spaces={"age": (0, 99)}, passthrough=["c"])
        out = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, compression="none")
        raw = (tmp_path / "out.parquet").read_bytes()
        assert b"NOBODY" not in raw
        places = [raw.index(text.encode(), 4) for text in out["c"].to_pylist()[1:-1]]
        assert places == sorted(places)
        assert out["c"].to_pylist() != sorted(out["c"].to_pylist())

    def test_ordered_dictionary_keeps_its_order(self, tmp_path, small):
        categories = ["low", "mid", "high", "top"]
        frame = pd.DataFrame({"age": np.arange(N) % 100})
        frame["c"] = pd.Categorical.from_codes(np.arange(N) % 3, categories, ordered=True)
        frame.to_parquet(tmp_path / "in.parquet", row_group_size=777)
        plan = frame.dp.plan(1.0, spaces={"age": (0, 99)}, passthrough=["c"])
        convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, batch_rows=400)
        assert pd.read_parquet(tmp_path / "out.parquet")["c"].dtype == frame["c"].dtype

    def test_dictionaries_within_lists_come_back_plain(self, tmp_path, small):
        inner = pa.array([f"s{i % 5}" for i in range(N)]).dictionary_encode()
        lists = pa.ListArray.from_arrays(np.arange(N + 1, dtype=np.int32), inner)
        table = people().select(["age"]).append_column("c", lists)
        pq.write_table(table, tmp_path / "in.parquet", row_group_size=777)
        plan = dpf.plan(table, 1.0, spaces={"age": (0, 99)}, passthrough=["c"])
        out = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan)
        assert out.schema.field("c").type == pa.list_(pa.string())
        assert out.to_pylist() == dpf.sanitize(table, plan=plan, key=KEY).to_pylist()

    def test_nothing_but_copies(self, tmp_path, source):
        plan = dpf.plan(people(), 1.0, passthrough=people().column_names)
        out = convert(source, tmp_path / "out.parquet", plan=plan)
        assert sorted(map(str, out.to_pylist())) == sorted(map(str, people().to_pylist()))


class TestOutput:
    def test_plan_in_metadata(self, tmp_path, source):
        info = dpf.sanitize(source, tmp_path / "out.parquet", 6.0, spaces=SPACES, key=KEY)
        metadata = pq.read_metadata(tmp_path / "out.parquet").metadata
        assert set(metadata) == {b"dpframe", b"PANDAS_ATTRS", b"pandas", b"ARROW:schema"}
        text = metadata[b"dpframe"].decode()
        assert ReleaseInfo.from_json(text) == info
        for frame in (pd.read_parquet(tmp_path / "out.parquet"), dpf.read(tmp_path / "out.parquet")):
            assert frame.attrs == {"dpframe": text}
            assert len(frame.dp.value_counts("sex")) == 2
        out = pq.read_table(tmp_path / "out.parquet")
        assert (digest_of(out, info.plan, info.tables), out.num_rows) == (info.digest, info.n)

    def test_schema_that_readers_see(self, tmp_path, source):
        out = convert(source, tmp_path / "out.parquet", plan=plan_of(people()))
        assert out.schema.remove_metadata() == people().schema

    def test_fields_without_nulls(self, tmp_path):
        schema = pa.schema([pa.field(f.name, f.type, nullable=False) for f in people().schema])
        table = people().filter(pc.and_(pc.is_valid(people()["job"]), pc.is_valid(people()["income"]))).cast(schema)
        pq.write_table(table, tmp_path / "in.parquet")
        out = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan_of(table))
        assert [f.nullable for f in out.schema] == [False, False, True, False, True, False]

    @pytest.mark.walk(2)
    @pytest.mark.parametrize(
        "type_",
        [pa.timestamp("ms"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ns"), pa.date32(), pa.duration("us")],
    )
    def test_times(self, tmp_path, type_):
        table = pa.table(
            {
                "t": pa.array(np.arange(100) * 10**6).cast(pa.int64()).cast(type_)
                if type_ != pa.date32()
                else pa.array(range(100), type_)
            }
        )
        space = dpf.Datetime("PT0S", "PT3600S", "s") if pa.types.is_duration(type_) else ("1970-01-01", "1971-01-01")
        pq.write_table(table, tmp_path / "in.parquet")
        plan = dpf.plan(table, 1.0, spaces={"t": space})
        out = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan)
        assert out.schema.field("t").type == type_
        assert out.to_pylist() == dpf.sanitize(table, plan=plan, key=KEY).to_pylist()

    @pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
    def test_kinds_of_strings(self, tmp_path, small, type_):
        table = people().select(["sex"]).cast(pa.schema([("sex", type_)]))
        pq.write_table(table, tmp_path / "in.parquet", row_group_size=777)
        plan = dpf.plan(table, 1.0, spaces={"sex": ["F", "M"]})
        out = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan)
        assert out.schema.field("sex").type == type_
        assert out.to_pylist() == dpf.sanitize(people().select(["sex"]), plan=plan, key=KEY).to_pylist()

    def test_pandas_dtypes_come_back(self, tmp_path):
        n = 300
        index = np.arange(n) % 3
        frame = pd.DataFrame(
            {
                "Int64": pd.array([1, 2, None] * 100, "Int64"),
                "UInt8": pd.array([1, 2, None] * 100, "UInt8"),
                "Float32": pd.array([1.0, 2.0, None] * 100, "Float32"),
                "boolean": pd.array([True, False, None] * 100, "boolean"),
                "string": pd.array(["x", "y", None] * 100, "string"),
                "int64[pyarrow]": pd.array([1, 2, None] * 100, "int64[pyarrow]"),
                "str": pd.Series(["x", "y", None] * 100),
                "categorical": pd.Categorical.from_codes(index - 1, ["y", "x"]),
                "ordered": pd.Categorical.from_codes(index % 2, ["y", "x", "z"], ordered=True),
                "zone": pd.date_range("2020", periods=n, tz="Europe/Berlin"),
                "int16": index.astype(np.int16),
                "float64": index.astype(float),
            },
            index=pd.Index(range(5, n + 5), name="person"),
        ).reset_index(drop=True)
        texts, numbers = dpf.Nullable(dpf.Categorical(["x", "y"])), dpf.Nullable(dpf.Integer(0, 5))
        spaces = {
            "Int64": numbers,
            "UInt8": numbers,
            "Float32": dpf.Nullable(dpf.Real(0, 5, 64)),
            "boolean": dpf.Nullable(dpf.Boolean()),
            "string": texts,
            "int64[pyarrow]": numbers,
            "str": texts,
            "categorical": dpf.Nullable(dpf.Categorical(["y", "x"])),
            "ordered": dpf.Ordinal(["y", "x", "z"]),
            "zone": dpf.Datetime("2020-01-01", "2021-01-01", "h"),
            "int16": (0, 5),
            "float64": (0.0, 5.0),
        }
        frame.to_parquet(tmp_path / "in.parquet")
        plan = frame.dp.plan(12.0, spaces=spaces, measure=None)
        convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan)
        expected = dpf.sanitize(frame, plan=plan, key=KEY).reset_index(drop=True)
        for read in (pd.read_parquet, dpf.read):
            found = read(tmp_path / "out.parquet")
            assert found.dtypes.to_dict() == pd.read_parquet(tmp_path / "in.parquet").dtypes.to_dict()
            pd.testing.assert_frame_equal(found, expected)

    def test_nothing_else_of_the_input(self, tmp_path):
        """Every place of a file where a name or a value can hide holds a marker, which must not come through."""
        inner = pa.struct([pa.field("x", pa.int64(), metadata={"k": "MARKER"})])
        fields = [
            pa.field("age", pa.int64(), metadata={"field": "MARKER"}),
            pa.field("sex", pa.dictionary(pa.int8(), pa.string())),
            pa.field("s", inner, metadata={"field": "MARKER"}),
            pa.field("id", pa.string()),
            pa.field("__index_level_0__", pa.string()),
        ]
        sex = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 50, pa.int8()), ["M", "F", "MARKER"])
        columns = [
            pa.array([10_000_019] + [5] * 99),
            sex,
            pa.array([{"x": 1}] * 100, inner),
            pa.array(["MARKER"] * 100),
            pa.array(["MARKER"] * 100),
        ]
        pandas = {"index_columns": ["__index_level_0__"], "column_indexes": [{"name": "MARKER"}], "columns": []}
        metadata = {"pandas": json.dumps(pandas), "PANDAS_ATTRS": '{"who": "MARKER"}', "MARKER": "MARKER"}
        source = tmp_path / "MARKER.parquet"
        pq.write_table(pa.table(columns, schema=pa.schema(fields, metadata=metadata)), source)
        assert source.read_bytes().count(b"MARKER") > 5
        dpf.sanitize(
            source,
            tmp_path / "out.parquet",
            1.0,
            spaces={"age": (0, 9), "sex": ["F", "M"]},
            passthrough=["s"],
            drop=["id"],
            compression="none",
        )
        raw = (tmp_path / "out.parquet").read_bytes()
        found = pq.read_metadata(tmp_path / "out.parquet").metadata
        for text in (raw, base64.b64decode(found[b"ARROW:schema"])):
            assert b"MARKER" not in text
            assert b"index_level" not in text
            assert (10_000_019).to_bytes(8, "little") not in text
        assert json.loads(found[b"pandas"])["index_columns"] == []

    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_dictionary_is_the_declared_list(self, tmp_path, codec):
        """Whatever the data: values that nobody has are in it, in the declared order."""
        sets = pa.array([["b"]] * 20, pa.list_(pa.string()))
        only = pa.table({"sex": pa.array(["M"] * 20), "job": pa.array(["x"] * 20), "set": sets, "age": range(20)})
        pq.write_table(only, tmp_path / "in.parquet")
        spaces = {
            "sex": ["Q1", "M", "Q2", "F"],
            "job": dpf.Nullable(dpf.Categorical(["z", "x", "y"])),
            "set": dpf.Subset(["c", "b", "a"]),
            "age": (0, 99),
        }
        dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 80.0, spaces=spaces, compression=codec)
        texts = ["sex", "job", "set.list.element"]
        read = pq.ParquetFile(tmp_path / "out.parquet", read_dictionary=texts).read()
        assert read["sex"].chunk(0).dictionary.to_pylist() == ["Q1", "M", "Q2", "F"]
        assert read["job"].chunk(0).dictionary.to_pylist() == ["z", "x", "y"]
        assert read["set"].chunk(0).values.dictionary.to_pylist() == ["c", "b", "a"]

    def test_dictionary_beyond_a_page(self, tmp_path):
        """pyarrow writes further rows plainly if the values fill more than 1 MiB; readers give the same."""
        texts = [f"{i:030}" for i in range(50_000)]
        table = pa.table({"text": texts[:100]})
        pq.write_table(table, tmp_path / "in.parquet")
        plan = dpf.plan(table, 1.0, spaces={"text": texts}, measure=None)
        out = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan)
        assert out.to_pylist() == dpf.sanitize(table, plan=plan, key=KEY).to_pylist()
        assert pl.read_parquet(tmp_path / "out.parquet")["text"].to_list() == out["text"].to_pylist()

    @pytest.mark.filterwarnings("ignore:epsilon=0.0001 needs noise")
    def test_sizes_do_not_tell_of_values(self, tmp_path):
        """Two tables that differ everywhere, one key: where noise drowns the data the files have one layout."""
        layouts = []
        for age, sex in ((0, "F"), (99, "M")):
            table = pa.table({"age": [age] * 5_000, "sex": [sex] * 5_000})
            pq.write_table(table, tmp_path / "in.parquet")
            plan = dpf.plan(table, 1e-4, 0.0, spaces={"age": (0, 99), "sex": ["F", "M"]})
            convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan)
            group = pq.read_metadata(tmp_path / "out.parquet").row_group(0)
            columns = [group.column(i).to_dict() for i in range(2)]
            layouts.append([(c["encodings"], c["num_values"], c["total_uncompressed_size"]) for c in columns])
        assert layouts[0] == layouts[1]

    @pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "none"])
    def test_plain_readers(self, tmp_path, source, codec):
        out = convert(source, tmp_path / "out.parquet", plan=plan_of(people()), compression=codec)
        assert pd.read_parquet(tmp_path / "out.parquet")["age"].tolist() == out["age"].to_pylist()
        assert pl.read_parquet(tmp_path / "out.parquet")["job"].to_list() == out["job"].to_pylist()

    def test_read_columns(self, tmp_path, source):
        convert(source, tmp_path / "out.parquet", plan=plan_of(people()))
        some = dpf.read(tmp_path / "out.parquet", columns=["sex", "age"])
        assert list(some) == ["sex", "age"]
        assert "dpframe" in some.attrs
        with pytest.raises(dpf.ColumnError, match=r"^column 'x': is not in the file$"):
            dpf.read(tmp_path / "out.parquet", columns=["x"])

    def test_read_directory_of_releases(self, tmp_path, source):
        """pandas would keep the first file's plan for all rows."""
        (tmp_path / "d").mkdir()
        convert(source, tmp_path / "d" / "1.parquet", plan=plan_of(people()))
        shutil.copy(tmp_path / "d" / "1.parquet", tmp_path / "d" / "2.parquet")
        assert len(dpf.read(tmp_path / "d")) == 2 * N
        convert(source, tmp_path / "d" / "2.parquet", plan=plan_of(people(), shuffle=False))
        with pytest.raises(dpf.FileError, match="carries another release plan than"):
            dpf.read(tmp_path / "d")

    def test_read_named_index_as_column(self, tmp_path):
        frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="id"))
        frame.to_parquet(tmp_path / "t.parquet")
        assert dpf.read(tmp_path / "t.parquet")[["id", "a"]].to_dict("list") == {"id": ["x", "y"], "a": [1, 2]}

    def test_read_partitions(self, tmp_path):
        pq.write_to_dataset(pa.table({"a": [1, 2], "k": [3, 4]}), tmp_path / "d", partition_cols=["k"])
        assert sorted(dpf.read(tmp_path / "d").itertuples(index=False, name=None)) == [(1, "3"), (2, "4")]

    @pytest.mark.parametrize("n", [0, 1])
    @pytest.mark.parametrize("shuffle", [True, False])
    def test_empty_and_one_row(self, tmp_path, n, shuffle):
        pq.write_table(people(n), tmp_path / "in.parquet")
        info = dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan_of(people(n), shuffle=shuffle))
        out = pq.read_table(tmp_path / "out.parquet")
        assert (out.num_rows, info.n) == (n, n)
        assert out.schema.remove_metadata() == people().schema
        assert len(pd.read_parquet(tmp_path / "out.parquet")) == n

    def test_progress(self, tmp_path):
        source = tmp_path / "in.parquet"
        pq.write_table(people(), source)
        seen = []
        convert(
            source,
            tmp_path / "out.parquet",
            plan=plan_of(people()),
            batch_rows=2_500,
            progress=lambda *a: seen.append(a),
        )
        assert seen == [(2_500, N), (5_000, N), (N, N)]

    def test_leak_order_of_partitions_is_warned_of_even_where_their_key_is_dropped(self, tmp_path):
        for sex in ("F", "M"):
            (tmp_path / "in" / f"sex={sex}").mkdir(parents=True)
            pq.write_table(pa.table({"a": [True, False]}), tmp_path / "in" / f"sex={sex}" / "0.parquet")
        options = {"spaces": {"a": dpf.Nullable(dpf.Boolean())}, "drop": ["sex"]}
        with pytest.warns(dpf.OrderLeakWarning, match=r"the input is partitioned.*keeps its order"):
            dpf.sanitize(tmp_path / "in", tmp_path / "out.parquet", 1.0, shuffle=False, **options)
        dpf.sanitize(tmp_path / "in", tmp_path / "out.parquet", 1.0, **options)

    @pytest.mark.parametrize(("codec", "small"), [("snappy", False), ("none", False), ("zstd", True), ("gzip", True)])
    def test_numbers_have_a_dictionary_only_in_small_files(self, tmp_path, codec, small):
        """Only the file's size and time follow from how columns are encoded: every reader gives the same."""
        n = 2_000
        table = pa.table(
            {
                "pay": np.arange(n) / 7,
                "day.of": np.arange(n),
                "sex": ["F", "M"] * (n // 2),
                "few": np.arange(n) % 50,
                "day": pa.array(np.arange(n) % 100, pa.int32()).cast(pa.date32()),
                "set": [["a"], ["a", "b"]] * (n // 2),
                "point": pa.array([[x / n, 0.5] for x in range(n)], pa.list_(pa.float64(), 2)),
                "kept": [{"a": x, "b": [x]} for x in range(n)],
            }
        )
        spaces = {
            "pay": (0.0, 300.0),
            "day.of": (0, 5_000),
            "sex": ["F", "M"],
            "few": (0, 49),
            "day": dpf.Nullable(dpf.Datetime("1970-01-01", "1970-04-10", "D")),
            "set": dpf.Subset(["a", "b"]),
            "point": dpf.Vector(2, 2.0),
        }
        pq.write_table(table, tmp_path / "in.parquet")
        plan = dpf.plan(table, 6.0, delta=0, spaces=spaces, passthrough=["kept"])
        released = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, compression=codec)
        group = pq.read_metadata(tmp_path / "out.parquet").row_group(0)
        found = {group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)}
        split, differences = {"pay", "point.list.element"}, {"day.of", "few", "day"}
        listed = set(found) - (set() if small else split | differences)
        assert {name for name in found if "RLE_DICTIONARY" in found[name]} == listed
        assert {name for name in found if "BYTE_STREAM_SPLIT" in found[name]} == split - listed
        assert {name for name in found if "DELTA_BINARY_PACKED" in found[name]} == differences - listed
        plain = pq.read_table(tmp_path / "out.parquet", columns=["pay", "day.of", "sex", "few", "day", "set", "point"])
        other = pl.read_parquet(tmp_path / "out.parquet", columns=plain.column_names)
        assert other.to_dict(as_series=False) == plain.to_pydict()
        assert released.num_rows == n


def refused(folder, source, target, error=dpf.FileError, **options):
    """Return the one line of a refusal, which leaves the folder as it was."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    options = options or {"epsilon": 6.0, "spaces": SPACES}
    with pytest.raises(error) as caught:
        dpf.sanitize(source, target, **options)
    assert caught.value.__cause__ is None
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    text = str(caught.value)
    assert "\n" not in text
    return text


class TestRefusals:
    def test_missing_and_damaged_input(self, tmp_path, source):
        target = tmp_path / "out.parquet"
        assert refused(tmp_path, tmp_path / "x", target) == f"{tmp_path}/x does not exist"
        (tmp_path / "x").write_bytes(source.read_bytes()[:5_000])
        assert (
            refused(tmp_path, tmp_path / "x", target)
            == f"{tmp_path}/x is not a readable Parquet file; it is damaged or cut off, so write it anew"
        )

    @pytest.mark.parametrize("shuffle", [True, False])
    def test_damage_far_inside(self, tmp_path, shuffle):
        pq.write_table(people(50_000), tmp_path / "in.parquet", row_group_size=10_000, compression="zstd")
        raw = bytearray((tmp_path / "in.parquet").read_bytes())
        half = len(raw) // 2
        raw[half : half + 50_000] = bytes(50_000)
        (tmp_path / "in.parquet").write_bytes(raw)
        text = refused(
            tmp_path,
            tmp_path / "in.parquet",
            tmp_path / "out.parquet",
            plan=plan_of(people(), shuffle=shuffle),
            batch_rows=5_000,
        )
        assert text == f"{tmp_path}/in.parquet is damaged: a part of it cannot be read"

    def test_target_is_the_input(self, tmp_path, source):
        text = "{} is part of the input; write to another place"
        link = tmp_path / "link.parquet"
        link.symlink_to(source)
        folder = tmp_path / "sub"
        folder.mkdir()
        for target in (source, link, folder / ".." / "in.parquet", str(source)):
            assert refused(tmp_path, source, target) == text.format(target)
        assert refused(tmp_path, link, source) == text.format(source)
        assert refused(tmp_path, f"{tmp_path}/i*.parquet", source) == text.format(source)

    def test_target_is_inside_the_input(self, tmp_path, source):
        root = tmp_path / "d"
        (root / "sub").mkdir(parents=True)
        shutil.move(source, root / "in.parquet")
        (tmp_path / "link").symlink_to(root / "sub")
        for target in (root / "out.parquet", root / "sub" / "out.parquet", tmp_path / "link" / "out.parquet"):
            assert refused(tmp_path, root, target) == f"{target} is part of the input; write to another place"

    def test_targets_that_cannot_be_written(self, tmp_path, source):
        assert refused(tmp_path, source, tmp_path) == f"{tmp_path} is a directory; name a file to write"
        missing = tmp_path / "no" / "out.parquet"
        assert refused(tmp_path, source, missing) == f"{tmp_path}/no is not a directory; make it first"
        assert refused(tmp_path, source, source / "out") == f"{source} is not a directory; make it first"
        os.mkfifo(tmp_path / "pipe")
        text = refused(tmp_path, source, tmp_path / "pipe")
        assert text == f"{tmp_path}/pipe is not a regular file; name another one to write"

    @pytest.mark.parametrize("text", [None, '{"schema": 99, "n": 5}', "damaged"])
    def test_release_again(self, tmp_path, source, text):
        release = tmp_path / "release.parquet"
        if text is None:
            dpf.sanitize(source, release, 6.0, spaces=SPACES)
        else:
            pq.write_table(people().replace_schema_metadata({"dpframe": text}), release)
        said = "the table is a release already; sanitising it again only adds noise: use the original table"
        target = tmp_path / "out.parquet"
        assert refused(tmp_path, release, target, dpf.errors.AlreadySanitizedError) == said
        # However it travels on: through pandas the plan is in attrs alone.
        dpf.read(release).to_parquet(tmp_path / "again.parquet")
        assert refused(tmp_path, tmp_path / "again.parquet", target, dpf.errors.AlreadySanitizedError) == said
        with pytest.raises(dpf.errors.AlreadySanitizedError):
            dpf.plan(release, 1.0)

    def test_newer_schema_is_told(self, tmp_path):
        pq.write_table(
            people().replace_schema_metadata({"dpframe": '{"schema": 99, "n": 1, "digest": "", "plan": {}}'}),
            tmp_path / "t.parquet",
        )
        frame = dpf.read(tmp_path / "t.parquet")
        with pytest.raises(dpf.errors.PlanError, match=r"has schema 99, this.*3; upgrade dpframe"):
            frame.dp.value_counts("sex")

    @pytest.mark.parametrize("batch_rows", [0, -1, 1.5, True, "10", None])
    def test_batch_rows(self, tmp_path, source, batch_rows):
        text = refused(
            tmp_path, source, tmp_path / "o", dpf.ParameterError, plan=plan_of(people()), batch_rows=batch_rows
        )
        assert text == "batch_rows must be a whole number of rows, at least 1"

    @pytest.mark.parametrize("shuffle", [True, False])
    def test_compression(self, tmp_path, source, shuffle):
        plan = plan_of(people(), shuffle=shuffle)
        text = refused(tmp_path, source, tmp_path / "o", dpf.ParameterError, plan=plan, compression="rar")
        assert text == "compression must be one of snappy, zstd, gzip, lz4, brotli, none"

    def test_key(self, tmp_path, source):
        text = refused(tmp_path, source, tmp_path / "o", dpf.ParameterError, plan=plan_of(people()), key=b"short")
        assert text.startswith("key must be 32 bytes")

    def test_plan_and_columns(self, tmp_path, source):
        target = tmp_path / "out.parquet"
        plan = plan_of(people())
        pq.write_table(people().drop(["sex"]), tmp_path / "less.parquet")
        text = refused(tmp_path, tmp_path / "less.parquet", target, dpf.ColumnError, plan=plan)
        assert text == "column 'sex': is in the plan but not in the table; make the plan from this table"
        pq.write_table(people().append_column("more", [range(N)]), tmp_path / "more.parquet")
        text = refused(tmp_path, tmp_path / "more.parquet", target, dpf.ColumnError, plan=plan)
        assert text == "column 'more': is in the table but not in the plan; declare it, or pass drop=[…]"
        other = people().set_column(0, "age", people()["sex"])
        pq.write_table(other, tmp_path / "other.parquet")
        text = refused(tmp_path, tmp_path / "other.parquet", target, dpf.ColumnError, plan=plan)
        assert text.startswith("column 'age': has type text")

    @pytest.mark.walk(4)
    @pytest.mark.parametrize("shuffle", [True, False])
    @pytest.mark.parametrize(
        ("column", "value", "said"),
        [
            ("sex", None, "is null, and its space holds no nulls; declare Nullable(…) or pass nulls='impute'"),
            (
                "sex",
                "SECRET",
                "holds a category outside the declared list; add it, or declare Categorical([…], other=…)",
            ),
            ("age", None, "is null, and its space holds no nulls; declare Nullable(…) or pass nulls='impute'"),
        ],
    )
    def test_bad_row_of_a_later_batch(self, tmp_path, small, shuffle, column, value, said):
        """The position counts from the table's start, over batches and files; an older target stays."""
        table = people()
        place = table.column_names.index(column)
        values = table[column].to_pylist()
        values[4_711] = value
        table = table.set_column(place, column, pa.array(values, table.schema.field(column).type))
        folder = split(table, tmp_path / "d", [1_000, 4_000])
        target = tmp_path / "out.parquet"
        plan = plan_of(people(), shuffle=shuffle)
        for older in (False, True):
            if older:
                target.write_bytes(b"an older file")
            text = refused(tmp_path, folder, target, dpf.ColumnError, plan=plan, batch_rows=300)
            assert text == f"column '{column}' at row position 4711: {said}"
            assert "SECRET" not in text


class TestAtomic:
    def test_replaces_an_older_file(self, tmp_path, source):
        (tmp_path / "out.parquet").write_bytes(b"an older file")
        convert(source, tmp_path / "out.parquet", plan=plan_of(people()))
        assert sorted(os.listdir(tmp_path)) == ["in.parquet", "out.parquet"]

    def test_mode_follows_the_umask(self, tmp_path, source):
        old = os.umask(0o027)
        try:
            convert(source, tmp_path / "out.parquet", plan=plan_of(people()))
        finally:
            os.umask(old)
        assert stat.S_IMODE((tmp_path / "out.parquet").stat().st_mode) == 0o640

    @pytest.mark.parametrize("shuffle", [True, False])
    def test_interrupt_leaves_nothing(self, tmp_path, source, small, shuffle):
        def interrupt(done, total):
            if done > N // 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            convert(
                source,
                tmp_path / "out.parquet",
                plan=plan_of(people(), shuffle=shuffle),
                batch_rows=500,
                progress=interrupt,
            )
        assert os.listdir(tmp_path) == ["in.parquet"]

    @pytest.mark.posix
    def test_without_unnamed_files(self, tmp_path, source, monkeypatch):
        """As on systems that have no O_TMPFILE."""
        monkeypatch.delattr(os, "O_TMPFILE")
        monkeypatch.setattr(tempfile, "_O_TMPFILE_WORKS", False)
        names = []
        plan = plan_of(people())
        convert(source, tmp_path / "out.parquet", plan=plan, progress=lambda *_: names.extend(os.listdir(tmp_path)))
        assert any(name.startswith(".out.parquet.") for name in names)
        assert "out.parquet" not in names
        assert sorted(os.listdir(tmp_path)) == ["in.parquet", "out.parquet"]
        bad = people().set_column(0, "age", pa.nulls(N, pa.int64()))
        pq.write_table(bad, source)
        with pytest.raises(dpf.ColumnError):
            convert(source, tmp_path / "new.parquet", plan=plan)
        assert sorted(os.listdir(tmp_path)) == ["in.parquet", "out.parquet"]

    @pytest.mark.parametrize(("shuffle", "held"), [(True, 0), (True, 1 << 27), (False, 0)])
    def test_full_disk_is_one_line(self, tmp_path, monkeypatch, shuffle, held):
        """A limit on the size of files stands for a full disk; it meets the spill file or the output."""
        small_parts(monkeypatch, held_bytes=held)
        pq.write_table(people(50_000), tmp_path / "in.parquet")
        plan = plan_of(people(), shuffle=shuffle)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        try:
            with pytest.raises(dpf.FileError) as caught:
                convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, ignored)
        assert str(caught.value) == f"{tmp_path}/out.parquet could not be written: File too large"
        assert os.listdir(tmp_path) == ["in.parquet"]

    @pytest.mark.slow
    def test_killed_at_random_moments(self, tmp_path):
        """Nothing, or the whole output; an older file stands until then."""
        folder, kept = tmp_path / "work", tmp_path / "kept"
        folder.mkdir()
        kept.mkdir()
        pq.write_table(people(40_000), tmp_path / "in.parquet", row_group_size=5_000)
        (tmp_path / "plan.json").write_text(plan_of(people()).to_json())
        folders = Path(dpf.__file__).parents[1], Path(__file__).parents[1]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
        subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env=environment, check=True)
        left = {path.name: pq.read_table(path).num_rows for path in kept.iterdir()}
        assert set(left.values()) == {40_000}
        # Between two steps of replacing an older file the whole new one may have a second name.
        assert all(name.split(":")[1].startswith(("out.parquet", ".out.parquet.")) for name in left)
        assert {f"{i}:out.parquet" for i in range(1, 15, 2)} <= set(left)


KILLED = """
import os, pathlib, random, signal
import dpframe as dpf
import pytest
from small_parts import small_parts

small_parts(pytest.MonkeyPatch(), bucket_rows=4_000, group_rows=4_000, held_bytes=100_000)
plan, rng = dpf.Plan.read("plan.json"), random.Random(5)
convert = lambda: dpf.sanitize("in.parquet", "work/out.parquet", plan=plan, batch_rows=3_000)
for i in range(15):
    moment = rng.uniform(0.001, 0.2)
    child = os.fork()
    if child == 0:
        if i % 2:
            convert()
        # Nothing handles this signal: it ends the process as SIGKILL does, from within and at once.
        signal.setitimer(signal.ITIMER_REAL, moment)
        while True:
            convert()
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGALRM
    for path in pathlib.Path("work").iterdir():
        path.rename(f"kept/{i}:{path.name}")
"""


def test_dates_outside_nanoseconds(tmp_path):
    """Days that pandas' nanoseconds cannot hold are days like any other."""
    table = pa.table({"d": pa.array([dt.date(1000, 1, 1), dt.date(3000, 1, 1)] * 50)})
    pq.write_table(table, tmp_path / "in.parquet")
    plan = dpf.plan(table, 50.0, spaces={"d": (dt.date(1000, 1, 1), dt.date(3000, 1, 1))}, measure=None)
    out = convert(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan)
    assert out.to_pylist() == dpf.sanitize(table, plan=plan, key=KEY).to_pylist()
