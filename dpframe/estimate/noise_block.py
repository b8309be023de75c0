"""Columns that were randomised together: one block of noise.

With probability s a row keeps its tuple of codes, else all tuples are equally likely. So a function f of the tuple,
with the mean f̄ over all tuples, has at a released tuple y the surrogate

    φ_f(y) = (f(y) − (1 − s)·f̄)/s,

which is (f − pΣf)/s with p the probability of any wrong tuple. Here s is that of the whole group, whichever of its
columns f depends on; all that estimates and models do with groups is sums of φ over rows, and of products of two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.plan.columns import Group


@dataclass(frozen=True)
class NoiseBlock:
    """The noise of a group: ``signal`` is s above."""

    signal: float

    @classmethod
    def of(cls, group: Group) -> NoiseBlock:
        """Return the noise of a group."""
        return cls(group.mechanism.table.signal)

    def sums(self, values: Any, mean: Any, rows: Any = 1) -> FloatArray:
        """Return Σ φ_f over some rows, from Σ f over them, f̄, and their number."""
        return np.asarray((values - (1 - self.signal) * mean * rows) / self.signal)

    def pair(self, counts: FloatArray, law: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the unbiased counts of a pair's cells, and the variance that the noise causes given the table.

        A cell keeps its rows with s + (1 − s)·law and gets others' with (1 − s)·law. How many rows it has is not known:
        the product of the margins is taken.
        """
        n = max(float(counts.sum()), 1.0)
        found = self.sums(counts, law, n)
        margins = [np.maximum(found.sum(axis=1 - i), 0.5) for i in range(2)]
        rows = np.minimum(np.outer(*margins) / n, n)
        kept, gained = self.signal + (1 - self.signal) * law, (1 - self.signal) * law
        variances = rows * kept * (1 - kept) + (n - rows) * gained * (1 - gained)
        return found, np.maximum(variances, 1e-3 * np.maximum(rows, 0.5)) / self.signal**2

    def products(self, both: Any, values: tuple[Any, Any], means: tuple[Any, Any], rows: Any) -> FloatArray:
        """Return Σ φ_f·φ_g over some rows, from Σ f·g, (Σ f, Σ g), (f̄, ḡ), and their number."""
        (f, g), (mean_f, mean_g) = values, ((1 - self.signal) * mean for mean in means)
        return np.asarray((both - mean_g * f - mean_f * g + mean_f * mean_g * rows) / self.signal**2)

    def squares(self, second: Any, values: Any, mean: Any, rows: Any) -> FloatArray:
        """Return Σ φ_f² over some rows, from Σ f², Σ f, f̄, and their number."""
        return self.products(second, (values, values), (mean, mean), rows)

    def spread(self, shares: Any, total: Any, law: Any) -> FloatArray:
        """Return the law of released cells from that of true ones; each cell holds the share ``law`` of all tuples."""
        return np.asarray(self.signal * shares + (1 - self.signal) * law * total)


def product_mean(means: Iterable[Any]) -> Any:
    """Return the mean over all tuples of a product of functions, one per column: coordinates are independent."""
    return reduce(np.multiply, means, 1.0)
