"""Contribution of each lever of the accounting to a plan: composition, secret sample, shuffling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpframe.accounting.budget import Budget, compose
from dpframe.channels import Mechanism, mechanism_for
from dpframe.errors import ParameterError
from dpframe.plan.calibration import Maker, Terms, calibrate, recalibrate
from dpframe.plan.columns import Column, Group, Randomised, stand_in
from dpframe.plan.forecast import typical_error

if TYPE_CHECKING:
    import pandas as pd

ORDER_METHODS = {
    "blanket": "the privacy blanket of these columns",
    "clones": "clones of the row",
    "closed form": "the closed form for shuffling",
    "gaussian": "a Gaussian curve above their profile",
}
"""Proof methods of a bound for a secret order, in words."""


def _try_recalibrate(units: Sequence[Randomised], terms: Terms) -> tuple[Randomised, ...] | None:
    """Return the units calibrated for other terms, or None if no noise is large enough."""
    try:
        return recalibrate(tuple(units), terms)
    except ParameterError:
        return None


def split_mechanisms(units: Sequence[Randomised], terms: Terms) -> dict[str, Mechanism]:
    """Return the mechanisms of all columns if every group's share were divided over its columns."""
    makers: list[Maker] = []
    shares: list[float] = []
    # Ready mechanisms keep their losses, with or without groups.
    fixed = [unit for unit in units if unit.mechanism.fixed]
    for unit in units:
        if isinstance(unit, Group):
            makers += [_column_maker(unit.column(name)) for name in unit.names]
            shares += [unit.mechanism.epsilon / len(unit.names)] * len(unit.names)
        elif not unit.mechanism.fixed:
            makers.append(unit.remade)
            shares.append(unit.mechanism.epsilon)
    share_sum = math.fsum(shares)
    calibrated = calibrate(makers, [share / share_sum for share in shares], fixed, terms)
    return {unit.names[0]: unit.mechanism for unit in [*calibrated, *fixed]}


def _column_maker(column: Column) -> Maker:
    """Return the function that makes a column from its budget."""
    name, space = column.name, column.space
    # The mechanism that a plan of single columns would try first.
    tag = stand_in(space, "least_error" if space.is_listed else "laplace")
    return lambda epsilon, delta: Column(name, space, mechanism_for(space, epsilon, delta, tag))


def _typical_noise(units: Sequence[Randomised], rows: int) -> float:
    """Return the geometric mean over columns of their typical standard errors."""
    columns = [c for unit in units for c in (map(unit.column, unit.names) if isinstance(unit, Group) else [unit])]
    return math.exp(float(np.mean([math.log(max(typical_error(c, rows), 1e-300)) for c in columns])))


def gains_table(units: Sequence[Randomised], terms: Terms) -> pd.DataFrame:
    """Return a row per accounting; see `Plan.accounting_gains`."""
    import pandas as pd

    pure_composition = replace(
        terms, budget=Budget(terms.budget.epsilon), sample=None, secret=False, central=None, local=None
    )
    # Without shuffling nothing would be measured: tables would leave unshuffled rows next to nothing.
    central = None if terms.shuffled_rows is not None else terms.central
    composition_only = replace(terms, sample=None, secret=False, local=None, central=central)
    settings = {"basic composition": pure_composition}
    if terms.budget.delta > 0:
        settings["optimal composition"] = composition_only
    if terms.shuffled_rows is not None:
        settings["secret order"] = replace(terms, sample=None, local=None)
    if terms.samples:
        settings["secret sample"] = replace(terms, local=None)
    if terms.local is not None:
        settings["cap on each row"] = terms
    rows = []
    if any(unit.step for unit in units):  # which no order hides
        settings.pop("secret order", None)
    for name, setting in settings.items():
        calibrated = tuple(units) if setting == terms else _try_recalibrate(units, setting)
        row_epsilon = noise = math.nan
        if calibrated is not None and terms.rows:
            row_epsilon = compose(unit.certified for unit in calibrated).epsilon
            noise = _typical_noise(calibrated, (terms.rows if setting.sample is None else setting.sample) or 1)
        rows.append({"accounting": name, "row_epsilon": row_epsilon, "noise": noise})
    table = pd.DataFrame(rows).set_index("accounting")
    # The last setting is the plan's own.
    table["noise"] /= table["noise"].iloc[-1]
    table["in_force"] = [False] * (len(table) - 1) + [True]
    return table


def gain_lines(units: Sequence[Randomised], terms: Terms) -> list[str]:
    """Return one line on the gain of the secret order, or on the cost of its absence."""
    if not units or not terms.rows or terms.budget.delta == 0:
        return []
    ordered_terms = replace(terms, sample=None, secret=False, central=None if terms.shuffled_rows else terms.central)
    if terms.shuffled_rows is not None:
        compared_terms, sentence = (
            ordered_terms,
            "With the order kept (shuffle=False) about {:.2g} times more noise would be needed",
        )
    else:
        compared_terms = replace(terms, secret=True)
        sentence = "Without the credit of a secret order about {:.2g} times more noise is needed"
    calibrated = _try_recalibrate(units, compared_terms)
    if calibrated is None:
        return []
    noise, compared_noise = (
        _typical_noise(units, terms.sample or terms.rows),
        _typical_noise(calibrated, compared_terms.sample or terms.rows),
    )
    ratio = compared_noise / noise if terms.shuffled_rows is not None else noise / compared_noise
    return [sentence.format(ratio)] if ratio > 1.05 else []
