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
from dpframe.cli.shared import WHERE, AsJson, argument, as_conditions, option, read_where
from dpframe.errors import ParameterError, did_you_mean
from dpframe.spaces.cells import has_few_values


@dataclass(frozen=True)
class _Question:
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
    def common(self) -> dict[str, Any]:
        """Options of every statistic."""
        return {} if self.target is None else {"target": self.target}

    @property
    def fitted(self) -> dict[str, Any]:
        """Options of regressions."""
        given = {"family": self.family, "weights": self.weights}
        return self.common | {name: value for name, value in given.items() if value is not None}

    @property
    def groups(self) -> str:
        """The column of the groups; `ParameterError` if it is missing."""
        if self.by is None:
            raise ParameterError("compare takes --by, the column of the groups")
        return self.by

    @property
    def counted(self) -> dict[str, Any]:
        """Options of counts."""
        return self.common | {"normalize": self.normalize} | ({} if self.method is None else {"method": self.method})

    @property
    def conditions(self) -> dict[str, Any]:
        """What rows have to be; `ParameterError` where it is missing."""
        if self.where is None:
            raise ParameterError(WHERE)
        return self.where

    def binned(self, columns: list[str]) -> dict[str, Any]:
        """Options of joints; bins are for the numeric columns among them."""
        return self.counted | ({} if self.bins is None else {"bins": dict.fromkeys(columns, self.bins)})


@dataclass(frozen=True)
class _Statistic:
    """A statistic of ``dpframe estimate``: how many columns it takes, which options, and its method."""

    columns: range
    options: frozenset[str]
    ask: Callable[[Estimates, list[str], _Question], Any]


def _one(options: str, ask: Callable[[Estimates, list[str], _Question], Any]) -> _Statistic:
    return _Statistic(range(1, 2), frozenset(options.split()), ask)


def _of_a_column() -> dict[str, _Statistic]:
    """Return the statistics that are asked of a column and need no other options than a target, by their methods."""
    found = {}
    for name, method in inspect.getmembers(Estimates, inspect.isfunction):
        taken = list(inspect.signature(method).parameters)
        if not name.startswith("_") and taken[1:2] == ["column"] and "target" in taken:
            found[name.replace("_", "-")] = _one("", partial(_asked, name))
    return found


def _asked(name: str, estimates: Estimates, columns: list[str], question: _Question) -> Any:
    return getattr(estimates, name)(columns[0], **question.common)


STATISTICS: dict[str, _Statistic] = {
    "value-counts": _one("bins normalize method", lambda e, c, q: e.value_counts(c[0], bins=q.bins, **q.counted)),
    "crosstab": _Statistic(
        range(2, 3),
        frozenset({"bins", "normalize", "method"}),
        lambda e, c, q: stacked(e.crosstab(c[0], c[1], **q.binned(_numeric(e, c)))),
    ),
    "joint": _Statistic(
        range(1, 99),
        frozenset({"bins", "normalize", "method", "given"}),
        lambda e, c, q: e.joint(c, given=q.given, **q.binned(_numeric(e, c))),
    ),
    "count": _Statistic(
        range(1), frozenset({"where", "normalize", "method"}), lambda e, c, q: e.count(q.conditions, **q.counted)
    ),
    "top": _one("k normalize", lambda e, c, q: e.top(c[0], q.k or 10, normalize=q.normalize, **q.common)),
    "describe": _Statistic(
        range(99),
        frozenset(),
        lambda e, c, q: stacked(_named(e.describe(c or None, **q.common), "statistic", "column")),
    ),
    "mean": _one("by bins", lambda e, c, q: e.mean(c[0], q.by, bins=q.bins, **q.common)),
    "cov": _Statistic(range(2, 99), frozenset(), lambda e, c, q: stacked(e.cov(c, **q.common))),
    "corr": _Statistic(range(2, 99), frozenset(), lambda e, c, q: stacked(e.corr(c, **q.common))),
    "support": _one("by bins", lambda e, c, q: _support(e, c[0], q)),
    "cooccurrence": _one(
        "normalize",
        lambda e, c, q: stacked(_named(e.cooccurrence(c[0], normalize=q.normalize, **q.common), "item 1", "item 2")),
    ),
    "set-sizes": _one("normalize", lambda e, c, q: e.set_sizes(c[0], normalize=q.normalize, **q.common)),
    "histogram": _one("bins", lambda e, c, q: e.histogram(c[0], q.bins or 10, **q.common)),
    "mean-curve": _one("by bins", lambda e, c, q: e.mean_curve(c[0], q.by, bins=q.bins, **q.common)),
    "cov-curve": _one("", lambda e, c, q: stacked(_named(e.cov_curve(c[0]), "point", "other point"))),
    "fidelity": _Statistic(range(1), frozenset(), lambda e, c, q: e.fidelity()),
    "compare": _one("by", lambda e, c, q: e.compare(c[0], q.groups, **q.common)),
    "independence": _Statistic(range(2, 3), frozenset(), lambda e, c, q: _untargeted(e.independence(*c), q)),
    "regress": _one(
        "family weights",
        lambda e, c, q: e.regress(c[0], **q.fitted).rename_axis("term"),  # the column is a formula
    ),
    "quantile": _one("q", lambda e, c, q: e.quantile(c[0], q.q or [0.25, 0.5, 0.75], **q.common)),
}
STATISTICS |= {name: one for name, one in _of_a_column().items() if name not in STATISTICS}

