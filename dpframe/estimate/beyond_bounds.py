"""What lies beyond the bounds that private inference found, which the released column holds as the bounds.

A mean of a clipped column falls short of the table's by the integral of the share of rows beyond x, from the bound on:
E(X − u)⁺ = ∫ P(X > x) dx. The counts that inference paid for give that share at the bound, a distance d from the mean,
and at half of it; from these it is taken to fall on as a power, d^−α, so that the integral is P(X > u)·d/(α − 1).
That is right for Pareto's law, and too much for all whose tails fall faster the further they go, as those of normal,
exponential and log-normal laws do. What noise may hide is added, as an error of the share. Rows that stand out of the
noise further away are counted where they are.

Rows that seem to be clipped to a bound that was declared show by far more at it than close to it. Some heaps at an end
are natural, and are passed over: zeros and ones at the lower bound, both ends of shares and of percentages, and those
of short scales, as ratings are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.estimate.evidence.law import Known
from dpframe.estimate.evidence.number_law import NumberLaw
from dpframe.estimate.results import Ends, Excess
from dpframe.observe.overlap import overlap_cells
from dpframe.observe.quantiles import NORMAL_QUANTILE
from dpframe.observe.significance import HINT_SE
from dpframe.plan.findings import (
    UNLIKELY,
    are_faint,
    bounds_of_counts,
    chance_of_others,
    odds_of_two_values,
    share_outside,
)
from dpframe.plan.infer.ranges import Cells, fit_cells, hull
from dpframe.plan.infer.steps import is_on_steps
from dpframe.plan.inferred import Inferred, Measured
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

BEYOND_BOUNDS = "beyond_bounds"
"""Key of a result's attrs: ``{column: share of the rows}``."""

_LEAST_FALL = 1.0
"""How much faster than its integral can bear a tail is thought to fall, at least (tuned; half and twice it change
widths on a census by 1 and −4 %)."""

_NARROW = 1e-3
"""Width of a cell, as a part of the way that is looked at, from which on its count is not only noise (tuned; effect not
measured)."""

_POINT = 1e-9
"""Width of a cell, as a part of a bound's distance from the mean, up to which it holds but the bound (tolerance)."""

_NEAR, _HEAVY = 8.0, 4.0
"""How many times as far as a bound rows beyond it are reckoned with, and the power of its fall below which a tail is
heavy (tuned; half and twice it change widths on a census: `_NEAR` by −47 and 103 %, `_HEAVY` by −59 and 0 %)."""

_APART = 1.5
"""Standard errors by which more rows are counted beyond a bound than lie at it from where on they are noise (tuned;
effect not measured)."""

_REMOTE, _REMOTE_SURE, _REMOTE_OTHER = 1024.0, 3.5, 4.5
"""The same of cells that lie further, where they have a code for missing values, and where they have none (tuned;
effect not measured).

Among some thirty cells noise makes the first of one in .7 % of columns, with 3 in 4 %: their means had errors of many
standard deviations, by rows that were none.
"""

_CODES_OF_MISSING = np.sort([sign * (10.0**digits - 1) for digits in range(1, 8) for sign in (-1, 1)])
"""Numbers that stand for a missing value: 9, 99, 999 … of either sign, in rising order (theory: custom of statistical
offices)."""

_TOLD, _MOST_TOLD = 11.5, 6.0
"""Twice the logarithm of the likelihood by which a remote cell's rows are there, where as many must lie at the bound;
and how much of it these bring at the most, as rows at a bound are often no others (tuned; effect not measured).

In 12 simulated releases of 27 real tables .2 % of the columns with no row beyond their bounds are thought to have such
rows; a missing code that is 3.4 standard errors of its cell is seen ten times of fourteen, by its cell alone six times.
"""

_USUAL = 0.5
"""Part of the rows that noise may hide outside of bounds which lies beyond one of them, as a standard deviation (tuned;
half and twice it change widths on a census by −9 and 4 %).

In the same tables it is a quarter in the mean. Counts of cells beyond a bound have two to five times that as error.
"""

_HIDDEN = {False: 1.0, True: 0.5}
"""How far beyond a bound rows that are seen nowhere may lie on average, in distances of the bound from the mean; of
columns thought to hold 0 and 1 (True) hardly any have others (tuned; effect below).

In the same tables .4 % of the means are off by more than five errors with twice that, with this, and with half of it
.6 %; their errors are stated as .30, .16 and .13 standard deviations, in the median.
"""

