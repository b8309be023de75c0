"""Unshuffled rows together with central noise: the exact sum of a lattice law and a Gaussian.

An unshuffled row's columns are nothing like Gaussian (randomised response ends at its ε), so they do not enter
as a step: the curve above them would cost too much. But they have a dominating pair whose loss lies on a lattice
(`composition`), the rest has (1−δ₀)·N(μ, 1) + δ₀·⊤ (`gaussian_dp`), and dominating pairs multiply under adaptive
composition. With P the law of the lattice's ln R under its own first law,

    δ(ε) = δ₀ + (1 − δ₀)·Σ_a P(a)·G_μ(ε − a),

as the hockey-stick divergence of p·N(μ, 1) and p'·N(0, 1) at e^ε is p times that of the two normals at e^ε·p'/p. It
is the mean of a convex function of R, so that spreading R on the lattice only raises it (`composition`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpframe.accounting.composition import ERROR, LARGEST, ratio_law
from dpframe.accounting.dominating import ColumnLoss, check_losses, total_epsilon
from dpframe.accounting.gaussian_dp import Step, log_gaussian, step_delta
from dpframe.errors import ParameterError

_SUMMED = 2e-12
"""Relative rounding of a sum over the lattice."""


def response_parts(epsilons: Sequence[float]) -> list[ColumnLoss]:
    """Return the parts of columns known only by their losses: randomised response on two outcomes.

    Examples
    --------
    >>> response_parts([1.0])
    [ColumnLoss(epsilon=1.0, blanket=0.5378828427399902)]
    """
    return [ColumnLoss(epsilon, 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon))) for epsilon in epsilons]


def mixed_delta(parts: Sequence[ColumnLoss], step: Step, epsilon: float) -> float:
    """Return an upper bound on δ(ε) of one unshuffled row with these columns, and all else that is a step.

    Raises
    ------
    ParameterError
        For a negative ε, or parts of another type.

    Examples
    --------
    >>> round(mixed_delta(response_parts([0.064] * 15), Step(0.0749, 1e-7), 1.0), 8)
    1.05e-06
    """
    lossy = check_losses(parts)
    if not epsilon >= 0:
        raise ParameterError("epsilon must be at least 0")
    if max((part.epsilon for part in lossy), default=0.0) > LARGEST:
        return 1.0
    if not lossy:
        return step_delta(step, epsilon)
    logs, law = ratio_law(tuple(sorted(lossy, key=lambda part: (part.epsilon, part.blanket))))
    error = ERROR * (1 + total_epsilon(lossy))
    rest = epsilon - 3 * error - logs
    if step.mu == 0:
        gain = -np.expm1(np.minimum(rest, 0.0))
    else:
        far = np.exp(log_gaussian(step.mu, np.abs(rest))[1])
        gain = np.where(rest >= 0, far, -np.expm1(np.minimum(rest, 0.0)) + np.exp(np.minimum(rest, 0.0)) * far)
    # Masses under P, so that no ratio overflows: p·G(ε − ln R).
    mass = np.exp(np.log(np.maximum(law, 1e-320)) + logs)
    return min(1.0, (step.delta + (1 - step.delta) * float(mass @ gain)) * (1 + error + _SUMMED))
