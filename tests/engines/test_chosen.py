"""Rows that are taken several times, or never, have the places that they have in the whole table."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpframe as dpf
from dpframe.engines.chosen import RowCounts, check_candidates, find_candidates
from dpframe.tables.frames import wrap
from dpframe.tables.persons import PersonChoice, row_counts

KEY = bytes(range(32))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=300), st.randoms(use_true_random=False))
def test_places(counts, random):
    """By the definition: rows are repeated, and stand where they stand."""
    counts = np.array(counts, dtype=np.uint8)
    chosen = pickle.loads(pickle.dumps(RowCounts.of(counts)))
    whole = np.repeat(np.arange(len(counts)), counts)
    rows = np.array(random.sample(range(len(counts)), len(counts) // 2), dtype=np.uint64)
    places = chosen.new_places(rows)
    expected = [place for row in rows.tolist() for place in np.flatnonzero(whole == row).tolist()]
    assert places.tolist() == expected
    assert chosen.counts_of(rows).tolist() == counts[rows].tolist()
    first = len(counts) // 3
    part = RowCounts.of(counts[first:], first, int(counts[:first].sum(dtype=int)))
    later = rows[rows >= first]
    assert part.new_places(later).tolist() == chosen.new_places(later).tolist()


def test_rows_that_were_not_counted():
    with pytest.raises(dpf.FileError, match=r"rows or partitions changed.*release it anew"):
        RowCounts.of(np.ones(70, np.uint8)).counts_of(np.array([70], np.uint64))
    found = [(np.zeros((1, 2), np.uint64), np.zeros(1, np.uint64), np.array([70]))]
    with pytest.raises(dpf.FileError, match=r"rows or partitions changed.*release it anew"):
        list(check_candidates(iter(found), 70))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=60),
    st.lists(st.integers(0, 3), min_size=60, max_size=60),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_parts_choose_as_the_whole(ids, owners, rows, passes):
    ids, owners = np.array(ids), np.array(owners[: len(ids)])
    choice = PersonChoice(rows, KEY, passes)
    parts = [np.flatnonzero(owners == owner).astype(np.uint64) for owner in range(4)]

    def read(turn):
        for part in parts:
            yield find_candidates("p", choice, turn, iter([(wrap(pa.table({"p": ids[part]})), part)]))

    counts = choice.counts(len(ids), read)
    np.testing.assert_array_equal(counts, row_counts(lambda: [pa.array(ids)], len(ids), rows, KEY))
