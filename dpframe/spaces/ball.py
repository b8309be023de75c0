"""Balls of vectors whose coordinates are whole numbers: packed in 64-bit words, and measured without rounding.

A coordinate is one of 2^bits codes c and means the odd number u = 2c − U, U = 2^bits − 1, of −U…U: so every
pattern of bits is a vector, and the grid is symmetric around 0. Norms are those of u, in integers: a vector
lies in the ball if its norm is at most the radius. Two neighbouring codes are one step apart, which is 2 in u.

The radius is U, or a fraction of U if noise needs room: noisy vectors of the ball then stay on the grid.
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

COORDINATE_BITS = (2, 4, 8, 16)
"""Bits of a coordinate: whole coordinates fill a word."""

_MEMORY_TYPES = {8: "<u1", 16: "<u2"}
"""Types of fields that are read directly from memory, by their bits."""

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
    ``"l2"`` or ``"linf"``. ``room``: radii from 0 to the grid's ends: a power of two, 1 if vectors fill the grid.
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
        if not isinstance(bits, Integral) or bits not in COORDINATE_BITS:
            raise ParameterError("bits must be 2, 4, 8 or 16")
        object.__setattr__(self, "bits", int(bits))
        if not is_one_of(self.norm, NORMS):
            raise ParameterError(f"norm must be one of {', '.join(NORMS)}")
        if self.radius < 1 or int(self.measure(np.ones((1, self.length), dtype=np.int64))[0]) > self.limit:
            room = f" with room={self.room}" if self.room > 1 else ""
            remedy = "take 16" if self.bits < COORDINATE_BITS[-1] else "raise epsilon, for which less room is enough"
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
        """Number of codes of a vector, in the ball or not: noise may leave the ball."""
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
        """Largest value of `measure` in the ball."""
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
        max_l1_norm = self.radius if self.norm == "l1" else math.isqrt(self.length * self.radius**2)
        return max_l1_norm - (max_l1_norm - self.length) % 2

    @property
    def from_centre(self) -> int:
        """Largest ‖c − c'‖₁ of a vector's code and the centre's, half of ‖u + (1, …, 1)‖₁."""
        return (self.farthest + self.length) // 2

    @property
    def move(self) -> int:
        """Bound on ‖u − u'‖₂ of two vectors: two radii, and √d times as much in ℓ∞; ℓ1 is at least ℓ2."""
        # The root is rounded up: a bound must not be too small.
        return 2 * self.radius if self.norm != "linf" else math.isqrt(4 * self.length * self.radius**2 - 1) + 1

    @property
    def points(self) -> int:
        """Number of vectors in a cube within the ball; the ball itself has no simple formula."""
        side = {"l1": self.radius // self.length, "l2": math.isqrt(self.limit // self.length), "linf": self.radius}
        return int((2 * ((side[self.norm] + 1) // 2)) ** self.length)

    def unpack(self, words: Words) -> Ints:
        """Return the codes of coordinates, shape (n, length), from rows of words."""
        if self.bits in _MEMORY_TYPES:  # memory has these fields: the lowest word comes first
            row_words = np.ascontiguousarray(words[:, : self.words], dtype="<u8")
            return row_words.view(_MEMORY_TYPES[self.bits])[:, : self.length].astype(np.int64)
        fields_per_word = 64 // self.bits
        shifts = np.arange(fields_per_word, dtype=np.uint64) * np.uint64(self.bits)
        fields = words[:, : self.words].astype(np.uint64)[:, :, None] >> shifts & np.uint64(self.last)
        return fields.reshape(len(words), self.words * fields_per_word)[:, : self.length].astype(np.int64)

    def pack(self, fields: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        """Return rows of words from the codes of coordinates."""
        fields_per_word = 64 // self.bits
        if self.bits in _MEMORY_TYPES:
            word_fields = np.zeros((len(fields), self.words * fields_per_word), dtype=_MEMORY_TYPES[self.bits])
            word_fields[:, : self.length] = fields
            return word_fields.view("<u8").astype(np.uint64, copy=False)
        padded_fields = np.zeros((len(fields), self.words * fields_per_word), dtype=np.uint64)
        padded_fields[:, : self.length] = fields
        shifts = np.arange(fields_per_word, dtype=np.uint64) * np.uint64(self.bits)
        shifted_fields = padded_fields.reshape(len(fields), self.words, fields_per_word) << shifts
        return np.asarray(np.bitwise_or.reduce(shifted_fields, axis=2))

    def odd(self, fields: Ints) -> Ints:
        """Return u of the codes of coordinates."""
        return 2 * fields - self.last

    def within(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return rows of words with every vector clipped to the ball; vectors in the ball are unchanged."""
        odd = self.odd(self.unpack(words))
        outside_rows = np.flatnonzero(self.measure(odd) > self.limit)
        if not len(outside_rows):
            return words
        clipped_words = words.copy()
        clipped_words[outside_rows] = self.pack((self.shrunk(odd[outside_rows]) + self.last) // 2)
        return clipped_words

    def shrunk(self, odd: Ints) -> Ints:
        """Return vectors outside the ball, shrunk toward 0 until their integer norm is within the radius."""
        size = self.measure(odd).astype(np.float64)
        scale = self.radius / (np.sqrt(size) if self.norm == "l2" else size)
        # Round to odd numbers toward 0, but not below ±1, which may leave a norm too large.
        half_sizes = np.floor((np.abs(odd) * np.minimum(scale, 1.0)[:, None] - 1) / 2).astype(np.int64)
        clipped = np.where(odd < 0, -1, 1) * (2 * np.maximum(half_sizes, 0) + 1)
        long_rows = np.flatnonzero(self.measure(clipped) > self.limit)
        # Each step shortens the largest coordinate by one grid step, so that the loop ends.
        while len(long_rows):
            largest = np.abs(clipped[long_rows]).argmax(axis=1)
            clipped[long_rows, largest] -= 2 * np.sign(clipped[long_rows, largest])
            long_rows = long_rows[self.measure(clipped[long_rows]) > self.limit]
        return np.asarray(clipped)
