"""δ(ε) of an unshuffled row whose columns are pure: optimal composition.

A column of loss ln E and blanket mass γ is dominated by the law of `dominating`: with a = (1−γ)/(E−1), the ratio
R_c = P/P' is E with a, 1/E with aE and 1 with γ − 2a, each under P'. If γ is below 2/(1+E), randomised response on two
outcomes dominates it, as it does every channel of its loss (Kairouz–Oh–Viswanath 2015); both laws agree at 2/(1+E). A
lower bound on γ only makes the law worse. δ(ε) = E[(R − e^ε)₊] is the mean of a convex function of R = Π R_c.
Spreading each value of R_c to two points of a lattice of powers of e^h without moving its mean only raises δ(ε); the
product of the columns is then a convolution of non-negative terms, without further rounding. (Exact composition is
#P-hard, Murtagh–Vadhan 2016.) The error is of second order in h: here below 1e-5 of the loss's variance.

*With central noise.* An unshuffled row's columns are nothing like Gaussian (randomised response ends at its ε), so they
do not enter as a step: the curve above them would cost too much. The central noise has the law (1−δ₀)·N(μ, 1) + δ₀·⊤
(`gaussian_dp`), and dominating pairs multiply under adaptive composition. With P the law of the lattice's ln R under
its own first law,

    δ(ε) = δ₀ + (1 − δ₀)·Σ_a P(a)·G_μ(ε − a),

as the hockey-stick divergence of p·N(μ, 1) and p'·N(0, 1) at e^ε is p times the divergence of the two normals at
e^ε·p'/p. It is the mean of a convex function of R as well.

*The law of a row's (A, B)* of `dominating`, which `secret_order` needs, is the product of its columns' laws on such a
lattice, spread and convolved likewise. When all rates are multiples of h (equal shares) nothing is rounded at all;
otherwise h is chosen so that the added variance is small. Every mass keeps its relative precision, however small.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpframe.accounting.arrays import FloatArray
from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import check_delta
from dpframe.accounting.dominating import ColumnLoss, DominatingLaw, check_losses, factors, total_epsilon
from dpframe.accounting.gaussian_dp import Step, log_gaussian, step_delta
from dpframe.errors import ParameterError

_ROW_CELLS = 420
"""Most lattice steps along an axis."""
_ROW_FACTORS = 200
"""Factors of a row's law beyond which equal ones are taken in blocks."""
_ROW_INFLATION = 1e-4
"""Relative variance that rounding to the lattice may add, if the number of steps allows it."""

_SNAP_STEPS = 1e-6
"""Steps by which a rate may be enlarged to meet a lattice point, so that nearly equal rates share it."""


@dataclass(frozen=True)
class RowLaw:
    """Atoms of (A, B) under the blanket: ``A``, ``B`` and ``mass``; outside it (A, B) = (0, 0), mass ``outside``.

    ``position_error`` and ``mass_error`` bound the relative rounding of the atoms, the latter from below only.
    """

    a: FloatArray
    b: FloatArray
    mass: FloatArray
    outside: float
    position_error: float
    mass_error: float


def snap_to_lattice(rate: float, step: float) -> float:
    """Return the lattice point just above a rate if it is within `_SNAP_STEPS`, or else the rate."""
    lattice_point = round(rate / step) * step
    return lattice_point if 0 <= lattice_point - rate <= _SNAP_STEPS * step else rate


def spread_to_lattice(rate: float, step: float) -> list[tuple[int, float]]:
    """Return the two lattice points about e^rate and the weights that preserve its mean."""
    low = math.floor(rate / step)
    # Rounding of the quotient may put the lattice point above the rate.
    while low * step > rate:
        low -= 1
    upper = min(1.0, math.expm1(rate - low * step) / math.expm1(step))
    return [(k, w) for k, w in ((low, 1 - upper), (low + 1, upper)) if w > 0]


