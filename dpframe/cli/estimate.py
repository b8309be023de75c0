"""The command ``dpframe estimate``: a statistic of the original table, from only a released file."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import pandas as pd
import typer

from dpframe.api.public import Estimates
from dpframe.cli.pipes import Source
from dpframe.cli.shared import WHERE_RULE, AsJson, argument, option, parse_where, to_conditions
from dpframe.errors import ParameterError, did_you_mean
from dpframe.estimate.answer_options import to_rows
from dpframe.spaces.cells import has_few_values


@dataclass(frozen=True)
class _Options:
    """The options of ``dpframe estimate``."""

    by: str | None
    bins: int | list[Any] | None
    normalize: bool
    given: list[str]
    method: str | None
    q: list[float]
    where: dict[str, Any] | None
    k: int | None
    target: str | None
    family: str | None
    weights: str | None

    @property
    def common_options(self) -> dict[str, Any]:
        """Options of every statistic."""
        return {} if self.target is None else {"target": self.target}

    @property
    def weight_options(self) -> dict[str, Any]:
        """Options of statistics that may have weights."""
        return self.common_options | ({} if self.weights is None else {"weights": self.weights})

    @property
    def row_options(self) -> dict[str, Any]:
        """Options of statistics of some of the rows, which may have weights."""
        return self.weight_options | ({} if self.where is None else {"where": self.where})

    @property
    def group_options(self) -> dict[str, Any]:
        """Options of statistics that may have groups, conditions and weights."""
        return self.row_options | ({} if self.by is None else {"by": self.by})

    @property
    def regression_options(self) -> dict[str, Any]:
        """Options of regressions."""
        options = {"family": self.family, "weights": self.weights}
        return self.common_options | {name: value for name, value in options.items() if value is not None}

    @property
    def group_column(self) -> str:
        """Name of the column of groups; `ParameterError` if it is missing."""
        if self.by is None:
            raise ParameterError("compare takes --by, the column of the groups")
        return self.by

    @property
    def method_options(self) -> dict[str, Any]:
        """The option of statistics that may be unbiased."""
        return {} if self.method is None else {"method": self.method}

    @property
    def count_options(self) -> dict[str, Any]:
        """Options of counts."""
        return self.weight_options | {"normalize": self.normalize} | self.method_options

    @property
    def conditions(self) -> dict[str, Any]:
        """Conditions on rows; `ParameterError` if they are missing."""
        if self.where is None:
            raise ParameterError(WHERE_RULE)
        return self.where

    def joint_options(self, columns: list[str]) -> dict[str, Any]:
        """Options of joint tables; bins are for the numeric columns."""
        return self.count_options | ({} if self.bins is None else {"bins": dict.fromkeys(columns, self.bins)})


@dataclass(frozen=True)
class _Statistic:
    """A statistic of ``dpframe estimate``: the number of columns that it takes, its options, and its method."""

    columns: range
    options: frozenset[str]
    compute: Callable[[Estimates, list[str], _Options], Any]


def _one_column(options: str, compute: Callable[[Estimates, list[str], _Options], Any]) -> _Statistic:
    return _Statistic(range(1, 2), frozenset(options.split()), compute)


def _find_column_statistics() -> dict[str, _Statistic]:
    """Return the statistics of one column whose options are a target, groups and weights, by their commands' names."""
    statistics = {}
    # Read off the class, so that a new statistic of one column needs no line here.
    for name, method in inspect.getmembers(Estimates, inspect.isfunction):
        parameters = list(inspect.signature(method).parameters)
        if not name.startswith("_") and parameters[1:2] == ["column"] and "target" in parameters:
            options = {"by", "where", "weights"}.intersection(parameters)
            statistics[name.replace("_", "-")] = _one_column(" ".join(options), partial(_compute_of_column, name))
    return statistics


def _compute_of_column(name: str, estimates: Estimates, columns: list[str], options: _Options) -> Any:
    return getattr(estimates, name)(columns[0], **options.group_options)


