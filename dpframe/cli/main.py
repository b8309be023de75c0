"""The ``dpframe`` command: files in, files out.

Exit codes: 0 done, 1 verification failed or a check found values that a release refuses, 2 bad input (one line on
standard error), 3 budget exceeded, 70 a fault of dpframe, 130 stopped. Only ``estimate``, ``demo`` and ``query`` print
numbers: estimates from the release, or answers with noise. No command prints a value of the data.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from dpframe.api import verbs
from dpframe.api.targets import TargetPlans, check_alone
from dpframe.cli.check import REFUTED_EXIT_CODE, audit, check
from dpframe.cli.csv_options import takes_csv_options
from dpframe.cli.demo import demo
from dpframe.cli.estimate import estimate
from dpframe.cli.forecast import forecast
from dpframe.cli.groups import EXAMPLE, GroupedCommands, GroupedOptions
from dpframe.cli.ledger import app as ledger_app
from dpframe.cli.options import takes_plan_options
from dpframe.cli.pipes import (
    PIPE,
    Source,
    Target,
    check_files,
    check_text_target,
    describe_replacement,
    is_piped,
    name_pipes,
    target_file,
)
from dpframe.cli.query import query
from dpframe.cli.record import record, with_record
from dpframe.cli.shared import AsJson, Dataset, LedgerFile, open_account, option
from dpframe.cli.spaces import spaces
from dpframe.cli.stopping import STOPPED_EXIT_CODE, restore_interrupt
from dpframe.cli.synthesize import synthesize
from dpframe.cli.tables import plan_tables, sanitize_tables
from dpframe.cli.terminal import progress, to_one_line
from dpframe.cli.vertical import app as vertical_app
from dpframe.cli.words import to_options_text
from dpframe.disk import JSON, WEB_PAGE, atomic
from dpframe.errors import BudgetExceeded, DpframeError, NotSanitizedError, ParameterError, check_whole, name_list
from dpframe.ledger.account import OpenAccount
from dpframe.ledger.currencies import difference, enough_for, yearly
from dpframe.ledger.ledger import Account
from dpframe.plan.options import PlanOptions
from dpframe.plan.plan import Plan
from dpframe.plan.words import KEPT, introduction, table_text
from dpframe.proofs import verify as proving
from dpframe.release.budgets import done_before
from dpframe.release.expected_errors import expected_of
from dpframe.release.info import ReleaseInfo
from dpframe.release.planning import Request
from dpframe.release.reader import read_info
from dpframe.report.overview import release_overview
from dpframe.report.report import Report
from dpframe.tables.files import sidecar
from dpframe.tables.inputs import format_of, open_input

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

BAD_INPUT_EXIT_CODE, OVERDRAWN_EXIT_CODE, FAULT_EXIT_CODE = 2, 3, 70


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"dpframe {import_module('dpframe').__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
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
@takes_csv_options
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
    as_json: AsJson = False,
) -> None:
    """Plan how a file would be sanitised, and write the plan to reuse or edit."""
    if epsilon is None and not target:
        raise ParameterError("give --epsilon, e.g. --epsilon 1, or --target, e.g. --target region=0.01")
    # Wrong options are refused before inference spends anything.
    if rows is not None:
        check_whole(rows, "--rows", of="rows")
        if target:
            raise ParameterError("--target is for the rows of the file; leave --rows out, or give --epsilon")
    target_result, account = None, open_account(ledger, dataset, part)
    with contextlib.ExitStack() as stack:
        # The files are opened first: a path that cannot be written must not cost a budget.
        plan_file, page_file = (
            None if path is None else stack.enter_context(atomic(check_text_target(path, open_input(source), endings)))
            for path, endings in ((output, JSON), (html, WEB_PAGE))
        )
        if target or max_epsilon is not None:
            check_alone(epsilon, target or None, account)
            target_result = TargetPlans.of(open_input(source), parse_targets(target or []), max_epsilon, delta, options)
            release_plan = target_result.plan
        else:
            release_plan = verbs.plan(source, epsilon, delta, ledger=account, **options)
            release_plan = release_plan if rows is None else release_plan.replan(rows)
        if plan_file is not None:
            replaced = describe_replacement(output or PIPE)
            plan_file.write(f"{release_plan.to_json(indent=2)}\n".encode())
            typer.echo(f"wrote {output}: the plan, for dpframe sanitize --plan{replaced}", err=True)
        if page_file is not None:
            page_file.write(release_plan.page(**page_files(source, output)).encode())
            typer.echo(f"wrote {html}: a page to try out other ε and numbers of rows", err=True)
    cost_lines = _describe_inference_cost(release_plan, output)
    if as_json:
        typer.echo("\n".join(cost_lines), err=True, nl=bool(cost_lines))
        typer.echo(release_plan.to_json())
        return
    lines = [
        *map(to_options_text, introduction(release_plan)),
        *([str(expected_of(release_plan))] if release_plan.n and release_plan.columns else []),
    ]
    typer.echo("\n".join([*cost_lines, *lines, "", table_text(release_plan)]))
    if explain:
        typer.echo("\n".join(["", str(release_plan.explain()), "", KEPT, *release_plan.lines()]))
    elif target_result is not None:
        typer.echo(f"\nTargets, and what half of each would ask for:\n{_format_table(target_result.table())}")


def page_files(source: Path, plan: Path | None) -> dict[str, str]:
    """Return the names of files for the commands on a plan's page; standard input has no name."""
    names = {} if is_piped(source) else {"source": str(source)}
    return names if plan is None else {**names, "plan_file": str(plan)}


