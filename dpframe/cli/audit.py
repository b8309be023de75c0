"""The command ``dpframe audit``: neighbouring tables of one's own, released under one key and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dpframe.api import audits
from dpframe.plan.plan import Plan

REFUTED = 1


def audit(
    replay: Annotated[
        Path, typer.Option("--replay", help="Parquet or CSV file, directory or quoted glob to change and release.")
    ],
    plan: Annotated[Path, typer.Option("--plan", help="The plan of its release; see dpframe plan.")],
    edits: Annotated[int, typer.Option(min=1, help="Changed tables to try.")] = 200,
    random_state: Annotated[
        int | None, typer.Option(min=0, help="Seed of the edits, to try the same again.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Release neighbouring tables under one key: at most one row may differ, and nothing else. Keeps nothing."""
    found = audits.audit(replay, Plan.read(plan), runs=edits, random_state=random_state)
    if as_json:
        told = {"ok": found.ok, "edits": found.edits, "refused": found.refused, "failures": list(found.failures)}
        typer.echo(json.dumps(told, ensure_ascii=False))
    else:
        typer.echo(str(found))
    if not found.ok:
        raise typer.Exit(REFUTED)
