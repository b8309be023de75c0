"""Releases of Spark frames, and of Parquet files by Spark: lazy, and the same after any retry or recomputation."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote, urlparse

from dpframe.api.options import check_codec
from dpframe.api.public import Plan
from dpframe.engines.forms import ArrowForm, OutputForm
from dpframe.engines.job import PreparedRelease
from dpframe.engines.readers import ParquetReader, Part, parquet_files, parquet_parts, without_rows
from dpframe.engines.releases import EngineRelease
from dpframe.engines.shipped import shipped
from dpframe.engines.staging import check_target
from dpframe.engines.table import EngineTable, Outcome, check_id, check_unique
from dpframe.engines.verbs import Verbs
from dpframe.engines.work import Pieces
from dpframe.errors import DpframeError, FileError, NotSanitizedError, ParameterError
from dpframe.tables.frames import ArrowFrame, Frame, wrap
from dpframe.tables.info import METADATA_KEY, ReleaseInfo, arrow_metadata
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.parquet_reader import ParquetInput
from dpframe.tables.released import read_info

try:
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StringType, StructField, StructType
except ImportError:
    raise ImportError("pyspark is not installed; pip install 'dpframe[spark]'") from None

from dpframe.engines.spark_sink import FORMAT, ReleaseSink, release_text
from dpframe.engines.spark_tasks import (
    BUCKET,
    FILE,
    RESULT,
    ROW,
    ROWS,
    Each,
    Gather,
    Numbered,
    PlainReader,
    Scatter,
    SparkReader,
)

T = TypeVar("T")

PYTHON = "PYSPARK_PYTHON"
"""Names the Python that workers run, in the environment."""

NEEDS_JAVA = (
    "which Spark needs, of version 17 or 21: apt-get install openjdk-17-jre-headless, or set JAVA_HOME to where one is"
)


@dataclass(frozen=True)
class SessionTable(EngineTable):
    """A table whose tasks run in a Spark session."""

    session: Any = field(repr=False)
    """The session."""

    def _shipped(self, task: Callable[..., Any]) -> Callable[..., Any]:
        """Return work for Spark, which writes functions of more than a megabyte to files as they are."""
        context = getattr(self.session, "sparkContext", None)  # Spark Connect has none
        return shipped(task, brought=None if context is None else context.broadcast)

    def run(self, task: Callable[..., T], inputs: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        """Do a task with each of some inputs."""
        count = len(inputs)
        numbers = self.session.range(0, count, 1, max(1, count))
        return self._collected(numbers, Numbered(task, inputs))

    def _collected(self, frame: Any, task: Callable[..., Any]) -> Iterator[Any]:
        """Yield what workers send for a frame's partitions."""
        for row in frame.mapInArrow(self._shipped(task), f"{RESULT} binary").collect():
            yield pickle.loads(bytes(row[0]))  # noqa: S301 (of the release's own workers)


@dataclass(frozen=True)
class SparkFiles(SessionTable):
    """Parquet files whose row groups workers read by themselves: rows that pass through Java are slower."""

    parts: Sequence[tuple[Any, int]] = field(repr=False)
    """What each task is given: a row group, and the place of its first row."""
    files: ParquetInput

    def each(self, task: Callable[[Pieces], T]) -> Iterator[T | DpframeError]:
        """Do a task with every row group."""
        return self.run(Part(self.reader, Outcome(task)), self.parts)

    def form(self, plan: Plan) -> OutputForm:
        """Return the form in which a release leaves."""
        return ArrowForm(ParquetForm(plan, self.files.schema, self.files.pandas_types))


