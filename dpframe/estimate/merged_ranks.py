"""Shares of declared ranks of which private inference found only some: the others are released as their neighbours.

A rank's released count is then that of itself and of what was merged into it, which rows and tables cannot tell apart.
What inference counted can: its count A of a rank is of that rank alone, and the rows of ranks that were not found are
u = n − ΣA in all. So of a count B of rows and tables the truth lies in [B − u, B], and in an interval about A: in
both, and by Bonferroni's inequality each is taken at half of the chance of error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pandas as pd

from dpframe.plan.inferred import Inferred, Measured


def counts_of_ranks(inferred: Inferred, column: str) -> Measured | None:
    """Return what inference counted of a column's ranks, or None for any other column."""
    kinds = [measured for measured in inferred.measured if measured.column == column and measured.kind == "ranks"]
    return kinds[-1] if kinds and len(kinds[-1].cells) > 1 else None


def of_ranks_alone(
    table: pd.DataFrame, measured: Measured, rows: float, normalize: bool, population: bool, level: float
) -> pd.DataFrame:
    """Return a table of estimates by rank in which each is of its rank alone.

    Parameters
    ----------
    table
        ``estimate, std_error, lower, upper`` by rank, of it and of those merged into it; other rows stay as they are.
    measured
        What inference counted of the ranks.
    rows
        Rows of the table.
    normalize
        Whether estimates are shares of the rows that are not null.
    population
        Whether they are of the population that the rows were drawn from.
    level
        Confidence level.

    Examples
    --------
    Of 1,000 rows 300 have ranks that were not found, and are released as "high".

    >>> columns = ["estimate", "std_error", "lower", "upper"]
    >>> table = pd.DataFrame([[200, 1, 198, 202], [800, 1, 798, 802]], ["low", "high"], columns)
    >>> counts = Measured("x", "ranks", ("low", "high"), (195, 505), 16.0)
    >>> of_ranks_alone(table, counts, 1_000, False, False, 0.95).round().astype(int).loc["high"].tolist()
    [505, 5, 496, 514]
    """
    both = NormalDist().inv_cdf(1 - (1 - level) / 4)
    single = NormalDist().inv_cdf((1 + level) / 2)
    nulls = 0.0 if measured.missing is None else min(max(float(measured.missing), 0.0), rows)
    total = max(rows - nulls, 1.0)
    terms = len(measured.cells) + (measured.missing is not None)
    merged = max(total - sum(measured.counts), 0.0) + both * math.sqrt(terms * measured.variance)
    scale = total if normalize else 1.0
    out = table.astype(np.float64)
    for rank, count in zip(measured.cells, measured.counts, strict=True):
        if rank not in out.index:
            continue
        estimate, error = out.loc[rank, "estimate"], out.loc[rank, "std_error"]
        share = min(max(count / total, 0.0), 1.0)
        drawn = share * (1 - share) * total if population else 0.0
        about, spread = count / scale, both * math.sqrt(measured.variance + drawn) / scale
        lower = max(estimate - both * error - merged / scale, about - spread)
        upper = min(estimate + both * error, about + spread)
        if not lower <= upper:
            # They contradict each other: what inference counted is of the rank itself.
            lower, upper = about - spread, about + spread
        # Two intervals that hardly meet do not know more than the better of them.
        least = single * min(error, spread / both)
        middle = (lower + upper) / 2
        lower, upper = min(lower, middle - least), max(upper, middle + least)
        out.loc[rank] = _row(estimate, lower, upper, single)
    return out


def _row(estimate: float, lower: float, upper: float, single: float) -> Sequence[float]:
    """Return an estimate moved into its interval, and the error that so wide an interval has."""
    middle = (lower + upper) / 2
    point = min(max(estimate, lower), upper) if math.isfinite(estimate) else middle
    if point in (lower, upper):
        point = middle
    return [point, (upper - lower) / (2 * single), lower, upper]
