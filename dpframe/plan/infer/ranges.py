"""Ranges of numbers from noisy counts: grids of cells, and what they say of where a column's mass lies.

Everything here is post-processing: it sees noisy counts and public facts, never the data (but `Grid.count`).
The first grid covers all values of a type, by cells that double in width away from 0 (times: by decades). Each
later grid divides those cells where much mass was found, so that grids are nested, and all rounds together
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

from dpframe.observe.significance import FALSE_ALARM, HINT_SE
from dpframe.plan.inferred import Measured, fit_intervals
from dpframe.plan.spikes import POINT
from dpframe.spaces.arrays import FloatArray

Edge = int | float
Places = npt.NDArray[np.intp]

_PART = 0.035
"""Share of the rows that a part of a divided cell should hold: less drowns in the noise (tuned; effect not
measured)."""

_WIDTHS = (1, 2, 3, 4, 6, 8, *(2**power for power in range(4, 13)))
"""Numbers of neighbouring cells that are looked at together: mass that is spread out shows in none by itself (tuned;
effect not measured).

A cell with most rows is cut into hundreds for what may lie at one value: of years, each is within its noise.
"""

_ADJACENT = 2.3
"""Standard errors that mass beside other mass must show (tuned; effect not measured)."""

_LEAST_TAIL, _FAINT_TAIL, _MOST_TAIL = 0.001, 0.005, 0.05
"""Share of the rows beyond the quantiles that bounds are made of: least where counts are exact, most by noise (tuned;
effect not measured)."""

_GROWTH, _SPIKE = (1.25, 2.8), 2.3
"""Limits of the factor by which the way from the median to a bound is continued, and the factor beside a spike (tuned;
effect not measured)."""


@dataclass(frozen=True)
class Grid:
    """Cells of the line: ``edges`` ascend, cell i is [edge i−1, edge i), and the first and last are open.

    Edges are all whole numbers or all floats, as the values are; ``least`` and ``most`` are the type's limits. Those
    of floats are infinite in the grids that values are counted in: the outermost cells have the infinities, and
    nothing is made of them.
    """

    edges: tuple[Edge, ...]
    least: Edge
    most: Edge

    def count(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return how many values lie in every cell; infinities belong to the outermost cells."""
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
        """Return the grid with cells for the infinities, where values may be infinite."""
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
        """Return the cells seen from the other end."""
        return Cells(self.grid, self.counts[::-1], self.covariance[::-1, ::-1])


def fit_cells(measured: Sequence[Measured], limits: tuple[Edge, Edge]) -> Cells:
    """Return the counts of the finest cells, the last round's, by weighted least squares over all rounds.

    ``limits``: where the outermost cells end; infinite where these hold the infinities, and are left out.
    """
    (counts, covariance), edges = fit_intervals(tuple(measured)), measured[-1].cells
    if math.isfinite(limits[1]):
        return Cells(Grid(edges, *limits), counts, covariance)
    return Cells(Grid(edges[1:-1], edges[0], edges[-1]), counts[1:-1], covariance[1:-1, 1:-1])


