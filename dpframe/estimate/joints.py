"""The joint of some columns, by every method, from the released rows and the measured tables.

*Inverse* estimates are unbiased: the mean of raw counts of tables and of the rows' unbiased estimate, weighted by the
inverse mean variance of their cells. Variances of tables are public, and variances of rows hardly vary with the table,
so that the mean stays unbiased. *Project* takes the estimates to the simplex. *Em* is the likeliest table given the
rows. *Model* fits all columns, and errs least unless noise is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from types import MappingProxyType

import numpy as np

from dpframe.errors import ParameterError, is_one_of, name_list
from dpframe.estimate import surrogates
from dpframe.estimate.axes import Axis, check_inverts, make_axis
from dpframe.estimate.column_evidence import BEYOND_USE
from dpframe.estimate.evidence.combine import project
from dpframe.estimate.evidence.law import Law, RowsLaw
from dpframe.estimate.evidence.likelihood import bootstrap_errors, fit_joints, refits
from dpframe.estimate.joint_domain import JointDomain
from dpframe.estimate.measured_tables import MAX_EXACT_FIT_VALUES, MeasuredTables
from dpframe.estimate.model import Model, Models
from dpframe.estimate.noisy_rows import of_noisy_rows
from dpframe.estimate.posterior import Posterior
from dpframe.estimate.results import Answer, Question, Results
from dpframe.estimate.tables.fit import fit_to_margins
from dpframe.observe.noisy_counts import through
from dpframe.spaces.arrays import FloatArray

GRID_CELLS = 128
"""Grid cells in the fit of a numeric column's distribution (limit of time)."""

JOINT_GRID_CELLS = 48
"""Cells of a numeric column within a joint that is fitted to rows (limit of time)."""

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

SCALING_SWEEPS = 60
"""Sweeps of scaling to margins (tolerance)."""

_PROFILE_STRETCHES = 16
"""Stretches of a column's cells with a profile likelihood each (limit of time)."""


