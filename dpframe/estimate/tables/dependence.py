"""How far counts of two columns are from independence, beside what noise alone would make of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpframe.arrays import FloatArray

SHOWS = 3.0
"""Standard deviations of its law under independence beyond which a pair's distance from that shows."""


def dependence_score(counts: FloatArray, variances: FloatArray, margins: Sequence[FloatArray] | None = None) -> float:
    """Return by how many standard deviations a pair is further from independence than noise makes it.

    Counts y are compared with those of independent columns, e: under independence Σ (y − e)²/σ² has Pearson's χ² law,
    about, with (a − 1)(b − 1) degrees of freedom. Without other ``margins`` e are of the counts' own.

    >>> round(dependence_score(np.array([[40.0, 10.0], [10.0, 40.0]]), np.full((2, 2), 9.0)))
    70
    """
    first, second = (np.maximum(counts.sum(axis=1 - i), 1e-9) for i in range(2)) if margins is None else margins
    expected = np.outer(first / first.sum(), second / second.sum()) * float(counts.sum())
    freedom = max((counts.shape[0] - 1) * (counts.shape[1] - 1), 1)
    # What is expected is a product of noisy margins, so that the product of their noise counts where noise is large.
    product = 1 + float(variances.sum()) / max(float(counts.sum()), 1.0) ** 2
    apart = float(((counts - expected) ** 2 / variances).sum()) / product
    return float((apart - freedom) / np.sqrt(2 * freedom))


def row_score(counts: FloatArray) -> float:
    """Return the same of counts of released rows, whose variances under independence are their expectations.

    >>> round(row_score(np.array([[40.0, 10.0], [10.0, 40.0]])))
    24
    """
    total = max(float(counts.sum()), 1.0)
    return dependence_score(counts, np.maximum(np.outer(counts.sum(axis=1), counts.sum(axis=0)) / total, 0.5))
