"""The sampling paper's error bound beside the measured ℓ₂ error of a joint type, over the sample size m.

m of n rows are drawn in secret and released by one γ-diagonal channel on the k cells of the joint, with
γ = 1 + (n/m)(e^ε − 1) (eq. 2), so that every m costs the same ε. The bound (Thm III.4), in the form whose
minimum is the paper's m* = n(e^ε − 1)(√k + 1)/k^1.5, is (1 + √k·(γ + k − 1)/(γ − 1))/√m.
"""

import math

import numpy as np
import pytest
from examples import channel, plan_of
from readings import released_codes

EPSILON, COLUMNS = 0.5, ["race", "sex"]


def bound(m, n, k, epsilon):
    gamma = 1 + n / m * (math.exp(epsilon) - 1)
    return (1 + math.sqrt(k) * (gamma + k - 1) / (gamma - 1)) / math.sqrt(m)


def measured(codes, m, n, k, repeats=20):
    mechanism = channel("randomized_response", k, math.log(1 + n / m * (math.exp(EPSILON) - 1)))
    plan = plan_of({"joint": list(range(k))}, mechanism.epsilon, mechanisms={"joint": mechanism})
    truth, errors = np.bincount(codes, minlength=k) / n, []
    for i in range(repeats):
        chosen = np.random.default_rng(i).permutation(n)[:m]
        out = released_codes({"joint": codes[chosen]}, plan, i.to_bytes(32, "big"))["joint"]
        shares = mechanism.invert(np.bincount(out, minlength=k).astype(float)) / m
        errors.append(np.linalg.norm(shares - truth))
    return float(np.mean(errors))


@pytest.fixture(scope="module")
def joint(adult):
    values = adult[COLUMNS].agg(" ".join, axis=1)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


@pytest.mark.slow
def test_bound_holds_and_its_minimum_is_the_closed_form(joint):
    n, k = len(joint), int(joint.max()) + 1
    best = n * (math.exp(EPSILON) - 1) * (math.sqrt(k) + 1) / k**1.5
    sizes = [n // 64, n // 8, n]
    table = {m: (measured(joint, m, n, k), bound(m, n, k, EPSILON)) for m in sizes}
    for m, (error, limit) in table.items():
        print(f"m={m:6d}  measured {error:.4f}  bound {limit:.4f}")
        assert error <= limit
    grid = np.arange(1_000, 10 * n, 50)
    assert grid[np.argmin([bound(m, n, k, EPSILON) for m in grid])] == pytest.approx(best, abs=50)
