"""The job of tables that are released together: a parent table of persons, and child tables joined to it.

One promise and one spend cover all of them. The parents' table leaves with the number of each person's child rows; each
child table leaves as joined rows, exactly k for every person, with the parents' columns. Spaces of these columns are
those of the parents' plan, which is drawn first. Each table is shuffled by itself, and its noise has a key of its own,
so that no released row leads to a row of another table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, promise_step
from dpframe.accounting.unit import ROW, Unit
from dpframe.errors import ColumnError, ParameterError, PlanError
from dpframe.inference.from_data import from_type
from dpframe.inference.inferred import Inferred
from dpframe.ledger.account import INFERENCE, RELEASE, Cost, Job, joint_cost
from dpframe.noise.keystream import derived_key
from dpframe.plan.declared import declared_space
from dpframe.plan.options import PlanOptions
from dpframe.plan.plan import Plan
from dpframe.release.budgets import ReleaseBudget
from dpframe.release.job import Checked, Ready, ReleaseJob, drawn
from dpframe.release.linked_plan import LinkedExpectation, LinkedPlan
from dpframe.release.planning import CheckedRequest, Request, promise_of
from dpframe.release.together import Together, composed, split_promise
from dpframe.spaces import Boolean, Integer, Nullable, Space
from dpframe.tables.joined import ChildLink, LinkedTables, row_error
from dpframe.tables.table import Table


@dataclass(frozen=True)
class LinkedRequest:
    """Request of several tables: a ready plan, or budget and options of one by table; whether rows are released."""

    epsilon: float | None = None
    delta: float | None = None
    options: Mapping[str, PlanOptions] = field(default_factory=dict)
    plan: LinkedPlan | None = None
    release: bool = True
    quiet: bool = False
    lists: Mapping[str, str] = field(default_factory=dict)
    """Kinds of lists of one frame whose items are a child table's rows, by child table."""

    def check(self, table: Table, request: Request) -> tuple[ReleaseJob[Table, Ready], Checked]:
        """Return the release of one table, which `LinkedJob` pays for together with the others, and its check."""
        job = ReleaseJob(table, replace(request, release=self.release), ReleaseBudget(None), lambda _, ready: ready)
        # Without noise to draw only the request is looked at.
        return job, (CheckedRequest.of(table, job.request, quiet=True), {}) if self.quiet else job.check()


@dataclass(frozen=True)
class JoinedRequest:
    """A child table's joined rows and how they are to be released, but for the parents' columns.

    ``context`` has the parents' columns by their names in the joined table; columns ``required`` are never null in the
    child table, so that a null means an absent row.
    """

    child: ChildLink
    drop_columns: Callable[[Collection[str]], Table]
    """Returns the joined rows without some columns."""
    budget: Budget
    options: PlanOptions
    context: Mapping[str, str]
    required: tuple[str, ...]
    plan: Plan | None = None

    def request(self, spaces: Mapping[str, Space], inferred: Inferred | None = None) -> tuple[Table, Request]:
        """Return the joined rows and their request, with the parents' columns of these spaces."""
        context = {name: spaces[source] for name, source in self.context.items() if source in spaces}
        table = self.drop_columns([name for name in self.context if name not in context])
        if self.plan is not None:
            return table, Request(plan=self.plan, context=context, table_name=self.child.name)
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
            table_name=self.child.name,
        )
        return table, request


@dataclass(frozen=True)
class CheckedTables:
    """What is known of all tables before the spend; ``in_steps`` says how their budgets compose to the promise."""

    promise: Budget
    in_steps: bool
    parents: ReleaseJob[Table, Ready]
    checked: Checked
    joined: tuple[tuple[JoinedRequest, ReleaseJob[Table, Ready], Checked], ...]

    @property
    def allowed(self) -> list[tuple[Budget, Step | None]]:
        """The costs of inference of each table, of those whose spaces are to be inferred."""
        requests = [self.checked[0], *(checked[0] for *_, checked in self.joined)]
        return [(one.allowed.budget, one.allowed.step) for one in requests if one.allowed is not None]

    def expectation(self, tables: LinkedTables[Any]) -> LinkedExpectation:
        """Return the errors to expect of each table, with typical spaces in place of those still to be inferred."""
        jobs = [(self.parents.table, self.checked[0]), *((job.table, checked[0]) for _, job, checked in self.joined)]
        epsilon, delta, parent = self.promise.epsilon, self.promise.delta, tables.parent
        promise = Together(epsilon, delta, "", tables.names, parent, parent, tables.key, tables.n)
        parts = [
            checked_request.expectation(table.n, checked_request.typical(table)) for table, checked_request in jobs
        ]
        contributions = {child.name: child.rows for child in tables.children}
        return LinkedExpectation(promise.line, dict(zip(tables.names, parts, strict=True)), contributions)


@dataclass(frozen=True)
class LinkedRelease:
    """The plan of several tables, and their released frames by name; none if only the plan was asked for."""

    plan: LinkedPlan
    frames: Mapping[str, Any]


