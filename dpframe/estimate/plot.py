"""Pictures of estimates, with their intervals (needs matplotlib: ``pip install matplotlib``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.errors import ParameterError
from dpframe.estimate.answer_options import to_rows
from dpframe.estimate.results import DESCRIBED, RESULTS
from dpframe.spaces.cells import has_few_values

MOST_CURVES = 8
"""Largest number of mean curves, or of colours of groups, in one picture (limit of a picture)."""

_GROUP_SPREAD = 0.6
"""Part of the distance between two labels that the points of one label take (limit of a picture)."""

Result = pd.Series | pd.DataFrame


def error_bars(result: pd.Series[Any] | pd.DataFrame) -> npt.NDArray[Any]:
    """Return the distances from estimates to both ends of their intervals, as matplotlib's ``yerr`` takes them.

    Parameters
    ----------
    result
        A result of a statistic: an answer, a frame of answers, a tidy frame or a cross table.

    Returns
    -------
    Array of shape (2, n) for n answers, the lower distances first, in the unit of the estimates (of times Python's
    ``timedelta``). Of a cross table the shape is (columns, 2, rows), for ``table["estimate"].plot.bar(yerr=…)``.

    Raises
    ------
    ParameterError
        If the result has no intervals.

    Examples
    --------
    >>> import dpframe as dpf
    >>> frame = dpf.datasets.make_census(2_000, columns=["sex"])
    >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"sex": ["F", "M"]}, key=bytes(32))
    >>> error_bars(safe.dp.value_counts("sex")).round()
    array([[2., 2.],
           [2., 2.]])
    """
    has_parts = isinstance(result, Result) and {"estimate", "lower", "upper"} <= {
        *(result.index if isinstance(result, pd.Series) else result.columns.get_level_values(0))
    }
    if not has_parts:
        raise ParameterError("result must have estimate, lower and upper, as safe.dp.mean('age') has")
    table = to_rows(result) if isinstance(result, pd.Series) else result
    # A wide table has one column per group: matplotlib's axis of two ends comes before the rows.
    point, lower, upper = (table[part].to_numpy().T for part in ("estimate", "lower", "upper"))
    lengths: npt.NDArray[Any] = np.abs(np.stack([point - lower, upper - point], axis=point.ndim - 1))
    # matplotlib adds them to Python's datetimes.
    return lengths.astype("m8[us]").astype(object) if lengths.dtype.kind == "m" else lengths


def draw(estimates: Any, questions: tuple[Any, ...], ax: Any, options: dict[str, Any]) -> Any:
    """Draw a result, one column's marginal or histogram, or two columns' cross table, and return the axes."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise ParameterError("plots need matplotlib; install it with pip install matplotlib") from None
    has_result = any(isinstance(question, Result) for question in questions)
    if has_result and (options or len(questions) > 1):
        raise ParameterError('plot draws one result without options; pass options to its statistic, e.g. mean("age")')
    if len(questions) not in (1, 2):
        raise ParameterError("plot takes one column, or two for a cross table, or the result of a statistic")
    if has_result:
        result = _convert_to_days(questions[0])
        bars = error_bars(result)  # refuses what has no intervals before there is a figure
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    if has_result:
        return _draw_result(result, bars, ax)
    if len(questions) == 2:
        return _draw_cross_table(estimates.crosstab(*questions, **options), ax, "rows")
    (column,) = questions
    space = estimates.plan[column].space
    if has_few_values(space):
        return _draw_bars(estimates.value_counts(column, sort=False, **options), ax)
    if space.holds_vectors:
        return draw_curve(estimates.mean_curve(column, **options), ax)
    if space.holds_sets:
        return _draw_bars(estimates.support(column, **options), ax, "share of rows")
    return _draw_histogram(estimates.histogram(column, **options), ax)


def _convert_to_days(result: Any) -> Any:
    """Return a result whose durations are numbers of days, as matplotlib has no axis of durations."""
    table: Any = to_rows(result) if isinstance(result, pd.Series) else result
    is_duration = "estimate" in table and getattr(table["estimate"], "dtype", np.dtype(float)).kind == "m"
    return table.assign(**{part: table[part] / pd.Timedelta(days=1) for part in RESULTS}) if is_duration else result


