"""Joints of many columns, methods that stay in the simplex, moments, distributions, forecasts, honesty."""

import math
import os
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dpframe as dpf
from dpframe import Report
from dpframe.estimate import surrogates
from dpframe.estimate.axes import BinnedAxis, make_axis
from dpframe.estimate.evidence.combine import project
from dpframe.estimate.evidence.likelihood import Matrices, Seen, Shares, fit_joint
from dpframe.estimate.tables.fit import fit_tables
from dpframe.estimate.tables.tables import Evidence, row_table
from dpframe.forecast.errors import CellMoments, share_errors
from dpframe.plan.build import build_plan
from dpframe.release.rows import release

KEY = bytes(range(32))
SPACES = {
    "sex": ["F", "M"],
    "job": dpf.Nullable(dpf.Categorical(["x", "y", "z"])),
    "grade": dpf.Ordinal(["a", "b", "c", "d"]),
    "age": dpf.Integer(0, 60),
    "wage": dpf.Nullable(dpf.Real(0, 10, steps=200)),
    "born": dpf.Datetime("2000-01-01", "2001-01-01"),
}
PLAN = build_plan(SPACES, epsilon=18.0)


def make_table(n, seed=1):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], n, p=[0.4, 0.6])
    age = rng.integers(10, 40, n) + 15 * (sex == "F")
    return pd.DataFrame(
        {
            "sex": sex,
            "job": pd.Series(np.where(rng.random(n) < 0.1, None, np.where(age > 30, "x", "y")), dtype="str"),
            "grade": rng.choice(list("abcd"), n),
            "age": age,
            "wage": np.where(rng.random(n) < 0.1, np.nan, (age / 8 + rng.gamma(1, 1, n)).clip(0, 10)),
            "born": pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(0, 366, n), unit="D"),
        }
    )


TABLE = make_table(2_000)
CODES = {c.name: c.space.encode(TABLE[c.name]) for c in PLAN.columns}
R = int(os.environ.get("DPFRAME_RELEASES", "80"))
"""Releases of each check; 300 are the full run."""


def released(i):
    return release(CODES, PLAN, i.to_bytes(32, "big"))


def releases(count, first=0):
    for i in range(first, first + count):
        out = released(i)
        yield dpf.Estimates(pa.table({c.name: c.space.decode(out[c.name]) for c in PLAN.columns}), PLAN)


ONE = next(releases(1))


def check(found, truth):
    """A mean over R releases within 4.5 Monte-Carlo errors of the truth; intervals cover 95 % within 4.5
    binomial deviations and a hundredth; the stated error is that of R releases, whose standard deviation is known to
    1/√(2R), within 4.6 of these at 80. Error probability below 1e-4 in all; keys are fixed.
    """
    point, error, lower, upper = (np.array([[row[i] for row in found]]).squeeze() for i in range(4))
    spread = point.std(axis=0, ddof=1)
    bias = np.abs(point.mean(axis=0) - truth)
    assert (bias <= 4.5 * spread / np.sqrt(len(found)) + 1e-9).all(), (point.mean(axis=0), truth)
    covered = ((lower <= truth) & (truth <= upper)).mean()
    assert abs(covered - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / point.size) + 0.01, covered
    np.testing.assert_allclose(error.mean(axis=0), spread, rtol=0.36)


def numbers(series):
    return [float(series[name]) for name in ("estimate", "std_error", "lower", "upper")]


PRESENT = TABLE.dropna(subset=["wage"])
MOMENTS = {
    "var": (lambda e: e.var("age"), TABLE["age"].var()),
    "var0": (lambda e: e.var("wage", 0), TABLE["wage"].var(ddof=0)),
    "sum": (lambda e: e.sum("wage"), TABLE["wage"].sum()),
    "weighted sum": (lambda e: e.sum("wage", weights="age"), (TABLE["wage"] * TABLE["age"]).sum()),
    "null rate": (lambda e: e.null_rate("wage"), TABLE["wage"].isna().mean()),
}


@pytest.mark.walk(2)
@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name):
    ask, truth = MOMENTS[name]
    check([numbers(ask(e)) for e in releases(R)], truth)


@pytest.mark.slow
def test_covariance_correlation_and_weighted_mean():
    """Ratios: consistent, with a bias of order 1/n that is not tested for; coverage is, within 3.4 binomial deviations.

    Of 95 % the error probability is 1e-3 a ratio at 60 releases; keys are fixed.
    """
    truths = {
        "cov": TABLE[["age", "wage"]].cov().loc["age", "wage"],
        "corr": TABLE[["age", "wage"]].corr().loc["age", "wage"],
        "std": TABLE["wage"].std(),
        "weighted": (PRESENT["wage"] * PRESENT["age"]).sum() / PRESENT["age"].sum(),
    }
    covered, some = dict.fromkeys(truths, 0), R // 2
    for e in releases(some):
        found = {
            "cov": e.cov(["age", "wage"]).xs("wage", axis=1, level=1).loc["age"],
            "corr": e.corr(["age", "wage"]).xs("wage", axis=1, level=1).loc["age"],
            "std": e.std("wage"),
            "weighted": e.mean("wage", weights="age"),
        }
        for name, truth in truths.items():
            covered[name] += found[name]["lower"] <= truth <= found[name]["upper"]
    for name, count in covered.items():
        assert count / some > 0.95 - 3.4 * math.sqrt(0.95 * 0.05 / some), (name, count / some)


