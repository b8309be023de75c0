"""The tight δ(ε) and ε(δ) of any finite channel, decided in exact arithmetic.

A channel is given by one law per input: integers over one total. A pair of inputs has 2^k events, and only
one can be the worst, the set where P > e^ε·P' (sufficient sets: Holohan, Leith and Mason, "Differentially
private response mechanisms on categorical data", Theorems 2 and 3, Corollaries 1 and 2). Floats only rank
the pairs, with margins; near ties are decided in integers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import permutations
from numbers import Rational
from typing import Any

import numpy as np

from dpframe.accounting.arrays import FloatArray
from dpframe.accounting.budget import check_delta, round_up
from dpframe.accounting.loss import MAX_DECIMAL_EPSILON, PrivacyLoss
from dpframe.errors import ParameterError

Columns = Sequence[Sequence[int]]

_FINITE_CONTEXT = Context(prec=80)
_FINITE_SLACK = Decimal(10) ** -70
_MAX_FLOAT_EPSILON = 700.0
"""Largest ε at which floats rank pairs; beyond it all pairs are compared exactly."""

_FLOAT_RATIO = 1 + Fraction(1, 1 << 40)
"""Largest ratio of two floats that rounding may have made of a ratio of 1."""


def tight_delta(columns: Columns, total: int, epsilon: float) -> float:
    """Return the least δ for which a channel is (ε, δ)-private, rounded up.

    ``columns``: one law per input: non-negative integers, one per output, that sum to ``total``. All ordered pairs of
    inputs are neighbours. ``total``: the sum of every law. ``epsilon``: 0 or more.

    Raises `ParameterError` if the laws are not such integers, or ε is negative.

    >>> tight_delta([[3, 1], [1, 3]], 4, 0.0)
    0.5
    """
    _check_columns(columns, total)
    if not epsilon >= 0:
        raise ParameterError("epsilon must be at least 0")
    up, down = 1, 1
    if epsilon > 0:
        with localcontext(_FINITE_CONTEXT):  # e^ε or a little less, over a power of 2
            up, down = (
                int(Fraction(Decimal(min(epsilon, MAX_DECIMAL_EPSILON)).exp() * (1 - _FINITE_SLACK) * (1 << 240))),
                1 << 240,
            )
    floats = _as_floats(columns, total)
    # A positive part is off by no more than the roundings of its own terms, which sum to about 1.
    margin = (floats.shape[1] + 16) * 2.0**-50
    odds = math.exp(min(epsilon, _MAX_FLOAT_EPSILON))
    deltas = np.stack([np.maximum(row - odds * floats, 0.0).sum(axis=1) for row in floats])
    # Only pairs within the float error of the worst one need exact sums.
    threshold = deltas.max() - 2 * margin if epsilon <= _MAX_FLOAT_EPSILON else -1.0
    pairs = np.argwhere(deltas >= threshold).tolist()
    worst = max(
        sum(p * down - q * up for p, q in zip(columns[x], columns[z], strict=True) if p * down > q * up)
        for x, z in pairs
    )
    return min(1.0, round_up(Fraction(worst, total * down)))


def tight_epsilon(columns: Columns, total: int, delta: float = 0.0) -> float:
    """Return the least ε for which a channel is (ε, δ)-private, rounded up; infinite if no ε suffices.

    With δ = 0 the result is ln of the largest ratio of two probabilities of one output. Otherwise e^ε is the
    largest (P(S) − δ)/P'(S), and for each pair only the sets S of the outputs with the largest P/P' matter.
    See `tight_delta` for the parameters.

    >>> tight_epsilon([[3, 1], [1, 3]], 4)
    1.0986122886681098
    >>> tight_epsilon([[3, 1], [0, 4]], 4)
    inf
    """
    _check_columns(columns, total)
    delta = check_delta(delta)
    ratio = _largest_ratio(columns) if delta == 0 else _largest_excess(columns, total, Fraction(delta))
    if ratio is None:
        return math.inf
    if ratio <= 1:
        return 0.0
    with localcontext(_FINITE_CONTEXT):
        return round_up((Decimal(ratio.numerator) / ratio.denominator).ln() * (1 + _FINITE_SLACK) + _FINITE_SLACK)


def tight(
    matrix: Sequence[Sequence[Any]],
    epsilon: float | None = None,
    delta: float | None = None,
    neighbours: Iterable[tuple[int, int]] | None = None,
) -> float:
    """Return the least δ at an ε, or the least ε at a δ, of any channel given by its matrix: exact, rounded up.

    Parameters
    ----------
    matrix
        ``matrix[x][y]`` is the probability that input x gives output y: a row for each input, of any numbers of inputs
        and outputs; floats, or exact `Fraction`, which sum to 1.
    epsilon, delta
        One of them; without either δ = 0.
    neighbours
        Pairs of inputs that are neighbours, by their positions; all of them by default.

    Raises
    ------
    ParameterError
        Unless rows are probabilities that sum to 1, just one of ε and δ is given, and neighbours are positions.

    Examples
    --------
    >>> round(tight([[0.75, 0.25], [0.25, 0.75]]), 6), tight([[0.75, 0.25], [0.25, 0.75]], epsilon=0.0)
    (1.098612, 0.5)
    >>> tight([[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]], delta=0.5, neighbours=[(0, 1)])
    0.0
    """
    if epsilon is not None and delta is not None:
        raise ParameterError("epsilon and delta are both given; give one, and the other is computed")
    rows = _exact_rows(matrix)
    # One common denominator turns exact fractions into integers over a total.
    total = math.lcm(*(p.denominator for row in rows for p in row))
    columns = [[int(p * total) for p in row] for row in rows]
    pairs = None if neighbours is None else _pairs(neighbours, len(rows))
    families = [columns] if pairs is None else [[columns[x] for x in pair] for pair in pairs]
    if epsilon is not None:
        return max((tight_delta(family, total, epsilon) for family in families), default=0.0)
    return max((tight_epsilon(family, total, delta or 0.0) for family in families), default=0.0)


def _pairs(neighbours: Iterable[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Return pairs of positions of so many rows, or raise `ParameterError`."""
    wrong = ParameterError(f"neighbours must be pairs of positions of rows, from 0 to {count - 1}")
    try:
        pairs = [tuple(pair) for pair in neighbours]
    except TypeError:
        raise wrong from None
    if any(len(pair) != 2 or not all(type(x) is int and 0 <= x < count for x in pair) for pair in pairs):
        raise wrong
    return [(x, z) for x, z in pairs]


