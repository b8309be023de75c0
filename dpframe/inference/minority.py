"""Distribution of the rows without a column's commonest value, if no single noisy count shows these rows.

A fee is 0 for nine of ten rows; the others lie within a few doublings of each other, so that each cell is below its
noise. Their number follows from n and the count of the commonest value. So shapes are compared by the likelihood of
all counts together: sizes around any power of two, nearer or farther apart, of either sign, and the single values 0 and
1. Bounds contain nearly all rows that these shapes expect, and are wide if the counts are uninformative.

Everything here is post-processing: it sees noisy counts and public facts, never the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpframe.inference.cells import largest_number
from dpframe.spaces.arrays import FloatArray

_SIZE_POWERS, _SIZE_SCALES = (-9.0, 30.0, 0.5), (0.25, 0.5, 0.8)
"""Powers of two of the typical size, from, to and by; and scales of the logistic distributions of the power
(tuned; effect not measured)."""

_USUAL_POWERS, _UNUSUAL_ODDS = {True: (-0.5, 20.0), False: (-8.0, 20.0)}, 0.15
"""Powers of two of usual sizes, of whole numbers (True) and of floats; and the odds of others (tuned; effect not
measured)."""

_NEGATIVE_ODDS, _POINT_ODDS = 0.05, {True: 11.0, False: 0.3}
"""Odds of negative numbers; and odds of the values 0 and 1, of whole numbers and of floats (tuned; effect not
measured)."""

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

    def beyond(self, low: float, high: float) -> float:
        """Return the expected share of the others beyond some bounds."""
        middles = self.ends[:-1] / 2 + self.ends[1:] / 2 - self.whole / 2  # of whole numbers the last one is inside
        return 1.0 - float(self._expected_shares @ ((middles >= low) & (middles <= high)))

    def spread(self, low: float, high: float) -> float:
        """Return the geometric mean of the column's probable standard deviations, in widths of the bounds."""
        width = high / 2 - low / 2  # halved, as the difference may be beyond all floats
        offsets = (np.clip(self.ends, low, high) / 2 - self.value / 2) / width
        offsets = offsets[:-1] / 2 + offsets[1:] / 2
        offsets[self.spike] = 0.0
        means, squares = self.shapes @ offsets * self.shares, self.shapes @ offsets**2 * self.shares
        return float(np.exp(self.chances @ np.log(np.sqrt(np.maximum(squares - means**2, 1e-300)))))


def fit_minority(
    ends: FloatArray, counts: FloatArray, covariance: FloatArray, present: float, unsure: float, whole: bool
) -> Minority:
    """Return the posterior distribution of the rows that do not have the commonest value.

    ``ends``, ``counts``, ``covariance``: cells, whose ends may be infinite, and the noisy counts of their rows.
    ``present``, ``unsure``: rows that are not null, and the variance of this number. ``whole``: whether the values are
    whole numbers.
    """
    spike = int(np.argmax(counts))
    shapes, odds = _make_shapes(ends, spike, whole)
    residuals, variances = counts.copy(), covariance.copy()
    residuals[spike] -= present
    variances[spike, spike] += unsure
    # A row that has another value is one fewer of the commonest.
    effects = shapes.copy()
    effects[:, spike] = -1.0
    # Generalised least squares of one effect for each shape: one solve for all of them.
    weighted_columns = np.linalg.solve(variances, np.column_stack([residuals, effects.T]))
    projections = np.maximum(effects @ weighted_columns[:, 0], 0.0)
    information = np.einsum("hc,ch->h", effects, weighted_columns[:, 1:])
    log_weights = projections**2 / (2 * information) + np.log(odds)
    chances = np.exp(log_weights - log_weights.max(initial=0.0))
    chances /= chances.sum()
    is_likely = chances > _MIN_CHANCE
    shares = np.minimum(projections / information / max(present, 1.0), 1.0)
    start, stop = ends[spike], ends[spike + 1]
    value = 0.0 if start <= 0 < stop else float(start)
    return Minority(
        ends, spike, value, shapes[is_likely], chances[is_likely] / chances[is_likely].sum(), shares[is_likely], whole
    )


def _make_shapes(ends: FloatArray, spike: int, is_whole: bool) -> tuple[FloatArray, FloatArray]:
    """Return candidate distributions of the others over the cells, one a row, and their prior odds."""
    shapes_by_sign, odds_by_sign = [], []
    for sign, sign_odds in ((1.0, 1.0), (-1.0, _NEGATIVE_ODDS)):
        parts, weights = _make_positive_shapes(sign * ends[:: int(sign)], sign * is_whole / 2, is_whole)
        shapes_by_sign.append(parts[:, :: int(sign)])
        odds_by_sign.append(weights * sign_odds)
    shapes, weights = np.concatenate(shapes_by_sign), np.concatenate(odds_by_sign)
    shapes[:, spike] = 0.0
    shape_totals = shapes.sum(axis=1)
    # Most of such a shape is in the spike's cell or outside all cells.
    is_usable = shape_totals > 0.5
    shapes, weights = (
        shapes[is_usable] / shape_totals[is_usable, None],
        weights[is_usable] / max(weights[is_usable].sum(), 1e-300),
    )
    values = [value for value in (0.0, 1.0) if ends[0] <= value < ends[-1]]
    cells = [int(np.searchsorted(ends, value, side="right")) - 1 for value in values]
    points = [cell for cell in cells if cell != spike]
    point_shapes = np.eye(len(ends) - 1)[points]
    return np.concatenate([shapes, point_shapes]), np.concatenate(
        [weights, np.full(len(points), _POINT_ODDS[is_whole])]
    )


def _make_positive_shapes(ends: FloatArray, shift: float, is_whole: bool) -> tuple[FloatArray, FloatArray]:
    """Return distributions of positive numbers of all sizes over the cells, and their prior odds."""
    with np.errstate(divide="ignore"):
        powers = np.log2(np.maximum(ends - shift, 0.0))
    sizes = np.arange(*_SIZE_POWERS)
    scales = np.repeat(_SIZE_SCALES, len(sizes))[:, None]
    scores = (powers - np.tile(sizes, len(_SIZE_SCALES))[:, None]) / scales
    min_power, max_power = _USUAL_POWERS[is_whole]
    is_usual = np.tile((sizes >= min_power) & (sizes <= max_power), len(_SIZE_SCALES))
    return np.diff(1 / (1 + np.exp(-np.clip(scores, -500, 500))), axis=1), np.where(is_usual, 1.0, _UNUSUAL_ODDS)
