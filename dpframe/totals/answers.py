"""Noise on the answers to questions: whole numbers, how far one person moves them, and what each mechanism costs.

An answer is one or several lists of whole numbers that are counted exactly (`Numbers`). Neighbours differ in one row,
replaced or added: one row moves at most ``moved`` numbers of a list, each by at most ``span``, or as ``also`` says; a
person of k rows moves them by at most k·moved·span in ℓ1. Lists compose; the shares of an answer's portion go to them.

A **portion** is what an answer may spend: (ε, δ) where a total is added up by ε and δ, or a step (μ, δ₀) where it is
added up in Gaussian differential privacy with a slack (`dpframe.accounting.gaussian_dp`).

Privacy, mechanism by mechanism, always of the integers that are sampled:

- *geometric* (shown as *laplace* on real numbers, *vector* of several numbers): independent discrete Laplace noise of
  rate ε/Δ₁ on each. ln P(y)/P'(y) is a sum of rate·|moveᵢ| ≤ rate·Δ₁ = ε. With Δ₁ ≤ √d·Δ₂ also √d·Δ₂ would do; the
  smaller is taken. (Rate ε/Δ₂ is not private for d > 1.)
- *staircase*: one number that moves by at most Δ stays on its step or changes to a neighbouring one; ln P is a
  multiple of ε per step (Geng–Viswanath 2014, Thm 1 and its integer form).
- *gaussian*: discrete Gaussian noise. In a step, the lattice law's profile lies under the curve of the step
  (`dpframe.accounting.discrete_gaussian`); in an (ε, δ), its profile at ε is at most δ, for the lattice law itself and
  not for the normal one of Balle and Wang (2018, Thm 8), which the search starts from.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from scipy import special

from dpframe.accounting.budget import Budget, round_down, round_up
from dpframe.accounting.discrete_gaussian import IntegerNoise, lattice_profile, noise_step
from dpframe.accounting.gaussian_dp import Step, gaussian_mu, pure_step, share_of_step, step_delta
from dpframe.errors import ParameterError, check_whole
from dpframe.noise.gaussian import LARGEST_SCALE, GaussianTable, gaussian_table
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.stairs import StairNoise, stair_noise, staircase
from dpframe.totals.counts import noisy
from dpframe.totals.least_noise import CLEAREST, COARSEST, FAINTEST, least_noise, place_of, rounded_up, size_at

_BELOW = 1 - 1e-12
"""Factor by which rates are lowered, so that the loss of the integers stays within ε (tolerance)."""
_TAIL = 1e-6
"""Part of δ that a table's law may leave out (tolerance)."""
_SLACK = 1e-2
"""Part of δ for what a step leaves open, which the tables' distances have to fit in (tolerance)."""
"""Part of δ that is kept for what the lattice law leaves out."""
_WIDE = 2.0**16
"""σ² from which on the normal law's quantiles are the discrete ones' (tolerance)."""

_NOTHING = "epsilon is too small for this answer: its noise exceeds every table; raise epsilon or the share"
_NO_DELTA = 'gaussian needs delta above 0; raise delta, or take mechanism="geometric"'


@dataclass(frozen=True)
class Numbers:
    """A list of whole numbers that get noise of one law, independently.

    ``size``: how many there are. ``moved``: how many of them one replaced row moves at most: 2 of a table of counts, 1
    of a sum. ``span``: by how much it moves each at most: 1 for counts, the range of what is summed. ``contributions``:
    rows that one person may own; they move the numbers k times as far. ``also``: another way in which one row may move
    them, as (moved, span): fewer far, or more not as far.
    """

    size: int = 1
    moved: int = 1
    span: int = 1
    contributions: int = 1
    also: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name in ("size", "moved", "span"):
            check_whole(getattr(self, name), name)
        check_whole(self.contributions, "contributions", of="rows per person")
        if self.moved > self.size:
            raise ParameterError("moved must be at most size; a row moves no more numbers than there are")

    @property
    def ways(self) -> list[tuple[int, int]]:
        """The ways in which one row moves them: how many of them, and each by how much."""
        return [(self.moved, self.span)] if self.also is None else [(self.moved, self.span), self.also]

    @property
    def l1(self) -> int:
        """Δ₁, the sensitivity in ℓ1."""
        return self.contributions * max(moved * span for moved, span in self.ways)

    @property
    def l2(self) -> float:
        """Δ₂, the sensitivity in ℓ2."""
        return self.contributions * max(math.sqrt(moved) * span for moved, span in self.ways)


