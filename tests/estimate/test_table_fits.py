"""Estimates from measured tables: exact small cases, and noisy measurements of a census under fixed seeds."""

import math
from itertools import combinations

import numpy as np
import pytest

from dpframe.datasets import make_census
from dpframe.errors import ParameterError
from dpframe.estimate.synthetic import draw_fresh, draw_given, draw_within
from dpframe.estimate.table_column import moved_by_slopes, quantile_bins, tilt_to_mean
from dpframe.estimate.tables import mixture
from dpframe.estimate.tables.fit import (
    Profile,
    TableFit,
    choose_classes,
    fit_tables,
    fit_to_margins,
    geometric_joint,
    near_margins,
    prediction_error,
    steps_of_cells,
)
from dpframe.estimate.tables.guard import guard_joint, interaction_variance
from dpframe.estimate.tables.mixture import Copy, Descent, Mixture, fit_mixture, targets_of
from dpframe.estimate.tables.tables import Evidence, row_table
from dpframe.observe.noisy_counts import NoisyCounts
from dpframe.plan.threads import one_thread

NAMES = ["sex", "education", "occupation", "region"]
ROWS = 20_000


def count_codes(codes, shape):
    """Count rows by the codes of some columns."""
    places = np.ravel_multi_index(tuple(codes), tuple(shape))
    return np.bincount(places, minlength=math.prod(shape)).reshape(shape).astype(float)


@pytest.fixture(scope="module")
def codes():
    people = make_census(ROWS, 3, columns=[*NAMES, "age"])
    found = [people[name].astype("category").cat.codes.to_numpy().astype(np.int64) + 1 for name in NAMES]
    found = [code - code.min() for code in found]
    return [*found, (people["age"].to_numpy() - 18) // 10]


@pytest.fixture(scope="module")
def sizes(codes):
    return tuple(int(code.max()) + 1 for code in codes)


def shares(codes, sizes, columns):
    counts = count_codes([codes[c] for c in columns], [sizes[c] for c in columns])
    return counts / counts.sum()


def measure(codes, sizes, seed, sigma=30.0):
    generator = np.random.default_rng(seed)
    tables = []
    for pair in combinations(range(len(sizes)), 2):
        exact = count_codes([codes[c] for c in pair], [sizes[c] for c in pair])
        tables.append(NoisyCounts(pair, exact + sigma * generator.standard_normal(exact.shape), sigma**2))
    return Evidence(len(codes[0]), sizes, tuple(tables))


def keep(size, signal):
    return signal * np.eye(size) + (1 - signal) / size


def randomise(codes, sizes, signal, seed):
    generator = np.random.default_rng(seed)
    return [
        np.where(generator.random(len(code)) < signal, code, generator.integers(0, size, len(code)))
        for code, size in zip(codes, sizes, strict=True)
    ]


@pytest.fixture(scope="module")
def fit(codes, sizes):
    return fit_tables(measure(codes, sizes, 0))


def distance(found, truth):
    return float(np.abs(found - truth).sum())


# What was measured


def test_tables_of_one_pair_are_weighted_by_precision():
    first, second = NoisyCounts((0, 1), np.full((2, 2), 10.0), 1.0), NoisyCounts((1, 0), np.full((2, 2), 20.0), 4.0)
    triple = NoisyCounts((0, 1, 2), np.full((2, 2, 1), 30.0), 16.0)
    pair = Evidence(40, (2, 2, 1), (first, second, triple)).pairs[0, 1]
    assert pair.counts == pytest.approx(np.full((2, 2), (10 + 20 / 4 + 30 / 16) / (1 + 1 / 4 + 1 / 16)))
    assert pair.variances == pytest.approx(np.full((2, 2), 1 / (1 + 1 / 4 + 1 / 16)))


def test_a_table_without_rows_is_refused():
    with pytest.raises(ParameterError, match="n: the table has no rows"):
        Evidence(0, (2,))


def test_columns_of_which_no_two_are_known_are_independent():
    tables = (NoisyCounts((0,), np.array([60.0, 40.0]), 1.0), NoisyCounts((1,), np.array([20.0, 80.0]), 1.0))
    found = fit_tables(Evidence(100, (2, 2), tables)).joint([0, 1])
    assert found == pytest.approx(np.outer([0.6, 0.4], [0.2, 0.8]))


# Simple estimates


def test_one_way_weighs_sums_by_the_other_columns_cells():
    own = NoisyCounts((0,), np.array([60.0, 40.0]), 4.0)
    wide = NoisyCounts((0, 1), np.array([[8.0] * 8, [4.5] * 8]), 1.0)
    found = Evidence(100, (2, 8), (own, wide)).one_way(0)
    # Variances 4 and 8: two thirds of 60 and a third of 64; both rows add up to 100.
    assert found == pytest.approx([(60 * 2 + 64) / 300 + 1 / 300 * 2, (40 * 2 + 36) / 300 - 2 / 300], abs=0.02)
    assert found.sum() == pytest.approx(1)


def test_near_margins_keeps_what_agrees_and_stays_in_the_simplex():
    exact = np.outer([0.5, 0.5], [0.2, 0.3, 0.5])
    assert near_margins(exact, [exact.sum(axis=1), exact.sum(axis=0)]) == pytest.approx(exact)
    found = near_margins(np.array([[0.9, -0.2], [0.1, 0.2]]), [np.array([0.5, 0.5]), np.array([0.9, 0.1])])
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)


