"""The command ``dpframe vertical``: tables split between curators, with a command for each step of a party."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from dpframe.cli.groups import Commands
from dpframe.cli.shared import AsJson, Dataset, LedgerFile, argument, option
from dpframe.cli.spaces import read_spaces
from dpframe.cli.terminal import to_one_line
from dpframe.errors import ParameterError
from dpframe.ledger.ledger import Ledger
from dpframe.vertical.curator import Curator
from dpframe.vertical.keys import PUBLIC, SHARED, SIGNING, Identity, read_public
from dpframe.vertical.researcher import Researcher
from dpframe.vertical.run import Run, new_run
from dpframe.vertical.server import Server

app = typer.Typer(
    help="Randomise a table whose columns lie with several curators: the server that does it sees nothing of it.",
    cls=Commands,
    epilog="Example: dpframe vertical keygen alice --share; then plan, encrypt, perturb and decrypt, in this order",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

RunFile = Annotated[Path, argument("The run's file, from vertical plan.", metavar="RUN")]
Folder = Annotated[Path, argument("The party's own folder, with its keys.")]


@app.command(epilog="Example: dpframe vertical keygen alice --share")
def keygen(
    folder: Folder,
    share: Annotated[
        bool,
        typer.Option("--share", help="Make the curators' shared secret, too: one of them does, the others copy it."),
    ] = False,
) -> None:
    """Make a party's keys in a folder of its own; the public key goes into the run."""
    identity = Identity.create(folder)
    typer.echo(f"{folder / SIGNING}: keep it; {folder / PUBLIC}: give it to the person who makes the run")
    if share:
        identity.share()
        typer.echo(f"{folder / SHARED}: give it to the other curators, and to nobody else")


@app.command(
    epilog="Example: dpframe vertical plan run.json --curator alice=alice.json,alice/public.key --curator "
    "bob=bob.json,bob/public.key --server server/public.key --rows 5000 --epsilon 1"
)
def plan(
    target: Annotated[Path, argument("The run's file to write.", metavar="RUN")],
    curator: Annotated[list[str], option("NAME=SPACES,KEY: the curator's file of spaces and its public key; repeat.")],
    server: Annotated[Path, option("The server's public key.")],
    rows: Annotated[int, option("Records that all curators have in common.")],
    epsilon: Annotated[float, option("Budget ε, replace-one, per person.")],
    delta: Annotated[
        float | None, typer.Option(help="Budget δ; 0 earns no credit for order.  [default: min(1e-6, rows^-1.5)]")
    ] = None,
    group: Annotated[list[str] | None, option("Columns to randomise together, e.g. sex,income; repeat.")] = None,
    mechanism: Annotated[list[str] | None, option("Another mechanism, COLUMN=TAG; repeat.")] = None,
    sample: Annotated[str | None, option('Rows of the secret sample, or "optimal"; all by default.')] = None,
    local_epsilon: Annotated[float | None, option("The most that a curator who colludes may learn.")] = None,
    measure: Annotated[list[str] | None, option("Table that its curator measures, e.g. sex; repeat.")] = None,
    measure_share: Annotated[float, typer.Option(help="Their share of what the promise allows.")] = 0.5,
    pad: Annotated[str, typer.Option(help="one-time, or stream: short keys instead of long pads.")] = "one-time",
) -> None:
    """Make a run: the columns of each curator, and the guarantee; the file is public, and everybody gets it."""
    run = new_run(
        dict(map(_parse_curator, curator)),
        read_public(server),
        n=rows,
        epsilon=epsilon,
        delta=delta,
        pad=pad,
        mechanisms=dict(map(_parse_mechanism, mechanism or [])),
        measure=[_split_names(text) for text in measure] if measure else None,
        measure_share=measure_share,
        groups=[_split_names(text) for text in group or []],
        # The plan checks other text than a number.
        sample=int(sample) if sample is not None and sample.isdecimal() else sample,
        local_epsilon=local_epsilon,
    )
    run.write(target)
    typer.echo(f"{target}: run {run.id[:16]}, {run.rows:,} of {rows:,} records, pads {run.pad}")
    for line in run.plan.lines():
        typer.echo(line)


@app.command(
    epilog="Example: dpframe vertical encrypt run.json alice alice.parquet --id id --message a.message --pad a.pad"
)
def encrypt(
    run: RunFile,
    folder: Folder,
    source: Annotated[Path, argument("The curator's table: Parquet or CSV.")],
    id: Annotated[str, option("The column of record ids.")],
    message: Annotated[Path, option("File to write, only for the server.")],
    pad: Annotated[Path, option("File to write for the researcher, and for nobody else.")],
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="Header of another curator's message: records are compared before any spend; repeat."),
    ] = None,
    ledger: LedgerFile = None,
    dataset: Dataset = None,
) -> None:
    """As a curator: rank the rows, take the sample, and write its padded codes and the pad."""
    curator = Curator(Run.read(run), folder)
    header = curator.encrypt(source, message, pad, id=id, beside=beside or [], ledger=ledger, dataset=dataset)
    typer.echo(f"{message}: {header.rows:,} rows of {header.sender} under a pad, for the server")
    typer.echo(f"{pad}: the pad, for the researcher")
    if ledger is not None and dataset is not None:
        typer.echo(f"Ledger: {to_one_line(dataset)} has {Ledger(ledger).remaining(dataset)} left")


@app.command(epilog="Example: dpframe vertical perturb run.json server alice.message bob.message --output noisy")
def perturb(
    run: RunFile,
    folder: Folder,
    messages: Annotated[list[Path], argument("The curators' messages.")],
    output: Annotated[Path, option("File to write.", "--output", "-o")],
) -> None:
    """As the server: join the messages and add the plan's noise."""
    header = Server(Run.read(run), folder).perturb(messages, output)
    typer.echo(f"{output}: {header.rows:,} rows randomised under their pads, for the researcher")


@app.command(epilog="Example: dpframe vertical decrypt run.json noisy alice.pad bob.pad --output release.parquet")
def decrypt(
    run: RunFile,
    perturbed: Annotated[Path, argument("What the server wrote.")],
    pads: Annotated[list[Path], argument("The curators' pads.")],
    output: Annotated[Path, option("Release to write: Parquet, or CSV by the ending.", "--output", "-o")],
    without: Annotated[list[str] | None, option("A curator who withheld its pad; repeat.")] = None,
    as_json: AsJson = False,
) -> None:
    """As the researcher: subtract the pads and write an ordinary release."""
    info = Researcher(Run.read(run)).decrypt(perturbed, pads, output, without=without or [])
    if as_json:
        typer.echo(info.to_json())
        return
    typer.echo(f"{output}: a release of {info.n:,} rows")
    for line in info.plan.lines():
        typer.echo(line)


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _parse_mechanism(text: str) -> tuple[str, str]:
    # The last sign, as the name of a column may have one.
    column, sign, tag = text.rpartition("=")
    if not (column and sign and tag):
        raise ParameterError("--mechanism takes COLUMN=TAG, e.g. --mechanism age=randomized_response")
    return column, tag


def _parse_curator(text: str) -> tuple[str, tuple[Mapping[str, object], str]]:
    name, sign, files = text.partition("=")
    spaces, comma, key = files.rpartition(",")
    if not (name and sign and spaces and comma and key):
        raise ParameterError("--curator takes NAME=SPACES,KEY, e.g. --curator alice=alice.json,alice/public.key")
    return name, (read_spaces(Path(spaces)), read_public(key))
