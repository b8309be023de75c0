"""Exact sampling beside NumPy's own generators, as ratios of times taken in one run, the key stream included.

    pytest -n 0 tests/benchmarks --benchmark-only

Nothing here asserts a time: ``extra_info["ratio"]`` of each benchmark is ours over NumPy's, best of many.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpframe.channels import Geometric, Mechanism, Optimal, RandomizedResponse, WithNull
from dpframe.noise.keystream import Keystream
from dpframe.spaces import Ordinal

ROWS = 1_000_000
ROUNDS = 15


def best_seconds(work: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def compare(benchmark: Any, mechanism: Mechanism, plain: Callable[[np.ndarray], Any]) -> None:
    codes = np.random.default_rng(0).integers(0, mechanism.size, ROWS, dtype=np.int32)
    stream = Keystream(bytes(32)).column("a")
    plain(codes)
    beside = best_seconds(lambda: plain(codes))
    result = benchmark.pedantic(mechanism.sample, (codes, stream), rounds=ROUNDS, warmup_rounds=1)
    assert result.shape == codes.shape
    if benchmark.stats is not None:
        benchmark.extra_info["ratio"] = round(benchmark.stats.stats.min / beside, 3)
        benchmark.extra_info["ns_per_value"] = round(benchmark.stats.stats.min / ROWS * 1e9, 2)
        benchmark.extra_info["numpy_ns_per_value"] = round(beside / ROWS * 1e9, 2)


def test_geometric_beside_laplace(benchmark: Any) -> None:
    """Reach: at most 0.65 of `Generator.laplace`, which draws floats and neither adds nor clips."""
    generator = np.random.default_rng(1)
    compare(benchmark, Geometric(65_536, 1.0), lambda codes: generator.laplace(size=len(codes)))


def test_small_geometric_beside_laplace(benchmark: Any) -> None:
    generator = np.random.default_rng(1)
    compare(benchmark, Geometric(120, 1.0), lambda codes: generator.laplace(size=len(codes)))


@pytest.mark.parametrize("size", [2, 16, 1001])
def test_response_beside_plain_numpy(benchmark: Any, size: int) -> None:
    """Reach: at most 0.3 of random + integers + where, with 16 categories."""
    generator = np.random.default_rng(1)
    mechanism = RandomizedResponse(size, 1.0)
    change = size * mechanism.other

    def plain(codes: np.ndarray) -> np.ndarray:
        changed = generator.random(len(codes)) < change
        return np.where(changed, generator.integers(0, size, len(codes)), codes)

    compare(benchmark, mechanism, plain)


def test_wide_response_beside_plain_numpy(benchmark: Any) -> None:
    test_response_beside_plain_numpy(benchmark, 60_000)


def test_nullable_beside_laplace_and_flag(benchmark: Any) -> None:
    generator = np.random.default_rng(1)
    mechanism = WithNull(Geometric, (65_536,), 1.0)
    change = mechanism.flag.threshold / (1 << mechanism.flag.bits)

    def plain(codes: np.ndarray) -> np.ndarray:
        absent = (codes == mechanism.null) ^ (generator.random(len(codes)) < change)
        return np.where(absent, np.nan, codes + generator.laplace(size=len(codes)))

    compare(benchmark, mechanism, plain)


@pytest.mark.parametrize("size", [4, 16, 40])
def test_channel_beside_cumulative_search(benchmark: Any, size: int) -> None:
    """Any finite channel, beside choosing by a search in each row's cumulative law (values of one input at a time)."""
    generator = np.random.default_rng(1)
    mechanism = Optimal.calibrate(Ordinal(list(range(size))), 1.0, 0.0)
    cumulative = np.cumsum(mechanism.transition(), axis=0).T

    def plain(codes: np.ndarray) -> np.ndarray:
        uniform, out = generator.random(len(codes)), np.empty_like(codes)
        for x in range(size):
            rows = np.flatnonzero(codes == x)
            out[rows] = np.searchsorted(cumulative[x], uniform[rows])
        return out

    compare(benchmark, mechanism, plain)