def test_simple_estimates_are_nearer_than_raw_counts(codes, sizes):
    evidence = measure(codes, sizes, 1)
    one_ways = [evidence.one_way(c) for c in range(len(sizes))]
    gains = []
    for pair, table in evidence.pairs.items():
        truth = shares(codes, sizes, pair)
        found = near_margins(table.counts / evidence.n, [one_ways[c] for c in pair])
        gains.append(distance(table.counts / ROWS, truth) - distance(found, truth))
    assert np.mean(gains) > 0.005


# Mixture


@pytest.mark.parametrize("long", [256, 3], ids=["all in one block", "a long column apart"])
def test_gradients_are_those_of_the_misfit(long, monkeypatch):
    """Finite differences of χ² by every logit and tilt, with tables and rows together."""
    monkeypatch.setattr(mixture, "LONG", long)
    generator = np.random.default_rng(4)
    tables = (
        NoisyCounts((0, 1), generator.uniform(5, 20, (2, 3)), 4.0),
        NoisyCounts((1, 2), generator.uniform(5, 20, (3, 2)), 9.0),
    )
    rows = (row_table((0, 2), generator.uniform(5, 20, (2, 2)), [keep(2, 0.5)] * 2),)
    evidence = Evidence(75, (2, 3, 2), (*tables, *rows))
    targets = targets_of(evidence)
    assert [len(target.blocks) for target in targets] == [1 if long == 256 else 2, 1]
    blocks = [block.in_shares(75, np.float64) for target in targets for block in target.blocks]
    descent = Descent(targets, blocks, evidence.sizes, np.log(generator.gamma(1, 1, (1, 3, 7))), np.zeros((1, 3)))
    for name in ("logits", "tilts", "segments"):
        setattr(descent, name, getattr(descent, name).astype(np.float64))

    def misfit():
        return descent.gradients(descent.laws(descent.logits), _weights(descent.tilts))

    _, (by_logits, by_tilts) = misfit()
    for values, gradient in ((descent.logits, by_logits), (descent.tilts, by_tilts)):
        for place in np.ndindex(values.shape):
            values[place] += 1e-4
            above = misfit()[0][:, 0].sum()
            values[place] -= 2e-4
            below = misfit()[0][:, 0].sum()
            values[place] += 1e-4
            # Gradients are of a quarter of χ² over the full symmetric matrix: half of it over pairs.
            assert 2 * gradient[place] == pytest.approx((above - below) / 2e-4, rel=1e-3, abs=1e-4)


def _weights(tilts):
    raised = np.exp(tilts)
    return raised / raised.sum(axis=-1, keepdims=True)


