"""Ranges of numbers from noisy counts: grids of cells, and the cells that contain a column's mass.

Everything here is post-processing: it sees noisy counts and public facts, never the data (but `Grid.count`).
The first grid covers all values of a type, by cells that double in width away from 0 (times: by decades). Each
later grid divides the cells that have much mass, so that grids are nested, and all rounds together
give the cells' counts by least squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.inference.inferred import Measured, fit_intervals
from dpframe.inference.spikes import POINT
from dpframe.observe.significance import FALSE_ALARM, HINT_SE
from dpframe.spaces.arrays import FloatArray

Edge = int | float
Places = npt.NDArray[np.intp]

_PART_SHARE = 0.035
"""Share of the rows that a part of a divided cell should hold: less drowns in the noise (tuned; effect not
measured)."""

_RUN_WIDTHS = (1, 2, 3, 4, 6, 8, *(2**power for power in range(4, 13)))
"""Numbers of neighbouring cells that are looked at together: mass that is spread out shows in none by itself (tuned;
effect not measured).

A cell with most rows is divided into hundreds, as one value may have them; if they are years, each is below its noise.
"""

_ADJACENT_SE = 2.3
"""Standard errors that mass beside other mass must show (tuned; effect not measured)."""

_MIN_TAIL, _FAINT_TAIL, _MAX_TAIL = 0.001, 0.005, 0.05
"""Share of the rows beyond the quantiles that determine bounds: least for exact counts, most with noise (tuned; effect
not measured)."""

_GROWTH_LIMITS, _SPIKE_GROWTH = (1.25, 2.8), 2.3
"""Limits of the factor by which the way from the median to a bound is continued, and the factor beside a spike (tuned;
effect not measured)."""


@dataclass(frozen=True)
class Grid:
    """Cells of the line: ``edges`` ascend, cell i is [edge i−1, edge i), and the first and last are open.

    Edges are all whole numbers or all floats, like the values; ``least`` and ``most`` are the type's limits. Grids that
    count floats have infinite limits: their outermost cells count the infinities, and later steps ignore them.
    """

    edges: tuple[Edge, ...]
    least: Edge
    most: Edge

    def count(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the number of values in every cell; infinities belong to the outermost cells."""
        edges = np.array(self.edges, dtype=np.int64 if values.dtype.kind == "i" else np.float64)
        weights = None
        if values.dtype.kind == "i" and len(values) and int(values.max()) - int(values.min()) < len(values):
            # Whole numbers that repeat are counted by value first, which is far faster than to look each one up.
            weights = np.bincount(values - values.min())
            values = np.arange(len(weights)) + values.min()
        if weights is None:
            # Few edges are looked up among sorted values, three times as fast as many values among the edges.
            below = np.searchsorted(np.sort(values), edges)
            return np.diff(below, prepend=0, append=len(values)).astype(np.int64)
        cells = np.searchsorted(edges, values, side="right")
        return np.bincount(cells, weights, minlength=len(edges) + 1).astype(np.int64)

    def opened(self) -> Grid:
        """Return the grid with cells for the infinities, if values may be infinite."""
        return self if self.whole else Grid((self.least, *self.edges, self.most), -math.inf, math.inf)

    @property
    def limits(self) -> tuple[Edge, Edge]:
        """The type's limits, or the infinities."""
        return self.least, self.most

    @property
    def ends(self) -> tuple[Edge, ...]:
        """All edges, the type's limits included: one more than there are cells."""
        return (self.least, *self.edges, self.most)

    @property
    def whole(self) -> bool:
        """Whether values are whole numbers."""
        return isinstance(self.least, int)


@dataclass(frozen=True)
class Cells:
    """Estimated counts of a grid's cells, and their covariance."""

    grid: Grid
    counts: FloatArray
    covariance: FloatArray

    def reversed(self) -> Cells:
        """Return the cells in the opposite order."""
        return Cells(self.grid, self.counts[::-1], self.covariance[::-1, ::-1])


