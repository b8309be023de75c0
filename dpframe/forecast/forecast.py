"""The one forecast: standard errors to expect of a release's rows and measured tables, without data.

The noise of rows and tables is public, so their errors are known without data. `Plan.forecast`, explanations, pages,
expectations and targets are views of a `Forecast`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from dpframe.errors import ParameterError
from dpframe.forecast.errors import (
    CellMoments,
    Errors,
    mean_errors,
    share_errors,
    support_errors,
    vector_errors,
    vector_scale,
)
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import affine_map
from dpframe.spaces.cells import ball_of, cell_count, is_cut

if TYPE_CHECKING:
    import pandas as pd

MAX_FORECAST_VALUES = 1_024
"""Most values of a column with a marginal; a joint is forecast up to the square of this number (limit of time)."""

NOTHING = "share: no information"
"""Unit of shares with a forecast error above 1, which carries no information about a share."""

BINNED = {"marginal": "marginal in bins", "joint": "joint in bins"}
"""Statistics of numbers that tables count in bins, by the statistic of single values."""

OF_PAIRS = "support of pairs"
"""Statistic of the pairs of items that tables count."""

Names = tuple[str, ...]

Key = tuple[str, Names]
"""A statistic and its columns."""


@dataclass(frozen=True)
class Forecast:
    """Standard errors to expect of a release, by statistic.

    Parameters
    ----------
    columns
        The randomised columns, with name, space and mechanism; grouped ones with their marginal mechanism.
    n
        Rows of the table.
    groups
        Columns that are randomised together, with their names and the mechanism of some of them.
    sample
        Rows that are chosen in secret and released; None for all.
    measures
        Tables that are measured of all rows of the table.
    types
        ``{column: shares of its values}`` if they are known; otherwise values are taken as uniform.
    split
        The columns if every group's share of the budget were divided over its columns.

    Raises
    ------
    ParameterError
        If a type is no vector of shares.
    """

    columns: Sequence[Any]
    n: int
    groups: Sequence[Any] = ()
    sample: int | None = None
    measures: Sequence[Any] = ()
    types: Mapping[str, Any] | None = None
    split: Sequence[Any] = ()

    def __post_init__(self) -> None:
        _ = self._shares

    @cached_property
    def errors(self) -> dict[Key, Errors]:
        """The errors of every statistic, from rows and tables together; tables of numbers in bins come last."""
        keys, binned = list(self._keys()), self._binned_errors()
        errors = dict(zip(keys, self._errors_of(keys), strict=True))
        # Bins replace single values that nothing is known of.
        replaced = {key for key in keys if (BINNED.get(key[0]), key[1]) in binned and errors[key].typical > 1}
        return {key: errors[key] for key in keys if key not in replaced} | binned

    @property
    def table(self) -> pd.DataFrame:
        """The errors as a table; see `Plan.forecast`."""
        import pandas as pd

        ungrouped = replace(self, columns=self.split or self.columns, groups=(), split=())
        lines = []
        for (statistic, names), errors in self.errors.items():
            line = {"statistic": statistic, "columns": " × ".join(names), "std_error": errors.typical}
            line |= {"worst": errors.worst, "unit": self._unit(statistic, names, errors)}
            if statistic in STATISTICS and self.groups:
                line["split_error"] = ungrouped.row_errors(statistic, names).typical
            if statistic in STATISTICS and self.measures:
                line["rows_alone"] = self.row_errors(statistic, names).typical
            lines.append(line)
        index, columns = ["statistic", "columns"], ["std_error", "worst", "unit"]
        columns += ["split_error"] * bool(self.groups) + ["rows_alone"] * bool(self.measures)
        return pd.DataFrame(lines, columns=[*index, *columns]).set_index(index)

    @property
    def std_errors(self) -> dict[Key, float]:
        """The standard error of every statistic for the type, from rows and tables together."""
        return {key: errors.typical for key, errors in self.errors.items()}

    def std_error(self, statistic: str, names: Names) -> float:
        """Return the standard error of one statistic for the type, from rows and tables together."""
        return self._errors_of([(statistic, names)])[0].typical

    def row_errors(self, statistic: str, names: Names) -> Errors:
        """Return the errors of one statistic from the rows."""
        if (statistic, names) not in self._row_errors:
            self._row_errors[statistic, names] = STATISTICS[statistic].row_errors(self, names)
        return self._row_errors[statistic, names]

    @property
    def typical_error(self) -> float:
        """The geometric mean over columns of one standard error of each: of its marginal, its items, or its mean."""
        logs = [math.log(max(self._column_error(column), 1e-300)) for column in self.columns]
        return math.exp(float(np.mean(logs)))

    def _column_error(self, column: Any) -> float:
        """Return one standard error that represents a column, in parts of its diameter."""
        space, names = column.space, (column.name,)
        if space.holds_sets:
            return self.row_errors("support", names).typical
        if space.holds_vectors:
            return self.row_errors("mean curve", names).typical / vector_scale(space)
        if has_cells(column):
            return self.row_errors("marginal", names).typical
        if not space.is_numeric:
            return float(column.expected_error / math.sqrt(self.n))
        return self.row_errors("mean", names).typical / float(space.diameter)

    def _keys(self) -> Iterator[Key]:
        """Yield the statistics and columns that have a forecast."""
        listed = [column.name for column in self.columns if has_cells(column)]
        yield from (("marginal", (name,)) for name in listed)
        yield from (("joint", pair) for pair in combinations(listed, 2))
        for group in self.groups:
            # Pairs of a group are among the pairs of columns already.
            if len(group.names) > 2 and set(group.names) <= set(listed) and group.space.size <= MAX_FORECAST_VALUES**2:
                yield "joint", group.names
        for statistic in ("mean", "support", "mean curve"):
            fits = STATISTICS[statistic].fits
            yield from ((statistic, (column.name,)) for column in self.columns if fits(column))

    def _unit(self, statistic: str, names: Names, errors: Errors) -> str:
        if statistic.startswith("mean"):
            return str(self._columns[names[0]].space.unit)
        return NOTHING if statistic in STATISTICS and errors.typical > 1 else "share"

    def _errors_of(self, keys: Sequence[Key]) -> list[Errors]:
        """Return the errors of statistics from rows and tables together.

        Estimates by ``"inverse"`` weight both by their precision, as both are unbiased and independent. Statistics of
        numbers cut into bins, except means, are from the rows only.
        """
        row_errors = [self.row_errors(*key) for key in keys]
        if not self.measures:
            return row_errors
        precisions = np.array([STATISTICS[statistic].table_precision(self, names) for statistic, names in keys])
        row_precisions = np.maximum(np.array(row_errors, dtype=np.float64).reshape(-1, 2), 1e-150) ** -2.0
        return [Errors(*map(float, pair)) for pair in 1 / np.sqrt(row_precisions + precisions[:, None])]

    @cached_property
    def _row_errors(self) -> dict[Key, Errors]:
        """The errors asked for so far."""
        return {}

    @cached_property
    def _columns(self) -> dict[str, Any]:
        return {column.name: column for column in self.columns}

    @cached_property
    def _measures_of(self) -> Mapping[str, list[Any]]:
        """The measured tables of each column."""
        measures = defaultdict[str, list[Any]](list)
        for measure in self.measures:
            for name in measure.columns:
                measures[name].append(measure)
        return measures

    @property
    def _released_rows(self) -> int:
        return self.n if self.sample is None else self.sample

    @property
    def _sampled(self) -> float:
        """Finite-population factor on the values' own variance; 0 for all rows."""
        return 0.0 if self.sample is None else (self.n - self.sample) / max(self.n - 1, 1)

    @cached_property
    def _shares(self) -> dict[str, FloatArray]:
        """The given types, checked."""
        if self.types is not None and not isinstance(self.types, Mapping):
            raise ParameterError("types must be a mapping {column: shares of its values}")
        return {name: self._check_shares(name, value) for name, value in (self.types or {}).items()}

    def _check_shares(self, name: str, value: Any) -> FloatArray:
        """Return a type as an array of shares, or raise `ParameterError`."""
        if name not in self._columns:
            raise ParameterError(f"types names {name!r}, which is not a randomised column")
        space: Space = self._columns[name].space
        if space.code_words:
            raise ParameterError(f"types[{name!r}] means nothing: {space.noun} have too many values; leave it out")
        shares = np.asarray(value, dtype=np.float64)
        if shares.shape != (space.size,) or (shares < 0).any() or not math.isclose(shares.sum(), 1, abs_tol=1e-6):
            raise ParameterError(f"types[{name!r}] must be {space.size} shares that add up to 1, one per value")
        return shares

    @cached_property
    def _moments(self) -> dict[str, CellMoments]:
        """Moments of the columns asked for so far: a matrix of a thousand cells is squared once for all its pairs."""
        return {}

    def _factors(self, names: Names) -> list[CellMoments]:
        """Return the moments of a joint's independent factors: the columns of a group as one, and columns."""
        factors, single_names = [], list(names)
        for group in self.groups:
            members = [name for name in group.names if name in names]
            if len(members) > 1:
                sizes = {name: self._columns[name].space.size for name in members}
                shares = [self._shares.get(name, np.full(size, 1 / size)) for name, size in sizes.items()]
                factors.append(CellMoments.of(group.marginal(members), reduce(np.multiply.outer, shares).ravel()))
                single_names = [name for name in single_names if name not in members]
        for name in single_names:
            if name not in self._moments:
                self._moments[name] = CellMoments.of(self._columns[name].mechanism, self._shares.get(name))
        return factors + [self._moments[name] for name in single_names]

    def _share_errors(self, names: Names) -> Errors:
        return share_errors(self._factors(names), self._released_rows, self._sampled)

    def _mean_errors(self, names: Names) -> Errors:
        column, shares = self._columns[names[0]], self._shares.get(names[0])
        return mean_errors(column.space, column.mechanism, shares, self._released_rows, self._sampled)

    def _support_errors(self, names: Names) -> Errors:
        return support_errors(self._columns[names[0]].mechanism, self._released_rows)

    def _vector_errors(self, names: Names) -> Errors:
        return vector_errors(self._columns[names[0]].space, self._columns[names[0]].mechanism, self._released_rows)

    def _cell_precision(self, names: Names) -> float:
        """Return 1/variance of a joint's cells from the tables that count them or finer cells."""
        precision: float = 0.0
        for measure in self._measures_of[names[0]]:
            has_values = measure.kind in ("one_way", "joint") and set(names) <= set(measure.columns)
            if has_values and not any(is_cut(self._columns[name].space, measure.most) for name in names):
                other_cells = [self._cells(name, measure) for name in measure.columns if name not in names]
                precision += self.n**2 / (measure.sigma2 * math.prod(other_cells))
        cells: int = math.prod(self._columns[name].space.size for name in names)
        # Their sum is the number of rows, which is public.
        return precision * cells / (cells - 1) if cells > 1 else math.inf if precision else 0.0

    def _sum_precision(self, names: Names) -> float:
        space = self._columns[names[0]].space
        present = self.n * space.values / space.size  # rows with a value, if null is as frequent as a value
        return self._precision("sum", names, present, affine_map(space)[1])

    def _item_precision(self, names: Names) -> float:
        return self._precision("items", names, self.n, 1.0)

    def _vector_precision(self, names: Names) -> float:
        space = self._columns[names[0]].space
        rows = self.n * space.inner_space.size / space.size  # all but one of so many codes are no nulls
        return self._precision("vectors", names, rows, vector_scale(space) / ball_of(space).last)

    def _precision(self, kind: str, names: Names, rows: float, scale: float) -> float:
        """Return 1/variance of a mean over rows, from the tables of a kind, whose noise is in units of the scale."""
        tables = [m for m in self._measures_of[names[0]] if m.kind == kind and m.columns == names]
        return float(sum(rows**2 / (measure.sigma2 * scale**2) for measure in tables))

    def _binned_errors(self) -> dict[Key, Errors]:
        """Return the errors of shares in bins, and of pairs of items, that tables count."""
        precisions: dict[Key, float] = {}
        for measure in self.measures:
            names = tuple(name for name in self._columns if name in measure.columns)
            counts_cells = measure.kind in ("one_way", "joint") and measure.level <= 1 and len(names) <= 2
            if counts_cells and any(is_cut(self._columns[name].space, measure.most) for name in names):
                cells = math.prod(self._cells(name, measure) for name in names)
                key = BINNED["marginal" if len(names) == 1 else "joint"], names
                # Their sum is the number of rows, which is public.
                precisions[key] = precisions.get(key, 0.0) + self.n**2 / measure.sigma2 * cells / (cells - 1)
            if measure.kind == "item_pairs":
                precisions[OF_PAIRS, names] = self.n**2 / measure.sigma2
        return {key: Errors(*[1 / math.sqrt(precision)] * 2) for key, precision in precisions.items()}

    def _cells(self, name: str, measure: Any) -> int:
        return cell_count(self._columns[name].space, measure.most)


@dataclass(frozen=True)
class Statistic:
    """A statistic with a forecast: columns that have it, its errors from rows, and its 1/variance from tables."""

    fits: Callable[[Any], bool]
    row_errors: Callable[[Forecast, Names], Errors]
    table_precision: Callable[[Forecast, Names], float]


def has_cells(column: Any) -> bool:
    """Return whether a column has a marginal to forecast; codes beyond the bounds have no share."""
    return (
        column.space.size <= MAX_FORECAST_VALUES
        and not column.space.code_words
        and not column.mechanism.releases_outside_bounds
    )


_SHARES = Statistic(has_cells, Forecast._share_errors, Forecast._cell_precision)
STATISTICS: Mapping[str, Statistic] = {
    "joint": _SHARES,
    "marginal": _SHARES,
    "mean": Statistic(lambda c: c.space.is_numeric, Forecast._mean_errors, Forecast._sum_precision),
    "support": Statistic(lambda c: c.space.holds_sets, Forecast._support_errors, Forecast._item_precision),
    "mean curve": Statistic(lambda c: c.space.holds_vectors, Forecast._vector_errors, Forecast._vector_precision),
}
"""Statistics with a forecast, by name."""