def _describe_inference_cost(release_plan: Plan, output: Path | None) -> list[str]:
    """Return a line on the budget that inference spent on this plan; no line if it spent none."""
    if release_plan.inferred is None:
        return []
    repeat_cost = f"planning again spends epsilon={release_plan.inferred.budget.epsilon:.4g} again"
    remedy = f"reuse {output}" if output else "keep the plan with --output"
    return [f"Inference looked at the data: {remedy} (dpframe sanitize --plan); {repeat_cost}"]


def parse_targets(texts: list[str]) -> dict[Any, float]:
    """Read COLUMN=ERROR, or COLUMN,COLUMN=ERROR; `ParameterError` for anything else."""
    targets: dict[Any, float] = {}
    for text in texts:
        # The last sign, as the name of a column may have one.
        names, equals, error = text.rpartition("=")
        try:
            value = float(error)
        except ValueError:
            equals = ""
        if not equals or not names:
            raise ParameterError("--target must be COLUMN=ERROR, e.g. --target region=0.01 or --target sex,income=0.02")
        columns = tuple(names.split(","))
        targets[columns if len(columns) > 1 else names] = value
    return targets


def _format_table(table: Any) -> str:
    text: str = table.to_string(float_format=lambda x: f"{x:.4g}", na_rep="out of reach")
    return text


@app.command(
    cls=GroupedOptions,
    epilog="Example: dpframe sanitize people.parquet release.parquet --epsilon 1 --spaces spaces.json",
)
@takes_csv_options
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
    release_plan, account = None if plan is None else Plan.read(plan), open_account(ledger, dataset, part, run)
    if ledger is not None:
        # The same run may have been done already: it must neither spend again nor draw other noise.
        check_files(source, target)
        earlier_release = done_before(
            target, Request(epsilon, delta, release_plan, options), OpenAccount.of(account, None, runs=True)
        )
        if earlier_release is not None:
            typer.echo(earlier_release.info.to_json() if as_json else earlier_release.line)
            return
    start, replacement = time.perf_counter(), describe_replacement(target)
    with target_file(target) as path, progress("randomising") as report_progress:
        info = verbs.sanitize(
            source,
            path,
            epsilon,
            delta,
            plan=release_plan,
            ledger=account,
            progress=report_progress,
            **options,
        )
    # Standard output holds the release itself, so that messages go to standard error.
    to_pipe = target == PIPE
    if as_json:
        typer.echo(info.to_json(), err=to_pipe)
        return
    typer.echo(f"{target}: {_describe_rows(info)} in {time.perf_counter() - start:.1f} s{replacement}", err=to_pipe)
    # CSV has no place for the description, which is in a second file.
    if format_of(target).apart:
        typer.echo(f"{sidecar(target)}: what the release says of itself; those who get the rows need it to estimate")
    for line in info.lines():
        typer.echo(to_options_text(line), err=to_pipe)
    if account is not None:
        typer.echo(f"Ledger: {_describe_remaining(account, info.plan)}; {_describe_yearly_cost(info.plan)}")
    else:
        typer.echo(_NO_LEDGER_NOTE, err=to_pipe)


