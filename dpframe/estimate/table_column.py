"""One column of a fit to measured tables: its finest cells, the fit's cells, and maps between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpframe.estimate.axes import Axis
from dpframe.estimate.evidence.combine import project
from dpframe.estimate.evidence.number_law import NumberLaw
from dpframe.observe.noisy_counts import NoisyCounts, through
from dpframe.plan.candidate_tables import JOINT_NUMBER_BINS
from dpframe.spaces.arrays import FloatArray, IntArray

STEEPEST = 200.0
"""Largest exponent of a tilt over the range of the values: beyond it all weight is on one value (tolerance)."""


TILT_TOLERANCE = 1e-13
"""Error of a tilt's steepness, relative to the steepest (tolerance)."""


@dataclass(frozen=True, eq=False)
class TableColumn:
    """One column of a fit.

    ``axis`` has the finest cells. ``bins`` is the fit's cell of each fine cell, and ``shares`` are the fine cells'
    shares. ``law`` is a number's law from its own tables.
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
    def ordered_cells(self) -> int:
        """Number of the fit's leading cells that have an order: all but null's, or 0 for categories."""
        return self.cells - self.axis.flag_codes if self.axis.column.space.metric != "discrete" else 0

    @property
    def is_cut(self) -> bool:
        """Whether the fine cells are finer than the fit's cells."""
        return self.cells < self.axis.cells

    @property
    def bins_of_values(self) -> IntArray:
        """The cell of each value or fine cell after `to_own_cells`, null's last."""
        return self.bins if self.axis.own_cells is None else np.arange(len(self.axis.own_cells))

    def to_own_cells(self, counts: FloatArray, place: int) -> FloatArray:
        """Return counts, or their variances, by an indicator's own two cells along one dimension; others unchanged."""
        matrix = self.axis.own_cells
        return counts if matrix is None else through(matrix, counts, place)

    @property
    def merge(self) -> FloatArray:
        """Matrix that merges fine cells into the fit's cells, shape (cells, fine)."""
        return np.asarray(np.arange(self.cells)[:, None] == self.bins, dtype=np.float64)

    def binned(self, place: int) -> NoisyCounts:
        """Return a number's own counts by the fit's cells, as a table of the column at this place."""
        assert self.law is not None
        variances = ((self.merge @ self.law.covariance) * self.merge).sum(axis=1)
        return NoisyCounts((place,), self.merge @ self.law.rows, np.maximum(variances, 1e-6))

    def within(self, coarse: FloatArray) -> FloatArray:
        """Return the shares of the fine cells, from shares of the fit's cells."""
        bin_shares = np.bincount(self.bins, self.shares, minlength=self.cells)
        return np.asarray(self.shares * (coarse / np.maximum(bin_shares, 1e-300))[self.bins])

    @cached_property
    def _shares_within_bins(self) -> FloatArray:
        positive_shares = self.shares + 1e-12
        return np.asarray(positive_shares / np.bincount(self.bins, positive_shares, minlength=self.cells)[self.bins])

    def gathered(self, part: FloatArray) -> FloatArray:
        """Average values of the fine cells over each cell of the fit."""
        return np.bincount(self.bins, part * self._shares_within_bins, minlength=self.cells).astype(np.float64)

    @cached_property
    def spread(self) -> FloatArray:
        """P(fine cell | cell of the fit), shape (fine, cells)."""
        return np.asarray((self.bins[:, None] == np.arange(self.cells)) * self._shares_within_bins[:, None])

    @cached_property
    def channel(self) -> FloatArray:
        """P(class | cell of the fit)."""
        return np.asarray(self.axis.channel @ self.spread) if self.is_cut else self.axis.channel

    def has_cells_of(self, axis: Axis) -> bool:
        """Return whether an axis has exactly the fit's cells."""
        return not self.is_cut and self.axis.has_cells_of(axis)

    def presented(self, axis: Axis, shares: FloatArray, place: int) -> FloatArray:
        """Convert one dimension of a joint from the fit's cells to the cells of an axis."""
        if self.has_cells_of(axis):
            return shares
        first, exact = np.moveaxis(shares, place, 0), self.axis.overlap_with(axis)
        slope_shifts = moved_by_slopes(first, exact, self.spread, self.cells - self.axis.flag_codes)
        return np.moveaxis(np.tensordot(exact @ self.spread, first, axes=1) + slope_shifts, 0, place)

    def onto(self, axis: Axis) -> FloatArray:
        """Return P(cell of an axis | cell of the fit), codes spread evenly within fine cells."""
        return np.asarray(self.axis.overlap_with(axis) @ self.spread)


# Cells that cut a fit's bins: the spread of rows within a bin, to the first order. A fit has the other columns' law
# only per bin of a number. An even spread over the bin would make this law a staircase. Instead it is piecewise linear
# in the number's ranks, with the bins' means and the slope between the two neighbours (as finite-volume schemes
# reconstruct a density: van Leer 1979). Totals of bins, and of each cell over all other columns, do not change.


def moved_by_slopes(shares: FloatArray, exact: FloatArray, spread: FloatArray, present: int) -> FloatArray:
    """Return the shares that slopes within bins move into each cell, relative to an even spread.

    The first axis of ``shares`` has the bins. ``exact`` is P(cell | fine cell) of the requested cells, ``spread`` is
    P(fine cell | bin). Null, after the bins ``present``, has no neighbours.
    """
    joint = shares.reshape(len(shares), -1)
    bin_shares = joint.sum(axis=1)
    fine = spread @ bin_shares
    places = np.cumsum(fine) - fine / 2
    slopes = _bin_slopes(joint, bin_shares, places @ spread, present)
    moments = exact @ (spread * (places[:, None] - places @ spread)) * bin_shares
    return np.asarray((moments @ slopes).reshape(len(exact), *shares.shape[1:]))


