"""A release's report: what is promised, per column, and what is not."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from dpframe.release import ReleaseInfo

if TYPE_CHECKING:
    import pandas as pd

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

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row per randomised column, or group of columns.

        Beside ``expected_error`` stand both lower bounds, ``error_bound_6`` and ``error_bound_7``, in ``unit``.
        """
        plan = self.info.plan
        table, bounds = plan.summary(), [unit.error_bounds for unit in plan.units]
        place = list(table.columns).index("error_bound")
        table = table.drop(columns="error_bound")
        for shift, theorem in enumerate((6, 7)):
            table.insert(place + shift, f"error_bound_{theorem}", [found[shift] for found in bounds])
        return table

    def __str__(self) -> str:
        table = self.to_frame().to_string(float_format=_digits, max_colwidth=60)
        return "\n".join([*self._lines, "", table, "", *_LEGEND])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(line)}</li>" for line in self._lines)
        table = self.to_frame().to_html(float_format=_digits, border=0)
        legend = "<br>".join(map(escape, _LEGEND))
        return f"<div><strong>dpframe report</strong><ul>{items}</ul>{table}<p>{legend}</p></div>"


def _digits(x: float) -> str:
    return f"{x:.4g}"


_LEGEND = (
    "expected_error: the worst expected distance between a value and its release, in its unit.",
    "error_bound_6, error_bound_7: what no mechanism at the same epsilon and delta can be below, by Theorem 6, "
    "(1−δ)·diam/(2(1+e^ε)), and for m+1 values at least κ apart by Theorem 7, (1−δ)·κm/(m+e^ε) "
    "(Holohan, Leith and Mason, differential privacy in metric spaces).",
    "Estimates from many rows are far more precise than one value: see forecast.",
)
