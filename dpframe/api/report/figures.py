"""What a release says of its columns, and what its plan forecasts, as tables with bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from dpframe.api.report.elements import Drawing, Table, bar, interval_bar, log_bar, table, unit_word
from dpframe.errors import ParameterError
from dpframe.estimate import Estimates
from dpframe.plan.plan import Plan
from dpframe.plan.words import nearly_found
from dpframe.spaces.cells import has_few_values
from dpframe.spaces.words import number

MOST_COLUMNS = 8
"""Columns that are drawn."""

MOST_ROWS = 10
"""Values of a column that are drawn."""

BINS = 8

FINEST = 256
"""Numeric columns of no more values, or in measured tables, are drawn as a histogram, too; other fits take longer."""

SHARES = (0.05, 0.2, 0.5, 0.8)
"""Shares of measured tables that are drawn."""

KINDS = {"marginal": "shares of values", "joint": "shares of pairs", "support": "supports", "mean": "means"}
"""A forecast's statistics in words."""

_EVEN = 0.1
"""Part of an interval by which its halves may differ and be written as one number."""

_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Figure:
    """What the release says of a column: tables, and notes."""

    name: str
    parts: tuple[Table | str, ...]


def estimate_figures(estimates: Estimates) -> list[Figure]:
    """Return a figure for each of the first columns: what the release says of it, with intervals."""
    return [Figure(name, tuple(_parts(estimates, name))) for name in estimates.plan.names[:MOST_COLUMNS]]


def _parts(estimates: Estimates, name: str) -> list[Table | str]:
    missing = next((one for one in estimates.plan.not_found if one.column == name), None)
    if missing is not None:
        near = nearly_found(estimates.plan).get(name)
        return [
            f"Not found: {missing.why}." + ("" if near is None else f" It would be found at about epsilon={near:.3g}.")
        ]
    try:
        return _statistics(estimates, name)
    except ParameterError as error:
        return [str(error)]


def _statistics(estimates: Estimates, name: str) -> list[Table | str]:
    space = estimates.plan[name].space
    if space.holds_sets:
        support = estimates.support(name).sort_values("estimate", ascending=False, kind="stable")
        return _shares(f"Sets that hold each item of {name}", "Item", support)
    if space.holds_vectors:
        return _mean_curve(estimates, name)
    if has_few_values(space):
        counts = estimates.value_counts(name, normalize=True, sort=space.metric == "discrete", dropna=False)
        return _shares(f"Shares of the values of {name}", "Value", counts)
    rows = _mean(estimates, name)
    measured = any(name in measure.columns for measure in estimates.plan.measures)
    if space.size > FINEST and not measured:
        return rows
    binned = estimates.histogram(name, BINS)
    if space.is_whole and not space.is_time:
        # Intervals are closed on the left: their ends as they are would overlap, and go beyond the bounds.
        first, second = np.asarray(space.numbers(np.array([0, 1])), dtype=np.float64)
        binned.index = pd.Index([f"{_value(i.left)} … {_value(i.right - (second - first))}" for i in binned.index])
    else:
        # The last one is open to the right, and its end lies beyond the bound.
        _, high = _bounds(space)
        ends = [(_naive(i.left), min(_naive(i.right), high)) for i in binned.index]
        binned.index = pd.Index([f"{_value(left)} … {_value(right)}" for left, right in ends])
    shares = binned[["estimate", "lower", "upper"]].clip(lower=0.0) / max(estimates.n, 1)
    return [*rows, *_shares(f"Shares of {name} in bins", "From … to", shares)]


def _shares(caption: str, head: str, shares: pd.DataFrame) -> list[Table | str]:
    top = max(float(np.nanmax(shares["upper"].to_numpy(), initial=0.0)), 1e-9)
    shown = (
        shares
        if len(shares) <= MOST_ROWS
        else shares.nlargest(MOST_ROWS, "estimate").sort_index(key=shares.index.get_indexer)
    )
    rows = []
    for label, estimate, lower, upper in zip(
        shown.index, shown["estimate"], shown["lower"], shown["upper"], strict=True
    ):
        text = _interval(100 * estimate, 100 * lower, 100 * upper, lambda share: f"{share:.1f}", " %")
        rows.append((_label(label), text, interval_bar(estimate / top, lower / top, upper / top)))
    parts: list[Table | str] = [table(caption, (head, "#Share", "Interval"), rows, "bars", hide=True)]
    hidden = len(shares) - len(shown)
    parts.append(f"drawn from 0 to {100 * top:.3g} %, the largest upper end")
    return [*parts, f"and {hidden} more, each with a smaller share"] if hidden else parts


def _label(value: Any) -> str:
    return "(missing)" if pd.api.types.is_scalar(value) and pd.isna(value) else str(value)


def _value(value: Any) -> str:
    """Return a number or a time to read."""
    if isinstance(value, pd.Timestamp):
        return value.strftime("%Y-%m-%d")
    if isinstance(value, pd.Timedelta):
        return f"{number(value.total_seconds() / 86400)} days"
    return number(float(value))


def _bounds(space: Any) -> tuple[Any, Any]:
    """Return the least and the largest value, as numbers or times."""
    low, high = pd.Series(space.instants(space.numbers(np.array([0, space.values - 1]))))
    return low, high


