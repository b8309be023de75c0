"""Rules between columns: rows keep them before anything is counted, and so do joints and synthetic rows."""

import dataclasses
import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from examples import plan_of
from hypothesis import given, settings
from hypothesis import strategies as st
from parties import Parties
from readings import released_codes, released_tables

import dpframe as dpf
from dpframe.cli.main import main

SPACES = {
    "age": (0, 30),
    "school": dpf.Ordinal(["none", "primary", "college"]),
    "work": dpf.Nullable(dpf.Categorical(["no", "yes"])),
    "city": list("ABCD"),
    "region": ["N", "S"],
    "start": (0, 9),
    "end": dpf.Nullable(dpf.Integer(2, 8)),
}
RULES = [
    dpf.Implies({"age": (None, 5)}, {"school": "none"}),
    dpf.Implies({"age": (0, 15), "school": ["none", "primary"]}, {"work": "no"}),
    dpf.Follows("region", of="city", mapping={"A": "N", "B": "N", "C": "S"}),
    dpf.Ordered("start", "end"),
]
PLAN = plan_of(SPACES, epsilon=1.0, delta=1e-6, n=5_000, rules=RULES)
BOUND = PLAN.bound_rules


def rows(n, seed=0):
    generator = np.random.default_rng(seed)
    return {c.name: generator.integers(0, c.space.size, n).astype(c.space.code_type) for c in PLAN.columns}


def frame(n=4_000, seed=0):
    return pd.DataFrame({c.name: c.space.decode(rows(n, seed)[c.name]).to_pandas() for c in PLAN.columns})


def broken(table):
    """Rows of a table that break a rule, told by pandas alone."""
    young = (table.age <= 5) & (table.school != "none")
    pupils = (table.age <= 15) & table.school.isin(["none", "primary"]) & (table.work == "yes")
    known = table.city.map({"A": "N", "B": "N", "C": "S"})
    moved = known.notna() & (known != table.region)
    return young | pupils | moved | (table.start > table.end)


def test_every_row_keeps_all_rules_and_nothing_else_moves():
    codes = rows(3_000)
    wrong = BOUND.breaks(codes)
    mended = BOUND.mended(codes)
    assert 0.5 < wrong.mean() < 1
    assert not BOUND.breaks(mended).any()
    assert not broken(pd.DataFrame({n: PLAN[n].space.decode(c).to_pandas() for n, c in mended.items()})).any()
    assert all(mended[name].dtype == codes[name].dtype for name in codes)
    assert all((mended[name][~wrong] == codes[name][~wrong]).all() for name in codes)
    assert (mended["age"] == codes["age"]).all()  # what is only a condition never changes
    null = codes["work"] == 2
    assert (mended["work"][null] == 2).all()


def test_mending_is_of_each_row_alone():
    codes = rows(500)
    order = np.random.default_rng(1).permutation(500)
    whole, turned = BOUND.mended(codes), BOUND.mended({name: c[order] for name, c in codes.items()})
    assert all((whole[name][order] == turned[name]).all() for name in codes)
    for start in range(0, 500, 100):
        part = BOUND.mended({name: c[start : start + 100] for name, c in codes.items()})
        assert all((whole[name][start : start + 100] == part[name]).all() for name in codes)
    again = BOUND.mended(whole)
    assert all((again[name] == whole[name]).all() for name in codes)


@pytest.mark.parametrize("name", ["age", "school", "end"])
def test_cells_that_cannot_be_are_those_no_row_is_in(name):
    """All rows of two columns, brute force: a cell is impossible only if all of its rows break a rule."""
    for other in PLAN.names:
        if other == name:
            continue
        pair = [PLAN[name].space, PLAN[other].space]
        widths = (1 if pair[0].has_null else 2, 1)
        cells = {
            n: (np.arange(0, s.size, w), np.minimum(np.arange(0, s.size, w) + w, s.size))
            for n, s, w in zip((name, other), pair, widths, strict=True)
        }
        never = BOUND.impossible(cells)
        grid = np.stack(np.meshgrid(*[np.arange(s.size) for s in pair], indexing="ij"), -1).reshape(-1, 2)
        held = np.ones(len(grid), dtype=bool)
        for rule in BOUND.rules:
            if set(rule.names) <= {name, other}:
                held &= rule.holds({name: grid[:, 0], other: grid[:, 1]})
        at = [np.searchsorted(cells[n][0], grid[:, i], side="right") - 1 for i, n in enumerate((name, other))]
        there = np.zeros([len(cells[n][0]) for n in (name, other)], dtype=int)
        np.add.at(there, tuple(at), held)
        assert ((there == 0) == (np.zeros(there.shape, bool) if never is None else never)).all(), (name, other)


