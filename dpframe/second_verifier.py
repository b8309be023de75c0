"""A second verifier of releases: one file, Python's standard library only, written from the format and the papers.

``python second_verifier.py release.parquet`` bounds what a description claims, in decimals of 60 digits, widened
by far more than their rounding. docs/explanation/second_verifier.md derives every formula, with its reason.
"""

from __future__ import annotations

import base64
import cmath
import hashlib
import json
import math
import sys
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Context, Decimal, localcontext
from functools import cache, partial
from itertools import accumulate, islice, pairwise, product
from operator import attrgetter, mul
from pathlib import Path
from statistics import NormalDist
from typing import Any

DIGITS = Context(prec=60, Emax=10**12, Emin=-(10**12))
WIDENING, CONTOUR_ROUNDING, LOG_STEPS = Decimal("1e-45"), 2.0**-44, 10**12
"""Relative widening of decimals; rounding, a row, of the contour sum's floats; steps of log densities (tolerances)."""
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
ZERO, ONE, INFINITE = Decimal(0), Decimal(1), Decimal("inf")
TABLE_SLACK, TOTAL_SLACK, TAIL_SLACK, WORD_TOTAL = Decimal("1e-4"), Decimal("0.1"), Decimal("1e-3"), 1 << 64
"""Parts of δ for tables, for all slack, of inference's slack for its noise; sum of a law's weights (the format)."""
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
        term, total, factor = x, x, 3
        while factor < 2 * x * x or term > total * WIDENING:
            term = term * x * x / factor
            total, factor = total + term, factor + 2
        return down(ONE / 2 - height * (total + term)) - WIDENING, up(ONE / 2 - height * total) + WIDENING
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
        remainder = Decimal("0.04") * (((-2 * tail.ln()).sqrt() + drift) ** 3 + 8) / variance**2
        return up(drift * (1 + 1 / (24 * variance)) + remainder)
    if summands == 1 or sigma2 >= 8:
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

    mu, j = ZERO, shift // 2
    while reach_score(j - shift)[0] > tail * (1 - Decimal("1e-20")):
        mu, j = max(mu, reach_score(j)[2] - reach_score(j - shift)[1]), j + 1
    return up(mu)


def noise_step(noises: Iterable[tuple[Decimal, int, int]], rows: int, slack: Decimal) -> Step:
    """Return the step, at a slack, of noise on numbers: σ², how many numbers a row moves, each by how much at most."""
    merged: dict[tuple[Decimal, int], int] = {}
    for sigma2, numbers, move in noises:
        merged[sigma2, move] = merged.get((sigma2, move), 0) + numbers
    step, part = Step(), slack / max(1, len(merged))
    for (sigma2, move), numbers in merged.items():
        require(sigma2 * 4 >= 1 and part > 0, f"noise of sigma2={sigma2:.6g} at the slack {part:.3g}")
        drift = numbers * move * rows / (sigma2 * numbers).sqrt()
        largest_loss = drift * ((-2 * part.ln()).sqrt() + drift + 1)
        tail = part - numbers * sampler_distance(sigma2) * (1 + largest_loss.exp())
        require(tail >= part / 2, "a slack near the distance of the sampler from its law", NOT_COVERED)
        square = lattice_mu(sigma2, numbers, numbers * move * rows, tail) ** 2
        if rows > 1 and move == 1:
            each = [lattice_mu(sigma2, 1, j, tail / (numbers * rows)) ** 2 / j for j in range(1, rows + 1)]
            square = max(square, rows * ((numbers - 1) * max(each) + max(each[:-1])))
        step += Step(up(square), part)
    return step


Factor = tuple[Decimal, Decimal, bool]
"""A part of a row's density: its pure loss, its blanket, and whether it is an item of a sparse set."""


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
    while True:
        rate = min(math.nextafter(float((budget - spread) / steps), 0.0), 42.0 / span)
        require(rate > 2.0**-100, f"no geometric noise on {span} steps at epsilon={budget:.6g}")
        grid_spread = geometric_spread(span, rate)
        if steps * Decimal(rate) + grid_spread <= budget:
            return Decimal(rate), grid_spread
        spread = max(grid_spread, 2 * spread)


def geometric(space: Space, epsilon: Decimal) -> Loss:
    """Return the loss of clipped two-sided geometric noise, with flag codes too (Ghosh et al. 2009)."""
    span, half, flags = space.values - 1, space.values // 2, space.flags
    rate, spread = fitted_rate(span, half, epsilon / 2) if flags else fitted_rate(span, span, epsilon)
    keep, flip, total = response_weights(flags + 1, epsilon / 2)
    alpha = (-rate).exp()
    above, below = (min(keep * alpha**steps, Decimal(flip)) for steps in (span - half, half))
    blanket = (flags * flip + (alpha * above + below) / (1 + alpha)) / total * (-spread).exp()
    return Loss.of(max(rate * span, (Decimal(keep) / flip).ln() + rate * half), blanket, spread)


