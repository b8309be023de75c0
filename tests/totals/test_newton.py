"""Noisy sums of Newton steps: how far a row moves them, by enumeration, and what all of them cost."""

import itertools
import math

import numpy as np
import pytest

from dpframe.accounting.budget import Budget
from dpframe.accounting.discrete_gaussian import noise_step
from dpframe.accounting.gaussian_dp import composed_steps, promise_step
from dpframe.errors import ParameterError
from dpframe.totals.answers import Portion
from dpframe.totals.newton import NEWTON_ROUNDS, ROW_GRID_CELLS, gradient_sum, gram_sum, newton_noise, row_span
from dpframe.totals.ridge import FEATURE_SCALE, LOSSES

ROWS = [(x, y) for x in (-1.0, -0.6, 0.25, 1.0) for y in (-1.0, 1.0)]


def blocks(*rows):
    features = np.array([[1.0, x] for x, _ in rows]) * FEATURE_SCALE / math.sqrt(2)
    return lambda: [(features, np.array([y for _, y in rows]))]


def largest_move(total):
    """The largest distance of sums over two tables that differ in one of two rows."""
    return max(
        float(np.linalg.norm(total(blocks(row, other)) - total(blocks(row, third))))
        for row, other, third in itertools.product(ROWS, repeat=3)
    )


@pytest.mark.parametrize("family", LOSSES)
@pytest.mark.parametrize("weights", [(0.0, 0.0), (3.0, -2.0), (-40.0, 60.0)])
def test_no_row_moves_a_gradient_beyond_its_span(family, weights):
    move = largest_move(lambda rows: gradient_sum(LOSSES[family], rows, np.array(weights)))
    assert move <= row_span(2.0, 2, 1)
    if family == "gaussian" and weights == (0.0, 0.0):  # slopes of ±1: the span is too short without rounding's part
        assert move > 2 * ROW_GRID_CELLS


def test_no_row_moves_the_products_beyond_their_span():
    move = largest_move(lambda rows: gram_sum(rows, 2))
    assert 0.9 * math.sqrt(2) * ROW_GRID_CELLS < move <= row_span(math.sqrt(2), 3, 1)


def test_persons_of_several_rows():
    assert row_span(2.0, 5, 4) == pytest.approx(4 * row_span(2.0, 5, 1), abs=4)


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-6), Budget(4.0, 1e-4)])
def test_all_sums_cost_the_portion(budget):
    step = promise_step(budget)
    for portion in (Portion(budget), Portion(budget, step)):
        noise = newton_noise(4, 2, portion)
        part = step.delta / (1 + NEWTON_ROUNDS) / 2
        steps = [noise_step([noise.gram], 1, part), *[noise_step([noise.gradient], 1, part)] * NEWTON_ROUNDS]
        assert 0.98 * step.mu < composed_steps(steps).mu <= step.mu * (1 + 1e-4)
    assert noise.gradient.span == row_span(2.0, 4, 2)


def test_a_portion_without_delta():
    with pytest.raises(ParameterError, match="regress needs delta above 0"):
        newton_noise(3, 1, Portion(Budget(1.0)))
