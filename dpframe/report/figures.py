"""Estimates of a release's columns, and forecasts of its plan, as tables with bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from dpframe.errors import ParameterError
from dpframe.estimate import Estimates
from dpframe.plan.plan import Plan
from dpframe.plan.words import nearly_found
from dpframe.report.elements import Drawing, Table, bar, interval_bar, log_bar, table, unit_word
from dpframe.spaces import Space
from dpframe.spaces.cells import has_few_values
from dpframe.spaces.words import number

MAX_DRAWN_COLUMNS = 8
"""Columns that are drawn."""

MOST_ROWS = 10
"""Values of a column that are drawn."""

HISTOGRAM_BINS = 8

MAX_DRAWN_HISTOGRAM_VALUES = 256
"""Numeric columns of no more values, or in measured tables, are drawn as a histogram, too; other fits take longer."""

SHARES = (0.05, 0.2, 0.5, 0.8)
"""Shares of measured tables that are drawn."""

KINDS = {"marginal": "shares of values", "joint": "shares of pairs", "support": "supports", "mean": "means"}
"""A forecast's statistics in words."""

_SYMMETRY_TOLERANCE = 0.1
"""Part of an interval by which its halves may differ and be written as one number."""

INTERVAL_Z = NormalDist().inv_cdf(0.975)
"""Half-width of a 95 % interval, in standard errors."""


@dataclass(frozen=True)
class Figure:
    """The estimates of a column: tables, and notes."""

    name: str
    parts: tuple[Table | str, ...]


def estimate_figures(estimates: Estimates, context: Collection[str] = ()) -> list[Figure]:
    """Return a figure for each of the first columns outside the context, with estimates and intervals."""
    names = [name for name in estimates.plan.names if name not in context]
    return [Figure(name, tuple(_column_parts(estimates, name))) for name in names[:MAX_DRAWN_COLUMNS]]


def _column_parts(estimates: Estimates, name: str) -> list[Table | str]:
    finding = next((candidate for candidate in estimates.plan.not_found if candidate.column == name), None)
    if finding is not None:
        sufficient_epsilon = nearly_found(estimates.plan).get(name)
        return [
            f"Not found: {finding.why}."
            + ("" if sufficient_epsilon is None else f" It would be found at about epsilon={sufficient_epsilon:.3g}.")
        ]
    try:
        return _column_statistics(estimates, name)
    # A column without an estimate shows the reason.
    except ParameterError as error:
        return [str(error)]


def _column_statistics(estimates: Estimates, name: str) -> list[Table | str]:
    space = estimates.plan[name].space
    if space.holds_vectors:
        return _mean_curve_parts(estimates, name)
    shares = distribution(estimates, name)
    if space.holds_sets:
        assert shares is not None
        return _share_parts(f"Sets that hold each item of {name}", "Item", shares)
    if shows_single_values(space):
        assert shares is not None
        return _share_parts(f"Shares of the values of {name}", "Value", shares)
    rows = _mean_parts(estimates, name)
    return rows if shares is None else [*rows, *_share_parts(f"Shares of {name} in bins", "From … to", shares)]


def shows_single_values(space: Space) -> bool:
    """Return whether a column's values are drawn one by one; more numbers than `MOST_ROWS` are drawn in bins."""
    # The most frequent of many numbers would be those with the largest noise.
    return has_few_values(space) and (space.is_listed or space.values <= MOST_ROWS)