@dataclass(frozen=True)
class LinkedJob(Job[CheckedTables, LinkedRelease]):
    """A release of several tables under one promise for a person with all rows, or only their plan.

    ``draw_table`` returns the release of one table.
    """

    tables: LinkedTables[Any]
    request: LinkedRequest
    budget: ReleaseBudget
    draw_table: Callable[[Any, Ready], Any] = drawn

    def check(self) -> CheckedTables:
        """Refuse a request or a value that breaks its rule, in any table."""
        request = self.request
        if request.plan is not None:
            return self._check_ready(request.plan)
        promise = promise_of(request.epsilon, request.delta, self.tables.n, request.quiet)
        checked = self._check(promise, in_steps=promise.delta > 0)
        # Rows without tables and inference may cost more than their budget's step.
        return checked or self._check(promise, in_steps=False) or _refuse()

    def _check_ready(self, plan: LinkedPlan) -> CheckedTables:
        """Check the tables against a ready plan."""
        tables, choice = self.tables, self.budget.choice
        parents_request = Request(plan=plan.plans[tables.parent], table_name=tables.parent)
        parents, checked_parents = self._check_parents(parents_request)
        joined = []
        for child in tables.children:
            child_plan, required = plan.plans[child.name], plan.promises[child.name].required
            # Joined rows have nulls that the child table has not, and other positions.
            spaces = {
                name: getattr(child_plan[name].space, "inner", child_plan[name].space)
                if name in required
                else child_plan[name].space
                for name in child.columns
                if name in child_plan.names and name not in child_plan.imputed
            }
            self._check_values(child, spaces)
            if child.flag_name in required:
                child = replace(child, flags=(child.flag_name,))
            context = {n: n.removeprefix(f"{tables.parent}.") for n in plan.promises[child.name].context}
            drop_columns = self._join(child, context, derived_key(choice, child.name.encode()))
            joined_request = JoinedRequest(child, drop_columns, plan.promise, {}, context, required, child_plan)
            joined.append(
                (joined_request, *self.request.check(*joined_request.request(plan.plans[tables.parent].spaces)))
            )
        return CheckedTables(plan.promise, plan.promise.delta > 0, parents, checked_parents, tuple(joined))

    def _check_parents(self, request: Request) -> tuple[ReleaseJob[Table, Ready], Checked]:
        """Return the release of the parents' table, and its check; errors of values name the table."""
        try:
            job, checked = self.request.check(self.tables.parents_table(), request)
            if self.request.release and not job.table.held and self.budget.account is not None:
                # Values of tables that are not in memory would otherwise first be read after the spend.
                job.table.codes(checked[0].spaces, checked[0].nulls, checked[0].imputed)
            return job, checked
        except ColumnError as error:
            if self.request.lists or error.column is None:
                raise
            raise row_error(self.tables.parent, error.column, error.row, error.rule) from None

    def _check(self, promise: Budget, in_steps: bool) -> CheckedTables | None:
        """Return what is known of all tables; None if their plans do not compose to the promise."""
        tables, choice = self.tables, self.budget.choice
        budgets = split_promise(promise, list(self._weights()), in_steps)
        counts = {child.count_name: Integer(0, child.most) for child in tables.children}
        parent_options = self.request.options[tables.parent]
        request = Request(
            budgets[0].epsilon,
            budgets[0].delta,
            None,
            {**parent_options, "spaces": {**_declarations(parent_options), **counts}, "privacy_id": tables.key},
            table_name=tables.parent,
        )
        parents, checked_parents = self._check_parents(request)
        plan = checked_parents[0].plan
        spaces = checked_parents[0].spaces if plan is None else plan.spaces
        joined, plans = [], [plan]
        for child, budget in zip(tables.children, budgets[1:], strict=True):
            joined_request = self._joined_request(child, budget, derived_key(choice, child.name.encode()))
            joined.append((joined_request, *self.request.check(*joined_request.request(spaces))))
            plans.append(joined[-1][-1][0].plan)
        for plan, budget in zip(plans, budgets, strict=True):
            if in_steps and plan is not None and not plan.step.mu <= promise_step(budget).mu:
                return None
        return CheckedTables(promise, in_steps, parents, checked_parents, tuple(joined))

    def _join(self, child: ChildLink, context: Mapping[str, str], key: bytes) -> Callable[[Collection[str]], Table]:
        """Return a function that gives a child table's joined rows without some columns."""
        return partial(self.tables.drop_columns, self.tables.joined_table(child, context, key))

    def _joined_request(self, child: ChildLink, budget: Budget, key: bytes) -> JoinedRequest:
        """Return the joined rows of a child table; values that break a declaration are refused by their row in it."""
        tables, options = self.tables, self.request.options[child.name]
        declared = dict(_declarations(options))
        drop = tuple(options.get("drop") or ())
        required, declared_spaces = [], {}
        for column in tables.child_table(child).fields([name for name in child.columns if name not in drop]):
            space = declared_space(column, declared) if column.name in declared else from_type(column)
            if space is None:
                continue
            if column.name in declared:
                declared_spaces[column.name] = space
            if not column.nullable or (column.name in declared and not space.has_null):
                required.append(column.name)
            declared[column.name] = space if space.has_null else Nullable(space)
        self._check_values(child, declared_spaces)
        if not required and len(child.columns) > len(drop):
            child = replace(child, flags=(child.flag_name,))
            declared[child.flag_name], required = Boolean(), [child.flag_name]
        context = {f"{tables.parent}.{name}": name for name in tables.columns}
        context[child.count_name] = child.count_name
        options = {**options, "spaces": declared, "privacy_id": tables.key, "contributions": child.rows}
        drop_columns = self._join(child, context, key)
        return JoinedRequest(child, drop_columns, budget, options, context, tuple(required))

    def _check_values(self, child: Any, spaces: Mapping[str, Space]) -> None:
        """Raise `ColumnError` for a value outside its space; an item of a list is named by the row of its list."""
        try:
            self.tables.child_table(child).codes(spaces, "error")
        except ColumnError as error:
            if error.column is None or error.row is None:
                raise
            if child.name not in self.request.lists:
                raise row_error(child.name, error.column, error.row, error.rule) from None
            row = int(child.parents[error.row])
            raise ColumnError(f"({error.column!r} of its items) {error.rule}", column=child.name, row=row) from None

    def _weights(self) -> Iterator[int]:
        """Yield the number of columns and pairs of each table, the parents' first: tables get noise of one size."""
        tables = self.tables
        parents = len(tables.columns)
        counted = parents + len(tables.children)
        yield counted + math.comb(counted, 2)
        for child in tables.children:
            columns = len(child.columns)
            yield max(1, columns + math.comb(columns, 2) + columns * (parents + 1))

    def spend(self, checked: CheckedTables) -> str | None:
        """Enter the cost of all tables as one spend, for a person with all rows; a plan pays for inference only."""
        unit, request = ROW if self.request.lists else Unit(person=self.tables.key), self.request
        cost = Cost(checked.promise, promise_step(checked.promise) if checked.in_steps else None, unit=unit)
        if not request.release:
            if not checked.allowed:
                return None
            cost = joint_cost(checked.allowed, unit)
        elif request.plan is not None and self.budget.account is not None:
            cost = self.budget.account.cost_together(list(request.plan.plans.values()), checked.promise, unit)
        kind = RELEASE if request.release else INFERENCE
        return self.budget.pay(checked.parents.table, kind, cost, checked.checked[1])

    def key(self) -> bytes:
        """Return the budget's key."""
        return self.budget.key

    def draw(self, checked: CheckedTables, receipt: str | None, key: bytes) -> LinkedRelease:
        """Draw the parents' table, then the joined rows of every child table, each with a key of its own."""
        tables, promise, request = self.tables, checked.promise, self.request
        id = derived_key(key, b"id of tables").hex()[:32] if request.release else ""
        together = Together(
            promise.epsilon, promise.delta, id, tables.names, tables.parent, tables.parent, tables.key, tables.n
        )
        parent_key = derived_key(key, b"table " + tables.parent.encode())
        ready = checked.parents.ready(*checked.checked, receipt, parent_key)
        plan, promises = ready.plan, {tables.parent: together}
        lost = {missing.column for missing in plan.not_found}
        spaces = {name: space for name, space in plan.spaces.items() if name not in lost}
        tables_ready = {tables.parent: (checked.parents.table, ready)}
        for joined, job, (checked_request, codes) in checked.joined:
            child = joined.child
            if plan.inferred is not None and request.plan is None:
                # More of the parents' columns have spaces now than before the spend.
                table, child_request = joined.request(spaces, plan.inferred)
                job = replace(job, table=table, request=replace(child_request, release=request.release))
                allowed, checked_request = checked_request.allowed, CheckedRequest.of(table, job.request, quiet=True)
                if allowed != checked_request.allowed:
                    _refuse()
                if request.release and table.held:
                    codes = table.codes(checked_request.spaces, checked_request.nulls, checked_request.imputed)
            ready = job.ready(checked_request, codes, receipt, derived_key(key, b"table " + child.name.encode()))
            context, lists = tuple(job.request.context), request.lists.get(child.name, "")
            promises[child.name] = replace(
                together, table=child.name, key=child.key, context=context, required=joined.required, lists=lists
            )
            tables_ready[child.name] = (job.table, ready)
        plans = {name: ready.plan for name, (_, ready) in tables_ready.items()}
        if not composed(list(plans.values()), promise):
            _refuse()
        frames = {
            name: self.draw_table(table, replace(ready, together=promises[name]))
            for name, (table, ready) in tables_ready.items()
            if request.release
        }
        return LinkedRelease(request.plan or LinkedPlan(promises, plans), frames)


def _declarations(options: PlanOptions) -> Mapping[str, Any]:
    """Return the declared spaces of a table's columns."""
    spaces = options.get("spaces") or {}
    if not isinstance(spaces, Mapping):
        raise ParameterError('spaces of a table must be a dictionary by column, e.g. {"patients": {"age": (0, 120)}}')
    return spaces


def _refuse() -> NoReturn:
    raise PlanError("the plans of the tables cost more than their promise together; raise epsilon")
