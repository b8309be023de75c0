"""A plan as one HTML page to try out: forecasts over ε and rows, interpolated in the page. No data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from statistics import NormalDist, median
from typing import Any

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import promise_step
from dpframe.channels import mechanism_for
from dpframe.disk import WEB_PAGE, check_ending, write_text
from dpframe.errors import ParameterError
from dpframe.forecast.forecast import BINNED, STATISTICS, Key
from dpframe.inference.expected_losses import expected_losses
from dpframe.plan.columns import Column
from dpframe.plan.data import PlanData
from dpframe.plan.setting import Setting, forecast_of
from dpframe.plan.words import UNITS
from dpframe.spaces import Categorical

EPSILON_MULTIPLES = (1 / 8, 8**-0.5, 1.0, 8**0.5, 8.0)
"""Multiples of the plan's own ε at which errors are forecast (limit of a page)."""
ROW_MULTIPLES = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
"""Multiples of the plan's own ε and rows at which errors are forecast; the page interpolates between them (limit of a
page)."""

FULL_GRID_COLUMNS = 24
"""Columns above which the grid leaves out every other point: a forecast then takes most of a second (limit of time)."""

MOST_PAIRS = 300
"""Most pairs of columns on a page (limit of memory)."""

_INTERVAL_HALF_WIDTH_SE = NormalDist().inv_cdf(0.975)
"""Standard errors of half a 95 % interval (theory: 97.5 % quantile of the normal law)."""
_FIGURE_DIGITS = 4
"""Digits of a figure (limit of a page)."""


def plan_page(
    plan: PlanData, path: str | Path | None = None, *, source: str = "people.parquet", plan_file: str = "plan.json"
) -> str:
    """Return the plan as one HTML page to try out other ε and numbers of rows; written to a file if one is named.

    Sliders move the expected errors of columns, means and pairs, the columns lost by inference and the lines to copy.
    The page holds no data, loads nothing and sends nothing. Its forecasts are made for a grid of 5 ε and 5 numbers
    of rows and interpolated in between; at the plan's own they equal `forecast`.

    Parameters
    ----------
    path
        The file to write, which ends with .html or .htm.
    source, plan_file
        The table and the plan's file, as the lines to copy name them.

    Raises
    ------
    ParameterError
        If the plan has no columns or does not know its number of rows.
    FileError
        If the file cannot be written, or its name ends with neither .html nor .htm.

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> page = build_plan({"sex": ["F", "M"]}, epsilon=1.0, n=1_000).page()
    >>> page.startswith("<!DOCTYPE html>"), "Lines to copy" in page
    (True, True)
    """
    if not plan.n or not plan.columns:
        raise ParameterError(
            "a page needs columns and the number of rows; make the plan for a table, or plan.replan(n)"
        )
    if path is not None:
        check_ending(path, *WEB_PAGE)
    page_fields = page_data(plan) | {"files": {"source": source, "plan": plan_file}}
    data = json.dumps(page_fields, ensure_ascii=False, allow_nan=False)
    # Nothing of a name may end the script's element.
    template = files("dpframe.plan").joinpath("page.html").read_text(encoding="utf-8")
    text = template.replace("@DATA@", data.replace("<", "\\u003c").replace("\u2028", " ").replace("\u2029", " "))
    if path is not None:
        write_text(path, text)
    return text


def page_data(plan: PlanData) -> dict[str, Any]:
    """Return the page's data: half-widths of 95 % intervals, by statistic, over the grid of ε and rows."""
    assert plan.n
    setting = Setting.of(plan)
    # Every other point of the grid keeps its ends and its middle.
    step = 1 if len(plan.columns) <= FULL_GRID_COLUMNS else 2
    epsilons = [plan.epsilon * factor for factor in EPSILON_MULTIPLES[::step]]
    # Small plans may round two multiples to one number.
    rows = sorted({max(2, round(plan.n * factor)) for factor in ROW_MULTIPLES[::step]})
    grid = [[_forecast_errors(replace(setting, promise=Budget(e, plan.delta), n=n)) for n in rows] for e in epsilons]
    setting_errors = _forecast_errors(setting)
    options = {
        "shuffle": None if plan.shuffle else False,
        "contributions": plan.contributions if plan.contributions > 1 else None,
        "privacy_id": plan.privacy_id,
        "drop": list(plan.drop) or None,
        "passthrough": list(plan.passthrough) or None,
        "local_epsilon": plan.local_epsilon,
        "sample": plan.sample,
    }
    return {
        "plan": {"epsilon": plan.epsilon, "delta": plan.delta, "rows": plan.n, "shuffled": plan.shuffle},
        "epsilons": epsilons,
        "rows": rows,
        "statistics": list(_statistic_fields(plan, grid, forecast_of(plan).std_errors, setting_errors)),
        "notFound": [missing_column.column for missing_column in plan.not_found],
        "inference": lost_columns(plan, epsilons, rows),
        "oneMore": _price_column(setting, setting_errors),
        "options": {name: value for name, value in options.items() if value is not None},
    }