STATISTICS: dict[str, _Statistic] = {
    "value-counts": _Statistic(
        range(1, 99),
        frozenset({"bins", "normalize", "method", "where", "weights"}),
        lambda e, c, q: (
            e.value_counts(c[0], bins=q.bins, **(q.count_options | q.row_options))
            if len(c) == 1
            else e.value_counts(c, **(q.joint_options(_find_numeric(e, c)) | q.row_options))
        ),
    ),
    "crosstab": _Statistic(
        range(2, 3),
        frozenset({"bins", "normalize", "method", "weights"}),
        lambda e, c, q: e.crosstab(c[0], c[1], **q.joint_options(_find_numeric(e, c))),
    ),
    "joint": _Statistic(
        range(1, 99),
        frozenset({"bins", "normalize", "method", "given"}),
        lambda e, c, q: e.joint(c, given=q.given, **q.joint_options(_find_numeric(e, c))),
    ),
    "count": _Statistic(
        range(1),
        frozenset({"where", "normalize", "method", "weights"}),
        lambda e, c, q: e.count(q.conditions, **q.count_options),
    ),
    "top": _one_column(
        "k normalize", lambda e, c, q: e.top(c[0], q.k or 10, normalize=q.normalize, **q.common_options)
    ),
    "describe": _Statistic(
        range(99),
        frozenset(),
        lambda e, c, q: e.describe(c or None, **q.common_options),
    ),
    "mean": _one_column(
        "by bins where weights method",
        lambda e, c, q: e.mean(c[0], q.by, bins=q.bins, **(q.row_options | q.method_options)),
    ),
    "cov": _Statistic(range(2, 99), frozenset(), lambda e, c, q: e.cov(*_one_or_more(c), **q.common_options)),
    "corr": _Statistic(
        range(2, 99), frozenset({"weights"}), lambda e, c, q: e.corr(*_one_or_more(c), **q.weight_options)
    ),
    "support": _one_column("by bins", lambda e, c, q: _estimate_support(e, c[0], q)),
    "cooccurrence": _one_column(
        "normalize",
        lambda e, c, q: e.cooccurrence(c[0], normalize=q.normalize, **q.common_options),
    ),
    "set-sizes": _one_column("normalize", lambda e, c, q: e.set_sizes(c[0], normalize=q.normalize, **q.common_options)),
    "histogram": _one_column("bins", lambda e, c, q: e.histogram(c[0], q.bins or 10, **q.common_options)),
    "mean-curve": _one_column("by bins", lambda e, c, q: e.mean_curve(c[0], q.by, bins=q.bins, **q.common_options)),
    "cov-curve": _one_column("", lambda e, c, q: e.cov_curve(c[0])),
    "fidelity": _Statistic(range(1), frozenset(), lambda e, c, q: e.fidelity()),
    "compare": _one_column("by", lambda e, c, q: e.compare(c[0], q.group_column, **q.common_options)),
    "independence": _Statistic(range(2, 3), frozenset(), lambda e, c, q: _check_population(e.independence(*c), q)),
    "regress": _one_column(
        "family weights",
        lambda e, c, q: e.regress(c[0], **q.regression_options),  # the column is a formula
    ),
    "quantile": _one_column(
        "q by where weights", lambda e, c, q: e.quantile(c[0], q.q or [0.25, 0.5, 0.75], **q.group_options)
    ),
}
STATISTICS |= {name: definition for name, definition in _find_column_statistics().items() if name not in STATISTICS}

_COARSE_TIME_ERROR = pd.Timedelta(seconds=10)
"""Standard error of a time from which on parts of a second are noise."""


def _round_to_seconds(table: pd.DataFrame) -> pd.DataFrame:
    """Round times to seconds if their errors are several seconds.

    >>> noon, hour = pd.Timestamp("2026-01-31 12:00:00.123456"), pd.Timedelta(hours=1)
    >>> _round_to_seconds(pd.DataFrame({"estimate": [noon], "std_error": [hour]}))["estimate"].item()
    Timestamp('2026-01-31 12:00:00')
    """
    errors = table["std_error"] if "std_error" in table else pd.Series(dtype="float64")
    if not len(errors) or not all(isinstance(error, pd.Timedelta) and error >= _COARSE_TIME_ERROR for error in errors):
        return table
    # Microseconds would be digits of noise.
    return table.map(lambda value: value.round("s"))


