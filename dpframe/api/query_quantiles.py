"""Questions about quantiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.api.asked import QueryColumn
from dpframe.api.asking import Asking, Paid, check_mechanism, facts_of
from dpframe.api.quantile_ways import SEARCHING, Choices, Counts, Search, best_way
from dpframe.api.query_answers import checked_levels, squared_z
from dpframe.errors import ParameterError
from dpframe.estimate.results import RESULTS
from dpframe.spaces.arrays import FloatArray
from dpframe.totals.answers import MECHANISMS
from dpframe.totals.questions import CellTree
from dpframe.totals.ranks import RankCounts
from dpframe.totals.selection import SELECTORS


class QuantileQueries(Asking):
    """Quantiles; see `Queries`."""

    def quantile(
        self,
        column: str,
        q: float | Sequence[float] = 0.5,
        *,
        by: str | None = None,
        where: Mapping[str, Any] | None = None,
        share: float,
        mechanism: str | None = None,
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return quantiles of a numeric column's values, on the grid of its space.

        The one of three ways with the least product of expected error and width is taken; that choice is public.

        *A search* (``"gaussian"``): rows are counted below one place after another of up to 65,536, each where the
        noisy counts before it leave most open, and then about the ends of the interval. It is taken for few levels
        where δ is above 0 and budgets are added up in Gaussian accounting. Groups cost no more than one.

        *A choice* (``"exponential"``, ``"noisy_max"``): which of up to 65,536 cells has the rank, chosen by how far
        the rank is from a cell's (Smith 2011), which one row moves by 1; three quarters of a level's part of the share
        are for that, and one for how far the interval goes to both sides, chosen by the exponential mechanism. It is
        taken for few levels without δ, or where all of the budget is for this answer. Groups cost no more than one.

        *Cumulative counts* (``"geometric"``, ``"gaussian"``, without ``by``): counts of up to 4,096 cells, of groups of
        16 of them and of 16 groups are measured, each table with a part of the share and sensitivity 2 (√2); a
        cumulative count is a sum of at most 15 of each. All levels cost as much as one.

        An interval has the cells that the noise does not exclude, and holds the quantile with the confidence level at
        least, for any rows: it is three to five times as wide as the error by itself would ask for where it is searched
        for, and four to twelve times where it is chosen, far more if it reaches the end of a long tail of few rows.

        Parameters
        ----------
        column
            A column of numbers or times.
        q
            A level in (0, 1), or a list of them.
        by, where
            Groups of rows and conditions on rows; see `Queries.sum`.
        share, mechanism
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; of a list, or with ``by``, a DataFrame with a row per level or
        group, or for each of both.

        Raises
        ------
        ParameterError
            For a column without a space or of no numbers, a level outside (0, 1), or a mechanism that takes no ``by``.
        BudgetExceeded
            If less than the share is left.

        Examples
        --------
        >>> import dpframe as dpf
        >>> people = dpf.datasets.make_census(20_000, columns=["age", "sex"])
        >>> q = dpf.Queries(people, 1.0, {"age": (0, 120), "sex": ["F", "M"]})
        >>> answer = q.quantile("age", [0.25, 0.5], share=0.5)
        >>> bool((answer["estimate"] - people["age"].quantile([0.25, 0.5])).abs().max() < 3)
        True
        >>> medians = q.quantile("age", by="sex", share=0.5)
        >>> bool((medians["estimate"] - people.groupby("sex", observed=True)["age"].median()).abs().max() < 2)
        True
        """
        asked, levels = self._column(column).numeric("quantile"), checked_levels(q)
        read, groups, labels = self._groups(by, where, asked)
        given = RankCounts(column, asked.space, self.unit, groups), levels, self.confidence_level, mechanism
        public_rows = None if self.unit.added else self.n
        counts = Counts(*given, CellTree(column, asked.space, self.unit, groups.conditions), public_rows)
        ways = [way for way in (Search(*given), Choices(*given), counts) if by is None or way.groups]
        check_mechanism(mechanism, [*MECHANISMS, *SELECTORS])
        usable = [way for way in ways if way.takes(mechanism)]
        if by is not None and not usable:
            known = ", ".join([*SELECTORS, SEARCHING])
            raise ParameterError(f"mechanism must be one of {known} with by, or None for the one that errs less")
        way, portion = best_way(usable, self._portions(share))
        several = np.ndim(q) > 0

        def drawn(paid: Paid[tuple[str, Any, Budget]]) -> pd.DataFrame:
            name, noise, budget = paid.fitted
            table = self._presented(asked, way.places(noise, paid.stream), _index(labels, levels, several))
            table.attrs.update(facts_of(name, paid.share, budget, self.unit) | asked.facts)
            return table

        table = self._drawn(way.add, read, share, "quantile", lambda _: way.fit(portion), drawn)
        return table if several or labels is not None else table.iloc[0].rename(column)

    def _presented(self, asked: QueryColumn, found: FloatArray, index: pd.Index[Any]) -> pd.DataFrame:
        """Return a table of middles, first and last codes, shape (answers, 3)."""
        start, step = asked.line
        middle, low, high = start + step * found.T
        error = (high - low + step) / (2 * math.sqrt(squared_z(self.confidence_level)))
        results = dict(zip(RESULTS, (middle, error, low, high), strict=True))
        return pd.DataFrame(asked.dressed(results), index=index)


def _index(labels: pd.Index[Any] | None, levels: FloatArray, several: bool) -> pd.Index[Any]:
    if labels is None:
        return pd.Index(levels, name="q")
    return pd.MultiIndex.from_product([labels, levels], names=[labels.name, "q"]) if several else labels
