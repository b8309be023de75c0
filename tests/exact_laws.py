"""Laws made of exponentials, compared exactly, and the sets of outputs that decide their loss."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import reduce
from itertools import permutations, product
from typing import Any

import numpy as np

from dpframe.channels.base import Channel
from dpframe.inference.column import Task
from dpframe.inference.cost import GaussianNoise, Spending
from dpframe.noise.gaussian import Ints, gaussian_table
from dpframe.noise.keystream import ColumnStream, Keystream
from dpframe.plan.plan import Plan
from dpframe.release.noisy_tables import Tables
from dpframe.spaces import Space
from dpframe.spaces.arrays import FloatArray
from dpframe.totals.counts import OfColumn, Values


def sufficient_sets(
    columns: Sequence[Sequence[Any]], pairs: Iterable[tuple[int, int]] | None = None
) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return for each ordered pair of inputs the outputs where P > P'.

    A channel is (ε, δ)-private if and only if P(S) ≤ e^ε·P'(S) + δ for all subsets S of these sets (Theorem 2):
    2^s − 1 checks for a set of s outputs instead of 2^k − 2.

    Parameters
    ----------
    columns
        One law per input, over one total, of any numbers that compare exactly: integers, Fractions, `ExpSum`.
    pairs
        The ordered pairs of inputs that are neighbours, by default all.

    Examples
    --------
    >>> sufficient_sets([[3, 1, 2], [1, 3, 2]])
    {(0, 1): (0,), (1, 0): (1,)}
    """
    chosen = permutations(range(len(columns)), 2) if pairs is None else pairs
    return {
        (x, z): tuple(y for y, (p, q) in enumerate(zip(columns[x], columns[z], strict=True)) if p > q)
        for x, z in chosen
    }


class ExpSum:
    """An exact number Σ c·e^r with rational c and r.

    Such a sum is 0 only if it has no terms left once equal exponents are joined (Lindemann–Weierstrass), so
    signs are found by working with ever more digits.

    Examples
    --------
    >>> e = ExpSum({1: 1})
    >>> e * ExpSum({-1: 1}) == ExpSum({0: 1}), e > ExpSum({0: 2}), e > ExpSum({0: 3})
    (True, True, False)
    """

    __slots__ = ("terms",)
    terms: dict[Fraction, Fraction]

    def __init__(self, terms: Mapping[Any, Any]) -> None:
        exact = ((Fraction(r), Fraction(c)) for r, c in terms.items())
        self.terms = {r: c for r, c in exact if c}

    def __add__(self, other: ExpSum) -> ExpSum:
        keys = {**self.terms, **other.terms}
        return ExpSum({r: self.terms.get(r, 0) + other.terms.get(r, 0) for r in keys})

    def __sub__(self, other: ExpSum) -> ExpSum:
        return self + ExpSum({r: -c for r, c in other.terms.items()})

    def __mul__(self, other: ExpSum) -> ExpSum:
        terms: dict[Fraction, Fraction] = {}
        for r, c in self.terms.items():
            for s, d in other.terms.items():
                terms[r + s] = terms.get(r + s, Fraction(0)) + c * d
        return ExpSum(terms)

    def sign(self) -> int:
        """Return −1, 0 or 1."""
        if not self.terms:
            return 0
        digits = 30
        while True:
            with localcontext(Context(prec=digits)):
                parts = [Decimal(c.numerator) / c.denominator * _exp(r) for r, c in self.terms.items()]
                value, size = sum(parts, Decimal(0)), sum(map(abs, parts), Decimal(0))
                # Every part and partial sum is right to a few units of its last digit.
                if abs(value) > size * (len(parts) + 8) * Decimal(10) ** (2 - digits):
                    return 1 if value > 0 else -1
            digits *= 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpSum) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __gt__(self, other: ExpSum) -> bool:
        return (self - other).sign() > 0

    def __lt__(self, other: ExpSum) -> bool:
        return (self - other).sign() < 0

    def __float__(self) -> float:
        with localcontext(Context(prec=80)):
            parts = (Decimal(c.numerator) / c.denominator * _exp(r) for r, c in self.terms.items())
            return float(sum(parts, Decimal(0)))

    def __repr__(self) -> str:
        return "ExpSum({" + ", ".join(f"{r}: {c}" for r, c in sorted(self.terms.items())) + "})"