def fit_cells(measured: Sequence[Measured], limits: tuple[Edge, Edge]) -> Cells:
    """Return the counts of the finest cells, from the last round, by weighted least squares over all rounds.

    ``limits``: ends of the outermost cells; if infinite, these cells have the infinities, and are left out.
    """
    (counts, covariance), edges = fit_intervals(tuple(measured)), measured[-1].cells
    if math.isfinite(limits[1]):
        return Cells(Grid(edges, *limits), counts, covariance)
    return Cells(Grid(edges[1:-1], edges[0], edges[-1]), counts[1:-1], covariance[1:-1, 1:-1])


def hull(cells: Cells) -> tuple[int, int] | None:
    """Return the first and last cell with significant mass, or None if there is no significant cell.

    A run of cells counts if its sum exceeds the noise of all runs on the grid, and no shorter run inside it does. Cells
    next to it then need a lower level.
    """
    size = len(cells.counts)
    widths = [width for width in _RUN_WIDTHS if width <= size]
    threshold_se = NormalDist().inv_cdf(1 - FALSE_ALARM / (size * len(widths)))
    cumulative_counts = np.concatenate([[0.0], np.cumsum(cells.counts)])
    cumulative_covariance = np.zeros((size + 1, size + 1))
    cumulative_covariance[1:, 1:] = cells.covariance.cumsum(0).cumsum(1)

    def score(start: Places, stop: Places) -> FloatArray:
        """Return the sums of runs of cells in standard errors."""
        variance = (
            cumulative_covariance[stop, stop]
            - 2 * cumulative_covariance[start, stop]
            + cumulative_covariance[start, start]
        )
        return np.asarray((cumulative_counts[stop] - cumulative_counts[start]) / np.sqrt(variance))

    is_significant = np.zeros(size, dtype=np.bool_)
    for width in widths:
        places = np.arange(size + 1 - width)
        scores = score(places, places + width)
        order = np.argsort(-scores, kind="stable")  # a run that has but a part of the mass is blurred by its noise
        for start in order[: int((scores > threshold_se).sum())]:
            if not is_significant[start : start + width].any():
                # Without the cells at its ends that only weaken it.
                stop = start + 1 + np.argmax(score(np.full(width, start), start + 1 + np.arange(width)))
                begin = start + np.argmax(score(np.arange(start, stop), np.full(stop - start, stop)))
                is_significant[begin:stop] = True
    if not is_significant.any():
        return None
    first_cell, last_cell = int(np.argmax(is_significant)), size - 1 - int(np.argmax(is_significant[::-1]))
    ends = np.array([float(edge) for edge in cells.grid.ends])
    neighbourhood = 0.25 * (
        ends[last_cell + 1] / 2 - ends[first_cell] / 2
    )  # halved: the difference may be beyond all floats
    upwards = _extend_range(cells, last_cell, ends[1:] / 2, neighbourhood)
    downwards = _extend_range(cells.reversed(), size - 1 - first_cell, -ends[:-1][::-1] / 2, neighbourhood)
    return size - 1 - downwards, upwards


def _extend_range(cells: Cells, last_cell: int, stops: FloatArray, neighbourhood: float) -> int:
    """Return the last cell, moved outwards while the cells beyond it seem to have mass.

    The search covers three cells, or all within ``neighbourhood`` if they are more; cells end at ``stops``.
    """
    while True:
        count = max(3, int(np.searchsorted(stops, stops[last_cell] + neighbourhood, side="right")) - last_cell - 1)
        beyond = slice(last_cell + 1, last_cell + 1 + count)
        variances = np.diag(cells.covariance[beyond, beyond].cumsum(0).cumsum(1))
        scores = cells.counts[beyond].cumsum() / np.sqrt(variances)
        if not len(scores) or scores.max() < _ADJACENT_SE:
            return last_cell
        last_cell += 1 + int(np.argmax(scores))


