"""One column of a fit to measured tables: its finest cells, the fit's, and what lies between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpframe.arrays import FloatArray, IntArray
from dpframe.estimate.axes import Axis, BinnedAxis
from dpframe.estimate.distribution import aggregation
from dpframe.estimate.tables.slopes import left_open, moved_by_slopes
from dpframe.estimate.tables.tables import Table
from dpframe.evidence.number_law import NumberLaw


def first_codes(axis: Axis) -> IntArray:
    """Return the first code of every cell of an axis but null's."""
    if axis.grid is not None:
        return np.asarray(axis.grid.edges[:-1], dtype=np.int64)
    return np.arange(axis.column.space.values, dtype=np.int64)


def code_stretches(axis: Axis) -> tuple[IntArray, IntArray]:
    """Return the first code of every cell of an axis, null's too, and the code after its last."""
    ends = np.append(first_codes(axis), axis.column.space.values)
    stops = np.append(ends[1:], ends[-1] + 1)
    return (ends, stops) if axis.has_null else (ends[:-1], stops[:-1])


def middle_codes(axis: Axis) -> FloatArray:
    """Return the mean code of every cell but null's."""
    starts = first_codes(axis)
    return np.asarray((starts + np.append(starts[1:], axis.column.space.values) - 1) / 2)


def same_cells(one: Axis, other: Axis) -> bool:
    """Return whether two axes of a column have the same cells: those of long ones are then not merged by a matrix."""
    return one.has_null == other.has_null and np.array_equal(first_codes(one), first_codes(other))


def into_cells(fine: Axis, coarse: Axis) -> FloatArray | None:
    """Return which cells of a finer axis make up those of a coarser one, shape (coarse, fine), or None if none do."""
    starts, edges = first_codes(fine), first_codes(coarse)
    if not np.isin(edges, starts).all():
        return None
    places = np.searchsorted(edges, starts, side="right") - 1
    if fine.has_null:
        places = np.append(places, coarse.cells - 1)
    return np.asarray(np.arange(coarse.cells)[:, None] == places, dtype=np.float64)


_WHOLE = 1e-9
"""Part of a cell below which it is not cut: roundings."""


