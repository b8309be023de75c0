"""Debiased models: exact where the noise can be enumerated, consistent where plain models are not."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import CategoricalNB

import dpframe as dpf

KEY = bytes(range(32))
RAW = 1e4
"""An ε at which noise all but vanishes on listed values and on grids of a few steps."""

SHORT = {
    "x": dpf.Nullable(dpf.Integer(0, 3)),
    "rank": dpf.Ordinal(["low", "mid", "high"]),
    "g": dpf.Nullable(dpf.Categorical(["a", "b"])),
    "y": dpf.Integer(0, 4),
}


def short(n=4_000):
    """A table whose columns take a few values each, with nulls."""
    rng = np.random.default_rng(0)
    x, rank, g = rng.integers(0, 4, n), rng.integers(0, 3, n), rng.integers(0, 3, n)
    y = (rng.random(n) * (1 + x / 2 + rank / 4 + (g == 1))).astype(int)
    columns = {"rank": np.array(["low", "mid", "high"])[rank], "g": np.array(["a", "b", None], dtype=object)[g], "y": y}
    return pd.DataFrame({"x": np.where(rng.random(n) < 0.1, np.nan, x), **columns})


def short_design(frame):
    rank = frame["rank"].map({"low": 0, "mid": 1, "high": 2})
    return np.column_stack([frame["x"], rank, frame["g"] == "b", frame["g"].isna()]).astype(float)


COLUMNS = ["age", "sex", "education", "income"]
LEVELS = dpf.datasets.EDUCATION
SPACES = {
    "age": (18, 95),
    "sex": ["F", "M"],
    "education": dpf.Ordinal(LEVELS),
    "income": dpf.Nullable(dpf.Real(0, 250_000)),
}


def people(n, seed=0):
    return dpf.datasets.make_census(n, random_state=seed, columns=COLUMNS)


def design(frame):
    ranks = pd.Categorical(frame["education"], LEVELS).codes.astype(float)
    return np.column_stack([frame["age"].astype(float), frame["sex"] == "M", ranks])


# Moments, against all outputs of the mechanisms

# Regression


@pytest.mark.parametrize("alpha", [0.0, 500.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_it_is_the_ridge_of_rows_whose_numbers_are_there(alpha, fit_intercept):
    frame = short()
    safe = dpf.sanitize(frame, epsilon=RAW, spaces=SHORT, measure=None)
    model = dpf.learning.DebiasedRidge(alpha, fit_intercept).fit(safe.drop(columns="y"), safe["y"])
    whole = frame[frame["x"].notna()]
    plain = Ridge(alpha, fit_intercept=fit_intercept).fit(short_design(whole), whole["y"])
    # A null of g is one more value of it. A step of y is noise of 3e-5 rows.
    assert model.coef_names_ == ["x", "rank", "g_b", "g_null"]
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=2e-3)
    assert model.intercept_ == pytest.approx(plain.intercept_, abs=2e-3)
    np.testing.assert_allclose(model.predict(whole), plain.predict(short_design(whole)), atol=5e-3)
    assert model.score(whole, whole["y"]) == pytest.approx(plain.score(short_design(whole), whole["y"]), abs=1e-3)
    assert (np.isnan(model.predict(frame)) == frame["x"].isna()).all()


def test_without_noise_errors_are_the_sandwich():
    frame = short().dropna(subset="x")
    spaces = {**SHORT, "x": dpf.Real(0, 3, steps=3)}
    model = dpf.learning.DebiasedRidge().fit(dpf.sanitize(frame, epsilon=RAW, spaces=spaces, measure=None), "y")
    X = np.column_stack([np.ones(len(frame)), short_design(frame)])
    inverse = np.linalg.inv(X.T @ X)
    residual = frame["y"].to_numpy() - X @ (inverse @ X.T @ frame["y"])
    expected = inverse @ (X.T * residual**2) @ X @ inverse
    np.testing.assert_allclose(model.covariance_, expected, rtol=0.05, atol=2e-6)


@pytest.mark.slow
def test_regression_is_unbiased_and_its_errors_are_honest():
    # 12 tables and releases. With honest errors the sum of 3·12 squared z-scores is nearly χ² with 36 degrees of
    # freedom: outside 14…73 with probability below 1e-3 (more, as the three of a fit are correlated); keys are fixed.
    truth = LinearRegression().fit(design(big := people(60_000, 99).dropna()), big["income"]).coef_
    found, errors, plain = [], [], []
    for k in range(12):
        safe = dpf.sanitize(people(10_000, k), epsilon=1, delta=1e-6, spaces=SPACES, key=bytes([k]) * 32)
        model = dpf.learning.DebiasedRidge().fit(safe, "income")
        found.append(model.coef_)
        errors.append(model.coef_std_error_)
        noisy = safe.dropna()
        plain.append(LinearRegression().fit(design(noisy), noisy["income"]).coef_)
    z = (np.array(found) - truth) / np.array(errors)
    assert 14 < (z**2).sum() < 73
    # Education's coefficient: on noisy ranks plain least squares loses most of it, in every release.
    assert max(row[2] for row in plain) < 0.4 * truth[2]
    assert abs(np.mean(found, axis=0)[2] - truth[2]) < 4 * np.mean(errors, axis=0)[2] / np.sqrt(12)


@pytest.mark.walk(1)
@pytest.mark.parametrize("groups", [[("x", "y")], [("g", "x"), ("rank", "y")]], ids=str)
@pytest.mark.slow
def test_regression_on_columns_that_were_randomised_together(groups):
    # 12 releases of one table. Standard errors are those of the population, so that z-scores of noise alone are below
    # 1 in square; |mean z|·√12 above 4 has probability below 1e-4 for each of four coefficients (keys are fixed).
    spaces = {**SHORT, "x": dpf.Integer(0, 3)}
    frame = short(8_000).dropna(subset="x").astype({"x": int})
    truth = LinearRegression().fit(short_design(frame), frame["y"]).coef_
    z, separate = [], []
    plan = dpf.plan(frame, 2.0, 1e-6, spaces=spaces, groups=groups)
    for k in range(12):
        safe = dpf.sanitize(frame, plan=plan, key=bytes([k]) * 32)
        model = dpf.learning.DebiasedRidge().fit(safe, "y")
        assert model.coef_names_ == ["x", "rank", "g_b", "g_null"]
        z.append((model.coef_ - truth) / model.coef_std_error_)
        # Taken for independent, the noise of a group is mistaken for a relation of its columns.
        loose = replace(plan, groups=(), epsilon=50.0)
        separate.append(dpf.learning.DebiasedRidge(plan=loose).fit(safe, "y").coef_ - truth)
    z = np.array(z)
    assert (np.abs(z.mean(axis=0)) * np.sqrt(12) < 4).all()
    assert 0.3 < (z**2).mean() < 1.4
    if len(groups) == 1:
        assert np.abs(np.mean(separate, axis=0)[0] / truth[0]) > 0.1


def test_a_row_s_groups_need_not_stand_together():
    # The order of the coefficients is that of the columns, whatever is grouped with what; noise is all but absent.
    frame = short()
    safe = dpf.sanitize(frame, epsilon=RAW, spaces=SHORT, measure=None, groups=[("x", "g"), ("y", "rank")])
    model = dpf.learning.DebiasedRidge().fit(safe, "y")
    whole = frame[frame["x"].notna()]
    plain = LinearRegression().fit(short_design(whole), whole["y"])
    assert model.coef_names_ == ["x", "rank", "g_b", "g_null"]
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=2e-3)
    np.testing.assert_allclose(model.predict(whole), plain.predict(short_design(whole)), atol=5e-3)


@pytest.mark.slow
def test_what_noise_has_drowned_is_drawn_to_zero_with_a_warning():
    safe = dpf.sanitize(people(2_000), epsilon=0.2, spaces=SPACES, key=KEY, measure=None)
    with pytest.warns(dpf.DpframeWarning, match="of 3 directions of the features are indistinguishable from noise"):
        model = dpf.learning.DebiasedRidge().fit(safe, "income")
    assert model.n_lifted_ > 0
    assert np.isfinite(model.covariance_).all()
    assert np.isfinite(model.predict(people(5))).all()
    # A strong penalty leaves nothing to lift.
    assert dpf.learning.DebiasedRidge(alpha=1e9).fit(safe, "income").n_lifted_ == 0


def test_summary_and_conventions():
    safe = dpf.sanitize(people(2_000), epsilon=400, measure=None, spaces=SPACES, key=KEY)
    model = dpf.learning.DebiasedRidge(alpha=0.5).fit(safe, "income")
    table = model.summary(0.9)
    assert list(table.columns) == ["estimate", "std_error", "lower", "upper"]
    assert list(table.index) == ["intercept", *model.coef_names_]
    assert ((table["lower"] < table["estimate"]) & (table["estimate"] < table["upper"])).all()
    assert (
        list(dpf.learning.DebiasedRidge(fit_intercept=False).fit(safe, "income").summary().index) == model.coef_names_
    )
    with pytest.raises(dpf.ParameterError, match=r"confidence_level must lie in \(0, 1\)"):
        model.summary(95)
    assert clone(model).get_params() == {"alpha": 0.5, "fit_intercept": True, "plan": None}
    assert "DebiasedRidge" in model._repr_html_()


# What each takes


def ready(kind="ridge"):
    spaces = {**SPACES, "income": dpf.Real(0, 250_000)}
    # Tables go where the description goes, and a plan given by hand has none.
    safe = dpf.sanitize(people(300).fillna({"income": 0.0}), epsilon=80, spaces=spaces, key=KEY, measure=None)
    model = dpf.learning.DebiasedRidge() if kind == "ridge" else dpf.learning.DebiasedNaiveBayes()
    return model, safe, "income" if kind == "ridge" else "sex"


EACH = pytest.mark.parametrize("kind", ["ridge", "bayes"])


@EACH
@pytest.mark.slow
def test_ways_to_give_the_release(kind):
    model, safe, target = ready(kind)
    truth = people(50).fillna({"income": 0.0})
    expected = model.fit(safe, target).predict(truth)
    plan = safe.dp.release.plan
    bare = pd.DataFrame(safe)
    bare.attrs = {}
    only_y = safe.drop(columns=target)
    only_y.attrs = {}
    ways = [
        model.fit(safe.drop(columns=target), safe[target]),
        model.fit(safe, safe[target]),
        model.fit(only_y, safe[target]),
        clone(model).set_params(plan=plan).fit(bare, target),
        clone(model).set_params(plan=plan).fit(pa.Table.from_pandas(bare, preserve_index=False), target),
    ]
    for fitted in ways:
        assert (fitted.predict(truth) == expected).all()
        assert target not in fitted.feature_names_in_


@EACH
def test_fitted_models_can_be_stored(kind):
    model, safe, target = ready(kind)
    truth = people(50).fillna({"income": 0.0})
    expected = model.fit(safe, target).predict(truth)
    assert (pickle.loads(pickle.dumps(model)).predict(truth) == expected).all()


@pytest.mark.walk(1)
@EACH
def test_refusals(kind):
    model, safe, target = ready(kind)
    plan = safe.dp.release.plan
    raw = people(50)
    with pytest.raises(dpf.NotSanitizedError, match="carries no release plan"):
        model.fit(raw, target)
    with pytest.raises(dpf.NotSanitizedError, match="carries no release plan"):
        model.fit(raw.drop(columns=target), raw[target])
    with pytest.raises(dpf.ParameterError, match="column 'height' is not in the release"):
        model.fit(safe, "height")
    with pytest.raises(dpf.ParameterError, match=r"y must be a released column, e\.g\. y=safe\['income'\]"):
        model.fit(safe, safe[target].to_numpy())
    with pytest.raises(dpf.ParameterError, match="y must be the name of a column of X where X is no pandas DataFrame"):
        model.fit(pa.Table.from_pandas(safe, preserve_index=False), safe[target])
    with pytest.raises(dpf.ParameterError, match="X and y must be rows of one release, in one order"):
        model.fit(safe, safe[target].iloc[::-1])
    with pytest.raises(dpf.ParameterError, match="no randomised column other than the target"):
        model.fit(safe[[target]], target)
    with pytest.raises(dpf.ParameterError, match="plan must be a Plan"):
        clone(model).set_params(plan="plan.json").fit(safe, target)
    with pytest.warns(dpf.errors.AlteredReleaseWarning, match="the table has 100 rows, the release 300"):
        model.fit(safe.iloc[:100], target)
    model.fit(safe, target)
    with pytest.raises(dpf.ColumnError, match="column 'age': is a feature of the model but not in X"):
        model.predict(raw.drop(columns="age"))
    with pytest.warns(dpf.errors.AlteredReleaseWarning, match="X is a release, whose noise predictions take for truth"):
        model.predict(safe)
    assert plan == safe.dp.release.plan


@pytest.mark.parametrize("alpha", [-1.0, np.nan, np.inf, "much", True])
def test_alpha_is_checked(alpha):
    _, safe, target = ready()
    with pytest.raises(dpf.ParameterError, match="alpha must be a number from 0"):
        dpf.learning.DebiasedRidge(alpha).fit(safe, target)


def test_targets_of_regression_are_numbers():
    _, safe, _ = ready()
    with pytest.raises(dpf.ParameterError, match="y must be a column of numbers, which 'education' is not"):
        dpf.learning.DebiasedRidge().fit(safe, "education")


def test_columns_of_too_many_values_are_refused():
    frame = pd.DataFrame({"x": ["0"] * 20, "y": np.arange(20.0)})
    safe = dpf.sanitize(frame, epsilon=9, spaces={"x": list(map(str, range(2_000))), "y": (0, 20)}, shuffle=True)
    with pytest.raises(dpf.ParameterError, match="column 'x' has 2,000 values, and from 2 to 256 can become"):
        dpf.learning.DebiasedRidge().fit(safe, "y")


@pytest.mark.slow
@EACH
def test_sets_are_refused(kind):
    frame = people(300).fillna({"income": 0.0})
    frame["items"] = [["p"], [], ["p", "q"]] * 100
    spaces = {**SPACES, "income": dpf.Real(0, 250_000), "items": dpf.Subset(["p", "q"])}
    safe = dpf.sanitize(frame, epsilon=8, spaces=spaces)
    model, _, target = ready(kind)
    with pytest.raises(dpf.ParameterError, match="column 'items' holds sets, which are no"):
        model.fit(safe, target)


def test_no_complete_rows():
    frame = pd.DataFrame({"x": [None] * 30, "y": np.linspace(0, 1, 30)[::-1]}, dtype="float64").sample(frac=1)
    safe = dpf.sanitize(frame, epsilon=RAW, measure=None, spaces={"x": dpf.Nullable(dpf.Real(0, 1)), "y": (0, 1)})
    with pytest.raises(dpf.ParameterError, match="X has no rows without nulls, as far as noise lets them be seen"):
        dpf.learning.DebiasedRidge().fit(safe, "y")


# Naive Bayes


def test_without_noise_tables_are_shares_within_classes():
    frame = people(20_000)
    safe = dpf.sanitize(frame, epsilon=RAW, measure=None, spaces=SPACES)
    model = dpf.learning.DebiasedNaiveBayes(bins={"age": [18, 30, 50, 95]}).fit(safe[["age", "education"]], safe["sex"])
    shares = pd.crosstab(frame["education"], frame["sex"], normalize="columns").reindex(LEVELS)
    np.testing.assert_allclose(model.tables_["education"], shares, atol=0.01)
    ages = pd.crosstab(np.digitize(frame["age"], [30, 50]), frame["sex"], normalize="columns")
    np.testing.assert_allclose(model.tables_["age"], ages, atol=0.02)
    np.testing.assert_allclose(model.class_prior_, frame["sex"].value_counts(normalize=True).sort_index(), atol=1e-3)
    assert [interval.left for interval in model.tables_["age"].index] == [18, 30, 50]


def test_predictions_follow_the_tables():
    frame = people(2_000)
    safe = dpf.sanitize(frame, epsilon=100, measure=None, spaces=SPACES, key=KEY)
    model = dpf.learning.DebiasedNaiveBayes(bins=4, evidence=0.8).fit(safe, "sex")
    proba = model.predict_proba(frame)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(frame)), proba)
    assert (model.predict(frame) == model.classes_[proba.argmax(axis=1)]).all()
    row = frame.iloc[[3]]
    weights = model.class_prior_.copy()
    for name in model.feature_names_in_:
        table, value = model.tables_[name], row[name].iloc[0]
        missing = pd.isna(value)
        cells = [
            pd.isna(c) if missing else (not pd.isna(c) and (value in c if hasattr(c, "left") else value == c))
            for c in table.index
        ]
        weights = weights * table[cells].to_numpy()[0] ** 0.8
    np.testing.assert_allclose(proba[3], weights / weights.sum())
    assert set(model.tables_) == {"age", "education", "income"}


def test_null_classes_are_left_out():
    frame = pd.DataFrame({"x": ["a", "b", "b"] * 100, "y": ["p", "q", None] * 100})
    spaces = {"x": ["a", "b"], "y": dpf.Nullable(dpf.Categorical(["p", "q"]))}
    model = dpf.learning.DebiasedNaiveBayes(prior_sd=100.0).fit(
        dpf.sanitize(frame, epsilon=RAW, spaces=spaces, measure=None), "y"
    )
    assert model.classes_.tolist() == ["p", "q"]
    np.testing.assert_allclose(model.class_prior_, 0.5, atol=1e-6)
    assert model.predict(frame)[:3].tolist() == ["p", "q", "q"]


def dependent(n, seed):
    """Two classes and three features, two of which follow the class."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    near = np.where(rng.random(n) < 0.8, y, ~y)
    level = np.clip(rng.normal(np.where(y, 65, 45), 12, n), 0, 100).round().astype(int)
    return pd.DataFrame({"near": near, "level": level, "other": rng.integers(0, 6, n).astype(str), "y": y})


