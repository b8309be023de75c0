"""Rows beyond the bounds that private inference found, which the released column holds as the bounds.

A mean of a clipped column falls short of the table's by the integral of the share of rows beyond x, from the bound on:
E(X − u)⁺ = ∫ P(X > x) dx. A tail is a Pareto law beyond the bound: of R rows (x/u)^−α lie farther than x, up to where
numbers end, or where less than one row in forty is expected. R and α have a posterior: by the counts of inference in
doublings of the distance from the column's mean, and by the rows at the bound in the measured tables, of which the rows
beyond it are a part. A heap that is far beyond, such as a code for missing values, is a point mass in one cell of
inference's counts. Intervals end at quantiles of the posterior. Three words are kept apart: a pile lies at the bound
itself, a heap is a point mass in one remote cell, and a hump means that the whole tail lies at one distance.

Rows that seem to be clipped to a bound that was declared show by far more at it than close to it. Some heaps at an end
are natural, and are passed over: zeros and ones at the lower bound, both ends of shares and of percentages, and those
of short scales, as ratings are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.accounting.gaussian_dp import log_normal_cdf
from dpframe.estimate.evidence.law import Known
from dpframe.estimate.evidence.number_law import NumberLaw
from dpframe.estimate.results import Ends, Excess
from dpframe.inference.cells import Cells, fit_cells
from dpframe.inference.inferred import Inferred, Measured
from dpframe.inference.number_counts import MIN_REPORTED_CHANCE, bounds_of_counts, number_counts
from dpframe.inference.ranges import significant_range
from dpframe.inference.steps import is_on_steps
from dpframe.observe.quantiles import NORMAL_QUANTILE
from dpframe.observe.significance import HINT_SE
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

BEYOND_BOUNDS = "beyond_bounds"
"""Key of a result's attrs: ``{column: share of the rows}``."""

TAIL_EXPONENTS = (1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0, 24.0)
"""Exponents of a Pareto tail, equally likely beforehand: from the tails of cities' sizes to the end of a uniform law
(theory: Newman 2005, table 1, and lighter ones).

An exponent of 1.2 besides raises coverage of means of 60 tables of 140 to 600 rows from .90 to .92, and makes intervals
of standard deviations three times as wide.
"""

PRIOR_SHARE_OUTSIDE = 0.25
"""Median of the prior of the rows beyond a bound, as a share of all rows that the counts allow outside of both (tuned
on 27 real tables; effect not measured)."""

TAIL_SHAPE_ERROR, NEAR_SHAPE_ERROR = 0.3, 1.0
"""Relative error of a Pareto law's count in a doubling of the distance beyond the bound, and just within it: most laws
fall faster the farther they go (tolerance)."""

SIGN_CHANCE = 0.1
"""Prior chance that numbers go on beyond 0 though both bounds that were found have one sign (tolerance)."""

SHORT_SCALE, SHORT_HEAP_CHANCE, HEAP_AT_BOUND_CHANCE = 12, 0.5, 0.01
"""Values up to which a scale is short, and the prior chance of rows that have the value of the bound itself: on short
scales, and on others (theory: of 400 inferred bounds of 60 real tables with more than twelve values none has a heap, of
bounds of shorter scales three fifths)."""

HUMP_CHANCE, HUMP_DISTANCE = 0.01, 2.0
"""Prior chance that the rows beyond a bound are no tail but lie together farther out, and from which distance on, in
those of the bound (tuned; of 1,021 inferred columns it changes intervals of means of few)."""

CODE_CHANCE, HEAP_CHANCE = 0.03, 0.003
"""Prior chance that a column has a heap far beyond its bound at a code for missing values, and elsewhere (tuned; effect
not measured)."""

REMOTE_DISTANCE = 8.0
"""Distance, in those of the bound from the mean, from which on rows are a heap and no tail (tolerance)."""

TAIL_CHANCE = 0.025
"""Chance of either side of an interval (theory: two sides of 95 %)."""

FARTHEST = 20
"""Quantiles of the distance of the farthest row that are averaged over (tolerance)."""

MISSING_CODES = np.sort([sign * (10.0**digits - 1) for digits in range(1, 8) for sign in (-1, 1)])
"""Numbers that stand for a missing value: 9, 99, 999 … of either sign, in rising order (theory: custom of statistical
offices)."""

VARIANCE_SHARE = 0.2
"""Part of a variance from which on a warning names the rows beyond the bounds (tuned; effect not measured)."""

