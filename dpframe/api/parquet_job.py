"""A Parquet job under a ledger: it spends once, keeps its key while it may have to be repeated, and then writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dpframe.api.identity import warn_of_parts
from dpframe.api.planning import ReleaseBudget, Request
from dpframe.errors import ParameterError
from dpframe.ledger import job_keys
from dpframe.ledger.account import Account, Cost
from dpframe.tables.files import FileInput
from dpframe.tables.table import Codes, Table


@dataclass
class JobBudget(ReleaseBudget):
    """Pays for a job once, however often it is repeated, and has its key, which is kept as long as that."""

    job: job_keys.Job = field(kw_only=True)

    def pay(self, table: Table, what: str, cost: Cost, codes: Codes) -> str | None:
        """Enter the spend; that of an interrupted run is found there and costs nothing more."""
        part = None if self.account is None else self.account.part
        return self.job.spend(cost.budget.epsilon, cost.budget.delta, what, cost.step, part, cost.unit).release_id

    @property
    def key(self) -> bytes:
        """The job's key."""
        return self.job.key

    @property
    def choice(self) -> bytes:
        """The key of the choice of rows, which an interrupted run repeats."""
        return self.job.choice


@contextmanager
def budget_of(
    table: FileInput, path: Path, request: Request, account: Account | None, key: bytes | None
) -> Iterator[ReleaseBudget]:
    """Give what a conversion is paid from; under a ledger it is a job, whose key goes when all is written."""
    with budget_of_input(table.digest, path, request, account, key, table.keyed_digest) as budget:
        yield budget


@contextmanager
def budget_of_input(
    digest_input: Callable[[], bytes],
    path: Path,
    request: Request,
    account: Account | None,
    key: bytes | None,
    keyed: Callable[[bytes], bytes] | None = None,
) -> Iterator[ReleaseBudget]:
    """Give the same for any input that has a digest, or one under a key; both are taken where there is a ledger."""
    if account is None:
        yield ReleaseBudget(None, key)
        return
    if key is not None:
        raise ParameterError("key and ledger do not go together: under a ledger every job keeps its own key")
    wanted = request.digest
    if account.part is not None:
        wanted = hashlib.sha256(wanted + account.part.encode()).digest()
    digest = digest_input()
    if account.part is not None and keyed is None:  # under a key every job has another
        warn_of_parts(account, digest)
    binding = job_keys.bind(digest, wanted)
    with job_keys.job(account.ledger, account.dataset, job_keys.job_name(path), binding, keyed=keyed) as job:
        yield JobBudget(account, job=job)
