"""Maximum likelihood of noisy rows and counts, intervals by its profile; estimates drawn together, uncertain ratios."""

import numpy as np
import pytest
from scipy.optimize import isotonic_regression, minimize
from scipy.special import softmax
from scipy.stats import chi2

from dpframe.estimate.evidence.combine import fieller_factor, isotonic, shrunk
from dpframe.estimate.evidence.likelihood import Matrices, Seen, Shares


def laplace(cells: int, scale: float) -> np.ndarray:
    """P(class | cell) of noise about the cell's place, what is outside at the ends."""
    places = np.arange(-40 * int(scale), cells + 40 * int(scale))
    law = np.exp(-np.abs(places[:, None] - np.arange(cells)) / scale)
    law /= law.sum(axis=0)
    inside = (places >= 0) & (places < cells)
    kept = law[inside]
    kept[0] += law[places < 0].sum(axis=0)
    kept[-1] += law[places >= cells].sum(axis=0)
    return kept


@pytest.mark.slow
def test_steps_end_at_the_maximum_of_both_likelihoods():
    rng = np.random.default_rng(0)
    channel, matrix = laplace(8, 1.0), (rng.random((3, 8)) < 0.5).astype(float)
    truth = rng.dirichlet(np.ones(8))
    variances = np.array([100.0, 400.0, 25.0])
    model = Shares(Matrices((channel,)), matrix, variances, 1_000.0)
    counts = rng.multinomial(1_000, channel @ truth).astype(float)
    noisy = 1_000 * matrix @ truth + 10 * rng.standard_normal(3)
    seen = Seen.of(counts, noisy)

    def likelihood(shares):
        return counts @ np.log(channel @ shares) - ((noisy - 1_000 * matrix @ shares) ** 2 / variances).sum() / 2

    before = -np.inf
    for steps in (0, 3, 6, 9, 12, 30, 60, 120, 300):
        shares = model.fitted(seen, max_steps=steps)
        now = likelihood(shares[:, 0])
        assert now >= before - 1e-9 * abs(now)
        before = now
    assert shares.sum() == pytest.approx(1)
    shares = model.fitted(seen, max_steps=3_000)
    best = max(-minimize(lambda x: -likelihood(softmax(x)), start, tol=1e-9).fun for start in rng.normal(size=(3, 8)))
    assert best - likelihood(shares[:, 0]) < 0.06
    known = model.likelihood(np.stack([shares[:, 0], truth], axis=1), seen)
    assert known[0] - known[1] == pytest.approx(likelihood(shares[:, 0]) - likelihood(truth))


def test_without_noise_an_interval_is_that_of_the_binomial_likelihood():
    """Rows that are released as they are: the ends lose just as much likelihood as is asked, by the closed form."""
    counts, most = np.array([30.0, 70.0, 100.0]), float(chi2.isf(0.05, 1) / 2)
    model, shares = Shares.of([np.eye(3)]), counts / 200
    inside = np.array([[1.0], [1.0], [0.0]])
    ends = [float(model.interval(shares, Seen.of(counts), inside, most, upper)[0]) for upper in (False, True)]
    best = 100 * np.log(0.5) + 100 * np.log(0.5)
    for end in ends:
        lost = best - (100 * np.log(end) + 100 * np.log(1 - end))
        assert lost == pytest.approx(most, rel=0.05)
    assert ends[0] < 0.5 < ends[1]


def test_a_heap_that_rows_rule_out_does_not_widen_an_interval():
    """Laplace noise as wide as the column hides a heap in its middle, and none at its ends."""
    rng = np.random.default_rng(1)
    channel, cells = laplace(64, 60.0), np.arange(64)
    truth = np.exp(-((cells - 32) ** 2) / 200)
    truth /= truth.sum()
    counts = rng.multinomial(20_000, channel @ truth).astype(float)
    model = Shares.of([channel])
    shares = model.fitted(Seen.of(counts))[:, 0]
    inside = np.stack([cells == 32, cells == 2, cells == 61], axis=1).astype(float)
    upper = model.interval(shares, Seen.of(counts), inside, 2.4, True)
    assert upper[0] > 0.3
    assert upper[1:].max() < 0.2
    assert (upper >= truth @ inside).all()


