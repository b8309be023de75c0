"""How far off the truth a fit of measured pairs may be, by what its replicas do not know of.

A replica is fitted to noise about the fit, which is its truth: replicas are right about a fit and know neither that it
may not hold, nor what it draws to independence, nor rows that noise hides, nor how rows lie within a cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from dpframe.estimate.evidence.number_law import truncated_spread
from dpframe.estimate.model import Model, Models
from dpframe.estimate.table_column import TableColumn
from dpframe.estimate.tables.guard import interaction_variance
from dpframe.spaces.arrays import FloatArray

_FOLLOWED = 0.1
"""Part of the noise's variance that a fit has at least."""

OF_TWO, _OF_THREE = 1.0, 0.2
"""Standard deviations of log odds ratios of two columns, and of three given their pairs, about, in real tables.

With 0.2 the cells of three columns in samples of 600 to 32,561 rows of twenty tables differ from what their true pairs
leave likeliest by 0.9 to 1.2 of the root of `interaction_variance`.
"""

_OF_PAIRS = 0.5
"""Part of what is open of each pair that counts for a cell of more columns: the other pairs hold it back."""

_UNUSUAL = 2.0
"""Times a fit's mean squared distance from counts, by its replicas, from which on it is off by more than they are."""

_LEAP = 0.75
"""Standard errors for which a leap of a law within a cell counts: a 95 % interval holds it, with some room."""

_SURPRISE = 2.0
"""Standard errors of noise from which on a fit's distance from what was measured is more than noise."""

_FAR = 3.0
"""The same of one cell's count, of which there are many."""

_STRONGEST = 2.0
"""Standard deviation of log odds ratios from which on cells are open as if any of their columns' rows were in them."""

_TOGETHER = 0.15
"""Part of the most rows that a cell may have, by its columns, that noisy rows leave open at least.

Rare values are often of the same people: workclass and occupation are unknown of the same rows. With no more than
independent columns have, 0.8 % of the cells of Adult's pairs are more than five errors off, with this 0.4 %, and errors
of ordinary pairs are the same.
"""

_UNMEASURED = 1e9
"""Variance of a sum of counts from which on one of them was not made."""

_FEWEST = 1e-9
"""Share of rows below which a group is empty."""


Counted = Callable[[Sequence[int]], tuple[FloatArray, FloatArray] | None]
"""Unbiased counts of the cells of some of a joint's columns, by place, and their variances; None without any."""