def _exp(r: Fraction) -> Decimal:
    return (Decimal(r.numerator) / r.denominator).exp()


def exponential_columns(scores: Sequence[Sequence[Any]]) -> tuple[list[list[ExpSum]], ExpSum]:
    """Return the laws P(y|x) ∝ e^(u(x, y)) as exact numbers over one total, from rational scores u[x][y].

    Examples
    --------
    >>> columns, total = exponential_columns([[0, -1], [-1, 0]])
    >>> columns[0][0] + columns[0][1] == total
    True
    """
    weights = [[ExpSum({u: 1}) for u in row] for row in scores]
    sums = [reduce(ExpSum.__add__, row) for row in weights]
    # Equal normalisers need not be multiplied twice.
    distinct = list(dict.fromkeys(sums))
    total = reduce(ExpSum.__mul__, distinct)
    others = {s: reduce(ExpSum.__mul__, (d for d in distinct if d != s), ExpSum({0: 1})) for s in distinct}
    return [[w * others[s] for w in row] for row, s in zip(weights, sums, strict=True)], total


def hockey_stick(p: FloatArray, q: FloatArray, x: float) -> float:
    """Return Σ max(0, p − e^x·q), the divergence of two laws on the same outcomes.

    Examples
    --------
    >>> hockey_stick(np.array([0.75, 0.25]), np.array([0.25, 0.75]), 0.0)
    0.5
    """
    return float(np.maximum(p - math.exp(x) * q, 0.0).sum())


@dataclass(frozen=True)
class Pair:
    """What an observer sees of two neighbouring tables: the masses of every outcome, under the one and the other.

    Outcomes far out may be left out. What they hold counts in full against a claim (`most`), and not at all for its
    being broken (`least`): both bounds hold for the law without anything left out.
    """

    one: FloatArray
    other: FloatArray

    @classmethod
    def joined(cls, parts: Iterable[Pair]) -> Pair:
        """Return the law of outcomes that are those of one of several branches."""
        listed = list(parts)
        return cls(np.concatenate([part.one for part in listed]), np.concatenate([part.other for part in listed]))

    def times(self, other: Pair) -> Pair:
        """Return the law of an outcome of each, drawn independently."""
        return Pair(np.outer(self.one, other.one).ravel(), np.outer(self.other, other.other).ravel())

    def merged(self) -> Pair:
        """Return the law with outcomes joined whose odds are the same to nine digits, which tells as much of the table.

        Joining can only lower the profile; by a billionth of it here.
        """
        with np.errstate(divide="ignore"):
            odds = np.round(np.log(self.one) - np.log(self.other), 9)
        _, places = np.unique(odds, return_inverse=True)
        return Pair(np.bincount(places, self.one), np.bincount(places, self.other))

    @property
    def left_out(self) -> float:
        """The mass that was left out, under either table."""
        return max(0.0, 1 - float(self.one.sum()), 1 - float(self.other.sum()))

    def least(self, x: float) -> float:
        """Return the profile at e^x, in the worse direction, of what is there."""
        return max(hockey_stick(self.one, self.other, x), hockey_stick(self.other, self.one, x))

    def most(self, x: float) -> float:
        """Return a bound on it for the whole law."""
        return self.least(x) + self.left_out


NOTHING = Pair(np.ones(1), np.ones(1))
"""What tells nothing."""


