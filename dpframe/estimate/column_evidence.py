"""Single columns: their rows, and the noisy counts that private inference measured of them.

The rows' unbiased estimate of a column's cells has a known covariance, and measured counts are independent of it: both
are combined by generalised least squares (`observe`), or maximum likelihood takes both (`RowsLaw`).

Counts of items are excluded: inference samples a row's items by another choice than the release does. Counts of times
are excluded, too: a plan does not state their unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np

from dpframe.errors import AlteredReleaseWarning, warn
from dpframe.estimate.axes import Axis, BinnedAxis
from dpframe.estimate.evidence.combine import project
from dpframe.estimate.evidence.law import RowsLaw
from dpframe.estimate.results import Question, Results
from dpframe.estimate.surrogates import count_classes
from dpframe.inference.inferred import Inferred, Measured, null_count, word_count
from dpframe.inference.steps import is_on_steps
from dpframe.observe.observation import Observation, p_value, update
from dpframe.observe.significance import DETECTION_SE
from dpframe.plan.threads import one_thread
from dpframe.release.reader import Source
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

MAX_COVARIANCE_CELLS = 1_000
"""Cells up to which covariances are formed; with more cells, only rows count (limit of time)."""

MIN_COUNTS_PROBABILITY = 1e-6
"""Probability of counts given the rows below which they are another table's (tolerance)."""

BEYOND_USE = 1e3
"""Standard error, in numbers of all rows, above which bins are too narrow for the noise, and digits are lost
(tolerance)."""

_MAX_CHECKED_STEPS = 4_096
"""Steps of a real number's grid from which on an edge within a step is ignored (tolerance)."""


CellCount = tuple[FloatArray, float, float, float]
"""A row of the matrix, the count, its variance, and the least reported count."""


def cell_counts_of(axis: Axis, inferred: Inferred, parts: bool = False) -> Observation | None:
    """Return the counts of an axis's cells that inference measured, or None without any.

    Counts between edges within cells are added up to whole cells. With ``parts``, they stay counts of parts of cells.
    """
    if axis.cells > MAX_COVARIANCE_CELLS or axis.name not in inferred.columns:
        return None
    limit = dict(inferred.thresholds).get(axis.name, -math.inf)
    records = [record for record in inferred.measured if record.column == axis.name]
    on_steps = is_on_steps(records, axis.column.space)
    counts = [
        one
        for record in records
        for one in (*_yield_value_counts(record, axis, limit), *_yield_interval_counts(record, axis, parts, on_steps))
    ]
    # If undetected values are released as null, too, no count covers all nulls.
    has_other = getattr(axis.column.space.inner_space, "other", None) is not None
    nulls = null_count(record for record in records if has_other or record.kind != "values")
    words = word_count(records)
    if nulls is not None and words is not None:
        # Words below the threshold are released as null: only special values and null together have a count.
        is_flag = np.repeat([0.0, 1.0], [axis.cells - axis.flag_codes, axis.flag_codes])
        counts += [(is_flag, nulls[0] + words[0], nulls[1] + words[1], -math.inf)] if axis.has_null else []
    elif nulls is not None and axis.has_null:
        # Null became a value only if the mean of its counts exceeded three standard errors.
        counts.append((np.eye(axis.cells)[-1], *nulls, DETECTION_SE * math.sqrt(nulls[1])))
    if not counts:
        return None
    return Observation(*(np.array(part, dtype=np.float64) for part in zip(*counts, strict=True)))


def _yield_value_counts(record: Measured, axis: Axis, limit: float) -> Iterator[CellCount]:
    """Yield the counts of values with a single cell; the cell of all other values has no count."""
    if record.kind != "values":
        return
    space, special = axis.column.space.inner_space, axis.column.space.special_labels
    places: dict[Any, int] = {label: i for i, label in enumerate(special, axis.cells - axis.flag_codes)}
    if not special and axis.grid is None:
        other = getattr(space, "other", None)
        places = {label: i for i, label in enumerate(space.labels()) if label != other}
    for value, count in zip(record.cells, record.counts, strict=False):
        if value in places:
            # Counts are whole, so a smooth law begins half a row below the threshold.
            yield np.eye(axis.cells)[places[value]], count, record.variance, limit - 0.5