TWO_VALUES_DISTANCE = 5.0
"""Distance of other values from 1 where a column is only thought to hold 0 and 1 (tuned; effect not measured).

Among thirteen counts with a spike at 0, in fifty real tables, ten have a mean below that where they are not 0.
"""

BOUND_CELL_WIDTH = 1e-9
"""Width of a cell, as a part of a bound's distance from the mean, up to which it holds but the bound (tolerance)."""

FARTHEST_DISTANCE = 1e150
"""Largest distance of a cell, in those of the bound, so that its square is a float (limit of floats)."""

NODES = 24
"""Points of each grid of numbers of rows (tolerance)."""

_SHARE, _SURE = 0.02, 4.0
"""Share of the rows at a bound from which on it is said, and the standard errors by which there are more (tuned; effect
not measured)."""

_STEEP = 4.0
"""How many times as many rows lie at the bound as so many values next to it have (tuned; effect not measured)."""

_NEXT, _CODES = 1 / 16, 3
"""Part of the range that is next to a bound, and codes at the least (tuned; effect not measured)."""

_SHORT = 20
"""Values of a scale up to which its ends are answers like others (tuned; effect not measured)."""

_NATURAL = (0.0, 1.0)
"""Lower bounds that are values like others (theory: counts begin at 0)."""
_SCALES = ((0.0, 1.0), (0.0, 100.0))
"""Bounds of scales whose ends are answers (theory: parts and percentages)."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Noisy counts beyond a bound, by distance from the column's mean in units of the bound's distance.

    Stretches of the tail lie from ``starts`` to ``stops``, the first within the bound; ``values`` are their counts and
    ``covariance`` is that of the counts' noise. ``heaps`` are the distances of remote cells, with ``heap_values``,
    ``heap_variances`` and the prior ``heap_chances`` that a cell has a heap.
    """

    starts: FloatArray
    stops: FloatArray
    values: FloatArray
    covariance: FloatArray
    heaps: FloatArray
    heap_values: FloatArray
    heap_variances: FloatArray
    heap_chances: FloatArray

    @classmethod
    def of(cls, ends: FloatArray, cells: Cells, coded: npt.NDArray[np.bool_]) -> tuple[Counts, Known]:
        """Return the counts beyond a bound, and the count and variance of cells that hold only the bound's own value.

        ``ends`` of cells are distances from the mean, in units of the bound's; ``coded``: whether a cell has a code for
        missing values.
        """
        starts, stops = ends[:-1], ends[1:]
        is_bound = (np.abs(starts - 1) <= BOUND_CELL_WIDTH) & (np.abs(stops - 1) <= BOUND_CELL_WIDTH)
        is_cut = (starts < 1) & (stops > 1) & ~is_bound
        # Rows of a cell that the bound cuts follow the tail's law from where the cell begins, unless it is too wide.
        is_wide = is_cut & (starts < 0.5)
        first = float(np.where(is_cut & ~is_wide, starts, 1.0).min())
        part = np.where(is_wide, (stops - 1) / np.maximum(stops - starts, BOUND_CELL_WIDTH), 1.0)
        starts = np.where(is_wide, 1.0, starts)
        # Stretches: cells within the bound, and those of each doubling beyond it.
        doubling = np.where(starts < first, 0.0, 1 + np.floor(np.log2(np.maximum(starts, 1.0)) + BOUND_CELL_WIDTH))
        is_near = (starts >= first / 2) & (starts < REMOTE_DISTANCE) & ~is_bound
        groups = [is_near & (doubling == one) for one in np.unique(doubling[is_near])]
        stretches = np.array([[starts[cells].min(), stops[cells].max()] for cells in groups]).reshape(-1, 2)
        design = np.array([part * group for group in groups]).reshape(-1, len(part))
        variances = np.maximum(np.diag(cells.covariance), 1e-300)
        codes, others = (starts >= REMOTE_DISTANCE) & coded, (starts >= REMOTE_DISTANCE) & ~coded
        chances = codes * CODE_CHANCE / max(codes.sum(), 1) + others * HEAP_CHANCE / max(others.sum(), 1)
        # A heap is unlikely if its own cell does not hint at it.
        shown = (codes | others) & (cells.counts > HINT_SE * np.sqrt(variances))
        heaps = [column[shown] for column in (starts / 2 + stops / 2, cells.counts, variances, chances)]
        noise = design @ cells.covariance @ design.T
        counts = cls(stretches[:, 0], stretches[:, 1], design @ cells.counts, noise, *heaps)
        return counts, (float(cells.counts[is_bound].sum()), float(variances[is_bound].sum()))


