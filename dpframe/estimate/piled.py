"""Rows that seem to be clipped to a bound that was declared: far more lie at it than close to it.

Some heaps at an end are natural, and are passed over: zeros and ones at the lower bound, both ends of shares and of
percentages, and those of short scales, as ratings are.
"""

from __future__ import annotations

import numpy as np

from dpframe.estimate.evidence.law import Law
from dpframe.spaces import Space

_SHARE, _SURE = 0.02, 4.0
"""Share of the rows at a bound from which on it is said, and the standard errors by which there are more."""

_STEEP = 4.0
"""How many times as many rows lie at the bound as so many values next to it have."""

_NEXT, _CODES = 1 / 16, 3
"""Part of the range that is next to a bound, and codes at the least."""

_SHORT = 20
"""Values of a scale up to which its ends are answers like others."""

_NATURAL = (0.0, 1.0)
_SCALES = ((0.0, 1.0), (0.0, 100.0))


def piles_at_bounds(law: Law, space: Space) -> tuple[float, float]:
    """Return the shares of the rows that seem clipped to the lower and to the upper bound; 0 where none do.

    Rows by themselves, without measured tables, do not show it.

    Examples
    --------
    >>> from dpframe.estimate.evidence.number_law import NumberLaw
    >>> from dpframe.plan.measures import Measure, MeasuredTable
    >>> from dpframe.spaces import Integer
    >>> counts = np.array([50] * 24 + [600])
    >>> table = MeasuredTable(Measure("one_way", ("x",), 4.0), (None,), counts)
    >>> [round(share, 2) for share in piles_at_bounds(NumberLaw.of(Integer(10, 34), 1_800.0, table), Integer(10, 34))]
    [0.0, 0.33]
    """
    ends = space.numbers(np.array([0, space.values - 1]))
    if law.source != "tables" or space.values <= _SHORT or ends is None or space.is_time:
        return 0.0, 0.0
    low, high = map(float, ends)
    scale = (low, high) in _SCALES
    return (
        0.0 if low in _NATURAL or scale else _pile(law, space, lower=True),
        0.0 if scale else _pile(law, space, lower=False),
    )


def _pile(law: Law, space: Space, lower: bool) -> float:
    cells, last = law.bins, space.values
    # The bound's own cell, and those next to it.
    cell = 0 if lower else cells - 1
    start, stop = int(law.edges[cell]), int(law.edges[cell + 1])
    reach = max(round(_NEXT * last), _CODES)
    near = (stop, stop + reach) if lower else (start - reach, start)
    parts = np.zeros((2, law.cells))
    parts[0, cell] = 1.0
    held = np.minimum(law.edges[1:], near[1]) - np.maximum(law.edges[:-1], near[0])
    parts[1, :cells] = np.clip(held / law.widths, 0.0, 1.0)
    (share, close), (error, unsure) = law.parts_of(parts, 0.0, 1.0)[:2]
    alike = _STEEP * max(close + unsure, 0.0) * min((stop - start) / reach, 1.0)
    return float(share) if share - _SURE * error > max(_SHARE, alike) else 0.0
