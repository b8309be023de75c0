"""The ``.dp`` accessor of pandas DataFrames."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Unpack

from dpframe.api.curator_check import CuratorCheck, check
from dpframe.api.expectation import draft_spaces, expect
from dpframe.api.verbs import EXAMPLES, FrameVerbs
from dpframe.errors import NotSanitizedError, did_you_mean, refusing_misfit_calls
from dpframe.estimate import Estimates
from dpframe.inference.drafted import DraftedSpaces
from dpframe.plan.certificate import Certificate
from dpframe.plan.options import PlanOptions, documented
from dpframe.plan.plan import Plan
from dpframe.proofs.verify import verify
from dpframe.release.expected_errors import Expectation
from dpframe.release.info import ReleaseExplanation, ReleaseInfo
from dpframe.release.reader import read_info
from dpframe.report.overview import Overview, release_overview
from dpframe.report.record import Record, record_of
from dpframe.report.report import Report
from dpframe.tables.frames import release_text

_EXTREMES = "the least and the largest value are single rows'; the plan's spaces have public bounds, see quantile"
_ANY_FUNCTION = "infer(f) gives any function of the table an interval, e.g. infer(lambda table: table.age.skew())"
_SOME_ROWS = 'where= restricts a statistic to some rows, e.g. mean("age", where={"sex": "F"})'
_INSTEAD = {
    "agg": _ANY_FUNCTION,
    "apply": _ANY_FUNCTION,
    "loc": _SOME_ROWS,
    "query": _SOME_ROWS,
    "max": _EXTREMES,
    "min": _EXTREMES,
    "forecast": "release.plan.forecast() has the standard errors to expect; before a release, expect(epsilon=1)",
    "groupby": 'mean, sum, std, var, median and quantile take by=, e.g. mean("visits", by="ward"); joint takes given=',
    "mode": 'top("column", 1) gives the most frequent value',
    "size": "count takes conditions on columns",
}
"""Advice by method of pandas that a release does not have."""

_EXAMPLES = {
    **EXAMPLES,
    "check": 'check(spaces={"age": (0, 120)})',
    "draft": "draft()",
    "estimates": "estimates(confidence_level=0.9)",
    "expect": "expect(epsilon=1)",
    "explain": "explain()",
    "record": 'record(curators=["Statistics Office"])',
    "report": 'report().save("report.html")',
    "verify": "verify()",
}
"""Examples of correct calls, which errors of misfit calls quote."""


@refusing_misfit_calls(_EXAMPLES)
class DpAccessor(FrameVerbs):
    """Differential privacy for a DataFrame: ``df.dp.sanitize(epsilon=…)``, then ``safe.dp.mean("age")``.

    On a raw frame: `plan` and `sanitize`. On a release: all methods of `Estimates`, which take the noise into account,
    and plain pandas would be biased. Each takes ``clipped=True``, for estimates of columns whose spaces private
    inference did not find: else they are NaN, see `Estimates`.
    """

    @documented
    def expect(
        self, epsilon: float | None = None, delta: float | None = None, **options: Unpack[PlanOptions]
    ) -> Expectation:
        """Forecast the errors of a release, from the schema and the number of rows; see `dpframe.expect`.

        Parameters
        ----------
        epsilon, delta
            See `dpframe.expect`.
        {options}
        """
        return expect(self._frame, epsilon, delta, **options)

    def draft(self) -> DraftedSpaces:
        """Draft spaces from the data, for the curator's eyes; see `dpframe.draft_spaces`."""
        return draft_spaces(self._frame)

    def check(
        self,
        plan: Plan | None = None,
        *,
        spaces: Mapping[str, Any] | None = None,
        drop: Sequence[str] = (),
        privacy_id: str | None = None,
    ) -> CuratorCheck:
        """Count the values that a plan, or only declared spaces, clamp and cut in the frame; for its curator alone.

        See `dpframe.api.curator_check.check`.
        """
        return check(self._frame, plan, spaces=spaces, drop=drop, privacy_id=privacy_id)

    @property
    def release(self) -> ReleaseInfo:
        """The frame's description of its own release: plan, rows, digest.

        Raises
        ------
        NotSanitizedError
            If the frame is no release.
        """
        text = release_text(self._frame)
        if text is None:
            raise NotSanitizedError("the frame carries no release plan; df.dp.sanitize(epsilon=…) makes a release")
        return read_info(text)

    def verify(self) -> Certificate:
        """Prove the release's promise, and compare the frame cell by cell with the released one; see `dpframe.verify`.

        Returns
        -------
        A certificate, which is true if every claim holds; ``failures`` names those that do not.

        Raises
        ------
        NotSanitizedError
            If the frame is no release.

        Examples
        --------
        >>> import pandas as pd, dpframe as dpf
        >>> frame = pd.DataFrame({"sex": ["F", "M"] * 100})
        >>> safe = frame.dp.sanitize(epsilon=1, spaces={"sex": ["F", "M"]})
        >>> bool(safe.dp.verify()), bool(safe.head().dp.verify())
        (True, False)
        """
        return verify(self._frame)

    def explain(self) -> ReleaseExplanation:
        """Return the promise's meaning for one person, and the parts that keep it: order, tables, and their costs.

        Raises
        ------
        NotSanitizedError
            If the frame is no release.
        """
        return self.release.explain()

    def report(self) -> Report:
        """Return a report on the release's promise and accuracy."""
        return Report(self.release, self._frame)

    def record(
        self,
        *,
        name: str | None = None,
        curators: Sequence[str] = (),
        intended_use: str | None = None,
        region: str | None = None,
        sector: str | None = None,
        published: datetime.date | str | None = None,
        authors: Sequence[str] = (),
    ) -> Record:
        """Return the release as a record of the public registry of deployments, printed and saved as YAML in JSON.

        Facts of the release are filled in; fields that only people can fill in say so until they are given.

        Parameters
        ----------
        name
            Name of the data product; by default its size.
        curators
            Who publishes it.
        intended_use
            Its intended use.
        region
            Which region it describes, or whose laws apply.
        sector
            ``"Technology"``, ``"Healthcare"``, ``"Education"``, ``"Government"``, ``"Energy"`` or ``"Finance"``.
        published
            When it was published; by default today (UTC).
        authors
            Who fills in the record.

        Raises
        ------
        NotSanitizedError
            If the frame is no release.
        ParameterError
            For another sector, or a value that is no date or no list of names.
        """
        return record_of(
            self.release,
            name=name,
            curators=curators,
            intended_use=intended_use,
            region=region,
            sector=sector,
            published=published,
            authors=authors,
        )

    def estimates(self, *, confidence_level: float = 0.95, clipped: bool = False) -> Estimates:
        """Return the estimator of this release, at another level or of clipped columns, if need be."""
        return Estimates(self._frame, confidence_level=confidence_level, clipped=clipped)

    def __getattr__(self, name: str) -> Any:
        """Name the estimate that replaces a method of pandas, in an `AttributeError`."""
        instead = _INSTEAD.get(name) or did_you_mean(name, (n for n in dir(type(self)) if n[0] != "_")).strip()
        raise AttributeError(f".dp has no {name!r}" + (f": {instead}" if instead else ""))

    def _describe(self) -> Overview:
        """Return the description of the frame that prints and that notebooks show."""
        try:
            info = self.release
        except NotSanitizedError:
            rows, columns = self._frame.shape
            return Overview(
                (),
                f"DataFrame.dp: not sanitized, {rows:,} rows, {columns} columns",
                (
                    "df.dp.sanitize(epsilon=…) makes a release; df.dp.plan(epsilon=…) shows what it would do",
                    "A release from a file is read by dpframe.read(path) with its plan; CSV and polars lose the plan",
                ),
            )
        return release_overview(info, self._frame)

    def __repr__(self) -> str:
        return str(self._describe())

    def _repr_html_(self) -> str:
        return self._describe()._repr_html_()


def _release_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of `Estimates` as one of the accessor, with its text and signature, and with ``clipped``."""
    signature = inspect.signature(method)
    *leading_parameters, last_parameter = signature.parameters.values()
    options_parameters = [last_parameter] if last_parameter.kind is last_parameter.VAR_KEYWORD else []
    clipped = inspect.Parameter("clipped", inspect.Parameter.KEYWORD_ONLY, default=False, annotation="bool")

    @wraps(method)
    def delegate(self: DpAccessor, *args: Any, clipped: bool = False, **options: Any) -> Any:
        return method(self.estimates(clipped=clipped), *args, **options)

    parameters = [*leading_parameters, *([] if options_parameters else [last_parameter]), clipped, *options_parameters]
    vars(delegate)["__signature__"] = signature.replace(parameters=parameters)
    return delegate


_INTERNAL_METHODS = ("clipped_at",)
"""Methods of `Estimates` that reports and plots ask, and nobody who has a release."""

for _name, _method in inspect.getmembers(Estimates, inspect.isfunction):
    if not _name.startswith("_") and _name not in _INTERNAL_METHODS and not hasattr(DpAccessor, _name):
        setattr(DpAccessor, _name, _release_method(_method))
