"""Which rows a split table's sample has and in which order: tags that only who has the secret can compute."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parties import SPACES, N, Parties, halves, people
from scipy import stats

import dpframe as dpf
from dpframe.vertical import Identity, curator, messages, new_run


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties.make(tmp_path, halves(people()), SPACES, groups=[("job", "sex")], sample=400)


@pytest.mark.slow
def test_the_sample_and_its_order_are_uniform() -> None:
    """Of four rows two are drawn: twelve ordered pairs, over 12,000 nonces. One key each, so the same every time."""
    counts: Counter[tuple[int, ...]] = Counter()
    ids = pa.array([10, 11, 12, 13])
    for nonce in range(12_000):
        tags = curator.row_tags(ids, curator.tag_key(bytes(range(32)), nonce.to_bytes(32, "big")))
        counts[tuple(np.lexsort((tags[:, 0], tags[:, 1]))[:2].tolist())] += 1
    assert len(counts) == 12
    assert stats.chisquare(list(counts.values())).pvalue > 1e-6


def test_tags_tell_ids_apart() -> None:
    """Ids of all lengths, about the length of a block, with noughts behind them, and in slices and dictionaries."""
    texts = ["", "a", "a\0", "a\0\0", *("x" * n for n in range(1, 40)), *("x" * n + "\0" for n in range(13, 18))]
    array, key = pa.array(texts), bytes(range(32))
    tags = curator.row_tags(array, key)
    assert len({row.tobytes() for row in tags}) == len(set(texts))
    np.testing.assert_array_equal(curator.row_tags(array[3:20], key), tags[3:20])
    np.testing.assert_array_equal(curator.row_tags(array.dictionary_encode(), key), tags)
    np.testing.assert_array_equal(curator.row_tags(pa.chunked_array([array[:5], array[5:]]), key), tags)
    np.testing.assert_array_equal(curator.row_tags(array.cast(pa.large_string()), key), tags)
    assert (curator.row_tags(array, bytes(32)) != tags).any(axis=1).all()
    assert curator.row_tags(array[:0], key).shape == (0, 2)
    wide = curator.row_tags(pa.array([-(2**63), 2**63 - 1, 7]), key)
    np.testing.assert_array_equal(wide, curator.row_tags(pa.array([str(-(2**63)), str(2**63 - 1), "7"]), key))


def test_another_nonce_draws_another_sample(parties: Parties) -> None:
    ids, secret = pa.array([f"person {i}" for i in range(N)]), Identity(parties.root / "alice").shared
    again = new_run(
        {m.name: (parties.run.spaces(m.columns), m.key) for m in parties.run.curators},
        parties.run.server,
        n=N,
        epsilon=1.0,
    )
    assert again.nonce != parties.run.nonce
    one, other = (
        np.argsort(curator.row_tags(ids, curator.tag_key(secret, r.digest))[:, 1]) for r in (parties.run, again)
    )
    assert (one != other).any()


def test_row_groups_and_batches_change_nothing(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MESSAGE_BATCH_ROWS", 64)
    monkeypatch.setattr("dpframe.vertical.curator.MESSAGE_BATCH_ROWS", 64)
    parties.encrypt_all()
    assert pq.read_metadata(parties.message("alice")).num_row_groups == 7
    monkeypatch.undo()
    parties.perturb()
    parties.decrypt()
    assert dpf.verify(parties.release).ok
