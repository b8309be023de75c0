"""One value of ours beside one of diffprivlib, OpenDP and multi-freq-ldpy, where they are installed.

    pytest -n 0 tests/benchmarks/test_peer_speed.py --benchmark-only

They randomise value by value; the ratio is their seconds a value over ours. Reach: at least 400.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpframe.channels import Geometric, Mechanism, RandomizedResponse
from dpframe.noise.keystream import Keystream

ROWS, FEW = 1_000_000, 2_000


def compare(benchmark: Any, mechanism: Mechanism, theirs: Callable[[int], Any]) -> None:
    codes = np.random.default_rng(0).integers(0, mechanism.size, ROWS, dtype=np.int32)
    values = codes[:FEW].tolist()
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for value in values:
            theirs(value)
        best = min(best, (time.perf_counter() - start) / FEW)
    benchmark.pedantic(mechanism.sample, (codes, Keystream(bytes(32)).column("a")), rounds=5, warmup_rounds=1)
    if benchmark.stats is not None:
        own = benchmark.stats.stats.min / ROWS
        benchmark.extra_info |= {"times_faster": round(best / own), "their_ns": round(best * 1e9)}


def test_laplace_of_diffprivlib(benchmark: Any) -> None:
    peer = pytest.importorskip("diffprivlib.mechanisms", exc_type=ImportError).Laplace(epsilon=1.0, sensitivity=1.0)
    compare(benchmark, Geometric(120, 1.0), lambda value: peer.randomise(float(value)))


def test_geometric_of_diffprivlib(benchmark: Any) -> None:
    peer = pytest.importorskip("diffprivlib.mechanisms", exc_type=ImportError).GeometricTruncated(
        epsilon=1.0, sensitivity=1, lower=0, upper=120
    )
    compare(benchmark, Geometric(120, 1.0), peer.randomise)


def test_laplace_of_opendp(benchmark: Any) -> None:
    peer = pytest.importorskip("opendp.prelude", exc_type=ImportError)
    peer.enable_features("contrib")
    laplace = peer.m.make_laplace(peer.atom_domain(T=int), peer.absolute_distance(T=int), scale=1.0)
    compare(benchmark, Geometric(120, 1.0), laplace)


def test_response_of_opendp(benchmark: Any) -> None:
    peer = pytest.importorskip("opendp.prelude", exc_type=ImportError)
    peer.enable_features("contrib")
    response = peer.m.make_randomized_response(categories=list(range(16)), prob=0.5)
    compare(benchmark, RandomizedResponse(16, 1.0), response)


def test_response_of_multi_freq_ldpy(benchmark: Any) -> None:
    peer = pytest.importorskip("multi_freq_ldpy.pure_frequency_oracles.GRR", exc_type=ImportError)
    compare(benchmark, RandomizedResponse(16, 1.0), lambda value: peer.GRR_Client(value, 16, 1.0))
