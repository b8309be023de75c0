"""Statistics with a column of weights: pandas' own on one draw's rows, and intervals that cover the table's."""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.cli.main import main
from dpframe.totals.weight_sums import WeightSteps

SPACES = {
    "region": list("ABCD"),
    "sex": ["F", "M"],
    "age": (0, 99),
    "income": dpf.Nullable(dpf.Real(0, 200)),
    "w": dpf.Real(0, 10),
}


def survey(n=4_000, seed=0):
    """Weights from 1 to 10, which differ between regions; incomes that depend on age, some of them null."""
    generator = np.random.default_rng(seed)
    region, sex = generator.choice(4, n, p=[0.4, 0.3, 0.2, 0.1]), generator.integers(0, 2, n)
    age = np.clip(generator.normal(45 + 3 * region, 15, n), 0, 99).astype(int)
    weights = np.clip(np.array([1.5, 3, 5, 8])[region] * np.exp(generator.normal(0, 0.3, n)), 1, 10).round(2)
    income = np.clip(np.exp(generator.normal(3 + age / 100 + 0.3 * sex, 0.5, n)), 0, 200)
    names = {"region": np.array(list("ABCD"))[region], "sex": np.array(["F", "M"])[sex], "age": age}
    return pd.DataFrame(names | {"income": np.where(generator.random(n) < 0.1, np.nan, income), "w": weights})


def release(epsilon=1, seed=0, **options):
    return dpf.sanitize(
        survey(seed=seed), epsilon=epsilon, delta=1e-6, spaces=SPACES, key=bytes([seed]) * 32, **options
    )


