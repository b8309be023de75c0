"""Measured tables of sets: sizes, items and pairs of items, their exact law, and what every face says of them."""

import itertools
import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from exact_laws import tables_law

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import step_delta
from dpframe.errors import ParameterError
from dpframe.noise.keystream import Keystream
from dpframe.plan import measures as plan_measures
from dpframe.plan.build import build_plan
from dpframe.plan.measures import Measure, measures_step
from dpframe.plan.measuring import Workload
from dpframe.release.noisy_tables import Tables, measured_tables
from dpframe.spaces import Categorical, Nullable, Subset
from dpframe.spaces.cells import pairs_moved, size_starts
from dpframe.spaces.set_bits import set_sizes
from dpframe.totals.counts import ItemPairs, Items, SetSizes

ITEMS = list("abcdefgh")
MEASURES = tuple(Measure(kind, ("x",), 4e6, most) for kind, most in (("items", 3), ("sizes", 0), ("item_pairs", 3)))
SPACES = {"x": Nullable(Subset(ITEMS)), "sex": Categorical(["F", "M"])}
N = 400


@cache
def sets_plan():
    return build_plan(SPACES, epsilon=1.0, delta=1e-6, n=N, measures=MEASURES)


def codes(n=N, seed=1):
    generator = np.random.default_rng(seed)
    sets = generator.integers(0, 256, (n, 1)).astype(np.uint64)
    sets[::50] = SPACES["x"].encode([None])
    return {"x": sets, "sex": generator.integers(0, 2, n).astype(np.uint8)}


def members(code):
    return [i for i in range(len(ITEMS)) if int(code) >> i & 1]


@pytest.mark.parametrize(("count", "most"), [(count, most) for count in range(2, 7) for most in range(2, count + 1)])
def test_pairs_that_a_row_moves_are_as_many_as_stated_and_no_fewer(count, most):
    """Every two sets of at most so many items, by enumeration."""
    held = [set(some) for size in range(most + 1) for some in itertools.combinations(range(count), size)]
    pairs = [set(itertools.combinations(sorted(some), 2)) for some in held]
    moved = max(len(one ^ other) for one, other in itertools.product(pairs, repeat=2))
    assert pairs_moved(count, most) == moved
    space = {"x": Subset([str(i) for i in range(count)])}
    assert Measure("item_pairs", ("x",), 100.0, most).noise(space).numbers == moved


def test_counts_are_those_of_sets_cut_to_the_same_items(monkeypatch):
    monkeypatch.setattr(
        "dpframe.release.noisy_tables.noisy", lambda counts, sigma2, stream: np.asarray(counts, np.int64)
    )
    table = codes()
    items, sizes, pairs = (one.counts for one in measured_tables(table, sets_plan(), bytes(32)))
    present = [code for code in table["x"][:, 0] if not int(code) >> len(ITEMS) & 1]
    assert sizes.tolist() == [sum(len(members(c)) == size for c in present) for size in range(9)]
    assert items.sum() == sum(min(len(members(c)), 3) for c in present)
    assert pairs.sum() == sum(math.comb(min(len(members(c)), 3), 2) for c in present)
    square = np.zeros((8, 8), dtype=np.int64)
    square[np.triu_indices(8, 1)] = pairs
    # Three items have two pairs each, two have one.
    held = [min(len(members(c)), 3) for c in present]
    assert (square + square.T).sum() == sum(size * (size - 1) for size in held)
    assert ((square + square.T).sum(axis=1) <= 2 * items).all()


def test_a_row_moves_no_more_than_is_stated_whatever_its_words():
    stream = Keystream(bytes(32)).column("cut", "measure")
    table = codes(40)["x"]
    for row in range(40):
        changed = table.copy()
        changed[row] = 255 ^ table[row] & 255
        for kind, most in ((Items, 6), (ItemPairs, 8)):
            counters = []
            for sets in (table, changed):
                counters.append(kind(SPACES["x"], 3, stream))
                counters[-1].add(sets, 0)
            assert np.abs(counters[0].counts - counters[1].counts).sum() <= most


def test_any_batches_and_any_merging_give_the_same_tables():
    table, whole = codes(200), measured_tables(codes(200), sets_plan(), bytes(32))
    for rows in (1, 7, 199):
        tables, parts = Tables(sets_plan(), bytes(32)), Tables(sets_plan(), bytes(32))
        for start in range(0, 200, rows):
            part = {name: column[start : start + rows] for name, column in table.items()}
            tables.add(part, start)
            apart = Tables(sets_plan(), bytes(32))
            apart.add(part, start)
            parts.merge(apart.counts)
        assert tables.measured() == whole == parts.measured()


def test_sizes_above_sixteen_are_counted_in_cells():
    space = Subset([str(i) for i in range(100)])
    assert size_starts(space)[16:] == (16, 17, 22, 28, 35, 44, 55, 69, 87)
    sets = space.encode([[str(i) for i in range(size)] for size in (0, 16, 17, 21, 22, 87, 100)])
    counted = SetSizes(space)
    counted.add(sets)
    assert set_sizes(sets).tolist() == [0, 16, 17, 21, 22, 87, 100]
    assert {int(i): int(c) for i, c in enumerate(counted.counts) if c} == {0: 1, 16: 1, 17: 2, 18: 1, 24: 2}


