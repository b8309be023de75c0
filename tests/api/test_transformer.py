"""The transformer: scikit-learn's conventions, rows that line up, and an account of what is spent."""

import dataclasses
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpframe as dpf
from dpframe.api import transformer
from dpframe.plan.build import build_plan
from dpframe.release.repeated_rows import INFERENCES, MOST_COPIES, RELEASES, ReleasedRows, row_hashes
from dpframe.tables.frames import wrap

EXACT = 1e4
"""An ε at which a value hardly strays from itself."""

RANDOM = {
    "check_methods_sample_order_invariance": "a row's noise belongs to its position under the key, not to its value",
    "check_methods_subset_invariance": "a subset is a release of its own: its noise must be fresh",
}


@pytest.fixture(autouse=True)
def _fresh_account(monkeypatch):
    monkeypatch.setattr(transformer, "_RELEASED_ROWS", ReleasedRows())


def numbers(n=200, seed=0):
    return np.random.default_rng(seed).uniform(-9, 9, (n, 2))


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    age, sex = rng.integers(18, 90, n), np.array(["F", "M"])[rng.integers(0, 2, n)]
    return pd.DataFrame({"age": age, "sex": sex, "id": np.arange(n)[::-1] * 7 % n})


SPACES = {"age": (0, 100), "sex": ["F", "M"]}


def sanitizer(epsilon=1.0, **options):
    return dpf.Sanitizer(epsilon, spaces=(-10, 10), **options)


# scikit-learn's own checks

ALL = [sanitizer(random_state=0), dpf.Sanitizer(1.0, delta=1e-6, random_state=0)]
"""Declared, and with private inference under a seed."""

CHECKS = parametrize_with_checks(ALL, expected_failed_checks=lambda estimator: RANDOM)


@pytest.mark.walk(16)
@CHECKS
@pytest.mark.filterwarnings("ignore::dpframe.SeededReleaseWarning", "ignore::dpframe.errors.RepeatedReleaseWarning")
@pytest.mark.filterwarnings("ignore::dpframe.OrderLeakWarning", "ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:delta=1e-06 is above:dpframe.DpframeWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def parameters(check):
    """The estimator and the check, whether it carries a mark or not."""
    return getattr(check, "values", check)


def test_the_checks_that_must_fail_exist():
    # Unknown names would be ignored, and the reasons would explain nothing.
    # scikit-learn before 1.9 gives an iterator, and the parametrisation above has used it up.
    fresh = parametrize_with_checks(ALL, expected_failed_checks=lambda estimator: RANDOM)
    names = {getattr(parts[1], "func", parts[1]).__name__ for parts in map(parameters, fresh.args[1])}
    assert set(RANDOM) <= names
    assert len(names) > 40


def test_randomness_is_not_declared_away():
    assert not sanitizer().__sklearn_tags__().non_deterministic


# Rows line up


def near(out, X):
    """Whether rows agree one by one: noise at this ε has a standard deviation of 0.7."""
    return float(np.median(np.abs(np.asarray(out, dtype=float) - X))) < 1.5


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, pl.DataFrame, pa.table])
def test_row_i_of_the_output_belongs_to_row_i_of_the_input(kind, output):
    X = numbers()
    data = X if kind is np.asarray else kind({"a": X[:, 0], "b": X[:, 1]})
    model = sanitizer(EXACT).fit(data)
    if kind is not pa.table:
        model.set_output(transform=output)
    out = model.transform(data)
    assert near(
        out.to_numpy() if hasattr(out, "to_numpy") else np.column_stack(out.columns) if kind is pa.table else out, X
    )
    assert not near(X[::-1], X)
    expected = {"pandas": pd.DataFrame, "polars": pl.DataFrame}.get(output, type(data))
    assert isinstance(out, type(data) if kind is pa.table else expected)


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_arrays_keep_their_dtype():
    for seed, dtype in enumerate((np.float64, np.float32, np.int64, np.int8)):
        X = numbers(seed=seed)
        out = sanitizer(EXACT).fit_transform(X.astype(dtype))
        assert out.dtype == dtype
        assert near(out, X)


def test_frames_come_back_as_releases():
    frame = table().set_index(pd.Index(np.arange(300) + 5_000))
    out = dpf.Sanitizer(EXACT, spaces=SPACES, drop=["id"]).fit_transform(frame)
    assert list(out.columns) == ["age", "sex"]
    assert out["age"].dtype == frame["age"].dtype
    assert (out["sex"].to_numpy() == frame["sex"].to_numpy()).all()
    assert isinstance(out.index, pd.RangeIndex)
    assert out.index[0] == 0
    assert out.dp.release.plan.shuffle is False
    assert out.dp.verify()


