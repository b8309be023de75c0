"""The commands ``dpframe plan-tables`` and ``sanitize-tables``: Parquet files of the same persons under one promise."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dpframe.api import verbs
from dpframe.cli.shared import AsJson, Dataset, LedgerFile, open_account, option
from dpframe.disk import JSON, atomic, check_ending
from dpframe.errors import FileError, ParameterError, name_list
from dpframe.release.linked_plan import LinkedPlan

_FIELDS = ("tables", "keys", "contributions", "max_count", "orphans", "spaces", "drop")

Request = Annotated[Path, typer.Argument(help="JSON file with tables, keys, contributions and spaces, by table.")]
Epsilon = Annotated[float | None, option("Budget ε for a person with all rows in all tables.")]
Delta = Annotated[float | None, typer.Option(help="Budget δ.  [default: min(1e-6, persons^-1.5)]")]


def plan_tables(
    request: Request,
    epsilon: Epsilon = None,
    delta: Delta = None,
    output: Annotated[Path | None, option("Write the plan here.", "--output", "-o")] = None,
    ledger: LedgerFile = None,
    dataset: Dataset = None,
    as_json: AsJson = False,
) -> None:
    """Plan how Parquet files of the same persons would be released together, and write the plan to reuse."""
    options, account = _read_request(request), open_account(ledger, dataset, None)
    with contextlib.ExitStack() as stack:
        if output is not None:
            check_ending(output, *JSON)
        # The file is opened first: a path that cannot be written must not cost a budget.
        plan_file = None if output is None else stack.enter_context(atomic(output))
        plan: Any = verbs.plan(_paths(request, options), epsilon, delta, ledger=account, **options)
        if plan_file is not None:
            plan_file.write(f"{plan.to_json(indent=2)}\n".encode())
            typer.echo(f"wrote {output}: the plan, for dpframe sanitize-tables --plan", err=True)
    typer.echo(plan.to_json() if as_json else f"{plan}\n\n{plan.expect()}")


def sanitize_tables(
    request: Request,
    folder: Annotated[Path, typer.Argument(help="New folder for the released tables.")],
    epsilon: Epsilon = None,
    delta: Delta = None,
    plan: Annotated[Path | None, option("Plan file instead of options; the request then names the tables.")] = None,
    ledger: LedgerFile = None,
    dataset: Dataset = None,
) -> None:
    """Release Parquet files of the same persons, such as patients and visits, under one promise."""
    options = _read_request(request)
    ready_plan, account = None if plan is None else LinkedPlan.read(plan), open_account(ledger, dataset, None)
    tables: Any = _paths(request, options)
    safe: Any = verbs.sanitize(tables, folder, epsilon, delta, plan=ready_plan, ledger=account, **options)
    typer.echo(repr(safe))


def _paths(request: Path, options: dict[str, Any]) -> dict[str, Path]:
    """Take the tables from a request's fields, and return their paths, which are relative to its folder."""
    return {name: request.parent / str(path) for name, path in options.pop("tables").items()}


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
