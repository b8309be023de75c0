"""δ(ε) of an unshuffled row whose columns are pure: optimal composition.

A column of loss ln E and blanket mass γ is dominated by the law of `dominating`: with a = (1−γ)/(E−1), the ratio
R_c = P/P' is E with a, 1/E with aE and 1 with γ − 2a, each under P'; where γ is below 2/(1+E), by randomised response
on two outcomes, which dominates every channel of its loss (Kairouz–Oh–Viswanath 2015) and is that law at 2/(1+E). A
γ known from below only makes the law worse. δ(ε) = E[(R − e^ε)₊] is the mean of a convex function of R = Π R_c.
Spreading each value of R_c to two points of a lattice of powers of e^h, its mean kept, only raises that mean; the
product of the columns is then a convolution of non-negative terms, without further rounding. (Exact composition is
#P-hard, Murtagh–Vadhan 2016.) The error is of second order in h: here below 1e-5 of the loss's variance.

*With central noise.* An unshuffled row's columns are nothing like Gaussian (randomised response ends at its ε), so they
do not enter as a step: the curve above them would cost too much. The rest has the law (1−δ₀)·N(μ, 1) + δ₀·⊤
(`gaussian_dp`), and dominating pairs multiply under adaptive composition. With P the law of the lattice's ln R under
its own first law,

    δ(ε) = δ₀ + (1 − δ₀)·Σ_a P(a)·G_μ(ε − a),

as the hockey-stick divergence of p·N(μ, 1) and p'·N(0, 1) at e^ε is p times that of the two normals at e^ε·p'/p. It
is the mean of a convex function of R as well.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpframe.accounting.arrays import FloatArray
from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import check_delta
from dpframe.accounting.dominating import ColumnLoss, DominatingLaw, check_losses, factors, total_epsilon
from dpframe.accounting.gaussian_dp import Step, log_gaussian, step_delta
from dpframe.accounting.row_law import choose_step, snapped, spread
from dpframe.errors import ParameterError

_CELLS = 6_000
_FACTORS = 1_000
"""Factors beyond which equal ones are taken in blocks."""
_INFLATION = 1e-9
_SUMMED = 2e-12
"""Relative rounding of a sum over the lattice, where a Gaussian is added."""
_LARGEST = 300.0
"""A column that loses more is as good as published."""
_ERROR = 1e-13
"""Relative rounding of ratios and masses, per unit of (1 + Σε), taken outward."""


def _taps(column: DominatingLaw, step: float) -> list[tuple[int, float]]:
    """Return the lattice points of ln R_c and their probabilities under P'."""
    rate = snapped(column.rate, step)
    more, less, same = replace(column, rate=rate).ratio_masses
    taps = [(k, w * more) for k, w in spread(rate, step)] + [(0, same)]
    return taps + [(k, w * less) for k, w in spread(-rate, step)]


@functools.lru_cache(maxsize=16)
def ratio_law(parts: tuple[ColumnLoss, ...]) -> tuple[FloatArray, FloatArray]:
    """Return the lattice values of ln R and their probabilities under P'."""
    columns = factors(parts, _FACTORS)
    step = choose_step([c.rate for c in columns], [c.ratio_masses[0] for c in columns], _CELLS, _INFLATION)
    taps_of = {column: _taps(column, step) for column in set(columns)}
    law, offset = np.ones(1), 0
    for column in columns:
        taps = taps_of[column]
        first, last = min(k for k, _ in taps), max(k for k, _ in taps)
        product = np.zeros(len(law) + last - first)
        for k, weight in taps:
            product[k - first : k - first + len(law)] += law * weight
        law, offset = product, offset + first
    return step * np.arange(offset, offset + len(law), dtype=np.float64), law


def composed_delta(parts: Sequence[ColumnLoss], epsilon: float) -> float:
    """Return an upper bound on δ(ε) of one row with these columns, unshuffled.

    Raises `ParameterError` for a negative ε, or parts of another type.

    >>> round(composed_delta([ColumnLoss(0.1, 0.9)] * 20, 1.0), 6)
    0.002397
    >>> round(composed_delta([ColumnLoss(0.1, 0.99)] * 20, 1.0), 6)  # such as a category of twenty
    0.0
    """
    lossy = check_losses(parts)
    if not epsilon >= 0:
        raise ParameterError("epsilon must be at least 0")
    total = total_epsilon(lossy)
    if epsilon >= total:
        return 0.0
    if max(part.epsilon for part in lossy) > _LARGEST:
        return 1.0
    logs, law = ratio_law(tuple(sorted(lossy, key=lambda part: (part.epsilon, part.blanket))))
    error = _ERROR * (1 + total)
    reached = logs > epsilon - 3 * error
    # Masses under P, so that no ratio overflows: p·(1 − e^(ε − ln R)).
    gain = -np.expm1(np.minimum(epsilon - 3 * error - logs[reached], 0.0))
    mass = np.exp(np.log(np.maximum(law[reached], 1e-320)) + logs[reached])
    return min(1.0, float(mass @ gain) * (1 + error))


def composed_epsilon(parts: Sequence[ColumnLoss], delta: float) -> float:
    """Return the least ε, to nine digits and rounded up, at which `composed_delta` is at most ``delta``.

    Raises `ParameterError` unless δ lies in [0, 1).

    >>> composed_epsilon([ColumnLoss(0.5, 0.8)] * 2, 0.0)
    1.0
    """
    lossy, delta = check_losses(parts), check_delta(delta)
    high = total_epsilon(lossy)
    if delta == 0 or high == 0:
        return high
    if composed_delta(lossy, 0.0) <= delta:
        return 0.0
    return bisected(lambda epsilon: composed_delta(lossy, epsilon) <= delta, high, 0.0, 1e-9)


def response_parts(epsilons: Sequence[float]) -> list[ColumnLoss]:
    """Return the parts of columns known only by their losses: randomised response on two outcomes.

    >>> response_parts([1.0])
    [ColumnLoss(epsilon=1.0, blanket=0.5378828427399902)]
    """
    return [ColumnLoss(epsilon, 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon))) for epsilon in epsilons]


def mixed_delta(parts: Sequence[ColumnLoss], step: Step, epsilon: float) -> float:
    """Return an upper bound on δ(ε) of one unshuffled row with these columns, and all else that is a step.

    Raises `ParameterError` for a negative ε, or parts of another type.

    >>> round(mixed_delta(response_parts([0.064] * 15), Step(0.0749, 1e-7), 1.0), 8)
    1.05e-06
    """
    lossy = check_losses(parts)
    if not epsilon >= 0:
        raise ParameterError("epsilon must be at least 0")
    if max((part.epsilon for part in lossy), default=0.0) > _LARGEST:
        return 1.0
    if not lossy:
        return step_delta(step, epsilon)
    logs, law = ratio_law(tuple(sorted(lossy, key=lambda part: (part.epsilon, part.blanket))))
    error = _ERROR * (1 + total_epsilon(lossy))
    rest = epsilon - 3 * error - logs
    if step.mu == 0:
        gain = -np.expm1(np.minimum(rest, 0.0))
    else:
        far = np.exp(log_gaussian(step.mu, np.abs(rest))[1])
        gain = np.where(rest >= 0, far, -np.expm1(np.minimum(rest, 0.0)) + np.exp(np.minimum(rest, 0.0)) * far)
    # Masses under P, so that no ratio overflows: p·G(ε − ln R).
    mass = np.exp(np.log(np.maximum(law, 1e-320)) + logs)
    return min(1.0, (step.delta + (1 - step.delta) * float(mass @ gain)) * (1 + error + _SUMMED))
