"""Indicator columns of which one is true (`OneOf`), measured and fitted as one column with a value for each of them.

One row that is replaced moves two cells of one table, rather than two cells of the table of every indicator. Pairs of
indicators need no tables: the rule and the shares of the values determine them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.plan.measures import Measure
from dpframe.plan.measuring import Workload
from dpframe.plan.one_of import BoundIndicators, OneOf
from dpframe.plan.rule import Rule
from dpframe.spaces import Categorical, Space
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.base import forwarded
from dpframe.spaces.cells import cell_count

_NO_COLUMN = "none of them"


@dataclass(frozen=True, eq=False)
class Indicators:
    """Indicator columns, and the column of which indicator is true.

    ``name`` is the name of that column in measured tables; ``columns`` are the indicators, with their codes of true.
    """

    name: str
    rule: BoundIndicators

    columns: ClassVar[tuple[str, ...]] = forwarded("rule.names")

    @cached_property
    def space(self) -> Space:
        """The values: the name of each indicator, and one for rows without a true one if the rule allows them."""
        label = _NO_COLUMN
        while label in self.columns:
            label += " "
        return Categorical((*self.columns, *[label] * self.rule.at_most))

    def codes(self, codes: Mapping[str, npt.NDArray[Any]]) -> IntArray:
        """Return the values' codes of rows that keep the rule."""
        return self.rule.states(codes)

    def split(self, codes: IntArray) -> dict[str, IntArray]:
        """Return the codes of the indicators of rows."""
        return self.rule.codes_of(codes)

    def onto(self, names: Sequence[str]) -> FloatArray:
        """Return the matrix from values to the joint codes of some indicators, shape (2, …, 2, values)."""
        values = np.arange(self.space.size)
        codes = self.split(values)
        matrix = np.zeros([2] * len(names) + [len(values)])
        matrix[(*(codes[name] for name in names), values)] = 1.0
        return matrix


def indicators_of(rules: Sequence[Rule], spaces: Mapping[str, Space]) -> tuple[Indicators, ...]:
    """Return the indicators of every rule whose columns are in no other rule.

    Rules that share a column make rows that keep all of them, but their columns stay columns of their own.
    """
    groups = []
    for place, rule in enumerate(rules):
        if isinstance(rule, OneOf) and set(rule.columns) <= set(spaces):
            other_columns = {name for i, other in enumerate(rules) if i != place for name in other.bind(spaces).names}
            name = f"one of {rule.columns[0]} … {rule.columns[-1]}"
            bound_rule = rule.bind(spaces)
            if other_columns.isdisjoint(rule.columns) and name not in spaces:
                assert isinstance(bound_rule, BoundIndicators)
                groups.append(Indicators(name, bound_rule))
    return tuple(groups)


def table_spaces(groups: Sequence[Indicators], spaces: Mapping[str, Space]) -> dict[str, Space]:
    """Return the spaces of the columns that tables count: the value column in place of each group of indicators."""
    merged_spaces: dict[str, Space] = {}
    homes = {name: group for group in groups for name in group.columns}
    for name, space in spaces.items():
        group = homes.get(name)
        merged_spaces[name if group is None else group.name] = space if group is None else group.space
    return merged_spaces


def merged_workload(workload: Workload, groups: Sequence[Indicators]) -> Workload:
    """Return requested tables with the value column in place of each indicator."""
    homes = {name: group.name for group in groups for name in group.columns}

    def merge_names(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(homes.get(name, name) for name in names))

    def merge_tables(tables: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
        return tuple(dict.fromkeys(map(merge_names, tables)))

    if not groups:
        return workload
    measure, goals = workload.measure, workload.goals
    if goals is not None:
        # Of several goals for one table the strictest counts.
        strictest: dict[tuple[str, ...], float] = {}
        for names, goal in goals.items():
            strictest[merge_names(names)] = min(goal, strictest.get(merge_names(names), goal))
        goals = strictest
    return replace(
        workload,
        measure=measure if measure is None or isinstance(measure, str) else merge_tables(measure),
        goals=goals,
        added=merge_tables(workload.added),
    )


def measures_of_columns(
    measures: Sequence[Measure], groups: Sequence[Indicators], spaces: Mapping[str, Space]
) -> Iterator[Measure]:
    """Yield measures for forecasts: a table of a value column is a table of equal errors of each indicator."""
    homes = {group.name: group for group in groups}
    for measure in measures:
        merged_names = [name for name in measure.columns if name in homes]
        if not merged_names:
            yield measure
            continue
        yield from _split_measure(measure, homes[merged_names[0]], merged_names[1:], homes, spaces)


def _split_measure(
    measure: Measure,
    group: Indicators,
    other_names: Sequence[str],
    homes: Mapping[str, Indicators],
    spaces: Mapping[str, Space],
) -> Iterator[Measure]:
    """Yield the measures of each indicator of one table; tables of two groups are left out."""
    if other_names:
        return
    for name in group.columns:
        columns = tuple(name if column == group.name else column for column in measure.columns)
        # The count of true has the variance of one cell; that of two cells with a known sum is half of theirs.
        yield replace(measure, columns=columns, sigma2=2 * measure.sigma2)
        if not spaces[name].is_listed:
            # The sum of an indicator is its count of true, added up over the cells of other columns.
            cells = math.prod(cell_count(spaces[column], measure.most) for column in columns if column != name)
            yield Measure("sum", (name,), measure.sigma2 * cells)
