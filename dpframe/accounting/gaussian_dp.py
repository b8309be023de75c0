"""Gaussian differential privacy with a slack: one currency for all losses of a release.

The profile of a release is H(x), the largest hockey-stick divergence at e^x between neighbouring tables. Two normal
laws at distance μ have the profile

    G_μ(x) = Φ(μ/2 − x/μ) − e^x·Φ(−μ/2 − x/μ)                              (Balle–Wang 2018, Thm 8).

A release is a **step** (μ, δ₀) when H(x) ≤ δ₀ + (1 − δ₀)·G_μ(x) for every x ≥ 0. Negative x needs no check:
h(−x) = 1 − e^−x + e^−x·h(x) holds for H (replace-one is symmetric) and for the right-hand side alike.

*Composition*, also if each step depends on the results of earlier steps: μ² adds up and 1 − δ₀ multiplies. For the
laws (1−δ₀)·N(μ, 1) + δ₀·⊤ and (1−δ₀)·N(0, 1) + δ₀·⊥ have just that right-hand side, so they dominate the step, and
dominating pairs multiply under adaptive composition (Zhu–Dong–Wang 2022, Thm 10; Dong–Roth–Su 2022 for δ₀ = 0).

*Numbers.* With a = x/μ − μ/2, b = a + μ and Mills' ratio R(t) = (1 − Φ(t))/φ(t), e^x·φ(b) = φ(a), so that
G = φ(a)·(R(a) − R(b)) = φ(a)·∫_a^b (1 − tR(t)) dt: nothing cancels for small μ, and the logarithm is as precise at
1e-300 as at 0.1. (For a ≤ −1 and μ > 1, 1 − G = φ(a)·(R(−a) + R(b)).) The integrand is completely monotone in t;
eight Gauss nodes have a relative error below 1e-14 at μ ≤ 1. Bounds are rounded outward by the error of each operation.

R(t)·(1 + t) is smooth in y = (t − 4)/(t + 4), which runs from −1 at t = 0 to 1 at infinity. `_TERMS` are the
coefficients, by powers of y, of its Chebyshev series of 25 terms, whose relative error is 1e-17. The error of
`scipy.special.erfcx` is three times as large, and its import takes an eighth of a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpframe.accounting.arrays import FloatArray
from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import Budget, check_delta, check_epsilon, round_down, round_up
from dpframe.errors import ParameterError

FLOAT_ROUNDING = 1e-15
"""Relative rounding error of a few operations on floats, taken outward."""
_MAX_START = 40.0
"""Largest a in use: φ(a) is 1e-348, below all floats, so that beyond it G is bounded by 0 and by φ."""
_HALF_POINTS = (0.1834346424956498, 0.525532409916329, 0.7966664774136267, 0.9602898564975362)
_HALF_WEIGHTS = (0.362683783378362, 0.3137066458778873, 0.22238103445337448, 0.10122853629037626)
_POINTS = np.array([*(-x for x in _HALF_POINTS[::-1]), *_HALF_POINTS])
_WEIGHTS = np.array([*_HALF_WEIGHTS[::-1], *_HALF_WEIGHTS])
"""Gauss–Legendre nodes on [−1, 1] and their weights, the positive half of each written out."""
_LOG_ROOT = 0.5 * math.log(2 * math.pi)
_SLACK_SUM_DIGITS = 60
_NEWTON_TOLERANCE = 1e-9
"""Last move of Newton's method: the next would be below 1e-15, as moves shrink to their squares."""


