"""Wishart noise keeps its promise: exactly in one dimension, by simulation in three, inequality by inequality."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, special, stats

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, step_delta
from dpframe.errors import ParameterError
from dpframe.noise.keystream import Keystream
from dpframe.queries import base as asking
from dpframe.totals.answers import Portion
from dpframe.totals.wishart import WishartLoss, WishartNoise


def of(size, bound, budget, contributions=1, step=None):
    return WishartNoise.of(size, bound, Portion(budget, step), contributions)


def loss(m, epsilon=0.0, rows=1, least=1e-10):
    return WishartLoss(m, rows, single=False, first=epsilon, smallest=least)


def orthogonal(m, epsilon, rows=1):
    """The divergence of orthogonal rows as P(L > ε) − e^ε·P'(L > ε), by quadrature in u and v."""
    ratio = math.exp(2 * epsilon / (m - 2))
    nodes, masses = np.polynomial.hermite_e.hermegauss(60)
    root = np.linspace(max(math.sqrt(m - 0.5) - 6.5, 1e-9), math.sqrt(m - 0.5) + 6.5, 1_001)
    density = stats.chi2(m).pdf(root**2) * 2 * root * (root[1] - root[0])
    u, v, a = (root**2)[:, None], (nodes**2)[None, :], stats.chi2(m + 1)
    ends = u + rows + v
    one = a.cdf(ends / (1 + (1 - 1 / ratio) / rows * u))
    room = 1 - (ratio - 1) / rows * u
    other = np.where(room > 0, a.sf(ends / np.where(room > 0, room, 1.0)), 0.0)
    return float(density @ (one - math.exp(epsilon) * other) @ masses / masses.sum())


@pytest.mark.walk(2)
@pytest.mark.parametrize("delta", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("rows", [1, 3])
def test_of_one_number_degrees_are_the_fewest(epsilon, delta, rows):
    """Y = a + χ²ₖ in units of B²: the hockey-stick divergence of a = 0 and a = rows, by quadrature."""

    def found(degrees):
        law = stats.chi2(degrees)

        def beyond(y, one, other):
            return max(0.0, law.pdf(y - one) - math.exp(epsilon) * law.pdf(y - other))

        points = law.ppf([1e-12, 1e-6, 1e-3, 0.5, 0.999, 1 - 1e-6, 1 - 1e-12])
        pieces = sorted([0.0, float(rows), *points, points[-1] * 2])
        return max(
            sum(integrate.quad(beyond, a, b, args=pair, limit=200)[0] for a, b in itertools.pairwise(pieces))
            for pair in ((0.0, rows), (rows, 0.0))
        )

    degrees = of(1, 1.0, Budget(epsilon, delta), rows).degrees
    assert found(degrees) <= delta
    assert degrees <= 3 or found(math.floor(0.998 * degrees) - 1) > delta


@pytest.mark.slow
@pytest.mark.parametrize(("m", "epsilon"), [(40, 1.0), (60, 1.0), (100, 0.3), (300, 0.3), (3_000, 0.06)])
@pytest.mark.parametrize("rows", [1, 2])
def test_the_profile_of_orthogonal_rows_is_that_of_quadrature(m, epsilon, rows):
    exact = orthogonal(m, rows * epsilon, rows)
    near, whole = (loss(m, first, rows, exact / 64).profile(rows * epsilon) for first in (rows * epsilon, 0.0))
    assert exact <= near <= 1.1 * exact
    # From 0 on, losses lie farther apart.
    assert exact <= whole <= 1.5 * exact


@pytest.mark.walk(1)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (1.0, 1e-3), (0.3, 1e-6), (0.1, 1e-4), (0.5, 1e-9)])
def test_degrees_are_what_orthogonal_rows_need(epsilon, delta):
    m = of(2, 2.0, Budget(epsilon, delta)).degrees - 1
    assert orthogonal(m, epsilon) <= delta < orthogonal(math.floor(0.985 * m) - 1, epsilon)


@pytest.mark.walk(1)
@pytest.mark.parametrize("mu", [0.05, 0.2, 0.3])
@pytest.mark.slow
def test_of_a_step_the_whole_profile_lies_under_its_curve(mu):
    step = Step(mu, 1e-7)
    m = of(2, 2.0, Budget(1.0, 1e-6), step=step).degrees - 1
    assert all(orthogonal(m, x) <= step_delta(step, x) for x in np.linspace(0.0, 6 * mu, 13))
    fewer = math.floor(0.9 * m) - 2
    assert any(orthogonal(fewer, x) > step_delta(step, x) for x in np.linspace(0.0, 6 * mu, 13))


