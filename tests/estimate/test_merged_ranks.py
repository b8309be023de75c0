"""Ranks that private inference did not find are released as their neighbours; estimates of ranks say what is theirs."""

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.estimate.column_evidence import of_ranks_alone
from dpframe.estimate.results import Results
from dpframe.plan.inferred import Measured

GRADES = ["none", "low", "middle", "high", "top"]
COUNTS = [90, 900, 2_000, 1_500, 110]


def frame() -> pd.DataFrame:
    values = np.repeat(GRADES, COUNTS)
    return pd.DataFrame({"grade": pd.Categorical(values, GRADES, ordered=True), "x": np.arange(len(values)) % 7})


@pytest.mark.slow
@pytest.mark.parametrize("target", ["table", "population"])
def test_intervals_hold_of_ranks_whose_neighbours_were_merged_into_them(target):
    # 30 releases of fixed keys; at 95 % fewer than 84 % of some 90 intervals cover with probability below 1e-4.
    data, right, merged = frame(), [], 0
    truth = data["grade"].value_counts(normalize=True)
    for key in range(30):
        safe = dpf.sanitize(data, epsilon=0.5, key=key.to_bytes(32))
        shares = safe.dp.value_counts("grade", normalize=True, sort=False, target=target).dropna()
        merged += 0 < len(shares) < len(GRADES)
        right += [row["lower"] <= truth[rank] <= row["upper"] for rank, row in shares.iterrows()]
    assert merged > 15
    assert np.mean(right) > 0.84


def test_all_ranks_found_keep_their_estimates():
    found = Results(*np.transpose([[400.0, 3, 394, 406], [600, 3, 594, 606]]))
    measured = Measured("x", "ranks", ("a", "b"), (380, 615), 400.0)
    out = of_ranks_alone(found, ["a", "b"], measured, 1_000, False, False, 0.95)
    assert out.estimate.tolist() == [400, 600]
    # What may have been merged is no better known than the counts are.
    assert (out.upper <= found.upper + 1).all()
    assert (out.lower < found.lower - 10).all()


def test_counts_that_contradict_the_rows_are_the_ranks_own():
    found = Results(*np.transpose([[100.0, 1, 98, 102], [900, 1, 898, 902]]))
    out = of_ranks_alone(
        found, ["a", "b"], Measured("x", "ranks", ("a", "b"), (300, 700), 4.0), 1_000, False, False, 0.95
    )
    assert out.estimate[0] == pytest.approx(300)


def test_shares_are_of_the_rows_that_are_not_null():
    found = Results(*np.transpose([[0.5, 0.1, 0.3, 0.7], [0.5, 0.1, 0.3, 0.7]]))
    out = of_ranks_alone(
        found, ["a", "b"], Measured("x", "ranks", ("a", "b"), (160, 640), 16.0, 200), 1_000, True, False, 0.95
    )
    assert (np.abs(out.estimate - [0.2, 0.8]) < 0.02).all()


def test_without_measured_counts_nothing_is_moved():
    data = frame()
    safe = dpf.sanitize(data, epsilon=2.0, key=bytes(32))
    with_them, without = dpf.Estimates(safe), dpf.Estimates(safe, use_measured=False)
    assert with_them.value_counts("grade").attrs["measured"]
    assert not without.value_counts("grade").attrs["measured"]


def test_intervals_that_hardly_meet_know_no_more_than_the_better_count():
    found = Results(*np.transpose([[400.0, 30, 341, 459], [600, 30, 541, 659]]))
    # The count of inference lies three of its errors from that of rows and tables.
    out = of_ranks_alone(
        found, ["a", "b"], Measured("x", "ranks", ("a", "b"), (520, 480), 900.0), 1_000, False, False, 0.95
    )
    assert (out.std_error >= 0.99 * 30).all()


@pytest.mark.parametrize("dropna", [True, False])
def test_shares_are_parts_of_the_rows(dropna: bool) -> None:
    """Shares of all rows, nulls among them, were counts."""
    safe = dpf.sanitize(frame(), epsilon=2.0, key=bytes(32))
    counts = safe.dp.value_counts("grade", sort=False, dropna=dropna)
    shares = safe.dp.value_counts("grade", sort=False, dropna=dropna, normalize=True)
    assert shares.attrs["measured"]
    pd.testing.assert_frame_equal(shares, counts / len(safe), check_like=True, atol=3e-3)
