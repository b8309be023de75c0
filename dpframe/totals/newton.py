"""Regressions by Newton steps on noisy sums: a Gram matrix, and a gradient in each step.

Every sum is of one integer vector per row: the row's x·xᵀ, or its slope times x, both of norm at most 1, rounded to a
grid. A replaced row moves the Gram matrix by at most √2 in ℓ2, as x·xᵀ and x'·x'ᵀ have no negative product, and a
gradient by at most 2; rounding adds √d steps of the grid for d numbers. Sums get discrete Gaussian noise (`BallNoise`),
and the steps of Gaussian differential privacy add up although each gradient is asked at coefficients that follow from
earlier answers.

There is no penalty and no minimiser to certify, and a noisy gradient errs by the inverse of the curvature, where output
perturbation (`dpframe.totals.ridge`) errs by that of the penalty. Hessians cost nothing more: they are those of normal
features with the measured moments, so that a step shrinks the remaining distance to a part of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.accounting.discrete_gaussian import BallNoise
from dpframe.accounting.gaussian_dp import promise_step
from dpframe.noise.gaussian import Ints
from dpframe.spaces.base import forwarded
from dpframe.totals.answers import Portion
from dpframe.totals.ridge import FloatArray, Loss, Rows, ball_noise

NEWTON_ROUNDS = 5
"""Gradients that are asked: one for the intercept, and those of Newton steps, which converge to a hundredth of the
start's error (tolerance)."""
ROW_GRID_CELLS = 2.0**16
"""Steps of the grid in a row's largest norm (tolerance)."""

_LARGEST_MOVE = 3.0
"""Largest root mean square by which a step may change predictions: no noisy step leaves for good (tolerance)."""
_LEAST_CURVATURE = 1e-3
"""Least mean curvature that a step uses: a smaller one would follow noise (tolerance)."""
_EIGENVALUE_FLOOR_SD = 2.0
"""Standard deviations of noise below which an eigenvalue of the Gram matrix is raised (tolerance)."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)
"""Nodes and weights of Gauss–Hermite quadrature (theory: exact for polynomials of degree 41)."""


@dataclass(frozen=True)
class NewtonNoise:
    """The noise on the Gram matrix and on each gradient."""

    gram: BallNoise
    gradient: BallNoise

    sigma2: ClassVar[float] = forwarded("gradient.sigma2")
    """σ² of a gradient's noise, by which portions are compared."""


def row_span(move: float, size: int, contributions: int) -> int:
    """Return how far a person moves the sum of rounded vectors, in grid steps and ℓ2, rounded up.

    ``move``: the distance of two rows' vectors before they are rounded.
    """
    return math.ceil(contributions * (move * ROW_GRID_CELLS + math.sqrt(size)) * (1 + 1e-12))


def newton_noise(size: int, contributions: int, portion: Portion) -> NewtonNoise:
    """Return the noise of a regression of ``size`` coefficients whose sums cost a portion in all."""
    step = portion.step if portion.step is not None or portion.budget.delta == 0 else promise_step(portion.budget)
    parts = Portion(portion.budget, step).split([1.0] * (1 + NEWTON_ROUNDS))
    products = size * (size + 1) // 2
    gram = ball_noise(products, row_span(math.sqrt(2), products, contributions), parts[0])
    return NewtonNoise(gram, ball_noise(size, row_span(2.0, size, contributions), parts[1]))


def gram_sum(rows: Rows, size: int) -> Ints:
    """Return the sum of the rows' products in whole grid steps: the upper triangle, of norm at most 1 for each row."""
    i, j = np.triu_indices(size)
    factors = np.where(i == j, 1.0, math.sqrt(2) * (1 - 2.0**-50)) * ROW_GRID_CELLS
    total = np.zeros(len(i), dtype=np.int64)
    for features, _ in rows():
        for at in range(len(i)):
            total[at] += np.rint(features[:, i[at]] * features[:, j[at]] * factors[at]).astype(np.int64).sum()
    return total