def test_rows_that_break_a_rule_release_as_mended_ones():
    """The same key gives the same bytes for a table and the mended one: nothing tells how many rows were mended."""
    codes = rows(2_000)
    plan = plan_of(SPACES, epsilon=1.0, delta=1e-6, n=2_000, rules=RULES, measures=dpf_measures())
    mended, key = plan.bound_rules.mended(codes), bytes(range(32))
    for name, column in released_codes(codes, plan, key).items():
        assert (column == released_codes(mended, plan, key)[name]).all()
    assert released_tables(codes, plan, key) == released_tables(mended, plan, key)


def dpf_measures():
    table = frame(2_000)
    return dpf.plan(table, 1.0, 1e-6, spaces=SPACES, rules=RULES).measures


@pytest.mark.slow
def test_joints_counts_and_synthetic_rows_keep_rules():
    table = frame()
    safe = table.dp.sanitize(epsilon=2, spaces=SPACES, rules=RULES, key=bytes(32))
    for n_rows in (None, 1_000):
        assert not broken(safe.dp.synthesize(n_rows, random_state=0)).any()
    for method in ("auto", "inverse", "project", "em"):
        cells = safe.dp.joint(["city", "region"], method=method)["estimate"]
        assert cells[("A", "S")] == cells[("C", "N")] == 0
        assert cells.sum() == pytest.approx(len(table), rel=0.05)
    shares = safe.dp.crosstab("city", "region", normalize="index")["estimate"]
    assert shares.loc["A"].tolist() == [pytest.approx(1.0), 0.0]
    bins = safe.dp.joint(["age", "school"], bins={"age": [0, 6, 16, 31]})["estimate"]
    assert bins.iloc[1] == bins.iloc[2] == 0 < bins.iloc[0]
    never = safe.dp.count({"age": (0, 3), "school": "college"})
    assert never[["estimate", "std_error"]].tolist() == [0, 0]
    assert never.attrs["source"] == "rules"
    assert safe.dp.count({"age": (0, 8), "school": "college"})["std_error"] > 0


@pytest.mark.slow
def test_a_condition_that_follows_from_the_others_is_none():
    """Whoever is at most 5 has no school, and all of A and B are of N; what may be null does not follow."""
    told = frame().dp.sanitize(epsilon=2, spaces=SPACES, rules=RULES, key=bytes(32)).dp
    alone = {"age": told.count({"age": (0, 5)}), "city": told.count({"city": ["A", "B"]})}
    pd.testing.assert_series_equal(told.count({"age": (0, 5), "school": "none"}), alone["age"])
    pd.testing.assert_series_equal(told.count({"school": "none", "age": (0, 5)}), alone["age"])
    pd.testing.assert_series_equal(told.count({"city": ["A", "B"], "region": "N"}), alone["city"])
    both = told.count({"age": (0, 5), "school": "none", "work": "no"})
    assert both["estimate"] < alone["age"]["estimate"] - 100


ONE_OF = [f"is_{way}" for way in "abcde"]
EXACTLY_ONE = [
    *(dpf.Implies({name: 1}, {other: 0 for other in ONE_OF if other != name}) for name in ONE_OF),
    dpf.Implies(dict.fromkeys(ONE_OF[:-1], 0), {ONE_OF[-1]: 1}),
]


def journeys(n=12_000):
    """One of five ways, two of them rare, and an end shortly after a start."""
    generator = np.random.default_rng(0)
    way = generator.choice(5, n, p=[0.5, 0.25, 0.15, 0.05, 0.05])
    start = generator.integers(0, 1_001, n)
    end = start + generator.exponential(60, n).astype(int)
    return pd.DataFrame({name: (way == i).astype(int) for i, name in enumerate(ONE_OF)} | {"start": start, "end": end})


