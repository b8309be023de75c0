"""Releases in files: read with their plan, and written with it, Parquet or CSV."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import pandas as pd
import pyarrow as pa

from dpframe.errors import ColumnError, DpframeError, FileError, NotSanitizedError, ParameterError
from dpframe.plan.options import check_codec
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo
from dpframe.release.reader import Source, read_info, warn_of_lost_tables
from dpframe.spaces.python_values import refuse_decimal_classes
from dpframe.tables.inputs import open_input
from dpframe.tables.metadata import METADATA_KEY, arrow_metadata, keep_text, kept_text, metadata_text
from dpframe.tables.parquet_reader import to_pandas
from dpframe.tables.sinks import Sink
from dpframe.tables.types import without_listed_times

if TYPE_CHECKING:
    from dpframe.api.accessor import ReleaseFrame

T = TypeVar("T")


@overload
def attach(table: pd.DataFrame, plan: Plan | ReleaseInfo) -> ReleaseFrame: ...


@overload
def attach(table: T, plan: Plan | ReleaseInfo) -> T: ...


def attach(table: Any, plan: Plan | ReleaseInfo) -> Any:
    """Give a released table its plan back, after a format or an operation lost it.

    Parameters
    ----------
    table
        A pandas or polars DataFrame, or a pyarrow Table. Polars keeps no metadata: the frame that is returned, and
        none made of it, knows the plan.
    plan
        The release's description (`ReleaseInfo`), or just the plan: then the table is taken as it
        is, without a check that it was not altered since.

    Returns
    -------
    A copy that shares the data.

    Raises
    ------
    ParameterError
        If the table cannot carry a plan, or ``plan`` is not one.
    NotSanitizedError
        If the table has none of the plan's columns.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(1_000, columns=["age"])
    >>> safe = dpf.sanitize(frame, epsilon=1, spaces={"age": (18, 95)})
    >>> lost = safe[["age"]].copy()
    >>> lost.attrs = {}
    >>> dpf.attach(lost, safe.dp.release).dp.plan.names
    ('age',)
    """
    if not isinstance(plan, Plan | ReleaseInfo):
        raise ParameterError("plan must be a Plan or a ReleaseInfo; Plan.read(path) reads one from a file")
    source = Source(table, plan.plan if isinstance(plan, ReleaseInfo) else plan, quiet=True)
    if isinstance(plan, Plan):
        warn_of_lost_tables(plan)
    info = plan if isinstance(plan, ReleaseInfo) else ReleaseInfo(plan, source.n, source.digest())
    if isinstance(table, pd.DataFrame):
        copy = table.copy(deep=False)
        copy.attrs = {METADATA_KEY: info.to_json()}
        return copy
    if isinstance(table, pa.Table):
        return table.replace_schema_metadata(arrow_metadata(info.to_json()))
    if _is_polars(table):
        clone = table.clone()
        keep_text(clone, info.to_json())
        return clone
    kind = f"{type(table).__module__.split('.')[0]} {type(table).__name__}"
    raise ParameterError(f"a {kind} keeps no metadata; pass plan= to Estimates instead")


def read_table(path: str | Path, columns: list[str] | None = None) -> ReleaseFrame:
    """Read one table, a release or any Parquet file, into pandas; see `dpframe.read`."""
    table = open_input(path)
    if table.apart:
        if table.text is None:
            raise NotSanitizedError(
                f"{path} is no release with its plan in the same folder; write a release with dpf.write(frame, path), "
                "as to_csv drops its plan, and read other tables with pandas.read_csv"
            )
        table = table.typed(read_info(table.text).plan.released_spaces)
    names = table.names if columns is None else columns
    for name in names:
        if name not in table.names:
            raise ColumnError("is not in the file", column=name)
    table.check_copied(names)
    # Not pandas' own reader: of a directory it keeps the first file's attrs, even where others differ.
    frame = to_pandas(table.read(names))
    frame.attrs = {} if table.text is None else {"dpframe": table.text}
    return cast("ReleaseFrame", frame)


def write(
    table: Any, path: str | Path, plan: Plan | ReleaseInfo | None = None, *, compression: str = "snappy"
) -> ReleaseInfo:
    """Write a released table to a file that carries its plan.

    `pandas.DataFrame.to_parquet` and `pyarrow.parquet.write_table` keep the plan as well; polars keeps no metadata, so
    that only the very frame that was released knows it.

    Parameters
    ----------
    table
        A release: a pandas or polars DataFrame, a pyarrow Table or RecordBatch, or anything with the Arrow C stream.
    path
        The file to write: Parquet, or CSV by its ending, whose plan goes to a second file. It appears whole or not at
        all, and replaces an older one.
    plan
        The plan, or the release's description, if the table lost it (polars). With just a plan
        there is no check that the table was not altered before.
    compression
        Parquet compression codec.

    Returns
    -------
    The file's description of its release.

    Raises
    ------
    NotSanitizedError
        If the table carries no plan and none is given, or has none of the plan's columns.
    ParameterError
        If it is no table, a column cannot be stored, or the codec is unknown.
    ColumnError
        For a column that CSV cannot hold.
    FileError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> import dpframe as dpf
    >>> frame = pl.DataFrame({"sex": ["F", "M"] * 500})
    >>> plan = dpf.plan(frame, epsilon=1, spaces={"sex": ["F", "M"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     info = write(dpf.sanitize(frame, plan=plan), f"{folder}/safe.parquet")
    ...     dpf.read(f"{folder}/safe.parquet").shape
    (1000, 1)
    """
    check_codec(compression)
    arrow = without_listed_times(as_table(table))
    if plan is not None and not _describes_plan(arrow, plan):
        attached = attach(arrow, plan)
        arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), **attached.schema.metadata})
    source = Source(arrow, None)
    info = source.description()
    assert info is not None
    # The rows may be a part of the release's columns, which the description then says.
    if info != source.info:
        arrow = _with_description(arrow, info.to_json())
    target, sink = Path(path), Sink(Path(path), compression)
    if target.is_dir():
        raise FileError(f"{target} is a directory; name a file to write")
    sink.check(arrow.schema)
    with sink.publishing() as (file, describe):
        with sink.open(file, arrow.schema) as writer:
            writer.write(arrow, GROUP_ROWS)
        describe(info.to_json())
    return info


GROUP_ROWS = 1 << 20
"""Rows of a row group."""


def as_table(table: Any) -> pa.Table:
    """Return a table as Arrow, a pandas release with its dtypes and its description."""
    if isinstance(table, pd.DataFrame):
        text, arrow = table.attrs.get("dpframe"), _to_arrow(table)
        if arrow is None:  # out here, for what Arrow raises quotes the value, and would be kept as this error's context
            name = next(name for name in table.columns if _to_arrow(table[[name]]) is None)
            raise ParameterError(
                f"column {name!r} cannot be stored as Parquet; convert it, if it is sparse with .sparse.to_dense(), or "
                "drop it"
            )
        if not isinstance(text, str):
            return arrow
        return _with_description(arrow, text)
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        return table
    if _is_polars(table):
        import polars as pl

        # Categories are views otherwise, which Arrow's reader cannot decode.
        arrow, text = table.to_arrow(compat_level=pl.CompatLevel.oldest()), kept_text(table)
        return arrow if text is None else _with_description(arrow, text)
    try:
        return pa.table(table if hasattr(table, "__arrow_c_stream__") else None)
    except (pa.ArrowInvalid, TypeError):
        raise ParameterError(f"{type(table).__name__} is no table; pass a pandas, polars or Arrow release") from None


def _to_arrow(frame: pd.DataFrame) -> pa.Table | None:
    """Return a DataFrame as Arrow stores it, or None if Arrow cannot."""
    with contextlib.suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
        listed_frame = frame.apply(_sets_to_lists, axis=0) if len(frame.columns) else frame.copy(deep=False)
        # pyarrow stores attrs in the table's metadata: the caller's own attrs must not leave with a release.
        listed_frame.attrs = {}
        for _, column in listed_frame.items():
            refuse_decimal_classes(column if column.dtype == object else [])
        return pa.Table.from_pandas(listed_frame, preserve_index=False)
    return None


def _is_polars(table: Any) -> bool:
    """Return whether a table is a DataFrame of polars, which need not be installed."""
    return type(table).__module__.split(".")[0] == "polars" and hasattr(table, "to_arrow") and hasattr(table, "columns")


def _describes_plan(table: pa.Table, plan: Plan | ReleaseInfo) -> bool:
    """Return whether a table's own description is of a plan, and so says more than the plan alone."""
    text = metadata_text(table.schema.metadata)
    with contextlib.suppress(DpframeError):
        return text is not None and isinstance(plan, Plan) and read_info(text).plan == plan
    return False


def _with_description(table: pa.Table, text: str) -> pa.Table:
    """Return a table that carries a release's description in place of any other."""
    keys = {key.encode(): value for key, value in arrow_metadata(text).items()}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **keys})


def _sets_to_lists(series: pd.Series) -> pd.Series:
    """Return a column whose sets are lists, which Parquet has."""
    if series.dtype != object:
        return series
    return series.map(lambda value: list(value) if isinstance(value, set | frozenset) else value)
