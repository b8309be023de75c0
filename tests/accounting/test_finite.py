"""Tight losses of finite channels against brute force over all events, and the ties that floats decide wrongly."""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import chain, combinations, permutations, product

import numpy as np
import pytest
from checks import exact_delta, exact_epsilon
from exact_laws import ExpSum, exponential_columns, sufficient_sets
from hypothesis import example, given
from hypothesis import strategies as st

from dpframe.accounting import finite
from dpframe.accounting.finite import FiniteLoss, tight_delta, tight_epsilon
from dpframe.accounting.loss import ResponseLoss
from dpframe.errors import ParameterError

Laws = tuple[list[list[int]], int]


def laws(least: int = 0) -> st.SearchStrategy[Laws]:
    """Return two to four laws over two to five outputs, as integers of one total."""
    shapes = st.tuples(st.integers(2, 4), st.integers(2, 5))
    weights = st.one_of(st.integers(least, 6), st.integers(least, 2**70))
    return shapes.flatmap(
        lambda shape: st.lists(st.lists(weights, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=4)
    ).map(to_one_total)


def to_one_total(rows: list[list[int]]) -> Laws:
    """Fill every law up to one total with its last output."""
    total = max(sum(row) for row in rows) + 1
    return [[*row[:-1], row[-1] + total - sum(row)] for row in rows], total


def events(outputs: int) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(combinations(range(outputs), size) for size in range(1, outputs)))


def by_all_events(columns: list[list[int]], total: int, epsilon: float) -> Fraction:
    """Return max over events and pairs of P(S) − e^ε·P'(S)."""
    with localcontext(Context(prec=90)):
        factor = Fraction(Decimal(epsilon).exp())
    return max(
        Fraction(0),
        *(
            Fraction(sum(p[y] for y in event), total) - factor * Fraction(sum(q[y] for y in event), total)
            for p in columns
            for q in columns
            for event in events(len(p))
        ),
    )


@given(laws(), st.floats(0, 6))
@example(([[3, 1], [3, 1]], 4), 0.0)
@example(([[1, 3], [3, 1]], 4), math.log(3))
def test_delta_is_that_of_the_worst_event(given_laws: Laws, epsilon: float) -> None:
    columns, total = given_laws
    worst = by_all_events(columns, total, epsilon)
    found = tight_delta(columns, total, epsilon)
    assert worst <= Fraction(found)
    # Rounded up by no more than one float.
    assert Fraction(math.nextafter(found, -1.0)) <= worst + Fraction(1, 10**60)


@given(laws(), st.sampled_from([0.0, 1e-12, 1e-3, 0.1, 0.5, 0.99]))
@example(([[2, 2], [1, 3]], 4), 0.25)
@example(([[0, 4], [1, 3]], 4), 0.25)
@example(([[0, 4], [1, 3]], 4), 0.2)
def test_epsilon_is_the_least_that_all_events_allow(given_laws: Laws, delta: float) -> None:
    columns, total = given_laws
    epsilon = tight_epsilon(columns, total, delta)
    mass = Fraction(delta)
    if math.isinf(epsilon):
        assert any(sum(a for a, b in zip(p, q, strict=True) if b == 0) > mass * total for p in columns for q in columns)
        return
    assert by_all_events(columns, total, epsilon) <= mass + Fraction(1, 10**60)
    if epsilon > 0:
        assert by_all_events(columns, total, math.nextafter(epsilon, 0) * (1 - 1e-12)) > mass


@given(laws(1))
def test_pure_loss_is_the_largest_ratio(given_laws: Laws) -> None:
    columns, total = given_laws
    exact = exact_epsilon(columns)
    found = tight_epsilon(columns, total)
    assert Decimal(found) >= exact
    assert found <= float(exact) * (1 + 1e-15) + 1e-300
    assert FiniteLoss(tuple(map(tuple, columns)), total).delta(found) == 0


