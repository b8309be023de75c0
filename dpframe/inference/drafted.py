"""Spaces drafted from the data for the curator's eyes, to be checked against the codebook before they are declared."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError, name_list
from dpframe.inference.from_data import IDENTIFIER, Reader, from_data
from dpframe.inference.grids import is_number, present_numbers
from dpframe.inference.ranges import round_bounds
from dpframe.inference.steps import find_step, make_step_grid, step_counts
from dpframe.spaces import Integer, Real, Space
from dpframe.spaces.base import decoded
from dpframe.spaces.field import Field, is_open
from dpframe.spaces.special import MAX_SPECIAL_VALUES, Special
from dpframe.spaces.written_values import is_blank, read_as_written, read_written

TITLE = "FOR THE CURATOR ALONE: read off the data, not private. Check each line against the codebook"
"""The first lines of a draft."""

MOST_CATEGORIES = 100
"""Values of a column beyond which a draft leaves it out: it has a row's own text, or names (tuned; effect not
measured)."""

_PARTS = 4
"""Each bound of a draft is moved outwards by at most one of so many parts of their distance (tuned; effect not
measured)."""

_CHECKS = {
    "integer": "bounds that the question allows; here those seen, rounded",
    "real": "bounds that the question allows; here those seen, rounded",
    "datetime": "the period of the survey; here the data's own ends",
    "categorical": "all answers that the question allows",
    "ordinal": "all answers that the question allows, in their order",
    "subset": "all items that the question offers, and how many a row may have",
    "vector": "the largest norm that is possible; here the data's own",
    "boolean": "nothing: the type says it",
}
_NULLS_NOTE = "; and whether nulls are possible"
_CODE_NOTE = "; {} in {} row{} is far from all others: if it is no code, take special out and widen the bounds"
_WORDS_NOTE = "; and that {} among numbers means no number: in a partly labelled scale, declare categories"

_DISTINCT_NOTE = (
    "; every row has its own: if it looks like an identifier to you, leave it out, no noise makes it useful"
)

_MIN_DISTINCT_ROWS = 30
"""Rows from which on whole numbers that all differ are said to be each row's own (tuned; effect not measured)."""

_LAST_YEAR = 9999
"""Year of days that stand for a missing or open end (theory: the last year of ISO 8601 dates)."""

_CODE_DISTANCE_FACTOR = 3
"""Times as far from 0 as all other values a number of nines lies that may stand for a missing one (tuned; effect not
measured)."""


@dataclass(frozen=True, repr=False)
class DraftedSpaces(Mapping[str, Any]):
    """Spaces by column, as read off the data: a plan made from them says in its ``leaks`` that they were not reviewed.

    Parameters
    ----------
    spaces
        ``{column: space}``.
    reviewed
        Whether a person has checked them against the codebook; then they are declarations like any other.
    notes, left_out
        Checks for each column, and the reasons why others are left out.

    Examples
    --------
    >>> draft = DraftedSpaces({"age": Integer(0, 100)})
    >>> print(draft)  # doctest: +ELLIPSIS
    # FOR THE CURATOR ALONE: ...
    spaces = dpf.DraftedSpaces({
        "age": dpf.Integer(lower=0, upper=100, step=1),
    }, reviewed=False)
    """

    spaces: Mapping[str, Any]
    reviewed: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.spaces[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.spaces)

    def __len__(self) -> int:
        return len(self.spaces)

    def renamed(self, name_of: Callable[[Any], Any]) -> DraftedSpaces:
        """Return these spaces under other names."""
        return replace(self, spaces={name_of(name): space for name, space in self.spaces.items()})

    def confirm(self) -> DraftedSpaces:
        """Return the spaces as reviewed: a person confirms that each was checked."""
        return replace(self, reviewed=True)

    def __str__(self) -> str:
        lines = [f"# {TITLE}", "spaces = dpf.DraftedSpaces({"]
        for name, space in self.spaces.items():
            note = f"  # check: {self.notes[name]}" if name in self.notes else ""
            code = re.sub(r"(?<![\w'\"])([A-Z][a-z]+)\(", r"dpf.\1(", repr(space))
            lines.append(f'    "{_escape(name)}": {code},{note}')
        lines += [f"    # {_escape(name)!r} is left out: {why}" for name, why in self.left_out.items()]
        return "\n".join([*lines, f"}}, reviewed={self.reviewed})"])

    __repr__ = __str__


