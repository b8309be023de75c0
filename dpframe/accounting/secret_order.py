"""δ(ε) of rows that are randomised one by one and released in a secret, uniformly random order; and their step.

Privacy blanket (Balle–Bell–Gascón–Nissim 2019, Lemma 5.3; Su–Cheng–Wang 2025, arXiv 2504.07414): each of the other
rows draws, with probability γ, from a law ω that does not depend on its value. Somebody who knows which rows did *not*
is left to find one row among m = 1 + Bin(n−1, γ), and with L = (P(W|x) − e^ε·P(W|x'))/ω(W), W ~ ω,

    δ(ε) ≤ E[(L₁ + … + L_m)₊ / m] = E[(Σ_{i≤M} Lᵢ)₊]/(γn),   M ~ Bin(n, γ),

since C(n−1, m−1)/m = C(n, m)/n. Written with T = A − e^ε·B of `dominating` (L = γT, and T = 0 outside the blanket) this
is E[(T₁ + … + Tₙ)₊]/n, computed by `positive_mean`. ω need not be known: `dominating` bounds its law of (A, B) by
ε_c and γ_c.

*Clones* (Feldman–McMillan–Talwar 2021, 2023) is that bound for the row as one channel of loss Σε_c: it needs no blanket
mass (`composition.single_law`), which helps if some γ_c is tiny. *None* is `composition`; the order of rows
can be forgotten at no loss. The least of the valid bounds is taken.

Rounding: A and B are known up to a relative error η, and A(1+η) − e^ε·B(1−η) is (1+η) times the value at an ε less
by 2η: evaluation is at such an ε.

*As one step*: the largest losses whose profile lies under a curve. Two things change the profile of one replaced row of
the m that are permuted, point by point:

- *Sampling* m of n rows in secret: H(ln(1 + (m/n)(e^x − 1))) ≤ (m/n)·H_m(x) (see below).
- *Contributions*: a person of k rows replaces them one at a time, and H_k(x) ≤ H(x/k)·(e^x − 1)/(e^(x/k) − 1)
  (Vadhan 2017, Lemma 2.2).

Both are bounds on the profile of the release, which is convex in e^x and falls, as `undercurve` requires.

A neighbour's differing row is in the sample with probability m/n, and otherwise nothing differs. So an (ε₁, δ₁)
release of the sample is (ln(1 + (m/n)(e^ε₁ − 1)), (m/n)·δ₁)-private for the table (Balle–Barthe–Gaboardi 2018,
Thm 9, replace-one; the sampling paper's γ = 1 + (n/m)(e^ε − 1), eq. 2). Compose the row, shuffle the m, then sample.

The sampled rows must leave in a random order too: sampled rows in the table's order show by their positions which
other rows were sampled, and the bound fails (two of four rows by randomised response at ε₁ = 1.3: δ = 0.027, not 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from types import MappingProxyType

from dpframe.accounting.budget import LOSS_CONTEXT, check_delta, check_epsilon
from dpframe.accounting.composition import RowLaw, composed_delta, row_law, single_law
from dpframe.accounting.dominating import Bound, ColumnLoss, check_losses, factors, total_epsilon
from dpframe.accounting.gaussian_dp import FLOAT_ROUNDING, Step, mu_of, step_delta
from dpframe.accounting.positive_mean import positive_mean
from dpframe.accounting.undercurve import Cover, Profile, cover
from dpframe.errors import ParameterError, check_whole

_MIN_EXACT_EPSILON = Decimal(10) ** -25
_RESCALING_SLACK = 4 * _MIN_EXACT_EPSILON
_MAX_SAMPLED_EPSILON = 1e4
"""Largest ε for which sampling gets credit: beyond it no ratio of row counts changes a digit of ε that matters."""


def _round_outward(exact: Decimal | Fraction, towards: float) -> float:
    value = float(exact)
    beyond = Fraction(value) >= Fraction(exact) if towards > 0 else Fraction(value) <= Fraction(exact)
    return value if beyond else math.nextafter(value, towards)


def _check_sizes(m: int, n: int) -> Fraction:
    if check_whole(m, "m", of="rows") > check_whole(n, "n", of="rows"):
        raise ParameterError("m, the number of sampled rows, must be at most n, the number of rows")
    return Fraction(m, n)


def _rescale_epsilon(epsilon: float, factor: Fraction, slack: Decimal) -> Decimal:
    """Return ln(1 + factor·(e^ε − 1)), times 1 + slack."""
    with localcontext(LOSS_CONTEXT):
        exact = Decimal(epsilon)
        # Below _MIN_EXACT_EPSILON, e^x − 1 and ln(1 + x) lose digits. Both are x to a relative error of this size,
        # which the slack covers.
        growth = exact if exact < _MIN_EXACT_EPSILON else exact.exp() - 1
        growth = growth * factor.numerator / factor.denominator
        logarithm = growth if growth < _MIN_EXACT_EPSILON else (1 + growth).ln()
        return logarithm * (1 + slack)


def sampled(epsilon_1: float, delta_1: float, m: int, n: int) -> tuple[float, float]:
    """Return (ε, δ) of releasing m of n rows, chosen in secret, by an (ε₁, δ₁)-private release; rounded up."""
    epsilon_1, delta_1 = check_epsilon(epsilon_1, "epsilon_1"), check_delta(delta_1, "delta_1")
    share = _check_sizes(m, n)
    delta = _round_outward(Fraction(delta_1) * share, math.inf)
    if share == 1 or epsilon_1 > _MAX_SAMPLED_EPSILON:
        return epsilon_1, delta
    return min(epsilon_1, _round_outward(_rescale_epsilon(epsilon_1, share, _RESCALING_SLACK), math.inf)), delta


def unsampled(epsilon: float, delta: float, m: int, n: int) -> tuple[float, float]:
    """Return the (ε₁, δ₁) that the release of a secret sample of m rows may have for (ε, δ) in all; rounded down."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    share = _check_sizes(m, n)
    # δ₁ must stay below 1, however small the sample.
    below_one = math.nextafter(1.0, 0.0)
    delta_1 = _round_outward(min(Fraction(delta) / share, Fraction(below_one)), -math.inf)
    if share == 1 or epsilon > _MAX_SAMPLED_EPSILON:
        return epsilon, delta_1
    return max(epsilon, _round_outward(_rescale_epsilon(epsilon, 1 / share, -_RESCALING_SLACK), -math.inf)), delta_1


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


