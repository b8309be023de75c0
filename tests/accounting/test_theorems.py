"""The theorems that the library rests on, as tests in exact arithmetic, on all events where they are few.

Categorical paper: Holohan, Leith and Mason, "Differentially private response mechanisms on categorical data",
2015 (arXiv 1505.07254), Theorems 2, 3, 8, 10, Corollary 1 and Example 2. Metric-spaces paper: the same
authors, "Differential privacy in metric spaces: Numerical, categorical and functional data under the one roof",
2015, Lemma 3 with Theorem 5, and Theorems 6 and 7. A test without a number states a fact that is proved in its own
docstring or checked on every event.

e^ε is a rational number t wherever the statement allows it, so that every comparison is exact.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import reduce
from itertools import combinations, permutations, product

import numpy as np
import pytest
from exact_laws import ExpSum, exponential_columns, sufficient_sets
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from strategies import examples

from dpframe.accounting.finite import tight_delta, tight_epsilon
from dpframe.channels import Geometric, RandomizedResponse
from dpframe.plan.columns import Column
from dpframe.spaces import Categorical, Integer

Law = Sequence[Fraction]
Channel = Sequence[Law]


def subsets(items: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield the subsets that are not empty."""
    pool = tuple(items)
    for size in range(1, len(pool) + 1):
        yield from combinations(pool, size)


def holds_on(p: Law, q: Law, events: Iterable[tuple[int, ...]], t: Fraction, delta: Fraction) -> bool:
    """Tell whether P(A) ≤ t·P'(A) + δ for all the given events A."""
    return all(sum(p[y] for y in event) <= t * sum(q[y] for y in event) + delta for event in events)


def is_private(channel: Channel, t: Fraction, delta: Fraction, pairs: Iterable[tuple[int, int]] | None = None) -> bool:
    """Decide (ln t, δ)-privacy by the definition: every event, every ordered pair of neighbours."""
    chosen = permutations(range(len(channel)), 2) if pairs is None else pairs
    every = list(subsets(range(len(channel[0]))))
    return all(holds_on(channel[x], channel[z], every, t, delta) for x, z in chosen)


def is_private_by_sets(
    channel: Channel, t: Fraction, delta: Fraction, pairs: Iterable[tuple[int, int]] | None = None
) -> bool:
    """Decide it by the subsets of the sufficient sets alone (Theorem 2)."""
    sets = sufficient_sets(channel, pairs)
    return all(holds_on(channel[x], channel[z], subsets(s), t, delta) for (x, z), s in sets.items())


def tight(channel: Channel, t: Fraction, pairs: Iterable[tuple[int, int]] | None = None) -> Fraction:
    """Return the least δ by its definition: the largest P(A) − t·P'(A) over every event and pair."""
    chosen = permutations(range(len(channel)), 2) if pairs is None else pairs
    unit = math.lcm(t.denominator, *(p.denominator for law in channel for p in law)) ** 2
    every = [(), *subsets(range(len(channel[0])))]
    worst = 0
    for x, z in chosen:
        gains = [int((p - t * q) * unit) for p, q in zip(channel[x], channel[z], strict=True)]
        worst = max(worst, *(sum(map(gains.__getitem__, event)) for event in every))
    return Fraction(worst, unit)


def sanitised(channel: Channel, n: int) -> tuple[list[list[Fraction]], list[tuple[int, int]]]:
    """Return the product sanitisation of n rows, and its ordered neighbouring pairs."""
    rows = list(product(range(len(channel)), repeat=n))
    whole = [[math.prod(channel[x][y] for x, y in zip(d, out, strict=True)) for out in rows] for d in rows]
    near = [
        (i, j)
        for i, j in permutations(range(len(rows)), 2)
        if sum(a != b for a, b in zip(rows[i], rows[j], strict=True)) == 1
    ]
    return whole, near


def channels(inputs: int, outputs: int, least: int = 0) -> st.SearchStrategy[list[list[Fraction]]]:
    """Draw channels with small rational probabilities, ties and zeros among them."""
    law = st.lists(st.integers(least, 6), min_size=outputs, max_size=outputs).filter(any)
    return st.lists(law, min_size=inputs, max_size=inputs).map(
        lambda rows: [[Fraction(w, sum(row)) for w in row] for row in rows]
    )


FACTORS = st.fractions(1, 6, max_denominator=7)
DELTAS = st.just(Fraction(0)) | st.fractions(0, Fraction(8, 9), max_denominator=9)


