"""Counting a joint of 90,720 cells from 5·10⁶ rows (ns a row), and inverting it (ms)."""

import numpy as np
import pytest

import dpframe as dpf
from dpframe.estimate.axes import make_axis
from dpframe.estimate.joint_domain import JointDomain
from dpframe.estimate.surrogates import count_classes
from dpframe.plan.build import build_plan

SIZES = (16, 15, 9, 6, 7)
ROWS = 5_000_000


@pytest.fixture(scope="module")
def axes():
    spaces = {f"c{i}": dpf.Categorical([str(v) for v in range(size)]) for i, size in enumerate(SIZES)}
    return [make_axis(column, None) for column in build_plan(spaces, epsilon=5).columns]


def test_counting(benchmark, axes):
    rng = np.random.default_rng(0)
    codes = {axis.name: rng.integers(0, axis.classes, ROWS).astype(np.uint8) for axis in axes}
    counts = benchmark(count_classes, axes, [codes])
    benchmark.extra_info["ns_per_row"] = benchmark.stats.stats.median / ROWS * 1e9
    assert counts.shape == SIZES
    assert counts.sum() == ROWS


@pytest.mark.parametrize("what", ["cell", "cell²"])
def test_inversion(benchmark, axes, what):
    counts = np.random.default_rng(0).poisson(50, SIZES).astype(float)
    assert counts.size == 90_720
    benchmark(JointDomain(tuple(axes)).sums, counts, what)
    benchmark.extra_info["ms"] = benchmark.stats.stats.median * 1e3
