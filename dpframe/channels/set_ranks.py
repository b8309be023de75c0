"""The sets of a bounded size, numbered: by size, and within a size by the combinatorial number system.

A set {i₁ < … < iᵣ} has within its size the rank Σ_k C(i_k, k) (Knuth, TAOCP 7.2.1.3). Every row takes the same steps,
so that time reveals nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from dpframe.noise.keystream import U64
from dpframe.spaces.arrays import IntArray

CHUNK = 1 << 14
"""Rows a pass works on at a time."""

MOST_LISTED = 1 << 20
"""Sets that are kept in a list."""


def set_count(items: int, most: int, stop: int | None = None) -> int:
    """Return the number of sets of at most ``most`` of so many items, Σ C(items, r); counting ends beyond ``stop``.

    >>> set_count(4, 2), set_count(5, 9), set_count(5, -1)
    (11, 32, 0)
    """
    ways, total = 1, 0
    for size in range(min(items, most) + 1):
        total += ways
        if stop is not None and total > stop:
            break
        ways = ways * (items - size) // (size + 1)
    return total


@dataclass(frozen=True)
class SetRanks:
    """A number from 0 for every set of at most ``most`` of some items, which are the bits of rows of words.

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
            table[k, 1:] = np.cumsum(table[k - 1, :-1])
        return table

    @cached_property
    def _starts(self) -> IntArray:
        """The first rank of every size."""
        sizes = (set_count(self.items, size) for size in range(self.most))
        return np.array([0, *sizes], dtype=np.int64)

    def rank(self, sets: U64) -> IntArray:
        """Return the numbers of sets of at most ``most`` items, given as rows of words, shape (n,)."""
        out = np.empty(len(sets), dtype=np.int64)
        for start in range(0, len(sets), CHUNK):
            out[start : start + CHUNK] = self._rank(sets[start : start + CHUNK])
        return out

    def _rank(self, sets: U64) -> IntArray:
        ways, held = self._ways.reshape(-1), np.zeros(len(sets), dtype=np.int64)
        ranks = np.zeros(len(sets), dtype=np.int64)
        for word in range(self.words):
            left, first = sets[:, word].copy(), 64 * word
            for _ in range(min(self.most, 64, self.items - first)):
                lowest = left & (~left + np.uint64(1))
                some = lowest != 0
                place = np.bitwise_count(lowest - np.uint64(1)).astype(np.int64)
                held += some
                ranks += ways.take(held * self.items + first + place, mode="clip") * some
                left ^= lowest
        return np.asarray(ranks + self._starts[held])

    @cached_property
    def count(self) -> int:
        """How many sets there are, or some number above `MOST_LISTED`."""
        return set_count(self.items, self.most, MOST_LISTED)

    @cached_property
    def _every(self) -> U64:
        """The sets of all numbers."""
        return self._computed(np.arange(self.count))

    def unrank(self, ranks: IntArray) -> U64:
        """Return the sets of numbers, shape (n, words)."""
        # Looked up where there are more rows than sets, about: that depends only on the number of rows.
        listed = self.count <= min(MOST_LISTED, 8 * len(ranks))
        return self._every[ranks] if listed else self._computed(ranks)

    def _computed(self, ranks: IntArray) -> U64:
        out = np.zeros((len(ranks), self.words), dtype=np.uint64)
        for start in range(0, len(ranks), CHUNK):
            self._unrank(ranks[start : start + CHUNK], out[start : start + CHUNK])
        return out

    def _unrank(self, ranks: IntArray, out: U64) -> None:
        sizes = np.searchsorted(self._starts, ranks, side="right") - 1
        rest, rows = ranks - self._starts[sizes], np.arange(len(ranks))
        for k in range(self.most, 0, -1):
            # The largest item with C(item, k) ≤ rest; a smaller set has none yet.
            some = sizes >= k
            place = np.searchsorted(self._ways[k], rest, side="right") - 1
            rest -= self._ways[k].take(place) * some
            bits = some.astype(np.uint64) << (place & 63).astype(np.uint64)
            out[rows, place >> 6] |= bits


def sums_over_sets(items: int, most: int) -> tuple[int, int]:
    """Return Σ|x| and Σ|x|² over the sets x of at most ``most`` of some items.

    >>> sums_over_sets(4, 2)
    (16, 28)
    """
    ways = accumulate(range(min(items, most)), lambda w, size: w * (items - size) // (size + 1), initial=1)
    terms = list(enumerate(ways))
    return sum(size * w for size, w in terms), sum(size * size * w for size, w in terms)
