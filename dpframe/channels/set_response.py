"""Randomised response on whole sets: a set stays, or becomes any other set with equal probability.

A set {i₁ < … < iᵣ} has the rank Σ_k C(i_k, k) among the sets of its size (Knuth, TAOCP 7.2.1.3). The steps are equal
for every row, so that time reveals nothing about a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.accounting.budget import round_down
from dpframe.accounting.loss import ResponseLoss
from dpframe.channels.base import IntArray, register, response_loss, response_table
from dpframe.channels.set_channel import Levels, SetMechanism
from dpframe.errors import ParameterError
from dpframe.noise.keystream import U64, ColumnStream
from dpframe.noise.tables import ResponseTable
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.set_bits import cut

SET_CHUNK_ROWS = 1 << 14
"""Rows of a pass."""

MAX_LISTED_SETS = 1 << 20
"""Largest number of sets in a list in memory."""


def set_count(items: int, max_items: int, stop: int | None = None) -> int:
    """Return the number Σ C(items, r) of sets of at most ``max_items`` items; counting ends beyond ``stop``."""
    ways, total = 1, 0
    for size in range(min(items, max_items) + 1):
        total += ways
        if stop is not None and total > stop:
            break
        # Exact in integers: C(items, size)·(items − size) is a multiple of size + 1.
        ways = ways * (items - size) // (size + 1)
    return total


@dataclass(frozen=True)
class SetRanks:
    """Ranks of the sets of at most ``most`` of some items, which are bits in rows of words; ranks start at 0.

    >>> ranks = SetRanks(items=4, most=2)
    >>> sets = ranks.unrank(np.arange(11))
    >>> [f"{word:04b}" for word in sets[:, 0].tolist()]
    ['0000', '0001', '0010', '0100', '1000', '0011', '0101', '0110', '1001', '1010', '1100']
    >>> ranks.rank(sets).tolist() == list(range(11))
    True
    """

    items: int
    most: int

    @property
    def words(self) -> int:
        """64-bit words of a set."""
        return -(-self.items // 64)

    @cached_property
    def _ways(self) -> IntArray:
        """C(i, k) for k = 0…most and i = 0…items − 1."""
        table = np.zeros((self.most + 1, self.items), dtype=np.int64)
        table[0] = 1
        for k in range(1, self.most + 1):
            # C(i, k) = Σ_{j < i} C(j, k − 1).
            table[k, 1:] = np.cumsum(table[k - 1, :-1])
        return table

    @cached_property
    def _starts(self) -> IntArray:
        """The first rank of every size."""
        sizes = (set_count(self.items, size) for size in range(self.most))
        return np.array([0, *sizes], dtype=np.int64)

    def rank(self, sets: U64) -> IntArray:
        """Return the ranks of sets of at most ``most`` items, given as rows of words, shape (n,)."""
        out = np.empty(len(sets), dtype=np.int64)
        for start in range(0, len(sets), SET_CHUNK_ROWS):
            out[start : start + SET_CHUNK_ROWS] = self._rank(sets[start : start + SET_CHUNK_ROWS])
        return out

    def _rank(self, sets: U64) -> IntArray:
        ways, items_seen = self._ways.reshape(-1), np.zeros(len(sets), dtype=np.int64)
        ranks = np.zeros(len(sets), dtype=np.int64)
        for word in range(self.words):
            remaining_bits, first = sets[:, word].copy(), 64 * word
            # The number of turns depends on the shape only, not on the sets.
            for _ in range(min(self.most, 64, self.items - first)):
                lowest = remaining_bits & (~remaining_bits + np.uint64(1))
                some = lowest != 0
                place = np.bitwise_count(lowest - np.uint64(1)).astype(np.int64)
                items_seen += some
                # Without a further item the term is multiplied by 0: no branch on the data.
                ranks += ways.take(items_seen * self.items + first + place, mode="clip") * some
                remaining_bits ^= lowest
        return np.asarray(ranks + self._starts[items_seen])

    @cached_property
    def count(self) -> int:
        """Number of sets, or a number above `MAX_LISTED_SETS` if there are more."""
        return set_count(self.items, self.most, MAX_LISTED_SETS)

    @cached_property
    def _every(self) -> U64:
        """The sets of all ranks, in order."""
        return self._computed(np.arange(self.count))

    def unrank(self, ranks: IntArray) -> U64:
        """Return the sets of ranks, shape (n, words)."""
        # The list pays if there are about as many rows as sets. The choice depends only on the number of rows.
        listed = self.count <= min(MAX_LISTED_SETS, 8 * len(ranks))
        return self._every[ranks] if listed else self._computed(ranks)

    def _computed(self, ranks: IntArray) -> U64:
        out = np.zeros((len(ranks), self.words), dtype=np.uint64)
        for start in range(0, len(ranks), SET_CHUNK_ROWS):
            self._unrank(ranks[start : start + SET_CHUNK_ROWS], out[start : start + SET_CHUNK_ROWS])
        return out

    def _unrank(self, ranks: IntArray, out: U64) -> None:
        sizes = np.searchsorted(self._starts, ranks, side="right") - 1
        remaining_ranks, rows = ranks - self._starts[sizes], np.arange(len(ranks))
        for k in range(self.most, 0, -1):
            # The largest item with C(item, k) ≤ rest; a smaller set has none yet.
            some = sizes >= k
            place = np.searchsorted(self._ways[k], remaining_ranks, side="right") - 1
            remaining_ranks -= self._ways[k].take(place) * some
            bits = some.astype(np.uint64) << (place & 63).astype(np.uint64)
            out[rows, place >> 6] |= bits


def sums_over_sets(items: int, max_items: int) -> tuple[int, int]:
    """Return Σ|x| and Σ|x|² over the sets x of at most ``max_items`` of some items."""
    ways = accumulate(range(min(items, max_items)), lambda w, size: w * (items - size) // (size + 1), initial=1)
    terms = list(enumerate(ways))
    return sum(size * w for size, w in terms), sum(size * size * w for size, w in terms)


MOST_SETS = 1 << 24
"""Most sets of at most ``max_size`` items."""


@register
@dataclass(frozen=True)
class SetResponse(SetMechanism):
    """Randomised response whose values are all N sets of at most ``max_size`` of h items.

    The set stays with probability 1 − (N−1)t, else it is uniform over the other sets: t = (1−δ)/(e^ε + N − 1), as
    `RandomizedResponse` has it (categorical paper, Theorems 8 and 10). Plans name it ``randomized_response``, too.

    For a function f of a set, φ_f = (f(y) − tΣf)/(1 − Nt), and for "contains these r items" Σf is
    N_r = Σ_j C(h−r, j−r). A rare item's support has about the variance N₁t/(1 − Nt)² per row. For few items, or few
    sets, that is less than the variance of flipped bits, which divide ε by the number of items.

    Larger sets are first cut to ``max_size`` of their items.

    ``items``: number of items h. ``max_size``: most items of a set, None for all; there are at most 2^24 such sets.
    ``epsilon`` and ``delta``: the budget; see `dpframe.accounting.budget`.

    >>> response = SetResponse(items=4, max_size=2, epsilon=3.0)
    >>> tuple(round(share, 3) for share in response.shown), 2.999 < response.loss.epsilon() <= 3.0
    ((0.767, 0.133), True)
    """

    tag: ClassVar[str] = "set_response"
    aliases: ClassVar[tuple[str, ...]] = ("randomized_response",)

    def __post_init__(self) -> None:
        self._check_shape()
        if self.values > MOST_SETS:
            raise ParameterError(
                f"randomized_response is for at most {MOST_SETS:,} sets, and there are more of up to {self.most} of "
                f"{self.items} items; lower max_size, or use bitflip"
            )
        _ = self.table

    @cached_property
    def values(self) -> int:
        """Number of sets that may be released, plus 1 if null is a value."""
        return set_count(self.items, self.most, MOST_SETS) + self.nulls

    @cached_property
    def table(self) -> ResponseTable:
        """The integers that are sampled."""
        return response_table(self.values, self.epsilon, self.delta)

    @cached_property
    def loss(self) -> ResponseLoss:
        """The exact privacy loss |ln(keep/t)|, and δ(ε) by Theorem 8."""
        return response_loss(self.table)

    @cached_property
    def blanket(self) -> float:
        """γ = N·t, rounded down."""
        return round_down(Fraction(self.values * self.table.threshold, 1 << self.table.bits))

    @property
    def other(self) -> float:
        """Probability t of each value except the true one."""
        return self.table.threshold / (1 << self.table.bits)

    @property
    def present(self) -> tuple[float, float]:
        """Probabilities that a set is released for a set, and for null."""
        return 1 - self.nulls * self.other, (self.values - self.nulls) * self.other

    def _above(self, count: int) -> int:
        """Return N_r, the number of sets that contain r = ``count`` fixed items."""
        return set_count(self.items - count, self.most - count)

    @property
    def shown(self) -> tuple[float, float]:
        """(p, q): the probabilities that a released set shows an item if the set contains it, and if not."""
        q = self._above(1) * self.other
        return (q + self.table.signal) / self.present[0], q / self.present[0]

    @property
    def support_variances(self) -> tuple[float, float]:
        """q(1−q)/(1−Nt)² of a rare item, with q = N₁t; p(1−p)/(1−Nt)² of an item in nearly all sets."""
        q, signal = self._above(1) * self.other, self.table.signal
        return q * (1 - q) / signal**2, (q + signal) * (1 - q - signal) / signal**2

    def _surrogate(self, f: FloatArray, total: int) -> Levels:
        """Return (f − tΣf)/(1 − Nt), f being 0 at null."""
        signal = self.table.signal
        return Levels((f - self.other * total) / signal, -self.other * total / signal)

    def holds_all(self, count: int) -> Levels:
        """Return the surrogate of "contains all of ``count`` items"."""
        return self._surrogate(np.arange(count + 1) == np.float64(count), self._above(count))

    def holds_none(self, count: int) -> Levels:
        """Return the surrogate of "is a set that contains none of ``count`` items"."""
        return self._surrogate(np.arange(count + 1) == np.float64(0), set_count(self.items - count, self.most))

    def sizes(self) -> tuple[Levels, Levels]:
        """Return the surrogates of a set's size and of its square."""
        size, (first, second) = np.arange(self.items + 1.0), sums_over_sets(self.items, self.most)
        return self._surrogate(size, first), self._surrogate(size**2, second)

    def size_law(self) -> FloatArray:
        """Return P(released size | size): all sets equally, plus the true set's mass; null is last if it is a value."""
        of_size = [set_count(self.items, size) - set_count(self.items, size - 1) for size in range(self.most + 1)]
        law = np.zeros((self.items + 1 + self.nulls, self.most + 1 + self.nulls))
        law[: self.most + 1] = self.other * np.array(of_size, dtype=np.float64)[:, None]
        law[self.items + 1 :] = self.other
        sizes = np.arange(self.most + 1)
        law[sizes, sizes] += self.table.signal
        law[self.items + 1 :, self.most + 1 :] += self.table.signal
        return law

    @cached_property
    def _ranks(self) -> SetRanks:
        return SetRanks(self.items, self.most)

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        sets = np.asarray(codes, dtype=np.uint64)  # the first plane decides the cut
        absent = self._is_null(sets)
        ranks = self._ranks.rank(cut(sets, self.most, partial(stream.words, 0, first_row)))
        # Null has the last rank, so that one response table serves for sets and null.
        np.copyto(ranks, self.values - 1, where=absent)
        released_ranks = np.empty_like(ranks)
        self.table.sample(ranks, stream.skip(1), first_row, released_ranks)
        is_null = np.asarray(released_ranks == self.values - 1) if self.nulls else absent
        np.copyto(released_ranks, 0, where=is_null)
        out[:] = 0
        out[:, : self._ranks.words] = self._ranks.unrank(released_ranks)
        if self.nulls:
            out[:, self.items // 64] |= is_null.astype(np.uint64) << np.uint64(self.items % 64)

    def _is_null(self, sets: U64) -> npt.NDArray[np.bool_]:
        """Return which codes are null: the bit after the items, which no set has."""
        if not self.nulls:
            return np.zeros(len(sets), dtype=np.bool_)
        return (sets[:, self.items // 64] >> np.uint64(self.items % 64) & np.uint64(1)).astype(np.bool_)

    def _weights_of(self, code: int) -> tuple[list[int], int]:
        keep, other_weight = self.table.keep, self.table.threshold
        weights = [other_weight if y.bit_count() <= self.most else 0 for y in range(1 << self.items)] + [
            other_weight
        ] * self.nulls
        weights[code] = keep
        return weights, 1 << self.table.bits

    def expected_error(self, space: Space | None = None) -> float:
        """Return the largest E[ρ(Y, x)] over sets x of at most ``max_size`` items, and null, far from all sets.

        Σ_y |y Δ x| is |x|(N − N₁) + (h − |x|)N₁.
        """
        holding, every = self._above(1), self.values - self.nulls
        sums = [size * (every - holding) + (self.items - size) * holding for size in (0, self.most)]
        null_distance = self.diameter * self.nulls
        return self.other * max(*(total + null_distance for total in sums), null_distance * every)


@register
@dataclass(frozen=True)
class NullableSetResponse(SetResponse):
    """`SetResponse` with null as one more value.

    >>> NullableSetResponse(items=4, max_size=2, epsilon=3.0).values
    12
    """

    tag: ClassVar[str] = "nullable_set_response"
    metrics: ClassVar[frozenset[str]] = frozenset({"nullable symmetric difference"})
    nulls: ClassVar[int] = 1

    own_metric = "nullable symmetric difference"