_SECONDS = pd.Timedelta(seconds=10)
"""Error of a time from which on parts of a second are noise."""


def _whole_seconds(table: pd.DataFrame) -> pd.DataFrame:
    """Round times that err by seconds to seconds: microseconds would be digits of noise.

    >>> noon, hour = pd.Timestamp("2026-01-31 12:00:00.123456"), pd.Timedelta(hours=1)
    >>> _whole_seconds(pd.DataFrame({"estimate": [noon], "std_error": [hour]}))["estimate"].item()
    Timestamp('2026-01-31 12:00:00')
    """
    errors = table["std_error"] if "std_error" in table else pd.Series(dtype="float64")
    if not len(errors) or not all(isinstance(error, pd.Timedelta) and error >= _SECONDS for error in errors):
        return table
    return table.map(lambda value: value.round("s"))


def _bins(text: str) -> int | list[Any]:
    """Return a number of bins or their edges, which are numbers or times.

    >>> _bins("4"), _bins("0,18,64.5"), _bins("2024-01-01,2025-01-01")
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


def _short_bins(table: pd.DataFrame) -> pd.DataFrame:
    """Show bins of numbers with edges to a hundredth of the narrowest bin: on the space's own grid they are long.

    >>> index = pd.IntervalIndex.from_breaks([0.0, 3.99993896484375, 8.00018310546875], closed="left")
    >>> _short_bins(pd.DataFrame({"estimate": [1.0, 2.0]}, index=index)).index.tolist()
    ['[0, 4)', '[4, 8)']
    """
    labels = [label for level in range(table.index.nlevels) for label in table.index.get_level_values(level)]
    widths = [one.length for one in labels if isinstance(one, pd.Interval) and isinstance(one.length, float)]
    if not widths or not min(widths) > 0:
        return table
    places = 2 - math.floor(math.log10(min(widths)))

    def text(label: Any) -> Any:
        if not isinstance(label, pd.Interval) or not isinstance(label.length, float):
            return label
        left, right = (f"{round(end, places):.15g}" for end in (label.left, label.right))
        return f"[{left}, {right})"

    return table.rename(index=text)


def _named(wide: pd.DataFrame, rows: str, columns: str) -> pd.DataFrame:
    """Name the rows and the columns of a wide table."""
    return wide.rename_axis(index=rows).rename_axis(columns=["", columns])


def _support(estimates: Estimates, column: str, question: _Question) -> pd.DataFrame:
    table = estimates.support(column, by=question.by, bins=question.bins, **question.common)
    return table if question.by is None else stacked(table)


def _numeric(estimates: Estimates, columns: list[str]) -> list[str]:
    known = [name for name in columns if name in estimates.plan.names]  # the statistic refuses the others
    return [name for name in known if not has_few_values(estimates.plan[name].space)]


def _untargeted(result: pd.Series[Any], question: _Question) -> pd.Series[Any]:
    """Return a result of the population, unless another target was asked for."""
    if question.target == "table":
        raise ParameterError("independence is of the population; leave out --target")
    return result


def by_instead(statistic: str, columns: list[str]) -> str:
    """Return how to group by the second of two columns, where one is taken."""
    return (
        f"; to group by the second, dpframe … {statistic} {columns[0]} --by {columns[1]}" if len(columns) == 2 else ""
    )


def stacked(wide: pd.DataFrame) -> pd.DataFrame:
    """Return a cross table with one row per cell."""
    tall = pd.DataFrame(wide.stack(level=1, future_stack=True))
    tall.attrs = wide.attrs
    names = [name or f"column {i}" for i, name in enumerate(tall.index.names, 1)]
    return tall.rename_axis(names)


def estimate(
    source: Source,
    statistic: Annotated[str, argument(", ".join(STATISTICS) + "; or as pandas writes them, e.g. value_counts.")],
    columns: Annotated[list[str] | None, argument("Its columns; of regress a formula.")] = None,
    by: Annotated[str | None, option("Group means by this column.")] = None,
    bins: Annotated[str | None, option("Bins of numeric columns: how many, or their edges, as 0,18,65,120.")] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Shares instead of counts.")] = False,
    given: Annotated[list[str] | None, option("Condition a joint on; repeat.")] = None,
    method: Annotated[str | None, option("inverse, project, em, model or auto.")] = None,
    q: Annotated[list[float] | None, option("Levels of quantiles; repeat.")] = None,
    where: Annotated[
        str | None, option('Conditions of count, in JSON: {"sex": "F", "age": {"lower": 18, "upper": 65}}.')
    ] = None,
    k: Annotated[int | None, option("How many values top shows.", min=1)] = None,
    target: Annotated[
        str | None, option("table or population; by default the table, and of regressions the population.")
    ] = None,
    family: Annotated[str | None, option("Of regressions: gaussian, binomial or poisson.")] = None,
    weights: Annotated[str | None, option("Of regressions: a column of weights.")] = None,
    confidence_level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Estimate a statistic of the original table from only a released file."""
    statistic = statistic.replace("_", "-")  # as pandas writes them
    if statistic not in STATISTICS:
        raise ParameterError(f"{did_you_mean(statistic, STATISTICS)}statistic must be one of {', '.join(STATISTICS)}")
    chosen, columns = STATISTICS[statistic], columns or []
    if len(columns) not in chosen.columns:
        least = chosen.columns[0]
        count = f"{least} column{'s' * (least > 1)}" + (" or more" if len(chosen.columns) > 1 else "")
        count = "one formula, such as 'visits ~ age'" if "family" in chosen.options else count
        count = count if least else "--where and no columns" if "where" in chosen.options else "no columns"
        grouped = by_instead(statistic, columns) if "by" in chosen.options else ""
        raise ParameterError(f"{statistic} takes {count}; got {len(columns)}{grouped}")
    conditions = None if where is None else read_where(where)
    question = _Question(
        by,
        None if bins is None else _bins(bins),
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
    for name in sorted(optional - chosen.options):
        # Left unsaid, the answer would be to another question.
        if getattr(question, name) not in (None, False, []):
            remedy = "mean takes it, and joint takes --given" if name == "by" else "leave it out"
            raise ParameterError(f"{statistic} takes no --{name}; {remedy}")
    if bins is not None and statistic in ("mean", "mean-curve", "support") and by is None:
        raise ParameterError(f"{statistic} takes --bins for the column of --by only")
    estimates = Estimates(source, confidence_level=confidence_level)
    if conditions is not None:
        listed = [column.name for column in estimates.plan.columns if column.space.is_listed]
        question = replace(question, where=as_conditions(conditions, listed))
    result = chosen.ask(estimates, columns, question)
    table = result.to_frame().T.rename_axis("column") if isinstance(result, pd.Series) else result
    if as_json:
        plain = table.reset_index()
        spans = [name for name, dtype in plain.dtypes.items() if isinstance(dtype, pd.IntervalDtype)]
        plain = plain.astype(dict.fromkeys(spans, str))
        typer.echo(plain.to_json(orient="records", date_format="iso", force_ascii=False))
        return
    shown = _short_bins(_whole_seconds(table))
    typer.echo(shown.to_string(float_format=lambda x: f"{x:,.4g}" if abs(x) < 100 else f"{x:,.0f}"))
    if "formula" in table.attrs:
        typer.echo(f"n = {table.attrs['n']:,}, family {table.attrs['family']}, of the {table.attrs['target']}")
    if "method" in table.attrs:
        typer.echo(f"method: {table.attrs['method']}")
