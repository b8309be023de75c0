"""The command ``dpframe synthesize``: rows for plain tools, drawn from a released file."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from dpframe.api.synthetic_parquet import drawn_file
from dpframe.cli.pipes import PIPE, Source, Target, describe_replacement, target_file
from dpframe.cli.shared import AsJson, option
from dpframe.cli.terminal import progress


def synthesize(
    source: Source,
    target: Target,
    rows: Annotated[int | None, option("Fresh rows to draw.  [default: one for each released row]", min=1)] = None,
    random_state: Annotated[int | None, option("Seed, to draw the same again.", min=0)] = None,
    drop: Annotated[list[str] | None, option("A column to leave out; repeat.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw synthetic rows from a released file, with about the counts and means of its estimates."""
    start, replacement = time.perf_counter(), describe_replacement(target)
    with target_file(target) as path, progress("drawing") as report_progress:
        count, estimates = drawn_file(source, path, rows, random_state, drop=drop or (), progress=report_progress)
    # Fidelity lists single columns first, and then their pairs.
    pairs = estimates.fidelity()["shows"].iloc[len(estimates.plan.names) :]
    if as_json:
        facts = {"target": str(target), "rows": count, "epsilon_spent": 0}
        facts |= {"pairs": len(pairs), "pairs_that_show": int(pairs.sum())}
        typer.echo(json.dumps(facts), err=target == PIPE)
        return
    seconds = time.perf_counter() - start
    typer.echo(
        f"{target}: {count:,} synthetic rows in {seconds:.1f} s{replacement}; this spends no budget", err=target == PIPE
    )
    if not pairs.all():
        typer.echo(_NOISE_NOTE.format(shown=int(pairs.sum()), pairs=len(pairs), source=source), err=target == PIPE)


_NOISE_NOTE = (
    "{shown} of {pairs} pairs of columns show dependence beyond noise; these rows hold hardly any dependence of the "
    "others: dpframe estimate {source} fidelity lists the pairs"
)
