"""Parquet in: files, directories, partitions, globs, and everything that is none of these."""

import os
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe.errors import ColumnError, FileError, ParameterError
from dpframe.tables.files import digest_files
from dpframe.tables.inputs import open_input
from dpframe.tables.parquet_reader import ParquetInput
from dpframe.tables.types import plain_type

ROWS = 1_000
PROMISE = {"epsilon": 1.0, "delta": 1e-3, "spaces": {"n": (0, 9)}, "measure": None}
OTHERS = PROMISE["spaces"] | {"a": dpf.Categorical(["x", "y"], other="y"), "s": dpf.Subset(["x", "y"], 1, other="y")}


def table(start=0, stop=ROWS):
    numbers = range(start, stop)
    texts = [None if i % 5 == 0 else f"s{i % 7}" for i in numbers]
    return pa.table({"a": pa.array(numbers), "s": pa.array(texts, pa.string())})


def read(found, names=None, rows=64):
    names = found.names if names is None else names
    batches = list(found.batches(names, rows))
    assert all(list(batch) == names for batch in batches) or set(names) == set(batches[0])
    assert all(len(column) <= rows for batch in batches for column in batch.values())
    return {name: [x for batch in batches for x in batch[name].to_pylist()] for name in names}


@pytest.fixture
def parted(tmp_path):
    """Two levels of partitions, a null key, escaped characters, and files that are not the table's."""
    root = tmp_path / "table"
    keys = [
        ("year=2024", "region=north"),
        ("year=2024", "region=a%2Fb%3D%20c"),
        ("year=-7", "region=__HIVE_DEFAULT_PARTITION__"),
        ("year=__HIVE_DEFAULT_PARTITION__", "region=north"),
    ]
    for i, folders in enumerate(keys):
        folder = root.joinpath(*folders)
        folder.mkdir(parents=True)
        pq.write_table(table(i * 10, i * 10 + 10), folder / f"part-{i}.parquet")
    (root / "_SUCCESS").touch()
    (root / ".part.crc").write_bytes(b"crc")
    (root / "_temporary").mkdir()
    (root / "_temporary" / "part.parquet").write_bytes(b"half a file")
    (root / "year=2024" / ".hidden.parquet").write_bytes(b"nothing")
    return root


