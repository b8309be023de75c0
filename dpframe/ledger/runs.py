"""Runs of jobs that are done: a job that is started twice under one name is released, and paid for, once.

A run is known by a public name, e.g. its date, and never by its input: were a job skipped because its input is that of
the last time, everybody who sees the file would learn that no row had changed, and no noise hides that.

A receipt is entered when the output is complete, before the job's key is deleted: a run that is killed in between is
either repeated with its key, at no cost, or known to be done.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dpframe.ledger.ledger import Account, Ledger
from dpframe.ledger.sqlite import transaction

_SELECT_RUN = """
SELECT dataset, part, job, name, release_id, request, output, at FROM runs
WHERE dataset = ? AND part = ? AND job = ? AND name = ?
"""
_INSERT_RUN = """
INSERT INTO runs (dataset, part, job, name, release_id, request, output, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""


@dataclass(frozen=True)
class Receipt:
    """The receipt of a run that is done.

    ``part`` is "" if all rows were released, ``job`` the file that was written, ``request`` a digest of the plan or
    of what decided it, ``output`` the digest that the release states, ``at`` when it was complete, in UTC.
    """

    dataset: str
    part: str
    job: str
    name: str
    release_id: str
    request: str
    output: str
    at: str

    @property
    def when(self) -> str:
        """When it was complete, to the minute."""
        return f"{datetime.fromisoformat(self.at):%Y-%m-%d %H:%M} UTC"


def _run_key(account: Account, job: str) -> tuple[str, str, str, str]:
    # The path of a file may be of bytes that are no text, which SQLite does not keep.
    path = job.encode("utf-8", "backslashreplace").decode()
    # The table refuses NULL: a primary key of SQLite takes two NULLs as different, and would admit a run twice.
    return account.dataset, account.part or "", path, account.run or ""


def enter(account: Account, job: str, release_id: str, request: str, output: str) -> None:
    """Enter the receipt of an account's run, for good; `LedgerError` if the ledger cannot be written."""
    row = (*_run_key(account, job), release_id, request, output, datetime.now(UTC).isoformat(timespec="seconds"))
    with transaction(Path(account.ledger.path), account.ledger.timeout, write=True) as connection:
        connection.execute(_INSERT_RUN, row)


def done(account: Account, job: str) -> Receipt | None:
    """Return the receipt of an account's run of a job, or None if it is not done, or has no name."""
    if account.run is None:
        return None
    with transaction(Path(account.ledger.path), account.ledger.timeout) as connection:
        row = connection.execute(_SELECT_RUN, _run_key(account, job)).fetchone()
    return None if row is None else Receipt(*row)


def is_done(ledger: Ledger, release_id: str) -> bool:
    """Return whether a release belongs to a run that is done."""
    with transaction(Path(ledger.path), ledger.timeout) as connection:
        run_row = connection.execute("SELECT 1 FROM runs WHERE release_id = ?", (release_id,)).fetchone()
    return run_row is not None
