"""Draws of the original table given its release: intervals of joints, conditions, groups and moments are read off them.

One draw perturbs the evidence once, y* = y + σz: the mixture is refitted to it; each column's own law is drawn; each
pair's law is the moved fit, tilted (`dpframe.estimate.discrepancy`); the table's cells are drawn about that law. Draws
are made of the requested columns only, once, with generators that the release's digest seeds: a release gives one
answer, whatever was asked before.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from dpframe.estimate.discrepancy import (
    DEGREES,
    LOG_ODDS_LIMIT,
    MARGIN_SWEEPS,
    Discrepancy,
    gamma_about,
    rank_basis,
    to_margins,
)
from dpframe.estimate.evidence.combine import pooled, project
from dpframe.estimate.evidence.law import RowsLaw
from dpframe.estimate.evidence.number_law import NumberLaw
from dpframe.estimate.model import Model, Models
from dpframe.estimate.table_column import moved_by_slopes
from dpframe.estimate.tables.fit import Steps, TableFit, fit_to_margins
from dpframe.estimate.tables.guard import interaction_variance
from dpframe.estimate.tables.mixture import Mixture, mean_mixture, refit_mixtures
from dpframe.estimate.tables.tables import Evidence, Table, merged, with_merged_singles
from dpframe.spaces.arrays import FloatArray

DRAWS = 40
"""Draws of a table (limit of time): the error of a variance of them is a fifth."""

STARTS = 2
"""Starts of the fit that are refitted to each copy (limit of time): their mean has less noise than one of them."""

FEWEST_ROWS = 0.05
"""Rows that a cell has at least where logarithms or ratios of counts are taken (tolerance)."""

MOST_MOVE = 3.0
"""Logarithm by which a refit moves a cell at most (tolerance)."""

INDEPENDENT_SHARE, TOGETHER_SHARE = 0.5, 0.2
"""Chances that a cell which noise hides is as of independent columns, whatever a fit says, and that it has any part
of a value's rows (tuned; effect below).

On pairs of seven tables of 3,000 rows at ε = 1: with .4 and .05, .976 of the cells are covered for .981, and three
times as many lie beyond five errors; with .5 and .3 intervals are 1 % wider.
"""

HIDDEN_LOG_SD = 1.0
"""Scale of the factor by which a cell that noise hides is off that of independent columns (tuned; with .7 more cells of
rare values lie beyond five errors)."""

WITHIN_BIN_LOG_ODDS_SD = 0.2
"""Scale of the log odds by which rows of a bin lie in its parts, by cell of the other columns, where these do not
differ from the bins beside it (tuned on counts of two conditions of nine tables at ε = 1: with .5, .986 hold for .991,
and intervals are a tenth wider)."""

WITHIN_BIN_SLOPE_SD = 0.5
"""Part of what a slope moves within bins that is taken for its error: densities are straight only about (tuned; half
and twice it change widths on a census by 2 and −3 %)."""

INTERACTION_LOG_ODDS_SD = 0.26
"""Scale of the shift of one column's law, along its ranks, in a cell of two others that no table shows (tuned; half and
twice it change widths on a census by −1 and 5 %).

