"""Estimates with their standard errors and intervals, and how pandas shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpframe.arrays import FloatArray
from dpframe.spaces import Space

RESULTS = ("estimate", "std_error", "lower", "upper")

Excess = tuple[Any, Any]
"""By how much a statistic is too small, and the standard error of that."""

Ends = tuple[Excess, Excess]
"""By how much a statistic may be lower, and higher, than its estimate says."""


@dataclass(frozen=True, eq=False)
class Results:
    """Estimates, standard errors, and the ends of intervals: arrays of one shape.

    Examples
    --------
    >>> Results.of(np.array([10.0]), np.array([4.0]), 1.96).series("count").to_dict()
    {'estimate': 10.0, 'std_error': 2.0, 'lower': 6.08, 'upper': 13.92}
    """

    estimate: Any
    std_error: Any
    lower: Any
    upper: Any

    @classmethod
    def of(cls, estimate: FloatArray, variance: FloatArray, z: float) -> Results:
        """Return normal intervals of z standard errors."""
        error = np.sqrt(np.maximum(variance, 0.0))
        return cls(estimate, error, estimate - z * error, estimate + z * error)

    @property
    def parts(self) -> dict[str, Any]:
        """The four arrays by name."""
        return {name: getattr(self, name) for name in RESULTS}

    def each(self, function: Callable[[Any], Any]) -> Results:
        """Return what a function makes of each of the four."""
        return Results(*map(function, self.parts.values()))

    def __getitem__(self, part: Any) -> Results:
        return self.each(lambda values: values[part])

    def within(self, least: Any = -np.inf, most: Any = np.inf) -> Results:
        """Return intervals cut at bounds of the truth."""
        return replace(self, lower=np.clip(self.lower, least, most), upper=np.clip(self.upper, least, most))

    def opened(self, ends: Ends, z: float, unit: Any = 1.0) -> Results:
        """Return intervals that hold what the estimates lack, too, which is given in some unit."""
        point, own = self.estimate, self.std_error
        below, above = (excess * unit + z * np.hypot(own, error * unit) for excess, error in ends)
        low, high = np.minimum(self.lower, point - below), np.maximum(self.upper, point + above)
        with np.errstate(invalid="ignore"):
            error = np.maximum(own, np.maximum(high - point, point - low) / z)
        return Results(point, error, low, high)

    def in_units(self, space: Space, zone: Any, kind: str = "instant") -> Results:
        """Return numbers of a column in its own units: of times instants (in its zone) or durations, as ``kind`` says.

        A ``kind`` of "number" has no unit of time.
        """
        if not space.is_time or kind == "number":
            return self
        if kind == "duration":
            return self.each(space.durations)

        def instants(values: FloatArray) -> Any:
            found = space.instants(values)
            return found if zone is None else pd.DatetimeIndex(found, tz="UTC").tz_convert(zone)

        ends = instants(self.lower), instants(self.upper)
        return Results(instants(self.estimate), space.durations(self.std_error), *ends)

    def series(self, title: str) -> pd.Series[Any]:
        """Return one answer as a Series."""
        # By way of a Series, so that times are pandas' own scalars.
        return pd.Series({name: pd.Series(values).iloc[0] for name, values in self.parts.items()}, name=title)

    def frame(self, index: Any) -> pd.DataFrame:
        """Return a row for each answer."""
        return pd.DataFrame(self.parts, index=index)

    def wide(self, index: Any, columns: Any) -> pd.DataFrame:
        """Return a cross table, the four an outer level of its columns."""
        return pd.concat({k: pd.DataFrame(v, index, columns) for k, v in self.parts.items()}, axis=1, names=[None])
