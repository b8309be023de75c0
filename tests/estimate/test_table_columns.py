"""One column of a fit: its cells, and what is asked of them."""

import numpy as np
import pytest

import dpframe as dpf
from dpframe.estimate.axes import BinnedAxis, ListedAxis
from dpframe.estimate.table_column import BinMeans, TableColumn, same_cells
from dpframe.plan.build import build_plan

PLAN = build_plan({"kind": list("abcde"), "age": (0, 99)}, epsilon=2)

AGAIN = np.array([[2.0, 60.0, 0.0], [2.0, 40.0, 0.0]])
"""Means of three bins by two replicas: they know the first, and null's."""


@pytest.fixture
def number():
    axis = BinnedAxis(PLAN["age"], tuple(range(0, 101, 10)), (), pooled=True)
    shares = np.arange(1.0, 11.0) / 55
    return TableColumn(axis, np.arange(10) // 3, shares)


def test_cells_that_are_those_asked_for_stay_as_they_are():
    """What is shown of a column of listed values is the joint itself, as the matrices of its cells would make it."""
    axis = ListedAxis(PLAN["kind"])
    column = TableColumn(axis, np.arange(5), np.full(5, 0.2))
    joint, variances = np.random.default_rng(0).dirichlet(np.ones(10)).reshape(2, 5), np.full((2, 5), 1e-4)
    assert column.has_cells_of(axis)
    kept = column.presented(axis, joint, variances, 1)
    assert kept[0] is joint
    onto = column.onto(axis)
    assert kept[0] == pytest.approx(joint @ onto.T)
    assert kept[1] == pytest.approx(variances @ (onto**2).T)


def test_other_cells_are_not_taken_for_those_of_the_fit(number):
    assert not number.has_cells_of(number.axis), "it is cut"
    ten, five = (BinnedAxis(PLAN["age"], tuple(range(0, 101, step)), (), pooled=True) for step in (10, 20))
    assert same_cells(number.axis, ten)
    assert not same_cells(ten, five)
    nullable = build_plan({"age": dpf.Nullable(dpf.Integer(0, 99))}, epsilon=2)["age"]
    assert not same_cells(ten, BinnedAxis(nullable, tuple(range(0, 101, 10)), (), pooled=True))


def test_what_is_asked_of_fine_cells_is_gathered_by_their_shares(number):
    part = np.random.default_rng(1).random(10)
    assert number.gathered(part) == pytest.approx(number.spread.T @ part)
    assert number.spread.sum(axis=0) == pytest.approx(1)


def test_means_within_bins_are_in_doubt_by_what_a_group_has_otherwise_than_all_rows():
    bins = BinMeans(np.array([2.0, 50.0, 0.0]), np.array([4.0, 900.0, 0.0]), np.array([1.0, 1.0, 0.0]), AGAIN)
    all_rows, far = np.array([0.9, 0.1, 0.0]), np.array([0.0, 1.0, 0.0])
    laws, held = np.stack([all_rows, far, all_rows]), np.array([0.5, 0.1, 1.0])
    alike, other, everybody = bins.left_open(laws, all_rows, held, 1_000.0)
    # All rows have the mean that was measured, however wrong the bins' means are.
    assert everybody == 0
    # Means of bins that are wrong in replicas, by 0 and by 10 or -10, cancel where groups are spread as all rows are.
    drawn = all_rows @ bins.spreads / 500
    assert alike == pytest.approx(0.5 * (0.5 * (3.24 + 9) / 4 + drawn))
    assert other == pytest.approx(0.9 * (0.9 * 900 / 4 + 900 / 100) + 2 * 0.9**2 * 100)
