"""One release by an engine: the driver prepares it and pays, workers count, and buckets are gathered."""

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

from dpframe.api.public import Plan
from dpframe.disk import new_file
from dpframe.engines.chosen import check_places
from dpframe.engines.forms import OutputForm
from dpframe.engines.staging import WrittenFile, stage_release, write_error, write_part
from dpframe.engines.table import EngineTable, Outcome, unwrap_outcomes
from dpframe.engines.work import CHANGED, Bucket, FirstPass, Pieces, Seal, Work
from dpframe.errors import FileError, ParameterError
from dpframe.ledger.account import Cost, OpenAccount
from dpframe.ledger.draws import Draws
from dpframe.ledger.job_keys import check_not_interrupted, job_name
from dpframe.release.budgets import ReleaseBudget, budget_of_input
from dpframe.release.info import ReleaseInfo
from dpframe.release.job import Ready, planned, run_release_job
from dpframe.release.library import installed_library
from dpframe.release.noisy_tables import Tables
from dpframe.release.order_watch import warn_of
from dpframe.release.planning import Request
from dpframe.release.rows import Selection
from dpframe.tables.table import check_columns

Block = tuple[str, int, int]
"""Sealed rows of one bucket: the name of a file, and their offset and size in it, in bytes."""


@dataclass(frozen=True)
class SealedSpill:
    """Files of sealed rows in a folder, in the order of the input, under a key that is on no disk."""

    folder: str
    key: bytes = field(repr=False, default_factory=lambda: secrets.token_bytes(32))

    @classmethod
    def create_in(cls, folder: Path) -> SealedSpill:
        """Return files in a new folder that only its owner may list."""
        # The sizes of the files show the numbers of rows in parts.
        rows = folder / "rows"
        rows.mkdir(mode=0o700)
        return cls(str(rows))

    @property
    def seal(self) -> Seal:
        """The cipher of the rows."""
        return Seal(self.key)

    def first_pass(self, work: Work, pieces: Pieces) -> FirstPass:
        """Do the first pass over a part of a table, and write its released rows to a file."""
        # A second attempt writes another file; the driver reads the file of the attempt whose result it gets.
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
            raise write_error(path.parent, error) from None
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
            # A file that was cut short changed after its pass.
            if len(content) < size:
                raise FileError(CHANGED)
            yield content


T = TypeVar("T", bound=EngineTable)
D = TypeVar("D")

WORKER_BUCKET_ROWS = 1 << 18
"""Approximate number of rows of a bucket, which one worker orders in memory (limit of memory)."""


@dataclass(frozen=True)
class PreparedRelease:
    """A release after payment and first pass; its buckets can be gathered any number of times."""

    work: Work
    info: ReleaseInfo
    buckets: tuple[Bucket, ...]
    digest: bytes = field(default=b"", repr=False)
    """Keyed digest of the input rows."""
    blocks: tuple[tuple[Block, ...], ...] = field(default=(), repr=False)
    """Files and offsets of each bucket's rows, if the first pass wrote them."""

    @cached_property
    def text(self) -> str:
        """The description of the release."""
        return self.info.to_json()

    def __getstate__(self) -> dict[str, Any]:
        # Workers need neither the digest of the input nor the blocks of other buckets.
        return {name: getattr(self, name) for name in ("work", "info", "buckets")}

    def scatter(self, pieces: Pieces) -> Iterator[tuple[int, bytes]]:
        """Yield the sealed rows of a part of the table, by bucket."""
        return self.work.scatter(pieces)

    def gather(self, number: int, parts: list[bytes]) -> Any:
        """Return a bucket as a table in the release's form."""
        bucket = self.buckets[number]
        return self.work.form.table(self.work.gather(bucket, parts), bucket.first, self.text)


@dataclass(frozen=True)
class BucketWriter:
    """Writes the file of a bucket from the sealed rows of the first pass."""

    ready: PreparedRelease
    spill: SealedSpill
    folder: str
    compression: str

    def __call__(self, number: int, blocks: Sequence[Block]) -> WrittenFile:
        """Return the written file."""
        bucket, work = self.ready.buckets[number], self.ready.work
        batch = work.gather(bucket, self.spill.read(blocks), self.spill.seal)

        def write(file: IO[bytes]) -> None:
            work.form.write(batch, file, self.ready.info, self.compression)

        return write_part(self.folder, number, bucket.rows, write)


def check_plan_fits(table: EngineTable, plan: Plan) -> None:
    """Raise an error unless a table has the plan's columns, and its rows have the positions that the plan needs."""
    if plan.privacy_id is not None:
        check_places(table.by_id)
    # A release is refused later, with a better message.
    if table.text is None:
        check_columns([name for name in table.names if name != plan.privacy_id], plan)
    if plan.keeps_index:
        raise ParameterError("an engine keeps no index; make the plan with shuffle=True")
    if table.by_id and plan.sample is not None:
        raise ParameterError(
            "sample needs positions of rows, which rows with id= lack; write the table to Parquet first"
        )
    if table.by_id and not plan.shuffle:
        raise ParameterError("shuffle=False keeps an order, which rows with id= lack; write the table to Parquet first")


@dataclass(frozen=True)
class _InferenceAccount(OpenAccount):
    """An account that pays for the inference of a job's plan, unless a run of the job was interrupted."""

    job: str = ""

    def spend(self, cost: Cost, what: str = "release", receipt: str | None = None, draws: Draws | None = None) -> str:
        """Spend, or raise `LedgerError` if a run of the job was interrupted."""
        # A second inference would give another plan, which does not fit the key that is already paid for.
        check_not_interrupted(self.ledger, self.dataset, self.job)
        return super().spend(cost, what, receipt, draws)


