"""The cells of a number that its measured levels distinguish: heavy ones on their own, the others in stretches.

A cell of a level that was divided is looked at by its parts. A part that holds more rows than an even spread over the
cell explains is a cell of its own (an *atom*, once it is a single code), and is divided further if the next level did;
the parts between such are stretches over which what is left of the cell is spread by width. How unevenly, is estimated
from the parts' own counts, all of a level together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpframe.observe.observation import Observation
from dpframe.plan.measures import MeasuredTable
from dpframe.spaces import Space

STANDS_OUT = 3.5
"""Standard deviations by which a part exceeds an even spread, to be a cell of its own (tuned; half and twice it change
widths on a census by −54 and 0 %)."""

UNKNOWN = 0.5
"""Unevenness of a cell of whose parts nothing was counted: about one heap with most of its rows (tuned; half and twice
it change widths on a census by 0 and 1 %)."""

_LOOKS = 4
"""Times that parts are looked for: the heaviest hide others (limit of time)."""


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretches of a divided cell that hold no part of their own: first codes and ends.

    ``rest`` is the number of rows in all of them, as the cell's count less those of its heavy parts gives it.
    """

    starts: list[int]
    stops: list[int]
    rest: float
    level: int


@dataclass
class Tree:
    """What the levels of one number say: its cells, and what was counted of them and of unions of them.

    ``leaves`` are the first codes and ends of cells, in no order, with the level of parts that were looked at within
    them, 0 for none, their own unevenness by that look and the share of each part; ``facts`` the first codes and ends
    of what was counted, the counts and variances; ``stretches`` the cells whose shares of a common rest are known only
    by width.
    """

    leaves: list[tuple[int, int, int, float, float]] = field(default_factory=list)
    facts: list[tuple[int, int, float, float]] = field(default_factory=list)
    stretches: list[Stretches] = field(default_factory=list)
    uneven: dict[int, list[tuple[float, float, float, float]]] = field(default_factory=dict)
    """By level: excess squares of parts over an even spread, what noise adds to them, its variance, and the cell's rows
    squared."""

    def unevenness(self, level: int) -> float:
        """Return by how much rows of a cell lie in fewer of its parts than all: 0 for an even spread, 1 for one part.

        It is what variance the shares of a cell's parts have beyond noise, and a standard error of that above.
        """
        seen = np.array(self.uneven.get(level, [])).reshape(-1, 4)
        squares, noise, variance, total = seen.sum(axis=0).tolist()
        if not level or not total:
            return UNKNOWN
        return float(min((max(squares - noise, 0.0) + math.sqrt(variance)) / total, 1.0))


def tree_of(space: Space, first: MeasuredTable, finer: Sequence[MeasuredTable]) -> Tree:
    """Return the cells of a number and what is known of them.

    ``first`` and ``finer``: the one-way that covers the column, and the levels above it in their order.
    """
    tree, levels = Tree(), {table.measure.level: table.to_observation(space) for table in finer}
    top = first.to_observation(space)
    parts = (top.runs.starts, top.runs.stops, top.values, top.variances)
    for start, stop, count, variance in zip(*(part.tolist() for part in parts), strict=True):
        tree.facts.append((start, stop, count, variance))
        _grow(tree, levels, (start, stop, 1), count, variance)
    return tree