def bit_flips(space: Space, epsilon: Decimal, is_halved: bool = False, is_nullable: bool = False) -> Loss:
    """Return the loss of independent flips of items, of at most 2·most in which two sets differ (Wang et al. 2017)."""
    items, most, second = space.values, space.most, min(space.most, space.values - space.most)
    require(not is_halved or 2 * most <= items, "asymmetric flips of sets of more than half of the items")
    keep, flip, total = response_weights(1 + is_nullable, epsilon / 2)
    rate = epsilon / (2 * most if is_nullable else most if is_halved else most + second)

    def loss_of(zeros: int, bits: int) -> Loss:
        q = Decimal(zeros) / (1 << bits)
        p = ONE / 2 if is_halved else 1 - q
        one_loss, zero_loss = (p / q).ln(), ((1 - q) / (1 - p)).ln()
        pure = most * one_loss + second * zero_loss
        if is_nullable:
            mass = Decimal(flip)
            for m in range(items + 1):
                more = min(most, items - m)
                least = q ** (m + more) * (1 - q) ** (items - m - more)
                mass += math.comb(items, m) * min(keep * least, flip * q**m * (1 - q) ** (items - m))
            return Loss.of(max(pure, (Decimal(keep) / flip).ln() + most * one_loss), mass / total)
        count, each = (most, pure / most) if 2 * most <= items else (items, max(one_loss, zero_loss))
        share = (1 - p) / (1 - q) if 2 * most <= items else 1 - p + q
        factor = up(each), down(share), 2 * most <= items
        return replace(Loss.of(pure, share**count), factors=(factor,) * count)

    zeros = max(1, math.ceil(WORD_TOTAL / (1 + min(rate, Decimal(1000)).exp()) * (1 + Decimal("1e-50"))))
    require(2 * zeros + 2 < WORD_TOTAL, f"no flips of {items} items at epsilon={epsilon:.6g}")
    zeros += loss_of(zeros, 64).low > epsilon
    best = loss_of(zeros, 64)
    goal = min(epsilon, best.high) * Decimal("0.9999")
    losses = (loss_of(fewer, bits) for bits in range(1, 64) if 2 * (fewer := -(-zeros >> 64 - bits)) < 1 << bits)
    return next((loss for loss in losses if loss.high >= goal and loss.low <= epsilon), best)


