"""Gaussian noise on the rows of vectors, and Gaussian processes on curves: discrete, on every coordinate.

Codes of two vectors in the ball differ by a whole vector whose ℓ2 norm is at most Δ = `Ball.move`/2 steps: noise of
scale σ on every coordinate is a step of about μ = Δ/σ, for any number of coordinates, proved for the discrete law
in `accounting.discrete_gaussian` (`BallNoise`). Laplace noise is in proportion to the largest ℓ1 distance,
which is √d times as large in ℓ2. A curve's coefficients are a vector; noise on them is a Gaussian process on the curve,
and the release shows its projection on the grid (Hall, Rinaldo and Wasserman 2013; metric-spaces paper,
Theorem 3 and Example 4).

*Room.* So smooth a kernel has no usable inverse once the grid's ends saturate it (`gaussian`): the grid must reach
beyond all noise. Codes cover ``room`` radii on both sides of 0, at least 6σ beyond the ball. The release is the value
plus the noise, except in 2e-9 of the draws: the surrogate of u is u, and of u² it is u² less the variance.

*Null* has a flag of μ_f, and is released as noise about the ball's centre if the flag flips: null and a value differ
by the flag and by Δ_c, the largest distance to the centre, so that both together need μ_f² + (Δ_c/σ)² ≤ μ².
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from dpframe.accounting.budget import round_up
from dpframe.accounting.discrete_gaussian import BallNoise
from dpframe.accounting.gaussian_dp import Step
from dpframe.accounting.step_loss import StepLoss
from dpframe.channels.base import IntArray, register
from dpframe.channels.vector_noise import VECTOR_CHUNK_ROWS, BallChannel
from dpframe.channels.wide_gaussian import GaussianMechanism, claimed_step, least_table
from dpframe.errors import ParameterError
from dpframe.noise.gaussian import GaussianTable
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import ResponseTable
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.ball import LARGEST_ROOM, Ball

_LEAST_REACH_SIGMAS, _PLANNED_REACH_SIGMAS = 6.0, 7.0
"""Multiples of σ between the ball and the grid's ends: the least that is valid, and the choice of plans."""

_PROCESS_PLANES = 4
"""Planes of words for each coordinate, whether its table needs all of them or not."""


