"""The plan of several tables that are released together: their plans, and the promise that these compose to."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dpframe.accounting.budget import Budget
from dpframe.errors import FileError, PlanError, check_whole, name_list
from dpframe.plan.certificate import Certificate
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan
from dpframe.plan.words import digits, on_a_screen
from dpframe.release.expected_errors import Expectation, expected_of
from dpframe.release.together import Together, link_failures
from dpframe.spaces.json_form import check_names

LINKED_PLAN_SCHEMA = 1
"""Version of the JSON of plans of several tables; a newer version is refused (limit of the format)."""

_FIELDS = ("schema", "epsilon", "delta", "parent", "tables")
_TABLE_FIELDS = ("key", "plan")


@dataclass(frozen=True)
class LinkedPlan:
    """How several tables of the same persons are randomised: a plan for each, and their promise to a person.

    Parameters
    ----------
    promises
        The promise of all tables by table, with the table's key and the columns of the parents.
    plans
        The plan of each table, the parents' first.

    Raises
    ------
    PlanError
        If the plans do not compose to the promise, or do not protect all rows of a person.

    Examples
    --------
    >>> import pandas as pd, dpframe as dpf
    >>> patients = pd.DataFrame({"patient_id": range(500), "sex": ["F", "M"] * 250})
    >>> visits = pd.DataFrame({"patient_id": [i // 2 for i in range(1000)], "kind": ["urgent", "routine"] * 500})
    >>> spaces = {"patients": {"sex": ["F", "M"]}, "visits": {"kind": ["urgent", "routine"]}}
    >>> plan = dpf.plan(
    ...     {"patients": patients, "visits": visits}, epsilon=4, keys={"visits": {"patient_id": "patients"}},
    ...     contributions={"visits": 2}, spaces=spaces,
    ... )
    >>> plan.promise, plan.plans["visits"].names
    (Budget(epsilon=4.0, delta=1e-06), ('kind', 'patients.sex', 'visits.n'))
    >>> dpf.LinkedPlan.from_json(plan.to_json()) == plan
    True
    """

    promises: Mapping[str, Together]
    plans: Mapping[str, Plan]

    def __post_init__(self) -> None:
        failures = link_failures(self.promises, self.plans)
        if failures:
            raise PlanError(f"the plan of several tables is not valid: {failures[0]}; make it anew")

    @cached_property
    def _first(self) -> Together:
        return next(iter(self.promises.values()))

    @property
    def promise(self) -> Budget:
        """The (ε, δ) of all tables together, for a person with all rows: the one to quote."""
        return Budget(self._first.epsilon, self._first.delta)

    @property
    def parent(self) -> str:
        """The table with one row for each person."""
        return self._first.parent

    @property
    def persons(self) -> int:
        """The number of persons that the plan was made for."""
        return self.plans[self.parent].n or 0

    @property
    def keys(self) -> dict[str, dict[str, str]]:
        """The key of each child table, as `dpframe.sanitize` takes it."""
        target = f"{self.parent}.{self.promises[self.parent].key}"
        return {name: {one.key: target} for name, one in self.promises.items() if name != self.parent}

    @property
    def contributions(self) -> dict[str, int]:
        """The number of kept rows of a person, by child table."""
        return {name: plan.contributions for name, plan in self.plans.items() if name != self.parent}

    @property
    def max_count(self) -> dict[str, int]:
        """The number up to which a person's rows are counted, by child table."""
        counts: dict[str, Any] = {name: self.plans[self.parent][f"{name}.n"].space for name in self.contributions}
        return {name: int(space.upper) for name, space in counts.items()}

    def list_fields(self, name: str) -> list[str]:
        """Return the columns of a child table, without those of the parents, and without the column of presence."""
        plan, promise = self.plans[name], self.promises[name]
        return [c for c in (*plan.names, *plan.drop) if c not in promise.context and c != promise.presence]

    def replan(self, persons: int) -> LinkedPlan:
        """Return the plan for another number of persons: promise and shares unchanged, calibrated anew."""
        persons = check_whole(persons, "persons", of="persons")
        plans = {
            name: plan.replan(persons * (1 if name == self.parent else plan.contributions))
            for name, plan in self.plans.items()
        }
        return replace(self, promises={n: replace(o, persons=persons) for n, o in self.promises.items()}, plans=plans)

    def explain(self) -> LinkedExplanation:
        """Return the promise of all tables and each plan's meaning and cost; prints as text."""
        return LinkedExplanation(self._first.line, (), {name: str(plan.explain()) for name, plan in self.plans.items()})

    def expect(self) -> LinkedExpectation:
        """Return the errors to expect of each table's release; nothing is read or spent."""
        expectations = {name: expected_of(plan) for name, plan in self.plans.items()}
        return LinkedExpectation(self._first.line, expectations, self.contributions)

    def verify(self) -> Certificate:
        """Prove the promise of all tables from the integers that are sampled; see `Plan.verify`."""
        certificates = {name: plan.verify() for name, plan in self.plans.items()}
        return certificate_together(certificates, self.promises, self.plans, [])

    def to_json(self, indent: int | None = None) -> str:
        """Return the plan as JSON text with a schema number: public facts only."""
        tables = {
            name: {
                "key": one.key,
                "plan": json.loads(self.plans[name].to_json()),
                **({"context": list(one.context)} if one.context else {}),
                **({"required": list(one.required)} if one.required else {}),
                **({"lists": one.lists} if one.lists else {}),
            }
            for name, one in self.promises.items()
        }
        facts = (LINKED_PLAN_SCHEMA, self.promise.epsilon, self.promise.delta, self.parent, tables)
        return json.dumps(dict(zip(_FIELDS, facts, strict=True)), indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> LinkedPlan:
        """Read a plan from JSON text, and check it.

        Raises
        ------
        PlanError
            For text that is no plan of several tables, or a promise that its plans exceed.
        """
        try:
            data = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            data = None
        if not is_linked_plan(data):
            raise PlanError("this is no plan of several tables; dpframe plan-tables and plan.to_json() write them")
        if type(data["schema"]) is not int or data["schema"] > LINKED_PLAN_SCHEMA:
            raise PlanError(
                f"the plan of several tables has a schema that this version, which reads up to {LINKED_PLAN_SCHEMA}, "
                "does not know; upgrade dpframe"
            )
        check_names(data, "a plan of several tables", _FIELDS)
        promises, plans = {}, {}
        for name, part in data["tables"].items():
            check_names(part, f"table {name!r} of a plan", _TABLE_FIELDS, ("context", "required", "lists"))
            plans[name] = Plan.from_json(json.dumps(part["plan"]))
            promise = {field: data[field] for field in ("epsilon", "delta", "parent")}
            part_fields = {field: value for field, value in part.items() if field != "plan"}
            table = {"id": "", "tables": list(data["tables"]), "table": name, "persons": 0}
            promises[name] = Together.from_json({**promise, **table, **part_fields})
        persons = plans[data["parent"]].n if data["parent"] in plans else None
        return cls({name: replace(one, persons=persons or 0) for name, one in promises.items()}, plans)

    @classmethod
    def read(cls, path: str | Path) -> LinkedPlan:
        """Read a plan of several tables from a JSON file; raise `FileError` without a file."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError):
            raise FileError(f"{path} is not a readable plan file; dpframe plan-tables --output writes one") from None

    def __str__(self) -> str:
        return "\n\n".join([self._first.line, *(f"{name}\n{plan}" for name, plan in self.plans.items())])

    def __repr__(self) -> str:
        return on_a_screen(str(self))

    def _repr_html_(self) -> str:
        parts = [(name, str(plan).splitlines()) for name, plan in self.plans.items()]
        return notebook_html(self._first.line, parts)


def read_plan(path: str | Path) -> Plan | LinkedPlan:
    """Read the plan of one table, or of several, from a JSON file; see `Plan.read`."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if is_linked_plan(json.loads(Path(path).read_text(encoding="utf-8-sig"))):
            return LinkedPlan.read(path)
    return Plan.read(path)


def is_linked_plan(data: Any) -> bool:
    """Return whether a JSON value has the fields of a plan of several tables."""
    return isinstance(data, dict) and {"schema", "parent"} < set(data) and isinstance(data.get("tables"), dict)


@dataclass(frozen=True)
class LinkedExplanation:
    """The promise of tables released together, shares of kept rows, and the explanation of each; prints as text."""

    promise: str
    kept: tuple[str, ...]
    parts: Mapping[str, str]

    def __str__(self) -> str:
        return "\n\n".join([self.promise, *self.kept, *(f"{name}\n{text}" for name, text in self.parts.items())])

    __repr__ = __str__


@dataclass(frozen=True)
class LinkedExpectation:
    """The errors to expect of tables released together, ``tables``; prints as text.

    Rows of a child table are its joined rows, ``contributions`` for every person, absent ones among them.
    """

    promise: str
    tables: Mapping[str, Expectation]
    contributions: Mapping[str, int]

    @property
    def hints(self) -> list[str]:
        """A line for each child table on the noise of fewer kept rows: it is proportional to their number."""
        lines = []
        for name, rows in self.contributions.items():
            errors, fewer = self.tables[name].table["expected"].to_dict(), -(-rows // 2)
            if fewer < rows and "counts" in errors:
                error = digits(errors["counts"] * fewer / rows)
                lines.append(
                    f"{name}: contributions={fewer} in place of {rows} brings counts within ± {error} rows, and keeps "
                    "fewer rows; check_links shows the curator how many"
                )
        return lines

    def __str__(self) -> str:
        parts = (f"{name}\n{text}" for name, text in self.tables.items())
        return "\n\n".join([self.promise, *parts, *self.hints])

    __repr__ = __str__


def table_failures(certificates: Mapping[str, Certificate]) -> list[str]:
    """Return the failures of each table's own certificate, with its name."""
    return [f"{name}: {failure}" for name, one in certificates.items() for failure in one.failures]


def certificate_together(
    certificates: Mapping[str, Certificate],
    promises: Mapping[str, Together],
    plans: Mapping[str, Plan],
    link_failures: Sequence[str],
) -> Certificate:
    """Return one certificate for all tables from each table's own, and from what is wrong with their links."""
    first = next(iter(promises.values()))
    failures = (*table_failures(certificates), *link_failures)
    total = f"{len(plans)} tables compose to epsilon={first.epsilon:g}, delta={first.delta:g} for a person"
    children = [f"up to {plan.contributions} of {name}" for name, plan in plans.items() if name != first.parent]
    return replace(
        certificates[first.parent],
        claimed=Budget(first.epsilon, first.delta),
        contributions=sum(plan.contributions for plan in plans.values()),
        epsilon=math.inf if failures else first.epsilon,
        delta=first.delta,
        proofs=tuple(replace(p, unit=f"{name}: {p.unit}") for name, one in certificates.items() for p in one.proofs),
        checks=(
            *(f"{name}: {line}" for name, one in certificates.items() for line in one.checks),
            *([] if failures else [total]),
        ),
        attested=(
            *(f"{name}: {line}" for name, one in certificates.items() for line in one.attested),
            "child rows were linked to their persons, and each person has one row of the parents' table",
        ),
        failures=failures,
        local=None,
        person_rows=f"one row of {first.parent} and {name_list(children)}",
    )