@dataclass(frozen=True)
class SparkTable(SessionTable):
    """A Spark frame with the addresses of its rows as one more column."""

    frame: Any = field(repr=False)
    """The Spark frame."""

    def _selected(self) -> Any:
        return self.frame.select(*(_quoted(name) for name in self.reader.columns))

    def each(self, task: Callable[[Pieces], T]) -> Iterator[T | DpframeError]:
        """Do a task with every partition."""
        return self._collected(self._selected(), Each(self.reader, Outcome(task)))

    def form(self, plan: Plan) -> OutputForm:
        """Return the form in which a release leaves."""
        assert isinstance(self.template, ArrowFrame)
        return ArrowForm(ParquetForm(plan, self.template.table.schema.remove_metadata()))

    def released(self, ready: PreparedRelease) -> Any:
        """Return the release as a Spark frame."""
        session, count = self.frame.sparkSession, len(ready.buckets)
        schema = f"{BUCKET} int, {ROWS} binary"
        # A row for each bucket, so that none is without a task that looks for what is missing.
        marks = session.range(0, count, 1, 1).select(
            sf.col("id").cast("int").alias(BUCKET), sf.lit(b"").cast("binary").alias(ROWS)
        )
        sent = self._selected().mapInArrow(self._shipped(Scatter(self.reader, ready)), schema)
        together = sent.unionByName(marks).repartitionById(count, sf.col(BUCKET))
        plan, marked = ready.work.plan, {METADATA_KEY: ready.text}
        kept = [f for f in self.frame.schema.fields if f.name in (*plan.names, *plan.passthrough)]
        fields = [StructField(f.name, f.dataType, True, marked) for f in kept]
        return together.mapInArrow(self._shipped(Gather(ready)), StructType(fields))


def _quoted(name: str) -> Any:
    return sf.col("`" + name.replace("`", "``") + "`")


def open_table(source: Any, id: str | None = None) -> SparkTable:
    """Return a Spark frame, or Parquet files, as a table whose rows are counted and have addresses.

    Raises
    ------
    ParameterError
        If it is neither, or rows have no address: neither files nor an id column.
    ColumnError
        If ids are null, occur twice, or are of a type that cannot be distinguished.
    FileError
        If there is no Java, or rows of the files are missing in the frame.
    """
    frame = _read(source) if isinstance(source, str | Path) else source
    if not hasattr(frame, "mapInArrow"):
        raise ParameterError(f"{type(source).__name__} is no Spark DataFrame, and no path of Parquet files; pass one")
    session = frame.sparkSession
    _own_python(session)
    names, template = list(frame.columns), _template(frame)
    if id is None:
        addressed, firsts, count = _by_file(frame)
        return SparkTable(template, count, SparkReader(names, firsts), session, addressed, by_id=False)
    check_id(template, id)
    names.remove(id)
    template = _template(frame.drop(id))
    return SparkTable(template, _by_id(frame, id), SparkReader(names, id=id), session, frame, by_id=True)


def _table(source: Any, id: str | None) -> SessionTable:
    """Return a table that is not to be a frame again: files are read without Spark where this process sees them."""
    if id is not None or not isinstance(source, str | Path) or not Path(source).exists():
        return open_table(source, id)
    files = parquet_files(source)
    spark = session()
    _own_python(spark)
    parts, folders = parquet_parts(files), tuple(files.partitions)
    reader = ParquetReader(files, files.names)
    return SparkFiles(without_rows(files), files.n, reader, spark, parts, files, by_id=False, partitions=folders)


def _template(frame: Any) -> Frame:
    """Return a table of the same columns, without rows."""
    text = release_text(frame.schema)
    schema = frame.limit(0).toArrow().schema.with_metadata(None if text is None else arrow_metadata(text))
    return wrap(schema.empty_table())


def opened(frame: Any) -> EngineRelease:
    """Return a Spark frame as a release that estimates read, which counts its rows."""
    template, reader = _template(frame), PlainReader(list(frame.columns))
    return EngineRelease.of(SparkTable(template, int(frame.count()), reader, frame.sparkSession, frame, by_id=False))


def _read(source: str | Path) -> Any:
    """Return Parquet files as a frame; what this process sees of them is read as on one machine."""
    if not Path(source).exists():
        try:
            with _quiet():
                return session().read.parquet(str(source))
        except AnalysisException:
            raise FileError(f"{source} does not exist, or holds no Parquet files; name files or a directory") from None
    files = parquet_files(source)
    path = str(Path(source).absolute())
    frame = session().read.parquet(path)
    if files.partitions:
        # Always text: Spark would read 01 as a number.
        texts = [StructField(f.name, StringType()) if f.name in files.partitions else f for f in frame.schema.fields]
        frame = session().read.schema(StructType(texts)).parquet(path)
    if files.text is None:
        return frame
    return frame.select(*(_quoted(name).alias(name, metadata={METADATA_KEY: files.text}) for name in frame.columns))


