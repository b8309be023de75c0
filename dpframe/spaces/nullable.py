"""Null as an additional value of a space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ParameterError, PlanError
from dpframe.spaces.arrays import replaced
from dpframe.spaces.base import Codes, Mask, Space, forwarded, register, space_from_json
from dpframe.spaces.declare import TWO_NUMBERS, as_space, two_numbers
from dpframe.spaces.object_reading import Objects


@register
@dataclass(frozen=True, init=False, repr=False)
class Nullable(Space):
    """A space with null as an additional value, at the diameter from all others, and equally protected.

    Parameters
    ----------
    space
        The space of the values that are present, or its declaration (see `as_space`); it is held as ``inner``.

    Raises
    ------
    ParameterError
        If ``space`` is no space, or nullable itself.

    Examples
    --------
    >>> from dpframe.spaces import Categorical
    >>> Nullable(Categorical(["F", "M"])).encode(["M", None]).tolist()
    [1, 2]

    Plain bounds take the type of the column, as without `Nullable`:

    >>> import pandas as pd, dpframe as dpf
    >>> frame = pd.DataFrame({"cost": [0.5, None], "age": [40, 41]})
    >>> plan = dpf.plan(frame, epsilon=1, spaces={name: Nullable((0, 120)) for name in frame}, delta=0)
    >>> plan["cost"].space.contents, plan["age"].space.contents
    ('0 to 120, in steps of 0.00183, or missing', '0 to 120, or missing')
    """

    inner: Space

    tag: ClassVar[str] = "nullable"
    has_null: ClassVar[bool] = True
    declared_bounds: ClassVar[tuple[Any, Any] | None] = None

    def __init__(self, space: Any) -> None:
        if two_numbers(space):
            raise ParameterError(TWO_NUMBERS)
        inner = as_space(space)
        if inner.has_null:
            raise ParameterError("space is nullable already")
        object.__setattr__(self, "inner", inner)
        # No field: a space of whole numbers is equal to another one, however it was declared.
        if isinstance(space, tuple):
            object.__setattr__(self, "declared_bounds", space)

    def __repr__(self) -> str:
        return f"Nullable({self.inner!r})"

    def in_type(self, type_: pa.DataType | None) -> Nullable:
        """Return the space for a column of this type, which decides between whole and real numbers for plain bounds."""
        plain = type_ is not None and self.declared_bounds is not None
        return Nullable(as_space(self.declared_bounds, type_) if plain else self.inner)

    @property
    def contents(self) -> str:
        """Allowed values of a column, as text."""
        return f"{self.inner.contents}, or missing"

    @property
    def metric(self) -> str:
        """Metric of the values; a discrete metric has null as an additional category."""
        if self.inner.metric == "discrete":
            return "discrete"
        return "special line" if self.inner.flag_codes else f"nullable {self.inner.metric}"

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
        """Words of a code: the words of the values, and a bit for null."""
        return -(-self.null.bit_length() // 64) if self.inner.code_words else 0

    @property
    def released(self) -> Nullable:
        """The space of released values."""
        return Nullable(self.inner.released)

    def is_null(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of null codes."""
        equal = codes == (self.code_array([self.null]) if self.code_words else self.null)
        return np.asarray(equal.all(axis=1) if self.code_words else equal)

    @property
    def mechanism(self) -> str:
        """``optimal`` if the values have it, which handles null; else the values' mechanism with a null flag."""
        value_mechanism = self.inner_space.mechanism
        return (
            value_mechanism
            if self.metric == "discrete" or value_mechanism == "optimal"
            else f"nullable_{value_mechanism}"
        )

    def in_decimals(self, precision: int, scale: int) -> Space:
        """Return the space around the inner one in decimals."""
        return Nullable(self.inner.in_decimals(precision, scale))

    def in_durations(self) -> Space:
        """Return the space around the inner one in durations."""
        return Nullable(self.inner.in_durations())

    @property
    def inner_space(self) -> Space:
        """The space of the values without special values and null."""
        return self.inner.inner_space

    @property
    def flag_codes(self) -> int:
        """Number of special values, and one for null."""
        return self.inner.flag_codes + 1

    def around(self, grid: Space) -> Space:
        """Return a space of the same special values and null around another space of values."""
        return Nullable(self.inner.around(grid))

    output_type = forwarded("inner.output_type")
    has_words = forwarded("inner.has_words")
    special_labels = forwarded("inner.special_labels")
    special_code = forwarded("inner.special_code")
    is_numeric = forwarded("inner.is_numeric")
    is_listed = forwarded("inner.is_listed")
    is_whole = forwarded("inner.is_whole")
    is_time = forwarded("inner.is_time")
    holds_sets = forwarded("inner.holds_sets")
    holds_vectors = forwarded("inner.holds_vectors")
    noun = forwarded("inner.noun")
    instead = forwarded("inner.instead")
    step = forwarded("inner.step")
    unit = forwarded("inner.unit")
    object_type = forwarded("inner.object_type")
    natural_type = forwarded("inner.natural_type")
    check_type = forwarded("inner.check_type")
    instants = forwarded("inner.instants")
    durations = forwarded("inner.durations")
    _known = forwarded("inner._known")

    @property
    def diameter(self) -> float:
        """Diameter of the values, which is also the distance between null and any value."""
        return self.inner.diameter

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        return self._with_null(*self.inner._encode(array, lenient=True))

    def _encode_known(self, objects: Sequence[Any]) -> tuple[Codes, Mask]:
        return self._with_null(*self.inner._encode_known(objects))

    def _object_code(self, value: Any, lenient: bool) -> int:
        return self.inner._object_code(value, lenient=True)

    def _encode_objects(self, values: Sequence[Any], lenient: bool) -> tuple[Codes, Mask]:
        return self._with_null(*self.inner._encode_objects(values, lenient=True))

    def _with_null(self, codes: Codes, missing: Mask) -> tuple[Codes, Mask]:
        codes = codes.astype(self.code_type, copy=False)
        if self.code_words > self.inner.code_words:
            codes = np.pad(codes, ((0, 0), (0, 1)))
        if missing is None:
            return codes, None
        if self.code_words:
            return np.where(missing[:, None], self.code_array([self.null]), codes), None
        return replaced(codes, missing, self.null), None

    def _inside(self, codes: Codes) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Return the codes of the values, with 0 for null, and a mask of nulls."""
        is_null = self.is_null(codes)
        # Values under null slots must have no effect.
        if self.code_words:
            value_codes = np.where(is_null[:, None], codes.dtype.type(0), codes)[:, : self.inner.code_words]
        else:
            value_codes = replaced(codes, is_null, 0)
        return value_codes.astype(self.inner.code_type, copy=False), is_null

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        value_codes, is_null = self._inside(codes)
        return self.inner._decode(value_codes, type_, is_null)

    def _objects(self, codes: Codes, missing: Mask) -> Objects:
        return self.inner._objects(*self._inside(codes))

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
        """Return the inner numbers; null has an arbitrary number."""
        if self.code_words:
            return None
        return self.inner.numbers(np.where(codes == self.null, 0, codes))

    def to_json(self) -> dict[str, Any]:
        """Return the space as a JSON object with its tag."""
        return {"space": self.tag, "inner": self.inner.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Space:
        """Return the space from its JSON fields."""
        if set(data) != {"inner"} or not isinstance(data["inner"], Mapping):
            raise PlanError("space nullable has the field inner, a space")
        return cls(space_from_json(data["inner"]))
