"""Any function of the table: its labels, its refusals, and intervals that hold.

Keys are fixed. Each statistical test states the probability of its failure were the keys drawn at random.
"""

import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from checks import refused

import dpframe as dpf
from dpframe.errors import InferenceWarning, ParameterError
from dpframe.estimate.functions import FunctionValues, find_columns_read
from dpframe.estimate.synthetic_copies import SyntheticCopies

ROWS = 2_000
SPACES = {
    "ward": ["a", "b", "c"],
    "smoker": dpf.Boolean(),
    "visits": (0, 30),
    "stay": dpf.Nullable(dpf.Real(0, 20)),
    "day": (pd.Timestamp("2024-01-01"), pd.Timestamp("2024-12-31")),
}


def key(number):
    return bytes([number]) * 32


@pytest.fixture(scope="module")
def clinic():
    generator = np.random.default_rng(2)
    ward = generator.choice(["a", "b", "c"], ROWS, p=[0.5, 0.3, 0.2])
    stay = generator.gamma(3, 1.5, ROWS).clip(0, 20).round(1)
    stay[generator.random(ROWS) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "ward": ward,
            "smoker": generator.random(ROWS) < 0.2 + 0.3 * (ward == "b"),
            "visits": generator.poisson(3 + 3 * (ward == "c")).clip(0, 30),
            "stay": stay,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(generator.integers(0, 366, ROWS), unit="D"),
        }
    )


@pytest.fixture(scope="module")
def safe(clinic):
    return clinic.dp.sanitize(epsilon=4, spaces=SPACES, key=key(1))


# What f gets, and what comes back -----------------------------------------------------------------------------


def test_f_gets_tables_like_the_original(clinic, safe):
    tables = []

    def shape(table):
        tables.append(table)
        return len(table)

    found = safe.dp.infer(shape, columns=list(clinic), draws=5)
    assert found["estimate"] == found["lower"] == found["upper"] == ROWS
    for table in tables:
        assert dict(table.dtypes) == dict(clinic.dtypes)
        assert table.attrs == {}
        assert table["ward"].isin(["a", "b", "c"]).all()
        assert table["visits"].between(0, 30).all()
        assert 0.05 < table["stay"].isna().mean() < 0.15
        assert table["day"].dt.normalize().equals(table["day"])
    assert len({tuple(table["visits"]) for table in tables}) == 5


@pytest.mark.parametrize(
    ("f", "labels"),
    [
        (lambda t: t["visits"].sum(), None),
        (lambda t: t.groupby("ward")["visits"].mean()[["c", "a", "b"]], ["c", "a", "b"]),
        (lambda t: t[["visits", "stay"]].mean().to_numpy(), [0, 1]),
        (lambda t: t.groupby(["ward", "smoker"])["visits"].count(), [(w, s) for w in "abc" for s in (False, True)]),
    ],
)
def test_results_have_the_labels_of_f(safe, f, labels):
    found = safe.dp.infer(f, draws=5)
    if labels is None:
        assert isinstance(found, pd.Series)
        assert list(found.index) == ["estimate", "std_error", "lower", "upper"]
    else:
        assert list(found.columns) == ["estimate", "std_error", "lower", "upper"]
        assert list(found.index) == labels
    assert (found["lower"] <= found["estimate"]).all() if labels else found["lower"] <= found["estimate"]


def test_objects_with_parameters_are_read(safe):
    class Fit:
        def __init__(self, table):
            self.params = pd.Series({"mean": table["visits"].mean()})
            self.bse = pd.Series({"mean": table["visits"].std() / len(table) ** 0.5})

    table, population = (safe.dp.infer(Fit, target=target, draws=20) for target in ("table", "population"))
    assert list(table.index) == ["mean"]
    chance = population.loc["mean", "std_error"] ** 2 - table.loc["mean", "std_error"] ** 2
    assert chance**0.5 == pytest.approx(2.6 / ROWS**0.5, rel=0.2)


def test_the_columns_that_f_reads_are_found(safe):
    found = safe.dp.infer(lambda t: t.query("smoker and visits > 2")["stay"].median(), draws=5)
    assert found.attrs["columns"] == ["smoker", "visits", "stay"]
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 5.0], "c": [0.0, 1.0]})
    assert find_columns_read(lambda t: t.get("b", pd.Series([0.0])).sum() + t.a.sum(), table) == ["a", "b"]


