"""Where the numbers of measured tables are cut: by the noisy counts of tables before them, and by nothing else.

So it is done when tables are measured, and anew when a release is verified: cuts that follow exact counts would say
something of rows that no noise hides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpframe.noise.gaussian import Ints
from dpframe.plan.levels import FEW, cells_between, children, divided, stops_of
from dpframe.plan.measures import Measure, MeasuredTable, way_starts
from dpframe.plan.plan import Plan
from dpframe.spaces.cells import equal_starts, is_cut

_THINNEST = 4
"""A bin has a quarter of the rows of an even one at least, where the column allows it."""
_SPIKE = 1.5
"""Parts of an even bin from which on a single cell is a bin of its own."""


class Cuts:
    """The cells of a plan's measured tables, once the noisy counts before them are known."""

    def __init__(self, plan: Plan) -> None:
        self.spaces = plan.spaces
        self.ways = {m.columns[0]: m for m in plan.measures if m.kind == "one_way" and m.level < 2}
        finer = sorted((m for m in plan.measures if m.level > 1), key=lambda m: m.level)
        self.levels = {name: [m for m in finer if m.columns == (name,)] for name in self.ways}
        self._rules = plan.bound_rules

    @cached_property
    def way_starts(self) -> Mapping[str, tuple[int, ...] | None]:
        """The first codes of the cells of every one-way."""
        return {name: way_starts(way, self.spaces[name]) for name, way in self.ways.items()}

    def in_cells(self, measure: Measure, name: str) -> bool:
        """Return whether a column of a table is counted in the cells of its one-way, to be merged to bins later."""
        return is_cut(self.spaces[name], measure.most)

    def bins(self, name: str, most: int, one_ways: Mapping[str, Ints]) -> list[int] | None:
        """Return the first cell of each bin of a column, or None where each cell is one."""
        space = self.spaces[name]
        if not is_cut(space, most):
            return None
        bins = quantile_bins(one_ways[name][: len(one_ways[name]) - space.has_null].tolist(), most)
        return with_thresholds(bins, self._threshold_cells(name), most)

    def _threshold_cells(self, name: str) -> list[int]:
        """Return the cells of a column's one-way that begin where a rule's condition begins or ends."""
        starts = self.way_starts[name]
        wanted = self._rules.thresholds.get(name, ())
        return [*wanted] if starts is None else [starts.index(code) for code in wanted if code in set(starts)]

    def starts(self, measure: Measure, name: str, bins: Sequence[int] | None) -> tuple[int, ...] | None:
        """Return the first code of each cell, or of each bin of cells; None where each value is a cell."""
        starts = None
        if name in self.ways and self.in_cells(measure, name):
            starts = self.way_starts[name]
        if bins is None:
            return starts
        return tuple(bins) if starts is None else tuple(starts[cell] for cell in bins)

    def first(self, name: str) -> npt.NDArray[np.int64]:
        """Return the first codes of the cells of a number's first level."""
        space = self.spaces[name]
        return cells_between(space, self.ways[name].most, 0, space.values)

    def parents(self, before: Measure, starts: npt.NDArray[np.int64], counts: Ints) -> list[int]:
        """Return the first codes of the cells that are divided of a level with these cells and noisy counts."""
        stops = stops_of(self.spaces[before.columns[0]], before.most, starts)
        found: list[int] = divided(counts[: len(starts)], starts, stops, math.sqrt(before.sigma2)).tolist()
        return found

    def moved(self, tables: Sequence[MeasuredTable]) -> Iterator[Measure]:
        """Yield the measures of a release's tables whose numbers are cut elsewhere than the noisy counts say."""
        if not tables:
            return
        one_ways = {t.measure.columns[0]: t.counts for t in tables if self.ways.get(t.measure.columns[0]) == t.measure}
        by_measure = {table.measure: table for table in tables}
        for name, levels in self.levels.items():
            if not levels:
                continue
            before, starts, counts = self.ways[name], self.first(name), one_ways[name]
            for measure in levels:
                table, parents = by_measure[measure], self.parents(before, starts, counts)
                if table.starts != (tuple(parents),):
                    yield measure
                    break
                before, starts, counts = measure, children(self.spaces[name], measure.level, parents), table.counts
        for table in tables:
            joint, names = table.measure, table.measure.columns
            if joint.kind == "joint":
                cut = [self.starts(joint, name, self.bins(name, joint.most, one_ways)) for name in names]
                if tuple(cut) != table.starts:
                    yield joint

    def is_old(self, measure: Measure) -> bool:
        """Return whether a table is of version 0.2.0, which cut numbers by another rule: by coarser one-ways."""
        ways = [self.ways[name] for name in measure.columns if self.in_cells(measure, name) and name in self.ways]
        return any(way.level == 0 and 0 < way.most < FEW for way in ways)


def quantile_bins(counts: Sequence[int], most: int) -> list[int]:
    """Return the first cells of at most so many bins of about the same count, from noisy counts of cells.

    A cell that has the part of one and a half even bins or more is a bin of its own: a spike hides in no bin. Between
    such, bins take cells until they have their part of what is left.
    """
    total = max(0, sum(counts))
    if total == 0:
        return list(equal_starts(len(counts), min(most, len(counts))))
    heavy = [cell for cell, count in enumerate(counts) if count * most >= total * _SPIKE]
    heavy = sorted(sorted(heavy, key=lambda cell: -counts[cell])[: (most - 1) // 2])
    gaps = [
        (low, high) for low, high in zip([0, *(h + 1 for h in heavy)], [*heavy, len(counts)], strict=True) if low < high
    ]
    held = [max(0, sum(counts[low:high])) for low, high in gaps]
    starts, left = list(heavy), most - len(heavy)
    for i, (low, high) in enumerate(gaps):
        rest = sum(held[i:])
        bins = left - (len(gaps) - i - 1) if rest == 0 else round(left * held[i] / rest)
        bins = min(max(1, bins), left - (len(gaps) - i - 1))
        starts += [low + start for start in _even_bins(counts[low:high], bins)]
        left -= bins
    return sorted(starts)


def with_thresholds(bins: Sequence[int], cells: Sequence[int], most: int) -> list[int]:
    """Return bins that also begin at some cells, as many as there may be: beyond that the nearest ones move there.

    >>> with_thresholds([0, 4, 8], [5], 3), with_thresholds([0, 4, 8], [5, 6], 5)
    ([0, 5, 8], [0, 4, 5, 6, 8])
    """
    wanted = {0, *cells[: most - 1]}
    kept = sorted(wanted | set(bins))
    while len(kept) > most:
        free = [start for start in kept if start not in wanted]
        kept.remove(min(free, key=lambda start: min(abs(start - cell) for cell in wanted)))
    return kept


def _even_bins(counts: Sequence[int], most: int) -> list[int]:
    """Return the first cells of bins of about the same count, each with a quarter of an even one's at least."""
    total, starts = max(0, sum(counts)), [0]
    left, held = total, 0
    for cell, count in enumerate(counts[:-1]):
        held += count
        bins = most - len(starts) + 1
        if total and bins > 1 and held * bins >= left and held * most * _THINNEST >= total:
            starts.append(cell + 1)
            left, held = left - held, 0
    return starts
