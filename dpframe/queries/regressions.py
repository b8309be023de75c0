"""Regressions of a raw table with noise on their coefficients."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.accounting.discrete_gaussian import BallNoise
from dpframe.errors import ParameterError, is_one_of, name_list
from dpframe.estimate.axes import ListedAxis
from dpframe.estimate.results import RESULTS
from dpframe.noise.gaussian import Ints
from dpframe.noise.keystream import Keystream
from dpframe.plan.threads import one_thread
from dpframe.queries.base import MOST_GROUPS, Asking, Paid, facts_of, with_facts
from dpframe.queries.columns import QueryColumn, normal
from dpframe.queries.values import Answered
from dpframe.spaces.arrays import FloatArray
from dpframe.totals.answers import Portion
from dpframe.totals.counts import Codes, noisy
from dpframe.totals.newton import NewtonNoise, gradient_sum, gram_sum, newton_fit, newton_noise
from dpframe.totals.ridge import (
    FEATURE_SCALE,
    LOSSES,
    MAX_PENALTY,
    MIN_PENALTY,
    Loss,
    RidgeObjective,
    ridge_noise,
)

MOST_COEFFICIENTS = 200
"""Largest number of coefficients of a regression (limit of time)."""

_FORMULA_EXAMPLE = "visits ~ age + C(ward)"
"""A formula, as messages show it."""


@dataclass(frozen=True)
class Term:
    """A column of a formula: a number by its place between the bounds, or categories other than the first one."""

    column: QueryColumn
    axis: ListedAxis | None = None

    @property
    def names(self) -> list[str]:
        """Names of the coefficients."""
        if self.axis is None:
            return [self.column.name]
        return [f"C({self.column.name})[{label}]" for label in self.axis.labels[1:]]

    @property
    def middle_and_half(self) -> tuple[float, float]:
        """The middle of a number's bounds, and half of their distance."""
        start, step = self.column.line
        half = step * (self.column.space.values - 1) / 2
        return start + half, half

    def features(self, codes: Codes) -> FloatArray:
        """Return one row's features per row, of norm at most 1; a null is the middle, or the first category.

        A special value is the middle as well: its code lies beyond the bounds, and its row would move a sum farther.
        """
        if self.axis is not None:
            cells = self.axis.cell_of(codes)
            return np.asarray(np.asarray(cells)[:, None] == np.arange(1, self.axis.cells), dtype=np.float64)
        space, last_code = self.column.space, float(self.column.space.values - 1)
        values = np.where(codes >= space.values, space.fixed_point, codes.astype(np.int64))
        return np.asarray((2 * values.astype(np.float64)[:, None] - last_code) / last_code)


