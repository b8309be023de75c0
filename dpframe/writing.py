"""Write a release of any kind to Parquet with what it says about itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpframe.accessor import attach
from dpframe.errors import FileError, ParameterError
from dpframe.estimate.source import Source
from dpframe.parquet import CODECS, _atomic
from dpframe.plan import Plan
from dpframe.release import ReleaseInfo, arrow_metadata

__all__ = ["write_parquet"]


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
        The plan, or what the release said about itself, where the table lost it (polars). A plan alone is taken
        at its word: nothing can tell whether the table was altered before.
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
    if compression not in CODECS:
        raise ParameterError(f"compression {compression!r} is not known; use {', '.join(CODECS)}")
    arrow = _as_table(table)
    if plan is not None:
        attached = attach(arrow, plan)
        arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), **attached.schema.metadata})
    source = Source(arrow, None)
    assert source.info is not None
    target = Path(path)
    if target.is_dir():
        raise FileError(f"{target} is a directory; name a file to write")
    with _atomic(target) as file:
        pq.write_table(arrow, file, compression=compression)
    return source.info


def _as_table(table: Any) -> pa.Table:
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
    found = frame.apply(_listed, axis=0) if len(frame.columns) else frame
    text = frame.attrs.get("dpframe")
    found.attrs = {}
    try:
        arrow = pa.Table.from_pandas(found, preserve_index=False)
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
