"""Synthetic rows: their types, their marginals and pairs, nulls, sets, times, and what they say of themselves."""

import json

import measure
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe import Estimates
from dpframe.datasets import HOBBIES, make_census

KEY = bytes(range(32))
ROWS = 6_000


def make_frame():
    people = make_census(ROWS, 3, columns=["sex", "region", "age", "income", "birth_date", "hobbies"])
    generator = np.random.default_rng(0)
    people["name"] = pd.Series(
        generator.choice(["Ödön", "陽子", "😀", "a b"], ROWS, p=[0.5, 0.3, 0.15, 0.05]), dtype="str"
    )
    people["paid"] = pd.Series(generator.choice([True, False, None], ROWS, p=[0.6, 0.3, 0.1]), dtype="boolean")
    people["level"] = pd.Series(people["age"] // 20, dtype="Int8")
    return people


SPACES = {
    "sex": ["F", "M"],
    "region": list(dpf.datasets.REGIONS),
    "age": (18, 95),
    "income": dpf.Nullable(dpf.Real(0, 250_000)),
    "birth_date": dpf.Datetime("1925-01-01", "2010-01-01"),
    "hobbies": dpf.Subset(HOBBIES, max_size=6),
    "name": ["Ödön", "陽子", "😀", "a b"],
    "paid": dpf.Nullable(dpf.Boolean()),
    "level": dpf.Integer(0, 4),
}


@pytest.fixture(scope="module")
def people():
    return make_frame()


@pytest.fixture(scope="module")
def plan(people):
    return dpf.plan(people, 27.0, delta=0, spaces=SPACES, measure=None)


@pytest.fixture(scope="module")
def safe(people, plan):
    return dpf.sanitize(people, plan=plan, key=KEY)


@pytest.fixture(scope="module")
def tables(people, plan):
    values = {name: plan[name].space.values for name in ("age", "income", "birth_date")}
    cuts = {name: tuple(size * i // 6 for i in range(6)) for name, size in values.items()}
    found = [*measure.measure_pairs(people, plan, 400.0, bins=cuts)]
    for name, size in values.items():
        found += measure.measure_number(people, plan, name, 400.0, (20.0 * size) ** 2)
    return (*found, measure.measure_items(people, plan, "hobbies", 400.0))


@pytest.fixture(scope="module", params=["tables", "rows"])
def source(request):
    return request.param


@pytest.fixture(scope="module")
def told(source, safe, tables):
    return Estimates(safe, tables=tables if source == "tables" else ())


def shares(frame, column):
    return frame[column].astype(object).value_counts(normalize=True, dropna=False)


def distance(first, second):
    return float(first.subtract(second, fill_value=0).abs().sum())


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [None, 2_500])
def test_rows_are_of_the_release_types_and_near_the_table(people, safe, told, source, n_rows):
    drawn = told.synthesize(n_rows, random_state=0)
    assert len(drawn) == (n_rows or len(safe))
    assert list(drawn.columns) == list(safe.columns)
    assert (drawn.dtypes == safe.dtypes).all()
    for name, limit in {"sex": 0.05, "region": 0.12, "name": 0.1, "paid": 0.12, "level": 0.12}.items():
        limit *= 2 if source == "rows" else 1  # fits to rows alone differ much from key to key
        assert distance(shares(drawn, name), shares(people, name)) < limit, name
    assert drawn["income"].isna().mean() == pytest.approx(people["income"].isna().mean(), abs=0.03)
    # Standard errors of fresh rows: age 0.4, income 500, dates 150 days.
    assert drawn["age"].mean() == pytest.approx(people["age"].mean(), abs=2.0)
    assert drawn["income"].mean() == pytest.approx(people["income"].mean(), rel=0.12)
    assert abs(drawn["birth_date"].mean() - people["birth_date"].mean()) < pd.Timedelta(days=900)
    assert drawn["age"].between(18, 95).all()
    assert drawn["hobbies"].map(len).max() <= 6
    for item in HOBBIES[:3]:
        real, found = (np.mean([item in one for one in frame["hobbies"]]) for frame in (people, drawn))
        assert found == pytest.approx(real, abs=0.12 if source == "rows" else 0.05)


@pytest.mark.slow
def test_pairs_are_those_of_the_fit(people, safe, tables):
    told = Estimates(safe, tables=tables)
    drawn = told.synthesize(random_state=0)
    columns = ["sex", "level"]
    real, found, noisy = (f.astype(object).groupby(columns).size() / len(f) for f in (people, drawn, safe))
    assert distance(found, real) < 0.1
    assert distance(found, real) < 0.5 * distance(noisy, real)
    grouped, truth = (f.groupby(f["sex"].astype(str))["age"].mean() for f in (drawn, people))
    assert np.abs(grouped - truth).max() < 3


@pytest.mark.slow
def test_seeds_repeat_and_none_does_not(told):
    first, again = (told.synthesize(200, random_state=7) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    generator = np.random.default_rng(7)
    pd.testing.assert_frame_equal(first, told.synthesize(200, random_state=generator))
    assert not first["age"].equals(told.synthesize(200)["age"])


def test_they_say_what_they_are(safe, told):
    drawn = told.synthesize(100, random_state=0)
    said = json.loads(drawn.attrs["dpframe"])["synthetic"]
    own = {"release": safe.dp.release.digest, "rows": ROWS, "epsilon_spent": 0, "not_found": []}
    assert said == said | own
    assert 0 < said["pairs_that_show"] <= said["pairs"] == said["pairs"]
    for ask in (lambda: drawn.dp.mean("age"), lambda: Estimates(drawn), lambda: drawn.dp.release):
        with pytest.raises(dpf.NotSanitizedError, match=r"the table is synthetic.*ask the release"):
            ask()
    with pytest.raises(dpf.errors.AlreadySanitizedError):
        drawn.dp.sanitize(epsilon=1)


@pytest.mark.slow
def test_the_accessor_draws(safe):
    pd.testing.assert_frame_equal(
        safe.dp.synthesize(50, random_state=1), Estimates(safe).synthesize(50, random_state=1)
    )


@pytest.mark.parametrize("n_rows", [0, -1, 2.5, True, "5"])
def test_bad_numbers_of_rows(told, n_rows):
    with pytest.raises(dpf.ParameterError, match=r"n_rows must be a.*1; leave it out"):
        told.synthesize(n_rows)


@pytest.mark.parametrize("seed", [-1, 0.5, True, "x"])
def test_bad_seeds(told, seed):
    with pytest.raises(dpf.ParameterError, match=r"random_state must be a.*Generator or None"):
        told.synthesize(random_state=seed)


def test_one_column_alone(people):
    frame = people[["region"]]
    safe = dpf.sanitize(frame, epsilon=4, delta=0, spaces={"region": SPACES["region"]}, key=KEY)
    drawn = safe.dp.synthesize(random_state=0)
    assert distance(shares(drawn, "region"), shares(frame, "region")) < 0.1


def test_columns_randomised_together(people):
    frame = people[["sex", "region", "level"]].astype({"level": "int64"})
    spaces = {name: SPACES[name] for name in frame}
    safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces=spaces, groups=[["sex", "region"]], key=KEY)
    drawn = safe.dp.synthesize(random_state=0)
    for name in frame:
        assert distance(shares(drawn, name), shares(frame, name)) < 0.25, name


def test_passed_columns_stay_beside_given_rows_alone(people):
    frame = people[["sex", "region"]].assign(number=np.arange(ROWS))
    safe = dpf.sanitize(
        frame, epsilon=4, delta=0, spaces={n: SPACES[n] for n in ("sex", "region")}, passthrough=["number"], key=KEY
    )
    drawn = safe.dp.synthesize(random_state=0)
    assert drawn["number"].equals(safe["number"])
    assert list(safe.dp.synthesize(10, random_state=0).columns) == ["sex", "region"]


def test_sets_with_nulls():
    people = make_census(ROWS, 3, columns=["hobbies", "sex"])
    people.loc[::5, "hobbies"] = None
    space = dpf.Nullable(dpf.Subset(HOBBIES, max_size=6))
    safe = dpf.sanitize(people, epsilon=20, delta=0, spaces={"hobbies": space, "sex": ["F", "M"]}, key=KEY)
    for rows in (None, 3_000):
        drawn = safe.dp.synthesize(rows, random_state=0)
        assert drawn["hobbies"].isna().mean() == pytest.approx(0.2, abs=0.05)
        kept = drawn["hobbies"].dropna()
        real = np.mean([HOBBIES[0] in one for one in people["hobbies"].dropna()])
        assert np.mean([HOBBIES[0] in one for one in kept]) == pytest.approx(real, abs=0.06)


def test_arrow_stays_arrow(people, plan):
    columns = ["sex", "region"]
    table = pa.Table.from_pandas(people[columns], preserve_index=False)
    safe = dpf.sanitize(table, epsilon=4, delta=0, spaces={n: SPACES[n] for n in columns}, key=KEY)
    drawn = Estimates(safe).synthesize(random_state=0)
    assert drawn.schema.equals(safe.schema)
    assert b"synthetic" in drawn.schema.metadata[b"dpframe"]


@pytest.fixture(scope="module")
def shop():
    """3,000 rows at ε = 1, whose sets often are as large as may be."""
    generator, tags = np.random.default_rng(5), ["shoes", "bags", "kids", "sale", "sport", "home"]
    age = np.clip(generator.normal(41, 14, 3_000).round(), 16, 94).astype(int)
    likely = np.array([0.3, 0.25, 0.15, 0.15, 0.1, 0.05])
    held = [generator.choice(tags, size, replace=False, p=likely) for size in generator.integers(0, 4, 3_000)]
    frame = pd.DataFrame({"age": age, "visits": generator.poisson(4, 3_000), "tags": [sorted(one) for one in held]})
    tier = generator.choice(["standard", "silver", "gold"], 3_000, p=[0.7, 0.2, 0.1])
    spaces = {"age": (16, 100), "visits": (0, 20), "tags": dpf.Subset(tags, max_size=3), "tier": sorted(set(tier))}
    return [dpf.sanitize(frame.assign(tier=tier), epsilon=1.0, spaces=spaces, key=bytes([k]) * 32) for k in range(1, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [None, 3_000])
def test_sets_have_the_supports_and_sizes_of_statistics(shop, n_rows):
    """Items are shifted until every support is met, within a row and what sizes round: no chance decides it."""
    for safe in shop:
        estimates = Estimates(safe)
        drawn = estimates.synthesize(n_rows, random_state=0)["tags"]
        supports, sizes = estimates.support("tags")["estimate"], estimates.set_sizes("tags", normalize=True)["estimate"]
        found = [drawn.map(lambda items, tag=tag: tag in items).mean() for tag in supports.index]
        np.testing.assert_allclose(found, supports, atol=0.002)
        # Supports and sizes have noise of their own, so that sizes give way: by a few of the standard errors of 0.04.
        np.testing.assert_allclose(np.bincount(drawn.map(len), minlength=4) / 3_000, sizes, atol=0.08)


def test_all_columns_of_which_no_rows_are_drawn_are_named_at_once():
    frame = pd.DataFrame({"load": [[0.0, 1.0]] * 90, "sex": ["F", "M", "M"] * 30, "heat": [[2.0, 1.0]] * 90})
    spaces = {"load": dpf.Vector(2, 2.0), "sex": ["F", "M"], "heat": dpf.Vector(2, 3.0)}
    safe = dpf.sanitize(frame, epsilon=9, delta=0, spaces=spaces, key=bytes(32))
    remedy = r"release\.drop\(columns=(\['load', 'heat'\])\)\.dp\.synthesize\(\) draws the others$"
    with pytest.raises(dpf.ParameterError, match=remedy):
        safe.dp.synthesize()
    assert list(safe.drop(columns=["load", "heat"]).dp.synthesize()) == ["sex"]