def hull(cells: Cells) -> tuple[int, int] | None:
    """Return the first and last cell where there is mass beyond doubt, or None if there is no such cell.

    A run of cells counts if its sum is larger than noise makes anywhere on the grid, and no shorter run inside
    it is; then cells beside it, at a lower level.
    """
    size = len(cells.counts)
    widths = [width for width in _WIDTHS if width <= size]
    level = NormalDist().inv_cdf(1 - FALSE_ALARM / (size * len(widths)))
    sums = np.concatenate([[0.0], np.cumsum(cells.counts)])
    spread = np.zeros((size + 1, size + 1))
    spread[1:, 1:] = cells.covariance.cumsum(0).cumsum(1)

    def score(start: Places, stop: Places) -> FloatArray:
        variance = spread[stop, stop] - 2 * spread[start, stop] + spread[start, start]
        return np.asarray((sums[stop] - sums[start]) / np.sqrt(variance))

    marked = np.zeros(size, dtype=np.bool_)
    for width in widths:
        places = np.arange(size + 1 - width)
        scores = score(places, places + width)
        best = np.argsort(-scores, kind="stable")  # a run that has but a part of the mass is blurred by its noise
        for start in best[: int((scores > level).sum())]:
            if not marked[start : start + width].any():
                # Without the cells at its ends that only weaken it.
                stop = start + 1 + np.argmax(score(np.full(width, start), start + 1 + np.arange(width)))
                begin = start + np.argmax(score(np.arange(start, stop), np.full(stop - start, stop)))
                marked[begin:stop] = True
    if not marked.any():
        return None
    first, last = int(np.argmax(marked)), size - 1 - int(np.argmax(marked[::-1]))
    ends = np.array([float(edge) for edge in cells.grid.ends])
    near = 0.25 * (ends[last + 1] / 2 - ends[first] / 2)  # halved: the difference may be beyond all floats
    upwards = _grown(cells, last, ends[1:] / 2, near)
    downwards = _grown(cells.reversed(), size - 1 - first, -ends[:-1][::-1] / 2, near)
    return size - 1 - downwards, upwards


def _grown(cells: Cells, last: int, stops: FloatArray, near: float) -> int:
    """Return the last cell, moved outwards while the cells right beyond it seem to hold mass.

    These are up to three, or as many as are ``near``; cells end at ``stops``.
    """
    while True:
        count = max(3, int(np.searchsorted(stops, stops[last] + near, side="right")) - last - 1)
        beyond = slice(last + 1, last + 1 + count)
        spread = np.diag(cells.covariance[beyond, beyond].cumsum(0).cumsum(1))
        scores = cells.counts[beyond].cumsum() / np.sqrt(spread)
        if not len(scores) or scores.max() < _ADJACENT:
            return last
        last += 1 + int(np.argmax(scores))


def fullest(cells: Cells, present: float) -> tuple[int, int] | None:
    """Return the first and last cell of those that seem to hold all of ``present`` rows, or None where none do.

    Runs of cells are added one after the other, each time the one that brings most rows beyond its price, until all
    rows are there or no run is worth its price. Prices are in standard errors of a count: what a cell of only noise
    must show. They are lowest for values of usual sizes, so that rows that would lie far out need most evidence.
    """
    size, ends = len(cells.counts), np.array([float(end) for end in cells.grid.ends])
    error = float(np.sqrt(cells.covariance[0, 0]))
    starts, stops = np.triu_indices(size + 1, 1)
    prices = _prices(ends) * error
    marked, left = np.zeros(size, dtype=np.bool_), present
    while left > 0:
        rows, price = (np.concatenate([[0.0], np.cumsum(part * ~marked)]) for part in (cells.counts, prices))
        held = rows[stops] - rows[starts]
        touched = np.concatenate([[False], marked, [False]])
        apart = ~(touched[starts] | touched[stops + 1]) & marked.any()
        gain = np.minimum(held, left) - (price[stops] - price[starts]) - apart * _APART * error
        best = int(np.argmax(gain))
        if gain[best] <= 0:
            break
        marked[starts[best] : stops[best]] = True
        left -= float(held[best])
    places = np.flatnonzero(marked)
    if not len(places):
        return None
    first, last = int(places[0]), int(places[-1])
    # Rows in none of these cells are most often next to the others, so that a part of a standard error each shows them.
    error = float(np.sqrt(cells.covariance[0, 0]))
    while True:
        left = present - float(cells.counts[first : last + 1].sum())
        if left < _REST_SHARE * present + HINT_SE * error * math.sqrt(last + 1 - first):
            return first, last
        above, below = np.cumsum(cells.counts[last + 1 :]), np.cumsum(cells.counts[:first][::-1])
        gains = [np.minimum(rows, left) - _NEXT_PRICE * error * np.arange(1, len(rows) + 1) for rows in (above, below)]
        most = [float(gain.max(initial=0.0)) for gain in gains]
        if max(most) <= 0:
            return first, last
        if most[0] >= most[1]:
            last += 1 + int(np.argmax(gains[0]))
        else:
            first -= 1 + int(np.argmax(gains[1]))


