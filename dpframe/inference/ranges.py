"""Ranges of numbers from noisy counts: the cells that contain a column's mass, and bounds of its values.

Everything here is post-processing: it sees noisy counts and public facts, never the data. The first grid covers all
values of a type, by cells that double in width away from 0 (times: by decades). Each later grid divides the cells that
have much mass, so that grids are nested, and all rounds together give the cells' counts by least squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from dpframe.inference.cells import Cells, Edge, Grid, RunSums, is_single_float, largest_number
from dpframe.observe.significance import FALSE_ALARM, HINT_SE
from dpframe.spaces.arrays import FloatArray

_PART_SHARE = 0.035
"""Share of the rows that a part of a divided cell should hold: less drowns in the noise (tuned; effect not
measured)."""

_MAX_PARTS = 64
"""Parts into which a cell with most of the mass is divided (tuned; with 1,024 parts in the
last round more columns of 3,000 rows are clipped)."""

_RUN_WIDTHS = tuple(2**power for power in range(13))
"""Numbers of neighbouring cells that are looked at together: mass that is spread out shows in none by itself (limit of
time).

A cell with most rows is divided into hundreds, as one value may have them; if they are years, each is below its noise.
"""

_MAX_TAIL, _GROWTH_LIMITS = 0.05, (1.25, 2.8)
"""Largest share of the rows beyond the quantiles that determine bounds, and limits of the factor by which the way from
the median to a bound is continued (tuned; without the factor 5 % of the columns of 3,000 rows and more are clipped)."""


def significant_range(cells: Cells) -> tuple[int, int] | None:
    """Return the first and last cell with significant mass, or None if there is no significant cell.

    A run of cells counts if its sum exceeds the noise of all runs on the grid, and no shorter run inside it does. Cells
    next to it then need a lower level.
    """
    size = len(cells.counts)
    widths = [width for width in _RUN_WIDTHS if width <= size]
    threshold_se = NormalDist().inv_cdf(1 - FALSE_ALARM / (size * len(widths)))
    runs, is_significant = RunSums(cells.counts, cells.covariance), np.zeros(size, dtype=np.bool_)
    for width in widths:
        places = np.arange(size + 1 - width)
        scores = runs.scores(places, places + width)
        order = np.argsort(-scores, kind="stable")  # a run that has but a part of the mass is blurred by its noise
        for start in order[: int((scores > threshold_se).sum())]:
            if not is_significant[start : start + width].any():
                # Without the cells at its ends that only weaken it.
                stop = start + 1 + np.argmax(runs.scores(np.full(width, start), start + 1 + np.arange(width)))
                begin = start + np.argmax(runs.scores(np.arange(start, stop), np.full(stop - start, stop)))
                is_significant[begin:stop] = True
    if not is_significant.any():
        return None
    first_cell, last_cell = int(np.argmax(is_significant)), size - 1 - int(np.argmax(is_significant[::-1]))
    ends = np.array([float(edge) for edge in cells.grid.ends])
    # Halved: the difference may be beyond all floats.
    neighbourhood = 0.25 * (ends[last_cell + 1] / 2 - ends[first_cell] / 2)
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
        if not len(scores) or scores.max() < HINT_SE:
            return last_cell
        last_cell += 1 + int(np.argmax(scores))


def best_run_of_cells(cells: Cells, present: float, has_sizes: bool) -> tuple[int, int] | None:
    """Return the first and last cell of the range that seems to have all of ``present`` rows, or None.

    Runs of cells are added one after the other, each time the run with most rows beyond its price. The search ends when
    all rows are found or no run is worth its price, the evidence that its cells must show. With ``has_sizes`` cells
    divide sizes, and are less likely beforehand the more sizes they have: outside of usual sizes they are 256-fold.
    """
    size = len(cells.counts)
    error = float(np.sqrt(cells.covariance[0, 0]))
    starts, stops = np.triu_indices(size + 1, 1)
    prices = _CELL_PRICE * error * (_noise_factors(cells) if has_sizes else np.ones(size))
    is_chosen, remaining_rows = np.zeros(size, dtype=np.bool_), present
    while remaining_rows > 0:
        # Prefix sums give the rows and the price of every run by one subtraction.
        rows, price = (np.concatenate([[0.0], np.cumsum(part * ~is_chosen)]) for part in (cells.counts, prices))
        run_rows = rows[stops] - rows[starts]
        padded_choice = np.concatenate([[False], is_chosen, [False]])
        is_separate = ~(padded_choice[starts] | padded_choice[stops + 1]) & is_chosen.any()
        gain = np.minimum(run_rows, remaining_rows) - (price[stops] - price[starts])
        gain -= is_separate * _SEPARATION_PRICE * error
        best = int(np.argmax(gain))
        if gain[best] <= 0:
            break
        is_chosen[starts[best] : stops[best]] = True
        remaining_rows -= float(run_rows[best])
    places = np.flatnonzero(is_chosen)
    return (int(places[0]), int(places[-1])) if len(places) else None


def _noise_factors(cells: Cells) -> FloatArray:
    """Return by cell how many times noisier its rows would be as a sum of counts of halves of doublings."""
    ends = np.array([float(end) for end in cells.grid.ends])
    sizes = np.sort(np.abs([ends[:-1], ends[1:] - cells.grid.whole]), axis=0)
    has_doublings = (sizes[0] > 0) & ((ends[:-1] > 0) | (ends[1:] <= 0))
    doublings = np.diff(np.log2(np.where(has_doublings, sizes, 1.0)), axis=0)[0]
    return np.asarray(np.sqrt(np.maximum(2 * doublings, 1.0)))


_CELL_PRICE, _SEPARATION_PRICE = 0.75, 5.0
"""Standard errors that a cell must hold, and a run apart from others must hold more (tuned; effect not measured)."""


def refine_grid(cells: Cells, n: int) -> Grid:
    """Return the grid of the next round: cells with more mass are divided into more equal parts."""
    cell_range = significant_range(cells)
    if cell_range is None:
        return cells.grid
    ends, edges = cells.grid.ends, set(cells.grid.edges)
    for i in range(max(cell_range[0] - 1, 0), min(cell_range[1] + 2, len(cells.counts))):
        share = float(cells.counts[i]) / max(n, 1)
        parts = _MAX_PARTS if share > 0.4 else math.ceil(share / _PART_SHARE)
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


def estimate_bounds(cells: Cells, n: int) -> tuple[float, float] | None:
    """Return bounds that contain nearly all of ``n`` values, or None without significant mass.

    They follow from two quantiles, which leave out a share t of the rows on either side: four times the noise of a
    cell, at most 5 %. Noise hides smaller tails, so that the distance from the median is extrapolated, the farther the
    larger t is. Its factor is (t-quantile − median) over (4t-quantile − median): 1.2 for a flat density, 1.7 for a
    normal one, 2.6 for a log-normal one.
    """
    cell_range = significant_range(cells)
    if cell_range is None:
        return None
    first_cell, last_cell = cell_range
    ends, is_whole = cells.grid.ends, cells.grid.whole
    inner_counts = cells.counts[first_cell : last_cell + 1]
    noise_share = float(np.median(np.diag(cells.covariance)[first_cell : last_cell + 1])) ** 0.5 / max(n, 1)
    tail = min(4 * noise_share, _MAX_TAIL)
    weight = tail / _MAX_TAIL
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
    if is_single_float(ends[last_cell], ends[last_cell + 1]):
        high = min(high, float(ends[last_cell]))
    return _end_at_zero(low, high, cells, cell_range)


def are_truth_values(cells: Cells, present: float, missing_variance: float = 0.0) -> bool:
    """Return whether 0 and 1 seem to have all of ``present`` rows.

    These are the most frequent pair of values, so that they need less evidence than bounds chosen among hundreds. Their
    rows must equal ``present`` within the noise of both counts and of the nulls.
    """
    ends, edges, is_whole = cells.grid.ends, cells.grid.edges, cells.grid.whole
    if 1 not in edges:
        return False
    one_cell = edges.index(1) + 1
    zero_cell = one_cell - 1 if is_whole else int(np.searchsorted(np.array(edges, dtype=np.float64), 0.0))
    has_one_alone = ends[one_cell + 1] == 2 if is_whole else is_single_float(1.0, ends[one_cell + 1])
    if not has_one_alone or not ends[zero_cell] <= 0 < ends[zero_cell + 1]:
        return False
    truth_cells = np.array([zero_cell, one_cell])
    remainder = present - float(cells.counts[truth_cells].sum())
    variance = cells.covariance[np.ix_(truth_cells, truth_cells)].sum() + missing_variance
    return bool(remainder < math.sqrt(variance))


def outer_bounds(cells: Cells, present: float, has_sizes: bool) -> tuple[float, float] | None:
    """Return the ends of the cells that have ``present`` rows, or None if only the cell of 0 has rows."""
    cell_range = best_run_of_cells(cells, present, has_sizes)
    if cell_range is None:
        return None
    first_cell, last_cell = cell_range
    start, stop = (float(end) for end in cells.grid.ends[last_cell : last_cell + 2])
    high = largest_number(start, stop, cells.grid.whole)
    return _end_at_zero(float(cells.grid.ends[first_cell]), high, cells, cell_range)


def _end_at_zero(low: float, high: float, cells: Cells, cell_range: tuple[int, int]) -> tuple[float, float] | None:
    """Return bounds that end at 0 if the outermost cell contains 0; None if there is no other cell."""
    ends = cells.grid.ends
    starts_at_zero, ends_at_zero = (not cells.grid.whole and ends[place] < 0 < ends[place + 1] for place in cell_range)
    if starts_at_zero and cell_range[0] == cell_range[1]:
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
    growth = min(max(growth, _GROWTH_LIMITS[0]), _GROWTH_LIMITS[1])
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


def round_bounds(low: Edge, high: Edge, parts: int = 20) -> tuple[Edge, Edge]:
    """Return bounds moved outwards to multiples of 1, 2 or 5 times a power of ten.

    Each bound moves by at most one part of the width, of ``parts`` parts.
    """
    width = high - low
    if not 1e-290 < width < math.inf:
        return low, high
    power = math.floor(math.log10(width / parts))
    step = next((m * 10.0**power for m in (5, 2) if m * 10.0**power <= width / parts), 10.0**power)
    if isinstance(low, int) and isinstance(high, int):
        whole_step = max(1, int(step))
        return low // whole_step * whole_step, -(-high // whole_step) * whole_step
    if not math.isfinite(max(abs(low), abs(high)) / step):
        return low, high
    lower, upper = math.floor(low / step), math.ceil(high / step)
    # Fractions by their inverse: 0.1 is no float, 10 is.
    return (lower * step, upper * step) if power >= 0 else (lower / (1 / step), upper / (1 / step))
