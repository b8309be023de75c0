"""Columns of sets: coding from every kind of list, refusals, the cut, and the same release on every path."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import SECRET, refused
from conftest import KEY
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import examples

import dpframe as dpf
from dpframe import Categorical, Column, Matrix, Nullable, Product, Subset
from dpframe.channels import AsymmetricBitFlip, BitFlip, RandomizedResponse, WithNull, mechanism_for
from dpframe.channels.bit_flips import cut
from dpframe.errors import ColumnError, OrderLeakWarning, ParameterError, PlanError, PrivacyLeakWarning
from dpframe.noise.keystream import Keystream
from dpframe.plan.build import build_plan
from dpframe.release import conversion, spill
from dpframe.release.order_watch import SortedWatch
from dpframe.release.rows import Digest
from dpframe.tables import parquet_form
from dpframe.tables.parquet_reader import ParquetInput

ITEMS = ["art", "bingo", "chess", "darts"]
SPACE = Subset(ITEMS, max_size=3)
HOBBIES = Subset(dpf.datasets.HOBBIES, max_size=6)


@pytest.fixture(scope="module")
def hobbies():
    return dpf.datasets.make_census(3_000, columns=["hobbies", "age"])


# The space


@settings(max_examples=examples(100))
@given(st.data())
def test_a_column_is_coded_as_its_values_are(data):
    count = data.draw(st.sampled_from([1, 3, 64, 65, 130]))
    space = Subset(range(count), other=data.draw(st.sampled_from([None, 0])))
    most = count - 1 if space.other is None else count + 40
    lists = data.draw(st.lists(st.none() | st.lists(st.integers(0, most), unique=True, max_size=9), max_size=20))
    expected = [space.fixed_point if v is None else sum({1 << (i if i < count else 0) for i in v}) for v in lists]
    kinds = [
        pa.array(lists, pa.list_(pa.int64())),
        pa.array(lists, pa.large_list(pa.int16())),
        pa.array([None, *lists], pa.list_(pa.float64()))[1:],
        pa.chunked_array([pa.array(lists, pa.list_(pa.int64()))] * 1),
        pd.Series(lists, dtype=pd.ArrowDtype(pa.list_(pa.int32()))),
        [v if v is None else set(v) for v in lists],
        [v if v is None else tuple(v) for v in lists],
        [v if v is None else np.array(v, dtype=np.int8 if count < 65 else np.int16) for v in lists],
    ]
    for column in kinds:
        codes = space.encode(column, nulls="impute")
        assert codes.shape == (len(lists), space.code_words)
        assert space.code_list(codes) == expected


def test_what_is_in_a_space_and_how_far_apart():
    assert (SPACE.diameter, SPACE.min_distance, SPACE.size, SPACE.points) == (4.0, 1.0, 16, 15)
    assert (Subset(range(9), max_size=2).diameter, Subset(range(9)).diameter) == (4.0, 9.0)
    assert SPACE.contains({"art", "chess"})
    assert SPACE.contains(())
    for outside in (ITEMS, ["zebra"], ["art", "art"], "art", None, [["art"]], [None], {"art": 1}, 5):
        assert not SPACE.contains(outside)
    assert SPACE.distance(["art"], ["art", "bingo", "chess"]) == 2
    assert dpf.Subset.from_json({"items": ["a", "b"]}) == Subset(["a", "b"])
    assert Subset(ITEMS, strict=True).released == Subset(ITEMS)
    with pytest.raises(ParameterError, match="17 items have too many sets to list"):
        Subset(range(17)).labels()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (((),), "items must be at least 1"),
        ((["a", "a"],), "items holds a value twice"),
        (({"a", "b"},), "items must be a list"),
        ((["a", 1],), "all of one type"),
        ((["a"], 2), "max_size must be a whole number of items, from 1 to 1, or None"),
        ((["a"], 0), "max_size must be"),
        ((["a"], True), "max_size must be"),
        ((["a"], None, 3), "other must be a value of the items' type"),
        ((["a"], None, None, "yes"), "strict must be True or False"),
        ((range(70_000),), "items must be at most 65536"),
    ],
)
def test_bad_spaces_are_refused(arguments, match):
    refused(ParameterError, match, lambda: Subset(*arguments))


BAD = [
    ([["art"], ["art", SECRET]], r"holds an item outside the declared list; .* at row position 1$", SPACE),
    ([["art"], ["bingo", "art", "bingo"]], r"holds an item twice; .*nulls='impute'.* at row position 1$", SPACE),
    ([[], ["art", None]], r"holds a null item; .*nulls='impute'.* at row position 1$", SPACE),
    ([["art"], None], r"is null, .* at row position 1$", SPACE),
    ([[], [], ITEMS], r"holds more than max_size=3 items; .* at row position 2$", Subset(ITEMS, 3, strict=True)),
]


@pytest.mark.parametrize(("values", "match", "space"), BAD)
@pytest.mark.parametrize("kind", ["list", "large_list", "dictionary", "objects"])
def test_bad_sets_are_refused_with_their_row(values, match, space, kind):
    types = {
        "list": pa.list_(pa.string()),
        "large_list": pa.large_list(pa.large_string()),
        "dictionary": pa.list_(pa.dictionary(pa.int8(), pa.string())),
    }
    column = values if kind == "objects" else pa.array(values, types[kind])
    refused(ColumnError, match, lambda: space.encode(column))


def test_bad_objects_are_refused():
    for value, match in [
        ("art", "is no set, .* at row position 1"),
        ({"art": SECRET}, "is no set"),
        (SECRET, "is no set"),
        ([["art"]], "holds a list within a list"),
        (np.zeros((2, 2)), "is no set"),
    ]:
        refused(ColumnError, match, lambda value=value: SPACE.encode([[], value]))
    for type_ in (pa.string(), pa.list_(pa.list_(pa.string())), pa.list_(pa.int8()), pa.map_(pa.string(), pa.string())):
        refused(ColumnError, "has type", lambda type_=type_: SPACE.encode(pa.nulls(2, type_), nulls="impute"))


def test_imputing_drops_null_items_and_duplicates():
    lists = [["art", None, "art"], None, [None], ["chess"]]
    for column in (lists, pa.array(lists), pa.array(lists, pa.list_(pa.dictionary(pa.int8(), pa.string())))):
        assert SPACE.encode(column, nulls="impute")[:, 0].tolist() == [1, 0, 0, 4]
        assert Nullable(SPACE).encode(column)[:, 0].tolist() == [1, 16, 0, 4]
    # Several items outside the list are one, and no duplicate.
    other = Subset(["a", "b"], other="b")
    assert other.encode(pa.array([["x", "y", "a"], ["b", "z"]]))[:, 0].tolist() == [3, 2]
    assert other.encode([["x", "y", "a"], ["b", "z"]])[:, 0].tolist() == [3, 2]
    refused(ColumnError, "holds an item twice", lambda: other.encode(pa.array([["a", "x", "a", "y"]])))


def test_items_under_null_lists_are_not_read():
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 3]), pa.array([SECRET, "chess", "art"]), mask=pa.array([True, False])
    )
    assert hidden.values.to_pylist()[0] == SECRET
    assert SPACE.encode(hidden, nulls="impute")[:, 0].tolist() == [0, 1]
    assert Nullable(SPACE).encode(hidden)[:, 0].tolist() == [16, 1]
    fixed = pa.array([["art", "chess"], None, ["bingo", "art"]], pa.list_(pa.string(), 2))
    assert SPACE.encode(fixed, nulls="impute")[:, 0].tolist() == [5, 0, 3]


# The cut, and the last bits


def test_the_cut_is_by_the_row_alone_and_fair():
    space = Subset(range(70), max_size=3)
    codes = np.tile(space.encode([list(range(60, 66))]), (60_000, 1))
    stream = Keystream(KEY).column("x")
    kept = cut(codes, 3, partial(stream.words, 0, 0))
    assert (np.bitwise_count(kept).sum(axis=1) == 3).all()
    assert not (kept & ~codes).any()
    np.testing.assert_array_equal(cut(codes[7:99], 3, partial(stream.words, 0, 7)), kept[7:99])
    small = codes.copy()
    small[::2] = space.encode([[1, 69]])
    np.testing.assert_array_equal(cut(small, 3, partial(stream.words, 0, 0))[1::2], kept[1::2])
    np.testing.assert_array_equal(cut(small, 3, partial(stream.words, 0, 0))[::2], small[::2])
    # All 20 parts are equally likely: chi-square at 19 degrees, above 60 with probability 4e-6.
    counts = np.array(list(Counter(map(tuple, kept.tolist())).values()))
    assert len(counts) == 20
    assert ((counts - 3_000) ** 2 / 3_000).sum() < 60


@pytest.mark.slow
@pytest.mark.parametrize("cls", [BitFlip, AsymmetricBitFlip])
def test_noise_and_cut_come_from_planes_of_their_own(cls):
    """One plane for the cut and one per word and binary digit, all different.

    A bit is shown where the binary fraction of its digits' words, complemented, is below p or q.
    """
    mechanism, rows = cls(70, 3, 12.0), 40
    space, stream, first = Subset(range(70), max_size=3), Keystream(KEY).column("x"), 9
    digits, total = mechanism.flips.total.bit_length() - 1, mechanism.flips.total
    codes = space.code_list(space.encode([list(range(row % 70)) for row in range(rows)]))
    kept = space.code_list(cut(space.code_array(codes), 3, partial(stream.words, 0, first)))
    expected = []
    for row, code in enumerate(kept):
        out = 0
        for i in range(70):
            words = [stream.words(1 + i // 64 * digits + j, first + row, 1)[0] for j in range(digits)]
            drawn = sum((~int(word) >> i % 64 & 1) << digits - 1 - j for j, word in enumerate(words))
            if cls is BitFlip:
                shown = (drawn < mechanism.flips.zeros) != bool(code >> i & 1)
            else:
                shown = drawn < (mechanism.flips.ones if code >> i & 1 else mechanism.flips.zeros)
            out |= shown << i
        expected.append(out)
    assert total == 1 << digits
    found = space.code_list(mechanism.sample(space.code_array(codes), stream, first))
    assert found == expected


@pytest.mark.parametrize("count", [1, 20, 63, 64, 65, 169])
def test_the_last_bits_of_a_bit_vector_say_nothing(count):
    """Noise beyond the last item would be a second, unaccounted release."""
    for mechanism in (BitFlip(count, None, 1.0), WithNull(BitFlip, (count, None), 1.0)):
        codes = np.zeros((5_000, mechanism.code_words), dtype=np.uint64)
        out = mechanism.sample(codes, Keystream(KEY).column("x"))
        bits = np.unpackbits(out.view(np.uint8), axis=1, bitorder="little")
        null = bits[:, count] > 0 if isinstance(mechanism, WithNull) else np.zeros(5_000, bool)
        assert not bits[:, count + (mechanism.size % 2) :].any()
        assert not bits[null, :count].any()
        assert bits[~null, :count].any(axis=0).all()


def test_the_claim_covers_neighbours_as_far_apart_as_they_may_be():
    for items, most, distance in [(9, 2, 4), (9, 5, 9), (9, None, 9)]:
        mechanism = BitFlip(items, most, 3.0)
        p, q = mechanism.shown
        assert distance * math.log(p / q) == pytest.approx(mechanism.loss.pure(), rel=1e-12)
    p, q = AsymmetricBitFlip(9, 4, 3.0).shown
    assert (p, 4 * math.log((1 - q) / q)) == (0.5, pytest.approx(3.0, rel=1e-4))
    with pytest.raises(ParameterError, match=r"asymmetric_bitflip needs max_size of.*half the items"):
        AsymmetricBitFlip(9, 5, 3.0)
    with pytest.raises(ParameterError, match="too small for sets of 9 items"):
        BitFlip(9, None, 1e-18)


def test_delta_is_the_hockey_stick_of_binomials():
    """δ(ε) = Σ_j C(d, j)·max(0, (1−q)^j q^(d−j) − e^ε q^j (1−q)^(d−j)), here in floats."""
    mechanism = BitFlip(40, 10, 2.0, 1e-4)
    p, q = mechanism.shown
    for epsilon in (0.1, 1.0, 2.0, 3.0):
        terms = [
            math.comb(20, j) * max(0.0, p**j * q ** (20 - j) - math.exp(epsilon) * q**j * p ** (20 - j))
            for j in range(21)
        ]
        assert mechanism.loss.delta(epsilon) == pytest.approx(math.fsum(terms), rel=1e-9)
    assert 0.9e-4 < mechanism.loss.delta(2.0) <= 1e-4


def test_sets_take_their_own_mechanisms_only():
    refused(
        ParameterError, "mechanism must be one of asymmetric_bitflip, bitflip", lambda: mechanism_for(SPACE, 1, 0, "x")
    )
    refused(ParameterError, "mechanism must be one of", lambda: mechanism_for(Categorical(["a"]), 1, 0, "bitflip"))
    refused(
        ParameterError,
        "mechanism must be one of bitflip",
        lambda: mechanism_for(Nullable(SPACE), 1, 0, "asymmetric_bitflip"),
    )
    refused(ParameterError, "a product holds no sets", lambda: Product(SPACE, ["a"]))


# Every path


def test_every_kind_of_table_gives_the_same_release(hobbies, tmp_path):
    options = {"spaces": {"hobbies": HOBBIES, "age": (0, 120)}, "key": KEY}
    safe = dpf.sanitize(hobbies, epsilon=4.0, **options)
    assert safe.dp.verify()
    expected = safe["hobbies"].tolist()
    assert all(type(v) is list for v in expected)
    order = {item: i for i, item in enumerate(dpf.datasets.HOBBIES)}
    assert all([order[i] for i in v] == sorted(order[i] for i in v) for v in expected), "the items' own order"
    table = pa.Table.from_pandas(hobbies, preserve_index=False)
    types = [
        pa.list_(pa.string()),
        pa.large_list(pa.large_string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
    ]
    for type_ in types:
        out = dpf.sanitize(table.set_column(0, "hobbies", table["hobbies"].cast(type_)), epsilon=4.0, **options)
        assert out.schema.field("hobbies").type == type_
        assert out["hobbies"].to_pylist() == expected
        arrow = hobbies.assign(
            hobbies=pd.Series(table["hobbies"].cast(type_).combine_chunks(), dtype=pd.ArrowDtype(type_))
        )
        again = dpf.sanitize(arrow, epsilon=4.0, **options)
        assert again["hobbies"].dtype == arrow["hobbies"].dtype
        assert [list(v) for v in again["hobbies"]] == expected
    for inner in (pl.String, pl.Enum(list(dpf.datasets.HOBBIES))):
        frame = pl.DataFrame(table).with_columns(pl.col("hobbies").cast(pl.List(inner)))
        out = dpf.sanitize(frame, epsilon=4.0, **options)
        assert out.schema == frame.schema
        assert out["hobbies"].to_list() == expected


@pytest.mark.parametrize("shuffle", [True, False])
def test_parquet_gives_the_same_release_in_any_batches(hobbies, tmp_path, shuffle, monkeypatch):
    monkeypatch.setattr(spill, "SPILL_ROWS", 700)
    monkeypatch.setattr(conversion, "SPILL_BUCKET_ROWS", 900)
    monkeypatch.setattr(parquet_form, "ROW_GROUP_ROWS", 2_000)
    spaces = {"hobbies": Nullable(HOBBIES), "age": (0, 120)}
    rows = hobbies.copy()
    rows.loc[::9, "hobbies"] = None
    plan = dpf.plan(rows, 4.0, spaces=spaces, shuffle=shuffle)
    safe = dpf.sanitize(rows, plan=plan, key=KEY)
    table = pa.Table.from_pandas(rows, preserve_index=False)
    digests = set()
    for i, (type_, group, batch) in enumerate(
        [(pa.list_(pa.string()), 500, 1 << 17), (pa.large_list(pa.string()), 3_000, 77)]
    ):
        source, target = tmp_path / f"in{i}.parquet", tmp_path / f"out{i}.parquet"
        pq.write_table(table.set_column(0, "hobbies", table["hobbies"].cast(type_)), source, row_group_size=group)
        digests.add(dpf.sanitize(source, target, plan=plan, key=KEY, batch_rows=batch).digest)
        back = pq.read_table(target)
        assert back.schema.field("hobbies").type.value_type == pa.string()
        assert pa.types.is_large_list(back.schema.field("hobbies").type) == (i == 1)
        assert back["hobbies"].to_pylist() == safe["hobbies"].where(safe["hobbies"].notna(), None).tolist()
        footer = pq.ParquetFile(target).metadata
        assert [footer.row_group(g).num_rows for g in range(footer.num_row_groups)] == [1_000] * 3
        assert dpf.Estimates(target).verify()
        assert dpf.read(target).dp.verify()
        assert pl.read_parquet(target).schema["hobbies"] == pl.List(pl.String)
    assert digests == {safe.dp.release.digest}


@pytest.mark.slow
def test_wide_sets_are_written_in_smaller_row_groups(tmp_path):
    rows = 6_000
    table = pa.table({"x": pa.array([[0]] * rows)})
    pq.write_table(table, tmp_path / "in.parquet")
    space = Subset(range(64 * 300), max_size=1)
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 20.0, spaces={"x": space}, shuffle=True)
    footer = pq.ParquetFile(tmp_path / "out.parquet").metadata
    expected = parquet_form.ROW_GROUP_ROWS // 600
    assert [footer.row_group(g).num_rows for g in range(footer.num_row_groups)] == [
        *[expected] * (rows // expected),
        rows % expected,
    ]


def test_columns_passed_through_beside_sets(hobbies, tmp_path):
    table = pa.Table.from_pandas(hobbies, preserve_index=False)
    table = table.append_column("tags", table["hobbies"])
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=400)
    dpf.sanitize(
        tmp_path / "in.parquet",
        tmp_path / "out.parquet",
        2.0,
        spaces={"hobbies": HOBBIES, "age": (0, 120)},
        passthrough=["tags"],
    )
    back = pq.read_table(tmp_path / "out.parquet")
    assert sorted(map(str, back["tags"].to_pylist())) == sorted(map(str, hobbies["hobbies"]))


def test_a_dictionary_of_items_stays_one(tmp_path):
    """Of a file written by the Arrow C++ library alone a list's parts have other names."""
    type_ = pa.list_(pa.dictionary(pa.int32(), pa.string()))
    table = pa.table({"a.b": pa.array([["art"], [], ["chess", "art"]] * 50, type_)})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=40, use_compliant_nested_type=False)
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 2.0, spaces={"a.b": SPACE})
    assert pa.types.is_dictionary(pq.read_schema(tmp_path / "out.parquet").field(0).type.value_type)
    assert dpf.Estimates(tmp_path / "out.parquet").verify()


