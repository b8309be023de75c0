"""Shuffled releases: the bound beside the exact divergence of the multiset of outputs, and beside other sums."""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
from exact_laws import counts_law
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from least_epsilon import shuffled_epsilon
from scipy import optimize, stats
from strategies import examples

from dpframe.accounting import Bound, ColumnLoss, sampled, shuffled_delta
from dpframe.accounting.composition import choose_step, composed_delta, composed_epsilon, row_law, spread_to_lattice
from dpframe.accounting.positive_mean import merge, positive_mean
from dpframe.accounting.secret_order import METHODS
from dpframe.errors import ParameterError


def response(k, epsilon):
    e = math.exp(epsilon)
    return np.where(np.eye(k, dtype=bool), e, 1.0) / (e + k - 1)


def geometric(points, epsilon):
    """Two-sided geometric noise saturated at both ends; rows are inputs."""
    alpha = math.exp(-epsilon / (points - 1))
    matrix = np.zeros((points, points))
    for x, y in itertools.product(range(points), repeat=2):
        body = (1 - alpha) / (1 + alpha) * alpha ** abs(x - y)
        matrix[x, y] = body if 0 < y < points - 1 else alpha ** abs(x - y) / (1 + alpha)
    return matrix


def avoid(k, epsilon):
    """Any output but one's own is e^ε times likelier: its blanket is below 2/(1 + e^ε)."""
    e = math.exp(epsilon)
    return np.where(np.eye(k, dtype=bool), 1.0, e) / (1 + e * (k - 1))


def part_of(channel):
    ratio = channel[:, None, :] / channel[None, :, :]
    return ColumnLoss(
        float(np.log(ratio.max())) * (1 + 1e-15), min(1.0, float(channel.min(axis=0).sum())) * (1 - 1e-15)
    )


def exact_delta(channel, n, epsilons, sample=None):
    """Greatest hockey-stick divergence over all neighbouring tables, rows shuffled (after sampling, if asked)."""
    worst = np.zeros(len(epsilons))
    inputs = range(len(channel))

    def law(table):
        if sample is None:
            return counts_law([channel[x] for x in table])
        chosen = list(itertools.combinations(table, sample))
        return sum(counts_law([channel[x] for x in rows]) for rows in chosen) / len(chosen)

    for others in itertools.combinations_with_replacement(inputs, n - 1):
        laws = [law((x, *others)) for x in inputs]
        for p, q in itertools.permutations(laws, 2):
            found = [np.maximum(p - math.exp(e) * q, 0).sum() for e in epsilons]
            worst = np.maximum(worst, found)
    return worst


CHANNELS = {
    "response 2": (response(2, 1.0), 8),
    "response 3": (response(3, 1.0), 6),
    "response 3, weak": (response(3, 0.4), 7),
    "response 4": (response(4, 1.5), 6),
    "geometric 3": (geometric(3, 1.0), 6),
    "geometric 4": (geometric(4, 1.5), 5),
    "avoid 3": (avoid(3, 1.0), 6),
    "avoid 3, strong": (avoid(3, 3.0), 5),
    "avoid 4": (avoid(4, 2.0), 5),
}
PAIRS = {
    "2 x 2": ([response(2, 0.8), response(2, 0.5)], 5),
    "2 x geometric 2": ([response(2, 1.2), geometric(2, 0.4)], 5),
    "2 x avoid 3": ([response(2, 0.6), avoid(3, 1.0)], 3),
    "avoid 3 x avoid 3": ([avoid(3, 0.7), avoid(3, 0.7)], 2),
}
EPSILONS = [0.0, 0.05, 0.3, 0.7]


@pytest.mark.parametrize("name", CHANNELS)
def test_one_column_is_never_below_the_exact_divergence(name):
    channel, n = CHANNELS[name]
    for size in (2, n):
        exact = exact_delta(channel, size, EPSILONS)
        bounds = [shuffled_delta([part_of(channel)], size, e) for e in EPSILONS]
        for e, truth, bound in zip(EPSILONS, exact, bounds, strict=True):
            print(f"{name}, n={size}, epsilon={e}: exact {truth:.5f}, {bound.method} {bound.value:.5f}")
            assert bound.value >= truth


