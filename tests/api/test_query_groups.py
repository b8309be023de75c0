"""Questions by groups, under conditions, of sets, and where rows are added or removed: pandas' answers, coverage."""

import math

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe import Ledger

HOBBIES = dpf.Subset(dpf.datasets.HOBBIES)
SPACES = {
    "age": (0, 120),
    "sex": ["F", "M"],
    "income": dpf.Nullable(dpf.Real(0, 250_000)),
    "region": list(dpf.datasets.REGIONS),
    "hobbies": HOBBIES,
}
MANY = 1e4
KINDS = ["replace_one", "add_remove"]
WHERE = {"sex": "F", "age": (18, 65)}


@pytest.fixture(scope="module")
def people():
    return dpf.datasets.make_census(6_000, random_state=3, columns=list(SPACES))


def some(people):
    return people[(people["sex"] == "F") & people["age"].between(18, 65)]


def holds(people, test):
    return people["hobbies"].map(lambda held: test(["reading", "walking"], held)).sum()


@pytest.mark.parametrize("neighbours", KINDS)
@pytest.mark.filterwarnings("ignore:epsilon=")
def test_without_noise_answers_are_pandas_own(people, neighbours):
    q = dpf.Queries(people, MANY, delta=0, spaces=SPACES, neighbours=neighbours)
    few, near, share = some(people), {"rel": 2e-3}, 0.02
    clipped = people.assign(income=people["income"].clip(0, 250_000))
    by = clipped.groupby("sex", observed=True)["income"]
    assert q.mean("income", by="sex", share=share)["estimate"].tolist() == pytest.approx(by.mean().tolist(), **near)
    assert q.sum("income", by="sex", share=share)["estimate"].tolist() == pytest.approx(by.sum().tolist(), **near)
    assert q.mean("age", where=WHERE, share=share)["estimate"] == pytest.approx(few["age"].mean(), **near)
    assert q.sum("age", where=WHERE, share=share)["estimate"] == pytest.approx(few["age"].sum(), **near)
    table = q.histogram("region", where=WHERE, share=share)["estimate"]
    assert table.tolist() == few["region"].value_counts(sort=False).reindex(table.index, fill_value=0).tolist()
    cross = q.crosstab("sex", "region", where={"age": (18, 65)}, share=share)["estimate"]
    plain = people[people["age"].between(18, 65)].groupby(["sex", "region"], observed=False).size().unstack()
    assert (cross == plain.reindex(index=cross.index, columns=cross.columns).fillna(0)).all(axis=None)
    medians = q.quantile("age", by="region", share=share)["estimate"]
    assert (medians - people.groupby("region", observed=True)["age"].median()).abs().max() <= 1
    for mechanism in ("noisy_max", "geometric", None):
        found = q.quantile("age", [0.25, 0.5], where=WHERE, share=share, mechanism=mechanism)["estimate"]
        assert found.tolist() == pytest.approx(few["age"].quantile([0.25, 0.5]).tolist(), abs=1)
    both = q.covariance(["age"], where=WHERE, share=share)["estimate"].to_numpy()
    assert both[0, 0] == pytest.approx(few["age"].var(ddof=0), rel=0.02)
    squares = q.second_moments(["age"], where=WHERE, share=share)["estimate"].to_numpy()
    assert squares[0, 0] == pytest.approx((few["age"] ** 2).mean(), **near)


@pytest.mark.parametrize("neighbours", KINDS)
@pytest.mark.filterwarnings("ignore:epsilon=")
def test_sets_are_counted_as_pandas_does(people, neighbours):
    q, share = dpf.Queries(people, MANY, delta=0, spaces=SPACES, neighbours=neighbours), 0.05
    items = people["hobbies"].explode().value_counts()
    supports = q.support("hobbies", share=share)["estimate"]
    assert (supports - items.reindex(supports.index, fill_value=0)).abs().max() <= 2
    for mechanism in ("geometric", "noisy_max"):
        top = q.most_common("hobbies", 3, share=share, mechanism=mechanism)["estimate"]
        assert top.index.tolist() == items.index[:3].tolist()
        assert (top - items.head(3)).abs().max() <= 2
    sizes = q.set_sizes("hobbies", share=share)["estimate"]
    assert sizes.loc[:6].tolist() == people["hobbies"].map(len).value_counts().sort_index().tolist()
    assert q.nunique("hobbies", share=share)["estimate"] == len(items)
    assert q.nunique("region", where=WHERE, share=share)["estimate"] == some(people)["region"].nunique()
    every = {"all": lambda wanted, held: set(wanted) <= set(held), "any": lambda wanted, held: set(wanted) & set(held)}
    for how, test in every.items():
        asked = {"hobbies": {how: ["reading", "walking"]}}
        expected = holds(people, lambda wanted, held, test=test: bool(test(wanted, held)))
        assert q.count(asked, share=share)["estimate"] == expected
        assert q.count({"hobbies": {"not": asked["hobbies"]}}, share=share)["estimate"] == len(people) - expected


