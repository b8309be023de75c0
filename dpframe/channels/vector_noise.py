"""Vectors: two-sided geometric noise on every coordinate, saturated at the coordinate's ends (pure ε).

Codes c, c' of vectors in the ball differ by at most Δ₁ = `Ball.farthest` in ℓ1, computed in integers: 2^bits − 1 steps
in ℓ1 (the diameter, as of a single grid), at most √d times as many in ℓ2 and d times in ℓ∞. With the rate a a step
P(y|c)/P(y|c') ≤ e^(a·‖c − c'‖₁ + d·s), with s the most that rounding a table's weights adds to a log-ratio. Coordinates
in which both agree add nothing. Noise in proportion to the ℓ2 diameter itself, "iid Lap(Δ₂/ε)", would lose √d times ε.

*Blanket.* With m the middle of the cube (between codes) |y − c| ≤ |y − m| + |m − c| and ‖m − c‖₁ ≤ Δ₁/2, so that
P(y|c) ≥ e^(−aΔ₁/2)·Π_i C(y_i)·α^|y_i − m|, whose sum over all y is (2√α/(1 + α))^d, to e^(−d·s) for the weights.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NoReturn

import numpy as np

from dpframe.accounting.budget import LOSS_CONTEXT, round_down, round_up
from dpframe.accounting.loss import NullFlagLoss, PrivacyLoss, RatioLoss, pure_rate
from dpframe.channels.base import (
    LARGEST_MATRIX,
    MAX_WORD_EPSILON,
    SAFE,
    Channel,
    CodeFunction,
    IntArray,
    Mechanism,
    register,
    response_loss,
    response_table,
)
from dpframe.channels.geometric import FLATTEST, LARGEST_LOSS, GivenNoise
from dpframe.errors import ParameterError
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import GeometricTable, ResponseTable, geometric_table
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.ball import Ball
from dpframe.spaces.base import forwarded

VECTOR_CHUNK_ROWS = 1 << 14
"""Rows that are unpacked at once."""


class BallChannel(Channel):
    """Noise on the coordinates of vectors in a ball, with the properties that follow from the ball."""

    @property
    @abstractmethod
    def ball(self) -> Ball:
        """The ball to which vectors are projected before noise is added."""

    @property
    @abstractmethod
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Surrogates of u and of u², by the released code of a coordinate, each of shape (2^bits,)."""

    @property
    @abstractmethod
    def variances(self) -> tuple[float, float]:
        """Variance of the surrogate of u for a coordinate next to 0, and the largest."""

    own_metric = "vector"

    def reads(self, space: Space) -> bool:
        """Return whether a space's vectors lie in this ball, on this grid."""
        vectors: Any = space
        return bool(vectors.holds_vectors and vectors.ball == self.ball)

    @property
    def diameter(self) -> float:
        """Largest distance of two vectors in grid steps."""
        return float(self.ball.radius)

    centre = forwarded("ball.centre")

    code_words = forwarded("ball.words")

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Refused: functions of a vector have too many values; coordinates have their own surrogates."""
        self._refuse()

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Refused, as `surrogate_at`."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ParameterError("vectors are not inverted as a whole; ask for mean or mean_curve")


_VECTOR_PLANES = 2
"""Planes of words for each coordinate, whether its table needs both or not."""


class VectorChannel(BallChannel):
    """Geometric noise on the coordinates of vectors in a ball, with all properties of its integer table."""

    @property
    @abstractmethod
    def table(self) -> GeometricTable:
        """The integers that every coordinate's noise is sampled from."""

    @property
    def noise(self) -> GivenNoise:
        """The noise of one coordinate, as a channel on 0…2^bits − 1."""
        return GivenNoise(self.table)

    def _exponent(self, steps: int) -> Decimal:
        """Return the log-ratio of vectors whose codes are ``steps`` apart in ℓ1, rounded up."""
        with localcontext(LOSS_CONTEXT):
            return (Decimal(self.table.rate) * steps + self.ball.length * Decimal(self.table.log_spread)) / SAFE

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The certified loss of the two vectors farthest apart in ℓ1, the weights' rounding included."""
        return RatioLoss(round_up(self._exponent(self.ball.farthest)))

    @cached_property
    def blanket(self) -> float:
        """γ ≥ e^(−aΔ₁/2)·(2√α/(1 + α))^d, rounded down."""
        with localcontext(LOSS_CONTEXT):
            half = (-Decimal(self.table.rate) / 2).exp()
            middle = (2 * half / (1 + half * half)) ** self.ball.length
            rounding_factor = (-self.ball.length * Decimal(self.table.log_spread)).exp()
            return round_down(half**self.ball.farthest * middle * rounding_factor * SAFE)

    def loss_beside(self, flag: ResponseTable) -> PrivacyLoss:
        """Return the loss over vector against vector, null against vector and back."""
        half = RatioLoss(round_up(self._exponent(self.ball.from_centre)))
        return NullFlagLoss(response_loss(flag), RatioLoss(self.loss.pure()), half, half)

    def blanket_beside(self, flag: ResponseTable) -> float:
        """Return P(null | vector) for null plus the mass that every law shares with the centre's, rounded down."""
        with localcontext(LOSS_CONTEXT):
            keep, flip = Decimal(flag.keep), Decimal(flag.threshold)
            shared_mass = min(keep * (-self._exponent(self.ball.from_centre)).exp(), flip)
            return round_down((flip + shared_mass) * SAFE / (1 << flag.bits))

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        for start in range(0, len(codes), VECTOR_CHUNK_ROWS):
            part = self.ball.within(np.asarray(codes[start : start + VECTOR_CHUNK_ROWS], dtype=np.uint64))
            fields = np.ascontiguousarray(self.ball.unpack(part).T)
            for i, coordinate in enumerate(fields):
                # A fixed number of planes: the words of a coordinate do not depend on the size of the table.
                self.table.sample(coordinate, stream.skip(_VECTOR_PLANES * i), first_row + start, coordinate)
            out[start : start + VECTOR_CHUNK_ROWS] = self.ball.pack(fields.T)

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return P(y | code) for all y as integers over a total, up to 4,097 vectors."""
        if self.size > LARGEST_MATRIX:
            raise ParameterError(
                f"the law of vectors of {self.ball.length} coordinates is too long to write out; noise.law has one's"
            )
        words = np.array([[code]], dtype=np.uint64)
        weights = [1]
        # Coordinates are independent: the law is the product of their laws.
        for coordinate in self.ball.unpack(self.ball.within(words))[0].tolist():
            weights = [w * v for v in self.table.weights(coordinate) for w in weights]
        return weights, 1 << 128 * self.ball.length

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Surrogates of u and of u², by the released code of a coordinate, each of shape (2^bits,)."""
        codes = np.arange(self.ball.last + 1)
        return self.noise.surrogate_at(self._odd, codes), self.noise.surrogate_at(self._squares, codes)

    def _odd(self, codes: IntArray) -> FloatArray:
        return self.ball.odd(np.asarray(codes, dtype=np.int64)).astype(np.float64)

    def _squares(self, codes: IntArray) -> FloatArray:
        return np.asarray(self._odd(codes) ** 2)

    @property
    def variances(self) -> tuple[float, float]:
        """Variance of the surrogate of u for a coordinate next to 0, and the largest."""
        squares = self._squares(np.arange(self.ball.last + 1))
        variances = self.noise.apply(self.moments[0] ** 2, adjoint=True) - squares
        return float(variances[self.ball.last // 2]), float(variances.max())

    def expected_error(self, space: Space | None = None) -> float:
        """Return a bound on E‖Y − x‖ in grid steps, over all vectors x of the cube."""
        rate, span, d = self.table.rate, self.ball.last, self.ball.length
        steps = np.arange(1, span + 1, dtype=np.float64)
        beyond = np.exp(-rate * steps) / (1 + math.exp(-rate))
        # Towards each end Σ_j (2j − 1)·P(|D| ≥ j) is E D², and Σ_j P(|D| ≥ j) is E|D|.
        first, second = (np.append(0.0, np.cumsum(beyond * power)) for power in (1.0, 2 * steps - 1))
        mean, square = (float((towards + towards[::-1]).max()) for towards in (first, second))
        if self.ball.norm == "l1":
            return d * mean
        if self.ball.norm == "l2":
            return math.sqrt(d * square)
        return float((1 - (1 - np.minimum(2 * beyond, 1.0)) ** d).sum())


@dataclass(frozen=True)
class GivenVectorNoise(VectorChannel):
    """Noise on vectors with fixed integers."""

    fixed_ball: Ball
    fixed_table: GeometricTable
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.fixed_ball.size)

    ball: ClassVar[Ball] = forwarded("fixed_ball")

    table: ClassVar[GeometricTable] = forwarded("fixed_table")


@register
@dataclass(frozen=True)
class VectorNoise(VectorChannel, Mechanism):
    """Two-sided geometric noise on every coordinate of a vector, with α = e^(−ε/Δ₁), saturated at both ends.

    Δ₁ is the largest ℓ1 distance of two vectors' codes, so that the noise of a coordinate has the scale Δ₁/ε, which is
    √d·Δ₂/ε in ℓ2. With δ > 0 the pure loss is the largest that makes every channel (ε, δ)-private,
    ln((e^ε + δ)/(1 − δ)). Metric-spaces paper, appendix A.2.4, with the scale that is private in more than one
    dimension.

    ``length``, ``bits`` and ``norm``: the ball, as of a `Vector`. ``epsilon`` and ``delta``: the budget; see
    `dpframe.accounting.budget`.
    """

    length: int
    bits: int
    norm: str
    epsilon: float
    delta: float = 0.0
    size: int = field(init=False, repr=False, compare=False)

    tag: ClassVar[str] = "vector"
    metrics: ClassVar[frozenset[str]] = frozenset({"vector"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.ball.size)
        self._check_budget(self.epsilon, self.delta)
        _ = self.table

    @classmethod
    def shape_of(cls, space: Space) -> tuple[Any, ...]:
        """Return length, bits and norm."""
        vectors: Any = space
        if vectors.ball.room > 1:
            raise ParameterError("mechanism vector is for spaces without room; leave room out, or take gaussian")
        return vectors.ball.length, vectors.ball.bits, vectors.ball.norm

    @classmethod
    def beside_flag(
        cls, shape: tuple[Any, ...], epsilon: float, delta: float, flag_size: int = 2
    ) -> tuple[ResponseTable, Channel]:
        """Return a flag at ε/2 and noise at ε: the flag and the distance from the centre, about half, cost ε too."""
        ball, loss = Ball(*shape), min(pure_rate(epsilon, delta), LARGEST_LOSS)
        parts = ((ball.farthest, loss), (ball.from_centre, loss / 2))
        return response_table(2, loss / 2), GivenVectorNoise(ball, _fitting(ball, parts))

    @cached_property
    def ball(self) -> Ball:
        """The ball to which vectors are projected."""
        return Ball(self.length, self.bits, self.norm)

    @cached_property
    def table(self) -> GeometricTable:
        """The integers that are sampled."""
        loss = min(pure_rate(self.epsilon, self.delta), LARGEST_LOSS)
        return _fitting(self.ball, ((self.ball.farthest, loss),))


@lru_cache(maxsize=256)
def _fitting(ball: Ball, parts: tuple[tuple[int, float], ...]) -> GeometricTable:
    """Return the table of least noise within all limits (steps in ℓ1, loss).

    The error of rounding the weights is guessed, then computed from the table.
    """
    log_spread = 0.0
    for _ in range(50):
        rate = MAX_WORD_EPSILON / ball.last
        for steps, max_loss in parts:
            # All coordinates' roundings count against the loss, in exact fractions.
            max_rate = (Fraction(max_loss) * (1 - Fraction(1, 10**12)) - ball.length * Fraction(log_spread)) / steps
            rate = min(rate, round_down(max_rate))
        if rate <= FLATTEST:
            break
        table = geometric_table(ball.last, rate)
        if table.log_spread <= log_spread:
            return table
        log_spread = max(table.log_spread, 2 * log_spread)
    raise ParameterError(
        f"epsilon is too small for vectors of {ball.length} coordinates; give the column a larger share"
    )
