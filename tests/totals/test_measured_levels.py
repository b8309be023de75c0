"""Tables of levels: exact counts of nested cells and noise, whatever the batches; a row is one unit of each level."""

import base64
import json
import math
from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.accounting.budget import round_up
from dpframe.accounting.discrete_gaussian import IntegerNoise, noise_step
from dpframe.errors import ParameterError, PlanError
from dpframe.noise.gaussian import gaussian_table
from dpframe.plan.build import build_plan
from dpframe.plan.levels import breaks, cells_between, children, level_sizes, stops_of
from dpframe.plan.measures import MEASURED_SLACK_SHARE, Measure, check_measures, measures_step
from dpframe.plan.plan import Plan
from dpframe.release.info import ReleaseInfo, packed, unpacked
from dpframe.release.noisy_tables import Tables, measured_tables
from dpframe.spaces import Categorical, Integer, Nullable, Real

N = 6_000
KEY = bytes(range(32))
SPACES = {
    "hours": Nullable(Integer(-20, 999)),
    "gain": Real(0.0, 1e5),
    "weight": Real(-1.0, 3.0),
    "sex": Categorical(["F", "M"]),
}


def levels_of(name, sigma2, spaces=SPACES):
    return [Measure("one_way", (name,), sigma2, size, i) for i, size in enumerate(level_sizes(spaces[name]), start=1)]


def plan_of(sigma2, n=N, names=("hours", "gain", "weight")):
    """Return a plan with levels of this noise."""
    measures = tuple(m for name in names for m in levels_of(name, sigma2))
    return build_plan(SPACES, epsilon=3.0, delta=1e-6, n=n, measures=measures)


def codes(n=N, seed=1):
    generator = np.random.default_rng(seed)
    hours = np.where(generator.random(n) < 0.6, 60, generator.integers(0, 1_021, n))
    gain = np.where(generator.random(n) < 0.9, 0, generator.integers(0, 65_537, n))
    weight = np.clip(generator.normal(30_000, 2_000, n), 0, 65_536)
    return {
        "hours": hours.astype(np.uint16),
        "gain": gain.astype(np.uint32),
        "weight": weight.astype(np.uint32),
        "sex": generator.integers(0, 2, n).astype(np.uint8),
    }


def exact(column, space, measure, parents):
    """Return the counts of a level's cells, by looking at every cell."""
    size, column = measure.most, np.sort(column[column < space.values].astype(np.int64))
    if measure.level == 1:
        starts = cells_between(space, size, 0, space.values)
    else:
        starts = children(space, measure.level, list(parents))
    stops = stops_of(space, size, starts)
    return np.searchsorted(column, stops) - np.searchsorted(column, starts)


@cache
def noisy_plan():
    return plan_of(900.0)