@pytest.mark.filterwarnings("ignore:epsilon=")
def test_sets_that_are_null_or_too_large(keys):
    frame = pd.DataFrame({"h": [["a", "b", "c"], None, [], ["a"], ["zz"]] * 10})
    for space in (dpf.Subset(["a", "b", "c"], max_size=2), dpf.Nullable(dpf.Subset(["a", "b", "c"], max_size=2))):
        q = dpf.Queries(frame, MANY, delta=0, spaces={"h": space})
        supports = q.support("h", share=0.1)["estimate"]
        assert supports.sum() == 30  # the three items of ten sets are cut to two
        assert q.set_sizes("h", share=0.1)["estimate"].sum() in (30, 40)  # what the space cannot hold may be null
        assert q.count({"h": {"any": ["a", "b"]}}, share=0.1)["estimate"] == 20
        assert q.count({"h": {"not": {"any": ["a", "b"]}}}, share=0.1)["estimate"] in (10, 20)
        assert q.nunique("h", share=0.1)["estimate"] == 3
        assert q.most_common("h", 1, share=0.1, mechanism="exponential")["estimate"].to_dict() == {"a": 20}


@pytest.mark.parametrize(
    ("neighbours", "delta", "count"),
    [
        ("replace_one", 0, 25),
        ("add_remove", 1e-6, 25),
        *(pytest.param(kind, delta, 200, marks=pytest.mark.slow) for kind in KINDS for delta in (0, 1e-6)),
    ],
)
@pytest.mark.slow
def test_intervals_hold_the_tables_own_answers(people, keys, neighbours, delta, count):
    """Answers of a kind at fixed keys: a coverage of 95 % falls below 95 % − 5 sd with a chance of 1e-6."""
    few = people.head(1_000)
    female = few[few["sex"] == "F"]
    nth = {"by": few.groupby("sex", observed=True)["age"], "where": female["age"]}
    median = [np.sort(ages)[math.ceil(len(ages) / 2) - 1] for _, ages in nth["by"]]
    items = few["hobbies"].explode().value_counts().reindex(dpf.datasets.HOBBIES, fill_value=0)
    asked = {
        "mean by": (lambda q, s: q.mean("age", by="sex", share=s), nth["by"].mean().to_numpy()),
        "sum where": (lambda q, s: q.sum("age", where={"sex": "F"}, share=s), female["age"].sum()),
        "median by": (lambda q, s: q.quantile("age", by="sex", share=s), np.array(median)),
        "variance": (lambda q, s: q.covariance(["age"], where={"sex": "F"}, share=s), female["age"].var(ddof=0)),
        "support": (lambda q, s: q.support("hobbies", share=s), items.to_numpy()),
        "nunique": (lambda q, s: q.nunique("region", share=s), few["region"].nunique()),
    }
    for name, (ask, truth) in asked.items():
        inside, q = [], dpf.Queries(few, 20.0, delta=delta, spaces=SPACES, neighbours=neighbours)
        for _ in range(count):
            answer = ask(q, 0.001)
            low, high = (np.asarray(answer[end], dtype=float).ravel() for end in ("lower", "upper"))
            inside.append(((low <= truth + 1e-9) & (truth <= high + 1e-9)).mean())
        assert np.mean(inside) > 0.95 - 5 * math.sqrt(0.95 * 0.05 / count), name


def test_groups_cost_what_one_question_does(people, keys):
    """A thousand groups have the noise that two have, and the ledger one entry."""
    many = pd.DataFrame({"x": [1.0] * 3_000, "few": [0, 1] * 1_500, "many": [*range(1_000)] * 3})
    spaces = {"x": (0, 1), "few": (0, 1), "many": (0, 999)}
    for delta in (0, 1e-6):
        q = dpf.Queries(many, 1.0, delta=delta, spaces=spaces)
        few, more = (q.sum("x", by=by, share=0.25)["std_error"].iloc[0] for by in ("few", "many"))
        assert few == pytest.approx(more, rel=1e-6)
        one = q.sum("x", where={"few": 1}, share=0.25)["std_error"]
        assert one <= few <= 2 * one  # two counts may move, in place of one