@pytest.mark.slow
def test_three_way_joint_is_unbiased_and_covered():
    truth = TABLE.groupby(["sex", "job", "grade"]).size()
    found = []
    for e in releases(R):
        table = e.joint(["sex", "job", "grade"], method="inverse")
        found.append([table[name].to_numpy() for name in ("estimate", "std_error", "lower", "upper")])
    check(found, truth.reindex(table.index, fill_value=0).to_numpy())


@pytest.mark.slow
def test_binned_joint_is_unbiased():
    cut = pd.cut(TABLE["age"], [-1, 19, 39, 60], labels=False)
    truth = pd.crosstab(cut, TABLE["sex"]).to_numpy().ravel()
    found = []
    for e in releases(R):
        table = e.joint(["age", "sex"], bins={"age": [0, 20, 40, 60]}, method="inverse")
        found.append([table[name].to_numpy() for name in ("estimate", "std_error", "lower", "upper")])
    check(found, truth)


@pytest.mark.parametrize("name", ["age", "wage"])
def test_bins_against_the_dense_matrices(name):
    column, axis = PLAN[name], make_axis(PLAN[name], [0, 2, 5, 9, 10] if name == "wage" else 7)
    assert isinstance(axis, BinnedAxis)
    matrix = column.mechanism.transition()
    cells = [range(a, b) for a, b in zip(axis.edges[:-1], axis.edges[1:], strict=True)]
    cells += [range(axis.edges[-1], column.space.size)] * axis.has_null
    indicators = np.stack([np.isin(np.arange(column.space.size), cell) for cell in cells], axis=1).astype(float)
    surrogates = np.linalg.solve(matrix.T, indicators)
    classes = axis.classify(np.arange(column.space.size))
    np.testing.assert_allclose(
        axis.invert(np.eye(axis.classes)).T[classes], surrogates, atol=1e-6 * np.abs(surrogates).max()
    )
    laws = np.stack([matrix[:, list(cell)].mean(axis=1) for cell in cells], axis=1)
    np.testing.assert_allclose(axis.channel, np.add.reduceat(laws, axis.class_starts, axis=0), atol=1e-12)
    np.testing.assert_allclose(axis.channel.sum(axis=0), 1)


def test_merging_cells_keeps_every_share():
    """Cells of one and of two codes; each is divided among bins by its codes."""
    fine, coarse = make_axis(PLAN["wage"], 128), make_axis(PLAN["wage"], 7)
    assert isinstance(fine, BinnedAxis)
    assert isinstance(coarse, BinnedAxis)
    assert set(np.diff(fine.edges)) == {1, 2}
    merge = fine.overlap_with(coarse)
    np.testing.assert_allclose(merge.sum(axis=0), 1)
    codes = np.append(np.diff(fine.edges), 1)  # a uniform type, and null
    np.testing.assert_allclose(merge @ codes, np.append(np.diff(coarse.edges), 1))


@pytest.mark.slow
def test_methods_stay_in_the_simplex_and_say_what_they_are():
    for method in ("project", "em", "model"):
        table = ONE.joint(["sex", "job", "grade"], method=method, dropna=False)
        assert table.attrs["method"] == method
        assert (table["estimate"] >= 0).all()
        assert table["estimate"].sum() == pytest.approx(len(TABLE))
        assert (table["std_error"] > 0).all(), "no interval has width zero, at the edges neither"
    assert ONE.joint(["sex", "job", "grade"]).attrs["method"] in ("inverse", "em", "model")
    assert ONE.value_counts("sex").attrs["method"] == "inverse"
    assert ONE.crosstab("sex", "job", method="auto").attrs["method"] in ("inverse", "em", "model")
    shares = ONE.joint(["sex", "job"], given="sex", method="em")
    assert shares.groupby("sex")["estimate"].sum().round(9).tolist() == [1, 1]


def test_likelihood_beats_the_inverse_where_cells_are_many():
    spaces = {f"c{i}": [str(v) for v in range(10)] for i in range(3)}
    rng = np.random.default_rng(0)
    base = rng.integers(0, 10, 5_000)
    frame = pd.DataFrame({name: np.where(rng.random(5_000) < 0.7, base, rng.integers(0, 10, 5_000)) for name in spaces})
    e = dpf.Estimates(dpf.sanitize(frame.astype(str), epsilon=6, delta=0, spaces=spaces, key=KEY))
    truth = frame.astype(str).groupby(list(spaces)).size()
    errors = {}
    for method in ("inverse", "project", "em", "model"):
        found = e.joint(list(spaces), method=method)["estimate"]
        errors[method] = (found - truth.reindex(found.index, fill_value=0)).abs().sum() / len(frame)
    assert errors["model"] < errors["em"] < errors["project"] < errors["inverse"], errors


