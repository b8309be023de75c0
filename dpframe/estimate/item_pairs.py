"""Shares of sets with both items of a pair: from measured pairs, rows, supports and set sizes.

The unbiased count of a pair from rows is far noisier than the measured supports s of its items. Independent items have
the share f·s_i·s_j, with one factor f for all pairs, which is large if set sizes vary much. `SizeTable.chance` replaces
f·s_i·s_j if sizes were measured. The model is p_ij = f·s_i·s_j + ρ·v_ij·z_ij, with z standard normal and v about
f·s_i·s_j. All pairs together determine ρ. A share of pairs, `FAR`, deviates by 1 to 16 times v, as far as both supports
allow. Noisy pairs shrink to the product, precise pairs keep their observed share.

This is empirical Bayes (Efron and Morris 1975), with ρ averaged over its posterior under a half-normal prior. Its
errors are right on average over pairs, and too small for the few pairs farthest from independence. So each interval
is widened to hold for its own pair: it reaches beyond the observed share, or to all shares that both supports allow if
the pair was not observed.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from dpframe.estimate.evidence.combine import shrunk
from dpframe.estimate.sets import PRIOR, ItemTable
from dpframe.observe.quantiles import NORMAL_QUANTILE, ONE_SIDED_QUANTILE
from dpframe.plan.threads import remember
from dpframe.spaces.arrays import FloatArray

FAR = 0.2
"""Prior share of pairs that deviate from independence by about their expected share, as bread and butter (tuned; half
and twice it change pairs of made baskets and of a grocer's by up to 0.4 standard errors).

With half of it nine tenths of the 95 % intervals of a grocer's frequent pairs cover the true share.
"""

DEVIATION_POWER = 0.75
"""Power of the expected share to which deviations are proportional: rare pairs deviate by larger factors (tuned;
half and twice it change pairs of made baskets and of a grocer's by up to 0.8 and 0.5 standard errors)."""

OBSERVED_SHARE_HALF_WIDTH_SE = 1.41
"""Half-width around the observed share that an interval must cover, in standard errors, for 92 % coverage of each pair
(tuned; half and twice it change widths of pairs of made baskets by up to −50 and 100 %).

On nine kinds of baskets 95 % or more of the intervals cover, in every class of pairs by distance from independence.
Without it 79 and 74 % do for measured pairs more than five times as frequent as independent ones, and 60 % for others.
"""

_MIN_PAIR_VARIANCE = 1e-12
"""Smallest variance, and smallest divisor (tolerance)."""

_MAX_CACHED_FITS = 8
"""Number of fits in the cache (limit of memory)."""

_fits_by_digest: dict[bytes, tuple[FloatArray, FloatArray]] = {}


def pool_pairs(
    table: ItemTable,
    places: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]],
    items: int,
    rows: tuple[FloatArray, FloatArray],
    n: float,
) -> tuple[FloatArray, FloatArray]:
    """Return shares and variances of pairs: the measured table's and the rows', weighted by inverse variance.

    ``places`` are the two items of each pair, of all ``items``. ``rows`` are shares by rows and their variances, and
    ``n`` is the number of rows.
    """
    low, high = np.minimum(*places), np.maximum(*places)
    at = low * items - low * (low + 1) // 2 + high - low - 1
    precision = 1 / np.maximum(table.variances[at] / n**2, _MIN_PAIR_VARIANCE)
    row_precision = np.where(np.isfinite(rows[1]), 1 / np.maximum(rows[1], _MIN_PAIR_VARIANCE), 0.0)
    row_shares = np.where(row_precision > 0, rows[0], 0.0)
    variances = 1 / (row_precision + precision)
    return variances * (row_shares * row_precision + table.counts[at] / n * precision), variances


def likely_pairs(
    seen: FloatArray,
    spread: FloatArray,
    first: tuple[FloatArray, FloatArray],
    second: tuple[FloatArray, FloatArray],
    chance: FloatArray,
    alike: float = PRIOR,
) -> tuple[FloatArray, FloatArray]:
    """Return shares of pairs, shrunk from unbiased shares to independence, with their variances.

    ``seen`` and ``spread``: unbiased shares of sets with both items, and their variances; ``first`` and ``second``:
    supports of either item, and their variances; ``chance``: expected shares; ``alike``: prior standard deviation of f
    about 1.
    """
    # Several statistics of one column need the same fit: it is cached by the content of its inputs.
    digest = hashlib.sha256(repr((seen.shape, alike)).encode())
    for values in (seen, spread, *first, *second, chance):
        digest.update(values.tobytes())
    key = digest.digest()
    cached_fit = _fits_by_digest.get(key)
    if cached_fit is not None:
        return remember(_fits_by_digest, key, cached_fit, _MAX_CACHED_FITS)
    (s, v), (t, w) = ((np.clip(x, 0.0, 1.0), y) for x, y in (first, second))
    is_known = np.isfinite(spread)
    precision = np.where(is_known, 1 / np.maximum(spread, _MIN_PAIR_VARIANCE), 0.0)
    values = np.where(is_known, seen, 0.0)

    def max_shares(errors: float) -> FloatArray:
        return np.minimum(s + errors * np.sqrt(v), t + errors * np.sqrt(w))

    # One factor for all pairs; its prior mean is 1.
    factor_precision = 1 / max(alike**2, _MIN_PAIR_VARIANCE)
    weight = float(precision @ chance**2) + factor_precision
    factor = max((float(precision @ (values * chance)) + factor_precision) / weight, 0.0)
    expected = np.minimum(factor * chance, max_shares(1))
    support_variance = factor**2 * (t**2 * v + s**2 * w + v * w)
    # Supports below their noise may be as large as their errors: so may the share of their pair.
    level = np.sqrt(expected**2 + support_variance)
    typical_level = float(level @ level) / max(float(level.sum()), _MIN_PAIR_VARIANCE)
    scales = level**DEVIATION_POWER * typical_level ** (1 - DEVIATION_POWER)
    shifts, shift_variances = shrunk(
        np.where(is_known, seen - expected, np.nan),
        spread,
        scales,
        PRIOR,
        FAR,
        np.maximum(max_shares(1) - expected, 0.0) / 2,
    )
    residuals = np.where(is_known, values - expected, 0.0)
    gain = np.divide(shifts, residuals, out=np.zeros_like(shifts), where=residuals != 0)
    estimate = np.clip(expected + shifts, 0.0, max_shares(1))
    variance = shift_variances + (1 - gain) ** 2 * (chance**2 / weight + support_variance)
    upper_limits = np.maximum(max_shares(ONE_SIDED_QUANTILE), estimate)
    # An observation noisier than the largest possible share carries no information.
    half_widths = np.where(
        is_known & (spread < upper_limits**2), OBSERVED_SHARE_HALF_WIDTH_SE * np.sqrt(spread), np.inf
    )
    below = estimate - np.clip(values - half_widths, 0.0, estimate)
    above = np.clip(values + half_widths, estimate, upper_limits) - estimate
    shares_and_variances = estimate, np.maximum(variance, (np.maximum(below, above) / NORMAL_QUANTILE) ** 2)
    return remember(_fits_by_digest, key, shares_and_variances, _MAX_CACHED_FITS)
