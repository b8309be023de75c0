"""Columns of sets: supports of items and item sets, pairs of items, set sizes.

Whether a set holds some items, all or none of them, has a surrogate that depends on how many of them are shown, and a
value at null (`SetView`): the channels say which, and everything here is sums of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.arrays import FloatArray
from dpframe.channels.set_channel import Levels, SetView
from dpframe.errors import ParameterError
from dpframe.estimate.axes import Axis
from dpframe.estimate.surrogates import own_squares
from dpframe.evidence.law import RowsLaw
from dpframe.plan.columns import Column
from dpframe.spaces import Subset

Batches = Iterable[Mapping[str, npt.NDArray[Any]]]

CHUNK = 1 << 13
"""Rows whose bits are unpacked at a time."""

MOST_PAIRED = 300
"""Items up to which all pairs are estimated."""


def is_sets(column: Column) -> bool:
    """Tell whether a column holds sets."""
    return column.space.holds_sets


@dataclass(frozen=True)
class Counted:
    """Sums over rows of a surrogate U, of U², and of the surrogate of the squared function; and of U times "present".

    "Present" has a surrogate W: 1, or where null is a value whatever makes its mean right.
    """

    first: Any
    second: Any
    of_square: Any
    crossed: Any


@dataclass(frozen=True)
class SetColumn:
    """A column of sets, and what its channel says of items."""

    column: Column
    space: Subset
    channel: SetView

    @classmethod
    def of(cls, column: Column) -> SetColumn:
        """Take a column, or raise `ParameterError` unless it holds sets."""
        if not is_sets(column):
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
        for codes in batches:
            mine = codes[self.column.name]
            for start in range(0, len(mine), CHUNK):
                part = mine[start : start + CHUNK]
                rows = np.ascontiguousarray(part, dtype="<u8").view(np.uint8)
                bits = np.unpackbits(rows, axis=1, bitorder="little")
                null = bits[:, count] > 0 if self.has_null else np.zeros(len(part), dtype=np.bool_)
                rest = {name: values[start : start + CHUNK] for name, values in codes.items()}
                yield bits[:, :count], null, rest

    @property
    def has_null(self) -> bool:
        """Whether null is a value."""
        return self.column.space.has_null

    def is_null(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Tell which released codes are null."""
        ((_, null, _),) = self.bits([{self.column.name: codes}])
        return null

    def counted(self, shown: FloatArray, released: Any, nulls: Any) -> Counted:
        """Return the sums of the indicator of an item, which ``shown`` of ``released`` sets show, beside nulls."""
        return self.summed(self.single, [released - shown, shown], nulls)

    def summed(self, levels: Levels, counts: Iterable[Any], nulls: Any) -> Counted:
        """Return the sums of an indicator's surrogate, from the numbers of released sets at each level and of nulls."""
        parts = list(zip(levels.values.tolist(), counts, strict=True))
        of_sets = sum(value * count for value, count in parts)
        squares = sum(value**2 * count for value, count in parts)
        first, (w, w0) = of_sets + levels.at_null * nulls, self.weights
        crossed = w * of_sets + w0 * levels.at_null * nulls
        return Counted(first, squares + levels.at_null**2 * nulls, first, crossed)

    def count_items(self, batches: Batches) -> tuple[FloatArray, int, int]:
        """Count the released sets that show each item, all released sets, and nulls."""
        shown, sets, nulls = np.zeros(self.space.count), 0, 0
        for bits, null, _ in self.bits(batches):
            shown += bits.sum(axis=0, dtype=np.int64)
            nulls += int(null.sum())
            sets += len(bits) - int(null.sum())
        return shown, sets, nulls

    def null_rate(self, batches: Batches, sampling: float) -> tuple[float, float]:
        """Return the share of nulls, 1 − the mean of "present", and its variance."""
        _, sets, nulls = self.count_items(batches)
        n, levels, counts = max(sets + nulls, 1), 1 - np.array(self.weights), np.array([sets, nulls])
        total = float(levels @ counts)
        without = own_squares(total, total**2 / n, sampling)
        return total / n, max(float(levels**2 @ counts) - without, 0.0) / n**2

    def count_by(self, group: Axis, places: Sequence[int] | None, batches: Batches) -> tuple[FloatArray, ...]:
        """Return, by released class of another column: Σ U, Σ U² and Σ UW per item (or of one item set), sets, nulls.

        W is the surrogate of "present".
        """
        rows = 1 if places is not None else self.space.count
        first, second, crossed = (np.zeros((group.classes, rows)) for _ in range(3))
        sets, nulls, (w, w0) = np.zeros(group.classes), np.zeros(group.classes), self.weights
        levels = self.single if places is None else self.channel.holds_all(len(places))
        for bits, null, rest in self.bits(batches):
            classes = group.classify(rest[group.name])
            shown = bits if places is None else bits[:, places].sum(axis=1, keepdims=True, dtype=np.int64)
            u = levels.values.take(shown)
            u[null] = levels.at_null
            present = np.where(null, w0, w)
            for c in np.unique(classes):
                inside = classes == c
                first[c] += u[inside].sum(axis=0)
                second[c] += (u[inside] ** 2).sum(axis=0)
                crossed[c] += present[inside] @ u[inside]
            sets += np.bincount(classes[~null], minlength=group.classes)
            nulls += np.bincount(classes[null], minlength=group.classes)
        return first, second, crossed, sets, nulls

    def shares_by(
        self, group: Axis, places: Sequence[int] | None, batches: Batches, sampling: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return shares within every cell of another column, shape (items, cells), and their variances.

        As `grouped_ratio`: with h = (z − r)·present·1_g, U = (u − r·w)·φ_g and h² = (z − 2rz + r²)·present·1_g.
        """
        first, second, crossed, sets, nulls = self.count_by(group, places, batches)
        w, w0 = self.weights
        present = np.repeat((w * sets + w0 * nulls)[:, None], first.shape[1], axis=1)
        present_squares = np.repeat((w * w * sets + w0 * w0 * nulls)[:, None], first.shape[1], axis=1)
        u, p = group.invert(first), group.invert(present)
        squares = [group.invert(sums, squared=True) for sums in (second, crossed, present_squares)]
        with np.errstate(divide="ignore", invalid="ignore"):
            r = u / p
            residual = squares[0] - 2 * r * squares[1] + r**2 * squares[2]
            residual = residual - own_squares(u - 2 * r * u + r**2 * p, 0.0, sampling)
            return r.T, np.where(residual > 0, residual / p**2, np.inf).T

    def count_pairs(self, places: Sequence[int], batches: Batches) -> tuple[FloatArray, int, int]:
        """Count the released sets that show both items of every pair, all sets, and nulls."""
        both, sets, nulls = np.zeros((len(places), len(places))), 0, 0
        for bits, null, _ in self.bits(batches):
            # Whole numbers below 2^24 are exact in short floats.
            shown = bits[:, places][~null].astype(np.float32)
            both += shown.T @ shown
            nulls += int(null.sum())
            sets += len(shown)
        return both, sets, nulls


def share_of(
    sums: Counted, column: SetColumn, sets: float, nulls: float, normalize: bool, sampling: float
) -> tuple[FloatArray, FloatArray]:
    """Return counts, or shares of the rows that are not null, and their variances."""
    n, (w, w0) = max(sets + nulls, 1), column.weights
    first, without = np.asarray(sums.first, dtype=np.float64), np.asarray(sums.of_square)
    if not normalize:
        return first, np.maximum(sums.second - own_squares(without, first**2 / n, sampling), 0.0)
    present, squares = w * sets + w0 * nulls, w * w * sets + w0 * w0 * nulls
    with np.errstate(divide="ignore", invalid="ignore"):
        r = first / present
        variance = sums.second - 2 * r * sums.crossed + r**2 * squares
        variance = variance - own_squares(without - 2 * r * first + r**2 * present, 0.0, sampling)
        return r, np.maximum(variance, 0.0) / present**2


def pair_counts(column: SetColumn, both: FloatArray, sets: int, nulls: int) -> Counted:
    """Return the sums of the indicators that a set holds both items of a pair; of an item with itself, that item."""
    shown = np.diag(both)
    one = shown[:, None] + shown[None, :] - 2 * both
    pairs = column.summed(column.channel.holds_all(2), [sets - one - both, one, both], nulls)
    single, i = column.counted(shown, sets, nulls), np.arange(len(shown))
    for name in ("first", "second", "crossed"):
        getattr(pairs, name)[i, i] = getattr(single, name)
    return pairs


_MOST_SIZES = 1 << 22
"""Sizes by released sizes of which a matrix is made."""


class SizeChannel:
    """What is released of a set's size."""

    def __init__(self, column: SetColumn) -> None:
        self.column = column
        self.most, self.count = column.channel.most, column.space.count

    @cached_property
    def matrix(self) -> FloatArray:
        """P(released size or null | size or null), null last where it is a value."""
        return self.column.channel.size_law()

    def counts(self, batches: Batches) -> FloatArray:
        """Count released sizes, and nulls last where they are values."""
        histogram, nulls = np.zeros(self.count + 1), 0
        for bits, null, _ in self.column.bits(batches):
            histogram += np.bincount(bits.sum(axis=1, dtype=np.int64)[~null], minlength=len(histogram))
            nulls += int(null.sum())
        return np.append(histogram, nulls) if self.column.has_null else histogram

    def fit(self, counts: FloatArray, normalize: bool, sampling: float) -> tuple[FloatArray, FloatArray]:
        """Return the numbers (or shares) of sets of every size by maximum likelihood, and bootstrap errors."""
        n = int(counts.sum())

        def presented(shares: FloatArray) -> FloatArray:
            sizes = shares[: self.most + 1]
            return np.asarray(sizes / max(sizes.sum(), 1e-300) if normalize else sizes * n)

        rows = (n - sampling) / (1 - sampling) if sampling < 1 else n
        fitted = RowsLaw.of(self.matrix, counts, rows=rows)
        return presented(fitted.shares), fitted.errors_of(presented, sampling)

    def lost(self, counts: FloatArray, kept: int) -> tuple[float, float]:
        """Return what a cut to so many items does to a row's items: the share that is lost, and that of its variance.

        Of a set of L items each stays with p = kept/L: L(1 − p) are lost, and the number has the variance Lp(1 − p) of
        those that stay. Sets that fill a limited space may have been cut from any size: half of theirs is taken.
        """
        if self.most * self.count > _MOST_SIZES:  # about their mean
            size = max(self.mean(counts, 0.0)[0], 1e-300)
            return max(1 - kept / size, 0.0), 0.5
        shares = RowsLaw.of(self.matrix, counts).shares[: self.most + 1]
        sizes = np.arange(self.most + 1)
        items = max(float(shares @ sizes), 1e-300)
        gone = float(shares @ np.maximum(sizes - kept, 0)) / items
        spread = float(shares @ (np.minimum(sizes, kept) * np.maximum(1 - kept / np.maximum(sizes, 1), 0))) / items
        if self.most < self.count:
            spread += float(shares[self.most]) * kept / items / 2
        return gone, spread

    def mean(self, counts: FloatArray, sampling: float) -> tuple[float, float]:
        """Return the unbiased mean size and its variance."""
        released, nulls = counts[: self.count + 1], float(counts[self.count + 1 :].sum())
        size, square = self.column.channel.sizes()
        sums = self.column.summed(size, released, nulls)
        of_square = released @ square.values + square.at_null * nulls
        sums = Counted(sums.first, sums.second, of_square, sums.crossed)
        r, variance = share_of(sums, self.column, float(released.sum()), nulls, True, sampling)
        return float(r), float(variance)


def size_counts(column: SetColumn, batches: Batches) -> tuple[SizeChannel, FloatArray]:
    """Return the channel of set sizes, and counts of the released ones."""
    channel = SizeChannel(column)
    return channel, channel.counts(batches)


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Measured counts of the rows that hold each item of a set column, cut to so many items a row.

    ``lost`` is the share of items that the cut took, as the rows tell it, and ``spread`` that of a count's variance:
    which items a row lost is not known, so that a count may lack as much as all of its share.
    """

    counts: FloatArray
    sigma2: float
    lost: float = 0.0
    spread: float = 0.0

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