@given(arrays(float, st.integers(1, 12), elements=st.floats(-3, 3)), st.floats(0.5, 2))
def test_projection_is_the_nearest_point(values, total):
    """Karush–Kuhn–Tucker: one threshold is subtracted from all that stay positive, and exceeds the others."""
    found = project(values, total=total)
    assert found.sum() == pytest.approx(total)
    assert (found >= 0).all()
    kept = found > 1e-12
    thresholds = (values - found)[kept]
    assert np.ptp(thresholds) < 1e-9
    assert (values[~kept] <= thresholds.max() + 1e-9).all()


def test_em_reaches_the_maximum_of_likelihood():
    """Its gradient is at most 1 everywhere and 1 where the estimate is positive (the likelihood is concave)."""
    axes = [make_axis(PLAN[name], None) for name in ("job", "grade")]
    counts = surrogates.count_classes(axes, [released(0)])
    channels = [axis.channel for axis in axes]
    shares = Shares.of(channels).fitted(Seen.of(counts * 1e5), max_steps=20_000)[..., 0]
    expected = Matrices(tuple(channels)).spread(shares)
    gradient = Matrices(tuple(channels)).adjoint(counts / counts.sum() / expected)
    assert gradient.max() < 1 + 1e-6
    assert np.abs(gradient[shares > 1e-3] - 1).max() < 1e-3
    stopped = fit_joint(counts, channels)
    assert stopped.sum() == pytest.approx(1)


def test_many_fits_at_once_equal_one_at_a_time():
    axis = make_axis(PLAN["age"], 20)
    counts = np.stack([surrogates.count_classes([axis], [released(i)]) for i in range(3)], axis=1)
    model = Shares.of([axis.channel])
    together = model.fitted(Seen(counts, np.zeros((0, 3))))
    for i in range(3):
        alone = model.fitted(Seen.of(counts[:, i]))[:, 0]
        # Accelerated steps amplify the last digits, in which products of one and of three columns differ.
        np.testing.assert_allclose(alone, together[:, i], atol=1e-7)


def test_model_recovers_pairs_without_noise():
    """With an (almost) noiseless channel and many rows the fitted pairs are the counted ones."""
    rng = np.random.default_rng(3)
    hidden = rng.integers(0, 2, 200_000)
    drawn = [(rng.random(200_000) < np.where(hidden, 0.8, 0.3)).astype(int) for _ in range(3)]
    channels = [np.eye(2) * 0.98 + 0.01] * 3
    flips = [np.where(rng.random(200_000) < 0.01, 1 - d, d) for d in drawn]
    tables = {(a, b): np.histogram2d(flips[a], flips[b], bins=2)[0] for a in range(3) for b in range(a + 1, 3)}
    rows = tuple(row_table(pair, counts, [channels[c] for c in pair]) for pair, counts in tables.items())
    fitted = fit_tables(Evidence(200_000, (2, 2, 2), rows))
    for a, b in tables:
        truth = np.histogram2d(drawn[a], drawn[b], bins=2)[0] / 200_000
        assert np.abs(fitted.joint([a, b]) - truth).sum() < 0.01


@pytest.mark.slow
def test_bins_and_medians_are_held_by_their_intervals():
    counts, inside = np.zeros(3), 0
    for e in releases(12):
        table = e.histogram("age", [0, 20, 40, 60])
        assert (table["estimate"] >= 0).all()
        assert table["estimate"].sum() == pytest.approx(len(TABLE), rel=1e-6)
        truth = np.histogram(TABLE["age"], [0, 20, 40, 61])[0]
        counts += (table["lower"].to_numpy() <= truth) & (truth <= table["upper"].to_numpy())
        median = e.quantile("age")
        inside += median["lower"] <= TABLE["age"].median() <= median["upper"]
    assert (counts >= 7).all(), counts  # of 12; below 7 has probability 1e-4 at 0.9
    assert inside >= 7