def check_reviewed(spaces: Any) -> None:
    """Raise `ParameterError` for a draft that nobody has reviewed, if no plan can record this."""
    if isinstance(spaces, DraftedSpaces) and not spaces.reviewed:
        raise ParameterError(
            "spaces were drafted from the data and not reviewed: check each, and pass spaces=draft.confirm(), or in a "
            "file write reviewed: true"
        )


def _escape(name: str) -> str:
    """Return a name as the content of a Python string in double quotes."""
    return name.encode("unicode_escape").decode().replace('"', '\\"')


def drafted(columns: Sequence[Field], read: Reader, read_texts: Reader | None = None) -> DraftedSpaces:
    """Return spaces of columns, read off their values.

    ``columns``: columns by name, type and nullability; ``read``: gives a column's Arrow arrays; ``read_texts``: gives
    the numbers and words of an object column as text.
    """
    spaces: dict[str, Space] = {}
    notes, reasons = {}, {}
    for column in columns:
        if IDENTIFIER.search(column.name):
            reasons[column.name] = "it looks like an identifier; privacy_id= takes one that names persons"
            continue
        try:
            words, typed_column = _read_without_words(column, read, read_texts)
            code, code_note = _find_missing_code(*typed_column)
            typed_column = typed_column if code is None else _without_code(code, *typed_column)
            space = from_data(*typed_column)
        except ColumnError as error:
            reasons[column.name] = error.rule
            continue
        # Such text is a row's own, or names: a draft would list every value.
        inner = space.inner_space
        if inner.is_listed and not inner.is_numeric and inner.size > MOST_CATEGORIES:
            reasons[column.name] = f"it has more than {MOST_CATEGORIES} values, and few of them have many rows"
            continue
        type_ = typed_column[0].type
        values = [present_numbers(array)[0] for array in typed_column[1](column.name)] if is_number(type_) else []
        special = [*words, *([] if code is None else [code])]
        wider_space = _widen_bounds(space, values, type_)
        spaces[column.name] = wider_space.around(Special(wider_space.inner_space, special)) if special else wider_space
        notes[column.name] = _CHECKS.get(inner.tag, "that it fits the codebook") + _NULLS_NOTE * space.has_null
        rows = sum(map(len, values))
        # Numbers of members are whole and all different, as measurements seldom are.
        is_long_whole = pa.types.is_integer(type_) and rows >= _MIN_DISTINCT_ROWS
        are_distinct = is_long_whole and len(np.unique(np.concatenate(values))) == rows
        notes[column.name] += code_note + _DISTINCT_NOTE * are_distinct
        notes[column.name] += _WORDS_NOTE.format(name_list(words)) if words else ""
    return DraftedSpaces(spaces, False, notes, reasons)


