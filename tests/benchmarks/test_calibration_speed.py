"""Seconds to calibrate a shuffled plan of 5, 15 and 60 columns of mixed kinds, and what share of δ it uses."""

import time

import pytest
from examples import plan_of

import dpframe as dpf

KINDS = (
    lambda i: [f"v{j}" for j in range(2 + i)],
    lambda i: dpf.Real(0, 1000.0 * (i + 1)),
    lambda i: dpf.Nullable(dpf.Integer(0, 100 + i)),
    lambda i: dpf.Ordinal(list(range(5 + i % 12))),
    lambda i: dpf.Subset([f"t{j}" for j in range(20)], max_size=3 + i // 5),
)
"""Categories, grids of 65,537 values, nullable grids, ranks by the optimal mechanism, sets of 20 items."""


def spaces(columns):
    return {f"c{i}": KINDS[i % 5](i) for i in range(columns)}


@pytest.mark.parametrize("rows", [32_561, 1_000_000])
@pytest.mark.parametrize("columns", [5, 15, 60])
def test_calibration(benchmark, columns, rows):
    declared = spaces(columns)
    ranks = {name: "optimal" for i, name in enumerate(declared) if i % 5 == 3}
    begin = time.process_time()
    plan = benchmark.pedantic(
        plan_of,
        (declared,),
        {"epsilon": 1.0, "delta": 1e-6, "n": rows, "mechanisms": ranks},
        rounds=1,  # channels are kept: a second round would be another matter
    )
    benchmark.extra_info["cpu_seconds"] = time.process_time() - begin
    benchmark.extra_info["share_of_delta"] = plan.terms.delta_of(plan.units).value / 1e-6
    print(f"{columns} columns, {rows:,} rows: {benchmark.extra_info}")
    assert plan.terms.allow(plan.units)
