"""What the sources ask for beyond releases, beside computations that share nothing with the library's own.

Six rows: selection, sets, groups and cross tables, rows that are added or removed, Gaussian noise on rows, and the
tighter constants. Further comparisons of them are in totals/test_selection.py, totals/test_query_totals.py,
totals/test_wishart.py, api/test_query_laws.py, channels/test_tabulated.py and accounting/test_theorems.py.
"""

import itertools
import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, optimize, stats

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.accounting.unit import Unit
from dpframe.channels import WideGaussian
from dpframe.totals.answers import Portion
from dpframe.totals.selection import ExponentialSelector, NoisyMax, Scores, weights
from dpframe.totals.wishart import WishartNoise

NEIGHBOURS = ["replace_one", "add_remove"]
ITEMS = ["p", "q", "r"]
SPACES = {"a": (0, 2), "g": ["x", "y"], "s": dpf.Subset(ITEMS, max_size=2)}
HELD = [held for size in range(3) for held in itertools.combinations(ITEMS, size)]
ROWS = list(itertools.product(range(3), "xy", HELD))


def table(rows=ROWS):
    return pd.DataFrame([(a, g, list(s)) for a, g, s in rows], columns=["a", "g", "s"])


# --- 1. Selection -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(0.1, 1), (1.0, 10), (3.0, 2.5)])
def test_1_the_rate_of_a_choice_is_that_of_definition_2_or_of_theorem_4(epsilon, sensitivity):
    """k = ε/(2Δ); ε/Δ where a row moves all scores one way or the normaliser is one. Read off the stated shortfall."""
    for options, factor in (({}, 2), ({"monotone": True}, 1), ({"balanced": True}, 1)):
        for mechanism in ("exponential", "noisy_max") if "balanced" not in options else ("exponential",):
            answer = dpf.Queries(table(), epsilon, delta=0, spaces=SPACES).select(
                [0, 1, 2, 3],
                lambda rows, at: float(at),
                sensitivity=sensitivity,
                share=1,
                mechanism=mechanism,
                **options,
            )
            expected = math.log(4 / 0.05) * factor * sensitivity / epsilon
            # Utilities are rounded down to 2⁻¹⁶ of the sensitivity, which is added to it.
            assert expected < answer["shortfall"] < expected * (1 + 4 / 2**16)
            assert answer.attrs["epsilon"] == pytest.approx(epsilon, rel=1e-12)
            assert answer.attrs["epsilon"] <= epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_1_the_exponential_mechanism_beside_forty_digits(epsilon):
    """Weights of a choice from e^(k·u) in decimals, and the loss of cyclic scores, whose normaliser is one: ε."""
    scores, base = [0, -1, -3, -40], [1, 3, 2, 5]
    selector = ExponentialSelector.of(Scores(((1, 80),), balanced=True), Portion(Budget(epsilon)))
    assert selector.rate == pytest.approx(epsilon / 40, rel=1e-12)
    own = [w * b for w, b in zip(weights(selector.rate, scores), base, strict=True)]
    with localcontext(Context(prec=40)):
        terms = [(Decimal(selector.rate) * u).exp() * b for u, b in zip(scores, base, strict=True)]
        for found, term in zip(own, terms, strict=True):
            assert abs(Decimal(found) / sum(own) / (term / sum(terms)) - 1) < Decimal("1e-25")
        turned = [[(Decimal(selector.rate) * u).exp() for u in scores[at:] + scores[:at]] for at in range(4)]
        loss = max(
            (p / q).ln() for one, other in itertools.permutations(turned, 2) for p, q in zip(one, other, strict=True)
        )
    assert float(loss) == pytest.approx(selector.pure_loss, rel=1e-12)
    assert float(loss) <= selector.pure_loss <= epsilon


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("scores", [[0, 0, 5], [3, 2, 1, 3]])
def test_1_permute_and_flip_is_report_noisy_max(epsilon, scores):
    """Coins in a random order choose as the largest score with exponential noise does: two integrals (Ding et al.)."""
    k = NoisyMax.of(Scores(((1, 2),)), Portion(Budget(epsilon))).rate
    assert k == pytest.approx(epsilon / 2, rel=1e-12)
    chances = [w / 2**192 for w in weights(k, scores)]
    for at, score in enumerate(scores):
        others = [j for j in range(len(scores)) if j != at]
        ahead = [score - scores[j] for j in others]
        ends = max(0, *(-lead for lead in ahead)), 60 / k

        def chance(t, others=others):
            return math.prod(1 - chances[j] * t for j in others)

        def wins(x, ahead=ahead):
            return k * math.exp(-k * x) * math.prod(-math.expm1(-k * (x + lead)) for lead in ahead)

        coins = chances[at] * integrate.quad(chance, 0, 1)[0]
        noisy = integrate.quad(wins, ends[0], ends[0] + ends[1], epsabs=1e-14, limit=300)[0]
        assert coins == pytest.approx(noisy, rel=1e-9)