def test_rows_do_not_decide_when_a_fit_to_tables_ends(codes, sizes):
    """The goal is that of tables alone, whatever rows are known of other pairs."""
    tables = tuple(t for t in measure(codes, sizes, 1).tables if t.columns != (0, 1))
    counts = np.histogram2d(codes[0], codes[1], [np.arange(size + 1) for size in sizes[:2]])[0]
    rows = row_table((0, 1), counts, [keep(size, 0.5) for size in sizes[:2]])
    found = []
    for known in (tables, (*tables, rows)):
        evidence = Evidence(ROWS, tuple(sizes), known)
        targets = targets_of(evidence)
        blocks = [block for target in targets for block in target.blocks]
        descent = Descent(targets, blocks, evidence.sizes, np.zeros((1, 3, sum(sizes))), np.zeros((1, 3)))
        found.append((targets[0].degrees, targets[0].pace, descent.deciding, len(descent.blocks)))
    assert found[0][:3] == found[1][:3]
    assert [blocks for *_, blocks in found] == [1, 2]


def test_fits_end_near_the_noise_and_near_the_truth(codes, sizes, fit):
    evidence, pairs = fit.evidence, list(combinations(range(len(sizes)), 2))
    cells = sum(target.degrees for target in targets_of(evidence))
    assert 0.7 * cells < prediction_error(fit.mixture, Copy.of(evidence)) < 1.3 * cells
    simple = np.mean([distance(fit.simple(p), shares(codes, sizes, p)) for p in pairs])
    joint = np.mean([distance(fit.joint(p), shares(codes, sizes, p)) for p in pairs])
    assert joint < 0.75 * simple


def test_several_starts_are_one_mixture(fit):
    mixture = fit.mixture
    each = [mixture.fit(i) for i in range(mixture.fits)]
    assert mixture.fits == 15
    assert all(part.weights.sum() == pytest.approx(1, abs=1e-4) for part in each)
    assert np.mean([part.joint((0, 2)) for part in each], axis=0) == pytest.approx(mixture.joint((0, 2)), abs=1e-6)


def test_one_class_is_independence_of_all_that_is_known_of_columns():
    """A fit of one class to pairs whose noise hides them lost what one-ways say: L1 .67 for .57 on 1,000 rows."""
    law, generator = np.array([0.7, 0.3]), np.random.default_rng(0)
    pair = NoisyCounts((0, 1), 100 * np.outer(law, law) + 60 * generator.standard_normal((2, 2)), 3_600.0)
    evidence = Evidence(100, (2, 2), (pair, *(NoisyCounts((c,), 100 * law, 0.01) for c in range(2))))
    found = fit_mixture(evidence, classes=1).joint((0, 1))
    assert found == pytest.approx(np.outer(law, law), abs=2e-4)


@pytest.mark.slow
def test_classes_follow_the_data():
    """Independent columns need the fewest classes; a diagonal of sixteen cells needs many."""
    generator = np.random.default_rng(0)
    flat, diagonal = np.full((16, 16), 400.0), np.eye(16) * 6400
    chosen = []
    for exact in (flat, diagonal):
        counts = exact + 10 * generator.standard_normal(exact.shape)
        chosen.append(choose_classes(Evidence(102_400, (16, 16), (NoisyCounts((0, 1), counts, 100.0),))).classes)
    assert chosen[0] == 1
    assert chosen[1] >= 20


@pytest.mark.slow
def test_where_noise_is_weak_the_simple_estimate_is_taken(codes, sizes):
    exact = fit_tables(measure(codes, sizes, 0, sigma=0.5))
    for pair in combinations(range(len(sizes)), 2):
        assert distance(exact.joint(pair), shares(codes, sizes, pair)) < 0.005, pair


def test_steps_of_exact_halves():
    even, all_one = np.array([2.0, 2.0]), np.array([4.0, 4.0])
    at_simple = Profile.of(even, all_one, NoisyCounts((0,), all_one, 1.0), 1)
    at_mixture = Profile.of(even, all_one, NoisyCounts((0,), even, 1.0), 1)
    assert (at_simple.odds(at_simple), at_simple.mean_step) == (math.inf, 1.0)
    assert (at_mixture.odds(at_mixture), at_mixture.mean_step) == (0.0, 0.0)
    assert Profile.sum_of([]).mean_step == 0.0
    # Precision 8 at a step of 1, and 4 at 0: two thirds, at odds of 2.
    assert at_simple.odds(at_mixture) == 2.0


