"""Dependence of two columns: a test, and a lower bound on Cramér's V, both with the noise of the counts.

Noise makes Pearson's χ² of noisy counts large. So the law of χ² is simulated with the noise (Gaboardi, Lim, Rogers and
Vadhan 2016): for the p-value from independent columns with the counted margins, for the bound from the fitted joint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpframe.estimate.evidence.combine import project
from dpframe.spaces.arrays import FloatArray

SIMULATIONS = 1_999
"""Simulated tables: the standard error of a p-value of .05 is .005 (limit of time)."""

FEWEST_SIMULATIONS, MOST_SIMULATED = 199, 1 << 23
"""Fewest simulated tables, and the largest number of cells of all simulated tables (limit of memory)."""

FEWEST_SE = 3.0
"""Rows of a value, in standard errors of its noise, below which values are pooled for more power (tolerance)."""


@dataclass(frozen=True)
class Independence:
    """A p-value of independence, an estimate of Cramér's V, and the lower end of its one-sided interval."""

    p_value: float
    cramers_v: float
    lower: float


def measure_dependence(
    counts: FloatArray, variances: FloatArray, joint: FloatArray, rows: float, level: float, seed: int
) -> Independence:
    """Test two columns' independence by noisy counts of their cells.

    ``counts``, the ``variances`` of their noise and ``joint``, a fit of the shares, have the shape (values of one
    column, values of the other). V of pooled values is at most V of all values, as merged cells lower χ².
    """
    most_values = min(counts.shape)
    for axis in (0, 1):
        pooling = _pool_values(counts.sum(axis=1 - axis), variances.sum(axis=1 - axis))
        counts, variances, joint = (
            np.moveaxis(pooling @ np.moveaxis(table, axis, 0), 0, axis) for table in (counts, variances, joint)
        )
    generator = np.random.default_rng(seed)
    joint = joint / joint.sum()
    statistic = _pearson_statistics(counts[None], variances)[0]
    margins = [project(counts.sum(axis=1 - axis) / max(counts.sum(), 1.0)) for axis in (0, 1)]
    null_counts = _simulate_counts(np.outer(*margins), variances, rows, generator)
    p_value = float((1 + (_pearson_statistics(null_counts, variances) >= statistic).sum()) / (1 + len(null_counts)))
    expected = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    truth = float(((joint - expected) ** 2 / np.maximum(expected, 1e-12)).sum())
    # The statistic of noisy counts exceeds its true value, by an excess that the simulation shows.
    excess = _squared_contingencies(_simulate_counts(joint, variances, rows, generator), rows) - truth
    observed = float(_squared_contingencies(counts[None], rows)[0])
    squares = np.array([observed - np.median(excess), observed - np.quantile(excess, level)])
    # V divides χ² by the smaller number of values less 1: of pooled values in the estimate, of all values in the bound.
    pooling = np.array([min(counts.shape), most_values]) - 1
    estimate, lower = np.sqrt(np.clip(squares / np.maximum(pooling, 1), 0.0, 1.0))
    if p_value >= 1 - level:
        lower = 0.0
    elif lower == 0:
        # The test rejects independence, where χ² without the noise in its denominators says less.
        independent = np.outer(*margins)
        share = _least_share(statistic, independent, joint, variances, rows, 1 - level, seed)
        shares = independent + share * (joint - independent)
        lower = np.sqrt(_squared_contingencies(rows * shares[None], rows)[0] / max(most_values - 1, 1))
    return Independence(p_value, float(max(estimate, lower)), float(lower))


_SHARE_BISECTIONS = 7
"""Halvings of a share of a fit's dependence: a step is less than 1 % of the fit's V (limit of time)."""


def _least_share(
    statistic: float,
    independent: FloatArray,
    joint: FloatArray,
    variances: FloatArray,
    rows: float,
    significance: float,
    seed: int,
) -> float:
    """Return the smallest share of the fit's dependence under which the statistic is not significantly large.

    The test of this share instead of independence is the one that gives the p-value (an interval by inversion).
    """
    low, high = 0.0, 1.0
    for _ in range(_SHARE_BISECTIONS):
        share = (low + high) / 2
        tables = _simulate_counts(
            independent + share * (joint - independent), variances, rows, np.random.default_rng(seed)
        )
        is_rejected = (_pearson_statistics(tables, variances) >= statistic).mean() < significance
        low, high = (share, high) if is_rejected else (low, share)
    # Independence itself, a share of 0, is rejected.
    return low or high / 2


def _pool_values(counts: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the matrix that pools values of few rows into one, shape (pooled values, values).

    If their sum is also below its noise, they join the rarest of the other values.

    >>> _pool_values(np.array([90.0, 50.0, 2.0, -9.0]), np.full(4, 25.0)).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]]
    """
    is_clear = counts > FEWEST_SE * np.sqrt(variances)
    # One value at least remains, also if noise covers all of them.
    is_clear[np.argmax(counts)] = True
    pooling, is_pooled = np.eye(len(counts))[is_clear], (~is_clear).astype(np.float64)
    if counts @ is_pooled > FEWEST_SE * np.sqrt(variances @ is_pooled):
        return np.vstack([pooling, is_pooled])
    pooling[np.argmin(counts[is_clear])] += is_pooled
    return pooling


def _expect_counts(counts: FloatArray) -> FloatArray:
    """Return the expected counts of independent columns with the margins of ``counts``, in its shape."""
    margins = [np.maximum(counts.sum(axis=axis), 0.5) for axis in (2, 1)]
    total = margins[0].sum(axis=1)[:, None, None]
    return np.asarray(margins[0][:, :, None] * margins[1][:, None, :] / total)


def _pearson_statistics(counts: FloatArray, variances: FloatArray) -> FloatArray:
    expected = _expect_counts(counts)
    return np.asarray(((counts - expected) ** 2 / (expected + variances)).sum(axis=(1, 2)))


def _squared_contingencies(counts: FloatArray, rows: float) -> FloatArray:
    expected = _expect_counts(counts)
    return np.asarray(((counts - expected) ** 2 / expected).sum(axis=(1, 2)) / rows)


def _simulate_counts(
    shares: FloatArray, variances: FloatArray, rows: float, generator: np.random.Generator
) -> FloatArray:
    """Return noisy counts of simulated tables with these shares, shape (simulations, cells, cells)."""
    flat = np.maximum(shares.ravel(), 0.0)
    number = int(np.clip(MOST_SIMULATED / flat.size, FEWEST_SIMULATIONS, SIMULATIONS))
    tables = generator.multinomial(round(rows), flat / flat.sum(), number).reshape(-1, *shares.shape)
    return np.asarray(tables + np.sqrt(variances) * generator.standard_normal(tables.shape))
