"""Linear regression of true columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpframe.errors import DpframeWarning, ParameterError, check_fraction, warn
from dpframe.estimate.surrogates import CHUNK
from dpframe.learning.base import FloatArray, ReleaseModel, check_number, encode_rows, models_of
from dpframe.learning.features import ColumnBlock, FunctionMoments, Rows, make_blocks
from dpframe.learning.table_moments import LIKELY_SQUARE, TableMoments
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
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

    ``matrix``, ``noise``: M, and what noise adds to it where products of surrogates are taken for surrogates of
    products, as plain least squares on a release does.
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
        n, total = self.matrix[0, 0], self.matrix[0, -1]
        released = float((self.matrix[-1, -1] + self.noise[-1, -1] - total**2 / n) / n)
        share = released / (LIKELY_SQUARE * np.where(low, 1.0, values))
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


class DebiasedRidge(RegressorMixin, ReleaseModel):
    """Linear regression of true columns, learnt from a release.

    Parameters
    ----------
    alpha
        Penalty on the squared coefficients, as in `sklearn.linear_model.Ridge`; 0 is least squares.
    fit_intercept
        Whether to fit a constant.
    plan
        The plan, where the table lost it (arrow, polars).

    Attributes
    ----------
    coef_ : array of shape (q,)
        Coefficients in the columns' own units: one per numeric column (times count in steps of their
        resolution) and per ordered one (its ranks 0, 1, …), and one per value but the first of the others
        (null is one more value).
    coef_names_ : list of str
        What they belong to: ``age``, ``sex_M``, ….
    intercept_ : float
        The constant.
    coef_std_error_, intercept_std_error_ : array of shape (q,), float
        Standard errors, of the population's coefficients (sampling and noise).
    covariance_ : array of shape (q + 1, q + 1)
        Covariance of intercept and coefficients.
    source_ : str
        What the moments are from: measured ``"tables"``, where they hold every pair of the
        columns and err less, or ``"rows"``.
    n_lifted_ : int
        Directions of the features indistinguishable from noise; see the notes.
    feature_names_in_ : array of str
        The feature columns.

    Notes
    -----
    All second moments are estimated without bias: products of two columns by the products of their
    surrogates, squares by the surrogate of the square (so saturation at the bounds is accounted for, and
    noise in the target only adds variance). Errors are by the delta method: with uᵢ row i's part of the
    normal equations at the solution, H⁻¹(Σ uᵢuᵢᵀ)H⁻¹, a sandwich over rows. Rows in which a numeric or
    ordered column is null are left out, through the surrogates of presence.

    Noise can leave the moment matrix indefinite, and its inverse pure noise. In the units in which columns run from
    −1 to 1, a direction whose eigenvalue is within two standard errors of 0 is drowned: it keeps the variance that
    noise adds to the released features, as in plain least squares on the release, which draws it to 0. A
    `DpframeWarning` says how many there are. The other eigenvalues grow by what makes the expected error least
    for coefficients of about 0.3, which vanishes as 1/n against them. Both follow only from the noise's variance;
    coefficients' errors do not hold the bias. More rows, a larger ε or an ``alpha`` of one's own are the remedies.
    Least squares corrected for noisy predictors: W. A. Fuller, Measurement Error Models (1987), chapter 3.

    Examples
    --------
    >>> import numpy as np, pandas as pd, dpframe as dpf
    >>> x = np.linspace(0, 10, 20_000)
    >>> frame = pd.DataFrame({"x": x, "y": 3 + 2 * x})
    >>> safe = dpf.sanitize(frame, epsilon=80, spaces={"x": (0, 10), "y": (0, 30)}, key=bytes(32))
    >>> model = DebiasedRidge().fit(safe[["x"]], safe["y"])
    >>> model.summary()["estimate"].round(1).to_dict()
    {'intercept': 3.0, 'x': 2.0}
    """

    def __init__(self, alpha: float = 0.0, fit_intercept: bool = True, plan: Plan | None = None) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.plan = plan

    def _check(self) -> None:
        check_number(self.alpha, "alpha")

    def _learn(self, source: Source, target: Column, columns: list[Column]) -> None:
        if target.space.is_time or not target.space.is_numeric:
            raise ParameterError(f"y must be a column of numbers, which {target.name!r} is not")
        blocks = [ColumnBlock.of(column, self.fit_intercept) for column in [*columns, target]]
        moments = best_moments(source, blocks)
        self.source_ = moments.told
        if moments.matrix[0, 0] <= 0:
            raise ParameterError(
                "X has no rows without nulls, as far as noise lets them be seen; fill or drop its nulls"
            )
        self._columns, self._centred = columns, self.fit_intercept
        self.coef_names_ = moments.names[1:-1]
        self._solve(moments)

    def _solve(self, moments: RowMoments | TableMoments) -> None:
        """Solve the normal equations in scaled units, and return to the columns' own."""
        centre, width = moments.units
        q, used = moments.size - 1, slice(0 if self.fit_intercept else 1, moments.size - 1)
        penalty = np.concatenate([[0.0], self.alpha / width[1:q] ** 2])
        hessian, self.n_lifted_ = lifted(moments, moments.matrix[:q, :q] + np.diag(penalty), self.fit_intercept)
        inverse, beta = np.zeros((q, q)), np.zeros(q)
        inverse[used, used] = np.linalg.inv(hessian[used, used])
        beta[used] = np.linalg.solve(hessian[used, used], moments.matrix[used, q])
        covariance = inverse @ moments.scores(np.append(-beta, 1.0))[:q, :q] @ inverse
        # y = c + w·(β₀ + Σ βⱼ(xⱼ − cⱼ)/wⱼ), as a linear map of β.
        back = np.diag(width[q] / width[:q])
        back[0, 1:] = -back.diagonal()[1:] * centre[1:q]
        if not self.fit_intercept:
            back[0] = 0.0
        coefficients = back @ beta
        self.intercept_ = float(coefficients[0] + (centre[q] if self.fit_intercept else 0.0))
        self.coef_ = coefficients[1:]
        self.covariance_ = back @ covariance @ back.T
        errors = np.sqrt(np.maximum(self.covariance_.diagonal(), 0))
        self.intercept_std_error_, self.coef_std_error_ = float(errors[0]), errors[1:]

    def predict(self, X: Any) -> FloatArray:
        """Predict the target of true rows, shape (n,); NaN where a numeric feature is null.

        Parameters
        ----------
        X
            A table with the feature columns; others are ignored. Values are clamped to the columns' bounds.

        Raises
        ------
        ColumnError
            If a feature is missing or does not fit its space.
        """
        check_is_fitted(self, "coef_")
        codes = encode_rows(X, self._columns)
        # Made anew: their functions would not go into a pickle.
        blocks = [ColumnBlock.of(column, self._centred) for column in self._columns]
        parts = [block.truth(codes) * block.unit[1] + block.unit[0] for block in blocks]
        return np.asarray(np.concatenate(parts, axis=1) @ self.coef_ + self.intercept_)

    def summary(self, confidence_level: float = 0.95) -> pd.DataFrame:
        """Return intercept and coefficients with ``std_error, lower, upper``.

        Raises
        ------
        ParameterError
            If ``confidence_level`` is outside (0, 1).
        """
        check_is_fitted(self, "coef_")
        z = NormalDist().inv_cdf((1 + check_fraction(confidence_level, "confidence_level", 0.95)) / 2)
        estimate = np.append(self.intercept_, self.coef_)
        error = np.append(self.intercept_std_error_, self.coef_std_error_)
        columns = {
            "estimate": estimate,
            "std_error": error,
            "lower": estimate - z * error,
            "upper": estimate + z * error,
        }
        table = pd.DataFrame(columns, index=["intercept", *self.coef_names_])
        return table if self.fit_intercept else table.iloc[1:]
