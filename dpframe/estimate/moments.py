"""Numeric columns: centred values, statistics of product moments, and fitted distributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.errors import ParameterError
from dpframe.estimate.beyond_bounds import Tails
from dpframe.estimate.results import Ends
from dpframe.estimate.surrogates import Term
from dpframe.plan.columns import Column
from dpframe.plan.threads import one_thread
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import affine_map, forwarded, numbers_of

_PROFILE_STARTS = (0.3, 1.0, 2.0)
"""Starting values of a profile's standard deviations, in units of the estimated ones (tolerance)."""


@dataclass(frozen=True)
class Scale:
    """A numeric column's values centred and scaled to −1…1, 0 for null.

    Centring keeps variances from being differences of large numbers.
    """

    column: Column
    centre: float
    width: float

    @classmethod
    def of(cls, column: Column) -> Scale:
        """Make the scale of a column, or raise `ParameterError` if it holds no numbers."""
        check_holds_numbers(column)
        space = column.space
        low, high = numbers_of(space, np.array([0, space.values - 1]))
        # A space of one value has no width to divide by.
        return cls(column, float((low + high) / 2), float(max((high - low) / 2, 1e-300)))

    def power(self, codes: npt.NDArray[Any], power: int) -> FloatArray:
        """Return scaled values to a power, 0 for null."""
        is_present, space = codes < self.column.space.values, self.column.space
        if not power:
            return np.asarray(is_present, dtype=np.float64)
        return np.where(is_present, ((numbers_of(space, codes) - self.centre) / self.width) ** power, 0.0)

    def back(self, value: Any, present: Any = 1.0) -> Any:
        """Return a mean in the column's numbers, from the mean of scaled values and the share of rows ``present``."""
        return value * self.width + present * self.centre

    @property
    def line(self) -> tuple[float, float]:
        """The number of code 0 and the distance between neighbouring codes' numbers."""
        return affine_map(self.column.space)

    is_time: ClassVar[bool] = forwarded("column.space.is_time")
    """Whether values are times, whose numbers are steps of the resolution."""

    def term(self, power: int, *others: tuple[Scale, int]) -> Term:
        """Return the product of value^power·present over this column and others."""
        return {scale.column.name: (scale.power, p) for scale, p in ((self, power), *others)}


def check_holds_numbers(column: Column) -> None:
    """Raise `ParameterError` for a column that holds no numbers, with the statistic to ask for instead."""
    space = column.space
    if space.is_numeric:
        return
    if space.holds_vectors:
        raise ParameterError(f"column {column.name!r} holds {space.noun}, no numbers; ask for {space.instead}")
    if space.is_listed and all(isinstance(label, bool) for label in space.labels()):
        shares = f"value_counts({column.name!r}, normalize=True) gives their shares"
        raise ParameterError(
            f"column {column.name!r} was declared as categories, true and false; {shares}, and a column that is "
            "declared as Boolean() has a mean"
        )
    raise ParameterError(
        f"column {column.name!r} holds no numbers; {'support' if space.code_words else 'value_counts'}"
        f"({column.name!r}) gives its shares"
    )


@dataclass(frozen=True)
class Statistic:
    """Smooth functions of the means of terms and the number of rows; ``scales`` and ``shift`` give their own units.

    ``kind`` is the result's kind for columns of times: an instant, a duration, or a number. ``known`` is the statistic
    and its variance from the column's measured levels, or from the measured pair of two columns, for the table (0) or
    the population (1). ``beyond`` is the excess from tails.
    """

    terms: Sequence[Term]
    function: Callable[[npt.NDArray[Any], float], Sequence[Any]]
    scales: tuple[float, ...] = (1.0,)
    shift: float = 0.0
    kind: str = "number"
    known: Callable[[Any, float], tuple[Any, Any] | None] = lambda evidence, population: None
    beyond: Callable[[Tails], Ends] = lambda tails: ((0.0, 0.0), (0.0, 0.0))
    bounds: tuple[float, float] = (-math.inf, math.inf)


def _weighted_sums(
    x: Scale, weights: Scale | None
) -> tuple[Sequence[Term], Callable[[npt.NDArray[Any]], tuple[Any, Any]]]:
    """Return the terms of a weighted mean, and a function to its numerator and denominator."""
    if weights is None:
        return [x.term(1), x.term(0)], lambda m: (m[0], m[1])
    terms = [x.term(1, (weights, 1)), x.term(1, (weights, 0)), x.term(0, (weights, 1)), x.term(0, (weights, 0))]
    # Weights must not be centred: their centre is added back.
    return terms, lambda m: (weights.back(m[0], m[1]), weights.back(m[2], m[3]))


def mean(x: Scale, weights: Scale | None) -> Statistic:
    """Return the (weighted) mean over the rows without nulls."""
    terms, sums = _weighted_sums(x, weights)
    statistic = Statistic(
        terms, lambda m, n: [sums(m)[0] / sums(m)[1]], (x.width,), x.centre, "instant", beyond=Tails.of_mean
    )
    if weights is not None:
        return statistic
    bounds = (x.centre - x.width, x.centre + x.width)
    return replace(statistic, known=lambda law, population: law.mean_known(x.line, population), bounds=bounds)


def total(x: Scale, weights: Scale | None) -> Statistic:
    """Return the sum of values, or of their products with weights."""
    terms, sums = _weighted_sums(x, weights)
    statistic = Statistic(terms, lambda m, n: [n * x.back(*sums(m))])
    if weights is not None:
        return statistic
    return replace(statistic, known=lambda law, population: law.total_known(x.line, population), beyond=Tails.of_sum)