def test_items_are_read_as_dictionaries_and_no_batch_crosses_a_row_group(tmp_path):
    """So no string is touched per row; Arrow cannot read such lists across row groups."""
    table = pa.table({"a.b": pa.array([["art"], [], ["chess", "art"]] * 40), "a": pa.array([["x"]] * 120)})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=50)
    batches = list(ParquetInput.open(tmp_path / "in.parquet").batches(["a.b", "a"], 80, ["a"]))
    assert [len(batch["a.b"]) for batch in batches] == [50, 50, 20]
    assert all(pa.types.is_dictionary(batch["a.b"].type.value_type) for batch in batches)


@pytest.mark.slow
def test_fixed_size_lists_come_back_as_lists():
    table = pa.table({"x": pa.array([["art", "chess"]] * 20, pa.list_(pa.string(), 2))})
    out = dpf.sanitize(table, epsilon=3.0, spaces={"x": SPACE})
    assert out.schema.field("x").type == pa.list_(pa.field("item", pa.string()))


def test_a_changed_item_changes_the_digest():
    plan = build_plan({"x": Subset(range(130)), "y": Subset(range(130))}, epsilon=2)
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(0, 2**63, (50, 3), dtype=np.uint64) & np.uint64(3) for name in "xy"}

    def digest(columns):
        found = Digest(plan)
        found.update(columns)
        return found.hexdigest()

    whole, seen = digest(codes), set()
    assert digest({name: c[::-1] for name, c in codes.items()}) == whole
    for word in range(3):
        changed = codes["x"].copy()
        changed[17, word] ^= np.uint64(2)
        seen.add(digest(codes | {"x": changed}))
    seen |= {digest({"x": codes["y"], "y": codes["x"]}), digest(codes | {"x": codes["x"][:, [1, 0, 2]]})}
    assert len(seen | {whole}) == 6


