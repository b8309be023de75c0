"""Randomised response on tuples: one γ-diagonal channel for several columns at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpframe.channels.base import IntArray, register, response_table
from dpframe.channels.response import ResponseChannel
from dpframe.errors import ParameterError, check_whole
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import RESPONSE_CHUNK_ROWS, ResponseTable
from dpframe.spaces import Space

LARGEST_PRODUCT = 1 << 24
"""Most tuples of a product."""


@register
@dataclass(frozen=True)
class GammaDiagonal(ResponseChannel):
    """Randomised response on the tuples of ∏ Z_k, observed at some of its coordinates.

    The tuple stays, or it becomes any other tuple with equal probability p = (1−δ)/(e^ε + K − 1), K = ∏ k, so that
    all coordinates share one ε. The noise z is a random number below K, split into mixed-radix digits and added
    coordinate by coordinate in Z_k, without carries: each coordinate can then have its own mask (sampling paper,
    Lemma III.1).

    Observed at the coordinates S only, the channel is γ-diagonal again: each of the K_S tuples except the true one has
    the probability of K/K_S full tuples, and the difference 1 − K·p of the two weights does not depend on S.

    ``sizes``: number of codes of each coordinate; their product K is at most 2^24. ``epsilon`` and ``delta``: the
    budget of the whole tuple; see `dpframe.accounting.budget`. ``kept``: positions of the observed coordinates,
    ascending; all by default. Codes number their tuples, in mixed radix with the last coordinate running fastest.
    """

    sizes: tuple[int, ...]
    epsilon: float
    delta: float = 0.0
    kept: tuple[int, ...] = ()
    size: int = field(init=False, repr=False)

    tag: ClassVar[str] = "gamma_diagonal"
    metrics: ClassVar[frozenset[str]] = frozenset({"product"})

    def __post_init__(self) -> None:
        for name in ("sizes", "kept"):
            if not isinstance(getattr(self, name), list | tuple):
                raise ParameterError(f"{name} must be a list of whole numbers")
        sizes = tuple(check_whole(size, "sizes", 1, LARGEST_PRODUCT) for size in self.sizes)
        # Noise is one 32-bit number below K, and the response table is of K codes.
        if not sizes or math.prod(sizes) > LARGEST_PRODUCT:
            raise ParameterError(f"sizes must be one or more, with a product of at most {LARGEST_PRODUCT}")
        kept = tuple(check_whole(i, "kept", 0, len(sizes) - 1) for i in self.kept) or tuple(range(len(sizes)))
        if list(kept) != sorted(set(kept)):
            raise ParameterError("kept must be positions of coordinates in ascending order")
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "kept", kept)
        object.__setattr__(self, "size", math.prod(self.seen_sizes))
        self._check_budget(self.epsilon, self.delta)
        _ = self.table

    @classmethod
    def shape_of(cls, space: Space) -> tuple[Any, ...]:
        """Return the sizes of a product's spaces."""
        return (space.sizes,)

    @property
    def seen_sizes(self) -> tuple[int, ...]:
        """Sizes of the observed coordinates."""
        return tuple(self.sizes[i] for i in self.kept)

    @cached_property
    def source(self) -> ResponseTable:
        """The integers that are sampled, for whole tuples."""
        return response_table(math.prod(self.sizes), self.epsilon, self.delta)

    @cached_property
    def table(self) -> ResponseTable:
        """The exact weights at the observed coordinates: ``source``'s threshold times K/K_S."""
        tuples_behind = math.prod(self.sizes) // self.size
        return ResponseTable(self.size, self.source.threshold * tuples_behind, self.source.bits)

    def marginal(self, kept: Sequence[int]) -> GammaDiagonal:
        """Return the channel observed at some of the coordinates, given by their positions."""
        if not len(kept):
            raise ParameterError("kept must name at least one coordinate")
        return replace(self, kept=tuple(kept))

    def sample_columns(self, columns: Sequence[IntArray], stream: ColumnStream, first_row: int = 0) -> list[IntArray]:
        """Randomise the coordinates of rows together, one word a row, however many coordinates there are.

        ``columns``: 1-d integer arrays of one length, the codes of every observed coordinate; so are the results.
        """
        columns = [np.asarray(column) for column in columns]
        if len(columns) != len(self.kept) or len({column.shape for column in columns}) != 1:
            raise ParameterError(f"columns must be {len(self.kept)} arrays of one length, one per coordinate")
        first_row = check_whole(first_row, "first_row", 0, 1 << 62)
        for position, (column, size) in enumerate(zip(columns, self.seen_sizes, strict=True)):
            if column.ndim != 1 or column.dtype.kind not in "iu":
                raise ParameterError("columns must be 1-d integer arrays; encode each with its space")
            if len(column) and (int(column.max()) >= size or int(column.min()) < 0):
                raise ParameterError(f"codes of coordinate {position} must lie in 0…{size - 1}")
        out = [np.empty(len(column), dtype=column.dtype) for column in columns]
        self._add_noise(columns, stream, first_row, out)
        return out

    def _add_noise(
        self, columns: Sequence[IntArray], stream: ColumnStream, first_row: int, out: Sequence[IntArray]
    ) -> None:
        """Write (x + digit of z) mod k for every observed coordinate; z is the randomised response to 0."""
        places, rows = {at: i for i, at in enumerate(self.kept)}, len(columns[0])
        zeros = np.zeros(min(RESPONSE_CHUNK_ROWS, rows), dtype=np.uint32)
        buffers = [np.empty_like(zeros) for _ in range(4)]
        for start in range(0, rows, RESPONSE_CHUNK_ROWS):
            part = slice(start, min(start + RESPONSE_CHUNK_ROWS, rows))
            remainder, quotient, digit, scratch = (buffer[: part.stop - start] for buffer in buffers)
            # Every coordinate's digit comes from this one number, also of coordinates that are not observed.
            self.source.sample(zeros[: len(remainder)], stream, first_row + start, remainder)
            for i in range(len(self.sizes) - 1, -1, -1):
                size = np.uint32(self.sizes[i])
                np.floor_divide(remainder, size, out=quotient)
                np.multiply(quotient, size, out=digit)
                np.subtract(remainder, digit, out=digit)
                if i in places:
                    np.copyto(scratch, columns[places[i]][part], casting="unsafe")
                    np.add(digit, scratch, out=digit)
                    # Of s and s − k the wrong one is the larger, or wraps to a huge number.
                    np.subtract(digit, size, out=scratch)
                    np.copyto(out[places[i]][part], np.minimum(digit, scratch, out=digit), casting="unsafe")
                remainder, quotient = quotient, remainder

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        parts = [np.asarray(part) for part in np.unravel_index(codes.astype(np.int64), self.seen_sizes)]
        noisy = [np.empty(len(codes), dtype=np.int64) for _ in parts]
        self._add_noise(parts, stream, first_row, noisy)
        np.copyto(out, np.ravel_multi_index(noisy, self.seen_sizes), casting="unsafe")
