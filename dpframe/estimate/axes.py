"""Axes of a joint: a column of few values as it is, or a numeric column cut into bins.

An axis has *cells*, in which results are given, and *classes*, in which released codes are counted. On a column of few
values both are its codes. In bins, a class is a stretch of codes on which the surrogates of all bins' indicators are
constant. A mechanism with a local inverse has at most three classes per bin; with other mechanisms every code is a
class. Crossed columns that were randomised together have their cells as classes, because their common channel is
inverted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.errors import ColumnError, DpframeWarning, ParameterError, warn
from dpframe.estimate.evidence.law import Law
from dpframe.observe.cells import Cells
from dpframe.plan.columns import Column, Group
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.base import affine_map, forwarded, numbers_of
from dpframe.spaces.stretches import first_codes, given_instant, has_one_reading
from dpframe.spaces.times import CALENDAR

MAX_UNBINNED_VALUES = 4097
"""Largest number of values of a column that enters a joint without bins (limit of memory)."""


def in_zone(instants: npt.NDArray[Any], zone: str) -> pd.DatetimeIndex:
    """Return points in time in a zone, clipped to the zone's calendar."""
    first, last = CALENDAR
    inner_days = np.array([first, last]) + np.array([1, -1], dtype="timedelta64[D]")
    offsets = pd.DatetimeIndex(inner_days, tz="UTC").tz_convert(zone).tz_localize(None).to_numpy() - inner_days
    zero = np.timedelta64(0, "us")
    # A zone's calendar begins later in UTC if the zone is behind, and ends earlier if it is ahead.
    clipped = np.clip(instants, first - min(offsets[0], zero), last - max(offsets[1], zero))
    return pd.DatetimeIndex(clipped, tz="UTC").tz_convert(zone)


