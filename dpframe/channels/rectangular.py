"""Channels whose outputs are not their inputs, such as fewer answers, more answers, or "no answer"; not for columns.

A released column stays in its space, with its type and its labels, so that plans take square matrices only. Answers in
another alphabet are sampled, accounted for and estimated here, all by one table of integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from dpframe.accounting.budget import check_delta
from dpframe.accounting.finite import FiniteLoss
from dpframe.channels.base import IntArray, shared_mass
from dpframe.channels.tabulated import MAX_STORED_CODES, Weights, law_matrix, law_weights, refuse_zeros
from dpframe.errors import ParameterError, check_whole
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import WORD, ChannelTable
from dpframe.spaces.arrays import FloatArray

_CONDITION = 1e10
"""Largest ratio of two singular values of a matrix that allows estimates."""


@dataclass(frozen=True)
class RectangularMatrix:
    """A channel from a few codes to outputs of any number, given by the integers that are sampled.

    ``table``: one law per input: weights of all outputs that sum to 2^64. `RectangularMatrix.of` makes it.
    """

    table: Weights = field(repr=False)

    def __post_init__(self) -> None:
        table = tuple(map(tuple, self.table))
        object.__setattr__(self, "table", table)
        if not 1 <= self.inputs <= MAX_STORED_CODES or not 1 <= self.outputs <= MAX_STORED_CODES:
            raise ParameterError(f"table must have 1 to {MAX_STORED_CODES} laws, of as many outputs; join rare ones")
        for position, law in enumerate(table):
            is_valid = len(law) == self.outputs and all(type(w) is int and w >= 0 for w in law)
            if not is_valid or sum(law) != WORD:
                raise ParameterError(
                    "table must have one whole weight per output, which sum to 2**64; "
                    f"the law at position {position} does not; use RectangularMatrix.of"
                )

    @classmethod
    def of(cls, matrix: npt.ArrayLike, delta: float = 0.0) -> Self:
        """Return the channel of ``matrix[x][y]``, the probability of y given x; its loss is finite at ``delta``."""
        table = law_weights(matrix)
        # Checked here, with a message that names the entry; later a loss would just be infinite.
        if np.isinf(FiniteLoss(table, WORD).epsilon(check_delta(delta))):
            refuse_zeros(table)
        return cls(table)

    @property
    def inputs(self) -> int:
        """Number of codes."""
        return len(self.table)

    @property
    def outputs(self) -> int:
        """Number of answers."""
        return len(self.table[0]) if self.table else 0

    @cached_property
    def loss(self) -> FiniteLoss:
        """The exact privacy loss, all inputs being neighbours."""
        return FiniteLoss(self.table, WORD)

    @property
    def blanket(self) -> float:
        """γ = Σ_y min_x P(y | x), rounded down."""
        return shared_mass(self.table, WORD)

    @cached_property
    def _channel(self) -> ChannelTable:
        return ChannelTable.build(self.table)

    def transition(self) -> FloatArray:
        """Return A[y, x] = P(y | x), shape (outputs, inputs), from the integers that are sampled."""
        return law_matrix(self.table)

    def surrogate(self, f: npt.ArrayLike) -> FloatArray:
        """Return the φ of least norm with E[φ(Y) | x] = f(x), shape (outputs,).

        ``f``: a function's value at every code, shape (inputs,).
        """
        values, matrix = np.asarray(f, dtype=np.float64), self.transition()
        if values.shape != (self.inputs,):
            raise ParameterError(f"f must have one value per code, shape ({self.inputs},)")
        # Nearly dependent inputs would give surrogates of useless variance.
        singular = np.linalg.svd(matrix, compute_uv=False)
        if self.outputs < self.inputs or not singular[-1] * _CONDITION > singular[0]:
            raise ParameterError("answers do not distinguish all inputs, so that f has no surrogate; use more outputs")
        # With more outputs than inputs many φ exist; the pseudo-inverse gives the φ of least norm.
        return np.asarray(values @ np.linalg.pinv(matrix))

    def sample(self, codes: IntArray, stream: ColumnStream, first_row: int = 0) -> npt.NDArray[np.int64]:
        """Sample answers; row ``first_row + i`` of the stream decides the answer to ``codes[i]``, one word a row."""
        codes, first_row = np.asarray(codes), check_whole(first_row, "first_row", 0, 1 << 62)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ParameterError("codes must be a 1-d integer array; encode the column with its space")
        if len(codes) and (int(codes.max()) >= self.inputs or int(codes.min()) < 0):
            raise ParameterError(f"codes must lie in 0…{self.inputs - 1}; encode the column with its space")
        out = np.empty(len(codes), dtype=np.int64)
        if len(codes):
            self._channel.sample(codes, stream, first_row, out)
        return out
