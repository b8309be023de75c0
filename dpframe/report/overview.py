"""What a release holds: one row per column, with its shape, its typical error and a verdict."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from math import inf, isfinite
from typing import Any

import numpy as np
import pandas as pd

from dpframe.accounting.budget import upward
from dpframe.errors import DpframeWarning, ParameterError, align_cells
from dpframe.estimate import Estimates
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
from dpframe.plan.words import first_digit, nearly_found, shorten
from dpframe.release.info import NUMBERS, ReleaseInfo
from dpframe.release.reader import Source
from dpframe.report.elements import Drawing, Table, histogram_drawing, table, unit_word
from dpframe.report.figures import INTERVAL_Z, distribution, shows_single_values
from dpframe.spaces.words import number

GOOD_HALF_WIDTH_SHARE, ROUGH_HALF_WIDTH_SHARE = 0.05, 0.25
"""Half-widths of 95 % intervals, in parts of all rows or of a column's range, up to which a column is good or rough."""

MAX_OVERVIEW_COLUMNS = 40
"""Limit on the columns of an overview: more do not fit on a screen, and each costs a law."""

MAX_ADVISED_EPSILON = 20.0
"""Limit on the epsilon that a remedy names: a larger one promises next to nothing."""

_CENTRAL_SHARES = (0.025, 0.975)
"""Quantiles between which most rows lie: wide bounds make any error a small part of the range."""

MAX_DRAWN_SHARES = 16
"""Limit on the values of a column that are drawn: of unordered values the most frequent."""

_SPARKS = "▁▂▃▄▅▆▇█"

_FORECAST_STATISTICS = ("support", "mean curve", "mean", "marginal")
"""Statistics by which a column is judged without estimates: the first that its forecast has."""

_VERDICTS = ("good", "rough", "hidden", "not found")

_CELL_STYLE = "text-align: left; padding: 0.2em 0.9em 0.2em 0; vertical-align: middle"


@dataclass(frozen=True)
class HalfWidth:
    """Half-width of a column's typical 95 % interval, as text and in parts of all rows or of the column's range."""

    text: str
    share: float


@dataclass(frozen=True)
class ColumnOverview:
    """One column of a release: its space, its shape, its typical error, and what can be done.

    ``shares``: estimates of the shares of its values, bins or items with ``lower`` and ``upper``, in their order, or
    None. ``verdict``: good, rough, hidden (by noise) or not found.
    """

    name: str
    space: str
    shares: pd.DataFrame | None
    error: str
    verdict: str
    remedy: str

    @property
    def sparkline(self) -> str:
        """The shares as characters of eight heights, for a terminal."""
        if self.shares is None:
            return ""
        shares = self.shares["estimate"].fillna(0.0).clip(lower=0.0).to_numpy()
        heights = np.rint(shares / max(shares.max(initial=0.0), 1e-9) * (len(_SPARKS) - 1)).astype(int)
        return "".join(_SPARKS[height] for height in heights)

    @property
    def drawing(self) -> Drawing | str:
        """The shares as a small histogram with the band of their intervals."""
        if self.shares is None:
            return ""
        return histogram_drawing(*(self.shares[key].fillna(0.0).tolist() for key in ("estimate", "lower", "upper")))