About .16 standard deviations of a mean after the shifts of a key's cells are centred; see `INTERACTION_MEAN_SD`.
"""


class Posterior:
    """The draws of one release."""

    def __init__(self, models: Models, digest: str) -> None:
        self._models, self._digest = models, digest
        self._made: dict[tuple[type[TableDraws], tuple[str, ...]], TableDraws] = {}

    def of(self, names: Sequence[str]) -> TableDraws:
        """Return the draws of some columns about the fit, for intervals around an estimate."""
        return self._draws(TableDraws, names)

    def conditioned(self, names: Sequence[str]) -> TableDraws:
        """Return the draws of some columns given their counts, which are estimates themselves."""
        return self._draws(ConditionedDraws, names)

    def _draws(self, kind: type[TableDraws], names: Sequence[str]) -> TableDraws:
        key = tuple(name for name in self._models.tables.source.plan.names if name in names)
        if (kind, key) not in self._made:
            self._made[kind, key] = kind(self._models.around(key), key, self._digest)
        return self._made[kind, key]


class TableDraws:
    """Draws of the counts of some columns' cells: of each column, of each pair, and of all of them together."""

    def __init__(self, model: Model, names: Sequence[str], digest: str) -> None:
        self.model, self.names, self._digest = model, list(names), digest
        self.rows = float(model.evidence.n)
        self.columns = [model.columns[name] for name in names]
        places = model.places(names)
        base = model.fit.mixture
        self.each = min(base.fits, STARTS)
        starts = [base.fit(start % base.fits) for start in range(DRAWS * self.each)]
        self.starts = [Mixture(one.weights, tuple(one.laws[place] for place in places)) for one in starts]
        self.evidence = among(model.evidence, places)
        generator = self.generator("copies")
        self.copies = [self.evidence.again(generator) for _ in range(DRAWS)]
        self.mixtures = refit_mixtures(self.evidence, self.copies, self.starts)

    @cached_property
    def noise(self) -> float:
        """Standard error of a cell of the columns' measured pairs, in rows; of rows alone √n, about."""
        known = self.evidence.pairs.values()
        return math.sqrt(np.mean([table.variances.mean() for table in known]) if known else self.rows)

    def generator(self, *purpose: Any) -> np.random.Generator:
        """Return a generator of its own for each purpose: the order of questions changes no answer."""
        words = hashlib.sha256("\0".join([self._digest, *self.names, *map(str, purpose)]).encode()).digest()
        return np.random.default_rng(int.from_bytes(words[:16], "big"))

    @cached_property
    def fine(self) -> dict[str, FloatArray]:
        """Shares of the fine cells of each number with a law of its own, null's last, shape (draws, cells)."""
        found = {}
        for name, column in zip(self.names, self.columns, strict=True):
            law = self.model.tables.law(name) if column.law is not None else None
            if law is not None:
                noise = self.generator("law", name).standard_normal((DRAWS, len(law.rows))) @ law.root.T
                found[name] = np.array([_monotone(rows, law.bins, self.rows) for rows in self._centre(law) + noise])
        return found

    def _centre(self, law: NumberLaw) -> FloatArray:
        """Return the counts of a number's cells that its draws are about."""
        return law.positive

    @cached_property
    def singles(self) -> list[FloatArray]:
        """Shares of the fit's cells of each column, shape (draws, cells).

        Counts that a table could have are perturbed: noise that took a count below zero would hide all of its rows from
        draws about it.
        """
        found = []
        for place, (name, column) in enumerate(zip(self.names, self.columns, strict=True)):
            known = self.evidence.known([place])
            if name in self.fine:
                found.append(self.fine[name] @ column.merge.T)
            elif known is None:
                found.append(np.array([copy.one_ways[place] for copy in self.copies]))
            else:
                fitted = self.rows * self.evidence.one_ways[place]
                noise = (merged(copy.seen([place])).counts - known.counts for copy in self.copies)
                found.append(np.array([project((fitted + one) / self.rows) for one in noise]))
        return found

    @cached_property
    def pairs(self) -> dict[tuple[int, ...], FloatArray]:
        """Counts of the cells of each pair, shape (draws, cells of each column)."""
        return {pair: self._pair(pair) for pair in combinations(range(len(self.names)), 2)}

    def _laws(self, places: Sequence[int]) -> FloatArray:
        """Return shares of columns' cells by the fit, moved as refits to the copies move; shape (draws, cells …).

        The fit is the mean of several starts, whose own distances from it are no noise of the fit; and what refits have
        in common is no noise either, but that they take a few steps more.
        """
        every, steps = self.model.places([self.names[place] for place in places]), self.model.fit.steps
        own = Steps({tuple(sorted(places)): steps.odds(every)}, steps.common, steps.larger)
        fitted, least = self.model.fit.joint(every), FEWEST_ROWS / self.rows

        def joints(evidence: Sequence[Evidence], mixtures: Sequence[Mixture]) -> FloatArray:
            groups = [mixtures[draw * self.each : (draw + 1) * self.each] for draw in range(DRAWS)]
            fits = (TableFit(one, mean_mixture(some), own) for one, some in zip(evidence, groups, strict=True))
            return np.array([fit.joint(places) if len(places) == 2 else fit.mixture.joint(places) for fit in fits])

        refits, starts = joints(self.copies, self.mixtures), joints([self.evidence] * DRAWS, self.starts)
        moves = np.log((refits + least) / (starts + least))
        moves = np.clip(moves - moves.mean(axis=0), -MOST_MOVE, MOST_MOVE)
        return np.asarray(fitted * np.exp(moves))

    def _known(self, pair: tuple[int, int]) -> Table | None:
        return (self.evidence.row_pairs | self.evidence.pairs).get(pair)

    def _prior(self, pair: tuple[int, int]) -> Discrepancy:
        """Return how far the counts of a pair may lie from the fit."""
        known = self._known(pair)
        ordered = [self.columns[place].axis.column.space.metric != "discrete" for place in pair]
        joint = self.model.fit.joint([self.model.names.index(self.names[place]) for place in pair])
        noise = np.full(joint.shape, np.inf) if known is None else known.variances
        return Discrepancy(joint, self.rows, noise, ordered, () if known is None else known.channels)

    def _fitted(self, pair: tuple[int, int]) -> tuple[FloatArray, list[FloatArray]]:
        """Return draws of the fit's counts of a pair, and draws of both columns' own counts."""
        margins = [self.singles[place] * self.rows for place in pair]
        independent = np.einsum("ka,kb->kab", *margins) / self.rows
        # Rows that a column's own draw has and the fit has not are spread as of independent columns: one row is.
        return np.maximum(self._laws(pair) * self.rows, independent / self.rows), margins

    def _pair(self, pair: tuple[int, int]) -> FloatArray:
        known, prior, generator = self._known(pair), self._prior(pair), self.generator("pair", pair)
        fitted, margins = self._fitted(pair)
        followed = np.zeros(fitted.shape[1:])
        if known is not None and not known.channels:
            seen = np.array([copy.pairs[pair].counts for copy in self.copies])
            followed = followed_noise(to_margins(fitted, margins), seen)
            fitted = self._with_hidden(fitted, margins, known, generator)
        laws = to_margins(prior.draw_laws(fitted, generator), margins)
        return to_margins(prior.draw_tables(laws, followed, generator), margins)

    def _with_hidden(
        self, fitted: FloatArray, margins: Sequence[FloatArray], known: Table, generator: np.random.Generator
    ) -> FloatArray:
        """Return draws of a fit's counts where noise may hide that cells are as of independent columns, or fuller.

        A fit follows the noise of cells that it hides: it may leave a cell empty that has rows. Beforehand a cell is as
        the fit says, or as of independent columns give or take a factor, or has any part of the rows of a value; its
        own count says how likely each is.
        """
        independent = np.einsum("ka,kb->kab", *margins) / self.rows
        most = np.minimum(margins[0][:, :, None], margins[1][:, None, :])
        factor = np.exp(HIDDEN_LOG_SD * generator.standard_normal(fitted.shape))
        others = [independent * factor, most * generator.random(fitted.shape)]
        hidden = known.variances / (known.variances + independent**2)
        either = INDEPENDENT_SHARE * hidden, TOGETHER_SHARE * hidden
        chances = np.stack([1 - sum(either), *either])
        values = np.stack([fitted, *others])
        apart = (known.counts - values) ** 2 / known.variances
        likely = chances * np.exp(-(apart - apart.min(axis=0)) / 2)
        heights = np.cumsum(likely / likely.sum(axis=0), axis=0)
        chosen = (generator.random(fitted.shape) > heights[:-1]).sum(axis=0)
        return np.asarray(np.take_along_axis(values, chosen[None], axis=0)[0])

    @cached_property
    def tables(self) -> dict[tuple[int, ...], FloatArray]:
        """Counts of each pair, and of each larger table that was measured of these columns, shape (draws, cells …)."""
        found = dict(self.pairs)
        for columns in {tuple(sorted(table.columns)) for table in self.evidence.measured if len(table.columns) > 2}:
            known = [merged(one.seen(columns)) for one in (self.evidence, *self.copies)]
            counts, noise = np.array([table.counts for table in known[1:]]), known[0].variances
            drawn = np.array([self._together(columns, draw) for draw in range(DRAWS)])
            spread = np.array([interaction_variance(one, 3, INTERACTION_LOG_ODDS_SD) for one in drawn])
            # Matheron's rule: a draw moves towards perturbed counts as the estimate would.
            found[columns] = np.maximum(drawn + spread / (spread + noise) * (counts - drawn), 0.0)
        return found

    @cached_property
    def _laws_together(self) -> dict[tuple[int, ...], FloatArray]:
        return {}

    def _together(self, places: tuple[int, ...], draw: int) -> FloatArray:
        """Return one draw of the counts of three columns and more from those of their pairs.

        Three columns may interact: the law of an ordered column is shifted along its ranks in each cell of two others
        by a Student law of three degrees, and cells of a table lie about the law by chance. Pairs stay as they are.
        """
        generator = self.generator("joint", places, draw)
        if places not in self._laws_together:
            self._laws_together[places] = self._laws(places)
        law = self._laws_together[places][draw] * self.rows + FEWEST_ROWS
        pairs: dict[tuple[int, ...], FloatArray] = {
            pair: self.pairs[places[pair[0]], places[pair[1]]][draw] for pair in combinations(range(len(places)), 2)
        }
        law = fit_to_margins(law, pairs, 1)
        for triple in combinations(range(len(places)), 3):
            along = self.shifted_column([places[at] for at in triple])
            if along is not None:
                place = places.index(along)
                others = tuple(at for at in range(law.ndim) if at != place)
                keys = [law.shape[at] if at in triple and at != place else 1 for at in range(law.ndim)]
                shift = generator.standard_t(DEGREES, keys) * INTERACTION_LOG_ODDS_SD
                # No direction is left if all rows lie in one cell.
                ranks = rank_basis(law.sum(axis=others))[:, :1].sum(axis=1)
                tilt = shift * np.expand_dims(ranks, others)
                law = law * np.exp(np.clip(tilt, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT))
        law = fit_to_margins(law, pairs, MARGIN_SWEEPS)
        spread = interaction_variance(law, 3, INTERACTION_LOG_ODDS_SD)
        return fit_to_margins(gamma_about(law, spread, generator), pairs, MARGIN_SWEEPS)

    def shifted_column(self, triple: Sequence[int]) -> int | None:
        """Return which of three columns an interaction shifts: the ordered one of most cells; None without any."""
        ordered = []
        for place in triple:
            column = self.columns[place]
            if column.axis.column.space.metric != "discrete" and column.cells - column.axis.has_null > 2:
                ordered.append(place)
        return max(ordered, key=lambda place: self.columns[place].cells, default=None)

    def joint(self, draw: int) -> FloatArray:
        """Return one draw of the counts of all columns' cells together."""
        every = tuple(range(len(self.names)))
        if len(every) == 1:
            return np.asarray(self.singles[0][draw] * self.rows)
        if every in self.tables:
            return np.asarray(self.tables[every][draw])
        return fit_to_margins(self._together(every, draw), {c: t[draw] for c, t in self.tables.items()}, MARGIN_SWEEPS)

    def sums(self, weights: Mapping[str, FloatArray]) -> FloatArray:
        """Return draws of weighted sums of the rows, shape (draws, sums of each column in the order of the mapping).

        ``weights`` are those of each column's fine cells, shape (sums, fine cells): parts of a cell, or what its rows
        count. How rows lie within a fit's cell varies with the other columns, along ranks and beyond.
        """
        order = [self.names.index(name) for name in weights]
        found = []
        for draw in range(DRAWS):
            joint = self.joint(draw)
            for place, name in enumerate(self.names):
                joint = np.moveaxis(self._summed(np.moveaxis(joint, place, 0), name, weights[name], draw), 0, place)
            found.append(joint.transpose(order))
        return np.array(found)

    def means(self, groups: Mapping[str, FloatArray], name: str) -> FloatArray:
        """Return draws of the mean code of a number in each group, less that of all rows, shape (draws, groups …).

        ``groups`` are the parts of each key's fine cells, shape (groups, fine cells). Rows of a group lie within a
        bin by chance.
        """
        place = self.names.index(name)
        column, own = self.columns[place], self.fine.get(name, self.singles[place])
        has_value = np.arange(column.axis.cells) < column.axis.cells - column.axis.has_null
        codes, within = (np.append(v, [0.0] * column.axis.has_null) for v in (column.axis.middles, column.axis.within))
        held = np.maximum(np.bincount(column.bins, column.shares), 1e-300)
        of_bins = np.bincount(column.bins, column.shares * codes) / held
        squares = (within + (codes - of_bins[column.bins]) ** 2) * has_value
        sums = self.sums({**groups, name: np.array([codes, has_value, squares])})
        all_rows = ((own @ codes) / (own @ has_value)).reshape(-1, *[1] * len(groups))
        rows = np.maximum(sums[..., 1], 0.0) + FEWEST_ROWS
        chance = np.sqrt(np.maximum(sums[..., 2], 0.0)) / np.maximum(rows, 1.0)
        chance = chance * self.generator("means", name).standard_normal(chance.shape)
        # A group without rows is as all rows are.
        return np.asarray((sums[..., 0] + FEWEST_ROWS * all_rows) / rows + chance - all_rows)

    def counts(self, parts: Mapping[str, FloatArray]) -> FloatArray:
        """Return draws of the number of rows that meet a condition on every column, shape (draws,).

        ``parts`` are the parts of each column's fine cells that meet its condition. How many rows meet the condition on
        one column is drawn from what is known of that by itself; pairs say which of the others they meet.
        """
        sides = self.sums({name: np.array([part, 1 - part]) for name, part in parts.items()})
        sides = np.maximum(sides, 0.0) + FEWEST_ROWS
        for _ in range(MARGIN_SWEEPS):
            for axis, (name, part) in enumerate(parts.items(), start=1):
                known = self.met(name, part)
                if known is not None:
                    noise = self.generator("margin", name).standard_normal(DRAWS)
                    met = np.clip(known[0] + known[1] * noise, 0.0, self.rows)
                    others = tuple(at for at in range(1, sides.ndim) if at != axis)
                    ratio = np.stack([met, self.rows - met], axis=1) / np.maximum(sides.sum(axis=others), 1e-9)
                    sides = sides * np.expand_dims(ratio, others)
        return np.clip(sides.reshape(DRAWS, -1)[:, 0], 0.0, self.rows)

    def met(self, name: str, part: FloatArray) -> tuple[float, float] | None:
        """Return how many rows meet a condition on one column by its own counts, and the error; None without any.

        Errors of cells that noise took below zero add up, though each cell has no rows.
        """
        place = self.names.index(name)
        column, known = self.columns[place], self.evidence.known([place])
        law = self.model.tables.law(name) if name in self.fine else None
        if law is not None:
            rows, errors = law.linear(part[None])
            return float(rows[0]), float(errors[0])
        if known is None or column.is_cut:
            return None
        # The number of all rows is known.
        apart = part - float(part @ known.variances) / float(known.variances.sum())
        found = self.rows * float(part @ self.evidence.one_ways[place])
        return found, math.sqrt(float(apart**2 @ known.variances))

    def _summed(self, joint: FloatArray, name: str, weights: FloatArray, draw: int) -> FloatArray:
        """Return weighted sums of a draw's counts along the first axis, which is the column's."""
        column, generator = self.columns[self.names.index(name)], self.generator("within", name, draw)
        if not column.is_cut:
            return np.tensordot(weights, joint, axes=1)
        fine = (self.fine[name][draw] if name in self.fine else column.shares) + 1e-12 * column.axis.volumes
        spread = (column.bins[:, None] == np.arange(column.cells)) * fine[:, None]
        spread = spread / spread.sum(axis=0)
        parts, values = weights @ spread, column.cells - column.axis.has_null
        slopes = generator.normal(1.0, WITHIN_BIN_SLOPE_SD) * moved_by_slopes(joint, weights, spread, values)
        found = np.tensordot(parts, joint, axes=1) + slopes
        # Sums of values, as those of means, are no parts of a bin.
        cut = ((parts > 0) & (parts < 1)).any(axis=0) & (parts.sum(axis=0) <= 1 + 1e-9)
        if cut.any():
            inside = np.maximum(joint[cut].reshape(int(cut.sum()), -1), 0.0)
            moved = self._moved_within(inside, parts[:, cut], self._leaps(joint[:values])[cut[:values]], generator)
            found = found + moved.sum(axis=1).reshape(found.shape)
        return np.asarray(found)

    def _leaps(self, joint: FloatArray) -> FloatArray:
        """Return by how much the logarithm of a cell's share of its bin differs from the bins beside it at most."""
        counts = np.maximum(joint.reshape(len(joint), -1), 0.0) + self.noise
        steps = np.abs(np.diff(np.log(counts / counts.sum(axis=1, keepdims=True)), axis=0))
        return np.asarray(np.maximum(np.pad(steps, ((0, 1), (0, 0))), np.pad(steps, ((1, 0), (0, 0)))))

    def _moved_within(
        self, inside: FloatArray, parts: FloatArray, leaps: FloatArray, generator: np.random.Generator
    ) -> FloatArray:
        """Return how many more rows each part of a bin has in each cell of the other columns, (parts, bins, cells).

        In one cell the rows of a bin may lie in its parts by other odds than in another: as far apart as the bins
        beside it, and more. The rows of each cell and of each part of the bin stay.
        """
        every = np.concatenate([parts, np.maximum(1 - parts.sum(axis=0, keepdims=True), 0.0)])
        even = every[:, :, None] * inside
        scales = (WITHIN_BIN_LOG_ODDS_SD + leaps) / math.sqrt(2)  # odds of two parts differ by two shifts
        shifts = scales * generator.standard_t(DEGREES, even.shape)
        rows = even * np.exp(np.clip(shifts, -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT))
        for _ in range(2 * MARGIN_SWEEPS):
            rows *= (every * inside.sum(axis=1) / np.maximum(rows.sum(axis=2), 1e-9))[:, :, None]
            rows *= inside / np.maximum(rows.sum(axis=0), 1e-9)
        return np.asarray((rows - even)[: len(parts)])


