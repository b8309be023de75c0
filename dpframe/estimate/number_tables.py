"""A number's distribution and moments from its measured one-way and sum, and items' supports, beside the rows'."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.estimate.axes import BinnedAxis
from dpframe.estimate.distribution import line_of
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.table_column import as_bins
from dpframe.evidence.combine import few_rows
from dpframe.evidence.number_law import NumberLaw

Known = tuple[float, float]
"""An estimate and its variance."""


def combined(found: Sequence[Known]) -> Known:
    """Return the mean of independent estimates weighted by inverse variance, and its variance.

    >>> combined([(1.0, 1.0), (4.0, 2.0)])
    (2.0, 0.6666666666666666)
    """
    weights = [1 / variance if variance > 0 else math.inf for _, variance in found]
    exact = [value for (value, _), weight in zip(found, weights, strict=True) if math.isinf(weight)]
    if exact:
        return exact[0], 0.0
    total = math.fsum(weights)
    if not total > 0:
        return found[0]
    return math.fsum(v * w for (v, _), w in zip(found, weights, strict=True) if w > 0) / total, 1 / total


@dataclass(frozen=True, eq=False)
class NumberTables:
    """What tables tell of a number: how its rows are spread over ``axis``'s cells, and its sum of codes if measured."""

    tables: MeasuredTables
    name: str
    axis: BinnedAxis
    law: NumberLaw
    rows: int

    source = "tables"

    @property
    def shares(self) -> FloatArray:
        """Shares of the cells."""
        return self.law.shares

    @classmethod
    def of(cls, tables: MeasuredTables, name: str, rows: int) -> NumberTables | None:
        """Return what is known of a column, or None where its one-way was not measured."""
        law = tables.law(name)
        member = tables.member(name)
        return None if law is None or member is None else cls(tables, name, as_bins(member.axis), law, rows)

    def parts_of(self, parts: FloatArray, sampling: float, z: float) -> FloatArray:
        """Return shares of the rows whose part of each cell ``parts`` says, with errors and intervals.

        See `dpframe.estimate.distribution.Distribution.parts_of`.
        """
        found, errors = self.law.linear(np.atleast_2d(parts), sampling >= 1)
        return np.stack([found, errors, found - z * errors, found + z * errors]) / max(self.rows, 1)

    def quantiles_of(self, levels: FloatArray, sampling: float, z: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return codes of quantiles and the ends of their intervals at z standard errors."""
        return self.law.quantiles(levels, z, sampling >= 1)

    @property
    def _present(self) -> Known:
        """Rows that are not null."""
        if not self.axis.has_null:
            return float(self.rows), 0.0
        rows = self.rows - float(self.law.rows[-1])
        return float(np.clip(rows, 1.0, self.rows)), float(self.law.covariance[-1, -1])

    @property
    def within(self) -> FloatArray:
        """Variance of codes within every cell, were they spread evenly."""
        return np.asarray((self.law.widths**2 - 1) / 12)

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the codes of rows that are not null."""
        return float(self._normal @ self.law.middles), self._spread()

    def total(self, sampling: float) -> Known:
        """Return the sum of the numbers of the rows that are not null."""
        (rows, spread), (start, step) = self._present, line_of(self.axis.column.space)
        codes, own = self._codes()
        spread_of_values = sampling * rows * self._spread() if sampling else 0.0
        variance = step**2 * (own + spread_of_values) + start**2 * spread
        return start * rows + step * codes, variance

    def mean(self, sampling: float) -> Known:
        """Return the mean of the numbers of the rows that are not null."""
        (rows, spread), (start, step) = self._present, line_of(self.axis.column.space)
        codes, own = self._codes()
        mean = codes / max(rows, 1.0)
        variance = (own + mean**2 * spread) / max(rows, 1.0) ** 2 * float(few_rows(rows, spread)) ** 2
        variance += sampling * self._spread() / max(rows, 1.0) if sampling else 0.0
        return start + step * mean, step**2 * variance

    def variance(self, ddof: int, sampling: float) -> Known:
        """Return the variance of the numbers; what may lie within cells is part of its error."""
        rows, _ = self._present
        _, step = line_of(self.axis.column.space)
        value, error = self.law.variance()
        factor = rows / max(rows - ddof, 1e-300) * step**2
        own = sampling * self._spread_of_squares() / max(rows, 1.0)
        return value * factor, (error**2 + own) * factor**2

    def _codes(self) -> Known:
        """Return the sum of codes: as measured, or from the cells, whose codes may lie anywhere in them."""
        measured = self.tables.of_kind("sum", self.name)
        if measured is not None:
            return float(measured.counts.ravel()[0]), measured.measure.sigma2
        middle, (rows, _) = self.law.middles, self._present
        centre = float(self._normal @ middle)
        value, error = self.law.linear((middle - centre)[None, :])
        return rows * centre + float(value[0]), float(error[0]) ** 2 + rows**2 * float(self._normal @ self.within)

    @property
    def _normal(self) -> FloatArray:
        present = self.law.positive[: len(self.law.starts)]
        return np.asarray(present / max(float(present.sum()), 1e-300))

    def _spread(self) -> float:
        """Return the variance of the codes."""
        return self.law.variance()[0]

    def _spread_of_squares(self) -> float:
        """Return the variance of squared distances from the mean, values in the middle of their cells."""
        law, middle = self._normal, self.law.middles
        squares = (middle - law @ middle) ** 2
        return float(law @ squares**2 - (law @ squares) ** 2)


@dataclass(frozen=True, eq=False)
class NumberPair:
    """What the measured table of two numbers, cut into few bins, tells of their covariance.

    With both taken for the means of their bins a covariance is too small by the part R of each variance that lies
    between bins, where either's mean is linear in the other: it is divided by both, and half of what that adds is
    taken for its error.
    """

    one: NumberTables
    other: NumberTables
    counts: FloatArray
    variances: FloatArray

    @classmethod
    def of(cls, one: NumberTables, other: NumberTables) -> NumberPair | None:
        """Return what is known of two numbers, or None where their pair was not measured."""
        found = one.tables.pair(one.name, other.name)
        return None if found is None else cls(one, other, *found)

    def moments(self, population: float) -> tuple[FloatArray, FloatArray]:
        """Return covariance and both variances, in squares of codes, and the variances of these three."""
        (x, a), (y, b) = (self._bins(number, axis) for axis, number in enumerate((self.one, self.other)))
        total = max(float(self.counts.sum()), 1.0)
        across = np.multiply.outer(x, y)
        between = float((self.counts * across).sum()) / total
        found = between / max(a * b, 1e-3)
        noise = float((self.variances * across**2).sum()) / (total * max(a * b, 1e-3)) ** 2
        noise += ((found - between) / 2) ** 2
        spreads = [number.variance(0, population) for number in (self.one, self.other)]
        steps = [line_of(number.axis.column.space)[1] for number in (self.one, self.other)]
        own = [value / step**2 for (value, _), step in zip(spreads, steps, strict=True)]
        noise += population * (own[0] * own[1] + found**2) / total
        errors = [variance / step**4 for (_, variance), step in zip(spreads, steps, strict=True)]
        return np.array([found, *own]), np.array([noise, *errors])

    def covariance(self, ddof: int, population: float) -> Known:
        """Return the covariance in the product of both units."""
        values, variances = self.moments(population)
        steps = line_of(self.one.axis.column.space)[1] * line_of(self.other.axis.column.space)[1]
        total = max(float(self.counts.sum()), ddof + 1.0)
        factor = steps * total / (total - ddof)
        return float(values[0]) * factor, float(variances[0]) * factor**2

    def _bins(self, number: NumberTables, axis: int) -> tuple[FloatArray, float]:
        """Return the centred mean code of every bin, and the part of the variance that lies between bins."""
        middle, within = number.law.middles, number.within
        member = number.tables.member(number.name)
        assert member is not None, "a pair that was measured is of columns that were"
        bins, shares = member.bins[: len(middle)], number.shares[: len(middle)] + 1e-12
        held = np.bincount(bins, shares)
        means = np.bincount(bins, shares * middle) / held
        spread = np.bincount(bins, shares * ((middle - means[bins]) ** 2 + within)) / held
        law = self.counts.sum(axis=1 - axis) / max(float(self.counts.sum()), 1.0)
        centred = means - law @ means
        between = float(held @ (means - held @ means / held.sum()) ** 2)
        return centred, between / max(between + float(held @ spread), 1e-300)


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Measured counts of the rows that hold each item of a set column, cut to so many items a row.

    ``lost`` is the share of items that the cut took, as the rows tell it, and ``spread`` that of a count's variance:
    which items a row lost is not known, so that a count may lack as much as all of its share.
    """

    counts: FloatArray
    sigma2: float
    lost: float = 0.0
    spread: float = 0.0

    @property
    def variances(self) -> FloatArray:
        """Variances of the counts about those of the table."""
        held = np.maximum(self.counts, 0.0)
        return np.asarray(self.sigma2 + self.spread * held + (self.lost * held) ** 2)

    def beside(
        self, rows: FloatArray, spread: FloatArray, normalize: bool, population: bool, present: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return shares, or counts, and variances, from these and the rows' own, by inverse mean variance.

        ``present`` is the number of rows that are not null.
        """
        scale = present if normalize else 1.0
        counts, own = self.counts / scale, self.variances / scale**2
        mean, level = float(np.mean(spread)), float(np.mean(own))
        weight = level / (level + mean) if math.isfinite(mean) and mean > 0 else 0.0
        with np.errstate(invalid="ignore"):
            found = counts if weight == 0 else (1 - weight) * counts + weight * rows
            variance = (1 - weight) ** 2 * own + (weight**2 * spread if weight > 0 else np.zeros_like(counts))
        shares = np.clip(found * scale / present, 0.0, 1.0)
        extra = shares * (1 - shares) * present / scale**2 if population else 0.0
        return found, variance + extra
