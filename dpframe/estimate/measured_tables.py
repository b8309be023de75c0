"""Measured tables of a release by its columns' names: checks, combination, and laws of single columns.

A table that does not fit the release is omitted with a warning. It must have the right shape, and its total must be the
number of rows plus noise. Without tables, estimates use only the rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import ClassVar

import numpy as np

from dpframe.errors import AlteredReleaseWarning, warn
from dpframe.estimate.axes import Axis, BinnedAxis, IndicatorAxis, ListedAxis, UnreleasedAxis, make_axis
from dpframe.estimate.column_evidence import ColumnEvidence
from dpframe.estimate.evidence.combine import project
from dpframe.estimate.evidence.law import Known, RowsLaw
from dpframe.estimate.evidence.number_law import NumberLaw, NumberPair
from dpframe.estimate.surrogates import count_classes
from dpframe.estimate.table_column import TableColumn, quantile_bins
from dpframe.observe.noisy_counts import NoisyCounts, pool, through
from dpframe.plan.columns import Column
from dpframe.plan.indicators import Indicators
from dpframe.plan.levels import children, has_levels, level_sizes
from dpframe.plan.measures import OF_SETS, MeasuredTable
from dpframe.release.reader import Source
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import affine_map, forwarded
from dpframe.totals.weight_sums import WeightSteps

COUNTED = ("one_way", "joint")
"""Kinds whose counts add up to the number of rows."""

MAX_EXACT_FIT_VALUES = 64
"""Values up to which an unmeasured column enters a fit value by value (limit of time)."""

FINE_CELLS = 128
"""Cells of a number's distribution in a fit to only the rows (limit of time)."""

MAX_TOTAL_DEVIATION_SD = 6.0
"""Standard deviations of a table's total beyond which the table is another release's (theory: 2e-9 of a normal law)."""


def _is_consistent(table: MeasuredTable, columns_by_name: Mapping[str, Column], rows: int) -> bool:
    measure, shape = table.measure, table.counts.shape
    if not columns_by_name.keys() >= set(measure.columns):
        return False
    columns = [columns_by_name[name] for name in measure.columns]
    spaces, first = {column.name: column.space for column in columns}, columns[0].space
    if measure.kind == "sum":
        return first.is_numeric and table.counts.size == 1
    if measure.kind == "vectors":
        return first.holds_vectors and shape == measure.shape(spaces)
    if measure.kind in OF_SETS:
        return first.holds_sets and shape == measure.shape(spaces)
    if measure.kind == "weights":
        return _has_ascending_starts(table.starts[1], columns[1]) and shape == (
            _make_axes(replace(table, starts=table.starts[1:]), columns[1:])[0].cells,
        )
    if measure.level > 1:
        known_level = has_levels(first) and measure.level <= len(level_sizes(first)) and len(table.starts) == 1
        return known_level and shape == (len(children(first, measure.level, table.starts[0] or ())),)
    if len(table.starts) != len(columns) or any(column.space.code_words for column in columns):
        return False
    if not all(_has_ascending_starts(starts, column) for starts, column in zip(table.starts, columns, strict=True)):
        return False
    if shape != tuple(axis.cells for axis in _make_axes(table, columns)):
        return False
    return abs(float(table.counts.sum()) - rows) <= MAX_TOTAL_DEVIATION_SD * math.sqrt(
        measure.sigma2 * table.counts.size
    )


def _has_ascending_starts(starts: tuple[int, ...] | None, column: Column) -> bool:
    if starts is None:
        # Longer lists of values would exhaust memory.
        return column.space.size <= 1 << 22
    codes = np.asarray(starts)
    rising = len(codes) > 0 and codes[0] == 0 and bool((np.diff(codes) > 0).all())
    return rising and int(codes[-1]) < column.space.values and column.space.is_numeric


def _make_axes(table: MeasuredTable, columns: Sequence[Column], unreleased: Collection[str] = ()) -> tuple[Axis, ...]:
    return tuple(
        UnreleasedAxis(column)
        if column.name in unreleased
        else ListedAxis(column)
        if starts is None
        else BinnedAxis(column, (*(int(start) for start in starts), column.space.values), (), pooled=True)
        for column, starts in zip(columns, table.starts, strict=True)
    )


