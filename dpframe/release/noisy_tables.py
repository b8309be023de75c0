"""The tables that a plan measures: counted in one pass over the rows, with noise from planes of their own.

Numbers in joints are cut at the quantiles of their noisy one-way, which is available after the pass. So joints are
counted in the one-way's cells, and bins are made of whole cells: merging exact counts before noise is added
equals counting in the bins at once. Levels of numbers work alike: the noisy counts of the coarser level determine
their cells, which are unions of whole cells of the finest level.

Verification of a release repeats these steps: cuts that follow exact counts would reveal rows without noise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.noise.gaussian import Ints
from dpframe.noise.keystream import ColumnStream, Keystream, Rows
from dpframe.plan.levels import FEW, cells_between, children, divided, level_sizes, place_of, stops_of
from dpframe.plan.measures import Measure, MeasuredTable, way_starts
from dpframe.plan.plan import Plan
from dpframe.spaces.cells import cell_count, equal_starts, is_cut
from dpframe.totals.counts import (
    Codes,
    Counter,
    ItemPairs,
    Items,
    Joint,
    Places,
    SetSizes,
    Total,
    Vectors,
    cells_of,
    noisy,
)
from dpframe.totals.joint_counting import JointCounting
from dpframe.totals.weight_sums import WeightSums

_MIN_BIN_DIVISOR = 4
"""Divisor of an even bin's rows: a bin has at least a quarter of them, if the column allows it."""
_SPIKE_BIN_SHARES = 1.5
"""Count, in even bins, from which a single cell is a bin of its own."""


class Cuts:
    """The cells of a plan's measured tables, once the noisy counts before them are known."""

    def __init__(self, plan: Plan) -> None:
        self.spaces = plan.counted_spaces
        self.ways = {m.columns[0]: m for m in plan.measures if m.kind == "one_way" and m.level < 2}
        level_measures = sorted((m for m in plan.measures if m.level > 1), key=lambda m: m.level)
        self.levels = {name: [m for m in level_measures if m.columns == (name,)] for name in self.ways}
        self._rules = plan.bound_rules

    @cached_property
    def way_starts(self) -> Mapping[str, tuple[int, ...] | None]:
        """The first codes of the cells of every one-way."""
        return {name: way_starts(way, self.spaces[name]) for name, way in self.ways.items()}

    def in_cells(self, measure: Measure, name: str) -> bool:
        """Return whether a column of a table is counted in the cells of its one-way, to be merged to bins later."""
        return is_cut(self.spaces[name], measure.most)

    def bins(self, name: str, most: int, one_ways: Mapping[str, Ints]) -> list[int] | None:
        """Return the first cell of each bin of a column; None if each cell is a bin."""
        space = self.spaces[name]
        if not is_cut(space, most):
            return None
        bins = quantile_bins(one_ways[name][: len(one_ways[name]) - space.flag_codes].tolist(), most)
        # Conditions of rules begin and end where bins do.
        starts, cells = self.way_starts[name], [*self._rules.thresholds.get(name, ())]
        if starts is not None:
            cells = [starts.index(code) for code in cells if code in set(starts)]
        return with_thresholds(bins, cells, most)

    def starts(self, measure: Measure, name: str, bins: Sequence[int] | None) -> tuple[int, ...] | None:
        """Return the first code of each cell, or of each bin of cells; None if each value is a cell."""
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
        """Return the first codes of the cells that the next level divides, from these cells and noisy counts."""
        stops = stops_of(self.spaces[before.columns[0]], before.most, starts)
        parent_codes: list[int] = divided(counts[: len(starts)], starts, stops, math.sqrt(before.sigma2)).tolist()
        return parent_codes

    def moved(self, tables: Sequence[MeasuredTable]) -> Iterator[Measure]:
        """Yield the measures of released tables whose cuts do not follow from the noisy counts."""
        if not tables:
            return
        one_ways = {t.measure.columns[0]: t.counts for t in tables if self.ways.get(t.measure.columns[0]) == t.measure}
        by_measure = {table.measure: table for table in tables}
        for name, levels in self.levels.items():
            if not levels:
                continue
            coarser_measure, starts, counts = self.ways[name], self.first(name), one_ways[name]
            for measure in levels:
                table, parents = by_measure[measure], self.parents(coarser_measure, starts, counts)
                if table.starts != (tuple(parents),):
                    # Finer levels follow from this level's cells: one report is enough.
                    yield measure
                    break
                coarser_measure, starts, counts = (
                    measure,
                    children(self.spaces[name], measure.level, parents),
                    table.counts,
                )
        for table in tables:
            joint, names = table.measure, table.measure.columns
            if joint.kind in ("joint", "weights"):
                is_counted = [joint.kind == "joint" or name != names[0] for name in names]
                joint_starts = [
                    self.starts(joint, name, self.bins(name, joint.most, one_ways)) if counted else None
                    for name, counted in zip(names, is_counted, strict=True)
                ]
                if tuple(joint_starts) != table.starts:
                    yield joint

    def is_old(self, measure: Measure) -> bool:
        """Return whether a table is of version 0.2.0, which cut numbers at coarser one-ways."""
        ways = [self.ways[name] for name in measure.columns if self.in_cells(measure, name) and name in self.ways]
        return any(way.level == 0 and 0 < way.most < FEW for way in ways)


