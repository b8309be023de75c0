"""Expected errors and losses of a release, from the schema, the number of rows and the promise."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.observe.quantiles import NORMAL_QUANTILE
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan
from dpframe.plan.setting import forecast_of
from dpframe.plan.words import digits

GOOD_ERROR_SHARE = 0.05
"""An error of a count, in parts of the rows, or of a mean, in parts of its range, that is good enough for most."""

_NAMES = {"marginal": "counts", "joint": "pairs", "mean": "means"}
"""Rows of the table of expected errors, by the forecast's statistic."""


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

    @classmethod
    def of(
        cls,
        plan: Plan | None,
        rows: int,
        promise: Budget,
        lost: tuple[float, int] | None = None,
        least_rows: int = 0,
        *,
        texts: bool = False,
        planned: bool = False,
        assumed: tuple[str, ...] = (),
    ) -> Self:
        """Return the expectation of a plan, or of the losses without a plan.

        ``lost``: how many columns inference will probably lose, of how many. ``least_rows``: the rows from which it
        loses hardly any.
        """
        errors = {} if plan is None else _median_errors(plan, max(rows, 1))
        table: dict[str, tuple[float, str]] = {
            name: (error, "range") if name == "means" else (error * max(rows, 1), "rows")
            for name, error in errors.items()
        }
        if lost is not None:
            table["lost"] = lost[0], str(lost[1])
        ratio = max(errors.get("counts", 0.0), errors.get("means", 0.0)) / GOOD_ERROR_SHARE
        good_rows = max(math.ceil(rows * ratio), least_rows)
        # Two digits, rounded up.
        unit = 10 ** max(len(str(good_rows)) - 2, 0)
        frame = pd.DataFrame.from_dict(table, orient="index", columns=["expected", "of"]).rename_axis("what")
        good_rows = -(-good_rows // unit) * unit
        return cls(rows, promise.epsilon, promise.delta, frame, good_rows, texts, planned, assumed)

    @property
    def first_lines(self) -> list[str]:
        """The two lines that matter most: how far off counts and means will be, and how many columns are lost."""
        value = self.table["expected"].to_dict()
        error_texts = [
            f"counts within ± {digits(value['counts'])} of {self.rows:,} rows" if "counts" in value else "",
            f"means within ± {digits(100 * value['means'])} % of their range" if "means" in value else "",
        ]
        lines = [", ".join(filter(None, error_texts))]
        # A finished plan loses no columns any more.
        if not self.planned:
            text_note = ", besides text of many different values" if self.texts else ""
            loss_text = f"about {value['lost']:.0f} of {self.table['of']['lost']}" if "lost" in value else "none"
            lines.append(f"columns that inference will probably not find: {loss_text}{text_note}")
        return [line for line in lines if line]

    @property
    def lines(self) -> list[str]:
        """The expectation in plain words, the two most important lines first."""
        value, lines = self.table["expected"].to_dict(), self.first_lines
        if "lost" in value and "means" in value:
            lines.append("means whose bounds inference finds have intervals several times wider: it may cut off a tail")
        if "pairs" in value:
            lines.append(f"counts of pairs within ± {digits(value['pairs'])} rows, before the model smooths them")
        if self.good_rows > self.rows:
            factor = self.good_rows / self.rows
            lines.append(
                f"good (5 %) from {self.good_rows:,} rows, or at epsilon={digits(self.epsilon * factor)} with these"
            )
        return [*lines, *self.assumed]

    def __str__(self) -> str:
        head = f"To expect of {self.rows:,} rows at epsilon={self.epsilon:g}, delta={self.delta:g} (95 % intervals):"
        return "\n".join([head, *(f"  {line}" for line in self.lines)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook_html(str(self).split("\n")[0], [("", self.lines)], self.table, digits)


def _median_errors(plan: Plan, rows: int) -> dict[str, float]:
    """Return half-widths of 95 % intervals, in parts of the rows or of a mean's range: the median over columns."""
    # Columns without found spaces have no errors to forecast.
    missing_columns = {finding.column for finding in plan.not_found}
    errors = defaultdict[str, list[float]](list)
    for (statistic, names), error in forecast_of(plan, rows).std_errors.items() if plan.columns else ():
        range_of_mean = float(plan[names[0]].space.diameter) or 1.0 if statistic == "mean" else 1.0
        # Of numbers of many values no single cell is asked for.
        says_nothing = statistic != "mean" and error >= 1
        if statistic in _NAMES and missing_columns.isdisjoint(names) and not says_nothing:
            errors[statistic].append(error / range_of_mean)
    return {
        name: float(np.median(errors[statistic])) * NORMAL_QUANTILE
        for statistic, name in _NAMES.items()
        if errors[statistic]
    }


def expected_of(plan: Plan) -> Expectation:
    """Return the expectation of a plan, from its spaces and its known number of rows."""
    rows = plan.n or 0
    lost = None if plan.inferred is None else (float(len(plan.not_found)), len(plan.inferred.columns))
    return Expectation.of(plan, rows, plan.release, lost, rows, planned=True)
