"""The job of tables that are released together: a parent table of persons, and child tables joined to it.

One promise and one spend cover all of them. The parents' table leaves with the number of each person's child rows; each
child table leaves as joined rows, exactly k for every person, with the parents' columns. Spaces of these columns are
those of the parents' plan, which is drawn first. Each table is shuffled by itself, and its noise has a key of its own,
so that no released row leads to a row of another table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import promise_step
from dpframe.accounting.unit import Unit
from dpframe.errors import ParameterError, PlanError
from dpframe.inference.from_data import from_type
from dpframe.inference.inferred import Inferred
from dpframe.ledger.account import RELEASE, Cost, Job
from dpframe.noise.keystream import derived_key
from dpframe.plan.declared import declared_space
from dpframe.plan.options import PlanOptions
from dpframe.plan.plan import Plan
from dpframe.release.budgets import ReleaseBudget
from dpframe.release.job import Checked, Ready, ReleaseJob, drawn
from dpframe.release.planning import CheckedRequest, Request, promise_of
from dpframe.release.together import Together, composed, split_promise
from dpframe.spaces import Boolean, Integer, Nullable, Space
from dpframe.tables.frames import Frame, wrap
from dpframe.tables.joined import ChildTable, LinkedTables


@dataclass(frozen=True)
class JoinedRequest:
    """A child table's joined rows and how they are to be released, but for the parents' columns.

    ``context`` has the parents' columns by their names in the joined table; columns ``required`` are never null in the
    child table, so that a null means an absent row.
    """

    child: ChildTable
    table: pd.DataFrame
    budget: Budget
    options: PlanOptions
    context: Mapping[str, str]
    required: tuple[str, ...]

    def job(self, spaces: Mapping[str, Space], inferred: Inferred | None = None) -> ReleaseJob[Frame, Ready]:
        """Return the release of the joined rows with the parents' columns of these spaces."""
        context = {name: spaces[source] for name, source in self.context.items() if source in spaces}
        frame = wrap(self.table.drop(columns=[name for name in self.context if name not in context]))
        parents_inference = None
        if inferred is not None:
            columns = tuple(name for name in context if self.context[name] in inferred.columns)
            parents_inference = (
                replace(inferred, columns=columns, measured=(), thresholds=(), asked=None) if columns else None
            )
        request = Request(
            self.budget.epsilon,
            self.budget.delta,
            None,
            self.options,
            context=context,
            context_inference=parents_inference,
        )
        return _job(frame, request)


def _job(frame: Frame, request: Request) -> ReleaseJob[Frame, Ready]:
    """Return a release of one table, which `LinkedJob` pays for together with the others."""
    return ReleaseJob(frame, request, ReleaseBudget(None), lambda _, ready: ready)


@dataclass(frozen=True)
class CheckedTables:
    """What is known of all tables before the spend; ``in_steps`` says how their budgets compose to the promise."""

    promise: Budget
    in_steps: bool
    parents: ReleaseJob[Frame, Ready]
    checked: Checked
    joined: tuple[tuple[JoinedRequest, ReleaseJob[Frame, Ready], Checked], ...]


