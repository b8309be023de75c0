"""Warnings of columns and nulls that private inference did not find."""

from __future__ import annotations

from collections.abc import Sequence

from dpframe.errors import InferenceWarning, list_below, name_list, warn
from dpframe.inference.findings import SPECIAL_DECLARATION, hinted_nulls, shares_made_null
from dpframe.plan.plan import Plan
from dpframe.plan.words import nearly_found_lines

_TEXT_HINT = 'convert text that writes dates (pd.to_datetime), numbers, or several items (.str.findall("[^;]+"))'
"""Text of a CSV file is read as the values that it writes; a frame's text has a type of its own.

Whether cells look like lists is not looked up: the hint would be an answer about the data. It is for any text.
"""


_WORDS_HINT = f"declare numbers with words in some rows as {SPECIAL_DECLARATION}, or read them from a CSV file"
"""Said of any text, too; in a CSV file numbers are found among words."""

_PERSON_HINT = "pass text that names persons as privacy_id= if a person may have several rows"
"""Said of any text: that its values are many and repeat would be an answer about the data, too."""


def warn_of_nulls(plan: Plan) -> None:
    """Warn, in one line each, of nulls that inference may have dropped, and of values that it made null."""
    missing_columns, inferred = {finding.column for finding in plan.not_found}, plan.inferred
    if inferred is None:
        return
    hinted_names = [name for name in hinted_nulls(inferred, plan.spaces) if name not in missing_columns]
    if hinted_names:
        warn(
            f"noisy counts hint at nulls in {name_list(hinted_names)}, too few to show; if there are any, they "
            f"count as values: declare spaces={{{hinted_names[0]!r}: Nullable(…)}} in the next release",
            InferenceWarning,
        )
    null_shares = {
        column: share
        for column, share in shares_made_null(inferred, plan.spaces, plan.inferred_rows or 0).items()
        if column not in missing_columns
    }
    if null_shares:
        name = max(null_shares, key=null_shares.__getitem__)
        placeholder = "[CATEGORY, …]" if plan[name].space.is_listed else SPECIAL_DECLARATION
        warn(
            f"rare values of {name_list(list(null_shares))} were not found and are null, up to "
            f"{100 * null_shares[name]:.2g} % of the rows; declare spaces={{{name!r}: {placeholder}}} in the next "
            "release",
            InferenceWarning,
        )


def warn_not_found(plan: Plan, expected: Sequence[str] = ()) -> None:
    """Warn once, for all columns, of spaces that private inference did not find, with declarations to write.

    ``expected``: lines on the expected errors of a release of so few rows.
    """
    if not plan.not_found:
        return
    reasons = dict.fromkeys(finding.why for finding in plan.not_found)
    grounds = [
        f"{', '.join(repr(finding.column) for finding in plan.not_found if finding.why == why)}: {why}"
        for why in reasons
    ]
    entries = ", ".join(f"{finding.column!r}: {finding.placeholder}" for finding in plan.not_found)
    is_text = any(finding.placeholder == "[CATEGORY, …]" for finding in plan.not_found)
    hints = [_TEXT_HINT, _WORDS_HINT] * is_text + [_PERSON_HINT] * (is_text and not plan.privacy_id)
    below = [*grounds, *nearly_found_lines(plan), *hints, *(f"expected: {line}" for line in expected)]
    warn(
        f"private inference did not find the spaces of {len(plan.not_found)} of {len(plan.columns)} columns, whose "
        f"estimates are NaN; declare spaces={{{entries}}} in the next release:{list_below(below)}",
        InferenceWarning,
    )
