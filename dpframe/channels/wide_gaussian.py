"""Gaussian noise on rows of numbers: discrete, on a grid with room beyond the values' bounds.

So smooth a kernel has no usable inverse once a grid's ends saturate it: saturation removes the information that would
correct a mean. So nothing is saturated: released codes go 7σ beyond both ends of the grid, and all but 3e-12 of the
draws are the value plus the noise. Then a value is its own surrogate, its square less σ² is the surrogate of its
square, and so on for every polynomial (Hermite's polynomials have powers as their means under normal noise). Other
functions, such as "between 30 and 40", have no usable surrogate: counts and quantiles come from maximum likelihood.

Shuffling gives this noise no credit. Unshuffled, c columns of μ each are one step of √c·μ. By their exact privacy
losses c columns of Laplace noise nearly are too, and they need no slack and end at the bounds. At (1, 1e-6) the error
of a mean relative to Laplace noise is 3.6 for one column, 1.3 for ten and 1.07 for twenty; of a variance it is 5 to 8.
The mechanism is for users who need unbounded noise of a known law.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from dpframe.accounting.budget import Budget, fewer_digits_up, round_down, round_up
from dpframe.accounting.discrete_gaussian import IntegerNoise
from dpframe.accounting.gaussian_dp import Step, composed_steps, promise_step, pure_step
from dpframe.accounting.step_loss import NoiseLoss, StepLoss
from dpframe.channels.base import Channel, CodeFunction, IntArray, Mechanism, register, response_loss, response_table
from dpframe.errors import ParameterError
from dpframe.noise.gaussian import GaussianTable, gaussian_table
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import RESPONSE_CHUNK_ROWS, ResponseTable
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

_EPSILON_FACTOR = 1 - 1e-12
"""Share of ε for which a step is made, so that rounding never puts its loss above ε."""

_MAX_RAISES, _PROOF_MARGIN = 20, 1e-5
"""Most raises of σ² until its law provably lies under a curve, and the margin beyond the need of each proof."""


class GaussianMechanism(Mechanism):
    """Calibrated Gaussian noise on one number or several, with the properties that follow from its table and step."""

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
        """The step of the noise for a value against the centre."""

    @classmethod
    def beside_flag(
        cls, shape: tuple[Any, ...], epsilon: float, delta: float, flag_size: int = 2
    ) -> tuple[ResponseTable, Channel]:
        """Return a flag and noise of the full μ: the flag and the distance from the centre cost μ together."""
        from scipy import special  # imported late, as all of SciPy

        make: Any = cls
        values: GaussianMechanism = make(*shape, epsilon, delta)
        remaining_square = max(float(values.own_step.square - values.step_from_centre.square), 0.0) * _EPSILON_FACTOR
        # The inverse of `pure_step`: e^ε/(1 + e^ε) = Φ(μ/2).
        flag = float(special.logit(special.ndtr(math.sqrt(remaining_square) / 2))) * _EPSILON_FACTOR
        return response_table(flag_size, flag), values

    @property
    def sigma(self) -> float:
        """Scale of the noise in grid steps."""
        return math.sqrt(self.table.sigma2)

    def loss_beside(self, flag: ResponseTable) -> StepLoss:
        """Return the curve above value against value, null against value and back."""
        null_step = composed_steps([pure_step(response_loss(flag).pure()), self.step_from_centre])
        return StepLoss(max(null_step, self.own_step, key=attrgetter("mu")))


def claimed_step(epsilon: float, delta: float, remedy: str) -> Step:
    """Return the step of the noise for a budget, which depends only on the budget."""
    if not delta > 0:
        raise ParameterError(f"gaussian noise on {remedy}")
    return promise_step(Budget(epsilon * _EPSILON_FACTOR, delta))


def least_table(sigma2: float, limit: Step, cost: Callable[[GaussianTable], Step]) -> GaussianTable | None:
    """Return about the table of least noise whose cost is within a step, from a first σ² on; None if there is none."""
    for _ in range(_MAX_RAISES):
        table = gaussian_table(fewer_digits_up(sigma2))
        noise_cost = cost(table)
        if noise_cost.mu <= limit.mu:
            return table
        # μ² is nearly in inverse proportion to σ²; the margin makes the next proof succeed.
        sigma2 *= (noise_cost.mu / limit.mu) ** 2 * (1 + _PROOF_MARGIN)
    return None


MAX_WIDE_GAUSSIAN_STEPS = 1 << 20
"""Most steps: surrogates are checked at all codes."""

_ROOM_SD = 7.0
"""Distance of the last released codes from the values, in multiples of σ."""

_MIN_SIGMA2 = 0.25
"""Least σ² of a table."""

_DEGREE = 4
"""Largest degree of polynomials with surrogates: variances need squares, and their errors fourth powers."""

_FIT_TOLERANCE = 1e-9
"""Largest relative difference between a function and the polynomial that replaces it."""

_CLASSES_PER_SD = 16.0
"""Classes of released codes per σ: coarser classes lose information about values, finer ones add none."""

_MAX_CLASSES = 4_096
"""Most classes of released codes."""

_MIN_NORMAL_SIGMA = 64.0
"""Least σ at which the law is the normal law to ten digits, with its first correction (Euler and Maclaurin)."""


@register
@dataclass(frozen=True)
class WideGaussian(GaussianMechanism):
    """Discrete Gaussian noise on 0…span, released on a grid that goes ``room`` steps beyond both ends.

    σ is the least whose proved profile lies under (1 − δ₀)·G_μ + δ₀, the largest such curve through (ε, δ): about
    span/μ. It needs δ > 0, and takes a part of a plan's δ. Released numbers may lie outside of the bounds, by up to 7σ;
    their mean needs no correction. Appendix A.2.2; Canonne, Kamath and Steinke 2020.

    ``span``: largest code of a value, 1 to 2^20. ``epsilon`` and ``delta``: the budget; see
    `dpframe.accounting.budget`.
    """

    span: int
    epsilon: float
    delta: float
    size: int = field(init=False, repr=False)

    tag: ClassVar[str] = "wide_gaussian"
    aliases: ClassVar[tuple[str, ...]] = ("gaussian",)
    label: ClassVar[str] = "gaussian"
    metrics: ClassVar[frozenset[str]] = frozenset({"line"})
    releases_outside_bounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check_span(self.span, MAX_WIDE_GAUSSIAN_STEPS)
        _ = self.table

    @classmethod
    def shape_of(cls, space: Space) -> tuple[int, ...]:
        """Return the largest code."""
        if space.is_listed:
            raise ParameterError(
                f"mechanism gaussian is for numbers and times, and space {space.tag} has no values beyond its ends; "
                "use laplace, square_wave or optimal"
            )
        if space.size - 1 > MAX_WIDE_GAUSSIAN_STEPS:
            raise ParameterError(
                f"mechanism gaussian is for at most {MAX_WIDE_GAUSSIAN_STEPS} steps, and space {space.tag} has "
                f"{space.size - 1}; use laplace or fewer steps"
            )
        return (space.size - 1,)

    @cached_property
    def own_step(self) -> Step:
        """The largest step within the budget."""
        needs = "rows of numbers needs delta above 0; raise delta, or use laplace or square_wave"
        return claimed_step(self.epsilon, self.delta, needs)

    @cached_property
    def step_from_centre(self) -> Step:
        """The step of the noise for a value against the centre."""
        return _noise(self.table, self.span - self.centre).step(1, self.own_step.delta)

    @cached_property
    def table(self) -> GaussianTable:
        """The integers that noise is sampled from."""
        return _fitting(self.span, self.own_step)

    @cached_property
    def room(self) -> int:
        """Number of released codes beyond either end of the values."""
        return math.ceil(_ROOM_SD * self.sigma)

    @property
    def outputs(self) -> int:
        """Number of released codes; the first value has the released code ``room``."""
        return self.size + 2 * self.room

    def released(self, space: Space) -> Space:
        """Return the space with room beyond its bounds."""
        return space.widened(self.room)

    @cached_property
    def loss(self) -> NoiseLoss:
        """The exact loss of two values a span apart, below the curve of the noise's step."""
        return NoiseLoss(self.own_step, _noise(self.table, self.span))

    @cached_property
    def blanket(self) -> float:
        """γ: the common mass of the laws of both ends, as laws between are at least the smaller one; rounded down."""
        return round_down(1 - Fraction(self.loss.delta(0.0)))

    def blanket_beside(self, flag: ResponseTable) -> float:
        """Return a lower bound on the common mass of codes and the ends' laws: of flag, and of noise after a flip."""
        return round_down(Fraction(flag.threshold, 1 << flag.bits) * (flag.size - 1 + Fraction(self.blanket)))

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        for start in range(0, len(codes), RESPONSE_CHUNK_ROWS):
            part = codes[start : start + RESPONSE_CHUNK_ROWS].astype(np.int64)
            part += self.table.sample(stream, 0, len(part), first_row + start)
            part += self.room
            # Clipping changes 3e-12 of the draws, which surrogates ignore.
            out[start : start + RESPONSE_CHUNK_ROWS] = np.clip(part, 0, self.outputs - 1)

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return the weights of all released codes, from the tables."""
        noise, total = self._noise_weights
        out = [0] * self.outputs
        for step, weight in noise.items():
            out[min(max(code + self.room + step, 0), self.outputs - 1)] += weight
        return out, total

    @cached_property
    def _noise_weights(self) -> tuple[dict[int, int], int]:
        return self.table.noise_weights()

    def law(self, code: int) -> FloatArray:
        """Return P(y | code), shape (outputs,)."""
        ends = np.arange(1, self.outputs) - self.room - code
        return np.diff(np.concatenate([[0.0], self._below(ends), [1.0]]))

    def _below(self, steps: IntArray) -> FloatArray:
        """Return P(Z < step) of the noise."""
        if self.sigma < _MIN_NORMAL_SIGMA:
            return np.asarray(self._running[0][np.clip(steps + self.room, 0, 2 * self.room + 1)])
        z = np.asarray((steps - 0.5) / self.sigma)
        return np.asarray(_ndtr(z) + z * _density(z) / (24 * self.sigma**2))

    def _summed(self, steps: IntArray) -> FloatArray:
        """Return Σ_{j < step} P(Z < j)."""
        if self.sigma < _MIN_NORMAL_SIGMA:
            inside = np.clip(steps + self.room, 0, 2 * self.room + 1)
            return np.asarray(self._running[1][inside] + np.maximum(steps - self.room - 1, 0))
        z = np.asarray((steps - 1) / self.sigma)
        # Closed form: running sums over a wide law would take long and lose digits.
        return np.asarray(self.sigma * (z * _ndtr(z) + _density(z)) - _density(z) / (12 * self.sigma))

    @cached_property
    def _running(self) -> tuple[FloatArray, FloatArray]:
        """P(Z < j) for j = −room…room + 1, and its running sums."""
        below = np.append(0.0, np.cumsum(self._density))
        return below, np.append(0.0, np.cumsum(below[:-1]))

    @cached_property
    def _density(self) -> FloatArray:
        """P(Z = j) for j = −room…room."""
        law = np.exp(-(np.arange(-self.room, self.room + 1.0) ** 2) / (2 * float(self.table.sigma2)))
        return np.asarray(law / law.sum())

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """Variance and fourth moment of the noise."""
        if self.sigma >= _MIN_NORMAL_SIGMA:
            return self.sigma**2, 3 * self.sigma**4
        square = np.arange(-self.room, self.room + 1.0) ** 2
        return float(self._density @ square), float(self._density @ square**2)

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return φ_f of a polynomial of degree 4 at most, by Hermite's polynomials."""
        half = max(self.span / 2, 0.5)
        # A polynomial of degree 4 through five points is the function itself, or the function has no surrogate.
        points = np.unique(np.rint(np.linspace(0, self.span, _DEGREE + 1)).astype(np.int64))
        powers = np.vander((points - self.span / 2) / half, increasing=True)
        coefficients = np.linalg.solve(powers, f(points))
        every = np.arange(self.size)
        values = f(every)
        fitted = np.polynomial.polynomial.polyval((every - self.span / 2) / half, coefficients)
        if not np.abs(values - fitted).max() <= _FIT_TOLERANCE * max(float(np.abs(values).max()), 1e-300):
            raise ParameterError(
                "gaussian noise on rows leaves only means and moments without bias, no counts of values; take them "
                'from a fit, method="em" or "auto"'
            )
        at = (np.asarray(codes, dtype=np.float64) - self.room - self.span / 2) / half
        second, fourth = self._moments[0] / half**2, self._moments[1] / half**4
        means = [
            np.ones_like(at),
            at,
            at**2 - second,
            at**3 - 3 * second * at,
            at**4 - 6 * second * at**2 + 6 * second**2 - fourth,
        ]
        return np.asarray(sum(a * mean for a, mean in zip(coefficients, means, strict=False)))

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Refused: unbiased estimates of counts of values have useless errors."""
        raise ParameterError('gaussian noise on rows has no inverse; take counts from a fit, method="em" or "auto"')

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return A (or Aᵀ) applied along axis 0, by Fourier transforms."""
        kernel = np.diff(self._below(np.arange(-self.room, self.room + 2)))
        kernel = kernel.reshape(-1, *[1] * (counts.ndim - 1))
        # Long enough that the circular convolution does not wrap around.
        length = 1 << (self.outputs + len(kernel)).bit_length()
        product = np.fft.rfft(counts, length, axis=0) * np.fft.rfft(kernel, length, axis=0)
        convolved = np.fft.irfft(product, length, axis=0)
        return np.asarray(
            convolved[2 * self.room : 2 * self.room + self.size] if adjoint else convolved[: self.outputs]
        )

    def changes(self, edges: IntArray) -> IntArray:
        """Return the first released code of every class of codes, each a sixteenth of σ wide."""
        width = max(1, math.floor(self.sigma / _CLASSES_PER_SD), -(-self.outputs // _MAX_CLASSES))
        return np.arange(0, self.outputs, width)

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return P(y in a stretch of released codes | x uniform in a cell), shape (stretches, cells)."""
        low, high = (np.asarray(part, dtype=np.int64) for part in (edges[:-1], edges[1:]))
        c = np.asarray(starts[1:], dtype=np.int64)[:, None] - self.room
        # Σ over the x of a cell of P(x + Z < c).
        cumulative = (self._summed(c - low + 1) - self._summed(c - high + 1)) / (high - low)
        bounds = np.vstack([np.zeros(len(low)), np.clip(cumulative, 0.0, 1.0), np.ones(len(low))])
        return np.maximum(np.diff(bounds, axis=0), 0.0)

    def expected_error(self, space: Space | None = None) -> float:
        """Return E|Y − x| in grid steps, which is equal for all values."""
        if self.sigma >= _MIN_NORMAL_SIGMA:
            return math.sqrt(2 / math.pi) * self.sigma
        return float(self._density @ np.abs(np.arange(-self.room, self.room + 1.0)))


def _ndtr(z: FloatArray) -> FloatArray:
    from scipy import special  # imported late, as all of SciPy

    return np.asarray(special.ndtr(z))


def _density(z: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))


def _noise(table: GaussianTable, shift: int) -> IntegerNoise:
    """Return the noise on a number that moves by ``shift`` steps, for the accountant."""
    return IntegerNoise(float(table.sigma2), 1, shift, round_up(table.distance))


@lru_cache(maxsize=256)
def _fitting(span: int, limit: Step) -> GaussianTable:
    """Return about the table of least noise whose profile provably lies under a step."""
    start = max((span / limit.mu) ** 2, _MIN_SIGMA2)
    table = least_table(start, limit, lambda table: _noise(table, span).step(1, limit.delta))
    assert table is not None, "more noise costs less"
    return table