def test_synthetic_rows_keep_rules_and_the_means_of_columns():
    """Of columns that exclude each other, and of an order: within 4.5 standard errors of the release's own means.

    At a fixed key and seed. Means of columns that exclude each other do not add up to 1; rows mended one by one were 25
    standard errors off.
    """
    table, rules = journeys(), [*EXACTLY_ONE, dpf.Ordered("start", "end")]
    spaces = dict.fromkeys(ONE_OF, (0, 1)) | {"start": (0, 1_000), "end": (0, 2_000)}
    safe = table.dp.sanitize(epsilon=1, delta=1e-6, spaces=spaces, rules=rules, key=bytes(32))
    told = {name: safe.dp.mean(name) for name in table}
    for n_rows in (None, 12_000):
        drawn = safe.dp.synthesize(n_rows, random_state=0).astype(float)
        assert (drawn[ONE_OF].sum(axis=1) == 1).all()
        assert (drawn["start"] <= drawn["end"]).all()
        apart = {name: (drawn[name].mean() - own["estimate"]) / own["std_error"] for name, own in told.items()}
        assert max(map(abs, apart.values())) < 4.5, apart


def test_rows_exclude_each_other_without_shuffling_or_tables():
    """Rows in order have no table to be brought to, and still each keeps the rules."""
    table = journeys(2_000)[ONE_OF]
    spaces = dict.fromkeys(ONE_OF, (0, 1))
    safe = table.dp.sanitize(epsilon=4, delta=0, shuffle=False, spaces=spaces, rules=EXACTLY_ONE, key=bytes(32))
    for n_rows in (None, 1, 500):
        assert (safe.dp.synthesize(n_rows, random_state=0).astype(float).sum(axis=1) == 1).all()


@pytest.mark.parametrize("name", ["age", "school", "city", "end"])
def test_rows_of_cells_that_cannot_be_are_the_cells_of_joints_that_cannot(name):
    """The answer for rows of cells, one by one, and for all combinations of two columns' cells is the same."""
    for other in PLAN.names:
        if other == name:
            continue
        starts = [np.arange(0, PLAN[n].space.size, 3) for n in (name, other)]
        stops = [np.minimum(own + 3, PLAN[n].space.size) for own, n in zip(starts, (name, other), strict=True)]
        never = BOUND.impossible({name: (starts[0], stops[0]), other: (starts[1], stops[1])})
        shape = [len(own) for own in starts]
        at = np.unravel_index(np.random.default_rng(0).permutation(shape[0] * shape[1]), shape)
        cells = {n: (starts[i][at[i]], stops[i][at[i]]) for i, n in enumerate((name, other))}
        rows = np.zeros(len(at[0]), dtype=bool)
        for rule in BOUND.rules:
            rows |= rule.impossible(cells)
        assert (rows == (False if never is None else never[at])).all(), (name, other)


def test_estimates_are_of_the_mended_table():
    """Unbiased over 10 releases of 300 rows: mean error within 6 of its standard errors (error probability 2e-3)."""
    table = frame(300)
    codes = BOUND.mended(rows(300))
    truth = np.array([np.mean((codes["city"] == c) & (codes["region"] == r)) * 300 for c in range(4) for r in range(2)])
    errors = []
    for i in range(10):
        safe = table.dp.sanitize(epsilon=4, spaces=SPACES, rules=RULES, key=bytes([i + 40]) * 32)
        errors.append(safe.dp.joint(["city", "region"], method="inverse")["estimate"].to_numpy() - truth)
    z = np.mean(errors, axis=0) / np.maximum(np.std(errors, axis=0) / np.sqrt(10), 1e-9)
    assert np.abs(z).max() < 6


def test_bins_of_joints_begin_where_conditions_do():
    safe = frame().dp.sanitize(epsilon=2, spaces=SPACES, rules=RULES, key=bytes(32))
    tables = safe.dp.release.tables
    starts = {
        s
        for t in tables
        if t.measure.kind == "joint"
        for n, s in zip(t.measure.columns, t.starts, strict=True)
        if n == "age"
    }
    assert starts
    assert all({6, 16} <= set(own) and len(own) <= 12 for own in starts)


