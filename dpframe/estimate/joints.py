"""The joint of some columns, by every method, from all that a release holds of them.

*Inverse* estimates are unbiased: raw counts of tables with the rows' unbiased estimate, weighted by the inverse of the
mean variance of either's cells (those of tables are public, and those of rows hardly vary with the table, so that the
mean stays unbiased). *Project* takes them to the simplex, *em* is the likeliest table given its rows, the *model* fits
all columns and errs least where noise is not small.
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
from dpframe.estimate.groups import INTERACTION_MEAN_SD, GroupMeans, OwnEvidence
from dpframe.estimate.joint_domain import JointDomain
from dpframe.estimate.measured_tables import FEW_VALUES, MeasuredTables
from dpframe.estimate.model import Model, Models
from dpframe.estimate.noisy_rows import OF_TWO, crossed, drawn_of_many, of_noisy_rows, sides_of
from dpframe.estimate.posterior import Posterior
from dpframe.estimate.results import Answer, Ends, Question, Results
from dpframe.estimate.table_column import BinMeans, aggregation
from dpframe.estimate.tables.fit import fit_to_margins
from dpframe.estimate.tables.guard import MOST_BOUNDED, bounds_by_pairs, interaction_variance
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.cells import has_few_values

GRID_CELLS = 128
"""Cells of the grid on which the distribution of a numeric column is fitted (limit of time)."""

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

_ROOM = 1.5
"""Times as far as a column's own interval goes that a count of two conditions may lie: both have to hold (tuned; effect
not measured)."""

_FOUND = 0.8
"""Part of a gap to an end of a column's own interval that closes where its fit has all of the rows (tuned; half and
twice it change widths on a census by 17 and −21 %).

The end is that of the law that suits the question most, which has heaps where the fit has none. In ten tables, real
ones and some with eight tenths of the rows in one value, 99 % of 344 intervals of counts of two conditions held.
"""

_SWEEPS = 60
"""Sweeps over the margins of counts by condition (tolerance)."""

_STRETCHES = 16
"""Stretches of a column's cells whose profile likelihood is looked at (limit of time)."""

CORRELATION_BIAS, CORRELATION_REACH, FAR_SHARE = 0.05, 0.5, 0.1
"""Standard deviation of what a fit's correlations lack beforehand, that of few which lack more, and their share (tuned;
effect below).

On 74 pairs of eight tables at ε = 1: with none, .1 and .15 for the first the median error is .031, .037 and .042
for .033, and .93, .99 and .99 of the intervals hold for .96.
"""

_FEWEST = 1e-9
"""Share of rows below which a group is empty (tolerance)."""

