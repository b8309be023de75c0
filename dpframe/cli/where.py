"""Conditions on rows, as the command line writes them."""

from __future__ import annotations

import json
from typing import Any

from dpframe.errors import ParameterError

WHERE = '--where must be a JSON object, e.g. {"sex": "F", "age": {"lower": 18, "upper": 65}}'


def read_where(text: str) -> dict[str, Any]:
    """Read a condition: in JSON bounds are an object, and either may be left out; lists are of values.

    Raises `ParameterError` for what is no JSON object.

    >>> read_where('{"sex": ["F"], "age": {"not": {"lower": 18}}}')
    {'sex': ['F'], 'age': {'not': (18, None)}}
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ParameterError(WHERE)
    return {name: _condition(value) for name, value in found.items()}


def _condition(value: Any) -> Any:
    if isinstance(value, dict) and value and set(value) <= {"lower", "upper"}:
        return value.get("lower"), value.get("upper")
    if isinstance(value, dict) and set(value) == {"not"}:
        return {"not": _condition(value["not"])}
    return value
