"""Spaces that are a list of values: booleans, categories, ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import ColumnError, ParameterError
from dpframe.spaces.arrays import masked_array, replaced
from dpframe.spaces.base import Codes, Mask, Space, first_row, missing_of, refuse_object, refuse_type, register
from dpframe.spaces.object_codes import UNKNOWN, PlainCodes
from dpframe.spaces.object_reading import Objects
from dpframe.spaces.python_values import as_number, as_text
from dpframe.spaces.words import listed

MOST_OPTIMAL = 16
"""Most ordered categories whose default is the optimal mechanism: a tenth of a second to calibrate and 4 kB in a
plan; at 32 it would be 0.4 s and 17 kB."""

_OUTSIDE = "holds a category outside the declared list; add it, or declare Categorical([…], other=…)"

_SETS = "Subset([ITEM, …]) for sets of items"
_SEVERAL = f"holds several values where one category was declared; declare {_SETS}"


@register
@dataclass(frozen=True)
class Boolean(Space):
    """False and True, with the discrete metric.

    Examples
    --------
    >>> Boolean().encode([True, False]).tolist()
    [1, 0]
    """

    tag: ClassVar[str] = "boolean"

    contents = "true or false"

    metric = "discrete"

    size = 2

    natural_type = pa.bool_()

    def check_type(self, type_: pa.DataType) -> None:
        """Accept Arrow booleans only."""
        if not pa.types.is_boolean(type_):
            numbers = ", or for zeros and ones the bounds (0, 1)" if pa.types.is_integer(type_) else ""
            raise refuse_type("Boolean()", type_, f"convert the column to bool or declare its categories{numbers}")

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        missing = missing_of(array)
        array = array if missing is None else array.fill_null(False)
        return np.asarray(array).astype(np.uint8), missing

    def _object_code(self, value: Any, lenient: bool) -> int:
        if not isinstance(value, bool | np.bool_):
            raise refuse_object("boolean", "Boolean()", "convert the column to bool or declare its categories")
        return int(value)

    def _class_codes(self, class_: type, objects: Objects, lenient: bool) -> tuple[Codes, npt.NDArray[np.bool_]] | None:
        return (objects.astype(np.uint8), np.ones(len(objects), dtype=np.bool_)) if class_ is bool else None

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        return pa.array(codes.astype(np.bool_), mask=missing)

    def labels(self) -> list[Any]:
        """Return [False, True]."""
        return [False, True]

    def numbers(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return 0 and 1, so that a mean is a share."""
        return codes.astype(np.float64)


def _check_categories(categories: Any, name: str, least: int) -> tuple[Any, ...]:
    # The order of a set differs from process to process, and with it the codes.
    listed = hasattr(categories, "__iter__") and getattr(categories, "ndim", 1) == 1
    if isinstance(categories, str | bytes | set | frozenset | Mapping) or not listed:
        raise ParameterError(f"{name} must be a list of values, e.g. {name}=['F', 'M']")
    values = tuple(map(_plain, categories))
    kinds = {str if isinstance(v, str) else type(v) for v in values}
    if len(values) < least or len(kinds) > 1 or not kinds <= {str, int, float, bool}:
        raise ParameterError(f"{name} must be at least {least} strings, or as many numbers, all of one type")
    if len(set(values)) < len(values):
        raise ParameterError(f"{name} holds a value twice; list every category once")
    if kinds == {float} and not all(map(math.isfinite, values)):
        raise ParameterError(f"{name} must be finite; nulls are declared with Nullable(…)")
    if not _is_storable(values):  # raised here, without Arrow's error, which has the value
        raise ParameterError(f"{name} must be numbers within 64 bits, or valid Unicode text")
    return values


def _is_storable(values: tuple[Any, ...]) -> bool:
    try:
        pa.array(values)
    except (pa.ArrowException, ValueError, OverflowError):
        return False
    return True


def _plain(value: Any) -> Any:
    """Return a category as a Python object, and −0.0 as 0.0, which equals it."""
    if isinstance(value, np.generic):
        value = float(value) if isinstance(value, np.floating) else value.item()
    text = as_text(value)
    value = value if text is None else text
    return value + 0.0 if isinstance(value, float) else value