@dataclass(frozen=True)
class Portion:
    """What an answer may spend: (ε, δ), or a step, for which (ε, δ) is what it states in addition."""

    budget: Budget
    step: Step | None = None

    @property
    def pure_epsilon(self) -> float:
        """The largest ε of a pure mechanism within it, rounded down."""
        if self.step is None:
            return self.budget.epsilon
        half = self.step.mu / 2
        epsilon, less = float(special.log_ndtr(half) - special.log_ndtr(-half)), 1e-13
        while epsilon > 0 and pure_step(epsilon).mu > self.step.mu:
            epsilon, less = epsilon * (1 - less), 2 * less
        if epsilon <= 0:
            raise ParameterError(_NOTHING)
        return epsilon

    def split(self, shares: Sequence[float]) -> list[Portion]:
        """Divide it; the parts never come to more than the whole."""
        whole = math.fsum(shares)
        parts = [share / whole * _BELOW for share in shares] if len(shares) > 1 else [1.0]
        budgets = self.budget.split(parts)
        if self.step is None:
            return [Portion(budget) for budget in budgets]
        slacks = [round_down(Fraction(self.step.delta) * Fraction(part)) for part in parts]
        steps = [Step(share_of_step(self.step, part).mu, d) for part, d in zip(parts, slacks, strict=True)]
        return [Portion(budget, step) for budget, step in zip(budgets, steps, strict=True)]

    def spent_by(self, noises: Sequence[Noise]) -> Budget:
        """Return the (ε, δ) of an answer with these noises by itself: without δ, if all are pure."""
        losses = [noise.pure_loss for noise in noises]
        if None in losses:
            return self.budget
        whole = round_up(sum((Fraction(loss) for loss in losses if loss is not None), Fraction(0)))
        return Budget(self.budget.epsilon if self.step is None else whole)


class Noise(ABC):
    """Noise on a list of numbers, calibrated."""

    @property
    def pure_loss(self) -> float | None:
        """The ε of pure noise, of the integers, rounded up; None where δ is above 0."""
        return None

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of the noise on one number."""

    @abstractmethod
    def reach(self, level: float) -> float:
        """Return the least half width of an interval that holds the noise with this probability."""

    @abstractmethod
    def add(self, totals: Sequence[int], stream: ColumnStream) -> list[int]:
        """Return totals with noise from a stream of their own."""


@dataclass(frozen=True)
class Stairs(Noise):
    """Geometric or staircase noise: pure."""

    law: StairNoise
    epsilon: float
    """The loss of the integers, for one person, rounded up."""

    @property
    def pure_loss(self) -> float:
        """The loss of the integers."""
        return self.epsilon

    @property
    def variance(self) -> float:
        """Variance of one number's noise."""
        return self.law.variance

    def reach(self, level: float) -> float:
        """Return the least whole half width, by halving."""
        low, high = -1, 1
        while self.law.beyond(high) > 1 - level:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.law.beyond(middle) <= 1 - level else (middle, high)
        return float(high)

    def add(self, totals: Sequence[int], stream: ColumnStream) -> list[int]:
        """Return totals with noise, which has no bounds."""
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
        """σ², which exceeds the variance by next to nothing."""
        return self.sigma2

    def reach(self, level: float) -> float:
        """Return the half width: whole where the noise is narrow, the normal law's where it is wide."""
        z = NormalDist().inv_cdf((1 + level) / 2)
        if self.sigma2 >= _WIDE:
            return z * math.sqrt(self.sigma2)
        far = math.ceil((z + 8) * math.sqrt(self.sigma2)) + 2
        law = np.exp(-(np.arange(far, dtype=np.float64) ** 2) / (2 * self.sigma2))
        law[1:] *= 2
        return float(np.searchsorted(np.cumsum(law) / law.sum(), level))

    def add(self, totals: Sequence[int], stream: ColumnStream) -> list[int]:
        """Return totals with noise."""
        drawn = noisy([0] * len(totals), self.sigma2, stream)
        return [total + noise for total, noise in zip(totals, drawn.tolist(), strict=True)]


Fit = Callable[[Numbers, Portion], Noise]


def geometric(numbers: Numbers, portion: Portion) -> Stairs:
    """Return discrete Laplace noise of rate ε/Δ₁ on each number, or ε/(√d·Δ₂) if that is less noise."""
    epsilon = portion.pure_epsilon
    sensitivity = min(float(numbers.l1), math.sqrt(numbers.size) * numbers.l2 * (1 + 1e-12))
    law = stair_noise(1, 1, epsilon / sensitivity * _BELOW)
    # What moves is each of `moved` numbers, by k·span: tables' roundings count for each.
    loss = max(moved * law.loss(numbers.contributions * span) for moved, span in numbers.ways)
    return Stairs(law, _within(loss, epsilon))


def stairs(numbers: Numbers, portion: Portion) -> Stairs:
    """Return staircase noise on one number, of least expected absolute error."""
    if numbers.size > 1:
        raise ParameterError(
            'staircase is for an answer of one number, a count, sum or mean; take mechanism="vector" for several'
        )
    epsilon, width = portion.pure_epsilon, numbers.contributions * numbers.span
    law = staircase(width, epsilon * _BELOW)
    return Stairs(law, _within(law.loss(width), epsilon))


