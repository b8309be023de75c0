"""Posterior draws of the original table given its release, for intervals of joints, conditions, groups and moments.

One draw perturbs the evidence once, y* = y + σz. The mixture is refitted to y*, and each column's distribution is
drawn. Each pair's distribution is the refitted one, tilted (`dpframe.estimate.discrepancy`); the table's cells are
drawn about it. Draws are made once, of the requested columns only. The release's digest seeds their generators: a
release gives one answer, whatever was asked before.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from dpframe.estimate.discrepancy import (
    DEGREES,
    DRAWN_MARGIN_SWEEPS,
    LOG_ODDS_LIMIT,
    Discrepancy,
    gamma_about,
    rank_basis,
    to_margins,
)
from dpframe.estimate.evidence.combine import isotonic, project
from dpframe.estimate.evidence.law import RowsLaw
from dpframe.estimate.model import Model, Models
from dpframe.estimate.table_column import moved_by_slopes
from dpframe.estimate.tables.fit import Steps, TableFit, fit_pairs, fit_to_margins
from dpframe.estimate.tables.guard import interaction_variance
from dpframe.estimate.tables.mixture import Mixture, mean_mixture, refit_mixtures
from dpframe.estimate.tables.tables import Evidence
from dpframe.observe.noisy_counts import NoisyCounts, pool, pool_one_ways
from dpframe.spaces.arrays import FloatArray

TABLE_DRAWS = 40
"""Number of draws of a table (limit of time); the relative error of their variance is a fifth."""

REFITTED_STARTS = 2
"""Number of the fit's starts that are refitted to each copy (limit of time); their mean has less noise than one."""

PSEUDO_ROWS = 0.05
"""Number of rows added to a cell before logarithms or ratios of counts (tolerance)."""

MOST_MOVE = 3.0
"""Largest absolute log ratio between a refitted and the fitted cell (tolerance)."""

INDEPENDENT_SHARE, TOGETHER_SHARE = 0.5, 0.2
"""Prior probabilities for a cell below the noise: it has the count of independent columns instead of the fitted one,
or a uniform share of a value's rows (tuned; effect below).

On pairs of seven tables of 3,000 rows at ε = 1: with .4 and .05, coverage falls from .981 to .976, and three times as
many cells lie beyond five errors; with .5 and .3 intervals are 1 % wider.
"""

HIDDEN_LOG_SD = 1.0
"""Standard deviation of the log factor between a cell below the noise and its count under independence (tuned; with .7
more cells of rare values lie beyond five errors)."""

WITHIN_BIN_LOG_ODDS_SD = 0.2
"""Scale of the log odds between parts of a bin, by cell of the other columns, if neighbouring bins do not differ (tuned
on counts of two conditions of nine tables at ε = 1: with .5 coverage falls from .991 to .986, and intervals are a tenth
wider)."""

WITHIN_BIN_SLOPE_SD = 0.5
"""Relative error of the rows that a density's slope moves within bins, because densities are not linear (tuned; halving
and doubling change widths on a census by 2 and −3 %)."""

INTERACTION_LOG_ODDS_SD = 0.26
"""Prior scale of an unmeasured three-way interaction: log odds along the ranks of one column, by cell of two others
(tuned; halving and doubling change widths on a census by −1 and 5 %).

About .16 standard deviations of a mean after the shifts of a key's cells are centred; see `INTERACTION_MEAN_SD`.
"""


@dataclass(frozen=True, eq=False)
class GroupDraws:
    """Draws of a number's means by group, less the mean of all rows, shape (draws, groups …), in codes.

    ``lower`` and ``upper`` are the least and the largest mean that a group's number of rows can have in any draw, shape
    (groups …); see `mean_bounds`. ``sd`` is the number's standard deviation.
    """

    means: FloatArray
    lower: FloatArray
    upper: FloatArray
    sd: float


