"""Drawn rows are brought to the tables that were measured: shares are met, no kind is made up, rare ones stay."""

import itertools

import numpy as np
import pytest
import readings

import dpframe as dpf
from dpframe.estimate import synthetic
from dpframe.estimate.tables import raking
from dpframe.estimate.tables.raking import exchange, raked

SIZES = (4, 5, 6)
N = 20_000


def drawn(law, seed, rows=N):
    generator = np.random.default_rng(seed)
    return list(np.unravel_index(generator.choice(law.size, rows, p=law.ravel()), law.shape))


def shares(cells, columns):
    sizes = [SIZES[c] for c in columns]
    key = np.ravel_multi_index([cells[c] for c in columns], sizes)
    return np.bincount(key, minlength=int(np.prod(sizes))).reshape(sizes) / len(key)


def laws(seed):
    generator = np.random.default_rng(seed)
    return [generator.dirichlet(np.full(np.prod(SIZES), 2.0)).reshape(SIZES) for _ in range(2)]


@pytest.mark.parametrize("one_sweep", [False, True])
def test_shares_of_tables_are_nearly_met(one_sweep, monkeypatch):
    truth, start = laws(0)
    mixed = 0.5 * truth + 0.5 * start
    if one_sweep:
        monkeypatch.setattr(raking, "MOST_PLACES", 0)
    tables = {(0, 1, 2): truth, (0, 1): truth.sum(2), (1, 2): truth.sum(0), (0,): truth.sum((1, 2))}
    rows = drawn(mixed, 1)
    found = raked(rows, SIZES, tables, np.random.default_rng(2))
    for columns, wanted in tables.items():
        before, after = (np.abs(shares(part, columns) - wanted).sum() for part in (rows, found))
        assert after < (0.3 if one_sweep else 0.1) * before, columns
    # The smallest is met to a row of each of its cells, and a few that rounding moves.
    assert np.abs(shares(found, (0,)) - tables[0,]).max() < 20 / N


def test_only_kinds_that_were_drawn_are_there_and_rows_keep_their_own_where_they_may():
    truth, start = laws(3)
    rows = drawn(start, 4)
    found = raked(rows, SIZES, {(0, 1): truth.sum(2)}, np.random.default_rng(5))
    before, after = ({*zip(*(c.tolist() for c in part), strict=True)} for part in (rows, found))
    assert after <= before
    moved = np.any([a != b for a, b in zip(rows, found, strict=True)], axis=0).mean()
    least = np.abs(shares(rows, (0, 1)) - truth.sum(2)).sum() / 2
    assert least - 0.01 < moved < least + 0.05


def test_rare_cells_keep_their_rows_in_mean():
    """200 draws of 500 rows: a cell of half a row each has 100 ± 10 in all; outside 50 to 150 less than 1e-6."""
    law = np.array([[0.499, 0.001], [0.3, 0.2]])
    kept = 0
    for seed in range(200):
        rows = drawn(law, seed, 500)
        first, second = raked(rows, (2, 2), {(0, 1): law}, np.random.default_rng(seed))
        kept += int(((first == 0) & (second == 1)).sum())
    assert 50 < kept < 150


def test_rows_of_many_columns_are_told_apart():
    rows = [np.random.default_rng(seed).integers(0, 50, 300) for seed in range(20)]
    keys = raking.row_keys(rows, [50] * 20)
    assert len(set(keys.tolist())) == len({*zip(*(row.tolist() for row in rows), strict=True)})
    twice = raking.row_keys([np.tile(row, 2) for row in rows], [50] * 20)
    assert (twice[:300] == twice[300:]).all()


@pytest.mark.slow
def test_synthetic_rows_have_the_shares_of_the_estimates():
    frame = dpf.datasets.make_census(20_000, columns=["sex", "region", "education"], random_state=1)
    spaces = {
        "sex": ["F", "M"],
        "region": list(dpf.datasets.REGIONS),
        "education": sorted(frame["education"].astype(str).unique()),
    }
    frame = frame.astype(str)
    safe = frame.dp.sanitize(epsilon=1.0, delta=1e-6, spaces=spaces, key=bytes(32))
    rows = safe.dp.synthesize(random_state=0).astype(str)
    fit = safe.dp.joint(["region", "education"], normalize=True, method="model")["estimate"]
    fit.index = fit.index.map(lambda cell: tuple(map(str, cell)))
    apart = rows.value_counts(["region", "education"], normalize=True).sub(fit, fill_value=0).abs()
    assert float(apart.sum()) < 0.01


@pytest.mark.slow
def test_triples_of_synthetic_rows_are_near_those_of_the_fit(monkeypatch):
    """At a fixed key and seed; rows that are brought to pairs only are twice as far."""
    names = ["sex", "region", "education", "occupation"]
    frame = dpf.datasets.make_census(10_000, columns=names, random_state=1).astype(object).fillna("none").astype(str)
    spaces = {name: sorted(frame[name].unique()) for name in names}
    safe = frame.dp.sanitize(epsilon=1.0, delta=1e-6, spaces=spaces, key=bytes(32))

    def apart():
        models = readings.models_of(safe)
        rows = readings.synthesizer_of(safe, models).draw(
            len(safe), drawing(), {name: safe[name].map(spaces[name].index).to_numpy() for name in names}
        )
        found = []
        for triple in itertools.combinations(range(len(names)), 3):
            fit = models.whole.fit.joint(triple)
            place = np.ravel_multi_index([rows[names[c]].astype(np.int64) for c in triple], fit.shape)
            found.append(np.abs(np.bincount(place, minlength=fit.size) / len(safe) - fit.ravel()).sum())
        return float(np.mean(found))

    def drawing():
        return np.random.default_rng(0)

    near = apart()
    monkeypatch.setattr(synthetic, "MOST_RAKED", 0)
    assert near < 0.6 * apart()


def test_rows_that_break_rules_exchange_values():
    """No column gains or loses a value, none leaves its cell, and nearly no row breaks a rule that rows can keep."""
    generator = np.random.default_rng(0)
    low = generator.integers(0, 100, 3_000)
    high = generator.permutation(low + generator.integers(0, 60, 3_000))
    for within in (None, {"low": low // 1_000, "high": high // 1_000}):
        columns = {"low": low.copy(), "high": high.copy()}
        broken = exchange(columns, [(("low", "high"), lambda rows: rows["low"] > rows["high"])], generator, within)
        assert all((np.sort(columns[name]) == np.sort(own)).all() for name, own in (("low", low), ("high", high)))
        assert (broken == (columns["low"] > columns["high"])).all()
        assert broken.mean() < 0.02 < 0.1 < (low > high).mean()


def test_values_are_exchanged_within_their_cells_only():
    generator = np.random.default_rng(0)
    columns = {"low": generator.integers(0, 100, 1_000), "high": generator.integers(0, 100, 1_000)}
    cells = {name: own // 10 for name, own in columns.items()}
    exchange(columns, [(("low", "high"), lambda rows: rows["low"] > rows["high"])], generator, cells)
    assert all((own // 10 == cells[name]).all() for name, own in columns.items())


def test_rows_that_may_not_stay_have_the_cells_of_others():
    rows = [np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 1])]
    replaced = rows[0] == rows[1]
    drawn = np.transpose(raked(rows, (2, 2), {}, np.random.default_rng(0), replaced))
    assert {(0, 1), (1, 0)} == set(map(tuple, drawn.tolist()))
    assert (drawn[~replaced] == np.transpose(rows)[~replaced]).all()
