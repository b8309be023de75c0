"""Shares of the columns that make their errors small together, under the accounting in force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpframe.accounting import ColumnLoss
from dpframe.accounting.budget import fewer_digits_down
from dpframe.accounting.dominating import factors
from dpframe.plan.calibration import Maker, Terms, calibrate
from dpframe.plan.columns import Randomised
from dpframe.spaces.arrays import FloatArray

_STEPS = np.linspace(-3.0, 3.0, 9)
"""Powers of two about the uniform share at which a column's error is computed."""


_GRID = 1 / 64
"""Grid of a share's logarithm."""

_FACTORS = 200


def shares_by_error(
    makers: Sequence[Maker], weights: Sequence[int], ready: Sequence[Randomised], terms: Terms
) -> list[float]:
    """Return the shares of least total normalised error: expected error by diameter, a group's for each column.

    Errors are those of the mechanisms themselves at nine budgets about the uniform one, interpolated on
    logarithms. What a row costs is smooth in all budgets at once: with credit for the order the variance of the
    privacy blanket's likelihood ratio, else mean and spread of the composed loss. The shares are only a direction;
    how far to go in it is decided by the accountant itself.
    """
    from scipy.optimize import minimize

    whole = sum(weights)
    uniform = [weight / whole for weight in weights]
    if len(makers) < 2:
        return uniform
    equal = calibrate(makers, uniform, ready, terms)
    start: Any = np.log([unit.mechanism.epsilon for unit in equal])
    curves = [_ErrorCurve(make, centre) for make, centre in zip(makers, start, strict=True)]
    factor = np.asarray(weights, dtype=np.float64)

    def error(x: Any) -> float:
        return float(factor @ [curve.error(v) for curve, v in zip(curves, x, strict=True)])

    def cost(x: Any) -> float:
        return _cost([curve.column_loss(v) for curve, v in zip(curves, x, strict=True)], terms)

    most = cost(start)
    search: Any = minimize  # its stubs know no SLSQP with one constraint
    optimum = search(
        error,
        start,
        method="SLSQP",
        bounds=[(x + math.log(2) * _STEPS[0], x + math.log(2) * _STEPS[-1]) for x in start],
        constraints={"type": "ineq", "fun": lambda x: most - cost(x)},
        options={"maxiter": 200, "ftol": 1e-9},
    )
    better = optimum.x if optimum.success and optimum.fun < error(start) else start
    # The search ends a little elsewhere on another machine, and the optimum is flat.
    moved = [math.exp(round(float(x) / _GRID) * _GRID) for x in better - start]
    epsilons = [unit.mechanism.epsilon * factor for unit, factor in zip(equal, moved, strict=True)]
    shares = [fewer_digits_down(epsilon / math.fsum(epsilons)) for epsilon in epsilons]
    # The cost above approximates the accountant's, and small gains may be its error.
    return shares if _total(calibrate(makers, shares, ready, terms), factor) < _total(equal, factor) else uniform


def _total(units: Sequence[Randomised], factor: FloatArray) -> float:
    return float(factor @ [unit.expected_error / (unit.space.diameter or 1.0) for unit in units])


class _ErrorCurve:
    """Normalised error and blanket of a column, as functions of ln ε."""

    def __init__(self, make: Maker, centre: float) -> None:
        self._x = centre + math.log(2) * _STEPS
        units = [make(float(epsilon), 0.0) for epsilon in np.exp(self._x)]
        self._error = np.log([max(unit.expected_error, 1e-300) / (unit.space.diameter or 1.0) for unit in units])
        self._kind = units[0].column_loss
        self._blanket = np.log([max(unit.column_loss.blanket, 1e-300) for unit in units])

    def error(self, x: float) -> float:
        return math.exp(float(np.interp(x, self._x, self._error)))

    def column_loss(self, x: float) -> ColumnLoss:
        return self._kind.at(math.exp(x), min(1.0, math.exp(float(np.interp(x, self._x, self._blanket)))))


def _cost(parts: Sequence[ColumnLoss], terms: Terms) -> float:
    """Return the logarithm of what a row costs, up to a constant."""
    losses = np.array([part.epsilon for part in parts])
    if terms.shuffled_rows is None:
        if terms.sampled_budget.delta == 0:
            return math.log(losses.sum())
        depth = math.sqrt(2 * math.log(1 / terms.sampled_budget.delta) * float(losses @ losses))
        return math.log(float(losses @ np.tanh(losses / 2)) + depth)
    squares = crossed = 0.0
    for law in (law.enlarged for law in factors(parts, _FACTORS)):
        squares += math.log(law.square)
        crossed += math.log(law.product)
    return squares + math.log(max(-math.expm1(crossed - squares), 1e-300))
