"""Additive noise on grids: the two-sided geometric mechanism, saturated at the grid's ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from functools import cached_property, lru_cache, partial
from typing import ClassVar

import numpy as np

from dpframe.accounting.budget import round_down
from dpframe.accounting.loss import LaplaceLoss, NullableLoss, PrivacyLoss, ResponseLoss, laplace_rate
from dpframe.errors import ParameterError
from dpframe.mechanisms.base import CodeFunction, FloatArray, IntArray, Mechanism, check_whole, register
from dpframe.mechanisms.response import response_table
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import GeometricTable, ResponseTable, geometric_table
from dpframe.spaces import Space

LARGEST_SPAN = (1 << 32) - 1
_FINEST = 42.0
"""Largest total log-ratio that 64-bit weights resolve; a larger ε gets this much, and less noise is lost."""

_FLATTEST = 2.0**-100
"""Below this loss a step, neighbouring noise values are alike in all digits that ideal laws are written in."""

_LARGEST = 1e4
"""Largest ε that is calibrated for; all beyond get `_FINEST`."""


def _loss(table: GeometricTable) -> LaplaceLoss:
    return LaplaceLoss(table.span, table.rate, table.spread)


@lru_cache(maxsize=256)
def _calibrated(span: int, epsilon: float, delta: float) -> GeometricTable:
    """Return the table of least noise whose certified loss meets (ε, δ)."""
    spread = 0.0
    for _ in range(50):
        rate = min(laplace_rate(span, min(epsilon, _LARGEST), delta, spread), _FINEST / span)
        if rate <= _FLATTEST:
            break
        table = geometric_table(span, rate)
        if _loss(table).delta(epsilon) <= delta:
            return table
        spread = max(table.spread, 2 * spread)
    raise ParameterError(f"epsilon={epsilon} is too small for a grid of {span} steps; give it a larger share")


def _farthest_error(rate: float, x: int, span: int) -> float:
    """Return E|Y − x| of the saturated noise: Σ_j P(|D| ≥ j) towards each end."""
    alpha = math.exp(-rate)

    def towards(steps: int) -> float:
        return alpha * -math.expm1(-rate * steps) / (-math.expm1(-rate) * (1 + alpha))

    return towards(x) + towards(span - x)


@register
@dataclass(frozen=True)
class Geometric(Mechanism):
    """Two-sided geometric noise on 0…span, saturated at both ends (the discrete Laplace mechanism).

    P(k) = (1−α)/(1+α)·α^|k| with α = e^(−ε/span) when δ = 0; saturation is post-processing. With δ > 0
    the rate is the largest whose exact δ(ε) meets δ (in the limit of fine grids, Laplace noise of scale
    diam/(ε − 2 ln(1−δ))). Metric-spaces paper, Example 5; Ghosh–Roughgarden–Sundararajan 2009.

    Parameters
    ----------
    span
        Largest code, 1 to 2^32 − 1.
    epsilon, delta
        The budget; see `dpframe.loss`.

    Examples
    --------
    >>> g = Geometric(span=100, epsilon=2.0)
    >>> 1.9999999 < g.loss.epsilon() <= 2.0
    True
    >>> g.transition().sum(axis=0).round(12).tolist() == [1.0] * 101
    True
    """

    span: int
    epsilon: float
    delta: float = 0.0
    size: int = field(init=False, repr=False)

    tag: ClassVar[str] = "geometric"
    metrics: ClassVar[frozenset[str]] = frozenset({"line"})
    local_inverse: ClassVar[bool] = True
    words: ClassVar[int] = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "span", check_whole(self.span, "span", 1, LARGEST_SPAN))
        object.__setattr__(self, "size", self.span + 1)
        self._check_budget(self.epsilon, self.delta)
        _ = self.table

    @classmethod
    def calibrate(cls, space: Space, epsilon: float, delta: float) -> Geometric:
        """Make the mechanism for a grid, with the least noise that meets (ε, δ)."""
        return cls(space.size - 1, epsilon, delta)

    @cached_property
    def table(self) -> GeometricTable:
        """The integers that are sampled."""
        return _calibrated(self.span, self.epsilon, self.delta)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The certified loss, the integers' rounding included."""
        return _loss(self.table)

    @cached_property
    def blanket(self) -> float:
        """γ = α^(span/2) on an even number of steps, 2α^((span+1)/2)/(1+α) on an odd one, rounded down."""
        return _blanket(self.table)

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        self.table.sample(codes, stream, first_row, out)

    def law(self, code: int) -> FloatArray:
        """Return P(y | code), shape (span + 1,)."""
        return self.table.law(code)

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return the weights of 0…span over 2^128."""
        return self.table.weights(code), 1 << 128

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return [(1+α²)f(y) − αf(y−1) − αf(y+1)]/(1−α)² inside, [f(0) − αf(1)]/(1−α) at the ends."""
        return _surrogate(self.table.rate, self.span, f, codes)

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return A (or Aᵀ) applied along axis 0, by two recursions."""
        return _apply(self.table.rate, counts, adjoint)

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return the tridiagonal inverse applied along axis 0."""
        return _invert(self.table.rate, counts, squared)

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return P(y in a stretch of codes | x uniform in a cell), shape (stretches, cells).

        Cells begin at ``edges[:-1]`` and end at ``edges[-1]``, stretches begin at ``starts``.
        """
        return _between(self.table.rate, edges, starts)

    def expected_error(self, space: Space | None = None) -> float:
        """Return E|Y − x| in grid steps for x in the middle, where it is largest."""
        return _farthest_error(self.table.rate, self.span // 2, self.span)


def _blanket(table: GeometricTable) -> float:
    """Return Σ_y min_x P(y | x) of the saturated noise; the least of all is the law from the farther end."""
    span = table.span
    with localcontext(Context(prec=60)):
        rate = Decimal(table.rate)
        ideal = (-rate * span / 2).exp() if span % 2 == 0 else 2 * (-rate * (span + 1) / 2).exp() / (1 + (-rate).exp())
        return round_down(ideal * (-Decimal(table.spread)).exp() * (1 - Decimal(10) ** -50))


def _invert(rate: float, counts: FloatArray, squared: bool) -> FloatArray:
    """Apply the tridiagonal inverse of the saturated channel along axis 0."""
    alpha, beta = math.exp(-rate), -math.expm1(-rate)
    ends, inside, beside = 1 / beta, (1 + alpha**2) / beta**2, alpha / beta**2
    beside_ends = alpha / beta
    power, sign = (2, 1) if squared else (1, -1)
    out = counts * inside**power
    out[[0, -1]] = counts[[0, -1]] * ends**power
    scaled = counts * (sign * beside**power)
    scaled[[0, -1]] = counts[[0, -1]] * (sign * beside_ends**power)
    out[1:] += scaled[:-1]
    out[:-1] += scaled[1:]
    return out


def _apply(rate: float, counts: FloatArray, adjoint: bool) -> FloatArray:
    """Apply the saturated channel along axis 0: weights times the symmetric convolution with α^|k|."""
    from scipy.signal import lfilter  # imported late: it costs more than all the rest

    alpha, beta = math.exp(-rate), -math.expm1(-rate)
    weights = np.full((len(counts), *([1] * (counts.ndim - 1))), beta / (1 + alpha))
    weights[[0, -1]] = 1 / (1 + alpha)
    inside = counts * weights if adjoint else counts
    forward = lfilter([1.0], [1.0, -alpha], inside, axis=0)
    backward = lfilter([1.0], [1.0, -alpha], inside[::-1], axis=0)[::-1]
    convolved = forward + backward - inside
    return np.asarray(convolved if adjoint else convolved * weights)


def _between(rate: float, edges: IntArray, starts: IntArray) -> FloatArray:
    """Average P(Y < c | x) over the x of every cell at every c, and take differences.

    P(Y < c | x) = 1 − α^(c−x)/(1+α) for x < c, and α^(x−c+1)/(1+α) for x ≥ c, as saturation keeps what lies
    within 0…span; sums of powers of α are geometric.
    """
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
    whole = np.vstack([np.zeros(len(low)), cumulative, np.ones(len(low))])
    return np.asarray(np.diff(whole, axis=0))


def _surrogate(rate: float, span: int, f: CodeFunction, codes: IntArray) -> FloatArray:
    y = np.asarray(codes, dtype=np.int64)
    alpha, beta = math.exp(-rate), -math.expm1(-rate)
    here = f(y)
    before, after = f(np.maximum(y - 1, 0)), f(np.minimum(y + 1, span))
    # (1+α²)f − αf₋ − αf₊ = (1−α)²f + α(2f − f₋ − f₊): no cancellation as α tends to 1.
    inside = here + alpha * ((here - before) + (here - after)) / beta**2
    at_zero, at_span = here + alpha * (here - after) / beta, here + alpha * (here - before) / beta
    return np.asarray(np.where(y == 0, at_zero, np.where(y == span, at_span, inside)))


@register
@dataclass(frozen=True)
class NullableGeometric(Mechanism):
    """A grid with null as one more code, span + 1: a flag by randomised response, a value by `Geometric`.

    The flag has ε/2; the value's rate makes the loss between two values at most ε and flag plus half the
    grid at most ε. A null whose flag flips emits mid-grid plus noise. Every row uses the same words,
    null or not.

    Parameters
    ----------
    span
        Largest code of a value, 1 to 2^32 − 1.
    epsilon, delta
        The budget; see `dpframe.loss`.
    """

    span: int
    epsilon: float
    delta: float = 0.0
    size: int = field(init=False, repr=False)

    tag: ClassVar[str] = "nullable_geometric"
    metrics: ClassVar[frozenset[str]] = frozenset({"nullable line"})
    local_inverse: ClassVar[bool] = True
    words: ClassVar[int] = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "span", check_whole(self.span, "span", 1, LARGEST_SPAN))
        object.__setattr__(self, "size", self.span + 2)
        self._check_budget(self.epsilon, self.delta)
        _ = self.parts

    @classmethod
    def calibrate(cls, space: Space, epsilon: float, delta: float) -> NullableGeometric:
        """Make the mechanism for a grid with null, with the least noise that meets (ε, δ)."""
        return cls(space.size - 2, epsilon, delta)

    @property
    def null(self) -> int:
        """The code of null."""
        return self.span + 1

    @cached_property
    def parts(self) -> tuple[ResponseTable, GeometricTable]:
        """The integers that are sampled: the flag's table and the value's."""
        return _nullable_parts(self.span, self.epsilon, self.delta)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The certified loss over value against value, null against value and back."""
        flag, value = self.parts
        return _nullable_loss(flag, _loss(value))

    @cached_property
    def blanket(self) -> float:
        """γ, rounded down: P(null | value) for null, and the value's noise around mid-grid for the rest.

        With keep k and flip c of the flag, min_x of k·G(y|x) is k·α^⌊N/2⌋·G(y|mid) above mid-grid and
        k·α^⌈N/2⌉·G(y|mid) elsewhere; null gives c·G(y|mid).
        """
        flag, value = self.parts
        with localcontext(Context(prec=60)):
            keep, flip = Decimal(flag.keep), Decimal(flag.threshold)
            alpha, half = (-Decimal(value.rate)).exp(), (self.span + 1) // 2
            above, below = (min(keep * alpha**steps, flip) for steps in (self.span - half, half))
            rest = (alpha * above + below) / (1 + alpha)
            factor = (1 - Decimal(10) ** -50) * (-Decimal(value.spread)).exp()
            return round_down((flip + rest) * factor / (1 << flag.bits))

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        flag, value = self.parts
        absent = codes == self.null
        centred = np.where(absent, codes.dtype.type(self.span // 2), codes)
        value.sample(centred, stream.skip(1), first_row, out)
        released = np.empty(len(codes), dtype=np.uint8)
        flag.sample(absent.view(np.uint8), stream, first_row, released)
        np.copyto(out, out.dtype.type(self.null), where=released.view(np.bool_))

    def law(self, code: int) -> FloatArray:
        """Return P(y | code), shape (span + 2,); the last entry is null."""
        flag, value = self.parts
        keep, flip = flag.keep / (1 << flag.bits), flag.threshold / (1 << flag.bits)
        present, absent = (flip, keep) if code == self.null else (keep, flip)
        x = self.span // 2 if code == self.null else code
        return np.append(present * value.law(x), absent)

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return the weights of 0…span and null over 2^(128 + bits of the flag)."""
        flag, value = self.parts
        present, absent = (flag.threshold, flag.keep) if code == self.null else (flag.keep, flag.threshold)
        x = self.span // 2 if code == self.null else code
        return [present * w for w in value.weights(x)] + [absent << 128], 1 << (128 + flag.bits)

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return φ_f: with keep k and flip c, φ(null) = (k f(null) − c f(mid))/(k−c), the rest by inversion."""
        flag, value = self.parts
        k, c = flag.keep / (1 << flag.bits), flag.threshold / (1 << flag.bits)
        f_mid, f_null = f(np.array([self.span // 2, self.null])).tolist()
        at_null = (k * f_null - c * f_mid) / flag.signal
        y = np.asarray(codes, dtype=np.int64)
        null = y == self.null
        inverse = _surrogate(value.rate, self.span, f, np.where(null, 0, y))
        return np.asarray(np.where(null, at_null, (inverse - c * at_null) / k))

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return A (or Aᵀ) applied along axis 0; null is the last row."""
        flag, value = self.parts
        k, c = flag.keep / (1 << flag.bits), flag.threshold / (1 << flag.bits)
        values, nulls = counts[:-1], counts[-1]
        if adjoint:
            inside = _apply(value.rate, values, True)
            return np.append(k * inside + c * nulls, [c * inside[self.span // 2] + k * nulls], axis=0)
        moved = k * values
        moved[self.span // 2] += c * nulls
        return np.append(_apply(value.rate, moved, False), [k * nulls + c * values.sum(axis=0)], axis=0)

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return `Geometric.between` for the values and null: one more cell, and the last stretch."""
        flag, value = self.parts
        k, c = flag.keep / (1 << flag.bits), flag.threshold / (1 << flag.bits)
        middle = np.array([self.span // 2, self.span // 2 + 1])
        inside = _between(value.rate, edges, starts[:-1])
        at_null = _between(value.rate, middle, starts[:-1])
        absent = np.append(np.full(len(edges) - 1, c), k)
        return np.vstack([np.hstack([k * inside, c * at_null]), absent])

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return the inverse of the two parts applied along axis 0; null is the last row.

        The surrogate of value v is [G⁻¹(v, y) − (c/k)·γ(v)]/k with γ(v) the null's part, and that of null
        is the same on all values.
        """
        flag, value = self.parts
        k, c = flag.keep / (1 << flag.bits), flag.threshold / (1 << flag.bits)
        middle = self.span // 2
        values, nulls = counts[:-1], counts[-1]
        present = values.sum(axis=0)
        # Surrogates at null: k/(k−c) for null itself, −c/(k−c) for mid-grid, 0 for other values. Hence at a
        # value y: −c/(k−c) for null, and G⁻¹(v, y)/k, plus (c/k)·c/(k−c) where v is mid-grid.
        if not squared:
            out = np.append(_invert(value.rate, values, False) / k, [(k * nulls - c * present) / flag.signal], axis=0)
            out[middle] += c / flag.signal * (c / k * present - nulls)
            return out
        shift = c / k * c / flag.signal
        squares = _invert(value.rate, values, True) / k**2
        crossed = _invert(value.rate, values, False)[middle] / k
        squares[middle] += 2 * shift * crossed + shift**2 * present + (c / flag.signal) ** 2 * nulls
        at_null = (k**2 * nulls + c**2 * present) / flag.signal**2
        return np.append(squares, [at_null], axis=0)

    def expected_error(self, space: Space | None = None) -> float:
        """Return the largest E[ρ(Y, x)] in grid steps, ρ(null, value) being the whole span."""
        flag, value = self.parts
        k, c = flag.keep / (1 << flag.bits), flag.threshold / (1 << flag.bits)
        middle = _farthest_error(value.rate, self.span // 2, self.span)
        return k * middle + c * self.span


def _nullable_loss(flag: ResponseTable, value: LaplaceLoss) -> NullableLoss:
    return NullableLoss(ResponseLoss(flag.keep, flag.threshold, 1 << flag.bits), value)


@lru_cache(maxsize=64)
def _nullable_parts(span: int, epsilon: float, delta: float) -> tuple[ResponseTable, GeometricTable]:
    """Return the tables for a flag at e/2 and a value at e, with the largest e ≥ ε that meets (ε, δ).

    On a grid with an odd number of steps the middle is half a step off, so the value's rate is reduced to
    keep flag plus the longer half at e. As in `_calibrated`, what rounding the value's weights adds is
    guessed, then read off the table.
    """
    half = (span + 1) // 2

    def parts(e: float, spread: float) -> tuple[ResponseTable, float]:
        return response_table(2, e / 2), min(laplace_rate(half, e / 2, 0.0, spread), _FINEST / span)

    def fits(spread: float, e: float) -> bool:
        flag, rate = parts(e, spread)
        return _nullable_loss(flag, LaplaceLoss(span, rate, spread)).delta(epsilon) <= delta

    spread = 0.0
    for _ in range(50):
        e = epsilon if delta == 0 else _largest(partial(fits, spread), epsilon, 2 * _FINEST)
        flag, rate = parts(e, spread)
        if rate <= _FLATTEST:
            break
        table = geometric_table(span, rate)
        if _nullable_loss(flag, _loss(table)).delta(epsilon) <= delta:
            return flag, table
        spread = max(table.spread, 2 * spread)
    raise ParameterError(f"epsilon={epsilon} is too small for a nullable grid; give it a larger share")


def _largest(fits: Callable[[float], bool], low: float, high: float) -> float:
    """Return nearly the largest number from ``low``, which fits, to ``high`` that fits."""
    while high - low > 1e-12 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
