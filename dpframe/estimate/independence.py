"""Whether two columns depend: a test and a lower bound on Cramér's V that both know the noise.

Noise alone makes Pearson's χ² of noisy counts large. So its law is simulated, noise included (Gaboardi, Lim, Rogers and
Vadhan 2016): of independent columns with the counted margins for the p-value, of the fitted joint for the bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpframe.estimate.evidence.combine import project
from dpframe.spaces.arrays import FloatArray

SIMULATIONS = 1_999
"""Simulated tables: the standard error of a p-value of .05 is .005 (limit of time)."""

FEWEST_SIMULATIONS, MOST_SIMULATED = 199, 1 << 23
"""Simulated tables of many cells, and cells of all of them together (limit of memory)."""

FEWEST_SE = 3.0
"""Standard errors of noise in a value's rows below which values are pooled: fewer cells have more power (tolerance)."""


@dataclass(frozen=True)
class Independence:
    """A p-value of independence, an estimate of Cramér's V, and the lower end of its one-sided interval."""

    p_value: float
    cramers_v: float
    lower: float


def judge_independence(
    counts: FloatArray, variances: FloatArray, joint: FloatArray, rows: float, level: float, seed: int
) -> Independence:
    """Test two columns' independence by noisy counts of their cells.

    ``counts`` and ``variances`` of their noise have the shape (values of one, values of the other), as has ``joint``, a
    fit of the shares. V of pooled values is at most that of all values, as χ² falls when cells are merged.
    """
    most_values = min(counts.shape)
    for axis in (0, 1):
        parts = _pooled(counts.sum(axis=1 - axis), variances.sum(axis=1 - axis))
        counts, variances, joint = (
            np.moveaxis(parts @ np.moveaxis(t, axis, 0), 0, axis) for t in (counts, variances, joint)
        )
    generator = np.random.default_rng(seed)
    joint = joint / joint.sum()
    found = _statistic(counts[None], variances)[0]
    margins = [project(counts.sum(axis=1 - axis) / max(counts.sum(), 1.0)) for axis in (0, 1)]
    alone = _simulated(np.outer(*margins), variances, rows, generator)
    p_value = float((1 + (_statistic(alone, variances) >= found).sum()) / (1 + len(alone)))
    expected = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    truth = float(((joint - expected) ** 2 / np.maximum(expected, 1e-12)).sum())
    off = _squares(_simulated(joint, variances, rows, generator), rows) - truth
    seen = float(_squares(counts[None], rows)[0])
    squares = np.array([seen - np.median(off), seen - np.quantile(off, level)])
    # The bound holds for all values, the estimate is of those that are told apart.
    parts = np.array([min(counts.shape), most_values]) - 1
    estimate, lower = np.sqrt(np.clip(squares / np.maximum(parts, 1), 0.0, 1.0))
    return Independence(p_value, float(estimate), float(lower) if p_value < 1 - level else 0.0)


def _pooled(counts: FloatArray, variances: FloatArray) -> FloatArray:
    """Return which values make up each that is tested, shape (tested, values): those of few rows are one.

    If even their sum is below its noise, they are one with the rarest of the others.

    >>> _pooled(np.array([90.0, 50.0, 2.0, -9.0]), np.full(4, 25.0)).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]]
    """
    clear = counts > FEWEST_SE * np.sqrt(variances)
    clear[np.argmax(counts)] = True
    parts, others = np.eye(len(counts))[clear], (~clear).astype(np.float64)
    if counts @ others > FEWEST_SE * np.sqrt(variances @ others):
        return np.vstack([parts, others])
    parts[np.argmin(counts[clear])] += others
    return parts


def _expected(counts: FloatArray) -> FloatArray:
    """Return the counts of independent columns with the same margins, which are not negative."""
    margins = [np.maximum(counts.sum(axis=axis), 0.5) for axis in (2, 1)]
    total = margins[0].sum(axis=1)[:, None, None]
    return np.asarray(margins[0][:, :, None] * margins[1][:, None, :] / total)


def _statistic(counts: FloatArray, variances: FloatArray) -> FloatArray:
    expected = _expected(counts)
    return np.asarray(((counts - expected) ** 2 / (expected + variances)).sum(axis=(1, 2)))


def _squares(counts: FloatArray, rows: float) -> FloatArray:
    expected = _expected(counts)
    return np.asarray(((counts - expected) ** 2 / expected).sum(axis=(1, 2)) / rows)


def _simulated(shares: FloatArray, variances: FloatArray, rows: float, generator: np.random.Generator) -> FloatArray:
    """Return noisy counts of tables of rows with these shares, shape (simulations, cells of each column)."""
    flat = np.maximum(shares.ravel(), 0.0)
    number = int(np.clip(MOST_SIMULATED / flat.size, FEWEST_SIMULATIONS, SIMULATIONS))
    tables = generator.multinomial(round(rows), flat / flat.sum(), number).reshape(-1, *shares.shape)
    return np.asarray(tables + np.sqrt(variances) * generator.standard_normal(tables.shape))
