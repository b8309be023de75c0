"""The first page: which columns can be used, and which are empty."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from dpframe.errors import DpframeWarning, name_list
from dpframe.estimate import Estimates
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
from dpframe.report.figures import INTERVAL_Z

GOOD_HALF_WIDTH_SHARE, ROUGH_HALF_WIDTH_SHARE = 0.05, 0.25
"""Half-widths of 95 % intervals, in parts of all rows or of a column's range, up to which a column is good or rough."""

_SPREAD_SDS = 4.0
"""Standard deviations that most values of a column lie within."""

_VERDICT_STATISTICS = ("support", "mean curve", "mean", "marginal")
"""Statistics by which a column is judged: the first that it has."""


@dataclass(frozen=True)
class Glance:
    """Names of columns by their accuracy; each list may be empty.

    ``good``, ``rough`` and ``noise``: columns whose counts, or whose means if they are numbers or times, are within 5 %
    (of all rows, of the range), within 25 %, and neither. ``empty``: columns that inference did not find: nothing of
    them is in the release.
    """

    good: tuple[str, ...]
    rough: tuple[str, ...]
    noise: tuple[str, ...]
    empty: tuple[str, ...]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the verdicts with their columns' names, without empty lists."""
        names_by_verdict = {
            "Can be used: counts of values within 5 % of all rows; of numbers and times the mean, within 5 % of the "
            "range, or of four standard deviations if those are less (their bins are rougher: see the intervals of "
            "each column)": self.good,
            "Only rough: the same within 25 %": self.rough,
            "Drowned in noise at this number of rows": self.noise,
            "Empty: their values were not found, nothing of them can be estimated": self.empty,
        }
        return [
            (verdict, f"{len(names)} of {self.count}: {name_list(names)}")
            for verdict, names in names_by_verdict.items()
            if names
        ]

    @property
    def brief(self) -> str:
        """The numbers of columns by verdict, in one line.

        >>> Glance(("sex",), ("age", "weight"), (), ()).brief
        'of 3 columns 1 can be used, 2 are only rough'
        """
        counts = {
            "can be used": self.good,
            "only rough": self.rough,
            "drowned in noise": self.noise,
            "empty": self.empty,
        }
        count_texts = []
        for verdict, names in counts.items():
            be = "" if names is self.good else "is " if len(names) == 1 else "are "
            count_texts += [f"{len(names)} {be}{verdict}"] * bool(names)
        return f"of {self.count} column{'s' * (self.count != 1)} {', '.join(count_texts)}"

    @property
    def count(self) -> int:
        """All columns."""
        return len(self.good) + len(self.rough) + len(self.noise) + len(self.empty)


def glance(plan: Plan, n: int, estimates: Estimates | None = None) -> Glance:
    """Return the verdicts on columns, by the plan's forecast errors for so many rows.

    Where ``estimates`` of the release are at hand a mean's error is compared with how far the values are spread, too:
    wide bounds make any error a small part of the range.
    """
    missing_names = {finding.column for finding in plan.not_found}
    errors: Mapping[Any, float] = plan.forecast(n)["std_error"].to_dict() if n and plan.columns else {}
    spreads = {} if estimates is None else {column.name: _four_std(estimates, column) for column in plan.columns}
    halves = {
        column.name: _relative_half_width(
            errors, column.name, min(float(column.space.diameter), spreads.get(column.name, inf))
        )
        for column in plan.columns
    }
    known_names = [name for name in halves if name not in missing_names]

    def within(low: float, high: float) -> Iterator[str]:
        return (name for name in known_names if low < halves[name] <= high)

    return Glance(
        tuple(within(-1.0, GOOD_HALF_WIDTH_SHARE)),
        tuple(within(GOOD_HALF_WIDTH_SHARE, ROUGH_HALF_WIDTH_SHARE)),
        tuple(within(ROUGH_HALF_WIDTH_SHARE, inf)),
        tuple(name for name in halves if name in missing_names),
    )


def _four_std(estimates: Estimates, column: Column) -> float:
    """Return four standard deviations of a number that tables were measured of; infinity for others."""
    space = column.space
    has_table = any(column.name in measure.columns for measure in estimates.plan.measures)
    if not has_table or not space.is_numeric or space.is_time or space.is_listed:
        return inf
    with warnings.catch_warnings(action="ignore", category=DpframeWarning):
        four_std = _SPREAD_SDS * float(np.asarray(estimates.std(column.name)["estimate"]))
    # Noise may leave no spread at all: then the range by itself is the scale.
    return four_std if four_std > 0 else inf


def _relative_half_width(errors: Mapping[Any, float], name: str, diameter: float) -> float:
    """Return a column's half-width in parts of all rows or of its range; without a forecast it is infinite."""
    for statistic in _VERDICT_STATISTICS:
        if (statistic, name) in errors:
            # A column with a single value has no range.
            error_range = diameter or 1.0 if statistic.startswith("mean") else 1.0
            return INTERVAL_Z * float(errors[statistic, name]) / error_range
    return inf