@pytest.mark.slow
def test_distributions():
    table = ONE.histogram("age", [0, 20, 40, 60])
    assert (table["estimate"] >= 0).all()
    assert table["estimate"].sum() == pytest.approx(len(TABLE), rel=1e-6)
    table = ONE.quantile("wage", [0.1, 0.5, 0.9])
    assert table["estimate"].is_monotonic_increasing
    density = ONE.histogram("wage", 4, density=True)
    assert (density["estimate"] * 2.5).sum() == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize(
    ("column", "bins", "unknown"),
    [
        ("age", [-5, 20, 100], []),
        ("age", [10, 20, 50], []),
        ("age", [-10, -5, 20, 60, 80, 90], [0, 3, 4]),
        ("wage", [-1.5, 5, 12], []),
        ("wage", [20.0, 30.0], [0]),
        ("born", ["1999-01-01", "2000-06-01", "2002-01-01"], []),
        ("born", [np.datetime64("2000-01-01"), pd.Timestamp("2000-06-01")], []),
    ],
)
def test_bins_are_those_that_were_given(column, bins, unknown):
    with pytest.warns(dpf.DpframeWarning, match="beyond the bounds of column") if unknown else nullcontext():
        found = ONE.histogram(column, bins)
    assert len(found) == len(bins) - 1
    kind = pd.Timestamp if column == "born" else float
    assert list(found.index.left) == [kind(bound) for bound in bins[:-1]]
    rights = [kind(bound) for bound in bins[1:]]
    assert list(found.index.right) == [61 if right == 60 else right for right in rights]
    assert np.flatnonzero(found["estimate"].isna()).tolist() == unknown
    assert list(found["upper"].isna()) == list(found["estimate"].isna())
    values = TABLE[column].clip(0, 60) if column == "age" else TABLE[column]
    truth = [((values >= cell.left) & (values < cell.right)).sum() for cell in found.index]
    near = (found["estimate"] - truth).abs() < 5 * found["std_error"] + 1e-6  # a chance of 1e-6 each, of one key
    assert near[found["estimate"].notna()].all()


def test_an_estimate_lies_in_its_interval():
    """A table's counts are unbiased, so that those of bins without rows lie below 0 in half of all releases."""
    frame = pd.DataFrame({"x": np.linspace(20, 40, 1_500)})
    seen = []
    for i in range(8):  # all at or above 0 with probability 1/256; keys are fixed
        table = dpf.sanitize(frame, epsilon=1, spaces={"x": (0, 100)}, key=bytes([i]) * 32).dp.histogram("x", [60, 80])
        assert (table["lower"] <= table["estimate"]).all()
        assert (table["estimate"] <= table["upper"]).all()
        seen.append(table["estimate"].min())
    assert min(seen) < 0


def test_times_come_back_as_times():
    mean, std, half = ONE.mean("born"), ONE.std("born"), ONE.quantile("born")
    assert isinstance(mean["estimate"], pd.Timestamp)
    assert isinstance(mean["std_error"], pd.Timedelta)
    assert isinstance(std["estimate"], pd.Timedelta)
    assert isinstance(half["lower"], pd.Timestamp)
    assert mean["lower"] < TABLE["born"].mean() < mean["upper"]
    groups = ONE.mean("born", by="sex")
    assert groups["estimate"].dtype.kind == "M"
    assert groups["std_error"].dtype.kind == "m"
    with pytest.raises(dpf.ParameterError, match="holds times, which have no sum"):
        ONE.sum("born")


def test_forecast_agrees_with_what_is_then_reported():
    """On a table with uniform values the reported errors are those forecast, up to their own noise (5 %)."""
    n, rng = 40_000, np.random.default_rng(5)
    codes = {c.name: rng.integers(0, c.space.size, n).astype(c.space.code_type) for c in PLAN.columns}
    out = release(codes, PLAN, KEY)
    e = dpf.Estimates(pa.table({c.name: c.space.decode(out[c.name]) for c in PLAN.columns}), PLAN)
    expected = PLAN.forecast(n)["std_error"]

    def reported(table):
        return float(np.sqrt((table["std_error"] ** 2).mean()))

    for name in ("sex", "job", "grade"):
        found = e.value_counts(name, normalize=False, dropna=False)
        assert reported(found) / n == pytest.approx(expected["marginal", name], rel=0.05)
    found = e.joint(["sex", "job"], method="inverse", dropna=False)
    assert reported(found) / n == pytest.approx(expected["joint", "sex × job"], rel=0.05)
    for name in ("age", "wage"):
        assert e.mean(name)["std_error"] == pytest.approx(expected["mean", name], rel=0.05)
    assert (PLAN.forecast(n)["worst"] >= expected * (1 - 1e-9)).all()


def test_forecast_at_a_type_and_by_brute_force():
    mechanism = PLAN["grade"].mechanism
    shares, n = np.array([0.7, 0.1, 0.1, 0.1]), 100
    matrix, inverse = mechanism.transition(), np.linalg.inv(mechanism.transition())
    variances = (inverse**2) @ matrix @ shares - shares
    typical, worst = share_errors([CellMoments.of(mechanism, shares)], n)
    assert typical == pytest.approx(np.sqrt(variances.mean() / n))
    assert worst == pytest.approx(np.sqrt(max(((inverse**2) @ matrix - np.eye(4)).mean(axis=0)) / n))
    other = PLAN["sex"].mechanism
    joint, _ = share_errors([CellMoments.of(mechanism, shares), CellMoments.of(other)], n)
    squares = np.outer((inverse**2) @ matrix @ shares, (np.linalg.inv(other.transition()) ** 2).sum(axis=1) / 2)
    assert joint == pytest.approx(np.sqrt((squares - np.outer(shares, [0.5, 0.5])).mean() / n))
    table = PLAN.forecast(n, types={"grade": shares})
    assert table.loc[("marginal", "grade"), "std_error"] == pytest.approx(typical)