def drawn_law(noise: GaussianNoise, reach: int) -> FloatArray:
    """Return P(z) for z = −reach … reach, of discrete Gaussian noise as it is drawn: from its table's own integers.

    Examples
    --------
    >>> law = drawn_law(GaussianNoise(gaussian_table(0.5)), 3)
    >>> len(law), bool(0.9999 < law.sum() < 1), bool(law[3] > law[2])
    (7, True, True)
    """
    assert noise.table.coarse is None
    weights = noise.table.weights()
    return np.array([weights.get(z, 0) / 2**128 for z in range(-reach, reach + 1)])


@dataclass(frozen=True)
class CountLaw(Pair):
    """Noisy counts of a few cells, one row each, and their masses under both tables."""

    counts: Ints


def count_law(noise: GaussianNoise, one: Ints, other: Ints, reach: int) -> CountLaw:
    """Return the law of noisy counts that are these and those, within ``reach`` of either.

    Examples
    --------
    >>> law = count_law(GaussianNoise(gaussian_table(2.0)), np.array([3, 0]), np.array([2, 1]), 9)
    >>> law.counts.shape, law.left_out < 1e-6, round(law.least(1.0), 4)
    ((400, 2), True, 0.1196)
    """
    law = drawn_law(noise, reach + int(np.abs(one - other).max(initial=0)))
    spans = [range(min(a, b) - reach, max(a, b) + reach + 1) for a, b in zip(one, other, strict=True)]
    rows = list(product(*spans))
    counts = np.array(rows, dtype=np.int64).reshape(len(rows), len(one))
    middle = len(law) // 2
    masses = [np.prod(law[middle + counts - exact], axis=1) for exact in (one, other)]
    return CountLaw(masses[0], masses[1], counts)


@dataclass(frozen=True)
class Inferring:
    """An inference of one of two neighbouring tables, whose noise is enumerated where it can tell them apart.

    That is in the cells in which the tables differ, within ``reaches[i]`` of either count in the i-th round. In all
    others noise is drawn once, for a ``seed``. Nothing is lost by that: there it is independent of everything and has,
    on the same counts, one law for both tables, so that the profile of the whole is the mean over its values of the
    profiles with it given. A proof of the claim holds for each of these, and so must the claim.
    """

    task: Task
    tables: tuple[Any, Any]
    spending: Spending
    reaches: tuple[int, ...]
    seed: int = 0
    spaces: bool = False
    """Whether the last round is gone through too, and what decides on the column's space told apart."""

    def law(self) -> Pair:
        """Return the law of all that the rounds give, each asked as the library decides on the outcome of those before.

        What comes of outcomes that decide alike is enumerated once.
        """
        return Pair.joined(law for _, law in self._from(self.task, 0, NOTHING))

    def by_space(self) -> dict[Space, Pair]:
        """Return the laws of what leads to each of the spaces that the column may have."""
        ended = replace(self, spaces=True)
        found: dict[str, tuple[Space, list[Pair]]] = {}
        for task, law in ended._from(self.task, 0, NOTHING):
            space = task.space()
            found.setdefault(json.dumps(space.to_json()), (space, []))[1].append(law)
        return {space: Pair.joined(laws) for space, laws in found.values()}

    def _from(self, task: Task, i: int, before: Pair) -> Iterator[tuple[Task, Pair]]:
        at = task.asks(i) if i < len(self.reaches) else None
        if at is None:
            yield task, before
            return
        noise, threshold = self.spending.noises[at], self.spending.thresholds[at]
        assert isinstance(noise, GaussianNoise)
        one, other = (Exact.of(task, rows) for rows in self.tables)
        if threshold:
            alike: dict[Any, tuple[Task, list[Pair]]] = {}
            for place, (branch, shown) in enumerate(self._shown(task, i, noise, threshold, one, other)):
                alike.setdefault(place if self.spaces else decided(branch), (branch, []))[1].append(shown)
            for branch, parts in alike.values():
                yield from self._from(branch, i + 1, before.times(Pair.joined(parts)))
            return
        cells = np.flatnonzero(one.counts != other.counts)
        law = count_law(noise, one.counts[cells], other.counts[cells], self.reaches[i])
        if i + 1 == len(self.reaches) and not self.spaces:
            yield task, before.times(law)
            return
        noisy = one.counts + self._drawn(noise, i, one.names)
        branches: dict[Any, tuple[Task, list[int]]] = {}
        for row, counts in enumerate(law.counts):
            noisy[cells] = counts
            branch = measured(task, one.counter, Replayed(noise.variance, noisy.copy()), threshold)
            decision = row if self.spaces else decided(branch)
            branches.setdefault(decision, (branch, []))[1].append(row)
        for branch, rows in branches.values():
            yield from self._from(branch, i + 1, before.times(Pair(law.one[rows], law.other[rows])))

    def _shown(
        self, task: Task, i: int, noise: GaussianNoise, threshold: int, one: Exact, other: Exact
    ) -> Iterator[tuple[Task, Pair]]:
        """Yield what is released of unknown domains: of each table by itself, as each has its own cells."""
        mine = [dict(zip(table.names, table.counts.tolist(), strict=True)) for table in (one, other)]
        found: dict[Any, tuple[Task, list[float]]] = {}
        for side, table in enumerate((one, other)):
            cells = [place for place, name in enumerate(table.names) if mine[0].get(name) != mine[1].get(name)]
            noisy = table.counts + self._drawn(noise, i, table.names)
            law = count_law(noise, table.counts[cells], table.counts[cells], self.reaches[i])
            for counts, p in zip(law.counts, law.one.tolist(), strict=True):
                noisy[cells] = counts
                branch = measured(task, table.counter, Replayed(noise.variance, noisy.copy()), threshold)
                released = branch.measured[-1]
                outcome = (released.cells, released.counts, released.missing)
                found.setdefault(outcome, (branch, [0.0, 0.0]))[1][side] += p
        for branch, (p, q) in found.values():
            yield branch, Pair(np.array([p]), np.array([q]))

    def _drawn(self, noise: GaussianNoise, i: int, names: Sequence[Any]) -> Ints:
        """Return noise for the cells of a round: that of a cell is its own, whatever cells there are beside it."""
        if isinstance(names, range):
            return noise.add(np.zeros(len(names), dtype=np.int64), _stream(self.seed, i))
        each = [noise.add(np.zeros(1, dtype=np.int64), _stream(self.seed, i, name)) for name in names]
        return np.concatenate([np.zeros(0, dtype=np.int64), *each])


