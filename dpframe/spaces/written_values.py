"""Values written as text, as in CSV: the kind of each value follows only from its text.

Distinct texts are read once, so that a column is read at the speed of its dictionary.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Callable, Sequence
from functools import partial, singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError
from dpframe.spaces.base import Space
from dpframe.spaces.object_reading import KINDS, LEADING_ZEROS
from dpframe.spaces.python_values import PYTHON_KINDS, common_kind, to_ticks

_SHORT_WHOLE = r"^[+-]?0*[0-9]{1,18}$"
_ANY_WHOLE = r"^[+-]?[0-9]+$"
_ANY_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"
_FIGURE = (
    r"^[+-]?[$€£¥]?[+-]?[0-9][0-9.,:/ -]*([T ][0-9][0-9.:]*(Z| ?[+-][0-9:]+)?)?( ?([%$€£¥]|[AaPp][Mm]))?$|"
    r"^[0-9]{4}[- ]?[QWqw][0-9]{1,2}$"
)

WRITTEN_KINDS = (*KINDS, LEADING_ZEROS)
"""Kinds of values that are written as text, by name. The list is public."""

_KIND_PATTERNS = {kind.name: kind.pattern for kind in PYTHON_KINDS.values() if kind.pattern} | {
    LEADING_ZEROS: _ANY_NUMBER
}
"""Patterns of kinds; the first match counts. Digits with leading zeros are codes: as numbers they lose the zeros."""


def written_kind_counts(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of texts of each of the `WRITTEN_KINDS`."""
    entries, indices = split_distinct(texts)
    is_empty = is_blank(texts)
    kinds = np.full(len(entries), WRITTEN_KINDS.index("text"), dtype=np.int64)
    for name, pattern in reversed(_KIND_PATTERNS.items()):
        kinds[_matches(entries, pattern)] = WRITTEN_KINDS.index(name)
    counts = np.bincount(kinds[indices[~is_empty]], minlength=len(WRITTEN_KINDS))
    counts[WRITTEN_KINDS.index("null")] += int(is_empty.sum())
    return counts.astype(np.int64)


def read_as_written(texts: Sequence[pa.Array]) -> list[pa.Array]:
    """Return the arrays of a column in the narrowest type that fits all values; else as text.

    >>> columns = ["1", "2.5", ""], ["1", "many"], ["7", "07"], ["2024-02-30"]
    >>> [str(read_as_written([pa.array(texts)])[0].type) for texts in columns]
    ['double', 'string', 'string', 'string']
    """
    counts = sum(map(written_kind_counts, texts), np.zeros(len(WRITTEN_KINDS), dtype=np.int64))
    kinds = {kind for kind, count in zip(WRITTEN_KINDS, counts, strict=True) if count and kind != "null"}
    kind = common_kind(kinds - {"date"} if "timestamp" in kinds else kinds)
    type_ = pa.string() if kind is None else kind.type
    arrays = [read_written(array, type_) for array in texts]
    # Impossible dates are text.
    has_losses = any(
        (np.asarray(array.is_null()) & ~is_blank(text)).any() for array, text in zip(arrays, texts, strict=True)
    )
    return [read_written(array, pa.string()) for array in texts] if has_losses else arrays


