"""Generalised least squares (Aitken 1936): an estimate and its covariance, updated by noisy linear facts.

With x of covariance C, facts y = H·x + noise of variances M, and K = C Hᵀ (H C Hᵀ + M)⁻¹,

    x ← x + K (y − H x),    C ← C − K H C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpframe.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Observation:
    """Noisy linear facts about numbers of rows by cell: ``counts`` = ``matrix`` · rows + independent noise.

    ``matrix`` has the shape (facts, cells), ``counts`` and ``variances`` (facts,).
    """

    matrix: FloatArray
    counts: FloatArray
    variances: FloatArray

    @classmethod
    def joined(cls, parts: Sequence[Observation], cells: int) -> Observation:
        """Return several observations of the same cells as one."""
        matrices = [part.matrix for part in parts]
        return cls(
            np.concatenate(matrices) if parts else np.zeros((0, cells)),
            np.concatenate([part.counts for part in parts]) if parts else np.zeros(0),
            np.concatenate([part.variances for part in parts]) if parts else np.zeros(0),
        )


def updated(rows: FloatArray, covariance: FloatArray, facts: Observation) -> tuple[FloatArray, FloatArray]:
    """Return numbers of rows and their covariance when facts are known as well.

    Examples
    --------
    >>> facts = Observation(np.array([[1.0, 1.0]]), np.array([11.0]), np.array([1.0]))
    >>> rows, covariance = updated(np.array([6.0, 2.0]), np.eye(2), facts)
    >>> rows.round(6).tolist(), covariance.round(3).tolist()
    ([7.0, 3.0], [[0.667, -0.333], [-0.333, 0.667]])
    """
    from scipy.linalg import cho_factor, cho_solve

    if not len(facts.counts):
        return rows, covariance
    shared = covariance @ facts.matrix.T
    inner = facts.matrix @ shared + np.diag(facts.variances)
    gain = cho_solve(cho_factor(inner, lower=True), shared.T).T
    left = covariance - gain @ shared.T
    return rows + gain @ (facts.counts - facts.matrix @ rows), (left + left.T) / 2