def _stream(*words: Any) -> ColumnStream:
    return Keystream(bytes(range(32))).column(repr(words), "infer")


@dataclass(frozen=True)
class Replayed:
    """Noise on counts that is not drawn but known: what comes out is given.

    Inference takes it in place of its own, so that what decides on the next round is the library's code.
    """

    variance: float
    noisy: Ints | None = None

    def add(self, counts: Ints, stream: ColumnStream) -> Ints:
        """Return the noisy counts that are given, or else the exact ones."""
        return np.asarray(counts, dtype=np.int64) if self.noisy is None else self.noisy


@dataclass(frozen=True)
class Exact:
    """What a task's next round adds noise to, in that order, by the cells' names: numbers, or values."""

    counter: OfColumn
    names: Sequence[Any]
    counts: Ints

    @classmethod
    def of(cls, task: Task, rows: Any) -> Exact:
        """Count rows as the task does."""
        counter, seen = task.counter(), list[Ints]()
        counter.add(rows)

        class Spy(Replayed):
            def add(self, counts: Ints, stream: ColumnStream) -> Ints:
                seen.append(np.array(counts, dtype=np.int64))
                return seen[0]

        measured(task, counter, Spy(1.0), 1)
        names: Sequence[Any] = range(len(seen[0]))
        if isinstance(counter, Values):
            values = counter.listed()[0].to_pylist()
            names = [None] * (len(seen[0]) - len(values)) + values
        return cls(counter, names, seen[0])


def measured(task: Task, counter: OfColumn, noise: Replayed, threshold: int) -> Task:
    """Return the task as it is once a round is measured; the one given stays as it was."""
    branch = _branched(task)
    branch.measure(counter, noise, threshold, _stream())
    return branch


