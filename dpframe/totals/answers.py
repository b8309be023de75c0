"""Noise on the answers to questions: whole numbers, how far one person moves them, and the cost of each mechanism.

An answer is one or several lists of whole numbers that are counted exactly (`Numbers`). Neighbours differ in one row,
replaced or added: one row moves at most ``moves`` numbers of a list, each by at most ``span``, or as ``also`` says; a
person of k rows moves them by at most k·moved·span in ℓ1. Lists compose; the shares of an answer's portion go to them.

A **portion** is the budget of an answer: (ε, δ) if ε and δ are added up, or a step (μ, δ₀) if the account is kept in
Gaussian differential privacy with a slack (`dpframe.accounting.gaussian_dp`).

Privacy, mechanism by mechanism, always of the integers that are sampled:

- *geometric* (shown as *laplace* on real numbers, *vector* of several numbers): independent discrete Laplace noise of
  rate ε/Δ₁ on each. ln P(y)/P'(y) is a sum of rate·|moveᵢ| ≤ rate·Δ₁ = ε. As Δ₁ ≤ √d·Δ₂, √d·Δ₂ is valid too; the
  smaller one is used. (Rate ε/Δ₂ is not private for d > 1.)
- *staircase*: one number that moves by at most Δ stays on its step or changes to a neighbouring one; ln P is a
  multiple of ε per step (Geng–Viswanath 2014, Thm 1 and its integer form), whatever error the law minimises.
- *gaussian*: discrete Gaussian noise. In a step, the lattice law's profile lies under the curve of the step
  (`dpframe.accounting.discrete_gaussian`); in an (ε, δ), its profile at ε is at most δ, for the lattice law itself and
  not for the normal one of Balle and Wang (2018, Thm 8), which the search starts from.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from scipy import special

from dpframe.accounting.budget import Budget, round_down, round_up
from dpframe.accounting.discrete_gaussian import IntegerNoise, lattice_profile, noise_step
from dpframe.accounting.gaussian_dp import Step, gaussian_mu, pure_step, share_of_step, step_delta
from dpframe.errors import ParameterError, check_whole
from dpframe.noise.gaussian import LARGEST_SCALE, WEIGHT_TOTAL, GaussianTable, gaussian_table
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.stairs import StairNoise, stair_noise, staircase
from dpframe.spaces.base import forwarded
from dpframe.totals.counts import noisy
from dpframe.totals.least_noise import (
    CLEAREST,
    COARSEST,
    FAINTEST,
    LEAST_ANSWER_SIGMA2,
    least_noise,
    place_of,
    rounded_up,
    size_at,
)

_ANSWER_RATE_FACTOR = 1 - 1e-12
"""Factor by which rates are lowered, so that the loss of the integers stays within ε (tolerance)."""
_TAIL_SHARE = 1e-6
"""Share of δ that a law's truncated tails may have (tolerance)."""
_SLACK_SHARE = 1e-2
"""Share of δ that is a step's slack, which has to cover the tables' distances and the tails (tolerance)."""
_SCANNED_PLACES = 8
"""Places between those at which a scan tries the noise: a 256th of σ² (tolerance)."""
_EXACT_VARIANCE_SIGMA2 = 1.0
"""σ² below which the variance is summed: above it σ² exceeds the variance by 1e-7 of it at most (tolerance)."""
_NORMAL_SIGMA2 = 2.0**16
"""σ² from which on the normal law's quantiles are the discrete ones' (tolerance)."""

_NOTHING = "epsilon is too small for this answer: its noise exceeds every table; raise epsilon or the share"
_NO_DELTA = 'gaussian needs delta above 0; raise delta, or take mechanism="geometric"'


@dataclass(frozen=True)
class Numbers:
    """A list of whole numbers that get noise of one law, independently.

    ``size``: how many there are. ``moves``: how many of them one replaced row moves at most: 2 of a table of counts, 1
    of a sum. ``span``: the most by which it moves each: 1 for counts, the range of the values for sums.
    ``contributions``: rows that one person may own; k rows move the numbers k times as far. ``also``: another way in
    which one row may move them, as (moves, span): fewer numbers farther, or more numbers less far.
    """

    size: int = 1
    moves: int = 1
    span: int = 1
    contributions: int = 1
    also: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name in ("size", "moves", "span"):
            check_whole(getattr(self, name), name)
        check_whole(self.contributions, "contributions", of="rows per person")
        if self.moves > self.size:
            raise ParameterError("moves must be at most size; a row moves no more numbers than there are")

    @property
    def ways(self) -> list[tuple[int, int]]:
        """The ways in which one row moves the numbers: how many of them, and the most by which it moves each."""
        return [(self.moves, self.span)] if self.also is None else [(self.moves, self.span), self.also]

    @property
    def l1(self) -> int:
        """Δ₁, the sensitivity in ℓ1."""
        return self.contributions * max(moves * span for moves, span in self.ways)

    @property
    def l2(self) -> float:
        """Δ₂, the sensitivity in ℓ2."""
        return self.contributions * max(math.sqrt(moves) * span for moves, span in self.ways)


