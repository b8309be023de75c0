"""How the rows of a number are spread over its cells: one estimate from all that was measured, with its covariance.

A statistic that is linear in the rows by cell, f·x, has two estimates: the unbiased one, and that of the nearest
numbers of rows that are not negative. The one with the smaller expected error is taken, whose error is from the law of
the noise (the covariance; a parametric bootstrap), never from the sample. Where f is not the same over a cell, how the
rows lie within the cell is part of the error: as a Dirichlet process about an even spread (`share_variance`), with a
heap in the part of the cell that f cuts, of whose rows nothing finer was counted, and as a density that rises or falls
as its neighbours' do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from dpframe.estimate.evidence.cells import UNKNOWN, Tree, tree_of
from dpframe.estimate.evidence.combine import few_rows, pooled, project
from dpframe.estimate.evidence.law import Known, Law, Line, code_at
from dpframe.observe.observation import (
    Observation,
    gain_of,
    remaining_covariance,
    truncated_normal_moments,
    update,
)
from dpframe.observe.overlap import overlap_cells
from dpframe.observe.quantiles import NORMAL_QUANTILE
from dpframe.observe.significance import DETECTION_SE
from dpframe.plan.measures import MeasuredTable
from dpframe.plan.threads import one_thread
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray, IntArray

REPLICATES = 60
"""Draws of a parametric bootstrap (limit of time)."""

_CAREFUL = 1.4
"""Factor of a bootstrap's errors: about a truth that is drawn from an estimate, shrinking costs less than it does
(tuned; half and twice it change widths on a census by −33 and 0 %)."""

_DIFFUSE = 10.0
"""Standard deviation, in numbers of all rows, of what nothing is known of beforehand (tolerance)."""

_WIDE, _POINTS = 40.0, 8_001
"""Scales of a cut normal law on either side that are integrated over, and at how many points (tolerance)."""

_FALL, _ROOM = 2.0, 8.0
"""The power of its distance by which what lies beyond falls beforehand, away from the median, and by what part of a
stretch its beginning is off the median at least (tuned; half and twice it change widths on a census: `_FALL` by 5 and
−6 %, `_ROOM` by −2 and 0 %)."""

_LOOSE = 0.05
"""Variance of the part of a stretch that lies in one half of it, at least (tuned; half and twice it change widths on a
census by 7 and −3 %)."""

_KEPT = 0.02
"""Part of a cell's rows that may be taken for moved though it keeps them (tolerance)."""

_MOST_RAISED = 1e3
"""By which factor bins may make a covariance smaller, at most (tolerance)."""

_EXACT = 1e-2
"""Variance of a count that is exact: that of all rows (tolerance)."""


