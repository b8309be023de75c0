"""The tables that a plan measures: counted in one pass over the rows, with noise from planes of their own.

Numbers in joints are cut at the quantiles of their noisy one-way, which is known after the pass only. So joints are
counted in the one-way's cells, and bins are made of whole cells: merging exact counts before noise is added
is counting in the bins at once. So it is with levels of numbers: their cells, which follow from the noisy counts of
the level before, are made of whole cells of the finest one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dpframe.noise.gaussian import Ints
from dpframe.noise.keystream import ColumnStream, Keystream, Rows
from dpframe.plan.levels import cells_between, children, divided, level_sizes, place_of, stops_of
from dpframe.plan.measures import Measure, MeasuredTable, way_starts
from dpframe.plan.plan import Plan
from dpframe.spaces import Space
from dpframe.totals.cells import cell_count, equal_starts, is_cut
from dpframe.totals.counts import Codes, Counter, Items, Joint, JointCounting, Places, Total, Vectors, cells_of, noisy

_BATCH = 1 << 16
"""Rows that are counted at a time, so that their cells stay in cache."""
_THINNEST = 4
"""A bin has a quarter of the rows of an even one at least, where the column allows it."""
_SPIKE = 1.5
"""Parts of an even bin from which on a single cell is a bin of its own."""


class Tables:
    """The tables of one release, from the codes of all of its rows.

    Parameters
    ----------
    plan
        The plan; its digest enters the noise.
    key
        32 secret bytes that serve this table under this plan only.
    """

    def __init__(self, plan: Plan, key: bytes) -> None:
        self._spaces = {column.name: column.space for column in plan.columns}
        self._keys, self._measures = Keystream(key, plan.digest), plan.measures
        self._rules = plan.bound_rules
        self._ways = {m.columns[0]: m for m in plan.measures if m.kind == "one_way" and m.level < 2}
        self._levels = {name: self._finer(name) for name in self._ways}
        self._finest = {
            name: Joint((len(cells_between(space, size, 0, space.values)) + space.has_null,))
            for name, own in self._levels.items()
            if own
            for space, size in [(self._spaces[name], level_sizes(self._spaces[name])[-1])]
        }
        self._joints = {
            m: Joint(self._shape(m)) for m in plan.measures if m.kind in ("one_way", "joint") and m.level < 2
        }
        self._sums = {m: Total(self._spaces[m.columns[0]]) for m in plan.measures if m.kind == "sum"}
        self._items = {
            m: Items(self._spaces[m.columns[0]], m.most, self._stream("cut", m.columns))
            for m in plan.measures
            if m.kind == "items"
        }
        self._vectors = {
            m: Vectors(self._spaces[m.columns[0]], m.shape(self._spaces)[0])
            for m in plan.measures
            if m.kind == "vectors"
        }
        counted = {(name, self._in_cells(m, name)) for m in self._joints for name in m.columns}
        self._counted = sorted(counted | {(name, False) for m in self._vectors for name in m.columns[1:]})
        columns = {m: tuple((name, self._in_cells(m, name)) for name in m.columns) for m in self._joints}
        widths = {own: width for m, j in self._joints.items() for own, width in zip(columns[m], j.shape, strict=True)}
        self._counting = JointCounting.of(widths, [(columns[m], joint) for m, joint in self._joints.items()])

    @cached_property
    def _way_starts(self) -> Mapping[str, tuple[int, ...] | None]:
        """The first codes of the cells of every one-way."""
        return {name: way_starts(way, self._spaces[name]) for name, way in self._ways.items()}

    @cached_property
    def _way_widths(self) -> Mapping[str, int]:
        """The cells of every one-way."""
        return {name: way.shape(self._spaces)[0] for name, way in self._ways.items()}

    def _finer(self, name: str) -> list[Measure]:
        """Return a number's levels above the first, in their order."""
        return sorted((m for m in self._measures if m.columns == (name,) and m.level > 1), key=lambda m: m.level)

    def _stream(self, kind: str, columns: Sequence[str], level: int = 0) -> ColumnStream:
        return self._keys.column(json.dumps([kind, *columns, *[level] * (level > 1)]), "measure")

    def _in_cells(self, measure: Measure, name: str) -> bool:
        """Return whether a column of a table is counted in the cells of its one-way, to be merged to bins later."""
        return is_cut(self._spaces[name], measure.most)

    def _shape(self, measure: Measure) -> tuple[int, ...]:
        return tuple(
            self._way_widths[name] if self._in_cells(measure, name) else cell_count(self._spaces[name], 0)
            for name in measure.columns
        )

    def _places(self, name: str, codes: Codes, in_cells: bool) -> Places:
        """Return the cells of codes: in those of the column's one-way, or the codes themselves."""
        way = self._ways.get(name)
        if not in_cells or way is None:
            return codes.astype(np.intp)
        return (
            place_of(codes, self._spaces[name], way.most)
            if way.level
            else cells_of(codes, self._spaces[name], way.most)
        )

    def add(self, codes: Mapping[str, Codes], rows: Rows) -> None:
        """Count rows; ``rows`` is the place of the first one in the table, or the place of each."""
        if not self._measures:
            return
        codes = self._rules.mended(codes)
        count = len(next(iter(codes.values())))
        for start in range(0, count, _BATCH):
            part = {name: column[start : start + _BATCH] for name, column in codes.items()}
            cells = {(name, cut): self._places(name, part[name], cut) for name, cut in self._counted}
            self._counting.add(cells)
            for name, finest in self._finest.items():
                finest.add([place_of(part[name], self._spaces[name], level_sizes(self._spaces[name])[-1])])
            for measure, total in self._sums.items():
                total.add(part[measure.columns[0]])
            for measure, sums in self._vectors.items():
                first, *by = measure.columns
                sums.add(part[first], cells[by[0], False] if by else np.zeros(len(part[first]), dtype=np.intp))
        for measure, items in self._items.items():
            items.add(codes[measure.columns[0]], rows)

    @property
    def counts(self) -> list[Ints]:
        """The exact counts so far, for `merge`: as secret as the rows."""
        return [counter.counts for counter in self._counters]

    def merge(self, counts: Sequence[Ints]) -> None:
        """Add the `counts` of other rows, which were taken elsewhere."""
        for counter, more in zip(self._counters, counts, strict=True):
            counter.counts += more

    @property
    def _counters(self) -> list[Counter]:
        kinds: tuple[Mapping[Any, Counter], ...] = (self._sums, self._joints, self._finest, self._items, self._vectors)
        return [counter for kind in kinds for counter in kind.values()]

    def measured(self) -> tuple[MeasuredTable, ...]:
        """Return the noisy tables, in the order of the plan's measures: once, when all rows have been counted."""
        one_ways = {
            m.columns[0]: noisy(joint.counts, m.sigma2, self._stream(m.kind, m.columns))
            for m, joint in self._joints.items()
            if m.kind == "one_way"
        }
        levels = {m: table for name in self._finest for m, table in self._level_tables(name, one_ways[name]).items()}
        return tuple(levels.get(measure) or self._table(measure, one_ways) for measure in self._measures)

    def _level_tables(self, name: str, one_way: Ints) -> dict[Measure, MeasuredTable]:
        """Return a number's levels above the first: all cells of those that exceeded the noise on the one before."""
        space, way, found = self._spaces[name], self._ways[name], {}
        size = level_sizes(space)[-1]
        exact = np.concatenate([[0], np.cumsum(self._finest[name].counts)])
        starts = cells_between(space, way.most, 0, space.values)
        stops, counts, sigma = stops_of(space, way.most, starts), one_way[: len(starts)], math.sqrt(way.sigma2)
        for measure in self._levels[name]:
            parents = divided(counts, starts, stops, sigma)
            starts = children(space, measure.level, parents.tolist())
            stops, sigma = stops_of(space, measure.most, starts), math.sqrt(measure.sigma2)
            # Where each cell begins and ends among the finest ones, whose last is null's.
            last = len(exact) - 1 - space.has_null
            ends = np.where(stops < space.values, place_of(np.minimum(stops, space.values - 1), space, size), last)
            own = exact[ends] - exact[place_of(starts, space, size)]
            counts = noisy(own, measure.sigma2, self._stream(measure.kind, measure.columns, measure.level))
            found[measure] = MeasuredTable(measure, (tuple(parents.tolist()),), counts)
        return found

    def _table(self, measure: Measure, one_ways: Mapping[str, Ints]) -> MeasuredTable:
        stream, first = self._stream(measure.kind, measure.columns), measure.columns[0]
        if measure.kind == "one_way":
            return MeasuredTable(measure, (self._starts(measure, first, None),), one_ways[first])
        if measure.kind == "sum":
            return MeasuredTable(measure, (None,), noisy(self._sums[measure].counts, measure.sigma2, stream))
        if measure.kind == "items":
            return MeasuredTable(measure, (None,), noisy(self._items[measure].counts, measure.sigma2, stream))
        if measure.kind == "vectors":
            empty = (None,) * len(measure.columns)
            return MeasuredTable(measure, empty, noisy(self._vectors[measure].counts, measure.sigma2, stream))
        exact, starts = self._joints[measure].counts, []
        for axis, name in enumerate(measure.columns):
            bins = self._bins(name, measure.most, one_ways)
            exact = exact if bins is None else _merged(exact, axis, bins, self._spaces[name])
            starts.append(self._starts(measure, name, bins))
        return MeasuredTable(measure, tuple(starts), noisy(exact, measure.sigma2, stream))

    def _bins(self, name: str, most: int, one_ways: Mapping[str, Ints]) -> list[int] | None:
        """Return the first cell of each bin of a column, or None where each cell is one."""
        space = self._spaces[name]
        if not is_cut(space, most):
            return None
        bins = quantile_bins(one_ways[name][: len(one_ways[name]) - space.has_null].tolist(), most)
        return with_thresholds(bins, self._threshold_cells(name), most)

    def _threshold_cells(self, name: str) -> list[int]:
        """Return the cells of a column's one-way that begin where a rule's condition begins or ends."""
        starts = self._way_starts[name]
        wanted = self._rules.thresholds.get(name, ())
        return [*wanted] if starts is None else [starts.index(code) for code in wanted if code in set(starts)]

    def _starts(self, measure: Measure, name: str, bins: Sequence[int] | None) -> tuple[int, ...] | None:
        """Return the first code of each cell, or of each bin of cells; None where each value is a cell."""
        starts = None
        if name in self._ways and self._in_cells(measure, name):
            starts = self._way_starts[name]
        if bins is None:
            return starts
        return tuple(bins) if starts is None else tuple(starts[cell] for cell in bins)


