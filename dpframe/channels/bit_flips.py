"""Channels on sets: every item's bit flips independently, 64 bits at a time."""

from __future__ import annotations

import operator
from abc import abstractmethod
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from functools import cached_property, partial
from itertools import accumulate, repeat
from typing import Any, ClassVar

import numpy as np

from dpframe.accounting.budget import round_down
from dpframe.accounting.loss import PrivacyLoss
from dpframe.channels.base import SAFE, IntArray, register
from dpframe.channels.flip_loss import FlipLoss, beside_flag, fitting_flagged_flips, fitting_flips
from dpframe.channels.set_channel import Levels, SetChannel, SetMechanism, check_items
from dpframe.errors import ParameterError
from dpframe.noise.keystream import U64, ColumnStream
from dpframe.noise.tables import ResponseTable
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import forwarded
from dpframe.spaces.set_bits import cut

FLIP_CHUNK_ROWS = 1 << 15
"""Rows of a pass: their words of a plane are 256 KiB, which the cache holds, and calls are few."""


def sample_bits(flips: FlipLoss, codes: U64, stream: ColumnStream, first_row: int, out: U64) -> None:
    """Show every bit with probability ``ones/total`` if it is 1, and ``zeros/total`` if it is 0.

    With words R₁, R₂, … for the binary digits of a probability, the last digit first: acc becomes acc | R if the digit
    is 1, acc & R if it is 0. In the end each of its 64 bits has that probability (Knuth–Yao 1976, by words). Both
    probabilities use one set of words: every bit that the smaller one shows, the larger one shows too.
    """
    bits = flips.total.bit_length() - 1
    buffer = np.empty(FLIP_CHUNK_ROWS, dtype="<u8")
    # With p = 1 − q one accumulator serves both kinds of bits: exclusive or flips the set.
    low, high = np.empty(FLIP_CHUNK_ROWS, dtype=np.uint64), np.empty(FLIP_CHUNK_ROWS, dtype=np.uint64)
    targets = ((low, flips.zeros),) if flips.symmetric else ((low, flips.zeros), (high, flips.ones))
    for word in range(codes.shape[1]):
        readers = [stream.reader(word * bits + digit, first_row) for digit in range(bits)]
        # Noise on bits beyond the last item would release codes outside the space.
        unused_bits = max(0, 64 * (word + 1) - flips.items)
        mask = np.uint64((1 << 64 - unused_bits) - 1)
        for start in range(0, len(codes), FLIP_CHUNK_ROWS):
            part = codes[start : start + FLIP_CHUNK_ROWS, word]
            k = len(part)
            for acc, _ in targets:
                acc[:k] = 0
            for digit in reversed(range(bits)):
                readers[digit].fill(buffer[:k].view(np.uint8))
                for acc, number in targets:
                    if number >> bits - 1 - digit & 1:
                        np.bitwise_or(acc[:k], buffer[:k], out=acc[:k])
                    elif number & (1 << bits - 1 - digit) - 1:  # until its first 1 the accumulator is 0
                        np.bitwise_and(acc[:k], buffer[:k], out=acc[:k])
            if flips.symmetric:
                np.bitwise_xor(low[:k], part, out=low[:k])
            else:
                np.bitwise_and(high[:k], part, out=high[:k])
                np.bitwise_or(low[:k], high[:k], out=low[:k])
            np.bitwise_and(low[:k], mask, out=out[start : start + k, word])


