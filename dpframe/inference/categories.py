"""Columns of text and of sets: frequent values, by a threshold on noisy counts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.inference.column import Task
from dpframe.inference.cost import CountNoise, Histogram
from dpframe.inference.inferred import Measured
from dpframe.noise.keystream import ColumnStream
from dpframe.spaces import Categorical, Ordinal, Space, Subset
from dpframe.spaces.field import Field
from dpframe.spaces.sets import MOST_ITEMS
from dpframe.spaces.written_values import are_figures
from dpframe.totals.counts import OfColumn, Values

TEXT_SHARE = 0.5
"""Share of the budget of a column of text, relative to 1 of a numeric one (tuned; effect not measured)."""

MOST_COUNTED_ITEMS = 8
"""Items counted per row if the space sets no limit (tuned; effect not measured)."""

_OTHER_WORD, _EMPTY_TEXT = "other", ""


def set_share(cap: int) -> float:
    """Return the share of a column of sets: the share of text times the root of the cap."""
    return TEXT_SHARE * math.sqrt(cap)


def is_text(type_: pa.DataType) -> bool:
    """Return whether values are text, plain or in a dictionary."""
    t = pa.types
    inner = type_.value_type if t.is_dictionary(type_) else type_
    empty = t.is_dictionary(type_) and t.is_null(inner)
    return bool(t.is_string(inner) or t.is_large_string(inner) or t.is_string_view(inner) or empty)


def count_values(values: pa.Array) -> tuple[int, pa.Array, pa.Array]:
    """Return the nulls of text, its distinct values as UTF-8, and the rows of each value."""
    if pa.types.is_dictionary(values.type):  # counted by its indices, which are no text to compare
        pairs = pc.value_counts(values.indices)
        entries, rows = _to_bytes(values.dictionary).take(pairs.field(0)), pairs.field(1)
        present = entries.is_valid()
        return pc.sum(rows.filter(pc.invert(present))).as_py() or 0, entries.drop_null(), rows.filter(present)
    values = _to_bytes(values)
    pairs = pc.value_counts(values.drop_null())
    return values.null_count, pairs.field(0), pairs.field(1)


def _to_bytes(values: pa.Array) -> pa.Array:
    """Return text as bytes, which Arrow never refuses to read."""
    if pa.types.is_dictionary(values.type):  # of views Arrow takes nothing
        entry_bytes = _to_bytes(values.dictionary)
        return pa.DictionaryArray.from_arrays(values.indices, entry_bytes).dictionary_decode()
    # Arrow cannot cast the type null to text.
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.large_binary())
    return values.cast(pa.large_string()).cast(pa.large_binary())


class Texts(Task):
    """A column of text."""

    kind = "values"

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """One histogram, over all values of the column."""
        return (Histogram(self.kind, 1, TEXT_SHARE),)

    def counter(self) -> OfColumn:
        """Return a counter of values."""
        return Values(count_values)

    def measure(self, counter: OfColumn, noise: CountNoise, threshold: int, stream: ColumnStream) -> None:
        """Release the values whose noisy count reaches the threshold, with their counts."""
        assert isinstance(counter, Values)
        values, counts = counter.listed()
        noisy, missing = self._add_noise(np.concatenate([counter.counts, counts]), noise, stream)
        # Only values above the threshold leave: rarer values could identify a row.
        frequent_places = np.flatnonzero(noisy >= threshold)
        pairs = zip(values.take(pa.array(frequent_places)).to_pylist(), noisy[frequent_places].tolist(), strict=True)
        counts_by_text = {text: count for value, count in pairs if (text := text_of(value)) is not None}
        counts_by_cell = self._to_cells(counts_by_text)
        cells, cell_counts = tuple(counts_by_cell), tuple(counts_by_cell.values())
        self.measured.append(Measured(self.field.name, self.kind, cells, cell_counts, noise.variance, missing))

    def _to_cells(self, counts_by_text: Mapping[str, int]) -> Mapping[Any, int]:
        """Return the counts of released values by the values themselves."""
        return counts_by_text

    @property
    def others_are_null(self) -> bool:
        """Whether all found values are written as numbers, times or truth values, so that others become null."""
        cells = self.measured[0].cells
        return bool(cells) and self.field.nullable and are_figures(pa.array(cells))

    def inner(self) -> Space:
        """Return the found values as categories; all others are null, or in the category ``other``.

        An existing value such as "Other" serves as this category. Without any found value, all rows have the empty
        text. Columns of numbers or times read the empty text as null.
        """
        cells = self.measured[0].cells
        if not cells:
            return Categorical((_EMPTY_TEXT,), other=_EMPTY_TEXT)
        if self.others_are_null:
            return Categorical(cells)
        return Categorical(cells, other=next((cell for cell in cells if cell.lower() == _OTHER_WORD), _OTHER_WORD))


def text_of(value: bytes) -> str | None:
    """Return bytes as text, or None if they are no valid UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True)
