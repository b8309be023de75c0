"""The account that the options of a command name."""

from __future__ import annotations

from pathlib import Path

from dpframe.api.ledger.account import TOGETHER
from dpframe.api.ledger.ledger import Account, Ledger
from dpframe.errors import ParameterError


def account_of(ledger: Path | None, dataset: str | None, part: str | None, run: str | None = None) -> Account | None:
    """Return the account that --ledger, --dataset, --part and --run name, or None where none of them is given."""
    if ledger is None and dataset is None and part is None and run is None:
        return None
    if ledger is None or dataset is None:
        raise ParameterError(TOGETHER)
    return Ledger(ledger).account(dataset, part, run=run)
