"""δ(ε) of rows that were randomised each on its own and leave in a secret, uniformly random order.

Privacy blanket (Balle–Bell–Gascón–Nissim 2019, Lemma 5.3; Su–Cheng–Wang 2025, arXiv 2504.07414): each of the other
rows draws, with probability γ, from a law ω that its value has no part in. Somebody who is told which rows did *not*
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

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from dpframe.accounting.budget import check_delta
from dpframe.accounting.composition import composed_delta, composed_epsilon
from dpframe.accounting.dominating import Bound, ColumnLoss, check_losses, check_rows, total_epsilon
from dpframe.accounting.positive_mean import positive_mean
from dpframe.accounting.row_law import RowLaw, row_law, single_law
from dpframe.errors import ParameterError

_SINGLE = 300.0
"""Losses above it hide nothing worth computing, and e^ε would soon overflow."""
_TOLERANCE = 1e-5
"""Relative width at which the search for ε stops."""


def _from_law(law: RowLaw, n: int, epsilon: float) -> float:
    eta = 4 * law.position_error
    values = law.a - math.exp(epsilon) * (1 - eta) * law.b
    return positive_mean(values, law.mass, law.outside, n, law.mass_error) * (1 + eta)


def _blanket(parts: tuple[ColumnLoss, ...], n: int, epsilon: float) -> float:
    return _from_law(row_law(parts), n, epsilon) if total_epsilon(parts) <= _SINGLE else 1.0


def _clones(parts: tuple[ColumnLoss, ...], n: int, epsilon: float) -> float:
    total = total_epsilon(parts)
    return _from_law(single_law(total), n, epsilon) if total <= _SINGLE else 1.0


def closed_form_epsilon(epsilon_0: float, n: int, delta: float) -> float:
    """Return ε of n shuffled rows of local loss ε₀ by the generic closed form, or ε₀ where that does not hold.

    Feldman–McMillan–Talwar 2021, Theorem 3.1, with the authors' own constants of their published code, which are
    the more careful ones: ε₀ ≤ ln(n/(16 ln(4/δ))) and (1−e^−ε₀)/(1+e^(−ε₀−ε₁)) for (e^ε₀−1)/(e^ε₀+1).

    Examples
    --------
    >>> round(closed_form_epsilon(4.0, 100_000, 1e-6), 4)
    0.5378
    """
    if epsilon_0 > math.log(n / (16 * math.log(4 / delta))):
        return epsilon_0
    x = 8 * math.sqrt(math.exp(epsilon_0) * math.log(4 / delta) / n) + 8 * math.exp(epsilon_0) / n
    return math.log1p(-math.expm1(-epsilon_0) / (1 + math.exp(-epsilon_0) / (1 + x)) * x)


def _closed_form(parts: tuple[ColumnLoss, ...], n: int, epsilon: float) -> float:
    """Solve `closed_form_epsilon` for δ: a quadratic in its x, then δ from x."""
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

    Raises
    ------
    ParameterError
        For n below 1, a negative ε, or parts that are none.

    Examples
    --------
    >>> bound = shuffled_delta([ColumnLoss(1.0, 0.6)] * 4, 10_000, 0.2)
    >>> f"{bound.value:.1e}", bound.method
    ('2.1e-06', 'blanket')
    """
    lossy, n = check_losses(parts), check_rows(n)
    if not epsilon >= 0:
        raise ParameterError("epsilon must be at least 0")
    if epsilon >= total_epsilon(lossy):
        return Bound(0.0, "none")
    bounds = [Bound(min(1.0, method(lossy, n, epsilon)), name) for name, method in METHODS.items()]
    return min(bounds, key=lambda bound: bound.value)


def _guess(parts: tuple[ColumnLoss, ...], n: int, delta: float) -> float:
    """Return the ε of the normal limit: variance of T at ε = 0, and a tail of about δ."""
    law = row_law(parts) if total_epsilon(parts) <= _SINGLE else single_law(_SINGLE)
    sigma = math.sqrt(float(law.mass @ (law.a - law.b) ** 2) / n)
    return sigma * math.sqrt(2 * math.log(1 / delta)) * 0.8


def shuffled_epsilon(parts: Sequence[ColumnLoss], n: int, delta: float) -> Bound:
    """Return an ε at which `shuffled_delta` is at most ``delta``, within 1e-5 of the least.

    Raises
    ------
    ParameterError
        For n below 1, δ outside [0, 1), or parts that are none.

    Examples
    --------
    >>> bound = shuffled_epsilon([ColumnLoss(1.0, 0.6)] * 4, 10_000, 1e-6)
    >>> round(bound.value, 3), bound.method
    (0.21, 'blanket')
    """
    lossy, n, delta = check_losses(parts), check_rows(n), check_delta(delta)
    if delta == 0 or not lossy:
        return Bound(total_epsilon(lossy), "none")
    best, target = Bound(composed_epsilon(lossy, delta), "none"), math.log(delta)
    low = high = math.nan  # the ε last seen on either side, and ln δ(ε) there
    at_low = at_high = math.nan
    trial = min(_guess(lossy, n, delta), best.value / 2)
    for turn in itertools.count():
        if trial >= best.value:  # no more is needed than without the shuffle
            high, at_high, trial = best.value, target, (low + best.value) / 2
        bound = shuffled_delta(lossy, n, trial)
        depth = math.log(max(bound.value, 5e-324))
        if depth <= target:
            high, at_high, best = trial, depth, Bound(trial, bound.method)
        else:
            low, at_low = trial, depth
        if high == 0 or high - low <= _TOLERANCE * high:
            break
        trial = _next((low, at_low), (high, at_high), target, turn)
    return best


def _next(low: tuple[float, float], high: tuple[float, float], target: float, turn: int) -> float:
    """Return the next ε to try: where ln δ, taken as linear in ε², would meet its target, and a little past it."""
    if math.isnan(low[0]):
        if turn >= 3:  # perhaps no ε is needed at all
            return 0.0
        return high[0] * min(0.95, max(0.3, 0.98 * math.sqrt(target / high[1])))
    if math.isnan(high[0]):
        return low[0] * max(1.05, min(3.0, 1.02 * math.sqrt(target / min(low[1], -1e-9))))
    width = high[0] - low[0]
    if turn % 4 == 3:
        return low[0] + width / 2
    share = (low[1] - target) / (low[1] - high[1])
    point = math.sqrt(low[0] ** 2 + share * (high[0] ** 2 - low[0] ** 2))
    near = min(point - low[0], high[0] - point)
    past = min(max(0.1 * near, 0.3 * _TOLERANCE * high[0]), width / 2)
    return point + past if point - low[0] < high[0] - point else point - past