@dataclass(frozen=True, eq=False)
class NumberLaw(Law):
    """Numbers of rows by cell, null's last where the space has it, and their covariance.

    ``rows`` are unbiased; ``uneven`` is how unevenly they may lie in every cell of values, from 0 to 1, as sum of
    squared shares; ``part_shares`` the share of a cell's codes that each of its counted parts has, 0 where none holds
    several codes; ``block`` the number of the first level's cell that every cell lies in; ``total`` the sum of the
    codes, where it was measured. Once evened, ``follows`` is by how much the rows of every cell (first axis) follow
    those that each had before, ``hidden`` how many more rows than now noise may hide in it, and ``counted`` the
    covariance of what was counted.
    """

    source = "tables"

    space: Space
    rows: FloatArray
    covariance: FloatArray
    uneven: FloatArray
    part_shares: FloatArray
    n: float
    block: IntArray
    total: Known | None = None
    follows: FloatArray | None = None
    hidden: FloatArray | None = None
    counted: FloatArray | None = None

    @classmethod
    @one_thread
    def of(cls, space: Space, n: float, first: MeasuredTable, finer: Sequence[MeasuredTable] = ()) -> NumberLaw:
        """Return what the measured levels of a number say.

        >>> from dpframe.plan.measures import Measure
        >>> from dpframe.spaces import Integer
        >>> counts = np.array([40, 30, 20, 10])
        >>> table = MeasuredTable(Measure("one_way", ("x",), 4.0), (None,), counts)
        >>> law = NumberLaw.of(Integer(0, 3), 100.0, table)
        >>> [round(float(value), 1) for value, in law.linear(np.array([[1.0, 1.0, 0.0, 0.0]]))]
        [70.0, 2.0]
        """
        tree = tree_of(space, first, finer)
        leaves = sorted(tree.leaves)
        starts = np.array([start for start, *_ in leaves], dtype=np.int64)
        prior, covariance = _prior(tree, starts, len(starts) + space.has_null, n)
        edges = np.append(starts, space.values)
        if space.has_null:
            prior[-1], covariance[-1, -1] = float(first.counts[-1]), first.measure.sigma2
        low, high, counts, variances = np.array(tree.facts, dtype=np.float64).T
        design = np.pad(overlap_cells(edges, low, high), ((0, 0), (0, int(space.has_null))))
        rows, covariance = update(prior, covariance, Observation(design, counts, variances))
        everybody = Observation(np.ones((1, len(rows))), np.array([n]), np.array([_EXACT]))
        rows, covariance = update(rows, covariance, everybody)
        # A cell that looks more uneven by its own parts than others of its level is taken for that.
        uneven = np.array([max(tree.unevenness(level), own) for _, _, level, own, _ in leaves])
        part_shares = np.array([share for *_, share in leaves])
        block = np.searchsorted(first.to_observation(space).runs.starts, starts, side="right") - 1
        return cls(edges, space, rows, covariance, uneven, part_shares, float(n), block)

    @classmethod
    @one_thread
    def of_values(cls, space: Space, n: float, counts: FloatArray, variances: FloatArray) -> NumberLaw:
        """Return what unbiased counts of every value of a listed number say, null's last where the space has it.

        >>> from dpframe.spaces import Boolean
        >>> law = NumberLaw.of_values(Boolean(), 100.0, np.array([52.0, 44.0]), np.array([8.0, 8.0]))
        >>> law.rows.round().tolist(), law.covariance.round().tolist()
        ([54.0, 46.0], [[4.0, -4.0], [-4.0, 4.0]])
        """
        everybody = Observation(np.ones((1, len(counts))), np.array([n]), np.array([_EXACT]))
        rows, covariance = update(counts, np.diag(variances), everybody)
        values = np.arange(space.values + 1, dtype=np.int64)
        even = np.zeros(space.values)
        return cls(values, space, rows, covariance, even, even, float(n), values[:-1])

    @one_thread
    def condition_on(self, facts: Observation) -> NumberLaw:
        """Return the law given an observation; cells observed in part add what their unevenness leaves open."""
        loose = replace(facts, variances=facts.variances + self._open(facts.matrix[:, : self.bins]))
        rows, covariance = update(self.rows, self.covariance, loose)
        return replace(self, rows=rows, covariance=covariance)

    @one_thread
    def with_sum(self, total: float, variance: float) -> NumberLaw:
        """Return the law when the sum of the codes is known as well, nulls adding nothing."""
        exact = variance + self._off_middles
        facts = Observation(self._padded(self.middles[None, :]), np.array([total]), np.array([exact]))
        rows, covariance = update(self.rows, self.covariance, facts)
        return replace(self, rows=rows, covariance=covariance, total=(total, variance))

    @one_thread
    def evened(self, bins: IntArray) -> NumberLaw:
        """Return the law where rows that noise hides are spread as of a fall: a Pólya tree (Lavine 1992).

        Beforehand either half of a stretch has its part of a density that falls away from the median as a power of the
        distance, give or take as much as if all rows lay in one half by that chance, and more by as much as the rows
        that may lie in the whole exceed the noise of that difference: where counts say how rows lie they stay as
        they are. In far tails, which have few rows in many cells, the noise of every cell is otherwise taken for rows
        that are far away.

        ``bins``: the number of the stretch that each cell of values lies in at first. Halves are halved again.
        """
        ends = np.concatenate([[0], np.flatnonzero(np.diff(bins[: self.bins])) + 1, [self.bins]])
        stretches = list(pairwise(ends.tolist()))
        beforehand = np.concatenate([self._falling(low, high) for low, high in stretches])
        rows, covariance = self.rows, self.covariance
        follows = np.eye(self.cells)
        most = self._at_most(follows)
        while stretches := [(low, high) for low, high in stretches if high - low > 1]:
            middles = [self._middle(low, high) for low, high in stretches]
            whole, half = np.zeros((2, len(stretches), self.cells))
            for i, ((low, high), middle) in enumerate(zip(stretches, middles, strict=True)):
                whole[i, low:high] = half[i, low:middle] = 1.0
            for (low, high), held in zip(stretches, self._at_most(whole, DETECTION_SE).tolist(), strict=True):
                most[low:high] = np.minimum(most[low:high], held)
            part = (half[:, : self.bins] @ beforehand) / (whole[:, : self.bins] @ beforehand)
            apart = half - part[:, None] * whole
            size, noise = (((parts @ covariance) * parts).sum(axis=1) for parts in (whole, apart))
            estimate = whole @ rows
            error = np.sqrt(np.maximum(size, 1.0))
            lift, kept = truncated_normal_moments(estimate / error)
            square = (estimate + error * lift) ** 2 + error**2 * kept
            open_ = square * np.maximum(part * (1 - part), _LOOSE) * (1 + square / np.maximum(noise, 1.0))
            gain = gain_of(covariance, apart, open_)
            rows, follows = (values - gain @ (apart @ values) for values in (rows, follows))
            covariance = remaining_covariance(covariance, gain, apart, open_)
            halved = zip(stretches, middles, strict=True)
            stretches = [half for (low, high), middle in halved for half in ((low, middle), (middle, high))]
        return replace(
            self,
            rows=rows,
            covariance=covariance,
            follows=follows,
            hidden=most - np.maximum(rows, 0.0),
            counted=self.covariance,
        )

    def _at_most(self, parts: FloatArray, errors: float = NORMAL_QUANTILE) -> FloatArray:
        """Return how many rows parts of all may have at most, with so many standard errors of noise above counts."""
        spread = np.sqrt(np.maximum(((parts @ self.covariance) * parts).sum(axis=1), 0.0))
        return np.asarray(np.clip(parts @ self.rows + errors * spread, 0.0, max(self.n, 0.0)))

    def _falling(self, low: int, high: int) -> FloatArray:
        """Return how the rows of a stretch of cells are spread over these beforehand: evenly if it holds the median."""
        cells, held = slice(low, high), np.cumsum(self.positive[: self.bins])
        median = int(np.searchsorted(held, held[-1] / 2))
        if low <= median < high:
            return self.widths[cells]
        ends = np.abs(self.edges[low : high + 1] - (self.edges[median] + self.edges[median + 1]) / 2)
        least = (ends.max() - ends.min()) / _ROOM
        return np.asarray(np.abs(np.diff((ends + max(least - ends.min(), 0.0)) ** -_FALL)))

    def _middle(self, low: int, high: int) -> int:
        """Return the cell whose beginning is nearest to the middle code of a stretch, but its first.

        A bound comes first, where rows beyond it lie and no fall says how many.
        """
        if high == self.bins and self.widths[-1] == 1:
            return high - 1
        if low == 0 and self.widths[0] == 1:
            return 1
        starts = self.edges[low + 1 : high]
        return low + 1 + int(np.abs(2 * starts - self.edges[low] - self.edges[high]).argmin())

    @property
    def cells(self) -> int:
        """Number of cells, null's included."""
        return len(self.rows)

    @cached_property
    def positive(self) -> FloatArray:
        """Numbers of rows that are not negative, near the unbiased ones."""
        return self._projected(self.rows)

    @cached_property
    def shares(self) -> FloatArray:
        """The same as shares of all rows; see `Law`."""
        return self.positive / max(float(self.positive.sum()), 1e-300)

    def _projected(self, rows: FloatArray) -> FloatArray:
        """Return the nearest numbers that are not negative: of the first level's cells, then within each of them."""
        found = np.zeros_like(rows)
        values = self.bins
        sums = np.bincount(self.block, rows[:values])
        totals = project(np.append(sums, rows[values:]), self._spreads, self.n)
        found[values:] = totals[len(sums) :]
        single = np.bincount(self.block) == 1
        alone = single[self.block]
        found[:values][alone] = totals[self.block[alone]]
        own = np.diag(self.covariance)
        for block in np.flatnonzero(~single).tolist():
            inside = np.flatnonzero(self.block == block)
            found[inside] = project(rows[inside], own[inside], float(totals[block]))
        return found

    @cached_property
    def _spreads(self) -> FloatArray:
        values = self.bins
        onto = (np.arange(int(self.block[-1]) + 1)[:, None] == self.block).astype(np.float64)
        inner = self.covariance[:values, :values]
        variances = ((onto @ inner) * onto).sum(axis=1)
        return np.append(variances, np.diag(self.covariance)[values:])

    @cached_property
    def root(self) -> FloatArray:
        """A matrix that takes independent standard noise to that of the counts, before they were evened."""
        values, vectors = np.linalg.eigh(self.covariance if self.counted is None else self.counted)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))

    @cached_property
    def replicas(self) -> FloatArray:
        """Positive numbers of rows from noise drawn anew about these, shape (replicas, cells)."""
        generator = np.random.default_rng(0)
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = generator.standard_normal((REPLICATES, len(self.rows))) @ root.T
        return np.array([self._projected(self.positive + draw) for draw in noise])

    def parts_of(self, parts: FloatArray, sampling: float, z: float) -> FloatArray:
        """Return shares of the rows; see `Law`."""
        found, errors = self.linear(np.atleast_2d(parts), sampling >= 1)
        return np.stack([found, errors, found - z * errors, found + z * errors]) / max(self.n, 1)

    def linear(self, parts: FloatArray, population: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return Σ parts·rows and its standard errors, of the table or of the population that it was drawn from.

        ``parts``: what each cell's rows count, on average over the cell, shape (statistics, cells of values or all
        cells); ``population``: whether it is of the population that the rows were drawn from.
        """
        parts = self._padded(parts)
        found, errors = self._smooth(parts)
        cut = self._open(parts[:, : self.bins])
        if population:
            mean = (parts @ self.positive) / self.n
            cut = cut + np.maximum(parts**2 @ self.positive - self.n * mean**2, 0.0)
        # What falls leaves a cell little of what noise may hide there, on average; but people ask for the value that
        # has the heap: all of the hidden rows in one code.
        values, counts = self.bins, ((parts >= 0) & (parts <= 1)).all(axis=1)
        hidden = self._at_most(np.eye(self.cells)) - self.positive if self.hidden is None else self.hidden
        inside = moved = np.clip(parts[:, :values], 0.0, 1.0)
        if self.follows is not None:
            # What counts have of the rows that were moved out of each cell.
            kept = np.diag(self.follows)[:values]
            moved = ((parts @ self.follows)[:, :values] - inside * (kept - _KEPT)) / np.maximum(1 - kept + _KEPT, _KEPT)
        apart = np.sqrt(np.minimum(2 * self.uneven, 1.0)) * ((inside > 0) & (inside < 1))
        most, least = inside + apart * (1 - inside), inside * (1 - apart)
        heap = (np.maximum(hidden[:values], 0.0) * np.maximum(most - moved, moved - least)).max(axis=1, initial=0.0)
        return found, np.maximum(np.hypot(errors, np.sqrt(cut)), np.where(counts, heap, 0.0) / NORMAL_QUANTILE)

    def _open(self, parts: FloatArray) -> FloatArray:
        """Return the variance that parts of cells leave open, of every statistic."""
        inside = np.clip(parts, 0.0, 1.0)
        held = self.positive[: self.bins]
        squares = held**2 + np.diag(self.covariance)[: self.bins]
        cut = (inside > 0) & (inside < 1)
        shares = share_variance(self.uneven, inside) + cut * self.part_shares**2 * share_variance(UNKNOWN, 0.0)
        between = inside * (1 - inside)
        return np.where(cut, shares, 0.0) @ squares + between @ held + (4 * between) ** 2 @ self._bent**2

    @cached_property
    def _bent(self) -> FloatArray:
        """Rows by which a smooth law has more or fewer in the first half of every cell of values than an even spread.

        Between the ends of cells its distribution function is a monotone cubic, whose slope at an end is the harmonic
        mean of both cells' densities (Fritsch and Butland 1984).
        """
        density = self.positive[: self.bins] / self.widths
        before, after = density[:-1], density[1:]
        slopes = 2 * before * after / np.maximum(before + after, 1e-300)
        slopes = np.concatenate([density[:1], slopes, density[-1:]])
        return np.asarray(np.diff(slopes) * self.widths / 8 * (self.widths > 1))

    def _padded(self, parts: FloatArray) -> FloatArray:
        missing = len(self.rows) - parts.shape[1]
        return np.pad(parts, ((0, 0), (0, missing))) if missing else parts

    def _smooth(self, parts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return linear statistics by the estimate of less expected error, and that error."""
        raw, spread = parts @ self.rows, ((parts @ self.covariance) * parts).sum(axis=1)
        near = parts @ self.positive
        apart = self.replicas @ parts.T - near
        # What is cut at zero adds up over empty cells: the bootstrap's own bias is taken for it.
        near = near - apart.mean(axis=0)
        errors = np.sqrt(np.maximum(spread, 0.0))
        error = _CAREFUL * np.sqrt(np.mean(apart**2, axis=0))
        # Both differ by more than noise where the cut at zero is biased: of many empty cells.
        error = np.sqrt(error**2 + np.maximum((near - raw) ** 2 - spread, 0.0))
        # Next to zero a bootstrap sees no rows that could be missed: those that noise hides.
        hidden = truncated_spread(raw, errors) * np.clip(1 - near / np.maximum(errors, 1e-300), 0.0, 1.0)
        error = np.maximum(error, np.where((parts >= 0).all(axis=1), hidden, 0.0))
        better = error < errors
        return np.where(better, near, raw), np.where(better, error, errors)

    @property
    def present(self) -> Known:
        """Rows that are not null, at least one, and the variance of their number."""
        if not self.has_null:
            return max(self.n, 1.0), 0.0
        return float(np.clip(self.n - self.rows[-1], 1.0, max(self.n, 1.0))), float(self.covariance[-1, -1])

    @property
    def _normal(self) -> FloatArray:
        held = self.positive[: self.bins]
        return np.asarray(held / max(float(held.sum()), 1e-300))

    @cached_property
    def _codes(self) -> Known:
        """The sum of codes: as measured, or from the cells, to which the sum adds one fact, where that errs less.

        Counts separate few full cells from empty ones; the noise of a sum is that of the whole range.
        """
        rows, centre = self.present[0], float(self._normal @ self.middles)
        apart = (self.middles - centre)[None, :]
        if self.total is None:
            error, off = self.linear(apart)[1], rows**2 * float(self._normal @ self.within)
        else:
            error, off = self._smooth(self._padded(apart))[1], self._off_middles
        found = float(self.risen @ self.middles), float(error[0]) ** 2 + off
        return found if self.total is None or found[1] < self.total[1] else self.total

    @property
    def risen(self) -> FloatArray:
        """Rows of cells of values whose sums from the first on never fall: the nearest to those that were counted.

        Counts that are cut at zero one by one put rows into empty cells far out, and counts as they are may put fewer
        than none there; of many cells together noise does neither (Barlow and Brunk 1972).
        """
        rows = self.present[0]
        sums = np.cumsum(self.rows[: self.bins])[:-1]
        return np.diff(np.clip(pooled(sums), 0.0, rows), prepend=0.0, append=rows)

    @property
    def _off_middles(self) -> float:
        held = np.maximum(self.rows[: self.bins], 0.0)
        return float((self.uneven * held**2 + held) @ self.within)

    def total_known(self, line: Line, sampling: float) -> Known:
        """Return what is known of the sum of the numbers, of the table (``sampling`` 0) or the population (1)."""
        (start, step), (rows, spread), (codes, own) = line, self.present, self._codes
        own += sampling * rows * self.variance()[0]
        return start * rows + step * codes, step**2 * own + start**2 * spread

    def mean_known(self, line: Line, sampling: float) -> Known:
        """Return the same of the mean of those that are not null."""
        (start, step), (rows, spread), (codes, own) = line, self.present, self._codes
        mean = codes / rows
        variance = (own + mean**2 * spread) / rows**2 * float(few_rows(rows, spread)) ** 2
        return start + step * mean, step**2 * (variance + sampling * self.variance()[0] / rows)

    def variance_known(self, line: Line, ddof: int, sampling: float) -> Known:
        """Return the same of their variance."""
        value, error = self.variance(sampling)
        factor = line[1] ** 2 * self.present[0] / max(self.present[0] - ddof, 1e-300)
        return value * factor, (error * factor) ** 2

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the codes; see `Law`."""
        return float(self._normal @ self.middles), self.variance()[0]

    def variance(self, sampling: float = 0.0) -> tuple[float, float]:
        """Return the variance of the codes and its error; what may lie within cells is part of it."""
        held = self.positive[: self.bins]
        rows = max(float(held.sum()), 1.0)
        near = float(self._normal @ self.middles)
        # Ratios to an uncertain number of rows, whose errors cancel in sums of what is left of a guess.
        found, error = (float(v[0]) / rows for v in self._smooth(self._padded((self.middles - near)[None, :])))
        centre, apart = near + found, error**2
        squares = (self.middles - centre) ** 2 + self.within
        guess = float(self._normal @ squares)
        left, error = (float(v[0]) / rows for v in self._smooth(self._padded((squares - guess)[None, :])))
        # The mean of a cell's codes may be off its middle, and their spread from that of an even one.
        off = self.uneven * self.widths**2 / 12
        loose = held**2 * (4 * (self.middles - centre) ** 2 * off + self.uneven * self.within**2)
        error = math.hypot(error, math.sqrt(float(loose.sum())) / rows, apart) * float(few_rows(rows, self.present[1]))
        drawn = (self.middles - near) ** 2
        own = sampling * float(self._normal @ drawn**2 - (self._normal @ drawn) ** 2) / rows
        # The spread about an estimated mean lacks that mean's own variance.
        return max(guess + left + apart, 0.0), math.hypot(error, math.sqrt(max(own, 0.0)))

    def quantiles(self, levels: FloatArray, z: float, sampling: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return quantiles and their intervals; see `Law`."""
        edges, cells = self.edges.astype(np.float64), self.bins
        below = np.tril(np.ones((cells + 1, cells)), -1)
        rows = max(float(self.positive[:cells].sum()), 1.0)
        # How rows lie within a cell: at one of their values a Dirichlet process has a variance of uneven/6 on average.
        shares = (self.uneven + UNKNOWN * self.part_shares**2) / 6 * (self.widths > 1)
        held = self.positive[:cells]
        loose = z * np.sqrt(shares * held**2 + self._bent**2 * 8 / 15) / rows
        # A share q of the rows that are present lies below: what is above counts against it.
        found, lower, upper = [], [], []
        for level in levels.tolist():
            told, error = self._smooth(self._padded(below * (1 - level) - (1 - below) * level))
            surplus, spread = rising(told / rows), error / rows
            if sampling >= 1:
                spread = np.hypot(spread, math.sqrt(level * (1 - level) / rows))
            found.append(_first(edges, surplus, True))
            most, least = surplus + z * spread, surplus - z * spread
            # Both ends of every cell; within it no more rows lie below than at its end, nor fewer than at its start.
            lines, sums, noise = (np.repeat(v, 2)[1:-1] for v in (edges, surplus, z * spread))
            unsure = np.hypot(noise, np.repeat(loose, 2))
            most = np.minimum(sums + unsure, np.repeat(most[1:], 2))
            least = np.maximum(sums - unsure, np.repeat(least[:-1], 2))
            lower.append(_first(lines, np.maximum.accumulate(most), True))
            upper.append(_first(lines, np.maximum.accumulate(least), False))
        middle, low, high = (code_at(np.array(ends), self.space.values) for ends in (found, lower, upper))
        return middle, np.minimum(low, middle), np.maximum(high, middle)


