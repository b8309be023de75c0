"""What every mechanism states, and what follows from it for nothing.

A mechanism is a frozen value: a channel on the codes 0…size−1. It states how it samples, its law (one
column of the transition matrix), its loss, its surrogates and its errors; the matrix, JSON and
the checks derive from these, and a tag registry makes it reachable by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from dpframe.accounting import ColumnLoss
from dpframe.accounting.budget import Budget, check_delta, check_epsilon
from dpframe.accounting.loss import PrivacyLoss
from dpframe.errors import ParameterError, PlanError
from dpframe.noise.keystream import ColumnStream
from dpframe.spaces import Space

IntArray = npt.NDArray[np.integer]
FloatArray = npt.NDArray[np.float64]
CodeFunction = Callable[[IntArray], FloatArray]
"""A function of a column's value, given by its code: vectorised, codes in, floats out."""

MECHANISMS: dict[str, type[Mechanism]] = {}
"""Every mechanism by its tag."""

LARGEST_MATRIX = 4097
"""Most codes for which a transition matrix is written out (about 134 MB of floats)."""

M = TypeVar("M", bound="type[Mechanism]")


def register(cls: M) -> M:
    """Enter a mechanism in the registry under its tag."""
    MECHANISMS[cls.tag] = cls
    return cls


class Mechanism(ABC):
    """A random channel on codes, calibrated to (ε, δ) for neighbours that differ arbitrarily.

    Subclasses are frozen dataclasses whose constructor takes a size or span, ``epsilon`` and ``delta``;
    those are their JSON.
    """

    tag: ClassVar[str]
    metrics: ClassVar[frozenset[str]]
    """Kinds of metric (`Space.metric`) that the mechanism is for."""
    fixed: ClassVar[bool] = False
    """Whether the law is given as it is, and cannot follow a budget."""
    local_inverse: ClassVar[bool] = False
    """Whether φ_f changes from code to code only where f does, at neighbours, and at the ends (and at null)."""
    words: ClassVar[int]
    """Planes of the stream that a row uses; a fixed number."""

    size: int
    """Number of codes."""

    epsilon: float
    delta: float

    @property
    def code_words(self) -> int:
        """Number of 64-bit words in the code of a row, 0 where it is one integer; see `Space`."""
        return 0

    @property
    def budget(self) -> Budget:
        """The (ε, δ) that was asked for."""
        return Budget(self.epsilon, self.delta)

    @property
    @abstractmethod
    def loss(self) -> PrivacyLoss:
        """The exact privacy loss, computed from the integers that are sampled."""

    @property
    @abstractmethod
    def blanket(self) -> float:
        """γ = Σ_y min_x P(y | x), rounded down: the share of a release that says nothing of its row."""

    @property
    def column_loss(self) -> ColumnLoss:
        """What the accountant may use of the channel: its pure loss and blanket mass, and more where it knows more."""
        return ColumnLoss(self.loss.epsilon(0.0), self.blanket)

    @classmethod
    @abstractmethod
    def calibrate(cls, space: Space, epsilon: float, delta: float) -> Mechanism:
        """Make the mechanism for a space, with the least noise that meets (ε, δ)."""

    @abstractmethod
    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        """Randomise checked codes into ``out``."""

    @abstractmethod
    def law(self, code: int) -> FloatArray:
        """Return P(y | code) for all y, shape (size,), from the integers that are sampled."""

    @abstractmethod
    def weights(self, code: int) -> tuple[list[int], int]:
        """Return P(y | code) for all y as integers over a total, read from the tables that are sampled."""

    @abstractmethod
    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return φ_f at the given released codes: E[φ_f(Y) | x] = f(x)."""

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return A (or Aᵀ) applied along axis 0 of an array by code."""
        matrix = self.transition()
        return np.asarray(np.tensordot(matrix.T if adjoint else matrix, counts, axes=1))

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return P(y in a stretch of codes | x uniform in a cell), shape (stretches, cells).

        Stretches begin at ``starts``. Cells begin at ``edges[:-1]``; codes from ``edges[-1]`` on (null) are a
        cell each.
        """
        matrix = self.transition()
        cells = [matrix[:, a:b].mean(axis=1) for a, b in pairwise(edges)]
        cells += list(matrix[:, int(edges[-1]) :].T)
        return np.add.reduceat(np.stack(cells, axis=1), starts, axis=0)

    @abstractmethod
    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return A⁻¹ applied along axis 0 of an array of counts by released code.

        ``squared`` squares the entries of A⁻¹ first: with the surrogates Φ[y, v] of the codes v that is
        Σ_y counts[y]·Φ[y, v]², from which variances are made.
        """

    @abstractmethod
    def expected_error(self, space: Space | None = None) -> float:
        """Return max over x of E[ρ(Y, x)] in code steps (0 or 1 on discrete spaces).

        ρ is the distance of ``space``, by default the one that the mechanism is made for.
        """

    def sample(self, codes: IntArray, stream: ColumnStream, first_row: int = 0) -> IntArray:
        """Randomise codes; row ``first_row + i`` of the stream decides ``codes[i]``.

        Parameters
        ----------
        codes
            1-d integer array of codes in 0…size−1; of sets 64-bit words, as their space encodes them.
        stream
            The column's stream, from `Keystream.column`.
        first_row
            Position of ``codes[0]`` in the table.

        Returns
        -------
        Array of the same shape and dtype (int64 where that dtype cannot hold all codes).

        Raises
        ------
        ParameterError
            If the codes are not a 1-d integer array or leave 0…size−1, or the row is not a position.
        """
        codes = self._checked(np.asarray(codes))
        first_row = check_whole(first_row, "first_row", 0, 1 << 62)
        out = np.empty(codes.shape, dtype=codes.dtype)
        if len(codes):
            self._sample(codes, stream, first_row, out)
        return out

    def _checked(self, codes: IntArray) -> IntArray:
        """Return valid codes in a type that holds all codes, or raise `ParameterError`."""
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ParameterError("codes must be a 1-d integer array; encode the column with its space")
        if self.size - 1 > np.iinfo(codes.dtype).max:
            codes = codes.astype(np.int64)
        if len(codes) and (int(codes.max()) >= self.size or int(codes.min()) < 0):
            raise ParameterError(f"codes must lie in 0…{self.size - 1}; encode the column with its space")
        return codes

    def transition(self) -> FloatArray:
        """Return A[y, x] = P(y | x), shape (size, size), from the integers that are sampled."""
        if self.size > LARGEST_MATRIX:
            raise ParameterError(
                f"a transition matrix of {self.size} codes is too large (at most {LARGEST_MATRIX}); "
                "law(code) gives one column of it"
            )
        return np.stack([self.law(x) for x in range(self.size)], axis=1)

    def surrogate(self, f: npt.ArrayLike) -> FloatArray:
        """Return φ_f, the solution of Aᵀφ = f, for a function given by its value at every code.

        Parameters
        ----------
        f
            Shape (size,).

        Raises
        ------
        ParameterError
            If ``f`` has another shape.
        """
        values = np.asarray(f, dtype=np.float64)
        if values.shape != (self.size,):
            raise ParameterError(f"f must have one value per code, shape ({self.size},)")
        return self.surrogate_at(lambda codes: values[codes], np.arange(self.size))

    def to_json(self) -> dict[str, Any]:
        """Return the mechanism as a JSON object with its tag."""
        return {"mechanism": self.tag, **{f.name: getattr(self, f.name) for f in parameters(type(self))}}

    def __reduce__(self) -> tuple[type[Mechanism], tuple[Any, ...]]:
        # Tables are rebuilt where a copy lands: megabytes stay out of pickles.
        return type(self), tuple(getattr(self, f.name) for f in parameters(type(self)))

    def _check_budget(self, epsilon: float, delta: float) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(epsilon))
        object.__setattr__(self, "delta", check_delta(delta))


