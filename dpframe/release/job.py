"""The job of a release, and of the inference of spaces: of a table of any kind, by way of all checks and the spend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from dpframe.errors import (
    AlreadySanitizedError,
    ColumnError,
    DpframeWarning,
    InferenceWarning,
    ParameterError,
    check_whole,
    name_list,
    warn,
)
from dpframe.ledger.account import INFERENCE, RELEASE, Cost, Job, OpenAccount
from dpframe.plan.data import MOST_PERSON_ROWS
from dpframe.plan.options import PlanOptions, check_names
from dpframe.plan.plan import Plan
from dpframe.plan.threads import one_thread
from dpframe.release.budgets import ReleaseBudget
from dpframe.release.info import ReleaseInfo
from dpframe.release.library import installed_library
from dpframe.release.noisy_tables import measured_tables
from dpframe.release.order_watch import SortedWatch
from dpframe.release.planning import CheckedRequest, Request
from dpframe.release.reader import described, is_known_release
from dpframe.release.rows import Digest, permutation, release
from dpframe.release.together import Together
from dpframe.tables.frames import Frame
from dpframe.tables.table import SHUFFLED, Codes, Table, check_released_types, located

T = TypeVar("T", bound=Table)
D = TypeVar("D")

_MIN_AVERAGED_ROWS = 2
"""Rows below which a table has nothing to average."""


def of_persons(table: T, request: Request, key: bytes) -> T:
    """Return a table with equally many rows of every person, if a request names the column that identifies persons."""
    plan, options = request.plan, request.options
    name = options.get("privacy_id") if plan is None else plan.privacy_id
    # A release passes through: the job's own check refuses releases with the right message.
    if name is None or table.text is not None:
        return table
    if not isinstance(name, str):
        raise ParameterError("privacy_id must be the name of the column that names each row's person")
    if name not in table.names:
        raise ParameterError(f"privacy_id names {name!r}, which is not a column; columns are {name_list(table.names)}")
    if name in (*options.get("drop", ()), *options.get("passthrough", ())):
        raise ParameterError(f"privacy_id {name!r} does not leave by itself; take it out of drop and passthrough")
    rows = options.get("contributions", 1) if plan is None else plan.contributions
    rows = check_whole(rows, "contributions", 1, MOST_PERSON_ROWS, of="rows of a person, with privacy_id")
    try:
        return table.of_persons(name, table.person_counts(name, rows, key))
    except ColumnError as error:
        raise located(error, name) from None


@dataclass(frozen=True)
class Ready:
    """A release that is checked and paid for, and not yet drawn.

    ``codes`` are those of a table that is held in memory; ``own`` means that the plan was made from this table;
    ``part`` is the part of a ledger's dataset whose rows it has; ``together`` names tables that leave with it.
    """

    plan: Plan
    key: bytes = field(repr=False)
    codes: Codes = field(repr=False)
    own: bool
    part: str | None = None
    together: Together | None = None


Checked = tuple[CheckedRequest, Codes]


@dataclass(frozen=True)
class ReleaseJob(Job[Checked, D], Generic[T, D]):
    """A release of a table, or the inference of its spaces, under a request.

    ``then`` draws the rows, and returns or writes the release; ``fits`` refuses columns that it cannot write.
    """

    table: T
    request: Request
    budget: ReleaseBudget
    then: Callable[[T, Ready], D]
    fits: Callable[[CheckedRequest], None] = lambda _: None

    @one_thread
    def check(self) -> Checked:
        """Refuse a release, a request or a value that breaks its rule; return the codes of a table in memory."""
        table, request = self.table, self.request
        if table.text is not None:
            raise AlreadySanitizedError(
                "the table is a release already; sanitising it again only adds noise: use the original table"
            )
        # A release that lost its description, as by way of CSV, keeps the name of its index.
        if SHUFFLED in (*getattr(table, "index_names", ()), *table.names):
            warn(
                f"the table has {SHUFFLED!r} as a column or index, like a release, to which another release only "
                "adds noise; rename that column, or read a release with dpframe.read(path)",
                DpframeWarning,
            )
        elif isinstance(table, Frame) and is_known_release(table):
            warn(
                "the table has the rows of a release, to which another release only adds noise; use the original table",
                DpframeWarning,
            )
        checked_request = (
            CheckedRequest.of(table, request)
            if request.plan is None
            else CheckedRequest.ready(request.plan, table, request)
        )
        if request.release and checked_request.plan is not None:  # inference has a warning of its own
            if table.n < _MIN_AVERAGED_ROWS:
                row_count_text = (
                    "the table has no rows: the release is empty" if table.n == 0 else "the table has one row"
                )
                warn(
                    f"{row_count_text}, and estimates of it say nothing; check the input, e.g. a filter before it",
                    InferenceWarning,
                )
            if not (checked_request.plan.columns or checked_request.plan.passthrough):
                warn("no column is left to release; check the input and drop=", InferenceWarning)
            if self.budget.account is not None and not checked_request.plan.tells_of_rows:
                raise ParameterError(
                    "no column can differ between rows, so that nothing needs a budget; leave ledger and dataset out"
                )
        # Before the spend: a column that the target cannot hold would otherwise fail when all is paid.
        self.fits(checked_request)
        likely_plan = checked_request.widened(table)
        if likely_plan is not None:
            check_released_types(table, likely_plan)
        codes: Codes = {}
        # A file is read once more only if a later refusal of a value would have cost something.
        if checked_request.allowed is not None or (request.release and (table.held or self.budget.account is not None)):
            table_codes = table.codes(checked_request.spaces, checked_request.nulls, checked_request.imputed)
            codes = table_codes if request.release else {}
        if checked_request.plan is not None and not checked_request.plan.shuffle:
            _watch_order(codes)
        return checked_request, codes

    def spend(self, checked: Checked) -> str | None:
        """Pay for a whole release, or for inference only; a ready plan that is not released is free."""
        (checked_request, codes), budget = checked, self.budget
        # Another dataset may have paid for the reused spaces: this dataset pays before it uses them.
        if checked_request.reused is not None:
            budget.settle(checked_request.reused, checked_request.unit)
        if self.request.release:
            cost = checked_request.cost if checked_request.plan is None else budget.cost(checked_request.plan)
            if budget.account is not None:  # only what a ledger has entered is known again
                request_digest = self.request.digest if checked_request.plan is None else checked_request.plan.digest
                cost = replace(cost, wanted=request_digest, inference=checked_request.measurement)
            return budget.pay(self.table, RELEASE, cost, codes)
        if checked_request.allowed is not None:
            cost = Cost(checked_request.allowed.budget, checked_request.allowed.step, unit=checked_request.unit)
            return budget.pay(self.table, INFERENCE, cost, codes)
        return None

    def key(self) -> bytes:
        """Return the budget's key."""
        return self.budget.key

    def draw(self, checked: Checked, receipt: str | None, key: bytes) -> D:
        """Draw the missing spaces of the plan, and then the rows."""
        return self.then(self.table, self.ready(*checked, receipt, key))

    @one_thread
    def ready(self, checked_request: CheckedRequest, codes: Codes, receipt: str | None, key: bytes) -> Ready:
        """Draw the missing spaces of the plan, after the spend, and return what rows are drawn with."""
        table, account = self.table, self.budget.account
        # Later releases subtract a receipt's cost, so that only an inference that was paid separately gives one.
        inference_receipt = None if self.request.release else receipt
        plan = (
            checked_request.measured(table, key, inference_receipt)
            if checked_request.plan is None
            else checked_request.plan
        )
        if checked_request.plan is None and self.request.release and table.held:
            inferred_spaces = {name: plan[name].space for name in plan.names if name not in codes}
            codes |= table.codes(inferred_spaces, plan.nulls, tuple(inferred_spaces))
            codes = {name: codes[name] for name in plan.names}
            if not plan.shuffle:
                _watch_order(codes)
            self.budget.bind(table, checked_request.cost, codes, receipt, plan)
        has_own_plan = self.request.plan is None and plan.inferred is not None
        return Ready(plan, key, codes, has_own_plan, None if account is None else account.part)