def _yield_interval_counts(record: Measured, axis: Axis, parts: bool, on_steps: bool) -> Iterator[CellCount]:
    edges = axis.ends
    cuts = [(i, code) for i, code in _yield_cuts(record, axis.column.space, on_steps) if parts or code in edges[1:-1]]
    if not cuts:
        return
    starts, codes = [0, *(i + 1 for i, _ in cuts), len(record.counts)], [0, *(code for _, code in cuts), edges[-1]]
    # A space without null codes nulls as its fixed point.
    imputed = record.missing if not axis.has_null else None
    null_code = -1 if imputed is None else axis.column.space.inner_space.fixed_point
    for (start, stop), (low, high) in zip(pairwise(starts), pairwise(codes), strict=True):
        (cell_parts,) = axis.overlap([low], [high])
        terms = [*record.counts[start:stop], *([imputed] if imputed is not None and low <= null_code < high else [])]
        yield cell_parts, sum(terms), record.variance * len(terms), -math.inf


def _yield_cuts(record: Measured, space: Space, on_steps: bool) -> Iterator[tuple[int, int]]:
    """Yield the positions of edges that separate the codes of a space, and the first code above each edge.

    An edge separates whole numbers if no code has values on both sides. It separates reals up to a part of a step, and
    exactly if the reals are multiples of their step.
    """
    grid: Any = space.inner_space
    if record.kind != "intervals" or grid.is_time or grid.is_listed or not grid.is_numeric:
        return
    # Truth values have a single step, which no edge can cut.
    coarse = not grid.is_whole and 1 < grid.steps < _MAX_CHECKED_STEPS
    if coarse and not on_steps:
        return
    inner_edges = [(i, edge) for i, edge in enumerate(record.cells) if grid.lower < edge <= grid.upper]
    if not inner_edges:
        return
    if coarse:
        codes = [_first_code(edge, grid) for _, edge in inner_edges]
    else:
        codes = grid.encode(np.array([edge for _, edge in inner_edges])).astype(np.int64).tolist()
    lower_codes = codes
    if grid.is_whole:
        lower_codes = grid.encode(np.array([edge - 1 for _, edge in inner_edges])).astype(np.int64).tolist()
    last = 0
    for (i, _), code, lower in zip(inner_edges, codes, lower_codes, strict=True):
        if code > last and (not grid.is_whole or lower < code):
            last = code
            yield i, code


def _first_code(edge: float, grid: Any) -> int:
    """Return the first code at or above an edge, for values with at most two decimals."""
    place = (edge - float(grid.lower)) / float(grid.step)
    nearest = round(place)
    if abs(place - nearest) > _STEP_TOLERANCE:
        return math.ceil(place)
    # The product has errors of floats; two decimals remove them before the comparison.
    return nearest + int(edge > round(float(grid.lower) + nearest * float(grid.step), 2))


_STEP_TOLERANCE = 1e-6
"""Distance, in steps, above which a number is no multiple of its step (tolerance)."""


def snapped(axis: BinnedAxis, inferred: Inferred) -> BinnedAxis:
    """Move the nearest edges of a grid to the edges of measured counts."""
    edges, used_places = list(axis.edges), {0, 1, len(axis.edges) - 1}
    records = [record for record in inferred.measured if record.column == axis.name]
    on_steps = is_on_steps(records, axis.column.space)
    cuts = {code for record in records for _, code in _yield_cuts(record, axis.column.space, on_steps)}
    for code in sorted(cuts):
        place = int(np.argmin(np.abs(np.array(axis.edges) - code)))
        if place not in used_places:
            edges[place] = code
            used_places.add(place)
    return BinnedAxis(axis.column, tuple(sorted(set(edges))), axis.bounds)