_GOES_ON = 2.0
"""The same of the rows of a heavy tail, which a bound that is far out cuts (tuned; half and twice it change widths on a
census by −1 and 8 %)."""

_FARTHER = 5.0
"""How far beyond 1 the other values of a column lie on average that is only thought to hold 0 and 1 (tuned; effect not
measured).

Among thirteen counts with a spike at 0, in fifty real tables, ten have a mean below that where they are not 0.
"""

_FAR, _FARTHEST = 5.0, 100.0
"""Standard deviations of the column from its mean to a bound from which on its tail is heavy: others end by then
(tuned; effect not measured).

Further out than the last, the standard deviation is that of a single cell.
"""

_SKEWED, _FURTHER = 2.5, 1.5
"""The same of a bound that is so many times as far out as the other one: columns go on to that side (tuned; effect not
measured).

In 58 releases of real tables and 72 of own ones with heavy tails (log-normal, Pareto, negative binomial, 600 to 4,000
rows, ε = 1 and 4) intervals of std hold .961 and .968, where tails of either kind open them; .960 and .947 without.
"""

_PILE = 1.2
"""Part of the variance of the clipped column that rows surely at a bound may add, as a tail that goes on, unsaid
(tuned; effect not measured).

A normal law that is clipped to any bound adds .4 of it, one of amounts over many magnitudes twice as much as it has.
"""

_FEW = 0.025
"""Chance of a row further out than the farthest that a heavy tail is thought to have (theory: two sides of 95 %).

Few rows decide the variance of such a tail: the mean of what they add says nothing of what they do.
"""

_MATTERS = 0.2
"""Part of a variance from which on what tails add to it is said (tuned; effect not measured)."""

