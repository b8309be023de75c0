"""Rows that wait: some in memory, the others in a file without a name, encrypted under a key held in memory."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpframe.disk import read_at
from dpframe.noise.keystream import cipher_at

HELD = 1 << 26
"""Bytes that stay in memory before any go to the disk."""


class HiddenFile:
    """A file in a folder that grows at its end, is read anywhere, and is gone when it is closed or the process ends.

    Its first bytes are not on disk; those that are, are readable only by their owner.
    """

    def __init__(self, folder: Path) -> None:
        self._key = secrets.token_bytes(32)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed by __exit__)
        self._cipher = cipher_at(self._key, 0)
        self._end = 0
        # Pages of memory are taken when they are written to.
        self._held = np.empty(HELD, dtype=np.uint8)
        self._kept = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        self._held = self._held[:0]

    def append(self, raw: memoryview) -> int:
        """Write bytes; return where they begin."""
        start = self._end
        self._end += len(raw)
        if start == self._kept and self._end <= len(self._held):
            self._held[start : self._end] = np.frombuffer(raw, dtype=np.uint8)
            self._kept = self._end
            return start
        hidden = memoryview(self._cipher.update(raw))
        while hidden:
            hidden = hidden[self._file.write(hidden) :]
        return start

    def fetch_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Read what lies at an offset, decrypted, until ``out`` is full."""
        if offset < self._kept:
            out[:] = self._held[offset : offset + len(out)]
            return
        offset -= self._kept
        raw, place = np.empty_like(out), 0
        while place < len(raw):
            count = read_at(self._file.fileno(), offset + place, raw[place:])
            if not count:
                raise OSError("the spill file is shorter than what was written")
            place += count
        cipher_at(self._key, offset).update_into(raw.data, out.data)

    def append_table(self, table: pa.Table) -> tuple[int, int]:
        """Write a table; return where it begins and how long it is."""
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
