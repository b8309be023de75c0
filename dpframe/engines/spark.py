"""Releases of Spark frames, and of Parquet files by Spark: lazy, and equal after any retry or recomputation."""

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

from dpframe.api.public import Plan
from dpframe.engines.forms import ArrowForm, OutputForm
from dpframe.engines.job import PreparedRelease
from dpframe.engines.readers import ParquetReader, PartTask, parquet_files, parquet_parts, to_empty_table
from dpframe.engines.releases import EngineRelease
from dpframe.engines.shipped import pack_task
from dpframe.engines.staging import check_target
from dpframe.engines.table import EngineTable, Outcome, check_id, check_unique
from dpframe.engines.verbs import Verbs
from dpframe.engines.work import Pieces
from dpframe.errors import DpframeError, FileError, NotSanitizedError, ParameterError
from dpframe.plan.options import check_codec
from dpframe.release.info import ReleaseInfo
from dpframe.release.reader import read_info
from dpframe.tables.frames import ArrowFrame, Frame, wrap
from dpframe.tables.metadata import METADATA_KEY, arrow_metadata
from dpframe.tables.parquet_form import ParquetForm
from dpframe.tables.parquet_reader import ParquetInput

try:
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StringType, StructField, StructType
except ImportError:
    raise ImportError("pyspark is not installed; pip install pyspark") from None

from dpframe.engines.spark_sink import FORMAT, ReleaseSink, release_text
from dpframe.engines.spark_tasks import (
    BUCKET,
    FILE,
    RESULT,
    ROW,
    ROWS,
    Gather,
    NumberedTask,
    PartitionTask,
    PlainReader,
    Scatter,
    SparkReader,
)

T = TypeVar("T")

PYTHON = "PYSPARK_PYTHON"
"""Environment variable with the path of the Python that workers run."""

BY_ID = "pass id= with a column that names every row once"
"""Remedy for a frame of one table whose rows have no position."""

NEEDS_JAVA = "and Spark needs version 17 or 21; apt-get install openjdk-17-jre-headless, or set JAVA_HOME"