def test_a_release_has_one_answer(safe):
    def f(table):
        return table.groupby("ward")["visits"].median()

    first = safe.dp.infer(f, draws=10)
    safe.dp.infer(lambda t: t["stay"].mean(), draws=10)
    pd.testing.assert_frame_equal(first, safe.dp.infer(f, draws=10))
    again = dpf.Estimates(safe.copy()).infer(f, columns=["visits", "ward"], draws=10)
    pd.testing.assert_frame_equal(first, again)


def test_columns_that_were_not_found_are_nan(clinic):
    clinic = clinic[["visits"]].assign(odd=np.geomspace(1e-9, 1e12, ROWS)[::-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        safe = clinic.dp.sanitize(epsilon=0.05, spaces={"visits": (0, 30)}, key=key(1))
        assert [one.column for one in safe.dp.release.plan.not_found] == ["odd"]
    with pytest.warns(InferenceWarning, match="odd"):
        found = safe.dp.infer(lambda t: t["odd"].mean(), columns=["odd"])
    assert found[["estimate", "lower", "upper"]].isna().all()
    assert "odd" in found.attrs["not_found"]


# Refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda t: "many", "f returns str that holds no numbers"),
        (lambda t: t["ward"].mode(), "f returns Series that holds no numbers"),
        (lambda t: t[["visits"]], "f returns a DataFrame"),
        (lambda t: t[["visits", "stay"]].to_numpy(), "array of 2 dimensions"),
        (lambda t: pd.Series([1.0, 2.0], ["a", "a"]) * t["visits"].sum(), "labels repeat"),
        (lambda t: t["visits"].to_numpy()[: int(t["visits"].sum()) % 50], "changes its length"),
        (lambda t: pd.Series(t["visits"].unique()[: int(t["visits"].sum()) % 29]), "changes its length"),
        (lambda t: 3, "f reads no column"),
        ("visits", "f must be a function"),
    ],
)
def test_what_f_returns_is_refused_in_one_line(safe, f, message):
    refused(ParameterError, message, lambda: safe.dp.infer(f))


def test_what_f_raises_reaches_the_user(safe):
    with pytest.raises(ZeroDivisionError) as raised:
        safe.dp.infer(lambda t: t["visits"].sum() / 0 if isinstance(t, str) else 1 / 0)
    assert any("lambda" in str(entry.name) for entry in raised.traceback)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["visit"]}, "did you mean 'visits'"),
        ({"columns": []}, "at least one column"),
        ({"draws": 1}, "draws"),
        ({"draws": 400}, "from 2 to 40"),
        ({"target": "sample"}, "target"),
    ],
)
def test_options_are_refused_in_one_line(safe, options, message):
    refused(ParameterError, message, lambda: safe.dp.infer(lambda t: t["visits"].mean(), **options))


def test_sets_are_refused_with_a_remedy():
    frame = pd.DataFrame({"hobbies": [["chess"], []] * 50})
    safe = frame.dp.sanitize(epsilon=4, spaces={"hobbies": dpf.Subset(["chess", "golf"])}, key=key(1))
    with pytest.raises(ParameterError, match=r"'hobbies' holds sets.*support"):
        safe.dp.infer(lambda t: len(t), columns=["hobbies"])


# Warnings -----------------------------------------------------------------------------------------------------


def test_columns_that_say_nearly_the_same_are_named(clinic):
    clinic = clinic.assign(again=clinic["visits"] + 1)
    safe = clinic[["visits", "again"]].dp.sanitize(epsilon=8, spaces={"visits": (0, 30), "again": (1, 31)}, key=key(1))
    with pytest.warns(InferenceWarning, match="'visits' and 'again' say nearly the same"):
        found = safe.dp.infer(lambda t: (t["again"] - t["visits"]).mean())
    assert found.attrs["weak"]["nearly_the_same"] == [("visits", "again")]


# Intervals ----------------------------------------------------------------------------------------------------


def test_rubins_rules():
    generator = np.random.default_rng(0)
    values = FunctionValues(None, generator.normal(5, 2, (40, 1)), np.array([3.0]))
    table, population = (values.results(1.96, target) for target in (False, True))
    between = values.values.var(ddof=1) * (1 + 1 / 40)
    assert table.std_error[0] ** 2 == pytest.approx(between)
    assert population.std_error[0] ** 2 == pytest.approx(between + 3.0)
    # Student's quantile of 39 degrees of freedom.
    assert (table.upper - table.estimate)[0] == pytest.approx(2.0227 * between**0.5, rel=1e-3)