@dataclass(frozen=True)
class SufficientSets:
    """The outputs with P(y|x) > P(y|x'), for each ordered pair of neighbours (x, x'); see `sufficient_sets`."""

    sets: Mapping[tuple[int, int], tuple[int, ...]]
    outputs: int

    @property
    def sizes(self) -> dict[int, int]:
        """Numbers of ordered pairs by number of checks, which is 2^s − 1 for a set of s outputs."""
        return dict(sorted(Counter((1 << len(outputs)) - 1 for outputs in self.sets.values()).items()))

    @property
    def checks(self) -> int:
        """Number of inequalities P(S) ≤ e^ε·P'(S) + δ that prove the channel: of all subsets S of these sets."""
        return sum(size * pairs for size, pairs in self.sizes.items())

    @property
    def all_checks(self) -> int:
        """Number of inequalities for all events except the sure and the impossible one."""
        return ((1 << self.outputs) - 2) * len(self.sets)


def sufficient_sets(
    matrix: Sequence[Sequence[Any]], neighbours: Iterable[tuple[int, int]] | None = None
) -> SufficientSets:
    """Return which events prove that a channel is (ε, δ)-private, at any ε and δ, and how many they are.

    P(S) ≤ e^ε·P'(S) + δ holds for all events S if it does for the subsets of the outputs with P > P': other outputs
    only add to the right side (categorical paper, Theorems 2 and 3, Corollaries 1 and 2). The worst of these subsets
    at an ε contains the outputs with P > e^ε·P', which `tight` sums.

    Parameters
    ----------
    matrix
        ``matrix[x][y]`` is the probability that input x gives output y, as for `tight`. Whole numbers and `Fraction`
        are compared exactly. Rounding may have separated floats of outputs that are equally likely from both inputs:
        two floats with a relative difference below 2⁻⁴⁰ count as equal. That omits no check that matters at an ε of
        1e-12 or more.
    neighbours
        Pairs of inputs that are neighbours, by their positions, in either order; all of them by default.

    Raises
    ------
    ParameterError
        Unless rows are probabilities that sum to 1, and neighbours are positions.

    Examples
    --------
    >>> found = sufficient_sets([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])
    >>> found.sets, found.checks, found.all_checks
    ({(0, 1): (0,), (1, 0): (1,)}, 2, 12)
    """
    rows, is_exact = _exact_rows(matrix), all(isinstance(p, Rational) for row in matrix for p in row)
    min_ratio = Fraction(1) if is_exact else _FLOAT_RATIO
    all_pairs = permutations(range(len(rows)), 2)
    input_pairs = all_pairs if neighbours is None else _pairs(neighbours, len(rows))
    ordered = dict.fromkeys(pair for x, z in input_pairs if x != z for pair in ((x, z), (z, x)))
    sets = {
        (x, z): tuple(y for y, (p, q) in enumerate(zip(rows[x], rows[z], strict=True)) if p > min_ratio * q)
        for x, z in ordered
    }
    return SufficientSets(sets, len(rows[0]))