def test_pandas_output_keeps_the_index_and_carries_the_plan():
    frame = table().sample(frac=1, random_state=1)
    model = dpf.Sanitizer(EXACT, spaces=SPACES, drop=["id"]).set_output(transform="pandas")
    with pytest.warns(dpf.PrivacyLeakWarning, match="keeps the input's index"):
        out = model.fit_transform(frame)
    assert out.index.equals(frame.index)
    assert (out["sex"] == frame["sex"]).all()
    assert out.dp.verify()
    from_array = sanitizer().set_output(transform="pandas").fit_transform(numbers())
    assert list(from_array.columns) == ["x0", "x1"]
    assert from_array.dp.verify()


INDICES = {
    "a name": pd.RangeIndex(300, name="person"),
    "names": pd.Index([f"P{i}" for i in range(300)]),
    "person numbers": pd.Index(np.arange(300) * 7 + 10_000),
    "person numbers in a row": pd.RangeIndex(10_000, 10_300),
    "positions as numbers": pd.Index(np.arange(300)),
    "two levels": pd.MultiIndex.from_product([range(30), range(10)]),
}


@pytest.mark.walk(2)
@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_an_index_that_is_more_than_positions_is_warned_of_and_in_the_plan(index, tmp_path):
    model = dpf.Sanitizer(1.0, spaces=SPACES, drop=["id"]).set_output(transform="pandas")
    frame = table().set_axis(index)
    model.fit(frame)
    says = r"input's index.*unprotected.*reset_index\(drop=True\)"
    with pytest.warns(dpf.PrivacyLeakWarning, match=says):
        out = model.transform(frame)
    pd.testing.assert_index_equal(out.index, index, exact=True)
    plan = out.dp.release.plan
    assert plan.keeps_index
    assert not model.plan_.keeps_index
    assert "NOT PROTECTED, copied as it is: the index of the rows" in plan.lines()
    assert "copied as it is: the index of the rows" in plan.verify().unprotected
    assert "Copied as it is: the index of the rows" in out.dp.report().to_html()
    assert dpf.Plan.from_json(plan.to_json()) == plan
    assert out.dp.verify()
    out.to_parquet(tmp_path / "out.parquet")
    assert dpf.verify(tmp_path / "out.parquet").ok


def test_a_plain_index_is_no_matter():
    model = dpf.Sanitizer(1.0, spaces=SPACES, drop=["id"]).set_output(transform="pandas")
    out = model.fit_transform(table())
    assert not out.dp.release.plan.keeps_index
    pd.testing.assert_index_equal(out.index, pd.RangeIndex(300), exact=True)
    assert "keeps_index" not in model.plan_.to_json()


def test_a_plan_keeps_an_index_only_with_the_order():
    plan = dpf.plan(table(), 1.0, spaces=SPACES, drop=["id"], shuffle=False)
    with pytest.raises(dpf.ParameterError, match="keeps_index must be False, or True with shuffle=False"):
        dataclasses.replace(plan, keeps_index=True, shuffle=True)
    with pytest.raises(dpf.errors.PlanError, match="keeps_index must be False, or True with shuffle=False"):
        dpf.Plan.from_json(plan.to_json().replace('"drop"', '"keeps_index": 1, "drop"'))


