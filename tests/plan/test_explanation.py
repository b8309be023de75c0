"""A plan in plain words: beliefs, levers, and one page of both."""

from __future__ import annotations

import math

import pytest
from examples import plan_of

import dpframe as dpf
from dpframe.cli.main import main

SPACES = {"age": (0, 99), "sex": ["F", "M"], "region": ["a", "b", "c", "d"]}


def test_beliefs_move_by_the_odds():
    plan = plan_of(SPACES, epsilon=1.0, n=10_000)
    table = plan.beliefs([0.01, 0.5])
    for prior, row in table.iterrows():
        for budget, name in ((plan.release, ""), (plan.located, "local_")):
            kept, odds = 1 - budget.delta, prior / (1 - prior)
            upper, lower = (row[f"{name}upper"] - budget.delta) / kept, row[f"{name}lower"] / kept
            assert upper / (1 - upper) == pytest.approx(odds * math.exp(budget.epsilon))
            assert lower / (1 - lower) == pytest.approx(odds * math.exp(-budget.epsilon))
    for bad in ([0.0], [1.0], [True], [], ["half"], 0.5, None, "ab"):
        with pytest.raises(dpf.ParameterError, match="priors must be probabilities above 0 and below 1"):
            plan.beliefs(bad)


LEVERS = {
    "kept order": ({"shuffle": False}, "rows in a secret order (shuffle=True)"),
    "pure": ({"delta": 0.0}, "delta=1e-06, which the credit of a secret order needs"),
    "no tables": ({}, 'tables measured in addition to the rows (measure="auto")'),
    "sample": ({"sample": 500}, "all rows instead of a sample"),
    "groups": ({"groups": [("sex", "region")]}, "twice the epsilon (2)"),
}


@pytest.mark.parametrize("name", LEVERS)
@pytest.mark.slow
def test_levers_are_the_plans_that_they_speak_of(name):
    options, lever = LEVERS[name]
    told = plan_of(SPACES, epsilon=1.0, n=10_000, **options).explain()
    assert 0 < told.levers["errors"][lever] < 0.99
    assert told.levers["errors"].is_monotonic_increasing
    if "delta" in options:
        twice = plan_of(SPACES, epsilon=2.0, n=10_000, **options).forecast()["std_error"]
        ratio = (twice / plan_of(SPACES, epsilon=1.0, n=10_000, **options).forecast()["std_error"]).median()
        assert told.levers["errors"]["twice the epsilon (2)"] == pytest.approx(ratio)


@pytest.mark.slow
def test_a_plan_is_explained_on_one_page():
    plan = plan_of(SPACES, epsilon=1.0, n=10_000, contributions=2)
    told = plan.explain()
    text, page = str(told), told._repr_html_()
    for said in ("right in 73.2 % at most", "delta=1e-06; on average over what", "2 rows at most, which is believed"):
        assert said in text
        assert said in page
    assert "rows_alone" not in text
    assert "sex × region" in page
    unknown = plan_of(SPACES, epsilon=1.0).explain()
    assert unknown.forecast is None
    assert unknown.gains is None
    assert not len(unknown.levers)
    assert plan_of({}, epsilon=1.0, n=10).explain().forecast is None


@pytest.mark.slow
def test_what_inference_cost_is_a_lever_and_the_shell_explains(tmp_path, capsys):
    census = dpf.datasets.make_census(5_000, columns=["sex", "region"])
    told = dpf.plan(census, 1.0, infer_share=0.5).explain()
    assert told.levers["errors"]["spaces that are declared, so that finding them costs nothing"] < 0.95
    census.head(4_000).to_parquet(tmp_path / "in.parquet", index=False)
    with pytest.raises(SystemExit) as stopped:
        main(["plan", str(tmp_path / "in.parquet"), "--epsilon", "1", "--explain"])
    assert not stopped.value.code
    assert "What would help, most first" in capsys.readouterr().out


@pytest.mark.slow
def test_a_person_of_several_rows_is_located_by_all_of_them():
    """k located rows lose k times a row's loss, and never less than the release."""
    for rows, n in ((1, 1), (3, 15), (3, 10_000)):
        plan = plan_of(SPACES, epsilon=1.0, n=n, delta=1e-6, contributions=rows)
        assert plan.located.epsilon >= plan.release.epsilon
        assert plan.located.epsilon >= min(rows * plan.local.epsilon, 1e9) * (1 - 1e-12) or plan.located == plan.release
        table = plan.beliefs()
        assert (table["local_upper"] >= table["upper"]).all()
        assert f"epsilon={plan.located.epsilon:.4g}" in str(plan.explain())
    kept = plan_of(SPACES, epsilon=1.0, n=100, delta=0.0, contributions=3, shuffle=False)
    assert kept.located == kept.release


@pytest.mark.slow
def test_a_lever_leaves_whole_groups():
    plan = plan_of(SPACES | {"b": (0, 4)}, epsilon=1.0, n=1_000, groups=[("age", "region")])
    (lever,) = [name for name in plan.explain().levers.index if name.startswith("half of the columns")]
    assert "('age', 'region', 'sex')" in lever
