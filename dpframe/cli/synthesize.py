"""The command ``dpframe synthesize``: rows for plain tools, drawn from a released file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from dpframe.api.synthetic_parquet import synthesize_parquet
from dpframe.cli.pipes import Source


def synthesize(
    source: Source,
    target: Annotated[Path, typer.Argument(help="Parquet file to write, or CSV by the ending.", show_default=False)],
    rows: Annotated[
        int | None,
        typer.Option(min=1, help="Fresh rows to draw.  [default: one for each released row]", show_default=False),
    ] = None,
    random_state: Annotated[
        int | None, typer.Option(min=0, help="Seed, to draw the same again.", show_default=False)
    ] = None,
) -> None:
    """Draw synthetic rows from a released file, in which plain counts and means are about those of the estimates."""
    start = time.perf_counter()
    count = synthesize_parquet(source, target, rows, random_state)
    typer.echo(f"{target}: {count:,} synthetic rows in {time.perf_counter() - start:.1f} s; this spends no budget")
