"""Conditions on rows, as the command line writes them."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from dpframe.errors import ParameterError
from dpframe.spaces.declare import two_numbers

WHERE = '--where must be a JSON object, e.g. {"sex": "F", "age": {"lower": 18, "upper": 65}}'


def read_where(text: str) -> dict[str, Any]:
    """Read a condition's JSON object; `ParameterError` for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ParameterError(WHERE)
    return found


def as_conditions(found: dict[str, Any], listed: Collection[str]) -> dict[str, Any]:
    """Return what JSON says as conditions: bounds are an object, and either may be left out; lists are of values.

    ``listed``: columns whose values are a list. For others a list of two numbers may mean bounds, as JSON has no tuple;
    it is refused, as files of spaces refuse it.

    >>> found = {"sex": ["F"], "age": {"not": {"lower": 18}}, "visits": {"values": [0, 1]}}
    >>> as_conditions(found, ["sex"])
    {'sex': ['F'], 'age': {'not': (18, None)}, 'visits': [0, 1]}
    """
    return {name: _condition(name, value, name in listed) for name, value in found.items()}


def _condition(name: str, value: Any, listed: bool) -> Any:
    if isinstance(value, dict) and value and set(value) <= {"lower", "upper"}:
        return value.get("lower"), value.get("upper")
    if isinstance(value, dict) and set(value) == {"values"}:
        return value["values"]
    if isinstance(value, dict) and set(value) == {"not"}:
        return {"not": _condition(name, value["not"], listed)}
    if two_numbers(value) and not listed:
        low, high = sorted(value)
        raise ParameterError(
            f'--where: a list of two numbers, of {name!r}, may mean a range or values; write {{"lower": {low}, '
            f'"upper": {high}}} or {{"values": {value}}}'
        )
    return value
