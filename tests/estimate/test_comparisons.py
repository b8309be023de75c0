"""Differences between groups, and whether two columns depend: with the noise of what was released.

Keys are fixed. Each statistical test states the probability of its failure were the keys drawn at random.
"""

import warnings
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from checks import refused
from scipy.stats import chi2_contingency, kstest

import dpframe as dpf
from dpframe.errors import InferenceWarning, ParameterError
from dpframe.estimate.independence import measure_dependence

ROWS = 6_000
SPACES = {"ward": ["a", "b", "c", "d"], "smoker": dpf.Boolean(), "visits": (0, 40), "day": ("2024-01-01", "2024-12-31")}


def key(number):
    return bytes([number]) * 32


@pytest.fixture(scope="module")
def clinic():
    generator = np.random.default_rng(6)
    ward = generator.choice(["a", "b", "c", "d"], ROWS, p=[0.4, 0.3, 0.2, 0.1])
    return pd.DataFrame(
        {
            "ward": ward,
            "smoker": generator.random(ROWS) < 0.2 + 0.2 * (ward == "b"),
            "visits": generator.poisson(8 + 4 * (ward == "c")).clip(0, 40),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(generator.integers(0, 366, ROWS), unit="D"),
        }
    )


SPACES["day"] = tuple(pd.Timestamp(day) for day in SPACES["day"])


@pytest.fixture(scope="module")
def safe(clinic):
    return clinic.dp.sanitize(epsilon=4, spaces=SPACES, key=key(1))


# Differences ----------------------------------------------------------------------------------------------------


def test_differences_are_those_of_the_means(clinic, safe):
    found, means = safe.dp.compare("visits", by="ward"), safe.dp.mean("visits", by="ward")
    assert found.index.names == ["ward", "minus"]
    assert set(found.index) == {(b, a) for a, b in combinations("abcd", 2)}
    for (one, other), row in found.iterrows():
        assert row["estimate"] == pytest.approx(means.loc[one, "estimate"] - means.loc[other, "estimate"])
        # Of two errors that may depend.
        assert row["std_error"] < means.loc[[one, other], "std_error"].sum() + 1e-9
        # Simultaneous intervals are wider than single ones.
        assert row["upper"] - row["estimate"] > 2.2 * row["std_error"]
    assert found.loc[("c", "a"), "lower"] > 2
    assert found.attrs["means"] == means["estimate"].to_dict()


def test_a_population_has_wider_differences(safe):
    table, population = (safe.dp.compare("visits", by="ward", target=target) for target in ("table", "population"))
    assert (population["std_error"] > table["std_error"]).all()


def test_rows_alone_are_compared(clinic):
    safe = clinic.dp.sanitize(epsilon=8, spaces=SPACES, measure=None, key=key(2))
    found = safe.dp.compare("visits", by="ward")
    truth = clinic.groupby("ward")["visits"].mean()
    right = np.array([truth[one] - truth[other] for one, other in found.index])
    assert ((found["lower"] <= right) & (right <= found["upper"])).all()
    assert (found["std_error"] < 3).all()


@pytest.mark.slow
def test_all_differences_hold_at_once(clinic):
    """In 40 releases all six hold in .95: in fewer than 33 by chance once in 200."""
    truth = clinic.groupby("ward")["visits"].mean()
    holds = 0
    for number in range(40):
        safe = clinic.dp.sanitize(epsilon=1, spaces=SPACES, key=key(number))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InferenceWarning)
            found = safe.dp.compare("visits", by="ward")
        right = [truth[one] - truth[other] for one, other in found.index]
        holds += bool(((found["lower"] <= right) & (right <= found["upper"])).all())
    assert holds >= 33


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("visit", "ward"), "did you mean 'visits'"),
        (("visits", ["ward"]), "by must be one column"),
        (("day", "ward"), "holds times"),
        (("ward", "smoker"), "ward"),
    ],
)
def test_comparisons_are_refused_in_one_line(safe, arguments, message):
    refused(ParameterError, message, lambda: safe.dp.compare(*arguments))


def test_one_group_is_no_comparison(clinic):
    table = clinic.assign(one="a")[["one", "visits"]]
    safe = table.dp.sanitize(epsilon=4, spaces={"one": ["a"], "visits": (0, 40)}, key=key(1))
    with pytest.raises(ParameterError, match="one group"):
        safe.dp.compare("visits", by="one")


# Dependence -----------------------------------------------------------------------------------------------------


def cramers_v(table, one, other):
    counts = pd.crosstab(table[one], table[other])
    return np.sqrt(chi2_contingency(counts, correction=False)[0] / len(table) / (min(counts.shape) - 1))


def test_dependence_is_found_and_its_strength_bounded(clinic, safe):
    found = safe.dp.independence("ward", "smoker")
    assert list(found.index) == ["p_value", "cramers_v", "lower"]
    assert found["p_value"] < 0.01
    assert 0 < found["lower"] <= cramers_v(clinic, "ward", "smoker")
    assert found["cramers_v"] == pytest.approx(cramers_v(clinic, "ward", "smoker"), abs=0.08)
    assert found.attrs["source"] == "tables"
    assert safe.dp.independence("smoker", "ward")["p_value"] < 0.01
    assert safe.dp.independence("ward", "visits")["p_value"] < 0.01


def test_rows_alone_show_dependence(clinic):
    safe = clinic.dp.sanitize(epsilon=8, spaces=SPACES, measure=None, key=key(1))
    found = safe.dp.independence("ward", "smoker")
    assert found["p_value"] < 0.01
    assert found["lower"] <= cramers_v(clinic, "ward", "smoker")
    assert found.attrs["source"] == "rows"