class TestCounts:
    """What tables hold."""

    @pytest.mark.parametrize("noise", [False, True])
    def test_levels_are_the_counts_of_their_cells(self, noise, monkeypatch):
        if not noise:
            monkeypatch.setattr("dpframe.release.noisy_tables.noisy", lambda counts, *_: np.asarray(counts, np.int64))
        table, errors = codes(), []
        for found in measured_tables(table, noisy_plan(), KEY):
            name, measure = found.measure.columns[0], found.measure
            space = SPACES[name]
            wanted = exact(table[name], space, measure, found.starts[0])
            if measure.level == 1 and space.has_null:
                wanted = np.append(wanted, (table[name] == space.values).sum())
            assert found.counts.shape == wanted.shape
            errors.extend(found.counts - wanted)
            # The spike of gains is a code of its own on the first level, and others are few there.
            assert measure.level != 2 or found.starts[0] or name == "gain"
        # About 1,000 counts at σ = 30: one beyond 6σ has probability 2e-6, their variance beyond a quarter off 1e-7.
        assert np.abs(errors).max() < 180 * noise + 1
        assert abs(np.mean(np.square(errors)) / 900 - noise) < 0.25

    def test_a_heap_is_found_down_to_its_code(self):
        found = {(t.measure.columns[0], t.measure.level): t for t in measured_tables(codes(), noisy_plan(), KEY)}
        hours = found["hours", 2]
        starts = children(SPACES["hours"], 2, list(hours.starts[0]))
        assert starts[np.argmax(hours.counts)] == 60
        # The bound of nine tenths zeros is a code of its own already, and is not divided.
        assert 0 not in found["gain", 2].starts[0]

    def test_parents_stand_out_of_the_level_before(self):
        before = {}
        for found in measured_tables(codes(), noisy_plan(), KEY):
            measure, space = found.measure, SPACES[found.measure.columns[0]]
            if measure.level > 1:
                starts, counts = before[measure.columns, measure.level - 1]
                assert (counts[np.searchsorted(starts, found.starts[0])] >= 120).all()
                assert np.isin(found.starts[0], starts).all()
                assert len(found.starts[0]) <= 64
                before[measure.columns, measure.level] = (children(space, measure.level, found.starts[0]), found.counts)
            else:
                before[measure.columns, 1] = (np.array(found.starts[0]), found.counts)

    @pytest.mark.parametrize("rows", [1, 170, N])
    def test_any_batches_give_the_same_tables(self, rows):
        count = 300 if rows == 1 else N
        table, tables = codes(count), Tables(noisy_plan(), KEY)
        for start in range(0, count, rows):
            tables.add({name: column[start : start + rows] for name, column in table.items()}, start)
        assert tables.measured() == measured_tables(table, noisy_plan(), KEY)

    def test_parts_that_were_counted_elsewhere_give_the_same_tables(self):
        table, whole = codes(), Tables(noisy_plan(), KEY)
        for start in range(0, N, 2_500):
            part = Tables(noisy_plan(), KEY)
            part.add({name: column[start : start + 2_500] for name, column in table.items()}, start)
            whole.merge(part.counts)
        assert whole.measured() == measured_tables(table, noisy_plan(), KEY)

    def test_nothing_stands_out_of_noise_alone(self):
        empty = {name: column[:0] for name, column in codes().items()}
        for found in measured_tables(empty, noisy_plan(), KEY):
            # 202 cells that hold nothing at 4σ: one is divided with probability 0.007.
            if found.measure.level > 1:
                assert (found.starts, found.counts.shape) == (((),), (0,))

    def test_levels_share_no_noise(self):
        # Counts of one code that all rows have, in levels of the same σ, at 40 keys: errors' correlations beyond 0.6
        # of 40 independent pairs have probability below 1e-4 each.
        table = {name: np.full_like(column, 7) for name, column in codes(3_000).items()}
        plan, errors = plan_of(900.0, 3_000, ("gain",)), []
        for key in range(40):
            found = measured_tables(table, plan, bytes([key]) * 32)
            errors.append([int(t.counts.max()) - 3_000 for t in found])
        assert len(errors[0]) == 4
        assert (np.abs(np.corrcoef(np.array(errors).T) - np.eye(4)) < 0.6).all()
        assert len({tuple(row) for row in errors}) == 40

    def test_columns_share_no_noise(self):
        spaces = {"a": Integer(0, 999), "b": Integer(0, 999)}
        measures = tuple(m for name in spaces for m in levels_of(name, 900.0, spaces))
        plan = build_plan(spaces, epsilon=3.0, delta=1e-6, n=500, measures=measures)
        rows = np.arange(500, dtype=np.uint16)
        first, _, second, _ = measured_tables({"a": rows, "b": rows}, plan, KEY)
        assert (first.counts != second.counts).sum() > 50


def test_a_replaced_row_leaves_one_cell_of_a_level_and_enters_one():
    """Whatever cells are divided: sensitivity is that of one histogram, with each level's own noise."""
    generator, moved = np.random.default_rng(3), 0
    for name in ("hours", "gain", "weight"):
        space, sizes = SPACES[name], level_sizes(SPACES[name])
        special = [0, 1, *breaks(space).tolist(), space.values - 1, space.values - 1 + space.has_null]
        table = codes(200)[name]
        for _ in range(60):
            row, other = int(generator.integers(200)), table.copy()
            code = generator.choice(special) if generator.random() < 0.5 else generator.integers(0, space.values)
            other[row] = code
            for measure in levels_of(name, 1.0):
                parents = ()
                if measure.level > 1:
                    before = cells_between(space, sizes[measure.level - 2], 0, space.values)
                    some = generator.choice(before, min(int(generator.integers(0, 65)), len(before)), replace=False)
                    parents = np.sort(some).tolist()
                change = exact(other, space, measure, parents) - exact(table, space, measure, parents)
                moved += int(np.abs(change).sum())
                assert np.abs(change).max(initial=0) <= 1
                assert (change == 1).sum() <= 1
                assert (change == -1).sum() <= 1
    assert moved > 200