def test_ties_among_many_pairs() -> None:
    """Randomised response has all pairs alike, and its closed form."""
    total, size = 1 << 64, 40
    other = total // (size + 60)
    columns = [[total - (size - 1) * other if x == y else other for y in range(size)] for x in range(size)]
    known = ResponseLoss(total - (size - 1) * other, other, total)
    for epsilon in (0.0, 0.5, 2.0):
        assert tight_delta(columns, total, epsilon) == known.delta(epsilon)
    assert tight_epsilon(columns, total) == known.epsilon()
    assert tight_epsilon(columns, total, 0.1) == pytest.approx(known.epsilon(0.1), rel=1e-14)


def test_what_floats_cannot_tell_apart_is_decided_in_integers() -> None:
    """Weights of 2^-80 beside 2^-80·(1 + 2^-70), and pairs whose δ differ in the 30th digit."""
    total = 1 << 220
    small, large = 1 << 140, (1 << 140) + (1 << 70)
    columns = [[small, total - small], [large, total - large]]
    assert tight_delta(columns, total, 0.0) == 2.0**-150
    assert 0 < tight_epsilon(columns, total) < 2.0**-69
    total = 10**40
    columns = [[10**39 + k, total - 10**39 - k] for k in (0, 3, 7)]
    assert Fraction(tight_delta(columns, total, 0.0)) >= Fraction(7, 10**40)
    assert tight_delta(columns, total, 0.0) == pytest.approx(7e-40, rel=1e-15)


def test_e_to_the_epsilon_has_all_its_digits() -> None:
    """A δ of 1e-40 is left of probabilities of 1e-10: e^ε needs some 30 digits more than a float's."""
    total, q = 10**60, 10**50
    with localcontext(Context(prec=80)):
        p = int(Decimal(1).exp() * q) + 10**20 + 1
    columns = [[p, total - p], [q, total - q]]
    exact = by_all_events(columns, total, 1.0)
    assert Fraction(1, 10**40) <= exact <= Fraction(2, 10**40)
    assert exact <= Fraction(tight_delta(columns, total, 1.0)) <= exact * (1 + Fraction(1, 10**15))


def test_infinite_losses_and_their_delta() -> None:
    columns = [[0, 6, 2], [2, 3, 3]]
    assert tight_epsilon(columns, 8) == math.inf
    assert tight_epsilon(columns, 8, 0.2) == math.inf
    # The first output is free at δ = 1/4, and the last adds (3/8)/(2/8).
    assert tight_epsilon(columns, 8, 0.25) == pytest.approx(math.log(1.5), rel=1e-15)
    assert tight_delta(columns, 8, 1e300) == 0.25
    assert FiniteLoss(((0, 6, 2), (2, 3, 3)), 8).pure() == math.inf


def test_one_input_loses_nothing() -> None:
    assert tight_delta([[1, 3]], 4, 0.0) == 0
    assert tight_epsilon([[1, 3]], 4) == tight_epsilon([[1, 3]], 4, 0.1) == 0


@pytest.mark.parametrize(
    ("columns", "total", "text"),
    [
        ([], 1, "at least one law"),
        ([[]], 1, "at least one"),
        ([[1, 1], [2]], 2, "same outputs; the one at position 1"),
        ([[1, 1], [3, -1]], 2, "sum to total; those at position 1"),
        ([[1, 1], [1, 2]], 2, "sum to total; those at position 1"),
        ([[0.5, 0.5]], 1, "columns must be integers"),
    ],
)
def test_refused_columns(columns: list[list[int]], total: int, text: str) -> None:
    for call in (lambda: tight_delta(columns, total, 1.0), lambda: tight_epsilon(columns, total)):
        with pytest.raises(ParameterError, match=re.escape(text)):
            call()


