"""A plan in plain words: its meaning for one person, its cost in accuracy, and the most helpful changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpframe.accounting.budget import Budget
from dpframe.errors import ParameterError, name_list
from dpframe.plan.accounting_gains import gains_table
from dpframe.plan.beliefs import best_guess, percent
from dpframe.plan.data import PlanData
from dpframe.plan.notebook import notebook_html
from dpframe.plan.setting import Setting, forecast_of, with_bounded_noise, with_square_wave
from dpframe.plan.words import digits

if TYPE_CHECKING:
    import pandas as pd

_LARGEST_USEFUL_FACTOR = 0.99
"""Largest factor on errors of a lever worth a line (limit of a message)."""
_SUGGESTED_DELTA = 1e-6
"""Largest δ that a lever suggests (limit of a page)."""


@dataclass(frozen=True)
class Explanation:
    """Meaning and cost of a plan, and changes that would help; prints as text, and shows as HTML in a notebook.

    ``person``: the plan's meaning for one person, in sentences. ``levers``: changes of the plan, with ``errors``, their
    factor on typical statistics' errors. ``gains``: see `Plan.accounting_gains`; None if the number of rows is unknown.
    ``forecast``: see `Plan.forecast`; None if the number of rows is unknown.
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
        forecast_html = notebook_html("What this plan means", [("", self.person)], self.forecast, digits)
        lists = [("What would help, most first", self._lines)]
        return forecast_html + notebook_html("What the accounting contributes", lists, self.gains, digits)


def explained(plan: PlanData) -> Explanation:
    """Return the explanation of a plan."""
    import pandas as pd

    has_rows = bool(plan.n and plan.columns)
    forecast = forecast_of(plan).table if has_rows else None
    error_factors: dict[str, float] = {}
    if forecast is not None:
        setting = Setting.of(plan)
        # A setting's own forecast: neither side of the ratio has a proof.
        std_errors = setting.forecast().table["std_error"]
        for lever, lever_setting in _levers(plan, setting).items():
            with contextlib.suppress(ParameterError):
                error_factors[lever] = _median_ratio(lever_setting.forecast().table["std_error"], std_errors)
        if plan.inferred is not None:
            declared = "spaces that are declared, so that finding them costs nothing"
            error_factors[declared] = _median_ratio(std_errors, forecast["std_error"])
    factors = pd.Series(error_factors, dtype=np.float64, name="errors").rename_axis("lever").sort_values(kind="stable")
    return Explanation(
        tuple(person_lines(plan)),
        factors[factors < _LARGEST_USEFUL_FACTOR].to_frame(),
        gains_table(plan) if has_rows else None,
        forecast,
    )


def person_lines(plan: PlanData) -> Iterator[str]:
    """Yield the meaning of a plan's budget for one person, in sentences."""
    yield _odds_sentence("Against anyone who sees the release, even if they know everybody else's row", plan.release)
    if plan.located != plan.release:
        yield _odds_sentence("Against someone who found out which released rows are the person's", plan.located)
    rows = "one row" if plan.contributions == 1 else f"{plan.contributions} rows"
    ownership_sentence = f"A person owns {rows} at most, which is believed"
    chosen_sentence = f"Of each person, by column {plan.privacy_id!r}, {rows} counted, however many they own"
    yield (
        f"{chosen_sentence if plan.privacy_id else ownership_sentence}; "
        "what is true of people in general may be learnt of anyone."
    )
    imputed_columns = [column.name for column in plan.columns if plan.nulls == "impute" and not column.space.has_null]
    if imputed_columns:
        yield (
            f"A null in {name_list(imputed_columns)} becomes the middle of the bounds, or 'other' or the first "
            'category (nulls="impute"), and counts as such in every statistic.'
        )


def _odds_sentence(whom: str, budget: Budget) -> str:
    """Return the best guess of a value under a budget, in a sentence."""
    delta = f", delta={budget.delta:.4g}; on average over what they may see" if budget.delta else ""
    return (
        f"{whom}: of two values that seem equally likely the best guess is right in {percent(best_guess(budget))} at "
        f"most (epsilon={budget.epsilon:.4g}{delta})."
    )


def _levers(plan: PlanData, setting: Setting) -> dict[str, Setting]:
    """Return possible changes of a plan, in words, and the settings that they lead to."""
    promise = setting.promise
    levers = {
        f"twice the epsilon ({2 * plan.epsilon:g})": replace(
            setting, promise=Budget(2 * promise.epsilon, promise.delta)
        ),
        f"twice the rows ({2 * setting.n:,})": replace(setting, n=2 * setting.n),
    }
    if plan.delta == 0:
        # Below 1/n: else a δ would allow whole rows to be revealed.
        delta = min(_SUGGESTED_DELTA, setting.n**-1.5)
        shuffled = replace(setting, promise=Budget(promise.epsilon, delta), shuffle=True)
        levers[f"delta={delta:.2g}, which the credit of a secret order needs"] = shuffled
    elif not plan.shuffle:
        levers["rows in a secret order (shuffle=True)"] = replace(setting, shuffle=True)
    if not plan.measures and plan.delta > 0 and plan.shuffle and not plan.passthrough:
        levers['tables measured in addition to the rows (measure="auto")'] = replace(setting, measure="auto")
    if (square := setting.with_units(with_square_wave)) is not setting:
        levers['the square wave for numbers (numbers="square_wave")'] = square
    if (laplace := setting.with_units(with_bounded_noise)) is not setting:
        levers['laplace in place of gaussian noise on numbers (mechanisms={column: "laplace"})'] = laplace
    if plan.sample is not None:
        levers["all rows instead of a sample"] = replace(setting, sample=None)
    if len(plan.units) > 1:
        units = [unit.names for unit in plan.units]
        # Groups stay whole.
        half_of_columns = [name for unit in units[: (len(units) + 1) // 2] for name in unit]
        what = f"half of the columns left out, of those that stay ({', '.join(map(repr, half_of_columns))})"
        levers[what] = setting.of_columns(half_of_columns)
    return levers


def _median_ratio(errors: pd.Series[float], base: pd.Series[float]) -> float:
    """Return the median ratio of errors to base errors over their common statistics."""
    shared_keys = base.index.intersection(errors.index)
    return float((errors[shared_keys] / base[shared_keys]).median())
