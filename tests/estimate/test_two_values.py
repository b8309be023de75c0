"""The standard deviation of a column of two values: as uncertain as the share of either of them."""

import math

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf

N = 1_200
SHARES = [0.0, 0.02, 0.3, 0.5, 0.97]


@pytest.fixture(scope="module")
def frame():
    generator = np.random.default_rng(0)
    columns = {f"x{i}": np.where(generator.random(N) < share, 5.0, 1.0) for i, share in enumerate(SHARES)}
    return pd.DataFrame(columns)


@pytest.mark.slow
@pytest.mark.parametrize("key", range(3))
def test_its_interval_is_that_of_the_share(frame, key):
    spaces = dict.fromkeys(frame, dpf.Real(1.0, 5.0, steps=1))
    estimates = dpf.Estimates(dpf.sanitize(frame, epsilon=0.3, spaces=spaces, key=bytes([key]) * 32))
    for name in frame:
        mean, std = estimates.mean(name), estimates.std(name)
        low, high = (min(max((end - 1) / 4, 0.0), 1.0) for end in (mean["lower"], mean["upper"]))
        roots = [4 * math.sqrt(share * (1 - share) * N / (N - 1)) for share in (low, high, min(max(0.5, low), high))]
        assert std["lower"] <= min(roots) + 1e-9
        assert std["upper"] >= max(roots) - 1e-9
        # As far as either end is away, and not only half of what lies between them.
        arms = std["estimate"] - std["lower"], std["upper"] - std["estimate"]
        assert std["std_error"] * 1.96 > math.hypot(*arms) / math.sqrt(2) * 0.999
