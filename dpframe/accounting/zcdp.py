"""From ρ-zCDP to (ε, δ) (Canonne, Kamath and Steinke 2020, Prop. 12)."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext

_DIGITS = Context(prec=50)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return a δ for which ρ-zCDP implies (ε, δ), rounded up (CKS 2020, Prop. 12, least over α).

    Examples
    --------
    >>> round(zcdp_delta(0.02, 1.0), 9)
    8.8e-08
    """
    from scipy.optimize import minimize_scalar  # late: slow to import

    def log_delta(t: float) -> float:
        a = 1 + math.exp(t)
        return (a - 1) * (a * rho - epsilon) + a * math.log1p(-1 / a) - math.log(a - 1)

    # Floats seek the least; any order α gives a true bound, and it is evaluated with 50 digits.
    best = minimize_scalar(log_delta, bounds=(-8, 36), options={"xatol": 1e-9})
    with localcontext(_DIGITS):
        alpha = Decimal(1 + math.exp(best.x))
        rest = (alpha - 1) * (alpha * Decimal(rho) - Decimal(epsilon)) + alpha * (1 - 1 / alpha).ln()
        return min(1.0, float(rest.exp() / (alpha - 1)) * (1 + 1e-12))
