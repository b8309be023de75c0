"""Every error and warning that dpframe raises.

One root, so that ``except dpframe.errors.DpframeError`` catches them all::

    DpframeError
    ├── ParameterError (ValueError)        an argument breaks a rule
    ├── ColumnError (ValueError)           a column does not fit its space or the plan
    ├── PlanError (ValueError)             a plan is inconsistent, foreign or too new
    ├── AlreadySanitizedError (ValueError) the input is a release already
    ├── NotSanitizedError (ValueError)     an estimate needs a release, and the table is none
    ├── BudgetExceeded (RuntimeError)      a ledger has too little budget left; nothing was spent
    └── FileError (OSError)                a file is missing, corrupt, or exists already
        └── LedgerError                    a ledger cannot be used, or has no such dataset, part or release

    DpframeWarning (UserWarning)
    ├── AlteredReleaseWarning              a table differs from its release
    ├── InferenceWarning                   inference did not find spaces, bounds clip rows, or noise hides groups
    ├── LargeEpsilonWarning                a budget is so large that it guarantees next to nothing
    ├── PrivacyLeakWarning                 a fact was read off the data without a budget
    ├── OrderLeakWarning                   rows keep their order, which reveals values
    ├── RepeatedReleaseWarning             the same data was released again: budgets add up
    └── SeededReleaseWarning               noise was derived from a seed that others may guess

A message names the parameter or column, the rule, the row position if there is one, and the remedy.
It never holds a value of the data.
"""

from __future__ import annotations

import difflib
import inspect
import math
import sys
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np

__all__ = [
    "AlreadySanitizedError",
    "AlteredReleaseWarning",
    "BudgetExceeded",
    "ColumnError",
    "DpframeError",
    "DpframeWarning",
    "FileError",
    "InferenceWarning",
    "LargeEpsilonWarning",
    "LedgerError",
    "NotSanitizedError",
    "OrderLeakWarning",
    "ParameterError",
    "PlanError",
    "PrivacyLeakWarning",
    "RepeatedReleaseWarning",
    "SeededReleaseWarning",
]


def __dir__() -> list[str]:
    return __all__


def name_list(names: Iterable[str]) -> str:
    """Return names for a message, in one line even if a name holds line breaks."""
    # A line break in a name could forge a line of a log.
    return ", ".join(name if name.isprintable() else repr(name) for name in names)


MAX_LISTED_ITEMS = 10
"""Items of a list below a message (limit of a message)."""


def list_below(items: Iterable[str], most: int = MAX_LISTED_ITEMS) -> str:
    """Return the lines of a list below a message, one item a line.

    >>> print("left out:" + list_below(["a: no rows", "b: no values"]))
    left out:
      a: no rows
      b: no values
    """
    lines = [" ".join(item.splitlines()) for item in items]
    omitted = len(lines) - most
    if omitted > 1:
        lines[most:] = [f"… and {omitted} more"]
    return "".join(f"\n  {line}" for line in lines)


