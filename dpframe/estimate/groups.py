"""Means of a number by groups, from a fit and from each group's own counts.

A fit shrinks small groups to what all rows are like, and its draws allow for moderate differences only. A group's own
counts hold for any: with X = Σ u·y of the rows y in bins of mean u, and N rows of the group, its mean is the ratio X/N,
which has Fieller's (1954) interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpframe.observe.quantiles import NORMAL_QUANTILE, STUDENT_QUANTILE
from dpframe.spaces.arrays import FloatArray

HIDDEN_SD = 0.5
"""Standard error of a group's own mean, in standard deviations of the number, from which on noise hides the group
(tuned; effect not measured)."""

INTERACTION_MEAN_SD = 0.16
"""Scale of the shift of a group's mean by two keys that no table shows, in standard deviations of the number (tuned;
half and twice it change widths on a census by −5 and 17 %).

The shift is Student's with three degrees of freedom.
"""


@dataclass(frozen=True, eq=False)
class OwnEvidence:
    """What the counts of each group say of its mean by themselves: a mean, its standard error, and an interval."""

    estimate: FloatArray
    lower: FloatArray
    upper: FloatArray
    std_error: FloatArray

    @classmethod
    def of(
        cls,
        counts: FloatArray,
        variances: FloatArray,
        sizes: tuple[FloatArray, FloatArray],
        means: FloatArray,
        spreads: FloatArray,
        z: float,
    ) -> OwnEvidence:
        """Return Fieller's intervals of the means of groups.

        ``counts`` and ``variances``: rows of each group by bin of the number, shape (…, bins); ``sizes``: the rows of
        each group and their variances, to which the counts are adjusted; ``means`` and ``spreads``: the mean and the
        variance of the numbers in each bin. An interval is without ends if the group may have no rows.

        >>> counts, sizes = np.array([[50.0, 50.0], [0.0, 3.0]]), (np.array([100.0, 3.0]), np.full(2, 25.0))
        >>> own = OwnEvidence.of(counts, np.full((2, 2), 16.0), sizes, np.array([0.0, 1.0]), np.zeros(2), 1.96)
        >>> own.lower.round(2).tolist(), own.upper.round(2).tolist()
        ([0.44, -inf], [0.56, inf])
        """
        rows, of_rows = sizes
        whole = variances.sum(axis=-1)
        pull = (variances @ means) / whole
        adjusted = counts + variances * ((rows - counts.sum(axis=-1)) / whole)[..., None]
        total = adjusted @ means
        noise = variances @ means**2 - whole * pull**2 + np.maximum(adjusted, 0.0) @ spreads
        square = rows**2 - z**2 * of_rows
        bounded = (square > 0) & (rows > 0)
        safe, size = np.where(bounded, square, 1.0), np.where(rows > 0, rows, 1.0)
        middle = (total * rows - z**2 * of_rows * pull) / safe
        rest = (total**2 - z**2 * (noise + of_rows * pull**2)) / safe
        half = np.sqrt(np.maximum(middle**2 - rest, 0.0))
        error = np.sqrt(noise + of_rows * (total / size - pull) ** 2) / size
        return cls(
            total / size,
            np.where(bounded, middle - half, -np.inf),
            np.where(bounded, middle + half, np.inf),
            np.where(bounded, error, np.inf),
        )

    @classmethod
    def of_several_keys(cls, keys: Sequence[OwnEvidence], scale: float) -> OwnEvidence:
        """Return the evidence of cells of several keys from that of each key: the worst, and a moderate interaction.

        Means are less that of all rows, so that without an interaction those of a cell's keys add up. ``scale`` is the
        scale of the interaction; see `INTERACTION_MEAN_SD`.
        """
        shape = [len(one.estimate) for one in keys]

        def spread(name: str) -> list[FloatArray]:
            others = [[place for place in range(len(keys)) if place != own] for own in range(len(keys))]
            values = [np.expand_dims(getattr(one, name), axes) for one, axes in zip(keys, others, strict=True)]
            return [np.broadcast_to(value, shape) for value in values]

        more = STUDENT_QUANTILE * scale
        lower, upper = np.min(spread("lower"), axis=0) - more, np.max(spread("upper"), axis=0) + more
        # Half of a 95 % interval of Student's law, in standard errors of the normal one.
        errors = np.hypot(np.max(spread("std_error"), axis=0), more / NORMAL_QUANTILE)
        return cls(np.sum(spread("estimate"), axis=0), lower, upper, errors)

    def less(self, mean: float) -> OwnEvidence:
        """Return the evidence of the means less a number."""
        return OwnEvidence(self.estimate - mean, self.lower - mean, self.upper - mean, self.std_error)


@dataclass(frozen=True, eq=False)
class GroupMeans:
    """Means of a number by cell of some keys, less that of all rows, in codes.

    ``estimate`` is the fit's and ``noise`` the variance that the noise of counts gives it; ``draws`` are draws of the
    original table's means, the first axis; ``own`` is each group's own evidence. ``chance`` is the variance of the mean
    of a group's rows about that of their population. ``assumes`` says that no table holds all of the columns, so that
    their interaction is assumed to be moderate.
    """

    estimate: FloatArray
    noise: FloatArray
    draws: FloatArray
    own: OwnEvidence
    chance: FloatArray
    assumes: bool
