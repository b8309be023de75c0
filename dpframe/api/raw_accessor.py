"""``df.dp`` of a frame that is no release yet: estimators of releases are imported at their first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from dpframe.api.verbs import FrameVerbs
from dpframe.tables.frames import release_text

if TYPE_CHECKING:
    from dpframe.api.accessor import DpAccessor


class RawAccessor(FrameVerbs):
    """Differential privacy for a DataFrame: ``df.dp.sanitize(epsilon=…)``, then ``safe.dp.mean("age")``.

    On a raw frame: `plan` and `sanitize`. On a release: all methods of `Estimates`, which take the noise into account,
    and plain pandas would be biased.
    """

    @property
    def _full_accessor(self) -> DpAccessor:
        from dpframe.api.accessor import DpAccessor  # a tenth of a second, which a first `sanitize` does without

        return DpAccessor(self._frame)

    def __getattr__(self, name: str) -> Any:
        # A copy that is still empty has no `_frame`: the search for that name would call this method forever.
        if name.startswith("_"):
            raise AttributeError(f".dp has no {name!r}")
        return getattr(self._full_accessor, name)

    def __dir__(self) -> list[str]:
        return dir(self._full_accessor)

    def __repr__(self) -> str:
        return repr(self._full_accessor)

    def _repr_html_(self) -> str:
        return self._full_accessor._repr_html_()


def accessor_of(frame: pd.DataFrame) -> RawAccessor | DpAccessor:
    """Return ``df.dp`` of a frame, with the estimates only if it is a release."""
    raw = RawAccessor(frame)
    return raw if release_text(frame) is None else raw._full_accessor
