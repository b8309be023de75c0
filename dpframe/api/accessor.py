"""The ``.dp`` accessor of pandas DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import pandas as pd
import pyarrow as pa

from dpframe.api.memory import make_plan, sanitize
from dpframe.api.options import PlanOptions
from dpframe.errors import NotSanitizedError, ParameterError
from dpframe.estimate import Estimates
from dpframe.io.frames import release_text
from dpframe.io.released import Source, read_info
from dpframe.plan.notebook import notebook_html
from dpframe.plan.plan import Plan
from dpframe.release.info import METADATA_KEY, ReleaseInfo, arrow_metadata
from dpframe.report.report import Report


def attach(table: Any, plan: Plan | ReleaseInfo) -> Any:
    """Give a released table its plan back, where a format or an operation lost it.

    Parameters
    ----------
    table
        A pandas DataFrame or a pyarrow Table. (polars keeps no metadata: pass ``plan=`` to `Estimates`.)
    plan
        What the release said about itself (`ReleaseInfo`), or the plan alone: then the table is taken as it
        is, and nothing can tell whether it was altered since.

    Returns
    -------
    A copy that shares the data.

    Raises
    ------
    ParameterError
        If the table can carry no plan, or the plan is none.
    NotSanitizedError
        If the table has none of the plan's columns.
    """
    if not isinstance(plan, Plan | ReleaseInfo):
        raise ParameterError("plan must be a Plan or a ReleaseInfo; Plan.read(path) reads one from a file")
    source = Source(table, plan.plan if isinstance(plan, ReleaseInfo) else plan, quiet=True)
    info = plan if isinstance(plan, ReleaseInfo) else ReleaseInfo(plan, source.n, source.digest())
    if isinstance(table, pd.DataFrame):
        copy = table.copy(deep=False)
        copy.attrs = {METADATA_KEY: info.to_json()}
        return copy
    if isinstance(table, pa.Table):
        return table.replace_schema_metadata(arrow_metadata(info.to_json()))
    kind = f"{type(table).__module__.split('.')[0]} {type(table).__name__}"
    raise ParameterError(f"a {kind} keeps no metadata; pass plan= to Estimates instead")


@pd.api.extensions.register_dataframe_accessor("dp")
class DpAccessor:
    """Differential privacy for a DataFrame: ``df.dp.sanitize(epsilon=…)``, then ``safe.dp.mean("age")``.

    On a raw frame: `plan` and `sanitize`. On a release: estimates that take the noise into account, where
    plain pandas would be biased. All of them take ``clipped=True``, for estimates of columns whose spaces private
    inference did not find: else they are NaN, see `Estimates`.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        # pandas does not cache accessors any more: no state but the frame.
        self._frame = frame

    def plan(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        ledger: Any = None,
        dataset: str | None = None,
        **options: Unpack[PlanOptions],
    ) -> Plan:
        """Plan how the frame would be sanitised; see `dpframe.make_plan`."""
        return make_plan(self._frame, epsilon, delta, ledger=ledger, dataset=dataset, **options)

    def sanitize(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        plan: Plan | None = None,
        key: bytes | None = None,
        ledger: Any = None,
        dataset: str | None = None,
        **options: Unpack[PlanOptions],
    ) -> pd.DataFrame:
        """Randomise every row of the frame; see `dpframe.sanitize`."""
        account: Any = {"ledger": ledger, "dataset": dataset}
        out: pd.DataFrame = sanitize(self._frame, epsilon, delta, plan=plan, key=key, **account, **options)
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
        return read_info(text)

    def value_counts(self, column: str, *args: Any, **options: Any) -> pd.DataFrame:
        """Estimate how many rows hold each value; see `Estimates.value_counts`."""
        return self._asked(options).value_counts(column, *args, **options)

    def crosstab(self, index: str, columns: str, *args: Any, **options: Any) -> pd.DataFrame:
        """Estimate the joint counts of two columns; see `Estimates.crosstab`."""
        return self._asked(options).crosstab(index, columns, *args, **options)

    def joint(self, columns: Sequence[str], **options: Any) -> pd.DataFrame:
        """Estimate the joint of any number of columns; see `Estimates.joint`."""
        return self._asked(options).joint(columns, **options)

    def mean(self, column: str, by: str | None = None, **options: Any) -> pd.Series[Any] | pd.DataFrame:
        """Estimate the mean of a numeric column; see `Estimates.mean`."""
        return self._asked(options).mean(column, by, **options)

    def sum(self, column: str, **options: Any) -> pd.Series[Any]:
        """Estimate the sum of a numeric column; see `Estimates.sum`."""
        return self._asked(options).sum(column, **options)

    def var(self, column: str, ddof: int = 1, **options: Any) -> pd.Series[Any]:
        """Estimate the variance of a numeric column; see `Estimates.var`."""
        return self._asked(options).var(column, ddof, **options)

    def std(self, column: str, ddof: int = 1, **options: Any) -> pd.Series[Any]:
        """Estimate the standard deviation of a numeric column; see `Estimates.std`."""
        return self._asked(options).std(column, ddof, **options)

    def cov(self, columns: Sequence[str] | None = None, ddof: int = 1, **options: Any) -> pd.DataFrame:
        """Estimate the covariances of numeric columns; see `Estimates.cov`."""
        return self._asked(options).cov(columns, ddof, **options)

    def corr(self, columns: Sequence[str] | None = None, **options: Any) -> pd.DataFrame:
        """Estimate the correlations of numeric columns; see `Estimates.corr`."""
        return self._asked(options).corr(columns, **options)

    def support(self, column: str, items: Sequence[Any] | None = None, **options: Any) -> pd.DataFrame:
        """Estimate the share of rows whose set holds each item, or of each value; see `Estimates.support`."""
        return self._asked(options).support(column, items, **options)

    def cooccurrence(self, column: str, items: Sequence[Any] | None = None, **options: Any) -> pd.DataFrame:
        """Estimate how many rows hold both items of every pair; see `Estimates.cooccurrence`."""
        return self._asked(options).cooccurrence(column, items, **options)

    def set_sizes(self, column: str, **options: Any) -> pd.DataFrame:
        """Estimate how many rows hold sets of each size; see `Estimates.set_sizes`."""
        return self._asked(options).set_sizes(column, **options)

    def null_rate(self, column: str, **options: Any) -> pd.Series[Any]:
        """Estimate the share of nulls of a column; see `Estimates.null_rate`."""
        return self._asked(options).null_rate(column, **options)

    def histogram(self, column: str, bins: Any = 10, **options: Any) -> pd.DataFrame:
        """Estimate the distribution of a numeric column in bins; see `Estimates.histogram`."""
        return self._asked(options).histogram(column, bins, **options)

    def quantile(self, column: str, q: Any = 0.5, **options: Any) -> pd.Series[Any] | pd.DataFrame:
        """Estimate quantiles of a numeric column; see `Estimates.quantile`."""
        return self._asked(options).quantile(column, q, **options)

    def plot(self, *columns: str, **options: Any) -> Any:
        """Draw estimates with their intervals; see `Estimates.plot`."""
        return self._asked(options).plot(*columns, **options)

    def verify(self) -> bool:
        """Tell whether the frame is, cell by cell, what was released; see `Estimates.verify`."""
        return Source(self._frame, None, quiet=True).verify()

    def report(self) -> Report:
        """Return what the release promises and how accurate it can be."""
        return Report(self.release, self._frame)

    def estimates(self, *, confidence_level: float = 0.95, clipped: bool = False) -> Estimates:
        """Return the estimator of this release, at another level or of clipped columns, if need be."""
        return Estimates(self._frame, confidence_level=confidence_level, clipped=clipped)

    def _asked(self, options: dict[str, Any]) -> Estimates:
        """Return the estimator that a method's options ask for, and take ``clipped`` from them."""
        return self.estimates(clipped=options.pop("clipped", False))

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
        return notebook_html(first.strip("<>"), [("", rest)])