@dataclass(frozen=True, eq=False)
class NumberPair:
    """What the measured table of two numbers, cut into few bins, says of their covariance.

    ``laws`` are the numbers' own, ``bins`` the bins that the laws' cells lie in, ``counts`` and ``variances`` the
    table's, where neither is null. With both taken for the means of their bins a covariance is too small. It is raised
    as it would be if rows of one number's ranks were paired with the same ranks of the other's, or with the opposite
    ones where it is negative: the strongest dependence that the laws allow (Hoeffding 1940), and so the least to add.
    Half of what that adds is taken for its error.
    """

    laws: tuple[NumberLaw, NumberLaw]
    bins: tuple[IntArray, IntArray]
    counts: FloatArray
    variances: FloatArray

    def moments(self, one: float, other: float, ddof: int, population: float) -> tuple[FloatArray, FloatArray]:
        """Return covariance and both variances, and the variances of these three, in units that codes are steps of."""
        x, y = self._means(0), self._means(1)
        total = max(float(self.counts.sum()), ddof + 1.0)
        across, between = np.multiply.outer(x, y), self.between(self.counts)
        factor = self._raised(between < 0)
        found = between * factor
        noise = float((self.variances * across**2).sum()) + self._unsure(0, y) + self._unsure(1, x)
        noise = noise * (factor / total) ** 2 + ((found - between) / 2) ** 2
        (first, first_error), (second, second_error) = (law.variance(population) for law in self.laws)
        noise += population * (first * second + found**2) / total
        units = np.array([one * other, one**2, other**2]) * total / (total - ddof)
        return np.array([found, first, second]) * units, np.array([noise, first_error**2, second_error**2]) * units**2

    @property
    def spreads(self) -> tuple[float, float]:
        """The variances of the codes of both numbers by rows that are not negative: above 0, whatever noise does."""
        shares = [held[0] for held in self._held]
        centred = [(law.middles - s @ law.middles) ** 2 + law.within for law, s in zip(self.laws, shares, strict=True)]
        one, other = (float(s @ squares) for s, squares in zip(shares, centred, strict=True))
        return one, other

    def between(self, counts: FloatArray) -> float:
        """Return the covariance of the means of bins under some counts of the pair."""
        total = max(float(counts.sum()), 1.0)
        means = [held[1] for held in self._held]
        one, other = (mean - counts.sum(axis=1 - place) @ mean / total for place, mean in enumerate(means))
        return float(one @ counts @ other) / total

    def _means(self, place: int) -> FloatArray:
        """Return the mean code of every bin, centred by the table's own counts."""
        means = self._held[place][1]
        own = self.counts.sum(axis=1 - place) / max(float(self.counts.sum()), 1.0)
        return np.asarray(means - own @ means)

    @cached_property
    def _held(self) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """The shares of the cells of either number, and the mean codes of its bins."""
        found = []
        for law, bins in zip(self.laws, self.bins, strict=True):
            # Cells that are cut at zero one by one put the noise of empty ones into every bin's far end.
            shares = law.risen + 1e-9 * law.widths
            found.append((shares / shares.sum(), np.bincount(bins, shares * law.middles) / np.bincount(bins, shares)))
        return tuple(found)

    def _unsure(self, place: int, others: FloatArray) -> float:
        """Return the variance of the sum of products that the noise of bins' own means adds, by the others' means."""
        law, bins, means = self.laws[place], self.bins[place], self._held[place][1]
        products = self.counts @ others if place == 0 else others @ self.counts
        rows = np.maximum(np.bincount(bins, law.risen), 1.0)
        apart = (products / rows)[bins] * (law.middles - means[bins])
        return float(law._smooth(law._padded(apart[None, :]))[1][0]) ** 2

    def _raised(self, opposed: bool) -> float:
        """Return by which factor bins make the covariance of equal ranks smaller, or of opposite ones."""
        sums, values = [], []
        for law, bins, (shares, means), way in zip(
            self.laws, self.bins, self._held, (1, -1 if opposed else 1), strict=True
        ):
            sums.append(np.cumsum(shares[::way])[:-1])
            values.append(np.array([law.middles, means[bins]])[:, ::way])
        cuts = np.sort(np.concatenate([[0.0, 1.0], *sums]))
        shares, ranks = np.diff(cuts), (cuts[1:] + cuts[:-1]) / 2
        x, y = (v[:, np.searchsorted(ends, ranks)] for v, ends in zip(values, sums, strict=True))
        fine, coarse = ((x - (x @ shares)[:, None]) * (y - (y @ shares)[:, None])) @ shares
        return min(float(fine / coarse), _MOST_RAISED) if fine * coarse > 0 else 1.0


