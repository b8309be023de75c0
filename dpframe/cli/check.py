"""The command ``dpframe check``: what a plan clamps and cuts of a table, only for its curator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpframe.api.curator_check import check as checked
from dpframe.cli.pipes import Source
from dpframe.plan.plan import Plan
from dpframe.tables.inputs import open_input


def check(
    source: Source,
    plan: Annotated[Path, typer.Option("--plan", help="The plan of its release; see dpframe plan.")],
) -> None:
    """Look at the data: what a plan clamps, cuts and cannot hold, only for the curator's eyes. Writes nothing."""
    table = open_input(source)
    ready = Plan.read(plan)
    typer.echo(str(checked(table.typed(ready.spaces, ready.imputed).read(table.names), ready)))
