"""Regressions of a raw table: what intervals hold, what is charged, and what is refused."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from checks import refused
from commands import dpframe
from scipy import optimize

import dpframe as dpf
from dpframe.errors import BudgetExceeded, ParameterError

N = 3_000
SPACES = {"age": (20, 80), "ward": ["A", "B", "C"], "visits": (0, 30), "smoker": dpf.Boolean(), "flat": [7]}


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(5)
    age, ward, smoker = rng.integers(20, 81, N), rng.integers(0, 3, N), rng.random(N) < 0.3
    visits = np.clip(np.rint(4 + 0.2 * (age - 20) + 3 * (ward == 1) + 4 * smoker + rng.normal(0, 2, N)), 0, 30)
    return pd.DataFrame(
        {"age": age, "ward": np.array(["A", "B", "C"])[ward], "visits": visits.astype(int), "smoker": smoker, "flat": 7}
    )


def ridge_fit(people, family, penalty):
    """The ridge coefficients of age, ward and smoker, or ward alone, by a solver that shares no line with ours."""
    half = 15.0 if family == "gaussian" else 1.0
    columns = [np.ones(N), (people["age"] - 50) / 30, people["ward"] == "B", people["ward"] == "C"]
    columns += [2 * people["smoker"] - 1] if family == "gaussian" else []
    x = np.column_stack(columns).astype(float) / math.sqrt(4 if family == "gaussian" else 3)
    y = (people["visits"] - 15) / 15 if family == "gaussian" else 2.0 * people["smoker"] - 1

    def objective(w):
        residual = x @ w - y
        huber = np.where(np.abs(residual) <= 1, residual**2 / 2, np.abs(residual) - 0.5)
        losses = huber if family == "gaussian" else np.logaddexp(0, -y * (x @ w))
        return losses.mean() + penalty / 2 * w @ w

    w = optimize.minimize(objective, np.zeros(x.shape[1]), tol=1e-12).x / math.sqrt(4 if family == "gaussian" else 3)
    age = half * w[1] / 30
    found = {"age": age, "C(ward)[B]": half * w[2], "C(ward)[C]": half * w[3]}
    if family == "binomial":
        return pd.Series({"Intercept": w[0] - 50 * age, **found})
    return pd.Series({"Intercept": 15 + half * (w[0] - w[4]) - 50 * age, **found, "smoker": 2 * half * w[4]})


FORMULAS = {"gaussian": "visits ~ age + C(ward) + smoker", "binomial": "smoker ~ age + ward"}


@pytest.mark.walk(1)
@pytest.mark.parametrize("family", FORMULAS)
def test_intervals_hold_the_ridge_coefficients_as_often_as_they_say(people, family):
    """100 answers at fixed keys: shares within five standard deviations of a binomial."""
    truth = ridge_fit(people, family, 0.05)
    q = dpf.Queries(people, 30.0, delta=1e-4, spaces=SPACES, accounting="basic")
    answers = [q.regress(FORMULAS[family], family=family, penalty=0.05, share=0.01) for _ in range(100)]
    assert answers[0].index.tolist() == truth.index.tolist()
    held = np.array([((a["lower"] <= truth) & (truth <= a["upper"])).to_numpy() for a in answers])
    assert abs(held.mean(axis=0) - 0.95).max() < 5 * math.sqrt(0.95 * 0.05 / 100)
    z = np.array([((a["estimate"] - truth) / a["std_error"]).to_numpy() for a in answers])
    assert z.std(axis=0) == pytest.approx(np.ones(len(truth)), rel=0.36)
    assert abs(z.mean(axis=0)).max() < 5 / math.sqrt(100)


@pytest.mark.walk(1)
@pytest.mark.parametrize("family", FORMULAS)
def test_intervals_without_a_penalty_are_nearly_as_good(people, family):
    """100 answers at fixed keys, of the plain coefficients: .90 less four standard deviations of a binomial."""
    truth = ridge_fit(people, family, 0.0)
    q = dpf.Queries(people, 100.0, delta=1e-4, spaces=SPACES, accounting="basic")
    answers = [q.regress(FORMULAS[family], family=family, share=0.01) for _ in range(100)]
    held = np.array([((a["lower"] <= truth) & (truth <= a["upper"])).to_numpy() for a in answers])
    assert held.mean(axis=0).min() > 0.90 - 4 * math.sqrt(0.9 * 0.1 / 100)
    z = np.array([((a["estimate"] - truth) / a["std_error"]).to_numpy() for a in answers])
    assert abs(z.mean(axis=0)).max() < 0.6
    assert answers[0].attrs["penalty"] is None


def test_a_rare_outcome(people):
    """An outcome of 3 % is far from the start: intercepts need the curvature there."""
    rng = np.random.default_rng(2)
    many = pd.DataFrame({"age": rng.integers(20, 81, 60_000)})
    many["smoker"] = rng.random(60_000) < 1 / (1 + np.exp(3.5 - (many["age"] - 50) / 30))
    q = dpf.Queries(many, 3.0, delta=1e-6, spaces={"age": (20, 80), "smoker": dpf.Boolean()})
    fit = q.regress("smoker ~ age", family="binomial", share=1)
    assert fit["estimate"].to_numpy() == pytest.approx([-3.5 - 50 / 30, 1 / 30], rel=0.15)


def test_beside_a_plain_fit(people):
    """Of 60,000 rows a penalty of 0.0005 shrinks least-squares slopes by less than a fifth, noise included."""
    many = pd.concat([people] * 20)
    x = np.column_stack([np.ones(N), people["age"], people["ward"] == "B", people["ward"] == "C", people["smoker"]])
    plain = np.linalg.lstsq(x.astype(float), people["visits"], rcond=None)[0]
    q = dpf.Queries(many, 10.0, delta=1e-6, spaces=SPACES)
    fit = q.regress(FORMULAS["gaussian"], penalty=5e-4, share=1)["estimate"]
    assert fit[["age", "C(ward)[B]", "smoker"]].to_numpy() == pytest.approx(plain[[1, 2, 4]], rel=0.2)


def test_noise_follows_the_sensitivity(people):
    def error(penalty=0.02, contributions=1, share=0.5):
        q = dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES, contributions=contributions)
        return q.regress("visits ~ age", penalty=penalty, share=share)["std_error"].to_numpy()

    assert error(penalty=0.002) == pytest.approx(10 * error(), rel=0.01)
    assert error(contributions=3) == pytest.approx(3 * error(), rel=0.01)
    assert error(share=0.125) == pytest.approx(2 * error(), rel=0.01)


def test_the_answer_is_charged_once_and_says_what_it_is(people, tmp_path):
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1.0, 1e-5)
    q = dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES, ledger=ledger, dataset="survey")
    fit = q.regress("visits ~ age", penalty=0.1, share=0.75)
    assert fit.attrs["formula"] == "visits ~ age"
    assert (fit.attrs["family"], fit.attrs["penalty"], fit.attrs["n"]) == ("gaussian", 0.1, N)
    assert (fit.attrs["mechanism"], fit.attrs["neighbours"], fit.attrs["outside"]) == (
        "gaussian",
        "replace_one",
        "bound",
    )
    assert ledger.history("survey")["what"].tolist() == ["query: regress"]
    with pytest.raises(BudgetExceeded):
        q.regress("visits ~ age", penalty=0.1, share=0.75)
    assert (q.left, len(ledger.history("survey"))) == (0.25, 1)


def test_leak_no_value_is_refused(people):
    """Nulls, infinities and values beyond the bounds: as the middle, the first category, or the bound."""
    odd = {"x": [1.0, np.nan, np.inf, -1e300, 5.0], "y": [0.0, 2.0, np.nan, 1.0, 9.0], "c": ["a", "b", "z", "b", None]}
    mended = {"x": [1.0, 2.0, 4.0, 0.0, 4.0], "y": [0.0, 2.0, 1.0, 1.0, 2.0], "c": list("ababa")}
    spaces = {"x": dpf.Real(0, 4), "y": dpf.Real(0, 2), "c": ["a", "b"]}
    fits = [
        dpf.Queries(pd.DataFrame(rows).sample(20_000, replace=True, random_state=1), 10, delta=1e-6, spaces=spaces)
        .regress("y ~ x + c", penalty=0.3, share=1)
        .estimate.to_numpy()
        for rows in (odd, mended)
    ]
    assert fits[0] == pytest.approx(fits[1], abs=2e-3)


def test_a_shell_and_a_file(people, tmp_path, capsys):
    people.to_parquet(tmp_path / "people.parquet")
    words = [
        "query",
        tmp_path / "people.parquet",
        "regress",
        "visits ~ age",
        "--penalty",
        "0.1",
        "--space",
        "age=20,80",
    ]
    with pytest.raises(SystemExit) as ended:
        dpframe(*words, "--space", "visits=0,30", "--epsilon", "1", "--delta", "1e-6")
    assert ended.value.code == 0
    assert "Intercept" in capsys.readouterr().out


REFUSALS = [
    ({"formula": "visits"}, "formula must be an outcome, ~ and columns with \\+ between"),
    ({"formula": "visits ~ age + age"}, "formula must name each column once on the right"),
    ({"formula": "visits ~ visits"}, "formula has visits on both sides"),
    ({"formula": "visits ~ height"}, "'height' is not a column of the table"),
    ({"formula": "visits ~ np.log(age)"}, "is not a column of the table"),
    ({"formula": "weight ~ age"}, "column weight has no space, which questions need"),
    ({"formula": "visits ~ weight"}, "column weight has no space, which questions need"),
    ({"formula": "visits ~ nothing"}, "column nothing may hold nulls, which no regression has"),
    ({"formula": "visits ~ gaps"}, "column gaps may hold nulls, which no regression has"),
    ({"formula": "visits ~ flat"}, "column flat has one value; leave it out"),
    ({"formula": "ward ~ age"}, "column ward holds no numbers, which regress needs"),
    ({"formula": "visits ~ age", "family": "binomial"}, "column visits has not two values"),
    ({"family": "poisson"}, "family must be one of gaussian, binomial"),
    ({"penalty": 0.0}, "penalty must be a number from 1e-06 to 1000, e.g. penalty=0.7, or None"),
    ({"penalty": -1}, "penalty must be a number"),
    ({"penalty": "x"}, "penalty must be a number"),
    ({"penalty": math.nan}, "penalty must be a number"),
    ({"share": 0}, "share must lie in"),
]


@pytest.mark.parametrize(("options", "message"), REFUSALS)
def test_refusals_cost_nothing(options, message):
    frame = pa.table(
        {"age": [20, 30], "ward": ["A", "B"], "visits": [1, 2], "weight": [1.5, 2.5], "nothing": pa.nulls(2)}
        | {"gaps": [1, None], "flat": [7, 7]}
    )
    spaces = {"age": (20, 80), "ward": ["A", "B"], "visits": (0, 30), "gaps": dpf.Nullable((0, 9)), "flat": [7]}
    q = dpf.Queries(frame, 1.0, delta=1e-6, spaces=spaces)
    refused(
        ParameterError,
        message,
        lambda: q.regress(**({"formula": "visits ~ age", "penalty": 0.1, "share": 0.5} | options)),
    )
    assert q.left == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0}, "regress needs delta above 0"),
        ({"delta": 1e-6, "neighbours": "add_remove"}, "a public number of rows"),
    ],
)
def test_refused_promises(people, options, message):
    with pytest.raises(ParameterError, match=message):
        dpf.Queries(people, 1.0, spaces=SPACES, **options).regress("visits ~ age", penalty=0.1, share=1)


def test_no_rows(people):
    with pytest.raises(ParameterError, match="the table has no rows"):
        dpf.Queries(people.head(0), 1.0, delta=1e-6, spaces=SPACES)


@pytest.mark.parametrize("penalty", [None, 0.01])
def test_special_values_are_the_middle_in_a_regression(penalty):
    """A row of a code moves no sum farther than a number does; as numbers, codes would bring the slope near 0."""
    z, has_code = np.arange(N) % 2, np.arange(N) % 3 == 0
    frame = pd.DataFrame({"x": np.where(has_code, 25, 2 * z), "z": np.where(has_code, 0.5, z)})
    spaces = {"x": dpf.Integer(0, 2, special=list(range(10, 26))), "z": dpf.Real(0, 1)}
    slope = dpf.Queries(frame, 50.0, delta=1e-4, spaces=spaces).regress("z ~ x", penalty=penalty, share=1)
    assert slope.loc["x", "estimate"] == pytest.approx(0.5, abs=0.05)
