"""NaN for estimates of columns whose spaces private inference did not find, because their values were clipped."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import combinations
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from dpframe.errors import (
    ColumnRemark,
    DpframeWarning,
    InferenceWarning,
    ParameterError,
    list_below,
    name_list,
    warn,
    warn_of_columns,
)
from dpframe.inference.findings import NotFound
from dpframe.plan.plan import Plan

P = ParamSpec("P")
R = TypeVar("R")

NOT_FOUND = "not_found"
"""Key of a result's attrs: ``{column: reason}``."""

_REASON_PREFIX = "not found: "

Judged = Callable[[Plan], Iterable[NotFound]]

_COLUMN_ARGUMENTS = ("column", "columns", "index", "by", "weights", "where")


def reasons(missing: Iterable[NotFound]) -> dict[str, str]:
    """Return the reason by column for columns whose spaces were not found."""
    return {one.column: f"{_REASON_PREFIX}{one.why}" for one in missing}


def warn_of_nan(plan: Plan, missing: Collection[str], fact: str = "whose estimates are NaN") -> None:
    """Warn that columns without a found space have no estimates, with the reason and the declaration of each."""
    warn_of_columns(
        f"private inference did not find the spaces of some columns, {fact}; declare them in the next release",
        [
            ColumnRemark.to_declare(finding.column, finding.why, finding.placeholder)
            for finding in plan.not_found
            if finding.column in missing
        ],
        InferenceWarning,
    )


def warn_of_hidden(names: Iterable[Any], values: npt.NDArray[Any], missing: Collection[str]) -> None:
    """Warn of correlations that are NaN because a variance is below its noise, for columns with a found space."""
    columns = [(i, name) for i, name in enumerate(names) if name not in missing]
    pairs = [f"{a!r} and {b!r}" for (i, a), (j, b) in combinations(columns, 2) if a != b and np.isnan(values[i, j])]
    if pairs:
        warn(
            f"correlations are NaN, as noise hides the spread of a column; release again with a larger epsilon:"
            f"{list_below(pairs)}",
            DpframeWarning,
        )


def _name_reasons(missing: Mapping[str, str]) -> list[str]:
    """Return a text for each column, with the reason why it was not found."""
    return [f"{name_list([name])}: {why.removeprefix(_REASON_PREFIX)}" for name, why in missing.items()]


def nan_if_not_found(method: Callable[P, R], judged: Judged = lambda plan: plan.not_found) -> Callable[P, R]:
    """Make a method of `Estimates` return NaN if the space of one of its columns was not found.

    Errors and the shape of the result stay. With ``clipped`` estimates the values stay, too. The result's attrs name
    the columns in either case.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = signature.bind(*args, **kwargs).arguments
        reading = arguments["self"]
        # One column, several, or conditions by column.
        values = [arguments.get(name) for name in _COLUMN_ARGUMENTS]
        lists = [value if isinstance(value, list | tuple | Mapping) else [value] for value in values]
        column_names = list(dict.fromkeys(name for value in lists for name in value if isinstance(name, str)))
        missing = {name: why for name, why in reasons(judged(reading.plan)).items() if name in column_names}
        try:
            result: Any = method(*args, **kwargs)
        except ParameterError as error:
            if not missing:
                raise
            # Many questions fail only because the space was not found: the message gives this reason.
            raise ParameterError(f"{error}; not found: {'; '.join(_name_reasons(missing))}") from None
        if missing and not reading.clipped:
            warn_of_nan(reading.plan, missing)
            attrs = {
                key: dict.fromkeys(value, math.nan) if key == "mean_size" else value
                for key, value in result.attrs.items()
            }
            result = result.where(np.zeros(result.shape, dtype=np.bool_))
            result.attrs = attrs
        if missing:
            result.attrs[NOT_FOUND] = missing
        reading._warn_of_imputed(column_names)
        presented: R = result
        return presented

    return wrapped
