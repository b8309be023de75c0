"""Forecasts with measured tables: their noise is public, so their errors are known without data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from dpframe.errors import check_whole
from dpframe.plan.accounting_gains import split_mechanisms
from dpframe.plan.data import PlanData
from dpframe.plan.forecast import NOTHING, forecast_table, vector_scale
from dpframe.plan.measures import Measure
from dpframe.spaces import Space
from dpframe.spaces.base import line_of
from dpframe.spaces.cells import ball_of, cell_count, is_cut

if TYPE_CHECKING:
    import pandas as pd

_BINNED_SUFFIX = " in bins"
BINNED = (f"marginal{_BINNED_SUFFIX}", f"joint{_BINNED_SUFFIX}")
"""Statistics of numbers that tables count in bins, of one column and of two."""

OF_PAIRS = "support of pairs"
"""Statistic of the pairs of items that tables count."""

BESIDE = "rows_alone"
"""Column with the error of the rows without tables."""


def forecast_of(plan: PlanData, n_rows: int | None = None, types: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Return the standard errors to expect of a plan; see `Plan.forecast`."""
    n = check_whole(plan.n if n_rows is None else n_rows, "n_rows", of="rows")
    mechanisms_without_groups = split_mechanisms(plan.units, plan.terms) if plan.groups else None
    if plan.sample is None or plan.n is None:
        table = forecast_table(plan.columns, n, types, plan.groups, split=mechanisms_without_groups)
    else:
        table = forecast_table(
            plan.columns, max(1, plan.sample * n // plan.n), types, plan.groups, n, mechanisms_without_groups
        )
    return together(table, plan.measures, plan.spaces, n)


def together(forecast: pd.DataFrame, measures: Sequence[Measure], spaces: Mapping[str, Space], n: int) -> pd.DataFrame:
    """Return a forecast of rows and tables, with numbers in bins if tables count them in bins."""
    return in_bins(with_tables(forecast, measures, spaces, n), measures, spaces, n) if measures else forecast


def with_tables(
    forecast: pd.DataFrame, measures: Sequence[Measure], spaces: Mapping[str, Space], n: int
) -> pd.DataFrame:
    """Return a forecast with the errors of rows and tables together, and the rows' own in one more column.

    Estimates by ``"inverse"`` weight both by their precision, as both are unbiased and independent. Statistics of
    numbers cut into bins, except means, are from the rows only.
    """
    tuples: set[tuple[str, ...]] = set()
    for measure in measures:
        column_names = [name for name in spaces if name in measure.columns]  # as a forecast orders them
        tuples.update(names for size in range(1, len(column_names) + 1) for names in combinations(column_names, size))
    labels = {" × ".join(names): names for names in tuples}
    precisions = np.array(
        [
            _table_precision(statistic, labels[label], measures, spaces, n) if label in labels else 0.0
            for statistic, label in forecast.index
        ]
    )
    together = {
        column: 1 / np.sqrt(np.maximum(forecast[column].to_numpy(dtype=np.float64), 1e-150) ** -2.0 + precisions)
        for column in ("std_error", "worst")
    }
    # Tables may bring an error below 1 that is above 1 for rows.
    becomes_informative = (forecast["unit"] == NOTHING) & (together["std_error"] <= 1)
    unit = forecast["unit"].mask(becomes_informative, "share")
    return forecast.assign(**{BESIDE: forecast["std_error"], "unit": unit}, **together)


def single_values(key: tuple[str, str]) -> tuple[str, str]:
    """Return the statistic of single values, and its columns, for a statistic in bins."""
    return key[0].removesuffix(_BINNED_SUFFIX), key[1]


def in_bins(forecast: pd.DataFrame, measures: Sequence[Measure], spaces: Mapping[str, Space], n: int) -> pd.DataFrame:
    """Return a forecast with tables of numbers in bins, in place of their single values' shares.

    Shares of single values with errors below 1 stay. Measured pairs of items come last.
    """
    import pandas as pd

    precisions: dict[tuple[str, str], float] = {}
    for measure in measures:
        names = [name for name in spaces if name in measure.columns]
        counts_cells = measure.kind in ("one_way", "joint") and measure.level <= 1 and len(names) <= len(BINNED)
        if counts_cells and any(is_cut(spaces[name], measure.most) for name in names):
            cells = math.prod(cell_count(spaces[name], measure.most) for name in names)
            key = BINNED[len(names) - 1], " × ".join(names)
            # Their sum is the number of rows, which is public.
            precisions[key] = precisions.get(key, 0.0) + n**2 / measure.sigma2 * cells / (cells - 1)
        if measure.kind == "item_pairs":
            precisions[OF_PAIRS, measure.label] = n**2 / measure.sigma2
    replaced_rows = {single_values(key) for key in precisions} - set(precisions)
    is_kept_row = [row not in replaced_rows or unit != NOTHING for row, unit in forecast["unit"].items()]
    errors = [1 / math.sqrt(precision) for precision in precisions.values()]
    binned_rows = pd.DataFrame(
        {"std_error": errors, "worst": errors, "unit": "share"},
        index=pd.MultiIndex.from_tuples(list(precisions), names=forecast.index.names),
    )
    return pd.concat([forecast[is_kept_row], binned_rows.reindex(columns=forecast.columns)]) if precisions else forecast


def _table_precision(
    statistic: str, names: tuple[str, ...], measures: Sequence[Measure], spaces: Mapping[str, Space], n: int
) -> float:
    """Return 1/variance of a statistic's cells from tables without the rows; 0 without a table of the columns."""
    if statistic == "mean":
        space = spaces[names[0]]
        present = n * space.values / space.size  # rows with a value, if null is as frequent as a value
        step = line_of(space)[1]
        return sum(present**2 / (m.sigma2 * step**2) for m in _measures_of("sum", names, measures))
    if statistic == "mean curve":
        space = spaces[names[0]]
        rows = n * space.inner_space.size / space.size  # all but one of so many codes are no nulls
        scale = vector_scale(space) / ball_of(space).last
        return sum(rows**2 / (m.sigma2 * scale**2) for m in _measures_of("vectors", names, measures))
    if statistic == "support":
        return sum(n**2 / m.sigma2 for m in _measures_of("items", names, measures))
    cells, precision_sum = math.prod(spaces[name].size for name in names), 0.0
    for measure in measures:
        tells = measure.kind in ("one_way", "joint") and set(names) <= set(measure.columns)
        if tells and not any(is_cut(spaces[name], measure.most) for name in names):
            other_cells = [cell_count(spaces[name], measure.most) for name in measure.columns if name not in names]
            precision_sum += n**2 / (measure.sigma2 * math.prod(other_cells))
    # Their sum is the number of rows, which is public.
    return precision_sum * cells / (cells - 1) if cells > 1 else math.inf


def _measures_of(kind: str, names: tuple[str, ...], measures: Sequence[Measure]) -> list[Measure]:
    """Return the measures of a kind and of these columns."""
    return [measure for measure in measures if measure.kind == kind and measure.columns == names]
