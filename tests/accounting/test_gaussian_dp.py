"""Steps of Gaussian differential privacy: closed forms, 50 digits, outside oracles, brute force and wrong versions."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from mpmath import mp

from dpframe import second_verifier
from dpframe.accounting import ColumnLoss, shuffled_delta
from dpframe.accounting.budget import Budget
from dpframe.accounting.composition import mixed_delta, response_parts
from dpframe.accounting.discrete_gaussian import IntegerNoise, lattice_profile, noise_step
from dpframe.accounting.gaussian_dp import (
    Step,
    composed_steps,
    dominating_step,
    gaussian_delta,
    gaussian_mu,
    largest_step,
    log_gaussian,
    log_tail,
    mills_ratio,
    promise_step,
    pure_step,
    remaining_step,
    share_of_step,
    step_delta,
    step_epsilon,
)
from dpframe.accounting.secret_order import ShuffledRows, likely_total, rows_cover, shuffled_profile
from dpframe.accounting.undercurve import cover, unproved
from dpframe.errors import ParameterError

ADULT = [9, 16, 7, 15, 6, 5, 2, 42, 2]
"""Values of Adult's nine categorical columns, null among them."""


def test_mills_ratio_and_the_tail_have_all_digits():
    t = np.concatenate([np.linspace(-2, 8, 101), np.logspace(-9, 1.5, 40)])
    tails = log_tail(np.abs(t)).tolist()
    for x, found, tail in zip(t.tolist(), mills_ratio(t).tolist(), tails, strict=True):
        with mp.workdps(60 + int(x * x / 4)):
            exact = mp.exp(mp.mpf(x) ** 2 / 2) * mp.sqrt(mp.pi / 2) * mp.erfc(mp.mpf(x) / mp.sqrt(2))
            assert abs(found / exact - 1) < 1e-15
            exact_tail = mp.log(mp.erfc(mp.mpf(abs(x)) / mp.sqrt(2)) / 2)
            assert abs(tail - exact_tail) < 1e-15 * (1 + x * x)
    far = np.array([1e8, 1e50, 1e100])
    assert np.allclose(mills_ratio(far) * far, 1, rtol=1e-15)


def exact_curve(mu, x, digits):
    mp.dps = digits
    mu, x = mp.mpf(mu), mp.mpf(x)

    def normal(t):
        return mp.erfc(-t / mp.sqrt(2)) / 2

    return normal(mu / 2 - x / mu) - mp.e**x * normal(-mu / 2 - x / mu)


def response(size, total, columns):
    epsilon = total / columns
    return ColumnLoss(epsilon, size / (math.exp(epsilon) + size - 1))


def adult(total):
    return [response(size, total, 9) for size in ADULT]


@pytest.mark.parametrize("mu", [1e-12, 1e-3, math.nextafter(1.0, 0.0), 1.0, math.nextafter(1.0, 2.0), 6.0, 60.0])
@pytest.mark.parametrize("start", [-39.9, -8.0, -1.0, -0.999, 0.0, 1e-9, 2.9, 12.0, 39.9])
def test_both_bounds_of_the_curve_hold_beside_decimals(mu, start):
    """Where formulas change and far out: the second verifier sums a series and a continued fraction in 60 digits."""
    x = mu * (start + mu / 2)
    if x < 0:
        return
    with localcontext(second_verifier.DIGITS):
        low, high = (bound.ln() for bound in second_verifier.gaussian_profile(Decimal(mu), Decimal(x)))
        below, above = (Decimal(float(bound)) for bound in log_gaussian(mu, x))
        assert below <= high and low <= above <= below + Decimal("1e-9")


@pytest.mark.walk(16)
@pytest.mark.parametrize("mu", [1e-9, 1e-4, 0.03, 0.7, 1.0, 1.01, 4.0, 25.0])
@pytest.mark.parametrize("z", [0.0, 0.01, 1.0, 6.0, 15.0, 37.0])
def test_the_curve_has_its_digits_at_any_depth(mu, z):
    truth = mp.log(exact_curve(mu, mu * z, 80 + int(z * z / 2)))
    low, high = (float(value) for value in log_gaussian(mu, mu * z))
    assert low <= truth <= high <= low + 1e-8
    assert mp.mpf(gaussian_delta(mu, mu * z)) >= mp.e**truth


