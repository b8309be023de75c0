"""Base classes of channels and mechanisms, with everything that follows from their weights, and the registry.

A mechanism is a frozen value: a channel on the codes 0…size−1 that is calibrated to a budget. A subclass defines its
sampler, the integers behind the sampler and the loss. Everything else derives from these unless it has a closed form.
A registry of tags makes mechanisms reachable by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from dpframe.accounting import ColumnLoss
from dpframe.accounting.budget import Budget, check_delta, check_epsilon, round_down
from dpframe.accounting.finite import FiniteLoss
from dpframe.accounting.loss import PrivacyLoss, ResponseLoss, response_probability
from dpframe.errors import ParameterError, PlanError, check_whole
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import ResponseTable
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import in_words
from dpframe.spaces.json_form import from_object, parameters, to_object

IntArray = npt.NDArray[np.integer]
CodeFunction = Callable[[IntArray], FloatArray]
"""A function of a column's value, given by its code: vectorised, codes in, floats out."""

WRITTEN_METRICS = frozenset({"discrete", "line", "nullable line"})
"""Metrics whose distances follow from just the number of codes."""

MAX_WORD_EPSILON = 42.0
"""Largest log-ratio of two weights that 64 bits resolve: a larger ε gets no less noise than this ε."""

SAFE = 1 - Decimal(10) ** -50
"""Factor on blankets that covers their rounding in sixty digits."""

_HALVINGS = 16
"""Number of halvings in the search for the values' share of a budget with a null flag."""

LARGEST_MATRIX = 4097
"""Most codes of a transition matrix (about 134 MB of floats)."""


class Family(Protocol):
    """An entry of the registry: a class of mechanisms, or a factory of mechanisms."""

    @property
    def tag(self) -> str:
        """The key in the registry."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names that users may give on spaces of its metrics, the usual name first."""

    @property
    def label(self) -> str:
        """The name that plans show; empty for the tag."""

    @property
    def metrics(self) -> frozenset[str]:
        """Kinds of metric (`Space.metric`) that the mechanisms support."""

    @property
    def adds_in_group(self) -> bool:
        """Whether the mechanisms' noise is added in the group of codes; see `Mechanism`."""

    @property
    def takes_delta(self) -> bool:
        """Whether such mechanisms exist only with δ > 0."""

    @property
    def retired(self) -> bool:
        """Whether new plans use another mechanism of that name."""

    @property
    def releases_outside_bounds(self) -> bool:
        """Whether released values go beyond a space's bounds."""

    def space_for(self, space: Space, epsilon: float, delta: float) -> Space:
        """Return the space whose codes a mechanism of a budget randomises."""

    def calibrate(self, space: Space, epsilon: float, delta: float) -> Mechanism:
        """Make the mechanism for a space, with the least noise that meets (ε, δ)."""

    def from_json(self, data: Mapping[str, Any]) -> Mechanism:
        """Read a mechanism back from its fields."""


MECHANISMS: dict[str, Family] = {}
"""Every mechanism by its tag."""

F = TypeVar("F", bound=Family)


def register(family: F) -> F:
    """Enter a mechanism in the registry under its tag."""
    MECHANISMS[family.tag] = family
    return family


def distances(metric: str, size: int) -> FloatArray:
    """Return ρ between all codes in code steps; on a nullable line the last code is null, at the diameter."""
    if metric == "discrete":
        return np.asarray(1.0 - np.eye(size))
    if metric == "line":
        return np.asarray(np.abs(np.subtract.outer(np.arange(float(size)), np.arange(float(size)))))
    # Other metrics need the space itself; their mechanisms do not come here.
    assert metric == "nullable line", f"no distances are known for the metric {metric}"
    # Null is at the diameter of the values, size − 2 steps, from each of them.
    rho = np.full((size, size), float(size - 2))
    rho[:-1, :-1] = distances("line", size - 1)
    rho[-1, -1] = 0.0
    return rho


def beside_edges(edges: IntArray, size: int) -> IntArray:
    """Return the codes at which a function may change that changes only next to edges and at the ends."""
    at, last = np.asarray(edges[1:-1], dtype=np.int64), int(edges[-1])
    # An inverse with three bands mixes a code with its two neighbours.
    codes = np.unique(np.concatenate([[0, 1, last - 1], at - 1, at, at + 1]))
    return np.append(codes[(codes >= 0) & (codes < last)], np.arange(last, size))


def shared_mass(laws: Sequence[Sequence[int]], total: int) -> float:
    """Return Σ_y min_x P(y | x) of laws given by integers over a total, rounded down."""
    return round_down(Fraction(sum(map(min, zip(*laws, strict=True))), total))


