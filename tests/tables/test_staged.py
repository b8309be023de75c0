"""Tables that are read once, in batches, give the values of the same table in memory."""

import datetime as dt
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from checks import hidden_bytes

import dpframe as dpf
from dpframe.api import verbs
from dpframe.release import budgets, staged

KEY = bytes(range(32))
ROWS = 3_000
SPACES = {
    "age": (0, 120),
    "sex": ["F", "M"],
    "income": dpf.Nullable(dpf.Real(0, 250_000)),
    "hobbies": dpf.Subset(dpf.datasets.HOBBIES, max_size=3),
    "hour": ("00:00", "23:59"),
    "price": dpf.Real(0, 10, steps=1001),
    "level": dpf.Ordinal(["low", "high"]),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(staged, "READ_BATCH_ROWS", 700)


@pytest.fixture(scope="module")
def frame():
    people = dpf.datasets.make_census(ROWS, columns=["age", "sex", "income", "hobbies"])
    rng = np.random.default_rng(2)
    return pl.from_pandas(
        people.assign(hobbies=people["hobbies"].map(sorted), sex=people["sex"].astype(str))
    ).with_columns(
        hour=pl.Series([dt.time(int(h), 30) for h in rng.integers(0, 24, ROWS)]),
        price=pl.Series([Decimal(int(x)) / 100 for x in rng.integers(0, 1_000, ROWS)], dtype=pl.Decimal(10, 2)),
        level=pl.Series(rng.choice(["low", "high"], ROWS), dtype=pl.Enum(["low", "high"])),
        person=pl.Series(rng.integers(0, 900, ROWS)),
    )


@pytest.fixture(scope="module")
def plan(frame):
    return dpf.plan(frame, epsilon=3, spaces=SPACES, drop=["person"])


def stream(frame, *sizes):
    """A reader of batches of these sizes, one after the other, which can be gone through once."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    batches = np.split(np.arange(ROWS), np.cumsum(sizes))
    return pa.RecordBatchReader.from_batches(
        table.schema, (batch for rows in batches for batch in table.take(rows).to_batches())
    )


def sources(frame, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    frame.write_parquet(tmp_path / "in.parquet", row_group_size=512)
    return {
        "lazy": frame.lazy().with_columns(pl.col("age") + 0),
        "scanned": pl.scan_parquet(tmp_path / "in.parquet"),
        "polars": frame,
        "reader": stream(frame, 10, 2_000, 0, 1),
        "arrow": frame.to_arrow(),
        "duckdb": duckdb.sql(f"select * from '{tmp_path}/in.parquet'"),
    }


@pytest.mark.parametrize("kind", ["lazy", "scanned", "polars", "reader", "arrow", "duckdb"])
def test_the_values_of_the_table_in_memory(frame, plan, kind, tmp_path):
    told = dpf.sanitize(sources(frame, tmp_path)[kind], tmp_path / "out.parquet", plan=plan, key=KEY)
    expected = dpf.sanitize(frame, plan=plan, key=KEY)
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert out.columns == expected.columns
    for name in out.columns:
        assert out[name].to_list() == expected[name].to_list(), name
    assert dpf.verify(tmp_path / "out.parquet").ok
    assert dpf.read(tmp_path / "out.parquet").dp.release == told
    assert {path.name for path in tmp_path.iterdir()} == {"in.parquet", "out.parquet"}


@pytest.mark.parametrize("options", [{"shuffle": False}, {"sample": 400}, {"passthrough": ["sex", "level", "hobbies"]}])
@pytest.mark.slow
def test_other_plans(frame, plan, options, tmp_path):
    spaces = {name: space for name, space in SPACES.items() if name not in options.get("passthrough", ())}
    plan = dpf.plan(frame, epsilon=3, spaces=spaces, drop=["person"], **options)
    dpf.sanitize(frame.lazy(), tmp_path / "out.parquet", plan=plan, key=KEY)
    expected = dpf.sanitize(frame, plan=plan, key=KEY)
    out = pl.read_parquet(tmp_path / "out.parquet")
    for name in out.columns:
        assert out[name].to_list() == expected[name].to_list(), name


@pytest.mark.slow
def test_rows_of_persons(frame, tmp_path):
    options = {"epsilon": 2, "delta": 1e-6, "spaces": SPACES, "privacy_id": "person", "contributions": 2, "key": KEY}
    dpf.sanitize(frame.lazy(), tmp_path / "out.parquet", **options)
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert out["age"].to_list() == dpf.sanitize(frame, **options)["age"].to_list()


@pytest.mark.filterwarnings("ignore:spaces of such a table were inferred before")
def test_plans(frame, monkeypatch, tmp_path):
    """Spaces are found as in a file."""
    monkeypatch.setattr(budgets.secrets, "token_bytes", lambda size: KEY)
    some = frame.select("age", "sex", "income")
    some.write_parquet(tmp_path / "in.parquet")
    options = {"epsilon": 3, "spaces": {"age": (0, 120)}}
    assert dpf.plan(some.lazy(), **options) == dpf.plan(tmp_path / "in.parquet", **options)


@pytest.fixture(scope="module")
def narrow():
    """Three parts of a column whose entries are too many for one byte, by itself and within others."""
    texts = [f"{part}{i}" for part in "abc" for i in range(100)]
    index = pa.dictionary(pa.int8(), pa.string())
    parts = [pa.array(texts[at : at + 100]).dictionary_encode().cast(index) for at in (0, 100, 200)]
    lists = [pa.ListArray.from_arrays(pa.array(range(101), pa.int32()), part) for part in parts]
    within = [pa.StructArray.from_arrays([part], ["in"]) for part in parts]
    columns = {"word": parts, "copy": parts, "list": lists, "struct": within, "id": parts}
    return pa.table({name: pa.chunked_array(found) for name, found in columns.items()})


NARROW = {"word": dpf.Categorical(["a0", "b0", "rest"], other="rest")}


def test_leak_entries_of_all_batches_may_be_more_than_their_indices_count(narrow, tmp_path):
    account = dpf.Ledger(tmp_path / "ledger.sqlite")
    account.create("words", 5.0, 1e-5)
    made = dpf.plan(narrow, epsilon=3, spaces=NARROW, passthrough=["copy", "list", "struct"], drop=["id"])
    dpf.sanitize(narrow, tmp_path / "out.parquet", plan=made, ledger=account, dataset="words")
    safe = dpf.sanitize(narrow, plan=made)
    for out in (safe.to_pandas(), dpf.read(tmp_path / "out.parquet")):
        copied = sorted(narrow["copy"].to_pylist())
        assert sorted(out["copy"]) == sorted(part["in"] for part in out["struct"]) == copied
        assert sorted(part[0] for part in out["list"]) == copied


def test_leak_rows_of_persons_whose_entries_are_more_than_their_indices_count(narrow, tmp_path):
    options = {"epsilon": 3, "delta": 1e-6, "spaces": NARROW, "privacy_id": "id", "drop": ["copy", "list", "struct"]}
    dpf.sanitize(narrow, tmp_path / "out.parquet", key=KEY, **options)
    assert dpf.sanitize(narrow, key=KEY, **options)["word"].to_pylist() == list(
        dpf.read(tmp_path / "out.parquet")["word"]
    )


def test_leak_text_that_is_not_valid_unicode_has_a_digest_and_no_error_that_holds_it(tmp_path):
    raw = pa.array([b"x", b"y", b"\xff\xfe918"] * 100, pa.binary())
    text = pa.Array.from_buffers(pa.string(), 300, raw.buffers())
    lists = pa.ListArray.from_arrays(pa.array(range(301), pa.int32()), text)
    spaces = {"word": dpf.Categorical(["x", "y"], other="y"), "set": dpf.Subset(["x", "y"], other="y")}
    account = dpf.Ledger(tmp_path / "ledger.sqlite")
    account.create("words", 5.0, 1e-5)
    table = pa.table({"word": text, "set": lists})
    told = dpf.sanitize(
        table, tmp_path / "out.parquet", epsilon=3, delta=0, spaces=spaces, ledger=account, dataset="words"
    )
    assert told.n == 300


@pytest.mark.slow
def test_memory_holds_a_block_of_rows(tmp_path):
    """Forty batches of a megabyte, of which Arrow holds no tenth."""
    held = []

    def batches():
        for number in range(40):
            held.append(pa.total_allocated_bytes() - before)
            yield pa.record_batch({"x": pa.array(np.arange(1 << 17) % 100 + number)})

    before = pa.total_allocated_bytes()
    reader = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())
    dpf.sanitize(reader, tmp_path / "out.parquet", 1, spaces={"x": (0, 200)})
    assert len(held) == 40
    assert max(held) < 4 << 20


@pytest.mark.posix
def test_rows_on_disk_are_hidden(frame, plan, tmp_path):
    """While a stream is read its rows are in a file without a name, in which no value stands."""
    seen = []

    def watched():
        for frame_of_some in frame.iter_slices(100):
            yield from frame_of_some.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()
            seen.append([path.name for path in tmp_path.iterdir()])

    schema = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    hidden = staged.HiddenFile(tmp_path)
    with hidden:
        table = staged.StagedInput.of(
            "a stream", staged.stream_of(pa.RecordBatchReader.from_batches(schema, watched())), hidden
        )
        assert table.n == ROWS
        content = hidden_bytes(tmp_path)
    assert len(content) > 10_000
    # Shorter words than of six bytes are found in random ones every now and then.
    words = (b"income", b"hobbies", b"ARROW1", frame["person"].to_numpy()[:3].tobytes())
    assert not any(word in content for word in words)
    assert seen == [[]] * 30


class TestLedger:
    @pytest.fixture
    def account(self, tmp_path):
        ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
        ledger.create("survey", epsilon=3.1, delta=1e-5)
        return {"ledger": ledger, "dataset": "survey"}

    def test_an_interrupted_job_is_repeated_whatever_the_batches(self, frame, plan, account, tmp_path, monkeypatch):
        out = tmp_path / "out.parquet"
        with monkeypatch.context() as patch:
            patch.setattr(verbs.Conversion, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                dpf.sanitize(stream(frame, 10, 20), out, plan=plan, **account)
        for other in (frame.with_columns(age=pl.col("age").reverse()), frame.with_columns(person=pl.col("person") + 1)):
            with pytest.raises(dpf.errors.LedgerError, match=r"the input or the.*the interrupted run.*forget"):
                dpf.sanitize(other.lazy(), out, plan=plan, **account)
        dpf.sanitize(stream(frame, 2_000), out, plan=plan, **account)
        assert len(account["ledger"].history("survey")) == 1

    def test_a_refused_value_costs_nothing(self, frame, plan, account, tmp_path):
        bad = frame.with_columns(age=pl.when(pl.int_range(pl.len()) == 2_345).then(None).otherwise(pl.col("age")))
        with pytest.raises(dpf.ColumnError, match="'age' at row position 2345: is null"):
            dpf.sanitize(bad.lazy(), tmp_path / "out.parquet", plan=plan, **account)
        assert account["ledger"].history("survey").empty


def interrupted(*_):
    raise KeyboardInterrupt


class TestRefusals:
    def test_a_release(self, frame, plan, tmp_path):
        safe = dpf.sanitize(frame.to_arrow(), plan=plan)
        with pytest.raises(dpf.errors.AlreadySanitizedError, match="is a release already"):
            dpf.sanitize(safe, tmp_path / "out.parquet", plan=plan)

    def test_a_stream_that_breaks_off(self, frame, plan, tmp_path):
        def broken():
            yield from whole.to_batches(max_chunksize=100)
            raise ValueError("value 37")

        whole = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        reader = pa.RecordBatchReader.from_batches(whole.schema, broken())
        with pytest.raises(dpf.FileError, match=r"the stream broke off.*make it anew") as caught:
            dpf.sanitize(reader, tmp_path / "out.parquet", plan=plan)
        assert "37" not in str(caught.value)
        assert caught.value.__context__ is None
        assert not list(tmp_path.iterdir())

    def test_what_is_no_stream(self, frame, plan, tmp_path):
        with pytest.raises(dpf.ParameterError, match=r"a Parquet source is.*a directory or"):
            dpf.sanitize(7, tmp_path / "out.parquet", plan=plan)
        with pytest.raises(dpf.ParameterError, match="is no stream of rows; pass a table"):
            dpf.sanitize(frame["age"], tmp_path / "out.parquet", plan=plan)
        with pytest.raises(dpf.ParameterError, match="has an empty name"):
            dpf.sanitize(frame.rename({"age": ""}), tmp_path / "out.parquet", plan=plan)

    def test_where_it_cannot_go(self, frame, plan, tmp_path):
        for target, rule in ((tmp_path, "is a directory; name a file"), (tmp_path / "no" / "x", "is not a directory")):
            with pytest.raises(dpf.FileError, match=rule):
                dpf.sanitize(frame.lazy(), target, plan=plan)