@pytest.mark.walk(16)
@pytest.mark.parametrize("epsilon", [1e-6, 1e-2, 1.0, 50.0])
@pytest.mark.parametrize("delta", [0.1, 1e-6, 1e-30, 1e-300])
@pytest.mark.parametrize("part", [0.0, 0.2])
def test_the_inverse_is_rounded_down_from_a_tenth_to_1e_300(epsilon, delta, part):
    mu = gaussian_mu(epsilon, delta, part * delta)
    slack = mp.mpf(part * delta)
    mp.dps = 420
    spent = slack + (1 - slack) * exact_curve(mu, epsilon, 420)
    assert 0 <= 1 - spent / mp.mpf(delta) < 1e-8
    assert step_delta(Step(mu, part * delta), epsilon) == pytest.approx(delta, rel=1e-8)
    assert step_epsilon(Step(mu, part * delta), delta) == pytest.approx(epsilon, rel=1e-8)


def test_two_gaussians_against_the_closed_form():
    both = composed_steps([Step(0.3), Step(0.4)])
    assert both.mu == pytest.approx(0.5, rel=1e-15)
    for epsilon in (0.0, 0.5, 2.0):
        truth = exact_curve(0.5, epsilon, 50)
        assert truth <= step_delta(both, epsilon) <= truth * (1 + 1e-10)
        grid = np.linspace(-9, 9, 1201)
        p, q = (np.exp(-0.5 * (grid - m) ** 2) for m in (0.3, 0.0))
        r, s = (np.exp(-0.5 * (grid - m) ** 2) for m in (0.4, 0.0))
        brute = np.maximum(np.outer(p, r) - math.exp(epsilon) * np.outer(q, s), 0).sum() * (grid[1] ** 1 - grid[0]) ** 2
        assert brute / (2 * math.pi) == pytest.approx(float(truth), rel=1e-3)


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 8.0, 50.0, 600.0])
def test_pure_loss_as_a_step_is_rounded_up_and_a_tangent(epsilon):
    mu = pure_step(epsilon).mu
    mp.dps = 500
    start = mp.tanh(mp.mpf(epsilon) / 2)
    assert start <= exact_curve(mu, 0, 500)
    assert exact_curve(mu * (1 - 1e-12), 0, 500) < start
    for x in np.linspace(0, min(epsilon, 500), 7):
        line = (mp.e**epsilon - mp.e ** mp.mpf(x)) / (1 + mp.e**epsilon)
        assert line <= exact_curve(mu, x, 500) if x else True


def test_an_epsilon_and_delta_enter_by_domination():
    step = dominating_step(Budget(0.7, 1e-5))
    for x in (0.0, 0.2, 0.6, 0.7, 1.0):
        worst = 1e-5 + (1 - 1e-5) * max(0.0, math.exp(0.7) - math.exp(x)) / (1 + math.exp(0.7))
        assert step_delta(step, x) >= worst


def test_slacks_multiply_and_squares_add_outward():
    year = composed_steps([Step(0.01, 1e-300)] * 365)
    assert year.square >= 365 * Step(0.01).square
    assert year.mu == pytest.approx(0.01 * math.sqrt(365), rel=1e-14)
    assert 365e-300 * (1 - 1e-14) <= year.delta <= 365e-300 * (1 + 1e-14)
    assert composed_steps([]) == Step(0.0)
    whole = largest_step(Budget(1.0, 1e-6), 0.1)
    part = share_of_step(whole, 0.1)
    assert composed_steps([part, remaining_step(whole, part)]).mu <= whole.mu * (1 + 1e-15)
    assert part.square * 10 <= whole.square


def test_what_is_short_is_named():
    with pytest.raises(ParameterError, match=r"^mu is exhausted.*raise epsilon"):
        remaining_step(Step(0.1, 1e-7), Step(0.2))
    with pytest.raises(ParameterError, match=r"^the slack is exhausted.*raise delta"):
        remaining_step(Step(0.1, 1e-8), Step(0.05, 1e-7))
    with pytest.raises(ParameterError, match=r"delta must be above 0.*by addition"):
        largest_step(Budget(1.0), 0.1)
    with pytest.raises(ParameterError, match=r"^slack must be at least 0 and below delta"):
        gaussian_mu(1.0, 1e-6, 1e-6)
    with pytest.raises(ParameterError, match=r"^mu must be finite"):
        Step(math.inf)
    with pytest.raises(ParameterError, match=r"^share must lie between 0 and 1"):
        share_of_step(Step(1.0), 1.5)
    with pytest.raises(ParameterError, match=r"slacks of the steps add up to 1"):
        composed_steps([Step(0.1, math.nextafter(1.0, 0.0))] * 3)
    with pytest.raises(ParameterError, match=r"^epsilon must be below 700"):
        pure_step(800.0)


