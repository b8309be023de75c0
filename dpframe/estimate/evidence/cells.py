"""The cells of a number that its measured levels distinguish: single heavy parts, and stretches of light ones.

If the next level divides a cell, its parts are tested. A part with more rows than an even spread over the cell becomes
a cell (an *atom*, once it is a single code), and is divided further if the next level does so. The parts between heavy
ones form stretches, over which the light rows are spread by width. The unevenness of this spread is estimated from the
counts of the parts, for a whole level together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from dpframe.observe.observation import Observation

HEAP_THRESHOLD_SD = 3.5
"""Standard deviations above an even spread at which a part becomes a cell (tuned; half and twice it change
widths on a census by −54 and 0 %)."""

DEFAULT_UNEVENNESS = 0.5
"""Unevenness of a cell without counted parts: about one heap with most of its rows (tuned; half and twice it
change widths on a census by 0 and 1 %)."""

_MAX_SEARCHES = 4
"""Searches for heavy parts: the heaviest hide others at first (limit of time)."""


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretches of light parts in a divided cell: first codes and ends.

    ``rest`` is the number of rows in all of them: the cell's count less the counts of its heavy parts.
    """

    starts: list[int]
    stops: list[int]
    rest: float
    level: int


@dataclass
class Tree:
    """Cells of a number from its levels, and counts of cells and of unions of cells.

    ``leaves``: of each cell, in no order, its first code and end, the level of its tested parts (0 for none), its
    unevenness by these parts, and the share of each part. ``facts``: of each count, its first code and end, the count
    and its variance. ``stretches``: cells that share common rows by width.
    """

    leaves: list[tuple[int, int, int, float, float]] = field(default_factory=list)
    facts: list[tuple[int, int, float, float]] = field(default_factory=list)
    stretches: list[Stretches] = field(default_factory=list)
    uneven: dict[int, list[tuple[float, float, float, float]]] = field(default_factory=dict)
    """By level, for each cell: squared excess of parts over an even spread, its mean and variance under noise, and
    squared rows."""

    def unevenness(self, level: int) -> float:
        """Return the unevenness of the rows of a level's cells: 0 for an even spread, 1 for one part.

        It is the variance of the shares of a cell's parts beyond noise, plus one standard error.
        """
        records = np.array(self.uneven.get(level, [])).reshape(-1, 4)
        squares, noise, variance, total = records.sum(axis=0).tolist()
        if not level or not total:
            return DEFAULT_UNEVENNESS
        return float(min((max(squares - noise, 0.0) + math.sqrt(variance)) / total, 1.0))


def tree_of(first: Observation, finer: Mapping[int, Observation]) -> Tree:
    """Return the cells of a number and their counts.

    ``first`` and ``finer``: counts of runs of codes by the one-way that covers the column's values, and by the levels
    above it.
    """
    tree, parts = Tree(), (first.runs.starts, first.runs.stops, first.values, first.variances)
    for start, stop, count, variance in zip(*(part.tolist() for part in parts), strict=True):
        tree.facts.append((start, stop, count, variance))
        _add_cell(tree, finer, (start, stop, 1), count, variance)
    return tree