def test_the_ratio_of_two_parts_stays_and_the_others_follow():
    rng = np.random.default_rng(2)
    channel = np.eye(5) * 0.6 + 0.08
    counts = rng.multinomial(5_000, channel @ np.array([0.3, 0.2, 0.1, 0.1, 0.3])).astype(float)
    model = Shares.of([channel])
    shares = model.fitted(Seen.of(counts))[:, 0]
    inside, among = np.array([[1.0], [1.0], [0.0], [0.0], [0.0]]), np.array([[1.0]] * 4 + [[0.0]])
    lost, found = model.lost(shares, Seen.of(counts), inside, np.array([0.5]), among)
    assert found[:2, 0].sum() == pytest.approx(found[2:4, 0].sum())
    assert found[4, 0] == pytest.approx(shares[4], abs=0.05)
    assert lost[0] > 2


# ------------------------------------------------------------------------------------------------ drawn together


SCALES = np.full(40, 10.0)


def test_noise_alone_is_drawn_away_and_differences_stay():
    rng = np.random.default_rng(0)
    noisy = 3 * rng.standard_normal(40)
    found, left = shrunk(noisy, np.full(40, 9.0), SCALES, 0.3, 0.1)
    assert np.mean(found**2) < 0.2 * np.mean(noisy**2)
    assert left.mean() < 0.2 * 9.0
    apart = np.arange(40.0) - 20
    found, _ = shrunk(apart + 0.1 * rng.standard_normal(40), np.full(40, 0.01), SCALES, 0.3, 0.1)
    np.testing.assert_allclose(found, apart, atol=0.5)


def test_one_that_is_far_for_its_noise_keeps_its_place():
    found, _ = shrunk(np.array([0.0, 0.1, -0.1, 0.05, 8.0]), np.ones(5), np.full(5, 10.0), 0.3, 0.1)
    assert abs(found[-1] - 8) < 0.7
    assert np.abs(found[:-1]).max() < 0.1


def test_what_is_not_known_is_the_centre_within_what_truths_differ_by():
    apart, variances = np.array([1.0, np.nan, np.inf, 3.0]), np.array([1.0, 1.0, 1.0, np.inf])
    found, left = shrunk(apart, variances, np.full(4, 10.0), 0.3, 0.1)
    assert (found[1:] == 0).all()
    assert found[0] != 0
    assert ((left[1:] > 1) & (left[1:] < 100)).all()


@pytest.mark.parametrize("noise", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("groups", [1, 2, 12])
def test_intervals_of_shrunk_distances_hold(noise, groups):
    # Of 400 draws of truths from the prior: 95 % intervals hold in fewer than 0.9 or more than 0.985 with probability
    # below 1e-4 each, were a draw's groups one.
    rng, inside = np.random.default_rng(1), []
    for _ in range(400):
        far = rng.random(groups) < 0.1
        truths = np.where(far, 10.0, 10 * abs(0.3 * rng.standard_normal())) * rng.standard_normal(groups)
        found, left = shrunk(
            truths + noise * rng.standard_normal(groups), np.full(groups, noise**2), SCALES[:groups], 0.3, 0.1
        )
        inside.append((abs(found - truths) <= 1.96 * np.sqrt(left)).mean())
    assert 0.9 <= np.mean(inside) <= 0.985


def test_a_base_that_may_be_nothing_is_no_base():
    assert fieller_factor(0.0, 5.0) == 4.0
    assert fieller_factor(1e6, 1.0) < 1 + 1e-9


def test_pooled_numbers_are_the_nearest_that_never_fall():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 300):
        values = np.cumsum(rng.normal(0.2, 3.0, size))
        np.testing.assert_allclose(isotonic(values), isotonic_regression(values).x, atol=1e-11)
    assert isotonic(np.zeros(0)).shape == (0,)