def fullest(cells: Cells, present: float) -> tuple[int, int] | None:
    """Return the first and last cell of the range that seems to have all of ``present`` rows, or None.

    Runs of cells are added one after the other, each time the run with most rows beyond its price. The search ends when
    all rows are found or no run is worth its price. Prices are in standard errors of a count, and state the evidence
    that a cell must show. They are lowest for usual sizes, so that rows at extreme values need most evidence.
    """
    size, ends = len(cells.counts), np.array([float(end) for end in cells.grid.ends])
    error = float(np.sqrt(cells.covariance[0, 0]))
    starts, stops = np.triu_indices(size + 1, 1)
    prices = _evidence_prices(ends) * error
    is_chosen, remaining_rows = np.zeros(size, dtype=np.bool_), present
    while remaining_rows > 0:
        rows, price = (np.concatenate([[0.0], np.cumsum(part * ~is_chosen)]) for part in (cells.counts, prices))
        run_rows = rows[stops] - rows[starts]
        padded_choice = np.concatenate([[False], is_chosen, [False]])
        is_separate = ~(padded_choice[starts] | padded_choice[stops + 1]) & is_chosen.any()
        gain = (
            np.minimum(run_rows, remaining_rows)
            - (price[stops] - price[starts])
            - is_separate * _SEPARATION_PRICE * error
        )
        best = int(np.argmax(gain))
        if gain[best] <= 0:
            break
        is_chosen[starts[best] : stops[best]] = True
        remaining_rows -= float(run_rows[best])
    places = np.flatnonzero(is_chosen)
    if not len(places):
        return None
    first_cell, last_cell = int(places[0]), int(places[-1])
    # Rows in none of these cells are most often next to the others, so that a part of a standard error each shows them.
    error = float(np.sqrt(cells.covariance[0, 0]))
    while True:
        remaining_rows = present - float(cells.counts[first_cell : last_cell + 1].sum())
        if remaining_rows < _REMAINDER_SHARE * present + HINT_SE * error * math.sqrt(last_cell + 1 - first_cell):
            return first_cell, last_cell
        rows_above, rows_below = np.cumsum(cells.counts[last_cell + 1 :]), np.cumsum(cells.counts[:first_cell][::-1])
        gains = [
            np.minimum(rows, remaining_rows) - _NEIGHBOUR_PRICE * error * np.arange(1, len(rows) + 1)
            for rows in (rows_above, rows_below)
        ]
        best_gains = [float(gain.max(initial=0.0)) for gain in gains]
        if max(best_gains) <= 0:
            return first_cell, last_cell
        if best_gains[0] >= best_gains[1]:
            last_cell += 1 + int(np.argmax(gains[0]))
        else:
            first_cell -= 1 + int(np.argmax(gains[1]))


_REMAINDER_SHARE, _NEIGHBOUR_PRICE = 0.15, 0.3
"""Share of the rows from which on those that are left over are looked for next to the others, and the standard errors
that a cell must hold there (tuned; effect not measured)."""


_USUAL_PRICE, _AMOUNT_PRICE, _TINY_PRICE, _LARGE_PRICE, _NEGATIVE_PRICE, _SEPARATION_PRICE = (
    0.75,
    1.5,
    2.0,
    3.0,
    1.0,
    5.0,
)
"""Standard errors that a cell must hold: of usual sizes, of amounts of millions to billions, tiny, large, more if
negative; and a run apart from others (tuned; effect not measured).

Chosen on fifty real tables of 150 to 30,000 rows.
"""
_TINY_SIZE, _AMOUNT_SIZE, _LARGE_SIZE = 2.0**-8, 2.0**20, 2.0**36
"""Sizes up to which numbers are tiny, and from which on they are amounts, and large (tuned; effect not measured)."""