@dataclass(frozen=True, eq=False)
class States:
    """A posterior on a grid: weights, rows beyond a bound, Pareto exponents, and where numbers end.

    ``ends`` are distances in units of the bound's. In states with ``humps`` above 0 all rows lie at that distance.
    """

    weights: FloatArray
    rows: FloatArray
    exponents: FloatArray
    ends: FloatArray
    humps: FloatArray


@dataclass(frozen=True, eq=False)
class Tail:
    """The posterior of the rows beyond a bound of a column.

    ``distance`` is the bound's distance from the column's mean, in codes; numbers end ``room`` beyond the bound.
    Of ``present`` rows, the counts allow ``hidden`` outside of both bounds by one standard error, and ``most`` by two.
    ``pile`` is the measured number of rows at the bound, with its variance: rows beyond the bound, and rows that have
    its value. The latter are ``at``, or unknown (None). ``gap`` is the step between numbers, 0 if they may be any.
    ``doubt`` is the root of the chance that a column thought to hold 0 and 1 has other values, at ``farther`` beyond 1;
    such a tail ``is_empty`` otherwise.
    """

    distance: float
    counts: Counts
    present: float
    hidden: float = 0.0
    most: float = math.inf
    room: float = math.inf
    at: Known | None = None
    pile: Known | None = None
    doubt: float = 0.0
    farther: float = 0.0
    is_empty: bool = False
    gap: float = 0.0

    @property
    def _prior_rows(self) -> float:
        """Median m of the prior of the rows R beyond the bound, whose density is (1/m)/(1 + R/m)²."""
        return max(PRIOR_SHARE_OUTSIDE * self.hidden, 1e-9)

    @cached_property
    def heaps(self) -> tuple[FloatArray, FloatArray]:
        """Rows of heaps in remote cells, and their variances; 0 in cells that are likelier to have no heap."""
        counts, means, variances = self.counts, [], []
        if self.is_empty:
            return np.zeros(len(counts.heaps)), np.zeros(len(counts.heaps))
        # Rows at the bound may be of a tail as well: its size is averaged over quantiles of the prior.
        levels = (np.arange(NODES) + 0.5) / NODES
        tail_rows = self._prior_rows * levels / (1 - levels)

        def log_pile(rows: FloatArray) -> FloatArray:
            return np.asarray(np.logaddexp.reduce(self._log_pile(rows[:, None] + tail_rows), axis=1))

        log_none = float(log_pile(np.zeros(1))[0])
        for value, noise, chance in zip(counts.heap_values, counts.heap_variances, counts.heap_chances, strict=True):
            error = math.sqrt(noise)
            # Both likelihoods may be narrow: each gets nodes within four of its errors.
            nodes = [np.linspace(value - 4 * error, value + 4 * error, 2 * NODES)]
            if self.pile is not None:
                spread = 4 * math.sqrt(self.pile[1])
                nodes.append(np.linspace(self.pile[0] - spread, self.pile[0] + spread, 2 * NODES))
            rows = np.unique(np.clip(np.concatenate(nodes), error / 2, max(self.present, error)))
            log_ratio = log_pile(rows) - log_none - ((rows - value) ** 2 - value**2) / (2 * noise)
            # The prior of a heap's size is even in its logarithm.
            prior = np.gradient(np.log(rows)) / math.log(2 * max(self.present, error) / error)
            # The largest exponent of a float is 709; the cut-off leaves space for sums and products.
            weights = chance * prior * np.exp(np.minimum(log_ratio, 500.0))
            posterior_chance = float(weights.sum() / (weights.sum() + 1 - chance))
            mean = float(weights @ rows / weights.sum())
            variance = float(weights @ (rows - mean) ** 2 / weights.sum())
            means.append(mean * (posterior_chance > 0.5))
            variances.append(variance * (posterior_chance > 0.5))
        return np.array(means), np.array(variances)

    def _log_pile(self, rows: FloatArray, more: Known = (0.0, 0.0), exponent: float | None = None) -> FloatArray:
        """Return the log-likelihood of the rows at the bound, for numbers of rows of the tail and ``more`` beyond it.

        Rows with the bound's own value follow the tail's law, unless a heap of any size lies at the bound.
        """
        if self.pile is None:
            return np.zeros(rows.shape)
        at = (0.0, 0.0) if self.at is None else self.at
        # A step of at most half the distance keeps the power below finite.
        step = min(self.gap / max(self.distance, 1e-300), 0.5) if self.at is None and exponent is not None else 0.0
        expected = rows * (1 - step) ** -(exponent or 0.0)
        variance = self.pile[1] + at[1] + more[1] + (TAIL_SHAPE_ERROR * (expected - rows)) ** 2 + 1e-300
        count = self.pile[0] - at[0] - more[0]
        log_tail = -((count - expected) ** 2) / (2 * variance) - np.log(2 * math.pi * variance) / 2
        if self.at is not None:
            return np.asarray(log_tail)
        log_heap = log_normal_cdf((count - rows) / np.sqrt(variance)) - math.log(max(self.present, 1.0))
        is_short = self.gap > 0 and self.distance <= SHORT_SCALE * self.gap
        chance = SHORT_HEAP_CHANCE if is_short else HEAP_AT_BOUND_CHANCE
        return np.asarray(np.logaddexp(log_tail + math.log1p(-chance), log_heap + math.log(chance)))

    @cached_property
    def states(self) -> States:
        """The posterior of the rows beyond the bound, heaps left out."""
        if self.is_empty:
            return States(np.ones(1), np.zeros(1), np.full(1, TAIL_EXPONENTS[-1]), np.ones(1), np.zeros(1))
        means, variances = self.heaps
        heaps = float(means.sum()), float(variances.sum())
        scale = self._prior_rows
        end = 1 + self.room / max(self.distance, 1e-300)
        chances = {end: 1.0} if math.isinf(end) else {end: 1 - SIGN_CHANCE, math.inf: SIGN_CHANCE}
        middles = self.counts.starts / 2 + self.counts.stops / 2
        humps = np.flatnonzero((self.counts.starts >= HUMP_DISTANCE) & (middles < end))
        shapes = [
            (chance * (1 - HUMP_CHANCE * (len(humps) > 0)), exponent, last, 0.0, self._expected(exponent, last))
            for (last, chance), exponent in product(chances.items(), TAIL_EXPONENTS)
        ]
        # Each exponent has the weight 1, so that all humps together get `HUMP_CHANCE` of the exponents' total.
        shapes += [
            (
                HUMP_CHANCE * len(TAIL_EXPONENTS) / len(humps),
                TAIL_EXPONENTS[-1],
                math.inf,
                float(middles[hump]),
                (np.arange(len(middles)) == hump).astype(np.float64),
            )
            for hump in humps
        ]
        pieces = []
        for chance, exponent, last, hump, expected in shapes:
            rows = self._nodes(expected, scale, heaps)
            score = self._log_counts(rows, expected, hump > 0)
            score += self._log_pile(rows, heaps, exponent if hump == 0 else None)
            # Nodes are uneven: the gradient is the width of each node in the integral.
            score += np.log(chance * np.gradient(rows) / scale) - 2 * np.log1p(rows / scale)
            pieces.append((score, rows, *(np.full(len(rows), value) for value in (exponent, last, hump))))
        score, *parts = map(np.concatenate, zip(*pieces, strict=True))
        # The maximum is subtracted to give the best state the weight 1, so that not all weights underflow.
        weights = np.exp(score - score.max())
        return States(weights / weights.sum(), *parts)

    def _expected(self, exponent: float, last: float) -> FloatArray:
        """Return the share of the rows beyond the bound that each stretch has: above 1 within the bound."""
        ends = np.stack([self.counts.starts, self.counts.stops])
        # A tail that ends at `last` loses the share beyond, and is scaled to a total of 1.
        beyond = (np.minimum(ends, last) ** -exponent - last**-exponent) / max(1 - last**-exponent, 1e-12)
        farther_shares = np.where(ends <= 1, ends**-exponent, np.maximum(beyond, 0.0))
        return np.asarray(farther_shares[0] - farther_shares[1])

    def _nodes(self, expected: FloatArray, scale: float, heaps: Known) -> FloatArray:
        """Return numbers of rows at which the posterior is evaluated: about each piece of evidence and its error."""
        about = [
            (value / max(share, 1e-3), math.sqrt(variance) / max(share, 1e-3))
            for value, variance, share in zip(
                self.counts.values[:2], np.diag(self.counts.covariance)[:2], expected[:2], strict=True
            )
        ]
        if self.pile is not None:
            at = (0.0, 0.0) if self.at is None else self.at
            about.append((self.pile[0] - at[0] - heaps[0], math.sqrt(self.pile[1] + at[1] + heaps[1])))
        grids = [np.linspace(value - 4 * error, max(value + 4 * error, error), NODES) for value, error in about]
        # Weak evidence leaves the posterior as wide as the prior, which needs nodes of its own.
        grids.append(np.geomspace(scale / 100, 4 * scale, NODES))
        return np.unique(np.clip(np.concatenate(grids), 0.0, self.most))

    def _log_counts(self, rows: FloatArray, expected: FloatArray, has_hump: bool) -> FloatArray:
        """Return the log-likelihood of the counts of stretches for each number of rows.

        A hump says nothing of rows within the bound: counts that hold some are as expected.
        """
        counts = self.counts
        is_free = has_hump & (counts.starts < 1)
        means = np.where(is_free, np.maximum(counts.values, 0.0), rows[:, None] * expected)
        shape_error = NEAR_SHAPE_ERROR * (is_free | (counts.stops <= 1)) + TAIL_SHAPE_ERROR * (counts.starts > 1)
        noise = counts.covariance + (means * shape_error)[:, :, None] ** 2 * np.eye(len(expected))
        residuals = np.where(is_free, 0.0, counts.values - means)
        squares = (residuals * np.linalg.solve(noise, residuals[:, :, None])[:, :, 0]).sum(axis=1)
        # Inference put the bound before cells below this threshold: the likelihood is given that they are.
        threshold = HINT_SE * np.sqrt(np.diag(counts.covariance))
        is_below = (counts.stops > 1) & (counts.values < threshold)
        errors = np.sqrt(np.diagonal(noise, axis1=1, axis2=2))
        log_selection = (log_normal_cdf((threshold - means) / errors) * is_below).sum(axis=1)
        return np.asarray(-(squares + np.linalg.slogdet(noise)[1]) / 2 - log_selection)

    def sums(self, power: int) -> FloatArray:
        """Return what rows beyond the bound add to a sum of distances to a power, shape (states, FARTHEST).

        The farthest of R rows has a random distance, by which Pareto's law is cut: with a chance u none is farther than
        (R/−ln u)^(1/α). Numbers may end before.
        """
        states = self.states
        rows, falls, ends, humps = (
            part[:, None] for part in (states.rows, states.exponents, states.ends, states.humps)
        )
        none_farther = -np.log((np.arange(FARTHEST) + 0.5) / FARTHEST)
        last = np.maximum(rows / none_farther, 1.0) ** (1 / falls)
        last = np.minimum(last, ends)
        # E(X^p − 1) = ∫ p t^(p−1) P(X > t) dt, from the bound at 1 to the farthest row.
        gap, beyond_last = power - falls, last**-falls
        # Long tails overflow to infinity, which `excess` returns as an infinite error.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # (t^gap − 1)/gap has the limit ln t at gap 0.
            grown = np.where(gap == 0, np.log(last), np.expm1(gap * np.log(last)) / gap)
            mean = (power * grown - beyond_last * (last**power - 1)) / (1 - beyond_last)
            # A tail that ends at the bound has 0/0 here, and adds nothing.
            mean = np.where(humps > 0, humps**power - 1, np.where(last > 1 + 1e-9, mean, 0.0))
            return np.asarray(rows * mean * self.distance**power)

    def excess(self, power: int) -> Excess:
        """Return what a sum of distances, to a power, lacks as rows beyond the bound count as it, and its error.

        The first is the posterior's median, the error the distance of its upper 2.5 % point from that, over 1.96.
        """
        weights, sums = np.repeat(self.states.weights / FARTHEST, FARTHEST), self.sums(power).ravel()
        means, variances = self.heaps
        with np.errstate(over="ignore", invalid="ignore"):
            ways = np.where(variances > 0, (self.counts.heaps**power - 1) * self.distance**power, 0.0)
            tail, high = (weighted_quantile(sums, weights, level) for level in (0.5, 1 - TAIL_CHANCE))
            spread = ((high - tail) / NORMAL_QUANTILE) ** 2 + float(variances @ ways**2)
            error = math.hypot(math.sqrt(max(spread, 0.0)), self.doubt * self.hidden * self.farther**power)
            value = tail + float(means @ ways)
        return (value, error) if math.isfinite(value + error) else (0.0, math.inf)

    def chance_above(self, square: float) -> float:
        """Return the chance that squares of distances lack more than this."""
        heaps = float(self.heaps[0] @ (self.counts.heaps**2 - 1)) * self.distance**2
        return float(self.states.weights @ (self.sums(2) + heaps > square).mean(axis=1))

    @property
    def count(self) -> Excess:
        """Rows beyond the bound, and their standard error, as `excess` returns them."""
        states, (means, variances) = self.states, self.heaps
        rows, high = (weighted_quantile(states.rows, states.weights, level) for level in (0.5, 1 - TAIL_CHANCE))
        return rows + float(means.sum()), math.hypot((high - rows) / NORMAL_QUANTILE, math.sqrt(variances.sum()))

    @property
    def seen(self) -> float:
        """Rows that stand out of the noise."""
        rows, error = self.count
        return rows if rows > HINT_SE * error else 0.0

    def reach(self, rows: float, z: float) -> float:
        """Return how far beyond the bound ``rows`` rows may lie, at the normal quantile ``z``; 0 if fewer lie beyond.

        It is the farthest of a quantile of the Pareto tail, of heaps, and of stretches whose counts stand out.
        """
        states, counts = self.states, self.counts
        level = math.erfc(-z / math.sqrt(2)) / 2
        # A Pareto tail of R rows has `rows` rows beyond the distance (R/rows)^(1/α).
        ways = np.minimum(np.maximum(states.rows / rows, 1.0) ** (1 / states.exponents), states.ends) - 1
        ways = np.where(states.humps > 0, (states.humps - 1) * (states.rows > rows), ways)
        distances = [weighted_quantile(ways, states.weights, level), 0.0]
        means, variances = self.heaps
        # Cells are summed from the farthest inwards: a sum has all rows from its cell on.
        outside = np.cumsum(means[::-1])[::-1] + z * np.sqrt(np.cumsum(variances[::-1])[::-1])
        distances += (counts.heaps - 1)[outside > rows].tolist()
        if weighted_quantile(states.rows, states.weights, level) > rows:
            farther = np.cumsum(counts.values[::-1])[::-1]
            errors = np.sqrt(np.diag(counts.covariance[::-1, ::-1].cumsum(0).cumsum(1)))[::-1]
            is_seen = (counts.starts >= 1) & (farther > np.maximum(rows, HINT_SE * errors))
            distances += (counts.starts / 2 + counts.stops / 2 - 1)[is_seen].tolist()
        return self.distance * max(distances)


