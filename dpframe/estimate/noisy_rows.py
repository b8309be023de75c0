"""How far off a fit to noisy rows may be: what it shrinks to independence, and rows that noise hides.

Releases without measured tables have only their rows, whose unbiased counts say how far columns may be from the
independence that a fit shrinks them to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from dpframe.estimate.evidence.number_law import truncated_spread
from dpframe.estimate.tables.guard import interaction_variance
from dpframe.observe.significance import DETECTION_SE, HINT_SE
from dpframe.spaces.arrays import FloatArray

OF_TWO, _OF_THREE = 1.0, 0.2
"""Standard deviations of log odds ratios of two columns, and of three given their pairs, about, in real tables (tuned;
effect not measured).

With 0.2 the cells of three columns in samples of 600 to 32,561 rows of twenty tables differ from what their true pairs
leave likeliest by 0.9 to 1.2 of the root of `interaction_variance`.
"""

_STRONGEST = 2.0
"""Standard deviation of log odds ratios from which on cells are open as if any of their columns' rows were in them
(tuned; effect not measured)."""

_TOGETHER = 0.15
"""Part of the most rows that a cell may have, by its columns, that noisy rows leave open at least (tuned; effect
below).

Rare values are often of the same people: workclass and occupation are unknown of the same rows. With no more than
independent columns have, 0.8 % of the cells of Adult's pairs are more than five errors off, with this 0.4 %, and errors
of ordinary pairs are the same.
"""

_FEWEST = 1e-9
"""Share of rows below which a group is empty (tolerance)."""


Counted = Callable[[Sequence[int]], tuple[FloatArray, FloatArray] | None]
"""Unbiased counts of the cells of some of a joint's columns, by place, and their variances; None without any."""


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
        odds_spread(counts, rows * crossed(margins), noise, surprise) for surprise in (HINT_SE, -HINT_SE / 2, -HINT_SE)
    )
    moved = interaction_variance(shares * rows, 2, min(likely, max(sure, OF_TWO)))
    drawn = noise * moved / (noise + moved) / rows**2
    margins, odds = [shares.sum(axis=rest) for rest in others], math.exp(min(sure, _STRONGEST))
    apart = counts / rows - shares
    off = np.maximum(np.abs(apart) - DETECTION_SE * np.sqrt(noise) / rows, 0.0)
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


def odds_spread(counts: FloatArray, apart: FloatArray, noise: FloatArray, surprise: float = HINT_SE) -> float:
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
