"""Columns of sets: supports of items and item sets, pairs of items, set sizes.

Whether a set holds some items, all or none of them, has a surrogate that depends on how many of them are shown, and a
value at null (`SetView`): the channels say which, and everything here is sums of these.

Measured sizes of sets say what share of items and of pairs a cut took, and how often items meet by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.accounting.bisection import bisected
from dpframe.channels.set_channel import Levels, SetView
from dpframe.errors import ParameterError
from dpframe.estimate.axes import Axis
from dpframe.estimate.evidence.combine import project
from dpframe.estimate.evidence.law import RowsLaw
from dpframe.estimate.surrogates import UNPACKED, Batches, own_squares, pieces, ratio
from dpframe.observe.observation import truncated_normal_moments
from dpframe.plan.columns import Column
from dpframe.plan.measures import MeasuredTable
from dpframe.spaces import Subset
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.cells import size_starts

MOST_PAIRED = 300
"""Items up to which all pairs are estimated (limit of time)."""


PRIOR = 0.5
"""Standard deviations of the priors of ρ, and of f about 1 (tuned; effect not measured)."""

ALIKE = 0.15
"""Standard deviation of f about 1 where sizes were measured (tuned; half and twice it change widths on a census by less
than 1 %).

The 30 most frequent of a grocer's 169 items have 0.08 fewer pairs than all have.
"""

UNEVEN = 1 / 3
"""Standard deviation, over items, of the share that a cut keeps, in parts of that over the rows that hold any of them
(tuned; effect not measured).

Sets with an item are large or small much as others are: of the same 30 items 0.17 is seen, of their pairs 0.25.
"""

_SEEN = 2.5
"""Standard deviations from which a cell of measured sizes stands out of its noise (tuned; effect not measured)."""

_SHORTEST_TAIL, _TAIL = 4, 3.0
"""Cells that may have rows beyond the last that stands out: so many at least, and so many times 1 and the mean excess
(tuned; effect not measured).

Chosen on six kinds of baskets and reported on seven others.
"""

_ON_THE_WAY, _LEAST_SLOPE = 0.75, 2.0
"""Sizes from which a slope is told, as a part of the first size that noise hides; and the slope where there are none
(tuned; effect not measured).

