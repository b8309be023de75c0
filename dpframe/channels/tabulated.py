"""Finite channels given by their weights: the exponential mechanism, and any matrix at all.

The weights are the parameter: a receiver reads them exactly and need not calibrate again. Law, loss, blanket, errors
and inverse are computed from them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import permutations
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import numpy.typing as npt

from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import check_delta, check_epsilon, round_up
from dpframe.accounting.finite import FiniteLoss
from dpframe.channels.base import WRITTEN_METRICS, Channel, IntArray, Mechanism, distances, register
from dpframe.errors import ParameterError
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import WORD, ChannelTable, integer_weights
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import forwarded

Weights = tuple[tuple[int, ...], ...]

MAX_STORED_CODES = 256
"""Most codes of a channel whose table is stored."""

MOST_CONDITION = 1e10
"""Largest condition number of an inverted matrix: estimates keep five digits or more."""

_ZERO_EPSILON = 1e-60
"""ε in place of 0 if δ > 0: e^ε exceeds 1 by more than its rounding."""

_MAX_LOG_RATIO = 42.0
"""Largest log-ratio of two weights of one input that 64 bits resolve."""


class WrittenLaws(Channel):
    """A channel on a few codes whose laws are stored as weights over 2^64, with all properties of the weights."""

    @property
    @abstractmethod
    def laws(self) -> Weights:
        """One law per input: the weights of all outputs, which sum to 2^64."""

    @cached_property
    def loss(self) -> FiniteLoss:
        """The exact privacy loss, all inputs being neighbours."""
        return FiniteLoss(self.laws, WORD)

    @cached_property
    def _channel(self) -> ChannelTable:
        return ChannelTable.build(self.laws)

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        self._channel.sample(codes, stream, first_row, out)

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return the weights over 2^64, from the alias table."""
        return self._channel.weights(code), WORD


@dataclass(frozen=True)
class Tabulated(WrittenLaws, Mechanism):
    """A channel on a few codes, given by its sampled integers.

    ``table``: one law per input: positive weights of all outputs that sum to 2^64 (of a `Matrix` some may be 0). In
    JSON a law is one string of hexadecimal weights, equally wide. ``epsilon`` and ``delta``: the budget, which the loss
    of the weights must meet.
    """

    table: Weights = field(repr=False)
    epsilon: float
    delta: float = 0.0
    size: int = field(init=False)

    min_weight: ClassVar[int] = 1
    """Smallest weight of an output."""

    def __post_init__(self) -> None:
        kind = "positive integer" if self.min_weight else "whole"
        if not isinstance(self.table, list | tuple) or not 1 <= len(self.table) <= MAX_STORED_CODES:
            raise ParameterError(f"table must be a list of 1 to {MAX_STORED_CODES} laws, one per input")
        rows = tuple(_read_law(law, len(self.table)) for law in self.table)
        for position, law in enumerate(rows):
            is_valid = len(law) == len(rows) and all(type(w) is int and w >= self.min_weight for w in law)
            if not is_valid or sum(law) != WORD:
                raise ParameterError(
                    f"table must have one {kind} weight per output, which sum to 2**64; "
                    f"the law at position {position} does not"
                )
        object.__setattr__(self, "table", rows)
        object.__setattr__(self, "size", len(self.table))
        self._check_budget(self.epsilon, self.delta)
        # A stored table is input: its loss is computed again, not believed.
        if self.loss.delta(self.epsilon) > self.delta:
            raise ParameterError(
                f"table loses more than epsilon={self.epsilon:g}, delta={self.delta:g}: its loss is "
                f"{self.loss.epsilon(self.delta):.9g} at that delta; calibrate it anew"
            )
        if not condition(self._matrix) < MOST_CONDITION:
            raise ParameterError("table is singular, or nearly, so that estimates are impossible; use a larger epsilon")

    @property
    def laws(self) -> Weights:
        """The table."""
        return self.table

    @cached_property
    def _matrix(self) -> FloatArray:
        return law_matrix(self.table)

    def to_json(self) -> dict[str, Any]:
        """Return the mechanism as a JSON object, with a string of hexadecimal weights per input."""
        # JSON numbers of 64 bits lose digits in many readers; equal widths need no separator.
        digits = max(16, len(f"{max(map(max, self.table)):x}"))
        return super().to_json() | {"table": ["".join(f"{w:0{digits}x}" for w in law) for law in self.table]}


def law_matrix(table: Weights) -> FloatArray:
    """Return A[y, x] = P(y | x) of laws."""
    return np.array([[w / WORD for w in law] for law in table]).T


