"""Expected errors of a release before anything is spent: from only the schema, the number of rows and ε."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from dpframe.api.expected_errors import expected_errors, first_lines
from dpframe.api.options import PlanOptions, documented
from dpframe.api.planning import CheckedRequest, Request
from dpframe.errors import ParameterError, name_list
from dpframe.inference.drafted import DraftedSpaces, drafted
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan
from dpframe.plan.threads import one_thread
from dpframe.plan.words import digits
from dpframe.tables.frames import wrap
from dpframe.tables.inputs import open_input
from dpframe.tables.table import Table

GOOD = 0.05
"""An error of a count, in parts of the rows, or of a mean, in parts of its range, that is good enough for most."""


@dataclass(frozen=True)
class Expectation:
    """Expected errors and losses of a release of such a table.

    Parameters
    ----------
    rows, epsilon, delta
        The number of rows and the promise.
    table
        A row each for ``counts``, ``pairs`` (both ± rows), ``means`` (± parts of their range) and ``lost`` (columns
        whose spaces private inference will probably not find), with ``expected`` and its reference ``of``; half-widths
        of 95 % intervals, the median over columns.
    good_rows
        About how many rows it would take for counts and means within 5 %, and one column of twenty lost.
    texts
        Whether values of columns of text are to be found. They are taken as few; columns of many are not found.
    planned
        Whether it is of a plan with known spaces: its inference is done, and no forecast.
    assumed
        Assumptions about columns whose spaces are still to be inferred, and the columns that are left out.

    It reads types, names and the number of rows, and is equal for two tables of one schema.
    """

    rows: int
    epsilon: float
    delta: float
    table: pd.DataFrame = field(compare=False)
    good_rows: int
    texts: bool = False
    planned: bool = False
    assumed: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The expectation in plain words, the two most important lines first."""
        value = {str(name): float(number) for name, number in self.table["expected"].items()}
        lines = first_lines(value, self.rows, str(self.table["of"].to_dict().get("lost", "")), self.texts)
        # A finished plan loses no columns any more, which the second line forecasts.
        lines = lines[:1] if self.planned else lines
        if "lost" in value and "means" in value:
            lines.append("means whose bounds inference finds have intervals several times wider: it may cut off a tail")
        if "pairs" in value:
            lines.append(f"counts of pairs within ± {digits(value['pairs'])} rows, before the model smooths them")
        if self.good_rows > self.rows:
            factor = self.good_rows / self.rows
            lines.append(
                f"good (5 %) from {self.good_rows:,} rows, or at epsilon={digits(self.epsilon * factor)} with these"
            )
        return [line for line in (*lines, *self.assumed) if line]

    def __str__(self) -> str:
        head = f"To expect of {self.rows:,} rows at epsilon={self.epsilon:g}, delta={self.delta:g} (95 % intervals):"
        return "\n".join([head, *(f"  {line}" for line in self.lines)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook_html(str(self).split("\n")[0], [("", self.lines)], self.table, digits)


@documented
@one_thread
def expect(
    table: Any, epsilon: float | None = None, delta: float | None = None, **options: Unpack[PlanOptions]
) -> Expectation:
    """Return the expected errors and losses of a release, before anything is spent.

    Parameters
    ----------
    table
        A DataFrame, a pyarrow Table, or the path of a Parquet or CSV file; none of its values is read.
    epsilon, delta
        The promise, as for `dpframe.plan`. With ``privacy_id`` each row is taken as a
        person's. Undeclared numbers are taken as having a thousand values, text as having five categories.
    {options}

    Raises
    ------
    ParameterError, ColumnError
        As `dpframe.plan`.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(400, columns=["age", "sex", "region"])
    >>> print(expect(frame, epsilon=1))  # doctest: +ELLIPSIS
    To expect of 400 rows at epsilon=1, delta=1e-06 (95 % intervals):
      counts within ± ... of 400 rows, means within ± ... % of their range
      columns that inference will probably not find: about ... of 3, besides text of many different values
    ...
    """
    source: Table = open_input(table) if isinstance(table, str | Path) else wrap(table)
    return expected(source, epsilon, delta, options)


def expected(table: Table, epsilon: float | None, delta: float | None, options: PlanOptions) -> Expectation:
    """Return the expectation of any source."""
    if options.get("infer") == "data":
        raise ParameterError('expect reads no data; leave infer="data" out')
    if (person := options.get("privacy_id")) is not None and person in table.names:
        options = {**options, "drop": (*options.get("drop", ()), person)}  # it does not leave
    request = Request(epsilon, delta, None, options, release=False)
    checked_request = CheckedRequest.of(table, request, quiet=True)
    lost_columns, rows_without_losses = checked_request.losses(table.n)
    measurement = checked_request.measurement
    losses = {} if measurement is None else {"lost": (lost_columns, f"{len(measurement.columns)}")}
    assumptions = _describe_assumptions(checked_request, tuple(options.get("drop", ())))
    errors, good_rows = _forecast_errors(checked_request.typical(table), table.n, losses, rows_without_losses)
    return Expectation(
        table.n,
        checked_request.promise.epsilon,
        checked_request.promise.delta,
        errors,
        good_rows,
        texts=checked_request.finds_texts,
        assumed=assumptions,
    )


def expected_of(plan: Plan) -> Expectation:
    """Return the expectation of a plan, from its spaces and its known number of rows."""
    rows, inferred = plan.n or 0, plan.inferred
    losses = {} if inferred is None else {"lost": (float(len(plan.not_found)), f"{len(inferred.columns)}")}
    errors, good_rows = _forecast_errors(plan, rows, losses, rows)
    return Expectation(rows, plan.epsilon, plan.delta, errors, good_rows, planned=True)


def _forecast_errors(
    plan: Plan, rows: int, losses: Mapping[str, tuple[float, str]], least_rows: int
) -> tuple[pd.DataFrame, int]:
    """Return the table of expected errors, and the number of rows from which they are good; all forecasts use it."""
    values = dict(expected_errors(plan, max(rows, 1)))
    ratio = max([values[name][0] / GOOD for name in ("means",) if name in values] + [0.0])
    ratio = max(ratio, values["counts"][0] / max(rows, 1) / GOOD if "counts" in values else 0.0)
    good_rows = max(math.ceil(rows * ratio), least_rows)
    errors = pd.DataFrame.from_dict({**values, **losses}, orient="index", columns=["expected", "of"])
    errors.index.name = "what"
    digits_kept = 10 ** max(len(str(good_rows)) - 2, 0)
    return errors, -(-good_rows // digits_kept) * digits_kept


def _describe_assumptions(checked_request: CheckedRequest, requested_drops: Collection[str]) -> tuple[str, ...]:
    """Return the assumptions of the forecast, by which it may differ from a plan's own."""
    assumptions = []
    columns = () if checked_request.measurement is None else checked_request.measurement.columns
    if any(column.written for column in columns):
        assumptions.append(
            f"taken: each of the {len(columns)} columns to infer is text of five categories, as CSV has no types; "
            "declare spaces={…} of numbers for a nearer forecast"
        )
    elif columns:
        assumptions.append(
            f"taken: of the {len(columns)} columns to infer numbers have a thousand values, text five categories; "
            "the plan's own forecast is of the spaces that are found"
        )
    dropped_names = [name for name in checked_request.options.get("drop", ()) if name not in requested_drops]
    if dropped_names:
        assumptions.append(f"left out, as a release leaves them: {name_list(dropped_names)}")
    return tuple(assumptions)


def draft_spaces(table: Any) -> DraftedSpaces:
    """Draft spaces from the data, for the curator's eyes: code to check against the codebook, and then to pass on.

    It costs no budget as long as nobody but the curator sees it. A plan made from a draft that was not reviewed says so
    in its ``leaks``; see `DraftedSpaces.confirm`.

    Parameters
    ----------
    table
        A table as `dpframe.sanitize` takes it.

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [3, 97, 41], "sex": ["F", "M", "F"], "id": [1, 2, 3]})
    >>> print(draft_spaces(frame))  # doctest: +ELLIPSIS
    # FOR THE CURATOR ALONE: ...
    spaces = dpf.DraftedSpaces({
        "a": dpf.Integer(lower=0, upper=100, step=1),  # check: ...
        "sex": dpf.Categorical(categories=('F', 'M'), other='other'),  # check: all answers that the question allows
        # 'id' is left out: it looks like an identifier; privacy_id= takes one that names persons
    }, reviewed=False)
    """
    frame = wrap(table)
    return drafted(frame.fields(frame.names), frame.arrays)