With a slope of 2 the mean size is as large as the largest set allows.
"""

_MOST_SHARE, _WIDEST = 0.999, 2.0
"""Largest support and widest κ that are fitted (tolerance)."""
_NEAR = 1e-3
"""Relative width to which κ is found, and what is as good as 0: without that it would be halved to the last float
(tolerance)."""

_MOST_SIZES = 1 << 22
"""Sizes by released sizes for which a matrix is made (limit of memory)."""


@dataclass(frozen=True)
class Counted:
    """Sums over rows: of a surrogate U, of U², of the surrogate of the squared function, of UW, and of 1, W and W².

    W is the surrogate of "not null": 1, or where null is a value whatever makes its mean right.
    """

    first: Any
    second: Any
    of_square: Any
    crossed: Any
    rows: Any
    present: Any
    present_squares: Any

    def share(self, normalize: bool, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return counts, or shares of the rows that are not null, and their variances."""
        if normalize:
            return self._ratio(self, self, sampling)
        n, first = np.maximum(self.rows, 1), np.asarray(self.first, dtype=np.float64)
        return first, np.maximum(self.second - own_squares(self.of_square, first**2 / n, sampling), 0.0)

    def share_by(self, group: Axis, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return shares within every cell of the column by whose classes this was summed, and their variances.

        As `surrogates.ratio`: with h = (z − r)·present·1_g, U = (u − r·w)·φ_g and h² = (z − 2rz + r²)·present·1_g.
        """
        sums = [np.broadcast_to(getattr(self, f.name), self.first.shape) for f in fields(self)]
        plain, squares = (Counted(*(group.invert(one, squared=squared) for one in sums)) for squared in (False, True))
        return self._ratio(plain, squares, sampling)

    @staticmethod
    def _ratio(plain: Counted, squares: Counted, sampling: float) -> tuple[FloatArray, FloatArray]:
        sums, around = (plain.first, plain.present), (squares.second, squares.crossed, squares.present_squares)
        r, residual = ratio(sums, around, plain.of_square, sampling)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Too few rows leave no variance: then nothing is known.
            return r, np.where(residual > 0, residual / plain.present**2, np.inf)


@dataclass(frozen=True)
class SetColumn:
    """A column of sets, and what its channel says of items."""

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

    def bits(self, batches: Batches) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_], Any]]:
        """Yield the items shown by rows, shape (rows, items), where they are null, and the rows' other columns."""
        count = self.space.count
        for codes in pieces(batches, UNPACKED):
            rows = np.ascontiguousarray(codes[self.column.name], dtype="<u8").view(np.uint8)
            bits = np.unpackbits(rows, axis=1, bitorder="little")
            null = bits[:, count] > 0 if self.has_null else np.zeros(len(bits), dtype=np.bool_)
            yield bits[:, :count], null, codes

    @property
    def has_null(self) -> bool:
        """Whether null is a value."""
        return self.column.space.has_null

    def tally(
        self, batches: Batches, of: Callable[[npt.NDArray[np.uint8]], FloatArray], group: Axis | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the sum of a function of the items that released sets show, and the numbers of sets and of nulls.

        Each with a first axis for the released classes of another column, of length 1 without.
        """
        classes = 1 if group is None else group.classes
        total = np.stack([of(np.zeros((0, self.space.count), dtype=np.uint8))] * classes)
        sets, nulls = np.zeros((2, classes))
        for bits, null, rest in self.bits(batches):
            kinds = np.zeros(len(bits), dtype=np.int64) if group is None else group.classify(rest[group.name])
            for kind in np.unique(kinds):
                shown = bits[(kinds == kind) & ~null]
                total[kind] += of(shown)
                sets[kind] += len(shown)
            nulls += np.bincount(kinds[null], minlength=classes)
        return total, sets, nulls

    def counted(self, levels: Levels, counts: Sequence[Any], sets: Any, nulls: Any) -> Counted:
        """Return the sums of an indicator's surrogate, from the numbers of released sets at each level and of nulls."""
        parts = list(zip(levels.values.tolist(), counts, strict=True))
        of_sets = sum(value * count for value, count in parts)
        squares = sum(value**2 * count for value, count in parts)
        first, (w, w0) = of_sets + levels.at_null * nulls, self.weights
        crossed = w * of_sets + w0 * levels.at_null * nulls
        present, around = w * sets + w0 * nulls, w * w * sets + w0 * w0 * nulls
        return Counted(first, squares + levels.at_null**2 * nulls, first, crossed, sets + nulls, present, around)

    def of_items(self, shown: FloatArray, sets: Any, nulls: Any) -> Counted:
        """Return the sums for each item, which ``shown`` of the released sets show."""
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

        def both(bits: npt.NDArray[np.uint8]) -> FloatArray:
            # Whole numbers below 2^24 are exact in short floats.
            shown = bits[:, places].astype(np.float32)
            return np.asarray(shown.T @ shown, dtype=np.float64)

        (shown,), (sets,), (nulls,) = self.tally(batches, both)
        return self.of_pairs(shown, float(sets), float(nulls))

    def of_pairs(self, both: FloatArray, sets: float, nulls: float) -> Counted:
        """Return the sums for each pair, whose items are both shown by ``both`` of the released sets."""
        shown = np.diag(both)
        one = shown[:, None] + shown[None, :] - 2 * both
        pairs = self.counted(self.channel.holds_all(2), [sets - one - both, one, both], sets, nulls)
        single, i = self.of_items(shown, sets, nulls), np.arange(len(shown))
        for name in ("first", "second", "crossed"):
            getattr(pairs, name)[i, i] = getattr(single, name)
        return pairs


def _histogram(values: npt.NDArray[np.int64], cells: int) -> FloatArray:
    return np.bincount(values, minlength=cells).astype(np.float64)


def null_rate(column: Column, batches: Batches, sampling: float) -> tuple[FloatArray, FloatArray]:
    """Return the share of nulls of sets or vectors and its variance, shape (1,), by the surrogate of their flag."""
    space: Any = column.space
    counts = sum((np.bincount(space.is_null(codes[column.name]), minlength=2) for codes in batches), np.zeros(2))
    kept, flipped = column.mechanism.present
    levels = np.array([kept - 1, kept]) / (kept - flipped)
    total, n = levels @ counts, max(float(counts.sum()), 1.0)
    spread = levels**2 @ counts - own_squares(total, total**2 / n, sampling)
    return np.array([total / n]), np.array([max(spread, 0.0) / n**2])


@dataclass(frozen=True, eq=False)
class SetSizes:
    """What is released of the sizes of sets: ``counts`` by released size, and of nulls last where these are values."""

    column: SetColumn
    counts: FloatArray

    @classmethod
    def of(cls, column: SetColumn, batches: Batches) -> SetSizes:
        """Count the sizes of released sets."""
        cells = column.space.count + 1
        (sizes,), _, nulls = column.tally(batches, lambda bits: _histogram(bits.sum(axis=1, dtype=np.int64), cells))
        return cls(column, np.append(sizes, nulls) if column.has_null else sizes)

    @property
    def most(self) -> int:
        """The largest size after the cut."""
        return self.column.channel.most

    @cached_property
    def matrix(self) -> FloatArray:
        """P(released size or null | size or null), null last where it is a value."""
        return self.column.channel.size_law()

    def fit(self, normalize: bool, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return the numbers (or shares) of sets of every size by maximum likelihood, and bootstrap errors."""
        n = int(self.counts.sum())

        def presented(shares: FloatArray) -> FloatArray:
            sizes = shares[: self.most + 1]
            return np.asarray(sizes / max(sizes.sum(), 1e-300) if normalize else sizes * n)

        rows = (n - sampling) / (1 - sampling) if sampling < 1 else n
        fitted = RowsLaw.of(self.matrix, self.counts, rows=rows)
        return presented(fitted.shares), fitted.errors_of(presented, sampling)

    def lost(self, kept: int) -> tuple[float, float]:
        """Return what a cut to so many items does to a row's items: the share that is lost, and that of its variance.

        In a set of L items each stays with p = kept/L: L(1 − p) are lost, and the number has the variance Lp(1 − p) of
        those that stay. Sets that fill a limited space may have been cut from any size: half of theirs is taken.
        """
        count = self.column.space.count
        if self.most * count > _MOST_SIZES:  # about their mean
            size = max(float(self.mean(0.0)[0][0]), 1e-300)
            return max(1 - kept / size, 0.0), 0.5
        shares = RowsLaw.of(self.matrix, self.counts).shares[: self.most + 1]
        sizes = np.arange(self.most + 1)
        items = max(float(shares @ sizes), 1e-300)
        gone = float(shares @ np.maximum(sizes - kept, 0)) / items
        spread = float(shares @ (np.minimum(sizes, kept) * np.maximum(1 - kept / np.maximum(sizes, 1), 0))) / items
        if self.most < count:
            spread += float(shares[self.most]) * kept / items / 2
        return gone, spread

    def mean(self, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return the unbiased mean size and its variance, shape (1,)."""
        last = self.column.space.count + 1
        released, nulls = self.counts[:last], float(self.counts[last:].sum())
        size, square = self.column.channel.sizes()
        sums = self.column.counted(size, list(released[:, None]), float(released.sum()), nulls)
        of_square = released @ square.values + square.at_null * nulls
        return replace(sums, of_square=of_square).share(True, sampling)


@dataclass(frozen=True, eq=False)
class Held:
    """How items lie in rows: independently, item i of a row of intensity x with the chance 1 − exp(−a_i·x).

    No pair is more frequent than either of its items then. ``shares`` are those of the rows with each intensity,
    ``sizes`` those of the rows with 0, 1, … items, where they were measured.

    >>> held = Held(np.array([0.5, 0.2]), np.array([0.5, 1.5]), np.array([0.5, 0.5]))
    >>> (held.chances @ held.shares).round(3), round(held.pairs / 2, 3)
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
        """Return the same for rates a."""
        return np.asarray(-np.expm1(-rates[:, None] * self.intensities))

    def rates(self, mean: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Return the rates at which a mean of chances, which rises with them, is the supports."""
        aim = np.clip(self.supports, 0.0, _MOST_SHARE)
        low, high = np.zeros(len(aim)), np.full(len(aim), 1e3)
        for _ in range(60):
            middle = (low + high) / 2
            over = mean(self.at(middle)) > aim
            low, high = np.where(over, low, middle), np.where(over, middle, high)
        return low

    @property
    def pairs(self) -> float:
        """Ordered pairs of items a row, on average."""
        return float(self.shares @ (self.chances.sum(axis=0) ** 2 - (self.chances**2).sum(axis=0)))


@dataclass(frozen=True)
class Kept:
    """What a cut left of the rows with an item, or with a pair: their share, and its standard deviation among items.

    ``spread`` is the variance of one row's, whose items are chosen at random.
    """

    share: float
    uneven: float
    spread: float


@dataclass(frozen=True, eq=False)
class SizeTable:
    """Measured counts of sets by their size: ``starts`` has the least size of each cell, ``most`` the largest of all.

    With ``limited`` the space allows no larger sets, and those that were larger count as the largest.
    Beyond the last cell that stands out of the noise sets are taken to have no more items: a tail that noise hides.
    """

    starts: npt.NDArray[np.int64]
    most: int
    counts: FloatArray
    sigma2: float
    limited: bool = False

    @classmethod
    def of(cls, table: MeasuredTable, column: SetColumn) -> SizeTable | None:
        """Take a measured table, or return None where none of its counts stands out."""
        starts = np.array(size_starts(column.column.space))
        counts, most = table.counts.astype(np.float64), column.space.most
        found = cls(starts, most, counts, table.measure.sigma2, most < column.space.count)
        return found if found._last >= 0 else None

    @property
    def _last(self) -> int:
        """The last cell that stands out, -1 where none does."""
        seen = np.flatnonzero(self.counts > _SEEN * math.sqrt(self.sigma2))
        return int(seen[-1]) if len(seen) else -1

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
        """Shares of the cells, 0 beyond the last that stands out."""
        held = self.counts[: self._last + 1]
        shares = np.zeros(len(self.counts))
        shares[: self._last + 1] = project(held, total=float(held.sum())) / float(held.sum())
        return shares

    @property
    def rows(self) -> float:
        """Rows that are not null, about."""
        return float(self.counts[: self._last + 1].sum())

    def mean(self, of: FloatArray, per: FloatArray | float = 1.0) -> tuple[float, float]:
        """Return a function's mean over sets, or its ratio to another's, and the variance by the counts' noise."""
        base = max(float(self.shares @ np.broadcast_to(per, of.shape)), 1e-300)
        found = float(self.shares @ of) / base
        # One cell more than stands out may have rows.
        apart = (of - found * per)[: self._last + 2]
        return found, self.sigma2 * float(apart @ apart) / (self.rows * base) ** 2

    def kept(self, most: int, items: int) -> Kept:
        """Return what a cut to so many items a row left of the rows with one item, or with both of two."""
        held, after = self.sizes.copy(), np.minimum(self.sizes, most)
        if items > 1:
            held, after = held * (held - 1), after * (after - 1)
        left = np.divide(after, held, out=np.ones_like(held), where=held > 0)
        share, noise = self.mean(after, held)
        if share <= 0:
            return Kept(1.0, 0.0, 0.0)
        own, _ = self.mean(held * (left - share) ** 2, held)
        spread, _ = self.mean(held * left * (1 - left), held)
        if self.limited:
            # Sets that fill a limited space may have been cut from any size: half of theirs is taken.
            last = np.append(np.zeros(len(held) - 1), after[-1])
            spread += self.mean(last, held)[0] / 2
        # A cell of several sizes is taken as its middle.
        within = self.mean((self.widths - 1) / math.sqrt(12), self.sizes)[0] * items * share
        return Kept(share, math.sqrt(UNEVEN**2 * own + noise + within**2), spread)

    def held(self, supports: FloatArray) -> Held:
        """Return how the items of all supports lie in rows: with the intensities at which their pairs add up.

        These are 1 + κ(L/E[L] − 1), with the κ at which items that are independent given the intensity have E[L(L − 1)]
        ordered pairs a row; all 1 where sizes leave the number of pairs in doubt.
        """
        found, pairs, doubt = Held(supports), self._pairs, self._doubt
        if doubt > PRIOR:
            return found
        size, _ = self.mean(self.sizes)
        # Their sum is known, and what noise adds to small ones is taken away.
        likely = np.minimum(project(supports, total=size), _MOST_SHARE)

        def spread(much: float) -> Held:
            return Held(likely[likely > 0], np.maximum(1 + much * (self.sizes / size - 1), 0.0), self.shares)

        much = bisected(lambda much: spread(much).pairs <= pairs, 0.0, _WIDEST, _NEAR, _NEAR)
        each = np.repeat(self.shares / self.widths, self.widths.astype(np.int64))
        return replace(spread(much), supports=supports, sizes=each)

    @property
    def _pairs(self) -> float:
        return self.mean(self.sizes * (self.sizes - 1))[0]

    @property
    def _doubt(self) -> float:
        """The standard deviation of f about 1."""
        pairs, noise = self.mean(self.sizes * (self.sizes - 1))
        return math.hypot(ALIKE, math.sqrt(noise) / max(pairs, 1e-300))

    def chance(self, supports: FloatArray, places: Sequence[int]) -> tuple[FloatArray, float]:
        """Return the shares of pairs that all items' supports and sizes make likely, and the standard deviation of f.

        Of the items at ``places``, shape (places, places).
        """
        held = self.held(supports)
        some = replace(held, supports=supports[list(places)]).chances
        size, _ = self.mean(self.sizes)
        likely = replace(held, supports=np.minimum(project(supports, total=max(size, 0.0)), _MOST_SHARE))
        known = self._doubt <= PRIOR
        factor = self._pairs / max(likely.pairs, 1e-300) if known else 1.0
        return (some * held.shares) @ some.T * factor, self._doubt if known else PRIOR

    def by_size(self, normalize: bool, population: bool) -> tuple[FloatArray, FloatArray]:
        """Return the numbers, or shares, of sets of each size, and variances: even within a cell, or not at all."""
        scale = self.rows if normalize else 1.0
        widths = np.repeat(self.widths, self.widths.astype(np.int64))
        counts = np.repeat(self.counts, self.widths.astype(np.int64)) / widths
        own = self.sigma2 / widths**2 + np.where(widths > 1, np.maximum(counts, 0.0) ** 2 / 3, 0.0)
        shares = np.clip(counts / self.rows, 0.0, 1.0)
        own = own + (shares * (1 - shares) * self.rows if population else 0.0)
        return counts / scale, own / scale**2

    def mean_size(self, population: bool) -> tuple[FloatArray, FloatArray]:
        """Return the mean size and its variance, shape (1,)."""
        size, noise = self.mean(self.sizes)
        more, hidden = self._hidden_tail(size)
        own = (self.mean(self.sizes**2)[0] - size**2) / self.rows if population else 0.0
        inside = float(self.shares @ (self.widths - 1)) / 4  # of the middle of a cell
        return np.array([size + more]), np.array([noise + own + inside**2 + hidden])

    def _hidden_tail(self, size: float) -> tuple[float, float]:
        """Return by how much larger sets than those that stand out raise the mean size, and the mean square about it.

        Their counts are unbiased and their excess is not negative: a normal law cut at zero. Only as many cells count
        as a tail has that falls as what stands out does, for the noise of cells far out would hide the rest: what may
        lie there is in the error alone.
        """
        excess = float(self.shares @ np.maximum(self.sizes - size, 0.0))
        first = self._last + 1
        reach = first + max(_SHORTEST_TAIL, math.ceil(_TAIL * (1 + excess)))
        apart = (self.sizes - size)[first:reach] / self.rows
        error = math.sqrt(self.sigma2 * float(apart @ apart))
        if error <= 0:
            return 0.0, 0.0
        found = float(self.counts[first:reach] @ apart)
        lift, kept = (float(one[0]) for one in truncated_normal_moments(np.array([found / error])))
        likeliest = max(found, 0.0)
        return likeliest, error**2 * kept + (found + error * lift - likeliest) ** 2 + self._farther(size, reach)

    def _farther(self, size: float, reach: int) -> float:
        """Return the mean square of what sets beyond the reach of a tail add to the mean size.

        Their numbers may fall slowly, as a power of the size: from what noise may hide of the first cell that does not
        stand out, as steeply as on the way to it. What that adds is the scale of a half-normal prior, and the counts
        bound it: where they are precise it is little.
        """
        first = self._last + 1
        if reach >= len(self.sizes):
            return 0.0
        held, beyond = self.shares / self.widths, slice(reach, None)
        level = _SEEN * math.sqrt(self.sigma2) / self.rows / self.widths[first]
        near = (self.sizes <= _ON_THE_WAY * self.sizes[first]) & (held > 0)
        slopes = np.log(np.maximum(held[near] / level, 1.0)) / np.log(
            self.sizes[first] / np.maximum(self.sizes[near], 0.5)
        )
        slope = float(np.median(slopes[-3:])) if len(slopes) else _LEAST_SLOPE
        apart = self.sizes[beyond] - size
        prior = (level * float(self.widths[beyond] * apart @ (self.sizes[beyond] / self.sizes[first]) ** -slope)) ** 2
        noise = self.sigma2 * float(apart @ apart) / self.rows**2
        if prior <= 0:
            return 0.0
        gain = prior / (prior + noise)
        middle, error = gain * float(self.counts[beyond] @ apart) / self.rows, math.sqrt(gain * noise)
        lift, kept = (float(one[0]) for one in truncated_normal_moments(np.array([middle / error])))
        return float((middle + error * lift) ** 2 + error**2 * kept)


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Measured counts of the rows that hold each item, or each pair, of a set column, cut to so many items a row.

    ``lost`` is the standard deviation of the share that the cut took: where only rows show sizes all that it took, as
    which items a row lost is not known and a count may lack as much. ``spread`` is that of a count's variance.
    """

    counts: FloatArray
    sigma2: float
    lost: float = 0.0
    spread: float = 0.0

    @classmethod
    def uncut(cls, table: MeasuredTable, kept: Kept) -> ItemTable:
        """Return the counts that there would be without the cut, by what it left of all."""
        counts, share = table.counts / kept.share, kept.share
        return cls(counts, table.measure.sigma2 / share**2, kept.uneven / share, kept.spread / share**2)

    @property
    def variances(self) -> FloatArray:
        """Variances of the counts about those of the table."""
        held = np.maximum(self.counts, 0.0)
        return np.asarray(self.sigma2 + self.spread * held + (self.lost * held) ** 2)

    def beside(
        self, rows: FloatArray, spread: FloatArray, normalize: bool, population: bool, present: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return shares, or counts, and variances, from these and the rows' own, by inverse mean variance.

        ``present`` is the number of rows that are not null.
        """
        scale = present if normalize else 1.0
        counts, own = self.counts / scale, self.variances / scale**2
        mean, level = float(np.mean(spread)), float(np.mean(own))
        weight = level / (level + mean) if math.isfinite(mean) and mean > 0 else 0.0
        with np.errstate(invalid="ignore"):
            found = counts if weight == 0 else (1 - weight) * counts + weight * rows
            variance = (1 - weight) ** 2 * own + (weight**2 * spread if weight > 0 else np.zeros_like(counts))
        shares = np.clip(found * scale / present, 0.0, 1.0)
        extra = shares * (1 - shares) * present / scale**2 if population else 0.0
        return found, variance + extra