_MOST_RISE = 4.0
"""Factor of a variance by which covariances take tails to raise it, at most (tuned; effect not measured)."""

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
class Tail:
    """What lies beyond a bound, in the numbers of codes.

    ``distance`` is that of the bound from the column's mean; ``rows`` lie beyond it, as far as tails go on, with the
    standard ``error``, and fall as its power ``fall``. ``further`` are distances of cells beyond these, up to the
    last one in which rows stand out of the noise, with their ``counts`` and variances. ``room`` is how far numbers
    go on at the most. ``hidden`` are the rows that may lie beyond for all that is counted elsewhere: a tail over sizes
    of many magnitudes shows in no cell. Of these ``piled`` are surely seen at the bound, where all rows beyond it are.
    ``doubt`` is the root of the chance that they lie ``farther`` than a column of two values lets them; 0 of others.
    ``is_noise`` says that more rows were counted beyond the bound than lie at it, where all of them are; ``is_sure``
    that rows surely lie in one of those cells. ``unsure`` are the three arrays up to a remote cell that may be noise,
    and ``at`` is what was counted of rows that have the bound itself, where a cell has no others.
    """

    distance: float
    rows: float
    error: float
    fall: float
    further: FloatArray
    counts: FloatArray
    variances: FloatArray
    room: float = math.inf
    hidden: float = 0.0
    piled: float = 0.0
    doubt: float = 0.0
    farther: float = 0.0
    is_noise: bool = False
    is_sure: bool = False
    unsure: tuple[FloatArray, FloatArray, FloatArray] | None = None
    at: Known = 0.0, 0.0

    def with_pile(self, pile: Known | None) -> Tail:
        """Return the tail if so many rows lie at the bound itself."""
        if pile is None:
            return self
        beyond = pile[0] - self.at[0], pile[1] + self.at[1]
        tail = self._told_by(beyond)._held_to(beyond)
        return tail._known_twice(beyond) if self.at[1] else tail

    def _known_twice(self, beyond: Known) -> Tail:
        """Return the tail if so many rows lie beyond: all at the bound but those that have it."""
        own = beyond[1] / (beyond[1] + self.count[1] ** 2)
        return replace(
            self,
            rows=own * self.rows + (1 - own) * max(beyond[0], 0.0),
            error=self.error * math.sqrt(own),
            counts=self.counts * own,
            variances=self.variances * own,
        )

    def _told_by(self, pile: Known) -> Tail:
        """Return the tail with a remote cell if its count and the rows at the bound together tell of its rows."""
        if self.unsure is None:
            return self
        further, counts, variances = self.unsure
        rows, count = max(pile[0], 0.0), float(counts[-1])
        alone = count**2 / variances[-1] + min(rows**2 / pile[1], _MOST_TOLD)
        if alone - (count - rows) ** 2 / (variances[-1] + pile[1]) < _TOLD:
            return self
        return replace(self, further=further, counts=counts, variances=variances, is_sure=True)

    def _held_to(self, pile: Known) -> Tail:
        """Return the tail if so many rows lie at the bound itself: no more can lie beyond it."""
        rows, error = max(pile[0], 0.0), math.sqrt(pile[1])
        surely = max(rows - HINT_SE * error, 0.0)
        seen, own = max(self.rows, 0.0) + max(float(self.counts.sum()), 0.0), self.count[1]
        less = min((rows + HINT_SE * error) / max(seen, own, 1e-300), 1.0)
        return replace(
            self,
            rows=self.rows * less,
            error=self.error * less,
            counts=self.counts * less,
            variances=self.variances * less**2,
            hidden=min(self.hidden, math.hypot(rows, error)),
            piled=min(self.hidden, surely),
            is_noise=seen - rows > _APART * math.hypot(own, error),
        )

    @property
    def as_usual(self) -> Tail:
        """The tail with its counts drawn to none beyond, by how much of them is noise."""
        usual, own = (_USUAL * self.hidden) ** 2 + self.piled**2, float(self.variances.sum())
        if usual <= 0:
            return self
        near, far = usual / (usual + self.error**2), 1.0 if self.is_sure else usual / (usual + own)
        return replace(
            self,
            rows=self.rows * near,
            error=self.error * math.sqrt(near),
            counts=self.counts * far,
            variances=self.variances * far,
        )

    @property
    def unseen_only(self) -> Tail:
        """The tail without the rows that are counted beyond the bound."""
        none = self.counts[:0]
        return replace(self, rows=0.0, error=0.0, further=none, counts=none, variances=none, unsure=None)

    def unseen(self, power: int) -> float:
        """Return the error of the sum of a power of distances that rows seen in no cell beyond the bound add."""
        rows = self.hidden if power == 1 else self.piled
        near = rows * min(_HIDDEN[self.farther > 0] * self.distance, self.room) ** power
        return math.hypot(near, self.doubt * self.hidden * self.farther**power)

    def farthest(self, power: int) -> float:
        """Return the error of the sum of a power of distances by the one row that may lie furthest out."""
        if not self.seen or self.fall >= _HEAVY:
            return 0.0
        way = self.distance * (self.seen / _FEW) ** (1 / max(self.fall, power))
        return float(min(way, self.distance + self.room) ** power - self.distance**power) / NORMAL_QUANTILE

    @property
    def count(self) -> Excess:
        """Rows beyond the bound, and the standard error of that."""
        rows, error = self.rows + float(self.counts.sum()), math.hypot(self.error, math.sqrt(self.variances.sum()))
        return max(rows, 0.0), error

    @property
    def seen(self) -> float:
        """Rows that stand out of the noise."""
        rows, error = self.count
        return rows if rows > error else 0.0

    def excess(self, power: int) -> Excess:
        """Return what a sum of distances, to a power, lacks as rows beyond the bound count as it, and its error."""
        with np.errstate(over="ignore", invalid="ignore"):
            each = self.distance**power * power / max(self.fall - power, _LEAST_FALL)
            each = min(each, (self.distance + self.room) ** power - self.distance**power)
            ways = self.further**power - self.distance**power
            value = max(self.rows, 0.0) * each + max(float(self.counts @ ways), 0.0)
            error = math.hypot(self.error * each, math.sqrt(float(self.variances @ ways**2)))
        return (value, error) if math.isfinite(value + error) else (0.0, math.inf)

    def reach(self, rows: float, z: float) -> float:
        """Return how far beyond the bound a column goes on until so many rows are left, with all that noise may hide.

        Rows fall as a power of their distance, or lie where they are seen. It is 0 where fewer than these lie beyond.
        """
        count, error = self.count
        more = (count + z * error) / rows
        outside = np.cumsum(self.counts[::-1])[::-1] + z * np.sqrt(np.cumsum(self.variances[::-1])[::-1])
        seen = (self.further - self.distance)[outside > rows].max(initial=0.0)
        falls = self.distance * (more ** (1 / max(self.fall, _LEAST_FALL)) - 1) if more > 1 else 0.0
        return max(falls, float(seen))


