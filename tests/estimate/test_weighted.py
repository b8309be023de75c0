"""Statistics with a column of weights: pandas' own on one draw's rows, and intervals that cover the table's."""

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf

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
SAFE = dpf.sanitize(few_values(), epsilon=20, delta=1e-6, spaces=FEW_SPACES, key=bytes(32))


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
    answer, truth = np.atleast_2d(ask(estimates).to_numpy(dtype=float)), np.ravel(compute(table))
    assert len(answer) == len(truth)
    # Half a rounding error of sums of floats.
    return (answer[:, 2] <= truth * (1 + 1e-9)) & (truth * (1 - 1e-9) <= answer[:, 3])


@pytest.mark.slow
def test_weighted_answers_cover_the_table():
    """Over six releases at fixed keys: at least .93 of all intervals, and no question in less than .75 of its own."""
    hits = {name: [] for name in QUESTIONS}
    for seed in range(6):
        estimates, table = dpf.Estimates(release(seed=seed)), survey(seed=seed)
        for name, own in hits.items():
            own += covered(estimates, table, name).tolist()
    assert np.mean(sum(hits.values(), [])) >= 0.93, {name: np.mean(own) for name, own in hits.items()}
    assert min(np.mean(own) for own in hits.values()) >= 0.75, {name: np.mean(own) for name, own in hits.items()}


@pytest.mark.parametrize("name", ["value_counts", "shares", "crosstab", "median by", "std by", "var", "sum"])
def test_weighted_answers_are_near_the_table(name):
    """At ε = 20, of a table of few values: within a twelfth of pandas' own, where equal weights differ by more."""
    ask, compute = QUESTIONS[name]
    answer = np.atleast_2d(ask(dpf.Estimates(SAFE)).to_numpy(dtype=float))[:, 0]
    assert answer == pytest.approx(np.ravel(compute(few_values())), rel=0.08)


def test_a_population_has_wider_intervals_and_attrs_name_the_weights():
    table, population = (SAFE.dp.value_counts("sex", weights="w", target=t) for t in ("table", "population"))
    assert (population["std_error"] > table["std_error"]).all()
    assert table.attrs["weights"] == "w"
    assert table.attrs["source"] == "tables"
    assert population["estimate"].tolist() == table["estimate"].tolist()


def test_shares_of_weights_add_up_to_one():
    for normalize, axis in ((True, None), ("index", 1), ("columns", 0)):
        shares = SAFE.dp.crosstab("region", "sex", normalize=normalize, weights="w")["estimate"].to_numpy()
        assert np.sum(shares, axis=axis) == pytest.approx(1, abs=1e-6)


def test_quantiles_by_group_have_a_row_for_each_level():
    quantiles = SAFE.dp.quantile("age", [0.25, 0.75], by="sex", weights="w")
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
        ask(dpf.Estimates(SAFE))
    assert len(str(refusal.value).splitlines()) == 1


def test_weights_below_zero_are_refused():
    table = pd.DataFrame({"x": np.arange(200) % 7, "w": np.arange(200) % 5 - 2})
    safe = dpf.sanitize(table, epsilon=1, spaces={"x": (0, 6), "w": (-2, 2)}, key=bytes(32))
    with pytest.raises(dpf.ParameterError, match="weights must be numbers from 0 on, which 'w' does not hold"):
        safe.dp.median("x", weights="w")