def test_refused_budgets() -> None:
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ParameterError, match="epsilon must be at least 0"):
            tight_delta([[1]], 1, epsilon)
    with pytest.raises(ParameterError, match="delta must lie in"):
        tight_epsilon([[1]], 1, 1.0)


def test_losses_are_values() -> None:
    loss = FiniteLoss(((3, 1), (1, 3)), 4)
    assert loss == FiniteLoss(columns=[[3, 1], [1, 3]], total=4)
    assert hash(loss) == hash(FiniteLoss(((3, 1), (1, 3)), 4))
    assert loss != FiniteLoss(((3, 1), (2, 2)), 4)


# --- sufficient sets, compared exactly ----------------------------------------------------------------


@given(laws(), st.floats(0.01, 3))
def test_subsets_of_sufficient_sets_decide(given_laws: Laws, epsilon: float) -> None:
    """Theorem 2: the worst of all events is the worst of the subsets of the sets where P > P'."""
    columns, total = given_laws
    with localcontext(Context(prec=90)):
        factor = Fraction(Decimal(epsilon).exp())
    worst = Fraction(0)
    for (x, z), outputs in sufficient_sets(columns).items():
        for size in range(1, len(outputs) + 1):
            for event in combinations(outputs, size):
                p, q = (Fraction(sum(columns[i][y] for y in event), total) for i in (x, z))
                worst = max(worst, p - factor * q)
    assert worst == max(Fraction(0), by_all_events(columns, total, epsilon))
    assert exact_delta(columns, total, epsilon) == worst


def fractions(given_laws: Laws) -> list[list[Fraction]]:
    return [[Fraction(w, given_laws[1]) for w in column] for column in given_laws[0]]


@given(laws(), st.floats(0.01, 3), st.booleans())
def test_the_public_sets_decide_delta_and_epsilon(given_laws: Laws, epsilon: float, some: bool) -> None:
    """Their subsets alone give the δ of all events, between neighbours, and at that δ no smaller ε passes them."""
    rows, neighbours = fractions(given_laws), [(1, 0)] if some else None
    found = finite.sufficient_sets(rows, neighbours)
    pairs = [(0, 1), (1, 0)] if some else list(permutations(range(len(rows)), 2))
    assert set(found.sets) == set(pairs)
    assert found.all_checks == len(pairs) * len(list(events(len(rows[0]))))

    def events_within(outputs: tuple[int, ...]) -> list[tuple[int, ...]]:
        return list(chain.from_iterable(combinations(outputs, r) for r in range(1, len(outputs) + 1)))

    def worst_at(epsilon: float) -> Fraction:
        with localcontext(Context(prec=90)):
            factor = Fraction(Decimal(epsilon).exp())
        parts = [
            sum(rows[x][y] for y in event) - factor * sum(rows[z][y] for y in event)
            for (x, z), outputs in found.sets.items()
            for event in events_within(outputs)
        ]
        return max([Fraction(0), *parts])

    assert found.checks == sum(len(events_within(outputs)) for outputs in found.sets.values())
    assert found.checks <= found.all_checks
    delta = finite.tight(rows, epsilon=epsilon, neighbours=neighbours)
    assert float(worst_at(epsilon)) == pytest.approx(delta, rel=1e-14, abs=1e-300)
    least = finite.tight(rows, delta=0.1, neighbours=neighbours)
    if 0 < least < math.inf:
        assert worst_at(least) <= Fraction(0.1) + Fraction(1, 10**60)
        assert worst_at(least * (1 - 1e-9)) > Fraction(0.1)


