"""From a table's public facts, and where they are not enough a share of the budget, to a plan."""

from __future__ import annotations

import difflib
import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpframe.accounting.budget import Budget, check_delta, check_epsilon
from dpframe.api.options import PlanOptions
from dpframe.errors import (
    AlreadySanitizedError,
    ColumnError,
    InferenceWarning,
    LargeEpsilonWarning,
    ParameterError,
    RepeatedReleaseWarning,
    name_list,
    warn,
)
from dpframe.infer.declared import infer_spaces
from dpframe.infer.private import MOST_ITEMS, histograms_of, infer_privately
from dpframe.infer.share import allowance
from dpframe.infer.types import any_space, from_type
from dpframe.ledger.account import INFERENCE, Account
from dpframe.mechanisms import Mechanism
from dpframe.plan.inferred import Inferred
from dpframe.plan.plan import Plan, build_plan, default_delta
from dpframe.spaces import Space
from dpframe.spaces.field import Field


@dataclass(frozen=True)
class TableFacts:
    """What a plan is made from.

    ``fields`` gives the `Field` of named columns, ``arrays`` the data of one, ``batches`` that of several, in
    batches (of columns without a type lists of objects).
    """

    names: Sequence[str]
    n: int
    fields: Callable[[Sequence[str]], list[Field]]
    arrays: Callable[[str], Iterable[pa.Array]]
    batches: Callable[[Sequence[str]], Iterator[Mapping[str, Any]]]
    objects: bool = False
    """Whether type null stands for objects, whose types are open; else no value of such a column can be released."""


Before = Callable[[dict[str, Space], Budget], str | None]
"""Called with the spaces known so far and what inference is about to spend; may return the receipt of the spend."""


_asked: set[bytes] = set()
"""Requests for private inference that this process has made without a ledger."""


def noted(table: TableFacts, account: Account | None) -> Before:
    """Return what a face's ``plan`` does before inference spends: enter it, or warn when it is repeated."""

    def before(found: dict[str, Space], share: Budget) -> str | None:
        if account is not None:
            return account.spend(share, INFERENCE)
        request = hashlib.sha256(repr((list(table.names), table.n)).encode()).digest()
        if request in _asked:
            warn(
                "spaces of such a table were inferred before in this process, and every time costs "
                f"epsilon={share.epsilon:g}, delta={share.delta:g}; reuse them with spaces=plan, or let a ledger= "
                "keep count",
                RepeatedReleaseWarning,
            )
        _asked.add(request)
        return None

    return before


_DECIDES = ("epsilon", "delta", *PlanOptions.__annotations__)


