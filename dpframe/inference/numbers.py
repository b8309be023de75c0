"""Columns of numbers and times: bounds from noisy counts of cells, in three rounds."""

from __future__ import annotations

import contextlib
import math
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa

from dpframe.errors import ColumnError, ParameterError
from dpframe.inference.cells import Cells as FittedCells
from dpframe.inference.cells import Edge, Grid, fit_cells
from dpframe.inference.column import Task
from dpframe.inference.cost import SMALL_HISTOGRAM_SHARE, CountNoise, Histogram
from dpframe.inference.from_data import integers, reals, times
from dpframe.inference.grids import (
    YEARS,
    first_grid,
    is_time,
    present_numbers,
    single_round_grid,
    ticks_per_day,
    time_unit,
    year_start,
)
from dpframe.inference.inferred import Measured, null_count
from dpframe.inference.number_counts import NumberCounts
from dpframe.inference.ranges import are_truth_values, estimate_bounds, outer_bounds, refine_grid, round_bounds
from dpframe.inference.steps import STEPS, find_step, make_step_grid, step_counts
from dpframe.noise.gaussian import Ints
from dpframe.noise.keystream import ColumnStream
from dpframe.observe.significance import DETECTION_SE
from dpframe.spaces import Datetime, Integer, Nullable, Real, Space, as_space
from dpframe.spaces.field import Field
from dpframe.totals.counts import Cells, OfColumn

ROUND_SHARES = {1: (1.0,), 2: (0.5, 0.5), 3: (0.33, 0.33, 0.34)}
"""Equal shares of a numeric column's budget for its rounds, by how many there are (theory: each round's counts have the
same weight in the sum)."""

_STEP_PLANES = 8
"""Planes of a round's stream before those of the steps' noise (limit of the format)."""

_MAX_WHOLE_VALUES = 1 << 22
"""Values of a whole-number column: noise hides the digits beyond, and finer grids take minutes to calibrate (limit of
time)."""

_MAX_LISTED = 1 << 16
"""Values of a whole-number column whose type lists them (limit of memory)."""


