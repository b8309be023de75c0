"""Numbers, types and lists of values to read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

_MAX_EXAMPLES = 8
"""Limit on the values that are named."""


def number(x: float) -> str:
    """Return a number as text: three digits, or whole numbers; four-digit numbers have no comma, like years.

    >>> number(73_271.4), number(2006.0), number(0.35574), number(12.0)
    ('73,271', '2006', '0.356', '12')
    """
    if 1000 <= abs(x) < 1e15:
        return f"{x:,.0f}" if round(abs(x)) >= 10_000 else f"{x:.0f}"
    return f"{x:.3g}"


def listed(values: Collection[Any], noun: str = "values") -> str:
    """Return the number of values and the first few as text.

    >>> listed("abcdefghij", "items")
    '10 items: a, b, c, d, e, f, g, h and 2 more'
    >>> listed("a")
    '1 value: a'
    """
    examples = ", ".join([str(value) for value in values][:_MAX_EXAMPLES])
    return f"{len(values)} {noun.removesuffix('s') if len(values) == 1 else noun}: {examples}" + (
        f" and {len(values) - _MAX_EXAMPLES} more" if len(values) > _MAX_EXAMPLES else ""
    )


def type_name(type_: pa.DataType) -> str:
    """Return the name of a column's type; all types of text are called text.

    >>> type_name(pa.large_string()), type_name(pa.dictionary(pa.int8(), pa.string())), type_name(pa.int64())
    ('text', 'categories of text', 'int64')
    """
    if pa.types.is_dictionary(type_):
        return f"categories of {type_name(type_.value_type)}"
    is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)
    return "text" if is_text else str(type_)
