"""Collections of Python's own classes are counted and read all at once, as collections of others one by one."""

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

from dpframe.spaces.object_reading import kind_counts, read_as


class Row(list[Any]):
    """A list of a class of its own, which is read by itself."""


ITEMS: list[Any] = [
    *("a", "b", "\ud800", "", np.str_("c"), b"d", b"\xff", None, pd.NA, math.nan, Decimal("NaN"), Decimal(2)),
    *(0, 3, 2**70, -(2**70), np.int8(1), 0.5, 1.0, math.inf, np.float32(0.5), True, np.True_),
    *(dt.date(2020, 1, 1), dt.timedelta(1), object(), ["a"], ()),
]
TYPES = [pa.list_(pa.string()), pa.list_(pa.int64()), pa.list_(pa.float64())]
LISTS = st.lists(st.lists(st.sampled_from(ITEMS), max_size=3), max_size=12)


@settings(max_examples=examples(150))
@example(rows=[[math.nan], [0.5]], kind=list, type_=pa.list_(pa.float64()))
@given(LISTS, st.sampled_from([list, tuple]), st.sampled_from(TYPES))
def test_leak_collections_are_read_as_each_is_alone(rows: list[list[Any]], kind: type[Any], type_: pa.DataType) -> None:
    values = [kind(row) for row in rows]
    expected = sum((kind_counts([Row(row)]) for row in rows), np.zeros(len(kind_counts([])), dtype=np.int64))
    assert kind_counts(values).tolist() == expected.tolist()
    alone = [read_as([Row(row)], type_)[0].as_py() for row in rows]
    assert repr(read_as(values, type_).to_pylist()) == repr(alone)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_collections_stand_among_other_objects(type_: pa.DataType) -> None:
    values = [["a", 1], None, {"b"}, "a", ("c", None), frozenset(), Row(["d"]), np.array(["e", "f"]), 5]
    listed = [list(v) if isinstance(v, set | tuple | frozenset | np.ndarray) else v for v in values]
    alone = [read_as([Row(v)], type_)[0].as_py() if isinstance(v, list) else None for v in listed]
    unordered = pa.types.is_floating(type_.value_type)  # what has no order is no list of numbers
    expected = [None if unordered and isinstance(v, set | frozenset) else a for v, a in zip(values, alone, strict=True)]
    assert read_as(values, type_).to_pylist() == expected
