"""Row counts of a number by cell: one estimate from all measured tables, with its covariance.

A statistic f·x, linear in the rows x by cell, has two estimates. One is unbiased. The other uses the nearest row counts
that are not negative. The estimate with the smaller expected error is used. Its error comes from the law of the noise
(the covariance; a parametric bootstrap), never from the sample.

If f varies within a cell, the spread of the rows within the cell adds three errors:

- a Dirichlet process about an even spread (`share_variance`);
- a heap in the part of the cell that f cuts, if no finer table counts its rows;
- a density that rises or falls as its neighbours' do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from dpframe.estimate.evidence.cells import DEFAULT_UNEVENNESS, Tree, tree_of
from dpframe.estimate.evidence.combine import fieller_factor, isotonic, project
from dpframe.estimate.evidence.law import Known, Law, Line, code_at
from dpframe.observe.observation import (
    Observation,
    gain_of,
    remaining_covariance,
    truncated_normal_moments,
    update,
)
from dpframe.observe.quantiles import NORMAL_QUANTILE
from dpframe.observe.significance import DETECTION_SE
from dpframe.plan.threads import one_thread
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray, IntArray

NUMBER_LAW_REPLICATES = 60
"""Replicates of the parametric bootstrap (limit of time)."""

_TABLE_BOOTSTRAP_FACTOR = 1.4
"""Factor of the bootstrap's errors. Its truths come from the estimate, so that shrinkage looks too cheap (tuned; half
and twice it change widths on a census by −33 and 0 %)."""

_PRIOR_SD_PER_ROW = 10.0
"""Prior standard deviation of a cell's rows, in multiples of n, before any count (tolerance)."""

_INTEGRATION_SCALES, _INTEGRATION_POINTS = 40.0, 8_001
"""Half-width of an integral over a truncated normal law, in its scales, and number of points (tolerance)."""

_DENSITY_POWER, _MAX_LENGTH_PER_DISTANCE = 2.0, 8.0
"""Power of the distance from the median by which the prior number of rows beyond falls; and the most lengths of a
stretch per distance of its beginning from the median (tuned; half and twice them change widths on a census:
`_DENSITY_POWER` by 5 and −6 %, `_MAX_LENGTH_PER_DISTANCE` by −2 and 0 %)."""

_MIN_SPLIT_VARIANCE = 0.05
"""Least prior variance of the share of a stretch's rows in one half (tuned; half and twice it change widths on a census
by 7 and −3 %)."""

_RETENTION_TOLERANCE = 0.02
"""Share of a cell's rows by which a retained share is uncertain (tolerance)."""

_MAX_BINNING_FACTOR = 1e3
"""Largest factor by which bins may make a covariance smaller (tolerance)."""

_TOTAL_VARIANCE = 1e-2
"""Variance given to the number of all rows, which is exact (tolerance)."""