def align_cells(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return one line for each row of a table, whose cells are as wide as the widest of their column.

    >>> align_cells([("age", "rough"), ("income", "")])
    ['age     rough', 'income']
    """
    table = [tuple(row) for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


@dataclass(frozen=True)
class ColumnRemark:
    """A fact about a column that a warning states, with its remedy."""

    column: str
    fact: str
    remedy: str

    @classmethod
    def to_declare(cls, column: str, fact: str, declaration: str) -> ColumnRemark:
        """Return a remark whose remedy is a declaration of the column's space.

        >>> ColumnRemark.to_declare("age", "no rows", "(LOWER, UPPER)").remedy
        "spaces={'age': (LOWER, UPPER)}"
        """
        return cls(column, fact, f"spaces={{{column!r}: {declaration}}}")


MAX_LISTED_COLUMNS = 40
"""Lines of a table of columns below a warning (limit of a message)."""


def table_below(remarks: Iterable[ColumnRemark]) -> str:
    """Return the lines of a table below a message: column, fact and remedy, one remark a line.

    >>> print("not found:" + table_below([ColumnRemark("age", "no rows", "(LOWER, UPPER)")]))
    not found:
      age  no rows  (LOWER, UPPER)
    """
    lines = align_cells((name_list([remark.column]), remark.fact, remark.remedy) for remark in remarks)
    return list_below(lines, MAX_LISTED_COLUMNS)


Remarks = dict[tuple[str, type[Warning]], dict[ColumnRemark, None]]
"""Remarks by the headline and category of their warning; a dict keeps their order, each once."""

_collected_remarks: ContextVar[Remarks | None] = ContextVar("_collected_remarks", default=None)
"""The remarks of an answer of several columns so far; None while no such answer is computed."""


class OneTable:
    """A context that collects the remarks of warnings, and warns of all columns in one table at its end."""

    # A context of contextlib would stand between the user's line and dpframe, and be taken for the user's line.
    def __enter__(self) -> None:
        self._outer = _collected_remarks.get()
        if self._outer is None:
            _collected_remarks.set({})

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._outer is not None:
            return
        remarks = _collected_remarks.get() or {}
        _collected_remarks.set(None)
        for (headline, category), lines in remarks.items() if kind is None else ():
            warn_of_columns(headline, lines, category)


def warn_of_columns(headline: str, remarks: Iterable[ColumnRemark], category: type[Warning]) -> None:
    """Warn once of all columns with remarks, in a table below the headline; no remark is no warning."""
    lines, collected = dict.fromkeys(remarks), _collected_remarks.get()
    if lines and collected is not None:
        collected.setdefault((headline, category), {}).update(lines)
    elif lines:
        warn(f"{headline}:{table_below(lines)}", category)


def did_you_mean(name: object, candidates: Iterable[str]) -> str:
    """Return a question with the most similar candidate; empty text if no candidate is similar.

    >>> did_you_mean("colum", ["column", "by"])
    "did you mean 'column'? "
    """
    matches = difflib.get_close_matches(name, list(candidates), n=1) if isinstance(name, str) else []
    return f"did you mean {matches[0]!r}? " if matches else ""


def tuple_label(names: Iterable[str]) -> str:
    """Return the names of columns of one table or group, in one line even if a name holds line breaks."""
    return " × ".join(name_list([name]) for name in names)


def warn(message: str, category: type[Warning]) -> None:
    """Warn with the location of the user's line that called dpframe."""
    # Calls within dpframe have different depths, so that no constant stack level fits.
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_within_package(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_whole(
    value: Any, name: str, least: int = 1, most: int | None = None, *, of: str = "", remedy: str = ""
) -> int:
    """Return a whole number as an int, or raise `ParameterError` unless it is one within its bounds.

    ``of`` names the unit of the number, ``remedy`` ends the message.

    >>> check_whole(0, "batch_rows", of="rows")
    Traceback (most recent call last):
    dpframe.errors.ParameterError: batch_rows must be a whole number of rows, at least 1
    """
    # True is an integer to Python.
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        kind = f"whole number of {of}," if of else "whole number" + "," * (most is None)
        raise ParameterError(f"{name} must be a {kind} {bounds}{remedy}")
    return int(value)


def is_one_of(value: Any, names: Collection[Any]) -> bool:
    """Return whether a value is one of some names; False for arrays, frames and ``<NA>``."""
    # A comparison of these with a name returns an array, or raises an error.
    return isinstance(value, str) and value in names


def check_flags(**flags: Any) -> None:
    """Raise `ParameterError` unless each of the arguments is True or False, of Python or NumPy.

    >>> check_flags(normalize="yes")
    Traceback (most recent call last):
    dpframe.errors.ParameterError: normalize must be True or False
    """
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise ParameterError(f"{name} must be True or False")


def check_fraction(value: Any, name: str, example: float) -> float:
    """Return a number as a float, or raise `ParameterError` unless it is strictly between 0 and 1.

    >>> check_fraction(95, "confidence_level", 0.95)
    Traceback (most recent call last):
    dpframe.errors.ParameterError: confidence_level must lie in (0, 1), e.g. confidence_level=0.95
    """
    # NaN fails the comparison, as no number should pass that is none.
    number: Any = value if isinstance(value, Real) else math.nan
    if not 0 < number < 1:
        raise ParameterError(f"{name} must lie in (0, 1), e.g. {name}={example}")
    return float(number)


class DpframeError(Exception):
    """Root of all errors raised on purpose by dpframe.

    In IPython and Jupyter the traceback ends at the line that called dpframe. ``%debug`` opens the frames within, and
    ``%xmode Verbose`` followed by ``%tb`` prints them.

    Examples
    --------
    >>> import dpframe as dpf
    >>> try:
    ...     dpf.Integer(9, 1)
    ... except dpf.errors.DpframeError as error:
    ...     print(error)
    lower must be below upper, both within 64 bits
    """

    def _render_traceback_(self) -> list[str]:
        """Return the traceback that IPython prints in place of its own."""
        shell = sys.modules["IPython"].get_ipython()
        if shell.InteractiveTB.mode == "Verbose":
            return list(shell.InteractiveTB.structured_traceback(type(self), self, self.__traceback__))
        causes = self.__cause__, self.__suppress_context__
        # IPython would print every frame of the error that led to this one.
        self.__cause__ = None
        try:
            frames = _frames_of_caller(self.__traceback__)
            return list(shell.InteractiveTB.structured_traceback(type(self), self, frames))
        finally:
            self.__cause__, self.__suppress_context__ = causes


def _frames_of_caller(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Return a traceback up to the first frame of the package."""
    entries = []
    while traceback is not None and not _is_within_package(traceback.tb_frame):
        entries.append(traceback)
        traceback = traceback.tb_next
    frames = None
    for entry in reversed(entries):
        frames = types.TracebackType(frames, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return frames


def _is_within_package(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).split(".")[0] == "dpframe"


class ParameterError(DpframeError, ValueError):
    """An argument breaks its rule; the message names the argument, the rule and the remedy.

    Examples
    --------
    >>> import dpframe as dpf
    >>> try:
    ...     dpf.Budget(-1.0)
    ... except dpf.errors.ParameterError as error:
    ...     print(error)
    epsilon must be finite and above 0, e.g. epsilon=1.0; got -1.0
    """


class ColumnError(DpframeError, ValueError):
    """A column does not fit its space or the plan; the message names column, rule and row position.

    ``rule`` is the sentence without the column, ``row`` the position within the array that was checked
    (None when the whole column is at fault).

    Examples
    --------
    >>> import dpframe as dpf
    >>> table = dpf.datasets.make_census(3, columns=["sex"])
    >>> try:
    ...     dpf.sanitize(table, epsilon=1, spaces={"sex": ["F"]}, key=bytes(32))
    ... except dpf.errors.ColumnError as error:
    ...     print(error)
    column 'sex' at row position 0: holds a category outside the declared list; add it, or declare Categorical([…],
    other=…)
    """

    def __init__(self, rule: str, *, column: str | None = None, row: int | None = None) -> None:
        self.rule, self.column, self.row = rule, column, row
        place = "" if row is None else f" at row position {row}"
        super().__init__(f"column {column!r}{place}: {rule}" if column is not None else f"{rule}{place}")

    def located(self, column: str, first_row: int = 0) -> ColumnError:
        """Return the same error with the column's name and the row counted from the table's start."""
        row = None if self.row is None else self.row + first_row
        return ColumnError(self.rule, column=column, row=row)


class PlanError(DpframeError, ValueError):
    """A plan contradicts itself, is of an unknown kind, or of a newer schema."""


class AlreadySanitizedError(DpframeError, ValueError):
    """The input carries a release's plan: sanitising it again would only add noise."""


class NotSanitizedError(DpframeError, ValueError):
    """A table carries no plan, so that nothing can be estimated from it.

    Examples
    --------
    >>> import dpframe as dpf
    >>> try:
    ...     dpf.Estimates(dpf.datasets.make_census(3))
    ... except dpf.errors.NotSanitizedError as error:
    ...     print(error)
    the table carries no release plan; sanitise it first, or, if it was released, read its file with
    dpframe.read(path)
    """


class BudgetExceeded(DpframeError, RuntimeError):
    """A ledger has less budget left than a request needs; nothing was spent, and no noise was drawn.

    Examples
    --------
    >>> import dpframe as dpf
    >>> table = dpf.datasets.make_census(100, columns=["sex"])
    >>> questions = dpf.Queries(table, 1.0, spaces={"sex": ["F", "M"]})
    >>> answer = questions.count({"sex": "F"}, share=0.75)
    >>> try:
    ...     questions.count({"sex": "F"}, share=0.5)
    ... except dpf.errors.BudgetExceeded as error:
    ...     print(error)
    the questions have share=0.25 left of their budget, and share=0.5 was asked: nothing was spent and nothing was
    drawn; ask for no more than is left
    """


class FileError(DpframeError, OSError):
    """A file is missing, has another content than expected, or would be overwritten by its own result.

    Examples
    --------
    >>> import dpframe as dpf
    >>> try:
    ...     dpf.read("missing.parquet")
    ... except dpf.errors.FileError as error:
    ...     print(error)
    missing.parquet does not exist
    """


class LedgerError(FileError):
    """A ledger cannot be used (missing, foreign, locked, full, …), or has no such dataset, part or release."""


class DpframeWarning(UserWarning):
    """Root of all warnings given by dpframe.

    Examples
    --------
    >>> import warnings
    >>> import dpframe as dpf
    >>> table = dpf.datasets.make_census(100, columns=["sex"])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     questions = dpf.Queries(table, 1.0, delta=0.1, spaces={"sex": ["F", "M"]})
    >>> print(caught[0].message)
    delta=0.1 is above 1/n, so that whole rows may be revealed; pass delta=1e-06
    """


class AlteredReleaseWarning(DpframeWarning):
    """A table differs from its release: its estimates answer another question."""


class InferenceWarning(DpframeWarning):
    """Estimates are less reliable than they look: inference failed, bounds clip rows, or noise hides groups.

    Examples
    --------
    >>> import warnings
    >>> import dpframe as dpf
    >>> table = dpf.datasets.make_census(100, columns=["income"])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     safe = dpf.sanitize(table, epsilon=1, key=bytes(32))
    >>> print(caught[0].message)
    noisy counts hint at values that inferred spaces lack; declare the spaces in the next release:
      income  nulls, too few to show, count as values if there are any  spaces={'income': Nullable(…)}
    """


class LargeEpsilonWarning(DpframeWarning):
    """A budget is so large that it guarantees next to nothing."""


class PrivacyLeakWarning(DpframeWarning):
    """A fact was read off the data without a budget: the stated guarantee does not cover it.

    Examples
    --------
    >>> import warnings
    >>> import dpframe as dpf
    >>> table = dpf.datasets.make_census(100, columns=["age"])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     safe = dpf.sanitize(table, epsilon=1, infer="data")
    >>> print(caught[0].message)
    spaces of age were read off the data: the guarantee does not cover what their bounds and categories reveal;
    declare them with spaces={…}
    """


class OrderLeakWarning(DpframeWarning):
    """Rows keep their order although a column is sorted: a row's position reveals its value.

    Examples
    --------
    >>> import warnings
    >>> import dpframe as dpf
    >>> table = dpf.datasets.make_census(100, columns=["age"])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     safe = dpf.sanitize(table.sort_values("age"), epsilon=1, spaces={"age": (0, 120)}, shuffle=False)
    >>> print(caught[0].message)
    the input is sorted by age and keeps its order: positions reveal values; use shuffle=True or reorder the rows at
    random first
    """


class RepeatedReleaseWarning(DpframeWarning):
    """The same data was released again without a ledger: the budgets add up.

    The warning rests on exact rows and is for the curator only: it shows to others whether a row has changed.
    """


class SeededReleaseWarning(DpframeWarning):
    """Noise was derived from a seed and the data: a guess of both can be confirmed.

    Examples
    --------
    >>> import warnings
    >>> import dpframe as dpf
    >>> table = dpf.datasets.make_census(100, columns=["age"])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     safe = dpf.Sanitizer(1.0, spaces={"age": (0, 120)}, random_state=0).fit_transform(table)
    >>> print(caught[0].message)
    noise is derived from random_state and the data: a guess of both can be confirmed; leave random_state out for a
    release
    """


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def _describe_misfit(parameters: list[inspect.Parameter], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the fault of a call whose arguments do not fit a signature."""
    names = [parameter.name for parameter in parameters]
    positional_names = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    for name in kwargs:
        if name not in names:
            return f"has no argument {name!r}; it takes {', '.join(names) or 'none'}"
    if len(args) > len(positional_names):
        if not names:
            return "takes no arguments"
        keyword_names = [name for name in names if name not in positional_names]
        parts = [
            f"{', '.join(part)} by {kind}"
            for part, kind in ((positional_names, "position"), (keyword_names, "name"))
            if part
        ]
        return f"takes {' and '.join(parts)}"
    passed_names = positional_names[: len(args)]
    missing_names = [p.name for p in parameters if p.default is p.empty and p.name not in (*passed_names, *kwargs)]
    return (
        f"needs {', '.join(missing_names)}"
        if missing_names
        else f"was given {', '.join(n for n in passed_names if n in kwargs)} twice"
    )


def refusing_misfits(method: Callable[P, R], example: str = "") -> Callable[P, R]:
    """Return a method that raises `ParameterError` with an example for arguments that do not fit its signature.

    >>> refusing_misfits(lambda self, column: column, 'mean("age")')(None)
    Traceback (most recent call last):
    dpframe.errors.ParameterError: <lambda> needs column, e.g. mean("age")
    """

    @wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        # The signature is compared only after an error: a good call costs nothing, and errors inside pass through.
        try:
            return method(*args, **kwargs)
        except TypeError:
            signature = inspect.signature(method)
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                fault = _describe_misfit([*signature.parameters.values()][1:], args[1:], kwargs)
                hint = f", e.g. {example}" if example else ""
                raise ParameterError(f"{method.__name__} {fault}{hint}") from None
            raise

    return wrapper


def refusing_misfit_calls(examples: Mapping[str, str], kind: C) -> C:
    """Return a class with `refusing_misfits` applied to all of its public methods, including inherited ones."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            setattr(kind, name, refusing_misfits(method, examples.get(name, "")))
    return kind