def _branched(task: Task) -> Task:
    branch = copy(task)
    for name, value in vars(branch).items():
        if type(value) is list:
            setattr(branch, name, list(value))
        elif type(value) is dict:
            setattr(branch, name, {key: _branched(inner) for key, inner in value.items()})
    return branch


def decided(task: Task) -> tuple[Any, ...]:
    """Return all of a task that its further rounds may depend on: everything but the counts kept for the plan."""
    parts: list[Any] = []
    for name, value in vars(task).items():
        if type(value) is dict:
            parts += [decided(inner) for inner in value.values()]
        elif name != "measured":
            # What no round changes is the same object in every branch.
            parts.append(tuple(value) if type(value) is list else value if type(value) in (int, str) else id(value))
    return tuple(parts)


def shuffled_law(mechanism: Channel, code: int, other: int, n: int) -> Pair:
    """Return the law of n rows in a secret order, all of one code but for one row that has it or another.

    Of the rows as released it tells all how many there are of each odds P(y | other) / P(y | code): the rows' law is
    P(y₁ | code)⋯P(yₙ | code) in the one table, and that times the mean of the rows' odds in the other.

    Examples
    --------
    >>> from dpframe.channels import RandomizedResponse
    >>> from dpframe.spaces import Boolean
    >>> law = shuffled_law(RandomizedResponse.calibrate(Boolean(), 1.0, 0.0), 0, 1, 2)
    >>> p = math.e / (1 + math.e)
    >>> len(law.one), law.left_out < 1e-12, math.isclose(law.least(0.0), p * (2 * p - 1))
    (3, True, True)
    """
    p, q = mechanism.law(code), mechanism.law(other)
    present = (p > 0) | (q > 0)
    row = Pair(p[present], q[present]).merged()
    odds = row.other / row.one
    one, two = [], []
    for counts in product(range(n + 1), repeat=len(odds)):
        if sum(counts) == n:
            ways = math.factorial(n) / math.prod(map(math.factorial, counts))
            one.append(ways * math.prod(p**k for p, k in zip(row.one.tolist(), counts, strict=True)))
            two.append(one[-1] * sum(k * r for k, r in zip(counts, odds.tolist(), strict=True)) / n)
    return Pair(np.array(one), np.array(two))


def tables_law(plan: Plan, codes: Sequence[Mapping[str, Any]], reach: float) -> Pair:
    """Return the law of the measured tables of two neighbouring tables, noise enumerated to ``reach`` times its σ."""
    joined, laws = [m for m in plan.measures if m.kind in ("one_way", "joint")], [NOTHING]
    sums, sizes = ([m for m in plan.measures if m.kind == kind] for kind in ("sum", "sizes"))
    items = [m for m in plan.measures if m.kind in ("items", "item_pairs")]
    exact = []
    for one in codes:
        tables = Tables(plan, bytes(32))
        tables.add(one, 0)
        exact.append(tables.counts)
    for i, measure in enumerate([*sums, *joined, *items, *sizes]):
        counts = [np.ravel(one[i]) for one in exact]
        mine, others = (np.asarray(count, dtype=np.int64) for count in counts)
        cells = np.flatnonzero(mine != others)
        noise = GaussianNoise(gaussian_table(measure.sigma2))
        law = count_law(noise, mine[cells], others[cells], math.ceil(reach * noise.variance**0.5))
        laws.append(law.merged())
    return reduce(lambda a, b: a.times(b).merged(), laws)


def counts_law(rows):
    """Law of the counts of outputs of independent rows, as an array over all outputs but the last."""
    n, size = len(rows), len(rows[0])
    law = np.zeros((n + 1,) * (size - 1))
    law[(0,) * (size - 1)] = 1.0
    for row in rows:
        moved = law * row[-1]
        for axis in range(size - 1):
            moved = moved + np.roll(law, 1, axis=axis) * row[axis]
        law = moved
    return law