def read_written(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return texts as an Arrow array of a type that `can_be_written`; other texts are null.

    No text raises an error. Whole numbers may be written with a fraction, which is rounded; times without a zone count
    as UTC; dates are read as times at their midnight, and times as their dates.

    >>> read_written(pa.array(["3", " -2.5", "many", None]), pa.float64()).to_pylist()
    [3.0, -2.5, None, None]
    """
    if pa.types.is_string(type_):
        return texts
    entries, indices = split_distinct(texts)
    reader = next(reader for fits, reader in (*_READERS, *_OBJECT_READERS) if fits(type_))(entries)
    return reader.take(pa.array(indices, mask=indices < 0))


def is_blank(texts: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a mask of texts that are null or blank: they are null in a column of any type except text."""
    entries, indices = split_distinct(texts)
    is_empty = np.append(np.asarray(pc.equal(entries, "")), True)
    return np.asarray(is_empty[indices], dtype=np.bool_)


def are_figures(texts: pa.Array) -> bool:
    """Return whether all texts are numbers, truth values or times in a usual format, without any word.

    Digits with leading zeros are codes, and codes may include words.

    >>> columns = ["$1.50", "20 %"], ["31/12/2024", "9:30 pm"], ["2024Q1"], ["1", "a"], ["10115", "01067"]
    >>> [are_figures(pa.array(texts)) for texts in columns]
    [True, True, True, False, False]
    """
    entries, indices = split_distinct(texts)
    is_number = _matches(entries, _KIND_PATTERNS["number"])
    is_code = _matches(entries, _ANY_NUMBER) & ~is_number
    is_figure = (_matches(entries, _FIGURE) & ~is_code) | is_number | _matches(entries, _KIND_PATTERNS["boolean"])
    return bool(is_figure[indices].all())


def can_be_written(type_: pa.DataType) -> bool:
    """Return whether values of a type have one form of text, so that any text can be read."""
    return pa.types.is_string(type_) or any(fits(type_) for fits, _ in _READERS)


def written_type(space: Space, released: bool = False) -> pa.DataType:
    """Return the type for reading a space's values from text; `ColumnError` if text cannot represent them.

    ``released`` text may have any form of `written_text`.
    """
    if space.has_words:
        return pa.string()
    type_ = pa.date32() if pa.types.is_date32(space.natural_type) else space.object_type
    readers = _OBJECT_READERS if released else []
    if not (can_be_written(type_) or any(fits(type_) for fits, _ in readers)):
        lists = ', with its text split into lists (pandas\' .str.findall("[^;]+"))' if space.holds_sets else ""
        raise ColumnError(f"has values that CSV cannot hold ({space.tag}); convert the input to Parquet{lists}")
    return type_


@singledispatch
def written_text(value: Any) -> str:
    """Return the text of a value in a release of objects: lists as JSON, durations in pandas' form.

    >>> [written_text(value) for value in (["a", "b"], dt.timedelta(hours=26), dt.time(8, 30))]
    ['["a", "b"]', '1 days 02:00:00', '08:30:00']
    """
    return str(value)


@written_text.register(list)
def _(value: list[Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


@written_text.register(dt.timedelta)
def _(value: dt.timedelta) -> str:
    return str(pd.Timedelta(value))


def split_distinct(texts: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the distinct texts without surrounding spaces, and each row's index; −1 for null."""
    dictionary_array = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    indices: npt.NDArray[np.int64] = (
        dictionary_array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    )
    return pc.utf8_trim_whitespace(dictionary_array.dictionary.cast(pa.string())), indices


def _matches(entries: pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.match_substring_regex(entries, pattern).fill_null(False), dtype=np.bool_)


def _select_matches(entries: pa.Array, pattern: str) -> pa.Array:
    """Return the entries that match a pattern, null for others."""
    return pc.if_else(pc.match_substring_regex(entries, pattern), entries, pa.scalar(None, pa.string()))


def _read_booleans(entries: pa.Array) -> pa.Array:
    return pc.equal(pc.utf8_lower(_select_matches(entries, _KIND_PATTERNS["boolean"])), "true")


def _read_wholes(entries: pa.Array) -> pa.Array:
    short_numbers = pc.utf8_ltrim(_select_matches(entries, _SHORT_WHOLE), characters="+").cast(pa.int64())
    is_long = _matches(entries, _ANY_WHOLE) & ~_matches(entries, _SHORT_WHOLE)
    if is_long.any():  # floats cannot represent them
        long_numbers = [
            _to_whole(text) if fits else None for text, fits in zip(entries.to_pylist(), is_long, strict=True)
        ]
        short_numbers = pc.coalesce(short_numbers, pa.array(long_numbers, pa.int64()))
    # 2^63 − 1024 is the largest float below 2^63.
    ends = float(-(2**63)), float(2**63 - 1024)
    fraction_numbers = pc.round(_read_floats(_select_matches(entries, _ANY_NUMBER)), round_mode="half_to_even")
    clamped_numbers = pc.min_element_wise(
        pc.max_element_wise(fraction_numbers, ends[0], skip_nulls=False), ends[1], skip_nulls=False
    )
    return pc.coalesce(short_numbers, clamped_numbers.cast(pa.int64(), safe=False))


def _to_whole(text: str) -> int:
    """Return a whole number of any length, clamped to 64 bits."""
    digits, sign = text.lstrip("+-0"), -1 if text.startswith("-") else 1
    value = sign * (int(digits) if len(digits) < 20 else 10**19)
    return min(max(value, -(2**63)), 2**63 - 1)


def _read_floats(entries: pa.Array) -> pa.Array:
    return pc.utf8_ltrim(_select_matches(entries, _ANY_NUMBER), characters="+").cast(pa.float64())


def _read_times(entries: pa.Array) -> pa.Array:
    """Return moments; impossible dates are null."""
    fits = _matches(entries, _KIND_PATTERNS["timestamp"]) | _matches(entries, _KIND_PATTERNS["date"])
    moments = [_to_micros(text) if fit else None for text, fit in zip(entries.to_pylist(), fits, strict=True)]
    return pa.array(moments, pa.timestamp("us"))


def _to_micros(text: str) -> int | None:
    """Return a moment in microseconds since 1970, in UTC."""
    with contextlib.suppress(ValueError):  # the 31st of February
        return to_ticks(dt.datetime.fromisoformat(text), pa.timestamp("us"))
    return None


_READERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = [
    (pa.types.is_null, lambda entries: pa.nulls(len(entries))),
    (pa.types.is_boolean, _read_booleans),
    (pa.types.is_int64, _read_wholes),
    (pa.types.is_float64, _read_floats),
    (pa.types.is_date32, lambda entries: _read_times(entries).cast(pa.date32(), safe=False)),
    (lambda type_: type_ == pa.timestamp("us"), _read_times),
]


def _read_lists(items: pa.DataType, entries: pa.Array) -> pa.Array:
    """Return lists that are written as JSON; others are null."""
    return pa.array([_read_list(text, items) for text in entries.to_pylist()], pa.list_(items))


def _read_list(text: str | None, items: pa.DataType) -> list[Any] | None:
    with contextlib.suppress(ValueError, TypeError, RecursionError, pa.ArrowException):
        items_read = json.loads(text or "")
        pa.array(items_read, items)
        return items_read if isinstance(items_read, list) else None
    return None


def _read_durations(entries: pa.Array) -> pa.Array:
    return pa.array(pd.to_timedelta(entries.to_pandas(), errors="coerce"), from_pandas=True)


_OBJECT_READERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = [
    *((pa.list_(items).equals, partial(_read_lists, items)) for items in (pa.string(), pa.int64(), pa.float64())),
    (pa.types.is_duration, _read_durations),
]
"""Readers of the objects of a release in CSV; see `written_text`."""
