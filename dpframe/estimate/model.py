"""Fits to all that is known of some columns of a release: what is asked decides which columns have a part."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations

import numpy as np

from dpframe.estimate.axes import NoiseBlock, make_axis
from dpframe.estimate.evidence.likelihood import expectation_maximization, through
from dpframe.estimate.measured_tables import FEW_VALUES, MeasuredTables
from dpframe.estimate.surrogates import count_classes, count_joints, joint_cells
from dpframe.estimate.table_column import tilt_to_mean
from dpframe.estimate.tables.fit import TableFit, remembered_fit
from dpframe.estimate.tables.guard import guard_joint
from dpframe.estimate.tables.tables import Evidence, Table, dependence_score, row_table, with_merged_singles
from dpframe.observe.significance import DETECTION_SE, FALSE_ALARM
from dpframe.spaces.arrays import FloatArray

MOST_PAIR_CELLS = 1 << 16
"""Classes of a pair up to which its rows are counted for a fit (limit of time)."""

MOST_COUNTED = 1 << 23
"""Classes of pairs whose rows are counted in one pass (limit of memory)."""

MOST_ROW_PAIRS = 300
"""Pairs of a wide table that are fitted to only the rows: those that show dependence most (limit of time)."""

MOST_GUARDED = 1 << 20
"""Classes of a joint up to which its rows are compared with the fit (limit of memory)."""

_UNKNOWN = 1e9
"""The standard deviation of a count that was not made (tolerance)."""

MOST_FITTED = 15
"""Columns that a question's fit has at most: of wider tables those asked for, and the others that depend on them most
(limit of time).

On Adult's nine columns pairs err by 0.035 (L1) with all of them and by 0.042 where each pair is fitted by itself.
"""


class Models:
    """The fits of one release, each made once."""

    def __init__(self, tables: MeasuredTables) -> None:
        self.tables = tables
        self._made: dict[frozenset[str], Model] = {}

    @cached_property
    def whole(self) -> Model:
        """The fit of all columns of few values, and those that were measured or cut."""
        return Model(self.tables, [column.name for column in self.tables.source.plan.columns])

    @cached_property
    def of_few_values(self) -> list[str]:
        """Columns of few values."""
        return self._of_at_most(FEW_VALUES)

    def _of_at_most(self, values: float) -> list[str]:
        columns, missing = self.tables.source.plan.columns, self.tables.source.missing
        kept = [c for c in columns if not c.space.code_words and c.space.size <= values]
        return [column.name for column in kept if column.name not in missing]

    @cached_property
    def _eligible(self) -> list[str]:
        """Columns that a fit may have: all that tables may hold; those of few values where there are rows only."""
        return self._of_at_most(math.inf) if self.tables else self.of_few_values

    def around(self, names: Sequence[str]) -> Model:
        """Return a fit of no more columns than answer for these: all of them where they are few."""
        if len(self._eligible) > max(MOST_FITTED, len(names)):
            return self._of({*names, *self._nearest(names, MOST_FITTED - len(names))})
        return self.whole if self.tables else self._of({*names, *self._eligible})

    def among(self, names: Sequence[str]) -> Model:
        """Return a fit of only these columns, for wide tables; of narrow ones with all."""
        return self._of(set(names)) if len(self.tables.source.plan.names) > MOST_FITTED else self.whole

    def _of(self, names: set[str]) -> Model:
        key = frozenset(names)
        if key not in self._made:
            self._made[key] = Model(self.tables, [name for name in self.tables.source.plan.names if name in key])
        return self._made[key]

    def _nearest(self, names: Sequence[str], most: int) -> list[str]:
        """Return other columns that depend on these, those first that show it most."""
        scores: dict[str, float] = {}
        for pair, score in self._scores(names):
            other = pair[1] if pair[0] in names else pair[0]
            scores[other] = max(scores.get(other, DETECTION_SE), score)
        showing = [
            name for name, score in scores.items() if score > DETECTION_SE and self.tables.member(name) is not None
        ]
        return sorted(showing, key=lambda name: -scores[name])[:most]

    def _scores(self, names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield how far pairs of one of these columns and another are from independence, by tables or by rows."""
        source = self.tables.source
        if not self.tables:
            axes = {name: make_axis(source.column(name), None) for name in {*self._eligible, *names}}
            wanted = [(a, b) for a in names for b in self._eligible if b not in names]
            counted = count_joints(axes, wanted, source.codes(list(axes)))
            yield from ((pair, dependence_score(counts)) for pair, counts in counted.items())
        for one in self.tables.touching(names):
            pair = one.table.columns
            if len(pair) == 2 and len(set(pair) & set(names)) == 1:
                yield pair, dependence_score(one.table.counts, one.table.variances)


