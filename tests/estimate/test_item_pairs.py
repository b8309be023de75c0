"""Pairs of items between the rows' unbiased counts and what measured supports make likely."""

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.errors import ParameterError
from dpframe.estimate.item_pairs import likely_pairs

N = 4_000
ITEMS = list("abcdefgh")


def simulated(noise, spread=0.5, seed=0):
    """300 pairs of supports about 0.1 that differ from 1.3 times their product by a factor."""
    generator = np.random.default_rng(seed)
    first, second = generator.uniform(0.05, 0.2, (2, 300))
    truth = 1.3 * first * second * (1 + spread * np.clip(generator.standard_normal(300), -1.9, 1.9))
    rows = truth + noise * generator.standard_normal(300)
    exact = np.full(300, 1e-10)
    return truth, likely_pairs(rows, np.full(300, noise**2), (first, exact), (second, exact)), rows


@pytest.mark.parametrize("noise", [1e-4, 3e-3, 0.02, 0.2])
@pytest.mark.parametrize("spread", [0.05, 0.5])
def test_errors_are_smaller_than_either_and_known(noise, spread):
    """300 pairs: within 95 % intervals more than 90 % of them (below by chance with 1e-4); where rows tell nothing of
    the factor that all pairs have in common, more than 80 %."""
    truth, (pairs, variances), rows = simulated(noise, spread)
    error = np.sqrt(np.mean((pairs - truth) ** 2))
    assert error <= 1.02 * np.sqrt(np.mean((rows - truth) ** 2))
    assert np.mean(np.abs(pairs - truth) < 1.96 * np.sqrt(variances)) > (0.9 if noise < 0.2 else 0.8)
    if noise == 0.2:
        assert error < 0.1 * noise


@pytest.mark.walk(5)
@pytest.mark.parametrize("noise", [3e-3, 0.01, 0.03, 0.3])
@pytest.mark.parametrize("lift", [1.0, 3.0, 9.0])
def test_intervals_of_pairs_hold_however_far_they_are_from_chance(noise, lift):
    """Noise of .3 is that of rows alone.

    Of 300 pairs 15 go together: fewer than .9 of 600 hold with a chance of .04 if .92 do, which is the least.
    """
    inside, errors, alone = [], [], []
    for seed in range(40):
        generator = np.random.default_rng(seed)
        first, second = generator.uniform(0.02, 0.2, (2, 300))
        truth = first * second * np.where(np.arange(300) < 15, lift, 1 + 0.2 * generator.uniform(-1, 1, 300))
        truth = np.minimum(truth, np.minimum(first, second))
        seen = truth + noise * generator.standard_normal(300)
        supports = [(one, np.full(300, 1e-8)) for one in (first, second)]
        found, variances = likely_pairs(seen, np.full(300, noise**2), *supports)
        inside.append((np.abs(found - truth) <= 1.96 * np.sqrt(variances))[:15])
        errors.append(found - truth)
        alone.append(seen - truth)
    assert np.mean(inside) >= 0.9
    assert np.mean(np.square(errors)) < 0.25 * np.mean(np.square(alone)) or noise < 0.01


def test_supports_that_noise_hides_leave_pairs_unsure():
    """Supports of .01 seen as 0 with an error of .01: pairs may be as frequent as these errors allow."""
    supports = np.zeros(190), np.full(190, 1e-4)
    seen = 0.03 * np.random.default_rng(0).standard_normal(190)
    found, variances = likely_pairs(seen, np.full(190, 9e-4), supports, supports)
    assert (np.abs(found - 1e-4) < 1.96 * np.sqrt(variances)).all()


def test_rows_that_know_nothing_leave_the_product():
    s = np.array([0.2, 0.5]), np.full(2, 1e-10)
    pairs, _ = likely_pairs(np.array([np.nan, 0.3]), np.full(2, np.inf), s, s)
    np.testing.assert_allclose(pairs, [0.04, 0.25])


@pytest.fixture(scope="module")
def baskets():
    generator = np.random.default_rng(1)
    held = generator.random((N, len(ITEMS))) < np.linspace(0.4, 0.1, len(ITEMS))
    held[:, 1] |= held[:, 0] & (generator.random(N) < 0.5)
    return pd.DataFrame({"x": [[i for i, h in zip(ITEMS, row, strict=True) if h] for row in held]}), held


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


@pytest.mark.walk(1)
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
