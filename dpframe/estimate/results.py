"""What is asked of a joint, what is answered, and how pandas shows estimates with their errors and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.estimate.axes import Axis, in_zone
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

RESULTS = ("estimate", "std_error", "lower", "upper")

Excess = tuple[Any, Any]
"""By how much a statistic is too small, and the standard error of that."""

Ends = tuple[Excess, Excess]
"""By how much a statistic may be lower, and higher, than its estimate says."""


@dataclass(frozen=True, eq=False)
class Results:
    """Estimates, standard errors, and the ends of intervals: arrays of one shape."""

    estimate: Any
    std_error: Any
    lower: Any
    upper: Any

    @classmethod
    def of(cls, estimate: FloatArray, variance: FloatArray, z: float) -> Results:
        """Return normal intervals of z standard errors."""
        error = np.sqrt(np.maximum(variance, 0.0))
        return cls(estimate, error, estimate - z * error, estimate + z * error)

    @classmethod
    def of_draws(
        cls,
        estimate: FloatArray,
        draws: FloatArray,
        variance: FloatArray | float,
        z: float,
        has_total: bool = False,
    ) -> Results:
        """Return intervals around estimates from draws of what they estimate, whose first axis is the draws.

        The variance of a new draw about the mean of m is (1 + 1/m) times theirs, in Student's law of m − 1 degrees; how
        far the estimate is from that mean is an error of its own, which draws do not have. ``variance`` is added.
        Skewed draws have a semi-deviation on either side. An estimate more than two deviations off is replaced by the
        mean of the draws, unless estimates add up to a total (``has_total``).

        >>> Results.of_draws(np.zeros(1), np.linspace(-1, 1, 41)[:, None], 0.0, 1.96).upper.round(2).tolist()
        [1.23]
        """
        number, mean, squares = len(draws), draws.mean(axis=0), draws.var(axis=0, ddof=1)
        is_far = np.abs(mean - estimate) > 2 * np.sqrt(squares + variance)
        estimate = np.where(is_far & (not has_total), mean, estimate)
        apart = draws - mean
        deviation = np.sqrt(np.where(squares > 0, squares, 1.0))
        cubes = ((apart / deviation) ** 3).mean(axis=0)
        skewed = np.abs(cubes) > 2 * math.sqrt(6 / number)
        above, below = (2 * (np.maximum(side, 0.0) ** 2).mean(axis=0) for side in (apart, -apart))
        own = student_quantile(z, number - 1) ** 2 * (1 + 1 / number)
        more = z**2 * ((mean - estimate) ** 2 + variance)
        up, down = (np.sqrt(own * np.where(skewed, side, squares) + more) for side in (above, below))
        return cls(estimate, (up + down) / (2 * z), estimate - down, estimate + up)

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

    def clipped(self, least: float, most: float) -> Results:
        """Return estimates and intervals within bounds of the truth, intervals of a standard error at least."""
        least_width = np.nan_to_num(self.std_error, nan=0.0, posinf=0.0)
        lower, upper = np.minimum(self.lower, most - least_width), np.maximum(self.upper, least + least_width)
        return Results(np.clip(self.estimate, least, most), self.std_error, lower, upper).within(least, most)

    def opened(self, ends: Ends, z: float, unit: Any = 1.0) -> Results:
        """Return intervals that hold what the estimates lack, too, which is given in some unit."""
        point, own = self.estimate, self.std_error
        below, above = (excess * unit + z * np.hypot(own, error * unit) for excess, error in ends)
        low, high = np.minimum(self.lower, point - below), np.maximum(self.upper, point + above)
        with np.errstate(invalid="ignore"):
            error = np.maximum(own, np.maximum(high - point, point - low) / z)
        return Results(point, error, low, high)

    def stretched(self, factor: float, z: float) -> Results:
        """Return intervals whose ends are farther from 0 by a factor, where the estimates may be.

        >>> Results.of(np.array([4.0, -1.0]), np.ones(2), 2.0).stretched(1.5, 2.0).upper.tolist()
        [9.0, 1.5]
        """
        above = np.maximum(self.upper * factor, self.upper) - self.upper
        below = self.lower - np.minimum(self.lower * factor, self.lower)
        low, high = self.lower - below, self.upper + above
        error = np.maximum(self.std_error, np.maximum(high - self.estimate, self.estimate - low) / z)
        return Results(self.estimate, error, low, high)

    def from_none(self) -> Results:
        """Return intervals of counts that begin at 0, or at an estimate below it, and end an error above 0 at least."""
        # A sum with 0 has no sign where it is 0.
        low = np.maximum(self.lower, np.minimum(self.estimate, 0.0)) + 0.0
        high = np.maximum(self.upper, self.std_error)
        return replace(self, lower=low, upper=np.where(np.isfinite(self.upper), high, self.upper))

    def with_variance(self, variance: Any, z: float) -> Results:
        """Return intervals that hold an independent error of this variance, too.

        >>> float(Results(0.0, 3.0, -6.0, 6.0).with_variance(16.0, 2.0).upper)
        10.0
        """
        low, high = self.estimate - self.lower, self.upper - self.estimate
        more = z * np.sqrt(variance)
        low, high = np.hypot(low, more), np.hypot(high, more)
        error = np.hypot(self.std_error, np.sqrt(variance))
        return Results(self.estimate, error, self.estimate - low, self.estimate + high)

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
            return found if zone is None else in_zone(found, zone)

        ends = instants(self.lower), instants(self.upper)
        return Results(instants(self.estimate), space.durations(self.std_error), *ends)

    def series(self, title: str, attrs: Mapping[str, Any] = MappingProxyType({})) -> pd.Series[Any]:
        """Return one answer as a Series with some attrs."""
        # By way of a Series, so that times are pandas' own scalars.
        out = pd.Series({name: pd.Series(values).iloc[0] for name, values in self.parts.items()}, name=title)
        out.attrs.update(attrs)
        return out

    def frame(self, index: Any, attrs: Mapping[str, Any] = MappingProxyType({})) -> pd.DataFrame:
        """Return a row for each answer."""
        out = pd.DataFrame(self.parts, index=index)
        out.attrs.update(attrs)
        return out

    def wide(self, index: Any, columns: Any, attrs: Mapping[str, Any] = MappingProxyType({})) -> pd.DataFrame:
        """Return a cross table, the four an outer level of its columns."""
        out = pd.concat({k: pd.DataFrame(v, index, columns) for k, v in self.parts.items()}, axis=1, names=[None])
        out.attrs.update(attrs)
        return out


def student_quantile(z: float, degrees: int) -> float:
    """Return the quantile of Student's law at the level where the standard normal one has z (Fisher and Cornish 1960).

    >>> round(student_quantile(1.959964, 39), 3)
    2.023
    """
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a joint: counts or shares, within which axes, with or without nulls, of which target.

    ``weights`` are those of its cells in a sum, where it is asked for one.
    """

    axes: Sequence[Axis]
    normalize: bool
    given: tuple[int, ...]
    dropna: bool
    population: bool
    weights: FloatArray | None = None

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [axis.name for axis in self.axes]

    def presented(
        self, counts: FloatArray, variances: FloatArray, rows: float, shared: FloatArray | float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """Return counts, or shares of their base, and variances, of cells whose covariance is diag(v) − u uᵀ.

        ``shared`` is u: 0 for independent cells. A share q = x/Σx has, for cells in the base, the variance
        (v(1 − 2q) + q²Σv − (u − qΣu)²)/(Σx)². A population's varies about it by q(1 − q)/Σx, its counts by x(1 − x/n).
        """
        shared = np.broadcast_to(np.asarray(shared, dtype=np.float64), counts.shape)
        if not self.normalize:
            own = np.maximum(counts * (1 - counts / max(rows, 1.0)), 0.0) if self.population else 0.0
            return counts, variances - shared**2 + own
        inside = self.inside(counts.shape)
        free = tuple(i for i in range(counts.ndim) if i not in self.given)
        if inside.all() and not self.given:
            total, (spread, moved) = np.full([1] * counts.ndim, rows), np.zeros([2] + [1] * counts.ndim)
        else:
            total, spread, moved = ((v * inside).sum(axis=free, keepdims=True) for v in (counts, variances, shared))
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = counts / total
            own = np.maximum(shares * (1 - shares) / np.maximum(total, 1.0), 0.0) if self.population else 0.0
            part = np.where(spread > 0, variances * (1 - 2 * shares) + shares**2 * spread, variances)
            part -= (shared - shares * moved) ** 2
            return shares, np.where(total > 0, np.maximum(part, 0.0) / total**2 + own, np.inf)

    def unit(self, shares: FloatArray, rows: float) -> Any:
        """Return the share of all rows that is presented as 1: of counts one row, of shares all of their base."""
        if not self.normalize:
            return 1 / rows
        free = tuple(i for i in range(shares.ndim) if i not in self.given)
        return np.maximum((shares * self.inside(shares.shape)).sum(axis=free, keepdims=True), 1e-300)

    def inside(self, shape: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return which cells are in a base: all, or those without nulls on axes that are not given."""
        inside = np.ones(shape, dtype=np.bool_)
        for i, axis in enumerate(self.axes):
            if self.dropna and axis.has_null and i not in self.given:
                inside[(slice(None),) * i + (-1,)] = False
        return inside


@dataclass(frozen=True, eq=False)
class Answer:
    """Estimates and variances of all cells, by which method, from ``"tables"``, ``"rows"`` or ``"both"``.

    ``hidden`` says that rows showed structure that pairs do not hold, ``counted`` that counts of inference are part.
    ``sum_error`` is the standard error of the question's sum by replicas, where these know it. With ``draws`` of what
    is asked, whose first axis is the draws, ``variance`` is only what is added to theirs; ``intervals`` returns
    intervals of so many standard errors, where these are neither normal nor of draws.
    """

    estimate: FloatArray
    variance: FloatArray
    method: str
    source: str
    hidden: bool = False
    counted: bool = False
    sum_error: float | None = None
    draws: FloatArray | None = None
    intervals: Callable[[float], Results] | None = None

    def results(self, z: float) -> Results:
        """Return the estimates with intervals of z standard errors."""
        if self.intervals is not None:
            return self.intervals(z)
        if self.draws is not None:
            return Results.of_draws(self.estimate, self.draws, self.variance, z, has_total=True)
        return Results.of(self.estimate, self.variance, z)

    @property
    def said(self) -> dict[str, Any]:
        """What a result's attrs say of it."""
        hidden = {"hidden": True} if self.hidden else {}
        return {"method": self.method, "measured": self.counted, "source": self.source} | hidden