def test_cells_of_many_rows_go_further_to_their_counts():
    own = np.array([0.0, 0.01, 0.09, 0.9])
    steps = steps_of_cells(own, 4.0)
    assert (np.diff(steps) > 0).all()
    assert steps[-1] == pytest.approx(4 * 0.9 / (4 * 0.9 + 0.8182), abs=1e-4)
    assert (steps_of_cells(own, 0.0) == 0).all()
    assert (steps_of_cells(own, math.inf) == 1).all()


def test_pairs_tilted_together_are_those_tilted_alone(codes, sizes):
    """Two ages of one shape, one shifted: their pairs with each other column are one batch, in either order."""
    twice = measure([*codes, np.roll(codes[-1], 1)], (*sizes, sizes[-1]), 5)
    evidence = Evidence(twice.n, twice.sizes, twice.tables, ordered=(0, 0, 0, 0, sizes[-1], sizes[-1]))
    fit, order = fit_tables(evidence), (0, 1, 2, 3, 5, 4)
    single_fit, tilted = TableFit(evidence, fit.mixture, fit.steps), 0
    for (i, j), together in fit.pairs_of(order).items():
        pair = (order[i], order[j])
        np.testing.assert_allclose(together, single_fit.joint(pair), rtol=0, atol=1e-14)
        tilted += np.abs(single_fit.without_simple(pair) - fit.mixture.joint(pair)).max() > 1e-6
    assert tilted == 9


def test_triples_err_less_than_their_counts_and_than_what_pairs_say(codes, sizes):
    """Many cells of few rows, whose counts have noise of about what pairs miss in cells of many (fixed seeds)."""
    pairs, triple = measure(codes, sizes, 1), (1, 2, 3)
    counts = count_codes([codes[c] for c in triple], [sizes[c] for c in triple])
    noisy = counts + 6.0 * np.random.default_rng(3).standard_normal(counts.shape)
    fit = fit_tables(Evidence(pairs.n, pairs.sizes, (*pairs.tables, NoisyCounts(triple, noisy, 36.0))))
    found = (fit.joint(triple), fit.without_simple(triple), fit.simple(triple))
    joint, of_pairs, of_counts = (distance(one, counts / ROWS) for one in found)
    assert joint < 0.9 * min(of_pairs, of_counts), (joint, of_pairs, of_counts)


def test_rows_alone_beat_the_nearest_point_of_the_simplex(codes, sizes):
    released = randomise(codes, sizes, 0.5, 5)
    channels = tuple(keep(size, 0.5) for size in sizes)
    pairs = list(combinations(range(len(sizes)), 2))
    counts = {p: count_codes([released[c] for c in p], [sizes[c] for c in p]) for p in pairs}
    alone = fit_tables(Evidence(ROWS, sizes, tuple(row_table(p, counts[p], [channels[c] for c in p]) for p in pairs)))
    found, inverted = [], []
    for a, b in pairs:
        truth = shares(codes, sizes, (a, b))
        raw = np.linalg.inv(channels[a]) @ counts[a, b] @ np.linalg.inv(channels[b]).T / ROWS
        found.append(distance(alone.joint((a, b)), truth))
        inverted.append(distance(near_margins(raw, [raw.sum(axis=1), raw.sum(axis=0)]), truth))
    assert np.mean(found) < 0.9 * np.mean(inverted)


# Joints of three


def test_proportional_fitting_meets_consistent_pairs(codes, sizes):
    truth = shares(codes, sizes, (0, 1, 4))
    pairs = {(i, j): truth.sum(axis=3 - i - j) for i, j in combinations(range(3), 2)}
    found = fit_to_margins(np.ones(truth.shape), pairs)
    for (i, j), pair in pairs.items():
        assert found.sum(axis=3 - i - j) == pytest.approx(pair, abs=1e-4)
    assert geometric_joint(truth, pairs, 1.0) == pytest.approx(truth)
    assert geometric_joint(truth, pairs, 0.0) == pytest.approx(found, abs=1e-4)