@register
@dataclass(frozen=True)
class Process(BallChannel, GaussianMechanism):
    """Discrete Gaussian noise on every coordinate of a vector: a Gaussian process if they are a curve's coefficients.

    σ is the least whose proved profile lies under (1 − δ₀)·G_μ + δ₀, the largest such curve through (ε, δ): about
    Δ₂/μ, for any number of coordinates. It needs δ > 0, and takes a part of a plan's δ.
    Unshuffled vectors of more than about 2·ln(1/δ) coordinates have less noise by it than by ``vector``;
    shuffling is worth far more to ``vector``, and nothing to this. Appendix A.2.2; Hall, Rinaldo and Wasserman 2013.

    ``length``, ``bits``, ``norm`` and ``room``: the ball, as of a `Vector`; a plan finds the room. ``epsilon`` and
    ``delta``: the budget; see `dpframe.accounting.budget`.
    """

    length: int
    bits: int
    norm: str
    room: int
    epsilon: float
    delta: float
    size: int = field(init=False, repr=False, compare=False)

    tag: ClassVar[str] = "process"
    aliases: ClassVar[tuple[str, ...]] = ("gaussian",)
    metrics: ClassVar[frozenset[str]] = frozenset({"vector"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.ball.size)
        self._check_budget(self.epsilon, self.delta)
        if (self.ball.last - self.ball.radius) / 2 < _LEAST_REACH_SIGMAS * math.sqrt(self.table.sigma2):
            raise ParameterError(
                f"room={self.room} is too small for gaussian noise on vectors at this epsilon; leave room out, and "
                "the plan chooses it"
            )

    @classmethod
    def shape_of(cls, space: Space) -> tuple[Any, ...]:
        """Return length, bits, norm and room."""
        vectors: Any = space
        return vectors.ball.length, vectors.ball.bits, vectors.ball.norm, vectors.ball.room

    @classmethod
    def space_for(cls, space: Space, epsilon: float, delta: float) -> Space:
        """Return the space on a grid with room for the noise of a budget."""
        vectors: Any = space
        ball: Ball = vectors.ball
        need = 1 + _PLANNED_REACH_SIGMAS * 2 * _from_ball(ball) / ball.radius / _claimed(epsilon, delta).mu
        # A power of 2 keeps fields of whole bits.
        room = 1 << max(0, math.ceil(math.log2(need)))
        if room > LARGEST_ROOM:
            raise ParameterError("epsilon is too small for gaussian noise on vectors' rows; give the column more")
        wider_space: Space = vectors if room <= ball.room else vectors.with_room(room)
        return wider_space

    @cached_property
    def ball(self) -> Ball:
        """The ball to which vectors are projected."""
        return Ball(self.length, self.bits, self.norm, self.room)

    @cached_property
    def own_step(self) -> Step:
        """The largest step within the budget."""
        return _claimed(self.epsilon, self.delta)

    @cached_property
    def step_from_centre(self) -> Step:
        """The step of the noise for a vector against the ball's centre."""
        return _move_step(self.ball, self.table, _from_centre(self.ball), self.own_step.delta)

    @cached_property
    def table(self) -> GaussianTable:
        """The integers that every coordinate's noise is sampled from."""
        return _fitting(self.ball, self.own_step)

    @property
    def loss(self) -> StepLoss:
        """The curve of the noise's step, under which its profile provably lies."""
        return StepLoss(self.own_step)

    blanket = 0.0  # no claim: shuffling gives such noise no credit here

    @property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Surrogates of u and of u², by the released code of a coordinate, each of shape (2^bits,)."""
        u = self.ball.odd(np.arange(self.ball.last + 1)).astype(np.float64)
        return u, u * u - 4 * float(self.table.sigma2)

    @property
    def variances(self) -> tuple[float, float]:
        """Variance of u for a coordinate next to 0, and the largest, which is equal."""
        return 4 * float(self.table.sigma2), 4 * float(self.table.sigma2)

    def blanket_beside(self, flag: ResponseTable) -> float:
        """Return 0."""
        return 0.0

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        for start in range(0, len(codes), VECTOR_CHUNK_ROWS):
            part = self.ball.within(np.asarray(codes[start : start + VECTOR_CHUNK_ROWS], dtype=np.uint64))
            fields = self.ball.unpack(part)
            for i in range(self.ball.length):
                # A fixed number of planes: the words of a coordinate do not depend on the size of the table.
                coordinate_stream = stream.skip(_PROCESS_PLANES * i)
                fields[:, i] += self.table.sample(coordinate_stream, 0, len(part), first_row + start)
            # Saturation beyond 6σ is so rare that surrogates ignore it; without it fields would overflow.
            out[start : start + VECTOR_CHUNK_ROWS] = self.ball.pack(np.clip(fields, 0, self.ball.last))

    def weights(self, code: int) -> tuple[list[int], int]:
        """Refused: the list would be too long."""
        raise ParameterError(
            f"the law of vectors of {self.ball.length} coordinates is too long to write out; table.weights has one's"
        )

    def expected_error(self, space: Space | None = None) -> float:
        """Return a bound on E‖Y − x‖ in grid steps."""
        d = self.ball.length
        sizes = {"l1": d * math.sqrt(2 / math.pi), "l2": math.sqrt(d), "linf": math.sqrt(2 * math.log(2 * d))}
        return self.sigma * sizes[self.ball.norm]


def _claimed(epsilon: float, delta: float) -> Step:
    return claimed_step(epsilon, delta, "vectors needs delta above 0; raise delta, or use vector")


def _from_ball(ball: Ball) -> int:
    """Return Δ, the largest ‖c − c'‖₂ of two vectors' codes, rounded up."""
    return (ball.move + 1) // 2


def _from_centre(ball: Ball) -> int:
    """Return the largest ‖c − c'‖₂ of a vector's code and the centre's, half of ‖u + (1, …, 1)‖₂, rounded up."""
    return math.ceil((ball.move / 2 + math.sqrt(ball.length)) / 2 * (1 + 1e-12))


def _move_step(ball: Ball, table: GaussianTable, move: int, slack: float) -> Step:
    """Return the step of codes that move by an ℓ2 norm of at most ``move``."""
    noise = BallNoise(float(table.sigma2), ball.length, move, round_up(table.distance))
    return noise.step(1, slack)


@lru_cache(maxsize=256)
def _fitting(ball: Ball, limit: Step) -> GaussianTable:
    """Return about the table of least noise whose profile provably lies under a step."""
    with contextlib.suppress(ParameterError):  # noise of few steps, whose law is not close to the normal law
        start = (_from_ball(ball) / limit.mu) ** 2
        table = least_table(start, limit, lambda table: _move_step(ball, table, _from_ball(ball), limit.delta))
        if table is not None:
            return table
    raise ParameterError(
        f"the grid of {ball.bits} bits is too coarse for gaussian noise on {ball.length} coordinates; declare bits=16 "
        "or use vector"
    )
