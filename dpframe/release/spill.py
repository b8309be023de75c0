"""Rows beyond memory: encrypted files without a name, and rows shuffled by buckets in them."""

from __future__ import annotations

import math
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.disk import read_at
from dpframe.noise.keystream import cipher_at
from dpframe.release.rows import rank_halves
from dpframe.tables.batches import Batch, joined, length

_ENCRYPTED_BLOCK_BYTES = 1 << 20
"""Number of bytes that are encrypted at a time, in memory that is allocated once."""


class HiddenFile:
    """A file in a folder that grows at its end, is read anywhere, and is gone when it is closed or the process ends."""

    def __init__(self, folder: Path) -> None:
        # The key exists only in memory: after a crash the file's content cannot be read.
        self._key = secrets.token_bytes(32)
        # Unbuffered: `read_at` goes past Python's buffer, and would miss bytes that are still in it.
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed by __exit__)
        self._cipher = cipher_at(self._key, 0)
        self._end = 0
        self._block = np.empty(_ENCRYPTED_BLOCK_BYTES, dtype=np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def append(self, raw: memoryview) -> int:
        """Write bytes and return the offset of the first."""
        start = self._end
        self._end += len(raw)
        for offset in range(0, len(raw), len(self._block)):
            plaintext = raw[offset : offset + len(self._block)]
            self._cipher.update_into(plaintext, self._block.data)
            ciphertext = self._block.data[: len(plaintext)]
            while ciphertext:
                # An unbuffered file may write fewer bytes than it gets.
                ciphertext = ciphertext[self._file.write(ciphertext) :]
        return start

    def fetch_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Read and decrypt bytes from an offset until ``out`` is full."""
        cipher, place = cipher_at(self._key, offset), 0
        block = np.empty(min(_ENCRYPTED_BLOCK_BYTES, len(out)), dtype=np.uint8)
        while place < len(out):
            count = read_at(self._file.fileno(), offset + place, block[: len(out) - place])
            if not count:
                raise OSError("the spill file is shorter than what was written")
            cipher.update_into(block[:count].data, out[place : place + count].data)
            place += count

    def append_table(self, table: pa.Table) -> tuple[int, int]:
        """Write a table and return its offset and length."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        raw = sink.getvalue()
        return self.append(memoryview(raw).cast("B")), raw.size

    def fetch_table(self, offset: int, length: int) -> pa.Table:
        """Return a table that was written."""
        raw = np.empty(length, dtype=np.uint8)
        self.fetch_into(offset, raw)
        with pa.ipc.open_stream(pa.py_buffer(raw)) as stream:
            return stream.read_all()


SPILL_ROWS = 1 << 17


SPILL_BUCKET_ROWS = 1 << 19


HELD_BYTES = 1 << 27
"""Limit on the bytes of codes in memory; further codes go to disk."""


class Spill:
    """Released rows, split into buckets by the top bits of their order word, in memory and then on disk.

    The file is hidden: its rows are in input order, which the release must not reveal.
    """

    def __init__(self, folder: Path, bits: int) -> None:
        # Bucket numbers have at most two bytes, which NumPy sorts by radix.
        self._bits = min(bits, 16)
        self.buckets = 1 << self._bits
        self._file = HiddenFile(folder)
        self._waiting: list[Batch] = []
        self._stretches: list[_SpilledRows] = []
        self._held_bytes = 0

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.__exit__(None, None, None)

    def add(self, words: npt.NDArray[np.uint64], batch: Batch) -> None:
        """Add rows with their order words; small batches are gathered first."""
        self._waiting.append({"": words, **batch})
        if sum(map(length, self._waiting)) >= SPILL_ROWS:
            self._flush()

    def _flush(self) -> None:
        batch = joined(self._waiting)
        self._waiting = []
        words = batch[""][:, 1]
        bucket = words >> np.uint64(64 - self._bits) if self._bits else np.zeros_like(words)
        # NumPy sorts numbers of one or two bytes by radix.
        bucket_codes = bucket.astype(np.min_scalar_type(self.buckets - 1))
        edges = np.append(0, np.bincount(bucket_codes, minlength=self.buckets).cumsum())
        order = np.argsort(bucket_codes, kind="stable")
        code_columns = {
            name: column.take(order, axis=0) for name, column in batch.items() if isinstance(column, np.ndarray)
        }
        layout = _Layout(tuple((name, column.dtype, column.shape[1:]) for name, column in code_columns.items()))
        self._held_bytes += len(order) * layout.width
        memory_columns = code_columns if self._held_bytes <= HELD_BYTES else None
        start = (
            0
            if memory_columns is not None
            else self._file.append(layout.packed(list(code_columns.values()), edges).data)
        )
        copied_columns = {
            name: column.take(pa.array(order)) for name, column in batch.items() if name not in code_columns
        }
        parts = [
            self._file.append_table(pa.table({name: column[a:b] for name, column in copied_columns.items()}))
            for a, b in (pairwise(edges) if copied_columns else ())
        ]
        self._stretches.append(_SpilledRows(memory_columns, start, edges, layout, parts))

    def read(self, bucket: int, *, words: bool = False) -> Batch:
        """Return a bucket's rows in the order of their words; with ``words``, the words have the empty name."""
        if self._waiting:
            self._flush()
        if not self._stretches:
            return {}
        parts = self._read_parts(bucket)
        high_words = np.concatenate([part[""][:, 1] for part in parts])
        order = rank_halves(high_words, lambda: np.concatenate([part[""][:, 0] for part in parts]))
        batch: Batch = {
            name: np.concatenate([part[name] for part in parts]).take(order, axis=0)
            for name in parts[0]
            if name or words
        }
        if self._stretches[0].parts:
            copied_columns = pa.concat_tables(self._file.fetch_table(*s.parts[bucket]) for s in self._stretches)
            # Every batch has a dictionary of its own: indices agree only under a common one.
            copied_columns = copied_columns.unify_dictionaries().combine_chunks()
            batch.update(
                (name, copied_columns.column(name).take(pa.array(order))) for name in copied_columns.column_names
            )
        return batch

    def _read_parts(self, bucket: int) -> list[dict[str, npt.NDArray[Any]]]:
        """Return a bucket's columns from every stretch, in the order of the input rows."""
        parts: list[dict[str, npt.NDArray[Any]]] = []
        for stretch in self._stretches:
            first_row, end_row = (int(edge) for edge in stretch.edges[bucket : bucket + 2])
            if stretch.held is None:
                row_bytes = np.empty((end_row - first_row) * stretch.layout.width, dtype=np.uint8)
                self._file.fetch_into(stretch.start + first_row * stretch.layout.width, row_bytes)
                parts.append(stretch.layout.columns(row_bytes))
            else:
                parts.append({name: column[first_row:end_row] for name, column in stretch.held.items()})
        return parts


@dataclass(frozen=True)
class _Layout:
    """Layout of the columns of a bucket's rows: column by column, as NumPy copies records field by field."""

    columns_of: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]
    """Name, type and further axes of each."""

    @cached_property
    def widths(self) -> list[int]:
        """Bytes of a row, by column."""
        return [dtype.itemsize * math.prod(axes) for _, dtype, axes in self.columns_of]

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return sum(self.widths)

    def packed(self, columns: Sequence[npt.NDArray[Any]], edges: npt.NDArray[np.intp]) -> npt.NDArray[np.uint8]:
        """Return columns as bytes: bucket by bucket, each from one edge to the next."""
        bucket_bytes = np.empty(int(edges[-1]) * self.width, dtype=np.uint8)
        columns_bytes, offset = [np.ascontiguousarray(column).view(np.uint8).reshape(-1) for column in columns], 0
        for start, stop in pairwise(edges.tolist()):
            for column_bytes, width in zip(columns_bytes, self.widths, strict=True):
                size = (stop - start) * width
                bucket_bytes[offset : offset + size] = column_bytes[start * width : stop * width]
                offset += size
        return bucket_bytes

    def columns(self, raw: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a bucket's bytes."""
        rows, offset = len(raw) // self.width, 0
        columns: dict[str, npt.NDArray[Any]] = {}
        for (name, dtype, axes), width in zip(self.columns_of, self.widths, strict=True):
            columns[name] = raw[offset : offset + rows * width].view(dtype).reshape(rows, *axes)
            offset += rows * width
        return columns


@dataclass(frozen=True)
class _SpilledRows:
    """Rows split into buckets: their columns in memory, or their offset in the spill file."""

    held: dict[str, npt.NDArray[Any]] | None
    start: int
    edges: npt.NDArray[np.intp]
    layout: _Layout
    parts: list[tuple[int, int]]
    """Offset and length of the columns passed through, by bucket."""