@pytest.mark.parametrize("noise", [0.0, 20.0, 60.0])
def test_p_values_of_independent_columns_are_uniform(noise):
    """Kolmogorov and Smirnov's test at .001 of 60 tables; the bound of V is 0 in most."""
    generator = np.random.default_rng(1)
    shares, found = np.outer([0.5, 0.3, 0.15, 0.05], [0.6, 0.3, 0.1]), []
    for seed in range(60):
        counts = generator.multinomial(3_000, shares.ravel()).reshape(shares.shape)
        counts = counts + noise * generator.standard_normal(shares.shape)
        found.append(measure_dependence(counts, np.full(shares.shape, noise**2), shares, 3_000, 0.95, seed))
    assert kstest([one.p_value for one in found], "uniform").pvalue > 0.001
    assert np.mean([one.lower > 0 for one in found]) < 0.15


def test_a_lower_end_is_above_zero_if_and_only_if_the_test_rejects_independence():
    """Of weak dependence under noise, which half of the tables show; no lower end is above the true V of most."""
    generator, found = np.random.default_rng(3), []
    slopes = np.outer(np.linspace(-1, 1, 8), [0.08, -0.08])
    shares = np.full((8, 2), 1 / 16) * (1 + 4 * slopes)
    for seed in range(40):
        counts = generator.multinomial(1_000, shares.ravel()).reshape(shares.shape)
        counts = counts + 12 * generator.standard_normal(shares.shape)
        found.append(measure_dependence(counts, np.full(shares.shape, 144.0), shares, 1_000, 0.95, seed))
    assert 10 < sum(one.p_value < 0.05 for one in found) < 40
    assert [one.lower > 0 for one in found] == [one.p_value < 0.05 for one in found]
    assert all(one.lower <= one.cramers_v for one in found)
    truth = np.sqrt(16 * ((shares - 1 / 16) ** 2).sum())
    assert np.mean([one.lower <= truth for one in found]) >= 0.85


@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_lower_ends_of_v_hold(noise):
    """One-sided at .95 of 100 tables: fewer than .88 by chance once in 300; estimates are near the truth."""
    generator = np.random.default_rng(2)
    shares = np.outer([0.5, 0.3, 0.2], [0.6, 0.4]) + 0.05 * np.array([[1, -1], [-0.5, 0.5], [-0.5, 0.5]])
    holds, estimates = [], []
    for seed in range(100):
        counts = generator.multinomial(4_000, shares.ravel()).reshape(shares.shape)
        truth = np.sqrt(chi2_contingency(counts, correction=False)[0] / 4_000)
        noisy = counts + noise * generator.standard_normal(shares.shape)
        found = measure_dependence(noisy, np.full(shares.shape, noise**2), shares, 4_000, 0.95, seed)
        holds.append(found.lower <= truth)
        estimates.append(found.cramers_v - truth)
    assert np.mean(holds) >= 0.88
    assert abs(np.mean(estimates)) < 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ward", "ward"), "depends on itself"),
        (("ward", "smokers"), "did you mean 'smoker'"),
        ((["ward"], "smoker"), "name"),
    ],
)
def test_tests_of_dependence_are_refused_in_one_line(safe, arguments, message):
    refused(ParameterError, message, lambda: safe.dp.independence(*arguments))


def test_sets_have_no_test_of_dependence():
    frame = pd.DataFrame({"hobbies": [["chess"], []] * 50, "sex": ["F", "M"] * 50})
    spaces = {"hobbies": dpf.Subset(["chess", "golf"]), "sex": ["F", "M"]}
    safe = frame.dp.sanitize(epsilon=4, spaces=spaces, key=key(1))
    with pytest.raises(ParameterError, match=r"'hobbies' holds sets.*support"):
        safe.dp.independence("hobbies", "sex")


def test_groups_may_be_whole_numbers(clinic):
    table = clinic[["visits"]].assign(floor=np.arange(ROWS) % 3)
    safe = table.dp.sanitize(epsilon=4, spaces={"floor": (0, 2), "visits": (0, 40)}, key=key(1))
    found = safe.dp.compare("visits", by="floor")
    assert list(found.index) == [(1, 0), (2, 0), (2, 1)]
    assert ((found["lower"] <= 0.5) & (found["upper"] >= -0.5)).all()


def test_rows_with_a_null_have_no_part_in_dependence():
    """Nulls of both columns come together, and values do not depend: p is seldom below .01 (once in a hundred)."""
    generator = np.random.default_rng(8)
    frame = pd.DataFrame({"a": generator.choice(["x", "y"], 4_000), "b": generator.choice(["u", "v"], 4_000)})
    frame[generator.random(4_000) < 0.2] = None
    spaces = {"a": dpf.Nullable(["x", "y"]), "b": dpf.Nullable(["u", "v"])}
    safe = frame.dp.sanitize(epsilon=4, spaces=spaces, key=key(1))
    found = safe.dp.independence("a", "b")
    assert found["p_value"] > 0.01
    assert found["lower"] < 0.05


@pytest.mark.slow
def test_many_values_are_tested_in_little_memory():
    generator = np.random.default_rng(1)
    shares = np.full((120, 120), 1 / 120**2)
    counts = generator.multinomial(200_000, shares.ravel()).reshape(shares.shape).astype(float)
    assert measure_dependence(counts, np.zeros(shares.shape), shares, 200_000, 0.95, 0).p_value > 0.001
