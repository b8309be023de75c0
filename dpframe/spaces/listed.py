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
from dpframe.spaces.object_codes import UNKNOWN_CODE, PlainCodes
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


def _check_categories(categories: Any, name: str, min_count: int) -> tuple[Any, ...]:
    # The order of a set differs from process to process, and with it the codes.
    is_list = hasattr(categories, "__iter__") and getattr(categories, "ndim", 1) == 1
    if isinstance(categories, str | bytes | set | frozenset | Mapping) or not is_list:
        raise ParameterError(f"{name} must be a list of values, e.g. {name}=['F', 'M']")
    values = tuple(map(_to_plain, categories))
    kinds = {str if isinstance(v, str) else type(v) for v in values}
    if len(values) < min_count or len(kinds) > 1 or not kinds <= {str, int, float, bool}:
        raise ParameterError(f"{name} must be at least {min_count} strings, or as many numbers, all of one type")
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


def _to_plain(value: Any) -> Any:
    """Return a category as a Python object, with 0.0 for −0.0."""
    if isinstance(value, np.generic):
        value = float(value) if isinstance(value, np.floating) else value.item()
    text = as_text(value)
    value = value if text is None else text
    return value + 0.0 if isinstance(value, float) else value


def _cast_categories(categories: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return categories in a column's type; None if they do not fit or are no longer distinct."""
    try:
        values = categories.cast(type_)
    except pa.ArrowInvalid:
        return None
    if not pa.types.is_floating(type_):
        return values
    numbers = np.asarray(values)
    # Whole numbers must stay exact, which Arrow does not check for 16-bit floats.
    is_exact = not pa.types.is_integer(categories.type) or bool((numbers == np.asarray(categories)).all())
    return values if is_exact and len(np.unique(numbers)) == len(categories) else None


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
        # From the space, never from the column: the column's index width reveals the number of observed values.
        return pa.from_numpy_dtype(np.min_scalar_type(-self.size))

    def check_type(self, type_: pa.DataType) -> None:
        """Accept plain and dictionary columns whose values are of the categories' kind."""
        values = type_.value_type if pa.types.is_dictionary(type_) else type_
        category_type = self._value_set.type
        t = pa.types
        is_text = t.is_string(values) or t.is_large_string(values) or t.is_string_view(values)
        is_number = t.is_integer(values) or t.is_floating(values)
        if t.is_string(category_type):
            fits = is_text
        elif t.is_boolean(category_type):
            fits = t.is_boolean(values)
        else:
            fits = is_number
        if not fits or (is_number and _cast_categories(self._value_set, values) is None):
            is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
            remedy = f"declare {_SETS}" if is_list else "declare categories of the column's type"
            raise refuse_type(f"a list of {category_type} categories", type_, remedy)

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Codes, Mask]:
        codes, missing = self.find(array)
        is_unknown = codes < 0
        if is_unknown.any():
            if self._other is None:
                raise ColumnError(_OUTSIDE, row=first_row(is_unknown))
            codes = replaced(codes, is_unknown, self._other)
        return codes.astype(self.code_type), missing

    def _known(self, array: pa.Array) -> pa.Array:
        is_known = self.find(array)[0] >= 0
        if self._other is not None or is_known.all():
            return array
        # Arrow cannot take from views.
        view_free = array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array
        return view_free.take(pa.array(np.arange(len(array)), mask=~is_known))

    def find(self, array: pa.Array) -> tuple[npt.NDArray[np.signedinteger], Mask]:
        """Return the code of every value (−1 if not listed, 0 for null) and a mask of nulls."""
        if not pa.types.is_dictionary(array.type):
            return self._look_up(array)
        entry_codes, null_entry = self._look_up(array.dictionary)
        # One byte for most columns: the steps below read every row several times.
        short_codes = entry_codes.astype(np.min_scalar_type(-max(self.size, 1)))
        indices, null = array.indices, len(entry_codes)
        if indices.null_count:
            # Null's place follows the last entry; without nulls it is absent, so that no invalid index reaches it.
            short_codes = np.append(short_codes, short_codes.dtype.type(0))
            needs_int64 = null > np.iinfo(indices.type.to_pandas_dtype()).max
            indices = (indices.cast(pa.int64()) if needs_int64 else indices).fill_null(null)
        index = np.asarray(indices)
        codes = short_codes.take(index)
        if null_entry is not None:
            return codes, np.append(null_entry, True).take(index)
        return codes, index == null if array.indices.null_count else None

    def _look_up(self, values: pa.Array) -> tuple[npt.NDArray[np.int32], Mask]:
        """Return the code of every value (−1 if unknown, 0 for null) and a mask of nulls."""
        if pa.types.is_string_view(values.type):
            values = values.cast(pa.large_string())
        is_missing, categories = missing_of(values), self._value_set.cast(values.type)
        if pa.types.is_float16(values.type):
            values, categories = values.cast(pa.float32()), categories.cast(pa.float32())
        if pa.types.is_floating(values.type):
            is_nan = np.asarray(pc.is_nan(values).fill_null(False))
            is_missing = is_nan if is_missing is None else is_missing | is_nan
            # Arrow distinguishes −0.0 and 0.0; adding 0.0 unites them.
            values, categories = (pc.add(part, pa.scalar(0.0, values.type)) for part in (values, categories))
        codes = np.asarray(pc.index_in(values, value_set=categories).fill_null(-1))
        return codes if is_missing is None else replaced(codes, is_missing, 0), is_missing

    @cached_property
    def _code_of(self) -> dict[Any, int]:
        return {label: code for code, label in enumerate(self.labels())}

    @cached_property
    def plain(self) -> PlainCodes:
        """The codes of objects of plain classes, equal to `_object_code`."""
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
            codes[codes == UNKNOWN_CODE] = self._other
        is_coded = codes != UNKNOWN_CODE
        return codes[is_coded].astype(self.code_type), is_coded

    def _objects(self, codes: Codes, missing: Mask) -> Objects:
        labels: Objects = np.array(self.labels(), dtype=object)[codes]
        if missing is not None:
            labels[missing] = None
        return labels

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
        # A 32-bit float matches the category that rounds to it, as in a column of 32-bit floats.
        is_short_float = isinstance(value, np.floating) and value.itemsize < 8 and pa.types.is_floating(kind)
        code = (self._codes_in(value.dtype) if is_short_float else self._code_of).get(key)
        code = self._other if code is None else code
        if code is None:
            raise ColumnError(_SEVERAL if isinstance(value, list | tuple | set | frozenset | np.ndarray) else _OUTSIDE)
        return code

    def _codes_in(self, dtype: Any) -> dict[float, int]:
        """Return the code of every category as a float of a dtype; unrounded if rounding unites categories."""
        if dtype not in self._narrow_codes:
            with np.errstate(over="ignore"):
                codes = {float(dtype.type(label)): code for code, label in enumerate(self.labels())}
            self._narrow_codes[dtype] = codes if len(codes) == self.size else self._code_of
        return self._narrow_codes[dtype]

    def _decode(self, codes: Codes, type_: pa.DataType, missing: Mask) -> pa.Array:
        values = type_.value_type if pa.types.is_dictionary(type_) else type_
        if not pa.types.is_dictionary(type_):
            # Arrow has no take for views.
            view_free_type = pa.large_string() if pa.types.is_string_view(values) else values
            return self._value_set.cast(view_free_type).take(masked_array(codes, missing)).cast(values)
        # A wider index than necessary stays: Parquet readers and writers expect int32.
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
        """Allowed values of a column, as text."""
        is_category = self.other in self.categories
        return listed(self.labels()) + (f" (any other counts as {self.other})" if is_category else "")

    metric = "discrete"

    def __post_init__(self) -> None:
        values = _check_categories(self.categories, "categories", 1)
        object.__setattr__(self, "categories", values)
        if self.other is not None:
            other = _to_plain(self.other)
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
        other_labels = [] if self.other is None or self.other in self.categories else [self.other]
        return [*self.categories, *other_labels]

    @property
    def _other(self) -> int | None:
        return None if self.other is None else self.labels().index(self.other)

    @property
    def fixed_point(self) -> int:
        """Code of ``other`` if there is one, else of the first category."""
        return self._other or 0

    @property
    def null_counts_as(self) -> str:
        """Text as in every space; empty with ``other``, which also takes nulls."""
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
        """Allowed values of a column, as text."""
        return f"{listed(self.labels())}, in this order"

    metric = "line"

    unit = "ranks"

    @property
    def mechanism(self) -> str:
        """``optimal`` for few categories, else the mechanism of all lines."""
        return "optimal" if self.size <= MOST_OPTIMAL else super().mechanism

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", _check_categories(self.categories, "categories", 2))

    @cached_property
    def size(self) -> int:
        """Number of categories."""
        return len(self.categories)
