"""The exact laws of the noise that inference draws, and its price."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import examples

from dpframe import Budget
from dpframe.accounting.gaussian_dp import largest_step, step_delta
from dpframe.errors import ParameterError
from dpframe.inference.cost import Histogram, gaussian_tail, spend
from dpframe.noise.gaussian import RATIO, STRIDE, GaussianTable, cumulate_weights, gaussian_table, invert
from dpframe.noise.geometric_counts import geometric_noise, leading_zeros
from dpframe.noise.keystream import Keystream

STREAM = Keystream(bytes(range(32))).column("age", "infer")
TOTAL = 1 << 128


def ideal(sigma2: Fraction | float, reach: int) -> dict[int, Decimal]:
    """The discrete Gaussian with 60 digits, another way than the table's: each weight by its own exponential."""
    with localcontext(prec=60):
        rate = Decimal(Fraction(sigma2).denominator) / (2 * Decimal(Fraction(sigma2).numerator))
        law = {x: (-rate * x * x).exp() for x in range(-reach, reach + 1)}
        whole = sum(law.values())
        return {x: weight / whole for x, weight in law.items()}


# ------------------------------------------------------------------------------------------ discrete Gaussian


@pytest.mark.parametrize("sigma2", [0.0625, 0.25, 1.0, 2.5, 81.0, 250.0**2])
def test_the_table_is_the_discrete_gaussian_to_the_stated_distance(sigma2):
    table = gaussian_table(sigma2)
    weights = table.weights()
    assert sum(weights.values()) == TOTAL
    law = ideal(sigma2, table.reach + 40)
    with localcontext(prec=60):
        distance = sum(abs(Decimal(weights.get(x, 0)) / TOTAL - p) for x, p in law.items()) / 2
        assert distance <= Decimal(table.distance.numerator) / table.distance.denominator
        # Where there is mass, ratios are as exact as the weights' last bit.
        near = [x for x in law if abs(x) <= 5 * math.sqrt(sigma2)]
        assert max(abs(Decimal(weights[x]) / TOTAL / law[x] - 1) for x in near) < Decimal(2) ** -90
    assert table.distance < Fraction(1, 1 << 100)


@pytest.mark.parametrize("sigma2", [256.0**2 + 1, 1100.0**2])
def test_wide_noise_is_the_sum_of_a_fine_and_a_coarse_draw(sigma2):
    """Convolved in full at a few places, the two parts give the wide law to 2^−98 of it."""
    table = gaussian_table(sigma2)
    assert table.planes == 2 and table.coarse is not None
    fine, coarse = table.weights(), table.coarse.weights()
    with localcontext(prec=60):
        rate = 1 / (2 * Decimal(sigma2))
        found = {}
        for z in (0, 1, 31, 32, 63, 250, -251, 700):
            mass = sum(fine.get(z - STRIDE * y, 0) * w for y, w in coarse.items())
            found[z] = Decimal(mass) / (-rate * z * z).exp()
        assert max(found.values()) / min(found.values()) - 1 < Decimal(2) ** -80
    assert Fraction((RATIO * STRIDE) ** 2) + STRIDE**2 * table.coarse.sigma2 == Fraction(sigma2)


@pytest.mark.parametrize("scale", [3.0, 400.0, 5e3, 1e6, 1e9])
def test_moments_of_draws(scale):
    """Each assertion fails with probability below 1e-6 for a random key; the key is fixed."""
    draws = gaussian_table(scale**2).sample(STREAM, 0, 100_000) / scale
    assert abs(draws.mean()) < 5 / math.sqrt(100_000)
    assert abs(draws.var() - 1) < 5 * math.sqrt(2 / 100_000)
    assert abs((draws**4).mean() - 3) < 5 * math.sqrt(96 / 100_000)


def test_draws_are_those_of_their_places_whatever_the_count():
    table = gaussian_table(5e3**2)
    assert (table.sample(STREAM, 3, 100)[:40] == table.sample(STREAM, 3, 40)).all()
    assert (table.sample(STREAM, 3, 100) != table.sample(STREAM, 5, 100)).any()


