"""Logistic regression of true columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.estimate.axes import make_axis
from dpframe.estimate.synthetic import Synthesizer, make_generator
from dpframe.learning.base import ReleaseClassifier, check_number, common_source, encode_rows, models_of
from dpframe.learning.features import ColumnBlock
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
from dpframe.plan.threads import one_thread
from dpframe.tables.released import Source

Codes = dict[str, npt.NDArray[Any]]

ENOUGH_ROWS = 100_000
"""Rows that are drawn in all: of few released ones several each."""

MOST_DRAWS = 10
"""Draws of one released row at most."""

MOST_STEPS = 1_000
"""Steps of the descent."""


class DebiasedLogisticRegression(ReleaseClassifier):
    """Logistic regression of true columns, learnt from a release.

    Parameters
    ----------
    C
        Inverse of the penalty's weight, as in `sklearn.linear_model.LogisticRegression`, on coefficients of numbers
        in units of their standard deviation.
    random_state
        A seed for the rows that are drawn, a numpy ``Generator``, or None for fresh entropy.
    plan
        The plan, where the table lost it (arrow, polars).

    Attributes
    ----------
    classes_ : array of shape (k,)
        Values of the target (rows where it is null are left out).
    coef_ : array of shape (1, q), or (k, q) for more than two classes
        Coefficients in the columns' own units: one per number (times count in steps of their resolution) and per
        ordered column (its ranks 0, 1, …), one more where these may be null, and one per value of the others (null is
        one more value).
    intercept_ : array of shape (1,) or (k,)
        The constants.
    coef_names_ : list of str
        What the coefficients belong to: ``age``, ``age_null``, ``sex_F``, ….
    feature_names_in_ : array of str
        The feature columns.
    source_ : str
        What the joints of the columns are from: measured ``"tables"``, ``"rows"``, or ``"both"``.

    Notes
    -----
    No unbiased estimate of a logistic loss exists through the channels, so it is fitted to rows that are drawn from
    the model of the release's tables and rows, given each released row (as `Estimates.synthesize` draws them), several
    for each where there are few. All of them together weigh as many rows as were released, so that ``C`` means what it
    means on the original table. The coefficients are consistent as far as the model is: for effects of single columns
    on the class, which pairs hold, and not for a structure that only three columns together show.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(2_000, columns=["age", "sex", "education"])
    >>> spaces = {"age": (18, 95), "sex": ["F", "M"], "education": dpf.Ordinal(dpf.datasets.EDUCATION)}
    >>> safe = dpf.sanitize(frame, epsilon=4, spaces=spaces, key=bytes(32))
    >>> model = DebiasedLogisticRegression().fit(safe[["age", "education"]], safe["sex"])
    >>> model.classes_.tolist(), model.coef_names_, model.predict_proba(frame).shape
    (['F', 'M'], ['age', 'education'], (2000, 2))
    """

    def __init__(self, C: float = 0.1, random_state: Any = 0, plan: Plan | None = None) -> None:
        self.C = C
        self.random_state = random_state
        self.plan = plan

    def _check(self) -> None:
        check_number(self.C, "C", above=True)
        make_generator(self.random_state)

    def _learn(self, source: Source, target: Column, columns: list[Column]) -> None:
        self._design, answer = Design(columns), make_axis(target, None)
        models, generator = models_of(source), make_generator(self.random_state)
        self.source_ = common_source(models.tables.source_of([column.name, target.name]) for column in columns)
        codes = _draw(source, Synthesizer(source, models, {}), [*self._design.names, target.name], generator)
        kept = answer.cell_of(codes[target.name]) < answer.cells - answer.has_null
        self.coef_names_ = self._design.functions
        functions = self._design.of({name: values[kept] for name, values in codes.items()})
        cells, weight = answer.cell_of(codes[target.name][kept]), source.n / max(len(kept), 1)
        self._solve(functions, cells, weight, np.asarray(answer.labels.to_numpy()))

    @one_thread
    def _solve(self, functions: FloatArray, cells: npt.NDArray[Any], weight: float, labels: npt.NDArray[Any]) -> None:
        """Fit in units of standard deviations, and return to the columns' own."""
        found, places = np.unique(cells, return_inverse=True)
        if len(found) < 2:
            raise ParameterError("y has only one class in the release's model; take another target or more rows")
        centre, width = self._design.units(functions)
        model = LogisticRegression(C=self.C, max_iter=MOST_STEPS)
        model.fit((functions - centre) / width, places, sample_weight=np.full(len(places), weight))
        self.classes_ = labels[found]
        self.coef_ = model.coef_ / width
        self.intercept_ = model.intercept_ - self.coef_ @ centre

    def decision_function(self, X: Any) -> FloatArray:
        """Return the log odds of the second class, shape (n,), or the score of every class, shape (n, k)."""
        check_is_fitted(self, "coef_")
        scores = self._design.of(encode_rows(X, self._design.columns)) @ self.coef_.T + self.intercept_
        return np.asarray(scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of `predict_proba`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        return np.asarray(scores - logsumexp(scores, axis=1, keepdims=True))


class Design:
    """The functions of columns that a linear score is made of: numbers and ranks, and indicators of all values."""

    def __init__(self, columns: list[Column]) -> None:
        self.columns = columns
        self.names = [column.name for column in columns]
        self.functions = [name for block in self._blocks() for name in _function_names(block)]

    def _blocks(self) -> list[ColumnBlock]:
        # Made anew: their functions would not go into a pickle.
        return [ColumnBlock.of(column) for column in self.columns]

    def of(self, codes: Codes) -> FloatArray:
        """Return the functions of true codes in the columns' own units, shape (n, q)."""
        return np.concatenate([_functions(block, codes[block.column.name]) for block in self._blocks()], axis=1)

    def units(self, functions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return centres and widths: of numbers mean and standard deviation, of indicators 0 and 1."""
        number = np.concatenate(
            [[block.scale is not None] + [False] * (len(_function_names(block)) - 1) for block in self._blocks()]
        )
        spread = functions.std(axis=0)
        return np.where(number, functions.mean(axis=0), 0.0), np.where(number & (spread > 0), spread, 1.0)


def _function_names(block: ColumnBlock) -> list[str]:
    if block.scale is not None:
        return [block.column.name] + [f"{block.column.name}_null"] * block.has_nulls
    labels = block.column.space.labels()
    return [f"{block.column.name}_{'null' if label is None else label}" for label in labels]


def _functions(block: ColumnBlock, codes: npt.NDArray[Any]) -> FloatArray:
    """Return a column's functions; where a number is null it is at the middle of its bounds."""
    if block.scale is None:
        return np.asarray(codes[:, None] == np.arange(block.column.space.size), dtype=np.float64)
    centre, width = block.unit
    values = block.functions(codes) * width + centre
    return np.column_stack([values, 1 - block.present(codes)]) if block.has_nulls else values


def _draw(source: Source, drawing: Synthesizer, names: list[str], generator: np.random.Generator) -> Codes:
    """Return codes of original rows, several draws of each released row where there are few."""
    held = [name for name in source.plan.names if name not in source.missing]
    batches = list(source.codes(held))
    draws = min(math.ceil(ENOUGH_ROWS / max(source.n, 1)), MOST_DRAWS)
    parts = [drawing.given(codes, generator) for _ in range(draws) for codes in batches]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}
