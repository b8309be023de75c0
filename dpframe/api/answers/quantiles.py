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
from dpframe.api.answers.asking import Asking, Paid, check_mechanism, facts_of, fitted_noises, named_mechanisms
from dpframe.api.answers.values import placed, squared_z
from dpframe.errors import ParameterError, is_one_of
from dpframe.estimate.number_estimates import checked_levels
from dpframe.estimate.results import RESULTS
from dpframe.noise.keystream import ColumnStream, Keystream
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.totals.answers import MECHANISMS, Noise, Portion, gaussian
from dpframe.totals.counts import Codes
from dpframe.totals.questions import CellTree
from dpframe.totals.ranks import (
    ERROR,
    REACH,
    RankCounts,
    distance_weights,
    distances,
    level_of,
    search_shares,
    searched,
)
from dpframe.totals.selection import SELECTORS, ExponentialSelector, Selector, best_selector, whole_cost

_PARTS = (3.0, 1.0)
"""How a level's portion is divided between a choice and that of its interval."""

_BEYOND = 1.2
"""Half width of a chosen interval in rows that are evenly spread, in parts of the margin that it is to have."""

SEARCHING = "gaussian"
"""The noise that a search has: that of other laws adds up over so many readings."""


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
        """Return the noise of a portion: its name, itself, and what it costs by itself; or raise `ParameterError`."""

    @abstractmethod
    def _errors(self, noise: Any) -> tuple[float, float]:
        """Return the largest error to expect, and half the width of an interval, in rows."""

    def unsure(self, portion: Portion) -> float:
        """Return the product of the two, or infinity where the portion is too small: from public facts only."""
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

    def _codes(self, cells: Any, first: Any, last: Any) -> FloatArray:
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
        """Return the way to choose, and for each level how the quantile and its interval are chosen.

        The latter has weights, which only the exponential mechanism takes.
        """
        moved = [self.ranks.moved(level_of(level)) for level in self.levels]
        parts = portion.split(_PARTS * len(moved))
        name = self.mechanism or best_selector(moved[0], parts[0])
        found: list[list[Selector]] = [
            [SELECTORS[name](one, parts[2 * i]), ExponentialSelector.of(one, parts[2 * i + 1])]
            for i, one in enumerate(moved)
        ]
        return name, found, whole_cost([selector for one in found for selector in one], portion)

    def _errors(self, noise: Sequence[Sequence[Selector]]) -> tuple[float, float]:
        units = [level_of(level).denominator for level in self.levels]
        errors = [math.sqrt(2) / (one[0].rate * unit) for one, unit in zip(noise, units, strict=True)]
        reaches = [_BEYOND * self._margin(one[1]) / unit for one, unit in zip(noise, units, strict=True)]
        return max(errors), max(reaches)

    def _margin(self, selector: Selector) -> int:
        """Return what the margin of an interval is to be, so that the chosen one's is above 0 with the confidence."""
        _, before = distance_weights(self.ranks.cells)
        return math.ceil(selector.shortfall(before, self.confidence))

    def places(self, noise: Sequence[Sequence[Selector]], stream: Keystream) -> FloatArray:
        """Choose for each group and level: the cell first, and then the interval about it."""
        found = [
            self._chosen(group, at, selectors, stream)
            for group in range(self.ranks.groups.count)
            for at, selectors in enumerate(noise)
        ]
        return self._codes(*np.array(found).T)

    def _chosen(self, group: int, at: int, selectors: Sequence[Selector], stream: Keystream) -> tuple[int, int, int]:
        level, cells = level_of(float(self.levels[at])), self.ranks.cells

        def plane(choice: int) -> ColumnStream:
            return stream.column(json.dumps(["quantile", group, at, choice]), "measure")

        # Cells of no rows are the ends.
        chosen = selectors[0].choose(self.ranks.scores(group, level), None, plane(0)) - 1
        cell = min(max(chosen, 0), cells - 1)
        # A row more: what is interpolated lies up to a row from the rank.
        margin = self._margin(selectors[1]) + level.denominator
        scores, (weights, _) = self.ranks.margin_scores(group, level, cell, margin), distance_weights(cells)
        away = int(distances(cells)[selectors[1].choose(scores, weights, plane(1))])
        return cell, max(cell - away, 0), min(cell + away, cells - 1)


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
        moved = [self.ranks.excess_moved(level_of(level)) for level in self.levels]
        found: list[list[Noise]] = [
            [gaussian(numbers, part) for part in parts[count * at : count * (at + 1)]]
            for at, numbers in enumerate(moved)
        ]
        return SEARCHING, found, portion.spent_by([noise for one in found for noise in one])

    def _errors(self, noise: Sequence[Sequence[Noise]]) -> tuple[float, float]:
        units = [level_of(level).denominator for level in self.levels]
        sigma = max(math.sqrt(one[-1].variance) / unit for one, unit in zip(noise, units, strict=True))
        return ERROR * sigma, REACH * sigma

    def places(self, noise: Sequence[Sequence[Noise]], stream: Keystream) -> FloatArray:
        """Search for each level, in all groups at once."""
        found = np.stack([self._found(at, noises, stream) for at, noises in enumerate(noise)], axis=1)
        return self._codes(*found.reshape(-1, 3).T)

    def _found(self, at: int, noises: Sequence[Noise], stream: Keystream) -> IntArray:
        """Return cells of a level's quantiles, and of their intervals' ends, by group."""
        level = level_of(float(self.levels[at]))

        def excess(edges: IntArray) -> list[int]:
            exact: list[int] = self.ranks.excess(level, edges).tolist()
            return exact

        def plane(reading: int) -> ColumnStream:
            return stream.column(json.dumps(["quantile", at, reading]), "measure")

        return searched(excess, self.ranks.groups.count, self.ranks.cells, noises, self.confidence, plane)


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
        error = math.sqrt(self.tree.variances([each.variance for each in noise]).max())
        return error, math.sqrt(squared_z(self.confidence)) * error

    def add(self, codes: Mapping[str, Codes]) -> None:
        """Count rows."""
        self.tree.add(codes)

    def places(self, noise: Sequence[Noise], stream: Keystream) -> FloatArray:
        """Return where the noisy counts pass the levels."""
        tree, spread = self.tree, [each.variance for each in noise]
        tables = [
            np.array(each.add(totals, stream.column(json.dumps(["quantile", i]), "measure")), dtype=np.int64)
            for i, (totals, each) in enumerate(zip(tree.totals, noise, strict=True))
        ]
        out = float(tables[0][-1]) if tree.partial else 0.0
        if tree.partial:
            tables[0] = tables[0][:-1]
        if self.rows is None:
            rows, of_rows = float(tables[0].sum()), spread[0] * len(tables[0])
        else:
            rows, of_rows = self.rows - out, spread[0] * tree.partial
        below, variance = tree.cumulative(tables) - 0.0, tree.variances(spread)
        z = math.sqrt(squared_z(self.confidence))
        found = []
        for level in self.levels:
            excess, error = below - level * rows, np.sqrt(variance + level**2 * of_rows)
            found.append(placed(tree, excess, z * error, self.ranks.space.values))
        return np.array(found)


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
        asked, levels = self._column(column).numeric("quantile"), checked_levels(q, 1)
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
        way, portion = min(product(usable, self._portions(share)), key=lambda pair: pair[0].unsure(pair[1]))
        several = np.ndim(q) > 0

        def drawn(paid: Paid[tuple[str, Any, Budget]]) -> pd.DataFrame:
            name, noise, budget = paid.fitted
            start, step = asked.line
            middle, low, high = start + step * way.places(noise, paid.stream).T
            error = (high - low + step) / (2 * math.sqrt(squared_z(self.confidence_level)))
            results = dict(zip(RESULTS, (middle, error, low, high), strict=True))
            index = pd.Index(levels, name="q") if labels is None else labels
            if labels is not None and several:
                index = pd.MultiIndex.from_product([labels, levels], names=[labels.name, "q"])
            table = pd.DataFrame(asked.dressed(results), index=index)
            table.attrs.update(facts_of(name, paid.share, budget, self.unit) | asked.facts)
            return table

        table = self._drawn(way.add, read, share, "quantile", way.fit(portion), drawn)
        return table if several or labels is not None else table.iloc[0].rename(column)
