"""What is public of a column: its name, type and whether it may hold nulls."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Field:
    """What is public about a column: its name, Arrow type and whether nulls may occur.

    ``order`` has the values of an ordered dictionary of text, in their order: a declaration.
    """

    name: str
    type: pa.DataType
    nullable: bool
    order: tuple[str, ...] = ()
