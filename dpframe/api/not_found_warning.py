"""The one warning of columns whose spaces private inference did not find."""

from __future__ import annotations

from collections.abc import Sequence

from dpframe.errors import InferenceWarning, warn
from dpframe.plan.plan import Plan


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
    grounds = "; ".join([grounds, *_soon(plan)])
    warn(
        f"private inference did not find the spaces of {len(plan.not_found)} of {len(plan.columns)} columns "
        f"({grounds}); estimates of them are NaN unless asked for with clipped=True: declare spaces={{{entries}}}, or "
        f"raise epsilon or infer_share ({'; '.join(['df.dp.expect(epsilon=…) says what to expect', *expected])})",
        InferenceWarning,
    )


def _soon(plan: Plan) -> list[str]:
    """Say which columns are about to be found, and with how much ε: those that another run may find as it is."""
    reused = plan.reused is not None  # their ε was another
    near = [missing for missing in plan.not_found if missing.times is not None and not reused]
    times = sorted({missing.times for missing in near if missing.times is not None})
    return [
        f"about to be found at epsilon={plan.epsilon * factor:.3g}: "
        f"{', '.join(repr(missing.column) for missing in near if missing.times == factor)}"
        for factor in times
    ]
