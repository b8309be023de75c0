"""Estimates drawn together, and ratios whose base is uncertain."""

import numpy as np

from dpframe.evidence.combine import drawn_together, few_rows


def test_noise_alone_is_drawn_away_and_differences_stay():
    rng = np.random.default_rng(0)
    truths, variances = np.zeros(40), np.full(40, 9.0)
    noisy = truths + 3 * rng.standard_normal(40)
    assert np.mean(drawn_together(noisy, variances) ** 2) < 0.2 * np.mean(noisy**2)
    apart = np.arange(40.0) * 10
    found = drawn_together(apart + 0.1 * rng.standard_normal(40), np.full(40, 0.01))
    np.testing.assert_allclose(found, apart, atol=0.5)


def test_one_that_is_far_for_its_noise_keeps_its_place():
    values = np.array([0.0, 0.1, -0.1, 0.05, 8.0])
    found = drawn_together(values, np.ones(5))
    assert abs(found[-1] - 8) < 0.7
    assert np.abs(found[:-1]).max() <= 2.0


def test_a_known_centre_is_what_they_are_drawn_to():
    np.testing.assert_allclose(drawn_together(np.array([1.0, 3.0, 2.0, 4.0]), np.full(4, 100.0), 5.0), np.full(4, 5.0))


def test_few_estimates_are_left_as_they_are():
    """Of two or three the spread is hardly known, and errors would be too small where truths differ a little."""
    for values in ([1.0, 3.0], [1.0, 3.0, 2.0]):
        np.testing.assert_array_equal(drawn_together(np.array(values), np.full(len(values), 100.0)), values)


def test_what_is_not_finite_stays_and_one_alone_too():
    values = np.array([1.0, np.nan, np.inf, 3.0])
    found = drawn_together(values, np.array([1.0, 1.0, 1.0, np.inf]))
    np.testing.assert_array_equal(found, values)


def test_a_base_that_may_be_nothing_is_no_base():
    assert few_rows(0.0, 5.0) == 4.0
    assert few_rows(1e6, 1.0) < 1 + 1e-9
