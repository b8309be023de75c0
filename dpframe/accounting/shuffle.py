"""δ(ε) of rows that were randomised each on its own and leave in a secret, uniformly random order.

Privacy blanket (Balle–Bell–Gascón–Nissim 2019, Lemma 5.3; Su–Cheng–Wang 2025, arXiv 2504.07414): each of the other
rows draws, with probability γ, from a law ω that does not depend on its value. Somebody who knows which rows did *not*
is left to find one row among m = 1 + Bin(n−1, γ), and with L = (P(W|x) − e^ε·P(W|x'))/ω(W), W ~ ω,

    δ(ε) ≤ E[(L₁ + … + L_m)₊ / m] = E[(Σ_{i≤M} Lᵢ)₊]/(γn),   M ~ Bin(n, γ),

since C(n−1, m−1)/m = C(n, m)/n. Written with T = A − e^ε·B of `dominating` (L = γT, and T = 0 outside the blanket) this
is E[(T₁ + … + Tₙ)₊]/n, computed by `positive_mean`. ω need not be known: `dominating` bounds its law of (A, B) by
ε_c and γ_c.

*Clones* (Feldman–McMillan–Talwar 2021, 2023) is the same bound for the row as one channel of loss Σε_c: no blanket
mass is needed (`row_law.single_law`), which pays where some γ_c is tiny. *None* is `composition`; the order of rows
can be forgotten at no loss. The least of the valid bounds is taken.

Rounding: A and B are known up to a relative error η, and A(1+η) − e^ε·B(1−η) is (1+η) times the value at an ε less
by 2η: evaluation is at such an ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from dpframe.accounting.composition import composed_delta
from dpframe.accounting.dominating import Bound, ColumnLoss, check_losses, total_epsilon
from dpframe.accounting.positive_mean import positive_mean
from dpframe.accounting.row_law import RowLaw, row_law, single_law
from dpframe.errors import ParameterError, check_whole

_SINGLE = 300.0
"""Losses above it hide nothing worth computing, and e^ε would soon overflow."""


def _from_law(law: RowLaw, n: int, epsilon: float) -> float:
    eta = 4 * law.position_error
    values = law.a - math.exp(epsilon) * (1 - eta) * law.b
    return positive_mean(values, law.mass, law.outside, n, law.mass_error) * (1 + eta)


def _blanket(parts: tuple[ColumnLoss, ...], n: int, epsilon: float) -> float:
    return _from_law(row_law(parts), n, epsilon) if total_epsilon(parts) <= _SINGLE else 1.0


def _clones(parts: tuple[ColumnLoss, ...], n: int, epsilon: float) -> float:
    total = total_epsilon(parts)
    return _from_law(single_law(total), n, epsilon) if total <= _SINGLE else 1.0


def _closed_form(parts: tuple[ColumnLoss, ...], n: int, epsilon: float) -> float:
    """Return δ by the generic closed form (Feldman–McMillan–Talwar 2021, Theorem 3.1), solved for it.

    With the authors' own constants of their published code, the more careful ones, where ε₀ ≤ ln(n/(16 ln(4/δ))):
    ε = ln(1 + x(1−e^−ε₀)/(1+e^−ε₀/(1+x))), x = 8√(e^ε₀ ln(4/δ)/n) + 8e^ε₀/n. A quadratic in x, then δ from x.
    """
    total = total_epsilon(parts)
    if total > math.log(n):
        return 1.0
    ratio, lost = math.expm1(epsilon), -math.expm1(-total)
    half = (ratio - lost) / (2 * lost)
    x = half + math.sqrt(half**2 + ratio * (1 + math.exp(-total)) / lost)
    root = x - 8 * math.exp(total) / n
    depth = n * (root / 8) ** 2 * math.exp(-total) if root > 0 else 0.0
    depth = min(depth, n * math.exp(-total) / 16) * (1 - 1e-12)
    return 4 * math.exp(-depth)


def _none(parts: tuple[ColumnLoss, ...], n: int, epsilon: float) -> float:
    return composed_delta(parts, epsilon)


METHODS: Mapping[str, Callable[[tuple[ColumnLoss, ...], int, float], float]] = MappingProxyType(
    {"none": _none, "closed form": _closed_form, "clones": _clones, "blanket": _blanket}
)


def shuffled_delta(parts: Sequence[ColumnLoss], n: int, epsilon: float) -> Bound:
    """Return an upper bound on δ(ε) of n shuffled rows (replace-one), rows randomised column by column.

    Parameters
    ----------
    parts : sequence of ColumnLoss
        One for each randomised column.
    n : int
        Rows that are permuted together.
    epsilon : float
        At least 0.

    Raises `ParameterError` for n below 1, a negative ε, or parts of another type.

    Examples
    --------
    >>> bound = shuffled_delta([ColumnLoss(1.0, 0.6)] * 4, 10_000, 0.2)
    >>> f"{bound.value:.1e}", bound.method
    ('2.1e-06', 'blanket')
    """
    lossy, n = check_losses(parts), check_whole(n, "n", of="rows")
    if not epsilon >= 0:
        raise ParameterError("epsilon must be at least 0")
    if epsilon >= total_epsilon(lossy):
        return Bound(0.0, "none")
    bounds = [Bound(min(1.0, method(lossy, n, epsilon)), name) for name, method in METHODS.items()]
    return min(bounds, key=lambda bound: bound.value)
