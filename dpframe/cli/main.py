"""The ``dpframe`` command: files in, files out.

Exit codes: 0 done, 1 verification failed or a check found what is refused, 2 bad input (one line on standard
error), 3 budget exceeded, 70 a fault of dpframe itself, 130 stopped. Only ``estimate``, ``demo`` and ``query`` print
numbers, those of the release or of an answer with noise; no value of the data is ever printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from dpframe.api import verbs
from dpframe.api import verify as proving
from dpframe.api.budgets import done_before
from dpframe.api.expectation import expected
from dpframe.api.expected_errors import expected_of
from dpframe.api.ledger.account import OpenAccount
from dpframe.api.ledger.currencies import difference, enough_for, yearly
from dpframe.api.ledger.ledger import Account
from dpframe.api.options import PlanOptions
from dpframe.api.planning import Request
from dpframe.api.report.report import Report
from dpframe.api.targets import TargetPlans, check_alone
from dpframe.cli.check import audit, check
from dpframe.cli.demo import demo
from dpframe.cli.estimate import estimate
from dpframe.cli.groups import EXAMPLE, GroupedCommands, GroupedOptions
from dpframe.cli.ledger import app as ledger_app
from dpframe.cli.options import takes_plan_options
from dpframe.cli.pipes import (
    PIPE,
    Source,
    Target,
    check_files,
    in_place_of,
    is_piped,
    named,
    target_file,
    text_target,
)
from dpframe.cli.query import query
from dpframe.cli.record import record, with_record
from dpframe.cli.shared import AsJson, Dataset, LedgerFile, account_of, option
from dpframe.cli.spaces import spaces
from dpframe.cli.stopping import loaded
from dpframe.cli.synthesize import synthesize
from dpframe.cli.terminal import plain, progress
from dpframe.cli.vertical import app as vertical_app
from dpframe.cli.words import in_options
from dpframe.disk import JSON, WEB_PAGE, atomic
from dpframe.errors import BudgetExceeded, DpframeError, NotSanitizedError, ParameterError, check_whole, name_list
from dpframe.plan.plan import Plan
from dpframe.plan.words import KEPT, introduction, table_text
from dpframe.tables.files import sidecar
from dpframe.tables.info import ReleaseInfo
from dpframe.tables.inputs import format_of, open_input
from dpframe.tables.released import read_info

app = typer.Typer(
    name="dpframe",
    cls=GroupedCommands,
    epilog=EXAMPLE,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(ledger_app, name="ledger")
app.add_typer(vertical_app, name="vertical")

REFUTED, BAD_INPUT, OVERDRAWN, FAULT, STOPPED = 1, 2, 3, 70, 130


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dpframe {import_module('dpframe').__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Make tables about people safe to share: every row randomised under differential privacy."""


Epsilon = Annotated[float | None, option("Budget ε, replace-one, per person.")]
Delta = Annotated[
    float | None,
    typer.Option(help="Budget δ; 0 is pure, without credit for shuffling.  [default: min(1e-6, rows^-1.5)]"),
]
Part = Annotated[
    str | None,
    option("The part of the dataset that the file is, by a public key; no person may be in two."),
]


