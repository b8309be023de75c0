"""Names of the arrays that most rooms pass around, what is done to codes in most of them, and Arrow lists as rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_PIECE = 1 << 15
"""Values that are worked on at a time, which stay in cache."""


def replaced(codes: npt.NDArray[Any], where: npt.NDArray[np.bool_], code: int) -> npt.NDArray[Any]:
    """Return whole numbers of shape (n,), with one code where a mask of shape (n,) says so.

    Narrow numbers are chosen by their bits: `numpy.where` branches at every row, which a random mask makes slow.

    >>> replaced(np.array([1, 2, 3], dtype=np.uint8), np.array([False, True, False]), 7)
    array([1, 7, 3], dtype=uint8)
    """
    if codes.dtype.itemsize > 4:
        return np.where(where, codes.dtype.type(code), codes)
    found, own = np.empty_like(codes), codes.dtype.type(code)
    bits = np.empty(min(_PIECE, len(codes)), dtype=codes.dtype)
    for start in range(0, len(codes), _PIECE):
        part, out = codes[start : start + _PIECE], found[start : start + _PIECE]
        chosen = bits[: len(part)]
        np.copyto(chosen, where[start : start + _PIECE])
        np.negative(chosen, out=chosen)
        np.bitwise_xor(part, own, out=out)
        np.bitwise_and(out, chosen, out=out)
        np.bitwise_xor(out, part, out=out)
    return found


def by_pieces(
    work: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], values: npt.NDArray[Any], kind: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Return what work makes of values of shape (n,), as another type: a piece at a time, so that steps stay in cache.

    >>> by_pieces(np.rint, np.array([0.4, 1.6]), np.dtype(np.uint8))
    array([0, 2], dtype=uint8)
    """
    found = np.empty(len(values), dtype=kind)
    for start in range(0, len(values), _PIECE):
        found[start : start + _PIECE] = work(values[start : start + _PIECE])
    return found


def masked_array(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return numbers of shape (n,) as an Arrow array that is null where a mask of shape (n,) is true.

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
    """Return the lengths of lists, −1 of null ones."""
    return np.asarray(pc.list_value_length(array).fill_null(-1)).astype(np.int64)


def float_rows(array: pa.Array, width: int) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return the numbers of the k lists that are ``width`` numbers, shape (k, width), and which these are, shape (n,).

    Infinities are numbers; NaN and null are not, and what lies under a null list is left out.
    """
    fits = list_lengths(array) == width
    flat = (array if fits.all() else array.filter(pa.array(fits))).flatten()
    rows = flat.to_numpy(zero_copy_only=False).astype(np.float64, copy=False).reshape(-1, width)
    # Arrow's nulls are NaN in NumPy.
    known = ~np.isnan(rows).any(axis=1)
    if known.all():
        return rows, fits
    fits[np.flatnonzero(fits)[~known]] = False
    return rows[known], fits


def float_norms(rows: FloatArray) -> FloatArray:
    """Return ℓ2 norms of rows, whose squares may be beyond all floats."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    with np.errstate(over="ignore"):
        return np.asarray(scale * np.sqrt(((rows / scale[:, None]) ** 2).sum(axis=1)))