@pytest.mark.slow
def test_the_step_bounds_the_exact_law_of_pairs_and_sizes(monkeypatch):
    """Three items, sets cut to two, noise enumerated; what differs between sets of equal kinds is only the order.

    A step of one pair fewer is exceeded.
    """
    spaces = {"x": Subset(list("abc"))}
    measures = [Measure("sizes", ("x",), 400.0), Measure("item_pairs", ("x",), 16.0, 2)]
    plan = build_plan(spaces, epsilon=5.0, delta=4e-3, n=200, measures=measures)
    rows, laws = np.zeros((200, 1), dtype=np.uint64), []
    for pair in ((0b011, 0b110), (0b001, 0b110), (0b000, 0b011), (0b000, 0b001)):
        changed = []
        for code in pair:
            rows[7] = code
            changed.append({"x": rows.copy()})
        laws.append(tables_law(plan, changed, 6.0))
    for x in (0.0, 0.5, 1.0):
        assert max(law.most(x) for law in laws) <= step_delta(plan.tables_step, x)
        assert max(law.least(x) for law in laws) > 0.7 * step_delta(plan.tables_step, x)
    monkeypatch.setattr(plan_measures, "pairs_moved", lambda count, most: pairs_moved(count, most) - 1)
    fewer = measures_step(measures[1:], spaces, 1, 4e-3)
    assert laws[0].least(0.5) > step_delta(fewer, 0.5)


def test_pairs_are_measured_where_noise_leaves_something_of_them():
    many = {"x": Subset([f"item {i}" for i in range(169)])}
    promise = Budget(1.0, 1e-6)
    kinds = {
        n: [m.kind for m in Workload("auto").measures(many, promise, None, n, 1)] for n in (9_835, 30_000, 1_000_000)
    }
    assert kinds == {
        9_835: ["items", "sizes"],
        30_000: ["items", "item_pairs", "sizes"],
        1_000_000: ["items", "item_pairs", "sizes"],
    }
    asked = Workload((("x", "x"),)).measures(many, promise, None, 9_835, 1)
    assert [m.kind for m in asked] == ["items", "sizes", "item_pairs"]
    huge = {"x": Subset([f"item {i}" for i in range(300)])}
    assert "item_pairs" not in {m.kind for m in Workload("auto").measures(huge, promise, None, 10**7, 1)}
    whole = Workload("auto").most(promise, None)
    assert measures_step(asked, many, 1, 1e-6).mu <= whole.mu


@pytest.mark.parametrize(
    ("measures", "words"),
    [
        ([Measure("item_pairs", ("x",), 1e4, 3)], "the item_pairs of x needs its sizes"),
        ([Measure("sizes", ("sex",), 1e4)], "column 'sex' holds no sets"),
        ([Measure("sizes", ("x",), 1e4)] * 2, "the sizes of x is measured twice"),
        ([Measure("item_pairs", ("one",), 1e4, 2)], "column 'one' has one item, and no pairs of them"),
    ],
)
def test_tables_that_a_set_does_not_have_are_refused(measures, words):
    with pytest.raises(ParameterError, match=words):
        build_plan(SPACES | {"one": Subset(["a"])}, epsilon=1.0, delta=1e-6, n=N, measures=measures)


def test_a_measure_of_pairs_counts_two_items_or_more():
    with pytest.raises(ParameterError, match=r"most of a measure.*at least 2"):
        Measure("item_pairs", ("x",), 1e4, 1)


@pytest.fixture(scope="module")
def baskets():
    generator = np.random.default_rng(3)
    held = generator.random((3_000, len(ITEMS))) < 0.3
    return pd.DataFrame({"x": [[i for i, h in zip(ITEMS, row, strict=True) if h] for row in held]})


def test_frames_and_files_have_the_same_tables_and_all_say_so(baskets, tmp_path):
    plan = dpf.plan(baskets, 1.0, 1e-6, spaces={"x": dpf.Subset(ITEMS)}, measure=[("x", "x")])
    assert [m.kind for m in plan.measures] == ["items", "sizes", "item_pairs"]
    memory = dpf.sanitize(baskets, plan=plan, key=bytes(32))
    baskets.to_parquet(tmp_path / "in.parquet")
    for rows in (999, 3_000):
        target = tmp_path / f"{rows}.parquet"
        info = dpf.sanitize(tmp_path / "in.parquet", target, plan=plan, key=bytes(32), batch_rows=rows)
        assert info == memory.dp.release
        assert dpf.read(target).dp.release.tables == memory.dp.release.tables
        assert dpf.verify(target).ok
    text = "\n".join(plan.lines())
    assert "1 column's sizes of sets at sigma=" in text
    assert "1 column's supports of pairs of items at sigma=" in text
    forecast = plan.forecast()
    pairs = plan.measures[2]
    assert forecast.loc[("support of pairs", "x"), "std_error"] == pytest.approx(math.sqrt(pairs.sigma2) / 3_000)
    assert "pairs of items" in str(memory.dp.record())
    assert type(plan).from_json(plan.to_json()) == plan