def test_the_certificate_needs_what_lies_between_nodes():
    """A profile that touches the curve at two nodes and rises above it between them: same-index nodes would pass."""
    step, x = Step(1.0, 1e-3), np.array([0.0, 2.0, 4.0])
    curve = np.array([step_delta(step, value) for value in x]) * (1 - 1e-6)
    curve[-1] = 1e-3 * (1 - 1e-6)
    t = np.exp(x)
    assert (curve <= [step_delta(step, value) for value in x]).all()  # the wrong certificate
    above = [float(np.interp(math.exp(v), t, curve)) > step_delta(step, v) for v in np.linspace(0, 4, 41)]
    assert any(above)
    assert unproved(x, curve, step).any()
    assert cover(lambda v: float(np.interp(math.exp(v), t, curve)), step).ratio > 1


def test_the_certificate_passes_what_lies_under_and_finds_the_least():
    for mu in (1e-3, 0.2, 3.0):
        inner = lambda x, mu=mu: gaussian_delta(mu, x)  # noqa: E731
        proved = cover(inner, Step(mu, 1e-12))
        assert 0.999 < proved.least <= proved.ratio < 1.0005
    assert cover(lambda x: 1.0, Step(1.0, 1e-9)).ratio == math.inf
    assert cover(lambda x: 0.0, Step(1.0)).ratio == 0
    assert cover(lambda x: 0.0, Step(0.0)).ratio == math.inf


@pytest.mark.walk(3)
@pytest.mark.parametrize("sigma", [0.75, 1.0, 3.0])
@pytest.mark.parametrize("numbers", [1, 2, 6])
def test_discrete_gaussians_beside_another_library(sigma, numbers):
    other = pld.from_discrete_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
    other = other.self_compose(numbers) if numbers > 1 else other
    step = noise_step([IntegerNoise(sigma**2, numbers)], slack=1e-12)
    profile = lattice_profile(IntegerNoise(sigma**2, numbers), 1, 1e-14)
    mu = math.sqrt(numbers) / sigma
    for epsilon in np.linspace(0, 4 * mu, 9):
        truth = other.get_delta_for_epsilon(epsilon)
        assert profile(epsilon) == pytest.approx(truth, rel=2e-3 * (1 + 4 / mu), abs=1e-10)
        assert step_delta(step, epsilon) >= truth * (1 - 2e-3 * (1 + 4 / mu)) - 1e-10
    assert mu <= step.mu <= mu * (1 + 0.2 / (numbers * sigma**2) + 1e-4)


def brute_noise(sigma2, shifts, epsilon, reach):
    """Hockey-stick divergence of independent discrete Gaussian noise moved by these, by enumeration."""
    y = np.arange(-reach, reach + 1)
    p = np.exp(-(y**2) / (2 * sigma2))
    p /= p.sum()
    law, loss = np.ones(1), np.zeros(1)
    for shift in shifts:
        law = np.multiply.outer(law, p).ravel()
        loss = np.add.outer(loss, (shift**2 - 2 * shift * y) / (2 * sigma2)).ravel()
    return float(law @ np.maximum(-np.expm1(epsilon - loss), 0))


@pytest.mark.parametrize("sigma2", [0.5, 1.0, 4.0])
def test_the_continuous_formula_is_caught_where_noise_is_small(sigma2):
    wrong, right = Step(math.sqrt(2 / sigma2)), noise_step([IntegerNoise(sigma2)], slack=1e-12)
    grid = np.linspace(0, 4 / sigma2, 60)
    exact = [brute_noise(sigma2, (1, 1), x, 30) for x in grid]
    assert all(step_delta(right, x) >= value - 1e-15 for x, value in zip(grid, exact, strict=True))
    assert any(step_delta(wrong, x) < value * (1 - 1e-9) for x, value in zip(grid, exact, strict=True))


