"""Plan and sanitise a table in memory, of any kind."""

from __future__ import annotations

from typing import Any, Unpack

from dpframe.accounting.budget import Budget
from dpframe.api.options import PlanOptions
from dpframe.api.planning import TableFacts, choose_plan, new_key, noted, plan_for, refuse_release
from dpframe.io.checks import check_columns
from dpframe.io.frames import Frame, wrap
from dpframe.ledger.account import Account
from dpframe.plan.plan import Plan, default_delta
from dpframe.release.info import ReleaseInfo
from dpframe.release.order_watch import SortedWatch
from dpframe.release.release import Digest, permutation, release
from dpframe.spaces import Space


def make_plan(
    table: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    ledger: Any = None,
    dataset: str | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan how a table would be sanitised, without randomising anything.

    Parameters
    ----------
    table
        A pandas or polars DataFrame, a pyarrow Table, or anything with the Arrow C stream.
    epsilon, delta
        The promise, replace-one, per person. ``delta=None`` is min(1e-6, n^−1.5).
    spaces
        A declaration per column (see `as_space`), or another plan whose spaces are taken (and its leaks).
    infer
        Where other columns' spaces come from: ``"private"``, noisy counts that are paid for from the promise;
        ``"public"``, the dtype alone; or ``"data"``, with a `PrivacyLeakWarning`.
    infer_share, max_items
        The share of the promise that private inference takes, and the items of a set that it counts at most.
    drop, passthrough
        Columns to leave out; columns to copy *unprotected*.
    allocation
        ``"uniform"``, ``"error"`` (the least total normalised error), or ``{column: share}`` of the budget; a
        group is named by the tuple of its columns.
    mechanisms
        ``{column: tag}`` where another mechanism than the space's own is wanted, or a ready mechanism, which costs
        what it is certified to lose.
    groups
        Lists of columns that are randomised together, by one channel on their tuples: their joint costs them
        one ε in all. `Plan.forecast` shows what that does to every statistic.
    nulls
        ``"error"`` or ``"impute"``: what a null in a space without nulls is.
    contributions
        Rows that one person may own.
    shuffle
        Whether rows leave in a secret random order. It is what makes noise small: without it, or with columns
        passed through, several times more is needed for the same promise.
    sample
        A number of rows to choose in secret and release instead of all, or ``"optimal"``.

    ledger, dataset
        A `Ledger`, or its path, and the dataset in it from which private inference spends.

    Raises
    ------
    BudgetExceeded, LedgerError
        If the ledger does not allow the spend.
    ParameterError, ColumnError
        For an argument that breaks its rule, or a column without a space.
    AlreadySanitizedError
        If the table is a release.
    """
    frame = wrap(table)
    refuse_release(frame.text)
    facts = table_facts(frame)
    return plan_for(
        facts, lambda: new_key(None), noted(facts, Account.of(ledger, dataset)), epsilon=epsilon, delta=delta, **options
    )


def table_facts(frame: Frame) -> TableFacts:
    """Return what a plan is made from; the objects of a pandas column may be of any kind."""
    objects = frame.kind == "pandas"
    return TableFacts(frame.names, frame.n, frame.fields, lambda name: [frame.array(name)], frame.columns, objects)


def sanitize(
    table: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    plan: Plan | None = None,
    key: bytes | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    **options: Unpack[PlanOptions],
) -> Any:
    """Randomise every row of a table under (ε, δ)-differential privacy.

    Parameters
    ----------
    table
        A pandas or polars DataFrame, a pyarrow Table, or anything with the Arrow C stream.
    epsilon, delta, **options
        What decides the plan; see `make_plan`.
    plan
        A ready plan instead of these.
    key
        32 secret bytes, for repeating an interrupted release of the *same* table; otherwise fresh.
    ledger, dataset
        A `Ledger`, or its path, and the dataset in it from which the release spends, before any noise is drawn.

    Returns
    -------
    A table of the same kind (of streams a pyarrow Table), with the same columns (but those dropped) and dtypes, in
    a secret order unless ``shuffle=False``, which carries its plan (but for polars; see `write_parquet`).

    Raises
    ------
    ParameterError, ColumnError
        For an argument or a column that breaks its rule; nothing is drawn then.
    AlreadySanitizedError
        If the table is a release.
    BudgetExceeded, LedgerError
        If the ledger does not allow the spend.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(1_000, columns=["age", "region"])
    >>> spaces = {"age": (18, 95), "region": list(dpf.datasets.REGIONS)}
    >>> safe = sanitize(frame, epsilon=2, spaces=spaces)
    >>> safe.shape, safe.index.name
    ((1000, 2), 'shuffled')
    """
    frame = wrap(table)
    refuse_release(frame.text)
    chosen, account = choose_plan(plan, epsilon, delta, options), Account.of(ledger, dataset)
    secret, paid = new_key(key), False
    if chosen is None:
        assert epsilon is not None
        whole = Budget(epsilon, default_delta(frame.n) if delta is None else delta)

        def before(found: dict[str, Space], share: Budget) -> None:
            nonlocal paid
            if account is not None:
                # What can be refused is refused before anything is spent.
                _ = [frame.encode(name, space, options.get("nulls", "error")) for name, space in found.items()]
                account.settle(options.get("spaces"))
                account.spend(whole)
                paid = True

        # From the frame, for the table may be a stream, which is read only once.
        chosen = plan_for(table_facts(frame), lambda: secret, before, epsilon=epsilon, delta=delta, **options)
    check_columns(frame.names, chosen)
    chosen.check_rows(frame.n)
    codes = frame.codes(chosen)
    if not chosen.shuffle:
        watch = SortedWatch()
        watch.update(codes)
        watch.warn()
    if account is not None and not paid:
        account.settle(options.get("spaces"))
        account.spend(account.cost(chosen))
    released, order = release(codes, chosen, secret), permutation(chosen, secret, frame.n)
    digest = Digest(chosen)
    digest.update(released if chosen.sample is None else {name: found[order] for name, found in released.items()})
    rows = None if chosen.sample is None else frame.n
    info = ReleaseInfo(
        chosen,
        digest.count if chosen.columns else frame.n,
        digest.hexdigest(),
        rows,
        plan is None and chosen.inferred is not None,
    )
    return frame.rebuild(chosen, released, order, info.to_json())