def choose_step(rates: Sequence[float], weights: Sequence[float], cells: int, tolerance: float) -> float:
    """Return the widest step whose added variance is negligible, or else the step that adds least.

    ``weights`` are the masses of the atoms at e^rate. Candidates are fractions of the rates themselves, so that
    equal rates, and rates in simple proportion, are met exactly.
    """
    rate, weight = np.asarray(rates), np.asarray(weights)
    finest = rate.sum() / max(1, cells - len(rate))
    distinct = np.unique(rate * (1 + 1e-3 * _SNAP_STEPS))
    steps = [r / np.arange(1, max(2, math.floor(r / finest) + 1)) for r in distinct]
    step = np.sort(np.concatenate(steps))[::-1]
    step = step[np.ceil(rate[:, None] / step).sum(axis=0) <= cells]
    if not step.size:
        return float(rate.sum() / max(1, cells - len(rate)))
    below = np.maximum(0.0, rate[:, None] - np.floor(rate[:, None] / step + _SNAP_STEPS) * step)
    added = np.expm1(below) * (np.expm1(step) - np.expm1(below)) * np.exp(-2 * below)
    # Scaled by the largest rate, or the squares would overflow.
    weight = weight * np.exp(2 * (rate - rate.max()))
    inflation = (weight[:, None] * added).sum(axis=0) / (weight * np.expm1(-rate) ** 2).sum()
    good = np.flatnonzero(inflation <= tolerance)
    return float(step[good[0] if good.size else inflation.argmin()])


def _times(law: FloatArray, column: DominatingLaw, points: list[tuple[int, float]]) -> FloatArray:
    reach, size = points[-1][0], law.shape[0]
    differ_mass, both_mass = column.differ, column.both_mass
    product = np.zeros((size + reach, size + reach))
    product[:size, :size] = law * column.equal_mass
    for k, weight in points:
        scaled = law * (differ_mass * weight)
        product[k : k + size, :size] += scaled
        product[:size, k : k + size] += scaled
        for m, other_weight in points if both_mass else ():
            product[k : k + size, m : m + size] += law * (both_mass * weight * other_weight)
    return product


@functools.lru_cache(maxsize=16)
def row_law(parts: tuple[ColumnLoss, ...]) -> RowLaw:
    """Return the dominating law of a row with these columns."""
    columns = [law.enlarged for law in factors(parts, _ROW_FACTORS)]
    step = choose_step([c.rate for c in columns], [c.differ for c in columns], _ROW_CELLS, _ROW_INFLATION)
    alike = Counter(replace(c, rate=snap_to_lattice(c.rate, step)).enlarged for c in columns)
    law = np.ones((1, 1))  # the masses of (e^(i·step), e^(j·step))
    for column, count in sorted(alike.items(), key=lambda item: (-item[1], item[0].rate)):
        points = spread_to_lattice(column.rate, step)
        # A power in closed form: most rows have equal shares, whose rates all lie on the lattice.
        if law.size == 1 and len(points) == 1:
            (reach, _), *_ = points
            law = np.zeros((count * reach + 1, count * reach + 1))
            law[::reach, ::reach] = column.power(count)
        else:
            for _ in range(count):
                law = _times(law, column, points)
    i, j = np.nonzero(law)
    ratio = np.exp(step * np.arange(law.shape[0]))
    blanket = math.prod(column.blanket for column in columns)
    # Each factor of a product adds its rounding; exponentials add it in proportion to their exponent.
    errors = 1e-15 * (8 + 2 * step * law.shape[0] + len(columns))
    return RowLaw(ratio[i], ratio[j], law[i, j], 1 - blanket * (1 - errors), errors, 1e-15 * (8 * len(columns)))


def single_law(epsilon: float) -> RowLaw:
    """Return the law of randomised response on two outcomes, which dominates every *single* channel of loss ε.

    With no other column, u = 1 and v = e^ε' ≤ E, and mass (E+1)/E on (E, E) with (E−1)/E on (0, 0)
    spreads to 1 on each of (E, 1), (1, E): both images lie between theirs. So γ < 2/(1 + E) costs nothing more.
    """
    low = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    high = math.exp(epsilon)
    atoms = np.array([high, 1.0])
    return RowLaw(atoms, atoms[::-1], np.full(2, low), 1 - 2 * low + 1e-15, 1e-15 * (4 + epsilon), 4e-15)


_LATTICE_CELLS = 6_000
_MAX_SINGLE_FACTORS = 1_000
"""Factors beyond which equal ones are taken in blocks."""
_INFLATION = 1e-9
_SUM_ERROR = 2e-12
"""Relative rounding of a sum over the lattice, where a Gaussian is added."""
_MAX_COLUMN_EPSILON = 300.0
"""Largest ε of a column: more is as good as published."""
_RELATIVE_ROUNDING = 1e-13
"""Relative rounding of ratios and masses, per unit of (1 + Σε), taken outward."""