def _within(loss: float, epsilon: float) -> float:
    if loss > epsilon:  # tables are too fine for that
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
    """Return the noise as each way meets it in which a row moves the numbers."""
    sigma2, off = float(table.sigma2), round_up(table.distance)
    return [IntegerNoise(sigma2, moved, span, off) for moved, span in numbers.ways]


def _cost(numbers: Numbers, table: GaussianTable, slack: float) -> Step:
    """Return the step of Gaussian noise for one person, by the worst of the ways in which rows move the numbers.

    Where each of a person's k rows moves one of several numbers, these move by Σmᵢ ≤ k spans in all, each of which
    costs μ₁(mᵢ)² at most: k·max μ₁(m)²/m together.
    """
    noises, k = _integer_noises(numbers, table), numbers.contributions
    if k == 1 or numbers.size == 1 or numbers.moved > 1:
        return max((noise_step([noise], k, slack) for noise in noises), key=lambda step: step.mu)
    span = noises[-1].span
    most = numbers.l1 // (k * span)
    pieces = [replace(noises[0], span=m * span) for m in range(1, most * k + 1)]
    squares = [noise_step([piece], 1, slack / (most * k)).mu ** 2 / m for m, piece in enumerate(pieces, 1)]
    return Step(math.sqrt(most * k * max(squares)) * (1 + 1e-12), slack)


# Many questions of one kind ask for equal noise: its σ² is kept, of tables those that `gaussian_table` keeps.
@lru_cache(maxsize=1024)
def _within_step(numbers: Numbers, step: Step) -> float:
    """Return σ² of the least noise that is within a step."""
    if step.delta < FAINTEST:
        raise ParameterError("delta is too small for gaussian noise; raise delta or the share")
    if step.mu <= 0:
        raise ParameterError(_NOTHING)

    def cost(scales: Sequence[float]) -> Step:
        return _cost(numbers, gaussian_table(scales[0]), step.delta * (1 - 1e-6))

    moved, span = max(numbers.ways, key=lambda way: way[0] * way[1] ** 2)
    query = IntegerNoise(COARSEST, moved, span)
    found = least_noise([query], [1.0], min(step.mu, CLEAREST), numbers.contributions, cost)
    if found is None:
        raise ParameterError(_NOTHING)
    return found[0]


@lru_cache(maxsize=1024)
def _within_budget(numbers: Numbers, budget: Budget) -> float:
    """Search σ² on a grid of 12 digits about that of the normal law, which is nearly it where σ is large.

    Where σ is small the lattice has more or less of it by turns: the noise that is returned fits, and is the least of
    the stretch that was searched.
    """

    def fits(place: int) -> bool:
        return gaussian_profile(numbers, _table(size_at(place)), budget.epsilon, budget.delta) <= budget.delta

    normal = numbers.l2**2 / gaussian_mu(min(budget.epsilon, MOST_EPSILON), budget.delta) ** 2
    least, high = place_of(COARSEST), place_of(max(normal, COARSEST))
    while not fits(high):
        high += 8
    low = max(high - 8, least)
    while low > least and fits(low):
        low, high = max(low - 8, least), low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return size_at(least if fits(least) else high)


MOST_EPSILON = 500.0
"""Largest ε that Gaussian noise is calibrated to (limit of the format)."""


def gaussian_profile(numbers: Numbers, table: GaussianTable, epsilon: float, delta: float) -> float:
    """Return a bound from above on the δ at which noise is (ε, δ)-private, rounded up.

    For one number, or several that one row moves by as much, it is the exact sum over the lattice law except for tails
    of a millionth of ``delta``; where a person of several rows moves several numbers, the bound of the step. The worst
    of the ways in which a row moves them counts.
    """
    noises, k = _integer_noises(numbers, table), numbers.contributions
    if k == 1 or numbers.size == 1:
        return max(lattice_profile(noise, k * noise.span, delta * _TAIL)(epsilon) for noise in noises)
    return step_delta(_cost(numbers, table, delta * _SLACK), epsilon)


def _table(sigma2: float) -> GaussianTable:
    if sigma2 > LARGEST_SCALE**2 / 4:
        raise ParameterError(_NOTHING)
    return gaussian_table(rounded_up(max(COARSEST, sigma2)))


MECHANISMS: Mapping[str, Fit] = {
    "gaussian": gaussian,
    "geometric": geometric,
    "laplace": geometric,
    "staircase": stairs,
    "vector": geometric,
}
"""What noise answers may have, by name; laplace and vector are names of geometric on reals and on several numbers."""
