"""Unbiased second moments of columns through their channels, their errors, and what to do where noise wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dpframe.errors import DpframeWarning, warn
from dpframe.estimate.surrogates import CHUNK
from dpframe.learning.base import FloatArray, models_of
from dpframe.learning.features import ColumnBlock, FunctionMoments, Rows, make_blocks
from dpframe.learning.table_moments import LIKELY_SQUARE, TableMoments
from dpframe.plan.threads import one_thread
from dpframe.tables.released import Source

ENOUGH_ROWS = 1 << 16
"""Rows that suffice to judge which directions exceed the noise."""

LEAST_SIGNAL = 2.0
"""Standard errors that the variance of a direction of the features must be above not to be drowned by noise."""


FORMS = 16
"""Random forms on which the errors of rows and tables are compared."""


class RowMoments(FunctionMoments):
    """Unbiased moments M = Σ w·z·zᵀ of all blocks' functions z over the rows where all is present (w).

    Noise is independent between blocks, so a product over blocks has the product of surrogates; within a
    block the surrogate is that of the product.

    ``source``: the release. ``columns``: functions of columns; those of the matrix are a constant and then these, in
    their order.

    Attributes
    ----------
    matrix, noise
        M, and what noise adds to it where products of surrogates are taken for surrogates of products, as plain least
        squares on a release does.
    """

    told = "rows"

    def __init__(self, source: Source, columns: Sequence[ColumnBlock]) -> None:
        super().__init__(columns)
        self.source, self.blocks = source, make_blocks(columns, source.plan.groups)
        place = {block.column.name: places for block, places in zip(columns, self.places, strict=True)}
        self.parts = [
            np.concatenate([place[member.column.name] for member in block.members])
            if block.members
            else np.zeros(1, int)
            for block in self.blocks
        ]
        self.matrix = np.zeros((self.size, self.size))
        self.noise = np.zeros((self.size, self.size))
        for rows, weight in self._chunks():
            for i, one in enumerate(rows):
                own, here = one.gram(weight(i)), np.ix_(self.parts[i], self.parts[i])
                self.matrix[here] += own
                self.noise[here] += one.first.T @ (one.first * weight(i)[:, None]) - own
                for j in range(i + 1, len(rows)):
                    cross = one.first.T @ (rows[j].first * weight(i, j)[:, None])
                    self.matrix[np.ix_(self.parts[i], self.parts[j])] += cross
                    self.matrix[np.ix_(self.parts[j], self.parts[i])] += cross.T

    @property
    def target_variance(self) -> float:
        """Variance of the last function as it is released, noise included."""
        n, total = self.matrix[0, 0], self.matrix[0, -1]
        return float((self.matrix[-1, -1] + self.noise[-1, -1] - total**2 / n) / n)

    def _chunks(self, step: int = 1) -> Iterator[tuple[list[Rows], Callable[..., FloatArray]]]:
        """Yield the blocks' surrogates, and the presence of all blocks but some, per chunk of every step-th row."""
        names = [member.column.name for member in self.columns]
        nullable = [i for i, block in enumerate(self.blocks) if block.has_nulls]
        for batch in self.source.codes(names):
            for start in range(0, len(batch[names[0]]), CHUNK * step):
                part = {name: codes[start : start + CHUNK * step : step] for name, codes in batch.items()}
                rows = [block.rows(part) for block in self.blocks]

                def weight(*left_out: int, rows: list[Rows] = rows) -> FloatArray:
                    out = np.ones(len(rows[0].present))
                    for i in nullable:
                        if i not in left_out:
                            out = out * rows[i].present
                    return out

                yield rows, weight

    def quadratic(self, directions: FloatArray) -> FloatArray:
        """Return the variance of vᵀMv for directions v of shape (size, d): Σ qᵢ² − (Σ qᵢ)²/n, qᵢ row i's part.

        Where there are many rows, some are enough, spread evenly over the table.
        """
        count, first, second = 0, np.zeros(directions.shape[1]), np.zeros(directions.shape[1])
        for rows, weight in self._chunks(1 + self.source.n // ENOUGH_ROWS):
            linear = [one.first @ directions[part] for one, part in zip(rows, self.parts, strict=True)]
            form = np.zeros_like(linear[0])
            for i, one in enumerate(rows):
                form += one.form(directions[self.parts[i]]) * weight(i)[:, None]
                for j in range(i):
                    form += 2 * linear[i] * linear[j] * weight(i, j)[:, None]
            count += len(form)
            first += form.sum(axis=0)
            second += (form**2).sum(axis=0)
        return np.asarray((second - first**2 / max(count, 1)) * (self.source.n / max(count, 1)))

    def scores(self, v: FloatArray) -> FloatArray:
        """Return the covariance Σ uᵢuᵢᵀ − Σuᵢ Σuᵢᵀ/n of M·v, uᵢ being row i's part of it."""
        first, second = np.zeros(self.size), np.zeros((self.size, self.size))
        for rows, weight in self._chunks():
            scores = np.empty((len(rows[0].present), self.size))
            linear = [one.first @ v[part] for one, part in zip(rows, self.parts, strict=True)]
            for i, one in enumerate(rows):
                others = np.zeros(len(scores))
                for j, value in enumerate(linear):
                    if j != i:
                        others += value * weight(i, j)
                own = one.times(v[self.parts[i]]) * weight(i)[:, None]
                scores[:, self.parts[i]] = one.first * others[:, None] + own
            first += scores.sum(axis=0)
            second += scores.T @ scores
        return np.asarray(second - np.outer(first, first) / max(self.source.n, 1))

    def lift(
        self, values: FloatArray, vectors: FloatArray, errors: FloatArray, low: npt.NDArray[np.bool_]
    ) -> FloatArray:
        """Return what eigenvalues h of the features become, see `lifted`."""
        q = self.size - 1
        added = np.maximum(np.einsum("jd,jk,kd->d", vectors, self.noise[1:q, 1:q], vectors), 0)
        share = self.target_variance / (LIKELY_SQUARE * np.where(low, 1.0, values))
        return np.asarray(np.maximum(values, 0) + added * np.where(low, 1.0, np.minimum(share, 1.0)))


@one_thread
def lifted(moments: RowMoments | TableMoments, hessian: FloatArray, constant: bool) -> tuple[FloatArray, int]:
    """Return the features' moment matrix with noise's directions shrunk away, and how many of them it drowned.

    Eigenvalues h are those of the features around their means (the constant is eliminated first), each with the
    standard error s of its estimate and the variance d that noise adds to the released features there. Plain least
    squares on the release has h + d. A direction with h ≤ `LEAST_SIGNAL`·s is drowned, and gets that. Others get
    h + λ: of a coefficient β the error of b/(h + λ) is least at λ = Var(b)/(β²h), with Var(b) = d·Var(y), and at most
    d, β² being `LIKELY_SQUARE`. So λ/h falls as 1/n. Scaled to −1…1, every column's noise is alike, so that one scale
    serves all. For moments from tables Var(b) is known by itself (`TableMoments.lift`).
    """
    q = len(hessian)
    base = hessian[0, 1:] / hessian[0, 0] if constant else np.zeros(q - 1)
    values, vectors = np.linalg.eigh(hessian[1:, 1:] - np.outer(base, base) * hessian[0, 0])
    directions = np.vstack([-base @ vectors, vectors, np.zeros(q - 1)])
    errors = np.sqrt(np.maximum(moments.quadratic(directions), 0))
    low = values <= np.maximum(LEAST_SIGNAL * errors, 1e-12 * abs(hessian[0, 0]))
    wanted = np.maximum(moments.lift(values, vectors, errors, low), 1e-12 * abs(hessian[0, 0]))
    hessian = hessian.copy()
    hessian[1:, 1:] += (vectors * (wanted - values)) @ vectors.T
    if low.any():
        warn(
            f"{int(low.sum())} of {len(values)} directions of the features are indistinguishable from noise and are "
            "drawn to 0; take more rows, a larger epsilon, fewer features, or set alpha",
            DpframeWarning,
        )
    return hessian, int(low.sum())


def best_moments(source: Source, columns: Sequence[ColumnBlock]) -> RowMoments | TableMoments:
    """Return moments from measured tables where these hold every pair of the columns and err less, or from rows.

    What they err by is compared on some random quadratic forms, to which every column adds alike.
    """
    rows, models = RowMoments(source, columns), models_of(source)
    names = [column.column.name for column in columns]
    if models.tables.source_of(names) != "tables":
        return rows
    measured = TableMoments(models.among(names), columns)
    shares = np.sqrt(np.maximum(measured.central.diagonal(), 1e-12 * measured.n))
    directions = np.random.default_rng(0).standard_normal((measured.size, FORMS)) / shares[:, None]
    directions[0] = 0.0
    spread = 2 * np.einsum("jd,jk,kd->d", directions, measured.central, directions) ** 2 / max(measured.n, 1.0)
    directions[0] = -measured.back[1:, 0] @ directions[1:]
    # Errors of rows hold their sampling, which is that of squares of normal forms.
    return measured if (measured.quadratic(directions) + spread).sum() < rows.quadratic(directions).sum() else rows
