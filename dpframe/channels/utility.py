"""The exponential mechanism for any utility and base measure, as a ready channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import check_delta, check_epsilon
from dpframe.channels.tabulated import MAX_STORED_CODES, Matrix, check_size
from dpframe.errors import ParameterError
from dpframe.spaces import Space, as_space
from dpframe.spaces.arrays import FloatArray

Utility = Callable[[Any, Any], float]
"""Maps a value and a candidate to the benefit of releasing the candidate for the value."""

_MAX_UTILITY_LOG_RATIO = 40.0
"""Largest log-ratio of two weights of one input: 64 bits resolve it."""


def exponential(
    space: Any, utility: Utility | npt.ArrayLike, epsilon: float, delta: float = 0.0, base: npt.ArrayLike | None = None
) -> Matrix:
    """Return the exponential mechanism P(y|x) ∝ base(y)·e^(k·u(x, y)), with the largest k whose exact loss is (ε, δ).

    McSherry and Talwar's k = ε/(2Δu) is a loose bound: the loss is computed from the channel itself, and if all inputs
    have one normaliser k is about twice as large.

    Parameters
    ----------
    space
        The column's space, or its declaration: a list of categories, a pair of bounds.
    utility
        A function of a value and of one to release, or an array of such numbers, a row for each value. Null is
        the value None.
    epsilon, delta
        The budget.
    base
        Positive weights of the values to release; equal ones by default.

    Returns
    -------
    A ready mechanism, for ``mechanisms={column: …}``.

    Raises
    ------
    ParameterError
        For more than 256 values, a utility that is not finite or of another shape, weights that are not positive, or an
        ε or a utility that makes estimates impossible.

    Examples
    --------
    >>> near = exponential(["low", "middle", "high"], [[0, -1, -2], [-1, 0, -1], [-2, -1, 0]], epsilon=2.0)
    >>> near.transition().round(3).tolist()
    [[0.665, 0.212, 0.09], [0.245, 0.576, 0.245], [0.09, 0.212, 0.665]]
    """
    value_space = as_space(space)
    check_size(value_space, MAX_STORED_CODES, "exponential")
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    scores, logs = _scores(value_space, utility), _logs(value_space, base)
    # The largest range of a row bounds the log-ratio of its weights.
    width = float(np.ptp(scores, axis=1).max(initial=0.0))
    if not width > 0:
        raise ParameterError("utility is the same for all releases, so that it prefers none; give another one")

    def laws(rate: float) -> FloatArray:
        # The largest exponent is subtracted before exp, which then cannot overflow.
        exponents = rate * scores + logs
        weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def make_matrix(rate: float) -> Matrix | None:
        try:
            matrix = Matrix.of(laws(rate), delta)
        except ParameterError:
            return None
        return matrix if matrix.loss.delta(epsilon) <= delta else None

    rate = bisected(lambda rate: _loses(laws(rate), epsilon, delta), 0.0, _MAX_UTILITY_LOG_RATIO / width, 1e-12)
    for step in range(40):
        # The rate of floats may miss the exact loss by rounding; each attempt lowers it twice as far.
        matrix = make_matrix(rate * (1 - 2.0 ** (step - 44)) if step else rate)
        if matrix is not None:
            return Matrix(matrix.table, epsilon, delta)
    raise ParameterError(
        "utility gives a channel that is singular, or nearly, at this epsilon, so that estimates are impossible; "
        "raise epsilon"
    )


def _loses(laws: FloatArray, epsilon: float, delta: float) -> bool:
    """Return, in floats, whether a channel's loss is within a budget."""
    if delta == 0:
        return bool(np.log(laws.max(axis=0) / laws.min(axis=0)).max() <= epsilon)
    odds = np.exp(min(epsilon, 700.0))
    return max(float(np.maximum(row - odds * laws, 0.0).sum(axis=1).max()) for row in laws) <= delta


def _scores(space: Space, utility: Utility | npt.ArrayLike) -> FloatArray:
    values: list[Any] = space.decode(space.code_array(range(space.size))).to_pylist()
    if callable(utility):
        scores = np.array([[float(utility(x, y)) for y in values] for x in values])
    else:
        scores = np.asarray(utility, dtype=np.float64)
    if scores.shape != (space.size, space.size):
        raise ParameterError(f"utility must have a row and a column for each of the {space.size} values of the space")
    if not np.isfinite(scores).all():
        raise ParameterError("utility must be finite for every pair of a value and a released value")
    return scores


def _logs(space: Space, base: npt.ArrayLike | None) -> FloatArray:
    weights = np.ones(space.size) if base is None else np.asarray(base, dtype=np.float64)
    if weights.shape != (space.size,) or not np.isfinite(weights).all() or not (weights > 0).all():
        raise ParameterError(f"base must have a positive weight for each of the {space.size} values of the space")
    return np.asarray(np.log(weights))
