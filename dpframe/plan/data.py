"""Fields of a plan: columns, order, totals and unprotected parts, with the budgets that follow from them, and their
JSON.

The JSON schema has a version of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from dpframe.accounting import composed_epsilon
from dpframe.accounting.budget import Budget, check_epsilon, compose, round_down
from dpframe.accounting.gaussian_dp import Step, composed_steps
from dpframe.accounting.unit import Unit
from dpframe.errors import ParameterError, PlanError, check_whole, is_one_of
from dpframe.inference.findings import NotFound, unidentified_columns
from dpframe.inference.inferred import Inferred
from dpframe.plan.calibration import AccountingContext
from dpframe.plan.columns import Column, Group, Randomised, column_from_json, group_from_json
from dpframe.plan.indicators import Indicators, indicators_of
from dpframe.plan.measures import Measure, check_measures, measures_step
from dpframe.plan.rule import Rule
from dpframe.plan.rules import BoundRules, as_rules
from dpframe.plan.steps import central_budget, rows_budget, steps_of, terms_of
from dpframe.spaces import Space

NULLS = ("error", "impute")

MOST_PERSON_ROWS = 255
"""Most rows of a person that are chosen (limit of the format)."""

_LARGEST_ROW_COUNT = (1 << 62) - 1
"""Largest number of rows with a position in the keystream (limit of the format)."""


@dataclass(frozen=True)
class PlanData:
    """The fields of a plan, checked once, and the budgets that follow from them; `Plan` documents each field."""

    epsilon: float
    delta: float
    columns: tuple[Column, ...]
    n: int | None = None
    shuffle: bool = True
    contributions: int = 1
    nulls: str = "error"
    drop: tuple[str, ...] = ()
    passthrough: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    sample: int | None = None
    inferred: Inferred | None = None
    keeps_index: bool = False
    local_epsilon: float | None = None
    reused: Inferred | None = None
    measures: tuple[Measure, ...] = ()
    privacy_id: str | None = None
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for name in ("columns", "drop", "passthrough", "leaks", "groups", "measures"):
            if not isinstance(getattr(self, name), list | tuple):
                holds_objects = name in ("columns", "groups", "measures")
                raise PlanError(f"{name} must be a list of {name if holds_objects else 'column names'}")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        budget = Budget(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", budget.epsilon)
        object.__setattr__(self, "delta", budget.delta)
        if not is_one_of(self.nulls, NULLS):
            raise ParameterError('nulls must be "error" or "impute"')
        if not isinstance(self.shuffle, bool):
            raise ParameterError("shuffle must be True or False")
        if not isinstance(self.keeps_index, bool) or (self.keeps_index and self.shuffle):
            raise ParameterError("keeps_index must be False, or True with shuffle=False: an index shows the order")
        if self.local_epsilon is not None:
            object.__setattr__(self, "local_epsilon", check_epsilon(self.local_epsilon, "local_epsilon"))
        if self.n is not None and (
            isinstance(self.n, bool) or not isinstance(self.n, int) or not 0 <= self.n <= _LARGEST_ROW_COUNT
        ):
            raise ParameterError("n must be a number of rows, below 2^62, or None")
        rows = check_whole(self.contributions, "contributions", of="rows per person")
        object.__setattr__(self, "contributions", rows)
        self._check_names()
        if self.groups:
            self._check_groups()
        if self.privacy_id is not None:
            self._check_persons(self.privacy_id)
        # Without a unit of its own, as older versions wrote them, an inference is none that a plan can be refused for.
        for inference in (self.inferred, self.reused):
            refusal = None if inference is None else inference.refusal(self.unit, self.unit)
            if refusal is not None:
                raise PlanError(refusal)
        object.__setattr__(self, "rules", as_rules(self.rules))
        _ = self.bound_rules
        if self.sample is not None:
            self._check_sample(self.sample)
        if self.measures:
            if self.delta == 0:
                raise ParameterError("measured tables need delta above 0; raise delta, or leave measures out")
            check_measures(self.measures, self.counted_spaces)
            composed = self.inferred is not None and self.inferred.step is not None
            if composed and self.terms.shuffled_rows is None:
                # For unshuffled rows inference may not decide which tables are measured (`terms_of`).
                raise ParameterError("measures with inference that is composed need a secret order; make the plan anew")
        if not self.terms.allow(self.units):
            raise PlanError(self._excess_message())

    def _check_sample(self, sample: int) -> None:
        if isinstance(sample, bool) or not isinstance(sample, int) or sample < 1:
            raise ParameterError('sample must be a whole number of rows, at least 1, or "optimal"')
        if self.n is None or sample > self.n:
            rows = "the plan does not know how many there are" if self.n is None else f"there are {self.n:,}"
            raise ParameterError(f"sample={sample:,} rows cannot be chosen: {rows}; leave sample out or lower it")

    def _check_persons(self, privacy_id: str) -> None:
        if not isinstance(privacy_id, str) or not privacy_id:
            raise PlanError('privacy_id must be the name of a column, e.g. privacy_id="patient"')
        if privacy_id in (*self.names, *self.passthrough):
            raise PlanError(f"privacy_id {privacy_id!r} does not leave; take it out of spaces and of passthrough")
        if not self._secret:
            raise PlanError(
                "privacy_id needs rows in a secret order, as a person's rows may be anywhere; leave shuffle=False, "
                "passthrough and keeps_index out"
            )
        check_whole(self.contributions, "contributions", 1, MOST_PERSON_ROWS, of="rows of a person with privacy_id")

    @cached_property
    def spaces(self) -> Mapping[str, Space]:
        """The space of each randomised column, by its name."""
        return {column.name: column.space for column in self.columns}

    @cached_property
    def released_spaces(self) -> Mapping[str, Space]:
        """The space of the released codes of each randomised column."""
        return {column.name: column.released for column in self.columns}

    @cached_property
    def bound_rules(self) -> BoundRules:
        """The rules in the columns' codes."""
        return BoundRules.of(self.rules, self.spaces)

    @cached_property
    def indicators(self) -> tuple[Indicators, ...]:
        """The indicator columns that tables count as one column."""
        return indicators_of(self.rules, self.spaces)

    @cached_property
    def counted_spaces(self) -> Mapping[str, Space]:
        """The spaces of all columns that tables may count: the randomised ones, and the value of each indicators'."""
        return {**self.spaces, **{group.name: group.space for group in self.indicators}}

    @cached_property
    def tables_step(self) -> Step | None:
        """The measured tables' cost per person; None without tables."""
        return measures_step(self.measures, self.counted_spaces, self.contributions, self.delta)

    def _excess_message(self) -> str:
        """Return the message for columns that lose more than the plan's budget."""
        sampled_budget, row_loss = self.terms.sampled_budget, self.local_sum
        return (
            f"the plan claims epsilon={self.epsilon}, delta={self.delta}, but its columns need "
            f"delta={self.terms.delta_of(self.units).value:.2g} at epsilon={sampled_budget.epsilon:.6g} (they add up "
            f"to epsilon={row_loss.epsilon * self.contributions:.6g} per row); lower a column's epsilon"
        )

    def _check_names(self) -> None:
        for name in [*self.names, *self.drop, *self.passthrough, *self.leaks]:
            if not isinstance(name, str) or not name:
                raise PlanError("a column's name must be a string that is not empty")
            # A lone surrogate cannot be written as UTF-8.
            if any("\ud800" <= letter <= "\udfff" for letter in name):
                raise PlanError(f"column name {name!r} is not valid Unicode; rename it")
        earlier_names: set[str] = set()
        for name in [*self.names, *self.drop, *self.passthrough]:
            if name in earlier_names:
                raise PlanError(f"column {name!r} appears twice among columns, drop and passthrough")
            earlier_names.add(name)
        stray = [name for name in self.leaks if name not in self.names]
        if stray:
            raise PlanError(f"leaks names {stray[0]!r}, which is not a randomised column")

    def _check_groups(self) -> None:
        earlier_names: set[str] = set()
        for group in self.groups:
            for name in group.names:
                if name not in self.names:
                    raise PlanError(f"groups name {name!r}, which is not a randomised column")
                if name in earlier_names:
                    raise PlanError(f"column {name!r} is in two groups; name it in one of them")
                earlier_names.add(name)
                if self[name] != group.column(name):
                    raise PlanError(f"column {name!r} must have the space and the channel of its group {group.label}")

    @property
    def unit(self) -> Unit:
        """The unit of protection: a row or a person."""
        return Unit.promised(self.contributions, self.privacy_id)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the randomised columns."""
        return tuple(column.name for column in self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @cached_property
    def units(self) -> tuple[Randomised, ...]:
        """Units that are randomised independently, in the columns' order: groups, and the columns outside them."""
        groups_by_first_name = {group.names[0]: group for group in self.groups}
        grouped = {name for group in self.groups for name in group.names}
        return tuple(
            groups_by_first_name.get(c.name, c)
            for c in self.columns
            if c.name in groups_by_first_name or c.name not in grouped
        )

    def group_of(self, name: str) -> Group | None:
        """Return the group of a column, if any."""
        return next((group for group in self.groups if name in group.names), None)

    @cached_property
    def local_sum(self) -> Budget:
        """The sum of the columns' certified losses: one row's loss by basic composition."""
        # A budget needs ε above 0: without columns the least float represents no loss.
        return compose(unit.certified for unit in self.units) if self.units else Budget(5e-324)

    @cached_property
    def terms(self) -> AccountingContext:
        """The accountant's inputs: the budget of a row, and whether its order and sample are secret."""
        return terms_of(
            self.release,
            self.inferred,
            self.n,
            self.sample,
            self._secret,
            self.contributions,
            self.local_epsilon,
            self.tables_step,
        )

    @property
    def tells_of_rows(self) -> bool:
        """Whether a release depends on the rows, apart from copied columns: not if each column has one value."""
        inferred = self.inferred is not None or self.reused is not None
        return inferred or any(column.released.points > 1 for column in self.columns)

    @property
    def _secret(self) -> bool:
        """Whether the order of the rows is secret."""
        return self.shuffle and not self.passthrough

    @cached_property
    def released(self) -> Budget:
        """The budget for rows and tables of one person, without an inference that is paid for already."""
        if self.inferred is None or self.inferred.step is None:
            return self.terms.budget
        return rows_budget(self.units, self.terms, self.steps)

    @cached_property
    def steps(self) -> dict[str, Step]:
        """The cost of each part of the release as a step: shuffled rows are one, unshuffled columns one each."""
        return steps_of(self.units, self.terms, self.inferred, self.tables_step)

    @property
    def step(self) -> Step:
        """The total cost of the release."""
        return composed_steps(self.steps.values())

    @property
    def step_beside_inference(self) -> Step:
        """The cost of the release if its inference is paid for already."""
        return composed_steps(step for name, step in self.steps.items() if name != "inference")

    def nulls_of(self, name: str) -> str:
        """Return the treatment of a null in a column: a column with an inferred space imputes it without an error."""
        return "impute" if name in self.imputed else self.nulls

    @property
    def imputed(self) -> tuple[str, ...]:
        """The columns with inferred spaces: every value has a code."""
        inferences = [inference for inference in (self.inferred, self.reused) if inference is not None]
        return tuple(name for combined in inferences for inference in combined.each for name in inference.columns)

    @cached_property
    def not_found(self) -> tuple[NotFound, ...]:
        """The columns whose spaces private inference did not find, each with the reason; see `InferenceWarning`."""
        rows = self.inferred_rows
        return () if self.inferred is None or rows is None else unidentified_columns(self.inferred, self.spaces, rows)

    @property
    def inferred_rows(self) -> int | None:
        """The number of rows that inference measured: the plan's, unless it was made for other rows afterwards."""
        return self.n if self.inferred is None or self.inferred.rows is None else self.inferred.rows

    @property
    def release(self) -> Budget:
        """The budget of the whole release, replace-one, per person."""
        return Budget(self.epsilon, self.delta)

    @cached_property
    def local(self) -> Budget:
        """The loss of each row, even to someone who knows which output row it became.

        It composes the columns' losses with inference and measured tables: their counts include this row as well, and
        no order hides them. If neither order nor sample earns credit it is the budget itself.
        """
        earns_no_credit = self.terms.shuffled_rows is None or any(unit.step for unit in self.units)
        if earns_no_credit and not self.terms.samples:
            cap = math.inf if self.local_epsilon is None else self.local_epsilon
            return Budget(min(self.epsilon, cap), self.delta)
        return self._local_rows if self._central_budget is None else compose([self._local_rows, self._central_budget])

    @property
    def located(self) -> Budget:
        """The loss of a person to someone who knows which released rows are theirs: at least the budget."""
        if self.local == self.release:  # which speaks of a person already
            return self.release
        person_budget = compose([self.local] * self.contributions)
        return person_budget if person_budget.epsilon > self.release.epsilon else self.release

    @cached_property
    def _central_budget(self) -> Budget | None:
        """The budget of inference and measured tables together; None without them."""
        return central_budget(self.inferred, self.tables_step, self.delta)

    @property
    def _local_rows(self) -> Budget:
        """The columns' losses composed: basically, or by their privacy-loss distributions at the δ of the rows."""
        # Not `less`: the ε of inference on its own may be above the promise, if little is left for the rows.
        spent = Fraction(0) if self._central_budget is None else Fraction(self._central_budget.delta)
        basic, delta = self.local_sum, round_down(Fraction(self.delta) - spent)
        if basic.delta > 0 or delta == 0:
            return basic
        epsilon = composed_epsilon([unit.column_loss for unit in self.units], delta)
        return Budget(min(epsilon, basic.epsilon) or 5e-324, delta)

    def check_rows(self, n: int) -> None:
        """Raise `PlanError` if a table has too few rows for the credit of the plan's order and sample."""
        needed = self.sample is not None or self.terms.shuffled_rows is not None
        if needed and self.n is not None and n < self.n and not replace(self.terms, rows=None).allow(self.units):
            raise PlanError(
                f"the plan was made for {self.n:,} rows and the table has {n:,}: fewer rows hide each other less; "
                f"plan.replan({n}) calibrates it anew"
            )