class Joints:
    """Joints of one release."""

    def __init__(self, tables: MeasuredTables) -> None:
        self.tables, self.source, self.evidence = tables, tables.source, tables.inference

    @cached_property
    def models(self) -> Models:
        """The fits of the release."""
        return Models(self.tables)

    @cached_property
    def posterior(self) -> Posterior:
        """Draws of the original table."""
        info = self.source.info
        return Posterior(self.models, "" if info is None else info.digest)

    def answer(self, question: Question, method: str) -> Answer:
        """Return a joint by a method of `METHODS`, 0 in the cells that the plan's rules exclude."""
        if not is_one_of(method, METHODS):
            raise ParameterError(f"method must be one of {', '.join(METHODS)}")
        answer = METHODS[method](self, question)
        rules = self.source.plan.bound_rules
        excluded = rules.impossible({axis.name: axis.stretches for axis in question.axes}) if rules.rules else None
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
        source_column = self.source.column(column)
        axis = make_axis(
            source_column, None if source_column.space.is_listed else min(GRID_CELLS, source_column.space.values)
        )
        return self.evidence.law(axis if axis.grid is None else self.evidence.snapped(axis.grid))

    def _auto(self, question: Question) -> Answer:
        names = question.names
        if self.tables.source_of(names) != "rows":
            raw = self.tables.raw(question.axes)
            # The mean absolute value of standard normal noise is √(2/π), about 0.8.
            if raw is not None and 0.8 * float(np.sqrt(raw.variances).sum()) / self.source.rows < NEGLIGIBLE:
                return self._inverse(question)
            if all(self.tables.member(name) is not None for name in names):
                return self._model(question)
        if not all(axis.inverts for axis in question.axes):
            return self._em(question)
        variance = self.invert_rows(Question(question.axes, False, (), False, False), sampling=0.0)[1]
        # The mean absolute value of normal noise is σ√(2/π).
        total = float(np.sqrt(np.maximum(variance, 0)).sum()) * math.sqrt(2 / math.pi)
        expected = total / max(self.source.n * self.source.weight, 1)
        if expected <= GOOD_ENOUGH:
            return self._inverse(question)
        short_columns = self.models.of_few_values
        can_use_model = (
            len(short_columns) >= 3
            and len(names) > 1
            and all(a.grid is None and a.name in short_columns for a in question.axes)
        )
        return self._model(question) if expected > NOISY and can_use_model else self._em(question)

    def invert_rows(self, question: Question, sampling: float | None = None) -> tuple[FloatArray, FloatArray]:
        """Return unbiased counts of a question's cells from the released rows, and their variances."""
        estimates, variance = surrogates.joint_cells(
            surrogates.count_classes(question.axes, self.source.codes(question.names)),
            question.axes,
            normalize=question.normalize,
            given=question.given,
            dropna=question.dropna,
            sampling=self.sampling(question.population) if sampling is None else sampling,
        )
        weight = 1.0 if question.normalize else self.source.weight
        return estimates * weight, variance * weight**2

    def sampling(self, population: bool) -> float:
        """Return the factor of the rows' own sampling variance: of the table, or of its population."""
        return self.source.sampling("population" if population else "table")

    def _inverse(self, question: Question) -> Answer:
        raw = self.tables.raw(question.axes)
        if len(question.axes) == 1:
            (axis,) = question.axes
            law = self.tables.law(axis.name)
            facts = None if raw is None else raw.to_observation(axis)
            if facts is None and law is not None:
                rows, errors = law.linear(law.overlap_with(axis))
                return Answer(*question.presented(rows, errors**2, float(self.source.rows)), "inverse", "tables")
            cell_estimate = self.evidence.cells(question, facts)
            if cell_estimate is not None:
                is_inferred = self.evidence.counted(axis) is not None
                source = "rows" if facts is None else "both"
                return self._check_digits(question, Answer(*cell_estimate, "inverse", source, counted=is_inferred))
        if raw is None:
            check_inverts(question.axes, 'method="em" fits them')
            return self._check_digits(question, Answer(*self.invert_rows(question), "inverse", "rows"))
        # The number of rows is public: conditioning on the cells' sum takes u uᵀ off their covariance.
        variances, total = raw.variances, float(self.source.rows)
        total_variance = float(variances.sum())
        counts = raw.counts + (total - raw.counts.sum()) * variances / total_variance
        shared = variances / math.sqrt(total_variance)
        source = "tables"
        if self.source.n and all(axis.inverts for axis in question.axes):
            row_counts, row_variances = self.invert_rows(Question(question.axes, False, (), False, False))
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
        rows = 1.0 if question.normalize else max(self.source.n * self.source.weight, 1.0)
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
        if len(question.axes) == 1 and self.source.n:
            return self._answer_by_law(question, question.axes[0])
        axes, merge = _refine_axes(question.axes)
        return self._fit_rows(question, axes, fit_joints, merge, "em", self._scale_to_laws)

    def _answer_by_law(self, question: Question, axis: Axis) -> Answer:
        """Return one column's cells by the law of its rows; bins use the law of a histogram."""
        law = self.evidence.law(axis) if axis.grid is None else self._fit_rows_law(axis.name)
        parts, sampling = law.overlap_with(axis), self.sampling(question.population)
        shares, has_counts = parts @ law.shares, bool(len(law.facts))
        unit = question.unit(shares, self.source.n * self.source.weight)

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
        return np.asarray(cells / question.unit(cells, self.source.n * self.source.weight))

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
        half = 0.5 / max(self.source.n, 1)
        # A single margin is met after one sweep; several disturb each other.
        return fit_to_margins(cells + half * independent_joint, margins, SCALING_SWEEPS if len(margins) > 1 else 1)

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
        n, domain = self.source.n, JointDomain(tuple(axes))
        if not n:
            return Answer(*self.invert_rows(question), "inverse", "rows")

        def fit_counts(counts: FloatArray) -> FloatArray:
            return fit(counts, domain)

        counts = surrogates.count_classes(axes, self.source.codes(question.names))
        shares = fit_counts(counts[..., None])[..., 0]
        replicates = list(refits(shares, domain, n, fit_counts, self.sampling(question.population)))
        errors = bootstrap_errors(replicates, lambda fitted_shares: self._to_unit(question, merge(fitted_shares)))
        cells = merge(shares)
        shrinkage_variances = (
            self._shrinkage_variances(question.axes, cells) / question.unit(cells, n * self.source.weight) ** 2
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
            return self.invert_rows(Question([axes[place] for place in places], False, (), False, False), sampling=0.0)

        return of_noisy_rows(shares, count_cells, max(self.source.n * self.source.weight, 1.0))

    def _widen_intervals(self, question: Question, cells: FloatArray, answer: Answer) -> Answer:
        """Widen the intervals of a fit to rows: noise may hide heaps, which a fit spreads.

        For each number, a cell gets the error of the law in its stretch of cells, applied to the rows of the other
        columns; counts of conditions do likewise. ``cells`` are the shares of all rows.
        """
        unit, sampling = question.unit(cells, self.source.n * self.source.weight), self.sampling(question.population)

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
        n = float(self.source.rows)
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
            extra_variances = extra_variances + (self.source.weight - 1) * counts * (1 - counts / max(n, 1.0))
            extra_variances = extra_variances + self._shrinkage_variances(question.axes, shares) * n**2
        estimate, variances = question.presented(counts, extra_variances, n)
        of_table, nothing = replace(question, population=False), np.zeros(counts.shape)
        estimate_draws = np.array(
            [of_table.presented(np.maximum(table_draw, 0.0), nothing, n)[0] for table_draw in table_draws]
        )
        return Answer(estimate, variances, method, source, draws=estimate_draws)


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


def _project_counts(counts: FloatArray, domain: JointDomain) -> FloatArray:
    tables = np.moveaxis(counts, -1, 0)
    return np.stack([project(domain.sums(one) / max(float(one.sum()), 1.0)) for one in tables], axis=-1)
