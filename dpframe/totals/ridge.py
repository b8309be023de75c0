"""Regressions with noise on the coefficients (output perturbation), with a certificate of the minimiser.

The coefficients w minimise a ridge objective over n rows of features x, ‖x‖₂ ≤ 1, and an outcome y:

    J(w) = (1/n)·Σ ℓ(y, w·x) + (λ/2)·‖w‖²,

whose minimiser w* one replaced row moves by at most 2L/(nλ), L = max |∂ℓ/∂(w·x)| = 1: J is λ-strongly convex, so that
‖w − w'‖ ≤ ‖∇J'(w)‖/λ, and at w* the gradient of the neighbour's objective is the difference of two rows' terms over n,
each at most L (Chaudhuri, Monteleoni, Sarwate 2011, "Differentially Private Empirical Risk
Minimization", Cor. 8). Objective perturbation, which they prefer, is private only for the exact minimiser of a
perturbed objective with continuous noise. Here no noise is a float, so that the output is perturbed, and what floats
leave of the gradient is part of the sensitivity:

    ‖ŵ − w*‖ ≤ ‖∇J(ŵ)‖/λ ≤ τ/λ,  and rounding to a grid of step g moves ŵ by at most √d·g/2, on either side:
    Δ = 2kL/(nλ) + 2τ/λ + √d·g        for a person of k rows.

τ is public. The search ends when a bound on the exact gradient's norm, from the floats and their rounding errors, is at
most τ. It always ends: a Newton step counts only if it lowers the bound by a part, else the step is one of gradient
descent, which shrinks the gradient by 1 − λ/(β + λ), β the curvature's bound, down to `RidgeObjective.least_tolerance`.

The integers ŵ/g get discrete Gaussian noise; the numbers move by a vector of norm Δ/g (`BallNoise`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpframe.accounting.budget import round_up
from dpframe.accounting.discrete_gaussian import BallNoise, noise_step
from dpframe.accounting.gaussian_dp import Step, promise_step
from dpframe.errors import ParameterError
from dpframe.noise.gaussian import Ints, gaussian_table
from dpframe.totals.answers import Portion
from dpframe.totals.least_noise import CLEAREST, FAINTEST, least_noise

FloatArray = npt.NDArray[np.float64]
Rows = Callable[[], Iterable[tuple[FloatArray, FloatArray]]]
"""Yields all rows in blocks: features, shape (rows, d), and outcomes, shape (rows,)."""

MIN_PENALTY, MAX_PENALTY = 1e-6, 1e3
"""Least and largest penalty: beyond them noise hides all coefficients, or the penalty does (limit of use)."""
GRADIENT_TOLERANCE_SHARE = 2.0**-10
"""Part of the sensitivity 2kL/(nλ) that the gradient's remainder may add (tolerance)."""
RIDGE_GRID_CELLS = 2.0**16
"""Steps of the grid in the sensitivity: rounding adds √d of them (tolerance)."""
FEATURE_SCALE = 1 - 2.0**-40
"""Factor by which features are shortened, so that rounding leaves their norm at most 1 (tolerance)."""

_GRADIENT_BLOCK_ROWS = 1 << 11
"""Rows whose terms are summed in one product; the rounding error grows with their number (tolerance)."""
_UNIT_ROUNDING = 2.0**-53
"""Unit rounding of floats of 64 bits (theory: IEEE 754)."""
_RIDGE_ROUNDING_FACTOR = 1.01
"""Factor that covers products of rounding errors in a bound of first order (tolerance)."""
_NEWTON_LENGTHS = (1.0, 0.5, 0.25, 0.125)
"""Lengths of Newton steps that are tried; a step of length t has to lower the gradient's bound by t/2 (tolerance)."""


class Loss(ABC):
    """The loss ℓ(y, s) of an outcome y, |y| ≤ 1, and a prediction s; its derivative in s lies within ±1."""

    smoothness: float
    """Bound on the second derivative in s."""
    at_zero: float
    """Bound on ℓ(y, 0)."""

    @abstractmethod
    def slopes(self, outcomes: FloatArray, predictions: FloatArray) -> FloatArray:
        """Return the derivative in s of each row, to an error of 8 unit roundings."""

    @abstractmethod
    def curvatures(self, outcomes: FloatArray, predictions: FloatArray) -> FloatArray:
        """Return the second derivative in s of each row."""

    @abstractmethod
    def intercept(self, mean_outcome: float, error: float) -> float:
        """Return the prediction that is best for all rows, from the mean outcome and its error."""


