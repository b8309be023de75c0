"""Errors and losses to expect of a plan, from the schema and the number of rows alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dpframe.infer.categories import is_text
from dpframe.infer.numbers import is_number
from dpframe.infer.types import any_space
from dpframe.plan.asked import AskedOf
from dpframe.plan.plan import Plan
from dpframe.plan.words import digits
from dpframe.spaces import Categorical, Integer, Nullable, Space
from dpframe.spaces.field import Field

TWO_SIDED = 1.96
"""Standard errors of a 95 % interval."""

_HALF_LOST = {"intervals": 0.08, "values": 0.2, "items": 0.2}
"""Noise of inference, in parts of the rows, at which half of the columns are lost; of text its threshold.

Measured on a hundred real tables of 150 to 20,000 rows; the chance is 1/(1 + (half/noise)²).
"""
_FEW_LOST = 0.05


def first_lines(value: Mapping[str, float], rows: int, of: str) -> list[str]:
    """Return the two lines that matter most: how far off counts and means will be, and how many columns are lost.

    Parameters
    ----------
    value
        Half-widths of 95 % intervals and the number of lost columns, by what they are of.
    of
        The number of columns whose spaces are inferred.
    """
    first = [
        f"counts within ± {digits(value['counts'])} of {rows:,} rows" if "counts" in value else "",
        f"means within ± {digits(100 * value['means'])} % of their range" if "means" in value else "",
    ]
    lost = f"about {value['lost']:.0f} of {of}" if "lost" in value else "none"
    return [", ".join(text for text in first if text), f"columns that inference will probably not find: {lost}"]


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


def expected_losses(asked_of: AskedOf, rows: int) -> tuple[float, int]:
    """Return how many columns inference will probably lose, and from how many rows on one of twenty."""
    lost, needed = 0.0, 0.0
    for _, asked in asked_of:
        one = max(asked, key=lambda h: (h.threshold, h.variance))
        noise, half = (one.threshold or math.sqrt(one.variance)), _HALF_LOST.get(one.kind, 0.08)
        lost += 1 / (1 + (half * rows / noise) ** 2) if rows else 1.0
        needed = max(needed, noise / half * math.sqrt(1 / _FEW_LOST - 1))
    return lost, math.ceil(needed)
