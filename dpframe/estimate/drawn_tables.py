"""Whole tables that the original may have been, given its release: rows, whose counts of pairs are a posterior draw's.

One table of a draw (`dpframe.estimate.posterior`): rows are drawn from the draw's mixture, weighted by iterative
proportional fitting to its counts of columns, pairs and measured triples (Deming and Stephan 1940), and resampled at
even steps. Numbers then get ranks within their bins, by class of the mixture along the slope between neighbouring bins,
and the value of the column's own drawn law at that rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from dpframe.estimate.discrepancy import DEGREES, LOG_ODDS_LIMIT, rank_basis
from dpframe.estimate.posterior import FEWEST_ROWS, INTERACTION_LOG_ODDS_SD, WITHIN_BIN_SLOPE_SD, TableDraws
from dpframe.estimate.synthetic import nearest_of
from dpframe.estimate.table_column import TableColumn
from dpframe.estimate.tables.mixture import Mixture, mean_mixture
from dpframe.estimate.tables.raking import exchange, margins_of, row_keys, scaled
from dpframe.plan.rules import BoundRules
from dpframe.spaces.arrays import FloatArray, IntArray

FEWEST_CANDIDATES = 10_000
"""Rows that are drawn before they are weighted, at least (limit of time): a cell without any cannot be filled."""

MOST_SWEEPS, RAKING_TOLERANCE = 60, 0.001
"""Sweeps of the weights over all margins at most, and part of the rows that a last sweep moves (tolerance): with four
sweeps, a strong dependence of two columns leaks into their pairs with a third."""

LARGEST_WEIGHT_STEP = 3.0
"""Factor by which one step multiplies or divides a cell's weights at most (tolerance)."""

HEAPS_PER_CELL = 24
"""Values of a cell that may hold heaps (limit of time): the weights of more add up to less than a row."""


@dataclass(frozen=True)
class CodeLimits:
    """What is known of a column's codes besides counts: cells that get no row, and midnights that times fall on."""

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
    """Return the codes of one draw's rows, by column; each row keeps the rules, which are of these columns."""
    mixture = mean_mixture(draws.mixtures[draw * draws.each : (draw + 1) * draws.each])
    laws = zip(draws.names, mixture.laws, strict=True)
    mixture = replace(mixture, laws=tuple(_without(law, limits[name].empty_cells) for name, law in laws))
    classes, cells = _candidates(mixture, max(rows, FEWEST_CANDIDATES), generator)
    sizes = [column.cells for column in draws.columns]
    shares: dict[tuple[int, ...], FloatArray] = {(place,): law[draw] for place, law in enumerate(draws.singles)}
    shares |= {columns: np.maximum(counts[draw], 0.0) / draws.rows for columns, counts in draws.tables.items()}
    weights = _interactions(draws, cells, generator)
    chosen = _resampled(cells, sizes, weights, shares, rows, generator)
    found, bins = {}, {}
    for place, (name, column) in enumerate(zip(draws.names, draws.columns, strict=True)):
        cell = bins[name] = cells[place][chosen]
        if column.is_cut:
            fine = draws.fine[name][draw] if name in draws.fine else column.shares
            cell = _fine_cells(column, mixture, place, (classes[chosen], cell), fine, generator)
        codes, midnights = _codes_within(column, cell, generator), limits[name].midnights
        found[name] = np.where(cell < column.axis.bins, nearest_of(midnights, codes), codes) if midnights else codes
    if rules.rules:
        exchange(found, [(rule.names, rule.breaks) for rule in rules.rules], generator, within=bins)
        found = dict(rules.mended(found))
    return found


def _candidates(mixture: Mixture, rows: int, generator: np.random.Generator) -> tuple[IntArray, list[IntArray]]:
    """Draw classes of a mixture, at even steps, and the cells of all columns."""
    steps = (np.arange(rows) + generator.random()) / rows
    ends = np.cumsum(mixture.weights) / mixture.weights.sum()
    classes = np.minimum(np.searchsorted(ends, steps, side="right"), len(ends) - 1)
    found = []
    for law in mixture.laws:
        heights = np.cumsum(law, axis=1) / law.sum(axis=1, keepdims=True) + np.arange(len(law))[:, None]
        cells = np.searchsorted(heights.ravel(), classes + generator.random(rows), side="right")
        found.append(np.minimum(cells - classes * law.shape[1], law.shape[1] - 1))
    return classes, found


def _interactions(draws: TableDraws, cells: Sequence[IntArray], generator: np.random.Generator) -> FloatArray:
    """Return weights of rows that shift a column along its ranks in each cell of two others, by Student's law.

    Pairs show no interaction of three columns, and margins that are measured undo what they know better.
    """
    tilts = np.zeros(len(cells[0]))
    for triple in combinations(range(len(cells)), 3):
        along = draws.shifted_column(triple)
        if along is not None:
            one, other = (place for place in triple if place != along)
            sizes = draws.columns[one].cells, draws.columns[other].cells
            shifts = generator.standard_t(DEGREES, sizes) * INTERACTION_LOG_ODDS_SD
            counts = np.asarray(np.bincount(cells[along], minlength=draws.columns[along].cells) + FEWEST_ROWS)
            ranks = rank_basis(counts)[:, :1].sum(axis=1)
            tilts += shifts[cells[one], cells[other]] * ranks[cells[along]]
    return np.asarray(np.exp(np.clip(tilts, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT)))


def _without(law: FloatArray, cells: Sequence[int]) -> FloatArray:
    """Return laws of classes without some cells."""
    kept = law.copy()
    kept[:, list(cells)] = 0.0
    totals = kept.sum(axis=1, keepdims=True)
    return np.where(totals > 0, kept / np.where(totals > 0, totals, 1.0), law)


