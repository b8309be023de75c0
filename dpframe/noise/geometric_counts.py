"""An exact sampler of two-sided geometric noise for counts, where δ = 0.

P(x) ∝ 2^(−|x|/block): the noise halves its probability every ``block`` steps, so that whole blocks are counted by
coin flips: the zeros before the first 1 among random bits. Floats and tables would only approximate them. A draw takes
enough bits to carry any count beyond the ends at which it saturates, so that the loss is pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpframe.errors import ParameterError
from dpframe.noise.gaussian import Ints, cumulate_weights, invert
from dpframe.noise.keystream import U64, ColumnStream

LARGEST_BLOCK = 1 << 20
"""Longest block for which a table is made: noise of 1.5 million rows."""

_MAX_BLOCKS = 1 << 15
"""Blocks that a table's rows may fill: with more rows the block grows, as such noise is negligible there."""


@dataclass(frozen=True, eq=False)
class GeometricNoise:
    """Two-sided geometric noise on counts 0 … n, saturated at −n and 2n.

    ``high`` and ``low`` are the halves of the running weights over 2^128 of (sign, place within the block): place r
    ≥ 0 means r, and −1 − r for its complement, as in `dpframe.noise.tables.GeometricTable`.

    >>> round(geometric_noise(1000, 0.01).variance)
    20397
    """

    n: int
    block: int
    high: U64
    low: U64
    values: Ints

    @property
    def words(self) -> int:
        """64-bit words of coin flips a draw takes: enough for 2n steps."""
        return -(-(-(-2 * self.n // self.block) + 1) // 64)

    @property
    def loss(self) -> float:
        """Privacy loss per step of a count, rounded up: ln 2 / block plus the error of the table's rounding."""
        return math.log(2) / self.block * (1 + 2.0**-50) + 2.0**-90

    @property
    def variance(self) -> float:
        """Variance of the noise before saturation, 2α/(1 − α)²."""
        alpha = 2 ** (-1 / self.block)
        return 2 * alpha / (1 - alpha) ** 2

    def add(self, counts: Ints, stream: ColumnStream) -> Ints:
        """Return the counts with noise; a word of 128 bits and `words` coin words each."""
        size = len(counts)
        words = stream.words(0, 0, size, bits=128)
        draws = self.values[invert(self.high, self.low, words[:, 1].astype(np.uint64), words[:, 0].astype(np.uint64))]
        coins = stream.words(1, 0, size * self.words).astype(np.uint64).reshape(size, self.words)
        # block·q + r, or −1 − (block·q + r): the complement, whose place is already one.
        shift = self.block * leading_zeros(coins)
        noisy = counts + np.where(draws >= 0, draws + shift, draws - shift)
        clipped: Ints = np.clip(noisy, -self.n, 2 * self.n)
        return clipped


def leading_zeros(words: U64) -> Ints:
    """Return the number of zero bits before the first 1 in every row of words; all bits, if there is no 1."""
    size = words.shape[1]
    # In rows without a 1 argmax gives word 0, which the last line below replaces.
    first = np.argmax(words != 0, axis=1)
    word = words[np.arange(len(words)), first]
    zeros = np.zeros(len(words), dtype=np.int64)
    for half in (32, 16, 8, 4, 2, 1):
        empty = word < np.uint64(1) << np.uint64(64 - half)
        zeros[empty] += half
        word = np.where(empty, word << np.uint64(half), word)
    zeros_before: Ints = np.where(word == 0, 64 * size, 64 * first + zeros)
    return zeros_before


def geometric_noise(n: int, loss: float) -> GeometricNoise:
    """Return the noise for counts of up to ``n`` rows with at most ``loss`` per step."""
    block = max(1, math.ceil(math.log(2) / loss * (1 + 2.0**-40)), -(-n // _MAX_BLOCKS))
    if block > LARGEST_BLOCK:
        raise ParameterError("epsilon is too small to infer spaces; raise epsilon or infer_share, or declare spaces")
    return GeometricNoise(n, block, *_table(block))


@lru_cache(maxsize=16)
def _table(block: int) -> tuple[U64, U64, npt.NDArray[np.int64]]:
    with localcontext(Context(prec=120)):
        step = int((-Decimal(2).ln() / block).exp() * (1 << 320))
    weights = [1 << 320]
    for _ in range(block):
        weights.append(weights[-1] * step >> 320)
    # Negative noise starts at −1: every place there has α times the weight.
    high, low = cumulate_weights([*weights[:block], *weights[1:]])
    places = np.arange(block)
    return high, low, np.concatenate([places, ~places])