@dataclass(frozen=True, eq=False)
class Tails:
    """Both tails of a column, its rows that are not null, and the variance of the clipped column, as counted."""

    lower: Tail
    upper: Tail
    present: float
    variance: float
    is_short: bool = False
    """Whether the column is a short scale, where one value with most of the rows puts any bound far out."""
    is_faint: bool = False
    """Whether one value has most rows, and the counts hardly show where the others lie."""

    def with_piles(self, piles: Sequence[Known | None]) -> Tails:
        """Return the tails if so many rows lie at either bound: counts and their variances, None where not counted."""
        below, above = piles
        return replace(self, lower=self.lower.with_pile(below), upper=self.upper.with_pile(above))

    @property
    def may_be_others(self) -> bool:
        """Whether the counts do not speak for two values where the bounds are 0 and 1."""
        return self.upper.doubt**2 > UNLIKELY

    @property
    def share(self) -> float:
        """Share of the rows, of those not null, that is seen beyond a bound."""
        return min((self.lower.seen + self.upper.seen) / self.present, 1.0)

    def of_mean(self) -> Ends:
        """Return by how much the mean may be lower, and higher, than that of the clipped column."""
        low, high = self.of_sum()
        return _over(low, self.present), _over(high, self.present)

    def of_bins(self, cells: int, has_null: bool = False) -> Excess:
        """Return how many rows of the outermost of some bins lie beyond the bounds, and the standard errors of that."""
        last = cells - 1 - has_null
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
        """Return the same of the sum."""
        return self._sum_beyond(self.lower), self._sum_beyond(self.upper)

    def _sum_beyond(self, tail: Tail) -> Excess:
        value, error = tail.as_usual.excess(1)
        return value, math.hypot(error, tail.unseen(1))

    def of_variance(self) -> Ends:
        """Return the same of the variance, which tails only add to."""
        (low, low_error), (high, high_error) = self.lower.excess(2), self.upper.excess(2)
        ends = (self.lower, self.upper)
        errors = (low_error, high_error, *(tail.unseen(2) for tail in ends), *(tail.farthest(2) for tail in ends))
        hidden = max(self._hidden_squares(_FAR), self._hidden_squares(_SKEWED, _FURTHER)) / NORMAL_QUANTILE
        return (0.0, 0.0), _over((low + high, math.hypot(*errors, hidden)), self.present)

    def _hidden_squares(self, far: float, further: float = 0.0) -> float:
        """Return the most that squares of distances lack by rows which noise hides beyond a bound far out.

        It is ``far`` in standard deviations, and ``further`` than the other bound, in distances of that. Rows beyond
        may show nowhere; a column of two values has none.
        """
        least, most = far * math.sqrt(self.variance), _FARTHEST * math.sqrt(self.variance)
        ends = [(self.lower, self.upper), (self.upper, self.lower)]
        out = [a for a, b in ends if not a.farther and max(least, further * b.distance) < a.distance < most]
        ways = (tail.hidden * min(_GOES_ON * tail.distance, tail.room) ** 2 for tail in out)
        return 0.0 if self.is_short else max(ways, default=0.0)

    @property
    def rise(self) -> float:
        """By which factor the variance seems larger than that of the clipped column, four at most.

        More than that is a tail that hardly any row shows; a warning says so.
        """
        return min(1 + float(self.of_variance()[1][0]) / max(self.variance, 1e-300), _MOST_RISE)

    @property
    def is_heavy(self) -> bool:
        """Whether rows that noise hides beyond a bound far out may add more than a fifth to the variance."""
        return self._hidden_squares(_FAR) / self.present > _MATTERS * self.variance

    @property
    def is_piled(self) -> bool:
        """Whether rows that are surely at a bound are most of the spread that is left between the bounds."""
        ends = [tail for tail in (self.lower, self.upper) if not tail.farther]
        piles = max((tail.piled * 2 * min(tail.distance, tail.room) ** 2 for tail in ends), default=0.0)
        return piles / self.present > _PILE * self.variance > 0

    @property
    def may_matter(self) -> bool:
        """Whether rows beyond the bounds may add more than a fifth to the variance."""
        value, error = self.of_variance()[1]
        return self.is_heavy or self.is_piled or (self.share > 0 and value + error > _MATTERS * self.variance)

    @property
    def matter(self) -> bool:
        """Whether rows beyond the bounds surely add more than a fifth to the variance, or are piled at a bound."""
        sure = sum(tail.excess(2)[0] for tail in (self.lower, self.upper) if not tail.is_noise)
        least = sure / self.present - HINT_SE * self.of_variance()[1][1]
        return self.is_piled or (self.share > 0 and least > _MATTERS * self.variance)


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
    inner = space.inner_space
    bounded = (inner.is_numeric or inner.is_time) and not inner.is_listed
    if not measured or not bounded or inner.is_time != (measured[-1].unit is not None):
        return None
    own = [m for m in inferred.measured if m.column == name]
    return _tails(measured, space, n, _gap(own, space), odds_of_two_values(inferred.measured, n))


