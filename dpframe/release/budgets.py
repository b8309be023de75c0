"""Budgets that pay for a release: of this process, of an account, or of a job with a stored key."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from dpframe.accounting.unit import Unit
from dpframe.errors import (
    FileError,
    LedgerError,
    NotSanitizedError,
    ParameterError,
    PlanError,
    RepeatedReleaseWarning,
    name_list,
    warn,
)
from dpframe.inference.inferred import Inferred
from dpframe.ledger import job_keys, runs
from dpframe.ledger.account import INFERENCE, RELEASE, Cost, OpenAccount
from dpframe.ledger.draws import Draws
from dpframe.noise.keystream import Keystream, choice_key, framed
from dpframe.plan.plan import Plan
from dpframe.release.identity import content, table_digest, warn_if_released, warn_of_parts
from dpframe.release.info import ReleaseInfo
from dpframe.release.planning import Request
from dpframe.release.reader import read_info
from dpframe.tables.inputs import open_input
from dpframe.tables.table import Codes, Table

_MAC_LETTERS = 10
"""Hexadecimal digits of the MAC of a noise, or a table; ids of releases begin with the two. Theory: 2^-40 a pair."""


@dataclass
class ReleaseBudget:
    """The budget that pays for a request, and the secret key of its noise.

    Without an account nothing is entered; ``ready`` is the key that an entry point was given.
    """

    account: OpenAccount | None
    ready: bytes | None = None
    keyed: ClassVar[bool] = True
    """Whether a key that is ready was given: it knows no table, and serves one."""

    def __post_init__(self) -> None:
        if self.ready is not None:
            Keystream(self.ready)  # a wrong key is refused before anything is spent

    def cost(self, plan: Plan) -> Cost:
        """Return the cost of a release under a plan."""
        return Cost(plan.release, unit=plan.unit) if self.account is None else self.account.cost(plan)

    def settle(self, reused: Inferred, unit: Unit) -> None:
        """Enter the cost of another plan's inference, whose spaces are reused."""
        if self.account is not None:
            self.account.settle(reused, unit)

    def pay(self, table: Table, what: str, cost: Cost, codes: Codes) -> str | None:
        """Enter a spend, for good, and return its receipt; without an account only warn of repetitions."""
        if self.account is not None:
            if self.account.part is not None:
                warn_of_parts(self.account, content(table))
            return self.account.spend(cost, what, *self._release_names(table, cost, codes))
        if what == INFERENCE:
            # Only names and the number of rows: values would make the warning an answer about the data.
            request = hashlib.sha256(repr((list(table.names), table.n)).encode()).digest()
            if request in _inference_requests:
                warn(
                    "spaces of such a table were inferred before in this process, and every time costs "
                    f"epsilon={cost.budget.epsilon:g}, delta={cost.budget.delta:g}; reuse them with spaces=plan",
                    RepeatedReleaseWarning,
                )
            _inference_requests.add(request)
        elif self.ready is None:
            # A release under the caller's key may be a repetition, which reveals nothing new.
            warn_if_released(table, cost.budget)
        return None

    def bind(self, table: Table, cost: Cost, codes: Codes, receipt: str | None, plan: Plan) -> None:
        """Enter the noise of a plan that inference has found, for good, before a row is drawn.

        Raises `LedgerError` if the key has drawn this noise for another table; the spend stays.
        """
        if self.account is not None and self.ready is not None and self.keyed:
            draws = dict([self._draw_names(plan.digest, table_digest(table, codes, self.ready))])
            self.account.spend(cost, RELEASE, receipt, draws)

    def _release_names(self, table: Table, cost: Cost, codes: Codes) -> tuple[str | None, Draws]:
        """Return the id of a release under the caller's key, equal for a repetition, and the names of its noise.

        Without a key of the caller the id is None.
        """
        if self.ready is None or self.account is None or cost.wanted is None:
            return None, {}
        # A table without a digest counts as new each time: one key would draw equal noise for it, unrecognised.
        content_digest = table_digest(table, codes, self.ready) or secrets.token_bytes(32)
        noise, source = self._draw_names(cost.wanted, content_digest)
        # Ids with an equal beginning have equal noise; an equal continuation means an equal table, too.
        binding = job_keys.bind(content_digest, cost.wanted)
        identity = noise + source + job_keys.release_id(self.ready, self.account.name, binding)[:12]
        # A key that is derived from the table serves no other table, so that no record has to detect one.
        if not self.keyed:
            return identity, {}
        measurement = cost.inference
        inference_draws = (
            []
            if measurement is None
            else [(measurement.digest, table_digest(table, {}, self.ready, measurement.names))]
        )
        return identity, dict([(noise, source), *(self._draw_names(*draw) for draw in inference_draws)])

    def _draw_names(self, noise: bytes, source: bytes | None) -> tuple[str, str]:
        """Return the name of noise and of the table that it is drawn for, as MACs under the key."""
        assert self.ready is not None
        digests = (noise, secrets.token_bytes(32) if source is None else source)
        # No dataset's name enters: two datasets of one ledger must recognise equal noise as well.
        noise_name, table_name = (job_keys.release_id(self.ready, "", digest)[:_MAC_LETTERS] for digest in digests)
        return noise_name, table_name

    def check_input(self, digest: bytes) -> None:
        """Raise `FileError` if rows that were drawn are not those that a stored key is bound to."""

    def done(self, info: ReleaseInfo) -> ReleaseInfo:
        """Return the description of a release that is completely written."""
        return info

    @property
    def key(self) -> bytes:
        """32 secret bytes; read once, after `pay`."""
        return secrets.token_bytes(32) if self.ready is None else self.ready

    @property
    def choice(self) -> bytes:
        """32 secret bytes that rows of persons are chosen with, before anything is read of them: fresh, or the key's.

        A choice gives nothing away by itself, so that it may be made before `pay`.
        """
        return secrets.token_bytes(32) if self.ready is None else choice_key(self.ready)


