"""Questions about quantiles."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dpframe.accounting.budget import Budget
from dpframe.errors import ParameterError, is_one_of
from dpframe.estimate.number_estimates import checked_levels
from dpframe.estimate.results import RESULTS
from dpframe.noise.keystream import ColumnStream, Keystream
from dpframe.queries.base import Asking, Paid, check_mechanism, facts_of, fitted_noises, named_mechanisms
from dpframe.queries.values import placed, squared_z
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.totals.answers import MECHANISMS, Noise, Portion, gaussian
from dpframe.totals.counts import Codes
from dpframe.totals.questions import CellTree
from dpframe.totals.ranks import (
    LAST_READING_ERROR_SD,
    LAST_READING_HALF_WIDTH_SD,
    RankCounts,
    distance_weights,
    distances,
    level_of,
    search_quantiles,
    search_shares,
)
from dpframe.totals.selection import SELECTORS, ExponentialSelector, Selector, best_selector, whole_cost

_CHOICE_WEIGHTS = (3.0, 1.0)
"""Weights by which a level's portion is divided between the choice of its cell and of its interval."""

_HALF_WIDTH_MARGINS = 1.2
"""Half width of a chosen interval in rows that are evenly spread, in parts of the margin that it is to have."""

SEARCHING = "gaussian"
"""The noise of a search: noise of other laws adds up too fast over so many readings."""


