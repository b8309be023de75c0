"""Two counts make one: pairs of items and supports, ranks and their neighbours, three conditions and pairs."""

import math

import numpy as np
import pytest

from dpframe.estimate.column_evidence import of_ranks_alone
from dpframe.estimate.item_pairs import likely_pairs
from dpframe.estimate.noisy_rows import drawn_of_many
from dpframe.estimate.results import Results
from dpframe.estimate.tables.guard import bounds_by_pairs
from dpframe.inference.inferred import Measured

# ------------------------------------------------------------------------------------------------ pairs of items


def simulated(noise, spread=0.5, seed=0):
    """300 pairs of supports about 0.1 that differ from 1.3 times their product by a factor."""
    generator = np.random.default_rng(seed)
    first, second = generator.uniform(0.05, 0.2, (2, 300))
    truth = 1.3 * first * second * (1 + spread * np.clip(generator.standard_normal(300), -1.9, 1.9))
    rows = truth + noise * generator.standard_normal(300)
    exact = np.full(300, 1e-10)
    return truth, likely_pairs(rows, np.full(300, noise**2), (first, exact), (second, exact), first * second), rows


@pytest.mark.parametrize("noise", [1e-4, 3e-3, 0.02, 0.2])
@pytest.mark.parametrize("spread", [0.05, 0.5])
def test_errors_are_smaller_than_either_and_known(noise, spread):
    """300 pairs: within 95 % intervals more than 90 % of them (below by chance with 1e-4); where rows tell nothing of
    the factor that all pairs have in common, more than 80 %."""
    truth, (pairs, variances), rows = simulated(noise, spread)
    error = np.sqrt(np.mean((pairs - truth) ** 2))
    assert error <= 1.02 * np.sqrt(np.mean((rows - truth) ** 2))
    assert np.mean(np.abs(pairs - truth) < 1.96 * np.sqrt(variances)) > (0.9 if noise < 0.2 else 0.8)
    if noise == 0.2:
        assert error < 0.1 * noise


@pytest.mark.walk(5)
@pytest.mark.parametrize("noise", [3e-3, 0.01, 0.03, 0.3])
@pytest.mark.parametrize("lift", [1.0, 3.0, 9.0])
def test_intervals_of_pairs_hold_however_far_they_are_from_chance(noise, lift):
    """Noise of .3 is that of rows alone.

    Of 300 pairs 15 go together: fewer than .9 of 600 hold with a chance of .04 if .92 do, which is the least.
    """
    inside, errors, alone = [], [], []
    for seed in range(40):
        generator = np.random.default_rng(seed)
        first, second = generator.uniform(0.02, 0.2, (2, 300))
        truth = first * second * np.where(np.arange(300) < 15, lift, 1 + 0.2 * generator.uniform(-1, 1, 300))
        truth = np.minimum(truth, np.minimum(first, second))
        seen = truth + noise * generator.standard_normal(300)
        supports = [(one, np.full(300, 1e-8)) for one in (first, second)]
        found, variances = likely_pairs(seen, np.full(300, noise**2), *supports, first * second)
        inside.append((np.abs(found - truth) <= 1.96 * np.sqrt(variances))[:15])
        errors.append(found - truth)
        alone.append(seen - truth)
    assert np.mean(inside) >= 0.9
    assert np.mean(np.square(errors)) < 0.25 * np.mean(np.square(alone)) or noise < 0.01


def test_supports_that_noise_hides_leave_pairs_unsure():
    """Supports of .01 seen as 0 with an error of .01: pairs may be as frequent as these errors allow."""
    supports = np.zeros(190), np.full(190, 1e-4)
    seen = 0.03 * np.random.default_rng(0).standard_normal(190)
    found, variances = likely_pairs(seen, np.full(190, 9e-4), supports, supports, np.zeros(190))
    assert (np.abs(found - 1e-4) < 1.96 * np.sqrt(variances)).all()


def test_rows_that_know_nothing_leave_the_product():
    s = np.array([0.2, 0.5]), np.full(2, 1e-10)
    pairs, _ = likely_pairs(np.array([np.nan, 0.3]), np.full(2, np.inf), s, s, s[0] ** 2)
    np.testing.assert_allclose(pairs, [0.04, 0.25])


# ------------------------------------------------------------------------------------------------ conditions