def test_moments_of_hardly_any_rows_are_within_their_bounds(keys):
    frame = pd.DataFrame({"x": [100] * 3 + [0] * 2_000, "g": ["a"] * 3 + ["b"] * 2_000})
    q = dpf.Queries(frame, 2.0, delta=0, spaces={"x": (0, 100), "g": ["a", "b"]})
    for _ in range(20):
        found = q.covariance(["x"], where={"g": "a"}, share=0.02, psd=False).to_numpy().ravel()
        assert abs(found[0]) <= 2_500
        assert found[2] <= 0 <= found[3]
        assert 0 < found[1] <= 5_000


def test_an_empty_group_has_the_bounds_for_its_interval(keys):
    frame = pd.DataFrame({"x": [10] * 500, "g": ["a"] * 500})
    q = dpf.Queries(frame, 1.0, delta=1e-6, spaces={"x": (0, 100), "g": ["a", "b"]})
    answer = q.mean("x", by="g", share=0.5).loc["b"]
    assert (answer["lower"], answer["upper"]) == (0, 100)
    assert 0 <= answer["estimate"] <= 100


def test_an_added_row_moves_less(people, keys):
    """A histogram's noise falls by √2 or 2, and n is counted where it is needed."""
    for delta, ratio in ((0, 2), (1e-6, math.sqrt(2))):
        errors = []
        for neighbours in KINDS:
            q = dpf.Queries(people, 1.0, delta=delta, spaces=SPACES, neighbours=neighbours)
            errors.append(q.histogram("sex", share=0.2)["std_error"].iloc[0])
        assert errors[0] / errors[1] == pytest.approx(ratio, rel=0.02)
    assert abs(q.count(share=0.2)["estimate"] - len(people)) < 100
    assert q.mean("age", share=0.2)["estimate"] == pytest.approx(people["age"].mean(), abs=3)


def test_the_number_of_rows_is_a_secret(people):
    q = dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES, neighbours="add_remove")
    with pytest.raises(dpf.ParameterError, match=r"the number of rows is a secret with neighbours=\"add_remove\""):
        _ = q.n
    assert "6,000" not in repr(q)
    assert "add_remove" in repr(q)
    with pytest.raises(dpf.ParameterError, match="delta is needed with neighbours="):
        dpf.Queries(people, 1.0, spaces=SPACES, neighbours="add_remove")
    empty = dpf.Queries(people.head(0), 1.0, delta=1e-6, spaces=SPACES, neighbours="add_remove")
    assert abs(empty.count(share=0.5)["estimate"]) < 100
    assert 0 <= empty.mean("age", share=0.5)["estimate"] <= 120
    dpf.Queries(people, 1.0, delta=0.1, spaces=SPACES, neighbours="add_remove")  # no warning that depends on n