@pytest.mark.parametrize("name", PAIRS)
def test_products_of_columns_are_never_below_the_exact_divergence(name):
    channels, n = PAIRS[name]
    exact = exact_delta(np.kron(*channels), n, EPSILONS)
    parts = [part_of(channel) for channel in channels]
    for e, truth in zip(EPSILONS, exact, strict=True):
        for method, bound in METHODS.items():
            value = bound(tuple(parts), n, e)
            print(f"{name}, n={n}, epsilon={e}: exact {truth:.5f}, {method} {value:.5f}")
            assert value >= truth, method


@pytest.mark.slow
@settings(max_examples=examples(120))
@given(st.data())
def test_random_channels_are_never_below_the_exact_divergence(data):
    inputs, outputs = data.draw(st.integers(2, 3)), data.draw(st.integers(2, 3))
    rows = st.lists(st.floats(0.05, 1.0), min_size=outputs, max_size=outputs)
    channel = np.array(data.draw(st.lists(rows, min_size=inputs, max_size=inputs)))
    channel /= channel.sum(axis=1, keepdims=True)
    part, n = part_of(channel), data.draw(st.integers(1, 5))
    assume(part.epsilon > 1e-6)
    claimed = ColumnLoss(part.epsilon * data.draw(st.floats(1, 2)), part.blanket * data.draw(st.floats(0.2, 1)))
    exact = exact_delta(channel, n, EPSILONS)
    for e, truth in zip(EPSILONS, exact, strict=True):
        for method, bound in METHODS.items():
            assert bound((part,), n, e) >= truth - 1e-15, method
            assert bound((claimed,), n, e) >= truth - 1e-15, method


def test_three_categories_are_nearly_tight():
    truth = exact_delta(response(3, 1.0), 6, [0.3])[0]
    bound = shuffled_delta([part_of(response(3, 1.0))], 6, 0.3)
    assert (round(truth, 4), round(bound.value, 4), bound.method) == (0.0819, 0.0823, "blanket")
    for k, epsilon_0 in ((3, 0.4), (4, 1.0)):
        truth = exact_delta(response(k, epsilon_0), 6, [0.1])[0]
        assert truth <= shuffled_delta([part_of(response(k, epsilon_0))], 6, 0.1).value <= 1.03 * truth


@pytest.mark.parametrize(("n", "m"), [(5, 3), (6, 2)])
def test_sampling_outside_the_shuffle(n, m):
    channel = response(2, 1.0)
    for epsilon_1 in (0.2, 0.6):
        delta_1 = shuffled_delta([part_of(channel)], m, epsilon_1).value
        epsilon, delta = sampled(epsilon_1, delta_1, m, n)
        assert exact_delta(channel, n, [epsilon], sample=m)[0] <= delta


def binomial_reference(epsilon_0, n, epsilon):
    """The blanket bound of randomised response on two outcomes, by two nested binomial laws."""
    e, factor = math.exp(epsilon_0), math.exp(epsilon)
    gamma = 2 / (1 + e)
    middle, wide = n * gamma, 14 * math.sqrt(n * gamma * (1 - gamma))
    m = np.arange(max(1, int(middle - wide)), min(n, int(middle + wide)) + 1)
    slope, shift = (e - 1) * (1 + factor), 1 - factor * e  # S = slope·(heads of m) + shift·m
    least = np.floor(-shift / slope * m)
    mean = slope * m / 2 * stats.binom.sf(least - 1, m - 1, 0.5) + shift * m * stats.binom.sf(least, m, 0.5)
    return float(stats.binom.pmf(m, n, gamma) @ mean) / n


@pytest.mark.parametrize(
    ("epsilon_0", "n", "epsilon"),
    [
        (1.0, 100, 0.5),
        (1.0, 10**4, 0.05),
        (2.0, 10**6, 0.02),
        (2.0, 10**6, 0.01),
        (4.0, 10**5, 0.1),
        (1.0, 10**8, 7e-4),
    ],
)
def test_deep_tails_beside_binomial_sums(epsilon_0, n, epsilon):
    reference = binomial_reference(epsilon_0, n, epsilon)
    value = shuffled_delta([ColumnLoss(epsilon_0, 2 / (1 + math.exp(epsilon_0)))], n, epsilon).value
    print(f"n={n}: reference {reference:.6e}, bound {value:.6e}")
    assert reference * (1 - 1e-9) <= value <= reference * 1.01


