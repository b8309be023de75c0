"""Estimates of columns whose spaces private inference did not find: NaN, as clipped columns are not the table's."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

NOT_FOUND = "not_found"
"""Key of a result's attrs: ``{column: reason}``."""

_COLUMN_ARGUMENTS = ("column", "columns", "index", "by", "weights")


def of_found(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method of `Estimates` return NaN where one of the columns it names was not found.

    All else stays: what is refused, and the shape of the result. With ``clipped`` estimates nothing changes but
    that the result's attrs name the columns, as they do in either case.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        result: Any = method(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        reading, named = given["self"], [given[name] for name in _COLUMN_ARGUMENTS if given.get(name) is not None]
        used = {name for value in named for name in ([value] if isinstance(value, str) else value)}
        missing = {one.column: f"not found: {one.why}" for one in reading.plan.not_found if one.column in used}
        if missing and not reading.clipped:
            attrs = {
                key: dict.fromkeys(value, math.nan) if key == "mean_size" else value
                for key, value in result.attrs.items()
            }
            result = result.where(np.zeros(result.shape, dtype=np.bool_))
            result.attrs = attrs
        if missing:
            result.attrs[NOT_FOUND] = missing
        found: R = result
        return found

    return wrapped
