"""Numbers, types and lists of values to read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

_FEW = 8
"""Values that are named; of more only these."""


def number(x: float) -> str:
    """Return a number to read: three digits, or whole ones; of four digits without a comma, as years are written.

    >>> number(73_271.4), number(2006.0), number(0.35574), number(12.0)
    ('73,271', '2006', '0.356', '12')
    """
    if 1000 <= abs(x) < 1e15:
        return f"{x:,.0f}" if round(abs(x)) >= 10_000 else f"{x:.0f}"
    return f"{x:.3g}"


def listed(values: Collection[Any], noun: str = "values") -> str:
    """Return how many values there are, and the first of them.

    >>> listed("abcdefghij", "items")
    '10 items: a, b, c, d, e, f, g, h and 2 more'
    """
    shown = ", ".join([str(value) for value in values][:_FEW])
    return f"{len(values)} {noun}: {shown}" + (f" and {len(values) - _FEW} more" if len(values) > _FEW else "")


def type_name(type_: pa.DataType) -> str:
    """Return the name of a column's type: of text, which has several, just that.

    >>> type_name(pa.large_string()), type_name(pa.dictionary(pa.int8(), pa.string())), type_name(pa.int64())
    ('text', 'categories of text', 'int64')
    """
    if pa.types.is_dictionary(type_):
        return f"categories of {type_name(type_.value_type)}"
    text = pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)
    return "text" if text else str(type_)