def _exact_rows(matrix: Sequence[Sequence[Any]]) -> list[list[Fraction]]:
    """Return rows as fractions that sum to 1: floats as they are, divided by their exact sum."""
    try:
        rows = [[Fraction(p) for p in row] for row in matrix]
    except (TypeError, ValueError, OverflowError):
        raise ParameterError("matrix must hold probabilities, a row for each input") from None
    if not rows or not rows[0] or any(len(row) != len(rows[0]) for row in rows):
        raise ParameterError("matrix must have a row for each input, of as many outputs each")
    for position, row in enumerate(rows):
        if min(row) < 0 or abs(sum(row, Fraction(0)) - 1) > Fraction(1, 10**9):
            raise ParameterError(
                f"matrix must have rows of probabilities that sum to 1; the one at position {position} does not"
            )
    return [[p / sum(row) for p in row] for row in rows]


def _check_columns(columns: Columns, total: int) -> None:
    if not columns or not columns[0]:
        raise ParameterError("columns must hold at least one law, and each law at least one weight")
    for position, column in enumerate(columns):
        if len(column) != len(columns[0]):
            raise ParameterError(f"columns must be laws on the same outputs; the one at position {position} is not")
        if not all(isinstance(w, int) for w in column) or min(column) < 0 or sum(column) != total:
            raise ParameterError(
                f"columns must be integers from 0 that sum to total; those at position {position} are not"
            )


def _as_floats(columns: Columns, total: int) -> FloatArray:
    return np.array([[w / total for w in column] for column in columns])


def _largest_ratio(columns: Columns) -> Fraction | None:
    """Return max P/P' over outputs and pairs, None if infinite: a row's largest weight over its smallest."""
    largest = (1, 1)
    for row in zip(*columns, strict=True):
        high, low = max(row), min(row)
        if low == 0:
            if high:
                return None
        # Cross products compare ratios of integers exactly.
        elif high * largest[1] > largest[0] * low:
            largest = (high, low)
    return Fraction(*largest)


