"""From ρ-zCDP to (ε, δ) and back (Canonne, Kamath and Steinke 2020, Prop. 12)."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext

_DIGITS = Context(prec=50)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return a δ for which ρ-zCDP implies (ε, δ), rounded up (CKS 2020, Prop. 12, least over α).

    Examples
    --------
    >>> round(zcdp_delta(0.02, 1.0), 9)
    8.8e-08
    """
    a = _best(lambda t: -_log_delta(rho, epsilon, 1 + math.exp(t)))
    with localcontext(_DIGITS):
        alpha = Decimal(a)
        rest = (alpha - 1) * (alpha * Decimal(rho) - Decimal(epsilon)) + alpha * (1 - 1 / alpha).ln()
        return min(1.0, float(rest.exp() / (alpha - 1)) * (1 + 1e-12))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return a ρ for which ρ-zCDP implies (ε, δ), rounded down: the inverse of `zcdp_delta`."""

    def at(alpha: float) -> float:
        rest = math.log(delta) - alpha * math.log1p(-1 / alpha) + math.log(alpha - 1)
        return (epsilon + rest / (alpha - 1)) / alpha

    rho = max(0.0, at(_best(lambda t: at(1 + math.exp(t)))))
    while rho > 0 and zcdp_delta(rho, epsilon) > delta:
        rho *= 1 - 1e-9
    return rho


def _log_delta(rho: float, epsilon: float, alpha: float) -> float:
    return (alpha - 1) * (alpha * rho - epsilon) + alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)


def _best(value: Callable[[float], float]) -> float:
    """Return the order α = 1 + e^t that makes ``value`` largest, about; any order gives a true bound."""
    low, high = -8.0, 36.0
    for _ in range(120):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (a, high) if value(a) < value(b) else (low, b)
    return 1 + math.exp((low + high) / 2)
