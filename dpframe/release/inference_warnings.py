"""Warnings of columns and nulls that private inference did not find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpframe.errors import ColumnRemark, InferenceWarning, list_below, table_below, warn, warn_of_columns
from dpframe.inference.findings import SPECIAL_DECLARATION, hinted_nulls, shares_made_null
from dpframe.plan.plan import Plan
from dpframe.plan.words import nearly_found
from dpframe.tables.csv_dialect import current_dialect

_TEXT_HINT = 'convert text that writes dates (pd.to_datetime), numbers, or several items (.str.findall("[^;]+"))'
"""Text of a CSV file is read as the values that it writes; a frame's text has a type of its own.

Whether cells look like lists is not looked up: the hint would be an answer about the data. It is for any text.
"""


_WORDS_HINT = f"declare numbers with words in some rows as {SPECIAL_DECLARATION}, or read them from a CSV file"
"""Said of any text, too; in a CSV file numbers are found among words."""

_COMMA_HINT = 'pandas.read_csv(…, decimal=",") reads numbers with decimal commas'
"""Said of any text of a CSV file that is read with decimal points."""

_PERSON_HINT = "pass text that names persons as privacy_id= if a person may have several rows"
"""Said of any text: that its values are many and repeat would be an answer about the data, too."""


def warn_of_nulls(plan: Plan, table_name: str | None = None) -> None:
    """Warn once, for all columns, of nulls that inference may have dropped, and of values that it made null."""
    missing_columns, inferred = {finding.column for finding in plan.not_found}, plan.inferred
    if inferred is None:
        return
    remarks = [
        ColumnRemark.to_declare(name, "nulls, too few to show, count as values if there are any", "Nullable(…)")
        for name in hinted_nulls(inferred, plan.spaces)
    ]
    for name, share in shares_made_null(inferred, plan.spaces, plan.inferred_rows or 0).items():
        declaration = "[CATEGORY, …]" if plan[name].space.is_listed else SPECIAL_DECLARATION
        fact = f"rare values are null, about {100 * share:.2g} % of the rows"
        remarks.append(ColumnRemark.to_declare(name, fact, declaration))
    warn_of_columns(
        f"{_start(table_name)}noisy counts hint at values that inferred spaces lack; declare the spaces in the next "
        "release",
        [remark for remark in remarks if remark.column not in missing_columns],
        InferenceWarning,
    )


def warn_not_found(
    plan: Plan, expected: Sequence[str] = (), written: bool = False, table_name: str | None = None
) -> None:
    """Warn once, for all columns, of spaces that private inference did not find, with declarations to write.

    ``expected``: lines on the expected errors of a release of so few rows. ``written``: whether the columns are text
    of a CSV file, of which inference reads numbers, days and words.
    """
    if not plan.not_found:
        return
    epsilons, remarks = nearly_found(plan), []
    for finding in plan.not_found:
        remark = ColumnRemark.to_declare(finding.column, finding.why, finding.placeholder)
        epsilon = epsilons.get(finding.column)
        remarks.append(replace(remark, remedy=remark.remedy + (f", or epsilon={epsilon:.2g}" if epsilon else "")))
    is_text = any(finding.placeholder == "[CATEGORY, …]" for finding in plan.not_found)
    hints = {
        _COMMA_HINT: written and current_dialect().decimal == ".",
        _TEXT_HINT: True,
        _WORDS_HINT: not written,
        _PERSON_HINT: not plan.privacy_id,
    }
    apt_hints = [hint for hint, is_apt in hints.items() if is_text and is_apt]
    warn(
        f"{_start(table_name)}private inference did not find the spaces of {len(plan.not_found)} of "
        f"{len(plan.columns)} columns, whose estimates are NaN; declare them in the next release:"
        f"{table_below(remarks)}{list_below([*apt_hints, *(f'expected: {line}' for line in expected)])}",
        InferenceWarning,
    )


def _start(table_name: str | None) -> str:
    """Return the start of a warning of one of several tables."""
    return "" if table_name is None else f"table {table_name!r}: "
