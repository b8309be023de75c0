"""Questions with noise on the answers: right numbers, honest intervals, and a budget that is spent before noise."""

import copy
import math
import pickle
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from checks import refused
from scipy import stats

import dpframe as dpf

SPACES = {
    "age": (0, 120),
    "sex": ["F", "M"],
    "income": dpf.Nullable(dpf.Real(0, 250_000)),
    "region": list(dpf.datasets.REGIONS),
    "birth_date": ("1900-01-01", "2030-01-01"),
}
STATED = {"neighbours": "replace_one"}
MANY = 1e4
"""An ε at which noise is next to none."""


@pytest.fixture(scope="module")
def people():
    return dpf.datasets.make_census(20_000, random_state=3, columns=["age", "sex", "income", "region", "birth_date"])


def asks(share=0.1):
    """Every kind of question."""
    return {
        "count": lambda q: q.count({"sex": "F", "age": (18, 65)}, share=share),
        "sum": lambda q: q.sum("age", share=share),
        "mean": lambda q: q.mean("income", share=share),
        "histogram": lambda q: q.histogram("age", 6, share=share),
        "most_common": lambda q: q.most_common("region", 3, share=share),
        "quantile": lambda q: q.quantile("age", [0.1, 0.5], share=share),
        "second_moments": lambda q: q.second_moments(["age"], share=share),
        "cov": lambda q: q.covariance(["age"], share=share),
    }


@pytest.mark.filterwarnings("ignore:epsilon=")
def test_without_noise_answers_are_pandas_own(people):
    q = dpf.Queries(people, MANY, delta=0, spaces={**SPACES, "flag": (0, 1)} if "flag" in people else SPACES)
    near = {"rel": 1e-3}
    assert (
        q.count({"sex": "F", "age": (18, 65)}, share=0.05)["estimate"]
        == ((people["sex"] == "F") & people["age"].between(18, 65)).sum()
    )
    assert q.count({"income": None}, share=0.05)["estimate"] == people["income"].isna().sum()
    assert (
        q.count({"region": {"not": [dpf.datasets.REGIONS[0]]}}, share=0.05)["estimate"]
        == (people["region"] != dpf.datasets.REGIONS[0]).sum()
    )
    clamped = people["income"].clip(0, 250_000)
    assert q.mean("age", share=0.05)["estimate"] == pytest.approx(people["age"].mean(), **near)
    assert q.sum("age", share=0.05)["estimate"] == pytest.approx(people["age"].sum(), **near)
    assert q.mean("income", share=0.05)["estimate"] == pytest.approx(clamped.mean(), **near)
    assert q.sum("income", share=0.05)["estimate"] == pytest.approx(clamped.sum(), **near)
    assert q.quantile("age", 0.3, share=0.05)["estimate"] == pytest.approx(people["age"].quantile(0.3), abs=1)
    assert q.quantile("income", 0.9, share=0.05)["estimate"] == pytest.approx(clamped.quantile(0.9), rel=0.01)
    counts = people["region"].value_counts()
    assert q.most_common("region", 2, share=0.05)["estimate"].to_dict() == counts.head(2).to_dict()
    table = q.histogram("age", [0, 18, 65, 120], share=0.05)
    cut = pd.cut(people["age"], [0, 18, 65, 121], right=False).value_counts(sort=False)
    assert table["estimate"].tolist() == cut.tolist()
    income = q.histogram("income", 4, share=0.05)["estimate"]
    assert income.iloc[-1] == people["income"].isna().sum()
    mean = q.mean("birth_date", share=0.05)["estimate"]
    assert abs(mean - people["birth_date"].mean()) < pd.Timedelta(days=10)
    assert q.left == pytest.approx(0.35)


@pytest.mark.filterwarnings("ignore:epsilon=")
def test_moments_are_those_of_numpy(people):
    imputed = people["income"].clip(0, 250_000).fillna(125_000)
    frame = pd.DataFrame({"age": people["age"], "income": imputed, "old": people["age"] > 60})
    q = dpf.Queries(
        frame, MANY, delta=0, spaces={"age": (0, 120), "income": dpf.Real(0, 250_000), "old": dpf.Boolean()}
    )
    found = q.covariance(["age", "income", "old"], share=0.5)["estimate"].to_numpy()
    plain = frame.astype(float)
    assert found == pytest.approx(np.cov(plain.T, bias=True), rel=5e-3, abs=1e-3)
    products = q.second_moments(["age", "income", "old"], share=0.5)["estimate"].to_numpy()
    assert products == pytest.approx((plain.T @ plain / len(plain)).to_numpy(), rel=1e-3)