def test_columns_line_up_in_a_column_transformer():
    frame = table().sample(frac=1, random_state=1)
    both = make_column_transformer(
        (dpf.Sanitizer(EXACT, spaces={"sex": ["F", "M"]}), ["sex"]),
        ("passthrough", ["age"]),
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    with pytest.warns(dpf.PrivacyLeakWarning, match="keeps the input's index"):
        out = both.fit_transform(frame)
    pd.testing.assert_frame_equal(out, frame[["sex", "age"]], check_dtype=False)


# Parameters


def test_columns_by_name_by_number_and_all_at_once():
    X = np.column_stack([numbers(), np.arange(200.0)])
    Z = np.column_stack([numbers(seed=1), np.arange(200.0)])
    model = dpf.Sanitizer(2.0, spaces={0: (-1, 1), "x1": (-5, 5)}, drop=[2], allocation={0: 0.75}).fit(X)
    assert [c.space.upper for c in model.plan_.columns] == [1, 5]
    assert [c.mechanism.epsilon for c in model.plan_.columns] == pytest.approx([1.5, 0.5], rel=1e-3)
    assert model.plan_.drop == ("x2",)
    assert model.get_feature_names_out().tolist() == ["x0", "x1"]
    assert model.transform(X).shape == (200, 2)
    kept = dpf.Sanitizer(1.0, spaces=(-10, 10), passthrough=[2]).fit(Z)
    assert kept.plan_.names == ("x0", "x1")
    assert (kept.transform(Z)[:, 2] == Z[:, 2]).all()
    names = dpf.Sanitizer(1.0, spaces={0: (0, 100), 1: ["F", "M"]}, drop=["id"]).fit(table())
    assert names.get_feature_names_out().tolist() == ["age", "sex"]


def test_a_ready_plan_and_another_plan_s_spaces():
    frame = table()
    plan = dpf.plan(frame, 2.0, spaces=SPACES, drop=["id"], shuffle=False)
    assert dpf.Sanitizer(plan=plan).fit(frame).plan_ == plan
    again = dpf.Sanitizer(3.0, spaces=plan, drop=["id"]).fit(frame)
    assert again.plan_.epsilon == 3.0
    assert [c.space for c in again.plan_.columns] == [c.space for c in plan.columns]
    assert pickle.loads(pickle.dumps(clone(again).fit(frame))).plan_ == again.plan_


def test_data_is_not_read_but_for_names_and_types():
    frame, other = table(), table(50, seed=3)
    model = dpf.Sanitizer(1.0, spaces=SPACES, drop=["id"])
    assert [c.to_json() for c in model.fit(frame).plan_.columns] == [
        c.to_json() for c in model.fit(other).plan_.columns
    ]


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_nulls():
    X = numbers()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        sanitizer().fit(X)
    assert not np.isnan(sanitizer(nulls="impute").fit_transform(X)).any()
    kept = dpf.Sanitizer(EXACT, spaces={0: (-10, 10), 1: dpf.Nullable(dpf.Real(-10, 10))}).fit_transform(X)
    assert np.flatnonzero(np.isnan(kept[:, 1])).tolist() == [3]
    plan = build_plan({"x0": dpf.Real(-10, 10), "x1": dpf.Nullable(dpf.Real(-10, 10))}, epsilon=EXACT, shuffle=False)
    assert np.isnan(dpf.Sanitizer(plan=plan).fit_transform(X)[3, 1])
    with pytest.raises(dpf.ColumnError, match="column 'x1' at row position 3"):
        sanitizer().fit(pd.DataFrame(numbers(), columns=["x0", "x1"])).transform(pd.DataFrame(X, columns=["x0", "x1"]))


def fit(frame=None, **options):
    return dpf.Sanitizer(**options).fit(table() if frame is None else frame)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, "give epsilon, e.g. epsilon=1.0, or a plan"),
        ({"epsilon": -1.0, "spaces": SPACES, "drop": ["id"]}, "epsilon"),
        ({"epsilon": 1.0, "spaces": SPACES, "infer": "public"}, "1 column needs a declared space"),
        ({"epsilon": 1.0, "spaces": {7: (0, 1)}}, "spaces numbers column 7, but columns are numbered from 0 to 2"),
        ({"epsilon": 1.0, "spaces": SPACES, "drop": [-1]}, "drop numbers column -1, but columns are numbered from 0"),
        ({"epsilon": 1.0, "spaces": SPACES, "drop": "id"}, "drop must be a list of column names"),
        ({"epsilon": 1.0, "spaces": {**SPACES, "height": (0, 1)}, "drop": ["id"]}, "spaces names 'height'"),
        ({"plan": build_plan({"age": (0, 9)}, epsilon=1.0)}, "plan shuffles rows, which must line up"),
        (
            {"plan": build_plan({"age": (0, 9)}, epsilon=1.0, shuffle=False), "epsilon": 1.0},
            "epsilon is already decided",
        ),
        (
            {"plan": build_plan({"age": (0, 9)}, epsilon=1.0, shuffle=False), "nulls": "impute"},
            "nulls is already decided",
        ),
        ({"plan": build_plan({"age": (0, 9)}, epsilon=1.0, shuffle=False)}, "is in the table but not in the plan"),
        ({"epsilon": 1.0, "ledger": 7, "dataset": "d"}, "ledger must be the path of a file"),
        ({"epsilon": 1.0, "spaces": SPACES, "drop": ["id"], "groups": "age"}, "groups"),
        (
            {"plan": build_plan({"age": (0, 9)}, epsilon=1.0, n=300, sample=100, shuffle=False)},
            "plan releases a sample of the rows",
        ),
        ({"epsilon": 1.0, "dataset": "survey"}, "ledger and dataset go together"),
    ],
)
def test_refusals(options, rule):
    with pytest.raises((dpf.ParameterError, dpf.ColumnError), match=rule):
        fit(**options)


