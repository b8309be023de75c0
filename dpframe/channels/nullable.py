"""Null as a combinator: a flag by randomised response, at its share of the budget, with any mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.accounting.loss import PrivacyLoss
from dpframe.channels.base import (
    Channel,
    CodeFunction,
    IntArray,
    Mechanism,
    register,
)
from dpframe.channels.bit_flips import BitFlip
from dpframe.channels.gaussian import Gaussian
from dpframe.channels.geometric import Geometric
from dpframe.channels.process import Process
from dpframe.channels.set_channel import FlaggedSets, SetView
from dpframe.channels.vector_noise import VectorNoise
from dpframe.channels.wide_gaussian import WideGaussian
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import ResponseTable
from dpframe.spaces import Nullable, Space
from dpframe.spaces.arrays import FloatArray, replaced
from dpframe.spaces.base import forwarded
from dpframe.spaces.json_form import check_names, parameters


@dataclass(frozen=True)
class WithNull(Mechanism):
    """A mechanism's codes and null, the last code: a flag randomises whether a row is null, a channel its value.

    A null whose flag flips is released as the channel's ``centre`` would be. Every row uses as many words, null or
    not: the flag the first plane, the value the next planes.

    ``kind``: the class of the values' mechanism. ``shape``: its fields before ``epsilon``, such as a span, or the items
    and the largest size of sets. ``epsilon`` and ``delta``: the budget of flag and value together; see
    `dpframe.accounting.budget`.
    """

    kind: type[Mechanism]
    shape: tuple[Any, ...]
    epsilon: float
    delta: float = 0.0
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        self._check_budget(self.epsilon, self.delta)
        object.__setattr__(self, "size", self.inner.size + 1)

    def __repr__(self) -> str:
        return f"WithNull({self.kind.__name__}, {self.shape}, epsilon={self.epsilon}, delta={self.delta})"

    @property
    def tag(self) -> str:  # type: ignore[override]
        """The tag of the values' mechanism, with the prefix ``nullable_``."""
        return NullFamily(self.kind).tag

    @property
    def own_metric(self) -> str:
        """The values' metric, with null at the diameter."""
        return f"nullable {self.inner.own_metric}"

    def recalibrated(self, space: Space, epsilon: float, delta: float) -> Mechanism:
        """Return a mechanism of this kind for a space and a budget."""
        return NullFamily(self.kind).calibrate(space, epsilon, delta)

    @cached_property
    def _parts(self) -> tuple[ResponseTable, Channel]:
        return self.kind.beside_flag(self.shape, self.epsilon, self.delta)

    @property
    def flag(self) -> ResponseTable:
        """The integers of the flag's randomised response."""
        return self._parts[0]

    @property
    def inner(self) -> Channel:
        """The channel of the values."""
        return self._parts[1]

    @property
    def present(self) -> tuple[float, float]:
        """Probabilities that a value is released for a value, and for null."""
        return self.flag.keep / (1 << self.flag.bits), self.flag.threshold / (1 << self.flag.bits)

    @property
    def sets(self) -> SetView:
        """Surrogates of items and sizes of released sets."""
        inner: Any = self.inner
        return FlaggedSets(inner, *self.present)

    @property
    def releases_outside_bounds(self) -> bool:  # type: ignore[override]
        """Whether noise of the values' channel leaves the bounds."""
        return self.kind.releases_outside_bounds

    @property
    def null(self) -> int:
        """The code of null."""
        return self.size - 1

    @property
    def outputs(self) -> int:
        """Number of released codes, null's the last of them."""
        return self.inner.outputs + 1

    def released(self, space: Space) -> Space:
        """Return the nullable space of the values' released codes."""
        nullable_space: Any = space
        return Nullable(self.inner.released(nullable_space.inner)) if self.releases_outside_bounds else space.released

    @property
    def code_words(self) -> int:
        """Words of a code: the words of a value, and a bit for null."""
        return -(-self.null.bit_length() // 64) if self.inner.code_words else 0

    diameter = forwarded("inner.diameter")  # null is at the diameter from every value

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The certified loss over value against value, null against value and back."""
        return self.inner.loss_beside(self.flag)

    @cached_property
    def blanket(self) -> float:
        """γ of the values and null together, rounded down."""
        return self.inner.blanket_beside(self.flag)

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        words = self.inner.code_words
        if self.code_words:
            absent = np.asarray((codes == _words_of(self.null, self.code_words)).all(axis=1))
            inside = np.where(absent[:, None], _words_of(self.inner.centre, words), codes[:, :words])
        else:
            absent = np.asarray(codes == self.null)
            inside = replaced(codes, absent, self.inner.centre)
        # Nulls are randomised as the centre too: time and words do not depend on nulls.
        self.inner._sample(inside, stream.skip(1), first_row, out[:, :words] if self.code_words else out)
        released = np.empty(len(codes), dtype=np.uint8)
        self.flag.sample(absent.view(np.uint8), stream, first_row, released)
        is_null_released = released.view(np.bool_)
        if self.code_words:
            out[:, words:] = 0
            out[is_null_released] = _words_of(self.null, self.code_words)
        else:
            out[:] = replaced(out, is_null_released, self.outputs - 1)

    def _flag_weights(self, code: int) -> tuple[int, int, int]:
        """Return the flag's weights of a value and of null, and the value whose law a shown code has."""
        keep, flip = self.flag.keep, self.flag.threshold
        return (flip, keep, self.inner.centre) if code == self.null else (keep, flip, code)

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return P(y | code) for all values and null as integers over a total."""
        value, null, x = self._flag_weights(code)
        weights, total = self.inner.weights(x)
        return [value * w for w in weights] + [null * total], total << self.flag.bits

    def law(self, code: int) -> FloatArray:
        """Return P(y | code), shape (size,); the last entry is null."""
        value, null, x = self._flag_weights(code)
        total = 1 << self.flag.bits
        return np.append(value / total * self.inner.law(x), null / total)

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return φ_f: with keep k and flip c, φ(null) = (k f(null) − c f(centre))/(k−c), and values by inversion."""
        k, c = self.present
        f_centre, f_null = f(np.array([self.inner.centre, self.null])).tolist()
        # A null shows itself with k, the centre's law with c: two equations for φ(null) and the values.
        at_null = (k * f_null - c * f_centre) / self.flag.signal
        y = np.asarray(codes, dtype=np.int64)
        null = y == (self.outputs - 1)
        inverse = self.inner.surrogate_at(f, np.where(null, 0, y))
        return np.asarray(np.where(null, at_null, (inverse - c * at_null) / k))

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return A (or Aᵀ) applied along axis 0; null is the last row."""
        (k, c), centre = self.present, self.inner.centre
        values, nulls = counts[:-1], counts[-1]
        if adjoint:
            inside = self.inner.apply(values, adjoint=True)
            return np.append(k * inside + c * nulls, [c * inside[centre] + k * nulls], axis=0)
        mixed = k * values
        mixed[centre] += c * nulls
        return np.append(self.inner.apply(mixed), [k * nulls + c * values.sum(axis=0)], axis=0)

    def changes(self, edges: IntArray) -> IntArray:
        """Return the codes at which the values' surrogates change, and the code of null."""
        return np.append(self.inner.changes(edges), self.outputs - 1)

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return `Channel.between` for the values and null: one more cell, and the last stretch."""
        (k, c), centre = self.present, self.inner.centre
        inside = self.inner.between(edges, starts[:-1])
        at_null = self.inner.between(np.array([centre, centre + 1]), starts[:-1])[:, :1]
        absent = np.append(np.full(len(edges) - 1, c), k)
        return np.vstack([np.hstack([k * inside, c * at_null]), absent])

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return the inverse of the two parts applied along axis 0; null is the last row.

        The surrogate of value v is [G⁻¹(v, y) − (c/k)·γ(v)]/k with γ(v) the null's part. The surrogate of null is
        constant on all values.
        """
        (k, c), centre, signal = self.present, self.inner.centre, self.flag.signal
        values, nulls = counts[:-1], counts[-1]
        present = values.sum(axis=0)
        # Surrogates at null: k/(k−c) for null itself, −c/(k−c) for the centre, 0 for other values. Hence at a
        # value y: −c/(k−c) for null, and G⁻¹(v, y)/k, plus (c/k)·c/(k−c) if v is the centre.
        if not squared:
            out = np.append(self.inner.invert(values) / k, [(k * nulls - c * present) / signal], axis=0)
            out[centre] += c / signal * (c / k * present - nulls)
            return out
        shift = c / k * c / signal
        squares = self.inner.invert(values, squared=True) / k**2
        crossed = self.inner.invert(values)[centre] / k
        squares[centre] += 2 * shift * crossed + shift**2 * present + (c / signal) ** 2 * nulls
        at_null = (k**2 * nulls + c**2 * present) / signal**2
        return np.append(squares, [at_null], axis=0)

    def expected_error(self, space: Space | None = None) -> float:
        """Return the largest E[ρ(Y, x)] in code steps, ρ(null, value) being the diameter."""
        k, c = self.present
        return k * self.inner.expected_error() + c * self.inner.diameter

    def to_json(self) -> dict[str, Any]:
        """Return the mechanism as a JSON object: the fields of the values' mechanism under its own tag."""
        shape = dict(zip(shape_names(self.kind), self.shape, strict=True))
        return {"mechanism": self.tag, **shape, "epsilon": self.epsilon, "delta": self.delta}


def _words_of(code: int, words: int) -> npt.NDArray[np.uint64]:
    """Return a code as so many 64-bit words."""
    return np.frombuffer(code.to_bytes(8 * words, "little"), dtype="<u8").astype(np.uint64)


def shape_names(kind: type[Mechanism]) -> list[str]:
    """Return the names of a mechanism's fields before ``epsilon``."""
    names = [f.name for f in parameters(kind)]
    return names[: names.index("epsilon")]


@dataclass(frozen=True)
class NullFamily:
    """The mechanisms of one kind with a null flag, as the registry holds them."""

    kind: type[Mechanism]

    fixed: ClassVar[bool] = False
    adds_in_group: ClassVar[bool] = False

    @property
    def tag(self) -> str:
        """The kind's tag, with the prefix ``nullable_``."""
        return f"nullable_{self.kind.tag}"

    @property
    def aliases(self) -> tuple[str, ...]:
        """The kind's names: a column's mechanism has one name, whether null is a value or not."""
        return (*self.kind.aliases, self.kind.tag)

    label = forwarded("kind.label")
    takes_delta = forwarded("kind.takes_delta")
    retired = forwarded("kind.retired")
    releases_outside_bounds = forwarded("kind.releases_outside_bounds")

    def space_for(self, space: Space, epsilon: float, delta: float) -> Space:
        """Return the nullable space around the kind's space."""
        around: Any = space
        inner: Space = self.kind.space_for(around.inner, epsilon, delta)
        return space if inner is around.inner else Nullable(inner)

    @property
    def metrics(self) -> frozenset[str]:
        """The kind's metrics, with null as one more value."""
        return frozenset(f"nullable {metric}" for metric in self.kind.metrics)

    def calibrate(self, space: Space, epsilon: float, delta: float) -> WithNull:
        """Make the mechanism for a nullable space."""
        return WithNull(self.kind, self.kind.shape_of(space.inner_space), epsilon, delta)

    def from_json(self, data: Mapping[str, Any]) -> WithNull:
        """Read the mechanism back from the kind's fields."""
        names = shape_names(self.kind)
        check_names(data, f"mechanism {self.tag}", [*names, "epsilon", "delta"])
        return WithNull(self.kind, tuple(data[name] for name in names), data["epsilon"], data["delta"])


for _kind in (Geometric, Gaussian, WideGaussian, BitFlip, VectorNoise, Process):
    register(NullFamily(_kind))
