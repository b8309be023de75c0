"""Parquet to Parquet, in bounded memory: stream, randomise, shuffle, write atomically."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpframe.api.accessor import attach
from dpframe.api.options import PlanOptions, documented
from dpframe.api.parquet_job import budget_of
from dpframe.api.planning import Request, of_persons, planned, prepare
from dpframe.api.targets import check_alone, reached
from dpframe.disk import atomic, check_writable
from dpframe.errors import ColumnError, FileError, NotSanitizedError, ParameterError, check_whole
from dpframe.ledger.account import Account
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo, arrow_metadata
from dpframe.tables.csv_reader import is_csv, sidecar
from dpframe.tables.files import BATCH_ROWS, SIDECAR, FileInput
from dpframe.tables.inputs import open_input
from dpframe.tables.job import Job, Progress
from dpframe.tables.pipeline import usual_threads
from dpframe.tables.released import Source, read_info
from dpframe.tables.sinks import Sink, check_ending
from dpframe.tables.staged import staged


@documented
def plan_parquet(
    source: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    target: Mapping[Any, float] | None = None,
    max_epsilon: float | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    part: str | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan how Parquet files would be sanitised, without randomising anything, in bounded memory.

    Parameters
    ----------
    source
        A file, a directory (its files are one table, its Hive partition keys columns of text), a glob, or a table that
        is read in batches; see `sanitize_parquet`.
    epsilon, delta, target, max_epsilon
        The promise, or the accuracy that decides it; see `dpframe.make_plan`.
    {options}
    ledger, dataset, part
        A `Ledger`, or its path, and the dataset in it, or a part of that, from which private inference spends.

    Raises
    ------
    FileError
        If the source is missing or no Parquet.
    ParameterError, ColumnError, AlreadySanitizedError, BudgetExceeded, LedgerError
        As `dpframe.make_plan`.

    Examples
    --------
    >>> import tempfile
    >>> import dpframe as dpf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dpf.datasets.make_census(1_000, columns=["age"]).to_parquet(f"{folder}/in.parquet")
    ...     plan = plan_parquet(f"{folder}/in.parquet", epsilon=1, spaces={"age": (18, 95)})
    >>> plan.n, plan.names
    (1000, ('age',))
    """
    with staged(source, Path(tempfile.gettempdir())) as table:
        if target is not None or max_epsilon is not None:
            check_alone(epsilon, target, ledger, dataset, part)
            return reached(table, target, max_epsilon, delta, options).plan
        return planned(table, epsilon, delta, Account.of(ledger, dataset, part), options)


@documented
def sanitize_parquet(
    source: Any,
    target: str | Path,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    plan: Plan | None = None,
    key: bytes | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    part: str | None = None,
    batch_rows: int = BATCH_ROWS,
    threads: int | None = None,
    compression: str = "snappy",
    progress: Progress | None = None,
    **options: Unpack[PlanOptions],
) -> ReleaseInfo:
    """Randomise every row of Parquet files into one Parquet file, in bounded memory.

    Parameters
    ----------
    source
        A file, a directory (its files are one table, its Hive partition keys columns of text) or a glob; or a polars
        LazyFrame, a relation of DuckDB, or anything else with the Arrow C stream. These are read once, in batches, into
        an encrypted file without a name in the target's folder; rows are known by their place in it.
    target
        The file to write. It appears whole or not at all, and replaces an older one.
    epsilon, delta
        The promise, replace-one, per person. ``delta=None`` is min(1e-6, n^−1.5).
    plan
        A ready plan instead of these and of the options below.
    key
        32 secret bytes, for repeating an interrupted release of the *same* table; otherwise fresh.
    ledger, dataset, part
        A `Ledger`, or its path, and the dataset in it from which the release spends, before any noise is drawn; or a
        part of the dataset, where the file holds only the rows of that part: a directory for each value of a public
        key, released one by one, costs what the dearest of them does. That parts have no person in common is taken on
        trust; the same files as two parts are warned of within a process. A job that is interrupted keeps its key
        in the ledger's folder: repeated over the same input and plan it costs nothing more, and writes the same.
    batch_rows
        Rows worked on at a time; any number gives the same output.
    threads
        Threads that work at a time, as many as there are processors, at most 4, unless another number is given. One
        reads, randomises and writes by turns; of several one writes, and Arrow reads with threads of its own. Any
        number gives the same output; each holds a batch of rows.
    compression
        Parquet compression codec. With ``"snappy"``, ``"lz4"`` and ``"none"`` columns are encoded for speed; with
        ``"zstd"``, ``"gzip"`` and ``"brotli"`` for few bytes, at about twice the time of writing.
    progress
        Called with rows done and rows in all.
    {options}

    Returns
    -------
    What the release says about itself.

    Raises
    ------
    FileError
        If the source is missing or damaged, or the target is part of it or cannot be written.
    ParameterError, ColumnError, AlreadySanitizedError
        As `dpframe.sanitize`.
    BudgetExceeded, LedgerError
        If the ledger does not allow the spend, or the input changed since an interrupted run.
    """
    request, path = Request(epsilon, delta, plan, options), check_place(Path(target))
    batch_rows = check_whole(batch_rows, "batch_rows", of="rows")
    threads = usual_threads() if threads is None else check_whole(threads, "threads", remedy=", or None")
    account, sink = Account.of(ledger, dataset, part), Sink(path, compression)
    check_codec(compression)
    with staged(source, path.parent) as table:
        check_target(path, table)
        left_out = (options.get("drop") or ()) if plan is None else plan.drop
        sink.check(table.schema.field(name) for name in table.names if name not in left_out)
        with budget_of(table, path, request, account, key) as budget:
            chosen = of_persons(table, request, budget.choice)
            ready = prepare(chosen, request, budget)
            shown = progress or (lambda done, total: None)
            job = Job(chosen, ready.plan, ready.own, ready.key, batch_rows, shown, threads, ready.part)
            with sink.publishing() as (file, describe):
                info = job.run(file, sink)
                describe(info.to_json())
    return info