class FlipChannel(SetChannel):
    """Sets whose items are shown or hidden independently of each other."""

    @property
    @abstractmethod
    def flips(self) -> FlipLoss:
        """The integers that items are shown with, and their loss."""

    loss: ClassVar[PrivacyLoss] = forwarded("flips")
    """The exact privacy loss, computed from the integers that are sampled."""

    @property
    def shown(self) -> tuple[float, float]:
        """(p, q): the probabilities that an item is shown if the set contains it, and if not."""
        return self.flips.ones / self.flips.total, self.flips.zeros / self.flips.total

    @property
    def support_variances(self) -> tuple[float, float]:
        """q(1−q)/(p−q)² of a rare item, p(1−p)/(p−q)² of an item that nearly all sets contain."""
        p, q = self.shown
        return q * (1 - q) / (p - q) ** 2, p * (1 - p) / (p - q) ** 2

    def holds_all(self, count: int) -> Levels:
        """Return the product of the items' φ = (y − q)/(p − q): items are shown independently."""
        (p, q), j = self.shown, np.arange(count + 1.0)
        return Levels(((1 - q) / (p - q)) ** j * (-q / (p - q)) ** (count - j))

    def holds_none(self, count: int) -> Levels:
        """Return the product of the items' 1 − φ = (p − y)/(p − q)."""
        (p, q), j = self.shown, np.arange(count + 1.0)
        return Levels(((p - 1) / (p - q)) ** j * (p / (p - q)) ** (count - j))

    def sizes(self) -> tuple[Levels, Levels]:
        """Return (|y| − hq)/(p − q), and its square less its variance.

        Given the size the variance of |y| is size·p(1−p) + (h − size)·q(1−q).
        """
        p, q = self.shown
        size = (np.arange(self.items + 1.0) - self.items * q) / (p - q)
        noise = (size * p * (1 - p) + (self.items - size) * q * (1 - q)) / (p - q) ** 2
        return Levels(size), Levels(size**2 - noise)

    def size_law(self) -> FloatArray:
        """Return P(released size | size): Bin(size, p) items of the set and Bin(h − size, q) others."""
        (p, q), h = self.shown, self.items
        columns = [np.convolve(_binomial(s, p), _binomial(h - s, q)) for s in range(self.most + 1)]
        return np.stack(columns, axis=1)

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        sets = np.asarray(codes, dtype=np.uint64)  # the first plane decides the cut
        cut_sets = cut(sets, self.most, partial(stream.words, 0, first_row))
        sample_bits(self.flips, cut_sets, stream.skip(1), first_row, out.view(np.uint64))

    def _weights_of(self, code: int) -> tuple[list[int], int]:
        weights = [1]
        for i in range(self.items):
            # Each item doubles the list: bit i of a position is item i of the released set.
            one = self.flips.ones if code >> i & 1 else self.flips.zeros
            weights = [w * (self.flips.total - one) for w in weights] + [w * one for w in weights]
        return weights, int(self.flips.total**self.items)

    @cached_property
    def blanket(self) -> float:
        """γ = Σ_m C(h, m)·min_x P(y | x) over the released sets y of m items, rounded down."""
        with localcontext(Context(prec=60)):
            return round_down(
                sum((ways * min_probability for ways, min_probability, _ in self._min_probabilities()), Decimal(0))
                * SAFE
            )

    def blanket_beside(self, flag: ResponseTable) -> float:
        """Return P(null | set) for null plus, for every released set, the least over sets and null, rounded down."""
        with localcontext(Context(prec=60)):
            keep, flip = Decimal(flag.keep), Decimal(flag.threshold)
            set_mass = sum(
                (
                    ways * min(keep * min_probability, flip * empty)
                    for ways, min_probability, empty in self._min_probabilities()
                ),
                Decimal(0),
            )
            return round_down((flip + set_mass) * SAFE / (1 << flag.bits))

    def loss_beside(self, flag: ResponseTable) -> PrivacyLoss:
        """Return the loss over set against set, null against set and back."""
        return beside_flag(flag, self.flips)

    def _min_probabilities(self) -> list[tuple[Decimal, Decimal, Decimal]]:
        """Return, for each size m of a released set, the number of sets, min P over inputs, and P given the empty set.

        The least likely input contains none of the shown items and as many other items as it may.
        """
        p, q = Decimal(self.flips.ones) / self.flips.total, Decimal(self.flips.zeros) / self.flips.total
        q_powers, not_q_powers, not_p_powers = (
            list(accumulate(repeat(base, self.items), operator.mul, initial=Decimal(1))) for base in (q, 1 - q, 1 - p)
        )
        ways, terms = Decimal(1), []
        for m in range(self.items + 1):
            extra_items = min(self.most, self.items - m)
            min_probability = q_powers[m] * not_p_powers[extra_items] * not_q_powers[self.items - m - extra_items]
            terms.append((ways, min_probability, q_powers[m] * not_q_powers[self.items - m]))
            ways = ways * (self.items - m) / (m + 1)  # C(h, m) itself has thousands of digits
        return terms

    def expected_error(self, space: Space | None = None) -> float:
        """Return the largest E|Y Δ x| over sets x of at most ``max_size`` items."""
        p, q = self.shown
        return max(self.items * q, self.most * (1 - p) + (self.items - self.most) * q)