def _add_cell(
    tree: Tree, levels: Mapping[int, Observation], cell: tuple[int, int, int], count: float, variance: float
) -> None:
    """Add a cell to the tree, undivided or by its parts."""
    start, stop, level = cell
    finer = levels.get(level + 1)
    places = (0, 0) if finer is None else np.searchsorted(finer.runs.starts, [start, stop]).tolist()
    if finer is None or places[0] == places[1]:
        tree.leaves.append((start, stop, 0, DEFAULT_UNEVENNESS, 0.0))
        return
    parts = finer.select(slice(*places))
    heavy, light_rows = _find_heavy(parts, count, variance)
    widths, light = parts.runs.widths, ~heavy
    even = np.where(light, widths, 0.0) * light_rows / max(float(widths[light].sum()), 1.0)
    noise = float(parts.variances[light].sum())
    excess = float(((parts.values - even)[light] ** 2).sum())
    # Light rows below the noise have no information on unevenness.
    if light_rows > math.sqrt(variance):
        tree.uneven.setdefault(level + 1, []).append(
            (excess, noise, 2 * float((parts.variances[light] ** 2).sum()), light_rows**2)
        )
    unevenness = min(max(excess - noise, 0.0) / max(light_rows, 1.0) ** 2, 1.0)
    # Every heavy part is a run of its own, between runs of light parts.
    run_starts = np.flatnonzero(heavy | np.append(True, heavy[:-1])).tolist()
    runs = pairwise([*run_starts, len(heavy)])
    pieces = [piece for low, high in runs for piece in _bisect_run(parts, heavy, low, high)]
    if len(pieces) == 1:
        tree.leaves.append((start, stop, level + 1, unevenness, _part_share(parts, 0, len(parts))))
        return
    stretches = Stretches([], [], light_rows, level + 1)
    for low, high, is_half in pieces:
        first, last = int(parts.runs.starts[low]), int(parts.runs.stops[high - 1])
        total, noise = float(parts.values[low:high].sum()), float(parts.variances[low:high].sum())
        tree.facts.append((first, last, total, noise))
        if heavy[low]:
            _add_cell(tree, levels, (first, last, level + 1), total, noise)
            continue
        tree.leaves.append((first, last, level + 1, unevenness, _part_share(parts, low, high)))
        if is_half:
            continue
        stretches.starts.append(first)
        stretches.stops.append(last)
    if stretches.starts:
        tree.stretches.append(stretches)


def _part_share(parts: Observation, low: int, high: int) -> float:
    """Return the share of a stretch of parts that one of them has, if it holds several codes."""
    return 1 / (high - low) if high - low > 1 and parts.runs.widths[low:high].max() > 1 else 0.0


def _find_heavy(parts: Observation, count: float, variance: float) -> tuple[np.ndarray, float]:
    """Return a mask of the parts above an even spread of the light rows, and the number of light rows."""
    widths = parts.runs.widths
    heavy, light_rows = np.zeros(len(widths), dtype=np.bool_), max(count, 0.0)
    # Heavy parts raise the even spread of the others, so the search repeats without them.
    for _ in range(_MAX_SEARCHES):
        share = np.where(heavy, 0.0, widths) / max(float(widths[~heavy].sum()), 1.0)
        sigma = np.sqrt(parts.variances + share**2 * (variance + parts.variances[heavy].sum()))
        new_heavy = ~heavy & (parts.values - share * light_rows > HEAP_THRESHOLD_SD * sigma)
        if not new_heavy.any():
            break
        heavy |= new_heavy
        light_rows = max(count - float(parts.values[heavy].sum()), 0.0)
        if heavy.all():
            break
    return heavy, light_rows


def _bisect_run(parts: Observation, heavy: np.ndarray, low: int, high: int) -> Iterator[tuple[int, int, bool]]:
    """Bisect a run of parts if its halves differ by more than noise; yield each piece, and whether it is a half.

    Towards the tail of a distribution parts fall together, and no single part exceeds its noise.
    """
    middle = (low + high) // 2
    if heavy[low] or middle == low:
        yield low, high, False
        return
    # Sums of values, their variances and widths, of both halves.
    sums = (parts.values, parts.variances, parts.runs.widths)
    (left_rows, right_rows), (left_noise, right_noise), (left_width, right_width) = (
        (float(array[low:middle].sum()), float(array[middle:high].sum())) for array in sums
    )
    difference = left_rows * right_width - right_rows * left_width
    noise = math.sqrt(left_noise * right_width**2 + right_noise * left_width**2)
    if abs(difference) <= HEAP_THRESHOLD_SD * noise:
        yield low, high, False
        return
    for first, last in ((low, middle), (middle, high)):
        for start, stop, _ in _bisect_run(parts, heavy, first, last):
            yield start, stop, True