CODECS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")


def check_codec(compression: str) -> None:
    """Raise `ParameterError` for a codec that Parquet does not know."""
    if compression not in CODECS:
        raise ParameterError(f"compression {compression!r} is not known; use {', '.join(CODECS)}")


def read_parquet(path: str | Path, columns: list[str] | None = None) -> pd.DataFrame:
    """Read a Parquet file, directory or glob into pandas; a release keeps its plan. For CSV see `read_csv`.

    Unlike `pandas.read_parquet` the metadata of every file is checked.

    Raises
    ------
    FileError
        If the source is missing or no Parquet, or its files carry different plans.
    """
    return _read(open_input(path), columns)


def read_csv(path: str | Path, columns: list[str] | None = None) -> pd.DataFrame:
    """Read a release in CSV, a directory of them or a glob into pandas, with its plan, which lies in the same folder.

    Times with a zone come back in UTC, without it: CSV keeps none.

    Raises
    ------
    NotSanitizedError
        For files that are no release: `pandas.read_csv` reads them.
    FileError
        If the source is missing or damaged, or its files have different plans.

    Examples
    --------
    >>> import tempfile
    >>> import dpframe as dpf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dpf.datasets.make_census(1_000, columns=["age"]).to_csv(f"{folder}/in.csv")
    ...     info = dpf.sanitize_parquet(f"{folder}/in.csv", f"{folder}/safe.csv", epsilon=1, spaces={"age": (18, 95)})
    ...     safe = read_csv(f"{folder}/safe.csv")
    >>> safe.dp.release == info, str(safe["age"].dtype)
    (True, 'int64')
    """
    table = open_input(path)
    if table.text is None:
        raise NotSanitizedError(
            f"{path} is no release with its plan in the same folder; pandas.read_csv reads other tables"
        )
    return _read(table.typed({c.name: c.released for c in read_info(table.text).plan.columns}), columns)


def _read(table: FileInput, columns: list[str] | None) -> pd.DataFrame:
    names = table.names if columns is None else columns
    for name in names:
        if name not in table.names:
            raise ColumnError("is not in the file", column=name)
    # Not pandas' own reader: of a directory it keeps the first file's attrs, even where others differ.
    frame: pd.DataFrame = with_signed_indices(table.read(names)).to_pandas()
    index = [name for name in names if name not in frame.columns]
    frame = frame.reset_index(index)[list(names)] if index else frame
    frame.attrs = {} if table.text is None else {"dpframe": table.text}
    return frame


