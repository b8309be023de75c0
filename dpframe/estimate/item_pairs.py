"""Pairs of items of a set column, from their supports and their rows: what is unbiased is drawn to what is likely.

The rows' unbiased count of a pair is far noisier than the items' supports s, where those were measured. Pairs of items
that people hold together by chance have about f·s_i·s_j, with one f for all that tells how much sizes of sets vary. So
pairs are taken as p_ij = f·s_i·s_j·(1 + ρ·z_ij), z standard normal, and the rows tell how large ρ is: with little
evidence pairs are near the product, with much they are the rows' own. This is empirical Bayes (Efron and Morris 1975),
ρ averaged over its posterior with a half-normal prior. Errors have the spread of ρ and f in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.evidence.combine import shrunk

PRIOR = 0.5
"""Standard deviations of the priors of ρ, and of f about 1."""

_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Pairs:
    """Shares of pairs, shape (pairs,), and their variances."""

    estimate: FloatArray
    variance: FloatArray


def likely_pairs(
    rows: FloatArray, spread: FloatArray, first: tuple[FloatArray, FloatArray], second: tuple[FloatArray, FloatArray]
) -> Pairs:
    """Return shares of pairs from the rows' unbiased ones and both items' supports, with their variances.

    Parameters
    ----------
    rows, spread
        The rows' shares of sets that hold both items, and their variances.
    first, second
        Supports of either item, and their variances.

    Examples
    --------
    >>> supports = np.full(190, 0.1), np.full(190, 1e-8)
    >>> noisy = 0.01 + 0.05 * np.random.default_rng(0).standard_normal(190)
    >>> found = likely_pairs(noisy, np.full(190, 0.0025), supports, supports)
    >>> bool(np.abs(found.estimate - 0.01).max() < 0.01), bool(np.sqrt(found.variance).max() < 0.01)
    (True, True)
    """
    (s, v), (t, w) = ((np.clip(x, 0.0, 1.0), y) for x, y in (first, second))
    product, limit = s * t, np.minimum(s, t)
    known = np.isfinite(spread)
    precision = np.where(known, 1 / np.maximum(spread, _LEAST), 0.0)
    values = np.where(known, rows, 0.0)
    # One factor for all pairs, near 1 where the rows do not tell.
    weight = float(precision @ product**2) + PRIOR**-2
    factor = max((float(precision @ (values * product)) + PRIOR**-2) / weight, 0.0)
    centre = np.minimum(factor * product, limit)
    moved, left = shrunk(np.where(known, rows - centre, np.nan), spread, centre, PRIOR)
    apart = np.where(known, values - centre, 0.0)
    gain = np.divide(moved, apart, out=np.zeros_like(moved), where=apart != 0)
    estimate = centre + moved
    own = (1 - gain) ** 2 * (product**2 / weight + factor**2 * (t**2 * v + s**2 * w))
    return Pairs(np.clip(estimate, 0.0, limit), left + own)