SECRET = 77_123.5
QUOTED = {
    "one dimension": np.full(30, SECRET),
    "no dimension": np.float64(SECRET),
    "complex": np.full((30, 2), SECRET + 1j),
    "text among objects": np.array([[SECRET, "77123.5x"]] * 30, dtype=object),
    "a list of numbers": [SECRET] * 30,
    "objects that are no numbers": np.array([[SECRET, np.datetime64("2000-01-01").item()]] * 30, dtype=object),
    "records": np.array([(SECRET, 1)] * 30, dtype=[("a", float), ("b", int)]),
}


@pytest.mark.parametrize("name", QUOTED)
@pytest.mark.parametrize("fitted", [False, True])
def test_no_refusal_of_an_array_quotes_it(name, fitted):
    """scikit-learn shows arrays of a wrong shape or type, and NumPy the text that is no number."""
    model = dpf.Sanitizer(4.0, spaces=(0, 10))
    call = model.fit(np.ones((30, 2))).transform if fitted else model.fit
    with pytest.raises(dpf.ParameterError) as caught:
        call(QUOTED[name])
    assert not [error for error in (caught.value, caught.value.__context__) if "77123" in repr(error)]


@pytest.mark.parametrize("last", [2, 2.5, 10**400])
def test_no_number_of_a_list_decides_the_type_of_all(last):
    model = dpf.Sanitizer(4.0, spaces=(0, 10), delta=0, nulls="impute").fit([[1], [1]])
    assert model.plan_["x0"].space == dpf.Real(0, 10)
    if last < 10**300:
        assert model.transform([[1], [last]]).dtype == np.float64
    else:  # as of any array
        with pytest.raises(dpf.ParameterError, match="contains infinity or a value too large"):
            model.transform([[1], [last]])


def test_a_release_is_not_sanitised_again():
    safe = dpf.sanitize(table(), epsilon=1, spaces=SPACES, drop=["id"])
    with pytest.raises(dpf.errors.AlreadySanitizedError):
        fit(safe, epsilon=1.0, spaces=SPACES)


def test_columns_of_another_table():
    model = fit(epsilon=1.0, spaces=SPACES, drop=["id"])
    with pytest.raises(ValueError, match="feature names"):
        model.transform(table().rename(columns={"age": "years"}))


def test_representations():
    assert "Sanitizer" in sanitizer()._repr_html_()
    assert repr(sanitizer()) == "Sanitizer(epsilon=1.0, spaces=(-10, 10))"


def test_global_output_configuration():
    with sklearn.config_context(transform_output="pandas"):
        assert sanitizer().fit_transform(numbers()).dp.verify()


# Keys


def test_noise_is_fresh_and_the_key_is_kept_nowhere():
    X = numbers()
    model = sanitizer().fit(X)
    first = model.transform(X)
    with pytest.warns(dpf.errors.RepeatedReleaseWarning):
        second = pickle.loads(pickle.dumps(model)).transform(X)
    assert (first != second).mean() > 0.5
    assert not any(isinstance(value, bytes) for value in vars(model).values())
    assert clone(model).get_params() == model.get_params()


def test_a_seed_repeats_the_release_of_the_same_data_only():
    X = numbers()
    with pytest.warns(dpf.SeededReleaseWarning, match="derived from random_state.*leave random_state out"):
        first = sanitizer(random_state=7).fit_transform(X)
    with pytest.warns(dpf.SeededReleaseWarning):
        again = sanitizer(random_state=7).fit(X).transform(X)
    with pytest.warns() as caught:
        other_seed = sanitizer(random_state=8).fit_transform(X)
    assert {w.category for w in caught} == {dpf.SeededReleaseWarning, dpf.errors.RepeatedReleaseWarning}
    changed = X.copy()
    changed[-1, 0] += 1
    with pytest.warns(dpf.SeededReleaseWarning):
        fold = sanitizer(random_state=7).fit_transform(changed)
    assert (first == again).all()
    # Values 1/65,536 apart on the grid: unrelated noise hardly ever agrees, but at the bounds (both saturated).
    inside = (np.abs(first) < 10) & (np.abs(fold) < 10)
    assert (first == fold)[inside].mean() < 0.01
    assert (first != other_seed).mean() > 0.3


