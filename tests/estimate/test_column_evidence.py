"""The counts that private inference measured, beside the rows."""

import numpy as np
import pandas as pd
import pytest
from conftest import KEY

import dpframe as dpf
from dpframe import Budget, Column
from dpframe.errors import AlteredReleaseWarning, ParameterError
from dpframe.estimate import column_evidence as module
from dpframe.estimate.axes import BinnedAxis, make_axis
from dpframe.estimate.column_evidence import ColumnEvidence, cell_counts_of, rows_by_cell, snapped
from dpframe.estimate.evidence.law import RowsLaw
from dpframe.estimate.results import Question
from dpframe.inference.inferred import Inferred, Measured
from dpframe.observe.observation import Observation, p_value, update
from dpframe.observe.significance import DETECTION_SE
from dpframe.plan.build import build_plan

CATEGORICAL = ["workclass", "education", "marital_status", "occupation", "relationship", "race", "sex"]
CATEGORICAL += ["native_country", "income"]


def column(space, epsilon: float) -> Column:
    return build_plan({"c": space}, epsilon=epsilon, delta=0.0)["c"]


def inferred(*measured: Measured, threshold: int = 0) -> Inferred:
    return Inferred(Budget(0.1, 1e-7), ("c",), measured, (("c", threshold),) if threshold else ())


def texts(counts, sigma: float, missing: int | None = None) -> Measured:
    names = tuple(f"v{i}" for i in range(len(counts)))
    return Measured("c", "values", names, tuple(int(c) for c in counts), sigma**2, missing)


def listed(k: int, epsilon: float, *, null: bool = False):
    space = dpf.Categorical([f"v{i}" for i in range(k)], other="other")
    return make_axis(column(dpf.Nullable(space) if null else space, epsilon), None)


def released(axis, truth, generator) -> np.ndarray:
    """Counts of released classes of a table with the given rows by cell."""
    return sum(generator.multinomial(t, axis.channel[:, i]) for i, t in enumerate(truth)).astype(float)


def combine(axis, counts, cells: Observation, weight: float = 1.0, sampling: float = 0.0):
    """Rows by cell from released rows and counts of cells, their covariance, and the counts' p-value."""
    alone = rows_by_cell(axis, counts, weight, sampling)
    found, covariance = update(*alone, cells)
    return found, covariance, p_value(*alone, cells.linearise(found)) if len(cells) else 1.0


# ----------------------------------------------------------------------------------------- least squares, in cells


