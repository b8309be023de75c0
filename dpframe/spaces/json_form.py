"""Frozen values as JSON objects and back: fields by name, without unknown or missing fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from dpframe.errors import PlanError

T = TypeVar("T")


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object for `json.loads`; `ValueError` for a duplicate name, whose first value would be lost."""
    json_object = dict(pairs)
    if len(json_object) < len(pairs):
        raise ValueError("a name twice")
    return json_object


def parameters(kind: type) -> list[Field[Any]]:
    """Return the fields of a dataclass's constructor."""
    data: Any = kind
    return [f for f in fields(data) if f.init]


def to_object(value: Any, sparse: Collection[str] = ()) -> dict[str, Any]:
    """Return a value's fields, tuples as lists; fields named ``sparse`` are left out at their default."""
    field_values = {f.name: (getattr(value, f.name), f.default) for f in parameters(type(value))}
    stored_fields = {
        name: entry for name, (entry, default) in field_values.items() if name not in sparse or entry != default
    }
    return {name: list(entry) if isinstance(entry, tuple) else entry for name, entry in stored_fields.items()}


def check_names(data: Any, noun: str, needed: Collection[str], optional: Collection[str] = ()) -> None:
    """Raise `PlanError` unless data is an object with exactly these fields."""
    if not isinstance(data, Mapping) or not set(needed) <= set(data) <= {*needed, *optional}:
        optional_text = f", and perhaps {', '.join(sorted(optional))}" if optional else ""
        raise PlanError(f"{noun} has the fields {', '.join(sorted(needed))}{optional_text}, no more and no fewer")


def from_object(kind: type[T], data: Any, noun: str) -> T:
    """Return a value from its fields, lists as tuples; `PlanError` names the fields if data has others."""
    constructor_fields = parameters(kind)
    needed = [f.name for f in constructor_fields if f.default is MISSING]
    check_names(data, noun, needed, [f.name for f in constructor_fields if f.name not in needed])
    for f in constructor_fields:
        if str(f.type).startswith("tuple") and isinstance(data.get(f.name), str | Mapping):
            raise PlanError(f"{noun} has a list of {f.name}, and something else was given")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()})
