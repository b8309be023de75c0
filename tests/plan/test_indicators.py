"""Indicator columns of which one is true: tables count them as one column, and every row that leaves keeps the rule."""

import json

import numpy as np
import pandas as pd
import pytest
from examples import plan_of

import dpframe as dpf
from dpframe.cli.main import main

WAYS = [f"is_{way}" for way in "abcdef"]
SHARES = [0.48, 0.25, 0.14, 0.08, 0.03, 0.02]


def journeys(n=4_000, seed=0, kind="int"):
    """One of six ways, two of them rare, which depends on an age."""
    generator = np.random.default_rng(seed)
    way = generator.choice(6, n, p=SHARES)
    age = np.clip(generator.normal(35 + 5 * way, 12), 0, 99).astype(int)
    return pd.DataFrame({name: (way == i).astype(kind) for i, name in enumerate(WAYS)} | {"age": age})


def spaces_of(kind="int"):
    return dict.fromkeys(WAYS, (0, 1) if kind == "int" else dpf.Boolean()) | {"age": (0, 99)}


def sanitized(table, epsilon, rule, kind="int", **options):
    options = {"delta": 1e-6, "key": bytes(32), "spaces": spaces_of(kind)} | options
    return dpf.sanitize(table, epsilon=epsilon, rules=[rule], **options)


@pytest.mark.parametrize(("epsilon", "kind"), [(1, "int"), (20, "bool")])
def test_synthetic_rows_have_one_true_column_and_the_shares_of_the_table(epsilon, kind):
    """Within two standard errors of the table's own shares, the rare ones too, at a fixed key and seed."""
    table = journeys(kind=kind)
    safe = sanitized(table, epsilon, dpf.OneOf(WAYS), kind)
    errors = {name: safe.dp.mean(name)["std_error"] for name in WAYS}
    for n_rows in (None, 4_000):
        rows = safe.dp.synthesize(n_rows, random_state=0)[WAYS].astype(int)
        assert (rows.sum(axis=1) == 1).all()
        deviations = (rows.mean() - table[WAYS].astype(int).mean()).abs() / pd.Series(errors)
        assert deviations.max() < 2, deviations


def test_tables_count_the_indicators_as_one_column():
    """One table of the value costs less than six of indicators; the forecast is about the error of the answer."""
    rule, table = dpf.OneOf(WAYS), journeys()
    plan = dpf.plan(table, 1, 1e-6, spaces=spaces_of(), rules=[rule])
    columns = {name for measure in plan.measures for name in measure.columns}
    assert columns.isdisjoint(WAYS)
    assert len(columns) == 2
    without_rule = dpf.plan(table, 1, 1e-6, spaces=spaces_of())
    noise = {p: [m.sigma2 for m in p.measures if m.kind == "joint"] for p in (plan, without_rule)}
    assert max(noise[plan]) < min(noise[without_rule]) / 2
    assert dpf.Plan.from_json(plan.to_json()) == plan
    forecast = plan.forecast().loc[("marginal", WAYS[0]), "std_error"]
    error = dpf.sanitize(table, plan=plan, key=bytes(32)).dp.value_counts(WAYS[0])["std_error"].max()
    assert forecast * len(table) == pytest.approx(error, rel=0.3)


def test_listed_tables_name_the_indicators():
    plan = dpf.plan(
        journeys(), 1, 1e-6, spaces=spaces_of(), rules=[dpf.OneOf(WAYS)], measure=[("is_a", "age"), ("is_b", "age")]
    )
    joints = [measure.columns for measure in plan.measures if measure.kind == "joint"]
    assert joints == [("one of is_a … is_f", "age")]


@pytest.mark.slow
def test_answers_about_indicators_cover_the_table():
    """Of 72 intervals of one release at a fixed key, at least 65 cover (error probability 2 % for independent ones)."""
    table = journeys()
    safe = sanitized(table, 1, dpf.OneOf(WAYS))
    young = table["age"] < 40
    answers = []
    for name in WAYS:
        groups = table.groupby(name)["age"]
        answers += [(safe.dp.mean(name), table[name].mean())]
        answers += [(safe.dp.count({name: 1, "age": (0, 39)}), (young & (table[name] == 1)).sum())]
        answers += [(safe.dp.count({name: 1, "is_b": 0}), ((table[name] == 1) & (table["is_b"] == 0)).sum())]
        answers += list(zip(safe.dp.mean("age", by=name).iloc, groups.mean(), strict=True))
        counts = safe.dp.value_counts(name, sort=False)
        answers += list(zip(counts.iloc, table[name].value_counts().sort_index(), strict=True))
        correlation = safe.dp.corr([name, "age"]).xs("age", level=1, axis=1).loc[name]
        answers += [(correlation, table[name].corr(table["age"]))]
        joint = safe.dp.joint([name, "age"], bins={"age": [0, 40, 100]})
        truth = [((table[name] == value) & (young == side)).sum() for value in (0, 1) for side in (True, False)]
        answers += list(zip(joint.iloc, truth, strict=True))
    covered = [answer["lower"] - 1e-9 <= truth <= answer["upper"] + 1e-9 for answer, truth in answers]
    assert len(covered) == 72
    assert sum(covered) >= 65, [a for a, c in zip(answers, covered, strict=True) if not c]


def test_answers_keep_the_rule():
    safe = sanitized(journeys(), 1, dpf.OneOf(WAYS))
    assert safe.dp.count({"is_a": 1, "is_b": 1})["std_error"] == 0
    alone = safe.dp.count({"is_f": 1})
    pd.testing.assert_series_equal(safe.dp.count({"is_f": 1, "is_a": 0}), alone)
    assert alone["lower"] < 4_000 * SHARES[5] < alone["upper"]
    drawn = safe.dp.infer(lambda t: t[WAYS].sum(axis=1).agg(["min", "max"]), draws=3)
    assert drawn[["lower", "upper"]].to_numpy().tolist() == [[1, 1], [1, 1]]


