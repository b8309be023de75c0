"""Linear regression of true columns."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpframe.errors import ParameterError, check_fraction
from dpframe.learning.base import FloatArray, ReleaseModel, check_number, encode_rows
from dpframe.learning.features import ColumnBlock
from dpframe.learning.second_moments import RowMoments, best_moments, lifted
from dpframe.learning.table_moments import TableMoments
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
from dpframe.tables.released import Source


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
