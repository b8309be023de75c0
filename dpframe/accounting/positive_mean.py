"""E[(T₁ + … + Tₙ)₊] for independent copies of a bounded variable, from above, at any n and any depth of tail.

For θ > 0, x₊ is the integral of e^(zx)/z² over Re z = θ, divided by 2πi. So with M(z) = E[e^(zT)]

    E[(S + Z)₊] = 1/(2π) ∫ M(θ+it)ⁿ · e^(τ²(θ+it)²/2) / (θ+it)² dt,       Z ~ N(0, τ²) independent of S,

and E[S₊] ≤ E[(S + Z)₊] by Jensen. θ is the saddle point of the integrand, so nothing cancels, δ = 1e-12 at
n = 10⁸ has as many digits as δ = 0.1, and no grid of sums is ever formed. The error budget, all entries added:

- *Smoothing* (Z): upward. τ is at most 1/200 of the tilted standard deviation, 1e-5 of ε.
- *Merging* atoms of T to about a thousand by spreading each to two neighbours without moving its mean: upward.
- *Sum for integral*, step h: by Poisson's formula the sum is E[e^(θS) Σ_k r(S + 2πk/h)], r(x) = x₊·e^(−θx) ≥ 0,
and the integral is its term k = 0. Upward, and negligible when θ·2π/h is 40.
- *Cutting the sum at t_J*: |M(θ+it)| ≤ M(θ), so the tail is at most M(θ)ⁿ e^(τ²θ²/2) · e^(−τ²t_J²/2)/(π·t_J). Added.
- *Round-off*: φ(t) = M(θ+it)/M(θ) is known to η(t), φⁿ to n·η·(|φ|+η)^(n−1). Added term by term. Terms at high
frequencies, where some atoms already bound |φ|ⁿ by e^(−50), are replaced by that bound.
- *Dropping* rare atoms far out, which would widen τ: they add at most Σ weight·value, (x + y)₊ ≤ x₊ + y₊. Added.
- *Errors of the atoms*: positions are covered by the caller (`secret_order`), masses by e^(n·error).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpframe.accounting.arrays import FloatArray

_ATOMS = 1500
_NODE_RATIO = 0.02
"""Spacing of merged atoms, relative to their distance from zero or, near it, to the standard deviation."""
_SMOOTH = 0.005
_MAX_TAU_T = 6.5
"""Value of τ·t_J at the end of the sum: the integrand is below e^(−21) of its peak beyond."""
_BLOCK_FREQUENCIES, _MAX_FREQUENCY_BLOCKS = 64, 128
"""Size and largest number of blocks of frequencies t_j = j·step."""
_DROPPED_SHARE = 1e-3
"""Largest share of the bound that dropped atoms may cost."""
_GUESSES, _GUESS_WIDTH = 4, 1e-4
"""Number of guesses of the saddle, and relative distance of the two tests on either side of each."""
_TERM_ROUNDING = 4e-16
_MAX_VALUE = 1e154
"""Largest value of T: squares of larger values overflow, and no saddle could be computed."""
_NEGLIGIBLE_LOG = -50.0
"""Logarithm of |φ|ⁿ from which on its bound is added, as a sum of so small terms changes no digit."""
_BOUND_ATOMS = 200
"""Number of atoms by which |φ| is bounded at high frequencies."""


def merge(values: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Spread each atom to its two neighbours among nodes u·sinh(k·ratio), without changing mass and mean."""
    u = math.sqrt(float(weights @ values**2) / float(weights.sum()))
    index: FloatArray = np.arcsinh(values / u) / _NODE_RATIO
    low = int(np.floor(index.min())) - 1
    nodes: FloatArray = u * np.sinh(_NODE_RATIO * np.arange(low, int(np.ceil(index.max())) + 3))
    below = np.floor(index).astype(np.int64) - low
    # Rounding of arcsinh may put a value just outside its pair of nodes.
    below -= nodes[below] > values
    below += nodes[below + 1] < values
    upper = weights * ((values - nodes[below]) / (nodes[below + 1] - nodes[below]))
    merged = np.zeros(len(nodes))
    merged += np.bincount(below, weights - upper, len(nodes))
    merged += np.bincount(below + 1, upper, len(nodes))
    used = merged > 0
    return nodes[used], merged[used]


