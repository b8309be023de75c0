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
from dpframe.channels.tabulated import LARGEST_TABLE, MOST_CONDITION, Weights, WrittenLaws, condition
from dpframe.errors import ParameterError
from dpframe.noise.tables import WORD, integer_weights
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

_SIGMAS = 1e-2, 1e9
"""Least and largest scale, in grid steps and in spans, that are looked at."""

_SMOOTH = 50.0
"""From this σ on Σ e^(−k²/2σ²) is σ√(2π) to all digits (Poisson's formula: the next term is e^(−2π²σ²))."""

_FLOOR = math.exp(-38.0)
"""Least probability of an output: 64-bit weights resolve it to a thousandth."""


@register
@dataclass(frozen=True)
class Gaussian(WrittenLaws, Mechanism):
    """The discrete Gaussian mechanism on 0…span, P(k) ∝ e^(−k²/2σ²), saturated at both ends.

    σ is the least whose exact loss meets (ε, δ): the classical Δ√(2 ln(1.25/δ))/ε holds for ε < 1 only (Balle and Wang
    2018), and the discrete law has a profile of its own (Canonne, Kamath and Steinke 2020). A grid is bounded, so that
    δ may be 0.

    Where σ is more than a step or two the matrix is as good as singular, since the kernel is smooth and the ends,
    where the noise is cut, hide what a mean would be corrected by: then there is no such mechanism, for no estimate
    could be had of a release. That leaves grids of few values, or an ε of tens. It is read from plans that have it;
    new ones that name gaussian noise have it on a grid with room beyond the values (`wide_gaussian`).

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
        self._check_span(self.span, LARGEST_TABLE - 1)
        if not condition(self.transition()) < MOST_CONDITION:
            raise ParameterError(
                f"gaussian noise of scale {self.sigma:.3g} on {self.span} steps gives a matrix that is as good as "
                "singular, and no estimate could be had of a release; use staircase or geometric, or far fewer values"
            )

    @classmethod
    def shape_of(cls, space: Space) -> tuple[int, ...]:
        """Return the largest code."""
        if space.size > LARGEST_TABLE:
            raise ParameterError(
                f"mechanism gaussian is for at most {LARGEST_TABLE} codes, and space {space.tag} has {space.size}; "
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
    """Return the least σ, found in floats and then raised until the integers' loss fits, and the weights."""
    least, most = _SIGMAS[0], _SIGMAS[1] * span
    sigma = bisected(lambda sigma: _loses_at_most(span, sigma, epsilon, delta), most, least, 1e-12)
    for attempt in range(40):
        more = 2.0 ** (attempt - 46)
        laws = _weights_at(span, sigma * (1 + more), _FLOOR * (1 + math.sqrt(more)))
        if FiniteLoss(laws, WORD).delta(epsilon) <= delta:
            return sigma, laws
    raise ParameterError(f"epsilon={epsilon:g} is too small for gaussian noise on {span} steps; give it a larger share")


def _noise(span: int, sigma: float) -> FloatArray:
    """Return P(k) for k = −span…span, the ends holding the tails."""
    reach = span if sigma > _SMOOTH else span + math.ceil(12 * sigma)
    law = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * sigma**2))
    law /= sigma * math.sqrt(2 * math.pi) if sigma > _SMOOTH else law.sum()
    noise = law[reach - span : reach + span + 1].copy()
    noise[0] = noise[-1] = (1 - noise[1:-1].sum()) / 2 if sigma > _SMOOTH else law[: reach - span + 1].sum()
    return np.asarray(noise)


def _saturated(noise: FloatArray, span: int, code: int) -> FloatArray:
    start = span - code
    law = noise[start : start + span + 1].copy()
    law[0], law[-1] = noise[: start + 1].sum(), noise[start + span :].sum()
    return np.asarray(law)


def _loses_at_most(span: int, sigma: float, epsilon: float, delta: float) -> bool:
    """Return, in floats, whether the two ends, which are farthest apart, differ by no more than a budget."""
    noise = np.maximum(_noise(span, sigma), _FLOOR)
    low, high = _saturated(noise, span, 0), _saturated(noise, span, span)
    if delta == 0:
        return bool(np.log(low / high).max() <= epsilon)
    return float(np.maximum(low - math.exp(min(epsilon, 700.0)) * high, 0.0).sum()) <= delta


def _weights_at(span: int, sigma: float, floor: float) -> Weights:
    noise = [int(p * 2.0**120) for p in np.maximum(_noise(span, sigma), floor).tolist()]
    laws = []
    for code in range(span + 1):
        start = span - code
        law = noise[start : start + span + 1]
        law[0], law[-1] = sum(noise[: start + 1]), sum(noise[start + span :])
        laws.append(tuple(integer_weights(law)))
    return tuple(laws)