def test_combination_is_the_least_squares_of_rows_and_counts():
    # Beside the normal equations over k − 1 free cells, where the rows' covariance has an inverse.
    axis, generator = listed(4, 1.0), np.random.default_rng(0)
    truth = np.array([400, 300, 200, 100, 50])
    counts = released(axis, truth, generator)
    cells = cell_counts_of(axis, inferred(texts([380, 330, 190, 90], 30.0)))
    found, covariance, _ = combine(axis, counts, cells)
    surrogates = axis.invert(np.eye(5))
    alone = surrogates @ counts
    shares = module.project(alone / 1050) * 1050 + 0.5
    shares /= shares.sum()
    law = axis.channel @ shares
    prior = 1050 * (surrogates @ np.diag(law) @ surrogates.T - np.diag(shares))
    free = np.vstack([np.eye(4), -np.ones((1, 4))])  # the last cell is what is left of all rows
    precision = np.linalg.inv(prior[:4, :4]) + np.eye(4) / 900
    x = np.linalg.solve(precision, np.linalg.inv(prior[:4, :4]) @ alone[:4] + np.array([380, 330, 190, 90]) / 900)
    np.testing.assert_allclose(found, [*x, 1050 - x.sum()], rtol=1e-8)
    np.testing.assert_allclose(covariance, free @ np.linalg.inv(precision) @ free.T, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("sigma", [1.0, 100.0, 1e6])
def test_counts_never_add_to_the_variance(epsilon, sigma):
    axis, generator = listed(6, epsilon), np.random.default_rng(1)
    counts = released(axis, [900, 500, 300, 200, 100, 50, 10], generator)
    with_counts = combine(axis, counts, cell_counts_of(axis, inferred(texts([900, 500, 300], sigma))))[1]
    nothing = Observation.stack([], 7)
    alone = combine(axis, counts, nothing)[1]
    assert (np.diag(with_counts) <= np.diag(alone) * (1 + 1e-9)).all()
    assert (np.linalg.eigvalsh(alone - with_counts) > -1e-6 * np.trace(alone)).all()
    np.testing.assert_allclose(with_counts.sum(axis=0), 0, atol=1e-6 * np.trace(alone))  # all rows are known


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_combined_counts_are_unbiased_and_covered(epsilon):
    # 600 draws, 5 cells, 2 noise levels: a mean is off by 4.5 standard errors with probability below 7e-6 each, and
    # of 600 intervals of 95 % fewer than 541 hold with probability below 5e-6 each: 1e-4 in all.
    truth, sigma = np.array([9000, 6000, 3000, 2500, 400]), 100.0
    axis, generator = listed(4, epsilon), np.random.default_rng(2)
    found, variances = [], []
    for _ in range(600):
        measured = texts(np.rint(truth[:4] + sigma * generator.standard_normal(4)), sigma)
        cells = cell_counts_of(axis, inferred(measured, threshold=600))
        x, covariance, _ = combine(axis, released(axis, truth, generator), cells)
        found.append(x)
        variances.append(np.diag(covariance))
    found, errors = np.array(found), np.sqrt(variances)
    assert (abs(found.mean(axis=0) - truth) < 4.5 * found.std(axis=0) / 600**0.5).all()
    assert ((abs(found - truth) < 1.96 * errors).sum(axis=0) >= 541).all()
    assert ((abs(found - truth) < 1.96 * errors).sum(axis=0) <= 596).all()


@pytest.mark.slow
@pytest.mark.parametrize("count", [500, 600, 800])
def test_counts_lifted_by_their_threshold_are_not_believed(count):
    """Given that a count about the threshold reached it, it is too large; intervals hold nevertheless.

    Of 300 intervals of 95 % fewer than 265 hold with probability below 1e-5. Taken as they are, counts of 500 that
    are told of as 600 and more leave fewer.
    """
    truth, sigma, tau = np.array([9000, 6000, count, 2500, 400]), 100.0, 600
    axis, generator = listed(4, 0.5), np.random.default_rng(3)
    inside = np.zeros(2)
    for _ in range(300):
        told = np.full(4, -1.0)
        while told.min() < tau:
            told = np.rint(truth[:4] + sigma * generator.standard_normal(4))
        counts = released(axis, truth, generator)
        for i, threshold in enumerate((tau, 0)):
            x, covariance, _ = combine(
                axis, counts, cell_counts_of(axis, inferred(texts(told, sigma), threshold=threshold))
            )
            inside[i] += abs(x[2] - count) < 1.96 * covariance[2, 2] ** 0.5
    assert inside[0] >= 265
    assert count > 500 or inside[1] < 265


def test_selection_is_undone_at_the_mean():
    # E[y | y ≥ τ] by quadrature: told exactly that, the linearised count is the true one.
    sigma, tau, true = 50.0, 300.0, 310.0
    y = np.linspace(tau, true + 12 * sigma, 400_001)
    density = np.exp(-((y - true) ** 2) / (2 * sigma**2))
    mean = (y * density).sum() / density.sum()
    spread = ((y - mean) ** 2 * density).sum() / density.sum()
    one = Observation(np.eye(1), np.array([mean]), np.array([sigma**2]), np.array([tau]))
    told = one.linearise(np.array([true]))
    assert told.values[0] == pytest.approx(true, abs=0.01)
    assert told.variances[0] == pytest.approx(sigma**4 / spread, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "sigma"), [(2.0, 300.0), (9.0, 1e5)])
