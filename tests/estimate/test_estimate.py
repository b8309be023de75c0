"""Estimates: exactness against the matrix, unbiasedness, coverage, refusals."""

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from examples import plan_of
from readings import released_codes

import dpframe as dpf
from dpframe import Estimates, ReleaseInfo

KEY = bytes(range(32))
SPACES = {
    "sex": ["F", "M"],
    "grade": dpf.Nullable(dpf.Ordinal(["a", "b", "c", "d"])),
    "job": dpf.Nullable(dpf.Categorical(["x", "y", "z"])),
    "age": dpf.Integer(0, 60),
    "wage": dpf.Nullable(dpf.Real(0, 10, steps=100)),
    "paid": dpf.Boolean(),
}


def make_table(n, seed=1):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], n, p=[0.4, 0.6])
    return pd.DataFrame(
        {
            "sex": sex,
            "grade": pd.Series(rng.choice(["a", "b", "c", "d", None], n, p=[0.1, 0.3, 0.3, 0.1, 0.2]), dtype="str"),
            "job": pd.Series(rng.choice(["x", "y", "z", None], n, p=[0.5, 0.2, 0.1, 0.2]), dtype="str"),
            "age": rng.integers(10, 50, n) + 5 * (sex == "F"),
            "wage": np.where(rng.random(n) < 0.1, np.nan, rng.gamma(2, 1, n).clip(0, 10)),
            "paid": rng.random(n) < 0.7,
        }
    )


TABLE = make_table(1_500)
PLAN = plan_of(SPACES, epsilon=15.0)


def releases(count, table=TABLE, plan=PLAN, names=None, first=0):
    """Yield releases of the same table under different fixed keys, codes only decoded where needed."""
    codes = {c.name: c.space.encode(table[c.name]) for c in plan.columns}
    for i in range(count):
        out = released_codes(codes, plan, (first + i).to_bytes(32, "big"))
        arrays = {c.name: c.space.decode(out[c.name]) for c in plan.columns if names is None or c.name in names}
        yield Estimates(pa.table(arrays), plan)


# Every check below compares a mean over R releases with the truth at 4.5 Monte-Carlo errors (error
# probability 7e-6 each), or a coverage with its binomial range at 4.5 deviations, or stated errors with the standard
# deviation of R releases, known to 1/√(2R), within 4.5 of these; keys are fixed. 400 releases are the full run.
R = int(os.environ.get("DPFRAME_RELEASES", "100"))


def check(estimates, truth, level=0.95):
    """``estimates``: list of (estimate, std_error, lower, upper) arrays, one per release."""
    stacked = np.stack([np.stack(e) for e in estimates])
    point, error, lower, upper = (stacked[:, i] for i in range(4))
    spread = point.std(axis=0, ddof=1)
    assert (np.abs(point.mean(axis=0) - truth) <= 4.5 * spread / np.sqrt(len(point)) + 1e-9).all()
    np.testing.assert_allclose(error.mean(axis=0), spread, rtol=0.32)
    covered = ((lower <= truth) & (truth <= upper)).mean()
    cells = covered.size if covered.ndim else 1
    slack = 4.5 * np.sqrt(level * (1 - level) / (len(point) * cells)) + 0.01
    assert abs(covered - level) <= slack, covered


def parts(table):
    return [np.asarray(table[name]) for name in ("estimate", "std_error", "lower", "upper")]


def test_value_counts_of_the_table():
    truth = TABLE["job"].value_counts().reindex(["x", "y", "z"]).to_numpy()
    check([parts(e.value_counts("job", sort=False)) for e in releases(R, names=["job"])], truth)


def test_shares_without_nulls():
    truth = TABLE["grade"].value_counts(normalize=True).reindex(list("abcd")).to_numpy()
    found = [parts(e.value_counts("grade", normalize=True, sort=False)) for e in releases(R, names=["grade"])]
    check(found, truth)


def test_crosstab():
    truth = pd.crosstab(TABLE["job"], TABLE["sex"]).to_numpy()
    check([parts(e.crosstab("job", "sex")) for e in releases(R, names=["job", "sex"])], truth)