def _read_without_words(
    column: Field, read: Reader, read_texts: Reader | None
) -> tuple[list[str], tuple[Field, Reader]]:
    """Return the words of text that is mostly numbers, and the column and its reader without them, with their type."""
    has_objects = read_texts is not None and is_open(column.type) and not column.listed
    if not (column.written or has_objects):
        return [], (column, read)
    texts = list(read(column.name) if read_texts is None else read_texts(column.name))
    arrays, words = read_as_written(texts), list[str]()
    if arrays and pa.types.is_string(decoded(arrays[0][:0]).type):
        is_word = [np.asarray(read_written(part, pa.float64()).is_null()) & ~is_blank(part) for part in texts]
        word_set = {text.strip() for part, mask in zip(texts, is_word, strict=True) for text in _select(part, mask)}
        figures = {text.strip() for part, mask in zip(texts, is_word, strict=True) for text in _select(part, ~mask)}
        number_arrays = read_as_written([part.filter(pa.array(~m)) for part, m in zip(texts, is_word, strict=True)])
        are_numbers = is_number(number_arrays[0].type) and len(word_set) <= MAX_SPECIAL_VALUES
        # A partly labelled scale has about as many words as numbers.
        if are_numbers and len(figures - {""}) > 2 * len(word_set):
            arrays, words = number_arrays, sorted(word_set)
    if has_objects and not words:
        return [], (column, read)
    typed_column = replace(column, type=arrays[0].type if arrays else pa.string(), written=False)
    return words, (typed_column, lambda name: arrays)


def _select(texts: pa.Array, mask: npt.NDArray[np.bool_]) -> Iterator[str]:
    """Yield the distinct texts in the rows of a mask."""
    return (text for text in texts.filter(pa.array(mask)).unique().to_pylist() if text is not None)


def _find_missing_code(column: Field, read: Reader) -> tuple[Any, str]:
    """Return a number of nines far from all others, or a day of 9999, as a probable code, and a note; or None."""
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        return _find_missing_day(read(column.name))
    if not is_number(column.type):
        return None, ""
    numbers = np.concatenate([np.zeros(0), *(present_numbers(array)[0] for array in read(column.name))])
    if not len(numbers):
        return None, ""
    code = float(numbers[np.argmax(np.abs(numbers))])
    other_sizes = np.abs(numbers[numbers != code])
    digits = f"{abs(code):.0f}"
    if (
        abs(code) != float(digits)
        or set(digits) != {"9"}
        or not len(other_sizes)
        or abs(code) < _CODE_DISTANCE_FACTOR * other_sizes.max()
    ):
        return None, ""
    rows = len(numbers) - len(other_sizes)
    return int(code), _CODE_NOTE.format(f"{code:.0f}", rows, "s" * (rows != 1))


def _find_missing_day(arrays: Iterable[pa.Array]) -> tuple[Any, str]:
    """Return the last day if it lies in the year 9999 and others do not, and a note; or None."""
    counts = Counter[Any]()
    for array in map(decoded, arrays):
        counts.update({day["values"]: day["counts"] for day in pc.value_counts(array.drop_null()).to_pylist()})
    last = max(counts, default=None)
    if last is None or last.year != _LAST_YEAR or len(counts) < 2 or sorted(counts)[-2].year == _LAST_YEAR:
        return None, ""
    rows = counts[last]
    return last, _CODE_NOTE.format(str(last).removesuffix(" 00:00:00"), rows, "s" * (rows != 1))


def _without_code(code: Any, column: Field, read: Reader) -> tuple[Field, Reader]:
    """Return a column and its reader without the rows of a code."""

    def read_others(name: str) -> Iterator[pa.Array]:
        for array in map(decoded, read(name)):
            yield array.filter(pc.not_equal(array, pa.scalar(code, array.type)).fill_null(True))

    return column, read_others


def _widen_bounds(space: Space, values: Sequence[npt.NDArray[Any]], type_: pa.DataType) -> Space:
    """Return a space of numbers with rounded, slightly wider bounds; floats on the grid of their step."""
    inner: Any = space.inner_space
    if isinstance(inner, Integer) and inner.step == 1:
        lower, upper = (int(edge) for edge in round_bounds(inner.lower, inner.upper, _PARTS))
        wider_space: Space = Integer(lower, max(upper, lower + 1))
    elif isinstance(inner, Real):
        low, high = round_bounds(float(inner.lower), float(inner.upper), _PARTS)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            return space
        step = find_step(step_counts(np.concatenate(values)).tolist(), 0.0, off_grid=0.0) if values else None
        wider_space = (None if step is None else make_step_grid(low, high, step, type_)) or Real(low, high)
    else:
        return space
    return space.around(wider_space)
