"""Plan and sanitise a table in memory, of any kind."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from dpframe.errors import AlreadySanitizedError, OrderLeakWarning, ParameterError
from dpframe.frames import check_columns, wrap
from dpframe.infer import Field, Reader, infer_spaces
from dpframe.loss import check_delta, check_epsilon
from dpframe.plan import Plan, build_plan
from dpframe.release import Digest, ReleaseInfo, permutation, release

__all__ = [
    "PlanOptions",
    "SortedWatch",
    "choose_plan",
    "make_plan",
    "new_key",
    "plan_for",
    "refuse_release",
    "sanitize",
]


class PlanOptions(TypedDict, total=False):
    """Keyword arguments that decide a plan; see `make_plan`."""

    spaces: Mapping[str, Any] | Plan | None
    infer: str
    drop: Iterable[str]
    passthrough: Iterable[str]
    allocation: str | Mapping[str, float]
    nulls: str
    contributions: int
    shuffle: bool


def new_key(key: bytes | None) -> bytes:
    """Return the given key, or 32 fresh bytes from the operating system."""
    return secrets.token_bytes(32) if key is None else key


def _names(value: Iterable[str], name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ParameterError(f"{name} must be a list of column names, e.g. {name}=[{value!r}]")
    return tuple(value)


def plan_for(
    names: list[str],
    fields: Any,
    n: int,
    read: Reader,
    *,
    epsilon: float,
    delta: float | None = None,
    spaces: Mapping[str, Any] | Plan | None = None,
    infer: str = "public",
    drop: Iterable[str] = (),
    passthrough: Iterable[str] = (),
    allocation: str | Mapping[str, float] = "uniform",
    nulls: str = "error",
    contributions: int = 1,
    shuffle: bool = True,
) -> Plan:
    """Make a plan from a table's public facts; every face's ``plan`` ends here.

    ``fields`` gives the `Field` of named columns, ``read`` their data (for ``infer="data"`` only).
    """
    check_epsilon(epsilon)
    check_delta(0.0 if delta is None else delta)
    drop, passthrough = _names(drop, "drop"), _names(passthrough, "passthrough")
    for option, given in (("drop", drop), ("passthrough", passthrough)):
        for name in given:
            if name not in names:
                raise ParameterError(f"{option} names {name!r}, which is not a column; columns are {', '.join(names)}")
    both = [name for name in drop if name in passthrough]
    if both:
        raise ParameterError(f"column {both[0]!r} is in drop and in passthrough; name it in one of them")
    columns: list[Field] = fields([name for name in names if name not in drop and name not in passthrough])
    found, leaks = infer_spaces(columns, spaces, infer, read)
    return build_plan(
        found,
        epsilon=epsilon,
        delta=delta,
        n=n,
        allocation=allocation,
        contributions=contributions,
        shuffle=shuffle,
        nulls=nulls,
        drop=drop,
        passthrough=passthrough,
        leaks=leaks,
    )


def make_plan(table: Any, epsilon: float, delta: float | None = None, **options: Unpack[PlanOptions]) -> Plan:
    """Plan how a table would be sanitised, without randomising anything.

    Parameters
    ----------
    table
        A pandas or polars DataFrame, a pyarrow Table, or anything with the Arrow C stream.
    epsilon, delta
        The promise, replace-one, per person. ``delta=None`` is 0: no column needs it here.
    spaces
        A declaration per column (see `as_space`), or another plan whose spaces are taken.
    infer
        Where other columns' spaces come from: ``"public"``, the dtype alone; or ``"data"``, with a
        `PrivacyLeakWarning`.
    drop, passthrough
        Columns to leave out; columns to copy *unprotected*.
    allocation
        ``"uniform"``, or ``{column: share}`` of the budget.
    nulls
        ``"error"`` or ``"impute"``: what a null in a space without nulls is.
    contributions
        Rows that one person may own.
    shuffle
        Whether rows leave in a secret random order.

    Raises
    ------
    ParameterError, ColumnError
        For an argument that breaks its rule, or a column without a space.
    AlreadySanitizedError
        If the table is a release.
    """
    frame = wrap(table)
    refuse_release(frame.text)
    return plan_for(
        frame.names,
        frame.fields,
        frame.n,
        lambda name: [frame.array(name)],
        epsilon=epsilon,
        delta=delta,
        **options,
    )


def refuse_release(text: str | None) -> None:
    """Raise `AlreadySanitizedError` for a table that carries a release's description."""
    if text is not None:
        raise AlreadySanitizedError(
            "the table is a release already; sanitising it again only adds noise: use the original table"
        )


