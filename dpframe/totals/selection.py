"""Private selection of one of several candidates by their scores, in whole numbers.

*Exponential mechanism of a query* (categorical paper, Definition 2): P(r | d) ∝ base(r)·e^(k·u(d, r)), for any score u
and base measure. With Δ the most that one row moves a score, and R the most by which the moves of two scores differ
(their **range**, at most 2Δ, and Δ where a row moves all of them the same way), ln P(r | d)/P(r | d') is
k·(u(d, r) − u(d', r)) + ln Z'/Z and takes values in an interval of length k·R: the loss is k·R, not 2k·Δ whatever the
scores are, and k·Δ where the normaliser Z is that of every neighbour (Theorem 4). An interval of length k·R with the
mean 1 of e^loss is dominated by the law of two points, which costs no more in Gaussian differential privacy than pure
ε = k·R/2: Φ⁻¹(p) − Φ⁻¹(q) of two chances whose log odds lie k·R apart is largest where they lie about 0, since
Φ(z)Φ(−z)/φ(z) falls in |z| (Dong, Durfee and Rogers 2020 on bounded range).

*Report-noisy-max* with exponential noise, in its form *permute-and-flip* (McKenna and Sheldon 2020; Ding et al. 2021):
candidates come up in a random order, and each is taken with probability e^(−k·(best − u)). With the others' noise fixed
a candidate wins where its noise exceeds a threshold that one row moves by R at most: its loss is k·R. Its score is
never worse on average than that of the exponential mechanism at the same k, but its loss has no such short range.

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
"""Candidates of a selection at most (limit of time)."""
MOST_BASE = 1 << 20
"""Largest ratio of two base weights (limit of the format)."""
_BITS = 192
"""Binary digits of a threshold (limit of the format)."""
_WIDE = 320
"""Binary digits of an exponential before it is rounded (tolerance)."""
_FAR = 80
"""Where e^(−k·t) is taken to stay as it is (tolerance)."""
_ROUNDED = Fraction(1, 1 << 58)
"""Loss by which rounding of the thresholds raises ε, at most (tolerance)."""
_LEAST = 1e-12
"""Least k for which the coins of permute-and-flip are fine enough (tolerance)."""
_BELOW = 1 - 1e-13
"""Factor by which rates are lowered against rounding (tolerance)."""
_DIGITS = Context(prec=110)
"""Decimal digits of exponentials (tolerance)."""

_NOTHING = "epsilon is too small for this answer: every candidate would be as likely; raise epsilon or the share"


@dataclass(frozen=True)
class Scores:
    """How far one row moves the whole scores of candidates.

    A row moves so many tables of scores as one of the ``ways`` (tables, range) says, and in each the moves of two
    scores differ by no more than the range. ``balanced``: one table whose scores move by at most half the range, and
    whose normaliser Σ base·e^(k·score) is the same for all neighbours.
    """

    ways: tuple[tuple[int, int], ...]
    contributions: int = 1
    balanced: bool = False

    @property
    def range(self) -> int:
        """The sum of ranges that one person moves in all tables."""
        return self.contributions * max(tables * spread for tables, spread in self.ways)

    def halved(self, portion: Portion) -> float:
        """Return the largest k whose k·range/2 of each table a portion in Gaussian accounting pays for as pure ε."""
        step = portion.step
        assert step is not None
        found = []
        for tables, spread in self.ways:
            mu = step.mu / (math.sqrt(tables) * self.contributions) * _BELOW
            found.append(2 * Portion(portion.budget, Step(mu, step.delta)).pure_epsilon / spread)
        return min(found)


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
        """Return what the chosen score stays below the best one by at most, with a probability of ``level``.

        ``weight`` is the sum of all base weights over the least of them: P(score ≤ best − t) ≤ weight·e^(−k·t).
        """
        return math.log(weight / (1 - level)) / self.rate


def weights(rate: float, scores: Sequence[int]) -> list[int]:
    """Return the weight of every score over 2¹⁹², that of the best being 1; far below the best it stays as it is.

    e^(−k·t) is a product of two numbers of 320 bits, of t in steps of √t and of what is left, so that few are computed.
    """
    best, far = max(scores), math.ceil(_FAR / rate)
    below = [min(best - score, far) for score in scores]
    distinct = set(below)
    step = math.isqrt(max(distinct)) + 1
    coarse = {q: _power(rate, q * step) for q in {t // step for t in distinct}}
    fine = {r: _power(rate, r) for r in {t % step for t in distinct}}
    known = {t: coarse[t // step] * fine[t % step] >> (2 * _WIDE - _BITS) for t in distinct}
    return [known[t] for t in below]


def _power(rate: float, below: int) -> int:
    """Return e^(−rate·below) over 2³²⁰."""
    with localcontext(_DIGITS):
        return int((-Decimal(rate) * below).exp() * (1 << _WIDE))


class ExponentialSelector(Selector):
    """The exponential mechanism."""

    @classmethod
    def of(cls, scores: Scores, portion: Portion) -> ExponentialSelector:
        """Return the one of the largest k within a portion."""
        whole = Fraction(scores.range, 2 if scores.balanced else 1)
        if portion.step is None:
            rate = portion.budget.epsilon / float(whole) * _BELOW - float(_ROUNDED)
        else:
            rate = scores.halved(portion) * _BELOW
        return cls(_positive(rate), round_up(Fraction(rate) * whole + _ROUNDED))

    def choose(self, scores: Sequence[int], base: Sequence[int] | None, stream: ColumnStream) -> int:
        """Return the position of the chosen candidate, by one word of 256 bits."""
        found = weights(self.rate, scores)
        if base is not None:
            found = [weight * mass for weight, mass in zip(found, base, strict=True)]
        sums = list(accumulate(found))
        word = int.from_bytes(stream.words(0, 0, 4).astype("<u8").tobytes(), "little")
        return bisect_right(sums, word * sums[-1] >> 256)


class NoisyMax(Selector):
    """Report-noisy-max with exponential noise, as permute-and-flip: all base weights are equal."""

    @classmethod
    def of(cls, scores: Scores, portion: Portion) -> NoisyMax:
        """Return the one of the largest k within a portion."""
        if portion.step is None:
            rate = portion.budget.epsilon / scores.range * _BELOW - float(_ROUNDED)
        else:
            rate = scores.halved(portion) / 2 * _BELOW
        return cls(_positive(rate), round_up(Fraction(rate) * scores.range + _ROUNDED))

    def choose(self, scores: Sequence[int], base: Sequence[int] | None, stream: ColumnStream) -> int:
        """Return the first candidate, in the order of the lots, whose coin shows heads."""
        count, chances = len(scores), weights(self.rate, scores)
        lots = stream.words(0, 0, count, bits=128)
        coins = stream.words(1, 0, 3 * count).astype("<u8").reshape(count, 3)
        heads = [at for at in range(count) if int.from_bytes(coins[at].tobytes(), "little") < chances[at]]
        return min(heads, key=lambda at: (int(lots[at, 1]), int(lots[at, 0]), at))


def _positive(rate: float) -> float:
    if not rate >= _LEAST:
        raise ParameterError(_NOTHING)
    return rate


SELECTORS = {"exponential": ExponentialSelector.of, "noisy_max": NoisyMax.of}
"""Ways to select, by name."""


def best_selector(scores: Scores, portion: Portion, weighted: bool = False) -> str:
    """Return the way that errs less, from public facts: permute-and-flip errs at most half at the same k."""
    if weighted:
        return "exponential"
    first, second = ExponentialSelector.of(scores, portion), NoisyMax.of(scores, portion)
    return "exponential" if first.rate > 1.5 * second.rate else "noisy_max"


def check_base(base: Sequence[float], count: int) -> list[int]:
    """Return base weights as whole numbers in exactly their proportion; `ParameterError` for others.

    Rounded ones would add up to other normalisers than weights for which a choice is balanced.
    """
    try:
        # Of one weight each: unlike float, it takes no text.
        found = [math.fsum([weight]) for weight in base]
    except (TypeError, ValueError, OverflowError):
        found = []
    valid = len(found) == count and all(math.isfinite(weight) and weight > 0 for weight in found)
    if not valid or max(found) / min(found) > MOST_BASE:
        raise ParameterError(
            f"base must have a positive weight for each of the {check_whole(count, 'count')} candidates, the largest "
            "at most 2^20 times the least"
        )
    exact = [Fraction(weight) for weight in found]
    unit = math.lcm(*(weight.denominator for weight in exact))
    return [int(weight * unit) for weight in exact]


def whole_cost(selectors: Sequence[Selector], portion: Portion) -> Budget:
    """Return the (ε, δ) of an answer of several choices by itself, without δ where their sum of ε is the smaller."""
    if portion.step is None:
        return Budget(portion.budget.epsilon)
    loss = round_up(sum((Fraction(one.pure_loss) for one in selectors), Fraction(0)))
    return Budget(loss) if loss <= portion.budget.epsilon else portion.budget
