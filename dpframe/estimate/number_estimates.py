"""Estimates of numbers: sums, second moments and distributions, in pandas' words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack, cast

import numpy as np
import pandas as pd

from dpframe.errors import InferenceWarning, ParameterError, check_flags, check_whole, name_list, warn
from dpframe.estimate import moments
from dpframe.estimate.answer_options import AnswerOptions
from dpframe.estimate.axes import BinnedAxis, as_asked
from dpframe.estimate.base import column_names
from dpframe.estimate.beyond_bounds import Tails
from dpframe.estimate.correlations import fitted_correlation
from dpframe.estimate.evidence.number_law import truncated_root
from dpframe.estimate.groups import HIDDEN_SD
from dpframe.estimate.mean_estimates import MeanEstimates, end_numbers
from dpframe.estimate.not_found import NOT_FOUND, nan_if_not_found, warn_of_hidden
from dpframe.estimate.results import RESULTS, Results
from dpframe.estimate.weighted import weighted_covariances, weighted_quantiles
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import affine_map


class NumberEstimates(MeanEstimates):
    """Sums, variances, correlations, rates of nulls, histograms and quantiles."""

    @nan_if_not_found
    def sum(
        self,
        column: str | Sequence[str],
        *,
        by: str | Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        weights: str | None = None,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> Any:
        """Return the sum of a numeric column (pandas' ``sum``), over the rows that are not null.

        Parameters
        ----------
        column
            A randomised column of numbers or booleans; or a list of them, for a row each.
        by, where
            See `var`.
        weights
            A randomised numeric column: the result is the sum of products with the weights, over rows without nulls.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` in the column's unit.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers, or holds times, which have no sum.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> dpf.Estimates(safe).sum("age").round(-2).to_dict()
        {'estimate': 103500.0, 'std_error': 900.0, 'lower': 101700.0, 'upper': 105400.0}
        """
        column = cast("str", column)  # the class calls a statistic with one column at a time
        scale = moments.Scale.of(self._source.column(column))
        if scale.is_time:
            raise ParameterError(f"column {column!r} holds times, which have no sum; ask for their mean")
        if by is not None or where is not None or (weights is not None and self._can_draw(column, weights)):
            results, attrs, index = self._weigh_groups(
                [column], by, weights, target, _weighted_sum, where=where, beyond=Tails.of_sum
            )
            results, attrs = results.each(np.ravel), attrs | self._tail_attrs([column])
            return results.series(column, attrs) if by is None else results.frame(index, attrs)
        statistic = moments.total(scale, self._weight(weights, column))
        return self._statistic(statistic, [column] if weights is None else [column, weights], target)

    @nan_if_not_found
    def var(
        self,
        column: str | Sequence[str],
        ddof: int = 1,
        *,
        by: str | Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        weights: str | None = None,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> Any:
        """Return the variance of a numeric column (pandas' ``var``), over the rows that are not null.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times; or a list of them, for a row each.
        ddof
            Rows less than all that squares are divided by, at least 0.
        by
            A randomised column, or a list of them: one variance for each of their values, from draws of the table.
        where
            Conditions on columns, as in `count`: only rows that meet them, from draws of the table (see `infer`).
        weights
            A randomised column of weights from 0 on: Σw(x − m)²/Σw, times n/(n − ddof) for n rows, from draws.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``
        in the square of the column's unit (times: steps of the resolution); with ``by`` a DataFrame of such rows.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers; for another ``ddof``.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> dpf.Estimates(safe).var("age").round(-1).to_dict()
        {'estimate': 400.0, 'std_error': 30.0, 'lower': 340.0, 'upper': 450.0}
        """
        column = cast("str", column)  # the class calls a statistic with one column at a time
        checked_ddof = check_whole(ddof, "ddof", 0)
        if by is not None or where is not None or weights is not None:
            results, attrs, index = self._weigh_spreads(column, by, where, weights, checked_ddof, target)
            return results.series(column, attrs) if by is None else results.frame(index, attrs)
        series = self._variance(column, checked_ddof, target)
        # The interval covers rows that may lie beyond the bounds; the warning is for rows that surely do.
        self._warn_of_tails([column], lambda tails: tails.matter)
        return series

    def _weigh_spreads(
        self,
        column: str,
        by: str | Sequence[str] | None,
        where: Mapping[str, Any] | None,
        weights: str | None,
        ddof: int,
        target: str,
        function: Callable[[FloatArray], FloatArray] = np.asarray,
    ) -> tuple[Results, dict[str, Any], pd.Index[Any]]:
        """Return a function of the variance of a number with weights, by group."""

        def spread(values: list[FloatArray], row_weights: FloatArray) -> FloatArray:
            return function(weighted_covariances(values, row_weights, ddof).ravel())

        results, attrs, index = self._weigh_groups([column], by, weights, target, spread, where=where)
        return results.each(np.ravel).within(0.0), attrs | self._tail_attrs([column]), index

    def _variance(self, column: str, ddof: int, target: str) -> pd.Series[Any]:
        """Return the unbiased variance of a column."""
        return self._statistic(moments.variance(moments.Scale.of(self._source.column(column)), ddof), [column], target)

    @nan_if_not_found
    def std(
        self,
        column: str | Sequence[str],
        ddof: int = 1,
        *,
        by: str | Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        weights: str | None = None,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> Any:
        """Return the standard deviation of a numeric column (pandas' ``std``): the root of `var`.

        If the variance is uncertain, the estimate is the posterior mean of its root. The variance is at least 0, and
        with declared bounds a and b and the mean μ at most (b − μ)(μ − a) (Bhatia and Davis 2000). The interval of a
        binary column covers the interval of its share.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times; or a list of them, for a row each.
        ddof
            Rows less than all that squares are divided by, at least 0.
        by, where, weights
            See `var`.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` in the column's unit (times: durations); with ``by`` a DataFrame of
        such rows.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers; for another ``ddof``.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> dpf.Estimates(safe).std("age").round(1).to_dict()
        {'estimate': 19.9, 'std_error': 0.7, 'lower': 18.6, 'upper': 21.2}
        """
        column = cast("str", column)  # the class calls a statistic with one column at a time
        if by is not None or where is not None or weights is not None:
            checked_ddof = check_whole(ddof, "ddof", 0)
            roots, attrs, index = self._weigh_spreads(column, by, where, weights, checked_ddof, target, np.sqrt)
            roots = self._in_units(roots, column, "duration")
            return roots.series(column, attrs) if by is None else roots.frame(index, attrs)
        moment, z = self.var(column, ddof, target=target), self._z
        series = self._prefer_fit(moment, column, ddof, target)
        max_variance = self._max_variance(column, target)
        # Rows beyond inferred bounds widen only the upper side, so that the lower side gives the noise.
        noise_sd = min(series["std_error"], (series["estimate"] - series["lower"]) / z)
        value, upper_variance = series["estimate"], series["upper"]
        if series is moment:
            # An unbiased variance may be negative, unlike a fitted one: truncate its normal distribution at 0.
            value = truncated_root(value, noise_sd, max_variance) ** 2
            if upper_variance < value:
                # Far below 0 the truncated normal law is nearly exponential, with the scale σ² over the estimate's
                # size.
                upper_variance = value + z * noise_sd / max(-series["estimate"] / noise_sd, 1.0)
        lower, upper = (math.sqrt(min(max(end, 0.0), max_variance)) for end in (series["lower"], upper_variance))
        point = min(max(math.sqrt(value), lower), upper) if math.isfinite(value) else math.nan
        lower, upper = self._widen_by_share(column, ddof, target, lower, upper)
        arms = (point - lower) / z, (upper - point) / z
        error = max((upper - lower) / (2 * z), _error_of_root(value, noise_sd), math.hypot(*arms) / math.sqrt(2))
        results = Results(*np.array([point, error, lower, upper])[:, None])
        out = self._in_units(results, column, "duration").series(column)
        out.attrs |= moment.attrs
        return out

    def _widen_by_share(self, column: str, ddof: int, target: str, lower: float, upper: float) -> tuple[float, float]:
        """Widen the interval of a standard deviation of a binary column to cover the interval of the share p.

        √(p(1 − p)) is flat at ½ and steep at 0, so that the delta method understates its error.
        """
        space = self._source.column(column).space
        if space.values != 2:
            return lower, upper
        first, last = end_numbers(space)
        mean = self.mean(column, target=target)
        ends = np.clip((np.asarray(mean[["lower", "upper"]], dtype=np.float64) - first) / (last - first), 0.0, 1.0)
        if not np.isfinite(ends).all():
            return lower, upper
        # √(p(1 − p)) is largest at ½, or at the end nearest to ½ if the interval excludes ½.
        shares = np.append(ends, np.clip(0.5, *ends))
        rows = max(float(self.rows), ddof + 1.0)
        roots = (last - first) * np.sqrt(shares * (1 - shares) * rows / (rows - ddof))
        return min(lower, float(roots.min())), max(upper, float(roots.max()))

    def _prefer_fit(self, series: pd.Series[Any], column: str, ddof: int, target: str) -> pd.Series[Any]:
        """Return the variance of the column's fitted distribution if it is more precise and compatible."""
        law, rows = self._joints.law(column), max(float(self._all_rows), ddof + 1.0)
        if not self.n or self._tails(column) is not None or law.source == "tables":
            return series
        scale = affine_map(self._source.column(column).space)[1] ** 2 * rows / (rows - ddof)
        value, error = (v * scale for v in law.variance(self._source.sampling(target)))
        # If the fit lies outside the unbiased interval, the fit is misspecified: keep the unbiased estimate.
        if not error < series["std_error"] or not series["lower"] <= value <= series["upper"]:
            return series
        fitted = series.copy()
        fitted[list(RESULTS)] = value, error, value - self._z * error, value + self._z * error
        return fitted

    def _max_variance(self, column: str, target: str) -> float:
        """Return the largest variance given declared bounds and the interval of the mean (Bhatia and Davis 2000)."""
        if self._tails(column) is not None:
            return math.inf
        space = self._source.column(column).space
        if space.is_time:
            return math.inf
        mean = self.mean(column, target=target)
        mean_lower, mean_upper = (float(np.asarray(mean[end])) for end in ("lower", "upper"))
        if not math.isfinite(mean_lower + mean_upper):
            return math.inf
        first, last = end_numbers(space)
        centre = min(max((first + last) / 2, mean_lower), mean_upper)
        rows = max(float(self.rows), 2.0)
        return max((last - centre) * (centre - first), 0.0) * rows / (rows - 1)

    def cov(
        self,
        columns: str | Sequence[str] | None = None,
        other: str | None = None,
        *,
        ddof: int = 1,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> Any:
        """Return the covariances of numeric columns (pandas' ``DataFrame.cov``), nulls dropped by pair.

        If bounds were inferred, intervals include the increase of both standard deviations by rows beyond the bounds.

        Parameters
        ----------
        columns, other
            Randomised numeric columns, by default all of them; or two names, for one covariance.
        ddof
            Rows less than all that squares are divided by, at least 0.
        target
            See the class.

        Returns
        -------
        DataFrame of columns by columns, with ``estimate, std_error, lower, upper`` as an outer level of its columns,
        in the product of both units; of two names a Series ``estimate, std_error, lower, upper``.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers; for another ``ddof``.

        Examples
        --------
        >>> import numpy as np, pandas as pd, dpframe as dpf
        >>> frame = pd.DataFrame({"x": np.arange(2_000), "y": np.arange(2_000) // 2})
        >>> safe = dpf.sanitize(
        ...     frame, epsilon=20, delta=0, spaces={"x": (0, 2_000), "y": (0, 1_000)}, key=bytes(32)
        ... )
        >>> dpf.Estimates(safe).cov()["estimate"].round(-3).loc["x", "y"]
        np.float64(167000.0)
        """
        checked_ddof = check_whole(ddof, "ddof", 0)
        if other is not None:
            return _answer_of_pair(self.cov(_pair_of(columns, other, "cov"), ddof=ddof, target=target))

        def covariance(pair: tuple[str, str], values: FloatArray, covariances: FloatArray) -> Results:
            # Under perfect correlation the covariance is the product of both standard deviations: multiply the factors.
            factor = math.prod(math.sqrt(tails.rise) for name in pair if (tails := self._tails(name)) is not None)
            return self._results(values[:1], covariances[0, :1]).stretched(factor, self._z)

        return self._matrix(
            columns, checked_ddof, target, lambda name: self._variance(name, checked_ddof, target), covariance
        )

    def corr(
        self,
        columns: str | Sequence[str] | None = None,
        other: str | None = None,
        *,
        weights: str | None = None,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> Any:
        """Return the correlations of numeric columns (pandas' ``DataFrame.corr``), nulls dropped by pair.

        If both columns were measured, the estimate comes from the fit, and the interval from posterior draws. Otherwise
        intervals are by profile likelihood (Venzon and Moolgavkar 1988). If a variance is below its noise, the interval
        is −1 to 1, the estimate is NaN, and a warning names the pair. ``std_error`` is the interval's longer side over
        its normal quantile.

        Parameters
        ----------
        columns, other
            Randomised numeric columns, by default all of them; or two names, for one correlation.
        weights
            A randomised column of weights from 0 on; every pair of columns is then drawn with the weights.
        target
            See the class.

        Returns
        -------
        DataFrame of columns by columns, with ``estimate, std_error, lower, upper`` as an outer level of its columns; of
        two names a Series of these.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers.

        Examples
        --------
        >>> import numpy as np, pandas as pd, dpframe as dpf
        >>> frame = pd.DataFrame({"x": np.arange(2_000), "y": np.arange(2_000) // 2})
        >>> safe = dpf.sanitize(
        ...     frame, epsilon=20, delta=0, spaces={"x": (0, 2_000), "y": (0, 1_000)}, key=bytes(32)
        ... )
        >>> dpf.Estimates(safe).corr()["estimate"].round(1).loc["x", "y"]
        np.float64(1.0)
        >>> dpf.Estimates(safe).corr("x", "y", confidence_level=0.9, long=True).round(1)
          column with  estimate  std_error  lower  upper
        0      x    y       1.0        0.0    1.0    1.0
        """
        z = self._z
        if other is not None:
            return _answer_of_pair(self.corr(_pair_of(columns, other, "corr"), weights=weights, target=target))
        if weights is not None:
            return self._weigh_correlations(columns, weights, target)

        def correlation(pair: tuple[str, str], values: FloatArray, covariances: FloatArray) -> Results:
            fitted = fitted_correlation(self._joints, *pair, target == "population", z)
            if fitted is not None:
                return fitted
            point, lower, upper = moments.profile_correlation(values, covariances, z)
            # An estimate of 1 has no upper side, so that half of the interval's length would understate its error.
            longer = (upper - lower) / 2 if math.isnan(point) else max(upper - point, point - lower)
            return Results(point, longer / z, lower, upper)

        diagonal = dict(zip(RESULTS, (1.0, 0.0, 1.0, 1.0), strict=True))
        matrix = self._matrix(columns, 0, target, lambda name: pd.Series(diagonal), correlation)
        warn_of_hidden(matrix.index, matrix["estimate"].to_numpy(), matrix.attrs.get(NOT_FOUND, {}))
        return matrix

    @nan_if_not_found
    def _weigh_correlations(self, columns: Sequence[str] | None, weights: str, target: str) -> pd.DataFrame:
        """Return the correlations of columns with weights, each pair from draws of its own."""
        names = [name for name in self._numeric() if name != weights]
        names = names if columns is None else column_names(columns, "columns")
        self._check_weights(weights, names)
        values = np.full((len(RESULTS), len(names), len(names)), np.nan)
        attrs: dict[str, Any] = {}

        def correlate(numbers: list[FloatArray], row_weights: FloatArray) -> FloatArray:
            covariances = weighted_covariances(numbers, row_weights, 0)
            scale = math.sqrt(max(covariances[0, 0] * covariances[1, 1], 0.0))
            return np.array([covariances[0, 1] / scale if scale else math.nan])

        for i, first in enumerate(names):
            values[:, i, i] = 1.0, 0.0, 1.0, 1.0
            for j, second in enumerate(names[:i]):
                if first == second:
                    values[:, i, j] = values[:, j, i] = 1.0, 0.0, 1.0, 1.0
                    continue
                results, attrs, _ = self._weigh_groups([first, second], None, weights, target, correlate)
                one = results.within(-1.0, 1.0)
                values[:, i, j] = values[:, j, i] = [float(getattr(one, name)[0, 0]) for name in RESULTS]
        pair_attrs: dict[str, Any] = {name: attrs[name] for name in ("source", "weights", "draws") if name in attrs}
        return Results(*values).wide(names, names, pair_attrs)

    # Distributions

    @nan_if_not_found
    def histogram(
        self,
        column: str,
        bins: int | Sequence[Any] = 10,
        *,
        density: bool = False,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.DataFrame:
        """Return the distribution of a numeric column in bins, by maximum likelihood.

        The distribution is fitted on a grid of 128 cells, so that its counts are not negative. Counts of measured
        tables are unbiased, and may be slightly negative in empty bins. `value_counts` with ``bins`` and
        ``method="inverse"`` gives unbiased counts instead, with much larger errors. Without measured tables (δ = 0, or
        ``measure=None``) a fit is smooth on the scale of Laplace noise: a spike, as of 40 hours a week, is spread over
        its neighbours. Intervals are by profile likelihood, and wide if the rows do not rule out a spike.
        ``numbers="square_wave"`` resolves spikes, for up to about 1,000 steps.

        Parameters
        ----------
        column
            A randomised numeric column.
        bins
            A number of bins between the space's bounds (at most one for each value), or bounds in order (NumPy's
            ``histogram``). Bins beyond the space's bounds are NaN, because values there were clipped. A bin up to the
            space's upper bound ends a step beyond it, because it includes the rows at the bound.
        density
            Give densities per unit instead of counts.
        target
            See the class.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> dpf.Estimates(safe).histogram("age", bins=[0, 30, 60, 90])["estimate"].round(-2)
        age
        [0.0, 30.0)     400.0
        [30.0, 60.0)    900.0
        [60.0, 90.0)    700.0
        Name: estimate, dtype: float64
        """
        sampling = self._source.sampling(target)
        axis = self._axis(column, 10 if bins is None else bins)
        assert isinstance(axis, BinnedAxis)
        fitted, rows = self._joints.law(column), self._all_rows
        parts = fitted.overlap_with(axis)
        unit = np.ones(axis.bins)
        check_flags(density=density)
        if density:
            # Densities are per unit and per row that is not null: they integrate to 1, as NumPy's do.
            widths = np.diff(axis.edges) * affine_map(axis.column.space)[1] * fitted.shares[: fitted.bins].sum()
            unit = 1 / (widths * rows)
        part, tails = slice(0, axis.bins), self._tails(column)
        results = Results(*fitted.parts_of(parts[part], sampling, self._z) * rows * unit)
        if isinstance(bins, Iterable):
            self._warn_of_rows_at_ends(column, *self._count_rows_at_bounds(axis))
            results = self._widen_at_bounds(results, axis, unit)
        results = results.from_none()
        if tails is not None:
            results = results.opened((tails.of_bins(axis.bins), (0.0, 0.0)), self._z, unit)
        results = results.within(most=rows * unit)
        frame = results.frame(axis.labels[part], {"source": fitted.source} | self._tail_attrs([column]))
        return frame if isinstance(bins, int | np.integer) or bins is None else as_asked(frame, axis, list(bins))

    @nan_if_not_found
    def quantile(
        self,
        column: str,
        q: float | Sequence[float] = 0.5,
        *,
        by: str | Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        weights: str | None = None,
        target: str = "table",
        **options: Unpack[AnswerOptions],
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return quantiles of a numeric column's values (pandas' ``quantile``), by maximum likelihood.

        The distribution is fitted on a grid of 128 cells and interpolated within cells. The estimate is a value of the
        space, and the standard error is at least the error of an interval one step long. Intervals invert the
        likelihood interval of the level (Woodruff 1952). They stay within the space's bounds; an interval up to an
        inferred bound includes the rows that may lie beyond. Extremes (0 and 1) cannot be learnt from noisy rows.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times.
        q
            A level in (0, 1), or a list of them.
        by
            A randomised column, or a list of them: quantiles for each of their values, from draws of the table.
        where
            Conditions on columns, as in `count`: only rows that meet them, from draws of the table.
        weights
            A randomised column of weights from 0 on: the values at which the share of the weights reaches the levels,
            from draws of the table (see `infer`).
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` in the column's unit; of a list a DataFrame with a row per level.
        With ``by`` a DataFrame with a row per group, and of a list per group and level.

        Raises
        ------
        ParameterError
            For a column that is not randomised, or holds no numbers; for a level outside (0, 1).

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(2_000, columns=["age"])
        >>> safe = dpf.sanitize(frame, epsilon=8, delta=0, spaces={"age": (0, 120)}, key=bytes(32))
        >>> dpf.Estimates(safe).quantile("age", [0.25, 0.5]).round()
              estimate  std_error  lower  upper
        q
        0.25      40.0        5.0   26.0   46.0
        0.50      57.0        5.0   42.0   62.0
        """
        sampling = self._source.sampling(target)
        levels, z = checked_levels(q), self._z
        source_column = self._source.column(column)
        if by is not None or where is not None or weights is not None:
            return self._weigh_quantiles(column, levels, by, where, weights, target, bool(np.ndim(q)))
        moments.check_holds_numbers(source_column)
        space = source_column.space
        fitted = self._joints.law(column)
        start, step = affine_map(space)
        codes = fitted.quantiles(levels, z, sampling)
        last = space.values - 1
        point, lower, upper = (start + np.clip(code, 0, last) * step for code in codes)
        # Real numbers are rounded to a grid, which leaves an error of half a step.
        rounding = 0.0 if space.is_whole else step / 2
        end = start + last * step
        lower, upper = np.maximum(lower - rounding, start), np.minimum(upper + rounding, end)
        if (tails := self._tails(column)) is not None:
            below, above = np.transpose([tails.of_quantile(level, z) for level in levels])
            lower, upper = lower - np.where(lower <= start, below, 0.0), upper + np.where(upper >= end, above, 0.0)
        # An interval of one value still has the rounding error of half a step.
        error = np.maximum(upper - lower, step) / (2 * z)
        results = Results(point, error, lower, upper)
        attrs = {"source": fitted.source} | self._tail_attrs([column])
        table = self._in_units(results, column).frame(pd.Index(levels, name="q"), attrs)
        return table if np.ndim(q) else table.iloc[0].rename(column)

    def _weigh_quantiles(
        self,
        column: str,
        levels: FloatArray,
        by: str | Sequence[str] | None,
        where: Mapping[str, Any] | None,
        weights: str | None,
        target: str,
        has_levels: bool,
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return quantiles with weights, by group, from draws of the table."""

        def quantiles(values: list[FloatArray], row_weights: FloatArray) -> FloatArray:
            return weighted_quantiles(values[0], row_weights, levels)

        results, attrs, index = self._weigh_groups([column], by, weights, target, quantiles, where=where)
        attrs |= self._tail_attrs([column])
        results = results.each(np.ravel)
        space = self._source.column(column).space
        if self._tails(column) is None:
            results = results.within(*end_numbers(space))
        law = self._joints.law(column)
        sd = affine_map(space)[1] * math.sqrt(law.spread(law.shares)[1])
        hidden = int((results.std_error > HIDDEN_SD * sd).sum())
        if by is not None and hidden:
            warn(
                f"{hidden} of {len(results.estimate)} quantiles of {column!r} by {name_list(column_names(by, 'by'))} "
                "are mostly noise; pool small groups in the next release",
                InferenceWarning,
            )
        results = self._in_units(results, column)
        if by is None:
            table = results.frame(pd.Index(levels, name="q"), attrs)
            return table if has_levels else table.iloc[0].rename(column)
        if has_levels:
            groups = [group if isinstance(group, tuple) else (group,) for group in index]
            rows = [(*group, level) for group in groups for level in levels]
            index = pd.MultiIndex.from_tuples(rows, names=[*index.names, "q"])
        return results.frame(index, attrs)


def _pair_of(columns: Any, other: Any, statistic: str) -> list[str]:
    """Return the two columns of one answer."""
    if not isinstance(columns, str) or not isinstance(other, str):
        raise ParameterError(f'{statistic} takes two names, e.g. {statistic}("age", "income"), or one list of them')
    return [columns, other]


def _answer_of_pair(matrix: pd.DataFrame) -> pd.Series[Any]:
    """Return the answer of the two columns of a matrix."""
    answer = Results(*(matrix[part].to_numpy()[0, 1] for part in RESULTS))
    return answer.series(tuple(matrix.index), {str(name): value for name, value in matrix.attrs.items()})


def _weighted_sum(values: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Return the sum of products with weights."""
    return np.array([weights @ values[0]])


def _error_of_root(value: float, error: float) -> float:
    """Return the standard error of a root: by the delta method, or by a secant three errors down if that is steeper."""
    root = math.sqrt(value)
    if not root > 0:
        return math.sqrt(error) if error >= 0 else math.nan
    return max(error / (2 * root), (root - math.sqrt(max(value - 3 * error, 0.0))) / 3)


def checked_levels(q: Any, fewest: int = 0) -> FloatArray:
    """Return quantile levels, or raise `ParameterError` unless they lie in (0, 1) and number at least ``fewest``."""
    try:
        levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
    except (TypeError, ValueError):
        levels = np.array([np.nan])
    if levels.ndim != 1 or len(levels) < fewest or not ((levels > 0) & (levels < 1)).all():
        raise ParameterError(
            "q must lie in (0, 1), or be a list of such levels, e.g. q=0.5: extremes cannot be learnt through noise"
        )
    return levels
