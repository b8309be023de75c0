"""The options that every statistic takes, in one place: level of intervals, clipped columns, tidy form."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, TypedDict, TypeVar, get_type_hints

import pandas as pd

from dpframe.errors import OneTable, ParameterError, check_flags, check_fraction
from dpframe.estimate.base import column_names
from dpframe.estimate.not_found import NOT_FOUND
from dpframe.estimate.results import RESULTS
from dpframe.plan.threads import one_thread

C = TypeVar("C", bound=type)


class AnswerOptions(TypedDict, total=False):
    """Keyword arguments of every statistic, which `take_answer_options` acts on; see `dpframe.Estimates`."""

    confidence_level: float | None
    clipped: bool | None
    long: bool


_HELP = """confidence_level, clipped, long
    See the class."""

_PARAMETERS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None if name != "long" else False, annotation=kind)
    for name, kind in get_type_hints(AnswerOptions).items()
]

_PAIR_KEYS = ("column", "with")

KEYS = {
    "cooccurrence": ("item", "with"),
    "corr": _PAIR_KEYS,
    "count": ("statistic",),
    "cov": _PAIR_KEYS,
    "cov_curve": ("point", "with"),
    "describe": ("statistic", "column"),
    "independence": ("statistic",),
    "infer": ("statistic",),
    "regress": ("term",),
}
"""Names of the keys of statistics whose results are not named by columns of the data."""

STATISTICS_BY_COLUMN = ("median", "std", "sum", "var")
"""Statistics of one column that answer a list of columns with a row for each."""

_SECTIONS = {
    "counts-and-shares": ("null_rate", "top", "value_counts"),
    "pairs-joints-and-conditions": ("count", "crosstab", "joint"),
    "means-sums-and-spreads": ("describe", "mean", "std", "sum", "var"),
    "histograms-and-quantiles": ("histogram", "median", "quantile"),
    "correlations": ("corr", "cov"),
    "differences-regressions-and-any-function": ("compare", "independence", "infer", "regress"),
    "sets-and-curves": ("cooccurrence", "cov_curve", "mean_curve", "set_sizes", "support"),
}
PAGES = {name: f"docs/how-to/trust.md#{section}" for section, names in _SECTIONS.items() for name in names}
"""Sections of the documentation on method, assumptions and coverage, by statistic: ``attrs["page"]`` of an answer."""


def to_rows(result: pd.Series[Any] | pd.DataFrame, statistic: str = "") -> pd.DataFrame:
    """Return a result with one row for each estimate, indexed by its keys.

    >>> wide = pd.DataFrame([[1.0, 2.0]], ["a"], pd.MultiIndex.from_product([["estimate"], ["x", "y"]]))
    >>> to_rows(wide, "corr")["estimate"].to_dict()
    {('a', 'x'): 1.0, ('a', 'y'): 2.0}
    """
    if isinstance(result, pd.Series):
        # The name of a pair's answer is a tuple.
        rows = result.to_frame().T.infer_objects()
    elif result.columns.nlevels == 1:
        rows = result.copy(deep=False)
    else:
        parts = {part: result[part] for part in result.columns.unique(0)}
        across = next(iter(parts.values())).columns
        down = result.index.repeat(len(across))
        levels = [down.get_level_values(level) for level in range(down.nlevels)]
        levels.append(across.take(list(range(len(across))) * len(result)))
        index = pd.MultiIndex.from_arrays(levels, names=[*down.names, across.name])
        rows = pd.DataFrame({part: cells.to_numpy().ravel() for part, cells in parts.items()}, index)
    keys = KEYS.get(statistic, ())
    names = keys if len(keys) == rows.index.nlevels else [name or "column" for name in rows.index.names]
    # The result keeps its own index, which a shallow copy shares.
    rows.index = rows.index.set_names(list(names))
    rows.attrs = result.attrs
    return rows


def to_long(result: pd.Series[Any] | pd.DataFrame, statistic: str = "") -> pd.DataFrame:
    """Return a result as a tidy frame: columns of keys, then the estimate, its error and its interval.

    A key with the name of another column gets an underscore.
    """
    rows = to_rows(result, statistic)
    return rows.reset_index(names=[f"{name}_" if name in rows.columns else name for name in rows.index.names])


def join_answers(answers: Mapping[str, Any]) -> pd.DataFrame:
    """Return the answers about several columns with a row for each; attrs name the columns that were not found.

    >>> join_answers({"age": pd.Series({"estimate": 50.0}), "cost": pd.Series({"estimate": 9.0})})["estimate"].to_dict()
    {'age': 50.0, 'cost': 9.0}
    """
    table = pd.DataFrame(answers).T.infer_objects() if answers else pd.DataFrame(columns=list(RESULTS))
    missing = {name: why for answer in answers.values() for name, why in answer.attrs.get(NOT_FOUND, {}).items()}
    if missing:
        table.attrs[NOT_FOUND] = missing
    return table


def _wrap_statistic(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a statistic that acts on the options of every answer."""
    signature = inspect.signature(method)
    *parameters, _ = signature.parameters.values()
    names = {parameter.name for parameter in parameters}

    @wraps(method)
    def answer(
        self: Any,
        *args: Any,
        confidence_level: float | None = None,
        clipped: bool | None = None,
        long: bool = False,
        **options: Any,
    ) -> Any:
        if not options.keys() <= names:
            # The method's own ``**options`` would swallow a misspelt name.
            raise TypeError
        check_flags(long=long)
        reading = self if confidence_level is None and clipped is None else _reread(self, confidence_level, clipped)
        counts_nulls = method.__name__ == "null_rate" or options.get("dropna") is False
        reading._warn_of_context({*_texts([*args, *options.values()])}, counts_nulls, method.__name__ == "sum")
        given = {**dict(zip(list(signature.parameters)[1:], args, strict=False)), **options}
        column = given.get("column")
        with OneTable():
            if method.__name__ in STATISTICS_BY_COLUMN and isinstance(column, list | tuple):
                if given.get("by") is not None:
                    raise ParameterError(f"by goes with the {method.__name__} of one column; ask for each of them")
                result: Any = join_answers(
                    {name: method(reading, **{**given, "column": name}) for name in column_names(column, "column")}
                )
            else:
                result = method(reading, *args, **options)
        result.attrs["page"] = PAGES[method.__name__]
        if isinstance(column, str):
            result.attrs["statistic"] = f"{method.__name__} of {column}"
        return to_long(result, method.__name__) if long else result

    vars(answer)["__signature__"] = signature.replace(parameters=[*parameters, *_PARAMETERS])
    if method.__doc__ is not None:  # python -OO leaves none
        first, *sections = re.split(r"\n\n(?=[A-Z]\w+\n-{3,}\n)", inspect.cleandoc(method.__doc__))
        has_parameters = bool(sections) and sections[0].startswith("Parameters")
        parameter_section = sections.pop(0) if has_parameters else "Parameters\n----------"
        answer.__doc__ = "\n\n".join([first, f"{parameter_section}\n{_HELP}", *sections])
    return answer


def _texts(values: Iterable[Any]) -> Iterator[str]:
    """Yield all text of arguments: names of columns in lists, as keys of conditions, or alone."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple | Mapping):
            yield from _texts(value)


def _reread(estimates: Any, confidence_level: float | None, clipped: bool | None) -> Any:
    """Return estimates of the same release at another level, or of clipped columns; both share their fits."""
    _ = estimates._joints  # a copy of estimates that have made no fit would make fits of its own
    reading = copy.copy(estimates)
    if confidence_level is not None:
        reading.confidence_level = check_fraction(confidence_level, "confidence_level", 0.95)
    if clipped is not None:
        check_flags(clipped=clipped)
        reading.clipped = clipped
    return reading


def take_answer_options(kind: C) -> C:
    """Return a class whose statistics, inherited ones too, act on `AnswerOptions` where their signatures have them.

    Its public methods run with one thread of linear algebra.
    """
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_"):
            continue
        options = inspect.signature(method).parameters.get("options")
        takes_options = options is not None and "AnswerOptions" in str(options.annotation)
        setattr(kind, name, one_thread(_wrap_statistic(method) if takes_options else method))
    return kind
