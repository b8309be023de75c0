"""Composition of pure columns beside exact enumeration and the dp-accounting library; sampling beside enumeration."""

from __future__ import annotations

import functools
import itertools
import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from dpframe.accounting import ColumnLoss, best_sample, composed_delta, composed_epsilon, sampled, unsampled
from dpframe.errors import ParameterError

PRECISE = Context(prec=60)


def parts_of(epsilons):
    """Columns of which no more is known than their loss: no blanket mass is as small."""
    return [ColumnLoss(e, math.exp(-e)) for e in epsilons]


def exponential(x):
    with localcontext(PRECISE):
        return Fraction(Decimal(x).exp())


def enumerated(epsilons, epsilon):
    """δ(ε) of randomised responses on two outcomes, all outcomes visited, in fractions."""
    factor, total = exponential(epsilon), Fraction(0)
    pairs = [(exponential(e) / (1 + exponential(e)), 1 / (1 + exponential(e))) for e in epsilons]
    for lies in itertools.product((0, 1), repeat=len(epsilons)):
        p = math.prod(pair[lie] for pair, lie in zip(pairs, lies, strict=True))
        q = math.prod(pair[1 - lie] for pair, lie in zip(pairs, lies, strict=True))
        total += max(Fraction(0), p - factor * q)
    return total


@pytest.mark.parametrize(
    "epsilons", [[1.0], [0.5] * 6, [0.1, 0.2, 0.4, 0.8], [0.123, 0.777, 1.3, 0.05, 2.2], [1e-6, 1.0], [3.0, 8.0]]
)
def test_beside_enumeration(epsilons):
    for share in (0.0, 0.1, 0.5, 0.9, 0.999):
        epsilon = share * sum(epsilons)
        truth, value = enumerated(epsilons, epsilon), composed_delta(parts_of(epsilons), epsilon)
        assert truth <= Fraction(value)
        assert value <= float(truth) * 1.002 + 1e-12
    assert composed_delta(parts_of(epsilons), math.fsum(epsilons) * (1 + 1e-15)) == 0


MIXTURES = {
    "fifteen equal": [0.4] * 15,
    "sixty equal": [0.1] * 60,
    "two kinds": [0.2] * 20 + [0.5] * 6,
    "fifteen different": [0.1 + 0.037 * i for i in range(15)],
    "sixty different": [0.02 + 0.0031 * i for i in range(60)],
    "one large": [3.0] + [0.05] * 25,
}


@pytest.mark.parametrize("name", MIXTURES)
def test_beside_dp_accounting(name):
    epsilons = MIXTURES[name]
    above, below = (
        functools.reduce(
            lambda one, other: one.compose(other),
            [
                # Its parameter is the probability of a uniform answer.
                pld.from_randomized_response(
                    2 / (1 + math.exp(e)), 2, pessimistic_estimate=pessimistic, value_discretization_interval=1e-4
                )
                for e in epsilons
            ],
        )
        for pessimistic in (True, False)
    )
    for delta in (1e-3, 1e-6):
        ours = composed_epsilon(parts_of(epsilons), delta)
        least, most = below.get_epsilon_for_delta(delta), above.get_epsilon_for_delta(delta)
        print(f"{name}, delta={delta}: oracle from {least:.6f} to {most:.6f}, ours {ours:.6f}")
        assert least * (1 - 1e-6) <= ours <= most * (1 + 1e-6)
    for epsilon in (0.3, 1.0, 2.0):
        ours = composed_delta(parts_of(epsilons), epsilon)
        assert ours >= below.get_delta_for_epsilon(epsilon) * (1 - 1e-6)
        assert ours <= above.get_delta_for_epsilon(epsilon) * (1 + 1e-6)


def answers(k, uniform):
    """Randomised response on k outcomes that answers uniformly with some probability, which is its blanket mass."""
    return ColumnLoss(math.log1p((1 - uniform) * k / uniform), uniform)


CATEGORIES = {
    "nine columns": [(k, 0.85) for k in (9, 16, 7, 15, 6, 5, 2, 42, 2)],
    "few outcomes": [(2, 0.9), (3, 0.7), (4, 0.8)] * 4,
    "one of many": [(1000, 0.95)] * 3 + [(2, 0.99)] * 20,
}


