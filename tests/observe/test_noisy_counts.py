"""Noisy counts of cells: their sums, merged cells, halves and replicates."""

import numpy as np
import pytest

from dpframe.estimate.axes import BinnedAxis, ListedAxis
from dpframe.observe.noisy_counts import NoisyCounts
from dpframe.plan.build import build_plan

PLAN = build_plan({"kind": list("ab"), "age": (0, 99)}, epsilon=2)


def test_a_sum_of_a_table_has_its_variances_sum():
    table = NoisyCounts((2, 0), np.arange(6.0).reshape(2, 3), np.array([[1.0, 4.0, 9.0], [16.0, 25.0, 36.0]]))
    summed = table.sum_to([0])
    assert summed.counts.tolist() == [3, 5, 7]
    assert summed.variances == pytest.approx([17, 29, 45])
    assert table.sum_to([0, 2]).counts.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_halves_of_a_coupled_draw_are_independent():
    """Variances 1 + a and 1 + 1/a, covariance 0, each within six standard errors of 40,000 cells."""
    noise = np.random.default_rng(1).standard_normal(40_000)
    one, other = NoisyCounts((0,), noise, 1.0).split(0.25, np.random.default_rng(0))
    assert np.var(one.counts) == pytest.approx(1.25, abs=0.06)
    assert np.var(other.counts) == pytest.approx(5.0, abs=0.22)
    assert np.mean(one.counts * other.counts) == pytest.approx(0, abs=0.08)
    assert one.variances[0] == pytest.approx(1.25)
    assert other.variances[0] == pytest.approx(5.0)


def test_the_counts_of_one_column_are_a_tables_sums() -> None:
    """One variance is multiplied by the summed cells, and variances by cell are summed."""
    counts = np.arange(24.0).reshape(2, 3, 4)
    for variance in (4.0, 1 + counts):
        table = NoisyCounts((5, 1, 3), counts, variance)
        for place, column in enumerate((5, 1, 3)):
            found = table.sum_to([column])
            others = tuple(i for i in range(3) if i != place)
            assert found.counts == pytest.approx(counts.sum(axis=others))
            assert found.variances == pytest.approx(table.variances.sum(axis=others))


def ages(*edges):
    return BinnedAxis(PLAN["age"], edges, (), pooled=True)


def test_cells_are_merged_by_unions_of_whole_cells_and_keep_their_axes():
    counts = NoisyCounts(
        ("age", "kind"), np.arange(8.0).reshape(4, 2), 9.0, (ages(0, 10, 20, 50, 100), ListedAxis(PLAN["kind"]))
    )
    merged = counts.merge_cells([ages(0, 20, 100), counts.axes[1]])
    assert merged is not None
    assert merged.counts.tolist() == [[2, 4], [10, 12]]
    assert merged.variances == pytest.approx(np.full((2, 2), 18.0))
    assert merged.axis("age").ends.tolist() == [0, 20, 100]
    assert counts.merge_cells([ages(0, 15, 100), counts.axes[1]]) is None
    assert counts.sum_to(["kind"]).axes == counts.axes[1:]


def test_one_column_is_an_observation_of_its_codes_and_of_other_cells():
    counts = NoisyCounts(("age",), np.array([4.0, 6.0]), np.array([1.0, 4.0]), (ages(0, 20, 100),))
    by_code, of_halves = counts.by_code, counts.to_observation(ages(0, 10, 30, 100))
    assert (by_code.runs.starts.tolist(), by_code.runs.stops.tolist()) == ([0, 20], [20, 100])
    assert of_halves.matrix.tolist() == [[1, 0.5, 0], [0, 0.5, 1]]
    assert of_halves.variances.tolist() == by_code.variances.tolist() == [1, 4]


def test_a_replicate_has_the_noise_once_more():
    """The variance of 40,000 draws, within six standard errors."""
    again = NoisyCounts((0,), np.full(40_000, 7.0), 4.0).replicate(np.random.default_rng(2))
    assert np.var(again.counts - 7) == pytest.approx(4, abs=0.17)
    assert again.variance == 4
