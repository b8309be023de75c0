"""What channels of Gaussian noise share: the step that a budget buys, the least noise within it, and null's flag."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar

from dpframe.accounting.budget import Budget, fewer_digits_up
from dpframe.accounting.gaussian_dp import Step, composed_steps, promise_step, pure_step
from dpframe.accounting.step_loss import StepLoss
from dpframe.channels.base import Channel, Mechanism, response_loss, response_table
from dpframe.errors import ParameterError
from dpframe.noise.gaussian import GaussianTable, gaussian_table
from dpframe.noise.tables import ResponseTable

_BELOW = 1 - 1e-12
"""Part of an ε that a step is made for, so that nothing is lost to rounding when it is compared with that ε."""

_ATTEMPTS, _MORE = 20, 1e-5
"""How often σ² is raised until its law is proved to lie under a curve, and by how much above what the proof asks."""


class GaussianMechanism(Mechanism):
    """Gaussian noise as it is calibrated, on one number or several: what follows from its table and its step."""

    takes_delta: ClassVar[bool] = True

    @property
    @abstractmethod
    def table(self) -> GaussianTable:
        """The integers that noise is sampled from."""

    @property
    @abstractmethod
    def own_step(self) -> Step:
        """The largest step within the budget."""

    @property
    @abstractmethod
    def step_from_centre(self) -> Step:
        """What the noise costs of a value against the centre."""

    @classmethod
    def beside_flag(cls, shape: tuple[Any, ...], epsilon: float, delta: float) -> tuple[ResponseTable, Channel]:
        """Return a flag and noise at the whole μ: flag and the way from the centre come to μ together."""
        make: Any = cls
        values: GaussianMechanism = make(*shape, epsilon, delta)
        return flag_within(values.own_step, values.step_from_centre), values

    @property
    def sigma(self) -> float:
        """Scale of the noise in grid steps."""
        return math.sqrt(self.table.sigma2)

    def loss_beside(self, flag: ResponseTable) -> StepLoss:
        """Return the curve above value against value, null against value and back."""
        return StepLoss(step_beside(flag, self.own_step, self.step_from_centre))


def claimed_step(epsilon: float, delta: float, remedy: str) -> Step:
    """Return the step that noise of a budget is made for: a function of just the budget."""
    if not delta > 0:
        raise ParameterError(f"gaussian noise on {remedy}")
    return promise_step(Budget(epsilon * _BELOW, delta))


def least_table(sigma2: float, whole: Step, cost: Callable[[GaussianTable], Step]) -> GaussianTable | None:
    """Return the table of least noise, about, that costs no more than a step, from a first σ² on; None if none does."""
    for _ in range(_ATTEMPTS):
        table = gaussian_table(fewer_digits_up(sigma2))
        found = cost(table)
        if found.mu <= whole.mu:
            return table
        sigma2 *= (found.mu / whole.mu) ** 2 * (1 + _MORE)
    return None


def flag_within(whole: Step, from_centre: Step) -> ResponseTable:
    """Return the null flag that comes to a step together with noise about the centre."""
    from scipy import special  # imported late, as all of SciPy

    left = max(float(whole.square - from_centre.square), 0.0) * _BELOW
    # The inverse of `pure_step`: e^ε/(1 + e^ε) = Φ(μ/2).
    flag = float(special.logit(special.ndtr(math.sqrt(left) / 2))) * _BELOW
    return response_table(2, flag)


def step_beside(flag: ResponseTable, whole: Step, from_centre: Step) -> Step:
    """Return the step above value against value, null against value and back."""
    shown = composed_steps([pure_step(response_loss(flag).pure()), from_centre])
    return max(shown, whole, key=attrgetter("mu"))
