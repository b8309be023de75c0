"""Levels: nested cells in which a number is counted, from 64 cells of about equal width down to single codes.

Real columns have heaps (40 hours), spikes (nine tenths zeros) and long tails, which cells of equal width hide. So the
next level divides the cells that exceed their noise. A row is in one cell of a level however many cells there are. So a
finer level costs no more than a coarse one (parallel composition within a histogram).

The bounds of the space and zero are cells of their own on every level: public, and the most frequent spikes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.spaces import Space
from dpframe.spaces.arrays import IntArray

FIRST_LEVEL_CELLS = 64
"""Cells of equal width on the first level (tuned; effect not measured)."""

FEW = 128
"""Most values of a number that is counted by its codes, without levels (tuned; effect not measured)."""

SPLIT_CELLS = 16
"""Cells that a cell of the level before is divided into; on the last level up to twice as many (tuned; effect not
measured)."""

MOST_PARENTS = 64
"""Most cells of a level that are divided: the heaviest (limit of memory)."""

DIVISION_THRESHOLD_SD = 4.0
"""Standard deviations of the noise above which a cell is divided: hardly any of a thousand empty cells is (tuned;
effect not measured)."""

FINEST_LEVEL_CELLS = 1 << 20
"""Most cells of equal width on the last level, whose exact counts are in memory (limit of memory)."""


def has_levels(space: Space) -> bool:
    """Return whether a column is counted in levels: a number, or a time, of more than 128 values."""
    return not space.code_words and not space.is_listed and space.is_numeric and space.values > FEW


def breaks(space: Space) -> IntArray:
    """Return the codes that begin a cell on every level: the space's bounds and zero are cells of their own."""
    codes = {1, space.values - 1}
    lowest_number = float(np.asarray(space.numbers(np.array([0])), dtype=np.float64)[0])
    # In floats, as in earlier releases: zero may be half way between two values, and cells must stay equal.
    place = -lowest_number / (lowest_number + float(space.step) - lowest_number)
    if not space.is_time and 0 < place < space.values - 1:
        codes |= {round(place), round(place) + 1}
    return np.array(sorted(start for start in codes if 0 < start < space.values), dtype=np.int64)


def level_sizes(space: Space) -> tuple[int, ...]:
    """Return the number of cells of equal width of every level, without the breaks."""
    finest, sizes = min(space.values, FINEST_LEVEL_CELLS), [FIRST_LEVEL_CELLS]
    while sizes[-1] * SPLIT_CELLS * 2 <= finest:
        sizes.append(sizes[-1] * SPLIT_CELLS)
    return (*sizes, finest)


def cells_between(space: Space, size: int, low: int, high: int) -> IntArray:
    """Return the first codes of a level's cells from one code, which begins a cell, to below another."""
    values = space.values
    # Integers, so that every machine finds equal cells.
    places = np.arange(low * size // values, -(-high * size // values) + 1, dtype=np.int64)
    starts = np.concatenate([[low], -(-places * values // size), breaks(space)])
    starts = np.sort(starts[(starts >= low) & (starts < high)])
    # As np.unique does, which hashes numbers that are all but sorted.
    return np.asarray(starts[np.append(True, starts[1:] != starts[:-1])[: len(starts)]], dtype=np.int64)


def stops_of(space: Space, size: int, starts: npt.ArrayLike) -> IntArray:
    """Return the ends of a level's cells that begin at these codes: the code after their last."""
    first_codes, values = np.asarray(starts, dtype=np.int64), space.values
    # −(−a // b) is a/b rounded up, without floats.
    ends = -(-(first_codes * size // values + 1) * values // size)
    next_breaks = np.append(breaks(space), values)
    return np.asarray(np.minimum(ends, next_breaks[np.searchsorted(next_breaks, first_codes, side="right")]))


def children(space: Space, level: int, parents: Sequence[int]) -> IntArray:
    """Return the first codes of a level's cells, 2 or more, within the divided cells of the level before."""
    sizes = level_sizes(space)
    before, size = sizes[level - 2], sizes[level - 1]
    ends = stops_of(space, before, list(parents)).tolist()
    parts = [cells_between(space, size, low, high) for low, high in zip(parents, ends, strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def place_of(codes: npt.NDArray[Any], space: Space, size: int) -> npt.NDArray[np.intp]:
    """Return the position of each code's cell among a level's cells; special values and null come after the last."""
    values = space.values
    if size >= values:
        return codes.astype(np.intp, copy=False)
    # Products of codes and sizes may exceed 31 bits.
    wide_codes = codes.astype(np.uint64) if values * size > 1 << 31 else codes.astype(np.int64)
    integer = wide_codes.dtype.type
    places = (wide_codes * integer(size) // integer(values)).astype(np.intp)
    level_breaks = breaks(space)
    # Those breaks at which no cell of equal width begins.
    level_breaks = level_breaks[-(-(level_breaks * size // values) * values // size) != level_breaks]
    for code in level_breaks.tolist():
        places += codes >= code
    if space.flag_codes:
        is_flag = codes >= values
        places[is_flag] = size + len(level_breaks) + codes[is_flag].astype(np.intp) - values
    return places


def divided(counts: npt.NDArray[Any], starts: IntArray, stops: IntArray, sigma: float) -> IntArray:
    """Return the first codes of the cells that the next level divides, the heaviest that exceed their noise."""
    candidates = np.flatnonzero((stops - starts > 1) & (counts >= DIVISION_THRESHOLD_SD * sigma))
    heaviest = candidates[np.argsort(-counts[candidates], kind="stable")[:MOST_PARENTS]]
    return np.asarray(starts[np.sort(heaviest)])