_MAX_TOTAL = 300.0
"""Largest total loss with a bound on shuffled rows: more hides nothing, and e^ε would soon overflow."""


def _by_law(
    law_of: Callable[[tuple[ColumnLoss, ...]], RowLaw], parts: tuple[ColumnLoss, ...], n: int, epsilon: float
) -> float:
    """Return δ by a dominating law of the row."""
    if total_epsilon(parts) > _MAX_TOTAL:
        return 1.0
    law = law_of(parts)
    # Each of A and B is known to the position error; e^ε and the difference add as much.
    eta = 4 * law.position_error
    values = law.a - math.exp(epsilon) * (1 - eta) * law.b
    return positive_mean(values, law.mass, law.outside, n, law.mass_error) * (1 + eta)


def _closed_form(parts: tuple[ColumnLoss, ...], n: int, epsilon: float) -> float:
    """Return δ by the generic closed form (Feldman–McMillan–Talwar 2021, Theorem 3.1), solved for it.

    With the constants of the authors' published code, which are the safer ones, for ε₀ ≤ ln(n/(16 ln(4/δ))):
    ε = ln(1 + x(1−e^−ε₀)/(1+e^−ε₀/(1+x))), x = 8√(e^ε₀ ln(4/δ)/n) + 8e^ε₀/n. A quadratic in x, then δ from x.
    """
    total = total_epsilon(parts)
    if total > math.log(n):
        return 1.0
    ratio, complement = math.expm1(epsilon), -math.expm1(-total)
    half = (ratio - complement) / (2 * complement)
    x = half + math.sqrt(half**2 + ratio * (1 + math.exp(-total)) / complement)
    root = x - 8 * math.exp(total) / n
    depth = n * (root / 8) ** 2 * math.exp(-total) if root > 0 else 0.0
    depth = min(depth, n * math.exp(-total) / 16) * (1 - 1e-12)
    return 4 * math.exp(-depth)


