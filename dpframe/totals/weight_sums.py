"""Sums of weights by cell: whole numbers of steps from an offset, which one row moves by a bounded vector.

A row of weight w adds u = scale·(code of w − offset) to the sum of its cell. A replaced row moves one sum by u' − u, or
takes u from one sum and adds u' to another. With an offset of 1 − 1/√2 of the range both are at most the range long,
so that sums need no more noise than at an offset of 0 a single sum does, and less than two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dpframe.noise.gaussian import Ints
from dpframe.spaces import Space
from dpframe.totals.counts import Codes, Counter, Places

_LEAST_RANGE = 1 << 12
"""Least range of one row's steps: the law of noise of such sums is near the normal one (tolerance)."""


@dataclass(frozen=True)
class WeightSteps:
    """The steps u of a column's weights: ``offset`` is the code at which u is 0, ``scale`` the steps of one code."""

    offset: int
    scale: int
    span: int
    """Largest ℓ2 norm of the vector by which a replaced row moves the sums of all cells."""

    @classmethod
    def of(cls, space: Space) -> WeightSteps:
        """Return the steps of a column of numbers, from its bounds alone."""
        last = space.values - 1
        offset, scale = math.ceil((1 - math.sqrt(0.5)) * last), max(1, math.ceil(_LEAST_RANGE / max(last, 1)))
        farthest = scale * max(offset, last - offset)
        # The root of twice the square, rounded up: both of two cells may move by the farthest step.
        return cls(offset, scale, max(scale * last, math.isqrt(2 * farthest**2 - 1) + 1) if last else 1)

    def steps(self, codes: Codes) -> Ints:
        """Return u for codes of values."""
        return self.scale * (codes.astype(np.int64) - self.offset)


@dataclass
class WeightSums(Counter):
    """The sums of the steps of weights by the cells of another column; a null weight adds nothing."""

    space: Space
    cells: int
    counts: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.cells, dtype=np.int64)

    def add(self, codes: Codes, cells: Places) -> None:
        """Add up rows by their cells."""
        has_weight = codes < self.space.values
        steps = WeightSteps.of(self.space).steps(codes[has_weight])
        places, rows = np.unique(cells[has_weight].astype(np.int64), return_inverse=True)
        # Floats would lose digits of long sums: whole numbers are added up in sorted order.
        order = np.argsort(rows, kind="stable")
        starts = np.searchsorted(rows[order], np.arange(len(places)))
        if len(places):
            self.counts[places] += np.add.reduceat(steps[order], starts)
