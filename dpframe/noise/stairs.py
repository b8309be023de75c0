"""An exact sampler of staircase noise on the whole numbers; two-sided geometric noise is a special case.

    P(k) ∝ e^(−rate·L(|k|)),  L(m) = 0 for m < plateau, else 1 + ⌊(m − plateau)/width⌋

is the staircase law of Geng and Viswanath (2014, "The Optimal Mechanism in Differential Privacy"; section on integers)
for answers that move by at most ``width``: values at most ``width`` apart lie on one step or on neighbouring steps, as
``plateau`` ≤ ``width``. With width = plateau = 1 it is the discrete Laplace law, P(k) ∝ e^(−rate·|k|).

A draw is a centre (the top step, 2·plateau − 1 values) or a sign, a step J and a place on the step. J is geometric,
without an end, and so are its digits: with β = e^(−rate), J = r₀ + B·(r₁ + B·(… + B^l·(r + T·q))),
the digits are independent, P(rᵢ) ∝ β^(Bⁱ·rᵢ), and q counts how often a coin of chance β^(B^l·T) falls in a row.
All are integers over 2^128. Nothing is cut off, so that δ = 0; a plane of coins is read only while some draw's
last coin fell, which depends only on the noise and has a chance of at most e^−13.5.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache

from dpframe.errors import ParameterError
from dpframe.noise.gaussian import IDEAL_LAW_BITS, WEIGHT_TOTAL
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import fixed, integer_weights, powers, relative_spread

MIN_STAIRS_RATE, MAX_STAIRS_RATE = 1e-12, 40.0
"""Least rate that is accepted, and largest rate in use: a chance of e^−40 is negligible."""

_DRAW_BITS = 128
_DIGIT_BASE = 1024
"""Places of a digit."""
_MAX_COIN_LOSS = 27.0
"""Largest −ln of the chance of a coin: each place of the digit's table then has a weight of at least 2^70."""
_ROUNDING_ERROR = 2.0**-50


