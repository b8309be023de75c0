"""What passes through unprotected, and the order that is kept: nothing more of the input than is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from checks import SECRET, stored_under_nulls

import dpframe as dpf


def sanitized(table: Any, spaces: Any, **options: Any) -> Any:
    return dpf.sanitize(table, epsilon=2.0, spaces=spaces, key=bytes(32), **options)


# ---------------------------------------------------------------------------------------------- passed through


@pytest.mark.parametrize("shuffle", [True, False])
def test_leak_passed_categories_are_those_of_rows(shuffle: bool) -> None:
    for ordered in (True, False):
        column = pd.Categorical(["m", None, "a"] * 9, ["z", "m", SECRET, "a"], ordered=ordered)
        frame = pd.DataFrame({"x": column, "y": True})
        safe = sanitized(frame, None, passthrough=["x"], shuffle=shuffle)
        assert safe["x"].dtype == pd.CategoricalDtype(["m", "a"], ordered=ordered)
        assert sorted(safe["x"].dropna()) == sorted(frame["x"].dropna())
        dictionary = pa.DictionaryArray.from_arrays(
            pa.array(np.tile([1, -1, 3], 9), mask=np.tile([False, True, False], 9)),
            pa.array(["z", "m", SECRET, "a"]),
            ordered=ordered,
        )
        kept = sanitized(pa.table({"x": dictionary, "y": [True] * 27}), None, passthrough=["x"], shuffle=shuffle)
        assert kept["x"].type.ordered == ordered
        found = kept["x"].combine_chunks()
        assert sorted(found.dictionary.to_pylist()) == ["a", "m"]
        assert found.dictionary.to_pylist() == ["m", "a"] or not ordered
        assert sorted(filter(None, kept["x"].to_pylist())) == ["a"] * 9 + ["m"] * 9
        if not shuffle:
            assert kept["x"].to_pylist() == ["m", None, "a"] * 9


def hidden(array: pa.Array) -> pa.Array:
    """Return an array with every other value under a null slot."""
    bits = np.packbits(np.arange(len(array)) % 2 == 0, bitorder="little").tobytes()
    children = [array.field(i) for i in range(array.type.num_fields)] if pa.types.is_struct(array.type) else None
    buffers = [pa.py_buffer(bits), *array.buffers()[1 : 1 if children else None]]
    return pa.Array.from_buffers(array.type, len(array), buffers, children=children)


@pytest.mark.filterwarnings("ignore:the input is:dpframe.OrderLeakWarning")
@pytest.mark.parametrize("shuffle", [True, False])
def test_leak_values_under_null_slots_of_passed_columns_stay_behind(shuffle: bool) -> None:
    whole = pa.array([71, 72, 73, 74])
    for array, within in [
        (hidden(whole), [lambda a: a]),
        (hidden(pa.array(["s71", "s72", "s73", "s74"])), [lambda a: a]),
        (hidden(pa.StructArray.from_arrays([whole], ["f"])), [lambda a: a.field(0)]),
    ]:
        safe = sanitized(pa.table({"x": array, "y": [True] * 4}), None, passthrough=["x"], shuffle=shuffle)
        column = safe["x"].combine_chunks()
        assert column.null_count == 2
        assert sorted(map(str, column.to_pylist())) == sorted(map(str, array.to_pylist()))
        assert all(len(stored_under_nulls(look(column))) == 1 for look in within)
    number = pd.Series(pd.arrays.IntegerArray(np.array([71, 72, 73, 74]), np.array([False, True] * 2)))
    arrow = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([hidden(whole)])))
    frame = pd.DataFrame({"x": number, "z": arrow, "y": True})
    assert all(len(stored_under_nulls(pa.array(frame[name]))) > 1 for name in "xz")  # so that this test can fail
    safe = sanitized(frame, None, passthrough=["x", "z"], shuffle=shuffle)
    assert safe.dtypes.tolist() == frame.dtypes.tolist()
    for name in "xz":
        assert sorted(safe[name].dropna()) == [71, 73]
        assert len(stored_under_nulls(pa.array(safe[name]))) == 1


# ---------------------------------------------------------------------------------------------- order


def test_leak_order_that_is_kept_is_warned_of() -> None:
    frame = pd.DataFrame({"x": ["b"] * 6 + ["a"] * 6 + ["c"] * 6, "y": ["a", "b", "b"] * 6, "z": range(18)})
    match = "^the input is sorted by z and grouped by x and keeps its order: positions reveal values"
    spaces = {"x": ["a", "b", "c"], "y": ["a", "b"], "z": (0, 20)}
    with pytest.warns(dpf.OrderLeakWarning, match=match):
        sanitized(frame, spaces, shuffle=False)
