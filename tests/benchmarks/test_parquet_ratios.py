"""The rows of DESIGN §14 on Parquet, each ratio from one run: 5·10⁶ rows of 6 columns, in three mixes; 48 columns.

Four of six columns are text, or three are numbers, or one is of sets: pyarrow copies text that is a dictionary in the
file for next to nothing, and numbers of many values for most of its time.

    OMP_NUM_THREADS=1 pytest -n 0 -s tests/benchmarks/test_parquet_ratios.py --benchmark-only

Nothing here asserts a time. Every conversion is a process of its own, which tells its seconds and its peak of memory.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from census_spaces import SPACES

import dpframe as dpf
from dpframe import datasets

PART, PARTS, ROUNDS = 100_000, 50, 3
COLUMNS = list(SPACES)
PLAIN = {name: space for name, space in SPACES.items() if name != "hobbies"} | {
    "occupation": dpf.Nullable(dpf.Categorical(datasets.OCCUPATIONS))
}
NUMBERS = {
    "age": PLAIN["age"],
    "income": PLAIN["income"],
    "age_1": PLAIN["age"],
    "sex": PLAIN["sex"],
    "education": PLAIN["education"],
    "occupation": PLAIN["occupation"],
}
CONVERT = """
import json, os, re, sys, time
from pathlib import Path
import dpframe as dpf
plan = dpf.Plan.from_json(Path(sys.argv[1]).read_text())
wall, cpu = time.perf_counter(), os.times()
dpf.sanitize(sys.argv[2], sys.argv[3], plan=plan, threads=int(sys.argv[4]))
now = os.times()
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
cpu_seconds = now.user - cpu.user + now.system - cpu.system
print(json.dumps({"wall": time.perf_counter() - wall, "cpu": cpu_seconds, "peak": peak}))
"""


def written(path: Path, columns: list[str], parts: int) -> Path:
    """Write columns of the census to one file; a number behind a name makes another column of the same values."""
    named = {name: re.sub(r"_\d+$", "", name) for name in columns}
    census = datasets.make_census(PART, columns=list(dict.fromkeys(named.values())))
    whole = pa.Table.from_pandas(census, preserve_index=False)
    part = pa.Table.from_arrays([whole.column(name) for name in named.values()], list(named))
    with pq.ParquetWriter(path, part.schema) as writer:
        for _ in range(parts // 10):
            writer.write_table(pa.concat_tables([part] * 10), row_group_size=10 * PART)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("ratios") / "in.parquet", COLUMNS, PARTS)


def converted(source: Path, folder: Path, plan: dpf.Plan, threads: int) -> dict[str, float]:
    """Return the least seconds, and the greatest peak, of some conversions."""
    (folder / "plan.json").write_text(plan.to_json())
    found = []
    for _ in range(ROUNDS):
        arguments = [str(folder / "plan.json"), str(source), str(folder / "out.parquet"), str(threads)]
        run = subprocess.run([sys.executable, "-c", CONVERT, *arguments], check=True, capture_output=True, text=True)
        found.append(json.loads(run.stdout))
    return {name: (max if name == "peak" else min)(each[name] for each in found) for name in found[0]}


def copied(source: Path, output: Path, copy: Path) -> tuple[float, float]:
    """Return wall and processor seconds in which pyarrow reads the input and writes the same output."""
    items = [name for name in ["hobbies.list.element"] if "hobbies" in pq.read_schema(source).names]
    table = pq.read_table(output, read_dictionary=items)
    found = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        with pq.ParquetFile(source, read_dictionary=items, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                for _batch in file.iter_batches(1 << 17, row_groups=[group]):
                    pass
        pq.write_table(table, copy, row_group_size=1 << 20)
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(wall for wall, _ in found), min(cpu for _, cpu in found)


def test_ratios(benchmark: Any, tmp_path: Path, source: Path) -> None:
    runs: dict[tuple[bool, int], dict[str, float]] = {}

    def everything() -> None:
        for shuffle in (False, True):
            for threads in (1, 2):
                plan = dpf.plan(source, 24.0, spaces=SPACES, shuffle=shuffle)
                runs[shuffle, threads] = converted(source, tmp_path, plan, threads)

    benchmark.pedantic(everything, rounds=1, iterations=1)
    wall, cpu = copied(source, tmp_path / "out.parquet", tmp_path / "copy.parquet")
    kept, shuffled = runs[False, 2], runs[True, 2]
    benchmark.extra_info |= {
        "kept order / pyarrow, wall": round(kept["wall"] / wall, 2),
        "kept order / pyarrow, processor": round(kept["cpu"] / cpu, 2),
        "shuffled / kept order, wall": round(shuffled["wall"] / kept["wall"], 2),
        "shuffled / kept order, processor": round(shuffled["cpu"] / kept["cpu"], 2),
        "one thread / two, kept order": round(runs[False, 1]["wall"] / kept["wall"], 2),
        "one thread / two, shuffled": round(runs[True, 1]["wall"] / shuffled["wall"], 2),
        "one thread's processor seconds / wall of two": round(runs[False, 1]["cpu"] / kept["wall"], 2),
        "peak MiB": max(run["peak"] for run in runs.values()),
        "rows a processor second": round(PART * PARTS / kept["cpu"]),
    }
    print("\n".join(f"{name}: {value}" for name, value in benchmark.extra_info.items()))


ORDERS: dict[str, dict[str, Any]] = {
    "kept order": {"shuffle": False, "measure": None},
    "shuffled": {"measure": None},
    "shuffled, with tables": {},
}


@pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")
@pytest.mark.parametrize(
    ("spaces", "parts"),
    [
        (PLAIN, PARTS),
        (NUMBERS, PARTS),
        (SPACES, PARTS),
        ({name if not turn else f"{name}_{turn}": PLAIN[name] for turn in range(8) for name in PLAIN}, 10),
    ],
    ids=["text", "numbers", "sets", "wide"],
)
def test_beside_a_copy(benchmark: Any, tmp_path: Path, spaces: dict[str, Any], parts: int) -> None:
    source = written(tmp_path / "in.parquet", list(spaces), parts)

    def everything() -> None:
        for name, options in ORDERS.items():
            run = converted(source, tmp_path, dpf.plan(source, 1.0, spaces=spaces, **options), 2)
            wall, cpu = copied(source, tmp_path / "out.parquet", tmp_path / "copy.parquet")
            benchmark.extra_info[name] = [round(run["wall"] / wall, 2), round(run["cpu"] / cpu, 2), run["peak"]]

    benchmark.pedantic(everything, rounds=1, iterations=1)
    for name, (wall, cpu, peak) in benchmark.extra_info.items():
        print(f"{name} / pyarrow: wall {wall}, processor {cpu}; peak {peak} MiB")