def test_plans_with_rules_read_back_and_older_ones_keep_their_schema():
    again = dpf.Plan.from_json(PLAN.to_json())
    assert again == PLAN
    assert again.digest == PLAN.digest
    assert json.loads(PLAN.to_json())["schema"] == 3
    assert json.loads(plan_of(SPACES, epsilon=1.0).to_json())["schema"] == 1
    by_json = plan_of(SPACES, epsilon=1.0, delta=1e-6, n=5_000, rules=[rule.to_json() for rule in RULES])
    assert by_json == PLAN
    assert PLAN.replan(6_000).rules == PLAN.rules


def test_dates_are_named_by_their_text_in_json():
    spaces = {"born": dpf.Datetime("2000-01-01", "2020-12-31", "D"), "vote": [True, False]}
    rule = dpf.Implies({"born": (pd.Timestamp("2006-01-01"), None)}, {"vote": False})
    plan = plan_of(spaces, epsilon=1.0, rules=[rule])
    assert dpf.Plan.from_json(plan.to_json()) == plan
    found = plan.bound_rules.mended({"born": np.array([2191, 2192]), "vote": np.array([0, 0])})
    assert found["vote"].tolist() == [0, 1]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_rules_over_random_orders_hold(seed, width):
    generator = np.random.default_rng(seed)
    names = [f"c{i}" for i in range(width + 1)]
    bounds = {name: sorted(generator.integers(-20, 20, 2).tolist()) for name in names}
    spaces = {name: dpf.Integer(low, max(high, low + 1)) for name, (low, high) in bounds.items()}
    rules = [dpf.Ordered(a, b) for a, b in pairwise(names)]
    tops = [space.upper for space in spaces.values()]
    bottoms = [space.lower for space in spaces.values()]
    possible = all(max(bottoms[: i + 1]) <= top for i, top in enumerate(tops))
    if not possible:
        with pytest.raises(dpf.ParameterError, match="rules contradict each other"):
            plan_of(spaces, epsilon=1.0, rules=rules)
        return
    plan = plan_of(spaces, epsilon=1.0, rules=rules)
    codes = {name: generator.integers(0, space.size, 50) for name, space in spaces.items()}
    assert not plan.bound_rules.breaks(plan.bound_rules.mended(codes)).any()


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("age", "rules must be a list of dpf.Implies"),
        ([{"when": 1}], "a rule must be dpf.Implies"),
        ([dpf.Implies({"height": 1}, {"age": 1})], "rules name 'height', which is not a column with a declared space"),
        ([dpf.Implies({"age": 99}, {"school": "none"})], "rules: column 'age' names a value that is not in its space"),
        ([dpf.Implies({"age": (9, 3)}, {"school": "none"})], "rules: column 'age' must be \\(low, high\\) in order"),
        (
            [dpf.Implies({"age": 3}, {"school": "abbey"})],
            "rules: column 'school' names a value that is not one of its values",
        ),
        (
            [dpf.Follows("region", "city", {"A": "N", "Z": "S"})],
            "rules: column 'city' names a value that is not one of its values",
        ),
        ([dpf.Follows("region", "work", {None: "N"})], "the mapping of 'work' names null, from which nothing follows"),
        ([dpf.Follows("region", "city", [("A", "N"), ("A", "S")])], "the mapping names a value of 'city' twice"),
        ([dpf.Ordered("start", "city")], "rules: column 'city' holds neither numbers nor times"),
        (
            [dpf.Implies({"age": (0, 30)}, {"city": "A"}), dpf.Implies({"age": (0, 30)}, {"city": "B"})],
            "rules contradict",
        ),
    ],
)
def test_rules_that_do_not_fit_are_refused_and_cost_nothing(tmp_path, rules, words):
    with pytest.raises(dpf.ParameterError, match=words):
        plan_of(SPACES, epsilon=1.0, rules=rules)
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 5.0, 1e-4)
    with pytest.raises(dpf.ParameterError, match=words):
        dpf.sanitize(frame(200), epsilon=1, spaces=SPACES, rules=rules, ledger=ledger, dataset="survey")
    assert ledger.remaining("survey").epsilon == 5.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dpf.Implies({}, {"a": 1}), "the condition of a rule must be a mapping of columns"),
        (lambda: dpf.Implies({"a": 1}, {"a": 2}), "a rule names 'a' in its condition and in what follows"),
        (lambda: dpf.Implies({"a": {"not": 1}}, {"b": 2}), 'must be a value, a list, or {"between": '),
        (lambda: dpf.Follows("a", "a", {1: 2}), "a rule's column and of must be names of two columns"),
        (lambda: dpf.Follows("a", "b", {}), "the mapping of a rule for 'a' must give values of it by values of 'b'"),
        (lambda: dpf.Ordered("a", "a"), "a rule's low and high must be names of two columns"),
    ],
)
def test_rules_that_are_none(make, words):
    with pytest.raises(dpf.ParameterError, match=words):
        make()


