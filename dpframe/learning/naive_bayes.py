"""Naive Bayes on true columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dpframe.errors import ParameterError, name_list
from dpframe.estimate.axes import Axis, join_axes, make_axis
from dpframe.estimate.evidence.likelihood import (
    bootstrap_errors,
    expectation_maximization,
    fit_joint,
    fit_joints,
    refits,
)
from dpframe.estimate.joint_domain import JointDomain
from dpframe.estimate.model import Models
from dpframe.estimate.surrogates import count_classes, joint_cells
from dpframe.learning.base import (
    FloatArray,
    ReleaseModel,
    check_number,
    encode_rows,
    joint_shares,
    models_of,
)
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
from dpframe.tables.released import Source

LISTED_VALUES = 32
"""Features of no more numbers are taken value by value."""

DEFAULT_BINS = 20
"""Bins of other numeric columns."""

LEAST_RATIO = 0.05
"""Least share of a cell relative to independence: noise never says that something is impossible."""


class DebiasedNaiveBayes(ClassifierMixin, ReleaseModel):
    """Naive Bayes on true columns, learnt from a release.

    Parameters
    ----------
    bins
        Bins of numeric columns of more than 32 values: a number of them, or ``{column: number or bounds}``.
    prior_sd
        How far the cells of a table are expected to stray from independence of feature and class, relative to
        it; cells are drawn to independence as far as noise is larger than this.
    evidence
        Power in (0, 1] to which the likelihood of every feature is raised; 1 is naive Bayes. See the notes.
    plan
        The plan, where the table lost it (arrow, polars).

    Attributes
    ----------
    classes_ : array of shape (k,)
        Values of the target (rows where it is null are left out).
    class_prior_ : array of shape (k,)
        Their estimated shares.
    tables_ : dict
        For every feature the shares of its values (or bins) within each class, a DataFrame with a column per
        class.
    feature_names_in_ : array of str
        The feature columns.
    source_ : str
        What the tables are from: measured ``"tables"``, ``"rows"``, or ``"both"``.

    Notes
    -----
    Where a feature was measured together with the class, their joint is the estimate of least error from all measured
    tables, with a bootstrap's variance. Elsewhere it is estimated from rows, through both channels: by the unbiased
    inverse with its analytic variance, and in bins by maximum likelihood with a bootstrap's. With r a cell's estimate
    relative to independence and s its standard error, the table holds r drawn to 1, by the factor τ²/(τ² + s²), τ =
    ``prior_sd``: the posterior mean of a normal prior. So the tables are consistent however noisy the release, where
    those counted on noisy rows drift to independence for good; and a column that noise has drowned has next to no say.

    Features that go together are counted twice, with or without noise, and what noise is left in the tables
    counts as evidence as well: classes other than the most frequent are predicted too often. How much so cannot be
    estimated from a release of many columns (the variance of a product of two surrogates is too large), so ``evidence``
    is a choice, made once on Adult: 0.5 there gave more accurate classes and better probabilities at every
    ε than 1. For features that are independent within a class, or for a single one, 1 is right. Ranks of rows do not
    depend on it.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(4_000, columns=["age", "sex", "region"])
    >>> spaces = {"age": (18, 95), "sex": ["F", "M"], "region": list(dpf.datasets.REGIONS)}
    >>> safe = dpf.sanitize(frame, epsilon=9, spaces=spaces, key=bytes(32))
    >>> model = DebiasedNaiveBayes(bins=5).fit(safe[["age", "region"]], safe["sex"])
    >>> model.classes_.tolist(), model.predict_proba(frame).shape
    (['F', 'M'], (4000, 2))
    """

    def __init__(
        self,
        bins: int | Mapping[str, Any] = DEFAULT_BINS,
        prior_sd: float = 0.7,
        evidence: float = 0.5,
        plan: Plan | None = None,
    ) -> None:
        self.bins = bins
        self.prior_sd = prior_sd
        self.evidence = evidence
        self.plan = plan

    def _check(self) -> None:
        check_number(self.prior_sd, "prior_sd", above=True)
        check_number(self.evidence, "evidence", above=True)
        if self.evidence > 1:
            raise ParameterError("evidence must be at most 1, which is naive Bayes")

    def _learn(self, source: Source, target: Column, columns: list[Column]) -> None:
        if isinstance(self.bins, Mapping):
            stray = [name for name in self.bins if name not in [column.name for column in columns]]
            if stray:
                raise ParameterError(
                    f"bins names {stray[0]!r}, which is not a feature; features are "
                    f"{name_list(column.name for column in columns)}"
                )
        answer = make_axis(target, None)
        self._axes = [self._axis(column) for column in columns]
        part = slice(0, answer.cells - answer.has_null)
        self.classes_ = np.asarray(answer.labels[part].to_numpy())
        models = models_of(source)
        self.class_prior_ = self._prior(answer, source, models)[part]
        self.class_prior_ /= self.class_prior_.sum()
        self.tables_, told = {}, []
        for axis in self._axes:
            if models.tables.source_of([axis.name, target.name]) == "tables":
                shares, variance = joint_shares(models, [axis, answer])
                margins = [_smoothed(shares.sum(axis=1 - i), models.tables.rows) for i in range(2)]
                joint = shares, np.maximum(variance, variance.mean()), np.outer(*margins)
                told.append("tables")
            else:
                joint = _counted(axis, answer, source)
                told.append("rows")
            self.tables_[axis.name] = self._table(axis, *joint)
        found = set(told)
        self.source_ = found.pop() if len(found) == 1 else "both"

    def _axis(self, column: Column) -> Axis:
        if column.space.code_words:
            raise ParameterError(
                f"column {column.name!r} holds {column.space.noun}, which are no categories; leave it out of X"
            )
        bins = self.bins.get(column.name) if isinstance(self.bins, Mapping) else None
        listed = column.space.metric == "discrete" or not column.space.is_numeric or column.space.size <= LISTED_VALUES
        if bins is None and not listed:
            bins = DEFAULT_BINS if isinstance(self.bins, Mapping) else self.bins
        return make_axis(column, bins)

    def _prior(self, answer: Axis, source: Source, models: Models) -> FloatArray:
        """Return the classes' shares: those from tables are drawn to equal ones, as the features' are to 1."""
        if models.tables.source_of([answer.name]) != "tables":
            return _shares(answer, count_classes([answer], source.codes([answer.name])))
        shares, variance = joint_shares(models, [answer])
        weight = self.prior_sd**2 / (self.prior_sd**2 + variance.mean() * len(shares) ** 2)
        return _smoothed(weight * shares + (1 - weight) / len(shares), models.tables.rows)

    def _table(self, axis: Axis, shares: FloatArray, variance: FloatArray, independent: FloatArray) -> pd.DataFrame:
        """Return P(feature | class), shape (cells, classes)."""
        relative, noise = shares / independent, variance / independent**2
        shrunk = 1 + self.prior_sd**2 / (self.prior_sd**2 + noise) * (relative - 1)
        joint = (independent * np.maximum(shrunk, LEAST_RATIO))[:, : len(self.classes_)]
        return pd.DataFrame(joint / joint.sum(axis=0), index=axis.labels, columns=self.classes_)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of true rows, shape (n,)."""
        return np.asarray(self.classes_[np.argmax(self.predict_log_proba(X), axis=1)])

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of every class for true rows, shape (n, k).

        Parameters
        ----------
        X
            A table with the feature columns; others are ignored.

        Raises
        ------
        ColumnError
            If a feature is missing or does not fit its space.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of `predict_proba`."""
        check_is_fitted(self, "tables_")
        codes = encode_rows(X, [axis.column for axis in self._axes])
        total = np.log(self.class_prior_)[None, :]
        for axis in self._axes:
            total = total + self.evidence * np.log(self.tables_[axis.name].to_numpy())[axis.cell_of(codes[axis.name])]
        return np.asarray(total - logsumexp(total, axis=1, keepdims=True))


def _counted(axis: Axis, answer: Axis, source: Source) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the same from rows."""
    # A feature that was randomised together with the class has one channel with it.
    axis, answer = join_axes([axis, answer], source.plan.groups)
    counts = count_classes([axis, answer], source.codes([axis.name, answer.name]))
    independent = np.outer(_shares(axis, counts.sum(axis=1)), _shares(answer, counts.sum(axis=0)))
    return *_joint(axis, answer, counts), independent


def _shares(axis: Axis, counts: FloatArray) -> FloatArray:
    """Return an axis' shares by maximum likelihood."""
    return _smoothed(expectation_maximization(counts, [axis.channel]), max(counts.sum(), 1.0))


def _smoothed(shares: FloatArray, n: float) -> FloatArray:
    """Return shares of n rows with one row spread evenly added."""
    return np.asarray((shares * n + 1 / len(shares)) / (n + 1))


def _joint(axis: Axis, answer: Axis, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the shares of a feature and the class and their variances, both of shape (cells, cells)."""
    n, axes = max(counts.sum(), 1.0), [axis, answer]
    if axis.grid is None:
        estimated = joint_cells(counts, axes, normalize=False, given=(), dropna=False, sampling=1.0)
        return estimated[0] / n, estimated[1] / n**2
    # Between bins the unbiased inverse has errors beyond use.
    domain = JointDomain(tuple(axes))
    shares = fit_joint(counts, domain)
    again = refits(shares, domain, int(n), lambda replica: fit_joints(replica, domain), 1.0, 10)
    return shares, bootstrap_errors(again, np.asarray) ** 2