# --- 2, 3. Sets, groups and cross tables; 4. rows that are added or removed ---------------------------

COUNTED = {
    "count of any": (lambda a, g, s: [bool({"p", "q"} & {*s})], lambda q, o: q.count({"s": {"any": ["p", "q"]}}, **o)),
    "count of all": (lambda a, g, s: [{"p", "q"} <= {*s}], lambda q, o: q.count({"s": {"all": ["p", "q"]}}, **o)),
    "items": (lambda a, g, s: [item in s for item in ITEMS], lambda q, o: q.support("s", **o)),
    "sizes": (lambda a, g, s: [len(s) == size for size in range(4)], lambda q, o: q.set_sizes("s", **o)),
    "cross table": (
        lambda a, g, s: [(a, g) == cell for cell in itertools.product(range(3), "xy")],
        lambda q, o: q.crosstab("a", "g", **o),
    ),
    "histogram where": (
        lambda a, g, s: [g == "x" and a == value for value in range(3)],
        lambda q, o: q.histogram("a", where={"g": "x"}, **o),
    ),
}
"""What a row adds to each number, in plain Python, and the question."""


def moves(of_row, neighbours):
    """All that one row can move, by enumeration."""
    rows = [np.array(of_row(*row), dtype=int) for row in ROWS]
    return rows if neighbours == "add_remove" else [one - other for one, other in itertools.permutations(rows, 2)]


def geometric_sd(rate):
    """√(Σ k²·e^(−rate·|k|)/Σ e^(−rate·|k|)), by its terms."""
    k = np.arange(-math.ceil(45 / rate), math.ceil(45 / rate) + 1, dtype=float)
    law = np.exp(-rate * np.abs(k))
    return math.sqrt(k**2 @ law / law.sum())


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 2.0])
@pytest.mark.parametrize("name", COUNTED)
def test_2_3_4_noise_is_that_of_the_sensitivity_by_enumeration(name, epsilon, neighbours):
    """One question spends its share once, and has geometric noise of rate ε/Δ₁ on every number."""
    of_row, ask = COUNTED[name]
    sensitivity = max(int(np.abs(move).sum()) for move in moves(of_row, neighbours))
    q = dpf.Queries(table(), 2 * epsilon, delta=0, spaces=SPACES, neighbours=neighbours)
    answer = ask(q, {"share": 0.5, "mechanism": "geometric"})
    assert q.left == 0.5
    assert answer.attrs["epsilon"] == epsilon
    assert np.ravel(answer["std_error"]) == pytest.approx(geometric_sd(epsilon / sensitivity), rel=1e-9)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 2.0])
@pytest.mark.parametrize("column", ["g", "s"])
def test_2_the_number_of_distinct_values(column, epsilon, neighbours):
    """It is not a sum over rows: its sensitivity is that of all tables of two rows and their neighbours."""
    place = ROWS[0].index("x") if column == "g" else 2

    def distinct(rows):
        return len({value for row in rows for value in (row[place] if column == "s" else [row[place]])})

    if neighbours == "add_remove":
        pairs = [((one, other), (one,)) for one in ROWS for other in ROWS]
    else:
        pairs = [((one, other), (one, new)) for one in ROWS[::3] for other, new in itertools.product(ROWS, repeat=2)]
    sensitivity = max(abs(distinct(a) - distinct(b)) for a, b in pairs)
    assert sensitivity == {"g": 1, "s": 2}[column]
    q = dpf.Queries(table(), epsilon, delta=0, spaces=SPACES, neighbours=neighbours)
    answer = q.nunique(column, share=1, mechanism="geometric")
    assert answer["std_error"] == pytest.approx(geometric_sd(epsilon / sensitivity), rel=1e-9)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 2.0])
