"""Checks of a table against a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpframe.errors import ColumnError
from dpframe.plan.plan import Plan
from dpframe.spaces import Space
from dpframe.spaces.field import Field, is_open
from dpframe.tables.table import Table
from dpframe.tables.types import output_type


def check_columns(names: Sequence[str], plan: Plan) -> None:
    """Raise `ColumnError` unless a table's columns are exactly those the plan speaks of."""
    planned = [*plan.names, *plan.passthrough]
    for name in planned:
        if name not in names:
            raise ColumnError(
                "is in the plan but not in the table; mend the table if it should have it, or make the plan from this "
                "table",
                column=name,
            )
    for name in names:
        if name not in planned and name not in plan.drop:
            raise ColumnError("is in the table but not in the plan; declare it, or pass drop=[…]", column=name)


def located(error: ColumnError, name: str, first_row: int = 0) -> ColumnError:
    """Return the error with the column's name and row position filled in."""
    return error.located(name, first_row) if error.column is None else error


def check_released_types(table: Table, plan: Plan) -> None:
    """Raise `ColumnError` for a column whose type cannot hold what noise beyond its bounds makes of it."""
    wide = [column.name for column in plan.columns if column.mechanism.widens]
    for field in table.fields(wide):
        try:
            if not is_open(field.type):
                plan[field.name].released.check_type(output_type(field.type))
        except ColumnError:
            raise ColumnError(
                f"has type {field.type}, which cannot hold the values beyond its bounds that gaussian noise releases; "
                "convert the column to a wider type, or use laplace or square_wave",
                column=field.name,
            ) from None


def check_types(fields: Sequence[Field], spaces: Mapping[str, Space]) -> None:
    """Raise `ColumnError` for a column whose type its space cannot hold."""
    for field in fields:
        try:
            spaces[field.name].check_type(output_type(field.type))
        except ColumnError as error:
            raise located(error, field.name) from None
