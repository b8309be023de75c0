"""Estimates where tables were measured beside the rows: sources, methods, coverage, fallbacks.

Tables are made by hand: exact counts and rounded noise of a fixed generator.
"""

import os
import warnings
from dataclasses import replace
from itertools import combinations

import measure
import numpy as np
import pandas as pd
import pytest
import readings
from examples import plan_of

import dpframe as dpf
from dpframe import Estimates
from dpframe.datasets import HOBBIES, OCCUPATIONS, REGIONS, make_census

KEY = bytes(range(32))
RELEASES = int(os.environ.get("DPFRAME_RELEASES", "6"))
ROWS = 4_000
SIGMA = 25.0
SPACES = {
    "sex": ["F", "M"],
    "education": dpf.Ordinal(dpf.datasets.EDUCATION),
    "occupation": dpf.Nullable(dpf.Categorical(OCCUPATIONS)),
    "region": list(REGIONS),
}
LISTED = list(SPACES)


@pytest.fixture(scope="module")
def people():
    return make_census(ROWS, 3, columns=LISTED)


@pytest.fixture(scope="module")
def plan():
    return plan_of(SPACES, epsilon=4.0)


@pytest.fixture(scope="module")
def safe(people, plan):
    return dpf.sanitize(people, plan=plan, key=KEY)


@pytest.fixture(scope="module")
def told(people, plan, safe):
    return Estimates(safe, tables=measure.measure_pairs(people, plan, SIGMA**2))


def counts_of(frame, columns):
    """Return the true counts in the order of a joint."""
    filled = frame[columns].astype(object)
    index = [LABELS[name] for name in columns]
    if len(columns) == 1:
        return filled[columns[0]].value_counts().reindex(index[0], fill_value=0)
    return filled.groupby(columns).size().reindex(pd.MultiIndex.from_product(index), fill_value=0)


LABELS = {
    c.name: [label for label in c.space.labels() if label is not None] for c in plan_of(SPACES, epsilon=4.0).columns
}


def error(frame, truth):
    return float(np.abs(frame["estimate"].to_numpy() - truth.to_numpy()).sum() / truth.sum())


@pytest.mark.slow
@pytest.mark.parametrize("columns", [["region"], ["sex", "region"], ["occupation", "education"]])
def test_every_method_is_nearer_than_rows_alone(people, safe, told, columns):
    truth, alone = counts_of(people, columns), Estimates(safe)
    for method in ("inverse", "project", "model", "auto"):
        found = told.joint(columns, method=method)
        uses_rows = method == "inverse" or (len(columns) == 1 and method in ("model", "auto"))
        assert found.attrs["source"] == ("both" if uses_rows else "tables"), method
        rows = alone.joint(columns, method=method if method != "model" else "em")
        assert rows.attrs["source"] == "rows"
        assert error(found, truth) < error(rows, truth), method


def test_values_are_counted_with_least_error_where_they_were_measured(safe, told):
    least, unbiased = (told.value_counts("region", sort=False, method=method) for method in ("auto", "inverse"))
    assert told.value_counts("region", sort=False).equals(least)
    assert not least.equals(unbiased)
    assert Estimates(safe).value_counts("region").attrs["method"] == "inverse"


def test_rows_count_in_what_a_fit_knows_of_one_column(people, plan, safe):
    """Beside the pairs that hold the region its released rows are a table of their own."""
    tables = measure.measure_pairs(people, plan, SIGMA**2)
    model = readings.models_of(safe, tables=tables).whole
    seen = model.evidence.seen(model.places(["region"]))
    of_pairs = sum("region" in table.measure.columns for table in tables)
    assert len(seen) == of_pairs + 1
    assert np.abs(seen[-1].counts - counts_of(people, ["region"])).max() < 5 * np.sqrt(seen[-1].variances).max()


def test_faces_agree(people, safe, told):
    wide = told.crosstab("sex", "region")["estimate"]
    tall = told.joint(["sex", "region"], method="inverse")["estimate"]
    assert wide.to_numpy().ravel() == pytest.approx(tall.to_numpy())
    shares = told.joint(["sex", "region"], given="sex")
    assert shares["estimate"].groupby("sex").sum().to_numpy() == pytest.approx(1)
    for method in ("auto", "inverse"):
        assert told.value_counts("region", method=method).attrs["source"] == "both"
    assert told.value_counts("region", method="em").attrs["source"] == "rows"
    margins = told.crosstab("sex", "region", margins=True)["estimate"]
    assert margins.loc["All", "All"] == pytest.approx(wide.to_numpy().sum())
    whole = told.joint(["sex", "region"], normalize=True, method="inverse")["estimate"]
    assert whole.to_numpy() * ROWS == pytest.approx(tall.clip(lower=0).to_numpy()), "shares are from 0 to 1"