def _largest_excess(columns: Columns, total: int, delta: Fraction) -> Fraction | None:
    """Return max (P(S) − δ)/P'(S) over pairs and events, None if infinite."""
    if len(columns) == 1:
        return Fraction(1)
    zeros = [x for x, column in enumerate(columns) if min(column) == 0]
    for z in zeros:
        for column in columns:
            if sum(p for p, q in zip(column, columns[z], strict=True) if q == 0) > delta * total:
                return None
    floats = _as_floats(columns, total)
    if zeros or floats.min() < 1e-290:
        pairs: Iterable[tuple[int, int]] = permutations(range(len(columns)), 2)
    else:
        pairs = _candidate_pairs(floats, float(delta))
    # Symmetric channels have many pairs that differ only in the order of outputs.
    distinct = {tuple(sorted(zip(columns[x], columns[z], strict=True))) for x, z in pairs}
    return max(_pair_excess(pair, delta * total) for pair in distinct)


def _candidate_pairs(floats: FloatArray, delta: float) -> Iterator[tuple[int, int]]:
    """Yield the pairs that may have the largest (P(S) − δ)/P'(S), by lower and upper bounds.

    An event in the order of rounded ratios differs from the right event by outputs whose ratio is nearly the
    largest, which the margin on P(S) covers.
    """
    margin = (floats.shape[1] + 16) * 2.0**-48
    count = len(floats)
    # A pair whose upper bound is below some lower bound cannot be the worst.
    upper, lower = np.zeros((count, count)), np.zeros((count, count))
    for x, row in enumerate(floats):
        order = np.argsort(-(row / floats), axis=1, kind="stable")
        top = np.cumsum(row[order], axis=1)
        bottom = np.cumsum(np.take_along_axis(floats, order, axis=1), axis=1)
        upper[x] = ((top * (1 + margin) - delta * (1 - margin)) / bottom).max(axis=1) * (1 + margin)
        lower[x] = ((top * (1 - margin) - delta * (1 + margin)) / bottom).max(axis=1) * (1 - margin)
    np.fill_diagonal(upper, -np.inf)
    np.fill_diagonal(lower, -np.inf)
    for x, z in np.argwhere(upper >= lower.max()).tolist():
        yield x, z


def _pair_excess(pair: Sequence[tuple[int, int]], mass: Fraction) -> Fraction:
    """Return max (P(S) − δ)/P'(S) of one pair, mass being δ·total; if P'(S) = 0, P(S) is at most δ."""
    best, top, bottom = Fraction(0), sum(p for p, q in pair if q == 0), 0
    for _, p, q in sorted(((Fraction(p, q), p, q) for p, q in pair if q), reverse=True):
        top, bottom = top + p, bottom + q
        best = max(best, (top - mass) / bottom)
    return best


@dataclass(frozen=True)
class FiniteLoss(PrivacyLoss):
    """The exact loss of a finite channel, all inputs being neighbours.

    ``columns``: one law per input: integers over ``total``, one per output. ``total``: the sum of every law.
    """

    columns: tuple[tuple[int, ...], ...]
    total: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(tuple(column) for column in self.columns))
        _check_columns(self.columns, self.total)

    @cached_property
    def _pure(self) -> float:
        return tight_epsilon(self.columns, self.total)

    def pure(self) -> float:
        """Return ln of the largest ratio of two probabilities of one output."""
        return self._pure

    def _curve(self, epsilon: Decimal | float) -> Decimal:
        return Decimal(tight_delta(self.columns, self.total, float(epsilon)))

    def delta(self, epsilon: float) -> float:
        """Return the least δ, rounded up, for which the channel is (ε, δ)-private."""
        if epsilon >= self.pure():
            return 0.0
        return tight_delta(self.columns, self.total, epsilon)

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the least ε, rounded up, for which the channel is (ε, δ)-private."""
        return self.pure() if check_delta(delta) == 0 else tight_epsilon(self.columns, self.total, delta)