def distribution(estimates: Estimates, name: str) -> pd.DataFrame | None:
    """Return the shares of a column's values, bins or items with their intervals, by labels to read.

    None for vectors, and for fine grids without a measured table, whose law takes too long to fit.
    """
    space = estimates.plan[name].space
    if space.holds_vectors:
        return None
    if space.holds_sets:
        return estimates.support(name).sort_values("estimate", ascending=False, kind="stable")
    if shows_single_values(space):
        return estimates.value_counts(
            name, normalize=True, sort=space.metric == "discrete", dropna=estimates.together is not None
        )
    has_table = any(name in measure.columns for measure in estimates.plan.measures)
    if space.size > MAX_DRAWN_HISTOGRAM_VALUES and not has_table:
        return None
    bin_shares = estimates.histogram(name, HISTOGRAM_BINS)
    if space.is_whole and not space.is_time:
        # Intervals are closed on the left: their ends as they are would overlap, and go beyond the bounds.
        first_number, second_number = np.asarray(space.numbers(np.array([0, 1])), dtype=np.float64)
        bin_shares.index = pd.Index(
            [
                f"{value_text(interval.left)} … {value_text(interval.right - (second_number - first_number))}"
                for interval in bin_shares.index
            ]
        )
    else:
        # The last one is open to the right, and its end lies beyond the bound.
        _, high = _bounds(space)
        ends = [
            (_without_zone(interval.left), min(_without_zone(interval.right), high)) for interval in bin_shares.index
        ]
        bin_shares.index = pd.Index([f"{value_text(left)} … {value_text(right)}" for left, right in ends])
    return bin_shares[["estimate", "lower", "upper"]].clip(lower=0.0) / max(estimates.n, 1)


def _share_parts(caption: str, head: str, shares: pd.DataFrame) -> list[Table | str]:
    # Bars share one scale, which must not be zero if all estimates are.
    top = max(float(np.nanmax(shares["upper"].to_numpy(), initial=0.0)), 1e-9)
    largest_shares = (
        shares
        if len(shares) <= MOST_ROWS
        else shares.nlargest(MOST_ROWS, "estimate").sort_index(key=shares.index.get_indexer)
    )
    rows = []
    for label, estimate, lower, upper in zip(
        largest_shares.index, largest_shares["estimate"], largest_shares["lower"], largest_shares["upper"], strict=True
    ):
        text = _interval_text(100 * estimate, 100 * lower, 100 * upper, lambda share: f"{share:.1f}", " %")
        rows.append((_label_text(label), text, interval_bar(estimate / top, lower / top, upper / top)))
    parts: list[Table | str] = [table(caption, (head, "#Share", "Interval"), rows, "bars", hide=True)]
    hidden_count = len(shares) - len(largest_shares)
    parts.append(f"drawn from 0 to {100 * top:.3g} %, the largest upper end")
    return [*parts, f"and {hidden_count} more, each with a smaller share"] if hidden_count else parts


def _label_text(value: Any) -> str:
    return "(missing)" if pd.api.types.is_scalar(value) and pd.isna(value) else str(value)


def value_text(value: Any) -> str:
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


def _mean_parts(estimates: Estimates, name: str) -> list[Table | str]:
    mean = estimates.mean(name)
    low, high = _bounds(estimates.plan[name].space)
    # pandas refuses a difference between a time with a zone and a bound without one.
    point, lower, upper = (_without_zone(mean[key]) for key in ("estimate", "lower", "upper"))
    point_share, lower_share, upper_share = (float((value - low) / (high - low)) for value in (point, lower, upper))
    if not all(map(math.isfinite, (point_share, lower_share, upper_share))):
        return ["The mean is indistinguishable from noise."]
    text = _interval_text(point, lower, upper, value_text)
    drawing = interval_bar(point_share, lower_share, upper_share, point=True)
    mean_table = table(
        f"Mean of {name}", ("Statistic", "#Estimate", "Interval"), [("Mean", text, drawing)], "bars", hide=True
    )
    notes = [
        f"About {100 * share:.2g} % of the rows seem to lie at the {bound} bound: if the table goes further, this is "
        "the mean of clipped values."
        for bound, share in estimates.clipped_at(name).items()
    ]
    return [mean_table, f"drawn from {value_text(low)} to {value_text(high)}", *notes]


