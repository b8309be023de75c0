"""The promise of several tables that were released together, as the description of each of them states it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpframe.accounting.budget import Budget, compose
from dpframe.accounting.gaussian_dp import Step, composed_steps, promise_step, step_delta, step_epsilon
from dpframe.errors import ParameterError, PlanError, name_list
from dpframe.plan.plan import Plan
from dpframe.spaces.json_form import from_object, to_object

SHARE_MARGIN = 1e-9
"""Part of a promise that its shares leave, so that their roundings stay within it (tolerance)."""


@dataclass(frozen=True)
class Together:
    """The (ε, δ) of all ``tables`` for one person, whose ``table`` this is; ``context`` are columns of the parents.

    ``id`` is random, and equal in all tables of one release.
    ``parent`` is the table with one row for each person, ``persons`` their number, and ``key`` this table's column of
    persons, which does not leave. Columns ``required`` are null only in absent rows. ``lists`` is the kind of the lists
    in a column of one frame whose items are the table's rows (`tables.lists`), empty for a table of its own.
    """

    epsilon: float
    delta: float
    id: str
    tables: tuple[str, ...]
    table: str
    parent: str
    key: str
    persons: int
    context: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    lists: str = ""

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        names = [*self.tables, *self.context, *self.required, self.key, self.id, self.lists]
        if not all(isinstance(name, str) for name in names) or not {self.table, self.parent} <= set(self.tables):
            raise PlanError("tables that were released together are named by text; attach the description again")

    @property
    def presence(self) -> str:
        """The joined rows' column that tells kept rows from absent ones, if the table needs one."""
        return f"{self.table}.present"

    @property
    def count_name(self) -> str:
        """The joined rows' column with the number of a person's rows, up to a cap."""
        return f"{self.table}.n"

    def refusal(self, plan: Plan) -> str | None:
        """Return the reason why this cannot be the promise of a table under a plan, if there is one."""
        if not {*self.context, *self.required} <= {*plan.names} or {*self.context} & {*self.required}:
            return "its promise names columns that the plan does not have"
        return f"its plan has the key {self.key!r} as a column" if self.key in plan.names else None

    @property
    def line(self) -> str:
        """One sentence on the promise of all tables."""
        return (
            f"Of {len(self.tables)} tables that were released together, {name_list(self.tables)}: epsilon="
            f"{self.epsilon:g}, delta={self.delta:.3g} for a person with all rows in all of them; quote this promise"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the promise as a JSON object."""
        return to_object(self, sparse=["lists"])

    @classmethod
    def from_json(cls, data: Any) -> Together:
        """Read the promise back; `PlanError` for anything else."""
        try:
            return from_object(cls, data, "the promise of tables released together")
        except (ParameterError, TypeError) as error:
            raise PlanError(f"the promise of tables released together is not valid: {error}") from None


def split_promise(promise: Budget, weights: Sequence[float], in_steps: bool) -> list[Budget]:
    """Return budgets of several releases, by weight, that compose to a promise.

    In steps their μ² add up; otherwise ε and δ do. Releases then have to stay within the steps of their budgets, which
    `composed` checks.
    """
    shares = [weight / math.fsum(weights) * (1 - SHARE_MARGIN) for weight in weights]
    if not in_steps:
        return [Budget(promise.epsilon * share, promise.delta * share) for share in shares]
    total = promise_step(promise)
    parts = [Step(total.mu * math.sqrt(share), total.delta * share) for share in shares]
    deltas = [promise.delta * share for share in shares]
    return [Budget(step_epsilon(part, delta), delta) for part, delta in zip(parts, deltas, strict=True)]


def composed(plans: Sequence[Plan], promise: Budget) -> bool:
    """Return whether releases under these plans are within a promise to a person whose rows are in all of them.

    Their ε and δ are added up, or their steps are composed (`gaussian_dp`), which holds if a plan depends on the
    results of an earlier release.
    """
    total = compose(plan.release for plan in plans)
    if total.epsilon <= promise.epsilon and total.delta <= promise.delta:
        return True
    return step_delta(composed_steps(plan.step for plan in plans), promise.epsilon) <= promise.delta


def link_failures(promises: Mapping[str, Together], plans: Mapping[str, Plan]) -> list[str]:
    """Return the reasons why plans are not those of tables that are released together under one promise.

    A child table has equally many rows of every person, so that a person is in one row of the parents' table and in so
    many rows of each child table.
    """
    first = next(iter(promises.values()), None)
    if first is None or not set(promises) == set(plans) == set(first.tables):
        names = () if first is None else first.tables
        return [f"tables released together are {name_list(names)}, all of them"]
    failures: list[str] = []
    for name, one in promises.items():
        plan, parent_plan = plans[name], plans[one.parent]
        rows = 1 if name == one.parent else plan.contributions
        part_fields = {field: getattr(first, field) for field in ("table", "key", "context", "required", "lists")}
        if replace(one, **part_fields) != first:
            failures.append(f"{name}: its promise for all tables is another one")
        if (refusal := one.refusal(plan)) is not None:
            failures.append(f"{name}: {refusal}")
        elif any(parent_plan.spaces.get(c.removeprefix(f"{one.parent}.")) != plan[c].space for c in one.context):
            failures.append(f"{name}: the parents' columns have other spaces than in {one.parent}")
        is_whole = plan.sample is None and plan.n == rows * (parent_plan.n or 0)
        if one.table != name or plan.contributions != rows or not is_whole:
            failures.append(f"{name}: its plan is not for {rows} rows of each of {parent_plan.n or 0:,} persons")
        if plan.privacy_id != parent_plan.privacy_id or plan.privacy_id is None or plan.leaks or plan.passthrough:
            failures.append(f"{name}: its plan does not protect all rows of a person")
        paid, reused = parent_plan.inferred, plan.reused.each if plan.reused is not None else ()
        if any(past.id is None or paid is None or past.id != paid.id for past in reused):
            failures.append(f"{name}: it reuses spaces of an inference that the parents' plan did not pay")
    if not composed(list(plans.values()), Budget(first.epsilon, first.delta)):
        failures.append("the tables cost more together than their promise")
    return failures