@dataclass(frozen=True)
class QuantileWay(ABC):
    """A way to answer levels of quantiles.

    ``ranks``: the rows' counts by group and cell. ``levels``: the levels. ``confidence``: the probability with which an
    interval holds its quantile. ``mechanism``: the noise, or None for the one that errs less.
    """

    ranks: RankCounts
    levels: FloatArray
    confidence: float
    mechanism: str | None

    groups: ClassVar[bool] = True
    """Whether it answers for groups of rows."""

    @classmethod
    def takes(cls, mechanism: str | None) -> bool:
        """Return whether it has a noise of this name."""
        return mechanism is None

    @abstractmethod
    def fit(self, portion: Portion) -> tuple[str, Any, Budget]:
        """Return the noise of a portion: its name, the noise, and the noise's own cost; or raise `ParameterError`."""

    @abstractmethod
    def _errors(self, noise: Any) -> tuple[float, float]:
        """Return the largest error to expect, and half the width of an interval, in rows."""

    def unsure(self, portion: Portion) -> float:
        """Return expected error times half-width, or infinity if the portion is too small: from public facts only."""
        try:
            return math.prod(self._errors(self.fit(portion)[1]))
        except ParameterError:
            return math.inf

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows."""
        self.ranks.add(codes)

    @abstractmethod
    def places(self, noise: Any, stream: Keystream) -> FloatArray:
        """Return middles, first and last codes, by group and level, shape (answers, 3)."""

    def _codes_of_cells(self, cells: Any, first: Any, last: Any) -> FloatArray:
        """Return middles, first and last codes of cells."""
        starts = self.ranks.starts
        low, high = starts[first], starts[np.asarray(last) + 1] - 1
        return np.column_stack([np.clip((starts[cells] + starts[cells + 1] - 1) / 2, low, high), low, high])


@dataclass(frozen=True)
class Choices(QuantileWay):
    """A cell of the rank, and how far its interval goes, chosen by scores."""

    @classmethod
    def takes(cls, mechanism: str | None) -> bool:
        """Return whether it is a selector."""
        return mechanism is None or is_one_of(mechanism, SELECTORS)

    def fit(self, portion: Portion) -> tuple[str, list[list[Selector]], Budget]:
        """Return the mechanism, and for each level the selectors of the quantile and of its interval.

        The latter has weights, which only the exponential mechanism takes.
        """
        score_bounds = [self.ranks.score_sensitivity(level_of(level)) for level in self.levels]
        parts = portion.split(_CHOICE_WEIGHTS * len(score_bounds))
        name = self.mechanism or best_selector(score_bounds[0], parts[0])
        selectors: list[list[Selector]] = [
            [SELECTORS[name](scores, parts[2 * i]), ExponentialSelector.of(scores, parts[2 * i + 1])]
            for i, scores in enumerate(score_bounds)
        ]
        return name, selectors, whole_cost([selector for scores in selectors for selector in scores], portion)

    def _errors(self, noise: Sequence[Sequence[Selector]]) -> tuple[float, float]:
        units = [level_of(level).denominator for level in self.levels]
        errors = [
            math.sqrt(2) / (level_selectors[0].rate * unit) for level_selectors, unit in zip(noise, units, strict=True)
        ]
        half_widths = [
            _HALF_WIDTH_MARGINS * self._interval_margin(level_selectors[1]) / unit
            for level_selectors, unit in zip(noise, units, strict=True)
        ]
        return max(errors), max(half_widths)

    def _interval_margin(self, selector: Selector) -> int:
        """Return the target margin of an interval, for which the chosen margin is above 0 with the confidence."""
        _, weight_before = distance_weights(self.ranks.cells)
        return math.ceil(selector.shortfall(weight_before, self.confidence))

    def places(self, noise: Sequence[Sequence[Selector]], stream: Keystream) -> FloatArray:
        """Choose for each group and level: the cell first, and then the interval about it."""
        cells = [
            self._choose_cells(group, level_index, selectors, stream)
            for group in range(self.ranks.groups.count)
            for level_index, selectors in enumerate(noise)
        ]
        return self._codes_of_cells(*np.array(cells).T)

    def _choose_cells(
        self, group: int, level_index: int, selectors: Sequence[Selector], stream: Keystream
    ) -> tuple[int, int, int]:
        level, cells = level_of(float(self.levels[level_index])), self.ranks.cells

        def choice_stream(choice: int) -> ColumnStream:
            return stream.column(json.dumps(["quantile", group, level_index, choice]), "measure")

        # Cells of no rows are the ends.
        quantile_cell = selectors[0].choose(self.ranks.scores(group, level), None, choice_stream(0)) - 1
        cell = min(max(quantile_cell, 0), cells - 1)
        # A row more: an interpolated quantile lies up to a row from the rank.
        margin = self._interval_margin(selectors[1]) + level.denominator
        scores, (weights, _) = self.ranks.margin_scores(group, level, cell, margin), distance_weights(cells)
        half_width = int(distances(cells)[selectors[1].choose(scores, weights, choice_stream(1))])
        return cell, max(cell - half_width, 0), min(cell + half_width, cells - 1)


@dataclass(frozen=True)
class Search(QuantileWay):
    """Counts at one place after another; see `dpframe.totals.ranks`."""

    @classmethod
    def takes(cls, mechanism: str | None) -> bool:
        """Return whether it is Gaussian noise."""
        return mechanism is None or is_one_of(mechanism, [SEARCHING])

    def fit(self, portion: Portion) -> tuple[str, list[list[Noise]], Budget]:
        """Return the noise of each level's readings."""
        if self.ranks.cells == 1:
            raise ParameterError("a grid of one value has no quantiles to look for; take exponential")
        shares = search_shares(self.ranks.cells)
        parts, count = portion.split(shares * len(self.levels)), len(shares)
        excess_bounds = [self.ranks.excess_sensitivity(level_of(level)) for level in self.levels]
        level_noises: list[list[Noise]] = [
            [gaussian(numbers, part) for part in parts[count * level_index : count * (level_index + 1)]]
            for level_index, numbers in enumerate(excess_bounds)
        ]
        return SEARCHING, level_noises, portion.spent_by([noise for noises in level_noises for noise in noises])

    def _errors(self, noise: Sequence[Sequence[Noise]]) -> tuple[float, float]:
        units = [level_of(level).denominator for level in self.levels]
        sigma = max(
            math.sqrt(level_noises[-1].variance) / unit for level_noises, unit in zip(noise, units, strict=True)
        )
        return LAST_READING_ERROR_SD * sigma, LAST_READING_HALF_WIDTH_SD * sigma

    def places(self, noise: Sequence[Sequence[Noise]], stream: Keystream) -> FloatArray:
        """Search for each level, in all groups at once."""
        cells = np.stack(
            [self._search_cells(level_index, noises, stream) for level_index, noises in enumerate(noise)], axis=1
        )
        return self._codes_of_cells(*cells.reshape(-1, 3).T)

    def _search_cells(self, level_index: int, noises: Sequence[Noise], stream: Keystream) -> IntArray:
        """Return cells of a level's quantiles, and of their intervals' ends, by group."""
        level = level_of(float(self.levels[level_index]))

        def excess(edges: IntArray) -> list[int]:
            excess_counts: list[int] = self.ranks.excess(level, edges).tolist()
            return excess_counts

        def reading_stream(reading: int) -> ColumnStream:
            return stream.column(json.dumps(["quantile", level_index, reading]), "measure")

        return search_quantiles(
            excess, self.ranks.groups.count, self.ranks.cells, noises, self.confidence, reading_stream
        )


