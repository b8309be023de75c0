"""Rows on disk for a while: a file without a name, readable only by its owner, encrypted under a key held in memory."""

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

_BLOCK = 1 << 20
"""Bytes that are encrypted at a time, in memory that is taken once."""


class HiddenFile:
    """A file in a folder that grows at its end, is read anywhere, and is gone when it is closed or the process ends."""

    def __init__(self, folder: Path) -> None:
        self._key = secrets.token_bytes(32)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed by __exit__)
        self._cipher = cipher_at(self._key, 0)
        self._end = 0
        self._block = np.empty(_BLOCK, dtype=np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def append(self, raw: memoryview) -> int:
        """Write bytes; return where they begin."""
        start = self._end
        self._end += len(raw)
        for first in range(0, len(raw), len(self._block)):
            part = raw[first : first + len(self._block)]
            self._cipher.update_into(part, self._block.data)
            hidden = self._block.data[: len(part)]
            while hidden:
                hidden = hidden[self._file.write(hidden) :]
        return start

    def fetch_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Read what lies at an offset, decrypted, until ``out`` is full."""
        cipher, place = cipher_at(self._key, offset), 0
        block = np.empty(min(_BLOCK, len(out)), dtype=np.uint8)
        while place < len(out):
            count = read_at(self._file.fileno(), offset + place, block[: len(out) - place])
            if not count:
                raise OSError("the spill file is shorter than what was written")
            cipher.update_into(block[:count].data, out[place : place + count].data)
            place += count

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
