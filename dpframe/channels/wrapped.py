"""Additive noise on a grid closed to a ring: two-sided geometric noise modulo the number of codes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import round_down
from dpframe.accounting.finite import FiniteLoss
from dpframe.channels.base import MAX_WORD_EPSILON, CodeFunction, IntArray, Mechanism, beside_edges, register
from dpframe.errors import ParameterError, check_whole
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import RESPONSE_CHUNK_ROWS, WORD, AliasTable
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

LARGEST_RING = 1 << 20
"""Most codes of a ring: the noise has one alias table."""

_MAX_EXPONENT = 700.0
"""Largest exponent of e in floats."""


def _log_cosh(x: float) -> float:
    return x + math.log1p(math.exp(-2 * x)) - math.log(2)


def _log_ratio(size: int, rate: float) -> float:
    """Return ln of the largest probability over the least: cosh(rK/2), or cosh(rK/2)/cosh(r/2) for odd K."""
    return _log_cosh(rate * size / 2) - (_log_cosh(rate / 2) if size % 2 else 0.0)


def _ring_weights(size: int, rate: float) -> tuple[int, ...]:
    """Return weights over 2^64 of the steps 0…K−1: (α^d + α^(K−d))·(1−α)/((1+α)(1−α^K)), rounded up except for d = 0.

    No rounding lowers the least weight or raises the greatest, so that no ratio is above the ideal one.
    """
    if size == 1:
        return (WORD,)
    with localcontext(Context(prec=60)):
        alpha = (-Decimal(rate)).exp()
        full_turn = alpha**size
        scale = WORD * (1 - alpha) / ((1 + alpha) * (1 - full_turn))
        falling, rising, half = Decimal(1), full_turn, []
        for _ in range(size // 2):
            # Recursions of 60 digits: powers of a million steps would take longer.
            falling, rising = falling * alpha, rising / alpha
            half.append(int(scale * (falling + rising)) + 1)
    later_weights = [*half, *reversed(half if size % 2 else half[:-1])]
    return (WORD - sum(later_weights), *later_weights)


def _opposite(weights: tuple[int, ...]) -> FiniteLoss:
    """Return the loss of the noise, from the two inputs opposite each other on the ring.

    For any inputs and any set A of outputs, P(A) − e^ε·P'(A) is at most the |A| greatest weights less e^ε times the
    |A| least weights. As weights are symmetric and fall from 0 on, the greatest lie around one input and the least
    around its opposite, so that the bound is attained.
    """
    falling = tuple(sorted(weights, reverse=True))
    return FiniteLoss((falling, falling[::-1]), WORD)


@lru_cache(maxsize=256)
def _calibrated(size: int, epsilon: float, delta: float) -> tuple[float, tuple[int, ...]]:
    """Return the rate and weights of least noise whose certified loss meets (ε, δ)."""
    if size == 1:
        return 0.0, (WORD,)

    def fits(rate: float) -> bool:
        if delta == 0:
            return _log_ratio(size, rate) <= epsilon
        steps = np.arange(size)
        law = np.sort(np.exp(-rate * steps) + np.exp(-rate * (size - steps)))
        excess = law[::-1] - math.exp(min(epsilon, _MAX_EXPONENT)) * law
        return float(np.maximum(excess, 0).sum() / law.sum()) <= delta

    high = 2 * (MAX_WORD_EPSILON + 1) / size
    rate = high if fits(high) else bisected(fits, 0.0, high, 1e-15 * high)
    for attempt in range(40):
        weights = _ring_weights(size, rate) if rate > 0 else ()
        # Rounding up of all other weights may leave too little for the value itself.
        if not weights or weights[0] < weights[1]:
            break
        if _opposite(weights).delta(epsilon) <= delta:
            return rate, weights
        rate *= 1 - 2.0 ** (attempt - 46)
    raise ParameterError(f"epsilon={epsilon:g} is too small for a ring of {size} codes; give it a larger share")


@register
@dataclass(frozen=True)
class WrappedGeometric(Mechanism):
    """Two-sided geometric noise on 0…K−1 taken as a ring: y = x + D mod K, P(D = d) ∝ α^d + α^(K−d).

    The group's noise commutes with a one-time pad, which saturated noise does not (sampling paper, Lemma III.1). It
    costs accuracy: a value near one end may be released near the other. All codes are neighbours, and those that lie
    opposite each other are distinguished best: e^ε = cosh(rK/2) with α = e^−r for even K. The inverse is tridiagonal
    on the ring: φ_f(y) = [(1+α²)f(y) − αf(y−1) − αf(y+1)]/(1−α)².

    ``size``: number of codes K, 1 to 2^20. ``epsilon`` and ``delta``: the budget; see `dpframe.accounting.budget`.

    >>> ring = WrappedGeometric(size=4, epsilon=1.0)
    >>> ring.transition().round(3)[0].tolist()
    [0.422, 0.212, 0.155, 0.212]
    >>> 0.9999 < ring.loss.epsilon() <= 1.0
    True
    """

    size: int
    epsilon: float
    delta: float = 0.0

    tag: ClassVar[str] = "wrapped_geometric"
    metrics: ClassVar[frozenset[str]] = frozenset({"line"})
    adds_in_group: ClassVar[bool] = True

    def __post_init__(self) -> None:
        remedy = "; declare a coarser step" if isinstance(self.size, int) and self.size > LARGEST_RING else ""
        object.__setattr__(self, "size", check_whole(self.size, "size", 1, LARGEST_RING, remedy=remedy))
        self._check_budget(self.epsilon, self.delta)
        _ = self._steps

    @property
    def _steps(self) -> tuple[int, ...]:
        """The weights over 2^64 of the steps 0…K−1."""
        return _calibrated(self.size, self.epsilon, self.delta)[1]

    @property
    def rate(self) -> float:
        """−ln α."""
        return _calibrated(self.size, self.epsilon, self.delta)[0]

    @cached_property
    def table(self) -> AliasTable:
        """The integers that are sampled."""
        return AliasTable.build(range(self.size), self._steps)

    @cached_property
    def _noise(self) -> FloatArray:
        return np.array([weight / WORD for weight in self._steps])

    @cached_property
    def loss(self) -> FiniteLoss:
        """The exact privacy loss, all inputs being neighbours."""
        return _opposite(self._steps)

    @cached_property
    def blanket(self) -> float:
        """γ = K times the least probability, rounded down."""
        return round_down(Fraction(self.size * min(self._steps), WORD))

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        n, size = min(RESPONSE_CHUNK_ROWS, len(codes)), np.int32(self.size)
        words, index, limit = np.empty(n, np.uint64), np.empty(n, np.uint64), np.empty(n, np.uint64)
        noise, shifted = np.empty(n, np.int32), np.empty(n, np.int32)
        reader = stream.reader(0, first_row)
        for start in range(0, len(codes), RESPONSE_CHUNK_ROWS):
            part = codes[start : start + RESPONSE_CHUNK_ROWS]
            k = len(part)
            w, d, y = words[:k], noise[:k], shifted[:k]
            reader.fill(w.view(np.uint8))
            self.table.draw(w, index[:k], limit[:k], d)
            np.copyto(y, part, casting="unsafe")
            np.add(d, y, out=d)
            np.subtract(d, size, out=y)
            # Of s and s − K the right one is the smaller that is not negative, or as unsigned numbers the smaller.
            np.minimum(d.view(np.uint32), y.view(np.uint32), out=y.view(np.uint32))
            np.copyto(out[start : start + RESPONSE_CHUNK_ROWS], y, casting="unsafe")

    def law(self, code: int) -> FloatArray:
        """Return P(y | code), shape (size,)."""
        return np.roll(self._noise, code)

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return the weights of all codes over 2^64, from the alias table."""
        step_weights = self.table.weights()
        return [step_weights[(y - code) % self.size] for y in range(self.size)], WORD

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return [(1+α²)f(y) − αf(y−1) − αf(y+1)]/(1−α)², with y ± 1 on the ring."""
        y = np.asarray(codes, dtype=np.int64)
        alpha, beta = math.exp(-self.rate), -math.expm1(-self.rate)
        here = f(y)
        if self.size == 1:
            return here
        before, after = f((y - 1) % self.size), f((y + 1) % self.size)
        return np.asarray(here + alpha * ((here - before) + (here - after)) / beta**2)

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return the circular convolution with the noise along axis 0; the matrix is symmetric."""
        shape = (-1, *([1] * (np.ndim(counts) - 1)))
        spectrum = np.fft.rfft(counts, axis=0) * np.fft.rfft(self._noise).real.reshape(shape)
        return np.asarray(np.fft.irfft(spectrum, n=self.size, axis=0))

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return the inverse, tridiagonal on the ring, applied along axis 0."""
        if self.size <= 2:  # both neighbours are one code
            return super().invert(counts, squared=squared)
        alpha, beta = math.exp(-self.rate), -math.expm1(-self.rate)
        inside, beside = (1 + alpha**2) / beta**2, -alpha / beta**2
        if squared:
            inside, beside = inside**2, beside**2
        around = np.roll(counts, 1, axis=0) + np.roll(counts, -1, axis=0)
        return np.asarray(inside * counts + beside * around)

    def changes(self, edges: IntArray) -> IntArray:
        """Return the codes next to the edges and the ends, which are neighbours."""
        return beside_edges(edges, self.size)

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return P(y in a stretch of codes | x uniform in a cell), shape (stretches, cells), by sums of sums.

        With F(t) = P(D < t) continued by F(t + K) = F(t) + 1, P(y < c | x) is F(c − x) − F(−x).
        """
        last = int(edges[-1])
        low = np.append(edges[:-1], np.arange(last, self.size)).astype(np.int64)
        high = np.append(edges[1:], np.arange(last, self.size) + 1).astype(np.int64)
        once = np.concatenate([[0.0], np.cumsum(self._noise)])
        # The sum over a cell of F(c − x) is a difference of two running sums of F.
        twice = np.concatenate([[0.0], np.cumsum(np.concatenate([once[:-1] - 1, once]))])
        cuts = np.append(starts, self.size).astype(np.int64)[:, None]
        below = twice[cuts - low + 1 + self.size] - twice[cuts - high + 1 + self.size]
        return np.asarray(np.diff(below, axis=0) / (high - low))

    def expected_error(self, space: Space | None = None) -> float:
        """Return E|Y − x| in grid steps for x at an end, which has the largest error: noise may wrap around."""
        return float(Fraction(sum(d * weight for d, weight in enumerate(self._steps)), WORD))