@dataclass(frozen=True, eq=False)
class TableColumn:
    """One column of a fit.

    ``axis`` has the finest cells that are known of it, ``bins`` the cell of the fit that each of them lies in, and
    ``shares`` are those of the fine cells. ``law`` is what was measured of a number alone.
    """

    axis: Axis
    bins: IntArray
    shares: FloatArray
    law: NumberLaw | None = None

    @property
    def cells(self) -> int:
        """Cells of the fit."""
        return int(self.bins.max()) + 1

    @property
    def is_cut(self) -> bool:
        """Whether more is known of it than the fit's cells."""
        return self.cells < self.axis.cells

    def binned(self, place: int) -> Table:
        """Return what a number's own counts tell of the fit's cells, as a table of the column at this place."""
        assert self.law is not None
        onto = (np.arange(self.cells)[:, None] == self.bins).astype(np.float64)
        variances = ((onto @ self.law.covariance) * onto).sum(axis=1)
        return Table((place,), onto @ self.law.rows, np.sqrt(np.maximum(variances, 1e-6)))

    def within(self, coarse: FloatArray) -> FloatArray:
        """Return the shares of the fine cells, from those of the fit's cells."""
        held = np.bincount(self.bins, self.shares, minlength=self.cells)
        return np.asarray(self.shares * (coarse / np.maximum(held, 1e-300))[self.bins])

    def in_doubt(self, part: FloatArray) -> FloatArray:
        """Return which share of each fine cell is in doubt where some are asked for in part."""
        some = (part > 0) & (part < 1)
        if self.law is None:
            return np.minimum(part, 1 - part)
        uneven = np.append(np.sqrt(self.law.uneven), [0.0] * self.axis.has_null)
        return np.asarray(some * uneven)

    @cached_property
    def _inside(self) -> FloatArray:
        """Each fine cell's share of its cell of the fit."""
        held = self.shares + 1e-12
        return np.asarray(held / np.bincount(self.bins, held, minlength=self.cells)[self.bins])

    def gathered(self, part: FloatArray) -> FloatArray:
        """Return the mean over the fine cells of each cell of the fit."""
        return np.bincount(self.bins, part * self._inside, minlength=self.cells).astype(np.float64)

    @cached_property
    def spread(self) -> FloatArray:
        """P(fine cell | cell of the fit), shape (fine, cells)."""
        return np.asarray((self.bins[:, None] == np.arange(self.cells)) * self._inside[:, None])

    @cached_property
    def channel(self) -> FloatArray:
        """P(class | cell of the fit)."""
        return np.asarray(self.axis.channel @ self.spread) if self.is_cut else self.axis.channel

    def has_cells_of(self, axis: Axis) -> bool:
        """Return whether an axis has exactly the fit's cells."""
        return not self.is_cut and same_cells(self.axis, axis)

    def presented(
        self, axis: Axis, shares: FloatArray, variances: FloatArray, place: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return a joint, and its variances, by the cells of an axis in place of the fit's cells of this column."""
        if self.has_cells_of(axis):
            return shares, variances
        first = np.moveaxis(shares, place, 0)
        onto, moved, left = self.onto(axis), self.moved(axis, first), self.left_open(axis, first)
        noise = self.cut_errors(self.exact(axis), first)
        # Half of what a slope moves stands for what is not straight, and for its own error.
        within = (moved / 2) ** 2 + left**2 + noise**2
        seen = np.tensordot(onto, first, axes=1) + moved
        spread = np.tensordot(onto**2, np.moveaxis(variances, place, 0), axes=1) + within
        return np.moveaxis(seen, 0, place), np.moveaxis(spread, 0, place)

    def onto(self, axis: Axis) -> FloatArray:
        """Return P(cell of an axis | cell of the fit), codes spread evenly within fine cells."""
        return np.asarray(self.exact(axis) @ self.spread)

    def cut_errors(self, exact: FloatArray, shares: FloatArray) -> FloatArray:
        """Return root mean squared errors of a joint, its first axis the column's, by how fine cells share theirs.

        Parameters
        ----------
        exact
            What part of each fine cell lies in each cell that is asked for, shape (asked for, fine).
        shares
            The joint by the fit's cells, shape (cells, …).
        """
        errors = np.zeros((len(exact), *shares.shape[1:]))
        parts = exact @ self.spread
        cutting = ((parts > _WHOLE) & (parts < 1 - _WHOLE)).any(axis=1)
        if self.law is None or not cutting.any():
            return errors
        onto = (self.bins[:, None] == np.arange(self.cells)).astype(np.float64)
        squares = np.zeros((int(cutting.sum()), *shares.shape[1:]))
        for rows in self.law.replicas:
            held = (rows + 1e-9) / ((rows + 1e-9) @ onto)[self.bins]
            apart = (exact[cutting] * held) @ onto - parts[cutting]
            squares += np.tensordot(apart, shares, axes=(1, 0)) ** 2
        errors[cutting] = np.sqrt(squares / len(self.law.replicas))
        return errors

    def moved(self, axis: Axis, shares: FloatArray) -> FloatArray:
        """Return what `onto` leaves out of a joint whose first axis is the column's: slopes within cells of the fit."""
        return moved_by_slopes(shares, self.exact(axis), self.spread, self.cells - self.axis.has_null)

    def left_open(self, axis: Axis, shares: FloatArray) -> FloatArray:
        """Return by how much an axis's cells may err that cut the finest cells known, of a joint as for `moved`."""
        exact = self.exact(axis)
        widths = np.diff(np.append(first_codes(self.axis), self.axis.column.space.values)).astype(np.float64)
        widths = np.append(widths, 1.0) if self.axis.has_null else widths
        return left_open(shares, exact, self.spread, widths, self.cells - self.axis.has_null)

    def exact(self, axis: Axis) -> FloatArray:
        """Return what part of each fine cell lies in each cell of an axis, shape (axis, fine)."""
        exact = into_cells(self.axis, axis)
        return aggregation(as_bins(self.axis), as_bins(axis)) if exact is None else exact


def as_bins(axis: Axis) -> BinnedAxis:
    """Return an axis as bins; of listed codes one for each."""
    if axis.grid is not None:
        return axis.grid
    return BinnedAxis(axis.column, tuple(range(axis.column.space.values + 1)), ())