def test_grouped_sets_are_warned_of(hobbies):
    options = {"spaces": {"hobbies": HOBBIES, "age": (0, 120)}, "shuffle": False}
    dpf.sanitize(hobbies, epsilon=2.0, **options)
    ordered = hobbies.iloc[np.argsort(hobbies["hobbies"].map(lambda v: str(sorted(v))))]
    with pytest.warns(OrderLeakWarning, match="grouped by hobbies"):
        dpf.sanitize(ordered, epsilon=2.0, **options)
    watch = SortedWatch()
    for part in np.array_split(np.repeat(Subset(range(70)).code_array([5, 1 << 69, 3 << 60]), 40, axis=0), 7):
        watch.update({"x": part})
    with pytest.warns(OrderLeakWarning, match="grouped by x"):
        watch.warn()


@pytest.mark.slow
def test_spaces_read_off_the_data(hobbies, tmp_path):
    hobbies.to_parquet(tmp_path / "in.parquet")
    with pytest.warns(PrivacyLeakWarning, match="spaces of hobbies"):
        plan = dpf.plan(hobbies[["hobbies"]], 1.0, infer="data")
    observed = {item for v in hobbies["hobbies"] for item in v}
    assert plan["hobbies"].space == Subset(sorted(observed), max(map(len, hobbies["hobbies"])), "other")
    assert plan.leaks == ("hobbies",)
    with pytest.warns(PrivacyLeakWarning):
        assert (
            dpf.plan(tmp_path / "in.parquet", 1.0, infer="data")["hobbies"]
            == dpf.plan(hobbies, 1.0, infer="data")["hobbies"]
        )
    for column, expected in [
        (pa.array([[3, 1], None, [2]]), Nullable(Subset((1, 2, 3), 2))),
        (pa.array([[], []], pa.list_(pa.string())), Subset(("other",), 1, "other")),
        (pa.array([[True]] * 3, pa.list_(pa.bool_())), Subset((True,), 1)),
    ]:
        with pytest.warns(PrivacyLeakWarning):
            assert dpf.plan(pa.table({"x": column}), 1.0, infer="data")["x"].space == expected
    refused(
        ParameterError,
        r"'x': Subset\(\[ITEM, …\]\)",
        lambda: dpf.plan(pa.table({"x": column}), 1.0, infer="public"),
    )
    refused(
        ColumnError,
        "has type list<item: timestamp",
        lambda: dpf.plan(pa.table({"x": pa.array([[1]], pa.list_(pa.timestamp("s")))}), 1.0, infer="data"),
    )


