"""Estimates of numbers: moments and distributions, in pandas' words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dpframe.errors import InferenceWarning, ParameterError, check_flags, check_whole, is_one_of, name_list, warn
from dpframe.estimate import moments, surrogates
from dpframe.estimate.axes import Axis, BinnedAxis, as_asked, check_inverts
from dpframe.estimate.base import column_names
from dpframe.estimate.evidence.combine import shrunk
from dpframe.estimate.evidence.number_law import truncated_root
from dpframe.estimate.groups import HIDDEN_SD
from dpframe.estimate.not_found import NOT_FOUND, nan_if_not_found, reasons, warn_of_hidden
from dpframe.estimate.results import RESULTS, Results
from dpframe.estimate.table_column import aggregation
from dpframe.estimate.vectors import VectorEstimates
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import line_of

_ALIKE, _FAR = 0.3, 0.1
"""Standard deviation of what means of groups differ by, in those of the column's values, beforehand; and the part of
groups that may differ by all of it (tuned; half and twice it change widths on a census: `_ALIKE` by −13 and 11 %,
`_FAR` by −7 and 10 %)."""


class NumberEstimates(VectorEstimates):
    """Means, sums, variances, correlations, rates of nulls, histograms and quantiles."""

    def mean(
        self,
        column: str | Sequence[str],
        by: str | Sequence[str] | None = None,
        *,
        weights: str | None = None,
        bins: Any = None,
        method: str = "auto",
        target: str = "table",
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return the mean of a numeric column, over the rows where it is not null.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times, or of vectors or curves; or a list of columns of numbers.
        by
            A randomised column: one mean per value (nulls of ``by`` are left out). Or a list of them: one mean for
            every combination of their values. Means of groups need not average to the mean of all: each is estimated
            for itself, with noise of its own, and drawn to the others only as far as noise asks for.
        weights
            A randomised numeric column of non-negative weights.
        bins
            Cut ``by`` into bins; of several ``{column: number or bounds}``.
        method
            ``"auto"`` takes all that is known, declared bounds included: of groups the rows and what was measured,
            weighted by precision; drawn to the mean of all rows by how much of their differences is noise (Efron and
            Morris 1975).
            ``"inverse"`` takes only the rows, unbiased up to the ratio.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``; with ``by``, or of several columns, a DataFrame of such rows. Of
        vectors a DataFrame with a row for every coordinate, of curves for every point (see `mean_curve`).

        Where private inference found a column's bounds, the estimate is that of the column clipped to them, and the
        interval is opened by what may lie beyond, groups taken for alike; ``attrs["beyond_bounds"]`` has the share of
        the rows that is seen there. So it is with `sum`, `var` and `std`.

        Estimates of groups are shrunk; their intervals are no shorter than each group's own counts allow. A group whose
        own counts leave its mean open by more than half a standard deviation of the column is in
        ``attrs["hidden_groups"]``: its interval is that of its own counts (Fieller 1954), within the column's bounds,
        and an `InferenceWarning` says how many groups are. Means by several keys that no table counts together assume
        a moderate interaction: ``attrs["assumes"]`` names the columns, and a warning the remedy.

        Raises
        ------
        ParameterError
            For a column that is not randomised or holds no numbers, ``weights`` with ``by``, or several columns with
            ``by``.

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
            return self._mean(column, by, weights, bins, method, target)
        columns = column_names(column, "column")
        vectors = next((name for name in columns if self._source.column(name).space.holds_vectors), None)
        if vectors is not None:
            raise ParameterError(f"the mean of column {vectors!r} is a vector; ask for it on its own")
        if by is not None:
            raise ParameterError("by goes with the mean of one column; ask for each of them")
        means = {name: self._mean(name, None, weights, None, method, target) for name in columns}
        out = pd.DataFrame(means).T.infer_objects() if means else pd.DataFrame(columns=list(RESULTS))
        missing = {name: why for mean in means.values() for name, why in mean.attrs.get(NOT_FOUND, {}).items()}
        if missing:
            out.attrs[NOT_FOUND] = missing
        return out

    @nan_if_not_found
    def _mean(
        self, column: str, by: str | Sequence[str] | None, weights: str | None, bins: Any, method: str, target: str
    ) -> pd.Series[Any] | pd.DataFrame:
        if self._source.column(column).space.holds_vectors:
            return self._vector_means(column, by, bins, target, weights=weights)
        sampling = self._source.sampling(target)
        scale = moments.Scale.of(self._source.column(column))
        if by is None:
            statistic = moments.mean(scale, self._weight(weights, column))
            if method == "inverse":
                statistic = replace(statistic, known=lambda law, own: None, bounds=(-math.inf, math.inf))
            return self._statistic(statistic, [column] if weights is None else [column, weights], target)
        if weights is not None:
            raise ParameterError("weights and by do not go together; leave one of them out")
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
        homes = [home for name in [column, *keys] if (home := self.plan.group_of(name)) is not None]
        together = len({home.names for home in homes}) < len(homes)
        if together and not isinstance(by, str):
            raise ParameterError("columns that are randomised together cannot be separated by several keys; name one")
        groups = [replace(axes[0], group=homes[0])] if together else axes
        batches = self._source.codes([column, *keys])
        ratio, spread = surrogates.ratio_by_all(
            scale.column, scale.value, scale.present, groups, batches, sampling, self._squares_of_bins(groups)
        )
        shown = self._shown_cells(axes, dropna=True)
        labels, kept = [axis.labels[cells] for axis, cells in zip(axes, shown, strict=True)], np.ix_(*shown)
        index = labels[0] if isinstance(by, str) else pd.MultiIndex.from_product(labels)
        rows = scale.back(ratio), spread * scale.width**2
        results, said, errors = self._with_groups(scale, axes, rows, method, target == "population")
        if not isinstance(by, str):
            results = self._no_surer_than_coarser(results, column, keys, bins, method, target)
        found = self._group_means(column, results[kept].each(np.ravel), said, index)
        errors = errors[kept].ravel()
        if method != "inverse":
            self._warn_of_groups(column, keys, index[errors > HIDDEN_SD].tolist(), len(errors), said)
        if (errors > HIDDEN_SD).any():
            found.attrs["hidden_groups"] = index[errors > HIDDEN_SD].tolist()
        return found

    def _no_surer_than_coarser(
        self, results: Results, column: str, keys: Sequence[str], bins: Any, method: str, target: str
    ) -> Results:
        """Return intervals of groups by several keys that are no shorter than those by each key."""
        for place, key in enumerate(keys):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                coarse = self._mean(column, key, None, (bins or {}).get(key), method, target)
            assert isinstance(coarse, pd.DataFrame)
            error = coarse["std_error"].to_numpy()
            shape = [1] * results.std_error.ndim
            shape[place] = -1
            error = np.append(error, [0.0] * (results.std_error.shape[place] - len(error))).reshape(shape)
            factor = np.maximum(error / np.maximum(results.std_error, 1e-300), 1.0)
            with np.errstate(invalid="ignore"):
                results = Results(
                    results.estimate,
                    results.std_error * factor,
                    results.estimate - (results.estimate - results.lower) * factor,
                    results.estimate + (results.upper - results.estimate) * factor,
                )
        return results

    def _with_groups(
        self,
        scale: moments.Scale,
        keys: Sequence[Axis],
        rows: tuple[FloatArray, FloatArray],
        method: str,
        population: bool,
    ) -> tuple[Results, dict[str, Any], FloatArray]:
        """Return means of groups from the rows and from what was measured, what is said of them, and their own errors.

        Estimates are weighted by precision, and shrunk to the mean of all by how much of their differences is noise;
        intervals are of the posterior's draws, and of a group's own evidence where noise hides the group. Last come the
        errors of what each group shows of itself, in standard deviations of the column. ``rows`` are means by released
        rows and their variances, which hold a population's chance.
        """
        ratio, variance = rows
        if method == "inverse":
            return self._results(ratio, variance), {"source": "rows"}, np.zeros(ratio.shape)
        fit, step = self._joints.group_means(keys, scale.column.name, self._z), scale.line[1]
        ends = _ends(scale.column.space)
        # A few rows give a ratio's error by a base that is noise itself: means beyond the bounds say so.
        with np.errstate(invalid="ignore"):
            beyond = np.where(variance > 0, ratio - np.clip(ratio, *ends), np.inf)
        found, spread = ratio, np.where(np.isfinite(beyond), variance + beyond**2, np.inf)
        noise = spread
        centre, unsure, width = self._common_mean(scale)
        if fit is not None:
            own = np.minimum(np.maximum(fit.own.std_error * step, 1e-9), scale.width) ** 2
            weight = np.where(np.isfinite(spread), own / (own + spread), 0.0)
            # Of no rows a ratio, and its error, are not finite.
            found = (1 - weight) * (centre + step * fit.estimate) + weight * np.where(weight > 0, ratio, 0.0)
            noise = (1 - weight) ** 2 * fit.noise * step**2 + weight**2 * np.where(weight > 0, spread, 0.0)
        apart, scales = (found.ravel() - centre) / width, np.ones(found.size)
        moved, left = shrunk(apart, noise.ravel() / width**2, scales, _ALIKE, _FAR)
        means = np.clip(centre + width * moved.reshape(found.shape), *ends)
        errors, drawn, other = np.sqrt(spread) / width, left.reshape(found.shape) * width**2, ratio
        with np.errstate(invalid="ignore"):
            low, high = ratio - self._z * np.sqrt(spread), ratio + self._z * np.sqrt(spread)
        if fit is not None:
            errors = np.fmin(fit.own.std_error * step / width, errors)
            drawn, other = fit.draws.var(axis=0, ddof=1) * step**2, centre + step * fit.own.estimate
            low, high = (centre + step * end for end in (fit.own.lower, fit.own.upper))
        # A group is no surer than its own evidence: intervals are not shrunk as estimates are.
        squares = np.maximum(drawn, np.minimum(errors, 1.0) ** 2 * width**2)
        hidden = ~(errors <= HIDDEN_SD)
        other = np.where(hidden & ~np.isfinite(other), means, other)
        means = np.where(~hidden & (np.abs(other - means) > 2 * np.sqrt(squares)), np.clip(other, *ends), means)
        results = self._results(means, squares + (other - means) ** 2 + unsure)
        # Without rows of its own a group may have any mean.
        low, high = (
            np.clip(np.where(np.isnan(end), most, end), *ends) for end, most in zip((low, high), ends, strict=True)
        )
        low, high = np.minimum(low, means), np.maximum(high, means)
        results = Results(
            means,
            np.where(hidden, (high - low) / (2 * self._z), results.std_error),
            np.where(hidden, low, results.lower),
            np.where(hidden, high, results.upper),
        )
        if population and fit is not None:
            results = results.with_variance(fit.chance * step**2, self._z)
        said: dict[str, Any] = {"source": "rows" if fit is None else "both"}
        if fit is not None and fit.assumes:
            said["assumes"] = [*(axis.name for axis in keys), scale.column.name]
        return results, said, errors

    def _warn_of_groups(
        self, column: str, by: Sequence[str], hidden: Sequence[Any], groups: int, said: Mapping[str, Any]
    ) -> None:
        """Warn once of groups that noise hides, and of an interaction that is assumed to be moderate."""
        if not self.clipped and not reasons(self.plan.not_found).keys().isdisjoint((column, *by)):
            return
        table = ", ".join(map(repr, [*by, column]))
        more = f'measure=["auto", ({table})] in another release measures them together'
        if hidden:
            # One key is measured with the number by default: only less noise helps.
            remedy = more if len(by) > 1 else "pool small groups, or raise epsilon"
            warn(
                f"means of {column!r} by {name_list(by)}: noise hides {len(hidden)} of {groups} groups, whose "
                f"intervals are of their own counts; {remedy}",
                InferenceWarning,
            )
        elif "assumes" in said:
            warn(f"means of {column!r} by {name_list(by)} assume a moderate interaction; {more}", InferenceWarning)

    def _common_mean(self, scale: moments.Scale) -> tuple[float, float, float]:
        """Return the mean of all rows, its variance, and the standard deviation of the rows."""
        (start, step), (mean, squares) = scale.line, self._joints.law(scale.column.name).moments
        width, ends = step * math.sqrt(max(squares, 0.0)), _ends(scale.column.space)
        values, covariance, _ = self._with_levels(moments.mean(scale, None), [scale.column.name], "table")
        centre, unsure = float(values[0]), float(covariance[0, 0])
        if not math.isfinite(centre + unsure):
            centre, unsure = start + step * mean, scale.width**2
        unsure = min(unsure, scale.width**2)
        return float(np.clip(centre, *ends)), unsure, max(width, math.sqrt(unsure), 1e-12 * scale.width)

    def _group_means(self, column: str, results: Results, said: Mapping[str, Any], index: pd.Index) -> pd.DataFrame:
        self._warn_of_clipped([column])
        self._warn_of_others([column])
        tails = self._tails(column)
        if said["source"] != "rows" or np.isfinite(results.std_error).all():
            results = results.clipped(*_ends(self._source.column(column).space))
        if tails is not None:
            results = results.opened(tails.of_mean(), self._z)
        return self._in_units(results, column).frame(index, {**said} | self._said_of_tails([column]))

    @nan_if_not_found
    def sum(self, column: str, *, weights: str | None = None, target: str = "table") -> pd.Series[Any]:
        """Return the sum of a numeric column (pandas' ``sum``), over the rows where it is not null.

        Parameters
        ----------
        column
            A randomised column of numbers or booleans.
        weights
            A randomised numeric column: the sum is of the products with it, where neither is null.
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
        scale = moments.Scale.of(self._source.column(column))
        if scale.is_time:
            raise ParameterError(f"column {column!r} holds times, which have no sum; ask for their mean")
        statistic = moments.total(scale, self._weight(weights, column))
        return self._statistic(statistic, [column] if weights is None else [column, weights], target)

    @nan_if_not_found
    def var(self, column: str, ddof: int = 1, *, target: str = "table") -> pd.Series[Any]:
        """Return the variance of a numeric column (pandas' ``var``), over the rows where it is not null.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times.
        ddof
            Rows less than all that squares are divided by, at least 0.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper``
        in the square of the column's unit (times: steps of the resolution).

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
        found = self._variance(column, check_whole(ddof, "ddof", 0), target)
        # The interval holds what may lie beyond; a warning is for what surely does.
        self._warn_of_tails([column], lambda tails: tails.matter)
        return found

    def _variance(self, column: str, ddof: int, target: str) -> pd.Series[Any]:
        return self._statistic(moments.variance(moments.Scale.of(self._source.column(column)), ddof), [column], target)

    @nan_if_not_found
    def std(self, column: str, ddof: int = 1, *, target: str = "table") -> pd.Series[Any]:
        """Return the standard deviation of a numeric column (pandas' ``std``): the root of `var`.

        Where noise leaves the variance uncertain the estimate is the mean of what its root may be: not below 0, and for
        declared bounds a and b and the mean μ at most (b − μ)(μ − a) (Bhatia and Davis 2000).
        The interval of a column of two values is as wide as that of the share of either.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times.
        ddof
            Rows less than all that squares are divided by, at least 0.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` in the column's unit (times: durations).

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
        moment, z = self.var(column, ddof, target=target), self._z
        found = self._with_fit(moment, column, ddof, target)
        most = self._most_variance(column, target)
        # What may lie beyond inferred bounds opens the interval upwards, and is no noise about the estimate.
        own = min(found["std_error"], (found["estimate"] - found["lower"]) / z)
        value, highest = found["estimate"], found["upper"]
        if found is moment:
            # A fit is no normal law that reaches below zero, as this one does: what is below is spread above.
            value = truncated_root(value, own, most) ** 2
            if highest < value:
                highest = value + z * own / max(-found["estimate"] / own, 1.0)
        lower, upper = (math.sqrt(min(max(end, 0.0), most)) for end in (found["lower"], highest))
        point = min(max(math.sqrt(value), lower), upper) if math.isfinite(value) else math.nan
        lower, upper = self._with_share(column, ddof, target, lower, upper)
        arms = (point - lower) / z, (upper - point) / z
        error = max((upper - lower) / (2 * z), _error_of_root(value, own), math.hypot(*arms) / math.sqrt(2))
        results = Results(*np.array([point, error, lower, upper])[:, None])
        out = self._in_units(results, column, "duration").series(column)
        out.attrs |= moment.attrs
        return out

    def _with_share(self, column: str, ddof: int, target: str, lower: float, upper: float) -> tuple[float, float]:
        """Return an interval of a standard deviation, for two values as wide as that of the share of either.

        The root of p(1 − p) is flat at a half and steep at 0: an error of p there is far from that of a straight line.
        """
        space = self._source.column(column).space
        if space.values != 2:
            return lower, upper
        first, last = _ends(space)
        mean = self.mean(column, target=target)
        ends = np.clip((np.asarray(mean[["lower", "upper"]], dtype=np.float64) - first) / (last - first), 0.0, 1.0)
        if not np.isfinite(ends).all():
            return lower, upper
        shares = np.append(ends, np.clip(0.5, *ends))
        rows = max(float(self.rows), ddof + 1.0)
        roots = (last - first) * np.sqrt(shares * (1 - shares) * rows / (rows - ddof))
        return min(lower, float(roots.min())), max(upper, float(roots.max()))

    def _with_fit(self, found: pd.Series[Any], column: str, ddof: int, target: str) -> pd.Series[Any]:
        law, rows = self._joints.law(column), max(float(self._all_rows), ddof + 1.0)
        if not self.n or self._tails(column) is not None or law.source == "tables":
            return found
        scale = line_of(self._source.column(column).space)[1] ** 2 * rows / (rows - ddof)
        value, error = (v * scale for v in law.variance(self._source.sampling(target)))
        # Where both contradict each other the unbiased one is right.
        if not error < found["std_error"] or not found["lower"] <= value <= found["upper"]:
            return found
        out = found.copy()
        out[list(RESULTS)] = value, error, value - self._z * error, value + self._z * error
        return out

    def _most_variance(self, column: str, target: str) -> float:
        """Return the most that the variance of a column may be, given its declared bounds and what its mean may be."""
        if self._tails(column) is not None:
            return math.inf
        space = self._source.column(column).space
        if space.is_time:
            return math.inf
        mean = self.mean(column, target=target)
        least, greatest = (float(np.asarray(mean[end])) for end in ("lower", "upper"))
        if not math.isfinite(least + greatest):
            return math.inf
        first, last = _ends(space)
        centre = min(max((first + last) / 2, least), greatest)
        rows = max(float(self.rows), 2.0)
        return max((last - centre) * (centre - first), 0.0) * rows / (rows - 1)

    def cov(self, columns: Sequence[str] | None = None, ddof: int = 1, *, target: str = "table") -> pd.DataFrame:
        """Return the covariances of numeric columns (pandas' ``DataFrame.cov``), nulls dropped by pair.

        Where bounds were inferred, intervals reach as far as rows beyond them seem to raise both spreads.

        Parameters
        ----------
        columns
            Randomised numeric columns, by default all of them.
        ddof
            Rows less than all that squares are divided by, at least 0.
        target
            See the class.

        Returns
        -------
        DataFrame of columns by columns, with ``estimate, std_error, lower, upper`` as an outer level of its columns,
        in the product of both units.

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
        rest = check_whole(ddof, "ddof", 0)

        def covariance(pair: tuple[str, str], values: FloatArray, covariances: FloatArray) -> Results:
            # Where one number goes up with the other in a straight line, both spreads rise as their covariance does.
            risen = math.prod(math.sqrt(tails.rise) for name in pair if (tails := self._tails(name)) is not None)
            return self._results(values[:1], covariances[0, :1]).stretched(risen, self._z)

        return self._matrix(columns, rest, target, lambda name: self._variance(name, rest, target), covariance)

    def corr(self, columns: Sequence[str] | None = None, *, target: str = "table") -> pd.DataFrame:
        """Return the correlations of numeric columns (pandas' ``DataFrame.corr``), nulls dropped by pair.

        Where both columns were measured it is that of the fit, with an interval by draws of the table. Elsewhere
        intervals are by profile likelihood (Venzon and Moolgavkar 1988): where noise hides a variance they are −1 to 1,
        the estimate is NaN, and a warning says so. ``std_error`` is the interval's longer side over its normal
        quantile.

        Parameters
        ----------
        columns
            Randomised numeric columns, by default all of them.
        target
            See the class.

        Returns
        -------
        DataFrame of columns by columns, with ``estimate, std_error, lower, upper`` as an outer level of its columns.

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
        """
        z = self._z

        def correlation(pair: tuple[str, str], values: FloatArray, covariances: FloatArray) -> Results:
            fitted = self._joints.correlation(*pair, target == "population", z)
            if fitted is not None:
                return fitted
            point, lower, upper = moments.profile_correlation(values, covariances, z)
            # An estimate of 1 has no side above it: half of the interval is no error of it.
            longer = (upper - lower) / 2 if math.isnan(point) else max(upper - point, point - lower)
            return Results(point, longer / z, lower, upper)

        itself = dict(zip(RESULTS, (1.0, 0.0, 1.0, 1.0), strict=True))
        found = self._matrix(columns, 0, target, lambda name: pd.Series(itself), correlation)
        warn_of_hidden(found.index, found["estimate"].to_numpy(), found.attrs.get(NOT_FOUND, {}))
        return found

    # Distributions

    @nan_if_not_found
    def histogram(
        self, column: str, bins: int | Sequence[Any] = 10, *, density: bool = False, target: str = "table"
    ) -> pd.DataFrame:
        """Return the distribution of a numeric column in bins, by maximum likelihood.

        The distribution is fitted on a grid of 128 cells, so that its counts are not negative; those
        of measured tables are unbiased, and may be a little below 0 where no rows are. `value_counts` with
        ``bins`` and ``method="inverse"`` gives unbiased counts instead, whose errors are much larger. Where nothing
        was measured (δ = 0, or ``measure=None``) a fit is smooth on the scale of Laplace noise: a spike, as of 40 hours
        a week, is spread over its neighbours. Intervals are by profile likelihood, and wide where the rows do not rule
        out such a spike. ``numbers="square_wave"`` shows it, of up to about 1,000 steps.

        Parameters
        ----------
        column
            A randomised numeric column.
        bins
            A number of bins between the space's bounds (where there are fewer values, one for each), or bounds in
            order (NumPy's ``histogram``). Those beyond the space's bounds are NaN, as values there were clipped; a bin
            up to the space's upper bound ends a step beyond it, as it holds the rows there.
        density
            Give densities per unit instead of counts.
        target
            See the class.
        """
        sampling = self._source.sampling(target)
        axis = self._axis(column, 10 if bins is None else bins)
        assert isinstance(axis, BinnedAxis)
        fitted, rows = self._joints.law(column), self._all_rows
        parts = aggregation(fitted, axis)
        unit = np.ones(axis.bins)
        check_flags(density=density)
        if density:
            # Per unit and per row with a value: densities integrate to one, as NumPy's do.
            widths = np.diff(axis.edges) * line_of(axis.column.space)[1] * fitted.shares[: fitted.bins].sum()
            unit = 1 / (widths * rows)
        part, tails = slice(0, axis.bins), self._tails(column)
        results = Results(*fitted.parts_of(parts[part], sampling, self._z) * rows * unit)
        if isinstance(bins, Iterable):
            self._warn_of_shared(column, *self._rows_at_bounds(axis))
            results = self._opened_at_bounds(results, axis, unit)
        results = results.from_none()
        if tails is not None:
            results = results.opened((tails.of_bins(axis.bins), (0.0, 0.0)), self._z, unit)
        results = results.within(most=rows * unit)
        found = results.frame(axis.labels[part], {"source": fitted.source} | self._said_of_tails([column]))
        return found if isinstance(bins, int | np.integer) or bins is None else as_asked(found, axis, list(bins))

    @nan_if_not_found
    def quantile(
        self, column: str, q: float | Sequence[float] = 0.5, *, target: str = "table"
    ) -> pd.Series[Any] | pd.DataFrame:
        """Return quantiles of a numeric column's values (pandas' ``quantile``), by maximum likelihood.

        The distribution is fitted on a grid of 128 cells and interpolated within; the estimate is a value of the space,
        and the standard error at least that of half a step. Intervals are where the likelihood allows the level to be
        reached (Woodruff 1952). They stay within the space's bounds; those that reach a bound which was inferred go on
        as far as the rows beyond it may. Extremes (0 and 1) cannot be learnt from noisy rows.

        Parameters
        ----------
        column
            A randomised column of numbers, booleans or times.
        q
            A level in (0, 1), or a list of them.
        target
            See the class.

        Returns
        -------
        Series ``estimate, std_error, lower, upper`` in the column's unit; of a list a DataFrame with a row per level.

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
        0.25      40.0        5.0   26.0   47.0
        0.50      57.0        5.0   42.0   62.0
        """
        sampling = self._source.sampling(target)
        levels, z = checked_levels(q), self._z
        one = self._source.column(column)
        moments.check_holds_numbers(one)
        space = one.space
        fitted = self._joints.law(column)
        start, step = line_of(space)
        codes = fitted.quantiles(levels, z, sampling)
        last = space.values - 1
        point, lower, upper = (start + np.clip(found, 0, last) * step for found in codes)
        # A real number is known to half a step of its grid.
        rounding = 0.0 if space.is_whole else step / 2
        end = start + last * step
        lower, upper = np.maximum(lower - rounding, start), np.minimum(upper + rounding, end)
        if (tails := self._tails(column)) is not None:
            below, above = np.transpose([tails.of_quantile(level, z) for level in levels])
            lower, upper = lower - np.where(lower <= start, below, 0.0), upper + np.where(upper >= end, above, 0.0)
        # Where an interval is of one value the next is half a step away.
        error = np.maximum(upper - lower, step) / (2 * z)
        results = Results(point, error, lower, upper)
        said = {"source": fitted.source} | self._said_of_tails([column])
        table = self._in_units(results, column).frame(pd.Index(levels, name="q"), said)
        return table if np.ndim(q) else table.iloc[0].rename(column)


def _ends(space: Space) -> tuple[float, float]:
    start, step = line_of(space)
    return start, start + step * (space.values - 1)


def _error_of_root(value: float, error: float) -> float:
    """Return the standard error of a root: by its slope, or the steeper way down by three errors, towards zero."""
    root = math.sqrt(value)
    if not root > 0:
        return math.sqrt(error) if error >= 0 else math.nan
    return max(error / (2 * root), (root - math.sqrt(max(value - 3 * error, 0.0))) / 3)


def checked_levels(q: Any, fewest: int = 0) -> FloatArray:
    """Return levels of quantiles, or raise `ParameterError` unless they lie in (0, 1) and are so many at least."""
    try:
        levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
    except (TypeError, ValueError):
        levels = np.array([np.nan])
    if levels.ndim != 1 or len(levels) < fewest or not ((levels > 0) & (levels < 1)).all():
        raise ParameterError(
            "q must lie in (0, 1), or be a list of such levels, e.g. q=0.5: extremes cannot be learnt through noise"
        )
    return levels