def condition(matrix: FloatArray) -> float:
    """Return the condition number in the norm of columns, whose absolute sums are 1 in a channel's matrix."""
    try:
        return float(np.abs(np.linalg.inv(matrix)).sum(axis=0).max())
    except np.linalg.LinAlgError:
        return math.inf


def _read_law(law: Any, size: int) -> tuple[int, ...]:
    if isinstance(law, str):
        width = len(law) // size
        digits = law.isascii() and law.isalnum() and width * size == len(law)
        try:
            return tuple(int(law[i : i + width], 16) for i in range(0, len(law), width)) if digits else ()
        except ValueError:
            return ()
    return tuple(law) if isinstance(law, list | tuple) else ()


@dataclass(frozen=True)
class MetricChannel(Tabulated):
    """A channel for a metric on its codes."""

    metric: str = "discrete"

    metrics: ClassVar[frozenset[str]] = WRITTEN_METRICS

    def __post_init__(self) -> None:
        if not isinstance(self.metric, str) or self.metric not in self.metrics:
            raise ParameterError(f"metric must be one of {', '.join(sorted(self.metrics))}")
        super().__post_init__()

    own_metric: ClassVar[str] = forwarded("metric")


def check_size(space: Space, max_codes: int, tag: str) -> None:
    """Raise `ParameterError` if a space has more than ``max_codes`` codes."""
    if space.size > max_codes:
        raise ParameterError(
            f"mechanism {tag} is for at most {max_codes} codes, and space {space.tag} has {space.size}; "
            f"use {space.mechanism} or fewer values"
        )


@register
@dataclass(frozen=True)
class Exponential(MetricChannel):
    """The exponential mechanism, P(y|x) ∝ e^(−kρ(x, y)), with the largest k whose exact loss meets (ε, δ).

    McSherry and Talwar's bound 2kΔρ on the loss is loose; the loss is computed from the channel itself
    (categorical paper, Definition 4, Theorems 2 to 4). See `Tabulated` for the parameters, and
    `Exponential.calibrate` to make one.
    """

    tag: ClassVar[str] = "exponential"

    @classmethod
    def calibrate(cls, space: Space, epsilon: float, delta: float) -> Exponential:
        """Make the mechanism for a space's distances."""
        check_size(space, MAX_STORED_CODES, cls.tag)
        epsilon, delta = check_epsilon(epsilon), check_delta(delta)
        return cls(exponential_weights(space.metric, space.size, epsilon, delta), epsilon, delta, space.metric)


@lru_cache(maxsize=256)
def exponential_weights(metric: str, size: int, epsilon: float, delta: float) -> Weights:
    """Return the weights for the largest k, computed in floats and then lowered until the integers' loss fits."""
    if size == 1:
        return ((WORD,),)
    rate = _largest_rate(metric, size, epsilon, delta)
    rho = distances(metric, size).astype(int).tolist()
    for attempt in range(40):
        with localcontext(Context(prec=60)):
            powers = [int((-Decimal(rate) * d).exp() * (1 << 180)) for d in range(max(map(max, rho)) + 1)]
        table = tuple(tuple(integer_weights([powers[d] for d in row])) for row in rho)
        if FiniteLoss(table, WORD).delta(epsilon) <= delta:
            return table
        # Floats and integers differ by about 2^-46; each attempt doubles the reduction.
        rate *= 1 - 2.0 ** (attempt - 46)
    raise ParameterError(f"epsilon={epsilon:g} is too small for {size} codes; give it a larger share")