_NO_LEDGER_NOTE = "No ledger: another release of these people adds its epsilon to this one's (dpframe ledger)"


def _describe_remaining(account: Account, plan: Plan) -> str:
    """Return a line on the budget that a dataset has left, and on the number of such releases that it pays for."""
    remaining = account.ledger.remaining(account.dataset, account.part)
    cost = OpenAccount(account.ledger, account.dataset, account.part).cost(plan)
    further_releases = enough_for(account.ledger.room(account.dataset, cost.budget, cost.step, account.part))
    return (
        f"{to_one_line(account.dataset)} has epsilon={remaining.epsilon:.4g}, delta={remaining.delta:.4g} left; "
        f"{further_releases}"
    )


def _describe_yearly_cost(plan: Plan) -> str:
    """Return a line on the cost of a year of such jobs, which pay for inference only once."""
    inferred = plan.inferred
    if inferred is None or inferred.receipt is None:
        return yearly(plan.epsilon, plan.delta, plan.step)
    # Later jobs reuse the inferred spaces, so that only the release of rows is counted again.
    if inferred.step is not None:
        return yearly(plan.released.epsilon, plan.released.delta, plan.step_beside_inference)
    rows_cost = difference(plan.release, inferred.budget)
    return yearly(rows_cost.epsilon, rows_cost.delta)


def _describe_left_out(info: ReleaseInfo) -> str:
    """Return the columns of the release that a file lacks, as text; empty if it has all."""
    return f", without {name_list(info.left_out)}" if info.left_out else ""


def _describe_rows(info: ReleaseInfo) -> str:
    person_note = "" if info.plan.privacy_id is None else f" ({info.plan.contributions} for each person)"
    return (f"{info.n:,} rows" if info.rows is None else f"{info.n:,} of {info.rows:,} rows") + person_note


