"""Warnings of columns and nulls that private inference did not find."""

from __future__ import annotations

from collections.abc import Sequence

from dpframe.errors import InferenceWarning, name_list, warn
from dpframe.inference.findings import hinted_nulls, shares_made_null
from dpframe.plan.plan import Plan
from dpframe.plan.words import nearly_found_lines

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
