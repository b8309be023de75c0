"""Channels on sets: every item's bit flips on its own, 64 at a time."""

from __future__ import annotations

import math
import operator
from abc import abstractmethod
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from functools import cached_property
from itertools import accumulate, combinations, repeat
from typing import Any, ClassVar, NoReturn

import numpy as np

from dpframe.accounting import ColumnLoss
from dpframe.accounting.budget import round_down
from dpframe.accounting.loss import PrivacyLoss
from dpframe.arrays import U64, FloatArray
from dpframe.errors import ParameterError, check_whole
from dpframe.mechanisms.base import Channel, CodeFunction, IntArray, Mechanism, register
from dpframe.mechanisms.flip_loss import FlipLoss, beside_flag, fitting_flagged_flips, fitting_flips
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import ResponseTable
from dpframe.spaces import Space
from dpframe.spaces.sets import set_sizes

CHUNK = 1 << 13
"""Rows a pass works on at a time: a plane's words of so many are 64 KiB."""

LISTED_ITEMS = 12
"""Laws are written out for the sets of no more items."""

_MOST_ITEMS = 1 << 16
_SAFE = 1 - Decimal(10) ** -50


def sample_bits(flips: FlipLoss, codes: U64, stream: ColumnStream, first_row: int, out: U64) -> None:
    """Show every bit with probability ``ones/total`` if it is 1, and ``zeros/total`` if it is 0.

    With words R₁, R₂, … for the binary digits of a probability, the last digit first: acc is acc | R where the
    digit is 1 and acc & R where it is 0, which leaves 64 bits of that probability (Knuth–Yao 1976, by words).
    Both probabilities use the same words: whatever the smaller one shows, the larger one does.
    """
    bits = flips.total.bit_length() - 1
    buffer = np.empty(CHUNK, dtype="<u8")
    low, high = np.empty(CHUNK, dtype=np.uint64), np.empty(CHUNK, dtype=np.uint64)
    wanted = ((low, flips.zeros),) if flips.symmetric else ((low, flips.zeros), (high, flips.ones))
    for word in range(codes.shape[1]):
        readers = [stream.reader(word * bits + digit, first_row) for digit in range(bits)]
        spare = max(0, 64 * (word + 1) - flips.items)
        mask = np.uint64((1 << 64 - spare) - 1)
        for start in range(0, len(codes), CHUNK):
            part = codes[start : start + CHUNK, word]
            k = len(part)
            for acc, _ in wanted:
                acc[:k] = 0
            for digit in reversed(range(bits)):
                readers[digit].fill(buffer[:k].view(np.uint8))
                for acc, number in wanted:
                    if number >> bits - 1 - digit & 1:
                        np.bitwise_or(acc[:k], buffer[:k], out=acc[:k])
                    elif number & (1 << bits - 1 - digit) - 1:  # until its first 1 all is 0
                        np.bitwise_and(acc[:k], buffer[:k], out=acc[:k])
            if flips.symmetric:
                np.bitwise_xor(low[:k], part, out=low[:k])
            else:
                np.bitwise_and(high[:k], part, out=high[:k])
                np.bitwise_or(low[:k], high[:k], out=low[:k])
            np.bitwise_and(low[:k], mask, out=out[start : start + k, word])


