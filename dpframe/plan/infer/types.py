"""Spaces that a column's type determines."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from dpframe.plan.infer.from_data import FINDERS, texts
from dpframe.spaces import Boolean, Datetime, Integer, Nullable, Space
from dpframe.spaces.field import Field


def from_type(column: Field) -> Space | None:
    """Return the space that a type determines."""
    space: Space
    if pa.types.is_boolean(column.type):
        space = Boolean()
    elif pa.types.is_int8(column.type):
        space = Integer(-128, 127)
    elif pa.types.is_uint8(column.type):
        space = Integer(0, 255)
    elif column.of_day:
        space = Datetime("00:00", "23:59", "min")
    else:
        return None
    return Nullable(space) if column.nullable else space


def any_space(column: Field) -> Space:
    """Return a space that a column's type allows, whatever its values: a stand-in for the one that is to be found."""
    type_ = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    finder = next((find for fits, find in FINDERS if fits(type_)), texts)
    return from_type(replace(column, nullable=False)) or finder(type_, ())