# --- Theorem 2: sufficient sets -----------------------------------------------------------------------


@given(channels(3, 4), FACTORS, DELTAS)
def test_theorem_2_subsets_of_the_sufficient_sets_decide(channel: Channel, t: Fraction, delta: Fraction) -> None:
    """(ε, δ) holds on all events if and only if it holds on the subsets of {y: P(y|x) > P(y|x')}."""
    assert is_private(channel, t, delta) == is_private_by_sets(channel, t, delta)


@settings(max_examples=examples(50))
@given(channels(3, 4), FACTORS)
def test_the_boundary_itself_is_decided_rightly(channel: Channel, t: Fraction) -> None:
    """At the tight δ privacy holds, just below it does not."""
    delta = tight(channel, t)
    for decide in (is_private, is_private_by_sets):
        assert decide(channel, t, delta)
        assert delta == 0 or not decide(channel, t, delta * (1 - Fraction(1, 10**12)))


@given(channels(3, 4), FACTORS)
def test_one_event_of_each_pair_is_the_worst(channel: Channel, t: Fraction) -> None:
    """P(A) − t·P'(A) is largest on {y: P > t·P'}, a subset of the sufficient set; its size is Σ max(0, P − t·P')."""
    worst = Fraction(0)
    for (x, z), inside in sufficient_sets(channel).items():
        event = [y for y in range(len(channel[0])) if channel[x][y] > t * channel[z][y]]
        assert set(event) <= set(inside)
        worst = max(worst, sum((channel[x][y] - t * channel[z][y] for y in event), Fraction(0)))
    assert worst == tight(channel, t)


@given(channels(3, 4, least=1), st.sampled_from([0.0, 0.25, 1.0]))
def test_the_tight_delta_and_epsilon_are_the_librarys(channel: Channel, epsilon: float) -> None:
    total = math.lcm(*(p.denominator for law in channel for p in law))
    columns = [[int(p * total) for p in law] for law in channel]
    found = tight_delta(columns, total, epsilon)
    assert found == pytest.approx(float(tight(channel, Fraction(math.exp(epsilon)))), abs=1e-15)
    ratio = max(max(row) / min(row) for row in zip(*channel, strict=True))
    assert tight_epsilon(columns, total) == pytest.approx(math.log(ratio), abs=1e-15)


# --- Lemma 3 with Theorem 5 of the metric-spaces paper: products --------------------------------------


@settings(max_examples=examples(15))
@pytest.mark.parametrize("n", [2, 3])
@given(channels(2, 2), FACTORS)
def test_a_product_is_as_private_as_its_row(n: int, channel: Channel, t: Fraction) -> None:
    """The product sanitisation of n rows has the δ(ε) of its one-row mechanism, no more and no less: on all events."""
    whole, near = sanitised(channel, n)
    assert tight(whole, t, near) == tight(channel, t)


@settings(max_examples=examples(15))
@given(channels(3, 3), FACTORS)
def test_a_product_is_as_private_as_its_row_by_sufficient_sets(channel: Channel, t: Fraction) -> None:
    """The same for three values and two rows, whose 510 events the sufficient sets stand for."""
    whole, near = sanitised(channel, 2)
    delta = tight(channel, t)
    assert is_private_by_sets(whole, t, delta, near)
    assert delta == 0 or not is_private_by_sets(whole, t, delta * (1 - Fraction(1, 10**9)), near)


# --- Theorem 3, Corollary 1: partitions, for δ = 0 only -----------------------------------------------


def holds_on_blocks(channel: Channel, blocks: Iterable[Sequence[int]], t: Fraction, delta: Fraction) -> bool:
    """Tell whether P(A) ≤ t·P'(A) + δ for the subsets A of every block."""
    blocks = list(blocks)
    pairs = permutations(channel, 2)
    return all(holds_on(p, q, subsets(block), t, delta) for p, q in pairs for block in blocks)


def blocks_of(labels: Sequence[int]) -> list[list[int]]:
    """Return the partition of outputs by their labels."""
    return [[y for y, label in enumerate(labels) if label == k] for k in sorted(set(labels))]