def weighted_quantile(values: FloatArray, weights: FloatArray, level: float) -> float:
    """Return the least value up to which the weights add up to a level.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([0.2, 0.5, 0.3]), 0.6)
    2.0
    """
    order = np.argsort(values)
    # Sums that reach the level exactly may round below it, and would return the next value.
    place = int(np.searchsorted(np.cumsum(weights[order]), level * (1 - 1e-12)))
    return float(values[order[min(place, len(order) - 1)]])


@dataclass(frozen=True, eq=False)
class Tails:
    """Both tails of a column, its rows that are not null, and the variance of the clipped column, as counted."""

    lower: Tail
    upper: Tail
    present: float
    variance: float
    is_faint: bool = False
    """Whether one value has most rows, and the counts hardly show where the others lie."""

    def with_piles(self, piles: Sequence[Known | None]) -> Tails:
        """Return the tails if so many rows lie at either bound: counts and their variances, None where not counted."""
        below, above = piles
        return replace(self, lower=replace(self.lower, pile=below), upper=replace(self.upper, pile=above))

    @property
    def may_be_others(self) -> bool:
        """Whether the counts do not speak for two values where the bounds are 0 and 1."""
        return self.upper.doubt**2 > MIN_REPORTED_CHANCE

    @property
    def share(self) -> float:
        """Share of the rows, of those not null, that is seen beyond a bound."""
        return min((self.lower.seen + self.upper.seen) / self.present, 1.0)

    def of_mean(self) -> Ends:
        """Return by how much the mean may be lower, and higher, than that of the clipped column."""
        low, high = self.of_sum()
        return _over(low, self.present), _over(high, self.present)

    def of_bins(self, cells: int, flag_cells: int = 0) -> Excess:
        """Return how many rows of the outermost of some bins lie beyond the bounds, and the standard errors of that.

        The last ``flag_cells`` of the cells are of special values and null.
        """
        last = cells - 1 - flag_cells
        return _added([[self.lower] * (cell == 0) + [self.upper] * (cell == last) for cell in range(cells)])

    def of_range(self, beyond: tuple[int, int]) -> Ends:
        """Return by how many rows a count may be lower, and higher, as ``beyond`` says of either bound.

        1 where a bound is counted and what lies beyond is not, −1 where it is the other way, 0 where they go together.
        """
        tails = list(zip(beyond, (self.lower, self.upper), strict=True))
        rows, errors = _added([[tail for sign, tail in tails if sign == way] for way in (1, -1)])
        return (rows[0], errors[0]), (rows[1], errors[1])

    def of_quantile(self, level: float, z: float) -> tuple[float, float]:
        """Return how far beyond its bounds a quantile of the column may lie at the most, where it is clipped to one."""
        return self.lower.reach(level * self.present, z), self.upper.reach((1 - level) * self.present, z)

    def of_sum(self) -> Ends:
        """Return by how much the sum may be lower, and higher, than that of the clipped column."""
        return self.lower.excess(1), self.upper.excess(1)

    def of_variance(self) -> Ends:
        """Return by how much the variance may be lower, and higher: tails only add to it."""
        (low, low_error), (high, high_error) = self.lower.excess(2), self.upper.excess(2)
        return (0.0, 0.0), _over((low + high, math.hypot(low_error, high_error)), self.present)

    @property
    def rise(self) -> float:
        """Factor by which the variance seems larger than that of the clipped column: the posterior's median."""
        medians = (
            weighted_quantile(tail.sums(2).mean(axis=1), tail.states.weights, 0.5) for tail in (self.lower, self.upper)
        )
        return 1 + sum(medians) / self.present / max(self.variance, 1e-300)

    @cached_property
    def _chance_of_matter(self) -> float:
        least = VARIANCE_SHARE * self.variance * self.present
        return max(tail.chance_above(least) for tail in (self.lower, self.upper)) if self.variance > 0 else 0.0

    @property
    def may_matter(self) -> bool:
        """Whether rows beyond the bounds may add more than a fifth to the variance."""
        return self._chance_of_matter > MIN_REPORTED_CHANCE

    @property
    def matter(self) -> bool:
        """Whether rows beyond the bounds surely add more than a fifth to the variance."""
        return self._chance_of_matter > 1 - TAIL_CHANCE