def test_bounds_by_pairs_are_those_of_frechet():
    rng = np.random.default_rng(0)
    for _ in range(20):
        law = rng.dirichlet(np.ones(8)).reshape(2, 2, 2)
        low, high = bounds_by_pairs(law) @ law.ravel()
        one = [law[0].sum(), law[:, 0].sum(), law[..., 0].sum()]
        two = [law[0, 0].sum(), law[0, :, 0].sum(), law[:, 0, 0].sum()]
        assert low == pytest.approx(
            max(0, two[0] + two[1] - one[0], two[0] + two[2] - one[1], two[1] + two[2] - one[2])
        )
        assert high == pytest.approx(min(*two, 1 - sum(one) + sum(two)))


def test_a_count_of_three_is_open_by_its_pairs_by_all_of_them_and_by_what_noise_hides():
    even = np.full((2, 2, 2), 80.0)

    def counted(places):
        shape = (2,) * len(places)
        return np.full(shape, 640.0 / 2 ** len(places)), np.full(shape, 4.0)

    # Var λ of a pair is 1 + 1/40 with counts of 160, and half of the rows that meet two conditions meet the third.
    pairs, third = 3 * 0.5**2 * (40 + 40**2), 10 + (0.2 * 10) ** 2
    assert drawn_of_many(even, 2.0, counted) == pytest.approx(math.sqrt(pairs + 1 / (1 / third + 1 / 4)))
    assert drawn_of_many(even, np.inf, counted) == pytest.approx(math.sqrt(pairs + third))
    # A fit that leaves the cell empty is off by the rows that such columns may have there.
    empty = even.copy()
    empty[0, 0, 0] = 0.0

    def hiding(noise):
        return lambda places: (np.zeros((2,) * len(places)), np.full((2,) * len(places), noise))

    still, loud = (drawn_of_many(empty, np.inf, hiding(noise)) for noise in (1e-4, 1e4))
    assert 3 * still < 30 < loud


# ------------------------------------------------------------------------------------------------ ranks


def test_all_ranks_found_keep_their_estimates():
    found = Results(*np.transpose([[400.0, 3, 394, 406], [600, 3, 594, 606]]))
    measured = Measured("x", "ranks", ("a", "b"), (380, 615), 400.0)
    out = of_ranks_alone(found, ["a", "b"], measured, 1_000, False, False, 0.95)
    assert out.estimate.tolist() == [400, 600]
    # What may have been merged is no better known than the counts are.
    assert (out.upper <= found.upper + 1).all()
    assert (out.lower < found.lower - 10).all()


def test_counts_that_contradict_the_rows_are_the_ranks_own():
    found = Results(*np.transpose([[100.0, 1, 98, 102], [900, 1, 898, 902]]))
    out = of_ranks_alone(
        found, ["a", "b"], Measured("x", "ranks", ("a", "b"), (300, 700), 4.0), 1_000, False, False, 0.95
    )
    assert out.estimate[0] == pytest.approx(300)


def test_shares_are_of_the_rows_that_are_not_null():
    found = Results(*np.transpose([[0.5, 0.1, 0.3, 0.7], [0.5, 0.1, 0.3, 0.7]]))
    out = of_ranks_alone(
        found, ["a", "b"], Measured("x", "ranks", ("a", "b"), (160, 640), 16.0, 200), 1_000, True, False, 0.95
    )
    assert (np.abs(out.estimate - [0.2, 0.8]) < 0.02).all()


def test_intervals_that_hardly_meet_know_no_more_than_the_better_count():
    found = Results(*np.transpose([[400.0, 30, 341, 459], [600, 30, 541, 659]]))
    # The count of inference lies three of its errors from that of rows and tables.
    out = of_ranks_alone(
        found, ["a", "b"], Measured("x", "ranks", ("a", "b"), (520, 480), 900.0), 1_000, False, False, 0.95
    )
    assert (out.std_error >= 0.99 * 30).all()


def test_no_interval_of_a_count_lies_below_0():
    found = Results.of(np.array([-36.0, -3.0, 40.0]), np.array([18.0, 30.0, 10.0]) ** 2, 1.96).from_none()
    assert found.lower.round(1).tolist() == [-36.0, -3.0, 20.4]
    assert found.upper.round(1).tolist() == [18.0, 55.8, 59.6]
