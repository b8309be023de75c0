"""Estimates of columns whose nulls became a value: whether a table holds any is data, that they would count is not."""

import re
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.inference.inferred import null_count
from dpframe.plan.build import build_plan
from dpframe.report.page import review_table

SPACES = {
    "rating": dpf.Real(1, 5, steps=40),
    "sex": dpf.Categorical(["F", "M"]),
    "region": dpf.Categorical(["N", "S"], other="other"),
    "age": dpf.Nullable(dpf.Integer(0, 100)),
}
N = 200
FRAME = pd.DataFrame(
    {
        "rating": np.tile([4.0, 5.0, np.nan, np.nan], N // 4),
        "sex": ["F", "M"] * (N // 2),
        "region": ["N", "S"] * (N // 2),
        "age": [30.0, None] * (N // 2),
    }
)


@pytest.fixture(scope="module")
def estimates():
    plan = build_plan(SPACES, epsilon=8.0, delta=0.0, n=N, nulls="impute")
    return dpf.Estimates(dpf.sanitize(FRAME, plan=plan, key=bytes(32)))


@pytest.mark.parametrize(
    ("ask", "lines"),
    [
        (lambda e: e.mean("rating"), ["rating  counts nulls as the middle of its bounds"]),
        (lambda e: e.count({"rating": (1, 3.9)}), ["rating  counts nulls as the middle of its bounds"]),
        (
            lambda e: e.mean("rating", by="sex"),
            ["rating  counts nulls as the middle of its bounds", "sex     counts nulls as its first category"],
        ),
        (lambda e: e.corr(["rating", "age"]), ["rating  counts nulls as the middle of its bounds"]),
        (lambda e: e.top("sex", 1), ["sex  counts nulls as its first category"]),
        (lambda e: e.value_counts("region"), []),
        (lambda e: e.mean("age"), []),
    ],
)
def test_a_statistic_says_once_what_nulls_count_as(estimates, ask, lines):
    """Of columns that declare no nulls under nulls="impute": ``other`` stands for them openly, Nullable keeps them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask(estimates)
    said = [str(one.message) for one in caught if "count as values" in str(one.message)]
    assert len(said) == bool(lines)
    for message in said:
        headline, *table = message.splitlines()
        assert "declare Nullable(…) in the next release" in headline
        # Cells stand below each other, so that the first line may be padded.
        assert [re.split(r"  (?=spaces=)", line)[0].rstrip() for line in table] == [f"  {line}" for line in lines]


def test_a_report_says_that_nulls_count_as_values(estimates):
    plan = estimates.plan
    told = review_table(plan, plan.verify()).rows[-1][1]
    assert told.endswith("count as the bounds, and nulls as a value where a column is not nullable.")


def test_other_kinds_of_columns_say_what_a_null_is():
    assert dpf.Ordinal(["low", "mid", "high"]).null_counts_as == "its middle category"
    assert dpf.Subset(["a", "b"]).null_counts_as == "the empty set"


@cache
def hidden(nulls, seed):
    """Return a release of 1,000 rows with so few nulls that noise may hide them, and hints at nulls that it gave."""
    n = 1_000
    values = pd.Series(np.random.default_rng(seed).integers(0, 50, n)).astype(float)
    values[:nulls] = None
    frame = pd.DataFrame({"x": values, "sex": ["F", "M"] * (n // 2)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        safe = dpf.sanitize(frame, epsilon=1, spaces={"sex": ["F", "M"]}, key=bytes([seed] * 32), measure=None)
    hints = [str(one.message) for one in caught if "nulls, too few to show" in str(one.message)]
    return safe, hints


@pytest.mark.filterwarnings("ignore::dpframe.InferenceWarning")
@pytest.mark.parametrize("target", ["table", "population"])
@pytest.mark.parametrize("nulls", [0, 10])
def test_nulls_that_noise_hides_have_a_rate_with_an_interval(nulls, target):
    """Of six releases all whose spaces hold no nulls give 0 to what the counts allow.

    The truth lies there with a probability of .975; all but two hold it with one above .999.
    """
    held = []
    for seed in range(6):
        safe, _ = hidden(nulls, seed)
        if safe.dp.release.plan["x"].space.has_null:
            continue
        rate = safe.dp.null_rate("x", target=target)
        assert rate["estimate"] == rate["lower"] == 0.0
        assert 0 < rate["std_error"] < rate["upper"] < 0.2
        if not held:  # one description shows how counts follow rates
            count = safe.dp.describe(["x"], target=target).xs("x", axis=1, level=1).loc["count"]
            assert count["estimate"] == 1_000
            assert count["std_error"] == pytest.approx(1_000 * rate["std_error"])
            assert count["lower"] == pytest.approx(1_000 * (1 - rate["upper"]))
        held.append(rate["upper"] >= nulls / 1_000)
    assert len(held) >= 3
    assert sum(held) >= len(held) - 2


def test_a_rate_of_what_holds_no_nulls_is_none():
    """By the column's type, or as nulls are refused; where they count as values nothing is known of them."""
    frame = FRAME.assign(age=np.arange(N) % 50)[["age", "sex"]]
    safe = dpf.sanitize(frame, epsilon=8, spaces={"sex": ["F", "M"]}, key=bytes(32), measure=None)
    for column in frame:
        assert safe.dp.null_rate(column).tolist() == [0.0, 0.0, 0.0, 0.0]
    assert safe.dp.describe(["age"]).xs("age", axis=1, level=1).loc["count"].tolist() == [N, 0.0, N, N]


def test_a_rate_of_nulls_that_count_as_values_is_refused(estimates):
    with pytest.raises(dpf.ParameterError, match=r"'rating' has no null.*count as values"):
        estimates.null_rate("rating")


def test_inference_warns_of_nulls_that_its_counts_hint_at():
    """A hint is between two and three standard errors; a column without nulls has one in 2 % of its releases."""
    releases = [hidden(nulls, seed) for nulls in (0, 10, 25) for seed in range(6)]
    said = []
    for safe, hints in releases:
        plan = safe.dp.release.plan
        (nulls, variance) = null_count(m for m in plan.inferred.measured if m.column == "x")
        assert len(hints) == (2 < nulls / variance**0.5 <= 3)
        said += hints
    assert said
    remark = "  x  nulls, too few to show, count as values if there are any  spaces={'x': Nullable(…)}"
    assert all(one.splitlines()[1:] == [remark] for one in said)
