"""Evidence on a table as plain arrays: noisy counts of its rows, or counts of its noisy rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from dpframe.errors import ParameterError
from dpframe.estimate.evidence.combine import project
from dpframe.estimate.evidence.likelihood import Matrices, expectation_maximization, noise_share, through
from dpframe.spaces.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Table:
    """Counts by the cells of some columns, or of noisy rows by their classes, each with independent Gaussian noise.

    ``columns`` are positions or names. ``sigma`` is one number, or one per cell. Noisy rows have ``channels``,
    P(class | cell) of every column.
    """

    columns: tuple[Any, ...]
    counts: FloatArray
    sigma: float | FloatArray
    channels: tuple[FloatArray, ...] = ()

    @cached_property
    def variances(self) -> FloatArray:
        """Variance of every cell's count, in rows²."""
        return np.broadcast_to(np.asarray(self.sigma, dtype=np.float64) ** 2, self.counts.shape)

    def split(self, scale: float, generator: np.random.Generator, sign: float = 1.0) -> tuple[Table, Table]:
        """Return two tables of independent noise: y + √a·σz and y − σz/√a, a = ``scale``.

        Their noise has the variances σ²(1 + a) and σ²(1 + 1/a). With ``sign`` −1, z is replaced by −z.
        """
        noise = sign * np.sqrt(scale) * self.sigma * generator.standard_normal(self.counts.shape)
        return (
            replace(self, counts=self.counts + noise, sigma=self.sigma * np.sqrt(1 + scale)),
            replace(self, counts=self.counts - noise / scale, sigma=self.sigma * np.sqrt(1 + 1 / scale)),
        )

    def times(self, weight: float) -> Table:
        """Return the table with counts and noise times a weight."""
        return replace(self, counts=self.counts * weight, sigma=self.sigma * weight)

    def again(self, expected: FloatArray, generator: np.random.Generator) -> Table:
        """Return a replicate of the table: its noise about other counts."""
        return replace(self, counts=expected + np.sqrt(self.variances) * generator.standard_normal(expected.shape))

    def expected(self, shares: FloatArray, n: float) -> FloatArray:
        """Return the table's expected counts, given shares of the columns' cells and n rows."""
        if not self.channels:
            return n * shares
        return np.asarray(float(self.counts.sum()) * Matrices(self.channels).spread(shares))

    def onto(self, place: int, cells: FloatArray) -> Table:
        """Return the table by sums of one column's cells, ``cells`` of shape (sums, cells)."""
        counts, variances = (
            through(matrix, values, place) for matrix, values in ((cells, self.counts), (cells**2, self.variances))
        )
        return Table(self.columns, counts, np.sqrt(variances))

    def sum_to(self, columns: Sequence[Any]) -> Table:
        """Return the table summed to some of the columns, in the given order."""
        if tuple(columns) == self.columns:
            return self
        other_axes = tuple(i for i, c in enumerate(self.columns) if c not in columns)
        table_order = [c for c in self.columns if c in columns]
        order = [table_order.index(c) for c in columns]
        counts = self.counts.sum(axis=other_axes).transpose(order)
        # Equal variances have equal sums, which need no array.
        if isinstance(self.sigma, float):
            return Table(tuple(columns), counts, self.sigma * math.sqrt(self.counts.size / counts.size))
        return Table(tuple(columns), counts, np.sqrt(self.variances.sum(axis=other_axes).transpose(order)))


def merged(tables: Sequence[Table]) -> Table:
    """Merge tables of equal columns into one, weighted by precision."""
    if len(tables) == 1:
        return tables[0]
    precision = sum(1 / table.variances for table in tables)
    counts = sum(table.counts / table.variances for table in tables) / precision
    return Table(tables[0].columns, np.asarray(counts), np.asarray(np.sqrt(1 / precision)))


def with_merged_singles(tables: Sequence[Table]) -> list[Table]:
    """Merge the one-way tables of each column; if a column has several, merged tables come last."""
    singles: dict[tuple[Any, ...], list[Table]] = {}
    for table in tables:
        if len(table.columns) == 1:
            singles.setdefault(table.columns, []).append(table)
    if all(len(one_ways) == 1 for one_ways in singles.values()):
        return list(tables)
    return [table for table in tables if len(table.columns) > 1] + [merged(one_ways) for one_ways in singles.values()]


def row_table(columns: Sequence[int], counts: FloatArray, channels: Sequence[FloatArray]) -> Table:
    """Return counts of released rows by the classes of a pair of columns, with the noise of their channels.

    A class's variance is its multinomial variance under independence, which is never zero, times the channel's share in
    it, given the original table.
    """
    total = max(float(counts.sum()), 1.0)
    margins = [counts.sum(axis=1 - i) for i in range(2)]
    # Half a row keeps variances of empty classes above zero.
    expected = np.outer(margins[0] + 0.5, margins[1] + 0.5) / total
    cells = [expectation_maximization(margin, [channel]) for margin, channel in zip(margins, channels, strict=True)]
    share = float(noise_share(channels, np.outer(cells[0], cells[1])))
    return Table(tuple(columns), counts, np.sqrt(np.maximum(expected, 0.5) * max(share, 1e-3)), tuple(channels))