def test_exact_counts_move_with_one_row_by_two_units_at_most():
    for name in ("hours", "gain", "weight"):
        table = codes(400)
        plan = plan_of(900.0, 400, (name,))
        for code in (0, 1, 20, SPACES[name].values - 1, SPACES[name].values - 1 + SPACES[name].has_null):
            other = table | {name: table[name].copy()}
            other[name][17] = code
            counts = []
            for rows in (table, other):
                tables = Tables(plan, KEY)
                tables.add(rows, 0)
                counts.append(tables.counts[1:])
            for one, two in zip(*counts, strict=True):
                assert np.abs(one - two).sum() in (0, 2)
                assert one.sum() == two.sum() == 400


class TestCost:
    """What levels are charged for."""

    def test_each_level_is_a_histogram_of_its_own(self):
        measures = levels_of("gain", 900.0) + levels_of("hours", 400.0)
        alone = [IntegerNoise(m.sigma2, 2, 1, round_up(gaussian_table(m.sigma2).distance)) for m in measures]
        assert measures_step(measures, SPACES, 1, 1e-6) == noise_step(alone, 1, MEASURED_SLACK_SHARE * 1e-6)
        assert [m.noise(SPACES) for m in measures] == alone

    def test_levels_cost_what_they_add_up_to(self):
        squares = [float(measures_step(levels_of("gain", 900.0)[:k], SPACES, 1, 1e-6).square) for k in (1, 2, 3, 4)]
        assert np.allclose(np.array(squares) / squares[0], [1, 2, 3, 4], rtol=1e-3)
        # μ² = numbers · (span/σ)², the numbers of a replaced row being two.
        assert math.isclose(squares[0], 2 / 900.0, rel_tol=1e-3)

    def test_a_plan_with_levels_is_verified(self):
        assert noisy_plan().verify().ok
        assert plan_of(100.0 * 2**10).verify().ok


class TestPlans:
    """Levels in plans: written, read and refused."""

    def test_plans_are_read_back_as_they_were(self):
        read = Plan.from_json(noisy_plan().to_json())
        assert read == noisy_plan()
        assert read.digest == noisy_plan().digest
        assert [m.level for m in read.measures] == [1, 2, 1, 2, 3, 4, 1, 2, 3, 4]

    def test_level_zero_is_not_written(self):
        assert "level" not in Measure("one_way", ("gain",), 4.0, 60).to_json()
        assert Measure.from_json(Measure("one_way", ("gain",), 4.0, 64, 1).to_json()).level == 1

    @pytest.mark.parametrize(
        ("measures", "problem"),
        [
            ([("gain", 64, 5)], "a level of column 'gain' must be one of the 4 of its space"),
            ([("gain", 65, 1)], "a level of column 'gain' must be one of the 4 of its space"),
            ([("gain", 64, 1), ("gain", 1_023, 2)], "a level of column 'gain' must be one of the 4 of its space"),
            ([("sex", 2, 1)], "a level of column 'sex' must be one of the 0 of its space"),
            ([("gain", 1_024, 2)], "level 2 of column 'gain' needs the first; measure both"),
            ([("gain", 60, 0), ("gain", 1_024, 2)], "level 2 of column 'gain' needs the first; measure both"),
            ([("weight", 64, 1), ("gain", 1_024, 2)], "level 2 of column 'gain' needs the first; measure both"),
            ([("gain", 64, 1), ("gain", 64, 1)], "the one_way of gain is measured twice; name it once"),
            ([("gain", 60, 0), ("gain", 64, 1)], "the one_way of gain is measured twice; name it once"),
        ],
    )
    def test_levels_that_are_none_are_refused(self, measures, problem):
        found = [Measure("one_way", (name,), 900.0, most, level) for name, most, level in measures]
        with pytest.raises(ParameterError, match=problem):
            check_measures(found, SPACES)
        with pytest.raises(ParameterError, match=problem):
            build_plan(SPACES, epsilon=3.0, delta=1e-6, n=N, measures=tuple(found))

    @pytest.mark.parametrize("level", [-1, 1.0, True, "1", None])
    def test_a_level_is_a_whole_number(self, level):
        with pytest.raises(ParameterError, match=r"level of a measure.*at least 0"):
            Measure("one_way", ("gain",), 900.0, 64, level)

    @pytest.mark.parametrize("kind", ["joint", "sum", "items"])
    def test_a_level_is_that_of_a_one_way(self, kind):
        columns = ("gain", "sex") if kind == "joint" else ("gain",)
        with pytest.raises(ParameterError, match=r"level belongs to a.*one_way; leave it out"):
            Measure(kind, columns, 900.0, 64, 1)