def test_a_covariance_has_no_negative_eigenvalues(keys):
    frame = pd.DataFrame({"a": [1] * 20, "b": [2] * 20})
    spaces = {"a": (0, 9), "b": (0, 9)}
    raw = dpf.Queries(frame, 0.5, delta=0, spaces=spaces).covariance(["a", "b"], share=1, psd=False)
    keys.clear()
    projected = dpf.Queries(frame, 0.5, delta=0, spaces=spaces).covariance(["a", "b"], share=1)
    assert np.linalg.eigvalsh(raw["estimate"]).min() < 0
    assert np.linalg.eigvalsh(projected["estimate"]).min() > -1e-9
    assert (raw["lower"] == projected["lower"]).all(axis=None)


def test_the_lectures_average_age(keys):
    """100 people, ages in [0, 150]: sensitivity 150/100 = 1.5, Laplace noise of scale 1.5/ε."""
    ages = pd.DataFrame({"age": np.arange(100)})
    for epsilon in (0.5, 1.0, 2.0):
        answer = dpf.Queries(ages, epsilon, delta=0, spaces={"age": (0, 150)}).mean("age", share=1)
        assert answer["std_error"] == pytest.approx(math.sqrt(2) * 1.5 / epsilon, rel=1e-3)
        assert answer.attrs == {"mechanism": "geometric", "share": 1.0, "epsilon": epsilon, "delta": 0.0} | STATED | {
            "outside": "bound"
        }
        assert list(answer.index) == ["estimate", "std_error", "lower", "upper"]


@pytest.mark.walk(1)
@pytest.mark.parametrize("mechanism", ["geometric", "gaussian", "staircase"])
@pytest.mark.parametrize("kind", ["count", "mean", "mean with nulls", "sum with nulls"])
def test_intervals_hold_the_table_as_often_as_they_say(people, keys, kind, mechanism):
    """200 answers at fixed keys; fewer than 94 % of 95 % intervals, less 5 sd of a binomial, has a chance of 1e-6."""
    few = people.head(3_000)
    spaces = {**SPACES, "income": dpf.Nullable(dpf.Real(0, 250_000, 1_000))}
    q = dpf.Queries(few, 1.0, delta=1e-6, spaces=spaces, accounting="basic")
    income = dpf.Nullable(dpf.Real(0, 250_000, 1_000)).numbers(
        dpf.Nullable(dpf.Real(0, 250_000, 1_000)).encode(few["income"])
    )[few["income"].notna()]
    truth = {
        "count": (few["sex"] == "F").sum(),
        "mean": few["age"].mean(),
        "mean with nulls": income.mean(),
        "sum with nulls": income.sum(),
    }[kind]
    ask = {
        "count": lambda: q.count({"sex": "F"}, share=0.002, mechanism=mechanism),
        "mean": lambda: q.mean("age", share=0.002, mechanism=mechanism),
        "mean with nulls": lambda: q.mean("income", share=0.002, mechanism=mechanism),
        "sum with nulls": lambda: q.sum("income", share=0.002, mechanism=mechanism),
    }[kind]
    answers = pd.DataFrame([ask() for _ in range(200)])
    inside = (answers["lower"] <= truth) & (truth <= answers["upper"])
    assert inside.mean() > 0.94 - 5 * math.sqrt(0.95 * 0.05 / 200)
    if kind in ("count", "mean"):  # unbiased, and the error is the noise's: five sd each
        assert abs(answers["estimate"].mean() - truth) < 5 * answers["std_error"].mean() / math.sqrt(200)
        assert answers["estimate"].std() == pytest.approx(answers["std_error"].mean(), rel=0.35)


