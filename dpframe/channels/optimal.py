"""The mechanism of nearly least worst-case error, by linear programming."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpframe.accounting.budget import check_delta, check_epsilon, fewer_digits_down
from dpframe.accounting.finite import FiniteLoss
from dpframe.accounting.loss import ResponseLoss, response_probability
from dpframe.channels.base import register
from dpframe.channels.geometric import Geometric
from dpframe.channels.linear_programme import Programme, response_matrix, well_conditioned
from dpframe.channels.nullable import WithNull
from dpframe.channels.tabulated import WORD, MetricChannel, Weights, check_size, exponential_weights
from dpframe.errors import ParameterError
from dpframe.noise.tables import integer_weights
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

LARGEST_PROGRAMME = 40
"""Most codes that the linear programme is solved for: well under a second."""

_PROGRAMME_EPSILON = (1e-3, 10.0)
"""Outside, the channel is randomised response: below, no estimate is of use; above, it is all but optimal."""


@register
@dataclass(frozen=True)
class Optimal(MetricChannel):
    """The channel of nearly least worst-case error max_x E[ρ(Y, x)] that still allows good estimates.

    The least error is a linear programme (Theorem 10 of the categorical paper is its discrete case, where
    the channel is randomised response). Its optima are singular, so of what the optimum gains over the
    best of randomised response, the geometric and the exponential mechanism the share ``slack`` is given up,
    and the error of marginals is made small within that: see `dpframe.channels.linear_programme`. On 16 ranks at
    ε = 1 the worst-case errors, in shares of the diameter, are 0.316 for the programme, 0.354 for this,
    0.393 for the geometric mechanism and 0.452 for randomised response. Where single rows matter and marginals less,
    ``Optimal.calibrate(space, epsilon, delta, slack=0.01)`` for ``mechanisms={column: …}`` is within 1 % of the
    programme (the default 2 to 28 % above it), and the errors of marginals are 1.02 to 10.7 times as large (16 ranks,
    ε = 1: 1.7 times).

    With δ > 0 the row is released as it is with probability δ, else by the channel for ε: for the discrete
    metric that is optimal again, and elsewhere within 0.2 % of what a programme for (ε, δ) attains.

    See `Tabulated` for the parameters, and `Optimal.calibrate` to make one.
    """

    tag: ClassVar[str] = "optimal"

    @classmethod
    def calibrate(cls, space: Space, epsilon: float, delta: float, slack: float = 0.5) -> Optimal:
        """Make the mechanism for a space's distances.

        ``space``, ``epsilon`` and ``delta``: the space and the budget; ``slack``: share in (0, 1] of the gain in
        worst-case error that is given up for the error of marginals.
        """
        check_size(space, LARGEST_PROGRAMME, cls.tag)
        if isinstance(slack, bool) or not isinstance(slack, int | float) or not 0 < slack <= 1:
            raise ParameterError("slack must be a number above 0 and at most 1, e.g. slack=0.5")
        epsilon, delta = check_epsilon(epsilon), check_delta(delta)
        return cls(_optimal(space.metric, space.size, epsilon, delta, float(slack)), epsilon, delta, space.metric)


@lru_cache(maxsize=256)
def _optimal(metric: str, size: int, epsilon: float, delta: float, slack: float) -> Weights:
    if size == 1:
        return ((WORD,),)
    least, largest = _PROGRAMME_EPSILON
    if size > 2 and metric != "discrete" and least <= epsilon <= largest:
        programme = Programme(metric, size, epsilon)
        optimum, safe = programme.solve(), response_matrix(size, epsilon)
        low = programme.worst_error(optimum)
        best = _best_rival(metric, size, epsilon, delta, programme) / (1 - delta)
        if best > low * (1 + 1e-7):
            matrix = well_conditioned(programme, optimum, safe, low + slack * (best - low))
            return _rounded((1 - delta) * matrix + delta * np.eye(size), epsilon, delta)
    other = min(response_probability(size, epsilon, delta, 64), WORD // size)
    if ResponseLoss(WORD - (size - 1) * other, other, WORD).delta(epsilon) > delta:
        raise ParameterError(f"epsilon={epsilon:g} is too small for {size} codes; give it a larger share")
    return tuple(tuple(WORD - (size - 1) * other if y == x else other for y in range(size)) for x in range(size))


def _best_rival(metric: str, size: int, epsilon: float, delta: float, programme: Programme) -> float:
    """Return the least worst-case error of the simpler mechanisms."""
    additive = {"line": lambda: Geometric(size - 1, epsilon, delta)}.get(
        metric, lambda: WithNull(Geometric, (size - 2,), epsilon, delta)
    )
    keep = (1 - delta) * response_matrix(size, epsilon) + delta * np.eye(size)
    exponential = np.array(exponential_weights(metric, size, epsilon, delta), dtype=np.float64) / WORD
    others = [programme.worst_error(matrix) for matrix in (keep, exponential)]
    return min([*others, additive().expected_error()])


def _rounded(matrix: FloatArray, epsilon: float, delta: float) -> Weights:
    """Return the integer weights of a channel that meets (ε, δ) up to rounding, with a loss that does.

    What is exceeded by rounding is made good by mixing in the uniform law, which only lowers the loss. Of the
    programme's solution only digits are kept that do not depend on the processor.
    """
    size = len(matrix)
    matrix = np.array([[fewer_digits_down(p) for p in row] for row in matrix.tolist()])
    share = 0.0
    for attempt in range(60):
        mixed = matrix * (1 - share) + share / size
        table = tuple(tuple(integer_weights([int(p * 2.0**100) for p in row])) for row in mixed.tolist())
        if FiniteLoss(table, WORD).delta(epsilon) <= delta:
            return table
        share = 2.0 ** (attempt - 48) * max(1.0, epsilon)
    raise ParameterError(f"epsilon={epsilon:g} is too small for {size} codes; give it a larger share")
