"""Spark on this machine. All that needs a session is one test: starting Java and its Python workers takes longest."""

import contextlib
import gc
import io
import os
import sys
from pathlib import Path

import java
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from linked_tables import KEYS as LINKS
from linked_tables import SPACES as SPACES_BY_TABLE
from linked_tables import made_tables
from signatures import check_signature
from tables import KEY, ROWS, SPACES, people, plan_of, same, write_files

import dpframe as dpf
from dpframe.engines import job
from dpframe.engines.shipped import pack_task
from dpframe.engines.staging import WrittenFile
from dpframe.release.info import ReleaseInfo

pyspark = pytest.importorskip("pyspark", reason="pip install 'dpframe[spark]'")
engine = pytest.importorskip("dpframe.engines.spark", reason="pip install 'dpframe[spark]'")
sf = pytest.importorskip("pyspark.sql.functions")
sink = pytest.importorskip("dpframe.engines.spark_sink")

pytestmark = pytest.mark.slow


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A session that writes an event log, and tries what fails once more."""
    home = java.home_or_skip()
    roots = [str(Path(dpf.__file__).parents[1]), str(Path(__file__).parent)]
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*roots, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]))
    (tmp_path / "events").mkdir()
    options = java.options(tmp_path) | {
        "spark.ui.showConsoleProgress": "false",
        # Larger functions go to files.
        "spark.broadcast.UDFCompressionThreshold": "8192",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    builder = pyspark.sql.SparkSession.builder.master("local[2,3]")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def test_a_session(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "WORKER_BUCKET_ROWS", 2_000)
    table = people()
    plan = plan_of(table)
    source = write_files(table, tmp_path / "in")
    told = dpf.sanitize(source, tmp_path / "one.parquet", plan=plan, key=KEY)
    expected = dpf.read(tmp_path / "one.parquet")
    safe = engine.sanitize(source, plan, key=KEY)
    the_same_however_it_is_computed(spark, safe, source, plan, expected)
    measured_pairs_of_items(spark, source, tmp_path)
    a_directory_with_the_plan_in_every_footer(safe, told, expected, tmp_path)
    files_to_files(spark, source, plan, told, expected, tmp_path)
    the_key_is_nowhere(safe, tmp_path)
    rows_by_id(spark, table, plan, tmp_path)
    rows_of_persons(spark, table, tmp_path)
    what_is_refused(spark, safe, source, plan, tmp_path)
    folders_are_text(spark, table, tmp_path)
    a_promise_in_place_of_a_plan(spark, source, table, monkeypatch)
    several_tables(spark, tmp_path)
    rows_that_change(spark, source, table, plan, tmp_path)


def a_promise_in_place_of_a_plan(spark, source, table, monkeypatch):
    """Workers run this Python, where a session was made without a word on theirs."""
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "no-python-at-all")
    safe = engine.sanitize(spark.read.parquet(str(source)), epsilon=1, delta=1e-6, spaces=SPACES, measure=None)
    assert spark.sparkContext.pythonExec == sys.executable
    assert engine.info(safe).plan == dpf.plan(table, 1, 1e-6, spaces=SPACES, measure=None)
    assert safe.count() == ROWS
    for function in (engine.plan, engine.sanitize):
        check_signature(function)


def described(frame):
    """Return a Spark release as pandas, with its description."""
    out = frame.toArrow().to_pandas()
    out.attrs = {"dpframe": engine.info(frame).to_json()}
    return out


def the_same_however_it_is_computed(spark, safe, source, plan, expected):
    same(described(safe), expected)
    pd.testing.assert_series_equal(dpf.Estimates(safe).mean("age"), expected.dp.mean("age"))
    assert safe.agg(sf.sum("age")).collect()[0][0] == expected["age"].sum()  # another plan, in which columns are pruned
    other = spark.read.parquet(str(source)).repartition(3).withColumn("age", sf.col("age") + 0)
    same(described(engine.sanitize(other, plan, key=KEY)), expected)


def measured_pairs_of_items(spark, source, tmp_path):
    options = {"epsilon": 1, "delta": 1e-6, "spaces": SPACES, "measure": [("hobbies", "hobbies")], "key": KEY}
    told = dpf.sanitize(source, tmp_path / "pairs.parquet", **options)
    assert [table.measure.kind for table in told.tables] == ["items", "sizes", "item_pairs"]
    safe = engine.sanitize(spark.read.parquet(str(source)).repartition(3), **options)
    same(described(safe), dpf.read(tmp_path / "pairs.parquet"))
    pair = list(dpf.datasets.HOBBIES[:2])
    one = dpf.Estimates(str(tmp_path / "pairs.parquet")).support("hobbies", pair)
    pd.testing.assert_frame_equal(dpf.Estimates(safe).support("hobbies", pair), one)


def a_directory_with_the_plan_in_every_footer(safe, told, expected, tmp_path):
    engine.write(safe, tmp_path / "out")
    out = dpf.read(tmp_path / "out")
    same(out, expected)
    assert out.dp.release == told
    assert dpf.verify(tmp_path / "out").ok
    with pytest.raises(dpf.FileError, match="exists; an engine writes a new directory"):
        engine.write(safe, tmp_path / "out")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def files_to_files(spark, source, plan, told, expected, tmp_path):
    """Workers read files by themselves, and frames through Spark: the same release."""
    other = spark.read.parquet(str(source)).repartition(3)
    for number, given in enumerate((source, str(source), other)):
        target = tmp_path / f"files{number}"
        assert engine.sanitize(given, plan, target, key=KEY) == told
        same(dpf.read(target), expected)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert engine.plan(source, 3, spaces=SPACES) == plan


def the_key_is_nowhere(safe, tmp_path):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        safe.explain("extended")
    said.write(repr(safe))
    events = b"".join(path.read_bytes() for path in (tmp_path / "events").rglob("*") if path.is_file())
    assert b"MapInArrow work(" in events
    files = [path.read_bytes() for path in (tmp_path / "local").rglob("*") if path.is_file()]
    assert max(map(len, files)) > 8192, "what does the work went by a file"
    for form in (KEY, KEY.hex().encode(), repr(KEY)[2:-1].encode(), str(list(KEY))[1:-1].encode()):
        assert form not in events
        assert form not in said.getvalue().encode()
        assert not any(form in file for file in files)


def rows_by_id(spark, table, plan, tmp_path):
    """A worker that dies, and another partitioning, change nothing; ids twice or missing are refused."""
    numbers = np.random.default_rng(3).permutation(10**6)[:ROWS]
    frame = spark.createDataFrame(pa.Table.from_pandas(table.assign(person=numbers), preserve_index=False))
    mark = tmp_path / "died"
    one = engine.sanitize(frame.repartition(3), plan, id="person", key=KEY)
    two = engine.sanitize(frame.mapInArrow(ends_once(str(mark)), frame.schema), plan, id="person", key=KEY)
    same(described(one), described(two))
    assert mark.exists()
    twice = frame.withColumn("person", sf.expr("person - person % 2"))
    with pytest.raises(dpf.ColumnError, match=r"'person'.*names some rows twice.*take another column"):
        engine.sanitize(twice, plan, id="person")
    missing = frame.withColumn("person", sf.expr("if(person < 900, null, person)"))
    with pytest.raises(dpf.ColumnError, match=r"'person'.*is null in some rows.*fill them"):
        engine.sanitize(missing, plan, id="person")
    with pytest.raises(dpf.ParameterError, match=r"no stable address; pass id="):
        engine.sanitize(frame.drop("person"), plan)


def rows_of_persons(spark, table, tmp_path):
    owned = table.assign(person=np.arange(ROWS) * 7 % 2_100)
    source = write_files(owned, tmp_path / "persons")
    plan = dpf.plan(owned, 2, 1e-6, spaces=SPACES, privacy_id="person", contributions=2)
    dpf.sanitize(source, tmp_path / "persons.parquet", plan=plan, key=KEY)
    safe = engine.sanitize(spark.read.parquet(str(source)).repartition(3), plan, key=KEY)
    same(described(safe), dpf.read(tmp_path / "persons.parquet"))


def ends_once(mark):
    """Return a function of batches that ends the process of the first worker that comes by."""

    def batches(parts):
        import os

        for part in parts:
            if not os.path.exists(mark):
                os.close(os.open(mark, os.O_CREAT))
                os._exit(1)
            yield part

    return batches


def what_is_refused(spark, safe, source, plan, tmp_path):
    raw = spark.read.parquet(str(source))
    with pytest.raises(dpf.FileError, match=r"lacks rows of its files.*pass id="):
        engine.sanitize(raw.where("age > 30"), plan)
    with pytest.raises(dpf.errors.AlreadySanitizedError, match="is a release already"):
        engine.sanitize(safe.withColumn("person", sf.monotonically_increasing_id()), plan, id="person")
    with pytest.raises(dpf.errors.AlreadySanitizedError, match="is a release already"):
        engine.sanitize(tmp_path / "one.parquet", plan)
    for target in (None, tmp_path / "nothing"):
        with pytest.raises(dpf.ColumnError, match=r"'sex': is in the.*in the table;.*make the plan from"):
            engine.sanitize(raw.drop("sex"), plan, target)
    with pytest.raises(dpf.FileError, match=r"nowhere.parquet does not exist,.*no Parquet files"):
        engine.sanitize(tmp_path / "nowhere.parquet", plan)
    with pytest.raises(dpf.ParameterError, match="epsilon is already decided by the plan"):
        engine.sanitize(raw, plan, epsilon=1)
    with pytest.raises(dpf.ColumnError, match=r"'age' at row position 4321: .*Nullable"):
        engine.sanitize(raw.withColumn("age", sf.expr("if(_metadata.row_index = 2321, null, age)")), plan)
    with pytest.raises(dpf.NotSanitizedError, match="no release plan"):
        engine.write(raw, tmp_path / "raw")
    old = raw.select("age").mapInArrow(pack_task(len, "0.0.9"), "age long")
    with pytest.raises(
        pyspark.errors.PythonException, match=r"has dpframe .*, and the driver 0\.0\.9: install dpframe"
    ):
        old.collect()


def folders_are_text(spark, table, tmp_path):
    for number, part in (("01", table[:60]), ("1", table[60:100])):
        (tmp_path / "parts" / f"number={number}").mkdir(parents=True)
        part[["age"]].to_parquet(tmp_path / "parts" / f"number={number}" / "part.parquet")
    frame = engine.open_table(tmp_path / "parts")
    assert frame.names == ["age", "number"]
    assert frame.frame.select("number").distinct().orderBy("number").toArrow()["number"].to_pylist() == ["01", "1"]
    batches = sorted(frame.batches(["age", "number"]), key=lambda batch: batch["number"][0].as_py())
    assert [age for batch in batches for age in batch["age"].to_pylist()] == table["age"][:100].tolist()


def several_tables(spark, tmp_path):
    """The bytes of a release in memory, also of inferred spaces and choices among many rows; keys are refused alike."""
    tables, folders = made_tables(400), {name: tmp_path / "linked" / name for name in SPACES_BY_TABLE}
    for name, table in tables.items():
        folders[name].mkdir(parents=True)
        for number, part in enumerate((table[:150], table[150:])):
            part.to_parquet(folders[name] / f"{number}.parquet", index=False)
    spaces = {**SPACES_BY_TABLE, "patients": {"sex": ["F", "M"], "ward": ["A", "B"]}}
    options = {"epsilon": 8, "keys": LINKS, "contributions": 2, "spaces": spaces}
    frames = {name: spark.read.parquet(str(folder)).repartition(3) for name, folder in folders.items()}
    in_memory = dpf.sanitize(folders, tmp_path / "in_memory", key=KEY, **options)
    safe = dpf.sanitize(frames, tmp_path / "on_spark", key=KEY, **options)
    again = dpf.read(tmp_path / "on_spark")
    for name in tables:
        # Of files whole numbers with nulls come back as such; the digests of both are of equal codes.
        pd.testing.assert_frame_equal(again[name], dpf.read(tmp_path / "in_memory")[name], check_dtype=False)
        assert safe.releases[name] == in_memory.releases[name]
    assert dpf.verify(tmp_path / "on_spark").ok
    one = dpf.Estimates(safe["visits"]).mean("cost", by="patients.sex")
    pd.testing.assert_frame_equal(one, in_memory["visits"].dp.mean("cost", by="patients.sex"))
    with pytest.raises(dpf.ParameterError, match="synthetic rows are not drawn by an engine; write the release, and"):
        safe.synthesize()
    ledger = dpf.Ledger(tmp_path / "persons.sqlite")
    ledger.create("clinic", epsilon=9, delta=1e-4, unit="person:patient_id")
    refused = {
        "ward C": ("patients", "ward", "if(patient_id = 1007, 'C', ward)", "'ward' at row position 7: .table 'pati"),
        "orphan": ("visits", "patient_id", "if(cost = 0, 0, patient_id + 400)", "has no row in 'patients'; add its"),
        "null": (
            "visits",
            "patient_id",
            "if(_metadata.row_index = 3, null, patient_id)",
            "position 3: .* is null; fill",
        ),
        "repeated": ("patients", "patient_id", "patient_id - patient_id % 2", "position 1: .*repeats the key of an ea"),
        "text": ("visits", "patient_id", "cast(patient_id as string)", "of 'patients' are text and whole numbers; ca"),
        "float": ("visits", "patient_id", "double(patient_id)", "which holds double; use whole numbers or text"),
    }
    for name, column, change, rule in refused.values():
        wrong = {**frames, name: frames[name].withColumn(column, sf.expr(change))}
        with pytest.raises((dpf.ColumnError, dpf.ParameterError), match=rule):
            dpf.sanitize(wrong, ledger=ledger, dataset="clinic", **options)
    with pytest.raises(dpf.ParameterError, match=r"no stable address; write table 'visits' to Parquet, and read it"):
        dpf.sanitize({**frames, "visits": spark.createDataFrame(pa.Table.from_pandas(tables["visits"]))}, **options)
    with pytest.raises(dpf.ParameterError, match="table 'visits' is no Spark DataFrame, like others; pass all of one"):
        dpf.sanitize({**frames, "visits": tables["visits"]}, **options)
    with pytest.raises(dpf.errors.AlreadySanitizedError, match="table 'visits' is a release already"):
        dpf.sanitize({**frames, "visits": safe["visits"]}, **options)
    assert ledger.history("clinic").empty


def rows_that_change(spark, source, table, plan, tmp_path):
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", epsilon=3.1, delta=1e-5)
    safe = engine.sanitize(source, plan, ledger=ledger, dataset="survey")
    assert ledger.history("survey")["what"].tolist() == ["release"]
    cut = ROWS * 2 // 5
    table[:cut].assign(age=table["age"][:cut].to_numpy()[::-1]).to_parquet(source / "a.parquet", row_group_size=600)
    spark.catalog.refreshByPath(str(source))
    with pytest.raises(pyspark.errors.PySparkException, match=r"rows or partitions changed.*release it anew"):
        safe.toArrow()


def test_a_sink_that_lacks_rows(tmp_path):
    plan = dpf.plan(people(100), epsilon=1, delta=0, spaces=SPACES)
    text = ReleaseInfo(plan, 100, "0" * 16).to_json()
    writer = sink.ReleaseWriter(text, str(tmp_path / "out"), "snappy")
    files = (WrittenFile(0, "a.tmp", 60), WrittenFile(1, "b.tmp", 39))
    with pytest.raises(dpf.FileError, match="differs from its release; write the release itself"):
        writer.commit([sink.PartMessage(files[:1]), None, sink.PartMessage(files[1:])])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("found", "rule"), [(None, "no Java was found, and"), ("java-8", "java does not run, and")])
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_without_java(monkeypatch, tmp_path, found, rule):
    monkeypatch.setattr(pyspark.sql.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    for name in ("_gateway", "_jvm", "_active_spark_context"):  # of a session of another test
        monkeypatch.setattr(pyspark.SparkContext, name, None)
    monkeypatch.setattr(pyspark.sql.SparkSession, "_instantiatedSession", None)
    if found is not None:
        (tmp_path / "java" / "bin").mkdir(parents=True)
        (tmp_path / "java" / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "java" / "bin" / "java").chmod(0o755)
    table = pd.DataFrame({"age": [1, 2, 3]})
    table.to_parquet(tmp_path / "in.parquet")
    plan = dpf.plan(table, epsilon=1, delta=0, spaces={"age": (0, 120)})
    with pytest.raises(
        dpf.FileError, match=rf"{rule} Spark needs version 17.*apt-get install openjdk-17-jre-headless.*JAVA_HOME"
    ):
        engine.sanitize(tmp_path / "in.parquet", plan)
    gc.collect()  # of the Java that did not start pyspark leaves a pipe open
