"""Pairs of items that sets hold: from measured pairs, rows, and what supports and sizes of sets make likely.

The rows' unbiased count of a pair of items is far noisier than the items' supports s, where those were measured. Pairs
of items that people hold together by chance have about f·s_i·s_j, with one f for all that shows how much sizes of sets
vary; measured sizes say what takes its place (`SizeTable.chance`). So pairs are p_ij = f·s_i·s_j + ρ·v_ij·z_ij, z
standard normal and v about f·s_i·s_j. What was seen of all pairs shows how large ρ is; some pairs lie 1 to 16 times v
apart, as far as both supports allow. With little evidence pairs are near the product, with much they are as seen.
This is empirical Bayes (Efron and Morris 1975), ρ averaged over its posterior with a half-normal prior. Its errors are
right of pairs as they come, and too small of the few that lie farthest from chance. So each interval is right by
itself: it reaches beyond what was seen of the pair, and to all that both supports allow where nothing was.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpframe.estimate.evidence.combine import shrunk
from dpframe.estimate.sets import PRIOR, ItemTable
from dpframe.observe.quantiles import NORMAL_QUANTILE, ONE_SIDED_QUANTILE
from dpframe.plan.threads import remember
from dpframe.spaces.arrays import FloatArray

FAR = 0.2
"""Share of pairs that may differ from what supports make likely by about as much as that is: bread and butter (tuned;
effect below).

With half of it nine tenths of the 95 % intervals of a grocer's frequent pairs hold the truth.
"""

APART = 0.2
"""Standard deviation of ρ's prior where sizes were measured: of the grocer's 20 most frequent items ρ is 0.25 (tuned;
half and twice it change widths on a census by less than 1 %)."""

RARE = 0.75
"""Power of what is likely by which pairs differ from it: rare ones by more of theirs than frequent ones (tuned; half
and twice it change widths on a census by less than 1 %)."""

BEYOND = 1.41
"""Standard errors of what was seen of a pair by which its interval reaches beyond it, so that .92 hold of any pair
(tuned; effect below).

On nine kinds of baskets .95 or more hold in every class of pairs by how far these are from chance. Without, .79 and .74
do of measured pairs more than five times as frequent as by chance, and .60 of others.
"""

_LEAST = 1e-12
"""Least variance, and least count that is divided by (tolerance)."""

_KEPT = 8
"""Fits that are kept (limit of memory)."""

_kept: dict[bytes, tuple[FloatArray, FloatArray]] = {}


@dataclass(frozen=True, eq=False)
class PairTable:
    """Measured counts of the rows that hold both of each pair of items."""

    items: int
    table: ItemTable

    def beside(
        self, rows: FloatArray, spread: FloatArray, places: npt.NDArray[np.intp], others: npt.NDArray[np.intp], n: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return shares and variances of pairs from these and the rows' own, by inverse variance, of n rows.

        ``places`` and ``others`` have the items of each pair.
        """
        low, high = np.minimum(places, others), np.maximum(places, others)
        at = low * self.items - low * (low + 1) // 2 + high - low - 1
        counts, own = self.table.counts[at] / n, self.table.variances[at] / n**2
        precise = np.where(np.isfinite(spread), 1 / np.maximum(spread, _LEAST), 0.0)
        variance = 1 / (precise + 1 / np.maximum(own, _LEAST))
        return variance * (np.where(precise > 0, rows, 0.0) * precise + counts / np.maximum(own, _LEAST)), variance


def likely_pairs(
    seen: FloatArray,
    spread: FloatArray,
    first: tuple[FloatArray, FloatArray],
    second: tuple[FloatArray, FloatArray],
    chance: FloatArray | None = None,
    alike: float = PRIOR,
) -> tuple[FloatArray, FloatArray]:
    """Return shares of pairs from unbiased ones and both items' supports, with their variances.

    What was fitted in this process is known.

    ``seen`` and ``spread``: unbiased shares of sets that hold both items, and their variances; ``first`` and
    ``second``: supports of either item, and their variances; ``chance`` and ``alike``: what supports make likely, by
    default their products, and the standard deviation of f about 1.
    """
    given = (seen, spread, *first, *second, *(() if chance is None else (chance,)))
    digest = hashlib.sha256(repr((seen.shape, alike)).encode())
    for values in given:
        digest.update(np.ascontiguousarray(values).tobytes())
    key = digest.digest()
    before = _kept.get(key)
    if before is not None:
        return remember(_kept, key, before, _KEPT)
    (s, v), (t, w) = ((np.clip(x, 0.0, 1.0), y) for x, y in (first, second))
    known = np.isfinite(spread)
    precision = np.where(known, 1 / np.maximum(spread, _LEAST), 0.0)
    values = np.where(known, seen, 0.0)
    product = s * t if chance is None else chance

    def limit(errors: float) -> FloatArray:
        return np.minimum(s + errors * np.sqrt(v), t + errors * np.sqrt(w))

    # One factor for all pairs, near 1 where these shares do not show it.
    weight = float(precision @ product**2) + alike**-2
    factor = max((float(precision @ (values * product)) + alike**-2) / weight, 0.0)
    centre = np.minimum(factor * product, limit(1))
    unsure = factor**2 * (t**2 * v + s**2 * w + v * w)
    # Items whose supports noise hides meet by as much as their errors allow.
    level = np.sqrt(centre**2 + unsure)
    typical = float(level @ level) / max(float(level.sum()), _LEAST)
    scales = level**RARE * typical ** (1 - RARE)
    moved, left = shrunk(
        np.where(known, seen - centre, np.nan),
        spread,
        scales,
        PRIOR if chance is None else APART,
        FAR,
        np.maximum(limit(1) - centre, 0.0) / 2,
    )
    apart = np.where(known, values - centre, 0.0)
    gain = np.divide(moved, apart, out=np.zeros_like(moved), where=apart != 0)
    estimate = np.clip(centre + moved, 0.0, limit(1))
    variance = left + (1 - gain) ** 2 * (product**2 / weight + unsure)
    highest = np.maximum(limit(ONE_SIDED_QUANTILE), estimate)
    # Noise larger than all that is possible tells nothing.
    reach = np.where(known & (spread < highest**2), BEYOND * np.sqrt(spread), np.inf)
    below = estimate - np.clip(values - reach, 0.0, estimate)
    above = np.clip(values + reach, estimate, highest) - estimate
    found = estimate, np.maximum(variance, (np.maximum(below, above) / NORMAL_QUANTILE) ** 2)
    return remember(_kept, key, found, _KEPT)