METHODS: Mapping[str, Callable[[tuple[ColumnLoss, ...], int, float], float]] = MappingProxyType(
    {
        "none": lambda parts, _, epsilon: composed_delta(parts, epsilon),
        "closed form": _closed_form,
        "clones": partial(_by_law, lambda parts: single_law(total_epsilon(parts))),
        "blanket": partial(_by_law, row_law),
    }
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


_MAX_MOMENT_FACTORS = 200
_MAX_BOUND_RATIO = 1e3
"""Largest ratio to the best bound at the probe; methods beyond it are skipped near the curve."""
_MIN_ORDERED_ROWS = 1_000
"""Least number of rows for which a shuffled bound that wins at the probe wins up to half of a row's loss."""
_PROVED_MU_TOLERANCE = 2e-3
"""Relative width of the proved μ: 3e-4 of a column's loss."""
_LOG_MU_TOLERANCE = 0.01
"""Distance of ln μ from its goal at which the guess ends."""
_DEFAULT_SLOPE = 7.5
"""d ln μ/d ln(total loss) before two points are known."""
_MIN_TOTAL = 1e-12
_MAX_TURNS = 40
_TOTAL_TOLERANCE = 1e-7
"""Relative width of the search for the first total."""
_MAX_SECANTS = 12


@dataclass(frozen=True)
class ShuffledRows:
    """Rows of a table, or a secret sample of them, that are shuffled together; ``contributions`` are a person's."""

    n: int
    sample: int | None = None
    contributions: int = 1

    def __post_init__(self) -> None:
        check_whole(self.n, "n", of="rows")
        check_whole(self.contributions, "contributions", of="rows per person")
        if self.sample is not None and check_whole(self.sample, "sample", of="rows") > self.n:
            raise ParameterError("sample must be at most n, the number of rows")

    @property
    def shuffled_rows(self) -> int:
        """Return how many rows are permuted together."""
        return self.n if self.sample is None else self.sample

    def around(self, inner: Profile) -> Profile:
        """Return the profile of the release for one person, from the profile of the permuted rows for one row."""
        k, m = self.contributions, self.shuffled_rows

        def one_row(x: float) -> float:
            if m == self.n:
                return inner(x)
            return inner(unsampled(x, 0.0, m, self.n)[0] if x > 0 else 0.0) * (m / self.n) * (1 + 4 * FLOAT_ROUNDING)

        def person(x: float) -> float:
            if k == 1:
                return one_row(x)
            row_x = math.nextafter(x / k, 0.0) if x > 0 else 0.0
            value = one_row(row_x)
            if value == 0 or x > _MAX_TOTAL * k:
                return value if value == 0 else 1.0
            # The limit of the factor for x → 0 is k; e^x overflows beyond 709.
            factor = k if row_x == 0 else math.expm1(x) / math.expm1(row_x) if x < 700 else math.inf
            return min(1.0, value * factor * (1 + 8 * FLOAT_ROUNDING))

        return person


def _moment(parts: Sequence[ColumnLoss]) -> float:
    """Return E[(A − B)²], by the better of the columns' own blankets and the row as one channel; may be infinite."""
    squares = products = 0.0
    for column in (law.enlarged for law in factors(parts, _MAX_MOMENT_FACTORS)):
        if column.rate > _MAX_TOTAL:
            return math.inf
        square, product = column.square_and_product
        squares += math.log(square)
        products += math.log(product)
    total = total_epsilon(parts)
    single = 2 * math.expm1(total) ** 2 / (1 + math.exp(total)) if total < _MAX_TOTAL else math.inf
    blanket = 2 * math.exp(products) * math.expm1(squares - products) if squares < _MAX_TOTAL else math.inf
    return min(single, blanket)


def shuffled_profile(parts: Sequence[ColumnLoss], rows: ShuffledRows) -> Profile:
    """Return bounds from above on the profile of shuffled rows with these columns."""
    lossy, m = check_losses(parts), rows.shuffled_rows
    total = total_epsilon(lossy)
    if total > _MAX_TOTAL:
        return rows.around(lambda x: 0.0 if x >= total else 1.0)
    probe = min(total / 2, 4 * math.sqrt(_moment(lossy) / m)) if lossy else 0.0
    bounds = {name: METHODS[name](lossy, m, probe) if lossy else 0.0 for name in ("blanket", "clones", "none")}
    # Every method costs an integral; one far above the best at the probe is not tried near it.
    near_methods = {
        name: METHODS[name] for name, value in bounds.items() if value <= _MAX_BOUND_RATIO * min(bounds.values())
    }
    tail_methods = near_methods | {"none": METHODS["none"]}
    has_many_rows = m >= _MIN_ORDERED_ROWS

    def inner(x: float) -> float:
        if x >= total:
            return 0.0
        methods = near_methods if has_many_rows and x < total / 2 else tail_methods
        return min(1.0, *(method(lossy, m, x) for method in methods.values()))

    return rows.around(inner)


def rows_cover(
    parts: Sequence[ColumnLoss], rows: ShuffledRows, limit: Step, tolerance: float = _PROVED_MU_TOLERANCE
) -> Cover:
    """Return the least step that provably covers rows with these columns, relative to the step ``limit``."""
    return cover(shuffled_profile(parts, rows), limit, tolerance)


def likely_total(
    parts_of: Callable[[float], Sequence[ColumnLoss]], rows: ShuffledRows, limit: Step, max_total: float = 500.0
) -> tuple[float, float]:
    """Return about the largest total loss whose rows lie under the curve of ``limit``, and d ln μ/d ln(total) there.

    A guess; nothing is proved. ``parts_of`` maps a total of losses to the columns' parts, which grow with it. The
    profile is compared with the curve at one x, at which it binds. Both heights are expressed as the μ of a normal
    law's profile through them. That μ is nearly a power of the total, so that secants find the total.
    """
    # About the x at which the curve's Gaussian part falls to its slack: the rows' tail is heavier there.
    x = limit.mu * (limit.mu / 2 + math.sqrt(-2 * math.log(max(limit.delta, 1e-300)))) * 0.85
    goal = math.log(float(mu_of(math.log(step_delta(limit, x)), x)))
    total, slope = _start_total(parts_of, rows, math.log(limit.mu) - 0.1, max_total), _DEFAULT_SLOPE
    last: tuple[float, float] | None = None
    for _ in range(_MAX_TURNS):
        height = shuffled_profile(parts_of(total), rows)(x)
        if height <= 0 or height >= 1:
            total, last = total * (1.5 if height <= 0 else 1 / 1.5), None
            if total >= max_total:
                return max_total, slope
            continue
        gap = math.log(max(float(mu_of(math.log(height), x)), 1e-300)) - goal
        if abs(gap) < _LOG_MU_TOLERANCE or (total >= max_total and gap < 0):
            break
        if last is not None and total != last[0]:
            slope = min(max((gap - last[1]) / math.log(total / last[0]), 1.0), 50.0)
        last = total, gap
        total = min(max_total, total * math.exp(min(1.0, max(-1.0, -gap / slope))))
    return total, slope


def _start_total(
    parts_of: Callable[[float], Sequence[ColumnLoss]], rows: ShuffledRows, log_mu: float, max_total: float
) -> float:
    """Return the total at which the normal law's μ has this logarithm, by bisection.

    Bisection computes few values of μ, as secants first give two close totals on either side.
    """
    share = rows.shuffled_rows / rows.n * rows.contributions
    below, above = 0.0, math.inf  # the nearest known totals on either side

    def gap(total: float) -> float:
        nonlocal below, above
        parts = check_losses(parts_of(total))
        mu = share * math.sqrt(_moment(parts) / rows.shuffled_rows) if parts else 0.0
        is_below = mu == 0 or math.log(mu) < log_mu
        below, above = (max(below, total), above) if is_below else (below, min(above, total))
        return math.log(mu) - log_mu if mu else -math.inf

    def reaches(total: float) -> bool:
        if below < total < above:
            gap(total)
        return total >= above

    _bracket_root(gap, min(1.0, max_total), max_total)
    low, high = _MIN_TOTAL, max_total
    while high > low * (1 + _TOTAL_TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def _bracket_root(gap: Callable[[float], float], total: float, max_total: float) -> None:
    """Evaluate a rising gap at totals close to its zero on either side, if secants reach it."""
    distance, slope = gap(total), 1.0
    for _ in range(_MAX_SECANTS):
        if not math.isfinite(distance):
            return
        if abs(distance) < _TOTAL_TOLERANCE / 100:
            gap(total * (1 - _TOTAL_TOLERANCE / 10))
            gap(total * (1 + _TOTAL_TOLERANCE / 10))
            return
        last_total, last_distance = total, distance
        total = min(max_total, total * math.exp(min(max(-distance / slope, -5.0), 5.0)))
        if total == last_total:
            return
        distance = gap(total)
        slope = min(max((distance - last_distance) / math.log(total / last_total), 0.5), 100.0)
