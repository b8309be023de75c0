"""Options that several commands have, and what they name: an account, conditions on rows."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from dpframe.api.ledger.account import TOGETHER
from dpframe.api.ledger.ledger import Account, Ledger
from dpframe.errors import ParameterError
from dpframe.spaces.declare import two_numbers


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


WHERE = '--where must be a JSON object, e.g. {"sex": "F", "age": {"lower": 18, "upper": 65}}'


def read_where(text: str) -> dict[str, Any]:
    """Read a condition's JSON object; `ParameterError` for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ParameterError(WHERE)
    return found


def as_conditions(found: dict[str, Any], listed: Collection[str]) -> dict[str, Any]:
    """Return what JSON says as conditions: bounds are an object, and either may be left out; lists are of values.

    ``listed``: columns whose values are a list. For others a list of two numbers may mean bounds, as JSON has no tuple;
    it is refused, as files of spaces refuse it.

    >>> found = {"sex": ["F"], "age": {"not": {"lower": 18}}, "visits": {"values": [0, 1]}}
    >>> as_conditions(found, ["sex"])
    {'sex': ['F'], 'age': {'not': (18, None)}, 'visits': [0, 1]}
    """
    return {name: _condition(name, value, name in listed) for name, value in found.items()}


def _condition(name: str, value: Any, listed: bool) -> Any:
    if isinstance(value, dict) and value and set(value) <= {"lower", "upper"}:
        return value.get("lower"), value.get("upper")
    if isinstance(value, dict) and set(value) == {"values"}:
        return value["values"]
    if isinstance(value, dict) and set(value) == {"not"}:
        return {"not": _condition(name, value["not"], listed)}
    if two_numbers(value) and not listed:
        low, high = sorted(value)
        raise ParameterError(
            f'--where: a list of two numbers, of {name!r}, may mean a range or values; write {{"lower": {low}, '
            f'"upper": {high}}} or {{"values": {value}}}'
        )
    return value