def test_spaces_that_are_not_declared_are_no_ground_for_rules():
    """Mending comes before inference, and what is not known yet cannot be mended."""
    with pytest.raises(dpf.ParameterError, match=r"rules name 'city', which.*a declared space"):
        frame(200).dp.sanitize(epsilon=1, spaces={"region": ["N", "S"]}, rules=[RULES[2]])
    sets = dpf.Subset(["a", "b"], 2)
    with pytest.raises(dpf.ParameterError, match="rules name 'tags', which holds sets"):
        plan_of({"tags": sets, "sex": ["F", "M"]}, epsilon=1.0, rules=[dpf.Implies({"tags": "a"}, {"sex": "F"})])


def test_files_and_the_transformer_keep_rules(tmp_path):
    table = frame(500)
    table.to_parquet(tmp_path / "in.parquet")
    memory = dpf.sanitize(dpf.read(tmp_path / "in.parquet"), epsilon=2.0, spaces=SPACES, rules=RULES, key=bytes(32))
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 2.0, spaces=SPACES, rules=RULES, key=bytes(32))
    file = dpf.read(tmp_path / "out.parquet")
    assert file.to_dict("list") == memory.to_dict("list") or file.equals(memory)
    made = dpf.Sanitizer(epsilon=2, spaces=SPACES, rules=RULES).fit(table)
    assert made.plan_.rules == tuple(RULES)
    found = table.dp.check(dpf.Estimates(memory).plan)
    assert found.rules["mended"].between(0, 1).all()
    assert len(found.rules) == len(RULES)


def test_split_tables_have_no_rules(tmp_path):
    people = pd.DataFrame({"id": range(50), "sex": ["F", "M"] * 25})
    homes = pd.DataFrame({"id": range(50), "home": ["own", "let"] * 25})
    spaces = {"sex": ["F", "M"], "home": ["own", "let"]}
    run = Parties.make(tmp_path, {"alice": people, "bob": homes}, spaces).run
    ruled = dataclasses.replace(run.plan, rules=[dpf.Implies({"sex": "F"}, {"home": "own"})])
    with pytest.raises(dpf.errors.PlanError, match=r"no curator sees the.*a rule together"):
        dataclasses.replace(run, plan=ruled)


def test_the_command_line_reads_rules(tmp_path, capsys):
    frame(200).to_parquet(tmp_path / "in.parquet")
    (tmp_path / "spaces.json").write_text(PLAN_SPACES)
    (tmp_path / "rules.json").write_text(json.dumps([rule.to_json() for rule in RULES[2:3]]))
    files = [str(tmp_path / name) for name in ("in.parquet", "spaces.json", "rules.json", "plan.json")]
    given = ["plan", files[0], "--epsilon", "1", "--spaces", files[1], "--rules", files[2], "-o", files[3]]
    drop = [text for name in PLAN.names if name not in ("city", "region") for text in ("--drop", name)]
    with pytest.raises(SystemExit) as ended:
        main([*given, *drop])
    assert not ended.value.code
    assert dpf.Plan.read(files[3]).rules == (RULES[2],)
    for text, words in (("[{]", "holds no JSON; give a list of rules"), (None, "is not a readable file of rules")):
        (tmp_path / "rules.json").unlink() if text is None else (tmp_path / "rules.json").write_text(text)
        with pytest.raises(SystemExit) as ended:
            main([*given, *drop])
        assert ended.value.code == 2
        assert words in capsys.readouterr().err


PLAN_SPACES = json.dumps({"city": list("ABCD"), "region": ["N", "S"]})
