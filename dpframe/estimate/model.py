"""Fits to tables and rows of some columns of a release; the question decides which columns a fit has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations

import numpy as np

from dpframe.estimate.axes import NoiseBlock, make_axis
from dpframe.estimate.evidence.likelihood import expectation_maximization
from dpframe.estimate.measured_tables import MAX_EXACT_FIT_VALUES, MeasuredTables
from dpframe.estimate.surrogates import count_classes, count_joints, joint_cells
from dpframe.estimate.table_column import tilt_to_mean
from dpframe.estimate.tables.fit import TableFit, remembered_fit
from dpframe.estimate.tables.guard import guard_joint
from dpframe.estimate.tables.tables import Evidence, dependence_score, row_table
from dpframe.observe.noisy_counts import NoisyCounts, pool_one_ways, through
from dpframe.observe.significance import DETECTION_SE, FALSE_ALARM
from dpframe.spaces.arrays import FloatArray

MOST_PAIR_CELLS = 1 << 16
"""Classes of a pair up to which a fit counts its rows (limit of time)."""

MOST_COUNTED = 1 << 23
"""Classes of pairs whose rows are counted in one pass (limit of memory)."""

MOST_ROW_PAIRS = 300
"""Most pairs of a wide table in a fit to only rows: the pairs with the largest dependence score (limit of time)."""

MOST_GUARDED = 1 << 20
"""Classes of a joint up to which its rows are compared with the fit (limit of memory)."""

_UNMEASURED_COUNT_SD = 1e9
"""Standard deviation given to an unmeasured count (tolerance)."""

MOST_FITTED = 15
"""Most columns of a question's fit: for wider tables, the requested columns and the most dependent others (limit of
time).

