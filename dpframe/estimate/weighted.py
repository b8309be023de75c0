"""Statistics with a column of weights, as of surveys, from draws of the original table.

A statistic is computed on each draw with the weights of its rows, and Rubin's rules combine the draws, as for any
function of the table (`dpframe.estimate.functions`). Measured tables of the weights and the other columns decide how
weights go with values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpframe.errors import InferenceWarning, ParameterError, check_whole, warn
from dpframe.estimate.axes import Axis
from dpframe.estimate.base import column_names
from dpframe.estimate.beyond_bounds import Tails
from dpframe.estimate.conditions import ValueCondition, Where
from dpframe.estimate.drawn_tables import CodeLimits
from dpframe.estimate.functions import DrawnTables, FunctionValues, describe_weaknesses
from dpframe.estimate.moments import check_holds_numbers
from dpframe.estimate.not_found import NOT_FOUND, reasons, warn_of_nan
from dpframe.estimate.posterior import TABLE_DRAWS
from dpframe.estimate.results import Ends, Results
from dpframe.estimate.synthetic import midnight_codes
from dpframe.estimate.vectors import VectorEstimates
from dpframe.observe.significance import DETECTION_SE
from dpframe.plan.columns import Column
from dpframe.plan.words import digits
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import numbers_of
from dpframe.totals.weight_sums import WeightSteps

Codes = Mapping[str, npt.NDArray[Any]]
Rows = Callable[[Codes, FloatArray], FloatArray]
"""Function from the codes of a table's rows, by column, and the rows' weights to the values of a statistic."""


class WeightedEstimates(VectorEstimates):
    """Draws of the original table, and statistics of its rows with weights."""

    def _prepare_draws(self, names: Sequence[str], draws: int, target: str) -> DrawnTables:
        """Check a request for draws of some columns, and return them; rows are drawn when they are read."""
        # An unknown target is refused before any draw.
        self._source.sampling(target)
        draw_count = check_whole(draws, "draws", 2, TABLE_DRAWS)
        if not names:
            raise ParameterError("name at least one column")
        for name in names:
            space = self._source.column(name).space
            if space.holds_sets or space.holds_vectors or self._joints.tables.member(name) is None:
                raise ParameterError(
                    f"column {name!r} holds {space.noun}, of which no table is drawn; use support or mean_curve for it"
                )
        if not self.rows:
            raise ParameterError("the release has no rows, so that no table can be drawn")
        posterior = self._joints.posterior.conditioned(self._joints.tables.merged_names(names))
        limits = {}
        for name, column in zip(posterior.names, posterior.columns, strict=True):
            empty_cells = [] if column.is_cut else self._find_empty_bucket(column.axis)
            midnights = midnight_codes(self._source, name, self._joints.law) if name in self.plan.names else range(0)
            limits[name] = CodeLimits(empty_cells, midnights)
        return DrawnTables(posterior, self._source, draw_count, limits, names)

    def _describe_draws(self, tables: DrawnTables, names: Sequence[str]) -> dict[str, Any]:
        """Return attrs of a result from draws, and warn if intervals cover less."""
        weaknesses = tables.weaknesses()
        message = describe_weaknesses(weaknesses)
        if message is not None:
            warn(message, InferenceWarning)
        self._warn_of_imputed(names)
        attrs: dict[str, Any] = {"columns": list(names), "draws": tables.table_count}
        unfound_reasons = {name: reason for name, reason in reasons(self.plan.not_found).items() if name in names}
        if unfound_reasons:
            warn_of_nan(self.plan, unfound_reasons)
            attrs[NOT_FOUND] = unfound_reasons
        drawn_names = tables.draws.names
        if len(drawn_names) > 2 and tables.draws.model.known(drawn_names) is None:
            attrs["assumes"] = list(names)
        return attrs | ({"weak": weaknesses} if weaknesses else {})

    def _check_weights(self, weights: Any, columns: Sequence[str], method: str | None = None) -> None:
        """Raise `ParameterError` unless weights are a column of numbers, from 0, apart from the statistic's columns."""
        column = self._source.column(weights)
        check_holds_numbers(column)
        if column.space.is_time or numbers_of(column.space, np.zeros(1, dtype=np.int64))[0] < 0:
            raise ParameterError(
                f"weights must be numbers from 0 on, which {weights!r} does not hold; declare spaces={{{weights!r}: "
                "(0, …)}} in another release"
            )
        if weights in columns:
            raise ParameterError(f"a column cannot be weighted by itself; take {weights!r} out of the columns")
        self._check_draws(columns, None, method)

    def _check_draws(self, columns: Sequence[str], weights: str | None, method: str | None) -> None:
        """Raise `ParameterError` for weights that do not suit columns, and for a method that uses no draws."""
        if weights is not None:
            self._check_weights(weights, columns)
        if method not in (None, "auto"):
            raise ParameterError(
                'statistics with weights or where are means of draws of the table; leave method out, or pass "auto"'
            )

    def _weigh_rows(
        self,
        statistic: Rows,
        columns: Sequence[str],
        weights: str | None,
        target: str,
        where: Mapping[str, Any] | None = None,
    ) -> tuple[Results, dict[str, Any]]:
        """Return a statistic of rows with weights, or with equal ones, from draws of the table, and its attrs.

        ``where`` restricts the statistic to the rows that meet conditions on values.
        """
        conditions = {} if where is None else self._value_conditions(where)
        names = list(dict.fromkeys([*columns, *([] if weights is None else [weights]), *conditions]))

        def compute(codes: Codes, row_weights: FloatArray) -> FloatArray:
            if conditions:
                met = [condition.holds(codes[name].astype(np.int64)) for name, condition in conditions.items()]
                rows = np.flatnonzero(np.prod(met, axis=0))
                codes, row_weights = {name: column[rows] for name, column in codes.items()}, row_weights[rows]
            return statistic(codes, row_weights)

        tables = self._prepare_draws(names, TABLE_DRAWS, target)
        values, chance_variances = list[FloatArray](), list[FloatArray]()
        calibration = None if weights is None else self._calibrate_weights(tables, columns, weights)
        if self._counts_rows(weights):
            self._warn_of_cap(str(weights))
        for draw in range(tables.table_count):
            codes = tables.codes(draw)
            row_weights = np.ones(len(next(iter(codes.values()))))
            if weights is not None:
                numbers, has_weight = numbers_of_rows(self._source.column(weights), codes)
                if self._counts_rows(weights):
                    numbers = np.maximum(numbers, self.plan.contributions) / self.plan.contributions
                row_weights = np.where(has_weight, numbers, 0.0)
            if calibration is not None:
                row_weights = calibration.apply(draw, codes, row_weights)
            values.append(compute(codes, row_weights))
            if target == "population":
                rows = tables.draws.generator("bootstrap", draw).integers(0, len(row_weights), len(row_weights))
                resampled = compute({name: column[rows] for name, column in codes.items()}, row_weights[rows])
                chance_variances.append((resampled - values[-1]) ** 2)
        within = np.nanmean(chance_variances, axis=0) if chance_variances else None
        results = FunctionValues(None, np.array(values), within).results(self._z, target == "population")
        attrs = self._describe_draws(tables, names)
        attrs = {"source": self._joints.tables.source_of(names)} | attrs
        return results, attrs if weights is None else {"weights": weights} | attrs

    def _warn_of_cap(self, count_name: str) -> None:
        """Warn if persons have as many rows as are counted at most, so that some may have more."""
        space = self._source.column(count_name).space
        most = int(numbers_of(space, np.array([space.size - 1]))[0])
        rows, errors = self._count_rows_at(count_name, np.array([space.size - 1]))
        if rows[0] > DETECTION_SE * errors[0]:
            warn(
                f"about {digits(100 * float(rows[0]) / self._all_rows)} % of the persons have {most} rows or more and "
                f"count as {most}, so that sums may be too small; release with a larger max_count",
                InferenceWarning,
            )

    def _value_conditions(self, where: Mapping[str, Any]) -> dict[str, ValueCondition]:
        """Return the conditions of ``where`` by column; `ParameterError` for conditions on items of sets."""
        conditions = Where.of(where, self._source.column, self._is_open)
        if len(conditions.values) < len(conditions.conditions):
            raise ParameterError("where takes conditions on values here; count takes conditions on items of sets")
        return dict(conditions.values)

    def _calibrate_weights(self, tables: DrawnTables, columns: Sequence[str], weights: str) -> WeightCalibration | None:
        """Return the measured sums of weights that draws are scaled to, or None if none were measured."""
        counted = {name: self._joints.tables.weight_sums(weights, name) for name in columns}
        sums = {name: MeasuredSums(*one) for name, one in counted.items() if one is not None}
        if not sums:
            return None
        column, targets = self._source.column(weights), dict[str, FloatArray]()
        for name, one in sums.items():
            noise = tables.draws.generator("weights", name).standard_normal((tables.table_count, len(one.sums)))
            # Errors of drawn sums have one sign in all cells, those of measured sums do not: only the latter count.
            targets[name] = one.sums + np.sqrt(one.variances) * noise
        offset = float(numbers_of(column.space, np.array([WeightSteps.of(column.space).offset]))[0])
        return WeightCalibration(sums, targets, column, offset)

    def _weigh_cells(
        self,
        axes: Sequence[Axis],
        weights: str | None,
        target: str,
        present: Callable[[FloatArray], FloatArray] = np.asarray,
        where: Mapping[str, Any] | None = None,
    ) -> tuple[Results, dict[str, Any]]:
        """Return the sums of weights by the cells of axes, or what ``present`` makes of them on every draw."""
        shapes: list[tuple[int, ...]] = []

        def sum_cells(codes: Codes, row_weights: FloatArray) -> FloatArray:
            cells = present(sum_by_cell(axes, codes, row_weights))
            shapes.append(cells.shape)
            return cells.ravel()

        results, attrs = self._weigh_rows(sum_cells, [axis.name for axis in axes], weights, target, where)
        return results.each(lambda values: values.reshape(shapes[0])), attrs

    def _weigh_groups(
        self,
        columns: Sequence[str],
        by: str | Sequence[str] | None,
        weights: str | None,
        target: str,
        statistic: Callable[[list[FloatArray], FloatArray], FloatArray],
        bins: Any = None,
        where: Mapping[str, Any] | None = None,
        beyond: Callable[[Tails], Ends] | None = None,
    ) -> tuple[Results, dict[str, Any], pd.Index[Any]]:
        """Return a statistic of columns of numbers and of weights in each group, of shape (groups, values).

        Rows with a null in a column are left out. The index has the groups' labels, one row without ``by``. ``beyond``
        gives the distance by which rows beyond inferred bounds may move the statistic of one column; without it a
        warning says that they may.
        """
        number_columns = [self._source.column(name) for name in columns]
        for column in number_columns:
            check_holds_numbers(column)
        if weights is not None:
            self._check_weights(weights, columns)
        keys = [] if by is None else column_names(by, "by")
        if set(keys) & set(columns):
            raise ParameterError("a column cannot be grouped by itself; value_counts gives its distribution")
        axes = self._axes(keys, {} if bins is None else bins) if keys else []
        shown_cells = self._cells_to_show(axes, dropna=True)
        grid = np.zeros([axis.cells for axis in axes], dtype=np.int64)
        groups = np.arange(grid.size).reshape(grid.shape)[np.ix_(*shown_cells)].ravel() if axes else np.arange(1)

        def compute(codes: Codes, row_weights: FloatArray) -> FloatArray:
            numbers = [numbers_of_rows(column, codes) for column in number_columns]
            rows = np.flatnonzero(np.logical_and.reduce([is_present for _, is_present in numbers]))
            cells = cell_of_rows(axes, codes)[rows]
            order = np.argsort(cells, kind="stable")
            rows, ends = rows[order], np.searchsorted(cells[order], np.arange(grid.size + 1))
            parts = [rows[ends[group] : ends[group + 1]] for group in groups]
            return np.concatenate([statistic([n[part] for n, _ in numbers], row_weights[part]) for part in parts])

        results, attrs = self._weigh_rows(compute, [*columns, *keys], weights, target, where)
        tails = None if beyond is None else self._tails(columns[0])
        if beyond is not None and tails is not None:
            results = results.opened(beyond(tails), self._z)
        clipped_columns = [*(columns if beyond is None else []), *([] if weights is None else [weights])]
        self._warn_of_tails(clipped_columns, lambda tails: tails.matter)
        labels = [axis.labels[cells] for axis, cells in zip(axes, shown_cells, strict=True)]
        index = labels[0] if len(labels) == 1 else pd.MultiIndex.from_product(labels) if labels else pd.RangeIndex(1)
        return results.each(lambda values: values.reshape(len(groups), -1)), attrs, index


