"""Additive noise on grids: the two-sided geometric mechanism, saturated at the grid's ends."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

import numpy as np

from dpframe.accounting.bisection import bisected
from dpframe.accounting.budget import round_down
from dpframe.accounting.loss import LaplaceLoss, NullFlagLoss, PrivacyLoss, laplace_rate
from dpframe.channels.base import (
    MAX_WORD_EPSILON,
    SAFE,
    Channel,
    CodeFunction,
    IntArray,
    Mechanism,
    beside_edges,
    register,
    response_loss,
    response_table,
)
from dpframe.errors import ParameterError, check_whole
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import GeometricTable, ResponseTable, geometric_table
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.spaces.base import forwarded

MAX_GEOMETRIC_STEPS = (1 << 32) - 1

FLATTEST = 2.0**-100
"""Least loss per step: below it neighbouring noise values agree in all digits of the ideal laws."""

LARGEST_LOSS = 1e4
"""Largest ε of the calibration; larger ε get `MAX_WORD_EPSILON`."""


@lru_cache(maxsize=256)
def _calibrated(span: int, epsilon: float, delta: float) -> GeometricTable:
    """Return the table of least noise whose certified loss meets (ε, δ)."""
    log_spread = 0.0
    for _ in range(50):
        # The rounding error of a table is known only once it is built: guess, build and compare.
        rate = min(laplace_rate(span, min(epsilon, LARGEST_LOSS), delta, log_spread), MAX_WORD_EPSILON / span)
        if rate <= FLATTEST:
            break
        table = geometric_table(span, rate)
        if LaplaceLoss(span, rate, table.log_spread).delta(epsilon) <= delta:
            return table
        log_spread = max(table.log_spread, 2 * log_spread)
    raise ParameterError(f"epsilon={epsilon} is too small for a grid of {span} steps; give it a larger share")


class GeometricChannel(Channel):
    """Two-sided geometric noise on 0…span, saturated at both ends, with all properties of its integer table."""

    span: int

    @property
    @abstractmethod
    def table(self) -> GeometricTable:
        """The integers that are sampled."""

    own_metric = "line"

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The certified loss, the integers' rounding included."""
        return LaplaceLoss(self.table.span, self.table.rate, self.table.log_spread)

    @cached_property
    def blanket(self) -> float:
        """γ = α^(span/2) on an even number of steps, 2α^((span+1)/2)/(1+α) on an odd one, rounded down."""
        # The least probability of a code is under the law from the farther end.
        span, rate = self.span, Decimal(self.table.rate)
        with localcontext(Context(prec=60)):
            odd = 2 * (-rate * (span + 1) / 2).exp() / (1 + (-rate).exp())
            ideal = odd if span % 2 else (-rate * span / 2).exp()
            return round_down(ideal * (-Decimal(self.table.log_spread)).exp() * SAFE)

    def blanket_beside(self, flag: ResponseTable) -> float:
        """Return P(code | value) for each code of the flag plus the noise around mid-grid for values, rounded down.

        With keep k and flip c of the flag, min_x of k·G(y|x) is k·α^⌊N/2⌋·G(y|mid) above mid-grid and
        k·α^⌈N/2⌉·G(y|mid) elsewhere; a code gives c·G(y|mid).
        """
        with localcontext(Context(prec=60)):
            keep, flip = Decimal(flag.keep), Decimal(flag.threshold)
            alpha, half = (-Decimal(self.table.rate)).exp(), (self.span + 1) // 2
            above, below = (min(keep * alpha**steps, flip) for steps in (self.span - half, half))
            value_mass = (alpha * above + below) / (1 + alpha)
            factor = SAFE * (-Decimal(self.table.log_spread)).exp()
            return round_down(((flag.size - 1) * flip + value_mass) * factor / (1 << flag.bits))

    def loss_beside(self, flag: ResponseTable) -> PrivacyLoss:
        """Return the loss over value against value, null against value and back."""
        return beside_flag(flag, LaplaceLoss(self.table.span, self.table.rate, self.table.log_spread))

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        self.table.sample(codes, stream, first_row, out)

    law = forwarded("table.law")

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return the weights of 0…span over 2^128."""
        return self.table.weights(code), 1 << 128

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return [(1+α²)f(y) − αf(y−1) − αf(y+1)]/(1−α)² inside, [f(0) − αf(1)]/(1−α) at the ends."""
        rate = self.table.rate
        y = np.asarray(codes, dtype=np.int64)
        alpha, beta = math.exp(-rate), -math.expm1(-rate)
        here = f(y)
        before, after = f(np.maximum(y - 1, 0)), f(np.minimum(y + 1, self.span))
        # (1+α²)f − αf₋ − αf₊ = (1−α)²f + α(2f − f₋ − f₊): no cancellation as α tends to 1.
        inside = here + alpha * ((here - before) + (here - after)) / beta**2
        at_zero, at_span = here + alpha * (here - after) / beta, here + alpha * (here - before) / beta
        return np.asarray(np.where(y == 0, at_zero, np.where(y == self.span, at_span, inside)))

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return A (or Aᵀ) applied along axis 0, by two recursions."""
        rate = self.table.rate
        alpha, beta = math.exp(-rate), -math.expm1(-rate)
        weights = np.full((len(counts), *([1] * (counts.ndim - 1))), beta / (1 + alpha))
        # Saturation gives the ends all mass beyond them.
        weights[[0, -1]] = 1 / (1 + alpha)
        inside = counts * weights if adjoint else counts
        forward, backward = _decaying_sums(alpha, inside), _decaying_sums(alpha, inside[::-1])[::-1]
        convolved = forward + backward - inside
        return np.asarray(convolved if adjoint else convolved * weights)

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return the tridiagonal inverse applied along axis 0."""
        rate = self.table.rate
        alpha, beta = math.exp(-rate), -math.expm1(-rate)
        ends, inside, beside = 1 / beta, (1 + alpha**2) / beta**2, alpha / beta**2
        beside_ends = alpha / beta
        power, sign = (2, 1) if squared else (1, -1)
        out = counts * inside**power
        out[[0, -1]] = counts[[0, -1]] * ends**power
        scaled = counts * (sign * beside**power)
        scaled[[0, -1]] = counts[[0, -1]] * (sign * beside_ends**power)
        # The inverse has three bands; neighbours of an end have their own weight.
        out[1:] += scaled[:-1]
        out[:-1] += scaled[1:]
        return out

    def changes(self, edges: IntArray) -> IntArray:
        """Return the codes next to the edges and the ends."""
        return beside_edges(edges, self.size)

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return P(y in a stretch of codes | x uniform in a cell), shape (stretches, cells).

        Cells begin at ``edges[:-1]`` and end at ``edges[-1]``, stretches begin at ``starts``.
        """
        rate = self.table.rate
        # P(Y < c | x) = 1 − α^(c−x)/(1+α) for x < c, and α^(x−c+1)/(1+α) for x ≥ c, as saturation changes nothing
        # within 0…span. Sums of powers of α are geometric.
        low, high = np.asarray(edges[:-1], dtype=np.float64), np.asarray(edges[1:], dtype=np.float64)
        c = np.asarray(starts[1:], dtype=np.float64)[:, None]
        alpha, beta = math.exp(-rate), -math.expm1(-rate)
        below = np.clip(c, low, high) - low
        above = high - low - below
        # Distances from c of the nearest x below it (1 or more) and of the nearest at or above it.
        nearest_below = np.maximum(c - (low + below) + 1, 0.0)
        nearest_above = np.maximum(low + below - c, 0.0)
        under = np.exp(-rate * nearest_below) * -np.expm1(-rate * below) / beta
        over = np.exp(-rate * (nearest_above + 1)) * -np.expm1(-rate * above) / beta
        cumulative = (below - under / (1 + alpha) + over / (1 + alpha)) / (high - low)
        bounds = np.vstack([np.zeros(len(low)), cumulative, np.ones(len(low))])
        return np.asarray(np.diff(bounds, axis=0))

    def expected_error(self, space: Space | None = None) -> float:
        """Return E|Y − x| in grid steps for x in the middle, which has the largest error."""
        rate = self.table.rate
        x = self.span // 2
        alpha = math.exp(-rate)

        def towards(steps: int) -> float:
            return alpha * -math.expm1(-rate * steps) / (-math.expm1(-rate) * (1 + alpha))

        return towards(x) + towards(self.span - x)


@dataclass(frozen=True)
class GivenNoise(GeometricChannel):
    """Two-sided geometric noise with fixed integers."""

    fixed_table: GeometricTable
    span: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "span", self.fixed_table.span)
        object.__setattr__(self, "size", self.fixed_table.span + 1)

    table: ClassVar[GeometricTable] = forwarded("fixed_table")


@register
@dataclass(frozen=True)
class Geometric(GeometricChannel, Mechanism):
    """Two-sided geometric noise on 0…span, saturated at both ends (the discrete Laplace mechanism).

    P(k) = (1−α)/(1+α)·α^|k| with α = e^(−ε/span) when δ = 0; saturation is post-processing. With δ > 0
    the rate is the largest whose exact δ(ε) meets δ (in the limit of fine grids, Laplace noise of scale
    diam/(ε − 2 ln(1−δ))). Metric-spaces paper, Example 5; Ghosh–Roughgarden–Sundararajan 2009.

    ``span``: largest code, 1 to 2^32 − 1. ``epsilon`` and ``delta``: the budget; see `dpframe.accounting.budget`.
    """

    span: int
    epsilon: float
    delta: float = 0.0
    size: int = field(init=False, repr=False)

    tag: ClassVar[str] = "geometric"
    aliases: ClassVar[tuple[str, ...]] = ("laplace",)
    label: ClassVar[str] = "laplace"
    metrics: ClassVar[frozenset[str]] = frozenset({"line"})

    def __post_init__(self) -> None:
        self._check_span(self.span, MAX_GEOMETRIC_STEPS)
        _ = self.table

    @classmethod
    def shape_of(cls, space: Space) -> tuple[Any, ...]:
        """Return the largest code."""
        return (space.size - 1,)

    @classmethod
    def beside_flag(
        cls, shape: tuple[Any, ...], epsilon: float, delta: float, flag_size: int = 2
    ) -> tuple[ResponseTable, Channel]:
        """Return a flag at ε/2 and noise at ε: the flag plus half the grid, up to the centre, cost ε too."""
        flag, table = _flagged(check_whole(shape[0], "span", 1, MAX_GEOMETRIC_STEPS), epsilon, delta, flag_size)
        return flag, GivenNoise(table)

    @cached_property
    def table(self) -> GeometricTable:
        """The integers that are sampled."""
        return _calibrated(self.span, self.epsilon, self.delta)


def _decaying_sums(alpha: float, values: FloatArray) -> FloatArray:
    """Return y with y[i] = values[i] + α·y[i − 1] along axis 0, by sums over 1, 2, 4, … values."""
    sums, steps = np.array(values, dtype=np.float64), 1
    # Doubling needs log₂(span) passes; once α^steps underflows nothing more is added.
    while steps < len(sums) and (factor := alpha**steps) > 0:
        sums[steps:] += factor * sums[:-steps]
        steps *= 2
    return sums


def beside_flag(flag: ResponseTable, noise: LaplaceLoss) -> NullFlagLoss:
    """Return the loss of saturated noise with a null flag; a null whose flag flips is at mid-grid."""
    # Rounded up: on an odd number of steps the centre is half a step off.
    half = LaplaceLoss((noise.span + 1) // 2, noise.rate, noise.log_spread)
    return NullFlagLoss(response_loss(flag), noise, half, half)


@lru_cache(maxsize=64)
def _flagged(span: int, epsilon: float, delta: float, flag_size: int) -> tuple[ResponseTable, GeometricTable]:
    """Return the tables for a flag at e/2 and a value at e, with the largest e ≥ ε that meets (ε, δ).

    On a grid with an odd number of steps the middle is half a step off, so that the value's rate is reduced until the
    flag plus the longer half cost e. As in `_calibrated`, the error of rounding the value's weights is guessed, then
    computed from the table.
    """
    half = (span + 1) // 2

    def parts(e: float, log_spread: float) -> tuple[ResponseTable, float]:
        return response_table(flag_size, e / 2), min(
            laplace_rate(half, e / 2, 0.0, log_spread), MAX_WORD_EPSILON / span
        )

    def fits(log_spread: float, e: float) -> bool:
        flag, rate = parts(e, log_spread)
        return beside_flag(flag, LaplaceLoss(span, rate, log_spread)).delta(epsilon) <= delta

    log_spread = 0.0
    for _ in range(50):
        e = epsilon if delta == 0 else bisected(partial(fits, log_spread), epsilon, 2 * MAX_WORD_EPSILON, 1e-12)
        flag, rate = parts(e, log_spread)
        if rate <= FLATTEST:
            break
        table = geometric_table(span, rate)
        if beside_flag(flag, LaplaceLoss(span, rate, table.log_spread)).delta(epsilon) <= delta:
            return flag, table
        log_spread = max(table.log_spread, 2 * log_spread)
    raise ParameterError(f"epsilon={epsilon} is too small for a nullable grid; give it a larger share")
