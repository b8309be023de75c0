"""A draw from a box around the value or from everywhere: the integers of the staircase mechanism on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpframe.noise.keystream import U64, ColumnStream
from dpframe.noise.tables import CHUNK, WORD, IntArray


@dataclass(frozen=True)
class BoxTable:
    """The values 0…span, and null as one more where ``nullable``: one 64-bit word a row.

    The places −left … span + width − 1 − left are clipped to 0…span. With weight ``top`` / 2^64 each of the ``width``
    places about a value is drawn, from x − left on, and with ``low`` / 2^64 each place at all; null has ``width``
    places of its own. What is left of 2^64 goes to the last place, for every value.

    >>> table = BoxTable(span=4, width=2, low=2**60, nullable=False)
    >>> [round(weight / 2**60) for weight in table.weights(0)], table.left
    ([12, 1, 1, 1, 1], 1)
    """

    span: int
    width: int
    low: int
    nullable: bool

    @property
    def left(self) -> int:
        """Number of places of a value's box below it."""
        return self.width // 2

    @property
    def places(self) -> int:
        """Number of places drawn from independently of the value."""
        return self.span + self.width * (2 if self.nullable else 1)

    @property
    def top(self) -> int:
        """Weight of a place of the box, above its ``low``."""
        return (WORD - self.places * self.low) // self.width

    @property
    def rest(self) -> int:
        """Weight of the last place, above its ``low``."""
        return WORD - self.places * self.low - self.width * self.top

    @property
    def signal(self) -> float:
        """Probability that the box is drawn from."""
        return self.width * self.top / WORD

    @property
    def background(self) -> list[int]:
        """The weights over 2^64 of all outputs drawn independently of the value."""
        law = [self.low] * (self.span + 1)
        law[0] = (self.left + 1) * self.low
        law[-1] = (self.width - self.left) * self.low
        law += [self.width * self.low] * self.nullable
        law[-1] += self.rest
        return law

    def weights(self, code: int) -> list[int]:
        """Return the weights over 2^64 of all outputs of one input."""
        law = self.background
        if code > self.span:
            law[-1] += self.width * self.top
            return law
        first = code - self.left
        for place in range(first, first + self.width):
            law[min(max(place, 0), self.span)] += self.top
        return law

    def sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        """Randomise codes into ``out``."""
        reader = stream.reader(0, first_row)
        n = min(CHUNK, len(codes))
        words, elsewhere = np.empty(n, np.uint64), np.empty(n, np.uint64)
        inside = np.uint64(self.width * self.top)
        for start in range(0, len(codes), CHUNK):
            part = codes[start : start + CHUNK]
            w, e = words[: len(part)], elsewhere[: len(part)]
            reader.fill(w.view(np.uint8))
            # A word below ``inside`` wraps to a huge one: its place elsewhere is the last, and is not taken.
            np.subtract(w, inside, out=e)
            near = w < inside
            np.floor_divide(e, np.uint64(self.low), out=e)
            np.minimum(e, np.uint64(self.places - 1), out=e)
            np.floor_divide(w, np.uint64(self.top), out=w)
            drawn = self._clipped(part, w, e, near)
            np.copyto(out[start : start + CHUNK], drawn, casting="unsafe")

    def _clipped(self, codes: IntArray, box: U64, elsewhere: U64, near: npt.NDArray[np.bool_]) -> IntArray:
        """Return the outputs: places in the box where near, else anywhere; both begin ``left`` below 0."""
        x = codes.astype(np.int64)
        place = np.where(near, x + box.view(np.int64), elsewhere.view(np.int64))
        drawn: IntArray = np.clip(place - self.left, 0, self.span)
        if self.nullable:
            null = np.where(near, x > self.span, place >= self.span + self.width)
            drawn[null] = self.span + 1
        return drawn
