"""What was measured of a table, as plain arrays: noisy counts of some of its columns, and counts of its noisy rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.estimate.likelihood import expectation_maximization, noise_share, project_to_simplex


@dataclass(frozen=True, eq=False)
class Table:
    """Counts of the original rows by the cells of some columns, each with independent Gaussian noise.

    Parameters
    ----------
    columns
        The columns' positions, one per dimension of the counts.
    counts
        Noisy counts of rows, one dimension per column.
    sigma
        Standard deviation of the noise in rows: one for all cells, or one per cell.

    Raises
    ------
    ParameterError
        If the dimensions differ from the columns, a column stands twice, or sigma is not above zero.
    """

    columns: tuple[int, ...]
    counts: FloatArray
    sigma: float | FloatArray

    def __post_init__(self) -> None:
        if self.counts.ndim != len(self.columns) or len(set(self.columns)) < len(self.columns) or not self.columns:
            raise ParameterError(
                f"table of columns {self.columns}: counts have {self.counts.ndim} dimensions; "
                "give one dimension for each column, and each column once"
            )
        if np.shape(self.sigma) not in ((), self.counts.shape) or not np.all(np.asarray(self.sigma) > 0):
            raise ParameterError(
                f"table of columns {self.columns}: sigma must be above zero; give one, or one for each cell"
            )

    @cached_property
    def variances(self) -> FloatArray:
        """Variance of every cell's count, in rows²."""
        return np.broadcast_to(np.asarray(self.sigma, dtype=np.float64) ** 2, self.counts.shape)

    def split(self, scale: float, generator: np.random.Generator) -> tuple[Table, Table]:
        """Return two tables of independent noise: y + √a·σz and y − σz/√a, a = ``scale``.

        Their noise has the variances σ²(1 + a) and σ²(1 + 1/a).
        """
        noise = np.sqrt(scale) * self.sigma * generator.standard_normal(self.counts.shape)
        return (
            Table(self.columns, self.counts + noise, self.sigma * np.sqrt(1 + scale)),
            Table(self.columns, self.counts - noise / scale, self.sigma * np.sqrt(1 + 1 / scale)),
        )

    def sum_to(self, columns: Sequence[int]) -> Table:
        """Return the table of some of the columns, in the order given.

        >>> pair = Table((0, 4), np.array([[3.0, 1.0], [2.0, 2.0]]), 0.5)
        >>> pair.sum_to([4]).counts, pair.sum_to([4]).variances
        (array([5., 3.]), array([0.5, 0.5]))
        """
        if tuple(columns) == self.columns:
            return self
        others = tuple(i for i, c in enumerate(self.columns) if c not in columns)
        kept = [c for c in self.columns if c in columns]
        order = [kept.index(c) for c in columns]
        counts = self.counts.sum(axis=others).transpose(order)
        if isinstance(self.sigma, float):
            return Table(tuple(columns), counts, self.sigma * math.sqrt(self.counts.size / counts.size))
        return Table(tuple(columns), counts, np.sqrt(self.variances.sum(axis=others).transpose(order)))

    def margin(self, column: int) -> tuple[FloatArray, FloatArray | float]:
        """Return the counts of one of the columns, and their variances: one where all are equal."""
        others = tuple(i for i, c in enumerate(self.columns) if c != column)
        counts = self.counts.sum(axis=others)
        if isinstance(self.sigma, float):
            return counts, self.sigma**2 * self.counts.size / counts.size
        return counts, self.variances.sum(axis=others)


