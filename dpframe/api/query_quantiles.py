"""Questions about quantiles: from noisy cumulative counts, or as cells that are chosen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.api.asked import Asked
from dpframe.api.asking import AUTO, Asking, facts_of, fitted_noises, with_facts
from dpframe.api.query_answers import Answered, checked_levels, placed, squared_z
from dpframe.api.query_budget import check_share
from dpframe.arrays import FloatArray
from dpframe.errors import ParameterError
from dpframe.estimate.base import RESULTS
from dpframe.totals.answers import Portion
from dpframe.totals.questions import Tree
from dpframe.totals.ranks import Ranks, level_of
from dpframe.totals.selection import SELECTORS, Scores, Selector, best_selector, whole_cost

_PARTS = (2.0, 1.0, 1.0)
"""How a level's portion is divided between the quantile and the two ends of its interval."""


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

        The one of two ways with less expected error is taken; that choice is public.

        *A choice* (``"exponential"``, ``"noisy_max"``): which of up to 65,536 cells has the rank, chosen by how far
        the rank is from a cell's (Smith 2011), which one row moves by 1; half of a level's part of the share is for
        that, and a quarter for each end of the interval. It is taken for few levels. Groups cost no more than one.

        *Cumulative counts* (``"geometric"``, ``"gaussian"``, without ``by``): counts of up to 4,096 cells, of groups of
        16 of them and of 16 groups are measured, each table with a part of the share and sensitivity 2 (√2); a
        cumulative count is a sum of at most 15 of each. All levels cost as much as one.

        An interval has the cells that the noise does not exclude, and holds the quantile with the confidence level at
        least.

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
            For a column without a space or of no numbers, a level outside (0, 1), or noise on counts with ``by``.
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
        ranks = Ranks(column, asked.space, self.unit, groups)
        tree = Tree(column, asked.space, self.unit, groups.conditions)
        if by is not None and mechanism is not None and mechanism not in SELECTORS:
            raise ParameterError(
                f"mechanism must be one of {', '.join(SELECTORS)} with by, or None for the one that errs less"
            )
        portion = self._spending.total.portion(check_share(share))
        chosen = (
            by is not None
            or mechanism in SELECTORS
            or (mechanism is None and self._errs_less(ranks, tree, levels, portion))
        )
        if chosen:
            return self._chosen(ranks, read, asked, levels, np.ndim(q) > 0, labels, share, mechanism)
        found, told = self._from_counts(tree, read, asked, levels, share, mechanism)
        table = self._presented(asked, found, pd.Index(levels, name="q"))
        return with_facts(table, told) if np.ndim(q) else with_facts(table.iloc[0].rename(column), told)

    def _presented(self, asked: Asked, found: FloatArray, index: pd.Index[Any]) -> pd.DataFrame:
        """Return a table of middles, first and last codes, shape (answers, 3)."""
        start, step = asked.line
        middle, low, high = start + step * found.T
        error = (high - low + step) / (2 * math.sqrt(squared_z(self.confidence_level)))
        results = dict(zip(RESULTS, (middle, error, low, high), strict=True))
        return pd.DataFrame(asked.dressed(results), index=index)

    def _errs_less(self, ranks: Ranks, tree: Tree, levels: FloatArray, portion: Portion) -> bool:
        """Return, from public facts, whether choices err less than counts, in ranks and in widths of intervals."""
        try:
            selectors = _selectors(ranks, levels, portion, None)[1]
        except ParameterError:
            return False
        unit = [level_of(level).denominator for level in levels]
        errors = [math.sqrt(2) / (one[0].rate * b) for one, b in zip(selectors, unit, strict=True)]
        reaches = [self._shift(ranks, one[1]) / b for one, b in zip(selectors, unit, strict=True)]
        _, noises = fitted_noises(tree, portion, AUTO)
        of_counts = math.sqrt(tree.variances([noise.variance for noise in noises]).max())
        reach = math.sqrt(squared_z(self.confidence_level)) * of_counts
        return max(errors) < of_counts and max(reaches) < 1.5 * reach

    def _shift(self, ranks: Ranks, selector: Selector) -> int:
        """Return how far a choice's cell may lie from its goal, in ranks' units, with half of what is left of 1."""
        cells = -(-ranks.cells // ranks.merged)
        return math.ceil(selector.shortfall(cells + 2, (1 + self.confidence_level) / 2))

    def _chosen(
        self,
        ranks: Ranks,
        read: Sequence[Asked],
        asked: Asked,
        levels: FloatArray,
        several: bool,
        labels: pd.Index[Any] | None,
        share: float,
        mechanism: str | None,
    ) -> pd.Series[Any] | pd.DataFrame:
        def fit(portion: Portion) -> tuple[str, list[list[Selector]], Budget]:
            name, selectors = _selectors(ranks, levels, portion, mechanism)
            return name, selectors, whole_cost([s for one in selectors for s in one], portion)

        part, (name, selectors, budget), stream = self._paid(ranks.add, read, share, "quantile", fit)
        places = np.empty((ranks.groups.count, len(levels), 3), dtype=np.int64)
        for group, at, end in np.ndindex(*places.shape):
            selector = selectors[at][end]
            shift = (0, -self._shift(ranks, selector) - 1, self._shift(ranks, selector))[end]
            plane = stream.column(json.dumps(["quantile", group, at, end]), "measure")
            scores = ranks.scores(group, level_of(float(levels[at])), shift, ranks.merged if end else 1)
            places[group, at, end] = selector.choose(scores, None, plane) - 1
        table = self._presented(asked, _codes(ranks, places), _index(labels, levels, several))
        table.attrs.update(facts_of(name, part, budget, self.unit))
        return table if several or labels is not None else table.iloc[0].rename(asked.name)

    def _from_counts(
        self, tree: Tree, read: Sequence[Asked], asked: Asked, levels: FloatArray, share: float, mechanism: str | None
    ) -> tuple[FloatArray, Answered]:
        told = self._answer(tree, read, share, mechanism, "quantile")
        tables, spread = [values.astype(np.int64) for values in told.values], [n.variance for n in told.noises]
        out = float(tables[0][-1]) if tree.partial else 0.0
        if tree.partial:
            tables[0] = tables[0][:-1]
        if self.unit.added:
            rows, of_rows = float(tables[0].sum()), spread[0] * len(tables[0])
        else:
            rows, of_rows = self.n - out, spread[0] * tree.partial
        below, variance = tree.cumulative(tables) - 0.0, tree.variances(spread)
        z = math.sqrt(squared_z(self.confidence_level))
        found = []
        for level in levels:
            excess, error = below - level * rows, np.sqrt(variance + level**2 * of_rows)
            found.append(placed(tree, excess, z * error, asked.space.values))
        return np.array(found), told


def _selectors(
    ranks: Ranks, levels: FloatArray, portion: Portion, mechanism: str | None
) -> tuple[str, list[list[Selector]]]:
    """Return the way to choose, and for each level how the quantile and the ends of its interval are chosen."""
    moved: list[Scores] = [ranks.moved(level_of(level)) for level in levels]
    parts = portion.split(_PARTS * len(levels))
    name = mechanism or best_selector(moved[0], parts[0])
    each = [parts[3 * at : 3 * at + 3] for at in range(len(levels))]
    return name, [[SELECTORS[name](one, part) for part in three] for one, three in zip(moved, each, strict=True)]


def _codes(ranks: Ranks, places: Any) -> FloatArray:
    """Return middles, first and last codes of chosen cells, shape (answers, 3); cells of no rows are the ends."""
    fine, coarse = ranks.starts(1), ranks.starts(ranks.merged)
    middle, one, other = np.clip(places.reshape(-1, 3).T, 0, [[len(fine) - 2], *2 * [[len(coarse) - 2]]])
    low = np.minimum(coarse[one], coarse[other])
    high = np.maximum(coarse[one + 1], coarse[other + 1]) - 1
    return np.column_stack([np.clip((fine[middle] + fine[middle + 1] - 1) / 2, low, high), low, high])


def _index(labels: pd.Index[Any] | None, levels: FloatArray, several: bool) -> pd.Index[Any]:
    if labels is None:
        return pd.Index(levels, name="q")
    return pd.MultiIndex.from_product([labels, levels], names=[labels.name, "q"]) if several else labels