@pytest.mark.slow
@pytest.mark.parametrize("normalize", ["index", "columns", True])
def test_crosstab_normalised(normalize):
    truth = pd.crosstab(TABLE["job"], TABLE["sex"], normalize=normalize).to_numpy()
    found = [parts(e.crosstab("job", "sex", normalize=normalize)) for e in releases(R, names=["job", "sex"])]
    stacked = np.stack([np.stack(e) for e in found])
    assert np.abs(stacked[:, 0].mean(axis=0) - truth).max() < 0.03  # a ratio: its bias is of order 1/n
    covered = ((stacked[:, 2] <= truth) & (truth <= stacked[:, 3])).mean()
    # Between 92 and 98 %, or 3.9 deviations: an error probability of 1e-4 each.
    assert abs(covered - 0.95) < max(0.03, 3.9 * np.sqrt(0.95 * 0.05 / stacked[:, 2].size))


@pytest.mark.parametrize("column", ["age", "wage", "paid"])
def test_mean(column):
    scale = 60 if column == "age" else 1
    truth = TABLE[column].mean() / scale
    found = [[v / scale for v in parts(e.mean(column))] for e in releases(R, names=[column])]
    check(found, truth)


@pytest.mark.walk(2)
@pytest.mark.parametrize("column, by", [("age", "sex"), ("wage", "sex"), ("paid", "job")])
def test_group_means(column, by):
    truth = TABLE.groupby(by)[column].mean().to_numpy(dtype=float)
    found = [parts(e.mean(column, by=by, method="inverse")) for e in releases(R, names=[column, by])]
    stacked = np.stack([np.stack(e) for e in found])
    covered = ((stacked[:, 2] <= truth) & (truth <= stacked[:, 3])).mean()
    assert 0.92 < covered < 0.98


@pytest.mark.slow
def test_population_intervals_cover_the_population():
    counts, means = [], []
    for i in range(R):
        table = make_table(1_000, seed=i)
        (e,) = releases(1, table=table, names=["sex", "age"], first=1_000 + i)
        counts.append(parts(e.value_counts("sex", sort=False, normalize=True, target="population")))
        means.append(parts(e.mean("age", target="population")))
    check(counts, np.array([0.4, 0.6]))
    check([[v / 60 for v in m] for m in means], (29.5 + 5 * 0.4) / 60)


def test_population_is_wider_than_table():
    """On average: both errors are estimated, and those of one release's group means may cross by a few per cent."""
    gaps = []
    for e in releases(8):
        pairs = (
            (e.value_counts("sex", sort=False), e.value_counts("sex", sort=False, target="population")),
            (e.crosstab("sex", "job"), e.crosstab("sex", "job", target="population")),
            (e.mean("wage", by="sex"), e.mean("wage", by="sex", target="population")),
        )
        gaps.append(
            np.concatenate(
                [(wide["std_error"].to_numpy() / t["std_error"].to_numpy() - 1).ravel() for t, wide in pairs]
            )
        )
    assert (np.mean(gaps, axis=0) > 0).all()


def test_joint_equals_the_dense_inverse():
    e = next(releases(1))
    a, b = (PLAN[name] for name in ("grade", "sex"))
    counts = np.zeros((a.space.size, b.space.size))
    codes = released_codes({c.name: c.space.encode(TABLE[c.name]) for c in PLAN.columns}, PLAN, bytes(32))
    np.add.at(counts, (codes["grade"], codes["sex"]), 1)
    dense = np.linalg.inv(a.mechanism.transition()) @ counts @ np.linalg.inv(b.mechanism.transition()).T
    np.testing.assert_allclose(e.crosstab("grade", "sex")["estimate"].to_numpy(), dense[:-1], rtol=1e-9)
    everything = e.crosstab("grade", "sex", dropna=False)["estimate"].to_numpy()
    np.testing.assert_allclose(everything.sum(), len(TABLE), rtol=1e-9)


def test_order_and_labels_are_pandas():
    e = next(releases(1))
    counts = e.value_counts("job")
    assert counts["estimate"].is_monotonic_decreasing
    assert counts.index.name == "job"
    assert e.value_counts("job", ascending=True)["estimate"].is_monotonic_increasing
    assert e.value_counts("job", sort=False, dropna=False).index.isna().tolist() == [False, False, False, True]
    table = e.crosstab("sex", "job")
    assert table.index.name == "sex"
    assert list(table.columns.get_level_values(0).unique()) == ["estimate", "std_error", "lower", "upper"]
    assert e.mean("age").index.tolist() == ["estimate", "std_error", "lower", "upper"]
    assert e.mean("age").name == "age"


