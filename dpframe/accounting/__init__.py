"""The mathematics of the privacy accountant: the loss of a release of rows, as pure functions of public numbers.

A column enters as a `ColumnLoss`, its pure loss ε_c and its blanket mass γ_c, and nothing else; a column of sets as
`BitsLoss` or `ItemsLoss`, which know more. Three levers:

- `composition`: the columns of one unshuffled row (`composed_delta`, `composed_epsilon`), and central noise;
- `secret_order`: n such rows, shuffled (`shuffled_delta`);
- `sampling`: m of n rows, the choice secret, outside the shuffle (`sampled`, `unsampled`, `best_sample`).

All losses of a release compose in one currency: `gaussian_dp`, with `discrete_gaussian` for noise on totals,
`secret_order` and `composition` for the rows, and `undercurve`, the certificate that a profile lies below one.

Every value is a bound from above. `dominating` proves which law dominates all columns of a given (ε_c, γ_c),
`composition.row_law` multiplies the columns, `positive_mean` bounds the resulting mean and holds the error budget.
"""

from dpframe.accounting.composition import composed_delta, composed_epsilon
from dpframe.accounting.dominating import BitsLoss, Bound, ColumnLoss, ItemsLoss
from dpframe.accounting.secret_order import best_sample, sampled, shuffled_delta, unsampled

__all__ = [
    "BitsLoss",
    "Bound",
    "ColumnLoss",
    "ItemsLoss",
    "best_sample",
    "composed_delta",
    "composed_epsilon",
    "sampled",
    "shuffled_delta",
    "unsampled",
]