@dataclass(frozen=True)
class DoneRun:
    """A run that was done before: its release's description, and the line that reports it."""

    info: ReleaseInfo
    line: str


_inference_requests: set[bytes] = set()
"""Requests for private inference that this process has made without a ledger."""


@dataclass
class JobBudget(ReleaseBudget):
    """Pays for a job once, however often it is repeated, and has its key, which is kept as long as that."""

    job: job_keys.KeyedJob = field(kw_only=True)
    request: Request = field(kw_only=True)

    def pay(self, table: Table, what: str, cost: Cost, codes: Codes) -> str | None:
        """Enter the spend; an interrupted run's spend is found in the ledger and costs nothing more."""
        part, run = (None, None) if self.account is None else (self.account.part, self.account.run)
        note = what if run is None else f"{what}, run {run}"
        return self.job.spend(cost.budget.epsilon, cost.budget.delta, note, cost.step, part, cost.unit).release_id

    def check_input(self, digest: bytes) -> None:
        """Raise `FileError` if rows that were drawn are not those that the job's key is bound to."""
        self.job.check_input(digest)

    def done(self, info: ReleaseInfo) -> ReleaseInfo:
        """Enter that the run is done, if it has a name, before its key is deleted."""
        if self.account is not None and self.account.run is not None:
            runs.enter(self.account, self.job.name, self.job.release_id, self.request.digest.hex(), info.digest)
        return info

    @property
    def key(self) -> bytes:
        """The job's key."""
        return self.job.key

    @property
    def choice(self) -> bytes:
        """The key of the choice of rows, which an interrupted run repeats."""
        return self.job.choice


@contextlib.contextmanager
def budget_of_input(
    digest_input: Callable[[], bytes],
    path: Path,
    request: Request,
    account: OpenAccount | None,
    key: bytes | None,
    keyed: Callable[[bytes], bytes] | None = None,
) -> Iterator[ReleaseBudget]:
    """Yield the budget of a release of an input: under a ledger a job, whose key is deleted after the last write.

    The input has a digest, or a keyed digest; both are computed only under a ledger.
    """
    if account is None:
        yield ReleaseBudget(None, key)
        return
    if key is not None:
        raise ParameterError("key and ledger do not go together: under a ledger every job keeps its own key")
    # Part and run enter the binding: a key of one part or run must not draw for another.
    request_id = request.digest
    if account.part is not None:
        request_id = hashlib.sha256(request_id + account.part.encode()).digest()
    if account.run is not None:
        request_id = hashlib.sha256(framed((b"run", request_id, account.run.encode()))).digest()
    digest = digest_input()
    if account.part is not None and keyed is None:  # under a key every job has another
        warn_of_parts(account, digest)
    binding, name = job_keys.bind(digest, request_id), job_keys.job_name(path)
    with job_keys.job(account.ledger, account.dataset, name, binding, keyed=keyed) as job:
        # The job's lock is held now: a process that held it before may have ended this very run.
        if runs.done(account, name) is not None:
            raise LedgerError(f"another process has just ended this run of {path}; start it again to see what it wrote")
        yield JobBudget(account, job=job, request=request)


def done_before(path: Path, request: Request, account: OpenAccount | None) -> DoneRun | None:
    """Return the run of an account if it is done, by its name and never by its input; delete a key that it left.

    Raises `LedgerError` if it was done under another plan or request, its output is gone, or it is running.
    """
    name = job_keys.job_name(path)
    run = None if account is None else runs.done(account, name)
    if account is None or run is None:
        return None
    run_text = f"run {name_list([run.name])} of {path} was done at {run.when}"
    remedy = "name another run, which is charged"
    if run.request != request.digest.hex():
        raise LedgerError(f"{run_text} under another plan, or other options or versions; {remedy}")
    info = None
    with contextlib.suppress(FileError, PlanError, NotSanitizedError):
        text = open_input(path).text
        info = None if text is None else read_info(text)
    # A missing or another file is no output of the run, and must not pass for it.
    if info is None or info.digest != run.output:
        raise LedgerError(f"{run_text}, and its release is no longer there: bring the file back, or {remedy}")
    # A crash between the receipt and the removal of the key leaves the key behind.
    job_keys.clear(account.ledger, account.dataset, name)
    return DoneRun(info, f"{run_text}: nothing was read, spent or drawn now")
