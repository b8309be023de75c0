"""The command ``dpframe sanitize-tables``: several Parquet files of the same persons under one promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dpframe.api import verbs
from dpframe.cli.shared import Dataset, LedgerFile, open_account, option
from dpframe.errors import FileError, ParameterError, name_list

_FIELDS = ("tables", "keys", "contributions", "max_count", "orphans", "spaces", "drop")


def sanitize_tables(
    request: Annotated[Path, typer.Argument(help="JSON file with tables, keys, contributions and spaces, by table.")],
    folder: Annotated[Path, typer.Argument(help="New folder for the released tables.")],
    epsilon: Annotated[float | None, option("Budget ε for a person with all rows in all tables.")] = None,
    delta: Annotated[float | None, typer.Option(help="Budget δ.  [default: min(1e-6, persons^-1.5)]")] = None,
    ledger: LedgerFile = None,
    dataset: Dataset = None,
) -> None:
    """Release Parquet files of the same persons, such as patients and visits, under one promise."""
    options = _read_request(request)
    account = open_account(ledger, dataset, None)
    paths = options.pop("tables")
    tables = {name: request.parent / str(path) for name, path in paths.items()}
    safe: Any = verbs.sanitize(tables, folder, epsilon, delta, ledger=account, **options)
    typer.echo(repr(safe))


def _read_request(path: Path) -> dict[str, Any]:
    """Return the fields of a request, or refuse a file that is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        raise FileError(f"{path} is no JSON file that can be read; write tables and keys in it") from None
    fields = data if isinstance(data, dict) else {}
    unknown = [name for name in fields if name not in _FIELDS]
    if unknown or not isinstance(fields.get("tables"), dict):
        what = f"the unknown field {unknown[0]!r}" if unknown else "no tables, {name: file}"
        raise ParameterError(f"{path} has {what}; its fields are {name_list(_FIELDS)}")
    return fields