_REST_SHARE, _NEXT_PRICE = 0.15, 0.3
"""Share of the rows from which on those that are left over are looked for next to the others, and the standard errors
that a cell must hold there (tuned; effect not measured)."""


_USUAL_PRICE, _AMOUNT_PRICE, _TINY_PRICE, _LARGE_PRICE, _NEGATIVE_PRICE, _APART = 0.75, 1.5, 2.0, 3.0, 1.0, 5.0
"""Standard errors that a cell must hold: of usual sizes, of amounts of millions to billions, tiny, large, more where
negative; and a run apart from others (tuned; effect not measured).

Chosen on fifty real tables of 150 to 30,000 rows.
"""
_TINY, _AMOUNT, _LARGE = 2.0**-8, 2.0**20, 2.0**36
"""Sizes up to which numbers are tiny, and from which on they are amounts, and large (tuned; effect not measured)."""


def _prices(ends: FloatArray) -> FloatArray:
    """Return the price of every cell between ends."""
    low, high = ends[:-1], ends[1:]
    far = np.maximum(np.abs(low), np.abs(high))
    tiny = (far <= _TINY) & (np.sign(low) * np.sign(high) > 0)
    usual = np.where(far > _AMOUNT, _AMOUNT_PRICE, _USUAL_PRICE)
    prices = np.where(far > _LARGE, _LARGE_PRICE, np.where(tiny, _TINY_PRICE, usual))
    return np.asarray(prices + np.where(low / 2 + high / 2 < 0, _NEGATIVE_PRICE, 0.0))


def refined(cells: Cells, n: int, most_parts: int) -> Grid:
    """Return the grid of the next round: cells divided into equal parts, the more the more mass they hold."""
    outer = hull(cells)
    if outer is None:
        return cells.grid
    ends, edges = cells.grid.ends, set(cells.grid.edges)
    for i in range(max(outer[0] - 1, 0), min(outer[1] + 2, len(cells.counts))):
        share = float(cells.counts[i]) / max(n, 1)
        parts = most_parts if share > 0.4 else math.ceil(share / _PART)
        if parts > 1 and not (ends[i] <= 0 < ends[i + 1] and not cells.grid.whole):
            edges |= set(_divided(ends[i], ends[i + 1], parts))
    inside = sorted(edge for edge in edges if cells.grid.least < edge < cells.grid.most)
    return Grid(tuple(inside), cells.grid.least, cells.grid.most)


