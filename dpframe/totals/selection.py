"""Private selection of one of several candidates by their scores, in whole numbers.

*Exponential mechanism of a query* (categorical paper, Definition 2): P(r | d) ∝ base(r)·e^(k·u(d, r)), for any score u
and base measure. With Δ the most that one row moves a score, and R the most by which the moves of two scores differ
(their **range**, at most 2Δ, and Δ if a row moves all scores in one direction), ln P(r | d)/P(r | d') is
k·(u(d, r) − u(d', r)) + ln Z'/Z and takes values in an interval of length k·R: the loss is k·R, not 2k·Δ whatever the
scores are, and k·Δ if all neighbours have one normaliser Z (Theorem 4). An interval of length k·R with the
mean 1 of e^loss is dominated by the law of two points, which costs no more in Gaussian differential privacy than pure
ε = k·R/2: Φ⁻¹(p) − Φ⁻¹(q) of two chances whose log odds lie k·R apart is largest if they lie about 0, since
Φ(z)Φ(−z)/φ(z) falls in |z| (Dong, Durfee and Rogers 2020 on bounded range).

*Report-noisy-max* with exponential noise, in its form *permute-and-flip* (McKenna and Sheldon 2020; Ding et al. 2021):
candidates come up in a random order, and each is taken with probability e^(−k·(best − u)). With the others' noise fixed
a candidate wins if its noise exceeds a threshold that one row moves by R at most: its loss is k·R. At equal k its mean
score is never below the exponential mechanism's, but its loss has no such short range.

*In whole numbers.* Scores are whole; those further than 80/k below the best count as being there, which moves by no
more than the scores do. e^(−k·t) is a whole number over 2¹⁹², right to 2⁻⁷⁵ of itself; the choice compares a word of
256 bits with cumulative weights, coins and lots are words of 192 and 128. All of that moves the loss by less than 2⁻⁵⁸,
which is added to it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate

from dpframe.accounting.budget import Budget, round_up
from dpframe.accounting.gaussian_dp import Step
from dpframe.errors import ParameterError, check_whole
from dpframe.noise.keystream import ColumnStream
from dpframe.totals.answers import Portion

MOST_CANDIDATES = 1 << 16
"""Largest number of candidates of a selection (limit of time)."""
MOST_BASE = 1 << 20
"""Largest ratio of two base weights (limit of the format)."""
_THRESHOLD_BITS = 192
"""Binary digits of a threshold (limit of the format)."""
_EXPONENTIAL_BITS = 320
"""Binary digits of an exponential before it is rounded (tolerance)."""
_MAX_LOG_DECAY = 80
"""Largest k·t: e^(−k·t) is constant beyond it (tolerance)."""
_ROUNDING_LOSS = Fraction(1, 1 << 58)
"""Bound on the loss that the rounding of thresholds adds to ε (tolerance)."""
_MIN_SELECTION_RATE = 1e-12
"""Least k: for smaller k the coins of permute-and-flip are too coarse (tolerance)."""
_SELECTION_RATE_FACTOR = 1 - 1e-13
"""Factor by which rates are lowered against rounding (tolerance)."""
_EXPONENTIAL_CONTEXT = Context(prec=110)
"""Decimal digits of exponentials (tolerance)."""

_NOTHING = "epsilon is too small for this answer: every candidate would be as likely; raise epsilon or the share"


@dataclass(frozen=True)
class Scores:
    """How far one row moves the whole scores of candidates.

    A row moves as many tables of scores as one of the ``ways`` (tables, range) says, and in each table the moves of two
    scores differ by no more than the range. ``balanced``: one table whose scores move by at most half the range, and
    whose normaliser Σ base·e^(k·score) is equal for all neighbours.
    """

    ways: tuple[tuple[int, int], ...]
    contributions: int = 1
    balanced: bool = False

    @property
    def range(self) -> int:
        """The sum of the ranges of all tables that one person moves."""
        return self.contributions * max(tables * score_range for tables, score_range in self.ways)

    def halved(self, portion: Portion) -> float:
        """Return the largest k for which the portion's step covers the pure ε = k·range/2 of each table."""
        step = portion.step
        assert step is not None
        rates = []
        for tables, score_range in self.ways:
            mu = step.mu / (math.sqrt(tables) * self.contributions) * _SELECTION_RATE_FACTOR
            rates.append(2 * Portion(portion.budget, Step(mu, step.delta)).pure_epsilon / score_range)
        return min(rates)


@dataclass(frozen=True)
class Selector(ABC):
    """A way to choose, calibrated: ``rate`` is k for one unit of the scores."""

    rate: float
    pure_loss: float
    """The ε of all choices for one person, of the whole numbers, rounded up."""

    @abstractmethod
    def choose(self, scores: Sequence[int], base: Sequence[int] | None, stream: ColumnStream) -> int:
        """Return the position of the chosen candidate."""

    def shortfall(self, weight: float, level: float) -> float:
        """Return a bound on best score − chosen score that holds with probability ``level``.

        ``weight`` is the sum of all base weights over the least of them: P(score ≤ best − t) ≤ weight·e^(−k·t).
        """
        return math.log(weight / (1 - level)) / self.rate