def variance(x: Scale, ddof: int) -> Statistic:
    """Return the variance."""

    def function(m: npt.NDArray[Any], n: float) -> Sequence[Any]:
        return [(m[0] / m[2] - (m[1] / m[2]) ** 2) * (n * m[2]) / (n * m[2] - ddof)]

    terms = [x.term(2), x.term(1), x.term(0)]
    statistic = Statistic(terms, function, (x.width**2,), beyond=Tails.of_variance)
    return replace(statistic, known=lambda law, population: law.variance_known(x.line, ddof, population))


def second_moments(x: Scale, y: Scale, ddof: int) -> Statistic:
    """Return the covariance and both variances over the rows in which neither column is null."""
    powers = [(1, 1), (1, 0), (0, 1), (0, 0), (2, 0), (0, 2)]

    def function(m: npt.NDArray[Any], n: float) -> Sequence[Any]:
        xy, mx, my, xx, yy = m[0] / m[3], m[1] / m[3], m[2] / m[3], m[4] / m[3], m[5] / m[3]
        factor = (n * m[3]) / (n * m[3] - ddof)
        return [factor * (xy - mx * my), factor * (xx - mx**2), factor * (yy - my**2)]

    return Statistic(
        [x.term(p, (y, q)) for p, q in powers],
        function,
        (x.width * y.width, x.width**2, y.width**2),
        known=lambda pair, population: pair.moments(x.line[1], y.line[1], ddof, population),
    )


@one_thread
def profile_correlation(values: FloatArray, covariance: FloatArray, z: float) -> tuple[float, float, float]:
    """Return a correlation and its interval by profile likelihood of (covariance, variance, variance).

    The three estimates are nearly normal with the given covariance. If the noise is as large as a variance, their
    quotient is not: the delta method fails, and a variance may be negative. For every ρ Gauss–Newton steps find the
    nearest point (ρuv, u², v²) in Mahalanobis distance. The interval has every ρ within z of the nearest one
    (Venzon–Moolgavkar 1988). If a variance is not significant, the interval is −1…1, and the correlation is NaN.
    """
    if not (np.isfinite(values).all() and np.isfinite(covariance).all() and (np.diag(covariance) > 0).all()):
        return np.nan, -1.0, 1.0
    scale = np.sqrt(np.maximum(np.abs(values[1:]), np.sqrt(np.maximum(np.diag(covariance)[1:], 1e-300))))
    # In units of standard deviations the estimates are about 1, as the ridge and the starts of the search assume.
    units = np.array([scale[0] * scale[1], scale[0] ** 2, scale[1] ** 2])
    observed = values / units
    inner = covariance / np.outer(units, units)
    try:
        whitening = np.linalg.inv(np.linalg.cholesky(inner + np.eye(3) * 1e-12 * max(np.trace(inner), 1e-12)))
    except np.linalg.LinAlgError:  # a handful of rows
        return np.nan, -1.0, 1.0
    low, high = -1.0, 1.0
    # Each pass refines the grid of ρ around the interval of the pass before.
    for _ in range(4):
        rho = np.linspace(low, high, 61)
        distance = _min_squared_distances(rho, observed, whitening)
        interval = rho[distance <= distance.min() + z**2]
        gap = rho[1] - rho[0]
        fitted = float(rho[np.argmin(distance)]), float(interval.min()), float(interval.max())
        low, high = max(-1.0, fitted[1] - gap), min(1.0, fitted[2] + gap)
        # The interval spans enough points of the grid: a finer grid would not change it.
        if fitted[2] - fitted[1] > 20 * gap:
            break
    if fitted[1] <= -1.0 and fitted[2] >= 1.0:
        return np.nan, -1.0, 1.0
    point = values[0] / math.sqrt(values[1] * values[2]) if (values[1:] > 0).all() else math.nan
    return (float(point) if fitted[1] <= point <= fitted[2] else fitted[0]), fitted[1], fitted[2]


def _min_squared_distances(rho: FloatArray, observed: FloatArray, whitening: FloatArray) -> FloatArray:
    """Return the minimum squared distance over u, v for every ρ, by damped Gauss–Newton steps from three starts."""
    rhos = np.tile(rho, len(_PROFILE_STARTS))
    u = v = np.repeat(_PROFILE_STARTS, len(rho))
    # Entries of the metric of the three coordinates (ρuv, u², v²), written out because all ρ are solved at once.
    (a, b, c), (_, d, e), (_, _, f) = whitening.T @ whitening
    best = np.full(len(rhos), np.inf)
    for _ in range(40):
        x, y, z = observed[0] - rhos * u * v, observed[1] - u**2, observed[2] - v**2
        p, q, r = a * x + b * y + c * z, b * x + d * y + e * z, c * x + e * y + f * z
        distance = x * p + y * q + z * r
        gain = best - distance
        best = np.minimum(best, distance)
        if not (gain > 1e-9 * (1 + best)).any():
            break
        slope_u, slope_v, second, third = rhos * v, rhos * u, 2 * u, 2 * v
        uu = a * slope_u**2 + 2 * b * slope_u * second + d * second**2 + 1e-9
        vv = a * slope_v**2 + 2 * c * slope_v * third + f * third**2 + 1e-9
        uv = a * slope_u * slope_v + c * slope_u * third + b * second * slope_v + e * second * third
        by_u, by_v, size = slope_u * p + second * q, slope_v * p + third * r, uu * vv - uv**2
        # A singular system gives no direction: an infinite divisor makes its step 0.
        size = np.where(size > 0, size, np.inf)
        # u and v are standard deviations, and so not negative.
        u = np.abs(u + 0.7 * (vv * by_u - uv * by_v) / size)
        v = np.abs(v + 0.7 * (uu * by_v - uv * by_u) / size)
    return np.asarray(best.reshape(len(_PROFILE_STARTS), -1).min(axis=0))