@pytest.mark.parametrize("sigma2", [0.5, 2.0, 9.0])
@pytest.mark.parametrize("k", [2, 3])
def test_a_person_of_several_rows_in_every_split(sigma2, k):
    """One table: k counts leave and k enter, however they split; what the continuous μ misses is claimed too."""
    step = noise_step([IntegerNoise(sigma2)], contributions=k, slack=1e-12)
    splits = {2: [(2,), (1, 1)], 3: [(3,), (2, 1)]}[k]
    for up, down in itertools.product(splits, repeat=2):
        if len(up) + len(down) > 3:
            continue
        for x in np.linspace(0, 3 * k / math.sqrt(sigma2), 7):
            truth = brute_noise(sigma2, up + down, x, 14 if sigma2 < 3 else 20)
            assert step_delta(step, x) >= truth - 1e-10


def test_sums_tables_and_wide_noise():
    total = noise_step([IntegerNoise(1e10, numbers=1, span=1000)], slack=1e-12)
    assert 0.01 <= total.mu <= 0.01 * (1 + 2e-4)
    several = noise_step([IntegerNoise(400.0, 2), IntegerNoise(900.0, 4), IntegerNoise(400.0, 2)], slack=1e-12)
    assert several.mu == pytest.approx(math.sqrt(4 / 400 + 4 / 900), rel=2e-4)
    assert several.mu >= math.sqrt(4 / 400 + 4 / 900)
    narrow, wide = (
        lattice_profile(IntegerNoise(s2, 1, 1), 2000, 1e-14) for s2 in (2.0**30 * 0.99999, 2.0**30 * 1.00001)
    )
    for x in (0.0, 0.05, 0.2):
        assert narrow(x) == pytest.approx(wide(x), rel=5e-3)
    real = noise_step([IntegerNoise(100.0, 2, 1, 2.0**-97)], slack=1e-12)
    assert real.mu >= noise_step([IntegerNoise(100.0, 2)], slack=1e-12).mu * (1 - 1e-4)
    with pytest.raises(ParameterError, match=r"^slack is smaller than.*raise delta"):
        noise_step([IntegerNoise(1.0, 2, 1, 1e-6)], slack=1e-12)
    with pytest.raises(ParameterError, match=r"^sigma2 must be finite and at least 1/16"):
        IntegerNoise(0.05)
    with pytest.raises(ParameterError, match=r"^numbers must be a whole number"):
        IntegerNoise(1.0, numbers=0)
    with pytest.raises(ParameterError, match=r"^slack must be above 0"):
        noise_step([IntegerNoise(1.0)], slack=0.0)


def largest_total(parts_of, rows, allowed):
    """The largest total that fits, and its proof, from where the library's guess says it is."""
    total, slope = likely_total(parts_of, rows, allowed)
    low, high = 0.0, math.inf
    for _ in range(60):
        found = rows_cover(parts_of(total), rows, allowed, tolerance=4e-4)
        if 0.996 < found.ratio <= 1:
            return total, found
        low, high = (total, high) if found.ratio <= 1 else (low, total)
        trial = total * math.exp(-(math.log(found.ratio) + 1e-3) / slope)
        total = trial if low < trial < high else math.sqrt(low * high) if low else high / 2
    raise AssertionError(f"the search for a total ended at {total} with {found}")


TARGETS = {
    32_561: {0.0: 1.205, 0.1: 1.197, 0.5: 1.148, 0.8: 1.075},
    1_000_000: {0.0: 1.570, 0.1: 1.560, 0.5: 1.511, 0.8: 1.440},
}