def row_table(columns: Sequence[int], counts: FloatArray, channels: Sequence[FloatArray]) -> Table:
    """Return counts of released rows by the classes of a pair of columns, with the error that the channels cause.

    A class's variance is its multinomial one were the columns independent, which is never zero, times the part of it
    that is noise given the original table.

    Parameters
    ----------
    columns
        The two columns' positions.
    counts
        Released rows by class, one dimension per column.
    channels
        P(class | cell) of the two.
    """
    total = max(float(counts.sum()), 1.0)
    margins = [counts.sum(axis=1 - i) for i in range(2)]
    expected = np.outer(margins[0] + 0.5, margins[1] + 0.5) / total
    cells = [expectation_maximization(margin, [channel]) for margin, channel in zip(margins, channels, strict=True)]
    share = noise_share(channels, np.outer(cells[0], cells[1]))
    return Table(tuple(columns), counts, np.sqrt(np.maximum(expected, 0.5) * max(share, 1e-3)))


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that is known of a table of n rows.

    Parameters
    ----------
    n
        Number of rows of the original table.
    sizes
        Number of cells of every column.
    tables
        Tables that were measured, of one column, two or more.
    channels
        P(class | cell) of every column's released rows, shape (classes, cells); empty where no rows are used.
    rows
        Counts of the released rows by the classes of pairs of columns, from `row_table`.

    Raises
    ------
    ParameterError
        If a table's shape is not that of its columns, or rows come without channels.
    """

    n: float
    sizes: tuple[int, ...]
    tables: tuple[Table, ...] = ()
    channels: tuple[FloatArray, ...] = ()
    rows: tuple[Table, ...] = ()

    def __post_init__(self) -> None:
        if not self.n > 0:
            raise ParameterError("n: the table has no rows; estimates need at least one")
        for table in (*self.tables, *self.rows):
            if not all(0 <= c < len(self.sizes) for c in table.columns):
                raise ParameterError(
                    f"table of columns {table.columns}: there are {len(self.sizes)} columns; "
                    f"give positions below {len(self.sizes)}"
                )
        for table in self.tables:
            shape = tuple(self.sizes[c] for c in table.columns)
            if table.counts.shape != shape:
                raise ParameterError(
                    f"table of columns {table.columns}: shape is {table.counts.shape}; its columns have {shape} cells"
                )
        if self.rows and len(self.channels) != len(self.sizes):
            raise ParameterError("rows: channels are missing; give P(class | cell) for every column")
        if any(a.shape[1] != size for a, size in zip(self.channels, self.sizes, strict=False)):
            raise ParameterError("channels: a channel has other cells than its column; give shape (classes, cells)")

    def split(self, scale: float, generator: np.random.Generator) -> tuple[Evidence, Evidence]:
        """Return what two measurements with independent noise would have said, as `Table.split`."""
        tables = [table.split(scale, generator) for table in self.tables]
        rows = [table.split(scale, generator) for table in self.rows]
        one, other = ((tuple(t[i] for t in tables), tuple(r[i] for r in rows)) for i in (0, 1))
        return replace(self, tables=one[0], rows=one[1]), replace(self, tables=other[0], rows=other[1])

    @cached_property
    def pairs(self) -> dict[tuple[int, int], Table]:
        """All that tables say of pairs of columns a < b: sums of larger ones, repeats weighted by precision."""
        sums: dict[tuple[int, int], tuple[FloatArray, FloatArray]] = {}
        for table in self.tables:
            for pair in combinations(sorted(table.columns), 2):
                summed = table.sum_to(pair)
                precision = 1 / summed.variances
                before = sums.get(pair, (np.zeros_like(precision), np.zeros_like(precision)))
                sums[pair] = (before[0] + precision * summed.counts, before[1] + precision)
        return {pair: Table(pair, y / w, np.sqrt(1 / w)) for pair, (y, w) in sums.items()}

    def seen(self, column: int) -> list[Table]:
        """Return all that tables say of one column."""
        return [table.sum_to([column]) for table in self.tables if column in table.columns]

    def one_way(self, column: int) -> FloatArray:
        """Return a column's shares: the mean of its own count and of the sums of its tables, weighted by precision.

        A pair's sum over the other column's cells has the variance (cells · σ²). The mean is then taken to the simplex.
        Where no table holds the column its shares are those that make the released rows most likely.

        >>> seen = Evidence(10, (2, 2), (Table((0, 1), np.array([[4.0, 2.0], [3.0, 1.0]]), 1.0),))
        >>> seen.one_way(0)
        array([0.6, 0.4])

        Raises
        ------
        ParameterError
            If neither tables nor rows hold the column.
        """
        seen = [table.margin(column) for table in self.tables if column in table.columns]
        if not seen:
            return self._from_rows(column)
        precision = np.sum([np.broadcast_to(1 / variances, counts.shape) for counts, variances in seen], axis=0)
        mean = np.sum([counts / variances for counts, variances in seen], axis=0) / precision
        return project_to_simplex(mean / self.n)

    def _from_rows(self, column: int) -> FloatArray:
        table = next((table for table in self.rows if column in table.columns), None)
        if table is None:
            raise ParameterError(f"column {column} is in no table and in no rows; give a table that holds it")
        return expectation_maximization(np.maximum(table.margin(column)[0], 0), [self.channels[column]])

    @cached_property
    def one_ways(self) -> tuple[FloatArray, ...]:
        """The shares of every column."""
        return tuple(self.one_way(c) for c in range(len(self.sizes)))