@pytest.mark.slow
def test_forecast_of_a_fine_grid():
    plan = build_plan({"fnlwgt": (0, 1_500_000), "id": dpf.Nullable(dpf.Integer(0, 2**32 - 1))}, epsilon=2)
    coarse = build_plan({"x": dpf.Integer(0, 65536)}, epsilon=1, mechanisms={"x": "geometric"})
    coarse = coarse.forecast(1_000).loc[("mean", "x"), "std_error"]
    table = plan.forecast(1_000)["std_error"]
    assert table["mean", "fnlwgt"] == pytest.approx(coarse * 1_500_000 / 65536, rel=1e-3)
    assert 0 < table["mean", "id"] < 2**32


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_rows": 0}, "n_rows must be a whole number of rows, at least 1"),
        ({}, "n_rows must be a whole number of rows"),
        ({"n_rows": 10, "types": {"sex": [0.5, 0.6]}}, r"types\['sex'\] must be 2 shares that add up to 1"),
        ({"n_rows": 10, "types": {"height": [1]}}, "types names 'height'"),
    ],
)
def test_forecast_refusals(options, message):
    with pytest.raises(dpf.ParameterError, match=message):
        PLAN.forecast(**options)


SAFE = dpf.sanitize(TABLE, plan=PLAN, key=KEY)


def test_altered_frames_warn():
    assert SAFE.dp.verify()
    assert SAFE.sample(frac=1, random_state=1).dp.verify()
    altered = {
        "filtered": SAFE[SAFE["sex"] == "F"],
        "repeated": pd.concat([SAFE, SAFE]),
        "overwritten": SAFE.assign(sex="F"),
        "re-sampled": SAFE.sample(frac=1, replace=True, random_state=2),
        "raw under a plan": TABLE.copy(),
    }
    altered["raw under a plan"].attrs = SAFE.attrs
    for name, frame in altered.items():
        rows = (
            "the table has .* rows, the release 2,000"
            if name in ("filtered", "repeated")
            else "is not what was released"
        )
        with pytest.warns(dpf.errors.AlteredReleaseWarning, match=rows):
            frame.dp.mean("age")
        assert not frame.dp.verify()
    out_of_space = SAFE.assign(sex="X")
    assert not out_of_space.dp.verify()
    with (
        pytest.warns(dpf.errors.AlteredReleaseWarning),
        pytest.raises(dpf.ColumnError, match="column 'sex': is not what was released"),
    ):
        out_of_space.dp.value_counts("sex")


def test_columns_may_be_left_out():
    part = SAFE[["sex", "age"]]
    assert part.dp.mean("age")["estimate"] == pytest.approx(SAFE.dp.mean("age")["estimate"])
    with pytest.raises(dpf.ParameterError, match=r"column 'job' was released,.*in this table;.*are sex, age"):
        part.dp.value_counts("job")
    with pytest.raises(dpf.NotSanitizedError, match="has none of the plan's columns"):
        dpf.Estimates(pd.DataFrame({"x": [1]}), PLAN)


def test_attach():
    lost = pd.DataFrame(SAFE)
    lost.attrs = {}
    for plan in (PLAN, SAFE.dp.release):
        again = dpf.attach(lost, plan)
        assert again.dp.verify()
        assert again.dp.mean("age").equals(SAFE.dp.mean("age"))
        assert lost.attrs == {}
    table = pa.Table.from_pandas(lost, preserve_index=False)
    assert dpf.Estimates(dpf.attach(table, SAFE.dp.release)).verify()
    with pytest.raises(dpf.ParameterError, match="plan must be a Plan or a ReleaseInfo"):
        dpf.attach(lost, "plan.json")
    polars = pytest.importorskip("polars")
    bare = polars.from_pandas(lost)
    again = dpf.attach(bare, SAFE.dp.release)
    assert dpf.Estimates(again).mean("age").equals(SAFE.dp.mean("age"))
    with pytest.raises(dpf.NotSanitizedError, match=r"no release plan.*dpframe\.read\(path\)"):
        dpf.Estimates(bare)
    with pytest.raises(dpf.ParameterError, match=r"attach\(table, info\) gives a ReleaseInfo back"):
        dpf.Estimates(bare, SAFE.dp.release)
    with pytest.raises(dpf.ParameterError, match=r"a pyarrow RecordBatch keeps.*plan= to Estimates"):
        dpf.attach(table.to_batches()[0], PLAN)


