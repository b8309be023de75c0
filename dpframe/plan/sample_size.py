"""Size of a secret sample: the error of a named statistic, forecast over the sample's size.

A smaller sample needs less noise in each of its rows for an equal budget. But there are fewer rows, and their choice
adds to the error. The best size depends on the statistic, the columns and the accounting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpframe.accounting import best_sample
from dpframe.accounting.budget import compose
from dpframe.channels import ResponseChannel
from dpframe.errors import ParameterError, check_whole, name_list
from dpframe.forecast.forecast import STATISTICS, Forecast
from dpframe.plan.calibration import AccountingContext, recalibrate
from dpframe.plan.columns import Group, Randomised
from dpframe.plan.data import PlanData

if TYPE_CHECKING:
    import pandas as pd

_CURVES = ("joint", "marginal", "mean", "support")
"""Statistics with a curve."""

_LEAST_SAMPLE_SHARE = 1e-4
"""Least share of the rows on a curve (tolerance)."""

_SEARCH_POINTS = 12
"""Points of the curve in the search for the best size (limit of time)."""

Point = tuple[float, float, float, float]
"""Loss of the columns of a row, the error, and the theorem's bounds, NaN if it does not hold."""

_BOUNDS = ["bound_printed", "bound"]
_NO_BOUNDS = math.nan, math.nan

_EVEN_POINT_SHARE = 0.6
"""Share of a curve's points that are spread evenly; the others approach the best (tolerance)."""


def sample_curve_of(
    plan: PlanData, statistic: str = "joint", columns: Sequence[str] | None = None, points: int = 25
) -> pd.DataFrame:
    """Return the error of a statistic for secret samples of any size, at an equal budget, with the best size.

    Parameters
    ----------
    statistic
        ``"joint"``, ``"marginal"`` (the root mean square over the columns), ``"mean"`` (of one column) or
        ``"support"`` (of a rare item of sets).
    columns
        Columns of the statistic; by default all that it fits.
    points
        Sample sizes to calibrate the plan for: more than half of them even, the others about the best.

    Returns
    -------
    DataFrame indexed by ``sample``, the number of rows, with ``row_epsilon``, what the columns of one row may lose
    together, ``std_error`` as `forecast` has it, for uniform values and the table as target, and ``best``.
    ``curve["std_error"].plot(loglog=True)`` draws it.

    If the sampling paper's Theorem III.4 holds, for the joint of all columns of a plan that are one group (or a
    single column) under randomised response, at δ = 0 and so without credit for the order, ``attrs["theorem"]``
    is the size that it finds best, and two columns bound the expected ℓ₂ error of the K cells' shares (as a root
    mean square over cells, ``std_error`` is √K smaller): ``bound_printed``, (c√K + 1)/√m as in the paper, and
    ``bound``, (c + 1)/√m, with c = (γ + K − 1)/(γ − 1). Proof of the latter: c is the norm of the channel's
    inverse on vectors that sum to 0, and of m rows the released types are within 1/√m of their law, in mean
    square, as are the sample's types of the table's.

    Raises
    ------
    ParameterError
        If the plan does not know its number of rows, or for a statistic or columns that are not known.

    Examples
    --------
    >>> from dpframe.plan import build_plan
    >>> plan = build_plan({"colour": ["red", "blue"], "size": ["s", "m", "l"]}, epsilon=0.5, delta=0.0, n=10_000)
    >>> curve = plan.sample_curve()
    >>> curve[curve["best"]].round(3)
            row_epsilon  std_error  best
    sample
    477           2.681      0.046  True
    """
    import pandas as pd

    if statistic not in _CURVES:
        raise ParameterError(f"statistic must be one of {', '.join(_CURVES)}")
    check_whole(points, "points", 3)
    units, terms, rows = plan.units, plan.terms, plan.terms.rows
    if not rows:
        raise ParameterError("the plan does not know how many rows there are to sample from; plan.replan(n) sets it")
    names = _check_statistic_columns(units, statistic, columns)
    asked = [tuple(names)] if statistic == "joint" else [(name,) for name in names]
    holds = statistic == "joint" and _theorem_holds(units, terms, names)

    def point(m: int) -> Point:
        # A choice of all rows hides nothing, and earns no credit.
        sample = None if m == rows else m
        try:
            calibrated = recalibrate(tuple(units), replace(terms, sample=sample))
        except ParameterError:
            # No noise is large enough for this size: the search moves on.
            return math.nan, math.inf, *_NO_BOUNDS
        groups = [unit for unit in calibrated if isinstance(unit, Group)]
        forecast = Forecast([column for unit in calibrated for column in unit.columns], rows, groups, sample)
        variances = [forecast.row_errors(statistic, of).typical ** 2 for of in asked]
        row_epsilon = compose(unit.certified for unit in calibrated).epsilon
        bounds = _theorem_bounds(calibrated, m) if holds else _NO_BOUNDS
        return row_epsilon, math.sqrt(np.mean(variances)), *bounds

    curve = _explore_sizes(point, rows, points)
    results = ["row_epsilon", "std_error", *_BOUNDS]
    table = pd.DataFrame.from_dict(curve, orient="index", columns=results).sort_index()
    table = table.rename_axis("sample").replace({"std_error": {math.inf: math.nan}})
    table.insert(2, "best", table.index == table["std_error"].idxmin())
    if not holds:
        return table.drop(columns=_BOUNDS)
    table.attrs["theorem"] = best_sample(rows, units[0].mechanism.size, terms.budget.epsilon)
    return table