def test_a_joint_follows_the_order_of_its_columns(fit):
    assert fit.joint((2, 0)) == pytest.approx(fit.joint((0, 2)).T)
    assert fit.joint((3, 0, 1)) == pytest.approx(fit.joint((0, 1, 3)).transpose(2, 0, 1), abs=1e-3)
    assert fit.joint((0, 1, 3)).sum() == pytest.approx(1)


def test_a_measured_triple_shows_what_pairs_do_not(codes, sizes):
    planted = [*codes[:2], (codes[0] + codes[1]) % 2]
    shape = (*sizes[:2], 2)
    evidence = measure(planted, shape, 2)
    exact = count_codes(planted, shape)
    triple = NoisyCounts((0, 1, 2), exact + 30 * np.random.default_rng(0).standard_normal(shape), 900.0)
    both = fit_tables(Evidence(ROWS, shape, (*evidence.tables, triple)))
    assert distance(both.joint((0, 1, 2)), exact / ROWS) < 0.1


# Guard


def parity_rows(signal=0.6):
    generator = np.random.default_rng(0)
    first, second = generator.integers(0, 2, (2, ROWS))
    codes = [first, second, (first + second) % 2]
    return codes, count_codes(randomise(codes, (2, 2, 2), signal, 1), (2, 2, 2)), [keep(2, signal)] * 3


def test_the_guard_hears_parity_in_the_rows():
    codes, counts, channels = parity_rows()
    flat = np.full((2, 2, 2), 1 / 8)
    pairs = {pair: np.full((2, 2), 0.25) for pair in combinations(range(3), 2)}
    guarded = guard_joint(flat, counts, channels, pairs)
    truth = shares(codes, (2, 2, 2), (0, 1, 2))
    assert guarded is not None
    assert distance(flat, truth) > 0.95
    assert distance(guarded, truth) < 0.1
    assert guarded.sum(axis=0) == pytest.approx(pairs[0, 1], abs=1e-3)


@pytest.mark.parametrize("size", [2, 12])
def test_the_guard_is_silent_on_the_truth(size):
    """Also where most cells hold less than a row. Twenty draws at 5e-4: a new set of seeds fails in 1 of 100."""
    generator = np.random.default_rng(9)
    truth = generator.dirichlet(np.full(size**3, 0.3)).reshape(size, size, size)
    channels = [keep(size, 0.4)] * 3
    for seed in range(20):
        drawn = np.random.default_rng(seed).multinomial(1_500, truth.ravel())
        codes = np.unravel_index(np.repeat(np.arange(size**3), drawn), truth.shape)
        counts = count_codes(randomise(codes, truth.shape, 0.4, seed), truth.shape)
        assert guard_joint(shares(codes, truth.shape, (0, 1, 2)), counts, channels, {}) is None, seed


# Numbers


def test_bins_hold_equal_shares():
    generator = np.random.default_rng(0)
    exact = 1000 * np.exp(-0.5 * ((np.arange(60) - 20) / 8) ** 2)
    fine = NoisyCounts((3,), exact + 20 * generator.standard_normal(60), 400.0)
    bins = quantile_bins(fine.counts)
    assert bins[0] == 0
    assert bins[-1] == 11
    assert set(np.diff(bins)) <= {0, 1}
    coarse = np.bincount(bins, fine.counts)
    assert coarse.max() < 2.5 * coarse.mean()


@pytest.mark.parametrize(("mean", "reached"), [(3.3, 3.3), (-5, 1.0), (99, 6.0)])
def test_tilting_reaches_the_mean_or_the_nearer_end(mean, reached):
    values = np.arange(8.0)
    law = np.array([0, 1, 1, 1, 1, 1, 1, 0]) / 6
    tilted = tilt_to_mean(law, values, mean)
    assert tilted @ values == pytest.approx(reached, abs=0.05)
    assert tilted[[0, 7]].tolist() == [0, 0]


