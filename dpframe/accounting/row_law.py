"""The law of a whole row's (A, B), the product of its columns' laws, on a multiplicative lattice.

Powers of e^h are closed under products. So each column's E is first spread to its two neighbours on the lattice, its
mean kept (which only raises the bound, `dominating`), and the product of the columns is then a convolution without
further rounding: non-negative terms are added, so every mass keeps its relative precision, however small. When all
rates are multiples of h (equal shares) nothing is rounded at all; otherwise h is chosen so that the variance gained
is small.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpframe.accounting.arrays import FloatArray
from dpframe.accounting.dominating import ColumnLoss, DominatingLaw, factors

_CELLS = 420
"""Most lattice steps along an axis."""
_FACTORS = 200
"""Factors of a row's law beyond which equal ones are taken in blocks."""
_INFLATION = 1e-4
"""Variance, relative to its whole, that rounding to the lattice may add where that many steps allow it."""

_SNAP = 1e-6
"""Steps by which a rate may be enlarged to meet a lattice point, so that nearly equal rates share it."""


@dataclass(frozen=True)
class RowLaw:
    """Atoms of (A, B) under the blanket: ``A``, ``B`` and ``mass``; outside it (A, B) = (0, 0), mass ``outside``.

    ``position_error`` and ``mass_error`` bound the relative rounding of the atoms, the latter from below only.
    """

    a: FloatArray
    b: FloatArray
    mass: FloatArray
    outside: float
    position_error: float
    mass_error: float


def snapped(rate: float, step: float) -> float:
    """Return the lattice point just above a rate if it is very near, or else the rate."""
    near = round(rate / step) * step
    return near if 0 <= near - rate <= _SNAP * step else rate


def spread(rate: float, step: float) -> list[tuple[int, float]]:
    """Return the two lattice points about e^rate and the weights that keep its mean."""
    low = math.floor(rate / step)
    while low * step > rate:
        low -= 1
    upper = min(1.0, math.expm1(rate - low * step) / math.expm1(step))
    return [(k, w) for k, w in ((low, 1 - upper), (low + 1, upper)) if w > 0]


def choose_step(rates: Sequence[float], weights: Sequence[float], cells: int, tolerance: float) -> float:
    """Return the widest step whose added variance is negligible, or else the one that adds least.

    ``weights`` are the masses of the atoms at e^rate. Candidates are fractions of the rates themselves, so that
    equal rates, and rates in simple proportion, are met exactly.
    """
    rate, weight = np.asarray(rates), np.asarray(weights)
    finest = rate.sum() / max(1, cells - len(rate))
    distinct = np.unique(rate * (1 + 1e-3 * _SNAP))
    steps = [r / np.arange(1, max(2, math.floor(r / finest) + 1)) for r in distinct]
    step = np.sort(np.concatenate(steps))[::-1]
    step = step[np.ceil(rate[:, None] / step).sum(axis=0) <= cells]
    if not step.size:
        return float(rate.sum() / max(1, cells - len(rate)))
    below = np.maximum(0.0, rate[:, None] - np.floor(rate[:, None] / step + _SNAP) * step)
    added = np.expm1(below) * (np.expm1(step) - np.expm1(below)) * np.exp(-2 * below)
    weight = weight * np.exp(2 * (rate - rate.max()))
    inflation = (weight[:, None] * added).sum(axis=0) / (weight * np.expm1(-rate) ** 2).sum()
    good = np.flatnonzero(inflation <= tolerance)
    return float(step[good[0] if good.size else inflation.argmin()])


def _times(law: FloatArray, column: DominatingLaw, points: list[tuple[int, float]]) -> FloatArray:
    reach, size = points[-1][0], law.shape[0]
    differ, both = column.differ, column.both
    product = np.zeros((size + reach, size + reach))
    product[:size, :size] = law * column.same
    for k, weight in points:
        scaled = law * (differ * weight)
        product[k : k + size, :size] += scaled
        product[:size, k : k + size] += scaled
        for m, other in points if both else ():
            product[k : k + size, m : m + size] += law * (both * weight * other)
    return product


def _product(columns: Counter[DominatingLaw], step: float) -> FloatArray:
    """Return the masses of (e^(i·step), e^(j·step)); of the most frequent column by its power, if on the lattice."""
    law = np.ones((1, 1))
    for column, count in sorted(columns.items(), key=lambda item: (-item[1], item[0].rate)):
        points = spread(column.rate, step)
        if law.size == 1 and len(points) == 1:
            (reach, _), *_ = points
            law = np.zeros((count * reach + 1, count * reach + 1))
            law[::reach, ::reach] = column.power(count)
        else:
            for _ in range(count):
                law = _times(law, column, points)
    return law


@functools.lru_cache(maxsize=16)
def row_law(parts: tuple[ColumnLoss, ...]) -> RowLaw:
    """Return the dominating law of a row with these columns."""
    columns = [law.enlarged for law in factors(parts, _FACTORS)]
    step = choose_step([c.rate for c in columns], [c.differ for c in columns], _CELLS, _INFLATION)
    law = _product(Counter(replace(c, rate=snapped(c.rate, step)).enlarged for c in columns), step)
    i, j = np.nonzero(law)
    ratio = np.exp(step * np.arange(law.shape[0]))
    blanket = math.prod(column.blanket for column in columns)
    errors = 1e-15 * (8 + 2 * step * law.shape[0] + len(columns))
    return RowLaw(ratio[i], ratio[j], law[i, j], 1 - blanket * (1 - errors), errors, 1e-15 * (8 * len(columns)))


def single_law(epsilon: float) -> RowLaw:
    """Return the law of randomised response on two outcomes, which dominates every *single* channel of loss ε.

    With no other column, u = 1 and v = e^ε' ≤ E, and mass (E+1)/E on (E, E) with (E−1)/E on (0, 0)
    spreads to 1 on each of (E, 1), (1, E): both images lie between theirs. So γ < 2/(1 + E) costs nothing more.
    """
    low = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    high = math.exp(epsilon)
    atoms = np.array([high, 1.0])
    return RowLaw(atoms, atoms[::-1], np.full(2, low), 1 - 2 * low + 1e-15, 1e-15 * (4 + epsilon), 4e-15)
