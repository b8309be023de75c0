"""Tables of levels: exact counts of the cells that stood out, and noise of their own, however rows come."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import dpframe as dpf
from dpframe.errors import ParameterError
from dpframe.plan.build import build_plan
from dpframe.plan.levels import cells_between, children, level_sizes, stops_of
from dpframe.plan.measures import Measure, check_measures, measures_step
from dpframe.release.info import packed, unpacked
from dpframe.release.noisy_tables import Tables, measured_tables

KEY = bytes(range(32))
SPACE = dpf.Nullable(dpf.Integer(0, 999))
ROWS = 4_000


def levels(sigma2=0.5, space=SPACE):
    return tuple(Measure("one_way", ("x",), sigma2, size, level) for level, size in enumerate(level_sizes(space), 1))


def plan_of(measures, space=SPACE):
    return build_plan({"x": space}, epsilon=20.0, delta=1e-4, n=ROWS, measures=measures)


def codes(seed=0):
    """Half zeros, a heap at 400, some nulls, and the rest anywhere."""
    generator = np.random.default_rng(seed)
    found = generator.integers(0, 1_000, ROWS)
    found[: ROWS // 2] = 0
    found[ROWS // 2 : ROWS // 2 + 600] = 400
    found[-100:] = 1_000
    return generator.permutation(found).astype(np.uint16)


@cache
def levels_plan():
    return plan_of(levels())


def test_cells_hold_exact_counts_and_noise():
    rows = codes()
    first, second = measured_tables({"x": rows}, levels_plan(), KEY)
    starts = cells_between(SPACE, 64, 0, 1_000)
    exact = np.histogram(rows[rows < 1_000], bins=[*starts, 1_000])[0]
    assert np.abs(first.counts[:-1] - exact).max() <= 5  # sigma is 0.71
    assert abs(int(first.counts[-1]) - (rows == 1_000).sum()) <= 5
    parents = second.starts[0]
    assert parents is not None
    assert 400 in children(SPACE, 2, parents)
    for start, count in zip(children(SPACE, 2, parents).tolist(), second.counts.tolist(), strict=True):
        assert abs(count - (rows == start).sum()) <= 5


def test_tables_do_not_depend_on_how_rows_come():
    rows = codes()
    whole = measured_tables({"x": rows}, levels_plan(), KEY)
    parts = Tables(levels_plan(), KEY)
    for start in range(0, ROWS, 37):
        parts.add({"x": rows[start : start + 37]}, start)
    assert parts.measured() == whole
    one, other = Tables(levels_plan(), KEY), Tables(levels_plan(), KEY)
    one.add({"x": rows[:1_500]}, 0)
    other.add({"x": rows[1_500:]}, 1_500)
    one.merge(other.counts)
    assert one.measured() == whole


def test_no_two_levels_share_noise():
    plan = plan_of(levels(400.0))
    first, second = measured_tables({"x": codes()}, plan, KEY)
    again = measured_tables({"x": codes()}, plan, bytes(32))[1]
    noise = [t.counts[:8] - np.rint(t.counts[:8] / 400) * 400 for t in (first, second, again)]
    assert not np.array_equal(noise[0], noise[1])
    assert not np.array_equal(second.counts[:8], again.counts[:8])


@pytest.mark.slow
def test_where_nothing_stands_out_no_cell_is_divided():
    plan = plan_of(levels(1e8))
    table = measured_tables({"x": codes()}, plan, KEY)[1]
    assert (table.starts, table.counts.shape) == (((),), (0,))
    tables = measured_tables({"x": codes()}, plan, KEY)
    assert unpacked(json.loads(json.dumps(packed(tables))), plan.measures, {"x": SPACE}) == tables


def test_one_row_changes_one_cell_of_every_level_by_one():
    """Whatever cells were divided: the sensitivity that the accountant takes, in each level on its own."""
    generator = np.random.default_rng(1)
    sizes = level_sizes(SPACE)
    for _ in range(200):
        rows = generator.integers(0, 1_001, 30)
        other = rows.copy()
        other[0] = generator.integers(0, 1_001)
        parents = generator.choice(cells_between(SPACE, 64, 0, 1_000), 5, replace=False)
        starts = children(SPACE, 2, sorted(parents.tolist()))
        stops = stops_of(SPACE, sizes[1], starts)
        counts = [((t[:, None] >= starts) & (t[:, None] < stops)).sum(axis=0) for t in (rows, other)]
        change = counts[1] - counts[0]
        assert change.max(initial=0) <= 1
        assert change.min(initial=0) >= -1
        assert np.abs(change).sum() <= 2


def test_every_level_is_paid_for_as_a_histogram_of_its_own():
    one = measures_step(levels(400.0)[:1], {"x": SPACE}, 1, 1e-6)
    both = measures_step(levels(400.0), {"x": SPACE}, 1, 1e-6)
    assert one is not None
    assert both is not None
    assert both.mu**2 == pytest.approx(2 * one.mu**2, rel=1e-3)
    assert both.mu**2 >= 2 * 2 / 400  # two counts change in each, by one
    assert plan_of(levels()).verify().ok


def test_files_and_memory_have_the_same_tables(tmp_path):
    frame = pd.DataFrame({"x": codes().astype(float) / 2, "sex": ["F", "M"] * (ROWS // 2)})
    spaces = {"x": dpf.Real(0.0, 500.0, steps=1_000), "sex": ["F", "M"]}
    plan = dpf.plan(frame, epsilon=2, delta=1e-6, spaces=spaces)
    assert max(m.level for m in plan.measures) == 2
    frame.to_parquet(tmp_path / "in.parquet")
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, key=KEY)
    found = dpf.read(tmp_path / "out.parquet").dp.release.tables
    assert found == dpf.sanitize(frame, plan=plan, key=KEY).dp.release.tables
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == ROWS


def test_damaged_tables_are_none():
    tables = measured_tables({"x": codes()}, levels_plan(), KEY)
    good = packed(tables)
    assert unpacked(good, levels_plan().measures, {"x": SPACE}) == tables
    ((name, size, starts),) = good["bins"]
    for damaged in ([*starts, 17], starts[:-1], [-1, *starts], [*starts, 5_000], starts[::-1], ["0"], None):
        bins = [[name, size, damaged]] if damaged is not None else []
        assert unpacked(good | {"bins": bins}, levels_plan().measures, {"x": SPACE}) is None


@pytest.mark.parametrize(
    ("measures", "rule"),
    [
        (levels()[1:], "level 2 of column 'x' needs the first; measure both"),
        ([replace(levels()[0], most=60)], "a level of column 'x' must be one of the 2 of its space"),
        ([*levels(), Measure("one_way", ("x",), 0.5, 16_384, 3)], "must be one of the 2 of its space"),
        ([*levels(), levels()[1]], "is measured twice; name it once"),
    ],
)
def test_levels_that_are_none_are_refused(measures, rule):
    with pytest.raises(ParameterError, match=rule):
        check_measures(measures, {"x": SPACE})


def test_a_level_belongs_to_a_one_way():
    with pytest.raises(ParameterError, match=r"level belongs to a.*one_way; leave it out"):
        Measure("joint", ("x", "y"), 1.0, 12, 1)
    for level in (-1, 1.0, True):
        with pytest.raises(ParameterError, match=r"level of a measure.*at least 0"):
            Measure("one_way", ("x",), 1.0, 64, level)
    assert Measure.from_json(levels()[1].to_json()) == levels()[1]
