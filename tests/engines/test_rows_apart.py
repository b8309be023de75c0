"""Rows that do not follow one another have the noise, the place and the choice that they have among all rows."""

import numpy as np
import pytest

import dpframe as dpf
from dpframe.central.tables import Tables
from dpframe.engines.work import RowChecks, consecutive
from dpframe.io.frames import wrap
from dpframe.noise.keystream import Keystream
from dpframe.release.release import Digest, Selection, order_words, release

KEY = bytes(range(32))
ROWS = 3_000


@pytest.fixture(scope="module")
def table():
    """A plan with every kind of column and table, and the codes of its rows."""
    people = dpf.datasets.make_census(ROWS, columns=["age", "sex", "education", "region", "income", "hobbies"])
    people["walk"] = list(np.random.default_rng(1).normal(size=(ROWS, 3)) / 9)
    spaces = {
        "age": (0, 120),
        "sex": ["F", "M"],
        "education": dpf.Ordinal(dpf.datasets.EDUCATION),
        "region": list(dpf.datasets.REGIONS),
        "income": dpf.Nullable(dpf.Real(0, 250_000)),
        "hobbies": dpf.Subset(dpf.datasets.HOBBIES, max_size=3),
        "walk": dpf.Vector(3, 1.0, "l1"),
    }
    plan = dpf.make_plan(people, epsilon=4, spaces=spaces, groups=[("sex", "region")])
    assert {m.kind for m in plan.measures} >= {"one_way", "joint", "sum", "items", "vectors"}
    return plan, wrap(people).codes(plan.spaces, "error")


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(7).permutation(ROWS).astype(np.uint64)


def test_noise(table, rows):
    plan, codes = table
    whole = release(codes, plan, KEY)
    apart = release({name: column[rows] for name, column in codes.items()}, plan, KEY, rows)
    for name in plan.names:
        np.testing.assert_array_equal(apart[name], whole[name][rows])


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_words(bits, rows):
    stream = Keystream(KEY).column("age")
    apart, first = stream.at(rows)
    np.testing.assert_array_equal(apart.words(2, first, ROWS, bits), stream.words(2, 0, ROWS, bits)[rows])
    np.testing.assert_array_equal(apart.words(2, first + 5, 10, bits), stream.words(2, 0, ROWS, bits)[rows[5:15]])


def test_addresses_of_128_bits_are_another_plane():
    stream = Keystream(KEY).column("age")
    addresses = np.stack([np.arange(9, dtype=np.uint64), np.zeros(9, np.uint64)], axis=1)
    apart, first = stream.at(addresses)
    words = apart.words(0, first, 9)
    assert len(set(words.tolist())) == 9
    assert not set(words.tolist()) & set(stream.words(0, 0, 9).tolist())
    high, _ = stream.at(addresses[:, ::-1].copy())
    assert not set(high.words(0, 0, 9)[1:].tolist()) & set(words.tolist())


def test_order(table, rows):
    plan, _ = table
    np.testing.assert_array_equal(order_words(plan, KEY, rows, ROWS), order_words(plan, KEY, 0, ROWS)[rows])


def test_choice_of_a_sample(rows):
    people = dpf.datasets.make_census(ROWS, columns=["age"])
    plan = dpf.make_plan(people, epsilon=1, spaces={"age": (0, 120)}, sample=700)
    chosen = Selection(plan, KEY, ROWS)
    mask = chosen.mask(rows, ROWS)
    assert mask.sum() == 700
    np.testing.assert_array_equal(mask, chosen.mask(0, ROWS)[rows])


def test_tables_and_digests_of_parts_add_up(table, rows):
    plan, codes = table
    whole, merged = Tables(plan, KEY), Tables(plan, KEY)
    whole.add(codes, 0)
    digest, parts = Digest(plan), Digest(plan)
    digest.update(codes)
    for part in np.array_split(rows, 4):
        mine, own = Tables(plan, KEY), Digest(plan)
        mine.add({name: column[part] for name, column in codes.items()}, part)
        own.update({name: column[part] for name, column in codes.items()})
        merged.merge(mine.counts)
        parts.merge(own)
    for one, other in zip(whole.measured(), merged.measured(), strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)
        assert one.starts == other.starts
    assert (parts.hexdigest(), parts.count) == (digest.hexdigest(), ROWS)


def test_checks_know_rows_values_and_places(table, rows):
    plan, codes = table
    checks = RowChecks(plan.spaces, KEY)
    whole = checks(codes, 0)
    assert len(set(whole.tolist())) == ROWS
    np.testing.assert_array_equal(checks({name: column[rows] for name, column in codes.items()}, rows), whole[rows])
    assert not (checks(codes, 1) == whole).any()
    assert not (RowChecks(plan.spaces, bytes(32))(codes, 0) == whole).any()
    for name in plan.names:
        changed = {**codes, name: codes[name].copy()}
        changed[name][5] ^= 1
        assert np.flatnonzero(checks(changed, 0) != whole).tolist() == [5]


def test_consecutive_rows_are_a_number():
    assert consecutive(np.array([7], np.uint64)) == 7
    assert isinstance(consecutive(np.array([7, 9], np.uint64)), np.ndarray)
    assert isinstance(consecutive(np.array([9, 8], np.uint64)), np.ndarray)
