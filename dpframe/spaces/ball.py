"""Balls of vectors whose coordinates are whole numbers: packed in 64-bit words, and measured without rounding.

A coordinate is one of 2^bits codes c and means the odd number u = 2c − U, U = 2^bits − 1, of −U…U: so every
pattern of bits is a vector, and the grid is the same on both sides of 0. Norms are those of u, in integers: a vector
lies in the ball where its norm is at most its radius. Two neighbouring codes are one step apart, which is 2 in u.

The radius is U, and a part of it where noise needs room: what is added to vectors of the ball then stays on the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.errors import ParameterError, check_whole, is_one_of

BITS = (2, 4, 8, 16)
"""Bits of a coordinate: whole coordinates fill a word."""

_IN_MEMORY = {8: "<u1", 16: "<u2"}
"""Types of the fields that are read as they lie, by their bits."""

NORMS = ("l1", "l2", "linf")

LONGEST = 4_096
"""Most coordinates."""

LARGEST_ROOM = 1 << 12
"""Most radii from 0 to an end of the grid."""

Words = npt.NDArray[np.unsignedinteger[Any]]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ball:
    """The vectors of odd whole numbers whose norm is at most (2^bits − 1)/room, rounded down.

    ``length``: number of coordinates, up to 4,096. ``bits``: bits of a coordinate: 2, 4, 8 or 16. ``norm``: ``"l1"``,
    ``"l2"`` or ``"linf"``. ``room``: radii from 0 to the grid's ends: a power of two, 1 where vectors fill the grid.
    """

    length: int
    bits: int
    norm: str
    room: int = 1

    def __post_init__(self) -> None:
        if (
            isinstance(self.room, bool)
            or not isinstance(self.room, int)
            or not (1 <= self.room <= LARGEST_ROOM and self.room.bit_count() == 1)
        ):
            raise ParameterError(f"room must be a power of two up to {LARGEST_ROOM}; leave it out")
        object.__setattr__(self, "length", check_whole(self.length, "length", 1, LONGEST, of="coordinates"))
        bits: Any = self.bits
        if not isinstance(bits, Integral) or bits not in BITS:
            raise ParameterError("bits must be 2, 4, 8 or 16")
        object.__setattr__(self, "bits", int(bits))
        if not is_one_of(self.norm, NORMS):
            raise ParameterError(f"norm must be one of {', '.join(NORMS)}")
        if self.radius < 1 or int(self.measure(np.ones((1, self.length), dtype=np.int64))[0]) > self.limit:
            room = f" with room={self.room}" if self.room > 1 else ""
            remedy = "take 16" if self.bits < BITS[-1] else "raise epsilon, for which less room is enough"
            raise ParameterError(
                f"bits={self.bits} are too few for {self.length} coordinates in {self.norm}{room}; {remedy}"
            )

    @property
    def last(self) -> int:
        """U: the largest code of a coordinate, and the largest u."""
        return (1 << self.bits) - 1

    @property
    def radius(self) -> int:
        """The largest norm of u, odd."""
        return self.last // self.room

    @property
    def unit(self) -> int:
        """The radius in sums of u that depend on the room only by rounding: about U."""
        return self.room * self.radius

    @property
    def size(self) -> int:
        """Number of codes of a vector, in the ball or not: noise heeds no ball."""
        return 1 << self.bits * self.length

    @property
    def words(self) -> int:
        """64-bit words of a vector's code."""
        return -(-self.bits * self.length // 64)

    @property
    def centre(self) -> int:
        """The code of (−1, …, −1), next to the origin."""
        middle, code = self.last // 2, 0
        for i in range(self.length):
            code |= middle << self.bits * i
        return code

    @property
    def limit(self) -> int:
        """Most that `measure` may be."""
        return self.radius**2 if self.norm == "l2" else self.radius

    def measure(self, odd: Ints) -> Ints:
        """Return ‖u‖₁, ‖u‖₂² or ‖u‖∞ of rows of whole numbers, without rounding."""
        if self.norm == "linf":
            return np.asarray(np.abs(odd).max(axis=1))
        return np.asarray((odd * odd if self.norm == "l2" else np.abs(odd)).sum(axis=1))

    @cached_property
    def farthest(self) -> int:
        """Largest ‖c − c'‖₁ of two vectors' codes: half of twice the largest ‖u‖₁, at most √d radii in ℓ2.

        ‖u‖₁ is even or odd as the number of coordinates is.
        """
        if self.norm == "linf":
            return self.length * self.radius
        most = self.radius if self.norm == "l1" else math.isqrt(self.length * self.radius**2)
        return most - (most - self.length) % 2

    @property
    def from_centre(self) -> int:
        """Largest ‖c − c'‖₁ of a vector's code and the centre's, half of ‖u + (1, …, 1)‖₁."""
        return (self.farthest + self.length) // 2

    @property
    def move(self) -> int:
        """Bound on ‖u − u'‖₂ of two vectors: two radii, and √d times as much in ℓ∞; ℓ1 is at least ℓ2."""
        return 2 * self.radius if self.norm != "linf" else math.isqrt(4 * self.length * self.radius**2 - 1) + 1

    @property
    def points(self) -> int:
        """Number of vectors in a cube within the ball: of the ball's own there is no formula."""
        side = {"l1": self.radius // self.length, "l2": math.isqrt(self.limit // self.length), "linf": self.radius}
        return int((2 * ((side[self.norm] + 1) // 2)) ** self.length)

    def unpack(self, words: Words) -> Ints:
        """Return the codes of coordinates, shape (n, length), from rows of words."""
        if self.bits in _IN_MEMORY:  # fields that memory has: words lie lowest first
            whole = np.ascontiguousarray(words[:, : self.words], dtype="<u8")
            return whole.view(_IN_MEMORY[self.bits])[:, : self.length].astype(np.int64)
        each = 64 // self.bits
        shifts = np.arange(each, dtype=np.uint64) * np.uint64(self.bits)
        fields = words[:, : self.words].astype(np.uint64)[:, :, None] >> shifts & np.uint64(self.last)
        return fields.reshape(len(words), self.words * each)[:, : self.length].astype(np.int64)

    def pack(self, fields: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        """Return rows of words from the codes of coordinates."""
        each = 64 // self.bits
        if self.bits in _IN_MEMORY:
            narrow = np.zeros((len(fields), self.words * each), dtype=_IN_MEMORY[self.bits])
            narrow[:, : self.length] = fields
            return narrow.view("<u8").astype(np.uint64, copy=False)
        wide = np.zeros((len(fields), self.words * each), dtype=np.uint64)
        wide[:, : self.length] = fields
        shifts = np.arange(each, dtype=np.uint64) * np.uint64(self.bits)
        shifted = wide.reshape(len(fields), self.words, each) << shifts
        return np.asarray(np.bitwise_or.reduce(shifted, axis=2))

    def odd(self, fields: Ints) -> Ints:
        """Return u of the codes of coordinates."""
        return 2 * fields - self.last

    def within(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return rows of words in which every vector lies in the ball: those that did are as they were."""
        odd = self.odd(self.unpack(words))
        outside = np.flatnonzero(self.measure(odd) > self.limit)
        if not len(outside):
            return words
        kept = words.copy()
        kept[outside] = self.pack((self.shrunk(odd[outside]) + self.last) // 2)
        return kept

    def shrunk(self, odd: Ints) -> Ints:
        """Return vectors outside the ball drawn to 0 until their integer norm is within it."""
        size = self.measure(odd).astype(np.float64)
        scale = self.radius / (np.sqrt(size) if self.norm == "l2" else size)
        # Odd numbers toward 0, and ±1 where none is left: a norm may still be too large by those.
        shorter = np.floor((np.abs(odd) * np.minimum(scale, 1.0)[:, None] - 1) / 2).astype(np.int64)
        found = np.where(odd < 0, -1, 1) * (2 * np.maximum(shorter, 0) + 1)
        left = np.flatnonzero(self.measure(found) > self.limit)
        while len(left):
            largest = np.abs(found[left]).argmax(axis=1)
            found[left, largest] -= 2 * np.sign(found[left, largest])
            left = left[self.measure(found[left]) > self.limit]
        return np.asarray(found)
