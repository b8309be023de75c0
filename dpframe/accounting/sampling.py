"""Sampling m of n rows, uniformly and without replacement, the choice secret; it happens outside the shuffle.

A neighbour's differing row is in the sample with probability m/n, and otherwise nothing differs. So an (ε₁, δ₁)
release of the sample is (ln(1 + (m/n)(e^ε₁ − 1)), (m/n)·δ₁)-private for the table (Balle–Barthe–Gaboardi 2018,
Thm 9, replace-one; the sampling paper's γ = 1 + (n/m)(e^ε − 1), eq. 2). Compose the row, shuffle the m, then sample.

The sampled rows must leave in a random order too: drawn rows that keep the table's order show by their positions which
others were drawn, and the bound fails (two of four rows by randomised response at ε₁ = 1.3: δ = 0.027 where it says 0).
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

from dpframe.accounting.budget import check_delta, check_epsilon
from dpframe.errors import ParameterError, check_whole

_DIGITS = Context(prec=60)
_TINY = Decimal(10) ** -25
_SLACK = 4 * _TINY
_HUGE = 1e4
"""Above it no ratio of row counts changes ε in its last digit that matters: sampling gets no credit."""


def _outward(exact: Decimal | Fraction, towards: float) -> float:
    value = float(exact)
    beyond = Fraction(value) >= Fraction(exact) if towards > 0 else Fraction(value) <= Fraction(exact)
    return value if beyond else math.nextafter(value, towards)


def _check_sizes(m: int, n: int) -> Fraction:
    if check_whole(m, "m", of="rows") > check_whole(n, "n", of="rows"):
        raise ParameterError("m, the rows sampled, must be at most n, the rows there are")
    return Fraction(m, n)


def _rescaled(epsilon: float, factor: Fraction, slack: Decimal) -> Decimal:
    """Return ln(1 + factor·(e^ε − 1)), moved by the slack."""
    with localcontext(_DIGITS):
        exact = Decimal(epsilon)
        # Below _TINY, e^x − 1 and ln(1 + x) lose digits; both are x to a relative _TINY, which the slack covers.
        grown = exact if exact < _TINY else exact.exp() - 1
        grown = grown * factor.numerator / factor.denominator
        logarithm = grown if grown < _TINY else (1 + grown).ln()
        return logarithm * (1 + slack)


def sampled(epsilon_1: float, delta_1: float, m: int, n: int) -> tuple[float, float]:
    """Return (ε, δ) of releasing m of n rows, chosen in secret, by an (ε₁, δ₁)-private release; rounded up."""
    epsilon_1, delta_1 = check_epsilon(epsilon_1, "epsilon_1"), check_delta(delta_1, "delta_1")
    share = _check_sizes(m, n)
    delta = _outward(Fraction(delta_1) * share, math.inf)
    if share == 1 or epsilon_1 > _HUGE:
        return epsilon_1, delta
    return min(epsilon_1, _outward(_rescaled(epsilon_1, share, _SLACK), math.inf)), delta


def unsampled(epsilon: float, delta: float, m: int, n: int) -> tuple[float, float]:
    """Return the (ε₁, δ₁) that the release of a secret sample of m rows may have for (ε, δ) in all; rounded down."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    share = _check_sizes(m, n)
    below_one = math.nextafter(1.0, 0.0)
    delta_1 = _outward(min(Fraction(delta) / share, Fraction(below_one)), -math.inf)
    if share == 1 or epsilon > _HUGE:
        return epsilon, delta_1
    return max(epsilon, _outward(_rescaled(epsilon, 1 / share, -_SLACK), -math.inf)), delta_1


def best_sample(n: int, cells: int, epsilon: float) -> int:
    """Return the sample size that the sampling paper's Theorem III.4 finds best for a joint type on ``cells`` cells.

    m* = n(e^ε − 1)(√k + 1)/k^1.5, at most n and at least 1.

    >>> best_sample(1_000_000, 100, 0.1)
    1156
    """
    check_whole(n, "n", of="rows")
    check_whole(cells, "cells", 2, remedy=": the size of the joint type")
    epsilon = check_epsilon(epsilon)
    share = math.expm1(min(epsilon, 700.0)) * (math.sqrt(cells) + 1) / cells**1.5
    return max(1, int(n * min(1.0, share)))