class HuberLoss(Loss):
    """Half of the squared residual, (s − y)²/2; beyond 1, half of the outcome's range, residuals count linearly.

    The derivative of squares alone is bounded only by the coefficients' norm, for 1 + 1/(2√λ) times the noise.
    """

    smoothness = 1.0
    at_zero = 0.5

    def slopes(self, outcomes: FloatArray, predictions: FloatArray) -> FloatArray:
        """Return s − y, clipped to ±1."""
        return np.clip(predictions - outcomes, -1.0, 1.0)

    def curvatures(self, outcomes: FloatArray, predictions: FloatArray) -> FloatArray:
        """Return 1 for residuals within ±1."""
        return (np.abs(predictions - outcomes) <= 1.0).astype(np.float64)

    def intercept(self, mean_outcome: float, error: float) -> float:
        """Return the mean outcome."""
        return min(max(mean_outcome, -1.0), 1.0)


class LogisticLoss(Loss):
    """The negative log-likelihood ln(1 + e^(−ys)) of outcomes −1 and 1."""

    smoothness = 0.25
    at_zero = math.log(2)

    def slopes(self, outcomes: FloatArray, predictions: FloatArray) -> FloatArray:
        """Return −y/(1 + e^(ys))."""
        margins = outcomes * predictions
        small = np.exp(-np.abs(margins))
        return -outcomes * np.where(margins > 0, small, 1.0) / (1.0 + small)

    def curvatures(self, outcomes: FloatArray, predictions: FloatArray) -> FloatArray:
        """Return p·(1 − p)."""
        small = np.exp(-np.abs(predictions))
        return np.asarray(small / (1.0 + small) ** 2)

    def intercept(self, mean_outcome: float, error: float) -> float:
        """Return the log odds; a share nearer to 0 or 1 than its error counts as the error."""
        end = max(1 - 2 * error, 0.0)
        return math.log1p(min(max(mean_outcome, -end), end)) - math.log1p(-min(max(mean_outcome, -end), end))


LOSSES: Mapping[str, Loss] = {"gaussian": HuberLoss(), "binomial": LogisticLoss()}
"""Losses by the family of the outcome."""


@dataclass(frozen=True)
class Gradient:
    """The gradient and the Hessian of an objective at some coefficients, in floats.

    ``bound`` is a bound from above on the norm of the exact gradient.
    """

    vector: FloatArray
    hessian: FloatArray
    bound: float


