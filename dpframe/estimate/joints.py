"""The joint of some columns, by every method, from the released rows and the measured tables.

*Inverse* estimates are unbiased: the mean of raw counts of tables and of the rows' unbiased estimate, weighted by the
inverse mean variance of their cells. Variances of tables are public, and variances of rows hardly vary with the table,
so that the mean stays unbiased. *Project* takes the estimates to the simplex. *Em* is the likeliest table given the
rows. *Model* fits all columns, and errs least unless noise is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from types import MappingProxyType
from typing import Any

import numpy as np

from dpframe.errors import ParameterError, is_one_of, name_list
from dpframe.estimate import surrogates
from dpframe.estimate.axes import Axis, check_inverts, join_axes, make_axis
from dpframe.estimate.column_evidence import BEYOND_USE
from dpframe.estimate.conditions import ValueCondition, Where
from dpframe.estimate.evidence.combine import project, shrunk
from dpframe.estimate.evidence.law import Law, RowsLaw
from dpframe.estimate.evidence.likelihood import bootstrap_errors, fit_joints, refits
from dpframe.estimate.evidence.number_law import NumberPair
from dpframe.estimate.groups import INTERACTION_MEAN_SD, GroupMeans, cross_keys, fieller_means, position_errors
from dpframe.estimate.joint_domain import JointDomain
from dpframe.estimate.measured_tables import MAX_EXACT_FIT_VALUES, MeasuredTables
from dpframe.estimate.model import Model, Models
from dpframe.estimate.noisy_rows import (
    EMPTY_GROUP_SHARE,
    PAIR_LOG_ODDS_SD,
    contingency_table,
    crossed,
    drawn_of_many,
    of_noisy_rows,
)
from dpframe.estimate.posterior import Posterior
from dpframe.estimate.results import Answer, Ends, Question, Results
from dpframe.estimate.table_column import BinMeans
from dpframe.estimate.tables.fit import fit_to_margins
from dpframe.estimate.tables.guard import MOST_BOUNDED, bounds_by_pairs, interaction_variance
from dpframe.observe.noisy_counts import through
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.cells import has_few_values

GRID_CELLS = 128
"""Grid cells in the fit of a numeric column's distribution (limit of time)."""

JOINT_GRID_CELLS = 48
"""Cells of a numeric column within a joint that is fitted to rows (limit of time)."""

MOST_ASKED = 100_000
"""Cells of a joint up to which a counting question is answered by a fit of it (limit of memory)."""

MOST_FIT_CELLS = 20_000
"""Cells up to which a joint with bins is fitted on finer ones (limit of time)."""

GOOD_ENOUGH = 0.05
"""Expected total error of all cells' shares below which ``"auto"`` takes the unbiased inverse of rows (tuned; effect
not measured)."""

NOISY = 0.5
"""Expected error of the unbiased inverse below which the model's own structure costs more than its smoothing gains
(tuned; effect not measured)."""

NEGLIGIBLE = 0.005
"""Expected total error of shares below which raw counts are as good as any (tuned; effect not measured)."""

_CONJUNCTION_FACTOR = 1.5
"""Factor of a column's interval in the bounds of a count of two conditions: both intervals have to cover (tuned; effect
not measured)."""

_FIT_GAP_SHARE = 0.8
"""Share of the gap to an interval's end that closes if the fit already has all of the rows (tuned; half and twice it
change widths on a census by 17 and −21 %).

The end belongs to the law that suits the question most, which may have heaps that the fit lacks. In ten tables, real
ones and some with eight tenths of the rows in one value, 99 % of 344 intervals of counts of two conditions covered.
"""

_SCALING_SWEEPS = 60
"""Sweeps of scaling to margins (tolerance)."""

_PROFILE_STRETCHES = 16
"""Stretches of a column's cells with a profile likelihood each (limit of time)."""

CORRELATION_BIAS, CORRELATION_REACH, FAR_SHARE = 0.05, 0.5, 0.1
"""Prior standard deviation of a fit's bias of correlations, the larger one of a few, and the share of these few (tuned;
effect below).

On 74 pairs of eight tables at ε = 1: with none, .1 and .15 for the first the median error is .031, .037 and .042
for .033, and .93, .99 and .99 of the intervals hold for .96.
"""

_ROUNDING_SHARE = 1e-12
"""Share of rows below which a bound is 0 (tolerance)."""