@pytest.mark.parametrize("grouped", [{"by": "g"}, {"where": {"g": "x"}}], ids=["by", "where"])
def test_3_sums_by_groups_are_one_question(grouped, epsilon, neighbours):
    """The sum about the middle with two thirds of the share, in halves, and the number of values with a third."""

    def of_row(a, g, s):
        inside = np.array([g == group for group in ("xy" if "by" in grouped else "x")])
        return [*(inside * (2 * a - 2)), *inside]

    found = np.array(moves(of_row, neighbours))
    half = found.shape[1] // 2
    of_sum, of_count = np.abs(found[:, :half]).sum(axis=1).max(), np.abs(found[:, half:]).sum(axis=1).max()
    expected = math.hypot(geometric_sd(2 * epsilon / 3 / of_sum) / 2, geometric_sd(epsilon / 3 / of_count))
    q = dpf.Queries(table(), epsilon, delta=0, spaces=SPACES, neighbours=neighbours)
    answer = q.sum("a", share=1, mechanism="geometric", **grouped)
    assert np.ravel(answer["std_error"]) == pytest.approx(expected, rel=1e-9)
    assert q.left == 0


def discrete_gaussian(sigma, reach):
    k = np.arange(-reach, reach + 1)
    law = np.exp(-(k**2) / (2 * sigma**2))
    return law / law.sum()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-4), (1.0, 1e-6), (3.0, 1e-5)])
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_3_4_the_exact_delta_of_a_cross_table_with_gaussian_noise(neighbours, epsilon, delta):
    """Two counts move, or one where rows are added or removed: the divergence by summing over all pairs of draws."""
    q = dpf.Queries(table(), epsilon, delta=delta, spaces=SPACES, neighbours=neighbours, accounting="basic")
    sigma = float(np.ravel(q.crosstab("a", "g", share=1, mechanism="gaussian")["std_error"])[0])

    def exact(sigma):
        reach = math.ceil(11 * sigma)
        law = discrete_gaussian(sigma, reach)
        moved = np.concatenate([[0.0], law[:-1]])
        if neighbours == "add_remove":
            return np.maximum(law - math.exp(epsilon) * moved, 0).sum()
        return np.maximum(np.outer(law, law) - math.exp(epsilon) * np.outer(moved, law_back(law)), 0).sum()

    def law_back(law):
        return np.concatenate([law[1:], [0.0]])

    # A table's standard error is rounded from its integers, by 1e-12 of itself.
    assert 0.97 * delta < exact(sigma) <= delta * (1 + 1e-6)
    width = math.sqrt(2 if neighbours == "replace_one" else 1)

    def normal(s):  # Balle and Wang's Theorem 8
        half, far = width / (2 * s), epsilon * s / width
        return stats.norm.cdf(half - far) - math.exp(epsilon) * stats.norm.cdf(-half - far)

    assert sigma == pytest.approx(optimize.brentq(lambda s: normal(s) - delta, 0.1, 200), rel=4e-2)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.5])
def test_4_two_added_rows_are_one_replaced_and_never_the_other_way(epsilon):
    """Noise that loses ε for an added row loses 2ε for a replaced one, by the ratios of the law on two cells."""
    q = dpf.Queries(table(), epsilon, delta=0, spaces=SPACES, neighbours="add_remove")
    sd = float(q.histogram("a", share=1, mechanism="geometric")["std_error"].iloc[0])
    rate = optimize.brentq(lambda r: geometric_sd(r) / sd - 1, epsilon / 3, 3 * epsilon)
    k = np.arange(-20, 21)
    cells = [(1, 0), (1, -1)]
    losses = [max((rate * (np.abs(k - move) - np.abs(k))).max() for move in pair if move) for pair in cells]
    whole = [sum((rate * (np.abs(k - move) - np.abs(k))).max() for move in pair) for pair in cells]
    assert losses == pytest.approx([epsilon, epsilon], rel=1e-8)
    assert whole == pytest.approx([epsilon, 2 * epsilon], rel=1e-8)
    twice = dpf.Queries(table(), 2 * epsilon, delta=0, spaces=SPACES, neighbours="add_remove", contributions=2)
    own = float(twice.histogram("a", share=1, mechanism="geometric")["std_error"].iloc[0])
    assert own == pytest.approx(sd, rel=1e-9)
    added, replaced = (Unit.of(text) for text in ("add_remove 2 rows", "row"))
    assert added.covers(replaced)
    assert not any(Unit(rows).covers(Unit(added=True)) for rows in (1, 2, 100))


