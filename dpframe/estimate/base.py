"""Base class of all estimates: counts of the release, fits to them, and the presentation of results."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations, combinations_with_replacement
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from dpframe.errors import (
    ColumnRemark,
    InferenceWarning,
    ParameterError,
    check_fraction,
    is_one_of,
    warn,
    warn_of_columns,
)
from dpframe.estimate import moments, surrogates
from dpframe.estimate.axes import Axis, BinnedAxis, join_axes, make_axis
from dpframe.estimate.beyond_bounds import BEYOND_BOUNDS, Tails, piles_at_bounds, tails_of
from dpframe.estimate.column_evidence import ColumnEvidence
from dpframe.estimate.evidence.number_law import NumberLaw, NumberPair
from dpframe.estimate.joints import Joints
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.not_found import NOT_FOUND, reasons, warn_of_nan
from dpframe.estimate.results import RESULTS, Answer, Question, Results
from dpframe.forecast.errors import mean_errors
from dpframe.inference.inferred import Measured, null_count
from dpframe.observe.observation import Observation, update
from dpframe.observe.significance import HINT_SE
from dpframe.plan.measures import MeasuredTable
from dpframe.plan.plan import Plan
from dpframe.release.reader import Source
from dpframe.release.together import Together
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.base import affine_map
from dpframe.spaces.stretches import shares_its_step

_MIN_FLOAT_VARIANCE = float(np.finfo(np.float64).tiny)
"""Smallest variance (limit): squares of numbers below 1e-154 underflow to 0, and no standard error is 0."""

Bins = Mapping[str, int | Sequence[Any]]

_HEAP_SHARE_OF_WARNING = 0.01
"""Share of all rows above which a warning names a heap at the end of a range (tuned; effect not measured)."""

_BOUNDS_HEADLINE = "values are clipped to bounds, and rows may lie beyond; declare wider bounds in the next release"

_BOUNDS = "(LOWER, UPPER)"
"""The form of a declaration of bounds."""


_FITS = ("_evidence", "_joints", "_bucket_codes", "_bucket_is_empty", "_synthesizer")
"""Attributes that follow from the release, and that readings of one table share."""


class Reading:
    """Released rows, measured tables and the models fitted to them; `Estimates` adds the questions."""

    def __init__(
        self,
        source: Any,
        plan: Plan | None = None,
        *,
        confidence_level: float = 0.95,
        use_measured: bool | None = None,
        clipped: bool = False,
        tables: Sequence[MeasuredTable] = (),
    ) -> None:
        if use_measured is not None and not isinstance(use_measured, bool):
            raise ParameterError("use_measured must be True, False or None")
        if not isinstance(clipped, bool):
            raise ParameterError("clipped must be True or False")
        self.confidence_level = check_fraction(confidence_level, "confidence_level", 0.95)
        self._source = Source(source, plan)
        self.plan = self._source.plan
        self.n, self.rows = self._source.n, self._source.rows
        self._use_measured = use_measured
        self._given_tables = tuple(tables)
        self.clipped = clipped
        self._bucket_is_empty: dict[tuple[str, float], bool] = {}
        self._inputs: tuple[Any, ...] = ()

    def _share_fits(self, earlier: Reading | None) -> None:
        """Take over what an earlier reading computed, if it read the same rows under the same description.

        No fit depends on the order of rows, on the level of intervals, or on columns passed through.
        """
        source = self._source
        # The content now: an alteration in place may reach this reading's table later.
        self._inputs = source.content, source.info, self.plan, self._use_measured, self._given_tables
        if earlier is not None and source.content is not None and self._inputs == earlier._inputs:
            vars(self).update({name: value for name, value in vars(earlier).items() if name in _FITS})

    @property
    def _z(self) -> float:
        return NormalDist().inv_cdf((1 + self.confidence_level) / 2)

    @property
    def together(self) -> Together | None:
        """The promise of several tables, if this one was released with others.

        Examples
        --------
        >>> import dpframe as dpf
        >>> frame = dpf.datasets.make_census(1_000, columns=["sex"])
        >>> print(dpf.Estimates(dpf.sanitize(frame, epsilon=1, spaces={"sex": ["F", "M"]})).together)
        None
        """
        return None if self._source.info is None else self._source.info.together

    def _counts_rows(self, name: str | None) -> bool:
        """Return whether a column has the number of a person's rows, of which some are kept.

        As weights it stands for the rows that a kept row represents: of more rows than are kept, number / kept.
        """
        return name is not None and self.together is not None and name == self.together.count_name

    def _warn_of_context(self, names: Collection[str], counts_nulls: bool, is_sum: bool) -> None:
        """Warn if a question is of absent rows, too (of parents' columns alone, or of nulls), or adds kept rows up."""
        together = self.together
        asked = [] if together is None else [name for name in self.plan.names if name in names]
        if together is not None and together.context and asked and counts_nulls:
            warn(
                f"nulls of {asked[0]!r} are those of absent rows, too, as each person has {self.plan.contributions} "
                "joined rows; ask infer of all tables",
                InferenceWarning,
            )
        elif together is not None and asked and {*asked} <= {*together.context}:
            warn(
                f"{asked[0]!r} is counted in {self.plan.contributions} joined rows of each person, absent ones among "
                f"them; ask the table {together.parent!r}, or name a column of {together.table!r}, too",
                InferenceWarning,
            )
        elif together is not None and together.context and asked and is_sum and together.count_name not in asked:
            warn(
                f"the sum of {asked[0]!r} is of kept rows, at most {self.plan.contributions} of a person; "
                f"weights={together.count_name!r} adds up all rows that were counted",
                InferenceWarning,
            )

    def _axes(self, names: Sequence[str], bins: Bins) -> list[Axis]:
        """Return the axes of a joint, or raise `ParameterError` for wrong columns or bins."""
        if not names:
            raise ParameterError("name at least one column")
        # Look up every column first, so that an unknown name raises before other errors.
        _ = [self._source.column(name) for name in names]
        if len(set(names)) < len(names):
            raise ParameterError("a column cannot be crossed with itself")
        if not isinstance(bins, Mapping):
            raise ParameterError("bins must be a mapping {column: number or bounds}")
        stray = [name for name in bins if name not in names]
        if stray:
            raise ParameterError(f"bins names {stray[0]!r}, which is not among the columns")
        axes = join_axes([self._axis(name, bins.get(name)) for name in names], self.plan.groups)
        surrogates.check_cells([axis.classes for axis in axes])
        for axis in axes:
            if axis.grid is not None and isinstance(bins[axis.name], Iterable):
                self._warn_of_rows_at_ends(axis.name, *self._count_rows_at_bounds(axis.grid))
        return axes

    def _cells_to_show(self, axes: Sequence[Axis], dropna: bool) -> tuple[IntArray, ...]:
        """Return the cells of each axis that results show: no null with ``dropna``, and no empty `other` bucket."""
        cell_counts = [axis.cells - (dropna and axis.has_null) for axis in axes]
        return tuple(
            np.setdiff1d(np.arange(n), self._find_empty_bucket(axis)) for n, axis in zip(cell_counts, axes, strict=True)
        )

    def _find_empty_bucket(self, axis: Axis) -> list[int]:
        """Return the code of the `other` bucket that inference added, if its count is within its noise of 0."""
        key, code = (axis.name, self.confidence_level), self._bucket_codes.get(axis.name)
        if code is None or axis.grid is not None:
            return []
        if key not in self._bucket_is_empty:
            counts = self._cells([make_axis(axis.column, None)], False, (), False, "inverse", "table")
            std_error = math.sqrt(max(float(counts.variance[code]), 0.0))
            self._bucket_is_empty[key] = float(counts.estimate[code]) <= self._z * std_error
        return [code] if self._bucket_is_empty[key] else []

    @cached_property
    def _bucket_codes(self) -> dict[str, int]:
        """Code of the `other` bucket by column: it holds the values that inference did not find."""
        inferred, reasons_by_column = self.plan.inferred, reasons(self.plan.not_found)
        bucket_codes: dict[str, int] = {}
        # Counts of reused inferences are not in the plan: a bucket of theirs is judged by the release's own counts.
        for past_inference in () if self.plan.reused is None else self.plan.reused.each:
            for name in (name for name in past_inference.columns if name in self.plan.names):
                reused_space: Any = self.plan[name].space
                if getattr(reused_space.inner_space, "other", None) is not None:
                    bucket_codes[name] = reused_space.labels().index(reused_space.inner_space.other)
        for count_table in () if inferred is None else inferred.measured:
            if (
                count_table.kind == "values"
                and count_table.column in self.plan.names
                and count_table.column not in reasons_by_column
            ):
                space: Any = self.plan[count_table.column].space
                bucket = getattr(space.inner_space, "other", None)
                if bucket is not None and bucket not in count_table.cells:
                    bucket_codes[count_table.column] = space.labels().index(bucket)
        return bucket_codes

    def _axis(self, name: str, bins: int | Sequence[Any] | None) -> Axis:
        """Return the axis of a column, with its times in its zone."""
        return make_axis(self._source.column(name), bins, self._source.zone(name))

    def _mean_squares_of_bins(self, axes: Sequence[Axis]) -> dict[str, FloatArray]:
        """Return mean squared surrogates of the bins of numeric axes, under the fitted distribution of each column."""
        grids = [axis.grid for axis in axes if axis.grid is not None and axis.group is None and self.n]
        return {grid.name: grid.mean_squares(self._joints.law(grid.name)) for grid in grids}

    def _count_rows_at_bounds(self, axis: BinnedAxis) -> tuple[FloatArray, FloatArray]:
        """Return estimated row counts at the codes of bin bounds, and their standard errors."""
        space = axis.column.space
        shared = [0 < place < axis.bins and shares_its_step(space, bound) for place, bound in enumerate(axis.bounds)]
        rows_and_errors = np.zeros((2, len(shared)))
        rows_and_errors[:, shared] = self._count_rows_at(axis.name, axis.ends[shared])
        return rows_and_errors[0], rows_and_errors[1]

    def _count_rows_at(self, column: str, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return estimated row counts at codes that the end of a range splits, and their standard errors."""
        if not len(codes):
            return np.zeros(0), np.zeros(0)
        law = self._joints.law(column)
        parts = law.parts_of(law.overlap(codes, codes + 1), self._source.sampling("table"), 1.0)
        rows, errors = parts[:2] * self._all_rows
        return np.maximum(rows, 0.0), errors

    def _warn_of_rows_at_ends(self, column: str, rows: FloatArray, errors: FloatArray) -> None:
        """Warn if many rows share a step with the end of a range, so that they may lie on either side."""
        is_heap = rows > np.maximum(HINT_SE * errors, _HEAP_SHARE_OF_WARNING * self._all_rows)
        row_count, step = float(f"{rows.max(initial=0.0):.2g}"), affine_map(self._source.column(column).space)[1]
        fact = f"about {row_count:,g} rows lie within one step, {step:.2g}, of an end"
        warn_of_columns(
            "rows at the end of a range may lie on either side",
            [ColumnRemark(column, fact, "move the end away from frequent values")] * bool(is_heap.any()),
            InferenceWarning,
        )

    def _widen_at_bounds(self, results: Results, axis: BinnedAxis, unit: Any) -> Results:
        """Return counts of bins with intervals widened by rows at the bins' bounds, which may lie in either bin."""
        shared, _ = self._count_rows_at_bounds(axis)
        over, under = (
            np.append(rows, [0.0] * axis.flag_codes)[: len(results.estimate)] for rows in (shared[:-1], shared[1:])
        )
        return results.opened(((over, 0.0), (under, 0.0)), self._z, unit)

    def _cells(
        self, axes: Sequence[Axis], normalize: bool, given_axes: Sequence[int], dropna: bool, method: str, target: str
    ) -> Answer:
        """Return the estimates of all cells of a joint."""
        self._source.sampling(target)  # an unknown target is refused
        return self._joints.answer(Question(axes, normalize, tuple(given_axes), dropna, target == "population"), method)

    @cached_property
    def _joints(self) -> Joints:
        """Joint distributions from the released rows, and from the measured tables if the source has every row."""
        info = self._source.info
        has_all_rows = info is None or info.n == self.n
        tables = self._given_tables or self._source.tables
        used = tables if has_all_rows and self._use_measured is not False else ()
        return Joints(MeasuredTables(self._source, used, self._evidence))

    def _default_method(self, axes: Sequence[Axis]) -> str:
        """Return the default method: a fit for bins, whose unbiased counts are too noisy or undefined."""
        if all(axis.grid is None and axis.inverts for axis in axes):
            return "inverse"
        return "em" if self._joints.tables.source_of([axis.name for axis in axes]) == "rows" else "model"

    @cached_property
    def _evidence(self) -> ColumnEvidence:
        """Evidence of single columns, with the counts of inference if inference saw the table of these rows."""
        inferred, info = self.plan.inferred, self._source.info
        has_all_rows = self.rows == self.plan.inferred_rows and (info is None or info.n == self.n)
        uses_counts = info is not None and info.measured if self._use_measured is None else self._use_measured
        return ColumnEvidence.of(self._source, inferred if uses_counts and has_all_rows else None)

    @property
    def _all_rows(self) -> float:
        return self.n * self._source.weight

    def _weighted(self, estimate: FloatArray, variance: FloatArray, normalize: bool) -> tuple[FloatArray, FloatArray]:
        """Scale counts and variances of a secret sample to the table; shares need no scaling."""
        weight = 1.0 if normalize else self._source.weight
        return estimate * weight, variance * weight**2

    def _moments(
        self,
        statistic: moments.Statistic,
        columns: Sequence[str],
        target: str,
        evidence: NumberLaw | NumberPair | None = None,
        sums: surrogates.Sums | None = None,
    ) -> tuple[FloatArray, FloatArray, str]:
        """Return a smooth statistic of product moments, its covariance and its source: "rows", "tables" or "both".

        ``evidence`` are the measured levels of the column, or the measured pair of the columns. ``sums`` are sums of
        the statistic's terms; by default they are computed here.
        """
        target_sampling = self._source.sampling(target)
        table_moments = None if evidence is None else statistic.known(evidence, 0.0)
        # Rows and tables share the sampling of the population: combine them first, then add the sampling variance.
        sampling = target_sampling if table_moments is None else self._source.sampling("table")
        if sums is None:
            sums = self._sums({"": statistic.terms}, columns)[""]
        values, covariance = surrogates.delta_method(sums, statistic.function, sampling, self._source.weight)
        if covariance[0, 0] <= 0 and statistic.kind == "instant" and self.n:
            # A handful of rows can give a mean no variance: the variance under a uniform distribution replaces it.
            column = self._source.column(columns[0])
            error_of_uniform, _ = mean_errors(column.space, column.mechanism, None, self.n, sampling)
            covariance = np.array([[(error_of_uniform / statistic.scales[0]) ** 2]])
        if not (np.isfinite(values).all() and (np.diag(covariance) > 0).all()):
            # Other statistics have no such substitute: an infinite variance says that they are unknown.
            values, covariance = np.where(np.isfinite(values), values, np.nan), np.full(covariance.shape, np.inf)
        scales = np.array(statistic.scales)
        values, covariance = values * scales + statistic.shift, covariance * np.outer(scales, scales)
        covariance += np.diag(np.where(np.diag(covariance) > 0, 0.0, _MIN_FLOAT_VARIANCE))
        if table_moments is None:
            return values, covariance, "rows"
        table_values = np.atleast_1d(table_moments[0])
        table_variances = np.maximum(np.atleast_1d(table_moments[1]), _MIN_FLOAT_VARIANCE)
        population_covariance = np.zeros_like(covariance)
        population_moments = statistic.known(evidence, 1.0) if target == "population" else None
        if population_moments is not None:
            population_covariance += np.diag(np.maximum(np.atleast_1d(population_moments[1]) - table_variances, 0.0))
        # An update of infinite covariances would be NaN, so that only the tables count.
        if not (np.isfinite(values).all() and np.isfinite(covariance).all()):
            return table_values, np.diag(table_variances) + population_covariance, "tables"
        values, covariance = update(
            values, covariance, Observation(np.eye(len(table_values)), table_values, table_variances)
        )
        return values, covariance + population_covariance, "both"

    def _statistic(self, statistic: moments.Statistic, columns: Sequence[str], target: str) -> pd.Series[Any]:
        """Return a statistic of a column as a Series, with warnings about clipped values."""
        name, tails = columns[0], self._tails(columns[0])
        self._warn_of_bounds([name])
        values, covariance, source = self._moments(statistic, columns, target, self._joints.tables.law(name))
        results = self._results(values, covariance[0])
        if tails is None:
            results = results.clipped(*statistic.bounds)
        else:
            results = results.opened(statistic.beyond(tails), self._z)
        return self._in_units(results, name, statistic.kind).series(
            name, {"source": source} | self._tail_attrs(columns)
        )

    def _in_units(self, results: Results, column: str, kind: str = "instant") -> Results:
        return results.in_units(self._source.column(column).space, self._source.zone(column), kind)

    def _weight(self, weights: str | None, column: str) -> moments.Scale | None:
        """Return the scale of a column of weights, or None."""
        if is_one_of(weights, [column]):
            raise ParameterError("a column cannot be weighted by itself; var and mean give its second moment")
        if self._counts_rows(weights):
            raise ParameterError(f"weights={weights!r} are of draws of the table; leave method out")
        return None if weights is None else moments.Scale.of(self._source.column(weights))

    def _matrix(
        self,
        columns: Sequence[str] | None,
        ddof: int,
        target: str,
        estimate_variance: Callable[[str], Any],
        estimate_pair: Callable[[tuple[str, str], FloatArray, FloatArray], Results],
    ) -> pd.DataFrame:
        """Return a statistic of every pair of columns as a matrix in pandas' layout.

        ``estimate_variance`` fills the diagonal. ``estimate_pair`` fills the rest from the second moments of the pair
        and their covariance matrix.
        """
        self._source.sampling(target)  # an unknown target is refused whatever the columns
        names = self._numeric() if columns is None else column_names(columns, "columns")
        scales = {name: moments.Scale.of(self._source.column(name)) for name in names}
        values = np.full((len(RESULTS), len(names), len(names)), np.nan)
        missing = {name: reason for name, reason in reasons(self.plan.not_found).items() if name in names}
        positions = [(i, name) for i, name in enumerate(names) if self.clipped or name not in missing]
        # Columns may be named twice; each pair of names is summed only once.
        pairs = sorted({(a, b) for (_, a), (_, b) in combinations(positions, 2) if a != b})
        statistics = {(a, b): moments.second_moments(scales[a], scales[b], ddof) for a, b in pairs}
        terms = {pair: statistic.terms for pair, statistic in statistics.items()}
        sums = self._sums(terms, list(dict.fromkeys(sum(pairs, ()))))
        for (i, a), (j, b) in combinations_with_replacement(positions, 2):
            if a == b:
                series = estimate_variance(a)
            else:
                pair = self._joints.tables.pair(a, b)
                values_of_pair, covariance, _ = self._moments(statistics[a, b], [a, b], target, pair, sums[a, b])
                series = estimate_pair((a, b), values_of_pair, covariance).series("pair")
            values[:, i, j] = values[:, j, i] = series[list(RESULTS)]
        if missing and not self.clipped:
            warn_of_nan(self.plan, missing)
        uses_tables = any(self._joints.tables.law(name) is not None for name in names)
        attrs = {"source": "both" if uses_tables else "rows"} | self._tail_attrs(names)
        # Intervals of variances cover rows beyond the bounds; intervals of correlations do not.
        self._warn_of_tails(names, lambda tails: tails.may_matter)
        self._warn_of_bounds(name for _, name in positions)
        self._warn_of_imputed(name for _, name in positions)
        return Results(*values).wide(names, names, attrs | ({NOT_FOUND: missing} if missing else {}))

    def _warn_of_tails(self, names: Iterable[str], matter: Callable[[Tails], bool]) -> None:
        """Warn that variances and correlations of columns with inferred bounds are of clipped values."""
        tails = {name: self._tails(name) for name in dict.fromkeys(names)}
        warn_of_columns(
            _BOUNDS_HEADLINE,
            [
                ColumnRemark.to_declare(
                    name,
                    (f"about {100 * tail.share:.2g} % of the rows lie" if tail.share > 0 else "noise may hide a tail")
                    + " beyond, which spreads and correlations leave out",
                    _BOUNDS,
                )
                for name, tail in tails.items()
                if tail is not None and matter(tail)
            ],
            InferenceWarning,
        )

    def clipped_at(self, column: str) -> dict[str, float]:
        """Return the share of rows that seem clipped to a declared bound, by bound ("lower" or "upper").

        The result is empty without measured tables.

        Examples
        --------
        >>> import pandas as pd, dpframe as dpf
        >>> frame = pd.DataFrame({"cost": range(4_000)})
        >>> safe = dpf.sanitize(frame, epsilon=1, spaces={"cost": (0, 2_000)}, key=bytes(32))
        >>> {bound: round(share, 1) for bound, share in dpf.Estimates(safe).clipped_at("cost").items()}
        {'upper': 0.5}
        """
        inferred, space = self.plan.inferred, self._source.column(column).space
        # Lists have no bounds to clip to, and `Tails` covers bounds that inference found.
        if space.is_listed or not space.is_numeric or (inferred is not None and column in inferred.columns):
            return {}
        law = self._joints.tables.law(column)
        shares = (0.0, 0.0) if law is None else piles_at_bounds(law, space)
        return {bound: share for bound, share in zip(("lower", "upper"), shares, strict=True) if share > 0}

    def _warn_of_bounds(self, names: Iterable[str]) -> None:
        """Warn if many rows lie at a declared bound, or if inference may have missed values far from the others."""
        remarks = []
        for name in names:
            for bound, share in self.clipped_at(name).items():
                start, step = affine_map(self._source.column(name).space)
                end = start if bound == "lower" else start + step * (self._source.column(name).space.values - 1)
                fact = f"about {float(f'{100 * share:.2g}'):g} % of the rows lie at the declared {bound} bound, {end:g}"
                verb = "lower" if bound == "lower" else "raise"
                remarks.append(ColumnRemark(name, fact, f"{verb} the bound if values go beyond"))
            tails = self._tails(name)
            if tails is not None and tails.is_faint:
                fact = "one value has most rows, and noise hides how far the others reach"
                remarks.append(ColumnRemark.to_declare(name, fact, _BOUNDS))
            if tails is not None and tails.may_be_others:
                fact = "inference took 0 and 1 for all values, and noise may hide others"
                remarks.append(ColumnRemark.to_declare(name, fact, _BOUNDS))
        warn_of_columns(_BOUNDS_HEADLINE, remarks, InferenceWarning)

    def _warn_of_imputed(self, names: Iterable[str]) -> None:
        """Warn of declared columns in which nulls count as values; whether a null occurs is private."""
        declared = set(self.plan.names) - set(self.plan.imputed) if self.plan.nulls == "impute" else set()
        spaces = {name: self._source.column(name).space for name in names if name in declared}
        warn_of_columns(
            "nulls='impute': nulls, if the table has any, count as values; to leave them out, declare Nullable(…) in "
            "the next release",
            [
                ColumnRemark.to_declare(name, f"counts nulls as {space.null_counts_as}", "Nullable(…)")
                for name, space in spaces.items()
                if space.null_counts_as and not space.has_null
            ],
            InferenceWarning,
        )

    def _bound_null_share(self, column: str, target: str) -> Results | None:
        """Return the share of nulls of a column whose space has none: 0, with an upper bound from inference's counts.

        Return None if nulls count as values and no table counts them.
        """
        inferred, rows, tables = self.plan.inferred, self.rows, list[Measured]()
        if inferred is not None and column in inferred.columns and rows == self.plan.inferred_rows:
            tables = [table for table in inferred.measured if table.column == column]
        elif self.plan.nulls_of(column) == "impute":
            return None
        # Types without nulls have no count of them.
        nulls, variance = null_count(tables) or (0.0, 0.0)
        share, variance = max(nulls, 0.0) / max(rows, 1), variance / max(rows, 1) ** 2
        # A share of 0 has no binomial variance; the upper end of its interval gives one.
        if target == "population":
            upper_share = min(share + self._z * math.sqrt(variance), 1.0)
            variance += upper_share * (1 - upper_share) / max(rows, 1)
        error = math.sqrt(variance)
        return Results(0.0, error, 0.0, min(share + self._z * error, 1.0))

    def _sums(self, terms: Mapping[Any, Sequence[surrogates.Term]], names: Sequence[str]) -> dict[Any, surrogates.Sums]:
        """Return sums of surrogates of several lists of terms, in one pass over the rows."""
        columns = {name: self._source.column(name) for name in names}
        return surrogates.product_sums(terms, columns, self._source.codes(names), self.plan.groups) if names else {}

    def _numeric(self) -> list[str]:
        """Return the names of the numeric columns that the release has."""
        return [c.name for c in self.plan.columns if c.name not in self._source.missing and c.space.is_numeric]

    def _results(self, estimate: FloatArray, variance: FloatArray) -> Results:
        return Results.of(estimate, variance, self._z)

    def _tails(self, column: str) -> Tails | None:
        """Return the estimated rows beyond a column's inferred bounds, or None for declared bounds."""
        if column in reasons(self.plan.not_found):
            return None
        space, rows = self._source.column(column).space, self.plan.inferred_rows or self.rows
        tails = tails_of(self.plan.inferred, column, space, rows)
        if tails is None:
            return None
        # The rows that inference counted may be another table's, and so more or fewer.
        scale = rows / max(self.rows, 1)
        piles = (
            None if pile is None else (pile[0] * scale, pile[1] * scale**2)
            for pile in self._joints.tables.piles(column)
        )
        return tails.with_piles(tuple(piles))

    def _is_open(self, column: str) -> bool:
        """Return whether rows may lie beyond a column's bounds: inference found them, or found none."""
        return column in reasons(self.plan.not_found) or self._tails(column) is not None

    def _tail_attrs(self, columns: Iterable[str]) -> dict[str, Any]:
        """Return attrs of a result: the share of rows that seem to lie beyond the inferred bounds, by column."""
        tails = {name: self._tails(name) for name in columns}
        shares = {name: tail.share for name, tail in tails.items() if tail is not None and tail.share > 0}
        return {BEYOND_BOUNDS: shares} if shares else {}


def column_names(value: str | Sequence[str], name: str) -> list[str]:
    """Return column names as a list; one name is a list of one."""
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else None
    if names is None or not all(isinstance(n, str) for n in names):
        raise ParameterError(f"{name} must be a column name or a list of them")
    return names