@pytest.mark.slow
def test_inverse_is_unbiased_and_its_variance_right(people, plan):
    """120 releases: means within 4.5 standard errors of the truth in 40 cells (error probability 3e-4), and the mean
    stated variance within a third of the actual one."""
    columns, found, stated = ["occupation", "region"], [], []
    exact = measure.measure_pairs(people[columns], plan_of({c: SPACES[c] for c in columns}, epsilon=2.0), 0.0)
    own = plan_of({c: SPACES[c] for c in columns}, epsilon=8.0)
    generator = np.random.default_rng(5)
    for key in range(120):
        safe = dpf.sanitize(people[columns], plan=own, key=key.to_bytes(32, "big"))
        noise = np.rint(30 * generator.standard_normal(exact[0].counts.shape)).astype(np.int64)
        table = replace(exact[0], measure=replace(exact[0].measure, sigma2=900.0), counts=exact[0].counts + noise)
        frame = Estimates(safe, tables=[table]).joint(columns, method="inverse")
        found.append(frame["estimate"].to_numpy())
        stated.append(frame["std_error"].to_numpy() ** 2)
    truth, variance = counts_of(people, columns).to_numpy(), np.var(found, axis=0, ddof=1)
    assert np.abs((np.mean(found, axis=0) - truth) / np.sqrt(variance / 120)).max() < 4.5
    assert np.mean(stated) == pytest.approx(np.mean(variance), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["table", "population"])
def test_intervals_hold_what_they_say(people, plan, target):
    """6 releases of 4,000 rows, 4 one-ways and pairs: each method's share of all cells within its intervals.

    Cells of one release depend on each other: with an effective 400 of them the standard error is below 0.01, and the
    bounds lie two or more away; keys are fixed. ``DPFRAME_RELEASES=500`` is the full run.
    """
    groups = [["region"], ["occupation"], ["sex", "region"], ["occupation", "education"]]
    held = {"inverse": [], "project": [], "model": []}
    truth = people if target == "table" else make_census(400_000, 0, columns=LISTED)
    weight = ROWS / len(truth)
    for key in range(RELEASES):
        frame = people if target == "table" else make_census(ROWS, 100 + key, columns=LISTED)
        safe = dpf.sanitize(frame, plan=plan, key=key.to_bytes(32, "big"))
        told = Estimates(safe, tables=measure.measure_pairs(frame, plan, SIGMA**2, seed=key))
        for method, inside in held.items():
            for columns in groups:
                found = told.joint(columns, method=method, target=target)
                exact = counts_of(truth, columns).to_numpy() * weight
                inside.append(((found["lower"] <= exact) & (exact <= found["upper"])).to_numpy())
    rates = {method: float(np.mean(np.concatenate(inside))) for method, inside in held.items()}
    print(RELEASES, target, rates)
    assert 0.93 < rates["inverse"] < 0.97, rates
    assert 0.90 < rates["project"] < 0.99, rates
    assert 0.88 < rates["model"] < 0.99, rates


def test_three_columns_hear_the_rows(people):
    """Parity of two columns in a third: no pair shows it, the rows do."""
    generator = np.random.default_rng(0)
    a, b = generator.integers(0, 2, (2, 20_000))
    frame = pd.DataFrame({"a": a, "b": b, "c": (a + b) % 2}).astype(str)
    plan = plan_of({name: ["0", "1"] for name in "abc"}, epsilon=4.0)
    told = Estimates(dpf.sanitize(frame, plan=plan, key=KEY), tables=measure.measure_pairs(frame, plan, 900.0))
    found = told.joint(["a", "b", "c"], normalize=True)
    assert found.attrs["hidden"]
    assert found.attrs["source"] == "both"
    truth = frame.groupby(["a", "b", "c"]).size().reindex(found.index, fill_value=0) / len(frame)
    assert np.abs(found["estimate"] - truth).sum() < 0.15
    with pytest.warns(dpf.DpframeWarning, match=r"a, b, c together;.*itself with joint") as caught:
        told.synthesize(random_state=0)
    assert not any(issubclass(one.category, dpf.errors.AlteredReleaseWarning) for one in caught), "it is whole"