def _largest_rate(metric: str, size: int, epsilon: float, delta: float) -> float:
    """Return nearly the largest k that meets (ε, δ), in floats."""
    rho = distances(metric, size)
    high = _MAX_LOG_RATIO / float(rho.max())

    def laws(rate: float) -> FloatArray:
        powers = np.exp(-rate * rho)
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def excess(matrix: FloatArray) -> float:
        if delta == 0:
            return float(np.log(matrix.max(axis=0) / matrix.min(axis=0)).max()) - epsilon
        odds = math.exp(min(epsilon, 700.0))
        return max(float(np.maximum(row - odds * matrix, 0.0).sum(axis=1).max()) for row in matrix) - delta

    if excess(laws(high)) <= 0:
        return high

    def fits(rate: float) -> bool:
        matrix = laws(rate)
        # A few inputs first: they are mostly the worst, and enough to reject a rate.
        return excess(matrix[[0, size // 2, size - 1]]) <= 0 and excess(matrix) <= 0

    return bisected(fits, 0.0, high, 1e-13)


@register
@dataclass(frozen=True)
class Matrix(Tabulated):
    """Any channel, given by its matrix (post-randomisation, PRAM); its loss is computed.

    See `Tabulated` for the parameters, and `Matrix.of` to make one from probabilities. Outputs that one input never has
    and another has must have a total probability of at most δ. Such a matrix is accounted for by its (ε, δ), without
    credit for shuffling.

    Examples
    --------
    >>> m = Matrix.of([[0.75, 0.25], [0.25, 0.75]])
    >>> round(m.epsilon, 6)
    1.098612
    >>> ends = Matrix.of([[0.75, 0.25, 0], [0.25, 0.5, 0.25], [0, 0.25, 0.75]], delta=0.75)
    >>> round(ends.epsilon, 6), ends.loss.epsilon()
    (0.0, inf)
    """

    min_weight: ClassVar[int] = 0
    fixed: ClassVar[bool] = True
    tag: ClassVar[str] = "matrix"
    metrics: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def calibrate(cls, space: Space, epsilon: float, delta: float) -> Matrix:
        """Refused: a matrix is fixed, not calibrated."""
        raise ParameterError("mechanism matrix is not calibrated; give a ready one, Matrix.of(rows)")

    @classmethod
    def of(cls, matrix: npt.ArrayLike, delta: float = 0.0) -> Self:
        """Return the mechanism of a stochastic matrix; ε is its certified loss at ``delta``.

        Parameters
        ----------
        matrix
            ``matrix[x][y]`` is the probability that code x is released as y, shape (size, size): rows are
            inputs and sum to 1. A released column stays in its space, so that there are as many outputs as inputs;
            `dpframe.channels.RectangularMatrix` is for others.
        delta
            The δ at which the loss is stated.

        Raises
        ------
        ParameterError
            Unless rows are probabilities that sum to 1, δ is at least the mass of outputs that another input never has
            (a zero next to a non-zero is an infinite loss at δ = 0), and the matrix can be inverted.
        """
        rows = _probabilities(matrix)
        if rows.shape[0] != rows.shape[1] or len(rows) > MAX_STORED_CODES:
            raise ParameterError(
                f"matrix must be square, a row per input and a column per output, of at most {MAX_STORED_CODES} "
                "codes; use dpframe.channels.RectangularMatrix for other shapes"
            )
        table = law_weights(rows)
        if not condition(rows.T) < MOST_CONDITION:
            raise ParameterError("matrix is singular, or nearly, so that estimates are impossible; give another one")
        loss = FiniteLoss(table, WORD).epsilon(check_delta(delta))
        if math.isinf(loss):
            refuse_zeros(table)
        # One code loses nothing, and several codes may lose no more than δ: then ε is the smallest valid float.
        return cls(table, loss or (_ZERO_EPSILON if delta else 5e-324), delta)


def _probabilities(matrix: npt.ArrayLike) -> FloatArray:
    try:
        rows = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        rows = np.empty(0)
    if rows.ndim != 2 or not rows.size:
        raise ParameterError("matrix must be an array of probabilities, a row for each input")
    return rows


def law_weights(matrix: npt.ArrayLike) -> Weights:
    """Return the weights of a stochastic matrix, a law for each row."""
    rows = _probabilities(matrix)
    for position, row in enumerate(rows):
        if not np.isfinite(row).all() or (row < 0).any():
            raise ParameterError(f"matrix must hold probabilities; the row at position {position} does not")
        # Printed probabilities miss 1 by their rounding.
        if abs(math.fsum(row) - 1) > 1e-9:
            raise ParameterError(
                f"matrix must have rows that sum to 1 (rows are inputs); the one at position {position} does not"
            )
    return tuple(_with_zeros(row) for row in rows.tolist())


def _with_zeros(row: list[float]) -> tuple[int, ...]:
    """Return the weights of a law in which outputs of probability 0 have weight 0."""
    # 2^1080 makes every float, subnormal ones too, a whole number.
    weights = iter(integer_weights([int(Fraction(p) * (1 << 1080)) for p in row if p]))
    return tuple(next(weights) if p else 0 for p in row)


def refuse_zeros(table: Weights) -> NoReturn:
    """Raise `ParameterError`, naming the two inputs with the largest mass of outputs that only one of them has."""
    pairs = permutations(range(len(table)), 2)
    masses = {(x, z): sum(p for p, q in zip(table[x], table[z], strict=True) if q == 0) for x, z in pairs}
    x, z = max(masses, key=lambda pair: masses[pair])
    y = next(y for y, (p, q) in enumerate(zip(table[x], table[z], strict=True)) if p and not q)
    raise ParameterError(
        f"matrix has an infinite loss: the output at column position {y} never comes from row position {z} but does "
        f"from {x}; pass delta={round_up(Fraction(masses[x, z], WORD))!r} or more"
    )