def choose_plan(plan: Plan | None, epsilon: float | None, delta: float | None, options: PlanOptions) -> Plan | None:
    """Return the plan that was given, or None if one is to be made; refuse both and neither."""
    if plan is None:
        if epsilon is None:
            raise ParameterError("give epsilon, e.g. epsilon=1.0, or a plan")
        return None
    if not isinstance(plan, Plan):
        raise ParameterError("plan must be a Plan; Plan.read(path) reads one from a file")
    if epsilon is not None or delta is not None or options:
        extra = next(iter(options), "epsilon" if epsilon is not None else "delta")
        raise ParameterError(f"{extra} is already decided by the plan; give one or the other")
    return plan


def sanitize(
    table: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    plan: Plan | None = None,
    key: bytes | None = None,
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

    Returns
    -------
    A table of the same kind, with the same columns (but those dropped) and dtypes, in a secret order
    unless ``shuffle=False``, which carries its plan.

    Raises
    ------
    ParameterError, ColumnError
        For an argument or a column that breaks its rule; nothing is drawn then.
    AlreadySanitizedError
        If the table is a release.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(1_000, columns=["age", "region"])
    >>> spaces = {"age": (18, 95), "region": frame["region"].dtype}
    >>> safe = sanitize(frame, epsilon=2, spaces=spaces)
    >>> safe.shape, safe.index.name
    ((1000, 2), 'shuffled')
    """
    frame = wrap(table)
    refuse_release(frame.text)
    chosen = choose_plan(plan, epsilon, delta, options)
    if chosen is None:
        assert epsilon is not None
        chosen = make_plan(table, epsilon, delta, **options)
    check_columns(frame.names, chosen)
    codes = {c.name: frame.encode(c.name, c.space, chosen.nulls) for c in chosen.columns}
    if not chosen.shuffle:
        watch = SortedWatch()
        watch.update(codes)
        watch.warn()
    key = new_key(key)
    released = release(codes, chosen, key)
    digest = Digest(chosen)
    digest.update(released)
    info = ReleaseInfo(chosen, frame.n, digest.hexdigest())
    return frame.rebuild(chosen, released, permutation(chosen, key, frame.n), info.to_json())


class SortedWatch:
    """Watches batches of codes for columns that are sorted, which tells rows by their position."""

    LEAST_ROWS = 10
    """Fewer rows than this are sorted by chance too often to warn."""

    def __init__(self) -> None:
        self._state: dict[str, tuple[bool, bool, int]] = {}
        self._rows = 0

    def update(self, codes: Mapping[str, npt.NDArray[np.integer]]) -> None:
        """Add a batch."""
        self._rows += len(next(iter(codes.values()), ()))
        for name, column in codes.items():
            up, down, last = self._state.get(name, (True, True, int(column[0]) if len(column) else 0))
            if not len(column) or not (up or down):
                continue
            up = up and last <= int(column[0]) and bool((column[1:] >= column[:-1]).all())
            down = down and last >= int(column[0]) and bool((column[1:] <= column[:-1]).all())
            self._state[name] = (up, down, int(column[-1]))

    def warn(self) -> None:
        """Warn of columns that were sorted from end to end (to the curator only; never in the plan)."""
        found = [name for name, (up, down, _) in self._state.items() if up != down]
        if found and self._rows >= self.LEAST_ROWS:
            warnings.warn(
                f"the input is sorted by {', '.join(found)} and keeps its order: positions tell about rows; "
                "use shuffle=True or reorder the rows at random first",
                OrderLeakWarning,
                stacklevel=3,
            )
