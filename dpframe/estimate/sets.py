"""Columns of sets: supports of items and item sets, pairs of items, set sizes.

The indicator that a set has all or none of some items has a surrogate (`SetView`). The surrogate depends on how many of
the items the released set shows; null has a value of its own. All estimates here are sums of surrogates.

Measured set sizes give the share of items and pairs that truncation removed, and the expected number of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.accounting.bisection import bisected
from dpframe.channels.set_channel import Levels, SetView
from dpframe.errors import ParameterError
from dpframe.estimate.axes import Axis
from dpframe.estimate.evidence.combine import project
from dpframe.estimate.evidence.law import RowsLaw
from dpframe.estimate.surrogates import Batches, RatioSums, own_squares, pieces_by_class
from dpframe.observe.observation import truncated_normal_moments
from dpframe.plan.columns import Column
from dpframe.plan.measures import MeasuredTable
from dpframe.spaces import Subset
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import forwarded
from dpframe.spaces.cells import size_starts

MOST_PAIRED = 300
"""Items up to which all pairs are estimated (limit of time)."""


PRIOR = 0.3
"""Prior standard deviation of ρ, and of f about 1 without measured set sizes (tuned; halving and doubling change pairs
of made baskets and of a grocer's by about 0.1 standard errors)."""

UNEVEN = 1 / 3
"""Ratio of two standard deviations of the share that truncation keeps: among items, and among rows (tuned; half and
twice it change widths of supports of made baskets by −47 and 96 %).

Sets with one item have nearly the sizes of other sets: the ratio is 0.17 for the same 30 items, 0.25 for their pairs.
"""

_SIGNIFICANCE_SE = 2.5
"""Significance threshold of a cell of measured sizes, in standard errors (tuned; half and twice it change mean sizes of
made baskets by 0.6 and 0.9 standard errors, and widths of supports by up to 156 and −61 %)."""

_TAIL_FACTOR = 3.0
"""Number of tail cells that may have rows after the last significant cell, as a factor on 1 plus the mean excess
(tuned; half and twice it change mean sizes of made baskets by 1.3 standard errors, and intervals by −11 and 38 %).

Chosen on six kinds of baskets and reported on seven others.
"""

_SLOPE_START_SHARE = 0.75
"""Largest size that a tail's slope is fitted to, as a share of the first size below the noise (tuned; half and twice it
change widths of mean sizes of made baskets by up to 33 and 39 %)."""

_MAX_SUPPORT, _MAX_SCALE = 0.999, 2.0
"""Largest support, and largest κ, that are fitted (tolerance)."""
_SCALE_TOLERANCE = 1e-3
"""Relative width at which the bisection of κ stops, and the value that counts as 0 (tolerance)."""

_MAX_MATRIX_CELLS = 1 << 22
"""Largest number of cells of the matrix of true by released sizes (limit of memory)."""


@dataclass(frozen=True)
class Counted:
    """Sums over rows of surrogates U of an indicator, with W the surrogate of "not null", 1 if the column has no nulls.

    The first axis is the released class of a grouping column, if there is one.
    """

    sums: RatioSums
    rows: Any

    def share(self, normalize: bool, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return counts, or shares of the rows that are not null, and their variances."""
        if normalize:
            return self.sums.shares(sampling)
        n, value = np.maximum(self.rows, 1), np.asarray(self.sums.value, dtype=np.float64)
        squares_of_values = own_squares(self.sums.square, value**2 / n, sampling)
        return value, np.maximum(self.sums.value_squares - squares_of_values, 0.0)


@dataclass(frozen=True)
class SetColumn:
    """A column of sets, with its space and the surrogates of its channel."""

    column: Column
    space: Subset
    channel: SetView

    @classmethod
    def of(cls, column: Column) -> SetColumn:
        """Take a column, or raise `ParameterError` unless it holds sets."""
        if not column.space.holds_sets:
            remedy = f"value_counts({column.name!r}) counts its values"
            if column.space.holds_vectors:
                remedy = f"ask for {column.space.instead}"
            raise ParameterError(f"column {column.name!r} holds no sets; {remedy}")
        space: Any = column.space.inner_space
        mechanism: Any = column.mechanism
        return cls(column, space, mechanism.sets)

    @cached_property
    def single(self) -> Levels:
        """Surrogate of "holds the item", by whether it is shown."""
        return self.channel.holds_all(1)

    @cached_property
    def weights(self) -> tuple[float, float]:
        """Surrogate of "not null", of a released set and of a released null."""
        present = self.channel.holds_none(0)
        return float(present.values[0]), present.at_null

    @property
    def labels(self) -> list[Any]:
        """The items, in their order."""
        return self.space.listed.labels()

    def places(self, items: Any, name: str = "items") -> list[int]:
        """Return the numbers of named items, or raise `ParameterError`."""
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise ParameterError(f"{name} must be a list of items, e.g. {name}=[{self.labels[0]!r}]")
        members = list(items)
        try:
            places = [self.space.listed.labels().index(item) for item in members]
        except (TypeError, ValueError):  # not there, or cannot be compared
            places = []
        if not places or len(set(places)) < len(members):
            raise ParameterError(f"{name} must name declared items of column {self.column.name!r}, each once")
        return places

    def unpack(self, codes: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """Return the items of released codes, shape (rows, items), and the flags of null."""
        count = self.space.count
        rows = np.ascontiguousarray(codes, dtype="<u8").view(np.uint8)
        bits = np.unpackbits(rows, axis=1, bitorder="little")
        null = bits[:, count] > 0 if self.has_null else np.zeros(len(bits), dtype=np.bool_)
        return bits[:, :count], null

    has_null: ClassVar[bool] = forwarded("column.space.has_null")

    def tally(
        self, batches: Batches, of: Callable[[npt.NDArray[np.uint8]], FloatArray], group: Axis | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the sum of a function of the released items, and the numbers of sets and of nulls.

        The first axis is the released class of the column ``group``, of length 1 without a group.
        """
        classes = 1 if group is None else group.classes
        total = np.stack([of(np.zeros((0, self.space.count), dtype=np.uint8))] * classes)
        sets, nulls = np.zeros((2, classes))
        for class_code, codes in pieces_by_class(batches, self.column.name, group):
            bits, null = self.unpack(codes)
            total[class_code] += of(bits[~null])
            sets[class_code] += (~null).sum()
            nulls[class_code] += null.sum()
        return total, sets, nulls

    def counted(self, levels: Levels, counts: Sequence[Any], sets: Any, nulls: Any) -> Counted:
        """Return the sums of an indicator's surrogate, from the numbers of released sets at each level and of nulls."""
        parts = list(zip(levels.values.tolist(), counts, strict=True))
        of_sets = sum(value * count for value, count in parts)
        squares = sum(value**2 * count for value, count in parts)
        first, (w, w0) = of_sets + levels.at_null * nulls, self.weights
        crossed = w * of_sets + w0 * levels.at_null * nulls
        present, around = w * sets + w0 * nulls, w * w * sets + w0 * w0 * nulls
        squares += levels.at_null**2 * nulls
        return Counted(RatioSums(first, present, first, squares, crossed, around), sets + nulls)

    def of_items(self, shown: FloatArray, sets: Any, nulls: Any) -> Counted:
        """Return the sums for each item, from the number of released sets that show the item."""
        return self.counted(self.single, [sets - shown, shown], sets, nulls)

    def count_items(self, batches: Batches, group: Axis | None = None) -> Counted:
        """Count the sets that hold each item, shape (classes, items)."""
        shown, sets, nulls = self.tally(batches, lambda bits: bits.sum(axis=0, dtype=np.float64), group)
        return self.of_items(shown, sets[:, None], nulls[:, None])

    def count_level(
        self, levels: Levels, places: Sequence[int], batches: Batches, group: Axis | None = None
    ) -> Counted:
        """Count an indicator that depends on how many of some items a set holds, shape (classes, 1)."""
        highest, items = len(levels.values), list(places)
        counts, sets, nulls = self.tally(
            batches, lambda bits: _histogram(bits[:, items].sum(axis=1, dtype=np.int64), highest), group
        )
        return self.counted(levels, list(counts.T[..., None]), sets[:, None], nulls[:, None])

    def count_pairs(self, places: Sequence[int], batches: Batches) -> Counted:
        """Count the sets that hold both items of every pair, shape (places, places); on the diagonal each item."""

        def count_both(bits: npt.NDArray[np.uint8]) -> FloatArray:
            # Single precision is faster, and exact for whole numbers below 2²⁴.
            item_bits = bits[:, places].astype(np.float32)
            return np.asarray(item_bits.T @ item_bits, dtype=np.float64)

        (pair_counts,), (sets,), (nulls,) = self.tally(batches, count_both)
        return self.of_pairs(pair_counts, float(sets), float(nulls))

    def of_pairs(self, both: FloatArray, sets: float, nulls: float) -> Counted:
        """Return the sums for each pair, from the number of released sets that show both items."""
        item_counts = np.diag(both)
        either = item_counts[:, None] + item_counts[None, :] - 2 * both
        pairs = self.counted(self.channel.holds_all(2), [sets - either - both, either, both], sets, nulls)
        single, i = self.of_items(item_counts, sets, nulls), np.arange(len(item_counts))
        # A pair needs independent noise on two items; on the diagonal both are one item.
        for name in ("value", "value_squares", "crossed"):
            getattr(pairs.sums, name)[i, i] = getattr(single.sums, name)
        return pairs


def _histogram(values: npt.NDArray[np.int64], cells: int) -> FloatArray:
    return np.bincount(values, minlength=cells).astype(np.float64)


def null_rate(column: Column, batches: Batches, sampling: float) -> tuple[FloatArray, FloatArray]:
    """Return the share of nulls of sets or vectors and its variance, shape (1,), by the surrogate of their flag."""
    space: Any = column.space
    counts = sum((np.bincount(space.is_null(codes[column.name]), minlength=2) for codes in batches), np.zeros(2))
    keep_probability, flip_probability = column.mechanism.present
    # 1 less the unbiased surrogate of presence, (shown − flip)/(keep − flip).
    levels = np.array([keep_probability - 1, keep_probability]) / (keep_probability - flip_probability)
    total, n = levels @ counts, max(float(counts.sum()), 1.0)
    squares = levels**2 @ counts - own_squares(total, total**2 / n, sampling)
    return np.array([total / n]), np.array([max(squares, 0.0) / n**2])


@dataclass(frozen=True, eq=False)
class SetSizes:
    """Counts of released sets by size, followed by the count of nulls if the column has nulls."""

    column: SetColumn
    counts: FloatArray

    @classmethod
    def of(cls, column: SetColumn, batches: Batches) -> SetSizes:
        """Count the sizes of released sets."""
        cells = column.space.count + 1
        (sizes,), _, nulls = column.tally(batches, lambda bits: _histogram(bits.sum(axis=1, dtype=np.int64), cells))
        return cls(column, np.append(sizes, nulls) if column.has_null else sizes)

    @cached_property
    def matrix(self) -> FloatArray:
        """P(released size or null | size or null); null is last if the column has nulls."""
        return self.column.channel.size_law()

    def fit(self, normalize: bool, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return the numbers (or shares) of sets of every size by maximum likelihood, and bootstrap errors."""
        n, most = int(self.counts.sum()), self.column.channel.most

        def presented(shares: FloatArray) -> FloatArray:
            sizes = shares[: most + 1]
            return np.asarray(sizes / max(sizes.sum(), 1e-300) if normalize else sizes * n)

        rows = (n - sampling) / (1 - sampling) if sampling < 1 else n
        fitted = RowsLaw.of(self.matrix, self.counts, rows=rows)
        return presented(fitted.shares), fitted.errors_of(presented, sampling)

    def lost(self, kept: int) -> tuple[float, float]:
        """Return the share of items that truncation to ``kept`` items removes, and the variance per item."""
        count, most = self.column.space.count, self.column.channel.most
        if most * count > _MAX_MATRIX_CELLS:  # about their mean
            size = max(float(self.mean(0.0)[0][0]), 1e-300)
            return max(1 - kept / size, 0.0), 0.5
        counts = RowsLaw.of(self.matrix, self.counts).shares[: most + 1] * self.counts.sum()
        table = SizeTable(np.arange(most + 1), most, counts, 0.0, most < count)
        share, _, _, variance = table.kept(kept)
        return 1 - share, variance

    def mean(self, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return the unbiased mean size and its variance, shape (1,)."""
        last = self.column.space.count + 1
        released, nulls = self.counts[:last], float(self.counts[last:].sum())
        size, square = self.column.channel.sizes()
        counted = self.column.counted(size, list(released[:, None]), float(released.sum()), nulls)
        return replace(counted.sums, square=released @ square.values + square.at_null * nulls).shares(sampling)


@dataclass(frozen=True, eq=False)
class ItemLaw:
    """Distribution of items in rows: a row of intensity x has item i with probability 1 − exp(−a_i·x), independently.

    So no pair is more frequent than either of its items. ``shares`` are shares of rows by intensity; ``sizes`` are
    shares of rows with 0, 1, … items, or None without measured sizes.

    >>> law = ItemLaw(np.array([0.5, 0.2]), np.array([0.5, 1.5]), np.array([0.5, 0.5]))
    >>> (law.chances @ law.shares).round(3), round(law.pairs / 2, 3)
    (array([0.5, 0.2]), 0.117)
    """

    supports: FloatArray
    intensities: FloatArray = field(default_factory=lambda: np.ones(1))
    shares: FloatArray = field(default_factory=lambda: np.ones(1))
    sizes: FloatArray | None = None

    @cached_property
    def chances(self) -> FloatArray:
        """The chance of each item at each intensity, shape (items, intensities)."""
        return self.at(self.rates(lambda chances: chances @ self.shares))

    def at(self, rates: FloatArray) -> FloatArray:
        """Return the probability of each item at each intensity, given the items' rates a."""
        return np.asarray(-np.expm1(-rates[:, None] * self.intensities))

    def rates(self, mean: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Return the rates for which a mean of the items' probabilities equals the supports, by bisection."""
        aim = np.clip(self.supports, 0.0, _MAX_SUPPORT)
        low, high = np.zeros(len(aim)), np.full(len(aim), 1e3)
        # Sixty halvings of [0, 1000] reach the precision of floats.
        for _ in range(60):
            middle = (low + high) / 2
            over = mean(self.at(middle)) > aim
            low, high = np.where(over, low, middle), np.where(over, middle, high)
        return low

    @property
    def pairs(self) -> float:
        """Ordered pairs of items a row, on average."""
        return float(self.shares @ (self.chances.sum(axis=0) ** 2 - (self.chances**2).sum(axis=0)))


@dataclass(frozen=True, eq=False)
class SizeTable:
    """Measured counts of sets by size: ``starts`` has the smallest size of each cell, ``most`` is the largest size.

    With ``limited`` the space truncates larger sets, which count as the largest.
    Shares are 0 after the last significant cell; `mean_size` estimates the tail after it.
    """

    starts: npt.NDArray[np.int64]
    most: int
    counts: FloatArray
    sigma2: float
    limited: bool = False

    @classmethod
    def of(cls, table: MeasuredTable, column: SetColumn) -> SizeTable | None:
        """Return the measured table as a `SizeTable`, or None if none of its counts is significant."""
        starts = np.array(size_starts(column.column.space))
        counts, largest_size = table.counts.astype(np.float64), column.space.most
        size_table = cls(starts, largest_size, counts, table.measure.sigma2, largest_size < column.space.count)
        return size_table if size_table._last_significant_cell >= 0 else None

    @property
    def _last_significant_cell(self) -> int:
        """Index of the last significant cell, or -1 without one."""
        significant_cells = np.flatnonzero(self.counts > _SIGNIFICANCE_SE * math.sqrt(self.sigma2))
        return int(significant_cells[-1]) if len(significant_cells) else -1

    @cached_property
    def widths(self) -> FloatArray:
        """Sizes of each cell."""
        return np.diff(np.append(self.starts, self.most + 1)).astype(np.float64)

    @cached_property
    def sizes(self) -> FloatArray:
        """The middle size of each cell."""
        return np.asarray(self.starts + (self.widths - 1) / 2)

    @cached_property
    def shares(self) -> FloatArray:
        """Shares of the cells, 0 after the last significant cell."""
        significant_counts = self.counts[: self._last_significant_cell + 1]
        shares = np.zeros(len(self.counts))
        shares[: self._last_significant_cell + 1] = project(
            significant_counts, total=float(significant_counts.sum())
        ) / float(significant_counts.sum())
        return shares

    @property
    def rows(self) -> float:
        """Rows that are not null, about."""
        return float(self.counts[: self._last_significant_cell + 1].sum())

    def mean(self, of: FloatArray, per: FloatArray | float = 1.0) -> tuple[float, float]:
        """Return the mean of a function over sets, or the ratio of two means, and its noise variance."""
        base = max(float(self.shares @ np.broadcast_to(per, of.shape)), 1e-300)
        ratio_of_means = float(self.shares @ of) / base
        # The first cell without a significant count may still have rows: its noise counts.
        residuals = (of - ratio_of_means * per)[: self._last_significant_cell + 2]
        return ratio_of_means, self.sigma2 * float(residuals @ residuals) / (self.rows * base) ** 2

    def kept(self, most: int, items: int = 1) -> tuple[float, float, float, float]:
        """Return the share of items, or of pairs (``items=2``), that truncation to ``most`` items keeps, and variances.

        The variances are of the mean share by noise, of the share among sets, and of one row's indicator: each item of
        a set of L items stays with probability p = most/L, with the variance p(1 − p).
        """
        item_counts, counts_after_cut = self.sizes.copy(), np.minimum(self.sizes, most)
        if items > 1:
            item_counts, counts_after_cut = item_counts * (item_counts - 1), counts_after_cut * (counts_after_cut - 1)
        kept_shares = np.divide(counts_after_cut, item_counts, out=np.ones_like(item_counts), where=item_counts > 0)
        share, noise = self.mean(counts_after_cut, item_counts)
        share_variance, _ = self.mean(item_counts * (kept_shares - share) ** 2, item_counts)
        row_variance, _ = self.mean(item_counts * kept_shares * (1 - kept_shares), item_counts)
        if self.limited:
            # Sets of the largest size may have had any larger size: they add half of their items to the variance.
            counts_of_largest = np.append(np.zeros(len(item_counts) - 1), counts_after_cut[-1])
            row_variance += self.mean(counts_of_largest, item_counts)[0] / 2
        return share, noise, share_variance, row_variance

    def uncut(self, table: MeasuredTable, items: int = 1) -> ItemTable:
        """Return the counts of items, or of pairs (``items=2``), over the share of rows that truncation keeps."""
        share, noise, share_variance, row_variance = self.kept(table.measure.most, items)
        if share <= 0:
            return ItemTable(table.counts.astype(np.float64), table.measure.sigma2)
        # A cell of several sizes counts at its middle, with the standard deviation of a uniform distribution.
        rounding_sd = self.mean((self.widths - 1) / math.sqrt(12), self.sizes)[0] * items * share
        lost = math.sqrt(UNEVEN**2 * share_variance + noise + rounding_sd**2) / share
        return ItemTable(table.counts / share, table.measure.sigma2 / share**2, lost, row_variance / share**2)

    def item_law(self, supports: FloatArray) -> ItemLaw:
        """Return the distribution of items in rows, with intensities that give the measured number of pairs.

        Intensities are 1 + κ(L/E[L] − 1). κ is such that items, independent given the intensity, have E[L(L − 1)]
        ordered pairs per row. All intensities are 1 if sizes leave the number of pairs too uncertain.
        """
        plain_law, pairs, factor_sd = ItemLaw(supports), self._mean_pairs, self._factor_sd
        if factor_sd > PRIOR:
            return plain_law
        size, _ = self.mean(self.sizes)
        # Supports sum to the mean size: the projection removes the positive bias of noise on small supports.
        consistent_supports = np.minimum(project(supports, total=size), _MAX_SUPPORT)

        def law_at(scale: float) -> ItemLaw:
            return ItemLaw(
                consistent_supports[consistent_supports > 0],
                np.maximum(1 + scale * (self.sizes / size - 1), 0.0),
                self.shares,
            )

        scale = bisected(
            lambda scale: law_at(scale).pairs <= pairs, 0.0, _MAX_SCALE, _SCALE_TOLERANCE, _SCALE_TOLERANCE
        )
        shares_of_sizes = np.repeat(self.shares / self.widths, self.widths.astype(np.int64))
        return replace(law_at(scale), supports=supports, sizes=shares_of_sizes)

    @property
    def _mean_pairs(self) -> float:
        return self.mean(self.sizes * (self.sizes - 1))[0]

    @property
    def _factor_sd(self) -> float:
        """Standard error of the number of pairs, relative to it: the prior standard deviation of f about 1."""
        pairs, noise = self.mean(self.sizes * (self.sizes - 1))
        return math.sqrt(noise) / max(pairs, 1e-300)

    def chance(self, supports: FloatArray, places: Sequence[int]) -> tuple[FloatArray, float]:
        """Return the shares of pairs that supports and sizes imply, and the prior standard deviation of f.

        The shares are of the items at ``places``, shape (places, places).
        """
        item_law = self.item_law(supports)
        chances = replace(item_law, supports=supports[list(places)]).chances
        size, _ = self.mean(self.sizes)
        consistent_law = replace(item_law, supports=np.minimum(project(supports, total=max(size, 0.0)), _MAX_SUPPORT))
        has_pairs = self._factor_sd <= PRIOR
        factor = self._mean_pairs / max(consistent_law.pairs, 1e-300) if has_pairs else 1.0
        return (chances * item_law.shares) @ chances.T * factor, self._factor_sd if has_pairs else PRIOR

    def by_size(self, normalize: bool, population: bool) -> tuple[FloatArray, FloatArray]:
        """Return the numbers, or shares, of sets of each size, and variances; a cell's count is spread evenly."""
        scale = self.rows if normalize else 1.0
        widths = np.repeat(self.widths, self.widths.astype(np.int64))
        counts = np.repeat(self.counts, self.widths.astype(np.int64)) / widths
        variances = self.sigma2 / widths**2 + np.where(widths > 1, np.maximum(counts, 0.0) ** 2 / 3, 0.0)
        shares = np.clip(counts / self.rows, 0.0, 1.0)
        variances = variances + (shares * (1 - shares) * self.rows if population else 0.0)
        return counts / scale, variances / scale**2

    def mean_size(self, population: bool) -> tuple[FloatArray, FloatArray]:
        """Return the mean size and its variance, shape (1,)."""
        size, noise = self.mean(self.sizes)
        tail_mean, tail_variance = self._tail_moments(size)
        sampling_variance = (self.mean(self.sizes**2)[0] - size**2) / self.rows if population else 0.0
        rounding_sd = float(self.shares @ (self.widths - 1)) / 4  # of the middle of a cell
        return np.array([size + tail_mean]), np.array([noise + sampling_variance + rounding_sd**2 + tail_variance])

    def _tail_moments(self, size: float) -> tuple[float, float]:
        """Return the increase of the mean size by sets after the last significant cell, and its mean square.

        The tail's counts are unbiased and its excess is not negative: a normal distribution truncated at 0. Cells
        farther out than an exponential tail reaches enter only the error, because their noise would dominate.
        """
        excess = float(self.shares @ np.maximum(self.sizes - size, 0.0))
        first = self._last_significant_cell + 1
        tail_end = first + math.ceil(_TAIL_FACTOR * (1 + excess))
        excess_sizes = (self.sizes - size)[first:tail_end] / self.rows
        error = math.sqrt(self.sigma2 * float(excess_sizes @ excess_sizes))
        if error <= 0:
            return 0.0, 0.0
        tail_sum = float(self.counts[first:tail_end] @ excess_sizes)
        mean, variance = _truncate_at_zero(tail_sum, error)
        likeliest = max(tail_sum, 0.0)
        return likeliest, variance + (mean - likeliest) ** 2 + self._far_tail_mean_square(size, tail_end)

    def _far_tail_mean_square(self, size: float, tail_end: int) -> float:
        """Return the mean square of the increase of the mean size by sets beyond the tail's end.

        Their counts may fall slowly, as a power of the size. The power law starts at the detection limit of the first
        cell below the noise, with the slope of the significant cells before it. Its sum is the scale of a half-normal
        prior, which the counts update.
        """
        first = self._last_significant_cell + 1
        if tail_end >= len(self.sizes):
            return 0.0
        densities, beyond = self.shares / self.widths, slice(tail_end, None)
        level = _SIGNIFICANCE_SE * math.sqrt(self.sigma2) / self.rows / self.widths[first]
        is_on_the_way = (self.sizes <= _SLOPE_START_SHARE * self.sizes[first]) & (densities > 0)
        slopes = np.log(np.maximum(densities[is_on_the_way] / level, 1.0)) / np.log(
            self.sizes[first] / np.maximum(self.sizes[is_on_the_way], 0.5)
        )
        # Without a cell to fit, the density stays at the detection limit.
        slope = float(np.median(slopes[-3:])) if len(slopes) else 0.0
        excess_sizes = self.sizes[beyond] - size
        prior_variance = (
            level * float(self.widths[beyond] * excess_sizes @ (self.sizes[beyond] / self.sizes[first]) ** -slope)
        ) ** 2
        noise = self.sigma2 * float(excess_sizes @ excess_sizes) / self.rows**2
        if prior_variance <= 0:
            return 0.0
        gain = prior_variance / (prior_variance + noise)
        posterior_mean = gain * float(self.counts[beyond] @ excess_sizes) / self.rows
        mean, variance = _truncate_at_zero(posterior_mean, math.sqrt(gain * noise))
        return mean**2 + variance


def _truncate_at_zero(mean: float, error: float) -> tuple[float, float]:
    """Return mean and variance of a normal distribution truncated at 0."""
    shift, variance = (float(moment[0]) for moment in truncated_normal_moments(np.array([mean / error])))
    return mean + error * shift, error**2 * variance


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Measured counts of rows with each item, or each pair, of a set column, from sets truncated to some size.

    ``lost`` is the standard deviation of the share that truncation removed. Without measured sizes it is the whole
    removed share, because a count may lack as much. ``spread`` is the variance that truncation adds per count.
    """

    counts: FloatArray
    sigma2: float
    lost: float = 0.0
    spread: float = 0.0

    @property
    def variances(self) -> FloatArray:
        """Variances of the counts, from noise and truncation."""
        positive_counts = np.maximum(self.counts, 0.0)
        return np.asarray(self.sigma2 + self.spread * positive_counts + (self.lost * positive_counts) ** 2)

    def beside(
        self, rows: FloatArray, spread: FloatArray, normalize: bool, population: bool, present: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return shares, or counts, and variances: the table's and the rows', weighted by inverse mean variance.

        ``present`` is the number of rows that are not null.
        """
        scale = present if normalize else 1.0
        counts, variances = self.counts / scale, self.variances / scale**2
        mean_row_variance, mean_variance = float(np.mean(spread)), float(np.mean(variances))
        weight = (
            mean_variance / (mean_variance + mean_row_variance)
            if math.isfinite(mean_row_variance) and mean_row_variance > 0
            else 0.0
        )
        with np.errstate(invalid="ignore"):
            estimates = counts if weight == 0 else (1 - weight) * counts + weight * rows
            variance = (1 - weight) ** 2 * variances + (weight**2 * spread if weight > 0 else np.zeros_like(counts))
        shares = np.clip(estimates * scale / present, 0.0, 1.0)
        sampling_variance = shares * (1 - shares) * present / scale**2 if population else 0.0
        return estimates, variance + sampling_variance
