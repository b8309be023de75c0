"""Means of a number by groups: from draws of the table, and from each group's own counts.

Draws cover moderate differences only, whereas the group's own counts cover any difference. Let y be the group's rows in
bins of mean u, X = Σ u·y, and N the group's rows. The mean is the ratio X/N, with Fieller's (1954) interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from dpframe.estimate.axes import Axis
from dpframe.estimate.joints import Joints
from dpframe.estimate.model import Model
from dpframe.estimate.noisy_rows import EMPTY_GROUP_SHARE
from dpframe.estimate.posterior import GroupDraws
from dpframe.estimate.results import Results
from dpframe.estimate.table_column import BinMeans
from dpframe.observe.noisy_counts import through
from dpframe.observe.quantiles import NORMAL_QUANTILE, STUDENT_QUANTILE
from dpframe.spaces.arrays import FloatArray

HIDDEN_SD = 0.5
"""Threshold of the standard error of a group's own mean, in standard deviations of the number, above which the group
counts as hidden by noise (tuned; effect not measured)."""

INTERACTION_MEAN_SD = 0.2
"""Prior scale of the interaction of two keys in a group's mean, in standard deviations of the number (tuned; halving
and doubling change widths on a census by −5 and 17 %).

The prior is Student's t with three degrees of freedom. Of the interactions in 60 real tables, 95 % lie within 0.1 to
0.3 standard deviations, and next to all within the prior's 95 %, 0.64.
"""

_ROUNDING_SHARE = 1e-12
"""Share of rows that a group has at least in divisions (tolerance)."""

_MIN_VARIANCE = 1e-100
"""Least variance of a group mean in divisions (tolerance)."""


def fieller_means(
    counts: FloatArray,
    variances: FloatArray,
    sizes: tuple[FloatArray, FloatArray],
    means: FloatArray,
    spreads: FloatArray,
    z: float,
) -> Results:
    """Return the means of groups from the groups' own counts, with Fieller's intervals.

    ``counts`` and ``variances``: rows of each group by bin of the number, shape (…, bins); ``sizes``: the rows of each
    group and their variances, to which the counts are adjusted; ``means`` and ``spreads``: the mean and the variance of
    the numbers in each bin. An interval is infinite if the group may have no rows.

    >>> counts, sizes = np.array([[50.0, 50.0], [0.0, 3.0]]), (np.array([100.0, 3.0]), np.full(2, 25.0))
    >>> own = fieller_means(counts, np.full((2, 2), 16.0), sizes, np.array([0.0, 1.0]), np.zeros(2), 1.96)
    >>> own.lower.round(2).tolist(), own.upper.round(2).tolist()
    ([0.44, -inf], [0.56, inf])
    """
    rows, of_rows = sizes
    total_variance = variances.sum(axis=-1)
    weighted_mean = (variances @ means) / total_variance
    adjusted = counts + variances * ((rows - counts.sum(axis=-1)) / total_variance)[..., None]
    total = adjusted @ means
    noise = variances @ means**2 - total_variance * weighted_mean**2 + np.maximum(adjusted, 0.0) @ spreads
    square = rows**2 - z**2 * of_rows
    bounded = (square > 0) & (rows > 0)
    divisor, size = np.where(bounded, square, 1.0), np.where(rows > 0, rows, 1.0)
    centre = (total * rows - z**2 * of_rows * weighted_mean) / divisor
    product_of_ends = (total**2 - z**2 * (noise + of_rows * weighted_mean**2)) / divisor
    half = np.sqrt(np.maximum(centre**2 - product_of_ends, 0.0))
    error = np.sqrt(noise + of_rows * (total / size - weighted_mean) ** 2) / size
    half, error = (np.where(bounded, values, np.inf) for values in (half, error))
    return Results(total / size, error, centre - half, centre + half)


def position_errors(counts: FloatArray, variances: FloatArray, rows: FloatArray, reaches: FloatArray) -> FloatArray:
    """Return the errors of group means that come from unknown positions of the groups' rows within wide bins.

    A group with as large a share of a bin as all rows have is taken to lie there as all rows do. Rows beyond this share
    may lie anywhere in the bin: rare groups concentrate in a tail, whose mean is another group's.

    ``counts`` and ``variances``: rows of each group by bin, shape (…, bins), and their noise; ``rows``: rows of each
    group; ``reaches``: the mean squared distance of a bin's values from the bin's mean.

    >>> counts, rows, reaches = np.array([[90.0, 10.0], [0.0, 10.0]]), np.array([100.0, 10.0]), np.array([0.0, 4.0])
    >>> position_errors(counts, np.ones((2, 2)), rows, reaches).round(2)
    array([0.  , 1.62])
    """
    shares = counts.reshape(-1, counts.shape[-1]).sum(axis=0) / max(float(counts.sum()), 1.0)
    size = np.maximum(rows, 1.0)
    excess_shares = np.maximum(counts / size[..., None] - shares, 0.0)
    # Noise alone makes shares differ: its variance is not an excess.
    squares = np.maximum(excess_shares**2 - variances / size[..., None] ** 2, 0.0)
    return np.asarray(np.sqrt(squares @ reaches))


def cross_keys(keys: Sequence[Results], scale: float) -> Results:
    """Return the evidence of cells of several keys: the widest interval of any key, and a moderate interaction.

    Means are deviations from the overall mean. Without an interaction, the deviations of a cell's keys add up.
    ``scale`` is the scale of the interaction; see `INTERACTION_MEAN_SD`.
    """

    def cross(name: str, pool: np.ufunc) -> FloatArray:
        """Pool one array of the keys in each cell."""
        crossed: FloatArray = reduce(pool.outer, [getattr(key, name) for key in keys])
        return crossed

    interaction = STUDENT_QUANTILE * scale
    # Standard errors are half of a 95 % interval over the normal quantile, for a Student interaction, too.
    errors = np.hypot(cross("std_error", np.maximum), interaction / NORMAL_QUANTILE)
    lower, upper = cross("lower", np.minimum) - interaction, cross("upper", np.maximum) + interaction
    return Results(cross("estimate", np.add), errors, lower, upper)


@dataclass(frozen=True, eq=False)
class GroupMeans:
    """Means of a number by cell of some keys, less the overall mean, in codes.

    ``fit`` are the fitted means, and ``draws`` posterior draws of the table's means. ``own`` is the evidence of each
    group's own counts, within the means that a group of its size can have. ``chance`` is the sampling variance of a
    group's mean about its population's mean. ``assumes`` is True if no table has all of the columns, so that their
    interaction is assumed to be moderate.
    """

    fit: FloatArray
    draws: GroupDraws
    own: Results
    chance: FloatArray
    assumes: bool


def group_means(joints: Joints, keys: Sequence[Axis], column: str, z: float) -> GroupMeans | None:
    """Return the means of a number in every cell of some keys, or None if a pair was not measured.

    Every row of a bin has the bin's mean, from the number's levels and its sum.
    """
    names = [*(axis.name for axis in keys), column]
    law = joints.tables.law(column)
    if law is None or joints.tables.source_of(names) != "tables":
        return None
    model = joints.models.around(names)
    bins = BinMeans.of(model.columns[column], law, model.fine(column))
    bins = replace(bins, means=bins.means - float(law.moments[0]))
    shares = model.joint(names)
    everybody = shares.reshape(-1, len(bins.means)).sum(axis=0)
    for i, axis in enumerate(keys):
        shares = through(model.columns[axis.name].onto(axis), shares, i)
    shares = shares + EMPTY_GROUP_SHARE * everybody
    group_shares = np.maximum(shares @ bins.present, _ROUNDING_SHARE)
    means, squares = (
        shares @ (values * bins.present) / group_shares for values in (bins.means, bins.spreads + bins.means**2)
    )
    chance = np.maximum(squares - means**2, 0.0) / np.maximum(group_shares * joints.source.rows, 1.0)
    overall_mean = everybody @ (bins.means * bins.present) / np.maximum(everybody @ bins.present, _ROUNDING_SHARE)
    posterior = joints.posterior.conditioned(names)
    draws = posterior.means({axis.name: model.columns[axis.name].axis.overlap_with(axis) for axis in keys}, column)
    has_key_table = model.known(names) is not None
    if has_key_table:
        own = _table_evidence(model, keys, column, bins, z)
    else:
        key_evidence = [_table_evidence(model, [axis], column, bins, z) for axis in keys]
        own = cross_keys(key_evidence, INTERACTION_MEAN_SD * draws.sd)
    # A group that may be empty may have any mean within the bounds.
    lower, upper = np.where(np.isnan(own.lower), -np.inf, own.lower), np.where(np.isnan(own.upper), np.inf, own.upper)
    within_bounds = np.clip([own.estimate, lower, upper], draws.lower, draws.upper)
    own = Results(within_bounds[0], own.std_error, *within_bounds[1:])
    return GroupMeans(means - overall_mean, draws, own, chance, not has_key_table)


def _table_evidence(model: Model, keys: Sequence[Axis], column: str, bins: BinMeans, z: float) -> Results:
    """Return evidence of the mean in each cell of some keys, from the table of the keys and a number.

    The number's own counts, with less noise, correct the table's sums over all cells of the keys.
    """
    names = [axis.name for axis in keys]
    table, sizes, of_number = model.known([*names, column]), model.known(names), model.known([column])
    assert table is not None and sizes is not None
    for i, axis in enumerate(keys):
        onto = model.columns[axis.name].onto(axis)
        table, sizes = table.onto(i, onto), sizes.onto(i, onto)
    counts, variances, rows, of_rows = table.counts, table.variances, sizes.counts, sizes.variances
    if of_number is not None:
        key_axes = tuple(range(len(keys)))
        gain = variances / (variances.sum(axis=key_axes) + of_number.variances)
        counts, variances = counts - gain * (counts.sum(axis=key_axes) - of_number.counts), variances * (1 - gain)
    has_value = bins.present > 0
    if not has_value.all():
        # Rows with a null have no part in a mean, so they leave the group's size.
        rows = rows - counts[..., ~has_value].sum(axis=-1)
        of_rows = of_rows + variances[..., ~has_value].sum(axis=-1)
    counts, variances = counts[..., has_value], variances[..., has_value]
    means, spreads, reaches = bins.means[has_value], bins.spreads[has_value], bins.reaches[has_value]
    own = fieller_means(counts, variances, (rows, of_rows), means, spreads, z)
    return own.with_variance(position_errors(counts, variances, rows, reaches) ** 2, z)


def combine_means(
    draws: FloatArray, alternatives: Sequence[FloatArray | float], rows: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Return the combination of means of draws with other estimates of group means that has the least squared error.

    The prior of the draws is wide, so that their means of small groups are noisy. ``alternatives``, such as the mean of
    all rows or a fit, have unknown biases. The variance of an alternative is the variance of the draws, times the mean
    squared distance from the means of the draws over all groups, in standard deviations (empirical Bayes: James and
    Stein 1961). ``rows`` are means by released rows and their variances. The first axis of ``draws`` is the draw.

    >>> draws, no_rows = np.array([[-2.0, 0.0], [0.0, 2.0]]), (np.zeros(2), np.full(2, np.inf))
    >>> combine_means(draws, [0.0], no_rows).round(2).tolist()
    [-0.33, 0.33]
    """
    means, variances = draws.mean(axis=0), np.maximum(draws.var(axis=0, ddof=1), _MIN_VARIANCE)
    row_means, row_variances = rows
    row_weights = variances / np.maximum(row_variances, _MIN_VARIANCE)
    # The mean of a group without rows is not finite: 0 · inf would be NaN.
    total, sums = 1 + row_weights, means + np.where(row_weights > 0, row_weights * row_means, 0.0)
    for alternative in alternatives:
        weight = 1 / max(float(((means - alternative) ** 2 / variances).mean()), _MIN_VARIANCE)
        total, sums = total + weight, sums + weight * alternative
    return np.asarray(sums / total)