@dataclass(frozen=True)
class _Tilted:
    """The law of T tilted by e^(θT): log M(θ), atoms' probabilities, and moments of T."""

    theta: float
    log_mass: float
    inside: FloatArray
    outside: float
    mean: float
    variance: float


def _tilt(values: FloatArray, weights: FloatArray, outside: float, theta: float) -> _Tilted:
    exponent = theta * values
    # The largest exponential is 1 after the shift: none overflows.
    shift = max(0.0, float(exponent.max()))
    inside = weights * np.exp(exponent - shift)
    zero_mass = outside * math.exp(-shift)
    mass = float(inside.sum()) + zero_mass
    if shift > 1:
        log_mass = shift + math.log(mass)
    else:  # M is near 1, and n·log M needs all digits
        log_mass = math.log1p(float(weights @ np.expm1(exponent)) + (float(weights.sum()) + outside - 1))
    inside = inside / mass
    mean = float(inside @ values)
    variance = float(inside @ (values - mean) ** 2) + zero_mass / mass * mean**2
    return _Tilted(theta, log_mass, inside, zero_mass / mass, mean, variance)


def _saddle(values: FloatArray, weights: FloatArray, outside: float, n: int) -> _Tilted:
    """Tilt by the θ that minimises n·log M(θ) − 2·log θ, a convex function of θ (any θ > 0 is valid).

    θ·n·E[T], with E[T] of the tilted law, rises through 2 there. Bisection computes few means once two close points on
    either side are known. Guesses that take E[T] as linear in θ give these points.
    """
    start = 1.0 / math.sqrt(n * float(weights @ values**2))
    low, high = start / 4, start * 4
    below, above = (0.0, 0.0), (math.inf, 0.0)  # the nearest known points on either side, and their means

    def rising(theta: float) -> bool:
        nonlocal below, above
        if below[0] < theta < above[0]:
            exponent = theta * values
            shift = max(0.0, float(exponent[-1]))
            inside = weights * np.exp(exponent - shift)
            mass = float(inside.sum()) + outside * math.exp(-shift)
            mean = float((inside / mass) @ values)
            if theta * n * mean > 2:
                above = theta, mean
            else:
                below = theta, mean
        return theta >= above[0]

    while rising(low):
        low /= 16
    while not rising(high):
        if high * max(-float(values[0]), float(values[-1])) > 1e15:  # T has no mass above zero of any size
            break
        high *= 4
    for _ in range(_GUESSES):
        if not above[0] > below[0] * (1 + 3 * _GUESS_WIDTH) or math.isinf(above[0]):
            break
        steep = (above[1] - below[1]) / (above[0] - below[0])
        level = below[1] - steep * below[0]
        root = (math.sqrt(level * level + 8 * steep / n) - level) / (2 * steep) if steep > 0 else above[0] / 2
        rising(root * (1 - _GUESS_WIDTH))
        rising(root * (1 + _GUESS_WIDTH))
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rising(middle) else (middle, high)
    return _tilt(values, weights, outside, high)


def positive_mean(values: FloatArray, weights: FloatArray, outside: float, n: int, mass_error: float) -> float:
    """Return an upper bound on E[(T₁ + … + Tₙ)₊]/n.

    T is ``values`` with probabilities ``weights`` and 0 with probability ``outside``; no true probability
    exceeds these by more than the relative ``mass_error``.
    """
    if not (values > 0).any():
        return 0.0
    if np.abs(values).max() > _MAX_VALUE:
        return math.inf
    if len(values) > _ATOMS:
        values, weights = merge(values, weights)
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    value, heavy = _integral(values, weights, outside, n, mass_error)
    if not heavy:
        return value
    # Cost of dropping an atom and all above it: Σ weight·value, by (x + y)₊ ≤ x₊ + y₊.
    cost = np.cumsum((weights * np.maximum(values, 0))[::-1])[::-1] * (1 + 1e-12 + 2 * n * mass_error)
    best = min(value, float(cost[0]))
    for _ in range(8):
        # The remaining value may be far too small a measure, if the dropped atoms dominate.
        is_inner = cost > max(min(value, best), 1e-4 * best) * _DROPPED_SHARE
        if is_inner.all() or not is_inner.any():
            break
        dropped_cost, dropped_mass = float(cost[~is_inner][0]), float(weights[~is_inner].sum())
        value, _ = _integral(values[is_inner], weights[is_inner], outside + dropped_mass, n, mass_error)
        best = min(best, value + dropped_cost)
        if dropped_cost <= 2 * _DROPPED_SHARE * best:
            break
    return best