def gradient_sum(loss: Loss, rows: Rows, weights: FloatArray) -> Ints:
    """Return the sum of the rows' slopes times features in whole grid steps."""
    total = np.zeros(len(weights), dtype=np.int64)
    for features, outcomes in rows():
        # Column by column: a row's prediction must not depend on where in a product of matrices the row lies.
        predictions = np.zeros(len(outcomes))
        for feature, weight in zip(features.T, weights, strict=True):
            predictions += feature * weight
        slopes = np.clip(loss.slopes(outcomes, predictions), -1.0, 1.0)
        total += np.rint(features * (slopes * ROW_GRID_CELLS)[:, None]).astype(np.int64).sum(axis=0)
    return total


@dataclass(frozen=True)
class NewtonFit:
    """Coefficients, and the covariance of their noise."""

    weights: FloatArray
    covariance: FloatArray


def newton_fit(
    loss: Loss,
    n: int,
    size: int,
    intercept: float,
    noise: NewtonNoise,
    gram: Ints,
    ask: Callable[[int, FloatArray], Ints],
) -> NewtonFit:
    """Return coefficients after Newton steps, from a noisy Gram matrix and ``ask``, which answers noisy gradients.

    ``intercept``: the first feature, which is the same in all rows.
    """
    unit = 1 / (n * ROW_GRID_CELLS)
    gram_sd, gradient_sd = (math.sqrt(part.sigma2) * unit for part in (noise.gram, noise.gradient))
    least_eigenvalue = _EIGENVALUE_FLOOR_SD * gram_sd
    matrix = _positive(_symmetric(gram.astype(np.float64) * unit, size), least_eigenvalue)
    weights = np.zeros(size)
    # Slopes at 0 are in proportion to outcomes, whose mean has its own intercept: a rare outcome lies far from 0.
    mean_outcome = -float(ask(0, weights)[0]) * unit / (intercept * loss.smoothness**0.5)
    weights[0] = loss.intercept(mean_outcome, gradient_sd / intercept) / intercept
    hessian = matrix
    for turn in range(1, NEWTON_ROUNDS):
        hessian = _positive(_normal_hessian(loss, matrix, intercept, weights), _LEAST_CURVATURE * least_eigenvalue)
        move = np.linalg.solve(hessian, ask(turn, weights) * unit)
        length = math.sqrt(float(move @ matrix @ move))
        weights = weights - move * min(1.0, _LARGEST_MOVE / max(length, 1e-300))
    inverse = np.linalg.inv(hessian)
    # The matrix's own noise turns each step by about this part.
    turned_share = gram_sd * math.sqrt(size) / float(np.linalg.eigvalsh(matrix)[0])
    return NewtonFit(weights, inverse @ inverse.T * (gradient_sd**2 * (1 + turned_share**2)))


def _normal_hessian(loss: Loss, matrix: FloatArray, intercept: float, weights: FloatArray) -> FloatArray:
    """Return the mean of curvature·x·xᵀ over normal features x of a matrix of second moments.

    Given a prediction s, x is normal about mean + slopes·(s − mean of s): a sum over nodes of s is left.
    """
    mean = matrix[0] / intercept
    covariance = matrix - np.outer(mean, mean)
    variance = max(float(weights @ covariance @ weights), 1e-12)
    slopes = covariance @ weights / variance
    deviations = math.sqrt(variance) * _NODES
    shares = loss.curvatures(np.zeros_like(_NODES), float(weights @ mean) + deviations) * _WEIGHTS / _WEIGHTS.sum()
    along = mean + np.outer(deviations, slopes)
    return np.asarray(shares.sum() * (covariance - variance * np.outer(slopes, slopes)) + (along.T * shares) @ along)


def _symmetric(triangle: FloatArray, size: int) -> FloatArray:
    """Return the matrix of an upper triangle whose elements off the diagonal are √2 times the matrix's."""
    i, j = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[i, j] = matrix[j, i] = np.where(i == j, triangle, triangle / math.sqrt(2))
    return matrix


def _positive(matrix: FloatArray, least: float) -> npt.NDArray[np.float64]:
    """Return a symmetric matrix with eigenvalues of at least ``least``."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)