class MeasuredTables:
    """The tables of a release, and laws of its columns from tables, rows, and counts of inference."""

    def __init__(
        self, source: Source, tables: Sequence[MeasuredTable], inference: ColumnEvidence | None = None
    ) -> None:
        self.source, self.inference = source, inference or ColumnEvidence.of(source)
        self.columns = {column.name: column for column in source.plan.columns} | {
            # No row is released of them: the channel is a formality.
            group.name: Column.calibrated(group.name, group.space, 1.0, 0.0)
            for group in source.plan.indicators
        }
        columns = self.columns
        self.tables = tuple(table for table in tables if _is_consistent(table, columns, source.rows))
        omissions = len(tables) - len(self.tables)
        if omissions:
            warn(
                f"{omissions} of {len(tables)} measured tables do not fit the release and are left out; estimate on "
                "the release as it was written",
                AlteredReleaseWarning,
            )
        measured_names = {name for table in self.tables for name in table.measure.columns}
        self.indicators = tuple(group for group in source.plan.indicators if group.name in measured_names)
        self._expanded_tables: dict[tuple[int, tuple[str, ...]], NoisyCounts] = {}
        self._members: dict[str, TableColumn | None] = {}
        self._laws: dict[str, NumberLaw | None] = {}

    def __bool__(self) -> bool:
        # Counts of rows by cell may have another source than the release's tables.
        return bool(self.tables or self.counted)

    rows: ClassVar[int] = forwarded("source.rows")

    @cached_property
    def counted(self) -> list[NoisyCounts]:
        """The tables whose counts add up to the number of rows, 0 in cells that rules exclude.

        Every statistic reads counts of rows by cell from this list; another source of counts adds to the list.
        """
        counted_tables, rules, missing = [], self.source.plan.bound_rules, set(self.source.missing)
        for table in self.tables:
            measure = table.measure
            if measure.kind not in COUNTED or measure.level > 1 or set(measure.columns) & missing:
                continue
            unreleased = {group.name for group in self.indicators}
            axes = _make_axes(table, [self.columns[name] for name in measure.columns], unreleased)
            excluded = rules.impossible({a.name: a.stretches for a in axes}) if rules.rules else None
            counts = (table.counts if excluded is None else np.where(excluded, 0, table.counts)).astype(np.float64)
            counted_tables.append(NoisyCounts(measure.columns, counts, measure.sigma2, axes))
        return counted_tables

    @cached_property
    def _table_places(self) -> Mapping[str, set[int]]:
        """The places of the tables that count a column, or the group of an indicator."""
        places: dict[str, set[int]] = defaultdict(set)
        for i, one in enumerate(self.counted):
            for name in one.columns:
                places[name].add(i)
        for name, group in self.homes.items():
            places[name] |= places[group.name]
        return places

    def holding(self, names: Sequence[str]) -> list[NoisyCounts]:
        """Return the tables that hold all of some columns."""
        places = set.intersection(*(self._table_places[name] for name in names))
        return [self._expand(place, names) for place in sorted(places)]

    def touching(self, names: Iterable[str]) -> list[NoisyCounts]:
        """Return the tables that hold one of some columns."""
        names = list(names)
        places = set[int]().union(*(self._table_places[name] for name in names))
        return [self._expand(place, names) for place in sorted(places)]

    @cached_property
    def homes(self) -> Mapping[str, Indicators]:
        """The group of each indicator that tables count with others as one column."""
        return {name: group for group in self.indicators for name in group.columns}

    def merged_names(self, names: Iterable[str]) -> list[str]:
        """Return names of columns with the one that tables count in place of each indicator, each once."""
        return list(dict.fromkeys(self.homes[name].name if name in self.homes else name for name in names))

    def _expand(self, place: int, names: Sequence[str]) -> NoisyCounts:
        """Return a table with the indicators among names in place of the column that counts them together."""
        table, all_names = self.counted[place], tuple[str, ...]()
        for group in self.indicators:
            indicator_names = tuple(name for name in group.columns if name in names)
            if not indicator_names or group.name not in table.columns:
                continue
            all_names = (*all_names, *indicator_names)
            if (place, all_names) not in self._expanded_tables:
                self._expanded_tables[place, all_names] = self._split_indicators(table, group, indicator_names)
            table = self._expanded_tables[place, all_names]
        return table

    def _split_indicators(self, table: NoisyCounts, group: Indicators, names: Sequence[str]) -> NoisyCounts:
        """Return the counts of a group's values as counts of some of its indicators, with an axis for each."""
        position, matrix = table.columns.index(group.name), group.onto(names)
        flat_matrix = matrix.reshape(-1, matrix.shape[-1])
        counts, variances = (through(flat_matrix, values, position) for values in (table.counts, table.variances))
        # The rule leaves some cells without rows; a count of 0 needs a variance above 0.
        variances = np.where(variances > 0, variances, variances.max())
        shape = (*counts.shape[:position], *[2] * len(names), *counts.shape[position + 1 :])
        columns, axes = (
            (*own[:position], *split, *own[position + 1 :])
            for own, split in (
                (table.columns, names),
                (table.axes, [ListedAxis(self.columns[name]) for name in names]),
            )
        )
        return NoisyCounts(columns, counts.reshape(shape), variances.reshape(shape), axes)

    def piles(self, name: str) -> tuple[Known | None, Known | None]:
        """Return the numbers of rows at the lower and the upper bound of a number, and their variances."""
        bound_rows: list[Known | None] = [None, None]
        last = self.source.column(name).space.values - 1
        for one in self.holding([name]):
            if one.columns == (name,):
                starts, stops = one.axes[0].stretches
                for side, code in enumerate((0, last)):
                    cell = np.flatnonzero((starts == code) & (stops == code + 1))
                    if len(cell):
                        bound_rows[side] = float(one.counts[cell[0]]), float(one.variances[cell[0]])
        return bound_rows[0], bound_rows[1]

    def source_of(self, names: Sequence[str]) -> str:
        """Return the source of a joint of columns: ``"tables"``, ``"rows"``, or ``"both"``."""
        groups: list[tuple[str, ...]] = [*combinations(names, 2)] or [tuple(names)]
        has_table = [bool(self.holding(group)) for group in groups]
        return "tables" if all(has_table) else "both" if any(has_table) else "rows"

    def raw(self, axes: Sequence[Axis]) -> NoisyCounts | None:
        """Return the unbiased counts of the cells of axes, or None if they were not measured.

        Counts of several tables are weighted by precision, which the plan states.
        """
        names = [axis.name for axis in axes]
        tables = [one.sum_to(names).merge_cells(axes) for one in self.holding(names)]
        whole_cells = [table for table in tables if table is not None]
        return pool(whole_cells) if whole_cells else None

    def of_kind(self, kind: str, column: str) -> MeasuredTable | None:
        """Return the measured sum, items, item pairs or sizes of a column, or None."""
        return next((t for t in self.tables if t.measure.kind == kind and t.measure.columns == (column,)), None)

    def weight_sums(self, weights: str, name: str) -> tuple[Axis, FloatArray, FloatArray] | None:
        """Return the measured sums of weights by a column's cells, less the offset of each row, and their variances.

        Sums and variance are in the weights' unit. The cells of a column that counts an indicator are added up.
        """
        group = self.homes.get(name)
        columns = (weights, name if group is None else group.name)
        table = next((t for t in self.tables if t.measure.kind == "weights" and t.measure.columns == columns), None)
        if table is None:
            return None
        steps, unit = WeightSteps.of(self.columns[weights].space), affine_map(self.columns[weights].space)[1]
        (axis,) = _make_axes(replace(table, starts=table.starts[1:]), [self.columns[columns[1]]])
        sums = np.asarray(table.counts * (unit / steps.scale), dtype=np.float64)
        variances = np.full(len(sums), table.measure.sigma2 * (unit / steps.scale) ** 2)
        if group is None:
            return axis, sums, variances
        matrix = group.onto([name])
        return ListedAxis(self.columns[name]), matrix @ sums, matrix @ variances

    def pair(self, one: str, other: str) -> NumberPair | None:
        """Return the measured pair of two numbers without nulls, or None."""
        tables = self.holding([one, other])
        if not tables:
            return None
        axes = [tables[0].axis(name) for name in (one, other)]
        table, first, second = self.raw(axes), self.law(one), self.law(other)
        if table is None or first is None or second is None:
            return None
        value_slices = tuple(slice(0, axis.cells - axis.flag_codes) for axis in axes)
        x, y = (
            np.searchsorted(axis.starts, law.starts, side="right") - 1
            for axis, law in zip(axes, (first, second), strict=True)
        )
        return NumberPair((first, second), (x, y), table.counts[value_slices], table.variances[value_slices])

    # Single columns

    def member(self, name: str) -> TableColumn | None:
        """Return a column as fits use it, or None if fits omit it."""
        if name not in self._members:
            column = self.columns[name]
            is_omitted = name in self.source.missing or column.space.code_words
            self._members[name] = None if is_omitted else self._make_column(column)
        return self._members[name]

    def indicator_member(self, name: str) -> TableColumn | None:
        """Return an indicator by the cells of the column that counts it with others, for a fit of no other of them."""
        group = self.homes[name]
        member = self.member(group.name)
        if member is None:
            return None
        axis = IndicatorAxis(self.columns[group.name], listed=ListedAxis(self.columns[name]), onto=group.onto([name]))
        return replace(member, axis=axis)

    def _make_column(self, column: Column) -> TableColumn | None:
        tables = self.holding([column.name])
        coarse = next((one.axis(column.name) for one in tables if len(one.columns) > 1), None)
        one_ways = [one for one in tables if len(one.columns) == 1]
        if coarse is None and not one_ways:
            if column.space.size <= MAX_EXACT_FIT_VALUES:
                axis: Axis = ListedAxis(column)
                return TableColumn(axis, np.arange(axis.cells), np.full(axis.cells, 1 / axis.cells))
            if not column.space.is_numeric or column.space.is_listed:
                return None
            grid = make_axis(column, min(FINE_CELLS, column.space.values)).for_fits
            assert isinstance(grid, BinnedAxis)
            shares = RowsLaw.of(grid.channel, count_classes([grid], self.source.codes([column.name]))).shares
            return TableColumn(grid, quantile_bins(shares * self.source.n, grid.flag_codes), shares)
        if not one_ways or (coarse is not None and not one_ways[0].axes[0].refines(coarse)):
            assert coarse is not None
            return TableColumn(coarse, np.arange(coarse.cells), coarse.volumes / coarse.volumes.sum())
        if column.space.is_numeric and not column.space.is_listed and column.name not in self.homes:
            return self._make_number_column(column, one_ways, coarse)
        fine, counts = one_ways[0].axes[0], one_ways[0].counts
        return TableColumn(fine, np.arange(fine.cells), project(counts / max(float(counts.sum()), 1.0)))

    def _make_number_column(self, column: Column, one_ways: Sequence[NoisyCounts], coarse: Axis | None) -> TableColumn:
        """Return a number's column in fits, with the cells that its levels distinguish."""
        levels = [t for t in self.tables if t.measure.columns == (column.name,) and t.measure.level > 1]
        finer = {table.measure.level: table.to_observation(column.space) for table in levels}
        law = NumberLaw.of(column.space, float(self.rows), one_ways[0].by_code, finer)
        axis = BinnedAxis(column, (*law.starts.tolist(), column.space.values), (), pooled=True)
        for one in one_ways[1:]:
            # Cells of another one-way may cut cells of the number.
            law = law.condition_on((one.merge_cells([axis]) or one).to_observation(axis))
        inferred = self.inference.counted(axis, parts=True)
        if inferred is not None:
            law = law.condition_on(inferred.linearise(law.positive))
        if coarse is not None and axis.refines(coarse):
            bins = axis.overlap_with(coarse).argmax(axis=0)
        else:
            bins = quantile_bins(law.positive, axis.flag_codes)
        return TableColumn(axis, bins, law.shares, law)

    def law(self, name: str) -> NumberLaw | None:
        """Return a number's law from all of its measured tables, pairs and its sum included, or None."""
        if name not in self._laws:
            member = self.member(name) if self.holding([name]) else None
            self._laws[name] = None if member is None else self._combine_law(member)
        return self._laws[name]

    def _combine_law(self, member: TableColumn) -> NumberLaw | None:
        if member.law is not None:
            law = member.law
            name, axis = member.axis.name, member.axis
            for one in self.holding([name]):
                if len(one.columns) > 1:
                    law = law.condition_on(one.sum_to([name]).to_observation(axis))
            sum_table = self.of_kind("sum", name)
            if sum_table is not None:
                law = law.with_sum(float(sum_table.counts.ravel()[0]), sum_table.measure.sigma2)
            return law.smooth_tails(member.bins)
        space = member.axis.column.space
        # True and False are counted by value, mostly in pairs, and have no levels.
        has_values_alone = space.is_numeric and (space.is_listed or member.axis.name in self.homes)
        counts = self.raw([member.axis]) if has_values_alone else None
        if counts is None:
            return None
        law = NumberLaw.of_values(space, float(self.rows), counts.counts, counts.variances)
        # The count of an indicator's true rows is the sum of its codes.
        is_indicator = member.axis.name in self.homes
        return replace(law, total=(float(law.rows[1]), float(law.covariance[1, 1]))) if is_indicator else law