def parameters(cls: type[Mechanism]) -> list[Field[Any]]:
    """Return the constructor's fields."""
    data: Any = cls  # every subclass is a dataclass, this base is none
    return [f for f in fields(data) if f.init]


def check_whole(value: Any, name: str, least: int, most: int) -> int:
    """Return ``value`` as an int, or raise `ParameterError` unless it is a whole number in range."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise ParameterError(f"{name} must be a whole number from {least} to {most}")
    return int(value)


def mechanism_for(space: Space, epsilon: float, delta: float, tag: str | None = None) -> Mechanism:
    """Return the space's own mechanism, or the one of a tag, calibrated to (ε, δ).

    Raises
    ------
    ParameterError
        If the tag is unknown or its mechanism is for other spaces.
    """
    tag = space.mechanism if tag is None else tag
    fitting = [name for name, cls in sorted(MECHANISMS.items()) if space.metric in cls.metrics]
    if tag not in fitting:
        raise ParameterError(f"mechanism must be one of {', '.join(fitting)} for space {space.tag}")
    return MECHANISMS[tag].calibrate(space, epsilon, delta)


def mechanism_from_json(data: Mapping[str, Any]) -> Mechanism:
    """Read a mechanism back; an unknown tag or field is refused with `PlanError`."""
    tag = data.get("mechanism")
    cls = MECHANISMS.get(tag) if isinstance(tag, str) else None
    if cls is None:
        raise PlanError(f"unknown mechanism tag; this version knows {', '.join(sorted(MECHANISMS))}")
    names = {f.name for f in parameters(cls)}
    given = {key: value for key, value in data.items() if key != "mechanism"}
    if set(given) != names:
        raise PlanError(f"mechanism {tag} has the fields {', '.join(sorted(names))}, no more and no fewer")
    try:
        return cls(**given)
    except ParameterError as error:
        raise PlanError(f"mechanism {tag}: {error}") from None
