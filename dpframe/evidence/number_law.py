"""How the rows of a number are spread over its cells: one estimate from all that was measured, with its covariance.

A statistic that is linear in the rows by cell, f·x, has two estimates: the unbiased one, and that of the nearest
numbers of rows that are not negative. The one with the smaller expected error is taken, whose error is from the law of
the noise (the covariance; a parametric bootstrap), never from the sample. Where f is not the same over a cell, how the
rows lie within it is part of the error: a part of a cell of x rows may be wrong by x·√u, u being the unevenness. That
holds for however small a part, as what people ask for is where rows are: at heaps, and between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpframe.arrays import FloatArray, IntArray
from dpframe.evidence.cells import Tree, tree_of
from dpframe.evidence.combine import Observation, few_rows, updated
from dpframe.plan.measures import MeasuredTable
from dpframe.spaces import Space

REPLICATES = 60
"""Draws of a parametric bootstrap."""

_CAREFUL = 1.4
"""Factor of a bootstrap's errors: about a truth that is drawn from an estimate, shrinking costs less than it does."""

_DIFFUSE = 10.0
"""Standard deviation, in numbers of all rows, of what nothing is known of beforehand."""

_FAR_OUT = 30.0
"""Standard errors from which on the tail of a normal law is taken for an exponential one."""

_EXACT = 1e-2
"""Variance of a count that is exact: that of all rows."""


