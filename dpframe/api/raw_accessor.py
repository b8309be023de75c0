"""``df.dp`` of a frame that is no release yet: estimators of releases are imported at their first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import pandas as pd

from dpframe.api import verbs
from dpframe.errors import refusing_misfit_calls
from dpframe.plan.options import PlanOptions, as_method_of, documented
from dpframe.plan.plan import Plan
from dpframe.release.expected_errors import Expectation
from dpframe.release.info import ReleaseInfo
from dpframe.tables.frames import release_text

if TYPE_CHECKING:
    from dpframe.api.accessor import ReleaseAccessor, ReleaseFrame
    from dpframe.api.curator_check import CuratorCheck
    from dpframe.inference.drafted import DraftedSpaces

_EXAMPLES = {
    "check": 'check(spaces={"age": (0, 120)})',
    "draft": "draft()",
    "expect": "expect(epsilon=1)",
    "plan": 'plan(epsilon=1, spaces={"age": (0, 120)})',
    "sanitize": 'sanitize(epsilon=1, spaces={"age": (0, 120)})',
}
"""Examples of correct calls, which errors of misfit calls quote."""


@partial(refusing_misfit_calls, _EXAMPLES)
class RawAccessor:
    """Differential privacy for a DataFrame that is no release yet: ``df.dp.sanitize(epsilon=…)`` makes one.

    Type checkers know no attribute that a library adds to DataFrames: ``RawAccessor(df).sanitize(epsilon=…)`` and
    ``dpf.sanitize(df, epsilon=…)`` are the same calls with types.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        # pandas does not cache accessors any more: no state but the frame.
        self._frame = frame

    @partial(as_method_of, verbs.plan, ["source", "id"])
    def plan(self, epsilon: float | None = None, delta: float | None = None, **options: Any) -> Plan:
        """Plan how the frame would be sanitised; see `dpframe.plan`."""
        return verbs.plan(self._frame, epsilon, delta, **options)

    @overload
    def sanitize(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        target: None = None,
        **options: Unpack[verbs.ReleaseOptions],
    ) -> ReleaseFrame: ...

    @overload
    def sanitize(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        target: str | Path,
        **options: Unpack[verbs.ReleaseOptions],
    ) -> ReleaseInfo: ...

    @partial(as_method_of, verbs.sanitize, ["source", "id", "batch_rows", "threads", "progress"])
    def sanitize(self, epsilon: float | None = None, delta: float | None = None, **options: Any) -> Any:
        """Randomise every row of the frame, and return a DataFrame; see `dpframe.sanitize`."""
        return verbs.sanitize(self._frame, epsilon=epsilon, delta=delta, **options)

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
        from dpframe.api.expectation import expect

        return expect(self._frame, epsilon, delta, **options)

    def draft(self) -> DraftedSpaces:
        """Draft spaces from the data, for the curator's eyes; see `dpframe.draft_spaces`."""
        from dpframe.api.expectation import draft_spaces

        return draft_spaces(self._frame)

    def check(
        self,
        plan: Plan | None = None,
        *,
        spaces: Mapping[str, Any] | None = None,
        drop: Sequence[str] = (),
        privacy_id: str | None = None,
    ) -> CuratorCheck:
        """Count the values that a plan, or only declared spaces, clamp and cut in the frame; for its curator.

        See `dpframe.api.curator_check.check`.
        """
        from dpframe.api.curator_check import check

        return check(self._frame, plan, spaces=spaces, drop=drop, privacy_id=privacy_id)

    @property
    def _release_accessor(self) -> ReleaseAccessor:
        from dpframe.api.accessor import ReleaseAccessor

        return ReleaseAccessor(self._frame)

    if not TYPE_CHECKING:  # type checkers report what a raw frame does not have

        def __getattr__(self, name: str) -> Any:
            # A copy that is still empty has no `_frame`: the search for that name would call this method forever.
            if name.startswith("_"):
                raise AttributeError(f".dp has no {name!r}")
            return getattr(self._release_accessor, name)

    def __repr__(self) -> str:
        return repr(self._release_accessor)

    def _repr_html_(self) -> str:
        return self._release_accessor._repr_html_()


def accessor_of(frame: pd.DataFrame) -> RawAccessor | ReleaseAccessor:
    """Return ``df.dp`` of a frame, with the estimates only if it is a release."""
    if release_text(frame) is None:
        return RawAccessor(frame)
    from dpframe.api.accessor import ReleaseAccessor  # a tenth of a second, which a first `sanitize` does without

    return ReleaseAccessor(frame)
