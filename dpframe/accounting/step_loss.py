"""The loss of channels that are known by a step of Gaussian differential privacy above their profile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from dpframe.accounting.bisection import bisected
from dpframe.accounting.discrete_gaussian import IntegerNoise, lattice_profile
from dpframe.accounting.gaussian_dp import Step, step_delta, step_epsilon
from dpframe.accounting.loss import PrivacyLoss
from dpframe.accounting.undercurve import Profile


@dataclass(frozen=True)
class StepLoss(PrivacyLoss):
    """Loss of a channel whose profile is at most δ₀ + (1 − δ₀)·G_μ (`gaussian_dp`), without a pure ε.

    >>> loss = StepLoss(Step(0.2367))
    >>> round(loss.epsilon(1e-6), 3), loss.pure()
    (1.0, inf)
    """

    curve_step: Step

    def pure(self) -> float:
        """Return infinity: no ε holds at δ = 0."""
        return math.inf

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        return Decimal(step_delta(self.curve_step, float(epsilon)))

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the least ε, rounded up, for which the channel is (ε, δ)-private."""
        return step_epsilon(self.curve_step, delta)

    @property
    def step(self) -> Step:
        """The step itself."""
        return self.curve_step


_MAX_TRUNCATED_MASS = 1e-30
"""Largest mass of the truncated tails of one number's noise."""


@dataclass(frozen=True)
class NoiseLoss(StepLoss):
    """Loss of discrete Gaussian noise on one number, by its lattice law, which lies below the curve of its step.

    >>> loss = NoiseLoss(Step(0.25, 1e-7), IntegerNoise(1e4, numbers=1, span=20))
    >>> loss.delta(1.0) < StepLoss(loss.curve_step).delta(1.0)
    True
    """

    noise: IntegerNoise

    @cached_property
    def _profile(self) -> Profile:
        return lattice_profile(self.noise, self.noise.span, _MAX_TRUNCATED_MASS)

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        return min(super()._curve(epsilon), Decimal(self._profile(float(epsilon))))

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the least ε, rounded up, for which the channel is (ε, δ)-private."""
        high = super().epsilon(delta)
        if high in (0.0, math.inf) or self.delta(0.0) <= delta:
            return high if high == math.inf else 0.0
        return bisected(lambda epsilon: self.delta(epsilon) <= delta, high, 0.0)
