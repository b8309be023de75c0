"""The command ``dpframe query``: one noisy answer about a file, and no other information from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from dpframe.cli.estimate import suggest_by
from dpframe.cli.pipes import Source
from dpframe.cli.shared import (
    WHERE_RULE,
    AsJson,
    Dataset,
    LedgerFile,
    Part,
    argument,
    open_account,
    option,
    parse_where,
    to_conditions,
)
from dpframe.cli.spaces import SpaceOptions, add_space_options, read_spaces
from dpframe.cli.terminal import to_one_line
from dpframe.errors import ParameterError, did_you_mean
from dpframe.estimate.answer_options import to_rows
from dpframe.queries.queries import Queries


@dataclass(frozen=True)
class _Question:
    """A question of ``dpframe query``: the number of columns that it takes, its options, and its method."""

    columns: range
    options: frozenset[str]
    compute: Callable[[Queries, list[str], Mapping[str, Any]], Any]


def _one_column(options: str, compute: Callable[[Queries, list[str], Mapping[str, Any]], Any]) -> _Question:
    return _Question(range(1, 2), frozenset(options.split()), compute)


def _regress(queries: Queries, formula: str, options: Mapping[str, Any]) -> pd.DataFrame:
    if options["mechanism"] is not None:
        raise ParameterError("regress takes no --mechanism, as its noise is gaussian; leave it out")
    return queries.regress(formula, **{name: value for name, value in options.items() if name != "mechanism"})


QUESTIONS: Mapping[str, _Question] = {
    "count": _Question(range(1), frozenset({"where"}), lambda q, _, o: q.count(**o)),
    "sum": _one_column("by where", lambda q, c, o: q.sum(c[0], **o)),
    "mean": _one_column("by where", lambda q, c, o: q.mean(c[0], **o)),
    "histogram": _one_column("bins where", lambda q, c, o: q.histogram(c[0], **o)),
    "crosstab": _Question(range(2, 3), frozenset({"bins", "where"}), lambda q, c, o: to_rows(q.crosstab(*c, **o))),
    "most-common": _one_column("k where", lambda q, c, o: q.most_common(c[0], **o)),
    "nunique": _one_column("where", lambda q, c, o: q.nunique(c[0], **o)),
    "support": _one_column("where", lambda q, c, o: q.support(c[0], **o)),
    "set-sizes": _one_column("where", lambda q, c, o: q.set_sizes(c[0], **o)),
    "quantile": _one_column("q by where", lambda q, c, o: q.quantile(c[0], **o)),
    "second-moments": _Question(
        range(1, 99), frozenset({"where"}), lambda q, c, o: to_rows(q.second_moments(c, **o), "cov")
    ),
    "regress": _one_column("penalty family", lambda q, c, o: _regress(q, c[0], o)),
    "covariance": _Question(range(1, 99), frozenset({"where"}), lambda q, c, o: to_rows(q.covariance(c, **o), "cov")),
}


def query(
    source: Source,
    statistic: Annotated[str, argument(", ".join(QUESTIONS) + ".")],
    columns: Annotated[list[str] | None, argument("Its columns.")] = None,
    epsilon: Annotated[float | None, option("What the answer may cost: ε, per person.")] = None,
    delta: Annotated[float, typer.Option(help="And δ; 0 is pure, above 0 lets noise be gaussian.")] = 0.0,
    spaces: Annotated[Path | None, option("The columns' spaces, in a JSON or TOML file; see dpframe spaces.")] = None,
    space: SpaceOptions = None,
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
    penalty: Annotated[float | None, option("Ridge penalty of regress, whose column is a formula.")] = None,
    family: Annotated[str | None, option("Of regress: gaussian (the default) or binomial.")] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="geometric, laplace, staircase, staircase_squares, vector or gaussian; of second-moments wishart; of "
            "quantile and most-common exponential or noisy_max.  [default: the one that errs less]"
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
    question, names = _find_question(statistic, columns or []), columns or []
    if epsilon is None:
        raise ParameterError("give --epsilon, e.g. --epsilon 0.5")
    declared = add_space_options({} if spaces is None else read_spaces(spaces), space or [])
    listed_columns = [
        name for name, spec in declared.items() if isinstance(spec, list) or getattr(spec, "is_listed", False)
    ]
    arguments = {
        "where": None if where is None else to_conditions(parse_where(where), listed_columns),
        "by": by,
        "bins": bins,
        "q": q[0] if q and len(q) == 1 else q or None,
        "k": k,
        "penalty": penalty,
        "family": family,
    }
    # An option without effect would leave the user with the answer to another question.
    for name in sorted(set(arguments) - question.options):
        if arguments[name] is not None:
            raise ParameterError(f"{statistic} takes no --{name}; leave it out")
    options = {name: value for name, value in arguments.items() if value is not None}
    # The number of all rows is public among tables that differ in one replaced row: it needs no answer with noise.
    if statistic == "count" and "where" not in options and neighbours == "replace_one":
        raise ParameterError(WHERE_RULE)
    account = open_account(ledger, dataset, part)
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
    _print_answer(question.compute(queries, names, {**options, "share": 1, "mechanism": mechanism}), as_json)
    if account is not None and not as_json:
        remaining = account.ledger.remaining(account.dataset, account.part)
        typer.echo(f"Ledger: {to_one_line(account.dataset)} has {remaining} left")


def _find_question(statistic: str, columns: list[str]) -> _Question:
    # Users of Python write most_common.
    statistic = statistic.replace("_", "-")
    if statistic not in QUESTIONS:
        raise ParameterError(f"{did_you_mean(statistic, QUESTIONS)}statistic must be one of {', '.join(QUESTIONS)}")
    question = QUESTIONS[statistic]
    if len(columns) not in question.columns:
        fewest, more = question.columns[0], " or more" if len(question.columns) > 1 else ""
        needed = f"{fewest} column{'s' * (fewest > 1)}{more}" if fewest else "--where and no columns"
        by_hint = suggest_by(statistic, columns) if "by" in question.options else ""
        raise ParameterError(f"{statistic} takes {needed}; got {len(columns)}{by_hint}")
    return question


_BOUNDS_NOTE = (
    "values beyond the bounds count as the bounds, and no interval holds what that moves; dpframe check counts them, "
    "for the curator only"
)
_NULLS_NOTE = (
    "a null, and text that is no number, counts as the middle of the bounds; to leave it out declare "
    '{"space": "nullable", "inner": …}'
)


def _print_answer(result: Any, as_json: bool) -> None:
    """Print an answer, its mechanism and its cost."""
    table = result.to_frame().T if isinstance(result, pd.Series) else result
    facts = result.attrs
    if as_json:
        rows = table.reset_index()
        interval_columns = [name for name, dtype in rows.dtypes.items() if isinstance(dtype, pd.IntervalDtype)]
        answer = rows.astype(dict.fromkeys(interval_columns, str)).to_json(
            orient="records", date_format="iso", force_ascii=False
        )
        typer.echo(json.dumps({**facts, "answer": json.loads(answer)}, ensure_ascii=False))
        return
    typer.echo(table.to_string(float_format=lambda x: f"{x:,.4g}" if abs(x) < 100 else f"{x:,.0f}"))
    if "outside" in facts:
        typer.echo(_BOUNDS_NOTE)
    if "nulls" in facts:
        typer.echo(_NULLS_NOTE)
    typer.echo(
        f"{facts['mechanism']} noise, epsilon={facts['epsilon']:.4g}, delta={facts['delta']:g}, {facts['neighbours']}"
    )