def test_census_hides_nothing(told):
    assert "hidden" not in told.joint(["sex", "education", "region"]).attrs


def test_tables_of_another_release_are_left_out(people, plan, safe):
    tables = measure.measure_pairs(people, plan, SIGMA**2)
    alone = Estimates(safe).joint(["sex", "region"], method="inverse")
    damaged = [
        replace(tables[0], counts=tables[0].counts + 1_000),
        replace(tables[0], counts=tables[0].counts[:1]),
        replace(tables[0], measure=replace(tables[0].measure, columns=("sex", "gone"))),
        replace(tables[0], starts=((0, 1), None)),
    ]
    for table in damaged:
        told = Estimates(safe, tables=[table])
        with pytest.warns(dpf.errors.AlteredReleaseWarning, match="1 of 1 measured tables do not fit the release"):
            found = told.joint(["sex", "region"], method="inverse")
        assert found.attrs["source"] == "rows"
        pd.testing.assert_frame_equal(found, alone)
    unused = Estimates(safe, tables=tables, use_measured=False).joint(["sex", "region"], method="inverse")
    pd.testing.assert_frame_equal(unused, alone)


def test_rows_answer_what_was_not_measured(people, plan, safe):
    tables = [t for t in measure.measure_pairs(people, plan, SIGMA**2) if "region" not in t.measure.columns]
    told = Estimates(safe, tables=tables)
    assert told.value_counts("region").attrs["source"] == "rows"
    assert told.joint(["sex", "region"]).attrs["source"] == "rows"
    assert told.joint(["sex", "occupation", "region"]).attrs["source"] == "both"


def test_a_fit_is_made_once(people, plan, safe):
    tables = measure.measure_pairs(people, plan, SIGMA**2)
    first, again = (readings.models_of(safe, tables=tables).whole.fit for _ in range(2))
    assert first is again


def test_all_pairs_are_near(people, told, safe):
    """The model's mean error over all pairs, beside the raw counts'."""
    pairs = [list(pair) for pair in combinations(LISTED, 2)]
    found = {
        m: np.mean([error(told.joint(p, method=m), counts_of(people, p)) for p in pairs]) for m in ("inverse", "model")
    }
    assert found["model"] < 0.8 * found["inverse"]


# Numbers and sets


@pytest.fixture(scope="module")
def grown():
    return make_census(ROWS, 3, columns=["age", "sex", "income", "hobbies"])


@pytest.fixture(scope="module")
def numbers(grown):
    spaces = {
        "age": (18, 95),
        "sex": ["F", "M"],
        "income": dpf.Nullable(dpf.Real(0, 250_000)),
        "hobbies": dpf.Subset(HOBBIES, max_size=6),
    }
    plan = plan_of(spaces, epsilon=8.0)
    income = plan["income"].space.values
    cuts = {"age": tuple(range(0, 78, 13)), "income": tuple(int(income * part / 60) for part in (0, 6, 12, 20, 30))}
    tables = [*measure.measure_pairs(grown, plan, SIGMA**2, bins=cuts)]
    tables += measure.measure_number(grown, plan, "age", 400.0, 4_000.0**2, cells=78)
    tables += measure.measure_number(grown, plan, "income", 400.0, (20.0 * income) ** 2)
    tables.append(measure.measure_items(grown, plan, "hobbies", 400.0))
    safe = dpf.sanitize(grown, plan=plan, key=KEY)
    return Estimates(safe, tables=tables), Estimates(safe)


def test_moments_are_from_both(grown, numbers):
    """Each within five stated standard errors (error probability 1e-6 each), which are below those of rows alone."""
    told, alone = numbers
    truths = {
        ("mean", "age"): grown["age"].mean(),
        ("mean", "income"): grown["income"].mean(),
        ("sum", "age"): grown["age"].sum(),
        ("sum", "income"): grown["income"].sum(),
        ("var", "age"): grown["age"].var(),
        ("var", "income"): grown["income"].var(),
    }
    for (name, column), truth in truths.items():
        found, rows = (getattr(one, name)(column) for one in (told, alone))
        assert found.attrs["source"] == "both", name
        assert abs(found["estimate"] - truth) < 5 * found["std_error"], (name, column)
        assert found["std_error"] < rows["std_error"], (name, column)
        wide = getattr(told, name)(column, target="population")
        assert wide["std_error"] > found["std_error"], (name, column)


