"""The mechanism of nearly least worst-case error, by linear programming.

A channel P is ε-private if and only if there are v_y with v_y ≤ P(y|x) ≤ e^ε·v_y, so that only 2·size²
constraints are needed. Optima of the programme collapse outputs: their matrices are singular or nearly so, and no
estimate is possible. The channel here lies between the optimum and the best of the simpler mechanisms, and has the
smallest error of marginals that a search there reaches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.accounting.budget import check_delta, check_epsilon, fewer_digits_down
from dpframe.accounting.finite import FiniteLoss
from dpframe.accounting.loss import ResponseLoss, response_probability
from dpframe.channels.base import distances, register
from dpframe.channels.geometric import Geometric
from dpframe.channels.nullable import WithNull
from dpframe.channels.tabulated import MetricChannel, Weights, check_size, exponential_weights
from dpframe.errors import ParameterError
from dpframe.noise.tables import WORD, integer_weights
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

IndexArray = npt.NDArray[np.intp]

_MAX_PROGRAMMES = 12
"""Most linear programmes of the search for a small marginal error; it ends after a gain below 0.5 %."""

_MAX_CORRECTIONS = 6
"""Most moves between the known channels after each programme: a move costs less than a programme."""

_STEP_SHARES = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.01, 0.003)
"""Lengths of the candidate steps, as shares of the longest."""

_MAX_INVERSE_SUM = 1e9
"""Largest absolute column sum of an inverse that does not count as singular."""

_FEASIBILITY_TOLERANCE = 1e-10


def response_matrix(size: int, epsilon: float) -> FloatArray:
    """Return the ideal matrix of randomised response."""
    off_diagonal = 1 / (math.exp(epsilon) + size - 1)
    return np.asarray(np.full((size, size), off_diagonal) + np.eye(size) * (1 - size * off_diagonal))


class Programme:
    """All ε-private channels on a metric, P[x, y] symmetric under x → m − x, and linear goals over them.

    ``metric`` and ``size``: the metric of codes 0…size−1, as in `distances`; ``epsilon``: the loss of the channels.
    """

    def __init__(self, metric: str, size: int, epsilon: float) -> None:
        self.size, self.odds = size, math.exp(epsilon)
        self.rho = distances(metric, size)
        # Averaging a channel with its mirror image keeps the loss and raises no error.
        ends = {"discrete": size, "line": size, "nullable line": size - 1}[metric]
        mirror = np.arange(size)
        if metric != "discrete":
            mirror[:ends] = mirror[:ends][::-1]
        index = np.arange(size * size).reshape(size, size)
        # A cell and its mirror image get one number.
        _, orbit = np.unique(np.minimum(index, index[np.ix_(mirror, mirror)]), return_inverse=True)
        self.cell: IndexArray = orbit.reshape(size, size)
        cells = int(self.cell.max()) + 1
        _, orbit = np.unique(np.minimum(np.arange(size), mirror), return_inverse=True)
        self.floor: IndexArray = cells + orbit
        self.error = int(self.floor.max()) + 1
        self.inputs = np.flatnonzero(np.arange(size) <= mirror)

    @cached_property
    def _constraints(self) -> tuple[Any, FloatArray, Any, FloatArray]:
        """v_y − P ≤ 0, P − e^ε·v_y ≤ 0, Σ_y P·ρ − error ≤ 0, and rows that sum to 1."""
        from scipy import sparse  # imported late, as all of SciPy

        # Cells of one orbit share a variable, so that one constraint serves for all of them.
        first = np.unique(self.cell, return_index=True)[1]
        cells, floors = self.cell.ravel()[first], self.floor[first % self.size]
        count, k, rows = len(cells), self.size, np.arange(len(cells))
        ones = np.ones(count)
        inputs = len(self.inputs)
        outputs = self.cell[self.inputs]
        costs = self.rho[self.inputs]
        line = np.repeat(np.arange(inputs), k)
        values = [ones, -ones, ones, -self.odds * ones, costs.ravel(), -np.ones(inputs)]
        row_parts = [rows, rows, count + rows, count + rows, 2 * count + line, 2 * count + np.arange(inputs)]
        column_parts = [floors, cells, cells, floors, outputs.ravel(), np.full(inputs, self.error)]
        shape = (2 * count + inputs, self.error + 1)
        upper = sparse.csr_matrix(
            (np.concatenate(values), (np.concatenate(row_parts), np.concatenate(column_parts))), shape
        )
        equal = sparse.csr_matrix((np.ones(inputs * k), (line, outputs.ravel())), (inputs, shape[1]))
        return upper, np.zeros(shape[0]), equal, np.ones(inputs)

    def solve(self, goal: FloatArray | None = None, max_error: float | None = None) -> FloatArray:
        """Return the channel with the least Σ goal·P and a worst-case error up to ``max_error``, or the least error."""
        from scipy import optimize

        costs = np.zeros(self.error + 1)
        if goal is None:
            costs[self.error] = 1.0
        else:
            np.add.at(costs, self.cell.ravel(), goal.ravel() / max(float(np.abs(goal).max()), 1e-300))
        bounds: list[tuple[float, float | None]] = [(0, None)] * self.error + [(0, max_error)]
        upper, limits, equal, ones = self._constraints
        # Presolving costs more than it saves.
        options = {
            "presolve": False,
            "primal_feasibility_tolerance": _FEASIBILITY_TOLERANCE,
            "dual_feasibility_tolerance": _FEASIBILITY_TOLERANCE,
        }
        linprog: Any = optimize.linprog
        solution = linprog(costs, upper, limits, equal, ones, bounds, method="highs", options=options)
        if solution.x is None:
            raise ParameterError(
                f"no optimal mechanism of {self.size} codes was found at this epsilon; use another mechanism"
            )
        # The solver's tolerance allows slightly negative probabilities.
        matrix = np.maximum(solution.x[self.cell], 0.0)
        return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))

    def worst_error(self, matrix: FloatArray) -> float:
        """Return max_x E[ρ(Y, x)]."""
        return float((matrix * self.rho).sum(axis=1).max())


def marginal_error(matrix: FloatArray) -> float:
    """Return Σ_v Var φ_v = tr(A⁻¹ diag(At) A⁻ᵀ) − Σt², A = matrixᵀ, t uniform: the variance of shares, a row.

    Infinite if the matrix is singular, or nearly.
    """
    try:
        inverse = np.linalg.inv(matrix.T)
    except np.linalg.LinAlgError:
        return math.inf
    if not np.abs(inverse).sum(axis=0).max() < _MAX_INVERSE_SUM:
        return math.inf
    return float((inverse**2).sum(axis=0) @ matrix.mean(axis=0)) - 1 / len(matrix)


def _slope(matrix: FloatArray) -> FloatArray:
    """Return the derivative of `marginal_error` by every entry."""
    inverse, released = np.linalg.inv(matrix.T), matrix.mean(axis=0)
    second = (inverse * released) @ inverse.T
    return np.asarray((inverse**2).sum(axis=0) / len(matrix) - 2 * (second @ inverse))


def well_conditioned(programme: Programme, optimum: FloatArray, safe: FloatArray, max_error: float) -> FloatArray:
    """Return a channel of worst-case error at most ``max_error`` with a small error of marginals.

    Channels are a convex set, so that steps towards the best channel along the slope of the marginal error stay in it
    (Frank and Wolfe 1956, with corrections between known channels, Lacoste-Julien and Jaggi 2015). The start is a
    mixture with ``safe``, randomised response. It mixes the optimum itself or the channel with the largest trace
    half-way to ``max_error``, by the smaller marginal error.
    """
    upright = programme.solve(-np.eye(programme.size), (programme.worst_error(optimum) + max_error) / 2)
    starts = [_mix_to_error(programme, start, safe, max_error) for start in (optimum, upright)]
    best = min(starts, key=marginal_error)
    vertices, shares, value = [best], [1.0], marginal_error(best)
    for _ in range(_MAX_PROGRAMMES):
        # A singular start has no slope to follow.
        if math.isinf(value):
            break
        vertices.append(programme.solve(_slope(best), max_error))
        shares.append(0.0)
        last_value = value
        for _ in range(_MAX_CORRECTIONS):
            result = _move(vertices, shares, best, value)
            if result is None:
                break
            shares, best, value = result
        if value > last_value * 0.995:
            break
    return best


def _move(
    vertices: list[FloatArray], shares: list[float], best: FloatArray, value: float
) -> tuple[list[float], FloatArray, float] | None:
    """Return the shares, mixture and marginal error after the best of two steps, None if neither gains.

    Either all of the mixture moves towards the channel of steepest descent, or only the share of the channel of
    steepest ascent.
    """
    slope = _slope(best)
    scores = np.array([float((slope * matrix).sum()) for matrix in vertices])
    weights = np.array(shares)
    best_vertex, worst = int(np.argmin(scores)), int(np.argmax(np.where(weights > 0, scores, -np.inf)))
    target = np.eye(len(vertices))[best_vertex]
    steps = [target - weights, weights[worst] * (target - np.eye(len(vertices))[worst])]
    candidates: list[tuple[float, FloatArray, FloatArray]] = []
    for step in steps:
        direction = np.asarray(sum(w * matrix for w, matrix in zip(step, vertices, strict=True)))
        for share in _STEP_SHARES:
            matrix = best + share * direction
            candidates.append((marginal_error(matrix), matrix, weights + share * step))
    best_error, matrix, new_shares = min(candidates, key=lambda one: one[0])
    return (new_shares.tolist(), matrix, best_error) if best_error < value * (1 - 1e-4) else None


def _mix_to_error(programme: Programme, matrix: FloatArray, safe: FloatArray, max_error: float) -> FloatArray:
    low, high = programme.worst_error(matrix), programme.worst_error(safe)
    share = min(1.0, max(0.0, (max_error - low) / (high - low))) if high > low else 1.0
    return np.asarray(matrix + (safe - matrix) * share)


LARGEST_PROGRAMME = 40
"""Most codes of the linear programme: it takes well under a second."""

_PROGRAMME_EPSILON = (1e-3, 10.0)
"""Range of ε of the programme. Outside it is randomised response: below no estimate is of use, above it is nearly
optimal."""


@register
@dataclass(frozen=True)
class Optimal(MetricChannel):
    """The channel of nearly least worst-case error max_x E[ρ(Y, x)] that still allows good estimates.

    The least error is a linear programme (Theorem 10 of the categorical paper is its discrete case, where
    the channel is randomised response). Its optima are singular. Therefore the channel gives up the share ``slack`` of
    the optimum's gain over the best of randomised response, the geometric and the exponential mechanism, and makes the
    error of marginals small within that: see `dpframe.channels.optimal`. On 16 ranks at
    ε = 1 the worst-case errors, in shares of the diameter, are 0.316 for the programme, 0.354 for this,
    0.393 for the geometric mechanism and 0.452 for randomised response. If single rows matter more than marginals,
    ``Optimal.calibrate(space, epsilon, delta, slack=0.01)`` for ``mechanisms={column: …}`` is within 1 % of the
    programme (the default 2 to 28 % above it), and the errors of marginals are 1.02 to 10.7 times as large (16 ranks,
    ε = 1: 1.7 times).

    With δ > 0 the row is released unchanged with probability δ, else by the channel for ε. For the discrete metric that
    is optimal again, and elsewhere within 0.2 % of the error of a programme for (ε, δ).

    See `Tabulated` for the parameters, and `Optimal.calibrate` to make one.
    """

    tag: ClassVar[str] = "optimal"

    @classmethod
    def calibrate(cls, space: Space, epsilon: float, delta: float, slack: float = 0.5) -> Optimal:
        """Make the mechanism for a space's distances; ``slack`` is the share in (0, 1] of the gain in worst-case error
        that is given up for the error of marginals.
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
    smallest, largest = _PROGRAMME_EPSILON
    if size > 2 and metric != "discrete" and smallest <= epsilon <= largest:
        programme = Programme(metric, size, epsilon)
        optimum, safe = programme.solve(), response_matrix(size, epsilon)
        low = programme.worst_error(optimum)
        best = _best_rival(metric, size, epsilon, delta, programme) / (1 - delta)
        # Without a gain over the simpler mechanisms randomised response is enough.
        if best > low * (1 + 1e-7):
            matrix = well_conditioned(programme, optimum, safe, low + slack * (best - low))
            return _round_weights((1 - delta) * matrix + delta * np.eye(size), epsilon, delta)
    off_diagonal = min(response_probability(size, epsilon, delta, 64), WORD // size)
    if ResponseLoss(WORD - (size - 1) * off_diagonal, off_diagonal, WORD).delta(epsilon) > delta:
        raise ParameterError(f"epsilon={epsilon:g} is too small for {size} codes; give it a larger share")
    return tuple(
        tuple(WORD - (size - 1) * off_diagonal if y == x else off_diagonal for y in range(size)) for x in range(size)
    )


def _best_rival(metric: str, size: int, epsilon: float, delta: float, programme: Programme) -> float:
    """Return the least worst-case error of the simpler mechanisms."""
    line = metric == "line"
    additive = Geometric(size - 1, epsilon, delta) if line else WithNull(Geometric, (size - 2,), epsilon, delta)
    keep = (1 - delta) * response_matrix(size, epsilon) + delta * np.eye(size)
    exponential = np.array(exponential_weights(metric, size, epsilon, delta), dtype=np.float64) / WORD
    return min(*map(programme.worst_error, (keep, exponential)), additive.expected_error())


def _round_weights(matrix: FloatArray, epsilon: float, delta: float) -> Weights:
    """Return integer weights that meet (ε, δ), for a channel that meets it up to rounding.

    Mixing in the uniform law compensates for rounding, as it only lowers the loss. The weights use only the digits of
    the programme's solution that do not depend on the processor.
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
