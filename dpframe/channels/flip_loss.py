"""Independent flips of bits: their exact privacy loss, and the integers that meet a budget with the least noise.

Every item of a set is shown with probability p if the set holds it and q if not, both integers over 2^bits.
Two sets differ in a items that only the first holds and b that only the second holds; the items they share say
nothing. Taking an item out of the difference is post-processing, so the worst pair has the largest a and b.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import cached_property, lru_cache, partial

from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import round_down, round_up
from dpframe.accounting.dominating import BitsLoss, ColumnLoss, ItemsLoss
from dpframe.accounting.loss import NullFlagLoss, PrivacyLoss
from dpframe.channels.base import response_loss, response_table
from dpframe.errors import ParameterError
from dpframe.noise.tables import ResponseTable

_DIGITS = Context(prec=60)
_SLACK = Decimal(10) ** -50
_ENOUGH = 0.9999
"""Share of ε (and nearly of δ) that fewer binary digits of q must still use."""


@dataclass(frozen=True)
class FlipLoss(PrivacyLoss):
    """Loss of items that are shown with probability ``ones/total`` if held and ``zeros/total`` if not.

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
        """Items that only the first, and only the second, of the worst two sets holds."""
        first = min(self.most, self.items)
        return first, min(self.most, self.items - first)

    @cached_property
    def logs(self) -> tuple[Decimal, Decimal]:
        """Return ln(p/q) and ln((1−q)/(1−p)), rounded up."""
        with localcontext(_DIGITS):
            p, q, one = Decimal(self.ones), Decimal(self.zeros), Decimal(self.total)
            return (p / q).ln() + _SLACK, ((one - q) / (one - p)).ln() + _SLACK

    def pure_at(self, only_first: int, only_second: int) -> Decimal:
        """Return ln of the largest P/P' between two sets, rounded up."""
        with localcontext(_DIGITS):
            return (only_first * self.logs[0] + only_second * self.logs[1]) * (1 + _SLACK)

    def pure(self) -> float:
        """Return a·ln(p/q) + b·ln((1−q)/(1−p)) of the worst pair; d·ln((1−q)/q) where p = 1 − q."""
        return round_up(self.pure_at(*self.pair))

    @cached_property
    def column_loss(self) -> ColumnLoss:
        """What the accountant may use of the flips: sets of few items by their own law, others as a bit for each item.

        The blanket is ((1−p)/(1−q))^most, or (1 − p + q)^items.
        """
        few = 2 * self.most <= self.items
        with localcontext(_DIGITS):
            p, q, one = Decimal(self.ones), Decimal(self.zeros), Decimal(self.total)
            if few:
                blanket = ((one - p) / (one - q)) ** self.most
                return ItemsLoss(self.pure(), round_down(blanket * (1 - _SLACK)), self.most)
            pure = round_up(self.items * max(self.logs) * (1 + _SLACK))
            return BitsLoss(pure, round_down(((one - p + q) / one) ** self.items * (1 - _SLACK)), self.items)

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        return self.curve_at(*self.pair, Decimal(epsilon))

    def curve_at(self, only_first: int, only_second: int, epsilon: Decimal) -> Decimal:
        """Return Σ max(0, P − e^ε·P') between two sets, rounded up; ε may be negative.

        Where p = 1 − q this is Σ_j C(d, j)·max(0, (1−q)^j q^(d−j) − e^ε·q^j (1−q)^(d−j)).
        """
        with localcontext(_DIGITS):
            factor = epsilon.exp() * (1 - _SLACK)
            outcomes = _outcomes(self.ones, self.zeros, self.total, only_first, only_second)
            positive = (one - factor * other for one, other in outcomes)
            return sum((part for part in positive if part > 0), Decimal(0)) * (1 + _SLACK) + _SLACK


@lru_cache(maxsize=8)
def _outcomes(ones: int, zeros: int, total: int, a: int, b: int) -> list[tuple[Decimal, Decimal]]:
    """Return (P, P') of every class of outcomes with one ratio P/P'.

    For plain flips the ratio depends on how many of the a + b items look as in the first set; in general on i, how
    many of the a are shown, and j of the b, as R^(i−j) with R the odds ratio.
    """
    with localcontext(_DIGITS):
        held = [Decimal(n) / total for n in (ones, total - ones)]
        missing = [Decimal(n) / total for n in (zeros, total - zeros)]
        if ones + zeros == total:
            return list(zip(_binomial(a + b, *held), _binomial(a + b, *missing), strict=True))
        first = list(zip(_binomial(a, *held), _binomial(a, *missing), strict=True))
        second = list(zip(_binomial(b, *missing), _binomial(b, *held), strict=True))
        law = {m: (Decimal(0), Decimal(0)) for m in range(-b, a + 1)}
        for i, (one, other) in enumerate(first):
            for j, (x, y) in enumerate(second):
                u, v = law[i - j]
                law[i - j] = u + one * x, v + other * y
        return list(law.values())


