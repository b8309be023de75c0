"""What private inference did not find, judged from its noisy counts alone.

A plan holds the counts that inference measured, the noise's variance and the number of rows. From these follow the
share of the rows present that the space found does not hold, and its standard error; all of it is post-processing, and
costs nothing. A column is *not found* where that share is more than a fifth by two standard errors, or may be more than
three fifths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.arrays import FloatArray
from dpframe.plan.columns import Column
from dpframe.plan.inferred import Inferred, Measured
from dpframe.plan.nested_counts import Layer, fit_layers
from dpframe.spaces import Space

MOST_OUTSIDE = 0.2
"""Share of the rows that may lie in ``other``, or beyond a bound."""

MOST_UNSEEN = 0.6
"""Share of the rows that may lie there for all that counts say; estimates have it in their intervals."""

MOST_BESIDE_SPIKE = 0.05
"""The same of a column that has most of its rows in one cell: how far the others lie is not known from it."""

_SPIKE = 0.6
"""Share of the rows in one cell from which on a column's others are few."""

_SURELY = 3.0
"""Standard errors by which others than a spike's rows are there beyond doubt."""

_RUNS, _FALSE_ALARM = (1, 2, 3, 4, 6, 8), 0.01
"""Numbers of neighbouring cells that are looked at together, and the chance that noise alone passes for rows."""

POINT = 1e-12
"""Width of a cell of floats that holds a single number, in parts of it."""

_CHANCE = 3.75
"""Standard errors that rows within bounds must show: bounds were chosen among hundreds."""

ERRORS = 2.0
"""Standard errors by which the rows that bounds leave out must lie below that share."""


@dataclass(frozen=True)
class NotFound:
    """A column whose space private inference did not find.

    ``why`` says on which grounds, and ``placeholder`` is the form of a declaration, with no value of the data.
    ``times`` is by how much more ε the column is about to be found: inferred anew with that much, it is found four
    times in five. None where what it needs is more, or does not show in its counts.
    """

    column: str
    why: str
    placeholder: str
    times: float | None = None


def judge(inferred: Inferred, columns: Sequence[Column], n: int) -> tuple[NotFound, ...]:
    """Return the columns of a plan for ``n`` rows whose spaces inference did not find, in the plan's order.

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> from dpframe.accounting.budget import Budget
    >>> counts = Measured("sex", "values", ("F", "M"), (300, 310), 400.0)
    >>> inferred = Inferred(Budget(0.1, 1e-7), ("sex",), (counts,), (("sex", 100),))
    >>> plan = build_plan({"sex": ["F", "M", "other"]}, epsilon=1.0, n=1_000, inferred=inferred)
    >>> [(missing.column, missing.why) for missing in judge(inferred, plan.columns, 1_000)]
    [('sex', 'more than a fifth of the rows seems to hold other values')]
    """
    return judge_spaces(inferred, {column.name: column.space for column in columns}, n)


def judge_spaces(inferred: Inferred, spaces: Mapping[str, Space], n: int) -> tuple[NotFound, ...]:
    """Return the same of columns with these spaces, of which there need be no plan yet."""
    findings = []
    for name, space in spaces.items():
        known = [m for m in inferred.measured if m.column == name and _counts_of(m, space)]
        mine = [measured for measured in known if measured.kind == known[-1].kind]
        rule = _RULES.get(mine[-1].kind) if mine and n > 0 and name in inferred.columns else None
        missing = None if rule is None else rule(tuple(mine), space, n)
        if missing is not None:
            findings.append(NotFound(name, missing.why, _placeholder(space), missing.times))
    return tuple(findings)


def _counts_of(measured: Measured, space: Space) -> bool:
    """Tell whether counts can be of a space's values: a plan may be edited, and another space put in its place."""
    inner = space.inner_space
    if measured.kind == "norms":
        return inner.holds_vectors
    bounded = (inner.is_numeric or inner.is_time) and not inner.is_listed
    return measured.kind != "intervals" or (bounded and inner.is_time == (measured.unit is not None))


@dataclass(frozen=True)
class _Missing:
    why: str
    times: float | None = None


