"""Estimates that stay near the raw counts: tables shifted to the one-ways of their columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.estimate.likelihood import project_to_simplex

ROUNDS = 3
"""Times that a table is shifted to its margins, then cut at zero."""


def near_margins(shares: FloatArray, margins: Sequence[FloatArray]) -> FloatArray:
    """Shift shares of several columns to the columns' margins, and take them to the simplex, three times.

    >>> near_margins(np.array([[0.3, 0.3], [0.1, 0.2]]), [np.array([0.5, 0.5]), np.array([0.5, 0.5])])
    array([[0.275, 0.225],
           [0.225, 0.275]])
    """
    for _ in range(ROUNDS):
        for axis, margin in enumerate(margins):
            others = tuple(i for i in range(shares.ndim) if i != axis)
            short = (margin - shares.sum(axis=others)) / (shares.size / len(margin))
            shares = shares + np.expand_dims(short, others)
        shares = project_to_simplex(shares)
    return shares
