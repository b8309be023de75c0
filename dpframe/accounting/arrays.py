"""The name of the arrays of the accountant's mathematics."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