def weights(rate: float, scores: Sequence[int]) -> list[int]:
    """Return the weight of every score over 2¹⁹², the best score having 1; far below the best the weight is constant.

    e^(−k·t) is a product of two numbers of 320 bits, one for t in steps of √t and one for the remainder, so that few
    exponentials are computed.
    """
    best, max_distance = max(scores), math.ceil(_MAX_LOG_DECAY / rate)
    distances = [min(best - score, max_distance) for score in scores]
    distinct = set(distances)
    # Two factors of about √t values each replace t exponentials of 110 digits.
    step = math.isqrt(max(distinct)) + 1
    coarse = {q: _power(rate, q * step) for q in {t // step for t in distinct}}
    fine = {r: _power(rate, r) for r in {t % step for t in distinct}}
    weight_at = {t: coarse[t // step] * fine[t % step] >> (2 * _EXPONENTIAL_BITS - _THRESHOLD_BITS) for t in distinct}
    return [weight_at[t] for t in distances]


def _power(rate: float, below: int) -> int:
    """Return e^(−rate·below) over 2³²⁰."""
    with localcontext(_EXPONENTIAL_CONTEXT):
        return int((-Decimal(rate) * below).exp() * (1 << _EXPONENTIAL_BITS))


class ExponentialSelector(Selector):
    """The exponential mechanism."""

    @classmethod
    def of(cls, scores: Scores, portion: Portion) -> ExponentialSelector:
        """Return the selector of the largest k within a portion."""
        loss_range = Fraction(scores.range, 2 if scores.balanced else 1)
        if portion.step is None:
            rate = portion.budget.epsilon / float(loss_range) * _SELECTION_RATE_FACTOR - float(_ROUNDING_LOSS)
        else:
            rate = scores.halved(portion) * _SELECTION_RATE_FACTOR
        return cls(_positive(rate), round_up(Fraction(rate) * loss_range + _ROUNDING_LOSS))

    def choose(self, scores: Sequence[int], base: Sequence[int] | None, stream: ColumnStream) -> int:
        """Return the position of the chosen candidate, by one word of 256 bits."""
        masses = weights(self.rate, scores)
        if base is not None:
            masses = [weight * mass for weight, mass in zip(masses, base, strict=True)]
        sums = list(accumulate(masses))
        word = int.from_bytes(stream.words(0, 0, 4).astype("<u8").tobytes(), "little")
        return bisect_right(sums, word * sums[-1] >> 256)


class NoisyMax(Selector):
    """Report-noisy-max with exponential noise, as permute-and-flip: all base weights are equal."""

    @classmethod
    def of(cls, scores: Scores, portion: Portion) -> NoisyMax:
        """Return the selector of the largest k within a portion."""
        if portion.step is None:
            rate = portion.budget.epsilon / scores.range * _SELECTION_RATE_FACTOR - float(_ROUNDING_LOSS)
        else:
            rate = scores.halved(portion) / 2 * _SELECTION_RATE_FACTOR
        return cls(_positive(rate), round_up(Fraction(rate) * scores.range + _ROUNDING_LOSS))

    def choose(self, scores: Sequence[int], base: Sequence[int] | None, stream: ColumnStream) -> int:
        """Return the first candidate, in the order of the lots, whose coin shows heads."""
        count, chances = len(scores), weights(self.rate, scores)
        # The order of 128-bit lots is a uniform permutation; equal lots are practically impossible.
        lots = stream.words(0, 0, count, bits=128)
        coins = stream.words(1, 0, 3 * count).astype("<u8").reshape(count, 3)
        heads = [at for at in range(count) if int.from_bytes(coins[at].tobytes(), "little") < chances[at]]
        return min(heads, key=lambda at: (int(lots[at, 1]), int(lots[at, 0]), at))


def _positive(rate: float) -> float:
    if not rate >= _MIN_SELECTION_RATE:
        raise ParameterError(_NOTHING)
    return rate


SELECTORS = {"exponential": ExponentialSelector.of, "noisy_max": NoisyMax.of}
"""Ways to select, by name."""


def best_selector(scores: Scores, portion: Portion, weighted: bool = False) -> str:
    """Return the mechanism of smaller error, from public facts: permute-and-flip errs at most half at equal k."""
    if weighted:
        return "exponential"
    first, second = ExponentialSelector.of(scores, portion), NoisyMax.of(scores, portion)
    return "exponential" if first.rate > 1.5 * second.rate else "noisy_max"


def check_base(base: Sequence[float], count: int) -> list[int]:
    """Return base weights as whole numbers in exactly their proportion, or raise `ParameterError`.

    Rounded weights would break the equal normalisers that a balanced choice rests on.
    """
    try:
        # A sum of one weight: unlike float, fsum takes no text.
        floats = [math.fsum([weight]) for weight in base]
    except (TypeError, ValueError, OverflowError):
        floats = []
    valid = len(floats) == count and all(math.isfinite(weight) and weight > 0 for weight in floats)
    if not valid or max(floats) / min(floats) > MOST_BASE:
        raise ParameterError(
            f"base must have a positive weight for each of the {check_whole(count, 'count')} candidates, the largest "
            "at most 2^20 times the least"
        )
    exact = [Fraction(weight) for weight in floats]
    unit = math.lcm(*(weight.denominator for weight in exact))
    return [int(weight * unit) for weight in exact]


def whole_cost(selectors: Sequence[Selector], portion: Portion) -> Budget:
    """Return the (ε, δ) of an answer of several choices, without δ if the sum of their ε is smaller."""
    if portion.step is None:
        return Budget(portion.budget.epsilon)
    loss = round_up(sum((Fraction(one.pure_loss) for one in selectors), Fraction(0)))
    return Budget(loss) if loss <= portion.budget.epsilon else portion.budget