def few_values(n=1_500):
    """A smaller table, of which fits take little time."""
    table = survey(n)[["region", "sex"]].assign(age=survey(n)["age"] // 10)
    return table.assign(w=np.rint(survey(n)["w"]).astype(int))


FEW_SPACES = {"region": list("ABCD"), "sex": ["F", "M"], "age": (0, 9), "w": (0, 10)}


@cache
def few_released():
    return dpf.sanitize(few_values(), epsilon=20, delta=1e-6, spaces=FEW_SPACES, key=bytes(32))


def weighted_median(x, w):
    order = np.argsort(x.to_numpy(), kind="stable")
    cumulative = np.cumsum(w.to_numpy()[order])
    return x.to_numpy()[order][np.searchsorted(cumulative, cumulative[-1] / 2)]


def weighted_cov(x, y, w):
    return ((x - np.average(x, weights=w)) * (y - np.average(y, weights=w)) * w).sum() / w.sum()


def weighted_std(x, w):
    return np.sqrt(weighted_cov(x, x, w) * len(x) / (len(x) - 1))


def by_group(table, key, column, function):
    return [function(part[column], part["w"]) for _, part in table.dropna(subset=[column]).groupby(key)]


QUESTIONS = {
    "value_counts": (
        lambda e: e.value_counts("region", sort=False, weights="w"),
        lambda t: t.groupby("region")["w"].sum(),
    ),
    "shares": (
        lambda e: e.value_counts("region", normalize=True, sort=False, weights="w"),
        lambda t: t.groupby("region")["w"].sum() / t["w"].sum(),
    ),
    "bins": (
        lambda e: e.value_counts("age", bins=[0, 40, 60, 100], sort=False, weights="w"),
        lambda t: t.groupby(pd.cut(t["age"], [-1, 39, 59, 99]), observed=True)["w"].sum(),
    ),
    "crosstab": (
        lambda e: e.crosstab("region", "sex", margins=True, weights="w").stack(level=1, future_stack=True),
        lambda t: pd.crosstab(t["region"], t["sex"], t["w"], aggfunc="sum", margins=True).stack(),
    ),
    "count": (
        lambda e: e.count({"age": (30, 50), "sex": {"not": "M"}}, weights="w"),
        lambda t: [t.loc[t["age"].between(30, 50) & (t["sex"] == "F"), "w"].sum()],
    ),
    "median": (lambda e: e.median("age", weights="w"), lambda t: [weighted_median(t["age"], t["w"])]),
    "median by": (
        lambda e: e.median("age", by="sex", weights="w"),
        lambda t: by_group(t, "sex", "age", weighted_median),
    ),
    "std": (lambda e: e.std("age", weights="w"), lambda t: [weighted_std(t["age"], t["w"])]),
    "std by": (lambda e: e.std("age", by="sex", weights="w"), lambda t: by_group(t, "sex", "age", weighted_std)),
    "std by without weights": (lambda e: e.std("age", by="sex"), lambda t: t.groupby("sex")["age"].std()),
    "var": (lambda e: e.var("age", weights="w"), lambda t: [weighted_std(t["age"], t["w"]) ** 2]),
    "mean": (
        lambda e: e.mean("income", weights="w"),
        lambda t: [np.average(t["income"].dropna(), weights=t.loc[t["income"].notna(), "w"])],
    ),
    "mean by": (
        lambda e: e.mean("income", by=["region"], weights="w"),
        lambda t: by_group(t, "region", "income", lambda x, w: np.average(x, weights=w)),
    ),
    "sum": (lambda e: e.sum("age", weights="w"), lambda t: [(t["age"] * t["w"]).sum()]),
    "corr": (
        lambda e: e.corr(["age", "income"], weights="w").stack(level=1, future_stack=True).loc[[("age", "income")]],
        lambda t: [correlation(t.dropna(subset=["income"]))],
    ),
}


def correlation(t):
    spreads = [weighted_cov(t[name], t[name], t["w"]) for name in ("age", "income")]
    return weighted_cov(t["age"], t["income"], t["w"]) / np.sqrt(np.prod(spreads))


def covered(estimates, table, name):
    ask, compute = QUESTIONS[name]
    # Intervals are judged whether or not an answer warns of a dependence that noise hides.
    with warnings.catch_warnings(action="ignore", category=dpf.errors.InferenceWarning):
        answer, truth = np.atleast_2d(ask(estimates).to_numpy(dtype=float)), np.ravel(compute(table))
    assert len(answer) == len(truth)
    # Half a rounding error of sums of floats.
    return (answer[:, 2] <= truth * (1 + 1e-9)) & (truth * (1 - 1e-9) <= answer[:, 3])


@pytest.mark.slow
def test_weighted_answers_cover_the_table():
    """Over three releases at fixed keys: at least .93 of all intervals."""
    hits = {name: [] for name in QUESTIONS}
    for seed in range(3):
        estimates, table = dpf.Estimates(release(seed=seed)), survey(seed=seed)
        for name, own in hits.items():
            own += covered(estimates, table, name).tolist()
    assert np.mean(np.concatenate(list(hits.values()))) >= 0.93, {name: np.mean(own) for name, own in hits.items()}


@pytest.mark.walk(3)
@pytest.mark.parametrize("name", ["value_counts", "shares", "crosstab", "median by", "std by", "var", "sum"])
def test_weighted_answers_are_near_the_table(name):
    """At ε = 20, of a table of few values: within a twelfth of pandas' own, where equal weights differ by more."""
    ask, compute = QUESTIONS[name]
    answer = np.atleast_2d(ask(dpf.Estimates(few_released())).to_numpy(dtype=float))[:, 0]
    assert answer == pytest.approx(np.ravel(compute(few_values())), rel=0.08)


def test_a_population_has_wider_intervals_and_attrs_name_the_weights():
    table, population = (few_released().dp.value_counts("sex", weights="w", target=t) for t in ("table", "population"))
    assert (population["std_error"] > table["std_error"]).all()
    assert table.attrs["weights"] == "w"
    assert table.attrs["source"] == "tables"
    assert population["estimate"].tolist() == table["estimate"].tolist()


def test_shares_of_weights_add_up_to_one():
    for normalize, axis in ((True, None), ("index", 1), ("columns", 0)):
        shares = few_released().dp.crosstab("region", "sex", normalize=normalize, weights="w")["estimate"].to_numpy()
        assert np.sum(shares, axis=axis) == pytest.approx(1, abs=1e-6)


def test_quantiles_by_group_have_a_row_for_each_level():
    quantiles = few_released().dp.quantile("age", [0.25, 0.75], by="sex", weights="w")
    assert quantiles.index.tolist() == [("F", 0.25), ("F", 0.75), ("M", 0.25), ("M", 0.75)]
    assert (np.diff(quantiles["estimate"])[[0, 2]] > 0).all()
    assert quantiles.index.names == ["sex", "q"]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda e: e.value_counts("region", weights="sex"), "column 'sex' holds no numbers; value_counts"),
        (lambda e: e.value_counts("region", weights="height"), "'height'"),
        (lambda e: e.median("age", weights="age"), "a column cannot be weighted by itself; take 'age' out"),
        (lambda e: e.count({"age": (0, 9)}, weights="w", method="inverse"), "leave method out"),
        (lambda e: e.mean("age", by="sex", weights="w", method="inverse"), "leave method out"),
        (lambda e: e.std("age", by="age"), "a column cannot be grouped by itself"),
    ],
)
def test_weights_that_do_not_fit_are_refused(ask, words):
    with pytest.raises(dpf.ParameterError, match=words) as refusal:
        ask(dpf.Estimates(few_released()))
    assert len(str(refusal.value).splitlines()) == 1


