"""Laws made of exponentials, compared exactly, and the sets of outputs that decide their loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import reduce
from itertools import permutations
from typing import Any


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
