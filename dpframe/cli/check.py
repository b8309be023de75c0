"""The command ``dpframe check``: what a plan clamps and cuts of a table, only for its curator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpframe.api.curator_check import check as checked
from dpframe.cli.pipes import Source
from dpframe.errors import ColumnError
from dpframe.plan.plan import Plan
from dpframe.spaces import Real, Space
from dpframe.tables.inputs import open_input


def check(
    source: Source,
    plan: Annotated[Path, typer.Option("--plan", help="The plan of its release; see dpframe plan.")],
) -> None:
    """Look at the data: what a plan clamps, cuts and cannot hold, only for the curator's eyes. Writes nothing."""
    table = open_input(source)
    ready = Plan.read(plan)
    spaces = {name: _with_decimals(space) for name, space in ready.spaces.items()}
    typer.echo(str(checked(table.typed(spaces, ready.imputed).read(table.names), ready)))


def _with_decimals(space: Space) -> Space:
    """Return a space of the type to read text as: of whole numbers real ones, as rounding is what is to be seen."""
    try:
        space.check_type(_REALS.natural_type)
    except ColumnError:
        return space
    return _REALS if space.is_whole else space


_REALS = Real(0.0, 1.0)
