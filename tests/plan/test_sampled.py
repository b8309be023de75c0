"""Estimates from a release that is a secret sample: the table's numbers, their errors, and the best sample size."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe import Column, Estimates, ReleaseInfo
from dpframe.channels import mechanism_for
from dpframe.errors import ParameterError, PlanError
from dpframe.estimate import surrogates
from dpframe.estimate.evidence.likelihood import Matrices, refits
from dpframe.plan.build import build_plan
from dpframe.release.rows import release

KEY = bytes(range(32))
N, M = 3_001, 1_000
C = (N - M) / (N - 1)
SPACES = {
    "sex": ["F", "M"],
    "job": dpf.Nullable(dpf.Categorical(["x", "y", "z"])),
    "age": dpf.Integer(0, 60),
    "wage": dpf.Nullable(dpf.Real(0, 10, steps=100)),
    "likes": dpf.Nullable(dpf.Subset(["art", "bingo", "chess"])),
    "a": ["p", "q"],
    "b": ["u", "v", "w"],
}
# Mechanisms are for all rows, so that one frame may be read as a table released whole and as a sample.
WHOLE = build_plan(SPACES, epsilon=30.0, groups=[("a", "b")])
PART = replace(WHOLE, n=N, sample=M)


def make_table(n, seed=5):
    rng = np.random.default_rng(seed)
    likes = [[item for item in ["art", "bingo", "chess"] if rng.random() < 0.4] for _ in range(n)]
    return pd.DataFrame(
        {
            "sex": rng.choice(["F", "M"], n, p=[0.4, 0.6]),
            "job": pd.Series(rng.choice(["x", "y", "z", None], n, p=[0.5, 0.2, 0.1, 0.2]), dtype="str"),
            "age": rng.integers(10, 50, n),
            "wage": np.where(rng.random(n) < 0.1, np.nan, rng.gamma(2, 1, n).clip(0, 10)),
            "likes": pd.Series(
                [None if rng.random() < 0.1 else row for row in likes], dtype=pd.ArrowDtype(pa.list_(pa.string()))
            ),
            "a": rng.choice(["p", "q"], n, p=[0.3, 0.7]),
            "b": rng.choice(["u", "v", "w"], n),
        }
    )


def released(n=M):
    table = make_table(n)
    out = release({c.name: c.space.encode(table[c.name]) for c in WHOLE.columns}, WHOLE, KEY)
    return pa.table({c.name: c.space.decode(out[c.name]) for c in WHOLE.columns})


FRAME = released()
AS_WHOLE, AS_PART = Estimates(FRAME, WHOLE), Estimates(FRAME, PART)


def wide(frame):
    """Return a result as (estimate, variance)."""
    frame = frame.to_frame().T if isinstance(frame, pd.Series) else frame
    point, error = (frame[name].to_numpy(dtype=float).ravel() for name in ("estimate", "std_error"))
    return point, error**2


SHARES = {
    "shares": lambda e, t: e.value_counts("job", normalize=True, sort=False, target=t),
    "joint": lambda e, t: e.joint(["sex", "job"], normalize=True, method="inverse", target=t),
    "given": lambda e, t: e.joint(["sex", "job"], given="sex", method="inverse", target=t),
    "grouped joint": lambda e, t: e.joint(["a", "b", "sex"], given="a", method="inverse", target=t),
    "mean": lambda e, t: e.mean("wage", target=t),
    "weighted mean": lambda e, t: e.mean("wage", weights="age", target=t),
    "group means": lambda e, t: e.mean("age", by="sex", method="inverse", target=t),
    "means within a group": lambda e, t: e.mean("age", by="b", method="inverse", target=t),
    "null rate": lambda e, t: e.null_rate("wage", target=t),
    "null sets": lambda e, t: e.null_rate("likes", target=t),
    "support": lambda e, t: e.support("likes", target=t),
    "item set": lambda e, t: e.support("likes", ["art", "chess"], target=t),
    "support by": lambda e, t: e.support("likes", by="sex", target=t),
    "pairs' shares": lambda e, t: e.cooccurrence("likes", normalize=True, target=t),
    "mean size": lambda e, t: pd.Series(e.set_sizes("likes", target=t).attrs["mean_size"]),
    "variance": lambda e, t: e.var("age", ddof=0, target=t),
    "covariance": lambda e, t: e.cov(["age", "wage"], ddof=0, target=t),
}
COUNTS = {
    "counts": lambda e, t: e.value_counts("job", sort=False, dropna=False, target=t),
    "cross table": lambda e, t: e.crosstab("sex", "job", margins=True, target=t),
    "grouped counts": lambda e, t: e.crosstab("a", "b", target=t),
    "item counts": lambda e, t: e.support("likes", normalize=False, target=t),
    "item set count": lambda e, t: e.support("likes", ["art", "chess"], normalize=False, target=t),
    "pairs": lambda e, t: e.cooccurrence("likes", target=t),
    "sum": lambda e, t: e.sum("wage", target=t),
    "weighted sum": lambda e, t: e.sum("wage", weights="age", target=t),
}


@pytest.mark.parametrize("name", [*SHARES, *COUNTS])
def test_errors_add_the_finite_population_term(name):
    """The same rows as a table released whole, and as a sample: shares are equal, counts are those of all rows."""
    ask, times = (SHARES[name], 1) if name in SHARES else (COUNTS[name], N / M)
    (point, table), (_, population) = wide(ask(AS_WHOLE, "table")), wide(ask(AS_WHOLE, "population"))
    found, variance = wide(ask(AS_PART, "table"))
    np.testing.assert_allclose(found, point * times, rtol=1e-9)
    held = np.full(len(point), True) if name != "cross table" else table * population > 0  # all rows: no error
    expected = ((1 - C) * table + C * population) * times**2
    # Errors are those of the law at the fitted shares, to which half a row is added: of more rows a smaller part.
    np.testing.assert_allclose(variance[held], expected[held], rtol=5e-3)
    found, variance = wide(ask(AS_PART, "population"))
    np.testing.assert_allclose(found, point * times, rtol=1e-9)
    np.testing.assert_allclose(variance, population * times**2, rtol=5e-3)


def test_variance_with_ddof_is_the_tables():
    assert AS_PART.var("age")["estimate"] == pytest.approx(AS_PART.var("age", ddof=0)["estimate"] * N / (N - 1))


BOOTSTRAPPED = {
    "histogram": lambda e, t: e.histogram("age", 4, target=t),
    "set sizes": lambda e, t: e.set_sizes("likes", target=t),
    "em": lambda e, t: e.value_counts("job", sort=False, method="em", target=t),
    "project": lambda e, t: e.value_counts("job", sort=False, method="project", target=t),
    "joint": lambda e, t: e.joint(["a", "b"], method="em", target=t),
}


@pytest.mark.parametrize("name", BOOTSTRAPPED)
def test_fitted_counts_are_those_of_all_rows(name):
    ask = BOOTSTRAPPED[name]
    point, table = wide(ask(AS_WHOLE, "table"))
    found, variance = wide(ask(AS_PART, "table"))
    np.testing.assert_allclose(found, point * N / M, rtol=1e-9)
    assert np.isfinite(variance).all()
    # Of 20 replicas a variance is off by less than a factor of 3.
    population = wide(ask(AS_WHOLE, "population"))[1]
    expected = ((1 - C) * table.sum() + C * population.sum()) * (N / M) ** 2
    assert expected / 3 < variance.sum() < 3 * expected


def test_counts_of_a_model_are_those_of_all_rows():
    whole = build_plan({name: SPACES[name] for name in "ab"}, epsilon=6.0)
    estimates = [Estimates(FRAME, plan) for plan in (whole, replace(whole, n=N, sample=M))]
    (point, table), (found, variance) = (wide(e.joint(["a", "b"], method="model")) for e in estimates)
    # Fits are in single precision. Rows tell of the population, whatever the target.
    np.testing.assert_allclose(found, point * N / M, rtol=1e-4)
    # The rows are drawn from all rows, and tables' cells lie about their law by chance, which does not scale.
    sampled = (N / M - 1) * found * (1 - found / N)
    np.testing.assert_allclose(variance, table * (N / M) ** 2 + sampled, rtol=5e-2)


def test_densities_and_quantiles_do_not_scale():
    for ask in (lambda e: e.histogram("age", 4, density=True), lambda e: e.quantile("age", [0.3, 0.5])):
        np.testing.assert_allclose(ask(AS_PART)["estimate"], ask(AS_WHOLE)["estimate"])


@pytest.mark.slow
@pytest.mark.parametrize("n, rows", [(50, 50), (50, 80), (50, 500)])
def test_replicas_draw_from_a_finite_table(n, rows):
    """Without noise, a replica's shares are off by what sampling adds: c·p(1−p)/n on average.

    4,000 replicas: the variance has a deviation of 2.3 %, and 12 % is more than 5 of it.
    """
    drawn = (rows - n) / (rows - 1)
    shares = np.array([0.5, 0.3, 0.2])
    pairs = refits(shares, Matrices((np.eye(3),)), n, np.asarray, drawn, 4_000)
    errors = np.array([counts / n - truth for truth, counts in pairs])
    p = (shares * n + 0.5) / (n + 1.5)
    expected = drawn * p * (1 - p) / n
    if drawn == 0:
        assert np.abs(errors).max() < 3 / n  # rounding of the cells alone
    else:
        np.testing.assert_allclose((errors**2).mean(axis=0), expected, rtol=0.12)


def test_replicas_know_how_many_rows_the_table_has():
    """80 rows have 40 in each half; of 81 or 79 a share could not be a half."""
    pairs = refits(np.array([0.5, 0.5]), Matrices((np.eye(2),)), 50, np.asarray, (80 - 50) / (80 - 1), 20)
    for truth, counts in pairs:
        np.testing.assert_array_equal(truth, [0.5, 0.5])
        assert counts.sum() == 50


def test_replicas_of_a_huge_table_are_those_of_the_population():
    shares = np.array([0.5, 0.5])
    found, population = (refits(shares, Matrices((np.eye(2),)), 100, np.asarray, drawn, 3) for drawn in (1 - 1e-9, 1.0))
    for (truth, counts), (other, same) in zip(found, population, strict=True):
        np.testing.assert_array_equal(counts, same)
        np.testing.assert_array_equal(truth, other)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_stated_variance_is_right_on_average_over_all_samples_and_all_noise(m):
    """Every sample of m of 4 rows, every release of it: the mean of the stated variance is V(1 − c/m).

    V is the variance of the estimate over them all. What is missing is that of the sample's own mean, as in every
    sample variance without Bessel's correction.
    """
    space = dpf.Categorical(["x", "y", "z"])
    column = Column("v", space, mechanism_for(space, 1.0, 0.0))
    law = column.mechanism.apply(np.eye(3))  # P(y | x), shape (y, x)
    table, values = np.array([0, 0, 1, 2]), np.array([1.0, -2.0, 4.0])
    rows, c = len(table), (len(table) - m) / (len(table) - 1)
    term = {"v": (lambda codes, power: values[codes] ** power, 1)}
    weights, means, variances = [], [], []
    samples = list(itertools.combinations(range(rows), m))
    for sample, noisy in itertools.product(samples, itertools.product(range(3), repeat=m)):
        sums = surrogates.product_sums({0: [term]}, {"v": column}, [{"v": np.array(noisy)}])[0]
        (mean,), ((variance,),) = surrogates.delta_method(sums, lambda means, n: [means[0]], c, rows / m)
        weights.append(np.prod([law[y, table[i]] for y, i in zip(noisy, sample, strict=True)]) / len(samples))
        means.append(mean)
        variances.append(variance)
    w, means = np.array(weights), np.array(means)
    assert w.sum() == pytest.approx(1)
    assert w @ means == pytest.approx(values[table].mean())
    exact = w @ (means - w @ means) ** 2
    assert w @ np.array(variances) == pytest.approx(exact * (1 - c / m))


# Which table: the release says how many rows there were


@pytest.fixture(scope="module")
def plan():
    return build_plan({"sex": ["F", "M"], "age": (0, 60)}, epsilon=3.0, n=2_000, sample=500)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2_000, 2_500])
def test_counts_are_of_the_table_that_was_there(rows, plan, tmp_path):
    """Its plan was made for 2,000 rows; in memory, in a file, and where the release lost its metadata."""
    table = make_table(rows)[["sex", "age"]]
    safe = dpf.sanitize(table, plan=plan, key=KEY)
    assert len(safe) == 500
    e = safe.dp.estimates()
    assert (e.n, e.rows) == (500, rows)
    assert repr(e) == f"<Estimates of a release of 500 of {rows:,} rows: sex, age>"
    assert e.value_counts("sex")["estimate"].sum() == pytest.approx(rows)
    assert e.value_counts("sex", target="population")["estimate"].sum() == pytest.approx(rows)
    assert e.histogram("age")["estimate"].sum() == pytest.approx(rows)
    assert e.sum("age")["estimate"] == pytest.approx(e.mean("age")["estimate"] * rows)
    assert safe.dp.release.rows == rows
    table.to_parquet(tmp_path / "in.parquet", index=False)
    info = dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, key=KEY)
    assert info == safe.dp.release
    file = Estimates(tmp_path / "out.parquet")
    pd.testing.assert_frame_equal(file.value_counts("sex"), e.value_counts("sex"))
    bare = pd.DataFrame(safe.to_dict("list"))
    assert Estimates(bare, plan).rows == dpf.attach(bare, plan).dp.estimates().rows == 2_000
    assert dpf.attach(bare, safe.dp.release).dp.estimates().rows == rows


def test_a_part_of_a_sample_stands_for_a_part_of_the_table(plan):
    safe = dpf.sanitize(make_table(2_000)[["sex", "age"]], plan=plan, key=KEY)
    with pytest.warns(dpf.errors.AlteredReleaseWarning):
        e = safe.iloc[:100].dp.estimates()
    assert e.value_counts("sex")["estimate"].sum() == pytest.approx(400)


def test_a_sample_of_all_rows_is_the_table():
    plan = build_plan({"sex": ["F", "M"]}, epsilon=1.0, n=1_000, sample=1_000)
    safe = dpf.sanitize(make_table(1_000)[["sex"]], plan=plan, key=KEY)
    e = safe.dp.estimates()
    whole = Estimates(pa.table({"sex": safe["sex"].tolist()}), replace(plan, sample=None))
    pd.testing.assert_frame_equal(e.value_counts("sex"), whole.value_counts("sex"))


def test_a_release_of_all_rows_says_nothing_more(plan):
    info = dpf.sanitize(make_table(50)[["sex"]], epsilon=1.0, spaces={"sex": ["F", "M"]}).dp.release
    assert info.rows is None
    assert "rows" not in json.loads(info.to_json())
    sampled = ReleaseInfo(plan, 500, "0", 2_100)
    assert ReleaseInfo.from_json(sampled.to_json()) == sampled


@pytest.mark.parametrize("rows", [499, "2000", 2_000.0, True, []])
def test_damaged_numbers_of_rows_are_refused(rows, plan):
    text = json.dumps(json.loads(ReleaseInfo(plan, 500, "0").to_json()) | {"rows": rows})
    with pytest.raises(PlanError, match="metadata is damaged"):
        ReleaseInfo.from_json(text)


# The best sample size


@pytest.mark.slow
def test_a_curve_is_what_the_plans_themselves_forecast():
    spaces = {"x": list("pqr"), "y": list("uvwz")}
    plan = build_plan(spaces, epsilon=0.5, n=20_000)
    for statistic, columns, row in [
        ("joint", None, ("joint", "x × y")),
        ("joint", ["x"], ("marginal", "x")),
        ("marginal", ["y"], ("marginal", "y")),
        ("marginal", "y", ("marginal", "y")),
    ]:
        curve = plan.sample_curve(statistic, columns, points=4)
        assert list(curve.columns) == ["row_epsilon", "std_error", "best"]
        assert curve.index.is_monotonic_increasing
        assert curve.index[-1] == 20_000
        assert curve.index[curve["best"]].tolist() == [curve["std_error"].idxmin()]
        for m in curve.index:
            made = build_plan(spaces, epsilon=0.5, n=20_000, sample=int(m))
            assert curve.loc[m, "std_error"] == pytest.approx(made.forecast().loc[row, "std_error"], rel=1e-3)
            assert curve.loc[m, "row_epsilon"] == pytest.approx(made.local_sum.epsilon, rel=1e-3)


def test_the_best_of_a_curve_is_the_least_of_all_sizes():
    """By pure accounting, where one joint channel has a closed form: every size from 1 to 400."""
    plan = build_plan({"x": list("pqr"), "y": list("uv")}, epsilon=0.3, delta=0.0, n=400, groups=[("x", "y")])
    curve = plan.sample_curve()
    best = int(curve.index[curve["best"]][0])
    k, n, g = 6, 400, np.expm1(0.3)
    assert curve.attrs["theorem"] == min(n, int(n * g * (np.sqrt(k) + 1) / k**1.5))
    assert "theorem" not in plan.sample_curve("marginal", points=4).attrs

    def error(m):  # randomised response of the joint type at γ = 1 + (n/m)(e^ε − 1), uniform, of m rows
        gamma = 1 + g * n / m
        signal, p = (gamma - 1) / (gamma + k - 1), 1 / (gamma + k - 1)
        seen = (1 / k) * signal + p
        noise = seen * (1 - 2 * p) + p**2
        own = (1 / k) * (1 - 1 / k)
        return (noise / signal**2 - 1 / k + (n - m) / (n - 1) * own) / m

    sizes = np.arange(1, n + 1)
    np.testing.assert_allclose(curve["std_error"], np.sqrt([error(m) for m in curve.index]), rtol=1e-6)
    assert abs(best - sizes[np.argmin([error(m) for m in sizes])]) <= 2
    assert curve["best"].sum() == 1


def test_the_theorem_stands_only_where_it_holds():
    two = {"x": list("pqr"), "y": list("uv")}
    whole, third = [("x", "y")], {**two, "z": list("kl")}
    options = {"epsilon": 0.3, "delta": 0.0, "n": 400}
    names = ["row_epsilon", "std_error", "best"]
    for plan, columns in [
        (build_plan(two, **options), None),  # columns on their own
        (build_plan(third, **options, groups=whole), ["x", "y"]),  # a third column
        (build_plan(third, **options, groups=[("x", "y", "z")]), ["x", "y"]),  # a part of a group
        (build_plan(two, **(options | {"delta": 1e-6}), groups=whole), None),  # credit for the order
    ]:
        curve = plan.sample_curve(columns=columns, points=4)
        assert "theorem" not in curve.attrs
        assert list(curve.columns) == names
    curve = build_plan({"x": list("pqr")}, **options).sample_curve(points=4)
    assert "theorem" in curve.attrs
    assert list(curve.columns) == [*names, "bound_printed", "bound"]


def test_bounds_of_the_theorem_hold_and_are_its_formulas():
    n, k = 400, 6
    plan = build_plan({"x": list("pqr"), "y": list("uv")}, epsilon=0.3, delta=0.0, n=n, groups=[("x", "y")])
    curve = plan.sample_curve()
    m = curve.index.to_numpy()
    gamma = 1 + n / m * np.expm1(0.3)
    c = (gamma + k - 1) / (gamma - 1)
    np.testing.assert_allclose(curve["bound_printed"], (c * np.sqrt(k) + 1) / np.sqrt(m), rtol=1e-6)
    np.testing.assert_allclose(curve["bound"], (c + 1) / np.sqrt(m), rtol=1e-6)
    assert (curve["std_error"] * np.sqrt(k) <= curve["bound"]).all()
    assert (curve["bound"] < curve["bound_printed"]).all()


def test_curves_of_means_supports_and_groups():
    spaces = {"age": (0, 60), "pay": (0, 9), "likes": dpf.Subset(list("abcde")), "sex": ["F", "M"]}
    plan = build_plan(spaces, epsilon=0.5, delta=0.0, n=10_000, groups=[("sex", "pay")])
    for options in (("mean", ["age"]), ("mean", ["pay"]), ("support",), ("joint",), ("marginal", ["pay"])):
        curve = plan.sample_curve(*options, points=6)
        assert len(curve) == 6
        assert (curve["std_error"] > 0).all()
        assert curve["std_error"].idxmin() < 10_000, options  # ε is small, and order earns nothing: a sample helps
        made = build_plan(
            spaces, epsilon=0.5, delta=0.0, n=10_000, groups=[("sex", "pay")], sample=int(curve.index[2])
        ).forecast()
        if options[0] == "mean":
            assert curve["std_error"].iloc[2] == pytest.approx(made.loc[("mean", options[1][0]), "std_error"])
        if options[0] == "support":
            assert curve["std_error"].iloc[2] == pytest.approx(made.loc[("support", "likes"), "std_error"])


def test_sizes_that_no_noise_reaches_are_left_blank():
    """A given matrix costs what it costs: at all rows it is beyond the promise."""
    plan = build_plan(
        {"v": ["x", "y"], "w": ["a", "b"]},
        epsilon=0.1,
        delta=0.0,
        n=1_000,
        sample=10,
        mechanisms={"v": dpf.channels.Matrix.of([[0.7, 0.3], [0.3, 0.7]])},
    )
    curve = plan.sample_curve("marginal")
    assert curve["std_error"].isna().iloc[-1]
    assert curve["best"].sum() == 1
    assert np.isfinite(curve.loc[curve["best"], "std_error"]).all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("median",), "statistic must be one of joint, marginal, mean, support"),
        (("joint", None, 2), "points must be a whole number, at least 3"),
        (("joint", ["height"]), "columns names 'height', which is not a randomised column"),
        (("mean", ["sex"]), "columns names 'sex', which statistic='mean' does not take"),
        (("joint", ["sex", "sex"]), "columns names 'sex'"),
        (("support",), r"statistic='support' needs columns=\[…\]; no column of the plan fits it"),
        (("joint", []), r"statistic='joint' needs columns=\[…\]; those it takes are sex, age, pay"),
        (("mean",), r"statistic='mean' needs columns=\[name\]; those it takes are age, pay"),
    ],
)
def test_curves_refuse(arguments, message):
    plan = build_plan({"sex": ["F", "M"], "age": (0, 60), "pay": (0, 9)}, epsilon=1.0, delta=0.0, n=100)
    with pytest.raises(ParameterError, match=message):
        plan.sample_curve(*arguments)


def test_a_curve_needs_to_know_the_rows():
    with pytest.raises(ParameterError, match=r"does not know how.*to sample from"):
        build_plan({"sex": ["F", "M"]}, epsilon=1.0).sample_curve()