@pytest.mark.walk(1)
@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.slow
def test_intervals_of_quantiles_hold_them(people, keys, delta):
    """200 answers at fixed keys: a coverage of 95 % at least is missed by 5 sd with a chance below 1e-6."""
    few = people.head(2_000)
    q, levels = dpf.Queries(few, 15.0, delta=delta, spaces=SPACES), [0.2, 0.5, 0.9]
    truth = np.sort(few["age"])[[math.ceil(level * len(few)) - 1 for level in levels]]
    answers = [q.quantile("age", levels, share=0.005) for _ in range(200)]
    inside = np.array([(a["lower"] <= truth) & (truth <= a["upper"]) for a in answers])
    assert (inside.mean(axis=0) > 0.95 - 5 * math.sqrt(0.95 * 0.05 / 200)).all()
    assert np.mean([a["upper"] - a["lower"] for a in answers]) < 100


@pytest.mark.slow
@pytest.mark.parametrize("accounting", ["basic", "gaussian"])
def test_shares_add_up_to_the_budget_and_no_further(people, keys, accounting):
    q = dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES, accounting=accounting)
    for _ in range(10):  # ten tenths, of which floats make less than 1
        answer = q.count({"sex": "F"}, share=0.1)
    assert (q.left, q.spent, q.remaining) == (0.0, q.spent, type(q.spent)(0.0, 0.0))
    assert q.spent.epsilon == 1.0
    assert len(keys) == 10
    with pytest.raises(dpf.BudgetExceeded, match=r"share=0 left of their.*share=1e-09 was asked"):
        q.count({"sex": "F"}, share=1e-9)
    assert len(keys) == 10
    # Noise of a tenth: three times that of nine tenths where μ² adds up, nine times where ε does.
    fresh = dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES, accounting=accounting)
    ratio = answer["std_error"] / fresh.count({"sex": "F"}, share=0.9)["std_error"]
    assert ratio == pytest.approx({"basic": 9, "gaussian": 3}[accounting], rel=0.06)


def test_all_of_the_budget_for_one_answer_is_not_added_up(people, keys, tmp_path):
    """Pure noise at ε = 1, and not at the 0.19 that a step of (1, 1e-6) pays for; a ledger adds answers up."""
    told = {"delta": 1e-6, "spaces": SPACES}
    answers = [dpf.Queries(people, 1.0, **told).count({"sex": "F"}, share=share) for share in (1, 0.999)]
    assert answers[0]["std_error"] == pytest.approx(math.sqrt(2 * math.exp(-1)) / -math.expm1(-1))
    assert answers[1]["std_error"] > 2.5 * answers[0]["std_error"]
    assert (answers[0].attrs["mechanism"], answers[0].attrs["epsilon"], answers[0].attrs["delta"]) == (
        "geometric",
        1.0,
        0.0,
    )
    q = dpf.Queries(people, 1.0, **told)
    q.quantile("age", 0.5, share=1)
    assert (q.left, q.spent.epsilon, q.spent.delta) == (0.0, 1.0, 1e-6)
    dpf.Ledger(tmp_path / "ledger.sqlite").create("people", 1.0, 1e-6)
    entered = dpf.Queries(people, 1.0, **told, ledger=tmp_path / "ledger.sqlite", dataset="people")
    assert entered.count({"sex": "F"}, share=1)["std_error"] > 2.5 * answers[0]["std_error"]
    whole, part = (
        dpf.Queries(people, 1.0, **told).select(
            [1, 2], lambda rows, c: float(c), sensitivity=1, columns=["age"], share=share
        )
        for share in (1, 0.99)
    )
    assert whole["shortfall"] < part["shortfall"] / 2


@pytest.mark.parametrize("name", asks())
def test_a_question_that_asks_too_much_reads_and_draws_nothing(people, keys, monkeypatch, name):
    spaces = {**SPACES, "income": dpf.Nullable(dpf.Real(0, 250_000))}
    q = dpf.Queries(people, 1.0, delta=1e-6, spaces=spaces)
    q.sum("age", share=0.95)
    assert len(keys) == 1
    for kind in (dpf.Integer, dpf.Categorical, dpf.Nullable):
        monkeypatch.setattr(kind, "encode", lambda *_, **__: pytest.fail("the table was read"))
    with pytest.raises(dpf.BudgetExceeded, match="nothing was spent and nothing was drawn"):
        asks()[name](q)
    assert (len(keys), q.left) == (1, 0.05)
    q = dpf.Queries(people, 1.0, delta=1e-6, spaces=spaces)
    with pytest.raises(pytest.fail.Exception, match="the table was read"):  # by one that asks for less
        asks()[name](q)


