"""Distribution of the rows without a column's commonest value, if no single noisy count shows these rows.

A fee is 0 for nine of ten rows; the others lie within a few doublings of each other, so that each cell is below its
noise. Their number follows from n and the count of the commonest value. So shapes are compared by the likelihood of
all counts together: sizes around any power of two, nearer or farther apart, of either sign, and the single values 0 and
1. Bounds contain nearly all rows that these shapes expect.

Everything here is post-processing: it sees noisy counts and public facts, never the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpframe.accounting.gaussian_dp import log_normal_cdf
from dpframe.inference.cells import largest_number
from dpframe.spaces.arrays import FloatArray

_SIZE_POWERS = np.arange(-48.0, 64.0)
"""Powers of two of the typical size: those of the first grid's cells (limit of the format)."""

_SIZE_SCALES = (0.25, 0.5, 0.8)
"""Scales of the logistic distributions of the power (tuned; with only .5 1 in 1,000 columns more are lost)."""

_POINT_ODDS = {True: 4.0, False: 0.3}
"""Odds that the others have the value 0 or 1, against any other size, for whole numbers and for floats (tuned; with 20
for both, as many columns of real tables are lost, but made columns of few rows are found as 0 and 1 by noise)."""

_BEYOND_SHARE = 0.1
"""Expected share of the others that may lie beyond either bound (tuned; effect below).

One in eight is found of 320 made-up columns of 700 to 4,500 rows whose others are hidden, with this and .15; of these
one in forty has bounds that leave out a third of the others.
"""

_MIN_CHANCE = 1e-9
"""Chance below which a shape is left out (tolerance)."""


@dataclass(frozen=True, eq=False)
class Minority:
    """Fitted distribution of the rows that do not have the commonest value.

    ``ends`` are the ends of the cells; cell ``spike`` contains the commonest ``value``. Each of the ``shapes`` is a
    distribution of the others over the cells. A shape has the posterior probability in ``chances``, and the others are
    the part of the rows in ``shares``. ``whole`` says whether the values are whole numbers.
    """

    ends: FloatArray
    spike: int
    value: float
    shapes: FloatArray
    chances: FloatArray
    shares: FloatArray
    whole: bool

    @property
    def _expected_shares(self) -> FloatArray:
        """Expected share of the others in every cell."""
        return np.asarray(self.chances @ self.shapes)

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds that probably contain the commonest value and nearly all others, as ends of cells."""
        shares_above, shares_below = np.cumsum(self._expected_shares[::-1])[::-1], np.cumsum(self._expected_shares)
        last_cell = max(int(np.count_nonzero(shares_above > _BEYOND_SHARE)) - 1, self.spike)
        first_cell = min(int(np.argmax(shares_below > _BEYOND_SHARE)), self.spike)
        low = self.value if first_cell == self.spike else float(self.ends[first_cell])
        if last_cell == self.spike:
            return low, self.value
        return low, largest_number(float(self.ends[last_cell]), float(self.ends[last_cell + 1]), self.whole)

    def miss_chance(self, inside_shares: FloatArray) -> float:
        """Return the probability that bounds, which contain these shares of the cells, miss most of the others."""
        return float(self.chances @ (self.shapes @ inside_shares < 0.5))

    def spread(self, low: float, high: float) -> float:
        """Return the root of the column's expected variance, in widths of the bounds."""
        width = high / 2 - low / 2  # halved, as the difference may be beyond all floats
        offsets = (np.clip(self.ends, low, high) / 2 - self.value / 2) / width
        offsets = offsets[:-1] / 2 + offsets[1:] / 2
        offsets[self.spike] = 0.0
        means, squares = self.shapes @ offsets * self.shares, self.shapes @ offsets**2 * self.shares
        return math.sqrt(max(float(self.chances @ (squares - means**2)), 1e-300))


