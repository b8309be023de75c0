"""The command ``dpframe ledger``: make a ledger, show the remaining budget, and list all spends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from dpframe.cli.groups import Commands
from dpframe.cli.shared import AsJson, argument, option
from dpframe.cli.terminal import to_one_line
from dpframe.errors import ParameterError
from dpframe.ledger import job_keys
from dpframe.ledger.account import OpenAccount
from dpframe.ledger.currencies import enough_for, yearly
from dpframe.ledger.ledger import Ledger
from dpframe.plan.plan import Plan

app = typer.Typer(
    help="Keep the budget of datasets: what there is, what was spent, what is left.",
    cls=Commands,
    epilog="Example: dpframe ledger create ledger.sqlite --dataset people --epsilon 40 --delta 1e-4",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

File = Annotated[Path, argument("The ledger's file.", metavar="LEDGER")]
Dataset = Annotated[str, option("Name of a dataset.")]


@app.command(epilog="Example: dpframe ledger create ledger.sqlite --dataset people --epsilon 40 --delta 1e-4")
def create(
    file: File,
    dataset: Dataset,
    epsilon: Annotated[float, option("Total budget ε of all its releases.")],
    delta: Annotated[float, typer.Option(help="Total budget δ of all its releases.")] = 0.0,
    accounting: Annotated[
        str | None,
        option('How releases add up: "gaussian" (default with delta above 0) or "basic" (for unshuffled rows).'),
    ] = None,
    part: Annotated[
        list[str] | None, option("A public part of the rows; repeat it for each. Parts do not add up.")
    ] = None,
    moving: Annotated[bool, typer.Option("--moving", help="A replaced row may move between parts.")] = False,
    unit: Annotated[
        str,
        typer.Option(
            help='Whom promises are for: "row", "10 rows" (the most of one person), or person:COLUMN; "add_remove row" '
            "if rows are added or removed, which only dpframe query answers."
        ),
    ] = "row",
    as_json: AsJson = False,
) -> None:
    """Register a dataset with its total budget, for good; the file is made if it does not exist."""
    parts = tuple(part or ())
    Ledger(file).create(dataset, epsilon, delta, accounting=accounting, parts=parts, moving=moving, unit=unit)
    _print_summary(Ledger(file), as_json)


@app.command(epilog="Example: dpframe ledger show ledger.sqlite --plan plan.json")
def show(
    file: File,
    plan: Annotated[Path | None, option("Say for how many releases under this plan each dataset is enough.")] = None,
    dataset: Annotated[str | None, option("Only this dataset.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show each dataset's remaining budget, the cost of a year of releases like its last, and interrupted jobs."""
    if plan is not None and as_json:
        raise ParameterError("--plan is answered in words; leave --json out")
    release_plan = None if plan is None else Plan.read(plan)
    ledger = Ledger(file)
    _print_summary(ledger, as_json, dataset)
    if release_plan is not None:
        candidates = ledger.datasets() if dataset is None else [dataset]
        # A plan costs nothing comparable in datasets that count other units, e.g. persons in place of rows.
        names = [name for name in candidates if ledger.unit(name) == release_plan.unit]
        if not names:
            raise ParameterError(
                f"--plan promises for {release_plan.unit.words}, and no dataset of the ledger adds that up"
            )
        for name in names:
            cost = OpenAccount(ledger, name).cost(release_plan)
            typer.echo(
                f"{to_one_line(name)}: releases under this plan: "
                f"{enough_for(ledger.room(name, cost.budget, cost.step))}"
            )