def _theorem_holds(units: Sequence[Randomised], terms: AccountingContext, names: Sequence[str]) -> bool:
    """Return whether Theorem III.4 holds for these units.

    The theorem is for one γ-diagonal channel on the statistic's columns and no others, with rows sampled in secret, and
    without credit for their order.
    """
    is_only_unit = len(units) == 1 and set(units[0].names) == set(names)
    channel = units[0].mechanism
    is_response = isinstance(channel, ResponseChannel) and channel.size > 1
    return is_only_unit and is_response and terms.secret and terms.shuffled_rows is None


def _theorem_bounds(units: Sequence[Randomised], m: int) -> tuple[float, float]:
    """Return Theorem III.4's bound of the ℓ₂ error, (c√K + 1)/√m, and (c + 1)/√m, with c = (γ + K − 1)/(γ − 1)."""
    channel = units[0].mechanism
    assert isinstance(channel, ResponseChannel)
    # The signal of γ-diagonal response is (γ − 1)/(γ + K − 1).
    c = 1 / channel.table.signal
    return (c * math.sqrt(channel.size) + 1) / math.sqrt(m), (c + 1) / math.sqrt(m)


def _check_statistic_columns(units: Sequence[Randomised], statistic: str, columns: Sequence[str] | None) -> list[str]:
    """Return the columns of a statistic, or raise `ParameterError`."""
    all_columns = [column for unit in units for column in unit.columns]
    fitting_names = [column.name for column in all_columns if STATISTICS[statistic].fits(column)]
    names = fitting_names if columns is None else [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in [column.name for column in all_columns]:
            raise ParameterError(f"columns names {name!r}, which is not a randomised column")
        if name not in fitting_names or names.count(name) > 1:
            raise ParameterError(f"columns names {name!r}, which statistic={statistic!r} does not take (or not twice)")
    if not names or (statistic == "mean" and len(names) > 1):
        fits = f"those it takes are {name_list(fitting_names)}" if fitting_names else "no column of the plan fits it"
        raise ParameterError(
            f"statistic={statistic!r} needs columns={'[name]' if statistic == 'mean' else '[…]'}; {fits}"
        )
    return names


def best_size(plan: PlanData) -> int | None:
    """Return the sample size of least forecast error of the columns' marginals, or None for all rows.

    If no column has a marginal to forecast, the error is of the first column's mean, or of the supports of items.
    """
    for statistic in ("marginal", "mean", "support"):
        names = [c.name for unit in plan.units for c in unit.columns if STATISTICS[statistic].fits(c)]
        if names:
            curve = sample_curve_of(plan, statistic, names[: 1 if statistic == "mean" else None], _SEARCH_POINTS)
            best: Any = curve["std_error"].idxmin()
            return None if best == plan.n else int(best)
    return None


def _explore_sizes(point: Callable[[int], Point], rows: int, points: int) -> dict[int, Point]:
    """Evaluate sample sizes evenly on logarithms, then halve the wider gap next to the best size so far."""
    first_sizes = np.geomspace(max(1, int(rows * _LEAST_SAMPLE_SHARE)), rows, max(3, int(points * _EVEN_POINT_SHARE)))
    points_of = {m: point(m) for m in sorted({round(float(m)) for m in first_sizes})}
    while len(points_of) < points:
        sizes = sorted(points_of)
        i = min(range(len(sizes)), key=lambda j: points_of[sizes[j]][1])
        pairs = [(sizes[j], sizes[j + 1]) for j in (i - 1, i) if 0 <= j < len(sizes) - 1]
        # On logarithms: the error is a smooth function of the ratio of sizes.
        gaps = [(high / low, round(math.sqrt(low * high))) for low, high in pairs if high > low + 1]
        new_sizes = [(width, m) for width, m in gaps if m not in points_of]
        if not new_sizes:
            break
        m = max(new_sizes)[1]
        points_of[m] = point(m)
    return points_of
