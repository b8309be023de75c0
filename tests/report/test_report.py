"""The report sets expected errors beside the lower bounds of Theorems 6 and 7, and says what the words mean."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from examples import plan_of
from pages import visible

import dpframe as dpf
from dpframe import ReleaseInfo, Report

PLAN = plan_of({"age": (0, 120), "sex": ["F", "M", "X"], "<b>": (0, 9)}, epsilon=3.0, delta=0.3)
REPORT = Report(ReleaseInfo(PLAN, 1_234, "0" * 16))


def test_both_bounds_stand_beside_the_expected_error() -> None:
    table = REPORT.to_frame()
    assert list(table.index) == ["age", "sex", "<b>"]
    names = list(table.columns)
    assert names.index("error_bound_6") == names.index("expected_error") + 1
    assert names.index("error_bound_7") == names.index("expected_error") + 2
    assert "error_bound" not in names
    for name, diameter, m in [("age", 120, 120), ("sex", 1, 2), ("<b>", 9, 9)]:
        budget = PLAN[name].mechanism.budget
        kept, odds = 1 - budget.delta, math.exp(budget.epsilon)
        assert table.loc[name, "error_bound_6"] == pytest.approx(kept * diameter / (2 * (1 + odds)))
        assert table.loc[name, "error_bound_7"] == pytest.approx(kept * m / (m + odds))
    assert (table["expected_error"] >= table[["error_bound_6", "error_bound_7"]].max(axis=1)).all()
    # Randomised response meets Theorem 7.
    assert table.loc["sex", "expected_error"] == pytest.approx(table.loc["sex", "error_bound_7"], rel=1e-4)


def test_text_and_html() -> None:
    text, html = str(REPORT), REPORT._repr_html_()
    for words in ("A release of 1,234 rows", "Release: epsilon=3", "error_bound_6", "error_bound_7", "Theorem 7"):
        assert words in text
        assert words in html
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert max(map(len, text.splitlines())) < 300


def test_groups_are_one_row() -> None:
    plan = plan_of({"a": ["x", "y"], "b": ["u", "v"], "c": (0, 5)}, epsilon=2.0, groups=[["a", "b"]])
    table = Report(ReleaseInfo(plan, 10, "")).to_frame()
    assert len(table) == len(plan.units) == 2
    assert (table["expected_error"] >= table["error_bound_7"]).all()
    assert isinstance(table, pd.DataFrame)


@pytest.mark.slow
def test_bins_end_at_the_bounds():
    """The last is open to the right: its own end lies one step beyond."""
    frame = pd.DataFrame({"x": np.arange(2_000) % 90.0, "t": pd.date_range("2020-01-01", periods=2_000, freq="h")})
    spaces = {"x": (0.0, 90.0), "t": ("2020-01-01", "2020-03-31")}
    safe = dpf.sanitize(frame, epsilon=4, delta=1e-6, spaces=spaces, key=bytes(32))
    page = visible(safe.dp.report().to_html())
    assert "78.8 … 90 " in page
    assert "… 2020-03-31 " in page
