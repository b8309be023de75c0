"""Independent flips of bits: their exact privacy loss, and the integers that meet a budget with the least noise.

Every item of a set is shown with probability p if the set contains it and q if not, both integers over 2^bits. Two
sets differ in a items of just the first and b items of just the second; common items reveal nothing. Removing an item
from the difference is post-processing, so that the worst pair has the largest a and b.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache, partial

from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import DECIMAL_SLACK, LOSS_CONTEXT, round_down, round_up
from dpframe.accounting.dominating import BitsLoss, ColumnLoss, ItemsLoss
from dpframe.accounting.loss import NullFlagLoss, PrivacyLoss
from dpframe.channels.base import response_loss, response_table
from dpframe.errors import ParameterError
from dpframe.noise.tables import ResponseTable

_MIN_USED_SHARE = 0.9999
"""Least share of ε (and about of δ) that fewer binary digits of q must use."""


@dataclass(frozen=True)
class FlipLoss(PrivacyLoss):
    """Loss of items that are shown with probability ``ones/total`` if in the set and ``zeros/total`` if not.

    For sets of at most ``most`` of ``items`` items; 0 < zeros < ones < total, either ones + zeros = total (plain
    flips) or 2·most ≤ items.
    """

    ones: int
    zeros: int
    total: int
    items: int
    most: int

    @property
    def symmetric(self) -> bool:
        """Whether both kinds of bits flip with one probability."""
        return self.ones + self.zeros == self.total

    @property
    def pair(self) -> tuple[int, int]:
        """Numbers of items in just the first, and in just the second, of the worst two sets."""
        first = min(self.most, self.items)
        return first, min(self.most, self.items - first)

    @cached_property
    def logs(self) -> tuple[Decimal, Decimal]:
        """Return ln(p/q) and ln((1−q)/(1−p)), rounded up."""
        with localcontext(LOSS_CONTEXT):
            p, q, one = Decimal(self.ones), Decimal(self.zeros), Decimal(self.total)
            return (p / q).ln() + DECIMAL_SLACK, ((one - q) / (one - p)).ln() + DECIMAL_SLACK

    def pure_at(self, only_first: int, only_second: int) -> Decimal:
        """Return ln of the largest P/P' between two sets, rounded up."""
        with localcontext(LOSS_CONTEXT):
            return (only_first * self.logs[0] + only_second * self.logs[1]) * (1 + DECIMAL_SLACK)

    def pure(self) -> float:
        """Return a·ln(p/q) + b·ln((1−q)/(1−p)) of the worst pair; d·ln((1−q)/q) if p = 1 − q."""
        return round_up(self.pure_at(*self.pair))

    @cached_property
    def column_loss(self) -> ColumnLoss:
        """Loss of the flips for the accountant: the law of sets of few items, else a bit for each item.

        The blanket is ((1−p)/(1−q))^most, or (1 − p + q)^items.
        """
        is_sparse = 2 * self.most <= self.items
        with localcontext(LOSS_CONTEXT):
            p, q, one = Decimal(self.ones), Decimal(self.zeros), Decimal(self.total)
            if is_sparse:
                blanket = ((one - p) / (one - q)) ** self.most
                return ItemsLoss(self.pure(), round_down(blanket * (1 - DECIMAL_SLACK)), self.most)
            pure = round_up(self.items * max(self.logs) * (1 + DECIMAL_SLACK))
            return BitsLoss(pure, round_down(((one - p + q) / one) ** self.items * (1 - DECIMAL_SLACK)), self.items)

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        return self.curve_at(*self.pair, Decimal(epsilon))

    def curve_at(self, only_first: int, only_second: int, epsilon: Decimal) -> Decimal:
        """Return Σ max(0, P − e^ε·P') between two sets, rounded up; ε may be negative.

        For p = 1 − q this is Σ_j C(d, j)·max(0, (1−q)^j q^(d−j) − e^ε·q^j (1−q)^(d−j)).
        """
        with localcontext(LOSS_CONTEXT):
            factor = epsilon.exp() * (1 - DECIMAL_SLACK)
            # Cached: a search for the ε of a δ evaluates one curve many times.
            outcomes = _outcomes(self.ones, self.zeros, self.total, only_first, only_second)
            positive = (p_first - factor * p_second for p_first, p_second in outcomes)
            return sum((part for part in positive if part > 0), Decimal(0)) * (1 + DECIMAL_SLACK) + DECIMAL_SLACK