def test_tilting_leaves_one_value_alone():
    assert tilt_to_mean(np.array([0.0, 1.0]), np.array([3.0, 4.0]), 9.0).tolist() == [0, 1]


# Rows


def test_drawn_rows_have_the_fits_pairs(codes, sizes, fit):
    released = randomise(codes, sizes, 0.5, 8)
    channels = [keep(size, 0.5) for size in sizes]
    given = draw_given(fit.mixture, channels, released, np.random.default_rng(0))
    fresh = draw_fresh(fit.mixture, ROWS, np.random.default_rng(0))
    for drawn in (given, fresh):
        assert all(code.min() >= 0 and code.max() < size for code, size in zip(drawn, sizes, strict=True))
        for columns in [(0,), (3,), (0, 2), (1, 4)]:
            truth, found = shares(codes, sizes, columns), shares(drawn, sizes, columns)
            assert distance(found, truth) < distance(fit.joint(columns), truth) + 0.03, columns
    # Given their released row, rows agree with the original more often than fresh ones.
    agree = [np.mean([np.mean(d == c) for d, c in zip(drawn, codes, strict=True)]) for drawn in (given, fresh)]
    assert agree[0] > agree[1] + 0.1


def test_counts_of_one_law_differ_from_it_by_less_than_a_row():
    law = np.array([[0.5, 0.3, 0.15, 0.05]])
    (drawn,) = draw_fresh(Mixture(np.ones(1), (law,)), 1_003, np.random.default_rng(0))
    assert np.abs(np.bincount(drawn, minlength=4) - 1_003 * law[0]).max() < 2


def test_draws_within_bins_follow_the_released_class():
    fine, bins = np.full(4, 0.25), np.array([0, 0, 1, 1])
    sharp = np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    rows = np.array([0, 0, 1, 1])
    drawn = draw_within(fine, bins, rows, np.random.default_rng(0), sharp, np.array([0, 1, 0, 1]))
    assert drawn.tolist() == [0, 1, 2, 3]


def test_equal_seeds_draw_equal_rows(fit):
    first, again = (draw_fresh(fit.mixture, 100, np.random.default_rng(1)) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))


# Errors


def test_a_fit_is_the_same_every_time(codes, sizes):
    evidence = measure(codes, sizes, 6)
    one, other = (fit_mixture(evidence, classes=5, starts=2) for _ in range(2))
    assert (one.joint((0, 1)) == other.joint((0, 1))).all()


