"""Evidence on a table as plain arrays: noisy counts of its rows, or counts of its noisy rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from dpframe.errors import ParameterError
from dpframe.estimate.evidence.combine import project, project_each
from dpframe.estimate.evidence.likelihood import expectation_maximization, noise_share
from dpframe.observe.noisy_counts import NoisyCounts, pool
from dpframe.observe.significance import DETECTION_SE
from dpframe.spaces.arrays import FloatArray

MARGIN_ROUNDS = 3
"""Rounds of shifting a table to its margins and clipping it at zero (tuned; half and twice it change widths on a
census by 1 and −2 %)."""


def row_table(columns: Sequence[int], counts: FloatArray, channels: Sequence[FloatArray]) -> NoisyCounts:
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
    variances = np.maximum(expected, 0.5) * max(share, 1e-3)
    return NoisyCounts(tuple(columns), counts, variances, channels=tuple(channels))


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


LOUD = 0.2
"""Distance from independence that noise makes, above which it hides most dependence (tuned; effect not
measured)."""


@dataclass(frozen=True)
class Dependence:
    """Dependence of a pair of columns in a fit, beside the noise of the pair's counts.

    ``distance`` is the total variation distance of the fit from independence, ``noise`` about the distance that noise
    makes of independent columns, and ``score`` the z-score of the counts; see `dependence_score`.
    """

    distance: float
    noise: float
    score: float

    @classmethod
    def of(cls, table: NoisyCounts, joint: FloatArray) -> Dependence:
        """Return the dependence of a pair from its counts and its fitted shares."""
        margins = [joint.sum(axis=1), joint.sum(axis=0)]
        distance = float(np.abs(joint - np.outer(*margins)).sum() / 2)
        if table.channels:
            margins = [channel @ margin for channel, margin in zip(table.channels, margins, strict=True)]
        score = dependence_score(table.counts, table.variances, margins)
        # The mean absolute value of normal noise is σ√(2/π) per cell.
        total, noise_sum = max(float(table.counts.sum()), 1.0), float(np.sqrt(table.variances).sum())
        return cls(distance, noise_sum * math.sqrt(2 / math.pi) / 2 / total, score)

    @property
    def is_visible(self) -> bool:
        """Whether the counts surely differ from independence."""
        return self.score > DETECTION_SE


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence on a table of n rows, with ``sizes`` cells per column.

    ``tables`` are measured tables of any columns, and counts of released rows by pairs, from `row_table`. A fit uses
    the latter for pairs that no measured table holds. ``uneven`` are columns whose cells have counts of very different
    noise, as indicators that are counted together: the count of false is a sum of many. ``ordered`` are the numbers of
    leading cells that have an order, by column; () for none.
    """

    n: float
    sizes: tuple[int, ...]
    tables: tuple[NoisyCounts, ...] = ()
    uneven: frozenset[int] = frozenset()
    ordered: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.n > 0:
            raise ParameterError("n: the table has no rows; estimates need at least one")

    def split(self, scale: float, generator: np.random.Generator, sign: float = 1.0) -> tuple[Evidence, Evidence]:
        """Return two copies of the evidence with independent noise; see `NoisyCounts.split`."""
        halves = [table.split(scale, generator, sign) for table in self.tables]
        return replace(self, tables=tuple(t for t, _ in halves)), replace(self, tables=tuple(t for _, t in halves))

    def replicate(self, generator: np.random.Generator) -> Evidence:
        """Return the evidence with noise added once more."""
        return replace(self, tables=tuple(table.replicate(generator) for table in self.tables))

    @cached_property
    def measured(self) -> list[NoisyCounts]:
        """The tables of original rows."""
        return [table for table in self.tables if not table.channels]

    @cached_property
    def _measured_by_column(self) -> dict[int, list[NoisyCounts]]:
        """The measured tables that hold each column."""
        tables: dict[int, list[NoisyCounts]] = {}
        for table in self.measured:
            for column in table.columns:
                tables.setdefault(column, []).append(table)
        return tables

    def seen(self, columns: Sequence[int]) -> list[NoisyCounts]:
        """Return the counts of some columns' cells by each measured table that holds them, in the given order."""
        tables = self._measured_by_column.get(columns[0], [])
        return [table.sum_to(columns) for table in tables if set(columns) <= set(table.columns)]

    def known(self, columns: Sequence[int]) -> NoisyCounts | None:
        """Return the pooled counts of some columns' cells, or None if no table holds all of these columns."""
        tables = self.seen(columns)
        return pool(tables) if tables else None

    @cached_property
    def pairs(self) -> dict[tuple[int, int], NoisyCounts]:
        """Pooled counts of pairs of columns a < b."""
        tables_by_pair: dict[tuple[int, int], list[NoisyCounts]] = {}
        for table in self.measured:
            for pair in combinations(sorted(table.columns), 2):
                tables_by_pair.setdefault(pair, []).append(table.sum_to(pair))
        return {pair: pool(tables) for pair, tables in tables_by_pair.items()}

    @cached_property
    def joints(self) -> dict[tuple[int, ...], NoisyCounts]:
        """Pooled counts of pairs, and tables of larger sets of columns."""
        return {tuple(sorted(t.columns)): t for t in self.measured if len(t.columns) > 2} | self.pairs

    @cached_property
    def row_pairs(self) -> dict[tuple[int, int], NoisyCounts]:
        """Counts of released rows by pairs of columns that no measured table holds."""
        pairs = {(t.columns[0], t.columns[1]): t for t in self.tables if t.channels}
        return {pair: table for pair, table in pairs.items() if pair not in self.pairs}

    def at_total(self, column: int, counts: FloatArray, total: float) -> FloatArray:
        """Return counts, or noise, of an uneven column's cells conditioned on their sum; of other columns unchanged."""
        measured_counts = self.known([column]) if column in self.uneven else None
        if measured_counts is None:
            return counts
        shares = measured_counts.variances / measured_counts.variances.sum()
        return np.asarray(counts + (total - counts.sum()) * shares)

    def one_way(self, column: int) -> FloatArray:
        """Return a column's shares: its pooled counts, projected to the simplex.

        If no measured table holds the column, its shares are fitted to released rows by maximum likelihood.
        """
        measured_counts = self.known([column])
        if measured_counts is not None:
            return project(self.at_total(column, measured_counts.counts, self.n) / self.n)
        table = next(table for table in self.tables if column in table.columns)
        place = table.columns.index(column)
        counts = table.counts.sum(axis=tuple(i for i in range(table.counts.ndim) if i != place))
        return expectation_maximization(np.maximum(counts, 0), [table.channels[place]])

    @cached_property
    def one_ways(self) -> tuple[FloatArray, ...]:
        """The shares of every column."""
        return tuple(self.one_way(c) for c in range(len(self.sizes)))

    @cached_property
    def simple_pairs(self) -> dict[tuple[int, int], FloatArray]:
        """Pairs a < b near their columns' shares; pairs of one shape are computed together."""
        pairs_by_shape: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for pair, table in self.pairs.items():
            pairs_by_shape.setdefault(table.counts.shape, []).append(pair)
        simple_pairs: dict[tuple[int, int], FloatArray] = {}
        for pairs in pairs_by_shape.values():
            counts = np.array([self.pairs[pair].counts for pair in pairs])
            margins = [np.array([self.one_ways[pair[side]] for pair in pairs]) for side in (0, 1)]
            simple_pairs |= zip(pairs, near_margins(counts / self.n, margins), strict=True)
        return simple_pairs


def near_margins(shares: FloatArray, margins: Sequence[FloatArray]) -> FloatArray:
    """Shift shares to the columns' margins and project them to the simplex, `MARGIN_ROUNDS` times.

    Several tables of one shape are in a first axis, of their shares and of each margin.
    """
    axes = range(-len(margins), 0)
    size = math.prod(shares.shape[-len(margins) :])
    for _ in range(MARGIN_ROUNDS):
        for axis, margin in zip(axes, margins, strict=True):
            other_axes = tuple(i for i in axes if i != axis)
            deficit = margin - shares.sum(axis=other_axes)
            shares = shares + np.expand_dims(deficit / (size / margin.shape[-1]), other_axes)
        shares = project_each(shares.reshape(-1, size)).reshape(shares.shape)
    return shares
