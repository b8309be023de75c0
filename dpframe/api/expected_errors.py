"""Errors and losses to expect of a plan, from the schema and the number of rows alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dpframe.infer.categories import is_text
from dpframe.infer.numbers import is_number
from dpframe.infer.types import any_space
from dpframe.plan.plan import Plan
from dpframe.plan.words import digits
from dpframe.spaces import Categorical, Integer, Nullable, Space
from dpframe.spaces.field import Field

TWO_SIDED = 1.96
"""Standard errors of a 95 % interval."""


def first_lines(value: Mapping[str, float], rows: int, of: str, texts: bool) -> list[str]:
    """Return the two lines that matter most: how far off counts and means will be, and how many columns are lost.

    Parameters
    ----------
    value
        Half-widths of 95 % intervals and the number of lost columns, by what they are of.
    of
        The number of columns whose spaces are inferred.
    texts
        Whether there is text among them: text of many values is never found, and how many it has is private.
    """
    first = [
        f"counts within ± {digits(value['counts'])} of {rows:,} rows" if "counts" in value else "",
        f"means within ± {digits(100 * value['means'])} % of their range" if "means" in value else "",
    ]
    more = ", besides text of many different values" if texts else ""
    lost = f"about {value['lost']:.0f} of {of}" if "lost" in value else "none"
    return [", ".join(text for text in first if text), f"columns that inference will probably not find: {lost}{more}"]


def typical_space(column: Field) -> Space:
    """Return a space like those that columns of a type often have."""
    space: Space
    if is_number(column.type):
        space = Integer(0, 999)
    elif is_text(column.type) or pa.types.is_null(column.type):
        space = Categorical(tuple("abcde"))
    else:
        return any_space(column)
    return Nullable(space) if column.nullable else space


def expected_errors(plan: Plan, rows: int) -> dict[str, tuple[float, str]]:
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
