"""The one warning of columns whose spaces private inference did not find."""

from __future__ import annotations

from collections.abc import Sequence

from dpframe.errors import InferenceWarning, warn
from dpframe.plan.plan import Plan
from dpframe.plan.words import nearly_found_lines

_WRITTEN = 'convert text that writes dates (pd.to_datetime), numbers, or several items (.str.split(";")), '
"""Text of a CSV file is read as what it writes; that of a frame has a type of its own, which is text.

Whether cells look like lists is not looked up: the hint would be an answer about the data. It is for any text.
"""


def warn_not_found(plan: Plan, expected: Sequence[str] = ()) -> None:
    """Warn, in one line for all columns, of spaces that private inference did not find, with what to declare.

    Parameters
    ----------
    expected
        What is to be expected of a release of so few rows.
    """
    if not plan.not_found:
        return
    reasons = dict.fromkeys(missing.why for missing in plan.not_found)
    grounds = "; ".join(
        f"{', '.join(repr(missing.column) for missing in plan.not_found if missing.why == why)}: {why}"
        for why in reasons
    )
    entries = ", ".join(f"{missing.column!r}: {missing.placeholder}" for missing in plan.not_found)
    grounds = "; ".join([grounds, *nearly_found_lines(plan)])
    is_text = any(missing.placeholder == "[CATEGORY, …]" for missing in plan.not_found)
    warn(
        f"private inference did not find the spaces of {len(plan.not_found)} of {len(plan.columns)} columns, whose "
        f"estimates are NaN ({grounds}); declare spaces={{{entries}}}, {_WRITTEN if is_text else ''}or raise epsilon "
        f"or infer_share; df.dp.expect(epsilon=…) says what to expect{': ' * bool(expected)}{'; '.join(expected)}",
        InferenceWarning,
    )
