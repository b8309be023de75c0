"""Arrow lists of floats as rows of a matrix, and which of them are such a row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def is_list_of_floats(type_: pa.DataType) -> bool:
    """Return whether values are lists, of a fixed size or not, of floats of 32 or 64 bits."""
    t = pa.types
    nested = t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_)
    return bool(nested and (t.is_float32(type_.value_type) or t.is_float64(type_.value_type)))


def list_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the lengths of lists, −1 of null ones."""
    return np.asarray(pc.list_value_length(array).fill_null(-1)).astype(np.int64)


def float_rows(array: pa.Array, width: int) -> tuple[Floats, Bools]:
    """Return the numbers of lists of ``width``, and which lists are ``width`` numbers.

    Infinities are numbers; NaN and null are not, and what lies under a null list is left out.

    Returns
    -------
    Numbers, shape (k, width), of the k lists that are such a row, in order; and which these are, shape (n,).

    Examples
    --------
    >>> rows, fits = float_rows(pa.array([[1.0, 2.0], None, [3.0], [None, 0.0], [0.0, 4.0]]), 2)
    >>> rows.tolist(), fits.tolist()
    ([[1.0, 2.0], [0.0, 4.0]], [True, False, False, False, True])
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


def float_norms(rows: Floats) -> Floats:
    """Return ℓ2 norms of rows, whose squares may be beyond all floats."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    with np.errstate(over="ignore"):
        return np.asarray(scale * np.sqrt(((rows / scale[:, None]) ** 2).sum(axis=1)))