def _evidence_prices(ends: FloatArray) -> FloatArray:
    """Return the price of every cell: the standard errors that it must show."""
    low, high = ends[:-1], ends[1:]
    magnitudes = np.maximum(np.abs(low), np.abs(high))
    is_tiny = (magnitudes <= _TINY_SIZE) & (np.sign(low) * np.sign(high) > 0)
    usual_prices = np.where(magnitudes > _AMOUNT_SIZE, _AMOUNT_PRICE, _USUAL_PRICE)
    prices = np.where(magnitudes > _LARGE_SIZE, _LARGE_PRICE, np.where(is_tiny, _TINY_PRICE, usual_prices))
    return np.asarray(prices + np.where(low / 2 + high / 2 < 0, _NEGATIVE_PRICE, 0.0))


def refined(cells: Cells, n: int, most_parts: int) -> Grid:
    """Return the grid of the next round: cells with more mass are divided into more equal parts."""
    hull_cells = hull(cells)
    if hull_cells is None:
        return cells.grid
    ends, edges = cells.grid.ends, set(cells.grid.edges)
    for i in range(max(hull_cells[0] - 1, 0), min(hull_cells[1] + 2, len(cells.counts))):
        share = float(cells.counts[i]) / max(n, 1)
        parts = most_parts if share > 0.4 else math.ceil(share / _PART_SHARE)
        if parts > 1 and not (ends[i] <= 0 < ends[i + 1] and not cells.grid.whole):
            edges |= set(_divide_cell(ends[i], ends[i + 1], parts))
    inner_edges = sorted(edge for edge in edges if cells.grid.least < edge < cells.grid.most)
    return Grid(tuple(inner_edges), cells.grid.least, cells.grid.most)