def share_variance(uneven: FloatArray | float, below: FloatArray | float) -> FloatArray:
    """Return the variance of the share of a cell's rows on one side of a value that one of these rows has.

    ``below`` is that side's part of the codes. The rows are a Dirichlet process about an even spread (Ferguson 1973),
    whose values have the squared shares ``uneven`` in sum: on a given side lies a share of variance
    uneven·below·(1 − below). The value of one of the rows itself has a share by Beta(1, 1/uneven − 1), of square
    2·uneven²/(1 + uneven), which lies on either side.

    >>> share_variance(np.array([0.0, 0.5, 1.0]), 0.5).round(3).tolist()
    [0.0, 0.125, 0.25]
    """
    own = 2 * uneven * np.maximum(below, 1 - below) ** 2
    return np.asarray(uneven / (1 + uneven) * ((1 - uneven) * below * (1 - below) + own))


def rising(heights: FloatArray) -> FloatArray:
    """Return heights that never fall, between the nearest ones from below and from above."""
    return np.asarray((np.maximum.accumulate(heights) + np.minimum.accumulate(heights[::-1])[::-1]) / 2)


def _first(edges: FloatArray, heights: FloatArray, reach: bool) -> float:
    """Return where a rising function first reaches zero, or last is below it, linear between edges."""
    above = np.flatnonzero(heights >= 0) if reach else np.flatnonzero(heights > 0)
    if not len(above):
        return float(edges[-1])
    place = int(above[0])
    if place == 0:
        return float(edges[0])
    before, after = float(heights[place - 1]), float(heights[place])
    part = -before / max(after - before, 1e-300)
    return float(edges[place - 1] + part * (edges[place] - edges[place - 1]))