# Every face of a release reads its plan anew, and asks this of it.
@lru_cache(maxsize=1024)
def _beyond_bounds(measured: tuple[Measured, ...], space: Space, n: int) -> _Missing | None:
    share, error = share_outside(measured, space, n)
    if share - ERRORS * error > MOST_OUTSIDE:
        return _Missing("more than a fifth of the rows lies beyond its bounds", _TIMES[1])
    if (share - error / 2 > MOST_BESIDE_SPIKE and _spiky(measured, n)) or _hides_others(measured, space, n):
        why = "one value has most of the rows, and where the others lie does not stand out of the noise"
        return _Missing(why, _TIMES[1])
    needed = max(ERRORS * error / max(MOST_UNSEEN - share, 1e-9), _CHANCE * error / max(1 - share, 1e-9))
    if needed > 1:
        why = "its bounds rest on counts that do not stand out of their noise"
        # Errors fall with 1/ε. Half as much again, as the share that was drawn here is not the one drawn then.
        times = 1.5 * needed
        return _Missing(why, next((most for most in _TIMES if times <= most), None))
    return None


_TIMES = (1.5, 2.0, 3.0)
"""Factors of ε by which a column is said to be about to be found."""


def _spiky(measured: Sequence[Measured], n: int) -> bool:
    nulls = max(measured[-1].missing or 0, 0)
    return max(measured[-1].counts, default=0) > _SPIKE * max(n - nulls, 1)


def _hides_others(measured: Sequence[Measured], space: Space, n: int) -> bool:
    """Tell whether one value has most rows, others there are or may be, and none are seen between the bounds.

    How many rows one cell leaves to all others is known from its count and n, far better than from the sum of their
    own. Beside a cell around 0 the bounds were put where nothing was seen: between 0 and 1.
    """
    layers = [Layer((-math.inf, *m.cells, math.inf), m.counts, m.variance) for m in measured]
    counts, covariance = fit_layers(layers)
    ends = np.array(layers[-1].ends, dtype=np.float64)
    spike, whole = int(np.argmax(counts)), space.inner_space.is_whole or measured[-1].unit is not None
    width = ends[spike + 1] - ends[spike]
    single = width <= 1 if whole else width < POINT * abs(ends[spike]) or ends[spike] < 0 < ends[spike + 1]
    if not single or not _spiky(measured, n):
        return False
    others = n - (measured[-1].missing or 0) - counts[spike]
    error = math.sqrt(covariance[spike, spike] + (measured[-1].variance if measured[-1].missing is not None else 0.0))
    if others < _SURELY * error and others + ERRORS * error < MOST_BESIDE_SPIKE * n:
        return False
    inside = _inside(ends, space, measured[-1].unit) > 0
    inside[spike] = False
    return not _stands_out(counts, covariance, inside)