class Posterior:
    """Posterior draws of one release, cached by columns."""

    def __init__(self, models: Models, digest: str) -> None:
        self._models, self._digest = models, digest
        self._draws_by_columns: dict[tuple[type[TableDraws], tuple[str, ...]], TableDraws] = {}

    def conditioned(self, names: Sequence[str]) -> TableDraws:
        """Return draws of some columns given their counts, for statistics of the draws themselves."""
        return self.of(names, ConditionedDraws)

    def of(self, names: Sequence[str], kind: type[TableDraws] | None = None) -> TableDraws:
        """Return draws of some columns, by default about the fit, for intervals around an estimate."""
        kind = TableDraws if kind is None else kind
        # Names in the plan's order, so that the order of a question changes neither the cache key nor the seed.
        key = tuple(name for name in self._models.order if name in names)
        if (kind, key) not in self._draws_by_columns:
            self._draws_by_columns[kind, key] = kind(self._models.around(key), key, self._digest)
        return self._draws_by_columns[kind, key]


class TableDraws:
    """Draws of cell counts of some columns: of each column, of each pair, and of all columns together."""

    def __init__(self, model: Model, names: Sequence[str], digest: str) -> None:
        self.model, self.names, self._digest = model, list(names), digest
        self.rows = float(model.evidence.n)
        self.columns = [model.columns[name] for name in names]
        places = model.places(names)
        mixture = model.fit.mixture
        self.each = min(mixture.fits, REFITTED_STARTS)
        # The starts of one copy are consecutive, so that a slice of refits belongs to one draw.
        starts = [mixture.fit(start % mixture.fits) for start in range(TABLE_DRAWS * self.each)]
        self.starts = [Mixture(one.weights, tuple(one.laws[place] for place in places)) for one in starts]
        self.evidence = among(model.evidence, places)
        generator = self.generator("copies")
        self.copies = [self.evidence.replicate(generator) for _ in range(TABLE_DRAWS)]
        self.mixtures = refit_mixtures(self.evidence, self.copies, self.starts)

    @cached_property
    def noise(self) -> float:
        """Standard error of a cell of the columns' measured pairs, in rows; about √n if no pair was measured."""
        tables = self.evidence.pairs.values()
        return math.sqrt(np.mean([table.variances.mean() for table in tables]) if tables else self.rows)

    def generator(self, *purpose: Any) -> np.random.Generator:
        """Return a separate generator for each purpose, so that the order of questions changes no answer."""
        # Python's own hash of text differs between processes.
        words = hashlib.sha256("\0".join([self._digest, *self.names, *map(str, purpose)]).encode()).digest()
        return np.random.default_rng(int.from_bytes(words[:16], "big"))

    @cached_property
    def fine(self) -> dict[str, FloatArray]:
        """Shares of the fine cells of each number with a fitted distribution, null last, shape (draws, cells).

        Draws are of the law's posterior, which smooths tails below the noise: the noise of many nearly empty cells
        would put rows far away.
        """
        shares_by_column = {}
        for name, column in zip(self.names, self.columns, strict=True):
            law = self.model.tables.law(name) if column.law is not None else None
            if law is not None:
                noise = self.generator("law", name).standard_normal((TABLE_DRAWS, len(law.rows))) @ law.root.T
                shares_by_column[name] = np.array(
                    [_monotone_shares(rows, law.bins, self.rows) for rows in law.rows + noise]
                )
        return shares_by_column

    @cached_property
    def singles(self) -> list[FloatArray]:
        """Shares of the fit's cells of each column, shape (draws, cells).

        Noise is added to the fitted counts, which are not negative. Draws about a negative count would have no rows.
        """
        shares = []
        for place, (name, column) in enumerate(zip(self.names, self.columns, strict=True)):
            count_table = self.evidence.known([place])
            if name in self.fine:
                shares.append(self.fine[name] @ column.merge.T)
            elif count_table is None:
                shares.append(np.array([copy.one_ways[place] for copy in self.copies]))
            else:
                fitted = self.rows * self.evidence.one_ways[place]
                noise = [
                    self.evidence.at_total(place, pool(copy.seen([place])).counts - count_table.counts, 0.0)
                    for copy in self.copies
                ]
                shares.append(np.array([project((fitted + cell_noise) / self.rows) for cell_noise in noise]))
        return shares

    @cached_property
    def pairs(self) -> dict[tuple[int, ...], FloatArray]:
        """Counts of the cells of each pair, shape (draws, cells of each column)."""
        return {pair: self._draw_pair(pair) for pair in combinations(range(len(self.names)), 2)}

    def _move_fit(self, places: Sequence[int]) -> FloatArray:
        """Return fitted shares times the relative moves of refits to the copies, shape (draws, cells …).

        A move is the ratio of a refit to its own start, because the starts' distances from their mean are no noise.
        The mean log move of all refits is subtracted: it only shows that a refit takes further steps.
        """
        all_places, steps = self.model.places([self.names[place] for place in places]), self.model.fit.steps
        steps_of_columns = Steps({tuple(sorted(places)): steps.odds(all_places)}, steps.common, steps.larger)
        fitted, min_share = self.model.fit.joint(all_places), PSEUDO_ROWS / self.rows

        def joints(evidence: Sequence[Evidence], mixtures: Sequence[Mixture]) -> FloatArray:
            groups = [mixtures[draw * self.each : (draw + 1) * self.each] for draw in range(TABLE_DRAWS)]
            fits = [
                TableFit(copy_evidence, mean_mixture(group), steps_of_columns)
                for copy_evidence, group in zip(evidence, groups, strict=True)
            ]
            if len(places) > 2:
                return np.array([fit.mixture.joint(places) for fit in fits])
            pair = places[0], places[1]
            return np.array(
                [fit.step_to_simple(pair, *shares) for fit, shares in zip(fits, fit_pairs(fits, [pair]), strict=True)]
            )

        refits, starts = joints(self.copies, self.mixtures), joints([self.evidence] * TABLE_DRAWS, self.starts)
        moves = np.log((refits + min_share) / (starts + min_share))
        moves = np.clip(moves - moves.mean(axis=0), -MOST_MOVE, MOST_MOVE)
        return np.asarray(fitted * np.exp(moves))

    def make_discrepancy(self, pair: tuple[int, int], count_table: NoisyCounts | None) -> Discrepancy:
        """Return the prior of a pair's distribution about the fit, for the pair's table or None."""
        ordered = [self.columns[place].ordered_cells for place in pair]
        joint = self.model.fit.joint([self.model.names.index(self.names[place]) for place in pair])
        noise = np.full(joint.shape, np.inf) if count_table is None else count_table.variances
        return Discrepancy(joint, self.rows, noise, ordered, () if count_table is None else count_table.channels)

    def _draw_fit(self, pair: tuple[int, int]) -> tuple[FloatArray, list[FloatArray]]:
        """Return draws of the fit's counts of a pair, and draws of both columns' own counts."""
        margins = [self.singles[place] * self.rows for place in pair]
        independent = np.einsum("ka,kb->kab", *margins) / self.rows
        # A column's own draw may have rows in a cell that the fit leaves empty: one row in all is spread independently.
        return np.maximum(self._move_fit(pair) * self.rows, independent / self.rows), margins

    def _draw_pair(self, pair: tuple[int, int]) -> FloatArray:
        """Return draws of the counts of a pair, with the margins of both columns' draws."""
        # The measured table of the pair, or its table from rows.
        count_table = (self.evidence.row_pairs | self.evidence.pairs).get(pair)
        prior, generator = self.make_discrepancy(pair, count_table), self.generator("pair", pair)
        fitted, margins = self._draw_fit(pair)
        noise_shares = np.zeros(fitted.shape[1:])
        if count_table is not None and not count_table.channels:
            copy_counts = np.array([copy.pairs[pair].counts for copy in self.copies])
            noise_shares = followed_noise(to_margins(fitted, margins), copy_counts)
            fitted = self._mix_hidden_cells(fitted, margins, count_table, generator)
        laws = to_margins(prior.draw_laws(fitted, generator), margins)
        return to_margins(prior.draw_tables(laws, noise_shares, generator), margins)

    def _mix_hidden_cells(
        self,
        fitted: FloatArray,
        margins: Sequence[FloatArray],
        count_table: NoisyCounts,
        generator: np.random.Generator,
    ) -> FloatArray:
        """Return draws of a fit's counts in which cells below the noise may have other counts than the fitted ones.

        A fit follows the noise of such cells, and may leave a cell empty that has rows. The prior is a mixture: the
        fitted count, the count of independent columns times a random factor, or a uniform share of a value's rows. The
        measured count gives the posterior weights.
        """
        independent = np.einsum("ka,kb->kab", *margins) / self.rows
        max_counts = np.minimum(margins[0][:, :, None], margins[1][:, None, :])
        factor = np.exp(HIDDEN_LOG_SD * generator.standard_normal(fitted.shape))
        alternatives = [independent * factor, max_counts * generator.random(fitted.shape)]
        hidden_weights = count_table.variances / (count_table.variances + independent**2)
        prior_shares = INDEPENDENT_SHARE * hidden_weights, TOGETHER_SHARE * hidden_weights
        prior_probabilities = np.stack([1 - sum(prior_shares), *prior_shares])
        values = np.stack([fitted, *alternatives])
        squared_residuals = (count_table.counts - values) ** 2 / count_table.variances
        # The least residual is subtracted, so that one weight does not underflow and the sum is not 0.
        posterior_weights = prior_probabilities * np.exp(-(squared_residuals - squared_residuals.min(axis=0)) / 2)
        cumulative_shares = np.cumsum(posterior_weights / posterior_weights.sum(axis=0), axis=0)
        choices = (generator.random(fitted.shape) > cumulative_shares[:-1]).sum(axis=0)
        return np.asarray(np.take_along_axis(values, choices[None], axis=0)[0])

    @cached_property
    def tables(self) -> dict[tuple[int, ...], FloatArray]:
        """Counts of each pair, and of each larger measured table of these columns, shape (draws, cells …)."""
        tables = dict(self.pairs)
        for columns in {tuple(sorted(table.columns)) for table in self.evidence.measured if len(table.columns) > 2}:
            count_tables = [pool(evidence.seen(columns)) for evidence in (self.evidence, *self.copies)]
            counts, noise_variances = np.array([table.counts for table in count_tables[1:]]), count_tables[0].variances
            joint_draws = np.array([self._draw_joint(columns, draw) for draw in range(TABLE_DRAWS)])
            prior_variances = np.array(
                [interaction_variance(joint, 3, INTERACTION_LOG_ODDS_SD) for joint in joint_draws]
            )
            # Matheron's rule: a prior draw plus the gain times its residual from perturbed counts is a posterior draw.
            tables[columns] = np.maximum(
                joint_draws + prior_variances / (prior_variances + noise_variances) * (counts - joint_draws), 0.0
            )
        return tables

    @cached_property
    def _laws_by_columns(self) -> dict[tuple[int, ...], FloatArray]:
        return {}

    def _draw_joint(self, places: tuple[int, ...], draw: int) -> FloatArray:
        """Return one draw of the joint counts of three columns or more, given draws of their pairs.

        Three columns may interact: the distribution of an ordered column shifts along its ranks in each cell of two
        others, by a Student variable with three degrees of freedom. The table's cells have sampling noise about the
        distribution. The margins of pairs stay.
        """
        generator = self.generator("joint", places, draw)
        if places not in self._laws_by_columns:
            self._laws_by_columns[places] = self._move_fit(places)
        law = self._laws_by_columns[places][draw] * self.rows + PSEUDO_ROWS
        pairs: dict[tuple[int, ...], FloatArray] = {
            pair: self.pairs[places[pair[0]], places[pair[1]]][draw] for pair in combinations(range(len(places)), 2)
        }
        # One sweep is enough here: full sweeps follow the tilt.
        law = fit_to_margins(law, pairs, 1)
        for triple in combinations(range(len(places)), 3):
            shifted_place = self.shifted_column([places[at] for at in triple])
            if shifted_place is not None:
                place = places.index(shifted_place)
                other_axes = tuple(at for at in range(law.ndim) if at != place)
                keys = [law.shape[at] if at in triple and at != place else 1 for at in range(law.ndim)]
                shift = generator.standard_t(DEGREES, keys) * INTERACTION_LOG_ODDS_SD
                # The basis has no column if all rows lie in one cell: the sum over an empty slice is 0.
                ranks = rank_basis(law.sum(axis=other_axes))[:, :1].sum(axis=1)
                tilt = shift * np.expand_dims(ranks, other_axes)
                law = law * np.exp(np.clip(tilt, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT))
        law = fit_to_margins(law, pairs, DRAWN_MARGIN_SWEEPS)
        variances = interaction_variance(law, 3, INTERACTION_LOG_ODDS_SD)
        return fit_to_margins(gamma_about(law, variances, generator), pairs, DRAWN_MARGIN_SWEEPS)

    def shifted_column(self, triple: Sequence[int]) -> int | None:
        """Return the column that an interaction of three shifts: the ordered column of most cells, or None."""
        ordered_places = []
        for place in triple:
            column = self.columns[place]
            if column.ordered_cells > 2:
                ordered_places.append(place)
        return max(ordered_places, key=lambda place: self.columns[place].cells, default=None)

    def joint(self, draw: int) -> FloatArray:
        """Return one draw of the counts of all columns' cells together."""
        all_places = tuple(range(len(self.names)))
        if len(all_places) == 1:
            return np.asarray(self.singles[0][draw] * self.rows)
        if all_places in self.tables:
            return np.asarray(self.tables[all_places][draw])
        return fit_to_margins(
            self._draw_joint(all_places, draw), {c: t[draw] for c, t in self.tables.items()}, DRAWN_MARGIN_SWEEPS
        )

    def sums(self, weights: Mapping[str, FloatArray]) -> FloatArray:
        """Return draws of weighted sums of the rows, shape (draws, sums of each column in the order of the mapping).

        ``weights`` are weights of each column's fine cells, shape (sums, fine cells). The distribution of rows within
        a cell of the fit varies with the other columns.
        """
        order = [self.names.index(name) for name in weights]
        draws_of_sums = []
        for draw in range(TABLE_DRAWS):
            joint = self.joint(draw)
            for place, name in enumerate(self.names):
                joint = np.moveaxis(
                    self._sum_weighted(np.moveaxis(joint, place, 0), name, weights[name], draw), 0, place
                )
            draws_of_sums.append(joint.transpose(order))
        return np.array(draws_of_sums)

    def means(self, groups: Mapping[str, FloatArray], name: str) -> GroupDraws:
        """Return draws of the mean code of a number in each group.

        ``groups`` are the shares of each key's fine cells in each group, shape (groups, fine cells). The mean of a
        group's rows has sampling noise within bins.
        """
        place = self.names.index(name)
        column, column_shares = self.columns[place], self.fine.get(name, self.singles[place])
        has_value = np.arange(column.axis.cells) < column.axis.cells - column.axis.flag_codes
        codes, within = (
            np.append(v, [0.0] * column.axis.flag_codes) for v in (column.axis.middles, column.axis.within)
        )
        bin_shares = np.maximum(np.bincount(column.bins, column.shares), 1e-300)
        of_bins = np.bincount(column.bins, column.shares * codes) / bin_shares
        squares = (within + (codes - of_bins[column.bins]) ** 2) * has_value
        sums = self.sums({**groups, name: np.array([codes, has_value, squares])})
        values = column_shares * has_value / np.maximum(column_shares @ has_value, 1e-300)[:, None]
        all_rows = (values @ codes).reshape(-1, *[1] * len(groups))
        variances = values @ (codes**2 + within) - (values @ codes) ** 2
        rows = np.maximum(sums[..., 1], 0.0) + PSEUDO_ROWS
        sampling_errors = np.sqrt(np.maximum(sums[..., 2], 0.0)) / np.maximum(rows, 1.0)
        sampling_errors = sampling_errors * self.generator("means", name).standard_normal(sampling_errors.shape)
        # A group without rows gets the overall mean.
        means = (sums[..., 0] + PSEUDO_ROWS * all_rows) / rows + sampling_errors - all_rows
        # Codes of a cell are even, so that its half-width is √3 standard deviations.
        cells, half_widths = np.argsort(codes[has_value], kind="stable"), np.sqrt(3 * within)
        lows, highs = ((codes + side * half_widths)[has_value][cells] for side in (-1, 1))
        parts = np.minimum(rows / np.maximum(self.rows * (column_shares @ has_value), 1.0).reshape(all_rows.shape), 1.0)
        bounds = np.array(
            [mean_bounds(s[has_value][cells], lows, highs, part) for s, part in zip(values, parts, strict=True)]
        )
        lower, upper = (bounds[:, 0] - all_rows).min(axis=0), (bounds[:, 1] - all_rows).max(axis=0)
        return GroupDraws(means, lower, upper, math.sqrt(max(float(variances.mean()), 0.0)))

    def counts(self, parts: Mapping[str, FloatArray]) -> FloatArray:
        """Return draws of the number of rows that meet a condition on every column, shape (draws,).

        ``parts`` are the shares of each column's fine cells that meet its condition. The count of each single condition
        is drawn from the column's own evidence; the joint draws are scaled to these margins.
        """
        sides = self.sums({name: np.array([part, 1 - part]) for name, part in parts.items()})
        sides = np.maximum(sides, 0.0) + PSEUDO_ROWS
        # The margins of one condition disturb the margins of the others, so that sweeps repeat.
        for _ in range(DRAWN_MARGIN_SWEEPS):
            for axis, (name, part) in enumerate(parts.items(), start=1):
                estimate_and_error = self.met(name, part)
                if estimate_and_error is not None:
                    # The purpose seeds the generator, so that all sweeps scale to equal counts.
                    noise = self.generator("margin", name).standard_normal(TABLE_DRAWS)
                    condition_counts = np.clip(estimate_and_error[0] + estimate_and_error[1] * noise, 0.0, self.rows)
                    other_axes = tuple(at for at in range(1, sides.ndim) if at != axis)
                    ratio = np.stack([condition_counts, self.rows - condition_counts], axis=1) / np.maximum(
                        sides.sum(axis=other_axes), 1e-9
                    )
                    sides = sides * np.expand_dims(ratio, other_axes)
        return np.clip(sides.reshape(TABLE_DRAWS, -1)[:, 0], 0.0, self.rows)

    def met(self, name: str, part: FloatArray) -> tuple[float, float] | None:
        """Return the number of rows that meet a condition on one column, and its error, by the column's own counts.

        Return None without own counts. The error includes the noise of cells that were estimated as empty.
        """
        place = self.names.index(name)
        column, count_table = self.columns[place], self.evidence.known([place])
        law = self.model.tables.law(name) if name in self.fine else None
        if law is not None:
            rows, errors = law.linear(part[None])
            return float(rows[0]), float(errors[0])
        if count_table is None or column.is_cut:
            return None
        # The total is known exactly: subtract the noise's component along the total.
        deviations = part - float(part @ count_table.variances) / float(count_table.variances.sum())
        rows_of_condition = self.rows * float(part @ self.evidence.one_ways[place])
        return rows_of_condition, math.sqrt(float(deviations**2 @ count_table.variances))

    def _sum_weighted(self, joint: FloatArray, name: str, weights: FloatArray, draw: int) -> FloatArray:
        """Return weighted sums of a draw's counts along the first axis, the axis of the column."""
        column, generator = self.columns[self.names.index(name)], self.generator("within", name, draw)
        if not column.is_cut:
            return np.tensordot(weights, joint, axes=1)
        # A bin without fitted rows gets a uniform distribution rather than 0/0.
        fine = (self.fine[name][draw] if name in self.fine else column.shares) + 1e-12 * column.axis.volumes
        cell_shares = (column.bins[:, None] == np.arange(column.cells)) * fine[:, None]
        cell_shares = cell_shares / cell_shares.sum(axis=0)
        parts, values = weights @ cell_shares, column.cells - column.axis.flag_codes
        slopes = generator.normal(1.0, WITHIN_BIN_SLOPE_SD) * moved_by_slopes(joint, weights, cell_shares, values)
        sums = np.tensordot(parts, joint, axes=1) + slopes
        # Weights of means are values, not shares of a bin: they split no bin.
        is_split = ((parts > 0) & (parts < 1)).any(axis=0) & (parts.sum(axis=0) <= 1 + 1e-9)
        if is_split.any():
            bin_counts = np.maximum(joint[is_split].reshape(int(is_split.sum()), -1), 0.0)
            shifts = self._shift_within_bins(
                bin_counts, parts[:, is_split], self._max_log_steps(joint[:values])[is_split[:values]], generator
            )
            sums = sums + shifts.sum(axis=1).reshape(sums.shape)
        return np.asarray(sums)

    def _max_log_steps(self, joint: FloatArray) -> FloatArray:
        """Return the largest absolute difference of a cell's log share between a bin and its neighbours."""
        # Adding the noise's standard error damps steps between cells below the noise.
        counts = np.maximum(joint.reshape(len(joint), -1), 0.0) + self.noise
        steps = np.abs(np.diff(np.log(counts / counts.sum(axis=1, keepdims=True)), axis=0))
        return np.asarray(np.maximum(np.pad(steps, ((0, 1), (0, 0))), np.pad(steps, ((1, 0), (0, 0)))))

    def _shift_within_bins(
        self, bin_counts: FloatArray, parts: FloatArray, leaps: FloatArray, generator: np.random.Generator
    ) -> FloatArray:
        """Return draws of excess rows of each part of a bin by cell of the other columns, shape (parts, bins, cells).

        The odds between parts of a bin vary among cells of the other columns, by at least as much as between
        neighbouring bins. The rows of each cell, and of each part of the bin, stay.
        """
        all_parts = np.concatenate([parts, np.maximum(1 - parts.sum(axis=0, keepdims=True), 0.0)])
        expected = all_parts[:, :, None] * bin_counts
        scales = (WITHIN_BIN_LOG_ODDS_SD + leaps) / math.sqrt(2)  # odds of two parts differ by two shifts
        shifts = scales * generator.standard_t(DEGREES, expected.shape)
        rows = expected * np.exp(np.clip(shifts, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT))
        for _ in range(2 * DRAWN_MARGIN_SWEEPS):
            rows *= (all_parts * bin_counts.sum(axis=1) / np.maximum(rows.sum(axis=2), 1e-9))[:, :, None]
            rows *= bin_counts / np.maximum(rows.sum(axis=0), 1e-9)
        return np.asarray((rows - expected)[: len(parts)])