def truncated_spread(estimate: FloatArray, error: FloatArray) -> FloatArray:
    """Return the standard deviation of what is not negative given an unbiased estimate: a normal law cut at zero."""
    _, kept = truncated_normal_moments(estimate / np.maximum(error, 1e-300))
    return np.asarray(error * np.sqrt(kept))


def truncated_root(square: float, error: float, most: float) -> float:
    """Return the mean root x of what lies from 0 to ``most`` given an unbiased estimate of it, by a density √x.

    Were all roots as likely beforehand, the mean would be a fifth farther off where a square is two of its errors; were
    all squares, a third farther off where the error hides them.
    """
    nearest = min(max(square, 0.0), most)
    if not (math.isfinite(square) and math.isfinite(error)) or min(error, most) <= 0:
        return math.sqrt(nearest)
    # A far tail falls like an exponential law of this scale.
    scale = error / max(abs(square - nearest) / error, 1.0)
    ends = max(0.0, nearest - _WIDE * scale), min(most, nearest + _WIDE * scale)
    x = np.linspace(math.sqrt(ends[0]), math.sqrt(ends[1]), _POINTS)
    weights = np.sqrt(x) * np.exp(-((x**2 - nearest) * (x**2 + nearest - 2 * square)) / (2 * error**2))
    weights[[0, -1]] /= 2
    return float(weights @ x / weights.sum())


def _prior(tree: Tree, starts: IntArray, cells: int, n: float) -> tuple[FloatArray, FloatArray]:
    """Return what is taken before any count: nothing, but that stretches of one cell share its rest by width."""
    prior, diffuse = np.zeros(cells), (_DIFFUSE * max(n, 1.0)) ** 2
    covariance = np.diag(np.full(cells, diffuse))
    for stretches in tree.stretches:
        places = np.searchsorted(starts, stretches.starts)
        widths = np.array(stretches.stops, dtype=np.float64) - np.array(stretches.starts)
        even = widths / widths.sum()
        apart = np.diag(even) - np.outer(even, even)
        uneven = tree.unevenness(stretches.level)
        prior[places] = even * stretches.rest
        covariance[np.ix_(places, places)] = diffuse * np.outer(even, even) + uneven * stretches.rest**2 * apart
    return prior, covariance
