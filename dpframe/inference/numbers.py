"""Columns of numbers and times: bounds from noisy counts of cells, in three rounds."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.errors import ColumnError, ParameterError
from dpframe.inference.cells import Edge, Grid, fit_cells
from dpframe.inference.column import Task
from dpframe.inference.cost import CountNoise, Histogram
from dpframe.inference.from_data import integers, reals, times
from dpframe.inference.inferred import Measured, null_count
from dpframe.inference.number_counts import YEARS, NumberCounts
from dpframe.inference.ranges import are_truth_values, estimate_bounds, outer_bounds, refine_grid
from dpframe.inference.steps import STEP_SHARE, STEPS, step_counts, step_of, stepped
from dpframe.noise.gaussian import Ints
from dpframe.noise.keystream import ColumnStream
from dpframe.observe.significance import DETECTION_SE
from dpframe.spaces import Datetime, Integer, Nullable, Real, Space, as_space
from dpframe.spaces.field import Field
from dpframe.totals.counts import Cells, OfColumn

ROUND_SHARES = {1: (1.0,), 2: (0.5, 0.5), 3: (0.33, 0.33, 0.34)}
"""Shares of a numeric column's budget for its rounds, by how many there are (tuned; effect not measured)."""

_MAX_PARTS = (32, 1024)
"""Parts into which a cell with most of the mass is divided, in the second and in the third round (tuned; effect not
measured)."""

_DOUBLING_PARTS, _YEARLY_NOISE = ((0.12, 1), (0.03, 2), (0.0, 4)), 0.05
"""Cells in a doubling of a single round, by the least noise of a count as a part of the rows; and the noise up to
which times have a cell for each year (tuned; effect not measured).

Bounds are ends of cells, and chosen among as many as there are. Of the columns found in real tables of 150 to 500 rows
1.6 % were clipped by more than a standard deviation of their mean with halves, .3 % with whole doublings.
"""

_STEP_PLANES = 8
"""Planes of a round's stream before those of the steps' noise (limit of the format)."""

_MAX_INT64 = 2**63 - 1
"""Largest signed whole number of 64 bits (limit of the format)."""

_MAX_STEPS = 1 << 22
"""Values of a whole-number column: noise hides the digits beyond, and finer grids take minutes to calibrate (limit of
time)."""

_MAX_LISTED = 1 << 16
"""Values of a whole-number column whose type lists them (limit of memory)."""


_UNIT_MICROSECONDS = {"s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "D": 86_400 * 10**6}
"""Microseconds of a step of times that are listed (theory: units of time)."""


def is_number(type_: pa.DataType) -> bool:
    """Return whether values are whole numbers or floats, plain or in a dictionary."""
    inner = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_integer(inner) or pa.types.is_floating(inner))


def is_time(type_: pa.DataType) -> bool:
    """Return whether values are dates, timestamps or durations."""
    t = pa.types
    return bool(t.is_date(type_) or t.is_timestamp(type_) or t.is_duration(type_))


def present_numbers(array: pa.Array) -> tuple[npt.NDArray[Any], int]:
    """Return the values that are not null as int64 or float64, and the number of nulls."""
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    elif is_time(array.type):
        array = array.view(pa.int64())
    present = np.asarray(array.drop_null())
    missing = array.null_count
    if present.dtype.kind == "f":
        numbers = present[~np.isnan(present)].astype(np.float64)
        return numbers, missing + len(present) - len(numbers)
    # Cells are signed: larger values count in the last cell.
    if present.dtype == np.uint64:
        present = np.minimum(present, np.uint64(_MAX_INT64))
    return present.astype(np.int64), missing


