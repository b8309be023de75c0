"""First grids of numbers and times: public cells, by only the type of the values."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.inference.cells import Grid

YEARS = (1900, 2041)
"""Years that numbers may be: a single round counts them by decades (tuned; effect not measured)."""

_MAX_INT64 = 2**63 - 1
"""Largest signed whole number of 64 bits (limit of the format)."""


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
            year_start(type_, year) for year in (1, 1000, 1500, 1700, *range(1800, 2201, 10), 2300, 2500, 3000, 10_000)
        ]
    else:
        edges = [*(1 - 2**i for i in range(63, -1, -1)), *(2**i for i in range(63))]
    return Grid(tuple(edge for edge in edges if min_int < edge < max_int), min_int, max_int)


def single_round_grid(grid: Grid) -> Grid:
    """Return the grid of a single round: doublings of usual sizes, each in two cells.

    Amounts of millions to billions have whole doublings. Others have cells 256-fold wide: empty cells cost no budget,
    but add noise to sums across them. Truth values need cells for 0 and 1, and years need cells of decades.
    """
    is_whole, to_number = grid.whole, int if grid.whole else float
    usual_sizes = [math.ldexp(1.0, power) for power in range(-8, 21)]
    amounts = [math.ldexp(1.0, power) for power in range(21, 37)]
    coarse_sizes = [math.ldexp(1.0, power) for power in (*range(-48, -8, 8), *range(28, 64, 8))]
    part_edges = [(low + high) / 2 for low, high in pairwise(usual_sizes)]
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


def year_start(type_: pa.DataType, year: int) -> int:
    """Return the start of a year in a type's unit, since 1970."""
    days = int(np.datetime64(f"{year:04d}-01-01", "D").astype(np.int64))
    return days * ticks_per_day(type_) if not pa.types.is_date32(type_) else days


def time_unit(type_: pa.DataType) -> str:
    """Return the unit of a type of times."""
    return "D" if pa.types.is_date32(type_) else "ms" if pa.types.is_date64(type_) else str(type_.unit)


def ticks_per_day(type_: pa.DataType) -> int:
    """Return the number of a type's time units in a day."""
    return 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[time_unit(type_)]
