"""The commands ``dpframe check`` and ``dpframe audit``: what a plan clips and cuts of a table, and what it may lose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dpframe.api import audits
from dpframe.api.curator_check import checked, declared_plan
from dpframe.cli.pipes import Source
from dpframe.cli.shared import AsJson, option
from dpframe.cli.spaces import OwnSpaces, read_spaces, with_own
from dpframe.cli.words import in_options
from dpframe.errors import ColumnError, ParameterError
from dpframe.plan.plan import Plan
from dpframe.spaces import Real, Space
from dpframe.tables.inputs import open_input

REFUTED = 1


def audit(
    replay: Annotated[
        Path, typer.Option("--replay", help="Parquet or CSV file, directory or quoted glob to change and release.")
    ],
    plan: Annotated[Path, typer.Option("--plan", help="The plan of its release; see dpframe plan.")],
    edits: Annotated[int, typer.Option(min=1, help="Changed tables to try.")] = 200,
    random_state: Annotated[int | None, option("Seed of the edits, to try the same again.", min=0)] = None,
    as_json: AsJson = False,
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


def check(
    source: Source,
    plan: Annotated[Path | None, option("The plan of its release; see dpframe plan.", "--plan")] = None,
    spaces: Annotated[
        Path | None, option("Declared spaces to try instead, before there is a plan.", "--spaces")
    ] = None,
    space: OwnSpaces = None,
    drop: Annotated[list[str] | None, option("A column to be left out, without a plan; repeat.")] = None,
    privacy_id: Annotated[str | None, option("The column that names each row's person, without a plan.")] = None,
) -> None:
    """Look at the data: what a plan clamps, cuts and cannot hold, only for the curator's eyes. Writes nothing.

    Ends with 1 where a release would be refused.
    """
    table = open_input(source)
    if (plan is None) == (spaces is None and not space):
        raise ParameterError("give --plan, or --spaces and --space to try before there is one, e.g. --space age=0,120")
    if plan is not None and (drop or privacy_id is not None):
        raise ParameterError("--drop and --privacy-id are already decided by --plan; leave them out")
    declared = None if plan is not None else with_own({} if spaces is None else dict(read_spaces(spaces)), space or [])
    ready = Plan.read(plan) if plan is not None else declared_plan(table, declared, drop or (), privacy_id)
    typed = table.typed({name: _with_decimals(one) for name, one in ready.spaces.items()}, ready.imputed)
    found = checked(typed.read(table.names), ready, tried=declared is None)
    typer.echo(in_options(str(found)))
    if found.refused:
        raise typer.Exit(REFUTED)


def _with_decimals(space: Space) -> Space:
    """Return a space of the type to read text as: of whole numbers real ones, as rounding is what is to be seen."""
    try:
        space.check_type(_REALS.natural_type)
    except ColumnError:
        return space
    return _REALS if space.is_whole else space


_REALS = Real(0.0, 1.0)