def test_the_quieter_mechanism_is_taken(people, keys):
    curved = dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES)
    basic = dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES, accounting="basic")
    assert curved.mean("age", share=0.1).attrs["mechanism"] == "gaussian"
    assert basic.mean("age", share=0.1).attrs["mechanism"] == "geometric"
    for q in (curved, basic):
        told = q.mean("age", share=0.1).drop(["estimate", "lower", "upper"])
        for name in ("geometric", "gaussian"):
            assert q.mean("age", share=0.1, mechanism=name)["std_error"] >= told["std_error"]


def test_staircase_beside_geometric(people, keys):
    q = dpf.Queries(people, 8.0, delta=0, spaces=SPACES, confidence_level=0.5)
    stair, laplace = (q.sum("age", share=0.5, mechanism=name) for name in ("staircase", "laplace"))
    assert stair["upper"] - stair["lower"] < laplace["upper"] - laplace["lower"]
    squares = dpf.Queries(people, 8.0, delta=0, spaces=SPACES).sum("age", share=0.5, mechanism="staircase_squares")
    assert squares["std_error"] == pytest.approx(0.944 * stair["std_error"], rel=0.01)
    assert squares.attrs["epsilon"] == stair.attrs["epsilon"]


@pytest.mark.slow
def test_contributions_multiply_the_noise(people, keys):
    for delta in (0, 1e-6):
        one, four = (
            dpf.Queries(people, 1.0, delta=delta, spaces=SPACES, contributions=k).histogram("sex", share=1)["std_error"]
            for k in (1, 4)
        )
        assert (four / one).tolist() == pytest.approx([4, 4], rel=0.02)


def test_the_ledger_has_the_answer_before_noise_is_drawn(people, tmp_path, stopped_at_the_key):
    for accounting in ("basic", "gaussian"):
        ledger = dpf.Ledger(tmp_path / f"{accounting}.sqlite")
        ledger.create("survey", 1.0, 1e-5, accounting=accounting)
        q = dpf.Queries(people, 0.5, delta=1e-6, spaces=SPACES, ledger=ledger, dataset="survey")
        q.count({"sex": "F"}, share=0.2)
        q.mean("age", share=0.2, mechanism="geometric")
        history = ledger.history("survey")
        assert history["what"].tolist() == ["query: count", "query: mean"]
        assert (history["epsilon"] > 0).all()
        # Gaussian noise of the whole has δ(0.5) just below 1e-6, the rest of which is slack (Dong, Roth, Su: eq. 6).
        for mu in history["mu"] / math.sqrt(0.2):
            delta = stats.norm.cdf(mu / 2 - 0.5 / mu) - math.exp(0.5) * stats.norm.cdf(-mu / 2 - 0.5 / mu)
            assert 0.9e-6 < delta <= 1e-6

        with stopped_at_the_key(), pytest.raises(KeyboardInterrupt):
            q.count({"sex": "F"}, share=0.2)
        assert len(ledger.history("survey")) == 3
        assert q.left == pytest.approx(0.4)


def test_a_ledger_that_refuses_costs_nothing(people, keys, tmp_path):
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 0.3)
    q = dpf.Queries(people, 1.0, delta=0, spaces=SPACES, ledger=ledger, dataset="survey")
    for _ in range(3):
        q.count({"sex": "F"}, share=0.1)
    with pytest.raises(dpf.BudgetExceeded, match="dataset survey has epsilon=0"):
        q.count({"sex": "F"}, share=0.1)
    assert (len(keys), q.left, len(ledger.history())) == (3, 0.7, 3)


def test_parts_are_spent_from(people, keys, tmp_path):
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1.0, parts=("north", "south"))
    for part, first in (("north", 0), ("south", 1)):
        q = dpf.Queries(people[first::2], 0.8, delta=0, spaces=SPACES, ledger=ledger.account("survey", part))
        q.count({"sex": "F"}, share=1)
    assert ledger.spent("survey").epsilon == 0.8


def test_every_kind_of_table_gives_the_same_answers(people, keys, tmp_path):
    people = people.drop(columns="birth_date")
    spaces = {name: SPACES[name] for name in people}
    people.to_parquet(tmp_path / "people.parquet", index=False)
    tables = [people, pa.Table.from_pandas(people, preserve_index=False), tmp_path / "people.parquet"]
    tables.append(people.astype({"sex": object, "region": object}))
    answers = []
    for table in tables:
        keys.clear()
        q = dpf.Queries(table, 1.0, delta=1e-6, spaces=spaces)
        answers.append([ask(q) for ask in asks().values()])
    for others in answers[1:]:
        for mine, theirs in zip(answers[0], others, strict=True):
            assert mine.to_numpy().tolist() == theirs.to_numpy().tolist()


