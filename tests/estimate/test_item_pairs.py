"""Pairs of items, from the rows' unbiased counts and measured supports."""

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.errors import ParameterError

N = 4_000
ITEMS = list("abcdefgh")


@pytest.fixture(scope="module")
def baskets():
    generator = np.random.default_rng(1)
    held = generator.random((N, len(ITEMS))) < np.linspace(0.4, 0.1, len(ITEMS))
    held[:, 1] |= held[:, 0] & (generator.random(N) < 0.5)
    return pd.DataFrame({"x": [[i for i, h in zip(ITEMS, row, strict=True) if h] for row in held]}), held


@pytest.mark.slow
def test_cooccurrence_is_drawn_to_measured_supports(baskets):
    frame, held = baskets
    truth = held.T.astype(float) @ held / N
    safe = dpf.sanitize(frame, epsilon=1.0, delta=1e-6, spaces={"x": dpf.Subset(ITEMS)}, key=bytes(32))
    found = safe.dp.cooccurrence("x", normalize=True)
    rows = safe.dp.cooccurrence("x", normalize=True, method="inverse")
    assert (found.attrs["method"], found.attrs["source"]) == ("model", "both")
    assert (rows.attrs["method"], rows.attrs["source"]) == ("inverse", "rows")
    errors = [np.sqrt(np.mean((one["estimate"].to_numpy() - truth) ** 2)) for one in (found, rows)]
    assert errors[0] < 0.6 * errors[1]
    np.testing.assert_allclose(np.diag(found["estimate"]), safe.dp.support("x")["estimate"])
    # 36 numbers of a fixed key, five standard errors each.
    assert (np.abs(found["estimate"].to_numpy() - truth) < 5 * found["std_error"].to_numpy()).all()
    # Few items are answered by what all pairs show.
    some = safe.dp.cooccurrence("x", ["c", "a"], normalize=True)["estimate"]
    pd.testing.assert_frame_equal(some, found["estimate"].loc[["c", "a"], ["c", "a"]])
    assert safe.dp.support("x", ["c", "a"])["estimate"].iloc[0] == some.loc["a", "c"]
    counts = safe.dp.cooccurrence("x")
    np.testing.assert_allclose(counts["estimate"], found["estimate"] * N)
    wide = safe.dp.cooccurrence("x", normalize=True, target="population")
    assert (wide["std_error"].to_numpy() >= found["std_error"].to_numpy()).all()
    with pytest.raises(ParameterError, match='method must be "auto" or "inverse"'):
        safe.dp.cooccurrence("x", method="em")


def test_without_measured_supports_nothing_is_drawn(baskets):
    safe = dpf.sanitize(
        baskets[0], epsilon=1.0, delta=1e-6, spaces={"x": dpf.Subset(ITEMS)}, key=bytes(32), measure=None
    )
    found, rows = (safe.dp.cooccurrence("x", method=method) for method in ("auto", "inverse"))
    pd.testing.assert_frame_equal(found, rows)
    assert found.attrs["method"] == "inverse"


@pytest.mark.slow
@pytest.mark.parametrize("most", [3, None])
def test_a_cut_is_in_the_intervals(baskets, most):
    """At an ε where noise is small: with most=None the tables' cut to 8 items loses none, to 3 items by chance."""
    frame, held = baskets
    share = np.minimum(1, (most or 8) / np.maximum(held.sum(axis=1), 1))
    truth = (held * share[:, None]).mean(axis=0)
    z = []
    for key in range(10):
        space = dpf.Subset(ITEMS, max_size=most)
        safe = dpf.sanitize(frame, epsilon=9.0, delta=1e-6, spaces={"x": space}, key=bytes([key]) * 32)
        found = safe.dp.support("x")
        z.append((found["estimate"] - truth) / found["std_error"])
    # 80 numbers, those of a key nearly independent: the mean square's own deviation is about 0.17.
    assert 0.25 < np.mean(np.square(z)) < 1.4


def test_what_a_cap_takes_is_told_by_the_rows():
    """Sets of 20 items, of which tables count 8: the interval reaches from what was counted to what there is."""
    generator = np.random.default_rng(2)
    items = [f"item {i}" for i in range(24)]
    frame = pd.DataFrame({"x": [sorted(generator.permutation(items)[:20]) for _ in range(3_000)]})
    found = dpf.sanitize(
        frame, epsilon=4.0, delta=1e-6, spaces={"x": dpf.Subset(items)}, key=bytes([1]) * 32
    ).dp.support("x")
    # 24 intervals of 95 %: fewer than 20 hold the truth with probability 2e-3, under one key.
    assert ((found["lower"] < 20 / 24) & (found["upper"] > 20 / 24)).sum() >= 20