def _added(tails: Sequence[Sequence[Tail]]) -> tuple[FloatArray, FloatArray]:
    """Return the rows beyond bounds, by lists of them, and the standard errors of that."""
    counts = [[tail.count for tail in some] for some in tails]
    rows, errors = ([[one[part] for one in some] for some in counts] for part in (0, 1))
    return np.array([sum(one) for one in rows]), np.array([math.hypot(*one) for one in errors])


def _over(excess: Excess, rows: float) -> Excess:
    return excess[0] / rows, excess[1] / rows


def tails_of(inferred: Inferred | None, name: str, space: Space, n: int) -> Tails | None:
    """Return the tails of a column, or None where its bounds were not inferred from counts of intervals."""
    if inferred is None or name not in inferred.columns:
        return None
    measured = tuple(m for m in inferred.measured if m.column == name and m.kind == "intervals")
    inner: Any = space.inner_space
    bounded = (inner.is_numeric or inner.is_time) and not inner.is_listed
    if not measured or not bounded or inner.is_time != (measured[-1].unit is not None):
        return None
    own = [m for m in inferred.measured if m.column == name]
    # The distance of neighbouring numbers in the unit of the counts; 0 if numbers may be any.
    is_whole = inner.is_whole or own[-1].unit is not None
    gap = 1.0 if is_whole else float(inner.step) if is_on_steps(own, space) else 0.0
    return _tails(measured, space, n, gap)