def _parse_bins(text: str) -> int | list[Any]:
    """Return a number of bins or their edges, which are numbers or times.

    >>> _parse_bins("4"), _parse_bins("0,18,64.5"), _parse_bins("2024-01-01,2025-01-01")
    (4, [0.0, 18.0, 64.5], ['2024-01-01', '2025-01-01'])
    """
    if "," not in text:
        if not text.strip().isdecimal() or not int(text):
            raise ParameterError("--bins must be a whole number, at least 1, or edges, e.g. --bins 0,18,65,120")
        return int(text)
    try:
        return [float(edge) for edge in text.split(",")]
    except ValueError:
        return [edge.strip() for edge in text.split(",")]


def _shorten_bins(table: pd.DataFrame) -> pd.DataFrame:
    """Round the edges of numeric bins to a hundredth of the narrowest bin.

    >>> index = pd.IntervalIndex.from_breaks([0.0, 3.99993896484375, 8.00018310546875], closed="left")
    >>> _shorten_bins(pd.DataFrame({"estimate": [1.0, 2.0]}, index=index)).index.tolist()
    ['[0, 4)', '[4, 8)']
    """
    labels = [label for level in range(table.index.nlevels) for label in table.index.get_level_values(level)]
    widths = [
        interval.length
        for interval in labels
        if isinstance(interval, pd.Interval) and isinstance(interval.length, float)
    ]
    if not widths or not min(widths) > 0:
        return table
    # Edges lie on the grid of the space and have many digits, most of them of no use.
    places = 2 - math.floor(math.log10(min(widths)))

    def text(label: Any) -> Any:
        if not isinstance(label, pd.Interval) or not isinstance(label.length, float):
            return label
        left, right = (f"{round(end, places):.15g}" for end in (label.left, label.right))
        return f"[{left}, {right})"

    return table.rename(index=text)


def _one_or_more(columns: list[str]) -> list[Any]:
    """Return two columns as two arguments, which ask for one answer, and more as a list of them."""
    return list(columns) if len(columns) == 2 else [columns]


def _estimate_support(estimates: Estimates, column: str, options: _Options) -> pd.DataFrame:
    return estimates.support(column, by=options.by, bins=options.bins, **options.common_options)


def _find_numeric(estimates: Estimates, columns: list[str]) -> list[str]:
    released_names = [name for name in columns if name in estimates.plan.names]  # the statistic refuses the others
    return [name for name in released_names if not has_few_values(estimates.plan[name].space)]


def _check_population(result: Any, options: _Options) -> Any:
    """Return a result of the population; `ParameterError` if the target is the table."""
    if options.target == "table":
        raise ParameterError("independence is of the population; leave out --target")
    return result


def suggest_by(statistic: str, columns: list[str]) -> str:
    """Return a hint to group by the second of two columns, or nothing for other numbers of columns."""
    return (
        f"; to group by the second, dpframe … {statistic} {columns[0]} --by {columns[1]}" if len(columns) == 2 else ""
    )


