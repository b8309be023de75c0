"""Gaussian noise on short grids, saturated at their ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpframe.accounting.bisection import bisected
from dpframe.accounting.finite import FiniteLoss
from dpframe.channels.base import Mechanism, register
from dpframe.channels.tabulated import MAX_STORED_CODES, MOST_CONDITION, Weights, WrittenLaws, condition
from dpframe.errors import ParameterError
from dpframe.noise.tables import WORD, integer_weights
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

_SIGMA_RANGE = 1e-2, 1e9
"""Least scale in grid steps, and largest scale in spans, of the search."""

_MIN_POISSON_SIGMA = 50.0
"""Least σ at which Σ e^(−k²/2σ²) is σ√(2π) to all digits (Poisson's formula: the next term is e^(−2π²σ²))."""

_MIN_PROBABILITY = math.exp(-38.0)
"""Least probability of an output: 64-bit weights resolve it to a thousandth."""


@register
@dataclass(frozen=True)
class Gaussian(WrittenLaws, Mechanism):
    """The discrete Gaussian mechanism on 0…span, P(k) ∝ e^(−k²/2σ²), saturated at both ends.

    σ is the least whose exact loss meets (ε, δ): the classical Δ√(2 ln(1.25/δ))/ε holds for ε < 1 only (Balle and Wang
    2018), and the discrete law has another profile (Canonne, Kamath and Steinke 2020). A grid is bounded, so that
    δ may be 0.

    For σ above a step or two the matrix is as good as singular, since the kernel is smooth and saturation at the ends
    removes the information that would correct a mean. Then no estimate is possible and the mechanism is refused. Grids
    of few values remain, or an ε of tens. Only stored plans have the mechanism; new plans that name gaussian noise use
    a grid with room beyond the values (`wide_gaussian`).

    ``span``: largest code, 1 to 255. ``epsilon`` and ``delta``: the budget; see `dpframe.accounting.budget`.
    """

    span: int
    epsilon: float
    delta: float = 0.0
    size: int = field(init=False, repr=False)

    tag: ClassVar[str] = "gaussian"
    metrics: ClassVar[frozenset[str]] = frozenset({"line"})
    retired: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check_span(self.span, MAX_STORED_CODES - 1)
        if not condition(self.transition()) < MOST_CONDITION:
            raise ParameterError(
                f"gaussian noise of scale {self.sigma:.2g} on {self.span} steps gives a nearly singular matrix, "
                "without estimates; use the mechanism staircase"
            )

    @classmethod
    def shape_of(cls, space: Space) -> tuple[int, ...]:
        """Return the largest code."""
        if space.size > MAX_STORED_CODES:
            raise ParameterError(
                f"mechanism gaussian is for at most {MAX_STORED_CODES} codes, and space {space.tag} has {space.size}; "
                "use staircase or geometric, or declare fewer values"
            )
        return (space.size - 1,)

    @property
    def sigma(self) -> float:
        """Scale of the noise in grid steps."""
        return _calibrated(self.span, self.epsilon, self.delta)[0]

    @property
    def laws(self) -> Weights:
        """The law of every value."""
        return _calibrated(self.span, self.epsilon, self.delta)[1]


@lru_cache(maxsize=256)
def _calibrated(span: int, epsilon: float, delta: float) -> tuple[float, Weights]:
    """Return the least σ, computed in floats and then raised until the integers' loss fits, and the weights."""
    smallest, largest = _SIGMA_RANGE[0], _SIGMA_RANGE[1] * span
    sigma = bisected(lambda sigma: _loses_at_most(span, sigma, epsilon, delta), largest, smallest, 1e-12)
    for attempt in range(40):
        # Floats and integers differ by about 2^-46; each attempt doubles the excess.
        raise_share = 2.0 ** (attempt - 46)
        laws = _weights_at(span, sigma * (1 + raise_share), _MIN_PROBABILITY * (1 + math.sqrt(raise_share)))
        if FiniteLoss(laws, WORD).delta(epsilon) <= delta:
            return sigma, laws
    raise ParameterError(f"epsilon={epsilon:g} is too small for gaussian noise on {span} steps; give it a larger share")


def _noise(span: int, sigma: float) -> FloatArray:
    """Return P(k) for k = −span…span; the ends have the tails."""
    reach = span if sigma > _MIN_POISSON_SIGMA else span + math.ceil(12 * sigma)
    law = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * sigma**2))
    # A wide law is normalised by its closed form, as its tails lie outside the array.
    law /= sigma * math.sqrt(2 * math.pi) if sigma > _MIN_POISSON_SIGMA else law.sum()
    noise = law[reach - span : reach + span + 1].copy()
    noise[0] = noise[-1] = (1 - noise[1:-1].sum()) / 2 if sigma > _MIN_POISSON_SIGMA else law[: reach - span + 1].sum()
    return np.asarray(noise)


def _saturated(noise: FloatArray, span: int, code: int) -> FloatArray:
    start = span - code
    law = noise[start : start + span + 1].copy()
    law[0], law[-1] = noise[: start + 1].sum(), noise[start + span :].sum()
    return np.asarray(law)


def _loses_at_most(span: int, sigma: float, epsilon: float, delta: float) -> bool:
    """Return, in floats, whether the two ends, which are farthest apart, differ by no more than a budget."""
    noise = np.maximum(_noise(span, sigma), _MIN_PROBABILITY)
    low, high = _saturated(noise, span, 0), _saturated(noise, span, span)
    if delta == 0:
        return bool(np.log(low / high).max() <= epsilon)
    return float(np.maximum(low - math.exp(min(epsilon, 700.0)) * high, 0.0).sum()) <= delta


def _weights_at(span: int, sigma: float, floor: float) -> Weights:
    # Integers of 120 bits: their sums over saturated ends are exact.
    noise = [int(p * 2.0**120) for p in np.maximum(_noise(span, sigma), floor).tolist()]
    laws = []
    for code in range(span + 1):
        start = span - code
        law = noise[start : start + span + 1]
        law[0], law[-1] = sum(noise[: start + 1]), sum(noise[start + span :])
        laws.append(tuple(integer_weights(law)))
    return tuple(laws)
