"""The tables that a plan measures: counted in one pass over the rows, with noise from planes of their own.

Numbers in joints are cut at the quantiles of their noisy one-way, which is known after the pass only. So joints are
counted in the one-way's cells, of which the bins are made of whole ones: merging exact counts before noise is added
is counting in the bins at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from dpframe.central.counts import Codes, Items, Joint, Total, Vectors, cells_of, noisy
from dpframe.noise.gaussian import Ints
from dpframe.noise.keystream import ColumnStream, Keystream, Rows
from dpframe.plan.measures import Measure, MeasuredTable, cell_count, equal_starts, fine_cells, is_cut
from dpframe.plan.plan import Plan
from dpframe.spaces import Space

_BATCH = 1 << 16
"""Rows that are counted at a time, so that their cells stay in cache."""
_THINNEST = 4
"""A bin has a quarter of the rows of an even one at least, where the column allows it."""


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
        self._fine = {m.columns[0]: m.most for m in plan.measures if m.kind == "one_way"}
        self._joints = {m: Joint(self._shape(m)) for m in plan.measures if m.kind in ("one_way", "joint")}
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
        counted = {(name, self._cells(m, name)) for m in self._joints for name in m.columns}
        self._counted = sorted(counted | {(name, 0) for m in self._vectors for name in m.columns[1:]})

    def _stream(self, kind: str, columns: Sequence[str]) -> ColumnStream:
        return self._keys.column(json.dumps([kind, *columns]), "measure")

    def _cells(self, measure: Measure, name: str) -> int:
        """Return the cells in which a column is counted, 0 for its values."""
        return fine_cells(measure, self._spaces[name], self._fine.get(name, 0))

    def _shape(self, measure: Measure) -> tuple[int, ...]:
        return tuple(cell_count(self._spaces[name], self._cells(measure, name)) for name in measure.columns)

    def add(self, codes: Mapping[str, Codes], rows: Rows) -> None:
        """Count rows, the first of which is this one of the table, or which have these places in it."""
        if not self._measures:
            return
        count = len(next(iter(codes.values())))
        for start in range(0, count, _BATCH):
            part = {name: column[start : start + _BATCH] for name, column in codes.items()}
            cells = {(name, most): cells_of(part[name], self._spaces[name], most) for name, most in self._counted}
            for measure, joint in self._joints.items():
                joint.add([cells[name, self._cells(measure, name)] for name in measure.columns])
            for measure, total in self._sums.items():
                total.add(part[measure.columns[0]])
            for measure, sums in self._vectors.items():
                first, *by = measure.columns
                sums.add(part[first], cells[by[0], 0] if by else np.zeros(len(part[first]), dtype=np.intp))
        for measure, items in self._items.items():
            items.add(codes[measure.columns[0]], rows)

    @property
    def counts(self) -> list[Ints]:
        """The exact counts so far, for `merge`: as secret as the rows."""
        sums = np.array([total.value for total in self._sums.values()], dtype=object)
        return [sums, *self._arrays]

    def merge(self, counts: Sequence[Ints]) -> None:
        """Add the `counts` of other rows, which were taken elsewhere."""
        sums, *rest = counts
        for total, value in zip(self._sums.values(), sums, strict=True):
            total.value += int(value)
        for mine, more in zip(self._arrays, rest, strict=True):
            mine += more

    @property
    def _arrays(self) -> list[Ints]:
        joints = [joint.counts for joint in self._joints.values()]
        return [*joints, *(i.counts for i in self._items.values()), *(v.counts for v in self._vectors.values())]

    def measured(self) -> tuple[MeasuredTable, ...]:
        """Return the noisy tables, in the order of the plan's measures: once, when all rows have been counted."""
        one_ways = {
            m.columns[0]: noisy(joint.counts, m.sigma2, self._stream(m.kind, m.columns))
            for m, joint in self._joints.items()
            if m.kind == "one_way"
        }
        return tuple(self._table(measure, one_ways) for measure in self._measures)

    def _table(self, measure: Measure, one_ways: Mapping[str, Ints]) -> MeasuredTable:
        stream, first = self._stream(measure.kind, measure.columns), measure.columns[0]
        if measure.kind == "one_way":
            return MeasuredTable(measure, (self._starts(measure, first, None),), one_ways[first])
        if measure.kind == "sum":
            return MeasuredTable(measure, (None,), noisy([self._sums[measure].value], measure.sigma2, stream))
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
        return quantile_bins(one_ways[name][: len(one_ways[name]) - space.has_null].tolist(), most)

    def _starts(self, measure: Measure, name: str, bins: Sequence[int] | None) -> tuple[int, ...] | None:
        """Return the first code of each cell, or of each bin of cells; None where each value is a cell."""
        space, cells = self._spaces[name], self._cells(measure, name)
        starts = equal_starts(space.values, cells) if is_cut(space, cells) else None
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

    Each takes cells until it has its part of what is left, so that a cell of most rows leaves bins for the others.

    Examples
    --------
    >>> quantile_bins([90, 2, 2, 2, 2, 2], 3)
    [0, 1]
    >>> quantile_bins([10, 10, 10, 10, 10, 10], 3)
    [0, 2, 4]
    """
    total, starts = max(0, sum(counts)), [0]
    if total == 0:
        return list(equal_starts(len(counts), min(most, len(counts))))
    left, held = total, 0
    for cell, count in enumerate(counts[:-1]):
        held += count
        bins = most - len(starts) + 1
        if bins > 1 and held * bins >= left and held * most * _THINNEST >= total:
            starts.append(cell + 1)
            left, held = left - held, 0
    return starts


def _merged(counts: Ints, axis: int, bins: Sequence[int], space: Space) -> Ints:
    """Return counts with the cells of one axis added up to bins; null stays the last one."""
    starts = [*bins, counts.shape[axis] - 1] if space.has_null else list(bins)
    return np.asarray(np.add.reduceat(counts, starts, axis=axis))
