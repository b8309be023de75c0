"""Synthetic rows from a released Parquet file into another, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd

from dpframe.errors import NotSanitizedError
from dpframe.estimate import Estimates
from dpframe.estimate.estimates import synthetic_batches
from dpframe.plan.plan import Plan
from dpframe.release.conversion import Progress
from dpframe.tables.batches import Writer
from dpframe.tables.files import READ_BATCH_ROWS
from dpframe.tables.inputs import open_input
from dpframe.tables.metadata import metadata_text
from dpframe.tables.sinks import Sink, check_target


def drawn_file(
    source: str | Path,
    target: str | Path,
    n_rows: int | None,
    random_state: Any,
    *,
    drop: Sequence[str],
    progress: Progress | None,
) -> tuple[int, Estimates]:
    """Write synthetic rows of a released file to another; return how many, and the estimates that they are drawn from.

    As `Estimates.synthesize`, but for columns of ``drop``. The target appears whole or not at all, and replaces an
    older one. ``progress`` is called with rows drawn and rows in all.
    """
    table = open_input(source)
    if table.text is None:
        raise NotSanitizedError(f"{source} is not a release, which synthetic rows are drawn from; sanitise it first")
    path = check_target(Path(target), table)
    table = table.without(drop)
    count, total = 0, table.n if n_rows is None else n_rows
    sink = Sink(path, "snappy")
    estimates = Estimates(table)
    parts = synthetic_batches(estimates, n_rows, random_state, READ_BATCH_ROWS)
    with sink.publishing() as (file, describe), ExitStack() as stack:
        writer: Writer | None = None
        for part in parts:
            # The schema is known with the first batch.
            if writer is None:
                sink.check(part.schema)
                writer = stack.enter_context(sink.open(file, part.schema))
            writer.write(part, READ_BATCH_ROWS)
            count += part.num_rows
            if progress is not None:
                progress(count, total)
        if writer is not None:
            describe(metadata_text(part.schema.metadata) or "")
    return count, estimates


def fidelity(source: Any, plan: Plan | None = None) -> pd.DataFrame:
    """Return the fidelity of synthetic rows of a release, by column and pair of columns; see `Estimates.fidelity`.

    Parameters
    ----------
    source
        A frame, Arrow table or Parquet path that dpframe released.
    plan
        The plan, if the table lost it.

    Returns
    -------
    DataFrame indexed by ``column`` and ``with``, with ``source, dependence, noise, shows``.

    Raises
    ------
    NotSanitizedError
        If the source carries no plan and none is given.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(4_000, columns=["sex", "age"])
    >>> safe = dpf.sanitize(frame, epsilon=4, delta=1e-6, spaces={"sex": ["F", "M"], "age": (0, 120)}, key=bytes(32))
    >>> fidelity(safe)["source"].tolist()
    ['tables', 'tables', 'tables']
    """
    return Estimates(source, plan).fidelity()