def test_weights_below_zero_are_refused():
    table = pd.DataFrame({"x": np.arange(200) % 7, "w": np.arange(200) % 5 - 2})
    safe = dpf.sanitize(table, epsilon=1, spaces={"x": (0, 6), "w": (-2, 2)}, key=bytes(32))
    with pytest.raises(dpf.ParameterError, match="weights must be numbers from 0 on, which 'w' does not hold"):
        safe.dp.median("x", weights="w")


@cache
def few_weighed():
    return dpf.sanitize(few_values(), epsilon=20, delta=1e-6, spaces=FEW_SPACES, weights="w", key=bytes(32))


def test_sums_of_weights_are_measured_by_the_cells_of_every_other_column():
    plan, table = dpf.Estimates(few_weighed()).plan, few_values()
    sums = [measure for measure in plan.measures if measure.kind == "weights"]
    assert [measure.columns for measure in sums] == [("w", name) for name in ("region", "sex", "age")]
    assert plan.verify()
    assert dpf.Plan.from_json(plan.to_json()) == plan
    assert few_weighed().dp.verify()
    # Codes are weights here; see WeightSteps for offset and scale.
    steps = WeightSteps.of(dpf.Integer(0, 10))
    for released in few_weighed().dp.release.tables:
        if released.measure.kind == "weights":
            exact = table.groupby(released.measure.columns[1])["w"].agg(
                lambda w: (steps.scale * (w - steps.offset)).sum()
            )
            deviations = (released.counts - exact.to_numpy()) / np.sqrt(released.measure.sigma2)
            assert np.abs(deviations).max() < 4.5
            assert np.std(deviations) > 0.1


@pytest.mark.parametrize("name", ["value_counts", "crosstab", "shares", "sum"])
def test_answers_by_measured_sums_are_near_the_table(name):
    ask, compute = QUESTIONS[name]
    answer = np.atleast_2d(ask(dpf.Estimates(few_weighed())).to_numpy(dtype=float))[:, 0]
    assert answer == pytest.approx(np.ravel(compute(few_values())), rel=0.08)


def test_measured_sums_lower_errors_of_weighted_counts():
    releases = few_weighed(), few_released()
    errors = [safe.dp.value_counts("region", weights="w")["std_error"].mean() for safe in releases]
    assert errors[0] < 0.6 * errors[1]