@pytest.mark.filterwarnings("ignore::dpframe.SeededReleaseWarning", "ignore::dpframe.errors.RepeatedReleaseWarning")
@pytest.mark.filterwarnings("ignore::dpframe.OrderLeakWarning")
def test_columns_of_one_seed_have_unrelated_noise():
    X = np.zeros((500, 2))
    X[0] = 1.0, -1.0
    out = sanitizer(random_state=0).fit_transform(X)
    assert abs(np.corrcoef(out.T)[0, 1]) < 0.2
    state = np.random.RandomState(0)
    model = sanitizer(random_state=state).fit(X)
    assert (model.transform(X) != model.transform(X)).any()


# What is spent


def released(model, *arrays):
    """Transform in turn; return the texts of the warnings, except of spaces that inference missed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", dpf.InferenceWarning)
        for X in arrays:
            model.transform(X)
    assert all(issubclass(w.category, dpf.errors.RepeatedReleaseWarning) for w in caught)
    return [str(w.message) for w in caught]


def test_rows_released_again_are_warned_of_at_every_doubling():
    X = numbers()
    model = sanitizer(0.5).fit(X)
    assert released(model, X) == []
    [text] = released(model, X)
    assert "released 2 times in this process, which adds up to epsilon=1, delta=2e-06" in text
    assert "sanitise once, outside the pipeline" in text
    [text] = released(sanitizer(2.0).fit(X), X, X, X)
    assert "released 4 times in this process, which adds up to epsilon=5, delta=4e-06" in text


@pytest.mark.parametrize("spaces", [None, (0, 100)], ids=["inferred", "declared"])
def test_steps_for_different_columns_of_the_same_rows_add_up(spaces):
    """Each was counted by itself: the sum was half of what the page says."""
    table = pd.DataFrame({"age": np.arange(300) % 90, "visits": np.arange(300) % 7})
    options = {"epsilon": 8, "delta": 1e-6, "spaces": spaces}
    both = ColumnTransformer([(name, dpf.Sanitizer(**options), [name]) for name in table])
    with pytest.warns(dpf.errors.RepeatedReleaseWarning) as caught:
        both.fit_transform(table)
        both.fit_transform(table)
    texts = [str(one.message) for one in caught if one.category is dpf.errors.RepeatedReleaseWarning]
    for times, text in zip((2, 4), texts, strict=True):
        assert f"released {times} times" in text
        epsilon = float(re.search(r"adds up to epsilon=([0-9.]+)", text)[1])
        assert epsilon == pytest.approx(8 * times, rel=0.02)
    other = table.set_axis(table.index + 300)
    assert released(dpf.Sanitizer(**options).fit(other[["age"]]), other[["age"]]) == []


def test_disjoint_rows_are_not_repeated():
    X = numbers()
    assert released(sanitizer().fit(X), X[:50], X[50:100], X[100:]) == []
    assert released(sanitizer().fit(X), numbers(seed=5)) == []
    # Equal rows of an array may be two persons, as long as there were never fewer at once.
    same = np.column_stack([np.tile([1.0, 2.0, 2.0, 1.0], 50), np.zeros(200)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpf.OrderLeakWarning)
        model = sanitizer().fit(same)
        model.transform(same[:160])
        model.transform(same[160:])
        with pytest.warns(dpf.errors.RepeatedReleaseWarning, match="released 2 times"):
            model.transform(same)
    # Equal rows of two persons are told apart by their labels.
    frame = pd.DataFrame({"age": np.repeat(30, 60)}, index=np.arange(60))
    model = dpf.Sanitizer(1.0, spaces={"age": (0, 100)}).fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpf.OrderLeakWarning)
        model.transform(frame[:30])
        model.transform(frame[30:])


@pytest.mark.filterwarnings("ignore::dpframe.SeededReleaseWarning")
def test_the_very_same_seeded_release_adds_nothing():
    X = numbers()
    model = sanitizer(random_state=0).fit(X)
    first = model.transform(X)
    for _ in range(3):
        assert (model.transform(X) == first).all()


def test_a_grid_search_says_what_it_adds_up_to():
    X = numbers(60)
    pipeline = make_pipeline(sanitizer(1.0), StandardScaler(), LinearRegression())
    search = GridSearchCV(pipeline, {"linearregression__positive": [True, False, True]}, cv=5)
    with pytest.warns(dpf.errors.RepeatedReleaseWarning) as caught:
        search.fit(X, X[:, 0])
    texts = [str(w.message) for w in caught if w.category is dpf.errors.RepeatedReleaseWarning]
    # 3 values and 5 folds release every row 15 times, and the best one is fitted to all again.
    assert [f"released {k} times" in text for k, text in zip((2, 4, 8, 16), texts, strict=True)] == [True] * 4
    assert "epsilon=16, delta=1.6e-05" in texts[-1]


@given(st.lists(st.lists(st.integers(0, 40), min_size=1), max_size=12), st.integers(3, 50))
def test_the_account_counts_every_row_it_remembers(calls, most):
    cost = dpf.Budget(0.5, 1e-6)
    spread = np.random.default_rng(1).integers(0, 1 << 63, 41).astype(np.uint64) * np.uint64(2)
    spent, counts, most_at_once = ReleasedRows(most), dict.fromkeys(range(41), 0), dict.fromkeys(range(41), 0)
    told = dict.fromkeys(range(41), 0)
    for call in calls:
        found = spent.add(spread[call], cost)
        for row in set(call):
            counts[row] += call.count(row)
            most_at_once[row] = max(most_at_once[row], call.count(row))
        each = sorted(counts[row] / most_at_once[row] for row in call)
        middle = each[(len(call) - 1) // 2]
        if most > 41:
            assert (found is not None) == (middle >= 2 * max(1, *(told[row] for row in call), 0))
        if found is not None:
            releases, inferences, epsilon, delta = found
            assert releases >= 2
            assert inferences == 0
            assert releases == int(epsilon / 0.5 + 1e-9)
            assert epsilon == pytest.approx(0.5 * delta * 1e6)
            told |= dict.fromkeys(call, middle)
            assert most <= 41 or epsilon == pytest.approx(middle / 2)
    assert len(spent.rows) <= most
    remembered = {row for row in counts if spread[row] in spent.rows}
    for row in remembered:
        place = np.searchsorted(spent.rows, spread[row])
        assert spent.spent[place, RELEASES] == counts[row]
        assert spent.spent[place, MOST_COPIES] == most_at_once[row]
    if most > 41:
        assert remembered == {row for row, count in counts.items() if count}


def test_inference_belongs_to_the_release_that_follows():
    rows, share, rest = np.arange(5, dtype=np.uint64), dpf.Budget(0.1), dpf.Budget(0.9)
    spent = ReleasedRows()
    assert spent.add(rows, share, inference=True) is None
    assert spent.add(rows, rest) is None
    assert spent.add(rows, share, inference=True) is None
    assert spent.add(rows, rest) == (2, 2, pytest.approx(2.0), 0.0)
    # Inference alone, again and again, is worth a word too.
    spent = ReleasedRows()
    found = [spent.add(rows, share, inference=True) for _ in range(5)]
    assert found == [None, None, (0, 3, pytest.approx(0.3), 0.0), None, (0, 5, pytest.approx(0.5), 0.0)]
    assert spent.add(rows, share, b"k", inference=True) is None
    assert spent.add(rows, share, b"k", inference=True) is None
    assert spent.spent[0, INFERENCES] == 6


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.table, pl.DataFrame])
def test_rows_are_known_whatever_holds_them(kind):
    data = {"a": [1.5, 2.5, 1.5], "b": ["x", None, "x"], "c": [["p", "q"], [], ["p", "q"]]}
    frame = wrap(kind(data))
    first, second, third = row_hashes(frame, frame.names, None)
    assert first == third != second
    assert (row_hashes(frame, frame.names, None) == row_hashes(wrap(kind(data)), frame.names, None)).all()
    labelled = row_hashes(frame, frame.names, pd.RangeIndex(3))
    assert len(set(labelled.tolist())) == 3


@pytest.mark.parametrize("wrapped", [lambda array: array, lambda array: [array]], ids=["arrays", "lists of arrays"])
def test_leak_arrays_are_known_by_all_of_their_numbers(wrapped):
    """A seed's key follows from them: NumPy shows neither the middle of a long array nor the last digits."""
    long, digits = np.zeros(2_000), np.array([0.123456789])
    other = long.copy()
    other[1_000] = 1.0
    for one, two in ((long, other), (digits, np.array([0.12345679]))):
        frame = wrap(pd.DataFrame({"a": pd.Series([wrapped(one), wrapped(two), wrapped(one.copy())], dtype=object)}))
        first, second, third = row_hashes(frame, frame.names, None)
        assert first == third != second


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_leak_text_of_one_row_that_is_no_utf8(type_):
    """It was refused in the count of releases, after the spend, by an error that quotes it."""
    entries = [b"a", b"b", b"77123\xff", b"a"]
    text = pa.string() if pa.types.is_dictionary(type_) else type_
    plain = pa.array(entries, pa.large_binary() if text == pa.large_string() else pa.binary()).view(text)
    column = plain.dictionary_encode() if pa.types.is_dictionary(type_) else plain
    first, second, third, fourth = row_hashes(wrap(pa.table({"a": column})), ["a"], None)
    assert first == fourth
    assert len({first, second, third}) == 3
    frame = pd.DataFrame({"a": pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([column] * 100)))})
    assert len(dpf.Sanitizer(4.0, spaces={"a": dpf.Categorical(["a", "b"], other="b")}).fit_transform(frame)) == 400


