"""The mechanism of nearly least worst-case error, by linear programming.

A channel P is ε-private if and only if there are v_y with v_y ≤ P(y|x) ≤ e^ε·v_y, so that only 2·size²
constraints are needed. Optima of the programme collapse outputs: their matrices are singular or nearly so,
and no estimate could be had of a release. What is kept instead lies between the optimum and the best of the
simpler mechanisms, and there the error of marginals is the least that is found.
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
from dpframe.channels.tabulated import WORD, MetricChannel, Weights, check_size, exponential_weights
from dpframe.errors import ParameterError
from dpframe.noise.tables import integer_weights
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

IndexArray = npt.NDArray[np.intp]

_STEPS = 12
"""Most programmes solved on the way to a good marginal error; one that gains less than 0.5 % is the last."""

_CORRECTIONS = 6
"""Most moves between the channels found so far after each programme: they cost less than another one."""

_SHARES = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.01, 0.003)
"""Lengths of a step that are tried, as shares of the longest."""

_LARGEST_INVERSE = 1e9
"""Largest sum of a column of an inverse that is not taken for singular."""

_TOLERANCE = 1e-10


def response_matrix(size: int, epsilon: float) -> FloatArray:
    """Return the ideal matrix of randomised response."""
    other = 1 / (math.exp(epsilon) + size - 1)
    return np.asarray(np.full((size, size), other) + np.eye(size) * (1 - size * other))


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

        first = np.unique(self.cell, return_index=True)[1]
        cells, floors = self.cell.ravel()[first], self.floor[first % self.size]
        count, k, rows = len(cells), self.size, np.arange(len(cells))
        ones = np.ones(count)
        wide = len(self.inputs)
        outputs = self.cell[self.inputs]
        costs = self.rho[self.inputs]
        line = np.repeat(np.arange(wide), k)
        values = [ones, -ones, ones, -self.odds * ones, costs.ravel(), -np.ones(wide)]
        where = [rows, rows, count + rows, count + rows, 2 * count + line, 2 * count + np.arange(wide)]
        which = [floors, cells, cells, floors, outputs.ravel(), np.full(wide, self.error)]
        shape = (2 * count + wide, self.error + 1)
        upper = sparse.csr_matrix((np.concatenate(values), (np.concatenate(where), np.concatenate(which))), shape)
        equal = sparse.csr_matrix((np.ones(wide * k), (line, outputs.ravel())), (wide, shape[1]))
        return upper, np.zeros(shape[0]), equal, np.ones(wide)

    def solve(self, goal: FloatArray | None = None, most: float | None = None) -> FloatArray:
        """Return the channel with the least Σ goal·P and worst-case error at most ``most``, or the least error."""
        from scipy import optimize

        costs = np.zeros(self.error + 1)
        if goal is None:
            costs[self.error] = 1.0
        else:
            np.add.at(costs, self.cell.ravel(), goal.ravel() / max(float(np.abs(goal).max()), 1e-300))
        bounds: list[tuple[float, float | None]] = [(0, None)] * self.error + [(0, most)]
        upper, limits, equal, ones = self._constraints
        # Presolving costs more than it saves.
        options = {
            "presolve": False,
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
        }
        linprog: Any = optimize.linprog
        solution = linprog(costs, upper, limits, equal, ones, bounds, method="highs", options=options)
        if solution.x is None:
            raise ParameterError(
                f"no optimal mechanism of {self.size} codes was found at this epsilon; use another mechanism"
            )
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
    if not np.abs(inverse).sum(axis=0).max() < _LARGEST_INVERSE:
        return math.inf
    return float((inverse**2).sum(axis=0) @ matrix.mean(axis=0)) - 1 / len(matrix)


def _slope(matrix: FloatArray) -> FloatArray:
    """Return the derivative of `marginal_error` by every entry."""
    inverse, released = np.linalg.inv(matrix.T), matrix.mean(axis=0)
    second = (inverse * released) @ inverse.T
    return np.asarray((inverse**2).sum(axis=0) / len(matrix) - 2 * (second @ inverse))


def well_conditioned(programme: Programme, optimum: FloatArray, safe: FloatArray, most: float) -> FloatArray:
    """Return a channel of worst-case error at most ``most`` with a small error of marginals.

    Channels are a convex set, so steps towards the best one along the slope of the marginal error (Frank and
    Wolfe 1956, with corrections between the channels found, Lacoste-Julien and Jaggi 2015) stay in it. The
    start is a mixture with ``safe``, randomised response: of the optimum itself or of the channel with the
    largest trace half-way to ``most``, whichever is better.
    """
    upright = programme.solve(-np.eye(programme.size), (programme.worst_error(optimum) + most) / 2)
    starts = [_mixed(programme, start, safe, most) for start in (optimum, upright)]
    best = min(starts, key=marginal_error)
    vertices, shares, value = [best], [1.0], marginal_error(best)
    for _ in range(_STEPS):
        if math.isinf(value):
            break
        vertices.append(programme.solve(_slope(best), most))
        shares.append(0.0)
        before = value
        for _ in range(_CORRECTIONS):
            moved = _move(vertices, shares, best, value)
            if moved is None:
                break
            shares, best, value = moved
        if value > before * 0.995:
            break
    return best


def _move(
    vertices: list[FloatArray], shares: list[float], best: FloatArray, value: float
) -> tuple[list[float], FloatArray, float] | None:
    """Return the shares, mixture and marginal error after the best of two steps, None if neither gains.

    Either all of the mixture moves towards the channel that the slope favours most, or only the share of the
    one that it favours least.
    """
    slope = _slope(best)
    scores = np.array([float((slope * matrix).sum()) for matrix in vertices])
    weights = np.array(shares)
    to, away = int(np.argmin(scores)), int(np.argmax(np.where(weights > 0, scores, -np.inf)))
    target = np.eye(len(vertices))[to]
    steps = [target - weights, weights[away] * (target - np.eye(len(vertices))[away])]
    tried: list[tuple[float, FloatArray, FloatArray]] = []
    for step in steps:
        direction = np.asarray(sum(w * matrix for w, matrix in zip(step, vertices, strict=True)))
        for share in _SHARES:
            matrix = best + share * direction
            tried.append((marginal_error(matrix), matrix, weights + share * step))
    least, matrix, moved = min(tried, key=lambda one: one[0])
    return (moved.tolist(), matrix, least) if least < value * (1 - 1e-4) else None


def _mixed(programme: Programme, matrix: FloatArray, safe: FloatArray, most: float) -> FloatArray:
    low, high = programme.worst_error(matrix), programme.worst_error(safe)
    share = min(1.0, max(0.0, (most - low) / (high - low))) if high > low else 1.0
    return np.asarray(matrix + (safe - matrix) * share)


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
    and the error of marginals is made small within that: see `dpframe.channels.optimal`. On 16 ranks at
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
    line = metric == "line"
    additive = Geometric(size - 1, epsilon, delta) if line else WithNull(Geometric, (size - 2,), epsilon, delta)
    keep = (1 - delta) * response_matrix(size, epsilon) + delta * np.eye(size)
    exponential = np.array(exponential_weights(metric, size, epsilon, delta), dtype=np.float64) / WORD
    return min(*map(programme.worst_error, (keep, exponential)), additive.expected_error())


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
