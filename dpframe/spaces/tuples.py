"""Tuples of values: the space of columns that are randomised together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError, ParameterError, PlanError
from dpframe.spaces.base import Codes, Mask, Space, space_from_json
from dpframe.spaces.declare import as_space


@dataclass(frozen=True, init=False)
class Product(Space):
    """The tuples of values of several spaces: two tuples are at distance 1 unless they are equal.

    It is the space of a *group* of columns, not of one column: it is in no registry, and values are encoded by the
    columns' own spaces. A tuple's code is the mixed-radix number of its values' codes, the last running
    fastest.

    Parameters
    ----------
    *spaces
        Two or more spaces, or their declarations (see `as_space`).

    Raises
    ------
    ParameterError
        For fewer than two spaces, or a product within a product.

    Examples
    --------
    >>> pair = Product(["F", "M"], ["low", "mid", "high"])
    >>> pair.size, pair.labels()[4], pair.distance(("F", "low"), ("M", "low"))
    (6, ('M', 'mid'), 1.0)
    """

    spaces: tuple[Space, ...]

    tag: ClassVar[str] = "product"

    def __init__(self, *spaces: Any) -> None:
        parts = tuple(as_space(space) for space in spaces)
        if len(parts) < 2:
            raise ParameterError("a product needs two or more spaces")
        if any(isinstance(space, Product) for space in parts):
            raise ParameterError("a product holds no products; list all their spaces")
        if any(space.code_words for space in parts):
            raise ParameterError("a product holds no sets; leave their columns out of groups")
        object.__setattr__(self, "spaces", parts)

    @property
    def contents(self) -> str:
        """Allowed values of the columns, as text."""
        return " × ".join(f"({space.contents})" for space in self.spaces)

    metric = "product"

    mechanism = "gamma_diagonal"

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each space."""
        return tuple(space.size for space in self.spaces)

    @property
    def size(self) -> int:
        """Number of tuples."""
        return math.prod(self.sizes)

    diameter = 1.0

    min_distance = 1.0

    def labels(self) -> list[Any]:
        """Return every tuple of values, in the order of the codes."""
        return list(product(*(space.labels() for space in self.spaces)))

    def join(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return the tuples' codes from the codes of their values, one array per space."""
        codes = np.ravel_multi_index([np.asarray(column, dtype=np.int64) for column in columns], self.sizes)
        return np.asarray(codes, dtype=self.code_type)

    def split(self, codes: npt.NDArray[Any]) -> tuple[Codes, ...]:
        """Return the codes of the values, one array per space, from the tuples' codes."""
        parts = np.unravel_index(np.asarray(codes, dtype=np.int64), self.sizes)
        return tuple(part.astype(space.code_type) for part, space in zip(parts, self.spaces, strict=True))

    def contains(self, value: Any) -> bool:
        """Return whether a tuple's values belong to their spaces."""
        fits = isinstance(value, tuple | list) and len(value) == len(self.spaces)
        return fits and all(space.contains(part) for space, part in zip(self.spaces, value, strict=True))

    def distance(self, a: Any, b: Any) -> float:
        """Return 0 for equal tuples of the product, 1 for others."""
        if not all(isinstance(value, tuple | list) and len(value) == len(self.spaces) for value in (a, b)):
            raise ParameterError(f"values of a product are tuples of {len(self.spaces)}")
        pairs = zip(self.spaces, a, b, strict=True)
        return float(any(np.ptp(space.encode([x, y]).astype(np.int64)) for space, x, y in pairs))

    def code_distance(self, x: int, y: int) -> float:
        """Return 0 for equal codes, 1 for others."""
        return float(x != y)

    def to_json(self) -> dict[str, Any]:
        """Return the space as a JSON object with its tag."""
        return {"space": self.tag, "spaces": [space.to_json() for space in self.spaces]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Space:
        """Return the space from its JSON fields."""
        parts = data.get("spaces")
        if set(data) - {"space"} != {"spaces"} or not isinstance(parts, list):
            raise PlanError("space product has the field spaces, a list of spaces")
        if not all(isinstance(part, Mapping) for part in parts):
            raise PlanError("space product has the field spaces, a list of spaces")
        return cls(*(space_from_json(part) for part in parts))

    def __repr__(self) -> str:
        return f"Product({', '.join(map(repr, self.spaces))})"

    def __reduce__(self) -> tuple[type[Product], tuple[Space, ...]]:
        return type(self), self.spaces

    def _no_column(self) -> NoReturn:
        raise ColumnError("holds one value a row, and Product is for several columns; name these in groups=")

    @property
    def natural_type(self) -> pa.DataType:
        """Raise `ColumnError`: no column holds tuples."""
        self._no_column()

    def check_type(self, type_: pa.DataType) -> None:
        """Raise `ColumnError`: no column holds tuples."""
        self._no_column()

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        self._no_column()

    def _object_code(self, value: Any, lenient: bool) -> int:
        self._no_column()

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        self._no_column()
