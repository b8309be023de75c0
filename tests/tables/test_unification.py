"""Folders whose files differ: read as one table in the schema that Arrow unifies, or refused before the spend."""

import datetime
import decimal

import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from commands import dpframe

import dpframe as dpf
from dpframe.errors import FileError
from dpframe.tables.inputs import open_input

DAY = datetime.datetime(2024, 5, 6, 7, 8, 9)
FIRST = pa.table({"a": pa.array([1, None, 3], pa.int32()), "s": pa.array(["x", "y", None])})


def folder_of(tmp_path, *tables):
    folder = tmp_path / "in"
    folder.mkdir()
    for i, table in enumerate(tables):
        pq.write_table(table, folder / f"{i}.parquet")
    return folder


def column(values, type_, nullable=True):
    return pa.table([pa.array(values, type_)], schema=pa.schema([pa.field("a", type_, nullable=nullable)]))


def coded(value):
    """Return a value as it is coded: a decimal as a float."""
    return float(value) if isinstance(value, decimal.Decimal) else value


SITUATIONS = {
    "order": [FIRST, FIRST.select(["s", "a"])],
    "integers": [FIRST, FIRST.set_column(0, "a", pa.array([2**40, 5, None], pa.int64()))],
    "signs": [column([255], pa.uint8()), column([-1], pa.int8())],
    "floats": [column([2**31 - 1], pa.int32()), column([0.5], pa.float32())],
    "decimals": [column([1], pa.decimal128(5, 2)), column([7], pa.int8()), column([1], pa.decimal128(9, 3))],
    "times": [column([DAY], pa.timestamp("us", "UTC")), column([DAY, None], pa.timestamp("ns", "UTC"))],
    "optional": [column([1, 2], pa.int64(), nullable=False), column([3, None], pa.int64())],
    "absent": [FIRST, FIRST.select(["a"]), FIRST.select(["s"])],
    "later": [FIRST.select(["s"]), FIRST],
    "null type": [FIRST, pa.table({"a": pa.nulls(2), "s": pa.nulls(2)})],
    "text": [column(["x", "y"], pa.string()), column(["x", None], pa.large_string())],
    "categories": [
        column(["x"], pa.dictionary(pa.int8(), pa.string())),
        column(["y"], pa.dictionary(pa.int32(), pa.string())),
    ],
    "sets": [column([["x"], None], pa.list_(pa.string())), column([["y"]], pa.large_list(pa.string()))],
    "vectors": [column([[1, 2], None], pa.list_(pa.int32())), column([[0.5]], pa.list_(pa.float64()))],
}


@pytest.mark.parametrize("tables", SITUATIONS.values(), ids=SITUATIONS)
def test_values_and_schema_are_those_of_arrow(tmp_path, tables):
    folder = folder_of(tmp_path, *tables)
    stored_schemas = [pq.read_schema(file) for file in sorted(folder.iterdir())]
    schema = pa.unify_schemas(stored_schemas, promote_options="permissive")
    files = open_input(folder)
    assert files.schema.equals(schema)
    table = files.read(files.names)
    assert table.schema.equals(schema)
    assert table.to_pydict() == pa.dataset.dataset(folder, schema.remove_metadata()).to_table().to_pydict()
    for plain in ([], files.names):
        batches = list(files.batches(files.names, 2, plain))
        for name in files.names:
            rows = [value for batch in batches for value in batch[name].to_pylist()]
            assert rows == [
                None if value is None else value if plain else coded(value) for value in table[name].to_pylist()
            ]


@pytest.fixture
def twins(tmp_path):
    """A folder of two files that differ, a file with the same rows, and the plan of either."""
    ages = [20 + i % 50 for i in range(200)]
    days = pa.array([DAY + datetime.timedelta(days=i) for i in range(200)], pa.timestamp("ns"))
    whole = pa.table({"day": days, "age": ages, "region": pa.array([None] * 100 + ["north", "south"] * 50)})
    old_types = pa.schema([("day", pa.timestamp("us")), ("age", pa.int32())])
    folder = folder_of(tmp_path, whole[:100].select(["day", "age"]).cast(old_types), whole[100:])
    pq.write_table(whole, tmp_path / "one.parquet")
    spaces = {"age": (0, 120), "day": ("2024-01-01", "2025-12-31"), "region": dpf.Nullable(["north", "south"])}
    return folder, tmp_path / "one.parquet", dpf.plan(tmp_path / "one.parquet", epsilon=2.0, spaces=spaces)


@pytest.mark.parametrize("has_target", [False, True])
def test_a_release_of_files_that_differ_is_that_of_one_file(tmp_path, twins, has_target):
    """The noise of a row depends on its value and place, and not on the type in which a file stores it."""
    *sources, plan = twins
    targets = [tmp_path / f"{i}.out.parquet" if has_target else None for i in range(2)]
    safe = [
        dpf.sanitize(source, target, plan=plan, key=bytes(32)) for source, target in zip(sources, targets, strict=True)
    ]
    pd.testing.assert_frame_equal(*(map(dpf.read, targets) if has_target else safe))