_UNIT_MICROSECONDS = {"s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "D": 86_400 * 10**6}
"""Microseconds of a step of times that are listed (theory: units of time)."""


def _count_cells(grid: Grid, has_steps: bool, values: Any) -> Ints:
    """Return the number of nulls, the number of values in each cell, and with ``has_steps`` the count of each step."""
    present, missing = present_numbers(values)
    return np.concatenate([[missing], grid.count(present), *([step_counts(present)] if has_steps else [])])


class Numbers(Task):
    """A column of whole numbers or floats."""

    def __init__(self, field: Field, n: int, rounds: int = len(ROUND_SHARES), counts_steps: bool = False) -> None:
        super().__init__(field)
        type_ = field.type
        self.type = type_.value_type if pa.types.is_dictionary(type_) else type_
        self.n, self.max_rounds = n, rounds
        self.unit = time_unit(self.type) if is_time(self.type) else None
        self.grid = first_grid(self.type)
        # The first of several rounds counts the steps of floats, too.
        self.has_steps = counts_steps and rounds > 1 and pa.types.is_floating(self.type)

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """One histogram of intervals a round, after the histogram of steps."""
        steps = (Histogram("steps", 1, SMALL_HISTOGRAM_SHARE, sized=False),) * self.has_steps
        return (*steps, *(Histogram("intervals", 1, share) for share in ROUND_SHARES[self.max_rounds]))

    def asks(self, i: int) -> int | None:
        """Return the place of a round's intervals."""
        return i + self.has_steps if i < self.max_rounds else None

    def counter(self) -> OfColumn:
        """Return a counter of the next grid's cells, and in the first round of the steps."""
        if self.rounds:
            grid = refine_grid(self._fit_cells(), self.n)
        elif self.max_rounds == 1:
            grid = self._make_single_grid()
        else:
            grid = first_grid(self.type)
        self.grid = grid.opened()
        steps = self.has_steps and not self.rounds
        size = len(self.grid.edges) + 2 + len(STEPS) * steps
        return Cells(partial(_count_cells, self.grid, steps), size)

    def _make_single_grid(self) -> Grid:
        """Return the grid of a single round."""
        return single_round_grid(first_grid(self.type))

    def _fit_cells(self) -> FittedCells:
        """Return the cells of the last round, fitted to all rounds."""
        return fit_cells(self.rounds, self.grid.limits)

    def measure(self, counter: OfColumn, noise: CountNoise, threshold: int, stream: ColumnStream) -> None:
        """Measure the cells of a round."""
        name, exact = self.field.name, counter.counts
        # The last cells of the first round are the steps.
        if self.has_steps and not self.rounds:
            step_noise = self.noises[0]
            steps = tuple(step_noise.add(exact[-len(STEPS) :], stream.skip(_STEP_PLANES)).tolist())
            self.measured.append(Measured(name, "steps", STEPS, steps, step_noise.variance))
            exact = exact[: -len(STEPS)]
        noisy, missing = self._add_noise(exact, noise, stream)
        edges, counts = self.grid.edges, tuple(noisy.tolist())
        self.measured.append(Measured(name, "intervals", edges, counts, noise.variance, missing, self.unit))

    def _count_present(self) -> tuple[float, float]:
        """Return the number of rows that are not null, and its variance."""
        missing, variance = null_count(self.measured) or (0.0, 0.0)
        return self.n - max(missing, 0.0), variance

    def _are_truth_values(self) -> bool:
        """Return whether 0 and 1 seem to have all rows."""
        return self.unit is None and are_truth_values(self._fit_cells(), *self._count_present())

    def _find_bounds(self) -> tuple[float, float] | None:
        """Return the inferred bounds, or None without significant cells."""
        if self._are_truth_values():
            return 0.0, 1.0
        # From a single round all cells with mass, as a bound too wide costs less than one too narrow.
        if self.max_rounds == 1:
            return outer_bounds(self._fit_cells(), self._count_present()[0], has_sizes=self.unit is None)
        return estimate_bounds(self._fit_cells(), self.n)

    def inner(self) -> Space:
        """Return the space between the inferred bounds, or between 0 and 1 without them."""
        space = self._make_space(*(self._find_bounds() or (0, 1)))
        # Empty columns fit every space: rows must be significant.
        error = math.sqrt(self.measured[-1].variance)
        if pa.types.is_floating(self.type) and self._count_present()[0] > DETECTION_SE * error:
            space = Real(0.0, 1.0, steps=1) if self._are_truth_values() else space  # they come back as no others
        wider_bounds = self._compare_counts(space).wider_bounds
        if not wider_bounds:
            return space
        wider_space = self._make_space(*wider_bounds)
        return space if self._compare_counts(wider_space).hides_minority else wider_space

    def _compare_counts(self, space: Space) -> NumberCounts:
        """Return the counts of all rounds beside the bounds of a space."""
        return NumberCounts(self.rounds, Nullable(space) if self._has_nulls() else space, self.n)

    def _make_space(self, low: float, high: float) -> Space:
        """Return the space between bounds, rounded outwards, on the grid of the step."""
        if pa.types.is_floating(self.type):
            lower, upper = round_bounds(low, high)
            step_histogram = next((m for m in self.measured if m.kind == "steps"), None)
            step = None if step_histogram is None else find_step(step_histogram.counts, step_histogram.variance)
            grid = None if step is None else make_step_grid(lower, upper, step, self.type)
            return grid or reals(self.type, [pa.array([lower, upper], pa.float64())])
        ends = [_clamp(edge, self.grid) for edge in round_bounds(round(low), round(high))]
        space: Any = integers(self.type, [pa.array(ends, self.type)])
        # A dictionary lists its values: they are made few enough for that, too.
        max_values = _MAX_LISTED if pa.types.is_dictionary(self.field.type) else _MAX_WHOLE_VALUES
        if space.size <= max_values:
            return cast(Space, space)
        step = -(-space.size // max_values) * space.step
        return Integer(space.lower, space.lower + (space.upper - space.lower) // step * step, step)


class Times(Numbers):
    """A column of dates, timestamps or durations."""

    def _make_single_grid(self) -> Grid:
        """Return the grid of a single round: cells of five years halve the decades of the first grid."""
        grid = first_grid(self.type)
        if pa.types.is_duration(self.type):
            return grid
        edges = {*grid.edges, *(year_start(self.type, year) for year in range(*YEARS, 5))}
        return Grid(tuple(sorted(edges)), grid.least, grid.most)

    def inner(self) -> Space:
        """Return the space between the inferred bounds, or a public one without them: a century, or a day."""
        edges = self._find_bounds()
        if edges is None:
            day = 1 if pa.types.is_date32(self.type) else ticks_per_day(self.type)
            edges = (0, day if pa.types.is_duration(self.type) else 36_525 * day)
        ends = [_clamp(edge, self.grid) for edge in self._round_outwards(*map(round, edges))]
        physical = pa.int32() if pa.types.is_date32(self.type) else pa.int64()
        space: Any = times(self.type, [pa.array(ends, physical).view(self.type)])
        with contextlib.suppress(ParameterError, ColumnError):
            # As for bounds that are declared: no finer than a thousand steps ask for.
            space = as_space((space.lower, space.upper), self.type)
        return self._coarsen(space) if pa.types.is_dictionary(self.field.type) else cast(Space, space)

    @staticmethod
    def _coarsen(space: Any) -> Space:
        """Return a space on a grid coarse enough to list its values; of days the latest may be left out."""
        if space.size <= _MAX_LISTED:
            return cast(Space, space)
        ends = space.instants(np.array([0, space.size - 1]))
        low, high = ends.astype(np.int64).tolist()
        units = (unit for unit, width in _UNIT_MICROSECONDS.items() if -(-high // width) - low // width < _MAX_LISTED)
        unit = next(units, "D")
        first_step, last_step = low // _UNIT_MICROSECONDS[unit], -(-high // _UNIT_MICROSECONDS[unit])
        steps = np.array([first_step, min(last_step, first_step + _MAX_LISTED - 1)]) * _UNIT_MICROSECONDS[unit]
        lower, upper = steps.astype(ends.dtype)
        return Datetime(lower, upper, unit)

    def _round_outwards(self, low: int, high: int) -> tuple[int, int]:
        """Return times moved outwards to whole days or hours, by at most 1 % of the width each."""
        if pa.types.is_date32(self.type):
            return low, high
        day = ticks_per_day(self.type)
        step = next((unit for unit in (day, day // 24) if high - low > 100 * unit), 1)
        return low // step * step, -(-high // step) * step


def _clamp(edge: Edge, grid: Grid) -> int:
    """Return an edge within the limits of the type, as a whole number."""
    return int(min(max(edge, grid.least), grid.most))