def test_no_two_answers_share_their_noise(people, keys):
    # The noise is 12,000 units wide: under random keys 20 answers have two alike by chance once in 250 runs.
    q = dpf.Queries(people, 1.0, delta=0, spaces=SPACES)
    found = {q.sum("age", share=0.01)["estimate"] for _ in range(20)}
    assert len(found) == 20


NULLS = pd.DataFrame(
    {
        "x": [None, 3.0, np.inf, -np.inf, 1e308, np.nan],
        "s": ["a", "b", None, "a", "SECRET", "zz"],
        "o": [1, "SECRET", None, 2.5, (), 9],
        "t": pd.to_datetime(["2020-01-02", None, "1700-01-01", "2200-01-01", "2020-01-03", None]),
    }
)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.filterwarnings("ignore:epsilon=")
def test_no_value_is_refused(wrapped, keys):
    """Nulls, infinities, unknown categories and objects of any kind are all counted by the public rule."""

    def around(space):
        return dpf.Nullable(space) if wrapped else space

    spaces = {
        "x": around(dpf.Integer(0, 10)),
        "s": around(dpf.Categorical(["a", "b"])),
        "o": around(dpf.Integer(0, 10)),
        "t": around(dpf.Datetime("2020-01-01", "2020-01-05", "D")),
    }
    for frame in (NULLS, pa.Table.from_pandas(NULLS.drop(columns="o")), NULLS.astype({"s": "category"})):
        names = frame.column_names if isinstance(frame, pa.Table) else frame.columns
        q = dpf.Queries(frame, MANY, delta=0, spaces={name: spaces[name] for name in names})
        present = [3, 10, 0, 10]
        values = present if wrapped else [*present, 5, 5]
        assert q.mean("x", share=0.1)["estimate"] == pytest.approx(np.mean(values), abs=0.05)
        assert q.sum("x", share=0.1)["estimate"] == pytest.approx(np.sum(values), abs=0.2)
        assert q.count({"s": "a"}, share=0.1)["estimate"] == 2
        assert q.count({"s": {"not": "a"}}, share=0.1)["estimate"] == 1
        table = q.histogram("s", share=0.1)["estimate"]
        assert table.tolist() == ([2, 1, 3] if wrapped else [2, 1])
        assert q.quantile("x", 0.99, share=0.1)["estimate"] == 10
        q.mean("t", share=0.1)
        if "o" in names:
            assert q.count({"o": (0, 10)}, share=0.05)["estimate"] == 3


@pytest.mark.slow
def test_all_null_columns_and_single_values(keys):
    frame = pd.DataFrame({"x": [None] * 50, "c": [None] * 50})
    for space in ((0, 10), dpf.Nullable(dpf.Integer(0, 10))):
        q = dpf.Queries(frame, 1.0, delta=1e-6, spaces={"x": space, "c": ["a", "b"]})
        for answer in (q.mean("x", share=0.1), q.sum("x", share=0.1), q.quantile("x", share=0.1)):
            assert np.isfinite(answer.to_numpy()).all()
        assert abs(q.histogram("c", share=0.3)["estimate"]).max() < 200
    one = dpf.Queries(frame, 1.0, delta=0, spaces={"c": ["only"]})
    assert one.histogram("c", share=0.5).shape == (1, 4)
    assert one.count({"c": "only"}, share=0.5)["estimate"] < 100


