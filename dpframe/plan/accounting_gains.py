"""Contribution of each lever of the accounting to a plan: composition, secret sample, shuffling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpframe.accounting.budget import Budget, compose
from dpframe.errors import ParameterError
from dpframe.forecast.forecast import Forecast
from dpframe.plan.calibration import AccountingContext, recalibrate
from dpframe.plan.columns import Randomised
from dpframe.plan.data import PlanData

if TYPE_CHECKING:
    import pandas as pd

ORDER_METHODS = {
    "blanket": "the privacy blanket of these columns",
    "clones": "clones of the row",
    "closed form": "the closed form for shuffling",
    "gaussian": "a Gaussian curve above their profile",
}
"""Proof methods of a bound for a secret order, in words."""


def _try_recalibrate(units: Sequence[Randomised], terms: AccountingContext) -> tuple[Randomised, ...] | None:
    """Return the units calibrated for other terms, or None if no noise is large enough."""
    try:
        return recalibrate(tuple(units), terms)
    except ParameterError:
        return None


def _typical_error(units: Sequence[Randomised], terms: AccountingContext) -> float:
    columns = [column for unit in units for column in unit.columns]
    return Forecast(columns, (terms.rows if terms.sample is None else terms.sample) or 1).typical_error


def gains_table(plan: PlanData) -> pd.DataFrame:
    """Return a row per accounting; see `Plan.accounting_gains`."""
    import pandas as pd

    units, terms = plan.units, plan.terms
    # Without shuffling nothing would be measured: tables would leave unshuffled rows next to nothing.
    central = None if terms.shuffled_rows is not None else terms.central
    composition = replace(terms, sample=None, secret=False, local=None, central=central)
    settings = {"basic composition": replace(composition, budget=Budget(terms.budget.epsilon), central=None)}
    if terms.budget.delta > 0:
        settings["optimal composition"] = composition
    if terms.shuffled_rows is not None and not any(unit.step for unit in units):  # which no order hides
        settings["secret order"] = replace(terms, sample=None, local=None)
    if terms.samples:
        settings["secret sample"] = replace(terms, local=None)
    if terms.local is not None:
        settings["cap on each row"] = terms
    rows = []
    for name, setting in settings.items():
        calibrated = units if setting == terms else _try_recalibrate(units, setting)
        row_epsilon = noise = math.nan
        if calibrated is not None and terms.rows:
            row_epsilon = compose(unit.certified for unit in calibrated).epsilon
            noise = _typical_error(calibrated, setting)
        rows.append({"accounting": name, "row_epsilon": row_epsilon, "noise": noise})
    table = pd.DataFrame(rows).set_index("accounting")
    # The last setting is the plan's own.
    table["noise"] /= table["noise"].iloc[-1]
    table["in_force"] = [False] * (len(table) - 1) + [True]
    return table


def gain_lines(plan: PlanData) -> list[str]:
    """Return one line on the gain of the secret order, or on the cost of its absence."""
    units, terms = plan.units, plan.terms
    if not units or not terms.rows or terms.budget.delta == 0:
        return []
    if terms.shuffled_rows is not None:
        compared_terms = replace(terms, sample=None, secret=False, central=None)
        sentence = "With the order kept (shuffle=False) about {:.2g} times more noise would be needed"
    else:
        compared_terms = replace(terms, sample=None, secret=True)
        sentence = "Without the credit of a secret order about {:.2g} times more noise is needed"
    calibrated = _try_recalibrate(units, compared_terms)
    if calibrated is None:
        return []
    ratio = _typical_error(calibrated, compared_terms) / _typical_error(units, terms)
    ratio = ratio if terms.shuffled_rows is not None else 1 / ratio
    return [sentence.format(ratio)] if ratio > 1.05 else []