class Channel(ABC):
    """A random channel on the codes 0…size−1.

    A subclass defines the sampler, its ``weights`` (the sampled integers) and its loss. Law, blanket, matrix, inverse,
    surrogates and errors follow from the weights of a few codes; channels of many codes have closed forms.
    """

    size: int
    """Number of codes."""
    releases_outside_bounds: ClassVar[bool] = False
    """Whether noise leaves the values' bounds; then only polynomials have surrogates, and counts come from fits."""

    @property
    @abstractmethod
    def loss(self) -> PrivacyLoss:
        """The exact privacy loss, computed from the integers that are sampled."""

    @abstractmethod
    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        """Randomise checked codes into ``out``."""

    @abstractmethod
    def weights(self, code: int) -> tuple[list[int], int]:
        """Return P(y | code) for all y as integers over a total, from the tables of the sampler."""

    @property
    def outputs(self) -> int:
        """Number of released codes: the number of codes, unless noise reaches beyond them."""
        return self.size

    def released(self, space: Space) -> Space:
        """Return the space by which the released codes of a column in ``space`` are values."""
        return space.released

    @property
    def code_words(self) -> int:
        """Number of 64-bit words in the code of a row, 0 if the code is one integer; see `Space`."""
        return 0

    @property
    def own_metric(self) -> str:
        """Metric of the codes for which the channel is made."""
        return "discrete"

    def reads(self, space: Space) -> bool:
        """Return whether the channel and a space of as many codes read codes alike."""
        return not (space.holds_sets or space.holds_vectors)

    @property
    def diameter(self) -> float:
        """Largest distance between two codes, in code steps."""
        return 1.0 if self.own_metric == "discrete" else float(self.size - 1)

    @property
    def centre(self) -> int:
        """Code whose law a null has when its flag flips: a code that no other code is far from."""
        return (self.size - 1) // 2

    @property
    def inner(self) -> Channel:
        """The channel of the values without null: this channel, unless null has a flag."""
        return self

    @property
    def present(self) -> tuple[float, float]:
        """Probabilities that a value is released for a value, and for null."""
        return 1.0, 0.0

    @cached_property
    def blanket(self) -> float:
        """γ = Σ_y min_x P(y | x), rounded down: the share of a release that does not depend on its row."""
        return shared_mass(*self._laws)

    @cached_property
    def column_loss(self) -> ColumnLoss:
        """Loss of the channel for the accountant: pure loss and blanket mass, or a more precise description."""
        return ColumnLoss(self.loss.epsilon(0.0), self.blanket)

    @cached_property
    def _laws(self) -> tuple[list[list[int]], int]:
        """Weights of every input over one total."""
        self._check_written()
        laws = [self.weights(x) for x in range(self.size)]
        return [weights for weights, _ in laws], laws[0][1]

    def law(self, code: int) -> FloatArray:
        """Return P(y | code) for all y, shape (size,), from the integers that are sampled."""
        weights, total = self.weights(code)
        return np.array([w / total for w in weights])

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return φ_f at the given released codes: E[φ_f(Y) | x] = f(x)."""
        return np.asarray((f(np.arange(self.size)) @ self._inverse)[codes])

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return A (or Aᵀ) applied along axis 0 of an array by code."""
        matrix = self.transition()
        return np.asarray(np.tensordot(matrix.T if adjoint else matrix, counts, axes=1))

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return P(y in a stretch of codes | x uniform in a cell), shape (stretches, cells).

        Stretches begin at ``starts``. Cells begin at ``edges[:-1]``; codes from ``edges[-1]`` on are a cell each.
        """
        matrix = self.transition()
        cells = [matrix[:, a:b].mean(axis=1) for a, b in pairwise(edges)]
        # Codes from the last edge on, such as null, are one cell each.
        cells += list(matrix[:, int(edges[-1]) :].T)
        return np.add.reduceat(np.stack(cells, axis=1), starts, axis=0)

    def changes(self, edges: IntArray) -> IntArray:
        """Return the codes at which a surrogate φ_f may change, for functions f that change only at ``edges``.

        Edges begin with 0 and end with the number of values; null, if any, comes after as its own edge.
        """
        return np.arange(self.size)

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return A⁻¹ applied along axis 0 of an array of counts by released code.

        ``squared`` squares the entries of A⁻¹ first. With the surrogates Φ[y, v] of the codes v this gives
        Σ_y counts[y]·Φ[y, v]², from which variances follow.
        """
        return np.asarray(np.tensordot(self._inverse**2 if squared else self._inverse, counts, axes=1))

    @cached_property
    def _matrix(self) -> FloatArray:
        return np.stack([self.law(x) for x in range(self.size)], axis=1)

    @cached_property
    def _inverse(self) -> FloatArray:
        return np.asarray(np.linalg.inv(self.transition()))

    def expected_error(self, space: Space | None = None) -> float:
        """Return max over x of E[ρ(Y, x)] in code steps (0 or 1 on discrete spaces).

        ρ is the distance of ``space``, by default the mechanism's own metric.
        """
        metric = self.own_metric if space is None else space.metric
        if space is None or metric in WRITTEN_METRICS:
            rho = distances(metric, self.size)
        else:
            codes = range(self.size)
            rho = np.array([[space.code_distance(x, y) / space.step for y in codes] for x in codes])
        return float((self.transition().T * rho).sum(axis=1).max())

    def loss_beside(self, flag: ResponseTable) -> PrivacyLoss:
        """Return the exact loss of the channel with a null flag."""
        laws, total = self._beside(flag)
        return FiniteLoss(tuple(map(tuple, laws)), total)

    def blanket_beside(self, flag: ResponseTable) -> float:
        """Return the blanket of the channel with a null flag, rounded down."""
        return shared_mass(*self._beside(flag))

    def _beside(self, flag: ResponseTable) -> tuple[list[list[int]], int]:
        laws, total = self._laws
        # Integers over 2^bits times the total: the flag and the value are independent.
        states = range(flag.size - 1)
        flagged_laws = [[flag.keep * w for w in law] + [flag.threshold * total for _ in states] for law in laws]
        at_centre = [flag.threshold * w for w in laws[self.centre]]
        codes = [at_centre + [(flag.keep if y == x else flag.threshold) * total for y in states] for x in states]
        return [*flagged_laws, *codes], total << flag.bits

    def sample(self, codes: IntArray, stream: ColumnStream, first_row: int = 0) -> IntArray:
        """Randomise a 1-d integer array of codes (of sets and vectors 64-bit words); row ``first_row + i`` of the
        column's stream decides ``codes[i]``. The result has their dtype, or int64 if that cannot represent all released
        codes.

        `ParameterError` if the codes are no such array or leave 0…size−1, or the row is not a position.
        """
        codes = self._checked(np.asarray(codes))
        first_row = check_whole(first_row, "first_row", 0, 1 << 62)
        out = np.empty(codes.shape, dtype=codes.dtype)
        if len(codes):
            self._sample(codes, stream, first_row, out)
        return out

    def _checked(self, codes: IntArray) -> IntArray:
        """Return valid codes in a type that can represent all released codes, or raise `ParameterError`."""
        if self.code_words:
            shape, last = (len(codes) if codes.ndim else 0, self.code_words), self.size - 1
            if codes.shape != shape or codes.dtype != np.uint64 or not in_words(codes.view(np.uint64), last):
                raise ParameterError(
                    f"codes must be rows of {shape[1]} words (uint64) below 2^{self.size.bit_length() - 1}; encode the "
                    "column with its space"
                )
            return codes
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ParameterError("codes must be a 1-d integer array; encode the column with its space")
        if self.outputs - 1 > np.iinfo(codes.dtype).max:
            # Released codes may exceed the type of the input codes.
            codes = codes.astype(np.int64)
        if len(codes) and (int(codes.max()) >= self.size or int(codes.min()) < 0):
            raise ParameterError(f"codes must lie in 0…{self.size - 1}; encode the column with its space")
        return codes

    def transition(self) -> FloatArray:
        """Return A[y, x] = P(y | x), shape (size, size), from the integers that are sampled."""
        self._check_written()
        # A copy, as callers may change it.
        return self._matrix.copy()

    def _check_written(self) -> None:
        if self.size > LARGEST_MATRIX:
            raise ParameterError(
                f"a transition matrix of {self.size} codes is too large (at most {LARGEST_MATRIX}); "
                "law(code) gives one column of it"
            )

    def surrogate(self, f: npt.ArrayLike) -> FloatArray:
        """Return φ_f, the solution of Aᵀφ = f, shape (outputs,), for a function given by its value at every code.

        `ParameterError` unless ``f`` has the shape (size,).
        """
        values = np.asarray(f, dtype=np.float64)
        if values.shape != (self.size,):
            raise ParameterError(f"f must have one value per code, shape ({self.size},)")
        # Released codes may outnumber codes, so that the surrogate has its own length.
        return self.surrogate_at(lambda codes: values[codes], np.arange(self.outputs))


