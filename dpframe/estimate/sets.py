"""Columns of sets: supports of items and item sets, pairs of items, set sizes.

An item is shown with probability p if the set holds it and q if not, so φ = (y − q)/(p − q) has the mean 1 or 0
that the set says, and of several items of one set, which are shown independently, the product of their φ has.
Where null is a value, a set is released with probability k (and otherwise null), which divides by k; a released
null counts 0, for what is released of a null is the empty set's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.estimate.axes import Axis
from dpframe.estimate.likelihood import bootstrap_errors, column_refits, fit_columns
from dpframe.estimate.moments import REPLICATES
from dpframe.estimate.surrogates import own_squares
from dpframe.mechanisms.bit_flips import SetChannel
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
    channel: SetChannel

    @classmethod
    def of(cls, column: Column) -> SetColumn:
        """Take a column, or raise `ParameterError` unless it holds sets."""
        if not is_sets(column):
            remedy = f"value_counts({column.name!r}) counts its values"
            if column.space.holds_vectors:
                remedy = f"ask for {column.space.instead}"
            raise ParameterError(f"column {column.name!r} holds no sets; {remedy}")
        space: Any = column.space.inner_space
        channel: Any = column.mechanism.inner
        return cls(column, space, channel)

    @cached_property
    def values(self) -> tuple[float, float]:
        """φ/k of an item that is shown, and of one that is not."""
        p, q = self.channel.shown
        kept = self.column.mechanism.present[0]
        return (1 - q) / (p - q) / kept, -q / (p - q) / kept

    @cached_property
    def weights(self) -> tuple[float, float]:
        """Surrogate of "not null", of a released set and of a released null."""
        kept, flipped = self.column.mechanism.present
        return kept / (kept - flipped), -flipped / (kept - flipped)

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

    def counted(self, shown: FloatArray, released: Any) -> Counted:
        """Return the sums of the indicator of an item, which ``shown`` of ``released`` sets show."""
        a, b = self.values
        hidden = released - shown
        first = a * shown + b * hidden
        return Counted(first, a * a * shown + b * b * hidden, first, self.weights[0] * first)

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
        """Return, by released class of another column: Σ U and Σ U² per item (or of one item set), sets, nulls."""
        rows = 1 if places is not None else self.space.count
        first, second = np.zeros((group.classes, rows)), np.zeros((group.classes, rows))
        sets, nulls = np.zeros(group.classes), np.zeros(group.classes)
        a, b = self.values
        kept = self.column.mechanism.present[0]
        for bits, null, rest in self.bits(batches):
            classes = group.classify(rest[group.name])
            u = np.where(bits, a, b)
            if places is not None:
                u = np.prod(u[:, places] * kept, axis=1, keepdims=True) / kept
            u[null] = 0
            for c in np.unique(classes):
                inside = classes == c
                first[c] += u[inside].sum(axis=0)
                second[c] += (u[inside] ** 2).sum(axis=0)
            sets += np.bincount(classes[~null], minlength=group.classes)
            nulls += np.bincount(classes[null], minlength=group.classes)
        return first, second, sets, nulls

    def shares_by(
        self, group: Axis, places: Sequence[int] | None, batches: Batches, sampling: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return shares within every cell of another column, shape (items, cells), and their variances.

        As `grouped_ratio`: with h = (z − r)·present·1_g, U = (u − r·w)·φ_g and h² = (z − 2rz + r²)·present·1_g.
        """
        first, second, sets, nulls = self.count_by(group, places, batches)
        w, w0 = self.weights
        present = np.repeat((w * sets + w0 * nulls)[:, None], first.shape[1], axis=1)
        present_squares = np.repeat((w * w * sets + w0 * w0 * nulls)[:, None], first.shape[1], axis=1)
        u, p = group.invert(first), group.invert(present)
        squares = [group.invert(sums, squared=True) for sums in (second, w * first, present_squares)]
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