def test_a_sample_stands_for_the_table(epsilon, sigma):
    # Every tenth of 20,000 rows: rows count ten times. Of 400 intervals of 95 % fewer than 359 or more than 396 hold
    # with probability below 2e-5 (×8); a variance is off by 30 % with probability below 1e-4.
    truth = np.array([9000, 6000, 4000, 1000])
    axis, generator = listed(3, epsilon), np.random.default_rng(4)
    inside, found, variances = np.zeros(4), [], np.zeros(4)
    for _ in range(400):
        rows = generator.multivariate_hypergeometric(truth, 2_000)
        cells = cell_counts_of(axis, inferred(texts(np.rint(truth[:3] + sigma * generator.standard_normal(3)), sigma)))
        x, covariance, _ = combine(axis, released(axis, rows, generator), cells, 10.0, 18_000 / 19_999)
        inside += abs(x - truth) < 1.96 * np.sqrt(np.diag(covariance))
        found.append(x)
        variances += np.diag(covariance) / 400
    assert ((inside >= 359) & (inside <= 396)).all()
    np.testing.assert_allclose(np.var(found, axis=0), variances, rtol=0.3)


def test_a_population_adds_what_drawing_rows_adds():
    axis = listed(2, 1.0)
    counts = released(axis, [600, 300, 100], np.random.default_rng(8))
    made = ColumnEvidence(inferred(texts([590, 310], 20.0)), lambda axis: counts)
    (rows, table), (same, population) = (made.cells(Question([axis], False, (), True, wide)) for wide in (False, True))
    np.testing.assert_array_equal(rows, same)
    t = module.project(rows / 1_000)
    np.testing.assert_allclose(population - table, 1_000 * t * (1 - t), rtol=1e-9)


def test_counts_of_the_same_table_pass():
    # p-values of 300 releases are uniform: a mean outside 0.42…0.58 has probability below 2e-6.
    truth, axis, generator, found = np.array([900, 600, 300, 200]), listed(3, 1.0), np.random.default_rng(9), []
    for _ in range(300):
        measured = texts(np.rint(truth[:3] + 50 * generator.standard_normal(3)), 50.0)
        found.append(combine(axis, released(axis, truth, generator), cell_counts_of(axis, inferred(measured)))[2])
    assert 0.42 < np.mean(found) < 0.58
    assert min(found) > module.MIN_COUNTS_PROBABILITY


def test_bins_that_are_too_narrow_are_left_to_the_rows():
    smooth = build_plan({"c": dpf.Real(0.0, 1.0)}, epsilon=0.2, mechanisms={"c": "geometric"}).columns[0]
    axis = make_axis(smooth, 500)
    counted = inferred(Measured("c", "intervals", (0.25, 0.5), (1_000, 1_000, 2_000), 100.0))

    def count(axis):
        return np.full(axis.classes, 4_000 / axis.classes)

    made = ColumnEvidence(counted, count)
    assert made.counted(make_axis(axis.column, 4)) is not None
    narrow = made.snapped(axis)
    assert made.counted(narrow) is not None
    rows, _ = made.cells(Question([narrow], False, (), True, False))
    alone, _ = ColumnEvidence(None, count).cells(Question([narrow], False, (), True, False))
    np.testing.assert_array_equal(rows, alone)
    assert made.counted(narrow) is None


# ------------------------------------------------------------------------------------------ what was measured of what


def test_values_have_cells_but_for_the_others():
    axis = listed(3, 1.0, null=True)
    measured = Measured("c", "values", ("v2", "gone", "other", "v0"), (20, 30, 40, 10), 4.0, 7)
    cells = cell_counts_of(axis, inferred(measured, threshold=5))
    np.testing.assert_array_equal(cells.matrix, np.eye(5)[[2, 0, 4]])
    assert cells.values.tolist() == [20, 10, 7]
    assert cells.threshold.tolist() == [4.5, 4.5, DETECTION_SE * 2.0]
    assert cells.variances.tolist() == [4.0] * 3


def test_nulls_of_all_rounds_are_averaged():
    rounds = [Measured("c", "intervals", (), (100,), variance, missing) for variance, missing in ((4.0, 10), (1.0, 20))]
    axis = make_axis(column(dpf.Nullable(dpf.Integer(0, 9)), 1.0), None)
    cells = cell_counts_of(axis, inferred(*rounds))
    assert cells.values.tolist() == [18.0]
    assert cells.variances.tolist() == pytest.approx([0.8])