def session() -> Any:
    """Return the Spark session that is active, or a new one.

    Raises
    ------
    FileError
        If there is no Java, or none that Spark runs on.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    home, remote = os.environ.get("JAVA_HOME"), os.environ.get("SPARK_REMOTE")
    java = shutil.which("java") if home is None else shutil.which(str(Path(home, "bin", "java")))
    if java is None and remote is None:
        raise FileError(f"no Java was found, {NEEDS_JAVA}")
    os.environ.setdefault(PYTHON, sys.executable)
    try:
        return SparkSession.builder.getOrCreate()
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
    raise FileError(f"{java} does not run, {NEEDS_JAVA}")


def _own_python(session: Any) -> None:
    """Let workers on this machine run this Python, where nobody said which: the system's may have no dpframe."""
    context = getattr(session, "sparkContext", None)  # Spark Connect has none
    if context is None or PYTHON in os.environ or not context.master.startswith("local"):
        return
    if not context.getConf().contains("spark.pyspark.python"):
        context.pythonExec = sys.executable


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep PySpark from writing the traceback of an error that is answered here."""
    logger = logging.getLogger("DataFrameQueryContextLogger")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _by_file(frame: Any) -> tuple[Any, dict[int, int], int]:
    """Return a frame with the addresses of its rows, the place of each file's first row, and the number of rows.

    Files are in the order of their paths, as `dpframe.sanitize` reads them.
    """
    path, row = sf.col("_metadata.file_path"), sf.col("_metadata.row_index")
    try:
        with _quiet():
            addressed = frame.select("*", sf.xxhash64(path).alias(FILE), row.alias(ROW))
            counts = frame.groupBy(path.alias("path"), sf.xxhash64(path).alias(FILE)).agg(
                sf.count("*").alias("rows"), sf.max(row).alias("last")
            )
            found = [(r["path"], r[FILE], r["rows"], r["last"]) for r in counts.collect()]
    except AnalysisException:
        raise ParameterError(
            "rows of the frame have no address that stays: pass id= with a column that names every row once, or write "
            "the frame to Parquet and read it back"
        ) from None
    if any(count != last + 1 for _, _, count, last in found):
        raise FileError(
            "the frame has not all rows of its files, each once: pass id= with a column that names every row once, or "
            "write the frame to Parquet and read it back"
        )
    found.sort(key=lambda file: PurePosixPath(unquote(urlparse(file[0]).path)))
    firsts = [0, *accumulate(count for _, _, count, _ in found)]
    places = {hashed: first for (_, hashed, _, _), first in zip(found, firsts, strict=False)}
    if len(places) < len(found):
        raise FileError("two files of the table have names that hash alike; rename one of them")
    return addressed, places, firsts[-1]


def _by_id(frame: Any, name: str) -> int:
    """Return the number of rows; each must have an id of its own."""
    sizes = frame.groupBy(_quoted(name).alias(ROW)).agg(sf.count("*").alias("rows"))
    found = sizes.agg(sf.sum("rows"), sf.max("rows"), sf.max(sf.col(ROW).isNull().cast("int"))).collect()[0]
    count, most, missing = (int(value or 0) for value in found)
    check_unique(bool(missing), most, name)
    return count


_verbs = Verbs(open_table, SparkTable.released, _table)
plan, sanitize = _verbs.plan, _verbs.sanitize


def write(frame: Any, target: str | Path, compression: str = "snappy") -> None:
    """Write a lazy release to a new directory of Parquet files, there whole or not at all, with the plan in each.

    Raises
    ------
    FileError
        If the directory exists or cannot be written, or the frame has not the rows of its release.
    NotSanitizedError
        If it is no release.
    """
    check_codec(compression)
    path = check_target(target)
    info(frame)
    frame.sparkSession.dataSource.register(ReleaseSink)
    try:
        frame.write.format(FORMAT).mode("append").option("compression", compression).save(str(path))
    except PySparkException as error:
        said = [line for line in str(error).splitlines() if line.startswith("dpframe.errors.")]
        if not said:
            raise
        raise FileError(said[-1].partition(": ")[2]) from None


def info(frame: Any) -> ReleaseInfo:
    """Return what a Spark frame says about its own release.

    Raises
    ------
    NotSanitizedError
        If it is no release.
    """
    text = release_text(frame.schema)
    if text is None:
        raise NotSanitizedError("the frame carries no release plan; sanitize(frame, plan) makes a release")
    return read_info(text)