@app.command(epilog="Example: dpframe ledger history ledger.sqlite --dataset people")
def history(
    file: File,
    dataset: Annotated[str | None, option("Only this dataset.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show every spend: who, when (UTC), its purpose, its amount, and the total so far."""
    table = Ledger(file).history(dataset)
    if as_json:
        typer.echo(_to_json(table))
        return
    if table.empty:
        typer.echo(f"{file}: nothing was spent yet")
        return
    table["when"] = table["when"].dt.strftime("%Y-%m-%d %H:%M:%S")
    _print_table(table.rename(columns=lambda name: name.replace("cumulative_", "total ")))


@app.command(epilog="Example: dpframe ledger forget ledger.sqlite --dataset people --job release.parquet")
def forget(
    file: File,
    dataset: Dataset,
    job: Annotated[str, option("The file that the job was to write.")],
) -> None:
    """Delete the key of an interrupted job: it can never be repeated, and its spend stays."""
    ledger = Ledger(file)
    # Jobs are named by absolute paths. Users type such a name as it is printed, or a relative path.
    pending_jobs = {(p.dataset, p.name) for p in job_keys.pending(ledger)}
    name = job if (dataset, job) in pending_jobs else job_keys.job_name(job)
    job_keys.forget(ledger, dataset, name)
    typer.echo(f"{name}: its key is deleted; what was spent stays spent")


_GAUSSIAN_NOTE = (
    "Gaussian accounting adds up the squares of mu: many small releases cost less than the sum of epsilon, and "
    "spent and left epsilon do not add up to the total."
)


def _print_summary(ledger: Ledger, as_json: bool, dataset: str | None = None) -> None:
    table, spends, jobs = ledger.summary(), ledger.history(dataset), job_keys.pending(ledger)
    if dataset is not None:
        table, jobs = table.loc[[dataset]], [job for job in jobs if job.dataset == dataset]
    if as_json:
        rows = json.loads(_to_json(table.reset_index()))
        for row in rows:
            row["interrupted"] = [job.name for job in jobs if job.dataset == row["dataset"]]
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    _print_table(table.rename(columns=lambda name: name.replace("_", " ")).reset_index())
    if "gaussian" in set(table["accounting"]):
        typer.echo(_GAUSSIAN_NOTE)
    for name, row in table.iterrows():
        if row["delta"] == 0:
            typer.echo(
                f"{to_one_line(name)}: its total has delta=0, so that only releases with delta=0 fit; the default has "
                "more, and --delta in a new dataset allows it"
            )
        if row["accounting"] == "gaussian" and row["left_delta"] == 0 < row["left_epsilon"]:
            typer.echo(
                f"{to_one_line(name)}: its delta is used up, so that what is left of epsilon is for delta=0 only"
            )
    # A dictionary keeps the last of equal keys: the last spend of each dataset.
    for name, release_id in dict(zip(spends["dataset"], spends["release_id"], strict=True)).items():
        last_spend = ledger.find(release_id)
        if last_spend is not None:
            yearly_cost = yearly(last_spend.amount.epsilon, last_spend.amount.delta, last_spend.step)
            typer.echo(f"{to_one_line(name)}: {yearly_cost}; {enough_for(ledger.more(release_id))}")
    for name in table.index:
        for part in ledger.parts(name):
            typer.echo(f"{to_one_line(name)}, part {to_one_line(part)}: {ledger.remaining(name, part)} left")
    for job in jobs:
        forget_command = to_one_line(job_keys.forget_command(ledger, job.dataset, job.name))
        typer.echo(
            f"{to_one_line(job.name)} ({to_one_line(job.dataset)}): runs, or was interrupted; the same command again "
            f"costs nothing more, and where the input has changed {forget_command} gives it up"
        )


def _to_json(table: pd.DataFrame) -> str:
    # The writer of pandas rounds to 15 places, and a delta may be smaller.
    rows = table.assign(when=table["when"].map(lambda t: t.isoformat())) if "when" in table else table
    return json.dumps(rows.to_dict(orient="records"), ensure_ascii=False)


def _print_table(table: pd.DataFrame) -> None:
    # Names are anybody's text: a line break in one would forge a line of the table.
    for name in table.columns:
        if not pd.api.types.is_numeric_dtype(table[name]):
            table[name] = table[name].map(to_one_line)
    typer.echo(table.to_string(index=False, float_format=lambda x: f"{x:.6g}"))