def _gap(measured: Sequence[Measured], space: Space) -> float:
    """Return how far apart the numbers of a column are that its counts are of: 0 where they may be any."""
    grid: Any = space.inner_space
    if grid.is_whole or measured[-1].unit is not None:
        return 1.0
    return float(grid.step) if is_on_steps(measured, space) else 0.0


@lru_cache(maxsize=256)
def _tails(measured: tuple[Measured, ...], space: Space, n: int, gap: float, odds: float) -> Tails | None:
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
    edges, last = np.array(cells.grid.ends, dtype=np.float64) - gap / 2, len(cells.counts) - 1
    # Bounds may rest on cells none of which exceeds its noise by itself.
    outer = hull(cells) or _between(edges, low, high)
    if outer is None:
        return None
    inside = slice(outer[0], outer[1] + 1)
    # Halved, as the sum of floats may be beyond them all.
    middles = np.clip(edges[inside] / 2 + edges[outer[0] + 1 : outer[1] + 2] / 2, low, high)
    weights = np.maximum(cells.counts[inside], 0.0)
    mean = float(weights @ middles / max(weights.sum(), 1e-300))
    unit = float(numbers[1] - numbers[0]) / (final - first)
    nulls = max(measured[-1].missing or 0, 0)
    with np.errstate(over="ignore"):
        ways = (edges - mean) * unit
    # Numbers that are as good as all positive go on to 0; those of times have none, and no codes.
    signed = measured[-1].unit is None
    coded = np.diff(np.searchsorted(_CODES_OF_MISSING, edges)) > 0 if signed else np.ones(last + 1, np.bool_)
    lower = _tail(-ways[::-1], cells.reversed(), last - outer[0], (mean - low) * unit, coded[::-1])
    upper = _tail(ways, cells, outer[1], (high - mean) * unit, coded)
    truths = [first, final] == [0.0, 1.0] and space.values == 2
    if truths:
        # They are not chosen among hundreds of bounds: what is counted elsewhere is noise, or a few rows at 2 or so.
        lower, upper = lower.unseen_only, upper.unseen_only
    farthest = unit if truths else math.inf
    present = max(float(n - nulls), 1.0)
    hidden = sum(share_outside(measured, space, n)) * present
    doubt = math.sqrt(chance_of_others(measured, space, n, odds)) if truths else 0.0
    return Tails(
        replace(lower, hidden=hidden, room=first * unit if signed and first >= 0 else farthest),
        replace(
            upper,
            hidden=hidden,
            room=-final * unit if signed and final <= 0 else farthest,
            doubt=doubt,
            farther=_FARTHER * unit * truths,
        ),
        present,
        float(weights @ ((middles - mean) * unit) ** 2 / max(weights.sum(), 1e-300)),
        bool(space.inner_space.is_whole and space.values - space.has_null <= _SHORT),
        not truths and are_faint(measured, space, n),
    )


def _between(edges: FloatArray, low: float, high: float) -> tuple[int, int] | None:
    places = np.flatnonzero((edges[:-1] < high) & (edges[1:] > low))
    return (int(places[0]), int(places[-1])) if len(places) else None


