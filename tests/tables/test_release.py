"""The release loop, the secret order, the digest, and what a release says of itself."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from strategies import examples

from dpframe.errors import PlanError
from dpframe.noise.keystream import Keystream
from dpframe.plan.build import build_plan
from dpframe.plan.data import PLAN_SCHEMA_VERSION
from dpframe.release.info import ReleaseInfo
from dpframe.release.rows import Digest, order_words, permutation, rank, release
from dpframe.tables.metadata import arrow_metadata, metadata_text

KEY = bytes(range(32))
PLAN = build_plan({"age": (0, 99), "sex": ["F", "M", "X"]}, epsilon=1.0)


def columns(n, seed=0):
    rng = np.random.default_rng(seed)
    return {"age": rng.integers(0, 100, n).astype(np.uint8), "sex": rng.integers(0, 3, n).astype(np.uint8)}


def digest(codes, *, plan=PLAN, edges=()):
    found = Digest(plan)
    n = len(codes["age"])
    for start, stop in itertools.pairwise([0, *edges, n]):
        found.update({name: column[start:stop] for name, column in codes.items()})
    return found.hexdigest()


class TestLoop:
    def test_any_batches_give_the_same(self):
        codes = columns(5_000)
        whole = release(codes, PLAN, KEY)
        for name in codes:
            parts = [
                release({k: v[a:b] for k, v in codes.items()}, PLAN, KEY, a)[name]
                for a, b in itertools.pairwise([0, 1, 17, 17, 4_096, 5_000])
            ]
            assert np.array_equal(np.concatenate(parts), whole[name])
            assert whole[name].dtype == codes[name].dtype

    def test_depends_on_key_and_plan(self):
        codes = columns(5_000)
        whole = release(codes, PLAN, KEY)
        other_key = release(codes, PLAN, bytes(32))
        other_plan = release(codes, build_plan({"age": (0, 99), "sex": ["F", "M", "X"]}, epsilon=1.0, n=5_000), KEY)
        # Two independent releases at this budget agree in well under half of their rows.
        for other in (other_key, other_plan):
            assert (other["age"] == whole["age"]).mean() < 0.5


class TestOrder:
    def test_is_the_sort_by_128_bit_words(self):
        words = order_words(PLAN, KEY, 0, 3_000)
        numbers = [(int(high) << 64) | int(low) for low, high in words]
        assert len(set(numbers)) == 3_000
        expected = sorted(range(3_000), key=numbers.__getitem__)
        assert rank(words).tolist() == expected == permutation(PLAN, KEY, 3_000).tolist()

    @given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2**63, 2**64 - 1])), max_size=40))
    def test_ties_in_the_high_half(self, pairs):
        words = np.array([[low, high] for low, high in pairs], dtype=np.uint64).reshape(-1, 2)
        order = rank(words)
        assert sorted(order.tolist()) == list(range(len(pairs)))
        assert [pairs[i][::-1] for i in order] == sorted(pair[::-1] for pair in pairs)

    def test_words_belong_to_rows(self):
        whole = order_words(PLAN, KEY, 0, 1_000)
        assert np.array_equal(order_words(PLAN, KEY, 377, 100), whole[377:477])

    def test_is_a_plane_of_its_own(self):
        words = order_words(PLAN, KEY, 0, 4_000).reshape(-1)
        for name in ("", "age", "sex"):
            noise = Keystream(KEY, PLAN.digest).column(name).words(0, 0, 4_000, bits=128).reshape(-1)
            # 8,000 words of 64 bits meet by chance with probability below 4e-12.
            assert not np.isin(words, noise).any()

    def test_depends_on_key_and_plan_only(self):
        first = permutation(PLAN, KEY, 1_000)
        assert np.array_equal(first, permutation(PLAN, KEY, 1_000))
        assert not np.array_equal(first, permutation(PLAN, bytes(32), 1_000))
        other = build_plan({"age": (0, 99), "sex": ["F", "M", "X"]}, epsilon=2.0)
        assert not np.array_equal(first, permutation(other, KEY, 1_000))

    def test_is_kept_without_shuffle(self):
        assert permutation(build_plan({"age": (0, 99)}, epsilon=1.0, shuffle=False), KEY, 10) is None

    def test_is_uniform(self):
        """All 24 orders of four rows, over 12,000 keys: a right order fails once in 10⁶ choices of keys."""
        counts = dict.fromkeys(itertools.permutations(range(4)), 0)
        for i in range(12_000):
            counts[tuple(permutation(PLAN, i.to_bytes(32, "big"), 4).tolist())] += 1
        assert stats.chisquare(list(counts.values())).pvalue > 1e-6

    def test_places_are_uniform_in_a_long_table(self):
        """Tenth of origin against tenth of destination, 100,000 rows: fails once in 10⁶ choices of the key."""
        n = 100_000
        order = permutation(PLAN, KEY, n)
        table = np.histogram2d(order, np.arange(n), bins=10)[0]
        # Rows and columns sum to n/10 exactly, so 81 cells are free.
        assert stats.chi2.sf(((table - n / 100) ** 2 / (n / 100)).sum(), 81) > 1e-6
        # Neighbours part: about one fixed neighbour is expected, 25 have probability below 1e-20.
        assert (np.diff(order) == 1).sum() < 25


class TestDigest:
    def test_does_not_depend_on_order_or_batches(self):
        codes = columns(100_000)
        order = np.random.default_rng(1).permutation(100_000)
        expected = digest(codes)
        assert digest(codes, edges=[1, 2, 2, 40_000, 99_999]) == expected
        assert digest({name: column[order] for name, column in codes.items()}) == expected
        assert digest({name: column.astype(np.int64) for name, column in codes.items()}) == expected
        assert len(expected) == 16

    @given(st.integers(0, 999), st.sampled_from(["age", "sex"]), st.integers(1, 2))
    def test_detects_one_changed_cell(self, row, name, shift):
        codes = columns(1_000)
        expected = digest(codes)
        codes[name][row] = (codes[name][row] + shift) % 3 if name == "sex" else (codes[name][row] + shift) % 100
        assert digest(codes) != expected

    def test_detects_dropped_repeated_and_mixed_rows(self):
        codes = columns(1_000)
        expected = digest(codes)
        for index in (np.arange(999), np.r_[0:1000, 5], np.r_[0:999, 5]):
            assert digest({name: column[index] for name, column in codes.items()}) != expected
        mixed = codes | {"sex": np.roll(codes["sex"], 1)}
        assert digest(mixed) != expected

    def test_detects_exchanged_columns(self):
        plan = build_plan({"a": (0, 9), "b": (0, 9)}, epsilon=1.0)
        digests = []
        for a, b in ((1, 2), (2, 1)):
            found = Digest(plan)
            found.update({"a": np.array([a]), "b": np.array([b])})
            digests.append(found.hexdigest())
        assert digests[0] != digests[1]

    def test_detects_cells_exchanged_between_rows(self):
        """All pairs of small rows: a digest that adds columns up on their own would not see who owns what."""
        cells = range(4)
        seen = set()
        for pair in itertools.combinations(itertools.product(cells, range(3)), 2):
            codes = {"age": np.array([p[0] for p in pair]), "sex": np.array([p[1] for p in pair])}
            seen.add(digest(codes))
        assert len(seen) == 12 * 11 // 2

    def test_of_nothing(self):
        found = Digest(PLAN)
        found.update({})
        found.update({"age": np.zeros(0, np.uint8), "sex": np.zeros(0, np.uint8)})
        assert (found.count, found.hexdigest()) == (0, Digest(PLAN).hexdigest())
        assert found.hexdigest() != Digest(replace(PLAN, n=7)).hexdigest()

    def test_counts(self):
        found = Digest(PLAN)
        for n in (3, 0, 40_000):
            found.update(columns(n))
        assert found.count == 40_003


class TestReleaseInfo:
    INFO = ReleaseInfo(PLAN, 12, "00112233445566ff")

    def test_round_trip(self):
        text = self.INFO.to_json()
        assert ReleaseInfo.from_json(text) == self.INFO
        assert set(json.loads(text)) == {"schema", "n", "digest", "plan"}

    def test_it_introduces_itself_and_shows_no_counts(self):
        first, promise, *_, last = repr(self.INFO).splitlines()
        assert first == f"<a release of 12 rows, {len(PLAN.columns)} randomised columns>"
        assert promise.startswith("Promise: ")
        assert last == "More: .explain()"

    @pytest.mark.parametrize("names", [["nothing"], [5], [["x"]], [None]])
    def test_only_columns_of_the_plan_can_be_left_out(self, names):
        text = json.dumps(json.loads(self.INFO.to_json()) | {"left_out": names})
        with pytest.raises(PlanError, match="metadata is damaged"):
            ReleaseInfo.from_json(text)

    def test_metadata_wherever_it_was_kept(self):
        text = self.INFO.to_json()
        metadata = {key.encode(): value.encode() for key, value in arrow_metadata(text).items()}
        assert set(metadata) == {b"dpframe", b"PANDAS_ATTRS"}
        for key in metadata:
            assert metadata_text({key: metadata[key], b"pandas": b"{}"}) == text
        for nothing in (None, {}, {b"PANDAS_ATTRS": b"{"}, {b"PANDAS_ATTRS": b"[]"}, {b"PANDAS_ATTRS": b"[" * 9999}):
            assert metadata_text(nothing) is None
        assert metadata_text({b"PANDAS_ATTRS": b'{"dpframe": {"n": 1}}'}) is None

    @pytest.mark.parametrize(
        "text",
        ["", "{", "[]", "3", "null", "{}", '"text"', None, 7, "[" * 100_000]
        + [
            json.dumps({"schema": 1, "n": 12, "digest": "00", "plan": {}} | change)
            for change in (
                {"schema": "1"},
                {"schema": True},
                {"schema": 0},
                {"schema": None},
                {"n": -1},
                {"n": 1.5},
                {"n": True},
                {"digest": 5},
                {"left_out": "age"},
            )
        ],
    )
    def test_damaged(self, text):
        with pytest.raises(PlanError) as caught:
            ReleaseInfo.from_json(text)
        assert str(caught.value) == "the release's metadata is damaged; attach its plan again"

    def test_newer_schema(self):
        newer = json.dumps(json.loads(self.INFO.to_json()) | {"schema": PLAN_SCHEMA_VERSION + 1, "further": 1})
        with pytest.raises(PlanError) as caught:
            ReleaseInfo.from_json(newer)
        assert str(caught.value) == (
            f"the release has schema {PLAN_SCHEMA_VERSION + 1}, this version reads up to {PLAN_SCHEMA_VERSION}; "
            "upgrade dpframe"
        )

    @settings(max_examples=examples(200))
    @given(st.data())
    def test_no_damage_raises_anything_else(self, data):
        text = self.INFO.to_json()
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 30)))
        damaged = text[:start] + data.draw(st.text('{}[]",:0123456789eE-.tru', max_size=4)) + text[stop:]
        try:
            found = ReleaseInfo.from_json(damaged)
        except PlanError as error:
            assert "\n" not in str(error)
        else:
            assert isinstance(found.plan, type(PLAN))
