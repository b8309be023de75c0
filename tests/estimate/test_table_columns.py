"""One column of a fit: its cells, and what is asked of them."""

import numpy as np
import pytest

import dpframe as dpf
from dpframe.estimate.axes import BinnedAxis, ListedAxis
from dpframe.estimate.table_column import TableColumn
from dpframe.plan.build import build_plan

PLAN = build_plan({"kind": list("abcde"), "age": (0, 99)}, epsilon=2)


@pytest.fixture
def number():
    axis = BinnedAxis(PLAN["age"], tuple(range(0, 101, 10)), (), pooled=True)
    shares = np.arange(1.0, 11.0) / 55
    return TableColumn(axis, np.arange(10) // 3, shares)


def test_cells_that_are_those_asked_for_stay_as_they_are():
    """What is shown of a column of listed values is the joint itself, as the matrices of its cells would make it."""
    axis = ListedAxis(PLAN["kind"])
    column = TableColumn(axis, np.arange(5), np.full(5, 0.2))
    joint = np.random.default_rng(0).dirichlet(np.ones(10)).reshape(2, 5)
    assert column.has_cells_of(axis)
    kept = column.presented(axis, joint, 1)
    assert kept is joint
    assert kept == pytest.approx(joint @ column.onto(axis).T)


def test_other_cells_are_not_taken_for_those_of_the_fit(number):
    assert not number.has_cells_of(number.axis), "it is cut"
    ten, five = (BinnedAxis(PLAN["age"], tuple(range(0, 101, step)), (), pooled=True) for step in (10, 20))
    assert number.axis.has_cells_of(ten)
    assert not ten.has_cells_of(five)
    nullable = build_plan({"age": dpf.Nullable(dpf.Integer(0, 99))}, epsilon=2)["age"]
    assert not ten.has_cells_of(BinnedAxis(nullable, tuple(range(0, 101, 10)), (), pooled=True))


def test_what_is_asked_of_fine_cells_is_gathered_by_their_shares(number):
    part = np.random.default_rng(1).random(10)
    assert number.gathered(part) == pytest.approx(number.spread.T @ part)
    assert number.spread.sum(axis=0) == pytest.approx(1)