def _divided(low: Edge, high: Edge, parts: int) -> list[Edge]:
    if isinstance(low, int) and isinstance(high, int):
        return [low + (high - low) * i // parts for i in range(parts)]
    # Divided first: the difference may be beyond all floats.
    return [low + (high / parts - low / parts) * i for i in range(parts)]


def bounds(cells: Cells, n: int) -> tuple[float, float] | None:
    """Return bounds that hold nearly all of ``n`` values, or None where no mass was found.

    They are made of two quantiles, which leave out a share t of the rows on either side. Where counts are exact, t
    is 0.5 %. Noise makes that impossible to see (at n = 32,561 it has the size of 1 % of the rows): then t is up to
    5 %, and the way from the median is continued as it went on before: by (t-quantile − median) over (4t-quantile
    − median), which is 1.2 where the density is flat, 1.7 for a normal one, 2.6 for a log-normal one.
    """
    outer = hull(cells)
    if outer is None:
        return None
    first, last = outer
    ends, whole = cells.grid.ends, cells.grid.whole
    inside = cells.counts[first : last + 1]
    spread = float(np.median(np.diag(cells.covariance)[first : last + 1])) ** 0.5 / max(n, 1)
    tail = min(max(4 * spread, _LEAST_TAIL), _MOST_TAIL)
    weight = max(math.log(tail / _FAINT_TAIL) / math.log(_MOST_TAIL / _FAINT_TAIL), 0.0)
    starts = [float(edge) for edge in ends[first : last + 1]]
    # With whole numbers, the last one in the cell.
    stops = [float(edge) - whole for edge in ends[first + 1 : last + 2]]
    middle = _quantile(inside, starts, stops, float(inside.sum()) / 2)
    low = _reach(inside, starts, stops, middle, tail * n, weight)
    high = _reach(inside[::-1], stops[::-1], starts[::-1], middle, tail * n, weight)
    if low < 0 <= ends[first]:
        low = 0.0
    if ends[last + 1] <= 0 < high:
        high = 0.0
    # What has a cell of its own goes on no further.
    if ends[last + 1] - ends[last] < POINT * abs(ends[last]):
        high = min(high, float(ends[last]))
    return _at_zero(low, high, cells, outer)


def truth_values(cells: Cells, present: float, missing: float = 0.0) -> tuple[float, float] | None:
    """Return 0 and 1 where these two seem to hold all of ``present`` rows, or None where they do not.

    No other two values are as common, so that they need less evidence than bounds that are chosen among hundreds: as
    many rows as are present, within the noise of both counts and that of the nulls, of variance ``missing``.
    """
    ends, edges = cells.grid.ends, cells.grid.edges
    if 1 not in edges:
        return None
    one = edges.index(1) + 1
    zero = one - 1 if cells.grid.whole else int(np.searchsorted(np.array(edges, dtype=np.float64), 0.0))
    if ends[one + 1] - 1 > (1 if cells.grid.whole else POINT) or not ends[zero] <= 0 < ends[zero + 1]:
        return None
    both = np.array([zero, one])
    rest = present - float(cells.counts[both].sum())
    return (0.0, 1.0) if rest < _REST * math.sqrt(cells.covariance[np.ix_(both, both)].sum() + missing) else None


_REST = 1.25
"""Standard errors up to which rows that seem to be neither 0 nor 1 are thought to be noise (tuned; effect not
measured)."""


def outer_bounds(cells: Cells, present: float) -> tuple[float, float] | None:
    """Return where the cells that hold ``present`` rows begin and end, or None where there are none but that of 0."""
    outer = fullest(cells, present)
    if outer is None:
        return None
    first, last = outer
    start, stop = (float(end) for end in cells.grid.ends[last : last + 2])
    high = start if stop - start < POINT * abs(start) else stop - cells.grid.whole
    return _at_zero(float(cells.grid.ends[first]), high, cells, outer)


def _at_zero(low: float, high: float, cells: Cells, outer: tuple[int, int]) -> tuple[float, float] | None:
    """Return bounds that end at 0 where a cell around it is the outermost; None where there is no other."""
    ends = cells.grid.ends
    first, last = ((ends[place] < 0 < ends[place + 1]) and not cells.grid.whole for place in outer)
    if first and last and outer[0] == outer[1]:
        return None
    return 0.0 if first else low, 0.0 if last else high


def _reach(
    inside: FloatArray, starts: Sequence[float], stops: Sequence[float], middle: float, rank: float, weight: float
) -> float:
    """Return a bound on the side where cells start, at a distance from the median that follows from two quantiles."""
    far = _quantile(inside, starts, stops, rank) - middle
    near = _quantile(inside, starts, stops, min(4 * rank, 0.4 * float(inside.sum()))) - middle
    growth = far / near if near and far / near > 0 else math.inf
    # The median may be a spike, which says nothing about the tail.
    growth = _SPIKE if growth > 6 else min(max(growth, _GROWTH[0]), _GROWTH[1])
    return middle + far * (1 + (growth - 1) * weight)


def _quantile(counts: FloatArray, starts: Sequence[float], stops: Sequence[float], rank: float) -> float:
    """Return where the running sum of counts first exceeds ``rank``, linearly within the cell."""
    passed = 0.0
    for count, start, stop in zip(counts.tolist(), starts, stops, strict=True):
        if passed + count > rank:
            part = max(0.0, (rank - passed) / count)
            return float(start * (1 - part) + stop * part)  # the difference may be beyond all floats
        passed += count
    return stops[-1]
