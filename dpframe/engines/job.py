"""One release by an engine: prepared and paid for on the driver, counted, and ready to be gathered by buckets."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from dpframe.api.budgets import ReleaseBudget, budget_of_input
from dpframe.api.job import Ready, carry_out, planned
from dpframe.api.ledger.account import Cost, OpenAccount
from dpframe.api.ledger.draws import Draws
from dpframe.api.ledger.job_keys import check_not_interrupted, job_name
from dpframe.api.planning import Request
from dpframe.api.public import Plan
from dpframe.disk import new_file
from dpframe.engines.chosen import check_places
from dpframe.engines.forms import OutputForm
from dpframe.engines.staging import WrittenFile, staged, unwritable, write_part
from dpframe.engines.table import EngineTable, Outcome, settled
from dpframe.engines.work import CHANGED, Bucket, FirstPass, Pieces, Seal, Work
from dpframe.errors import FileError, ParameterError
from dpframe.tables.info import ReleaseInfo
from dpframe.tables.noisy_tables import Tables
from dpframe.tables.order_watch import warn_of
from dpframe.tables.release import Selection
from dpframe.tables.table import check_columns

Block = tuple[str, int, int]
"""Sealed rows of one bucket: a file's name, and where in it they begin and how long they are, in bytes."""


@dataclass(frozen=True)
class SealedSpill:
    """Files of sealed rows in a folder, under a key that is on no disk: they are in the input's order."""

    folder: str
    key: bytes = field(repr=False, default_factory=lambda: secrets.token_bytes(32))

    @classmethod
    def within(cls, folder: Path) -> SealedSpill:
        """Return files in a new folder that only its owner may list: their sizes show how many rows a part has."""
        rows = folder / "rows"
        rows.mkdir(mode=0o700)
        return cls(str(rows))

    @property
    def seal(self) -> Seal:
        """What rows are closed and opened with."""
        return Seal(self.key)

    def first_pass(self, work: Work, pieces: Pieces) -> FirstPass:
        """Do the first pass over a part of a table, and write its released rows to a file.

        A second attempt writes another file: which one is read is decided by whose result arrives.
        """
        path = Path(self.folder, secrets.token_hex(16))
        blocks: list[tuple[int, Block]] = []
        try:
            with os.fdopen(new_file(path), "wb") as file:

                def send(bucket: int, content: bytes) -> None:
                    blocks.append((bucket, (path.name, file.tell(), len(content))))
                    file.write(content)

                first_pass = work.first_pass(pieces, send, self.seal)
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise unwritable(path.parent, error) from None
        first_pass.blocks = blocks
        return first_pass

    def read(self, blocks: Sequence[Block]) -> Iterator[bytes]:
        """Yield sealed rows."""
        for name, offset, size in blocks:
            try:
                with Path(self.folder, name).open("rb") as file:
                    file.seek(offset)
                    content = file.read(size)
            except OSError as error:
                raise FileError(f"{self.folder} cannot be read: {error.strerror or 'input/output error'}") from None
            if len(content) < size:
                raise FileError(CHANGED)
            yield content


T = TypeVar("T", bound=EngineTable)
D = TypeVar("D")

BUCKET_ROWS = 1 << 18
"""Rows of a bucket, about: it is put in order in one worker's memory."""


@dataclass(frozen=True)
class PreparedRelease:
    """A release that is paid for and counted: what is left is to gather its buckets, as often as one likes."""

    work: Work
    info: ReleaseInfo
    buckets: tuple[Bucket, ...]
    digest: bytes = field(default=b"", repr=False)
    """A digest under the key of the rows that were read."""
    blocks: tuple[tuple[Block, ...], ...] = field(default=(), repr=False)
    """Where the rows of each bucket are, if the first pass wrote them."""

    @cached_property
    def text(self) -> str:
        """The description."""
        return self.info.to_json()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("work", "info", "buckets")}

    def scattered(self, pieces: Pieces) -> Iterator[tuple[int, bytes]]:
        """Yield the rows of a part of the table, by bucket."""
        return self.work.scatter(pieces)

    def gathered(self, number: int, parts: list[bytes]) -> Any:
        """Return a bucket as a table in the release's form."""
        bucket = self.buckets[number]
        return self.work.form.table(self.work.gather(bucket, parts), bucket.first, self.text)


@dataclass(frozen=True)
class Written:
    """Writes buckets' files from what the first pass wrote."""

    ready: PreparedRelease
    spill: SealedSpill
    folder: str
    compression: str

    def __call__(self, number: int, blocks: Sequence[Block]) -> WrittenFile:
        """Return what was written."""
        bucket, work = self.ready.buckets[number], self.ready.work
        batch = work.gather(bucket, self.spill.read(blocks), self.spill.seal)

        def write(file: IO[bytes]) -> None:
            work.form.write(batch, file, self.ready.info, self.compression)

        return write_part(self.folder, number, bucket.rows, write)


def check_plan_fits(table: EngineTable, plan: Plan) -> None:
    """Raise an error for columns that are not those of a plan, and for what rows in an engine do not have."""
    if plan.privacy_id is not None:
        check_places(table.by_id)
    if table.text is None:  # a release is refused for what it is
        check_columns([name for name in table.names if name != plan.privacy_id], plan)
    if plan.keeps_index:
        raise ParameterError("an engine keeps no index; make the plan with shuffle=True, or for another table")
    if table.by_id and plan.sample is not None:
        raise ParameterError("sample needs places, which rows by id have not; write the table to Parquet first")
    if table.by_id and not plan.shuffle:
        raise ParameterError("shuffle=False keeps an order, which rows by id have not; write it to Parquet first")


