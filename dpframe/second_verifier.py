"""A second verifier of releases: one file, Python's standard library only, written from the format and the papers.

``python second_verifier.py release.parquet`` reads a description (Parquet or JSON), derives the law of each part, and
bounds all losses. docs/explanation/second_verifier.md derives the formulas. Bounds are decimals of 60 digits, widened
by far more than their rounding. Only the contour sum of shuffled rows uses floats, and is widened as well.
"""

from __future__ import annotations

import base64
import cmath
import hashlib
import io
import json
import math
import sys
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Context, Decimal, localcontext
from functools import cache
from itertools import accumulate, islice, pairwise, product
from operator import attrgetter, mul
from pathlib import Path
from statistics import NormalDist
from typing import Any

DIGITS = Context(prec=60, Emax=10**12, Emin=-(10**12))
WIDENING, FLOAT_WIDENING = Decimal("1e-45"), 1e-7
"""Relative widening of decimal results, and of the contour sum, whose floats err by rows · 2^-50 (tolerance)."""

WORD_TOTAL, LOG_STEPS = 1 << 64, 10**12
"""Sum of the weights of a law (the format); steps of logarithms of densities, rounded up (tolerance)."""

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
ZERO, ONE, INFINITE = Decimal(0), Decimal(1), Decimal("inf")
TABLE_SLACK, TOTAL_SLACK, TAIL_SLACK = Decimal("1e-4"), Decimal("0.1"), Decimal("1e-3")
"""Parts of δ for tables' slack, of δ for all slack, of inference's slack for tails of its noise (the format)."""

MOST_ATOMS, MOST_DENSITIES, MOST_NODES = 20_000, 96, 1_000
"""Outcomes of unshuffled rows, values of a density in a contour sum, points of a profile (limits of time)."""

PROVED, REFUTED, UNREADABLE, NOT_PROVED, NOT_COVERED = 0, 1, 2, 4, 5
WORDS = {PROVED: "proved", NOT_PROVED: "not proved", NOT_COVERED: "not covered", REFUTED: "refuted"}
"""Verdicts, the worst last."""


class VerdictError(Exception):
    """A verdict and its reason: a contradiction, or a part that is not covered."""


def require(is_met: bool, reason: str, verdict: int = REFUTED) -> None:
    """Raise a verdict and its reason unless a condition is met."""
    if not is_met:
        raise VerdictError(verdict, reason)


def up(x: Decimal) -> Decimal:
    """Return a decimal above x by the widening."""
    return x + abs(x) * WIDENING


def down(x: Decimal) -> Decimal:
    """Return a decimal below x by the widening."""
    return x - abs(x) * WIDENING


def upper_tail(x: Decimal) -> tuple[Decimal, Decimal]:
    """Return bounds of 1 − Φ(x)."""
    if x < 0:
        low, high = upper_tail(-x)
        return down(1 - high), up(1 - low)
    height = (-x * x / 2).exp() / (2 * PI).sqrt()
    if x < 3:
        # Φ(x) − 1/2 = φ(x)·(x + x³/3 + x⁵/(3·5) + …): once factors exceed 2x², what is left is below the last term.
        term, total, factor = x, x, 3
        while factor < 2 * x * x or term > total * WIDENING:
            term = term * x * x / factor
            total, factor = total + term, factor + 2
        return down(ONE / 2 - height * (total + term)) - WIDENING, up(ONE / 2 - height * total) + WIDENING
    # Convergents of Laplace's continued fraction 1/(x + 1/(x + 2/(x + …))) lie below and above in turns.
    before, here, depth = (ZERO, ONE), (ONE, x), 1
    low, high = ZERO, 1 / x
    while high - low > high * Decimal("1e-32"):
        before, here = here, (x * here[0] + depth * before[0], x * here[1] + depth * before[1])
        low, high = (here[0] / here[1], high) if depth % 2 else (low, here[0] / here[1])
        depth += 1
    return down(height * low), up(height * high)


def gaussian_profile(mu: Decimal, x: Decimal) -> tuple[Decimal, Decimal]:
    """Return bounds of G_μ(x) = Φ(μ/2 − x/μ) − e^x·Φ(−μ/2 − x/μ) for x ≥ 0."""
    if mu <= 0:
        return ZERO, ZERO
    first, second = upper_tail(x / mu - mu / 2), upper_tail(x / mu + mu / 2)
    return max(ZERO, down(first[0] - up(x.exp()) * second[1])), max(ZERO, up(first[1] - down(x.exp()) * second[0]))


@dataclass(frozen=True)
class Step:
    """A bound H(x) ≤ slack + (1 − slack)·G_μ(x) for x ≥ 0. In compositions μ² adds and 1 − slack multiplies."""

    square: Decimal = ZERO
    slack: Decimal = ZERO

    @property
    def mu(self) -> Decimal:
        """The parameter μ, rounded up."""
        return up(self.square.sqrt())

    def __add__(self, other: Step) -> Step:
        return Step(up(self.square + other.square), up(self.slack + other.slack - self.slack * other.slack))

    def delta(self, epsilon: Decimal) -> Decimal:
        """Return δ(ε), rounded up."""
        return min(ONE, up(self.slack + (1 - self.slack) * gaussian_profile(self.mu, epsilon)[1]))


def smallest(is_enough: Callable[[Decimal], bool], high: Decimal, digits: int = 12) -> Decimal:
    """Return the least number that is enough, rounded up to so many digits; infinite if ``high`` is not."""
    low, high = ZERO, high if is_enough(high) else INFINITE
    while high - low > high * Decimal(10) ** -digits:
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def sampler_distance(sigma2: Decimal) -> Decimal:
    """Return a bound on the total variation distance of the sampled law from the discrete Gaussian (the format)."""
    if sigma2 <= 1 << 16:
        return up(Decimal(2 * math.isqrt(math.ceil(144 * sigma2)) + 3) / (1 << 128) + Decimal(2) ** -102)
    return up(sampler_distance(Decimal(192**2)) + sampler_distance((sigma2 - 192**2) / 4096) + Decimal(2) ** -100)


def normal_score(low: Decimal, high: Decimal) -> tuple[Decimal, Decimal]:
    """Return bounds z of the numbers whose 1 − Φ(z) lies between two probabilities."""
    guess, width = Decimal(-NormalDist().inv_cdf(min(float(high), 1 - 2**-53))), Decimal("1e-13")
    while upper_tail(guess - width)[0] < high or upper_tail(guess + width)[1] > low:
        width *= 10
    return guess - width, guess + width