class Mechanism(Channel):
    """A channel calibrated to (ε, δ) for neighbours that differ arbitrarily, with its name and its entry in plans.

    Subclasses are frozen dataclasses whose fields are a shape (a size, a span…), ``epsilon`` and ``delta``; these
    fields are their JSON. A minimal subclass defines `_sample`, `weights`, `loss` and its calibration.
    """

    tag: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names that users may give: the name of its kind, which spaces of several metrics share."""
    label: ClassVar[str] = ""
    """The name that plans show; empty for the tag."""
    metrics: ClassVar[frozenset[str]]
    """Kinds of metric (`Space.metric`) that the mechanism supports."""
    fixed: ClassVar[bool] = False
    """Whether the law is fixed and cannot follow a budget."""
    takes_delta: ClassVar[bool] = False
    """Whether such mechanisms exist only with δ > 0, so that they need a part of a plan's δ."""
    retired: ClassVar[bool] = False
    """Whether only stored plans have the mechanism: new plans use another mechanism of that name."""
    adds_in_group: ClassVar[bool] = False
    """Whether noise is added in the group of codes (Z_k by coordinate, bits by exclusive or), so that it commutes with
    a one-time pad (sampling paper, Lemma III.1)."""

    epsilon: float
    delta: float
    flag_codes: int = 0
    """Number of codes after the values', which a flag randomises: special values and null."""

    @property
    def budget(self) -> Budget:
        """The budget (ε, δ) of the calibration."""
        return Budget(self.epsilon, self.delta)

    @cached_property
    def certified(self) -> Budget:
        """The certified loss of the sampled integers, at the requested δ."""
        # A channel that reveals nothing has no budget to speak of; the smallest float represents 0.
        return Budget(self.loss.epsilon(self.delta) or 5e-324, self.delta)

    def _check_span(self, span: int, largest: int) -> None:
        """Check and set the largest code and the number of codes of noise on 0…span, and check its budget."""
        object.__setattr__(self, "span", check_whole(span, "span", 1, largest))
        object.__setattr__(self, "size", int(span) + 1)
        self._check_budget(self.epsilon, self.delta)

    @property
    def own_metric(self) -> str:
        """The only metric of the mechanism, or the discrete metric if there are several."""
        return min(self.metrics) if len(self.metrics) == 1 else "discrete"

    @classmethod
    def shape_of(cls, space: Space) -> tuple[Any, ...]:
        """Return the fields before ``epsilon`` for a space: its number of codes."""
        return (space.size,)

    @classmethod
    def space_for(cls, space: Space, epsilon: float, delta: float) -> Space:
        """Return the space whose codes a mechanism of a budget randomises: the given one, perhaps on a wider grid."""
        return space

    @classmethod
    def calibrate(cls, space: Space, epsilon: float, delta: float) -> Self:
        """Make the mechanism for a space, with the least noise that meets (ε, δ)."""
        make: Any = cls
        mechanism: Self = make(*cls.shape_of(space), epsilon, delta)
        return mechanism

    def recalibrated(self, space: Space, epsilon: float, delta: float) -> Mechanism:
        """Return a mechanism of this kind for a space and a budget; a fixed mechanism returns itself."""
        return self if self.fixed else type(self).calibrate(space, epsilon, delta)

    @classmethod
    def beside_flag(
        cls, shape: tuple[Any, ...], epsilon: float, delta: float, flag_size: int = 2
    ) -> tuple[ResponseTable, Channel]:
        """Return the integers of a flag of null and the channel of the values, which together meet (ε, δ).

        The flag has ε/2. The values have at least (ε/2, δ), which is valid for every channel by composition. They have
        up to ε if the exact loss of both together allows it: other codes are closer to ``centre`` than to each other.
        """
        make: Any = cls
        # Half of ε for the flag: null against a value costs the flag and the way from the centre.
        flag, low, high = response_table(flag_size, epsilon / 2), epsilon / 2, epsilon
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            fits = make(*shape, middle, delta).loss_beside(flag).delta(epsilon) <= delta
            low, high = (middle, high) if fits else (low, middle)
        return flag, make(*shape, low, delta)

    def before_pad(self, codes: IntArray, stream: ColumnStream, first_row: int = 0) -> IntArray:
        """Return codes ready for a pad, after all operations of the mechanism except noise."""
        return codes

    def sample_padded(self, codes: IntArray, stream: ColumnStream, first_row: int = 0) -> IntArray:
        """Randomise codes under a pad; removing the pad gives the result of `sample` on the plain codes.

        `ParameterError` if the noise is not added in the group of the codes.
        """
        if not self.adds_in_group:
            raise ParameterError(f"mechanism {self.tag} adds no noise in a group and cannot act under a pad")
        return self.sample(codes, stream, first_row)

    def to_json(self) -> dict[str, Any]:
        """Return the mechanism as a JSON object with its tag."""
        return {"mechanism": self.tag, **to_object(self)}

    def __reduce__(self) -> tuple[type[Mechanism], tuple[Any, ...]]:
        # A copy rebuilds its tables: megabytes stay out of pickles.
        return type(self), tuple(getattr(self, f.name) for f in parameters(type(self)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a mechanism back from its fields."""
        return from_object(cls, data, f"mechanism {cls.tag}")

    def _check_budget(self, epsilon: float, delta: float) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(epsilon))
        object.__setattr__(self, "delta", check_delta(delta))


def by_name(families: Iterable[Family]) -> dict[str, Family]:
    """Return families by tag and aliases."""
    return {name: family for family in families for name in (family.tag, *family.aliases)}


def family_for(space: Space, tag: str | None = None) -> Family:
    """Return the family of a tag, by default of the space's mechanism."""
    tag = space.mechanism if tag is None else tag
    fitting = [family for family in MECHANISMS.values() if space.metric in family.metrics and not family.retired]
    families = by_name(fitting)
    if tag not in families:
        names = sorted(next(iter(family.aliases), family.tag) for family in fitting)
        raise ParameterError(f"mechanism must be one of {', '.join(names)} for space {space.tag}")
    return families[tag]


def label_of(mechanism: Mechanism) -> str:
    """Return the name of a mechanism in plans."""
    family = MECHANISMS.get(mechanism.tag)
    return (family.label if family is not None else "") or mechanism.tag


def check_tag(tag: object, column: str, metrics: Collection[str]) -> None:
    """Raise `ParameterError` if a column's tag supports none of ``metrics``; empty metrics mean any."""
    fitting = [f for f in MECHANISMS.values() if not f.retired and (not metrics or f.metrics & set(metrics))]
    families = by_name(fitting)
    if tag not in families:
        raise ParameterError(f"mechanisms names none for column {column!r}; use one of {', '.join(sorted(families))}")


def mechanism_for(space: Space, epsilon: float, delta: float, tag: str | None = None) -> Mechanism:
    """Return the mechanism of a tag, by default of the space, calibrated to (ε, δ); see `family_for`."""
    return family_for(space, tag).calibrate(space, epsilon, delta)


def mechanism_from_json(data: Mapping[str, Any]) -> Mechanism:
    """Read a mechanism back; an unknown tag or field is refused with `PlanError`."""
    tag = data.get("mechanism")
    family = MECHANISMS.get(tag) if isinstance(tag, str) else None
    if family is None:
        raise PlanError(f"unknown mechanism tag; this version knows {', '.join(sorted(MECHANISMS))}")
    try:
        return family.from_json({key: value for key, value in data.items() if key != "mechanism"})
    except ParameterError as error:
        raise PlanError(f"mechanism {tag}: {error}") from None


_NARROW_CATEGORIES = 1001
_NARROW_THRESHOLD = 1 << 16


def response_table(size: int, epsilon: float, delta: float = 0.0) -> ResponseTable:
    """Return the integer table of optimal randomised response, its certified loss at most (ε, δ).

    32-bit words serve while they resolve threshold and ε to about 2^-16 (small size, moderate ε), 64-bit
    words otherwise.
    """
    threshold = response_probability(size, epsilon, delta, 32)
    table = ResponseTable(size, threshold, 32)
    # 32-bit words halve the random stream, as long as rounding the threshold hardly changes ε.
    resolved = threshold * min(1.0, epsilon) >= _NARROW_THRESHOLD and table.keep >= threshold
    if size > _NARROW_CATEGORIES or not resolved:
        threshold = min(response_probability(size, epsilon, delta, 64), (1 << 64) // size)
        table = ResponseTable(size, threshold, 64)
    if size > 1 and (table.keep == threshold or response_loss(table).delta(epsilon) > delta):
        raise ParameterError(f"epsilon={epsilon} is too small for {size} categories; give it a larger share")
    return table


def response_loss(table: ResponseTable) -> ResponseLoss:
    """Return the exact loss |ln(keep/t)|, and δ(ε) by Theorem 8."""
    return ResponseLoss(table.keep, table.threshold, 1 << table.bits)
