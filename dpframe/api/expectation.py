"""What to expect of a release before anything is spent: from only the schema, the number of rows and ε."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
import pandas as pd
import pyarrow as pa

from dpframe.api.options import PlanOptions, documented
from dpframe.api.planning import CheckedRequest, Request, built
from dpframe.errors import ParameterError
from dpframe.infer.categories import is_text
from dpframe.infer.drafted import DraftedSpaces, drafted
from dpframe.infer.numbers import is_number
from dpframe.infer.types import any_space
from dpframe.io.frames import wrap
from dpframe.io.table import Table
from dpframe.plan.inferred import Inferred
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan
from dpframe.plan.words import digits
from dpframe.spaces import Categorical, Integer, Nullable, Space
from dpframe.spaces.field import Field
from dpframe.threads import one_thread

TWO_SIDED = 1.96
"""Standard errors of a 95 % interval."""

_HALF_LOST = {"intervals": 0.08, "values": 0.2, "items": 0.2}
"""Noise of inference, in parts of the rows, at which half of the columns are lost; of text its threshold.

Measured on a hundred real tables of 150 to 20,000 rows; the chance is 1/(1 + (half/noise)²).
"""
_FEW_LOST = 0.05
_GOOD = 0.05
"""An error of a count, in parts of the rows, or of a mean, in parts of its range, that is good enough for most."""


@dataclass(frozen=True)
class Expectation:
    """What a release of a table like this one will show.

    Parameters
    ----------
    rows, epsilon, delta
        The number of rows and the promise.
    table
        A row each for ``counts``, ``pairs`` (both ± rows), ``means`` (± parts of their range) and ``lost`` (columns
        whose spaces private inference will probably not find), with ``expected`` and what it is ``of``; half-widths
        of 95 % intervals, the median over columns.
    good_rows
        About how many rows it would take for counts and means within 5 %, and one column of twenty lost.

    It reads types, names and the number of rows, and is equal for two tables of one schema.
    """

    rows: int
    epsilon: float
    delta: float
    table: pd.DataFrame = field(compare=False)
    good_rows: int

    @property
    def lines(self) -> list[str]:
        """What to expect in plain words, the two lines that matter first."""
        value = {str(name): float(one) for name, one in self.table["expected"].items()}
        first = [
            f"counts within ± {digits(value['counts'])} of {self.rows:,} rows" if "counts" in value else "",
            f"means within ± {digits(100 * value['means'])} % of their range" if "means" in value else "",
        ]
        lost = f"about {value['lost']:.0f} of {self.table['of'].to_dict()['lost']}" if "lost" in value else "none"
        second = f"columns that inference will probably not find: {lost}"
        lines = [", ".join(text for text in first if text), second]
        if "pairs" in value:
            lines.append(f"counts of pairs within ± {digits(value['pairs'])} rows, before the model smooths them")
        if self.good_rows > self.rows:
            factor = self.good_rows / self.rows
            lines.append(
                f"good (5 %) from {self.good_rows:,} rows, or at epsilon={digits(self.epsilon * factor)} with these"
            )
        return [line for line in lines if line]

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
    """Return what to expect of a release, before anything is spent.

    Parameters
    ----------
    table
        A table as `dpframe.sanitize` takes it; of its values none is read.
    epsilon, delta
        The promise, as for `dpframe.make_plan`. With ``privacy_id`` each row is taken as a
        person's. Undeclared numbers are taken as having a thousand values, text as having five categories.
    {options}

    Raises
    ------
    ParameterError, ColumnError
        As `dpframe.make_plan`.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(400, columns=["age", "sex", "region"])
    >>> print(expect(frame, epsilon=1))  # doctest: +ELLIPSIS
    To expect of 400 rows at epsilon=1, delta=1e-06 (95 % intervals):
      counts within ± ... of 400 rows, means within ± ... % of their range
      columns that inference will probably not find: about ... of 3
    ...
    """
    return expected(wrap(table), epsilon, delta, options)


def expected(table: Table, epsilon: float | None, delta: float | None, options: PlanOptions) -> Expectation:
    """Return the same of any source."""
    if options.get("infer") == "data":
        raise ParameterError('expect reads no data; leave infer="data" out')
    if (person := options.get("privacy_id")) is not None and person in table.names:
        options = {**options, "drop": (*options.get("drop", ()), person)}  # it does not leave
    request = Request(epsilon, delta, None, options, release=False)
    valid = CheckedRequest.of(table, request, quiet=True)
    plan = _plan(table, valid)
    rows = table.n
    values = dict(_errors(plan, max(rows, 1)))
    lost, rows_for_found = _lost(valid, rows)
    ratio = max([values[name][0] / _GOOD for name in ("means",) if name in values] + [0.0])
    ratio = max(ratio, values["counts"][0] / max(rows, 1) / _GOOD if "counts" in values else 0.0)
    good = max(math.ceil(rows * ratio), rows_for_found)
    if valid.measurement is not None:
        values["lost"] = (lost, f"{len(valid.measurement.columns)}")
    found = pd.DataFrame.from_dict(values, orient="index", columns=["expected", "of"])
    found.index.name = "what"
    digits_kept = 10 ** max(len(str(good)) - 2, 0)
    good = -(-good // digits_kept) * digits_kept
    return Expectation(rows, valid.promise.epsilon, valid.promise.delta, found, good)


def _plan(table: Table, valid: CheckedRequest) -> Plan:
    """Return the plan, with typical spaces in place of those still to be inferred."""
    if valid.plan is not None:
        return valid.plan
    assert valid.allowed is not None
    names = [c.name for c in valid.measurement.columns] if valid.measurement is not None else []
    fields = {c.name: c for c in table.fields(list(valid.names))}
    spaces = {name: valid.spaces.get(name) or _typical(fields[name]) for name in valid.names}
    step = valid.allowed.step
    inferred = Inferred(valid.allowed.budget, tuple(names), step=step, unit=valid.unit)
    return built(spaces, valid.promise, valid.options, valid.wish.without(spaces), inferred)


def _typical(column: Field) -> Space:
    """Return a space like those that columns of a type often have."""
    space: Space
    if is_number(column.type):
        space = Integer(0, 999)
    elif is_text(column.type) or pa.types.is_null(column.type):
        space = Categorical(tuple("abcde"))
    else:
        return any_space(column)
    return Nullable(space) if column.nullable else space


def _errors(plan: Plan, rows: int) -> dict[str, tuple[float, str]]:
    """Return half-widths of 95 % intervals, by what they are of: the median over columns."""
    forecast = plan.forecast(rows) if plan.columns else pd.DataFrame({"std_error": []})
    found: dict[str, tuple[float, str]] = {}
    for name, statistic in (("counts", "marginal"), ("pairs", "joint")):
        if statistic in forecast.index.get_level_values(0):
            # Of numbers of many values no single cell is asked for.
            errors = np.asarray(forecast.loc[statistic, "std_error"], dtype=np.float64)
            errors = errors[errors < 1]
            if len(errors):
                found[name] = (float(np.median(errors)) * TWO_SIDED * rows, "rows")
    if "mean" in forecast.index.get_level_values(0):
        means: Any = forecast.loc["mean", "std_error"]
        parts = [float(error) / (float(plan[name].space.diameter) or 1.0) for name, error in means.items()]
        found["means"] = (float(np.median(parts)) * TWO_SIDED, "range")
    return found


def _lost(valid: CheckedRequest, rows: int) -> tuple[float, int]:
    """Return how many columns inference will probably lose, and from how many rows on one of twenty."""
    if valid.measurement is None:
        return 0.0, 0
    lost, needed = 0.0, 0.0
    for _, asked in valid.measurement.asked:
        one = max(asked, key=lambda h: (h.threshold, h.variance))
        noise, half = (one.threshold or math.sqrt(one.variance)), _HALF_LOST.get(one.kind, 0.08)
        lost += 1 / (1 + (half * rows / noise) ** 2) if rows else 1.0
        needed = max(needed, noise / half * math.sqrt(1 / _FEW_LOST - 1))
    return lost, math.ceil(needed)


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