class TestSources:
    @pytest.mark.parametrize("kind", [str, lambda path: path])
    def test_file(self, tmp_path, kind):
        pq.write_table(table(), tmp_path / "t.parquet", row_group_size=333)
        found = ParquetInput.open(kind(tmp_path / "t.parquet"))
        assert (found.names, found.n, found.text) == (["a", "s"], ROWS, None)
        assert read(found) == table().to_pydict()

    def test_one_huge_row_group_comes_in_batches(self, tmp_path):
        pq.write_table(table(0, 50_000), tmp_path / "t.parquet", row_group_size=50_000)
        assert read(ParquetInput.open(tmp_path / "t.parquet"), rows=1_000) == table(0, 50_000).to_pydict()

    def test_what_was_read_is_not_kept(self, tmp_path):
        """Buffers stay below two megabytes while eight are read; reading ahead would hold all of them."""
        numbers = np.random.default_rng(0).random(1_000_000)
        pq.write_table(pa.table({"a": numbers}), tmp_path / "t.parquet", row_group_size=20_000)
        before = pa.total_allocated_bytes()
        batches = ParquetInput.open(tmp_path / "t.parquet").batches(["a"], 5_000)
        assert max(pa.total_allocated_bytes() - before for _ in batches) < 2_000_000

    @pytest.mark.parametrize("kind", [str, lambda path: path])
    def test_directory_in_order_of_names(self, tmp_path, kind):
        for i, name in enumerate(["a.parquet", "b.pq", "sub/c"]):
            path = tmp_path / "d" / name
            path.parent.mkdir(exist_ok=True, parents=True)
            pq.write_table(table(i * 100, i * 100 + 100), path)
        assert read(ParquetInput.open(kind(tmp_path / "d"))) == table(0, 300).to_pydict()

    def test_partitions(self, parted):
        found = ParquetInput.open(parted)
        assert found.names == ["a", "s", "year", "region"]
        assert found.schema.field("year").type == pa.string()
        assert found.partitions == ["year", "region"]
        assert found.schema.field("region").type == pa.string()
        assert found.n == 40
        rows = pd.DataFrame(read(found)).sort_values("a")
        assert [None if pd.isna(y) else y for y in rows["year"][::10]] == ["2024", "2024", "-7", None]
        assert [None if pd.isna(r) else r for r in rows["region"][::10]] == ["north", "a/b= c", None, "north"]
        assert found.read(["year", "a"]).schema.names == ["year", "a"]
        assert found.read(found.names).to_pydict() == read(found)

    def test_partition_keys_alone(self, parted):
        found = ParquetInput.open(parted)
        assert sorted(map(str, read(found, ["year"])["year"])) == sorted(["2024"] * 20 + ["-7"] * 10 + ["None"] * 10)

    @pytest.mark.parametrize(
        "values", [["1", "-2"], ["1", "x"], ["1.5"], ["-"], [""], ["9" * 18], ["9" * 40], ["٣"], ["2026-01-31"]]
    )
    def test_leak_types_of_keys_do_not_follow_the_data(self, tmp_path, values):
        for value in values:
            (tmp_path / f"k={value}").mkdir()
            pq.write_table(table(0, 2), tmp_path / f"k={value}" / "f.parquet")
        found = ParquetInput.open(tmp_path)
        assert found.schema.field("k").type == pa.string()
        assert set(read(found)["k"]) == set(values)
        assert found.read(["k"]).schema.field("k").type == pa.string()

    @pytest.mark.parametrize("kind", [str, lambda path: path])
    def test_globs(self, parted, kind):
        every = ParquetInput.open(kind(parted / "*" / "*" / "*.parquet"))
        assert (every.names, every.n) == (["a", "s", "year", "region"], 40)
        assert read(every) == read(ParquetInput.open(parted))
        deep = ParquetInput.open(kind(parted / "**" / "*.parquet"))
        assert (deep.names, deep.n) == (every.names, 40)
        # What stands before the first magic character is a place, as where a directory is given.
        some = ParquetInput.open(kind(parted / "year=2024" / "*" / "part-[01].parquet"))
        assert (some.names, some.n) == (["a", "s", "region"], 20)

    def test_relative_glob(self, parted, monkeypatch):
        monkeypatch.chdir(parted.parent)
        assert ParquetInput.open("*/*/*/part-1*").n == 10

    def test_magic_characters_in_a_real_name(self, tmp_path):
        pq.write_table(table(0, 3), tmp_path / "t[1]*.parquet")
        assert ParquetInput.open(tmp_path / "t[1]*.parquet").n == 3

    def test_symbolic_link(self, tmp_path):
        pq.write_table(table(0, 3), tmp_path / "t.parquet")
        (tmp_path / "link").symlink_to(tmp_path / "t.parquet")
        assert ParquetInput.open(tmp_path / "link").n == 3

    def test_many_files_are_not_open_at_once(self, tmp_path):
        import resource

        for i in range(60):
            pq.write_table(table(i, i + 1), tmp_path / f"{i:03}.parquet")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 30, hard))
        try:
            assert read(ParquetInput.open(tmp_path))["a"] == list(range(60))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class TestColumns:
    def test_strings_are_dictionaries_unless_copied(self, tmp_path):
        pq.write_table(table().append_column("c", table()["s"]), tmp_path / "t.parquet", row_group_size=300)
        found = ParquetInput.open(tmp_path / "t.parquet")
        for batch in found.batches(["s", "c"], 128, plain=["c"]):
            assert pa.types.is_dictionary(batch["s"].type)
            assert batch["c"].type == pa.string()

    def test_index_without_a_name_is_no_column(self, tmp_path):
        pd.DataFrame({"a": [1, 2]}, index=[7, 9]).to_parquet(tmp_path / "t.parquet")
        assert ParquetInput.open(tmp_path / "t.parquet").names == ["a"]

    def test_names_with_dots(self, tmp_path):
        """To Arrow a name is a path, and a.b might be a field within column a."""
        dotted = pa.table({"a.b": [1, 2], "a": [3, 4], "a.c": ["x", "y"]})
        pq.write_table(dotted, tmp_path / "t.parquet")
        found = ParquetInput.open(tmp_path / "t.parquet")
        for names in (["a"], ["a.b"], ["a.c"], ["a", "a.c"], ["a.b", "a", "a.c"]):
            assert read(found, names) == dotted.select(names).to_pydict()
            assert found.read(names).to_pydict() == dotted.select(names).to_pydict()

    def test_dictionaries_within_lists(self, tmp_path):
        """Arrow cannot read these in batches that cross row groups."""
        inner = pa.array([f"s{i % 5}" for i in range(ROWS)]).dictionary_encode()
        nested = pa.table({"l": pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), inner)})
        pq.write_table(nested, tmp_path / "t.parquet", row_group_size=77)
        assert read(ParquetInput.open(tmp_path / "t.parquet")) == nested.to_pydict()

    @pytest.mark.parametrize(
        ("type_", "plain"),
        [
            (pa.int8(), pa.int8()),
            (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
            (pa.dictionary(pa.int8(), pa.large_string()), pa.large_string()),
            (pa.dictionary(pa.int8(), pa.string(), ordered=True), pa.dictionary(pa.int8(), pa.string(), ordered=True)),
            (pa.string_view(), pa.string()),
            (pa.binary_view(), pa.binary()),
            (pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.list_(pa.string())),
            (pa.large_list(pa.string_view()), pa.large_list(pa.string())),
            (pa.list_(pa.int8(), 3), pa.list_(pa.int8(), 3)),
            (pa.map_(pa.string(), pa.string_view()), pa.map_(pa.string(), pa.string())),
        ],
        ids=str,
    )
    def test_plain_types(self, type_, plain):
        assert plain_type(type_) == plain

    def test_plain_types_have_no_inner_metadata(self):
        field = pa.field("x", pa.int8(), metadata={"of": "the input"})
        for type_ in (pa.struct([field]), pa.list_(field), pa.list_(pa.field("y", pa.struct([field])))):
            assert b"of the input" not in pa.schema([("c", plain_type(type_))]).serialize().to_pybytes()
            assert b"the input" not in pa.schema([("c", plain_type(type_))]).serialize().to_pybytes()
            assert b"the input" in pa.schema([("c", type_)]).serialize().to_pybytes()

    def test_pandas_dtypes_are_known_names_only(self, tmp_path):
        frame = pd.DataFrame(
            {
                "i": pd.array([1, None], "Int64"),
                "b": pd.array([True, None], "boolean"),
                "s": pd.array(["x", None], "string"),
                "f": [1.0, 2.0],
                "p": pd.array([1, 2], "int64[pyarrow]"),
            }
        )
        frame.to_parquet(tmp_path / "t.parquet")
        found = ParquetInput.open(tmp_path / "t.parquet")
        assert found.pandas_types == {"i": "Int64", "b": "boolean", "s": "string", "p": "int64[pyarrow]"}
        assert found.schema.metadata is None

    @pytest.mark.parametrize(
        "pandas",
        [b"{", b"[]", b'{"columns": 3}', b'{"columns": [{"name": ["a"], "numpy_type": 3}]}', b"\xff", b"[" * 9999],
    )
    def test_odd_pandas_metadata(self, tmp_path, pandas):
        pq.write_table(table().replace_schema_metadata({"pandas": pandas}), tmp_path / "t.parquet")
        assert ParquetInput.open(tmp_path / "t.parquet").pandas_types == {}

    def test_foreign_text_in_pandas_metadata_is_not_copied(self, tmp_path):
        text = b'{"columns": [{"name": "a", "numpy_type": "secret[pyarrow]"}, {"name": "s", "numpy_type": "secret"}]}'
        pq.write_table(table().replace_schema_metadata({"pandas": text}), tmp_path / "t.parquet")
        assert ParquetInput.open(tmp_path / "t.parquet").pandas_types == {"a": "int64[pyarrow]"}


def refusal(source, error=FileError):
    with pytest.raises(error) as caught:
        list(ParquetInput.open(source).batches(["a", "s"], 100))
    assert caught.value.__cause__ is caught.value.__context__ is None
    return str(caught.value)


class TestRefusals:
    def test_missing(self, tmp_path):
        path = tmp_path / "none.parquet"
        assert refusal(path) == f"{path} does not exist"
        assert refusal(f"{tmp_path}/*.parquet") == f"no Parquet file matches {tmp_path}/*.parquet"

    def test_empty_directory(self, tmp_path):
        (tmp_path / "_SUCCESS").touch()
        (tmp_path / "sub").mkdir()
        assert refusal(tmp_path) == f"{tmp_path} is a folder that holds no Parquet file"

    @pytest.mark.parametrize(
        "content", [b"", b"PAR1", b"PAR1" * 4, b"name,age\nalice,3\n", b"PAR1" + b"\xff" * 90 + b"PAR1"]
    )
    def test_no_parquet(self, tmp_path, content):
        path = tmp_path / "t.parquet"
        path.write_bytes(content)
        assert refusal(path) == f"{path} is not a readable Parquet file; it is damaged or cut off, so write it anew"
        assert refusal(tmp_path) == f"{path} is not a readable Parquet file; it is damaged or cut off, so write it anew"

    def test_truncated(self, tmp_path):
        path = tmp_path / "t.parquet"
        pq.write_table(table(), path)
        path.write_bytes(path.read_bytes()[:-20])
        assert refusal(path) == f"{path} is not a readable Parquet file; it is damaged or cut off, so write it anew"

    def test_damaged_pages(self, tmp_path):
        path = tmp_path / "t.parquet"
        pq.write_table(table(0, 50_000), path, compression="zstd")
        raw = bytearray(path.read_bytes())
        raw[4:5_000] = bytes(4_996)
        path.write_bytes(raw)
        assert refusal(path) == f"{path} is damaged: a part of it cannot be read"
        with pytest.raises(FileError, match=r"is damaged: a part of it cannot be read$"):
            ParquetInput.open(path).read(["a"])

    def test_entries_that_a_dictionary_has_not(self, tmp_path):
        """Arrow decodes a page of them without a word, and then reads beside the entries."""
        path, values = tmp_path / "t.parquet", pa.array([0, 1, 2, 1] * 50)
        pq.write_table(
            pa.table({"a": pa.DictionaryArray.from_arrays(values, pa.array(["x", "y", "z"]))}), path, compression="none"
        )
        # Two bits a value: the fourth entry for the last ones.
        path.write_bytes(path.read_bytes().replace(b"dddddddd", b"ddddddd\xff", 1))
        with pytest.raises(FileError, match=r"is damaged: a part of it cannot be read$"):
            list(ParquetInput.open(path).batches(["a"], 100))
        with pytest.raises(FileError, match=r"is damaged: a part of it cannot be read$"):
            ParquetInput.open(path).read(["a"])

    @pytest.mark.parametrize("options", [{"spaces": OTHERS}, {"infer": "data"}, {}, {"passthrough": ["a", "s"]}])
    def test_leak_text_of_one_row_that_is_not_valid_unicode(self, tmp_path, options):
        """Spark and others write it; the whole file was refused as damaged, after the spend."""
        texts = pa.array([b"x", b"y", b"\xff\xfe918"] * 100, pa.binary())
        values = pa.Array.from_buffers(pa.string(), 300, texts.buffers())
        lists = pa.ListArray.from_arrays(pa.array(range(301), pa.int32()), values)
        pq.write_table(pa.table({"a": values, "s": lists, "n": np.arange(300) % 10}), tmp_path / "t.parquet")
        with warnings.catch_warnings(action="ignore"):
            info = dpf.sanitize(tmp_path / "t.parquet", tmp_path / "out.parquet", **PROMISE | options)
        assert info.plan.n == 300
        assert (b"918" in (tmp_path / "out.parquet").read_bytes()) == ("passthrough" in options)

    @pytest.mark.parametrize("nested", [False, True], ids=["text", "sets"])
    def test_leak_entries_of_a_dictionary_that_are_not_valid_unicode(self, tmp_path, nested):
        raw = pa.array([b"x", b"y", b"\xff\xfe918"], pa.binary())
        entries = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
        values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2] * 100, pa.int8()), entries)
        lists = pa.ListArray.from_arrays(pa.array(range(301), pa.int32()), values)
        pq.write_table(pa.table({"a": lists if nested else values}), tmp_path / "t.parquet")
        space = dpf.Subset(["x", "y"], other="y") if nested else dpf.Categorical(["x", "y"], other="y")
        told = dpf.sanitize(tmp_path / "t.parquet", tmp_path / "out.parquet", **(PROMISE | {"spaces": {"a": space}}))
        assert told.n == 300

    def test_different_partitions(self, tmp_path):
        for folder in ("k=1", "l=1"):
            (tmp_path / folder).mkdir()
            pq.write_table(table(), tmp_path / folder / "f.parquet")
        paths = f"{tmp_path}/l=…/f.parquet has other partition keys than {tmp_path}/k=…/f.parquet"
        assert refusal(tmp_path) == f"{paths}; convert them separately"

    def test_leak_partition_values_stay_out_of_messages(self, tmp_path):
        """A folder's name holds a value of the data."""
        paths = [tmp_path / f"ssn=swordfish-{i}" / "k=x\ny=swordfish" / "f=1.parquet" for i in range(3)]
        for i, path in enumerate(paths):
            path.parent.mkdir(parents=True)
            pq.write_table(table().replace_schema_metadata({"dpframe": str(i)}), path)
        shown = f"{tmp_path}/ssn=…/k=…/f=1.parquet"
        assert refusal(tmp_path) == f"{shown} carries another release plan than {shown}; read them separately"
        pq.write_table(table().set_column(0, "a", table()["s"]), paths[1])
        pq.write_table(table(), paths[0])
        paths[2].unlink()
        assert refusal(tmp_path) == (f"{shown} has string in column 'a', where {shown} has int64; convert one of them")
        paths[0].write_bytes(b"no table")
        assert (
            refusal(tmp_path) == f"{shown} is not a readable Parquet file; it is damaged or cut off, so write it anew"
        )
        pq.write_table(table(0, 50_000), paths[0])
        raw = bytearray(paths[0].read_bytes())
        raw[4:5_000] = bytes(4_996)
        paths[0].write_bytes(raw)
        paths[1].unlink()
        assert refusal(tmp_path) == f"{shown} is damaged: a part of it cannot be read"

    def test_leak_partition_values_of_a_source_that_holds_nothing(self, tmp_path):
        folder = tmp_path / "ssn=swordfish"
        folder.mkdir()
        for source in (folder, folder / "no.parquet", folder / "k=swordfish" / "*.csv", folder / "k=swordfish"):
            said = refusal(source)
            assert "swordfish" not in said
            assert f"{tmp_path}/ssn=…" in said

    def test_leak_partition_values_of_a_file_that_is_gone(self, tmp_path):
        """Neither the message nor the errors that it was raised from hold the folder's name."""
        with pytest.raises(FileError, match="cannot be read: No such file") as caught:
            digest_files([tmp_path / "ssn=swordfish" / "f.parquet"])
        assert "swordfish" not in str(caught.value)
        assert caught.value.__context__ is None

    def test_leak_partition_values_of_csv(self, tmp_path):
        path = tmp_path / "ssn=swordfish" / "f.csv"
        path.parent.mkdir()
        for text in ("a;b\n1;2\n", "\na\n1\n"):
            path.write_text(text)
            with pytest.raises(FileError) as caught:
                list(open_input(path).batches(["a"], 100))
            assert str(caught.value).startswith(f"{tmp_path}/ssn=…/f.csv "), text

    def test_empty_names(self, tmp_path):
        pq.write_table(pa.table([[1], [2]], names=["a", ""]), tmp_path / "t.parquet")
        assert refusal(tmp_path / "t.parquet", ParameterError) == "a column has an empty name; rename it"

    def test_different_plans(self, tmp_path):
        for i in (1, 2):
            pq.write_table(table().replace_schema_metadata({"dpframe": str(i)}), tmp_path / f"{i}.parquet")
        assert refusal(tmp_path) == (
            f"{tmp_path}/2.parquet carries another release plan than {tmp_path}/1.parquet; read them separately"
        )

    def test_partition_key_that_is_a_column(self, tmp_path):
        (tmp_path / "a=1").mkdir()
        pq.write_table(table(), tmp_path / "a=1" / "f.parquet")
        assert refusal(tmp_path, ColumnError) == "column 'a': is both a partition key and a column of the files"

    def test_duplicate_names(self, tmp_path):
        pq.write_table(pa.table([[1], [2], [3]], names=["a", "b", "a"]), tmp_path / "t.parquet")
        text = "column name 'a' appears twice; names must be unique"
        assert refusal(tmp_path / "t.parquet", ParameterError) == text