def _binomial(n: int, shown: Decimal, hidden: Decimal) -> list[Decimal]:
    """Return C(n, k)·shown^k·hidden^(n−k) for k = 0…n.

    Every factor comes from the one before, as binomials of thousands take long; the relative errors that add up,
    below n·10^-58, stay far below the slack.
    """
    ways, ones, zeros = [Decimal(1)], [Decimal(1)], [Decimal(1)]
    for k in range(n):
        ways.append(ways[-1] * (n - k) / (k + 1))
        ones.append(ones[-1] * shown)
        zeros.append(zeros[-1] * hidden)
    return [way * one * zero for way, one, zero in zip(ways, ones, reversed(zeros), strict=True)]


@dataclass(frozen=True)
class PairLoss(PrivacyLoss):
    """Loss of flips between two sets that differ in items that only the first, or only the second, holds."""

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
    return NullFlagLoss(response_loss(flag), flips, PairLoss(flips, 0, flips.most), PairLoss(flips, flips.most, 0))


def _flips(zeros: int, bits: int, items: int, most: int, halved: bool) -> FlipLoss:
    total = 1 << bits
    return FlipLoss(total // 2 if halved else total - zeros, zeros, total, items, most)


def _threshold(rate: Decimal, bits: int) -> int:
    """Return ⌈2^bits/(1 + e^rate)⌉, at least 1."""
    with localcontext(_DIGITS):
        return max(1, math.ceil((1 << bits) / (1 + rate.exp()) * (1 + _SLACK)))


_MOST_RATE = Decimal(1000)
"""Beyond it q is always below 2^-64."""


@lru_cache(maxsize=256)
def fitting_flips(items: int, most: int, epsilon: float, delta: float, halved: bool) -> FlipLoss:
    """Return the flips with the least noise, and of these the fewest binary digits, that meet (ε, δ).

    ``halved`` fixes p = 1/2, otherwise p = 1 − q. With δ = 0 the rate is ε over the diameter (``halved``: over
    ``most``); with δ > 0 it is the largest whose exact δ(ε) meets δ.
    """
    pair = _flips(1, 2, items, most, halved).pair
    distance = most if halved else sum(pair)

    def meets(zeros: int, bits: int) -> bool:
        return _flips(zeros, bits, items, most, halved).delta(epsilon) <= delta

    def least(bits: int) -> int:
        zeros = _threshold(min(Decimal(epsilon) / distance, _MOST_RATE), bits)
        return zeros if meets(zeros, bits) else zeros + 1

    best = least(64)
    if delta > 0:
        low = 1
        while low < best:
            middle = (low + best) // 2
            low, best = (low, middle) if meets(middle, 64) else (middle + 1, best)
    return _fewest_digits(_flips(best, 64, items, most, halved), lambda flips: flips, epsilon, delta)


def _fewest_digits(best: FlipLoss, whole: Callable[[FlipLoss], PrivacyLoss], epsilon: float, delta: float) -> FlipLoss:
    """Return flips with the fewest binary digits of q that waste next to nothing of what the best, of 64, use.

    ``whole`` gives the loss that must meet (ε, δ) from that of the flips.
    """
    if 2 * best.zeros >= best.total:
        raise ParameterError(f"epsilon={epsilon} is too small for sets of {best.items} items; give it a larger share")
    rate, mass = whole(best).pure(), whole(best).delta(epsilon)
    for bits in range(1, 64):
        zeros = -(-best.zeros >> 64 - bits)
        if 2 * zeros < 1 << bits:
            flips = _flips(zeros, bits, best.items, best.most, 2 * best.ones == best.total)
            loss = whole(flips)
            good = loss.pure() >= _ENOUGH * (epsilon if delta == 0 and rate >= _ENOUGH * epsilon else rate)
            if good and loss.delta(epsilon) >= 0.95 * mass and loss.delta(epsilon) <= delta:
                return flips
    return best


@lru_cache(maxsize=256)
def fitting_flagged_flips(items: int, most: int, epsilon: float, delta: float) -> tuple[ResponseTable, FlipLoss]:
    """Return a flag at e/2 and flips at e/2 over ``most`` items, with the largest e ≥ ε that meets (ε, δ).

    Null and a set then differ by e, and so do two sets that differ in 2·most items.
    """

    def make(e: float) -> tuple[ResponseTable, int]:
        return response_table(2, e / 2), _threshold(min(Decimal(e) / (2 * most), _MOST_RATE), 64)

    def meets(e: float) -> bool:
        flag, zeros = make(e)
        return 2 * zeros < 1 << 64 and beside_flag(flag, _flips(zeros, 64, items, most, False)).delta(epsilon) <= delta

    e = bisected(meets, epsilon, 60.0 + 2 * epsilon, 1e-9) if delta > 0 else epsilon
    flag, best = make(e)
    best += 0 if 2 * best >= 1 << 64 or meets(e) else 1
    return flag, _fewest_digits(_flips(best, 64, items, most, False), partial(beside_flag, flag), epsilon, delta)
