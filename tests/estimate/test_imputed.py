"""Estimates of columns whose nulls became a value: whether a table holds any is data, that they would count is not."""

import warnings

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.api.report.page import review_table
from dpframe.plan.build import build_plan

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
    ("ask", "words"),
    [
        (lambda e: e.mean("rating"), "rating as the middle of its bounds"),
        (lambda e: e.count({"rating": (1, 3.9)}), "rating as the middle of its bounds"),
        (lambda e: e.mean("rating", by="sex"), "rating as the middle of its bounds, of sex as its first category"),
        (lambda e: e.corr(["rating", "age"]), "rating as the middle of its bounds;"),
        (lambda e: e.top("sex", 1), "sex as its first category"),
        (lambda e: e.value_counts("region"), ""),
        (lambda e: e.mean("age"), ""),
    ],
)
def test_a_statistic_says_once_what_nulls_count_as(estimates, ask, words):
    """Of columns that declare no nulls under nulls="impute": ``other`` stands for them openly, Nullable keeps them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask(estimates)
    said = [str(one.message) for one in caught if "count as values" in str(one.message)]
    assert len(said) == bool(words)
    assert all(f"here, of {words}" in one and "declare Nullable(…) in a new release" in one for one in said)


def test_a_report_says_that_nulls_count_as_values(estimates):
    plan = estimates.plan
    told = review_table(plan, plan.verify()).rows[-1][1]
    assert told.endswith("count as the bounds, and nulls as a value where a column is not nullable.")


def test_other_kinds_of_columns_say_what_a_null_is():
    assert dpf.Ordinal(["low", "mid", "high"]).null_counts_as == "its middle category"
    assert dpf.Subset(["a", "b"]).null_counts_as == "the empty set"