@dataclass(frozen=True, eq=False)
class MeasuredSums:
    """Measured sums of weights, less an offset of each row, by the cells of a column, and the variance of each."""

    axis: Axis
    sums: FloatArray
    variances: FloatArray

    def add_up(self, codes: npt.NDArray[Any], values: FloatArray) -> FloatArray:
        """Return the sums of rows' values by cell."""
        cells = self.axis.cell_of(codes.astype(np.int64))
        return np.bincount(cells, values, minlength=len(self.sums)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class WeightCalibration:
    """Sums of weights by the cells of some columns, to which each draw's weights are scaled in turn."""

    sums: Mapping[str, MeasuredSums]
    targets: Mapping[str, FloatArray]
    column: Column
    offset: float

    def apply(self, draw: int, codes: Codes, row_weights: FloatArray) -> FloatArray:
        """Return the weights of one draw's rows, scaled to the sums of the draw (Deville and Särndal 1992)."""
        has_weight = codes[self.column.name] < self.column.space.values
        cells = {name: one.axis.cell_of(codes[name].astype(np.int64)) for name, one in self.sums.items()}
        for _ in range(_CALIBRATION_SWEEPS if len(self.sums) > 1 else 1):
            for name, one in self.sums.items():
                rows = one.add_up(codes[name], has_weight.astype(np.float64))
                wanted = np.maximum(self.targets[name][draw] + self.offset * rows, 0.0)
                current = np.bincount(cells[name], row_weights, minlength=len(rows))
                factors = np.divide(wanted, current, out=np.ones(len(rows)), where=current > 0)
                row_weights = row_weights * factors[cells[name]]
        return row_weights


def cell_of_rows(axes: Sequence[Axis], codes: Codes) -> npt.NDArray[np.intp]:
    """Return the number of each row's cell among the joint cells of axes; 0 without axes."""
    if not axes:
        return np.zeros(len(next(iter(codes.values()))), dtype=np.intp)
    places = [axis.cell_of(codes[axis.name].astype(np.int64)) for axis in axes]
    return np.asarray(np.ravel_multi_index(places, [axis.cells for axis in axes]), dtype=np.intp)


def sum_by_cell(axes: Sequence[Axis], codes: Codes, values: FloatArray) -> FloatArray:
    """Return the sums of values of rows by the cells of axes."""
    shape = [axis.cells for axis in axes]
    return (
        np.bincount(cell_of_rows(axes, codes), values, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
    )


def numbers_of_rows(column: Column, codes: Codes) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return the numbers of a column's rows, and a mask of the rows that are not null."""
    space, own_codes = column.space, codes[column.name]
    return numbers_of(space, np.minimum(own_codes, space.values - 1)), own_codes < space.values


def weighted_quantiles(values: FloatArray, weights: FloatArray, levels: FloatArray) -> FloatArray:
    """Return the smallest values at which the cumulative share of the weights reaches each level; NaN without weights.

    >>> weighted_quantiles(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), np.array([0.25, 0.5, 0.8])).tolist()
    [1.0, 2.0, 3.0]
    """
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    if not len(cumulative) or not cumulative[-1] > 0:
        return np.full(len(levels), np.nan)
    places = np.searchsorted(cumulative, levels * cumulative[-1] * (1 - _ROUNDING_SHARE))
    return np.asarray(values[order][places], dtype=np.float64)


def weighted_covariances(values: Sequence[FloatArray], weights: FloatArray, ddof: int) -> FloatArray:
    """Return the weighted covariances of columns, times n/(n − ddof) for n rows of positive weight.

    >>> weighted_covariances([np.array([0.0, 1.0])], np.array([1.0, 3.0]), 0).tolist()
    [[0.1875]]
    """
    total, rows = float(weights.sum()), int((weights > 0).sum())
    if not total > 0 or rows <= ddof:
        return np.full((len(values), len(values)), np.nan)
    centred = np.stack(values) - np.array([weights @ one for one in values])[:, None] / total
    return np.asarray((centred * weights) @ centred.T / total * rows / (rows - ddof))


_CALIBRATION_SWEEPS = 4
"""Sweeps over all columns: noisy sums of several columns have no common solution (tolerance)."""

_ROUNDING_SHARE = 1e-12
"""Share of the weights by which a cumulative sum may miss a level that it reaches (tolerance)."""
