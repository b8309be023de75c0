"""Questions about a joint, their answers, and the presentation of estimates with errors and intervals in pandas."""

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

DESCRIBED = ["count", "mean", "std", "25%", "50%", "75%"]
"""Rows of `describe`, as pandas calls them."""

Excess = tuple[Any, Any]
"""Amount by which a statistic is too small, and the amount's standard error."""

Ends = tuple[Excess, Excess]
"""Amounts by which a statistic may be lower, and higher, than its estimate."""


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
        """Return intervals around estimates from posterior draws; the first axis of ``draws`` is the draw.

        A new draw has (1 + 1/m) times the variance of m draws about their mean, under Student's distribution with
        m − 1 degrees of freedom. The distance from the estimate to the mean is a further error, and ``variance`` is
        added. Skewed draws have a semi-deviation on either side. An estimate more than two deviations off is replaced
        by the mean of the draws, unless estimates add up to a total (``has_total``).

        >>> Results.of_draws(np.zeros(1), np.linspace(-1, 1, 41)[:, None], 0.0, 1.96).upper.round(2).tolist()
        [1.23]
        """
        number, mean, squares = len(draws), draws.mean(axis=0), draws.var(axis=0, ddof=1)
        is_far = np.abs(mean - estimate) > 2 * np.sqrt(squares + variance)
        estimate = np.where(is_far & (not has_total), mean, estimate)
        residuals = draws - mean
        deviation = np.sqrt(np.where(squares > 0, squares, 1.0))
        cubes = ((residuals / deviation) ** 3).mean(axis=0)
        # √(6/m) is the standard error of the skewness of m normal draws.
        is_skewed = np.abs(cubes) > 2 * math.sqrt(6 / number)
        above, below = (2 * (np.maximum(side, 0.0) ** 2).mean(axis=0) for side in (residuals, -residuals))
        squared_quantile = student_quantile(z, number - 1) ** 2 * (1 + 1 / number)
        extra_variance = z**2 * ((mean - estimate) ** 2 + variance)
        up, down = (
            np.sqrt(squared_quantile * np.where(is_skewed, side, squares) + extra_variance) for side in (above, below)
        )
        return cls(estimate, (up + down) / (2 * z), estimate - down, estimate + up)

    @property
    def parts(self) -> dict[str, Any]:
        """The four arrays by name."""
        return {name: getattr(self, name) for name in RESULTS}

    def each(self, function: Callable[[Any], Any]) -> Results:
        """Apply a function to each of the four arrays."""
        return Results(*map(function, self.parts.values()))

    def __getitem__(self, part: Any) -> Results:
        return self.each(lambda values: values[part])

    def within(self, least: Any = -np.inf, most: Any = np.inf) -> Results:
        """Clip intervals to the bounds of possible values."""
        return replace(self, lower=np.clip(self.lower, least, most), upper=np.clip(self.upper, least, most))

    def clipped(self, least: float, most: float) -> Results:
        """Clip estimates and intervals to possible values; intervals are at least a standard error long."""
        least_width = np.nan_to_num(self.std_error, nan=0.0, posinf=0.0)
        lower, upper = np.minimum(self.lower, most - least_width), np.maximum(self.upper, least + least_width)
        return Results(np.clip(self.estimate, least, most), self.std_error, lower, upper).within(least, most)

    def opened(self, ends: Ends, z: float, unit: Any = 1.0) -> Results:
        """Widen intervals by the amounts that the estimates may lack below and above, in some unit."""
        point, std_error = self.estimate, self.std_error
        below, above = (excess * unit + z * np.hypot(std_error, error * unit) for excess, error in ends)
        low, high = np.minimum(self.lower, point - below), np.maximum(self.upper, point + above)
        with np.errstate(invalid="ignore"):
            error = np.maximum(std_error, np.maximum(high - point, point - low) / z)
        return Results(point, error, low, high)

    def stretched(self, factor: float, z: float) -> Results:
        """Widen intervals: an end above 0 moves up by a factor, an end below 0 moves down.

        >>> Results.of(np.array([4.0, -1.0]), np.ones(2), 2.0).stretched(1.5, 2.0).upper.tolist()
        [9.0, 1.5]
        """
        above = np.maximum(self.upper * factor, self.upper) - self.upper
        below = self.lower - np.minimum(self.lower * factor, self.lower)
        low, high = self.lower - below, self.upper + above
        error = np.maximum(self.std_error, np.maximum(high - self.estimate, self.estimate - low) / z)
        return Results(self.estimate, error, low, high)

    def from_none(self) -> Results:
        """Return intervals of counts from 0, or from a negative estimate, to at least one standard error."""
        # Adding 0 turns −0 into 0.
        low = np.maximum(self.lower, np.minimum(self.estimate, 0.0)) + 0.0
        high = np.maximum(self.upper, self.std_error)
        return replace(self, lower=low, upper=np.where(np.isfinite(self.upper), high, self.upper))

    def with_variance(self, variance: Any, z: float) -> Results:
        """Widen intervals by an independent error of this variance.

        >>> float(Results(0.0, 3.0, -6.0, 6.0).with_variance(16.0, 2.0).upper)
        10.0
        """
        low, high = self.estimate - self.lower, self.upper - self.estimate
        extra = z * np.sqrt(variance)
        low, high = np.hypot(low, extra), np.hypot(high, extra)
        error = np.hypot(self.std_error, np.sqrt(variance))
        return Results(self.estimate, error, self.estimate - low, self.estimate + high)

    def in_units(self, space: Space, zone: Any, kind: str = "instant") -> Results:
        """Return a column's numbers in its units; times become instants in its zone, or durations, by ``kind``.

        A ``kind`` of "number" has no unit of time.
        """
        if not space.is_time or kind == "number":
            return self
        if kind == "duration":
            return self.each(space.durations)

        def instants(values: FloatArray) -> Any:
            times = space.instants(values)
            return times if zone is None else in_zone(times, zone)

        ends = instants(self.lower), instants(self.upper)
        return Results(instants(self.estimate), space.durations(self.std_error), *ends)

    def series(self, title: str | tuple[str, ...], attrs: Mapping[str, Any] = MappingProxyType({})) -> pd.Series[Any]:
        """Return one answer as a Series with some attrs."""
        # A detour by Series turns NumPy's times into pandas' scalars.
        out = pd.Series({name: pd.Series(values).iloc[0] for name, values in self.parts.items()}, name=title)
        out.attrs.update(attrs)
        return out

    def frame(self, index: Any, attrs: Mapping[str, Any] = MappingProxyType({})) -> pd.DataFrame:
        """Return a row for each answer."""
        out = pd.DataFrame(self.parts, index=index)
        out.attrs.update(attrs)
        return out

    def wide(self, index: Any, columns: Any, attrs: Mapping[str, Any] = MappingProxyType({})) -> pd.DataFrame:
        """Return a cross table with the four arrays as an outer level of its columns."""
        parts = {k: pd.DataFrame(v, index, columns) for k, v in self.parts.items()}
        out = WideResult(pd.concat(parts, axis=1, names=[None]))
        out.attrs.update(attrs)
        return out


