"""Choosing one of several candidates by questions: the right ones, at the stated cost, and what is refused."""

import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe import Ledger

BIDS = pd.DataFrame({"bid": [2.0, 3.0, 7.5, 7.5, 8.0] * 400, "who": ["a", "b", "b", "b", None] * 400})
SPACES = {"bid": (0.0, 10.0), "who": ["a", "b", "c"]}
PRICES = [2, 3, 5, 7, 9]


def revenue(rows, price):
    return price * (rows["bid"] >= price).sum()


@pytest.mark.parametrize("mechanism", ["exponential", "noisy_max", None])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_the_best_candidate_is_chosen_where_it_is_far_better(keys, mechanism, delta):
    q = dpf.Queries(BIDS, 2.0, delta=delta, spaces=SPACES)
    answer = q.select(PRICES, revenue, sensitivity=10, share=0.5, mechanism=mechanism)
    assert answer["choice"] == 7
    assert answer.attrs["delta"] == 0
    if delta == 0:
        assert 0.9999 < answer.attrs["epsilon"] <= 1.0
    assert 0 < answer["shortfall"] < 7 * 1_200


@pytest.mark.slow
def test_the_choice_has_the_law_of_the_scores(keys):
    """150 choices at fixed keys; 5 sd of each frequency have a chance of 1e-5."""
    few = pd.DataFrame({"who": ["a", "b", "b", "c"]})
    q = dpf.Queries(few, 600.0, delta=0, spaces={"who": ["a", "b", "c"]})

    def count(rows, who):
        return (rows["who"] == who).sum()

    found = Counter(
        q.select(["a", "b", "c"], count, sensitivity=1, share=0.001, mechanism="exponential", base=[1, 1, 3])["choice"]
        for _ in range(150)
    )
    ideal = np.array([1, 1, 3]) * np.exp(0.3 * np.array([1, 2, 1]))
    for who, p in zip("abc", ideal / ideal.sum(), strict=True):
        assert abs(found[who] / 150 - p) < 5 * math.sqrt(p * (1 - p) / 150)


def test_a_utility_sees_values_within_their_spaces(keys):
    seen = []

    def look(rows, candidate):
        seen.append(rows)
        return candidate

    wild = pd.DataFrame({"bid": [-1e9, np.nan, 99.0], "who": ["zz", "a", None], "rest": [1, 2, 3]})
    dpf.Queries(wild, 1.0, delta=0, spaces=SPACES).select([0, 1], look, sensitivity=1, share=1)
    rows = seen[-1]
    assert list(rows) == ["bid", "who"]
    assert rows["bid"].tolist()[::2] == [0.0, 10.0]
    assert rows["who"].isna().tolist() == [True, False, True]
    assert len(seen[0]) == 3  # tried on made-up rows


ONE_ODD_ROW = {
    "boolean": (pd.Series([True] * 5 + [None], dtype="boolean"), dpf.Boolean()),
    "truth values as objects": (pd.Series([True] * 5 + [None], dtype=object), dpf.Boolean()),
    "Int64": (pd.Series([1] * 5 + [None], dtype="Int64"), (0, 9)),
    "listed numbers": (pd.Series([1] * 5 + [7]), dpf.Categorical([0, 1])),
    "dates": (pd.Series([pd.Timestamp("2024-01-02")] * 5 + [pd.NaT]), dpf.Datetime("2024-01-01", "2024-01-31", "D")),
    "sets": (pd.Series([["a"]] * 5 + [None]), dpf.Subset(["a", "b"])),
}


@pytest.mark.parametrize("name", ONE_ODD_ROW)
def test_no_row_decides_the_dtypes_that_a_utility_sees(keys, name):
    """With one null, truth values came as objects, of which ~ makes other numbers, and whole numbers as floats."""
    values, space = ONE_ODD_ROW[name]
    odd, plain = pd.DataFrame({"x": values}), pd.DataFrame({"x": values})
    plain.loc[5, "x"] = plain.loc[4, "x"]
    seen = []

    def look(rows, candidate):
        seen.append(rows["x"])
        return candidate

    for frame in (odd, plain):
        dpf.Queries(frame, 1.0, delta=0, spaces={"x": space}).select([0, 1], look, sensitivity=1, share=1)
    assert [len(rows) for rows in seen] == [3, 3, 6, 6] * 2
    assert all(rows.dtype == seen[0].dtype for rows in seen)
    assert seen[0].isna().tolist() == [False, False, True]


def test_a_utility_that_fails_at_a_null_is_refused_whether_there_is_one_or_not(keys):
    with_null, without = (pd.DataFrame({"tags": [["a"], ["b"], last]}) for last in (None, ["a"]))
    for frame in (with_null, without):
        q = dpf.Queries(frame, 1.0, delta=0, spaces={"tags": dpf.Subset(["a", "b"])})
        with pytest.raises(dpf.ParameterError, match=r"utility fails for 3 made-up rows: TypeError.* and nulls where"):
            q.select(["a", "b"], lambda rows, tag: sum(tag in tags for tags in rows["tags"]), sensitivity=1, share=1)
        assert q.left == 1.0