def pair_counts(column: SetColumn, both: FloatArray, sets: int) -> Counted:
    """Return the sums of the indicators that a set holds both items of a pair; of an item with itself, that item."""
    a, b = column.values
    kept, shown = column.column.mechanism.present[0], np.diag(both)
    one = shown[:, None] + shown[None, :] - 2 * both
    none = sets - one - both
    first, second = ((a * a) ** e * both + (a * b) ** e * one + (b * b) ** e * none for e in (1, 2))
    # φ of each item is over k, of both together too: once too often.
    first, second = first * kept, second * kept**2
    single, i = column.counted(shown, sets), np.arange(len(shown))
    first[i, i], second[i, i] = single.first, single.second
    return Counted(first, second, first, column.weights[0] * first)


_MOST_SIZES = 1 << 22
"""Sizes by released sizes of which a matrix is made."""


class SizeChannel:
    """What is released of a set's size: Bin(size, p) items of it and Bin(h − size, q) others."""

    def __init__(self, column: SetColumn) -> None:
        self.column = column
        self.most, self.count = column.channel.most, column.space.count

    @cached_property
    def matrix(self) -> FloatArray:
        """P(released size or null | size or null), shape (h + 1, most + 1), null last where it is a value."""
        from scipy.stats import binom

        (p, q), (kept, flipped) = self.column.channel.shown, self.column.column.mechanism.present
        h = self.count
        columns = [
            np.convolve(binom.pmf(np.arange(s + 1), s, p), binom.pmf(np.arange(h - s + 1), h - s, q))
            for s in range(self.most + 1)
        ]
        inside = np.stack(columns, axis=1)
        if not self.column.has_null:
            return inside
        wide = np.column_stack([kept * inside, flipped * inside[:, 0]])
        return np.vstack([wide, np.append(np.full(self.most + 1, 1 - kept), 1 - flipped)])

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

        shares = fit_columns(counts[:, None], self.matrix)[:, 0]
        pairs = column_refits(shares, self.matrix, n, sampling, REPLICATES)
        return presented(shares), bootstrap_errors(pairs, presented)

    def lost(self, counts: FloatArray, kept: int) -> tuple[float, float]:
        """Return what a cut to so many items does to a row's items: the share that is lost, and that of its variance.

        Of a set of L items each stays with p = kept/L: L(1 − p) are lost, and the number has the variance Lp(1 − p) of
        those that stay. Sets that fill a limited space may have been cut from any size: half of theirs is taken.
        """
        if self.most * self.count > _MOST_SIZES:  # about their mean
            size = max(self.mean(counts, 0.0)[0], 1e-300)
            return max(1 - kept / size, 0.0), 0.5
        shares = fit_columns(counts[:, None], self.matrix)[: self.most + 1, 0]
        sizes = np.arange(self.most + 1)
        items = max(float(shares @ sizes), 1e-300)
        gone = float(shares @ np.maximum(sizes - kept, 0)) / items
        spread = float(shares @ (np.minimum(sizes, kept) * np.maximum(1 - kept / np.maximum(sizes, 1), 0))) / items
        if self.most < self.count:
            spread += float(shares[self.most]) * kept / items / 2
        return gone, spread

    def mean(self, counts: FloatArray, sampling: float) -> tuple[float, float]:
        """Return the unbiased mean size, (|Y| − hq)/(p − q) on average, and its variance.

        Its square is too large by the variance of |Y|, size·p(1−p) + (h − size)·q(1−q), over (p − q)².
        """
        (p, q), kept = self.column.channel.shown, self.column.column.mechanism.present[0]
        released, nulls = counts[: self.count + 1], counts[self.count + 1 :].sum()
        sizes = (np.arange(self.count + 1) - self.count * q) / (p - q)
        noise = (sizes * p * (1 - p) + (self.count - sizes) * q * (1 - q)) / (p - q) ** 2
        first = released @ sizes / kept
        sums = Counted(
            first,
            released @ sizes**2 / kept**2,
            released @ (sizes**2 - noise) / kept,
            self.column.weights[0] * first,
        )
        r, variance = share_of(sums, self.column, float(released.sum()), float(nulls), True, sampling)
        return float(r), float(variance)


def size_counts(column: SetColumn, batches: Batches) -> tuple[SizeChannel, FloatArray]:
    """Return the channel of set sizes, and counts of the released ones."""
    channel = SizeChannel(column)
    return channel, channel.counts(batches)