def _draw_result(result: Any, bars: npt.NDArray[Any], ax: Any) -> Any:
    """Draw the result of a statistic with its intervals."""
    if bars.ndim == 3:
        return _draw_cross_table(result, ax, "estimate", is_coloured=list(result.index) != list(DESCRIBED))
    table = to_rows(result)
    keys = list(table.columns[: list(table.columns).index("estimate")])
    # A tidy frame has its keys as columns.
    table = table.set_index(keys) if keys else table
    if "band_lower" in table:
        return draw_curve(table, ax)
    index = table.index
    if isinstance(index, pd.IntervalIndex):
        ax.errorbar(index.mid, table["estimate"], yerr=bars, xerr=index.length / 2, fmt="o", capsize=3)
        ax.set(xlabel=index.name, ylabel=_value_label(table))
    elif index.nlevels == 1 and pd.api.types.is_numeric_dtype(index.dtype):
        ax.errorbar(index, table["estimate"], yerr=bars, fmt="o", capsize=3)
        ax.set(xlabel=index.name, ylabel=_value_label(table))
    else:
        _draw_points(table, bars, ax)
    return ax


def _value_label(table: pd.DataFrame) -> str:
    """Return the label of the axis of a result's estimates."""
    return f"{table.attrs.get('statistic', 'estimate')}, with its interval"


def _draw_points(table: pd.DataFrame, bars: npt.NDArray[Any], ax: Any) -> None:
    """Draw a point with its interval for each label; of two keys the second is a colour, if it has few values."""
    index = table.index
    has_two_keys = index.nlevels == 2 and index.names[-1] != "minus"
    colours: Sequence[Any] = list(index.get_level_values(-1).unique()) if has_two_keys else []
    if 1 < len(colours) <= MOST_CURVES:
        labels, groups = index.get_level_values(0), index.get_level_values(-1)
        shifts = np.linspace(-_GROUP_SPREAD / 2, _GROUP_SPREAD / 2, len(colours))
    else:
        joint = " − " if index.names[-1] == "minus" else ", "
        labels = pd.Index([joint.join(map(str, label)) if isinstance(label, tuple) else str(label) for label in index])
        groups, colours, shifts = pd.Index([""] * len(index)), [""], np.zeros(1)
    ticks = labels.unique()
    places = ticks.get_indexer(labels)
    for colour, shift in zip(colours, shifts, strict=True):
        of_group = groups == colour
        ax.errorbar(
            table["estimate"][of_group],
            places[of_group] + shift,
            xerr=bars[:, of_group],
            fmt="o",
            capsize=3,
            label=str(colour),
        )
    if len(colours) > 1:
        ax.legend(title=index.names[-1])
    if {"formula", "means"} & {*table.attrs}:
        # Coefficients and differences are read against zero.
        ax.axvline(0, color="#888888", linewidth=0.8, zorder=0)
    ax.set_yticks(range(len(ticks)), [str(label) for label in ticks])
    ax.invert_yaxis()
    is_named = index.names[0] != "column" and (len(colours) > 1 or index.nlevels == 1)
    ax.set(xlabel=_value_label(table), ylabel=index.names[0] if is_named else None)


def _draw_bars(table: pd.DataFrame, ax: Any, unit: str = "rows") -> Any:
    places = np.arange(len(table))
    ax.barh(places, table["estimate"], color="#6b8fb4")
    ax.errorbar(table["estimate"], places, xerr=error_bars(table), fmt="none", ecolor="#222222", capsize=2)
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
    ax.errorbar(middle, table["estimate"], yerr=error_bars(table), fmt="none", ecolor="#222222", capsize=2)
    ax.set(xlabel=table.index.name, ylabel="rows (estimate, interval)")
    return ax


def _draw_cross_table(table: pd.DataFrame, ax: Any, unit: str, is_coloured: bool = True) -> Any:
    """Draw a heat map; without colours for rows of different units."""
    point, half_width = table["estimate"], (table["upper"] - table["lower"]) / 2
    cells, half_widths = point.to_numpy(dtype=float), half_width.to_numpy(dtype=float)
    largest = float(np.nanmax(np.abs(cells), initial=0.0))
    if not is_coloured:
        ax.imshow(np.zeros(cells.shape), cmap="Greys", vmin=0, vmax=1, aspect="auto")
    else:
        has_negative = bool((cells < 0).any())
        colours: Any = {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest} if has_negative else {"cmap": "Blues"}
        image = ax.imshow(cells, aspect="auto", **colours)
        ax.figure.colorbar(image, ax=ax, label=f"{unit} (estimate ± half of the interval)")
    ax.set_xticks(range(point.shape[1]), [str(label) for label in point.columns], rotation=45, ha="right")
    ax.set_yticks(range(point.shape[0]), [str(label) for label in point.index])
    ax.set(xlabel=point.columns.name, ylabel=point.index.name)
    # Numbers fit only into the cells of a small table.
    if point.size <= 60:
        for i, j in np.ndindex(*point.shape):
            value, half = cells[i, j], half_widths[i, j]
            text = f"{value:,.0f}\n±{half:,.0f}" if largest > 2 else f"{value:.3f}\n±{half:.3f}"
            is_dark = is_coloured and abs(value) > largest / 2
            ax.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if is_dark else "black")
    return ax