@dataclass(frozen=True)
class Digit:
    """A table over 2^128: place i for words below ``limits[i]`` and no earlier one."""

    limits: tuple[int, ...]
    log_spread: float
    """ln(max/min) of weight over ideal."""

    @classmethod
    def of(cls, ideal: Sequence[int]) -> Digit:
        """Return the table of an ideal law, which is given up to a common factor."""
        weights = integer_weights(ideal, WEIGHT_TOTAL)
        return cls(tuple(itertools.accumulate(weights)), relative_spread(weights, ideal, WEIGHT_TOTAL))

    @property
    def weights(self) -> list[int]:
        """The weight of each place, from the limits."""
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

    def loss(self, sensitivity: int) -> float:
        """Return the privacy loss of an answer that moves by at most ``sensitivity``, from the integers, rounded up.

        ln P(k) differs from the ideal by each table's rounding, at most its ``log_spread`` between any two values; the
        coins' rounding counts once for each q by which the values differ.
        """
        steps = -(-sensitivity // self.width)
        rounds = 2 + steps // (_DIGIT_BASE ** len(self.digits) * len(self.last.limits))
        tables = math.fsum(digit.log_spread for digit in (self.sides, self.last, *self.digits))
        # The number of words is no multiple of a step's places, so that their chances differ by one word.
        place_error = 2 * max(self.width, 2 * self.plateau - 1) / WEIGHT_TOTAL * (1 + _ROUNDING_ERROR)
        return float((steps * self.rate + tables + rounds * self.coin_error + place_error) * (1 + _ROUNDING_ERROR))

    def sample(self, stream: ColumnStream, plane: int, count: int) -> list[int]:
        """Return draws 0 … count − 1, from the planes ``plane`` on."""
        planes = (
            [(high << 64) | low for low, high in stream.words(plane + i, 0, count, bits=_DRAW_BITS).tolist()]
            for i in itertools.count()
        )
        sides = [self.sides.place(word) for word in next(planes)]
        places = next(planes)
        steps, step_weight = [0] * count, 1
        for digit in self.digits:
            steps = [step + step_weight * digit.place(word) for step, word in zip(steps, next(planes), strict=True)]
            step_weight *= _DIGIT_BASE
        steps = [step + step_weight * self.last.place(word) for step, word in zip(steps, next(planes), strict=True)]
        step_weight, falling = step_weight * len(self.last.limits), [True] * count
        # Later coins are read only while a draw needs them: no cut, and so no δ.
        while any(falling):
            falling = [falls and word < self.coin for falls, word in zip(falling, next(planes), strict=True)]
            steps = [step + step_weight * falls for step, falls in zip(steps, falling, strict=True)]
        return [self._value(*parts) for parts in zip(sides, places, steps, strict=True)]

    def _value(self, side: int, word: int, step: int) -> int:
        if side == 0:
            return (word * (2 * self.plateau - 1) >> _DRAW_BITS) - (self.plateau - 1)
        size = self.plateau + step * self.width + (word * self.width >> _DRAW_BITS)
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
        return self.moment(1)

    @property
    def variance(self) -> float:
        """Variance."""
        return self.moment(2)

    def moment(self, power: int) -> float:
        """Return E|k|^power, power 1 or 2, of the centre and the steps.

        On a step |k| is plateau + j·width + place on the step, j geometric.
        """
        top, beta = self._top
        r, w, stop_chance = self.plateau, self.width, -math.expm1(-self.rate)
        mean, square = beta / stop_chance, beta * (1 + beta) / stop_chance**2  # of j
        place, place2 = (w - 1) / 2, (w - 1) * (2 * w - 1) / 6
        if power == 1:
            return 2 * top * (r * (r - 1) / 2 + w * beta / stop_chance * (r + place + w * mean))
        start2 = r * r + 2 * r * place + place2
        outer = start2 + 2 * (r + place) * w * mean + w * w * square
        return 2 * top * ((r - 1) * r * (2 * r - 1) / 6 + w * beta / stop_chance * outer)

    def beyond(self, size: int) -> float:
        """Return the probability that the absolute value is above ``size``."""
        top, beta = self._top
        lower_steps = 2 * self.width * beta / -math.expm1(-self.rate)
        if size < self.plateau:
            return top * (2 * (self.plateau - 1 - size) + lower_steps)
        step, place = divmod(size - self.plateau + 1, self.width)
        return float(top * beta**step * (lower_steps - 2 * place * beta))


@lru_cache(maxsize=64)
def stair_noise(width: int, plateau: int, rate: float) -> StairNoise:
    """Return the noise of a law with ``rate`` between neighbouring steps."""
    if not 1 <= plateau <= width:
        raise ParameterError("plateau must lie between 1 and width; take the staircase's own")
    if not rate >= MIN_STAIRS_RATE:
        raise ParameterError(
            "epsilon is too small for this answer: its noise exceeds every table; raise epsilon or the share"
        )
    rate = min(rate, MAX_STAIRS_RATE)
    with localcontext(Context(prec=120)):
        exact = Decimal(rate)
        beta = fixed((-exact).exp(), IDEAL_LAW_BITS)
        digits: list[Digit] = []
        # A digit's last place keeps a chance of e^−1 of the first, so that integers hold all its places well.
        while exact * _DIGIT_BASE <= 1:
            digits.append(Digit.of(powers(fixed((-exact).exp(), IDEAL_LAW_BITS), _DIGIT_BASE, IDEAL_LAW_BITS)))
            exact *= _DIGIT_BASE
        places = max(1, math.floor(_MAX_COIN_LOSS / float(exact)))
        last = Digit.of(powers(fixed((-exact).exp(), IDEAL_LAW_BITS), places, IDEAL_LAW_BITS))
        chance = (-exact * places).exp()
        # Rounded down: `coin_error` counts the difference as loss.
        coin = int(chance * WEIGHT_TOTAL)
        error = float(abs((Decimal(coin) / (chance * WEIGHT_TOTAL)).ln())) * (1 + _ROUNDING_ERROR)
    unit = 1 << IDEAL_LAW_BITS
    side = width * beta
    sides = Digit.of([(2 * plateau - 1) * (unit - beta), side, side])
    return StairNoise(width, plateau, rate, sides, tuple(digits), last, coin, error)


def staircase(width: int, rate: float, power: int = 1) -> StairNoise:
    """Return the staircase noise of least E|noise|^power, power 1 or 2, for answers that move by at most ``width``.

    Staircase noise is optimal for every loss that grows with the noise's size; the loss decides only the plateau
    (Geng–Viswanath 2014, Thm 1). The plateau of the continuous law is γ*·width; the noise has the neighbouring whole
    number of least error.

    >>> staircase(100, 4.0).plateau, staircase(100, 4.0, power=2).plateau
    (12, 20)
    """
    ideal = width * _PLATEAU_SHARES[power](min(rate, MAX_STAIRS_RATE))
    plateaus = {min(max(math.floor(ideal) + offset, 1), width) for offset in (0, 1, 2)}
    noises = [stair_noise(width, plateau, rate) for plateau in sorted(plateaus)]
    return min(noises, key=lambda noise: noise.moment(power))


def _plateau_share_of_squares(rate: float) -> float:
    """Return γ* = (∛(b(1 + b)/2) − b)/(1 − b), b = e^(−rate), without cancelled digits."""
    b = math.exp(-rate)
    return b * math.expm1((math.log1p(math.expm1(-rate) / 2) + 2 * rate) / 3) / -math.expm1(-rate)


_PLATEAU_SHARES: Mapping[int, Callable[[float], float]] = {
    1: lambda rate: 1 / (1 + math.exp(rate / 2)),
    2: _plateau_share_of_squares,
}
"""γ* by the power of the loss: of the absolute and of the squared noise (theory: Geng–Viswanath 2014, Thm 3 and 5)."""