class WideResult(pd.DataFrame):
    """A table with ``estimate, std_error, lower, upper`` as an outer level of its columns.

    If it is too wide to print, it prints as one table for each of the four: pandas would omit columns in the middle, so
    that upper ends look like estimates.
    """

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        # A slice or a sum need not have the four parts.
        return pd.DataFrame

    def __repr__(self) -> str:
        text = super().__repr__()
        if not any("..." in line for line in text.splitlines()[: self.columns.nlevels]):
            return text
        with pd.option_context("display.max_columns", None):
            return "\n\n".join(f"{part}:\n{self[part]!r}" for part in self.columns.unique(0))

    def _repr_html_(self) -> Any:
        most_columns = pd.get_option("display.max_columns")
        if not most_columns or len(self.columns) <= most_columns:
            return pd.DataFrame(self).to_html()
        return "".join(f"<p>{part}:</p>{self[part].to_html()}" for part in self.columns.unique(0))


def student_quantile(z: float, degrees: int) -> float:
    """Return the quantile of Student's distribution at the level of the normal quantile z (Fisher and Cornish 1960).

    >>> round(student_quantile(1.959964, 39), 3)
    2.023
    """
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2


@dataclass(frozen=True, eq=False)
class Question:
    """A question about a joint: counts or shares, conditional axes, with or without nulls, and the target.

    ``weights`` are weights of the joint's cells in a sum, or None.
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
        (v(1 − 2q) + q²Σv − (u − qΣu)²)/(Σx)². A population adds q(1 − q)/Σx to shares, and x(1 − x/n) to counts.
        """
        shared = np.broadcast_to(np.asarray(shared, dtype=np.float64), counts.shape)
        if not self.normalize:
            sampling_variance = np.maximum(counts * (1 - counts / max(rows, 1.0)), 0.0) if self.population else 0.0
            return counts, variances - shared**2 + sampling_variance
        in_base = self.inside(counts.shape)
        free = tuple(i for i in range(counts.ndim) if i not in self.given)
        if in_base.all() and not self.given:
            total, (total_variance, total_shared) = np.full([1] * counts.ndim, rows), np.zeros([2] + [1] * counts.ndim)
        else:
            total, total_variance, total_shared = (
                (v * in_base).sum(axis=free, keepdims=True) for v in (counts, variances, shared)
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = counts / total
            sampling_variance = (
                np.maximum(shares * (1 - shares) / np.maximum(total, 1.0), 0.0) if self.population else 0.0
            )
            residual_variance = np.where(
                total_variance > 0, variances * (1 - 2 * shares) + shares**2 * total_variance, variances
            )
            residual_variance -= (shared - shares * total_shared) ** 2
            return shares, np.where(
                total > 0, np.maximum(residual_variance, 0.0) / total**2 + sampling_variance, np.inf
            )

    def unit(self, shares: FloatArray, rows: float) -> Any:
        """Return the unit of results as a share of all rows: one row for counts, the base for shares."""
        if not self.normalize:
            return 1 / rows
        free = tuple(i for i in range(shares.ndim) if i not in self.given)
        return np.maximum((shares * self.inside(shares.shape)).sum(axis=free, keepdims=True), 1e-300)

    def inside(self, shape: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return a mask of the cells in a base: all cells, or cells without nulls on axes that are not given."""
        in_base = np.ones(shape, dtype=np.bool_)
        for i, axis in enumerate(self.axes):
            if self.dropna and axis.has_null and i not in self.given:
                in_base[(slice(None),) * i + (-1,)] = False
        return in_base


@dataclass(frozen=True, eq=False)
class Answer:
    """Estimates and variances of all cells, by which method, from ``"tables"``, ``"rows"`` or ``"both"``.

    ``hidden`` means that rows show structure which pairs of columns miss; ``counted`` means that counts of inference
    are included. ``sum_error`` is the standard error of the question's sum by replicates, or None. ``draws`` are
    posterior draws, first axis the draw; ``variance`` is then added to their variance. ``intervals`` returns results
    with intervals of z standard errors, for intervals that are neither normal nor from draws.
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
        """Attrs of a result."""
        hidden_attr = {"hidden": True} if self.hidden else {}
        return {"method": self.method, "measured": self.counted, "source": self.source} | hidden_attr
