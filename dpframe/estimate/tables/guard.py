"""A test of a joint from pairs against released rows: pairs cannot show an interaction of all columns.

The test covers only this interaction. The residuals r of the released counts from their expectations are centred along
every axis, which removes all effects of fewer columns. The statistic is Q = ‖Pr‖², with P = ⊗(I − 11ᵀ/k). For Poisson
counts with expectations e, its mean is ΣP_ii e_i and its variance 2eᵀ(P∘P)e + ΣP_ii² e_i. Both sums are computed axis
by axis. The law of Q is near a multiple of χ² (Satterthwaite 1946). A deviance over all cells has too many degrees of
freedom: a parity of three columns, with five degrees, is lost among 23.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from itertools import combinations, product

import numpy as np

from dpframe.estimate.evidence.likelihood import Channels, channel_of, expectation_maximization, noise_share
from dpframe.estimate.tables.fit import fit_to_margins
from dpframe.observe.observation import chi_square_tail
from dpframe.observe.significance import FALSE_ALARM
from dpframe.spaces.arrays import FloatArray

SURELY = 1e-10
"""Probability of the rows under a fit below which a warning is given (tolerance).

One of many triples is unlikely by chance. Noise of pairs, and cells of few rows, make the tail heavier than χ²'s.
"""

CHI_SQUARE_MIN_ROWS = 50.0
"""Expected rows of a cell from which on its mean deviance is 1, as for χ² (tolerance)."""

NEAR = 1.05
"""Factor of the divergence at which the fit to rows ends (tolerance)."""

GUARD_SWEEPS = 15
"""Sweeps of scaling to pairs after the fit to rows (tolerance)."""


def guard_joint(
    shares: FloatArray,
    counts: FloatArray,
    channels: Channels,
    pairs: Mapping[tuple[int, ...], FloatArray],
    unlikely: float = FALSE_ALARM,
) -> FloatArray | None:
    """Return a corrected joint if rows contradict it, else None.

    ``counts``: released rows by class. ``pairs``: shares of pairs of axes, to which the corrected joint is scaled.
    ``unlikely``: probability below which rows contradict the joint.
    """
    # Expectation–maximisation cannot raise a share of zero.
    start = np.maximum(shares, 1e-12)
    start = start / start.sum()
    n, law = max(float(counts.sum()), 1.0), channel_of(channels).spread(start)
    if interaction_chance(counts, n * law) >= unlikely:
        return None
    logs, mean = _poisson_deviance()
    deviance = float(np.interp(np.log(np.clip(n * law, 1e-4, None)).ravel(), logs, mean).sum())
    # The total is known, which takes one degree of freedom.
    goal = float(noise_share(channels, start)) / (2 * n) * deviance * (counts.size - 1) / counts.size
    fitted = expectation_maximization(counts, channels, start=start, divergence=NEAR * goal)
    return fit_to_margins(fitted, pairs, GUARD_SWEEPS)


def interaction_chance(counts: FloatArray, expected: FloatArray) -> float:
    """Return the p-value of the interaction of all axes in counts, given their expectations.

    >>> expected = np.full((2, 2, 2), 1_000.0)
    >>> parity = np.array([[[1.0, -1.0], [-1.0, 1.0]], [[-1.0, 1.0], [1.0, -1.0]]])
    >>> chances = [interaction_chance(expected + shift * parity, expected) for shift in (0.0, 10.0, 50.0)]
    >>> [round(chance, 3) for chance in chances]
    [1.0, 0.371, 0.0]
    """
    residuals, squares = counts - expected, expected
    for axis, size in enumerate(counts.shape):
        residuals = residuals - residuals.mean(axis=axis, keepdims=True)
        # The squares of I − 11ᵀ/k are (1 − 2/k)I + 11ᵀ/k².
        squares = (1 - 2 / size) * squares + squares.sum(axis=axis, keepdims=True) / size**2
    diagonal = math.prod((size - 1) / size for size in counts.shape)
    mean = diagonal * float(expected.sum())
    variance = 2 * float((expected * squares).sum()) + diagonal * mean
    if not mean > 0:
        return 1.0
    degrees, value = 2 * mean**2 / variance, 2 * mean / variance * float((residuals**2).sum())
    # Between whole degrees of freedom the logarithm is nearly straight; a chance of 0 has none.
    lower = max(math.floor(degrees), 1)
    below, above = (math.log(max(chi_square_tail(each, value), 5e-324)) for each in (lower, lower + 1))
    return math.exp(below + max(degrees - lower, 0.0) * (above - below))


def interaction_variance(counts: FloatArray, order: int, strength: float) -> FloatArray:
    """Return the variance of cells about a fit of all interactions of fewer columns than ``order``.

    Around each cell every column has two values, inside and outside. Only the log odds ratio λ of all k = ``order``
    columns of this table m of 2ᵏ cells is unknown. It moves the cell by Hλ, H = 1/Σ 1/m (Bishop, Fienberg and Holland
    1975, section 2.5). Rows sampled from a law without interaction have Var λ = 1/H. Laws add the standard deviation
    ``strength``, so that the variance is H + (strength·H)². With more columns, each ``order`` of them move a cell by
    its share of their joint cell, and the binomial variance replaces H, which is smaller.

    ``counts``: rows by cell, by the fit; shape (cells of each column), at least ``order`` dimensions. ``order``: number
    of columns of the first unknown interaction. ``strength``: standard deviation of log odds ratios.
    """
    rows = np.maximum(counts, 0.0)
    chance_variance = rows * (1 - rows / max(float(rows.sum()), 1e-9))
    dependence_variance = np.zeros(rows.shape)
    for axes in combinations(range(rows.ndim), order):
        margin = rows.sum(axis=tuple(i for i in range(rows.ndim) if i not in axes), keepdims=True)
        inverse = np.zeros(margin.shape)
        for sides in product((True, False), repeat=order):
            part = margin
            for axis, is_inside in zip(axes, sides, strict=True):
                part = part if is_inside else part.sum(axis=axis, keepdims=True) - part
            inverse = inverse + 1 / np.maximum(part, 1e-9)
        if rows.ndim == order:
            chance_variance = 1 / inverse
        dependence_variance = dependence_variance + (strength / inverse * rows / np.maximum(margin, 1e-9)) ** 2
    return np.asarray(chance_variance + dependence_variance)


@cache
def _poisson_deviance() -> tuple[FloatArray, FloatArray]:
    """Return log λ, and the mean of 2(Y log(Y/λ) − Y + λ) for Y ~ Poisson(λ).

    It is near 1, as for χ², from a few rows a cell on. Most cells of a joint of three columns have fewer rows.
    """
    from scipy.special import gammaln, xlogy

    logs = np.linspace(math.log(1e-4), math.log(CHI_SQUARE_MIN_ROWS), 200)
    rates, values = np.exp(logs)[:, None], np.arange(0.0, 4 * CHI_SQUARE_MIN_ROWS)
    law = np.exp(values * np.log(rates) - rates - gammaln(values + 1))
    deviance = 2 * (xlogy(values, values / rates) - values + rates)
    return logs, (law * deviance).sum(axis=1)


MOST_BOUNDED = 8
"""Conditions up to which the bounds of a count are computed: linear programmes of 2⁸ cells (limit of time)."""


def bounds_by_pairs(sides: FloatArray) -> FloatArray:
    """Return the least and the greatest share of the first cell given its pairs, as weights of all cells.

    With k conditions, met or not, rows have 2ᵏ cells. Pairs fix the sums of all cells that meet two conditions. The
    bounds solve a linear programme (Boole 1854; Fréchet 1935 for single conditions). Its dual solution gives the bounds
    as linear functions of the pairs, hence of any joint.

    ``sides``: shares of rows by condition, met first; shape (2, …, 2).

    Returns
    -------
    Shape (2, number of cells): the bounds of these shares are ``weights @ sides.ravel()``.

    Example: three pairwise independent fair coins may all show heads in no row, or in a quarter of the rows.
    """
    from scipy.optimize import linprog

    sum_matrix, first = _pair_sum_matrix(sides.ndim), np.eye(1, sides.size)[0]
    shares = np.maximum(sides.ravel(), 0.0)
    shares = shares / max(float(shares.sum()), 1e-300)
    weights = []
    for sign in (1.0, -1.0):
        best = linprog(sign * first, A_eq=sum_matrix, b_eq=sum_matrix @ shares, method="highs")
        # If rounding leaves no solution, the cell's own share is the bound.
        weights.append(sign * np.asarray(best.eqlin.marginals) @ sum_matrix if best.success else first)
    return np.array(weights)


@cache
def _pair_sum_matrix(conditions: int) -> FloatArray:
    """Return the matrix of sums of cells: all rows, each condition, each pair of conditions."""
    is_met = np.indices((2,) * conditions).reshape(conditions, -1) == 0
    pairs = [is_met[i] & is_met[j] for i, j in combinations(range(conditions), 2)]
    return np.array([np.ones(is_met.shape[1]), *is_met, *pairs], dtype=np.float64)