def check_options(given: Iterable[str]) -> None:
    """Raise `ParameterError` for a keyword that decides nothing about a plan."""
    for name in given:
        if name not in _DECIDES:
            near = difflib.get_close_matches(name, _DECIDES, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise ParameterError(f"{name} is no option of a plan; {meant}options are {', '.join(_DECIDES)}")


def new_key(key: bytes | None) -> bytes:
    """Return the given key, or 32 fresh bytes from the operating system."""
    return secrets.token_bytes(32) if key is None else key


def _names(value: Iterable[str], name: str) -> tuple[str, ...]:
    if not isinstance(value, Iterable):
        raise ParameterError(f'{name} must be a list of column names, e.g. {name}=["id"]')
    if isinstance(value, str):
        raise ParameterError(f"{name} must be a list of column names, e.g. {name}=[{value!r}]")
    return tuple(value)


_LARGE = 10
"""An ε above which a promise is warned of."""


def plan_for(
    table: TableFacts,
    key: Callable[[], bytes],
    before: Before,
    *,
    epsilon: float | None,
    delta: float | None = None,
    spaces: Mapping[str, Any] | Plan | None = None,
    infer: str = "private",
    infer_share: float | None = None,
    max_items: int = MOST_ITEMS,
    drop: Iterable[str] = (),
    passthrough: Iterable[str] = (),
    contributions: int = 1,
    **options: Any,
) -> Plan:
    """Make a plan from a table; every face's ``plan`` ends here.

    ``key`` gives the secret key that inference draws with, and is called after ``before``.
    """
    check_options(options)
    if epsilon is None:
        raise ParameterError("give epsilon, e.g. epsilon=1.0")
    epsilon = check_epsilon(epsilon)
    if epsilon > _LARGE:
        warn(
            f"epsilon={epsilon:g} is above {_LARGE}: one person's row may change the odds of what is released by the "
            f"factor e^{epsilon:g}, which promises next to nothing; take less, e.g. epsilon=1",
            LargeEpsilonWarning,
        )
    delta = default_delta(table.n) if delta is None else check_delta(delta)
    drop, passthrough = _names(drop, "drop"), _names(passthrough, "passthrough")
    _check_lists(table.names, drop, passthrough)
    _check_inference(infer_share, max_items)
    columns = table.fields([name for name in table.names if name not in drop and name not in passthrough])
    found, left, leaks = infer_spaces(columns, spaces, infer, table.arrays)
    options |= {"drop": drop, "passthrough": passthrough, "contributions": contributions, "leaks": leaks, "n": table.n}
    if not left:
        return build_plan({c.name: found[c.name] for c in columns}, epsilon=epsilon, delta=delta, **options)
    _check_types(left, table.objects)
    promise, secret = Budget(epsilon, delta), options.get("shuffle", True) and not passthrough
    histograms = histograms_of(left, table.n, max_items)
    if not histograms:  # types say it all
        found |= {column.name: known for column in left if (known := from_type(column)) is not None}
        return build_plan({c.name: found[c.name] for c in columns}, epsilon=epsilon, delta=delta, **options)
    share = allowance(promise, histograms, table.n, contributions, infer_share, secret)
    receipt: list[str | None] = []

    def paid() -> None:
        # What a plan may be refused for is found before the spend, as far as spaces do not matter.
        rest = promise.less(share.budget, "inference") if share.step is None else promise
        _rehearse({c.name: found.get(c.name) or any_space(c) for c in columns}, rest, left, options)
        receipt.append(before(found, share.budget))

    inference = infer_privately(
        left,
        table.n,
        table.batches,
        share.spendable,
        key,
        contributions=contributions,
        most_items=max_items,
        before=paid,
    )
    spaces = found | inference.spaces
    inferred = Inferred(
        share.budget,
        tuple(c.name for c in left),
        inference.measured,
        tuple(inference.threshold.items()),
        receipt[0],
        share.step,
    )
    plan = build_plan(
        {c.name: spaces[c.name] for c in columns}, epsilon=epsilon, delta=delta, inferred=inferred, **options
    )
    warn_not_found(plan)
    return plan


def warn_not_found(plan: Plan) -> None:
    """Warn, in one line for all columns, of spaces that private inference did not find, with what to declare."""
    if not plan.not_found:
        return
    reasons = dict.fromkeys(missing.why for missing in plan.not_found)
    grounds = "; ".join(
        f"{', '.join(repr(missing.column) for missing in plan.not_found if missing.why == why)}: {why}"
        for why in reasons
    )
    entries = ", ".join(f"{missing.column!r}: {missing.placeholder}" for missing in plan.not_found)
    warn(
        f"private inference did not find the spaces of {len(plan.not_found)} of {len(plan.columns)} columns "
        f"({grounds}); estimates of them are NaN unless asked for with clipped=True: declare spaces={{{entries}}}, or "
        "raise epsilon or infer_share",
        InferenceWarning,
    )


_SMALL = 1e-3
"""An ε below which mechanisms may be out of reach."""


def _rehearse(spaces: Mapping[str, Space], rest: Budget, left: Sequence[Field], options: Mapping[str, Any]) -> None:
    """Build a plan from stand-ins for the spaces that are not known yet, in vain.

    Names, shares, groups and rows are checked; how much noise there is, is calibrated only where it may fail.
    """
    budget = rest if rest.epsilon < _SMALL else Budget(1.0, 0.0)
    unknown, chosen = {column.name for column in left}, options.get("mechanisms") or {}
    if isinstance(chosen, Mapping):
        # Which mechanisms fit, and what they cost, is known with the spaces.
        chosen = {k: tag for k, tag in chosen.items() if k not in unknown and not isinstance(tag, Mechanism)}
    build_plan(spaces, epsilon=budget.epsilon, delta=budget.delta, **{**options, "mechanisms": chosen, "leaks": ()})


def _check_lists(names: Sequence[str], drop: Sequence[str], passthrough: Sequence[str]) -> None:
    for option, given in (("drop", drop), ("passthrough", passthrough)):
        for name in given:
            if name not in names:
                raise ParameterError(f"{option} names {name!r}, which is not a column; columns are {name_list(names)}")
    both = [name for name in drop if name in passthrough]
    if both:
        raise ParameterError(f"column {both[0]!r} is in drop and in passthrough; name it in one of them")


def _check_types(left: Sequence[Field], objects: bool) -> None:
    for column in left:
        if pa.types.is_null(column.type) and not objects:
            raise ColumnError("has type null, which no space can hold; cast it, or pass drop=[…]", column=column.name)


def _check_inference(share: Any, most: Any) -> None:
    if share is not None and (isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1):
        raise ParameterError("infer_share must lie in (0, 1), e.g. infer_share=0.1")
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= 1_000:
        raise ParameterError("max_items must be a whole number of items per row, from 1 to 1000")


def refuse_release(text: str | None) -> None:
    """Raise `AlreadySanitizedError` for a table that carries a release's description."""
    if text is not None:
        raise AlreadySanitizedError(
            "the table is a release already; sanitising it again only adds noise: use the original table"
        )


def choose_plan(plan: Plan | None, epsilon: float | None, delta: float | None, options: PlanOptions) -> Plan | None:
    """Return the plan that was given, or None if one is to be made; refuse both and neither."""
    check_options(options)
    if plan is None:
        if epsilon is None:
            raise ParameterError("give epsilon, e.g. epsilon=1.0, or a plan")
        return None
    if not isinstance(plan, Plan):
        raise ParameterError("plan must be a Plan; Plan.read(path) reads one from a file")
    if epsilon is not None or delta is not None or options:
        extra = next(iter(options), "epsilon" if epsilon is not None else "delta")
        raise ParameterError(f"{extra} is already decided by the plan; give one or the other")
    warn_not_found(plan)
    return plan
