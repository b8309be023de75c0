"""Noise on numbers, in ns a coordinate beside NumPy's own normal and laplace; curves from Parquet to Parquet.

    pytest -n 0 tests/benchmarks/test_vector_speed.py --benchmark-only

Nothing here asserts a time: ``extra_info`` has the ratios, ours over NumPy's of one run, key streams included, and of
files rows per second, the ratio to pyarrow's own read and write, and the peak of memory of a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe import datasets
from dpframe.channels import MECHANISMS, mechanism_for
from dpframe.noise.gaussian import gaussian_table
from dpframe.noise.geometric_counts import geometric_noise
from dpframe.noise.keystream import Keystream
from dpframe.spaces import Curve, Integer, Nullable, Space, Vector
from dpframe.totals.wishart import WishartNoise

COORDINATES = 960_000
ROUNDS = 5
LENGTH = 24
KERNEL = {"name": "RBF", "length_scale": 1.5}

GRID: Space = Integer(0, 65_535)
VECTORS: dict[str, Space] = {
    "grid": GRID,
    "nullable grid": Nullable(GRID),
    "l1": Vector(LENGTH, 1.0, "l1"),
    "l2": Vector(LENGTH, 1.0, "l2"),
    "linf of bytes": Vector(LENGTH, 1.0, "linf", bits=8),
    "nullable": Nullable(Vector(LENGTH, 1.0)),
    "curve": Curve(range(LENGTH), 4.0, KERNEL, rank=16),
}


def best_seconds(work: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def beside_numpy(benchmark: Any, work: Callable[[], Any], count: int) -> None:
    generator = np.random.default_rng(1)
    beside = {
        "normal": best_seconds(lambda: generator.standard_normal(count)),
        "laplace": best_seconds(lambda: generator.laplace(size=count)),
    }
    benchmark.pedantic(work, rounds=ROUNDS, warmup_rounds=1)
    if benchmark.stats is None:
        return
    benchmark.extra_info["ns_per_coordinate"] = round(benchmark.stats.stats.min / count * 1e9, 2)
    for name, seconds in beside.items():
        benchmark.extra_info[f"numpy_{name}_ns"] = round(seconds / count * 1e9, 2)
        benchmark.extra_info[f"ratio_to_{name}"] = round(benchmark.stats.stats.min / seconds, 2)


def numeric() -> list[tuple[str, str]]:
    """Every tag of the registry on every space of numbers above that it is for."""
    fits = [(tag, name) for tag in sorted(MECHANISMS) for name, space in VECTORS.items() if _fits(tag, space)]
    return [(tag, name) for tag, name in fits if tag not in ("matrix", "optimal", "exponential")]


def _fits(tag: str, space: Space) -> bool:
    # Gaussian noise cannot be inverted on grids of so many values, and needs fine ones on vectors.
    if space.metric not in MECHANISMS[tag].metrics or tag in ("gaussian", "nullable_gaussian"):
        return False
    bits = space.inner_space.ball.bits if space.holds_vectors else 16
    return bits == 16 or not MECHANISMS[tag].takes_delta


@pytest.mark.parametrize(("tag", "name"), numeric())
def test_channels_of_numbers(benchmark: Any, tag: str, name: str) -> None:
    delta = 1e-6 if MECHANISMS[tag].takes_delta else 0.0
    space: Any = MECHANISMS[tag].space_for(VECTORS[name], 1.0, delta)
    mechanism, stream = mechanism_for(space, 1.0, delta, tag), Keystream(bytes(32)).column("a")
    rng = np.random.default_rng(0)
    if space.holds_vectors:
        length = space.inner_space.ball.length
        codes = space.encode(list(rng.normal(size=(COORDINATES // length, space.inner_space.width)) / 5))
    else:
        length, codes = 1, rng.integers(0, space.size, COORDINATES, dtype=np.int32)
    beside_numpy(benchmark, lambda: mechanism.sample(codes, stream), len(codes) * length)


CENTRAL: dict[str, Callable[[Any], Any]] = {
    "discrete Gaussian, sigma 20": lambda stream: gaussian_table(400.0).sample(stream, 0, COORDINATES),
    "discrete Gaussian, sigma 1e6": lambda stream: gaussian_table(1e12).sample(stream, 0, COORDINATES),
    "two-sided geometric": lambda stream: geometric_noise(10**6, 0.01).add(np.zeros(COORDINATES, np.int64), stream),
    "wishart, a normal of each row": lambda stream: WishartNoise(2, 1.0, COORDINATES // 2).sample(stream),
}


@pytest.mark.parametrize("kind", CENTRAL)
def test_noise_on_totals(benchmark: Any, kind: str) -> None:
    stream = Keystream(bytes(32)).column("a")
    beside_numpy(benchmark, lambda: CENTRAL[kind](stream), COORDINATES)


ROWS = 100_000
SPACES = {"vector": Vector(LENGTH, 7.0), "curve": VECTORS["curve"]}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("curves") / "in.parquet"
    curves = datasets.make_census(ROWS, columns=["load_curve"])["load_curve"]
    pq.write_table(pa.table({"load_curve": pa.array(curves.tolist())}), path)
    return path


PEAK = r"""
import re, sys
from pathlib import Path
import dpframe as dpf
plan = dpf.Plan.from_json(open(sys.argv[1]).read())
dpf.sanitize(sys.argv[2], sys.argv[3], plan=plan)
# Of this process alone: getrusage begins with the peak of the process that started it.
print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def peak_mib(plan: dpf.Plan, source: Any, folder: Any) -> int:
    """Return the peak of a process that does nothing else, imports included (about 140 MiB)."""
    (folder / "plan.json").write_text(plan.to_json())
    command = [sys.executable, "-c", PEAK, str(folder / "plan.json"), str(source), str(folder / "again.parquet")]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def rewritten(source: Any, output: Any, copy: Any) -> None:
    pq.read_table(source)
    pq.write_table(pq.read_table(output), copy)


@pytest.mark.parametrize("shuffle", [False, True], ids=["kept order", "shuffled"])
@pytest.mark.parametrize("kind", SPACES)
def test_curves_from_parquet_to_parquet(benchmark: Any, tmp_path: Any, source: Any, kind: str, shuffle: bool) -> None:
    plan = dpf.plan(source, 1.0, 1e-6, spaces={"load_curve": SPACES[kind]}, shuffle=shuffle)
    output = tmp_path / "out.parquet"
    info = benchmark.pedantic(dpf.sanitize, (source, output), {"plan": plan}, rounds=3, iterations=1, warmup_rounds=1)
    assert info.n == ROWS
    beside = best_seconds(lambda: rewritten(source, output, tmp_path / "copy.parquet"))
    if benchmark.stats is not None:
        best = benchmark.stats.stats.min
        benchmark.extra_info |= {"rows_per_second": round(ROWS / best), "ratio_to_pyarrow": round(best / beside, 2)}
        benchmark.extra_info["peak_mib"] = peak_mib(plan, source, tmp_path)