@dataclass(frozen=True)
class GivenFlips(FlipChannel):
    """Flips of bits with fixed integers."""

    items: int
    max_size: int | None
    fixed_flips: FlipLoss
    size: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 << self.items)

    @property
    def flips(self) -> FlipLoss:
        """The integers that items are shown with, and their loss."""
        return self.fixed_flips


class FlipMechanism(FlipChannel, SetMechanism):
    """Flips of bits calibrated to a budget."""

    column_loss = forwarded("flips.column_loss")  # of the items in which two sets can differ


@register
@dataclass(frozen=True)
class BitFlip(FlipMechanism):
    """Flips of bits: every item enters or leaves the set with probability q = 1/(1+e^k), P(B | A) ∝ e^(−k·|A Δ B|).

    With δ = 0, k = ε/diam for the diameter min(h, 2·max_size); with δ > 0 the largest k whose exact δ(ε) meets δ.
    Larger sets are first cut to ``max_size`` of their items. Metric-spaces paper, Example 1.

    ``items``: number of items h, up to 65,536. ``max_size``: most items of a set, None for all. ``epsilon`` and
    ``delta``: the budget; see `dpframe.accounting.budget`.
    """

    tag: ClassVar[str] = "bitflip"
    adds_in_group: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check_shape()
        _ = self.flips

    def before_pad(self, codes: IntArray, stream: ColumnStream, first_row: int = 0) -> IntArray:
        """Return sets cut to ``max_size``, as padded sets have any size."""
        return cut(np.asarray(codes, dtype=np.uint64), self.most, partial(stream.words, 0, first_row))

    def sample_padded(self, codes: IntArray, stream: ColumnStream, first_row: int = 0) -> IntArray:
        """Flip bits with the words that `sample` uses, without the cut."""
        return GivenFlips(self.items, None, self.flips).sample(codes, stream, first_row)

    @cached_property
    def flips(self) -> FlipLoss:
        """The integers that items are shown with, and their loss."""
        return fitting_flips(self.items, self.most, self.epsilon, self.delta, False)

    @classmethod
    def beside_flag(
        cls, shape: tuple[Any, ...], epsilon: float, delta: float, flag_size: int = 2
    ) -> tuple[ResponseTable, FlipChannel]:
        """Return a flag at ε/2 and flips at ε over 2·max_size: null and a set differ by ε, too."""
        items, max_size = check_items(*shape)
        flag, flips = fitting_flagged_flips(items, items if max_size is None else max_size, epsilon, delta)
        return flag, GivenFlips(items, max_size, flips)


@register
@dataclass(frozen=True)
class AsymmetricBitFlip(FlipMechanism):
    """Optimised unary encoding: an item of the set is shown with p = 1/2, any other with q = 1/(1 + e^(ε/max_size)).

    Wang, Blocki, Li and Jha 2017 (there for sets of one item). Among all (p, q) of one loss these make the support
    of rare items most precise: its variance per row is 1/sinh²(k) with k = ε/(2·max_size), where `BitFlip` has
    1/(4·sinh²(k/2)), cosh²(k/2) times as much. It is better for all items in less than 1/(4·cosh²(k/2)) of the sets, up
    to a quarter for small k. The gain is large for large ε/max_size: relative to `BitFlip`, standard errors of rare
    items are 0.89 at k = 1 and 0.43 at k = 3. The released sets are smaller.

    ``items``: number of items h, up to 65,536. ``max_size``: most items of a set, at most half of them. ``epsilon`` and
    ``delta``: the budget; see `dpframe.accounting.budget`. With δ > 0, q is the smallest whose exact δ(ε) meets δ.
    """

    tag: ClassVar[str] = "asymmetric_bitflip"

    def __post_init__(self) -> None:
        self._check_shape()
        # Then no two sets of the largest size are disjoint, and the accountant's law of items does not apply.
        if 2 * self.most > self.items:
            raise ParameterError("asymmetric_bitflip needs max_size of at most half the items; use bitflip")
        _ = self.flips

    @cached_property
    def flips(self) -> FlipLoss:
        """The integers that items are shown with, and their loss."""
        return fitting_flips(self.items, self.most, self.epsilon, self.delta, True)


def _binomial(n: int, p: float) -> FloatArray:
    """Return the binomial law of 0 to n."""
    # Imported late, as all of SciPy; scipy.stats would take half a second more.
    from scipy.special import gammaln, xlog1py, xlogy

    k = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(np.exp(ways + xlogy(k, p) + xlog1py(n - k, -p)))