@pytest.mark.parametrize("n", [10**6, 10**8, 10**9])
def test_a_delta_of_1e_12_is_resolved(n):
    parts = [ColumnLoss(1.0, 0.6)] * 3
    found = shuffled_epsilon(parts, n, 1e-12)
    assert shuffled_delta(parts, n, found).method == "blanket"
    # Normal limit, with T's variance at ε = 0: δ = σ·φ(ε/σ) − ε·Φ(−ε/σ).
    law = row_law(tuple(parts))
    sigma = math.sqrt(float(law.mass @ (law.a - law.b) ** 2) / n)
    normal = optimize.brentq(
        lambda z: stats.norm.logpdf(z) + math.log(sigma * (1 - z * stats.norm.sf(z) / stats.norm.pdf(z)) / 1e-12), 1, 9
    )
    assert found == pytest.approx(sigma * normal, rel=20 / math.sqrt(n))


def enumerated_mean(values, weights, outside, n):
    """E[(ΣT)₊]/n by all counts of the atoms."""
    points, total = [*values, 0.0], 0.0
    probabilities = [*weights, outside]
    for cut in itertools.combinations(range(n + len(points) - 1), len(points) - 1):
        edges = [-1, *cut, n + len(points) - 1]
        counts = [b - a - 1 for a, b in itertools.pairwise(edges)]
        mass = math.factorial(n) * math.prod(
            p**c / math.factorial(c) for p, c in zip(probabilities, counts, strict=True)
        )
        total += mass * max(0.0, sum(c * v for c, v in zip(counts, points, strict=True)))
    return total / n


@pytest.mark.parametrize("n", [1, 2, 7, 20])
@pytest.mark.parametrize("shift", [0.0, 0.4, 1.5])
def test_the_mean_of_the_positive_part_beside_enumeration(n, shift):
    values = np.array([2.0, 0.1, -1.0]) - shift
    weights = np.array([0.2, 0.1, 0.5])
    truth = enumerated_mean(values, weights, 0.2, n)
    bound = positive_mean(values, weights, 0.2, n, 0.0)
    assert truth <= bound <= 1.02 * truth


@pytest.mark.parametrize(
    ("n", "gain", "chance"), [(3, 1.0, "1e-9"), (400, 9.1, "1e-3"), (400, 8.7, "1e-7"), (4_000, 0.5, "0.5")]
)
def test_the_mean_of_the_positive_part_beside_exact_sums_far_out(n, gain, chance):
    """E[(ΣT)₊]/n of T = gain with a chance and −1 otherwise, in 50 digits, down to 1e-239: tight where no sum is 0."""
    p = Decimal(chance)
    with localcontext(Context(prec=50)):
        truth, mass = Decimal(0), (1 - p) ** n
        for k in range(n + 1):
            truth += mass * max(Decimal(0), k * (Decimal(gain) + 1) - n) / n
            mass *= p / (1 - p) * (n - k) / (k + 1)
    bound = positive_mean(np.array([gain, -1.0]), np.array([float(p), float(1 - p)]), 0.0, n, 1e-15)
    assert truth <= Decimal(bound) <= truth * Decimal("1.000001")


