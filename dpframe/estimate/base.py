"""What all estimates are made with: counts of the release, fits to it, and how results are presented."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import combinations, combinations_with_replacement
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from dpframe.errors import InferenceWarning, ParameterError, check_fraction, is_one_of, name_list, warn
from dpframe.estimate import moments, sets, surrogates
from dpframe.estimate.axes import Axis, BinnedAxis, join_axes, make_axis
from dpframe.estimate.beyond_bounds import BEYOND_BOUNDS, Tails, piles_at_bounds, tails_of
from dpframe.estimate.column_evidence import ColumnEvidence
from dpframe.estimate.item_pairs import PairTable
from dpframe.estimate.joints import Joints
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.not_found import NOT_FOUND, reasons, warn_of_nan
from dpframe.estimate.results import RESULTS, Answer, Question, Results
from dpframe.estimate.sets import ItemTable, SizeTable
from dpframe.observe.observation import Observation, update
from dpframe.observe.significance import HINT_SE
from dpframe.plan.forecast import mean_errors
from dpframe.plan.inferred import Measured, null_count
from dpframe.plan.measures import MeasuredTable
from dpframe.plan.plan import Plan
from dpframe.spaces.arrays import FloatArray, IntArray
from dpframe.spaces.base import line_of
from dpframe.spaces.stretches import shares_its_step
from dpframe.tables.released import Source

_LEAST_VARIANCE = float(np.finfo(np.float64).tiny)
"""Squares of numbers below 1e-154 are 0, and no error is."""

Bins = Mapping[str, int | Sequence[Any]]

_MANY = 0.01
"""Part of all rows that a heap at the end of a range has if a warning names it (tuned; effect not measured)."""


class Reading:
    """A release as estimates see it; `Estimates` adds the questions."""

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

    @property
    def _z(self) -> float:
        return NormalDist().inv_cdf((1 + self.confidence_level) / 2)

    def _items(self, column: str) -> ItemTable | None:
        measured = self._joints.tables.of_kind("items", column)
        if measured is None:
            return None
        sizes = self._measured_sizes(column)
        if sizes is not None:
            return ItemTable.uncut(measured, sizes.kept(measured.measure.most, 1))
        lost = spread = 0.0
        if self.n:
            mine = sets.SetColumn.of(self._source.column(column))
            lost, spread = sets.SetSizes.of(mine, self._source.codes([column])).lost(measured.measure.most)
        return ItemTable(measured.counts.astype(np.float64), measured.measure.sigma2, lost, spread)

    def _measured_sizes(self, column: str) -> SizeTable | None:
        measured = self._joints.tables.of_kind("sizes", column)
        return None if measured is None else SizeTable.of(measured, sets.SetColumn.of(self._source.column(column)))

    def _measured_pairs(self, column: str) -> PairTable | None:
        measured, sizes = self._joints.tables.of_kind("item_pairs", column), self._measured_sizes(column)
        if measured is None or sizes is None:
            return None
        mine = sets.SetColumn.of(self._source.column(column))
        return PairTable(mine.space.count, ItemTable.uncut(measured, sizes.kept(measured.measure.most, 2)))

    def _axes(self, names: Sequence[str], bins: Bins) -> list[Axis]:
        if not names:
            raise ParameterError("name at least one column")
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
                self._warn_of_shared(axis.name, *self._rows_at_bounds(axis.grid))
        return axes

    def _shown_cells(self, axes: Sequence[Axis], dropna: bool) -> tuple[IntArray, ...]:
        """Return the cells of each axis that are shown: not null with ``dropna``, and not an empty `other`."""
        most = [axis.cells - (dropna and axis.has_null) for axis in axes]
        return tuple(np.setdiff1d(np.arange(n), self._empty_other(axis)) for n, axis in zip(most, axes, strict=True))

    def _empty_other(self, axis: Axis) -> list[int]:
        """Return the code of the bucket that inference added, where its count is within its noise of 0."""
        name, code = axis.name, self._added_others.get(axis.name)
        if code is None or axis.grid is not None:
            return []
        if name not in self._are_empty:
            alone = self._cells([make_axis(axis.column, None)], False, (), False, "inverse", "table")
            error = math.sqrt(max(float(alone.variance[code]), 0.0))
            self._are_empty[name] = float(alone.estimate[code]) <= self._z * error
        return [code] if self._are_empty[name] else []

    @cached_property
    def _added_others(self) -> dict[str, int]:
        """Codes by column of the values that inference did not find, under a name that no value of the list has."""
        inferred, lost = self.plan.inferred, reasons(self.plan.not_found)
        found: dict[str, int] = {}
        for measured in () if inferred is None else inferred.measured:
            if measured.kind == "values" and measured.column in self.plan.names and measured.column not in lost:
                space: Any = self.plan[measured.column].space
                other = getattr(space.inner_space, "other", None)
                if other is not None and other not in measured.cells:
                    found[measured.column] = space.labels().index(other)
        return found

    @cached_property
    def _are_empty(self) -> dict[str, bool]:
        return {}

    def _axis(self, name: str, bins: int | Sequence[Any] | None) -> Axis:
        """Return the axis of a column, with its times in its zone."""
        return make_axis(self._source.column(name), bins, self._source.zone(name))

    def _squares_of_bins(self, axes: Sequence[Axis]) -> dict[str, FloatArray]:
        """Return the mean squared surrogates of bins of numbers, by the law of their noise."""
        grids = [axis.grid for axis in axes if axis.grid is not None and axis.group is None and self.n]
        return {grid.name: grid.mean_squares(self._joints.law(grid.name)) for grid in grids}

    def _rows_at_bounds(self, axis: BinnedAxis) -> tuple[FloatArray, FloatArray]:
        """Return how many rows seem to lie at the codes of bounds of bins, on either side, and errors of that."""
        space = axis.column.space
        shared = [0 < place < axis.bins and shares_its_step(space, bound) for place, bound in enumerate(axis.bounds)]
        found = np.zeros((2, len(shared)))
        found[:, shared] = self._rows_at(axis.name, axis.ends[shared])
        return found[0], found[1]

    def _rows_at(self, column: str, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return how many rows seem to lie at codes that an end of a range cuts, and errors of that."""
        if not len(codes):
            return np.zeros(0), np.zeros(0)
        law = self._joints.law(column)
        parts = law.parts_of(law.overlap(codes, codes + 1), self._source.sampling("table"), 1.0)
        rows, errors = parts[:2] * self._all_rows
        return np.maximum(rows, 0.0), errors

    def _warn_of_shared(self, column: str, rows: FloatArray, errors: FloatArray) -> None:
        """Warn where rows that may lie on either side of an end of a range are many."""
        if (rows > np.maximum(HINT_SE * errors, _MANY * self._all_rows)).any():
            seen, step = float(f"{rows.max():.2g}"), line_of(self._source.column(column).space)[1]
            warn(
                f"about {seen:,g} rows of {column!r} lie on the same step of {step:.3g} as an end of a range, on "
                "either side of it; take ends farther from where many rows are, or declare closer bounds or more steps "
                "in another release",
                InferenceWarning,
            )

    def _opened_at_bounds(self, results: Results, axis: BinnedAxis, unit: Any) -> Results:
        """Return bins whose intervals hold rows that lie on a bound that was given, on either side of it."""
        shared, _ = self._rows_at_bounds(axis)
        over, under = (
            np.append(rows, [0.0] * axis.has_null)[: len(results.estimate)] for rows in (shared[:-1], shared[1:])
        )
        return results.opened(((over, 0.0), (under, 0.0)), self._z, unit)

    def _cells(
        self, axes: Sequence[Axis], normalize: bool, given: Sequence[int], dropna: bool, method: str, target: str
    ) -> Answer:
        self._source.sampling(target)  # an unknown target is refused
        return self._joints.answer(Question(axes, normalize, tuple(given), dropna, target == "population"), method)

    @cached_property
    def _joints(self) -> Joints:
        """The joints of all that the release holds: of its measured tables if these are all its rows."""
        info = self._source.info
        whole = info is None or info.n == self.n
        tables = self._given_tables or self._source.tables
        used = tables if whole and self._use_measured is not False else ()
        return Joints(MeasuredTables(self._source, used, self._evidence))

    def _default_method(self, axes: Sequence[Axis]) -> str:
        """Return the method where none is named: unbiased counts between bins have errors beyond use, or are none."""
        if all(axis.grid is None and axis.inverts for axis in axes):
            return "inverse"
        return "em" if self._joints.tables.source_of([axis.name for axis in axes]) == "rows" else "model"

    @cached_property
    def _evidence(self) -> ColumnEvidence:
        """What is known of single columns; the counts of inference if they are of the table that these rows are."""
        inferred, info = self.plan.inferred, self._source.info
        whole = self.rows == self.plan.inferred_rows and (info is None or info.n == self.n)
        own = info is not None and info.measured if self._use_measured is None else self._use_measured
        return ColumnEvidence.of(self._source, inferred if own and whole else None)

    @property
    def _all_rows(self) -> float:
        return self.n * self._source.weight

    def _weighted(self, estimate: FloatArray, variance: FloatArray, normalize: bool) -> tuple[FloatArray, FloatArray]:
        weight = 1.0 if normalize else self._source.weight
        return estimate * weight, variance * weight**2

    def _counts(self, axes: Sequence[Axis]) -> FloatArray:
        return surrogates.count_classes(axes, self._source.codes([axis.name for axis in axes]))

    def _moments(
        self,
        statistic: moments.Statistic,
        columns: Sequence[str],
        target: str,
        known: Callable[[float], tuple[Any, Any] | None] = lambda population: None,
        sums: surrogates.Sums | None = None,
    ) -> tuple[FloatArray, FloatArray, str]:
        """Return a smooth statistic of product moments, its covariance, and what it is from: the rows and the tables.

        ``known`` has what was measured of it, and variances, for the table (0) or the population (1); ``sums`` are
        those of its terms, where they are known.
        """
        asked, facts = self._source.sampling(target), known(0.0)
        # What both know is of the table; the population's own variance comes after.
        sampling = asked if facts is None else self._source.sampling("table")
        if sums is None:
            sums = self._sums({"": statistic.terms}, columns)[""]
        values, covariance = surrogates.delta_method(sums, statistic.function, sampling, self._source.weight)
        if covariance[0, 0] <= 0 and statistic.kind == "instant" and self.n:
            # A handful of rows can leave a mean no variance: that of a uniform type replaces it.
            first = self._source.column(columns[0])
            typical, _ = mean_errors(first.space, first.mechanism, None, self.n, sampling)
            covariance = np.array([[(typical / statistic.scales[0]) ** 2]])
        if not (np.isfinite(values).all() and (np.diag(covariance) > 0).all()):
            # ... and other statistics leave unknown.
            values, covariance = np.where(np.isfinite(values), values, np.nan), np.full(covariance.shape, np.inf)
        scales = np.array(statistic.scales)
        values, covariance = values * scales + statistic.shift, covariance * np.outer(scales, scales)
        covariance += np.diag(np.where(np.diag(covariance) > 0, 0.0, _LEAST_VARIANCE))
        if facts is None:
            return values, covariance, "rows"
        found, own = np.atleast_1d(facts[0]), np.maximum(np.atleast_1d(facts[1]), _LEAST_VARIANCE)
        whole = known(1.0) if target == "population" else None
        more = np.diag(np.zeros_like(own) if whole is None else np.maximum(whole[1] - own, 0.0))
        if not (np.isfinite(values).all() and np.isfinite(covariance).all()):
            return found, np.diag(own) + more, "tables"
        values, covariance = update(values, covariance, Observation(np.eye(len(found)), found, own))
        return values, covariance + more, "both"

    def _with_levels(
        self, statistic: moments.Statistic, columns: Sequence[str], target: str
    ) -> tuple[FloatArray, FloatArray, str]:
        """Return a statistic as `_moments` does, with what the first column's measured levels know of it."""
        law = self._joints.tables.law(columns[0])
        return self._moments(
            statistic, columns, target, lambda population: None if law is None else statistic.known(law, population)
        )

    def _statistic(self, statistic: moments.Statistic, columns: Sequence[str], target: str) -> pd.Series[Any]:
        name, tails = columns[0], self._tails(columns[0])
        self._warn_of_clipped([name])
        self._warn_of_others([name])
        values, covariance, source = self._with_levels(statistic, columns, target)
        results = self._results(values, covariance[0])
        if tails is None:
            results = results.clipped(*statistic.bounds)
        else:
            results = results.opened(statistic.beyond(tails), self._z)
        return self._in_units(results, name, statistic.kind).series(
            name, {"source": source} | self._said_of_tails(columns)
        )

    def _in_units(self, results: Results, column: str, kind: str = "instant") -> Results:
        return results.in_units(self._source.column(column).space, self._source.zone(column), kind)

    def _weight(self, weights: str | None, column: str) -> moments.Scale | None:
        if is_one_of(weights, [column]):
            raise ParameterError("a column cannot be weighted by itself; var and mean give its second moment")
        return None if weights is None else moments.Scale.of(self._source.column(weights))

    def _matrix(
        self,
        columns: Sequence[str] | None,
        ddof: int,
        target: str,
        own: Callable[[str], Any],
        of: Callable[[tuple[str, str], FloatArray, FloatArray], Results],
    ) -> pd.DataFrame:
        """Show a statistic of every two columns as pandas shows a matrix.

        It is ``own`` of a column with itself; of two it is ``of`` their covariance and variances, and the errors' own.
        """
        self._source.sampling(target)  # an unknown target is refused whatever the columns
        names = self._numeric() if columns is None else column_names(columns, "columns")
        scales = {name: moments.Scale.of(self._source.column(name)) for name in names}
        values = np.full((len(RESULTS), len(names), len(names)), np.nan)
        missing = {name: why for name, why in reasons(self.plan.not_found).items() if name in names}
        shown = [(i, name) for i, name in enumerate(names) if self.clipped or name not in missing]
        pairs = sorted({(a, b) for (_, a), (_, b) in combinations(shown, 2) if a != b})
        statistics = {(a, b): moments.second_moments(scales[a], scales[b], ddof) for a, b in pairs}
        terms, used = {pair: one.terms for pair, one in statistics.items()}, list(dict.fromkeys(sum(pairs, ())))
        sums = self._sums(terms, used)
        for (i, a), (j, b) in combinations_with_replacement(shown, 2):
            if a == b:
                found = own(a)
            else:
                known = partial(self._pair_known, scales[a], scales[b], ddof)
                both = self._moments(statistics[a, b], [a, b], target, known, sums[a, b])[:2]
                found = of((a, b), *both).series("pair")
            values[:, i, j] = values[:, j, i] = found[list(RESULTS)]
        if missing and not self.clipped:
            warn_of_nan(missing)
        measured = any(self._joints.tables.law(name) is not None for name in names)
        said = {"source": "both" if measured else "rows"} | self._said_of_tails(names)
        # A correlation's interval does not hold what lies beyond, as a variance's does.
        self._warn_of_tails(names, lambda tails: tails.may_matter)
        self._warn_of_clipped(name for _, name in shown)
        self._warn_of_others(name for _, name in shown)
        self._warn_of_imputed(name for _, name in shown)
        return Results(*values).wide(names, names, said | ({NOT_FOUND: missing} if missing else {}))

    def _pair_known(
        self, a: moments.Scale, b: moments.Scale, ddof: int, population: float
    ) -> tuple[FloatArray, FloatArray] | None:
        pair = self._joints.tables.pair(a.column.name, b.column.name)
        return None if pair is None else pair.moments(a.line[1], b.line[1], ddof, population)

    def _warn_of_tails(self, names: Iterable[str], matter: Callable[[Tails], bool]) -> None:
        for name in names:
            tails = self._tails(name)
            if tails is not None and matter(tails):
                seen = f"about {100 * tails.share:.2g} % of the rows seem to lie beyond"
                hidden = "its heavy tail may go on beyond, hidden by the noise"
                warn(
                    f"variances and correlations of column {name!r} are of values clipped to the bounds that inference "
                    f"found, and {seen if tails.share > 0 else hidden}; declare "
                    f"spaces={{{name!r}: (LOWER, UPPER)}} in the next release where tails matter",
                    InferenceWarning,
                )

    def _warn_of_others(self, names: Iterable[str]) -> None:
        for name in names:
            tails = self._tails(name)
            if tails is not None and tails.is_faint:
                warn(
                    f"one value has most rows of {name!r}, and the counts of inference hardly show where the others "
                    f"lie; declare spaces={{{name!r}: (LOWER, UPPER)}} in the next release if they lie further out",
                    InferenceWarning,
                )
            if tails is not None and tails.may_be_others:
                warn(
                    f"inference took 0 and 1 for all values of {name!r}, and its counts do not tell that there are no "
                    f"others; declare spaces={{{name!r}: (LOWER, UPPER)}} in the next release if there are",
                    InferenceWarning,
                )

    def clipped_at(self, column: str) -> dict[str, float]:
        """Return by bound, "lower" or "upper", the share of the rows that seem clipped to it, where it was declared.

        Where the release holds no measured tables nothing can be seen.

        Examples
        --------
        >>> import pandas as pd, dpframe as dpf
        >>> frame = pd.DataFrame({"cost": range(4_000)})
        >>> safe = dpf.sanitize(frame, epsilon=1, spaces={"cost": (0, 2_000)}, key=bytes(32))
        >>> {bound: round(share, 1) for bound, share in dpf.Estimates(safe).clipped_at("cost").items()}
        {'upper': 0.5}
        """
        inferred, space = self.plan.inferred, self._source.column(column).space
        if space.is_listed or not space.is_numeric or (inferred is not None and column in inferred.columns):
            return {}
        law = self._joints.tables.law(column)
        shares = (0.0, 0.0) if law is None else piles_at_bounds(law, space)
        return {bound: share for bound, share in zip(("lower", "upper"), shares, strict=True) if share > 0}

    def _warn_of_clipped(self, names: Iterable[str]) -> None:
        for name in names:
            for bound, share in self.clipped_at(name).items():
                start, step = line_of(self._source.column(name).space)
                end = start if bound == "lower" else start + step * (self._source.column(name).space.values - 1)
                way = "lower" if bound == "lower" else "raise"
                part = float(f"{100 * share:.2g}")
                warn(
                    f"about {part:g} % of the rows of {name!r} seem to lie at its declared {bound} bound, "
                    f"{end:g}: if the table goes further, its mean, sum, std and correlations are of clipped values; "
                    f"{way} the bound in a new release (df.dp.check counts for the curator what is outside)",
                    InferenceWarning,
                )

    def _warn_of_imputed(self, names: Iterable[str]) -> None:
        """Warn of declared columns in which nulls count as values; whether any is there is data."""
        known = set(self.plan.names) - set(self.plan.imputed) if self.plan.nulls == "impute" else set()
        spaces = {name: self._source.column(name).space for name in names if name in known}
        told = [
            f"of {name_list([name])} as {space.null_counts_as}"
            for name, space in spaces.items()
            if space.null_counts_as and not space.has_null
        ]
        if told:
            warn(
                f"nulls='impute': nulls, if the table holds any, count as values here, {', '.join(told)}; to leave "
                "them out, declare Nullable(…) in a new release",
                InferenceWarning,
            )

    def _unseen_nulls(self, column: str, target: str) -> Results | None:
        """Return the share of nulls of a column whose space holds none: 0, up to what counts of inference allow.

        None where nulls count as values, and nothing counted them.
        """
        inferred, rows, own = self.plan.inferred, self.rows, list[Measured]()
        if inferred is not None and column in inferred.columns and rows == self.plan.inferred_rows:
            own = [measured for measured in inferred.measured if measured.column == column]
        elif self.plan.nulls_of(column) == "impute":
            return None
        # Types without nulls have no count of them.
        nulls, variance = null_count(own) or (0.0, 0.0)
        share, variance = max(nulls, 0.0) / max(rows, 1), variance / max(rows, 1) ** 2
        if target == "population":
            most = min(share + self._z * math.sqrt(variance), 1.0)
            variance += most * (1 - most) / max(rows, 1)
        error = math.sqrt(variance)
        return Results(0.0, error, 0.0, min(share + self._z * error, 1.0))

    def _sums(self, terms: Mapping[Any, Sequence[surrogates.Term]], names: Sequence[str]) -> dict[Any, surrogates.Sums]:
        columns = {name: self._source.column(name) for name in names}
        return surrogates.product_sums(terms, columns, self._source.codes(names), self.plan.groups) if names else {}

    def _numeric(self) -> list[str]:
        return [c.name for c in self.plan.columns if c.name not in self._source.missing and c.space.is_numeric]

    def _results(self, estimate: FloatArray, variance: FloatArray) -> Results:
        return Results.of(estimate, variance, self._z)

    def _tails(self, column: str) -> Tails | None:
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

    def _said_of_tails(self, columns: Iterable[str]) -> dict[str, Any]:
        """Return what a result's attrs say of rows that seem to lie beyond bounds that inference found."""
        tails = {name: self._tails(name) for name in columns}
        shares = {name: found.share for name, found in tails.items() if found is not None and found.share > 0}
        return {BEYOND_BOUNDS: shares} if shares else {}


def column_names(value: str | Sequence[str], name: str) -> list[str]:
    """Return column names as a list; one name is a list of one."""
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else None
    if names is None or not all(isinstance(n, str) for n in names):
        raise ParameterError(f"{name} must be a column name or a list of them")
    return names
