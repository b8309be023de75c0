"""Estimates taken to where truths may be: not negative, rising, near each other; and ratios of an uncertain base."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpframe.observe.quantiles import NORMAL_QUANTILE
from dpframe.spaces.arrays import FloatArray

RHO = np.linspace(0.0, 8.0, 161)
"""Values of ρ that are averaged over, in standard deviations of its prior (tolerance)."""

_FARTHER = 2.0 ** np.arange(5)
"""Scales that truths far off may differ by, each half as likely as the one before (tuned; half and twice it change
widths on a census by −11 and 0 %)."""

_LEAST = 1e-12
"""Least variance of noise (tolerance)."""


def pooled(values: FloatArray) -> FloatArray:
    """Return the nearest numbers that never fall: those that fall are pooled, and take their mean."""
    levels: list[tuple[float, int]] = []
    for value in values.tolist():
        total, count = value, 1
        while levels and levels[-1][0] * count >= total * levels[-1][1]:
            more, many = levels.pop()
            total, count = total + more, count + many
        levels.append((total, count))
    return np.array([total / count for total, count in levels for _ in range(count)], dtype=np.float64)


def project(values: FloatArray, variances: FloatArray | float = 1.0, total: float = 1.0) -> FloatArray:
    """Return the nearest numbers that are not negative and have a sum, distances weighted by inverse variances.

    One threshold per unit of variance leaves the sum right (Held, Wolfe and Crowder 1974).
    """
    if total <= 0 or not values.size:
        return np.zeros_like(values)
    flat, weights = values.ravel(), np.maximum(np.broadcast_to(variances, values.shape), 1e-12).ravel()
    # x = (y − λv)₊: λ from the entries that stay, in the order in which they leave.
    order = np.argsort(-flat / weights)
    y, v = np.cumsum(flat[order]), np.cumsum(weights[order])
    steps = (y - total) / v
    last = int(np.flatnonzero(flat[order] > steps * weights[order])[-1])
    return np.asarray(np.maximum(flat - steps[last] * weights, 0.0).reshape(values.shape))


def few_rows(rows: npt.ArrayLike, variance: npt.ArrayLike) -> FloatArray:
    """Return the factor of a ratio's standard error by which its interval is wider as its base is uncertain.

    Fieller's interval (1954) of a ratio is 1/(1 − g) of that of the delta method, with g the squared quotient of the
    base's half-width and the base; from three quarters on the base may be nothing, and four means all.
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
    """Return distances from what is likely, less what is noise of them, and their variances.

    The truths are ρ·scale·z, z standard normal, or with the probability ``far`` scale·z. How large ρ is shows in all
    of the distances together: it is averaged over its posterior, its prior half normal (empirical Bayes, Efron and
    Morris 1975). So where there is little evidence they are near 0, and near the distances where there is much.

    Nothing is known where ``apart`` or ``variances`` is not finite; ``prior`` is the standard deviation of ρ's prior.
    With ``most`` half of the truths that are far differ by the scale, a quarter by twice as much, and so on to 16
    scales, or to ``most``; by default all do by the scale.
    """
    known = np.isfinite(apart) & np.isfinite(variances)
    noise = np.where(known, np.maximum(variances, _LEAST), 1.0)
    seen = np.where(known, apart, 0.0)

    def law(spread: FloatArray) -> FloatArray:
        total = spread + noise
        return np.asarray(np.where(known, -0.5 * (np.log(total) + seen**2 / total), 0.0))

    near = (prior * RHO[:, None] * scales) ** 2
    reach = scales if most is None else np.maximum(most, scales)
    wide = np.array([np.minimum(factor * scales, reach) for factor in _FARTHER[: 1 if most is None else None]]) ** 2
    share = 1 / _FARTHER[: len(wide), None]
    with np.errstate(divide="ignore"):
        close, afar = law(near) + np.log(1 - far), law(wide) + np.log(far * share / share.sum())
    outer = np.logaddexp.reduce(afar, axis=0)
    score = np.logaddexp(close, outer)
    posterior = score.sum(axis=1) - RHO**2 / 2
    posterior = np.exp(posterior - posterior.max())
    posterior = (posterior / posterior.sum())[:, None]
    # How far a far truth is does not depend on ρ.
    beyond = np.exp(afar - outer) * (posterior * np.exp(outer - score)).sum(axis=0) if far > 0 else np.zeros_like(wide)
    weight = np.concatenate([posterior * np.exp(close - score), beyond])
    spread = np.concatenate([near, wide])
    gain = np.where(known, spread / (spread + noise), 0.0)
    mean = (weight * gain).sum(axis=0)
    left = (weight * spread * (1 - gain)).sum(axis=0) + (weight * (gain - mean) ** 2).sum(axis=0) * seen**2
    return mean * seen, left
