"""Questions to a table, with noise on the answers: `Queries`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from dpframe.errors import ParameterError, did_you_mean, refusing_misfit_calls
from dpframe.estimate.results import RESULTS
from dpframe.queries.base import counted_axis, with_facts
from dpframe.queries.columns import QueryColumn, crossed, linear, normal, series
from dpframe.queries.moments import MomentQueries
from dpframe.queries.quantiles import QuantileQueries
from dpframe.queries.regressions import RegressionQueries
from dpframe.queries.selections import Selections
from dpframe.queries.sets import SetQueries
from dpframe.queries.values import Answered, ratios, squared_z
from dpframe.spaces.arrays import FloatArray
from dpframe.totals.questions import CellCounts, Summed

MAX_CROSSTAB_CELLS = 1 << 20
"""Most cells of a cross table."""

_EXAMPLES = {
    "count": 'count({"age": (18, 65)}, share=0.1)',
    "covariance": 'covariance(["age", "income"], share=0.1)',
    "crosstab": 'crosstab("sex", "region", share=0.1)',
    "histogram": 'histogram("age", bins=10, share=0.1)',
    "mean": 'mean("age", share=0.1, by="sex")',
    "most_common": 'most_common("hobbies", 3, share=0.1)',
    "nunique": 'nunique("region", share=0.1)',
    "quantile": 'quantile("age", 0.5, share=0.1)',
    "regress": 'regress("visits ~ age + C(ward)", penalty=0.01, share=0.1)',
    "second_moments": 'second_moments(["age", "income"], share=0.1)',
    "select": 'select(["F", "M"], utility, sensitivity=1, share=0.1)',
    "set_sizes": 'set_sizes("hobbies", share=0.1)',
    "sum": 'sum("income", share=0.1, by="sex")',
    "support": 'support("hobbies", share=0.1)',
}
"""Examples of correct calls, which errors of misfit calls quote."""

_EXTREMES = "the least and the largest value are single rows'; quantile takes any q between"
_MOMENTS = "covariance and second_moments answer it for numbers"
_INSTEAD = {
    "std": _MOMENTS,
    "var": _MOMENTS,
    "corr": _MOMENTS,
    "max": _EXTREMES,
    "min": _EXTREMES,
    "median": 'quantile("column", 0.5)',
    "null_rate": 'count({"column": None}), of a column whose space is Nullable(…)',
    "value_counts": "histogram counts the values of a column",
    "joint": "crosstab counts the values of two columns",
    "top": "most_common",
}
"""Advice by name of a statistic or a method of pandas that `Queries` does not have."""


@partial(refusing_misfit_calls, _EXAMPLES)
class Queries(MomentQueries, QuantileQueries, RegressionQueries, SetQueries, Selections):
    """Questions to a table about people, answered with noise under (ε, δ)-differential privacy.

    The budget is one for all questions; each spends a ``share`` of it, once, before noise is drawn. Where δ > 0 answers
    are added up in Gaussian differential privacy: a share is of μ², so that ten questions of a tenth have noise √10
    times that of one and not ten times. Where δ = 0, or with ``accounting="basic"``, a share is of ε (and δ). All of
    the budget for one answer, without a ledger, has pure noise of that ε where this is less.

    Nothing but noisy counts and sums leaves, and no value is refused: values beyond their bounds are clamped; a null,
    or a value that its space cannot hold, meets no condition and is in no cell of a histogram, and in sums, means and
    quantiles counts as the middle of the bounds, unless the space is ``Nullable``: then these are of the values that
    are there. ``attrs["nulls"]`` is ``"middle"`` in an answer that may count nulls so, and ``attrs["outside"]``
    ``"bound"`` where values beyond the bounds count as the bounds, which no interval holds.

    The schema is public. So is the number of rows where neighbouring tables differ in a row that is replaced
    (``neighbours="replace_one"``). If they differ in a row that only one of them has (``"add_remove"``) the number is a
    secret, and means divide by a noisy count. A promise for two rows that are added or removed
    (``contributions=2``) holds for one that is replaced, never the other way round.

    ``by=`` answers for each of a public list of groups and ``where=`` for the rows that meet conditions; either is one
    question. A replaced row leaves one group and enters another: two counts move, or two sums by half of what one
    does, and the share pays for that once, however many groups there are.

    Parameters
    ----------
    frame
        A pandas or polars DataFrame, a pyarrow Table, anything with the Arrow C stream, or the path of a Parquet or
        CSV file or directory, which is read in batches, once for each question.
    budget
        A `Budget`, or its ε.
    spaces
        A declaration for every column that is asked about; see `as_space`.
    epsilon, delta
        The same in place of a `Budget`; δ is min(1e-6, n^−1.5) by default. 0 is pure, without Gaussian noise.
    contributions
        Rows that one person may own: sensitivities are multiplied by it.
    neighbours
        ``"replace_one"`` or ``"add_remove"``; the latter needs a ``delta``.
    accounting
        ``"gaussian"``, the default where δ > 0, or ``"basic"``.
    confidence_level
        Of the answers' intervals, which are about the table and not a population.
    ledger, dataset
        A `Ledger`, or its path, and the dataset in it, or a `Ledger.account`, in which each answer is entered before
        its noise is drawn.

    Raises
    ------
    ParameterError, ColumnError
        For an argument that breaks its rule, or a table without rows.
    AlreadySanitizedError
        If the table is a release, whose estimates cost nothing.
    BudgetExceeded
        By a question that asks for more than is left; nothing is spent or drawn then.

    Notes
    -----
    Every answer is a Series or DataFrame with `estimate`, `std_error`, `lower` and `upper`; ``attrs`` has the
    mechanism, the share, the (ε, δ) that the answer has for itself, and how neighbours differ. Mechanisms:
    ``"geometric"`` (two-sided geometric noise, pure; ``"laplace"`` and ``"vector"`` name the same on real numbers and
    on several), ``"staircase"`` and ``"staircase_squares"`` (pure; of least expected absolute and squared error, for a
    number that moves by more than 1), ``"gaussian"`` (discrete Gaussian noise); for a choice (`select`, `quantile`,
    `most_common`) ``"exponential"`` and ``"noisy_max"``. Where none is named, the one that errs less is taken; that
    choice is public. All of them are sampled exactly, in integers; `second_moments` takes ``"wishart"`` as well, which
    is not.

    Copies of an object share its budget; another object has its own, so let a ledger keep count.

    Examples
    --------
    The average age of 100 people, ages in [0, 150]: one person moves it by at most 150/100 = 1.5, so at ε = 1 the noise
    is Laplace noise of scale 1.5, whose standard deviation is 1.5·√2.

    >>> import dpframe as dpf
    >>> ages = pd.DataFrame({"age": np.arange(100)})
    >>> q = dpf.Queries(ages, epsilon=1.0, delta=0, spaces={"age": (0, 150)})
    >>> answer = q.mean("age", share=1)
    >>> float(answer["std_error"].round(2)), answer.attrs["mechanism"], answer.attrs["epsilon"]
    (2.12, 'geometric', 1.0)
    >>> q.spent, q.left
    (Amount(epsilon=1.0, delta=0.0), 0.0)
    >>> q.mean("age", share=0.1)
    Traceback (most recent call last):
    dpframe.errors.BudgetExceeded: the questions have share=0 left of their budget, and share=0.1 was asked: nothing was
    spent and nothing was drawn; ask for no more than is left
    """

    def __getattr__(self, name: str) -> Any:
        """Name the question that replaces an unknown one, in an `AttributeError`."""
        instead = _INSTEAD.get(name) or did_you_mean(name, (n for n in dir(type(self)) if n[0] != "_")).strip()
        raise AttributeError(f"Queries has no {name!r}" + (f": {instead}" if instead else ""))

    def count(
        self, where: Mapping[str, Any] | None = None, *, share: float, mechanism: str | None = None
    ) -> pd.Series[Any]:
        """Return how many rows meet a condition on every column that is named; sensitivity 1.

        One row meets the conditions or does not: the count moves by at most 1 (by k for a person of k rows).

        Parameters
        ----------
        where
            By column a value, a list of values, ``(low, high)`` with both ends in it (None for no end), None for
            null; for a column of sets ``{"any": items}`` or ``{"all": items}``; ``{"not": …}`` of any of these, which
            no null meets. None for all rows, if their number is a secret.
        share, mechanism
            See the class.

        Raises
        ------
        ParameterError
            For an invalid condition, a column without a space, or a value that its space does not hold; without
            conditions if the number of rows is public.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> people = dpf.datasets.make_census(10_000, columns=["age", "sex"])
        >>> q = dpf.Queries(people, 1.0, delta=1e-6, spaces={"age": (0, 120), "sex": ["F", "M"]})
        >>> answer = q.count({"sex": "F", "age": (18, 65)}, share=0.1)
        >>> answer.attrs["mechanism"], round(float(answer["std_error"]))
        ('gaussian', 13)
        """
        if where is None and not self.unit.added:
            raise ParameterError(
                'where is needed: the number of all rows is public, n, but with neighbours="add_remove"'
            )
        query_columns, conditions = self._conditions(where)
        question = CellCounts({}, self.unit, conditions)
        if not conditions:
            # No column is read without conditions, so that no batch would count the rows.
            question.counts[:] = self._table.n
        noisy_answer = self._answer(question, query_columns, share, mechanism, "count")
        results = linear(noisy_answer.values[0], noisy_answer.noises[0], 1.0, self.confidence_level)
        return with_facts(series(results, "count"), noisy_answer)

    def sum(
        self,
        column: str,
        *,
        by: str | None = None,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return the sum of a numeric column's values; sensitivity b − a for values in [a, b].

        One replaced value moves the sum by at most b − a. Where not all rows are added up (a ``Nullable`` space,
        ``by``, ``where``, rows that are added or removed) the sum about the middle of the bounds and the number of
        values are measured, each with a part of the share: null counts as nothing.

        Parameters
        ----------
        column
            A column of numbers or booleans.
        by
            A column of categories or few values: an answer for each of them.
        where
            Conditions on rows, as for `count`.
        share, mechanism
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; with ``by`` a DataFrame with a row per group.

        Raises
        ------
        ParameterError
            For a column without a space, or of no numbers.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> hours = pd.DataFrame({"hours": [40, 38, 20, 60] * 250})
        >>> q = dpf.Queries(hours, 2.0, delta=0, spaces={"hours": (0, 100)})
        >>> round(float(q.sum("hours", share=0.5)["std_error"]))  # √2·100/ε
        141
        """
        query_column = self._column(column).numeric("sum", times=False)
        (start, step), last_code = query_column.line, query_column.space.values - 1
        middle, width = abs(start + step * last_code / 2), step * last_code
        # The larger the middle, the more the noise on the count moves the sum.
        weight = min(max(middle / (middle + width or 1.0), 0.02), 0.98)
        return self._sum_or_mean(query_column, by, where, weight, share, mechanism, "sum")

    def mean(
        self,
        column: str,
        *,
        by: str | None = None,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return the mean of a numeric column's values; sensitivity (b − a)/n for values in [a, b].

        The sum moves by at most b − a, and n is public. Where not all rows are added up (see `sum`) it is the sum about
        the middle over the number of values, both with noise: its error is by the delta method, and its interval
        Fieller's, the whole of the bounds where the noise may have made the group.

        Parameters
        ----------
        column
            A column of numbers, booleans or times.
        by, where, share, mechanism
            See `sum`.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; with ``by`` a DataFrame with a row per group.

        Raises
        ------
        ParameterError
            For a column without a space, or of no numbers.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> people = pd.DataFrame({"age": [30, 50] * 5_000, "sex": ["F", "M"] * 5_000})
        >>> q = dpf.Queries(people, 1.0, delta=1e-6, spaces={"age": (0, 100), "sex": ["F", "M"]})
        >>> answer = q.mean("age", by="sex", share=0.5)
        >>> answer["estimate"].round().tolist(), bool((answer["std_error"] < 0.2).all())
        ([30.0, 50.0], True)
        """
        query_column = self._column(column).numeric("mean")
        return self._sum_or_mean(query_column, by, where, 0.2, share, mechanism, "mean")

    def _sum_or_mean(
        self,
        query_column: QueryColumn,
        by: str | None,
        where: Mapping[str, Any] | None,
        weight: float,
        share: float,
        mechanism: str | None,
        kind: str,
    ) -> pd.Series[Any] | pd.DataFrame:
        read_columns, groups, labels = self._row_groups(by, where, query_column)
        question = Summed(query_column.name, query_column.space, self.unit, weight, groups)
        noisy_answer = self._answer(question, read_columns, share, mechanism, kind)
        if question.partial:
            results = self._centred_sums_or_means(question, query_column, noisy_answer, kind)
        else:
            # Rounding down loses half a unit on average; the number of all rows is public.
            codes = noisy_answer.values[0] * question.rounded + (question.rounded - 1) / 2
            (start, step), noise = query_column.line, noisy_answer.noises[0]
            results = linear(start * self.n + step * codes, noise, step * question.rounded, self.confidence_level)
            if kind == "mean":
                results = {name: values / self.n for name, values in results.items()}
        estimates = query_column.dressed(results)
        described_answer = replace(noisy_answer, facts={**noisy_answer.facts, **query_column.facts})
        if labels is None:
            return with_facts(series(estimates, query_column.name), described_answer)
        return with_facts(pd.DataFrame(estimates, index=labels), described_answer)

    def _centred_sums_or_means(
        self, question: Summed, query_column: QueryColumn, noisy_answer: Answered, kind: str
    ) -> dict[str, FloatArray]:
        """Return sums or means of groups, from sums about the middle and numbers of values."""
        start, step = query_column.line
        middle, half = start + step * question.last / 2, step / 2
        centred_sums = half * (noisy_answer.values[0] * question.rounded + (question.rounded - 1) / 2)
        errors = [math.sqrt(noise.variance) for noise in noisy_answer.noises]
        sum_error, value_counts = half * question.rounded * errors[0], noisy_answer.values[1]
        if kind == "sum":
            error = np.full(value_counts.shape, math.hypot(sum_error, middle * errors[1]))
            return normal(centred_sums + middle * value_counts, error, self.confidence_level)
        z = math.sqrt(squared_z(self.confidence_level))
        estimates = ratios(centred_sums, (sum_error, errors[1]), value_counts, half * question.last, z)
        # The standard error, in row 1, does not move with the centre.
        estimates[[0, 2, 3]] += middle
        return dict(zip(RESULTS, estimates, strict=True))

    def histogram(
        self,
        column: str,
        bins: int | Sequence[Any] | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
    ) -> pd.DataFrame:
        """Return how many rows have each value of a column, or lie in each of its bins; sensitivity 2, or √2.

        A replaced row leaves one cell and enters another: two counts move by 1, which is 2 in ℓ1 (geometric noise of
        rate ε/2 on each) and √2 in ℓ2. A row that is added moves one, by 1.

        Parameters
        ----------
        column
            A column of categories, numbers or times.
        bins
            Of numbers and times: how many (10), or bounds in order.
        where
            Conditions on rows, as for `count`.
        share, mechanism
            See the class.

        Returns
        -------
        DataFrame with a row per value or bin, and one for null if the space holds nulls.

        Raises
        ------
        ParameterError
            For a column without a space, or bins that it cannot have.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> people = dpf.datasets.make_census(1_000, columns=["sex"])
        >>> q = dpf.Queries(people, 1.0, delta=0, spaces={"sex": ["F", "M"]})
        >>> q.histogram("sex", share=1).std_error.round(1).tolist()
        [2.8, 2.8]
        """
        query_column = self._column(column)
        axis = counted_axis(query_column, bins)
        read_columns, conditions = self._conditions(where, query_column)
        question = CellCounts({column: (axis.cells, axis.cell_of)}, self.unit, conditions)
        noisy_answer = self._answer(question, read_columns, share, mechanism, "histogram")
        return self._count_table(noisy_answer, axis.labels)

    def crosstab(
        self,
        index: str,
        columns: str,
        *,
        bins: int | Mapping[str, Any] | None = None,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
    ) -> pd.DataFrame:
        """Return how many rows have each pair of two columns' values; sensitivity 2, or √2, as for `histogram`.

        Parameters
        ----------
        index, columns
            Two columns of categories, numbers or times.
        bins
            How many for numbers and times (10); or by column how many, or bounds in order.
        where
            Conditions on rows, as for `count`.
        share, mechanism
            See the class.

        Returns
        -------
        DataFrame with a row per value of ``index``, whose columns have the outer level
        ``estimate, std_error, lower, upper`` over the values of ``columns``.

        Raises
        ------
        ParameterError
            For a column without a space or named twice, bins of other columns, or more than 2²⁰ cells.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> people = dpf.datasets.make_census(10_000, columns=["age", "sex"])
        >>> q = dpf.Queries(people, 1.0, delta=1e-6, spaces={"age": (0, 120), "sex": ["F", "M"]})
        >>> q.crosstab("age", "sex", bins={"age": 3}, share=0.5)["std_error"].round(1).to_numpy().tolist()
        [[8.5, 8.5], [8.5, 8.5], [8.5, 8.5]]
        """
        query_columns = [self._column(name) for name in (index, columns)]
        column_bins: Mapping[str, Any] = bins if isinstance(bins, Mapping) else {}
        # One number of bins is for the numeric column of the two: a list of categories has its own cells.
        default_bins = None if isinstance(bins, Mapping) else bins
        if index == columns or not set(column_bins) <= {index, columns}:
            raise ParameterError("index and columns must be two columns, and bins be of these; e.g. bins={column: 10}")
        axes = [
            counted_axis(
                query_column, column_bins.get(query_column.name, None if query_column.space.is_listed else default_bins)
            )
            for query_column in query_columns
        ]
        if math.prod(axis.cells for axis in axes) > MAX_CROSSTAB_CELLS:
            raise ParameterError(f"bins give more than {MAX_CROSSTAB_CELLS:,} cells; take fewer")
        read_columns, conditions = self._conditions(where, *query_columns)
        parts = {column.name: (axis.cells, axis.cell_of) for column, axis in zip(query_columns, axes, strict=True)}
        question = CellCounts(parts, self.unit, conditions)
        noisy_answer = self._answer(question, read_columns, share, mechanism, "crosstab")
        results = linear(
            noisy_answer.values[0].reshape(question.shape), noisy_answer.noises[0], 1.0, self.confidence_level
        )
        return with_facts(crossed(results, axes[0].labels, axes[1].labels), noisy_answer)
