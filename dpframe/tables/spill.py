"""Shuffling rows beyond memory: encrypted buckets on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.release.release import rank
from dpframe.tables.batches import Batch, joined, length
from dpframe.tables.hidden_file import HiddenFile

SPILL_ROWS = 1 << 17


BUCKET_ROWS = 1 << 19


class Spill:
    """Released rows on disk, parted into buckets by the top bits of their order word.

    The file is hidden: its rows are in input order, which the release must not reveal.
    """

    def __init__(self, folder: Path, bits: int) -> None:
        self._bits = min(bits, 16)
        self.buckets = 1 << self._bits
        self._file = HiddenFile(folder)
        self._waiting: list[Batch] = []
        self._stretches: list[_Stretch] = []

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.__exit__(None, None, None)

    def add(self, words: npt.NDArray[np.uint64], batch: Batch) -> None:
        """Add rows with their order words; few at a time are gathered first."""
        self._waiting.append({"": words, **batch})
        if sum(map(length, self._waiting)) >= SPILL_ROWS:
            self._flush()

    def _flush(self) -> None:
        batch = joined(self._waiting)
        self._waiting = []
        order, edges = self._parted(batch[""][:, 1])
        coded = {name: column for name, column in batch.items() if isinstance(column, np.ndarray)}
        # One record per row: a bucket is then a single stretch, however many columns there are.
        records = np.empty(
            len(order), [(str(i), column.dtype, column.shape[1:]) for i, column in enumerate(coded.values())]
        )
        for i, column in enumerate(coded.values()):
            # Column by column: NumPy takes items of the widths of words far faster than records.
            records[str(i)] = column.take(order, axis=0)
        start = self._file.append(records.view(np.uint8).data)
        copied = {name: column.take(pa.array(order)) for name, column in batch.items() if name not in coded}
        parts = [self._append_arrow(copied, a, b) for a, b in pairwise(edges)] if copied else []
        self._stretches.append(_Stretch(start, edges, list(coded), records.dtype, parts))

    def _parted(self, high: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the positions that sort rows by bucket, otherwise in their order, and where each bucket begins."""
        shift = np.uint64(max(len(high) - 1, 0).bit_length())
        bucket = high >> np.uint64(64 - self._bits) if self._bits else np.zeros_like(high)
        # Numbers with the row's own in the lowest bits: to sort these is faster than to sort positions.
        keys = (bucket << shift) | np.arange(len(high), dtype=np.uint64)
        keys.sort()
        edges = np.append(np.searchsorted(keys, np.arange(self.buckets, dtype=np.uint64) << shift), len(high))
        return (keys & np.uint64((1 << int(shift)) - 1)).astype(np.intp), edges

    def read(self, bucket: int, *, words: bool = False) -> Batch:
        """Return a bucket's rows, in the order of their words; these too on request, under the empty name."""
        if self._waiting:
            self._flush()
        if not self._stretches:
            return {}
        names, dtype = self._stretches[0].names, self._stretches[0].dtype
        records = self._records(bucket, dtype)
        order = rank(records["0"])
        kept = [(name, str(i)) for i, name in enumerate(names) if name or words]
        batch: Batch = {name: records[field].take(order, axis=0) for name, field in kept}
        if self._stretches[0].parts:
            copied = pa.concat_tables(self._file.fetch_table(*s.parts[bucket]) for s in self._stretches)
            copied = copied.unify_dictionaries().combine_chunks()
            batch.update((name, copied.column(name).take(pa.array(order))) for name in copied.column_names)
        return batch

    def _records(self, bucket: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return a bucket's records from all stretches."""
        places = [stretch.place(bucket) for stretch in self._stretches]
        out = np.empty(sum(size for _, size in places), dtype=np.uint8)
        end = 0
        for offset, size in places:
            self._file.fetch_into(offset, out[end : end + size])
            end += size
        return out.view(dtype)

    def _append_arrow(self, columns: Mapping[str, pa.Array], start: int, stop: int) -> tuple[int, int]:
        return self._file.append_table(pa.table({name: column[start:stop] for name, column in columns.items()}))


@dataclass(frozen=True)
class _Stretch:
    """Where the spill file holds a number of rows, parted into buckets."""

    start: int
    edges: npt.NDArray[np.intp]
    names: list[str]
    dtype: np.dtype[Any]
    parts: list[tuple[int, int]]
    """Offset and length of the columns passed through, by bucket."""

    def place(self, bucket: int) -> tuple[int, int]:
        """Return the offset and length of a bucket's records."""
        first, last = int(self.edges[bucket]), int(self.edges[bucket + 1])
        return self.start + first * self.dtype.itemsize, (last - first) * self.dtype.itemsize
