"""Nullable spaces, and the shorthands by which spaces are declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError, ParameterError, PlanError
from dpframe.spaces.base import (
    Codes,
    Mask,
    Space,
    register,
    space_from_json,
)
from dpframe.spaces.grids import Datetime, Integer, Real
from dpframe.spaces.listed import Categorical, Ordinal

__all__ = ["Nullable", "as_space", "check_declaration"]


@register
@dataclass(frozen=True)
class Nullable(Space):
    """A space with null as one more value, at the diameter from all others, and protected like them.

    Parameters
    ----------
    inner
        The space of the values that are present.

    Raises
    ------
    ParameterError
        If ``inner`` is no space, or nullable itself.

    Examples
    --------
    >>> Nullable(Categorical(["F", "M"])).encode(["M", None]).tolist()
    [1, 2]
    """

    inner: Space

    tag: ClassVar[str] = "nullable"

    def __post_init__(self) -> None:
        if _two_numbers(self.inner):
            raise ParameterError(_TWO_NUMBERS)
        object.__setattr__(self, "inner", as_space(self.inner))
        if isinstance(self.inner, Nullable):
            raise ParameterError("inner is nullable already")

    @property
    def metric(self) -> str:
        """Discrete if the values are (null is then one more category)."""
        return "discrete" if self.inner.metric == "discrete" else f"nullable {self.inner.metric}"

    @cached_property
    def size(self) -> int:
        """Number of codes; the last one is null."""
        return self.inner.size + 1

    @property
    def null(self) -> int:
        """The code of null."""
        return self.inner.size

    @property
    def points(self) -> int:
        """Number of values, null among them."""
        return self.inner.points + 1

    @property
    def code_words(self) -> int:
        """Words of a code: those of the values, and a bit for null."""
        return -(-self.null.bit_length() // 64) if self.inner.code_words else 0

    @property
    def released(self) -> Nullable:
        """The space by which released values are read."""
        return Nullable(self.inner.released)

    def is_null(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return where codes are null's."""
        found = codes == (self.code_array([self.null]) if self.code_words else self.null)
        return np.asarray(found.all(axis=1) if self.code_words else found)

    @property
    def mechanism(self) -> str:
        """``optimal`` where the values have it, which knows of null's distance; else that of the metric."""
        return self.inner.mechanism if self.inner.mechanism == "optimal" else super().mechanism

    @property
    def step(self) -> float:
        """Step of the values."""
        return self.inner.step

    @property
    def unit(self) -> str:
        """Unit of the values."""
        return self.inner.unit

    @property
    def diameter(self) -> float:
        """Diameter of the values, which is also null's distance to any of them."""
        return self.inner.diameter

    def _natural(self) -> pa.DataType:
        return self.inner.natural_type

    def check_type(self, type_: pa.DataType) -> None:
        """Accept what the inner space accepts."""
        self.inner.check_type(type_)

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        return self._with_null(*self.inner._encode(array, lenient=True))

    @property
    def object_type(self) -> pa.DataType:
        """Type that the values are read as."""
        return self.inner.object_type

    def _known(self, array: pa.Array) -> pa.Array:
        return self.inner._known(array)

    def _object_code(self, value: Any, lenient: bool) -> int:
        return self.inner._object_code(value, lenient=True)

    def _encode_objects(self, values: Sequence[Any], lenient: bool) -> tuple[Codes, Mask]:
        return self._with_null(*self.inner._encode_objects(values, lenient=True))

    def _with_null(self, codes: Codes, missing: Mask) -> tuple[Codes, Mask]:
        codes = codes.astype(self.code_type, copy=False)
        if self.code_words > self.inner.code_words:
            codes = np.pad(codes, ((0, 0), (0, 1)))
        if missing is not None:
            codes = np.where(missing[:, None] if self.code_words else missing, self.code_array([self.null]), codes)
        return codes, None

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        null = self.is_null(codes)
        # Whatever lies under a null slot must say nothing.
        inside = np.where(null[:, None] if self.code_words else null, codes.dtype.type(0), codes)
        if self.code_words:
            inside = inside[:, : self.inner.code_words]
        inside = inside.astype(self.inner.code_type, copy=False)
        return self.inner._decode(inside, type_, null)

    def labels(self) -> list[Any]:
        """Return the inner labels and None."""
        return [*self.inner.labels(), None]

    def _holds(self, value: Any, code: int) -> bool:
        return code == self.null or self.inner._holds(value, code)

    def distance(self, a: Any, b: Any) -> float:
        """Return the inner distance, or the diameter between null and a value."""
        x, y = self.code_list(self.encode([a, b]))
        return self.code_distance(x, y) if self.null in (x, y) else self.inner.distance(a, b)

    def code_distance(self, x: int, y: int) -> float:
        """Return the inner distance, or the diameter between null and a value."""
        if self.null in (x, y):
            return 0.0 if x == y else self.diameter
        return self.inner.code_distance(x, y)

    def numbers(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
        """Return the inner numbers (anything where null)."""
        if self.code_words:
            return None
        return self.inner.numbers(np.where(codes == self.null, 0, codes))

    @property
    def is_time(self) -> bool:
        """Whether the values are times."""
        return self.inner.is_time

    def instants(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the inner instants."""
        return self.inner.instants(numbers)

    def durations(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the inner durations."""
        return self.inner.durations(numbers)

    def to_json(self) -> dict[str, Any]:
        """Return the space as a JSON object with its tag."""
        return {"space": self.tag, "inner": self.inner.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Space:
        """Read the inner space back."""
        if set(data) != {"inner"} or not isinstance(data["inner"], Mapping):
            raise PlanError("space nullable has the field inner, a space")
        return cls(space_from_json(data["inner"]))


_TWO_NUMBERS = (
    'a list of two numbers may mean bounds or categories; write bounds as the tuple (0, 120) or {"lower": 0, '
    '"upper": 120}, and categories as Categorical([0, 1]) or {"categories": [0, 1]}'
)


def _two_numbers(spec: Any) -> bool:
    """Tell whether a declaration is a list of two numbers, which JSON has for bounds and for categories alike."""
    return (
        isinstance(spec, list)
        and len(spec) == 2
        and all(isinstance(v, int | float | np.number | Decimal) and not isinstance(v, bool) for v in spec)
    )


def _is_number(type_: pa.DataType | None) -> bool:
    t = pa.types
    return type_ is not None and (t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_))


def _bounds(lower: Any, upper: Any, type_: pa.DataType | None) -> Space:
    """Make the space that bounds mean for a column of this type (or for their own, if it is unknown)."""
    t = pa.types
    if type_ is not None and t.is_dictionary(type_):
        type_ = type_.value_type
    if type_ is None:
        guesses: list[tuple[Callable[[Any], bool], pa.DataType]] = [
            (lambda v: isinstance(v, int | np.integer), pa.int64()),
            (lambda v: isinstance(v, int | float | np.number), pa.float64()),
        ]
        type_ = next((t for fits, t in guesses if fits(lower) and fits(upper)), pa.date32())
    if t.is_integer(type_):
        return Integer(lower, upper)
    if t.is_floating(type_):
        return Real.fitting(lower, upper, type_)
    if t.is_date(type_):
        return Datetime(lower, upper, "D")
    if t.is_timestamp(type_) or t.is_duration(type_):
        return _times(lower, upper)
    raise ColumnError(f"has type {type_}, for which bounds mean nothing; declare its categories instead")


def _times(lower: Any, upper: Any) -> Space:
    """Return the coarsest grid of at least a thousand steps: finer ones are finer than any noise."""
    for resolution in ("D", "h", "min", "s"):
        try:
            space = Datetime(lower, upper, resolution)
        except ParameterError:
            if resolution == "s":
                raise
            continue
        if space.size > 1000:
            break
    return space


def as_space(spec: Any, type_: pa.DataType | None = None) -> Space:
    """Return the space a declaration means.

    Parameters
    ----------
    spec
        A `Space`; bounds ``(lower, upper)``; a list of categories; a pandas ``CategoricalDtype``
        (`Ordinal` when ordered); or a JSON object: bounds as ``{"lower":…, "upper":…}``, categories as
        ``{"categories": […]}``, or a space by its tag, ``{"space":…}``; ``{"space": "nullable", "inner":…}`` takes
        any of these within.
    type_
        The column's Arrow type, which decides what bounds mean.

    Raises
    ------
    ParameterError
        If the declaration is none of these, or a list of two numbers for a numeric column, which may be meant as
        bounds.
    PlanError
        For an unknown tag or field of a JSON object.

    Examples
    --------
    >>> as_space((0, 120)), as_space((0.0, 1.0)).size
    (Integer(lower=0, upper=120, step=1), 65537)
    >>> as_space({"space": "nullable", "inner": {"lower": 0, "upper": 120}})
    Nullable(inner=Integer(lower=0, upper=120, step=1))
    """
    if isinstance(spec, Space):
        return spec
    if isinstance(spec, Mapping):
        return _from_object(spec, type_)
    if isinstance(spec, tuple) and len(spec) == 2:
        return _bounds(*spec, type_)
    if hasattr(spec, "categories") and hasattr(spec, "ordered"):
        if spec.categories is None:
            raise ParameterError("a CategoricalDtype without categories declares nothing; list them")
        return Ordinal(tuple(spec.categories)) if spec.ordered else Categorical(tuple(spec.categories))
    if isinstance(spec, list):
        if _two_numbers(spec) and _is_number(type_):
            raise ParameterError(_TWO_NUMBERS)
        return Categorical(tuple(spec))
    raise ParameterError(
        'a space is declared by bounds, (0, 120) or {"lower": 0, "upper": 120}, by a list of categories, '
        "a CategoricalDtype or a Space"
    )


def _from_object(spec: Mapping[str, Any], type_: pa.DataType | None) -> Space:
    """Return the space that a JSON object means."""
    fields = set(spec)
    if fields == {"lower", "upper"}:
        return _bounds(spec["lower"], spec["upper"], type_)
    if fields == {"categories"}:
        return space_from_json({"space": Categorical.tag, **spec})
    if fields == {"space", "inner"} and spec["space"] == Nullable.tag:
        inner = spec["inner"]
        if _two_numbers(inner):
            raise ParameterError(_TWO_NUMBERS)
        return Nullable(as_space(inner, type_))
    if "space" not in fields:
        raise ParameterError(
            'a space in JSON is {"lower": 0, "upper": 120}, {"categories": ["F", "M"]}, a list of categories, or has '
            'a tag, {"space": …}'
        )
    return space_from_json(spec)


def check_declaration(spec: Any) -> None:
    """Raise what `as_space` raises for a declaration that no column's type makes right."""
    if isinstance(spec, Mapping) and spec.get("space") == Nullable.tag and "inner" in spec:
        check_declaration(spec["inner"])
        return
    bounds = isinstance(spec, Mapping) and set(spec) == {"lower", "upper"}
    if not bounds:
        as_space(spec)
