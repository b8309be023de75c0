"""Plan and sanitise a table in memory, of any kind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from dpframe.errors import OrderLeakWarning, name_list, warn
from dpframe.frames import Frame, check_columns, wrap
from dpframe.loss import Budget
from dpframe.plan import Plan, default_delta
from dpframe.planning import (
    Account,
    PlanOptions,
    TableFacts,
    choose_plan,
    new_key,
    noted,
    plan_for,
    refuse_release,
)
from dpframe.release import Digest, ReleaseInfo, permutation, release
from dpframe.spaces import Space

__all__ = ["SortedWatch", "make_plan", "sanitize", "table_facts"]


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


@dataclass
class _Runs:
    """What is known of a column's runs of equal codes, up to the batch before."""

    last: int
    length: int = 0
    up: bool = True
    down: bool = True
    grouped: bool = True
    weight: float = 0.0
    """Σ ln(length!) over the runs that have ended."""
    ended: set[int] = field(default_factory=set)
    """Codes of these runs, as long as every code had one."""

    def update(self, column: npt.NDArray[np.integer]) -> None:
        """Add a batch that is not empty."""
        starts = np.concatenate([[0], np.flatnonzero(column[1:] != column[:-1]) + 1])
        heads = column[starts].astype(np.int64)
        lengths = np.diff(starts, append=len(column))
        if heads[0] == self.last:
            lengths[0] += self.length
        else:
            heads, lengths = np.insert(heads, 0, self.last), np.insert(lengths, 0, self.length)
        self.up = self.up and bool((heads[1:] > heads[:-1]).all())
        self.down = self.down and bool((heads[1:] < heads[:-1]).all())
        self.grouped = self.grouped and self._once_each(heads)
        if self.grouped:
            self.ended.update(heads[:-1].tolist())
        if self.up or self.down or self.grouped:
            counts = zip(*np.unique(lengths[:-1], return_counts=True), strict=True)
            self.weight += sum(int(times) * math.lgamma(int(length) + 1) for length, times in counts)
        self.last, self.length = int(heads[-1]), int(lengths[-1])

    def _once_each(self, heads: npt.NDArray[np.int64]) -> bool:
        """Tell whether no code of these runs had one before, and there are few of them."""
        few = len(self.ended) + len(heads) <= SortedWatch.MOST_GROUPS
        return few and len(np.unique(heads)) == len(heads) and self.ended.isdisjoint(heads.tolist())

    def unlikely(self, rows: int, orders: float) -> bool:
        """Tell whether rows in random order hardly ever look so; ``orders`` is ln of how many orders of runs do."""
        chance = orders + self.weight + math.lgamma(self.length + 1) - math.lgamma(rows + 1)
        return rows >= SortedWatch.LEAST_ROWS and chance <= math.log(SortedWatch.CHANCE)


def _folded(words: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return a number per set: equal sets have equal ones, and hardly any others do. Sets have no order."""
    out = np.zeros(len(words), dtype=np.uint64)
    for word in words.T:
        out = (out ^ word) * np.uint64(0x9E3779B97F4A7C15)
        out ^= out >> np.uint64(29)
    return out.astype(np.int64)


class SortedWatch:
    """Watches batches of codes for columns that are sorted or grouped, which tells rows by their position.

    Parameters
    ----------
    partitions
        Keys of the folders that the input was read from: its rows are grouped by them.
    """

    LEAST_ROWS = 10
    """Fewer rows than this are sorted by chance too often to warn."""

    CHANCE = 0.01
    """A column in random order is warned of at most this often, and far less often unless it is tiny or constant but
    for a row or two: d values that occur n₁, …, n_d times stand in d runs with probability d!·n₁!⋯n_d!/n!, and
    sorted with 2·n₁!⋯n_d!/n!."""

    MOST_GROUPS = 1 << 12
    """Columns of more groups are watched for being sorted only."""

    def __init__(self, partitions: Iterable[str] = ()) -> None:
        self._partitions = list(partitions)
        self._runs: dict[str, _Runs] = {}
        self._rows = 0

    def update(self, codes: Mapping[str, npt.NDArray[np.integer]]) -> None:
        """Add a batch."""
        self._rows += len(next(iter(codes.values()), ()))
        for name, rows in codes.items():
            column = rows if rows.ndim == 1 else _folded(rows)
            if len(column):
                runs = self._runs.setdefault(name, _Runs(int(column[0])))
                if runs.up or runs.down or runs.grouped:
                    runs.update(column)

    def warn(self) -> None:
        """Warn of such columns (to the curator only; never in the plan)."""
        n, others = self._rows, {k: runs for k, runs in self._runs.items() if k not in self._partitions}
        ordered = [k for k, r in others.items() if r.up != r.down and r.unlikely(n, math.log(2))]
        grouped = [
            name
            for name, runs in others.items()
            if name not in ordered and runs.grouped and runs.unlikely(n, math.lgamma(len(runs.ended) + 2))
        ]
        found = (("sorted", ordered), ("grouped", grouped), ("partitioned", self._partitions))
        says = " and ".join(f"{how} by {name_list(names)}" for how, names in found if names)
        if says:
            warn(
                f"the input is {says} and keeps its order: positions tell about rows; "
                "use shuffle=True or reorder the rows at random first",
                OrderLeakWarning,
            )