@dataclass(frozen=True)
class Counts(QuantileWay):
    """Cumulative counts of a tree's cells, of all levels at once; ``rows`` is how many rows there are, if public."""

    tree: CellTree
    rows: int | None

    groups: ClassVar[bool] = False

    @classmethod
    def takes(cls, mechanism: str | None) -> bool:
        """Return whether it is noise on counts."""
        return not is_one_of(mechanism, SELECTORS)

    def fit(self, portion: Portion) -> tuple[str, tuple[Noise, ...], Budget]:
        """Return the noise of the tree's levels."""
        name, noises = fitted_noises(self.tree, portion, named_mechanisms(self.mechanism))
        return name, noises, portion.spent_by(noises)

    def _errors(self, noise: Sequence[Noise]) -> tuple[float, float]:
        error = math.sqrt(self.tree.variances([level_noise.variance for level_noise in noise]).max())
        return error, math.sqrt(squared_z(self.confidence)) * error

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows."""
        self.tree.add(codes)

    def places(self, noise: Sequence[Noise], stream: Keystream) -> FloatArray:
        """Return middles, first and last codes at which the noisy counts pass the levels."""
        tree, variances = self.tree, [level_noise.variance for level_noise in noise]
        tables = [
            np.array(level_noise.add(totals, stream.column(json.dumps(["quantile", i]), "measure")), dtype=np.int64)
            for i, (totals, level_noise) in enumerate(zip(tree.totals, noise, strict=True))
        ]
        rows_outside = float(tables[0][-1]) if tree.partial else 0.0
        if tree.partial:
            tables[0] = tables[0][:-1]
        if self.rows is None:
            rows, rows_variance = float(tables[0].sum()), variances[0] * len(tables[0])
        else:
            rows, rows_variance = self.rows - rows_outside, variances[0] * tree.partial
        counts_below, variance = tree.cumulative(tables) - 0.0, tree.variances(variances)
        z = math.sqrt(squared_z(self.confidence))
        positions = []
        for level in self.levels:
            excess, error = counts_below - level * rows, np.sqrt(variance + level**2 * rows_variance)
            positions.append(placed(tree, excess, z * error, self.ranks.space.values))
        return np.array(positions)


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
        >>> q.quantile("age", [0.5], share=0.5)["estimate"].round(-1).to_dict(), int(people["age"].median())
        ({0.5: 50.0}, 52)
        >>> q.quantile("age", by="sex", share=0.5)["estimate"].round(-1).to_dict()
        {'F': 50.0, 'M': 50.0}
        """
        query_column, levels = self._column(column).numeric("quantile"), checked_levels(q, 1)
        read_columns, groups, labels = self._row_groups(by, where, query_column)
        common_arguments = (
            RankCounts(column, query_column.space, self.unit, groups),
            levels,
            self.confidence_level,
            mechanism,
        )
        public_rows = None if self.unit.added else self.n
        counts = Counts(
            *common_arguments, CellTree(column, query_column.space, self.unit, groups.conditions), public_rows
        )
        ways = [
            way for way in (Search(*common_arguments), Choices(*common_arguments), counts) if by is None or way.groups
        ]
        check_mechanism(mechanism, [*MECHANISMS, *SELECTORS])
        usable_ways = [way for way in ways if way.takes(mechanism)]
        if by is not None and not usable_ways:
            mechanism_list = ", ".join([*SELECTORS, SEARCHING])
            raise ParameterError(
                f"mechanism must be one of {mechanism_list} with by, or None for the one that errs less"
            )
        # `unsure` reads public facts only, so that the choice of a way costs nothing.
        way, portion = min(
            product(usable_ways, self._allowed_portions(share)), key=lambda pair: pair[0].unsure(pair[1])
        )
        has_several_levels = np.ndim(q) > 0

        def draw_quantiles(receipt: Paid[tuple[str, Any, Budget]]) -> pd.DataFrame:
            name, noise, budget = receipt.fitted
            start, step = query_column.line
            middle, low, high = start + step * way.places(noise, receipt.stream).T
            error = (high - low + step) / (2 * math.sqrt(squared_z(self.confidence_level)))
            results = dict(zip(RESULTS, (middle, error, low, high), strict=True))
            index = pd.Index(levels, name="q") if labels is None else labels
            if labels is not None and has_several_levels:
                index = pd.MultiIndex.from_product([labels, levels], names=[labels.name, "q"])
            table = pd.DataFrame(query_column.dressed(results), index=index)
            table.attrs.update(facts_of(name, receipt.share, budget, self.unit) | query_column.facts)
            return table

        table = self._run_answer_job(way.add, read_columns, share, "quantile", way.fit(portion), draw_quantiles)
        return table if has_several_levels or labels is not None else table.iloc[0].rename(column)
