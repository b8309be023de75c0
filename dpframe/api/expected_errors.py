"""Expected errors and losses of a plan, from the schema and the number of rows; and warnings of actual losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dpframe.errors import InferenceWarning, name_list, warn
from dpframe.inference.categories import is_text
from dpframe.inference.findings import hinted_nulls, shares_made_null
from dpframe.inference.from_data import any_space
from dpframe.inference.grids import is_number
from dpframe.observe.quantiles import NORMAL_QUANTILE
from dpframe.plan.plan import Plan
from dpframe.plan.words import digits, nearly_found_lines
from dpframe.spaces import Categorical, Integer, Nullable, Space
from dpframe.spaces.field import Field


def first_lines(value: Mapping[str, float], rows: int, of: str, texts: bool) -> list[str]:
    """Return the two lines that matter most: how far off counts and means will be, and how many columns are lost.

    ``value``: half-widths of 95 % intervals and the number of lost columns, by statistic. ``of``: the number of
    columns whose spaces are inferred. ``texts``: whether there is text among them: text of many values is never found,
    and how many it has is private.
    """
    error_texts = [
        f"counts within ± {digits(value['counts'])} of {rows:,} rows" if "counts" in value else "",
        f"means within ± {digits(100 * value['means'])} % of their range" if "means" in value else "",
    ]
    text_note = ", besides text of many different values" if texts else ""
    loss_text = f"about {value['lost']:.0f} of {of}" if "lost" in value else "none"
    return [
        ", ".join(text for text in error_texts if text),
        f"columns that inference will probably not find: {loss_text}{text_note}",
    ]


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
    """Return half-widths of 95 % intervals, by statistic: the median over columns whose spaces are known."""
    forecast = plan.forecast(rows) if plan.columns else pd.DataFrame({"std_error": []})
    missing_columns = {finding.column for finding in plan.not_found}
    # Columns without found spaces have no errors to forecast.
    if missing_columns:
        forecast = forecast[[missing_columns.isdisjoint(label.split(" × ")) for _, label in forecast.index]]
    half_widths: dict[str, tuple[float, str]] = {}
    for name, statistic in (("counts", "marginal"), ("pairs", "joint")):
        if statistic in forecast.index.get_level_values(0):
            # Of numbers of many values no single cell is asked for.
            errors = np.asarray(forecast.loc[statistic, "std_error"], dtype=np.float64)
            errors = errors[errors < 1]
            if len(errors):
                half_widths[name] = (float(np.median(errors)) * NORMAL_QUANTILE * rows, "rows")
    if "mean" in forecast.index.get_level_values(0):
        means: Any = forecast.loc["mean", "std_error"]
        parts = [float(error) / (float(plan[name].space.diameter) or 1.0) for name, error in means.items()]
        half_widths["means"] = (float(np.median(parts)) * NORMAL_QUANTILE, "range")
    return half_widths


_TEXT_HINT = 'convert text that writes dates (pd.to_datetime), numbers, or several items (.str.findall("[^;]+")), '
"""Text of a CSV file is read as the values that it writes; a frame's text has a type of its own.

Whether cells look like lists is not looked up: the hint would be an answer about the data. It is for any text.
"""


_PERSON_HINT = "; one that names persons is to be passed as privacy_id= if they may have several rows"
"""Said of any text: that its values are many and repeat would be an answer about the data, too."""


def warn_of_nulls(plan: Plan) -> None:
    """Warn, in one line each, of nulls that inference may have dropped, and of values that it made null."""
    missing_columns, inferred = {finding.column for finding in plan.not_found}, plan.inferred
    if inferred is None:
        return
    hinted_names = [name for name in hinted_nulls(inferred, plan.spaces) if name not in missing_columns]
    if hinted_names:
        warn(
            f"noisy counts hint at nulls in {name_list(hinted_names)}, too few to show; if there are any, they count "
            "as "
            f"values: declare spaces={{{hinted_names[0]!r}: Nullable(…)}} in a new release",
            InferenceWarning,
        )
    null_shares = {
        column: share
        for column, share in shares_made_null(inferred, plan.spaces, plan.inferred_rows or 0).items()
        if column not in missing_columns
    }
    if null_shares:
        name = max(null_shares, key=null_shares.__getitem__)
        warn(
            f"rare values of {name_list(list(null_shares))} were not found and are null (up to "
            f"{100 * null_shares[name]:.2g} % of "
            f"the rows); declare spaces={{{name!r}: [CATEGORY, …]}} in a new release",
            InferenceWarning,
        )


def warn_not_found(plan: Plan, expected: Sequence[str] = ()) -> None:
    """Warn, in one line for all columns, of spaces that private inference did not find, with declarations to write.

    ``expected``: lines on the expected errors of a release of so few rows.
    """
    if not plan.not_found:
        return
    reasons = dict.fromkeys(finding.why for finding in plan.not_found)
    grounds = "; ".join(
        f"{', '.join(repr(finding.column) for finding in plan.not_found if finding.why == why)}: {why}"
        for why in reasons
    )
    entries = ", ".join(f"{finding.column!r}: {finding.placeholder}" for finding in plan.not_found)
    grounds = "; ".join([grounds, *nearly_found_lines(plan)])
    is_text = any(finding.placeholder == "[CATEGORY, …]" for finding in plan.not_found)
    person_hint = "" if plan.privacy_id or not is_text else _PERSON_HINT
    warn(
        f"private inference did not find the spaces of {len(plan.not_found)} of {len(plan.columns)} columns, whose "
        f"estimates are NaN ({grounds}); declare spaces={{{entries}}}, {_TEXT_HINT if is_text else ''}or raise epsilon "
        f"or infer_share{person_hint}; df.dp.expect(epsilon=…) says what to expect{': ' * bool(expected)}"
        f"{'; '.join(expected)}",
        InferenceWarning,
    )
