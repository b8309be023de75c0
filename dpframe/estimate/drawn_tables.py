"""Tables that the original may have been, given its release: rows whose pair counts are a draw of the posterior.

A table is made from a draw of `dpframe.estimate.posterior`. Rows are drawn from its mixture, weighted by iterative
proportional fitting to its counts of columns, pairs and measured triples (Deming and Stephan 1940), and resampled at
even steps. Numbers then get a rank within their bin, by the slope of the row's class between neighbouring bins, and the
value that the drawn law of the column has at the rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from dpframe.estimate.discrepancy import DEGREES, LOG_ODDS_LIMIT, rank_basis
from dpframe.estimate.posterior import INTERACTION_LOG_ODDS_SD, PSEUDO_ROWS, WITHIN_BIN_SLOPE_SD, TableDraws
from dpframe.estimate.synthetic import nearest_of
from dpframe.estimate.table_column import TableColumn
from dpframe.estimate.tables.mixture import Mixture, mean_mixture
from dpframe.estimate.tables.raking import exchange, margins_of, row_keys, scaled
from dpframe.plan.rules import BoundRules
from dpframe.spaces.arrays import FloatArray, IntArray

FEWEST_CANDIDATES = 10_000
"""Fewest rows that are drawn before weighting (limit of time): a cell without drawn rows stays empty."""

MOST_SWEEPS, RAKING_TOLERANCE = 60, 0.001
"""Largest number of sweeps over all margins, and the share of rows below which a sweep is the last one (tolerance):
after four sweeps, a strong dependence of two columns still leaks into their pairs with a third."""

LARGEST_WEIGHT_STEP = 3.0
"""Factor by which one step multiplies or divides a cell's weights at most (tolerance)."""

HEAPS_PER_CELL = 24
"""Values of a cell that may have heaps (limit of time): the weights of more values sum to less than a row."""


@dataclass(frozen=True)
class CodeLimits:
    """Limits on a column's codes: cells without rows, and midnights to which times are rounded."""

    empty_cells: Sequence[int] = ()
    midnights: range = range(0)


def draw_codes(
    draws: TableDraws,
    draw: int,
    rows: int,
    limits: Mapping[str, CodeLimits],
    rules: BoundRules,
    generator: np.random.Generator,
) -> dict[str, IntArray]:
    """Return the codes of one draw's rows, by column; rows obey ``rules``, which name only these columns."""
    mixture = mean_mixture(draws.mixtures[draw * draws.each : (draw + 1) * draws.each])
    laws = zip(draws.names, mixture.laws, strict=True)
    mixture = replace(mixture, laws=tuple(_exclude_cells(law, limits[name].empty_cells) for name, law in laws))
    classes, candidates = _candidates(mixture, max(rows, FEWEST_CANDIDATES), generator)
    sizes = [column.cells for column in draws.columns]
    shares: dict[tuple[int, ...], FloatArray] = {(place,): law[draw] for place, law in enumerate(draws.singles)}
    shares |= {columns: np.maximum(counts[draw], 0.0) / draws.rows for columns, counts in draws.tables.items()}
    weights = _interaction_weights(draws, candidates, generator)
    chosen_rows = _resample(candidates, sizes, weights, shares, rows, generator)
    codes_by_name, bins = {}, {}
    for place, (name, column) in enumerate(zip(draws.names, draws.columns, strict=True)):
        cells = bins[name] = candidates[place][chosen_rows]
        if column.is_cut:
            fine_shares = draws.fine[name][draw] if name in draws.fine else column.shares
            slopes = _rank_slopes(column, mixture, place, fine_shares, generator)[classes[chosen_rows], cells]
            cells = _fine_cells(column, cells, slopes, fine_shares, generator)
        codes, midnights = _codes_within(column, cells, generator), limits[name].midnights
        if midnights:
            codes = np.where(cells < column.axis.bins, nearest_of(midnights, codes), codes)
        codes_by_name[name] = codes
    if rules.rules:
        exchange(codes_by_name, [(rule.names, rule.breaks) for rule in rules.rules], generator, within=bins)
        codes_by_name = dict(rules.mended(codes_by_name))
    return codes_by_name


