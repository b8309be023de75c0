"""Numbers and lists of values to read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

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
