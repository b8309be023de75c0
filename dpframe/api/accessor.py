"""The ``.dp`` accessor of pandas DataFrames."""

from __future__ import annotations

import datetime
import inspect
import weakref
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpframe.errors import AlreadySanitizedError, NotSanitizedError, did_you_mean, refusing_misfit_calls
from dpframe.estimate import Estimates
from dpframe.plan.certificate import Certificate
from dpframe.proofs.verify import verify
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
    "groupby": (
        'mean, sum, std, var, median and quantile take by=, e.g. mean("visits", by="ward"); for counts write '
        'value_counts(["ward", "sex"])'
    ),
    "pivot_table": 'mean takes several keys, e.g. mean("visits", by=["ward", "sex"]); crosstab("ward", "sex") counts',
    "mode": 'top("column", 1) gives the most frequent value',
    "size": "count takes conditions on columns",
}
"""Advice by method of pandas that a release does not have."""

_FACTS = ("plan", "n", "rows", "confidence_level", "clipped", "clipped_at")
"""Attributes of `Estimates` that the accessor passes on."""

_RAW_VERBS = ("check", "draft", "expect", "sanitize")
"""Methods that only ``df.dp`` of a raw frame has."""

_readings: dict[int, Estimates] = {}
"""The latest reading of each frame that is alive, by the frame's identity: later questions share its fits."""

_EXAMPLES = {
    "estimates": "estimates(confidence_level=0.9)",
    "explain": "explain()",
    "record": 'record(curators=["Statistics Office"])',
    "report": 'report().save("report.html")',
    "verify": "verify()",
}
"""Examples of correct calls, which errors of misfit calls quote."""


if TYPE_CHECKING:
    from dpframe.estimate.estimates import Statistics

    class ReleaseFrame(pd.DataFrame):
        """A DataFrame that is a release, as type checkers see it."""

        dp: ReleaseAccessor
else:
    Statistics, ReleaseFrame = object, pd.DataFrame


@partial(refusing_misfit_calls, _EXAMPLES)
class ReleaseAccessor(Statistics):
    """Statistics of a release: ``safe.dp.mean("age")``.

    All methods of `Estimates`, which take the noise into account; plain pandas would be biased. Each statistic takes
    ``confidence_level=``, ``long=True`` for a tidy frame, and ``clipped=True`` for estimates of columns whose spaces
    private inference did not find: else they are NaN.

    Type checkers know ``safe.dp`` of what `dpframe.sanitize` and `dpframe.read` return; of other DataFrames
    ``ReleaseAccessor(safe)`` is the same with types.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

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
        # A shallow copy, so that a remembered reading does not keep the frame itself alive.
        frame, key = self._frame.copy(deep=False), id(self._frame)
        reading = Estimates(frame, confidence_level=confidence_level, clipped=clipped)
        reading._share_fits(_readings.get(key))
        if key not in _readings:
            weakref.finalize(self._frame, _readings.pop, key, None).atexit = False
        _readings[key] = reading
        return reading

    if not TYPE_CHECKING:  # type checkers report what a release does not have

        def __getattr__(self, name: str) -> Any:
            """Return a fact of the release's estimates, or name the estimate that replaces a method of pandas."""
            if name in _FACTS:
                return getattr(self.estimates(), name)
            if name in _RAW_VERBS:
                raise AlreadySanitizedError(f"the table is a release already; {name} takes the original table")
            known = [n for n in (*dir(type(self)), *_RAW_VERBS) if n[0] != "_"]
            instead = _INSTEAD.get(name) or did_you_mean(name, known).strip()
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
    """Return a method of `Estimates` as one of the accessor, with its text and signature."""

    @wraps(method)
    def delegate(self: ReleaseAccessor, *args: Any, **options: Any) -> Any:
        return method(self.estimates(), *args, **options)

    return delegate


for _name, _method in inspect.getmembers(Estimates, inspect.isfunction):
    if not _name.startswith("_") and _name not in _FACTS and _name not in vars(ReleaseAccessor):
        setattr(ReleaseAccessor, _name, _release_method(_method))