@dataclass(frozen=True)
class Overview:
    """The columns of a release with their verdicts; prints as text, and shows as a table in a notebook.

    ``title`` names the release; ``notes`` are lines above the table, ``legend`` those below it.
    """

    columns: tuple[ColumnOverview, ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()

    @property
    def brief(self) -> str:
        """The numbers of columns by verdict, in one line.

        >>> empty = {"space": "", "shares": None, "error": "", "remedy": ""}
        >>> columns = [ColumnOverview("a", verdict="good", **empty), ColumnOverview("b", verdict="rough", **empty)]
        >>> Overview(tuple(columns)).brief
        'of 2 columns 1 is good, 1 is rough'
        """
        counts = [(verdict, sum(column.verdict == verdict for column in self.columns)) for verdict in _VERDICTS]
        parts = [f"{count} {'is' if count == 1 else 'are'} {verdict}" for verdict, count in counts if count]
        return f"of {len(self.columns)} column{'s' * (len(self.columns) != 1)} {', '.join(parts)}"

    @cached_property
    def table(self) -> Table:
        """The columns as a table of a page."""
        rows = [(c.name, c.space, c.drawing, c.error, c.verdict, c.remedy) for c in self.columns]
        heads = ("Column", "Values", "Shape", "Typical ±", "Verdict", "Remedy")
        return table("Columns of the release", heads, rows, "overview", hide=True)

    @property
    def lines(self) -> list[str]:
        """The notes, and the columns as lines of a terminal."""
        rows = [[c.name, c.space, c.sparkline, c.error, c.verdict, c.remedy] for c in self.columns]
        heads = ["column", "values", "shape", "typical ±", "verdict", "remedy"]
        return [*self.notes, *(align_cells([heads, *rows]) if rows else [])]

    def __str__(self) -> str:
        return "\n".join([f"<{self.title}>", *self.lines, *self.legend])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heads = "".join(f'<th style="{_CELL_STYLE}">{escape(head.text)}</th>' for head in self.table.heads)
        rows = "".join(
            "<tr>"
            + "".join(
                f'<td style="{_CELL_STYLE}">{cell.to_svg() if isinstance(cell, Drawing) else escape(str(cell))}</td>'
                for cell in row
            )
            + "</tr>"
            for row in self.table.rows
        )
        notes = "".join(f"<li>{escape(line)}</li>" for line in self.notes)
        table = f'<table style="color: inherit"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        body = table if rows else ""
        legend = f"<p>{'<br>'.join(map(escape, self.legend))}</p>" if self.legend else ""
        return f"<div><strong>{escape(self.title)}</strong><ul>{notes}</ul>{body}{legend}</div>"


def overview(plan: Plan, n: int, estimates: Estimates | None = None) -> Overview:
    """Return the columns of a release with their verdicts.

    A column is good if the half-width of a typical 95 % interval is at most 5 % of all rows (counts of a value) or of
    the range of most rows (the mean of a number), rough up to 25 %, and hidden beyond. Without ``estimates`` of the
    release the plan's forecast gives the half-widths, and nothing is drawn.
    """
    findings = {finding.column: finding for finding in plan.not_found}
    sufficient_epsilons = nearly_found(plan)
    errors: Mapping[Any, float] = plan.forecast(n)["std_error"].to_dict() if n and plan.columns else {}
    columns = []
    for column in plan.columns[:MAX_OVERVIEW_COLUMNS]:
        name = column.name
        if name in findings:
            remedy = f"spaces={{{name!r}: {findings[name].placeholder}}}"
            if column.space.is_listed and column.space.values == 1:
                # No value cleared the threshold, as each date is rare: dates as text need a type, not categories.
                remedy += "; parse dates first"
            if name in sufficient_epsilons:
                remedy += f", or epsilon={sufficient_epsilons[name]:.2g}"
            columns.append(ColumnOverview(name, "", None, "", "not found", remedy))
            continue
        shares, forecast = None, _forecast_half_width(errors, column, n)
        half_width = forecast
        if estimates is not None:
            # Each warning belongs to an answer of its own; the overview shows its interval.
            with warnings.catch_warnings(action="ignore", category=DpframeWarning):
                shares, half_width = _estimate_column(estimates, column, forecast)
            shares = None if shares is None else shares.head(MAX_DRAWN_SHARES)
        verdict = _verdict(half_width.share)
        # Intervals end at the possible values, and then are shorter than the noise, which the forecast has whole.
        remedy = "" if verdict == "good" else _remedy(max(half_width.share, forecast.share), plan)
        values = shorten(column.space.contents, 36)
        columns.append(ColumnOverview(name, values, shares, half_width.text, verdict, remedy))
    return Overview(tuple(columns))


def _verdict(share: float) -> str:
    if share <= GOOD_HALF_WIDTH_SHARE:
        return "good"
    return "rough" if share <= ROUGH_HALF_WIDTH_SHARE else "hidden"


def _remedy(share: float, plan: Plan) -> str:
    """Return the advice for a half-width: noise shrinks about as epsilon grows."""
    sufficient_epsilon = plan.epsilon * share / GOOD_HALF_WIDTH_SHARE
    if sufficient_epsilon > MAX_ADVISED_EPSILON:
        return "pool values, or release more rows"
    return f"good at about epsilon={first_digit(sufficient_epsilon):g}"


def _estimate_column(
    estimates: Estimates, column: Column, forecast: HalfWidth
) -> tuple[pd.DataFrame | None, HalfWidth]:
    """Return the shares of a column and its typical half-width, by its estimates; the forecast if it has none."""
    space, name = column.space, column.name
    try:
        shares = distribution(estimates, name)
        if space.holds_vectors:
            curve = estimates.mean_curve(name)
            half = float(((curve["upper"] - curve["lower"]) / 2).median())
            share = half / (float(space.diameter) or 1.0)
            return None, HalfWidth(f"mean ± {_two_digits(half)} a point", share) if isfinite(share) else forecast
        if shares is not None and (space.holds_sets or shows_single_values(space)):
            # An older pandas warns of the median of nothing, which a table without rows has.
            halves = ((shares["upper"] - shares["lower"]) / 2).dropna()
            half = float(halves.median()) if len(halves) else inf
            return shares, _count_half_width(half, estimates.n, space.holds_sets)
        mean = estimates.mean(name)
        half_width: Any = (mean["upper"] - mean["lower"]) / 2
        low, high = (estimates.quantile(name, share)["estimate"] for share in _CENTRAL_SHARES)
    # A column without such an estimate keeps its forecast.
    except ParameterError:
        return None, forecast
    width: Any = high - low
    if pd.isna(half_width) or pd.isna(width):
        return shares, forecast
    return shares, HalfWidth(f"mean ± {_two_digits(half_width)}", float(half_width / width) if width else inf)


def _two_digits(half_width: Any) -> str:
    """Return a half-width rounded to two significant digits; of times in days."""
    days = isinstance(half_width, pd.Timedelta)
    size = half_width.total_seconds() / 86_400 if days else float(half_width)
    return number(float(f"{size:.2g}")) + " days" * days


def _count_half_width(share: float, n: int, of_items: bool) -> HalfWidth:
    if not isfinite(share):
        return HalfWidth("", inf)
    return HalfWidth(f"± {_two_digits(share * n)} rows {'an item' if of_items else 'a value'}", share)


def _forecast_half_width(errors: Mapping[Any, float], column: Column, n: int) -> HalfWidth:
    """Return a column's typical half-width by the plan's forecast; without a forecast it is infinite."""
    space = column.space
    statistic = next((name for name in _FORECAST_STATISTICS if (name, column.name) in errors), None)
    if statistic is None:
        return HalfWidth("", inf)
    half = INTERVAL_Z * float(errors[statistic, column.name])
    if statistic in ("mean", "mean curve"):
        unit = f" {unit_word(space.unit)}" if space.unit else ""
        # A column with a single value has no range.
        return HalfWidth(f"mean ± {_two_digits(half)}{unit}", half / (float(space.diameter) or 1.0))
    return _count_half_width(half, n, statistic == "support")


def release_overview(info: ReleaseInfo, frame: Any = None, last_line: str = NUMBERS) -> Overview:
    """Return the overview of a release: its promise, its columns, and how to ask them, in ``last_line``.

    Without a ``frame`` or file nothing is estimated: the plan's forecast judges the columns.
    """
    plan, notes = info.plan, info.lines()
    estimates: Estimates | None = None
    if plan.located != plan.release and info.together is None:
        notes.append(
            f"Quote epsilon={plan.epsilon:g}, delta={plan.delta:.3g}: it holds against anyone who sees the release; "
            f"epsilon={upward(plan.located.epsilon)} also against someone who knows a person's row"
        )
    if frame is not None:
        # Estimates of other rows than the released ones would be wrong.
        if Source(frame, None, quiet=True).verify():
            estimates = Estimates(frame)
        else:
            notes.append("The rows are not those that were released: each ± is the plan's forecast")
    columns = tuple(c for c in overview(plan, info.n, estimates).columns if c.name not in info.left_out)
    more = len(plan.columns) - len(info.left_out) - len(columns)
    legend = [f"and {more} more columns: .dp.report() has all"] * (more > 0)
    return Overview(columns, f"DataFrame.dp: {info.introduction}", tuple(notes), (*legend, last_line))