def _candidates(mixture: Mixture, rows: int, generator: np.random.Generator) -> tuple[IntArray, list[IntArray]]:
    """Draw the classes of a mixture's rows, at even steps, and the cells of all columns."""
    steps = (np.arange(rows) + generator.random()) / rows
    class_ends = np.cumsum(mixture.weights) / mixture.weights.sum()
    classes = np.minimum(np.searchsorted(class_ends, steps, side="right"), len(class_ends) - 1)
    candidates = []
    for law in mixture.laws:
        # The laws of all classes one after the other: class k has the heights from k to k + 1.
        heights = np.cumsum(law, axis=1) / law.sum(axis=1, keepdims=True) + np.arange(len(law))[:, None]
        cells = np.searchsorted(heights.ravel(), classes + generator.random(rows), side="right")
        candidates.append(np.minimum(cells - classes * law.shape[1], law.shape[1] - 1))
    return classes, candidates


def _interaction_weights(draws: TableDraws, cells: Sequence[IntArray], generator: np.random.Generator) -> FloatArray:
    """Return weights of rows that shift a column along its ranks in each cell of two others, by Student's law.

    Pairs do not determine interactions of three columns; measured triples later undo the shifts.
    """
    tilts = np.zeros(len(cells[0]))
    for triple in combinations(range(len(cells)), 3):
        shifted = draws.shifted_column(triple)
        if shifted is not None:
            first, second = (place for place in triple if place != shifted)
            sizes = draws.columns[first].cells, draws.columns[second].cells
            shifts = generator.standard_t(DEGREES, sizes) * INTERACTION_LOG_ODDS_SD
            counts = np.asarray(np.bincount(cells[shifted], minlength=draws.columns[shifted].cells) + PSEUDO_ROWS)
            ranks = rank_basis(counts)[:, :1].sum(axis=1)
            tilts += shifts[cells[first], cells[second]] * ranks[cells[shifted]]
    return np.asarray(np.exp(np.clip(tilts, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT)))


def _exclude_cells(laws: FloatArray, cells: Sequence[int]) -> FloatArray:
    """Return the laws of classes, shape (classes, cells), with some cells set to 0."""
    remaining_laws = laws.copy()
    remaining_laws[:, list(cells)] = 0.0
    totals = remaining_laws.sum(axis=1, keepdims=True)
    return np.where(totals > 0, remaining_laws / np.where(totals > 0, totals, 1.0), laws)


def _resample(
    cells: Sequence[IntArray],
    sizes: Sequence[int],
    weights: FloatArray,
    shares: Mapping[tuple[int, ...], FloatArray],
    rows: int,
    generator: np.random.Generator,
) -> IntArray:
    """Return the indices of candidates that become the table's rows, in random order, with margins ``shares``.

    Candidates in the same cells of all columns are one kind: kinds are weighted, and their rows resampled. Systematic
    sampling in the order of the cells adds less chance than independent draws.
    """
    keys, first_of_kind, kinds = np.unique(row_keys(cells, sizes), return_index=True, return_inverse=True)
    cells_of_kinds = [cell[first_of_kind] for cell in cells]
    # The smallest margins come last: the sweeps end with the counts that the draw knows best.
    largest_first = {columns: shares[columns] for columns in sorted(shares, key=lambda columns: -len(columns))}
    margins = list(margins_of(cells_of_kinds, float(len(weights)), largest_first))
    start = np.bincount(kinds, weights, minlength=len(keys)).astype(np.float64)
    raked_weights = start
    for _ in range(MOST_SWEEPS):
        previous = raked_weights
        raked_weights = scaled(raked_weights, margins, 1, LARGEST_WEIGHT_STEP)
        if np.abs(raked_weights - previous).sum() < RAKING_TOLERANCE * raked_weights.sum():
            break
    weights = weights * (raked_weights / np.maximum(start, 1e-300))[kinds]
    order = np.argsort(kinds, kind="stable")
    levels = np.cumsum(weights[order]) * (rows / weights.sum())
    places = np.searchsorted(levels, np.arange(rows) + generator.random(), side="right")
    return generator.permutation(order[np.minimum(places, len(weights) - 1)])


