"""Releases of one table in one process add up, and are warned of where no ledger counts them."""

import warnings

import pandas as pd
import polars as pl
import pytest

import dpframe as dpf
from dpframe.errors import RepeatedReleaseWarning

SPACES = {"age": (0, 99), "sex": ["F", "M"]}

pytestmark = pytest.mark.filterwarnings("always::dpframe.errors.RepeatedReleaseWarning")


def _frame(rows=300, first=0):
    return pd.DataFrame({"age": [(first + i) % 100 for i in range(rows)], "sex": ["F", "M"] * (rows // 2)})


def _warned(release, times):
    with warnings.catch_warnings(record=True) as caught:
        for _ in range(times):
            release()
    return [str(one.message) for one in caught if one.category is RepeatedReleaseWarning]


@pytest.mark.parametrize("kind", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_the_second_and_the_fourth_release_of_a_table_are_warned_of(kind):
    frame = kind(_frame(first=1 if kind is pl.from_pandas else 0))
    said = _warned(lambda: dpf.sanitize(frame, epsilon=0.5, delta=0, spaces=SPACES), 5)
    assert len(said) == 2
    assert "released 2 times in this process, which adds up to epsilon=1; keep one release" in said[0]
    assert "released 4 times in this process, which adds up to epsilon=2;" in said[1]


def test_a_release_that_doubles_the_epsilon_is_warned_of():
    frame, budgets = _frame(first=9), iter([0.5, 0.5, 2.0, 0.5, 0.5])
    said = _warned(lambda: dpf.sanitize(frame, epsilon=next(budgets), delta=0, spaces=SPACES), 5)
    assert [text[:60] for text in said] == [
        "this table was released 2 times in this process, which adds ",
        "this table was released 3 times in this process, which adds ",
    ]
    assert "epsilon=3;" in said[1]


def test_a_ready_plan_is_counted_too():
    frame = _frame(first=2)
    plan = dpf.plan(frame, epsilon=1, delta=0, spaces=SPACES)
    assert len(_warned(lambda: dpf.sanitize(frame, plan=plan), 2)) == 1


def test_a_curators_check_is_no_release():
    frame = _frame(first=8)
    plan = dpf.plan(frame, epsilon=1, delta=0, spaces=SPACES)
    assert not _warned(lambda: frame.dp.check(plan), 2)
    assert not _warned(lambda: dpf.sanitize(frame, plan=plan), 1)


def test_other_tables_ledgers_and_keys_are_not_warned_of(tmp_path):
    some = [_frame(first=i) for i in range(3, 6)]
    assert not [w for frame in some for w in _warned(lambda f=frame: dpf.sanitize(f, epsilon=1, spaces=SPACES), 1)]
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("people", epsilon=9, delta=1e-3)
    options = {"epsilon": 1, "spaces": SPACES}
    assert not _warned(lambda: dpf.sanitize(some[0], ledger=ledger, dataset="people", **options), 3)
    # A key is the caller's own count: one key is one release.
    assert not _warned(lambda: dpf.sanitize(some[1], key=bytes(32), **options), 3)


def test_rows_beyond_the_first_ones_do_not_make_two_tables_of_one_length_alike_by_chance():
    assert not _warned(lambda: dpf.sanitize(_frame(302, 7), epsilon=1, spaces=SPACES), 1)
    assert not _warned(lambda: dpf.sanitize(_frame(304, 7), epsilon=1, spaces=SPACES), 1)