class ConditionedDraws(TableDraws):
    """Draws of counts given the measured counts of each pair, for complete synthetic tables.

    Draws of `TableDraws` measure the error of an estimate that is made elsewhere. They are shrunk as the fit is, which
    would bias a correlation or a coefficient that is computed from the draws.
    """

    @cached_property
    def fine(self) -> dict[str, FloatArray]:
        """Shares of the fine cells of each number, and of each column without measured counts.

        Columns without measured counts are refitted to released rows that are simulated from the fitted shares
        (parametric bootstrap). Half a row is added to each cell, because a cell that is estimated as empty may have
        rows.
        """
        shares_by_column = dict(super().fine)
        for place, (name, column) in enumerate(zip(self.names, self.columns, strict=True)):
            if name not in shares_by_column and self.model.tables.source_of([name]) == "rows":
                generator, channel = self.generator("rows", name), column.axis.channel
                released_rows = self.model.tables.source.n
                shares = column.shares if column.is_cut else self.evidence.one_ways[place]
                smoothed = shares * released_rows + 0.5
                expected = channel @ (smoothed / smoothed.sum())
                counts = generator.multinomial(released_rows, expected / expected.sum(), TABLE_DRAWS)
                shares_by_column[name] = np.array(
                    [RowsLaw.of(channel, replicate.astype(np.float64)).shares for replicate in counts]
                )
        return shares_by_column

    def _draw_pair(self, pair: tuple[int, int]) -> FloatArray:
        count_table = (self.evidence.row_pairs | self.evidence.pairs).get(pair)
        if count_table is None:
            return super()._draw_pair(pair)
        prior, generator = self.make_discrepancy(pair, count_table), self.generator("pair", pair)
        fitted, margins = self._draw_fit(pair)
        fitted = to_margins(fitted, margins)
        counts = np.array([(copy.row_pairs | copy.pairs)[pair].counts for copy in self.copies])
        laws = prior.condition_laws(fitted, counts, margins, prior.scales(fitted, counts), generator)
        return prior.condition_tables(laws, counts, margins, generator)