def measured_tables(codes: Mapping[str, Codes], plan: Plan, key: bytes) -> tuple[MeasuredTable, ...]:
    """Return the noisy tables of codes that are held in memory, all of the table's rows; none where none is asked for.

    Examples
    --------
    >>> from dpframe.plan.measures import Measure
    >>> from dpframe.plan.build import build_plan
    >>> measures = (Measure("joint", ("sex", "home"), 400.0),)
    >>> spaces = {"sex": ["F", "M"], "home": ["own", "let"]}
    >>> plan = build_plan(spaces, epsilon=1.0, delta=1e-6, n=1_000, measures=measures)
    >>> codes = {"sex": np.zeros(1_000, dtype=np.uint8), "home": np.ones(1_000, dtype=np.uint8)}
    >>> measured_tables(codes, plan, bytes(32))[0].counts.shape
    (2, 2)
    """
    if not plan.measures:
        return ()
    tables = Tables(plan, key)
    tables.add(codes, 0)
    return tables.measured()


def quantile_bins(counts: Sequence[int], most: int) -> list[int]:
    """Return the first cells of at most so many bins of about the same count, from noisy counts of cells.

    A cell that has the part of one and a half even bins or more is a bin of its own: a spike hides in no bin. Between
    such, bins take cells until they have their part of what is left.

    Examples
    --------
    >>> quantile_bins([90, 2, 2, 2, 2, 2], 3)
    [0, 1, 4]
    >>> quantile_bins([10, 10, 10, 10, 10, 10], 3)
    [0, 2, 4]
    >>> quantile_bins([5, 5, 40, 5, 5, 0], 3)
    [0, 2, 3]
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

    Examples
    --------
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


def _merged(counts: Ints, axis: int, bins: Sequence[int], space: Space) -> Ints:
    """Return counts with the cells of one axis added up to bins; null stays the last one."""
    starts = [*bins, counts.shape[axis] - 1] if space.has_null else list(bins)
    return np.asarray(np.add.reduceat(counts, starts, axis=axis))
