"""How planning, inference, release and estimates grow with columns and rows: processor seconds of each step.

    OMP_NUM_THREADS=1 pytest -n 0 -s tests/benchmarks/test_growth.py --benchmark-only

Nothing here asserts a time. "per value" divides by rows times columns, which the work is at least linear in. Exponents
compare a table with the next smaller one: a step that grows with the pairs of columns has an exponent of 2. The longest
tables are files, which are planned and released in a process of its own, that tells its peak of memory.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpframe as dpf

COLUMNS, ROWS = (5, 10, 20, 50, 100), (100_000, 1_000_000, 3_000_000)


def wide(rows: int, columns: int) -> pd.DataFrame:
    """Return a table whose columns depend on one another: the census's, again and again, each time in other rows."""
    base = dpf.datasets.make_census(rows, columns=["age", "sex", "education", "occupation", "income"])
    shifted = (base[name].to_numpy()[np.roll(np.arange(rows), turn)] for turn in range(columns) for name in base)
    return pd.DataFrame({f"column_{number}": values for number, values in zip(range(columns), shifted, strict=False)})


def took(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what work gives, and its processor seconds."""
    begin = time.process_time()
    result = work()
    return result, time.process_time() - begin


def steps(table: pd.DataFrame) -> dict[str, float]:
    """Return the processor seconds of each step of one call, and of the first estimates."""
    plan, planning = took(lambda: table.dp.plan(epsilon=1))
    safe, release = took(lambda: table.dp.sanitize(plan=plan))
    first, second = table.columns[1], table.columns[2]
    return {
        "plan with inference": planning,
        "release": release,
        "one column": took(lambda: safe.dp.value_counts(first))[1],
        "a pair": took(lambda: safe.dp.crosstab(first, second))[1],
        "group means": took(lambda: safe.dp.mean("column_0", by=first))[1],
        "group means again": took(lambda: safe.dp.mean("column_0", by=first))[1],
        "synthesize": took(safe.dp.synthesize)[1],
    }


TIMES: dict[tuple[int, int], dict[str, float]] = {}
"""Processor seconds of the steps by rows and columns, for the exponents."""


def exponents(rows: int, columns: int) -> str:
    """Return the exponent of each step's growth from the next smaller table, in columns or in rows."""
    smaller = [(r, c) for r, c in TIMES if (r < rows and c == columns) or (r == rows and c < columns)]
    if not smaller:
        return ""
    before = max(smaller)
    growth = math.log(rows * columns / math.prod(before))
    steps_now, steps_before = TIMES[rows, columns], TIMES[before]
    parts = [f"{name} {math.log(steps_now[name] / steps_before[name]) / growth:.1f}" for name in steps_now]
    return f"; exponents from {before[0]:,} × {before[1]}: " + ", ".join(parts)


@pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")
@pytest.mark.parametrize(
    ("rows", "columns"), [*((ROWS[0], columns) for columns in COLUMNS), *((rows, COLUMNS[0]) for rows in ROWS[1:])]
)
def test_growth(benchmark: Any, rows: int, columns: int) -> None:
    table = wide(rows, columns)
    found = benchmark.pedantic(lambda: steps(table), rounds=1)
    TIMES[rows, columns] = found
    each = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in found.items())
    per_value = sum(found.values()) / rows / columns * 1e9
    print(f"\n{rows:,} rows, {columns} columns: {each}; {per_value:,.0f} ns per value{exponents(rows, columns)}")


FILES = """
import json, re, sys, time
from pathlib import Path
import dpframe as dpf
begin = time.process_time()
plan = dpf.plan(sys.argv[1], epsilon=1)
planned = time.process_time()
dpf.sanitize(sys.argv[1], sys.argv[2], plan=plan)
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
print(json.dumps([planned - begin, time.process_time() - planned, peak]))
"""


@pytest.mark.parametrize("rows", [1_000_000, 3_000_000, 10_000_000, 30_000_000])
def test_growth_of_files(benchmark: Any, tmp_path: Path, rows: int) -> None:
    part = pa.Table.from_pandas(wide(ROWS[0], COLUMNS[0]), preserve_index=False)
    with pq.ParquetWriter(tmp_path / "in.parquet", part.schema) as writer:
        for _ in range(rows // 1_000_000):
            writer.write_table(pa.concat_tables([part] * 10))
    command = [sys.executable, "-c", FILES, str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet")]

    def released() -> list[float]:
        found: list[float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return found

    planning, release, peak = benchmark.pedantic(released, rounds=1)
    per_value = (planning + release) / rows / COLUMNS[0] * 1e9
    print(
        f"\n{rows:,} rows in a file: plan with inference {planning:.2f} s, release {release:.2f} s, {peak:.0f} MiB; "
        f"{per_value:,.0f} ns per value"
    )
