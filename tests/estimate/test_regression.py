"""Regressions of a release beside statsmodels on the table itself: names, families, refusals and intervals.

Keys are fixed. Each statistical test states the probability of its failure were the keys drawn at random.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from checks import refused

import dpframe as dpf
from dpframe.errors import ParameterError
from dpframe.estimate.regression import formula_columns

smf = pytest.importorskip("statsmodels.formula.api")
families = pytest.importorskip("statsmodels.genmod.families")

ROWS = 4_000
COLUMNS = ["ward", "sex", "age", "visits", "smoker", "day"]
FAMILIES = {"gaussian": families.Gaussian(), "binomial": families.Binomial(), "poisson": families.Poisson()}


def key(number):
    return bytes([number]) * 32


@pytest.fixture(scope="module")
def clinic():
    generator = np.random.default_rng(4)
    ward, sex = generator.choice(["a", "b", "c"], ROWS, p=[0.5, 0.3, 0.2]), generator.choice(["F", "M"], ROWS)
    age = generator.normal(50, 15, ROWS).clip(18, 90).round()
    stay = (2 + 0.06 * age + 1.5 * (ward == "b") + generator.normal(0, 1.5, ROWS)).clip(0, 15).round(1)
    stay[generator.random(ROWS) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "ward": ward,
            "sex": sex,
            "age": age.astype(int),
            "stay": stay,
            "visits": generator.poisson(np.exp(0.2 + 0.015 * age)).clip(0, 30),
            "smoker": generator.random(ROWS) < 1 / (1 + np.exp(1 + 0.8 * (sex == "M") - 0.03 * (age - 50))),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(generator.integers(0, 366, ROWS), unit="D"),
        }
    )


SPACES = {
    "ward": ["a", "b", "c"],
    "sex": ["F", "M"],
    "age": (18, 90),
    "stay": dpf.Nullable(dpf.Real(0, 15)),
    "visits": (0, 30),
    "smoker": dpf.Boolean(),
    "day": (pd.Timestamp("2024-01-01"), pd.Timestamp("2024-12-31")),
}


@pytest.fixture(scope="module")
def safe(clinic):
    return clinic.dp.sanitize(epsilon=8, spaces=SPACES, key=key(1))


def plain(formula, table, family="gaussian"):
    """Return statsmodels' fit of a table."""
    return smf.glm(formula, table.assign(smoker=table["smoker"].astype(int)), family=FAMILIES[family]).fit()


@pytest.mark.walk(3)
@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("stay ~ age + C(ward)", "gaussian"),
        ("stay ~ age * sex + ward", "gaussian"),
        ("smoker ~ age + C(sex)", "binomial"),
        ("visits ~ np.log(age)", "poisson"),
        ("stay ~ 0 + C(ward, Treatment('b'))", "gaussian"),
        ("stay ~ I(age > 60)", "gaussian"),
    ],
)
def test_terms_and_coefficients_are_those_of_statsmodels(clinic, safe, formula, family):
    found, truth = safe.dp.regress(formula, family, target="table", draws=20), plain(formula, clinic, family).params
    assert list(found.index) == list(truth.index)
    assert list(found.columns) == ["estimate", "std_error", "lower", "upper", "p_value"]
    # Five errors: once in a million draws of the key.
    assert ((found["estimate"] - truth).abs() < 5 * found["std_error"]).all()
    assert (found["std_error"] < 0.6 * truth.abs().clip(lower=1)).all()


def test_a_population_has_the_errors_of_its_rows_besides(clinic, safe):
    table, population = (safe.dp.regress("stay ~ age", target=target, draws=10) for target in ("table", "population"))
    own = plain("stay ~ age", clinic).bse
    more = population["std_error"] ** 2 - table["std_error"] ** 2
    np.testing.assert_allclose(more**0.5, own, rtol=0.1)


def test_what_a_result_says_of_itself(clinic, safe):
    found = safe.dp.regress("stay ~ age + C(ward)", draws=5)
    assert found.attrs["formula"] == "stay ~ age + C(ward)"
    assert found.attrs["n"] + found.attrs["left_out"] == ROWS
    assert found.attrs["left_out"] == pytest.approx(clinic["stay"].isna().sum(), abs=60)
    assert found.attrs["outcome"] == "stay"
    assert repr(found).startswith("stay ~ age + C(ward)  (gaussian, n = 3,")
    assert "C(ward)[T.b]" in repr(found)
    assert "<table" in found._repr_html_()
    # Parts of it are plain tables.
    assert "gaussian" not in repr(found[["estimate"]])