@dataclass(frozen=True)
class LinkedJob(Job[CheckedTables, dict[str, pd.DataFrame]]):
    """A release of several tables under one promise for a person with all rows; ``options`` are a plan's, by table."""

    tables: LinkedTables
    epsilon: float | None
    delta: float | None
    options: Mapping[str, PlanOptions]
    budget: ReleaseBudget

    def check(self) -> CheckedTables:
        """Refuse a request or a value that breaks its rule, in any table."""
        promise = promise_of(self.epsilon, self.delta, self.tables.n)
        checked = self._check(promise, in_steps=promise.delta > 0)
        # Rows without tables and inference may cost more than their budget's step.
        return checked or self._check(promise, in_steps=False) or _refuse()

    def _check(self, promise: Budget, in_steps: bool) -> CheckedTables | None:
        """Return what is known of all tables; None if their plans do not compose to the promise."""
        tables, choice = self.tables, self.budget.choice
        budgets = split_promise(promise, list(self._weights()), in_steps)
        counts = {child.count_name: Integer(0, child.most) for child in tables.children}
        parent_options = self.options[tables.parent]
        request = Request(
            budgets[0].epsilon,
            budgets[0].delta,
            None,
            {**parent_options, "spaces": {**_declarations(parent_options), **counts}, "privacy_id": tables.key},
        )
        parents = _job(wrap(tables.parents_table()), request)
        checked_parents = parents.check()
        plan = checked_parents[0].plan
        spaces = checked_parents[0].spaces if plan is None else plan.spaces
        joined, plans = [], [plan]
        for child, budget in zip(tables.children, budgets[1:], strict=True):
            joined_request = self._joined_request(child, budget, derived_key(choice, child.name.encode()))
            job = joined_request.job(spaces)
            checked = job.check()
            joined.append((joined_request, job, checked))
            plans.append(checked[0].plan)
        for plan, budget in zip(plans, budgets, strict=True):
            if in_steps and plan is not None and not plan.step.mu <= promise_step(budget).mu:
                return None
        return CheckedTables(promise, in_steps, parents, checked_parents, tuple(joined))

    def _joined_request(self, child: ChildTable, budget: Budget, key: bytes) -> JoinedRequest:
        """Return the joined rows of a child table; values that break a declaration are refused by their row in it."""
        tables, options = self.tables, self.options[child.name]
        frame, declared = wrap(child.frame.drop(columns=child.key)), dict(_declarations(options))
        drop = tuple(options.get("drop") or ())
        required = []
        for column in frame.fields([name for name in frame.names if name not in drop]):
            space = declared_space(column, declared) if column.name in declared else from_type(column)
            if space is None:
                continue
            if column.name in declared:
                frame.encode(column.name, space, "error")
            if not column.nullable or (column.name in declared and not space.has_null):
                required.append(column.name)
            declared[column.name] = space if space.has_null else Nullable(space)
        if not required and len(frame.names) > len(drop):
            child = replace(child, flags=(child.flag_name,))
            declared[child.flag_name], required = Boolean(), [child.flag_name]
        context = {f"{tables.parent}.{name}": name for name in tables.frame.columns if name != tables.key}
        context[child.count_name] = child.count_name
        table = tables.joined_table(child, context, key)
        options = {**options, "spaces": declared, "privacy_id": tables.key, "contributions": child.rows}
        return JoinedRequest(child, table, budget, options, context, tuple(required))

    def _weights(self) -> Iterator[int]:
        """Yield the number of columns and pairs of each table, the parents' first: tables get noise of one size."""
        tables = self.tables
        parents = len(tables.frame.columns) - 1
        counted = parents + len(tables.children)
        yield counted + math.comb(counted, 2)
        for child in tables.children:
            columns = len(child.frame.columns) - 1
            yield max(1, columns + math.comb(columns, 2) + columns * (parents + 1))

    def spend(self, checked: CheckedTables) -> str | None:
        """Enter the cost of all tables as one spend, for a person with all rows."""
        step = promise_step(checked.promise) if checked.in_steps else None
        cost = Cost(checked.promise, step, unit=Unit(person=self.tables.key))
        return self.budget.pay(checked.parents.table, RELEASE, cost, checked.checked[1])

    def key(self) -> bytes:
        """Return the budget's key."""
        return self.budget.key

    def draw(self, checked: CheckedTables, receipt: str | None, key: bytes) -> dict[str, pd.DataFrame]:
        """Draw the parents' table, then the joined rows of every child table, each with a key of its own."""
        tables, promise = self.tables, checked.promise
        id = derived_key(key, b"id of tables").hex()[:32]
        together = Together(
            promise.epsilon, promise.delta, id, tables.names, tables.parent, tables.parent, tables.key, tables.n
        )
        parent_key = derived_key(key, b"table " + tables.parent.encode())
        ready = checked.parents.ready(*checked.checked, None, parent_key)
        plan, frames = ready.plan, {tables.parent: drawn(checked.parents.table, replace(ready, together=together))}
        lost = {missing.column for missing in plan.not_found}
        spaces = {name: space for name, space in plan.spaces.items() if name not in lost}
        plans: list[Plan] = [plan]
        for joined, job, (request, codes) in checked.joined:
            child = joined.child
            if plan.inferred is not None:
                # More of the parents' columns have spaces now than before the spend.
                job = joined.job(spaces, plan.inferred)
                request = CheckedRequest.of(job.table, job.request, quiet=True)
                codes = job.table.codes(request.spaces, request.nulls, request.imputed)
            ready = job.ready(request, codes, None, derived_key(key, b"table " + child.name.encode()))
            part = replace(
                together, table=child.name, key=child.key, context=tuple(job.request.context), required=joined.required
            )
            frames[child.name] = drawn(job.table, replace(ready, together=part))
            plans.append(ready.plan)
        if not composed(plans, promise):
            _refuse()
        return frames


def _declarations(options: PlanOptions) -> Mapping[str, Any]:
    """Return the declared spaces of a table's columns."""
    spaces = options.get("spaces") or {}
    if not isinstance(spaces, Mapping):
        raise ParameterError('spaces of a table must be a dictionary by column, e.g. {"patients": {"age": (0, 120)}}')
    return spaces


def _refuse() -> NoReturn:
    raise PlanError("the plans of the tables cost more than their promise together; raise epsilon")