def test_a_ledger_keeps_the_neighbours_and_converts_one_way(people, tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.create("replaced", 5.0)
    ledger.create("added", 5.0, unit="add_remove row")

    def ask(dataset, **options):
        q = dpf.Queries(people, 1.0, delta=0, spaces=SPACES, ledger=ledger, dataset=dataset, **options)
        return q.count({"sex": "F"}, share=0.5)

    ask("added", neighbours="add_remove")
    ask("replaced")
    ask("replaced", neighbours="add_remove", contributions=2)  # two rows added or removed are one replaced
    for dataset, options in (
        ("added", {}),
        ("replaced", {"neighbours": "add_remove"}),
        ("added", {"contributions": 2}),
    ):
        with pytest.raises(dpf.ParameterError, match=r"which does not add.*dataset with unit="):
            ask(dataset, **options)
    with pytest.raises(dpf.ParameterError, match="which does not add up"):
        dpf.sanitize(people[["sex"]], epsilon=1.0, delta=0, spaces={"sex": ["F", "M"]}, ledger=ledger, dataset="added")
    assert ledger.summary()["unit"].tolist() == ["row", "add_remove row"]


WRONG = [
    (lambda q: q.mean("age", by="income", share=0.1), "by needs a public list of groups, which column income does not"),
    (lambda q: q.mean("age", by="hobbies", share=0.1), "by needs a public list of groups, which column hobbies does"),
    (lambda q: q.mean("age", by="height", share=0.1), "'height' is not a column"),
    (lambda q: q.mean("age", where={"height": 1}, share=0.1), "'height' is not a column"),
    (lambda q: q.mean("age", by="sex", share=0.1, mechanism="staircase"), "staircase is for an answer of one number"),
    (lambda q: q.quantile("age", by="sex", share=0.1, mechanism="geometric"), "mechanism must be one of exponential"),
    (lambda q: q.quantile("age", share=0.1, mechanism="gumbel"), "mechanism must be one of .*, exponential, noisy_max"),
    (lambda q: q.most_common("region", 1, share=0.1, mechanism=["geometric"]), "mechanism must .*, noisy_max, or None"),
    (lambda q: q.count(share=0.1), "where is needed"),
    (lambda q: q.crosstab("sex", "sex", share=0.1), "index and columns must be two columns"),
    (lambda q: q.crosstab("sex", "age", bins={"region": 3}, share=0.1), "index and columns must be two columns"),
    (lambda q: q.crosstab("income", "age", bins={"income": 60_000, "age": 121}, share=0.1), "bins give more than"),
    (lambda q: q.mean("hobbies", share=0.1), "column hobbies holds no numbers, which mean needs"),
    (lambda q: q.histogram("hobbies", share=0.1), "column 'hobbies' holds sets"),
    (lambda q: q.support("sex", share=0.1), "column sex holds no sets, which support needs"),
    (lambda q: q.set_sizes("sex", share=0.1), "column sex holds no sets, which set_sizes needs"),
    (lambda q: q.nunique("age", share=0.1), "column age holds no categories and no sets, whose values nunique counts"),
    (lambda q: q.most_common("hobbies", 99, share=0.1), "k must be a whole number of values, from 1 to 24"),
    (lambda q: q.count({"hobbies": {"any": ["SECRET"]}}, share=0.1), "must name declared items"),
    (lambda q: q.count({"hobbies": ["reading"]}, share=0.1), "column 'hobbies' holds sets: where takes"),
    (
        lambda q: q.second_moments(["age"], where=WHERE, share=0.1, mechanism="wishart"),
        "wishart noise is for all rows, whose number is public",
    ),
]


@pytest.mark.parametrize(("ask", "rule"), WRONG)
def test_what_is_refused_costs_nothing(people, ask, rule):
    q = dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES)
    with pytest.raises(dpf.ParameterError, match=rule):
        ask(q)
    assert q.left == 1.0


def test_neighbours_that_are_unknown(people):
    with pytest.raises(dpf.ParameterError, match="neighbours must be one of replace_one, add_remove"):
        dpf.Queries(people, 1.0, spaces=SPACES, neighbours="bounded")


@pytest.mark.slow
def test_a_median_errs_less_than_the_cells_of_counts_are_wide(keys):
    """30 answers at fixed keys on a grid of 65,536 steps: a 4,096th of the range is 244.

    A coverage of 95 % at least is missed by 5 sd with a chance below 1e-6.
    """
    wide = pd.DataFrame({"x": np.random.default_rng(1).normal(400_000, 20_000, 20_000).round()})
    truth = wide["x"].median()
    for delta in (0, 1e-6):
        q = dpf.Queries(wide, 30.0, delta=delta, spaces={"x": dpf.Real(0, 1_000_000)}, accounting="basic")
        answers = pd.DataFrame([q.quantile("x", share=1 / 30) for _ in range(30)])
        assert answers["estimate"].sub(truth).abs().mean() < 30
        inside = (answers["lower"] <= truth) & (truth <= answers["upper"])
        assert inside.mean() > 0.95 - 5 * math.sqrt(0.95 * 0.05 / 30)


@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.slow
def test_the_way_that_errs_less_is_taken(people, keys, delta):
    """All counts for categories, of which a row has one; a choice for one item of sets, of which it has many.

    Of one quantile, a search where Gaussian noise is to be had, else a choice; of many quantiles, counts for all.
    """
    q = dpf.Queries(people, 1.0, delta=delta, spaces=SPACES)
    ways = {"exponential", "noisy_max"}
    assert q.most_common("region", 2, share=0.1).attrs["mechanism"] not in ways
    one, many = q.most_common("hobbies", 1, share=0.1), q.most_common("hobbies", 12, share=0.1)
    assert one.attrs["mechanism"] in ways
    assert many.attrs["mechanism"] not in ways
    counted = q.most_common("hobbies", 1, share=0.1, mechanism="geometric")
    assert one["std_error"].iloc[0] < counted["std_error"].iloc[0] / 2
    assert (q.quantile("age", share=0.1).attrs["mechanism"] in ways) == (delta == 0)
    many = q.quantile("age", [i / 40 for i in range(1, 40)], share=0.1).attrs["mechanism"]
    assert many == ("gaussian" if delta else "geometric")