def log_gaussian(mu: npt.ArrayLike, x: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return bounds from below and from above on ln G_μ(x), for μ > 0 and x ≥ 0, element by element."""
    mus, xs = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(x, dtype=np.float64))
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        log_g, error, start = _about(mus, xs)
        deep = start > _MAX_START
        low = np.where(deep, -np.inf, log_g - error)
        high = np.where(deep, -0.5 * np.minimum(start, 1e100) ** 2 * (1 - 8 * FLOAT_ROUNDING), log_g + error)
    return low, np.minimum(high, 0.0)


def _about(mus: FloatArray, xs: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return ln G_μ(x), a bound on its error up to `_MAX_START`, and a."""
    ratio, half = xs / mus, mus / 2
    start, b = ratio - half, np.minimum(ratio + half, 1e100)
    a = np.minimum(np.maximum(start, -_MAX_START), _MAX_START)
    log_density = -0.5 * a * a - _LOG_ROOT
    is_wide = mus > 1
    # Each formula only if some element needs it: plans call this thousands of times for one element.
    difference = np.zeros(())
    if not is_wide.all():
        # M(a) − M(a + μ) of Mills' ratio M, by the integral of its slope, so that digits do not cancel.
        narrow = np.minimum(mus, 1.0)
        inner = a[..., None] + narrow[..., None] * (0.5 + 0.5 * _POINTS)
        difference = 0.5 * narrow * ((1 - inner * mills_ratio(inner)) @ _WEIGHTS)
    is_near_one = is_wide & (a <= -1)
    if is_wide.any():
        difference = np.where(is_wide, mills_ratio(np.maximum(a, -1.0)) - mills_ratio(b), difference)
    log_g = log_density + np.log(difference)
    digits = (1 + np.abs(a)) * (1 + np.minimum(b, 1e4))
    if is_near_one.any():
        complement = np.exp(log_density) * (mills_ratio(np.abs(a)) + mills_ratio(b))
        log_g = np.where(is_near_one, np.log1p(-np.minimum(complement, 0.75)), log_g)
        digits = np.where(is_near_one, np.minimum(b, 1e4), digits)
    return log_g, FLOAT_ROUNDING * (50 + 8 * digits), start


def log_slope(mu: npt.ArrayLike, x: npt.ArrayLike) -> FloatArray:
    """Return ln(−dG_μ/de^x) = ln Φ(−μ/2 − x/μ), to a relative 1e-14·(1 + x/μ + μ)² of the slope."""
    with np.errstate(over="ignore"):
        b = np.asarray(x) / np.asarray(mu) + np.asarray(mu) / 2
        return log_tail(np.minimum(b, 1e100))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return G_μ(ε), rounded up; ε may be negative.

    >>> round(gaussian_delta(1.0, 1.0), 12)  # the Gaussian mechanism at noise 1
    0.126936737507
    """
    if mu == 0:
        return max(0.0, -math.expm1(epsilon) * (1 + FLOAT_ROUNDING))
    return float(gaussian_deltas(mu, np.asarray(epsilon)))


def gaussian_deltas(mu: float, epsilons: FloatArray) -> FloatArray:
    """Return `gaussian_delta` of a μ above 0, element by element."""
    high = np.exp(log_gaussian(mu, np.abs(epsilons))[1]) * (1 + FLOAT_ROUNDING)
    below = np.minimum(epsilons, 0.0)
    folded = (-np.expm1(below) + np.exp(below) * high) * (1 + 4 * FLOAT_ROUNDING)
    return np.minimum(1.0, np.where(epsilons < 0, folded, high))


def mu_of(log_g: npt.ArrayLike, x: npt.ArrayLike, start: float | None = None) -> FloatArray:
    """Return about the μ with ln G_μ(x) = ``log_g``, element by element; 0 if G is below all floats.

    Newton's method in ln μ from a small μ, or from ``start``: ln G increases and is concave in ln μ, so that
    iterates rise to the root, after one that may fall.
    """
    # Twice a larger x would overflow, and no budget is so large on purpose.
    finite_x = np.minimum(np.asarray(x, dtype=np.float64), 1e300)
    target, xs = np.broadcast_arrays(np.asarray(log_g, dtype=np.float64), finite_x)
    empty = ~(target > -790)
    goal = np.where(empty, -1.0, target)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        # At a = √(−2 ln G), φ(a) by itself is G: a point left of the root.
        mu = np.maximum(2 * xs / (np.sqrt(-2 * goal) + np.sqrt(2 * xs - 2 * goal)), np.exp(goal))
        mu = mu if start is None else np.maximum(mu, start)
        for _ in range(60):
            about, _, a = _about(mu, xs)
            square = -0.5 * np.minimum(a, 1e100) ** 2
            value = np.where(a > _MAX_START, square, about)
            slope = np.exp(np.minimum(np.maximum(np.log(mu) + square - _LOG_ROOT - value, -50), 50))
            move = np.minimum(np.maximum((goal - value) / np.maximum(slope, 1e-12), -1.0), 1.0)
            mu = mu * np.exp(move)
            if np.max(np.abs(move), initial=0.0) < _NEWTON_TOLERANCE:
                break
    return np.where(empty, 0.0, mu)


def gaussian_mu(epsilon: float, delta: float, slack: float = 0.0) -> float:
    """Return the largest μ, rounded down, with slack + (1 − slack)·G_μ(ε) ≤ δ."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if not 0 <= slack < delta:
        raise ParameterError("slack must be at least 0 and below delta; lower the slack or raise delta")
    target = round_down((Fraction(delta) - Fraction(slack)) / (1 - Fraction(slack)))
    if target <= 0:
        raise ParameterError("slack must be at least 0 and below delta; lower the slack or raise delta")
    goal = math.log(target) - 4e-16 * (1 - math.log(target))
    mu, less = float(mu_of(goal, epsilon)), 1e-15
    # Newton's method ends within rounding of the root; the loop moves to its safe side.
    while float(log_gaussian(mu, epsilon)[1]) > goal:
        mu, less = mu * (1 - less), 2 * less
    return mu


@dataclass(frozen=True)
class Step:
    """One loss of a release: a profile of at most δ₀ + (1 − δ₀)·G_μ, for neighbours that differ in one row.

    ``mu``: μ, the distance of two unit normals that are as hard to distinguish; its square adds up. ``delta``: the
    slack δ₀; 1 − δ₀ multiplies.

    >>> composed_steps([Step(3.0), Step(4.0, 1e-9)])
    Step(mu=5.0, delta=1e-09)
    """

    mu: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if (
            isinstance(self.mu, bool)
            or not (isinstance(self.mu, float | int) and math.isfinite(self.mu))
            or self.mu < 0
        ):
            raise ParameterError("mu must be finite and at least 0, e.g. mu=0.2")
        object.__setattr__(self, "mu", float(self.mu))
        object.__setattr__(self, "delta", check_delta(self.delta))

    @property
    def square(self) -> Fraction:
        """Return μ² exactly, which adds up under composition."""
        return Fraction(self.mu) ** 2


def _root(square: Fraction, up: bool) -> float:
    """Return the square root, rounded up or down."""
    value = math.sqrt(square)  # correctly rounded to a few units, which the loops settle exactly
    while up and Fraction(value) ** 2 < square:
        value = math.nextafter(value, math.inf)
    while not up and Fraction(value) ** 2 > square:
        value = math.nextafter(value, 0.0)
    return value


def composed_steps(steps: Iterable[Step]) -> Step:
    """Return the step of all steps together, in any order and chosen adaptively; rounded up."""
    parts = list(steps)
    slacks = [step.delta for step in parts if step.delta > 0]
    delta = slacks[0] if slacks else 0.0
    if len(slacks) > 1:
        with localcontext(Context(prec=_SLACK_SUM_DIGITS, rounding=ROUND_CEILING)):
            total_slack = Decimal(0)
            for slack in slacks:  # d + d' − d·d', as 1 − (1−d)(1−d') would lose a d' of 1e-300
                total_slack += Decimal(slack) * (1 - total_slack)
            delta = round_up(total_slack)
    if delta >= 1:
        raise ParameterError("the slacks of the steps add up to 1; there is no promise left to compose")
    return Step(_root(sum((step.square for step in parts), Fraction(0)), up=True), delta)


def remaining_step(total: Step, spent: Step) -> Step:
    """Return the remaining part of a step after a spend, rounded down."""
    if spent.mu > total.mu:
        raise ParameterError("mu is exhausted: what is spent exceeds the whole; raise epsilon")
    if spent.delta > total.delta:
        raise ParameterError("the slack is exhausted: what is spent exceeds the whole; raise delta")
    slack = (Fraction(total.delta) - Fraction(spent.delta)) / (1 - Fraction(spent.delta))
    return Step(_root(total.square - spent.square, up=False), round_down(slack))


def share_of_step(total: Step, share: float) -> Step:
    """Return a share of a step's μ², and none of its slack, rounded down."""
    if not 0 <= share <= 1:
        raise ParameterError("share must lie between 0 and 1: it is a part of mu squared")
    return Step(_root(total.square * Fraction(share), up=False))


def step_delta(step: Step, epsilon: float) -> float:
    """Return the δ at which a step is (ε, δ)-private, rounded up.

    >>> round(step_delta(Step(0.2367, 1e-8), 1.0), 9)
    1.01e-06
    """
    return min(1.0, (step.delta + (1 - step.delta) * gaussian_delta(step.mu, epsilon)) * (1 + 4 * FLOAT_ROUNDING))


def step_epsilon(step: Step, delta: float) -> float:
    """Return the least ε, rounded up, at which a step is (ε, δ)-private; infinite if the slack leaves none."""
    delta = check_delta(delta)
    if step_delta(step, 0.0) <= delta:
        return 0.0
    if delta <= step.delta:
        return math.inf
    # About one standard deviation above the mean loss μ²/2; doubled until δ is met.
    low, high = 0.0, step.mu * (step.mu / 2 + 1)
    while step_delta(step, high) > delta:
        low, high = high, 2 * high
    return bisected(lambda epsilon: step_delta(step, epsilon) <= delta, high, low, 1e-14)


def pure_step(epsilon: float) -> Step:
    """Return the step of anything (ε, 0)-private, rounded up: μ = 2Φ⁻¹(e^ε/(1 + e^ε)).

    Randomised response on two outcomes dominates all that loses ε (Kairouz–Oh–Viswanath 2015). Its profile is straight
    in e^x from tanh(ε/2) = G_μ(0) to 0 at e^ε; G_μ is convex in e^x, and its slope at x = 0, −Φ(−μ/2), is that
    line's: the line is a tangent.
    """
    from scipy import special  # imported late, as all of SciPy: a first release rarely needs it

    epsilon = check_epsilon(epsilon)
    # Either inverse loses digits near the end of its range, at ε near 0 or far above 1.
    if epsilon < 1:
        half = special.erfinv(math.tanh(epsilon / 2)) or epsilon
    elif epsilon < 700:
        half = special.erfcinv(2 / (1 + math.exp(epsilon)))
    else:
        raise ParameterError("epsilon must be below 700: more is as good as published")
    return Step(2 * math.sqrt(2) * float(half) * (1 + 2e-14))


def dominating_step(budget: Budget) -> Step:
    """Return a step that covers every (ε, δ)-private mechanism: (ε, δ) → pure ε with slack δ.

    With probability δ randomised response's input is published, or else it runs (Kairouz–Oh–Viswanath 2015, Thm 3.4):
    its profile is δ + (1 − δ) times the profile of `pure_step`.
    """
    return Step(pure_step(budget.epsilon).mu, budget.delta)


def largest_step(budget: Budget, slack: float) -> Step:
    """Return the largest step within an (ε, δ) whose slack is this share of δ."""
    if budget.delta == 0:
        raise ParameterError("delta must be above 0 for Gaussian accounting; raise delta, or account by addition")
    if not 0 <= slack < 1:
        raise ParameterError("slack must lie in [0, 1): it is a share of delta")
    delta = round_down(Fraction(budget.delta) * Fraction(slack))
    return Step(gaussian_mu(budget.epsilon, budget.delta, delta), delta)


SLACK_DELTA_SHARE = 0.1
"""Share of δ that is slack in a release of several steps. It is fixed: see `AccountingContext.curve`."""


def promise_step(promise: Budget) -> Step:
    """Return the largest step of a release within a budget, which is divided over its parts."""
    return largest_step(promise, SLACK_DELTA_SHARE)


_TERMS = np.array(
    [
        [1.1832619145678034, -0.2423996705218081, 0.035091880234748005, 0.07169048120143744, -0.0807080096790523],
        [
            0.04495912907706981,
            -0.01253910362039814,
            -0.0007159509052838121,
            0.001741848773732585,
            -0.00023670175882712258,
        ],
        [
            -2.202155756957516e-4,
            5.3266970938315365e-5,
            3.415881433183821e-5,
            -8.606187876096938e-6,
            -6.5533544552582505e-6,
        ],
        [
            1.0194890870987357e-6,
            1.390762707984928e-6,
            -3.101083609757584e-9,
            -2.869299965207942e-7,
            -4.494916382038613e-8,
        ],
        [
            5.077844122332048e-8,
            1.3723059452459651e-8,
            -6.5624402369464745e-9,
            -1.6952996818880583e-9,
            4.480233382099169e-10,
        ],
    ]
)
"""Weights of 1, y, y², y³ and y⁴ in the factor of each power of y⁵."""


def mills_ratio(t: FloatArray) -> FloatArray:
    """Return R(t), element by element, to a relative 1e-15 for t ≥ −2."""
    size = np.abs(t)
    y = np.ravel((size - 4) / (size + 4))
    # Few calls: most arrays are short.
    powers = np.empty((5, len(y)))
    powers[0], powers[1] = 1.0, y
    square = np.multiply(y, y, out=powers[2])
    np.multiply(square, y, out=powers[3])
    fifth = np.multiply(square, square, out=powers[4]) * y
    parts = _TERMS @ powers
    # Horner's rule in y⁵.
    values = parts[-1]
    for part in parts[-2::-1]:
        values *= fifth
        values += part
    values = values.reshape(np.shape(size))
    values = values / (1 + size)
    if np.any(t < 0):
        values = np.where(t < 0, math.sqrt(2 * math.pi) * np.exp(0.5 * np.minimum(t, 0.0) ** 2) - values, values)
    return np.asarray(values)


def log_tail(t: FloatArray) -> FloatArray:
    """Return ln(1 − Φ(t)) for t ≥ 0, the tail itself to a relative 1e-15·(1 + t²)."""
    return np.asarray(np.log(mills_ratio(t)) - 0.5 * t * t - _LOG_ROOT)


def log_normal_cdf(z: FloatArray) -> FloatArray:
    """Return ln Φ(z), element by element; SciPy's takes a third of a second to import.

    >>> log_normal_cdf(np.array([-10.0, 0.0, 10.0])).round(3).tolist()
    [-53.231, -0.693, -0.0]
    """
    log_upper = log_tail(np.minimum(np.abs(z), 1e6))
    return np.where(z < 0, log_upper, np.log1p(-np.exp(log_upper)))