@cache
def lattice_mu(sigma2: Decimal, summands: int, shift: int, tail: Decimal) -> Decimal:
    """Return μ whose curve is below the trade-off of S and S + shift but for a tail, S a sum of discrete noise."""
    variance = sigma2 * summands
    drift, reach = shift / variance.sqrt(), math.ceil(15 * variance.sqrt()) + shift + 2
    if variance > 100_000:
        # P(S ≥ j) = 1 − Φ(w) − w·φ(w)/(24·variance) up to the remainder of the midpoint rule, w = (j − 1/2)/σ.
        remainder = Decimal("0.04") * (((-2 * tail.ln()).sqrt() + drift) ** 3 + 8) / variance**2
        return up(drift * (1 + 1 / (24 * variance)) + remainder)
    if summands == 1 or sigma2 >= 8:
        # Completing the square, the sum has the law of one draw of the whole parameter, to a relative 10^-30.
        weights = [(-x * x / (2 * variance)).exp() for x in range(reach + 1)]
    else:
        width = math.ceil(16 * sigma2.sqrt()) + 1
        draw = [((x, 0), (-x * x / (2 * sigma2)).exp()) for x in range(-width, width + 1)]
        sums = sum_law([draw] * summands, sys.maxsize)
        weights = [sums.get((place, 0), ZERO) for place in range(reach + 1)]
    total, upper = 2 * sum(weights, ZERO) - weights[0], [ZERO, *accumulate(reversed(weights))][::-1]

    @cache
    def reach_score(j: int) -> tuple[Decimal, Decimal, Decimal]:
        share = upper[j] / total if j >= 0 else 1 - upper[1 - j] / total
        return share, *normal_score(share * (1 - Decimal("1e-29")), share * (1 + Decimal("1e-29")))

    # To reject at j has the errors P(S ≥ j) and P(S < j − shift). Between these points the trade-off is straight, and
    # the curve is convex: so only the points are compared (Dong, Roth, Su 2022).
    mu, j = ZERO, shift // 2
    while reach_score(j - shift)[0] > tail * (1 - Decimal("1e-20")):
        mu, j = max(mu, reach_score(j)[2] - reach_score(j - shift)[1]), j + 1
    return up(mu)


Noise = tuple[Decimal, int, int]
"""σ², how many numbers one replaced row moves, and each by how much at most."""


def noise_step(noises: Iterable[Noise], rows: int, slack: Decimal) -> Step:
    """Return the step of all numbers together for a person of ``rows`` rows, at a slack."""
    merged: dict[tuple[Decimal, int], int] = {}
    for sigma2, numbers, move in noises:
        merged[sigma2, move] = merged.get((sigma2, move), 0) + numbers
    step, part = Step(), slack / max(1, len(merged))
    for (sigma2, move), numbers in merged.items():
        require(sigma2 * 4 >= 1 and part > 0, f"noise of sigma2={sigma2:.6g} at the slack {part:.3g}")
        # The ideal law replaces the sampled one at the price β·(1 + e^x), up to the x beyond which the tail remains.
        drift = numbers * move * rows / (sigma2 * numbers).sqrt()
        largest_loss = drift * ((-2 * part.ln()).sqrt() + drift + 1)
        tail = part - numbers * sampler_distance(sigma2) * (1 + largest_loss.exp())
        require(tail >= part / 2, "a slack near the distance of the sampler from its law", NOT_COVERED)
        square = lattice_mu(sigma2, numbers, numbers * move * rows, tail) ** 2
        if rows > 1 and move == 1:
            # In every other split of the moves one number at least moves by less than all rows together.
            each = [lattice_mu(sigma2, 1, j, tail / (numbers * rows)) ** 2 / j for j in range(1, rows + 1)]
            square = max(square, rows * ((numbers - 1) * max(each) + max(each[:-1])))
        step += Step(up(square), part)
    return step


@dataclass(frozen=True)
class Factor:
    """A part of a row's density: its pure loss, its blanket, and whether it is an item of a sparse set."""

    epsilon: Decimal
    blanket: Decimal
    is_item: bool = False


@dataclass(frozen=True)
class Loss:
    """The loss of a channel: bounds of its pure loss, blanket, δ at the claimed ε, factors, and ε in the total."""

    low: Decimal
    high: Decimal
    blanket: Decimal
    delta: Decimal = ZERO
    factors: tuple[Factor, ...] = ()
    pure: Decimal = ZERO

    @classmethod
    def of(cls, pure: Decimal, blanket: Decimal, spread: Decimal = ZERO, delta: Decimal = ZERO) -> Loss:
        """Return a loss that is known up to a spread, rounded outwards."""
        return cls(down(pure - spread), up(pure + spread), down(min(ONE, blanket)), up(delta))