def quantile_bins(counts: Sequence[int], most: int) -> list[int]:
    """Return the first cells of at most ``most`` bins of about equal count, from noisy counts of cells.

    A cell with the count of one and a half even bins or more is a bin of its own: a spike hides in no bin. Between
    spikes, bins gather cells until they have their share of the remaining count.
    """
    # Noisy counts may add up to a negative number.
    total = max(0, sum(counts))
    if total == 0:
        return list(equal_starts(len(counts), min(most, len(counts))))
    spike_cells = [cell for cell, count in enumerate(counts) if count * most >= total * _SPIKE_BIN_SHARES]
    # Fewer than half of the bins are spikes, as every gap around spikes needs a bin too.
    spike_cells = sorted(sorted(spike_cells, key=lambda cell: -counts[cell])[: (most - 1) // 2])
    gaps = [
        (low, high)
        for low, high in zip([0, *(h + 1 for h in spike_cells)], [*spike_cells, len(counts)], strict=True)
        if low < high
    ]
    gap_counts = [max(0, sum(counts[low:high])) for low, high in gaps]
    starts, bins_left = list(spike_cells), most - len(spike_cells)
    for i, (low, high) in enumerate(gaps):
        remaining_count = sum(gap_counts[i:])
        bins = (
            bins_left - (len(gaps) - i - 1)
            if remaining_count == 0
            else round(bins_left * gap_counts[i] / remaining_count)
        )
        bins = min(max(1, bins), bins_left - (len(gaps) - i - 1))
        starts += [low + start for start in _even_bins(counts[low:high], bins)]
        bins_left -= bins
    return sorted(starts)


def with_thresholds(bins: Sequence[int], cells: Sequence[int], most: int) -> list[int]:
    """Return at most ``most`` bins that also begin at these cells; the nearest other bins are dropped.

    >>> with_thresholds([0, 4, 8], [5], 3), with_thresholds([0, 4, 8], [5, 6], 5)
    ([0, 5, 8], [0, 4, 5, 6, 8])
    """
    # One bin begins at cell 0, so that only `most` − 1 thresholds fit.
    required_starts = {0, *cells[: most - 1]}
    bin_starts = sorted(required_starts | set(bins))
    while len(bin_starts) > most:
        removable_starts = [start for start in bin_starts if start not in required_starts]
        bin_starts.remove(min(removable_starts, key=lambda start: min(abs(start - cell) for cell in required_starts)))
    return bin_starts


def _even_bins(counts: Sequence[int], max_bins: int) -> list[int]:
    """Return the first cells of bins of about equal count, each with at least a quarter of an even bin's."""
    total, starts = max(0, sum(counts)), [0]
    remaining_count, bin_count = total, 0
    for cell, count in enumerate(counts[:-1]):
        bin_count += count
        bins = max_bins - len(starts) + 1
        if (
            total
            and bins > 1
            and bin_count * bins >= remaining_count
            and bin_count * max_bins * _MIN_BIN_DIVISOR >= total
        ):
            starts.append(cell + 1)
            remaining_count, bin_count = remaining_count - bin_count, 0
    return starts


_COUNTED_BATCH_ROWS = 1 << 17
"""Number of rows that are counted at a time, so that their cells stay in cache."""

_ITEM_COUNTERS: Mapping[str, type[Items]] = {"items": Items, "item_pairs": ItemPairs}

_MIN_ROWS_PER_CELL = 8
"""Rows per cell from which shared cells of several joints save time: cells are added up in the end."""


class Tables:
    """The tables of one release, from the codes of all of its rows."""

    def __init__(self, plan: Plan, key: bytes) -> None:
        self._cuts = Cuts(plan)
        self._spaces, self._ways = self._cuts.spaces, self._cuts.ways
        self._keys, self._measures = Keystream(key, plan.digest), plan.measures
        self._rules = plan.bound_rules
        measured_names = {name for measure in plan.measures for name in measure.columns}
        self._indicators = [group for group in plan.indicators if group.name in measured_names]
        self._finest_joints = {
            name: Joint((len(cells_between(space, size, 0, space.values)) + space.flag_codes,))
            for name, entry in self._cuts.levels.items()
            if entry
            for space, size in [(self._spaces[name], level_sizes(self._spaces[name])[-1])]
        }
        self._joints = {
            m: Joint(self._shape(m)) for m in plan.measures if m.kind in ("one_way", "joint") and m.level < 2
        }
        self._sums = {m: Total(self._spaces[m.columns[0]]) for m in plan.measures if m.kind == "sum"}
        self._items = {
            m: _ITEM_COUNTERS[m.kind](self._spaces[m.columns[0]], m.most, self.stream("cut", m.columns))
            for m in plan.measures
            if m.kind in _ITEM_COUNTERS
        }
        self._sizes = {m: SetSizes(self._spaces[m.columns[0]]) for m in plan.measures if m.kind == "sizes"}
        self._vectors = {
            m: Vectors(self._spaces[m.columns[0]], m.shape(self._spaces)[0])
            for m in plan.measures
            if m.kind == "vectors"
        }
        self._weight_sums = {
            m: WeightSums(self._spaces[m.columns[0]], self._cells_of_weights(m))
            for m in plan.measures
            if m.kind == "weights"
        }
        columns = {m: tuple((name, self._in_cells(m, name)) for name in m.columns) for m in self._joints}
        counted_columns = {entry for pairs in columns.values() for entry in pairs}
        self._counted_columns = sorted(
            counted_columns
            | {(name, False) for m in self._vectors for name in m.columns[1:]}
            | {(m.columns[1], self._in_cells(m, m.columns[1])) for m in self._weight_sums}
        )
        widths = {
            entry: width for m, j in self._joints.items() for entry, width in zip(columns[m], j.shape, strict=True)
        }
        cells = min(1 << 17, max(1 << 8, (plan.n or 1 << 20) // _MIN_ROWS_PER_CELL))
        joints = [(columns[m], joint) for m, joint in self._joints.items()]
        self._counting = JointCounting.of(widths, joints, cells)
        self._cells_by_code: dict[str, Places] = {}

    def stream(self, kind: str, columns: Sequence[str], level: int = 0) -> ColumnStream:
        """Return the noise stream of a table."""
        return self._keys.column(json.dumps([kind, *columns, *[level] * (level > 1)]), "measure")

    def _in_cells(self, measure: Measure, name: str) -> bool:
        """Return whether a column of a table is counted in cells that are not its codes."""
        way = self._ways.get(name)
        if way is None or not self._cuts.in_cells(measure, name):
            return False
        return bool(way.level) or is_cut(self._spaces[name], way.most)

    def _shape(self, measure: Measure) -> tuple[int, ...]:
        return tuple(
            self._ways[name].shape(self._spaces)[0]
            if self._cuts.in_cells(measure, name)
            else cell_count(self._spaces[name], 0)
            for name in measure.columns
        )

    def _cells_of_weights(self, measure: Measure) -> int:
        """Return the number of cells in which weights are added up, before cells are merged to bins."""
        name = measure.columns[1]
        if self._cuts.in_cells(measure, name):
            return self._ways[name].shape(self._spaces)[0]
        return cell_count(self._spaces[name], 0)

    def _find_places(self, name: str, codes: Codes, in_cells: bool) -> Places:
        """Return the cells of codes in the column's one-way, or the codes themselves."""
        if not in_cells:
            return codes
        way, space = self._ways[name], self._spaces[name]
        cells = (
            partial(place_of, space=space, size=way.most)
            if way.level
            else partial(cells_of, space=space, max_cells=way.most)
        )
        if len(codes) <= space.values:
            return cells(codes)
        # There are fewer codes than rows: the cell of each code is computed once.
        if name not in self._cells_by_code:
            self._cells_by_code[name] = cells(np.arange(space.size)).astype(np.uint16)
        return self._cells_by_code[name].take(codes)

    def add(self, codes: Mapping[str, Codes], rows: Rows) -> None:
        """Count rows; ``rows`` is the place of the first one in the table, or the place of each."""
        if not self._measures:
            return
        # `release` mends rows as well: tables and rows must describe equal values.
        codes = self._rules.mended(codes)
        if self._indicators:
            codes = {**codes, **{group.name: group.codes(codes).astype(np.uint16) for group in self._indicators}}
        count = len(next(iter(codes.values())))
        for start in range(0, count, _COUNTED_BATCH_ROWS):
            part = {name: column[start : start + _COUNTED_BATCH_ROWS] for name, column in codes.items()}
            cells = {
                (name, in_cells): self._find_places(name, part[name], in_cells)
                for name, in_cells in self._counted_columns
            }
            self._counting.add(cells)
            for name, finest_joint in self._finest_joints.items():
                finest_joint.add([place_of(part[name], self._spaces[name], level_sizes(self._spaces[name])[-1])])
            for measure, total in self._sums.items():
                total.add(part[measure.columns[0]])
            for measure, sizes in self._sizes.items():
                sizes.add(part[measure.columns[0]])
            for measure, weight_sums in self._weight_sums.items():
                weights, name = measure.columns
                weight_sums.add(part[weights], cells[name, self._in_cells(measure, name)])
            for measure, sums in self._vectors.items():
                first_column, *group_columns = measure.columns
                sums.add(
                    part[first_column],
                    cells[group_columns[0], False]
                    if group_columns
                    else np.zeros(len(part[first_column]), dtype=np.intp),
                )
        for measure, items in self._items.items():
            items.add(codes[measure.columns[0]], rows)

    @property
    def counts(self) -> list[Ints]:
        """The exact counts so far, for `merge`: as secret as the rows."""
        self._counting.settle()
        return [counter.counts for counter in self._counters]

    def merge(self, counts: Sequence[Ints]) -> None:
        """Add the `counts` of other rows, which another process counted."""
        for counter, other_counts in zip(self._counters, counts, strict=True):
            counter.counts += other_counts

    @property
    def _counters(self) -> list[Counter]:
        flat_counters = self._items, self._sizes, self._vectors, self._weight_sums
        kinds: tuple[Mapping[Any, Counter], ...] = (self._sums, self._joints, self._finest_joints, *flat_counters)
        return [counter for kind in kinds for counter in kind.values()]

    def measured(self) -> tuple[MeasuredTable, ...]:
        """Return the noisy tables, in the order of the plan's measures; called once, after all rows."""
        # Joints that are counted together get their own counts only here.
        self._counting.settle()
        one_ways = {
            m.columns[0]: noisy(joint.counts, m.sigma2, self.stream(m.kind, m.columns))
            for m, joint in self._joints.items()
            if m.kind == "one_way"
        }
        levels = {
            m: table
            for name in self._finest_joints
            for m, table in self._make_level_tables(name, one_ways[name]).items()
        }
        joint_columns = {(name, m.most) for m in self._joints if m.kind == "joint" for name in m.columns}
        joint_columns |= {(m.columns[1], m.most) for m in self._weight_sums}
        bins = {(name, max_bins): self._cuts.bins(name, max_bins, one_ways) for name, max_bins in joint_columns}
        return tuple(levels.get(measure) or self._make_table(measure, one_ways, bins) for measure in self._measures)

    def _make_level_tables(self, name: str, one_way: Ints) -> dict[Measure, MeasuredTable]:
        """Return the tables of a number's levels above the first; cells above the noise are divided."""
        space, tables = self._spaces[name], {}
        size = level_sizes(space)[-1]
        cumulative_counts = np.concatenate([[0], np.cumsum(self._finest_joints[name].counts)])
        coarser_measure, starts, counts = self._ways[name], self._cuts.first(name), one_way
        for measure in self._cuts.levels[name]:
            parents = self._cuts.parents(coarser_measure, starts, counts)
            starts = children(space, measure.level, parents)
            stops = stops_of(space, measure.most, starts)
            # Ends of each cell among the finest cells; the last finest cells are those of the flag's codes.
            last_end = len(cumulative_counts) - 1 - space.flag_codes
            ends = np.where(stops < space.values, place_of(np.minimum(stops, space.values - 1), space, size), last_end)
            cell_counts = cumulative_counts[ends] - cumulative_counts[place_of(starts, space, size)]
            counts = noisy(cell_counts, measure.sigma2, self.stream(measure.kind, measure.columns, measure.level))
            tables[measure] = MeasuredTable(measure, (tuple(parents),), counts)
            coarser_measure = measure
        return tables

    def _make_table(
        self, measure: Measure, one_ways: Mapping[str, Ints], bins: Mapping[tuple[str, int], list[int] | None]
    ) -> MeasuredTable:
        stream, first_column = self.stream(measure.kind, measure.columns), measure.columns[0]
        if measure.kind == "one_way":
            return MeasuredTable(measure, (self._cuts.starts(measure, first_column, None),), one_ways[first_column])
        # Totals that get noise without binning.
        counter = {**self._sums, **self._items, **self._sizes, **self._vectors}.get(measure)
        if counter is not None:
            return MeasuredTable(measure, (None,) * len(measure.columns), noisy(counter.counts, measure.sigma2, stream))
        is_of_weights = measure.kind == "weights"
        cell_counter: Counter = self._weight_sums[measure] if is_of_weights else self._joints[measure]
        exact_counts, starts = cell_counter.counts, list[tuple[int, ...] | None]()
        # Weights themselves have no cells.
        starts += [None] * is_of_weights
        for axis, name in enumerate(measure.columns[is_of_weights:]):
            bin_cells = bins[name, measure.most]
            if bin_cells is not None:
                # Special values and null stay cells of their own.
                cell_count = exact_counts.shape[axis]
                cells = [*bin_cells, *range(cell_count - self._spaces[name].flag_codes, cell_count)]
                exact_counts = np.add.reduceat(exact_counts, cells, axis=axis)
            starts.append(self._cuts.starts(measure, name, bin_cells))
        return MeasuredTable(measure, tuple(starts), noisy(exact_counts, measure.sigma2, stream))


def measured_tables(codes: Mapping[str, Codes], plan: Plan, key: bytes) -> tuple[MeasuredTable, ...]:
    """Return the noisy tables of all rows of a table in memory."""
    if not plan.measures:
        return ()
    tables = Tables(plan, key)
    tables.add(codes, 0)
    return tables.measured()
