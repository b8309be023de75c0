"""Coverage of 95 % intervals on Adult, both targets: marginals, joints, means, variance, correlation.

60 releases a setting here; ``DPFRAME_RELEASES=5000 pytest -n 0 tests/estimate/test_coverage.py -s`` is the full run and
prints the table. Cells with a true count of at least 100 are counted, in all releases together; the bounds
below are 94 to 96 % widened by 4.5 deviations of a statistic whose cells were one (error probability 7e-6
per statistic at most), which at 5,000 releases is a further 1.4 %.
"""

import os
from statistics import NormalDist

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from examples import plan_of
from readings import released_codes

import dpframe as dpf

pytestmark = pytest.mark.slow

RELEASES = int(os.environ.get("DPFRAME_RELEASES", "60"))
COLUMNS = ["age", "hours_per_week", "sex", "race", "income", "workclass"]


@pytest.fixture(scope="module")
def table(adult):
    return adult[COLUMNS]


@pytest.fixture(scope="module")
def spaces(adult_spaces):
    return {name: adult_spaces[name] for name in COLUMNS}


def statistics(estimates, target):
    """Yield (name, lower, upper, estimate) of every statistic, as arrays over its cells."""
    e = estimates
    frames = {
        "marginal": e.value_counts("workclass", normalize=True, sort=False, target=target),
        # Shares are cut to [0, 1]; counts, which are not, are unbiased.
        "2-way": e.joint(["sex", "race"], method="inverse", target=target) / e.n,
        "3-way": e.joint(["sex", "race", "income"], method="inverse", target=target) / e.n,
        "mean": e.mean("age", target=target).to_frame().T,
        "group means": e.mean("hours_per_week", by="sex", target=target),
        "variance": e.var("age", target=target).to_frame().T,
        "correlation": e.corr(["age", "hours_per_week"], target=target)
        .xs("hours_per_week", axis=1, level=1)
        .loc[["age"]],
    }
    for name, frame in frames.items():
        yield name, *(frame[column].to_numpy(dtype=float) for column in ("lower", "upper", "estimate"))


def truths(table):
    """Return the true value of every cell, and which cells count."""
    n = len(table)
    known = table.dropna(subset=["workclass"])
    joints = [
        known["workclass"].value_counts(normalize=True).sort_index(),
        table.groupby(["sex", "race"]).size() / n,
        table.groupby(["sex", "race", "income"]).size() / n,
    ]
    cells = [(v.to_numpy(), v.to_numpy() * n >= 100) for v in joints]
    scalars = [
        [table["age"].mean()],
        table.groupby("sex")["hours_per_week"].mean().to_numpy(),
        [table["age"].var()],
        [table["age"].corr(table["hours_per_week"])],
    ]
    names = ["marginal", "2-way", "3-way", "mean", "group means", "variance", "correlation"]
    return dict(zip(names, [*cells, *((np.asarray(v), np.ones(len(v), bool)) for v in scalars)], strict=True))