def test_monotone_and_balanced_utilities_err_less(keys):
    def best(rows, who):
        return rows["who"].mode().iloc[0] == who

    q = dpf.Queries(BIDS, 1.0, delta=0, spaces=SPACES)
    shortfalls = [
        q.select(["a", "b", "c"], best, sensitivity=1, share=0.1, mechanism="exponential", **options)["shortfall"]
        for options in ({}, {"monotone": True}, {"balanced": True})
    ]
    assert shortfalls[1] == pytest.approx(shortfalls[0] / 2, rel=1e-3)
    assert shortfalls[2] == pytest.approx(shortfalls[0] / 2, rel=1e-3)
    assert q.select(["a", "b"], best, sensitivity=1, share=0.1, balanced=True).attrs["mechanism"] == "exponential"


def test_a_score_that_is_not_finite_lies_far_below(keys):
    def odd(rows, candidate):
        return math.nan if len(rows) > 3 and candidate else 0

    q = dpf.Queries(BIDS, 1.0, delta=0, spaces=SPACES)
    assert {q.select([0, 1], odd, sensitivity=1, share=0.01)["choice"] for _ in range(30)} == {0}


def test_an_utility_that_fails_on_real_rows_has_spent_its_share(keys, tmp_path):
    """Whether it fails may hang on a value, so that the failure itself is paid for."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1.0)

    def fails(rows, candidate):
        if len(rows) > 3:
            raise KeyError
        return 0

    q = dpf.Queries(BIDS, 1.0, delta=0, spaces=SPACES, ledger=ledger, dataset="survey")
    with pytest.raises(KeyError):
        q.select([1, 2], fails, sensitivity=1, share=0.25)
    assert q.left == 0.75
    assert ledger.history("survey")["what"].tolist() == ["query: select"]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_no_rows_is_answered_like_any_other(keys, rows):
    """Where rows are added or removed a failure would show that there are none."""
    q = dpf.Queries(BIDS.head(rows), 1.0, delta=0, spaces=SPACES, neighbours="add_remove")
    assert q.select(PRICES, revenue, sensitivity=10, share=0.5)["choice"] in PRICES
    common = q.select(["a", "b"], lambda rows, who: (rows["who"] == who).sum(), sensitivity=1, share=0.5)
    assert common["choice"] in {"a", "b"}


@pytest.mark.parametrize("rows", [0, 1])
def test_a_utility_that_fails_without_rows_is_refused_whatever_the_table_holds(keys, rows):
    q = dpf.Queries(BIDS.head(rows), 1.0, delta=0, spaces=SPACES, neighbours="add_remove")
    with pytest.raises(dpf.ParameterError, match=r"finite number for every candidate.*also for no rows"):
        q.select([1, 2], lambda rows, bid: -abs(rows["bid"].mean() - bid), sensitivity=10, share=0.5)
    with pytest.raises(dpf.ParameterError, match="utility fails for 0 made-up rows: IndexError: "):
        q.select([1, 2], lambda rows, bid: rows["bid"].iloc[0] * bid, sensitivity=20, share=0.5)
    assert (q.left, keys) == (1.0, [])


WRONG = [
    ({"candidates": []}, "candidates must be from 1 to 65536 values"),
    ({"candidates": range(70_000)}, "candidates must be from 1 to 65536 values"),
    ({"candidates": "low"}, "candidates must be .* in a list"),
    ({"candidates": 5}, "candidates must be .* in a list"),
    ({"candidates": {"low": 1}}, "candidates must be .* in a list"),
    ({"utility": "bid"}, "utility must be a function of rows and a candidate"),
    ({"utility": lambda rows: 1}, "utility fails for 3 made-up rows: TypeError: .* called as utility.rows, candidate."),
    ({"utility": lambda rows, c: rows["height"].sum()}, "utility fails .* KeyError: 'height'; .* columns bid, who"),
    ({"columns": []}, "columns must name at least one column"),
    ({"sensitivity": 0}, "sensitivity must be finite and above 0"),
    ({"sensitivity": math.inf}, "sensitivity must be finite and above 0"),
    ({"sensitivity": "1"}, "sensitivity must be finite and above 0"),
    ({"sensitivity": True}, "sensitivity must be finite and above 0"),
    ({"utility": lambda rows, c: math.nan}, "utility must return a finite number for every candidate"),
    ({"utility": lambda rows, c: "good"}, "utility must return a finite number for every candidate"),
    ({"base": [1, 2]}, "base must have a positive weight for each of the 5 candidates"),
    ({"base": [1] * 5, "mechanism": "noisy_max"}, "noisy_max takes no base weights; leave base out"),
    ({"mechanism": "gaussian"}, "mechanism must be one of exponential, noisy_max"),
    ({"monotone": 1}, "monotone and balanced must be True or False"),
    ({"columns": ["height"]}, "'height' is not a column of the table"),
    ({"share": 0}, "share must lie in"),
]


@pytest.mark.parametrize(("options", "rule"), WRONG)
def test_what_is_refused_costs_nothing(keys, options, rule):
    q = dpf.Queries(BIDS, 1.0, delta=0, spaces=SPACES)
    asked = {"candidates": PRICES, "utility": revenue, "sensitivity": 10, "share": 0.5} | options
    with pytest.raises(dpf.ParameterError, match=rule):
        q.select(**asked)
    assert (q.left, keys) == (1.0, [])