@dataclass(frozen=True)
class Portion:
    """The budget of an answer: (ε, δ), or a step; next to a step (ε, δ) is the stated guarantee."""

    budget: Budget
    step: Step | None = None

    @property
    def pure_epsilon(self) -> float:
        """The largest ε of a pure mechanism within the portion, rounded down."""
        if self.step is None:
            return self.budget.epsilon
        half = self.step.mu / 2
        epsilon, less = float(special.log_ndtr(half) - special.log_ndtr(-half)), 1e-13
        # The closed form is exact up to rounding; the loop settles the last digits on the safe side.
        while epsilon > 0 and pure_step(epsilon).mu > self.step.mu:
            epsilon, less = epsilon * (1 - less), 2 * less
        if epsilon <= 0:
            raise ParameterError(_NOTHING)
        return epsilon

    def split(self, shares: Sequence[float]) -> list[Portion]:
        """Divide the portion in proportion to shares; the parts never add up to more than the portion."""
        share_sum = math.fsum(shares)
        parts = [share / share_sum * _ANSWER_RATE_FACTOR for share in shares] if len(shares) > 1 else [1.0]
        # Next to a step (ε, δ) is only stated; it is split as the step is.
        budgets = self.budget.split(parts)
        if self.step is None:
            return [Portion(budget) for budget in budgets]
        # 1 − δ₀ multiplies, so that slacks in proportion compose to at most the slack of the portion.
        slacks = [round_down(Fraction(self.step.delta) * Fraction(part)) for part in parts]
        steps = [Step(share_of_step(self.step, part).mu, d) for part, d in zip(parts, slacks, strict=True)]
        return [Portion(budget, step) for budget, step in zip(budgets, steps, strict=True)]

    def spent_by(self, noises: Sequence[Noise]) -> Budget:
        """Return the (ε, δ) of an answer with these noises, without δ if all noises are pure."""
        losses = [noise.pure_loss for noise in noises]
        if None in losses:
            return self.budget
        total_loss = round_up(sum((Fraction(loss) for loss in losses if loss is not None), Fraction(0)))
        return Budget(self.budget.epsilon if self.step is None else total_loss)


class Noise(ABC):
    """Noise on a list of numbers, calibrated."""

    @property
    def pure_loss(self) -> float | None:
        """The ε of pure noise, from its integers, rounded up; None if δ is above 0."""
        return None

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of the noise on one number."""

    @abstractmethod
    def reach(self, level: float) -> float:
        """Return the least half width of an interval that contains the noise with probability ``level``."""

    @abstractmethod
    def add(self, totals: Sequence[int], stream: ColumnStream) -> list[int]:
        """Return the totals plus noise from a stream that serves no other totals."""


@dataclass(frozen=True)
class Stairs(Noise):
    """Geometric or staircase noise: pure."""

    law: StairNoise
    epsilon: float
    """The loss of the integers, for one person, rounded up."""

    pure_loss: ClassVar[float] = forwarded("epsilon")

    variance: ClassVar[float] = forwarded("law.variance")

    def reach(self, level: float) -> float:
        """Return the least whole half width, by bisection."""
        low, high = -1, 1
        while self.law.beyond(high) > 1 - level:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.law.beyond(middle) <= 1 - level else (middle, high)
        return float(high)

    def add(self, totals: Sequence[int], stream: ColumnStream) -> list[int]:
        """Return the totals plus noise, which is unbounded."""
        return [total + noise for total, noise in zip(totals, self.law.sample(stream, 0, len(totals)), strict=True)]


@dataclass(frozen=True)
class GaussianAnswer(Noise):
    """Discrete Gaussian noise."""

    table: GaussianTable

    @property
    def sigma2(self) -> float:
        """The parameter σ²."""
        return float(self.table.sigma2)

    @property
    def variance(self) -> float:
        """The variance of the lattice law, which is σ² but for narrow noise."""
        if self.sigma2 >= _EXACT_VARIANCE_SIGMA2:
            return self.sigma2
        weights = self.table.weights()
        return sum(value**2 * weight for value, weight in weights.items()) / WEIGHT_TOTAL

    def reach(self, level: float) -> float:
        """Return the half width: a whole number for narrow noise, the normal law's for wide noise."""
        z = NormalDist().inv_cdf((1 + level) / 2)
        if self.sigma2 >= _NORMAL_SIGMA2:
            return z * math.sqrt(self.sigma2)
        size = math.ceil((z + 8) * math.sqrt(self.sigma2)) + 2
        # 8 standard deviations beyond z leave about 1e-15 outside the sum.
        law = np.exp(-(np.arange(size, dtype=np.float64) ** 2) / (2 * self.sigma2))
        # The law is symmetric: both signs of each value count.
        law[1:] *= 2
        return float(np.searchsorted(np.cumsum(law) / law.sum(), level))

    def add(self, totals: Sequence[int], stream: ColumnStream) -> list[int]:
        """Return the totals plus noise."""
        draws = noisy([0] * len(totals), self.sigma2, stream)
        return [total + noise for total, noise in zip(totals, draws.tolist(), strict=True)]


