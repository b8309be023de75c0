"""The ``.dp`` accessor of pandas DataFrames."""

from __future__ import annotations

from html import escape
from typing import Any, Unpack

import pandas as pd

from dpframe.errors import NotSanitizedError
from dpframe.estimate import Estimates
from dpframe.frames import release_text
from dpframe.inmemory import PlanOptions, make_plan, sanitize
from dpframe.plan import Plan
from dpframe.release import ReleaseInfo

__all__ = ["DpAccessor"]


@pd.api.extensions.register_dataframe_accessor("dp")
class DpAccessor:
    """Differential privacy for a DataFrame: ``df.dp.sanitize(epsilon=…)``, then ``safe.dp.mean("age")``.

    On a raw frame: `plan` and `sanitize`. On a release: estimates that take the noise into account, where
    plain pandas would be biased.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        # pandas does not cache accessors any more: no state but the frame.
        self._frame = frame

    def plan(self, epsilon: float, delta: float | None = None, **options: Unpack[PlanOptions]) -> Plan:
        """Plan how the frame would be sanitised; see `dpframe.make_plan`."""
        return make_plan(self._frame, epsilon, delta, **options)

    def sanitize(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        plan: Plan | None = None,
        key: bytes | None = None,
        **options: Unpack[PlanOptions],
    ) -> pd.DataFrame:
        """Randomise every row of the frame; see `dpframe.sanitize`."""
        out: pd.DataFrame = sanitize(self._frame, epsilon, delta, plan=plan, key=key, **options)
        return out

    @property
    def release(self) -> ReleaseInfo:
        """What the frame says about its own release: plan, rows, digest.

        Raises
        ------
        NotSanitizedError
            If the frame is no release.
        """
        text = release_text(self._frame)
        if text is None:
            raise NotSanitizedError("the frame carries no release plan; df.dp.sanitize(epsilon=…) makes a release")
        return ReleaseInfo.from_json(text)

    def value_counts(self, column: str, *args: Any, **options: Any) -> pd.DataFrame:
        """Estimate how many rows hold each value; see `Estimates.value_counts`."""
        return self.estimates().value_counts(column, *args, **options)

    def crosstab(self, index: str, columns: str, *args: Any, **options: Any) -> pd.DataFrame:
        """Estimate the joint counts of two columns; see `Estimates.crosstab`."""
        return self.estimates().crosstab(index, columns, *args, **options)

    def mean(self, column: str, by: str | None = None, **options: Any) -> pd.Series[Any] | pd.DataFrame:
        """Estimate the mean of a numeric column; see `Estimates.mean`."""
        return self.estimates().mean(column, by, **options)

    def estimates(self, *, confidence_level: float = 0.95) -> Estimates:
        """Return the estimator of this release, at another level if need be."""
        return Estimates(self._frame, confidence_level=confidence_level)

    def _lines(self) -> list[str]:
        try:
            info = self.release
        except NotSanitizedError:
            rows, columns = self._frame.shape
            return [
                f"<DataFrame.dp: not sanitized, {rows:,} rows, {columns} columns>",
                "df.dp.sanitize(epsilon=…) makes a release; df.dp.plan(epsilon=…) shows what it would do",
            ]
        plan = info.plan
        return [
            f"<DataFrame.dp: a release of {info.n:,} rows, {len(plan.columns)} randomised columns>",
            *plan.lines(),
            'Use .dp for numbers (.dp.value_counts("…"), .dp.mean("…")): plain pandas on noisy rows is biased',
        ]

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        first, *rest = self._lines()
        items = "".join(f"<li>{escape(line)}</li>" for line in rest)
        return f"<div><strong>{escape(first.strip('<>'))}</strong><ul>{items}</ul></div>"