def test_an_interval_of_few_values_reaches_half_a_step():
    values = np.array([7.0] * 38 + [8.0] * 2)[:, None]
    found = FunctionValues(None, values).results(1.96, False)
    assert found.estimate[0] == 7.0
    assert found.upper[0] >= 7.5
    assert found.lower[0] <= 6.5


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_intervals_hold_and_are_no_wider_than_they_must_be(clinic, epsilon):
    """Of 120 answers .95 hold: fewer than .88 by chance once in 2,000 keys; errors fill intervals."""
    questions = [
        lambda t: t.groupby("ward")["visits"].median(),
        lambda t: t.groupby("ward")["stay"].mean(),
        lambda t: t["visits"].corr(t["smoker"].astype(float), method="spearman"),
        lambda t: t["stay"].nlargest(len(t) // 10).mean(),
        lambda t: t["visits"].sum() / t["stay"].sum(),
        lambda t: np.log((t["smoker"] & (t["ward"] == "b")).sum() / (t["smoker"] & (t["ward"] == "a")).sum()),
    ]
    holds, parts = [], []
    for number in range(1, 13):
        safe = clinic.dp.sanitize(epsilon=epsilon, spaces=SPACES, key=key(number))
        for f in questions:
            found, truth = safe.dp.infer(f), f(clinic)
            held = (found["lower"] <= truth) & (truth <= found["upper"])
            # A median that all draws have is exact.
            half = np.maximum((found["upper"] - found["lower"]) / 2, 1e-9)
            holds.extend(np.atleast_1d(held))
            parts.extend(np.atleast_1d(abs(truth - found["estimate"]) / half))
    assert len(holds) == 120
    assert np.mean(holds) >= 0.88
    assert np.quantile(parts, 0.95) > 0.55


# Copies -------------------------------------------------------------------------------------------------------


def test_copies_are_tables_and_combine_by_rubins_rules(clinic, safe, tmp_path):
    copies = safe.dp.synthesize(copies=5, columns=["ward", "visits"])
    assert isinstance(copies, SyntheticCopies)
    assert [table.shape for table in copies] == [(ROWS, 2)] * 5
    assert dict(copies[0].dtypes) == dict(clinic[["ward", "visits"]].dtypes)

    def f(table):
        return table.groupby("ward")["visits"].mean()

    found = copies.combine(f, target="table")
    pd.testing.assert_frame_equal(found, safe.dp.infer(f, draws=5), check_exact=False)
    assert (copies.combine(f)["std_error"] > found["std_error"]).all()
    paths = copies.to_parquet(tmp_path / "copies")
    assert [path.name for path in paths] == [f"copy-0{number}.parquet" for number in range(1, 6)]
    pd.testing.assert_frame_equal(pd.read_parquet(paths[2]), copies[2], check_like=True)
    with pytest.raises(dpf.FileError, match="holds synthetic copies already"):
        copies.to_parquet(tmp_path / "copies")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"copies": 1}, "copies"),
        ({"copies": 5, "n_rows": 10}, "leave out n_rows and random_state"),
        ({"copies": 5, "random_state": 0}, "leave out n_rows and random_state"),
        ({"columns": ["ward"]}, "columns are those of copies="),
        ({"copies": 5, "columns": ["wards"]}, "did you mean 'ward'"),
    ],
)
def test_copies_are_refused_in_one_line(safe, options, message):
    refused(ParameterError, message, lambda: safe.dp.synthesize(**options))


def test_copies_that_cannot_be_written_are_refused(safe, tmp_path):
    copies = safe.dp.synthesize(copies=2, columns=["ward"])
    (tmp_path / "file").write_text("")
    with pytest.raises(dpf.FileError, match="cannot be written"):
        copies.to_parquet(tmp_path / "file" / "copies")
    for options in ({"f": 3}, {"f": len, "target": "sample"}, {"f": len, "confidence_level": 2}):
        with pytest.raises(ParameterError):
            copies.combine(**options)