def _divide_cell(low: Edge, high: Edge, parts: int) -> list[Edge]:
    """Return the starts of equal parts of a cell."""
    if isinstance(low, int) and isinstance(high, int):
        return [low + (high - low) * i // parts for i in range(parts)]
    # Divided first: the difference may be beyond all floats.
    return [low + (high / parts - low / parts) * i for i in range(parts)]


def bounds(cells: Cells, n: int) -> tuple[float, float] | None:
    """Return bounds that contain nearly all of ``n`` values, or None without significant mass.

    They follow from two quantiles, which leave out a share t of the rows on either side. For exact counts, t is 0.5 %.
    Noise hides such small tails (at n = 32,561 it has the size of 1 % of the rows): then t is up to 5 %, and the
    distance from the median is extrapolated. Its factor is (t-quantile − median) over (4t-quantile − median): 1.2 for
    a flat density, 1.7 for a normal one, 2.6 for a log-normal one.
    """
    hull_cells = hull(cells)
    if hull_cells is None:
        return None
    first_cell, last_cell = hull_cells
    ends, is_whole = cells.grid.ends, cells.grid.whole
    inner_counts = cells.counts[first_cell : last_cell + 1]
    noise_share = float(np.median(np.diag(cells.covariance)[first_cell : last_cell + 1])) ** 0.5 / max(n, 1)
    tail = min(max(4 * noise_share, _MIN_TAIL), _MAX_TAIL)
    weight = max(math.log(tail / _FAINT_TAIL) / math.log(_MAX_TAIL / _FAINT_TAIL), 0.0)
    starts = [float(edge) for edge in ends[first_cell : last_cell + 1]]
    # With whole numbers, the last one in the cell.
    stops = [float(edge) - is_whole for edge in ends[first_cell + 1 : last_cell + 2]]
    middle = _quantile(inner_counts, starts, stops, float(inner_counts.sum()) / 2)
    low = _extrapolate_bound(inner_counts, starts, stops, middle, tail * n, weight)
    high = _extrapolate_bound(inner_counts[::-1], stops[::-1], starts[::-1], middle, tail * n, weight)
    if low < 0 <= ends[first_cell]:
        low = 0.0
    if ends[last_cell + 1] <= 0 < high:
        high = 0.0
    # A cell of a single value has no tail beyond this value.
    if ends[last_cell + 1] - ends[last_cell] < POINT * abs(ends[last_cell]):
        high = min(high, float(ends[last_cell]))
    return _end_at_zero(low, high, cells, hull_cells)


def truth_values(cells: Cells, present: float, missing: float = 0.0) -> tuple[float, float] | None:
    """Return 0 and 1 if these two values seem to have all of ``present`` rows, or None.

    These are the most frequent pair of values, so that they need less evidence than bounds chosen among hundreds. Their
    rows must equal ``present`` within the noise of both counts and of the nulls (variance ``missing``).
    """
    ends, edges = cells.grid.ends, cells.grid.edges
    if 1 not in edges:
        return None
    one_cell = edges.index(1) + 1
    zero_cell = one_cell - 1 if cells.grid.whole else int(np.searchsorted(np.array(edges, dtype=np.float64), 0.0))
    if ends[one_cell + 1] - 1 > (1 if cells.grid.whole else POINT) or not ends[zero_cell] <= 0 < ends[zero_cell + 1]:
        return None
    truth_cells = np.array([zero_cell, one_cell])
    remainder = present - float(cells.counts[truth_cells].sum())
    return (
        (0.0, 1.0)
        if remainder
        < _TRUTH_REMAINDER_SE * math.sqrt(cells.covariance[np.ix_(truth_cells, truth_cells)].sum() + missing)
        else None
    )


_TRUTH_REMAINDER_SE = 1.25
"""Standard errors up to which rows that seem to be neither 0 nor 1 are thought to be noise (tuned; effect not
measured)."""


def outer_bounds(cells: Cells, present: float) -> tuple[float, float] | None:
    """Return the ends of the cells that have ``present`` rows, or None if only the cell of 0 has rows."""
    outer_cells = fullest(cells, present)
    if outer_cells is None:
        return None
    first_cell, last_cell = outer_cells
    start, stop = (float(end) for end in cells.grid.ends[last_cell : last_cell + 2])
    high = start if stop - start < POINT * abs(start) else stop - cells.grid.whole
    return _end_at_zero(float(cells.grid.ends[first_cell]), high, cells, outer_cells)


def _end_at_zero(low: float, high: float, cells: Cells, outer_cells: tuple[int, int]) -> tuple[float, float] | None:
    """Return bounds that end at 0 if the outermost cell contains 0; None if there is no other cell."""
    ends = cells.grid.ends
    starts_at_zero, ends_at_zero = (
        (ends[place] < 0 < ends[place + 1]) and not cells.grid.whole for place in outer_cells
    )
    if starts_at_zero and ends_at_zero and outer_cells[0] == outer_cells[1]:
        return None
    return 0.0 if starts_at_zero else low, 0.0 if ends_at_zero else high


def _extrapolate_bound(
    counts: FloatArray, starts: Sequence[float], stops: Sequence[float], middle: float, rank: float, weight: float
) -> float:
    """Return a bound on the side of ``starts``, at a distance from the median that two quantiles determine."""
    tail_distance = _quantile(counts, starts, stops, rank) - middle
    inner_distance = _quantile(counts, starts, stops, min(4 * rank, 0.4 * float(counts.sum()))) - middle
    growth = tail_distance / inner_distance if inner_distance and tail_distance / inner_distance > 0 else math.inf
    # The median may be a spike, which says nothing about the tail.
    growth = _SPIKE_GROWTH if growth > 6 else min(max(growth, _GROWTH_LIMITS[0]), _GROWTH_LIMITS[1])
    return middle + tail_distance * (1 + (growth - 1) * weight)


def _quantile(counts: FloatArray, starts: Sequence[float], stops: Sequence[float], rank: float) -> float:
    """Return the point at which the running sum of counts exceeds ``rank``, linearly within the cell."""
    cumulative_count = 0.0
    for count, start, stop in zip(counts.tolist(), starts, stops, strict=True):
        if cumulative_count + count > rank:
            part = max(0.0, (rank - cumulative_count) / count)
            return float(start * (1 - part) + stop * part)  # the difference may be beyond all floats
        cumulative_count += count
    return stops[-1]
