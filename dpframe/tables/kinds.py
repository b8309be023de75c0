"""Columns whose values are coded as another type: times of day as the time since midnight, decimals as floats.

Decimals are on a grid of their last digit, or of whole multiples of it, so that what is released is exact.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpframe.spaces.field import Field

_EXACT = 18
"""Digits of whole numbers that 64 bits hold; of more they are floats."""
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def coded_type(type_: pa.DataType) -> pa.DataType:
    """Return the type as which a column is coded: mostly its own.

    Examples
    --------
    >>> coded_type(pa.time32("s")), coded_type(pa.int64())
    (DurationType(duration[s]), DataType(int64))
    """
    if _is_decimal(type_):
        return pa.int64() if type_.scale == 0 and type_.precision <= _EXACT else pa.float64()
    return pa.duration(type_.unit) if pa.types.is_time(type_) else type_


def coded_field(name: str, type_: pa.DataType, nullable: bool) -> Field:
    """Return what is public about a column, as it is coded."""
    decimal = (type_.precision, type_.scale) if _is_decimal(type_) else None
    return Field(name, coded_type(type_), nullable, of_day=bool(pa.types.is_time(type_)), decimal=decimal)


def _is_decimal(type_: pa.DataType) -> bool:
    """Return whether values are decimals, and not whole hundreds, to which Arrow casts no floats."""
    return bool(pa.types.is_decimal(type_) and type_.scale >= 0)


def as_coded(array: pa.Array) -> pa.Array:
    """Return values as they are coded."""
    if _is_decimal(array.type):
        return array.cast(coded_type(array.type), safe=False)
    if not pa.types.is_time(array.type):
        return array
    ticks = array.view(pa.int32() if pa.types.is_time32(array.type) else pa.int64())
    return ticks.cast(pa.int64()).view(coded_type(array.type))


def as_stored(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return decoded values as a column of a type has them; times of day stay within the day."""
    if _is_decimal(type_):
        # Arrow wants room for all whole numbers on the way.
        return (array.cast(pa.decimal128(19, 0)) if pa.types.is_integer(array.type) else array).cast(type_)
    if not pa.types.is_time(type_):
        return array
    missing = np.asarray(array.is_null())
    ticks = np.clip(np.asarray(array.view(pa.int64()).fill_null(0)), 0, _DAY[type_.unit] - 1)
    narrow = np.int32 if pa.types.is_time32(type_) else np.int64
    return pa.array(ticks.astype(narrow), mask=missing if missing.any() else None).view(type_)