def _monotone_shares(rows: FloatArray, bins: int, n: float) -> FloatArray:
    """Return shares of cells, null last, from counts whose cumulative sums are made monotone."""
    null = np.clip(rows[bins:], 0.0, n)
    rows_with_value = n - float(null.sum())
    sums = np.clip(isotonic(np.cumsum(rows[:bins])[:-1]), 0.0, rows_with_value)
    return np.append(np.diff(sums, prepend=0.0, append=rows_with_value), null) / n


def mean_bounds(shares: FloatArray, lows: FloatArray, highs: FloatArray, parts: FloatArray) -> FloatArray:
    """Return the least and the largest mean that parts of all rows can have (Horowitz and Manski 1995).

    A share p of the rows has at least the mean of the lowest p of all rows. ``shares`` are the shares of the cells in
    their order, and ``lows`` and ``highs`` are the cells' ends. The first axis of the result has both bounds.

    >>> mean_bounds(np.full(4, 0.25), np.arange(4.0), np.arange(4.0), np.array([0.25, 0.5, 1.0])).tolist()
    [[0.0, 0.5, 1.5], [3.0, 2.5, 1.5]]
    """
    cumulative_shares = np.append(0.0, np.cumsum(shares))
    low_sums, high_sums = (np.append(0.0, np.cumsum(shares * ends)) for ends in (lows, highs))
    above = high_sums[-1] - np.interp(1 - parts, cumulative_shares, high_sums)
    return np.array([np.interp(parts, cumulative_shares, low_sums), above]) / parts


