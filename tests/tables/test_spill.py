"""Rows that wait on disk for their places in the order: sorted in any buckets, each file under a key of its own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from checks import hidden_bytes
from small_parts import small_parts

from dpframe.release import spill


class TestSpill:
    @pytest.mark.walk(4)
    @pytest.mark.parametrize("held", [0, 40_000, 1 << 27])
    @pytest.mark.parametrize(("bits", "block"), [(0, 1 << 20), (1, 1 << 20), (4, 700), (10, 1 << 20)])
    def test_ties_in_the_high_half(self, tmp_path, monkeypatch, bits, block, held):
        """Rows are sorted by both halves of their words, in any number of buckets, from any batches."""
        small_parts(monkeypatch, held_bytes=held, spill_rows=1_000)
        monkeypatch.setattr("dpframe.release.spill._ENCRYPTED_BLOCK_BYTES", block)
        rng = np.random.default_rng(1)
        n = 3_000
        high = rng.choice(rng.integers(0, 2**64, 40, dtype=np.uint64), n)
        words = np.stack([rng.permutation(n).astype(np.uint64), high], axis=1)
        batch = {"i": np.arange(n, dtype=np.uint16), "t": pa.array([f"t{i}" for i in range(n)])}
        expected = np.lexsort((words[:, 0], high)).tolist()
        with spill.Spill(tmp_path, bits) as rows_apart:
            for start in range(0, n, 701):
                part = slice(start, start + 701)
                rows_apart.add(words[part], {name: column[part] for name, column in batch.items()})
            rows = [rows_apart.read(bucket) for bucket in range(rows_apart.buckets)]
        assert [i for row in rows for i in row["i"].tolist()] == expected
        assert [t for row in rows for t in row["t"].to_pylist()] == [f"t{i}" for i in expected]

    @pytest.mark.posix
    def test_keys_of_two_spills_differ(self, tmp_path, monkeypatch):
        small_parts(monkeypatch, held_bytes=0)
        contents = []
        for _ in range(2):
            with spill.Spill(tmp_path, 0) as rows_apart:
                rows_apart.add(np.zeros((9, 2), np.uint64), {"i": np.zeros(9, np.uint8)})
                rows_apart.read(0)
                contents.append(hidden_bytes(tmp_path))
        assert contents[0] != contents[1]
        assert len(contents[0]) == len(contents[1]) == 9 * 17