@given(channels(3, 4), FACTORS, st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_theorem_3_and_corollary_1_a_partition_decides_without_delta(
    channel: Channel, t: Fraction, labels: list[int]
) -> None:
    """Pure privacy holds on all events if and only if it holds on the subsets of each block of any partition.

    An event is the disjoint union of its parts in the blocks, and with δ = 0 the inequalities add up.
    """
    pure = Fraction(0)
    assert is_private(channel, t, pure) == holds_on_blocks(channel, blocks_of(labels), t, pure)


@given(channels(3, 4), FACTORS)
def test_theorem_3_and_corollary_1_of_singletons_one_comparison_each(channel: Channel, t: Fraction) -> None:
    """The finest partition: pure privacy is P(y|x) ≤ e^ε·P(y|x') for every y."""
    pure = Fraction(0)
    assert is_private(channel, t, pure) == holds_on_blocks(channel, [[y] for y in range(4)], t, pure)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_partitions_do_not_decide_with_delta(size: int) -> None:
    """Disjoint laws, each uniform on five outputs: blocks of ``size`` outputs hold at δ = size/5, events not below 1.

    Every block may spend all of δ, so δ adds up over blocks: b blocks prove bδ and no less.
    """
    fifth, none = Fraction(1, 5), Fraction(0)
    channel = [[fifth] * 5 + [none] * 5, [none] * 5 + [fifth] * 5]
    blocks = [range(start, min(start + size, stop)) for stop in (5, 10) for start in range(stop - 5, stop, size)]
    delta = size * fifth
    assert holds_on_blocks(channel, blocks, Fraction(1), delta)
    assert tight(channel, Fraction(1)) == 1
    assert is_private(channel, Fraction(1), delta) == (size == 5)


@given(channels(3, 4), FACTORS, st.lists(st.integers(0, 3), min_size=4, max_size=4), DELTAS)
def test_blocks_prove_the_sum_of_their_deltas(
    channel: Channel, t: Fraction, labels: list[int], delta: Fraction
) -> None:
    blocks = blocks_of(labels)
    if holds_on_blocks(channel, blocks, t, delta):
        assert is_private(channel, t, len(blocks) * delta)


# --- Example 2 ----------------------------------------------------------------------------------------


def test_example_2_in_exact_arithmetic_and_in_floats() -> None:
    """Exponential mechanism on {0, 1, 2}, u = −|x−y|, two rows.

    510 events of 36 ordered neighbouring pairs are 18,360 checks; sufficient sets leave 24·7 + 12·63 = 924. The
    paper prints 21 pairs of 7 and 15 of 63, 1,092: so it comes out when every row's nine weights are
    divided by their sum in floats, added up one by one, which tell e⁻¹ from e⁻¹ in three pairs.
    """
    columns, _ = exponential_columns([[-abs(x - y) for y in range(3)] for x in range(3)])
    rows = list(product(range(3), repeat=2))
    both = [[columns[a][y] * columns[b][z] for y, z in rows] for a, b in rows]
    near = [(i, j) for i, j in permutations(range(9), 2) if sum(map(int.__ne__, rows[i], rows[j])) == 1]
    assert (2**9 - 2) * len(near) == 18_360

    def checks(laws: Sequence[Sequence[object]]) -> tuple[Counter[int], int]:
        sizes = Counter(2 ** len(s) - 1 for s in sufficient_sets(laws, near).values())
        return sizes, sum(size * count for size, count in sizes.items())

    assert checks(both) == (Counter({7: 24, 63: 12}), 924)
    weights = [[math.exp(-abs(a - y) - abs(b - z)) for y, z in rows] for a, b in rows]
    floats = [[weight / reduce(operator.add, law) for weight in law] for law in weights]  # `sum` compensates since 3.12
    assert checks(floats) == (Counter({7: 21, 63: 15}), 1_092)
    # The two computations differ in ties alone: no float is off by more than a rounding.
    exact_total = float(sum((p for p in both[0]), ExpSum({})))
    exact = np.array([[float(p) / exact_total for p in law] for law in both])
    assert np.abs(exact - np.array(floats)).max() < 1e-15


# --- The exponential mechanism ------------------------------------------------------------------------


def spread(scores: Sequence[Sequence[int]]) -> int:
    """Return Δu, the largest change of a score between two inputs."""
    return max(max(row) - min(row) for row in zip(*scores, strict=True))


def is_exponentially_private(scores: Sequence[Sequence[int]], epsilon: Fraction) -> bool:
    """Decide pure privacy of P(y|x) ∝ e^u(x, y) exactly: P(y|x) ≤ e^ε·P(y|x') in sums of exponentials."""
    columns, _ = exponential_columns(scores)
    factor = ExpSum({epsilon: 1})
    return not any(p > factor * q for row in zip(*columns, strict=True) for p, q in permutations(row, 2))


SCORES = st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=2, max_size=3)