Fit = Callable[[Numbers, Portion], Noise]


def geometric(numbers: Numbers, portion: Portion) -> Stairs:
    """Return discrete Laplace noise of rate ε/Δ₁ on each number, or of ε/(√d·Δ₂) if the noise is smaller."""
    epsilon = portion.pure_epsilon
    # Either sensitivity is valid; the smaller one gives less noise.
    sensitivity = min(float(numbers.l1), math.sqrt(numbers.size) * numbers.l2 * (1 + 1e-12))
    law = stair_noise(1, 1, epsilon / sensitivity * _ANSWER_RATE_FACTOR)
    # Each of the `moves` numbers moves by k·span, and the rounding of its table adds to the loss.
    loss = max(moves * law.loss(numbers.contributions * span) for moves, span in numbers.ways)
    return Stairs(law, _within(loss, epsilon))


def stairs(numbers: Numbers, portion: Portion, power: int = 1) -> Stairs:
    """Return staircase noise on one number, of least expected absolute error, or squared error for ``power`` 2."""
    if numbers.size > 1:
        raise ParameterError(
            'staircase is for an answer of one number, a count, sum or mean; take mechanism="vector" for several'
        )
    epsilon, width = portion.pure_epsilon, numbers.contributions * numbers.span
    law = staircase(width, epsilon * _ANSWER_RATE_FACTOR, power)
    return Stairs(law, _within(law.loss(width), epsilon))


def stairs_of_squares(numbers: Numbers, portion: Portion) -> Stairs:
    """Return staircase noise on one number, of least expected squared error."""
    return stairs(numbers, portion, power=2)


def _within(loss: float, epsilon: float) -> float:
    if loss > epsilon:  # the rounding of the tables exceeds so small an ε
        raise ParameterError(_NOTHING)
    return loss


def gaussian(numbers: Numbers, portion: Portion) -> GaussianAnswer:
    """Return the least discrete Gaussian noise whose exact loss is within a portion."""
    if portion.budget.delta == 0:
        raise ParameterError(_NO_DELTA)
    if portion.step is not None:
        return GaussianAnswer(_table(_within_step(numbers, portion.step)))
    return GaussianAnswer(_table(_within_budget(numbers, portion.budget)))


def _integer_noises(numbers: Numbers, table: GaussianTable) -> list[IntegerNoise]:
    """Return, for each way in which a row moves the numbers, the noise on the numbers that move."""
    sigma2, distance = float(table.sigma2), round_up(table.distance)
    return [IntegerNoise(sigma2, moves, span, distance) for moves, span in numbers.ways]


def _cost(numbers: Numbers, table: GaussianTable, slack: float) -> Step:
    """Return the step of Gaussian noise for one person, by the worst of the ways in which rows move the numbers.

    If each of a person's k rows moves one of several numbers, the numbers move by Σmᵢ ≤ k spans in all. A number that
    moves by mᵢ spans costs at most μ₁(mᵢ)², so that all cost at most k·max μ₁(m)²/m.
    """
    noises, rows = _integer_noises(numbers, table), numbers.contributions
    if rows == 1 or numbers.size == 1 or numbers.moves > 1:
        return max((noise_step([noise], rows, slack) for noise in noises), key=lambda step: step.mu)
    span = noises[-1].span
    max_moves = numbers.l1 // (rows * span)
    pieces = [replace(noises[0], span=m * span) for m in range(1, max_moves * rows + 1)]
    squares = [noise_step([piece], 1, slack / (max_moves * rows)).mu ** 2 / m for m, piece in enumerate(pieces, 1)]
    return Step(math.sqrt(max_moves * rows * max(squares)) * (1 + 1e-12), slack)


