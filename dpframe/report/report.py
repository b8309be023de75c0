"""A release's report: its promise, its columns, and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpframe.disk import WEB_PAGE, check_ending, write_text
from dpframe.estimate import Estimates
from dpframe.plan.certificate import Certificate
from dpframe.plan.notebook import notebook_html
from dpframe.proofs.verify import verify
from dpframe.release.info import ReleaseInfo
from dpframe.release.reader import Source
from dpframe.report.elements import mechanism_name
from dpframe.report.page import page

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Report:
    """Report on a release's promise, its columns' mechanisms and their accuracy.

    Shown as a table in notebooks, as text elsewhere; `save` writes a page of its own for the people who decide whether
    the release may go out.

    Parameters
    ----------
    info
        The release's description.
    table
        The released table, or its Parquet path, so that the page shows estimates from it, and the certificate
        compares its rows with those released. Without it the page shows the plan's forecasts.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(1_000, columns=["sex"], random_state=1)
    >>> safe = dpf.sanitize(frame, epsilon=1, spaces={"sex": ["F", "M"]})
    >>> page = safe.dp.report()
    >>> page.to_frame()[["mechanism", "epsilon"]].round(2)
                      mechanism  epsilon
    column
    sex     randomized_response     1.62
    """

    info: ReleaseInfo
    table: Any = field(default=None, compare=False, repr=False)

    @property
    def _lines(self) -> list[str]:
        together = [] if self.info.together is None else [self.info.together.line]
        return [f"A release of {self.info.title}", *together, *self.info.plan.lines()]

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row per randomised column, or group of columns.

        The pair lower bounds are ``error_bound_6`` and ``error_bound_7``, in ``unit`` as ``expected_error``.
        """
        plan = self.info.plan
        table, bounds = plan.summary(), [unit.error_bounds for unit in plan.units]
        place = list(table.columns).index("error_bound")
        table = table.drop(columns="error_bound")
        for shift, theorem in enumerate((6, 7)):
            table.insert(place + shift, f"error_bound_{theorem}", [pair[shift] for pair in bounds])
        return table

    @property
    def _printed_table(self) -> pd.DataFrame:
        """The table as it is printed, with mechanisms under the names that readers know."""
        return self.to_frame().assign(mechanism=lambda table: table["mechanism"].map(mechanism_name))

    @cached_property
    def certificate(self) -> Certificate:
        """The proofs of the plan and, if the table is given, whether its rows are the released ones."""
        if isinstance(self.table, str | Path):
            return verify(self.table)
        proofs = self.info.plan.verify()
        if self.table is None:
            return proofs
        if Source(self.table, None, quiet=True).verify():
            return replace(
                proofs, checks=(*proofs.checks, f"the table holds the {self.info.n:,} rows that were released")
            )
        return replace(proofs, failures=(*proofs.failures, "the rows are not those that were released under this plan"))

    def to_html(self) -> str:
        """Return the report as one self-contained HTML page, a function of the release alone.

        It needs no network and runs no script. Estimates are shown only of rows that are those released.
        """
        estimates = None
        # Estimates from other rows than the released ones would be wrong.
        if self.table is not None and self.certificate.ok:
            estimates = Estimates(self.table)
        return page(self.info, self.certificate, estimates)

    def save(self, path: str | Path) -> None:
        """Write `to_html` to an .html file, whole or not at all; `FileError` if it cannot be written."""
        check_ending(path, *WEB_PAGE)
        write_text(path, self.to_html())

    def __str__(self) -> str:
        table = self._printed_table.to_string(float_format=_format_number, max_colwidth=60)
        return "\n".join([*self._lines, "", table, "", *_LEGEND_LINES])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook_html("dpframe report", [("", self._lines)], self._printed_table, _format_number, _LEGEND_LINES)


def _format_number(x: float) -> str:
    return f"{x:,.0f}" if 10_000 <= abs(x) < 1e15 else f"{x:.4g}"


_LEGEND_LINES = (
    "expected_error: the worst expected distance between a value and its release, in its unit.",
    "error_bound_6, error_bound_7: what no mechanism at the same epsilon and delta can be below, by Theorem 6, "
    "(1−δ)·diam/(2(1+e^ε)), and for m+1 values at least κ apart by Theorem 7, (1−δ)·κm/(m+e^ε) "
    "(Holohan, Leith and Mason, differential privacy in metric spaces).",
    "Estimates from many rows are far more precise than one value: see plan.forecast().",
)
