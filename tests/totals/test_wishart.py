"""Wishart noise keeps its promise: exactly in one dimension, by simulation in three, inequality by inequality."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.api import asking
from dpframe.errors import ParameterError
from dpframe.noise.keystream import Keystream
from dpframe.totals.wishart import WishartNoise, _down, _up, delta_of


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
    # A row that is replaced by none needs about half of what two rows do; fewer would not do for these.
    assert delta_of(noise.degrees // 2, epsilon) > delta


def log_density(w, inverse_scale, degrees):
    sign, log_det = np.linalg.slogdet(w)
    assert sign > 0
    return (degrees - len(w) - 1) / 2 * log_det - np.trace(inverse_scale @ w) / 2


@pytest.mark.parametrize("m", [5, 20, 100])
def test_the_divergences_of_one_row_are_those_of_quadrature(m):
    law = stats.chi2(m)
    for epsilon in (0.0, 0.1, 0.3, 0.49):
        grid = np.linspace(0, law.ppf(1 - 1e-13) + 1, 400_001)
        both = law.pdf(grid - 1), law.pdf(grid)
        up, down = (
            integrate.trapezoid(np.maximum(one - math.exp(epsilon) * other, 0), grid)
            for one, other in (both, both[::-1])
        )
        assert float(_up(m, np.array([epsilon]))[0]) == pytest.approx(up, rel=1e-3, abs=1e-9)
        assert float(_down(m, np.array([epsilon]))[0]) == pytest.approx(down, rel=1e-3, abs=1e-9)
    assert _up(m, np.array([0.5, 2.0])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("epsilon", [0.1, 0.4, 1.0, 2.0])
@pytest.mark.parametrize("m", [5, 20, 200])
def test_one_row_away_and_one_added_are_both_paid_for(m, epsilon):
    """The divergence of the two independent pairs of laws, by quadrature: at most δ, and more than either's."""
    law, cells = stats.chi2(m), 3_000
    middles = law.ppf((np.arange(cells) + 0.5) / cells)
    with np.errstate(divide="ignore"):
        away = law.logpdf(middles) - law.logpdf(middles + 1)  # of χ² + 1, whose middles are moved
        back = law.logpdf(middles) - law.logpdf(middles - 1)
    both = np.add.outer(away, back)
    found = np.maximum(1 - np.exp(epsilon - both), 0).mean()
    assert found <= delta_of(m, epsilon)
    either = max(float(_up(m, np.array([epsilon]))[0]), float(_down(m, np.array([epsilon]))[0]))
    if either > 1e-3:  # what these cells show
        assert found > 1.02 * either


@pytest.mark.parametrize("angle", [0.4, 1.1, math.pi / 2])
@pytest.mark.parametrize("delta", [0.05, 0.005])
def test_the_divergence_of_two_rows_is_delta_at_most(angle, delta):
    """40,000 draws: the mean of (1 − e^(ε − L))₊ exceeds δ by five of its sd with a chance below 1e-6."""
    epsilon, size, bound = 1.0, 3, 2.0
    noise = WishartNoise.of(size, bound, Budget(epsilon, delta))
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
    if angle > 1:
        assert excess.mean() > delta / 50
    if angle > 1.5:  # three quarters of the degrees would not do by the proof
        assert delta_of(3 * (noise.degrees - size + 1) // 4, epsilon) > delta


@pytest.mark.parametrize("delta", [1e-2, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_degrees_are_below_those_of_a_union_of_two_tails(epsilon, delta):
    """The proof of before: each of the two losses within its (1 − δ/2)-quantile."""

    def union(m):
        above, below = stats.chi2(m).isf(delta / 2), stats.chi2(m).ppf(delta / 2)
        if below <= 1:
            return math.inf
        first, second = 0.5 - (m - 2) / 2 * math.log1p(1 / above), -(m - 2) / 2 * math.log1p(-1 / below) - 0.5
        return max(first, 0.0) + max(second, 0.0)

    m = WishartNoise.of(1, 1.0, Budget(epsilon, delta)).degrees
    assert union(m) > epsilon


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
    assert WishartNoise.of(4, 1.0, Budget(epsilon, 1e-6), contributions=2).degrees > 2 * ours


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
    """In Gaussian accounting (ε, δ) is paid for as pure ε with a slack of δ, which leaves little of a part."""
    basic, curved = (
        dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES, accounting=accounting)
        for accounting in ("basic", "gaussian")
    )
    found = [q.second_moments(["age"], share=0.999, mechanism="wishart") for q in (basic, curved)]
    assert found[1].attrs["epsilon"] == pytest.approx(0.188, abs=0.002)
    assert found[1].attrs["delta"] == pytest.approx(1e-7, rel=2e-3)
    assert found[1]["std_error"].iloc[0, 0] > 3 * found[0]["std_error"].iloc[0, 0]
    whole = dpf.Queries(people, 1.0, delta=1e-6, spaces=SPACES).second_moments(["age"], share=1, mechanism="wishart")
    assert (whole.attrs["epsilon"], whole.attrs["delta"]) == (1.0, 1e-6)
    assert whole["std_error"].iloc[0, 0] <= found[0]["std_error"].iloc[0, 0]