@pytest.mark.slow
@pytest.mark.parametrize(("n", "share"), [(n, share) for n, row in TARGETS.items() for share in row])
def test_what_central_shares_leave_the_rows_of_adult(n, share):
    allowed = remaining_step(whole := promise_step(Budget(1.0, 1e-6)), share_of_step(whole, share))
    total, found = largest_total(adult, ShuffledRows(n), allowed)
    print(f"n={n}, share {share}: epsilon of a column {total / 9:.4f}, {found}")
    assert total / 9 >= TARGETS[n][share]
    assert found.ratio <= 1
    assert rows_cover(adult(total * 1.004), ShuffledRows(n), allowed).ratio > 1
    if share == 0:  # beside calibrating at (ε, δ) directly
        assert shuffled_delta(adult(total * 1.006), n, 1.0).value > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "size", "n", "epsilon", "least"),
    [
        (1, 2, 1_000, 1.0, 0.995),
        (5, 4, 10_000, 0.1, 0.995),
        (20, 2, 1_000_000, 1.0, 0.995),
        (10, 8, 100_000, 4.0, 0.985),
        (1, 3, 1_000_000, 4.0, 0.985),
    ],
)
def test_the_curve_beside_calibrating_directly(columns, size, n, epsilon, least):
    def parts(total):
        return [response(size, total, columns)] * columns

    total, found = largest_total(parts, ShuffledRows(n), promise_step(Budget(epsilon, 1e-6)))
    assert found.ratio <= 1
    assert shuffled_delta(parts(total), n, epsilon).value <= 1e-6  # the curve is the harder promise
    assert shuffled_delta(parts(total / least), n, epsilon).value > 1e-6


@pytest.mark.slow
def test_columns_of_unequal_shares_and_kinds():
    def parts(total):
        shares = [2.0, 1.0, 0.5, 1.3]
        found = [response(size, total * w, 5) for size, w in zip((2, 9, 40, 5), shares, strict=True)]
        return [*found, ColumnLoss(total * 0.05, math.exp(-total * 0.025))]

    allowed = remaining_step(promise_step(Budget(1.0, 1e-6)), Step(0.1, 1e-8))
    _, found = largest_total(parts, ShuffledRows(20_000), allowed)
    assert 0.996 < found.ratio <= 1
    whole = composed_steps([Step(0.1, 1e-8), Step(found.step.mu / found.ratio, found.step.delta)])
    assert step_delta(whole, 1.0) <= 1e-6 * (1 + 1e-9)


def test_sampling_and_contributions_enter_point_by_point():
    parts = adult(9 * 0.8)
    inner = shuffled_profile(parts, ShuffledRows(5_000))
    sampled = shuffled_profile(parts, ShuffledRows(20_000, sample=5_000))
    twice = shuffled_profile(parts, ShuffledRows(5_000, contributions=2))
    for x in (0.0, 0.1, 0.4):
        assert sampled(x) == pytest.approx(0.25 * inner(math.log1p(4 * math.expm1(x))), rel=1e-9)
        assert twice(x) == pytest.approx(min(1.0, (1 + math.exp(x / 2)) * inner(x / 2)), rel=1e-9)
    one, two = (rows_cover(parts, ShuffledRows(100_000, contributions=k), Step(1.0, 1e-8)).step.mu for k in (1, 2))
    assert 1.9 * one < two < 2.3 * one
    with pytest.raises(ParameterError, match=r"^sample must be at most n"):
        ShuffledRows(10, sample=11)
    with pytest.raises(ParameterError, match=r"^contributions must be a whole number"):
        ShuffledRows(10, contributions=0)


def shuffled_response(n, epsilon, x):
    """Divergence of shuffled two-valued randomised response where all other rows are 0, at e^x: exact."""
    from scipy import stats

    p = 1 / (1 + math.exp(epsilon))
    ones = stats.binom.pmf(np.arange(n), n - 1, p)
    with_one = np.concatenate([ones * p, [0]]) + np.concatenate([[0], ones * (1 - p)])
    without = np.concatenate([ones * (1 - p), [0]]) + np.concatenate([[0], ones * p])
    pairs = ((with_one, without), (without, with_one))
    return max(float(np.maximum(a - math.exp(x) * b, 0).sum()) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1_000, 10_000, 100_000, 1_000_000])
def test_the_curve_beside_the_exact_profile_of_shuffled_response(n):
    part = response(2, 1.0, 1)
    found = rows_cover([part], ShuffledRows(n), Step(1.0, 1e-8))
    gaps = []
    for x in np.linspace(0, 5 * found.step.mu, 11):
        truth, claim = shuffled_response(n, 1.0, x), step_delta(found.step, x)
        assert claim >= truth
        gaps.append(truth / claim)
    print(f"n={n}: exact over claim from {min(gaps):.3f} to {max(gaps):.3f}, mu {found.step.mu:.5f}")
    assert gaps[0] > 0.6


