"""The law of a number: what levels tell together, with errors that hold whatever shape the rows have."""

from functools import cache

import numpy as np
import pytest
from measure import law_of

from dpframe.estimate.evidence.combine import project
from dpframe.observe.observation import Observation
from dpframe.plan.levels import cells_between, children, divided, level_sizes, stops_of
from dpframe.plan.measures import Measure, MeasuredTable
from dpframe.spaces import Integer, Nullable, Real

pytestmark = pytest.mark.slow

N = 20_000
SIGMA = 60.0
RUNS = 12
Z = 1.959964
LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9])


def _codes(shape, generator):
    """Return the space, and the codes of rows of some shape."""
    wide, hours = Real(-100.0, 400.0), Integer(0, 999)
    if shape == "smooth":
        return wide, np.clip(generator.normal(30_000, 8_000, N), 0, 65_536).astype(np.int64)
    if shape == "heaped":
        codes = np.clip(generator.normal(500, 120, N), 0, 999).astype(np.int64)
        return hours, np.where(generator.random(N) < 0.6, codes // 50 * 50, codes)
    if shape == "spiky":
        codes = np.minimum(generator.exponential(9_000, N), 50_000).astype(np.int64) + 13_108
        return wide, np.where(generator.random(N) < 0.9, 13_107, codes)
    if shape == "two values":
        return wide, np.where(generator.random(N) < 0.3, 20_001, 44_444)
    if shape == "tails":
        return wide, np.minimum(13_107 + generator.lognormal(7.0, 1.0, N), 65_536).astype(np.int64)
    if shape == "nulls":
        codes = np.clip(generator.normal(400, 150, N), 0, 999).astype(np.int64)
        return Nullable(hours), np.where(generator.random(N) < 0.25, 1_000, codes)
    return Integer(0, 49_999), generator.choice(np.arange(17, 50_000, 2_381), N)  # sparse


SHAPES = ("smooth", "heaped", "spiky", "two values", "tails", "nulls", "sparse")


def tables_of(space, codes, generator, sigma=SIGMA):
    """Return the tables of all levels, with normal noise in whole numbers."""
    found, rows = [], np.sort(codes[codes < space.values])
    starts = counts = None
    for level, size in enumerate(level_sizes(space), start=1):
        measure = Measure("one_way", ("x",), sigma**2, size, level)
        if level == 1:
            starts = cells_between(space, size, 0, space.values)
            told = tuple(starts.tolist())
        else:
            before = level_sizes(space)[level - 2]
            parents = divided(counts, starts, stops_of(space, before, starts), sigma)
            starts, told = children(space, level, parents.tolist()), tuple(parents.tolist())
        exact = np.searchsorted(rows, stops_of(space, size, starts)) - np.searchsorted(rows, starts)
        counts = exact + np.rint(generator.normal(0, sigma, len(exact))).astype(np.int64)
        nulls = [len(codes) - len(rows) + round(generator.normal(0, sigma))] if space.has_null and level == 1 else []
        found.append(MeasuredTable(measure, (told,), np.append(counts, nulls).astype(np.int64)))
    return found


@cache
def laws(shape):
    """Return laws of some tables of one shape, with their space and rows."""
    found = []
    for seed in range(RUNS):
        generator = np.random.default_rng([SHAPES.index(shape), seed])
        space, codes = _codes(shape, generator)
        first, *finer = tables_of(space, codes, generator)
        found.append((law_of(space, float(N), first, finer), np.sort(codes[codes < space.values])))
    return found


def part_of(law, low, high):
    """Return what part of each cell lies from one code to below another."""
    inside = np.minimum(law.edges[1:], high) - np.maximum(law.starts, low)
    return np.clip(inside, 0, None) / law.widths


def _ranges(law, rows, seed):
    """Return estimates, errors and truths of range counts: cells of the first level, and any others."""
    generator, values = np.random.default_rng(seed), law.space.values
    ends = np.sort(generator.integers(0, values + 1, (12, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    found, errors = law.linear(np.array([part_of(law, low, high) for low, high in ends]))
    truths = np.searchsorted(rows, ends[:, 1]) - np.searchsorted(rows, ends[:, 0])
    return found, errors, truths


class TestErrors:
    """12 releases of every shape under fixed seeds: 84 in all.

    Of 84 intervals that hold with probability 0.95, 76 (0.90) do with probability 0.97; of 420 of quantiles and 1,000
    of ranges practically always, those of one release counted as three. One beyond five errors: below 1e-3 in all.
    """

    def test_range_counts(self):
        scores = []
        for shape in SHAPES:
            for seed, (law, rows) in enumerate(laws(shape)):
                found, errors, truths = _ranges(law, rows, seed)
                assert (errors > 0).all()
                scores.append(np.abs(found - truths) / errors)
            assert np.mean(np.concatenate(scores[-RUNS:]) < Z) >= 0.90
        assert np.max(np.concatenate(scores)) < 5

    def test_variance(self):
        scores = []
        for shape in SHAPES:
            for law, rows in laws(shape):
                value, error = law.variance()
                assert error > 0
                scores.append(abs(value - rows.var()) / error)
        assert np.mean(np.array(scores) < Z) >= 0.90
        assert max(scores) < 5

    def test_quantiles(self):
        held = []
        for shape in SHAPES:
            for law, rows in laws(shape):
                truths = np.quantile(rows, LEVELS, method="inverted_cdf")
                found, lower, upper = law.quantiles(LEVELS, Z, False)
                assert (lower <= found).all()
                assert (found <= upper).all()
                held.append((lower <= truths) & (truths <= upper))
                _, least, most = law.quantiles(LEVELS, 5.0, False)
                assert ((least <= truths) & (truths <= most)).all()
        assert np.mean(held) >= 0.90

    def test_quantiles_within_a_cell_of_a_long_tail(self):
        held = []
        for law, rows in laws("tails"):
            truth = np.quantile(rows, 0.25, method="inverted_cdf")
            _, lower, upper = law.quantiles(np.array([0.25]), Z, False)
            held.append(lower[0] <= truth <= upper[0])
        # At 0.95, fewer than 9 of 12 have probability 0.0002.
        assert sum(held) >= 9


def test_counts_of_cells_are_unbiased():
    # Means of 12 releases of some 460 cells of the first level, finer ones telling of them too, so that they vary less
    # than the noise of one: beyond 5 with probability below 3e-4, mean squares of some 65 above 1.6 below 1e-3 each.
    for shape in SHAPES:
        sums = []
        for law, rows in laws(shape):
            tops = cells_between(law.space, 64, 0, law.space.values)
            block = np.searchsorted(tops, law.starts, side="right") - 1
            exact = np.diff(np.append(np.searchsorted(rows, tops), len(rows)))
            sums.append(np.bincount(block, law.rows[: len(law.starts)], len(tops)) - exact)
        means = np.mean(sums, axis=0) / (SIGMA / np.sqrt(RUNS))
        assert np.abs(means).max() < 5
        assert 0.2 < np.mean(means**2) < 1.6


def test_positive_numbers_have_the_sum_of_all_rows():
    for shape in SHAPES:
        for law, _ in laws(shape)[:2]:
            assert (law.positive >= 0).all()
            assert np.isclose(law.positive.sum(), N, rtol=1e-6)
            assert np.isclose(law.shares.sum(), 1.0)
            assert np.isclose(law.rows.sum(), N, atol=1.0)
            assert np.linalg.eigvalsh(law.covariance).min() > -1e-3


def test_two_values_are_found_to_the_code():
    for law, rows in laws("two values"):
        for code in (20_001, 44_444):
            found, error = law.linear(part_of(law, code, code + 1)[None, :])
            assert abs(found[0] - (rows == code).sum()) < 5 * error[0]
            assert error[0] < 2 * SIGMA
            assert code in law.starts


def test_a_fact_that_is_known_too_makes_errors_smaller():
    law, rows = laws("smooth")[0]
    part = part_of(law, 20_000, 30_000)[None, :]
    truth = np.searchsorted(rows, 30_000) - np.searchsorted(rows, 20_000)
    _, before = law.linear(part)
    padded = np.pad(part, ((0, 0), (0, len(law.rows) - part.shape[1])))
    told = law.condition_on(Observation(padded, np.array([float(truth)]), np.array([1.0])))
    found, after = told.linear(part)
    assert after[0] < before[0]
    assert abs(found[0] - truth) < 5 * after[0]


def test_a_sum_that_is_known_too_tells_of_the_mean():
    for law, rows in laws("tails")[:4]:
        told = law.with_sum(float(rows.sum()), 1e6)
        mean = float(told.rows[: len(told.starts)] @ told.middles) / len(rows)
        before = float(law.rows[: len(law.starts)] @ law.middles) / len(rows)
        assert abs(mean - rows.mean()) <= abs(before - rows.mean()) + 1.0


class TestProjection:
    """Nearest numbers that are not negative."""

    def test_the_nearest_ones(self):
        # Karush, Kuhn and Tucker: one multiplier where numbers stay, a larger slope where they are cut.
        generator = np.random.default_rng(6)
        for _ in range(50):
            values, variances = generator.normal(0, 50, 20), generator.uniform(0.1, 9.0, 20)
            found = project(values, variances, 100.0)
            slope = (found - values) / variances
            assert np.isclose(found.sum(), 100.0)
            assert (found >= 0).all()
            kept = found > 0
            assert np.ptp(slope[kept]) < 1e-9
            assert (slope[~kept] >= slope[kept][0] - 1e-9).all()

    def test_what_fits_stays(self):
        values = np.array([3.0, 0.0, 7.0])
        assert np.allclose(project(values, np.ones(3), 10.0), values)

    @pytest.mark.parametrize("total", [0.0, -3.0])
    def test_no_rows(self, total):
        assert project(np.array([5.0, -1.0]), np.ones(2), total).tolist() == [0.0, 0.0]
        assert project(np.zeros(0), np.zeros(0), 5.0).tolist() == []

    def test_exact_numbers_hardly_move(self):
        found = project(np.array([50.0, 30.0]), np.array([0.0, 4.0]), 70.0)
        assert np.allclose(found, [50.0, 20.0])
