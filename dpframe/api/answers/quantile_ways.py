"""The ways in which quantiles are answered: by choices, by a search, and by cumulative counts."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np

from dpframe.accounting.budget import Budget
from dpframe.api.answers.asking import fitted_noises, named_mechanisms
from dpframe.api.answers.values import placed, squared_z
from dpframe.errors import ParameterError, is_one_of
from dpframe.noise.keystream import ColumnStream, Keystream
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.totals.answers import Noise, Portion, gaussian
from dpframe.totals.counts import Codes
from dpframe.totals.questions import CellTree
from dpframe.totals.rank_search import ERROR, REACH, search_shares, searched
from dpframe.totals.ranks import RankCounts, distance_weights, distances, level_of
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

    Parameters
    ----------
    ranks
        The rows' counts by group and cell.
    levels
        The levels.
    confidence
        The probability with which an interval holds its quantile.
    mechanism
        The noise, or None for the one that errs less.
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
    """Counts at one place after another; see `dpframe.totals.rank_search`."""

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


def best_way(ways: Sequence[QuantileWay], portions: Sequence[Portion]) -> tuple[QuantileWay, Portion]:
    """Return the way that is least unsure, and of which portion, the first of those that are equally so."""
    return min(product(ways, portions), key=lambda pair: pair[0].unsure(pair[1]))
