"""Row groups that are put together here: every reader gives what was written, whatever the number of values."""

import datetime as dt
import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpframe.tables import thrift
from dpframe.tables.parquet_pages import PackedColumn, PackedLists, PackedWriter, packed_bits


@settings(max_examples=100)
@given(st.integers(1, 20), st.integers(0, 70), st.integers(0, 2**32))
def test_packed_bits_are_those_of_the_format(width, count, seed):
    codes = np.random.default_rng(seed).integers(0, 1 << width, count)
    codes = codes.astype(np.uint8 if width <= 8 else "<u4")
    bits = np.unpackbits(codes.reshape(-1, 1).view(np.uint8), axis=1, bitorder="little", count=width).ravel()
    assert (
        packed_bits(codes, width).tobytes()[: -(-count * width // 8)] == np.packbits(bits, bitorder="little").tobytes()
    )
    assert len(packed_bits(codes, width)) == -(-count // 8) * width


KINDS = {
    "text": pa.array([f"wörd {i}" for i in range(255)], pa.large_string()),
    "whole": pa.array(range(-100, 155), pa.int16()),
    "float": pa.array(np.arange(255) / 7),
    "day": pa.array([dt.date(1960, 1, 1) + dt.timedelta(days=9 * i) for i in range(255)]),
    "time": pa.array(range(255), pa.timestamp("us", "UTC")),
    "decimal": pa.array([f"{i}.25" for i in range(255)]).cast(pa.decimal128(9, 2)),
}


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from([1, 2, 3, 4, 5, 9, 17, 64, 100, 255]),
    st.sampled_from(["required", "no nulls", "some nulls", "all nulls"]),
    st.lists(st.integers(1, 40), max_size=3),
    st.sampled_from(["snappy", "zstd", "none"]),
    st.integers(0, 2**32),
)
def test_readers_give_what_was_written(kind, count, nulls, groups, codec, seed):
    """Packed columns between columns that Arrow writes, in any number of row groups."""
    values = KINDS[kind].slice(0, count)
    fields = [
        pa.field("list", pa.list_(pa.field("element", pa.int64()))),
        pa.field("packed", values.type, nullable=nulls != "required"),
        pa.field("plain.name", pa.float64()),
    ]
    schema, file, rng = pa.schema(fields), io.BytesIO(), np.random.default_rng(seed)
    known = values if nulls == "required" else pa.concat_arrays([values, pa.nulls(1, values.type)])
    column = PackedColumn.of("packed", known, nulls != "required")
    options = {"compression": codec, "use_dictionary": False, "write_statistics": ["plain.name"]}
    writer = PackedWriter(file, schema, options)
    expected = []
    for rows in groups:
        low, high = {"some nulls": (0, count + 1), "all nulls": (count, count + 1)}.get(nulls, (0, count))
        codes = rng.integers(low, high, rows).astype(np.uint8)
        lists, plain = pa.array([[i] * (i % 3) for i in range(rows)]), pa.array(rng.random(rows))
        writer.write({"list": lists, "packed": codes, "plain.name": plain}, rows, {"packed": column})
        expected.append(pa.table([lists.cast(fields[0].type), known.take(pa.array(codes)), plain], schema=schema))
    writer.close({"said": "of it"})
    whole = pa.concat_tables([schema.empty_table(), *expected])
    file.seek(0)
    read = pq.ParquetFile(file, page_checksum_verification=True)
    assert [read.metadata.row_group(i).num_rows for i in range(read.num_row_groups)] == groups
    assert read.metadata.metadata[b"said"] == b"of it"
    assert read.metadata.num_rows == len(whole)
    found = read.read()
    assert found.to_pydict() == whole.to_pydict()
    assert [f.nullable for f in found.schema] == [f.nullable for f in schema]
    if groups:
        statistics = read.metadata.row_group(0)
        assert [statistics.column(i).is_stats_set for i in range(3)] == [False, False, True]
    file.seek(0)
    assert pl.read_parquet(file, use_pyarrow=False).to_dict(as_series=False) == whole.to_pydict()
    file.seek(0)
    pd.testing.assert_frame_equal(pd.read_parquet(file), whole.to_pandas())


@settings(max_examples=60)
@given(
    st.sampled_from(["text", "whole", "float", "day"]),
    st.sampled_from([1, 2, 3, 8, 24, 63, 64, 65, 127, 130, 255]),
    st.sampled_from(["required", "no nulls", "some nulls", "all nulls"]),
    st.booleans(),
    st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    st.lists(st.integers(1, 40), max_size=3),
    st.integers(0, 2**32),
)
def test_readers_give_the_sets_that_were_written(kind, count, nulls, elements, share, groups, seed):
    """Lists of all lengths, none among them, and nulls, in any number of row groups."""
    values, rng = KINDS[kind].slice(0, count), np.random.default_rng(seed)
    field = pa.field("sets", pa.list_(pa.field("element", values.type, elements)), nullable=nulls != "required")
    schema, file = pa.schema([field, ("n", pa.int64())]), io.BytesIO()
    writer = PackedWriter(file, schema, {})
    words, expected = -(-(count + (nulls != "required")) // 64), []
    for rows in groups:
        held = rng.random((rows, 64 * words)) < share
        held[:, count:] = False
        missing = rng.random(rows) < {"some nulls": 0.4, "all nulls": 1}.get(nulls, 0)
        kept = [values.filter(pa.array(row[:count])).to_pylist() for row in held]
        lists = [None if out else own for own, out in zip(kept, missing, strict=True)]
        held[missing] = False
        held[missing, count : count + 1] = True
        codes = np.packbits(held, axis=1, bitorder="little").view("<u8")
        numbers = pa.array(rng.integers(0, 9, rows))
        writer.write({"sets": codes, "n": numbers}, rows, {"sets": PackedLists.of(field, values)})
        expected.append(pa.table([pa.array(lists, field.type), numbers], schema=schema))
    writer.close({})
    whole = pa.concat_tables([schema.empty_table(), *expected])
    file.seek(0)
    found = pq.read_table(file)
    found.validate(full=True)
    assert found.schema.field("sets").nullable == (nulls != "required")
    assert found.schema.field("sets").type.value_field.nullable == elements
    assert found.to_pydict() == whole.to_pydict()
    file.seek(0)
    assert pl.read_parquet(file, use_pyarrow=False).to_dict(as_series=False) == whole.to_pydict()
    if kind == "text":
        for group in range(len(groups)):
            file.seek(0)
            inner = pq.ParquetFile(file, read_dictionary=["sets.list.element"]).read_row_group(group)["sets"].chunk(0)
            assert inner.flatten().dictionary.to_pylist() in ([], values.to_pylist())


def test_text_is_read_as_a_dictionary_of_all_values():
    file, schema = io.BytesIO(), pa.schema([("a", pa.string())])
    column = PackedColumn.of("a", pa.array(["never", "x", "y"]), nullable=True)
    writer = PackedWriter(file, schema, {})
    writer.write({"a": np.array([2, 1, 2], dtype=np.uint8)}, 3, {"a": column})
    writer.close({})
    found = pq.read_table(file, read_dictionary=["a"])["a"].chunk(0)
    assert (found.dictionary.to_pylist(), found.indices.to_pylist()) == (["never", "x", "y"], [2, 1, 2])


def test_footers_of_arrow_are_read_and_written_back():
    """Every kind of field that a footer has, statistics and nested types among them."""
    table = pa.table(
        {
            "s": ["a", None] * 40,
            "n": [{"x": [1.5], "y": dt.datetime(2000, 1, 1)}] * 80,
            **{f"c{i}": np.arange(80) % 2 == 0 for i in range(20)},
        }
    )
    for options in (
        {},
        {"write_page_index": True, "store_schema": False},
        {"version": "1.0", "data_page_version": "2.0"},
    ):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=30, **options)
        raw = sink.getvalue().to_pybytes()
        footer = raw[-8 - int.from_bytes(raw[-8:-4], "little") : -8]
        struct, end = thrift.parsed(footer)
        assert (thrift.encoded(struct), end) == (footer, len(footer))
    with pytest.raises(IndexError):
        thrift.parsed(footer[:-1])