def test_tables_are_consistent_where_counted_ones_are_not():
    frame = dependent(60_000, 0)
    spaces = {"near": dpf.Boolean(), "level": (0, 100), "other": list("012345"), "y": dpf.Boolean()}
    safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces=spaces, key=KEY)
    model = dpf.learning.DebiasedNaiveBayes(bins=5, evidence=1.0).fit(safe, "y")
    truth = pd.crosstab(frame["near"], frame["y"], normalize="columns").to_numpy()
    counted = pd.crosstab(safe["near"], safe["y"], normalize="columns").to_numpy()
    # The errors of a share are about 0.005 here; counting on noisy rows is off by 0.1 and more.
    assert np.abs(model.tables_["near"].to_numpy() - truth).max() < 0.03
    assert np.abs(counted - truth).max() > 0.1
    raw = CategoricalNB().fit(np.column_stack([frame["near"], np.minimum(frame["level"] // 20, 4)]), frame["y"])
    test = dependent(20_000, 1)
    best = raw.score(np.column_stack([test["near"], np.minimum(test["level"] // 20, 4)]), test["y"])
    assert model.score(test, test["y"]) > best - 0.03
    assert best > 0.85


def test_features_that_share_a_channel_with_the_class():
    frame = dependent(20_000, 0)
    spaces = {"near": dpf.Boolean(), "level": (0, 100), "other": list("012345"), "y": dpf.Boolean()}
    truth = pd.crosstab(frame["near"], frame["y"], normalize="columns").to_numpy()
    bins = pd.crosstab(np.minimum(frame["level"] // 20, 4), frame["y"], normalize="columns").to_numpy()
    for group in (("near", "y"), ("level", "y"), ("near", "level", "y")):
        safe = dpf.sanitize(frame, epsilon=24, delta=0, spaces=spaces, groups=[group], key=KEY)
        model = dpf.learning.DebiasedNaiveBayes(bins={"level": [0, 20, 40, 60, 80, 100]}).fit(safe, "y")
        assert np.abs(model.tables_["near"].to_numpy() - truth).max() < 0.1
        assert np.abs(model.tables_["level"].to_numpy() - bins).max() < 0.1


@pytest.mark.slow
def test_drowned_columns_have_no_say():
    """By how much a cell's odds are moved, at most, on average of eight releases: 0.2 here, above 1 without a guard."""
    frame, moved = dependent(500, 0), []
    spaces = {"near": dpf.Boolean(), "level": (0, 100), "other": list("012345"), "y": dpf.Boolean()}
    for key in range(8):
        safe = dpf.sanitize(frame, epsilon=0.04, spaces=spaces, key=bytes([key]) * 32)
        model = dpf.learning.DebiasedNaiveBayes(bins=5).fit(safe, "y")
        moved.append(max(np.abs(table[True] / table[False] - 1).max() for table in model.tables_.values()))
        assert model.class_prior_.min() > 0.05
    assert np.mean(moved) < 0.4


@pytest.mark.parametrize(
    ("options", "target", "rule"),
    [
        ({"evidence": 0.0}, "sex", "evidence must be a number above 0"),
        ({"evidence": 2.0}, "sex", "evidence must be at most 1, which is naive Bayes"),
        ({"prior_sd": 0.0}, "sex", "prior_sd must be a number above 0"),
        ({"bins": {"height": 3}}, "sex", "bins names 'height', which is not a feature; features are age, education"),
        ({"bins": {"education": 3}}, "sex", "column 'education' holds no numbers and takes no bins"),
        ({"bins": 0}, "sex", "bins must be from 1 to 78 for column 'age'"),
        ({}, "income", "column 'income' has 65,537 values"),
    ],
)
def test_refusals_of_naive_bayes(options, target, rule):
    _, safe, _ = ready()
    with pytest.raises(dpf.ParameterError, match=rule):
        dpf.learning.DebiasedNaiveBayes(**options).fit(safe, target)


@pytest.mark.filterwarnings("ignore::dpframe.errors.AlteredReleaseWarning")
def test_they_work_in_a_search_over_a_release():
    _, safe, _ = ready()
    search = GridSearchCV(dpf.learning.DebiasedRidge(), {"alpha": [0.0, 1.0]}, cv=2)
    search.fit(safe.drop(columns="income"), safe["income"])
    assert search.best_estimator_.n_features_in_ == 3


def lines(n, seed):
    """Numbers on a line: the target's middle is that of its bounds."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 4))
    y = np.clip(20 + X @ [3, 2, -1, 0] + rng.normal(0, 4, n), 0, 80)
    return pd.DataFrame(np.column_stack([X, y]), columns=list("abcdy"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*directions of the features:dpframe.DpframeWarning")
@pytest.mark.parametrize("epsilon", [1.0, 4.0, 16.0])
@pytest.mark.parametrize("table", ["people", "lines"])
def test_on_few_rows_it_is_hardly_worse_than_plain_fits_of_the_release(table, epsilon):
    # Errors of prediction on other rows, in standard deviations of the target; keys are fixed. Inverses of noise made
    # them 5 and 6 where the mean's is 1.
    if table == "people":
        made, design_of, target = (lambda n, k: people(n, k).fillna({"income": 0.0})), design, "income"
        spaces = SPACES | {"income": dpf.Real(0, 250_000)}
    else:
        made, design_of, target = lines, lambda frame: frame[list("abcd")].to_numpy(), "y"
        spaces = {**dict.fromkeys("abcd", dpf.Real(0, 10)), "y": dpf.Real(0, 80)}
    fresh = made(3_000, 999)
    X, truth = design_of(fresh), fresh[target].to_numpy()
    found = []
    for k in range(8):
        safe = dpf.sanitize(made(936, k), epsilon=epsilon, spaces=spaces, key=bytes([k]) * 32)
        predicted = [
            dpf.learning.DebiasedRidge().fit(safe, target).predict(fresh),
            LinearRegression().fit(design_of(safe), safe[target]).predict(X),
            Ridge(1.0).fit(design_of(safe), safe[target]).predict(X),
            np.full(len(truth), safe[target].mean()),
        ]
        found.append([np.sqrt(np.mean((p - truth) ** 2)) / truth.std() for p in predicted])
    errors = np.array(found)
    assert (errors[:, 0] < 1.5 * errors[:, 1:].min(axis=1)).all()
    assert np.median(errors[:, 0]) < 1.25 * np.median(errors[:, 1:].min(axis=1))


@pytest.mark.slow
def test_columns_that_were_not_found_are_left_out():
    generator = np.random.default_rng(0)
    level = generator.integers(0, 4, 3_000)
    frame = pd.DataFrame(
        {
            "level": level,
            "yes": np.where(generator.random(3_000) < level / 4, "y", "n"),
            "note": [f"{i} {generator.integers(10**9)}" for i in range(3_000)],
        }
    )
    with pytest.warns(dpf.InferenceWarning):
        safe = dpf.sanitize(frame, epsilon=4, delta=1e-6, key=bytes(range(32)))
    with pytest.warns(dpf.InferenceWarning, match="the model leaves out note: private inference did not find"):
        model = dpf.DebiasedNaiveBayes().fit(safe, "yes")
    assert list(model.feature_names_in_) == ["level"]
    with pytest.raises(dpf.ParameterError, match="private inference did not find what is in the target 'note'"):
        dpf.DebiasedNaiveBayes().fit(safe, "note")
