"""Variants of a plan with other numbers and its spaces. For forecasts, as nothing is proved."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dpframe.accounting.budget import Budget
from dpframe.channels import mechanism_for
from dpframe.errors import ParameterError, check_whole
from dpframe.forecast.forecast import Forecast
from dpframe.plan.calibration import AccountingContext, Maker, calibrate, likely_units
from dpframe.plan.columns import ADDITIVE, Column, Group, Randomised, parted, stand_in
from dpframe.plan.data import PlanData
from dpframe.plan.indicators import Indicators, measures_of_columns, table_spaces
from dpframe.plan.measuring import Workload
from dpframe.plan.steps import terms_of
from dpframe.spaces import Space


def forecast_of(plan: PlanData, n_rows: int | None = None, types: Mapping[str, Any] | None = None) -> Forecast:
    """Return the forecast of a plan; see `Plan.forecast`."""
    n = check_whole(plan.n if n_rows is None else n_rows, "n_rows", of="rows")
    sample = None if plan.sample is None or plan.n is None else max(1, plan.sample * n // plan.n)
    measures = tuple(measures_of_columns(plan.measures, plan.indicators, plan.spaces))
    split = _split_groups(plan.units, plan.terms) if plan.groups else ()
    return Forecast(plan.columns, n, plan.groups, sample, measures, types, split)


def _split_groups(units: Sequence[Randomised], terms: AccountingContext) -> tuple[Column, ...]:
    """Return all columns as they would be if every group's share were divided over its columns."""
    makers: list[Maker] = []
    shares: list[float] = []
    # Ready mechanisms keep their losses, with or without groups.
    fixed = [unit for unit in units if unit.mechanism.fixed]
    for unit in units:
        if isinstance(unit, Group):
            makers += [partial(_ungrouped_column, column) for column in unit.columns]
            shares += [unit.mechanism.epsilon / len(unit.names)] * len(unit.names)
        elif not unit.mechanism.fixed:
            makers.append(unit.remade)
            shares.append(unit.mechanism.epsilon)
    share_sum = math.fsum(shares)
    calibrated = calibrate(makers, [share / share_sum for share in shares], fixed, terms)
    return tuple(column for unit in [*calibrated, *fixed] for column in unit.columns)


def _ungrouped_column(column: Column, epsilon: float, delta: float) -> Column:
    """Return a group's column with the mechanism that a plan of single columns would try first."""
    tag = stand_in(column.space, "least_error" if column.space.is_listed else "laplace")
    return Column(column.name, column.space, mechanism_for(column.space, epsilon, delta, tag))


@dataclass(frozen=True)
class Setting:
    """Inputs that determine the errors of a plan with declared spaces; `dataclasses.replace` makes another setting.

    Losses and noise are from the planner's own search before its proof: within a few percent of a plan's, and not fit
    for a release.
    """

    units: tuple[Randomised, ...]
    spaces: Mapping[str, Space]
    promise: Budget
    n: int
    sample: int | None = None
    shuffle: bool = True
    copied: bool = False
    contributions: int = 1
    local: float | None = None
    measure: str | None = None
    indicators: tuple[Indicators, ...] = ()

    @classmethod
    def of(cls, plan: PlanData) -> Setting:
        """Return the setting of a plan that has a number of rows; its tables become the default ones."""
        assert plan.n
        return cls(
            plan.units,
            plan.spaces,
            plan.release,
            plan.n,
            plan.sample,
            plan.shuffle,
            bool(plan.passthrough),
            plan.contributions,
            plan.local_epsilon,
            # Measured tables suit one number of rows; default tables adapt to others.
            "auto" if plan.measures else None,
            plan.indicators,
        )

    def of_columns(self, names: Collection[str]) -> Setting:
        """Return the setting of only these columns; groups with other columns are left out."""
        units = tuple(unit for unit in self.units if set(unit.names) <= set(names))
        column_names = {name for unit in units for name in unit.names}
        spaces = {name: self.spaces[name] for name in self.spaces if name in column_names}
        indicators = tuple(group for group in self.indicators if column_names.issuperset(group.columns))
        return replace(self, units=units, spaces=spaces, indicators=indicators)

    def with_units(self, change: Callable[[Any], Any]) -> Setting:
        """Return the setting with changed units, such as by `with_square_wave`; the setting itself if none changes."""
        units = tuple(map(change, self.units))
        # Identity, so that a caller sees whether a lever changes anything.
        unchanged = all(new_unit is unit for new_unit, unit in zip(units, self.units, strict=True))
        return self if unchanged else replace(self, units=units)

    def forecast(self) -> Forecast:
        """Return the forecast without split groups; raise `ParameterError` if no noise is large enough."""
        wish, secret = Workload(self.measure), self.shuffle and not self.copied
        spaces = table_spaces(self.indicators, self.spaces)
        measures = wish.measures(spaces, self.promise, None, self.n, self.contributions, proved=False)
        # The cap of each row is beside the largest cost of tables, as in a plan.
        tables = wish.most(self.promise, None) if measures else None
        terms = terms_of(self.promise, None, self.n, self.sample, secret, self.contributions, self.local, tables)
        columns, groups = parted(likely_units(self.units, terms), self.spaces)
        column_measures = tuple(measures_of_columns(measures, self.indicators, self.spaces))
        return Forecast(columns, self.n, groups, self.sample, column_measures)


def with_square_wave(unit: Any) -> Any:
    """Return a column of numbers with a square wave in place of Laplace noise; other units unchanged."""
    tag = None if unit.mechanism.tag not in ADDITIVE or unit.space.is_listed else stand_in(unit.space, "square_wave")
    if tag is None:
        return unit
    try:
        return replace(unit, mechanism=mechanism_for(unit.space, unit.mechanism.epsilon, unit.mechanism.delta, tag))
    except ParameterError:  # an ε too small for it
        return unit


def with_bounded_noise(unit: Any) -> Any:
    """Return a column with its space's default noise in place of noise beyond its bounds; other units unchanged."""
    return (
        Column.calibrated(unit.name, unit.space, unit.mechanism.epsilon, 0.0)
        if unit.mechanism.releases_outside_bounds
        else unit
    )