class Joints:
    """Joints of one release."""

    def __init__(self, tables: MeasuredTables) -> None:
        self.tables, self._source, self._evidence = tables, tables.source, tables.inference

    @cached_property
    def models(self) -> Models:
        """The fits of the release."""
        return Models(self.tables)

    @cached_property
    def posterior(self) -> Posterior:
        """Draws of the original table."""
        info = self._source.info
        return Posterior(self.models, "" if info is None else info.digest)

    def answer(self, question: Question, method: str) -> Answer:
        """Return a joint by a method of `METHODS`, 0 in the cells that the plan's rules exclude."""
        if not is_one_of(method, METHODS):
            raise ParameterError(f"method must be one of {', '.join(METHODS)}")
        answer = METHODS[method](self, question)
        excluded = self._source.plan.bound_rules.impossible({axis.name: axis.stretches for axis in question.axes})
        if excluded is None:
            return answer
        estimate, scale = np.where(excluded, 0.0, answer.estimate), np.ones([1] * excluded.ndim)
        if question.normalize or answer.method != "inverse":
            # Shares and fits keep their total; counts of allowed cells are unbiased already.
            free = tuple(i for i in range(estimate.ndim) if i not in question.given)
            sums = estimate.sum(axis=free, keepdims=True)
            scale = np.where(sums > 0, answer.estimate.sum(axis=free, keepdims=True) / sums, 1.0)

        def intervals(z: float) -> Results:
            return answer.results(z).each(lambda values: np.where(excluded, 0.0, values * scale))

        variance = np.where(excluded, 0.0, answer.variance)
        scaled_intervals = None if answer.intervals is None else intervals
        draws = None if answer.draws is None else np.where(excluded, 0.0, answer.draws)
        return replace(answer, estimate=estimate * scale, variance=variance, intervals=scaled_intervals, draws=draws)

    def law(self, column: str) -> Law:
        """Return a number's law from measured tables, else from its rows and the counts of inference."""
        table_law = self.tables.law(column)
        return self._fit_rows_law(column) if table_law is None else table_law

    def _fit_rows_law(self, column: str) -> RowsLaw:
        source_column = self._source.column(column)
        axis = make_axis(
            source_column, None if source_column.space.is_listed else min(GRID_CELLS, source_column.space.values)
        )
        return self._evidence.law(axis if axis.grid is None else self._evidence.snapped(axis.grid))

    def count(self, asked: Where, method: str, population: bool, z: float) -> tuple[Results, dict[str, Any]]:
        """Return the number of rows that meet conditions by the estimate of least error, and its attrs."""
        fits = method == "auto" and len(asked.values) == len(asked.conditions)
        if not fits:
            check_inverts((one.axis for one in asked.values.values()), 'ask for conditions on values, by method="auto"')
        if self._is_excluded(asked.values.values()):
            return Results(*np.zeros((4, 1))), {"source": "rules"}
        asked = self._drop_implied(asked)
        estimate, variance = np.nan, np.inf
        if all(one.axis.inverts for one in asked.values.values()):
            groups, weight = self._source.plan.groups, self._source.weight
            grouped = {name for group in groups for name in group.names}
            numbers = {n: c for n, c in asked.values.items() if c.is_number and n not in grouped and self._source.n}
            squares = {name: condition.mean_square(self.law(name)) for name, condition in numbers.items()}
            rows = asked.count(self._source.codes(asked.names), groups, self._sampling(population), squares)
            estimate, variance = rows[0] * weight, rows[1] * weight**2
        unbiased = Results.of(np.array([estimate]), np.array([variance]), z)
        candidates = [(unbiased, {"source": "rows"})]
        candidates += [self._count_by_fit(asked.values, population, z, float(unbiased.std_error[0]))] if fits else []
        return min(candidates, key=lambda one: float(one[0].std_error[0]))

    def _is_excluded(self, conditions: Iterable[ValueCondition]) -> bool:
        """Return whether the plan's rules exclude every row that meets the conditions."""
        excluded = self._source.plan.bound_rules.impossible({one.column.name: one.ends for one in conditions})
        return excluded is not None and bool(excluded.all())

    def _drop_implied(self, where: Where) -> Where:
        """Return the conditions without those that the others imply by the plan's rules."""
        for name, one in where.values.items():
            other_conditions = [candidate for candidate in where.values.values() if candidate is not one]
            # Null meets neither a condition nor its negation: with null or special values, no condition is implied.
            if (
                other_conditions
                and not one.column.space.flag_codes
                and self._is_excluded([*other_conditions, one.negated()])
            ):
                required_conditions = tuple(
                    condition for condition in where.conditions if condition.column.name != name
                )
                return self._drop_implied(Where(required_conditions))
        return where

    def _count_by_fit(
        self, conditions: Mapping[str, ValueCondition], population: bool, z: float, noise: float
    ) -> tuple[Results, dict[str, Any]]:
        """Return a fit's count of conditions, and attrs; ``noise`` is the unbiased count's error."""
        names, rows = list(conditions), self._source.n * self._source.weight
        law = self.law(names[0]) if len(names) == 1 else None
        if law is not None and (law.source == "tables" or not has_few_values(conditions[names[0]].column.space)):
            part = conditions[names[0]].share_of_cells(law.edges)
            return Results(*law.parts_of(part, self._sampling(population), z) * rows), {"source": law.source}
        if self.tables.source_of(names) == "tables":
            return self._count_by_tables(conditions, population, z)
        axes = join_axes([condition.axis for condition in conditions.values()], self._source.plan.groups)
        if math.prod(axis.cells for axis in axes) > MOST_ASKED:
            # An infinite error leaves the choice to the unbiased count.
            return Results.of(np.array([np.nan]), np.array([np.inf]), z), {"source": "rows"}
        parts = [conditions[axis.name].share_of_cells(axis.ends) for axis in axes]
        cell_parts = crossed(parts)
        answer = self.answer(Question(axes, False, (), False, population, cell_parts), "auto")
        sampling, results_by_column = self._sampling(population), []
        for name, condition in conditions.items():
            law = self.law(name)
            results_by_column.append(law.parts_of(condition.share_of_cells(law.edges)[None], sampling, z)[:, 0])
        column_results, sides = np.stack(results_by_column, axis=1), contingency_table(answer.estimate, parts)
        if answer.method != "inverse" and len(axes) > 1:
            sides = _scale_to_shares(sides, column_results[0])
        estimate = float(sides.flat[0])
        # Correlations of the cells' errors are unknown; at worst all errors have one sign.
        error = float(np.sqrt(np.maximum(answer.variance, 0.0))[cell_parts > 0].sum())
        if answer.draws is not None:
            error = float((answer.draws * cell_parts).sum(axis=tuple(range(1, cell_parts.ndim + 1))).std(ddof=1))
        if (answer.draws is not None or answer.sum_error is not None) and len(axes) > 1:
            fit_error = error if answer.draws is not None or answer.sum_error is None else answer.sum_error
            total_error = math.hypot(fit_error, self._shrinkage_error(axes, parts, sides, noise))
            error = total_error if answer.draws is not None else min(error, total_error)
        error = math.hypot(error, self._independence_gap(conditions, estimate))
        results = Results.of(np.array([estimate]), np.array([error**2]), z)
        if answer.source == "rows" and answer.method != "inverse":
            results = results.opened(self._unresolved_shares(conditions, column_results, z), z, rows)
        lower_bound, upper_bound = 0.0, 1.0
        if len(axes) > 1:
            # Fréchet bounds by each column's own interval.
            low, high = (
                column_results[0] + _CONJUNCTION_FACTOR * (end - column_results[0]) for end in column_results[2:]
            )
            lower_bound, upper_bound = max(0.0, 1 - float((1 - low).sum())), min(1.0, float(high.min()))
        results = replace(results, std_error=np.minimum(results.std_error, (upper_bound - lower_bound) * rows / 2))
        return results.clipped(lower_bound * rows, upper_bound * rows), {"source": answer.source}

    def _shrinkage_error(
        self, axes: Sequence[Axis], parts: Sequence[FloatArray], sides: FloatArray, noise: float
    ) -> float:
        """Return the error of a fit's count of conditions from its shrinkage to independence; see `of_noisy_rows`.

        ``sides``: counts by condition, met first. ``noise``: error of the unbiased count.
        """
        if len(axes) == 2 and not all(axis.column.space.is_listed for axis in axes):
            return math.sqrt(1 / (1 / float(interaction_variance(sides, 2, PAIR_LOG_ODDS_SD).flat[0]) + 1 / noise**2))

        def count_sides(places: Sequence[int]) -> tuple[FloatArray, FloatArray]:
            count_axes = [axes[place] for place in places]
            counts, variances = self._invert_rows(Question(count_axes, False, (), False, False), sampling=0.0)
            axis_parts = [parts[place] for place in places]
            side_variances = contingency_table(variances, axis_parts)
            return contingency_table(counts, axis_parts), np.full(side_variances.shape, noise**2) if len(
                places
            ) > 1 else side_variances

        rows = max(self._source.n * self._source.weight, 1.0)
        if len(axes) > 2:
            return drawn_of_many(sides, noise, count_sides)
        return math.sqrt(float(of_noisy_rows(sides / rows, count_sides, rows).flat[0])) * rows

    def _independence_gap(self, conditions: Mapping[str, ValueCondition], estimate: float) -> float:
        """Return the distance of a count from the count under independence, if tables cover every single column.

        If many columns share a budget, rows hardly show two of them together. The error of a fit to such rows covers
        their noise, but not its shrinkage to independence.
        """
        members = {name: self.tables.member(name) for name in conditions}
        column_conditions = [
            (conditions[name], m) for name, m in members.items() if m and self.tables.source_of([name]) == "tables"
        ]
        if not 2 <= len(conditions) == len(column_conditions):
            return 0.0
        shares = [float(condition.share_of_cells(m.axis.ends) @ m.shares) for condition, m in column_conditions]
        return abs(estimate - math.prod(shares) * self._source.n * self._source.weight)

    def _unresolved_shares(
        self, conditions: Mapping[str, ValueCondition], column_results: FloatArray, z: float
    ) -> Ends:
        """Return the shares of rows that a fit may put on the wrong side of conditions on numbers, below and above.

        Each number's law has a gap to its interval's ends. The gap applies to all rows that may meet the other
        conditions: two spikes below the noise may share their rows. The largest gap counts.
        """
        point, _, low, high = column_results
        gaps = np.stack([_hidden_shares(1 - point, 1 - low), _hidden_shares(point, high)])
        upper_shares = np.array([np.delete(high, place).min(initial=1.0) for place in range(len(point))])
        is_number = [condition.is_number for condition in conditions.values()]
        below, above = (np.minimum(gaps * np.sqrt(upper_shares), upper_shares) * is_number).max(axis=1).tolist()
        return (0.0, below / z), (0.0, above / z)

    def _auto(self, question: Question) -> Answer:
        names = question.names
        if self.tables.source_of(names) != "rows":
            raw = self.tables.raw(question.axes)
            # The mean absolute value of standard normal noise is √(2/π), about 0.8.
            if raw is not None and 0.8 * float(np.sqrt(raw.variances).sum()) / self._source.rows < NEGLIGIBLE:
                return self._inverse(question)
            if all(self.tables.member(name) is not None for name in names):
                return self._model(question)
        if not all(axis.inverts for axis in question.axes):
            return self._em(question)
        variance = self._invert_rows(Question(question.axes, False, (), False, False), sampling=0.0)[1]
        # The mean absolute value of normal noise is σ√(2/π).
        total = float(np.sqrt(np.maximum(variance, 0)).sum()) * math.sqrt(2 / math.pi)
        expected = total / max(self._source.n * self._source.weight, 1)
        if expected <= GOOD_ENOUGH:
            return self._inverse(question)
        short_columns = self.models.of_few_values
        can_use_model = (
            len(short_columns) >= 3
            and len(names) > 1
            and all(a.grid is None and a.name in short_columns for a in question.axes)
        )
        return self._model(question) if expected > NOISY and can_use_model else self._em(question)

    def _invert_rows(self, question: Question, sampling: float | None = None) -> tuple[FloatArray, FloatArray]:
        estimates, variance = surrogates.joint_cells(
            surrogates.count_classes(question.axes, self._source.codes(question.names)),
            question.axes,
            normalize=question.normalize,
            given=question.given,
            dropna=question.dropna,
            sampling=self._sampling(question.population) if sampling is None else sampling,
        )
        weight = 1.0 if question.normalize else self._source.weight
        return estimates * weight, variance * weight**2

    def _sampling(self, population: bool) -> float:
        return self._source.sampling("population" if population else "table")

    def _inverse(self, question: Question) -> Answer:
        raw = self.tables.raw(question.axes)
        if len(question.axes) == 1:
            (axis,) = question.axes
            law = self.tables.law(axis.name)
            facts = None if raw is None else raw.to_observation(axis)
            if facts is None and law is not None:
                rows, errors = law.linear(law.overlap_with(axis))
                return Answer(*question.presented(rows, errors**2, float(self._source.rows)), "inverse", "tables")
            cell_estimate = self._evidence.cells(question, facts)
            if cell_estimate is not None:
                is_inferred = self._evidence.counted(axis) is not None
                source = "rows" if facts is None else "both"
                return self._check_digits(question, Answer(*cell_estimate, "inverse", source, counted=is_inferred))
        if raw is None:
            check_inverts(question.axes, 'method="em" fits them')
            return self._check_digits(question, Answer(*self._invert_rows(question), "inverse", "rows"))
        # The number of rows is public: conditioning on the cells' sum takes u uᵀ off their covariance.
        variances, total = raw.variances, float(self._source.rows)
        total_variance = float(variances.sum())
        counts = raw.counts + (total - raw.counts.sum()) * variances / total_variance
        shared = variances / math.sqrt(total_variance)
        source = "tables"
        if self._source.n and all(axis.inverts for axis in question.axes):
            row_counts, row_variances = self._invert_rows(Question(question.axes, False, (), False, False))
            mean, own_mean = float(np.mean(row_variances)), float(np.mean(variances - shared**2))
            if math.isfinite(mean) and mean > 0:
                weight = own_mean / (own_mean + mean)
                counts = (1 - weight) * counts + weight * row_counts
                variances = (1 - weight) ** 2 * variances + weight**2 * row_variances
                shared, source = (1 - weight) * shared, "both"
        return Answer(*question.presented(counts, variances, total, shared), "inverse", source)

    def _check_digits(self, question: Question, answer: Answer) -> Answer:
        """Return an unbiased answer, or raise `ParameterError` if bins are so narrow that its digits are lost."""
        binned = [axis.name for axis in question.axes if axis.grid is not None]
        rows = 1.0 if question.normalize else max(self._source.n * self._source.weight, 1.0)
        if binned and float(np.median(answer.variance)) > (BEYOND_USE * rows) ** 2:
            raise ParameterError(
                f"method='inverse' says nothing of bins of {name_list(binned)}, as noise is much wider than its steps; "
                "leave method out"
            )
        return answer

    def _project(self, question: Question) -> Answer:
        """Return the nearest joint in the simplex, shifted to its margins if tables hold all of its columns."""
        if self.tables.source_of(question.names) == "tables":
            model = self.models.around(question.names)
            places = model.places(question.names)
            shares = model.fit.simple(places)
            if shares is not None:
                return self._present_shares(question, model, shares, "project", "tables")
        return self._fit_rows(question, question.axes, _project_counts, np.asarray, "project")

    def _em(self, question: Question) -> Answer:
        if len(question.axes) == 1 and self._source.n:
            return self._answer_by_law(question, question.axes[0])
        axes, merge = _refine_axes(question.axes)
        return self._fit_rows(question, axes, fit_joints, merge, "em", self._scale_to_laws)

    def _answer_by_law(self, question: Question, axis: Axis) -> Answer:
        """Return one column's cells by the law of its rows; bins use the law of a histogram."""
        law = self._evidence.law(axis) if axis.grid is None else self._fit_rows_law(axis.name)
        parts, sampling = law.overlap_with(axis), self._sampling(question.population)
        shares, has_counts = parts @ law.shares, bool(len(law.facts))
        unit = question.unit(shares, self._source.n * self._source.weight)

        def intervals(z: float) -> Results:
            return Results(*law.parts_of(parts, sampling, z)).each(lambda values: values / unit)

        if axis.grid is not None:
            unit_results = intervals(1.0)
            return Answer(
                unit_results.estimate, unit_results.std_error**2, "em", "rows", counted=has_counts, intervals=intervals
            )
        to_unit = partial(self._to_unit, question)
        errors = law.errors_of(lambda law_shares: to_unit(parts @ law_shares), sampling)
        return self._widen_intervals(
            question, shares, Answer(to_unit(shares), errors**2, "em", "rows", counted=has_counts)
        )

    def _to_unit(self, question: Question, cells: FloatArray) -> FloatArray:
        """Convert shares of all rows by cell to the unit of the question."""
        return np.asarray(cells / question.unit(cells, self._source.n * self._source.weight))

    def _scale_to_laws(self, question: Question, cells: FloatArray) -> FloatArray:
        """Scale a joint to the law of each of its numbers, so that a histogram is its margin.

        Half a released row is spread as under independence, so that scaling can fill empty cells.
        """
        laws = {i: self.law(axis.name) for i, axis in enumerate(question.axes) if axis.is_number}
        if not laws:
            return cells
        margins: dict[tuple[int, ...], FloatArray]
        margins = {(i,): law.overlap_with(question.axes[i]) @ law.shares for i, law in laws.items()}
        sums = {(i,): cells.sum(axis=tuple(j for j in range(cells.ndim) if j != i)) for i in range(cells.ndim)}
        independent_joint = reduce(np.multiply.outer, (sums | margins).values())
        half = 0.5 / max(self._source.n, 1)
        # A single margin is met after one sweep; several disturb each other.
        return fit_to_margins(cells + half * independent_joint, margins, _SCALING_SWEEPS if len(margins) > 1 else 1)

    def _fit_rows(
        self,
        question: Question,
        axes: Sequence[Axis],
        fit: Callable[[FloatArray, JointDomain], FloatArray],
        merge: Callable[[FloatArray], FloatArray],
        method: str,
        settle: Callable[[Question, FloatArray], FloatArray] | None = None,
    ) -> Answer:
        """Return a joint by a fit to rows, with bootstrap errors; ``settle`` scales its cells to other evidence."""
        n, domain = self._source.n, JointDomain(tuple(axes))
        if not n:
            return Answer(*self._invert_rows(question), "inverse", "rows")

        def fit_counts(counts: FloatArray) -> FloatArray:
            return fit(counts, domain)

        counts = surrogates.count_classes(axes, self._source.codes(question.names))
        shares = fit_counts(counts[..., None])[..., 0]
        replicates = list(refits(shares, domain, n, fit_counts, self._sampling(question.population)))
        errors = bootstrap_errors(replicates, lambda fitted_shares: self._to_unit(question, merge(fitted_shares)))
        cells = merge(shares)
        shrinkage_variances = (
            self._shrinkage_variances(question.axes, cells) / question.unit(cells, n * self._source.weight) ** 2
        )
        cells = cells if settle is None else settle(question, cells)
        answer = Answer(self._to_unit(question, cells), errors**2 + shrinkage_variances, method, "rows")
        answer = answer if settle is None else self._widen_intervals(question, cells, answer)
        if question.weights is None or not all(axis.inverts for axis in axes):
            return answer
        weights = question.weights
        sum_error = bootstrap_errors(
            replicates,
            lambda fitted_shares: np.asarray((self._to_unit(question, merge(fitted_shares)) * weights).sum()),
        )
        return replace(answer, sum_error=float(sum_error))

    def _shrinkage_variances(self, axes: Sequence[Axis], shares: FloatArray) -> FloatArray:
        """Return the variance of cells from a fit's shrinkage to independence, which its bootstrap misses.

        Only for listed columns: neighbouring bins have correlated odds ratios.
        """
        if not all(axis.inverts and axis.grid is None for axis in axes):
            return np.zeros(shares.shape)

        def count_cells(places: Sequence[int]) -> tuple[FloatArray, FloatArray]:
            return self._invert_rows(Question([axes[place] for place in places], False, (), False, False), sampling=0.0)

        return of_noisy_rows(shares, count_cells, max(self._source.n * self._source.weight, 1.0))

    def _widen_intervals(self, question: Question, cells: FloatArray, answer: Answer) -> Answer:
        """Widen the intervals of a fit to rows: noise may hide heaps, which a fit spreads.

        For each number, a cell gets the error of the law in its stretch of cells, applied to the rows of the other
        columns; see `_unresolved_shares`. ``cells`` are the shares of all rows.
        """
        unit, sampling = question.unit(cells, self._source.n * self._source.weight), self._sampling(question.population)

        def intervals(z: float) -> Results:
            hidden_shares = np.zeros(cells.shape)
            for i, axis in enumerate(question.axes):
                if not axis.is_number:
                    continue
                law = self.law(axis.name)
                stretch = np.arange(axis.cells) * min(_PROFILE_STRETCHES, axis.cells) // axis.cells
                in_stretch = (np.arange(stretch[-1] + 1)[:, None] == stretch).astype(np.float64)
                stretch_parts = in_stretch @ law.overlap_with(axis)
                errors = law.parts_of(stretch_parts, sampling, z)[1][stretch]
                axis_sums = cells.sum(axis=i, keepdims=True)
                axis_shares = np.minimum(
                    errors * np.sqrt(np.moveaxis(axis_sums, i, -1)), np.moveaxis(axis_sums, i, -1) / z
                )
                hidden_shares = np.maximum(hidden_shares, np.moveaxis(axis_shares, -1, i))
            return Results.of(answer.estimate, answer.variance + (hidden_shares / unit) ** 2, z)

        return replace(answer, intervals=intervals)

    def _model(self, question: Question) -> Answer:
        names, source, short_columns = question.names, self.tables.source_of(question.names), self.models.of_few_values
        of_rows = source == "rows"
        is_fitted = [
            axis.name in short_columns and axis.grid is None if of_rows else self.tables.member(axis.name) is not None
            for axis in question.axes
        ]
        if not all(is_fitted):
            raise ParameterError(
                f"column {names[is_fitted.index(False)]!r} is not of at most {MAX_EXACT_FIT_VALUES} values, which "
                "method='model' needs; use 'em'"
            )
        model = self.models.around(names)
        shares, guarded = model.joint(names), model.guarded([names])[0] if len(names) > 2 else None
        uses_rows = (
            model.can_compare_with_rows(names) if len(names) > 2 else len(names) == 1 and model.counts_rows(names[0])
        )
        if uses_rows and not of_rows:
            source = "both"
        answer = self._present_shares(question, model, shares if guarded is None else guarded, "model", source)
        if guarded is None:
            return answer
        # Rows contradict the law of the draws, so the whole correction counts as an error.
        correction = answer.estimate - self._present_shares(question, model, shares, "model", source).estimate
        assert answer.draws is not None
        return replace(answer, hidden=True, draws=answer.draws + correction, variance=answer.variance + correction**2)

    def _present_shares(self, question: Question, model: Model, shares: FloatArray, method: str, source: str) -> Answer:
        """Return a fit's shares by the cells of the question, with draws."""
        n = float(self._source.rows)
        columns = {axis.name: model.columns[axis.name] for axis in question.axes}
        draws = self.posterior.of(question.names)
        table_draws = draws.sums({axis.name: columns[axis.name].axis.overlap_with(axis) for axis in question.axes})
        for i, axis in enumerate(question.axes):
            shares = columns[axis.name].presented(axis, shares, i)
        counts = np.maximum(shares, 0.0) * n
        # Noise always hides at least half a row.
        extra_variances = np.full(counts.shape, min(0.5, draws.noise) ** 2)
        if source == "rows":
            # Only rows: add the variance of sampling, and the variance of shrinkage to independence.
            extra_variances = extra_variances + (self._source.weight - 1) * counts * (1 - counts / max(n, 1.0))
            extra_variances = extra_variances + self._shrinkage_variances(question.axes, shares) * n**2
        estimate, variances = question.presented(counts, extra_variances, n)
        of_table, nothing = replace(question, population=False), np.zeros(counts.shape)
        estimate_draws = np.array(
            [of_table.presented(np.maximum(table_draw, 0.0), nothing, n)[0] for table_draw in table_draws]
        )
        return Answer(estimate, variances, method, source, draws=estimate_draws)

    # Other statistics of the fit

    def _count_by_tables(
        self, conditions: Mapping[str, ValueCondition], population: bool, z: float
    ) -> tuple[Results, dict[str, Any]]:
        """Return the number of rows that meet conditions by the fit to tables, and its attrs.

        If no table holds three or more conditions together, the attrs have the bounds that their pairs allow.
        """
        names = list(conditions)
        model = self.models.around(names)
        columns = [model.columns[name] for name in names]
        fine_parts = [column.axis.parts_of(conditions[column.axis.name].share_of_cells) for column in columns]
        parts = [column.gathered(part) for column, part in zip(columns, fine_parts, strict=True)]
        uses_rows = len(names) > 2 and model.can_compare_with_rows(names)
        is_unmeasured = len(names) > 2 and model.known(names) is None
        sides, rows = contingency_table(model.joint(names), parts), float(self._source.rows)
        estimate, correction = float(sides.flat[0]) * rows, 0.0
        guarded = model.guarded([names])[0] if uses_rows else None
        if guarded is not None:
            corrected = float(contingency_table(guarded, parts).flat[0]) * rows
            estimate, correction = corrected, corrected - estimate
        draws, parts_by_column = self.posterior.of(names), dict(zip(names, fine_parts, strict=True))
        count_draws = draws.counts(parts_by_column)
        extra_variance = max(estimate * (1 - estimate / max(rows, 1.0)), 0.0) if population else 0.0
        table = model.known(names)
        if table is not None:
            # The fit's dependence may differ from the counts by more than noise; the excess is an error.
            cover = crossed([np.ceil(part) for part in parts]) if len(names) == 2 else np.zeros(table.counts.shape)
            fitted = model.joint(names)
            for axis in range(cover.ndim):
                other_axes = tuple(at for at in range(cover.ndim) if at != axis)
                margin = np.expand_dims(fitted.sum(axis=other_axes), other_axes)
                cover = cover - (cover * margin).sum(axis=axis, keepdims=True)
            excess = float(((table.counts - fitted * rows) * cover).sum())
            extra_variance += max(excess**2 - float((table.variances * cover**2).sum()), 0.0)
        results = Results.of_draws(
            np.array([estimate]), count_draws[:, None] + correction, extra_variance + correction**2, z
        )
        if len(names) > 1:
            # No more rows meet all conditions than each one; all of these bounds have to cover.
            ends = [rows]
            for rows_met, error in filter(None, (draws.met(*one) for one in parts_by_column.items())):
                chance = max(rows_met * (1 - rows_met / max(rows, 1.0)), 0.0) if population else 0.0
                ends.append(max(rows_met, 0.0) + _CONJUNCTION_FACTOR * z * math.hypot(error, math.sqrt(chance)))
            max_rows = min(ends)
            results = replace(results, std_error=np.minimum(results.std_error, max_rows / z)).clipped(0.0, max_rows)
        attrs: dict[str, Any] = {"source": "both" if uses_rows else "tables"}
        if is_unmeasured:
            attrs |= {"assumes": names}
            if len(names) <= MOST_BOUNDED:
                pair_bounds = bounds_by_pairs(sides) @ sides.ravel()
                pair_bounds[np.abs(pair_bounds) < _ROUNDING_SHARE] = 0.0
                attrs["allowed_by_pairs"] = tuple((np.clip(pair_bounds, 0.0, 1.0) * rows).tolist())
        return results, attrs

    def correlation(self, one: str, other: str, population: bool, z: float) -> Results | None:
        """Return the correlation of two numbers by the fit, or None if tables do not count both.

        Bins make a covariance too small; it is raised as in `NumberPair`. The factor varies by half in the draws.
        """
        names, laws = [one, other], (self.tables.law(one), self.tables.law(other))
        if laws[0] is None or laws[1] is None:
            return None
        model, draws = self.models.around(names), self.posterior.of(names)
        columns, rows = [model.columns[name] for name in names], float(self._source.rows)
        values = tuple(slice(0, column.cells - column.axis.flag_codes) for column in columns)
        joint = model.joint(names)[values] * rows
        for place, column in enumerate(columns):
            joint = column.to_own_cells(joint, place)
        bins = columns[0].bins_of_values[: laws[0].bins], columns[1].bins_of_values[: laws[1].bins]
        pair = NumberPair((laws[0], laws[1]), bins, joint, np.zeros(joint.shape))
        covariance, bin_covariance = float(pair.moments(1.0, 1.0, 0, 0.0)[0][0]), pair.between(joint)
        scale = math.sqrt(max(math.prod(pair.spreads), 1e-300))
        # Matched ranks of two heavy tails raise a covariance by any factor; bins hide at most half of it.
        factor = min(covariance / bin_covariance, 2.0) if bin_covariance else 1.0
        pair_draws = draws.pairs[0, 1] if draws.names == names else draws.pairs[0, 1].transpose(0, 2, 1)
        pair_draws = pair_draws[:, values[0], values[1]]
        for place, column in enumerate(columns, start=1):
            pair_draws = column.to_own_cells(pair_draws, place)
        covariance_draws = np.array([pair.between(one) for one in pair_draws])
        doubt = np.random.default_rng(0).normal(1.0, 0.5, len(covariance_draws))
        correlation_draws, covariance = covariance_draws * (1 + (factor - 1) * doubt) / scale, bin_covariance * factor
        fitted, raw = np.array([covariance / scale]), self.tables.pair(one, other)
        count_residual, noise = np.zeros(1), np.full(1, np.inf)
        if raw is not None:
            pair_moments, errors = raw.moments(1.0, 1.0, 0, 0.0)
            count_residual, noise = pair_moments[:1] / scale - fitted, errors[:1] / scale**2
        # A fit shrinks dependence; the pair's own counts show by how much.
        shift, remaining_variance = shrunk(
            count_residual, noise, np.full(1, CORRELATION_REACH), CORRELATION_BIAS / CORRELATION_REACH, FAR_SHARE
        )
        estimate = np.clip(fitted + shift, -1.0, 1.0)
        chance = (1 - estimate**2) ** 2 / max(rows, 1.0) if population else 0.0
        draws_about = np.clip(correlation_draws + shift, -1.0, 1.0)[:, None]
        return Results.of_draws(estimate, draws_about, remaining_variance + chance, z).clipped(-1.0, 1.0)

    def group_means(self, keys: Sequence[Axis], column: str, z: float) -> GroupMeans | None:
        """Return the means of a number in every cell of some keys, or None if a pair was not measured.

        Every row of a bin has the bin's mean, from the number's levels and its sum.
        """
        names = [*(axis.name for axis in keys), column]
        law = self.tables.law(column)
        if law is None or self.tables.source_of(names) != "tables":
            return None
        model = self.models.around(names)
        bins = BinMeans.of(model.columns[column], law, model.fine(column))
        bins = replace(bins, means=bins.means - float(law.moments[0]))
        onto = [model.columns[axis.name].onto(axis) for axis in keys]

        def mean_offsets(shares: FloatArray) -> FloatArray:
            """Return each group's mean less the mean of all rows; 0 for groups without rows."""
            everybody = shares.reshape(-1, len(bins.means)).sum(axis=0)
            for i, matrix in enumerate(onto):
                shares = through(matrix, shares, i)
            groups = shares + EMPTY_GROUP_SHARE * everybody
            sums, rows = (cells @ (bins.means * bins.present) for cells in (groups, everybody)), groups @ bins.present
            of_groups, of_all = sums
            return np.asarray(
                of_groups / np.maximum(rows, _ROUNDING_SHARE)
                - of_all / np.maximum(everybody @ bins.present, _ROUNDING_SHARE)
            )

        def chance_variances(shares: FloatArray) -> FloatArray:
            """Return each group mean's variance by chance: the number's variance within the group, over its rows."""
            for i, matrix in enumerate(onto):
                shares = through(matrix, shares, i)
            group_shares = np.maximum(shares @ bins.present, _ROUNDING_SHARE)
            squares, means = (
                shares @ (values * bins.present) / group_shares for values in (bins.spreads + bins.means**2, bins.means)
            )
            return np.asarray(np.maximum(squares - means**2, 0.0) / np.maximum(group_shares * self._source.rows, 1.0))

        draws = self.posterior.of(names)
        order = [draws.names.index(name) for name in names]
        refits = np.array([mean_offsets(mixture.joint(order)) for mixture in draws.mixtures])
        mean_draws = draws.means({axis.name: model.columns[axis.name].axis.overlap_with(axis) for axis in keys}, column)
        has_key_table = model.known(names) is not None
        if has_key_table:
            evidence, positions = self._table_evidence(model, keys, column, bins, z)
        else:
            key_evidence, key_positions = zip(
                *(self._table_evidence(model, [axis], column, bins, z) for axis in keys), strict=True
            )
            positions = reduce(np.maximum.outer, key_positions)
            evidence = cross_keys(key_evidence, INTERACTION_MEAN_SD * math.sqrt(max(law.moments[1], 0.0)))
        joint = model.joint(names)
        return GroupMeans(
            mean_offsets(joint),
            refits.var(axis=0, ddof=1),
            mean_draws,
            evidence,
            positions,
            chance_variances(joint),
            not has_key_table,
        )

    def _table_evidence(
        self, model: Model, keys: Sequence[Axis], column: str, bins: BinMeans, z: float
    ) -> tuple[Results, FloatArray]:
        """Return evidence of the mean in each cell of some keys, from the table of the keys and a number.

        The second array has the errors of `position_errors`.
        """
        names = [axis.name for axis in keys]
        table, sizes = model.known([*names, column]), model.known(names)
        assert table is not None and sizes is not None
        for i, axis in enumerate(keys):
            onto = model.columns[axis.name].onto(axis)
            table, sizes = table.onto(i, onto), sizes.onto(i, onto)
        counts, variances, rows, of_rows = table.counts, table.variances, sizes.counts, sizes.variances
        has_value = bins.present > 0
        if not has_value.all():
            # Rows with a null have no part in a mean, so they leave the group's size.
            rows = rows - counts[..., ~has_value].sum(axis=-1)
            of_rows = of_rows + variances[..., ~has_value].sum(axis=-1)
        evidence = fieller_means(
            counts[..., has_value],
            variances[..., has_value],
            (rows, of_rows),
            bins.means[has_value],
            bins.spreads[has_value],
            z,
        )
        positions = position_errors(counts[..., has_value], variances[..., has_value], rows, bins.reaches[has_value])
        return evidence, positions


