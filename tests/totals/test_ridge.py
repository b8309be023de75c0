"""Regressions with noise: sensitivity of the minimiser that floats find, and δ of the noise, by enumeration."""

import itertools
import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from dpframe.accounting.budget import Budget
from dpframe.errors import ParameterError
from dpframe.totals.answers import Portion
from dpframe.totals.ridge import FEATURE_SCALE, LOSSES, RidgeObjective, ridge_noise

ROWS = [(x, y) for x in (-1.0, 0.25, 1.0) for y in (-1.0, 1.0)]
"""Values of a feature, beside an intercept, and of the outcome."""


def blocks(rows):
    features = np.array([[1.0, x] for x, _ in rows]) * FEATURE_SCALE / math.sqrt(2)
    return lambda: [(features, np.array([y for _, y in rows]))]


def largest_move(objective):
    """The largest distance of rounded minimisers over all tables of n rows and their neighbours, in grid steps."""
    tables = list(itertools.combinations_with_replacement(range(len(ROWS)), objective.n))
    found = {table: objective.rounded(blocks([ROWS[i] for i in table])) for table in tables}
    moves = [0.0]
    for table in tables:
        for place, i in itertools.product(range(objective.n), range(len(ROWS))):
            neighbour = tuple(sorted((*table[:place], i, *table[place + 1 :])))
            moves.append(float(np.linalg.norm(found[table] - found[neighbour])))
    return max(moves)


@pytest.mark.parametrize("family", LOSSES)
@pytest.mark.parametrize("penalty", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("share", [2.0**-10, 0.5], ids=["fine", "coarse"])
def test_no_neighbour_moves_the_minimiser_beyond_the_span(family, penalty, share):
    objective = RidgeObjective(LOSSES[family], penalty, 2, 3, 1, share, 4.0 if share == 0.5 else 2.0**16)
    assert largest_move(objective) <= objective.span


def test_the_remainder_of_the_gradient_is_needed():
    """A search that ends early leaves a table's coefficients at 0, and finds those of a neighbour."""
    objective = RidgeObjective(LOSSES["gaussian"], 100.0, 2, 3, 1, tolerance_share=1.01)
    exact_span = math.ceil(objective.minimiser_sensitivity / objective.grid + math.sqrt(2))
    assert 1.4 * exact_span < largest_move(objective) <= objective.span


def test_rounding_is_needed():
    objective = RidgeObjective(LOSSES["gaussian"], 100.0, 2, 3, 1, grid_cells=1.0)
    assert math.ceil(objective.sensitivity / objective.grid) < largest_move(objective) <= objective.span


def exact_gradient_norm(family, penalty, weights, rows):
    """The norm of the exact gradient at these floats, to 40 digits."""
    with localcontext(Context(prec=40)):
        total = [Decimal(0), Decimal(0)]
        w = [Decimal(float(value)) for value in weights]
        features, outcomes = blocks(rows)()[0]
        for x_row, y in zip(features, outcomes, strict=True):
            x = [Decimal(float(value)) for value in x_row]
            s, y = sum(a * b for a, b in zip(x, w, strict=True)), Decimal(float(y))
            slope = -y / (1 + (y * s).exp()) if family == "binomial" else min(max(s - y, Decimal(-1)), Decimal(1))
            total = [t + slope * a for t, a in zip(total, x, strict=True)]
        gradient = [t / len(rows) + Decimal(penalty) * b for t, b in zip(total, w, strict=True)]
        return sum(g * g for g in gradient).sqrt()


@pytest.mark.parametrize("family", LOSSES)
def test_the_bound_on_the_gradient_holds(family):
    """Also where the floats' own norm is too small, which a certificate without rounding errors would show."""
    rng = np.random.default_rng(7)
    objective, below = RidgeObjective(LOSSES[family], 0.05, 2, 40), 0
    for _ in range(30):
        rows = [(float(x), float(y)) for x, y in zip(rng.uniform(-1, 1, 40), rng.choice([-1.0, 1.0], 40), strict=True)]
        for weights in (objective.minimise(blocks(rows)), rng.normal(size=2)):
            at = objective.gradient(weights, blocks(rows))
            exact = exact_gradient_norm(family, 0.05, weights, rows)
            assert exact <= Decimal(at.bound)
            below += Decimal(float(np.linalg.norm(at.vector))) < exact
    assert below > 0


@pytest.mark.parametrize("family", LOSSES)
def test_a_search_that_newton_steps_do_not_end(family):
    """Outliers on both sides, for which whole Newton steps of either loss go to and fro."""
    rows = [(1.0, 1.0), (1.0, -1.0), (0.9, 1.0)] * 3 + [(-1.0, 1.0)] * 4
    objective = RidgeObjective(LOSSES[family], 1e-6, 2, len(rows))
    assert objective.gradient(objective.minimise(blocks(rows)), blocks(rows)).bound <= objective.tolerance


def hockey_stick(sigma2, move, epsilon):
    """Σ (P(y) − e^ε·P(y − move))₊ of discrete Gaussian noise in two dimensions."""
    reach = math.ceil(9 * math.sqrt(sigma2)) + max(map(abs, move))
    y = np.arange(-reach, reach + 1.0)
    here = np.exp(-(y**2) / (2 * sigma2))
    laws = [np.exp(-((y - m) ** 2) / (2 * sigma2)) / here.sum() for m in move]
    return np.maximum(np.outer(here, here) / here.sum() ** 2 - math.exp(epsilon) * np.outer(*laws), 0.0).sum()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (1.0, 1e-5)])
def test_delta_of_the_noise_by_enumeration(epsilon, delta):
    """Of moves along an axis and askew, as long as the span allows; the last one is 1.3 times too long."""
    objective = RidgeObjective(LOSSES["binomial"], 0.5, 2, 50, grid_cells=32.0)
    noise = ridge_noise(objective, Portion(Budget(epsilon, delta)))
    span = objective.span
    for move in (
        (span, 0),
        (math.floor(0.6 * span), math.floor(0.8 * span)),
        *[(math.floor(span / math.sqrt(2)),) * 2],
    ):
        assert hockey_stick(noise.sigma2, move, epsilon) <= delta
    assert hockey_stick(noise.sigma2, (span, 0), epsilon) > 0.5 * delta
    assert hockey_stick(noise.sigma2, (math.ceil(1.3 * span), 0), epsilon) > delta


def test_the_least_tolerance_counts_where_rows_are_many():
    """Of 10¹² rows rounding errors exceed the share, and the sensitivity grows by what the search can reach."""
    objective = RidgeObjective(LOSSES["binomial"], 0.01, 3, 10**12)
    assert objective.tolerance == objective.least_tolerance
    assert objective.sensitivity > 1.5 * objective.minimiser_sensitivity


def test_persons_of_several_rows():
    one, four = (RidgeObjective(LOSSES["gaussian"], 0.1, 3, 100, k) for k in (1, 4))
    assert Fraction(four.sensitivity) == pytest.approx(4 * one.sensitivity, rel=1e-6)


@pytest.mark.parametrize(
    ("budget", "message"),
    [(Budget(1.0), "regress needs delta above 0"), (Budget(1e-9, 1e-30), "the share is too small for a regression")],
)
def test_refused_portions(budget, message):
    with pytest.raises(ParameterError, match=message):
        ridge_noise(RidgeObjective(LOSSES["gaussian"], 0.1, 3, 100), Portion(budget))