@pytest.mark.parametrize("cells", [5, 7, 8, 11])
def test_slopes_within_bins_follow_a_smooth_joint(cells: int) -> None:
    """A normal joint of correlation 0.9 in 120 fine cells: known by twelve bins, asked for in others."""
    from scipy.special import ndtr, ndtri

    ends = ndtri(np.linspace(0, 1, 121))
    middles, narrow = ndtri((np.arange(120) + 0.5) / 120), np.sqrt(1 - 0.81)
    fine = np.diff(ndtr((ends[None, :] - 0.9 * middles[:, None]) / narrow), axis=1) / 120
    bins, spread = np.kron(np.eye(12), np.ones((1, 10))), np.kron(np.eye(12), np.full((10, 1), 0.1))
    asked = (np.arange(cells)[:, None] == np.arange(120) * cells // 120).astype(np.float64)
    coarse, truth = bins @ fine @ bins.T, asked @ fine @ asked.T
    flat = asked @ spread @ coarse @ (asked @ spread).T
    first = asked @ spread @ coarse + moved_by_slopes(coarse, asked, spread, 12)
    both = (asked @ spread @ first.T + moved_by_slopes(first.T, asked, spread, 12)).T
    assert np.abs(both - truth).sum() < 0.15 * np.abs(flat - truth).sum()
    np.testing.assert_allclose(first.sum(axis=1), (asked @ spread @ coarse).sum(axis=1), atol=1e-15)
    np.testing.assert_allclose(first.sum(axis=0), coarse.sum(axis=0), atol=1e-15)
    assert both.min() > -1e-12


def test_slopes_leave_nulls_and_empty_bins_alone() -> None:
    joint = np.array([[0.15, 0.05], [0.0, 0.0], [0.1, 0.3], [0.3, 0.1]])  # the last is null
    spread = np.zeros((7, 4))
    spread[[0, 1], 0] = spread[[2, 3], 1] = spread[[4, 5], 2] = 0.5
    spread[6, 3] = 1.0
    cells = np.zeros((3, 7))
    cells[0, :1], cells[1, 1:6], cells[2, 6] = 1, 1, 1
    moved = moved_by_slopes(joint, cells, spread, 3)
    assert not moved[2].any()
    assert moved[0, 0] > 0
    assert np.isfinite(moved).all()
    np.testing.assert_allclose(moved.sum(axis=0), 0, atol=1e-15)
    assert not moved_by_slopes(joint[:1], cells[:, :2], spread[:2, :1], 1).any()


def test_bins_of_next_to_nothing_have_no_slope() -> None:
    joint = np.array([[0.5, 0.5], [1e-20, 0.0], [0.0, 1e-20]])
    cells, spread = np.kron(np.eye(3), [1.0, 1.0]), np.kron(np.eye(3), [[0.5], [0.5]])
    moved = moved_by_slopes(joint, cells, spread, 3)
    assert np.isfinite(moved).all()


@pytest.mark.slow
def test_a_long_column_has_no_more_classes_than_its_partners_tell_apart() -> None:
    """Of 400 values beside five and four more classes than 20 could not show, though noise is weak enough for 160."""
    generator, sizes = np.random.default_rng(4), (400, 5, 4)
    laws = [generator.dirichlet(np.full(size, 0.2), 40) for size in sizes]
    tables = []
    for pair in combinations(range(3), 2):
        exact = 1e6 * np.einsum("ka,kb->ab", laws[pair[0]], laws[pair[1]]) / 40
        tables.append(NoisyCounts(pair, exact + generator.standard_normal(exact.shape), 1.0))
    assert choose_classes(Evidence(1e6, sizes, tuple(tables))).classes <= 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "strength"), [((2, 2, 2), 0.0), ((4, 3, 2), 0.0), ((2, 2, 2), 0.5), ((3, 3, 3), 0.5)]
)
def test_cells_differ_from_what_pairs_leave_by_their_interaction(sizes, strength):
    """Tables of 3,000 rows drawn from laws whose cells have log odds ratios of the strength: 200 tables, fixed seed."""
    generator = np.random.default_rng(7)
    squares, variances = 0.0, 0.0
    pairs = list(combinations(range(3), 2))
    for _ in range(200):
        laws = [generator.dirichlet(np.full(size, 5.0)) for size in sizes]
        law = np.einsum("i,j,k->ijk", *laws)
        tilt = generator.standard_normal() * strength
        law[0, 0, 0] *= np.exp(tilt)
        counts = generator.multinomial(3_000, (law / law.sum()).ravel()).reshape(sizes).astype(float)
        margins = {pair: counts.sum(axis=3 - sum(pair)) for pair in pairs}
        fitted = fit_to_margins(np.outer(margins[0, 1], np.ones(sizes[2])).reshape(sizes) / sizes[2], margins)
        squares += (counts - fitted)[0, 0, 0] ** 2
        variances += interaction_variance(fitted, 3, strength)[0, 0, 0]
    assert 0.75 < squares / variances < 1.35


def test_interactions_of_more_columns_are_open_too():
    counts = np.full((2, 2, 2, 2), 100.0)
    of_four = interaction_variance(counts, 3, 0.2)
    binomial = 100 * (1 - 1 / 16)
    # Each of four triples moves its own cell of 200 rows by 25, of which half are this cell's.
    assert np.allclose(of_four, binomial + 4 * (0.2 * 25 / 2) ** 2)
    assert (interaction_variance(np.zeros((2, 3)), 2, 1.0) < 1e-8).all()


def test_fits_take_one_thread():
    from threadpoolctl import threadpool_info

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    assert set(one_thread(threads)()) <= {1}
    assert threads() == before