def ledger(tmp_path, total, delta=1e-5):
    book = dpf.Ledger(tmp_path / "ledger.sqlite")
    book.create("survey", total, delta, accounting="basic")  # which rows in kept order are for
    return book


def spends(book):
    return [(str(entry["what"]), float(entry["epsilon"])) for entry in book.history("survey").to_dict("records")]


def test_a_ledger_is_charged_before_noise_is_drawn_and_shared_by_clones(tmp_path):
    X, book = numbers(), ledger(tmp_path, 2.5)
    model = sanitizer(ledger=book, dataset="survey").fit(X)
    assert spends(book) == []
    assert released(model, X) == []
    clone(model).set_params(ledger=str(book.path)).fit(X).transform(X)
    assert spends(book) == [("release", 1.0)] * 2
    with pytest.raises(dpf.BudgetExceeded, match="nothing was spent and nothing was drawn"):
        model.transform(X)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.transform(np.full((2, 2), np.nan))
    assert len(spends(book)) == 2


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_fit_and_the_first_transform_are_the_promise(tmp_path):
    X, book = numbers(500), ledger(tmp_path, 3.0)
    model = dpf.Sanitizer(1.0, infer_share=0.25, ledger=book, dataset="survey").fit(X)
    inferred, rows = model.plan_.inferred, model.plan_.released
    assert spends(book) == [("inference", inferred.budget.epsilon)]
    assert rows.epsilon < 1.0 < rows.epsilon + inferred.budget.epsilon  # together they cost less than apart
    assert book.find(inferred.receipt) is not None
    assert model.plan_.release == dpf.Budget(1.0, 1e-6)
    model.transform(X)
    model.transform(X[:100])
    assert spends(book)[1:] == [("release", rows.epsilon)] * 2
    # Without a ledger the process counts the same.
    other = dpf.Sanitizer(1.0, infer_share=0.25).fit(X)
    plans = [other.plan_]
    assert released(other, X) == []
    [text] = released(other.fit(X), X)
    plans.append(other.plan_)
    assert "released 2 times and had spaces inferred 2 times" in text
    both = sum(plan.inferred.budget.epsilon + plan.released.epsilon for plan in plans)
    assert f"epsilon={both:g}, delta=" in text
    # Nothing is drawn where the budget is too small.
    poor = dpf.Ledger(tmp_path / "poor.sqlite")
    poor.create("survey", 0.2)
    with pytest.raises(dpf.BudgetExceeded):
        dpf.Sanitizer(1.0, infer_share=0.25, ledger=poor, dataset="survey").fit(X)


