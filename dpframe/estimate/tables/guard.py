"""Rows against a joint that came from pairs: pairs are blind to what only all its columns together show.

The test is of only that. The released counts' distance r from what the joint lets expect is centred along every axis,
which takes off whatever fewer columns explain and leaves Q = ‖Pr‖², P = ⊗(I − 11ᵀ/k). For counts that are Poisson with
expectations e its mean is ΣP_ii e_i and its variance 2eᵀ(P∘P)e + ΣP_ii² e_i, both sums along one axis after the other,
and its law is near a multiple of χ² (Satterthwaite 1946). A deviance over all cells has too many degrees of freedom:
parity of three columns, which has five degrees, is lost among 23.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from itertools import combinations, product

import numpy as np

from dpframe.estimate.evidence.likelihood import Channels, channel_of, expectation_maximization, noise_share, through
from dpframe.estimate.tables.fit import fit_to_margins
from dpframe.observe.significance import FALSE_ALARM
from dpframe.spaces.arrays import FloatArray

SURELY = 1e-10
"""Chance of the rows below which a warning says that no fit has them (tolerance).

Of many triples one is unlikely, and noise of pairs and cells of few rows make the tail of the law heavier than χ²'s.
"""

MANY = 50.0
"""Expected rows of a cell from which on its deviance is that of χ² (tolerance)."""

NEAR = 1.05
"""Part of the goal down to which rows are fitted (tolerance)."""

SWEEPS = 15
"""Sweeps back to the pairs after the rows were fitted (tolerance)."""


def guard_joint(
    shares: FloatArray,
    counts: FloatArray,
    channels: Channels,
    pairs: Mapping[tuple[int, ...], FloatArray],
    unlikely: float = FALSE_ALARM,
) -> FloatArray | None:
    """Return a joint that is corrected where rows contradict it, or None where they do not.

    ``counts`` are released rows by class, ``pairs`` the shares of pairs of axes to which the corrected joint returns,
    and ``unlikely`` is the probability below which rows contradict it.
    """
    start = np.maximum(shares, 1e-12)
    start = start / start.sum()
    n, law = max(float(counts.sum()), 1.0), channel_of(channels).spread(start)
    if interaction_chance(counts, n * law) >= unlikely:
        return None
    logs, mean = _poisson_deviance()
    deviance = float(np.interp(np.log(np.clip(n * law, 1e-4, None)).ravel(), logs, mean).sum())
    # One degree less than cells, for the total is known.
    goal = float(noise_share(channels, start)) / (2 * n) * deviance * (counts.size - 1) / counts.size
    fitted = expectation_maximization(counts, channels, start=start, divergence=NEAR * goal)
    return fit_to_margins(fitted, pairs, SWEEPS)


def interaction_chance(counts: FloatArray, expected: FloatArray) -> float:
    """Return the probability of an interaction of all axes as large as that of counts, were these their expectations.

    >>> expected = np.full((2, 2, 2), 1_000.0)
    >>> parity = np.array([[[1.0, -1.0], [-1.0, 1.0]], [[-1.0, 1.0], [1.0, -1.0]]])
    >>> chances = [interaction_chance(expected + shift * parity, expected) for shift in (0.0, 10.0, 50.0)]
    >>> [round(chance, 3) for chance in chances]
    [1.0, 0.371, 0.0]
    """
    residuals, squares = counts - expected, expected
    for axis, size in enumerate(counts.shape):
        centring = np.eye(size) - 1 / size
        residuals, squares = through(centring, residuals, axis), through(centring**2, squares, axis)
    diagonal = math.prod((size - 1) / size for size in counts.shape)
    mean = diagonal * float(expected.sum())
    variance = 2 * float((expected * squares).sum()) + diagonal * mean
    if not mean > 0:
        return 1.0
    from scipy.special import chdtrc  # imported late, as all of SciPy

    return float(chdtrc(2 * mean**2 / variance, 2 * mean / variance * float((residuals**2).sum())))


def interaction_variance(counts: FloatArray, order: int, strength: float) -> FloatArray:
    """Return by how much, squared, cells may differ from a fit of all that fewer columns than ``order`` show.

    Around each cell every column has two values, in it and out of it. Of such a table m of 2ᵏ cells, k the order, only
    the odds ratio λ of all columns is open, which moves the cell by Hλ, H = 1/Σ 1/m (Bishop, Fienberg and Holland 1975,
    section 2.5). Rows that are drawn from a law without interaction have Var λ = 1/H, and laws have one of the standard
    deviation ``strength``, so that the variance is H + (strength·H)². With more columns every ``order`` of them move a
    cell by its part of what they move together, and H is replaced by the binomial variance, which is larger.

    ``counts``: rows by cell, by the fit; shape (cells of each column), at least ``order`` dimensions. ``order``: number
    of columns from which on nothing is known of their interaction. ``strength``: standard deviation of log odds ratios.
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

    It is near 1, as that of χ², from a few rows a cell on; below it is not, and most cells of a joint of three columns
    hold few.
    """
    from scipy.special import gammaln, xlogy

    logs = np.linspace(math.log(1e-4), math.log(MANY), 200)
    rates, values = np.exp(logs)[:, None], np.arange(0.0, 4 * MANY)
    law = np.exp(values * np.log(rates) - rates - gammaln(values + 1))
    deviance = 2 * (xlogy(values, values / rates) - values + rates)
    return logs, (law * deviance).sum(axis=1)


MOST_BOUNDED = 8
"""Conditions up to which the bounds of a count are looked for: linear programmes of 2⁸ cells (limit of time)."""


def bounds_by_pairs(sides: FloatArray) -> FloatArray:
    """Return the least and the greatest share that its pairs allow the first cell, as weights of all cells.

    With k conditions rows lie in 2ᵏ cells, met or not; pairs fix the sums of all cells where two are met. Least and
    greatest are a linear programme's (Boole 1854; Fréchet 1935 has that of single conditions), and its dual solution
    gives them as linear functions of the pairs, hence of any joint.

    ``sides``: shares of rows by condition, met first; shape (2, …, 2).

    Returns
    -------
    Shape (2, number of cells): the bounds of these shares are ``weights @ sides.ravel()``.

    Of three fair coins that are independent by pairs, all may show heads in no row, or in a quarter of them.
    """
    from scipy.optimize import linprog

    sum_matrix, first = _pair_sum_matrix(sides.ndim), np.eye(1, sides.size)[0]
    shares = np.maximum(sides.ravel(), 0.0)
    shares = shares / max(float(shares.sum()), 1e-300)
    weights = []
    for sign in (1.0, -1.0):
        best = linprog(sign * first, A_eq=sum_matrix, b_eq=sum_matrix @ shares, method="highs")
        # Where rounding leaves no solution nothing is known but the cell itself.
        weights.append(sign * np.asarray(best.eqlin.marginals) @ sum_matrix if best.success else first)
    return np.array(weights)


@cache
def _pair_sum_matrix(conditions: int) -> FloatArray:
    """Return which cells all rows, each condition and each two together sum."""
    is_met = np.indices((2,) * conditions).reshape(conditions, -1) == 0
    pairs = [is_met[i] & is_met[j] for i, j in combinations(range(conditions), 2)]
    return np.array([np.ones(is_met.shape[1]), *is_met, *pairs], dtype=np.float64)