# --- 5. Gaussian noise on rows of numbers -------------------------------------------------------------


@pytest.mark.parametrize(("span", "epsilon", "delta"), [(12, 2.0, 1e-5), (5, 0.5, 1e-3), (40, 6.0, 1e-8)])
def test_5_the_exact_delta_of_gaussian_rows(span, epsilon, delta):
    """Σ (P(k) − e^ε·P(k − span))₊ in decimals; a tenth of δ is the slack of composition, some 1 % of σ."""
    mechanism = WideGaussian(span, epsilon, delta)

    def exact(sigma):
        reach = math.ceil(14 * sigma) + span
        with localcontext(Context(prec=40)):
            law = {k: (-Decimal(k * k) / (2 * Decimal(sigma) ** 2)).exp() for k in range(-reach, reach + 1)}
            odds = Decimal(epsilon).exp()
            terms = [p - odds * law.get(k - span, Decimal(0)) for k, p in law.items()]
            return float(sum(term for term in terms if term > 0) / sum(law.values()))

    assert mechanism.loss.delta(epsilon) == pytest.approx(exact(mechanism.sigma), rel=1e-10)
    assert 0.89 * delta < exact(mechanism.sigma) <= delta < exact(0.98 * mechanism.sigma)

    def normal(s):
        half, far = span / (2 * s), epsilon * s / span
        return stats.norm.cdf(half - far) - math.exp(epsilon) * stats.norm.cdf(-half - far)

    assert mechanism.sigma == pytest.approx(optimize.brentq(lambda s: normal(s) - delta, span / 20, 200), rel=1.5e-2)


# --- 6. The tighter ones ------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (1.0, 1e-4), (0.3, 1e-2)])
def test_6_the_degrees_of_wishart_noise_are_the_fewest_of_orthogonal_rows(epsilon, delta):
    """The integral of (f − e^ε·f')₊ over 2 × 2 matrices, of which the density is f, by Gauss' nodes."""
    m = WishartNoise.of(2, 1.0, Portion(Budget(epsilon, delta))).degrees - 1

    def divergence(m):
        nodes, masses = np.polynomial.legendre.leggauss(160)
        far = np.array([stats.chi2(m + 1).ppf(p) for p in (1e-9, 1 - 1e-9)])
        a = far.mean() + nodes * np.diff(far) / 2
        z, normal = np.polynomial.hermite_e.hermegauss(100)
        # In coordinates a, c = z·√a and b = u + z²; inside, det(T + diag(−1, 1)) = (a − 1)(b + 1) − c².
        u = (stats.chi2(m).ppf(1e-10) + stats.chi2(m).ppf(1 - 1e-10)) / 2
        u = u + nodes * (stats.chi2(m).ppf(1 - 1e-10) - stats.chi2(m).ppf(1e-10)) / 2
        chances = np.multiply.outer(
            stats.chi2(m + 1).pdf(a) * masses * np.diff(far) / 2,
            stats.chi2(m).pdf(u) * masses * (u[-1] - u[0]) / (nodes[-1] - nodes[0]),
        )
        after = (a[:, None, None] - 1) * (u[None, :, None] + z**2 + 1) - a[:, None, None] * z**2
        before = np.multiply.outer(a, u)[:, :, None]
        ratio = (np.maximum(after, 0) / before) ** (m / 2 - 1)
        return float(
            np.einsum("ij,ijk,k->", chances, np.maximum(1 - math.exp(epsilon) * ratio, 0), normal) / normal.sum()
        )

    assert divergence(m) <= delta < divergence(math.floor(0.985 * m) - 1)
