"""Rows that a declared bound clips are warned of, and natural heaps are not."""

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.errors import InferenceWarning

KEY = bytes(32)


def _table(n=2_400):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "cost": rng.gamma(2.0, 1_000.0, n),
            "age": rng.integers(18, 98, n),
            "gains": np.where(rng.random(n) < 0.9, 0, rng.integers(0, 5_000, n)),
            "percent": np.where(rng.random(n) < 0.3, 100, rng.integers(0, 100, n)),
            "rating": rng.choice(np.arange(1, 6), n, p=[0.1, 0.1, 0.1, 0.1, 0.6]),
            "region": rng.choice(["north", "south"], n),
        }
    )
    wide = {"cost": (0, 30_000.0), "age": (18, 100), "gains": (0, 5_000), "percent": (0, 100), "rating": (1, 5)}
    return frame, wide | {"region": ["north", "south"]}


def _statistics(estimates):
    yield lambda: estimates.mean("cost")
    yield lambda: estimates.mean("cost", by="region")
    yield lambda: estimates.sum("cost")
    yield lambda: estimates.std("cost")
    yield lambda: estimates.corr(["cost", "age"])


@pytest.mark.slow
def test_a_bound_that_clips_many_rows_is_named_with_its_share_and_the_remedy():
    # 41 % of the rows are above 2,000: at epsilon=2 the count's noise is some 20 of 2,400 rows, the limit 2 %.
    frame, wide = _table()
    safe = dpf.sanitize(frame, epsilon=2, spaces=wide | {"cost": (0, 2_000.0)}, key=KEY)
    for ask in _statistics(dpf.Estimates(safe)):
        with pytest.warns(InferenceWarning, match=r"cost  about 4\d % of the rows.*upper bound, 2000.*raise"):
            ask()


def test_a_lower_bound_is_named_too():
    frame, wide = _table()
    safe = dpf.sanitize(frame, epsilon=2, spaces=wide | {"age": (40, 100)}, key=KEY)
    with pytest.warns(InferenceWarning, match=r"age  about.*lower bound, 40 +lower the bound"):
        safe.dp.mean("age")


@pytest.mark.slow
def test_zeros_ratings_percentages_and_sensible_bounds_are_not_warned_of():
    frame, wide = _table()
    for key in range(4):
        estimates = dpf.Estimates(dpf.sanitize(frame, epsilon=2, spaces=wide, key=bytes([key]) * 32))
        for name in ("cost", "age", "gains", "percent", "rating"):
            estimates.mean(name)  # warnings are errors in tests


@pytest.mark.slow
def test_bounds_that_inference_chose_are_not_warned_of():
    frame, wide = _table()
    frame["cost"] = frame["cost"].clip(upper=2_000.0)
    del wide["cost"]
    estimates = dpf.Estimates(dpf.sanitize(frame, epsilon=4, spaces=wide, key=KEY))
    estimates.mean("cost")  # warnings are errors in tests