def estimate(
    source: Source,
    statistic: Annotated[str, argument(", ".join(STATISTICS) + "; or as pandas writes them, e.g. value_counts.")],
    columns: Annotated[list[str] | None, argument("Its columns; of regress a formula.")] = None,
    by: Annotated[str | None, option("Group means, quantiles and spreads by this column.")] = None,
    bins: Annotated[str | None, option("Bins of numeric columns: how many, or their edges, as 0,18,65,120.")] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Shares of all rows; within a column, joint … --given.")
    ] = False,
    given: Annotated[list[str] | None, option("Condition a joint on; repeat.")] = None,
    method: Annotated[str | None, option("Of counts and means: inverse, project, em, model or auto.")] = None,
    q: Annotated[list[float] | None, option("Levels of quantiles; repeat.")] = None,
    where: Annotated[
        str | None, option('Conditions on rows, in JSON: {"sex": "F", "age": {"lower": 18, "upper": 65}}.')
    ] = None,
    k: Annotated[int | None, option("How many values top shows.", min=1)] = None,
    target: Annotated[
        str | None, option("table or population; by default the table, and of regressions the population.")
    ] = None,
    family: Annotated[str | None, option("Of regressions: gaussian, binomial or poisson.")] = None,
    weights: Annotated[str | None, option("A column of weights of the rows.")] = None,
    confidence_level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Estimate a statistic of the original table from only a released file."""
    statistic = statistic.replace("_", "-")  # as pandas writes them
    if statistic not in STATISTICS:
        raise ParameterError(f"{did_you_mean(statistic, STATISTICS)}statistic must be one of {', '.join(STATISTICS)}")
    definition, columns = STATISTICS[statistic], columns or []
    if len(columns) not in definition.columns:
        fewest = definition.columns[0]
        count = f"{fewest} column{'s' * (fewest > 1)}" + (" or more" if len(definition.columns) > 1 else "")
        count = "one formula, such as 'visits ~ age'" if "family" in definition.options else count
        count = count if fewest else "--where and no columns" if "where" in definition.options else "no columns"
        by_hint = suggest_by(statistic, columns) if "by" in definition.options else ""
        if normalize and len(columns) == 3 and columns[2] in ("index", "columns"):
            given_column = columns[columns[2] == "columns"]
            by_hint = f"; for shares within {given_column}, joint {columns[0]} {columns[1]} --given {given_column}"
        raise ParameterError(f"{statistic} takes {count}; got {len(columns)}{by_hint}")
    conditions = None if where is None else parse_where(where)
    options = _Options(
        by,
        None if bins is None else _parse_bins(bins),
        normalize,
        given or [],
        method,
        q or [],
        conditions,
        k,
        target,
        family,
        weights,
    )
    optional = {"by", "bins", "normalize", "given", "method", "q", "where", "k", "family", "weights"}
    for name in sorted(optional - definition.options):
        # An option without effect would leave the user with the answer to another question.
        if getattr(options, name) not in (None, False, []):
            remedy = "mean takes it, and joint takes --given" if name == "by" else "leave it out"
            raise ParameterError(f"{statistic} takes no --{name}; {remedy}")
    # These statistics have bins only of the groups; without groups the option would have no effect.
    if bins is not None and statistic in ("mean", "mean-curve", "support") and by is None:
        raise ParameterError(f"{statistic} takes --bins for the column of --by only")
    estimates = Estimates(source, confidence_level=confidence_level)
    if conditions is not None:
        # Only the plan of the release says which columns have listed values, so conditions are read after it.
        listed_columns = [column.name for column in estimates.plan.columns if column.space.is_listed]
        options = replace(options, where=to_conditions(conditions, listed_columns))
    result = definition.compute(estimates, columns, options)
    table = to_rows(result, statistic.replace("-", "_"))
    if as_json:
        # JSON has no intervals.
        flat_table = table.reset_index()
        interval_columns = [name for name, dtype in flat_table.dtypes.items() if isinstance(dtype, pd.IntervalDtype)]
        flat_table = flat_table.astype(dict.fromkeys(interval_columns, str))
        typer.echo(flat_table.to_json(orient="records", date_format="iso", force_ascii=False))
        return
    rounded_table = _shorten_bins(_round_to_seconds(table))
    typer.echo(rounded_table.to_string(float_format=lambda x: f"{x:,.4g}" if abs(x) < 100 else f"{x:,.0f}"))
    if "formula" in table.attrs:
        typer.echo(f"n = {table.attrs['n']:,}, family {table.attrs['family']}, of the {table.attrs['target']}")
    if "method" in table.attrs:
        typer.echo(f"method: {table.attrs['method']}")