@dataclass(frozen=True)
class NoiseBlock:
    """Noise of columns that were randomised together.

    With probability s, the ``signal``, a row keeps its tuple of codes, else all tuples are equally likely. So a
    function f of the tuple, with the mean f̄ over all tuples, has at a released tuple y the surrogate

        φ_f(y) = (f(y) − (1 − s)·f̄)/s,

    which is (f − pΣf)/s with p the probability of any wrong tuple. The signal s is a constant of the group, whichever
    of its columns f depends on. Estimates and models need sums of φ over rows, and sums of products of two φ.
    """

    signal: float

    @classmethod
    def of(cls, group: Group) -> NoiseBlock:
        """Return the noise of a group."""
        return cls(group.mechanism.table.signal)

    def sums(self, values: Any, mean: Any, rows: Any = 1) -> FloatArray:
        """Return Σ φ_f over some rows, from Σ f over them, f̄, and their number."""
        return np.asarray((values - (1 - self.signal) * mean * rows) / self.signal)

    def pair(self, counts: FloatArray, law: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the unbiased counts of a pair's cells, and their noise variance given the table.

        A cell keeps its rows with probability s + (1 − s)·law, and gains other rows with probability (1 − s)·law. Its
        number of rows is unknown: the variance takes the product of the margins.
        """
        n = max(float(counts.sum()), 1.0)
        unbiased_counts = self.sums(counts, law, n)
        # Unbiased margins may be negative; half a row at least keeps their products positive.
        margins = [np.maximum(unbiased_counts.sum(axis=1 - i), 0.5) for i in range(2)]
        rows = np.minimum(np.outer(*margins) / n, n)
        keep_probability, gain_probability = self.signal + (1 - self.signal) * law, (1 - self.signal) * law
        variances = rows * keep_probability * (1 - keep_probability) + (n - rows) * gain_probability * (
            1 - gain_probability
        )
        return unbiased_counts, np.maximum(variances, 1e-3 * np.maximum(rows, 0.5)) / self.signal**2

    def products(self, both: Any, values: tuple[Any, Any], means: tuple[Any, Any], rows: Any) -> FloatArray:
        """Return Σ φ_f·φ_g over some rows, from Σ f·g, (Σ f, Σ g), (f̄, ḡ), and their number."""
        (f, g), (mean_f, mean_g) = values, ((1 - self.signal) * mean for mean in means)
        return np.asarray((both - mean_g * f - mean_f * g + mean_f * mean_g * rows) / self.signal**2)

    def squares(self, second: Any, values: Any, mean: Any, rows: Any) -> FloatArray:
        """Return Σ φ_f² over some rows, from Σ f², Σ f, f̄, and their number."""
        return self.products(second, (values, values), (mean, mean), rows)

    def spread(self, shares: Any, total: Any, law: Any) -> FloatArray:
        """Return the distribution of released cells from true ``shares``; ``law`` has the shares of all tuples."""
        return np.asarray(self.signal * shares + (1 - self.signal) * law * total)


@dataclass(frozen=True)
class Axis(Cells):
    """One side of a joint: the cells of a column, classes, and the channel between them.

    In a joint with other columns of its ``group`` the classes are its cells: a γ-diagonal channel releases all wrong
    tuples with equal probability.
    """

    column: Column
    group: Group | None = field(default=None, kw_only=True)
    zone: str | None = field(default=None, kw_only=True, compare=False)
    """Time zone in which labels are shown."""

    name: ClassVar[str] = forwarded("column.name")

    @property
    @abstractmethod
    def channel(self) -> FloatArray:
        """P(class | cell), shape (classes, cells), for uniform values within a bin."""

    @property
    @abstractmethod
    def surrogates(self) -> FloatArray:
        """Φ, the surrogates of the cells' indicators, shape (cells, classes)."""

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return Σ_classes counts·Φ (or Φ²) along axis 0."""
        return np.asarray(np.tensordot(self.surrogates**2 if squared else self.surrogates, counts, axes=1))

    @property
    def noise(self) -> NoiseBlock:
        """The noise of the group."""
        assert self.group is not None
        return NoiseBlock.of(self.group)

    @property
    def law(self) -> FloatArray:
        """The share of the column's codes in every cell."""
        return self.volumes / self.column.space.size

    @property
    def not_null(self) -> FloatArray:
        """1 for cells of values and special values, 0 for null's."""
        return (np.arange(self.cells) < self.cells - self.has_null).astype(np.float64)

    @cached_property
    def present(self) -> FloatArray:
        """Surrogate of "not null", per class."""
        return np.asarray(self.not_null @ self.surrogates)

    @property
    def own_cells(self) -> FloatArray | None:
        """Matrix onto an indicator's own two cells, if the cells count several indicators; None for other columns."""
        return None

    def parts_of(self, share_of_cells: Callable[[IntArray], FloatArray]) -> FloatArray:
        """Return the part of each cell that meets a condition, given the function from the ends of cells to parts."""
        return share_of_cells(self.ends)

    @property
    def inverts(self) -> bool:
        """Whether counts of the cells have an unbiased estimate from rows; else they are fitted."""
        return not self.column.mechanism.releases_outside_bounds or self.cells - self.flag_codes == 1

    @property
    def is_number(self) -> bool:
        """Whether the column is a grid of numbers or times, which may have heaps below the noise."""
        return self.column.space.is_numeric and not self.column.space.is_listed

    @property
    def ends(self) -> IntArray:
        """First code of each cell that is not null, and the code after the last; by default a cell has one code."""
        return np.arange(self.column.space.values + 1, dtype=np.int64)

    @property
    @abstractmethod
    def labels(self) -> pd.Index[Any]:
        """Label of every cell."""

    @property
    def volumes(self) -> FloatArray:
        """Number of codes in every cell, 1 in the flag's."""
        return np.append(self.widths, [1.0] * self.flag_codes)

    @abstractmethod
    def cell_of(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the cell of codes."""

    @property
    def grid(self) -> BinnedAxis | None:
        """The bins, if the column is cut into any."""
        return None

    @property
    def for_fits(self) -> Axis:
        """The axis with as few classes as a fit to counts of them needs, and without surrogates."""
        return self

    has_null: ClassVar[bool] = forwarded("column.space.has_null")

    flag_codes: ClassVar[int] = forwarded("column.space.flag_codes")
    """Number of cells of the flag: special values and null."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """Number of classes."""

    @abstractmethod
    def classify(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the class of released codes."""


@dataclass(frozen=True)
class ListedAxis(Axis):
    """A column of few values: cells are its codes, and so are classes, unless noise goes beyond them."""

    cells: ClassVar[int] = forwarded("column.space.size")

    @property
    def labels(self) -> pd.Index[Any]:
        """The values."""
        if self.zone is None:
            listed: pd.Index[Any] = pd.Index(self.column.space.labels(), name=self.name)
            return listed
        instants = self.column.space.instants(numbers_of(self.column.space, np.arange(self.bins)))
        null = np.full(int(self.has_null), "NaT", dtype="datetime64[us]")
        special = self.column.space.special_labels
        if special:
            zoned = in_zone(instants, self.zone)
            return pd.Index([*zoned, *special, *[pd.NaT] * self.has_null], dtype=object, name=self.name)
        index: pd.Index[Any] = in_zone(np.append(instants, null), self.zone).rename(self.name)
        return index

    def cell_of(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the codes."""
        return codes.astype(np.int64, copy=False)

    @cached_property
    def _unit_bins(self) -> BinnedAxis | None:
        """Bins of one code each if noise widens the range of codes, so that classes are stretches; else None."""
        edges = tuple(range(self.column.space.values + 1))
        return BinnedAxis(self.column, edges, ()) if self.column.mechanism.releases_outside_bounds else None

    @property
    def classes(self) -> int:
        """Number of codes, or of stretches of released ones."""
        return self.cells if self._unit_bins is None else self._unit_bins.classes

    def classify(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the codes, or the stretches that they lie in."""
        return self.cell_of(codes) if self._unit_bins is None else self._unit_bins.classify(codes)

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return A⁻¹ (or its squared entries) applied along axis 0."""
        return self.column.mechanism.invert(counts, squared=squared)

    @property
    def surrogates(self) -> FloatArray:
        """A⁻¹, which in most channels has a closed form."""
        return self.invert(np.eye(self.classes))

    @cached_property
    def present(self) -> FloatArray:
        """Surrogate of "not null", per code."""
        return self.column.mechanism.surrogate(self.not_null)

    @cached_property
    def channel(self) -> FloatArray:
        """The transition matrix."""
        if self.group is not None:
            return self.noise.spread(np.eye(self.cells), 1.0, self.law[:, None])
        return self.column.mechanism.transition() if self._unit_bins is None else self._unit_bins.channel


@dataclass(frozen=True)
class UnreleasedAxis(ListedAxis):
    """A column that tables count and released rows do not have: all of its rows are in one class."""

    @property
    def inverts(self) -> bool:
        """Return False: rows say nothing of the cells."""
        return False

    @property
    def classes(self) -> int:
        """The one class."""
        return 1

    def classify(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the one class for each code."""
        return np.zeros(len(codes), dtype=np.int64)

    @cached_property
    def channel(self) -> FloatArray:
        """P(class | cell), which is 1."""
        return np.ones((1, self.cells))


@dataclass(frozen=True)
class IndicatorAxis(UnreleasedAxis):
    """An indicator by the cells of the column that counts it with others, which are finer than its own two.

    ``column`` is the counted column, ``listed`` the indicator's own axis, and ``onto`` the matrix from the cells of the
    one to the cells of the other.
    """

    listed: ListedAxis = field(kw_only=True)
    onto: FloatArray = field(kw_only=True, compare=False)

    name: ClassVar[str] = forwarded("listed.name")

    own_cells: ClassVar[FloatArray] = forwarded("onto")

    def parts_of(self, share_of_cells: Callable[[IntArray], FloatArray]) -> FloatArray:
        """Return the part of each cell that meets a condition on the indicator."""
        return share_of_cells(self.listed.ends) @ self.onto

    def overlap_with(self, other: Cells) -> FloatArray:
        """Return the part of each cell within each of the indicator's cells, shape (other cells, cells)."""
        return np.eye(self.cells) if other is self else self.listed.overlap_with(other) @ self.onto

    def has_cells_of(self, other: Cells) -> bool:
        """Return whether the other cells are these: those of the indicator are coarser."""
        return other is self

    @cached_property
    def middles(self) -> FloatArray:
        """The indicator's code in every cell."""
        return np.asarray(np.arange(self.listed.cells) @ self.onto)

    @cached_property
    def within(self) -> FloatArray:
        """Variance of the indicator's codes within every cell: 0."""
        return np.zeros(self.cells)


@dataclass(frozen=True)
class BinnedAxis(Axis):
    """A numeric column cut into bins of consecutive codes; ``edges`` are the bins' first codes and the end.

    A ``pooled`` axis counts released codes by halves of bins, which carry nearly all information for a fit.
    """

    edges: tuple[int, ...]
    bounds: tuple[Any, ...]
    pooled: bool = False

    @property
    def ends(self) -> IntArray:
        """The bins' first codes and the end."""
        return np.array(self.edges, dtype=np.int64)

    @property
    def grid(self) -> BinnedAxis:
        """The axis itself."""
        return self

    def cell_of(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the bin that a code lies in; special values and null have the cells after the bins."""
        bins = np.searchsorted(self.edges, codes, side="right") - 1
        return bins + np.maximum(codes.astype(np.int64) - self.edges[-1], 0) if self.flag_codes else bins

    @property
    def cells(self) -> int:
        """Number of bins, and one for each code of the flag."""
        return self.bins + self.flag_codes

    @cached_property
    def class_starts(self) -> npt.NDArray[np.int64]:
        """First code of every class; surrogates of cells are constant within a class, unless the axis is pooled."""
        edges = self.ends
        if self.group is not None:
            return np.append(edges[:-1], edges[-1] + np.arange(self.flag_codes))
        if not self.pooled or self.column.mechanism.releases_outside_bounds:
            return self.column.mechanism.changes(edges).astype(np.int64)
        # Noise is clipped to the grid's two end codes: each is a class of its own.
        starts = np.unique(np.concatenate([edges[:-1], (edges[1:] + edges[:-1]) // 2, [1, self.edges[-1] - 1]]))
        return np.concatenate([starts[starts < self.edges[-1]], edges[-1] + np.arange(self.flag_codes)])

    @property
    def for_fits(self) -> BinnedAxis:
        """The axis, pooled."""
        return replace(self, pooled=True)

    @property
    def classes(self) -> int:
        """Number of stretches of codes, and one for each code of the flag."""
        return len(self.class_starts)

    @property
    def labels(self) -> pd.Index[Any]:
        """The bins as intervals closed on the left (the last one on both sides), special values and null."""
        intervals = self.intervals(self.bounds)
        if self.flag_codes > self.has_null:
            special = self.column.space.special_labels
            return pd.Index([*intervals, *special, *[np.nan] * self.has_null], dtype=object, name=self.name)
        return intervals.append(pd.Index([np.nan])).rename(self.name) if self.has_null else intervals

    def intervals(self, bounds: Sequence[Any]) -> pd.IntervalIndex[Any]:
        """Return the intervals between bounds, those between times in the zone."""
        space = self.column.space
        instants = np.array(bounds, dtype=space.instants(np.zeros(1)).dtype)
        breaks = instants if self.zone is None else in_zone(instants, self.zone)
        return pd.IntervalIndex.from_breaks(breaks, closed="left", name=self.name)

    def classify(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the stretch that a code lies in."""
        table = self._class_table
        return np.searchsorted(self.class_starts, codes, side="right") - 1 if table is None else table[codes]

    @cached_property
    def _class_table(self) -> npt.NDArray[np.int64] | None:
        """Class of every released code, or None for many codes."""
        released = self.column.mechanism.outputs
        # A table is faster than a search per row, but takes memory for every code.
        if released > 1 << 22:
            return None
        return np.searchsorted(self.class_starts, np.arange(released), side="right") - 1

    @cached_property
    def surrogates(self) -> FloatArray:
        """Φ, the surrogate of every cell's indicator, at the first code of a class."""
        assert not self.pooled, "pooled classes have no surrogates"
        values = np.empty((self.cells, self.classes))
        for cell in range(self.cells):
            low, high = (int(ends[cell]) for ends in self.stretches)
            values[cell] = self.column.mechanism.surrogate_at(_make_indicator(low, high), self.class_starts)
        return values

    def mean_squares(self, law: Law) -> FloatArray:
        """Return the mean squared surrogate of every cell for rows with the distribution ``law``."""
        released = self.column.mechanism.between(law.edges, self.class_starts) @ law.shares
        return np.asarray(self.surrogates**2 @ released)

    def refine(self, cells: int) -> BinnedAxis:
        """Return the axis with every bin cut into equal parts, about ``cells`` in all."""
        parts = max(1, cells // self.bins)
        cuts = [np.rint(np.linspace(a, b, parts + 1)[:-1]) for a, b in pairwise(self.edges)]
        # Cuts coincide in bins with fewer codes than parts.
        edges = np.unique(np.concatenate([*cuts, [self.edges[-1]]]).astype(np.int64))
        return replace(self, edges=tuple(edges.tolist()), bounds=())

    @cached_property
    def channel(self) -> FloatArray:
        """P(class | cell)."""
        if self.group is not None:
            return self.noise.spread(np.eye(self.cells), 1.0, self.law[:, None])
        return self.column.mechanism.between(np.array(self.edges), self.class_starts)


def _make_indicator(low: int, high: int) -> Callable[[npt.NDArray[Any]], FloatArray]:
    """Return the indicator of codes from ``low`` to below ``high``."""
    return lambda codes: np.asarray((codes >= low) & (codes < high), dtype=np.float64)


def bin_edges(column: Column, bins: int | Sequence[Any]) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """Return first codes and bounds of bins: equal ones by number, or given by their bounds in order.

    The outer bins reach to the bounds of the space, which no value exceeds. The last bin ends a step beyond the upper
    bound, because its interval is closed on the left only. Given bounds next beyond the space's bounds label the outer
    bins, which have the clipped rows.
    """
    space = column.space
    size = space.values
    if isinstance(bins, int | np.integer):
        if isinstance(bins, bool) or not 1 <= bins <= max(size, MAX_UNBINNED_VALUES):
            raise ParameterError(
                f"bins must be from 1 to {min(size, MAX_UNBINNED_VALUES)} for column {column.name!r}, or bounds"
            )
        edges = np.unique(np.rint(np.linspace(0, size, min(int(bins), size) + 1)).astype(np.int64))
    elif isinstance(bins, Iterable) and not isinstance(bins, str | Set):
        codes = _codes_of_bounds(column, list(bins))
        edges = np.concatenate([[0], codes[(codes > 0) & (codes < size)], [size]])
    else:
        months = ", e.g. pd.date_range(START, END, freq='MS') for months" if space.is_time else ""
        raise ParameterError(f"bins of column {column.name!r} must be a whole number or a list of bounds{months}")
    numbers = numbers_of(space, np.array([*edges[:-1], size - 1]))
    if not space.is_whole and not space.is_time and not isinstance(bins, int | np.integer):
        # Labels show bounds between steps as given: no value lies between such a bound and the next step.
        bound_of_code = dict(zip(codes.tolist(), np.asarray(list(bins), dtype=np.float64).tolist(), strict=True))
        pairs = zip(edges.tolist(), numbers.tolist(), strict=True)
        numbers = np.array([bound_of_code.get(edge, number) if 0 < edge < size else number for edge, number in pairs])
    if size > 1:
        numbers = np.append(numbers[:-1], numbers[-1] + affine_map(space)[1])
    labels = space.instants(numbers).tolist()
    if not isinstance(bins, int | np.integer):
        below, above = _outer_bounds(column, list(bins), codes)
        labels[0], labels[-1] = min([labels[0], *below[-1:]]), max([labels[-1], *above[:1]])
    return tuple(edges.tolist()), tuple(labels)


def as_asked(table: pd.DataFrame, axis: BinnedAxis, bounds: list[Any]) -> pd.DataFrame:
    """Return a table with exactly the bins between the given bounds; bins beyond the space's bounds are NaN.

    Rows between the outer given bounds and the space's bounds are omitted, as by `numpy.histogram`.
    """
    column = axis.column
    below, above = _outer_bounds(column, bounds, _codes_of_bounds(column, bounds))
    inner_rows = table.iloc[int(not below) : len(table) - int(not above)]
    inner = axis.bounds[int(not below) : len(axis.bounds) - int(not above)]
    # Intervals come in three parts: the bin at the space's upper bound ends a step beyond this bound, but the next bin
    # begins at the given bound.
    parts = [axis.intervals(part) for part in (below, inner, above)]
    index = parts[0].append(parts[1:]).rename(axis.name)
    values = np.full((len(index), inner_rows.shape[1]), np.nan)
    # Bounds at or below the space's lower bound enclose len(below) − 1 bins without values, which stay NaN.
    first = max(0, len(below) - 1)
    values[first : first + len(inner_rows)] = inner_rows.to_numpy()
    all_bins = pd.DataFrame(values, index=index, columns=inner_rows.columns)
    all_bins.attrs = table.attrs
    if len(all_bins) > len(inner_rows):
        warn(
            f"bins beyond the bounds of column {column.name!r} are NaN: values there were clipped to the nearest "
            "bound; read the bin next to it",
            DpframeWarning,
        )
    return all_bins


def _outer_bounds(column: Column, bounds: list[Any], codes: IntArray) -> tuple[list[Any], list[Any]]:
    """Return the bounds of bins at or below a space's lower bound, and the bounds at or above its upper bound."""
    below, above = int((codes <= 0).sum()), int((codes >= column.space.values).sum())
    space = column.space.inner_space
    values = [given_instant(space, bound) if space.is_time else float(bound) for bound in bounds]
    return values[:below], values[len(bounds) - above :]


def _codes_of_bounds(column: Column, bounds: list[Any]) -> npt.NDArray[np.int64]:
    """Return the codes of ordered bounds, clipped to the space; raise `ParameterError` for other bounds."""
    space: Any = column.space.inner_space
    if space.is_time and not all(has_one_reading(space, bound) for bound in bounds if isinstance(bound, str)):
        raise ParameterError(f"bins of column {column.name!r} must name times as ISO text, e.g. '2020-01-31'")
    try:
        if space.is_time:
            bounds = [given_instant(space, bound) if isinstance(bound, str) else bound for bound in bounds]
        # Called only for its errors: a bound must be a value of the column's type.
        space.encode(bounds)
        codes = first_codes(space, bounds)
        numbers = [] if space.is_time else [float(bound) for bound in bounds]
    # Whole numbers may be beyond all floats.
    except (ColumnError, ParameterError, TypeError, ValueError, OverflowError):
        codes = None
    if codes is None:
        raise ParameterError(f"bins of column {column.name!r} must be a number or values of it in order")
    if numbers and space.is_numeric and not space.is_listed:
        clipped = np.clip(numbers, space.lower, space.upper)
        if ((np.diff(clipped) > 0) & (np.diff(codes) == 0)).any():
            raise ParameterError(
                f"bins of column {column.name!r} are closer together than its values; take bounds at least "
                f"{space.step:.6g} apart"
            )
    # Bounds beyond the space share its outer codes, so that only the inner codes must differ.
    inner = codes[(codes > 0) & (codes < space.size)]
    if len(bounds) < 2 or (np.diff(codes) < 0).any() or len(np.unique(inner)) < len(inner):
        raise ParameterError(f"bins of column {column.name!r} must be two or more bounds in ascending order")
    return np.asarray(codes)


def make_axis(column: Column, bins: int | Sequence[Any] | None, zone: str | None = None) -> Axis:
    """Return the axis of a column, binned if asked, with labels of times in a zone."""
    if column.space.code_words:
        raise ParameterError(
            f"column {column.name!r} holds {column.space.noun}, which are not counted as values; ask for "
            f"{column.space.instead}"
        )
    listed = column.space.is_listed or column.space.size <= MAX_UNBINNED_VALUES
    if bins is None:
        if not listed:
            raise ParameterError(
                f"column {column.name!r} has {column.space.size:,} values; give bins=10, "
                f"or of several columns bins={{{column.name!r}: 10}}"
            )
        return ListedAxis(column, zone=zone)
    if not column.space.is_numeric or column.space.metric == "discrete":
        raise ParameterError(f"column {column.name!r} holds no numbers and takes no bins")
    return BinnedAxis(column, *bin_edges(column, bins), zone=zone)


def check_inverts(axes: Iterable[Axis], remedy: str) -> None:
    """Raise `ParameterError` for an axis whose cells have no unbiased counts, naming the column and a remedy."""
    for axis in axes:
        if not axis.inverts:
            raise ParameterError(
                f"column {axis.name!r} has gaussian noise, which leaves no counts of its values without bias; {remedy}"
            )


def join_axes(axes: Sequence[Axis], groups: Sequence[Group]) -> list[Axis]:
    """Return axes with their group set, for groups of which several axes are members."""
    joined = list(axes)
    for group in groups:
        members = [i for i, axis in enumerate(axes) if axis.name in group.names]
        if len(members) > 1:
            for i in members:
                joined[i] = replace(axes[i], group=group)
    return joined
