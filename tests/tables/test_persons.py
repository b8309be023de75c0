"""Which rows of a person are kept: a choice that is secret, uniform and the same in any batches and passes."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import VISITS as SPACES
from examples import visits
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import dpframe as dpf
from dpframe.tables import persons
from dpframe.tables.persons import row_counts

KEY = bytes(range(32))


def counted(ids, rows, key=KEY, chunks=1, **options):
    parts = [pa.array(part) for part in np.array_split(np.asarray(ids), chunks)]
    return row_counts(lambda: parts, len(ids), rows, key, **options)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 4), st.integers(1, 9))
def test_there_are_as_many_rows_of_each_in_any_batches_and_passes(ids, rows, chunks, at_once):
    counts = counted(ids, rows)
    owned = pd.Series(ids).groupby(ids).size()
    taken = pd.Series(counts.astype(int)).groupby(ids)
    assert (taken.sum() == rows).all()
    assert (taken.max() - taken.min() <= 1).all()
    assert (taken.max() <= np.ceil(rows / owned)).all()
    assert (counted(ids, rows, chunks=chunks, at_once=at_once) == counts).all()
    texts = counted([f"person {i}" for i in ids], rows, chunks=chunks)
    assert (texts == counts).all(), "the choice follows the rows' places, not what ids are"


@pytest.mark.walk(1)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_choice_is_uniform(rows):
    """4,000 keys: chi-squared over the subsets of a person's four rows; fails with probability 1e-6 for each."""
    ids = [7, 1, 7, 7, 2, 7]
    seen = Counter(tuple(np.flatnonzero(counted(ids, rows, k.to_bytes(32, "big")))) for k in range(4_000))
    own = Counter()
    for places, times in seen.items():
        own[tuple(place for place in places if ids[place] == 7)] += times
    subsets = list(combinations([0, 2, 3, 5], rows))
    assert set(own) == set(subsets)
    assert stats.chisquare([own[subset] for subset in subsets]).pvalue > 1e-6


def test_files_and_frames_choose_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(persons, "PERSON_CHUNK_ROWS", 100)
    frame = visits([4] * 60 + [1] * 40)
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "in.parquet", row_group_size=37)
    options = {"spaces": SPACES, "privacy_id": "patient", "contributions": 2, "key": KEY}
    memory = dpf.sanitize(frame, epsilon=1.0, delta=1e-6, **options)
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 1.0, 1e-6, batch_rows=23, **options)
    file = dpf.read(tmp_path / "out.parquet")
    pd.testing.assert_frame_equal(memory.reset_index(drop=True), file, check_dtype=False)
    polars = pytest.importorskip("polars")
    other = dpf.sanitize(polars.from_pandas(frame), epsilon=1.0, delta=1e-6, **options)
    assert other.to_pandas()["age"].tolist() == memory["age"].tolist()


@pytest.mark.parametrize("first", [2**53, -(2**60), 2**64 - 40])
def test_wide_ids_are_told_apart_in_any_passes(first):
    ids = pa.array(range(first, first + 40), pa.uint64() if first > 0 else pa.int64())
    for passes in (1, 2, 4):
        assert (row_counts(lambda: [ids], 40, 2, KEY, at_once=40 // passes) == 2).all()


def test_an_interrupted_job_chooses_the_same_rows(tmp_path, monkeypatch):
    frame = visits([5] * 80)
    frame.to_parquet(tmp_path / "in.parquet", index=False)
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("clinic", 2.0, 1e-5, unit="person:patient")
    options = {"spaces": SPACES, "privacy_id": "patient", "ledger": ledger, "dataset": "clinic"}
    chosen = []
    real = persons.row_counts

    def watched(*args):
        chosen.append(real(*args))
        if len(chosen) == 1:
            monkeypatch.setattr("dpframe.api.verbs.Conversion.run", stop)
        return chosen[-1]

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dpframe.tables.files.row_counts", watched)
    with pytest.raises(KeyboardInterrupt):
        dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 1.0, 1e-6, **options)
    monkeypatch.undo()
    monkeypatch.setattr("dpframe.tables.files.row_counts", watched)
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 1.0, 1e-6, **options)
    assert (chosen[0] == chosen[1]).all()
    assert len(ledger.history("clinic")) == 1
