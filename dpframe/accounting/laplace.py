"""Scales of Laplace noise that is (ε, δ)-private: the tight one, and the one that the metric-spaces paper prints.

Laplace noise of scale b on a number that moves by Δ has the profile H(ε) = 1 − e^((ε − Δ/b)/2) for 0 ≤ ε ≤ Δ/b.
H(ε) = δ gives the tight scale. Mechanisms calibrate integers and use neither; the tight scale is their limit on fine
grids.
"""

from __future__ import annotations

import math

from dpframe.accounting.budget import check_delta, check_epsilon
from dpframe.errors import ParameterError


def laplace_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return the least scale b = Δ/(ε − 2·ln(1 − δ)) of (ε, δ)-private Laplace noise.

    >>> laplace_scale(1.0, 1.0, 0.0), round(laplace_scale(1.0, 1.0, 0.1), 4)
    (1.0, 0.826)
    """
    return _scale(sensitivity, epsilon, delta, 2.0)


def published_laplace_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return the scale b = Δ/(ε − ln(1 − δ)) of the metric-spaces paper, which is private, and not the least.

    >>> published_laplace_scale(1.0, 1.0, 0.0), round(published_laplace_scale(1.0, 1.0, 0.1), 4)
    (1.0, 0.9047)
    """
    return _scale(sensitivity, epsilon, delta, 1.0)


def _scale(sensitivity: float, epsilon: float, delta: float, factor: float) -> float:
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise ParameterError("sensitivity must be finite and above 0, e.g. sensitivity=1.0")
    return sensitivity / (check_epsilon(epsilon) - factor * math.log1p(-check_delta(delta)))