def test_the_last_of_two_categories_is_the_outcome(safe):
    men = safe.dp.regress("sex ~ smoker", "binomial", target="table", draws=5)
    assert men.attrs["outcome"] == "sex[M]"
    assert men.loc["smoker[T.True]", "estimate"] < 0


def test_dates_are_numbers_of_days(safe, clinic):
    found = safe.dp.regress("visits ~ day", target="table", draws=20)
    days = (clinic["day"] - pd.Timestamp(0)) / pd.Timedelta(days=1)
    truth = smf.ols("visits ~ days", clinic.assign(days=days)).fit().params["days"]
    assert abs(found.loc["day", "estimate"] - truth) < 5 * found.loc["day", "std_error"]
    assert found.loc["day", "std_error"] < 0.005


def test_weights_are_those_of_least_squares(safe, clinic):
    found = safe.dp.regress("stay ~ C(ward)", weights="visits", target="table", draws=20)
    known = clinic.dropna()
    truth = smf.wls("stay ~ C(ward)", known, weights=known["visits"]).fit().params
    assert ((found["estimate"] - truth).abs() < 5 * found["std_error"]).all()


def test_categories_without_rows_are_left_out(clinic):
    spaces = {"ward": ["a", "b", "c", "x"], "age": (18, 90)}
    safe = clinic[["ward", "age"]].dp.sanitize(epsilon=8, spaces=spaces, key=key(1))
    assert list(safe.dp.regress("age ~ C(ward)", draws=2).index) == ["Intercept", "C(ward)[T.b]", "C(ward)[T.c]"]


def test_a_large_table_is_fitted_to_some_rows(clinic, monkeypatch):
    """Errors are those of all rows: with a quarter of them, taken as they are, they would be .0036 for .0024."""
    spaces = {"ward": ["a", "b", "c"], "stay": dpf.Nullable(dpf.Real(0, 15))}
    big = pd.concat([clinic[["ward", "stay"]]] * 5, ignore_index=True)
    safe = big.dp.sanitize(epsilon=8, spaces=spaces, key=key(1))
    whole = safe.dp.regress("stay ~ C(ward)")
    monkeypatch.setattr("dpframe.estimate.regression.MOST_FITTED_ROWS", len(big) // 4)
    part = safe.dp.regress("stay ~ C(ward)")
    assert part.attrs["n"] == pytest.approx(whole.attrs["n"], rel=0.01)
    np.testing.assert_allclose(part["std_error"], whole["std_error"], rtol=0.35)
    assert ((part["estimate"] - whole["estimate"]).abs() < 2 * whole["std_error"]).all()


def test_columns_of_formulas():
    known = ["age", "ward", "number of visits", "np"]
    assert formula_columns("Q('number of visits') ~ age", known) == ["number of visits", "age"]
    assert formula_columns("np.log(age) ~ bs(age, 3) + C(ward):age", ["age", "ward"]) == ["age", "ward"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("visits ~ agee",), "did you mean 'age'"),
        (("visits ~",), "formula"),
        (("~ age",), "one outcome"),
        (("visits + age ~ sex",), "one outcome"),
        (("1 ~ 1",), "formula"),
        (("visits ~ age +* ward",), "cannot be read"),
        (("visits ~ np.logg(age)",), "cannot be computed"),
        (("ward ~ age",), "has 3 columns"),
        (("visits ~ age", "gamma"), "family must be one of 'gaussian'"),
        (("visits ~ age", "gaussian", "ward"), "weights"),
        (("visits ~ age", "gaussian", "agee"), "did you mean 'age'"),
        ((["visits"],), "formula must be text"),
    ],
)
def test_bad_input_is_refused_in_one_line(safe, arguments, message):
    refused(ParameterError, message, lambda: safe.dp.regress(*arguments))


@pytest.mark.slow
def test_intervals_of_coefficients_hold_and_are_no_wider_than_they_must_be(clinic):
    """Of 108 coefficients .95 hold: fewer than .87 by chance once in 500 keys; errors fill intervals."""
    fits = [("stay ~ age + C(ward)", "gaussian"), ("smoker ~ age + C(sex)", "binomial"), ("visits ~ age", "poisson")]
    holds, parts = [], []
    for number in range(1, 13):
        safe = clinic.dp.sanitize(epsilon=2, spaces=SPACES, key=key(number))
        for formula, family in fits:
            found, truth = safe.dp.regress(formula, family, target="table"), plain(formula, clinic, family).params
            holds.extend((found["lower"] <= truth) & (truth <= found["upper"]))
            parts.extend((found["estimate"] - truth).abs() / (found["upper"] - found["lower"]) * 2)
    assert len(holds) == 108
    assert np.mean(holds) >= 0.87
    assert np.quantile(parts, 0.95) > 0.55


