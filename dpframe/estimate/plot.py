"""Pictures of estimates, with their intervals (needs matplotlib: ``pip install matplotlib``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dpframe.errors import ParameterError
from dpframe.spaces.cells import has_few_values

MOST_CURVES = 8
"""Largest number of mean curves in one picture (limit of a picture)."""


def draw(estimates: Any, columns: tuple[str, ...], ax: Any, options: dict[str, Any]) -> Any:
    """Draw one column's marginal or histogram, or two columns' cross table, and return the axes."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise ParameterError("plots need matplotlib; install it with pip install matplotlib") from None
    if len(columns) not in (1, 2):
        raise ParameterError("plot takes one column, or two for a cross table")
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    if len(columns) == 2:
        return _draw_cross_table(estimates.crosstab(*columns, **options), ax)
    space = estimates.plan[columns[0]].space
    if has_few_values(space):
        return _draw_bars(estimates.value_counts(columns[0], sort=False, **options), ax)
    if space.holds_vectors:
        return draw_curve(estimates.mean_curve(columns[0], **options), ax)
    if space.holds_sets:
        return _draw_bars(estimates.support(columns[0], **options), ax, "share of rows")
    return _draw_histogram(estimates.histogram(columns[0], **options), ax)


def _interval_lengths(table: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Return the distances from estimates to the ends of intervals, shape (2, rows)."""
    point = table["estimate"].to_numpy()
    return np.asarray(np.abs(np.stack([point - table["lower"].to_numpy(), table["upper"].to_numpy() - point])))


def _draw_bars(table: pd.DataFrame, ax: Any, unit: str = "rows") -> Any:
    places = np.arange(len(table))
    ax.barh(places, table["estimate"], color="#6b8fb4")
    ax.errorbar(table["estimate"], places, xerr=_interval_lengths(table), fmt="none", ecolor="#222222", capsize=2)
    ax.set_yticks(places, [str(label) for label in table.index])
    ax.invert_yaxis()
    ax.set(xlabel=f"{unit} (estimate, interval)", ylabel=table.index.name)
    return ax


def draw_curve(table: pd.DataFrame, ax: Any) -> Any:
    """Draw the mean curve of each group with its band, which holds at all points at once.

    Among many groups only the groups with the narrowest bands are drawn.
    """
    is_single = table.index.nlevels == 1
    groups = [("mean", table)] if is_single else list(table.groupby(level=0, sort=False, observed=True))
    width = [float((part["band_upper"] - part["band_lower"]).max()) for _, part in groups]
    narrowest = sorted(np.argsort(width, kind="stable")[:MOST_CURVES])
    groups_drawn = [groups[i] for i in narrowest if np.isfinite(width[i])]
    for name, part in groups_drawn:
        places = part.index.get_level_values(-1).to_numpy(dtype=float)
        (line,) = ax.plot(places, part["estimate"], label=str(name))
        ax.fill_between(places, part["band_lower"], part["band_upper"], alpha=0.25, color=line.get_color())
    ax.set(xlabel=table.index.names[-1], ylabel="mean (estimate, band)")
    if not is_single:
        omitted_count = len(groups) - len(groups_drawn)
        # Only a layout engine makes space for a legend beside the axes; otherwise matplotlib places it inside.
        place: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if ax.figure.get_layout_engine() else {}
        omitted_text = f"\n({omitted_count} more, less certain)" if omitted_count else ""
        ax.legend(title=f"{table.index.names[0]}{omitted_text}", **place)
    return ax


def _draw_histogram(table: pd.DataFrame, ax: Any) -> Any:
    starts = [interval.left for interval in table.index]
    width = [interval.length for interval in table.index]
    middle = [interval.mid for interval in table.index]
    ax.bar(starts, table["estimate"], width=width, align="edge", color="#6b8fb4", edgecolor="white")
    ax.errorbar(middle, table["estimate"], yerr=_interval_lengths(table), fmt="none", ecolor="#222222", capsize=2)
    ax.set(xlabel=table.index.name, ylabel="rows (estimate, interval)")
    return ax


def _draw_cross_table(table: pd.DataFrame, ax: Any) -> Any:
    point, half_width = table["estimate"], (table["upper"] - table["lower"]) / 2
    image = ax.imshow(point.to_numpy(dtype=float), cmap="Blues", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="rows (estimate ± half of the interval)")
    ax.set_xticks(range(point.shape[1]), [str(label) for label in point.columns], rotation=45, ha="right")
    ax.set_yticks(range(point.shape[0]), [str(label) for label in point.index])
    ax.set(xlabel=point.columns.name, ylabel=point.index.name)
    # Numbers fit only into the cells of a small table.
    if point.size <= 60:
        cells, half_widths = point.to_numpy(dtype=float), half_width.to_numpy(dtype=float)
        dark = np.nanmax(cells) / 2
        for i, j in np.ndindex(*point.shape):
            value, half = cells[i, j], half_widths[i, j]
            text = f"{value:,.0f}\n±{half:,.0f}" if abs(dark) > 1 else f"{value:.3f}\n±{half:.3f}"
            ax.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if value > dark else "black")
    return ax
