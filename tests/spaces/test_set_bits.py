"""Sets as bits: both ways of reading them give the items that brute force gives, whatever share of bits is set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpframe.spaces import set_bits
from dpframe.spaces.set_bits import U64, members, packed, set_sizes

WIDTHS = [1, 2, 12, 13, 14, 24, 26, 27, 39, 40, 63, 64, 65, 127, 128, 129, 200]


def codes_of(lists: list[list[int]], words: int) -> U64:
    rows = [[sum(1 << i - 64 * w for i in row if i // 64 == w) for w in range(words)] for row in lists]
    return np.array(rows, dtype=np.uint64).reshape(len(lists), words)


def check(lists: list[list[int]], items: int) -> None:
    words = -(-items // 64)
    codes, kind = codes_of(lists, words), np.min_scalar_type(-items)
    numbers, lengths = members(codes, items, kind)
    assert numbers.to_pylist() == [i for row in lists for i in row]
    assert str(numbers.type) == kind.name
    assert lengths.tolist() == set_sizes(codes).tolist() == [len(row) for row in lists]
    flat = np.array([i for row in lists for i in row], dtype=np.int64)
    assert (packed(flat, lengths, words) == codes).all()


@pytest.mark.parametrize("share", [0.0, 0.02, 0.16, 0.17, 0.5, 1.0])
@pytest.mark.parametrize("items", WIDTHS)
def test_items_come_back(items: int, share: float) -> None:
    chosen = np.random.default_rng(items).random((300, items)) < share
    check([np.flatnonzero(row).tolist() for row in chosen], items)


@given(st.integers(1, 70).flatmap(lambda h: st.tuples(st.just(h), st.lists(st.sets(st.integers(0, h - 1))))))
def test_any_sets(drawn: tuple[int, list[set[int]]]) -> None:
    items, sets = drawn
    check([sorted(each) for each in sets], items)


@pytest.mark.parametrize("items", [13, 24, 64])
def test_both_ways_agree_across_the_borders_of_passes(monkeypatch: pytest.MonkeyPatch, items: int) -> None:
    monkeypatch.setattr(set_bits, "_SET_BITS_CHUNK_ROWS", 32)
    monkeypatch.setattr(set_bits, "_CHUNK_BYTES", 1 << 13)
    chosen = np.random.default_rng(items).random((333, items)) < 0.4
    codes = codes_of([np.flatnonzero(row).tolist() for row in chosen], 1)
    found = []
    for share in (0.0, 2.0):
        monkeypatch.setattr(set_bits, "_DENSE_SHARE", share)
        found.append(members(codes, items, np.dtype(np.int8))[0].to_pylist())
    assert found[0] == found[1] == np.nonzero(chosen)[1].tolist()


def test_an_item_that_comes_twice_is_one_bit() -> None:
    assert packed(np.array([2, 2, 65, 0]), np.array([3, 0, 1]), 2).tolist() == [[4, 2], [0, 0], [1, 0]]