def response_weights(size: int, epsilon: Decimal, delta: Decimal = ZERO) -> tuple[int, int, int]:
    """Return the weights of the code itself and of another code, and their total, of randomised response."""
    if size == 1:
        return 1, 1, 1
    share = (1 - delta) / (min(epsilon, Decimal(10_000)).exp() + size - 1)
    bits, other = 32, max(1, math.ceil(share * (1 << 32)))
    if size > 1001 or other * min(ONE, epsilon) < 1 << 16 or size * other > 1 << 32:
        bits, other = 64, min(max(1, math.ceil(share * WORD_TOTAL)), WORD_TOTAL // size)
    keep = (1 << bits) - (size - 1) * other
    require(keep > other, f"no randomised response on {size} codes at epsilon={epsilon:.6g}")
    return keep, other, 1 << bits


def two_weight_loss(keep: int, other: int, total: int, epsilon: Decimal) -> Loss:
    """Return the loss of a channel of two weights, such as randomised response (Holohan, Leith, Mason 2017)."""
    delta = max(ZERO, (keep - down(epsilon.exp()) * other) / total)
    return Loss.of((Decimal(keep) / other).ln(), Decimal(total - keep + other) / total, delta=delta)


def staircase(span: int, width: int, is_nullable: bool, epsilon: Decimal, delta: Decimal) -> Loss:
    """Return the loss of a box about the value, and a floor below (the format; Geng, Viswanath 2014)."""
    share = (1 - delta) / (width * min(epsilon, Decimal(10_000)).exp() + span + width * is_nullable)
    low = max(1, math.ceil(share * WORD_TOTAL))
    top = (WORD_TOTAL - (span + width * (1 + is_nullable)) * low) // width
    require(top > 0, f"no staircase on {span} steps at epsilon={epsilon:.6g}")
    return two_weight_loss(width * (top + low), width * low, WORD_TOTAL, epsilon)


def rounding_spread(ideal: Sequence[int]) -> Decimal:
    """Return ln(max/min) of weight over ideal for whole weights of a law by largest remainders, rounded up."""
    ideal_sum = sum(ideal)
    parts = [divmod(mass * WORD_TOTAL, ideal_sum) for mass in ideal]
    weights = [quotient or 1 for quotient, _ in parts]
    missing = WORD_TOTAL - sum(weights)
    if missing < 0:
        weights[weights.index(max(weights))] += missing
    for i in sorted(range(len(parts)), key=lambda i: -parts[i][1] if parts[i][0] else 0)[: max(0, missing)]:
        weights[i] += 1
    ratios = [Decimal(weight) / mass for weight, mass in zip(weights, ideal, strict=True)]
    return up((max(ratios) / min(ratios)).ln())


@cache
def geometric_spread(span: int, rate: float) -> Decimal:
    """Return the largest deviation of ln(weight/ideal), max − min, of sampled two-sided geometric noise."""
    block = 1 if span <= 511 else 1 << round(math.log2(span) / 2)
    above, below, unit = -(-span // block) + 1, -(-(span - 1) // block) + 1, 1 << 192
    alpha, beta = int((-Decimal(rate)).exp() * unit), int((-Decimal(rate) * block).exp() * unit)
    powers, inside = [unit], [unit]
    while len(powers) < above:
        powers.append(powers[-1] * beta >> 192)
    while len(inside) < block:
        inside.append(inside[-1] * alpha >> 192)
    inner = [power * (unit - beta) >> 192 for power in powers]
    upper, lower = [*inner[:-1], powers[-1]], [*inner[: below - 1], powers[below - 1]]
    spread = rounding_spread([*upper, *(mass * alpha >> 192 for mass in lower)])
    return spread + (rounding_spread(inside) if block > 1 else ZERO) + Decimal(2) ** -100


def fitted_rate(span: int, steps: int, budget: Decimal) -> tuple[Decimal, Decimal]:
    """Return the largest rate of noise on a grid, and its spread, with steps · rate + spread within a budget."""
    spread = ZERO
    for _ in range(60):
        rate = min(math.nextafter(float((budget - spread) / steps), 0.0), 42.0 / span)
        if rate <= 2.0**-100:
            break
        grid_spread = geometric_spread(span, rate)
        if steps * Decimal(rate) + grid_spread <= budget:
            return Decimal(rate), grid_spread
        spread = max(grid_spread, 2 * spread)
    raise VerdictError(REFUTED, f"no geometric noise on {span} steps at epsilon={budget:.6g}")


def geometric(span: int, flags: int, epsilon: Decimal) -> Loss:
    """Return the loss of clipped two-sided geometric noise, with flag codes too (Ghosh et al. 2009)."""
    half = (span + 1) // 2
    rate, spread = fitted_rate(span, half, epsilon / 2) if flags else fitted_rate(span, span, epsilon)
    keep, flip, total = response_weights(flags + 1, epsilon / 2)
    alpha = (-rate).exp()
    above, below = (min(keep * alpha**steps, Decimal(flip)) for steps in (span - half, half))
    blanket = (flags * flip + (alpha * above + below) / (1 + alpha)) / total * (-spread).exp()
    return Loss.of(max(rate * span, (Decimal(keep) / flip).ln() + rate * half), blanket, spread)


def bit_flips(items: int, most: int, epsilon: Decimal, is_halved: bool = False, is_nullable: bool = False) -> Loss:
    """Return the loss of independent flips of items, of at most 2·most in which two sets differ (Wang et al. 2017)."""
    first, second = min(most, items), min(most, items - min(most, items))
    keep, flip, total = response_weights(1 + is_nullable, epsilon / 2)
    rate = epsilon / (2 * most if is_nullable else most if is_halved else first + second)

    def loss_of(zeros: int, bits: int) -> Loss:
        q = Decimal(zeros) / (1 << bits)
        p = ONE / 2 if is_halved else 1 - q
        one_loss, zero_loss = (p / q).ln(), ((1 - q) / (1 - p)).ln()
        pure = first * one_loss + second * zero_loss
        if is_nullable:
            mass = Decimal(flip)
            for m in range(items + 1):
                # The least likely input of a set of m items has none of them, and as many others as it may.
                more = min(most, items - m)
                least = q ** (m + more) * (1 - q) ** (items - m - more)
                mass += math.comb(items, m) * min(keep * least, flip * q**m * (1 - q) ** (items - m))
            return Loss.of(max(pure, (Decimal(keep) / flip).ln() + first * one_loss), mass / total)
        # The law of the empty set, scaled, lies under all laws; or each item has a blanket of its own.
        count, each = (most, pure / most) if 2 * most <= items else (items, max(one_loss, zero_loss))
        share = (1 - p) / (1 - q) if 2 * most <= items else 1 - p + q
        factor = Factor(up(each), down(share), is_item=2 * most <= items)
        return replace(Loss.of(pure, share**count), factors=(factor,) * count)

    zeros = max(1, math.ceil(WORD_TOTAL / (1 + min(rate, Decimal(1000)).exp()) * (1 + Decimal("1e-50"))))
    require(2 * zeros + 2 < WORD_TOTAL, f"no flips of {items} items at epsilon={epsilon:.6g}")
    zeros += loss_of(zeros, 64).low > epsilon
    best = loss_of(zeros, 64)
    # The binary digits are the fewest that use nearly all of what 64 digits use (the format).
    goal = min(epsilon, best.high) * Decimal("0.9999")
    losses = (loss_of(fewer, bits) for bits in range(1, 64) if 2 * (fewer := -(-zeros >> 64 - bits)) < 1 << bits)
    return next((loss for loss in losses if loss.high >= goal and loss.low <= epsilon), best)


def table_loss(rows: Sequence[str], codes: int, epsilon: Decimal, least: int) -> Loss:
    """Return the loss of a table of hexadecimal weights, a row for each input and each weight at least ``least``."""
    widths = [len(law) // codes for law in rows]
    laws = [[int(law[i * w : i * w + w], 16) for i in range(codes)] for law, w in zip(rows, widths, strict=True)]
    is_square = len(rows) == codes and all(w * codes == len(law) for law, w in zip(rows, widths, strict=True))
    is_law = all(sum(law) == WORD_TOTAL and min(law) >= least for law in laws)
    require(is_square and is_law, f"a table has no {codes} laws whose weights add up to 2^64")
    ranges = [(min(weights), max(weights)) for weights in zip(*laws, strict=True) if any(weights)]
    pure = max(Decimal(high) / low if low else INFINITE for low, high in ranges).ln()
    odds, delta = down(epsilon.exp()), ZERO
    for first, second in product(laws, laws) if pure > epsilon else ():
        excess = sum((a - odds * b for a, b in zip(first, second, strict=True) if a > odds * b), ZERO)
        delta = max(delta, excess / WORD_TOTAL)
    if pure == INFINITE:
        return Loss(pure, pure, ZERO, up(delta))
    return Loss.of(pure, Decimal(sum(low for low, _ in ranges)) / WORD_TOTAL, delta=delta)


Law = dict[tuple[int, int], Decimal]
"""Masses of pairs (ln A, ln B) of a row's densities, in steps of 10^-12, above the common part of all laws."""


@cache
def density_of(key: int) -> Decimal:
    """Return the density of a logarithm in steps."""
    return (Decimal(key) / LOG_STEPS).exp()


def factor_law(factor: Factor, is_ordered: bool = False) -> Law:
    """Return the law of (A, B) of a factor, at the corners of [1, E]²; of rows in order the loss alone is enough."""
    blanket = max(factor.blanket, down((-factor.epsilon).exp()))
    if is_ordered and not factor.is_item:
        blanket = max(blanket, down(2 / (1 + factor.epsilon.exp())))
    # E is raised where no law has both.
    least = (1 / blanket**2 if factor.is_item else 2 / blanket - 1).ln()
    key = math.ceil(max(factor.epsilon, least) * LOG_STEPS)
    if key == 0:
        return {(0, 0): ONE}
    side = (1 - blanket) / (density_of(key) - 1)
    if not factor.is_item:
        return {(key, 0): side, (0, key): side, (0, 0): max(ZERO, blanket - 2 * side)}
    one, both, neither = side * (1 - side / blanket), side**2 / blanket, (blanket - side) ** 2 / blanket
    return {(key, 0): one, (0, key): one, (key, key): both, (0, 0): neither}


def thinned(law: Law, axis: int, most: int) -> Law:
    """Return a law with few values on an axis: to split others between neighbours raises every convex expectation."""
    masses: dict[int, float] = {}
    for pair, mass in law.items():
        masses[pair[axis]] = masses.get(pair[axis], 0.0) + float(mass)
    keys = sorted(masses)
    # Values stay dense where mass · gap² would add most variance.
    gaps = [float(density_of(b) - density_of(a)) for a, b in pairwise(keys)]
    worth = [(masses[key] * gap * gap) ** (1 / 3) for key, gap in zip(keys, gaps, strict=False)]
    scale, result = most / math.fsum(worth), Law()
    runs = pairwise(int(total * scale) for total in accumulate(worth, initial=0.0))
    places = [keys[0], *(key for key, (last, run) in zip(keys[1:], runs, strict=True) if last < run or key == keys[-1])]
    for pair, mass in law.items():
        place = bisect_left(places, pair[axis])
        high, low = places[place], places[place - (places[place] != pair[axis])]
        span = density_of(high) - density_of(low)
        share = (density_of(pair[axis]) - density_of(low)) / span if span else ONE
        for key, part in ((low, 1 - share), (high, share)):
            target = (key, pair[1]) if axis == 0 else (pair[0], key)
            result[target] = result.get(target, ZERO) + mass * part
    return result


def sum_law(laws: Iterable[Iterable[tuple[tuple[int, int], Decimal]]], most: int) -> Law:
    """Return the law of a sum of independent pairs, with at most so many values on each axis."""
    joint: Law = {(0, 0): ONE}
    for law in laws:
        longer: Law = {}
        for ((a, b), mass), ((i, j), part) in product(joint.items(), law):
            longer[a + i, b + j] = longer.get((a + i, b + j), ZERO) + mass * part
        joint = longer
        for axis in (0, 1):
            if len({pair[axis] for pair in joint}) > most:
                joint = thinned(joint, axis, most * 3 // 4)
    return joint


def unshuffled_law(laws: Iterable[Law]) -> list[tuple[Decimal, Decimal]]:
    """Return the law of the likelihood ratio A/B of a row: its masses under the second law, and ratios."""
    ratios = ([((a - b, 0), mass * density_of(b)) for (a, b), mass in law.items()] for law in laws)
    return [(mass, density_of(key)) for (key, _), mass in sum_law(ratios, MOST_ATOMS).items()]


class ShuffledRows:
    """Rows that are permuted together, and a bound of their profile by the blanket (Balle et al. 2019, Lemma 5.3)."""

    def __init__(self, laws: Iterable[Law], rows: int) -> None:
        law = sum_law((law.items() for law in laws), MOST_DENSITIES)
        firsts, seconds = (sorted({pair[axis] for pair in law}) for axis in (0, 1))
        self.firsts, self.seconds = ([float(density_of(key)) for key in keys] for keys in (firsts, seconds))
        table = [[float(law.get((a, b), ZERO)) for b in seconds] for a in firsts]
        self.totals, self.rows = [math.fsum(column) for column in zip(*table, strict=True)], rows
        # Most pairs of large densities have no mass: their rows end early.
        self.masses = [masses[: max((i + 1 for i, mass in enumerate(masses) if mass), default=0)] for masses in table]

    def log_moment(self, z: complex, odds: float) -> complex:
        """Return ln E[e^(zS)]; e^(zA − zB) − 1 is (e^(zA) − 1)·e^(−zB) + (e^(−zB) − 1), without cancelling."""
        downs = [cmath.exp(-z * odds * b) for b in self.seconds]
        total = sum(mass * (down - 1) for mass, down in zip(self.totals, downs, strict=True))
        for a, masses in zip(self.firsts, self.masses, strict=True):
            total += (cmath.exp(z * a) - 1) * sum(map(mul, masses, downs))
        return self.rows * cmath.log(1 + total)

    def delta(self, x: float, is_fast: bool) -> float:
        """Return a bound on the profile at x, two parts in ten thousand above the sum; more far out if it is fast."""
        odds, largest = math.exp(x), self.firsts[-1]

        def height(log: float) -> float:
            return self.log_moment(complex(math.exp(log)), odds).real - 2 * log

        low, high = math.log(1e-6 / largest), math.log(600 / (largest * odds))
        while high - low > 1e-3:
            first, second = low + (high - low) * 0.382, low + (high - low) * 0.618
            low, high = (low, second) if height(first) < height(second) else (first, high)
        c, top = math.exp(low), height(low) + 2 * low
        bend = height(low + 0.02) + height(low - 0.02) - 2 * height(low)
        sd = math.sqrt(max(bend, 1e-12)) / (0.02 * c)
        blur, step = 0.02 * (min(max(1 / c, sd), 3 / c) if is_fast else 1 / c), 2 * math.pi / (7 * sd + 6 / c)

        def term(k: int) -> float:
            z = complex(c, k * step)
            return (cmath.exp(self.log_moment(z, odds) - top + blur**2 * z * z / 2) / z**2).real

        total, tail, k = term(0), math.inf, 0
        while tail > 1e-7 * total and k < 1 << 16:
            total += 2 * math.fsum(map(term, range(k + 1, k + 25)))
            k += 24
            y = k * step
            tail = 2 * math.exp(blur**2 * (c * c - y * y) / 2) / y**2 / -math.expm1(-(blur**2) * y * step)
        bound = math.log((total + tail) * step / (2 * math.pi)) + top - math.log(self.rows)
        return math.exp(min(0.0, bound)) * (1 + FLOAT_WIDENING)


class Rows:
    """Randomised rows of one person: how many are permuted together, which share of the table they are, k of them."""

    def __init__(self, units: Sequence[Loss], rows: int | None, share: Decimal, contributions: int) -> None:
        factors = [factor for unit in units for factor in unit.factors]
        laws, ordered = ([factor_law(factor, is_ordered) for factor in factors] for is_ordered in (False, True))
        self.pure = up(sum((factor.epsilon for factor in factors), ZERO))
        self.rows, self.share, self.contributions, self.is_fast = rows, share, contributions, False
        self.unshuffled, self.values = unshuffled_law(ordered), dict[float, Decimal]()
        # The row as one factor that is only known to be private: the clones of Feldman, McMillan and Talwar 2021.
        clone = [factor_law(Factor(self.pure, down(2 / (1 + self.pure.exp()))))]
        choices = [laws] if rows and rows > 4 * self.pure.exp() else [laws, clone]
        self.bounds = [ShuffledRows(choice, rows) for choice in choices] if rows and self.pure > 0 else []

    def row_delta(self, x: Decimal) -> Decimal:
        """Return a bound on the profile of the rows at x ≥ 0 if one of them is replaced and all are released."""
        key = math.nextafter(float(x), 0.0)
        if x >= self.pure:
            return ZERO
        if key not in self.values:
            odds = down(Decimal(key).exp())
            excess = sum((mass * (ratio - odds) for mass, ratio in self.unshuffled if ratio > odds), ZERO)
            self.values[key] = min([up(excess), *(Decimal(bound.delta(key, self.is_fast)) for bound in self.bounds)])
        return self.values[key]

    def person_delta(self, x: Decimal) -> Decimal:
        """Return the bound for a secret sample (Balle, Barthe, Gaboardi 2018) and a person of several rows."""
        k, each = self.contributions, x / self.contributions
        inside = (1 + (each.exp() - 1) / self.share).ln()
        chain = (x.exp() - 1) / (each.exp() - 1) if k > 1 and each > 0 else Decimal(k)
        return min(ONE, up(chain * self.share * self.row_delta(inside)))

    def step(self, slack: Decimal) -> Step:
        """Return the least step above the profile: chords lie above it, tangents of a curve below the curve."""
        if self.pure == 0:
            return Step()
        self.is_fast = True
        # At 0 a curve is about μ/√(2π) high, which sets the scale on which it falls.
        guess = max(self.person_delta(ZERO) * Decimal("2.5066"), Decimal("1e-6"))
        nodes = [(ZERO, ONE, self.person_delta(ZERO))]
        while nodes[-1][2] > slack and len(nodes) < MOST_NODES:
            x = nodes[-1][0] + guess / 14
            nodes.append((x, x.exp(), self.person_delta(x)))
        if nodes[-1][2] > slack:
            return Step(INFINITE, slack)

        def is_above(mu: Decimal) -> bool:
            curve = [slack + (1 - slack) * gaussian_profile(mu, x)[0] for x, _, _ in nodes]
            slopes = [-(1 - slack) * upper_tail(mu / 2 + x / mu)[1] for x, _, _ in nodes]
            for node, next_node in pairwise(zip(nodes, curve, slopes, strict=True)):
                (_, start, first), low, fall = node
                (_, end, second), high, rise = next_node
                # The lower envelope of the curve bends where two tangents meet.
                meet = (high - rise * end - low + fall * start) / (fall - rise) if fall != rise else start
                share = (meet - start) / (end - start)
                if 0 < share < 1 and first + (second - first) * share > low + fall * (meet - start):
                    return False
            return all(delta <= height for (_, _, delta), height in zip(nodes, curve, strict=True))

        mu = smallest(is_above, 2 * guess, 6)
        return Step(up((mu if mu < INFINITE else smallest(is_above, Decimal(100), 6)) ** 2), slack)


def binary_delta(losses: Iterable[Decimal], step: Step, epsilon: Decimal) -> Decimal:
    """Return δ(ε) of a step and of unshuffled rows, each of which is e^±loss (Kairouz, Oh, Viswanath 2015)."""
    total = ZERO
    for mass, ratio in unshuffled_law(factor_law(Factor(loss, ZERO), is_ordered=True) for loss in losses):
        x = epsilon - ratio.ln()
        profile = gaussian_profile(step.mu, abs(x))[1]
        # Below 0 the profile is that of the opposite order, which is equal.
        total += mass * ratio * (profile if x >= 0 else 1 - x.exp() + x.exp() * profile)
    return min(ONE, up(step.slack + (1 - step.slack) * total))


PLAN_FIELDS = {"schema", "epsilon", "delta", "n", "shuffle", "contributions", "nulls", "columns", "drop", "passthrough"}
PLAN_FIELDS |= {"leaks", "sample", "inferred", "keeps_index", "local_epsilon", "reused", "measures", "privacy_id"}
PLAN_FIELDS |= {"rules", "groups"}
INFERRED_FIELDS = {"epsilon", "delta", "columns", "measured", "thresholds", "receipt", "mu", "slack", "id", "unit"}
INFERRED_FIELDS |= {"earlier", "asked", "rows"}
MICROSECONDS = {"D": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
SECRET_VALUES = ("values", "ranks", "items")
"""Lengths of units of times, of which others are not covered; histograms whose values need a threshold (the format)."""


def number(value: Any, name: str, is_whole: bool = False, least: int = 0) -> Any:
    """Return a JSON number as an exact decimal, or as an integer."""
    is_number = type(value) is int or (type(value) is float and not is_whole)
    require(is_number and least <= value < math.inf, f"{name} is no {'whole ' * is_whole}number of at least {least}")
    return value if is_whole else Decimal(value)


@dataclass(frozen=True)
class Space:
    """The numbers of values (of sets: of items), flag codes, and items of a set at most; ``is_grid``: of numbers."""

    values: int
    flags: int
    most: int
    kind: str
    is_grid: bool
    data: Mapping[str, Any]

    @classmethod
    def of(cls, data: Mapping[str, Any], flags: int = 0) -> Space:
        """Read a space."""
        kind, flags = data.get("space"), flags + len(data.get("special") or ())
        if kind == "nullable":
            return cls.of(data["inner"], flags + 1)
        if kind in ("categorical", "ordinal", "subset"):
            names, other = data["items" if kind == "subset" else "categories"], data.get("other")
            values = len(names) + (other is not None and other not in names)
        elif kind in ("boolean", "empty"):
            values = 2 if kind == "boolean" else 1
        elif kind == "integer":
            values = (data["upper"] - data["lower"]) // data.get("step", 1) + 1
        elif kind == "real":
            values = data["steps"] + 1
        elif kind == "datetime" and data.get("resolution") in MICROSECONDS and "P" not in data["lower"]:
            length = datetime.fromisoformat(data["upper"]) - datetime.fromisoformat(data["lower"])
            values = length // timedelta(microseconds=MICROSECONDS[data["resolution"]]) + 1
        else:
            raise VerdictError(NOT_COVERED, f"the space {kind!r}")
        most = min(data.get("max_size") or values, values)
        is_grid = kind in ("integer", "real", "datetime")
        return cls(number(values, f"values of {kind}", True, 1), flags, most, kind, is_grid, data)

    @property
    def codes(self) -> int:
        """The number of codes: of sets of at most ``most`` items or of values, and of flags."""
        sizes = range(self.most + 1) if self.kind == "subset" else [1]
        return sum(math.comb(self.values, size) for size in sizes) + self.flags


def channel_loss(data: Mapping[str, Any], spaces: Sequence[Space]) -> Loss:
    """Return the loss of a mechanism, whose sizes must be its space's."""
    tag, space = data["mechanism"], spaces[0]
    epsilon, delta = number(data["epsilon"], f"epsilon of {tag}"), number(data.get("delta", 0), f"delta of {tag}")
    fields = {"mechanism", "epsilon", "delta", "size", "span", "flag_codes", "items", "max_size", "table", "metric"}
    unknown = set(data) - fields - {"width", "nullable", "sizes", "kept"}
    is_covered = tag in CHANNELS and not unknown and (delta == 0 or not ("geometric" in tag or "bitflip" in tag))
    require(is_covered, f"the mechanism {tag} at delta={delta:.3g}, or its fields {unknown}", NOT_COVERED)
    require(data.get("kept") in (None, [], [*range(len(spaces))]), "a group without some of its columns", NOT_COVERED)
    stated = {name: value for name, value in data.items() if name in ("size", "span", "items", "sizes", "flag_codes")}
    wanted: dict[str, Any] = {"span": space.values - 1, "items": space.values, "flag_codes": space.flags}
    wanted |= {"size": space.values + space.flags, "sizes": [one.values + one.flags for one in spaces]}
    if "span" in data or "items" in data:
        stated["flag_codes"] = data.get("flag_codes", int(tag.startswith("nullable") or data.get("nullable") is True))
    sets = min(data.get("max_size") or space.values, space.values) if "items" in data else space.most
    require(stated.items() <= wanted.items() and sets == space.most, f"{tag} has {stated}, and its space {wanted}")
    is_valid = epsilon > 0 and delta < 1 and ("items" in data) == (space.kind == "subset")
    require(is_valid, f"{tag} claims epsilon={epsilon:.6g}, delta={delta:.6g} on the space {space.kind}")
    return CHANNELS[tag](data, space, epsilon, delta)


CHANNELS: Mapping[str, Callable[[Mapping[str, Any], Space, Decimal, Decimal], Loss]] = {
    "randomized_response": lambda data, space, e, d: two_weight_loss(*response_weights(data["size"], e, d), e),
    "gamma_diagonal": lambda data, space, e, d: two_weight_loss(*response_weights(math.prod(data["sizes"]), e, d), e),
    "set_response": lambda data, space, e, d: two_weight_loss(*response_weights(space.codes, e, d), e),
    "nullable_set_response": lambda data, space, e, d: two_weight_loss(*response_weights(space.codes, e, d), e),
    "geometric": lambda data, space, e, d: geometric(data["span"], space.flags, e),
    "nullable_geometric": lambda data, space, e, d: geometric(data["span"], space.flags, e),
    "staircase": lambda data, space, e, d: staircase(data["span"], data["width"], data["nullable"], e, d),
    "bitflip": lambda data, space, e, d: bit_flips(space.values, space.most, e),
    "asymmetric_bitflip": lambda data, space, e, d: bit_flips(space.values, space.most, e, is_halved=True),
    "nullable_bitflip": lambda data, space, e, d: bit_flips(space.values, space.most, e, is_nullable=True),
    "optimal": lambda data, space, e, d: table_loss(data["table"], space.codes, e, least=1),
    "exponential": lambda data, space, e, d: table_loss(data["table"], space.codes, e, least=1),
    "matrix": lambda data, space, e, d: table_loss(data["table"], space.codes, e, least=0),
}


@dataclass
class Findings:
    """Lines of a report, the worst verdict of them, and the totals by name."""

    lines: list[str] = field(default_factory=list)
    verdict: int = PROVED
    totals: dict[str, float] = field(default_factory=dict)

    def record(self, verdict: int, text: str) -> None:
        """Record a verdict."""
        self.verdict = max(self.verdict, verdict, key=list(WORDS).index)
        self.lines.append(f"{WORDS[verdict]}: {text}")

    def compare(self, name: str, claim: Decimal, high: Decimal, low: Decimal = ZERO) -> None:
        """Compare bounds of a loss with its claim."""
        verdict = REFUTED if low > claim else PROVED if high <= claim else NOT_PROVED
        self.record(verdict, f"{name} claims {claim:.9g}, at most {high:.9g} by its law")
        self.totals[name] = float(high)


def value_spaces(rules: Sequence[Mapping[str, Any]], spaces: Mapping[str, Space]) -> dict[str, Space]:
    """Return the value columns of rules `one_of` on columns of two values that are in no other rule (the format)."""
    uses, result = Counter[Any](), {}
    for rule in rules:
        uses.update({*rule.get("if", ()), *rule.get("then", ()), *map(rule.get, ("column", "of", "low", "high"))})
        uses.update(rule.get("one_of", ()))
    for rule in rules:
        names = rule.get("one_of", ())
        if names and all(uses[name] == 1 and name in spaces and spaces[name].codes == 2 for name in names):
            values = len(names) + bool(rule.get("at_most"))
            result[f"one of {names[0]} … {names[-1]}"] = Space(values, 0, values, "categorical", False, {})
    return result


def units_of(plan: Mapping[str, Any], spaces: Mapping[str, Space], findings: Findings) -> list[Loss]:
    """Return the units of a plan, each compared with its claim."""
    grouped = {name: group for group in plan.get("groups", []) for name in group["names"]}
    parts = {id(part): part for one in plan["columns"] for part in [grouped.get(one["name"], one)]}
    units = []
    for part in parts.values():
        names, data = part.get("names", [part.get("name")]), part.get("mechanism")
        require(isinstance(data, dict), f"no stored mechanism of {names}", NOT_COVERED)
        loss = channel_loss(data, [spaces[name] for name in names])
        label, epsilon, delta = ", ".join(names), Decimal(data["epsilon"]), Decimal(data.get("delta", 0))
        if delta == 0:
            findings.compare(f"epsilon of {label}", epsilon, loss.high, loss.low)
        else:
            findings.compare(f"delta of {label}", delta, loss.delta, loss.delta * (1 - Decimal("1e-9")))
        # The claim, if it is nearly the loss, so that equal claims have equal densities.
        is_near = epsilon * (1 - Decimal("1e-6")) < loss.high < epsilon
        pure = epsilon if delta > 0 or is_near else loss.high
        factors = tuple(one for one in loss.factors or (Factor(pure, loss.blanket),) if one.epsilon > 0)
        units.append(replace(loss, delta=delta, pure=pure, factors=factors))
    return units


def noise_of(measure: Mapping[str, Any], spaces: Mapping[str, Space]) -> Noise:
    """Return the numbers of a measured table that one replaced row moves."""
    kind, names, sigma2 = measure["kind"], measure["columns"], number(measure["sigma2"], "sigma2")
    is_known = set(measure) <= {"kind", "columns", "sigma2", "most", "level"} and set(names) <= spaces.keys()
    require(is_known, f"a table of {names} with unknown fields or columns", NOT_COVERED)
    space = spaces[names[0]]
    is_of_sets = kind in ("items", "sizes", "item_pairs")
    is_valid = is_of_sets == (space.kind == "subset") and (kind != "sum" or space.is_grid)
    require(is_valid, f"a table {kind} of the space {space.kind}")
    items, most = space.values, min(measure.get("most", 0), space.values)
    pairs = [(a, b) for a in range(most + 1) for b in range(most + 1)] if kind == "item_pairs" else [(0, 0)]
    moved = max(math.comb(a, 2) + math.comb(b, 2) - 2 * math.comb(max(0, a + b - items), 2) for a, b in pairs)
    # A row leaves one cell and enters another, or changes the counts of its former and its new items.
    numbers = {"one_way": 2, "joint": 2, "sizes": 2, "sum": 1, "items": min(2 * most, items), "item_pairs": moved}
    require(kind in numbers, f"the measured table {kind!r}", NOT_COVERED)
    return sigma2, numbers[kind], items - 1 if kind == "sum" else 1


def way_cost(specs: Iterable[Mapping[str, Any]], slack: Decimal | None, rows: int) -> tuple[Step, Decimal, Decimal]:
    """Return the step of histograms' noise, the chance that a person's own value shows, and ε with geometric noise."""
    noises, chance, loss = list[Noise](), ZERO, ZERO
    for spec in specs:
        variance, cells = number(spec["variance"], "variance"), number(spec["cells"], "cells", True, 1)
        threshold = number(spec.get("threshold", 0), "threshold", True)
        is_valid = (threshold > 0) == (spec["kind"] in SECRET_VALUES) and (threshold == 0 or slack is not None)
        require(is_valid, "a threshold is missing, or is at delta 0 or of a public histogram")
        noises.append((variance, 2 * cells, 1))
        # The rate of geometric noise of variance v is arcosh(1 + 1/v).
        height = 1 + 1 / variance
        loss += 2 * cells * rows * (height + (height * height - 1).sqrt()).ln()
        if threshold:
            # The tail of discrete noise from d on lies below the normal tail from d − 1 on.
            tail = upper_tail((threshold - rows - 1) / variance.sqrt())[1] + sampler_distance(variance)
            chance += rows * cells * tail
    return Step() if slack is None else noise_step(noises, rows, slack), up(chance), loss


def inference_cost(inferred: Mapping[str, Any], slack: Decimal | None, rows: int) -> tuple[Step, Decimal]:
    """Return the step of all that inference might ask, at a slack, or without one its ε with geometric noise."""
    step, loss = Step(), ZERO
    ways: dict[str, dict[str | None, list[Mapping[str, Any]]]] = {}
    pairs = ((name, spec) for group in inferred["asked"] for name in group["columns"] for spec in group["histograms"])
    for name, spec in pairs:
        ways.setdefault("" if spec.get("way") is None else name, {}).setdefault(spec.get("way"), []).append(spec)
    count = max(1, sum(map(len, ways.values())))
    part = None if slack is None else TAIL_SLACK * slack / count
    for column in ways.values():
        # Of the ways of a column, one for each kind of values, only the dearest counts.
        steps, chances, losses = zip(*(way_cost(specs, part, rows) for specs in column.values()), strict=True)
        step += max(steps, key=lambda one: one.square) + Step(ZERO, max(chances))
        loss += max(losses)
    return step, up(loss)


def check_recorded(inferred: Mapping[str, Any]) -> None:
    """Compare the counts that inference recorded with what it might ask, column by column and in order."""
    groups, measured = inferred["asked"], inferred["measured"]
    names = {name for part in groups for name in part["columns"]} | {one["column"] for one in measured}
    require(names <= set(inferred["columns"]), "inference has counts of columns that it does not name")
    for name in inferred["columns"]:
        specs = [spec for group in groups if name in group["columns"] for spec in group["histograms"]]
        counts = [one for one in measured if one["column"] == name]
        last, ways = counts[-1] if counts else {}, {spec.get("way") for spec in specs} - {None} or {None}
        choices = [[spec for spec in specs if spec.get("way") in (None, way)] for way in ways]
        if last.get("kind") == "lengths" and not last["cells"]:
            # Lists of no length have no norms.
            choices = [choice[: len(counts)] for choice in choices]
        shape, *shapes = ([(one["kind"], one["variance"]) for one in part] for part in (counts, *choices))
        require(shape in shapes, f"the counts of {name} are not those that inference asked for")
        if last.get("kind") in SECRET_VALUES:
            limit, limits = inferred["thresholds"].get(name), [spec.get("threshold") for spec in specs]
            is_above = limit in limits and min(last["counts"], default=limit) >= limit
            require(is_above, f"the counts of {name} are not those above its threshold")


def inference_step(inferred: Mapping[str, Any], plan: Mapping[str, Any], findings: Findings) -> Step:
    """Compare an inference's claims with its requests; return its step, which is none if its (ε, δ) is subtracted."""
    require(set(inferred) <= INFERRED_FIELDS, "unknown fields of an inference", NOT_COVERED)
    rows, unit, person = plan.get("contributions", 1), inferred.get("unit") or "row", plan.get("privacy_id")
    counted = 1 if unit == "row" else int(unit.split()[0]) if unit.endswith(" rows") else 0
    is_unit = "unit" not in inferred or (counted >= rows if person is None else unit == f"person:{person}")
    require(is_unit, f"spaces were inferred for the unit {unit}, and the plan is for another")
    epsilon, delta = number(inferred["epsilon"], "epsilon"), number(inferred["delta"], "delta")
    stated = Step(number(inferred["mu"], "mu") ** 2, number(inferred["slack"], "slack")) if "mu" in inferred else None
    if inferred.get("asked") is None:
        findings.record(NOT_PROVED if inferred["columns"] else PROVED, "what inference might ask is not stated")
        return stated or Step()
    check_recorded(inferred)
    slack = None if stated is None and delta == 0 else delta / 10 if stated is None else stated.slack
    cost, pure = inference_cost(inferred, slack, rows)
    if slack is None:
        findings.compare("inference's epsilon", epsilon, pure, pure * (1 - Decimal("1e-9")))
        return Step()
    if stated is not None:
        findings.compare("inference's mu", Decimal(inferred["mu"]), cost.mu)
        findings.compare("inference's slack", stated.slack, cost.slack)
    least_delta = (stated or cost).delta(epsilon)
    findings.compare("inference's delta", delta, least_delta, least_delta * (1 - Decimal("1e-9")))
    return stated or Step()


def check_total(plan: Mapping[str, Any], spaces: Mapping[str, Space], findings: Findings) -> None:
    """Compare all losses together with the claim."""
    epsilon, delta = number(plan["epsilon"], "epsilon"), number(plan.get("delta", 0), "delta")
    k, sample, n = number(plan.get("contributions", 1), "contributions", True, 1), plan.get("sample"), plan.get("n")
    units, measures = units_of(plan, spaces, findings), plan.get("measures") or []
    central, target, delta_left = Step(), epsilon, delta
    if (inferred := plan.get("inferred")) is not None:
        central += inference_step(inferred, plan, findings)
        if "mu" not in inferred:
            target, delta_left = epsilon - Decimal(inferred["epsilon"]), delta - Decimal(inferred["delta"])
    if measures:
        tables = noise_step([noise_of(one, spaces) for one in measures], k, TABLE_SLACK * delta)
        findings.record(PROVED, f"tables have mu={tables.mu:.9g}, slack={tables.slack:.3g}")
        central += tables
    is_secret = bool(plan.get("shuffle", True)) and not plan.get("passthrough")
    require(not (plan.get("keeps_index") and is_secret), "an index leaves with shuffled rows")
    share = Decimal(sample) / n if sample is not None and is_secret and n else ONE
    person = Rows(units, (n if sample is None else sample) if is_secret and delta > 0 else None, share, k)
    failing, *sums = (sum(map(attrgetter(name), units), ZERO) for name in ("delta", "low", "high", "pure"))
    low, high, sampled = ((1 + share * (loss.exp() - 1)).ln() if share < 1 else loss for loss in sums)
    slack = (TOTAL_SLACK * delta_left - central.slack) / (1 - central.slack)
    if delta == 0:
        findings.compare("total epsilon", target, up(k * high) if failing == 0 else INFINITE, down(k * low))
    elif central == Step() and failing > 0:
        findings.compare("total epsilon", target, up(k * sampled) if share < 1 else k * sampled)
        chain = sum(((sampled * i).exp() for i in range(k)), ZERO)
        findings.compare("total delta", delta_left, up(chain * share * failing) if k > 1 or share < 1 else failing)
    elif central == Step():
        findings.compare("total delta", delta_left, person.person_delta(target))
    elif person.rows is None or failing > 0:
        total = central + Step(ZERO, k * failing)
        findings.compare("total delta", delta_left, binary_delta([unit.pure for unit in units] * k, total, target))
    elif slack <= 0:
        findings.record(NOT_PROVED, "tables and inference leave no slack for the rows")
    else:
        step = person.step(slack)
        findings.record(PROVED, f"shuffled rows have mu={step.mu:.6g}, slack={slack:.3g}")
        findings.totals["mu of rows"], total = float(step.mu), central + step
        findings.compare("total delta", delta_left, total.delta(target) if step.square < INFINITE else ONE)
    if plan.get("local_epsilon") is not None:
        # Someone knows the row's place: neither order nor sample hides it.
        cap, half = number(plan["local_epsilon"], "local_epsilon"), delta / 2 if central.square > 0 else delta
        base = smallest(lambda x: central.delta(x) <= half, Decimal(1000)) if central.square > 0 else ZERO
        odds = max(ZERO, cap - base).exp()
        composed = sum((mass * (ratio - odds) for mass, ratio in person.unshuffled if ratio > odds), ZERO)
        loss = min(sums[-1], cap - base) if failing == 0 and up(composed) <= half and base < cap else sums[-1]
        findings.compare("local epsilon", cap, up(base + loss) if failing <= half else INFINITE)


def level_starts(space: Space, size: int, low: int, before: int) -> list[int]:
    """Return the first codes of a level's cells within a cell that begins at ``low`` on a level of another size."""
    values, data, codes = space.values, space.data, {1, space.values - 1}
    if space.kind != "datetime":
        # Zero is a cell of its own on every level, as the bounds are.
        lower = float(data["lower"])
        step = data.get("step", 1) if space.kind == "integer" else (data["upper"] - data["lower"]) / data["steps"]
        place = -lower / (lower + float(step) - lower)
        codes |= {round(place), round(place) + 1} if 0 < place < values - 1 else set()
    end = -(-(low * before // values + 1) * values // before)
    high = min([end, values, *(code for code in codes if code > low and before > 1)])
    places = range(low * size // values, -(-high * size // values) + 1)
    return sorted({code for code in (low, *codes, *(-(-i * values // size) for i in places)) if low <= code < high})


def cells_of(measure: Mapping[str, Any], spaces: Mapping[str, Space], bins: Mapping[Any, list[int]]) -> tuple[Any, Any]:
    """Return the first codes of the cells of a table's columns, as its seal has them, and its shape."""
    kind, names, most, level = measure["kind"], measure["columns"], measure.get("most", 0), measure.get("level", 0)
    space = spaces[names[0]]
    if level > 1:
        # The cells of the level before that are divided are listed.
        parents, before = bins[names[0], most], 64 * 16 ** (level - 2)
        return [parents], [sum(len(level_starts(space, most, low, before)) for low in parents)]
    sizes, start = min(16, space.most) + 1, 17
    while start <= space.most:
        sizes, start = sizes + 1, -(-start * 5 // 4)
    lists = {"sum": 1, "items": space.values, "item_pairs": math.comb(space.values, 2), "sizes": sizes}
    if kind in lists:
        return [None], [lists[kind]]
    starts_of, shape = list[list[int] | None](), []
    for one, name in ((spaces[name], name) for name in names):
        equal = [-(-cell * one.values // most) for cell in range(most)] if one.is_grid and one.values > most else None
        cut = bins[name, most] if equal and kind == "joint" else equal
        starts_of.append(level_starts(one, most, 0, 1) if level == 1 else cut or None)
        shape.append(len(starts_of[-1] or range(one.values)) + one.flags)
    return starts_of, shape


def check_description(data: Mapping[str, Any], spaces: Mapping[str, Space], file_rows: int | None) -> None:
    """Compare the numbers of rows with each other, and the blob of counts with the measured tables and their seal."""
    n, sample, measures = number(data["n"], "n", True), data["plan"].get("sample"), data["plan"].get("measures") or []
    rows, tables = data.get("rows", n), data.get("tables")
    is_equal = file_rows in (None, n) and sample in (None, n) and max(n, data["plan"].get("n") or 0) <= rows
    require(is_equal, f"a file of {file_rows} rows, a table of {rows}, and a plan of other numbers")
    require(bool(measures) == (tables is not None), "the tables of the description are not those of its plan")
    if tables is None:
        return
    cells = [cells_of(one, spaces, {(name, most): starts for name, most, starts in tables["bins"]}) for one in measures]
    planes = zlib.decompress(base64.b64decode(tables["counts"], validate=True))
    count = sum(math.prod(shape) for _, shape in cells)
    require(len(planes) == 8 * count, "there are other numbers than the measured tables have")
    zigzags = [int.from_bytes(planes[i::count], "little") for i in range(count)]
    numbers = iter([((one >> 1) ^ -(one & 1)).to_bytes(8, "little", signed=True) for one in zigzags])
    seal = hashlib.sha256(data["digest"][:16].encode())
    for measure, (starts, shape) in zip(measures, cells, strict=True):
        seal.update(json.dumps([measure, starts, shape]).encode() + b"".join(islice(numbers, math.prod(shape))))
    require(seal.hexdigest()[:16] == data["digest"][16:], "the measured tables are not those that were sealed")


def verify(data: Mapping[str, Any], file_rows: int | None = None) -> Findings:
    """Return the findings about a description or a plan; ``file_rows``: the number of rows in its file."""
    findings = Findings()
    with localcontext(DIGITS):
        try:
            plan = data.get("plan", data)
            is_known = set(plan) <= PLAN_FIELDS and max(data.get("schema", 1), plan.get("schema", 1)) <= 3
            require(is_known, f"unknown fields or schema: {sorted(set(plan) - PLAN_FIELDS)}", NOT_COVERED)
            spaces = {column["name"]: Space.of(column["space"]) for column in plan["columns"]}
            spaces = value_spaces(plan.get("rules") or [], spaces) | spaces
            if "plan" in data:
                check_description(data, spaces, file_rows)
            check_total(plan, spaces, findings)
        except VerdictError as error:
            findings.record(*error.args)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, zlib.error) as error:
            findings.record(REFUTED, f"the description is damaged: {type(error).__name__}: {error}")
    return findings


def thrift_reader(data: bytes) -> Callable[[int], Any]:
    """Return a reader of values of Thrift's compact protocol: numbers, bytes, lists, and structs as dicts by field."""
    take = io.BytesIO(data).read

    def number_of(is_signed: bool = False) -> int:
        value, shift, byte = 0, 0, 128
        while byte > 127:
            byte = take(1)[0]
            value, shift = value | (byte & 127) << shift, shift + 7
        return (value >> 1) ^ -(value & 1) if is_signed else value

    def read(kind: int) -> Any:
        if kind < 3 or kind in (3, 7):
            return kind == 1 if kind < 3 else take(1 if kind == 3 else 8)
        if kind < 9:
            return take(number_of()) if kind == 8 else number_of(is_signed=True)
        if kind in (9, 10):
            size, item = divmod(take(1)[0], 16)
            # A list's booleans have a byte each.
            return [read(3 if item < 3 else item) for _ in range(number_of() if size == 15 else size)]
        fields, name = dict[int, Any](), 0
        while head := take(1)[0]:
            name = name + (head >> 4) if head >> 4 else number_of(is_signed=True)
            fields[name] = read(head & 15)
        return fields

    return read


def read_description(content: bytes) -> tuple[Mapping[str, Any], int | None]:
    """Return the description in a file's bytes, and the number of rows of the file if that is Parquet."""
    if content[-4:] != b"PAR1":
        return json.loads(content), None
    size = int.from_bytes(content[-8:-4], "little")
    footer = thrift_reader(content[-8 - size : -8])(12)
    pairs = {pair[1]: pair.get(2, b"") for pair in footer[5]}
    text = pairs[b"dpframe"] if b"dpframe" in pairs else json.loads(pairs[b"PANDAS_ATTRS"])["dpframe"]
    return json.loads(text), footer[3]


def main(arguments: Sequence[str]) -> int:
    """Print the findings about a file, and return the exit status."""
    try:
        data, rows = read_description(Path(*arguments).read_bytes())
    except (OSError, ValueError, LookupError, TypeError) as error:
        print(f"usage: second_verifier.py RELEASE, a Parquet file or a description in JSON: {error}", file=sys.stderr)
        return UNREADABLE
    findings = verify(data, rows)
    print(f"{WORDS[findings.verdict].upper()} (the plan; rows are not read)", *findings.lines, sep="\n")
    return findings.verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