On Adult's nine columns pairs err by 0.035 (L1) in a fit of all columns, and by 0.042 in a fit of each pair.
"""


class Models:
    """The fits of one release, each computed once."""

    def __init__(self, tables: MeasuredTables) -> None:
        self.tables = tables
        self._model_cache: dict[frozenset[str], Model] = {}

    @cached_property
    def whole(self) -> Model:
        """The fit of all columns that have few values, a measured table, or a numeric grid."""
        return Model(self.tables, self.tables.merged_names(self.tables.source.plan.names))

    @cached_property
    def order(self) -> list[str]:
        """All columns in the plan's order; a column that counts indicators together comes before them."""
        names, homes = self.tables.source.plan.names, self.tables.homes
        return list(dict.fromkeys(one for n in names for one in ([homes[n].name, n] if n in homes else [n])))

    @cached_property
    def of_few_values(self) -> list[str]:
        """Columns of few values."""
        return self._columns_up_to(MAX_EXACT_FIT_VALUES)

    def _columns_up_to(self, values: float) -> list[str]:
        columns, missing = self.tables.source.plan.columns, self.tables.source.missing
        candidates = [c for c in columns if not c.space.code_words and c.space.size <= values]
        return [column.name for column in candidates if column.name not in missing]

    @cached_property
    def _eligible_columns(self) -> list[str]:
        """Columns that a fit may have: all that tables may hold; with only rows, columns of few values."""
        return self.tables.merged_names(self._columns_up_to(math.inf)) if self.tables else self.of_few_values

    def around(self, names: Sequence[str]) -> Model:
        """Return the fit of these columns and their strongest neighbours; of all columns if there are few."""
        if len(self._eligible_columns) > max(MOST_FITTED, len(names)):
            return self._get_model({*names, *self._rank_dependent(names, MOST_FITTED - len(names))})
        return self._with_all_columns(names) if self.tables else self._get_model({*names, *self._eligible_columns})

    def _with_all_columns(self, names: Sequence[str]) -> Model:
        """Return the fit of all columns; a group with a requested indicator is fitted by this indicator."""
        homes = self.tables.homes
        if homes.keys().isdisjoint(names):
            return self.whole
        split_groups = {homes[name].name for name in names if name in homes}
        merged_names = self.tables.merged_names(self.tables.source.plan.names)
        return self._get_model({*names, *(name for name in merged_names if name not in split_groups)})

    def among(self, names: Sequence[str]) -> Model:
        """Return the fit of only these columns for a wide table, else of all columns."""
        is_wide = len(self.tables.source.plan.names) > MOST_FITTED
        return self._get_model(set(names)) if is_wide else self._with_all_columns(names)

    def _get_model(self, names: set[str]) -> Model:
        key = frozenset(names)
        if key not in self._model_cache:
            self._model_cache[key] = Model(self.tables, [name for name in self.order if name in key])
        return self._model_cache[key]

    def _rank_dependent(self, names: Sequence[str], max_columns: int) -> list[str]:
        """Return other columns that depend on these, by falling dependence score."""
        scores: dict[str, float] = {}
        for pair, score in self._score_pairs(names):
            partner = pair[1] if pair[0] in names else pair[0]
            scores[partner] = max(scores.get(partner, DETECTION_SE), score)
        dependent_names = [
            name for name, score in scores.items() if score > DETECTION_SE and self.tables.member(name) is not None
        ]
        return sorted(dependent_names, key=lambda name: -scores[name])[:max_columns]

    def _score_pairs(self, names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield dependence scores of pairs of one of these columns and another, by tables or by rows."""
        source = self.tables.source
        if not self.tables:
            axes = {name: make_axis(source.column(name), None) for name in {*self._eligible_columns, *names}}
            pairs = [(a, b) for a in names for b in self._eligible_columns if b not in names]
            pair_counts = count_joints(axes, pairs, source.codes(list(axes)))
            yield from ((pair, dependence_score(counts)) for pair, counts in pair_counts.items())
        for one in self.tables.touching(names):
            pair = one.columns
            if len(pair) == 2 and len(set(pair) & set(names)) == 1:
                yield pair, dependence_score(one.counts, one.variances)


class Model:
    """A fit of some columns of a release to tables, and to rows for pairs that no table holds."""

    def __init__(self, tables: MeasuredTables, names: Sequence[str]) -> None:
        self.tables, self._source = tables, tables.source
        homes = tables.homes
        siblings = Counter(homes[name].name for name in names if name in homes)
        # The finer cells of the column that counts all indicators have counts of equal noise.
        self._indicators = {homes[n].name: n for n in names if n in homes and siblings[homes[n].name] == 1}
        members = {
            name: tables.indicator_member(name) if name in self._indicators.values() else tables.member(name)
            for name in names
        }
        self.columns = {name: member for name, member in members.items() if member is not None}
        self.names = list(self.columns)
        self._members = list(self.columns.values())

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the columns' positions in the fit."""
        return [self.names.index(name) for name in names]

    @cached_property
    def evidence(self) -> Evidence:
        """Tables and counts of rows of these columns."""
        # A wide table gives many pairs to a fit, whose one-ways are pooled by column.
        tables = pool_one_ways(list(self._yield_measured()))
        tables += [
            *self._yield_inferred(),
            *self._yield_one_ways({place for table in tables for place in table.columns}),
        ]
        table_pairs = {pair for table in tables for pair in combinations(sorted(table.columns), 2)}
        if self._source.plan.groups:
            tables += self._yield_group_pairs(table_pairs)
        tables += self._yield_row_pairs(table_pairs)
        table_places = {place for table in tables for place in table.columns}
        tables += [self._fit_one_way(place) for place in range(len(self.names)) if place not in table_places]
        split_indicators = {*self.tables.homes} - {*self._indicators.values()}
        uneven = frozenset(place for place, name in enumerate(self.names) if name in split_indicators)
        ordered = tuple(member.ordered_cells for member in self._members)
        sizes = tuple(member.cells for member in self._members)
        return Evidence(self._source.rows, sizes, tuple(tables), uneven, ordered)

    def _yield_measured(self) -> Iterator[NoisyCounts]:
        """Yield measured tables by the fit's cells, summed over columns outside the fit."""
        laws = {name for name, member in self.columns.items() if member.is_cut and member.law is not None}
        counted_names = {indicator: name for name, indicator in self._indicators.items()}
        for table in self.tables.touching([counted_names.get(name, name) for name in self.names]):
            # An indicator's name replaces the column that counts it.
            one = replace(table, columns=tuple(self._indicators.get(name, name) for name in table.columns))
            fit_names = [name for name in one.columns if name in self.columns]
            places, first = self.places(fit_names), self.columns[fit_names[0]]
            if len(one.columns) == 1 and first.is_cut and first.law is not None:
                if fit_names[0] in laws:  # a law holds all of a number's own counts
                    yield first.binned(places[0])
                laws.discard(fit_names[0])
            elif all(self.columns[name].cells == one.axis(name).cells for name in fit_names):
                yield replace(one.sum_to(fit_names), columns=tuple(places))

    def _yield_inferred(self) -> Iterator[NoisyCounts]:
        """Yield inference's counts of listed columns as one-ways; unmeasured cells get a huge variance."""
        for place, member in enumerate(self._members):
            if member.is_cut:
                continue
            raw, inferred = self.tables.raw([member.axis]), self.tables.inference.counted(member.axis)
            if raw is None or inferred is None:
                continue
            inferred = inferred.linearise(np.maximum(raw.counts, 0.0))
            single = inferred.matrix.sum(axis=1) == 1
            cells = inferred.matrix[single].argmax(axis=1)
            counts, variances = np.zeros(member.cells), np.full(member.cells, _UNMEASURED_COUNT_SD**2)
            counts[cells], variances[cells] = inferred.values[single], inferred.variances[single]
            yield NoisyCounts((place,), counts, variances)

    def _yield_one_ways(self, table_places: Collection[int]) -> Iterator[NoisyCounts]:
        """Yield the rows' unbiased counts of single columns that tables hold and that have no finer cells.

        `_yield_group_pairs` has the counts of columns that were randomised together.
        """
        axes = {
            place: member.axis
            for place, (name, member) in enumerate(self.columns.items())
            if place in table_places and self.counts_rows(name)
        }
        if not axes:
            return
        codes, sampling = self._source.codes([axis.name for axis in axes.values()]), self._source.sampling("table")
        for (place,), counts in count_joints(axes, [(place,) for place in axes], codes).items():
            estimates, variances = joint_cells(
                counts, [axes[place]], normalize=False, given=(), dropna=False, sampling=sampling
            )
            yield NoisyCounts((place,), estimates, float(variances.mean())).times(self._source.weight)

    def counts_rows(self, name: str) -> bool:
        """Return whether the released rows' unbiased counts of a column's values are a table of their own."""
        axis, is_alone = self.columns[name].axis, self._source.plan.group_of(name) is None
        return (
            bool(self._source.n) and axis.grid is None and axis.inverts and is_alone and not self.columns[name].is_cut
        )

    def _has_shared_noise(self, i: int, j: int) -> bool:
        """Return whether two columns were randomised together, so that their noise is not independent."""
        group = self._source.plan.group_of(self.names[i])
        return group is not None and self.names[j] in group.names

    def _yield_group_pairs(self, table_pairs: set[tuple[int, int]]) -> Iterator[NoisyCounts]:
        """Yield the unbiased counts of pairs that were randomised together and that no table holds."""
        for i, j in combinations(range(len(self.names)), 2):
            group = self._source.plan.group_of(self.names[i])
            if group is None or not self._has_shared_noise(i, j) or (i, j) in table_pairs:
                continue
            axes = [replace(self._members[place].axis, group=group) for place in (i, j)]
            counts, law = count_classes(axes, self._source.codes([self.names[i], self.names[j]])), []
            for at, (place, axis) in enumerate(zip((i, j), axes, strict=True)):
                merge = self._members[place].merge
                counts = through(merge, counts, at)
                law.append(merge @ axis.law)
            estimates, variances = NoiseBlock.of(group).pair(counts, np.outer(*law))
            yield NoisyCounts((i, j), estimates, variances).times(self._source.weight)

    def _fit_one_way(self, place: int) -> NoisyCounts:
        """Return a column's maximum-likelihood counts from its rows, for a column without other evidence."""
        member, rows = self._members[place], self._source.rows
        counts = count_classes([member.axis], self._source.codes([self.names[place]]))
        shares = expectation_maximization(counts, [member.channel])
        return NoisyCounts((place,), shares * rows, float(max(rows, 1)))

    def _yield_row_pairs(self, table_pairs: set[tuple[int, int]]) -> Iterator[NoisyCounts]:
        """Yield counts of the released rows by pairs of columns that no table holds, and whose noise is independent."""
        # With many columns a row has few bits of each: its information on a pair is negligible next to tables.
        table_places = {place for pair in table_pairs for place in pair} if len(self.names) > MOST_FITTED else set()
        classes = [member.axis.classes for member in self._members]
        pairs = [
            (i, j)
            for i, j in combinations(range(len(self.names)), 2)
            if (i, j) not in table_pairs
            # A column of one cell has no dependence.
            and min(self._members[place].cells for place in (i, j)) > 1
            and not {i, j} <= table_places
            and not self._has_shared_noise(i, j)
            # All rows of an unreleased column are in one class.
            and min(classes[i], classes[j]) > 1
            and classes[i] * classes[j] <= MOST_PAIR_CELLS
        ]
        # Rows are read once for as many pairs as fit in memory.
        axes = dict(enumerate(member.axis for member in self._members))
        ranked_tables: list[tuple[float, tuple[int, int], FloatArray]] = []
        batch_size = max(1, MOST_COUNTED // max((axes[i].classes * axes[j].classes for i, j in pairs), default=1))
        for start in range(0, len(pairs), batch_size):
            batch = pairs[start : start + batch_size]
            used = sorted({place for pair in batch for place in pair})
            tables = count_joints(axes, batch, self._source.codes([self.names[place] for place in used]))
            if len(axes) <= MOST_FITTED:
                ranked_tables += [(math.inf, pair, table) for pair, table in tables.items()]
            else:
                scored = [(dependence_score(table), pair, table) for pair, table in tables.items()]
                dependent_tables = [one for one in scored if one[0] > DETECTION_SE]
                ranked_tables = sorted([*ranked_tables, *dependent_tables], key=lambda one: -one[0])[:MOST_ROW_PAIRS]
        for _, pair, counts in sorted(ranked_tables, key=lambda one: one[1]):
            yield row_table(pair, counts, [self._members[p].channel for p in pair]).times(self._source.weight)

    # Estimates of the fit

    @cached_property
    def fit(self) -> TableFit:
        """The fit to the evidence."""
        return remembered_fit(self.evidence)

    def joint(self, names: Sequence[str]) -> FloatArray:
        """Return the estimate of least error of columns' shares by the fit's cells."""
        return self.fit.joint(self.places(names))

    def known(self, names: Sequence[str]) -> NoisyCounts | None:
        """Return the pooled counts of columns by the fit's cells, or None if no table holds them all."""
        return self.evidence.known(self.places(names))

    def fine(self, name: str) -> FloatArray:
        """Return the shares of a column's fine cells, tilted to the mean if a number's sum was measured."""
        shares = self.columns[name].within(self.joint([name]))
        sum_table, member = self.tables.of_kind("sum", name), self.columns[name]
        present = shares[: member.axis.cells - member.axis.flag_codes]
        rows = float(present.sum()) * self._source.rows
        if sum_table is None or rows < 1:
            return shares
        mean_code = float(sum_table.counts.ravel()[0]) / rows
        tilted = tilt_to_mean(present / present.sum(), member.axis.middles, mean_code) * present.sum()
        return np.concatenate([tilted, shares[len(present) :]])

    def can_compare_with_rows(self, names: Sequence[str]) -> bool:
        """Return whether rows can test a joint: it has few classes, and columns with independent noise."""
        plan = self._source.plan
        homes = [group.names for name in names if (group := plan.group_of(name)) is not None]
        classes = [self.columns[name].axis.classes for name in names]
        can_count = min(classes) > 1 and math.prod(classes) <= MOST_GUARDED
        return len(set(homes)) == len(homes) and can_count and bool(self._source.n)

    def guarded(self, joints: Sequence[Sequence[str]], unlikely: float = FALSE_ALARM) -> list[FloatArray | None]:
        """Return joints corrected by rows; None for joints that rows do not contradict or cannot test.

        The rows of all joints are counted in one pass.
        """
        axes = [
            [self.columns[name].axis for name in names] if self.can_compare_with_rows(names) else [] for names in joints
        ]
        counts = [np.zeros([axis.classes for axis in joint_axes]) for joint_axes in axes]
        used = list(dict.fromkeys(axis.name for joint_axes in axes for axis in joint_axes))
        for codes in self._source.codes(used) if used else ():
            for joint_axes, class_counts in zip(axes, counts, strict=True):
                if joint_axes:
                    class_counts += count_classes(joint_axes, [codes])

        def correct_joint(names: Sequence[str], class_counts: FloatArray) -> FloatArray | None:
            channels, pairs = [self.columns[name].channel for name in names], self.fit.pairs_of(self.places(names))
            return guard_joint(self.joint(names), class_counts, channels, pairs, unlikely)

        compared = zip(joints, axes, counts, strict=True)
        return [
            correct_joint(names, class_counts) if joint_axes else None for names, joint_axes, class_counts in compared
        ]
