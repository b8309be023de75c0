"""Arrow types, as they come in and as they leave."""

from __future__ import annotations

import pyarrow as pa


def is_text(type_: pa.DataType) -> bool:
    """Return whether values are strings, whose declared values are read as dictionaries and never row by row."""
    t = pa.types
    return bool(t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_))


def is_list(type_: pa.DataType) -> bool:
    """Return whether values are lists, of any length or of one."""
    t = pa.types
    return bool(t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_))


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type by which a column is copied: no dictionary, no view, no metadata of inner fields.

    A dictionary reveals in which order the input had its values, and values it no longer has; Arrow
    cannot reorder views. An ordered dictionary stays: its order has a meaning.
    """
    t = pa.types
    if t.is_dictionary(type_):
        return type_ if type_.ordered else plain_type(type_.value_type)
    if t.is_string_view(type_):
        return pa.string()
    if t.is_binary_view(type_):
        return pa.binary()
    if t.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if t.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field), type_.keys_sorted)
    if t.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    if t.is_list(type_):
        return pa.list_(_plain_field(type_.value_field))
    if t.is_large_list(type_):
        return pa.large_list(_plain_field(type_.value_field))
    return type_


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type), field.nullable)


def output_type(type_: pa.DataType) -> pa.DataType:
    """Return the type released values are given: the column's own, with dictionaries indexed by int32.

    The width of a dictionary's index follows the number of categories observed, so it is not kept. Lists of a
    fixed size become lists: noise heeds no size.
    """
    if is_list(type_):
        inner = pa.field(type_.value_field.name, output_type(type_.value_type), type_.value_field.nullable)
        return pa.large_list(inner) if pa.types.is_large_list(type_) else pa.list_(inner)
    if pa.types.is_dictionary(type_):
        return pa.dictionary(pa.int32(), type_.value_type, ordered=type_.ordered)
    return type_