def test_one_synthetic_table_warns_once_in_a_process(safe, monkeypatch):
    monkeypatch.setattr("dpframe.estimate.estimates._has_warned_of_one_table", False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        safe.dp.synthesize(random_state=0)
        safe.dp.synthesize(random_state=1)
    assert sum("standard errors" in str(one.message) for one in caught) == 1


def test_columns_that_no_table_counts_are_named(clinic):
    safe = clinic[["visits"]].dp.sanitize(epsilon=4, spaces={"visits": (0, 30)}, measure=None, key=key(1))
    with pytest.warns(InferenceWarning, match="only released rows count visits"):
        found = safe.dp.infer(lambda t: t["visits"].mean())
    assert found.attrs["weak"] == {"rows_only": ["visits"]}
    assert found["lower"] <= clinic["visits"].mean() <= found["upper"]


def test_a_handful_of_rows_says_next_to_nothing():
    """Of five rows and noise on each, draws of the mean lie all over the space."""
    frame = pd.DataFrame({"height": [160.0, 165.0, 170.0, 175.0, 180.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        safe = frame.dp.sanitize(epsilon=1, spaces={"height": dpf.Real(100, 250)}, key=key(1))
        found = safe.dp.infer(lambda t: t["height"].mean())
    assert found["std_error"] > 15
    assert found["lower"] <= 170 <= found["upper"]


def test_rules_hold_in_every_row():
    generator = np.random.default_rng(5)
    frame = pd.DataFrame({"start": generator.integers(0, 9, 1_000), "open": generator.random(1_000) < 0.3})
    frame["end"] = np.where(frame["open"], 12, (frame["start"] + generator.integers(0, 4, 1_000)).clip(0, 12))
    rules = [dpf.Ordered("start", "end"), dpf.Implies({"open": True}, {"end": (12, 12)})]
    spaces = {"start": (0, 9), "open": dpf.Boolean(), "end": (0, 12)}
    safe = frame.dp.sanitize(epsilon=2, spaces=spaces, rules=rules, key=key(1))
    with pytest.warns(InferenceWarning, match="say nearly the same"):
        whole = safe.dp.synthesize(copies=2)
    for table in whole:
        assert (table["start"] <= table["end"]).all()
        assert (table.loc[table["open"], "end"] == 12).all()
    for table in safe.dp.synthesize(copies=2, columns=["start", "end"]):
        assert (table["start"] <= table["end"]).all()


def test_a_column_of_one_value_leaves_the_others_as_they_are(clinic):
    table = clinic[["visits"]].assign(one="x")
    safe = table.dp.sanitize(epsilon=4, spaces={"visits": (0, 30), "one": ["x"]}, key=key(1))
    found = safe.dp.infer(lambda t: t["visits"].mean(), columns=["visits", "one"])
    assert abs(found["estimate"] - clinic["visits"].mean()) < 5 * found["std_error"]
    assert 0 < found["std_error"] < 0.5


def test_a_function_that_is_the_same_of_all_draws_has_no_error(safe):
    for target in ("table", "population"):
        found = safe.dp.infer(lambda t: len(t["visits"]), target=target, draws=3)
        assert found["lower"] == found["upper"] == ROWS


@pytest.mark.parametrize(
    "f",
    [
        lambda t: None if len(t["visits"]) else 0,
        lambda t: complex(t["visits"].sum(), 1),
        lambda t: str(t["visits"].sum()),
        lambda t: t["day"].max(),
        lambda t: ([1, 2], t["visits"].tolist()),
    ],
)
def test_what_is_no_number_is_refused(safe, f):
    refused(ParameterError, "holds no numbers", lambda: safe.dp.infer(f))


def test_intervals_of_few_draws_are_of_students_law():
    values = np.array([[1.0], [2.0]])
    found = FunctionValues(None, values).results(1.959964, False)
    # Two draws: one degree of freedom, whose quantile is 12.706.
    assert (found.upper - found.estimate)[0] == pytest.approx(12.706 * (1.5 * 0.5) ** 0.5, rel=1e-3)


def test_values_of_fewer_than_half_of_the_draws_are_nan():
    values = np.full((40, 2), np.nan)
    values[:10, 0] = [1.0, 2.0] * 5
    values[:, 1] = np.linspace(0, 1, 40)
    found = FunctionValues(pd.Index(["few", "all"]), values).results(1.96, False)
    assert np.isnan([found.estimate[0], found.lower[0], found.upper[0]]).all()
    assert found.estimate[1] == pytest.approx(0.5)


def test_no_copies_are_refused():
    with pytest.raises(ParameterError, match="no copies"):
        SyntheticCopies().combine(len)


@pytest.mark.parametrize(("epsilon", "is_hidden"), [(0.1, True), (8, False)])
def test_answers_name_the_pairs_whose_dependence_noise_hides(epsilon: float, is_hidden: bool) -> None:
    generator = np.random.default_rng(0)
    height = generator.normal(170, 8, 1_000).round()
    frame = pd.DataFrame({"height": height, "weight": (height - 100 + generator.normal(0, 8, 1_000)).round()})
    safe = dpf.sanitize(frame, epsilon=epsilon, spaces={"height": (100, 220), "weight": (20, 200)}, key=bytes(32))
    text = "noise hides how 'height' and 'weight' depend"
    with pytest.warns(dpf.errors.InferenceWarning, match=text) if is_hidden else nullcontext():
        answer = safe.dp.mean("weight", where={"height": (180, None)})
    assert answer.attrs.get("weak") == ({"hidden_pairs": [("height", "weight")]} if is_hidden else None)