def test_intervals_are_added_up_between_edges_that_are_cells():
    edges, counts = (-4, 0, 3, 5, 9, 50), (1, 2, 4, 8, 16, 32, 64)
    axis = make_axis(column(dpf.Integer(0, 9), 1.0), None)
    cells = cell_counts_of(axis, inferred(Measured("c", "intervals", edges, counts, 2.0)))
    # Below 0 and beyond 9 values are clamped: what is outside belongs to the first and the last cell.
    expected = np.zeros((4, 10))
    for i, (low, high) in enumerate([(0, 3), (3, 5), (5, 9), (9, 10)]):
        expected[i, low:high] = 1
    np.testing.assert_array_equal(cells.matrix, expected)
    assert cells.values.tolist() == [1 + 2 + 4, 8, 16, 32 + 64]
    assert cells.variances.tolist() == [6.0, 2.0, 2.0, 4.0]


def test_nulls_that_are_imputed_are_counted_where_they_land():
    axis = make_axis(column(dpf.Integer(0, 9), 1.0), None)  # the fixed point is 4
    cells = cell_counts_of(axis, inferred(Measured("c", "intervals", (3, 6), (10, 20, 30), 2.0, 5)))
    assert cells.values.tolist() == [10, 25, 30]
    assert cells.variances.tolist() == [2.0, 4.0, 2.0]


def test_edges_within_a_step_do_not_part_cells():
    axis = make_axis(column(dpf.Integer(0, 100, step=10), 1.0), None)
    # 25 is the first value that rounds to 30; 27 is in the middle of those.
    cells = cell_counts_of(axis, inferred(Measured("c", "intervals", (25, 27), (10, 20, 40), 1.0)))
    assert cells.values.tolist() == [10, 60]
    np.testing.assert_array_equal(cells.matrix[0], [1] * 3 + [0] * 8)


@pytest.mark.parametrize(
    ("space", "measured"),
    [
        (dpf.Integer(0, 9), Measured("c", "intervals", (20, 30), (1, 2, 3), 1.0)),
        (dpf.Integer(0, 9), Measured("other", "intervals", (3, 5), (1, 2, 3), 1.0)),
        (dpf.Boolean(), Measured("c", "nulls", (), (), 1.0, 5)),
        (dpf.Real(0.0, 1.0, steps=8), Measured("c", "intervals", (0.3, 0.5), (1, 2, 3), 1.0)),
        (dpf.Integer(0, 100, step=10), Measured("c", "intervals", (27,), (10, 20), 1.0)),
        (dpf.Datetime("2020-01-01", "2020-01-05"), Measured("c", "intervals", (18_263,), (1, 2), 1.0)),
    ],
)
def test_nothing_that_helps(space, measured):
    assert cell_counts_of(make_axis(column(space, 1.0), None), inferred(measured)) is None


def test_grid_is_moved_to_measured_edges():
    mine = column(dpf.Integer(0, 999), 1.0)
    axis = make_axis(mine, 20)
    edges = (7, 120, 121, 610, 5_000)
    moved = snapped(axis, inferred(Measured("c", "intervals", edges, (0,) * 6, 1.0)))
    assert set(moved.edges) - set(axis.edges) == {120, 610}
    assert len(moved.edges) == len(axis.edges)
    assert (moved.edges[0], moved.edges[-1]) == (0, 1_000)


# --------------------------------------------------------------------------------------------------- both likelihoods


def mixture(rows: int, generator) -> np.ndarray:
    values = np.where(generator.random(rows) < 0.3, generator.normal(20, 4, rows), generator.normal(60, 10, rows))
    return np.clip(np.rint(values), 0, 99).astype(np.int64)