class CutRows:
    """Counts rows per item, of Arrow lists; every row is truncated to ``cap`` distinct items first."""

    cap: int
    key: bytes = field(repr=False)
    digits: bool = False

    def __call__(self, values: pa.Array) -> tuple[int, pa.Array, pa.Array]:
        """Return the nulls of a batch, its items, and the rows of each."""
        nulls = values.null_count
        if self.digits:
            values = values.cast(pa.large_list(pa.large_string()))
        if pa.types.is_string_view(values.type.value_type):  # Arrow takes no rows of these
            values = values.cast(pa.large_list(pa.large_string()))
        # Values may lie under null rows.
        values = values.drop_null()
        if pa.types.is_fixed_size_list(values.type):
            values = values.cast(pa.large_list(values.type.value_type))
        items = _to_bytes(pc.list_flatten(values))
        present = np.asarray(items.is_valid())
        encoded = items.filter(pa.array(present)).dictionary_encode()
        names = encoded.dictionary
        rows = np.asarray(pc.list_parent_indices(values))[present].astype(np.int64)
        pairs = rows * max(len(names), 1) + np.asarray(encoded.indices)
        pairs.sort()  # several times faster than np.unique, which hashes
        pairs = pairs[_find_run_starts(pairs)]
        row, item = np.divmod(pairs, max(len(names), 1))
        # A keyed hash of the row's own items selects them: no other row changes the selection.
        is_sampled = np.ones(len(row), dtype=np.bool_)
        starts = _find_run_starts(row)
        sizes = np.diff(starts, append=len(row))
        for start, size in zip(starts[sizes > self.cap], sizes[sizes > self.cap], strict=True):
            members = names.take(pa.array(item[start : start + size])).to_pylist()
            row_bytes = b"".join(len(member).to_bytes(8, "little") + member for member in sorted(members))
            # The salt depends on the whole set, so that no item wins in every row.
            salt = hashlib.blake2b(row_bytes, key=self.key).digest()
            order = sorted(range(size), key=lambda i: hashlib.blake2b(salt + members[i], key=self.key).digest())
            is_sampled[start + np.array(order[self.cap :])] = False
        # Truncation may leave an item without rows: it does not exist then.
        counts = np.bincount(item[is_sampled], minlength=len(names)).astype(np.int64)
        used_items = np.flatnonzero(counts)
        return nulls, names.take(pa.array(used_items)), pa.array(counts[used_items])


def _find_run_starts(sorted_values: Any) -> Any:
    """Return the places at which a new value begins in a sorted array."""
    is_start = np.ones(len(sorted_values), dtype=np.bool_)
    is_start[1:] = sorted_values[1:] != sorted_values[:-1]
    return np.flatnonzero(is_start)


class Items(Texts):
    """A column of sets of text."""

    kind = "items"
    others_are_null = False
    has_numbers = False

    def __init__(self, field: Field, cap: int, key: bytes) -> None:
        super().__init__(field)
        self.cap, self.key = cap, key

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """One histogram, over all items of the column."""
        return (Histogram(self.kind, self.cap, set_share(self.cap)),)

    def counter(self) -> OfColumn:
        """Return a counter of items."""
        return Values(CutRows(self.cap, self.key, self.has_numbers))

    def inner(self) -> Space:
        """Return the found items as a set space; all others are in the item ``other``."""
        return self._make_subset(self._list_frequent(MOST_ITEMS - 1) or (_OTHER_WORD,), _OTHER_WORD)

    def _list_frequent(self, limit: int) -> tuple[Any, ...]:
        """Return the most frequent found items, sorted."""
        histogram = self.measured[0]
        frequent = sorted(zip(histogram.counts, histogram.cells, strict=True), reverse=True)[:limit]
        return tuple(sorted(item for _, item in frequent))

    def _make_subset(self, items: tuple[Any, ...], other_item: Any) -> Space:
        """Return the space of sets of these items; no set is larger than the number of items."""
        return Subset(items, min(self.cap, Subset(items, other=other_item).count), other_item)


class NumberedItems(Items):
    """A column of sets of whole numbers; items that were not found are left out."""

    has_numbers = True

    def _to_cells(self, counts_by_text: Mapping[str, int]) -> Mapping[Any, int]:
        """Return the counts of released items by the items as whole numbers."""
        return {int(text): count for text, count in counts_by_text.items()}

    def inner(self) -> Space:
        """Return the found items as a set space."""
        return self._make_subset(self._list_frequent(MOST_ITEMS) or (0,), None)


class Ranks(Texts):
    """A column of text whose type declares an order: inference finds the values that occur.

    A value that was not found counts as the nearest found value. So measured counts of single values differ from the
    counts of the released column.
    """

    kind = "ranks"
    others_are_null = False

    def _to_cells(self, counts_by_text: Mapping[str, int]) -> Mapping[Any, int]:
        """Return the counts of declared values in their order; other values have no rank."""
        return {value: counts_by_text[value] for value in self.field.order if value in counts_by_text}

    def inner(self) -> Space:
        """Return the found values in the declared order; a single value has no order."""
        cells = self.measured[0].cells
        return Ordinal(cells) if len(cells) > 1 else super().inner()
