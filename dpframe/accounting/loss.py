"""Privacy loss as data: exact curves δ(ε) of the channels that are sampled, and budgets.

All values are bounds from above in spite of rounding: curves are evaluated with 50 digits and rounded
outward to floats, budgets are split and added in exact fractions.

One person's row changes the probability of any release by at most the factor e^ε, except for a probability mass of
at most δ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import DECIMAL_SLACK, LOSS_CONTEXT, check_delta, round_down, round_up
from dpframe.accounting.gaussian_dp import Step
from dpframe.errors import ParameterError

MAX_DECIMAL_EPSILON = 1e4
"""Largest ε in use: beyond it no table resolves e^ε, and decimals may overflow."""


class PrivacyLoss(ABC):
    """The worst hockey-stick divergence between neighbouring rows, as a curve."""

    @property
    def step(self) -> Step | None:
        """The step that lies above the curve, if the channel was made for a step; see `gaussian_dp`."""
        return None

    @abstractmethod
    def pure(self) -> float:
        """Return the ε at which δ(ε) = 0, rounded up."""

    @abstractmethod
    def _curve(self, epsilon: Decimal | float) -> Decimal:
        """Return δ(ε) or more, for 0 ≤ ε < pure."""

    def delta(self, epsilon: float) -> float:
        """Return the least δ, rounded up, for which the channel is (ε, δ)-private."""
        if not epsilon >= 0:
            raise ParameterError("epsilon must be at least 0")
        if epsilon >= self.pure():
            return 0.0
        with localcontext(LOSS_CONTEXT):
            return min(1.0, round_up(max(Decimal(0), self._curve(epsilon))))

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the least ε, rounded up, for which the channel is (ε, δ)-private."""
        delta = check_delta(delta)
        high = self.pure()
        if delta == 0 or high == 0:
            return high
        if self.delta(0.0) <= delta:
            return 0.0
        return bisected(lambda epsilon: self.delta(epsilon) <= delta, high, 0.0)


@dataclass(frozen=True)
class ResponseLoss(PrivacyLoss):
    """Loss of randomised response with weights ``keep`` and ``switch`` out of ``total``.

    ``keep`` is the weight of the true outcome, ``switch`` of each other outcome. Equality in Theorem 8 of the
    categorical paper: δ(ε) = (keep − e^ε·switch)/total.
    """

    keep: int
    switch: int
    total: int

    def pure(self) -> float:
        """Return |ln(keep/switch)|."""
        if self.keep == self.total:
            return 0.0
        with localcontext(LOSS_CONTEXT):
            return round_up(
                abs((Decimal(self.keep) / self.switch).ln()) + (0 if self.keep == self.switch else DECIMAL_SLACK)
            )

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        factor = Decimal(epsilon).exp() * (1 - DECIMAL_SLACK)
        large, small = max(self.keep, self.switch), min(self.keep, self.switch)
        return (large - factor * small) / self.total * (1 + DECIMAL_SLACK)


def laplace_delta(rate: float, distance: int, epsilon: Decimal | float) -> Decimal:
    """Return the exact δ(ε) between two-sided geometric laws ``distance`` steps apart, rounded up.

    P(k) ∝ e^(−rate·|k|). The likelihood ratio falls from e^(rate·distance) to e^(−rate·distance), so the
    positive part ends at the last k with rate·(distance − 2k) > ε; in the limit of fine grids this is
    1 − e^((ε − rate·distance)/2). Saturation at the ends of the grid changes nothing for the two ends.
    """
    with localcontext(LOSS_CONTEXT):
        e, a = Decimal(epsilon), Decimal(rate)
        if e >= a * distance:
            return Decimal(0)
        if e < 0:  # hockey-stick symmetry, E_γ(P‖Q) = 1 − γ + γ·E_(1/γ)(Q‖P)
            return 1 - e.exp() + e.exp() * laplace_delta(rate, distance, -e)
        last = int(((distance - e / a) / 2).to_integral_value(rounding=ROUND_FLOOR))
        alpha, factor = (-a).exp(), e.exp()

        def up_to(j: int) -> Decimal:
            # Σ_{k≤j} P(k) − e^ε·Σ_{k≤j} P(k−distance)
            head = 1 - factor * (-a * distance).exp()
            body = 1 - (-a * j).exp()
            return (head + alpha * body - factor * (-a * (distance - j)).exp() * body) / (1 + alpha)

        # The last k is computed in rounded decimals; its neighbours cover the error.
        return (
            max(up_to(j) for j in (last - 1, last, last + 1) if 0 <= j < distance) * (1 + DECIMAL_SLACK) + DECIMAL_SLACK
        )


