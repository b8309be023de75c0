"""Estimates that stay near the raw counts: one-ways from all that speaks of a column, tables shifted to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.estimate.likelihood import expectation_maximization, project_to_simplex
from dpframe.estimate.tables.tables import Evidence, Table

ROUNDS = 3
"""Times that a table is shifted to its margins, then cut at zero."""


def simple_one_way(evidence: Evidence, column: int) -> FloatArray:
    """Return a column's shares: the mean of its own count and of the sums of its tables, weighted by precision.

    A pair's sum over the other column's cells has the variance (cells · σ²). The mean is then taken to the simplex.
    Where no table holds the column its shares are those that make the released rows most likely.

    >>> seen = Evidence(10, (2, 2), (Table((0, 1), np.array([[4.0, 2.0], [3.0, 1.0]]), 1.0),))
    >>> simple_one_way(seen, 0)
    array([0.6, 0.4])

    Raises
    ------
    ParameterError
        If neither tables nor rows hold the column.
    """
    seen = evidence.seen(column)
    if not seen:
        return _from_rows(evidence, column)
    precision = np.sum([1 / table.variances for table in seen], axis=0)
    mean = np.sum([table.counts / table.variances for table in seen], axis=0) / precision
    return project_to_simplex(mean / evidence.n)


def _from_rows(evidence: Evidence, column: int) -> FloatArray:
    table = next((table for table in evidence.rows if column in table.columns), None)
    if table is None:
        raise ParameterError(f"column {column} is in no table and in no rows; give a table that holds it")
    counts = np.maximum(table.sum_to([column]).counts, 0)
    return expectation_maximization(counts, [evidence.channels[column]])


def simple_table(evidence: Evidence, table: Table, one_ways: Sequence[FloatArray]) -> FloatArray:
    """Return a measured table's shares: three rounds of a shift to its margins, and the simplex.

    ``one_ways`` are the shares of the table's columns, in its order.
    """
    return near_margins(table.counts / evidence.n, one_ways)


def near_margins(shares: FloatArray, margins: Sequence[FloatArray]) -> FloatArray:
    """Shift shares of several columns to the columns' margins, and take them to the simplex, three times.

    >>> near_margins(np.array([[0.3, 0.3], [0.1, 0.2]]), [np.array([0.5, 0.5]), np.array([0.5, 0.5])])
    array([[0.275, 0.225],
           [0.225, 0.275]])
    """
    for _ in range(ROUNDS):
        for axis, margin in enumerate(margins):
            others = tuple(i for i in range(shares.ndim) if i != axis)
            short = (margin - shares.sum(axis=others)) / (shares.size / len(margin))
            shares = shares + np.expand_dims(short, others)
        shares = project_to_simplex(shares)
    return shares