def test_many_atoms_beside_the_law_of_their_sum():
    """Sums of 300 rows of 601 whole numbers, whose law is a power of a Fourier transform: few frequencies count."""
    values, n, size = np.arange(-310, 291), 300, 1 << 18
    law = np.bincount(values % size, np.full(601, 0.8 / 601), size)
    law[0] += 0.2
    sums = np.fft.irfft(np.fft.rfft(law) ** n, size)[: size // 2]
    truth = float(sums @ np.arange(size // 2)) / n
    bound = positive_mean(values.astype(float), np.full(601, 0.8 / 601), 0.2, n, 0.0)
    assert truth <= bound <= 1.0001 * truth


def test_rare_atoms_far_out_do_not_spoil_the_rest():
    values, weights = np.array([1.2, -1.5]), np.array([0.3, 0.3])
    plain = positive_mean(values, weights, 0.4, 20_000, 0.0)
    spoilt = positive_mean(np.append(values, 1e9), np.append(weights, 1e-24), 0.4, 20_000, 0.0)
    assert plain < spoilt <= 1.01 * plain + 1e-14


@pytest.mark.parametrize("parts", [[ColumnLoss(0.44, 0.9), ColumnLoss(0.44, 0.8)] * 30, [ColumnLoss(1.3, 0.7)] * 12])
def test_the_curve_falls_over_all_scales(parts):
    for n in (10**5, 10**8):
        curve = [shuffled_delta(parts, n, e).value for e in (0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0)]
        assert all(a >= b * (1 - 1e-3) for a, b in itertools.pairwise(curve)), curve


def test_no_epsilon_is_needed_where_delta_is_large():
    assert shuffled_delta([ColumnLoss(1.0, 0.6)], 10**8, 0.0).value < 0.01


def test_merging_keeps_mass_and_mean_and_only_spreads():
    rng = np.random.default_rng(5)
    values, weights = np.sinh(rng.normal(size=5000) * 4), rng.random(5000)
    points, masses = merge(values, weights)
    assert len(points) < 2500
    assert masses.sum() == pytest.approx(weights.sum(), rel=1e-12)
    assert masses @ points == pytest.approx(weights @ values, rel=1e-9)
    for k in np.quantile(values, [0.1, 0.4, 0.5, 0.6, 0.9]):
        assert masses @ np.maximum(points - k, 0) >= weights @ np.maximum(values - k, 0) * (1 - 1e-12)
    assert masses @ points**2 <= weights @ values**2 * (1 + 1e-3)


def test_the_row_law_is_a_pair_of_likelihood_ratios():
    parts = (
        ColumnLoss(0.7, 0.6),
        ColumnLoss(1.1, 0.8),
        ColumnLoss(0.31, 0.9),
        ColumnLoss(2.0, 0.2),
        ColumnLoss(0.7, 0.75),
    )
    law = row_law(parts)
    for total in (law.mass @ law.a, law.mass @ law.b):
        assert 1 <= total <= 1 + 1e-12
    assert law.mass.sum() + law.outside == pytest.approx(1, abs=1e-12)
    columns = [part.factors(1)[0].enlarged for part in parts]
    second = math.prod(c.differ * (math.exp(2 * c.rate) + 1) + c.equal_mass for c in columns)
    assert second <= law.mass @ law.a**2 <= second * 1.001


def test_equal_rates_meet_the_lattice():
    assert len(row_law((ColumnLoss(0.7, 0.8), ColumnLoss(0.7, 0.9), ColumnLoss(0.7 * (1 - 1e-9), 0.7))).mass) == 10
    assert choose_step([0.5, 0.25, 1.0], [1.0] * 3, 100, 1e-4) == pytest.approx(0.25)
    assert spread_to_lattice(0.5, 0.25) == [(2, 1.0)]


def test_a_smaller_claim_gives_a_larger_bound():
    for epsilon_0 in (0.5, 2.0):
        gammas = np.geomspace(math.exp(-1.5 * epsilon_0), 0.999, 12)
        for others in ([], [ColumnLoss(1.0, 0.7)]):
            deltas = [shuffled_delta([ColumnLoss(epsilon_0, g), *others], 500, 0.1).value for g in gammas]
            assert all(a >= b * (1 - 1e-6) for a, b in itertools.pairwise(deltas))
    deltas = [
        shuffled_delta([ColumnLoss(e, 0.5), ColumnLoss(1.0, 0.7)], 500, 0.1).value for e in (0.5, 1.0, 1.5, 2.0, 4.0)
    ]
    assert all(a <= b * (1 + 1e-6) for a, b in itertools.pairwise(deltas))


def test_more_rows_hide_more_and_more_columns_hide_less():
    parts = [ColumnLoss(0.8, 0.7), ColumnLoss(0.5, 0.7)]
    assert shuffled_epsilon(parts, 2_000, 1e-6) < shuffled_epsilon(parts, 1_000, 1e-6)
    assert shuffled_epsilon(parts[:1], 1_000, 1e-6) < shuffled_epsilon(parts, 1_000, 1e-6)


def test_few_rows_cost_no_more_than_without_the_shuffle():
    for parts in ([ColumnLoss(1.0, 0.54)] * 4, [ColumnLoss(3.0, 0.1)] * 3):
        found, plain = shuffled_epsilon(parts, 2, 1e-9), composed_epsilon(parts, 1e-9)
        assert 0.9 * plain < found <= plain * (1 + 1e-9)


def test_the_least_of_the_methods_is_taken():
    parts = (ColumnLoss(2.0, 0.02), ColumnLoss(2.0, 0.02))
    values = {name: method(parts, 10_000, 0.5) for name, method in METHODS.items()}
    best = shuffled_delta(parts, 10_000, 0.5)
    assert best.value == min(values.values())
    assert best.method == "clones" == min(values, key=values.__getitem__)
    assert shuffled_delta([ColumnLoss(400.0, 1e-150)], 2, 399.0) == Bound(1.0, "none")


def test_published_clones_values():
    # README of apple/ml-shuffling-amplification: n = 100,000, ε₀ = 4, δ = 1e-6.
    closed_form = METHODS["closed form"]
    assert closed_form((ColumnLoss(4.0, 0.5),), 100_000, 0.5378040242374512) == pytest.approx(1e-6, rel=1e-6)
    assert closed_form((ColumnLoss(12.0, 0.5),), 1_000, 11.9) == 1.0
    assert 0.09 < shuffled_epsilon([ColumnLoss(4.0, 1e-9)], 100_000, 1e-6) < 0.172790550755978


def test_adult_categorical_columns():
    def cost(share, n):
        return shuffled_epsilon([part_of(response(k, share)) for k in (9, 16, 7, 15, 6, 5, 2, 42, 2)], n, 1e-6)

    assert cost(1.208, 32_561) == pytest.approx(1, rel=0.005)
    assert cost(1.577, 10**6) == pytest.approx(1, rel=0.005)


def test_what_loses_nothing_costs_nothing():
    assert shuffled_delta([], 10, 0.0) == Bound(0.0, "none")
    assert shuffled_delta([ColumnLoss(0.0, 0.5), ColumnLoss(3.0, 1.0)], 10, 0.0) == Bound(0.0, "none")
    assert shuffled_delta([ColumnLoss(0.5, 0.8)] * 2, 10, 1.0) == Bound(0.0, "none")


@pytest.mark.parametrize("epsilon", [0.1, 5.0])
def test_losses_whose_squares_are_no_floats_end_as_bounds(epsilon):
    """A search for the largest loss may try such a column; rows hide nothing of it, and the search has to end."""
    parts = [ColumnLoss(250.0, 1e-3), ColumnLoss(0.1, 0.5)]
    assert shuffled_delta(parts, 30_000, epsilon).value == composed_delta(parts, epsilon)
    assert positive_mean(np.array([-1.0, 1e200]), np.array([0.5, 1e-210]), 0.5, 1_000, 0.0) == math.inf


def test_extreme_losses_stay_bounds():
    assert shuffled_delta([ColumnLoss(500.0, 1e-200)], 100, 1.0).value == pytest.approx(1)
    assert shuffled_delta([ColumnLoss(20.0, 1e-8)] * 10, 1000, 1.0).value == pytest.approx(1, abs=1e-6)
    tiny = shuffled_delta([ColumnLoss(1e-7, 1 - 5e-8)], 10**6, 1e-9)
    assert 0 < tiny.value <= composed_delta([ColumnLoss(1e-7, 1 - 5e-8)], 1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ColumnLoss(-1.0, 0.5), "epsilon must be finite and at least 0"),
        (lambda: ColumnLoss(math.inf, 0.5), "epsilon must be finite and at least 0"),
        (lambda: ColumnLoss(1.0, 0.0), r"blanket must lie in \(0, 1\]"),
        (lambda: ColumnLoss(1.0, 1.1), r"blanket must lie in \(0, 1\]"),
        (lambda: shuffled_delta([ColumnLoss(1.0, 0.5)], 0, 0.1), "n must be a whole number of rows, at least 1"),
        (lambda: shuffled_delta([ColumnLoss(1.0, 0.5)], True, 0.1), "n must be a whole number of rows, at least 1"),
        (lambda: shuffled_delta([ColumnLoss(1.0, 0.5)], 9, -0.1), "epsilon must be at least 0"),
        (lambda: shuffled_delta([0.5], 9, 0.1), "parts must be a sequence of ColumnLoss"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ParameterError, match=message):
        call()
