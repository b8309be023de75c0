"""Types of arrays, replacement and decoding of codes, and Arrow lists as rows of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_PIECE_ROWS = 1 << 15
"""Number of values that are processed at a time, so that they stay in cache."""


def replaced(codes: npt.NDArray[Any], where: npt.NDArray[np.bool_], code: int) -> npt.NDArray[Any]:
    """Return whole numbers of shape (n,), with ``code`` in the rows of a mask of shape (n,).

    Narrow numbers are selected by bit operations: `numpy.where` branches at every row, which is slow for random masks.

    >>> replaced(np.array([1, 2, 3], dtype=np.uint8), np.array([False, True, False]), 7)
    array([1, 7, 3], dtype=uint8)
    """
    if codes.dtype.itemsize > 4:
        return np.where(where, codes.dtype.type(code), codes)
    result, new_code = np.empty_like(codes), codes.dtype.type(code)
    bits = np.empty(min(_PIECE_ROWS, len(codes)), dtype=codes.dtype)
    for start in range(0, len(codes), _PIECE_ROWS):
        part, out = codes[start : start + _PIECE_ROWS], result[start : start + _PIECE_ROWS]
        row_mask = bits[: len(part)]
        np.copyto(row_mask, where[start : start + _PIECE_ROWS])
        # −1 has all bits set, so that negation turns 0 and 1 into masks of bits.
        np.negative(row_mask, out=row_mask)
        np.bitwise_xor(part, new_code, out=out)
        np.bitwise_and(out, row_mask, out=out)
        np.bitwise_xor(out, part, out=out)
    return result


def by_pieces(
    work: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], values: npt.NDArray[Any], kind: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Return the result of work on values of shape (n,), as type ``kind``, in pieces that stay in cache.

    >>> by_pieces(np.rint, np.array([0.4, 1.6]), np.dtype(np.uint8))
    array([0, 2], dtype=uint8)
    """
    result = np.empty(len(values), dtype=kind)
    for start in range(0, len(values), _PIECE_ROWS):
        result[start : start + _PIECE_ROWS] = work(values[start : start + _PIECE_ROWS])
    return result


def masked_array(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return numbers of shape (n,) as an Arrow array, with nulls in the rows of a mask of shape (n,).

    `pyarrow.array` branches at every row of the mask, which takes longer than to decode the numbers.

    >>> masked_array(np.array([1, 2]), np.array([False, True])).to_pylist()
    [1, None]
    """
    if missing is None:
        return pa.array(values)
    present = np.packbits(~missing, bitorder="little")
    buffers = [pa.py_buffer(present), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def is_list_of_floats(type_: pa.DataType) -> bool:
    """Return whether values are lists, of a fixed size or not, of floats of 32 or 64 bits."""
    t = pa.types
    nested = t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_)
    return bool(nested and (t.is_float32(type_.value_type) or t.is_float64(type_.value_type)))


def list_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the lengths of lists, −1 for null lists."""
    return np.asarray(pc.list_value_length(array).fill_null(-1)).astype(np.int64)


def float_rows(array: pa.Array, width: int) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return the k complete lists of ``width`` numbers, shape (k, width), and a mask of these lists, shape (n,).

    Infinities are numbers; NaN and null are not, and values under null lists are left out.
    """
    fits = list_lengths(array) == width
    numbers = (array if fits.all() else array.filter(pa.array(fits))).flatten()
    rows = numbers.to_numpy(zero_copy_only=False).astype(np.float64, copy=False).reshape(-1, width)
    # Arrow's nulls are NaN in NumPy.
    is_complete = ~np.isnan(rows).any(axis=1)
    if is_complete.all():
        return rows, fits
    fits[np.flatnonzero(fits)[~is_complete]] = False
    return rows[is_complete], fits


def float_norms(rows: FloatArray) -> FloatArray:
    """Return ℓ2 norms of rows; squares of their numbers may overflow."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    with np.errstate(over="ignore"):
        return np.asarray(scale * np.sqrt(((rows / scale[:, None]) ** 2).sum(axis=1)))
