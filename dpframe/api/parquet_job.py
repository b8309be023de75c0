"""A Parquet job under a ledger: it spends once, keeps its key while it may have to be repeated, and then writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpframe.accounting.budget import Budget
from dpframe.api.options import PlanOptions
from dpframe.api.planning import TableFacts, plan_for
from dpframe.errors import ColumnError, DpframeError
from dpframe.io.checks import check_columns, check_types, located
from dpframe.io.parquet_reader import ParquetInput
from dpframe.ledger import job_keys
from dpframe.ledger.account import Account
from dpframe.mechanisms import Mechanism
from dpframe.plan.plan import Plan, default_delta
from dpframe.release.info import ReleaseInfo
from dpframe.spaces import Space, as_space

CHECKED_ROWS = 1 << 17


@dataclass(frozen=True)
class Request:
    """What a job under a ledger was asked."""

    table: ParquetInput
    path: Path
    facts: TableFacts
    plan: Plan | None
    epsilon: float | None
    delta: float | None
    options: PlanOptions

    def digest(self) -> bytes:
        """Return a digest of all that decides the output beside input and key."""
        if self.plan is not None:
            return self.plan.digest
        options: dict[str, Any] = dict(self.options)
        spaces = options.pop("spaces", None)
        if isinstance(spaces, Mapping):
            spaces = {name: _declared(space) for name, space in spaces.items()}
        asked = _described([self.epsilon, self.delta, spaces, options])
        return hashlib.sha256(asked.encode("utf-8", "surrogatepass")).digest()


def _declared(spec: Any) -> Any:
    try:
        return as_space(spec)
    except DpframeError:  # which is refused later, with the column's name
        return spec


def _described(value: Any) -> str:
    """Return text that differs where values do; `repr` leaves out the middle of long arrays."""
    if isinstance(value, Plan):
        return value.to_json()
    if isinstance(value, Space | Mechanism):
        return _described(value.to_json())
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{_described(k)}:{_described(v)}' for k, v in value.items()))}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_described, value))}]"
    return repr(value)


def run_once(request: Request, account: Account, write: Callable[[Plan, bytes], ReleaseInfo]) -> ReleaseInfo:
    """Run a job that spends once, however often it is interrupted, and never draws before it has spent.

    ``write`` makes the output from a plan and the job's key.
    """
    table, chosen, options, paid = request.table, request.plan, request.options, False
    binding = job_keys.bind(job_keys.digest_files([file for file, _ in table.files]), request.digest())
    name = job_keys.job_name(request.path)
    with job_keys.job(account.ledger, account.dataset, name, binding) as job:
        if chosen is None:
            assert request.epsilon is not None
            delta = default_delta(table.n) if request.delta is None else request.delta
            nulls = options.get("nulls", "error")

            def before(found: dict[str, Space], share: Budget) -> None:
                nonlocal paid
                _check_values(table, {name: (space, nulls) for name, space in found.items()})
                account.settle(options.get("spaces"))
                job.spend(request.epsilon or 0.0, delta)
                paid = True

            chosen = plan_for(
                request.facts, lambda: job.key, before, epsilon=request.epsilon, delta=request.delta, **options
            )
        if not paid:
            check_columns(table.names, chosen)
            chosen.check_rows(table.n)
            _check_values(table, {c.name: (c.space, chosen.nulls_of(c.name)) for c in chosen.columns})
            account.settle(options.get("spaces"))
            cost = account.cost(chosen)
            job.spend(cost.epsilon, cost.delta)
        return write(chosen, job.key)


def _check_values(table: ParquetInput, columns: Mapping[str, tuple[Space, str]]) -> None:
    """Read every value, so that one that is refused is found before anything is spent."""
    check_types(table.fields(list(columns)), {name: space for name, (space, _) in columns.items()})
    first_row = 0
    for batch in table.batches(list(columns), CHECKED_ROWS) if columns else ():
        for name, (space, nulls) in columns.items():
            try:
                space.encode(batch[name], nulls=nulls)
            except ColumnError as error:
                raise located(error, name, first_row) from None
        first_row += len(next(iter(batch.values()), ()))
