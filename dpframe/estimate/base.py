"""What all estimates are made with: counts of the release, fits to it, and how results are presented."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations, combinations_with_replacement, permutations
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from dpframe.arrays import FloatArray
from dpframe.errors import InferenceWarning, ParameterError, check_fraction, warn
from dpframe.estimate import moments, sets, surrogates
from dpframe.estimate.axes import Axis, join_axes, make_axis
from dpframe.estimate.beyond_bounds import BEYOND_BOUNDS, Ends, Tails, tails_of
from dpframe.estimate.column_evidence import ColumnEvidence
from dpframe.estimate.joint_domain import check_cells
from dpframe.estimate.joints import GRID_CELLS, Joints
from dpframe.estimate.measured_tables import MeasuredTables
from dpframe.estimate.model import Models
from dpframe.estimate.not_found import NOT_FOUND
from dpframe.estimate.question import Answer, Question
from dpframe.estimate.sets import ItemTable
from dpframe.estimate.table_column import code_stretches
from dpframe.evidence.combine import Observation, updated
from dpframe.evidence.law import Known, Law
from dpframe.plan.forecast import mean_errors
from dpframe.plan.measures import MeasuredTable
from dpframe.plan.plan import Plan
from dpframe.tables.released import Source

Bins = Mapping[str, int | Sequence[Any]]

RESULTS = ("estimate", "std_error", "lower", "upper")

FEW_VALUES = 32
"""Numeric columns of no more values are drawn value by value."""


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
        """Half-width of intervals in standard errors."""
        return NormalDist().inv_cdf((1 + self.confidence_level) / 2)

    def is_listed(self, column: str) -> bool:
        """Tell whether a column is one of listed values (or of so few that they can be listed)."""
        space = self._source.column(column).space
        if space.code_words:
            return False
        return space.is_listed or space.size <= FEW_VALUES

    def _items(self, column: str) -> ItemTable | None:
        """Return the measured supports of a set column, if it has some."""
        measured = self._joints.tables.of_kind("items", column)
        if measured is None:
            return None
        lost = spread = 0.0
        if self.n:
            mine = sets.SetColumn.of(self._source.column(column))
            lost, spread = sets.SetSizes.of(mine, self._source.codes([column])).lost(measured.measure.most)
        return ItemTable(measured.counts.astype(np.float64), measured.measure.sigma2, lost, spread)

    def _law(self, column: str) -> Law:
        """Return how a number's rows are spread: by measured tables, or by its rows and what inference counted."""
        measured = self._joints.tables.law(column)
        if measured is not None:
            return measured
        chosen = self._source.column(column)
        axis = make_axis(chosen, None if chosen.space.is_listed else min(GRID_CELLS, chosen.space.values))
        return self._evidence.law(axis if axis.grid is None else self._evidence.snapped(axis.grid))

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
        axes = join_axes([make_axis(self._source.column(name), bins.get(name)) for name in names], self.plan.groups)
        check_cells([axis.classes for axis in axes])
        return axes

    def _cells(
        self, axes: Sequence[Axis], normalize: bool, given: Sequence[int], dropna: bool, method: str, target: str
    ) -> Answer:
        """Return estimates and variances of all cells of a joint, those that rules exclude at 0, and their source."""
        self._source.sampling(target)  # an unknown target is refused
        question = Question(axes, normalize, tuple(given), dropna, target == "population")
        answer = self._joints.answer(question, method)
        never = self.plan.bound_rules.impossible({axis.name: code_stretches(axis) for axis in axes})
        if never is None:
            return answer
        kept = np.where(never, 0.0, answer.estimate)
        if normalize or answer.method != "inverse":
            # Shares and fits have a total, which stays; counts of cells that may be are unbiased as they are.
            free = tuple(i for i in range(kept.ndim) if i not in given)
            whole = kept.sum(axis=free, keepdims=True)
            kept = kept * np.where(whole > 0, answer.estimate.sum(axis=free, keepdims=True) / whole, 1.0)
        return replace(answer, estimate=kept, variance=np.where(never, 0.0, answer.variance))

    @cached_property
    def _joints(self) -> Joints:
        """The joints of all that the release holds: of its measured tables if these are all its rows."""
        info = self._source.info
        whole = info is None or info.n == self.n
        tables = self._given_tables or self._source.tables
        used = tables if whole and self._use_measured is not False else ()
        return Joints(self._source, Models(MeasuredTables(self._source, used, self._evidence)), self._evidence)

    def _default_method(self, axes: Sequence[Axis]) -> str:
        """Return the method where none is named: unbiased counts between bins have errors beyond use, or are none."""
        if all(axis.grid is None and axis.inverts for axis in axes):
            return "inverse"
        return "em" if self._joints.tables.source_of([axis.name for axis in axes]) == "rows" else "model"

    @cached_property
    def _evidence(self) -> ColumnEvidence:
        """What is known of single columns; the counts of inference if they are of the table that these rows are."""
        inferred, info = self.plan.inferred, self._source.info
        whole = self.rows == self.plan.n and (info is None or info.n == self.n)
        own = info is not None and info.measured if self._use_measured is None else self._use_measured
        counts = inferred if own and whole else None
        sampling = self._source.sampling("table")
        return ColumnEvidence(counts, lambda axis: self._counts([axis]), self._source.weight, sampling)

    @property
    def _all_rows(self) -> float:
        """Rows of the table that those released stand for."""
        return self.n * self._source.weight

    def _weighted(self, estimate: FloatArray, variance: FloatArray, normalize: bool) -> tuple[FloatArray, FloatArray]:
        """Return counts of the rows that those released stand for; shares as they are."""
        weight = 1.0 if normalize else self._source.weight
        return estimate * weight, variance * weight**2

    def _counts(self, axes: Sequence[Axis]) -> FloatArray:
        return surrogates.count_classes(axes, self._source.codes([axis.name for axis in axes]))

    def _statistic(
        self,
        statistic: moments.Statistic,
        names: Iterable[str | None],
        title: str,
        target: str,
        measured: Callable[[Law, float], Known | None] | None = None,
        beyond: Callable[[Tails], Ends] | None = None,
        sums: surrogates.Sums | None = None,
    ) -> pd.Series[Any]:
        """Evaluate a smooth statistic of product moments; combine it with what was measured of it, where that was.

        ``sums`` are those of its terms, where they are known.
        """
        names = list(names)
        # What both know is of the table; the population's own variance comes after.
        known = None if measured is None else measured(self._law(names[0] or ""), 0.0)
        sampling = self._source.sampling(target if known is None else "table")
        _ = self._source.sampling(target)
        used = list(dict.fromkeys(name for name in names if name is not None))
        columns = {name: self._source.column(name) for name in used}
        if sums is None:
            sums = surrogates.product_sums(statistic.terms, columns, self._source.codes(used), self.plan.groups)
        weight = self._source.weight
        values, covariance = surrogates.delta_method(sums, lambda m, n: [statistic.function(m, n)], sampling, weight)
        value, variance = float(values[0]), float(covariance[0, 0])
        if variance <= 0 and statistic.kind == "instant" and self.n:
            # A handful of rows can leave a mean no variance: that of a uniform type stands in.
            column = columns[used[0]]
            typical, _ = mean_errors(column.space, column.mechanism, None, self.n, sampling)
            variance = (typical / statistic.scale) ** 2
        if not np.isfinite(value) or not variance > 0:
            # ... and other statistics leave unknown.
            value, variance = (value if np.isfinite(value) else math.nan), math.inf
        point, spread = value * statistic.scale + statistic.shift, variance * statistic.scale**2
        source = "rows"
        if known is not None and measured is not None:
            more = measured(self._law(names[0] or ""), 1.0) if target == "population" else None
            own = 0.0 if more is None else max(more[1] - known[1], 0.0)
            source = "both" if self.n and math.isfinite(spread) and math.isfinite(point) else "tables"
            if source == "both":
                fact = Observation(np.eye(1), np.array([known[0]]), np.array([known[1]]))
                both = updated(np.array([point]), np.array([[spread]]), fact)
                known = float(both[0][0]), float(both[1][0, 0])
            point, spread = known[0], known[1] + own
        results = self._results(np.array([point]), np.array([spread]))
        tails = self._tails(used[0])
        if beyond is not None and tails is not None:
            results = self._opened(results, beyond(tails))
        out = self._dressed_series(results, used[0], statistic.kind, title)
        out.attrs |= {"source": source} | self._said_of_tails(used)
        return out

    def _dressed_series(self, results: Mapping[str, FloatArray], column: str, kind: str, title: str) -> pd.Series[Any]:
        dressed = self._dressed(results, column, kind)
        # By way of a Series, so that times are pandas' own scalars.
        return pd.Series({name: pd.Series(values).iloc[0] for name, values in dressed.items()}, name=title)

    def _dressed(self, results: Mapping[str, FloatArray], column: str, kind: str = "instant") -> dict[str, Any]:
        """Return results in the column's own units: of times, instants (in its zone) and durations."""
        space, zone = self._source.column(column).space, self._source.zone(column)
        if not space.is_time or kind == "number":
            return dict(results)
        out: dict[str, Any] = {}
        for name, values in results.items():
            instant = kind == "instant" and name != "std_error"
            out[name] = space.instants(values) if instant else space.durations(values)
            if instant and zone is not None:
                out[name] = pd.DatetimeIndex(out[name], tz="UTC").tz_convert(zone)
        return out

    def _weight(self, weights: str | None, column: str) -> moments.Scale | None:
        if weights == column:
            raise ParameterError("a column cannot be weighted by itself; var and mean give its second moment")
        return None if weights is None else moments.Scale.of(self._source.column(weights))

    def _matrix(
        self,
        columns: Sequence[str] | None,
        terms: Callable[[moments.Scale, moments.Scale], Sequence[surrogates.Term]],
        pair: Callable[[moments.Scale, moments.Scale, surrogates.Sums | None], Any],
        target: str,
    ) -> pd.DataFrame:
        """Evaluate a statistic of every two columns, and show it as pandas shows a matrix.

        ``pair`` gets the sums of the ``terms`` of two columns, and of a column with itself None.
        """
        self._source.sampling(target)  # an unknown target is refused whatever the columns
        names = self._numeric() if columns is None else column_names(columns, "columns")
        scales = {name: moments.Scale.of(self._source.column(name)) for name in names}
        values = {result: np.full((len(names), len(names)), np.nan) for result in RESULTS}
        missing = {one.column: f"not found: {one.why}" for one in self.plan.not_found if one.column in names}
        shown = [(i, name) for i, name in enumerate(names) if self.clipped or name not in missing]
        pairs = {(a, b) for (_, a), (_, b) in combinations(shown, 2) if a != b}
        sums = self._sums_of_pairs({(a, b): terms(scales[a], scales[b]) for a, b in sorted(pairs)})
        for (i, a), (j, b) in combinations_with_replacement(shown, 2):
            found = pair(scales[a], scales[b], sums.get((a, b)))
            for result, table in values.items():
                table[i, j] = table[j, i] = found[result]
        tables = {result: pd.DataFrame(table, index=names, columns=names) for result, table in values.items()}
        out = pd.concat(tables, axis=1)
        measured = any(self._joints.tables.law(name) is not None for name in names)
        out.attrs |= {"source": "both" if measured else "rows"} | self._said_of_tails(names)
        if missing:
            out.attrs[NOT_FOUND] = missing
        self._warn_of_tails(names)
        return out

    def _warn_of_tails(self, names: Iterable[str]) -> None:
        for name in names:
            tails = self._tails(name)
            if tails is not None and tails.matter:
                warn(
                    f"variances and correlations of column {name!r} are of values clipped to the bounds that inference "
                    f"found, and about {100 * tails.share:.2g} % of the rows seem to lie beyond; declare "
                    f"spaces={{{name!r}: (LOWER, UPPER)}} in the next release where tails matter",
                    InferenceWarning,
                )

    def _sums_of_pairs(
        self, wanted: Mapping[tuple[str, str], Sequence[surrogates.Term]]
    ) -> dict[tuple[str, str], surrogates.Sums]:
        """Return the sums of terms of pairs of columns; in one pass but for pairs whose noise is in one block."""
        together = {pair for group in self.plan.groups for pair in permutations(group.names, 2)}
        apart = {pair: terms for pair, terms in wanted.items() if pair not in together}
        columns = {name: self._source.column(name) for pair in wanted for name in pair}
        used = list(dict.fromkeys(name for pair in apart for name in pair))
        found = surrogates.pair_sums(list(apart.values()), columns, self._source.codes(used)) if apart else []
        sums = dict(zip(apart, found, strict=True))
        for pair in [pair for pair in wanted if pair in together]:
            own = {name: columns[name] for name in pair}
            sums[pair] = surrogates.product_sums(wanted[pair], own, self._source.codes(list(pair)), self.plan.groups)
        return sums

    def _numeric(self) -> list[str]:
        return [c.name for c in self.plan.columns if c.name not in self._source.missing and c.space.is_numeric]

    def _wide(
        self, estimate: FloatArray, variance: FloatArray, kept: tuple[slice, ...], rows: Any, columns: Any
    ) -> pd.DataFrame:
        """Return results as a cross table, their names an outer level of its columns."""
        results = self._results(estimate, variance, kept)
        return pd.concat({k: pd.DataFrame(v, rows, columns) for k, v in results.items()}, axis=1, names=[None])

    def _results(
        self, estimate: FloatArray, variance: FloatArray, kept: tuple[slice, ...] = (), least: float | None = None
    ) -> dict[str, FloatArray]:
        point, error = estimate[kept], np.sqrt(np.maximum(variance[kept], 0.0))
        lower, upper = point - self._z * error, point + self._z * error
        if least is not None:
            lower = np.maximum(lower, least)
        return dict(zip(RESULTS, (point, error, lower, upper), strict=True))

    def _tails(self, column: str) -> Tails | None:
        """Return what lies beyond a column's bounds, where inference found them."""
        if any(column == missing.column for missing in self.plan.not_found):
            return None
        return tails_of(self.plan.inferred, column, self._source.column(column).space, self.plan.n or self.rows)

    def _is_open(self, column: str) -> bool:
        """Tell whether rows may lie beyond a column's bounds: inference found them, or found none."""
        missing = any(column == one.column for one in self.plan.not_found)
        return missing or self._tails(column) is not None

    def _opened(
        self, results: dict[str, FloatArray], ends: tuple[tuple[Any, Any], tuple[Any, Any]], unit: Any = 1.0
    ) -> dict[str, FloatArray]:
        """Return results whose intervals hold what lies beyond a column's bounds, too, in some unit."""
        z, point, own = self._z, results["estimate"], results["std_error"]
        below, above = (excess * unit + z * np.hypot(own, error * unit) for excess, error in ends)
        low, high = np.minimum(results["lower"], point - below), np.maximum(results["upper"], point + above)
        with np.errstate(invalid="ignore"):
            error = np.maximum(own, np.maximum(high - point, point - low) / z)
        return results | {"std_error": error, "lower": low, "upper": high}

    def _opened_bins(
        self, results: dict[str, FloatArray], column: str, unit: FloatArray | float = 1.0
    ) -> dict[str, FloatArray]:
        """Return numbers of rows by bin of a column, in some unit: the outermost hold rows from beyond the bounds."""
        tails = self._tails(column)
        if tails is None:
            return results
        return self._opened(results, (tails.of_bins(len(results["estimate"])), (0.0, 0.0)), unit)

    def _said_of_tails(self, columns: Iterable[str]) -> dict[str, Any]:
        """Return what a result's attrs say of rows that seem to lie beyond bounds that inference found."""
        tails = {name: self._tails(name) for name in columns}
        shares = {name: found.share for name, found in tails.items() if found is not None and found.share > 0}
        return {BEYOND_BOUNDS: shares} if shares else {}


def kept_parts(axes: Sequence[Axis], dropna: bool) -> tuple[slice, ...]:
    """Return the cells of each axis that are shown: all, or all but null."""
    return tuple(slice(0, axis.cells - (dropna and axis.has_null)) for axis in axes)


def column_names(value: str | Sequence[str], name: str) -> list[str]:
    """Return column names as a list; one name is a list of one."""
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else None
    if names is None or not all(isinstance(n, str) for n in names):
        raise ParameterError(f"{name} must be a column name or a list of them")
    return names
