"""What every model takes from a release: rows and their target, and measured tables where it has some."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator

from dpframe.errors import AlteredReleaseWarning, ColumnError, InferenceWarning, ParameterError, name_list, warn
from dpframe.estimate.axes import Axis
from dpframe.estimate.evidence.likelihood import through
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.model import Models
from dpframe.estimate.posterior import DRAWS, Posterior
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
from dpframe.tables.frames import release_text, wrap
from dpframe.tables.released import Source

FloatArray = npt.NDArray[np.float64]


class ReleaseModel(BaseEstimator, ABC):
    """A model of true rows that is learnt from a release."""

    plan: Plan | None

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to a release.

        Parameters
        ----------
        X
            A released table: its randomised columns, but the target, are the features.
        y
            The released target column as a Series, or its name where X holds it.

        Raises
        ------
        NotSanitizedError
            If neither X nor y carries a plan, and none is given.
        ParameterError
            If the target is no column of what the model predicts, or a parameter breaks its rule.
        """
        self._check()
        source, target = open_release(X, y, self.plan)
        columns = feature_columns(source, target)
        self._learn(source, source.column(target), columns)
        self.feature_names_in_ = np.array([column.name for column in columns], dtype=object)
        self.n_features_in_ = len(columns)
        return self

    @abstractmethod
    def _check(self) -> None:
        """Raise `ParameterError` for a parameter that breaks its rule."""

    @abstractmethod
    def _learn(self, source: Source, target: Column, columns: list[Column]) -> None:
        """Set what is learnt of a target by feature columns."""


# Rows and their target


def open_release(X: Any, y: Any, plan: Plan | None) -> tuple[Source, str]:
    """Return a release and the name of its target, put together from ``fit``'s two arguments."""
    if isinstance(y, str):
        return Source(X, plan), y
    name = getattr(y, "name", None)
    if not isinstance(y, pd.Series) or not isinstance(name, str):
        raise ParameterError("y must be a released column, e.g. y=safe['income'], or its name if X holds it")
    if not isinstance(X, pd.DataFrame):
        raise ParameterError("y must be the name of a column of X where X is no pandas DataFrame")
    if len(y) != len(X) or not y.index.equals(X.index):
        raise ParameterError("X and y must be rows of one release, in one order; their indices differ")
    whole = X.assign(**{name: y})
    if release_text(whole) is None:
        whole.attrs = dict(y.attrs)
    return Source(whole, plan), name


def check_number(value: Any, name: str, *, above: bool = False) -> None:
    """Raise `ParameterError` unless a parameter is a finite number from 0, or above it."""
    number = not isinstance(value, bool) and isinstance(value, int | float | np.integer | np.floating)
    if not number or not 0 <= value < np.inf or (above and value == 0):
        raise ParameterError(f"{name} must be a number {'above' if above else 'from'} 0")


def feature_columns(source: Source, target: str) -> list[Column]:
    """Return the randomised columns of a release but the target, which must be one of them.

    Columns that private inference did not find are left out, with one warning: they hold noise.
    """
    source.column(target)
    lost = [missing.column for missing in source.plan.not_found if missing.column not in source.missing]
    if target in lost:
        raise ParameterError(
            f"private inference did not find what is in the target {target!r}; declare spaces={{{target!r}: …}} in the "
            "next release"
        )
    features = [c for c in source.plan.columns if c.name != target and c.name not in [*source.missing, *lost]]
    if not features:
        raise ParameterError("X has no randomised column other than the target, or none that private inference found")
    if lost:
        warn(
            f"the model leaves out {name_list(lost)}: private inference did not find what is in there; declare "
            "spaces={…} in the next release",
            InferenceWarning,
        )
    return features


def encode_rows(X: Any, columns: Sequence[Column]) -> dict[str, npt.NDArray[Any]]:
    """Return the codes of true rows' columns."""
    frame = wrap(X)
    if frame.text is not None:
        warn("X is a release, whose noise predictions take for truth; predict on true rows", AlteredReleaseWarning)
    for column in columns:
        if column.name not in frame.names:
            raise ColumnError("is a feature of the model but not in X", column=column.name)
    return {c.name: frame.encode(c.name, c.space, "error") for c in columns}


# Measured tables


def models_of(source: Source) -> Models:
    """Return fits to a release's rows, and to its measured tables if these are all its rows."""
    whole = source.info is None or source.info.n == source.n
    return Models(MeasuredTables(source, source.tables if whole else ()))


def joint_shares(models: Models, axes: Sequence[Axis]) -> tuple[FloatArray, FloatArray]:
    """Return the shares of the cells of some axes, of least error from all tables together, and their variances."""
    names = [axis.name for axis in axes]
    model = models.around(names)
    drawn = Posterior(models, "").of(names)
    draws = np.array([drawn.joint(draw) for draw in range(DRAWS)]) / model.evidence.n
    order = [drawn.names.index(name) for name in names]
    shares, variances = model.joint(names), draws.var(axis=0, ddof=1).transpose(order)
    for i, axis in enumerate(axes):
        column = model.columns[axis.name]
        if column.has_cells_of(axis):
            continue
        onto = column.onto(axis)
        shares, variances = through(onto, shares, i), through(onto**2, variances, i)
    return shares, variances