def test_report():
    report = SAFE.dp.report()
    text = str(report)
    for words in ("A release of 2,000 rows", "Release: epsilon=18", "expected_error", "error_bound", "wage"):
        assert words in text
        assert words in report._repr_html_()
    assert isinstance(report, Report)


def test_plots():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    assert len(SAFE.dp.plot("job").patches) == 3
    assert SAFE.dp.plot("age", bins=6).get_xlabel() == "age"
    axes = SAFE.dp.plot("sex", "grade")
    assert axes.get_ylabel() == "sex"
    table = SAFE.dp.crosstab("sex", "grade")
    half = (table["upper"] - table["lower"]).iloc[0, 0] / 2
    assert axes.texts[0].get_text() == f"{table['estimate'].iloc[0, 0]:,.0f}\n±{half:,.0f}"
    _, ax = plt.subplots()
    assert SAFE.dp.plot("sex", ax=ax) is ax
    with pytest.raises(dpf.ParameterError, match="plot takes one column, or two"):
        SAFE.dp.plot()
    plt.close("all")


REFUSED = [
    (lambda e: e.joint([]), "name at least one column"),
    (lambda e: e.joint(["sex", "sex"]), "cannot be crossed with itself"),
    (lambda e: e.joint(["sex"], given="job"), "given names 'job', which is not among"),
    (lambda e: e.joint(["sex"], bins={"age": 3}), "bins names 'age', which is not among"),
    (lambda e: e.joint(["sex"], bins={"sex": 3}), "column 'sex' holds no numbers and takes no bins"),
    (lambda e: e.joint(["age"], bins={"age": 0}), "bins must be from 1 to 61"),
    (lambda e: e.joint(["age"], bins={"age": [30, 20]}), "two or more bounds in ascending order"),
    (
        lambda e: e.histogram("born", bins=["01.02.2000", "01.03.2000"]),
        "bins of column 'born' must name times as ISO text",
    ),
    (
        lambda e: e.joint(["age"], bins={"age": [20, 30.1, 30.2, 60]}),
        "closer together than its.*at least 1 apart",
    ),
    (lambda e: e.joint(["age"], bins={"age": ["x", "y"]}), "must be a number or values of it in order"),
    (lambda e: e.histogram("age", bins=[20, 60, 10**400]), "must be a number or values of it in order"),
    (lambda e: e.joint(["sex"], method="magic"), "method must be one of inverse, project, em, model, auto"),
    (lambda e: e.joint(["age", "sex"], bins={"age": 3}, method="model"), "column 'age' is not of at most 64 values"),
    (lambda e: e.crosstab("sex", "job", margins=True, normalize=True), "margins are given with counts only"),
    (lambda e: e.mean("age", by="age"), "cannot be grouped by itself"),
    (lambda e: e.mean("age", weights="age"), "cannot be weighted by itself"),
    (lambda e: e.mean("age", by="sex", weights="wage", method="inverse"), "leave method out"),
    (lambda e: e.joint(["sex", "job"], given=["sex", "job"]), "given names every column of the joint"),
    (lambda e: e.joint(["sex", "job"], given=3), "given must be a column name or a list of them"),
    (lambda e: e.joint(["sex"], bins=4), "bins must be a mapping"),
    (lambda e: e.joint(["age"], bins={"age": 2.5}), "bins of column 'age' must be a whole number or a list of bounds"),
    (lambda e: e.joint(["age"], bins={"age": {1, 2}}), "bins of column 'age' must be a whole number or a list"),
    (lambda e: e.joint(["wage"], bins={"wage": [1.0, None]}), "must be a number or values of it in order"),
    (lambda e: e.crosstab("sex", "grade", margins=True, method="em"), "margins are given with method='inverse' only"),
    (lambda e: e.crosstab("sex", "grade", normalize=["index"]), "normalize must be False, True"),
    (lambda e: e.var("age", ddof=1.5), "ddof must be a whole number"),
    (lambda e: e.quantile("age", "x"), r"q must lie in \(0, 1\)"),
    (lambda e: e.quantile("age", 0), "extremes cannot be learnt"),
    (lambda e: dpf.Estimates(SAFE, plan="plan.json"), "plan must be a Plan"),
    (lambda e: dpf.Estimates(SAFE, confidence_level="0.9"), "confidence_level must lie"),
    (lambda e: e.mean("grade"), "column 'grade' holds no numbers"),
    (lambda e: e.quantile("age", 1.5), r"q must lie in \(0, 1\)"),
    (lambda e: e.histogram("sex"), "column 'sex' holds no numbers"),
    (lambda e: e.var("height"), "column 'height' is not in the release"),
    (lambda e: e.corr(["age", "job"]), "column 'job' holds no numbers"),
]


@pytest.mark.parametrize("ask, message", REFUSED, ids=[message for _, message in REFUSED])
def test_refusals(ask, message):
    with pytest.raises(dpf.ParameterError, match=message):
        ask(ONE)


