"""How much a model can learn from rows that were randomised one by one, from a plan alone."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from dpframe.errors import DpframeWarning, warn
from dpframe.estimate.axes import make_axis
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan

_BINS = 32
"""Bins of a number in which its channel is looked at (tolerance)."""

_MOST_JUDGED_VALUES = 512
"""Values of a listed column up to which its channel is looked at (limit of time)."""

_LEAST_AUC = 0.55
"""Area under the curve that the best model of randomised rows has to reach (limit of a message)."""


def warn_of_faint_rows(plan: Plan) -> None:
    """Warn if no model can learn from the rows of a plan that keeps their order.

    The warning depends on public facts only: the plan's channels, which follow from ε, the spaces and the number of
    columns, and the number of rows.

    *Prediction.* The maximal correlation of X and Y is the largest correlation of any function of X with any function
    of Y (Hirschfeld, Gebelein, Rényi). Columns are randomised independently, so that the maximal correlation ρ of a row
    and its release is that of the best column (Witsenhausen 1975), for independent columns. A label depends on the
    release only by way of the row: no score of the release has a correlation above ρ with the label, whatever the model
    and the number of rows. For scores with normal laws of one variance in both classes, equally frequent, the area
    under the curve is then at most Φ(ρ·√(2/(1 − ρ²))).

    *Training.* A linear model of d columns explains d/n of the variance of n labels by chance. Below ρ² = d/n, what
    the rows can show is less than that.

    Plans whose rows hold exact columns, sets, vectors or lists of many values are not judged.
    """
    correlation = _find_best_correlation(plan)
    if correlation is None or correlation >= 1:
        return
    best_auc = NormalDist().cdf(correlation * math.sqrt(2 / (1 - correlation**2)))
    if best_auc >= _LEAST_AUC and correlation**2 * (plan.n or math.inf) >= len(plan.columns):
        return
    warn(
        f"no model learns from rows in order at epsilon={plan.epsilon:.4g}: AUC at most {best_auc:.2f}. Sanitize once, "
        "the label as a column, and train on it: dpf.sanitize(table, epsilon=…).dp.synthesize()",
        DpframeWarning,
    )


def _find_best_correlation(plan: Plan) -> float | None:
    """Return the largest maximal correlation of a column and its release; None if a column is not judged."""
    spaces = [column.space for column in plan.columns]
    if plan.passthrough or not spaces or any(space.holds_sets or space.holds_vectors for space in spaces):
        return None
    if any(space.is_listed and space.values > _MOST_JUDGED_VALUES for space in spaces):
        return None
    signals = [group.mechanism.table.signal for group in plan.groups]
    grouped_names = {name for group in plan.groups for name in group.names}
    return max([*signals, *(_find_correlation(c) for c in plan.columns if c.name not in grouped_names)])


def _find_correlation(column: Column) -> float:
    """Return the maximal correlation of a column and its release, for values that are spread over its space evenly."""
    axis = make_axis(column, _BINS if column.space.values > _BINS and not column.space.is_listed else None)
    joint = axis.channel * axis.law
    released = joint.sum(axis=1)
    is_reached = released > 0
    scaled = joint[is_reached] / np.sqrt(np.outer(released[is_reached], axis.law))
    # The first singular value is 1, of constants.
    values = np.linalg.svd(scaled, compute_uv=False)
    return float(values[1]) if len(values) > 1 else 0.0
