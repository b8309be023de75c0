"""One search for the least noise: within μ by the exact cost, and not far below what μ allows."""

import pytest

from dpframe.accounting.discrete_gaussian import IntegerNoise, noise_step
from dpframe.accounting.gaussian_dp import Step
from dpframe.totals.least_noise import COARSEST, least_noise, rounded_up

QUERIES = [IntegerNoise(1.0, 2), IntegerNoise(1.0, 1, 120), IntegerNoise(1.0, 6)]
WEIGHTS = [0.5, 0.3, 0.2]


def exact(contributions):
    def cost(scales):
        noises = [IntegerNoise(s, q.numbers, q.span) for s, q in zip(scales, QUERIES, strict=True)]
        return noise_step(noises, contributions, 1e-9)

    return cost


@pytest.mark.parametrize("contributions", [1, 3])
@pytest.mark.parametrize("mu", [1e-3, 0.2, 1.5])
def test_the_noise_is_within_mu_and_nearly_all_of_it(mu, contributions):
    found = least_noise(QUERIES, WEIGHTS, mu, contributions, exact(contributions))
    spent = exact(contributions)(found).mu
    # A person of several rows costs up to a twentieth more than k² of one row at large μ, which one factor makes good.
    assert 0.999 * mu < spent <= mu
    shares = [q.moves * (contributions * q.span) ** 2 / s for q, s in zip(QUERIES, found, strict=True)]
    assert [share / sum(shares) for share in shares] == pytest.approx(WEIGHTS, rel=1e-3)


def test_noise_beyond_all_tables_is_none():
    assert least_noise(QUERIES, WEIGHTS, 1e-30, 1, exact(1)) is None


def test_the_least_noise_has_a_floor():
    assert least_noise([QUERIES[0]], [1.0], 1e3, 1, lambda _: Step(0.0)) == [COARSEST]


@pytest.mark.parametrize("sigma2", [0.3, 1.0, 1000.1, 4097.0, 2.0**60 + 1])
def test_rounding_goes_up_by_less_than_a_two_thousandth(sigma2):
    assert sigma2 <= rounded_up(sigma2) < sigma2 * (1 + 2**-11)
    assert rounded_up(rounded_up(sigma2)) == rounded_up(sigma2)