def _mean_curve_parts(estimates: Estimates, name: str) -> list[Table | str]:
    means = estimates.mean_curve(name)
    low, high = float(means["band_lower"].min()), float(means["band_upper"].max())
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return ["The mean is indistinguishable from noise."]
    sampled_means = means.iloc[:: max(1, -(-len(means) // MOST_ROWS))]
    rows = []
    for position, row in sampled_means.iterrows():
        text = _interval_text(row["estimate"], row["band_lower"], row["band_upper"], number)
        point_share, lower_share, upper_share = (
            (row[key] - low) / (high - low) for key in ("estimate", "band_lower", "band_upper")
        )
        rows.append(
            (number(float(str(position))), text, interval_bar(point_share, lower_share, upper_share, point=True))
        )
    mean_table = table(f"Mean of {name}", ("At", "#Estimate", "Band"), rows, "bars", hide=True)
    return [mean_table, f"drawn from {number(low)} to {number(high)}; the intervals hold at all points at once"]


def _interval_text(point: Any, lower: Any, upper: Any, to_text: Callable[[Any], str], unit: str = "") -> str:
    """Return an estimate and its interval to read: its ends, unless they are as good as equally far away."""
    below, above = point - lower, upper - point
    if abs(above - below) <= _SYMMETRY_TOLERANCE * (above + below):
        text = f"{to_text(point)}{unit} ± {to_text((upper - lower) / 2)}"
    else:
        text = f"{to_text(point)}{unit} ({to_text(lower)} to {to_text(upper)})"
    # Dates keep their hyphens: only shares, which have a unit, get minus signs.
    return text.replace("-", "−") if unit else text


def _without_zone(value: Any) -> Any:
    return value.tz_convert(None) if isinstance(value, pd.Timestamp) and value.tz is not None else value


def forecast_rows(plan: Plan, n: int) -> list[Sequence[object]]:
    """Return rows of column, statistic, half-width of its interval, and that as a bar of the statistic's range."""
    errors: dict[Any, float] = plan.forecast(n)["std_error"].to_dict()
    rows: list[Sequence[object]] = []
    missing_names = {finding.column for finding in plan.not_found}
    for column in plan.columns:
        if column.name in missing_names:
            rows.append((column.name, "not found", "", ""))
            continue
        for statistic in ("support", "mean curve", "mean", "marginal"):
            if (statistic, column.name) in errors:
                half = INTERVAL_Z * errors[statistic, column.name]
                rows.append((column.name, *_expected_cells(statistic, half, column.space)))
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
    release_share = float(steps["tables"].square / (steps["tables"].square + steps["rows"].square))
    forecast = plan.forecast(n)
    # Of single values of long numbers rows say nothing, and tables anything more.
    forecast = forecast[(forecast["unit"] != "share") | (forecast["rows_alone"] <= 1)]
    with np.errstate(divide="ignore", invalid="ignore"):
        information_gains = (forecast["rows_alone"] / forecast["std_error"]) ** 2 - 1
    information_gains = information_gains[np.isfinite(information_gains) & (information_gains > 1e-9)]
    kinds = {name: information_gains.xs(name).median() for name in information_gains.index.unique(0) if name in KINDS}
    if not kinds:
        return None
    rows: list[Sequence[object]] = []
    for share in sorted(
        [release_share, *(drawn_share for drawn_share in SHARES if abs(drawn_share - release_share) > 0.02)]
    ):
        error_ratios = [1 / math.sqrt(1 + gain * share / release_share) for gain in kinds.values()]
        cells = [cell for error_ratio in error_ratios for cell in (f"{100 * error_ratio:.2g} %", bar(error_ratio))]
        rows.append((f"{100 * share:.3g} %" + (" (this release)" if share == release_share else ""), *cells))
    heads = [
        "Share of the tables",
        *(head for name in kinds for head in (f"#{KINDS[name].capitalize()}", "Drawn")),
    ]
    caption = (
        "Typical errors forecast with measured tables, as parts of the errors of only rows, if tables had another "
        "share of what the release gives away (μ²); the noise of rows is taken as it is"
    )
    return table(caption, heads, rows, "bars shares")


def _expected_cells(statistic: str, half: float, space: Any) -> tuple[str, str, Drawing]:
    if statistic in ("mean", "mean curve"):
        unit = f" {unit_word(space.unit)}" if space.unit else ""
        return statistic, f"± {number(half)}{unit}", log_bar(half / (float(space.diameter) or 1.0))
    share_text = "share of sets that hold an item" if statistic == "support" else "share of rows with a value"
    if half > 1:
        return share_text, "no information", bar(1.0)
    return share_text, f"± {100 * half:.2g} percentage points", log_bar(half)
