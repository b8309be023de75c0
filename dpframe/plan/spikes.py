"""Where the rows lie that do not have a column's commonest value, from noisy counts none of which shows them.

A fee is 0 for nine of ten rows; the others lie within a few doublings of each other, so that each cell holds less than
its noise. How many they are is known from n and the count of the commonest value. So shapes are compared by the
likelihood of all counts together: sizes around any power of two, nearer or farther apart, of either sign, and the
single values 0 and 1. Bounds that hold nearly all of what these shapes expect are generous where counts say little.

Everything here is post-processing: it sees noisy counts and public facts, never the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpframe.spaces.arrays import FloatArray

_SIZES, _APART = (-9.0, 30.0, 0.5), (0.25, 0.5, 0.8)
"""Powers of two that sizes lie around, from, to and by; and how far apart, as scales of logistic laws of the power
(tuned; effect not measured)."""

_USUAL, _UNUSUAL = {True: (-0.5, 20.0), False: (-8.0, 20.0)}, 0.15
"""Powers of two of usual sizes, of whole numbers (True) and of floats; and the odds of others (tuned; effect not
measured)."""

_NEGATIVE, _POINT = 0.05, {True: 11.0, False: 0.3}
"""Odds of negative numbers; and those of the values 0 and 1, of whole numbers and of floats (tuned; effect not
measured)."""

_BEYOND = 0.1
"""Expected share of the others that may lie beyond either bound (tuned; effect below).

One in eight is found of 320 made-up columns of 700 to 4,500 rows whose others are hidden, with this and .15; of these
one in forty has bounds that leave out a third of the others.
"""

_LEAST_CHANCE = 1e-9
"""Chance below which a shape is left out (tolerance)."""

POINT = 1e-12
"""Width of a cell of floats that holds a single number, in parts of it (tolerance)."""


@dataclass(frozen=True, eq=False)
class Others:
    """What counts say of the rows that do not have the commonest value.

    ``ends`` are those of the cells, one of which, ``spike``, is the commonest ``value``. Every one of the ``shapes``
    says how the others are spread over the cells; it is right with one of the ``chances``, and then so large a part of
    the rows is ``shares``. ``whole`` says whether numbers are.
    """

    ends: FloatArray
    spike: int
    value: float
    shapes: FloatArray
    chances: FloatArray
    shares: FloatArray
    whole: bool

    @property
    def _expected(self) -> FloatArray:
        return np.asarray(self.chances @ self.shapes)

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds that are likely to hold the commonest value and nearly all others, as the ends of cells."""
        above, below = np.cumsum(self._expected[::-1])[::-1], np.cumsum(self._expected)
        last = max(int(np.count_nonzero(above > _BEYOND)) - 1, self.spike)
        first = min(int(np.argmax(below > _BEYOND)), self.spike)
        low = self.value if first == self.spike else float(self.ends[first])
        return low, self.value if last == self.spike else self._last(last)

    def _last(self, cell: int) -> float:
        """Return the largest number of a cell."""
        start, stop = float(self.ends[cell]), float(self.ends[cell + 1])
        return start if stop / 2 - start / 2 < POINT / 2 * abs(start) else stop - self.whole

    def beyond(self, low: float, high: float) -> float:
        """Return the expected share of the others beyond some bounds."""
        middles = self.ends[:-1] / 2 + self.ends[1:] / 2 - self.whole / 2  # of whole numbers the last one is inside
        return 1.0 - float(self._expected @ ((middles >= low) & (middles <= high)))

    def spread(self, low: float, high: float) -> float:
        """Return the column's standard deviation between bounds, in their width: the geometric mean of what may be."""
        width = high / 2 - low / 2  # halved, as the difference may be beyond all floats
        ways = (np.clip(self.ends, low, high) / 2 - self.value / 2) / width
        ways = ways[:-1] / 2 + ways[1:] / 2
        ways[self.spike] = 0.0
        means, squares = self.shapes @ ways * self.shares, self.shapes @ ways**2 * self.shares
        return float(np.exp(self.chances @ np.log(np.sqrt(np.maximum(squares - means**2, 1e-300)))))


def others_of(
    ends: FloatArray, counts: FloatArray, covariance: FloatArray, present: float, unsure: float, whole: bool
) -> Others:
    """Return where the rows may lie that do not have the commonest value.

    ``ends``, ``counts``, ``covariance``: cells, whose ends may be infinite, and the noisy counts of their rows.
    ``present``, ``unsure``: rows that are not null, and the variance of that. ``whole``: whether the numbers are whole.
    """
    spike = int(np.argmax(counts))
    shapes, odds = _shapes(ends, spike, whole)
    left, variances = counts.copy(), covariance.copy()
    left[spike] -= present
    variances[spike, spike] += unsure
    # A row that has another value is one fewer of the commonest.
    ways = shapes.copy()
    ways[:, spike] = -1.0
    weighted = np.linalg.solve(variances, np.column_stack([left, ways.T]))
    told = np.maximum(ways @ weighted[:, 0], 0.0)
    known = np.einsum("hc,ch->h", ways, weighted[:, 1:])
    likely = told**2 / (2 * known) + np.log(odds)
    chances = np.exp(likely - likely.max(initial=0.0))
    chances /= chances.sum()
    some = chances > _LEAST_CHANCE
    shares = np.minimum(told / known / max(present, 1.0), 1.0)
    start, stop = ends[spike], ends[spike + 1]
    value = 0.0 if start <= 0 < stop else float(start)
    return Others(ends, spike, value, shapes[some], chances[some] / chances[some].sum(), shares[some], whole)


def _shapes(ends: FloatArray, spike: int, whole: bool) -> tuple[FloatArray, FloatArray]:
    """Return parts of the others by cell, a row for each shape, and the shapes' odds."""
    found, odds = [], []
    for sign, own in ((1.0, 1.0), (-1.0, _NEGATIVE)):
        parts, weights = _around(sign * ends[:: int(sign)], sign * whole / 2, whole)
        found.append(parts[:, :: int(sign)])
        odds.append(weights * own)
    shapes, weights = np.concatenate(found), np.concatenate(odds)
    shapes[:, spike] = 0.0
    held = shapes.sum(axis=1)
    some = held > 0.5
    shapes, weights = shapes[some] / held[some, None], weights[some] / max(weights[some].sum(), 1e-300)
    values = [value for value in (0.0, 1.0) if ends[0] <= value < ends[-1]]
    cells = [int(np.searchsorted(ends, value, side="right")) - 1 for value in values]
    points = [cell for cell in cells if cell != spike]
    single = np.eye(len(ends) - 1)[points]
    return np.concatenate([shapes, single]), np.concatenate([weights, np.full(len(points), _POINT[whole])])


def _around(ends: FloatArray, shift: float, whole: bool) -> tuple[FloatArray, FloatArray]:
    """Return the parts of positive numbers of all sizes that lie in each cell, and their odds."""
    with np.errstate(divide="ignore"):
        powers = np.log2(np.maximum(ends - shift, 0.0))
    sizes = np.arange(*_SIZES)
    spreads = np.repeat(_APART, len(sizes))[:, None]
    ways = (powers - np.tile(sizes, len(_APART))[:, None]) / spreads
    least, most = _USUAL[whole]
    usual = np.tile((sizes >= least) & (sizes <= most), len(_APART))
    return np.diff(1 / (1 + np.exp(-np.clip(ways, -500, 500))), axis=1), np.where(usual, 1.0, _UNUSUAL)
