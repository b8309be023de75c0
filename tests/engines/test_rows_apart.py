"""Rows that do not follow one another have the noise, the place and the choice that they have among all rows."""

import hmac
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import dpframe as dpf
from dpframe.engines.work import compact_rows
from dpframe.noise.keystream import Keystream
from dpframe.release.noisy_tables import Tables
from dpframe.release.rows import Digest, Selection, order_words, release
from dpframe.spaces.entries import Entries
from dpframe.tables.frames import wrap
from dpframe.tables.row_checks import RowChecks, added, value_words

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
    plan = dpf.plan(people, epsilon=4, spaces=spaces, groups=[("sex", "region")])
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
    plan = dpf.plan(people, epsilon=1, spaces={"age": (0, 120)}, sample=700)
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
    _, codes = table
    checks = RowChecks(KEY)
    whole = checks(codes, 0, ROWS)
    assert whole.shape == (ROWS, 2)
    assert len(np.unique(whole)) == 2 * ROWS
    mixed = checks({name: column[rows] for name, column in codes.items()}, rows, ROWS)
    np.testing.assert_array_equal(mixed, whole[rows])
    assert added(mixed) == added(whole)
    assert not (checks(codes, 1, ROWS) == whole).any()
    assert not (RowChecks(bytes(32))(codes, 0, ROWS) == whole).any()
    for name in codes:
        changed = {**codes, name: codes[name].copy()}
        changed[name][5] ^= 1
        assert np.flatnonzero((checks(changed, 0, ROWS) != whole).all(axis=1)).tolist() == [5]


def test_checks_of_sets_that_an_even_factor_would_not_tell_apart():
    """Words that differ in their top bits, whose difference no odd factor changes, cancel in no key's sum."""
    whole = np.zeros((50, 2), np.uint64)
    other = whole | np.uint64(1 << 63)
    for key in range(20):
        checks = RowChecks(key.to_bytes(32, "big"))
        assert not (checks({"items": whole}, 0, 50) == checks({"items": other}, 0, 50)).any()


def test_checks_of_a_word_are_its_mac():
    """By the definition: AES-CBC over the row's record, of which the last block counts."""
    codes = {"age": np.arange(7, dtype=np.uint16), "set": np.arange(21, dtype=np.uint64).reshape(7, 3)}
    checks = RowChecks(KEY)
    places = np.arange(4, 11, dtype=np.uint64)
    form = [("", "<u8", ()), ("age", "<u2", ()), ("set", "<u8", (3,))]
    subkey = hmac.digest(KEY, repr(form).encode(), "sha256")
    for row, word in enumerate(checks(codes, 4, 7)):
        record = places[row].tobytes() + codes["age"][row].tobytes() + codes["set"][row].tobytes()
        cipher = Cipher(algorithms.AES(subkey), modes.CBC(bytes(16))).encryptor()
        mac = cipher.update(record.ljust(48, b"\0"))[-16:]
        assert word.tobytes() == mac


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2, None, 1]),
        pa.array([1.5, 2, None, 1.5]),
        pa.array(["a", "b", None, "a"]),
        pa.array(["a", "b", None, "a"]).dictionary_encode(),
        pa.array(["a", "b", None, "a"], pa.large_string()),
        pa.array([True, False, None, True]),
        pa.array([b"a", b"b", None, b"a"]),
        pa.array([date(2020, 1, 1), date(2020, 1, 2), None, date(2020, 1, 1)]),
        pa.array([Decimal("1.10"), Decimal("2.00"), None, Decimal("1.10")]),
        pa.array([["a"], ["b", "c"], None, ["a"]]),
        pa.array([{"x": 1}, {"x": 2}, None, {"x": 1}]),
        [{"x", "y", "z"}, frozenset("ab"), None, {"z", "y", "x"}],
        Entries(["unused", 1, "1"], np.array([1, 2, -1, 1])),
    ],
    ids=lambda values: str(getattr(values, "type", "objects")),
)
def test_words_of_values(values):
    words = value_words(values, KEY)
    assert (words[0] == words[3]).all()
    assert len(np.unique(words, axis=0)) == 3
    numbers = getattr(values, "type", None) in (pa.int64(), pa.float64(), pa.date32())
    assert (value_words(values, bytes(32))[:2] == words[:2]).any() == numbers
    assert (value_words(values[::-1], KEY) == words[::-1]).all()


def test_consecutive_rows_are_a_number():
    assert compact_rows(np.array([7], np.uint64)) == 7
    assert isinstance(compact_rows(np.array([7, 9], np.uint64)), np.ndarray)
    assert isinstance(compact_rows(np.array([9, 8], np.uint64)), np.ndarray)