@dataclass
class _RegressionRows:
    """The codes of a regression's columns; rows are read again in every turn of the fit, so that memory holds them."""

    outcome: Term
    terms: list[Term]
    is_binary: bool
    batches: list[dict[str, Codes]] = field(default_factory=list, repr=False)

    @property
    def scale(self) -> float:
        """Factor that brings the norm of the features, with the intercept's 1, to at most 1."""
        return FEATURE_SCALE / math.sqrt(1 + len(self.terms))

    def add(self, codes: dict[str, Codes]) -> None:
        """Keep a batch."""
        self.batches.append(codes)

    def __call__(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield the features and the outcomes of each batch."""
        for codes in self.batches:
            outcomes = self.outcome.features(codes[self.outcome.column.name])[:, 0]
            parts = [np.ones((len(outcomes), 1)), *(term.features(codes[term.column.name]) for term in self.terms)]
            yield np.hstack(parts) * self.scale, outcomes

    @property
    def names(self) -> list[str]:
        """Names of the coefficients."""
        return ["Intercept", *(name for term in self.terms for name in term.names)]

    def in_units(self) -> tuple[FloatArray, FloatArray]:
        """Return the matrix and the shift that turn the objective's coefficients into those of the columns' units."""
        middle, half = (0.0, 1.0) if self.is_binary else self.outcome.middle_and_half
        matrix = np.eye(len(self.names))
        place = 1
        for term in self.terms:
            if term.axis is None:
                term_middle, term_half = term.middle_and_half
                matrix[place, place] = 1 / term_half
                matrix[0, place] = -term_middle / term_half
            place += len(term.names)
        shift = np.zeros(len(matrix))
        shift[0] = middle
        return matrix * half * self.scale, shift


@dataclass(frozen=True)
class _Coefficients:
    """Noisy coefficients, the covariance of their noise, and a bound on their other differences."""

    weights: FloatArray
    covariance: FloatArray
    remainder: float = 0.0


@dataclass(frozen=True)
class _NewtonMethod:
    """Newton steps on noisy sums."""

    loss: Loss
    n: int
    size: int
    contributions: int

    def noise(self, portion: Portion) -> NewtonNoise:
        """Return the noise of all sums within a portion."""
        return newton_noise(self.size, self.contributions, portion)

    def draw(self, rows: _RegressionRows, noise: NewtonNoise, stream: Keystream) -> _Coefficients:
        """Return the coefficients after the last step."""

        def ask(turn: int, weights: FloatArray) -> Ints:
            own_stream = stream.column(json.dumps(["regress", turn]), "measure")
            return noisy(gradient_sum(self.loss, rows, weights), noise.gradient.sigma2, own_stream)

        gram = noisy(gram_sum(rows, self.size), noise.gram.sigma2, stream.column("regress", "measure"))
        fit = newton_fit(self.loss, self.n, self.size, rows.scale, noise, gram, ask)
        return _Coefficients(fit.weights, fit.covariance)


@dataclass(frozen=True)
class _RidgeMethod:
    """Noise on the coefficients of least penalised loss."""

    objective: RidgeObjective

    def noise(self, portion: Portion) -> BallNoise:
        """Return the noise of the coefficients within a portion."""
        return ridge_noise(self.objective, portion)

    def draw(self, rows: _RegressionRows, noise: BallNoise, stream: Keystream) -> _Coefficients:
        """Return the coefficients with noise."""
        grid = self.objective.grid
        draws = noisy(self.objective.rounded(rows), noise.sigma2, stream.column("regress", "measure"))
        covariance = np.eye(self.objective.size) * (noise.sigma2 * grid**2)
        return _Coefficients(draws.astype(np.float64) * grid, covariance, self.objective.remainder)


class RegressionQueries(Asking):
    """Regressions; see `Queries`."""

    def regress(
        self, formula: str, *, family: str = "gaussian", penalty: float | None = None, share: float
    ) -> pd.DataFrame:
        """Return the coefficients of a regression of all rows, with noise on sums or on the coefficients.

        By default the fit has no penalty: Newton steps from 0 ask for noisy sums, one of products of features and one
        of slopes in each step. Errors are those of the last step's noise, so that intervals are approximate: .92 to .98
        of those of .95 held the table's own coefficients in simulations from 1,000 rows on.

        With a ``penalty`` it is a ridge regression with noise on its output: the fit minimises the mean loss plus
        ``penalty``/2 times the squared norm of the coefficients, where numbers are scaled to [−1, 1] by their bounds
        and all features of a row to a norm of at most 1. A replaced row moves that minimiser by at most 2/(n·penalty)
        in ℓ2, and the noise is in proportion. Its intervals are exact, and hold the table's own ridge coefficients.
        Intervals of both contain neither shrinkage nor sampling error.

        Parameters
        ----------
        formula
            An outcome and columns, e.g. ``"visits ~ age + C(ward)"``; numbers enter by their value, ``C(…)`` and
            categories by an indicator for each value but the first. There is always an intercept.
        family
            ``"gaussian"``: least squares, residuals beyond half of the outcome's range counting linearly (Huber).
            ``"binomial"``: logistic regression of an outcome with two values, the second as success.
        penalty
            None for a fit without penalty, or λ, from 1e-6 to 1,000; about 1/√n is a start.
        share
            See the class. The noise is Gaussian, so that the budget needs a delta above 0.

        Returns
        -------
        DataFrame with a row per coefficient, in the units of the columns, and ``estimate, std_error, lower, upper``.

        Raises
        ------
        ParameterError
            For a formula that is not of this form, a column without a space or with nulls, an outcome of another kind,
            a penalty out of range, a budget without a delta, or if the number of rows is a secret.
        BudgetExceeded
            If less than the share is left.

        Notes
        -----
        Codes of all rows stay in memory until the answer, also those of files.

        Newton steps: `dpframe.totals.newton`. Output perturbation with a certified minimiser (Chaudhuri, Monteleoni,
        Sarwate 2011, §3): `dpframe.totals.ridge`. Objective perturbation is private only for an exact minimiser and
        continuous noise, neither of which computers have.

        Examples
        --------
        >>> import dpframe as dpf
        >>> people = dpf.datasets.make_census(20_000, columns=["age", "sex", "income"])
        >>> spaces = {"age": (18, 95), "sex": ["F", "M"], "income": (0, 100_000)}
        >>> q = dpf.Queries(people, 1.0, delta=1e-6, spaces=spaces)
        >>> q.regress("income ~ age + sex", share=0.5).index.tolist()
        ['Intercept', 'age', 'C(sex)[M]']
        >>> q.regress("income ~ age + sex", penalty=0.02, share=0.5)["std_error"].round(-1).tolist()
        [1540.0, 20.0, 870.0]
        """
        rows = self._regression_rows(formula, family)
        size = len(rows.names)
        if size > MOST_COEFFICIENTS:
            raise ParameterError(
                f"formula has {size:,} coefficients, and regress takes {MOST_COEFFICIENTS}; leave categories out"
            )
        method: _NewtonMethod | _RidgeMethod = _NewtonMethod(LOSSES[family], self.n, size, self.contributions)
        if penalty is not None:
            objective = RidgeObjective(LOSSES[family], self._checked_penalty(penalty), size, self.n, self.contributions)
            method = _RidgeMethod(objective)

        def fit_noise(portion: Portion) -> tuple[str, Any, Budget]:
            return "gaussian", method.noise(portion), portion.budget

        best_fit = min(map(fit_noise, self._allowed_portions(share)), key=lambda candidate: candidate[1].sigma2)

        @one_thread
        def draw_coefficients(receipt: Paid[tuple[str, Any, Budget]]) -> pd.DataFrame:
            name, noise, budget = receipt.fitted
            coefficients = method.draw(rows, noise, receipt.stream)
            matrix, shift = rows.in_units()
            errors = np.sqrt(np.diag(matrix @ coefficients.covariance @ matrix.T))
            results = normal(matrix @ coefficients.weights + shift, errors, self.confidence_level)
            remainders = np.linalg.norm(matrix, axis=1) * coefficients.remainder
            results["lower"], results["upper"] = results["lower"] - remainders, results["upper"] + remainders
            facts: dict[str, Any] = {"formula": formula, "family": family, "penalty": penalty, "n": self.n}
            for term in (rows.outcome, *rows.terms):
                facts |= term.column.facts
            facts |= facts_of(name, receipt.share, budget, self.unit)
            table = pd.DataFrame(results, index=rows.names, columns=list(RESULTS))
            return with_facts(table, Answered((), (), facts))

        columns = list({term.column.name: term.column for term in (rows.outcome, *rows.terms)}.values())
        return self._run_answer_job(rows.add, columns, share, "regress", best_fit, draw_coefficients)

    def _checked_penalty(self, penalty: Any) -> float:
        is_number = isinstance(penalty, Real) and not isinstance(penalty, bool)
        if not is_number or not MIN_PENALTY <= penalty <= MAX_PENALTY:
            raise ParameterError(
                f"penalty must be a number from {MIN_PENALTY:g} to {MAX_PENALTY:g}, e.g. "
                f"penalty={1 / math.sqrt(self.n):.1g}, or None"
            )
        return float(penalty)

    def _regression_rows(self, formula: str, family: str) -> _RegressionRows:
        """Return the empty rows of a formula, or raise `ParameterError`."""
        if self.unit.added:
            raise ParameterError('regress divides by a public number of rows; take neighbours="replace_one"')
        if not is_one_of(family, LOSSES):
            raise ParameterError(f"family must be one of {', '.join(LOSSES)}")
        outcome_name, words = split_formula(formula)
        terms = [self._term(word) for word in words]
        outcome = Term(self._complete_column(outcome_name))
        is_binary = family == "binomial"
        if is_binary and outcome.column.space.values != 2:
            raise ParameterError(
                f"column {name_list([outcome_name])} has not two values, which family='binomial' needs; declare two"
            )
        if not is_binary:
            outcome.column.numeric("regress", times=False)
        if outcome_name in (term.column.name for term in terms):
            raise ParameterError(f"formula has {name_list([outcome_name])} on both sides; leave it out on the right")
        if outcome.column.space.values < 2:
            raise ParameterError(f"column {name_list([outcome_name])} has one value; regress needs an outcome of more")
        return _RegressionRows(outcome, terms, is_binary)

    def _term(self, word: str) -> Term:
        """Return the features of a word of a formula: a number's, or the categories' of ``C(…)`` and listed columns."""
        match = re.fullmatch(r"C\((.*)\)", word)
        column = self._complete_column(match.group(1).strip() if match else word)
        if column.space.values < 2:
            raise ParameterError(f"column {name_list([column.name])} has one value; leave it out of the formula")
        if match is None and column.space.is_numeric:
            return Term(column.numeric("regress", times=False))
        if column.space.holds_sets or column.space.values > MOST_GROUPS:
            raise ParameterError(f"column {name_list([column.name])} has no short list of values, which C(…) needs")
        return Term(column, ListedAxis(column.column, zone=column.zone))

    def _complete_column(self, name: str) -> QueryColumn:
        """Return a column whose space holds no nulls, or raise `ParameterError`."""
        column = self._column(name)
        if column.space.has_null:
            raise ParameterError(
                f"column {name_list([name])} may hold nulls, which no regression has; declare its space without "
                "Nullable, and nulls count as the middle"
            )
        return column


def split_formula(formula: Any) -> tuple[str, list[str]]:
    """Return the outcome and the words of a formula, or raise `ParameterError`.

    >>> split_formula("visits ~ age + C(ward)")
    ('visits', ['age', 'C(ward)'])
    """
    sides = [side.strip() for side in formula.split("~")] if isinstance(formula, str) else []
    words = [word.strip() for word in sides[1].split("+")] if len(sides) == 2 else []
    if not words or not all([sides[0], *words]):
        raise ParameterError(f'formula must be an outcome, ~ and columns with + between; e.g. "{_FORMULA_EXAMPLE}"')
    if len(set(words)) < len(words):
        raise ParameterError("formula must name each column once on the right")
    return sides[0], words
