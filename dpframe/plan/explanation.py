"""A plan in plain words: what it means for one person, what it costs in accuracy, and what would help most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpframe.accounting.budget import Budget
from dpframe.channels import mechanism_for
from dpframe.errors import ParameterError
from dpframe.plan.accounting_gains import gains_table
from dpframe.plan.beliefs import after, best_guess, chance, percent
from dpframe.plan.calibration import recalibrate
from dpframe.plan.choice import ADDITIVE, stand_in
from dpframe.plan.columns import parted
from dpframe.plan.data import PlanData
from dpframe.plan.measured_forecast import forecast_of
from dpframe.plan.measures import measures_step
from dpframe.plan.measuring import Wish
from dpframe.plan.notebook import notebook_html
from dpframe.plan.steps import terms_of
from dpframe.plan.words import digits

if TYPE_CHECKING:
    import pandas as pd

_LEAST_GAIN = 0.99
"""A lever that leaves more of the errors is not worth a line."""
_DELTA = 1e-6


@dataclass(frozen=True)
class Explanation:
    """What a plan means, costs and lacks; prints as text, and shows as HTML in a notebook.

    Parameters
    ----------
    person
        What it means for one person, in sentences.
    levers
        What would change the errors: ``errors`` by which factor, for typical statistics.
    gains
        See `Plan.accounting_gains`; None where the number of rows is not known.
    forecast
        See `Plan.forecast`; None where the number of rows is not known.
    """

    person: tuple[str, ...]
    levers: pd.DataFrame
    gains: pd.DataFrame | None
    forecast: pd.DataFrame | None

    @property
    def _lines(self) -> list[str]:
        return [f"{lever}: errors × {digits(factor)}" for lever, factor in self.levers["errors"].items()]

    def __str__(self) -> str:
        parts = ["What it means for one person", *self.person]
        if self.forecast is not None:
            parts += ["", "What it costs: standard errors to expect", self.forecast.to_string(float_format=digits)]
        if self.gains is not None:
            parts += [
                "",
                "What the accounting contributes, at the same promise",
                self.gains.to_string(float_format=digits),
            ]
        if len(self.levers):
            parts += ["", "What would help, most first", *self._lines]
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first = notebook_html("What this plan means", [("", self.person)], self.forecast, digits)
        lists = [("What would help, most first", self._lines)]
        return first + notebook_html("What the accounting contributes", lists, self.gains, digits)


def explained(plan: PlanData) -> Explanation:
    """Return the explanation of a plan."""
    known = bool(plan.n and plan.columns)
    return Explanation(
        tuple(person_lines(plan)),
        lever_table(plan),
        gains_table(plan.units, plan.terms) if known else None,
        forecast_of(plan) if known else None,
    )


def person_lines(plan: PlanData) -> Iterator[str]:
    """Say what a plan's promise means for one person, in sentences."""
    yield _odds("Against anyone who sees the release, even if they know everybody else's row", plan.release)
    if plan.located != plan.release:
        yield _odds("Against someone who found out which released rows are the person's", plan.located)
    if plan.release.delta:
        yield f"Except with a chance of {chance(plan.release.delta)} (delta={plan.release.delta:g})."
    rows = "one row" if plan.contributions == 1 else f"{plan.contributions} rows"
    owned = f"A person owns {rows} at most, which is believed"
    chosen = f"Of each person, by column {plan.privacy_id!r}, {rows} counted, however many they own"
    yield f"{chosen if plan.privacy_id else owned}; what is true of people in general may be learnt of anyone."


def _odds(whom: str, budget: Budget) -> str:
    return (
        f"{whom}: of two values that seem equally likely they can be {percent(after(0.5, budget))} sure at most, and "
        f"the best guess is right in {percent(best_guess(budget))} (epsilon={budget.epsilon:.4g})."
    )