def test_what_is_refused_costs_nothing(people, keys, tmp_path):
    q = dpf.Queries(people, 1.0, delta=1e-6, spaces={k: v for k, v in SPACES.items() if k != "region"})
    wrong = [
        (lambda: q.mean("region", share=0.1), r"column region has no space.*pass spaces=\{'region': \[CATEGORY, …\]\}"),
        (lambda: q.mean("sex", share=0.1), "column sex holds no numbers, which mean needs"),
        (lambda: q.quantile("sex", share=0.1), "column sex holds no numbers, which quantile needs"),
        (lambda: q.covariance(["age", "sex"], share=0.1), "column sex holds no numbers, which covariance needs"),
        (lambda: q.sum("birth_date", share=0.1), "column birth_date holds times, which have no sum"),
        (lambda: q.mean("height", share=0.1), "'height' is not a column of the table; columns are age"),
        (lambda: q.mean(3, share=0.1), "a column is named by text, and int was given"),
        (lambda: q.count({}, share=0.1), "where must name at least one column"),
        (lambda: q.count({"height": 3}, share=0.1), "'height' is not a column"),
        (lambda: q.count({"sex": "X"}, share=0.1), "names a value that is not one of its values"),
        (lambda: q.count({"age": (70, 20)}, share=0.1), r"must be \(low, high\) in order"),
        (lambda: q.count({"age": {"odd": 1}}, share=0.1), "where of column 'age' must be one of"),
        (lambda: q.histogram("age", 0, share=0.1), "bins must be from 1 to"),
        (lambda: q.histogram("sex", 3, share=0.1), "holds no numbers and takes no bins"),
        (lambda: q.most_common("age", share=0.1), "column age holds no categories"),
        (lambda: q.most_common("sex", 3, share=0.1), "k must be a whole number of values, from 1 to 2"),
        (lambda: q.quantile("age", 1.0, share=0.1), r"q must lie in \(0, 1\)"),
        (lambda: q.quantile("age", "a", share=0.1), r"q must lie in \(0, 1\)"),
        (lambda: q.covariance([], share=0.1), "columns must name one column or more"),
        (lambda: q.covariance(["age", "age"], share=0.1), "columns must name one column or more, each once"),
        (lambda: q.covariance(["income"], share=0.1), "column income may hold nulls"),
        (lambda: q.covariance(["age"], share=0.1, psd=3), "psd must be True or False"),
        (lambda: q.mean("age", share=0.1, mechanism="exact"), "mechanism must be one of gaussian, geometric"),
        (lambda: q.histogram("sex", share=0.1, mechanism="staircase"), "staircase is for an answer of one number"),
        (lambda: q.mean("age", share=0), r"share must lie in \(0, 1\]"),
        (lambda: q.mean("age", share=math.nan), r"share must lie in \(0, 1\]"),
        (lambda: q.mean("age", share=True), r"share must lie in \(0, 1\]"),
        (lambda: q.mean("age", share="all"), r"share must lie in \(0, 1\]"),
    ]
    for ask, rule in wrong:
        refused(dpf.ParameterError, rule, ask)
    assert (len(keys), q.left) == (0, 1.0)
    pure = dpf.Queries(people, 1.0, delta=0, spaces=SPACES)
    with pytest.raises(dpf.ParameterError, match="gaussian needs delta above 0"):
        pure.mean("age", share=0.1, mechanism="gaussian")
    assert pure.left == 1.0


def test_tables_and_budgets_that_are_refused(people, tmp_path):
    made = [
        (lambda: dpf.Queries(people, math.nan, spaces=SPACES), "epsilon must be finite and above 0"),
        (lambda: dpf.Queries(people, 1.0, delta=2.0, spaces=SPACES), r"delta must lie in \[0, 1\)"),
        (lambda: dpf.Queries(people, dpf.Budget(1.0), delta=0.1, spaces=SPACES), "delta is already in the Budget"),
        (lambda: dpf.Queries(people, spaces=SPACES), "give a budget"),
        (lambda: dpf.Queries(people, 1.0, SPACES, epsilon=1.0), r"give a budget, .* and not both"),
        (lambda: dpf.Queries(people.head(0), 1.0, spaces=SPACES), "the table has no rows"),
        (lambda: dpf.Queries(people, 1.0, spaces={"height": (0, 1)}), "spaces names 'height', which is not a column"),
        (lambda: dpf.Queries(people, 1.0, spaces=["age"]), "spaces must be a mapping"),
        (lambda: dpf.Queries(people, 1.0, delta=0, spaces=SPACES, accounting="gaussian"), "needs a delta above 0"),
        (lambda: dpf.Queries(people, 1.0, spaces=SPACES, accounting="both"), "accounting must be"),
        (lambda: dpf.Queries(people, 1.0, spaces=SPACES, contributions=0), "contributions must be a whole number"),
        (lambda: dpf.Queries(people, 1.0, spaces=SPACES, confidence_level=95), "confidence_level must lie in"),
        (lambda: dpf.Queries(people, 1.0, spaces=SPACES, ledger="x.sqlite"), "ledger and dataset go together"),
        (lambda: dpf.Queries(3, 1.0, spaces=SPACES), "int is no table"),
    ]
    for make, rule in made:
        with pytest.raises(dpf.ParameterError, match=rule):
            make()
    safe = dpf.sanitize(people[["sex"]], epsilon=1.0, spaces={"sex": ["F", "M"]})
    with pytest.raises(dpf.errors.AlreadySanitizedError, match="the table is a release"):
        dpf.Queries(safe, 1.0)
    with pytest.warns(dpf.DpframeWarning, match="above 1/n"):
        dpf.Queries(people, 1.0, delta=0.01, spaces=SPACES)
    with pytest.raises(dpf.ColumnError, match="column 'age'"):
        dpf.Queries(people, 1.0, spaces={"age": dpf.Boolean()}).mean("age", share=0.1)