def first_grid(type_: pa.DataType) -> Grid:
    """Return the public first grid of a type.

    Whole numbers: 0, and cells between powers of 2 of either sign. Floats: powers of 2 from 2^−48 to 2^64, beyond by
    factors of 2^64, and a cell for 1. Times: decades from 1800 to 2200, and centuries and more around. Durations have
    the grid of whole numbers.
    """
    if pa.types.is_floating(type_):
        max_float = float(np.finfo(type_.to_pandas_dtype()).max)
        powers = [*range(-1008, -48, 64), *range(-48, 64), *range(64, 1024, 64)]
        sizes = [math.ldexp(1.0, power) for power in powers if math.ldexp(1.0, power) < max_float]
        return Grid(tuple(sorted([*(-size for size in sizes), *sizes, _JUST_ABOVE_ONE])), -max_float, max_float)
    if pa.types.is_integer(type_):
        info = np.iinfo(type_.to_pandas_dtype())
        min_int, max_int = int(info.min), min(int(info.max), _MAX_INT64)
    else:
        min_int, max_int = (-(2**31), 2**31 - 1) if pa.types.is_date32(type_) else (-_MAX_INT64 - 1, _MAX_INT64)
    if is_time(type_) and not pa.types.is_duration(type_):
        edges = [
            _year_start(type_, year) for year in (1, 1000, 1500, 1700, *range(1800, 2201, 10), 2300, 2500, 3000, 10_000)
        ]
    else:
        edges = [*(1 - 2**i for i in range(63, -1, -1)), *(2**i for i in range(63))]
    return Grid(tuple(edge for edge in edges if min_int < edge < max_int), min_int, max_int)


def only_grid(grid: Grid, parts: int) -> Grid:
    """Return the grid of a single round: doublings of usual sizes, each in ``parts`` cells.

    Amounts of millions to billions have whole doublings. Others have cells 256-fold wide: empty cells cost no budget,
    but add noise to sums across them. Truth values need cells for 0 and 1, and years need cells of decades.
    """
    is_whole, to_number = grid.whole, int if grid.whole else float
    usual_sizes = [math.ldexp(1.0, power) for power in range(-8, 21)]
    amounts = [math.ldexp(1.0, power) for power in range(21, 37)]
    coarse_sizes = [math.ldexp(1.0, power) for power in (*range(-48, -8, 8), *range(28, 64, 8))]
    part_edges = {a + (b - a) * part / parts for a, b in pairwise(usual_sizes) for part in range(1, parts)}
    sizes = {to_number(size) for size in (*usual_sizes, *coarse_sizes, *part_edges) if not is_whole or size >= 1}
    above_zero_edge = 1 if is_whole else _JUST_ABOVE_ONE
    far_edges = {edge for edge in grid.edges if abs(edge) >= _TYPE_GRID_SIZE}
    edges = {
        *sizes,
        *(is_whole - size for size in sizes),
        *map(to_number, amounts),
        *range(*YEARS, 10),
        above_zero_edge,
        *far_edges,
    }
    return Grid(
        tuple(sorted(to_number(edge) for edge in edges if grid.least < edge < grid.most)), grid.least, grid.most
    )


_JUST_ABOVE_ONE = 1 + 2.0**-52
"""The double that follows 1 (theory: spacing of doubles)."""

_TYPE_GRID_SIZE = 2.0**60
"""Size beyond which a single round uses the cells of the type's first grid (limit of the format)."""


def _year_start(type_: pa.DataType, year: int) -> int:
    """Return the start of a year in a type's unit, since 1970."""
    days = int(np.datetime64(f"{year:04d}-01-01", "D").astype(np.int64))
    return days * _ticks_per_day(type_) if not pa.types.is_date32(type_) else days


def _time_unit(type_: pa.DataType) -> str:
    """Return the unit of a type of times."""
    return "D" if pa.types.is_date32(type_) else "ms" if pa.types.is_date64(type_) else str(type_.unit)


def _ticks_per_day(type_: pa.DataType) -> int:
    """Return the number of a type's time units in a day."""
    return 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[_time_unit(type_)]


