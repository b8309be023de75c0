"""The part of each cell of a line that lies within a range, if the cell's rows are spread evenly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpframe.spaces.arrays import FloatArray


def overlap_cells(ends: npt.ArrayLike, starts: npt.ArrayLike, stops: npt.ArrayLike) -> FloatArray:
    """Return the part of each cell between ``ends`` that lies within each range, shape (ranges, cells).

    A cell without end lies within a range as a whole or not at all, a cell without width in none.

    >>> overlap_cells([0, 2, 6], [1], [4]).tolist()
    [[0.5, 0.5]]
    >>> overlap_cells([-np.inf, 0, 4, np.inf], [-np.inf], [1]).tolist()
    [[1.0, 0.25, 0.0]]
    """
    edges, first, last = map(np.asarray, (ends, starts, stops))
    # Whole numbers stay exact; floats are halved, as the difference of two may be beyond all floats.
    scale = 0.5 if np.result_type(edges, first, last).kind == "f" else 1
    edges, first, last = edges * scale, first * scale, last * scale
    with np.errstate(invalid="ignore", over="ignore"):  # cells may be as narrow as the least floats
        widths = np.diff(edges)
        shared = np.minimum.outer(last, edges[1:]) - np.maximum.outer(first, edges[:-1])
        parts = np.where(np.isfinite(widths), shared / np.where(widths > 0, widths, np.inf), shared == widths)
    return np.clip(parts, 0.0, 1.0)