@dataclass(frozen=True)
class LaplaceLoss(PrivacyLoss):
    """Loss of two-sided geometric noise saturated at the ends of a grid of ``span`` steps.

    ``log_spread``, s, bounds ln(P/ideal) between any two events, so P ≤ e^s·ideal and
    δ(ε) ≤ e^s·δ_ideal(ε − s).
    """

    span: int
    rate: float
    log_spread: float

    def pure(self) -> float:
        """Return rate·span + log_spread."""
        return round_up(Fraction(self.rate) * self.span + Fraction(self.log_spread))

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        slack = Decimal(self.log_spread)
        return slack.exp() * (1 + DECIMAL_SLACK) * laplace_delta(self.rate, self.span, Decimal(epsilon) - slack)


@dataclass(frozen=True)
class RatioLoss(PrivacyLoss):
    """Loss of a channel of which only ``max_log_ratio`` is known, the largest log-ratio of two of its laws.

    Randomised response on two outcomes dominates all such channels (Kairouz, Oh and Viswanath 2015):
    δ(ε) ≤ (e^r − e^ε)/(e^r + 1) with r = ``max_log_ratio``, and 1 − e^ε if ε < −r.
    """

    max_log_ratio: float

    def pure(self) -> float:
        """Return the largest log-ratio."""
        return self.max_log_ratio

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        with localcontext(LOSS_CONTEXT):
            e, log_ratio = Decimal(epsilon), Decimal(self.max_log_ratio)
            if e >= log_ratio:
                return Decimal(0)
            if e <= -log_ratio:
                return 1 - e.exp() * (1 - DECIMAL_SLACK)
            return (log_ratio.exp() - e.exp()) / (log_ratio.exp() + 1) * (1 + DECIMAL_SLACK) + DECIMAL_SLACK


def pure_rate(epsilon: float, delta: float) -> float:
    """Return the largest pure loss that makes every channel (ε, δ)-private, ln((e^ε + δ)/(1 − δ)), rounded down.

    >>> pure_rate(1.0, 0.0), round(pure_rate(1.0, 0.1), 4)
    (1.0, 1.1415)
    """
    if delta == 0:
        return epsilon
    with localcontext(LOSS_CONTEXT):
        odds = (Decimal(min(epsilon, MAX_DECIMAL_EPSILON)).exp() + Decimal(delta)) / (1 - Decimal(delta))
        return round_down(odds.ln() - DECIMAL_SLACK * 10**10)


@dataclass(frozen=True)
class NullFlagLoss(PrivacyLoss):
    """Loss of a null flag by randomised response, next to any channel (DESIGN: null is a value).

    A null whose flag flips is released as the channel's ``centre`` would be. The curve ``from_centre`` is of the centre
    against the value farthest from it, ``to_centre`` of that value against the centre. Both are also defined for
    ε < 0.
    """

    flag: ResponseLoss
    values: PrivacyLoss
    from_centre: PrivacyLoss
    to_centre: PrivacyLoss

    def pure(self) -> float:
        """Return the larger of value against value and value against null; null against value is below both."""
        return max(self.values.pure(), round_up(Fraction(self.flag.pure()) + Fraction(self.to_centre.pure())))

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        keep, flip = (Decimal(weight) / self.flag.total for weight in (self.flag.keep, self.flag.switch))
        e, odds, zero = Decimal(epsilon), (keep / flip).ln(), Decimal(0)
        between = keep * self.values._curve(e)
        from_null = max(zero, keep - e.exp() * flip) + flip * self.from_centre._curve(e + odds - DECIMAL_SLACK)
        to_null = max(zero, flip - e.exp() * keep) + keep * self.to_centre._curve(e - odds - DECIMAL_SLACK)
        return max(between, from_null, to_null) * (1 + DECIMAL_SLACK) + DECIMAL_SLACK


def response_probability(size: int, epsilon: float, delta: float, bits: int) -> int:
    """Return ⌈2^bits·p⌉ with p = (1−δ)/(e^ε + size − 1), optimal randomised response (Thm 8, 10)."""
    with localcontext(LOSS_CONTEXT):
        p = (1 - Decimal(delta)) / (Decimal(min(epsilon, MAX_DECIMAL_EPSILON)).exp() + size - 1)
        return max(1, math.ceil(p * (1 << bits)))


def laplace_rate(span: int, epsilon: float, delta: float, log_spread: float = 0.0) -> float:
    """Return the largest loss per grid step, e^(−rate·|k|), whose `LaplaceLoss` meets (ε, δ)."""
    if delta == 0:
        rate = round_down((Fraction(epsilon) - Fraction(log_spread)) / span)
        return max(rate, 0.0)
    # Far above the rate (ε − 2·ln(1−δ))/span of fine grids, so that the largest fitting rate lies below.
    high = (epsilon - 2 * math.log1p(-delta)) * 4 / span + 64 / span
    return bisected(lambda rate: LaplaceLoss(span, rate, log_spread).delta(epsilon) <= delta, 0.0, high)
