"""Names of the arrays that most rooms pass around, for annotations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
"""Words of 64 bits: random, of a bit set, or of a digest."""
