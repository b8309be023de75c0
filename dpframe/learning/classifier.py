"""What all classifiers that learn from releases have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from dpframe.arrays import FloatArray


class ReleaseClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier of true rows that says the logarithms of its probabilities."""

    classes_: npt.NDArray[Any]

    @abstractmethod
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of `predict_proba`."""

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

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of true rows, shape (n,)."""
        return np.asarray(self.classes_[np.argmax(self.predict_log_proba(X), axis=1)])
