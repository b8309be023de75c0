"""The least discrete Gaussian noise on several totals whose exact cost is within a μ: one search for all that is asked.

Inference, measured tables and answers to queries differ in what their noises cost together, and in nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpframe.accounting.discrete_gaussian import IntegerNoise
from dpframe.accounting.gaussian_dp import Step
from dpframe.noise.gaussian import LARGEST_SCALE

COARSEST = 0.3
"""σ² of the least noise: the lattice law of less would be of no use (theory: bound of the lattice law)."""
FAINTEST = 2.0**-80
"""A slack below which the distances of noise from its law count (tolerance)."""
CLEAREST = 3.0
"""μ of an answer beyond which less noise would show nothing more, and its lattice law is hard to bound (theory: bound
of the lattice law)."""
_ABOVE = 1 + 2e-5
"""Factor by which noise is raised until its exact step fits (tolerance)."""
_COARSER = 4.0
"""Most that noise is raised by at once (tolerance)."""
_DIGITS = 12
"""Binary digits of a rounded σ² (tolerance)."""

Cost = Callable[[Sequence[float]], Step]
"""What noises of these σ² cost together."""


def least_noise(
    queries: Sequence[IntegerNoise], weights: Sequence[float], mu: float, contributions: int, cost: Cost
) -> list[float] | None:
    """Return σ² of every query's noise, or None where it would exceed all tables of noise.

    The search begins at the normal law's noise, moves·(k·span/μ)²/weight, and raises all noises by one factor until the
    exact step of the lattice laws is within μ. The queries' own σ² is not read; ``weights`` are their shares of μ².
    """
    factor = 1.0
    while True:
        scales = [
            query.moves * (contributions * query.span / mu) ** 2 * factor / weight
            for query, weight in zip(queries, weights, strict=True)
        ]
        if max(scales) > LARGEST_SCALE**2 / 4:
            return None
        found = [max(COARSEST, rounded_up(sigma2)) for sigma2 in scales]
        spent = cost(found)
        if spent.mu <= mu:
            return found
        factor *= min(_COARSER, (spent.mu / mu) ** 2 * _ABOVE)


def rounded_up(sigma2: float) -> float:
    """Return a number at least as large with 12 binary digits, so that few tables of noise are needed.

    >>> rounded_up(1000.1), rounded_up(0.3)
    (1000.25, 0.300048828125)
    """
    return size_at(place_of(sigma2))


def place_of(sigma2: float) -> int:
    """Return the place of a number, rounded up, among those of 12 binary digits."""
    mantissa, exponent = math.frexp(sigma2)
    return math.ceil(mantissa * (1 << _DIGITS)) + (exponent << (_DIGITS - 1))


def size_at(place: int) -> float:
    """Return the number at a place."""
    half = 1 << (_DIGITS - 1)
    exponent = (place - half) // half
    return math.ldexp(place - exponent * half, exponent - _DIGITS)