def test_measured_likelihoods_have_one_maximum():
    """No share can be moved from one cell to another so that the sum of both grows: checked by its gradient."""
    generator = np.random.default_rng(5)
    axis = make_axis(column(dpf.Integer(0, 99), 2.0), 50)
    assert isinstance(axis, BinnedAxis)
    table = np.histogram(mixture(4_000, generator), bins=axis.edges)[0]
    counts = released(axis, table, generator)
    measured = Measured("c", "intervals", (20, 40, 60, 80), (1_300, 240, 1_300, 1_200, 50), 900.0)
    cells = cell_counts_of(axis, inferred(measured))
    fit = RowsLaw.of(axis.channel, counts, cells, 4_000.0)
    expected = axis.channel @ fit.shares
    gradient = axis.channel.T @ (counts / expected)
    gradient += 4_000 * cells.matrix.T @ ((cells.values - 4_000 * cells.matrix @ fit.shares) / cells.variances)
    used = fit.shares > 1e-9
    level = gradient[used].mean()
    assert np.ptp(gradient[used]) < 0.02 * 4_000
    assert (gradient[~used] < level + 0.02 * 4_000).all()
    assert fit.shares.sum() == pytest.approx(1)


def test_distribution_from_exact_counts_is_exact_where_counts_are():
    generator = np.random.default_rng(6)
    axis = make_axis(column(dpf.Integer(0, 99), 0.5), 100)
    table = np.histogram(mixture(4_000, generator), bins=axis.edges)[0]
    exact = [int(part.sum()) for part in np.split(table, [20, 40, 60, 80])]
    cells = cell_counts_of(axis, inferred(Measured("c", "intervals", (20, 40, 60, 80), tuple(exact), 0.01)))
    fit = RowsLaw.of(axis.channel, released(axis, table, generator), cells, 4_000.0)
    np.testing.assert_allclose(cells.matrix @ fit.shares * 4_000, exact, atol=0.5)


@pytest.mark.walk(2)
@pytest.mark.parametrize(
    ("target", "epsilon", "times"), [("table", 1.0, 1), ("population", 1.0, 1), ("table", 0.05, 1), ("table", 6.0, 10)]
)
@pytest.mark.slow
def test_errors_of_measured_are_those_of_releases(target, epsilon, times):
    # The claimed error of five bins, against 60 releases of one table (or of tables drawn anew, or of every tenth
    # row): the mean squares are within a factor of 1.7 (25 replicas, 60 releases: two-sided 0.1 %; fixed key).
    generator = np.random.default_rng(7)
    axis, n = make_axis(column(dpf.Integer(0, 99), epsilon), 50), 3_000 * times
    shares = np.histogram(mixture(200_000, generator), bins=axis.edges)[0] / 200_000
    table, parts = generator.multinomial(n, shares), np.kron(np.eye(5), np.ones((1, 10)))
    squares, claims = [], []
    for _ in range(60):
        rows = table if target == "table" else generator.multinomial(n, shares)
        truth = parts @ (table / n if target == "table" else shares)
        told = [part.sum() + 60 * times * generator.standard_normal() for part in np.split(rows, [10, 30, 40])]
        measured = Measured("c", "intervals", (20, 60, 80), tuple(round(t) for t in told), 3_600.0 * times**2)
        drawn = rows if times == 1 else generator.multivariate_hypergeometric(rows, 3_000)
        fit = RowsLaw.of(
            axis.channel, released(axis, drawn, generator), cell_counts_of(axis, inferred(measured)), float(n)
        )
        squares.append(((parts @ fit.shares - truth) ** 2).sum())
        if len(claims) < 8:
            claims.append((fit.errors_of(lambda s: parts @ s, float(target == "population")) ** 2).sum())
    assert 0.6 < np.mean(claims) / np.mean(squares) < 1.7


# ------------------------------------------------------------------------------------------------------------- faces


@pytest.fixture(scope="module")
def people():
    return dpf.datasets.make_census(20_000, columns=["age", "sex", "occupation", "income"], random_state=3)


@pytest.fixture(scope="module")
def safe(people):
    return dpf.sanitize(people, epsilon=1.0, key=KEY, measure=None)


@pytest.fixture(scope="module")
def pair(safe):
    return dpf.Estimates(safe), dpf.Estimates(safe, use_measured=False)