@pytest.mark.slow
def test_null_effects_are_seldom_significant():
    """p-values below .05 of 60 fits of independent columns: more than 8 by chance once in 300."""
    generator = np.random.default_rng(9)
    few = 0
    for number in range(60):
        table = pd.DataFrame({"x": generator.integers(0, 50, 2_000), "y": generator.normal(20, 5, 2_000).clip(0, 40)})
        safe = table.dp.sanitize(epsilon=1, spaces={"x": (0, 49), "y": dpf.Real(0, 40)}, key=key(number))
        few += safe.dp.regress("y ~ x").loc["x", "p_value"] < 0.05
    assert few <= 8


def test_without_statsmodels_the_remedy_is_named(safe, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "patsy", None)
    with pytest.raises(ParameterError, match=r"pip install statsmodels"):
        safe.dp.regress("visits ~ age")


def test_fits_of_draws_warn_of_nothing(safe):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safe.dp.regress("smoker ~ C(ward)", "binomial", draws=2)


def test_categories_keep_the_order_of_their_dtype(clinic):
    order = pd.CategoricalDtype(["c", "a", "b"], ordered=True)
    table = clinic[["ward", "age"]].astype({"ward": order})
    safe = table.dp.sanitize(epsilon=8, spaces={"ward": ["c", "a", "b"], "age": (18, 90)}, key=key(1))
    assert list(safe.dp.regress("age ~ C(ward)", draws=2).index) == ["Intercept", "C(ward)[T.a]", "C(ward)[T.b]"]


def test_a_few_rows_are_refused_in_one_line():
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "c": ["a", "b", "a"]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        safe = frame.dp.sanitize(epsilon=4, spaces={"x": dpf.Real(0, 9), "c": ["a", "b"]}, key=key(1))
        with pytest.raises(ParameterError, match=r"too few|enough rows") as refused:
            safe.dp.regress("x ~ C(c) + x:C(c) + np.exp(x)")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("formula", "family", "message"),
    [
        ("visits ~ age", "binomial", "an outcome that is True or False"),
        ("I(age - 50) ~ visits", "poisson", "an outcome that is 0 or above"),
    ],
)
def test_fits_that_mean_nothing_are_refused_in_one_line(safe, formula, family, message):
    refused(ParameterError, message, lambda: safe.dp.regress(formula, family, draws=2))


def test_rows_without_a_weight_are_left_out(safe):
    found = safe.dp.regress("visits ~ age", weights="stay", draws=2)
    assert 200 < found.attrs["left_out"] < 600
    assert np.isfinite(found).to_numpy().all()


def test_terms_that_separate_the_outcomes_have_no_estimate(clinic):
    table = clinic[["visits"]].assign(often=clinic["visits"] >= 4)
    safe = table.dp.sanitize(epsilon=20, spaces={"visits": (0, 30), "often": dpf.Boolean()}, key=key(1))
    with pytest.warns(UserWarning) as caught:
        found = safe.dp.regress("often ~ I(visits > 3)", "binomial", draws=10)
    lost = found.attrs["weak"].get("unidentified_draws", 0)
    if lost:
        assert any("separate" in str(one.message) for one in caught)
    # Either few draws say anything, or their errors are as large as the coefficient is unsure.
    assert lost > 5 or found["std_error"].iloc[1] > 0.5


def test_transforms_are_of_each_draw(safe):
    found = safe.dp.regress("visits ~ standardize(age)", draws=5)
    means = safe.dp.infer(lambda table: table["visits"].mean(), columns=["visits", "age"], draws=5)
    assert found.loc["Intercept", "estimate"] == pytest.approx(means["estimate"], abs=1e-9)


def test_durations_and_arrow_times_are_days(clinic):
    arrow = pd.ArrowDtype(__import__("pyarrow").timestamp("us"))
    table = pd.DataFrame({"day": clinic["day"].astype(arrow), "visits": clinic["visits"]})
    spaces = {"day": SPACES["day"], "visits": (0, 30)}
    safe = table.dp.sanitize(epsilon=8, spaces=spaces, key=key(1))
    assert safe.dp.regress("visits ~ day", draws=2).loc["day", "std_error"] < 0.01