@dataclass(frozen=True, eq=False)
class NumberLaw:
    """Numbers of rows by cell, null's last where the space has it, and their covariance.

    Parameters
    ----------
    space
        The column's space.
    starts
        First codes of the cells of values, ascending from 0.
    rows, covariance
        Unbiased numbers of rows and their covariance, null's included.
    uneven
        Of every cell of values how unevenly rows may lie in it, from 0 to 1.
    n
        Rows of the table.
    block
        Of every cell the number of the first level's cell that it lies in.
    """

    space: Space
    starts: IntArray
    rows: FloatArray
    covariance: FloatArray
    uneven: FloatArray
    n: float
    block: IntArray

    @classmethod
    def of(cls, space: Space, n: float, first: MeasuredTable, finer: Sequence[MeasuredTable] = ()) -> NumberLaw:
        """Return what the measured levels of a number tell.

        Examples
        --------
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
        cells = len(starts) + space.has_null
        prior, covariance = _prior(tree, starts, cells, n)
        facts = [(*_cells_between(starts, low, high), count, variance) for low, high, count, variance in tree.facts]
        matrix = np.zeros((len(facts), cells))
        for i, (low, high, _, _) in enumerate(facts):
            matrix[i, low:high] = 1.0
        counts = np.array([count for _, _, count, _ in facts])
        variances = np.array([variance for _, _, _, variance in facts])
        rows, covariance = updated(prior, covariance, Observation(matrix, counts, variances))
        if space.has_null:
            rows[-1], covariance[-1, -1] = float(first.counts[-1]), first.measure.sigma2
        rows, covariance = updated(
            rows, covariance, Observation(np.ones((1, cells)), np.array([n]), np.array([_EXACT]))
        )
        # A cell that looks more uneven by its own parts than others of its level is taken for that.
        uneven = np.array([max(tree.unevenness(level), own) for _, _, level, own in leaves])
        block = np.searchsorted(np.array(_tops(first, space), dtype=np.int64), starts, side="right") - 1
        return cls(space, starts, rows, covariance, uneven, float(n), block)

    def told(self, facts: Observation) -> NumberLaw:
        """Return the law when more is known; cells that a fact takes in part, as their unevenness allows."""
        inside = facts.matrix[:, : len(self.starts)]
        facts = Observation(facts.matrix, facts.counts, facts.variances + self._open(inside))
        rows, covariance = updated(self.rows, self.covariance, facts)
        return NumberLaw(self.space, self.starts, rows, covariance, self.uneven, self.n, self.block)

    def with_sum(self, total: float, variance: float) -> NumberLaw:
        """Return the law when the sum of the codes is known as well, nulls adding nothing."""
        held = np.maximum(self.rows[: len(self.starts)], 0.0)
        off = (self.uneven * held**2 + held) * (self.widths**2 - 1) / 12
        matrix = np.zeros((1, len(self.rows)))
        matrix[0, : len(self.starts)] = self.middles
        facts = Observation(matrix, np.array([total]), np.array([variance + float(off.sum())]))
        rows, covariance = updated(self.rows, self.covariance, facts)
        return NumberLaw(self.space, self.starts, rows, covariance, self.uneven, self.n, self.block)

    @property
    def stops(self) -> IntArray:
        """The code after each cell's last."""
        return np.append(self.starts[1:], self.space.values)

    @cached_property
    def middles(self) -> FloatArray:
        """Mean code of every cell of values."""
        return np.asarray((self.starts + self.stops - 1) / 2)

    @cached_property
    def widths(self) -> FloatArray:
        """Codes of every cell of values."""
        return (self.stops - self.starts).astype(np.float64)

    @cached_property
    def positive(self) -> FloatArray:
        """Numbers of rows that are not negative, near the unbiased ones."""
        return self._projected(self.rows)

    @cached_property
    def shares(self) -> FloatArray:
        """The same as shares of all rows."""
        return self.positive / max(float(self.positive.sum()), 1e-300)

    def _projected(self, rows: FloatArray) -> FloatArray:
        """Return the nearest numbers that are not negative: of the first level's cells, then within each of them."""
        found = np.zeros_like(rows)
        values = len(self.starts)
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
        """Variances of the first level's cells, and null's."""
        values = len(self.starts)
        onto = (np.arange(int(self.block[-1]) + 1)[:, None] == self.block).astype(np.float64)
        inner = self.covariance[:values, :values]
        variances = ((onto @ inner) * onto).sum(axis=1)
        return np.append(variances, np.diag(self.covariance)[values:])

    @cached_property
    def replicas(self) -> FloatArray:
        """Positive numbers of rows from noise drawn anew about these, shape (replicas, cells)."""
        generator = np.random.default_rng(0)
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = generator.standard_normal((REPLICATES, len(self.rows))) @ root.T
        return np.array([self._projected(self.positive + draw) for draw in noise])

    def linear(self, parts: FloatArray, population: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return Σ parts·rows and its standard errors.

        Parameters
        ----------
        parts
            What each cell's rows count, on average over the cell, shape (statistics, cells of values or all cells).
        population
            Whether it is of the population that the rows were drawn from.
        """
        parts = self._padded(parts)
        found, errors = self._smooth(parts)
        cut = self._open(parts[:, : len(self.starts)])
        if population:
            mean = (parts @ self.positive) / self.n
            cut = cut + np.maximum(parts**2 @ self.positive - self.n * mean**2, 0.0)
        return found, np.hypot(errors, np.sqrt(cut))

    def _open(self, parts: FloatArray) -> FloatArray:
        """Return the variance that parts of cells leave open, of every statistic."""
        inside = np.clip(parts, 0.0, 1.0)
        held, some = self.positive[: len(self.starts)], (inside > 0) & (inside < 1)
        loose = np.sqrt(np.diag(self.covariance)[: len(self.starts)])
        return some @ (self.uneven * (held + loose) ** 2) + (inside * (1 - inside)) @ held

    def _padded(self, parts: FloatArray) -> FloatArray:
        missing = len(self.rows) - parts.shape[1]
        return np.pad(parts, ((0, 0), (0, missing))) if missing else parts

    def _smooth(self, parts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return linear statistics by the estimate of less expected error, and that error."""
        raw, spread = parts @ self.rows, ((parts @ self.covariance) * parts).sum(axis=1)
        near = parts @ self.positive
        apart = self.replicas @ parts.T - near
        # What is cut at zero adds up over empty cells: the bootstrap's own bias stands for it.
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
    def present(self) -> float:
        """Rows that are not null, at least one."""
        return float(np.clip(self.positive[: len(self.starts)].sum(), 1.0, max(self.n, 1.0)))

    def variance(self) -> tuple[float, float]:
        """Return the variance of the codes of rows that are not null, and its standard error."""
        held, rows = self.positive[: len(self.starts)], self.present
        near, total = float(held @ self.middles) / max(float(held.sum()), 1e-300), max(float(held.sum()), 1e-300)
        # Ratios to an uncertain number of rows, whose errors cancel in sums of what is left of a guess.
        found, error = (float(v[0]) / rows for v in self._smooth(self._padded((self.middles - near)[None, :])))
        centre, apart = near + found, error**2
        within = (self.widths**2 - 1) / 12
        squares = (self.middles - centre) ** 2 + within
        guess = float(held @ squares) / total
        left, error = (float(v[0]) / rows for v in self._smooth(self._padded((squares - guess)[None, :])))
        # The mean of a cell's codes may be off its middle, and their spread from that of an even one.
        off = self.uneven * self.widths**2 / 12
        loose = held**2 * (4 * (self.middles - centre) ** 2 * off + self.uneven * within**2)
        error = math.hypot(error, math.sqrt(float(loose.sum())) / rows, apart)
        # The spread about an estimated mean lacks that mean's own variance.
        return max(guess + left + apart, 0.0), error * float(few_rows(rows, self.present_variance))

    @property
    def present_variance(self) -> float:
        """Variance of the number of rows that are not null."""
        return float(self.covariance[-1, -1]) if len(self.rows) > len(self.starts) else 0.0

    def _with_middles(
        self, edges: FloatArray, surplus: FloatArray, spread: FloatArray, z: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the same with the middles of cells between the edges, where how rows lie is part of the spread."""
        loose = z * np.sqrt(self.uneven * (self.widths > 1)) * self.positive[: len(self.starts)] / self.present
        places = np.arange(1, len(edges))
        middles = [np.insert(v, places, (v[1:] + v[:-1]) / 2) for v in (edges, surplus, spread)]
        middles[2][1::2] = np.hypot(middles[2][1::2], loose)
        return middles[0], middles[1], middles[2]

    def quantiles(self, levels: FloatArray, z: float, population: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the codes of quantiles of the values, and the ends of their intervals at z standard errors.

        The interval is where the distribution function, within its errors, may reach the level (Woodruff 1952).
        """
        edges = np.append(self.starts, self.space.values).astype(np.float64)
        cells = len(self.starts)
        below = np.tril(np.ones((cells + 1, cells)), -1)
        rows = self.present
        # Of the rows that are present a share q lies below: what is above counts against it.
        found, lower, upper = [], [], []
        for level in levels.tolist():
            told, error = self._smooth(self._padded(below * (1 - level) - (1 - below) * level))
            surplus, spread = rising(told / rows), error / rows
            if population:
                spread = np.hypot(spread, math.sqrt(level * (1 - level) / rows))
            found.append(_first(edges, surplus, True))
            sure = reached(*self._with_middles(edges, surplus, z * spread, z))
            lower.append(sure[0])
            upper.append(sure[1])
        ends = float(self.space.values)
        middle = np.clip(np.array(found) - 0.5, 0.0, ends - 1)
        # Of a cell of one code that code: pandas' quantiles are values that rows have.
        cell = np.clip(np.searchsorted(edges, np.array(found), side="left") - 1, 0, cells - 1)
        middle = np.where(self.widths[cell] == 1, self.starts[cell], middle)
        low = np.clip(np.floor(np.array(lower) - 0.5), 0.0, ends - 1)
        high = np.clip(np.ceil(np.array(upper)), 0.0, ends - 1)
        return middle, np.minimum(low, middle), np.maximum(high, middle)


def rising(heights: FloatArray) -> FloatArray:
    """Return heights that never fall, between the nearest ones from below and from above.

    Examples
    --------
    >>> rising(np.array([0.0, 2.0, 1.0, 3.0]))
    array([0. , 1.5, 1.5, 3. ])
    """
    return np.asarray((np.maximum.accumulate(heights) + np.minimum.accumulate(heights[::-1])[::-1]) / 2)


def reached(edges: FloatArray, surplus: FloatArray, spread: FloatArray) -> tuple[float, float]:
    """Return where a distribution function less a level may first reach zero, and where it surely has."""
    low = _first(edges, np.maximum.accumulate(surplus + spread), True)
    return low, _first(edges, np.maximum.accumulate(surplus - spread), False)


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


def project(values: FloatArray, variances: FloatArray, total: float) -> FloatArray:
    """Return the nearest numbers that are not negative and have a sum, distances weighted by inverse variances.

    Examples
    --------
    >>> project(np.array([5.0, 1.0, -1.0]), np.array([1.0, 1.0, 1.0]), 5.0)
    array([4.5, 0.5, 0. ])
    """
    if total <= 0 or not len(values):
        return np.zeros_like(values)
    variances = np.maximum(variances, 1e-12)
    # x = (y − λv)₊: λ from the entries that stay, in the order in which they leave.
    order = np.argsort(-values / variances)
    y, v = np.cumsum(values[order]), np.cumsum(variances[order])
    steps = (y - total) / v
    last = int(np.flatnonzero(values[order] > steps * variances[order])[-1])
    return np.asarray(np.maximum(values - steps[last] * variances, 0.0))


def truncated_spread(estimate: FloatArray, error: FloatArray) -> FloatArray:
    """Return the standard deviation of what is not negative given an unbiased estimate: a normal law cut at zero.

    Examples
    --------
    >>> truncated_spread(np.array([-100.0, 0.0, 100.0]), np.array([10.0, 10.0, 10.0])).round(2)
    array([ 0.97,  6.03, 10.  ])
    """
    from scipy.special import log_ndtr

    z = np.clip(estimate / np.maximum(error, 1e-300), -30.0, 30.0)
    slope = np.exp(-(z**2) / 2 - math.log(2 * math.pi) / 2 - log_ndtr(z))
    return np.asarray(error * np.sqrt(np.clip(1 - z * slope - slope**2, 0.0, 1.0)))


def truncated_mean(estimate: float, error: float, most: float) -> float:
    """Return the mean of what lies from 0 to ``most`` given an unbiased estimate: a normal law cut at both.

    Examples
    --------
    >>> [round(truncated_mean(value, 10.0, 200.0), 1) for value in (-50.0, 0.0, 100.0, 500.0)]
    [1.9, 8.0, 100.0, 199.7]
    """
    from scipy.special import log_ndtr

    if not (math.isfinite(estimate) and math.isfinite(error)) or error <= 0:
        return min(max(estimate, 0.0), most)
    low, high = -estimate / error, (most - estimate) / error
    # Where logarithms lose their digits: an even law, and the exponential one that a far tail is.
    if high - low < 1e-4:
        return most / 2
    if low > _FAR_OUT or high < -_FAR_OUT:
        return min(error / low, most) if low > 0 else max(most + error / high, 0.0)
    # On the side of the lower tail, where the logarithms of the probabilities keep their digits.
    sign = -1.0 if low > 0 else 1.0
    a, b = (low, high) if sign > 0 else (-high, -low)
    below, above = (float(log_ndtr(end)) for end in (a, b))
    chance = above + math.log(-math.expm1(min(below - above, -1e-12)))
    density = [-(end**2) / 2 - math.log(2 * math.pi) / 2 - chance for end in (a, b)]
    shift = math.exp(min(density[0], 700.0)) - math.exp(min(density[1], 700.0))
    return min(max(estimate + sign * error * shift, 0.0), most)


def _tops(first: MeasuredTable, space: Space) -> Sequence[int]:
    own = first.starts[0]
    return own if own is not None else range(space.values)


def _cells_between(starts: IntArray, low: int, high: int) -> tuple[int, int]:
    found = np.searchsorted(starts, [low, high])
    return int(found[0]), int(found[1])


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