PLAN_SCHEMA_VERSION = 3
"""Version of a plan's JSON; a newer version is refused (limit of the format)."""


def fields_of(plan: Any) -> dict[str, Any]:
    """Return a plan's fields for JSON, without defaults of later versions: public facts only."""
    data: dict[str, Any] = {
        "schema": plan.schema,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "n": plan.n,
        "shuffle": plan.shuffle,
        "contributions": plan.contributions,
        "nulls": plan.nulls,
        "columns": [column.to_json(grouped=plan.group_of(column.name) is not None) for column in plan.columns],
        "drop": list(plan.drop),
        "passthrough": list(plan.passthrough),
        "leaks": list(plan.leaks),
    }
    for name in _OPTIONAL_FIELDS:
        value = getattr(plan, name)
        if value is None or value is False or value == ():
            continue
        if isinstance(value, tuple):
            data[name] = [part.to_json() for part in value]
        else:
            data[name] = value.to_json() if hasattr(value, "to_json") else value
    return data


_OPTIONAL_FIELDS = (
    "sample",
    "inferred",
    "keeps_index",
    "local_epsilon",
    "reused",
    "measures",
    "privacy_id",
    "rules",
    "groups",
)
"""Fields that are written if they differ from their defaults; the plan's digest depends on their order."""