@pytest.mark.filterwarnings("ignore:correlations are NaN")
@pytest.mark.parametrize("target", ["table", "population"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_intervals_cover(epsilon, target, table, spaces):
    plan = plan_of(spaces, epsilon=epsilon * len(COLUMNS))
    codes = {c.name: c.space.encode(table[c.name]) for c in plan.columns}
    truth = truths(table)
    hits = {name: [] for name in truth}
    points = {name: [] for name in truth}
    rng = np.random.default_rng(7)
    for i in range(RELEASES):
        # For the population a fresh table is drawn from Adult, which is then the population.
        rows = rng.integers(0, len(table), len(table)) if target == "population" else slice(None)
        drawn = {name: column[rows] for name, column in codes.items()}
        out = released_codes(drawn, plan, (i + 1).to_bytes(32, "big"))
        arrays = {c.name: c.space.decode(out[c.name]) for c in plan.columns}
        for name, lower, upper, point in statistics(dpf.Estimates(pa.table(arrays), plan), target):
            value, counted = truth[name]
            hits[name].append(((lower <= value) & (value <= upper))[counted])
            points[name].append(point[counted])
    for name, found in hits.items():
        covered = np.stack(found)
        print(f"eps={epsilon} {target:10s} {name:12s} covered {covered.mean():.4f}")
        # At ε = 0.5 noise is larger than a variance, and the profile of a correlation is conservative.
        low, high = 0.94, 1.0 if name == "correlation" else 0.96
        slack = 4.5 * np.sqrt(0.05 * 0.95 / RELEASES)
        assert low - slack <= covered.mean() <= high + slack, (name, covered.mean())
        if name in ("2-way", "3-way", "mean"):  # a correlation may be NaN in all releases but one
            (value, counted), point = truth[name], np.stack(points[name])
            errors = (point.mean(axis=0) - value[counted]) / (point.std(axis=0) / np.sqrt(RELEASES))
            assert np.abs(errors).max() < 5, (name, errors)  # unbiased: 5 Monte-Carlo errors over some 20 cells


def test_null_category_is_a_marginal_too(table, spaces):
    plan = plan_of(spaces, epsilon=6)
    safe = dpf.sanitize(pd.DataFrame(table), plan=plan, key=bytes(32))
    rate = safe.dp.null_rate("workclass")
    assert abs(rate["estimate"] - table["workclass"].isna().mean()) < 5 * rate["std_error"]


# A secret sample of a tenth of a census: what the choice of its rows adds is about as large as the noise.
# Coverage is held to the same bounds as above (7e-6 per statistic). Means over all releases lie within 2.5
# Monte-Carlo errors of the truth, for several cells as many as they exceed together as seldom: 1.2 % per
# statistic, keys fixed.

ROWS, SAMPLE = 10_000, 1_000
SAMPLED = ["age", "sex", "region", "occupation"]


def sampled_statistics(estimates, target):
    """Yield (name, frame) of every statistic of the sampled census."""
    e = estimates
    yield "counts", e.value_counts("region", sort=False, target=target)
    yield "shares", e.value_counts("occupation", normalize=True, sort=False, target=target)
    yield "2-way", e.joint(["sex", "region"], method="inverse", target=target)
    yield "mean", e.mean("age", target=target).to_frame().T
    yield "sum", e.sum("age", target=target).to_frame().T
    yield "group means", e.mean("age", by="sex", target=target)
    yield "null rate", e.null_rate("occupation", target=target).to_frame().T


def sampled_truths(table, spaces):
    regions, jobs = spaces["region"], list(spaces["occupation"].inner.categories)
    cells = pd.crosstab(table["sex"], table["region"]).reindex(index=["F", "M"], columns=regions).to_numpy().ravel()
    return {
        "counts": table["region"].value_counts().reindex(regions).to_numpy(),
        "shares": table["occupation"].value_counts(normalize=True).reindex(jobs).to_numpy(),
        "2-way": cells,
        "mean": np.array([table["age"].mean()]),
        "sum": np.array([table["age"].sum()]),
        "group means": table.groupby("sex")["age"].mean().reindex(["F", "M"]).to_numpy(),
        "null rate": np.array([table["occupation"].isna().mean()]),
    }


@pytest.mark.parametrize("target", ["table", "population"])
def test_intervals_of_a_secret_sample_cover(target, census_spaces):
    table = dpf.datasets.make_census(ROWS, columns=SAMPLED, random_state=3)
    spaces = {name: census_spaces[name] for name in SAMPLED}
    plan = plan_of(spaces, epsilon=4.0, n=ROWS, sample=SAMPLE)
    codes = {c.name: c.space.encode(table[c.name]) for c in plan.columns}
    truth = sampled_truths(table, spaces)
    found = {name: [] for name in truth}
    rng = np.random.default_rng(11)
    for i in range(RELEASES):
        key = (i + 1_001).to_bytes(32, "big")
        rows = rng.integers(0, ROWS, ROWS) if target == "population" else np.arange(ROWS)
        out = released_codes({name: column[rows] for name, column in codes.items()}, plan, key)
        arrays = {c.name: c.space.decode(out[c.name]) for c in plan.columns}
        for name, frame in sampled_statistics(dpf.Estimates(pa.table(arrays), plan), target):
            found[name].append(frame[["estimate", "std_error", "lower", "upper"]].to_numpy(dtype=float).T)
    for name, values in found.items():
        point, error, lower, upper = np.stack(values, axis=1)
        counted = truth[name] >= 100 if name in ("counts", "2-way") else np.ones(len(truth[name]), bool)
        covered = ((lower <= truth[name]) & (truth[name] <= upper))[:, counted].mean()
        spread = point.std(axis=0, ddof=1)
        bias = np.abs(point.mean(axis=0) - truth[name]) / (spread / np.sqrt(RELEASES))
        ratio = np.sqrt((error**2).mean(axis=0)) / spread
        print(
            f"{target:10s} {name:12s} covered {covered:.4f}  bias/MC error {bias.max():.2f}"
            f"  stated/actual error {np.sqrt((ratio**2).mean()):.3f}"
        )
        slack = 4.5 * np.sqrt(0.05 * 0.95 / RELEASES)
        assert 0.94 - slack <= covered <= 0.96 + slack, (name, covered)
        assert bias.max() < NormalDist().inv_cdf(1 - 0.00621 / len(bias)), (name, bias)