@pytest.mark.filterwarnings("ignore::dpframe.SeededReleaseWarning", "ignore::dpframe.errors.RepeatedReleaseWarning")
def test_a_seed_repeats_the_inference_of_the_same_data_only():
    X = numbers(500)
    plans = [dpf.Sanitizer(4.0, random_state=3).fit(data).plan_ for data in (X, X.copy())]
    assert plans[0] == plans[1]
    measured = {
        dpf.Sanitizer(4.0, random_state=seed).fit(data).plan_.inferred.to_json()["measured"].__repr__()
        for seed, data in ((3, X), (4, X), (3, np.where(np.arange(500)[:, None] < 1, 0.0, X)))
    }
    assert len(measured) == 3


# Values that inference did not see


class Shy:
    """An object that cannot even be shown."""

    def __repr__(self):
        raise ValueError("no")


def objects(*values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def seen(n=2_000):
    """A table of columns of all kinds, none declared."""
    half = np.arange(n) % 2 == 0
    return pd.DataFrame(
        {
            "number": np.linspace(0, 50, n),
            "whole": pd.array(np.arange(n) % 40, dtype="Int64"),
            "text": np.where(half, "a", "b"),
            "object": objects(*np.where(half, "a", "b")),
            "set": objects(*([["x"], ["x", "y"]] * (n // 2))),
            "flag": pd.array(half, dtype="boolean"),
        }
    ).astype({"object": object})


UNSEEN = {
    "number": [np.nan, np.inf, -np.inf, 1e300, -1e300, 1.0],
    "whole": pd.array([None, 2**62, -(2**62), 5, None, 0], dtype="Int64"),
    "text": [None, "c", "", "x" * 300, "a", "\U0001f600"],
    "object": objects(3, None, Shy(), ["a"], b"x", "\ud800"),
    "set": objects(None, "x", ["z"], 3.5, object, {"k": 1}),
    "flag": pd.array([None, True, False, None, True, True], dtype="boolean"),
}


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_transform_takes_what_sanitize_takes_under_an_inferred_plan():
    model = dpf.Sanitizer(8.0).fit(seen())
    plan = model.plan_
    assert set(plan.inferred.columns) == set(seen().columns)
    odd = pd.DataFrame(UNSEEN).astype({"text": seen()["text"].dtype, "object": object, "set": object})
    expected = dpf.sanitize(odd, plan=plan)
    out = model.transform(odd)
    assert out.shape == expected.shape == (6, 6)
    assert out.dtypes.equals(expected.dtypes)
    assert dpf.Sanitizer(plan=plan).fit(odd).transform(odd).shape == (6, 6)
    # One key, one release: both code the values alike.
    with pytest.warns(dpf.SeededReleaseWarning):
        seeded = dpf.Sanitizer(plan=plan, random_state=1).fit(odd).transform(odd)
    with pytest.warns(dpf.SeededReleaseWarning):
        pd.testing.assert_frame_equal(
            seeded, dpf.Sanitizer(plan=plan, random_state=1).fit(odd).transform(odd), check_exact=True
        )


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_arrays_hold_anything_where_spaces_are_inferred():
    X = np.linspace(0.0, 50.0, 2_000).reshape(-1, 1)
    odd = np.array([[np.nan], [np.inf], [-1e300], [1e300]])
    model = dpf.Sanitizer(8.0).fit(np.vstack([X, odd]))
    assert np.isfinite(model.transform(odd)[1:]).all()
    assert dpf.Sanitizer(plan=model.plan_).fit(odd).transform(odd).shape == (4, 1)
    with pytest.raises(ValueError, match="infinity"):
        dpf.Sanitizer(1.0, spaces=(0, 50)).fit(odd[1:])


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_object_columns_are_inferred():
    frame = seen()[["object", "set"]]
    model = dpf.Sanitizer(8.0).fit(frame)
    spaces = {column.name: column.space for column in model.plan_.columns}
    assert spaces["object"].categories == ("a", "b")
    assert spaces["set"].items == ("x", "y")
    assert model.transform(frame).shape == frame.shape


def test_a_column_declared_beside_is_still_checked():
    frame = seen()[["text", "flag"]]
    model = dpf.Sanitizer(8.0, spaces={"text": ["a", "b"]}).fit(frame)
    with pytest.raises(dpf.ColumnError, match="column 'text' at row position 1"):
        model.transform(pd.DataFrame({"text": ["a", "c"], "flag": pd.array([True, None], dtype="boolean")}))


def test_groups_and_mechanisms_by_number():
    X = np.column_stack([np.arange(60) % 2, np.arange(60) % 3, np.arange(60) * 7 % 4]).astype(float)
    model = dpf.Sanitizer(
        4.0,
        spaces={0: dpf.Integer(0, 1), 1: dpf.Integer(0, 2), 2: dpf.Integer(0, 3)},
        groups=[(0, "x2")],
        mechanisms={1: "randomized_response"},
        allocation={(0, 2): 0.75},
    ).fit(X)
    assert model.plan_.groups[0].names == ("x0", "x2")
    assert model.plan_["x1"].mechanism.tag == "randomized_response"
    assert model.plan_.groups[0].mechanism.epsilon == pytest.approx(3.0, rel=1e-3)


# On real rows


@pytest.mark.slow
def test_a_search_over_adult(adult, adult_spaces):
    people = adult.drop(columns="fnlwgt").iloc[:3_000].reset_index(drop=True)
    X, y = people.drop(columns="income"), people["income"]
    listed = [
        name for name in X if name not in ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
    ]
    pipeline = make_pipeline(
        dpf.Sanitizer(20.0, spaces={name: adult_spaces[name] for name in X}),
        ColumnTransformer([("listed", OneHotEncoder(handle_unknown="ignore"), listed)]),
        BernoulliNB(),
    )
    search = GridSearchCV(pipeline, {"bernoullinb__alpha": [0.1, 1.0, 10.0]}, cv=5)
    with pytest.warns(dpf.errors.RepeatedReleaseWarning) as caught:
        search.fit(X, y)
    assert "16 times in this process, which adds up to epsilon=320, delta=1.6e-05" in str(caught[-1].message)
    assert search.best_score_ > 0.6