@dataclass(frozen=True)
class _BeforeJob(OpenAccount):
    """An account from which a job's plan is inferred, once: not again while a run of the job is kept."""

    job: str = ""

    def spend(self, cost: Cost, what: str = "release", receipt: str | None = None, draws: Draws | None = None) -> str:
        """Spend, or raise `LedgerError` if what is inferred would fit no run of the job that has paid."""
        check_not_interrupted(self.ledger, self.dataset, self.job)
        return super().spend(cost, what, receipt, draws)


def plan_for(
    table: EngineTable, request: Request, account: OpenAccount | None, key: bytes | None, path: Path | None
) -> Plan:
    """Return a ready plan, or the one that a promise and options decide, for which inference reads the table."""
    if account is not None and key is not None:
        raise ParameterError("key and ledger do not go together: under a ledger every release has its own key")
    plan = request.plan
    if account is not None and path is not None:
        account = _BeforeJob(account.ledger, account.dataset, account.part, account.run, job=job_name(path))
    found = planned(table, request.epsilon, request.delta, account, request.options, key) if plan is None else plan
    check_plan_fits(table, found)
    return found


@contextlib.contextmanager
def budget_for(
    table: EngineTable, request: Request, account: OpenAccount | None, key: bytes | None, path: Path | None
) -> Iterator[ReleaseBudget]:
    """Give what a release is paid from: under a ledger the job that writes a directory, or a release that is lazy."""
    if path is None:
        yield ReleaseBudget(account, key)
        return

    plan = request.plan
    assert plan is not None
    facts = json.dumps([table.n, table.by_id]).encode()
    with budget_of_input(lambda: facts, path, request, account, key, partial(table.digest, plan)) as budget:
        yield budget


def kept(table: T, plan: Plan) -> T:
    """Return the table of the columns that leave, and of the one that names persons."""
    names = [*plan.names, *plan.passthrough, *filter(None, [plan.privacy_id])]
    return table.only(names, plan.passthrough)


def released(
    table: T,
    request: Request,
    account: OpenAccount | None,
    key: bytes | None,
    path: Path | None,
    compression: str,
    lazy: Callable[[T, PreparedRelease], D],
) -> D | ReleaseInfo:
    """Release a table: to a new directory, or as the frame that ``lazy`` makes of a table with its rows' addresses."""
    passed = request.options.get("passthrough") if request.plan is None else request.plan.passthrough
    if isinstance(passed, list | tuple):  # anything else is refused with the plan
        table.check_passed(passed)
    plan = plan_for(table, request, account, key, path)
    # Of persons' rows a release without a key chooses others than inference did.
    own = request.plan is None and plan.inferred is not None and (key is not None or plan.privacy_id is None)
    request = Request(plan=plan)
    with budget_for(table, request, account, key, path) as budget:
        if path is not None:
            return write_release(kept(table, plan), request, budget, path, compression, own)

        def frame(chosen: T, ready: Ready) -> D:
            return lazy(chosen.keyed(ready.key), counted(chosen, replace(ready, own=own)))

        return carry_out(kept(table, plan), request, budget, frame)


def write_release(
    table: EngineTable, request: Request, budget: ReleaseBudget, path: Path, compression: str, own: bool = False
) -> ReleaseInfo:
    """Release a table to a new directory of Parquet files; it appears whole or not at all.

    The table is read once for its release: the first pass writes the released rows, and what has to wait for its counts
    is only their order and the files' footers.
    """
    with staged(path) as (folder, publish):
        spill = SealedSpill.within(folder)

        def written(chosen: EngineTable, ready: Ready) -> ReleaseInfo:
            found = counted(chosen, replace(ready, own=own), spill)
            budget.check_input(found.digest)
            inputs = list(enumerate(found.blocks))
            publish(list(settled(chosen.run(Outcome(Written(found, spill, str(folder), compression)), inputs))))
            return found.info

        return carry_out(table, request, budget, written)


def counted(table: EngineTable, ready: Ready, spill: SealedSpill | None = None) -> PreparedRelease:
    """Do the first pass of a release that is paid for, which writes the released rows where there is a ``spill``."""
    plan, key = ready.plan, ready.key
    form: OutputForm = table.form(plan)
    bits = ((plan.sample or table.n) // BUCKET_ROWS).bit_length()
    work = Work(plan, form, bits, max(1, (table.n - 1).bit_length()), Selection(plan, key, table.n), key)
    tables = Tables(plan, key)
    task = work.first_pass if spill is None else partial(spill.first_pass, work)
    first_pass = table.keyed(key).first_pass(task, tables.merge)
    if not plan.shuffle:
        warn_of(
            first_pass.rows, {name: stretch.order for name, stretch in first_pass.stretches.items()}, table.partitions
        )
    measured = tables.measured()
    count = first_pass.digest.count if plan.columns else int(first_pass.tally.sum())
    drawn_from = None if plan.sample is None else table.n
    info = ReleaseInfo(plan, count, first_pass.digest.hexdigest(measured), drawn_from, ready.own, measured, ready.part)
    firsts = np.cumsum(first_pass.tally) - first_pass.tally
    found = zip(firsts.tolist(), first_pass.tally.tolist(), first_pass.checks.tolist(), strict=True)
    blocks: list[list[Block]] = [[] for _ in range(work.buckets)]
    for number, block in first_pass.blocks:
        blocks[number].append(block)
    buckets = tuple(Bucket(number, *bucket) for number, bucket in enumerate(found))
    return PreparedRelease(work, info, buckets, first_pass.input_digest, tuple(map(tuple, blocks)))