@lru_cache(maxsize=256)
def _tails(measured: tuple[Measured, ...], space: Space, n: int, gap: float) -> Tails | None:
    first, final = bounds_of_counts(space.inner_space, measured[-1].unit)
    numbers = space.numbers(np.array([0, space.values - 1]))
    if len(measured[-1].cells) < 2 or numbers is None or not final > first:
        return None
    limits = (-math.inf, math.inf)
    if space.inner_space.is_whole or measured[-1].unit is not None:
        # Cells double, and the outermost ones are thought to end as the next ones would.
        counted = [float(edge) for edge in measured[-1].cells]
        limits = (2 * counted[0] - counted[1], 2 * counted[-1] - counted[-2])
    cells = fit_cells(measured, limits)
    # A number reaches half way to the next: rows of the bound itself lie in a cell that goes on beyond it.
    low, high = first - gap / 2, final + gap / 2
    edges = np.array(cells.grid.ends, dtype=np.float64) - gap / 2
    # Bounds may rest on cells none of which exceeds its noise by itself.
    outer = significant_range(cells) or _between(edges, low, high)
    if outer is None:
        return None
    inside = slice(outer[0], outer[1] + 1)
    # Halved, as the sum of floats may be beyond them all.
    middles = np.clip(edges[inside] / 2 + edges[outer[0] + 1 : outer[1] + 2] / 2, low, high)
    weights = np.maximum(cells.counts[inside], 0.0)
    mean = float(weights @ middles / max(weights.sum(), 1e-300))
    unit = float(numbers[1] - numbers[0]) / (final - first)
    present = max(float(n - max(measured[-1].rows_in_no_cell, 0)), 1.0)
    with np.errstate(over="ignore"):
        ways = (edges - mean) * unit
    # Times have no codes for missing values, and no sign.
    signed = measured[-1].unit is None
    coded = np.diff(np.searchsorted(MISSING_CODES, edges)) > 0 if signed else np.ones(len(cells.counts), np.bool_)
    # 0 and 1 are not chosen among hundreds of bounds.
    truths = [first, final] == [0.0, 1.0] and space.values == 2
    evidence = number_counts(measured, space, n)
    outside, error = (share * present for share in evidence.share_outside)
    doubt = math.sqrt(evidence.others_chance) if truths else 0.0

    def tail(ends: FloatArray, cells: Cells, distance: float, coded: npt.NDArray[np.bool_], room: float) -> Tail:
        with np.errstate(over="ignore"):
            places = np.clip(ends / max(distance, 1e-300), -FARTHEST_DISTANCE, FARTHEST_DISTANCE)
        counts, at = Counts.of(places, cells, coded)
        return Tail(
            distance,
            counts,
            present,
            outside + error,
            outside + NORMAL_QUANTILE * error + 1,
            room,
            at if at[1] else None,
            is_empty=truths or room <= 0,
            gap=gap * unit,
        )

    # Numbers that are as good as all of one sign go on to 0.
    below = first * unit if signed and first >= 0 else math.inf
    above = -final * unit if signed and final <= 0 else math.inf
    lower = tail(-ways[::-1], cells.reversed(), (mean - low) * unit, coded[::-1], below)
    upper = tail(ways, cells, (high - mean) * unit, coded, above)
    return Tails(
        lower,
        replace(upper, doubt=doubt, farther=TWO_VALUES_DISTANCE * unit * truths),
        present,
        float(weights @ ((middles - mean) * unit) ** 2 / max(weights.sum(), 1e-300)),
        not truths and evidence.miss_chance > MIN_REPORTED_CHANCE,
    )


