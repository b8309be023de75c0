"""Cells that cut a fit's bins: how rows lie within a bin, to the first order.

Of a number that a fit knows by bins the other columns' law is known for each bin as a whole. Spread evenly over the bin
it would be a staircase; what is taken is the piecewise linear function with the bins' means that has the slope of the
two neighbours (as finite-volume schemes reconstruct a density: van Leer 1979), in the number's own ranks. Totals of
bins, and of each cell over all the others, stay what they are.
"""

from __future__ import annotations

import numpy as np

from dpframe.arrays import FloatArray


def moved_by_slopes(shares: FloatArray, exact: FloatArray, spread: FloatArray, present: int) -> FloatArray:
    """Return what the slopes within bins move into each cell, to be added to bins that are spread evenly.

    Parameters
    ----------
    shares
        A joint whose first axis has the bins, shape (bins, …).
    exact
        P(cell | fine cell) of the cells that are asked for, shape (cells, fine).
    spread
        P(fine cell | bin), shape (fine, bins).
    present
        Bins of values: null, after them, has no neighbours.

    Examples
    --------
    >>> joint = np.array([[0.3, 0.0], [0.2, 0.2], [0.0, 0.3]])  # three bins of two fine cells each
    >>> spread = np.kron(np.eye(3), [[0.5], [0.5]])
    >>> cells = np.kron(np.eye(2), [1.0, 1.0, 1.0])  # the first half, and the second
    >>> (cells @ spread @ joint + moved_by_slopes(joint, cells, spread, 3)).round(3).tolist()
    [[0.429, 0.071], [0.071, 0.429]]
    """
    joint = shares.reshape(len(shares), -1)
    held = joint.sum(axis=1)
    fine = spread @ held
    places = np.cumsum(fine) - fine / 2
    slopes = _slopes(joint, held, places @ spread, present)
    moments = exact @ (spread * (places[:, None] - places @ spread)) * held
    return np.asarray((moments @ slopes).reshape(len(exact), *shares.shape[1:]))


def left_open(
    shares: FloatArray, exact: FloatArray, spread: FloatArray, widths: FloatArray, present: int
) -> FloatArray:
    """Return by how much cells may err that take fine cells in part, as if rows lay evenly within these.

    Of a fine cell that is taken in part, the smaller part times by how much the density changes from one of its
    neighbours to the other, at most all of it: where neighbours are alike it hardly matters how rows lie.

    Parameters
    ----------
    shares, exact, spread, present
        As of `moved_by_slopes`.
    widths
        Codes in every fine cell, shape (fine,).

    Examples
    --------
    >>> even, steep = np.full((4, 1), 0.25), np.array([[0.6], [0.3], [0.1], [0.0]])
    >>> cells = np.array([[1, 0.5, 0, 0], [0, 0.5, 1, 1]])
    >>> [left_open(law, cells, np.eye(4), np.ones(4), 4).ravel().round(3).tolist() for law in (even, steep)]
    [[0.0, 0.0], [0.125, 0.125]]
    """
    part = np.minimum(exact, 1 - exact)
    if not part.any():
        return np.zeros((len(exact), *shares.shape[1:]))
    fine = spread @ shares.reshape(len(shares), -1)
    density = fine / widths[:, None]
    last = len(fine) - (present < len(shares))
    before, after = np.maximum(np.arange(last) - 1, 0), np.minimum(np.arange(last) + 1, last - 1)
    change = np.zeros_like(fine)
    change[:last] = np.abs(density[after] - density[before]) * widths[:last, None] / 2
    return np.asarray((part @ np.minimum(fine, change)).reshape(len(exact), *shares.shape[1:]))


def _slopes(joint: FloatArray, held: FloatArray, middles: FloatArray, present: int) -> FloatArray:
    """Return by how much the other columns' law changes along a bin, per unit of rank; 0 where a bin holds nothing."""
    known = np.flatnonzero(held[:present] > 0)
    found = np.zeros_like(joint)
    if len(known) < 2:
        return found
    law, wide = joint[known] / held[known, None], held[known, None]
    before, after = np.maximum(np.arange(len(known)) - 1, 0), np.minimum(np.arange(len(known)) + 1, len(known) - 1)
    runs = (middles[known[after]] - middles[known[before]])[:, None]
    # No density may be negative at a bin's ends, and densities add up to that of the bin.
    # Bins that hold next to nothing lie at one rank, and no slope is known there.
    steep = np.divide(law[after] - law[before], runs, out=np.zeros_like(law), where=runs > 0)
    slopes = np.clip(steep, -2 * law / wide, 2 * law / wide)
    found[known] = slopes - law * slopes.sum(axis=1, keepdims=True)
    return found