def run_release_job(
    table: T,
    request: Request,
    budget: ReleaseBudget,
    then: Callable[[T, Ready], D],
    fits: Callable[[CheckedRequest], None] = lambda _: None,
) -> D:
    """Run the job of a request: of a table in memory, of files, or of an engine's; see `ReleaseJob`.

    Raises `AlreadySanitizedError` if the table is a release; `ParameterError`, `PlanError` or `ColumnError` for a
    request or a value that breaks its rule; nothing is spent then; `BudgetExceeded` or `LedgerError` if the ledger does
    not allow the spend; nothing is drawn then.
    """
    person_rows = of_persons(table, request, budget.choice)
    return ReleaseJob(person_rows, request, budget, then, fits).run()


def planned(
    table: Table,
    epsilon: float | None,
    delta: float | None,
    account: OpenAccount | None,
    options: PlanOptions,
    key: bytes | None = None,
) -> Plan:
    """Return the plan of an entry point that only makes plans, drawn with a key that it was given, or a fresh one."""
    check_names(options)
    if epsilon is None:
        raise ParameterError("give epsilon, e.g. epsilon=1.0")
    request = Request(epsilon, delta, None, options, release=False)
    return run_release_job(table, request, ReleaseBudget(account, key), lambda _, ready: ready.plan)


def _watch_order(codes: Codes) -> None:
    """Warn of rows that keep their order if the order reveals their values."""
    watch = SortedWatch()
    watch.update(codes)
    watch.warn()


def drawn(frame: Frame, ready: Ready) -> Any:
    """Return the release of a frame that is ready for it, as a table of its kind."""
    plan, key = ready.plan, ready.key
    released, order = release(ready.codes, plan, key), permutation(plan, key, frame.n)
    tables, digest = measured_tables(ready.codes, plan, key), Digest(plan)
    # Only the rows of the sample leave, so that only these are in the digest.
    digest.update(released if plan.sample is None else {name: codes[order] for name, codes in released.items()})
    rows = None if plan.sample is None else frame.n
    count = digest.count if plan.columns else frame.n
    digests = digest.hexdigest(tables)
    info = ReleaseInfo(
        plan, count, digests, rows, ready.own, tables, ready.part, library=installed_library(), together=ready.together
    )
    # With a very large ε noise may change no row: the original then has the digest of its release.
    unchanged = all(np.array_equal(codes, ready.codes[name]) for name, codes in released.items())
    return frame.rebuild(plan, plan.released_spaces, released, order, described(info, unchanged))
