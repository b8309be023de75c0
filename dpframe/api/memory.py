"""Plan and sanitise a table in memory, of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import pandas as pd

from dpframe.api.options import PlanOptions, documented
from dpframe.api.planning import Ready, ReleaseBudget, Request, of_persons, planned, prepare
from dpframe.api.targets import check_alone, reached
from dpframe.ledger.account import Account
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo
from dpframe.release.release import Digest, permutation, release
from dpframe.release.tables import measured_tables
from dpframe.tables.frames import Frame, wrap


@documented
def make_plan(
    table: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    target: Mapping[Any, float] | None = None,
    max_epsilon: float | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    part: str | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan how a table would be sanitised, without randomising anything.

    Parameters
    ----------
    table
        A pandas or polars DataFrame, a pyarrow Table, or anything with the Arrow C stream.
    epsilon, delta
        The promise, replace-one, per person. ``delta=None`` is min(1e-6, n^−1.5).
    {options}
    target, max_epsilon
        Instead of ``epsilon`` the standard errors that statistics may have, ``{column or pair: error}``: of shares of
        a listed column's values or a pair's cells, of a number's mean, of supports of items. The plan is that of the
        least ε, at most ``max_epsilon`` (10), whose forecast meets them all; all spaces must be known. Tables that are
        measured are then those that targets name. See `price_targets`.
    ledger, dataset, part
        A `Ledger`, or its path, and the dataset in it, or a part of that, from which private inference spends.

    Raises
    ------
    BudgetExceeded, LedgerError
        If the ledger does not allow the spend.
    ParameterError, ColumnError
        For an argument that breaks its rule, or a column without a space.
    AlreadySanitizedError
        If the table is a release.
    """
    if target is not None or max_epsilon is not None:
        check_alone(epsilon, target, ledger, dataset, part)
        return reached(wrap(table), target, max_epsilon, delta, options).plan
    return planned(wrap(table), epsilon, delta, Account.of(ledger, dataset, part), options)


@documented
def price_targets(
    table: Any,
    target: Mapping[Any, float],
    max_epsilon: float | None = None,
    delta: float | None = None,
    **options: Unpack[PlanOptions],
) -> pd.DataFrame:
    """Return which of some targets binds, and the price of tightening each.

    Parameters
    ----------
    table, target, max_epsilon, delta
        As for `make_plan`, which returns the plan.
    {options}

    Returns
    -------
    DataFrame with a row per target: ``statistic``, ``target``, the forecast ``std_error`` at the least ε that meets all
    of them, whether it ``binds`` there, and ``epsilon_if_halved``, the ε that half of it would ask for, NaN if none up
    to ``max_epsilon`` does. The ε found is in ``attrs["epsilon"]``.

    Raises
    ------
    ParameterError
        As `make_plan`: also if the targets are out of reach, with the least errors to be had.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(20_000, columns=["sex", "region"])
    >>> spaces = {"sex": ["F", "M"], "region": list(dpf.datasets.REGIONS)}
    >>> prices = dpf.price_targets(frame, {"sex": 0.01, ("sex", "region"): 0.01}, delta=0, spaces=spaces)
    >>> prices[["statistic", "binds"]].to_dict("index")
    {'sex': {'statistic': 'marginal', 'binds': False}, 'sex × region': {'statistic': 'joint', 'binds': True}}
    """
    plans = reached(wrap(table), target, max_epsilon, delta, options)
    prices = plans.table()
    prices.attrs["epsilon"] = plans.plan.epsilon
    return prices


@documented
def sanitize(
    table: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    plan: Plan | None = None,
    key: bytes | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    part: str | None = None,
    **options: Unpack[PlanOptions],
) -> Any:
    """Randomise every row of a table under (ε, δ)-differential privacy.

    Parameters
    ----------
    table
        A pandas or polars DataFrame, a pyarrow Table, or anything with the Arrow C stream.
    epsilon, delta
        The promise, replace-one, per person. ``delta=None`` is min(1e-6, n^−1.5).
    plan
        A ready plan instead of these and of the options below.
    key
        32 secret bytes, for repeating an interrupted release of the *same* table; otherwise fresh. Two tables under one
        noise show how they differ: with a ledger the second is refused.
    ledger, dataset, part
        A `Ledger`, or its path, and the dataset in it from which the release spends, before any noise is drawn; or a
        part of the dataset, where the table holds only the rows of that part. Parts must have no person in common:
        that they have not is taken on trust, as a ledger holds no rows. The same table as two parts is warned of within
        a process, and refused under one ``key``.
    {options}

    Returns
    -------
    A table of the same kind (of streams a pyarrow Table), with the same columns (except those dropped) and dtypes, in
    shuffled order unless ``shuffle=False``, which carries its plan (except polars; see `write_parquet`).

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
    budget, request = ReleaseBudget(Account.of(ledger, dataset, part), key), Request(epsilon, delta, plan, options)
    frame = of_persons(wrap(table), request, budget.choice)
    return drawn(frame, prepare(frame, request, budget))


def drawn(frame: Frame, ready: Ready) -> Any:
    """Return the release of a frame that is ready for it, as a table of its kind."""
    plan, key = ready.plan, ready.key
    released, order = release(ready.codes, plan, key), permutation(plan, key, frame.n)
    tables, digest = measured_tables(ready.codes, plan, key), Digest(plan)
    digest.update(released if plan.sample is None else {name: codes[order] for name, codes in released.items()})
    rows = None if plan.sample is None else frame.n
    count = digest.count if plan.columns else frame.n
    info = ReleaseInfo(plan, count, digest.hexdigest(tables), rows, ready.own, tables, ready.part)
    return frame.rebuild(plan, plan.released_spaces, released, order, info.to_json())