_ROUNDING = 1e-12
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
        found = METHODS[method](self, question)
        never = self._source.plan.bound_rules.impossible({axis.name: axis.stretches for axis in question.axes})
        if never is None:
            return found
        kept, scale = np.where(never, 0.0, found.estimate), np.ones([1] * never.ndim)
        if question.normalize or found.method != "inverse":
            # Shares and fits have a total, which stays; counts of cells that may be are unbiased as they are.
            free = tuple(i for i in range(kept.ndim) if i not in question.given)
            whole = kept.sum(axis=free, keepdims=True)
            scale = np.where(whole > 0, found.estimate.sum(axis=free, keepdims=True) / whole, 1.0)

        def intervals(z: float) -> Results:
            return found.results(z).each(lambda values: np.where(never, 0.0, values * scale))

        variance = np.where(never, 0.0, found.variance)
        own = None if found.intervals is None else intervals
        draws = None if found.draws is None else np.where(never, 0.0, found.draws)
        return replace(found, estimate=kept * scale, variance=variance, intervals=own, draws=draws)

    def law(self, column: str) -> Law:
        """Return how a number's rows are spread: by measured tables, or by its rows and what inference counted."""
        measured = self.tables.law(column)
        return self._law_of_rows(column) if measured is None else measured

    def _law_of_rows(self, column: str) -> RowsLaw:
        chosen = self._source.column(column)
        axis = make_axis(chosen, None if chosen.space.is_listed else min(GRID_CELLS, chosen.space.values))
        return self._evidence.law(axis if axis.grid is None else self._evidence.snapped(axis.grid))

    def count(self, asked: Where, method: str, population: bool, z: float) -> tuple[Results, dict[str, Any]]:
        """Return how many rows meet conditions, by the rows or by what is known of least error, and what is said."""
        fits = method == "auto" and len(asked.values) == len(asked.conditions)
        if not fits:
            check_inverts((one.axis for one in asked.values.values()), 'ask for conditions on values, by method="auto"')
        if self._never(asked.values.values()):
            return Results(*np.zeros((4, 1))), {"source": "rules"}
        asked = self._without_implied(asked)
        found, variance = np.nan, np.inf
        if all(one.axis.inverts for one in asked.values.values()):
            groups, weight = self._source.plan.groups, self._source.weight
            grouped = {name for group in groups for name in group.names}
            numbers = {n: c for n, c in asked.values.items() if c.is_number and n not in grouped and self._source.n}
            squares = {name: condition.mean_square(self.law(name)) for name, condition in numbers.items()}
            rows = asked.count(self._source.codes(asked.names), groups, self._sampling(population), squares)
            found, variance = rows[0] * weight, rows[1] * weight**2
        unbiased = Results.of(np.array([found]), np.array([variance]), z)
        known = [(unbiased, {"source": "rows"})]
        known += [self._fitted_count(asked.values, population, z, float(unbiased.std_error[0]))] if fits else []
        return min(known, key=lambda one: float(one[0].std_error[0]))

    def _never(self, conditions: Iterable[ValueCondition]) -> bool:
        """Return whether the plan's rules let no row meet conditions."""
        never = self._source.plan.bound_rules.impossible({one.column.name: one.ends for one in conditions})
        return never is not None and bool(never.all())

    def _without_implied(self, asked: Where) -> Where:
        """Return the conditions without those that all rows meet which meet the others, by the plan's rules."""
        for name, one in asked.values.items():
            others = [other for other in asked.values.values() if other is not one]
            if others and not one.column.space.has_null and self._never([*others, one.negated()]):
                kept = tuple(condition for condition in asked.conditions if condition.column.name != name)
                return self._without_implied(Where(kept))
        return asked

    def _fitted_count(
        self, conditions: Mapping[str, ValueCondition], population: bool, z: float, noise: float
    ) -> tuple[Results, dict[str, Any]]:
        """Return how many rows meet conditions by what is known of least error; ``noise`` is the unbiased count's."""
        names, rows = list(conditions), self._source.n * self._source.weight
        law = self.law(names[0]) if len(names) == 1 else None
        if law is not None and (law.source == "tables" or not has_few_values(conditions[names[0]].column.space)):
            part = conditions[names[0]].share_of_cells(law.edges)
            return Results(*law.parts_of(part, self._sampling(population), z) * rows), {"source": law.source}
        if self.tables.source_of(names) == "tables":
            return self._tabled_count(conditions, population, z)
        axes = join_axes([condition.axis for condition in conditions.values()], self._source.plan.groups)
        if math.prod(axis.cells for axis in axes) > MOST_ASKED:
            return Results.of(np.array([np.nan]), np.array([np.inf]), z), {"source": "rows"}
        parts = [conditions[axis.name].share_of_cells(axis.ends) for axis in axes]
        inside = crossed(parts)
        answer = self.answer(Question(axes, False, (), False, population, inside), "auto")
        sampling, apart = self._sampling(population), []
        for name, condition in conditions.items():
            law = self.law(name)
            apart.append(law.parts_of(condition.share_of_cells(law.edges)[None], sampling, z)[:, 0])
        known, sides = np.stack(apart, axis=1), sides_of(answer.estimate, parts)
        if answer.method != "inverse" and len(axes) > 1:
            sides = _with_margins(sides, known[0])
        found = float(sides.flat[0])
        # Where how the errors of cells go together is not known, at worst all go one way.
        error = float(np.sqrt(np.maximum(answer.variance, 0.0))[inside > 0].sum())
        if answer.draws is not None:
            error = float((answer.draws * inside).sum(axis=tuple(range(1, inside.ndim + 1))).std(ddof=1))
        if (answer.draws is not None or answer.sum_error is not None) and len(axes) > 1:
            own = error if answer.draws is not None or answer.sum_error is None else answer.sum_error
            shrunk_away = math.hypot(own, self._drawn_of_sides(axes, parts, sides, noise))
            error = shrunk_away if answer.draws is not None else min(error, shrunk_away)
        error = math.hypot(error, self._unsupported(conditions, found))
        results = Results.of(np.array([found]), np.array([error**2]), z)
        if answer.source == "rows" and answer.method != "inverse":
            results = results.opened(self._unresolved(conditions, known, z), z, rows)
        least, most = 0.0, 1.0
        if len(axes) > 1:
            # What each column's own rows leave: no more than the fewest, no less than all of them have to share.
            low, high = (known[0] + _ROOM * (end - known[0]) for end in known[2:])
            least, most = max(0.0, 1 - float((1 - low).sum())), min(1.0, float(high.min()))
        results = replace(results, std_error=np.minimum(results.std_error, (most - least) * rows / 2))
        return results.clipped(least * rows, most * rows), {"source": answer.source}

    def _drawn_of_sides(
        self, axes: Sequence[Axis], parts: Sequence[FloatArray], sides: FloatArray, noise: float
    ) -> float:
        """Return how far off a fit's count of conditions is by what it draws to independence; see `of_noisy_rows`.

        ``sides`` are the counts by condition, met first, and ``noise`` is the error of the unbiased count.
        """
        if len(axes) == 2 and not all(axis.column.space.is_listed for axis in axes):
            return math.sqrt(1 / (1 / float(interaction_variance(sides, 2, OF_TWO).flat[0]) + 1 / noise**2))

        def counted(places: Sequence[int]) -> tuple[FloatArray, FloatArray]:
            some = [axes[place] for place in places]
            counts, variances = self._of_rows(Question(some, False, (), False, False), sampling=0.0)
            asked = [parts[place] for place in places]
            alone = sides_of(variances, asked)
            return sides_of(counts, asked), np.full(alone.shape, noise**2) if len(places) > 1 else alone

        rows = max(self._source.n * self._source.weight, 1.0)
        if len(axes) > 2:
            return drawn_of_many(sides, noise, counted)
        return math.sqrt(float(of_noisy_rows(sides / rows, counted, rows).flat[0])) * rows

    def _unsupported(self, conditions: Mapping[str, ValueCondition], found: float) -> float:
        """Return how far a count from rows is off that of independent columns, where tables cover each by itself.

        A promise that many columns share leaves rows that hardly show two of them together, and a fit to such rows
        knows of its noise but not how little it was moved.
        """
        members = {name: self.tables.member(name) for name in conditions}
        known = [
            (conditions[name], m) for name, m in members.items() if m and self.tables.source_of([name]) == "tables"
        ]
        if not 2 <= len(conditions) == len(known):
            return 0.0
        shares = [float(condition.share_of_cells(m.axis.ends) @ m.shares) for condition, m in known]
        return abs(found - math.prod(shares) * self._source.n * self._source.weight)

    def _unresolved(self, conditions: Mapping[str, ValueCondition], known: FloatArray, z: float) -> Ends:
        """Return the shares of rows that a fit to rows may put on the wrong side of conditions on numbers, either way.

        For each number what its own distribution leaves open, among the rows that may meet the other conditions at
        most: two spikes that noise hides may be of the same rows. It is no more than all of these rows.
        """
        point, _, low, high = known
        gaps = np.stack([_left_open(1 - point, 1 - low), _left_open(point, high)])
        most = np.array([np.delete(high, place).min(initial=1.0) for place in range(len(point))])
        is_number = [condition.is_number for condition in conditions.values()]
        below, above = (np.minimum(gaps * np.sqrt(most), most) * is_number).max(axis=1).tolist()
        return (0.0, below / z), (0.0, above / z)

    def _auto(self, question: Question) -> Answer:
        names = question.names
        if self.tables.source_of(names) != "rows":
            raw = self.tables.raw(question.axes)
            if raw is not None and 0.8 * float(np.sqrt(raw.variances).sum()) / self._source.rows < NEGLIGIBLE:
                return self._inverse(question)
            if all(self.tables.member(name) is not None for name in names):
                return self._model(question)
        if not all(axis.inverts for axis in question.axes):
            return self._em(question)
        variance = self._of_rows(Question(question.axes, False, (), False, False), sampling=0.0)[1]
        total = float(np.sqrt(np.maximum(variance, 0)).sum()) * math.sqrt(2 / math.pi)
        expected = total / max(self._source.n * self._source.weight, 1)
        if expected <= GOOD_ENOUGH:
            return self._inverse(question)
        few = self.models.of_few_values
        fits = len(few) >= 3 and len(names) > 1 and all(a.grid is None and a.name in few for a in question.axes)
        return self._model(question) if expected > NOISY and fits else self._em(question)

    def _of_rows(self, question: Question, sampling: float | None = None) -> tuple[FloatArray, FloatArray]:
        found, variance = surrogates.joint_cells(
            surrogates.count_classes(question.axes, self._source.codes(question.names)),
            question.axes,
            normalize=question.normalize,
            given=question.given,
            dropna=question.dropna,
            sampling=self._sampling(question.population) if sampling is None else sampling,
        )
        weight = 1.0 if question.normalize else self._source.weight
        return found * weight, variance * weight**2

    def _sampling(self, population: bool) -> float:
        return self._source.sampling("population" if population else "table")

    def _inverse(self, question: Question) -> Answer:
        if len(question.axes) == 1:
            (axis,) = question.axes
            facts, law = self.tables.cell_counts(axis), self.tables.law(axis.name)
            if facts is None and law is not None:
                rows, errors = law.linear(aggregation(law, axis))
                return Answer(*question.presented(rows, errors**2, float(self._source.rows)), "inverse", "tables")
            own = self._evidence.cells(question, facts)
            if own is not None:
                counted = self._evidence.counted(axis) is not None
                source = "rows" if facts is None else "both"
                return self._of_use(question, Answer(*own, "inverse", source, counted=counted))
        raw = self.tables.raw(question.axes)
        if raw is None:
            check_inverts(question.axes, 'method="em" fits them')
            return self._of_use(question, Answer(*self._of_rows(question), "inverse", "rows"))
        # The number of rows is public: what is known of the cells' sum takes u uᵀ off their covariance.
        variances, total = raw.variances, float(self._source.rows)
        whole = float(variances.sum())
        counts, shared = raw.counts + (total - raw.counts.sum()) * variances / whole, variances / math.sqrt(whole)
        source = "tables"
        if self._source.n and all(axis.inverts for axis in question.axes):
            other, spread = self._of_rows(Question(question.axes, False, (), False, False))
            mean, own_mean = float(np.mean(spread)), float(np.mean(variances - shared**2))
            if math.isfinite(mean) and mean > 0:
                weight = own_mean / (own_mean + mean)
                counts = (1 - weight) * counts + weight * other
                variances = (1 - weight) ** 2 * variances + weight**2 * spread
                shared, source = (1 - weight) * shared, "both"
        return Answer(*question.presented(counts, variances, total, shared), "inverse", source)

    def _of_use(self, question: Question, answer: Answer) -> Answer:
        """Return an unbiased answer, or raise `ParameterError` where bins are so narrow that it has lost its digits."""
        binned = [axis.name for axis in question.axes if axis.grid is not None]
        rows = 1.0 if question.normalize else max(self._source.n * self._source.weight, 1.0)
        if binned and float(np.median(answer.variance)) > (BEYOND_USE * rows) ** 2:
            raise ParameterError(
                f"method='inverse' says nothing of bins of {name_list(binned)}, as noise is much wider than its steps; "
                "leave method out"
            )
        return answer

    def _project(self, question: Question) -> Answer:
        """Return the nearest joint in the simplex, shifted to its margins where tables hold all of it."""
        if self.tables.source_of(question.names) == "tables":
            model = self.models.around(question.names)
            places = model.places(question.names)
            shares = model.fit.simple(places)
            if shares is not None:
                return self._shown(question, model, shares, "project", "tables")
        return self._fitted(question, question.axes, _nearest, np.asarray, "project")

    def _em(self, question: Question) -> Answer:
        if len(question.axes) == 1 and self._source.n:
            return self._of_law(question, question.axes[0])
        axes, merge = _refined(question.axes)
        return self._fitted(question, axes, fit_joints, merge, "em", self._with_own_laws)

    def _of_law(self, question: Question, axis: Axis) -> Answer:
        """Return one column's cells by the law of its rows: of bins that of a histogram."""
        law = self._evidence.law(axis) if axis.grid is None else self._law_of_rows(axis.name)
        parts, sampling = aggregation(law, axis), self._sampling(question.population)
        shares, counted = parts @ law.shares, bool(len(law.facts))
        unit = question.unit(shares, self._source.n * self._source.weight)

        def intervals(z: float) -> Results:
            return Results(*law.parts_of(parts, sampling, z)).each(lambda values: values / unit)

        if axis.grid is not None:
            own = intervals(1.0)
            return Answer(own.estimate, own.std_error**2, "em", "rows", counted=counted, intervals=intervals)
        presented = partial(self._presented, question)
        errors = law.errors_of(lambda some: presented(parts @ some), sampling)
        return self._opened(question, shares, Answer(presented(shares), errors**2, "em", "rows", counted=counted))

    def _presented(self, question: Question, cells: FloatArray) -> FloatArray:
        """Return what is asked, from shares of all rows by cell."""
        return np.asarray(cells / question.unit(cells, self._source.n * self._source.weight))

    def _with_own_laws(self, question: Question, cells: FloatArray) -> FloatArray:
        """Return a joint scaled to how each of its numbers is spread by itself, so that a histogram is its margin.

        Half a released row is spread as of independent columns, for cells of a number that the joint leaves empty.
        """
        laws = {i: self.law(axis.name) for i, axis in enumerate(question.axes) if axis.is_number}
        if not laws:
            return cells
        margins: dict[tuple[int, ...], FloatArray]
        margins = {(i,): aggregation(law, question.axes[i]) @ law.shares for i, law in laws.items()}
        sums = {(i,): cells.sum(axis=tuple(j for j in range(cells.ndim) if j != i)) for i in range(cells.ndim)}
        alone = reduce(np.multiply.outer, (sums | margins).values())
        half = 0.5 / max(self._source.n, 1)
        return fit_to_margins(cells + half * alone, margins, _SWEEPS if len(margins) > 1 else 1)

    def _fitted(
        self,
        question: Question,
        axes: Sequence[Axis],
        fit: Callable[[FloatArray, JointDomain], FloatArray],
        merge: Callable[[FloatArray], FloatArray],
        method: str,
        settle: Callable[[Question, FloatArray], FloatArray] | None = None,
    ) -> Answer:
        """Return a joint by a fit to rows, by bootstrap; ``settle`` takes its cells to what else is known of them."""
        n, domain = self._source.n, JointDomain(tuple(axes))
        if not n:
            return Answer(*self._of_rows(question), "inverse", "rows")

        def fitted(counts: FloatArray) -> FloatArray:
            return fit(counts, domain)

        counts = surrogates.count_classes(axes, self._source.codes(question.names))
        shares = fitted(counts[..., None])[..., 0]
        again = list(refits(shares, domain, n, fitted, self._sampling(question.population)))
        errors = bootstrap_errors(again, lambda some: self._presented(question, merge(some)))
        cells = merge(shares)
        drawn = self._drawn(question.axes, cells) / question.unit(cells, n * self._source.weight) ** 2
        cells = cells if settle is None else settle(question, cells)
        found = Answer(self._presented(question, cells), errors**2 + drawn, method, "rows")
        found = found if settle is None else self._opened(question, cells, found)
        if question.weights is None or not all(axis.inverts for axis in axes):
            return found
        weights = question.weights
        summed = bootstrap_errors(
            again, lambda some: np.asarray((self._presented(question, merge(some)) * weights).sum())
        )
        return replace(found, sum_error=float(summed))

    def _drawn(self, axes: Sequence[Axis], shares: FloatArray) -> FloatArray:
        """Return the variance of cells about a fit to noisy rows that neither it nor its replicas know of.

        Of listed columns only: how odds ratios of bins go together is another matter.
        """
        if not all(axis.inverts and axis.grid is None for axis in axes):
            return np.zeros(shares.shape)

        def counted(places: Sequence[int]) -> tuple[FloatArray, FloatArray]:
            return self._of_rows(Question([axes[place] for place in places], False, (), False, False), sampling=0.0)

        return of_noisy_rows(shares, counted, max(self._source.n * self._source.weight, 1.0))

    def _opened(self, question: Question, cells: FloatArray, answer: Answer) -> Answer:
        """Return a fit to rows whose intervals hold what it leaves open: noise may hide heaps, which a fit spreads.

        For each number it is as far as its own law goes, that of the stretch of cells in which a cell lies, among the
        rows of the others; see `_unresolved`. ``cells`` are the shares of all rows.
        """
        unit, sampling = question.unit(cells, self._source.n * self._source.weight), self._sampling(question.population)

        def intervals(z: float) -> Results:
            spread = np.zeros(cells.shape)
            for i, axis in enumerate(question.axes):
                if not axis.is_number:
                    continue
                law = self.law(axis.name)
                stretch = np.arange(axis.cells) * min(_STRETCHES, axis.cells) // axis.cells
                together = (np.arange(stretch[-1] + 1)[:, None] == stretch).astype(np.float64) @ aggregation(law, axis)
                errors, most = law.parts_of(together, sampling, z)[1][stretch], cells.sum(axis=i, keepdims=True)
                own = np.minimum(errors * np.sqrt(np.moveaxis(most, i, -1)), np.moveaxis(most, i, -1) / z)
                spread = np.maximum(spread, np.moveaxis(own, -1, i))
            return Results.of(answer.estimate, answer.variance + (spread / unit) ** 2, z)

        return replace(answer, intervals=intervals)

    def _model(self, question: Question) -> Answer:
        names, source, few = question.names, self.tables.source_of(question.names), self.models.of_few_values
        of_rows = source == "rows"
        fits = [
            axis.name in few and axis.grid is None if of_rows else self.tables.member(axis.name) is not None
            for axis in question.axes
        ]
        if not all(fits):
            raise ParameterError(
                f"column {names[fits.index(False)]!r} is not of at most {FEW_VALUES} values, which "
                "method='model' needs; use 'em'"
            )
        model = self.models.around(names)
        shares, guarded = model.joint(names), model.guarded([names])[0] if len(names) > 2 else None
        hears = model.is_heard(names) if len(names) > 2 else len(names) == 1 and model.counts_rows(names[0])
        if hears and not of_rows:
            source = "both"
        answer = self._shown(question, model, shares if guarded is None else guarded, "model", source)
        if guarded is None:
            return answer
        # What rows corrected is known no better than that it had to be: draws are of a law that rows contradict.
        apart = answer.estimate - self._shown(question, model, shares, "model", source).estimate
        assert answer.draws is not None
        return replace(answer, hidden=True, draws=answer.draws + apart, variance=answer.variance + apart**2)

    def _shown(self, question: Question, model: Model, shares: FloatArray, method: str, source: str) -> Answer:
        """Return shares of the cells of a fit by the cells that are asked for, with draws of them."""
        n = float(self._source.rows)
        columns = {axis.name: model.columns[axis.name] for axis in question.axes}
        draws = self.posterior.of(question.names)
        drawn = draws.sums({axis.name: aggregation(columns[axis.name].axis, axis) for axis in question.axes})
        for i, axis in enumerate(question.axes):
            shares = columns[axis.name].presented(axis, shares, i)
        counts = np.maximum(shares, 0.0) * n
        # Half a row is the least that noise hides.
        unseen = np.full(counts.shape, min(0.5, draws.noise) ** 2)
        if source == "rows":
            # Rows by themselves are a sample, where the release took one, and hardly show what a fit shrinks.
            unseen = unseen + (self._source.weight - 1) * counts * (1 - counts / max(n, 1.0))
            unseen = unseen + self._drawn(question.axes, shares) * n**2
        estimate, variances = question.presented(counts, unseen, n)
        of_table, nothing = replace(question, population=False), np.zeros(counts.shape)
        presented = np.array([of_table.presented(np.maximum(one, 0.0), nothing, n)[0] for one in drawn])
        return Answer(estimate, variances, method, source, draws=presented)

    # What else is asked of the fit

    def _tabled_count(
        self, conditions: Mapping[str, ValueCondition], population: bool, z: float
    ) -> tuple[Results, dict[str, Any]]:
        """Return how many rows meet conditions, by the fit and its rows, and what is said of it.

        Of three conditions and more, which no table holds together, it is said which counts their pairs allow.
        """
        names = list(conditions)
        model = self.models.around(names)
        columns = [model.columns[name] for name in names]
        asked = [conditions[column.axis.name].share_of_cells(column.axis.ends) for column in columns]
        parts = [column.gathered(part) for column, part in zip(columns, asked, strict=True)]
        heard, unseen = len(names) > 2 and model.is_heard(names), len(names) > 2 and model.known(names) is None
        sides, rows = sides_of(model.joint(names), parts), float(self._source.rows)
        found, off = float(sides.flat[0]) * rows, 0.0
        guarded = model.guarded([names])[0] if heard else None
        if guarded is not None:
            corrected = float(sides_of(guarded, parts).flat[0]) * rows
            found, off = corrected, corrected - found
        draws, wanted = self.posterior.of(names), dict(zip(names, asked, strict=True))
        drawn = draws.counts(wanted)
        sampled = max(found * (1 - found / max(rows, 1.0)), 0.0) if population else 0.0
        table = model.known(names)
        if table is not None:
            # A fit whose dependence is farther from the counts of these cells than their noise is off by the excess.
            cover = crossed([np.ceil(part) for part in parts]) if len(names) == 2 else np.zeros(table.counts.shape)
            fitted = model.joint(names)
            for axis in range(cover.ndim):
                others = tuple(at for at in range(cover.ndim) if at != axis)
                margin = np.expand_dims(fitted.sum(axis=others), others)
                cover = cover - (cover * margin).sum(axis=axis, keepdims=True)
            apart = float(((table.counts - fitted * rows) * cover).sum())
            sampled += max(apart**2 - float((table.variances * cover**2).sum()), 0.0)
        results = Results.of_draws(np.array([found]), drawn[:, None] + off, sampled + off**2, z)
        if len(names) > 1:
            # No more rows meet all conditions than each; all of these ends have to hold.
            ends = [rows]
            for own, error in filter(None, (draws.met(*one) for one in wanted.items())):
                chance = max(own * (1 - own / max(rows, 1.0)), 0.0) if population else 0.0
                ends.append(max(own, 0.0) + _ROOM * z * math.hypot(error, math.sqrt(chance)))
            most = min(ends)
            results = replace(results, std_error=np.minimum(results.std_error, most / z)).clipped(0.0, most)
        said: dict[str, Any] = {"source": "both" if heard else "tables"}
        if unseen:
            said |= {"assumes": names}
            if len(names) <= MOST_BOUNDED:
                allowed = bounds_by_pairs(sides) @ sides.ravel()
                allowed[np.abs(allowed) < _ROUNDING] = 0.0
                said["allowed_by_pairs"] = tuple((np.clip(allowed, 0.0, 1.0) * rows).tolist())
        return results, said

    def correlation(self, one: str, other: str, population: bool, z: float) -> Results | None:
        """Return the correlation of two numbers by the fit, where tables count both; None elsewhere.

        Bins make a covariance too small; it is raised as `NumberPair` does, give or take half of that in the draws.
        """
        names, laws = [one, other], (self.tables.law(one), self.tables.law(other))
        if laws[0] is None or laws[1] is None:
            return None
        model, draws = self.models.around(names), self.posterior.of(names)
        columns, rows = [model.columns[name] for name in names], float(self._source.rows)
        values = tuple(slice(0, column.cells - column.axis.has_null) for column in columns)
        joint = model.joint(names)[values] * rows
        bins = columns[0].bins[: laws[0].bins], columns[1].bins[: laws[1].bins]
        pair = NumberPair((laws[0], laws[1]), bins, joint, np.zeros(joint.shape))
        covariance, between = float(pair.moments(1.0, 1.0, 0, 0.0)[0][0]), pair.between(joint)
        spread = math.sqrt(max(math.prod(pair.spreads), 1e-300))
        # Matched ranks of two heavy tails raise a covariance by any factor: twice is the most that bins hide.
        factor = min(covariance / between, 2.0) if between else 1.0
        drawn = draws.pairs[0, 1] if draws.names == names else draws.pairs[0, 1].transpose(0, 2, 1)
        moved = np.array([pair.between(one[values]) for one in drawn])
        doubt = np.random.default_rng(0).normal(1.0, 0.5, len(moved))
        found, covariance = moved * (1 + (factor - 1) * doubt) / spread, between * factor
        fitted, raw = np.array([covariance / spread]), self.tables.pair(one, other)
        off, noise = np.zeros(1), np.full(1, np.inf)
        if raw is not None:
            counted, errors = raw.moments(1.0, 1.0, 0, 0.0)
            off, noise = counted[:1] / spread - fitted, errors[:1] / spread**2
        # A fit shrinks dependence: how far counts of their own show.
        moved, left = shrunk(off, noise, np.full(1, CORRELATION_REACH), CORRELATION_BIAS / CORRELATION_REACH, FAR_SHARE)
        estimate = np.clip(fitted + moved, -1.0, 1.0)
        chance = (1 - estimate**2) ** 2 / max(rows, 1.0) if population else 0.0
        draws_about = np.clip(found + moved, -1.0, 1.0)[:, None]
        return Results.of_draws(estimate, draws_about, left + chance, z).clipped(-1.0, 1.0)

    def group_means(self, keys: Sequence[Axis], column: str, z: float) -> GroupMeans | None:
        """Return the means of a number in every cell of some keys; None where not every pair was measured.

        Rows of a bin of the number count as the bin's mean, which its levels and its sum give.
        """
        names = [*(axis.name for axis in keys), column]
        law = self.tables.law(column)
        if law is None or self.tables.source_of(names) != "tables":
            return None
        model = self.models.around(names)
        bins = BinMeans.of(model.columns[column], law, model.fine(column))
        onto = [model.columns[axis.name].onto(axis) for axis in keys]

        def off_all(shares: FloatArray) -> FloatArray:
            """Return by how much the mean of each group is off that of all rows, which groups without rows have."""
            everybody = shares.reshape(-1, len(bins.means)).sum(axis=0)
            for i, matrix in enumerate(onto):
                shares = np.moveaxis(np.tensordot(matrix, shares, axes=(1, i)), 0, i)
            groups = shares + _FEWEST * everybody
            sums, rows = (some @ (bins.means * bins.present) for some in (groups, everybody)), groups @ bins.present
            of_groups, of_all = sums
            return np.asarray(
                of_groups / np.maximum(rows, _ROUNDING) - of_all / np.maximum(everybody @ bins.present, _ROUNDING)
            )

        def chance(shares: FloatArray) -> FloatArray:
            """Return the variance of each group's mean by chance: that of the number within it, over its rows."""
            for i, matrix in enumerate(onto):
                shares = np.moveaxis(np.tensordot(matrix, shares, axes=(1, i)), 0, i)
            held = np.maximum(shares @ bins.present, _ROUNDING)
            squares, means = (
                shares @ (values * bins.present) / held for values in (bins.spreads + bins.means**2, bins.means)
            )
            return np.asarray(np.maximum(squares - means**2, 0.0) / np.maximum(held * self._source.rows, 1.0))

        draws = self.posterior.of(names)
        order = [draws.names.index(name) for name in names]
        refits = np.array([off_all(mixture.joint(order)) for mixture in draws.mixtures])
        drawn = draws.means({axis.name: aggregation(model.columns[axis.name].axis, axis) for axis in keys}, column)
        measured, mean = model.known(names) is not None, float(law.moments[0])
        if measured:
            own = self._own_evidence(model, keys, column, bins, z).less(mean)
        else:
            each = [self._own_evidence(model, [axis], column, bins, z).less(mean) for axis in keys]
            own = OwnEvidence.of_several_keys(each, INTERACTION_MEAN_SD * math.sqrt(max(law.moments[1], 0.0)))
        joint = model.joint(names)
        return GroupMeans(off_all(joint), refits.var(axis=0, ddof=1), drawn, own, chance(joint), not measured)

    def _own_evidence(self, model: Model, keys: Sequence[Axis], column: str, bins: BinMeans, z: float) -> OwnEvidence:
        """Return what the table of some keys and a number says of the mean in each cell of the keys."""
        names = [axis.name for axis in keys]
        table, sizes = model.known([*names, column]), model.known(names)
        assert table is not None and sizes is not None
        arrays = [table.counts, table.variances, sizes.counts, sizes.variances]
        for i, axis in enumerate(keys):
            matrix = model.columns[axis.name].onto(axis)
            arrays = [
                np.moveaxis(np.tensordot(matrix**power, values, axes=(1, i)), 0, i)
                for values, power in zip(arrays, (1, 2, 1, 2), strict=True)
            ]
        counts, variances, rows, of_rows = arrays
        some = bins.present > 0
        if not some.all():
            # Rows with a null have no part in a mean: the group's own counts say how many have a value.
            rows = rows - counts[..., ~some].sum(axis=-1)
            of_rows = of_rows + variances[..., ~some].sum(axis=-1)
        return OwnEvidence.of(
            counts[..., some], variances[..., some], (rows, of_rows), bins.means[some], bins.spreads[some], z
        )


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


