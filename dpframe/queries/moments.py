"""Questions about the second moments of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.errors import ParameterError, is_one_of, name_list
from dpframe.estimate.base import column_names
from dpframe.queries.base import Asking, Paid, facts_of, with_facts
from dpframe.queries.columns import QueryColumn, crossed, normal
from dpframe.queries.values import Answered, back_matrix, moment_matrices, unit_moments
from dpframe.totals.answers import Portion
from dpframe.totals.questions import ProductSums
from dpframe.totals.wishart import WishartNoise

WISHART = "wishart"

_LARGEST_BOUND = 1e70
"""Largest bound of a column whose products are added up: their squares are floats."""


class MomentQueries(Asking):
    """Second moments and covariances; see `Queries`."""

    def second_moments(
        self,
        columns: Sequence[str],
        *,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
    ) -> pd.DataFrame:
        """Return the means of the products of every two numeric columns, each with itself too.

        Sums of values and of products are measured about the middle of the bounds, where they are least sensitive: with
        values in [−r, r] and [−s, s] there, a replaced row moves a product's sum by 2rs, a square's by r² and a value's
        by 2r. Each sum has a part of the share. These are the numbers of `covariance`, without the means subtracted.

        ``mechanism="wishart"`` adds the moments of random normal rows instead (`dpframe.totals.wishart`): the estimate
        is positive semidefinite always, and too large on average, as by a ridge, which its interval leaves out. It is
        drawn in floats, outside the promise of exact sampling. Of five columns or more it errs as gaussian noise does,
        of one 1.3 times as much (half of (1, 1e-6)).

        Parameters
        ----------
        columns
            Columns of numbers or booleans, whose spaces hold no nulls.
        where
            Conditions on rows, as for `count`; how many rows meet them is counted with a part of the share.
        share, mechanism
            See the class.

        Returns
        -------
        DataFrame with the columns as rows, and for each of ``estimate, std_error, lower, upper`` as columns.

        Raises
        ------
        ParameterError
            For a column without a space, of no numbers, or with nulls.
        BudgetExceeded
            If less than the share is left.
        """
        if is_one_of(mechanism, [WISHART]):
            return self._wishart_moments(columns, where, share)
        return self._moment_matrix(columns, where, share, mechanism, "second_moments", psd=False)

    def _wishart_moments(self, columns: Sequence[str], where: Mapping[str, Any] | None, share: float) -> pd.DataFrame:
        if where is not None or self.unit.added:
            raise ParameterError(
                "wishart noise is for all rows, whose number is public; leave where out and replace rows, or take "
                'mechanism="gaussian"'
            )
        names, query_columns, question, _ = self._product_sums(columns, "second_moments", None)
        # Every row gets a leading 1, whose products with the values are their sums.
        size = len(names) + 1

        def fit_noise(portion: Portion) -> tuple[str, WishartNoise, Budget]:
            return WISHART, WishartNoise.of(size, float(size), portion, self.contributions), portion.budget

        best_fit = min(
            (fit_noise(portion) for portion in self._allowed_portions(share)),
            key=lambda candidate: candidate[1].degrees,
        )
        _, noise, budget = best_fit

        def draw_moments(receipt: Paid[tuple[str, WishartNoise, Budget]]) -> pd.DataFrame:
            back_transform, moments = back_matrix(question, query_columns), unit_moments(question, self.n)
            estimate = (
                back_transform
                @ (moments + noise.sample(receipt.stream.column("wishart", "measure")))
                @ back_transform.T
                / self.n
            )
            scale = back_transform @ noise.scale @ back_transform.T
            # T W Tᵀ is Wishart with T V Tᵀ: mean k·S, variance k·(Sᵢᵢ·Sⱼⱼ + Sᵢⱼ²).
            error = np.sqrt(noise.degrees * (np.outer(np.diag(scale), np.diag(scale)) + scale**2)) / self.n
            results = normal(estimate - noise.degrees * scale / self.n, error, self.confidence_level)
            # Only the estimate with the noise's mean is positive semidefinite; intervals lie about the unbiased value.
            results["estimate"] = estimate
            table = crossed({key: best_fit[1:, 1:] for key, best_fit in results.items()}, names, names)
            return with_facts(table, Answered((), (), facts_of(WISHART, receipt.share, budget, self.unit)))

        return self._run_answer_job(question.add, query_columns, share, "second_moments", best_fit, draw_moments)

    def _product_sums(
        self, columns: Sequence[str], kind: str, where: Mapping[str, Any] | None
    ) -> tuple[list[str], list[QueryColumn], ProductSums, list[QueryColumn]]:
        """Return the columns' names, the columns, the sums to measure, and all columns to read for these sums."""
        names = column_names(columns, "columns")
        query_columns = [self._column(name).numeric(kind, times=False) for name in names]
        if not names or len(set(names)) < len(names):
            raise ParameterError("columns must name one column or more, each once")
        special = [column.name for column in query_columns if column.space.special_labels]
        if special:
            raise ParameterError(
                f"column {name_list(special[:1])} has special values, which have no products; make them null and "
                "declare its space without special, and they count as the middle of its bounds"
            )
        nullable = [column.name for column in query_columns if column.space.has_null]
        if nullable:
            raise ParameterError(
                f"column {name_list(nullable[:1])} may hold nulls, which have no products; declare its space without "
                "Nullable, and nulls count as the middle of its bounds"
            )
        for column in query_columns:
            start, step = column.line
            if max(abs(start), abs(start + step * column.space.values)) > _LARGEST_BOUND:
                raise ParameterError(
                    f"column {name_list([column.name])} has bounds too wide to be squared; declare bounds within "
                    f"±{_LARGEST_BOUND:g}"
                )
        read_columns, conditions = self._conditions(where, *query_columns)
        question = ProductSums(tuple(names), tuple(column.space for column in query_columns), self.unit, conditions)
        return names, query_columns, question, read_columns

    def covariance(
        self,
        columns: Sequence[str],
        *,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
        psd: bool = True,
    ) -> pd.DataFrame:
        """Return the covariances of every two numeric columns (over n), the nearest that a table can have.

        Parameters
        ----------
        columns
            Columns of numbers or booleans, whose spaces hold no nulls.
        where
            Conditions on rows, as for `count`; how many rows meet them is counted with a part of the share.
        share, mechanism
            See the class; see `second_moments` for the measured sums.
        psd
            Project the matrix onto those without negative eigenvalues. Errors and intervals are those before.

        Returns
        -------
        DataFrame with the columns as rows, and for each of ``estimate, std_error, lower, upper`` as columns.

        Raises
        ------
        ParameterError
            For a column without a space, of no numbers, or with nulls.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> people = pd.DataFrame({"a": [0, 1] * 5_000, "b": [0, 2] * 5_000})
        >>> q = dpf.Queries(people, 1.0, delta=1e-6, spaces={"a": (0, 1), "b": (0, 2)})
        >>> q.covariance(["a", "b"], share=1)["estimate"].to_numpy().shape
        (2, 2)
        """
        if not isinstance(psd, bool):
            raise ParameterError("psd must be True or False")
        return self._moment_matrix(columns, where, share, mechanism, "covariance", psd)

    def _moment_matrix(
        self,
        columns: Sequence[str],
        where: Mapping[str, Any] | None,
        share: float,
        mechanism: str | None,
        kind: str,
        psd: bool,
    ) -> pd.DataFrame:
        names, query_columns, question, read_columns = self._product_sums(columns, kind, where)
        noisy_answer = self._answer(question, read_columns, share, mechanism, kind)
        rows = None if question.partial else self.n
        estimate, error = moment_matrices(question, query_columns, noisy_answer, rows, central=kind == "covariance")
        results = normal(estimate, error, self.confidence_level)
        # The projection changes estimates only: errors describe the noise before it.
        if psd:
            values, vectors = np.linalg.eigh(estimate)
            results["estimate"] = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return with_facts(crossed(results, names, names), noisy_answer)
