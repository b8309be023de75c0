"""Steps that floats are multiples of: whole numbers with gaps among them, halves, cents, or round thousands.

A row counts under the widest step that divides its value. So few cells need little of the budget, and reveal more than
counts of intervals: a column of floats without fractions is put on a grid without any.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError, ParameterError
from dpframe.inference.inferred import Measured
from dpframe.noise.gaussian import Ints
from dpframe.observe.significance import HINT_SE
from dpframe.spaces import Real, Space

STEPS = (1000.0, 100.0, 10.0, 1.0, 0.5, 0.1, 0.01, 0.0)
"""Each step divides those before it; the last cell has the values that no step divides (limit of the format)."""

_STEP_HUNDREDTHS = (100_000, 10_000, 1_000, 100, 50, 10, 1)
"""The steps above 0, in hundredths (limit of the format)."""
_MAX_SIZE = 2.0**53 / 100
"""Size from which floats have no hundredths to speak of (limit of the format)."""

_MIN_GRID_STEPS, _MAX_GRID_STEPS = 2, 65_536
"""Steps of a grid: two values are judged by other rules, and finer grids are as good as floats (limit of the
format)."""


def step_counts(values: npt.NDArray[Any]) -> Ints:
    """Return the number of values for each of the `STEPS`; a value counts under the widest step that divides it."""
    counts = np.zeros(len(STEPS), dtype=np.int64)
    scaled_values = values[np.abs(values) < _MAX_SIZE] * 100
    nearest = np.rint(scaled_values)
    # The rounding error of decimals in 32-bit floats; at most 0.01, so that few other values fit.
    hundredths = nearest[
        np.abs(scaled_values - nearest) <= np.minimum(1e-6 + 1e-7 * np.abs(scaled_values), 0.01)
    ].astype(np.int64)
    counts[-1] = len(values) - len(hundredths)
    for place in range(len(_STEP_HUNDREDTHS) - 1, 0, -1):
        wider_multiples = hundredths[hundredths % _STEP_HUNDREDTHS[place - 1] == 0]
        counts[place] = len(hundredths) - len(wider_multiples)
        hundredths = wider_multiples
    counts[0] = len(hundredths)
    return counts


_OFF_GRID_SHARE, _MAX_OFF_GRID_SE = 0.04, 0.06
"""Share of the rows that may seem to lie off a grid, and the largest standard error of this share (tuned; effect not
measured)."""


def find_step(counts: Sequence[int], variance: float, off_grid: float = _OFF_GRID_SHARE) -> float | None:
    """Return the widest step that divides nearly all values, as far as the noise shows, or None.

    A step is no finer than the next wider one unless its own count exceeds the noise: halves among whole numbers that
    are only noise make no column of halves.

    >>> whole = [0, 50, 350, 3600, 0, 0, 0, 0]
    >>> find_step(whole, 100.0), find_step(whole, 1e6), find_step([*whole[:-1], 500], 100.0)
    (1.0, None, None)
    >>> find_step([0, 25, 175, 1800, 90, 0, 0, 0], 50.0**2), find_step([0, 25, 175, 1800, 400, 0, 0, 0], 50.0**2)
    (1.0, 0.5)
    """
    present = sum(counts)

    def is_precise(cells: int) -> bool:
        return math.sqrt(cells * variance) <= _MAX_OFF_GRID_SE * present

    for place in range(len(STEPS) - 1):
        finer_counts = counts[place + 1 :]
        if sum(finer_counts) <= off_grid * present and is_precise(len(finer_counts)):
            break
    else:
        return None
    widest_place = place
    while widest_place and is_precise(place + 1 - widest_place):
        skipped_counts = counts[widest_place : place + 1]
        if sum(skipped_counts) > HINT_SE * math.sqrt(len(skipped_counts) * variance):
            break
        widest_place -= 1
    return STEPS[widest_place]


def is_on_grid(counts: Sequence[int], variance: float, space: Real) -> bool:
    """Return whether the values with these counts are values of a grid, which may differ from the inferred grid."""
    step = find_step(counts, variance)
    if step is None:
        return False
    places = step / space.step, space.lower / space.step
    return all(abs(place - round(place)) < 1e-6 for place in places) and places[0] > 0.5


def is_on_steps(measured: Sequence[Measured], space: Space) -> bool:
    """Return whether the counts of steps show that all values are on the space's grid."""
    grid: Any = space.inner_space
    return any(m.kind == "steps" and is_on_grid(m.counts, m.variance, grid) for m in measured)


def make_step_grid(low: float, high: float, step: float, type_: pa.DataType) -> Real | None:
    """Return the grid of a step's multiples that contains the bounds, or None for too few or too many values."""
    if not max(abs(low), abs(high)) / step < 2.0**52:
        return None
    first_step, last_step = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if not _MIN_GRID_STEPS <= last_step - first_step <= _MAX_GRID_STEPS:
        return None
    try:
        # Decimals avoid rounding errors: three tenths are 0.3, but 3 · 0.1 differs from 0.3.
        space = Real(round(first_step * step, 2), round(last_step * step, 2), last_step - first_step)
        space.check_type(type_)
    except (ParameterError, ColumnError):
        return None
    return space
