"""Private inference of column spaces: noisy counts, paid for from the budget, in place of a look at the data."""

from dpframe.measured import Measured
from dpframe.private.core import MOST_ITEMS, Inference, infer_privately

__all__ = ["MOST_ITEMS", "Inference", "Measured", "infer_privately"]