METHODS: Mapping[str, Callable[[Joints, Question], Answer]] = MappingProxyType(
    {
        "inverse": Joints._inverse,
        "project": Joints._project,
        "em": Joints._em,
        "model": Joints._model,
        "auto": Joints._auto,
    }
)
"""Methods by name."""


def _refine_axes(axes: Sequence[Axis]) -> tuple[list[Axis], Callable[[FloatArray], FloatArray]]:
    """Return axes with finer bins for a fit, and a function that merges the fit's cells.

    A fit spreads values evenly within a cell, which is far from true in a few wide bins.
    """
    listed_cells = [axis.cells for axis in axes if axis.grid is None]
    binned = max(1, len(axes) - len(listed_cells))
    max_cells = int((MOST_FIT_CELLS / math.prod(listed_cells)) ** (1 / binned))
    fine = [axis if axis.grid is None else axis.grid.refine(min(JOINT_GRID_CELLS, max_cells)).for_fits for axis in axes]

    def merge(shares: FloatArray) -> FloatArray:
        for i, (f, axis) in enumerate(zip(fine, axes, strict=True)):
            if axis.grid is not None:
                shares = through(f.overlap_with(axis), shares, i)
        return shares

    return fine, merge


def _hidden_shares(fit_shares: FloatArray, max_shares: FloatArray) -> FloatArray:
    """Return the shares of rows that noise may hide from conditions, from a fit's shares and their upper ends.

    A fit without rows may lack a heap; a fit with many rows has most of the heap.
    """
    part = np.clip(fit_shares / np.maximum(max_shares, EMPTY_GROUP_SHARE), 0.0, 1.0)
    return np.asarray(np.maximum(max_shares - fit_shares, 0.0) * (1 - _FIT_GAP_SHARE * np.sqrt(part)))


def _scale_to_shares(sides: FloatArray, shares: FloatArray) -> FloatArray:
    """Scale counts by condition, met first, to the share of each condition in its own column.

    Cells of a joint that end at a condition have any width. Noise wider than a cell cannot separate neighbours, so the
    joint may misplace rows. A column's own fit spreads them evenly, as in a count of one condition. So a count of two
    conditions exceeds neither.
    """
    # Half a row lets scaling fill a side that the fit leaves empty.
    rows, margins = float(sides.sum()), dict[tuple[int, ...], FloatArray]()
    margins |= {(place,): np.array([share, 1 - share]) for place, share in enumerate(shares.tolist())}
    return fit_to_margins((sides + 0.5) / (rows + 0.5 * sides.size), margins, _SCALING_SWEEPS) * rows


def _project_counts(counts: FloatArray, domain: JointDomain) -> FloatArray:
    tables = np.moveaxis(counts, -1, 0)
    return np.stack([project(domain.sums(one) / max(float(one.sum()), 1.0)) for one in tables], axis=-1)
