"""Spark beside its own plain copy of the same files, with one worker and with two: rows a second, and ratios.

    OMP_NUM_THREADS=1 pytest -n 0 -s tests/benchmarks/test_spark_speed.py --benchmark-only

Nothing here asserts a time. Every number of workers has a process, and a session, of its own, warmed by a first copy
and a first release.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import java
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe import datasets

pytest.importorskip("pyspark", reason="pip install 'dpframe[spark]'")

PART, FILES, ROUNDS = 100_000, 8, 1
SPACES: dict[str, Any] = {"age": (0, 120), "sex": ["F", "M"], "income": dpf.Nullable(dpf.Real(0, 250_000))}
RUN = """
import json, shutil, sys, time
from pathlib import Path
import dpframe as dpf
from pyspark.sql import SparkSession
from dpframe.engines import spark as engine
source, folder, workers, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
session = SparkSession.builder.master(f"local[{workers}]").config("spark.ui.enabled", "false").config(
    "spark.driver.memory", "2g").config("spark.local.dir", str(folder / "spark")).getOrCreate()
session.sparkContext.setLogLevel("OFF")
plans = {name: dpf.Plan.from_json((folder / f"{name}.json").read_text()) for name in ("kept", "shuffled")}
work = {"copy": lambda path: session.read.parquet(source).write.parquet(path)} | {
    name: lambda path, plan=plan: engine.sanitize(source, plan, path) for name, plan in plans.items()}
seconds = {}
for turn in range(1 + rounds):
    for name, run in work.items():
        target = folder / "out"
        begin = time.perf_counter()
        run(str(target))
        seconds.setdefault(name, []).append(time.perf_counter() - begin)
        shutil.rmtree(target)
print(json.dumps({name: min(times[1:]) for name, times in seconds.items()}))
"""


def test_spark_beside_a_plain_copy(benchmark: Any, tmp_path: Path) -> None:
    home, source = java.home_or_skip(), tmp_path / "in"
    source.mkdir()
    part = pa.Table.from_pandas(datasets.make_census(PART, columns=list(SPACES)), preserve_index=False)
    for file in range(FILES):
        pq.write_table(pa.concat_tables([part] * 5), source / f"{file}.parquet")
    rows = 5 * PART * FILES
    for name, shuffle in (("kept", False), ("shuffled", True)):
        plan = dpf.plan(source, 1.0, 1e-9, spaces=SPACES, measure=None, shuffle=shuffle)
        (tmp_path / f"{name}.json").write_text(plan.to_json())

    def run() -> dict[int, dict[str, float]]:
        found = {}
        for workers in (1, 2):
            command = [sys.executable, "-c", RUN, str(source), str(tmp_path), str(workers), str(ROUNDS)]
            env = os.environ | {"JAVA_HOME": home, "PYSPARK_PYTHON": sys.executable}
            said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
            found[workers] = json.loads(said.splitlines()[-1])
        return found

    found = benchmark.pedantic(run, rounds=1)
    for workers, seconds in found.items():
        for name, took in seconds.items():
            ratio = took / seconds["copy"]
            print(f"{workers} worker(s), {name}: {rows / took:,.0f} rows/s, {ratio:.2f} of a plain copy's time")
    for name in ("copy", "kept", "shuffled"):
        print(f"one worker / two, {name}: {found[1][name] / found[2][name]:.2f}")
