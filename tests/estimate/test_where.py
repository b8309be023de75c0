"""Statistics of the rows that meet conditions: pandas' own on the filtered table, and intervals that cover it."""

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.cli.main import main

SPACES = {"region": list("ABC"), "sex": ["F", "M"], "age": (0, 9), "hobbies": dpf.Subset(["chess", "golf"])}


def people(n=1_500, seed=0):
    generator = np.random.default_rng(seed)
    region = generator.choice(3, n, p=[0.5, 0.3, 0.2])
    age = np.clip(generator.normal(4 + region, 2, n), 0, 9).astype(int)
    sex = np.where(generator.random(n) < 0.3 + 0.05 * age, "F", "M")
    return pd.DataFrame({"region": np.array(list("ABC"))[region], "sex": sex, "age": age, "hobbies": [["chess"]] * n})


@cache
def people_released():
    return dpf.sanitize(people(), epsilon=20, delta=1e-6, spaces=SPACES, key=bytes(32))


OLD = {"age": (6, None)}
QUESTIONS = {
    "mean": (lambda d: d.mean("age", where={"sex": "F"}), lambda t: [t.loc[t.sex == "F", "age"].mean()]),
    "mean by": (
        lambda d: d.mean("age", by="region", where={"sex": "F"}),
        lambda t: t[t.sex == "F"].groupby("region").age.mean(),
    ),
    "sum by": (lambda d: d.sum("age", by="sex"), lambda t: t.groupby("sex").age.sum()),
    "sum": (lambda d: d.sum("age", where={"region": ["A", "B"]}), lambda t: [t.loc[t.region != "C", "age"].sum()]),
    "std": (lambda d: d.std("age", where={"sex": "F"}), lambda t: [t.loc[t.sex == "F", "age"].std()]),
    "var by": (lambda d: d.var("age", by="sex", where=OLD), lambda t: t[t.age >= 6].groupby("sex").age.var()),
    "median": (lambda d: d.median("age", where={"region": "C"}), lambda t: [t.loc[t.region == "C", "age"].median()]),
    "quantile": (
        lambda d: d.quantile("age", [0.25, 0.75], where={"sex": "M"}),
        lambda t: t.loc[t.sex == "M", "age"].quantile([0.25, 0.75], interpolation="inverted_cdf"),
    ),
    "value_counts": (
        lambda d: d.value_counts("region", where=OLD, sort=False),
        lambda t: t[t.age >= 6].groupby("region").size(),
    ),
    "shares": (
        lambda d: d.value_counts("region", where=OLD, normalize=True, sort=False),
        lambda t: t[t.age >= 6].groupby("region").size() / (t.age >= 6).sum(),
    ),
}


@pytest.mark.walk(5)
@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_near_those_of_the_filtered_table(name):
    """At ε = 20, within a twelfth, or a quarter of a year: all rows, or other groups, differ by more."""
    ask, compute = QUESTIONS[name]
    answer, truth = np.atleast_2d(ask(people_released().dp).to_numpy(dtype=float)), np.ravel(compute(people()))
    assert answer[:, 0] == pytest.approx(truth, rel=1 / 12, abs=0.25 if "count" not in name else 8)
    assert (answer[:, 2] <= answer[:, 0]).all() and (answer[:, 0] <= answer[:, 3]).all()


@pytest.mark.slow
def test_intervals_cover_the_filtered_table():
    """Over eight releases at fixed keys: at least .92 of all intervals, and no question in less than .7 of its own."""
    hits = {name: [] for name in QUESTIONS}
    for seed in range(8):
        table = people(4_000, seed)
        safe = dpf.sanitize(table, epsilon=1, delta=1e-6, spaces=SPACES, key=bytes([seed]) * 32)
        for name, (ask, compute) in QUESTIONS.items():
            answer, truth = np.atleast_2d(ask(safe.dp).to_numpy(dtype=float)), np.ravel(compute(table))
            hits[name] += ((answer[:, 2] - 1e-9 <= truth) & (truth <= answer[:, 3] + 1e-9)).tolist()
    shares = {name: np.mean(own) for name, own in hits.items()}
    assert np.mean(np.concatenate(list(hits.values()))) >= 0.92, shares
    assert min(shares.values()) >= 0.7, shares


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda d: d.mean("age", where={"town": "A"}), "'town' is not in the release"),
        (lambda d: d.mean("age", where={}), "where must name at least one column"),
        (lambda d: d.std("age", where={"hobbies": {"any": ["chess"]}}), "count takes conditions on items"),
        (lambda d: d.mean("age", where=OLD, method="inverse"), "leave method out"),
        (lambda d: d.value_counts("sex", where=OLD, method="em"), "leave method out"),
        (lambda d: d.sum("age", by="age"), "cannot be grouped by itself"),
    ],
)
def test_refusals(call, facts):
    with pytest.raises(dpf.ParameterError, match=facts):
        call(people_released().dp)


def test_the_shell_takes_conditions(tmp_path, capsys):
    path = tmp_path / "safe.parquet"
    dpf.write(people_released(), path)
    with pytest.raises(SystemExit) as stop:
        main(["estimate", str(path), "mean", "age", "--where", '{"sex": "F"}', "--json"])
    assert stop.value.code == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["estimate"] == pytest.approx(people_released().dp.mean("age", where={"sex": "F"})["estimate"])