def _refined(axes: Sequence[Axis]) -> tuple[list[Axis], Callable[[FloatArray], FloatArray]]:
    """Cut bins finer for a fit, and return how to merge its cells again.

    A fit takes values as uniform within a cell, which is far from true in a few wide bins.
    """
    whole = [axis.cells for axis in axes if axis.grid is None]
    binned = max(1, len(axes) - len(whole))
    most = int((MOST_FIT_CELLS / math.prod(whole)) ** (1 / binned))
    fine = [axis if axis.grid is None else axis.grid.refine(min(JOINT_GRID_CELLS, most)).for_fits for axis in axes]

    def merge(shares: FloatArray) -> FloatArray:
        for i, (f, axis) in enumerate(zip(fine, axes, strict=True)):
            if axis.grid is not None:
                shares = np.moveaxis(np.tensordot(aggregation(f, axis), shares, axes=(1, i)), 0, i)
        return shares

    return fine, merge


def _left_open(held: FloatArray, most: FloatArray) -> FloatArray:
    """Return how many more rows may meet conditions of counts of two, of shares that fits have and may have at most.

    A fit that has none may lack a heap, one that has rows has found it.
    """
    part = np.clip(held / np.maximum(most, _FEWEST), 0.0, 1.0)
    return np.asarray(np.maximum(most - held, 0.0) * (1 - _FOUND * np.sqrt(part)))


def _with_margins(sides: FloatArray, shares: FloatArray) -> FloatArray:
    """Return counts by condition, met first, scaled to what each column shows of its own by itself.

    Cells of a joint that end where a condition does are of any width, and noise that is wider than they are leaves
    open which of two neighbours has the rows: a column's own fit takes its rows for spread evenly there, as that of a
    count of one condition does, so that a count of two is not more than either.
    """
    # Half a row keeps a side that a fit leaves empty.
    rows, margins = float(sides.sum()), dict[tuple[int, ...], FloatArray]()
    margins |= {(place,): np.array([share, 1 - share]) for place, share in enumerate(shares.tolist())}
    return fit_to_margins((sides + 0.5) / (rows + 0.5 * sides.size), margins, _SWEEPS) * rows


def _nearest(counts: FloatArray, domain: JointDomain) -> FloatArray:
    tables = np.moveaxis(counts, -1, 0)
    return np.stack([project(domain.sums(one) / max(float(one.sum()), 1.0)) for one in tables], axis=-1)