@settings(max_examples=examples(40))
@given(SCORES)
def test_the_exponential_mechanism_is_within_twice_its_sensitivity(scores: list[list[int]]) -> None:
    """P ∝ e^u is 2Δu-private (McSherry and Talwar), as the normalisers differ by at most e^Δu."""
    assert is_exponentially_private(scores, Fraction(2 * spread(scores)))


@settings(max_examples=examples(40))
@given(st.lists(st.integers(-3, 3), min_size=3, max_size=4))
def test_half_of_it_suffices_where_normalisers_agree(first: list[int]) -> None:
    """Inputs whose scores are the same up to order have one normaliser, and the loss is Δu exactly."""
    scores = [first[i:] + first[:i] for i in range(len(first))]
    sensitivity = spread(scores)
    assert is_exponentially_private(scores, Fraction(sensitivity))
    assert sensitivity == 0 or not is_exponentially_private(scores, sensitivity - Fraction(1, 10**9))


@pytest.mark.parametrize("size", [2, 3, 5, 6])
def test_half_of_it_suffices_on_a_line(size: int) -> None:
    """u = −|x−y| on 0…m: normalisers differ, yet the two ends decide, and the loss is Δu = m, not 2m."""
    scores = [[-abs(x - y) for y in range(size)] for x in range(size)]
    assert is_exponentially_private(scores, Fraction(size - 1))
    assert not is_exponentially_private(scores, Fraction(size - 1) - Fraction(1, 10**9))


def test_twice_the_sensitivity_is_nearly_needed_by_some_scores() -> None:
    """One output of score 1 against many of score 0 and the reverse: unequal normalisers cost nearly 2Δu."""
    size = 9
    scores = [[8] + [0] * size, [0] + [8] * size]
    assert spread(scores) == 8
    assert not is_exponentially_private(scores, Fraction(10))
    assert is_exponentially_private(scores, Fraction(16))


# --- Theorem 8: randomised response -------------------------------------------------------------------


def response(m: int, p: Fraction) -> list[list[Fraction]]:
    """Return randomised response on m+1 values: each other value with probability p."""
    return [[1 - m * p if y == x else p for y in range(m + 1)] for x in range(m + 1)]


@given(st.integers(1, 4), st.fractions(0, 1, max_denominator=24), FACTORS, DELTAS)
def test_theorem_8(m: int, share: Fraction, t: Fraction, delta: Fraction) -> None:
    """Keeping is at least as likely as any other value: private if and only if 1 − pm ≤ e^ε·p + δ."""
    p = share / (m + 1)
    assert is_private(response(m, p), t, delta) == (1 - p * m <= t * p + delta)


@settings(max_examples=examples(50))
@given(st.integers(1, 4), FACTORS, DELTAS)
def test_theorem_8_with_equality(m: int, t: Fraction, delta: Fraction) -> None:
    """p = (1−δ)/(e^ε + m) is the least p that is private."""
    p = (1 - delta) / (t + m)
    assert tight(response(m, p), t) == delta
    assert not is_private(response(m, p * (1 - Fraction(1, 10**9))), t, delta)


@settings(max_examples=examples(50))
@given(st.integers(1, 4), st.fractions(0, 1, max_denominator=24), FACTORS)
def test_theorem_8_every_pair_has_the_same_delta(m: int, share: Fraction, t: Fraction) -> None:
    """By symmetry any single ordered pair decides, and its worst event is that x was kept."""
    p = share / (m + 1)
    channel = response(m, p)
    for x, z in permutations(range(m + 1), 2):
        assert tight(channel, t, [(x, z)]) == max(Fraction(0), 1 - p * m - t * p)
        assert sufficient_sets(channel, [(x, z)]) == {(x, z): () if share == 1 else (x,)}


# --- Theorem 10, and Theorems 6 and 7 of the metric-spaces paper: least errors ------------------------