def _grow(
    tree: Tree, levels: Mapping[int, Observation], cell: tuple[int, int, int], count: float, variance: float
) -> None:
    """Add a cell to the tree: as it is, or by its parts."""
    start, stop, level = cell
    parts = _within(levels[level + 1], start, stop) if level + 1 in levels else None
    if parts is None or not len(parts):
        tree.leaves.append((start, stop, 0, UNKNOWN, 0.0))
        return
    heavy, rest = _heavy(parts, count, variance)
    widths, light = parts.runs.widths, ~heavy
    even = np.where(light, widths, 0.0) * rest / max(float(widths[light].sum()), 1.0)
    noise = float(parts.variances[light].sum())
    excess = float(((parts.values - even)[light] ** 2).sum())
    if rest > math.sqrt(variance):
        tree.uneven.setdefault(level + 1, []).append(
            (excess, noise, 2 * float((parts.variances[light] ** 2).sum()), rest**2)
        )
    own = min(max(excess - noise, 0.0) / max(rest, 1.0) ** 2, 1.0)
    pieces = [piece for low, high in _runs(heavy) for piece in _bisected(parts, heavy, low, high)]
    if len(pieces) == 1:
        tree.leaves.append((start, stop, level + 1, own, _part_share(parts, 0, len(parts))))
        return
    stretches = Stretches([], [], rest, level + 1)
    for low, high, alone in pieces:
        first, last = int(parts.runs.starts[low]), int(parts.runs.stops[high - 1])
        total, noise = float(parts.values[low:high].sum()), float(parts.variances[low:high].sum())
        tree.facts.append((first, last, total, noise))
        if heavy[low]:
            _grow(tree, levels, (first, last, level + 1), total, noise)
            continue
        tree.leaves.append((first, last, level + 1, own, _part_share(parts, low, high)))
        if alone:
            continue
        stretches.starts.append(first)
        stretches.stops.append(last)
    if stretches.starts:
        tree.stretches.append(stretches)


def _part_share(parts: Observation, low: int, high: int) -> float:
    """Return the share of a stretch of parts that one of them has, if it holds several codes."""
    return 1 / (high - low) if high - low > 1 and parts.runs.widths[low:high].max() > 1 else 0.0


def _within(level: Observation, low: int, high: int) -> Observation:
    """Return the counts of the cells between two codes."""
    return level.select(slice(*np.searchsorted(level.runs.starts, [low, high]).tolist()))


def _heavy(parts: Observation, count: float, variance: float) -> tuple[np.ndarray, float]:
    """Return which parts hold more than an even spread of what the others leave, and how many rows those leave."""
    widths = parts.runs.widths
    heavy, rest = np.zeros(len(widths), dtype=np.bool_), max(count, 0.0)
    for _ in range(_LOOKS):
        share = np.where(heavy, 0.0, widths) / max(float(widths[~heavy].sum()), 1.0)
        sigma = np.sqrt(parts.variances + share**2 * (variance + parts.variances[heavy].sum()))
        more = ~heavy & (parts.values - share * rest > STANDS_OUT * sigma)
        if not more.any():
            break
        heavy |= more
        rest = max(count - float(parts.values[heavy].sum()), 0.0)
        if heavy.all():
            break
    return heavy, rest


def _bisected(parts: Observation, heavy: np.ndarray, low: int, high: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the pieces of a run of parts, halves that differ more than noise apart, and whether it is one of several.

    No part need exceed its noise where all of them fall, as towards the tail of a distribution.
    """
    middle = (low + high) // 2
    if heavy[low] or middle == low:
        yield low, high, False
        return
    # Sums of values, their variances and widths, of both halves.
    sums = (parts.values, parts.variances, parts.runs.widths)
    (left, right), (left_noise, right_noise), (left_width, right_width) = (
        (float(one[low:middle].sum()), float(one[middle:high].sum())) for one in sums
    )
    apart = left * right_width - right * left_width
    noise = math.sqrt(left_noise * right_width**2 + right_noise * left_width**2)
    if abs(apart) <= STANDS_OUT * noise:
        yield low, high, False
        return
    for first, last in ((low, middle), (middle, high)):
        for start, stop, _ in _bisected(parts, heavy, first, last):
            yield start, stop, True


def _runs(heavy: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the first place and the end of every heavy part, and of every run of others."""
    start = 0
    for place in range(1, len(heavy) + 1):
        if place == len(heavy) or heavy[place] or heavy[start]:
            yield start, place
            start = place