def fit_minority(
    rounds: Sequence[tuple[FloatArray, FloatArray, float]], spike: int, present: float, unsure: float, whole: bool
) -> Minority:
    """Return the posterior distribution of the rows that do not have the commonest value.

    ``rounds``: ends of cells, which may be infinite, noisy counts of their rows, and the variance of each count; every
    round divides the cells of the round before. ``spike``: the last round's cell with the commonest value. ``present``,
    ``unsure``: rows that are not null, and the variance of this number. ``whole``: whether the values are whole.
    """
    ends = rounds[-1][0]
    shapes, odds = _make_shapes(ends, spike, whole)
    # Generalised least squares of one effect for each shape. The rounds' noise is independent; the uncertain number of
    # rows moves the spikes of all rounds together, a covariance of rank one (Sherman and Morrison).
    projections, information, spike_effects = np.zeros((3, len(shapes)))
    spike_residual = spike_precision = 0.0
    for round_ends, round_counts, variance in rounds:
        starts = np.searchsorted(ends, round_ends[:-1])
        effects = np.add.reduceat(shapes, starts, axis=1)
        place = int(np.searchsorted(starts, spike, side="right")) - 1
        # A row that has another value is one fewer of the commonest.
        effects[:, place] -= 1.0
        residuals = round_counts.copy()
        residuals[place] -= present
        projections += effects @ residuals / variance
        information += np.einsum("hc,hc->h", effects, effects) / variance
        spike_effects += effects[:, place] / variance
        spike_residual += residuals[place] / variance
        spike_precision += 1 / variance
    correction = unsure / (1 + unsure * spike_precision)
    projections -= correction * spike_effects * spike_residual
    information -= correction * spike_effects**2
    # The number of the others is even between none and all beforehand: a normal distribution that ends at 0.
    errors = 1 / np.sqrt(information)
    scores = projections * errors
    log_tails = log_normal_cdf(scores)
    log_weights = scores**2 / 2 + log_tails + np.log(errors * odds)
    chances = np.exp(log_weights - log_weights.max(initial=-math.inf))
    chances /= chances.sum()
    is_likely = chances > _MIN_CHANCE
    rows = errors * (scores + np.exp(-(scores**2) / 2 - log_tails) / math.sqrt(2 * math.pi))
    shares = np.minimum(rows / max(present, 1.0), 1.0)
    start, stop = ends[spike], ends[spike + 1]
    value = 0.0 if start <= 0 < stop else float(start)
    return Minority(
        ends, spike, value, shapes[is_likely], chances[is_likely] / chances[is_likely].sum(), shares[is_likely], whole
    )


def _make_shapes(ends: FloatArray, spike: int, is_whole: bool) -> tuple[FloatArray, FloatArray]:
    """Return candidate distributions of the others over the cells, one a row, and their prior odds."""
    shapes = np.concatenate(
        [_make_positive_shapes(sign * ends[::sign], sign * is_whole / 2)[:, ::sign] for sign in (1, -1)]
    )
    # A universal prior of whole numbers for the power (after Rissanen 1983): huge numbers need rows of their own.
    odds = np.tile((1 + np.abs(_SIZE_POWERS)) ** -2.0, 2 * len(_SIZE_SCALES))
    shapes[:, spike] = 0.0
    shape_totals = shapes.sum(axis=1)
    # Most of other shapes is in the spike's cell or outside all cells.
    is_usable = shape_totals > 0.5
    shapes, odds = shapes[is_usable] / shape_totals[is_usable, None], odds[is_usable]
    values = [value for value in (0.0, 1.0) if ends[0] <= value < ends[-1]]
    cells = [int(np.searchsorted(ends, value, side="right")) - 1 for value in values]
    points = [cell for cell in cells if cell != spike]
    odds = np.concatenate([odds / max(odds.sum(), 1e-300), np.full(len(points), _POINT_ODDS[is_whole])])
    return np.concatenate([shapes, np.eye(len(ends) - 1)[points]]), odds


def _make_positive_shapes(ends: FloatArray, shift: float) -> FloatArray:
    """Return distributions of positive numbers of all sizes over the cells."""
    with np.errstate(divide="ignore"):
        powers = np.log2(np.maximum(ends - shift, 0.0))
    sizes, scales = np.meshgrid(_SIZE_POWERS, _SIZE_SCALES)
    scores = (powers - sizes.reshape(-1, 1)) / scales.reshape(-1, 1)
    return np.asarray(np.diff(1 / (1 + np.exp(-np.clip(scores, -500, 500))), axis=1))
