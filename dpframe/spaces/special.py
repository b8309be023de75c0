"""Special values of a grid: codes for missing answers, such as −9, 999999 or "refused"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError
from dpframe.spaces.arrays import masked_array, replaced
from dpframe.spaces.base import Codes, Mask, Space, first_row, forwarded, refuse_type
from dpframe.spaces.object_reading import Objects, read_as
from dpframe.spaces.python_values import as_text, is_missing
from dpframe.spaces.written_values import read_written, split_distinct

_UNKNOWN_TEXT = 'holds a word that special does not list; add it, as in special=["refused"]'

MAX_SPECIAL_VALUES = 16
"""Limit on the special values of a column: each one takes chance from every other answer of its flag."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, init=False, repr=False)
class Special(Space):
    """A grid with special values, each at the diameter from all numbers and from the others, and equally protected.

    ``Integer(…, special=[…])``, ``Real(…, special=[…])`` and ``Datetime(…, special=[…])`` make it. Its codes are the
    grid's, followed by one for each special value.

    Parameters
    ----------
    inner
        The grid of the numbers or times.
    special
        Up to 16 distinct values off the grid: words, and numbers or times of the grid's kind.

    Raises
    ------
    ParameterError
        If a value is null, no word or value of the grid's kind, on the grid, or listed twice.

    Examples
    --------
    >>> from dpframe.spaces import Integer
    >>> Integer(0, 10, special=["refused", -9]).encode([3, "refused", -9, 40]).tolist()
    [3, 11, 12, 10]
    """

    inner: Any
    special: tuple[Any, ...]

    is_listed: ClassVar[bool] = False

    def __init__(self, inner: Space, special: Sequence[Any]) -> None:
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "special", _check_special(inner, special))

    def __repr__(self) -> str:
        return f"{repr(self.inner).removesuffix(')')}, special={list(self.special)!r})"

    tag = forwarded("inner.tag")
    lower = forwarded("inner.lower")
    upper = forwarded("inner.upper")
    is_whole = forwarded("inner.is_whole")
    is_time = forwarded("inner.is_time")
    step = forwarded("inner.step")
    unit = forwarded("inner.unit")
    diameter = forwarded("inner.diameter")
    fixed_point = forwarded("inner.fixed_point")
    null_counts_as = forwarded("inner.null_counts_as")
    instants = forwarded("inner.instants")
    durations = forwarded("inner.durations")

    @property
    def contents(self) -> str:
        """Allowed values of a column, as text."""
        return f"{self.inner.contents}, or {', '.join(map(str, self.special))}"

    @property
    def metric(self) -> str:
        """Metric of the values: with a single special value that of a grid and null, whose flag has two states, too."""
        return "nullable line" if len(self.special) == 1 else "special line"

    @cached_property
    def size(self) -> int:
        """Number of codes; the special values' are the last ones."""
        return int(self.inner.size + len(self.special))

    @property
    def flag_codes(self) -> int:
        """Number of special values."""
        return len(self.special)

    @property
    def inner_space(self) -> Space:
        """The grid without special values."""
        grid: Space = self.inner
        return grid

    @property
    def mechanism(self) -> str:
        """The grid's mechanism beside a flag."""
        return f"nullable_{self.inner.mechanism}"

    def around(self, grid: Space) -> Space:
        """Return a space of the same special values around another grid."""
        return Special(grid, self.special)

    def in_decimals(self, precision: int, scale: int) -> Space:
        """Return the space around the grid in decimals."""
        return self.around(self.inner.in_decimals(precision, scale))

    def in_durations(self) -> Space:
        """Return the space around the grid in durations."""
        return self.around(self.inner.in_durations())

    def widened(self, steps: int) -> Space:
        """Return the space around the grid extended beyond both bounds."""
        grid = self.inner.widened(steps)
        if any(grid.has_on_grid(value) for value in self.special if not self._is_word(value)):
            raise ParameterError(
                "noise would reach a special value; use laplace, which stays within the bounds, or recode the value as "
                "a word, such as 'refused'"
            )
        return self.around(grid)

    @property
    def has_words(self) -> bool:
        """Whether a special value is a word, which no number's type holds."""
        return any(map(self._is_word, self.special))

    def _is_word(self, value: Any) -> bool:
        """Return whether a special value is no number or time of the grid's kind."""
        return self.inner.parse_special(value) is None

    @property
    def natural_type(self) -> pa.DataType:
        """The grid's type, or text if a special value is a word."""
        return pa.string() if self.has_words else self.inner.natural_type

    object_type = forwarded("inner.object_type")

    def output_type(self, type_: pa.DataType) -> pa.DataType:
        """Return the Arrow type of released values of a column: text if a special value is a word."""
        return pa.string() if self.has_words and not _is_text(type_) else type_

    def check_type(self, type_: pa.DataType) -> None:
        """Accept the grid's types that hold every special number, and text if a special value is a word."""
        if self.has_words and _is_text(type_):
            return
        self.inner.check_type(type_)
        for value in self._figures.values():
            if not self.inner.holds_special(value, type_):
                raise refuse_type(f"the special value {value!s}", type_, "give a special value of the column's type")

    @cached_property
    def _figures(self) -> dict[int, Any]:
        """The special values that are no words, by their codes."""
        return {c: v for c, v in enumerate(self.special, self.inner.size) if not self._is_word(v)}

    @cached_property
    def _words(self) -> dict[str, int]:
        """The codes of the special values that are words."""
        return {v: c for c, v in enumerate(self.special, self.inner.size) if self._is_word(v)}

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        if _is_text(array.type):
            codes, missing, is_unknown = self._encode_text(array)
            if is_unknown.any():
                raise ColumnError(_UNKNOWN_TEXT, row=first_row(is_unknown))
            return codes, missing
        codes, missing = self.inner._encode(array, lenient)
        codes = codes.astype(self.code_type, copy=False)
        ticks = self.inner.ticks(array)
        for code, value in self._figures.items():
            codes = replaced(codes, np.asarray(ticks == self.inner.special_tick(value, array.type)), code)
        return codes, missing

    def _encode_text(self, array: pa.Array) -> tuple[Codes, Bools, Bools]:
        """Return the codes of text, a mask of nulls and blanks, and a mask of texts without a code.

        Each distinct text is read by itself: the reading of a row does not depend on other rows.
        """
        entries, indices = split_distinct(array)
        entries = pc.if_else(pc.equal(entries, ""), pa.scalar(None, pa.string()), entries)
        figures = read_written(
            entries, pa.date32() if pa.types.is_date32(self.inner.natural_type) else self.object_type
        )
        figure_codes, is_no_figure = self._encode(figures, lenient=True)
        codes, is_missing = figure_codes.astype(np.int64), np.asarray(entries.is_null())
        is_unknown = np.zeros(len(codes), dtype=np.bool_) if is_no_figure is None else is_no_figure & ~is_missing
        word_codes = np.array([self._words.get(text, -1) for text in entries.to_pylist()], dtype=np.int64)
        codes, is_unknown = np.where(word_codes >= 0, word_codes, codes), is_unknown & (word_codes < 0)
        # Index −1 is null, whose entry follows the last one.
        codes, is_missing, is_unknown = np.append(codes, 0), np.append(is_missing, True), np.append(is_unknown, False)
        return codes[indices].astype(self.code_type), is_missing[indices], is_unknown[indices]

    def _encode_known(self, objects: Sequence[Any]) -> tuple[Codes, Mask]:
        codes, missing = self._encode(read_as(objects, self.object_type), lenient=True)
        if self._words:
            text_codes, is_blank, is_unknown = self._encode_text(read_as(objects, pa.string()))
            is_read = ~(is_blank | is_unknown)
            codes, missing = np.where(is_read, text_codes, codes), None if missing is None else missing & ~is_read
        return codes, missing

    def _known(self, array: pa.Array) -> pa.Array:
        if not _is_text(array.type):
            return array
        return pc.if_else(pa.array(self._encode_text(array)[2]), pa.scalar(None, pa.string()), array.cast(pa.string()))

    def _object_code(self, value: Any, lenient: bool) -> int:
        code = self.special_code(value)
        if code is not None:
            return code
        if isinstance(value, str):
            raise ColumnError(_UNKNOWN_TEXT)
        return int(self.inner._object_code(value, lenient))

    def special_code(self, value: Any) -> int | None:
        """Return the code of a special value; None for other values."""
        text = as_text(value)
        if text is not None:
            code = self._words.get(text)
            # A condition may write times as text; a column's text was read as times before.
            return self._figure_code(self.inner.read_text(text)) if code is None and self.is_time else code
        return self._figure_code(value)

    def _figure_code(self, value: Any) -> int | None:
        return next((c for c, v in self._figures.items() if self.inner.is_equal(value, v)), None)

    def _class_codes(self, class_: type, objects: Objects, lenient: bool) -> tuple[Codes, Bools] | None:
        if class_ is str and self._words:
            # pandas before 3 holds text as objects, which is read as a column of text is.
            codes, missing, is_unknown = self._encode_text(pa.array(list(objects), pa.string()))
            is_read = ~(missing | is_unknown)
            return codes[is_read], is_read
        if class_ not in (int, float):
            return None
        grid_codes = self.inner._class_codes(class_, objects, lenient)
        if grid_codes is None:
            return None
        codes, is_coded = grid_codes[0].astype(self.code_type), grid_codes[1]
        for code, value in self._figures.items():
            codes = replaced(codes, np.asarray(objects[is_coded] == value, dtype=np.bool_), code)
        return codes, is_coded

    def _grid_codes(self, codes: Codes) -> Codes:
        """Return the grid's codes, with 0 for special values."""
        grid_codes: Codes = replaced(codes, np.asarray(codes >= self.inner.size), 0)
        return grid_codes.astype(self.inner.code_type, copy=False)

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        if _is_text(type_):
            entries, indices = np.unique(codes, return_inverse=True)
            texts = pa.array([self.inner.write_text(value) for value in self._objects(entries, None)], pa.string())
            array = texts.take(pa.array(indices, mask=missing))
            return (array.dictionary_encode() if pa.types.is_dictionary(type_) else array).cast(type_)
        value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
        grid_values = self.inner._decode(self._grid_codes(codes), value_type, None)
        ticks = self.inner.ticks(grid_values).copy()
        for code, value in self._figures.items():
            ticks[codes == code] = self.inner.special_tick(value, value_type)
        values = masked_array(ticks.astype(self.inner.tick_type(value_type), copy=False), missing)
        values = values if values.type == value_type else values.view(value_type)
        return values.dictionary_encode() if pa.types.is_dictionary(type_) else values

    def _objects(self, codes: Codes, missing: Mask) -> Objects:
        objects: Objects = self.inner._objects(self._grid_codes(codes), None)
        for code, value in enumerate(self.special_labels, self.inner.size):
            objects[codes == code] = value
        if missing is not None:
            objects[missing] = None
        return objects

    @property
    def special_labels(self) -> list[Any]:
        """The special values as Python objects of released rows."""
        return [v if self._is_word(v) else self.inner.special_object(v) for v in self.special]

    def labels(self) -> list[Any]:
        """Return the values of the grid and the special values."""
        return [*self.inner.labels(), *self.special_labels]

    def _holds(self, value: Any, code: int) -> bool:
        return bool(code >= self.inner.size or self.inner._holds(value, code))

    def code_distance(self, x: int, y: int) -> float:
        """Return the grid's distance, or the diameter between a special value and any other."""
        if max(x, y) >= self.inner.size:
            return 0.0 if x == y else self.diameter
        return float(self.inner.code_distance(x, y))

    def numbers(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
        """Return the grid's numbers; special values have an arbitrary number."""
        numbers: npt.NDArray[np.float64] = self.inner.numbers(np.where(codes >= self.inner.size, 0, codes))
        return numbers

    def to_json(self) -> dict[str, Any]:
        """Return the space as a JSON object: the grid's fields and the special values."""
        return {**self.inner.to_json(), "special": list(self.special)}


def _is_text(type_: pa.DataType) -> bool:
    """Return whether values are strings, or a dictionary's."""
    t, type_ = pa.types, type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_))