@pytest.mark.parametrize("m", [5, 20, 100])
def test_the_divergences_of_one_row_are_those_of_quadrature(m):
    law, both = stats.chi2(m), loss(m)
    for epsilon in (0.0, 0.1, 0.3, 0.49):
        grid = np.linspace(0, law.ppf(1 - 1e-13) + 1, 400_001)
        laws = law.pdf(grid - 1), law.pdf(grid)
        up, down = (
            integrate.trapezoid(np.maximum(one - math.exp(epsilon) * other, 0), grid)
            for one, other in (laws, laws[::-1])
        )
        assert both.up(epsilon) == pytest.approx(up, rel=1e-3, abs=1e-9)
        assert both.down(epsilon) == pytest.approx(down, rel=1e-3, abs=1e-9)
    assert [both.up(epsilon) for epsilon in (0.5, 2.0)] == [0.0, 0.0]


@pytest.mark.parametrize(("m", "epsilon"), [(12, 0.5), (60, 0.3), (400, 0.1)])
def test_no_other_rows_diverge_more(m, epsilon):
    """Moves of eigenvalues s and −t: 40,000 draws of W, the same for all; at s = t = 1 the mean is the profile's."""
    generator = np.random.default_rng(8)
    a, u = generator.chisquare(m + 1, 40_000), generator.chisquare(m, 40_000)
    v = generator.standard_normal(40_000) ** 2

    def divergence(s, t):
        after = (a - s) * (u + v + t) - a * v
        with np.errstate(divide="ignore", invalid="ignore"):
            log = (m / 2 - 1) * np.log(a * u / np.where(after > 0, after, 0.0)) + (t - s) / 2
        return np.maximum(1 - np.exp(epsilon - log), 0)

    worst = divergence(1.0, 1.0)
    error = worst.std() / math.sqrt(len(worst))
    assert worst.mean() == pytest.approx(orthogonal(m, epsilon), abs=5 * error)
    for s, t in [(0.3, 0.3), (0.7, 0.7), (1.0, 0.0), (1.0, 0.5), (0.5, 1.0), (0.0, 1.0), (0.9, 0.6)]:
        assert divergence(s, t).mean() < worst.mean()


@pytest.mark.walk(3)
@pytest.mark.parametrize("angle", [0.4, 1.1, math.pi / 2])
@pytest.mark.parametrize("delta", [0.05, 0.005])
def test_the_divergence_of_two_rows_is_delta_at_most(angle, delta):
    """40,000 draws: the mean of (1 − e^(ε − L))₊ exceeds δ by five of its sd with a chance below 1e-6."""
    epsilon, size, bound = 1.0, 3, 2.0
    noise = of(size, bound, Budget(epsilon, delta))
    generator = np.random.default_rng(4)
    x = math.sqrt(bound) * np.array([1.0, 0.0, 0.0])
    y = math.sqrt(bound) * np.array([math.cos(angle), math.sin(angle), 0.0])
    rows = generator.standard_normal((40_000, noise.degrees, size)) * math.sqrt(bound)
    w = rows.transpose(0, 2, 1) @ rows
    moved = w + np.outer(x, x) - np.outer(y, y)
    inside = np.linalg.eigvalsh(moved)[:, 0] > 0
    logs = [np.linalg.slogdet(one)[1] for one in (w, moved)]
    loss = np.where(inside, (noise.degrees - size - 1) / 2 * (logs[0] - logs[1]), np.inf)  # the traces cancel
    excess = np.maximum(1 - np.exp(epsilon - loss), 0)
    assert excess.mean() <= delta + 5 * excess.std() / math.sqrt(len(loss))
    if angle > 1.5:
        assert excess.mean() > 0.4 * delta  # degrees are whole


@pytest.mark.parametrize("m", [46, 3_001, 1 << 18])
@pytest.mark.parametrize("z", [-8.0, -5.0, 5.0])
def test_chances_of_rare_values_are_right(m, z):
    """By Gauss' nodes in logarithms; SciPy's series for the lower tail ends too early where m is 2²⁰ and more."""
    y = max(m + z * math.sqrt(2 * m), 0.5)
    nodes, parts = np.polynomial.legendre.leggauss(400)
    width = 10 * math.sqrt(2 * m)
    low, high = (max(y - width, 1e-9), y) if z < 0 else (y, y + width)
    at = (low + high) / 2 + nodes * (high - low) / 2
    # Relative to the density at y, in numbers that do not cancel.
    logs = (m / 2 - 1) * np.log1p((at - y) / y) - (at - y) / 2
    scale = math.exp((m / 2 - 1) * math.log(y / m) - (y - m) / 2 + stats.chi2(m).logpdf(m))
    found = float(np.exp(logs) @ parts) * (high - low) / 2 * scale
    chance = special.gammainc if z < 0 else special.gammaincc
    assert chance(m / 2, y / 2) == pytest.approx(found, rel=1e-8)