@dataclass(frozen=True)
class SessionTable(EngineTable):
    """A table whose tasks run in a Spark session."""

    session: Any = field(repr=False)
    """The session."""

    def _pack(self, task: Callable[..., Any]) -> Callable[..., Any]:
        """Return a task as a function for Spark."""
        # Spark writes functions of more than a megabyte to files, unencrypted. Spark Connect has no context.
        context = getattr(self.session, "sparkContext", None)
        return pack_task(task, broadcast=None if context is None else context.broadcast)

    def run(self, task: Callable[..., T], inputs: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        """Yield the results of a task on each of some inputs."""
        count = len(inputs)
        # A partition for each input, so that all tasks can run at once.
        numbers = self.session.range(0, count, 1, max(1, count))
        return self._collect(numbers, NumberedTask(task, inputs))

    def _collect(self, frame: Any, task: Callable[..., Any]) -> Iterator[Any]:
        """Yield the results of a task on a frame's partitions."""
        for row in frame.mapInArrow(self._pack(task), f"{RESULT} binary").collect():
            yield pickle.loads(bytes(row[0]))  # noqa: S301 (of the release's own workers)


@dataclass(frozen=True)
class SparkFiles(SessionTable):
    """Parquet files whose row groups workers read with Arrow, which is faster than rows through Java."""

    parts: Sequence[tuple[Any, int]] = field(repr=False)
    """Arguments of each task: a row group, and the position of its first row."""
    files: ParquetInput

    def run_on_parts(self, task: Callable[[Pieces], T]) -> Iterator[T | DpframeError]:
        """Yield the results of a task on every row group."""
        return self.run(PartTask(self.reader, Outcome(task)), self.parts)

    def form(self, plan: Plan) -> OutputForm:
        """Return the form of released rows."""
        return ArrowForm(ParquetForm(plan, self.files.schema, self.files.pandas_types))


@dataclass(frozen=True)
class SparkTable(SessionTable):
    """A Spark frame with the addresses of its rows in additional columns."""

    frame: Any = field(repr=False)
    """The Spark frame."""

    def _select_columns(self) -> Any:
        # Numbers for names: mapInArrow takes the dot of a name for a field's.
        columns = enumerate(self.reader.columns)
        return self.frame.select(*(quote_column(name).alias(f"c{number}") for number, name in columns))

    def run_on_parts(self, task: Callable[[Pieces], T]) -> Iterator[T | DpframeError]:
        """Yield the results of a task on every partition."""
        return self._collect(self._select_columns(), PartitionTask(self.reader, Outcome(task)))

    def form(self, plan: Plan) -> OutputForm:
        """Return the form of released rows."""
        assert isinstance(self.template, ArrowFrame)
        return ArrowForm(ParquetForm(plan, self.template.table.schema.remove_metadata()))

    def to_frame(self, ready: PreparedRelease) -> Any:
        """Return the release as a Spark frame."""
        session, count = self.frame.sparkSession, len(ready.buckets)
        schema = f"{BUCKET} int, {ROWS} binary"
        # One empty row for each bucket: a bucket whose rows are all lost still has a task that notices the loss.
        marks = session.range(0, count, 1, 1).select(
            sf.col("id").cast("int").alias(BUCKET), sf.lit(b"").cast("binary").alias(ROWS)
        )
        sent = self._select_columns().mapInArrow(self._pack(Scatter(self.reader, ready)), schema)
        all_rows = sent.unionByName(marks).repartitionById(count, sf.col(BUCKET))
        plan, metadata = ready.work.plan, {METADATA_KEY: ready.text}
        released_fields = [f for f in self.frame.schema.fields if f.name in (*plan.names, *plan.passthrough)]
        # Spark has metadata only of columns, and a selection of columns has to keep the description.
        worded = {column.name for column in plan.columns if column.space.has_words}
        fields = [
            StructField(f.name, StringType() if f.name in worded else f.dataType, True, metadata)
            for f in released_fields
        ]
        return all_rows.mapInArrow(self._pack(Gather(ready)), StructType(fields))


def quote_column(name: str) -> Any:
    """Return the column of a name, whatever its characters."""
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
    frame = read_files(source) if isinstance(source, str | Path) else source
    if not hasattr(frame, "mapInArrow"):
        raise ParameterError(f"{type(source).__name__} is no Spark DataFrame, and no path of Parquet files; pass one")
    session = frame.sparkSession
    use_this_python(session)
    names, template = list(frame.columns), empty_template(frame)
    if id is None:
        addressed, first_rows, count = address_by_file(frame)
        return SparkTable(template, count, SparkReader(names, first_rows), session, addressed, by_id=False)
    check_id(template, id)
    names.remove(id)
    template = empty_template(frame.drop(id))
    return SparkTable(template, _count_by_id(frame, id), SparkReader(names, id=id), session, frame, by_id=True)


def _open_source(source: Any, id: str | None) -> SessionTable:
    """Return a table that is not returned as a frame; files that this process sees are read without Spark."""
    if id is not None or not isinstance(source, str | Path) or not Path(source).exists():
        return open_table(source, id)
    files = parquet_files(source)
    spark = session()
    use_this_python(spark)
    parts, folders = parquet_parts(files), tuple(files.partitions)
    reader = ParquetReader(files, files.names)
    return SparkFiles(to_empty_table(files), files.n, reader, spark, parts, files, by_id=False, partitions=folders)


def empty_template(frame: Any) -> Frame:
    """Return a table with the columns of a frame, without rows."""
    text = release_text(frame.schema)
    schema = frame.limit(0).toArrow().schema.with_metadata(None if text is None else arrow_metadata(text))
    return wrap(schema.empty_table())


def open_release(frame: Any) -> EngineRelease:
    """Return a Spark frame as a release for estimates; its rows are counted."""
    template, reader = empty_template(frame), PlainReader(list(frame.columns))
    return EngineRelease.of(SparkTable(template, int(frame.count()), reader, frame.sparkSession, frame, by_id=False))


def read_files(source: str | Path) -> Any:
    """Return Parquet files as a frame with their description; those that this process sees as on one machine."""
    if not Path(source).exists():
        try:
            with _silence_query_log():
                return session().read.parquet(str(source))
        except AnalysisException:
            raise FileError(f"{source} does not exist, or holds no Parquet files; name files or a directory") from None
    files = parquet_files(source)
    if files.file_schemas:  # Spark would take the schema of one file, and leave columns out
        raise FileError(f"{source} has files of several schemas, which a Spark frame cannot read; name a target")
    path = str(Path(source).absolute())
    frame = session().read.parquet(path)
    if files.partitions:
        # Keys of folders are text, as on one machine; Spark would read 01 as a number.
        texts = [StructField(f.name, StringType()) if f.name in files.partitions else f for f in frame.schema.fields]
        frame = session().read.schema(StructType(texts)).parquet(path)
    # Spark does not read the footer of a release, whose description goes to the columns.
    if files.text is None:
        return frame
    return frame.select(
        *(quote_column(name).alias(name, metadata={METADATA_KEY: files.text}) for name in frame.columns)
    )


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
    # By default workers run the Python of the PATH, which may lack dpframe.
    os.environ.setdefault(PYTHON, sys.executable)
    try:
        return SparkSession.builder.getOrCreate()
    except PySparkException as error:
        # Spark reports only that its Java process ended.
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
    raise FileError(f"{java} does not run, {NEEDS_JAVA}")


def use_this_python(session: Any) -> None:
    """Let workers on this machine run this Python unless the user named one."""
    # The Python of the system may lack dpframe. Spark Connect has no context.
    context = getattr(session, "sparkContext", None)
    if context is None or PYTHON in os.environ or not context.master.startswith("local"):
        return
    if not context.getConf().contains("spark.pyspark.python"):
        context.pythonExec = sys.executable


@contextlib.contextmanager
def _silence_query_log() -> Iterator[None]:
    """Keep PySpark from printing the traceback of an error that is handled here."""
    logger = logging.getLogger("DataFrameQueryContextLogger")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def address_by_file(frame: Any, remedy: str = BY_ID) -> tuple[Any, dict[int, int], int]:
    """Return a frame with the addresses of its rows, the position of each file's first row, and the number of rows.

    Files are in the order of their paths, as `dpframe.sanitize` reads them. ``remedy`` is for a frame without them.
    """
    path, row = sf.col("_metadata.file_path"), sf.col("_metadata.row_index")
    try:
        with _silence_query_log():
            addressed = frame.select("*", sf.xxhash64(path).alias(FILE), row.alias(ROW))
            counts = frame.groupBy(path.alias("path"), sf.xxhash64(path).alias(FILE)).agg(
                sf.count("*").alias("rows"), sf.max(row).alias("last")
            )
            files = [(r["path"], r[FILE], r["rows"], r["last"]) for r in counts.collect()]
    except AnalysisException:
        raise ParameterError(f"rows of the frame have no stable address; {remedy}") from None
    # Positions in a complete file run from 0 to its number of rows less 1.
    if any(row_count != last + 1 for _, _, row_count, last in files):
        raise FileError(f"the frame lacks rows of its files, or repeats some; {remedy}")
    files.sort(key=lambda file: PurePosixPath(unquote(urlparse(file[0]).path)))
    firsts = [0, *accumulate(row_count for _, _, row_count, _ in files)]
    places = {file_hash: first for (_, file_hash, _, _), first in zip(files, firsts, strict=False)}
    # Rows carry a hash of 8 bytes in place of the path of their file.
    if len(places) < len(files):
        raise FileError("two files of the table have names that hash alike; rename one of them")
    return addressed, places, firsts[-1]


def _count_by_id(frame: Any, name: str) -> int:
    """Return the number of rows; `ColumnError` if an id is null or repeated."""
    sizes = frame.groupBy(quote_column(name).alias(ROW)).agg(sf.count("*").alias("rows"))
    totals = sizes.agg(sf.sum("rows"), sf.max("rows"), sf.max(sf.col(ROW).isNull().cast("int"))).collect()[0]
    count, largest_size, null_count = (int(value or 0) for value in totals)
    check_unique(bool(null_count), largest_size, name)
    return count


_verbs = Verbs(open_table, SparkTable.to_frame, _open_source)
plan, sanitize = _verbs.plan, _verbs.sanitize


def write(frame: Any, target: str | Path, compression: str = "snappy") -> None:
    """Write a lazy release to a new directory of Parquet files with the plan in each; complete or not at all.

    Raises
    ------
    FileError
        If the directory exists or cannot be written, or the frame lacks rows of its release.
    NotSanitizedError
        If it is no release.
    """
    check_codec(compression)
    path = check_target(target)
    # Raises an error for a frame that is no release, before Spark starts any work.
    info(frame)
    frame.sparkSession.dataSource.register(ReleaseSink)
    try:
        frame.write.format(FORMAT).mode("append").option("compression", compression).save(str(path))
    except PySparkException as error:
        # Spark passes errors of tasks on as text.
        messages = [line for line in str(error).splitlines() if line.startswith("dpframe.errors.")]
        if not messages:
            raise
        raise FileError(messages[-1].partition(": ")[2]) from None


def info(frame: Any) -> ReleaseInfo:
    """Return the description of the release that a Spark frame is.

    Raises
    ------
    NotSanitizedError
        If it is no release.
    """
    text = release_text(frame.schema)
    if text is None:
        raise NotSanitizedError("the frame carries no release plan; sanitize(frame, plan) makes a release")
    return read_info(text)
