"""The command ``dpframe forecast``: errors of a release before any value is read."""

from __future__ import annotations

from typing import Annotated

import typer

from dpframe.api.expectation import expected
from dpframe.cli.options import takes_plan_options
from dpframe.cli.pipes import Source
from dpframe.cli.shared import option
from dpframe.cli.words import to_options_text
from dpframe.plan.options import PlanOptions
from dpframe.tables.inputs import open_input


@takes_plan_options
def forecast(
    source: Source,
    epsilon: Annotated[list[float], option("Budget ε, replace-one, per person; repeat to compare.")],
    delta: Annotated[float | None, option("Budget δ.  [default: min(1e-6, rows^-1.5)]")] = None,
    *,
    options: PlanOptions,
) -> None:
    """Say what to expect of a release, from the schema and the number of rows: reads no value and costs nothing."""
    table = open_input(source)
    texts = [str(expected(table, one_epsilon, delta, options)) for one_epsilon in epsilon]
    typer.echo(to_options_text("\n".join(texts)))