class Model:
    """A fit to all that is known of some columns of a release: tables, and rows of pairs that no table holds."""

    def __init__(self, tables: MeasuredTables, names: Sequence[str]) -> None:
        self.tables, self._source = tables, tables.source
        members = {name: tables.member(name) for name in names}
        self.columns = {name: member for name, member in members.items() if member is not None}
        self.names = list(self.columns)
        self._members = list(self.columns.values())

    def places(self, names: Sequence[str]) -> list[int]:
        """Return the columns' positions in the fit."""
        return [self.names.index(name) for name in names]

    @cached_property
    def evidence(self) -> Evidence:
        """All that is known of these columns."""
        # Of wide tables many pairs reach into a fit, all of whose tables of one column are one.
        tables = with_merged_singles(list(self._measured()))
        tables += [*self._inferred(), *self._alone({place for table in tables for place in table.columns})]
        held = {pair for table in tables for pair in combinations(sorted(table.columns), 2)}
        tables += self._grouped(held)
        tables += self._rows(held)
        known = {place for table in tables for place in table.columns}
        tables += [self._own(place) for place in range(len(self.names)) if place not in known]
        return Evidence(self._source.rows, tuple(member.cells for member in self._members), tuple(tables))

    def _measured(self) -> Iterator[Table]:
        """Yield measured tables by the fit's cells, summed over columns that it does not have."""
        laws = {name for name, member in self.columns.items() if member.is_cut and member.law is not None}
        for one in self.tables.touching(self.names):
            kept = [name for name in one.table.columns if name in self.columns]
            places, first = self.places(kept), self.columns[kept[0]]
            if len(one.axes) == 1 and first.is_cut and first.law is not None:
                if kept[0] in laws:  # a law holds all of a number's own counts
                    yield first.binned(places[0])
                laws.discard(kept[0])
            elif all(self.columns[name].cells == one.axis(name).cells for name in kept):
                summed = one.table.sum_to(kept)
                yield Table(tuple(places), summed.counts, summed.sigma)

    def _inferred(self) -> Iterator[Table]:
        """Yield what inference measured of listed columns, as their one-ways: nothing of cells it did not count."""
        for place, member in enumerate(self._members):
            if member.is_cut:
                continue
            raw, more = self.tables.raw([member.axis]), self.tables.inference.counted(member.axis)
            if raw is None or more is None:
                continue
            more = more.linearise(np.maximum(raw.counts, 0.0))
            single = more.matrix.sum(axis=1) == 1
            known = more.matrix[single].argmax(axis=1)
            of_cells, sigma = np.zeros(member.cells), np.full(member.cells, _UNKNOWN)
            of_cells[known], sigma[known] = more.values[single], np.sqrt(more.variances[single])
            yield Table((place,), of_cells, sigma)

    def _alone(self, measured: Collection[int]) -> Iterator[Table]:
        """Yield the rows' unbiased counts of single columns that tables hold and that are not cut.

        Columns that were randomised together have theirs in `_grouped`.
        """
        axes = {
            place: member.axis
            for place, (name, member) in enumerate(self.columns.items())
            if place in measured and self.counts_rows(name)
        }
        if not axes:
            return
        codes, sampling = self._source.codes([axis.name for axis in axes.values()]), self._source.sampling("table")
        for (place,), counts in count_joints(axes, [(place,) for place in axes], codes).items():
            found, variances = joint_cells(
                counts, [axes[place]], normalize=False, given=(), dropna=False, sampling=sampling
            )
            yield Table((place,), found, math.sqrt(float(variances.mean()))).times(self._source.weight)

    def counts_rows(self, name: str) -> bool:
        """Return whether the released rows' unbiased counts of a column's values are a table of their own."""
        axis, is_alone = self.columns[name].axis, self._source.plan.group_of(name) is None
        return (
            bool(self._source.n) and axis.grid is None and axis.inverts and is_alone and not self.columns[name].is_cut
        )

    def _are_together(self, i: int, j: int) -> bool:
        """Return whether two columns were randomised together, so that their noise is not independent."""
        group = self._source.plan.group_of(self.names[i])
        return group is not None and self.names[j] in group.names

    def _grouped(self, held: set[tuple[int, int]]) -> Iterator[Table]:
        """Yield the unbiased counts of pairs that were randomised together and that no table holds."""
        for i, j in combinations(range(len(self.names)), 2):
            group = self._source.plan.group_of(self.names[i])
            if group is None or not self._are_together(i, j) or (i, j) in held:
                continue
            axes = [replace(self._members[place].axis, group=group) for place in (i, j)]
            counts, law = count_classes(axes, self._source.codes([self.names[i], self.names[j]])), []
            for at, (place, axis) in enumerate(zip((i, j), axes, strict=True)):
                merge = self._members[place].merge
                counts = through(merge, counts, at)
                law.append(merge @ axis.law)
            found, variances = NoiseBlock.of(group).pair(counts, np.outer(*law))
            yield Table((i, j), found, np.sqrt(variances)).times(self._source.weight)

    def _own(self, place: int) -> Table:
        """Return a column's maximum-likelihood counts, where nothing else is known of it."""
        member, rows = self._members[place], self._source.rows
        counts = count_classes([member.axis], self._source.codes([self.names[place]]))
        shares = expectation_maximization(counts, [member.channel])
        return Table((place,), shares * rows, math.sqrt(max(rows, 1)))

    def _rows(self, held: set[tuple[int, int]]) -> Iterator[Table]:
        """Yield counts of the released rows by pairs of columns that no table holds, and whose noise is independent."""
        # What a row's few bits of each of many columns say about a pair is negligible next to tables.
        known = {place for pair in held for place in pair} if len(self.names) > MOST_FITTED else set()
        classes = [member.axis.classes for member in self._members]
        pairs = [
            (i, j)
            for i, j in combinations(range(len(self.names)), 2)
            if (i, j) not in held
            # A column of one value goes with any.
            and min(self._members[place].cells for place in (i, j)) > 1
            and not {i, j} <= known
            and not self._are_together(i, j)
            and classes[i] * classes[j] <= MOST_PAIR_CELLS
        ]
        # Rows are read once for as many pairs as fit in memory.
        axes = dict(enumerate(member.axis for member in self._members))
        found: list[tuple[float, tuple[int, int], FloatArray]] = []
        each = max(1, MOST_COUNTED // max((axes[i].classes * axes[j].classes for i, j in pairs), default=1))
        for start in range(0, len(pairs), each):
            some = pairs[start : start + each]
            used = sorted({place for pair in some for place in pair})
            tables = count_joints(axes, some, self._source.codes([self.names[place] for place in used]))
            if len(axes) <= MOST_FITTED:
                found += [(math.inf, pair, table) for pair, table in tables.items()]
            else:
                scored = [(dependence_score(table), pair, table) for pair, table in tables.items()]
                kept = [one for one in scored if one[0] > DETECTION_SE]
                found = sorted([*found, *kept], key=lambda one: -one[0])[:MOST_ROW_PAIRS]
        for _, pair, counts in sorted(found, key=lambda one: one[1]):
            yield row_table(pair, counts, [self._members[p].channel for p in pair]).times(self._source.weight)

    # What the fit says

    @cached_property
    def fit(self) -> TableFit:
        """The fit to what is known."""
        return remembered_fit(self.evidence)

    def joint(self, names: Sequence[str]) -> FloatArray:
        """Return the estimate of least error of columns' shares by the fit's cells."""
        return self.fit.joint(self.places(names))

    def known(self, names: Sequence[str]) -> Table | None:
        """Return all that tables count of columns together by the fit's cells, or None where none holds them all."""
        return self.evidence.known(self.places(names))

    def fine(self, name: str) -> FloatArray:
        """Return the shares of a column's fine cells; of a number whose sum was measured, at its mean."""
        return self.at_mean(name, self.columns[name].within(self.joint([name])))

    def at_mean(self, name: str, shares: FloatArray) -> FloatArray:
        """Return shares of fine cells tilted to the measured sum of codes."""
        measured, member = self.tables.of_kind("sum", name), self.columns[name]
        present = shares[: member.axis.cells - member.axis.has_null]
        rows = float(present.sum()) * self._source.rows
        if measured is None or rows < 1:
            return shares
        wanted = float(measured.counts.ravel()[0]) / rows
        tilted = tilt_to_mean(present / present.sum(), member.axis.middles, wanted) * present.sum()
        return np.concatenate([tilted, shares[len(present) :]])

    def is_heard(self, names: Sequence[str]) -> bool:
        """Return whether rows are compared with a joint: those of few classes, whose noise is independent."""
        plan = self._source.plan
        homes = [group.names for name in names if (group := plan.group_of(name)) is not None]
        classes = math.prod(self.columns[name].axis.classes for name in names)
        return len(set(homes)) == len(homes) and classes <= MOST_GUARDED and bool(self._source.n)

    def guarded(self, joints: Sequence[Sequence[str]], unlikely: float = FALSE_ALARM) -> list[FloatArray | None]:
        """Return joints as rows correct them, each None where these do not contradict it or cannot be compared.

        The rows of all joints are counted in one pass.
        """
        axes = [[self.columns[name].axis for name in names] if self.is_heard(names) else [] for names in joints]
        counts = [np.zeros([axis.classes for axis in own]) for own in axes]
        used = list(dict.fromkeys(axis.name for own in axes for axis in own))
        for codes in self._source.codes(used) if used else ():
            for own, found in zip(axes, counts, strict=True):
                if own:
                    found += count_classes(own, [codes])

        def guarded(names: Sequence[str], found: FloatArray) -> FloatArray | None:
            channels, pairs = [self.columns[name].channel for name in names], self.fit.pairs_of(self.places(names))
            return guard_joint(self.joint(names), found, channels, pairs, unlikely)

        compared = zip(joints, axes, counts, strict=True)
        return [guarded(names, found) if own else None for names, own, found in compared]