def _count_cells(grid: Grid, has_steps: bool, values: Any) -> Ints:
    """Return the number of nulls, the number of values in each cell, and with ``has_steps`` the count of each step."""
    present, missing = present_numbers(values)
    return np.concatenate([[missing], grid.count(present), *([step_counts(present)] if has_steps else [])])


class Numbers(Task):
    """A column of whole numbers or floats."""

    def __init__(self, field: Field, n: int) -> None:
        super().__init__(field)
        self.most = len(ROUND_SHARES)
        type_ = field.type
        self.type = type_.value_type if pa.types.is_dictionary(type_) else type_
        self.n = n
        self.unit = _time_unit(self.type) if is_time(self.type) else None
        self.grid = Grid((), 0, 0)
        self.noise = 0.0
        self.has_steps = False
        self.noises: Sequence[CountNoise] = ()

    def in_rounds(self, rounds: int) -> Task:
        """Return the task with this many rounds; the first of several rounds also counts the steps of floats."""
        self.most = rounds
        self.has_steps = rounds > 1 and pa.types.is_floating(self.type)
        return self

    def under(self, noises: Sequence[CountNoise]) -> Task:
        """Return the task with cells of a single round as coarse as its noise requires."""
        self.noises = noises
        self.noise = math.sqrt(noises[0].variance) / max(self.n, 1)
        return self

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """One histogram of intervals a round, after the histogram of steps."""
        steps = (Histogram("steps", 1, STEP_SHARE, sized=False),) * self.has_steps
        return (*steps, *(Histogram("intervals", 1, share) for share in ROUND_SHARES[self.most]))

    def asks(self, i: int) -> int | None:
        """Return the place of a round's intervals."""
        return i + self.has_steps if i < self.most else None

    def counter(self) -> OfColumn:
        """Return a counter of the next grid's cells, and in the first round of the steps."""
        if self.rounds:
            grid = refine_grid(fit_cells(self.rounds, self.grid.limits), self.n, _MAX_PARTS[len(self.rounds) - 1])
        else:
            grid = first_grid(self.type)
            grid = grid if self.most > 1 else self._single_round_grid(grid)
        self.grid = grid.opened()
        steps = self.has_steps and not self.rounds
        size = len(self.grid.edges) + 2 + len(STEPS) * steps
        return Cells(partial(_count_cells, self.grid, steps), size)

    def _single_round_grid(self, grid: Grid) -> Grid:
        """Return the grid of a single round, coarser with more noise."""
        return only_grid(grid, next(parts for min_noise, parts in _DOUBLING_PARTS if self.noise >= min_noise))

    def measure(self, counter: OfColumn, noise: CountNoise, threshold: int, stream: ColumnStream) -> None:
        """Measure the cells of a round."""
        exact = counter.counts
        # The last cells of the first round are the steps.
        if self.has_steps and not self.rounds:
            steps = self.noises[0].add(exact[-len(STEPS) :], stream.skip(_STEP_PLANES))
            self.measured.append(
                Measured(self.field.name, "steps", STEPS, tuple(steps.tolist()), self.noises[0].variance)
            )
            exact = exact[: -len(STEPS)]
        noisy, missing = self._add_noise(exact, noise, stream)
        counts = tuple(noisy.tolist())
        self.measured.append(
            Measured(self.field.name, "intervals", self.grid.edges, counts, noise.variance, missing, self.unit)
        )

    def _count_present(self) -> tuple[float, float]:
        """Return the number of rows that are not null, and its variance."""
        missing, variance = null_count(self.measured) or (0.0, 0.0)
        return self.n - max(missing, 0.0), variance

    def _are_truth_values(self) -> bool:
        """Return whether 0 and 1 seem to have all rows."""
        cells = fit_cells(self.rounds, self.grid.limits)
        return self.unit is None and are_truth_values(cells, *self._count_present())

    def _find_bounds(self) -> tuple[float, float] | None:
        """Return the inferred bounds, or None without significant cells."""
        if self._are_truth_values():
            return 0.0, 1.0
        cells, (present, _) = fit_cells(self.rounds, self.grid.limits), self._count_present()
        # From a single round all cells with mass, as a bound too wide costs less than one too narrow.
        return estimate_bounds(cells, self.n) if self.most > 1 else outer_bounds(cells, present)

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
        return wider_space if self._compare_counts(wider_space).bounds_probably_cover else space

    def _compare_counts(self, space: Space) -> NumberCounts:
        """Return the counts of all rounds beside the bounds of a space."""
        return NumberCounts(self.rounds, Nullable(space) if self._has_nulls() else space, self.n)

    def _make_space(self, low: float, high: float) -> Space:
        """Return the space between bounds, rounded outwards, on the grid of the step."""
        if pa.types.is_floating(self.type):
            lower, upper = friendly(low, high)
            step_histogram = next((m for m in self.measured if m.kind == "steps"), None)
            step = None if step_histogram is None else step_of(step_histogram.counts, step_histogram.variance)
            grid = None if step is None else stepped(lower, upper, step, self.type)
            return grid or reals(self.type, [pa.array([lower, upper], pa.float64())])
        ends = [_clamp(edge, self.grid) for edge in friendly(round(low), round(high))]
        space: Any = integers(self.type, [pa.array(ends, self.type)])
        # A dictionary lists its values: they are made few enough for that, too.
        max_values = _MAX_LISTED if pa.types.is_dictionary(self.field.type) else _MAX_STEPS
        if space.size <= max_values:
            return cast(Space, space)
        step = -(-space.size // max_values) * space.step
        return Integer(space.lower, space.lower + (space.upper - space.lower) // step * step, step)


class Times(Numbers):
    """A column of dates, timestamps or durations."""

    def _single_round_grid(self, grid: Grid) -> Grid:
        """Return the grid of a single round, with a cell for each year if the noise is small."""
        has_yearly_cells = self.noise <= _YEARLY_NOISE and not pa.types.is_duration(self.type)
        years = {_year_start(self.type, year) for year in range(*YEARS)} if has_yearly_cells else set()
        return Grid(tuple(sorted(years | set(grid.edges))), grid.least, grid.most)

    def inner(self) -> Space:
        """Return the space between the inferred bounds, or a public one without them: a century, or a day."""
        edges = self._find_bounds()
        if edges is None:
            day = 1 if pa.types.is_date32(self.type) else _ticks_per_day(self.type)
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
        day = _ticks_per_day(self.type)
        step = next((unit for unit in (day, day // 24) if high - low > 100 * unit), 1)
        return low // step * step, -(-high // step) * step


def _clamp(edge: Edge, grid: Grid) -> int:
    """Return an edge within the limits of the type, as a whole number."""
    return int(min(max(edge, grid.least), grid.most))


def friendly(low: Edge, high: Edge, parts: int = 20) -> tuple[Edge, Edge]:
    """Return bounds moved outwards to multiples of 1, 2 or 5 times a power of ten.

    Each bound moves by at most one part of the width, of ``parts`` parts.
    """
    width = high - low
    if not 1e-290 < width < math.inf:
        return low, high
    power = math.floor(math.log10(width / parts))
    step = next((m * 10.0**power for m in (5, 2) if m * 10.0**power <= width / parts), 10.0**power)
    if isinstance(low, int) and isinstance(high, int):
        whole_step = max(1, int(step))
        return low // whole_step * whole_step, -(-high // whole_step) * whole_step
    if not math.isfinite(max(abs(low), abs(high)) / step):
        return low, high
    lower, upper = math.floor(low / step), math.ceil(high / step)
    # Fractions by their inverse: 0.1 is no float, 10 is.
    return (lower * step, upper * step) if power >= 0 else (lower / (1 / step), upper / (1 / step))
