"""Numbers of few digits, which every machine finds alike.

The last digits of a sum or an exponential depend on the processor: BLAS adds in another order on each, vector
instructions round otherwise. A plan's digest, and so the noise under a key, depends on every digit of the plan.
"""

from __future__ import annotations

import math

_DIGITS = 24
"""Binary digits: 1e-7 of a number is lost, and two machines that differ by 1e-14 rarely round to two numbers."""


def fewer_digits_down(number: float) -> float:
    """Return a positive number rounded down to 24 binary digits.

    Examples
    --------
    >>> fewer_digits_down(0.1) <= 0.1, fewer_digits_down(0.1) == fewer_digits_down(0.1 + 1e-15)
    (True, True)
    """
    mantissa, exponent = math.frexp(number)
    return math.ldexp(math.floor(math.ldexp(mantissa, _DIGITS)), exponent - _DIGITS)


def fewer_digits_up(number: float) -> float:
    """Return a positive number rounded up to 24 binary digits.

    Examples
    --------
    >>> fewer_digits_up(0.1) >= 0.1, fewer_digits_up(0.1) == fewer_digits_up(0.1 - 1e-15)
    (True, True)
    """
    return -fewer_digits_down(-number)