# Many questions of one kind ask for equal noise. Caching σ² suffices: `gaussian_table` caches the tables.
@lru_cache(maxsize=1024)
def _within_step(numbers: Numbers, step: Step) -> float:
    """Return σ² of the least noise whose cost is within a step."""
    if step.delta < FAINTEST:
        raise ParameterError("delta is too small for gaussian noise; raise delta or the share")
    if step.mu <= 0:
        raise ParameterError(_NOTHING)

    def cost(scales: Sequence[float]) -> Step:
        return _cost(numbers, gaussian_table(scales[0]), step.delta * (1 - 1e-6))

    def fits(place: int) -> bool:
        with contextlib.suppress(ParameterError):  # noise so small that its law has no bound
            return cost([size_at(place)]).mu <= step.mu
        return False

    moves, span = max(numbers.ways, key=lambda way: way[0] * way[1] ** 2)
    # `least_noise` does not read σ² of the query, so that any valid σ² serves.
    query = IntegerNoise(COARSEST, moves, span)
    variances = least_noise([query], [1.0], min(step.mu, CLEAREST), numbers.contributions, cost)
    if variances is None:
        raise ParameterError(_NOTHING)
    high = place_of(variances[0])
    if step.mu <= CLEAREST and high > place_of(COARSEST):
        return variances[0]
    # The lattice law never needs less than the normal one, where the search for less noise begins.
    normal = moves * (numbers.contributions * span / step.mu) ** 2
    low = place_of(max(LEAST_ANSWER_SIGMA2, normal)) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return size_at(high)


@lru_cache(maxsize=1024)
def _within_budget(numbers: Numbers, budget: Budget) -> float:
    """Return σ² of the least noise within (ε, δ), on a grid of 12 binary digits about the normal law's σ².

    The normal law is nearly exact for large σ. For small σ the lattice law's δ rises and falls about it, so that the
    result fits and is the least of the searched interval, but perhaps not of all σ².
    """

    def fits(place: int) -> bool:
        return gaussian_profile(numbers, _table(size_at(place)), budget.epsilon, budget.delta) <= budget.delta

    normal = numbers.l2**2 / gaussian_mu(min(budget.epsilon, MAX_CALIBRATED_EPSILON), budget.delta) ** 2
    lowest, high = place_of(COARSEST), place_of(max(normal, COARSEST))
    # The lattice law may need more noise than the normal law that the search starts from.
    while not fits(high):
        high += 8
    low = max(high - 8, lowest)
    while low > lowest and fits(low):
        low, high = max(low - 8, lowest), low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    if not fits(lowest):
        return size_at(high)
    # Where a loss of the lattice passes ε, δ leaps: the least noise is found by a scan.
    for place in range(place_of(LEAST_ANSWER_SIGMA2), lowest, _SCANNED_PLACES):
        with contextlib.suppress(ParameterError):
            if fits(place):
                return size_at(place)
    return size_at(lowest)


MAX_CALIBRATED_EPSILON = 500.0
"""Largest ε that Gaussian noise is calibrated to (limit of the format)."""


def gaussian_profile(numbers: Numbers, table: GaussianTable, epsilon: float, delta: float) -> float:
    """Return an upper bound on the δ at which noise is (ε, δ)-private, rounded up, by the worst move of the numbers.

    For one number, or several that one row moves equally far, the bound is the exact sum over the lattice law except
    for tails of a millionth of ``delta``. If a person of several rows moves several numbers, the step gives the bound.
    """
    noises, k = _integer_noises(numbers, table), numbers.contributions
    if k == 1 or numbers.size == 1:
        return max(lattice_profile(noise, k * noise.span, delta * _TAIL_SHARE)(epsilon) for noise in noises)
    return step_delta(_cost(numbers, table, delta * _SLACK_SHARE), epsilon)


def _table(sigma2: float) -> GaussianTable:
    if sigma2 > LARGEST_SCALE**2 / 4:
        raise ParameterError(_NOTHING)
    return gaussian_table(rounded_up(max(LEAST_ANSWER_SIGMA2, sigma2)))


MECHANISMS: Mapping[str, Fit] = {
    "gaussian": gaussian,
    "geometric": geometric,
    "laplace": geometric,
    "staircase": stairs,
    "staircase_squares": stairs_of_squares,
    "vector": geometric,
}
"""Mechanisms of answers, by name; laplace and vector name geometric noise on reals and on several numbers.

staircase has the least expected absolute error, staircase_squares the least expected squared error.
"""