def test_three_indicators_together_have_no_row_with_two():
    safe = sanitized(journeys(), 1, dpf.OneOf(WAYS))
    cells = safe.dp.joint(["is_a", "is_b", "is_c"])["estimate"]
    assert cells[[place for place in cells.index if sum(place) > 1]].abs().max() == 0
    assert cells[(1, 0, 0)] == pytest.approx(4_000 * SHARES[0], abs=200)


def test_at_most_one_has_rows_with_none():
    table = journeys().drop(columns="is_a")
    names = WAYS[1:]
    spaces = {name: space for name, space in spaces_of().items() if name != "is_a"}
    safe = sanitized(table, 4, dpf.OneOf(names, at_most=True), spaces=spaces)
    rows = safe.dp.synthesize(random_state=0)[names].astype(int).sum(axis=1)
    assert rows.max() == 1
    assert (rows == 0).mean() == pytest.approx((table[names].sum(axis=1) == 0).mean(), abs=0.02)


def test_rows_that_break_the_rule_are_released_as_mended():
    """Rows of no and of several true columns are counted like the rows that mending makes of them."""
    table = journeys(500)
    broken = table.copy()
    broken.loc[:99, WAYS] = 0
    broken.loc[100:199, ["is_c", "is_d"]] = 1
    mended = broken.copy()
    mended.loc[:99, "is_f"] = 1
    first = mended.loc[100:199, WAYS].to_numpy().argmax(axis=1)
    mended.loc[100:199, WAYS] = np.eye(6, dtype=int)[first]
    releases = [sanitized(one, 1, dpf.OneOf(WAYS)) for one in (broken, mended)]
    assert releases[0].equals(releases[1])
    tables = [safe.dp.release.tables for safe in releases]
    assert tables[0] == tables[1]


def test_rules_that_share_a_column_are_kept_by_every_row():
    """Their columns stay columns of their own; synthetic rows keep both rules."""
    table = journeys(1_000)
    rules = [dpf.OneOf(WAYS), dpf.OneOf(["is_a", "is_b", "is_c"], at_most=True)]
    safe = dpf.sanitize(table, epsilon=4, delta=1e-6, spaces=spaces_of(), rules=rules, key=bytes(32))
    assert {"is_a"} < {name for measure in dpf.Estimates(safe).plan.measures for name in measure.columns}
    assert (safe.dp.synthesize(500, random_state=0)[WAYS].astype(int).sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([dpf.OneOf(["is_a", "is_z"])], "rules name 'is_z', which is not a column with a declared space"),
        ([dpf.OneOf(["is_a", "age"])], r"dpf.OneOf needs columns of True and False, .* which 'age' is not"),
        ([dpf.OneOf(["is_a", "maybe"])], r"dpf.OneOf needs columns .* without nulls, which 'maybe' is not"),
        (
            [dpf.OneOf(pair) for pair in (["is_a", "is_b"], ["is_b", "is_c"], ["is_a", "is_c"])],
            "rules contradict each other: no row was found that keeps them all",
        ),
    ],
)
def test_rules_that_do_not_fit_are_refused_and_cost_nothing(tmp_path, rules, words):
    spaces = spaces_of() | {"maybe": dpf.Nullable(dpf.Integer(0, 1))}
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 5.0, 1e-4)
    table = journeys(200).assign(maybe=1)
    with pytest.raises(dpf.ParameterError, match=words) as refusal:
        dpf.sanitize(table, epsilon=1, spaces=spaces, rules=rules, ledger=ledger, dataset="survey")
    assert len(str(refusal.value).splitlines()) == 1
    assert ledger.remaining("survey").epsilon == 5.0


@pytest.mark.parametrize(
    ("columns", "at_most", "words"),
    [
        (["a"], False, "columns of dpf.OneOf must be two or more different columns"),
        (["a", "a"], False, "columns of dpf.OneOf must be two or more different columns"),
        ("ab", False, "columns of dpf.OneOf must be two or more different columns"),
        (["a", "b"], 1, "at_most of dpf.OneOf must be True or False"),
    ],
)
def test_rules_that_are_none(columns, at_most, words):
    with pytest.raises(dpf.ParameterError, match=words):
        dpf.OneOf(columns, at_most)


def test_plans_and_the_command_line_read_the_rule(tmp_path):
    rules = [dpf.OneOf(["is_a", "is_b"]), dpf.OneOf(["is_c", "is_d"], at_most=True)]
    plan = plan_of(spaces_of(), epsilon=1.0, delta=1e-6, n=500, rules=rules)
    assert dpf.Plan.from_json(plan.to_json()).rules == tuple(rules)
    journeys(200).to_parquet(tmp_path / "in.parquet")
    (tmp_path / "spaces.json").write_text(json.dumps({name: {"lower": 0, "upper": 1} for name in WAYS}))
    (tmp_path / "rules.json").write_text(
        '[{"one_of": ["is_a", "is_b"]}, {"one_of": ["is_c", "is_d"], "at_most": true}]'
    )
    files = {name: str(tmp_path / name) for name in ("in.parquet", "spaces.json", "rules.json", "plan.json")}
    arguments = ["--spaces", files["spaces.json"], "--rules", files["rules.json"], "-o", files["plan.json"]]
    with pytest.raises(SystemExit) as ended:
        main(["plan", files["in.parquet"], "--epsilon", "1", "--drop", "age", *arguments])
    assert not ended.value.code
    assert dpf.Plan.read(files["plan.json"]).rules == tuple(rules)