def _stands_out(counts: FloatArray, covariance: FloatArray, inside: npt.NDArray[np.bool_]) -> bool:
    """Tell whether some run of cells, among these, holds more than noise makes anywhere among them."""
    level = NormalDist().inv_cdf(1 - _FALSE_ALARM / (len(_RUNS) * max(int(inside.sum()), 1)))
    sums = np.concatenate([[0.0], np.cumsum(counts * inside)])
    spread = np.pad((covariance * np.outer(inside, inside)).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    for width in (width for width in _RUNS if width <= len(counts)):
        start = np.arange(len(counts) + 1 - width)
        stop = start + width
        variance = spread[stop, stop] - 2 * spread[start, stop] + spread[start, start]
        if (sums[stop] - sums[start] > level * np.sqrt(np.maximum(variance, 1e-300))).any():
            return True
    return False


def share_outside(measured: Sequence[Measured], space: Space, n: int) -> tuple[float, float]:
    """Return the estimated share of the rows present beyond a space's bounds, at least 0, and its standard error.

    Nulls lie outside, too, where the space holds none. All cells of a round, and the nulls, add up to n rows: of
    counts x with the covariance C that knowledge leaves x + C1·(n − 1ᵀx)/(1ᵀC1), and C − C11ᵀC/(1ᵀC1).
    """
    layers = [Layer((-math.inf, *m.cells, math.inf), m.counts, m.variance) for m in measured]
    counts, covariance = fit_layers(layers)
    outside = 1 - _inside(np.array(layers[-1].ends, dtype=np.float64), space, measured[-1].unit)
    nulls = [(m.missing, 1 / m.variance) for m in measured if m.missing is not None]
    if nulls:
        weight = sum(w for _, w in nulls)
        counts = np.append(counts, sum(count * w for count, w in nulls) / weight)
        covariance = np.pad(covariance, (0, 1))
        covariance[-1, -1] = 1 / weight
        outside = np.append(outside, float(not space.has_null))
    spread = covariance.sum(axis=1)
    counts = counts + spread * (n - counts.sum()) / spread.sum()
    covariance = covariance - np.outer(spread, spread) / spread.sum()
    variance = max(float(outside @ covariance @ outside), 0.0)
    # Of the rows that are not null, of which there is one at least.
    present = max(n - float(counts[-1]) if nulls and space.has_null else n, 1.0)
    return max(float(outside @ counts), 0.0) / present, math.sqrt(variance) / present


def _inside(ends: FloatArray, space: Space, unit: str | None) -> FloatArray:
    """Return the part of every cell that lies between a space's bounds, as if its rows were spread out evenly."""
    grid = space.inner_space
    low, high = bounds_of_counts(grid, unit)
    whole = grid.is_whole or unit is not None
    # Halved, as the difference of floats may be beyond them all; of whole numbers the last one is inside.
    starts, stops = ends[:-1] / 2, ends[1:] / 2
    with np.errstate(invalid="ignore"):
        shared = np.minimum(stops, (high + whole) / 2) - np.maximum(starts, low / 2)
        parts = np.where(np.isfinite(stops - starts), shared / (stops - starts), shared == stops - starts)
    if not whole:  # the cell of floats around 0 is 0 itself, where a bound may lie
        parts[(starts < 0) & (stops > 0)] = float(low <= 0 <= high)
        point = stops - starts < POINT * np.abs(starts)
        parts[point] = (low / 2 <= starts[point]) & (starts[point] <= high / 2)
    return np.clip(parts, 0.0, 1.0)


def bounds_of_counts(grid: Any, unit: str | None) -> list[float]:
    """Return a space's bounds as its column's counts have them: times in their unit, since 1970."""
    if grid.holds_vectors:
        return [0.0, float(grid.bound)]
    if unit is None:
        return [float(grid.lower), float(grid.upper)]
    times = np.asarray(grid.instants(grid.numbers(np.array([0, grid.size - 1]))))
    return [float(tick) / _MICROSECONDS[unit] for tick in times.astype(f"{times.dtype.kind}8[us]").astype(np.int64)]


_MICROSECONDS = {"D": 86_400_000_000, "s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1e-3}


def _other_values(measured: Sequence[Measured], space: Space, n: int) -> _Missing | None:
    (counts,) = measured[-1:]
    if not counts.cells:
        return _Missing("no value cleared the threshold")
    nulls = max(counts.missing or 0, 0) if space.has_null else 0
    if n - nulls - sum(counts.counts) > MOST_OUTSIDE * n:
        return _Missing("more than a fifth of the rows seems to hold other values")
    return None


def _no_items(measured: Sequence[Measured], space: Space, n: int) -> _Missing | None:
    return None if measured[-1].cells else _Missing("no item cleared the threshold")


def _no_kind(measured: Sequence[Measured], space: Space, n: int) -> _Missing | None:
    return _Missing("no kind of value that a space holds stood out of the noise")


def _no_length(measured: Sequence[Measured], space: Space, n: int) -> _Missing | None:
    return None if measured[-1].cells else _Missing("no length of lists stands out of the noise")


_RULES: dict[str, Callable[[Sequence[Measured], Space, int], _Missing | None]] = {
    "intervals": _beyond_bounds,
    "values": _other_values,
    "ranks": _other_values,
    "items": _no_items,
    "kinds": _no_kind,
    "lengths": _no_length,
    "norms": _beyond_bounds,
}
"""What is asked of a column, by the kind of its last counts; ``"nulls"`` alone need nothing to be found."""


def _placeholder(space: Space) -> str:
    inner = space.inner_space
    if inner.is_time:
        return "(FROM, TO)"
    return _DECLARATIONS.get(inner.tag, "SPACE")


_DECLARATIONS = {
    "integer": "(LOWER, UPPER)",
    "real": "(LOWER, UPPER)",
    "categorical": "[CATEGORY, …]",
    "ordinal": "[CATEGORY, …]",
    "subset": "Subset([ITEM, …])",
    "vector": "Vector(LENGTH, BOUND)",
    "curve": "Curve(GRID, BOUND, KERNEL, RANK)",
}
