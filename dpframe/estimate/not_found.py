"""Estimates of columns whose spaces private inference did not find: NaN, as clipped columns are not the table's."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import combinations
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from dpframe.errors import DpframeWarning, InferenceWarning, ParameterError, name_list, warn
from dpframe.plan.findings import NotFound
from dpframe.plan.plan import Plan

P = ParamSpec("P")
R = TypeVar("R")

NOT_FOUND = "not_found"
"""Key of a result's attrs: ``{column: reason}``."""

_PREFIX = "not found: "

Judged = Callable[[Plan], Iterable[NotFound]]

_COLUMN_ARGUMENTS = ("column", "columns", "index", "by", "weights", "where")


def reasons(missing: Iterable[NotFound]) -> dict[str, str]:
    """Return why columns were not found."""
    return {one.column: f"{_PREFIX}{one.why}" for one in missing}


_asking: ContextVar[bool] = ContextVar("_asking", default=False)
"""Whether a statistic is asked by another, which warns for both."""


@contextmanager
def asked_by_another() -> Iterator[None]:
    """Let statistics that are asked within leave warnings to the one that asks them."""
    outer = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(outer)


def warn_of_nan(missing: Mapping[str, str]) -> None:
    """Warn that estimates of columns that were not found are NaN, and why, once for a statistic and those it asks."""
    if _asking.get():
        return
    warn(
        f"private inference did not find the spaces of {_listed(missing)}: estimates are NaN; declare the space in "
        "another release, or raise epsilon",
        InferenceWarning,
    )


def warn_of_hidden(names: Iterable[Any], values: npt.NDArray[Any], missing: Collection[str]) -> None:
    """Warn of pairs of columns that were found and whose correlation is NaN, as noise hides a variance."""
    found = [(i, name) for i, name in enumerate(names) if name not in missing]
    hidden = [f"{a!r} and {b!r}" for (i, a), (j, b) in combinations(found, 2) if a != b and np.isnan(values[i, j])]
    if hidden:
        shown = "; ".join(hidden[:_PAIRS]) + (f" and {len(hidden) - _PAIRS} more pairs" if len(hidden) > _PAIRS else "")
        warn(
            f"noise hides the spread of a column, so that these correlations are NaN: {shown}; release fewer columns, "
            "tighter bounds or more rows, or raise epsilon",
            DpframeWarning,
        )


_PAIRS = 5
"""Pairs that are named (limit of a sentence)."""


def _listed(missing: Mapping[str, str]) -> str:
    return "; ".join(f"{name_list([name])} ({why.removeprefix(_PREFIX)})" for name, why in missing.items())


def nan_if_not_found(method: Callable[P, R], judged: Judged = lambda plan: plan.not_found) -> Callable[P, R]:
    """Make a method of `Estimates` return NaN where the space of one of the columns it names was not found.

    All else stays: what is refused, and the shape of the result. With ``clipped`` estimates nothing changes but
    that the result's attrs name the columns, as they do in either case.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs).arguments
        reading = given["self"]
        # One column, several, or conditions by column.
        named = [given.get(name) for name in _COLUMN_ARGUMENTS]
        listed = [value if isinstance(value, list | tuple | Mapping) else [value] for value in named]
        used = list(dict.fromkeys(name for value in listed for name in value if isinstance(name, str)))
        missing = {name: why for name, why in reasons(judged(reading.plan)).items() if name in used}
        try:
            with asked_by_another():
                result: Any = method(*args, **kwargs)
        except ParameterError as error:
            if not missing:
                raise
            # Little can be asked about what was not found: that is why, and not the question.
            raise ParameterError(f"{error}; it was not found: {_listed(missing)}") from None
        if missing and not reading.clipped:
            warn_of_nan(missing)
            attrs = {
                key: dict.fromkeys(value, math.nan) if key == "mean_size" else value
                for key, value in result.attrs.items()
            }
            result = result.where(np.zeros(result.shape, dtype=np.bool_))
            result.attrs = attrs
        if missing:
            result.attrs[NOT_FOUND] = missing
        if not _asking.get():
            reading._warn_of_imputed(used)
        presented: R = result
        return presented

    return wrapped


def nan_if_unread(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method of `Estimates` that separates nulls from values return NaN where inference could not.

    Neither bounds nor a list of values make a null of a value; but values of a kind that a column is not read as are.
    """
    return nan_if_not_found(method, lambda plan: [missing for missing in plan.not_found if missing.unread])
