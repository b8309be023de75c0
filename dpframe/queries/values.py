"""Answers from noisy numbers: ratios of sums, quantiles from cumulative counts, moments from sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpframe.queries.columns import QueryColumn, normal
from dpframe.spaces.arrays import FloatArray
from dpframe.totals.answers import Noise
from dpframe.totals.questions import CellTree, ProductSums


@dataclass(frozen=True)
class Answered:
    """An answer's numbers with their noise, and its facts."""

    values: tuple[FloatArray, ...]
    noises: tuple[Noise, ...]
    facts: Mapping[str, Any]


def ratios(sums: FloatArray, errors: tuple[float, float], counts: FloatArray, most: float, z: float) -> FloatArray:
    """Return sums over counts, both with noise, within ±most: estimates, errors, lower and upper ends, shape (4, n).

    An interval has the ratios r for which the sum less r times the count is no further from 0 than its noise (Fieller
    1954); errors are by the delta method.
    """
    # A noisy count may be zero or negative.
    rows = np.maximum(counts, 1.0)
    estimates = np.clip(sums / rows, -most, most)
    error = np.minimum(np.hypot(errors[0], estimates * errors[1]) / rows, most)
    a, c = counts**2 - (z * errors[1]) ** 2, sums**2 - (z * errors[0]) ** 2
    is_bounded = (counts > 0) & (a > 0)
    discriminant_root = np.sqrt(np.maximum((sums * counts) ** 2 - a * c, 0.0))
    safe_divisor = np.where(is_bounded, a, 1.0)
    low, high = (sums * counts - discriminant_root) / safe_divisor, (sums * counts + discriminant_root) / safe_divisor
    low, high = (np.clip(np.where(is_bounded, end, limit), -most, most) for end, limit in ((low, -most), (high, most)))
    # Estimates divide by at least one row and Fieller's ends do not, but an interval has to include its estimate.
    return np.array([estimates, error, np.minimum(low, estimates), np.maximum(high, estimates)])


def squared_z(level: float) -> float:
    """Return the square of the normal quantile of an interval's level."""
    return float(normal(np.zeros(1), np.ones(1), level)["upper"][0] ** 2)


def placed(tree: CellTree, excess: FloatArray, reach: FloatArray, values: int) -> tuple[float, float, float]:
    """Return the code at which a cumulative count passes its goal, and the first and last code within the noise.

    With c the true cell, that up to c reaches the goal and that up to c − 1 does not; each is wrong only by noise
    beyond its reach, on one side.
    """
    starts, cells = tree.starts, tree.cells

    def first_cell(above: Any) -> int:
        return int(np.argmax(above)) if above.any() else cells - 1

    def last_cell(below: Any) -> int:
        return cells - int(np.argmax(below[::-1])) if below.any() else 0

    low, high = first_cell(excess + reach >= 0), min(last_cell(excess - reach < 0), cells - 1)
    middle = (first_cell(excess >= 0) + min(last_cell(excess < 0), cells - 1)) / 2
    centre = (np.interp([middle, middle + 1], np.arange(cells + 1), starts).sum() - 1) / 2
    return float(centre), float(starts[low]), float(min(starts[high + 1], values) - 1)


def halves_of(question: ProductSums, asked: Sequence[QueryColumn]) -> tuple[list[float], list[float]]:
    """Return half a code step in each column's units, and the middle of its bounds."""
    halves = [column.line[1] * grain / 2 for column, grain in zip(asked, question.grains, strict=True)]
    middles = [
        column.line[0] + column.line[1] * (grain - 1) / 2 + half * last_code
        for column, grain, half, last_code in zip(asked, question.grains, halves, question.lasts, strict=True)
    ]
    return halves, middles


def back_matrix(question: ProductSums, asked: Sequence[QueryColumn]) -> FloatArray:
    """Return the matrix that takes (1, u/N) of a row, each number in [−1, 1], to (1, its values)."""
    halves, middles = halves_of(question, asked)
    transform = np.diag([1.0, *(half * last_code for half, last_code in zip(halves, question.lasts, strict=True))])
    transform[1:, 0] = middles
    return transform


def unit_moments(question: ProductSums, n: int) -> FloatArray:
    """Return the sum of z zᵀ over rows z = (1, u/N), |z|² ≤ 1 + the number of columns."""
    last_codes = np.array(question.lasts, dtype=np.float64)
    moments = np.zeros((len(last_codes) + 1, len(last_codes) + 1))
    moments[0, 0] = n
    moments[0, 1:] = moments[1:, 0] = np.array(question.first, dtype=np.float64) / last_codes
    for (i, j), total in zip(question.pairs, question.second, strict=True):
        moments[i + 1, j + 1] = moments[j + 1, i + 1] = total / (last_codes[i] * last_codes[j])
    return moments


def moment_matrices(
    question: ProductSums, asked: Sequence[QueryColumn], told: Answered, rows: int | None, central: bool
) -> tuple[FloatArray, FloatArray]:
    """Return second moments or covariances, and their errors by the delta method; without ``rows``, over noisy ones."""
    n = max(float(told.values[-1][0]), 1.0) if rows is None else float(rows)
    relative_count_error = math.sqrt(told.noises[-1].variance) / n if rows is None else 0.0
    sums = [float(v[0]) * u + (u - 1) / 2 for v, u in zip(told.values, question.units, strict=False)]
    errors = [math.sqrt(noise.variance) * u for noise, u in zip(told.noises, question.units, strict=False)]
    count = len(asked)
    halves, middles = halves_of(question, asked)
    means = [half * total / n for half, total in zip(halves, sums[:count], strict=True)]
    spreads = [half * error / n for half, error in zip(halves, errors[:count], strict=True)]
    estimate, variance = np.empty((count, count)), np.empty((count, count))
    widths = [half * last_code for half, last_code in zip(halves, question.lasts, strict=True)]
    limits = widths if central else [width + abs(middle) for width, middle in zip(widths, middles, strict=True)]
    for pair_index, (i, j) in enumerate(question.pairs):
        product, error = (halves[i] * halves[j] * x[count + pair_index] / n for x in (sums, errors))
        # Centred at the means, or at 0: products of a mean and a constant.
        a, b = (-means[i], -means[j]) if central else (middles[i], middles[j])
        value = product - means[i] * means[j] if central else product + a * means[j] + b * means[i] + a * b
        mean_variance = (a + b) ** 2 * spreads[i] ** 2 if i == j else a**2 * spreads[j] ** 2 + b**2 * spreads[i] ** 2
        # The noise on the number of rows enters too, as every mean is divided by it.
        row_count_slope = product - 2 * means[i] * means[j] if central else product + a * means[j] + b * means[i]
        total_variance = error**2 + mean_variance + (row_count_slope * relative_count_error) ** 2
        if rows is None:
            # If all rows may be noise, only the bounds limit the estimate.
            limit = limits[i] * limits[j]
            value, total_variance = min(max(value, -limit), limit), min(total_variance, 4 * limit**2)
        estimate[i, j] = estimate[j, i] = value
        variance[i, j] = variance[j, i] = total_variance
    return estimate, np.sqrt(variance)
