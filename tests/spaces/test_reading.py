"""Text that writes values, and collections of Python's own classes: each is read by itself, however many there are."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import examples

from dpframe.spaces.object_reading import LEADING_ZEROS, kind_counts, read_as
from dpframe.spaces.written_values import (
    WRITTEN_KINDS,
    can_be_written,
    is_blank,
    read_as_written,
    read_written,
    written_kind_counts,
)

TYPES = [pa.bool_(), pa.int64(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.string()]


def kind(text: str | None) -> str:
    return WRITTEN_KINDS[int(np.argmax(written_kind_counts(pa.array([text], pa.string()))))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("37", "whole number"),
        ("-0", "whole number"),
        ("+3", "whole number"),
        ("007", LEADING_ZEROS),
        ("02116", LEADING_ZEROS),
        ("01022020", LEADING_ZEROS),
        ("-05", LEADING_ZEROS),
        ("08.50", LEADING_ZEROS),
        ("00", LEADING_ZEROS),
        ("0", "whole number"),
        ("0.5", "number"),
        ("007a", "text"),
        ("1e3", "number"),
        (".5", "number"),
        ("5.", "number"),
        ("1" * 30, "number"),
        ("1,5", "text"),
        ("True", "boolean"),
        ("yes", "text"),
        ("2024-01-31", "date"),
        ("2024-01-31T08:00", "timestamp"),
        ("2024-01-31 08:00:00.123456789+02:00", "timestamp"),
        (" 7 ", "whole number"),
        ("", "null"),
        ("  ", "null"),
        (None, "null"),
        ("nan", "text"),
        ("inf", "text"),
        ("七", "text"),
    ],
)
def test_a_writing_says_its_kind(text, expected):
    assert kind(text) == expected


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["1", "2", None, ""], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["true", "False"], pa.bool_()),
        (["2024-01-31", " "], pa.date32()),
        (["2024-01-31", "2024-01-31 08:00"], pa.timestamp("us")),
        (["1", "02116"], pa.string()),
        (["1", "2", "refused"], pa.string()),
        (["true", "unknown"], pa.string()),
        (["2024-01-31", "n. d."], pa.string()),
        (["2024-01-31", "2024-02-31"], pa.string()),
        (["2024-01-31", "7"], pa.string()),
        ([None, ""], pa.string()),
    ],
    ids=str,
)
def test_what_is_read_off_text_loses_no_value(texts, type_):
    (read,) = read_as_written([pa.array(texts, pa.string())])
    assert read.type == type_
    assert [value is None for value in read.to_pylist()] == [
        text is None or (type_ != pa.string() and not text.strip()) for text in texts
    ]


def test_what_is_written_is_read():
    texts = pa.array(["1", "2.5", "-1e400", "9" * 30, "x", None, "3.5", "true", "2024-02-29", "2024-02-31"])
    assert read_written(texts, pa.int64()).to_pylist()[:3] == [1, 2, -(2**63)]
    assert read_written(texts, pa.int64()).to_pylist()[3] == 2**63 - 1
    assert read_written(texts, pa.float64()).to_pylist()[1:7] == [2.5, -np.inf, 1e30, None, None, 3.5]
    assert read_written(texts, pa.bool_()).to_pylist()[6:8] == [None, True]
    assert read_written(texts, pa.date32()).to_pylist()[8:] == [dt.date(2024, 2, 29), None]
    zoned = pa.array(["2024-01-31T08:00+02:00", "2024-01-31 06:00", "2024-01-31"])
    moments = read_written(zoned, pa.timestamp("us")).to_pylist()
    assert moments == [dt.datetime(2024, 1, 31, 6)] * 2 + [dt.datetime(2024, 1, 31)]
    assert read_written(texts, pa.string()) is texts
    assert read_written(pa.array(["007"]), pa.int64()).to_pylist() == [7]


@given(st.lists(st.one_of(st.none(), st.text(), st.floats().map(repr), st.integers().map(str))), st.sampled_from(TYPES))
def test_no_text_is_refused_and_none_changes_how_another_is_read(values, type_):
    values = [None if v is None else v.encode("utf-8", "ignore").decode() for v in values]
    texts = pa.array(values, pa.string())
    read = read_written(texts, type_)
    assert read.type == type_
    assert len(read) == len(values)
    alone = [read_written(pa.array([v], pa.string()), type_)[0].as_py() for v in values]
    assert read.to_pylist() == alone
    assert written_kind_counts(texts).sum() == len(values)
    assert read_written(texts.dictionary_encode(), type_).cast(type_).to_pylist() == read.to_pylist()
    assert pa.types.is_string(type_) or not (is_blank(texts) & np.asarray(read.is_valid())).any()


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**63 - 1), st.datetimes())
def test_reading_undoes_writing(number, whole, moment):
    assert read_written(pa.array([repr(number)]), pa.float64()).to_pylist() == [number]
    assert read_written(pa.array([str(whole), f"+{whole}"]), pa.int64())[0].as_py() == whole
    assert read_written(pa.array([str(moment)]), pa.timestamp("us")).to_pylist() == [moment]


def test_sets_and_durations_are_not_written():
    assert all(map(can_be_written, TYPES))
    assert not any(map(can_be_written, [pa.duration("us"), pa.list_(pa.string()), pa.timestamp("ns")]))


# ------------------------------------------------------------------------------------------------ collections


class Row(list[Any]):
    """A list of a class of its own, which is read by itself."""


ITEMS: list[Any] = [
    *("a", "b", "\ud800", "", np.str_("c"), b"d", b"\xff", None, pd.NA, math.nan, Decimal("NaN"), Decimal(2)),
    *(0, 3, 2**70, -(2**70), np.int8(1), 0.5, 1.0, math.inf, np.float32(0.5), True, np.True_),
    *(dt.date(2020, 1, 1), dt.timedelta(1), object(), ["a"], ()),
]
LIST_TYPES = [pa.list_(pa.string()), pa.list_(pa.int64()), pa.list_(pa.float64())]
LISTS = st.lists(st.lists(st.sampled_from(ITEMS), max_size=3), max_size=12)


@settings(max_examples=examples(150))
@example(rows=[[math.nan], [0.5]], kind=list, type_=pa.list_(pa.float64()))
@given(LISTS, st.sampled_from([list, tuple]), st.sampled_from(LIST_TYPES))
def test_leak_collections_are_read_as_each_is_alone(rows: list[list[Any]], kind: type[Any], type_: pa.DataType) -> None:
    values = [kind(row) for row in rows]
    expected = sum((kind_counts([Row(row)]) for row in rows), np.zeros(len(kind_counts([])), dtype=np.int64))
    assert kind_counts(values).tolist() == expected.tolist()
    alone = [read_as([Row(row)], type_)[0].as_py() for row in rows]
    assert repr(read_as(values, type_).to_pylist()) == repr(alone)


@pytest.mark.parametrize("type_", LIST_TYPES, ids=str)
def test_collections_stand_among_other_objects(type_: pa.DataType) -> None:
    values = [["a", 1], None, {"b"}, "a", ("c", None), frozenset(), Row(["d"]), np.array(["e", "f"]), 5]
    listed = [list(v) if isinstance(v, set | tuple | frozenset | np.ndarray) else v for v in values]
    alone = [read_as([Row(v)], type_)[0].as_py() if isinstance(v, list) else None for v in listed]
    unordered = pa.types.is_floating(type_.value_type)  # what has no order is no list of numbers
    expected = [None if unordered and isinstance(v, set | frozenset) else a for v, a in zip(values, alone, strict=True)]
    assert read_as(values, type_).to_pylist() == expected
