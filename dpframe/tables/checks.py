"""Checks of a table against a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpframe.errors import ColumnError
from dpframe.plan.plan import Plan
from dpframe.spaces import Space
from dpframe.spaces.field import Field
from dpframe.tables.types import output_type


def check_columns(names: Sequence[str], plan: Plan) -> None:
    """Raise `ColumnError` unless a table's columns are exactly those the plan speaks of."""
    planned = [*plan.names, *plan.passthrough]
    for name in planned:
        if name not in names:
            raise ColumnError("is in the plan but not in the table; make the plan from this table", column=name)
    for name in names:
        if name not in planned and name not in plan.drop:
            raise ColumnError("is in the table but not in the plan; declare it, or pass drop=[…]", column=name)


def located(error: ColumnError, name: str, first_row: int = 0) -> ColumnError:
    """Return the error with the column's name and row position filled in."""
    return error.located(name, first_row) if error.column is None else error


def check_types(fields: Sequence[Field], spaces: Mapping[str, Space]) -> None:
    """Raise `ColumnError` for a column whose type its space cannot hold."""
    for field in fields:
        try:
            spaces[field.name].check_type(output_type(field.type))
        except ColumnError as error:
            raise located(error, field.name) from None
