"""Joints by maximum likelihood of their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.estimate.evidence.likelihood import Seen, Shares
from dpframe.estimate.joint_domain import JointDomain

Channels = JointDomain | Sequence[FloatArray]
"""A joint, or P(class | cell) of each of its axes where these are independent."""


def fit_joint(counts: FloatArray, channels: Channels) -> FloatArray:
    """Return the shares of a joint by maximum likelihood, stopped before it fits the noise; see `fit_joints`."""
    return fit_joints(counts[..., None], channels)[..., 0]


def fit_joints(counts: FloatArray, channels: Channels) -> FloatArray:
    """Return the shares of joints, shape (*cells, fits), by maximum likelihood, stopped before they fit the noise.

    For one column the fit converges. For several, likelihood's maximum lies on corners of the simplex that
    noise chose (on Adult's pairs and triples at n = 32,561 and ε = 1.2 per column it is 1.3 to 1.5 times
    farther from the truth), so the fit starts from independence and ends by Morozov's principle: when it is
    as near to the counts as the table would be, at a divergence of `noise_share`·(classes − 1)/2n (Wilks).
    """
    model, seen = Shares.of(JointDomain.of(channels)), Seen(counts, np.zeros((0, counts.shape[-1])))
    if counts.ndim == 2:
        return model.fitted(seen)
    classes = tuple(range(counts.ndim - 1))
    start = _independent(counts, channels)
    share, rows = noise_share(channels, start), np.maximum(counts.sum(axis=classes), 1.0)
    goal = share * (counts[..., 0].size - 1) / (2 * rows)
    return model.fitted(seen, start=start, divergence=goal)


def _independent(counts: FloatArray, channels: Channels) -> FloatArray:
    """Return the products of the axes' own most likely shares, a hundredth of them spread evenly."""
    shares = np.ones(counts.shape[-1:])
    for i, axis in enumerate(JointDomain.of(channels).axes):
        others = tuple(j for j in range(counts.ndim - 1) if j != i)
        shares = shares[..., None, :] * fit_joints(counts.sum(axis=others), [axis.channel])
    return np.asarray(0.99 * shares + 0.01 / shares[..., 0].size)


def noise_share(channels: Channels, shares: FloatArray) -> FloatArray:
    """Return what part of the counts' variance about their law is noise of the channel, given the table's own type.

    One number, or one for each of several tables, whose shares have the shape (*cells, tables).

    A class y of n rows drawn anew has variance n·(At)_y, given the table Σ_x n_x·P(y|x)(1 − P(y|x)): the two are
    alike where noise is strong, and apart where most rows are released as they are.
    """
    matrices = [axis.channel for axis in JointDomain.of(channels).axes]
    law = JointDomain.of(matrices).spread(shares)
    kept = JointDomain.of([matrix**2 for matrix in matrices]).spread(shares)
    return np.asarray(np.mean(1 - kept / np.maximum(law, 1e-300), axis=tuple(range(len(matrices)))))


def expectation_maximization(
    counts: FloatArray, channels: Channels, *, start: FloatArray | None = None, divergence: float = 0.0
) -> FloatArray:
    """Return the shares that make counts of released classes most likely; see `Shares.fitted`."""
    model, begin = Shares.of(JointDomain.of(channels)), None if start is None else start[..., None]
    return model.fitted(Seen.of(counts), start=begin, divergence=divergence)[..., 0]