@pytest.mark.slow
def test_errors_of_weighted_counts_are_about_one_and_a_half_of_those_of_counts():
    """At ε = 1, of 10,000 rows and weights from 1 to 10, in units of the mean weight; draws know errors to a tenth."""
    table = survey(10_000)
    safe = dpf.sanitize(table, epsilon=1, delta=1e-6, spaces=SPACES, weights="w", key=bytes(32))
    weighted = safe.dp.value_counts("region", weights="w")["std_error"].mean() / table["w"].mean()
    assert weighted < 1.6 * safe.dp.value_counts("region")["std_error"].mean()


@pytest.mark.slow
def test_weighted_answers_with_measured_sums_cover_the_table():
    """Over three releases at fixed keys: at least .93 of all intervals."""
    hits = []
    for seed in range(3):
        estimates, table = dpf.Estimates(release(seed=seed, weights="w")), survey(seed=seed)
        hits += [covered(estimates, table, name) for name in QUESTIONS]
    assert np.mean(np.concatenate(hits)) >= 0.93


def test_indicators_have_sums_of_the_weights_of_their_rows():
    """The sums of the column that counts two indicators: each region's weight, at ε = 20 within a twelfth."""
    table = few_values().assign(a=lambda t: (t["region"] == "A").astype(int), other=lambda t: 1 - t["a"])
    spaces = {"a": (0, 1), "other": (0, 1), "sex": ["F", "M"], "w": (0, 10)}
    safe = dpf.sanitize(
        table[list(spaces)],
        epsilon=20,
        delta=1e-6,
        spaces=spaces,
        weights="w",
        rules=[dpf.OneOf(["a", "other"])],
        key=bytes(32),
    )
    sums = safe.dp.value_counts("a", sort=False, weights="w")["estimate"]
    assert sums.tolist() == pytest.approx(table.groupby("a")["w"].sum().tolist(), rel=0.08)


def test_files_hold_the_sums(tmp_path):
    few_values().to_parquet(tmp_path / "in.parquet")
    options = {"delta": 1e-6, "spaces": FEW_SPACES, "weights": "w", "key": bytes(32)}
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", epsilon=20, **options)
    tables = [dpf.Estimates(source).plan.measures for source in (tmp_path / "out.parquet", few_weighed())]
    assert tables[0] == tables[1]
    answers = [dpf.Estimates(s).count({"sex": "F"}, weights="w") for s in (tmp_path / "out.parquet", few_weighed())]
    assert answers[0]["estimate"] == pytest.approx(answers[1]["estimate"], rel=0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": "height"}, "weights names 'height', which has no declared bounds from 0 on; declare spaces="),
        ({"weights": "region"}, "weights names 'region', which has no declared bounds from 0 on"),
        ({"weights": "w", "spaces": FEW_SPACES | {"w": (-1, 10)}}, "weights names 'w', which has no declared bounds"),
        ({"weights": ["w"]}, "weights must be the name of one column"),
        ({"weights": "w", "delta": 0}, "weights are measured tables, which need shuffled rows and delta above 0"),
        ({"weights": "w", "shuffle": False}, "weights are measured tables, which need shuffled rows"),
    ],
)
def test_weights_that_cannot_be_measured_are_refused_and_cost_nothing(tmp_path, options, words):
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 5.0, 1e-4)
    arguments = {"epsilon": 1, "spaces": FEW_SPACES, "ledger": ledger, "dataset": "survey"} | options
    with pytest.raises(dpf.ParameterError, match=words) as refusal:
        dpf.sanitize(few_values(), **arguments)
    assert len(str(refusal.value).splitlines()) == 1
    assert ledger.remaining("survey").epsilon == 5.0


def test_the_command_line_takes_weights(tmp_path, capsys):
    dpf.write(few_weighed(), tmp_path / "release.parquet")
    for arguments in (["value-counts", "region"], ["median", "age", "--by", "sex"]):
        with pytest.raises(SystemExit) as ended:
            main(["estimate", str(tmp_path / "release.parquet"), *arguments, "--weights", "w"])
        assert not ended.value.code
    assert "region" in capsys.readouterr().out
