"""Numbers in measured tables: a fine one-way, cut into few bins for pairs, and a sum."""

from __future__ import annotations

import numpy as np

from dpframe.arrays import FloatArray, IntArray
from dpframe.estimate.likelihood import project_to_simplex

MOST_BINS = 12
"""Bins of a number in pairs."""

STEEPEST = 200.0
"""Exponent at which a tilt ends, per range of the values: beyond, all weight lies on one value."""


def cut_at_quantiles(counts: FloatArray, most: int = MOST_BINS) -> IntArray:
    """Return the bin of every cell of a number's noisy one-way: consecutive cells of about equal shares.

    >>> cut_at_quantiles(np.array([1.0, 1.0, 6.0, 1.0, 1.0, -0.4, 2.0]), 3)
    array([0, 0, 1, 2, 2, 2, 2])
    """
    shares = project_to_simplex(counts / max(float(counts.sum()), 1.0))
    middles = np.cumsum(shares) - shares / 2
    bins = np.minimum((middles * most).astype(np.int64), most - 1)
    return np.cumsum(np.diff(bins, prepend=bins[0]) > 0)


def tilt_to_mean(shares: FloatArray, values: FloatArray, mean: float) -> FloatArray:
    """Return the shares ∝ p·exp(θ·v) with a given mean: of all that have it the nearest in divergence (Csiszár 1975).

    A mean outside the values that have a share is taken to the end that is nearer.

    >>> tilted = tilt_to_mean(np.array([0.5, 0.3, 0.2]), np.array([0.0, 1.0, 2.0]), 1.0)
    >>> round(float(tilted @ np.array([0.0, 1.0, 2.0])), 9)
    1.0
    """
    from scipy.optimize import brentq

    seen = shares > 0
    low, high = values[seen].min(), values[seen].max()
    if high <= low:
        return shares
    place = np.where(seen, (values - low) / (high - low), 0.0)
    wanted = (mean - low) / (high - low)

    def tilted(steepness: float) -> FloatArray:
        exponents = steepness * (place - (steepness > 0))
        raised = np.where(seen, shares * np.exp(exponents), 0.0)
        return np.asarray(raised / raised.sum())

    ends = [float(tilted(end) @ place) for end in (-STEEPEST, STEEPEST)]
    if not ends[0] < wanted < ends[1]:
        return tilted(-STEEPEST if wanted <= ends[0] else STEEPEST)
    return tilted(float(brentq(lambda t: float(tilted(t) @ place) - wanted, -STEEPEST, STEEPEST, xtol=1e-12)))
