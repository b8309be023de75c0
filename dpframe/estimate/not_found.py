"""Estimates of columns whose spaces private inference did not find: NaN, as clipped columns are not the table's."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from dpframe.plan.findings import NotFound
from dpframe.plan.plan import Plan

P = ParamSpec("P")
R = TypeVar("R")

NOT_FOUND = "not_found"
"""Key of a result's attrs: ``{column: reason}``."""

Judged = Callable[[Plan], Iterable[NotFound]]

_COLUMN_ARGUMENTS = ("column", "columns", "index", "by", "weights", "where")


def reasons(missing: Iterable[NotFound]) -> dict[str, str]:
    """Return why columns were not found."""
    return {one.column: f"not found: {one.why}" for one in missing}


def nan_if_not_found(method: Callable[P, R], judged: Judged = lambda plan: plan.not_found) -> Callable[P, R]:
    """Make a method of `Estimates` return NaN where the space of one of the columns it names was not found.

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
        missing = {name: why for name, why in reasons(judged(reading.plan)).items() if name in used}
        if missing and not reading.clipped:
            attrs = {
                key: dict.fromkeys(value, math.nan) if key == "mean_size" else value
                for key, value in result.attrs.items()
            }
            result = result.where(np.zeros(result.shape, dtype=np.bool_))
            result.attrs = attrs
        if missing:
            result.attrs[NOT_FOUND] = missing
        presented: R = result
        return presented

    return wrapped


def nan_if_unread(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method of `Estimates` that separates nulls from values return NaN where inference could not.

    Neither bounds nor a list of values make a null of a value; but objects of a kind that was not found are read as
    nulls: the kinds are the last that was measured of them.
    """

    def unread(plan: Plan) -> list[NotFound]:
        last = {} if plan.inferred is None else {m.column: m.kind for m in plan.inferred.measured}
        return [missing for missing in plan.not_found if last[missing.column] == "kinds"]

    return nan_if_not_found(method, unread)