def _bin_slopes(joint: FloatArray, bin_shares: FloatArray, middles: FloatArray, present: int) -> FloatArray:
    """Return the slope of the other columns' law along each bin, per unit of rank; 0 for empty bins."""
    filled_bins = np.flatnonzero(bin_shares[:present] > 0)
    rank_slopes = np.zeros_like(joint)
    if len(filled_bins) < 2:
        return rank_slopes
    law, bin_widths = joint[filled_bins] / bin_shares[filled_bins, None], bin_shares[filled_bins, None]
    left_bins = np.maximum(np.arange(len(filled_bins)) - 1, 0)
    right_bins = np.minimum(np.arange(len(filled_bins)) + 1, len(filled_bins) - 1)
    runs = (middles[filled_bins[right_bins]] - middles[filled_bins[left_bins]])[:, None]
    # No density may be negative at a bin's ends, and densities add up to the bin's.
    # Bins with hardly any rows lie at one rank, and have no slope.
    steep = np.divide(law[right_bins] - law[left_bins], runs, out=np.zeros_like(law), where=runs > 0)
    slopes = np.clip(steep, -2 * law / bin_widths, 2 * law / bin_widths)
    rank_slopes[filled_bins] = slopes - law * slopes.sum(axis=1, keepdims=True)
    return rank_slopes


# Numbers: bins of a fine one-way, and a sum


def quantile_bins(counts: FloatArray, flag_codes: int = 0, most: int = JOINT_NUMBER_BINS) -> IntArray:
    """Return the bin of every cell of a number's noisy one-way: runs of about equal shares.

    The last ``flag_codes`` cells, of special values and null, each have their own bin.

    >>> quantile_bins(np.array([1.0, 1.0, 6.0, 1.0, 1.0, -0.4, 2.0]), most=3)
    array([0, 0, 1, 2, 2, 2, 2])
    """
    present = counts[: len(counts) - flag_codes]
    shares = project(present / max(float(present.sum()), 1.0))
    middles = np.cumsum(shares) - shares / 2
    bins = np.minimum((middles * most).astype(np.int64), most - 1)
    bins = np.cumsum(np.diff(bins, prepend=bins[0]) > 0)
    return np.append(bins, bins[-1] + 1 + np.arange(flag_codes))


def tilt_to_mean(shares: FloatArray, values: FloatArray, mean: float) -> FloatArray:
    """Return the shares ∝ p·exp(θ·v) with a given mean: the nearest in divergence with this mean (Csiszár 1975).

    A mean outside the values with positive shares is clipped to the nearer end.
    """
    is_positive = shares > 0
    low, high = values[is_positive].min(), values[is_positive].max()
    if high <= low:
        return shares
    place = np.where(is_positive, (values - low) / (high - low), 0.0)
    target_place = (mean - low) / (high - low)

    def tilt(steepness: float) -> FloatArray:
        exponents = steepness * (place - (steepness > 0))
        weights = np.where(is_positive, shares * np.exp(exponents), 0.0)
        return np.asarray(weights / weights.sum())

    low_tilt, high_tilt = -STEEPEST, STEEPEST
    # The mean rises with the steepness. SciPy's root search would cost a first answer a third of a second of import.
    while high_tilt - low_tilt > STEEPEST * TILT_TOLERANCE:
        middle = (low_tilt + high_tilt) / 2
        low_tilt, high_tilt = (middle, high_tilt) if float(tilt(middle) @ place) < target_place else (low_tilt, middle)
    return tilt((low_tilt + high_tilt) / 2)


@dataclass(frozen=True, eq=False)
class BinMeans:
    """Mean codes of a number's bins in a fit, 0 for those of special values and null.

    ``spreads`` are the variances of the codes in every bin, ``reaches`` their mean squared distances from the bin's
    mean if any value of the bin were as likely, and ``present`` is 1 for values and 0 for special values and null.
    """

    means: FloatArray
    spreads: FloatArray
    reaches: FloatArray
    present: FloatArray

    @classmethod
    def of(cls, column: TableColumn, law: NumberLaw, shares: FloatArray) -> BinMeans:
        """Return the bin means of a number, given the shares of its fine cells, null's last."""
        present = np.arange(column.cells) < column.cells - column.axis.flag_codes
        if column.axis.own_cells is not None:
            within = column.axis.within
            return cls(column.axis.middles, within, within, present.astype(np.float64))
        onto, even_shares = column.merge[:, : law.bins].T, law.widths / law.space.values

        def average_codes(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
            cell_rows = rows[..., : law.bins] + even_shares * 1e-12 * np.maximum(rows.sum(axis=-1, keepdims=True), 1.0)
            bin_rows = np.maximum(cell_rows @ onto, 1e-300)
            return (cell_rows * law.middles) @ onto / bin_rows, bin_rows

        means, bin_rows = average_codes(shares)
        squares = (law.middles - onto @ means) ** 2 + law.within
        spreads = (shares[: law.bins] + even_shares * 1e-12) * squares @ onto / bin_rows
        reaches = even_shares * squares @ onto / np.maximum(even_shares @ onto, 1e-300)
        return cls(means, spreads * present, reaches * present, present.astype(np.float64))