def test_confidence_level():
    safe = dpf.sanitize(TABLE, plan=PLAN, key=KEY)
    wide, narrow = (Estimates(safe, PLAN, confidence_level=c) for c in (0.99, 0.5))
    assert wide.mean("age")["lower"] < narrow.mean("age")["lower"]
    for level in (0, 1, 1.5, -0.1):
        with pytest.raises(dpf.ParameterError, match=r"confidence_level must lie in \(0, 1\)"):
            Estimates(TABLE, PLAN, confidence_level=level)


def test_sources_agree(tmp_path):
    safe = dpf.sanitize(TABLE, plan=PLAN, key=KEY)
    safe.to_parquet(tmp_path / "safe.parquet")
    frame, arrow = Estimates(safe), Estimates(pa.Table.from_pandas(safe), PLAN)
    file = Estimates(tmp_path / "safe.parquet")
    for other in (arrow, file):
        pd.testing.assert_frame_equal(frame.crosstab("job", "grade"), other.crosstab("job", "grade"))
        pd.testing.assert_frame_equal(frame.mean("wage", by="sex"), other.mean("wage", by="sex"))


def test_refusals():
    e = Estimates(dpf.sanitize(TABLE.assign(id=1), plan=plan_of(SPACES, epsilon=9, passthrough=["id"]), key=KEY))
    with pytest.raises(dpf.ParameterError, match=r"column 'id' was passed.*pandas is exact"):
        e.mean("id")
    with pytest.raises(dpf.ParameterError, match=r"column 'height' is not.*columns are sex"):
        e.value_counts("height")
    with pytest.raises(dpf.ParameterError, match=r"column 'job' holds no numbers; value_counts\('job'\)"):
        e.mean("job")
    flags = dpf.sanitize(pd.DataFrame({"ill": [True, False] * 20}), epsilon=9, spaces={"ill": [True, False]}, key=KEY)
    with pytest.raises(dpf.ParameterError, match=r"'ill' was declared as categories, .* as Boolean\(\) has a mean"):
        flags.dp.mean("ill")
    with pytest.raises(dpf.ParameterError, match='target must be "table" or "population"'):
        e.mean("age", target="sample")
    with pytest.raises(dpf.ParameterError, match="normalize must be False, True"):
        e.crosstab("sex", "job", normalize="rows")
    with pytest.raises(dpf.ParameterError, match="cannot be crossed with itself"):
        e.crosstab("sex", "sex")
    with pytest.raises(dpf.NotSanitizedError, match="carries no release plan"):
        Estimates(TABLE)


def test_dropped_columns_say_so():
    plan = plan_of({"sex": ["F", "M"]}, epsilon=1, drop=[name for name in TABLE if name != "sex"])
    with pytest.raises(dpf.ParameterError, match="column 'age' was dropped"):
        Estimates(dpf.sanitize(TABLE, plan=plan, key=KEY)).mean("age")


def test_too_many_cells_are_refused_with_their_size():
    plan = plan_of({"a": dpf.Integer(0, 4_000), "b": dpf.Integer(0, 4_000), "c": dpf.Integer(0, 4_000)}, epsilon=2)
    safe = dpf.sanitize(pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": [5, 6]}), plan=plan, key=KEY)
    with pytest.raises(dpf.ParameterError, match=r"64,048,012,001 cells \(512\.4 GB\)"):
        dpf.Estimates(safe).joint(["a", "b", "c"])


def test_damaged_metadata():
    safe = dpf.sanitize(TABLE, plan=PLAN, key=KEY)
    safe.attrs["dpframe"] = "{}"
    with pytest.raises(dpf.errors.PlanError, match="metadata is damaged"):
        safe.dp.mean("age")
    info = ReleaseInfo(PLAN, 3, "0").to_json().replace('"schema": 1', '"schema": 9', 1)
    safe.attrs["dpframe"] = info
    with pytest.raises(dpf.errors.PlanError, match="schema 9, this version reads up to 3"):
        safe.dp.mean("age")


def test_empty_release():
    safe = dpf.sanitize(TABLE.iloc[:0], plan=PLAN, key=KEY)
    assert safe.dp.value_counts("sex")["estimate"].tolist() == [0.0, 0.0]
    assert np.isnan(safe.dp.mean("age")["estimate"])


# Where nothing is known, and where there are few values


def test_a_correlation_of_which_nothing_is_known_is_nan_and_warns(recwarn):
    frame = pd.DataFrame({"x": np.arange(300) % 50, "y": np.arange(300) % 37})
    unknown = known = 0
    for k in range(6):
        for epsilon in (0.5, 200.0):
            safe = dpf.sanitize(
                frame,
                epsilon=epsilon,
                delta=0,
                spaces={"x": (0, 50), "y": (0, 50)},
                mechanisms={"x": "geometric", "y": "geometric"},
                key=bytes([k] * 32),
            )
            recwarn.clear()
            found = safe.dp.corr().loc["x"].xs("y", level=1)
            warned = any("\n  'x' and 'y'" in str(w.message) for w in recwarn)
            everything = found["lower"] == -1 and found["upper"] == 1
            assert bool(np.isnan(found["estimate"])) == everything == warned
            unknown, known = unknown + everything, known + (not everything)
    assert unknown
    assert known


STEPPED = {
    "whole": (lambda rng: rng.integers(0, 30, 2_000), (0, 30), 1.0),
    "halves": (lambda rng: rng.integers(0, 11, 2_000) / 2, dpf.Real(0, 5, steps=10), 0.5),
    "days": (
        lambda rng: pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 60, 2_000), unit="D"),
        dpf.Datetime("2026-01-01", "2026-03-01", resolution="D"),
        pd.Timedelta("1D"),
    ),
}