@pytest.mark.parametrize("name", CATEGORIES)
def test_many_outcomes_beside_dp_accounting(name):
    """A blanket's mass says how often nothing is learnt: for randomised response the law is exact."""
    parts = [answers(k, u) for k, u in CATEGORIES[name]]
    above, below = (
        functools.reduce(
            lambda one, other: one.compose(other),
            [
                pld.from_randomized_response(u, k, pessimistic_estimate=pessimistic, value_discretization_interval=1e-4)
                for k, u in CATEGORIES[name]
            ],
        )
        for pessimistic in (True, False)
    )
    for delta in (1e-3, 1e-6):
        ours = composed_epsilon(parts, delta)
        assert below.get_epsilon_for_delta(delta) * (1 - 1e-6) <= ours
        assert ours <= above.get_epsilon_for_delta(delta) * (1 + 1e-6)
    plain = composed_epsilon(parts_of([part.epsilon for part in parts]), 1e-6)
    assert composed_epsilon(parts, 1e-6) < plain


def test_less_blanket_is_never_better():
    for epsilon in (0.1, 1.0, 4.0):
        masses = np.linspace(math.exp(-epsilon), 1, 40)[:-1]
        found = [composed_delta([ColumnLoss(epsilon, float(m))] * 3, epsilon) for m in masses]
        assert all(a >= b * (1 - 1e-9) for a, b in itertools.pairwise(found))


def test_epsilon_is_certified_and_least():
    parts = parts_of([0.3, 0.5, 0.7, 0.2, 0.9])
    for delta in (1e-2, 1e-5, 1e-9):
        epsilon = composed_epsilon(parts, delta)
        assert composed_delta(parts, epsilon) <= delta < composed_delta(parts, epsilon * (1 - 1e-6))
    assert composed_epsilon(parts, 0.0) >= Fraction(3, 5) + Fraction(2)
    assert composed_epsilon(parts, 0.95) == 0.0
    assert composed_epsilon([], 1e-6) == 0.0


def test_large_losses_do_not_overflow():
    assert composed_delta(parts_of([400.0, 500.0]), 10.0) == pytest.approx(1)
    assert composed_epsilon(parts_of([400.0, 500.0]), 1e-9) == pytest.approx(900, rel=0.05)


def response(k, epsilon):
    e = math.exp(epsilon)
    return np.where(np.eye(k, dtype=bool), e, 1.0) / (e + k - 1)


def exact_sampled_delta(channel, n, m, epsilon, choices=itertools.permutations):
    """Greatest divergence when m of n rows are released, the choice (and the order, if permutations) secret."""
    inputs, worst = range(len(channel)), 0.0

    def law(table):
        rows = list(choices(range(n), m))
        outer = [np.array(1.0)] * len(rows)
        for i, chosen in enumerate(rows):
            for row in chosen:
                outer[i] = np.multiply.outer(outer[i], channel[table[row]])
        return sum(outer) / len(rows)

    for table in itertools.product(inputs, repeat=n):
        for x in inputs:
            gap = law(table) - math.exp(epsilon) * law((x, *table[1:]))
            worst = max(worst, float(np.maximum(gap, 0).sum()))
    return worst


@pytest.mark.parametrize(("n", "m", "k"), [(4, 1, 2), (4, 2, 2), (5, 1, 3), (4, 3, 2)])
def test_sampling_alone_is_covered_and_tight(n, m, k):
    channel, epsilon_1 = response(k, 1.3), 1.3
    epsilon, delta = sampled(epsilon_1, 0.0, m, n)
    assert delta == 0
    assert exact_sampled_delta(channel, n, m, epsilon) < 1e-15
    if m == 1:
        assert exact_sampled_delta(channel, n, m, epsilon * 0.99) > 1e-5
    local = max(0.0, channel[0, 0] - math.exp(0.6) * channel[1, 0])
    epsilon, delta = sampled(0.6, local * (1 + 1e-12), 1, n)
    assert exact_sampled_delta(channel, n, 1, epsilon) <= delta
    assert exact_sampled_delta(channel, n, 1, epsilon) == pytest.approx(delta, rel=1e-9)