def test_vectors_and_tuples_are_refused():
    frame = pd.DataFrame({"v": [[0.5, 0.0], [0.0, 0.5]]})
    q = dpf.Queries(frame, 1.0, delta=0, spaces={"v": dpf.Vector(2, 1.0, "l1")})
    with pytest.raises(dpf.ParameterError, match=r"column v holds vectors,.*do not count"):
        q.histogram("v", share=0.1)


def test_copies_share_the_budget_and_threads_do_not_overspend(people, keys):
    q = dpf.Queries(people.head(100), 1.0, delta=0, spaces=SPACES)
    copy.copy(q).count({"sex": "F"}, share=0.5)
    assert q.left == 0.5
    for duplicate in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"^Queries cannot be pickled or copied in depth: .* ledger="):
            duplicate(q)
    refused = []

    def ask():
        try:
            q.count({"sex": "F"}, share=0.1)
        except dpf.BudgetExceeded:
            refused.append(1)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(refused), q.left) == (7, 0.0)


FORKED = """
import os
import dpframe as dpf

q = dpf.Queries(dpf.datasets.make_census(100, columns=["sex"]), 1.0, delta=0, spaces={"sex": ["F", "M"]})
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    q.count({"sex": "F"}, share=1.0)
    print(q.left)
else:
    try:
        q.count({"sex": "F"}, share=1.0)
    except dpf.BudgetExceeded as error:
        os._exit(int("this process was forked" not in str(error)))
    os._exit(2)
"""


@pytest.mark.slow
def test_a_forked_process_does_not_spend_the_budget_again():
    assert subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True).stdout == "0.0\n"


@pytest.mark.slow
def test_several_rows_a_person_with_delta_added_up():
    """Gaussian noise that several rows a person move in several cells has a step whose slack its tables fit in."""
    frame = pd.DataFrame({"x": np.arange(1_000) % 100})
    q = dpf.Queries(frame, 1.0, delta=1e-6, spaces={"x": (0, 100)}, contributions=2, accounting="basic")
    assert len(q.histogram("x", 4, share=0.5)) == 4
    assert q.quantile("x", share=0.5)["estimate"] == pytest.approx(50, abs=15)


def test_bounds_too_wide_for_squares_are_refused_before_they_are_paid():
    q = dpf.Queries(pd.DataFrame({"f": [1.0, 2.0]}), 1.0, delta=0, spaces={"f": (0.0, 1e300)})
    with pytest.raises(dpf.ParameterError, match=r"bounds too wide to.*declare bounds within"):
        q.second_moments(["f"], share=0.5)
    assert q.left == 1
    with pytest.raises(dpf.ParameterError, match="share must lie in"):
        q.mean("f", share="0.1")


def test_what_no_question_answers_is_named():
    q = dpf.Queries(pd.DataFrame({"age": [20, 30]}), 1.0, delta=0, spaces={"age": (0, 90)})
    for name, said in (
        ("std", "'std': covariance and second_moments"),
        ("null_rate", r"'null_rate': count\(\{\"column\": None\}\)"),
        ("quantil", r"'quantil': did you mean 'quantile'\?"),
        ("xyz", "Queries has no 'xyz'$"),
    ):
        with pytest.raises(AttributeError, match=said):
            getattr(q, name)
    assert not hasattr(q, "_repr_html_")
