"""A release's report: what is promised, per column, and what is not."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from dpframe.release import ReleaseInfo

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """What a release promises, how each column was randomised, and how accurate that can be.

    Shown as a table in notebooks, as text elsewhere.
    """

    info: ReleaseInfo

    @property
    def _lines(self) -> list[str]:
        return [f"A release of {self.info.n:,} rows", *self.info.plan.lines()]

    def __str__(self) -> str:
        table = self.info.plan.summary().to_string(float_format=lambda x: f"{x:.4g}", max_colwidth=60)
        return "\n".join([*self._lines, "", table, "", _LEGEND])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(line)}</li>" for line in self._lines)
        table = self.info.plan.summary().to_html(float_format=lambda x: f"{x:.4g}", border=0)
        return f"<div><strong>dpframe report</strong><ul>{items}</ul>{table}<p>{escape(_LEGEND)}</p></div>"


_LEGEND = (
    "expected_error: the worst expected distance between a value and its release, in its unit; "
    "error_bound: the least that any mechanism could have at the same epsilon."
)