def with_signed_indices(table: pa.Table) -> pa.Table:
    """Return a table whose dictionaries have signed indices, which is all that older pyarrow gives to pandas."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and pa.types.is_unsigned_integer(field.type.index_type):
            type_ = pa.dictionary(pa.int64(), field.type.value_type, field.type.ordered)
            table = table.set_column(place, field.with_type(type_), table.column(place).cast(type_))
    return table


def check_place(path: Path) -> Path:
    """Return a path that may be written, or raise `FileError` if it is a folder, or in none for new files."""
    try:
        path.exists()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise FileError(f"{path} cannot be written: {error.strerror}") from None
    if path.is_dir():
        raise FileError(f"{path} is a directory; name a file to write")
    if path.name.endswith(SIDECAR):
        raise FileError(f"{path} ends as the plan of a release in CSV does; name another file to write")
    if is_csv(path) and sidecar(path).is_dir():
        raise FileError(f"{sidecar(path)} is a directory, and the plan goes there; name another file to write")
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is not a regular file; name another one to write")
    if not path.parent.is_dir():
        raise FileError(f"{path.parent} is not a directory; make it first")
    check_writable(path)
    return path


def check_target(path: Path, table: FileInput) -> Path:
    """Return a path that may be written, or raise `FileError`: it is no folder, and no part of the input."""
    check_place(path)
    inputs = {file.resolve() for file, _ in table.files}
    inside = Path(table.source).is_dir() and Path(table.source).resolve() in path.resolve().parents
    if path.resolve() in inputs or inside:
        raise FileError(f"{path} is part of the input; write to another place")
    return path


def write_parquet(
    table: Any, path: str | Path, plan: Plan | ReleaseInfo | None = None, *, compression: str = "snappy"
) -> ReleaseInfo:
    """Write a released table to a Parquet file that carries its plan.

    `pandas.DataFrame.to_parquet` and `pyarrow.parquet.write_table` keep the plan as well; polars keeps no metadata.

    Parameters
    ----------
    table
        A release: a pandas or polars DataFrame, a pyarrow Table or RecordBatch, or anything with the Arrow C stream.
    path
        The file to write. It appears whole or not at all, and replaces an older one.
    plan
        The plan, or what the release said about itself, where the table lost it (polars). With just a plan
        there is no check that the table was not altered before.
    compression
        Parquet compression codec.

    Returns
    -------
    What the file says about itself.

    Raises
    ------
    NotSanitizedError
        If the table carries no plan and none is given, or has none of the plan's columns.
    ParameterError
        If it is no table, a column cannot be stored, or the codec is unknown.
    FileError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> import dpframe as dpf
    >>> frame = pl.DataFrame({"sex": ["F", "M"] * 500})
    >>> plan = dpf.make_plan(frame, epsilon=1, spaces={"sex": ["F", "M"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     info = write_parquet(dpf.sanitize(frame, plan=plan), f"{folder}/safe.parquet", plan)
    ...     dpf.read_parquet(f"{folder}/safe.parquet").dp.release == info
    True
    """
    check_codec(compression)
    arrow = as_table(table)
    if plan is not None:
        attached = attach(arrow, plan)
        arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), **attached.schema.metadata})
    source = Source(arrow, None)
    assert source.info is not None
    target = Path(path)
    if is_csv(target):
        raise FileError(f"{target} ends as CSV does, and Parquet is written; name it .parquet")
    check_ending(target)
    if target.is_dir():
        raise FileError(f"{target} is a directory; name a file to write")
    with atomic(target) as file:
        pq.write_table(arrow, file, compression=compression)
    return source.info


def as_table(table: Any) -> pa.Table:
    """Return a table as Arrow, a pandas release with its dtypes and its description."""
    if isinstance(table, pd.DataFrame):
        return _from_pandas(table)
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        return table
    if type(table).__module__.split(".")[0] == "polars" and hasattr(table, "to_arrow") and hasattr(table, "columns"):
        return _from_polars(table)
    try:
        return pa.table(table if hasattr(table, "__arrow_c_stream__") else None)
    except (pa.ArrowInvalid, TypeError):
        raise ParameterError(f"{type(table).__name__} is no table; pass a pandas, polars or Arrow release") from None


def _from_polars(frame: Any) -> pa.Table:
    import polars as pl

    # Categories are views otherwise, which Arrow's reader cannot decode.
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _from_pandas(frame: pd.DataFrame) -> pa.Table:
    stored = frame.apply(_listed, axis=0) if len(frame.columns) else frame
    text = frame.attrs.get("dpframe")
    stored.attrs = {}
    try:
        arrow = pa.Table.from_pandas(stored, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):
        raise ParameterError("a column of the table cannot be stored as Parquet; drop it or convert it") from None
    if not isinstance(text, str):
        return arrow
    return arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), **arrow_metadata(text)})


def _listed(series: pd.Series) -> pd.Series:
    """Return a column whose sets are lists, which Parquet has."""
    if series.dtype != object:
        return series
    return series.map(lambda value: list(value) if isinstance(value, set | frozenset) else value)
