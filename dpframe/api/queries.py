"""Questions to a table, with noise on the answers: `Queries`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpframe.api.asked import Asked, linear, normal, series
from dpframe.api.asking import with_facts
from dpframe.api.query_answers import (
    checked_levels,
    placed,
    squared_z,
)
from dpframe.api.query_moments import MomentQueries
from dpframe.api.query_selections import Selections
from dpframe.central.questions import Cells, Met, Summed, Tree
from dpframe.errors import (
    ParameterError,
    check_whole,
    name_list,
)
from dpframe.estimate.axes import make_axis
from dpframe.estimate.base import RESULTS
from dpframe.estimate.conditions import Where


class Queries(MomentQueries, Selections):
    """Questions to a table about people, answered with noise under (ε, δ)-differential privacy (replace-one).

    The budget is one for all questions; each spends a ``share`` of it, once, before noise is drawn. Where δ > 0 answers
    are added up in Gaussian differential privacy: a share is of μ², so that ten questions of a tenth have noise √10
    times that of one and not ten times. Where δ = 0, or with ``accounting="basic"``, a share is of ε (and δ).

    Nothing but noisy counts and sums leaves, and no value is refused: values beyond their bounds are clamped; a null,
    or a value that its space cannot hold, meets no condition and is in no cell of a histogram, and in sums, means and
    quantiles counts as the middle of the bounds, unless the space is ``Nullable``: then these are of the values that
    are there. The number of rows and the schema are public.

    Parameters
    ----------
    table
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
    accounting
        ``"gaussian"``, the default where δ > 0, or ``"basic"``.
    confidence_level
        Of the answers' intervals, which are about the table and not a population.
    ledger, dataset, part
        A `Ledger`, or its path, and the dataset in it, or a part of that, in which each answer is entered before its
        noise is drawn.

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
    mechanism, the share, and the (ε, δ) that the answer has for itself. Mechanisms: ``"geometric"`` (two-sided
    geometric noise, pure; ``"laplace"`` and ``"vector"`` name the same on real numbers and on several),
    ``"staircase"`` (pure; of least expected absolute error, for a number that moves by more than 1), ``"gaussian"``
    (discrete Gaussian noise). Where none is named, the one of less noise is taken; that choice is public. All of them
    are sampled exactly, in integers; `second_moments` takes ``"wishart"`` as well, which is not. `select` chooses one
    of several candidates by ``"exponential"`` or ``"noisy_max"``, exactly as well.

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

    def count(self, where: Mapping[str, Any], *, share: float, mechanism: str | None = None) -> pd.Series[Any]:
        """Return how many rows meet a condition on every column that is named; sensitivity 1.

        One replaced row meets the conditions or does not: the count moves by at most 1 (by k for a person of k rows).

        Parameters
        ----------
        where
            By column a value, a list of values, ``(low, high)`` with both ends in it (None for no end), None for
            null; ``{"not": …}`` of any of these, which no null meets.
        share, mechanism
            See the class.

        Raises
        ------
        ParameterError
            For an invalid condition, a column without a space, or a value that its space does not hold.
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
        asked: dict[str, Asked] = {}

        def column_of(name: str) -> Any:
            asked[name] = self._column(name)
            return asked[name].column

        holds = {name: condition.holds for name, condition in Where.of(where, column_of).values.items()}
        told = self._answer(Met(holds, self.contributions), asked.values(), share, mechanism, "count")
        results = linear(told.values[0], told.noises[0], 1.0, self.confidence_level)
        return with_facts(series(results, "count"), told)

    def sum(self, column: str, *, share: float, mechanism: str | None = None) -> pd.Series[Any]:
        """Return the sum of a numeric column's values; sensitivity b − a for values in [a, b].

        One replaced value moves the sum by at most b − a. With a ``Nullable`` space the sum about the middle of the
        bounds and the number of values are measured, each with a part of the share: null counts as nothing.

        Parameters
        ----------
        column
            A column of numbers or booleans.
        share, mechanism
            See the class.

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
        asked = self._column(column).numeric("sum", times=False)
        (start, step), last = asked.line, asked.space.values - 1
        middle, width = abs(start + step * last / 2), step * last
        weight = min(max(middle / (middle + width or 1.0), 0.02), 0.98)
        return self._summed(asked, Summed(column, asked.space, self.contributions, weight), share, mechanism, "sum")

    def mean(self, column: str, *, share: float, mechanism: str | None = None) -> pd.Series[Any]:
        """Return the mean of a numeric column's values; sensitivity (b − a)/n for values in [a, b].

        The sum moves by at most b − a, and n is public. With a ``Nullable`` space it is the mean of the values that are
        there: the sum about the middle over the number of values, both with noise; its error is by the delta method.

        Parameters
        ----------
        column
            A column of numbers, booleans or times.
        share, mechanism
            See the class.

        Raises
        ------
        ParameterError
            For a column without a space, or of no numbers.
        BudgetExceeded
            If less than the share is left.
        """
        asked = self._column(column).numeric("mean")
        return self._summed(asked, Summed(column, asked.space, self.contributions), share, mechanism, "mean")

    def _summed(self, asked: Asked, question: Summed, share: float, mechanism: str | None, kind: str) -> pd.Series[Any]:
        told = self._answer(question, [asked], share, mechanism, kind)
        start, step = asked.line
        if not asked.space.has_null:
            over = self.n if kind == "mean" else 1
            # What rounding down left off is half a unit on average.
            codes = told.values[0] * question.unit + (question.unit - 1) / 2
            values = (start * self.n + step * codes) / over
            results = linear(values, told.noises[0], step * question.unit / over, self.confidence_level)
            return with_facts(series(asked.dressed(results), asked.name), told)
        middle, half = start + step * question.last / 2, step / 2
        about = half * (told.values[0] * question.unit + (question.unit - 1) / 2)
        errors = [math.sqrt(noise.variance) for noise in told.noises]
        spread, present = half * question.unit * errors[0], told.values[1]
        if kind == "sum":
            found, error = about + middle * present, math.hypot(spread, middle * errors[1])
        else:
            rows = np.maximum(present, 1.0)
            from_middle = np.clip(about / rows, -half * question.last, half * question.last)
            found, error = middle + from_middle, math.hypot(spread, float(from_middle[0]) * errors[1]) / float(rows[0])
        results = normal(found, np.array([error]), self.confidence_level)
        return with_facts(series(asked.dressed(results), asked.name), told)

    def histogram(
        self, column: str, bins: int | Sequence[Any] | None = None, *, share: float, mechanism: str | None = None
    ) -> pd.DataFrame:
        """Return how many rows have each value of a column, or lie in each of its bins; sensitivity 2, or √2.

        A replaced row leaves one cell and enters another: two counts move by 1, which is 2 in ℓ1 (geometric noise of
        rate ε/2 on each) and √2 in ℓ2.

        Parameters
        ----------
        column
            A column of categories, numbers or times.
        bins
            Of numbers and times: how many (10), or bounds in order.
        share, mechanism
            See the class.

        Returns
        -------
        DataFrame with a row per value or bin, and one for null where the space holds it.

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
        return self._counted(column, bins, share, mechanism, "histogram")

    def _counted(self, column: str, bins: Any, share: float, mechanism: str | None, kind: str) -> pd.DataFrame:
        asked = self._column(column)
        listed = asked.space.is_listed or asked.space.values <= 2
        axis = make_axis(asked.column, 10 if bins is None and not listed else bins)
        question = Cells(column, axis.cells, axis.cell_of, self.contributions)
        told = self._answer(question, [asked], share, mechanism, kind)
        results = linear(told.values[0], told.noises[0], 1.0, self.confidence_level)
        return with_facts(pd.DataFrame(results, index=axis.labels), told)

    def most_common(self, column: str, k: int = 5, *, share: float, mechanism: str | None = None) -> pd.DataFrame:
        """Return the k values of a column with the largest noisy counts; sensitivity as for `histogram`.

        The whole histogram is measured, and the choice is made from it: post-processing. Counts that were chosen for
        being large are too large on average, most of all where counts differ by less than their errors.

        Parameters
        ----------
        column
            A column of categories.
        k
            How many, at most as many as there are.
        share, mechanism
            See the class.

        Raises
        ------
        ParameterError
            For a column without a space or of no categories, or k beyond their number.
        BudgetExceeded
            If less than the share is left.
        """
        asked = self._column(column)
        if not asked.space.is_listed:
            raise ParameterError(
                f"column {name_list([column])} holds no categories, which most_common needs; ask for histogram"
            )
        check_whole(k, "k", 1, asked.space.size, of="values")
        table = self._counted(column, None, share, mechanism, "most_common")
        return table.sort_values("estimate", ascending=False, kind="stable").head(int(k))

    def quantile(
        self, column: str, q: float | Sequence[float] = 0.5, *, share: float, mechanism: str | None = None
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return quantiles of a numeric column's values, from noisy cumulative counts on the grid of its space.

        Counts of up to 4,096 cells, of groups of 16 of them and of 16 groups are measured, each table with a part of
        the share and sensitivity 2 (√2); a cumulative count is a sum of at most 15 of each. A level's interval has the
        cells that the noise of the cumulative counts does not exclude: it holds the quantile with the confidence level
        at least. All levels cost as much as one.

        Parameters
        ----------
        column
            A column of numbers or times.
        q
            A level in (0, 1), or a list of them.
        share, mechanism
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; of a list a DataFrame with a row per level.

        Raises
        ------
        ParameterError
            For a column without a space or of no numbers, or a level outside (0, 1).
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> people = dpf.datasets.make_census(20_000, columns=["age"])
        >>> answer = dpf.Queries(people, 1.0, {"age": (0, 120)}).quantile("age", [0.25, 0.5], share=0.5)
        >>> bool((answer["estimate"] - people["age"].quantile([0.25, 0.5])).abs().max() < 3)
        True
        """
        asked, levels = self._column(column).numeric("quantile"), checked_levels(q)
        tree = Tree(column, asked.space, self.contributions)
        told = self._answer(tree, [asked], share, mechanism, "quantile")
        tables, spread = [values.astype(np.int64) for values in told.values], [n.variance for n in told.noises]
        rows, of_rows = float(self.n), 0.0
        if asked.space.has_null:
            rows, of_rows, tables[0] = rows - float(tables[0][-1]), spread[0], tables[0][:-1]
        below, variance = tree.cumulative(tables) - 0.0, tree.variances(spread)
        z = math.sqrt(squared_z(self.confidence_level))
        found = []
        for level in levels:
            excess, error = below - level * rows, np.sqrt(variance + level**2 * of_rows)
            found.append(placed(tree, excess, z * error, asked.space.values))
        start, step = asked.line
        middle, low, high = start + step * np.array(found).T
        results = dict(zip(RESULTS, (middle, (high - low + step) / (2 * z), low, high), strict=True))
        table = pd.DataFrame(asked.dressed(results), index=pd.Index(levels, name="q"))
        return with_facts(table, told) if np.ndim(q) else with_facts(table.iloc[0].rename(column), told)
