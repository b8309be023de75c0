"""Spaces: a column's possible values, their metric, and how they are coded as the integers 0…size−1.

A space is a frozen value, public, and checked when it is made. Encoding a row depends only on that row.
Arrow comes in and goes out; NumPy arrays, pandas columns and lists are taken too.
"""

from dpframe.spaces.base import SPACES, Space, space_from_json
from dpframe.spaces.columns import as_arrow
from dpframe.spaces.curves import Curve
from dpframe.spaces.declare import as_space, check_declaration
from dpframe.spaces.empty import Empty
from dpframe.spaces.grids import Integer, Real
from dpframe.spaces.listed import Boolean, Categorical, Ordinal
from dpframe.spaces.nullable import Nullable
from dpframe.spaces.sets import Subset
from dpframe.spaces.times import Datetime
from dpframe.spaces.tuples import Product
from dpframe.spaces.vectors import Vector

__all__ = [
    "SPACES",
    "Boolean",
    "Categorical",
    "Curve",
    "Datetime",
    "Empty",
    "Integer",
    "Nullable",
    "Ordinal",
    "Product",
    "Real",
    "Space",
    "Subset",
    "Vector",
    "as_arrow",
    "as_space",
    "check_declaration",
    "space_from_json",
]
