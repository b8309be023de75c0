"""Frozen values as JSON objects and back: fields by their names, none unknown, none missing that has no default."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from dpframe.errors import PlanError

T = TypeVar("T")


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object for `json.loads`; `ValueError` for a name that appears twice, whose first value would vanish."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name twice")
    return found


def parameters(kind: type) -> list[Field[Any]]:
    """Return the fields of a dataclass's constructor."""
    data: Any = kind
    return [f for f in fields(data) if f.init]


def to_object(value: Any, sparse: Collection[str] = ()) -> dict[str, Any]:
    """Return a value's fields, tuples as lists; those named ``sparse`` only where they are not their default."""
    found = {f.name: (getattr(value, f.name), f.default) for f in parameters(type(value))}
    kept = {name: own for name, (own, default) in found.items() if name not in sparse or own != default}
    return {name: list(own) if isinstance(own, tuple) else own for name, own in kept.items()}


def check_names(data: Any, noun: str, needed: Collection[str], optional: Collection[str] = ()) -> None:
    """Raise `PlanError` unless this is an object with just these fields."""
    if not isinstance(data, Mapping) or not set(needed) <= set(data) <= {*needed, *optional}:
        perhaps = f", and perhaps {', '.join(sorted(optional))}" if optional else ""
        raise PlanError(f"{noun} has the fields {', '.join(sorted(needed))}{perhaps}, no more and no fewer")


def from_object(kind: type[T], data: Any, noun: str) -> T:
    """Make a value from its fields, lists as tuples; `PlanError` names the fields where there are others."""
    known = parameters(kind)
    needed = [f.name for f in known if f.default is MISSING]
    check_names(data, noun, needed, [f.name for f in known if f.name not in needed])
    for f in known:
        if str(f.type).startswith("tuple") and isinstance(data.get(f.name), str | Mapping):
            raise PlanError(f"{noun} has a list of {f.name}, and something else was given")
    return kind(**{name: tuple(own) if isinstance(own, list) else own for name, own in data.items()})