def test_value_counts_take_what_was_paid_for(pair):
    for name in ("sex", "occupation"):
        for options in ({}, {"normalize": True}, {"dropna": False}, {"normalize": True, "target": "population"}):
            more, less = (e.value_counts(name, sort=False, **options) for e in pair)
            assert more.attrs["measured"] is True
            assert less.attrs["measured"] is False
            # Either may show the `other` that inference added, if its count is beyond its noise.
            more, less = more.align(less, join="inner", axis=0)
            assert (more.std_error <= less.std_error * 1.05).all()
    more, less = (e.value_counts("sex").loc[["F", "M"]] for e in pair)
    assert (more.std_error < 0.97 * less.std_error).all()


def test_all_rows_stay_all_rows(pair):
    # The `other` that inference added is left out where its count is within its noise of 0.
    assert pair[0].value_counts("occupation", dropna=False).estimate.sum() == pytest.approx(20_000, rel=1e-2)
    assert pair[0].value_counts("occupation", normalize=True).estimate.sum() == pytest.approx(1, rel=1e-2)
    assert pair[0].joint(["sex"]).estimate.equals(pair[0].value_counts("sex", sort=False).estimate)


def test_null_rate_is_that_of_the_cells(pair, people):
    more, less = (e.null_rate("occupation") for e in pair)
    cells = pair[0].value_counts("occupation", normalize=True, dropna=False)
    assert more.estimate == pytest.approx(cells.estimate[cells.index.isna()].iloc[0])
    assert more.std_error < less.std_error
    assert abs(more.estimate - people.occupation.isna().mean()) < 4.5 * more.std_error


@pytest.mark.slow
def test_numbers_take_what_was_paid_for(pair, people):
    more, less = (e.histogram("age", bins=5) for e in pair)
    assert (more.std_error**2).sum() < 0.5 * (less.std_error**2).sum()
    median = pair[0].quantile("age", 0.5)
    # Of whole numbers the interval ends at one of them, and the next may be as right.
    assert abs(median.estimate - people.age.median()) < max(4.5 * median.std_error, 1.0)
    assert median.std_error < pair[1].quantile("age", 0.5).std_error
    binned = pair[0].value_counts("age", bins=5, sort=False)
    assert {"method": "em", "measured": True, "source": "rows"}.items() <= binned.attrs.items()
    # Bins that cut the cells of counts are fitted in other cells: well within the errors.
    assert (np.abs(binned.estimate - more.estimate) < 0.25 * more.std_error).all()
    odd = pair[0].value_counts("age", bins=[0, 19, 51, 90])
    assert odd.attrs["measured"] is True
    shares = pair[0].value_counts("age", bins=5, sort=False, normalize=True)
    assert shares.estimate.sum() == pytest.approx(1)


def test_joints_are_of_the_rows_alone(pair):
    more, less = (e.crosstab("sex", "occupation") for e in pair)
    pd.testing.assert_frame_equal(*more.align(less, join="inner", axis=0))
    assert pair[0].joint(["sex", "occupation"], method="inverse").attrs["measured"] is False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_rows_tables_and_inference_tell_together(people, pair):
    """A release of the same table with measured tables: its own rows, tables and what inference paid for."""
    told = dpf.Estimates(dpf.sanitize(people, epsilon=1.0, key=KEY))
    for name in ("sex", "occupation"):
        found = told.value_counts(name, sort=False, dropna=False)
        assert found.attrs["measured"]
        assert found.estimate.sum() == pytest.approx(20_000, rel=1e-2)
        assert found.std_error.mean() < 0.9 * pair[0].value_counts(name, sort=False, dropna=False).std_error.mean()
        truth = people[name].value_counts(dropna=False).reindex(found.index).fillna(0)
        shown = np.asarray((found.index != "other") & found.index.notna())
        # 21 cells: probability below 2e-4 under a fixed key.
        assert (np.abs(found.estimate - truth)[shown] < 4.5 * found.std_error[shown]).all()
    cells = told.value_counts("occupation", normalize=True, dropna=False)
    rate = cells.estimate[cells.index.isna()].iloc[0]
    assert told.null_rate("occupation").estimate == pytest.approx(rate, rel=2e-2)
    ages = told.quantile("age", [0.25, 0.5, 0.75])
    assert (np.abs(ages.estimate - people.age.quantile([0.25, 0.5, 0.75])) < 4.5 * ages.std_error).all()
    assert ages.std_error.mean() < pair[1].quantile("age", [0.25, 0.5, 0.75]).std_error.mean()