def test_crosstab_margins_leave_nulls_out_and_have_their_errors():
    truth = pd.crosstab(TABLE["sex"], TABLE["job"], margins=True).reindex(columns=["x", "y", "z", "All"], fill_value=0)
    found = []
    for e in releases(R):
        table = e.crosstab("sex", "job", margins=True)
        cells = [table[name] for name in ("estimate", "std_error", "lower", "upper")]
        found.append([np.append(c["All"].to_numpy(), c.loc["All"].to_numpy()[:-1]) for c in cells])
    check(found, np.append(truth["All"].to_numpy(), truth.loc["All"].to_numpy()[:-1]))


def test_crosstab_margins_are_the_marginals():
    table = ONE.crosstab("sex", "grade", margins=True)
    assert table["estimate"].loc["All", "All"] == len(TABLE)
    pd.testing.assert_series_equal(
        table["std_error"]["All"].drop("All"), ONE.value_counts("sex", sort=False)["std_error"], check_names=False
    )


@pytest.mark.walk(1)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_no_interval_has_width_zero(n):
    """A sample variance of a handful of rows can be zero or less; uniform values stand in for it then."""
    plan = build_plan({"job": SPACES["job"], "wage": SPACES["wage"]}, epsilon=4)
    for key in range(20):
        safe = dpf.sanitize(TABLE.loc[: n - 1, ["job", "wage"]], plan=plan, key=bytes([key]) * 32)
        for target in ("table", "population"):
            assert safe.dp.mean("wage", target=target)["std_error"] > 0 or np.isnan(safe.dp.mean("wage")["estimate"])
            assert (safe.dp.value_counts("job", target=target)["std_error"] > 0).all()


def test_bins_of_a_nullable_column_are_those_asked_for():
    for bins in ([0, 5, 10], [2.5, 7.5], [0.0, 10.0]):
        table = ONE.value_counts("wage", bins=bins, sort=False)
        assert len(table) == len({0, 10, *bins}) - 1
        assert table.attrs["method"] == "em"
    labels = ONE.value_counts("born", bins=["2000-01-01", "2000-07-01", "2001-01-01"], sort=False).index
    assert labels[0].right == pd.Timestamp("2000-07-01")


@pytest.mark.slow
def test_a_deviation_where_noise_made_the_variance_negative():
    """It is the root of what a variance may be: never NaN, never below 0, never beyond half of the bounds' distance."""
    plan = build_plan({"age": (0, 120)}, epsilon=0.5)
    frame = pd.DataFrame({"age": [50] * 2_000})
    seen = set()
    for key in range(10):
        estimates = dpf.sanitize(frame, plan=plan, key=bytes([key] * 32)).dp
        found = estimates.std("age")
        seen.add(bool(estimates.var("age")["estimate"] < 0))
        assert 0 < found["estimate"] <= 60.1
        assert found["std_error"] > 0
        assert 0 <= found["lower"] <= found["estimate"] <= found["upper"] <= 60.1
    assert seen == {True, False}


@pytest.mark.walk(2)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_handful_of_rows(n):
    """Numbers that cannot be known are NaN or have infinite intervals; nothing fails, and only a correlation warns."""
    safe = dpf.sanitize(TABLE.iloc[:n], plan=PLAN, key=KEY)
    for series in (safe.dp.mean("age"), safe.dp.var("age"), safe.dp.sum("wage"), safe.dp.null_rate("wage")):
        assert series["std_error"] != 0
    assert (safe.dp.mean("age", by="sex")["std_error"] != 0).all()
    with pytest.warns(dpf.DpframeWarning, match="correlations are NaN.*\\n  'age' and 'wage'"):
        found = safe.dp.corr(["age", "wage"])
    assert found["lower"].loc["age", "wage"] == -1
    assert len(safe.dp.histogram("age")) == 10
    assert isinstance(safe.dp.quantile("age"), pd.Series)
    safe.dp.joint(["sex", "job"], method="em")
    safe.dp.std("born")


def test_times_keep_their_zone():
    zoned = pd.DataFrame({"at": pd.date_range("2020-01-01", periods=500, freq="12h", tz="Europe/Zurich")})
    safe = dpf.sanitize(zoned, epsilon=20, spaces={"at": ("2020-01-01", "2020-12-31")}, key=KEY)
    assert str(safe.dp.mean("at")["estimate"].tz) == "Europe/Zurich"
    assert str(safe.dp.quantile("at", [0.5])["lower"].dt.tz) == "Europe/Zurich"


def test_warnings_point_at_the_line_that_asked():
    with pytest.warns(dpf.errors.AlteredReleaseWarning) as caught:
        SAFE.head(100).dp.mean("age")
        dpf.Estimates(SAFE.head(100))
    assert {warning.filename for warning in caught} == {__file__}


def test_matrices_have_pandas_shape():
    table = ONE.corr()
    assert table["estimate"].index.tolist() == ["age", "wage", "born"]
    assert np.diag(table["estimate"]).tolist() == [1, 1, 1]
    assert (np.diag(table["std_error"]) < 1e-9).all()


