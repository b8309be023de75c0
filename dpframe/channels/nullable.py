"""Null and special values as a combinator: a flag by randomised response, at its share of the budget, with any
mechanism.
"""

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
from dpframe.errors import check_whole
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import ResponseTable
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray, replaced
from dpframe.spaces.base import forwarded
from dpframe.spaces.json_form import check_names, parameters
from dpframe.spaces.special import MAX_SPECIAL_VALUES


@dataclass(frozen=True)
class WithNull(Mechanism):
    """A mechanism's codes and then the flag's: a flag randomises which of them a row has, a channel its value.

    The flag's codes are special values and null; one flag has a state for each, and one for all values. A row with a
    code whose flag flips to the values is released as the channel's ``centre`` would be. Every row uses as many words,
    whatever its flag: the flag the first plane, the value the next planes.

    ``kind``: the class of the values' mechanism. ``shape``: its fields before ``epsilon``, such as a span, or the items
    and the largest size of sets. ``epsilon`` and ``delta``: the budget of flag and value together; see
    `dpframe.accounting.budget`. ``flag_codes``: number of the flag's codes, 1 if null is the only one.
    """

    kind: type[Mechanism]
    shape: tuple[Any, ...]
    epsilon: float
    delta: float = 0.0
    flag_codes: int = 1
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        self._check_budget(self.epsilon, self.delta)
        object.__setattr__(self, "flag_codes", check_whole(self.flag_codes, "flag_codes", 1, MAX_SPECIAL_VALUES + 1))
        object.__setattr__(self, "size", self.inner.size + self.flag_codes)

    def __repr__(self) -> str:
        codes = f", flag_codes={self.flag_codes}" if self.flag_codes > 1 else ""
        return f"WithNull({self.kind.__name__}, {self.shape}, epsilon={self.epsilon}, delta={self.delta}{codes})"

    @property
    def tag(self) -> str:  # type: ignore[override]
        """The tag of the values' mechanism, with the prefix ``nullable_``."""
        return NullFamily(self.kind).tag

    @property
    def own_metric(self) -> str:
        """The values' metric, with the flag's codes at the diameter."""
        return "special line" if self.flag_codes > 1 else f"nullable {self.inner.own_metric}"

    def recalibrated(self, space: Space, epsilon: float, delta: float) -> Mechanism:
        """Return a mechanism of this kind for a space and a budget."""
        return NullFamily(self.kind).calibrate(space, epsilon, delta)

    @cached_property
    def _parts(self) -> tuple[ResponseTable, Channel]:
        return self.kind.beside_flag(self.shape, self.epsilon, self.delta, self.flag_codes + 1)

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
        """Probabilities that a value is released for a value, and for a code of the flag."""
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
        """The code of null, if null is a value: the last one."""
        return self.size - 1

    @property
    def outputs(self) -> int:
        """Number of released codes, the flag's the last of them."""
        return self.inner.outputs + self.flag_codes

    def released(self, space: Space) -> Space:
        """Return the space of the values' released codes, with the flag's codes."""
        return space.around(self.inner.released(space.inner_space)) if self.releases_outside_bounds else space.released

    @property
    def code_words(self) -> int:
        """Words of a code: the words of a value, and a bit for null."""
        return -(-self.null.bit_length() // 64) if self.inner.code_words else 0

    diameter = forwarded("inner.diameter")  # the flag's codes are at the diameter from every value

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The certified loss over value against value, the flag's codes against values and back."""
        return self.inner.loss_beside(self.flag)

    @cached_property
    def blanket(self) -> float:
        """γ of the values and the flag's codes together, rounded down."""
        return self.inner.blanket_beside(self.flag)

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        words = self.inner.code_words
        if self.code_words:
            states = np.asarray((codes == _words_of(self.null, self.code_words)).all(axis=1)).view(np.uint8)
            inside = np.where(states[:, None] > 0, _words_of(self.inner.centre, words), codes[:, :words])
        else:
            states = _states(codes, self.inner.size, self.flag_codes)
            inside = replaced(codes, states.astype(np.bool_), self.inner.centre)
        # The flag's codes are randomised as the centre too: time and words do not depend on them.
        self.inner._sample(inside, stream.skip(1), first_row, out[:, :words] if self.code_words else out)
        released = np.empty(len(codes), dtype=np.uint8)
        self.flag.sample(states, stream, first_row, released)
        if self.code_words:
            out[:, words:] = 0
            out[released.view(np.bool_)] = _words_of(self.null, self.code_words)
            return
        for state in range(1, self.flag.size):
            out[:] = replaced(out, released == state, self.inner.outputs + state - 1)

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return P(y | code) for all values and the flag's codes as integers over a total."""
        keep, flip, values = self.flag.keep, self.flag.threshold, self.inner.size
        is_value = code < values
        weights, total = self.inner.weights(code if is_value else self.inner.centre)
        states = [(keep if values + state == code else flip) * total for state in range(self.flag_codes)]
        return [(keep if is_value else flip) * w for w in weights] + states, total << self.flag.bits

    def law(self, code: int) -> FloatArray:
        """Return P(y | code), shape (size,); the last entries are the flag's codes."""
        (k, c), values = self.present, self.inner.size
        states = np.full(self.flag_codes, c)
        if code < values:
            return np.append(k * self.inner.law(code), states)
        states[code - values] = k
        return np.append(c * self.inner.law(self.inner.centre), states)

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return φ_f: with keep k, flip c, m codes and their sum F of f: Σφ(codes) = (k·F − m·c·f(centre))/(k−c).

        Values follow by inversion, and φ(code) = Σφ(codes)/m + (f(code) − F/m)/(k−c).
        """
        (k, c), m = self.present, self.flag_codes
        f_centre, *f_codes = f(np.append(self.inner.centre, np.arange(self.inner.size, self.size))).tolist()
        # Codes show themselves with k, each other and the centre's law with c: equations for φ(codes) and the values.
        total = (k * sum(f_codes) - m * c * f_centre) / self.flag.signal
        y = np.asarray(codes, dtype=np.int64)
        # Channels of many items, whose codes exceed 64 bits, refuse here.
        inverse = self.inner.surrogate_at(f, np.where(y >= self.inner.outputs, 0, y))
        state = y - self.inner.outputs
        at_codes = total / m + (np.array(f_codes) - sum(f_codes) / m) / self.flag.signal
        return np.asarray(np.where(state >= 0, at_codes[np.maximum(state, 0)], (inverse - c * total) / k))

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return A (or Aᵀ) applied along axis 0; the flag's codes are the last rows."""
        (k, c), centre, m = self.present, self.inner.centre, self.flag_codes
        values, states = counts[:-m], counts[-m:]
        all_states = states.sum(axis=0)
        if adjoint:
            inside = self.inner.apply(values, adjoint=True)
            flag_rows = c * inside[centre] + k * states + c * (all_states - states)
            return np.append(k * inside + c * all_states, flag_rows, axis=0)
        mixed = k * values
        mixed[centre] += c * all_states
        flag_rows = k * states + c * (all_states - states) + c * values.sum(axis=0)
        return np.append(self.inner.apply(mixed), flag_rows, axis=0)

    def changes(self, edges: IntArray) -> IntArray:
        """Return the codes at which the values' surrogates change, and the flag's codes."""
        return np.append(self.inner.changes(edges), np.arange(self.inner.outputs, self.outputs))

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return `Channel.between` for the values and the flag's codes: a cell more for each, and as many stretches."""
        (k, c), centre, m = self.present, self.inner.centre, self.flag_codes
        inside = self.inner.between(edges, starts[:-m])
        at_code = self.inner.between(np.array([centre, centre + 1]), starts[:-m])[:, :1]
        of_values = np.hstack([k * inside, c * np.repeat(at_code, m, axis=1)])
        of_codes = np.hstack([np.full((m, len(edges) - 1), c), np.where(np.eye(m) > 0, k, c)])
        return np.vstack([of_values, of_codes])

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return the inverse of the two parts applied along axis 0; the flag's codes are the last rows.

        The surrogate of value v is [G⁻¹(v, y) − (c/k)·γ(v)]/k with γ(v) the part of the flag's codes. The surrogate of
        a code is constant on all values and other codes.
        """
        (k, c), centre, signal, m = self.present, self.inner.centre, self.flag.signal, self.flag_codes
        values, states = counts[:-m], counts[-m:]
        present, all_states = values.sum(axis=0), states.sum(axis=0)
        other_rows = present + (all_states - states)
        # Surrogates at a code: (1−c)/(k−c) for the code itself, −c/(k−c) for the centre and other codes, 0 for other
        # values. Hence at a value y: −c/(k−c) for a code, and G⁻¹(v, y)/k, plus (m·c/k)·c/(k−c) if v is the centre.
        at_itself = k + (m - 1) * c
        if not squared:
            out: FloatArray = np.append(
                self.inner.invert(values) / k, (at_itself * states - c * other_rows) / signal, axis=0
            )
            out[centre] += c / signal * (m * c / k * present - all_states)
            return out
        shift = m * c / k * c / signal
        squares = self.inner.invert(values, squared=True) / k**2
        crossed = self.inner.invert(values)[centre] / k
        squares[centre] += 2 * shift * crossed + shift**2 * present + (c / signal) ** 2 * all_states
        return np.append(squares, (at_itself**2 * states + c**2 * other_rows) / signal**2, axis=0)

    def expected_error(self, space: Space | None = None) -> float:
        """Return the largest E[ρ(Y, x)] in code steps, ρ(code of the flag, value) being the diameter."""
        k, c = self.present
        return k * self.inner.expected_error() + self.flag_codes * c * self.inner.diameter

    def to_json(self) -> dict[str, Any]:
        """Return the mechanism as a JSON object: the fields of the values' mechanism under its own tag."""
        shape = dict(zip(shape_names(self.kind), self.shape, strict=True))
        codes = {"flag_codes": self.flag_codes} if self.flag_codes > 1 else {}
        return {"mechanism": self.tag, **shape, "epsilon": self.epsilon, "delta": self.delta, **codes}


def _states(codes: IntArray, values: int, flag_codes: int) -> npt.NDArray[np.uint8]:
    """Return the flag's state of every code: 0 for a value, and 1 and more for the flag's codes."""
    states = np.asarray(codes >= values).view(np.uint8)
    for code in range(values + 1, values + flag_codes):
        states += codes >= code
    return states


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
        """Return the space of null and special values around the kind's space."""
        inner: Space = self.kind.space_for(space.inner_space, epsilon, delta)
        return space if inner is space.inner_space else space.around(inner)

    @property
    def metrics(self) -> frozenset[str]:
        """The kind's metrics, with null as one more value, and lines with several codes of the flag."""
        special = {"special line"} if "line" in self.kind.metrics else set()
        return frozenset({f"nullable {metric}" for metric in self.kind.metrics} | special)

    def calibrate(self, space: Space, epsilon: float, delta: float) -> WithNull:
        """Make the mechanism for a space with null or special values."""
        return WithNull(self.kind, self.kind.shape_of(space.inner_space), epsilon, delta, space.flag_codes)

    def from_json(self, data: Mapping[str, Any]) -> WithNull:
        """Read the mechanism back from the kind's fields."""
        names = shape_names(self.kind)
        check_names(data, f"mechanism {self.tag}", [*names, "epsilon", "delta"], ["flag_codes"])
        shape = tuple(data[name] for name in names)
        return WithNull(self.kind, shape, data["epsilon"], data["delta"], data.get("flag_codes", 1))


for _kind in (Geometric, Gaussian, WideGaussian, BitFlip, VectorNoise, Process):
    register(NullFamily(_kind))
