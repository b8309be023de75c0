"""Estimates drawn together, and ratios whose base is uncertain."""

import numpy as np
import pytest
from scipy import optimize

from dpframe.estimate.evidence.combine import few_rows, pooled, shrunk

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
    assert few_rows(0.0, 5.0) == 4.0
    assert few_rows(1e6, 1.0) < 1 + 1e-9


def test_pooled_numbers_are_the_nearest_that_never_fall():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 300):
        values = np.cumsum(rng.normal(0.2, 3.0, size))
        np.testing.assert_allclose(pooled(values), optimize.isotonic_regression(values).x, atol=1e-11)
    assert pooled(np.zeros(0)).shape == (0,)
