"""The integers of randomised response, and so of every null flag."""

from __future__ import annotations

from dpframe.accounting.loss import ResponseLoss, response_probability
from dpframe.errors import ParameterError
from dpframe.noise.tables import ResponseTable

_NARROW_CATEGORIES = 1001
_NARROW_THRESHOLD = 1 << 16


def response_table(size: int, epsilon: float, delta: float = 0.0) -> ResponseTable:
    """Return the integer table of optimal randomised response, its certified loss at most (ε, δ).

    32-bit words serve while they resolve threshold and ε to about 2^-16 (small size, moderate ε), 64-bit
    words otherwise.

    Raises
    ------
    ParameterError
        If ε is too small for any 64-bit table of this size that is not plain noise.
    """
    threshold = response_probability(size, epsilon, delta, 32)
    table = ResponseTable(size, threshold, 32)
    resolved = threshold * min(1.0, epsilon) >= _NARROW_THRESHOLD and table.keep >= threshold
    if size > _NARROW_CATEGORIES or not resolved:
        threshold = min(response_probability(size, epsilon, delta, 64), (1 << 64) // size)
        table = ResponseTable(size, threshold, 64)
    if size > 1 and (table.keep == threshold or response_loss(table).delta(epsilon) > delta):
        raise ParameterError(f"epsilon={epsilon} is too small for {size} categories; give it a larger share")
    return table


def response_loss(table: ResponseTable) -> ResponseLoss:
    """Return the exact loss |ln(keep/t)|, and δ(ε) by Theorem 8."""
    return ResponseLoss(table.keep, table.threshold, 1 << table.bits)