def _tail(ends: FloatArray, cells: Cells, last: int, bound: float, coded: npt.NDArray[np.bool_]) -> Tail:
    """Return what lies beyond a bound; it and the ends of cells are distances from the mean.

    ``coded``: whether a cell has a code for missing values.
    """
    # Within a wide cell the bound is reached by the power law, too, from where the cell begins.
    start = float(ends[max(int(np.searchsorted(ends, bound, side="right")) - 1, 0)])
    start = start if bound / 2 < start < bound else bound
    # Rows of a cell that is but the bound, as zeros are, lie at it and not beyond.
    (points,) = np.nonzero((np.abs(ends[:-1] - bound) <= _POINT * bound) & (np.abs(ends[1:] - bound) <= _POINT * bound))
    start = bound if len(points) else start
    wide = np.diff(ends / 2) > _NARROW / 2 * bound
    within, nearer = overlap_cells(ends, [start, start / 2], [2 * bound, start])
    parts = np.where((ends[:-1] < bound) | wide, within, 0.0)
    parts[points] = nearer[points] = 0.0
    rows, error = float(parts @ cells.counts), math.sqrt(max(float(parts @ cells.covariance @ parts), 0.0))
    before = rows + float(nearer @ cells.counts)
    fall = math.log2(max(before / max(rows, error, 1.0), 1.0))
    # As many rows again, and again, in every doubling.
    all_rows = ((start / bound) ** fall if start > 0 else 1.0) / (1 - 2.0 ** -max(fall, _LEAST_FALL))
    # A fall that noise decides says nothing: it would add the noise of all cells near the bound to any column.
    heavy = fall < _HEAVY and rows > HINT_SE * error
    near, sure, unsure = _suspected(ends, cells, bound, heavy, coded)
    last = max(last, sure)
    start_far, middles, variances = int(np.searchsorted(ends, 2 * bound)), ends[:-1] / 2 + ends[1:] / 2, _own(cells)

    def up_to(place: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        far = slice(min(start_far, place + 1), place + 1)
        return middles[far], cells.counts[far], variances[far]

    return Tail(
        bound,
        rows * all_rows,
        error * all_rows,
        fall,
        *up_to(max(last, near)),
        is_sure=last >= start_far,
        at=(float(cells.counts[points].sum()), float(_own(cells)[points].sum())) if len(points) else (0.0, 0.0),
        unsure=up_to(unsure) if unsure > max(last, near) else None,
    )


def _own(cells: Cells) -> FloatArray:
    return np.maximum(np.diag(cells.covariance), 1e-300)


def _suspected(
    ends: FloatArray, cells: Cells, bound: float, heavy: bool, coded: npt.NDArray[np.bool_]
) -> tuple[int, int, int]:
    """Return the last cells beyond a bound that are reckoned with although their rows may be noise; −1 for none.

    Near the bound, where there are more than noise often makes, or all where the tail is seen and ``heavy``;
    further away, where one cell has more than noise makes in many; and of those with codes for missing values the one
    with most for its noise, which may be.
    """
    near, remote = ((ends[:-1] >= bound) & (ends[:-1] < times * bound) for times in (_NEAR, _REMOTE))
    scores = np.where(near | remote, cells.counts / np.sqrt(_own(cells)), -np.inf)
    suspect = near & ((scores > HINT_SE) | heavy)
    sure = scores > np.where(coded, _REMOTE_SURE, _REMOTE_OTHER)
    lasts = [int(found[-1]) if found.any() else -1 for found in map(np.flatnonzero, (suspect, sure))]
    apart = np.where(remote & ~near & coded, scores, -np.inf)
    return lasts[0], lasts[1], int(np.argmax(apart)) if apart.max(initial=-np.inf) > HINT_SE else -1


def piles_at_bounds(law: NumberLaw, space: Space) -> tuple[float, float]:
    """Return the shares of the rows that seem clipped to the lower and to the upper bound; 0 where none do.

    >>> from dpframe.plan.measures import Measure, MeasuredTable
    >>> from dpframe.spaces import Integer
    >>> counts = np.array([50] * 24 + [600])
    >>> table = MeasuredTable(Measure("one_way", ("x",), 4.0), (None,), counts)
    >>> [round(share, 2) for share in piles_at_bounds(NumberLaw.of(Integer(10, 34), 1_800.0, table), Integer(10, 34))]
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
    alike = _STEEP * max(close + unsure, 0.0) * min((stop - start) / reach, 1.0)
    return float(share) if share - _SURE * error > max(_SHARE, alike) else 0.0
