"""Counts of rows that meet conditions, by the estimate of least error: unbiased, or from a fit to rows or to tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpframe.estimate.axes import Axis, check_inverts, join_axes
from dpframe.estimate.conditions import ValueCondition, Where
from dpframe.estimate.joints import SCALING_SWEEPS, Joints
from dpframe.estimate.noisy_rows import (
    EMPTY_GROUP_SHARE,
    PAIR_LOG_ODDS_SD,
    contingency_table,
    crossed,
    drawn_of_many,
    of_noisy_rows,
)
from dpframe.estimate.results import Ends, Question, Results
from dpframe.estimate.tables.fit import fit_to_margins
from dpframe.estimate.tables.guard import MOST_BOUNDED, bounds_by_pairs, interaction_variance
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.cells import has_few_values

MOST_ASKED = 100_000
"""Cells of a joint up to which a counting question is answered by a fit of it (limit of memory)."""

_CONJUNCTION_FACTOR = 1.5
"""Factor of a column's interval in the bounds of a count of two conditions: both intervals have to cover (tuned; effect
not measured)."""

_FIT_GAP_SHARE = 0.8
"""Share of the gap to an interval's end that closes if the fit already has all of the rows (tuned; half and twice it
change widths on a census by 17 and −21 %).

The end belongs to the law that suits the question most, which may have heaps that the fit lacks. In ten tables, real
ones and some with eight tenths of the rows in one value, 99 % of 344 intervals of counts of two conditions covered.
"""

_ROUNDING_SHARE = 1e-12
"""Share of rows below which a bound is 0 (tolerance)."""


@dataclass(frozen=True)
class ConditionCounts:
    """Counts of conditions on columns of one release."""

    joints: Joints

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
            groups, weight = self.joints.source.plan.groups, self.joints.source.weight
            grouped = {name for group in groups for name in group.names}
            numbers = {
                n: c for n, c in asked.values.items() if c.is_number and n not in grouped and self.joints.source.n
            }
            squares = {name: condition.mean_square(self.joints.law(name)) for name, condition in numbers.items()}
            rows = asked.count(self.joints.source.codes(asked.names), groups, self.joints.sampling(population), squares)
            estimate, variance = rows[0] * weight, rows[1] * weight**2
        unbiased = Results.of(np.array([estimate]), np.array([variance]), z)
        candidates = [(unbiased, {"source": "rows"})]
        candidates += [self._count_by_fit(asked.values, population, z, float(unbiased.std_error[0]))] if fits else []
        return min(candidates, key=lambda one: float(one[0].std_error[0]))

    def _is_excluded(self, conditions: Iterable[ValueCondition]) -> bool:
        """Return whether the plan's rules exclude every row that meets the conditions."""
        excluded = self.joints.source.plan.bound_rules.impossible({one.column.name: one.ends for one in conditions})
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
        names, rows = list(conditions), self.joints.source.n * self.joints.source.weight
        law = self.joints.law(names[0]) if len(names) == 1 else None
        if law is not None and (law.source == "tables" or not has_few_values(conditions[names[0]].column.space)):
            part = conditions[names[0]].share_of_cells(law.edges)
            return Results(*law.parts_of(part, self.joints.sampling(population), z) * rows), {"source": law.source}
        if self.joints.tables.source_of(names) == "tables":
            return self._count_by_tables(conditions, population, z)
        axes = join_axes([condition.axis for condition in conditions.values()], self.joints.source.plan.groups)
        if math.prod(axis.cells for axis in axes) > MOST_ASKED:
            # An infinite error leaves the choice to the unbiased count.
            return Results.of(np.array([np.nan]), np.array([np.inf]), z), {"source": "rows"}
        parts = [conditions[axis.name].share_of_cells(axis.ends) for axis in axes]
        cell_parts = crossed(parts)
        answer = self.joints.answer(Question(axes, False, (), False, population, cell_parts), "auto")
        sampling, results_by_column = self.joints.sampling(population), []
        for name, condition in conditions.items():
            law = self.joints.law(name)
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
            counts, variances = self.joints.invert_rows(Question(count_axes, False, (), False, False), sampling=0.0)
            axis_parts = [parts[place] for place in places]
            side_variances = contingency_table(variances, axis_parts)
            return contingency_table(counts, axis_parts), np.full(side_variances.shape, noise**2) if len(
                places
            ) > 1 else side_variances

        rows = max(self.joints.source.n * self.joints.source.weight, 1.0)
        if len(axes) > 2:
            return drawn_of_many(sides, noise, count_sides)
        return math.sqrt(float(of_noisy_rows(sides / rows, count_sides, rows).flat[0])) * rows

    def _independence_gap(self, conditions: Mapping[str, ValueCondition], estimate: float) -> float:
        """Return the distance of a count from the count under independence, if tables cover every single column.

        If many columns share a budget, rows hardly show two of them together. The error of a fit to such rows covers
        their noise, but not its shrinkage to independence.
        """
        members = {name: self.joints.tables.member(name) for name in conditions}
        column_conditions = [
            (conditions[name], m)
            for name, m in members.items()
            if m and self.joints.tables.source_of([name]) == "tables"
        ]
        if not 2 <= len(conditions) == len(column_conditions):
            return 0.0
        shares = [float(condition.share_of_cells(m.axis.ends) @ m.shares) for condition, m in column_conditions]
        return abs(estimate - math.prod(shares) * self.joints.source.n * self.joints.source.weight)

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

    def _count_by_tables(
        self, conditions: Mapping[str, ValueCondition], population: bool, z: float
    ) -> tuple[Results, dict[str, Any]]:
        """Return the number of rows that meet conditions by the fit to tables, and its attrs.

        If no table holds three or more conditions together, the attrs have the bounds that their pairs allow.
        """
        names = list(conditions)
        model = self.joints.models.around(names)
        columns = [model.columns[name] for name in names]
        fine_parts = [column.axis.parts_of(conditions[column.axis.name].share_of_cells) for column in columns]
        parts = [column.gathered(part) for column, part in zip(columns, fine_parts, strict=True)]
        uses_rows = len(names) > 2 and model.can_compare_with_rows(names)
        is_unmeasured = len(names) > 2 and model.known(names) is None
        sides, rows = contingency_table(model.joint(names), parts), float(self.joints.source.rows)
        estimate, correction = float(sides.flat[0]) * rows, 0.0
        guarded = model.guarded([names])[0] if uses_rows else None
        if guarded is not None:
            corrected = float(contingency_table(guarded, parts).flat[0]) * rows
            estimate, correction = corrected, corrected - estimate
        draws, parts_by_column = self.joints.posterior.of(names), dict(zip(names, fine_parts, strict=True))
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
    return fit_to_margins((sides + 0.5) / (rows + 0.5 * sides.size), margins, SCALING_SWEEPS) * rows
