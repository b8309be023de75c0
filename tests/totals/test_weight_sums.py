"""Sums of weights by cell: exact counts, and the bound on what a replaced row moves, by brute force."""

import itertools

import numpy as np
import pytest

import dpframe as dpf
from dpframe.totals.weight_sums import WeightSteps, WeightSums


@pytest.mark.parametrize("space", [dpf.Integer(0, 1), dpf.Integer(1, 10), dpf.Integer(0, 37), dpf.Nullable((0, 6))])
def test_no_replaced_row_moves_the_sums_by_more_than_the_span(space):
    """All pairs of rows of a weight, null included, and a cell of three: the ℓ2 norm of the change, exactly."""
    rows = list(itertools.product(range(space.size), range(3)))
    vectors = []
    for code, cell in rows:
        sums = WeightSums(space, 3)
        sums.add(np.array([code]), np.array([cell]))
        vectors.append(sums.counts)
    vectors = np.array(vectors, dtype=object)
    squares = [int(((one - other) ** 2).sum()) for one, other in itertools.combinations(vectors, 2)]
    span = WeightSteps.of(space).span
    assert max(squares) <= span**2
    # The bound is tight: a tenth less would not hold.
    assert max(squares) > (0.9 * span) ** 2


def test_sums_are_exact_and_add_up_over_batches():
    space, generator = dpf.Real(0, 10), np.random.default_rng(0)
    codes, cells = generator.integers(0, space.size, 5_000), generator.integers(0, 7, 5_000)
    parts = [WeightSums(space, 9) for _ in range(2)]
    parts[0].add(codes[:2_000], cells[:2_000])
    parts[1].add(codes[2_000:], cells[2_000:])
    parts[1].add(codes[:0], cells[:0])
    parts[0].merge(parts[1])
    steps = WeightSteps.of(space)
    expected = [sum(steps.scale * (int(c) - steps.offset) for c in codes[cells == cell]) for cell in range(9)]
    assert parts[0].counts.tolist() == expected
