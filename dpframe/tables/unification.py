"""One schema of files that differ, as Arrow's datasets unify schemas, and the cast of a file's columns to it.

Schemas are public: what is unified or refused never depends on a row.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dpframe.errors import FileError
from dpframe.tables.types import is_list

_MANTISSA_BITS = {16: 11, 32: 24, 64: 53}
"""Bits of whole numbers that a float of each width holds (theory: IEEE 754)."""

_UNIT_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MOST_TICKS = (1 << 63) - 1
"""Limit on the ticks of a time or duration: 64 bits."""


@dataclass(frozen=True)
class LabelledSchema:
    """The schema of a file, and the file's name for messages."""

    label: str
    schema: pa.Schema


def unify_schemas(files: Sequence[LabelledSchema]) -> pa.Schema:
    """Return one schema for all files: their columns in order of appearance, each of the type that Arrow unifies.

    Raises `FileError` with the file and the column if Arrow does not unify the types, if values would overflow, or if
    a file lacks a column that is not nullable.
    """
    names = dict.fromkeys(name for file in files for name in file.schema.names)
    return pa.schema([_unify_column(name, files) for name in names])


def _unify_column(name: str, files: Sequence[LabelledSchema]) -> pa.Field:
    holders = [file for file in files if name in file.schema.names]
    first, field = holders[0], holders[0].schema.field(name)
    for file in holders[1:]:
        file_field = file.schema.field(name)
        union = _unify_fields(field, file_field)
        if union is None or not all(is_readable_as(f.type, union.type) for f in (field, file_field)):
            raise FileError(
                f"{file.label} has {file_field.type} in column {name!r}, where {first.label} has {field.type}; "
                "convert one of them"
            )
        field = union
    absent = next((file for file in files if name not in file.schema.names), None)
    if absent is not None and not field.nullable:
        raise FileError(
            f"{absent.label} lacks column {name!r}, which {first.label} requires; add it, or let the column be nullable"
        )
    return field


def _unify_fields(a: pa.Field, b: pa.Field) -> pa.Field | None:
    """Return the field by which Arrow reads both; None if there is none."""
    if a.equals(b):
        return a
    with contextlib.suppress(pa.ArrowException):
        return pa.unify_schemas([pa.schema([a]), pa.schema([b])], promote_options="permissive").field(0)
    return None


def is_exact(type_: pa.DataType, union: pa.DataType) -> bool:
    """Return whether a type that Arrow unifies from others holds every value of one of them.

    >>> is_exact(pa.int32(), pa.int64()), is_exact(pa.int64(), pa.float64())
    (True, False)
    """
    rules = (rule for is_kind, rule in _EXACT_RULES if is_kind(type_))
    return type_ == union or next(rules, _is_wider)(type_, union)


def is_readable_as(type_: pa.DataType, union: pa.DataType) -> bool:
    """Return whether `cast_nearest` reads every value of a type as the nearest value of another type.

    >>> is_readable_as(pa.int64(), pa.float64()), is_readable_as(pa.uint64(), pa.int64())
    (True, False)
    """
    t = pa.types
    is_number = t.is_integer(type_) or t.is_decimal(type_)
    is_rounded = is_number and (t.is_float32(union) or t.is_float64(union))
    return is_exact(type_, union) or _has_finer_ticks(type_, union) or bool(is_rounded)


def _is_wider(type_: pa.DataType, union: pa.DataType) -> bool:
    # Arrow unifies text, bytes, floats, dates and times of day to the wider type only.
    return True


def _holds_integers(type_: pa.DataType, union: pa.DataType) -> bool:
    t = pa.types
    bits = type_.bit_width - t.is_signed_integer(type_)
    if t.is_decimal(union):
        return bool(union.precision - union.scale >= math.ceil(bits * math.log10(2)))
    if t.is_floating(union):
        return bool(bits <= _MANTISSA_BITS[union.bit_width])
    is_signed = t.is_signed_integer(union)
    return bool(bits <= union.bit_width - is_signed and (is_signed or t.is_unsigned_integer(type_)))


def _holds_decimals(type_: pa.DataType, union: pa.DataType) -> bool:
    if not pa.types.is_decimal(union):
        return False
    return bool(union.scale >= type_.scale and union.precision - union.scale >= type_.precision - type_.scale)


def _holds_fields(type_: pa.DataType, union: pa.DataType) -> bool:
    return all(is_exact(field.type, union.field(field.name).type) for field in type_)


def _holds_items(type_: pa.DataType, union: pa.DataType) -> bool:
    return is_exact(type_.key_type, union.key_type) and is_exact(type_.item_type, union.item_type)


def _holds_entries(type_: pa.DataType, union: pa.DataType) -> bool:
    # The entries of an ordered dictionary cannot be encoded anew: their order has a meaning.
    return not type_.ordered and is_exact(type_.value_type, union.value_type)


_Rule = Callable[[pa.DataType, pa.DataType], bool]
_EXACT_RULES: list[tuple[Callable[[pa.DataType], bool], _Rule]] = [
    (pa.types.is_integer, _holds_integers),
    (pa.types.is_decimal, _holds_decimals),
    (pa.types.is_timestamp, pa.DataType.equals),
    (pa.types.is_duration, pa.DataType.equals),
    (is_list, lambda type_, union: is_exact(type_.value_type, union.value_type)),
    (pa.types.is_struct, _holds_fields),
    (pa.types.is_map, _holds_items),
    (pa.types.is_dictionary, _holds_entries),
]


def _has_finer_ticks(type_: pa.DataType, union: pa.DataType) -> bool:
    t = pa.types
    is_alike = (t.is_timestamp(type_) and t.is_timestamp(union)) or (t.is_duration(type_) and t.is_duration(union))
    return bool(is_alike and _UNIT_TICKS[union.unit] >= _UNIT_TICKS[type_.unit])


def cast_nearest(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return values in a type that `is_readable_as` allows: rounded to a float, or clipped to the times of a unit.

    No value is refused: the refusal would depend on a row.

    >>> cast_nearest(pa.array([2**40, None]).cast(pa.timestamp("s")), pa.timestamp("ns"))[0].as_py().year
    2262
    """
    if pa.types.is_dictionary(array.type):
        entries = array.dictionary.cast(type_.value_type)
        # Encoded anew: the cast of entries may make two of them equal.
        return entries.take(array.indices).dictionary_encode().cast(type_)
    if _has_finer_ticks(array.type, type_):
        most_ticks = _MOST_TICKS // (_UNIT_TICKS[type_.unit] // _UNIT_TICKS[array.type.unit])
        ticks = pc.min_element_wise(array.view(pa.int64()), most_ticks, skip_nulls=False)
        array = pc.max_element_wise(ticks, -most_ticks, skip_nulls=False).view(array.type)
    return array.cast(type_, safe=False)