def test_declared_spaces_have_nothing_measured(people):
    made = dpf.sanitize(people[["sex"]], epsilon=1.0, spaces={"sex": ["F", "M"]}, key=KEY)
    assert dpf.Estimates(made).value_counts("sex").attrs["measured"] is False


def test_other_rows_than_all_are_taken_alone(safe):
    with pytest.warns(AlteredReleaseWarning, match="20,000"):
        part = dpf.Estimates(safe.head(15_000))
    assert part.value_counts("sex").attrs["measured"] is False


@pytest.mark.slow
def test_counts_of_another_table_are_noticed(people):
    plan = people.dp.plan(epsilon=8.0, measure=None)
    other = people.assign(sex="F")
    released = dpf.sanitize(other, plan=plan, key=bytes(32))
    assert dpf.Estimates(released).value_counts("sex").attrs["measured"] is False, "nobody says it is the same table"
    made = dpf.Estimates(released, use_measured=True)
    with pytest.warns(AlteredReleaseWarning, match="column 'sex' contradict its rows.*use_measured=False"):
        found = made.value_counts("sex")
    alone = dpf.Estimates(dpf.sanitize(other, plan=plan, key=bytes(32)), use_measured=False).value_counts("sex")
    pd.testing.assert_frame_equal(found, alone)
    assert found.attrs["measured"] is False


def test_the_switch_is_a_switch(safe):
    with pytest.raises(ParameterError, match="use_measured must be True, False or None"):
        dpf.Estimates(safe, use_measured=1)


@pytest.mark.slow
def test_intervals_of_whole_releases_cover():
    """Census data, spaces inferred: 6 keys × 3 ε, about 200 intervals of 95 %, all those of one release dependent.

    Below 88 % has a probability below 1e-3, were they independent; the keys are fixed.
    """
    people = dpf.datasets.make_census(10_000, columns=["sex", "occupation"], random_state=5)
    inside, squares = [], np.zeros(2)
    for i in range(18):
        made = dpf.sanitize(people, epsilon=(1.0, 2.0, 6.0)[i % 3], delta=1e-6, key=(77 + i).to_bytes(32, "little"))
        for name in ("sex", "occupation"):
            found, alone = (
                dpf.Estimates(made, use_measured=use).value_counts(name, sort=False) for use in (True, False)
            )
            named = [value for value in found.index if value != "other"]
            truth = people[name].value_counts().reindex(named, fill_value=0)
            one = found.loc[named]
            inside += ((one.lower <= truth) & (truth <= one.upper)).tolist()
            squares += [((table.estimate[named] - truth) ** 2).sum() for table in (found, alone)]
    assert len(inside) > 100
    assert 0.88 < np.mean(inside) < 0.995
    assert squares[0] < 0.9 * squares[1]


@pytest.mark.slow
def test_adult_gains(adult):
    """One release at (1, 1e-6): the claimed errors of all nine marginals go down, none up."""
    made = dpf.sanitize(adult[CATEGORICAL], epsilon=1.0, delta=1e-6, key=KEY)
    more, less = (
        [dpf.Estimates(made, use_measured=use).value_counts(c, dropna=False, sort=False).std_error for c in CATEGORICAL]
        for use in (True, False)
    )
    total = [sum((errors**2).sum() for errors in one) for one in (more, less)]
    assert total[0] < 0.6 * total[1]


def test_all_rows_meet_a_condition_that_all_cells_do_and_none_one_that_none_does():
    """A profile has no law in which other cells have rows, where there are none: it went to 0 and to 1."""
    channel = np.full((3, 3), 0.2) + 0.4 * np.eye(3)
    law = RowsLaw.of(channel, np.array([400.0, 300.0, 300.0]))
    _, _, lower, upper = law.parts_of(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), 0.0, 1.96)
    assert lower[0] == pytest.approx(1 - 0.5 / 1_000)
    assert upper[1] == pytest.approx(0.5 / 1_000)
    assert lower[2] < 0.5 < upper[2]
