"""Tails and moments of laws that observations follow."""

from __future__ import annotations

import math

import numpy as np

from dpframe.accounting.gaussian_dp import mills_ratio
from dpframe.spaces.arrays import FloatArray


def truncated_normal_moments(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the variance of a standard normal law that is truncated below −z.

    >>> mean, variance = truncated_normal_moments(np.array([0.0, 30.0]))
    >>> mean.round(3).tolist(), variance.round(3).tolist()
    ([0.798, 0.0], [0.363, 1.0])
    """
    z = np.clip(z, -30.0, 30.0)
    mean = 1 / mills_ratio(-z)
    return mean, np.clip(1 - z * mean - mean**2, 0.0, 1.0)


def chi_square_tail(degrees: int, value: float) -> float:
    """Return P(χ² ≥ value) with so many degrees of freedom, by its finite sum: an import of SciPy takes longer."""
    half, odd = value / 2, degrees % 2
    if half <= 0 or half == math.inf:
        return float(half <= 0)
    first = -half + (0.5 * math.log(half / (math.pi / 4)) if odd else 0.0)
    logs = np.cumsum(np.log(half / np.arange(1 + odd / 2, degrees / 2)))
    terms = np.exp(first + np.append(0.0, logs))[: degrees // 2]
    return min(1.0, float(terms.sum()) + (math.erfc(math.sqrt(half)) if odd else 0.0))
