"""Errors of a fit to noisy rows: shrinkage to independence, and rows hidden by noise.

Releases without measured tables have only their rows. The rows' unbiased counts bound the distance from independence,
to which a fit shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from dpframe.estimate.evidence.number_law import truncated_spread
from dpframe.estimate.tables.guard import interaction_variance
from dpframe.observe.significance import DETECTION_SE, HINT_SE
from dpframe.spaces.arrays import FloatArray

PAIR_LOG_ODDS_SD, _TRIPLE_LOG_ODDS_SD = 1.0, 0.2
"""Typical standard deviations in real tables of log odds ratios of two columns, and of three given their pairs (tuned;
effect not measured).

With 0.2, cells of three columns differ from the likeliest joint of their true pairs by 0.9 to 1.2 roots of
`interaction_variance`, in samples of 600 to 32,561 rows of twenty tables.
"""

_MAX_LOG_ODDS_SD = 2.0
"""Standard deviation of log odds ratios from which on a cell may hold all rows of one of its values (tuned; effect not
measured)."""

_MIN_SHARED_PART = 0.15
"""Least share of a cell's largest possible rows, by its columns, that noise may hide (tuned; effect below).

Rare values often occur together: workclass and occupation are unknown in the same rows. With only the rows of
independent columns, 0.8 % of the cells of Adult's pairs err by more than five standard errors. With this share 0.4 %
do, and errors of ordinary pairs do not change.
"""

EMPTY_GROUP_SHARE = 1e-9
"""Share of rows below which a group is empty (tolerance)."""


Counted = Callable[[Sequence[int]], tuple[FloatArray, FloatArray] | None]
"""Unbiased counts of the cells of some of a joint's columns, by place, and their variances; None without any."""


def crossed(parts: Sequence[FloatArray]) -> FloatArray:
    """Return the outer product of some vectors."""
    return reduce(np.multiply.outer, parts)


def hidden_mass(
    shares: FloatArray,
    margins: Sequence[FloatArray],
    counted: Counted,
    rows: float,
    odds: float,
    least: float,
) -> FloatArray:
    """Return the shares of rows in cells that noise may hide from a fit.

    A fit and all its replicas may leave a cell with rows empty. Its hidden rows are at most the rows under
    independence, times ``odds``, or the part ``least`` of the smallest margin, if this is more. They are also at most
    the rows that noise hides in the least noisy count of a pair of the columns.
    """

    def hidden_shares(places: Sequence[int]) -> FloatArray:
        estimate = counted(places)
        if estimate is None:
            return np.full([shares.shape[place] for place in places], np.inf)
        return truncated_spread(estimate[0], np.sqrt(estimate[1])) / rows

    max_margins = [np.maximum(margin, hidden_shares([place])) for place, margin in enumerate(margins)]
    min_margins = reduce(np.minimum.outer, max_margins)
    max_shares = np.minimum(np.maximum(odds * crossed(max_margins), least * min_margins), min_margins)
    noise = np.full_like(shares, np.inf)
    for i, j in combinations(range(shares.ndim), 2):
        other_axes = [k for k in range(shares.ndim) if k not in (i, j)]
        noise = np.minimum(noise, np.expand_dims(hidden_shares([i, j]), other_axes))
    bounds = np.minimum(max_shares, noise)
    return np.where(np.isfinite(bounds), np.maximum(bounds - shares, 0.0), 0.0)