@functools.lru_cache(maxsize=16)
def ratio_law(parts: tuple[ColumnLoss, ...]) -> tuple[FloatArray, FloatArray]:
    """Return the lattice values of ln R and their probabilities under P'."""
    columns = factors(parts, _MAX_SINGLE_FACTORS)
    step = choose_step([c.rate for c in columns], [c.ratio_masses[0] for c in columns], _LATTICE_CELLS, _INFLATION)
    taps_of: dict[DominatingLaw, list[tuple[int, float]]] = {}
    for column in set(columns):
        # The lattice points of ln R_c and their probabilities under P'.
        rate = snap_to_lattice(column.rate, step)
        more, less, equal = replace(column, rate=rate).ratio_masses
        rises, falls = (spread_to_lattice(signed_rate, step) for signed_rate in (rate, -rate))
        taps_of[column] = [*((k, w * more) for k, w in rises), (0, equal), *((k, w * less) for k, w in falls)]
    law, offset = np.ones(1), 0
    for column in columns:
        taps = taps_of[column]
        first, last = min(k for k, _ in taps), max(k for k, _ in taps)
        product = np.zeros(len(law) + last - first)
        for k, weight in taps:
            product[k - first : k - first + len(law)] += law * weight
        # ln R may be negative: the offset is the lattice place of the first value.
        law, offset = product, offset + first
    return step * np.arange(offset, offset + len(law), dtype=np.float64), law


def composed_delta(parts: Sequence[ColumnLoss], epsilon: float) -> float:
    """Return an upper bound on δ(ε) of one row with these columns, unshuffled."""
    lossy = check_losses(parts)
    if not epsilon >= 0:
        raise ParameterError("epsilon must be at least 0")
    total = total_epsilon(lossy)
    if epsilon >= total:
        return 0.0
    if max(part.epsilon for part in lossy) > _MAX_COLUMN_EPSILON:
        return 1.0
    logs, law = ratio_law(tuple(sorted(lossy, key=lambda part: (part.epsilon, part.blanket))))
    error = _RELATIVE_ROUNDING * (1 + total)
    reached = logs > epsilon - 3 * error
    # Masses under P, so that no ratio overflows: p·(1 − e^(ε − ln R)).
    gain = -np.expm1(np.minimum(epsilon - 3 * error - logs[reached], 0.0))
    mass = np.exp(np.log(np.maximum(law[reached], 1e-320)) + logs[reached])
    return min(1.0, float(mass @ gain) * (1 + error))


def composed_epsilon(parts: Sequence[ColumnLoss], delta: float) -> float:
    """Return the least ε, to nine digits and rounded up, at which `composed_delta` is at most ``delta``.

    >>> composed_epsilon([ColumnLoss(0.5, 0.8)] * 2, 0.0)
    1.0
    """
    lossy, delta = check_losses(parts), check_delta(delta)
    high = total_epsilon(lossy)
    # No mass lies beyond the total loss of the row: δ is 0 there.
    if delta == 0 or high == 0:
        return high
    if composed_delta(lossy, 0.0) <= delta:
        return 0.0
    return bisected(lambda epsilon: composed_delta(lossy, epsilon) <= delta, high, 0.0, 1e-9)


def response_parts(epsilons: Sequence[float]) -> list[ColumnLoss]:
    """Return the parts of columns of which only the losses are known: randomised response on two outcomes."""
    return [ColumnLoss(epsilon, 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon))) for epsilon in epsilons]


def mixed_delta(parts: Sequence[ColumnLoss], step: Step, epsilon: float) -> float:
    """Return an upper bound on δ(ε) of one unshuffled row with these columns, and of central noise of one step."""
    lossy = check_losses(parts)
    if not epsilon >= 0:
        raise ParameterError("epsilon must be at least 0")
    if max((part.epsilon for part in lossy), default=0.0) > _MAX_COLUMN_EPSILON:
        return 1.0
    if not lossy:
        return step_delta(step, epsilon)
    logs, law = ratio_law(tuple(sorted(lossy, key=lambda part: (part.epsilon, part.blanket))))
    error = _RELATIVE_ROUNDING * (1 + total_epsilon(lossy))
    remaining = epsilon - 3 * error - logs
    if step.mu == 0:
        gain = -np.expm1(np.minimum(remaining, 0.0))
    else:
        tail = np.exp(log_gaussian(step.mu, np.abs(remaining))[1])
        gain = np.where(
            remaining >= 0, tail, -np.expm1(np.minimum(remaining, 0.0)) + np.exp(np.minimum(remaining, 0.0)) * tail
        )
    # Masses under P, so that no ratio overflows: p·G(ε − ln R).
    mass = np.exp(np.log(np.maximum(law, 1e-320)) + logs)
    return min(1.0, (step.delta + (1 - step.delta) * float(mass @ gain)) * (1 + error + _SUM_ERROR))
