"""A session of Spark Connect with a server on this machine, in a process of its own: it decides for all of pyspark."""

import sys
from pathlib import Path

import java
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from tables import KEY, ROWS, people, plan_of, same, write_files

import dpframe as dpf
from dpframe.engines import job
from dpframe.engines import spark as engine


def described(frame):
    """Return a Spark release as pandas, with its description."""
    out = frame.toArrow().to_pandas()
    out.attrs = {"dpframe": engine.info(frame).to_json()}
    return out


def started(folder):
    """Return a session whose server writes an event log."""
    (folder / "events").mkdir()
    builder = SparkSession.builder.remote("local[2]")
    for name, value in java.options(folder).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def the_same_values(spark, safe, table, plan, source, folder):
    told = dpf.sanitize(source, folder / "one.parquet", plan=plan, key=KEY)
    expected = dpf.read(folder / "one.parquet")
    same(described(safe), expected)
    assert dpf.Estimates(safe).mean("age").equals(expected.dp.mean("age"))
    other = spark.read.parquet(str(source)).repartition(3)
    same(described(engine.sanitize(other, plan, key=KEY)), expected)
    engine.write(safe, folder / "out")
    same(dpf.read(folder / "out"), expected)
    assert dpf.read(folder / "out").dp.release == told


def what_is_refused(spark, safe, table, plan, source, folder):
    frame = spark.createDataFrame(pa.Table.from_pandas(table.assign(person=np.arange(ROWS)), preserve_index=False))
    with pytest.raises(dpf.ParameterError, match=r"no stable address; pass id="):
        engine.sanitize(frame.drop("person"), plan)
    with pytest.raises(dpf.ColumnError, match=r"'person'.*names some rows twice.*take another column"):
        engine.sanitize(frame.withColumn("person", sf.expr("person - person % 2")), plan, id="person")
    raw = spark.read.parquet(str(source))
    with pytest.raises(dpf.ColumnError, match=r"'age' at row position 4321: .*Nullable"):
        engine.sanitize(raw.withColumn("age", sf.expr("if(_metadata.row_index = 2321, null, age)")), plan)
    with pytest.raises(dpf.FileError, match="differs from its release; write the release itself"):
        engine.write(safe.limit(10), folder / "short")
    changed = table[: ROWS * 2 // 5].assign(age=20)
    changed.to_parquet(source / "a.parquet", row_group_size=600)
    with pytest.raises(PySparkException, match=r"rows or partitions changed.*release it anew"):
        safe.toArrow()


def main(folder):
    spark = started(folder)
    job.WORKER_BUCKET_ROWS = 2_000
    table = people()
    plan, source = plan_of(table), write_files(table, folder / "in")
    safe = engine.sanitize(source, plan, key=KEY)
    assert "connect" in type(safe).__module__
    the_same_values(spark, safe, table, plan, source, folder)
    what_is_refused(spark, safe, table, plan, source, folder)
    events = b"".join(path.read_bytes() for path in folder.joinpath("events").rglob("*") if path.is_file())
    assert b"MapInArrow" in events
    files = [path.read_bytes() for path in folder.joinpath("local").rglob("*") if path.is_file()]
    for form in (KEY, KEY.hex().encode(), repr(KEY)[2:-1].encode(), str(list(KEY))[1:-1].encode()):
        assert not any(form in file for file in (events, *files))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
