"""Options of several commands, and readers of their values: an account, conditions on rows."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from dpframe.errors import ParameterError
from dpframe.ledger.account import TOGETHER
from dpframe.ledger.ledger import Account, Ledger
from dpframe.spaces.declare import two_numbers


def option(help: str, *names: str, **settings: Any) -> Any:
    """Return an option whose help shows no default, as it has none or the text names it."""
    return typer.Option(*names, help=help, show_default=False, **settings)


def argument(help: str, **settings: Any) -> Any:
    """Return an argument whose help shows no default."""
    return typer.Argument(help=help, show_default=False, **settings)


LedgerFile = Annotated[Path | None, option("Ledger to spend from; see dpframe ledger.", "--ledger")]
Dataset = Annotated[str | None, option("The ledger's dataset.")]
Part = Annotated[str | None, option("The part of the dataset.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def open_account(ledger: Path | None, dataset: str | None, part: str | None, run: str | None = None) -> Account | None:
    """Return the account that --ledger, --dataset, --part and --run name, or None without any of them."""
    if ledger is None and dataset is None and part is None and run is None:
        return None
    if ledger is None or dataset is None:
        raise ParameterError(TOGETHER)
    return Ledger(ledger).account(dataset, part, run=run)


WHERE_RULE = '--where must be a JSON object, e.g. {"sex": "F", "age": {"lower": 18, "upper": 65}}'


def parse_where(text: str) -> dict[str, Any]:
    """Read a condition's JSON object; `ParameterError` for anything else."""
    try:
        document = json.loads(text)
    # JSON nested thousands of levels deep raises RecursionError.
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ParameterError(WHERE_RULE)
    return document


def to_conditions(document: dict[str, Any], listed_columns: Collection[str]) -> dict[str, Any]:
    """Return conditions from JSON: an object has bounds, of which either may be missing; a list has values.

    ``listed_columns``: columns of listed values. For other columns a list of two numbers is refused.

    >>> document = {"sex": ["F"], "age": {"not": {"lower": 18}}, "visits": {"values": [0, 1]}}
    >>> to_conditions(document, ["sex"])
    {'sex': ['F'], 'age': {'not': (18, None)}, 'visits': [0, 1]}
    """
    return {name: _to_condition(name, value, name in listed_columns) for name, value in document.items()}


def _to_condition(name: str, value: Any, is_listed: bool) -> Any:
    if isinstance(value, dict) and value and set(value) <= {"lower", "upper"}:
        return value.get("lower"), value.get("upper")
    if isinstance(value, dict) and set(value) == {"values"}:
        return value["values"]
    if isinstance(value, dict) and set(value) == {"not"}:
        return {"not": _to_condition(name, value["not"], is_listed)}
    # JSON has no tuples: two numbers may be meant as bounds, and would count as two values.
    if two_numbers(value) and not is_listed:
        low, high = sorted(value)
        raise ParameterError(
            f'--where: a list of two numbers, of {name!r}, may mean a range or values; write {{"lower": {low}, '
            f'"upper": {high}}} or {{"values": {value}}}'
        )
    return value