def test_a_plan_of_sets(hobbies):
    spaces = {"hobbies": HOBBIES, "age": (0, 120)}
    plan = dpf.plan(hobbies, 4.0, 0.0, spaces=spaces, mechanisms={"hobbies": "asymmetric_bitflip"})
    assert plan["hobbies"].mechanism == AsymmetricBitFlip(24, 6, 2.0)
    assert dpf.Plan.from_json(plan.to_json()) == plan
    row = plan.summary().loc["hobbies"]
    assert (row["unit"], row["mechanism"]) == ("items", "asymmetric_bitflip")
    assert (
        row["error_bound"] <= row["expected_error"] == pytest.approx(24 * plan["hobbies"].mechanism.shown[1], rel=0.3)
    )
    forecast = plan.forecast()
    p, q = plan["hobbies"].mechanism.shown
    assert forecast.loc[("support", "hobbies"), "std_error"] == pytest.approx(
        math.sqrt(q * (1 - q) / 3_000) / (p - q), rel=1e-12
    )
    assert ("marginal", "hobbies") not in forecast.index
    refused(ParameterError, "means nothing: sets have too many values", lambda: plan.forecast(types={"hobbies": [1]}))
    text = plan.to_json().replace('"asymmetric_bitflip", "items": 24', '"asymmetric_bitflip", "items": 23')
    refused(PlanError, "codes", lambda: dpf.Plan.from_json(text))


