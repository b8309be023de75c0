"""Staircase and geometric noise: the law of the integers that are sampled, its loss, and which noise is better."""

import itertools
import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpframe.errors import ParameterError
from dpframe.noise import stairs
from dpframe.noise.keystream import Keystream
from dpframe.noise.stairs import stair_noise, staircase

WHOLE = 1 << 128
LAWS = [
    (1, 1, 0.5),
    (1, 1, 3.0),
    (1, 1, 1e-4),
    (5, 2, 0.7),
    (9, staircase(9, 1.5, power=2).plateau, 1.5),
    (4, 4, 2.0),
    (7, 1, 1.3),
    (3, 2, 39.0),
]


def logarithm(ratio):
    """ln of an exact fraction, to 60 digits."""
    with localcontext(Context(prec=60)):
        return Fraction((Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln())


def law_of_steps(noise, most):
    """P(J = 0…most) from the integers of the digits, the last table and the coin."""
    found, worth = [Fraction(1)], 1
    for digit in noise.digits:
        weights = [Fraction(w, WHOLE) for w in digit.weights]
        found, worth = (
            [found[j % worth] * weights[j // worth] for j in range(worth * len(weights))],
            worth * len(weights),
        )
        if len(found) > most:
            return [part * Fraction(noise.last.weights[0], WHOLE) * (1 - Fraction(noise.coin, WHOLE)) for part in found]
    weights, coin = [Fraction(w, WHOLE) for w in noise.last.weights], Fraction(noise.coin, WHOLE)
    block = worth * len(weights)
    return [found[j % worth] * weights[j % block // worth] * coin ** (j // block) * (1 - coin) for j in range(most + 1)]


def exact_law(noise, reach):
    """P(k), |k| ≤ reach, as fractions of the integers that are sampled."""
    steps = law_of_steps(noise, reach // noise.width + 1)
    sides = [Fraction(w, WHOLE) for w in noise.sides.weights]

    def places(size):  # words of each place
        starts = [-(-place * WHOLE // size) for place in range(size + 1)]
        return [Fraction(b - a, WHOLE) for a, b in itertools.pairwise(starts)]

    centre, side, law = places(2 * noise.plateau - 1), places(noise.width), {}
    for k in range(-reach, reach + 1):
        if abs(k) < noise.plateau:
            law[k] = sides[0] * centre[k + noise.plateau - 1]
        else:
            step, place = divmod(abs(k) - noise.plateau, noise.width)
            law[k] = sides[1 if k > 0 else 2] * side[place] * steps[step]
    return law


@pytest.mark.parametrize(("width", "plateau", "rate"), LAWS)
def test_the_integers_follow_the_law_and_lose_no_more_than_stated(width, plateau, rate):
    noise, reach = stair_noise(width, plateau, rate), 90
    law = exact_law(noise, reach)
    for k, chance in law.items():
        assert float(chance) == pytest.approx(noise.probability(k), rel=1e-12)
    worst = max(law[k] / law[k + moved] for k in law for moved in range(-width, width + 1) if abs(k + moved) <= reach)
    loss = noise.loss(width)
    assert logarithm(worst) <= Fraction(loss)
    assert loss == pytest.approx(rate, rel=1e-9)
    for steps in (2, 5):  # a person of several rows
        far = max(law[k] / law[k + steps * width] for k in range(-reach, reach + 1 - steps * width))
        assert logarithm(far) <= Fraction(noise.loss(steps * width))


@pytest.mark.parametrize(("width", "plateau", "rate"), LAWS)
def test_moments_and_tails_are_those_of_the_law(width, plateau, rate):
    noise = stair_noise(width, plateau, rate)
    k = np.arange(-400_000, 400_001)
    size = np.abs(k)
    steps = np.where(size < plateau, 0, 1 + (size - plateau) // width)
    p = np.exp(-rate * steps)
    p /= p.sum()
    assert p[k == 0][0] == pytest.approx(noise.probability(0), rel=1e-9)
    assert (p * size).sum() == pytest.approx(noise.error, rel=1e-6)
    assert (p * size.astype(float) ** 2).sum() == pytest.approx(noise.variance, rel=1e-6)
    for far in (0, 1, 2, 3, 9, 50):
        assert p[size > far].sum() == pytest.approx(noise.beyond(far), rel=1e-6, abs=1e-15)


@pytest.mark.parametrize(("width", "plateau", "rate"), [(1, 1, 0.5), (5, 2, 0.7), (1, 1, 3e-4), (40, 13, 1.0)])
def test_draws_follow_the_law(width, plateau, rate):
    """A chi-squared test at a fixed key: fails with probability 1e-6 for a key that had not been tried."""
    noise = stair_noise(width, plateau, rate)
    drawn = np.array(noise.sample(Keystream(bytes(32)).column("x", "measure"), 0, 20_000))
    far = next(far for far in range(10**6) if noise.beyond(far) < 0.05)
    edges = np.unique(np.rint(np.linspace(-far, far, 24)).astype(int))
    cumulative = np.cumsum([noise.probability(int(k)) for k in range(-far, far + 1)])
    upto = [noise.beyond(far) / 2 + (cumulative[e + far - 1] if e > -far else 0.0) for e in edges]
    chances = np.diff([0.0, *upto, 1.0])
    counts = np.bincount(np.searchsorted(edges, drawn, side="right"), minlength=len(chances))
    assert stats.chisquare(counts, chances * len(drawn)).pvalue > 1e-6


def test_one_step_is_the_discrete_laplace_law():
    noise = stair_noise(1, 1, 0.8)
    assert [noise.probability(k) for k in range(5)] == pytest.approx(stats.dlaplace(0.8).pmf(range(5)))
    assert noise.variance == pytest.approx(stats.dlaplace(0.8).var())


def test_a_count_has_no_better_staircase_than_geometric_noise():
    assert staircase(1, 1.0) is stair_noise(1, 1, 1.0)


@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0, 4.0, 10.0, 39.0])
def test_the_plateau_is_the_best_of_all(rate):
    for width in (1, 2, 30):
        noises = [stair_noise(width, place, rate) for place in range(1, width + 1)]
        for power in (1, 2):
            best = min(noise.moment(power) for noise in noises)
            assert staircase(width, rate, power).moment(power) == best


def test_the_plateau_of_squares_at_small_rates():
    """The closed form cancels there: γ* has to tend to 1/2."""
    assert staircase(10**6, 1e-9, power=2).plateau == pytest.approx(5e5, abs=2)


@pytest.mark.parametrize(("epsilon", "gain"), [(1.0, 0.0004), (4.0, 0.056), (8.0, 0.291)])
def test_squares_gain_six_percent_at_four(epsilon, gain):
    """Standard errors of a sum that moves by 1,000, at no more loss than of the law of least absolute error."""
    absolute, squared = staircase(1_000, epsilon), staircase(1_000, epsilon, power=2)
    assert 1 - math.sqrt(squared.variance / absolute.variance) == pytest.approx(gain, rel=0.1)
    assert squared.loss(1_000) <= absolute.loss(1_000) * (1 + 1e-12)
    assert squared.error >= absolute.error


def test_staircase_beside_geometric():
    """E|noise| of a sum that moves by 1,000; in the limit of small ε both are Δ/ε, and Δ/(2 sinh(ε/2)) the least."""
    width = 1_000
    ratios = []
    for epsilon in (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0):
        stair, laplace = staircase(width, epsilon).error, stair_noise(1, 1, epsilon / width).error
        ratios.append(stair / laplace)
        assert stair == pytest.approx(width / (2 * math.sinh(epsilon / 2)), rel=2e-2)
        print(f"eps {epsilon:4}: staircase {stair:8.2f}, geometric {laplace:8.2f}, ratio {ratios[-1]:.3f}")
    assert all(a > b for a, b in itertools.pairwise(ratios))
    assert ratios[0] == pytest.approx(0.99, abs=0.01)
    assert ratios[-1] == pytest.approx(0.067, abs=0.005)


def test_coins_go_on_where_they_fall():
    """A coin that falls every other time: J is then geometric in blocks of the last table."""
    noise = stair_noise(1, 1, 0.5)
    fair = stairs.StairNoise(1, 1, 0.5, noise.sides, (), stairs.Digit.of([1]), WHOLE // 2, 0.0)
    drawn = np.abs(fair.sample(Keystream(bytes(32)).column("x", "measure"), 0, 4_000))
    outside = drawn[drawn > 0] - 1
    # Five standard deviations of a binomial's share: an error of 6e-7 each.
    for step in range(4):
        chance = 2.0 ** -(step + 1)
        assert abs((outside > step).mean() - chance) < 5 * math.sqrt(chance * (1 - chance) / len(outside))


def test_what_is_refused():
    with pytest.raises(ParameterError, match="epsilon is too small for this answer"):
        stair_noise(1, 1, 1e-13)
    with pytest.raises(ParameterError, match="plateau must lie between 1 and width"):
        stair_noise(3, 4, 1.0)


def test_a_large_rate_is_taken_as_forty():
    assert stair_noise(1, 1, 1e6).rate == 40.0
