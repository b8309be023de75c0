"""Means of numbers, of all rows and by groups, in pandas' words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pandas as pd

from dpframe.errors import InferenceWarning, ParameterError, is_one_of, name_list, warn
from dpframe.estimate import moments, surrogates
from dpframe.estimate.answer_options import AnswerOptions
from dpframe.estimate.axes import Axis, check_inverts
from dpframe.estimate.base import column_names
from dpframe.estimate.beyond_bounds import Tails
from dpframe.estimate.evidence.combine import shrunk
from dpframe.estimate.groups import HIDDEN_SD, group_means
from dpframe.estimate.not_found import NOT_FOUND, nan_if_not_found, reasons
from dpframe.estimate.results import RESULTS, Results
from dpframe.estimate.weighted import WeightedEstimates
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import affine_map

_GROUP_MEAN_SD, _FAR_GROUP_SHARE = 0.3, 0.1
"""Prior standard deviation of group means, in standard deviations of the column; and the prior share of groups whose
means differ by a whole one (tuned; halving and doubling change widths on a census: `_GROUP_MEAN_SD` by −13 and 11 %,
`_FAR_GROUP_SHARE` by −7 and 10 %)."""


class MeanEstimates(WeightedEstimates):
    """Means, which for groups are shrunk to the overall mean."""

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
            every combination of their values. Means of groups need not average to the overall mean: each mean is
            estimated separately, and shrunk to the other means by its noise.
        where
            Conditions on columns, as in `count`: only rows that meet them, from draws of the table (see `infer`).
        weights
            A randomised numeric column of non-negative weights. If measured tables count the columns, the mean is that
            of draws of the table (see `infer`), else it comes from the rows.
        bins
            Cut ``by`` into bins; of several ``{column: number or bounds}``.
        method
            ``"auto"`` uses rows, measured tables and declared bounds. For groups, rows and tables are weighted by
            precision, and the means are shrunk to the overall mean by empirical Bayes (Efron and Morris 1975).
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

        Estimates of groups are shrunk; each interval is at least as long as the group's own counts imply. If the own
        counts have a standard error above half a standard deviation of the column, the group is listed in
        ``attrs["hidden_groups"]``. Its interval comes from its own counts (Fieller 1954), within the column's bounds,
        and an `InferenceWarning` gives the number of such groups. Means by several keys that no table counts together
        assume a moderate interaction: ``attrs["assumes"]`` names the columns, and a warning the remedy.

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
        out = pd.DataFrame(means).T.infer_objects() if means else pd.DataFrame(columns=list(RESULTS))
        missing = {name: why for mean in means.values() for name, why in mean.attrs.get(NOT_FOUND, {}).items()}
        if missing:
            out.attrs[NOT_FOUND] = missing
        return out

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
        results, attrs, errors = self._shrink_groups(scale, axes, rows, method, target == "population")
        if not isinstance(by, str):
            results = self._widen_to_coarser_groups(results, column, keys, bins, method, target)
        means = self._present_groups(column, results[shown_cells].each(np.ravel), attrs, index)
        errors = errors[shown_cells].ravel()
        if method != "inverse":
            self._warn_of_groups(column, keys, index[errors > HIDDEN_SD].tolist(), len(errors), attrs)
        if (errors > HIDDEN_SD).any():
            means.attrs["hidden_groups"] = index[errors > HIDDEN_SD].tolist()
        return means

    def _can_draw(self, column: str, weights: str) -> bool:
        """Return whether measured tables count a number and weights from 0 on together."""
        spaces = [self._source.column(name).space for name in (column, weights)]
        has_numbers = all(space.is_numeric for space in spaces) and not spaces[1].is_time
        is_counted = column != weights and self._joints.tables.source_of([column, weights]) == "tables"
        return has_numbers and is_counted and end_numbers(spaces[1])[0] >= 0

    def _widen_to_coarser_groups(
        self, results: Results, column: str, keys: Sequence[str], bins: Any, method: str, target: str
    ) -> Results:
        """Widen intervals of groups by several keys to at least the intervals by each key alone."""
        for place, key in enumerate(keys):
            # Warnings about the coarser groups would confuse: the caller did not ask for them.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                coarse = self._mean(column, key, None, None, (bins or {}).get(key), method, target)
            assert isinstance(coarse, pd.DataFrame)
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

    def _shrink_groups(
        self,
        scale: moments.Scale,
        keys: Sequence[Axis],
        rows: tuple[FloatArray, FloatArray],
        method: str,
        population: bool,
    ) -> tuple[Results, dict[str, Any], FloatArray]:
        """Return group means from rows and measured tables, their attrs, and the errors before shrinkage.

        Rows and tables are weighted by precision; the combined means are shrunk to the overall mean by empirical Bayes.
        Intervals come from posterior draws; a group whose error is above `HIDDEN_SD` has the interval of its own
        counts. Errors before shrinkage are in standard deviations of the column. ``rows`` are means by released rows
        and their variances, which include a population's sampling variance.
        """
        ratio, variance = rows
        if method == "inverse":
            return self._results(ratio, variance), {"source": "rows"}, np.zeros(ratio.shape)
        fit, step = group_means(self._joints, keys, scale.column.name, self._z), scale.line[1]
        ends = end_numbers(scale.column.space)
        # The delta method fails for a ratio whose base is mostly noise; a mean outside the bounds reveals this, and its
        # distance to the bounds is added to the error.
        with np.errstate(invalid="ignore"):
            excess = np.where(variance > 0, ratio - np.clip(ratio, *ends), np.inf)
        estimates, row_variances = ratio, np.where(np.isfinite(excess), variance + excess**2, np.inf)
        noise_variances = row_variances
        centre, centre_variance, width = self._overall_mean(scale)
        if fit is not None:
            table_variances = np.minimum(np.maximum(fit.own.std_error * step, 1e-9), scale.width) ** 2
            row_weights = np.where(np.isfinite(row_variances), table_variances / (table_variances + row_variances), 0.0)
            # The ratio of a group without rows is not finite: 0 · inf would be NaN.
            estimates = (1 - row_weights) * (centre + step * fit.estimate) + row_weights * np.where(
                row_weights > 0, ratio, 0.0
            )
            noise_variances = (1 - row_weights) ** 2 * fit.noise * step**2 + row_weights**2 * np.where(
                row_weights > 0, row_variances, 0.0
            )
        residuals, scales = (estimates.ravel() - centre) / width, np.ones(estimates.size)
        shrunk_residuals, shrunk_variances = shrunk(
            residuals, noise_variances.ravel() / width**2, scales, _GROUP_MEAN_SD, _FAR_GROUP_SHARE
        )
        means = np.clip(centre + width * shrunk_residuals.reshape(estimates.shape), *ends)
        errors, posterior_variances, unshrunk_means = (
            np.sqrt(row_variances) / width,
            shrunk_variances.reshape(estimates.shape) * width**2,
            ratio,
        )
        with np.errstate(invalid="ignore"):
            low, high = ratio - self._z * np.sqrt(row_variances), ratio + self._z * np.sqrt(row_variances)
        if fit is not None:
            position = step * fit.position
            errors = np.fmin(np.hypot(fit.own.std_error * step, position) / width, errors)
            posterior_variances, unshrunk_means = (
                fit.draws.var(axis=0, ddof=1) * step**2,
                centre + step * fit.own.estimate,
            )
            # The interval of a group that may have no rows is infinite; the column's bounds cut it below.
            with np.errstate(invalid="ignore"):
                middle = centre + step * (fit.own.lower + fit.own.upper) / 2
                half = np.hypot(step * (fit.own.upper - fit.own.lower) / 2, self._z * position)
                low, high = middle - half, middle + half
        # Intervals are not shrunk: none is shorter than the interval of the group's own counts.
        squares = np.maximum(posterior_variances, np.minimum(errors, 1.0) ** 2 * width**2)
        is_hidden = ~(errors <= HIDDEN_SD)
        unshrunk_means = np.where(is_hidden & ~np.isfinite(unshrunk_means), means, unshrunk_means)
        # A mean that shrinkage moves by more than two errors contradicts its own counts, which then win.
        means = np.where(
            ~is_hidden & (np.abs(unshrunk_means - means) > 2 * np.sqrt(squares)), np.clip(unshrunk_means, *ends), means
        )
        # Shrinkage may bias a mean by the whole distance that it moves it: the squared distance adds to the variance.
        results = self._results(means, squares + (unshrunk_means - means) ** 2 + centre_variance)
        # A group without rows may have any mean within the bounds.
        low, high = (
            np.clip(np.where(np.isnan(end), bound, end), *ends) for end, bound in zip((low, high), ends, strict=True)
        )
        low, high = np.minimum(low, means), np.maximum(high, means)
        results = Results(
            means,
            np.where(is_hidden, (high - low) / (2 * self._z), results.std_error),
            np.where(is_hidden, low, results.lower),
            np.where(is_hidden, high, results.upper),
        )
        if population and fit is not None:
            results = results.with_variance(fit.chance * step**2, self._z)
        attrs: dict[str, Any] = {"source": "rows" if fit is None else "both"}
        if fit is not None and fit.assumes:
            attrs["assumes"] = [*(axis.name for axis in keys), scale.column.name]
        return results, attrs, errors

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
            remedy = measure_remedy if len(by) > 1 else "pool small groups in the next release"
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