def counts(rows, size):
    """Law of the multiset of outputs of independent rows."""
    law = {(0,) * size: 1.0}
    for row in rows:
        moved = {}
        for key, weight in law.items():
            for y, p in enumerate(row):
                new = (*key[:y], key[y] + 1, *key[y + 1 :])
                moved[new] = moved.get(new, 0.0) + weight * p
        law = moved
    return law


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "sigma2", "epsilons"), [(5, 4.0, (0.3, 0.8)), (6, 9.0, (0.5, 0.5)), (4, 1.0, (1.0, 0.4))]
)
def test_all_steps_together_by_brute_force(n, sigma2, epsilons):
    """Counts of the first column, then shuffled rows of two columns whose channel depends on those counts."""

    def by_type(law):
        return np.array([law[key] for key in sorted(law)])

    def channel(factor):
        one, two = (
            np.where(np.eye(2, dtype=bool), math.exp(factor * e), 1.0) / (1 + math.exp(factor * e)) for e in epsilons
        )
        return np.kron(one, two)

    parts = [response(2, e, 1) for e in epsilons]
    slack = 1e-3
    rows = rows_cover(parts, ShuffledRows(n), Step(1.0, slack)).step
    claim = composed_steps([noise_step([IntegerNoise(sigma2)], slack=1e-9), rows])
    strong, weak = channel(1.0), channel(0.6)
    y = np.arange(-26, 27)
    noise = np.exp(-(y**2) / (2 * sigma2))
    noise /= noise.sum()
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(4), n - 1):
        laws = [[by_type(counts([ch[x] for x in (first, *others)], 4)) for first in range(4)] for ch in (strong, weak)]
        for first, second in itertools.permutations(range(4), 2):
            # (a − b, a' − b'): the first column's count of 1 and of 0 move by −1, 0 or 1 between the neighbours.
            shift = (second >> 1) - (first >> 1)
            p = np.outer(noise, noise)
            q = np.outer(np.roll(noise, shift), np.roll(noise, -shift))
            for epsilon in (0.0, 0.4, 1.0):
                total = 0.0
                for branch, mask in enumerate([y >= 0, y < 0]):
                    ours, theirs = laws[branch][first], laws[branch][second]
                    a, b = p[mask].ravel(), q[mask].ravel()
                    total += np.maximum(np.outer(a, ours) - math.exp(epsilon) * np.outer(b, theirs), 0).sum()
                limit = step_delta(claim, epsilon)
                assert total <= limit, (others, first, second, epsilon)
                worst = max(worst, total / limit) if epsilon <= 1 else worst
    print(f"n={n}, sigma2={sigma2}: the exact divergence is {100 * (1 - worst):.0f} % below the claim at best")
    assert worst > 0.3


def test_kept_order_reaches_what_it_should():
    whole = largest_step(Budget(1.0, 1e-6), 0.05)
    tenth = Step(share_of_step(whole, 0.1).mu, whole.delta)
    assert mixed_delta(response_parts([0.0680] * 15), Step(0.0), 1.0) <= 1e-6
    assert mixed_delta(response_parts([0.0640] * 15), tenth, 1.0) <= 1e-6
    assert (
        mixed_delta(response_parts([1.0 - 2e-6]), Step(0.0), 1.0)
        <= 1e-6
        < mixed_delta(response_parts([1.0 + 6e-6]), Step(0.0), 1.0)
    )


@pytest.mark.parametrize("epsilons", [(0.5,), (0.3, 1.1), (0.2, 0.2, 0.7)])
@pytest.mark.parametrize("mu", [0.0, 0.1, 0.9])
def test_the_mixed_sum_is_the_exact_mixture(epsilons, mu):
    for x in (0.0, 0.3, 1.0, 2.0):
        truth = 0.0
        for signs in itertools.product((1, -1), repeat=len(epsilons)):
            a = sum(s * e for s, e in zip(signs, epsilons, strict=True))
            weight = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, epsilons, strict=True))
            truth += weight * (gaussian_delta(mu, x - a) if mu or x < a else 0.0)
        bound = mixed_delta(response_parts(epsilons), Step(mu, 1e-9), x)
        truth = 1e-9 + (1 - 1e-9) * truth
        assert truth * (1 - 1e-12) <= bound <= truth * (1 + 1e-4) + 1e-15