def test_a_sample_in_the_order_of_the_table_is_not_covered():
    epsilon, _ = sampled(1.3, 0.0, 2, 4)
    assert exact_sampled_delta(response(2, 1.3), 4, 2, epsilon, itertools.combinations) > 0.02


@pytest.mark.parametrize("epsilon_1", [1e-30, 1e-12, 0.1, 1.0, 30.0, 2_000.0])
@pytest.mark.parametrize(("m", "n"), [(1, 3), (999, 1000), (1, 10**9), (7, 7)])
def test_sampling_is_rounded_outward(epsilon_1, m, n):
    epsilon, delta = sampled(epsilon_1, 1e-6, m, n)
    assert Fraction(delta) >= Fraction(1e-6) * Fraction(m, n)
    with localcontext(Context(prec=120)):
        exact = (1 + (Decimal(epsilon_1).exp() - 1) * m / n).ln()
        assert exact * (1 - Decimal("1e-80")) <= Decimal(epsilon) <= exact * (1 + Decimal("1e-15"))
        back, delta_back = unsampled(epsilon, delta, m, n)
        inverse = (1 + (Decimal(epsilon).exp() - 1) * n / m).ln()
        assert inverse * (1 - Decimal("1e-15")) <= Decimal(back) <= inverse * (1 + Decimal("1e-80"))
    assert delta_back == pytest.approx(1e-6, rel=1e-12)
    assert sampled(back, delta_back, m, n)[0] <= epsilon * (1 + 1e-15)


def test_unsampling_a_large_delta_stays_below_one():
    assert unsampled(1.0, 0.5, 1, 10)[1] < 1


def test_best_sample_follows_the_theorem():
    n, k = 1_000_000, 90_720
    assert best_sample(n, k, 0.5) == int(n * math.expm1(0.5) * (math.sqrt(k) + 1) / k**1.5)
    assert best_sample(n, 2, 1.0) == n
    assert best_sample(1, 10**9, 0.1) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sampled(1.0, 0.0, 3, 2), "m, the number of sampled rows, must be at most n"),
        (lambda: sampled(0.0, 0.0, 1, 2), "epsilon_1 must be finite and above 0"),
        (lambda: sampled(1.0, 1.0, 1, 2), r"delta_1 must lie in \[0, 1\)"),
        (lambda: unsampled(1.0, 0.0, 0, 2), "m must be a whole number of rows, at least 1"),
        (lambda: best_sample(10, 1, 1.0), "cells must be a whole number, at least 2"),
        (lambda: composed_delta([ColumnLoss(1.0, 0.5)], -1.0), "epsilon must be at least 0"),
        (lambda: composed_epsilon([ColumnLoss(1.0, 0.5)], 2.0), r"delta must lie in \[0, 1\)"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ParameterError, match=message):
        call()


def test_rows_in_table_order_would_break_the_bound_and_rows_in_rank_order_meet_it() -> None:
    """Theorem III.2 for n = 4, m = 2, three values at γ = 3.7: 1.0185 in table order beside the bound 0.8544."""
    gamma, n, m, values = 3.7, 4, 2, range(3)
    channel = np.full((3, 3), 1 / (gamma + 2)) + np.eye(3) * (gamma - 1) / (gamma + 2)

    def law(table: tuple[int, ...], draws: list[tuple[int, ...]]) -> np.ndarray:
        return sum(np.multiply.outer(channel[table[a]], channel[table[b]]) for a, b in draws) / len(draws)

    def worst(draws: list[tuple[int, ...]]) -> float:
        tables = itertools.product(values, repeat=n)
        pairs = [(t, (*t[:i], v, *t[i + 1 :])) for t in tables for i in range(n) for v in values]
        return max(float(np.log(law(one, draws) / law(other, draws)).max()) for one, other in pairs)

    assert worst(list(itertools.combinations(range(n), m))) == pytest.approx(1.0185, abs=5e-5)
    bound, _ = sampled(math.log(gamma), 0.0, m, n)
    assert bound == pytest.approx(0.8544, abs=5e-5)
    assert worst(list(itertools.permutations(range(n), m))) == pytest.approx(bound, rel=1e-9)
