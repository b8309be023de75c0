"""An exact sampler of discrete Gaussian noise: two 64-bit words in, one whole number out.

The discrete Gaussian has P(x) ∝ e^(−x²/2σ²) on the whole numbers (Canonne, Kamath, Steinke 2020, "The Discrete
Gaussian for Differential Privacy"). It is drawn by inverting its distribution function, written as integers over
2^128: no rejection, no floats, and an equal number of words for every value.

Wide noise is the sum of two narrower draws, a fine X and a coarse Y:

    X + K·Y,  X of scale a·K and Y of scale b,  has scale σ, σ² = K²·(a² + b²)

and P(X + KY = z) = Σ_y g(z − Ky)·g(y) up to a constant. Completing the square, the exponent is z²/2σ² plus the exponent
of a Gaussian in y of scale τ, 1/τ² = 1/a² + 1/b², about some centre. By Poisson's summation formula the sum over y
varies with the centre by no more than a factor within 1 ± 2Σ_k e^(−2π²τ²k²).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from dpframe.errors import ParameterError
from dpframe.noise.keystream import U64, ColumnStream

LEAST_TABLE_SIGMA2 = 0.0625
"""Least σ² of a table: its draws differ from 0 with probability 7e-4."""
LARGEST_SCALE = 2.0**40
"""Scales beyond it are refused: such noise exceeds the number of rows of any table."""

WEIGHT_TOTAL = 1 << 128
"""Sum of the integer weights of a table of draws of 128 bits."""
IDEAL_LAW_BITS = 320
"""Fractional bits in which the ideal law is written down."""
_REACH_SD = 12
"""The law ends at this many standard deviations: beyond there is less than 2e^(−72) of it."""
_MAX_SINGLE_SCALE = 256
"""Largest scale of one table; the fine part of a wider one has the scale `RATIO`·`STRIDE`."""
STRIDE, RATIO = 64, 3
_GUIDE_BITS = 16
"""Leading bits of a word by which its place is looked up first."""
_MIN_GUIDED_WORDS = 1 << 12
"""Number of words from which on the guide pays."""
_DIVIDED_PLACE = (1 << 32) - 1

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GaussianTable:
    """Discrete Gaussian noise of variance parameter ``sigma2`` (σ², not quite the variance where σ is small).

    ``high`` and ``low`` are the halves of the running sums ``limits`` of the weights over 2^128. A uniform word u gives
    the draw ``i − reach`` for the first i with u < limits[i]. With a table ``coarse``, 64 times its draw is added, and
    ``sigma2`` counts both. ``distance`` bounds the total variation distance from the ideal law.
    """

    sigma2: Fraction
    reach: int
    high: U64
    low: U64
    coarse: GaussianTable | None
    distance: Fraction

    @property
    def planes(self) -> int:
        """Planes of the stream that a draw takes a word of 128 bits from."""
        return 1 if self.coarse is None else 1 + self.coarse.planes

    def sample(self, stream: ColumnStream, plane: int, count: int, first_row: int = 0) -> Ints:
        """Return draws ``first_row`` … ``first_row + count − 1``, from the planes ``plane`` on."""
        words = stream.words(plane, first_row, count, bits=128)
        draws = self.invert(words[:, 1].astype(np.uint64), words[:, 0].astype(np.uint64))
        if self.coarse is not None:
            draws += STRIDE * self.coarse.sample(stream, plane + 1, count, first_row)
        return draws

    def invert(self, high: U64, low: U64) -> Ints:
        """Turn words of 128 bits, as two halves, into draws of this one table."""
        guide = self._guide if len(high) >= _MIN_GUIDED_WORDS else None
        return invert(self.high, self.low, high, low, guide).astype(np.int64) - self.reach

    @cached_property
    def _guide(self) -> npt.NDArray[np.uint32]:
        """Place of all words that begin with the same `_GUIDE_BITS` bits; `_DIVIDED_PLACE` if limits divide them."""
        starts = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
        ends = starts | np.uint64((1 << 64 - _GUIDE_BITS) - 1)
        first, last = (np.searchsorted(self.high, words, side="left") for words in (starts, ends))
        return np.where(first == last, first, _DIVIDED_PLACE).astype(np.uint32)

    def weights(self) -> dict[int, int]:
        """Return the weight over 2^128 of every draw of this one table, computed from its limits."""
        ends = [(h << 64) + w for h, w in zip(self.high.tolist(), self.low.tolist(), strict=True)]
        ends[-1] = WEIGHT_TOTAL
        starts = [0, *ends[:-1]]
        return {i - self.reach: b - a for i, (a, b) in enumerate(zip(starts, ends, strict=True))}

    def noise_weights(self) -> tuple[dict[int, int], int]:
        """Return the weight of every value of the noise of all tables together, and the sum of the weights."""
        fine_weights = self.weights()
        if self.coarse is None:
            return fine_weights, WEIGHT_TOTAL
        steps, total = self.coarse.noise_weights()
        noise_weights: dict[int, int] = {}
        for step, step_weight in steps.items():
            for fine, weight in fine_weights.items():
                place = fine + STRIDE * step
                noise_weights[place] = noise_weights.get(place, 0) + step_weight * weight
        return noise_weights, total * WEIGHT_TOTAL


def gaussian_table(sigma2: float) -> GaussianTable:
    """Return the table of discrete Gaussian noise with parameter σ² = ``sigma2``."""
    if not LEAST_TABLE_SIGMA2 <= sigma2 <= LARGEST_SCALE**2:
        raise ParameterError("sigma2 must lie between 1/16 and 2^80")
    return _table(Fraction(sigma2))


@lru_cache(maxsize=64)
def _table(sigma2: Fraction) -> GaussianTable:
    if sigma2 <= _MAX_SINGLE_SCALE**2:
        reach = math.isqrt(math.ceil(sigma2 * _REACH_SD**2)) + 1
        unit = 1 << IDEAL_LAW_BITS
        with localcontext(Context(prec=120)):
            rate = Decimal(sigma2.denominator) / Decimal(sigma2.numerator)
            ratio = int((-rate / 2).exp() * unit)  # e^(−(2x+1)/2σ²) at x = 0, and its change from x to x + 1
            step = int((-rate).exp() * unit)
        half_law = [unit]
        for _ in range(reach):
            half_law.append(half_law[-1] * ratio >> IDEAL_LAW_BITS)
            ratio = ratio * step >> IDEAL_LAW_BITS
        law = [*half_law[:0:-1], *half_law]
        # Rounding moves every limit by less than 1. The tails follow CKS, Fact 18 (sub-Gaussian).
        return GaussianTable(
            sigma2, reach, *cumulate_weights(law), None, Fraction(2 * reach + 1, WEIGHT_TOTAL) + _MAX_TAIL_WEIGHT
        )
    fine = _table(Fraction((RATIO * STRIDE) ** 2))
    coarse = _table((sigma2 - fine.sigma2) / STRIDE**2)
    # τ² ≥ 3.9 as b² > (256² − 192²)/64² = 7: the factor's spread 2·2Σ_k e^(−2π²τ²k²) is below 2^−100.
    distance = fine.distance + coarse.distance + Fraction(1, 1 << 100)
    return GaussianTable(sigma2, fine.reach, fine.high, fine.low, coarse, distance)


_MAX_TAIL_WEIGHT = Fraction(1, 1 << 102)
"""Bound on the weight of both tails that are cut off: above 2e^(−72)."""


def cumulate_weights(weights: Sequence[int]) -> tuple[U64, U64]:
    """Return running sums of weights, scaled to 2^128 and rounded down: their high and their low halves.

    The last one means 2^128 and is never read.
    """
    weight_sum = sum(weights)
    limits = [running_sum * WEIGHT_TOTAL // weight_sum for running_sum in itertools.accumulate(weights)]
    # 2^128 does not fit into two words of 64 bits.
    limits[-1] = WEIGHT_TOTAL - 1
    mask = (1 << 64) - 1
    high = np.array([limit >> 64 for limit in limits], dtype=np.uint64)
    return high, np.array([limit & mask for limit in limits], dtype=np.uint64)


def invert(
    high: U64, low: U64, words_high: U64, words_low: U64, guide: npt.NDArray[np.uint32] | None = None
) -> npt.NDArray[np.intp]:
    """Return for every word of 128 bits the first place whose limit is above it."""
    last = len(high) - 1
    if guide is None:
        places = np.searchsorted(high, words_high, side="left")
    else:
        places = guide[words_high >> np.uint64(64 - _GUIDE_BITS)].astype(np.intp)
        split = np.flatnonzero(places == _DIVIDED_PLACE)
        places[split] = np.searchsorted(high, words_high[split], side="left")
    places = np.minimum(places, last)
    # If the high halves are equal, which is next to never, the low halves decide.
    tied = np.flatnonzero(high[places] == words_high)
    while len(tied):
        at = places[tied]
        tied = tied[(at < last) & (high[at] == words_high[tied]) & (low[at] <= words_low[tied])]
        places[tied] += 1
    return places
