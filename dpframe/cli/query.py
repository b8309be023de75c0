"""The command ``dpframe query``: one answer about a file, with noise on the answer and nothing else given away."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from dpframe.api.answers.queries import Queries
from dpframe.cli.estimate import by_instead, stacked
from dpframe.cli.pipes import Source
from dpframe.cli.shared import (
    WHERE,
    AsJson,
    Dataset,
    LedgerFile,
    Part,
    account_of,
    argument,
    as_conditions,
    option,
    read_where,
)
from dpframe.cli.spaces import OwnSpaces, read_spaces, with_own
from dpframe.cli.terminal import plain
from dpframe.errors import ParameterError, did_you_mean


@dataclass(frozen=True)
class _Question:
    """A question of ``dpframe query``: how many columns it takes, which options, and its method."""

    columns: range
    options: frozenset[str]
    ask: Callable[[Queries, list[str], Mapping[str, Any]], Any]


def _one(options: str, ask: Callable[[Queries, list[str], Mapping[str, Any]], Any]) -> _Question:
    return _Question(range(1, 2), frozenset(options.split()), ask)


QUESTIONS: Mapping[str, _Question] = {
    "count": _Question(range(1), frozenset({"where"}), lambda q, _, o: q.count(**o)),
    "sum": _one("by where", lambda q, c, o: q.sum(c[0], **o)),
    "mean": _one("by where", lambda q, c, o: q.mean(c[0], **o)),
    "histogram": _one("bins where", lambda q, c, o: q.histogram(c[0], **o)),
    "crosstab": _Question(range(2, 3), frozenset({"bins", "where"}), lambda q, c, o: stacked(q.crosstab(*c, **o))),
    "most-common": _one("k where", lambda q, c, o: q.most_common(c[0], **o)),
    "nunique": _one("where", lambda q, c, o: q.nunique(c[0], **o)),
    "support": _one("where", lambda q, c, o: q.support(c[0], **o)),
    "set-sizes": _one("where", lambda q, c, o: q.set_sizes(c[0], **o)),
    "quantile": _one("q by where", lambda q, c, o: q.quantile(c[0], **o)),
    "second-moments": _Question(range(1, 99), frozenset({"where"}), lambda q, c, o: stacked(q.second_moments(c, **o))),
    "covariance": _Question(range(1, 99), frozenset({"where"}), lambda q, c, o: stacked(q.covariance(c, **o))),
}


def query(
    source: Source,
    statistic: Annotated[str, argument(", ".join(QUESTIONS) + ".")],
    columns: Annotated[list[str] | None, argument("Its columns.")] = None,
    epsilon: Annotated[float | None, option("What the answer may cost: ε, per person.")] = None,
    delta: Annotated[float, typer.Option(help="And δ; 0 is pure, above 0 lets noise be gaussian.")] = 0.0,
    spaces: Annotated[Path | None, option("The columns' spaces, in a JSON or TOML file; see dpframe spaces.")] = None,
    space: OwnSpaces = None,
    where: Annotated[
        str | None,
        option(
            'Conditions on rows, in JSON: {"sex": "F", "age": {"lower": 18, "upper": 65}, '
            '"hobbies": {"any": ["chess", "golf"]}}.'
        ),
    ] = None,
    by: Annotated[str | None, option("An answer of sum, mean or quantile for each value of this column.")] = None,
    bins: Annotated[int | None, option("Bins of numbers, of histogram and crosstab.")] = None,
    q: Annotated[list[float] | None, option("Levels of quantiles; repeat.")] = None,
    k: Annotated[int | None, option("How many most common values.")] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="geometric, laplace, staircase, vector or gaussian; of second-moments wishart; of quantile and "
            "most-common exponential or noisy_max.  [default: the one that errs less]"
        ),
    ] = None,
    contributions: Annotated[int, typer.Option(help="Rows that one person may own.")] = 1,
    neighbours: Annotated[
        str,
        typer.Option(
            help="How neighbouring tables differ: replace_one, or add_remove (the number of rows is a secret)."
        ),
    ] = "replace_one",
    confidence_level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    ledger: LedgerFile = None,
    dataset: Dataset = None,
    part: Part = None,
    as_json: AsJson = False,
) -> None:
    """Answer one question about a file, with noise on the answer: nothing else of the file leaves."""
    asked, names = _checked(statistic, columns or []), columns or []
    if epsilon is None:
        raise ParameterError("give --epsilon, e.g. --epsilon 0.5")
    declared = with_own({} if spaces is None else read_spaces(spaces), space or [])
    listed = [name for name, spec in declared.items() if isinstance(spec, list) or getattr(spec, "is_listed", False)]
    given = {
        "where": None if where is None else as_conditions(read_where(where), listed),
        "by": by,
        "bins": bins,
        "q": q[0] if q and len(q) == 1 else q or None,
        "k": k,
    }
    for name in sorted(set(given) - asked.options):
        if given[name] is not None:
            raise ParameterError(f"{statistic} takes no --{name}; leave it out")
    options = {name: value for name, value in given.items() if value is not None}
    if statistic == "count" and "where" not in options and neighbours == "replace_one":
        raise ParameterError(WHERE)
    account = account_of(ledger, dataset, part)
    queries = Queries(
        source,
        epsilon=epsilon,
        delta=delta,
        spaces=declared,
        contributions=contributions,
        neighbours=neighbours,
        confidence_level=confidence_level,
        ledger=account,
    )
    _show(asked.ask(queries, names, {**options, "share": 1, "mechanism": mechanism}), as_json)
    if account is not None and not as_json:
        left = account.ledger.remaining(account.dataset, account.part)
        typer.echo(f"Ledger: {plain(account.dataset)} has {left} left")


def _checked(statistic: str, columns: list[str]) -> _Question:
    statistic = statistic.replace("_", "-")  # as Python writes them
    if statistic not in QUESTIONS:
        raise ParameterError(f"{did_you_mean(statistic, QUESTIONS)}statistic must be one of {', '.join(QUESTIONS)}")
    asked = QUESTIONS[statistic]
    if len(columns) not in asked.columns:
        least, more = asked.columns[0], " or more" if len(asked.columns) > 1 else ""
        takes = f"{least} column{'s' * (least > 1)}{more}" if least else "--where and no columns"
        grouped = by_instead(statistic, columns) if "by" in asked.options else ""
        raise ParameterError(f"{statistic} takes {takes}; got {len(columns)}{grouped}")
    return asked


_BOUND = (
    "values beyond the bounds count as the bounds, and no interval holds what that moves; dpframe check counts them, "
    "for the curator only"
)
_MIDDLE = (
    "a null, and text that is no number, counts as the middle of the bounds; to leave it out declare "
    '{"space": "nullable", "inner": …}'
)


def _show(result: Any, as_json: bool) -> None:
    """Print an answer, and how it was made."""
    table = result.to_frame().T if isinstance(result, pd.Series) else result
    facts = result.attrs
    if as_json:
        rows = table.reset_index()
        spans = [name for name, dtype in rows.dtypes.items() if isinstance(dtype, pd.IntervalDtype)]
        answer = rows.astype(dict.fromkeys(spans, str)).to_json(orient="records", date_format="iso", force_ascii=False)
        typer.echo(json.dumps({**facts, "answer": json.loads(answer)}, ensure_ascii=False))
        return
    typer.echo(table.to_string(float_format=lambda x: f"{x:,.4g}" if abs(x) < 100 else f"{x:,.0f}"))
    if "outside" in facts:
        typer.echo(_BOUND)
    if "nulls" in facts:
        typer.echo(_MIDDLE)
    typer.echo(
        f"{facts['mechanism']} noise, epsilon={facts['epsilon']:.4g}, delta={facts['delta']:g}, {facts['neighbours']}"
    )