@lru_cache(maxsize=8)
def _outcomes(ones: int, zeros: int, total: int, a: int, b: int) -> list[tuple[Decimal, Decimal]]:
    """Return (P, P') of every class of outcomes with one ratio P/P'.

    For plain flips the ratio depends on the number of the a + b items that look as in the first set. In general it is
    R^(i−j), with i of the a items and j of the b items shown and R the odds ratio.
    """
    with localcontext(LOSS_CONTEXT):
        held_chances = [Decimal(n) / total for n in (ones, total - ones)]
        missing_chances = [Decimal(n) / total for n in (zeros, total - zeros)]
        if ones + zeros == total:
            return list(zip(_binomial(a + b, *held_chances), _binomial(a + b, *missing_chances), strict=True))
        first = list(zip(_binomial(a, *held_chances), _binomial(a, *missing_chances), strict=True))
        second = list(zip(_binomial(b, *missing_chances), _binomial(b, *held_chances), strict=True))
        law = {m: (Decimal(0), Decimal(0)) for m in range(-b, a + 1)}
        for i, (p_first, p_second) in enumerate(first):
            for j, (x, y) in enumerate(second):
                u, v = law[i - j]
                law[i - j] = u + p_first * x, v + p_second * y
        return list(law.values())


def _binomial(n: int, show_chance: Decimal, hide_chance: Decimal) -> list[Decimal]:
    """Return C(n, k)·shown^k·hidden^(n−k) for k = 0…n.

    Every factor comes from the previous one, as binomials of thousands take long. The relative errors add up to less
    than n·10^-58, far below the slack.
    """
    ways, ones, zeros = [Decimal(1)], [Decimal(1)], [Decimal(1)]
    for k in range(n):
        ways.append(ways[-1] * (n - k) / (k + 1))
        ones.append(ones[-1] * show_chance)
        zeros.append(zeros[-1] * hide_chance)
    return [way * one * zero for way, one, zero in zip(ways, ones, reversed(zeros), strict=True)]


@dataclass(frozen=True)
class PairLoss(PrivacyLoss):
    """Loss of flips between two sets that differ in some items of just the first and of just the second."""

    flips: FlipLoss
    only_first: int
    only_second: int

    def pure(self) -> float:
        """Return a·ln(p/q) + b·ln((1−q)/(1−p))."""
        return round_up(self.flips.pure_at(self.only_first, self.only_second))

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        return self.flips.curve_at(self.only_first, self.only_second, Decimal(epsilon))


def beside_flag(flag: ResponseTable, flips: FlipLoss) -> NullFlagLoss:
    """Return the loss of flips with a null flag; a null whose flag flips shows the empty set flipped."""
    # The empty set is the centre: the worst set against it has the most items.
    return NullFlagLoss(response_loss(flag), flips, PairLoss(flips, 0, flips.most), PairLoss(flips, flips.most, 0))


