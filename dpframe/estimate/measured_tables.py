"""Measured tables of a release by its columns' names: checked, combined into raw counts, and as evidence for a fit.

A table that does not fit the release (its shape, or its total, which is the number of rows plus noise) is left out with
a warning: estimates are then from rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, reduce
from itertools import combinations

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.errors import AlteredReleaseWarning, warn
from dpframe.estimate.axes import Axis, BinnedAxis, ListedAxis, MemberAxis, make_axis
from dpframe.estimate.column_evidence import ColumnEvidence
from dpframe.estimate.likelihood import expectation_maximization, project_to_simplex
from dpframe.estimate.noise_block import NoiseBlock
from dpframe.estimate.surrogates import count_classes, count_pairs
from dpframe.estimate.table_column import (
    TableColumn,
    as_bins,
    code_stretches,
    first_codes,
    into_cells,
    middle_codes,
    quantile_bins,
    same_cells,
    tilt_to_mean,
)
from dpframe.estimate.tables.bootstrap import Fitted
from dpframe.estimate.tables.tables import SHOWS, Evidence, Table, dependence_score, merged, row_table
from dpframe.evidence.combine import Observation
from dpframe.evidence.law import RowsLaw
from dpframe.evidence.number_law import NumberLaw, NumberPair
from dpframe.plan.columns import Column
from dpframe.plan.levels import children, has_levels, level_sizes
from dpframe.plan.measures import KINDS, MeasuredTable
from dpframe.tables.released import Source

COUNTED = ("one_way", "joint")
"""Kinds whose counts add up to the number of rows."""

FEW_VALUES = 64
"""Columns of no more values enter a fit as they are, where no table says how."""

FINE_CELLS = 128
"""Cells of a number's distribution that is fitted to rows alone."""

UNLIKELY = 6.0
"""Standard deviations of a table's total beyond which it is another release's."""

MOST_PAIR_CELLS = 1 << 16
"""Classes of a pair up to which its rows are counted for a fit."""

MOST_COUNTED = 1 << 23
"""Classes of pairs whose rows are counted in one pass."""

MOST_ROW_PAIRS = 300
"""Pairs of a wide table of which the rows alone tell a fit: those that show dependence most."""

_UNKNOWN = 1e9
"""The standard deviation of a count that was not made."""

MOST_FITTED = 15
"""Columns that a question's fit has at most: of wider tables those asked for, and the others that depend on them most.

On Adult's nine columns pairs err by 0.035 (L1) with all of them and by 0.042 where each pair is fitted alone.
"""


def usable_tables(tables: Sequence[MeasuredTable], source: Source) -> tuple[MeasuredTable, ...]:
    """Return the tables that fit the release's columns and rows; warn of others."""
    columns = {column.name: column for column in source.plan.columns}
    kept = tuple(table for table in tables if _fits(table, columns, source.rows))
    if len(kept) < len(tables):
        left = len(tables) - len(kept)
        warn(
            f"{left} measured table{'s' * (left > 1)} of {len(tables)} do not fit the release, by shape or total, "
            "and are left out; estimate on the release as it was written",
            AlteredReleaseWarning,
        )
    return kept


def _fits(table: MeasuredTable, known: Mapping[str, Column], rows: int) -> bool:
    measure, names = table.measure, table.measure.columns
    if measure.kind not in KINDS or not names or len(known.keys() & set(names)) < len(names):
        return False
    if not (math.isfinite(measure.sigma2) and measure.sigma2 > 0):
        return False
    columns = [known[name] for name in names]
    if measure.kind == "sum":
        return len(names) == 1 and columns[0].space.is_numeric and table.counts.size == 1
    if measure.kind == "items":
        space = columns[0].space
        return len(names) == 1 and space.holds_sets and table.counts.shape == (_items(columns[0]),)
    if measure.kind == "vectors":
        spaces = {column.name: column.space for column in columns}
        return columns[0].space.holds_vectors and table.counts.shape == measure.shape(spaces)
    if measure.level > 1:
        return _divides(table, columns[0])
    if len(table.starts) != len(names) or any(column.space.code_words for column in columns):
        return False
    if not all(_ascends(starts, column) for starts, column in zip(table.starts, columns, strict=True)):
        return False
    if table.counts.shape != tuple(axis.cells for axis in _axes_of(table, columns)):
        return False
    return abs(float(table.counts.sum()) - rows) <= UNLIKELY * math.sqrt(measure.sigma2 * table.counts.size)