def lever_table(plan: PlanData) -> pd.DataFrame:
    """Return by which factor each lever would change the errors that are forecast, the best first."""
    import pandas as pd

    found: dict[str, float] = {}
    if plan.n and plan.columns:
        base = _errors(_remade(plan))
        for lever, changes in _levers(plan).items():
            try:
                other = _errors(_remade(plan, **changes))
            except ParameterError:
                continue
            found[lever] = _ratio(other, base)
        if plan.inferred is not None:
            found["spaces that are declared, so that finding them costs nothing"] = _ratio(base, _errors(plan))
    worth = {lever: factor for lever, factor in sorted(found.items(), key=lambda item: item[1]) if factor < _LEAST_GAIN}
    table = pd.DataFrame({"errors": worth}, dtype=np.float64)
    table.index.name = "lever"
    return table


def _levers(plan: PlanData) -> dict[str, dict[str, Any]]:
    """Return what may be changed of a plan, in words and as arguments of `_remade`."""
    levers: dict[str, dict[str, Any]] = {
        f"twice the epsilon ({2 * plan.epsilon:g})": {"epsilon": 2 * plan.epsilon},
        f"twice the rows ({2 * (plan.n or 0):,})": {"n": 2 * (plan.n or 0)},
    }
    delta = plan.delta or min(_DELTA, (plan.n or 1) ** -1.5)
    if plan.delta == 0:
        levers[f"delta={delta:.2g}, which the credit of a secret order needs"] = {
            "delta": delta,
            "shuffle": True,
        }
    elif not plan.shuffle:
        levers["rows in a secret order (shuffle=True)"] = {"shuffle": True}
    if not plan.measures and plan.delta > 0 and plan.shuffle and not plan.passthrough:
        levers['tables measured beside the rows (measure="auto")'] = {"measure": "auto"}
    if any(_square(unit) is not unit for unit in plan.units):
        levers['the square wave for numbers (numbers="square_wave")'] = {"numbers": "square_wave"}
    if plan.sample is not None:
        levers["all rows instead of a sample"] = {"sample": None}
    if len(plan.units) > 1:
        units = [unit.names for unit in plan.units]
        kept = [name for unit in units[: (len(units) + 1) // 2] for name in unit]
        levers[f"half of the columns left out, of those that stay ({', '.join(map(repr, kept))})"] = {"names": kept}
    return levers


def _remade(plan: PlanData, **changes: Any) -> PlanData:
    """Return a plan like another without what inference has cost, with some things changed."""
    names = changes.get("names", [column.name for column in plan.columns])
    units = tuple(unit for unit in plan.units if set(unit.names) <= set(names))
    if "numbers" in changes:
        units = tuple(_square(unit) for unit in units)
    spaces = {name: plan[name].space for unit in units for name in unit.names}
    budget = Budget(changes.get("epsilon", plan.epsilon), changes.get("delta", plan.delta))
    n, sample, shuffle = (changes.get(name, getattr(plan, name)) for name in ("n", "sample", "shuffle"))
    wish = Wish(changes.get("measure", "auto" if plan.measures else None))
    measures = wish.measures(spaces, budget, None, n, plan.contributions)
    tables = measures_step(measures, spaces, plan.contributions, budget.delta)
    cap, secret = plan.local_epsilon, shuffle and not plan.passthrough
    terms = terms_of(budget, None, n, sample, secret, plan.contributions, cap, tables)
    columns, groups = parted(recalibrate(units, terms), spaces)
    return replace(
        plan,
        epsilon=budget.epsilon,
        delta=budget.delta,
        n=n,
        sample=sample,
        shuffle=shuffle,
        keeps_index=plan.keeps_index and not shuffle,
        columns=columns,
        groups=groups,
        leaks=(),
        inferred=None,
        reused=None,
        measures=measures,
    )


def _square(unit: Any) -> Any:
    """Return a column of numbers that has Laplace noise with a square wave in its place; others as they are."""
    tag = None if unit.mechanism.tag not in ADDITIVE or unit.space.is_listed else stand_in(unit.space, "square_wave")
    if tag is None:
        return unit
    try:
        return replace(unit, mechanism=mechanism_for(unit.space, unit.mechanism.epsilon, unit.mechanism.delta, tag))
    except ParameterError:  # an ε too small for it
        return unit


def _errors(plan: PlanData) -> pd.Series[float]:
    return forecast_of(plan)["std_error"]


def _ratio(other: pd.Series[float], base: pd.Series[float]) -> float:
    """Return the typical factor between errors that both have."""
    both = base.index.intersection(other.index)
    return float((other[both] / base[both]).median())