def _forecast_errors(setting: Setting) -> dict[Key, float]:
    """Return the errors of a setting; an empty mapping if no noise is large enough."""
    try:
        return setting.forecast().std_errors
    except ParameterError:
        return {}


def _statistic_fields(
    plan: PlanData, grid: Sequence[Sequence[dict[Key, float]]], planned: dict[Key, float], declared: dict[Key, float]
) -> Iterator[dict[str, Any]]:
    """Yield the fields of each statistic: its name, its range, its grid, and the factor of inference on its errors."""
    missing_columns, pairs = {entry.column for entry in plan.not_found}, 0
    single_values = {binned: statistic for statistic, binned in BINNED.items()}
    for (statistic, names), error in planned.items():
        key, kind = (statistic, names), single_values.get(statistic, statistic)
        pairs += kind == "joint"
        if kind not in STATISTICS or set(names) & missing_columns or (kind == "joint" and pairs > MOST_PAIRS):
            continue
        space = plan[names[0]].space if kind.startswith("mean") else None
        factor = error / declared[key] if declared.get(key) else 1.0
        yield {
            "kind": kind,
            "columns": list(names),
            "range": None if space is None else _round_figure(float(space.diameter) or 1.0),
            "unit": "" if space is None else UNITS.get(space.unit, space.unit),
            "inferred": _round_figure(factor),
            "grid": [[_half_width(errors.get(key, errors.get((kind, names)))) for errors in line] for line in grid],
        }


def _half_width(error: float | None) -> float | None:
    """Return half of a 95 % interval, or None without a positive finite error."""
    return _round_figure(_INTERVAL_HALF_WIDTH_SE * error) if error and math.isfinite(error) else None


def _round_figure(value: float) -> float:
    """Return a number rounded to the page's digits."""
    return float(f"{value:.{_FIGURE_DIGITS}g}")


def lost_columns(plan: PlanData, epsilons: Sequence[float], rows: Sequence[int]) -> dict[str, Any] | None:
    """Return about how many columns inference would lose over a grid; None if the plan does not know its noise."""
    inference = plan.inferred
    if inference is None or not inference.asked or inference.step is None or not inference.step.mu:
        return None
    promise_mu = promise_step(Budget(plan.epsilon, plan.delta)).mu
    noises = [promise_mu / promise_step(Budget(epsilon, plan.delta)).mu for epsilon in epsilons]
    floats = [name for name, space in plan.spaces.items() if space.inner_space.tag == "real"]
    column_losses = [
        [_round_figure(expected_losses(inference.asked, n, noise, floats)[0]) for n in rows] for noise in noises
    ]
    return {"columns": len(inference.asked), "lost": column_losses}


def _price_column(setting: Setting, declared: dict[Key, float]) -> float | None:
    """Return the factor by which an additional column of five categories would raise the other columns' errors."""
    name, space = "one more", Categorical(tuple("abcde"))
    mean = math.fsum(unit.mechanism.epsilon for unit in setting.units) / len(setting.units)
    if name in setting.spaces:
        return None
    added_column = Column(name, space, mechanism_for(space, mean, 0.0, "randomized_response"))
    wider_errors = _forecast_errors(
        replace(setting, units=(*setting.units, added_column), spaces={**setting.spaces, name: space})
    )
    factors = [wider_errors[key] / error for key, error in declared.items() if error and key in wider_errors]
    return _round_figure(median(factors)) if factors else None
