"""Synthetic rows from a released Parquet file into another, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpframe.api.parquet import check_target
from dpframe.errors import NotSanitizedError
from dpframe.estimate import Estimates
from dpframe.estimate.estimates import synthetic_batches
from dpframe.io.atomic import atomic
from dpframe.io.parquet_reader import BATCH_ROWS, ParquetInput


def synthesize_parquet(
    source: str | Path, target: str | Path, n_rows: int | None = None, random_state: Any = None
) -> int:
    """Write synthetic rows that are drawn from a released file, and return how many; see `Estimates.synthesize`.

    Parameters
    ----------
    source
        A released file, directory or glob.
    target
        The file to write. It appears whole or not at all, and replaces an older one.
    n_rows, random_state
        As `Estimates.synthesize`.

    Raises
    ------
    NotSanitizedError
        If the source carries no plan.
    FileError
        If the source is missing or damaged, or the target is part of it or cannot be written.
    ParameterError
        For another ``n_rows`` or ``random_state``, or a column of too many values to draw from.
    """
    table = ParquetInput.open(source)
    if table.text is None:
        raise NotSanitizedError(f"{source} is not a release, which synthetic rows are drawn from; sanitise it first")
    path = check_target(Path(target), table)
    count = 0
    with atomic(path) as file:
        writer: pq.ParquetWriter | None = None
        for part in synthetic_batches(Estimates(table), n_rows, random_state, BATCH_ROWS):
            writer = writer or pq.ParquetWriter(file, part.schema)
            writer.write_table(part)
            count += part.num_rows
        if writer is not None:
            writer.close()
    return count