@one_thread
def rows_by_cell(
    axis: Axis, counts: FloatArray, weight: float = 1.0, sampling: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Return the rows' unbiased counts of a column's cells, and their covariance at the fitted shares.

    ``axis`` and ``counts``: the column's cells, and its released rows by class; ``weight`` and ``sampling``: n/m and
    (N−m)/(N−1) if m rows of N were released.
    """
    surrogates, n = axis.surrogates, float(counts.sum())
    estimates = surrogates @ counts
    # With half a row more, no cell is empty for certain.
    shares = project(estimates / n) * n + 0.5
    shares /= shares.sum()
    noise = (surrogates * (axis.channel @ shares)) @ surrogates.T
    # Rows of the table are fixed, with E φφᵀ − diag(p); rows drawn from a population vary, with E φφᵀ − ppᵀ.
    sampling_covariance = (1 - sampling) * np.diag(shares) + sampling * np.outer(shares, shares)
    return estimates * weight, n * weight**2 * (noise - sampling_covariance)


def of_ranks_alone(
    found: Results,
    labels: Sequence[Any],
    measured: Measured,
    rows: float,
    normalize: bool,
    population: bool,
    level: float,
    dropna: bool = True,
) -> Results:
    """Correct estimates by rank for ranks that were merged into them.

    Declared ranks that inference did not detect are released as their neighbours. Rows and tables cannot separate them,
    but the counts of inference can. Its count A of a rank covers no other rank, and u = n − ΣA rows have undetected
    ranks. So the truth lies in [B − u, B] for a count B of rows and tables, and in an interval about A. The result is
    the intersection; by Bonferroni's inequality each interval gets half of the error probability.

    Example: 300 of 1,000 rows have undetected ranks, and are released as "high".
    """
    pair_z, single_z = (NormalDist().inv_cdf(1 - (1 - level) / sides) for sides in (4, 2))
    nulls = 0.0 if measured.missing is None else min(max(float(measured.missing), 0.0), rows)
    total, terms = max(rows - nulls, 1.0), len(measured.cells) + (measured.missing is not None)
    merged_rows = max(total - sum(measured.counts), 0.0) + pair_z * math.sqrt(terms * measured.variance)
    counts, scale = dict(zip(measured.cells, measured.counts, strict=False)), 1.0
    if normalize:
        scale = total if dropna else rows
    count = np.array([counts.get(label, np.nan) for label in labels], dtype=np.float64)
    share = np.clip(count / total, 0.0, 1.0)
    sampling_variance = share * (1 - share) * total if population else 0.0
    centres, half_widths = count / scale, pair_z * np.sqrt(measured.variance + sampling_variance) / scale
    lower = np.maximum(found.estimate - pair_z * found.std_error - merged_rows / scale, centres - half_widths)
    upper = np.minimum(found.estimate + pair_z * found.std_error, centres + half_widths)
    # If the intervals contradict each other, the count of inference wins: it covers only this rank.
    is_contradiction = ~(lower <= upper)
    lower = np.where(is_contradiction, centres - half_widths, lower)
    upper = np.where(is_contradiction, centres + half_widths, upper)
    # Two intervals that hardly meet are no more precise than the better one.
    middle, min_half_widths = (lower + upper) / 2, single_z * np.minimum(found.std_error, half_widths / pair_z)
    lower, upper = np.minimum(lower, middle - min_half_widths), np.maximum(upper, middle + min_half_widths)
    point = np.where((lower < found.estimate) & (found.estimate < upper), found.estimate, (lower + upper) / 2)
    results, is_counted = Results(point, (upper - lower) / (2 * single_z), lower, upper), np.isfinite(count)
    return Results(
        *(np.where(is_counted, a, b) for a, b in zip(results.parts.values(), found.parts.values(), strict=True))
    )


Key = tuple[str, tuple[int, ...]]


def _axis_key(axis: Axis) -> Key:
    return axis.name, axis.grid.edges if axis.grid is not None else ()


class ColumnEvidence:
    """Evidence on single columns: the released rows, and the counts of the plan's inference.

    ``count`` counts released rows by the classes of an axis. If m rows of N were released, ``weight`` is N/m and
    ``sampling`` (N−m)/(N−1). ``inferred`` is None if rows and counts are from different tables.
    """

    def __init__(
        self,
        inferred: Inferred | None,
        count: Callable[[Axis], FloatArray],
        weight: float = 1.0,
        sampling: float = 0.0,
    ) -> None:
        self._inferred, self._count, self._weight, self._sampling = inferred, count, weight, sampling
        self._inconsistent_columns: set[str] = set()
        self._unusable_keys: set[Key] = set()
        self._laws: dict[Key, RowsLaw] = {}

    @classmethod
    def of(cls, source: Source, inferred: Inferred | None = None) -> ColumnEvidence:
        """Return the evidence of a release's rows, and of inference's counts of its table."""
        sampling = source.sampling("table")
        return cls(inferred, lambda axis: count_classes([axis], source.codes([axis.name])), source.weight, sampling)

    def counted(self, axis: Axis, parts: bool = False) -> Observation | None:
        """Return inference's counts of an axis, unless rows contradict them; ``parts`` as in `cell_counts_of`."""
        is_consistent = axis.name not in self._inconsistent_columns and (
            parts or _axis_key(axis) not in self._unusable_keys
        )
        return cell_counts_of(axis, self._inferred, parts) if is_consistent and self._inferred is not None else None

    def ranks(self, column: str) -> Measured | None:
        """Return inference's counts of a column's ranks, or None for other columns."""
        if self._inferred is None or column in self._inconsistent_columns:
            return None
        records = [record for record in self._inferred.measured if record.column == column]
        return records[-1] if records and records[-1].kind == "ranks" and len(records[-1].cells) > 1 else None

    def snapped(self, axis: BinnedAxis) -> BinnedAxis:
        """Move a grid's edges to measured ones."""
        return axis if self._inferred is None else snapped(axis, self._inferred)

    def cells(self, question: Question, tables: Observation | None = None) -> tuple[FloatArray, FloatArray] | None:
        """Return unbiased counts or shares of one axis's cells and their variances, from rows and all counts.

        ``tables``: measured tables' counts of the cells. None is returned if no row was released, if cells are too many
        for a covariance, or if they are too narrow for rows without a fit.
        """
        (axis,) = question.axes
        counts = self._count(axis) if axis.cells <= MAX_COVARIANCE_CELLS and axis.inverts else np.zeros(0)
        if counts.sum() < 1:
            return None
        estimates, covariance = rows_by_cell(axis, counts, self._weight, self._sampling)
        total = float(counts.sum()) * self._weight
        if np.diag(covariance).max() > (BEYOND_USE * total) ** 2:
            self._unusable_keys.add(_axis_key(axis))
            if tables is not None:
                return None
        inferred = self.counted(axis)
        # Only counts of inference may be of another table: they are tested before measured tables enter.
        if inferred is not None:
            combined, _ = update(estimates, covariance, inferred)
            if p_value(estimates, covariance, inferred.linearise(combined)) < MIN_COUNTS_PROBABILITY:
                self._leave_counts_out(axis.name)
                inferred = None
        observations = [facts for facts in (inferred, tables) if facts is not None]
        rows, covariance = update(estimates, covariance, Observation.stack(observations, axis.cells))
        if question.population:
            shares = project(rows / total)
            # The table is a multinomial sample of the population.
            covariance = covariance + total * (np.diag(shares) - np.outer(shares, shares))
        if not question.normalize:
            return rows, np.diag(covariance)
        base = question.inside(rows.shape).astype(np.float64)
        total = float(base @ rows)
        shares = rows / total
        # r = x / b·x has the gradient (1 − r bᵀ) / b·x.
        slope = (np.eye(len(rows)) - np.outer(shares, base)) / total
        return shares, np.einsum("ij,jk,ik->i", slope, covariance, slope)

    def law(self, axis: Axis) -> RowsLaw:
        """Return the law of an axis's cells by maximum likelihood."""
        key, fine = _axis_key(axis), axis.for_fits
        if key not in self._laws:
            counts, inferred = self._count(fine), self.counted(axis)
            rows = float(counts.sum()) * self._weight
            law = RowsLaw.of(fine.channel, counts, inferred if rows else None, rows, axis.ends)
            if law.likely < MIN_COUNTS_PROBABILITY:
                self._leave_counts_out(axis.name)
                law = replace(law, facts=Observation.stack([], axis.cells))
            self._laws[key] = law
        return self._laws[key]

    def _leave_counts_out(self, column: str) -> None:
        # Other columns are read later, and would repeat the warning one by one.
        if not self._inconsistent_columns:
            warn(
                f"inference's counts of column {column!r} contradict its rows: the plan was made from another "
                "table, and such counts of any column are left out; pass use_measured=False",
                AlteredReleaseWarning,
            )
        self._inconsistent_columns.add(column)
