"""Options that several commands have, and the account that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpframe.api.ledger.account import TOGETHER
from dpframe.api.ledger.ledger import Account, Ledger
from dpframe.errors import ParameterError


def option(help: str, *names: str, **more: Any) -> Any:
    """Return an option whose help shows no default: there is none, or the text says it."""
    return typer.Option(*names, help=help, show_default=False, **more)


def argument(help: str, **more: Any) -> Any:
    """Return an argument whose help shows no default."""
    return typer.Argument(help=help, show_default=False, **more)


LedgerFile = Annotated[Path | None, option("Ledger to spend from; see dpframe ledger.", "--ledger")]
Dataset = Annotated[str | None, option("The ledger's dataset.")]
Part = Annotated[str | None, option("The part of the dataset.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def account_of(ledger: Path | None, dataset: str | None, part: str | None, run: str | None = None) -> Account | None:
    """Return the account that --ledger, --dataset, --part and --run name, or None where none of them is given."""
    if ledger is None and dataset is None and part is None and run is None:
        return None
    if ledger is None or dataset is None:
        raise ParameterError(TOGETHER)
    return Ledger(ledger).account(dataset, part, run=run)