def find_plan(
    table: EngineTable, request: Request, account: OpenAccount | None, key: bytes | None, path: Path | None
) -> Plan:
    """Return the plan of a request; without one, infer spaces from the table and make a plan."""
    if account is not None and key is not None:
        raise ParameterError("key and ledger do not go together: under a ledger every release has its own key")
    plan = request.plan
    if account is not None and path is not None:
        account = _InferenceAccount(account.ledger, account.dataset, account.part, account.run, job=job_name(path))
    release_plan = (
        planned(table, request.epsilon, request.delta, account, request.options, key) if plan is None else plan
    )
    check_plan_fits(table, release_plan)
    return release_plan


@contextlib.contextmanager
def open_budget(
    table: EngineTable, request: Request, account: OpenAccount | None, key: bytes | None, path: Path | None
) -> Iterator[ReleaseBudget]:
    """Yield the budget of a release: of a lazy frame, or of a job that writes a directory and can be repeated."""
    if path is None:
        yield ReleaseBudget(account, key)
        return

    plan = request.plan
    assert plan is not None
    # Known before any row is read: a job is compared first by these facts, and then by the keyed digest of its rows.
    facts = json.dumps([table.n, table.by_id]).encode()
    with budget_of_input(lambda: facts, path, request, account, key, partial(table.digest, plan)) as budget:
        yield budget


def select_columns(table: T, plan: Plan) -> T:
    """Return the table with the columns that leave and the column of persons."""
    names = [*plan.names, *plan.passthrough, *filter(None, [plan.privacy_id])]
    return table.only(names, plan.passthrough)


def release_table(
    table: T,
    request: Request,
    account: OpenAccount | None,
    key: bytes | None,
    path: Path | None,
    compression: str,
    lazy: Callable[[T, PreparedRelease], D],
) -> D | ReleaseInfo:
    """Release a table to a new directory, or as the lazy frame that ``lazy`` makes of the table and its release."""
    passthrough = request.options.get("passthrough") if request.plan is None else request.plan.passthrough
    # Other types are refused with the plan.
    if isinstance(passthrough, list | tuple):
        table.check_passthrough(passthrough)
    plan = find_plan(table, request, account, key, path)
    # Without a key, the release chooses other rows of each person than inference did.
    has_inferred = request.plan is None and plan.inferred is not None and (key is not None or plan.privacy_id is None)
    request = Request(plan=plan)
    with open_budget(table, request, account, key, path) as budget:
        if path is not None:
            return write_release(select_columns(table, plan), request, budget, path, compression, has_inferred)

        def make_frame(selected_table: T, ready: Ready) -> D:
            return lazy(
                selected_table.keyed(ready.key), run_first_pass(selected_table, replace(ready, own=has_inferred))
            )

        return run_release_job(select_columns(table, plan), request, budget, make_frame)


def write_release(
    table: EngineTable,
    request: Request,
    budget: ReleaseBudget,
    path: Path,
    compression: str,
    has_inferred: bool = False,
) -> ReleaseInfo:
    """Release a table to a new directory of Parquet files, which appears complete or not at all.

    The table is read once for its release. The first pass writes the released rows; their order and the files' footers
    wait for its counts.
    """
    with stage_release(path) as (folder, publish):
        spill = SealedSpill.create_in(folder)

        def write_files(selected_table: EngineTable, ready: Ready) -> ReleaseInfo:
            prepared = run_first_pass(selected_table, replace(ready, own=has_inferred), spill)
            # The digest of the pass shows an input that changed since the spend.
            budget.check_input(prepared.digest)
            inputs = list(enumerate(prepared.blocks))
            publish(
                list(
                    unwrap_outcomes(
                        selected_table.run(Outcome(BucketWriter(prepared, spill, str(folder), compression)), inputs)
                    )
                )
            )
            return prepared.info

        return run_release_job(table, request, budget, write_files)


def run_first_pass(table: EngineTable, ready: Ready, spill: SealedSpill | None = None) -> PreparedRelease:
    """Do the first pass of a release after its payment; with a ``spill`` it also writes the released rows."""
    plan, key = ready.plan, ready.key
    form: OutputForm = table.form(plan)
    # Powers of two: the first bits of a row's shuffle word are the number of its bucket.
    bits = ((plan.sample or table.n) // WORKER_BUCKET_ROWS).bit_length()
    work = Work(plan, form, bits, max(1, (table.n - 1).bit_length()), Selection(plan, key, table.n), key)
    tables = Tables(plan, key)
    task = work.first_pass if spill is None else partial(spill.first_pass, work)
    first_pass = table.keyed(key).first_pass(task, tables.merge)
    if not plan.shuffle:
        warn_of(
            first_pass.rows, {name: stretch.order for name, stretch in first_pass.stretches.items()}, table.partitions
        )
    noisy_tables = tables.measured()
    count = first_pass.digest.count if plan.columns else int(first_pass.tally.sum())
    table_rows = None if plan.sample is None else table.n
    info = ReleaseInfo(
        plan,
        count,
        first_pass.digest.hexdigest(noisy_tables),
        table_rows,
        ready.own,
        noisy_tables,
        ready.part,
        library=installed_library(),
        together=ready.together,
    )
    firsts = np.cumsum(first_pass.tally) - first_pass.tally
    bucket_facts = zip(firsts.tolist(), first_pass.tally.tolist(), first_pass.checks.tolist(), strict=True)
    blocks: list[list[Block]] = [[] for _ in range(work.buckets)]
    for number, block in first_pass.blocks:
        blocks[number].append(block)
    buckets = tuple(Bucket(number, *bucket) for number, bucket in enumerate(bucket_facts))
    return PreparedRelease(work, info, buckets, first_pass.input_digest, tuple(map(tuple, blocks)))