def test_example_2_takes_924_checks() -> None:
    """P ∝ a^|x−y| on {0, 1, 2}, two rows: 924 of 18,360 checks, for every a alike (the paper's is 1/e)."""
    a, rows = Fraction(3679, 10_000), list(product(range(3), repeat=2))
    weights = [[a ** abs(x - y) for y in range(3)] for x in range(3)]
    one = [[w / sum(law) for w in law] for law in weights]
    both = [[one[x][y] * one[z][w] for y, w in rows] for x, z in rows]
    near = [(i, j) for i, j in combinations(range(9), 2) if sum(map(int.__ne__, rows[i], rows[j])) == 1]
    found = finite.sufficient_sets(both, neighbours=near)
    assert found.sizes == {7: 24, 63: 12}
    assert (found.checks, found.all_checks) == (924, 18_360)
    # Floats decide ties by their rounding: the paper's own a in floats had 1,044.
    laws = np.exp(-np.abs(np.subtract.outer(range(3), range(3))))
    laws /= laws.sum(axis=1, keepdims=True)
    floats = [[laws[x][y] * laws[z][w] for y, w in rows] for x, z in rows]
    assert finite.sufficient_sets(floats, neighbours=near).checks == 924
    # Two that are further apart are no tie.
    apart = [[0.5 + 2.0**-39, 0.5 - 2.0**-39], [0.5, 0.5]]
    assert finite.sufficient_sets(apart).sets == {(0, 1): (0,), (1, 0): (1,)}
    # In either order, and once each.
    again = [pair[::-1] for pair in near]
    assert finite.sufficient_sets(both, neighbours=[*again, *near]).checks == 924
    assert finite.sufficient_sets([[1]], neighbours=[(0, 0)]).checks == finite.sufficient_sets([[1.0]]).all_checks == 0


def test_what_sufficient_sets_refuse() -> None:
    for neighbours in ([(0, 2)], [(0,)], [0, 1], [(0, 1.0)]):
        with pytest.raises(ParameterError, match=r"neighbours must be pairs.*0 to 1"):
            finite.sufficient_sets([[0.5, 0.5], [0.5, 0.5]], neighbours=neighbours)
    with pytest.raises(ParameterError, match=r"rows of probabilities that.*1;.*1 does not"):
        finite.sufficient_sets([[0.5, 0.5], [0.5, 0.4]])
    with pytest.raises(ParameterError, match="matrix must have a row for each input"):
        finite.sufficient_sets([[0.5, 0.5], [1.0]])


def test_sets_tell_neighbouring_integers_apart() -> None:
    """2^70 and 2^70 + 1 are one float."""
    big = 1 << 70
    assert sufficient_sets([[big + 1, big], [big, big + 1]]) == {(0, 1): (0,), (1, 0): (1,)}
    assert sufficient_sets([[big, big], [big, big]], [(0, 1)]) == {(0, 1): ()}


def test_sums_of_exponentials_compare_exactly() -> None:
    one, e = ExpSum({0: 1}), ExpSum({1: 1})
    inverse = ExpSum({-1: 1})
    assert e * inverse == one
    assert not e * inverse > one
    assert not e * inverse < one
    assert (e - e).sign() == 0
    assert (one + inverse) * (one - inverse) == one - inverse * inverse
    # e^π-like near ties: e against its convergent 1457/536, and its 30th convergent.
    assert e > ExpSum({0: Fraction(1264, 465)})
    assert e < ExpSum({0: Fraction(1457, 536)})
    with localcontext(Context(prec=120)):
        near = Fraction(Decimal(1).exp())
    below, above = (ExpSum({0: near + shift}) for shift in (-Fraction(1, 10**110), Fraction(1, 10**110)))
    assert below < e < above
    assert float(e) == math.e
    assert hash(e * inverse) == hash(one)
    assert (e == 2.718281828) is False
    assert repr(e - one) == "ExpSum({0: -1, 1: 1})"


def test_exponential_laws_sum_to_their_total() -> None:
    columns, total = exponential_columns([[0, -Fraction(1, 2), -2], [-1, 0, -3], [0, -2, -Fraction(1, 2)]])
    for column in columns:
        assert column[0] + column[1] + column[2] == total
    assert float(columns[1][1]) / float(total) == pytest.approx(1 / (1 + math.exp(-1) + math.exp(-3)))