def test_distributions_are_from_tables(grown, numbers):
    told, _ = numbers
    found = told.quantile("age", [0.25, 0.5, 0.75])
    assert found.attrs["source"] == "tables"
    assert found["estimate"].to_numpy() == pytest.approx(grown["age"].quantile([0.25, 0.5, 0.75]).to_numpy(), abs=2.5)
    bars = told.histogram("age", 13)
    exact = np.histogram(grown["age"], 13, (18, 96))[0]
    assert np.abs(bars["estimate"].to_numpy() - exact).sum() < 0.1 * ROWS
    cut = told.crosstab("sex", "age", bins={"age": [18, 44, 70, 96]})
    assert (cut.attrs["method"], cut.attrs["source"]) == ("model", "tables")
    truth = pd.crosstab(grown["sex"].astype(str), pd.cut(grown["age"], [18, 44, 70, 96], right=False))
    assert np.abs(cut["estimate"].to_numpy() - truth.to_numpy()).sum() < 0.15 * ROWS


def test_supports_are_from_both(grown, numbers):
    told, alone = numbers
    found, rows = told.support("hobbies"), alone.support("hobbies")
    assert found.attrs["source"] == "both"
    assert rows.attrs["source"] == "rows"
    truth = np.array([np.mean([item in one for one in grown["hobbies"]]) for item in found.index])
    assert np.sqrt(np.mean((found["estimate"] - truth) ** 2)) < 0.5 * np.sqrt(np.mean((rows["estimate"] - truth) ** 2))
    assert (np.abs(found["estimate"] - truth) < 5 * found["std_error"]).all()


@pytest.mark.filterwarnings("ignore:correlations are NaN")  # of rows alone
def test_matrices_are_from_both(grown, numbers):
    """Within five stated standard errors (error probability 1e-6 each), of rows alone at the most.

    (A correlation's are of intervals on a grid, here of half its whole range.)
    """
    told, alone = numbers
    for name in ("cov", "corr"):
        found, rows = (getattr(one, name)(["age", "income"]) for one in (told, alone))
        truth = getattr(grown[["age", "income"]], name)()
        assert found.attrs["source"] == "both"
        assert rows.attrs["source"] == "rows"
        part, error = found["estimate"].loc["age", "income"], found["std_error"].loc["age", "income"]
        # A correlation that cannot be told from any other is NaN.
        assert not abs(part - truth.loc["age", "income"]) > 5 * error, name
        assert error <= rows["std_error"].loc["age", "income"] * (1.25 if name == "corr" else 1), name
        wide = getattr(told, name)(["age", "income"], target="population")["std_error"].loc["age", "income"]
        # Profile intervals end on a grid.
        assert wide > error if name == "cov" else wide >= error


def test_null_rates_are_from_both(people, grown, told, safe, numbers):
    """Within five stated standard errors (error probability 1e-6 each)."""
    for frame, column, one, other in ((people, "occupation", told, Estimates(safe)), (grown, "income", *numbers)):
        found, rows = one.null_rate(column), other.null_rate(column)
        assert found.attrs["source"] == "both"
        assert abs(found["estimate"] - frame[column].isna().mean()) < 5 * found["std_error"]
        assert found["std_error"] < rows["std_error"]
        assert one.null_rate(column, target="population")["std_error"] > found["std_error"]