def _check_special(grid: Any, special: Any) -> tuple[Any, ...]:
    """Return special values in their canonical form, or raise `ParameterError`."""
    is_list = hasattr(special, "__iter__") and getattr(special, "ndim", 1) == 1
    if isinstance(special, str | bytes | set | frozenset | Mapping) or not is_list:
        raise ParameterError('special must be a list of values, such as special=[-9, "refused"]')
    values = list(special)
    if not 1 <= len(values) <= MAX_SPECIAL_VALUES:
        raise ParameterError(
            f"special must have 1 to {MAX_SPECIAL_VALUES} values; recode rarer ones as one, such as 'other reason'"
        )
    canonical = tuple(_canonical(grid, value) for value in values)
    if len(set(canonical)) < len(canonical):
        raise ParameterError("special lists a value twice; list each value once")
    figures = [value for value in canonical if grid.parse_special(value) is not None]
    on_grid = next((value for value in figures if grid.has_on_grid(value)), None)
    if on_grid is not None:
        raise ParameterError(
            f"special value {on_grid!s} is one of the space's numbers; set bounds or a step without it, or recode it "
            "as a word"
        )
    return canonical


def _canonical(grid: Any, value: Any) -> Any:
    """Return a special value as a plain word, number or text of a time."""
    if not isinstance(value, list | dict | set | tuple | np.ndarray) and is_missing(value):
        raise ParameterError("special must not hold null; for nulls declare Nullable(…) around the space")
    parsed, text = grid.parse_special(value), as_text(value)
    if parsed is not None:
        return parsed
    if text is None or not text or text != text.strip():
        raise ParameterError(
            f"special must be words, without blanks at their ends, or {grid.special_kind}, as in "
            f"special=[{grid.special_example}]"
        )
    if grid.read_text(text) is not text:
        raise ParameterError(f"special has the word {text!r}, which writes a number; give the number, without quotes")
    return text
