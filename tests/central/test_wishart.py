"""Wishart noise keeps its promise: exactly in one dimension, by simulation in three, inequality by inequality."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.api import asking
from dpframe.central.wishart import WishartNoise, loss_of
from dpframe.errors import ParameterError
from dpframe.noise.keystream import Keystream


@pytest.mark.parametrize("delta", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_of_one_number_the_profile_is_at_most_delta(epsilon, delta):
    """Y = a + χ²ₖ in units of B²: the hockey-stick divergence of a = 0 and a = 1, by quadrature."""
    noise = WishartNoise.of(1, 1.0, Budget(epsilon, delta))
    law = stats.chi2(noise.degrees)

    def beyond(y, one, other):
        return max(0.0, law.pdf(y - one) - math.exp(epsilon) * law.pdf(y - other))

    points = law.ppf([1e-12, 1e-6, 1e-3, 0.5, 0.999, 1 - 1e-6, 1 - 1e-12])
    for one, other in ((0.0, 1.0), (1.0, 0.0)):
        pieces = [0.0, 1.0, *points, points[-1] * 2]
        spans = zip(sorted(pieces), sorted(pieces)[1:], strict=False)
        found = sum(integrate.quad(beyond, a, b, args=(one, other), limit=200)[0] for a, b in spans)
        assert found <= delta
    # The proof's union of two events and worst ends costs a factor; half the degrees would not do.
    assert loss_of(noise.degrees // 2, delta) > epsilon


def log_density(w, inverse_scale, degrees):
    sign, log_det = np.linalg.slogdet(w)
    assert sign > 0
    return (degrees - len(w) - 1) / 2 * log_det - np.trace(inverse_scale @ w) / 2


@pytest.mark.parametrize("angle", [0.0, 0.7, math.pi / 2])
def test_the_loss_exceeds_epsilon_with_a_chance_of_delta_at_most(angle):
    """4,000 draws; at δ = 0.05 as many as δ + 5 sd have a chance below 1e-6."""
    epsilon, delta, size, bound = 1.0, 0.05, 3, 2.0
    noise = WishartNoise.of(size, bound, Budget(epsilon, delta))
    generator = np.random.default_rng(4)
    x = math.sqrt(bound) * np.array([1.0, 0.0, 0.0])
    y = math.sqrt(bound) * np.array([math.cos(angle), math.sin(angle), 0.0])
    inverse, worst = np.eye(size) / bound, []
    for _ in range(4_000):
        rows = generator.standard_normal((noise.degrees, size)) * math.sqrt(bound)
        w = rows.T @ rows
        moved = w + np.outer(x, x) - np.outer(y, y)
        if np.linalg.eigvalsh(moved)[0] <= 0:
            worst.append(math.inf)
            continue
        loss = log_density(w, inverse, noise.degrees) - log_density(moved, inverse, noise.degrees)
        s, t = x @ np.linalg.solve(w, x), y @ np.linalg.solve(w, y)
        m = noise.degrees - size + 1
        assert loss <= (m - 2) / 2 * (-math.log1p(s) - math.log1p(-t)) + 1e-9  # a = b: the traces cancel
        worst.append(loss)
    assert np.mean(np.array(worst) > epsilon) <= delta + 5 * math.sqrt(delta / 4_000)


def test_the_ratio_of_quadratic_forms_is_chi_squared():
    """Kolmogorov's test at a fixed seed: fails with probability 1e-6 for a seed that had not been tried."""
    generator, x, found = np.random.default_rng(5), np.array([1.0, 2.0, -1.0]), []
    for _ in range(3_000):
        rows = generator.standard_normal((12, 3))
        found.append(x @ x / (x @ np.linalg.solve(rows.T @ rows, x)))
    assert stats.kstest(found, stats.chi2(12 - 3 + 1).cdf).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_degrees_are_below_those_of_the_paper(epsilon):
    ours = WishartNoise.of(4, 1.0, Budget(epsilon, 1e-6)).degrees
    assert 4 < ours < 4 + 28 * math.log(4e6) / epsilon**2
    assert WishartNoise.of(4, 1.0, Budget(epsilon, 1e-6), contributions=2).degrees > 3 * ours


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
        q.cov(["age"], share=0.5, mechanism="wishart")
    with pytest.raises(ParameterError, match="epsilon is too small for wishart noise"):
        WishartNoise.of(2, 1.0, Budget(1e-4, 1e-6))
    assert q.left == 1.0


def test_of_mu_it_takes_what_any_mechanism_might(people):
    """In Gaussian accounting (ε, δ) is paid for as pure ε with a slack of δ, which leaves little."""
    basic, curved = (
        dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES, accounting=accounting)
        for accounting in ("basic", "gaussian")
    )
    found = [q.second_moments(["age"], share=1, mechanism="wishart") for q in (basic, curved)]
    assert found[1].attrs["epsilon"] == pytest.approx(0.188, abs=0.002)
    assert found[1].attrs["delta"] == pytest.approx(1e-7)
    assert found[1]["std_error"].iloc[0, 0] > 3 * found[0]["std_error"].iloc[0, 0]