@pytest.mark.parametrize("cells", [10, 7, 121])
def test_all_counts_of_a_number_tell_of_it(cells):
    """Counts from elsewhere, in cells that are the first table's, cut them or are finer, err as they say."""
    frame = make_census(ROWS, 3, columns=["age", "sex"])
    plan = plan_of({"age": (0, 120), "sex": ["F", "M"]}, epsilon=4.0)
    release, codes = dpf.sanitize(frame, plan=plan, key=KEY), measure.codes_of(frame, plan)
    first = measure.measure_number(frame, plan, "age", SIGMA**2, 1e9, cells=10)[:1]
    pair = measure.measure_pairs(frame, plan, SIGMA**2, bins={"age": first[0].starts[0]})
    cut = tuple(sorted({i * 121 // cells for i in range(cells)}))
    counts = measure.count_table(codes, plan, ["age"], [cut])
    more = measure.measured("one_way", ["age"], [cut], counts, 4.0, np.random.default_rng(1))
    truth = frame["age"].lt(first[0].starts[0][5]).sum()
    ask = {"age": (0, int(first[0].starts[0][5]) - 1)}
    one, both = (Estimates(release, tables=(*first, *pair, *extra)).count(ask) for extra in ((), (more,)))
    assert both["std_error"] < one["std_error"] * (0.5 if cells != 7 else 1.0)
    assert abs(both["estimate"] - truth) < 4 * both["std_error"]
    models = [readings.models_of(release, tables=(*first, *pair, *extra)).whole for extra in ((), (more,))]
    assert [len(model.evidence.tables) for model in models] == [3, 3]


@pytest.mark.slow
def test_intervals_hold_for_weak_pairs_among_many_independent_ones():
    """Four conditions of which a person has two at most, and six coins: the six pairs that depend, by five keys.

    A fit draws all of its 45 pairs to independence, by as much as noise hides. Were the 30 intervals independent, fewer
    than 24 held with a probability of 0.001; without what a count leaves open about half do.
    """
    generator = np.random.default_rng(0)
    sizes, names = generator.integers(0, 3, 2_400), ["asthma", "diabetes", "gout", "migraine"]
    ill = pd.DataFrame(
        [np.isin(np.arange(4), generator.choice(4, size, replace=False)) for size in sizes], columns=names
    )
    coins = pd.DataFrame(generator.random((2_400, 6)) < 0.5, columns=[f"x{i}" for i in range(6)])
    people = pd.concat([ill, coins], axis=1)
    held = []
    for key in range(1, 6):
        spaces = dict.fromkeys(people, dpf.Boolean())
        estimates = Estimates(people.dp.sanitize(epsilon=0.5, delta=1e-6, spaces=spaces, key=bytes([key]) * 32))
        for first, second in combinations(names, 2):
            both = estimates.joint([first, second]).loc[(True, True)]
            held.append(both["lower"] <= (people[first] & people[second]).sum() <= both["upper"])
    assert sum(held) >= 24


@pytest.fixture(scope="module")
def owners():
    """4,000 rows of which more own a car the larger their household, and releases of them under six keys."""
    generator = np.random.default_rng(5)
    size = generator.choice(5, 4_000, p=[0.35, 0.3, 0.2, 0.1, 0.05]) + 1
    frame = pd.DataFrame({"size": size, "owns": generator.random(4_000) < 0.2 + 0.15 * size})
    frame["drives"] = np.where(frame["owns"], generator.random(4_000) < 0.8, generator.random(4_000) < 0.4)
    spaces = {"size": (1, 10), "owns": dpf.Boolean(), "drives": dpf.Boolean()}
    return frame, [dpf.sanitize(frame, epsilon=1, spaces=spaces, key=bytes([key]) * 32) for key in range(6)]


@pytest.mark.slow
def test_means_of_true_and_false_by_group_use_their_pairs(owners):
    """Of 30 intervals one may miss in twenty: four in 2.3 % of tables; rows alone have errors of .2."""
    frame, releases = owners
    truth = frame.groupby("size")["owns"].mean()
    found = [safe.dp.mean("owns", by="size").loc[truth.index] for safe in releases]
    missed = sum(int(((one["lower"] > truth) | (one["upper"] < truth)).sum()) for one in found)
    assert missed < 4
    assert all(one["std_error"].iloc[:3].max() < 0.1 for one in found)


def test_correlations_of_true_and_false_use_their_pairs(owners):
    """Two of six intervals miss in 3 % of tables; rows alone have errors of .2."""
    frame, releases = owners
    truth = frame["owns"].corr(frame["drives"])
    found = [safe.dp.corr(["owns", "drives"]).loc["owns"].xs("drives", level=1) for safe in releases]
    assert sum(not one["lower"] <= truth <= one["upper"] for one in found) < 2
    assert all(one["std_error"] < 0.08 for one in found)


@pytest.mark.slow
def test_groups_that_noise_hides_have_no_narrow_intervals():
    """Rare values share a bin of pairs: nine tenths of the means hold, and eight of the cells. Keys are fixed."""
    generator = np.random.default_rng(5)
    size = generator.choice(8, 4_000, p=[0.4, 0.3, 0.14, 0.1, 0.032, 0.012, 0.011, 0.005]) + 1
    frame = pd.DataFrame({"size": size, "income": generator.gamma(4, 9_000, 4_000).clip(0, 150_000).round()})
    frame["owns"], frame["rate"] = generator.random(4_000) < 0.3 + 0.08 * size, generator.integers(1, 6, 4_000)
    spaces = {"size": (1, 10), "income": (0, 150_000), "owns": dpf.Boolean(), "rate": (1, 5)}
    means, counts = frame.groupby("size")["income"].mean(), frame.groupby(["size", "owns"]).size()
    held = {"means": [], "cells": []}
    for key in range(8):
        told = dpf.sanitize(frame, epsilon=0.3, spaces=spaces, key=bytes([key]) * 32).dp
        for kind, found, truth in (
            ("means", told.mean("income", by="size"), means),
            ("cells", told.joint(["size", "owns"]), counts),
        ):
            rare = truth.loc[6:]
            some = found.loc[rare.index]
            assert (some["std_error"] > 0).all()
            held[kind] += ((some["lower"] <= rare) & (rare <= some["upper"])).tolist()
    assert np.mean(held["means"]) >= 0.9
    assert np.mean(held["cells"]) >= 0.8


@pytest.mark.slow
def test_means_of_groups_of_hardly_any_rows_stay_within_the_bounds():
    """By only the rows, whose ratios to next to nothing may be any number, and by all that is known."""
    frame = pd.DataFrame({"age": np.arange(900) % 90, "pay": np.arange(900.0) % 600})
    for key in range(4):
        told = frame.dp.sanitize(epsilon=1, spaces={"age": (0, 95), "pay": (0.0, 600.0)}, key=bytes([key]) * 32).dp
        for method in ("inverse", "auto"):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", category=dpf.errors.DpframeWarning)
                found = told.mean("pay", by="age", method=method).dropna()
            assert found["estimate"].between(0, 600).all()
            assert (found["lower"] <= found["estimate"]).all()
            assert (found["estimate"] <= found["upper"]).all()


@pytest.mark.slow
def test_a_crosstab_of_counts_that_say_nothing_takes_what_was_measured():
    steps = {"a": 1, "b": 7, "c": 11, "d": 13, "e": 17, "f": 19}
    frame = pd.DataFrame({name: np.arange(1_000) * step % 30 for name, step in steps.items()})
    frame["owns"] = np.arange(1_000) % 3 == 0
    spaces = dict.fromkeys(steps, (0, 29)) | {"owns": dpf.Boolean()}
    safe = dpf.sanitize(frame, epsilon=1, spaces=spaces, key=bytes(32))
    table = safe.dp.crosstab("a", "owns")
    assert (table.attrs["method"], table.attrs["source"]) == ("model", "tables")
    assert table["std_error"].to_numpy().max() < 200
    unbiased = safe.dp.crosstab("a", "owns", method="inverse")
    assert unbiased["std_error"].to_numpy().max() > len(frame)
    assert safe.dp.crosstab("a", "owns", normalize="index").attrs["method"] == "model"
    assert safe.dp.crosstab("a", "owns", margins=True).attrs["method"] == "inverse"


@pytest.mark.slow
def test_a_count_that_noise_hides_has_the_interval_of_all_that_may_be():
    items = list("abcdefgh")
    generator = np.random.default_rng(6)
    frame = pd.DataFrame({"likes": [list(generator.choice(items, 3, replace=False)) for _ in range(2_000)]})
    frame["rate"] = generator.integers(1, 6, 2_000)
    spaces = {"likes": dpf.Subset(items, max_size=8), "rate": (1, 5), "age": (0, 99), "third": (0, 99)}
    frame["age"], frame["third"] = np.arange(2_000) % 100, np.arange(2_000) * 7 % 100
    safe = dpf.sanitize(frame, epsilon=0.5, spaces=spaces, key=bytes(32))
    with pytest.warns(dpf.InferenceWarning, match=r"noise hides how many.*on likes, rate"):
        found = safe.dp.count({"likes": {"any": ["a"]}, "rate": (4, 5)})
    assert (found["lower"], found["upper"]) == (0.0, 2_000.0)
    assert 0 <= found["estimate"] <= 2_000 < found["std_error"]