def least_error(distance: np.ndarray, t: float, delta: float, pairs: Sequence[tuple[int, int]] | None = None) -> float:
    """Return the least max over x of E[ρ(Y, x)] of all (ln t, δ)-private channels, by a linear programme.

    ``pairs`` are the ordered neighbours, by default all. Variables: P(y|x), a bound s on (P − t·P')₊ for every ordered
    pair and output, and the error.
    """
    k = len(distance)
    pairs = list(permutations(range(k), 2)) if pairs is None else list(pairs)
    slack, error = k * k, k * k + len(pairs) * k
    rows, right = [], []
    for x in range(k):
        row = np.zeros(error + 1)
        row[x * k : (x + 1) * k], row[error] = distance[x], -1
        rows.append(row)
        right.append(0.0)
    for i, (x, z) in enumerate(pairs):
        sums = np.zeros(error + 1)
        for y in range(k):
            row = np.zeros(error + 1)
            row[x * k + y], row[z * k + y], row[slack + i * k + y] = 1, -t, -1
            sums[slack + i * k + y] = 1
            rows.append(row)
            right.append(0.0)
        rows.append(sums)
        right.append(delta)
    total = np.zeros((k, error + 1))
    for x in range(k):
        total[x, x * k : (x + 1) * k] = 1
    goal = np.zeros(error + 1)
    goal[error] = 1
    found = linprog(goal, A_ub=np.array(rows), b_ub=right, A_eq=total, b_eq=np.ones(k), method="highs")
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_theorem_10_no_channel_errs_less_than_response(m: int, epsilon: float, delta: float) -> None:
    """On the discrete metric the least worst error is m·p with p = (1−δ)/(e^ε + m): Theorem 7's bound as well."""
    t = math.exp(epsilon)
    p = (1 - delta) / (t + m)
    assert least_error(1 - np.eye(m + 1), t, delta) == pytest.approx(m * p, abs=1e-8)
    column = Column("a", Categorical(range(m + 1)), RandomizedResponse(m + 1, epsilon, delta))
    assert column.error_bound == pytest.approx(m * p, rel=1e-12)
    assert m * p <= column.expected_error <= m * p * (1 + 1e-4)


@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("m", [1, 3, 5])
def test_theorems_6_and_7_bound_every_channel_on_a_line(m: int, epsilon: float, delta: float) -> None:
    """No channel on 0…m errs less than either bound, by a linear programme over all of them; nor does ours."""
    codes = np.arange(m + 1)
    least = least_error(np.abs(codes[:, None] - codes).astype(float), math.exp(epsilon), delta)
    column = Column("a", Integer(0, m), Geometric(m, epsilon, delta))
    sixth, seventh = column.error_bounds
    assert max(sixth, seventh) <= least + 1e-8
    assert least <= column.expected_error + 1e-8
    assert sixth == pytest.approx((1 - delta) * m / (2 * (1 + math.exp(epsilon))))
    assert seventh == pytest.approx((1 - delta) * m / (m + math.exp(epsilon)))


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.3])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("m, n", [(1, 2), (1, 3), (2, 2)])
def test_theorem_7_for_tables_of_several_rows(m: int, n: int, epsilon: float, delta: float) -> None:
    """No channel on whole tables of n rows, a product or not, errs less in a row than its bound.

    With the other rows fixed, a row of the output is an (ε, δ)-private channel of that row. So the expected number
    of wrong rows is at least n times the bound of one row, averaged over all tables, and randomised response row
    by row meets it: its error is n·m·p.
    """
    t = math.exp(epsilon)
    rows = np.array(list(product(range(m + 1), repeat=n)))
    wrong = (rows[:, None, :] != rows[None, :, :]).sum(axis=2)
    near = [(int(x), int(z)) for x, z in zip(*np.nonzero(wrong == 1), strict=True)]
    bound = Column("a", Categorical(range(m + 1)), RandomizedResponse(m + 1, epsilon, delta)).error_bounds[1]
    assert bound == pytest.approx((1 - delta) * m / (m + t), rel=1e-12)
    assert least_error(wrong.astype(float), t, delta, near) == pytest.approx(n * bound, abs=1e-7)
    # The distance of tables as their worst row's is no smaller than one row's.
    assert least_error((wrong > 0).astype(float), t, delta, near) >= bound - 1e-8


@pytest.mark.parametrize("m, n", [(1, 3), (2, 2), (3, 2)])
def test_the_error_of_randomised_response_on_a_table_is_n_m_p(m: int, n: int) -> None:
    """Exactly, for every table: rows are wrong independently, each with probability m·p."""
    p = Fraction(1, 3 * (m + 1))
    whole, _ = sanitised(response(m, p), n)
    rows = list(product(range(m + 1), repeat=n))
    for law, table in zip(whole, rows, strict=True):
        assert sum(q * sum(map(int.__ne__, table, out)) for q, out in zip(law, rows, strict=True)) == n * m * p