def test_the_shell_and_inference_read_files_that_differ(tmp_path, twins):
    with pytest.raises(SystemExit) as ended:
        dpframe("sanitize", twins[0], tmp_path / "out.parquet", "--epsilon", "9")
    assert ended.value.code == 0
    assert dpf.read(tmp_path / "out.parquet").dtypes.astype(str).tolist()[:2] == ["datetime64[ns]", "int64"]


def test_csv_files_may_lack_columns(tmp_path):
    for name, text in (("a.csv", "x,y\n1,2\n"), ("b.csv", "y,x\n2,1\n"), ("c.csv", "x\n1\n")):
        (tmp_path / name).write_text(text)
    files = open_input(tmp_path)
    assert files.read(["x", "y"]).to_pydict() == {"x": ["1"] * 3, "y": ["2", "2", None]}


REFUSALS = {
    "types": [FIRST, FIRST.set_column(0, "a", FIRST["s"])],
    "overflow": [column([1], pa.int64()), column([2**63], pa.uint64())],
    "decimals": [column([10**18], pa.int64()), column([1], pa.decimal128(5, 2))],
    "zones": [column([DAY], pa.timestamp("us", "UTC")), column([DAY], pa.timestamp("us", "Europe/Paris"))],
    "items": [column([[2**60]], pa.list_(pa.int64())), column([[0.5]], pa.list_(pa.float64()))],
    "required": [column([1], pa.int64(), nullable=False), FIRST.select(["s"])],
}


@pytest.mark.parametrize("tables", REFUSALS.values(), ids=REFUSALS)
def test_what_does_not_unify_is_refused_before_the_spend(tmp_path, tables):
    folder = folder_of(tmp_path, *tables)
    ledger = dpf.Ledger(tmp_path / "l.sqlite")
    ledger.create("d", epsilon=1, delta=1e-6)
    with pytest.raises(
        FileError, match=r"/1\.parquet (has .* in column 'a', where .*/0\.parquet has|lacks column 'a')"
    ) as refused:
        dpf.sanitize(folder, tmp_path / "out.parquet", epsilon=1, ledger=ledger, dataset="d")
    assert len(str(refused.value).replace(str(tmp_path), "").split()) <= 30
    assert ledger.spent("d").epsilon == 0
    assert not (tmp_path / "out.parquet").exists()


class TestRounding:
    """Numbers beyond 2**53 and times beyond the year 2262: no row decides whether files are read."""

    NUMBERS = (column([2**62 + 1, 7, None], pa.int64()), column([0.5], pa.float64()))
    TIMES = (
        column([datetime.datetime(9999, 12, 31), DAY, None], pa.timestamp("us")),
        column([DAY], pa.timestamp("ns")),
    )

    @pytest.mark.parametrize("tables", [NUMBERS, TIMES], ids=["numbers", "times"])
    def test_leak_a_coded_column_is_rounded_or_clipped(self, tmp_path, tables):
        files = open_input(folder_of(tmp_path, *tables))
        values = [
            value for batch in files.batches(["a"]) for value in batch["a"].cast(pa.int64(), safe=False).to_pylist()
        ]
        assert values[0] == (2**62 if tables is self.NUMBERS else (2**63 - 1) // 1000 * 1000)
        assert values[2] is None

    @pytest.mark.parametrize("options", [{"passthrough": ["a"]}, {"privacy_id": "a"}])
    def test_a_column_that_is_copied_or_names_persons_is_refused(self, tmp_path, options):
        tables = [table.append_column("b", pa.array(range(len(table)))) for table in self.NUMBERS]
        folder = folder_of(tmp_path, *tables)
        message = r"0\.parquet has int64 in column 'a', which is copied as double; convert the column there"
        with pytest.raises(FileError, match=message):
            dpf.sanitize(folder, tmp_path / "out.parquet", epsilon=1, spaces={"b": (0, 3)}, **options)
        with pytest.raises(FileError, match=message):
            dpf.read(folder)


def test_dtypes_of_pandas_are_those_of_a_file_with_the_unified_type(tmp_path):
    (tmp_path / "in").mkdir()
    for i, dtype in enumerate(["Int32", "Int64"]):
        frame = pd.DataFrame({"a": pd.array([1, None], dtype)}, index=[4, 5])
        frame.to_parquet(tmp_path / "in" / f"{i}.parquet")
    files = open_input(tmp_path / "in")
    assert (files.names, files.pandas_types) == (["a"], {"a": "Int64"})
    assert dpf.read(tmp_path / "in")["a"].tolist()[::2] == [1, 1]
