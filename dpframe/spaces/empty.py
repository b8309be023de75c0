"""The space of a column whose type holds nothing but null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dpframe.spaces.base import Codes, Mask, Space, refuse_object, refuse_type, register
from dpframe.spaces.field import is_open


@register
@dataclass(frozen=True)
class Empty(Space):
    """Only null: every row of every table of the schema is null, so that the column costs nothing.

    Examples
    --------
    >>> Empty().encode([None, None]).tolist()
    [0, 0]
    """

    tag: ClassVar[str] = "empty"
    has_null: ClassVar[bool] = True

    contents = "null and nothing else"

    metric = "discrete"

    size = 1

    natural_type = pa.null()

    def check_type(self, type_: pa.DataType) -> None:
        """Accept types that hold nothing but null."""
        if not is_open(type_):
            raise refuse_type("Empty()", type_, "make the plan from a table with values")

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        return np.zeros(len(array), dtype=self.code_type), None

    def _encode_objects(self, values: Sequence[Any], lenient: bool) -> tuple[Codes, Mask]:
        return super()._encode_objects(values, lenient)[0], None

    def _object_code(self, value: Any, lenient: bool) -> int:
        raise refuse_object("null", "Empty()", "make the plan from a table with values")

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        return pa.nulls(len(codes), type_)

    def labels(self) -> list[Any]:
        """Return None."""
        return [None]
