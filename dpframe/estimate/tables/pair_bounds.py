"""What pairs of columns allow a count of three conditions and more to be: bounds that no interaction exceeds."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np

from dpframe.spaces.arrays import FloatArray

MOST_BOUNDED = 8
"""Conditions up to which the bounds of a count are looked for: linear programmes of 2⁸ cells."""


def bounds_by_pairs(sides: FloatArray) -> FloatArray:
    """Return the least and the greatest share that its pairs allow the first cell, as weights of all cells.

    Of k conditions rows lie in 2ᵏ cells, met or not; pairs fix the sums of all cells where two are met. Least and
    greatest are a linear programme's (Boole 1854; Fréchet 1935 has that of single conditions), and its dual solution
    gives them as linear functions of the pairs, hence of any joint.

    ``sides``: shares of rows by condition, met first; shape (2, …, 2).

    Returns
    -------
    Shape (2, number of cells): the bounds of these shares are ``weights @ sides.ravel()``.

    Examples
    --------
    Of three fair coins that are independent by pairs, all may show heads in no row, or in a quarter of them.

    >>> (bounds_by_pairs(np.full((2, 2, 2), 1 / 8)) @ np.full(8, 1 / 8)).round(9).tolist()
    [0.0, 0.25]
    """
    from scipy.optimize import linprog

    known, first = _known_sums(sides.ndim), np.eye(1, sides.size)[0]
    shares = np.maximum(sides.ravel(), 0.0)
    shares = shares / max(float(shares.sum()), 1e-300)
    found = []
    for sign in (1.0, -1.0):
        best = linprog(sign * first, A_eq=known, b_eq=known @ shares, method="highs")
        # Where rounding leaves no solution nothing is known but the cell itself.
        found.append(sign * np.asarray(best.eqlin.marginals) @ known if best.success else first)
    return np.array(found)


@cache
def _known_sums(conditions: int) -> FloatArray:
    """Return which cells all rows, each condition and each two together sum."""
    met = np.indices((2,) * conditions).reshape(conditions, -1) == 0
    pairs = [met[i] & met[j] for i, j in combinations(range(conditions), 2)]
    return np.array([np.ones(met.shape[1]), *met, *pairs], dtype=np.float64)
