"""Plan and sanitise a table of any kind: a frame in memory, files, a stream, or a frame of an engine."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import pandas as pd
import pyarrow as pa

from dpframe.api.files import as_table, read_table, write
from dpframe.api.linked_request import is_linked, plan_linked
from dpframe.api.targets import TargetPlans, check_alone
from dpframe.errors import ParameterError, RepeatedReleaseWarning, check_whole, warn
from dpframe.ledger.account import OpenAccount
from dpframe.plan.options import PlanOptions, check_codec, documented
from dpframe.plan.plan import Plan
from dpframe.release.budgets import ReleaseBudget, budget_of_input, done_before
from dpframe.release.conversion import Conversion, Progress
from dpframe.release.identity import table_digest
from dpframe.release.info import ReleaseInfo
from dpframe.release.job import Ready, drawn, planned, run_release_job
from dpframe.release.linked_plan import LinkedPlan
from dpframe.release.planning import CheckedRequest, Request
from dpframe.release.staged import is_read_in_parts, staged
from dpframe.spaces import Space
from dpframe.spaces.field import is_open
from dpframe.spaces.written_values import written_text
from dpframe.tables.batches import usual_threads
from dpframe.tables.files import READ_BATCH_ROWS, FileInput
from dpframe.tables.frames import Frame, wrap
from dpframe.tables.sinks import Sink, check_place, check_target
from dpframe.tables.table import Table, engine_of

if TYPE_CHECKING:
    from dpframe.api.accessor import ReleaseFrame


T = TypeVar("T")


@contextmanager
def opened(source: Any, id: str | None = None) -> Iterator[Table]:
    """Yield a table of any kind in the form that planning reads."""
    engine = engine_of(source)
    if engine is not None:
        yield engine.open_table(source, id)
        return
    if id is not None:
        raise ParameterError(_NO_ID)
    if not is_read_in_parts(source):
        yield wrap(source)
        return
    with staged(source, Path(tempfile.gettempdir())) as table:
        yield table


_FOR_SEVERAL_TABLES = 'keys, orphans and max_count are for several tables; pass {"NAME": table, …}'

_NO_ID = "id is for frames of Dask and Spark; rows of others are known by their place: leave it out"


@overload
def plan(
    source: Mapping[str, Any],
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    ledger: Any = None,
    dataset: str | None = None,
    keys: Mapping[str, Mapping[str, str]] | None = None,
    orphans: str = "error",
    max_count: Any = None,
    **options: Unpack[PlanOptions],
) -> LinkedPlan: ...


@overload
def plan(
    source: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    target: Mapping[Any, float] | None = None,
    max_epsilon: float | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    id: str | None = None,
    **options: Unpack[PlanOptions],
) -> Plan: ...


@documented
def plan(
    source: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    target: Mapping[Any, float] | None = None,
    max_epsilon: float | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    id: str | None = None,
    keys: Mapping[str, Mapping[str, str]] | None = None,
    orphans: str = "error",
    max_count: Any = None,
    **options: Unpack[PlanOptions],
) -> Any:
    """Plan how a table would be sanitised, without randomising anything.

    Parameters
    ----------
    source
        A pandas or polars DataFrame, a pyarrow Table; a Parquet or CSV file, a directory (its files are one table, its
        Hive partition keys columns of text) or a glob; a polars LazyFrame, a relation of DuckDB or anything with the
        Arrow C stream; a frame of Dask or Spark. Only the first kinds are read into memory.
    epsilon, delta
        The promise, replace-one, per person. ``delta=None`` is min(1e-6, n^−1.5).
    {options}
    target, max_epsilon
        Instead of ``epsilon`` the standard errors that statistics may have, ``{column or pair: error}``: of shares of
        a listed column's values or a pair's cells, of a number's mean, of supports of items. The plan is that of the
        least ε, at most ``max_epsilon`` (10), whose forecast meets them all; all spaces must be known. Tables that are
        measured are then those that targets name. See `dpframe.api.targets.price_targets`.
    ledger, dataset
        A `Ledger`, or its path, and the dataset in it from which private inference spends, or a `Ledger.account`.
    id
        A column of a frame of Dask or Spark that names every row once; see `sanitize`.
    keys, orphans, max_count
        For several tables; see `sanitize`. The plan is a `LinkedPlan` then.

    Raises
    ------
    BudgetExceeded, LedgerError
        If the ledger does not allow the spend.
    ParameterError, ColumnError
        For an argument that breaks its rule, or a column without a space.
    FileError
        If files are missing or damaged.
    AlreadySanitizedError
        If the table is a release.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(1_000, columns=["age"])
    >>> made = plan(frame, epsilon=1, spaces={"age": (18, 95)})
    >>> made.n, made.names
    (1000, ('age',))
    """
    if is_linked(source, None, options):
        if target is not None or max_epsilon is not None or id is not None:
            raise ParameterError("target, max_epsilon and id are for one table; give epsilon")
        linked_options: Any = {"keys": keys, "orphans": orphans, "max_count": max_count, "options": options}
        return plan_linked(source, epsilon, delta, ledger, dataset, **linked_options)
    if keys is not None or max_count is not None or orphans != "error":
        raise ParameterError(_FOR_SEVERAL_TABLES)
    with opened(source, id) as table:
        if target is not None or max_epsilon is not None:
            check_alone(epsilon, target, ledger, dataset)
            return TargetPlans.of(table, target, max_epsilon, delta, options).plan
        return planned(table, epsilon, delta, OpenAccount.of(ledger, dataset), options)


@dataclass(frozen=True)
class Writing:
    """How a file is written."""

    batch_rows: int
    threads: int | None
    compression: str
    progress: Progress | None

    def __post_init__(self) -> None:
        check_whole(self.batch_rows, "batch_rows", of="rows")
        if self.threads is not None:
            check_whole(self.threads, "threads", remedy=", or None")
        check_codec(self.compression)


class ReleaseOptions(PlanOptions, total=False):
    """Keyword arguments that decide a release; see `sanitize`."""

    plan: Plan | LinkedPlan | None
    key: bytes | None
    ledger: Any
    dataset: str | None
    id: str | None
    batch_rows: int
    threads: int | None
    compression: str
    progress: Progress | None
    keys: Mapping[str, Mapping[str, str]] | None
    orphans: str
    max_count: Any


@overload
def sanitize(
    source: pd.DataFrame | str | Path,
    target: None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    **options: Unpack[ReleaseOptions],
) -> ReleaseFrame: ...


@overload
def sanitize(
    source: Any,
    target: str | Path,
    epsilon: float | None = None,
    delta: float | None = None,
    **options: Unpack[ReleaseOptions],
) -> ReleaseInfo: ...


@overload
def sanitize(
    source: T,
    target: None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    **options: Unpack[ReleaseOptions],
) -> T: ...


@documented
def sanitize(
    source: Any,
    target: str | Path | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    plan: Plan | LinkedPlan | None = None,
    key: bytes | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    id: str | None = None,
    batch_rows: int = READ_BATCH_ROWS,
    threads: int | None = None,
    compression: str = "snappy",
    progress: Progress | None = None,
    keys: Mapping[str, Mapping[str, str]] | None = None,
    orphans: str = "error",
    max_count: Any = None,
    **options: Unpack[PlanOptions],
) -> Any:
    """Randomise every row of a table under (ε, δ)-differential privacy.

    Parameters
    ----------
    source
        A pandas or polars DataFrame, a pyarrow Table; a Parquet or CSV file, a directory (its files are one table, its
        Hive partition keys columns of text) or a glob; a polars LazyFrame, a relation of DuckDB or anything with the
        Arrow C stream; a frame of Dask or Spark. With ``target`` files and streams are worked on in bounded memory: a
        stream is read once, in batches, into an encrypted file without a name in the target's folder; rows are known
        by their place in it.
    target
        The file to write, Parquet or CSV by its ending; for a frame of Dask or Spark a new directory. It appears whole
        or not at all, and replaces an older file. Without it the release is returned as a table.
    epsilon, delta
        The promise, replace-one, per person. ``delta=None`` is min(1e-6, n^−1.5).
    plan
        A ready plan instead of these and of the options below.
    key
        32 secret bytes, for repeating an interrupted release of the *same* table; otherwise fresh. Two tables under one
        noise show how they differ: in the same ledger the second is refused, whether a request or a ready plan draws
        the noise. Without a ledger, or in another one, nothing is known of the first.
    ledger, dataset
        A `Ledger`, or its path, and the dataset in it from which the release spends, before any noise is drawn. Or
        only ``ledger``, as ``Ledger(…).account(dataset, part)``, where the table holds only the rows of a part of the
        dataset: a directory for each value of a public key, released one by one, costs as much as the dearest of them.
        Parts must have no person in common: that they have not is taken on trust, as a ledger holds no rows. The same
        table as two parts is warned of within a process, and refused under one ``key``. With ``target``
        a job that is interrupted keeps its key in the ledger's folder: repeated over the same input and plan it costs
        nothing more, and writes the same; one that was done is charged again, unless the account names the ``run``.
    id
        A column of a frame of Dask or Spark that names every row once: whole numbers or text. Rows are then known by it
        in any partition, and the column is left out.
    batch_rows
        Rows of files and streams worked on at a time; any number gives the same output.
    threads
        Threads that work on files at a time, as many as there are processors, at most 4, unless another number is
        given. One reads, randomises and writes by turns; of several one writes, and Arrow reads with threads of its
        own. Any number gives the same output; each holds a batch of rows.
    compression
        Parquet compression codec. With ``"snappy"``, ``"lz4"`` and ``"none"`` columns are encoded for speed; with
        ``"zstd"``, ``"gzip"`` and ``"brotli"`` for few bytes, at several times the time of writing.
    progress
        Called with rows of files done and rows in all.
    keys
        For several tables of the same persons, ``source={"patients": …, "visits": …}``: the key of each child table
        and the table whose rows it names, ``{"visits": {"patient_id": "patients"}}``. Spaces, drop, mechanisms and
        measure are then given by table, ``contributions`` by child table: rows of a person that are kept, by a secret
        choice. The result is `dpframe.api.linked.ReleasedTables`. Tables are frames in memory, Parquet files, or frames
        of Spark, which have all rows of their files.
    orphans
        With ``keys``: ``"error"`` refuses child rows without a parent row, ``"drop"`` leaves them out.
    max_count
        With ``keys``: number up to which a person's child rows are counted, by default four times ``contributions``.
    {options}

    Returns
    -------
    Without ``target`` a table of the same kind (of files a pandas DataFrame, of streams a pyarrow Table), with the
    same columns (except those dropped) and dtypes, in shuffled order unless ``shuffle=False``, which carries its plan
    (except polars; see `write`). With ``target`` the release's description, a `ReleaseInfo`.

    Raises
    ------
    ParameterError, ColumnError
        For an argument or a column that breaks its rule; nothing is drawn then.
    FileError
        If the source is missing or damaged, or the target is part of it or cannot be written.
    AlreadySanitizedError
        If the table is a release.
    BudgetExceeded, LedgerError
        If the ledger does not allow the spend, or the input changed since an interrupted run.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(1_000, columns=["age", "region"])
    >>> spaces = {"age": (18, 95), "region": list(dpf.datasets.REGIONS)}
    >>> safe = sanitize(frame, epsilon=2, spaces=spaces)
    >>> safe.shape, safe.index.name
    ((1000, 2), 'shuffled')
    """
    if not isinstance(target, str | Path | None):
        raise ParameterError(
            f"target must be the path of a file to write, or None, and not a {type(target).__name__}; name the "
            "promise, e.g. epsilon=1.0"
        )
    path = None if target is None else Path(target)
    linked_options: Any = {"keys": keys, "orphans": orphans, "max_count": max_count, "options": options}
    if is_linked(source, plan, options):
        from dpframe.api.linked import sanitize_linked  # imports estimates, which one table does without

        if id is not None:
            raise ParameterError("id is for one table; leave it out")
        if (batch_rows, threads, compression, progress) != (READ_BATCH_ROWS, None, "snappy", None):
            raise ParameterError("batch_rows, threads, compression and progress are for one table; leave them out")
        return sanitize_linked(source, path, epsilon, delta, ledger, dataset, plan=plan, key=key, **linked_options)
    if keys is not None or max_count is not None or orphans != "error":
        raise ParameterError(_FOR_SEVERAL_TABLES)
    engine = engine_of(source)
    if engine is not None:
        ledger_options: Any = {"ledger": ledger, "dataset": dataset}
        engine_options: Any = {"epsilon": epsilon, "delta": delta, "id": id, "key": key, "compression": compression}
        return engine.sanitize(source, plan, path, **engine_options, **ledger_options, **options)
    if id is not None:
        raise ParameterError(_NO_ID)
    ready_plan: Any = plan
    request, open_account = (
        Request(epsilon, delta, ready_plan, options),
        OpenAccount.of(ledger, dataset, runs=path is not None),
    )
    writing = Writing(batch_rows, threads, compression, progress)
    if path is None:
        budget = ReleaseBudget(open_account, key)
        if not isinstance(source, str | Path):
            return run_release_job(wrap(source), request, budget, drawn)
        if open_account is not None and key is not None:
            raise ParameterError("key and ledger do not go together for files: leave key out, or name a target")
        # By way of a file of its own, which has released rows only.
        with tempfile.TemporaryDirectory(prefix="dpframe-") as folder, staged(source, Path(folder)) as table:
            release_path = Path(folder) / "release.parquet"
            _write_release(table, release_path, request, budget, writing)
            return read_table(release_path)
    check_place(path)
    # Before the source is read: a run that is done may have lost its input.
    earlier_run = done_before(path, request, open_account)
    if earlier_run is not None:
        warn(earlier_run.line, RepeatedReleaseWarning)
        return earlier_run.info
    if isinstance(source, pd.DataFrame):
        return _write_frame_release(source, Sink(path, compression), request, open_account, key)
    with staged(source, path.parent) as table:
        check_target(path, table)
        with budget_of_input(table.digest, path, request, open_account, key, table.keyed_digest) as budget:
            # Within the job's lock: the receipt has to be on disk before the job's key is deleted.
            return budget.done(_write_release(table, path, request, budget, writing))


def _released_columns(names: Sequence[str], request: Request) -> list[str]:
    """Return the columns that a request does not leave out by name."""
    options, plan = request.options, request.plan
    drop = (options.get("drop") or ()) if plan is None else plan.drop
    person = options.get("privacy_id") if plan is None else plan.privacy_id
    return [name for name in names if name not in drop and name != person]


def _exact_columns(request: Request) -> list[str]:
    """Return the columns whose values a request copies, or that identify persons."""
    options, plan = request.options, request.plan
    copied, person = (
        (options.get("passthrough"), options.get("privacy_id")) if plan is None else (plan.passthrough, plan.privacy_id)
    )
    # Other types are refused with the plan.
    return [name for name in (*(copied if isinstance(copied, list | tuple) else ()), person) if isinstance(name, str)]


def _write_release(
    table: FileInput, path: Path, request: Request, budget: ReleaseBudget, writing: Writing
) -> ReleaseInfo:
    """Write the release of files, or of a stream, and return its description."""
    sink = Sink(path, writing.compression)
    sink.check(table.schema.field(name) for name in _released_columns(table.names, request))
    table.check_copied(_exact_columns(request))
    show_progress = writing.progress or (lambda done, total: None)
    threads = usual_threads() if writing.threads is None else writing.threads

    def convert(chosen_table: FileInput, ready: Ready) -> ReleaseInfo:
        rows = Conversion(
            chosen_table, ready.plan, ready.own, ready.key, writing.batch_rows, show_progress, threads, ready.part
        )
        # Opened only after the spend: a refused release leaves an older file as it was.
        with sink.publishing() as (file, describe):
            info = rows.run(file, sink)
            describe(info.to_json())
        return info

    return run_release_job(table, request, budget, convert)


def _write_frame_release(
    source: pd.DataFrame, sink: Sink, request: Request, account: OpenAccount | None, key: bytes | None
) -> ReleaseInfo:
    """Write the release of a frame in memory, and return its description."""
    frame = wrap(source)
    # A public digest: names and the number of rows; values enter only under the key.
    facts = repr((frame.names, frame.n)).encode()

    def digest_frame(key: bytes) -> bytes:
        # A table without a digest is not recognised, so that its interrupted run cannot be repeated.
        return table_digest(frame, {}, key) or secrets.token_bytes(32)

    def object_fields(spaces: Mapping[str, Space]) -> list[pa.Field]:
        # Objects have the type of their space.
        fields = frame.fields([name for name in spaces if name in frame.names])
        return [pa.field(field.name, spaces[field.name].natural_type) for field in fields if is_open(field.type)]

    def check_sink(checked: CheckedRequest) -> None:
        # The entries of a categorical follow the rows; columns that pass through are public.
        typed_names = [name for name in checked.randomised if not isinstance(source[name].dtype, pd.CategoricalDtype)]
        for part in (source.iloc[:0][typed_names], source[list(checked.passthrough)]):
            sink.check(as_table(part).schema)
        sink.check(object_fields(checked.spaces))

    with budget_of_input(lambda: facts, sink.path, request, account, key, digest_frame) as budget:

        def write_release(chosen_frame: Frame, ready: Ready) -> ReleaseInfo:
            safe = drawn(chosen_frame, ready)
            # The inferred type of objects is known only after payment: values that the format cannot hold become text.
            for field in object_fields(ready.plan.spaces):
                if not sink.holds(field):
                    safe[field.name] = safe[field.name].astype(object).map(written_text, na_action="ignore")
            return write(safe, sink.path, compression=sink.compression)

        return budget.done(run_release_job(frame, request, budget, write_release, check_sink))


def sanitize_parquet(
    source: Any, target: str | Path, epsilon: float | None = None, delta: float | None = None, **options: Any
) -> ReleaseInfo:
    """Do as `sanitize` with a target, under its deprecated name.

    Examples
    --------
    >>> import warnings
    >>> import dpframe as dpf
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     try:
    ...         dpf.sanitize_parquet("missing.parquet", "safe.parquet", epsilon=1)
    ...     except dpf.errors.FileError as error:
    ...         print(error)
    missing.parquet does not exist
    >>> print(caught[0].message)
    sanitize_parquet is deprecated and will go in 0.4; write sanitize(source, target, epsilon=1)
    """
    _warn_of_deprecation("sanitize_parquet", "sanitize(source, target, epsilon=1)")
    info: ReleaseInfo = sanitize(source, target, epsilon, delta, **options)
    return info


def read_parquet(path: str | Path, columns: list[str] | None = None) -> ReleaseFrame:
    """Do as `read`, under its deprecated name."""
    _warn_of_deprecation("read_parquet", "read(path)")
    return read_table(path, columns)


def _warn_of_deprecation(name: str, replacement: str) -> None:
    # Python hides DeprecationWarning outside of the main script; pandas warns its users likewise.
    warn(f"{name} is deprecated and will go in 0.4; write {replacement}", FutureWarning)