@pytest.mark.walk(4)
@pytest.mark.parametrize("options", [{}, {"measure": None}, {"delta": 0}], ids=str)
@pytest.mark.parametrize("kind", STEPPED)
@pytest.mark.parametrize("epsilon", [1, 60])
def test_quantiles_are_values_of_the_space_and_errors_at_least_half_a_step(kind, epsilon, options):
    draw, space, step = STEPPED[kind]
    frame = pd.DataFrame({"x": draw(np.random.default_rng(0))})
    found = dpf.sanitize(frame, epsilon=epsilon, spaces={"x": space}, key=bytes(32), **options).dp.quantile(
        "x", [0.1, 0.37, 0.5, 0.8]
    )
    first = pd.Timestamp("2026-01-01") if kind == "days" else 0.0
    places = ((found.estimate - first) / step).to_numpy(dtype=float)
    np.testing.assert_allclose(places, places.round(), atol=1e-9)
    assert (found.std_error / step >= 0.5 / 1.96 - 1e-9).all()
    assert ((found.lower <= found.estimate) & (found.estimate <= found.upper)).all()


@pytest.mark.parametrize("statistic", ["quantile", "median", "mean", "std"])
@pytest.mark.parametrize("column", ["sex", "grade", "job"])
def test_statistics_of_numbers_refuse_text_in_one_line(statistic, column):
    safe = dpf.sanitize(make_table(100), epsilon=1, delta=0, spaces=SPACES, key=KEY)
    with pytest.raises(dpf.ParameterError, match=rf"'{column}' holds no numbers; value_counts\('{column}'\) gives"):
        getattr(safe.dp, statistic)(column)


@pytest.mark.slow
def test_intervals_of_quantiles_stay_in_the_space():
    frame = pd.DataFrame({"x": pd.array(np.arange(500) % 9, "Int64"), "t": pd.Timestamp("2020-01-01")})
    spaces = {"x": dpf.Nullable(dpf.Integer(0, 8)), "t": ("2020-01-01", "2020-03-01")}
    for k in range(4):
        safe = dpf.sanitize(frame, epsilon=0.5, delta=0, spaces=spaces, key=bytes([k] * 32))
        for name, low, high in [("x", 0, 8), ("t", pd.Timestamp("2020-01-01"), pd.Timestamp("2020-03-01"))]:
            found = safe.dp.quantile(name, [0.02, 0.5, 0.98])
            assert (found[["estimate", "lower", "upper"]] >= low).all().all()
            assert (found[["estimate", "lower", "upper"]] <= high).all().all()