class ConditionedDraws(TableDraws):
    """Draws of counts given what was counted, each pair moved towards it besides the fit: whole tables are of these.

    Draws about a fit measure the error of an estimate that is elsewhere. They share the fit's shrinkage, which a
    correlation, or a coefficient, of the draws would have, too.
    """

    @cached_property
    def fine(self) -> dict[str, FloatArray]:
        """Shares of the fine cells of each number, and of each column that only released rows count.

        The latter are refitted to rows that are released again from the fitted shares (parametric bootstrap), with half
        a row added to each cell: a cell that is estimated as empty may have rows.
        """
        found = dict(super().fine)
        for place, (name, column) in enumerate(zip(self.names, self.columns, strict=True)):
            if name not in found and self.model.tables.source_of([name]) == "rows":
                generator, channel = self.generator("rows", name), column.axis.channel
                rows = self.model.tables.source.n
                shares = column.shares if column.is_cut else self.evidence.one_ways[place]
                padded = shares * rows + 0.5
                expected = channel @ (padded / padded.sum())
                counts = generator.multinomial(rows, expected / expected.sum(), DRAWS).astype(np.float64)
                found[name] = np.array([RowsLaw.of(channel, one).shares for one in counts])
        return found

    def _centre(self, law: NumberLaw) -> FloatArray:
        """Return counts whose sums never fall: those cut at zero one by one put rows into empty tails, as draws do."""
        return np.append(law.risen, law.positive[law.bins :])

    def _pair(self, pair: tuple[int, int]) -> FloatArray:
        known = self._known(pair)
        if known is None:
            return super()._pair(pair)
        prior, generator = self._prior(pair), self.generator("pair", pair)
        fitted, margins = self._fitted(pair)
        copies = [(copy.row_pairs | copy.pairs)[pair].counts for copy in self.copies]
        counts = np.array(copies)
        laws = prior.condition_laws(to_margins(fitted, margins), counts, margins, generator)
        return prior.condition_tables(laws, counts, margins, generator)


