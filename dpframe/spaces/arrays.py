"""Names of the arrays that most rooms pass around, and what is done to codes in most of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_PIECE = 1 << 15
"""Values that are worked on at a time, which stay in cache."""


def replaced(codes: npt.NDArray[Any], where: npt.NDArray[np.bool_], code: int) -> npt.NDArray[Any]:
    """Return whole numbers of shape (n,), with one code where a mask of shape (n,) says so.

    Narrow numbers are chosen by their bits: `numpy.where` branches at every row, which a random mask makes slow.

    Examples
    --------
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

    Examples
    --------
    >>> by_pieces(np.rint, np.array([0.4, 1.6]), np.dtype(np.uint8))
    array([0, 2], dtype=uint8)
    """
    found = np.empty(len(values), dtype=kind)
    for start in range(0, len(values), _PIECE):
        found[start : start + _PIECE] = work(values[start : start + _PIECE])
    return found