def of_noisy_rows(shares: FloatArray, counted: Counted, rows: float) -> FloatArray:
    """Return the variance of cells about a fit to noisy rows, which shrinks weak dependence to independence.

    The variance has three parts:

    - Shrinkage, 1/(1/v + 1/i): v is the variance of the unbiased counts, and i the variance of an interaction with
      log odds ratios of the standard deviation τ. The counts' distance from independence bounds τ from above. Real
      tables have a typical τ, which applies if it is smaller, unless the counts surely show a larger one.
    - Rows below the noise. The more surely columns depend on each other, the more rows a cell may hide, up to all rows
      of a value.
    - The distance between fit and count beyond the noise.
    """
    places = range(shares.ndim)
    estimate = counted(places) if shares.ndim > 1 else None
    if estimate is None:
        return np.zeros(shares.shape)
    counts, noise = estimate
    other_axes = [tuple(axis for axis in places if axis != place) for place in places]
    # Unbiased margins may be negative; at least one row keeps expectations positive.
    margins = [np.maximum(counts.sum(axis=axes) / rows, 1 / rows) for axes in other_axes]
    likely_sd, probable_sd, certain_sd = (
        log_odds_sd(counts, rows * crossed(margins), noise, surprise) for surprise in (HINT_SE, -HINT_SE / 2, -HINT_SE)
    )
    interaction_variances = interaction_variance(shares * rows, 2, min(likely_sd, max(certain_sd, PAIR_LOG_ODDS_SD)))
    shrinkage_variances = noise * interaction_variances / (noise + interaction_variances) / rows**2
    margins, odds = [shares.sum(axis=axes) for axes in other_axes], math.exp(min(certain_sd, _MAX_LOG_ODDS_SD))
    residuals = counts / rows - shares
    excess = np.maximum(np.abs(residuals) - DETECTION_SE * np.sqrt(noise) / rows, 0.0)
    max_excess = np.where(residuals > 0, np.maximum(reduce(np.minimum.outer, margins) - shares, 0.0), shares)
    # If a column is a function of another, one cell may have all rows of a value.
    dependence = float(np.clip((probable_sd - PAIR_LOG_ODDS_SD) / _MAX_LOG_ODDS_SD, 0.0, 1.0))
    hidden_shares = hidden_mass(
        shares, margins, counted, rows, odds, _MIN_SHARED_PART + (1 - _MIN_SHARED_PART) * dependence
    )
    return np.asarray(shrinkage_variances + hidden_shares**2 + np.minimum(excess, max_excess) ** 2)


def drawn_of_many(sides: FloatArray, noise: float, counted: Counted) -> float:
    """Return the error of a fit's count of three or more conditions from its shrinkage to independence.

    Each pair of conditions adds its variance, times the count's share of the rows that meet both. The interaction of
    all conditions adds at most the error ``noise`` of the unbiased count. Rows below the noise add as in `hidden_mass`.
    ``sides`` are the counts by condition, met first.
    """
    rows_met, places = float(sides.flat[0]), range(sides.ndim)
    variance = 1 / (1 / max(float(interaction_variance(sides, 3, _TRIPLE_LOG_ODDS_SD).flat[0]), 1e-300) + 1 / noise**2)
    for pair in combinations(places, 2):
        pair_sides = sides.sum(axis=tuple(place for place in places if place not in pair))
        part = min(rows_met / max(float(pair_sides.flat[0]), EMPTY_GROUP_SHARE), 1.0)
        variance += part**2 * float(interaction_variance(pair_sides, 2, PAIR_LOG_ODDS_SD).flat[0])
    rows = max(float(sides.sum()), 1.0)
    margins = [sides.sum(axis=tuple(axis for axis in places if axis != place)) / rows for place in places]
    hidden_shares = hidden_mass(sides / rows, margins, counted, rows, math.exp(PAIR_LOG_ODDS_SD), _MIN_SHARED_PART)
    return math.hypot(math.sqrt(max(variance, 0.0)), float(hidden_shares.flat[0]) * rows)


def log_odds_sd(counts: FloatArray, expected: FloatArray, noise: FloatArray, surprise: float) -> float:
    """Return an upper bound of the standard deviation of log odds ratios, from counts and their expectations.

    ``expected``: expected counts under independence. ``noise``: variances of the counts. ``surprise``: standard
    deviations of the statistic under pure noise that the bound adds; below 0 the result is a lower bound.
    """
    free = counts.size - 1 - sum(cells - 1 for cells in counts.shape)
    chance = interaction_variance(expected, 2, 0.0)
    excess = float(((counts - expected) ** 2 / noise).sum()) - free + surprise * math.sqrt(2 * free)
    return math.sqrt(max(excess, 0.0) / max(float((chance**2 / noise).sum()), 1e-300))


def contingency_table(shares: FloatArray, parts: Sequence[FloatArray]) -> FloatArray:
    """Return shares by condition, met first; ``parts``: part of each column's cells that meets its condition."""
    for part in parts:
        shares = np.moveaxis(np.tensordot(np.stack([part, 1 - part]), shares, axes=(1, 0)), 0, -1)
    return np.asarray(shares)
