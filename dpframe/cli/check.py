"""The command ``dpframe check``: what a plan clamps and cuts of a table, for its curator alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpframe.api.curator_check import check as checked
from dpframe.io.parquet_reader import ParquetInput
from dpframe.plan.plan import Plan


def check(
    source: Annotated[
        Path, typer.Argument(help="Parquet file, directory or quoted glob, not yet sanitised.", show_default=False)
    ],
    plan: Annotated[Path, typer.Option("--plan", help="The plan of its release; see dpframe plan.")],
) -> None:
    """Look at the data: what a plan clamps, cuts and cannot hold, for the curator's eyes alone. Writes nothing."""
    table = ParquetInput.open(source)
    typer.echo(str(checked(table.read(table.names), Plan.read(plan))))
