"""The least discrete Gaussian noise on several totals whose exact cost is within a μ: one search for all uses.

Inference, measured tables and answers to queries differ only in the function that gives the joint cost of noises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpframe.accounting.discrete_gaussian import IntegerNoise
from dpframe.accounting.gaussian_dp import Step
from dpframe.noise.gaussian import LARGEST_SCALE

COARSEST = 0.3
"""Least σ² of measured tables and inference: less noise would show no more (theory: bound of the lattice law)."""
LEAST_ANSWER_SIGMA2 = 0.08
"""Least σ² of an answer: the certificate of smaller noise needs losses beyond the precision of its table (theory: bound
of the lattice law)."""
FAINTEST = 2.0**-80
"""Least slack: below it the distances of noise tables from their laws would count (tolerance)."""
CLEAREST = 3.0
"""Largest μ that the search for noise starts from: the lattice law of less noise is hard to bound (theory: bound of
the lattice law)."""
_NOISE_RAISE_FACTOR = 1 + 2e-5
"""Factor by which noise is raised beyond the estimate, so that the next exact step fits (tolerance)."""
_MAX_RAISE = 4.0
"""Largest factor by which noise is raised at once (tolerance)."""
_SIGMA2_BINARY_DIGITS = 12
"""Binary digits of a rounded σ² (tolerance)."""

Cost = Callable[[Sequence[float]], Step]
"""Maps all σ² to the joint cost of the noises."""


def least_noise(
    queries: Sequence[IntegerNoise], weights: Sequence[float], mu: float, contributions: int, cost: Cost
) -> list[float] | None:
    """Return σ² of every query's noise, or None if it would exceed all tables of noise.

    The search begins at the normal law's noise, moves·(k·span/μ)²/weight, and raises all noises by one factor until the
    exact step of the lattice laws is within μ. The σ² of ``queries`` is not read; ``weights`` are shares of μ².
    """
    factor = 1.0
    while True:
        exact_variances = [
            query.moves * (contributions * query.span / mu) ** 2 * factor / weight
            for query, weight in zip(queries, weights, strict=True)
        ]
        if max(exact_variances) > LARGEST_SCALE**2 / 4:
            return None
        variances = [max(COARSEST, rounded_up(sigma2)) for sigma2 in exact_variances]
        spent = cost(variances)
        if spent.mu <= mu:
            return variances
        # μ² is nearly in inverse proportion to σ², so that few turns suffice.
        factor *= min(_MAX_RAISE, (spent.mu / mu) ** 2 * _NOISE_RAISE_FACTOR)


def rounded_up(sigma2: float) -> float:
    """Return a number at least as large with 12 binary digits, so that few tables of noise are needed.

    >>> rounded_up(1000.1), rounded_up(0.3)
    (1000.25, 0.300048828125)
    """
    return size_at(place_of(sigma2))


def place_of(sigma2: float) -> int:
    """Return the place of a number, rounded up, among the numbers of 12 binary digits."""
    mantissa, exponent = math.frexp(sigma2)
    return math.ceil(mantissa * (1 << _SIGMA2_BINARY_DIGITS)) + (exponent << (_SIGMA2_BINARY_DIGITS - 1))


def size_at(place: int) -> float:
    """Return the number at a place."""
    half = 1 << (_SIGMA2_BINARY_DIGITS - 1)
    exponent = (place - half) // half
    return math.ldexp(place - exponent * half, exponent - _SIGMA2_BINARY_DIGITS)