def _divides(table: MeasuredTable, column: Column) -> bool:
    """Tell whether a level above the first has the counts of its cells."""
    space = column.space
    if not has_levels(space) or table.measure.level > len(level_sizes(space)) or len(table.starts) != 1:
        return False
    return table.counts.shape == (len(children(space, table.measure.level, table.starts[0] or ())),)


def _items(column: Column) -> int:
    space = column.space.inner_space
    return int(getattr(space, "count", -1))


def _ascends(starts: tuple[int, ...] | None, column: Column) -> bool:
    if starts is None:
        return column.space.size <= 1 << 22
    found = np.asarray(starts)
    rising = len(found) > 0 and found[0] == 0 and bool((np.diff(found) > 0).all())
    return rising and int(found[-1]) < column.space.values and column.space.is_numeric


def _axes_of(table: MeasuredTable, columns: Sequence[Column]) -> list[Axis]:
    return [_axis(column, starts) for column, starts in zip(columns, table.starts, strict=True)]


def _axis(column: Column, starts: Sequence[int] | None) -> Axis:
    if starts is None:
        return ListedAxis(column)
    return BinnedAxis(column, (*(int(start) for start in starts), column.space.values), (), pooled=True)


class MeasuredTables:
    """The tables of a release, and what follows from them, from its rows, and from the counts of its inference."""

    def __init__(
        self, source: Source, tables: Sequence[MeasuredTable], inference: ColumnEvidence | None = None
    ) -> None:
        self._source, self._inference = source, inference
        self._members: dict[str, TableColumn | None] = {}
        self.tables = usable_tables(tables, source)
        columns, rules = {column.name: column for column in source.plan.columns}, source.plan.bound_rules
        self._counted: list[tuple[MeasuredTable, list[Axis]]] = []
        for table in self.tables:
            names = table.measure.columns
            if table.measure.kind in COUNTED and table.measure.level < 2 and not set(names) & set(source.missing):
                axes = _axes_of(table, [columns[name] for name in names])
                # Cells that rules exclude are 0.
                never = rules.impossible({a.name: code_stretches(a) for a in axes}) if rules.rules else None
                counts = table.counts if never is None else np.where(never, 0, table.counts)
                self._counted.append((replace(table, counts=counts), axes))
        self._laws: dict[str, NumberLaw] = {}
        self._among: frozenset[str] | None = None
        self._smaller: dict[frozenset[str], MeasuredTables] = {}

    def __bool__(self) -> bool:
        return bool(self.tables)

    @property
    def rows(self) -> int:
        """Rows of the original table."""
        return self._source.rows

    def raw(self, axes: Sequence[Axis]) -> tuple[FloatArray, FloatArray] | None:
        """Return the counts of the cells of axes and their variances, unbiased, or None where they were not measured.

        What several tables say is weighted by precision, which the plan tells.
        """
        weights, sums = np.zeros([axis.cells for axis in axes]), np.zeros([axis.cells for axis in axes])
        for counts, variances in self._seen(axes):
            weights, sums = weights + 1 / variances, sums + counts / variances
        if not weights.any():
            return None
        return sums / weights, 1 / weights

    def cell_counts(self, axis: Axis) -> Observation | None:
        """Return the raw counts of a column's cells, or None where they were not measured."""
        found = self.raw([axis])
        if found is None:
            return None
        return Observation(np.eye(axis.cells), *found)

    def _seen(self, axes: Sequence[Axis]) -> Iterator[tuple[FloatArray, FloatArray]]:
        names = [axis.name for axis in axes]
        for table, own in self._holding(names):
            order = [table.measure.columns.index(name) for name in names]
            others = tuple(i for i in range(len(own)) if i not in order)
            kept = [i for i in range(len(own)) if i in order]
            turned = [kept.index(i) for i in order]
            merges = [
                (place, into_cells(own[i], axis))
                for place, (i, axis) in enumerate(zip(order, axes, strict=True))
                if not same_cells(own[i], axis)
            ]
            known = [(place, merge) for place, merge in merges if merge is not None]
            if len(known) < len(merges):
                continue
            counts = table.counts.astype(np.float64).sum(axis=others).transpose(turned)
            size = math.prod(own[i].cells for i in others)
            variances = np.full(counts.shape, table.measure.sigma2 * size)
            for place, merge in known:
                counts = np.moveaxis(np.tensordot(merge, counts, axes=(1, place)), 0, place)
                variances = np.moveaxis(np.tensordot(merge, variances, axes=(1, place)), 0, place)
            yield counts, variances

    def raw_of(self, names: Sequence[str], parts: Sequence[FloatArray]) -> tuple[float, float] | None:
        """Return the measured number of rows in parts of the fit's cells, and its variance, or None where it was not.

        What several tables say is weighted by precision.
        """
        weights = sums = 0.0
        tables = self.around(names)
        places = tables.places(names)
        for table in tables.evidence.tables:
            if not set(places) <= set(table.columns):
                continue
            own = table.sum_to(places)
            inside = reduce(np.multiply.outer, parts)
            variance = float((own.variances * inside**2).sum())
            if 0 < variance < _UNKNOWN:
                weights, sums = weights + 1 / variance, sums + float((own.counts * inside).sum()) / variance
        return (sums / weights, 1 / weights) if weights else None

    def of_kind(self, kind: str, column: str) -> MeasuredTable | None:
        """Return the sum or the items of a column, where they were measured."""
        return next((t for t in self.tables if t.measure.kind == kind and t.measure.columns == (column,)), None)

    def told(self, names: Sequence[str]) -> str:
        """Tell where a joint of columns is from: ``"tables"``, ``"rows"``, or ``"both"``."""
        groups: list[tuple[str, ...]] = [*combinations(names, 2)] or [tuple(names)]
        known = [bool(self._holding(group)) for group in groups]
        return "tables" if all(known) else "both" if any(known) else "rows"

    def pair(self, one: str, other: str) -> NumberPair | None:
        """Return what was measured of two numbers together, where neither is null."""
        held = self._holding([one, other])
        if not held:
            return None
        table, axes = held[0]
        own = [axes[table.measure.columns.index(name)] for name in (one, other)]
        found, first, second = self.raw(own), self.law(one), self.law(other)
        if found is None or first is None or second is None:
            return None
        kept = tuple(slice(0, axis.cells - axis.has_null) for axis in own)
        x, y = (
            np.searchsorted(first_codes(axis), law.starts, side="right") - 1
            for axis, law in zip(own, (first, second), strict=True)
        )
        return NumberPair((first, second), (x, y), found[0][kept], found[1][kept])

    @cached_property
    def _by_column(self) -> dict[str, set[int]]:
        """Places of the tables that hold each column."""
        found: dict[str, set[int]] = {}
        for i, (table, _) in enumerate(self._counted):
            for name in table.measure.columns:
                found.setdefault(name, set()).add(i)
        return found

    def _holding(self, names: Sequence[str]) -> list[tuple[MeasuredTable, list[Axis]]]:
        """Return the tables that hold all of some columns."""
        places = set.intersection(*(self._by_column.get(name, set()) for name in names))
        return [self._counted[place] for place in sorted(places)]

    def _touching(self, names: Iterable[str]) -> list[tuple[MeasuredTable, list[Axis]]]:
        """Return the tables that hold one of some columns."""
        places = set[int]().union(*(self._by_column.get(name, set()) for name in names))
        return [self._counted[place] for place in sorted(places)]

    # The fit

    @cached_property
    def columns(self) -> dict[str, TableColumn]:
        """The columns of the fit, in the plan's order: those of few values, and those that were measured or cut."""
        among = [
            column.name for column in self._source.plan.columns if self._among is None or column.name in self._among
        ]
        members = {name: self.member(name) for name in among}
        return {name: member for name, member in members.items() if member is not None}

    @cached_property
    def of_few_values(self) -> list[str]:
        """Columns of few values."""
        columns = [c for c in self._source.plan.columns if c.space.size <= FEW_VALUES and not c.space.code_words]
        return [column.name for column in columns if column.name not in self._source.missing]

    @cached_property
    def _eligible(self) -> list[str]:
        """Columns that a fit may have: all that tables may hold; those of few values where rows alone tell."""
        if not self:
            return self.of_few_values
        columns = [column for column in self._source.plan.columns if not column.space.code_words]
        return [column.name for column in columns if column.name not in self._source.missing]

    def around(self, names: Sequence[str]) -> MeasuredTables:
        """Return the tables with a fit of no more columns than answer for these: all of them where they are few."""
        if self._among is not None:
            return self
        if len(self._eligible) <= max(MOST_FITTED, len(names)):
            return self if self else self._limited({*names, *self._eligible})
        return self._limited({*names, *self._nearest(names, MOST_FITTED - len(names))})

    def among(self, names: Sequence[str]) -> MeasuredTables:
        """Return the tables with a fit of these columns alone, of wide tables; of narrow ones with all."""
        return self._limited(set(names)) if self._is_wide else self

    @property
    def _is_wide(self) -> bool:
        return self._among is None and len(self._source.plan.names) > MOST_FITTED

    def _limited(self, names: set[str]) -> MeasuredTables:
        key = frozenset(names)
        if key not in self._smaller:
            # What is known of single columns is shared.
            found = copy(self)
            for fit in ("columns", "names", "evidence", "fitted"):
                found.__dict__.pop(fit, None)
            found._among = key
            self._smaller[key] = found
        return self._smaller[key]

    def _nearest(self, names: Sequence[str], most: int) -> list[str]:
        """Return other columns that depend on these, those first that show it most."""
        scores: dict[str, float] = {}
        for pair, score in self._scores(names):
            other = pair[1] if pair[0] in names else pair[0]
            scores[other] = max(scores.get(other, SHOWS), score)
        showing = [name for name, score in scores.items() if score > SHOWS and self.member(name) is not None]
        return sorted(showing, key=lambda name: -scores[name])[:most]

    def _scores(self, names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield how far pairs of one of these columns and another are from independence, by tables or by rows."""
        if not self:
            axes = {name: make_axis(self._source.column(name), None) for name in {*self._eligible, *names}}
            wanted = [(a, b) for a in names for b in self._eligible if b not in names]
            counted = count_pairs(axes, wanted, self._source.codes(list(axes)))
            yield from ((pair, dependence_score(counts)) for pair, counts in counted.items())
        for table, _ in self._touching(names):
            pair = table.measure.columns
            if len(pair) == 2 and len(set(pair) & set(names)) == 1:
                noise = np.full(table.counts.shape, table.measure.sigma2)
                yield pair, dependence_score(table.counts.astype(np.float64), noise)

    def member(self, name: str) -> TableColumn | None:
        """Return one column of the fit, or None for one that has no part in it."""
        if name not in self._members:
            column = self._source.plan[name]
            outside = name in self._source.missing or column.space.code_words
            self._members[name] = None if outside else self._column(column)
        return self._members[name]

    def _column(self, column: Column) -> TableColumn | None:
        mine = [(table, axes[table.measure.columns.index(column.name)]) for table, axes in self._holding([column.name])]
        coarse = next((axis for table, axis in mine if table.measure.kind == "joint"), None)
        one_way = next(((table, axis) for table, axis in mine if table.measure.kind == "one_way"), None)
        if coarse is None and one_way is None:
            return self._unmeasured(column)
        if coarse is not None and (one_way is None or into_cells(one_way[1], coarse) is None):
            return TableColumn(coarse, np.arange(coarse.cells), coarse.volumes / coarse.volumes.sum())
        assert one_way is not None
        own, fine = one_way
        if column.space.is_numeric and not column.space.is_listed:
            return self._number(column, own, coarse)
        counts = own.counts.astype(np.float64)
        return TableColumn(fine, np.arange(fine.cells), project_to_simplex(counts / max(float(counts.sum()), 1.0)))

    def _number(self, column: Column, own: MeasuredTable, coarse: Axis | None) -> TableColumn:
        """Return a number's column of the fit: its cells are those that its levels tell apart."""
        finer = sorted(
            (t for t in self.tables if t.measure.columns == (column.name,) and t.measure.level > 1),
            key=lambda table: table.measure.level,
        )
        law = NumberLaw.of(column.space, float(self._source.rows), own, finer)
        axis = BinnedAxis(column, (*law.starts.tolist(), column.space.values), (), pooled=True)
        more = None if self._inference is None else self._inference.counted(axis, parts=True)
        if more is not None:
            law = law.told(more.about(law.positive))
        merge = None if coarse is None else into_cells(axis, coarse)
        bins = quantile_bins(law.positive, axis.has_null) if merge is None else merge.argmax(axis=0)
        return TableColumn(axis, bins, law.shares, law)

    def law(self, name: str) -> NumberLaw | None:
        """Return how a number's rows are spread, from all that was measured of it, pairs and its sum included."""
        if name not in self._laws:
            member = self.member(name)
            if member is None or member.law is None:
                return None
            axis, law = as_bins(member.axis), member.law
            for table, axes in self._holding([name]):
                if len(axes) > 1:
                    law = law.told(_margin(table, axes, table.measure.columns.index(name), axis))
            measured = self.of_kind("sum", name)
            if measured is not None:
                law = law.with_sum(float(measured.counts.ravel()[0]), measured.measure.sigma2)
            self._laws[name] = law
        return self._laws[name]

    def _unmeasured(self, column: Column) -> TableColumn | None:
        """Return a column of which rows alone tell."""
        if column.space.size <= FEW_VALUES:
            axis: Axis = ListedAxis(column)
            return TableColumn(axis, np.arange(axis.cells), np.full(axis.cells, 1 / axis.cells))
        if not column.space.is_numeric or column.space.is_listed:
            return None
        grid = make_axis(column, min(FINE_CELLS, column.space.values)).for_fits
        assert isinstance(grid, BinnedAxis)
        shares = RowsLaw.of(grid.channel, count_classes([grid], self._source.codes([column.name]))).shares
        return TableColumn(grid, quantile_bins(shares * self._source.n, grid.has_null), shares)

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns of the fit."""
        return list(self.columns)

    @cached_property
    def evidence(self) -> Evidence:
        """All that is known of these columns: tables, and rows of the pairs that no table holds."""
        tables = []
        for table, own in self._touching(self.columns):
            kept = [i for i, name in enumerate(table.measure.columns) if name in self.columns]
            members = [self.columns[table.measure.columns[i]] for i in kept]
            places = tuple(self.names.index(table.measure.columns[i]) for i in kept)
            if len(own) == 1 and kept and members[0].is_cut and members[0].law is not None:
                tables.append(members[0].binned(places[0]))
            elif kept and all(m.cells == own[i].cells for m, i in zip(members, kept, strict=True)):
                outside = tuple(i for i in range(len(own)) if i not in kept)
                sigma = math.sqrt(table.measure.sigma2 * math.prod(own[i].cells for i in outside))
                tables.append(Table(places, table.counts.astype(np.float64).sum(axis=outside), sigma))
        tables = tables if self._among is None else _one_for_each(tables)
        sizes = tuple(member.cells for member in self.columns.values())
        tables += self._inferred()
        held = {pair for table in tables for pair in combinations(sorted(table.columns), 2)}
        tables += self._grouped(held)
        rows = self._rows(held)
        channels = tuple(member.channel for member in self.columns.values()) if rows else ()
        told = {place for table in (*tables, *rows) for place in table.columns}
        tables += [self._own(place) for place in range(len(sizes)) if place not in told]
        return Evidence(self._source.rows, sizes, tuple(tables), channels, rows)

    def _inferred(self) -> Iterator[Table]:
        """Yield what inference measured of listed columns, as their one-ways: nothing of cells it did not count."""
        for place, member in enumerate(self.columns.values()):
            if self._inference is None or member.is_cut:
                continue
            raw, more = self.raw([member.axis]), self._inference.counted(member.axis)
            if raw is None or more is None:
                continue
            more = more.about(np.maximum(raw[0], 0.0))
            single = more.matrix.sum(axis=1) == 1
            known = more.matrix[single].argmax(axis=1)
            of_cells, sigma = np.zeros(member.cells), np.full(member.cells, _UNKNOWN)
            of_cells[known], sigma[known] = more.counts[single], np.sqrt(more.variances[single])
            yield Table((place,), of_cells, sigma)

    def _grouped(self, held: set[tuple[int, int]]) -> Iterator[Table]:
        """Yield the unbiased counts of pairs that were randomised together and that no table holds."""
        members, plan, weight = list(self.columns.values()), self._source.plan, self._source.weight
        for i, j in combinations(range(len(members)), 2):
            group = plan.group_of(self.names[i])
            if group is None or self.names[j] not in group.names or (i, j) in held:
                continue
            axes = [MemberAxis(members[place].axis.column, members[place].axis, group) for place in (i, j)]
            counts, law = count_classes(axes, self._source.codes([self.names[i], self.names[j]])), []
            for at, (place, axis) in enumerate(zip((i, j), axes, strict=True)):
                merge = (np.arange(members[place].cells)[:, None] == members[place].bins).astype(np.float64)
                counts = np.moveaxis(np.tensordot(merge, counts, axes=(1, at)), 0, at)
                law.append(merge @ axis.law)
            found, variances = NoiseBlock.of(group).pair(counts, np.outer(*law))
            yield Table((i, j), found * weight, np.sqrt(variances) * weight)

    def _own(self, place: int) -> Table:
        """Return a column's maximum-likelihood counts, where nothing else tells of it."""
        member = self.columns[self.names[place]]
        counts = count_classes([member.axis], self._source.codes([self.names[place]]))
        shares = expectation_maximization(counts, [member.channel])
        return Table((place,), shares * self._source.rows, math.sqrt(max(self._source.rows, 1)))

    def _rows(self, held: set[tuple[int, int]]) -> tuple[Table, ...]:
        """Count the released rows by pairs of columns that no table holds, and of which the noise is independent."""
        members, plan = list(self.columns.values()), self._source.plan
        # What a row's few bits of each of many columns tell of a pair drowns beside tables.
        known = {place for pair in held for place in pair} if len(members) > MOST_FITTED else set()
        pairs = []
        for i, j in combinations(range(len(members)), 2):
            group = plan.group_of(self.names[i])
            together = group is not None and self.names[j] in group.names
            if (i, j) in held or together or {i, j} <= known:
                continue
            if members[i].axis.classes * members[j].axis.classes > MOST_PAIR_CELLS:
                continue
            pairs.append((i, j))
        if not pairs:
            return ()
        weight = self._source.weight
        tables = []
        for (i, j), found in self._row_counts(pairs):
            table = row_table((i, j), found, [members[i].channel, members[j].channel])
            tables.append(Table((i, j), found * weight, np.asarray(table.sigma) * weight))
        return tuple(tables)

    def _row_counts(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], FloatArray]]:
        """Count released rows by pairs; of many pairs keep those that show dependence most.

        Rows are read once for as many pairs as fit in memory.
        """
        axes = dict(enumerate(member.axis for member in self.columns.values()))
        found: list[tuple[float, tuple[int, int], FloatArray]] = []
        each = max(1, MOST_COUNTED // max(axes[i].classes * axes[j].classes for i, j in pairs))
        for start in range(0, len(pairs), each):
            some = pairs[start : start + each]
            used = sorted({place for pair in some for place in pair})
            tables = count_pairs(axes, some, self._source.codes([self.names[place] for place in used]))
            if len(axes) <= MOST_FITTED:
                found += [(math.inf, pair, table) for pair, table in tables.items()]
            else:
                scored = [(dependence_score(table), pair, table) for pair, table in tables.items()]
                kept = [one for one in scored if one[0] > SHOWS]
                found = sorted([*found, *kept], key=lambda one: -one[0])[:MOST_ROW_PAIRS]
        return [(pair, table) for _, pair, table in sorted(found, key=lambda one: one[1])]

    @cached_property
    def fitted(self) -> Fitted:
        """The fit to it."""
        return Fitted.of(self.evidence)

    def fine(self, name: str) -> FloatArray:
        """Return the shares of a column's fine cells; of a number whose sum was measured, at its mean."""
        member = self.columns[name]
        shares = member.within(self.fitted.fit.joint(self.places([name])))
        return self.at_mean(name, shares, None)

    def at_mean(self, name: str, shares: FloatArray, total: float | None) -> FloatArray:
        """Return shares of fine cells tilted to a sum of codes, by default the measured one."""
        measured, member = self.of_kind("sum", name), self.columns[name]
        present = shares[: member.axis.cells - member.axis.has_null]
        rows = float(present.sum()) * self._source.rows
        if measured is None or rows < 1:
            return shares
        wanted = float(measured.counts.ravel()[0] if total is None else total) / rows
        tilted = tilt_to_mean(present / present.sum(), middle_codes(member.axis), wanted) * present.sum()
        return np.concatenate([tilted, shares[len(present) :]])

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the columns' positions in the fit."""
        return [self.names.index(name) for name in names]


def _one_for_each(tables: Sequence[Table]) -> list[Table]:
    """Return all tables of one column as one: of wide tables many pairs reach into a fit."""
    seen: dict[tuple[int, ...], list[Table]] = {}
    for table in tables:
        if len(table.columns) == 1:
            seen.setdefault(table.columns, []).append(table)
    return [table for table in tables if len(table.columns) > 1] + [merged(some) for some in seen.values()]


def _margin(table: MeasuredTable, axes: Sequence[Axis], place: int, axis: BinnedAxis) -> Observation:
    """Return what a table of several columns counts of one of them, in unions of its cells."""
    merge = into_cells(axis, axes[place])
    assert merge is not None, "bins are made of whole cells"
    others = tuple(i for i in range(len(axes)) if i != place)
    counts = table.counts.astype(np.float64).sum(axis=others)
    size = math.prod(axes[i].cells for i in others)
    return Observation(merge, counts, np.full(len(counts), table.measure.sigma2 * size))