class Misfit:
    """What is open of the fits of one release, which has ``rows`` rows."""

    def __init__(self, models: Models, rows: float) -> None:
        self._models, self._rows = models, max(rows, 1.0)
        self._excesses: dict[tuple[str, ...], float] = {}
        self._strengths: dict[tuple[str, ...], float] = {}

    def of_cells(self, model: Model, names: Sequence[str], shares: FloatArray) -> FloatArray:
        """Return the variance of cells about a fit's that neither the fit nor its replicas know of.

        For columns that no table holds together it is that of their interaction, and a cell's part of what is open of
        each pair of them. Of those that one does it is the part of the count's noise by which the fit is off the counts
        of blocks, as in `of_share`, and no more than the pair's odds ratios make likely.
        """
        n, known = self._rows, model.known(names)
        if known is None:
            moved = interaction_variance(shares * n, 3, _OF_THREE) / n**2
            for pair in combinations(names, 2) if len(names) > 2 else ():
                if model.known(pair) is not None:
                    others = tuple(i for i, name in enumerate(names) if name not in pair)
                    joint = model.joint(pair)
                    part = np.minimum(shares / np.maximum(np.expand_dims(joint, others), _FEWEST), 1.0)
                    moved = moved + _OF_PAIRS * part**2 * np.expand_dims(self.of_cells(model, pair, joint), others)
            return np.asarray(moved)
        if len(names) == 1:
            return np.zeros(shares.shape)
        noise = (self._excess(names) + _FOLLOWED) * known.variances
        return np.asarray(np.minimum(noise, interaction_variance(shares * n, 2, OF_TWO)) / n**2)

    def unseen(self, model: Model, names: Sequence[str], shares: FloatArray) -> FloatArray:
        """Return by how much more of the rows cells may hold than a fit of tables has in them; see `unseen`."""

        def counted(places: Sequence[int]) -> tuple[FloatArray, FloatArray] | None:
            table = model.known([names[place] for place in places])
            return None if table is None else (table.counts, table.variances)

        margins = [model.joint([name]) for name in names]
        found, hidden = unseen(shares, margins, counted, self._rows), np.full(shares.shape, np.inf)
        for i, j in combinations(range(len(names)), 2):
            both = counted([i, j])
            if both is not None:
                # As in `of_share`: all rows of a rare value may have one other value.
                error = np.sqrt(both[1]) / self._rows
                bare = np.maximum(1 - model.joint([names[i], names[j]]) / error, 0.0)
                more = truncated_spread(both[0] / self._rows, error) * bare / (2 * (len(names) - 1))
                hidden = np.minimum(hidden, np.expand_dims(more, [k for k in range(shares.ndim) if k not in (i, j)]))
        whole = unseen(shares, margins, counted, self._rows, least=1.0)
        return np.where(np.isfinite(hidden), np.maximum(found, np.minimum(hidden, whole)), found)

    def of_interaction(self, names: Sequence[str], parts: Sequence[FloatArray], sides: FloatArray) -> float:
        """Return how far off a share of three conditions and more is by what only all of them show, and by its pairs.

        ``sides`` are the shares by condition, met first.
        """
        n, found = self._rows, float(sides.flat[0])
        error = math.sqrt(float(interaction_variance(sides * n, 3, _OF_THREE).flat[0])) / n
        for i, j in combinations(range(len(names)), 2):
            both = float(sides.sum(axis=tuple(k for k in range(len(names)) if k not in (i, j))).flat[0])
            off = self.of_share([names[i], names[j]], [parts[i], parts[j]], both)
            error = math.hypot(error, off * min(found / max(both, _FEWEST), 1.0))
        return error

    def noise_of_cells(self, model: Model, names: Sequence[str]) -> list[FloatArray]:
        """Return the noise of what tables count in every cell of each column, over the others, in shares of rows."""
        table = model.known(names)
        if table is None:
            return [np.zeros(model.columns[name].cells) for name in names]
        rest = [tuple(other for other in range(len(names)) if other != place) for place in range(len(names))]
        return [np.sqrt(table.variances.sum(axis=others)) / self._rows for others in rest]

    def _raw_sums(
        self, model: Model, names: Sequence[str], weights: FloatArray
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return weighted sums of what tables count of columns together, in shares of all rows, and their variances.

        ``weights`` has the shape (sums, cells of each column); None where no table holds all of the columns.
        """
        table, n = model.known(names), self._rows
        if table is None:
            return None
        sums, variances = (
            np.tensordot(w, values, axes=values.ndim)
            for w, values in ((weights, table.counts), (weights**2, table.variances))
        )
        return sums / n, variances / n**2

    def of_means(
        self, names: Sequence[str], weights: FloatArray, held: FloatArray, law_of_bins: FloatArray, apart: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the variances of means of groups about the truth, and of what is drawn away, as `_of_sums` does.

        Means of groups may differ from that of all rows as in `interaction_variance`, every bin by itself: of a number
        in two bins the group's mean moves by half of its mean deviation for every unit of the log odds ratio.

        ``weights`` are what every cell of the groups' column and the number adds to the distance of a group's mean from
        the fit's, ``held`` the groups' shares of all rows, ``law_of_bins`` the number's law in each group, and
        ``apart`` how far bins are from the group's mean.
        """
        moved = self._strength(names) * np.sqrt(((law_of_bins * apart) ** 2).sum(axis=1) / 2)
        chance = (law_of_bins * apart**2).sum(axis=1) / (held * self._rows)
        rest = 1 - np.clip(held, 0.0, 1.0)
        return self._of_sums(names, weights, (rest * moved) ** 2 + rest * chance)

    def _of_sums(self, names: Sequence[str], weights: FloatArray, hidden: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the variances of weighted sums by a fit about the truth, from how far these are off measured ones.

        For two columns only what margins leave open: a fit's margins have errors that replicas know. ``hidden`` is the
        variance of what a dependence of two columns may add. The second array is what the fit draws of it to
        independence. Errors of replicas do not have it, for their truth is drawn already; but the part of the noise
        that they follow is the part of a dependence that a fit shows.

        The variance is what is more in this very distance than is usual, by the replicas or by noise; or what is more
        than noise, on average, in those of blocks of the pair's cells; or what is drawn to independence; and never
        less than a tenth of the noise: a fit follows what it was fitted to. Neither blocks nor that tenth make it more
        than a dependence may add: sums that few far cells decide have noise that no fit follows.
        """
        model = self._models.around(names)
        if len(names) == 2:
            first, second = [model.joint([name]) for name in names]
            mean = (weights @ second)[:, :, None]
            weights = weights - mean - np.einsum("i,sij->sj", first, weights - mean)[:, None, :]
        raw = self._raw_sums(model, names, weights)
        if raw is None:
            return np.zeros(len(weights)), np.zeros(len(weights))
        noise, apart = raw[1], raw[0] - np.tensordot(weights, model.joint(names), axes=len(names))
        usual, drawn, blocks, least = _SURPRISE**2 * noise, np.zeros(noise.shape), self._excess(names) * noise, noise
        if len(names) == 2:
            followed, distance = model.fitted.against(model.places(names), weights)
            usual = _UNUSUAL * np.minimum(noise, distance)
            blocks, least = np.minimum(blocks, hidden), noise * hidden / np.maximum(noise + hidden, 1e-300)
            # What the raw sums leave likely of a dependence, and how far the fit is off its mean; its replicas know
            # of the noise that it follows.
            kept = hidden / np.maximum(noise + hidden, 1e-300)
            off = kept * raw[0] - np.tensordot(weights, model.joint(names), axes=2)
            drawn = np.maximum((1 - followed) ** 2 * least, kept * off**2 + least - followed**2 * noise)
        own = np.maximum(np.maximum(apart**2 - usual, blocks), drawn)
        return np.asarray(own + _FOLLOWED * least), np.asarray(drawn)

    def _strength(self, names: Sequence[str]) -> float:
        """Return the standard deviation of a measured pair's log odds ratios that its counts may have at most."""
        key = tuple(sorted(names))
        if key not in self._strengths:
            model, n = self._models.around(key), self._rows
            table, found = model.known(key), 0.0
            if table is not None:
                margins = [np.maximum(model.joint([name]), 1 / n) for name in key]
                found = odds_spread(table.counts, n * crossed(margins), table.variances)
            self._strengths[key] = found
        return self._strengths[key]

    def of_share(self, names: Sequence[str], parts: Sequence[FloatArray], found: float) -> float:
        """Return by how much a share by the fit may be off what was measured of it, and what noise may hide.

        A fit's replicas are right about the fit, and know neither that it may not hold nor rows that noise hides. Of
        columns that were measured together both show: in the count of what is asked, and in those of all blocks from
        the first cells on, whose distances from the fit are more than noise has by some factor.
        """
        inside, cover = (crossed(one) for one in (parts, [np.ceil(part) for part in parts]))
        raw, n = self._raw_sums(self._models.around(names), names, cover[None]), self._rows
        if raw is None or not 0 < raw[1][0] * n**2 < _UNMEASURED:
            return 0.0
        hidden = np.zeros(1)
        if len(names) == 2:
            sides = sides_of(self._models.around(names).joint(names), parts) * n
            hidden = interaction_variance(sides, 2, self._strength(names)).flat[:1] / n**2
        excess, error = float(self._of_sums(names, inside[None], hidden)[0][0]), float(np.sqrt(raw[1][0]))
        unseen = float(truncated_spread(raw[0], np.sqrt(raw[1]))[0]) * max(0.0, 1 - found / error)
        return math.hypot(math.sqrt(max(excess, 0.0)), unseen / 2)

    def _excess(self, names: Sequence[str]) -> float:
        """Return how much more the fit is off the counts of blocks of a pair's cells than noise, in parts of noise."""
        key = tuple(sorted(names))
        if len(key) == 2 and key not in self._excesses:
            model = self._models.around(key)
            names = [model.names[place] for place in sorted(model.places(key))]
            table, found = model.known(names), 0.0
            if table is not None:
                fitted = model.joint(names) * self._rows
                apart, noise = (v.cumsum(axis=0).cumsum(axis=1) for v in (table.counts - fitted, table.variances))
                found = max(float((apart**2 / noise).mean()) - 1.0, 0.0)
            self._excesses[key] = found
        return self._excesses.get(key, 0.0)


def crossed(parts: Sequence[FloatArray]) -> FloatArray:
    """Return the outer product of some vectors."""
    return reduce(np.multiply.outer, parts)


def unseen(
    shares: FloatArray,
    margins: Sequence[FloatArray],
    counted: Counted,
    rows: float,
    odds: float = 1.0,
    least: float = 0.0,
) -> FloatArray:
    """Return by how much more of the rows cells may hold than a fit has in them, where noise hides it.

    A fit, and all its replicas, may leave a cell empty that has rows. These may be as many as if the columns were
    independent, times ``odds``, and no more than noise hides in the least noisy count of a pair of them. Of the most
    that each column has for a cell they may be the part ``least`` at least.
    """

    def hidden(places: Sequence[int]) -> FloatArray:
        known = counted(places)
        if known is None:
            return np.full([shares.shape[place] for place in places], np.inf)
        return truncated_spread(known[0], np.sqrt(known[1])) / rows

    held = [np.maximum(margin, hidden([place])) for place, margin in enumerate(margins)]
    whole = reduce(np.minimum.outer, held)
    most, noise = np.minimum(np.maximum(odds * crossed(held), least * whole), whole), np.full_like(shares, np.inf)
    for i, j in combinations(range(shares.ndim), 2):
        others = [k for k in range(shares.ndim) if k not in (i, j)]
        noise = np.minimum(noise, np.expand_dims(hidden([i, j]), others))
    found = np.minimum(most, noise)
    return np.where(np.isfinite(found), np.maximum(found - shares, 0.0), 0.0)


def of_noisy_rows(shares: FloatArray, counted: Counted, rows: float) -> FloatArray:
    """Return the variance of cells about a fit to noisy rows, which draws what these hardly show to independence.

    About the fit laws have odds ratios of the standard deviation τ, which the unbiased counts' distance from
    independence shows, or of that in real tables where noise hides it, or of what these show for sure if it is more;
    what the counts' own noise then leaves open is 1/(1/v + 1/i), v their variance and i that of the interaction.
    Cells may hold rows that noise hides, the more of them the stronger columns surely depend on each other, up to all
    that a value has; and a fit that is farther from a count than noise goes is as far off.
    """
    places = range(shares.ndim)
    known = counted(places) if shares.ndim > 1 else None
    if known is None:
        return np.zeros(shares.shape)
    counts, noise = known
    others = [tuple(other for other in places if other != place) for place in places]
    margins = [np.maximum(counts.sum(axis=rest) / rows, 1 / rows) for rest in others]
    likely, rather, sure = (
        odds_spread(counts, rows * crossed(margins), noise, surprise)
        for surprise in (_SURPRISE, -_SURPRISE / 2, -_SURPRISE)
    )
    moved = interaction_variance(shares * rows, 2, min(likely, max(sure, OF_TWO)))
    drawn = noise * moved / (noise + moved) / rows**2
    margins, odds = [shares.sum(axis=rest) for rest in others], math.exp(min(sure, _STRONGEST))
    apart = counts / rows - shares
    off = np.maximum(np.abs(apart) - _FAR * np.sqrt(noise) / rows, 0.0)
    room = np.where(apart > 0, np.maximum(reduce(np.minimum.outer, margins) - shares, 0.0), shares)
    # Where a column follows from another, all rows of a value may be in one cell.
    follows = float(np.clip((rather - OF_TWO) / _STRONGEST, 0.0, 1.0))
    more = unseen(shares, margins, counted, rows, odds, _TOGETHER + (1 - _TOGETHER) * follows)
    return np.asarray(drawn + more**2 + np.minimum(off, room) ** 2)


def drawn_of_many(sides: FloatArray, noise: float, counted: Counted) -> float:
    """Return how far off a fit's count of three conditions and more is by what it draws to independence.

    That is what every pair of conditions may add, in the count's part of the rows that meet both, and what only all of
    them show, with no more of it hidden than the unbiased count's error ``noise``; and rows that noise hides, as in
    `unseen`. ``sides`` are the counts by condition, met first.
    """
    found, every = float(sides.flat[0]), range(sides.ndim)
    moved = 1 / (1 / max(float(interaction_variance(sides, 3, _OF_THREE).flat[0]), 1e-300) + 1 / noise**2)
    for pair in combinations(every, 2):
        both = sides.sum(axis=tuple(place for place in every if place not in pair))
        part = min(found / max(float(both.flat[0]), _FEWEST), 1.0)
        moved += part**2 * float(interaction_variance(both, 2, OF_TWO).flat[0])
    rows = max(float(sides.sum()), 1.0)
    margins = [sides.sum(axis=tuple(other for other in every if other != place)) / rows for place in every]
    more = unseen(sides / rows, margins, counted, rows, math.exp(OF_TWO), _TOGETHER)
    return math.hypot(math.sqrt(max(moved, 0.0)), float(more.flat[0]) * rows)


def odds_spread(counts: FloatArray, apart: FloatArray, noise: FloatArray, surprise: float = _SURPRISE) -> float:
    """Return the standard deviation of log odds ratios that counts show about independent ones, or may hide.

    With a ``surprise`` below 0, in standard deviations of what noise shows of itself, that which they show for sure.
    """
    free = counts.size - 1 - sum(cells - 1 for cells in counts.shape)
    chance = interaction_variance(apart, 2, 0.0)
    shown = float(((counts - apart) ** 2 / noise).sum()) - free + surprise * math.sqrt(2 * free)
    return math.sqrt(max(shown, 0.0) / max(float((chance**2 / noise).sum()), 1e-300))


def sides_of(shares: FloatArray, parts: Sequence[FloatArray]) -> FloatArray:
    """Return shares by condition, met first; ``parts`` are what conditions take of the cells of each column."""
    for part in parts:
        shares = np.moveaxis(np.tensordot(np.stack([part, 1 - part]), shares, axes=(1, 0)), 0, -1)
    return np.asarray(shares)


def within_cells(
    joint: FloatArray,
    parts: Sequence[FloatArray],
    column: TableColumn,
    asked: FloatArray,
    place: int,
    loud: FloatArray,
) -> float:
    """Return what one column's cells leave open of a part of a joint: how rows of the part lie within them.

    In a cell that is asked for in part the law of the other columns may leap from one neighbour's to the other's: the
    smaller part may be off by its rows times the larger distance of the cell's law from theirs, as far as the cell has
    such rows; a neighbour counts by how far its rows exceed its noise ``loud``. What its own finest cells leave
    in doubt; and the noise of how these share the cell.
    """
    mass = np.moveaxis(joint, place, 0)
    held = mass.reshape(len(mass), -1).sum(axis=1)
    for other in [own for at, own in enumerate(parts) if at != place]:
        mass = np.tensordot(mass, other, axes=(1, 0))
    law = mass / np.maximum(held, 1e-300)
    cells, heard = np.arange(len(law)), held / np.maximum(held + loud, 1e-300)
    sides = [np.minimum(cells + 1, len(law) - 1), np.maximum(cells - 1, 0)]
    part = parts[place]
    leap = np.minimum(part, 1 - part) * held * np.max([heard[at] * np.abs(law[at] - law) for at in sides], axis=0)
    most, least = np.minimum(mass, part * held), np.maximum(mass - (1 - part) * held, 0.0)
    leap = np.minimum(leap, np.maximum(most - part * mass, part * mass - least))
    doubt = float(column.gathered(column.in_doubt(asked)) @ mass)
    noise = float(column.cut_errors(asked[None, :], mass)[0])
    return math.hypot(_LEAP * float(leap.sum()) + doubt, noise)