def _mean(estimates: Estimates, name: str) -> list[Table | str]:
    mean = estimates.mean(name)
    low, high = _bounds(estimates.plan[name].space)
    point, lower, upper = (_naive(mean[key]) for key in ("estimate", "lower", "upper"))
    at, left, right = (float((value - low) / (high - low)) for value in (point, lower, upper))
    if not all(map(math.isfinite, (at, left, right))):
        return ["The mean is indistinguishable from noise."]
    text = _interval(point, lower, upper, _value)
    drawing = interval_bar(at, left, right, point=True)
    shown = table(
        f"Mean of {name}", ("Statistic", "#Estimate", "Interval"), [("Mean", text, drawing)], "bars", hide=True
    )
    notes = [
        f"About {100 * share:.2g} % of the rows seem to lie at the {bound} bound: if the table goes further, this is "
        "the mean of clipped values."
        for bound, share in estimates.clipped_at(name).items()
    ]
    return [shown, f"drawn from {_value(low)} to {_value(high)}", *notes]


def _mean_curve(estimates: Estimates, name: str) -> list[Table | str]:
    means = estimates.mean_curve(name)
    low, high = float(means["band_lower"].min()), float(means["band_upper"].max())
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return ["The mean is indistinguishable from noise."]
    shown = means.iloc[:: max(1, -(-len(means) // MOST_ROWS))]
    rows = []
    for position, row in shown.iterrows():
        text = _interval(row["estimate"], row["band_lower"], row["band_upper"], number)
        at, left, right = ((row[key] - low) / (high - low) for key in ("estimate", "band_lower", "band_upper"))
        rows.append((number(float(str(position))), text, interval_bar(at, left, right, point=True)))
    drawn = table(f"Mean of {name}", ("At", "#Estimate", "Band"), rows, "bars", hide=True)
    return [drawn, f"drawn from {number(low)} to {number(high)}; the intervals hold at all points at once"]


def _interval(point: Any, lower: Any, upper: Any, shown: Callable[[Any], str], unit: str = "") -> str:
    """Return an estimate and its interval to read: its ends, unless they are as good as equally far away."""
    below, above = point - lower, upper - point
    if abs(above - below) <= _EVEN * (above + below):
        text = f"{shown(point)}{unit} ± {shown((upper - lower) / 2)}"
    else:
        text = f"{shown(point)}{unit} ({shown(lower)} to {shown(upper)})"
    return text.replace("-", "−") if unit else text


def _naive(value: Any) -> Any:
    return value.tz_convert(None) if isinstance(value, pd.Timestamp) and value.tz is not None else value


def forecast_rows(plan: Plan, n: int) -> list[Sequence[object]]:
    """Return rows of column, statistic, half-width of its interval, and that as a bar of the statistic's range."""
    errors: dict[Any, float] = plan.forecast(n)["std_error"].to_dict()
    rows: list[Sequence[object]] = []
    unknown = {missing.column for missing in plan.not_found}
    for column in plan.columns:
        if column.name in unknown:
            rows.append((column.name, "not found", "", ""))
            continue
        for statistic in ("support", "mean curve", "mean", "marginal"):
            if (statistic, column.name) in errors:
                half = _Z * errors[statistic, column.name]
                rows.append((column.name, *_expected(statistic, half, column.space)))
                break
    return rows


def share_table(plan: Plan, n: int) -> Table | None:
    """Return the errors that measured tables would leave at other shares, as parts of the errors of only rows.

    The information of tables grows with their part of μ². The rows' own noise is taken as it is: it hardly follows the
    share.
    """
    steps = plan.steps
    if n < 1 or not plan.measures or not {"tables", "rows"} <= set(steps):
        return None
    own = float(steps["tables"].square / (steps["tables"].square + steps["rows"].square))
    forecast = plan.forecast(n)
    # Of single values of long numbers rows say nothing, and tables anything more.
    forecast = forecast[(forecast["unit"] != "share") | (forecast["rows_alone"] <= 1)]
    with np.errstate(divide="ignore", invalid="ignore"):
        told = (forecast["rows_alone"] / forecast["std_error"]) ** 2 - 1
    told = told[np.isfinite(told) & (told > 1e-9)]
    kinds = {name: told.xs(name).median() for name in told.index.unique(0) if name in KINDS}
    if not kinds:
        return None
    rows: list[Sequence[object]] = []
    for share in sorted([own, *(other for other in SHARES if abs(other - own) > 0.02)]):
        left = [1 / math.sqrt(1 + gain * share / own) for gain in kinds.values()]
        cells = [cell for part in left for cell in (f"{100 * part:.2g} %", bar(part))]
        rows.append((f"{100 * share:.3g} %" + (" (this release)" if share == own else ""), *cells))
    heads = [
        "Share of the tables",
        *(head for name in kinds for head in (f"#{KINDS[name].capitalize()}", "Drawn")),
    ]
    caption = (
        "Typical errors forecast with measured tables, as parts of the errors of only rows, if tables had another "
        "share of what the release gives away (μ²); the noise of rows is taken as it is"
    )
    return table(caption, heads, rows, "bars shares")


def _expected(statistic: str, half: float, space: Any) -> tuple[str, str, Drawing]:
    if statistic in ("mean", "mean curve"):
        unit = f" {unit_word(space.unit)}" if space.unit else ""
        return statistic, f"± {number(half)}{unit}", log_bar(half / (float(space.diameter) or 1.0))
    what = "share of sets that hold an item" if statistic == "support" else "share of rows with a value"
    if half > 1:
        return what, "no information", bar(1.0)
    return what, f"± {100 * half:.2g} percentage points", log_bar(half)
