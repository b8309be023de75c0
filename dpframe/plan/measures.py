"""Tables that are measured centrally beside the rows: what a plan asks for, and what a release holds of them.

A plan says what is measured and with how much noise, which is public before any data is seen. The noisy counts belong
to one release: they stand in its description, under its digest, and a plan is used again without them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

KINDS = ("one_way", "joint", "sum", "items")


@dataclass(frozen=True)
class Measure:
    """One table to measure.

    Parameters
    ----------
    kind
        ``"one_way"``: counts of a column's values, or of a number's cells of equal width; ``"joint"``: counts of two or
        more columns, numbers cut at quantiles of their noisy one-way; ``"sum"``: the sum of a number's codes, of the
        rows that are not null; ``"items"``: in how many rows each item of a set lies, rows cut to ``most`` items.
    columns
        Names, one for all kinds but joints.
    sigma2
        σ² of the discrete Gaussian noise on every count, or on the sum.
    most
        Cells of a number, in one-ways and joints; items of a row.
    """

    kind: str
    columns: tuple[str, ...]
    sigma2: float
    most: int = 0


@dataclass(frozen=True)
class MeasuredTable:
    """Noisy counts of one measure, as a release holds them.

    ``starts`` has for every column the first code of each cell, ascending from 0, or None where every value is a cell.
    Null, where the column's space has it, is the last cell in either case. ``counts`` has a dimension for each
    column; of a sum it has the one number, of items one for each item. Counts may be negative.
    """

    measure: Measure
    starts: tuple[tuple[int, ...] | None, ...]
    counts: npt.NDArray[np.int64]
