"""Estimates under constraints: not negative, isotonic, shrunk to each other; and ratios with an uncertain base."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpframe.observe.quantiles import NORMAL_QUANTILE
from dpframe.spaces.arrays import FloatArray

RHO = np.linspace(0.0, 8.0, 161)
"""Grid of ρ for its posterior, in standard deviations of the prior (tolerance)."""

_FAR_SCALE_FACTORS = 2.0 ** np.arange(5)
"""Factors of the scale of far truths, each half as likely as the one before (tuned; half and twice it change widths on
a census by −11 and 0 %)."""

_MIN_NOISE_VARIANCE = 1e-12
"""Least variance of noise (tolerance)."""


def isotonic(values: FloatArray) -> FloatArray:
    """Return the nearest numbers that never fall: falling neighbours are pooled to their mean."""
    levels: list[tuple[float, int]] = []
    for value in values.tolist():
        total, count = value, 1
        while levels and levels[-1][0] * count >= total * levels[-1][1]:
            block_total, block_count = levels.pop()
            total, count = total + block_total, count + block_count
        levels.append((total, count))
    return np.array([total / count for total, count in levels for _ in range(count)], dtype=np.float64)


def project(values: FloatArray, variances: FloatArray | float = 1.0, total: float = 1.0) -> FloatArray:
    """Project numbers to the nearest non-negative ones with a given sum, weighted by inverse variances.

    The solution subtracts one threshold per unit of variance (Held, Wolfe and Crowder 1974).
    """
    if total <= 0 or not values.size:
        return np.zeros_like(values)
    flat, weights = values.ravel(), np.maximum(np.broadcast_to(variances, values.shape), 1e-12).ravel()
    # x = (y − λv)₊: λ depends on the positive entries, which are tried in order of y/v.
    order = np.argsort(-flat / weights)
    y, v = np.cumsum(flat[order]), np.cumsum(weights[order])
    steps = (y - total) / v
    last = int(np.flatnonzero(flat[order] > steps * weights[order])[-1])
    return np.asarray(np.maximum(flat - steps[last] * weights, 0.0).reshape(values.shape))


def project_each(rows: FloatArray) -> FloatArray:
    """Project each row to the simplex of shares, as `project` does one.

    >>> project_each(np.array([[0.5, 0.7, -0.4], [0.2, 0.3, 0.5]])).round(2).tolist()
    [[0.4, 0.6, 0.0], [0.2, 0.3, 0.5]]
    """
    falling = -np.sort(-rows, axis=1)
    places = np.arange(1, rows.shape[1] + 1)
    thresholds = (np.cumsum(falling, axis=1) - 1.0) / places
    last = np.where(falling > thresholds, places, 0).max(axis=1, keepdims=True) - 1
    return np.asarray(np.maximum(rows - np.take_along_axis(thresholds, last, axis=1), 0.0))


def fieller_factor(rows: npt.ArrayLike, variance: npt.ArrayLike) -> FloatArray:
    """Return Fieller's factor of a ratio's standard error, for an uncertain base.

    Fieller's interval (1954) of a ratio is 1/(1 − g) times the interval of the delta method. Here g is the squared
    quotient of the base's half-width and the base, at most three quarters, so that the factor is at most four.
    """
    base = np.maximum(np.asarray(rows, dtype=np.float64), 1.0)
    return np.asarray(1 / (1 - np.minimum(NORMAL_QUANTILE**2 * np.asarray(variance) / base**2, 0.75)))


def shrunk(
    apart: FloatArray,
    variances: FloatArray,
    scales: FloatArray,
    prior: float,
    far: float = 0.0,
    most: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Shrink distances from a prior guess by empirical Bayes; return posterior means and variances.

    The true distances are ρ·scale·z, with z standard normal, or scale·z with the probability ``far``. All distances
    together determine ρ, which is averaged over its posterior under a half-normal prior (Efron and Morris 1975). So
    distances with little evidence shrink to 0, and distances with much evidence stay.

    An entry of ``apart`` or ``variances`` that is not finite carries no information. ``prior`` is the standard
    deviation of ρ's prior. With ``most``, half of the far truths have the scale, a quarter twice the scale, and so on
    up to 16 scales, or to ``most``. By default all have the scale.
    """
    is_finite = np.isfinite(apart) & np.isfinite(variances)
    noise = np.where(is_finite, np.maximum(variances, _MIN_NOISE_VARIANCE), 1.0)
    distances = np.where(is_finite, apart, 0.0)

    def law(prior_variances: FloatArray) -> FloatArray:
        total = prior_variances + noise
        return np.asarray(np.where(is_finite, -0.5 * (np.log(total) + distances**2 / total), 0.0))

    near_variances = (prior * RHO[:, None] * scales) ** 2
    max_scales = scales if most is None else np.maximum(most, scales)
    far_variances = (
        np.array(
            [np.minimum(factor * scales, max_scales) for factor in _FAR_SCALE_FACTORS[: 1 if most is None else None]]
        )
        ** 2
    )
    share = 1 / _FAR_SCALE_FACTORS[: len(far_variances), None]
    with np.errstate(divide="ignore"):
        near_scores = law(near_variances) + np.log(1 - far)
        far_scores = law(far_variances) + np.log(far * share / share.sum())
    far_score = np.logaddexp.reduce(far_scores, axis=0)
    score = np.logaddexp(near_scores, far_score)
    posterior = score.sum(axis=1) - RHO**2 / 2
    posterior = np.exp(posterior - posterior.max())
    posterior = (posterior / posterior.sum())[:, None]
    # The scale of far truths does not depend on ρ, so their likelihood is computed once.
    far_weights = (
        np.exp(far_scores - far_score) * (posterior * np.exp(far_score - score)).sum(axis=0)
        if far > 0
        else np.zeros_like(far_variances)
    )
    weight = np.concatenate([posterior * np.exp(near_scores - score), far_weights])
    prior_variances = np.concatenate([near_variances, far_variances])
    gain = np.where(is_finite, prior_variances / (prior_variances + noise), 0.0)
    mean = (weight * gain).sum(axis=0)
    remaining_variances = (weight * prior_variances * (1 - gain)).sum(axis=0) + (weight * (gain - mean) ** 2).sum(
        axis=0
    ) * distances**2
    return mean * distances, remaining_variances