RAW = pd.DataFrame({"hours": codes()["hours"], "gain": codes()["gain"] * (1e5 / 65_536)})
RAW["hours"] = RAW["hours"].astype("Int64").where(RAW["hours"] < 1_020) - 20
SOME = {name: SPACES[name] for name in RAW}


@cache
def levels_plan():
    return build_plan(
        SOME, epsilon=3.0, delta=1e-6, n=N, measures=(*levels_of("hours", 900.0), *levels_of("gain", 900.0))
    )


@cache
def levels_release():
    return dpf.sanitize(RAW, plan=levels_plan(), key=KEY)


@cache
def levels_info():
    return levels_release().dp.release


class TestReleases:
    """Level tables in the description of a release."""

    @pytest.mark.parametrize("batch_rows", [700, N])
    def test_parquet_has_the_same_tables(self, tmp_path, batch_rows):
        RAW.to_parquet(tmp_path / "in.parquet")
        target = tmp_path / "out.parquet"
        info = dpf.sanitize(tmp_path / "in.parquet", target, plan=levels_plan(), key=KEY, batch_rows=batch_rows)
        assert info == levels_info()
        assert dpf.read(target).dp.release.tables == levels_info().tables
        assert dpf.verify(target).ok

    def test_the_description_is_read_back_as_it_was(self):
        assert ReleaseInfo.from_json(levels_info().to_json()) == levels_info()
        assert [t.measure for t in levels_info().tables] == list(levels_plan().measures)

    def test_tables_are_packed_and_unpacked(self):
        data = json.loads(json.dumps(packed(levels_info().tables)))
        assert unpacked(data, levels_plan().measures, levels_plan().spaces) == levels_info().tables
        empty = {name: np.zeros(0, dtype=np.uint32) for name in SOME}
        tables = measured_tables(empty, levels_plan(), KEY)
        assert unpacked(packed(tables), levels_plan().measures, levels_plan().spaces) == tables

    @pytest.mark.parametrize(
        "change",
        [
            lambda bins: bins.pop(0),
            lambda bins: bins.clear(),
            lambda bins: bins[0][2].append(bins[0][2][-1]),
            lambda bins: bins[0].__setitem__(2, [bins[0][2][0], 0]),
            lambda bins: bins[0][2].append(2),
            lambda bins: bins[0][2].__setitem__(-1, 10**6),
            lambda bins: bins[0][2].__setitem__(0, -5),
            lambda bins: bins[0][2].__setitem__(0, 2.0),
            lambda bins: bins[0][2].pop(),
            lambda bins: bins[0].__setitem__(1, 1_024),
            lambda bins: bins[0].__setitem__(0, "sex"),
            lambda bins: bins[0].pop(),
            lambda bins: bins[0].__setitem__(2, None),
            lambda bins: bins[0].__setitem__(2, ["1"]),
        ],
    )
    def test_damaged_cells_are_refused_as_other_tables_are(self, change):
        data = json.loads(levels_info().to_json())
        change(data["tables"]["bins"])
        assert unpacked(data["tables"], levels_plan().measures, levels_plan().spaces) is None
        with pytest.raises(PlanError, match=r"measured tables are not.*digest is another"):
            ReleaseInfo.from_json(json.dumps(data))

    def test_a_changed_count_is_refused(self):
        data = json.loads(levels_info().to_json())
        blob = bytearray(base64.b64decode(data["tables"]["counts"]))
        blob[-20] ^= 4
        data["tables"]["counts"] = base64.b64encode(bytes(blob)).decode()
        with pytest.raises(PlanError, match="their digest is another"):
            ReleaseInfo.from_json(json.dumps(data))