def read_fields(text: str, known: Collection[str]) -> dict[str, Any]:
    """Return the fields of JSON text, with columns and groups as values."""
    try:
        data = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise PlanError(f"this is no plan, as it is no JSON object; {_WRITERS_NOTE}")
    if "parent" in data and "tables" in data:
        raise PlanError("this is a plan of several tables; dpf.LinkedPlan.read(path) reads it")
    schema = data.pop("schema", None)
    # JSON's true is an int in Python.
    if type(schema) is not int or schema < 1:
        raise PlanError(f'this is no plan, as it has no "schema" number; {_WRITERS_NOTE}')
    if schema > PLAN_SCHEMA_VERSION:
        raise PlanError(
            f"the plan has schema {schema}, this version reads up to {PLAN_SCHEMA_VERSION}; upgrade dpframe"
        )
    unknown = sorted(set(data) - set(known))
    if unknown or not {"epsilon", "columns"} <= set(data) or not isinstance(data["columns"], list):
        what = f"the unknown field {unknown[0]!r}" if unknown else "no epsilon or no list of columns"
        raise PlanError(f"the plan has {what}")
    if not isinstance(data.setdefault("groups", []), list):
        raise PlanError("groups must be a list of groups")
    data["groups"] = tuple(group_from_json(group, data["columns"]) for group in data["groups"])
    data["columns"] = tuple(column_from_json(column, data["groups"]) for column in data["columns"])
    # Plans written by hand may leave δ out.
    data.setdefault("delta", 0.0)
    if not isinstance(data.setdefault("measures", []), list):
        raise PlanError("measures must be a list of measures")
    return data


def read_parts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with measures and inferences as values; raise `ParameterError` if one is invalid."""
    # Values are made after the fields, so that errors name the invalid part.
    parts: dict[str, Any] = {"measures": tuple(map(Measure.from_json, data["measures"]))}
    for name in ("inferred", "reused"):
        if data.get(name) is not None:
            parts[name] = Inferred.from_json(data[name])
    return {**data, **parts}


_WRITERS_NOTE = "plan.to_json() and dpframe plan write them"
