"""A regression on draws of the original table, beside statsmodels' fits of as many tables of its size.

    OMP_NUM_THREADS=1 pytest -n 0 -s tests/benchmarks/test_regression_speed.py --benchmark-only

Measured is the ratio of processor seconds: 40 draws, their fits and Rubin's rules to 40 fits of the raw table.
"""

import time

import numpy as np
import pytest

import dpframe as dpf

smf = pytest.importorskip("statsmodels.formula.api")

FORMULA = "visits ~ age + C(sex) + C(education) + C(region)"
DRAWS = 40


@pytest.mark.parametrize("rows", [10_000, 200_000])
def test_regression(benchmark, rows):
    table = dpf.datasets.make_census(rows, columns=["age", "sex", "region", "education"])
    table["visits"] = np.random.default_rng(0).poisson(3, rows).clip(0, 30)
    safe = table.dp.sanitize(epsilon=1, key=bytes(32))
    estimates = dpf.Estimates(safe)
    estimates.mean("age", by="sex")
    start = time.process_time()
    for _ in range(DRAWS // 10):
        smf.ols(FORMULA, table).fit()
    plain = 10 * (time.process_time() - start)
    start = time.process_time()
    benchmark.pedantic(estimates.regress, args=(FORMULA,), rounds=1)
    benchmark.extra_info["ratio"] = round((time.process_time() - start) / plain, 2)
    print(f"\n{rows:,} rows: {benchmark.extra_info['ratio']} of {DRAWS} fits of the raw table ({plain:.1f} s)")