def test_the_ratio_of_quadratic_forms_is_chi_squared():
    """Kolmogorov's test at a fixed seed: fails with probability 1e-6 for a seed that had not been tried."""
    generator, x, found = np.random.default_rng(5), np.array([1.0, 2.0, -1.0]), []
    for _ in range(3_000):
        rows = generator.standard_normal((12, 3))
        found.append(x @ x / (x @ np.linalg.solve(rows.T @ rows, x)))
    assert stats.kstest(found, stats.chi2(12 - 3 + 1).cdf).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
@pytest.mark.slow
def test_degrees_are_below_those_of_the_paper(epsilon):
    ours = of(4, 1.0, Budget(epsilon, 1e-6)).degrees
    assert 4 < ours < 4 + 28 * math.log(4e6) / epsilon**2 / 8
    assert of(4, 1.0, Budget(epsilon, 1e-6), contributions=2).degrees > 2 * ours


def test_draws_have_the_moments_of_the_law():
    noise = WishartNoise(2, 3.0, 40)
    drawn = np.array([noise.sample(Keystream(i.to_bytes(32, "big")).column("w", "measure")) for i in range(2_000)])
    assert drawn.mean(axis=0) == pytest.approx(120 * np.eye(2), abs=5 * 3 * math.sqrt(2 * 40 / 2_000))
    assert drawn[:, 0, 0].var() == pytest.approx(2 * 40 * 9, rel=0.2)
    assert drawn[:, 0, 1].var() == pytest.approx(40 * 9, rel=0.2)


@pytest.fixture
def people():
    generator = np.random.default_rng(6)
    age = generator.integers(20, 90, 400)
    return pd.DataFrame({"age": age, "income": 500 * age + generator.integers(0, 30_000, 400)})


SPACES = {"age": (0, 120), "income": (0, 100_000)}


@pytest.mark.slow
def test_moments_are_positive_and_their_intervals_hold(people, monkeypatch):
    """200 answers at fixed keys: 95 % less five sd of a binomial."""
    truth = (people.T @ people / len(people)).to_numpy()
    inside = np.zeros((2, 2))
    for i in range(200):
        monkeypatch.setattr(asking, "fresh_key", lambda i=i: i.to_bytes(32, "big"))
        q = dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES, accounting="basic")
        answer = q.second_moments(["age", "income"], share=1, mechanism="wishart")
        assert np.linalg.eigvalsh(answer["estimate"]).min() > 0
        inside += ((answer["lower"] <= truth) & (truth <= answer["upper"])).to_numpy()
    assert (inside / 200 > 0.95 - 5 * math.sqrt(0.95 * 0.05 / 200)).all()
    assert answer.attrs == {
        "mechanism": "wishart",
        "share": 1.0,
        "epsilon": 1.0,
        "delta": 1e-6,
        "neighbours": "replace_one",
    }
    assert (answer["estimate"] > answer["lower"]).all(axis=None)


def test_what_is_refused(people):
    q = dpf.Queries(people, 1.0, delta=0, spaces=SPACES)
    with pytest.raises(ParameterError, match="wishart needs delta above 0"):
        q.second_moments(["age"], share=0.5, mechanism="wishart")
    with pytest.raises(ParameterError, match="mechanism must be one of"):
        q.covariance(["age"], share=0.5, mechanism="wishart")
    with pytest.raises(ParameterError, match="epsilon is too small for wishart noise"):
        of(2, 1.0, Budget(1e-5, 1e-9))
    with pytest.raises(ParameterError, match="delta is too small for wishart noise"):
        of(2, 1.0, Budget(1.0, 1e-30))
    assert q.left == 1.0


@pytest.mark.slow
def test_a_part_of_the_budget_costs_its_part_of_mu(people):
    """In Gaussian accounting nearly all of the budget has nearly as little noise as all of it by itself."""
    whole, most, tenth = (
        dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES).second_moments(["age"], share=share, mechanism="wishart")
        for share in (1, 0.999, 0.1)
    )
    assert (whole.attrs["epsilon"], whole.attrs["delta"]) == (1.0, 1e-6)
    errors = [answer["std_error"].iloc[0, 0] for answer in (whole, most, tenth)]
    assert errors[0] <= errors[1] < 1.1 * errors[0]
    assert errors[2] < 3.5 * errors[1]
