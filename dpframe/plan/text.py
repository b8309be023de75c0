"""How a plan is written as JSON, and what is read of it: each version's schema, and nothing of what a plan means."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from dpframe.errors import PlanError
from dpframe.plan.columns import column_from_json, group_from_json
from dpframe.plan.inferred import Inferred
from dpframe.plan.measures import Measure

SCHEMA = 3
"""Version of a plan's JSON; a plan of a newer one is refused."""


def schema_of(plan: Any) -> int:
    """Return the oldest schema that says all of a plan: 3 with rules, 2 with what came before them."""
    new = plan.local_epsilon is not None or plan.reused is not None or bool(plan.measures)
    new |= (plan.inferred is not None and plan.inferred.step is not None) or plan.privacy_id is not None
    return SCHEMA if plan.rules else 2 if new else 1


def fields_of(plan: Any) -> dict[str, Any]:
    """Return a plan's fields as JSON has them: those that are not their default, public facts only."""
    data: dict[str, Any] = {
        "schema": schema_of(plan),
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
    return data | {name: _as_json(getattr(plan, name)) for name in _LATER if _says(getattr(plan, name))}


_LATER = ("sample", "inferred", "keeps_index", "local_epsilon", "reused", "measures", "privacy_id", "rules", "groups")
"""Fields that are written where they say something; their order is that of the text, which a plan's digest is of."""


def _says(value: Any) -> bool:
    return value is not None and value is not False and value != ()


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [part.to_json() for part in value]
    return value.to_json() if hasattr(value, "to_json") else value


def read_fields(text: str, known: Collection[str]) -> dict[str, Any]:
    """Return the fields of JSON text, its columns and groups as values.

    Raises `PlanError` for text that is no plan, a newer schema, or a field that is not known.
    """
    data = _json_object(text)
    schema = data.pop("schema", None)
    if type(schema) is not int or schema < 1:
        raise PlanError(f'this is no plan, as it has no "schema" number; {_WRITERS}')
    if schema > SCHEMA:
        raise PlanError(f"the plan has schema {schema}, this version reads up to {SCHEMA}; upgrade dpframe")
    unknown = sorted(set(data) - set(known))
    if unknown or not {"epsilon", "columns"} <= set(data) or not isinstance(data["columns"], list):
        what = f"the unknown field {unknown[0]!r}" if unknown else "no epsilon or no list of columns"
        raise PlanError(f"the plan has {what}")
    if not isinstance(data.setdefault("groups", []), list):
        raise PlanError("groups must be a list of groups")
    data["groups"] = tuple(group_from_json(group, data["columns"]) for group in data["groups"])
    data["columns"] = tuple(column_from_json(column, data["groups"]) for column in data["columns"])
    data.setdefault("delta", 0.0)
    if not isinstance(data.setdefault("measures", []), list):
        raise PlanError("measures must be a list of measures")
    return data


def read_parts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with what was measured and inferred as values; `ParameterError` where a part breaks its rule."""
    parts: dict[str, Any] = {"measures": tuple(map(Measure.from_json, data["measures"]))}
    for name in ("inferred", "reused"):
        if data.get(name) is not None:
            parts[name] = Inferred.from_json(data[name])
    return {**data, **parts}


_WRITERS = "plan.to_json() and dpframe plan write them"


def _json_object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise PlanError(f"this is no plan, as it is no JSON object; {_WRITERS}")
    return data