def table_loss(rows: Sequence[str], space: Space, epsilon: Decimal, least: int) -> Loss:
    """Return the loss of a table of hexadecimal weights, a row for each input and each weight at least ``least``."""
    codes, widths = space.codes, [len(law) // space.codes for law in rows]
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
density_of: Callable[[int], Decimal] = cache(lambda key: (Decimal(key) / LOG_STEPS).exp())
"""Density of a logarithm in steps."""


def factor_law(factor: Factor, is_ordered: bool = False) -> Law:
    """Return the law of (A, B) of a factor, at the corners of [1, E]²; of rows in order the loss alone is enough."""
    epsilon, blanket, is_item = factor
    blanket = max(blanket, down((-epsilon).exp()))
    if is_ordered and not is_item:
        blanket = max(blanket, down(2 / (1 + epsilon.exp())))
    key = math.ceil(max(epsilon, (1 / blanket**2 if is_item else 2 / blanket - 1).ln()) * LOG_STEPS)
    if key == 0:
        return {(0, 0): ONE}
    side = (1 - blanket) / (density_of(key) - 1)
    if not is_item:
        return {(key, 0): side, (0, key): side, (0, 0): max(ZERO, blanket - 2 * side)}
    one, both, neither = side * (1 - side / blanket), side**2 / blanket, (blanket - side) ** 2 / blanket
    return {(key, 0): one, (0, key): one, (key, key): both, (0, 0): neither}


def thinned(law: Law, axis: int, most: int) -> Law:
    """Return a law with few values on an axis: to split others between neighbours raises every convex expectation."""
    masses: dict[int, float] = {}
    for pair, mass in law.items():
        masses[pair[axis]] = masses.get(pair[axis], 0.0) + float(mass)
    keys = sorted(masses)
    worth = [(masses[a] * float(density_of(b) - density_of(a)) ** 2) ** (1 / 3) for a, b in pairwise(keys)]
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
        # That no row comes from the common part has at least this chance; then the sum is 0, and nothing is added.
        self.log_empty = rows * math.log(max(1 - math.fsum(self.totals) - 2**-40, 1e-300))
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

        low, high = math.log(1e-6 / largest), math.log(600 / largest)
        while high - low > 1e-3:
            first, second = low + (high - low) * 0.382, low + (high - low) * 0.618
            low, high = (low, second) if height(first) < height(second) else (first, high)
        c, top = math.exp(low), height(low) + 2 * low
        bend = height(low + 0.02) + height(low - 0.02) - 2 * height(low)
        sd = math.sqrt(max(bend, 1e-12)) / (0.02 * c)
        blur, step = 0.02 * (min(max(1 / c, sd), 2 / c) if is_fast else 1 / c), 2 * math.pi / (7 * sd + 6 / c)

        def term(k: int) -> float:
            z = complex(c, k * step)
            smooth = cmath.exp(blur**2 * z * z / 2) / z**2
            power = cmath.exp(self.log_moment(z, odds) - top) - math.exp(self.log_empty - top)
            return (power * smooth).real + self.rows * CONTOUR_ROUNDING * abs(smooth)

        total, tail, k = term(0), math.inf, 0
        while tail > 1e-7 * total and k < 1 << 16:
            total += 2 * math.fsum(map(term, range(k + 1, k + 25)))
            k += 24
            y = k * step
            tail = 2 * math.exp(blur**2 * (c * c - y * y) / 2) / y**2 / -math.expm1(-(blur**2) * y * step)
        bound = math.log((total + tail) * step / (2 * math.pi)) + top - math.log(self.rows)
        return math.exp(min(0.0, bound)) * (1 + 2**-30)


class Rows:
    """Randomised rows of one person: how many are permuted together, which share of the table they are, k of them."""

    def __init__(self, units: Sequence[Loss], rows: int | None, share: Decimal, contributions: int) -> None:
        factors = [factor for unit in units for factor in unit.factors]
        laws, ordered = ([factor_law(factor, is_ordered) for factor in factors] for is_ordered in (False, True))
        self.pure = up(sum((epsilon for epsilon, _, _ in factors), ZERO))
        self.rows, self.share, self.contributions, self.is_fast = rows, share, contributions, False
        self.unshuffled = unshuffled_law(ordered)
        clone = [factor_law((self.pure, down(2 / (1 + self.pure.exp())), False))]
        choices = [laws] if rows and rows > 4 * self.pure.exp() else [laws, clone]
        self.bounds = [ShuffledRows(choice, rows) for choice in choices] if rows and self.pure > 0 else []

    def person_delta(self, x: Decimal) -> Decimal:
        """Return a bound at x ≥ 0 for a person's rows and a secret sample (Balle, Barthe, Gaboardi 2018)."""
        k, each = self.contributions, x / self.contributions
        inside = (1 + (each.exp() - 1) / self.share).ln()
        if inside >= self.pure:
            return ZERO
        place = math.nextafter(float(inside), 0.0)
        excess = sum((mass * max(ZERO, ratio - down(Decimal(place).exp())) for mass, ratio in self.unshuffled), ZERO)
        row = min([up(excess), *(Decimal(bound.delta(place, self.is_fast)) for bound in self.bounds)])
        chain = (x.exp() - 1) / (each.exp() - 1) if k > 1 and each > 0 else Decimal(k)
        return min(ONE, up(chain * self.share * row))

    def step(self, slack: Decimal) -> Step:
        """Return the least step above the profile: chords lie above it, tangents of a curve below the curve."""
        if self.pure == 0:
            return Step()
        self.is_fast = True
        nodes = [(ZERO, ONE, self.person_delta(ZERO))]
        guess = max(nodes[0][2] * Decimal("2.5066"), Decimal("1e-6"))
        while nodes[-1][2] > slack and len(nodes) < MOST_NODES:
            x = nodes[-1][0] + guess / 20
            nodes.append((x, x.exp(), self.person_delta(x)))
        if nodes[-1][2] > slack:
            return Step(INFINITE, slack)

        def is_above(mu: Decimal) -> bool:
            heights = [slack + (1 - slack) * gaussian_profile(mu, x)[0] for x, _, _ in nodes]
            slopes = [(slack - 1) * upper_tail(mu / 2 + x / mu)[1] for x, _, _ in nodes]
            curve = list(zip(nodes, heights, slopes, strict=True))
            for ((_, start, first), low, fall), ((_, end, second), high, rise) in pairwise(curve):
                meet = (high - rise * end - low + fall * start) / (fall - rise) if fall != rise else start
                share = (meet - start) / (end - start)
                if 0 < share < 1 and first + (second - first) * share > low + fall * (meet - start):
                    return False
            return all(node[2] <= height for node, height, _ in curve)

        mu = smallest(is_above, 2 * guess, 6)
        return Step(up((mu if mu < INFINITE else smallest(is_above, Decimal(100), 6)) ** 2), slack)


def binary_delta(losses: Iterable[Decimal], step: Step, epsilon: Decimal) -> Decimal:
    """Return δ(ε) of a step and of unshuffled rows, each of which is e^±loss (Kairouz, Oh, Viswanath 2015)."""
    total = ZERO
    for mass, ratio in unshuffled_law(factor_law((loss, ZERO, False), is_ordered=True) for loss in losses):
        x = epsilon - ratio.ln()
        profile = gaussian_profile(step.mu, abs(x))[1]
        total += mass * ratio * (profile if x >= 0 else 1 - x.exp() + x.exp() * profile)
    return min(ONE, up(step.slack + (1 - step.slack) * total))


PLAN_FIELDS = {"schema", "epsilon", "delta", "n", "shuffle", "contributions", "nulls", "columns", "drop", "passthrough"}
PLAN_FIELDS |= {"leaks", "sample", "inferred", "keeps_index", "local_epsilon", "reused", "measures", "privacy_id"}
PLAN_FIELDS |= {"rules", "groups"}
INFERRED_FIELDS = {"epsilon", "delta", "columns", "measured", "thresholds", "receipt", "mu", "slack", "id", "unit"}
INFERRED_FIELDS |= {"earlier", "asked", "rows"}
MICROSECONDS = {"D": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
SECRET_VALUES, GRIDS = ("values", "ranks", "items"), ("integer", "real", "datetime")
"""Lengths of units of times; histograms whose values need a threshold; spaces of numbers (the format)."""


def number(value: Any, name: str, is_whole: bool = False, least: int = 0) -> Any:
    """Return a JSON number as an exact decimal, or as an integer."""
    is_number = type(value) is int or (type(value) is float and not is_whole)
    require(is_number and least <= value < math.inf, f"{name} is no {'whole ' * is_whole}number of at least {least}")
    return value if is_whole else +Decimal(value)


@dataclass(frozen=True)
class Space:
    """The numbers of values (of sets: of items), of flag codes, of items of a set at most, and of all codes."""

    values: int
    flags: int
    most: int
    kind: str
    data: Mapping[str, Any]
    codes: int

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
        elif kind in ("integer", "real"):
            values = 1 + (data["steps"] if kind == "real" else (data["upper"] - data["lower"]) // data.get("step", 1))
        elif kind == "datetime" and data.get("resolution") in MICROSECONDS and "P" not in data["lower"]:
            length = datetime.fromisoformat(data["upper"]) - datetime.fromisoformat(data["lower"])
            values = length // timedelta(microseconds=MICROSECONDS[data["resolution"]]) + 1
        else:
            raise VerdictError(NOT_COVERED, f"the space {kind!r}")
        values, most = number(values, f"values of {kind}", True, 1), min(data.get("max_size") or values, values)
        sizes = range(most + 1) if kind == "subset" else [1]
        return cls(values, flags, most, kind, data, sum(math.comb(values, size) for size in sizes) + flags)


def channel_loss(data: Mapping[str, Any], spaces: Sequence[Space]) -> Loss:
    """Return the loss of a mechanism, whose sizes must be its space's."""
    tag, space = data["mechanism"], spaces[0]
    epsilon, delta = number(data["epsilon"], f"epsilon of {tag}"), number(data.get("delta", 0), f"delta of {tag}")
    fields = {"mechanism", "epsilon", "delta", "size", "span", "flag_codes", "items", "max_size", "table", "metric"}
    unknown = set(data) - fields - {"width", "nullable", "sizes", "kept"}
    is_covered = tag in CHANNELS and not unknown and (delta == 0 or not ("geometric" in tag or "bitflip" in tag))
    require(is_covered, f"the mechanism {tag} at delta={delta:.3g}, or its fields {unknown}", NOT_COVERED)
    is_whole = data.get("kept") in (None, [], [*range(len(spaces))]) and (tag == "gamma_diagonal" or len(spaces) == 1)
    require(is_whole, f"the mechanism {tag} of {len(spaces)} columns, or of a part of its group", NOT_COVERED)
    wanted: dict[str, Any] = {"span": space.values - 1, "items": space.values, "flag_codes": space.flags}
    wanted |= {"size": space.values + space.flags, "sizes": [one.values + one.flags for one in spaces]}
    stated = {name: data[name] for name in wanted if name in data}
    if "span" in data or "items" in data:
        stated.setdefault("flag_codes", int(tag.startswith("nullable") or data.get("nullable") is True))
    sets = min(data.get("max_size") or space.values, space.values) if "items" in data else space.most
    require(stated.items() <= wanted.items() and sets == space.most, f"{tag} has {stated}, and its space {wanted}")
    is_valid = epsilon > 0 and delta < 1 and ("items" in data) == (space.kind == "subset")
    require(is_valid, f"{tag} claims epsilon={epsilon:.6g}, delta={delta:.6g} on the space {space.kind}")
    return CHANNELS[tag](data, spaces, epsilon, delta)


CHANNELS: Mapping[str, Callable[[Mapping[str, Any], Sequence[Space], Decimal, Decimal], Loss]] = {
    "randomized_response": lambda data, spaces, e, d: two_weight_loss(*response_weights(data["size"], e, d), e),
    "gamma_diagonal": lambda data, spaces, e, d: two_weight_loss(*response_weights(math.prod(data["sizes"]), e, d), e),
    "set_response": lambda data, spaces, e, d: two_weight_loss(*response_weights(spaces[0].codes, e, d), e),
    "nullable_set_response": lambda data, spaces, e, d: two_weight_loss(*response_weights(spaces[0].codes, e, d), e),
    **dict.fromkeys(("geometric", "nullable_geometric"), lambda data, spaces, e, d: geometric(spaces[0], e)),
    "staircase": lambda data, spaces, e, d: staircase(data["span"], data["width"], data["nullable"], e, d),
    "bitflip": lambda data, spaces, e, d: bit_flips(spaces[0], e),
    "asymmetric_bitflip": lambda data, spaces, e, d: bit_flips(spaces[0], e, is_halved=True),
    "nullable_bitflip": lambda data, spaces, e, d: bit_flips(spaces[0], e, is_nullable=True),
    **dict.fromkeys(("optimal", "exponential"), lambda data, spaces, e, d: table_loss(data["table"], spaces[0], e, 1)),
    "matrix": lambda data, spaces, e, d: table_loss(data["table"], spaces[0], e, 0),
}


@dataclass
class Findings:
    """Lines of a report, the worst verdict of them, the totals by name, and the step of all that was released."""

    lines: list[str] = field(default_factory=list)
    verdict: int = PROVED
    totals: dict[str, float] = field(default_factory=dict)
    step: Callable[[], Step] = Step

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
    text, result = json.dumps(rules), {}
    for names, is_open in ((rule.get("one_of", ()), rule.get("at_most")) for rule in rules):
        if names and all(text.count(json.dumps(name)) == 1 and spaces[name].codes == 2 for name in names):
            result[f"one of {names[0]} … {names[-1]}"] = Space(len(names) + bool(is_open), 0, 1, "categorical", {}, 0)
    return result


def units_of(plan: Mapping[str, Any], spaces: Mapping[str, Space], findings: Findings) -> list[Loss]:
    """Return the units of a plan, each compared with its claim."""
    grouped, units = {name: group for group in plan.get("groups", []) for name in group["names"]}, list[Loss]()
    parts = {id(part): part for one in plan["columns"] for part in [grouped.get(one["name"], one)]}
    for part in parts.values():
        names, data = part.get("names", [part.get("name")]), part.get("mechanism")
        require(isinstance(data, dict), f"no stored mechanism of {names}", NOT_COVERED)
        loss = channel_loss(data, [spaces[name] for name in names])
        label, epsilon, delta = ", ".join(names), Decimal(data["epsilon"]), Decimal(data.get("delta", 0))
        if delta == 0:
            findings.compare(f"epsilon of {label}", epsilon, loss.high, loss.low)
        else:
            findings.compare(f"delta of {label}", delta, loss.delta, loss.delta * (1 - Decimal("1e-9")))
        is_near = epsilon * (1 - Decimal("1e-6")) < loss.high < epsilon
        pure = epsilon if delta > 0 or is_near else loss.high
        factors = tuple(one for one in loss.factors or ((pure, loss.blanket, False),) if one[0] > 0)
        units.append(replace(loss, delta=delta, pure=pure, factors=factors))
    return units


def noise_of(measure: Mapping[str, Any], spaces: Mapping[str, Space]) -> tuple[Decimal, int, int]:
    """Return σ², how many numbers of a measured table one replaced row moves, and by how much."""
    kind, names, sigma2 = measure["kind"], measure["columns"], number(measure["sigma2"], "sigma2")
    is_known = set(measure) <= {"kind", "columns", "sigma2", "most", "level"} and set(names) <= spaces.keys()
    require(is_known, f"a table of {names} with unknown fields or columns", NOT_COVERED)
    space, is_of_sets = spaces[names[0]], kind in ("items", "sizes", "item_pairs")
    number(measure.get("most", 0), f"most of {kind}", True, {"items": 1, "item_pairs": 2}.get(kind, 0))
    is_valid = is_of_sets == (space.kind == "subset") and (kind != "sum" or space.kind in GRIDS)
    require(is_valid, f"a table {kind} of the space {space.kind}")
    items, most = space.values, min(measure.get("most", 0), space.values)
    pairs = [(a, b) for a in range(most + 1) for b in range(most + 1)] if kind == "item_pairs" else [(0, 0)]
    moved = max(math.comb(a, 2) + math.comb(b, 2) - 2 * math.comb(max(0, a + b - items), 2) for a, b in pairs)
    numbers = {"one_way": 2, "joint": 2, "sizes": 2, "sum": 1, "items": min(2 * most, items), "item_pairs": moved}
    require(kind in numbers, f"the measured table {kind!r}", NOT_COVERED)
    return sigma2, numbers[kind], items - 1 if kind == "sum" else 1


def way_cost(specs: Iterable[Mapping[str, Any]], slack: Decimal | None, rows: int) -> tuple[Step, Decimal, Decimal]:
    """Return the step of histograms' noise, the chance that a person's own value shows, and ε with geometric noise."""
    noises, chance, loss = list[tuple[Decimal, int, int]](), ZERO, ZERO
    for spec in specs:
        variance, cells = number(spec["variance"], "variance"), number(spec["cells"], "cells", True, 1)
        threshold = number(spec.get("threshold", 0), "threshold", True)
        is_valid = (threshold > 0) == (spec["kind"] in SECRET_VALUES) and (threshold == 0 or slack is not None)
        require(is_valid, "a threshold is missing, or is at delta 0 or of a public histogram")
        noises.append((variance, 2 * cells, 1))
        height = 1 + 1 / variance
        loss += 2 * cells * rows * (height + (height * height - 1).sqrt()).ln()
        if threshold:
            tail = upper_tail((threshold - rows - 1) / variance.sqrt())[1] + sampler_distance(variance)
            chance += rows * cells * tail
    return Step() if slack is None else noise_step(noises, rows, slack), up(chance), loss


def inference_cost(inferred: Mapping[str, Any], slack: Decimal | None, rows: int) -> tuple[Step, Decimal]:
    """Return the step of all that inference might ask, at a slack, or without one its ε with geometric noise."""
    step, loss = Step(), ZERO
    ways: dict[tuple[str, ...], dict[str | None, list[Mapping[str, Any]]]] = {}
    for group in inferred["asked"]:
        for name, spec in product(group["columns"], group["histograms"]):
            place = () if spec.get("way") is None else (name,)
            ways.setdefault(place, {}).setdefault(spec.get("way"), []).append(spec)
    part = None if slack is None else TAIL_SLACK * slack / max(1, sum(map(len, ways.values())))
    for column in ways.values():
        steps, chances, losses = zip(*(way_cost(specs, part, rows) for specs in column.values()), strict=True)
        step += max(steps, key=lambda one: one.square) + Step(ZERO, max(chances))
        loss += max(losses)
    return step, up(loss)


def check_recorded(inferred: Mapping[str, Any], spaces: Mapping[str, Space]) -> None:
    """Compare the counts that inference recorded with what it might ask, column by column and in order."""
    groups, measured = inferred["asked"], inferred["measured"]
    names = {name for part in groups for name in part["columns"]} | {one["column"] for one in measured}
    require(names <= set(inferred["columns"]), "inference has counts of columns that it does not name")
    for name in inferred["columns"]:
        specs = [spec for group in groups if name in group["columns"] for spec in group["histograms"]]
        counts = [one for one in measured if one["column"] == name]
        # A type determines truth values, integers of 8 bits, and times of day.
        is_typed = name not in spaces or spaces[name].kind == "boolean" or spaces[name].values in (256, 1440)
        require(bool(specs) or is_typed, f"{name} was inferred, and nothing was asked")
        ways = {spec.get("way") for spec in specs} - {None} or {None}
        choices = [[spec for spec in specs if spec.get("way") in (None, way)] for way in ways]
        if counts and counts[-1]["kind"] == "lengths" and not counts[-1]["cells"]:
            choices = [choice[: len(counts)] for choice in choices]
        shape, *shapes = ([(one["kind"], one["variance"]) for one in part] for part in (counts, *choices))
        require(shape in shapes, f"the counts of {name} are not those that inference asked for")
        limits = [spec.get("threshold", 0) for spec in choices[shapes.index(shape)]]
        is_above = inferred["thresholds"].get(name, 0) == max(limits, default=0)
        is_above &= all(min(one["counts"], default=x) >= x for one, x in zip(counts, limits, strict=True) if x)
        require(is_above, f"the counts of {name} are not those above its threshold")


def inference_step(plan: Mapping[str, Any], spaces: Mapping[str, Space], findings: Findings) -> Step:
    """Compare an inference's claims with its requests; return its step, which is none if its (ε, δ) is subtracted."""
    inferred = plan["inferred"]
    require(set(inferred) <= INFERRED_FIELDS, "unknown fields of an inference", NOT_COVERED)
    rows, unit, person = plan.get("contributions", 1), inferred.get("unit") or "row", plan.get("privacy_id")
    counted = 1 if unit == "row" else int(unit.split()[0]) if unit.endswith(" rows") else 0
    is_unit = "unit" not in inferred or (counted >= rows if person is None else unit == f"person:{person}")
    require(is_unit, f"spaces were inferred for the unit {unit}, and the plan is for another")
    has_step, epsilon, delta = "mu" in inferred, *(number(inferred[name], name) for name in ("epsilon", "delta"))
    stated = Step(number(inferred["mu"], "mu") ** 2, number(inferred["slack"], "slack")) if has_step else Step()
    if inferred.get("asked") is None:
        findings.record(NOT_PROVED if inferred["columns"] else PROVED, "what inference might ask is not stated")
        return stated
    check_recorded(inferred, spaces)
    cost, pure = inference_cost(inferred, stated.slack if has_step else delta / 10 if delta > 0 else None, rows)
    if has_step:
        findings.compare("inference's mu", Decimal(inferred["mu"]), cost.mu)
        findings.compare("inference's slack", stated.slack, cost.slack)
    if has_step or delta > 0:
        least_delta = (stated if has_step else cost).delta(epsilon)
        findings.compare("inference's delta", delta, least_delta, least_delta * (1 - Decimal("1e-9")))
    else:
        findings.compare("inference's epsilon", epsilon, pure, pure * (1 - Decimal("1e-9")))
    return stated


def check_total(plan: Mapping[str, Any], spaces: Mapping[str, Space], findings: Findings) -> None:
    """Compare all losses together with the claim; what inference takes of ε and δ without a step composes with none."""
    epsilon, delta = number(plan["epsilon"], "epsilon"), number(plan.get("delta", 0), "delta")
    k, sample, n = number(plan.get("contributions", 1), "contributions", True, 1), plan.get("sample"), plan.get("n")
    is_valid = all(x is None or number(x, "rows", True, 1) for x in (sample, n)) and (sample or 1) <= (n or sample or 1)
    require(is_valid and delta < 1, "the sample has more rows than the table, or delta is at least 1")
    units, measures = units_of(plan, spaces, findings), plan.get("measures") or []
    central, target, delta_left = Step(), epsilon, delta
    if (inferred := plan.get("inferred")) is not None:
        central += inference_step(plan, spaces, findings)
        if "mu" not in inferred:
            target, delta_left = epsilon - Decimal(inferred["epsilon"]), delta - Decimal(inferred["delta"])
    require(target >= 0 <= delta_left and (delta > 0 or central == Step()), "inference costs more than the claim")
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

    @cache
    def rows_step() -> Step:
        if person.rows is not None and failing == 0 and slack > 0:
            return person.step(slack)
        # Response at a loss lies under the curve through its one corner.
        squares = [(2 * normal_score(*[1 / (1 + unit.pure.exp())] * 2)[1]) ** 2 for unit in units]
        return Step(up(k * sum(squares, ZERO)), k * failing)

    findings.step = lambda: central + rows_step() + Step(ZERO, Decimal(target < epsilon or delta_left < delta))
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
    else:
        step = rows_step()
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
        is_cut = one.kind in GRIDS and one.values > most
        equal = [-(-cell * one.values // most) for cell in range(most)] if is_cut else None
        cut = bins[name, most] if equal and kind == "joint" else equal
        starts_of.append(level_starts(one, most, 0, 1) if level == 1 else cut or None)
        shape.append(len(starts_of[-1] or range(one.values)) + one.flags)
    return starts_of, shape


def check_description(data: Mapping[str, Any], spaces: Mapping[str, Space], file_rows: int) -> None:
    """Compare the numbers of rows with each other, and the blob of counts with the measured tables and their seal."""
    n, sample, measures = number(data["n"], "n", True), data["plan"].get("sample"), data["plan"].get("measures") or []
    rows, tables = n if sample is None else number(data.get("rows", n), "rows", True), data.get("tables")
    is_equal = file_rows == n and sample in (None, n) and max(n, data["plan"].get("n") or 0) <= rows
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


@contextmanager
def guarded() -> Iterator[Findings]:
    """Collect the findings of a check, and the reason for which it ends early."""
    findings = Findings()
    with localcontext(DIGITS):
        try:
            yield findings
        except VerdictError as error:
            findings.record(*error.args)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, zlib.error) as error:
            findings.record(REFUTED, f"the description is damaged: {type(error).__name__}: {error}")


def verify(data: Mapping[str, Any], file_rows: int = 0, file_names: Iterable[str] = ()) -> Findings:
    """Return the findings about a description or a plan, and about the rows and columns of a file of some columns."""
    with guarded() as findings:
        plan = data.get("plan", data)
        unknown, schemas = set(plan) - PLAN_FIELDS, (data.get("schema", 1), plan.get("schema", 1))
        schema = max(number(one, "schema", True, 1) for one in schemas)
        require(not unknown and schema <= 3, f"schema {schema}, or unknown fields: {unknown}", NOT_COVERED)
        names = [*(column["name"] for column in plan["columns"]), *(plan.get("passthrough") or ())]
        unique = [
            *names,
            *(plan.get("drop") or ()),
            *((x,) for group in plan.get("groups", ()) for x in group["names"]),
        ]
        require(len(set(unique)) == len(unique) and all(unique), "a column's name is empty, or appears twice")
        released, stored = set(names) - {*data.get("left_out", ())}, set(file_names)
        is_equal = released == stored or not stored or (plan.get("keeps_index", False) and released < stored)
        require(is_equal, f"the file has other columns: {released ^ stored}")
        spaces = {column["name"]: Space.of(column["space"]) for column in plan["columns"]}
        spaces = value_spaces(plan.get("rules") or [], spaces) | spaces
        if "plan" in data:
            check_description(data, spaces, file_rows if stored else data["n"])
        check_total(plan, spaces, findings)
        outside = ("passthrough", "leaks", "reused", "together")
        findings.lines += [f"outside the claim: {x}" for x in outside if {**data, **plan}.get(x)]
    return findings


def verify_together(tables: Sequence[Mapping[str, Any]], parts: Sequence[Findings]) -> Findings:
    """Return the findings about tables that were released together, from those about each."""
    with guarded() as findings:
        promises, plans = [data["together"] for data in tables], [data["plan"] for data in tables]
        first, names = promises[0], [one["table"] for one in promises]
        for name, one in zip(names, parts, strict=True):
            findings.lines += [f"{name}: {line}" for line in one.lines]
            findings.verdict = max(findings.verdict, one.verdict, key=list(WORDS).index)
        shared, parent = ("epsilon", "delta", "id", "tables", "parent", "persons"), first["parent"]
        is_whole = all(one[name] == first[name] for one in promises for name in shared)
        require(is_whole and sorted(names) == sorted(first["tables"]), f"tables are missing, of {first['tables']}")
        parents = plans[names.index(parent)]
        paid, persons = (parents.get("inferred") or {}).get("id"), number(first["persons"], "persons", True, 1)
        for name, plan in zip(names, plans, strict=True):
            k, past = plan.get("contributions", 1), plan.get("reused")
            is_linked = plan["n"] == k * persons and (plan is not parents or k == 1)
            is_linked &= parents["privacy_id"] is not None and plan["privacy_id"] == parents["privacy_id"]
            is_linked &= past is None or all(one["id"] == paid is not None for one in (past, *past.get("earlier", ())))
            is_linked &= not plan.get("leaks") and not plan.get("passthrough")
            require(is_linked, f"{name} does not protect {k} rows of each of {persons} persons")
        epsilon, delta = number(first["epsilon"], "epsilon"), number(first["delta"], "delta")
        sums = [sum((Decimal(plan[name]) for plan in plans), ZERO) for name in ("epsilon", "delta")]
        if sums[0] <= epsilon and sums[1] <= delta:
            findings.compare("epsilon of all tables", epsilon, sums[0])
        else:
            findings.compare("delta of all tables", delta, sum((one.step() for one in parts), Step()).delta(epsilon))
    return findings


def thrift_reader(data: bytes) -> Callable[[int], Any]:
    """Return a reader of values of Thrift's compact protocol: numbers, bytes, lists, and structs as dicts by field."""
    byte: Callable[[], int] = partial(next, iter(data))

    def size() -> int:
        return low & 127 | size() << 7 if (low := byte()) > 127 else low

    def read(kind: int) -> Any:
        if kind < 4:
            return kind == 1 if kind < 3 else byte()
        if kind < 9:
            return bytes(byte() for _ in range(size())) if kind == 8 else ((whole := size()) >> 1) ^ -(whole & 1)
        if kind < 11:
            count, item = divmod(byte(), 16)
            return [read(max(3, item)) for _ in range(size() if count == 15 else count)]
        fields, name = dict[int, Any](), 0
        while head := byte():
            name = name + (head >> 4) if head >> 4 else read(4)
            fields[name] = read(head & 15)
        return fields

    return read


def read_description(content: bytes) -> tuple[str, int, set[str]]:
    """Return the description in a file's bytes, and if that is Parquet its number of rows and names of columns."""
    if content[-4:] != b"PAR1":
        return content.decode("utf-8-sig"), 0, set()
    size = int.from_bytes(content[-8:-4], "little")
    footer = thrift_reader(content[-8 - size : -8])(12)
    pairs = {pair[1]: pair.get(2, b"") for pair in footer[5]}
    text = pairs[b"dpframe"].decode() if b"dpframe" in pairs else json.loads(pairs[b"PANDAS_ATTRS"])["dpframe"]
    names, inside = set[str](), 0
    # The schema is a tree in its order: the root, and each column with all that is inside it.
    for element in footer[2][1:]:
        names |= set() if inside else {element[4].decode()}
        inside += element.get(5, 0) - (inside > 0)
    return text, footer[3], names


def main(arguments: Sequence[str]) -> int:
    """Print the findings about the files of a release, or of tables released together, and return the exit status."""
    sizes, columns = dict[str, int](), dict[str, set[str]]()
    try:
        for path in (part for name in arguments for part in sorted(Path(name).glob("*.parquet")) or [Path(name)]):
            text, rows, names = read_description(path.read_bytes())
            sizes[text], columns[text] = sizes.get(text, 0) + rows, columns.get(text, set()) | names
        tables = [json.loads(text) for text in sizes]
        require(bool(tables), "no file is named")
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, StopIteration, VerdictError) as error:
        print(f"usage: second_verifier.py RELEASE …, Parquet files or a description in JSON: {error}", file=sys.stderr)
        return UNREADABLE
    each = [verify(*part) for part in zip(tables, sizes.values(), columns.values(), strict=True)]
    findings = each[0] if len(each) == 1 else verify_together(tables, each)
    print(f"{WORDS[findings.verdict].upper()} (the plan; rows are not read)", *findings.lines, sep="\n")
    return findings.verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
