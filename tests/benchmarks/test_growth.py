"""How planning, inference, release and estimates grow with columns and rows: processor seconds of each step.

    OMP_NUM_THREADS=1 pytest -n 0 -s tests/benchmarks/test_growth.py --benchmark-only

Nothing here asserts a time. "per value" divides by rows times columns, which the work is at least linear in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
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
        "synthesize": took(safe.dp.synthesize)[1],
    }


@pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")
@pytest.mark.parametrize(
    ("rows", "columns"), [*((ROWS[0], columns) for columns in COLUMNS), *((rows, COLUMNS[0]) for rows in ROWS[1:])]
)
def test_growth(benchmark: Any, rows: int, columns: int) -> None:
    table = wide(rows, columns)
    found = benchmark.pedantic(lambda: steps(table), rounds=1)
    each = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in found.items())
    print(f"\n{rows:,} rows, {columns} columns: {each}; {sum(found.values()) / rows / columns * 1e9:,.0f} ns per value")