def test_strict_spaces_still_read_their_releases(hobbies):
    space = Subset(dpf.datasets.HOBBIES, max_size=6, strict=True)
    safe = dpf.sanitize(hobbies[["hobbies"]], epsilon=1.0, spaces={"hobbies": Nullable(space)}, key=KEY)
    assert max(len(v) for v in safe["hobbies"] if v is not None) > 6
    assert safe.dp.verify()
    assert len(safe.dp.support("hobbies")) == 24


@pytest.mark.parametrize("mechanism", [RandomizedResponse(4, 1.0), Matrix.of(np.full((4, 4), 0.1) + 0.6 * np.eye(4))])
def test_sets_and_codes_of_one_number_do_not_share_mechanisms(mechanism):
    with pytest.raises(PlanError, match=f"'h': mechanism {mechanism.tag} is not for space subset"):
        Column("h", Subset(["a", "b"]), mechanism)
    with pytest.raises(PlanError, match="'h': mechanism bitflip is not for space categorical"):
        Column("h", Categorical(["a", "b", "c", "d"]), BitFlip(2, None, 1.0))


def test_a_plan_of_wide_sets_with_a_wrong_mechanism_is_refused_in_one_line():
    space = Subset(tuple(map(str, range(20_000))), max_size=3)
    with pytest.raises(PlanError, match=r"has 2\^19999 codes, the space 2\^20000$"):
        Column("h", space, BitFlip(19_999, 3, 50.0))
    with pytest.raises(PlanError, match=r"has 2\^20000 codes, the space 2\^20000 \+ 1$"):
        Column("h", Nullable(space), BitFlip(20_000, 3, 50.0))


def test_points_are_counted():
    for most in range(1, 8):
        space = Subset(tuple("abcdefg"), max_size=most)
        assert space.points == sum(math.comb(7, k) for k in range(most + 1))