@pytest.mark.slow
def test_cells_that_a_fit_leaves_empty_may_hold_rows():
    # Keys are fixed. By the errors of fits alone 36 of 1,302 such cells lie beyond five of them. All rows of a rare
    # value have one other value here, which noise of several times their number hides: up to 6 of 651 cells may.
    generator, n = np.random.default_rng(3), 3_000
    rare = generator.choice(31, n, p=[0.9, *[0.1 / 30] * 30])
    part = generator.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    other = np.where(rare > 0, rare % 3, generator.choice(3, n))
    frame = pd.DataFrame({"rare": [f"r{i:02d}" for i in rare], "part": part.astype(str), "other": other.astype(str)})
    spaces = {name: sorted(frame[name].unique()) for name in frame}
    far, held = [], []
    for k in range(3):
        safe = dpf.sanitize(frame, epsilon=0.5, spaces=spaces, key=bytes([k]) * 32)
        for pair in (["rare", "part"], ["rare", "other"]):
            found = safe.dp.joint(pair)
            truth = frame.groupby(pair).size().reindex(found.index, fill_value=0)
            far.append((found["estimate"] - truth).abs() > 5 * found["std_error"])
            held.append(truth.between(found["lower"], found["upper"]))
    assert np.concatenate(far).mean() <= 0.01 and np.concatenate(held).mean() >= 0.92


def test_projections_of_bins_are_shares():
    """The nearest point of the simplex to the unbiased counts of bins, of one column or of two."""
    for columns, bins in ((["age"], {"age": 4}), (["sex", "age"], {"age": [0, 20, 61]})):
        found = ONE.joint(columns, bins=bins, method="project", normalize=True)["estimate"].to_numpy()
        counts = ONE.joint(columns, bins=bins, method="inverse")["estimate"].to_numpy()
        assert found == pytest.approx(project(counts / len(TABLE)), abs=1e-9)


@pytest.mark.walk(7)
@pytest.mark.parametrize("method", ["inverse", "project", "em", "auto"])
@pytest.mark.parametrize("columns", [["age"], ["age", "sex"]])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_every_method_answers_bins(method, columns, delta):
    """With δ = 0 nothing is measured, and rows alone answer."""
    frame = dpf.datasets.make_census(500, columns=["age", "sex"])
    safe = dpf.sanitize(frame, epsilon=8, delta=delta, spaces={"age": (0, 120), "sex": ["F", "M", "other"]}, key=KEY)
    found = safe.dp.joint(columns, bins={"age": 4}, method=method)
    assert len(found) == 4 * (3 if "sex" in columns else 1)
    assert (found["std_error"] > 0).all()
    if method != "inverse":
        assert found["estimate"].sum() == pytest.approx(500, abs=1)


@pytest.mark.slow
def test_quantiles_of_a_spike_hold_where_noise_leaves_little():
    # Keys are fixed. A profile that is fitted by as many plain steps holds 0.79 of these.
    generator, n = np.random.default_rng(7), 20_000
    hours = np.where(generator.random(n) < 0.5, 40, generator.normal(38, 12, n).round()).clip(1, 99).astype(int)
    frame, levels, held = pd.DataFrame({"hours": hours}), [0.1, 0.35, 0.6, 0.85], []
    truth = frame["hours"].quantile(levels)
    for k in range(8):
        options = {"delta": 0, "shuffle": False, "spaces": {"hours": (1, 99)}, "key": bytes([k]) * 32}
        found = dpf.sanitize(frame, epsilon=0.15, **options).dp.quantile("hours", levels)
        held.append(truth.between(found["lower"], found["upper"]))
    assert np.mean(held) >= 0.92


def test_joints_of_rows_hold_where_noise_hides_how_columns_depend():
    """A fit to noisy rows draws pairs to independence. Keys are fixed: of 120 intervals 109 held before."""
    rng = np.random.default_rng(0)
    work, sex = rng.integers(0, 6, 10_000), rng.choice(["F", "M"], 10_000)
    rich = rng.random(10_000) < np.array([0.1, 0.2, 0.3, 0.5, 0.6, 0.8])[work]
    frame = pd.DataFrame({"work": np.array(list("abcdef"))[work], "rich": np.where(rich, "yes", "no"), "sex": sex})
    spaces, inside = {"work": list("abcdef"), "rich": ["no", "yes"], "sex": ["F", "M"]}, []
    truth = frame[["work", "rich"]].value_counts()
    for k in range(10):
        told = dpf.sanitize(frame, epsilon=0.3, measure=None, spaces=spaces, key=bytes([k + 1]) * 32).dp
        found = told.joint(["work", "rich"])
        right = truth.reindex(found.index)
        inside += list((found.lower <= right) & (right <= found.upper))
    assert sum(inside) >= 115