def _monotone(rows: FloatArray, bins: int, n: float) -> FloatArray:
    """Return shares of cells of values, then null's, whose sums from the first on never fall."""
    null = np.clip(rows[bins:], 0.0, n)
    present = n - float(null.sum())
    sums = np.clip(pooled(np.cumsum(rows[:bins])[:-1]), 0.0, present)
    return np.append(np.diff(sums, prepend=0.0, append=present), null) / n


def among(evidence: Evidence, places: Sequence[int]) -> Evidence:
    """Return what evidence says of some columns, which get numbers in the order given."""
    number = {place: at for at, place in enumerate(places)}
    found = []
    for table in evidence.tables:
        inside = [place for place in table.columns if place in number]
        if len(inside) == len(table.columns):
            found.append(replace(table, columns=tuple(number[place] for place in inside)))
        elif inside and not table.channels:
            part = table.sum_to(inside)
            found.append(Table(tuple(number[place] for place in inside), part.counts, part.sigma))
    sizes = tuple(evidence.sizes[place] for place in places)
    found = with_merged_singles(found)
    known = {place for table in found for place in table.columns}
    # A column that only pairs of rows cover keeps the shares that these gave.
    found += [
        Table((at,), evidence.one_ways[place] * evidence.n, np.sqrt(evidence.n))
        for place, at in number.items()
        if at not in known
    ]
    return Evidence(evidence.n, sizes, tuple(found))


def followed_noise(fitted: FloatArray, counts: FloatArray) -> FloatArray:
    """Return by which part draws of a fit follow noise that leaves the margins as they are, by cell.

    Both have a first axis of draws: a slope of the fit's moves in the noise of perturbed counts.
    """
    moves, noise = (_within_margins(draws - draws.mean(axis=0)) for draws in (fitted, counts))
    return np.asarray(np.clip((moves * noise).sum(axis=0) / np.maximum((noise**2).sum(axis=0), 1e-300), 0.0, 1.0))


def _within_margins(draws: FloatArray) -> FloatArray:
    """Return what draws of tables have besides the means of their rows and columns."""
    rows, columns = draws.mean(axis=2, keepdims=True), draws.mean(axis=1, keepdims=True)
    return np.asarray(draws - rows - columns + draws.mean(axis=(1, 2), keepdims=True))