def test_inversion_at_every_limit():
    """Brute force in whole numbers of 128 bits, ties of the high halves included."""
    weights = [1, 2**70, 1, 1, 2**127, 3, 2**64, 5]
    high, low = cumulate_weights(weights)
    limits = [(h << 64) + w for h, w in zip(high.tolist(), low.tolist(), strict=True)]
    words = [w for limit in limits for w in (limit - 1, limit, limit + 1) if 0 <= w < TOTAL]
    halves = [np.array([w >> 64 for w in words], np.uint64), np.array([w % 2**64 for w in words], np.uint64)]
    expected = [next((i for i, limit in enumerate(limits[:-1]) if w < limit), len(limits) - 1) for w in words]
    assert invert(high, low, *halves).tolist() == expected


@pytest.mark.parametrize("sigma2", [0.0, 0.06, 2.0**81, math.nan])
def test_scales_that_no_table_has(sigma2):
    with pytest.raises(ParameterError, match="sigma2 must lie between"):
        gaussian_table(sigma2)


# ------------------------------------------------------------------------------------------- geometric, pure


def test_leading_zeros():
    rows = [[0, 0], [0, 1], [1, 0], [2**63, 7], [0, 2**63], [2**64 - 1, 0], [0, 2**32]]
    expected = [next((i for i in range(128) if (a << 64 | b) >> (127 - i)), 128) for a, b in rows]
    assert leading_zeros(np.array(rows, dtype=np.uint64)).tolist() == expected


def geometric_law(noise, count):
    """Exact law of a noisy count: from the table's weights, and halves for coins."""
    limits = [(h << 64) + w for h, w in zip(noise.high.tolist(), noise.low.tolist(), strict=True)]
    ends = [*limits[:-1], TOTAL]
    law: dict[int, Fraction] = {}
    coins = 64 * noise.words
    for value, weight in zip(noise.values.tolist(), np.diff(np.array([0, *ends], dtype=object)), strict=True):
        for q in range(coins + 1):
            chance = Fraction(1, 2 ** (q + 1)) if q < coins else Fraction(1, 2**coins)
            drawn = value + noise.block * q if value >= 0 else value - noise.block * q
            y = min(max(count + drawn, -noise.n), 2 * noise.n)
            law[y] = law.get(y, Fraction(0)) + Fraction(int(weight), TOTAL) * chance
    return law


@pytest.mark.parametrize(("n", "loss"), [(0, 0.5), (3, 0.3), (20, 0.1), (7, 3.0), (100, 3.0)])
def test_geometric_noise_is_pure(n, loss):
    noise = geometric_noise(n, loss)
    assert noise.loss <= loss or noise.block == 1
    laws = [geometric_law(noise, count) for count in range(min(n, 20) + 1)]
    assert all(sum(law.values()) == 1 for law in laws)
    for one, other in itertools.pairwise(laws):
        assert one.keys() == other.keys() == set(range(-n, 2 * n + 1))
        with localcontext(prec=60):
            ratio = max(max(one[y] / other[y], other[y] / one[y]) for y in one)
            assert (Decimal(ratio.numerator) / ratio.denominator).ln() <= Decimal(noise.loss)


def test_geometric_noise_as_it_is_drawn():
    """χ² over the values −15 … 15 and beyond; 31 degrees of freedom exceed 90 with probability 1e-7."""
    noise = geometric_noise(1000, 0.2)
    drawn = noise.add(np.full(100_000, 500), STREAM) - 500
    alpha = 2 ** (-1 / noise.block)
    expected = {k: (1 - alpha) / (1 + alpha) * alpha ** abs(k) for k in range(-15, 16)}
    observed = {k: int((drawn == k).sum()) for k in expected}
    rest = (1 - sum(expected.values())) * 100_000
    chi2 = sum((observed[k] - 100_000 * p) ** 2 / (100_000 * p) for k, p in expected.items())
    assert chi2 + (100_000 - sum(observed.values()) - rest) ** 2 / rest < 90
    assert abs(drawn.var() / noise.variance - 1) < 0.06


