"""A one-way's noisy counts refined by counts of unions of its cells, measured apart: least squares (Aitken 1936)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Refining:
    """How counts of cells are refined: by ``others`` = ``matrix`` · counts + noise of some variances.

    With C the counts' own diagonal covariance and M that of the others the gain is K = C Hᵀ (H C Hᵀ + M)⁻¹. A matrix
    may have parts of cells: how much of a cell lies on either side of an edge is not known better than f(1 − f)/2 of
    its squared count, which is added to M.
    """

    matrix: FloatArray
    others: FloatArray
    variances: FloatArray
    own: FloatArray

    @classmethod
    def of(
        cls, counts: FloatArray, own: FloatArray, matrix: FloatArray, others: FloatArray, variances: FloatArray
    ) -> Refining:
        """Return how counts of variances ``own`` are refined; what edges cut is told from the counts themselves."""
        held = np.maximum(counts, 0.0) ** 2 + own
        return cls(matrix, others, variances + matrix * (1 - matrix) @ held / 2, own)

    @cached_property
    def gain(self) -> FloatArray:
        """K, shape (cells, others)."""
        spread = self.own[:, None] * self.matrix.T
        inner = self.matrix @ spread + np.diag(self.variances)
        return np.asarray(np.linalg.solve(inner, spread.T).T)

    def refined(self, counts: FloatArray, others: FloatArray | None = None) -> FloatArray:
        """Return refined counts, by default with the others as they were measured.

        >>> counts, own = np.array([6.0, 2.0]), np.array([1.0, 1.0])
        >>> Refining.of(counts, own, np.array([[1.0, 1.0]]), np.array([11.0]), np.array([1.0])).refined(counts)
        array([7., 3.])
        """
        return counts + self.gain @ ((self.others if others is None else others) - self.matrix @ counts)

    def remeasured(self, cells: FloatArray, generator: np.random.Generator) -> FloatArray:
        """Return refined counts of another measurement of these exact counts, all noise drawn anew."""
        counts = cells + np.sqrt(self.own) * generator.standard_normal(len(cells))
        noise = np.sqrt(self.variances) * generator.standard_normal(len(self.others))
        return self.refined(counts, self.matrix @ cells + noise)

    @property
    def left(self) -> FloatArray:
        """Variances of the refined counts."""
        return np.asarray(self.own - np.einsum("ij,ji->i", self.gain, self.matrix * self.own))