def _cast(categories: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return categories in a column's type, or None where they do not fit or fall together."""
    try:
        values = categories.cast(type_)
    except pa.ArrowInvalid:
        return None
    if not pa.types.is_floating(type_):
        return values
    numbers = np.asarray(values)
    # Whole numbers are to be held as they are, which Arrow does not see to in 16 bits.
    kept = not pa.types.is_integer(categories.type) or bool((numbers == np.asarray(categories)).all())
    return values if kept and len(np.unique(numbers)) == len(categories) else None


class _Listed(Space):
    """Coding shared by the spaces that are a list of values."""

    categories: tuple[Any, ...]

    is_listed = True

    @property
    def _other(self) -> int | None:
        return None

    def labels(self) -> list[Any]:
        """Return the categories."""
        return list(self.categories)

    @cached_property
    def _value_set(self) -> pa.Array:
        return pa.array(self.labels())

    @property
    def natural_type(self) -> pa.DataType:
        """Dictionaries of the categories' type."""
        return pa.dictionary(self._index_type, self._value_set.type, ordered=self.metric == "line")

    @property
    def _index_type(self) -> pa.DataType:
        # From the space, never from the column: an index width follows the number of values observed.
        return pa.from_numpy_dtype(np.min_scalar_type(-self.size))

    def check_type(self, type_: pa.DataType) -> None:
        """Accept plain and dictionary columns whose values are of the categories' kind."""
        values = type_.value_type if pa.types.is_dictionary(type_) else type_
        mine = self._value_set.type
        t = pa.types
        text = t.is_string(values) or t.is_large_string(values) or t.is_string_view(values)
        number = t.is_integer(values) or t.is_floating(values)
        if t.is_string(mine):
            fits = text
        elif t.is_boolean(mine):
            fits = t.is_boolean(values)
        else:
            fits = number
        if not fits or (number and _cast(self._value_set, values) is None):
            several = pa.types.is_list(type_) or pa.types.is_large_list(type_)
            remedy = f"declare {_SETS}" if several else "declare categories of the column's type"
            raise refuse_type(f"a list of {mine} categories", type_, remedy)

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        codes, missing = self.find(array)
        unknown = codes < 0
        if unknown.any():
            if self._other is None:
                raise ColumnError(_OUTSIDE, row=first_row(unknown))
            codes = replaced(codes, unknown, self._other)
        return codes.astype(self.code_type), missing

    def _known(self, array: pa.Array) -> pa.Array:
        known = self.find(array)[0] >= 0
        if self._other is not None or known.all():
            return array
        # Arrow cannot take from views.
        taken = array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array
        return taken.take(pa.array(np.arange(len(array)), mask=~known))

    def find(self, array: pa.Array) -> tuple[npt.NDArray[np.signedinteger], Mask]:
        """Return the code of every value (−1 where it is not listed, 0 where null) and where values are null."""
        if not pa.types.is_dictionary(array.type):
            return self._look_up(array)
        entry_codes, null_entry = self._look_up(array.dictionary)
        # A byte for most columns: what follows goes over every row several times.
        narrow = entry_codes.astype(np.min_scalar_type(-max(self.size, 1)))
        indices, null = array.indices, len(entry_codes)
        if indices.null_count:
            # Behind the last entry: null's place. Without nulls there is none, so that no broken index finds it.
            narrow = np.append(narrow, narrow.dtype.type(0))
            wide = null > np.iinfo(indices.type.to_pandas_dtype()).max
            indices = (indices.cast(pa.int64()) if wide else indices).fill_null(null)
        index = np.asarray(indices)
        codes = narrow.take(index)
        if null_entry is not None:
            return codes, np.append(null_entry, True).take(index)
        return codes, index == null if array.indices.null_count else None

    def _look_up(self, values: pa.Array) -> tuple[npt.NDArray[np.int32], Mask]:
        """Return the code of every value (−1 where unknown, 0 where null) and where values are null."""
        if pa.types.is_string_view(values.type):
            values = values.cast(pa.large_string())
        missing, mine = missing_of(values), self._value_set.cast(values.type)
        if pa.types.is_float16(values.type):
            values, mine = values.cast(pa.float32()), mine.cast(pa.float32())
        if pa.types.is_floating(values.type):
            nan = np.asarray(pc.is_nan(values).fill_null(False))
            missing = nan if missing is None else missing | nan
            # Arrow distinguishes −0.0 and 0.0; adding 0.0 makes them one.
            values, mine = (pc.add(part, pa.scalar(0.0, values.type)) for part in (values, mine))
        codes = np.asarray(pc.index_in(values, value_set=mine).fill_null(-1))
        return codes if missing is None else replaced(codes, missing, 0), missing

    @cached_property
    def _code_of(self) -> dict[Any, int]:
        return {label: code for code, label in enumerate(self.labels())}

    @cached_property
    def plain(self) -> PlainCodes:
        """The codes of objects of plain classes, as `_object_code` has them."""
        kind = self._value_set.type
        if pa.types.is_string(kind):
            # NumPy's text is equal to Python's, but slow to compare.
            return PlainCodes(((str, None), (np.str_, str.__str__)), self._code_of)
        if pa.types.is_boolean(kind):
            return PlainCodes(((bool, None), (np.bool_, bool)), self._code_of)
        return PlainCodes(((int, None), (float, None), (np.int64, int)), self._code_of)

    def _class_codes(self, class_: type, objects: Objects, lenient: bool) -> tuple[Codes, npt.NDArray[np.bool_]] | None:
        codes = self.plain.of(class_, objects)
        if codes is None:
            return None
        if self._other is not None:
            codes[codes == UNKNOWN] = self._other
        sure = codes != UNKNOWN
        return codes[sure].astype(self.code_type), sure

    def _objects(self, codes: Codes, missing: Mask) -> Objects:
        taken: Objects = np.array(self.labels(), dtype=object)[codes]
        if missing is not None:
            taken[missing] = None
        return taken

    @cached_property
    def _narrow_codes(self) -> dict[Any, dict[float, int]]:
        return {}

    def _object_code(self, value: Any, lenient: bool) -> int:
        kind = self._value_set.type
        key: Any
        if pa.types.is_string(kind):
            key = as_text(value)
        elif pa.types.is_boolean(kind):
            key = bool(value) if isinstance(value, bool | np.bool_) else None
        else:
            key = as_number(value)
        # A short float names the category that is written so in short, as in a column of short floats.
        short = isinstance(value, np.floating) and value.itemsize < 8 and pa.types.is_floating(kind)
        code = (self._codes_in(value.dtype) if short else self._code_of).get(key)
        code = self._other if code is None else code
        if code is None:
            raise ColumnError(_SEVERAL if isinstance(value, list | tuple | set | frozenset | np.ndarray) else _OUTSIDE)
        return code

    def _codes_in(self, dtype: Any) -> dict[float, int]:
        """Return the code of every category as a float of a dtype, or as it is where some fall together."""
        if dtype not in self._narrow_codes:
            with np.errstate(over="ignore"):
                codes = {float(dtype.type(label)): code for code, label in enumerate(self.labels())}
            self._narrow_codes[dtype] = codes if len(codes) == self.size else self._code_of
        return self._narrow_codes[dtype]

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        values = type_.value_type if pa.types.is_dictionary(type_) else type_
        if not pa.types.is_dictionary(type_):
            # Arrow has no take for views.
            taken = pa.large_string() if pa.types.is_string_view(values) else values
            return self._value_set.cast(taken).take(masked_array(codes, missing)).cast(values)
        # A wider index than needed is kept: Parquet readers and writers want int32.
        index_type = max(type_.index_type, self._index_type, key=lambda t: t.bit_width)
        indices = masked_array(codes.astype(index_type.to_pandas_dtype()), missing)
        entries = self._value_set.cast(values)
        # Not checked again: `decode` has checked the codes.
        return pa.DictionaryArray.from_arrays(indices, entries, ordered=type_.ordered, safe=False)


@register
@dataclass(frozen=True)
class Categorical(_Listed):
    """A list of values without order, with the discrete metric.

    Parameters
    ----------
    categories
        Strings, or numbers or booleans, all of one type, each once.
    other
        Name of the bucket for values outside the list: one of the categories, or a further one.

    Raises
    ------
    ParameterError
        For an empty list, mixed types or duplicates.

    Examples
    --------
    >>> Categorical(["F", "M"], other="other").encode(["M", "X"]).tolist()
    [1, 2]
    """

    categories: tuple[Any, ...]
    other: Any = None

    tag: ClassVar[str] = "categorical"

    @property
    def contents(self) -> str:
        """What a column may hold."""
        shared = self.other in self.categories
        return listed(self.labels()) + (f" (any other counts as {self.other})" if shared else "")

    metric = "discrete"

    def __post_init__(self) -> None:
        values = _check_categories(self.categories, "categories", 1)
        object.__setattr__(self, "categories", values)
        if self.other is not None:
            other = _plain(self.other)
            if not isinstance(other, str) and type(other) is not type(values[0]):
                raise ParameterError("other must be a value of the categories' type, e.g. other='other'")
            _check_categories(values if other in values else (*values, other), "categories with other", 1)
            object.__setattr__(self, "other", other)

    @cached_property
    def size(self) -> int:
        """Number of categories, ``other`` included."""
        return len(self.labels())

    def labels(self) -> list[Any]:
        """Return the categories, ``other`` last unless it is one of them."""
        extra = [] if self.other is None or self.other in self.categories else [self.other]
        return [*self.categories, *extra]

    @property
    def _other(self) -> int | None:
        return None if self.other is None else self.labels().index(self.other)

    @property
    def fixed_point(self) -> int:
        """Code of ``other`` if there is one, else of the first category."""
        return self._other or 0

    @property
    def null_counts_as(self) -> str:
        """As of every space; `other` stands for nulls, too."""
        return "" if self.other is not None else super().null_counts_as


@register
@dataclass(frozen=True)
class Ordinal(_Listed):
    """A list of values in order, with the distance of ranks.

    Parameters
    ----------
    categories
        At least two values in ascending order, all of one type, each once.

    Raises
    ------
    ParameterError
        For fewer than two values, mixed types or duplicates.

    Examples
    --------
    >>> Ordinal(["low", "middle", "high"]).distance("low", "high")
    2.0
    """

    categories: tuple[Any, ...]

    tag: ClassVar[str] = "ordinal"

    @property
    def contents(self) -> str:
        """What a column may hold."""
        return f"{listed(self.labels())}, in this order"

    metric = "line"

    unit = "ranks"

    @property
    def mechanism(self) -> str:
        """``optimal`` for few categories, else that of all lines."""
        return "optimal" if self.size <= MOST_OPTIMAL else super().mechanism

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", _check_categories(self.categories, "categories", 2))

    @cached_property
    def size(self) -> int:
        """Number of categories."""
        return len(self.categories)