@app.command(
    cls=GroupedOptions,
    epilog="Example: dpframe plan people.parquet --epsilon 1 --spaces spaces.json --output plan.json",
)
@takes_plan_options
def plan(
    source: Source,
    epsilon: Epsilon = None,
    delta: Delta = None,
    output: Annotated[Path | None, option("Write the plan here.", "--output", "-o")] = None,
    target: Annotated[
        list[str] | None,
        option(
            "Standard error a statistic may have, COLUMN=ERROR or COLUMN,COLUMN=ERROR, repeated; instead of "
            "--epsilon: the least ε that meets all is found."
        ),
    ] = None,
    max_epsilon: Annotated[float | None, option("The most that --target may ask for.  [default: 10]")] = None,
    *,
    rows: Annotated[
        int | None,
        option(
            "Make the plan for so many rows, e.g. the fewest of any night: it takes more, and refuses fewer.  "
            "[default: those of the file]"
        ),
    ] = None,
    options: PlanOptions,
    ledger: LedgerFile = None,
    dataset: Dataset = None,
    part: Part = None,
    html: Annotated[Path | None, option("Write a page to try out other ε and numbers of rows here.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what it means for one person, what it costs, what would help.")
    ] = False,
    expect: Annotated[
        bool, typer.Option("--expect", help="Say what to expect, from the schema and the rows' number; plan nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Plan how a file would be sanitised, and write the plan to reuse or edit."""
    if epsilon is None and not target:
        raise ParameterError("give --epsilon, e.g. --epsilon 1, or --target, e.g. --target region=0.01")
    if expect:
        if any((output, html, target, max_epsilon, ledger, rows)):
            raise ParameterError(
                "--expect makes no plan and costs nothing; leave --output, --html, --target, --rows and --ledger out"
            )
        typer.echo(in_options(str(expected(open_input(source), epsilon, delta, options))))
        return
    if rows is not None:  # before anything is spent
        check_whole(rows, "--rows", of="rows")
        if target:
            raise ParameterError("--target is for the rows of the file; leave --rows out, or give --epsilon")
    reach, account = None, account_of(ledger, dataset, part)
    with contextlib.ExitStack() as stack:
        # Before anything is spent.
        file, web = (
            None if path is None else stack.enter_context(atomic(text_target(path, open_input(source), endings)))
            for path, endings in ((output, JSON), (html, WEB_PAGE))
        )
        if target or max_epsilon is not None:
            check_alone(epsilon, target or None, account)
            reach = TargetPlans.of(open_input(source), target_of(target or []), max_epsilon, delta, options)
            made = reach.plan
        else:
            made = verbs.plan(source, epsilon, delta, ledger=account, **options)
            made = made if rows is None else made.replan(rows)
        if file is not None:
            replaced = in_place_of(output or PIPE)
            file.write(f"{made.to_json(indent=2)}\n".encode())
            typer.echo(f"wrote {output}: the plan, for dpframe sanitize --plan{replaced}", err=True)
        if web is not None:
            web.write(made.page(**files_of(source, output)).encode())
            typer.echo(f"wrote {html}: a page to try out other ε and numbers of rows", err=True)
    spent = _inference_spent(made, output)
    if as_json:
        typer.echo("\n".join(spent), err=True, nl=bool(spent))
        typer.echo(made.to_json())
        return
    said = [*map(in_options, introduction(made)), *([str(expected_of(made))] if made.n and made.columns else [])]
    typer.echo("\n".join([*spent, *said, "", table_text(made)]))
    if explain:
        typer.echo("\n".join(["", str(made.explain()), "", KEPT, *made.lines()]))
    elif reach is not None:
        typer.echo(f"\nTargets, and what half of each would ask for:\n{_shown(reach.table())}")


def files_of(source: Path, plan: Path | None) -> dict[str, str]:
    """Return the names of files for the lines to copy of a plan's page; of a pipe none is known."""
    names = {} if is_piped(source) else {"source": str(source)}
    return names if plan is None else {**names, "plan_file": str(plan)}


def _inference_spent(made: Plan, output: Path | None) -> list[str]:
    """Say first what making the plan has cost."""
    if made.inferred is None:
        return []
    again = f"planning again spends epsilon={made.inferred.budget.epsilon:.4g} again"
    kept = f"reuse {output}" if output else "keep the plan with --output"
    return [f"Inference looked at the data: {kept} (dpframe sanitize --plan); {again}"]


def target_of(texts: list[str]) -> dict[Any, float]:
    """Read COLUMN=ERROR, or COLUMN,COLUMN=ERROR; `ParameterError` for anything else."""
    found: dict[Any, float] = {}
    for text in texts:
        names, equals, error = text.rpartition("=")
        try:
            value = float(error)
        except ValueError:
            equals = ""
        if not equals or not names:
            raise ParameterError("--target must be COLUMN=ERROR, e.g. --target region=0.01 or --target sex,income=0.02")
        columns = tuple(names.split(","))
        found[columns if len(columns) > 1 else names] = value
    return found


def _shown(table: Any) -> str:
    shown: str = table.to_string(float_format=lambda x: f"{x:.4g}", na_rep="out of reach")
    return shown


@app.command(
    cls=GroupedOptions,
    epilog="Example: dpframe sanitize people.parquet release.parquet --epsilon 1 --spaces spaces.json",
)
@takes_plan_options
def sanitize(
    source: Source,
    target: Target,
    epsilon: Epsilon = None,
    delta: Delta = None,
    plan: Annotated[Path | None, option("Plan file instead of options.")] = None,
    *,
    options: PlanOptions,
    ledger: LedgerFile = None,
    dataset: Dataset = None,
    part: Part = None,
    run: Annotated[
        str | None,
        option(
            "A public name of this run of a nightly job, e.g. its date: one that is done is not done again, and "
            "costs nothing."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Randomise every row of a file into a new file that may be given away."""
    ready, account = None if plan is None else Plan.read(plan), account_of(ledger, dataset, part, run)
    if ledger is not None:
        check_files(source, target)
        before = done_before(target, Request(epsilon, delta, ready, options), OpenAccount.of(account, None, runs=True))
        if before is not None:
            typer.echo(before.info.to_json() if as_json else before.line)
            return
    start, replaced = time.perf_counter(), in_place_of(target)
    with target_file(target) as path, progress("randomising") as shown:
        info = verbs.sanitize(
            source,
            path,
            epsilon,
            delta,
            plan=ready,
            ledger=account,
            progress=shown,
            **options,
        )
    piped = target == PIPE
    if as_json:
        typer.echo(info.to_json(), err=piped)
        return
    typer.echo(f"{target}: {_rows(info)} in {time.perf_counter() - start:.1f} s{replaced}", err=piped)
    if format_of(target).apart:
        typer.echo(f"{sidecar(target)}: what the release says of itself; those who get the rows need it to estimate")
    for line in info.lines():
        typer.echo(in_options(line), err=piped)
    if account is not None:
        typer.echo(f"Ledger: {_left(account, info.plan)}; {_nights(info.plan)}")
    else:
        typer.echo(_UNCOUNTED, err=piped)


_UNCOUNTED = "No ledger: another release of these people adds its epsilon to this one's (dpframe ledger)"


def _left(account: Account, plan: Plan) -> str:
    """Say what a dataset has left, and for how many more releases like the last: beforehand, not when it is used up."""
    left = account.ledger.remaining(account.dataset, account.part)
    cost = OpenAccount(account.ledger, account.dataset, account.part).cost(plan)
    more = enough_for(account.ledger.room(account.dataset, cost.budget, cost.step, account.part))
    return f"{plain(account.dataset)} has epsilon={left.epsilon:.4g}, delta={left.delta:.4g} left; {more}"


def _nights(plan: Plan) -> str:
    """Say what a year of such jobs costs: those that reuse inferred spaces pay only for the release of rows."""
    inferred = plan.inferred
    if inferred is None or inferred.receipt is None:
        return yearly(plan.epsilon, plan.delta, plan.step)
    if inferred.step is not None:
        return yearly(plan.released.epsilon, plan.released.delta, plan.step_beside_inference)
    rest = difference(plan.release, inferred.budget)
    return yearly(rest.epsilon, rest.delta)


def _part(info: ReleaseInfo) -> str:
    """Return which columns of a release a file has left out, if any."""
    return f", without {name_list(info.left_out)}" if info.left_out else ""


def _rows(info: ReleaseInfo) -> str:
    each = "" if info.plan.privacy_id is None else f" ({info.plan.contributions} for each person)"
    return (f"{info.n:,} rows" if info.rows is None else f"{info.n:,} of {info.rows:,} rows") + each


@app.command(epilog="Example: dpframe inspect release.parquet --html report.html")
def inspect(
    source: Source,
    html: Annotated[Path | None, option("Write a report as one HTML page here.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what the promise means and how it is kept.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a released file says about itself."""
    table = open_input(source)
    if html is not None:
        text_target(html, table, WEB_PAGE)
    if table.text is None:
        if html is not None:
            raise NotSanitizedError(f"{source} is not a release, so there is nothing to report; leave --html out")
        if as_json:
            typer.echo(json.dumps({"release": False, "n": table.n, "columns": table.names}))
            return
        typer.echo(f"{source}: not a release; {table.n:,} rows, columns {', '.join(table.names)}")
        return
    info = read_info(table.text)
    if html is not None:
        Report(info, source).save(html)
        typer.echo(f"wrote {html}: the report on {source} as one HTML page", err=as_json)
    if as_json:
        typer.echo(info.to_json())
        return
    more = ["", str(info.explain())] if explain else []
    typer.echo(
        "\n".join(
            [
                f"{source}: a release of {_rows(info)}{_part(info)}",
                *map(in_options, info.lines()),
                *more,
                "",
                table_text(info.plan),
            ]
        )
    )
    if not explain:
        typer.echo("\nNumbers: dpframe estimate. More: dpframe inspect --explain")


@app.command(epilog="Example: dpframe verify release.parquet")
def verify(
    source: Source,
    record: Annotated[Path | None, option("A record of the release, to be compared with it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Prove what a released file claims, and that its rows are those released; or what a plan (.json) claims."""
    certificate = proving.verify(source)
    if record is not None and certificate.ok:
        certificate = with_record(certificate, source, record)
    typer.echo(certificate.to_json() if as_json else f"{source}\n{certificate}")
    for failure in certificate.failures:
        typer.echo(f"dpframe: {source}: {' '.join(failure.split())}", err=True)
    if not certificate.ok:
        raise typer.Exit(REFUTED)


app.command(epilog="Example: dpframe spaces people.parquet --output spaces.json")(spaces)
app.command(epilog="Example: dpframe record release.parquet -o record.yaml --curator 'Statistics Office'")(record)
app.command(epilog="Example: dpframe audit --replay people.parquet --plan plan.json")(audit)
app.command(epilog="Example: dpframe check people.parquet --plan plan.json")(check)
app.command(epilog="Example: dpframe estimate release.parquet mean age --by sex")(estimate)
app.command(epilog="Example: dpframe query people.parquet mean age --epsilon 0.5 --spaces spaces.json")(query)
app.command(epilog="Example: dpframe synthesize release.parquet rows.parquet")(synthesize)
app.command(epilog="Example: dpframe demo --rows 20000")(demo)


def _one_line_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"dpframe: warning: {in_options(str(message))}", err=True)


@cache
def commands() -> Any:
    """Return the commands; typer reads the options of all of them off their signatures, once in a process."""
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; errors are one line, and never a traceback with values in it."""
    warnings.showwarning = _one_line_warning
    try:
        loaded()
        code = commands()(arguments, standalone_mode=False)
        if code == STOPPED:  # typer's own answer to an interruption, without a word
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except DpframeError as error:
        _fail(in_options(" ".join(str(error).split())), OVERDRAWN if isinstance(error, BudgetExceeded) else BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        _fail(
            "stopped; nothing was written. Under a ledger it may be paid for: the same command again "
            "costs nothing more",
            STOPPED,
        )
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        # Of a path that no file can have, some versions of typer raise what the system said.
        if isinstance(error, UnicodeEncodeError) and any(map(_unwritable, arguments or sys.argv[1:])):
            _fail("an argument holds a character that no file's name can have; write it anew", BAD_INPUT)
        show = getattr(error, "format_message", None)
        if show is not None:
            context = getattr(error, "ctx", None)
            if context is not None and show() == context.get_help():  # without arguments help is all there is to say
                typer.echo(show(), err=True)
                sys.exit(BAD_INPUT)
            _fail(f"{show().removesuffix('.')}; see {_command(context)} --help", BAD_INPUT)
        # The message of a foreign exception may quote a value of the data: only its kind is shown.
        _fail(f"internal error ({type(error).__name__}); please report it", FAULT)


def _command(context: Any) -> str:
    """Return the command that a context is of, by the name that it is installed under."""
    names: list[str] = []
    while context is not None and context.parent is not None:
        names, context = [context.info_name, *names], context.parent
    return " ".join(["dpframe", *names])


def _unwritable(argument: str) -> bool:
    try:
        os.fsencode(argument)
    except UnicodeEncodeError:
        return True
    return False


def _fail(message: str, code: int) -> None:
    typer.echo(f"dpframe: {named(message)}", err=True)
    sys.exit(code)