def _flips(zeros: int, bits: int, items: int, max_items: int, halved: bool) -> FlipLoss:
    total = 1 << bits
    return FlipLoss(total // 2 if halved else total - zeros, zeros, total, items, max_items)


def _threshold(rate: Decimal, bits: int) -> int:
    """Return ⌈2^bits/(1 + e^rate)⌉, at least 1."""
    with localcontext(LOSS_CONTEXT):
        return max(1, math.ceil((1 << bits) / (1 + rate.exp()) * (1 + DECIMAL_SLACK)))


_MAX_FLIP_RATE = Decimal(1000)
"""Largest rate in use: beyond it q is always below 2^-64."""


@lru_cache(maxsize=256)
def fitting_flips(items: int, max_items: int, epsilon: float, delta: float, halved: bool) -> FlipLoss:
    """Return the flips with the least noise, and of these the fewest binary digits, that meet (ε, δ).

    ``halved`` fixes p = 1/2, otherwise p = 1 − q. With δ = 0 the rate is ε over the diameter (``halved``: over
    ``max_items``); with δ > 0 it is the largest whose exact δ(ε) meets δ.
    """
    pair = _flips(1, 2, items, max_items, halved).pair
    distance = max_items if halved else sum(pair)

    def meets(zeros: int, bits: int) -> bool:
        return _flips(zeros, bits, items, max_items, halved).delta(epsilon) <= delta

    def smallest_zeros(bits: int) -> int:
        zeros = _threshold(min(Decimal(epsilon) / distance, _MAX_FLIP_RATE), bits)
        # The threshold is rounded, and its exact loss may exceed ε by the last digit.
        return zeros if meets(zeros, bits) else zeros + 1

    best = smallest_zeros(64)
    if delta > 0:
        low = 1
        while low < best:
            middle = (low + best) // 2
            # With δ > 0 less noise fits than the pure rate asks for: bisection on the integers.
            low, best = (low, middle) if meets(middle, 64) else (middle + 1, best)
    return _fewest_digits(_flips(best, 64, items, max_items, halved), lambda flips: flips, epsilon, delta)


def _fewest_digits(
    best: FlipLoss, loss_of: Callable[[FlipLoss], PrivacyLoss], epsilon: float, delta: float
) -> FlipLoss:
    """Return flips with the fewest binary digits of q that use nearly all of the budget that 64 digits use.

    ``loss_of`` maps flips to the loss that must meet (ε, δ).
    """
    if 2 * best.zeros >= best.total:
        raise ParameterError(f"epsilon={epsilon} is too small for sets of {best.items} items; give it a larger share")
    rate, mass = loss_of(best).pure(), loss_of(best).delta(epsilon)
    for bits in range(1, 64):
        # Rounded up: more noise, never less. A digit saves a plane of random words.
        zeros = -(-best.zeros >> 64 - bits)
        if 2 * zeros < 1 << bits:
            flips = _flips(zeros, bits, best.items, best.most, 2 * best.ones == best.total)
            loss = loss_of(flips)
            uses_budget = loss.pure() >= _MIN_USED_SHARE * (
                epsilon if delta == 0 and rate >= _MIN_USED_SHARE * epsilon else rate
            )
            if uses_budget and loss.delta(epsilon) >= 0.95 * mass and loss.delta(epsilon) <= delta:
                return flips
    return best


@lru_cache(maxsize=256)
def fitting_flagged_flips(items: int, max_items: int, epsilon: float, delta: float) -> tuple[ResponseTable, FlipLoss]:
    """Return a flag at e/2 and flips at e/2 over ``max_items`` items, with the largest e ≥ ε that meets (ε, δ).

    Null and a set then differ by e, and so do two sets that differ in 2·most items.
    """

    def make(e: float) -> tuple[ResponseTable, int]:
        return response_table(2, e / 2), _threshold(min(Decimal(e) / (2 * max_items), _MAX_FLIP_RATE), 64)

    def meets(e: float) -> bool:
        flag, zeros = make(e)
        return (
            2 * zeros < 1 << 64
            and beside_flag(flag, _flips(zeros, 64, items, max_items, False)).delta(epsilon) <= delta
        )

    # At δ = 0 the split of ε is exact; only δ > 0 leaves space for a search.
    e = bisected(meets, epsilon, 60.0 + 2 * epsilon, 1e-9) if delta > 0 else epsilon
    flag, best = make(e)
    best += 0 if 2 * best >= 1 << 64 or meets(e) else 1
    return flag, _fewest_digits(_flips(best, 64, items, max_items, False), partial(beside_flag, flag), epsilon, delta)