def _resampled(
    cells: Sequence[IntArray],
    sizes: Sequence[int],
    weights: FloatArray,
    shares: Mapping[tuple[int, ...], FloatArray],
    rows: int,
    generator: np.random.Generator,
) -> IntArray:
    """Return which of the candidates are rows of the table, in random order: their shares are those of its margins.

    Systematic sampling along rows in the order of their cells adds less chance than independent draws.
    """
    many = len(cells[0])
    keys, first, kind = np.unique(row_keys(cells, sizes), return_index=True, return_inverse=True)
    kinds = [cell[first] for cell in cells]
    # The smallest margins come last: the sweeps end with the counts that the draw knows best.
    largest_first = {columns: shares[columns] for columns in sorted(shares, key=lambda columns: -len(columns))}
    margins = list(margins_of(kinds, float(many), largest_first))
    before = scaled_weights = np.bincount(kind, weights, minlength=len(keys)).astype(np.float64)
    for _ in range(MOST_SWEEPS):
        scaled_weights, last = scaled(scaled_weights, margins, 1, LARGEST_WEIGHT_STEP), scaled_weights
        if np.abs(scaled_weights - last).sum() < RAKING_TOLERANCE * scaled_weights.sum():
            break
    weights = weights * (scaled_weights / np.maximum(before, 1e-300))[kind]
    order = np.argsort(kind, kind="stable")
    levels = np.cumsum(weights[order]) * (rows / weights.sum())
    places = np.searchsorted(levels, np.arange(rows) + generator.random(), side="right")
    return generator.permutation(order[np.minimum(places, many - 1)])


def _fine_cells(
    column: TableColumn,
    mixture: Mixture,
    place: int,
    drawn: tuple[IntArray, IntArray],
    fine: FloatArray,
    generator: np.random.Generator,
) -> IntArray:
    """Return the fine cell of each row, given its class and its bin.

    A class has a density along the ranks of a bin that is linear, with the slope between the bins on either side. Ranks
    of all rows of a bin are then spread evenly, so that the bin has the column's own drawn law.
    """
    classes, bins = drawn
    fine = np.maximum(fine, 0.0) + 1e-12
    held = np.bincount(column.bins, fine, minlength=column.cells)
    ratios = mixture.laws[place] / np.maximum(mixture.weights @ mixture.laws[place], 1e-12)
    values = column.cells - column.axis.has_null
    slopes = np.zeros_like(ratios)
    if values > 1:
        rows, doubt = held[:values], generator.normal(1.0, WITHIN_BIN_SLOPE_SD)
        steps = np.diff(ratios[:, :values], axis=1) / ((rows[1:] + rows[:-1]) / 2)
        # A slope to a bin of few rows says little: each side counts by the rows of the bin there.
        left, right = np.append(0.0, rows[:-1]), np.append(rows[1:], 0.0)
        rises = (left * np.pad(steps, ((0, 0), (1, 0))) + right * np.pad(steps, ((0, 0), (0, 1)))) / (left + right)
        slopes[:, :values] = doubt * rises * rows / np.maximum(ratios[:, :values], 1e-9)
    slope = np.clip(slopes, -2.0, 2.0)[classes, bins]
    even = generator.random(len(bins))
    # The inverse of u + s·u(u − 1)/2, the sum of the density 1 + s(u − 1/2).
    half = 1 - slope / 2
    ranks = 2 * even / (half + np.sqrt(np.maximum(half**2 + 2 * slope * even, 0.0)))
    order = np.lexsort((ranks, bins))
    counts = np.bincount(bins, minlength=column.cells)
    starts = np.cumsum(counts) - counts
    sorted_bins = bins[order]
    spread = (np.arange(len(bins)) - starts[sorted_bins] + generator.random(len(bins))) / counts[sorted_bins]
    ends, last = np.cumsum(fine), np.searchsorted(column.bins, np.arange(column.cells), side="right") - 1
    before = ends[last] - held
    cells = np.searchsorted(ends, before[sorted_bins] + spread * held[sorted_bins], side="right")
    found = np.empty(len(bins), dtype=np.int64)
    found[order] = np.minimum(cells, last[sorted_bins])
    return found


def _codes_within(column: TableColumn, cells: IntArray, generator: np.random.Generator) -> IntArray:
    """Return codes in fine cells: some of a wide cell's codes are heaps, as many as its law says may be."""
    starts, stops = column.axis.stretches
    found, widths = starts[cells].copy(), (stops - starts)[cells]
    wide = np.flatnonzero(widths > 1)
    if not len(wide):
        return found
    found[wide] += (generator.random(len(wide)) * widths[wide]).astype(np.int64)
    if column.law is not None:
        used, inside = np.unique(cells[wide], return_inverse=True)
        # The sum of squared shares of a Dirichlet process is 1/(1 + its concentration), on average.
        uneven = np.clip(column.law.uneven[used], 0.01, 0.9)[:, None]
        breaks = generator.beta(1.0, 1 / uneven - 1, (len(used), HEAPS_PER_CELL))
        parts = breaks * np.cumprod(np.hstack([np.ones((len(used), 1)), 1 - breaks[:, :-1]]), axis=1)
        heaps = (generator.random(parts.shape) * (stops - starts)[used][:, None]).astype(np.int64)
        heap = (generator.random(len(wide))[:, None] > np.cumsum(parts, axis=1)[inside]).sum(axis=1)
        has_heap = heap < HEAPS_PER_CELL
        found[wide[has_heap]] = starts[cells[wide[has_heap]]] + heaps[inside[has_heap], heap[has_heap]]
    return found
