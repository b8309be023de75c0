"""The staircase mechanism on grids: near the value with one probability, anywhere with another.

Let b be ``places_below``. With φ continued beyond 0…span by its values at the ends, the sum over the places
x − b … x − b + width − 1 is (Bφ)(x). The difference of two neighbouring sums is φ(x − b + width) − φ(x − b): the places
of each residue class modulo ``width`` form a chain along which φ adds up differences of the sums. b + 1 chains begin at
φ(0), and width − b end at φ(span). B is invertible if and only if exactly one chain does both, which holds if and only
if ``width`` divides span or span − 1. That chain gives φ(span) − φ(0), the sum over the first box gives φ(0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpframe.accounting.budget import LOSS_CONTEXT, round_down
from dpframe.accounting.loss import MAX_DECIMAL_EPSILON, ResponseLoss
from dpframe.channels.base import CodeFunction, IntArray, Mechanism, register
from dpframe.errors import ParameterError, check_whole
from dpframe.noise.keystream import ColumnStream
from dpframe.noise.tables import WORD, BoxTable
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray

IndexArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BoxSums:
    """The matrix B on arrays of shape (span + 1, …), along axis 0."""

    span: int
    width: int
    places_below: int

    def sums(self, f: FloatArray) -> FloatArray:
        """Return Bf."""
        right = self.width - 1 - self.places_below
        padded = np.concatenate([np.repeat(f[:1], self.places_below, axis=0), f, np.repeat(f[-1:], right, axis=0)])
        total = np.concatenate([np.zeros_like(padded[:1]), np.cumsum(padded, axis=0)])
        return np.asarray(total[self.width :] - total[: -self.width])

    def adjoint_sums(self, c: FloatArray) -> FloatArray:
        """Return Bᵀc."""
        total = np.concatenate([np.zeros_like(c[:1]), np.cumsum(c, axis=0)])
        ends = np.arange(1, self.span + self.width + 1)
        at_places = total[np.minimum(ends, self.span + 1)] - total[np.maximum(ends - self.width, 0)]
        out = at_places[self.places_below : self.places_below + self.span + 1].copy()
        out[0] += at_places[: self.places_below].sum(axis=0)
        out[-1] += at_places[self.places_below + self.span + 1 :].sum(axis=0)
        return np.asarray(out)

    def solve(self, f: FloatArray) -> FloatArray:
        """Return B⁻¹f."""
        steps = np.diff(f, axis=0)
        # Differences along a chain start at 0, as its first place has no place before it.
        rounds = self._by_chain(np.concatenate([np.zeros((self.width, *steps.shape[1:])), steps]))
        along = np.cumsum(rounds, axis=0).reshape(-1, *steps.shape[1:])[: self.span + self.width]
        ends = along[self._ends]
        total_change = along[self._closed]
        # The first box has one place of every chain, so that f[0] fixes φ(0).
        first = (f[0] - len(self._free) * total_change + ends[self._free].sum(axis=0)) / self.width
        begins = np.broadcast_to(first, ends.shape).copy()
        begins[self._free] += total_change - ends[self._free]
        places = np.arange(self.places_below, self.places_below + self.span + 1)
        return np.asarray(along[places] + begins[places % self.width])

    def solve_adjoint(self, c: FloatArray) -> FloatArray:
        """Return B⁻ᵀc."""
        everything = c.sum(axis=0) / self.width
        at_places = np.zeros((self.span + self.width, *c.shape[1:]))
        at_places[self.places_below : self.places_below + self.span + 1] = c
        in_chain = self._by_chain(at_places).sum(axis=0)
        free = in_chain[self._free]
        # The transpose of `solve`, step by step in the opposite order.
        at_places[self._ends[self._free]] += everything - free
        at_places[self._closed] += free.sum(axis=0) - len(self._free) * everything
        steps = self._beyond(at_places)
        out = np.zeros((self.span + 1, *c.shape[1:]))
        out[1:] += steps
        out[:-1] -= steps
        out[0] += everything
        return out

    def squares(self, c: FloatArray) -> FloatArray:
        """Return (B⁻¹ with squared entries)ᵀ c.

        The column of v is the solution for f = 1[x = v]: φ(0) or φ(span), by the place's chain, and 1 more or less on a
        part of the chains of v − 1 and v.
        """
        ends = np.zeros((self.span + 1, 2))
        ends[0, 0] = ends[-1, 1] = 1.0
        low, high = (part.reshape(-1, *[1] * (c.ndim - 1)) for part in self.solve_adjoint(ends).T)
        at_places = np.zeros((self.span + self.width, *c.shape[1:]))
        at_places[self.places_below : self.places_below + self.span + 1] = c
        in_chain = self._by_chain(at_places).sum(axis=0)
        beyond = self._beyond(at_places)
        before = in_chain[np.arange(self.span) % self.width] - beyond
        free = np.isin(np.arange(self.span) % self.width, self._free).reshape(-1, *[1] * (c.ndim - 1))
        of_free = in_chain[self._free].sum(axis=0)
        out = low**2 * (c.sum(axis=0) - of_free) + high**2 * of_free
        out[1:] += np.where(free, (1 - 2 * high[1:]) * before, (1 + 2 * low[1:]) * beyond)
        out[:-1] += np.where(free, (1 + 2 * high[:-1]) * before, (1 - 2 * low[:-1]) * beyond)
        if self.width == 1:  # the chains of v − 1 and v are one: + 1 and − 1 meet beyond v
            out[1:-1] -= 2 * beyond[1:]
        return np.asarray(out)

    def changes(self, at: IndexArray) -> IndexArray:
        """Return the places in 0…span at which B⁻¹f may change, if f changes only between x and x + 1 for x in ``at``.

        B⁻¹f changes at every place of the chains of these x, and between chains of the two kinds.
        """
        rounds = np.arange(0, self.span + self.width, self.width) - self.places_below
        chains = np.unique(np.asarray(at) % self.width)
        codes = (rounds[:, None] + np.concatenate([chains, chains + 1, [0, self.places_below + 1]])).ravel()
        return np.unique(np.append(codes[(codes >= 0) & (codes <= self.span)], [0, 1, self.span]))

    @cached_property
    def _free(self) -> IndexArray:
        """The chains that do not begin at φ(0); they end at φ(span)."""
        return np.arange(self.places_below + 1, self.width)

    @cached_property
    def _ends(self) -> IndexArray:
        """The last place of every chain."""
        first = np.arange(self.width)
        return np.asarray(first + (self.span + self.width - 1 - first) // self.width * self.width)

    @property
    def _closed(self) -> int:
        """The last place of the chain that begins at φ(0) and ends at φ(span)."""
        return self.span + (self.places_below if self.span % self.width == 0 else self.width - 1)

    def _by_chain(self, at_places: FloatArray) -> FloatArray:
        """Return an array by place in the shape (rounds, width, …), with zeros at the end."""
        more = -len(at_places) % self.width
        padded = np.concatenate([at_places, np.zeros((more, *at_places.shape[1:]))])
        return padded.reshape(-1, self.width, *at_places.shape[1:])

    def _beyond(self, at_places: FloatArray) -> FloatArray:
        """Return for every place up to span − 1 the sum over the places after it on its chain."""
        rounds = self._by_chain(at_places)
        after = np.cumsum(rounds[::-1], axis=0)[::-1] - rounds
        return after.reshape(-1, *at_places.shape[1:])[: self.span]


MAX_STAIRCASE_STEPS = 1 << 20
"""Most steps: estimates work on arrays of all codes."""

_MAX_ERROR_RATIO = 1.05
"""Largest error of a mean, relative to the least, of the chosen box, which is the narrowest such box."""

_MAX_ERROR_PLACES = 1 << 20
"""Most values at which the expected error is computed; it changes slowly between them."""


@register
@dataclass(frozen=True)
class Staircase(Mechanism):
    """Two steps of a staircase on 0…span: a box of codes about the value, and all codes a factor e^ε lower.

    Noise of a staircase law has the least expected error of all additive noise (Geng, Kairouz, Oh and Viswanath 2015).
    On a bounded grid only its first two steps matter. Here the lower step does not move with the value, unlike additive
    noise: P(y | x) = t·(1 + (e^ε − 1)·1[y in the box of x]), both clipped to the grid, with
    t = (1−δ)/(width·e^ε + span), about half the mass of the lower steps of additive noise. Up to clipping it is
    randomised response on span/width + 1 points, dithered between them, and has exactly its loss and blanket.

    Null is one more point.

    ``span``: largest code of a value, 1 to 2^20. ``epsilon``, ``delta``: the budget; see `dpframe.accounting.budget`.
    ``nullable``: whether the code span + 1 is null. ``width``: Number of codes in the box of a value far from the ends:
    a divisor of span or span − 1, as only then the matrix can be inverted (`dpframe.channels.staircase`), so that grids
    of many divisors have the better choice. The default has about the least error of a mean. Plans store it, so that a
    receiver need not search.
    """

    span: int
    epsilon: float
    delta: float = 0.0
    nullable: bool = False
    width: int = 0
    size: int = field(init=False, repr=False)

    tag: ClassVar[str] = "staircase"
    aliases: ClassVar[tuple[str, ...]] = ("square_wave",)
    label: ClassVar[str] = "square_wave"
    metrics: ClassVar[frozenset[str]] = frozenset({"line", "nullable line"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "span", check_whole(self.span, "span", 1, MAX_STAIRCASE_STEPS))
        if not isinstance(self.nullable, bool):
            raise ParameterError("nullable must be True or False: whether null is a value")
        object.__setattr__(self, "size", self.span + 1 + self.nullable)
        self._check_budget(self.epsilon, self.delta)
        object.__setattr__(self, "width", self._checked_width())
        _ = self.table

    def _checked_width(self) -> int:
        width = check_whole(self.width, "width", 0, self.span)
        if not width:
            # Other widths have no inverse (see the module).
            widths = np.array(sorted(_divisors(self.span) | (_divisors(self.span - 1) if self.span > 1 else set())))
            errors = _mean_errors(self.span, widths, min(self.epsilon, MAX_DECIMAL_EPSILON), self.nullable)
            return int(widths[np.flatnonzero(errors <= errors.min() * _MAX_ERROR_RATIO)[0]])
        if self.span % width and (self.span - 1) % width:
            raise ParameterError(f"width must divide {self.span} or {self.span - 1}, so that estimates are possible")
        return width

    @classmethod
    def calibrate(cls, space: Space, epsilon: float, delta: float) -> Staircase:
        """Make the mechanism for a grid."""
        if space.values - 1 > MAX_STAIRCASE_STEPS:
            raise ParameterError(
                f"mechanism staircase is for at most {MAX_STAIRCASE_STEPS} steps, and space {space.tag} has "
                f"{space.values - 1}; use geometric or fewer steps"
            )
        return cls(space.values - 1, epsilon, delta, space.flag_codes == 1)

    @cached_property
    def table(self) -> BoxTable:
        """The integers that are sampled."""
        return _table(self.span, self.width, self.epsilon, self.delta, self.nullable)

    @property
    def own_metric(self) -> str:
        """Distance on a line, null at the diameter."""
        return "nullable line" if self.nullable else "line"

    @property
    def diameter(self) -> float:
        """The span."""
        return float(self.span)

    @cached_property
    def loss(self) -> ResponseLoss:
        """The exact loss, of randomised response on boxes."""
        return box_loss(self.table)

    @cached_property
    def blanket(self) -> float:
        """γ: the mass of the places that have a weight for every value, rounded down."""
        return round_down(Fraction(WORD - self.table.width * self.table.top, WORD))

    def _sample(self, codes: IntArray, stream: ColumnStream, first_row: int, out: IntArray) -> None:
        self.table.sample(codes, stream, first_row, out)

    def weights(self, code: int) -> tuple[list[int], int]:
        """Return the weights over 2^64."""
        return self.table.weights(code), WORD

    @cached_property
    def _boxes(self) -> BoxSums:
        return BoxSums(self.span, self.width, self.table.places_below)

    @property
    def _top(self) -> float:
        return self.table.top / WORD

    @cached_property
    def _background(self) -> FloatArray:
        return np.array(self.table.background) / WORD

    def surrogate_at(self, f: CodeFunction, codes: IntArray) -> FloatArray:
        """Return B⁻¹f/top, and f(null)/(width·top), less their mean under the background."""
        values = f(np.arange(self.size))
        surrogates = self._boxes.solve(values[: self.span + 1]) / self._top
        surrogates = np.append(surrogates, values[self.span + 1 :] / self.table.signal)
        return np.asarray((surrogates - self._background @ surrogates)[codes])

    def apply(self, counts: FloatArray, *, adjoint: bool = False) -> FloatArray:
        """Return A (or Aᵀ) applied along axis 0: sums over boxes, and the background."""
        values, nulls = counts[: self.span + 1], counts[self.span + 1 :]
        inside = self._boxes.sums(values) if adjoint else self._boxes.adjoint_sums(values)
        box_part = np.concatenate([self._top * inside, self.table.signal * nulls])
        if adjoint:
            return np.asarray(box_part + np.tensordot(self._background, counts, axes=1))
        return np.asarray(box_part + np.multiply.outer(self._background, counts.sum(axis=0)))

    def invert(self, counts: FloatArray, *, squared: bool = False) -> FloatArray:
        """Return A⁻¹ applied along axis 0, or its squared entries."""
        counts = np.asarray(counts, dtype=np.float64)
        total = counts.sum(axis=0)
        if not squared:
            return self._solved(counts - np.multiply.outer(self._background, total))
        shift = self._solved(self._background).reshape(-1, *[1] * (counts.ndim - 1))
        values, nulls = counts[: self.span + 1], counts[self.span + 1 :]
        # (a − s)² = a² − 2·s·a + s², with s the part of the background.
        squares = np.concatenate([self._boxes.squares(values) / self._top**2, nulls / self.table.signal**2])
        return np.asarray(squares - 2 * shift * self._solved(counts) + shift**2 * total)

    def _solved(self, counts: FloatArray) -> FloatArray:
        values, nulls = counts[: self.span + 1], counts[self.span + 1 :]
        return np.concatenate([self._boxes.solve_adjoint(values) / self._top, nulls / self.table.signal])

    def changes(self, edges: IntArray) -> IntArray:
        """Return the edges, and the places of the chains through them."""
        codes = np.append(self._boxes.changes(np.asarray(edges[1:-1], dtype=np.int64) - 1), edges[:-1])
        return np.unique(np.append(codes, np.arange(self.span, self.size)))

    def between(self, edges: IntArray, starts: IntArray) -> FloatArray:
        """Return P(y in a stretch of codes | x uniform in a cell), shape (stretches, cells)."""
        low, high = np.asarray(edges[:-1], dtype=np.float64), np.asarray(edges[1:], dtype=np.float64)
        c = np.asarray(starts, dtype=np.float64)[:, None]
        inside = (c > 0) & (c <= self.span)
        # The box of x has c + places_below − x places below c, clipped to 0…width. They are summed over a cell.
        below = c + self.table.places_below
        box = (_ramp(below - low, self.width) - _ramp(below - high, self.width)) / (high - low)
        background = np.append(0.0, np.cumsum(self._background))[np.asarray(starts)][:, None]
        under = np.where(inside, self._top * box + background, (c > 0) * 1.0)
        if self.nullable:
            under = np.where(c > self.span, background + self.table.signal, under)
            under = np.hstack([under, background])
        return np.diff(np.vstack([under, np.ones((1, under.shape[1]))]), axis=0)

    def expected_error(self, space: Space | None = None) -> float:
        """Return the largest E|Y − x| in grid steps, null being at the diameter."""
        if space is not None and "line" not in space.metric:
            return super().expected_error(space)
        table = self.table
        span, width, places_below = table.span, table.width, table.places_below
        x = np.arange(span + 1.0) if span < _MAX_ERROR_PLACES else np.linspace(0, span, _MAX_ERROR_PLACES).round()

        def within(reach: int, room: FloatArray) -> FloatArray:
            steps = np.minimum(float(reach), room)
            return np.asarray(steps * (steps + 1) / 2 + (reach - steps) * steps)

        box = within(places_below, x) + within(width - 1 - places_below, span - x)
        # Each end has several places.
        everywhere = (
            x * (x + 1) / 2
            + (span - x) * (span - x + 1) / 2
            + places_below * x
            + (width - 1 - places_below) * (span - x)
        )
        last_part = table.last_place_extra * (np.full_like(x, span) if table.nullable else span - x)
        null_part = float(table.low * width * span) if table.nullable else 0.0
        of_values = float((table.top * box + table.low * everywhere + last_part + null_part).max())
        of_null = span * (WORD - width * (table.top + table.low) - table.last_place_extra) if table.nullable else 0
        return max(of_values, float(of_null)) / WORD


def box_loss(table: BoxTable) -> ResponseLoss:
    """Return the exact loss: values with disjoint boxes are as two points of randomised response."""
    return ResponseLoss(table.width * (table.top + table.low), table.width * table.low, WORD)


def _ramp(m: FloatArray, width: int) -> FloatArray:
    """Return Σ_{u ≤ m} of u clipped to 0…width."""
    m = np.maximum(m, 0.0)
    inside = np.minimum(m, float(width))
    return np.asarray(inside * (inside + 1) / 2 + (m - inside) * width)


@lru_cache(maxsize=256)
def _table(span: int, width: int, epsilon: float, delta: float, nullable: bool) -> BoxTable:
    """Return the integers whose exact loss is within a budget."""
    elsewhere = span + width * nullable
    with localcontext(LOSS_CONTEXT):
        share = (1 - Decimal(delta)) / (width * Decimal(min(epsilon, MAX_DECIMAL_EPSILON)).exp() + elsewhere)
        # Rounded up: a larger low weight loses less privacy.
        low = max(1, math.ceil(share * WORD))
    table = BoxTable(span, width, low, nullable)
    if table.top < 1 or box_loss(table).delta(epsilon) > delta:
        raise ParameterError(f"epsilon={epsilon} is too small for a grid of {span} steps; give it a larger share")
    return table


def _mean_errors(span: int, widths: IntArray, epsilon: float, nullable: bool) -> FloatArray:
    """Return the standard error of the mean, per row, of values spread evenly over the grid.

    The mean's surrogate depends only on the level ⌊(place + c)/width⌋. If width divides span, c = 0; else c makes the
    first places_below + 1 places the lowest level: random rounding to points, then randomised response among them.
    """
    rounds, odd = span // widths, span % widths != 0
    odds = math.exp(-min(epsilon, 700.0))
    # q is the probability that the release comes from the value's box.
    q = -math.expm1(-epsilon) / (1 + odds * (span / widths + nullable))
    offset = np.where(odd, widths - 1 - widths // 2, 0)
    at = (np.arange(2)[:, None] * span + offset) / widths
    first = at.mean(axis=0)
    second = first**2 + span * (span + 2) / (12 * widths.astype(np.float64) ** 2)
    rounding = (1 - 1.0 / widths**2) / 6
    # Inner levels have ``width`` places; separate levels at the ends have width//2 + 1 and width − width//2.
    share = widths / (span + widths)
    last = np.where(odd, (widths - widths // 2) / (span + widths), 0.0)
    mean = share * rounds * (rounds + 1) / 2 + last * (rounds + 1)
    square = share * rounds * (rounds + 1) * (2 * rounds + 1) / 6 + last * (rounds + 1) ** 2
    second_moment = q * (second + rounding) + (1 - q) * square
    expected = q**2 * second + 2 * q * (1 - q) * first * mean + (1 - q) ** 2 * mean**2
    return np.asarray(np.sqrt(second_moment - expected) * widths / q)


def _divisors(number: int) -> set[int]:
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return {*small, *(number // k for k in small)}
