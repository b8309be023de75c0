"""Channels on finite spaces without order: randomised response, and the base of all γ-diagonal channels."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpframe.accounting.budget import round_down
from dpframe.accounting.loss import ResponseLoss
from dpframe.channels.base import (
    CodeFunction,
    IntArray,
    Mechanism,
    beside_edges,
    register,
    response_loss,
    response_table,
)
from dpframe.errors import check_whole
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import ResponseTable
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray


class ResponseChannel(Mechanism):
    """A γ-diagonal channel: the code itself has one weight, every other code another.

    All analysis follows from the table of these two weights; subclasses define the sampler.
    """

    adds_in_group: ClassVar[bool] = True

    @property
    @abstractmethod
    def table(self) -> ResponseTable:
        """The integers that are sampled."""

    @cached_property
    def loss(self) -> ResponseLoss:
        """The exact privacy loss |ln(keep/t)|, and δ(ε) by Theorem 8."""
        return response_loss(self.table)

    @cached_property
    def blanket(self) -> float:
        """γ = size·p, rounded down."""
        return round_down(Fraction(self.size * self.table.threshold, 1 << self.table.bits)) if self.size > 1 else 1.0

    @property
    def other(self) -> float:
        """Probability p of each code except the true one."""
        return self.table.threshold / (1 << self.table.bits) if self.size > 1 else 0.0

    def law(self, code: int) -> FloatArray:
        """Return P(y | code), shape (size,)."""
        column = np.full(self.size, self.other)
        column[code] = self.table.keep / (1 << self.table.bits) if self.size > 1 else 1.0
        return column

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return keep for the code itself and the threshold for all others, over 2^bits."""
        if self.size == 1:
            return [1], 1
        table = self.table
        return [table.keep if y == code else table.threshold for y in range(self.size)], 1 << table.bits

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return (f(y) − p·Σf)/(1 − size·p)."""
        total = float(np.sum(f(np.arange(self.size))))
        return np.asarray((f(codes) - self.other * total) / self.table.signal)

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return (keep − p)·counts + p·Σcounts along axis 0; the matrix is symmetric."""
        return np.asarray(self.table.signal * counts + self.other * counts.sum(axis=0, keepdims=True))

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return (counts − p·Σcounts)/(1 − size·p), or with squared entries of the inverse."""
        off = -self.other / self.table.signal
        on = off + 1 / self.table.signal
        if squared:
            on, off = on**2, off**2
        # In place: the pages of a further array of all cells would take longer than the sum.
        inverted = np.asarray((on - off) * counts)
        inverted += off * counts.sum(axis=0, keepdims=True)
        return inverted

    def changes(self, edges: IntArray) -> IntArray:
        """Return the codes next to the edges and the ends."""
        return beside_edges(edges, self.size)

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return p·codes in the stretch + (1 − size·p)·overlap/codes in the cell, shape (stretches, cells)."""
        last = int(edges[-1])
        low = np.append(edges[:-1], np.arange(last, self.size))
        width = np.append(edges[1:], np.arange(last, self.size) + 1) - low
        begin, end = np.asarray(starts)[:, None], np.append(starts[1:], self.size)[:, None]
        # Codes of both the stretch and the cell: only there the true code can be released unchanged.
        overlap = np.maximum(np.minimum(low + width, end) - np.maximum(low, begin), 0)
        return np.asarray(self.other * (end - begin) + self.table.signal * overlap / width)

    def expected_error(self, space: Space | None = None) -> float:
        """Return the probability that the code changes, m·p; on a line p times the farthest sum of distances.

        From an end of 0…N the distances add up to N(N+1)/2, from null, N away from all values, to N(N+1). A special
        value is as far from other special values.
        """
        m = self.size - 1
        span = m if space is None else space.values - 1
        farthest = {"line": m * (m + 1) / 2, "nullable line": (m - 1) * m, "special line": span * m}
        return self.other * farthest.get("discrete" if space is None else space.metric, m)


@register
@dataclass(frozen=True)
class RandomizedResponse(ResponseChannel):
    """Randomised response: keep with probability 1−pm, else uniform over the other m = size−1 codes.

    p = (1−δ)/(e^ε + m), optimal among all (ε, δ)-private channels on the discrete metric
    (categorical paper, Theorems 8 and 10).

    ``size``: number of codes, 1 to 2^24. ``epsilon`` and ``delta``: the budget; see `dpframe.accounting.budget`.
    """

    size: int
    epsilon: float
    delta: float = 0.0

    tag: ClassVar[str] = "randomized_response"
    metrics: ClassVar[frozenset[str]] = frozenset({"discrete", "line", "nullable line", "special line"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_whole(self.size, "size", 1, 1 << 24))
        self._check_budget(self.epsilon, self.delta)
        _ = self.table

    @cached_property
    def table(self) -> ResponseTable:
        """The integers that are sampled."""
        return response_table(self.size, self.epsilon, self.delta)

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        self.table.sample(codes, stream, first_row, out)