@dataclass(frozen=True, eq=False)
class NumberLaw(Law):
    """Row counts by cell and their covariance; the last cells are those of the flag's codes.

    ``rows`` are unbiased. ``uneven``: unevenness of the rows within every cell of values, from 0 to 1, as a sum of
    squared shares. ``part_shares``: share of a cell's codes in each of its counted parts, 0 if every part has one code.
    ``block``: position of the first level's cell that holds every cell. ``total``: the measured sum of the codes.

    After `smooth_tails`, ``follows`` has the derivatives of the rows of every cell (first axis) by all rows before.
    ``hidden`` are the further rows that noise may hide in every cell.
    """

    source = "tables"

    space: Space
    rows: FloatArray
    covariance: FloatArray
    uneven: FloatArray
    part_shares: FloatArray
    n: float
    block: IntArray
    total: Known | None = None
    follows: FloatArray | None = None
    hidden: FloatArray | None = None

    @classmethod
    def of(
        cls, space: Space, n: float, first: Observation, finer: Mapping[int, Observation] = MappingProxyType({})
    ) -> NumberLaw:
        """Return the law of a number from its measured levels.

        ``first``: counts of runs of codes by the one-way that covers the column, special values' and null's
        last. ``finer``: counts by the levels above the first.

        >>> from dpframe.observe.observation import Runs
        >>> from dpframe.spaces import Integer
        >>> counts = Observation(Runs.between(range(5)), np.array([40.0, 30.0, 20.0, 10.0]), np.full(4, 4.0))
        >>> law = NumberLaw.of(Integer(0, 3), 100.0, counts)
        >>> [round(float(value), 1) for value, in law.linear(np.array([[1.0, 1.0, 0.0, 0.0]]))]
        [70.0, 2.0]
        """
        of_values = first.select(slice(len(first) - space.flag_codes))
        tree = tree_of(of_values, finer)
        leaves = sorted(tree.leaves)
        starts = np.array([start for start, *_ in leaves], dtype=np.int64)
        prior, covariance = _make_prior(tree, starts, len(starts) + space.flag_codes, n)
        edges = np.append(starts, space.values)
        flag = np.arange(len(starts), len(prior))
        prior[flag], covariance[flag, flag] = (v[len(of_values) :] for v in (first.values, first.variances))
        low, high, counts, variances = np.array(tree.facts, dtype=np.float64).T
        # A cell whose own parts are more uneven than its level keeps the larger unevenness.
        uneven = np.array([max(tree.unevenness(level), cell_unevenness) for _, _, level, cell_unevenness, _ in leaves])
        part_shares = np.array([share for *_, share in leaves])
        block = np.searchsorted(of_values.runs.starts, starts, side="right") - 1
        law = cls(edges, space, prior, covariance, uneven, part_shares, float(n), block)
        return law._update(Observation(law.overlap(low, high), counts, variances))._condition_on_total()

    @classmethod
    def of_values(cls, space: Space, n: float, counts: FloatArray, variances: FloatArray) -> NumberLaw:
        """Return the law of a listed number from unbiased counts of every value, special values' and null's last.

        >>> from dpframe.spaces import Boolean
        >>> law = NumberLaw.of_values(Boolean(), 100.0, np.array([52.0, 44.0]), np.array([8.0, 8.0]))
        >>> law.rows.round().tolist(), law.covariance.round().tolist()
        ([54.0, 46.0], [[4.0, -4.0], [-4.0, 4.0]])
        """
        values = np.arange(space.values + 1, dtype=np.int64)
        even = np.zeros(space.values)
        law = cls(values, space, counts, np.diag(variances), even, even, float(n), values[:-1])
        return law._condition_on_total()

    @one_thread
    def _update(self, observation: Observation) -> NumberLaw:
        rows, covariance = update(self.rows, self.covariance, observation)
        return replace(self, rows=rows, covariance=covariance)

    def _condition_on_total(self) -> NumberLaw:
        return self._update(Observation(np.ones((1, self.cells)), np.array([self.n]), np.array([_TOTAL_VARIANCE])))

    def condition_on(self, facts: Observation) -> NumberLaw:
        """Condition the law on an observation; cells observed in part add their variance within cells."""
        within_variances = self._within_cell_variances(facts.matrix[:, : self.bins])
        return self._update(replace(facts, variances=facts.variances + within_variances))

    def with_sum(self, total: float, variance: float) -> NumberLaw:
        """Condition the law on the sum of the codes; special values and nulls add nothing."""
        exact = variance + self._within_cell_sum_variance
        facts = Observation(self._pad_null(self.middles[None, :]), np.array([total]), np.array([exact]))
        return replace(self._update(facts), total=(total, variance))

    @one_thread
    def smooth_tails(self, bins: IntArray) -> NumberLaw:
        """Smooth rows below the noise by a Pólya tree with a falling prior density (Lavine 1992).

        The prior share of either half of a stretch follows a density that falls as a power of the distance from the
        median. Its variance is the variance of one row's half times the squared rows of the stretch. The variance
        grows as these rows exceed the noise of the split, so that clear counts stay unchanged. Without smoothing, the
        noise of many nearly empty cells in a far tail would count as rows far away.

        ``bins``: position of the first stretch of each cell of values. Stretches are halved down to single cells.
        """
        ends = np.concatenate([[0], np.flatnonzero(np.diff(bins[: self.bins])) + 1, [self.bins]])
        stretches = list(pairwise(ends.tolist()))
        prior_density = np.concatenate([self._prior_density(low, high) for low, high in stretches])
        rows, covariance = self.rows, self.covariance
        follows = np.eye(self.cells)
        upper_bounds = self._upper_bounds(follows)
        while stretches := [(low, high) for low, high in stretches if high - low > 1]:
            middles = [self._find_split(low, high) for low, high in stretches]
            stretch_masks, half = np.zeros((2, len(stretches), self.cells))
            for i, ((low, high), middle) in enumerate(zip(stretches, middles, strict=True)):
                stretch_masks[i, low:high] = half[i, low:middle] = 1.0
            for (low, high), stretch_bounds in zip(
                stretches, self._upper_bounds(stretch_masks, DETECTION_SE).tolist(), strict=True
            ):
                upper_bounds[low:high] = np.minimum(upper_bounds[low:high], stretch_bounds)
            prior_shares = (half[:, : self.bins] @ prior_density) / (stretch_masks[:, : self.bins] @ prior_density)
            contrasts = half - prior_shares[:, None] * stretch_masks
            stretch_variances, contrast_variances = (
                ((parts @ covariance) * parts).sum(axis=1) for parts in (stretch_masks, contrasts)
            )
            stretch_rows = stretch_masks @ rows
            stretch_errors = np.sqrt(np.maximum(stretch_variances, 1.0))
            lift, remaining_variances = truncated_normal_moments(stretch_rows / stretch_errors)
            mean_squares = (stretch_rows + stretch_errors * lift) ** 2 + stretch_errors**2 * remaining_variances
            prior_variances = (
                mean_squares
                * np.maximum(prior_shares * (1 - prior_shares), _MIN_SPLIT_VARIANCE)
                * (1 + mean_squares / np.maximum(contrast_variances, 1.0))
            )
            gain = gain_of(covariance, contrasts, prior_variances)
            rows, follows = (values - gain @ (contrasts @ values) for values in (rows, follows))
            covariance = remaining_covariance(covariance, gain, contrasts, prior_variances)
            halved = zip(stretches, middles, strict=True)
            stretches = [part for (low, high), middle in halved for part in ((low, middle), (middle, high))]
        return replace(
            self,
            rows=rows,
            covariance=covariance,
            follows=follows,
            hidden=upper_bounds - np.maximum(rows, 0.0),
        )

    def _upper_bounds(self, parts: FloatArray, errors: float = NORMAL_QUANTILE) -> FloatArray:
        """Return upper bounds of the rows in parts of all cells: the counts plus so many standard errors."""
        standard_errors = np.sqrt(np.maximum(((parts @ self.covariance) * parts).sum(axis=1), 0.0))
        return np.asarray(np.clip(parts @ self.rows + errors * standard_errors, 0.0, max(self.n, 0.0)))

    def _prior_density(self, low: int, high: int) -> FloatArray:
        """Return the prior density of a stretch by cell: even if the stretch holds the median."""
        cells, cumulative_rows = slice(low, high), np.cumsum(self.positive[: self.bins])
        median = int(np.searchsorted(cumulative_rows, cumulative_rows[-1] / 2))
        if low <= median < high:
            return self.widths[cells]
        ends = np.abs(self.edges[low : high + 1] - (self.edges[median] + self.edges[median + 1]) / 2)
        min_distance = (ends.max() - ends.min()) / _MAX_LENGTH_PER_DISTANCE
        return np.asarray(np.abs(np.diff((ends + max(min_distance - ends.min(), 0.0)) ** -_DENSITY_POWER)))

    def _find_split(self, low: int, high: int) -> int:
        """Return the cell at which a stretch is split: its start is nearest to the middle code.

        The cell of a bound is split off first: clipping puts rows there, and the prior density does not cover them.
        """
        if high == self.bins and self.widths[-1] == 1:
            return high - 1
        if low == 0 and self.widths[0] == 1:
            return 1
        starts = self.edges[low + 1 : high]
        return low + 1 + int(np.abs(2 * starts - self.edges[low] - self.edges[high]).argmin())

    @property
    def cells(self) -> int:
        """Number of cells, the flag's included."""
        return len(self.rows)

    @cached_property
    def positive(self) -> FloatArray:
        """Row counts by cell that are not negative, nearest to the unbiased ones."""
        return self._project_rows(self.rows)

    @cached_property
    def shares(self) -> FloatArray:
        """Shares of all rows by cell, not negative; see `Law`."""
        return self.positive / max(float(self.positive.sum()), 1e-300)

    def _project_rows(self, rows: FloatArray) -> FloatArray:
        """Project row counts to the nearest ones that are not negative: first blocks, then cells within each block."""
        projected_rows = np.zeros_like(rows)
        values = self.bins
        sums = np.bincount(self.block, rows[:values])
        totals = project(np.append(sums, rows[values:]), self._block_variances, self.n)
        projected_rows[values:] = totals[len(sums) :]
        single = np.bincount(self.block) == 1
        is_single_cell = single[self.block]
        projected_rows[:values][is_single_cell] = totals[self.block[is_single_cell]]
        cell_variances = np.diag(self.covariance)
        for block in np.flatnonzero(~single).tolist():
            block_cells = np.flatnonzero(self.block == block)
            projected_rows[block_cells] = project(rows[block_cells], cell_variances[block_cells], float(totals[block]))
        return projected_rows

    @cached_property
    def _block_variances(self) -> FloatArray:
        values = self.bins
        onto = (np.arange(int(self.block[-1]) + 1)[:, None] == self.block).astype(np.float64)
        inner = self.covariance[:values, :values]
        variances = ((onto @ inner) * onto).sum(axis=1)
        return np.append(variances, np.diag(self.covariance)[values:])

    @cached_property
    def root(self) -> FloatArray:
        """Square root of the covariance, which maps standard noise to the noise of the rows."""
        values, vectors = np.linalg.eigh(self.covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))

    @cached_property
    def replicas(self) -> FloatArray:
        """Projected row counts of bootstrap replicates about the projected estimate, shape (replicas, cells)."""
        generator = np.random.default_rng(0)
        noise = generator.standard_normal((NUMBER_LAW_REPLICATES, len(self.rows))) @ self.root.T
        return np.array([self._project_rows(self.positive + draw) for draw in noise])

    def parts_of(self, parts: FloatArray, sampling: float, z: float) -> FloatArray:
        """Return shares of the rows; see `Law`."""
        estimates, errors = self.linear(np.atleast_2d(parts), sampling >= 1)
        return np.stack([estimates, errors, estimates - z * errors, estimates + z * errors]) / max(self.n, 1)

    def linear(self, parts: FloatArray, population: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return Σ parts·rows and its standard errors, for the table or its population.

        ``parts``: mean weight of each cell's rows, shape (statistics, cells of values or all cells). ``population``:
        whether the statistic describes the population from which the rows were sampled.
        """
        parts = self._pad_null(parts)
        estimates, errors = self._estimate_linear(parts)
        variances = self._within_cell_variances(parts[:, : self.bins])
        if population:
            mean = (parts @ self.positive) / self.n
            variances = variances + np.maximum(parts**2 @ self.positive - self.n * mean**2, 0.0)
        # Smoothing leaves few hidden rows in a cell on average. But people ask for the value with the heap: all of the
        # hidden rows in one code.
        values, is_count = self.bins, ((parts >= 0) & (parts <= 1)).all(axis=1)
        hidden_rows = self._upper_bounds(np.eye(self.cells)) - self.positive if self.hidden is None else self.hidden
        cell_parts = smoothed_parts = np.clip(parts[:, :values], 0.0, 1.0)
        if self.follows is not None:
            # Weight of the rows that smoothing moved out of each cell.
            retained_shares = np.diag(self.follows)[:values]
            smoothed_parts = (
                (parts @ self.follows)[:, :values] - cell_parts * (retained_shares - _RETENTION_TOLERANCE)
            ) / np.maximum(1 - retained_shares + _RETENTION_TOLERANCE, _RETENTION_TOLERANCE)
        heap_shares = np.sqrt(np.minimum(2 * self.uneven, 1.0)) * ((cell_parts > 0) & (cell_parts < 1))
        upper_parts, lower_parts = cell_parts + heap_shares * (1 - cell_parts), cell_parts * (1 - heap_shares)
        heap_errors = (
            np.maximum(hidden_rows[:values], 0.0)
            * np.maximum(upper_parts - smoothed_parts, smoothed_parts - lower_parts)
        ).max(axis=1, initial=0.0)
        return estimates, np.maximum(
            np.hypot(errors, np.sqrt(variances)), np.where(is_count, heap_errors, 0.0) / NORMAL_QUANTILE
        )

    def _within_cell_variances(self, parts: FloatArray) -> FloatArray:
        """Return every statistic's variance from the unknown spread of rows within cut cells."""
        cell_parts = np.clip(parts, 0.0, 1.0)
        cell_rows = self.positive[: self.bins]
        mean_squares = cell_rows**2 + np.diag(self.covariance)[: self.bins]
        is_cut = (cell_parts > 0) & (cell_parts < 1)
        share_variances = share_variance(self.uneven, cell_parts) + is_cut * self.part_shares**2 * share_variance(
            DEFAULT_UNEVENNESS, 0.0
        )
        binomial_factors = cell_parts * (1 - cell_parts)
        return (
            np.where(is_cut, share_variances, 0.0) @ mean_squares
            + binomial_factors @ cell_rows
            + (4 * binomial_factors) ** 2 @ self._half_cell_shifts**2
        )

    @cached_property
    def _half_cell_shifts(self) -> FloatArray:
        """Excess rows of a smooth law in the first half of every cell of values, over an even spread.

        The distribution function of the law is a monotone cubic between the ends of cells. Its slope at an end is the
        harmonic mean of both cells' densities (Fritsch and Butland 1984).
        """
        density = self.positive[: self.bins] / self.widths
        left_density, right_density = density[:-1], density[1:]
        slopes = 2 * left_density * right_density / np.maximum(left_density + right_density, 1e-300)
        slopes = np.concatenate([density[:1], slopes, density[-1:]])
        return np.asarray(np.diff(slopes) * self.widths / 8 * (self.widths > 1))

    def _pad_null(self, parts: FloatArray) -> FloatArray:
        missing = len(self.rows) - parts.shape[1]
        return np.pad(parts, ((0, 0), (0, missing))) if missing else parts

    def _estimate_linear(self, parts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return linear statistics by the estimate with the smaller expected error, and their errors."""
        unbiased, unbiased_variances = parts @ self.rows, ((parts @ self.covariance) * parts).sum(axis=1)
        projected = parts @ self.positive
        replica_errors = self.replicas @ parts.T - projected
        # Clipping at zero adds up over empty cells; the bootstrap estimates this bias.
        projected = projected - replica_errors.mean(axis=0)
        unbiased_errors = np.sqrt(np.maximum(unbiased_variances, 0.0))
        projected_errors = _TABLE_BOOTSTRAP_FACTOR * np.sqrt(np.mean(replica_errors**2, axis=0))
        # With many empty cells, clipping at zero is biased, and both estimates differ by more than noise.
        projected_errors = np.sqrt(
            projected_errors**2 + np.maximum((projected - unbiased) ** 2 - unbiased_variances, 0.0)
        )
        # Next to zero the bootstrap misses rows below the noise.
        hidden_errors = truncated_spread(unbiased, unbiased_errors) * np.clip(
            1 - projected / np.maximum(unbiased_errors, 1e-300), 0.0, 1.0
        )
        projected_errors = np.maximum(projected_errors, np.where((parts >= 0).all(axis=1), hidden_errors, 0.0))
        is_projected_better = projected_errors < unbiased_errors
        return np.where(is_projected_better, projected, unbiased), np.where(
            is_projected_better, projected_errors, unbiased_errors
        )

    @property
    def present(self) -> Known:
        """Rows with a value, neither special nor null, at least one, and the variance of their number."""
        if not self.flag_codes:
            return max(self.n, 1.0), 0.0
        absent, variance = self.rows[self.bins :].sum(), self.covariance[self.bins :, self.bins :].sum()
        return float(np.clip(self.n - absent, 1.0, max(self.n, 1.0))), float(variance)

    @property
    def _value_shares(self) -> FloatArray:
        cell_rows = self.positive[: self.bins]
        return np.asarray(cell_rows / max(float(cell_rows.sum()), 1e-300))

    @cached_property
    def _code_sum(self) -> Known:
        """The sum of codes with the smaller variance: the measured sum, or the estimate from the cells.

        Counts separate few full cells from empty ones, whereas the noise of a sum covers the range of all codes.
        """
        rows, centre = self.present[0], float(self._value_shares @ self.middles)
        centred_codes = (self.middles - centre)[None, :]
        if self.total is None:
            error, within_variance = self.linear(centred_codes)[1], rows**2 * float(self._value_shares @ self.within)
        else:
            error = self._estimate_linear(self._pad_null(centred_codes))[1]
            within_variance = self._within_cell_sum_variance
        cell_estimate = float(self.isotonic_counts @ self.middles), float(error[0]) ** 2 + within_variance
        return cell_estimate if self.total is None or cell_estimate[1] < self.total[1] else self.total

    @property
    def isotonic_counts(self) -> FloatArray:
        """Isotonic row counts of the cells of values: the nearest whose cumulative sums never fall.

        Counts clipped at zero cell by cell put rows into empty cells far out, and raw counts may be negative there.
        Pooled cumulative sums avoid both (Barlow and Brunk 1972).
        """
        rows = self.present[0]
        sums = np.cumsum(self.rows[: self.bins])[:-1]
        return np.diff(np.clip(isotonic(sums), 0.0, rows), prepend=0.0, append=rows)

    @property
    def _within_cell_sum_variance(self) -> float:
        cell_rows = np.maximum(self.rows[: self.bins], 0.0)
        return float((self.uneven * cell_rows**2 + cell_rows) @ self.within)

    def total_known(self, line: Line, sampling: float) -> Known:
        """Return the sum of the numbers and its variance, for the table (``sampling`` 0) or the population (1)."""
        (start, step), (rows, rows_variance), (codes, codes_variance) = line, self.present, self._code_sum
        codes_variance += sampling * rows * self.variance()[0]
        return start * rows + step * codes, step**2 * codes_variance + start**2 * rows_variance

    def mean_known(self, line: Line, sampling: float) -> Known:
        """Return the mean of the numbers, without special values and nulls, and its variance."""
        (start, step), (rows, rows_variance), (codes, codes_variance) = line, self.present, self._code_sum
        mean = codes / rows
        variance = (
            (codes_variance + mean**2 * rows_variance) / rows**2 * float(fieller_factor(rows, rows_variance)) ** 2
        )
        return start + step * mean, step**2 * (variance + sampling * self.variance()[0] / rows)

    def variance_known(self, line: Line, ddof: int, sampling: float) -> Known:
        """Return the variance of the numbers, without special values and nulls, and the variance of this estimate."""
        value, error = self.variance(sampling)
        factor = line[1] ** 2 * self.present[0] / max(self.present[0] - ddof, 1e-300)
        # Of a column without values nothing is known; the square of its error must stay finite.
        return value * factor, min(error * factor, 1e150) ** 2

    @property
    def moments(self) -> tuple[float, float]:
        """Mean of the codes by the non-negative shares, and the variance, which is unbiased about its own mean."""
        return float(self._value_shares @ self.middles), self.variance()[0]

    def variance(self, sampling: float = 0.0) -> tuple[float, float]:
        """Return the variance of the codes and its error, which includes the spread within cells."""
        cell_rows = self.positive[: self.bins]
        rows = max(float(cell_rows.sum()), 1.0)
        projected_mean = float(self._value_shares @ self.middles)
        # Both ratios have an uncertain number of rows as base; its errors cancel in sums of residuals.
        mean_shift, error = (
            float(v[0]) / rows for v in self._estimate_linear(self._pad_null((self.middles - projected_mean)[None, :]))
        )
        centre, mean_variance = projected_mean + mean_shift, error**2
        squares = (self.middles - centre) ** 2 + self.within
        projected_variance = float(self._value_shares @ squares)
        variance_shift, error = (
            float(v[0]) / rows for v in self._estimate_linear(self._pad_null((squares - projected_variance)[None, :]))
        )
        # Rows of a cell may differ from an even spread in their mean and in their variance.
        middle_variances = self.uneven * self.widths**2 / 12
        spread_variances = cell_rows**2 * (
            4 * (self.middles - centre) ** 2 * middle_variances + self.uneven * self.within**2
        )
        error = math.hypot(error, math.sqrt(float(spread_variances.sum())) / rows, mean_variance) * float(
            fieller_factor(rows, self.present[1])
        )
        squared_distances = (self.middles - projected_mean) ** 2
        sampling_variance = (
            sampling
            * float(self._value_shares @ squared_distances**2 - (self._value_shares @ squared_distances) ** 2)
            / rows
        )
        # The spread about an estimated mean lacks that mean's own variance.
        return max(projected_variance + variance_shift + mean_variance, 0.0), math.hypot(
            error, math.sqrt(max(sampling_variance, 0.0))
        )

    def quantiles(self, levels: FloatArray, z: float, sampling: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return quantiles and their intervals; see `Law`."""
        edges, cells = self.edges.astype(np.float64), self.bins
        below = np.tril(np.ones((cells + 1, cells)), -1)
        rows = max(float(self.positive[:cells].sum()), 1.0)
        # At a value of one of the rows a Dirichlet process has a variance of uneven/6 on average.
        shares = (self.uneven + DEFAULT_UNEVENNESS * self.part_shares**2) / 6 * (self.widths > 1)
        cell_rows = self.positive[:cells]
        within_errors = z * np.sqrt(shares * cell_rows**2 + self._half_cell_shifts**2 * 8 / 15) / rows
        # A share q of the present rows lies below a quantile: rows above enter with the opposite sign.
        estimates, lower, upper = [], [], []
        for level in levels.tolist():
            surplus_rows, error = self._estimate_linear(self._pad_null(below * (1 - level) - (1 - below) * level))
            surplus, surplus_errors = rising(surplus_rows / rows), error / rows
            if sampling >= 1:
                surplus_errors = np.hypot(surplus_errors, math.sqrt(level * (1 - level) / rows))
            estimates.append(_find_crossing(edges, surplus, True))
            upper_surplus, lower_surplus = surplus + z * surplus_errors, surplus - z * surplus_errors
            # Both ends of every cell; within it no more rows lie below than at its end, nor fewer than at its start.
            lines, sums, noise = (np.repeat(v, 2)[1:-1] for v in (edges, surplus, z * surplus_errors))
            errors = np.hypot(noise, np.repeat(within_errors, 2))
            upper_surplus = np.minimum(sums + errors, np.repeat(upper_surplus[1:], 2))
            lower_surplus = np.maximum(sums - errors, np.repeat(lower_surplus[:-1], 2))
            lower.append(_find_crossing(lines, np.maximum.accumulate(upper_surplus), True))
            upper.append(_find_crossing(lines, np.maximum.accumulate(lower_surplus), False))
        middle, low, high = (code_at(np.array(ends), self.space.values) for ends in (estimates, lower, upper))
        return middle, np.minimum(low, middle), np.maximum(high, middle)


@dataclass(frozen=True, eq=False)
class NumberPair:
    """Covariance of two numbers from their measured table, which has few bins.

    ``laws``: law of each number. ``bins``: bin of each cell of the laws. ``counts`` and ``variances``: the table's
    cells without nulls.

    A covariance of bin means is too small. Pairing equal ranks of both numbers, or opposite ranks if the covariance is
    negative, is the strongest dependence that the laws allow (Hoeffding 1940). The factor that bins cost there is the
    smallest possible, and raises the covariance. Half of the increase counts as its error.
    """

    laws: tuple[NumberLaw, NumberLaw]
    bins: tuple[IntArray, IntArray]
    counts: FloatArray
    variances: FloatArray

    def moments(
        self, first_step: float, second_step: float, ddof: int, population: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return covariance and both variances, and the variances of these three, in units of steps of the codes."""
        x, y = self._centred_means(0), self._centred_means(1)
        total = max(float(self.counts.sum()), ddof + 1.0)
        mean_products, bin_covariance = np.multiply.outer(x, y), self.between(self.counts)
        factor = self._binning_factor(bin_covariance < 0)
        covariance = bin_covariance * factor
        noise = (
            float((self.variances * mean_products**2).sum())
            + self._mean_noise_variance(0, y)
            + self._mean_noise_variance(1, x)
        )
        noise = noise * (factor / total) ** 2 + ((covariance - bin_covariance) / 2) ** 2
        (first, first_error), (second, second_error) = (law.variance(population) for law in self.laws)
        noise += population * (first * second + covariance**2) / total
        units = np.array([first_step * second_step, first_step**2, second_step**2]) * total / (total - ddof)
        return np.array([covariance, first, second]) * units, np.array(
            [noise, first_error**2, second_error**2]
        ) * units**2

    @property
    def spreads(self) -> tuple[float, float]:
        """Variances of the codes of both numbers by row counts that are not negative, hence above 0."""
        shares = [number[0] for number in self._shares_and_means]
        centred = [(law.middles - s @ law.middles) ** 2 + law.within for law, s in zip(self.laws, shares, strict=True)]
        first_variance, second_variance = (float(s @ squares) for s, squares in zip(shares, centred, strict=True))
        return first_variance, second_variance

    def between(self, counts: FloatArray) -> float:
        """Return the covariance of the means of bins under some counts of the pair."""
        total = max(float(counts.sum()), 1.0)
        means = [number[1] for number in self._shares_and_means]
        first_codes, second_codes = (
            mean - counts.sum(axis=1 - place) @ mean / total for place, mean in enumerate(means)
        )
        return float(first_codes @ counts @ second_codes) / total

    def _centred_means(self, place: int) -> FloatArray:
        """Return the mean code of every bin, centred by the table's counts."""
        means = self._shares_and_means[place][1]
        table_shares = self.counts.sum(axis=1 - place) / max(float(self.counts.sum()), 1.0)
        return np.asarray(means - table_shares @ means)

    @cached_property
    def _shares_and_means(self) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """The shares of the cells of either number, and the mean codes of its bins."""
        numbers = []
        for law, bins in zip(self.laws, self.bins, strict=True):
            # Clipping at zero cell by cell would put the noise of empty cells into every bin's far end.
            shares = law.isotonic_counts + 1e-9 * law.widths
            numbers.append((shares / shares.sum(), np.bincount(bins, shares * law.middles) / np.bincount(bins, shares)))
        return tuple(numbers)

    def _mean_noise_variance(self, place: int, other_means: FloatArray) -> float:
        """Return the variance that noise of one number's bin means adds to the sum of products."""
        law, bins, means = self.laws[place], self.bins[place], self._shares_and_means[place][1]
        products = self.counts @ other_means if place == 0 else other_means @ self.counts
        rows = np.maximum(np.bincount(bins, law.isotonic_counts), 1.0)
        code_weights = (products / rows)[bins] * (law.middles - means[bins])
        return float(law._estimate_linear(law._pad_null(code_weights[None, :]))[1][0]) ** 2

    def _binning_factor(self, is_negative: bool) -> float:
        """Return the factor by which bins reduce the covariance of equal ranks, or of opposite ranks."""
        sums, values = [], []
        for law, bins, (shares, means), direction in zip(
            self.laws, self.bins, self._shares_and_means, (1, -1 if is_negative else 1), strict=True
        ):
            sums.append(np.cumsum(shares[::direction])[:-1])
            values.append(np.array([law.middles, means[bins]])[:, ::direction])
        cuts = np.sort(np.concatenate([[0.0, 1.0], *sums]))
        shares, ranks = np.diff(cuts), (cuts[1:] + cuts[:-1]) / 2
        x, y = (v[:, np.searchsorted(ends, ranks)] for v, ends in zip(values, sums, strict=True))
        fine, coarse = ((x - (x @ shares)[:, None]) * (y - (y @ shares)[:, None])) @ shares
        return min(float(fine / coarse), _MAX_BINNING_FACTOR) if fine * coarse > 0 else 1.0


def share_variance(uneven: FloatArray | float, below: FloatArray | float) -> FloatArray:
    """Return the mean squared error of ``below`` as the share of a cell's rows on one side of one of its rows' values.

    ``below`` is this side's part of the codes. The rows follow a Dirichlet process about an even spread (Ferguson
    1973), with the sum ``uneven`` of squared shares. The row's value has a share V by Beta(1, 1/uneven − 1), with
    E V² = 2·uneven²/(1 + uneven). The other rows have the weight 1 − V, with E(1 − V)² = (1 − uneven)/(1 + uneven), and
    their share on the side has the variance uneven·below·(1 − below). V lies on either side: the larger error counts.

    >>> share_variance(np.array([0.0, 0.5, 1.0]), 0.5).round(3).tolist()
    [0.0, 0.125, 0.25]
    """
    worst_value_term = 2 * uneven * np.maximum(below, 1 - below) ** 2
    return np.asarray(uneven / (1 + uneven) * ((1 - uneven) * below * (1 - below) + worst_value_term))


def rising(heights: FloatArray) -> FloatArray:
    """Return heights that never fall: the mean of the running maximum and the reverse running minimum."""
    return np.asarray((np.maximum.accumulate(heights) + np.minimum.accumulate(heights[::-1])[::-1]) / 2)


def _find_crossing(edges: FloatArray, heights: FloatArray, includes_zero: bool) -> float:
    """Return the place at which a rising function first reaches zero, or first exceeds zero; linear between edges."""
    above = np.flatnonzero(heights >= 0) if includes_zero else np.flatnonzero(heights > 0)
    if not len(above):
        return float(edges[-1])
    place = int(above[0])
    if place == 0:
        return float(edges[0])
    height_before, height_after = float(heights[place - 1]), float(heights[place])
    part = -height_before / max(height_after - height_before, 1e-300)
    return float(edges[place - 1] + part * (edges[place] - edges[place - 1]))


def truncated_spread(estimate: FloatArray, error: FloatArray) -> FloatArray:
    """Return the standard deviation of a normal law about an estimate, truncated at zero."""
    _, remaining_variance = truncated_normal_moments(estimate / np.maximum(error, 1e-300))
    return np.asarray(error * np.sqrt(remaining_variance))


def truncated_root(square: float, error: float, most: float) -> float:
    """Return the posterior mean of a root x, given an unbiased estimate of x² from 0 to ``most`` and a prior ∝ √x.

    With a flat prior of x, the mean errs by a fifth more at a square of two errors. With a flat prior of x², it errs by
    a third more at squares below the error.
    """
    nearest = min(max(square, 0.0), most)
    if not (math.isfinite(square) and math.isfinite(error)) or min(error, most) <= 0:
        return math.sqrt(nearest)
    # A far tail falls like an exponential law of this scale.
    scale = error / max(abs(square - nearest) / error, 1.0)
    ends = max(0.0, nearest - _INTEGRATION_SCALES * scale), min(most, nearest + _INTEGRATION_SCALES * scale)
    x = np.linspace(math.sqrt(ends[0]), math.sqrt(ends[1]), _INTEGRATION_POINTS)
    weights = np.sqrt(x) * np.exp(-((x**2 - nearest) * (x**2 + nearest - 2 * square)) / (2 * error**2))
    weights[[0, -1]] /= 2
    return float(weights @ x / weights.sum())


def _make_prior(tree: Tree, starts: IntArray, cells: int, n: float) -> tuple[FloatArray, FloatArray]:
    """Return the prior mean and covariance of the rows of cells, which are diffuse outside of divided cells.

    The stretches of a divided cell share its light rows, those outside heavy parts, by width, up to the level's
    unevenness. Only their total is diffuse.
    """
    prior, diffuse = np.zeros(cells), (_PRIOR_SD_PER_ROW * max(n, 1.0)) ** 2
    covariance = np.diag(np.full(cells, diffuse))
    for stretches in tree.stretches:
        places = np.searchsorted(starts, stretches.starts)
        widths = np.array(stretches.stops, dtype=np.float64) - np.array(stretches.starts)
        even = widths / widths.sum()
        share_covariance = np.diag(even) - np.outer(even, even)
        uneven = tree.unevenness(stretches.level)
        prior[places] = even * stretches.rest
        covariance[np.ix_(places, places)] = (
            diffuse * np.outer(even, even) + uneven * stretches.rest**2 * share_covariance
        )
    return prior, covariance
