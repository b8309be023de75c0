"""How far to go from the mixture to the simple estimate of a table, by the coupled bootstrap.

Where noise is weak the simple estimate is nearer to the truth than any mixture, where it is strong the mixture is.
With m and s their counts, fitted to one half of a coupled draw, and y the other half, independent of both, the step
⟨y − m, s − m⟩ / |s − m|² from m to s has the least expected squared error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpframe.arrays import FloatArray
from dpframe.estimate.tables.tables import Table

PULL = 4.0
"""Precision with which a table's own step is drawn to that of all, beside its own precision, both in units of 1/σ²."""


@dataclass(frozen=True, eq=False)
class Half:
    """Counts of one table: by the mixture and by the simple estimate of one half of a draw, and the other half."""

    mixture: FloatArray
    simple: FloatArray
    held: Table

    along: float = field(init=False)
    length: float = field(init=False)

    def __post_init__(self) -> None:
        step, precision = self.simple - self.mixture, 1 / self.held.variances
        object.__setattr__(self, "along", float(np.sum((self.held.counts - self.mixture) * step * precision)))
        object.__setattr__(self, "length", float(np.sum(step * step * precision)))


def common_step(halves: Iterable[Half]) -> float:
    """Return the step of least squares over all tables, between 0 and 1.

    >>> held = Table((0,), np.array([4.0, 6.0]), 1.0)
    >>> common_step([Half(np.array([5.0, 5.0]), np.array([3.0, 7.0]), held)])
    0.5
    """
    known = list(halves)
    length = sum(half.length for half in known)
    return float(np.clip(sum(half.along for half in known) / length, 0, 1)) if length > 0 else 0.0


def own_step(halves: Sequence[Half], common: float) -> float:
    """Return one table's step, drawn to the common one.

    Weighted by precision ``along`` has the variance ``length``: a step's own precision is that length.
    """
    along = sum(half.along for half in halves) + PULL * len(halves) * common
    length = sum(half.length for half in halves) + PULL * len(halves)
    return float(np.clip(along / length, 0, 1))
