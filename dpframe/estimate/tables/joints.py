"""Joints of three columns and more: between the mixture's own and the one that the pairs alone would have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpframe.arrays import FloatArray

SWEEPS = 60
"""Sweeps of iterative proportional fitting over all pairs."""


def fit_to_margins(
    start: FloatArray, margins: Mapping[tuple[int, ...], FloatArray], sweeps: int = SWEEPS
) -> FloatArray:
    """Scale a joint to margins of some of its axes, in turn (Deming and Stephan 1940).

    Parameters
    ----------
    start
        Shares to begin with.
    margins
        Shares by the axes that they are of, in rising order.

    >>> fit_to_margins(np.full((2, 2), 0.25), {(0,): np.array([0.9, 0.1])})
    array([[0.45, 0.45],
           [0.05, 0.05]])
    """
    joint = start
    for _ in range(sweeps):
        for axes, margin in margins.items():
            others = tuple(i for i in range(joint.ndim) if i not in axes)
            have = joint.sum(axis=others, keepdims=True)
            joint = joint * np.divide(np.expand_dims(margin, others), have, out=np.zeros_like(have), where=have > 0)
    return joint


def geometric_joint(own: FloatArray, pairs: Mapping[tuple[int, ...], FloatArray], weight: float = 0.5) -> FloatArray:
    """Return the normalised geometric mean of a joint and of the joint that maximises entropy given its pairs.

    Which of the two is nearer to the truth depends on the table; their mean is never far.

    Parameters
    ----------
    own
        Shares of the joint by the mixture.
    pairs
        Shares of every pair of its axes.
    weight
        Exponent of the mixture's own, from 0 to 1.
    """
    start = np.ones(own.shape)
    for axis in range(own.ndim):
        others = tuple(i for i in range(own.ndim) if i != axis)
        start = start * np.expand_dims(own.sum(axis=others), others)
    even = fit_to_margins(start, pairs)
    mean = np.maximum(own, 0) ** weight * even ** (1 - weight)
    return np.asarray(mean / mean.sum())
