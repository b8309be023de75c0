"""Means of numbers, of all rows and by groups, in pandas' words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import pandas as pd

from dpframe.errors import InferenceWarning, ParameterError, is_one_of, name_list, warn
from dpframe.estimate import moments, surrogates
from dpframe.estimate.answer_options import AnswerOptions, join_answers
from dpframe.estimate.axes import Axis, check_inverts
from dpframe.estimate.base import column_names
from dpframe.estimate.beyond_bounds import Tails
from dpframe.estimate.evidence.combine import shrunk
from dpframe.estimate.groups import HIDDEN_SD, GroupMeans, combine_means, group_means
from dpframe.estimate.not_found import nan_if_not_found, reasons
from dpframe.estimate.results import Results
from dpframe.estimate.weighted import WeightedEstimates
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import affine_map

_GROUP_MEAN_SD, _FAR_GROUP_SHARE = 0.3, 0.1
"""Prior standard deviation of group means by released rows, in standard deviations of the column; and the prior share
of groups whose means differ by a whole one (tuned; halving and doubling change widths on a census: `_GROUP_MEAN_SD` by
−13 and 11 %, `_FAR_GROUP_SHARE` by −7 and 10 %)."""


@dataclass(frozen=True, eq=False)
class _GroupEstimates:
    """Shrunk means of groups, the means by each group's own evidence, and the number's standard deviation."""

    results: Results
    own: Results
    sd: float


class MeanEstimates(WeightedEstimates):
    """Means, of groups from draws of the table."""

    def mean(
        self,
        column: str | Sequence[str],
        by: str | Sequence[str] | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        weights: str | None = None,
        bins: Any = None,
        method: str = "auto",
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return the mean of a numeric column, over the rows that are not null.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times, or of vectors or curves; or a list of columns of numbers.
        by
            A randomised column: one mean per value (nulls of ``by`` are left out). Or a list of them: one mean for
            every combination of their values. Means of groups need not average to the overall mean, because each mean
            is shrunk by its own noise.
        where
            Conditions on columns, as in `count`: only rows that meet them, from draws of the table (see `infer`).
        weights
            A randomised numeric column of non-negative weights. If measured tables count the columns, the mean is that
            of draws of the table (see `infer`), else it comes from the rows.
        bins
            Cut ``by`` into bins; of several ``{column: number or bounds}``.
        method
            ``"auto"`` uses rows, measured tables and declared bounds. For groups, means of draws of the table (see
            `infer`), of all rows, of a fit and of the released rows are weighted by their precision, which the spread
            of the groups shows (empirical Bayes: James and Stein 1961).
            ``"inverse"`` uses only the rows, and is unbiased up to the ratio.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; with ``by``, or of several columns, a DataFrame of such rows. Of
        vectors a DataFrame with a row for every coordinate, of curves for every point (see `mean_curve`).

        If private inference found a column's bounds, the estimate is the mean of the column clipped to its bounds. The
        interval is widened by the rows that may lie beyond them, equally for all groups, and
        ``attrs["beyond_bounds"]`` has their estimated share. `sum`, `var` and `std` do likewise.

        Intervals of groups come from draws of the table, and allow for the shrinkage of the estimate. If a group's own
        counts have a standard error above half a standard deviation of the column, the group is listed in
        ``attrs["hidden_groups"]``. Its interval then covers the interval of its own counts, too (Fieller 1954), within
        the means that as many rows of the table can have, and an `InferenceWarning` gives the number of such groups.
        Means by several keys that no table counts together assume a moderate interaction: ``attrs["assumes"]`` names
        the columns, and a warning the remedy.

        Raises
        ------
        ParameterError
            For a column that is not randomised or holds no numbers, or several columns with ``by``.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(4_000, columns=["age", "sex", "region"])
        >>> spaces = {"age": (0, 120), "sex": ["F", "M"], "region": list(dpf.datasets.REGIONS)}
        >>> safe = dpf.sanitize(frame, epsilon=9, delta=0, spaces=spaces, key=bytes(32))
        >>> dpf.Estimates(safe).mean("age", by="sex").round()
             estimate  std_error  lower  upper
        sex
        F        53.0        2.0   50.0   56.0
        M        52.0        2.0   48.0   55.0
        """
        if not is_one_of(method, ["auto", "inverse"]):
            raise ParameterError('method must be "auto" or "inverse"')
        if isinstance(column, str):
            return self._mean(column, by, where, weights, bins, method, target)
        columns = column_names(column, "column")
        vectors = next((name for name in columns if self._source.column(name).space.holds_vectors), None)
        if vectors is not None:
            raise ParameterError(f"the mean of column {vectors!r} is a vector; ask for it on its own")
        if by is not None:
            raise ParameterError("by goes with the mean of one column; ask for each of them")
        means = {name: self._mean(name, None, where, weights, None, method, target) for name in columns}
        return join_answers(means)

    @nan_if_not_found
    def _mean(
        self,
        column: str,
        by: str | Sequence[str] | None,
        where: Mapping[str, Any] | None,
        weights: str | None,
        bins: Any,
        method: str,
        target: str,
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return the mean of one column, of all rows or by groups."""
        if where is not None:
            self._check_draws([column], weights, method)
        if self._source.column(column).space.holds_vectors and where is None:
            return self._vector_means(column, by, bins, target, weights=weights)
        sampling = self._source.sampling(target)
        scale = moments.Scale.of(self._source.column(column))
        is_weighted = weights is not None and method == "auto" and (by is not None or self._can_draw(column, weights))
        if where is not None and by is None and weights is None:
            group = self._mean_of_value(column, where, method, target)
            if group is not None:
                return group
        if where is not None or is_weighted:
            by_bins = {by: bins} if isinstance(by, str) and bins is not None else bins
            weighted, attrs, index = self._weigh_groups(
                [column], by, weights, target, _weighted_mean, by_bins, where, Tails.of_mean
            )
            weighted = self._in_units(weighted.each(np.ravel), column)
            attrs |= self._tail_attrs([column])
            return weighted.series(column, attrs) if by is None else weighted.frame(index, attrs)
        if by is None:
            statistic = moments.mean(scale, self._weight(weights, column))
            if method == "inverse":
                # Only rows count here, and bounds would bias the estimate.
                statistic = replace(statistic, known=lambda law, population: None, bounds=(-math.inf, math.inf))
            return self._statistic(statistic, [column] if weights is None else [column, weights], target)
        if weights is not None:
            raise ParameterError("means by group with weights are of draws; leave method out")
        keys = column_names(by, "by")
        if isinstance(by, str):
            bins = {} if bins is None else {by: bins}
        elif not isinstance(bins, Mapping | None):
            raise ParameterError("bins must be {column: number or bounds} where by names several columns")
        axes = self._axes(keys, bins or {})
        check_inverts(axes, "group by another column")
        if column in keys:
            # The same noise in both factors: a product of surrogates is unbiased for independent noise only.
            raise ParameterError("a column cannot be grouped by itself; value_counts gives its distribution")
        groups_of_noise = [
            group_of_noise for name in [column, *keys] if (group_of_noise := self.plan.group_of(name)) is not None
        ]
        together = len({group_of_noise.names for group_of_noise in groups_of_noise}) < len(groups_of_noise)
        if together and not isinstance(by, str):
            raise ParameterError("columns that are randomised together cannot be separated by several keys; name one")
        # Columns that were randomised together have dependent noise: their common channel is inverted.
        groups = [replace(axes[0], group=groups_of_noise[0])] if together else axes
        batches = self._source.codes([column, *keys])
        ratio, variances = surrogates.ratio_by_all(
            scale.column, scale.power, groups, batches, sampling, self._mean_squares_of_bins(groups)
        )
        cells_of_axes = self._cells_to_show(axes, dropna=True)
        labels, shown_cells = (
            [axis.labels[cells] for axis, cells in zip(axes, cells_of_axes, strict=True)],
            np.ix_(*cells_of_axes),
        )
        index = labels[0] if isinstance(by, str) else pd.MultiIndex.from_product(labels)
        rows = scale.back(ratio), variances * scale.width**2
        results, attrs, errors = self._estimate_groups(scale, axes, rows, method, target == "population")
        if not isinstance(by, str):
            results = self._widen_to_coarser_groups(results, column, keys, bins, method, target)
        means = self._present_groups(column, results[shown_cells].each(np.ravel), attrs, index)
        errors = errors[shown_cells].ravel()
        if method != "inverse":
            self._warn_of_groups(column, keys, index[errors > HIDDEN_SD].tolist(), len(errors), attrs)
        if (errors > HIDDEN_SD).any():
            means.attrs["hidden_groups"] = index[errors > HIDDEN_SD].tolist()
        return means

    def _mean_of_value(self, column: str, where: Mapping[str, Any], method: str, target: str) -> pd.Series[Any] | None:
        """Return the mean of the rows with one listed value of one column as the means by that column have it, or None.

        A group has one mean, whether ``by`` or ``where`` asks for it.
        """
        (key, condition), *others = self._value_conditions(where).items()
        codes = [code for start, stop in condition.stretches for code in range(start, min(stop, start + 2))]
        if others or key == column or len(codes) != 1 or not condition.column.space.is_listed:
            return None
        (axis,) = self._axes([key], {})
        value = axis.labels[int(axis.cell_of(np.array(codes))[0])]
        means = self._means_unwarned(column, key, None, method, target)
        group = means[means.index == value]
        if not len(group):
            return None
        attrs: dict[str, Any] = {str(name): fact for name, fact in means.attrs.items() if name != "hidden_groups"}
        hidden_groups = [value] if value in means.attrs.get("hidden_groups", []) else []
        self._warn_of_bounds([column])
        self._warn_of_groups(column, [key], hidden_groups, 1, attrs)
        if hidden_groups:
            attrs["hidden_groups"] = hidden_groups
        return Results(*group.to_numpy().T).series(column, attrs)

    def _means_unwarned(self, column: str, key: str, bins: Any, method: str, target: str) -> pd.DataFrame:
        """Return means by one column for another answer: warnings of groups that nobody asked for would confuse."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            means = self._mean(column, key, None, None, bins, method, target)
        assert isinstance(means, pd.DataFrame)
        return means

    def _can_draw(self, column: str, weights: str) -> bool:
        """Return whether measured tables count a number and weights from 0 on together."""
        spaces = [self._source.column(name).space for name in (column, weights)]
        has_numbers = all(space.is_numeric for space in spaces) and not spaces[1].is_time
        has_table = self._joints.tables.source_of([column, weights]) == "tables" or self._counts_rows(weights)
        is_counted = column != weights and has_table
        return has_numbers and is_counted and end_numbers(spaces[1])[0] >= 0

    def _widen_to_coarser_groups(
        self, results: Results, column: str, keys: Sequence[str], bins: Any, method: str, target: str
    ) -> Results:
        """Widen intervals of groups by several keys to at least the intervals by each single key."""
        for place, key in enumerate(keys):
            coarse = self._means_unwarned(column, key, (bins or {}).get(key), method, target)
            error = coarse["std_error"].to_numpy()
            shape = [1] * results.std_error.ndim
            shape[place] = -1
            # The cell of null has no coarse mean: an error of 0 leaves its interval unchanged.
            error = np.append(error, [0.0] * (results.std_error.shape[place] - len(error))).reshape(shape)
            # The tiny divisor avoids 0/0 for groups without an error.
            factor = np.maximum(error / np.maximum(results.std_error, 1e-300), 1.0)
            with np.errstate(invalid="ignore"):
                results = Results(
                    results.estimate,
                    results.std_error * factor,
                    results.estimate - (results.estimate - results.lower) * factor,
                    results.estimate + (results.upper - results.estimate) * factor,
                )
        return results

    def _estimate_groups(
        self,
        scale: moments.Scale,
        keys: Sequence[Axis],
        rows: tuple[FloatArray, FloatArray],
        method: str,
        population: bool,
    ) -> tuple[Results, dict[str, Any], FloatArray]:
        """Return group means from rows and measured tables, their attrs, and the errors of the groups' own counts.

        Errors are in standard deviations of the column. ``rows`` are means by released rows and their variances, which
        include a population's sampling variance.
        """
        ratio, variance = rows
        if method == "inverse":
            return self._results(ratio, variance), {"source": "rows"}, np.zeros(ratio.shape)
        ends, attrs = end_numbers(scale.column.space), dict[str, Any](source="rows")
        # The delta method fails for a ratio whose base is mostly noise; a mean outside the bounds reveals this, and its
        # distance to the bounds is added to the error.
        with np.errstate(invalid="ignore"):
            excess = np.where(variance > 0, ratio - np.clip(ratio, *ends), np.inf)
        rows = ratio, np.where(np.isfinite(excess), variance + excess**2, np.inf)
        fit = group_means(self._joints, keys, scale.column.name, self._z)
        if fit is None:
            groups = self._shrink_rows(scale, rows)
        else:
            groups = self._combine_evidence(scale, fit, rows)
            attrs = {"source": "both"} | (
                {"assumes": [*(k.name for k in keys), scale.column.name]} if fit.assumes else {}
            )
        results, own = groups.results.clipped(*ends), groups.own
        # A group without rows may have any mean within the bounds.
        own_ends = (np.where(np.isnan(side), end, side) for side, end in zip((own.lower, own.upper), ends, strict=True))
        own_lower, own_upper = (np.clip(side, *ends) for side in own_ends)
        errors = np.fmin(own.std_error, np.sqrt(rows[1])) / groups.sd
        # Draws are shrunk. Their intervals miss far groups whose counts are mostly noise, or contradict the draws.
        is_far = ~(errors <= HIDDEN_SD) | (np.abs(own.estimate - results.estimate) > 2 * own.std_error)
        lower, upper = np.minimum(results.lower, own_lower), np.maximum(results.upper, own_upper)
        results = Results(
            results.estimate,
            np.where(is_far, (upper - lower) / (2 * self._z), results.std_error),
            np.where(is_far, lower, results.lower),
            np.where(is_far, upper, results.upper),
        )
        if population and fit is not None:
            results = results.with_variance(fit.chance * scale.line[1] ** 2, self._z)
        return results, attrs, errors

    def _combine_evidence(
        self, scale: moments.Scale, fit: GroupMeans, rows: tuple[FloatArray, FloatArray]
    ) -> _GroupEstimates:
        """Return group means from draws of the table, a fit, all rows and released rows, with intervals from draws."""
        centre, centre_variance, _ = self._overall_mean(scale)
        step = scale.line[1]
        draws, own = centre + step * fit.draws.means, fit.own.each(lambda values: step * values)
        own = Results(centre + own.estimate, own.std_error, centre + own.lower, centre + own.upper)
        sd = max(step * fit.draws.sd, math.sqrt(centre_variance), 1e-12 * scale.width)
        estimates = combine_means(draws, [centre, centre + step * fit.fit], rows)
        estimates, variances = np.clip(estimates, *end_numbers(scale.column.space)), centre_variance
        if fit.assumes:
            # Keys that no table counts together may interact more than the draws.
            variances = variances + np.maximum(np.minimum(own.std_error, sd) ** 2 - draws.var(axis=0, ddof=1), 0.0)
        return _GroupEstimates(Results.of_draws(estimates, draws, variances, self._z), own, sd)

    def _shrink_rows(self, scale: moments.Scale, rows: tuple[FloatArray, FloatArray]) -> _GroupEstimates:
        """Return group means from only released rows, shrunk to the overall mean by empirical Bayes."""
        (ratio, variances), (centre, centre_variance, sd) = rows, self._overall_mean(scale)
        residuals, scales = (ratio.ravel() - centre) / sd, np.ones(ratio.size)
        shrunk_residuals, shrunk_variances = shrunk(
            residuals, variances.ravel() / sd**2, scales, _GROUP_MEAN_SD, _FAR_GROUP_SHARE
        )
        means = centre + sd * shrunk_residuals.reshape(ratio.shape)
        # Intervals are not shrunk: none is shorter than the interval of the group's own rows.
        squares = np.maximum(shrunk_variances.reshape(ratio.shape) * sd**2, np.minimum(variances, sd**2))
        shifts = np.where(np.isfinite(ratio), ratio - means, 0.0)
        results = self._results(means, squares + shifts**2 + centre_variance)
        with np.errstate(invalid="ignore"):
            return _GroupEstimates(results, self._results(ratio, variances), sd)

    def _warn_of_groups(
        self, column: str, by: Sequence[str], hidden_groups: Sequence[Any], groups: int, attrs: Mapping[str, Any]
    ) -> None:
        """Warn of groups whose means are mostly noise, or else of an interaction that is assumed to be moderate."""
        if not self.clipped and not reasons(self.plan.not_found).keys().isdisjoint((column, *by)):
            return
        table = ", ".join(map(repr, [*by, column]))
        measure_remedy = f'measure=["auto", ({table})] in the next release makes them sharper'
        if hidden_groups:
            # A single key is measured together with the column by default: only less noise helps.
            fewer_tables = f"release fewer columns, or measure=[({table})] alone"
            remedy = measure_remedy if len(by) > 1 else fewer_tables
            warn(
                f"{len(hidden_groups)} of {groups} means of {column!r} by {name_list(by)} are mostly noise, with "
                f"intervals from their own counts; {remedy}",
                InferenceWarning,
            )
        elif "assumes" in attrs:
            warn(
                f"means of {column!r} by {name_list(by)} assume a moderate interaction; {measure_remedy}",
                InferenceWarning,
            )

    def _overall_mean(self, scale: moments.Scale) -> tuple[float, float, float]:
        """Return the mean of all rows, its variance, and the standard deviation of the rows."""
        (start, step), (mean, variance_of_codes) = scale.line, self._joints.law(scale.column.name).moments
        width, ends = step * math.sqrt(max(variance_of_codes, 0.0)), end_numbers(scale.column.space)
        values, covariance, _ = self._moments(
            moments.mean(scale, None), [scale.column.name], "table", self._joints.tables.law(scale.column.name)
        )
        centre, variance = float(values[0]), float(covariance[0, 0])
        if not math.isfinite(centre + variance):
            centre, variance = start + step * mean, scale.width**2
        variance = min(variance, scale.width**2)
        # Residuals are divided by the width, which is 0 for a constant column.
        return float(np.clip(centre, *ends)), variance, max(width, math.sqrt(variance), 1e-12 * scale.width)

    def _present_groups(self, column: str, results: Results, attrs: Mapping[str, Any], index: pd.Index) -> pd.DataFrame:
        """Return group means as a table, widened by rows beyond inferred bounds, with warnings."""
        self._warn_of_bounds([column])
        tails = self._tails(column)
        if attrs["source"] != "rows" or np.isfinite(results.std_error).all():
            results = results.clipped(*end_numbers(self._source.column(column).space))
        if tails is not None:
            results = results.opened(tails.of_mean(), self._z)
        return self._in_units(results, column).frame(index, {**attrs} | self._tail_attrs([column]))


def _weighted_mean(values: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Return the weighted mean of one column, NaN without weights."""
    total = float(weights.sum())
    return np.array([weights @ values[0] / total if total > 0 else math.nan])


def end_numbers(space: Space) -> tuple[float, float]:
    """Return the lowest and highest value of a numeric space."""
    start, step = affine_map(space)
    return start, start + step * (space.values - 1)