def among(evidence: Evidence, places: Sequence[int]) -> Evidence:
    """Return the evidence of some columns, renumbered in the order given."""
    new_places = {place: at for at, place in enumerate(places)}
    tables = []
    for table in evidence.tables:
        shared_columns = [place for place in table.columns if place in new_places]
        # Noisy rows of a pair are no counts of one of its columns.
        if shared_columns and (len(shared_columns) == len(table.columns) or not table.channels):
            shared_table = table.sum_to(shared_columns)
            tables.append(replace(shared_table, columns=tuple(new_places[place] for place in shared_columns)))
    sizes = tuple(evidence.sizes[place] for place in places)
    tables = pool_one_ways(tables)
    covered_columns = {place for table in tables for place in table.columns}
    # A column without tables keeps the shares that pairs of rows gave.
    tables += [
        NoisyCounts((at,), evidence.one_ways[place] * evidence.n, float(evidence.n))
        for place, at in new_places.items()
        if at not in covered_columns
    ]
    uneven = frozenset(at for place, at in new_places.items() if place in evidence.uneven)
    ordered = tuple(evidence.ordered[place] for place in places) if evidence.ordered else ()
    return Evidence(evidence.n, sizes, tuple(tables), uneven, ordered)


def followed_noise(fitted: FloatArray, counts: FloatArray) -> FloatArray:
    """Return the share of the noise of perturbed counts that draws of a fit follow, by cell, apart from the margins.

    Both arguments have a first axis of draws: the share is the slope of the fit's moves on the noise.
    """
    centred = (draws - draws.mean(axis=0) for draws in (fitted, counts))
    moves, noise = (
        draws
        - draws.mean(axis=2, keepdims=True)
        - draws.mean(axis=1, keepdims=True)
        + draws.mean(axis=(1, 2), keepdims=True)
        for draws in centred
    )
    return np.asarray(np.clip((moves * noise).sum(axis=0) / np.maximum((noise**2).sum(axis=0), 1e-300), 0.0, 1.0))
