"""The loss of channels that are a step in the currency of everything: known by the curve that lies above them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from dpframe.accounting.gaussian_dp import Step, step_delta, step_epsilon
from dpframe.accounting.loss import PrivacyLoss


@dataclass(frozen=True)
class StepLoss(PrivacyLoss):
    """Loss of a channel whose profile is at most δ₀ + (1 − δ₀)·G_μ (`gaussian_dp`): of no pure ε.

    Examples
    --------
    >>> loss = StepLoss(Step(0.2367))
    >>> round(loss.epsilon(1e-6), 3), loss.pure()
    (1.0, inf)
    """

    own: Step

    def pure(self) -> float:
        """Return infinity: no ε holds at δ = 0."""
        return math.inf

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        return Decimal(step_delta(self.own, float(epsilon)))

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the least ε, rounded up, for which the channel is (ε, δ)-private."""
        return step_epsilon(self.own, delta)

    @property
    def step(self) -> Step:
        """The step itself."""
        return self.own
