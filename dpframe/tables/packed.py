"""Measured tables as compact binary in JSON: what the plan does not say of them, which is counts and quantiles.

Counts are written as zigzag numbers, all lowest bytes first, then the next ones: high bytes are zeros, which zlib makes
nothing of. A count takes about one byte and a half then, and a third more in base64.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dpframe.plan.levels import cells_between, children, level_sizes, stops_of
from dpframe.plan.measures import OF_SETS, Measure, MeasuredTable, way_starts
from dpframe.spaces import Space
from dpframe.spaces.cells import is_cut

Starts = tuple[int, ...] | None


def packed(tables: Sequence[MeasuredTable]) -> dict[str, Any]:
    """Return tables as a JSON object: the counts of all, and the cells of numbers that are cut at quantiles."""
    bins = {
        (name, table.measure.most): starts
        for table in tables
        if table.measure.kind == "joint" or table.measure.level > 1
        for name, starts in zip(table.measure.columns, table.starts, strict=True)
        if starts is not None
    }
    counts = np.concatenate([table.counts.ravel() for table in tables])
    zigzag = ((counts << 1) ^ (counts >> 63)).astype("<i8")
    planes = np.ascontiguousarray(zigzag.view(np.uint8).reshape(-1, 8).T).tobytes()
    return {
        "bins": [[name, most, list(starts)] for (name, most), starts in bins.items()],
        "counts": base64.b64encode(zlib.compress(planes)).decode(),
    }


def unpacked(data: Any, measures: Sequence[Measure], spaces: Mapping[str, Space]) -> tuple[MeasuredTable, ...] | None:
    """Read the tables of these measures back; None for anything else."""
    try:
        bins = {(name, most): tuple(starts) for name, most, starts in data["bins"]}
        blob = base64.b64decode(data["counts"], validate=True)
    except (TypeError, KeyError, ValueError, binascii.Error):
        return None
    levels = {(measure.columns[0], measure.most) for measure in measures if measure.level > 1}
    if not all(_ascends(starts, key in levels) for key, starts in bins.items()):
        return None
    starts = [_starts(measure, spaces, bins) for measure in measures]
    if any(found is None for found in starts):
        return None
    shapes = [_shape(measure, spaces, found or ()) for measure, found in zip(measures, starts, strict=True)]
    numbers = _numbers(blob, sum(map(math.prod, shapes)))
    if numbers is None:
        return None
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = np.split(numbers, ends)
    found = zip(measures, starts, parts, shapes, strict=True)
    return tuple(MeasuredTable(m, cells or (), part.reshape(shape)) for m, cells, part, shape in found)


def _ascends(starts: Iterable[Any], some: bool) -> bool:
    """Return whether these are first codes of cells, or of some of them, as far as that shows without the column."""
    codes = list(starts)
    whole = all(type(code) is int for code in codes)
    begins = some or bool(codes and codes[0] == 0)
    return bool(whole and begins and all(a < b for a, b in pairwise(codes)))


def _starts(
    measure: Measure, spaces: Mapping[str, Space], bins: Mapping[tuple[str, int], tuple[int, ...]]
) -> tuple[Starts, ...] | None:
    """Return the cells of a table's columns; None if those of one that is cut at quantiles are not there."""
    if measure.kind in ("sum", "vectors", *OF_SETS):
        return (None,) * len(measure.columns)
    found: list[Starts] = []
    for name in measure.columns:
        space = spaces[name]
        if measure.level > 1:
            parents = bins.get((name, measure.most))
            if parents is None or not _are_cells(parents, space, measure.level - 1):
                return None
            found.append(parents)
        elif measure.kind == "one_way" or not is_cut(space, measure.most):
            found.append(way_starts(measure, space))
        else:
            starts = bins.get((name, measure.most))
            if starts is None or len(starts) > measure.most or starts[-1] >= space.values:
                return None
            found.append(starts)
    return tuple(found)


def _are_cells(parents: Sequence[int], space: Space, level: int) -> bool:
    """Return whether codes are the first ones of cells of a level."""
    size = level_sizes(space)[level - 1]
    return all(0 <= a < space.values and cells_between(space, size, a, a + 1).tolist() == [a] for a in parents) and all(
        a == 0 or stops_of(space, size, [a - 1]).item() == a for a in parents
    )


def _shape(measure: Measure, spaces: Mapping[str, Space], starts: Sequence[Starts]) -> tuple[int, ...]:
    """Return the shape of a table's counts, which fewer cells than the measure allows may have."""
    most = measure.shape(spaces)
    if measure.kind == "vectors":
        return most
    if measure.level > 1:
        return (len(children(spaces[measure.columns[0]], measure.level, starts[0] or ())),)
    columns = zip(measure.columns, starts, most, strict=True)
    return tuple(size if own is None else len(own) + spaces[name].has_null for name, own, size in columns)


def _numbers(blob: bytes, count: int) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Return so many counts, or None if there are others."""
    reader = zlib.decompressobj()
    try:
        planes = reader.decompress(blob, 8 * count + 1)
    except zlib.error:
        return None
    if len(planes) != 8 * count or not reader.eof or reader.unused_data:
        return None
    words = np.ascontiguousarray(np.frombuffer(planes, dtype=np.uint8).reshape(8, count).T).view("<u8").ravel()
    words = words.astype(np.uint64)
    return np.asarray((words >> np.uint64(1)).astype(np.int64) ^ -(words & np.uint64(1)).astype(np.int64))
