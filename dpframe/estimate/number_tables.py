"""A number's distribution and moments from its measured one-way and sum, and items' supports, beside the rows'."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.estimate.axes import BinnedAxis
from dpframe.estimate.distribution import line_of
from dpframe.estimate.likelihood import project_to_simplex
from dpframe.estimate.measured_tables import MeasuredTables, as_bins, middle_codes
from dpframe.estimate.moments import REPLICATES

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
    """What tables tell of a number: its fine one-way, in ``axis``'s cells, and its sum of codes where measured.

    The mean needs no fit where a sum was measured and no population is asked for.
    """

    tables: MeasuredTables
    name: str
    axis: BinnedAxis
    rows: int

    @cached_property
    def shares(self) -> FloatArray:
        """Shares of the fine cells, which need the fit."""
        return self.tables.fine(self.name)

    @classmethod
    def of(cls, tables: MeasuredTables, name: str, rows: int) -> NumberTables | None:
        """Return what is known of a column, or None where its one-way was not measured."""
        member = tables.member(name)
        if member is None or not member.axis.column.space.is_numeric or member.axis.column.space.is_listed:
            return None
        if tables.told([name]) != "tables":
            return None
        return cls(tables, name, as_bins(member.axis), rows)

    def errors_of(self, function: Callable[[FloatArray], FloatArray], sampling: float) -> FloatArray:
        """Return root mean squared errors of a function of the shares, by parametric bootstrap of counts and sum.

        ``sampling`` is 1 for the population; tables are of all rows, so that nothing below it counts.
        """
        generator, squares = np.random.default_rng(0), []
        sigma, measured = self._sigma, self.tables.of_kind("sum", self.name)
        refining = self.tables.columns[self.name].refining
        present = len(self.shares) - self.axis.has_null
        middle = middle_codes(self.axis)
        for _ in range(REPLICATES):
            truth = generator.multinomial(self.rows, self.shares / self.shares.sum()) / max(self.rows, 1)
            if refining is None:
                noisy = truth + sigma * generator.standard_normal(len(truth)) / max(self.rows, 1)
            else:
                noisy = refining.remeasured(truth * self.rows, generator) / max(self.rows, 1)
            again = project_to_simplex(noisy)
            if measured is not None:
                noise = math.sqrt(measured.measure.sigma2) * generator.standard_normal()
                again = self.tables.at_mean(
                    self.name, again, float(truth[:present] @ middle) * self.rows + float(noise)
                )
            against = self.shares if sampling >= 1 else truth
            squares.append((function(again) - function(against)) ** 2)
        return np.asarray(np.sqrt(np.mean(squares, axis=0)))

    @cached_property
    def _raw(self) -> tuple[FloatArray, FloatArray]:
        """Counts of the fine cells and their variances."""
        member = self.tables.member(self.name)
        assert member is not None
        raw = self.tables.raw([member.axis])
        assert raw is not None
        return raw

    @property
    def _sigma(self) -> FloatArray:
        """Noise of every fine cell's count."""
        return np.sqrt(self._raw[1])

    @property
    def _present(self) -> Known:
        """Rows that are not null."""
        if not self.axis.has_null:
            return float(self.rows), 0.0
        counts, variances = self._raw
        return float(np.clip(self.rows - counts[-1], 1.0, self.rows)), float(variances[-1])

    @property
    def within(self) -> FloatArray:
        """Variance of codes within every cell, were they spread evenly."""
        widths = np.diff(self.axis.edges)
        return np.asarray((widths**2 - 1) / 12)

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
        variance = (own + mean**2 * spread) / max(rows, 1.0) ** 2
        variance += sampling * self._spread() / max(rows, 1.0) if sampling else 0.0
        return start + step * mean, step**2 * variance

    def variance(self, ddof: int, sampling: float) -> Known:
        """Return the variance of the numbers; half of what may lie within cells is taken for its error."""
        rows, _ = self._present
        _, step = line_of(self.axis.column.space)
        within = float(self._normal(self.shares) @ self.within)
        error = math.hypot(float(self.errors_of(self._spread_of, 0.0)), within / 2)
        factor = rows / max(rows - ddof, 1e-300) * step**2
        own = sampling * self._spread_of_squares() / max(rows, 1.0)
        return self._spread() * factor, (error**2 + own) * factor**2

    def _codes(self) -> Known:
        """Return the sum of codes: as measured, or from the cells, whose codes may lie anywhere in them."""
        measured = self.tables.of_kind("sum", self.name)
        if measured is not None:
            return float(measured.counts.ravel()[0]), measured.measure.sigma2
        middle, present = middle_codes(self.axis), self.shares[: len(self.shares) - self.axis.has_null]
        rows = float(present.sum()) * self.rows
        centre = float(self._normal(self.shares) @ middle)
        noise = float(self._sigma[: len(present)] ** 2 @ (middle - centre) ** 2)
        return rows * centre, noise + rows**2 * float(self._normal(self.shares) @ self.within)

    def _normal(self, shares: FloatArray) -> FloatArray:
        present = shares[: len(shares) - self.axis.has_null]
        return np.asarray(present / max(float(present.sum()), 1e-300))

    def _spread(self) -> float:
        return float(self._spread_of(self.shares))

    def _spread_of_squares(self) -> float:
        """Return the variance of squared distances from the mean, values in the middle of their cells."""
        law, middle = self._normal(self.shares), middle_codes(self.axis)
        squares = (middle - law @ middle) ** 2
        return float(law @ squares**2 - (law @ squares) ** 2)

    def _spread_of(self, shares: FloatArray) -> FloatArray:
        """Return the variance of the codes."""
        law, middle = self._normal(shares), middle_codes(self.axis)
        centre = law @ middle
        return np.asarray(law @ ((middle - centre) ** 2 + self.within))


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
        middle, within = middle_codes(number.axis), number.within
        member = number.tables.columns[number.name]
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