def _between(edges: FloatArray, low: float, high: float) -> tuple[int, int] | None:
    places = np.flatnonzero((edges[:-1] < high) & (edges[1:] > low))
    return (int(places[0]), int(places[-1])) if len(places) else None


def piles_at_bounds(law: NumberLaw, space: Space) -> tuple[float, float]:
    """Return the shares of the rows that seem clipped to the lower and to the upper bound; 0 where none do.

    >>> from dpframe.observe.observation import Observation, Runs
    >>> from dpframe.spaces import Integer
    >>> counts = Observation(Runs.between(range(26)), np.array([50.0] * 24 + [600.0]), np.full(25, 4.0))
    >>> [round(share, 2) for share in piles_at_bounds(NumberLaw.of(Integer(10, 34), 1_800.0, counts), Integer(10, 34))]
    [0.0, 0.33]
    """
    ends = space.numbers(np.array([0, space.values - 1]))
    if space.values <= _SHORT or ends is None or space.is_time:
        return 0.0, 0.0
    low, high = map(float, ends)
    scale = (low, high) in _SCALES
    return (
        0.0 if low in _NATURAL or scale else _pile(law, space, lower=True),
        0.0 if scale else _pile(law, space, lower=False),
    )


def _pile(law: NumberLaw, space: Space, lower: bool) -> float:
    cells, last = law.bins, space.values
    # The bound's own cell, and those next to it.
    cell = 0 if lower else cells - 1
    start, stop = int(law.edges[cell]), int(law.edges[cell + 1])
    reach = max(round(_NEXT * last), _CODES)
    near = (stop, stop + reach) if lower else (start - reach, start)
    parts = law.overlap([start, near[0]], [stop, near[1]])
    (share, close), (error, unsure) = law.parts_of(parts, 0.0, 1.0)[:2]
    # Close rows are scaled to the width of the bound's cell, so that both counts are of equal widths.
    alike = _STEEP * max(close + unsure, 0.0) * min((stop - start) / reach, 1.0)
    return float(share) if share - _SURE * error > max(_SHARE, alike) else 0.0
