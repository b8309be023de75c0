"""Exact integer tables: random words in, draws of a stated law out, and never a float in between.

Every probability is an integer over 2^bits. Weights are chosen once, exactly, and the privacy loss is
computed from those integers (`dpframe.accounting.loss`), so rounding can never make the stated ε false.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from dpframe.noise.keystream import U64, ColumnStream

IntArray = npt.NDArray[np.integer]

RESPONSE_CHUNK_ROWS = 1 << 15
"""Rows a pass works on at a time: small enough that all its buffers stay in cache."""

WORD = 1 << 64
_TABLE_FRACTION_BITS = 192
"""Fractional bits of the fixed-point numbers in which ideal laws are written down."""

_SINGLE_TABLE_SPAN = 511
"""Up to this span the noise has one alias table of at most 1,024 entries; beyond, two of about √span."""


def integer_weights(ideal: Sequence[int], total: int = WORD) -> list[int]:
    """Return positive integers that sum to ``total`` and follow ``ideal``, by largest remainders.

    A weight is never 0: an outcome that one input can have and its neighbour cannot would be an
    infinite privacy loss.
    """
    ideal_sum = sum(ideal)
    shares = [divmod(part * total, ideal_sum) for part in ideal]
    weights = [quotient or 1 for quotient, _ in shares]
    missing = total - sum(weights)
    if missing >= 0:
        remainders = [remainder if quotient else 0 for quotient, remainder in shares]
        by_remainder = sorted(range(len(shares)), key=remainders.__getitem__, reverse=True)
        for i in by_remainder[:missing]:
            weights[i] += 1
    else:
        # Raising weights of 0 to 1 can exceed the total: the largest weight loses least by giving it back.
        weights[weights.index(max(weights))] += missing
    return weights


def relative_spread(weights: Sequence[int], ideal: Sequence[int], total: int = WORD) -> float:
    """Return ln(max/min) of weight over ideal, rounded up: the most that rounding adds to a log-ratio."""
    ideal_sum = sum(ideal)
    exact = [part * total for part in ideal]
    errors = [(w * ideal_sum - part) / part for w, part in zip(weights, exact, strict=True)]
    return (math.log1p(max(errors)) - math.log1p(min(errors))) * (1 + 2**-40)


@dataclass(frozen=True, eq=False)
class AliasTable:
    """Walker's alias table in exact integers: ``values[i]`` with probability ``weights[i]`` / 2^64.

    The bins are padded to a power of two, so that the top bits of a word choose the bin and the rest
    decide within it. A. J. Walker (1977); built as by Vose (1991), without floats.
    """

    bits: int
    limits: U64
    values: npt.NDArray[np.signedinteger]

    @classmethod
    def build(cls, values: Sequence[int], weights: Sequence[int], dtype: npt.DTypeLike = np.int32) -> AliasTable:
        """Return the table of outcomes with integer weights from 0 that sum to 2^64; weight 0 is never sampled."""
        if sum(weights) != WORD or min(weights) < 0:
            raise ValueError("weights must be at least 0 and sum to 2**64")
        bits = max(1, (len(weights) - 1).bit_length())
        capacity = WORD >> bits
        remaining_weights = [*weights, *([0] * ((1 << bits) - len(weights)))]
        alias = list(range(1 << bits))
        threshold = [capacity] * (1 << bits)
        small = [i for i, w in enumerate(remaining_weights) if w < capacity]
        large = [i for i, w in enumerate(remaining_weights) if w > capacity]
        while small:
            i, j = small.pop(), large[-1]
            threshold[i], alias[i] = remaining_weights[i], j
            remaining_weights[j] -= capacity - remaining_weights[i]
            if remaining_weights[j] <= capacity:
                large.pop()
                if remaining_weights[j] < capacity:
                    small.append(j)
        padded = np.zeros(1 << bits, dtype=dtype)
        padded[: len(values)] = values
        # An empty bin would need the limit "one below its start"; it gives its alias either way.
        inside = np.array([t or capacity for t in threshold], dtype=np.uint64)
        limits = (np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)) + (inside - np.uint64(1))
        second = padded[alias]
        first = np.where([t > 0 for t in threshold], padded, second)
        return cls(bits, limits, np.stack([first, second], axis=1).reshape(-1))

    def weights(self) -> dict[int, int]:
        """Return the integer weight of every value, from the table itself."""
        capacity = WORD >> self.bits
        weights: dict[int, int] = {}
        for i, limit in enumerate(self.limits.tolist()):
            inside = limit - i * capacity + 1
            first, second = int(self.values[2 * i]), int(self.values[2 * i + 1])
            weights[first] = weights.get(first, 0) + inside
            if inside < capacity:
                weights[second] = weights.get(second, 0) + capacity - inside
        return weights

    def draw(self, words: U64, index: U64, limit: U64, out: npt.NDArray[np.signedinteger]) -> None:
        """Turn words into values; ``index`` and ``limit`` are scratch arrays of equal length."""
        np.right_shift(words, np.uint64(64 - self.bits), out=index)
        self.limits.take(index.view(np.int64), out=limit, mode="wrap")
        # |limit − word| < 2^63 within a bin, so the sign bit of the difference is the comparison.
        np.subtract(limit, words, out=limit)
        np.right_shift(limit, np.uint64(63), out=limit)
        np.add(index, index, out=index)
        np.add(index, limit, out=index)
        self.values.take(index.view(np.int64), out=out, mode="wrap")


@dataclass(frozen=True, eq=False)
class ChannelTable:
    """Any finite channel: an alias table per input, all of one shape and laid end to end.

    Input x has the bins from x·2^bits on, so that one look-up serves rows with different inputs.
    """

    size: int
    bits: int
    limits: U64
    values: npt.NDArray[np.signedinteger]

    @classmethod
    def build(cls, laws: Sequence[Sequence[int]]) -> ChannelTable:
        """Return the table of one law per input: integer weights from 0 of the outputs that sum to 2^64."""
        size = len(laws[0])
        # Values of two bytes halve the memory of tables of many inputs.
        kind = np.int16 if size <= 1 << 15 else np.int32
        parts = [AliasTable.build(range(size), law, kind) for law in laws]
        limits, values = (np.concatenate(arrays) for arrays in zip(*((t.limits, t.values) for t in parts), strict=True))
        return cls(size, parts[0].bits, limits, values)

    def weights(self, code: int) -> list[int]:
        """Return the weights over 2^64 of all outputs of one input, from the table itself."""
        bins = slice(code << self.bits, (code + 1) << self.bits)
        part = AliasTable(self.bits, self.limits[bins], self.values[2 * bins.start : 2 * bins.stop])
        weights = part.weights()
        return [weights.get(y, 0) for y in range(self.size)]

    def sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        """Randomise codes into ``out``; one 64-bit word a row."""
        reader = stream.reader(0, first_row)
        n = min(RESPONSE_CHUNK_ROWS, len(codes))
        words, index, limit, bins = (np.empty(n, np.uint64) for _ in range(4))
        draws = np.empty(n, self.values.dtype)
        shift, width = np.uint64(64 - self.bits), np.uint64(self.bits)
        for start in range(0, len(codes), RESPONSE_CHUNK_ROWS):
            part = codes[start : start + RESPONSE_CHUNK_ROWS]
            k = len(part)
            w, i, low, b, d = words[:k], index[:k], limit[:k], bins[:k], draws[:k]
            reader.fill(w.view(np.uint8))
            np.copyto(b, part, casting="unsafe")
            np.left_shift(b, width, out=b)
            np.right_shift(w, shift, out=i)
            np.bitwise_or(i, b, out=i)
            # As in `AliasTable.draw`: the sign bit of limit − word is the comparison.
            self.limits.take(i.view(np.int64), out=low, mode="wrap")
            np.subtract(low, w, out=low)
            np.right_shift(low, np.uint64(63), out=low)
            np.add(i, i, out=i)
            np.add(i, low, out=i)
            self.values.take(i.view(np.int64), out=d, mode="wrap")
            np.copyto(out[start : start + RESPONSE_CHUNK_ROWS], d, casting="unsafe")


@dataclass(frozen=True)
class ResponseTable:
    """Randomised response on 0…size−1: every other code with weight ``threshold`` / 2^bits."""

    size: int
    threshold: int
    bits: int

    @property
    def keep(self) -> int:
        """Weight of the true code."""
        return (1 << self.bits) - (self.size - 1) * self.threshold

    @property
    def signal(self) -> float:
        """Probability keep − other, 1 − size·p, by which inversion divides; as floats it would cancel."""
        return (self.keep - self.threshold) / (1 << self.bits) if self.size > 1 else 1.0

    def sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        """Randomise codes into ``out``; one word of ``bits`` a row."""
        if self.size == 1:
            out[:] = 0
            return
        word = np.dtype(f"<u{self.bits // 8}")
        reader = stream.reader(0, first_row, self.bits)
        n = min(RESPONSE_CHUNK_ROWS, len(codes))
        words, shifted = np.empty(n, word), np.empty(n, word)
        # An array as second operand: NumPy's minimum is five times slower against a scalar.
        last = np.full(n, self.size - 1, dtype=word)
        divisor, modulus = word.type(self.threshold), word.type(self.size - 1)
        for start in range(0, len(codes), RESPONSE_CHUNK_ROWS):
            part = codes[start : start + RESPONSE_CHUNK_ROWS]
            w, s = words[: len(part)], shifted[: len(part)]
            reader.fill(w.view(np.uint8))
            np.floor_divide(w, divisor, out=w)
            np.minimum(w, last[: len(part)], out=w)
            np.copyto(s, part, casting="unsafe")
            np.add(w, s, out=w)
            # (x + z) mod size without a division: of s+1 and s−m, the wrong one wraps to a huge number.
            np.subtract(w, modulus, out=s)
            np.add(w, word.type(1), out=w)
            np.minimum(w, s, out=w)
            np.copyto(out[start : start + RESPONSE_CHUNK_ROWS], w, casting="unsafe")


@dataclass(frozen=True, eq=False)
class GeometricTable:
    """Two-sided geometric noise, P(k) ∝ e^(−rate·|k|), for a grid of ``span`` steps.

    D ≥ 0 with probability 1/(1+α), then D = G, else D = −1−G, with G = block·q + r geometric: r and
    (sign, q) are independent and have one alias table each. The last q starts at or beyond the span and
    carries all the tail, which the bounds absorb. ``log_spread`` bounds max − min of ln(P/ideal) over every event
    that the saturated noise can make. Plans need no alias table: the first draw makes them.
    """

    span: int
    rate: float
    block: int
    """The steps of one value of q."""
    log_spread: float
    values: Sequence[int] = field(repr=False)
    of_blocks: Sequence[int] = field(repr=False)
    within: Sequence[int] | None = field(repr=False)
    """Weights of `values`, and of r if blocks have more than one step."""

    @cached_property
    def high(self) -> AliasTable:
        """The table of block·q and of its complements."""
        return AliasTable.build(self.values, self.of_blocks, self._dtype)

    @cached_property
    def low(self) -> AliasTable | None:
        """The table of r, if blocks have more than one step."""
        return None if self.within is None else AliasTable.build(range(self.block), self.within, self._dtype)

    @property
    def _dtype(self) -> type[np.signedinteger]:
        return np.int32 if 3 * self.span + 4 * self.block < 2**31 else np.int64

    def sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        """Write the codes plus noise, clipped to 0…span, into ``out``; two 64-bit words a row."""
        n = min(RESPONSE_CHUNK_ROWS, len(codes))
        words, index, limit = np.empty(n, np.uint64), np.empty(n, np.uint64), np.empty(n, np.uint64)
        # As wide as the sum of code and noise needs, so that it cannot overflow before it is clipped.
        signed = self.high.values.dtype
        noise, within = np.empty(n, signed), np.zeros(n, signed)
        high, low = stream.reader(0, first_row), stream.reader(1, first_row)
        floor, ceiling = signed.type(0), signed.type(self.span)
        for start in range(0, len(codes), RESPONSE_CHUNK_ROWS):
            part = codes[start : start + RESPONSE_CHUNK_ROWS]
            k = len(part)
            w, d, r = words[:k], noise[:k], within[:k]
            high.fill(w.view(np.uint8))
            self.high.draw(w, index[:k], limit[:k], d)
            if self.low is not None:
                low.fill(w.view(np.uint8))
                self.low.draw(w, index[:k], limit[:k], r)
                # block·q | r, or its complement −1−G: both are one exclusive or, as block is a power of 2.
                np.bitwise_xor(d, r, out=d)
            np.copyto(r, part, casting="unsafe")
            np.add(d, r, out=d)
            np.clip(d, floor, ceiling, out=d)
            np.copyto(out[start : start + RESPONSE_CHUNK_ROWS], d, casting="unsafe")

    @cached_property
    def noise_weights(self) -> dict[int, int]:
        """Weight over 2^128 of every noise value in −span…span (the ends hold the tails)."""
        low = {0: WORD} if self.low is None else self.low.weights()
        weights: dict[int, int] = {}
        for base, w in self.high.weights().items():
            for r, v in low.items():
                k = max(-self.span, min(self.span, base ^ r))
                weights[k] = weights.get(k, 0) + w * v
        return weights

    @cached_property
    def _noise(self) -> npt.NDArray[np.float64]:
        return np.array([self.noise_weights[k] / (1 << 128) for k in range(-self.span, self.span + 1)])

    def weights(self, code: int) -> list[int]:
        """Return the weights over 2^128 of 0…span when ``code`` is saturated after noise."""
        noise, start = [self.noise_weights[k] for k in range(-self.span, self.span + 1)], self.span - code
        column = noise[start : start + self.span + 1]
        column[0], column[-1] = sum(noise[: start + 1]), sum(noise[start + self.span :])
        return column

    def law(self, code: int) -> npt.NDArray[np.float64]:
        """Return the probabilities of 0…span when ``code`` is saturated after noise."""
        start = self.span - code
        column = self._noise[start : start + self.span + 1].copy()
        column[0], column[-1] = self._noise[: start + 1].sum(), self._noise[start + self.span :].sum()
        return column


def fixed(x: Decimal, bits: int = _TABLE_FRACTION_BITS) -> int:
    """Return a number in fixed point, with so many fractional bits."""
    return int(x * (1 << bits))


@lru_cache(maxsize=256)
def geometric_table(span: int, rate: float) -> GeometricTable:
    """Return the tables of two-sided geometric noise with loss ``rate`` per grid step.

    The ideal law is written in 192-bit fixed point from a 80-digit exponential; weights are then rounded
    to integers over 2^64, and ``log_spread`` bounds the error of any log-ratio from that rounding.
    """
    single = span <= _SINGLE_TABLE_SPAN
    block = 1 if single else 1 << round(math.log2(span) / 2)
    blocks = -(-span // block) + 1
    with localcontext(Context(prec=80)):
        alpha = fixed((-Decimal(rate)).exp())
        beta = fixed((-Decimal(rate) * block).exp())
    unit = 1 << _TABLE_FRACTION_BITS
    # One sign's blocks: (1−β)β^q, and just β^q for the last, which has all of the tail. Negative
    # noise starts at −1, so its blocks reach −span sooner; one more would only round a rarer event.
    above = powers(beta, blocks)
    below = -(-(span - 1) // block) + 1
    inner = [power * (unit - beta) >> _TABLE_FRACTION_BITS for power in above]
    upper, lower = [*inner[:-1], above[-1]], [*inner[: below - 1], above[below - 1]]
    sign_blocks = [*upper, *(part * alpha >> _TABLE_FRACTION_BITS for part in lower)]
    values = [*(block * q for q in range(blocks)), *(~(block * q) for q in range(below))]
    high = integer_weights(sign_blocks)
    log_spread, low = relative_spread(high, sign_blocks), None
    if not single:
        inside = powers(alpha, block)
        low = integer_weights(inside)
        log_spread += relative_spread(low, inside)
    return GeometricTable(span, rate, block, log_spread + 2.0**-100, values, high, low)


def powers(base: int, count: int, bits: int = _TABLE_FRACTION_BITS) -> list[int]:
    """Return the first ``count`` powers of a number, base and powers in fixed point."""
    terms = [1 << bits]
    while len(terms) < count:
        terms.append(terms[-1] * base >> bits)
    return terms


@dataclass(frozen=True)
class BoxTable:
    """Noise in a box about the value, on 0…span and null as one more value if ``nullable``: one 64-bit word a row.

    The places −b … span + width − 1 − b, b = ``places_below``, are clipped to 0…span. Every place has the weight
    ``low`` / 2^64, and each of the ``width`` places from x − b on has ``top`` / 2^64 more; null has ``width`` further
    places. The last place takes the remainder of 2^64, for every value.

    >>> table = BoxTable(span=4, width=2, low=2**60, nullable=False)
    >>> [round(weight / 2**60) for weight in table.weights(0)], table.places_below
    ([12, 1, 1, 1, 1], 1)
    """

    span: int
    width: int
    low: int
    nullable: bool

    @property
    def places_below(self) -> int:
        """Number of places of a value's box below it."""
        return self.width // 2

    @property
    def places(self) -> int:
        """Number of places that have a weight for every value."""
        return self.span + self.width * (2 if self.nullable else 1)

    @property
    def top(self) -> int:
        """Weight that a place of the box has above ``low``."""
        return (WORD - self.places * self.low) // self.width

    @property
    def last_place_extra(self) -> int:
        """Weight that the last place has above ``low``."""
        return WORD - self.places * self.low - self.width * self.top

    @property
    def signal(self) -> float:
        """Probability that a draw comes from the box."""
        return self.width * self.top / WORD

    @property
    def background(self) -> list[int]:
        """The weights over 2^64 that all outputs have for every value."""
        law = [self.low] * (self.span + 1)
        law[0] = (self.places_below + 1) * self.low
        law[-1] = (self.width - self.places_below) * self.low
        law += [self.width * self.low] * self.nullable
        law[-1] += self.last_place_extra
        return law

    def weights(self, code: int) -> list[int]:
        """Return the weights over 2^64 of all outputs of one input."""
        law = self.background
        if code > self.span:
            law[-1] += self.width * self.top
            return law
        first = code - self.places_below
        for place in range(first, first + self.width):
            law[min(max(place, 0), self.span)] += self.top
        return law

    def sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        """Randomise codes into ``out``."""
        reader = stream.reader(0, first_row)
        n = min(RESPONSE_CHUNK_ROWS, len(codes))
        words, elsewhere = np.empty(n, np.uint64), np.empty(n, np.uint64)
        inside = np.uint64(self.width * self.top)
        for start in range(0, len(codes), RESPONSE_CHUNK_ROWS):
            part = codes[start : start + RESPONSE_CHUNK_ROWS]
            w, e = words[: len(part)], elsewhere[: len(part)]
            reader.fill(w.view(np.uint8))
            # A word below ``inside`` wraps to a huge one: its place elsewhere is the last, and stays unused.
            np.subtract(w, inside, out=e)
            in_box = w < inside
            np.floor_divide(e, np.uint64(self.low), out=e)
            np.minimum(e, np.uint64(self.places - 1), out=e)
            np.floor_divide(w, np.uint64(self.top), out=w)
            x = part.astype(np.int64)
            place = np.where(in_box, x + w.view(np.int64), e.view(np.int64))
            draws: IntArray = np.clip(place - self.places_below, 0, self.span)
            if self.nullable:
                null = np.where(in_box, x > self.span, place >= self.span + self.width)
                draws[null] = self.span + 1
            np.copyto(out[start : start + RESPONSE_CHUNK_ROWS], draws, casting="unsafe")
