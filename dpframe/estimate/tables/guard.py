"""Rows against a joint that came from pairs: pairs are blind to what only three columns together show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import gammaln, xlogy

from dpframe.arrays import FloatArray
from dpframe.estimate.joint_domain import JointDomain
from dpframe.estimate.likelihood import Channels, expectation_maximization, noise_share
from dpframe.estimate.tables.joints import fit_to_margins

SPREADS = 4.0
"""Standard deviations by which the rows' divergence must exceed its goal."""

MANY = 50.0
"""Expected rows of a cell from which on its deviance is that of χ²."""

NEAR = 1.05
"""Part of the goal down to which rows are fitted."""

SWEEPS = 15
"""Sweeps back to the pairs after the rows were fitted."""


@dataclass(frozen=True, eq=False)
class Guarded:
    """Shares of a joint after the rows were heard.

    ``hidden`` says that rows showed structure which pairs do not hold; ``divergence`` is that of the rows' counts
    from what came in, ``goal`` what noise alone would leave.
    """

    shares: FloatArray
    hidden: bool
    divergence: float
    goal: float


def guard_joint(
    shares: FloatArray, counts: FloatArray, channels: Channels, pairs: Mapping[tuple[int, ...], FloatArray]
) -> Guarded:
    """Correct a joint where rows contradict it.

    Parameters
    ----------
    shares
        The joint that pairs gave.
    counts
        Released rows by class, one dimension per column.
    channels
        P(class | cell) of the joint.
    pairs
        Shares of the pairs of axes, to which the corrected joint returns.

    Examples
    --------
    >>> parity = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]) / 4
    >>> flat = np.full((2, 2, 2), 1 / 8)
    >>> kept = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> guarded = guard_joint(flat, JointDomain.of([kept] * 3).spread(parity) * 10_000, [kept] * 3, {})
    >>> guarded.hidden, bool(np.abs(guarded.shares - parity).sum() < 0.05)
    (True, True)
    """
    start = np.maximum(shares, 1e-12)
    start = start / start.sum()
    n, law = max(float(counts.sum()), 1.0), JointDomain.of(channels).spread(start)
    mean, variance = _deviances(n * law)
    noise = noise_share(channels, start) / (2 * n)
    # One degree less than cells, for the total is known.
    goal = noise * mean * (counts.size - 1) / counts.size
    found = _divergence(counts, law)
    if found <= goal + SPREADS * noise * math.sqrt(variance):
        return Guarded(shares, False, found, goal)
    fitted = expectation_maximization(counts, channels, start=start, divergence=NEAR * goal)
    return Guarded(fit_to_margins(fitted, pairs, SWEEPS), True, found, goal)


@cache
def _poisson_deviance() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log λ, and mean and variance of 2(Y log(Y/λ) − Y + λ) for Y ~ Poisson(λ).

    They are near 1 and 2, those of χ², from a few rows a cell on; below they are not, and most cells of a joint of
    three columns hold few.
    """
    logs = np.linspace(math.log(1e-4), math.log(MANY), 200)
    rates, values = np.exp(logs)[:, None], np.arange(0.0, 4 * MANY)
    law = np.exp(values * np.log(rates) - rates - gammaln(values + 1))
    deviance = 2 * (xlogy(values, values / rates) - values + rates)
    mean = (law * deviance).sum(axis=1)
    return logs, mean, (law * deviance**2).sum(axis=1) - mean**2


def _deviances(expected: FloatArray) -> tuple[float, float]:
    """Return mean and variance of the deviance of counts with these expectations, summed over cells."""
    logs, mean, variance = _poisson_deviance()
    place = np.log(np.clip(expected, 1e-4, None)).ravel()
    return float(np.interp(place, logs, mean).sum()), float(np.interp(place, logs, variance).sum())


def _divergence(counts: FloatArray, expected: FloatArray) -> float:
    """Return the Kullback–Leibler divergence of counts' shares from expected ones, in nats."""
    observed = counts / max(float(counts.sum()), 1.0)
    seen = observed > 0
    return float(np.sum(observed[seen] * np.log(observed[seen] / np.maximum(expected[seen], 1e-300))))