@pytest.mark.walk(1)
@pytest.mark.parametrize("top", [1, 2, 5, 8, 9, 10, 15])
@pytest.mark.parametrize("nullable", [False, True])
def test_whole_numbers_of_few_values_take_the_default_bins(top, nullable):
    space = dpf.Integer(0, top)
    frame = pd.DataFrame({"x": pd.array(np.arange(2_000) % (top + 1), "Int64")})
    spaces = {"x": dpf.Nullable(space) if nullable else space}
    safe = dpf.sanitize(frame, epsilon=60, delta=0, spaces=spaces, key=bytes(32))
    for table in (safe.dp.histogram("x"), safe.dp.value_counts("x", bins=10, sort=False)):
        assert len(table) == min(10, top + 1)
        assert (table.index.length > 0).all()
        truth = [frame["x"].between(i.left, i.right, inclusive="left").sum() for i in table.index]
        np.testing.assert_allclose(table["estimate"], truth, atol=60)
    assert len(safe.dp.value_counts("x")) == top + 1
    density = safe.dp.histogram("x", density=True)["estimate"]
    assert density.sum() == pytest.approx(1, rel=0.6)


def test_more_bins_than_a_listed_column_may_have_are_refused():
    safe = dpf.sanitize(pd.DataFrame({"x": [1, 2]}), epsilon=5, delta=0, spaces={"x": (0, 5)}, key=bytes(32))
    for bins in (0, 5_000, True):
        with pytest.raises(dpf.ParameterError, match=r"bins must be from 1.*6.*'x', or bounds"):
            safe.dp.histogram("x", bins)


def test_a_forecast_above_one_says_no_information():
    plan = dpf.plan(pd.DataFrame({"s": ["a"], "x": [1]}), 1.0, 0.0, spaces={"s": ["a", "b"], "x": (0, 100)})
    table = plan.forecast(1_000)
    assert table.loc[("marginal", "s"), "unit"] == "share"
    assert table.loc[("marginal", "x"), "std_error"] > 1
    assert table.loc[("marginal", "x"), "unit"] == "share: no information"
    assert table.loc[("mean", "x"), "unit"] != "share: no information"


@pytest.mark.slow
def test_a_fit_gives_way_where_the_unbiased_variance_contradicts_it():
    # One heap, which a fit through Laplace noise spreads: its variance lies above the unbiased one's interval, though
    # its own error is smaller. That interval lies below zero (fixed key), and the root's still holds the truth, 0.
    frame = pd.DataFrame({"x": np.full(300_000, 370)})
    found = dpf.Estimates(dpf.sanitize(frame, epsilon=4, delta=0, spaces={"x": (0, 1_000)}, key=bytes(32)))
    rows = found.histogram("x", bins=100)
    codes, held = rows.index.mid.to_numpy(), rows["estimate"] / rows["estimate"].sum()
    spread = float(held @ (codes - held @ codes) ** 2)
    variance, std = found.var("x"), found.std("x")
    assert variance["upper"] < spread
    assert std["estimate"] < 0.75 * spread**0.5
    assert std["lower"] == 0 < std["estimate"] < std["upper"]


def test_numbers_whose_squares_are_zero_have_errors():
    """Squares of numbers below 1e-154 are 0: means were a raw error of NumPy's."""
    frame = pd.DataFrame({"x": np.linspace(0, 1e-200, 400)})
    safe = dpf.sanitize(frame, epsilon=1, spaces={"x": (0.0, 1e-200)}, key=bytes(32))
    for found, truth in ((safe.dp.mean("x"), frame["x"].mean()), (safe.dp.sum("x"), frame["x"].sum())):
        assert found["std_error"] > 0
        assert found["lower"] <= truth <= found["upper"]
    assert safe.dp.std("x")["estimate"] == 0


def test_counts_of_single_values_that_noise_hides_say_so():
    """Of 500 days a day has some rows, and an error of thousands: the top of the list would be noise without a word."""
    days = pd.DataFrame({"day": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(1_000) % 500, unit="D")})
    day = dpf.Datetime("2024-01-01", "2025-06-01", "D")
    safe = dpf.sanitize(days, epsilon=0.3, spaces={"day": day}, measure=None, key=bytes(32))
    with pytest.warns(dpf.DpframeWarning, match="counts of single values of 'day' .* pass bins=10"):
        safe.dp.value_counts("day")
    assert len(safe.dp.value_counts("day", bins=10)) == 10


def test_counts_of_several_columns_take_a_list() -> None:
    frame = pd.DataFrame({"visits": np.repeat([3, 4], 50), "sex": ["f", "m"] * 50})
    safe = dpf.sanitize(frame, epsilon=1, spaces={"visits": (0, 9), "sex": ["f", "m"]}, key=bytes(32))
    with pytest.raises(dpf.errors.ParameterError, match=r"a list: value_counts\(\['visits', 'sex'\]\)"):
        safe.dp.value_counts("visits", "sex")