def _integral(values: FloatArray, weights: FloatArray, outside: float, n: int, mass_error: float) -> tuple[float, bool]:
    """Return the bound of the module's docstring, and whether rare atoms far out may have widened the smoothing."""
    law = _saddle(values, weights, outside, n)
    deviation = math.sqrt(n * law.variance)
    theta = law.theta
    step = 2 * math.pi / max(24 * deviation, 40 / theta)
    tau = max(min(_SMOOTH * deviation, 0.05 / theta), _MAX_TAU_T / (step * _BLOCK_FREQUENCIES * _MAX_FREQUENCY_BLOCKS))
    blocks = math.ceil(_MAX_TAU_T / tau / step / _BLOCK_FREQUENCIES)
    t: FloatArray = step * np.arange(blocks * _BLOCK_FREQUENCIES, dtype=np.float64)
    has_mass = law.inside > 0
    inner_values, inside = values[has_mass], law.inside[has_mass]
    spin, mass = float(inside @ np.abs(inner_values)), float(inside.sum())
    eta = _TERM_ROUNDING * (16 * (1 + mass) + 4 * spin * (t + step * _BLOCK_FREQUENCIES))
    needed = len(t)
    if len(inside) > 2 * _BOUND_ATOMS:
        # |φ| is at most the |φ| of some atoms and the mass of all others.
        largest = np.argsort(inside)[-_BOUND_ATOMS:]
        partial = _characteristic(inner_values[largest], inside[largest], step, len(t))
        log_powers = n * np.log(np.abs(partial) + (1 - float(inside[largest].sum())) + eta)
        needed = int(np.flatnonzero(log_powers >= _NEGLIGIBLE_LOG)[-1]) + 1
    phi = _characteristic(inner_values, inside, step, needed) + law.outside
    terms, round_off = _terms(phi, t[:needed], eta[:needed], tau, law, n)
    if needed < len(t):
        round_off = np.append(round_off, np.exp(log_powers[needed:]) / theta**2)
    last = float(t[-1])
    cut_tail = math.exp(-0.5 * (tau * last) ** 2) / (math.pi * last)
    shift = max(1.0, theta * float(values[-1]))
    log_scale = n * law.log_mass + 0.5 * (tau * theta) ** 2 + n * (mass_error + 8 * _TERM_ROUNDING * shift) + 1e-12
    value = step / (2 * math.pi) * (2 * terms.sum() - terms[0] + 2 * round_off.sum()) + cut_tail
    heavy = theta * float(values[-1]) > 3
    if not value > 0 or log_scale + math.log(value) > 600:
        return math.inf, heavy
    return max(math.exp(log_scale + math.log(value)) / n, 5e-324), heavy


def _characteristic(values: FloatArray, weights: FloatArray, step: float, count: int) -> NDArray[np.complex128]:
    """Return Σ weight·e^(itT) at t = 0, step, …, as products of two short tables, which double by products, too."""
    block = math.isqrt(count - 1) + 1
    tables = []
    for stride in (1, block):
        table = np.ones((1, len(values)), dtype=np.complex128)
        while len(table) < block:
            angles = (step * stride * len(table)) * values
            table = np.concatenate([table, table * (np.cos(angles) + 1j * np.sin(angles))])
        tables.append(table[:block])
    return np.asarray(((tables[1] * weights) @ tables[0].T).ravel()[:count])


def _terms(
    phi: NDArray[np.complex128], t: FloatArray, eta: FloatArray, tau: float, law: _Tilted, n: int
) -> tuple[FloatArray, FloatArray]:
    """Return the integrand at each t, scaled by its peak, and bounds on its round-off."""
    size = np.abs(phi)
    envelope = np.exp(-0.5 * (tau * t) ** 2) / (law.theta**2 + t**2)
    power = np.exp(n * np.log(np.maximum(size, 1e-300))) * envelope
    angle = n * np.angle(phi) + tau**2 * law.theta * t - 2 * np.arctan2(t, law.theta)
    round_off = n * eta * np.exp((n - 1) * np.log(np.minimum(size + eta, 1 + 1e-14))) * envelope + 1e-13 * power
    return power * np.cos(angle), round_off