@dataclass(frozen=True)
class RidgeObjective:
    """The objective J, by public facts: ``size`` coefficients, n rows, and k rows of a person."""

    loss: Loss
    penalty: float
    size: int
    n: int
    contributions: int = 1
    tolerance_share: float = GRADIENT_TOLERANCE_SHARE
    grid_cells: float = RIDGE_GRID_CELLS

    @property
    def minimiser_sensitivity(self) -> float:
        """2kL/(nλ): how far a person moves the exact minimiser."""
        return 2 * self.contributions / (self.n * self.penalty) * (1 + 8 * _UNIT_ROUNDING)

    @property
    def largest_norm(self) -> float:
        """Bound on the norm of the minimiser: ∇J = 0 and J(w*) ≤ J(0) there."""
        return min(1 / self.penalty, math.sqrt(2 * self.loss.at_zero / self.penalty))

    @property
    def least_tolerance(self) -> float:
        """Bound that gradient descent surely reaches: twice the rounding error over its contraction."""
        return 4 * self._rounding_error(self.largest_norm + 1.0) * (2 + self.loss.smoothness / self.penalty)

    @property
    def tolerance(self) -> float:
        """τ: the bound on the gradient's norm at which the search for the minimiser ends."""
        return max(self.tolerance_share * self.minimiser_sensitivity * self.penalty / 2, self.least_tolerance)

    @property
    def sensitivity(self) -> float:
        """How far a person moves the minimiser that floats find, in ℓ2."""
        return (self.minimiser_sensitivity + 2 * self.tolerance / self.penalty) * (1 + 8 * _UNIT_ROUNDING)

    @property
    def grid(self) -> float:
        """Step of the grid to which coefficients are rounded: a power of two, so that no division rounds."""
        return 2.0 ** math.floor(math.log2(self.sensitivity / self.grid_cells))

    @property
    def span(self) -> int:
        """How far a person moves the rounded coefficients, in steps of the grid and ℓ2, rounded up."""
        return math.ceil((self.sensitivity / self.grid + math.sqrt(self.size)) * (1 + 8 * _UNIT_ROUNDING))

    @property
    def remainder(self) -> float:
        """How far rounded coefficients may lie from the exact minimiser, in ℓ2."""
        return self.tolerance / self.penalty + math.sqrt(self.size) * self.grid / 2

    def _rounding_error(self, norm: float) -> float:
        """Return a bound on the error of a gradient that is computed in floats, at coefficients of a norm.

        A product of x and w of d terms errs by d roundings of ‖w‖, which the curvature turns into slopes; slopes err by
        8 roundings; a block's sum errs by a rounding of each row's term, and the sum of blocks is exact.
        """
        roundings = float(_GRADIENT_BLOCK_ROWS + 24 + self.size)
        roundings += ((self.size + 4) * self.loss.smoothness + 8 * self.penalty) * norm
        return roundings * _UNIT_ROUNDING * _RIDGE_ROUNDING_FACTOR

    def gradient(self, weights: FloatArray, rows: Rows) -> Gradient:
        """Return the gradient at some coefficients, with a bound on the exact gradient's norm."""
        sums: list[FloatArray] = []
        hessian = self.penalty * np.eye(self.size)
        for features, outcomes in rows():
            for start in range(0, len(outcomes), _GRADIENT_BLOCK_ROWS):
                x, y = (part[start : start + _GRADIENT_BLOCK_ROWS] for part in (features, outcomes))
                predictions = x @ weights
                sums.append(self.loss.slopes(y, predictions) @ x)
                hessian += (x.T * self.loss.curvatures(y, predictions)) @ x / self.n
        mean = np.array([math.fsum(column) / self.n for column in np.array(sums).T])
        vector = mean + self.penalty * weights
        norm = float(np.linalg.norm(weights)) * _RIDGE_ROUNDING_FACTOR
        length = float(np.linalg.norm(vector)) * (1 + (self.size + 8) * _UNIT_ROUNDING)
        return Gradient(vector, hessian, length + self._rounding_error(norm))

    def minimise(self, rows: Rows) -> FloatArray:
        """Return coefficients at which the exact gradient's norm is at most `tolerance`; never refuses rows."""
        weights = np.zeros(self.size)
        at = self.gradient(weights, rows)
        while at.bound > self.tolerance:
            direction = np.linalg.solve(at.hessian, at.vector)
            for length in _NEWTON_LENGTHS:
                candidate = weights - length * direction
                there = self.gradient(candidate, rows)
                if there.bound <= (1 - length / 2) * at.bound:
                    break
            else:
                candidate = weights - at.vector / (self.loss.smoothness + self.penalty)
                there = self.gradient(candidate, rows)
            weights, at = candidate, there
        return weights

    def rounded(self, rows: Rows) -> Ints:
        """Return the minimiser in whole steps of the grid."""
        return np.rint(self.minimise(rows) / self.grid).astype(np.int64)


def ridge_noise(objective: RidgeObjective, portion: Portion) -> BallNoise:
    """Return the least noise on the rounded coefficients whose cost is within a portion; see `ball_noise`."""
    return ball_noise(objective.size, objective.span, portion)


def ball_noise(size: int, span: int, portion: Portion) -> BallNoise:
    """Return the least discrete Gaussian noise within a portion on numbers that move by a vector of norm ``span``.

    Raises `ParameterError` if the portion has no δ, or is too small.
    """
    if portion.budget.delta == 0:
        raise ParameterError("regress needs delta above 0, as its noise is gaussian; pass delta=1e-6 to Queries")
    limit = promise_step(portion.budget) if portion.step is None else portion.step
    if limit.delta < FAINTEST or limit.mu <= 0:
        raise ParameterError("the share is too small for a regression; raise share or delta")

    def noise_of(sigma2: float) -> BallNoise:
        table = gaussian_table(sigma2)
        return BallNoise(float(table.sigma2), size, span, round_up(table.distance))

    def cost(scales: Sequence[float]) -> Step:
        return noise_step([noise_of(scales[0])], 1, limit.delta * (1 - 1e-6))

    variances = least_noise([BallNoise(1.0, size, span)], [1.0], min(limit.mu, CLEAREST), 1, cost)
    if variances is None:
        raise ParameterError("the share is too small for a regression: its noise exceeds every table; raise share")
    return noise_of(variances[0])