def _rank_slopes(
    column: TableColumn, mixture: Mixture, place: int, fine_shares: FloatArray, generator: np.random.Generator
) -> FloatArray:
    """Return the slopes of each class's density along the ranks of each bin, shape (classes, cells).

    The slope of a bin is the slope of the class's share of rows between its neighbours, times a random factor.
    """
    ratios = mixture.laws[place] / np.maximum(mixture.weights @ mixture.laws[place], 1e-12)
    values = column.cells - column.axis.flag_codes
    slopes = np.zeros_like(ratios)
    if values > 1:
        shares = np.bincount(column.bins, np.maximum(fine_shares, 0.0) + 1e-12, minlength=column.cells)[:values]
        steps = np.diff(ratios[:, :values], axis=1) / ((shares[1:] + shares[:-1]) / 2)
        # A slope to a bin of few rows says little: each side counts by the rows of the bin there.
        left_weights, right_weights = np.append(0.0, shares[:-1]), np.append(shares[1:], 0.0)
        slopes_of_shares = (
            left_weights * np.pad(steps, ((0, 0), (1, 0))) + right_weights * np.pad(steps, ((0, 0), (0, 1)))
        ) / (left_weights + right_weights)
        slope_factor = generator.normal(1.0, WITHIN_BIN_SLOPE_SD)
        slopes[:, :values] = slope_factor * slopes_of_shares * shares / np.maximum(ratios[:, :values], 1e-9)
    # A density 1 + s(u − 1/2) of ranks u from 0 to 1 is negative nowhere.
    return np.clip(slopes, -2.0, 2.0)


def _fine_cells(
    column: TableColumn, bins: IntArray, slopes: FloatArray, fine_shares: FloatArray, generator: np.random.Generator
) -> IntArray:
    """Return the fine cell of each row, given its bin and the slope of its class there.

    A rank is drawn for each row. The ranks of a bin are then spaced evenly, so that its fine cells have their shares
    for any slopes.
    """
    uniform, half = generator.random(len(bins)), 1 - slopes / 2
    # The inverse of u + s·u(u − 1)/2, the integral of the density.
    ranks = 2 * uniform / (half + np.sqrt(np.maximum(half**2 + 2 * slopes * uniform, 0.0)))
    order = np.lexsort((ranks, bins))
    counts = np.bincount(bins, minlength=column.cells)
    first_rows, ordered_bins = np.cumsum(counts) - counts, bins[order]
    even_ranks = (np.arange(len(bins)) - first_rows[ordered_bins] + generator.random(len(bins))) / counts[ordered_bins]
    shares = np.maximum(fine_shares, 0.0) + 1e-12
    ends, bin_shares = np.cumsum(shares), np.bincount(column.bins, shares, minlength=column.cells)
    last_cells = np.searchsorted(column.bins, np.arange(column.cells), side="right") - 1
    starts = ends[last_cells] - bin_shares
    heights = starts[ordered_bins] + even_ranks * bin_shares[ordered_bins]
    cells = np.empty(len(bins), dtype=np.int64)
    cells[order] = np.minimum(np.searchsorted(ends, heights, side="right"), last_cells[ordered_bins])
    return cells


def _codes_within(column: TableColumn, cells: IntArray, generator: np.random.Generator) -> IntArray:
    """Return codes in fine cells, with heaps in wide cells according to the law of the column."""
    starts, stops = column.axis.stretches
    codes, widths = starts[cells].copy(), (stops - starts)[cells]
    wide_rows = np.flatnonzero(widths > 1)
    if not len(wide_rows):
        return codes
    codes[wide_rows] += (generator.random(len(wide_rows)) * widths[wide_rows]).astype(np.int64)
    if column.law is not None:
        wide_cells, place_of_cell = np.unique(cells[wide_rows], return_inverse=True)
        # The sum of squared shares of a Dirichlet process is 1/(1 + its concentration), on average.
        uneven = np.clip(column.law.uneven[wide_cells], 0.01, 0.9)[:, None]
        breaks = generator.beta(1.0, 1 / uneven - 1, (len(wide_cells), HEAPS_PER_CELL))
        heap_shares = breaks * np.cumprod(np.hstack([np.ones((len(wide_cells), 1)), 1 - breaks[:, :-1]]), axis=1)
        offsets = (generator.random(heap_shares.shape) * (stops - starts)[wide_cells][:, None]).astype(np.int64)
        heights = generator.random(len(wide_rows))[:, None]
        heaps = (heights > np.cumsum(heap_shares, axis=1)[place_of_cell]).sum(axis=1)
        in_heap = heaps < HEAPS_PER_CELL
        rows = wide_rows[in_heap]
        codes[rows] = starts[cells[rows]] + offsets[place_of_cell[in_heap], heaps[in_heap]]
    return codes
