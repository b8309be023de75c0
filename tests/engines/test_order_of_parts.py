"""Rows that keep their order are watched part by part, and told of as on one machine."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpframe.errors import OrderLeakWarning
from dpframe.tables import order_watch
from dpframe.tables.order_watch import SortedWatch, merged, stretches, warn_of

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
