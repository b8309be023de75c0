"""Counts and sums are exact whatever the batches, and their noise has its law."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpframe.noise.gaussian import gaussian_table
from dpframe.noise.keystream import Keystream
from dpframe.plan.build import build_plan
from dpframe.plan.measures import Measure
from dpframe.release.noisy_tables import Tables, measured_tables, quantile_bins
from dpframe.spaces import Integer, Nullable, Subset
from dpframe.spaces.cells import equal_starts
from dpframe.totals.counts import Items, Joint, Total, cells_of, noisy
from dpframe.totals.joint_counting import JointCounting

SPACES = {
    "sex": ["F", "M"],
    "age": Nullable(Integer(0, 99)),
    "rank": Integer(0, 6),
    "tags": Subset(list("abcdefgh"), 3),
}
N = 5_000


def codes(n=N, seed=1):
    generator = np.random.default_rng(seed)
    sets = generator.integers(0, 256, (n, 1)).astype(np.uint64)
    return {
        "sex": generator.integers(0, 2, n).astype(np.uint8),
        "age": generator.integers(0, 101, n).astype(np.uint8),
        "rank": generator.integers(0, 7, n).astype(np.uint8),
        "tags": sets,
    }


MEASURES = (
    Measure("one_way", ("age",), 4e6, 20),
    Measure("sum", ("age",), 4e8),
    Measure("items", ("tags",), 4e6, 2),
    Measure("joint", ("sex", "rank"), 4e6, 12),
    Measure("joint", ("sex", "age", "rank"), 4e6, 8),
)


@cache
def counts_plan():
    return build_plan(SPACES, epsilon=1.0, delta=1e-6, n=N, measures=MEASURES)


def silent(monkeypatch):
    monkeypatch.setattr(
        "dpframe.release.noisy_tables.noisy", lambda counts, sigma2, stream: np.asarray(counts, np.int64)
    )


def test_tables_are_the_counts_of_the_table(monkeypatch):
    silent(monkeypatch)
    table = codes()
    age, total, items, pair, triple = measured_tables(table, counts_plan(), bytes(32))
    present = table["age"] < 100
    assert age.starts == (equal_starts(100, 20),)
    assert age.counts.tolist() == [*np.bincount(table["age"][present] // 5, minlength=20), (~present).sum()]
    assert total.counts.tolist() == [table["age"][present].sum(dtype=int)]
    sizes = np.bitwise_count(table["tags"][:, 0])
    assert items.counts.sum() == np.minimum(sizes, 2).sum()
    assert pair.counts.tolist() == np.histogram2d(table["sex"], table["rank"], (range(3), range(8)))[0].tolist()
    assert (triple.starts[0], triple.starts[2]) == (None, None)
    edges = (range(3), [*triple.starts[1], 100, 102], range(8))
    rows = np.column_stack([table["sex"], table["age"], table["rank"]])
    assert triple.counts.tolist() == np.histogramdd(rows, edges)[0].tolist()


def test_numbers_in_joints_are_cut_at_quantiles(monkeypatch):
    silent(monkeypatch)
    measures = (Measure("one_way", ("age",), 4e6, 50), Measure("joint", ("sex", "age"), 4e6, 4))
    plan = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=N, measures=measures)
    table = codes()
    table["age"] = np.where(table["age"] < 100, table["age"] // 4, 100).astype(np.uint8)
    _, joint = measured_tables(table, plan, bytes(32))
    assert joint.starts == (None, (0, 8, 14, 20))
    edges = [*joint.starts[1], 100, 102]
    assert joint.counts.tolist() == np.histogram2d(table["sex"], table["age"], (range(3), edges))[0].tolist()
    assert joint.counts.sum() == N


@pytest.mark.parametrize("rows", [1, 7, 900, N])
def test_any_batches_give_the_same_tables(rows):
    table, tables = codes(200), Tables(counts_plan(), bytes(32))
    for start in range(0, 200, rows):
        tables.add({name: column[start : start + rows] for name, column in table.items()}, start)
    assert tables.measured() == measured_tables(table, counts_plan(), bytes(32))


def test_noise_has_its_law():
    # χ² of 4,000 draws over 9 cells under a fixed key: beyond 26.1 with probability 0.001.
    drawn = noisy(np.zeros(4_000, dtype=np.int64), 4.0, Keystream(bytes(32)).column("a", "measure"))
    law = {x: w / 2**128 for x, w in gaussian_table(4.0).weights().items()}
    edges = [-99, -4, -2, -1, 0, 1, 2, 4, 99]
    shares = [sum(w for x, w in law.items() if a <= x < b) for a, b in pairwise(edges)]
    found = np.histogram(drawn, edges)[0]
    assert ((found - 4_000 * np.array(shares)) ** 2 / (4_000 * np.array(shares))).sum() < 26.1


def test_noise_of_a_plan_has_the_stated_spread():
    exact = np.bincount(codes()["rank"] + 7 * codes()["sex"], minlength=14).reshape(2, 7)
    # 14 cells × 40 keys of a normal law: χ²/560 leaves (0.82, 1.2) with probability below 0.003.
    errors = [
        measured_tables(codes(), counts_plan(), bytes([key]) * 32)[3].counts - exact  # the joint of sex and rank
        for key in range(40)
    ]
    assert 0.82 < np.mean(np.square(errors)) / 4e6 < 1.2


def test_tables_have_streams_of_their_own():
    measures = (Measure("joint", ("sex", "rank"), 4e6, 12), Measure("joint", ("rank", "age"), 4e6, 0))
    plan = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=N, measures=measures)
    empty = {name: column[:0] for name, column in codes().items()}
    one, other = (table.counts.ravel()[:14] for table in measured_tables(empty, plan, bytes(32)))
    again = measured_tables(empty, plan, b"\1" * 32)[0].counts.ravel()
    assert (one != other).sum() > 10
    assert (one != again).sum() > 10
    elsewhere = measured_tables(empty, build_plan(SPACES, epsilon=2.0, delta=1e-6, n=N, measures=measures), bytes(32))
    assert (one != elsewhere[0].counts.ravel()).sum() > 10


def test_a_set_is_cut_by_its_own_row():
    stream = Keystream(bytes(32)).column("cut", "measure")
    first, second = Items(SPACES["tags"], 2, stream), Items(SPACES["tags"], 2, stream)
    table = codes(50)["tags"]
    first.add(table, 0)
    changed = table.copy()
    changed[17] = 0
    second.add(changed, 0)
    assert np.abs(first.counts - second.counts).sum() <= 2


def test_a_null_set_counts_under_no_item():
    space = Nullable(SPACES["tags"])
    items = Items(space, 3, Keystream(bytes(32)).column("cut", "measure"))
    items.add(space.encode([None, ["a", "b"], []]), 0)
    assert items.counts.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


def test_cells_have_equal_width():
    space = Nullable(Integer(0, 9))
    assert cells_of(np.arange(11, dtype=np.uint8), space, 4).tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4]
    starts = [*equal_starts(10, 4), 10]
    assert np.diff(starts).tolist() == [3, 2, 3, 2]
    wide = Integer(0, 2**32 - 2)
    cells = cells_of(np.array([0, 2**32 - 2], dtype=np.uint32), wide, 60)
    assert cells.tolist() == [0, 59]


def test_bins_survive_noise_that_says_nothing():
    assert quantile_bins([-5, -3, -9, -1], 2) == [0, 2]
    assert quantile_bins([0] * 60, 12) == list(equal_starts(60, 12))
    assert quantile_bins([1_000, -40, 30, -20, 5, 0], 3) == [0, 1]
    assert len(quantile_bins(list(range(60)), 12)) <= 12


def test_sums_do_not_wrap():
    total = Total(Integer(0, 2**32 - 2))
    total.add(np.full(3, 2**32 - 2, dtype=np.uint32))
    assert total.counts.tolist() == [3 * (2**32 - 2)]
    joint = Joint((2, 2))
    joint.add([np.array([0, 1]), np.array([1, 1])])
    assert joint.counts.tolist() == [[0, 1], [0, 1]]
    most = np.iinfo(np.int64).max
    ends = noisy([most, -most, 0], 1e12, Keystream(bytes(32)).column("a", "measure"))
    assert abs(int(ends[0]) - most) < 1e7 and abs(int(ends[1]) + most) < 1e7


@pytest.mark.slow
def test_a_sample_is_measured_whole(monkeypatch):
    silent(monkeypatch)
    plan = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=N, sample=500, measures=MEASURES)
    assert measured_tables(codes(), plan, bytes(32))[3].counts.sum() == N
    assert plan.verify().ok
    whole = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=N, measures=MEASURES)
    assert plan.tables_step == whole.tables_step  # no credit for the sample
    assert math.isfinite(plan.local.epsilon)


@settings(max_examples=40)
@given(st.data())
def test_joints_counted_in_few_passes_are_those_counted_one_by_one(data):
    """Blocks of columns, margins of their joints, and columns on their own give the same whole numbers."""
    widths = data.draw(st.lists(st.sampled_from([1, 2, 3, 7, 16, 90, 400]), min_size=1, max_size=9))
    names = list(range(len(widths)))
    tuples = data.draw(
        st.lists(st.permutations(names).flatmap(lambda p: st.integers(1, min(3, len(p))).map(lambda k: tuple(p[:k]))))
    )
    tuples = [own for own in tuples if math.prod(widths[name] for name in own) <= 1 << 20]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    cells = {name: rng.integers(0, width, 50) for name, width in enumerate(widths)}
    joints = [(own, Joint(tuple(widths[name] for name in own))) for own in tuples]
    counting = JointCounting.of(dict(enumerate(widths)), joints, data.draw(st.sampled_from([1, 16, 300, 1 << 17])))
    for part in (slice(0, 20), slice(20, 50)):
        counting.add({name: places[part] for name, places in cells.items()})
        counting.settle()
    for own, joint in joints:
        alone = Joint(joint.shape)
        alone.add([cells[name] for name in own])
        np.testing.assert_array_equal(joint.counts, alone.counts)


def test_joints_of_two_and_three_blocks_are_margins_of_one_count():
    """Columns too wide for one block: pairs are counted between blocks, and a triple counts its pairs as well."""
    rng, widths = np.random.default_rng(3), {"a": 90, "b": 2, "c": 70, "d": 16, "e": 300}
    cells = {name: rng.integers(0, width, 40_000).astype(np.uint16) for name, width in widths.items()}
    names = [("a", "c", "d"), ("c", "a"), ("d", "b", "a"), ("e", "a"), ("b",), ("e", "d")]
    joints = [(own, Joint(tuple(widths[name] for name in own))) for own in names]
    counting = JointCounting.of(widths, joints)
    assert {len(each.key) for each in counting.fused} == {2, 3}
    counting.add(cells)
    counting.settle()
    for own, joint in joints:
        alone = Joint(joint.shape)
        alone.add([cells[name] for name in own])
        np.testing.assert_array_equal(joint.counts, alone.counts)


def test_joints_are_settled_before_their_counts_outgrow_32_bits(monkeypatch):
    monkeypatch.setattr("dpframe.totals.joint_counting._MAX_ROWS", 50)
    joint = Joint((2, 3))
    counting = JointCounting.of({"a": 2, "x": 3}, [(("a", "x"), joint)])
    for rows in (20, 30, 7, 60):
        counting.add({"a": np.zeros(rows, dtype=np.uint8), "x": np.full(rows, 2, dtype=np.uint8)})
        assert sum(int(each.counts.sum()) for each in counting.fused) <= max(50, rows)
    counting.settle()
    assert joint.counts.tolist() == [[0, 0, 117], [0, 0, 0]]


@pytest.mark.parametrize("place", [-1, 3])
def test_a_cell_beyond_the_last_is_not_counted_elsewhere(place):
    counting = JointCounting.of({"a": 2, "x": 3}, [(("a", "x"), Joint((2, 3)))])
    with pytest.raises(IndexError, match="beyond its column's last one"):
        counting.add({"a": np.array([1, 0]), "x": np.array([0, place])})
