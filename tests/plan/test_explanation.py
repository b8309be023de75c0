"""A plan in plain words: beliefs, levers, and one page of both."""

from __future__ import annotations

import math

import pytest

import dpframe as dpf
from dpframe.cli.main import main
from dpframe.plan import build_plan

SPACES = {"age": (0, 99), "sex": ["F", "M"], "region": ["a", "b", "c", "d"]}


def test_beliefs_move_by_the_odds():
    plan = build_plan(SPACES, epsilon=1.0, n=10_000)
    table = plan.beliefs([0.01, 0.5])
    for prior, row in table.iterrows():
        for budget, name in ((plan.release, ""), (plan.local, "local_")):
            odds = prior / (1 - prior)
            assert row[f"{name}upper"] / (1 - row[f"{name}upper"]) == pytest.approx(odds * math.exp(budget.epsilon))
            assert row[f"{name}lower"] / (1 - row[f"{name}lower"]) == pytest.approx(odds * math.exp(-budget.epsilon))
    assert table.attrs["except_with_probability"] == plan.delta
    for bad in ([0.0], [1.0], [True], [], ["half"]):
        with pytest.raises(dpf.ParameterError, match="priors must be probabilities above 0 and below 1"):
            plan.beliefs(bad)


LEVERS = {
    "kept order": ({"shuffle": False}, "rows in a secret order (shuffle=True)"),
    "pure": ({"delta": 0.0}, "delta=1e-06, which the credit of a secret order needs"),
    "no tables": ({}, 'tables measured beside the rows (measure="auto")'),
    "sample": ({"sample": 500}, "all rows instead of a sample"),
    "groups": ({"groups": [("sex", "region")]}, "twice the epsilon (2)"),
}


@pytest.mark.parametrize("name", LEVERS)
def test_levers_are_the_plans_that_they_speak_of(name):
    options, lever = LEVERS[name]
    told = build_plan(SPACES, epsilon=1.0, n=10_000, **options).explain()
    assert 0 < told.levers["errors"][lever] < 0.99
    assert told.levers["errors"].is_monotonic_increasing
    if "delta" in options:
        twice = build_plan(SPACES, epsilon=2.0, n=10_000, **options).forecast()["std_error"]
        ratio = (twice / build_plan(SPACES, epsilon=1.0, n=10_000, **options).forecast()["std_error"]).median()
        assert told.levers["errors"]["twice the epsilon (2)"] == pytest.approx(ratio)


def test_a_plan_is_explained_on_one_page():
    plan = build_plan(SPACES, epsilon=1.0, n=10_000, contributions=2)
    text, page = str(plan.explain()), plan.explain()._repr_html_()
    for said in ("73.2 % sure at most", "Except with a chance of 1 in 1 million", "2 rows at most, which is believed"):
        assert said in text
        assert said in page
    assert "rows_alone" not in text
    assert "sex × region" in page
    unknown = build_plan(SPACES, epsilon=1.0).explain()
    assert unknown.forecast is None
    assert unknown.gains is None
    assert not len(unknown.levers)
    assert build_plan({}, epsilon=1.0, n=10).explain().forecast is None


def test_what_inference_cost_is_a_lever_and_the_shell_explains(tmp_path, capsys):
    census = dpf.datasets.make_census(5_000, columns=["sex", "region"])
    told = dpf.make_plan(census, 1.0, infer_share=0.5).explain()
    assert told.levers["errors"]["spaces that are declared, so that finding them costs nothing"] < 0.95
    census.head(4_000).to_parquet(tmp_path / "in.parquet", index=False)
    with pytest.raises(SystemExit) as stopped:
        main(["plan", str(tmp_path / "in.parquet"), "--epsilon", "1", "--explain"])
    assert not stopped.value.code
    assert "What would help, most first" in capsys.readouterr().out
