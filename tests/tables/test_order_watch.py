"""Rows that keep their order are watched, in batches of any size and part by part, and told of as on one machine."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpframe.errors import OrderLeakWarning
from dpframe.release import order_watch
from dpframe.release.order_watch import SortedWatch, merged, stretches, warn_of

ROWS = 40


def said(watch, *arguments):
    with warnings.catch_warnings(record=True, action="always") as caught:
        watch(*arguments)
    assert all(warning.category is OrderLeakWarning for warning in caught)
    return [str(warning.message) for warning in caught]


def watched(codes):
    watch = SortedWatch()
    watch.update(codes)
    return said(watch.warn)


def watched_in_parts(codes, parts):
    found = {}
    for part in parts:
        found = merged(found, stretches({name: column[part] for name, column in codes.items()}, part.astype(np.uint64)))
    return said(warn_of, sum(map(len, parts)), {name: stretch.order for name, stretch in found.items()})


def sets(numbers):
    return np.stack([numbers, numbers * 7], axis=1).astype(np.uint64)


SHAPES = {
    "sorted": np.sort,
    "reversed": lambda numbers: -np.sort(-numbers.astype(np.int64)).astype(np.uint32),
    "grouped": lambda numbers: np.sort(numbers ^ 1) ^ 1,
    "mixed": np.array,
    "sets": lambda numbers: sets(np.sort(numbers)),
    "constant": np.zeros_like,
}


@given(
    st.lists(st.integers(0, 30), min_size=ROWS, max_size=ROWS),
    st.lists(st.integers(0, 5), min_size=ROWS, max_size=ROWS),
    st.sampled_from(sorted(SHAPES)),
)
def test_as_on_one_machine_whatever_the_parts(numbers, owners, shape):
    codes = {"x": SHAPES[shape](np.array(numbers, dtype=np.uint32)), "y": np.arange(ROWS, dtype=np.uint8)}
    parts = [np.flatnonzero(np.array(owners) == owner) for owner in range(6)]
    assert watched_in_parts(codes, parts) == watched(codes)


@pytest.mark.parametrize("most", [1, 8, 1 << 12])
def test_many_codes(monkeypatch, most):
    """What is sorted is told of by its first bits; what is grouped by more codes than are watched is not."""
    monkeypatch.setattr(order_watch.SortedWatch, "MOST_GROUPS", most)
    rng = np.random.default_rng(1)
    codes = {
        "sorted": np.sort(rng.integers(0, 1 << 40, 5_000)).astype(np.uint64),
        "mixed": rng.integers(0, 1 << 40, 5_000).astype(np.uint64),
        "grouped": np.repeat(rng.permutation(50), 100).astype(np.uint8),
    }
    parts = np.array_split(rng.permutation(5_000), 7)
    names = ["sorted"] * (most > 1) + ["grouped"] * (most > 50)
    told = " and ".join(f"{kind} by {name}" for kind, name in zip(names, names, strict=True))
    assert watched_in_parts(codes, parts) == ([f"the input is {told} and keeps its order: {REMEDY}"] if told else [])


REMEDY = "positions reveal values; use shuffle=True or reorder the rows at random first"


# ------------------------------------------------------------------------------------------- in one piece


def order_warnings(*batches: Any, partitions: Any = ()) -> list[str]:
    watch = SortedWatch(partitions)
    for batch in batches:
        watch.update({"x": np.array(batch, dtype=np.uint8)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch.warn()
    return [str(w.message).split(":")[0] for w in caught]


def test_leak_order_of_grouped_rows_is_warned_of() -> None:
    grouped = ["the input is grouped by x and keeps its order"]
    assert order_warnings([1] * 5 + [0] * 5 + [2] * 5) == grouped
    assert order_warnings([1] * 5, [1] * 3 + [0] * 3, [], [0], [2] * 2, [2]) == grouped
    assert order_warnings([1] * 5, [0] * 5, [2] * 5) == grouped
    assert order_warnings([1] * 5 + [0] * 5 + [2] * 5 + [1]) == []
    assert order_warnings([1] * 5, [0] * 5, [1] * 5) == []
    assert order_warnings([2, 1, 3, 0]) == []
    assert order_warnings([2, 1, 3, 0, 4, 5, 9, 6, 7, 8, 10]) == []
    assert order_warnings([3] * 1000) == []
    assert order_warnings([0] * 6 + [1] * 5) == ["the input is sorted by x and keeps its order"]
    parted = ["the input is partitioned by 'a\\nb', k and keeps its order"]
    assert order_warnings([], partitions=["a\nb", "k"]) == parted


@pytest.mark.walk(3)
@pytest.mark.parametrize("shares", [[5, 5], [9, 1], [99, 1], [4, 3, 3], [1] * 10, [20, 2, 2], [300, 300, 400]])
def test_random_order_is_warned_of_as_seldom_as_stated(shares: list[int]) -> None:
    rng = np.random.default_rng(len(shares))
    column = np.repeat(np.arange(len(shares)), shares)
    found = sum(bool(order_warnings(rng.permutation(column))) for _ in range(1500))
    assert found <= 1500 * SortedWatch.CHANCE + 4 * math.sqrt(1500 * SortedWatch.CHANCE)


def test_runs_are_seen_the_same_in_batches_of_any_size() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        column = np.repeat(rng.permutation(4), rng.integers(0, 6, 4))
        if rng.random() < 0.3:
            rng.shuffle(column)
        cuts = np.sort(rng.integers(0, len(column) + 1, 3))
        assert order_warnings(*np.split(column, cuts)) == order_warnings(column)