def cut(codes: U64, most: int, stream: ColumnStream, first_row: int) -> U64:
    """Return the sets with at most ``most`` items: of larger ones a choice that the row's word makes.

    The guarantee needs of the choice that it rests on the row and its word alone.
    """
    large = np.flatnonzero(set_sizes(codes) > most)
    if not len(large):
        return codes
    codes, width = codes.copy(), 64 * codes.shape[1]
    words = stream.words(0, first_row, len(codes)).astype(np.uint64)
    step = max(1, (1 << 20) // width)
    for start in range(0, len(large), step):
        rows = large[start : start + step]
        held = np.unpackbits(codes[rows].astype("<u8").view(np.uint8), axis=1, bitorder="little").view(np.bool_)
        lots = np.where(held, _mixed(words[rows], width) >> np.uint64(1), np.uint64(2**64 - 1))
        kept = np.zeros(held.shape, dtype=np.uint8)
        np.put_along_axis(kept, np.argpartition(lots, most - 1, axis=1)[:, :most], 1, axis=1)
        codes[rows] = np.packbits(kept, axis=1, bitorder="little").view("<u8")
    return codes


def _mixed(words: U64, count: int) -> U64:
    """Return ``count`` numbers per word (SplitMix64: Steele, Lea and Flood 2014)."""
    z = words[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


class SetChannel(Channel):
    """What the channels on sets share: codes of several words, the cut to ``max_size``, laws by item."""

    items: int
    max_size: int | None

    @property
    @abstractmethod
    def flips(self) -> FlipLoss:
        """The integers that items are shown with, and their loss."""

    @property
    def loss(self) -> PrivacyLoss:
        """The exact privacy loss, computed from the integers that are sampled."""
        return self.flips

    @property
    def most(self) -> int:
        """Most items of a set after the cut."""
        return self.items if self.max_size is None else self.max_size

    @property
    def shown(self) -> tuple[float, float]:
        """(p, q): the probabilities that an item is shown if the set holds it, and if not."""
        return self.flips.ones / self.flips.total, self.flips.zeros / self.flips.total

    @property
    def own_metric(self) -> str:
        """Number of items in which two sets differ."""
        return "symmetric difference"

    @property
    def diameter(self) -> float:
        """Most items in which two sets differ, min(h, 2·max_size)."""
        return float(min(self.items, 2 * self.most))

    @property
    def centre(self) -> int:
        """The empty set."""
        return 0

    @property
    def code_words(self) -> int:
        """64-bit words in the code of a row."""
        return -(-(self.size - 1).bit_length() // 64)

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        sets = np.asarray(codes, dtype=np.uint64)  # the first plane decides the cut
        kept = cut(sets, self.most, stream, first_row)
        sample_bits(self.flips, kept, stream.skip(1), first_row, out.view(np.uint64))

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return P(y | code) for all y as integers over a total, up to 12 items.

        A set that is cut may become any of its parts.
        """
        if self.items > LISTED_ITEMS:
            raise ParameterError(f"the law of sets of {self.items} items is too long to write out; see shown")
        held = [i for i in range(self.items) if code >> i & 1]
        parts = list(combinations(held, min(len(held), self.most)))
        total = [0] * (1 << self.items)
        for part in parts:
            weights = [1]
            for i in range(self.items):
                one = self.flips.ones if i in part else self.flips.zeros
                weights = [w * (self.flips.total - one) for w in weights] + [w * one for w in weights]
            total = [a + b for a, b in zip(total, weights, strict=True)]
        share: int = self._choices // len(parts)
        return [w * share for w in total], int(self.flips.total**self.items) * self._choices

    @cached_property
    def _choices(self) -> int:
        return math.lcm(*(math.comb(held, self.most) for held in range(self.most, self.items + 1)))

    @property
    def blanket(self) -> float:
        """γ = Σ_m C(h, m)·min_x P(y | x) over the released sets y of m items, rounded down."""
        return self._blanket

    @cached_property
    def _blanket(self) -> float:
        with localcontext(Context(prec=60)):
            return round_down(sum((ways * least for ways, least, _ in self._least()), Decimal(0)) * _SAFE)

    def blanket_beside(self, flag: ResponseTable) -> float:
        """Return P(null | set) for null, and for a set the least over sets and null, rounded down."""
        with localcontext(Context(prec=60)):
            keep, flip = Decimal(flag.keep), Decimal(flag.threshold)
            shown = sum((ways * min(keep * least, flip * empty) for ways, least, empty in self._least()), Decimal(0))
            return round_down((flip + shown) * _SAFE / (1 << flag.bits))

    def loss_beside(self, flag: ResponseTable) -> PrivacyLoss:
        """Return the loss over set against set, null against set and back."""
        return beside_flag(flag, self.flips)

    def _least(self) -> list[tuple[Decimal, Decimal, Decimal]]:
        """Return by size m of a released set: how many there are, min P over all sets, and P given the empty set.

        The least likely input holds as many other items as it may, and none that are shown.
        """
        p, q = Decimal(self.flips.ones) / self.flips.total, Decimal(self.flips.zeros) / self.flips.total
        entered, absent, left = (_powers(base, self.items) for base in (q, 1 - q, 1 - p))
        ways, terms = Decimal(1), []
        for m in range(self.items + 1):
            others = min(self.most, self.items - m)
            least = entered[m] * left[others] * absent[self.items - m - others]
            terms.append((ways, least, entered[m] * absent[self.items - m]))
            ways = ways * (self.items - m) / (m + 1)  # C(h, m) itself has thousands of digits
        return terms

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Refused: functions of a whole set have 2^h values; items have surrogates of their own."""
        self._refuse()

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Refused, as `surrogate_at`."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ParameterError("sets are not inverted as a whole; ask for support, cooccurrence or set_sizes")

    def expected_error(self, space: Space | None = None) -> float:
        """Return the largest E|Y Δ x| over sets x of at most ``max_size`` items."""
        p, q = self.shown
        return max(self.items * q, self.most * (1 - p) + (self.items - self.most) * q)


def _powers(base: Decimal, last: int) -> list[Decimal]:
    """Return base⁰, …, base^last."""
    return list(accumulate(repeat(base, last), operator.mul, initial=Decimal(1)))


@dataclass(frozen=True)
class GivenFlips(SetChannel):
    """Flips of bits with given integers."""

    items: int
    max_size: int | None
    given: FlipLoss
    size: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 << self.items)

    @property
    def flips(self) -> FlipLoss:
        """The integers that items are shown with, and their loss."""
        return self.given


class SetMechanism(SetChannel, Mechanism):
    """A channel on sets that is calibrated to a budget."""

    @property
    def column_loss(self) -> ColumnLoss:
        """The law of the items that two sets can differ in, with its own blanket."""
        return self.flips.column_loss

    metrics: ClassVar[frozenset[str]] = frozenset({"symmetric difference"})

    @classmethod
    def shape_of(cls, space: Space) -> tuple[Any, ...]:
        """Return the number of items, and the most that a set holds."""
        sets: Any = space
        if not space.holds_sets:
            raise ParameterError(f"space {space.tag} holds no sets; declare Subset([…])")
        return sets.count, sets.max_size

    def _check_shape(self) -> None:
        items, max_size = check_items(self.items, self.max_size)
        object.__setattr__(self, "items", items)
        object.__setattr__(self, "max_size", max_size)
        object.__setattr__(self, "size", 1 << items)
        self._check_budget(self.epsilon, self.delta)


def check_items(items: Any, max_size: Any) -> tuple[int, int | None]:
    """Return a number of items, and the most that a set holds, or raise `ParameterError`."""
    count = check_whole(items, "items", 1, _MOST_ITEMS)
    return count, None if max_size is None else check_whole(max_size, "max_size", 1, count)


@register
@dataclass(frozen=True)
class BitFlip(SetMechanism):
    """Flips of bits: every item enters or leaves the set with probability q = 1/(1+e^k), P(B | A) ∝ e^(−k·|A Δ B|).

    With δ = 0, k = ε/diam for the diameter min(h, 2·max_size); with δ > 0 the largest k whose exact δ(ε) meets δ.
    Larger sets are first cut to ``max_size`` of their items. Metric-spaces paper, Example 1.

    Parameters
    ----------
    items
        Number of items h, up to 65,536.
    max_size
        Most items of a set, None for all.
    epsilon, delta
        The budget; see `dpframe.accounting.budget`.

    Examples
    --------
    >>> flip = BitFlip(items=20, max_size=3, epsilon=6.0)
    >>> tuple(round(share, 3) for share in flip.shown), 5.999 < flip.loss.epsilon() <= 6
    ((0.731, 0.269), True)
    """

    items: int
    max_size: int | None
    epsilon: float
    delta: float = 0.0
    size: int = field(init=False, repr=False, compare=False)

    tag: ClassVar[str] = "bitflip"

    def __post_init__(self) -> None:
        self._check_shape()
        _ = self.flips

    @cached_property
    def flips(self) -> FlipLoss:
        """The integers that items are shown with, and their loss."""
        return fitting_flips(self.items, self.most, self.epsilon, self.delta, False)

    @classmethod
    def beside_flag(cls, shape: tuple[Any, ...], epsilon: float, delta: float) -> tuple[ResponseTable, SetChannel]:
        """Return a flag at ε/2 and flips at ε over 2·max_size: null and a set differ by ε, too."""
        items, max_size = check_items(*shape)
        flag, flips = fitting_flagged_flips(items, items if max_size is None else max_size, epsilon, delta)
        return flag, GivenFlips(items, max_size, flips)


@register
@dataclass(frozen=True)
class AsymmetricBitFlip(SetMechanism):
    """Optimised unary encoding: an item of the set is shown with p = 1/2, any other with q = 1/(1 + e^(ε/max_size)).

    Wang, Blocki, Li and Jha 2017 (there for sets of one item). Of all (p, q) of one loss these make the support
    of rare items most precise: its variance per row is 1/sinh²(k) with k = ε/(2·max_size), where `BitFlip` has
    1/(4·sinh²(k/2)), cosh²(k/2) times as much. It is better for all items in less than 1/(4·cosh²(k/2)) of the sets:
    up to a quarter where k is small, so the gain is large where ε/max_size is (k = 1: standard errors of rare
    items 0.89 of those of `BitFlip`, k = 3: 0.43), and the released sets are smaller.

    Parameters
    ----------
    items
        Number of items h, up to 65,536.
    max_size
        Most items of a set, at most half of them.
    epsilon, delta
        The budget; see `dpframe.accounting.budget`. With δ > 0, q is the smallest whose exact δ(ε) meets δ.

    Examples
    --------
    >>> flip = AsymmetricBitFlip(items=20, max_size=3, epsilon=6.0)
    >>> tuple(round(share, 3) for share in flip.shown), 5.999 < flip.loss.epsilon() <= 6
    ((0.5, 0.119), True)
    """

    items: int
    max_size: int | None
    epsilon: float
    delta: float = 0.0
    size: int = field(init=False, repr=False, compare=False)

    tag: ClassVar[str] = "asymmetric_bitflip"

    def __post_init__(self) -> None:
        self._check_shape()
        if 2 * self.most > self.items:
            raise ParameterError("asymmetric_bitflip needs max_size of at most half the items; use bitflip")
        _ = self.flips

    @cached_property
    def flips(self) -> FlipLoss:
        """The integers that items are shown with, and their loss."""
        return fitting_flips(self.items, self.most, self.epsilon, self.delta, True)
