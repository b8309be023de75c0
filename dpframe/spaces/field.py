"""The public facts of a column: its name, its type and whether it may have nulls."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Field:
    """The public facts of a column: its name, its Arrow type and whether nulls may occur.

    ``order`` has the values of an ordered dictionary of text, in their order: a declaration. ``of_day`` says that its
    durations are times of day, counted from midnight; ``decimal`` has the precision and scale of
    its numbers. ``empty`` says that the type holds nothing but null, ``written`` that values of any kind are
    written as text, ``listed`` that they are the entries of a pandas categorical, whose dtype follows the data.
    """

    name: str
    type: pa.DataType
    nullable: bool
    order: tuple[str, ...] = ()
    of_day: bool = False
    decimal: tuple[int, int] | None = None
    written: bool = False
    listed: bool = False
    empty: bool = False


def is_open(type_: pa.DataType) -> bool:
    """Return whether a type leaves the kind of values open: objects, or categories that may be any object."""
    return bool(pa.types.is_null(type_.value_type if pa.types.is_dictionary(type_) else type_))