def dependence_score(
    counts: FloatArray, variances: FloatArray | None = None, margins: Sequence[FloatArray] | None = None
) -> float:
    """Return the z-score of a pair's distance from independence.

    Counts y are compared with expectations e under independence: Σ (y − e)²/σ² then has about Pearson's χ² law with
    (a − 1)(b − 1) degrees of freedom. Without ``variances``, counts are of released rows, with the variances e. Without
    ``margins``, e uses the margins of the counts.
    """
    total = max(float(counts.sum()), 1.0)
    sums = [counts.sum(axis=1 - i) for i in range(2)]
    if variances is None:
        variances = np.maximum(np.outer(*sums) / total, 0.5)
    first, second = margins or [np.maximum(one, 1e-9) for one in sums]
    expected = np.outer(first / first.sum(), second / second.sum()) * float(counts.sum())
    freedom = max((counts.shape[0] - 1) * (counts.shape[1] - 1), 1)
    # Expectations are products of noisy margins; under large noise the product of their noise counts.
    product = 1 + float(variances.sum()) / total**2
    chi_square = float(((counts - expected) ** 2 / variances).sum()) / product
    return float((chi_square - freedom) / np.sqrt(2 * freedom))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence on a table of n rows, with ``sizes`` cells per column.

    ``tables`` are measured tables of any columns, and counts of released rows by pairs, from `row_table`. A fit uses
    the latter for pairs that no measured table holds.
    """

    n: float
    sizes: tuple[int, ...]
    tables: tuple[Table, ...] = ()

    def __post_init__(self) -> None:
        if not self.n > 0:
            raise ParameterError("n: the table has no rows; estimates need at least one")

    def split(self, scale: float, generator: np.random.Generator, sign: float = 1.0) -> tuple[Evidence, Evidence]:
        """Return two copies of the evidence with independent noise; see `Table.split`."""
        halves = [table.split(scale, generator, sign) for table in self.tables]
        return replace(self, tables=tuple(t for t, _ in halves)), replace(self, tables=tuple(t for _, t in halves))

    def again(self, generator: np.random.Generator) -> Evidence:
        """Return the evidence with noise added once more."""
        return replace(self, tables=tuple(table.again(table.counts, generator) for table in self.tables))

    @cached_property
    def measured(self) -> list[Table]:
        """The tables of original rows."""
        return [table for table in self.tables if not table.channels]

    def seen(self, columns: Sequence[int]) -> list[Table]:
        """Return the counts of some columns' cells by each measured table that holds them, in the given order."""
        return [table.sum_to(columns) for table in self.measured if set(columns) <= set(table.columns)]

    def known(self, columns: Sequence[int]) -> Table | None:
        """Return the merged counts of some columns' cells, or None if no table holds all of these columns."""
        tables = self.seen(columns)
        return merged(tables) if tables else None

    @cached_property
    def pairs(self) -> dict[tuple[int, int], Table]:
        """Merged counts of pairs of columns a < b."""
        tables_by_pair: dict[tuple[int, int], list[Table]] = {}
        for table in self.measured:
            for pair in combinations(sorted(table.columns), 2):
                tables_by_pair.setdefault(pair, []).append(table.sum_to(pair))
        return {pair: merged(tables) for pair, tables in tables_by_pair.items()}

    @cached_property
    def joints(self) -> dict[tuple[int, ...], Table]:
        """Merged counts of pairs, and tables of larger sets of columns."""
        return {tuple(sorted(t.columns)): t for t in self.measured if len(t.columns) > 2} | self.pairs

    @cached_property
    def row_pairs(self) -> dict[tuple[int, int], Table]:
        """Counts of released rows by pairs of columns that no measured table holds."""
        pairs = {(t.columns[0], t.columns[1]): t for t in self.tables if t.channels}
        return {pair: table for pair, table in pairs.items() if pair not in self.pairs}

    def one_way(self, column: int) -> FloatArray:
        """Return a column's shares: its merged counts, projected to the simplex.

        If no measured table holds the column, its shares are fitted to released rows by maximum likelihood.
        """
        measured_counts = self.known([column])
        if measured_counts is not None:
            return project(measured_counts.counts / self.n)
        table = next(table for table in self.tables if column in table.columns)
        place = table.columns.index(column)
        counts = table.counts.sum(axis=tuple(i for i in range(table.counts.ndim) if i != place))
        return expectation_maximization(np.maximum(counts, 0), [table.channels[place]])

    @cached_property
    def one_ways(self) -> tuple[FloatArray, ...]:
        """The shares of every column."""
        return tuple(self.one_way(c) for c in range(len(self.sizes)))
