"""Discrete Gaussian noise on counts and integer sums as steps, from the exact lattice law of the sampler.

One changed row moves counts: in a table of counts one loses 1 and one gains 1, a sum of integers moves by at most its
range. The loss of noise of parameter σ² on a number that moves by Δ is (Δ² − 2Δy)/2σ² at y ~ P(y) ∝ e^(−y²/2σ²): a
lattice of spacing Δ/σ², not a normal law. Its profile is straight in e^x between lattice points and touches the
continuous G_(Δ/σ) only near them, so that it lies above it: by 1/(8σ²) in μ for one number. The step is proved
for the lattice law itself (`undercurve`), for every σ.

*m numbers that move by 1* have the loss (m − 2S)/2σ², S the sum of m draws. One number of parameter mσ²
that moves by m has an equal loss: S has its law, to a factor for each addition,

    |factor − 1| ≤ 2Σ_{k≥1} e^(−2π²τ²k²),  1/τ² = 1/a² + 1/b² for parameters a², b²          (Poisson's formula),

below 1e-30 for σ² ≥ `_MIN_MERGED_SIGMA2`; for smaller σ² the sum's law is convolved term by term.

*Moves are monotone*: a longer one is easier to detect (the law is log-concave, the best tests are thresholds), and
a number that does not move reveals nothing. So a person of k rows moves a sum by k·range at worst. In counts k rows
split into moves of at most k in many ways, and neither ℓ1 nor ℓ2 norm orders them. The split in which all rows move
one set of m counts is computed exactly. In any other split at least k of the m·k unit moves are part of moves by less
than k: with r_s the μ² that one count moved by s needs, its μ² is at most (m − 1)·k·max_{s≤k} r_s/s +
k·max_{s<k} r_s/s. The larger μ² is claimed.

*Vectors* (`BallNoise`): numbers that move together, by a vector v with ‖v‖₂ ≤ r and otherwise unknown. The loss of
discrete noise in several dimensions is no function of ‖v‖₂, but for large σ it is nearly the normal law's: on
|y| ≤ zσ a weight is the normal law's of its cell [y − ½, y + ½] to a factor 1 ± κ, κ = (z² + 1)/(10·σ²), rounding
commutes with whole moves, and rounded normal laws are post-processed ones. So for d numbers P ≤ (1 + κ)^d·Q and
P' ≥ (1 − κ)^d·Q' with Q, Q' at most as far apart as normal laws that lie r apart, and with the tails beyond z
H(x) ≤ (1 + κ)^d·G_(r/σ)(x − d·ln((1 + κ)/(1 − κ))). It is used if dκ ≤ 1 %, smaller noise is refused; k rows of a
person move by k·r at most.

*Tables.* The sampler lies within a total variation distance β of the ideal law for each number that moves. With
m of them H(x) ≤ H_ideal(x) + m·β·(1 + e^x): P(A) ≤ P*(A) + mβ ≤ e^x·P*'(A) + H_ideal + mβ ≤ e^x·P'(A) + …. This, and
the tails left out, go into the slack, beyond which the profile need not be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpframe.accounting.arrays import FloatArray
from dpframe.accounting.budget import check_delta
from dpframe.accounting.gaussian_dp import FLOAT_ROUNDING, Step, composed_steps, gaussian_deltas
from dpframe.accounting.undercurve import Profile, Profiles, cover_many
from dpframe.errors import ParameterError, check_whole

_MIN_MERGED_SIGMA2 = 8.0
"""Least σ² at which sums of draws count as a discrete Gaussian: the error e^(−2π²·4) is 5e-35 for each addition."""
_MAX_SUMMED_SIGMA2 = 2.0**30
"""Largest parameter s² of a summed law; larger ones are bounded by the normal law, cell by cell."""
_MIN_RUNNING_SUMS = 1 << 16
"""Number of lattice points from which on a profile uses running sums."""
_BLOCK_TERMS = 1 << 16
"""Terms that are summed at a time, so that they stay in the cache."""
_MU_SEARCH_TOLERANCE = 1e-4
"""Relative width of the search for μ, rounded up."""
_MAX_LATTICE_NODES = 4000
"""Most nodes of a certificate: the curve binds everywhere at once, so that nodes lie close."""
LEAST_SIGMA2 = 0.25
"""Least σ² of the tables of a release: a limit of the format of plans."""
LEAST_LATTICE_SIGMA2 = 0.0625
"""Least σ² whose lattice law has a bound."""
_STEP_SLACK_DELTA = 2.0**-80
_SEARCH_FACTOR = 1 + 1e-3
"""Factor by which the largest μ² per row may be overstated, so that the search computes few moves."""
_MAX_NORMAL_ERROR = 0.01
"""Largest relative difference between a law of vectors and the normal law."""


@dataclass(frozen=True)
class IntegerNoise:
    """Numbers that get discrete Gaussian noise of one parameter, independently.

    ``numbers``: how many of them one replaced row can change: 2 for each table of counts, 2s if a row counts in s
    cells, 1 for a sum. ``span``: by how much it can move each. ``distance``: bound on the total variation distance of a
    draw from the ideal law.
    """

    sigma2: float
    numbers: int = 2
    span: int = 1
    distance: float = 0.0

    def __post_init__(self) -> None:
        if not (LEAST_LATTICE_SIGMA2 <= self.sigma2 < math.inf):
            raise ParameterError("sigma2 must be finite and at least 1/16; raise the noise")
        check_whole(self.numbers, "numbers")
        check_whole(self.span, "span")
        check_delta(self.distance, "distance")

    @property
    def moves(self) -> int:
        """Squares of the span in the square of the ℓ2 norm by which all numbers move."""
        return self.numbers

    def step(self, contributions: int, slack: float) -> Step:
        """Return the step of the noise for a person of ``contributions`` rows."""
        together = _shift_step(self, contributions * self.span, slack)
        if contributions == 1 or self.numbers == 1:
            return together
        one = replace(self, numbers=1)
        # At most that many numbers move in any split, and each takes its part of the slack.
        piece = slack / (self.numbers * contributions)

        def square(spans: int) -> float:
            return float(_shift_step(one, spans * self.span, piece).mu ** 2)

        densest_parts = _max_per_row(square, contributions - 1)
        densest = max(square(contributions) / contributions, densest_parts)
        split_square = (self.numbers - 1) * contributions * densest + contributions * densest_parts
        return Step(max(together.mu, math.sqrt(split_square) * (1 + 8 * FLOAT_ROUNDING)), slack)


@dataclass(frozen=True)
class BallNoise(IntegerNoise):
    """Numbers that move together, by a vector whose ℓ2 norm is at most ``span``."""

    moves = 1  # the span is the norm

    def step(self, contributions: int, slack: float) -> Step:
        """Return the step of the noise for a person of k rows, who moves the numbers by at most k times the norm."""
        return _ball_step(self, contributions * self.span, slack)


def _convolve_up(one: FloatArray, two: FloatArray) -> FloatArray:
    """Return a convolution term by term, of positive terms, rounded up."""
    return np.asarray(np.convolve(one, two) * (1 + FLOAT_ROUNDING * (8 + len(two))))


@lru_cache(maxsize=32)
def _sum_law(sigma2: float, numbers: int, tail: float) -> tuple[FloatArray, int, float]:
    """Return P(S = s) of a sum of draws for s ≥ −reach, rounded up, the reach, and a bound on the mass beyond."""
    merged = sigma2 if numbers == 1 or sigma2 < _MIN_MERGED_SIGMA2 else sigma2 * numbers
    copies = 1 if merged != sigma2 or numbers == 1 else numbers
    # A draw's tail is sub-Gaussian (Canonne–Kamath–Steinke 2020, Fact 18): beyond t it has at most 2e^(−t²/2σ²).
    reach = math.ceil(math.sqrt(2 * merged * math.log(4 * copies / tail))) + 1
    y = np.arange(-reach, reach + 1, dtype=np.float64)
    law = np.exp(-y * y / (2 * merged))
    law *= (1 + FLOAT_ROUNDING * (8 + reach * reach / merged)) / law.sum()
    total, square, remaining = np.ones(1), law, copies
    # Repeated squaring: the law of m draws takes about 2·log₂(m) convolutions.
    while remaining:
        if remaining & 1:
            total = _convolve_up(total, square)
        remaining >>= 1
        square = _convolve_up(square, square) if remaining else square
    return total, (len(total) - 1) // 2, tail


def lattice_profile(noise: IntegerNoise, shift: int, tail: float) -> Profile:
    """Return bounds from above on the profile of numbers that all move by ``shift``; laws omit the mass ``tail``."""
    profiles = _lattice_profiles(noise, shift, tail)
    return lambda x: float(profiles(np.array([x]))[0])


def _lattice_profiles(noise: IntegerNoise, shift: int, tail: float) -> Profiles:
    m = noise.numbers
    beta = m * float(Fraction(noise.distance)) * (1 + FLOAT_ROUNDING)
    s2 = noise.sigma2 * m
    if s2 > _MAX_SUMMED_SIGMA2 and noise.sigma2 >= _MIN_MERGED_SIGMA2:
        # A law so wide that each weight is the normal law's of its cell, to a factor 1 ± κ: the integral of
        # g(y) = e^(−y²/2s²) over a cell of width 1 is g(y)·(1 ± κ), κ = (z² + 1)/(20·s²) up to |y| = z·s, as
        # g'' = g·(y²/s² − 1)/s² changes little within it. Both laws are then a rounded normal's, so that their profile
        # is at most (1 + 2κ)·G(x − 4κ), as the weights' sum has that factor too.
        deviation = math.sqrt(s2)
        z = math.sqrt(2 * math.log(4 / tail)) + 1 + m * shift / deviation
        kappa = 2 * (z * z + 1) / (20 * s2)
        mu = m * shift / deviation * (1 + 4 * FLOAT_ROUNDING)
        return _near_normal(mu, 1 + 2 * kappa, 4 * kappa, tail, beta)
    law, reach, beyond = _sum_law(noise.sigma2, m, tail)
    s = np.arange(-reach, reach + 1, dtype=np.float64)
    # All numbers move by `shift`: L = shift·(m·shift − 2S)/2σ², which falls in S.
    loss = shift * (m * shift - 2 * s) / (2 * noise.sigma2)
    error, rounded = 4 * FLOAT_ROUNDING * float(np.abs(loss).max()), 1 + FLOAT_ROUNDING * (1000 + len(law))
    excess = _summed_excess(law, loss) if len(law) > _MIN_RUNNING_SUMS else _term_by_term(law, loss)

    def profiles(x: FloatArray) -> FloatArray:
        value = np.maximum(excess(x - error), 0.0)
        return np.minimum(1.0, value * rounded + beyond + _table_error(x, beta))

    return profiles


def _table_error(x: FloatArray, beta: float) -> FloatArray:
    """Return the increase of a profile by a sampler at total variation distance β from the ideal law."""
    return beta * (1 + np.exp(np.minimum(x, 700.0)))


def _term_by_term(law: FloatArray, loss: FloatArray) -> Profiles:
    """Return Σ P_i·(1 − e^(x − L_i)) over L_i > x, for losses that fall."""
    # Blocks of x bound the memory of the outer difference.
    rows = max(1, _BLOCK_TERMS // len(law))

    def excess(x: FloatArray) -> FloatArray:
        last = int(np.searchsorted(-loss, -np.min(x, initial=np.inf)))
        terms = [
            -np.expm1(np.minimum(x[start : start + rows, None] - loss[:last], 0.0)) @ law[:last]
            for start in range(0, len(x), rows)
        ]
        return np.concatenate([np.zeros(0), *terms])

    return excess


def _summed_excess(law: FloatArray, loss: FloatArray) -> Profiles:
    """Return `_term_by_term`, rounded up, from running sums of P and P·e^(−L), whose rounding is below n·u·ΣP each."""
    first, second = (np.concatenate([[0.0], np.cumsum(terms)]) for terms in (law, np.exp(np.log(law) - loss)))
    rounding = 1 + FLOAT_ROUNDING * (2 * len(law) + float(np.abs(loss).max()))

    def excess(x: FloatArray) -> FloatArray:
        last = np.searchsorted(-loss, -x)
        return np.asarray(first[last] * rounding - np.exp(np.minimum(x, 700.0)) * second[last])

    return excess


def _near_normal(mu: float, factor: float, shift: float, tail: float, beta: float) -> Profiles:
    """Return factor·G_μ(x − shift) plus the error bounds of tails and tables."""

    def profiles(x: FloatArray) -> FloatArray:
        value = factor * gaussian_deltas(mu, x - shift) + tail
        return np.minimum(1.0, value * (1 + 1e-12) + _table_error(x, beta))

    return profiles


@lru_cache(maxsize=512)
def _shift_step(noise: IntegerNoise, shift: int, slack: float) -> Step:
    """Return the step of numbers that all move by ``shift``."""
    return _prove_step(_lattice_profiles(noise, shift, slack / 16), slack)


@lru_cache(maxsize=512)
def _ball_step(noise: BallNoise, shift: int, slack: float) -> Step:
    """Return the step of numbers that move by a vector of norm at most ``shift``."""
    tail = slack / 16
    d, s = noise.numbers, math.sqrt(noise.sigma2)
    # Beyond z·σ lies P(|y| > t·σ) ≤ 2e^(−t²/2) for each number, t·σ less than z·σ by the move.
    z = math.sqrt(2 * math.log(4 * d / tail)) + 1 + shift / s
    relative_error = d * (z * z + 1) / (10 * noise.sigma2) * (1 + 1e-9)
    if z > s / 10 or relative_error > _MAX_NORMAL_ERROR:
        raise ParameterError("noise on vectors is too small for a nearly normal law; raise the noise")
    mu, beta = shift / s * (1 + 4 * FLOAT_ROUNDING), d * float(Fraction(noise.distance)) * (1 + FLOAT_ROUNDING)

    return _prove_step(_near_normal(mu, 1 + 1.01 * relative_error, 2.01 * relative_error, tail, beta), slack)


def _prove_step(profiles: Profiles, slack: float) -> Step:
    """Return the least step that lies above a profile."""
    proved = cover_many(profiles, Step(1.0, slack), _MU_SEARCH_TOLERANCE, _MAX_LATTICE_NODES)
    if not math.isfinite(proved.ratio):
        raise ParameterError("slack is smaller than the tables' distance from the ideal law; raise delta")
    return proved.step


def noise_step(noises: Sequence[IntegerNoise], contributions: int = 1, slack: float = _STEP_SLACK_DELTA) -> Step:
    """Return the step of noise on counts and sums of one table, neighbours differing in one person's rows.

    Noises of one parameter and span are merged: the more numbers, the finer the lattice and the closer μ is to the
    continuous √numbers·span/σ. The slack is divided among them.
    """
    check_whole(contributions, "contributions", of="rows per person")
    if not check_delta(slack, "slack") > 0:
        raise ParameterError("slack must be above 0: the tables' tails need some; raise delta")
    numbers_by_kind: dict[tuple[float, int, float], int] = {}
    balls = [noise for noise in noises if isinstance(noise, BallNoise)]
    for noise in noises:
        if isinstance(noise, BallNoise):
            continue
        # Equal noises give one finer lattice, whose step is smaller than the steps composed.
        key = (noise.sigma2, noise.span, noise.distance)
        numbers_by_kind[key] = numbers_by_kind.get(key, 0) + noise.numbers
    slack_share = slack / max(1, len(numbers_by_kind) + len(balls)) * (1 - 1e-9)
    groups = [IntegerNoise(sigma2, m, span, beta) for (sigma2, span, beta), m in numbers_by_kind.items()]
    return composed_steps([group.step(contributions, slack_share) for group in (*groups, *balls)])


def _max_per_row(square: Callable[[int], float], k: int) -> float:
    """Return max_{s≤k} r_s/s, or up to `_SEARCH_FACTOR` times that, of r_s that rise in s.

    Between a and b the ratio is at most r_b/a. Intervals whose bound is no more than the best ratio are skipped, so
    that about 2·log₂(k) of the r_s are computed, instead of k.

    >>> seen = []
    >>> 100_000 <= _max_per_row(lambda s: seen.append(s) or float(s * s), 100_000) <= 100_100, len(seen) < 50
    (True, True)
    >>> _max_per_row(lambda s: float(s) if s < 700 else s + 350.0, 100_000)  # largest at the jump
    1.5
    """
    upper = best = square(k) / k
    parts = [(1, k)]
    while parts:
        a, b = parts.pop()
        square_b = square(b)
        best = max(best, square_b / b)
        if a == b or square_b / a <= best * _SEARCH_FACTOR:
            upper = max(upper, square_b / a)
        else:
            middle = (a + b) // 2
            parts += [(a, middle), (middle + 1, b)]
    return upper


def gaussian_tail(sigma2: float, distance: int) -> float:
    """Return a bound on P(Z ≥ distance) of discrete Gaussian noise.

    The sum over x ≥ d of e^(−x²/2σ²) is at most its integral from d − 1, and the sum over all x at least σ√2π.
    """
    return 0.5 * math.erfc((distance - 1) / math.sqrt(2 * sigma2)) * (1 + 1e-9) if distance >= 1 else 1.0
