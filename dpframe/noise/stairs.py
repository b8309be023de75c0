"""An exact sampler of staircase noise on the whole numbers; two-sided geometric noise is a special case.

    P(k) ∝ e^(−rate·L(|k|)),  L(m) = 0 for m < plateau, else 1 + ⌊(m − plateau)/width⌋

is the staircase law of Geng and Viswanath (2014, "The Optimal Mechanism in Differential Privacy"; section on integers)
for answers that move by at most ``width``: two values that near lie on the same step or on neighbouring ones, as
``plateau`` ≤ ``width``. With width = plateau = 1 it is the discrete Laplace law, P(k) ∝ e^(−rate·|k|).

A draw is a centre (the top step, 2·plateau − 1 values) or a sign, a step J and a place on the step. J is geometric,
without an end, and so is every part of it: with β = e^(−rate), J = r₀ + B·(r₁ + B·(… + B^l·(r + T·q))), where
the digits are independent, P(rᵢ) ∝ β^(Bⁱ·rᵢ), and q counts how often a coin of chance β^(B^l·T) falls in a row.
All are integers over 2^128. Nothing is cut off, so that δ = 0; a plane of coins is read only while some draw's
last coin fell, which depends only on the noise and has a chance of at most e^−13.5.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache

from dpframe.errors import ParameterError
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import fixed, integer_weights, powers, relative_spread

LEAST_RATE, MOST_RATE = 1e-12, 40.0
"""Rates below are refused, rates above are taken as the larger one: a chance of e^−40 is negligible."""

_BITS = 128
_TOTAL = 1 << _BITS
_FIXED = 320
"""Fractional bits in which the ideal law is written down."""
_BASE = 1024
"""Places of a digit."""
_DEEPEST = 27.0
"""−ln of the chance of a coin, at most: the table under it has a weight of 2^70 at least in each place."""
_ROUND = 2.0**-50


@dataclass(frozen=True)
class Digit:
    """A table over 2^128: place i for words below ``limits[i]`` and no earlier one."""

    limits: tuple[int, ...]
    spread: float
    """ln(max/min) of weight over ideal."""

    @classmethod
    def of(cls, ideal: Sequence[int]) -> Digit:
        """Make the table of an ideal law, to a common factor."""
        weights = integer_weights(ideal, _TOTAL)
        return cls(tuple(itertools.accumulate(weights)), relative_spread(weights, ideal, _TOTAL))

    @property
    def weights(self) -> list[int]:
        """The weight of each place, read back."""
        return [b - a for a, b in itertools.pairwise((0, *self.limits))]

    def place(self, word: int) -> int:
        """Return the place of a word."""
        return bisect_right(self.limits, word)


@dataclass(frozen=True, eq=False)
class StairNoise:
    """Staircase noise; made by `stair_noise`."""

    width: int
    plateau: int
    rate: float
    sides: Digit
    """First draw: the centre, above or below."""
    digits: tuple[Digit, ...]
    last: Digit
    coin: int
    """Weight over 2^128 of one more round of the last digit."""
    coin_error: float
    """|ln| of that weight over the ideal."""

    def loss(self, moved: int) -> float:
        """Return the privacy loss of an answer that moves by at most so much, from the integers, rounded up.

        ln P(k) differs from the ideal by each table's rounding, at most its spread between any two values; the coins'
        rounding counts once for each q by which they differ.
        """
        steps = -(-moved // self.width)
        rounds = 2 + steps // (_BASE ** len(self.digits) * len(self.last.limits))
        tables = math.fsum(digit.spread for digit in (self.sides, self.last, *self.digits))
        # Places on a step differ by so much at the most, as words are no multiple of them.
        uneven = 2 * max(self.width, 2 * self.plateau - 1) / _TOTAL * (1 + _ROUND)
        return float((steps * self.rate + tables + rounds * self.coin_error + uneven) * (1 + _ROUND))

    def sample(self, stream: ColumnStream, plane: int, count: int) -> list[int]:
        """Return draws 0 … count − 1, from the planes ``plane`` on."""
        planes = (
            [(high << 64) | low for low, high in stream.words(plane + i, 0, count, bits=_BITS).tolist()]
            for i in itertools.count()
        )
        sides = [self.sides.place(word) for word in next(planes)]
        places = next(planes)
        steps, worth = [0] * count, 1
        for digit in self.digits:
            steps = [step + worth * digit.place(word) for step, word in zip(steps, next(planes), strict=True)]
            worth *= _BASE
        steps = [step + worth * self.last.place(word) for step, word in zip(steps, next(planes), strict=True)]
        worth, falling = worth * len(self.last.limits), [True] * count
        while any(falling):
            falling = [on and word < self.coin for on, word in zip(falling, next(planes), strict=True)]
            steps = [step + worth * on for step, on in zip(steps, falling, strict=True)]
        return [self._value(*parts) for parts in zip(sides, places, steps, strict=True)]

    def _value(self, side: int, word: int, step: int) -> int:
        if side == 0:
            return (word * (2 * self.plateau - 1) >> _BITS) - (self.plateau - 1)
        size = self.plateau + step * self.width + (word * self.width >> _BITS)
        return size if side == 1 else -size

    @property
    def _top(self) -> tuple[float, float]:
        """Probability of a value of the top step, and β."""
        beta = math.exp(-self.rate)
        return 1 / (2 * self.plateau - 1 + 2 * self.width * beta / -math.expm1(-self.rate)), beta

    def probability(self, value: int) -> float:
        """Return the ideal probability of a value."""
        top, beta = self._top
        size = abs(value)
        return top if size < self.plateau else float(top * beta ** (1 + (size - self.plateau) // self.width))

    @property
    def error(self) -> float:
        """Expected absolute value."""
        return self._moment(1)

    @property
    def variance(self) -> float:
        """Variance."""
        return self._moment(2)

    def _moment(self, power: int) -> float:
        """Return E|k|^power, of the centre and of the steps: |k| there is plateau + j·width + place, j geometric."""
        top, beta = self._top
        r, w, left = self.plateau, self.width, -math.expm1(-self.rate)
        mean, square = beta / left, beta * (1 + beta) / left**2  # of j
        place, place2 = (w - 1) / 2, (w - 1) * (2 * w - 1) / 6
        if power == 1:
            return 2 * top * (r * (r - 1) / 2 + w * beta / left * (r + place + w * mean))
        start2 = r * r + 2 * r * place + place2
        outer = start2 + 2 * (r + place) * w * mean + w * w * square
        return 2 * top * ((r - 1) * r * (2 * r - 1) / 6 + w * beta / left * outer)

    def beyond(self, size: int) -> float:
        """Return the probability that the absolute value is above this."""
        top, beta = self._top
        rest = 2 * self.width * beta / -math.expm1(-self.rate)
        if size < self.plateau:
            return top * (2 * (self.plateau - 1 - size) + rest)
        step, place = divmod(size - self.plateau + 1, self.width)
        return float(top * beta**step * (rest - 2 * place * beta))


@lru_cache(maxsize=64)
def stair_noise(width: int, plateau: int, rate: float) -> StairNoise:
    """Return the noise of a law with ``rate`` between neighbouring steps."""
    if not 1 <= plateau <= width:
        raise ParameterError("plateau must lie between 1 and width; take the staircase's own")
    if not rate >= LEAST_RATE:
        raise ParameterError(
            "epsilon is too small for this answer: its noise exceeds every table; raise epsilon or the share"
        )
    rate = min(rate, MOST_RATE)
    with localcontext(Context(prec=120)):
        exact = Decimal(rate)
        beta = fixed((-exact).exp(), _FIXED)
        digits: list[Digit] = []
        while exact * _BASE <= 1:
            digits.append(Digit.of(powers(fixed((-exact).exp(), _FIXED), _BASE, _FIXED)))
            exact *= _BASE
        places = max(1, math.floor(_DEEPEST / float(exact)))
        last = Digit.of(powers(fixed((-exact).exp(), _FIXED), places, _FIXED))
        chance = (-exact * places).exp()
        coin = int(chance * _TOTAL)
        error = float(abs((Decimal(coin) / (chance * _TOTAL)).ln())) * (1 + _ROUND)
    one = 1 << _FIXED
    side = width * beta
    sides = Digit.of([(2 * plateau - 1) * (one - beta), side, side])
    return StairNoise(width, plateau, rate, sides, tuple(digits), last, coin, error)


def staircase(width: int, rate: float) -> StairNoise:
    """Return the staircase noise of least expected absolute value for answers that move by at most ``width``.

    The plateau of the continuous law is γ*·width, γ* = 1/(1 + e^(rate/2)) (Geng–Viswanath 2014, Thm 3); the better of
    its two neighbouring whole numbers is taken.
    """
    ideal = width / (1 + math.exp(min(rate, MOST_RATE) / 2))
    places = {min(max(math.floor(ideal) + more, 1), width) for more in (0, 1, 2)}
    return min((stair_noise(width, place, rate) for place in sorted(places)), key=lambda noise: noise.error)
