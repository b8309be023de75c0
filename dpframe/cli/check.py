"""The commands ``dpframe check``, which counts changed values, and ``dpframe audit``, which tries to refute a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dpframe.api import audits
from dpframe.api.curator_check import checked, declared_plan
from dpframe.api.profile import profiled
from dpframe.cli.pipes import Source
from dpframe.cli.shared import AsJson, option
from dpframe.cli.spaces import SpaceOptions, add_space_options, read_spaces
from dpframe.cli.words import to_options_text
from dpframe.errors import ColumnError, ParameterError
from dpframe.plan.plan import Plan
from dpframe.spaces import Real, Space
from dpframe.tables.inputs import open_input

REFUTED_EXIT_CODE = 1
"""Exit code of a refuted claim."""
UNJUDGED_EXIT_CODE = 4
"""Exit code of an audit that does not see a planted fault."""


def audit(
    plan: Annotated[Path, typer.Option("--plan", help="The plan of the releases; see dpframe plan.")],
    replay: Annotated[
        Path | None, option("Parquet or CSV file, directory or quoted glob to change and release under one key.")
    ] = None,
    minutes: Annotated[
        float | None, option("Time for releases of made-up tables, without --replay; 5 by default.")
    ] = None,
    edits: Annotated[int, typer.Option(min=1, help="Changed tables to try with --replay.")] = 200,
    random_state: Annotated[int | None, option("Seed, to try the same again.", min=0)] = None,
    as_json: AsJson = False,
) -> None:
    """Try to refute a plan by neighbouring tables. Keeps nothing.

    Made-up tables are released for some minutes, and bound the plan's loss from below; a planted fault is tried first.
    With --replay changes of your table are released under one key: at most one row may differ, and nothing else.
    """
    if replay is None:
        audited = audits.audit(Plan.read(plan), minutes=minutes, random_state=random_state)
        typer.echo(audited.to_json() if as_json else str(audited))
        if not audited.ok:
            raise typer.Exit(REFUTED_EXIT_CODE if audited.refuted else UNJUDGED_EXIT_CODE)
        return
    if minutes is not None:
        raise ParameterError("minutes is for made-up tables; leave it out with replay, or give edits")
    report = audits.audit(replay, Plan.read(plan), runs=edits, random_state=random_state)
    if as_json:
        facts = {"ok": report.ok, "edits": report.edits, "refused": report.refused, "failures": list(report.failures)}
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        typer.echo(str(report))
    # Scripts stop at the exit code, and need not read the report.
    if not report.ok:
        raise typer.Exit(REFUTED_EXIT_CODE)


def check(
    source: Source,
    plan: Annotated[Path | None, option("The plan of its release; see dpframe plan.", "--plan")] = None,
    spaces: Annotated[
        Path | None, option("Declared spaces to try instead, before there is a plan.", "--spaces")
    ] = None,
    space: SpaceOptions = None,
    drop: Annotated[list[str] | None, option("A column to be left out, without a plan; repeat.")] = None,
    privacy_id: Annotated[str | None, option("The column that names each row's person, without a plan.")] = None,
) -> None:
    """Look at the data: values that a plan clips, truncates or refuses, only for the curator's eyes. Writes nothing.

    Without --plan, --spaces and --space it profiles the file: types, nulls, extremes, and the spaces that they suggest.
    Ends with 1 if a release would be refused.
    """
    table = open_input(source)
    has_spaces = spaces is not None or bool(space)
    if plan is not None and has_spaces:
        raise ParameterError("spaces are already decided by --plan; leave --spaces and --space out")
    if plan is not None and (drop or privacy_id is not None):
        raise ParameterError("--drop and --privacy-id are already decided by --plan; leave them out")
    if plan is None and not has_spaces:
        if privacy_id is not None:
            raise ParameterError("a profile counts rows; give --privacy-id with --spaces, or leave it out")
        typer.echo(to_options_text(str(profiled(table.without(drop or [])))))
        return
    declared = (
        None
        if plan is not None
        else add_space_options({} if spaces is None else dict(read_spaces(spaces)), space or [])
    )
    release_plan = Plan.read(plan) if plan is not None else declared_plan(table, declared, drop or (), privacy_id)
    # Text is read as decimals also for spaces of whole numbers, so that the report counts the values to be rounded.
    typed_table = table.typed(
        {name: _to_decimal_space(column_space) for name, column_space in release_plan.spaces.items()},
        release_plan.imputed,
    )
    report = checked(typed_table.read(table.names), release_plan, tried=declared is None)
    typer.echo(to_options_text(str(report)))
    if report.refused:
        raise typer.Exit(REFUTED_EXIT_CODE)


def _to_decimal_space(space: Space) -> Space:
    """Return a space of real numbers for a space of whole numbers, and other spaces unchanged."""
    try:
        space.check_type(_REALS.natural_type)
    except ColumnError:
        return space
    return _REALS if space.is_whole else space


_REALS = Real(0.0, 1.0)
"""A space whose type is decimals; its bounds are not used."""