@app.command(epilog="Example: dpframe inspect release.parquet --html report.html")
@takes_csv_options
def inspect(
    source: Source,
    html: Annotated[Path | None, option("Write a report as one HTML page here.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what the promise means and how it is kept.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a released file promises, and how well its columns can be estimated."""
    table = open_input(source)
    # A wrong name for the report is refused before the release is read.
    if html is not None:
        check_text_target(html, table, WEB_PAGE)
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
    columns = release_overview(info, source, "Numbers: dpframe estimate. More: dpframe inspect --explain")
    lines = [f"{source}: a release of {_describe_rows(info)}{_describe_left_out(info)}"]
    lines += map(to_options_text, (*columns.lines, *columns.legend))
    typer.echo("\n".join([*lines, *(["", str(info.explain()), "", table_text(info.plan)] if explain else [])]))


@app.command(epilog="Example: dpframe verify release.parquet")
def verify(
    source: Source,
    record: Annotated[Path | None, option("A record of the release, to be compared with it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Prove the claims of a released file, and that its rows are unchanged; or the claims of a plan (.json)."""
    certificate = proving.verify(source)
    if record is not None and certificate.ok:
        certificate = with_record(certificate, source, record)
    typer.echo(certificate.to_json() if as_json else f"{source}\n{certificate}")
    # Also on standard error, as a program may read standard output.
    for failure in certificate.failures:
        typer.echo(f"dpframe: {source}: {' '.join(failure.split())}", err=True)
    if not certificate.ok:
        raise typer.Exit(REFUTED_EXIT_CODE)


_COMMANDS: dict[Callable[..., Any], str] = {
    takes_csv_options(spaces): "dpframe spaces people.parquet --output spaces.json",
    takes_csv_options(forecast): "dpframe forecast people.csv --epsilon 1 --epsilon 4",
    record: "dpframe record release.parquet -o record.yaml --curator 'Statistics Office'",
    takes_csv_options(audit): "dpframe audit --plan plan.json --minutes 5",
    takes_csv_options(check): "dpframe check people.parquet --plan plan.json",
    estimate: "dpframe estimate release.parquet mean age --by sex",
    takes_csv_options(query): "dpframe query people.parquet mean age --epsilon 0.5 --spaces spaces.json",
    plan_tables: "dpframe plan-tables patients.json --epsilon 1 --output plan.json",
    sanitize_tables: "dpframe sanitize-tables patients.json release --epsilon 1",
    synthesize: "dpframe synthesize release.parquet rows.parquet",
    demo: "dpframe demo --rows 20000",
}
"""Further commands, with an example of each."""

for _command, _example in _COMMANDS.items():
    app.command(epilog=f"Example: {_example}")(_command)


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"dpframe: warning: {to_options_text(str(message))}", err=True)


@cache
def commands() -> Any:
    """Return the commands; typer reads the options of all of them off their signatures only once in a process."""
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; errors are one line, and never a traceback with values in it."""
    warnings.showwarning = _print_warning
    try:
        restore_interrupt()
        code = commands()(arguments, standalone_mode=False)
        # Typer ends an interrupted command with this code, and without a message.
        if code == STOPPED_EXIT_CODE:
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except DpframeError as error:
        _fail(
            to_options_text(" ".join(str(error).split())),
            OVERDRAWN_EXIT_CODE if isinstance(error, BudgetExceeded) else BAD_INPUT_EXIT_CODE,
        )
    except (KeyboardInterrupt, typer.Abort):
        _fail(
            "stopped; nothing was written. Under a ledger it may be paid for: the same command again "
            "costs nothing more",
            STOPPED_EXIT_CODE,
        )
    # The reader of a pipe, such as head, may have enough of the output: no error.
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        # Some versions of typer pass the system's error on for a path that no file can have.
        if isinstance(error, UnicodeEncodeError) and any(map(_is_unwritable, arguments or sys.argv[1:])):
            _fail("an argument holds a character that no file's name can have; write it anew", BAD_INPUT_EXIT_CODE)
        format_message = getattr(error, "format_message", None)
        if format_message is not None:
            context = getattr(error, "ctx", None)
            # Without arguments the help is all there is to say.
            if context is not None and format_message() == context.get_help():
                typer.echo(format_message(), err=True)
                sys.exit(BAD_INPUT_EXIT_CODE)
            _fail(f"{format_message().removesuffix('.')}; see {_command_name(context)} --help", BAD_INPUT_EXIT_CODE)
        # The message of another library may quote a value of the data: only its kind is shown.
        _fail(f"internal error ({type(error).__name__}); please report it", FAULT_EXIT_CODE)


def _command_name(context: Any) -> str:
    """Return the full name of the command of a context, as users type it."""
    names: list[str] = []
    while context is not None and context.parent is not None:
        names, context = [context.info_name, *names], context.parent
    return " ".join(["dpframe", *names])


def _is_unwritable(argument: str) -> bool:
    try:
        os.fsencode(argument)
    except UnicodeEncodeError:
        return True
    return False


def _fail(message: str, code: int) -> None:
    typer.echo(f"dpframe: {name_pipes(message)}", err=True)
    sys.exit(code)