def test_geometric_noise_too_wide_for_a_table():
    with pytest.raises(ParameterError, match=r"epsilon is too small to infer spaces; .*declare spaces"):
        geometric_noise(100, 1e-7)


# ------------------------------------------------------------------------------------------------ accounting


def test_the_tail_bound():
    for sigma2 in (1.0, 50.0, 400.0):
        law = ideal(sigma2, 300)
        for distance in (0, 1, 2, 5, 20, 60):
            exact = float(sum(p for x, p in law.items() if x >= distance))
            assert exact <= gaussian_tail(sigma2, distance) * (1 + 1e-12) + 1e-300
    assert gaussian_tail(400.0, 60) < 0.0016


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from(["intervals", "items"]), st.integers(1, 32), st.floats(0.01, 5)),
        min_size=1,
        max_size=20,
    ),
    st.floats(1e-3, 20),
    st.floats(1e-14, 1e-2),
    st.integers(1, 5),
)
@settings(max_examples=examples(8))
def test_what_is_spent_is_at_most_the_budget(parts, epsilon, delta, contributions):
    budget = Budget(epsilon, delta)
    spending = spend(budget, [Histogram(*part) for part in parts], 1000, contributions)
    certified = step_delta(spending.step, budget.epsilon)
    assert certified <= budget.delta
    # Tables have 12 digits, and the step of the lattice is proved to 5e-5: most of μ is used.
    assert (
        spending.step.mu > 0.99 * min(largest_step(budget, 0.1).mu, 3.0) or min(x.variance for x in spending.noises) < 3
    )
    assert all(
        (limit > contributions) == h.unknown for h, limit in zip(spending.histograms, spending.thresholds, strict=True)
    )


@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=20), st.floats(1e-2, 20), st.integers(1, 5))
@settings(max_examples=examples(30))
def test_without_delta_what_is_spent_is_at_most_epsilon(shares, epsilon, contributions):
    histograms = [Histogram("intervals", 1, share) for share in shares]
    try:
        spending = spend(Budget(epsilon), histograms, 1000, contributions)
    except ParameterError as error:
        assert "epsilon is too small to infer spaces" in str(error)
        return
    assert spending.step is None
    losses = (h.cells * x.loss for h, x in zip(spending.histograms, spending.noises, strict=True))
    assert 2 * contributions * sum(losses) <= epsilon


def test_noise_from_closed_forms():
    """Two columns, equal shares: μ² = Σ 2/σ², so that σ² = 4/μ²; five rows a person: 25 times that."""
    square = largest_step(Budget(0.5, 1e-6), 0.1).mu ** 2
    one = spend(Budget(0.5, 1e-6), [Histogram("intervals", 1, 1.0)] * 2, 1000)
    assert one.noises[0].variance == pytest.approx(4 / square, rel=1e-3)
    five = spend(Budget(0.5, 1e-6), [Histogram("intervals", 1, 1.0)] * 2, 1000, contributions=5)
    assert five.noises[0].variance == pytest.approx(100 / square, rel=1e-2)
    sets = spend(Budget(0.5, 1e-6), [Histogram("intervals", 8, 1.0)], 1000)
    assert sets.noises[0].variance == pytest.approx(16 / square, rel=1e-3)
    pure = spend(Budget(0.5), [Histogram("intervals", 1, 1.0)] * 2, 1000)
    assert pure.noises[0].loss == pytest.approx(0.125, rel=0.1)


def test_unknown_domains_need_delta():
    with pytest.raises(ParameterError, match="unknown domains need delta above 0"):
        spend(Budget(1.0), [Histogram("values", 1, 1.0)], 10)


def test_a_budget_too_small_for_any_noise():
    with pytest.raises(ParameterError, match=r"epsilon is too small to infer spaces; .*or declare spaces"):
        spend(Budget(1e-13, 1e-12), [Histogram("intervals", 1, 1.0)] * 3, 10)


def test_a_table_tells_what_it_is():
    assert isinstance(gaussian_table(4.0), GaussianTable)
    assert gaussian_table(4.0) is gaussian_table(4.0)
