"""What the accountant knows of sets, beside all pairs of inputs enumerated: in secret order, in known order, in blocks.

In known order the law must equal the exact loss; in secret order it must not be below the exact divergence of the
released multisets, and it must equal the blanket bound of the worst pair. Wrong laws are shown to fail each.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from dpframe.accounting import ColumnLoss, composed_delta, composed_epsilon, shuffled_delta
from dpframe.accounting.composition import row_law
from dpframe.accounting.dominating import (
    BinaryLaw,
    BitsLoss,
    DominatingLaw,
    IndependentLaw,
    ItemsLoss,
    factors,
)
from dpframe.accounting.secret_order import ShuffledRows, shuffled_profile
from dpframe.channels import MECHANISMS, RandomizedResponse
from dpframe.errors import ParameterError

FLIP, ASYMMETRIC = MECHANISMS["bitflip"], MECHANISMS["asymmetric_bitflip"]


def laws_of(mechanism):
    """P(y | x) for all sets within ``max_size``; larger ones are mixtures of these."""
    kept = [x for x in range(mechanism.size) if x.bit_count() <= mechanism.most]
    return np.array([mechanism.law(x) for x in kept])


def multisets_law(rows):
    """Law of the multiset of outputs of independent rows, by counting."""
    law = {(): 1.0}
    for row in rows:
        moved: Counter = Counter()
        for (key, mass), (y, p) in itertools.product(law.items(), enumerate(row)):
            moved[tuple(sorted((*key, y)))] += mass * p
        law = moved
    return law


def worst_divergence(channel, n, epsilon):
    worst, inputs = 0.0, range(len(channel))
    for others in itertools.combinations_with_replacement(inputs, n - 1):
        laws = [multisets_law([channel[x] for x in (*others, own)]) for own in inputs]
        table = np.array([[law[key] for key in laws[0]] for law in laws])
        for p, q in itertools.permutations(table, 2):
            worst = max(worst, float(np.maximum(p - math.exp(epsilon) * q, 0).sum()))
    return worst


SETS = [
    (FLIP(2, 1, 1.5), 5, 0.5),
    (FLIP(2, 1, 4.0), 4, 1.0),
    (FLIP(3, 1, 2.0), 3, 0.4),
    (FLIP(4, 2, 2.0), 2, 0.7),
    (FLIP(4, 2, 0.5), 2, 0.1),
    (FLIP(2, None, 2.0), 5, 0.5),
    (FLIP(3, 2, 3.0), 3, 1.0),
    (FLIP(3, None, 1.0), 3, 0.2),
    (ASYMMETRIC(2, 1, 2.0), 5, 0.5),
    (ASYMMETRIC(3, 1, 3.0), 3, 0.5),
    (ASYMMETRIC(4, 2, 2.0), 2, 0.5),
]


@pytest.mark.parametrize(("mechanism", "n", "epsilon"), SETS, ids=str)
def test_no_pair_of_tables_exceeds_the_bound(mechanism, n, epsilon):
    exact = worst_divergence(laws_of(mechanism), n, epsilon)
    part = mechanism.column_loss
    bound = shuffled_delta([part], n, epsilon).value
    coarse = shuffled_delta([ColumnLoss(mechanism.epsilon, mechanism.blanket)], n, epsilon).value
    print(f"{mechanism}, n={n}, epsilon={epsilon}: bound {bound:.6f}, exact {exact:.6f}, without the law {coarse:.6f}")
    assert 0 < exact <= bound <= coarse * (1 + 1e-6)


def test_nor_does_one_of_sets_beside_another_column():
    flip, response = FLIP(2, 1, 1.5), RandomizedResponse(2, 1.0)
    channel = np.kron(laws_of(flip), np.array([response.law(x) for x in (0, 1)]))
    parts = [flip.column_loss, response.column_loss]
    for epsilon in (0.2, 0.8, 1.6):
        exact = worst_divergence(channel, 3, epsilon)
        assert 0 < exact <= shuffled_delta(parts, 3, epsilon).value


# --- the blanket bound of all pairs -------------------------------------------------------------------
def blanket_mean(channel, blanket, x, other, n, epsilon):
    """E[(ΣT)₊]/n with T = A − e^ε·B, all outcomes visited; B is drawn from ``blanket``, or nothing is."""
    values = (channel[x] - math.exp(epsilon) * channel[other]) / blanket
    law = {0.0: 1.0}
    for _ in range(n):
        moved: Counter = Counter()
        for total, mass in law.items():
            moved[total] += mass * (1 - blanket.sum())
            for value, weight in zip(values, blanket, strict=True):
                moved[round(total + value, 9)] += mass * weight
        law = moved
    return sum(max(total, 0.0) * mass for total, mass in law.items()) / n


@pytest.mark.walk(2)
@pytest.mark.parametrize(
    "mechanism", [FLIP(4, 2, 2.5), FLIP(4, 1, 1.0), ASYMMETRIC(4, 2, 2.5), FLIP(5, 2, 3.0)], ids=str
)
@pytest.mark.parametrize(("n", "epsilon"), [(1, 0.3), (2, 0.6), (3, 0.2)])
def test_the_worst_pair_has_all_items_and_none_in_common(mechanism, n, epsilon):
    channel, part = laws_of(mechanism), mechanism.column_loss
    sizes = [x.bit_count() for x in range(mechanism.size) if x.bit_count() <= mechanism.most]
    kept = [x for x in range(mechanism.size) if x.bit_count() <= mechanism.most]
    blanket = part.blanket * channel[0]
    assert (blanket <= channel.min(axis=0) * (1 + 1e-12)).all()
    found = {
        (x, y): blanket_mean(channel, blanket, x, y, n, epsilon)
        for x, y in itertools.permutations(range(len(channel)), 2)
        if n < 3 or x < y  # half of the pairs is enough there
    }
    law = row_law((part,))
    t = law.a - math.exp(epsilon) * law.b
    own = law_mean(t, law.mass, n)
    worst = max(found, key=lambda pair: found[pair])
    assert sizes[worst[0]] == sizes[worst[1]] == mechanism.most
    assert not kept[worst[0]] & kept[worst[1]]
    assert found[worst] == pytest.approx(own, rel=1e-6)
    assert found[worst] <= shuffled_delta([part], n, epsilon).value * (1 + 1e-9) or n == 1


def law_mean(values, masses, n):
    law = Counter({0.0: 1.0})
    for _ in range(n):
        moved: Counter = Counter()
        for total, mass in law.items():
            moved[total] += mass * (1 - masses.sum())
            for value, weight in zip(values, masses, strict=True):
                moved[round(total + value, 9)] += mass * weight
        law = moved
    return sum(max(total, 0.0) * mass for total, mass in law.items()) / n


# --- in known order: the exact loss -------------------------------------------------------------------
@pytest.mark.parametrize(
    "mechanism",
    [FLIP(169, 8, 6.0), FLIP(20, None, 3.0), FLIP(20, 15, 3.0), FLIP(20, 10, 1.0), ASYMMETRIC(30, 4, 5.0)],
    ids=str,
)
def test_in_known_order_the_law_is_the_exact_loss(mechanism):
    part = mechanism.column_loss
    for epsilon in np.linspace(0, 0.95, 7) * mechanism.loss.pure():
        exact = mechanism.loss.delta(float(epsilon))
        assert exact * (1 - 1e-12) <= composed_delta([part], float(epsilon)) <= exact * (1 + 1e-6)


@dataclass(frozen=True)
class Comonotone(ItemsLoss):
    """Wrong: items that both sets hold are taken for the worst."""

    def _law(self, rate, blanket):
        return Together(rate, blanket)


@dataclass(frozen=True)
class Together(IndependentLaw):
    @property
    def enlarged(self):
        return self

    @property
    def differ(self):
        return IndependentLaw.differ.fget(self) / 2

    @property
    def both_mass(self):
        return IndependentLaw.both_mass.fget(self) + self.differ

    @property
    def equal_mass(self):
        return IndependentLaw.equal_mass.fget(self) + self.differ

    def power(self, count):
        return power(self, count)


def power(law, count):
    one, product = np.array([[law.equal_mass, law.differ], [law.differ, law.both_mass]]), np.ones((1, 1))
    for _ in range(count):
        grown = np.zeros((len(product) + 1, len(product) + 1))
        for i, j in itertools.product((0, 1), repeat=2):
            grown[i : i + len(product), j : j + len(product)] += product * one[i, j]
        product = grown
    return product


def wrong_laws(part):
    yield Comonotone(part.epsilon, part.blanket, part.count)
    yield ItemsLoss(part.epsilon, part.blanket, 2 * part.count)  # an item's loss over the diameter, not over the sets
    yield ItemsLoss(part.epsilon / 2, part.blanket**0.5, part.count)  # only one set's items
    yield BitsLoss(part.epsilon, 0.999, part.count)  # a blanket that is not shared


def test_wrong_laws_are_below_the_exact_loss():
    mechanism = FLIP(20, 3, 3.0)
    for wrong in wrong_laws(mechanism.column_loss):
        assert any(composed_delta([wrong], e) < 0.95 * mechanism.loss.delta(e) for e in (0.3, 1.0, 2.0))


def test_wrong_laws_are_below_the_worst_pair_in_secret_order():
    mechanism, n, epsilon = FLIP(4, 2, 2.5), 2, 0.6
    channel, part = laws_of(mechanism), mechanism.column_loss
    disjoint = [i for i, x in enumerate(x for x in range(16) if x.bit_count() <= 2) if x in (0b0011, 0b1100)]
    exact = blanket_mean(channel, part.blanket * channel[0], *disjoint, n, epsilon)
    for wrong in wrong_laws(part):
        law = row_law((wrong,))
        assert law_mean(law.a - math.exp(epsilon) * law.b, law.mass, n) < 0.98 * exact


# --- what is known from one side only, and in blocks --------------------------------------------------
@pytest.mark.parametrize("kind", [ItemsLoss, BitsLoss])
def test_a_law_gets_worse_with_its_loss_and_as_its_blanket_shrinks(kind):
    start = kind(3.0, 0.25, 5)
    for n, epsilon in ((1, 0.5), (50, 0.5), (10_000, 0.02)):
        value = shuffled_delta([start], n, epsilon).value
        for worse in (kind(3.3, 0.25, 5), kind(3.0, 0.23, 5), kind(3.0, 0.15, 5), kind(4.0, 0.1, 5)):
            assert shuffled_delta([worse], n, epsilon).value >= value * (1 - 1e-6)


@pytest.mark.parametrize("kind", [ItemsLoss, BitsLoss])
def test_blocks_are_above_their_items(kind):
    part = FLIP(600, 12, 4.0).column_loss if kind is ItemsLoss else FLIP(12, None, 4.0).column_loss
    assert type(part) is kind
    for most, epsilon in itertools.product((1, 3, 5, 6), (0.05, 0.2)):
        block = part.factors(most)[0]
        coarse = kind(
            block.rate * len(part.factors(most)), block.blanket ** len(part.factors(most)), len(part.factors(most))
        )
        assert shuffled_delta([coarse], 5_000, epsilon).value >= shuffled_delta([part], 5_000, epsilon).value
    assert len(part.factors(12)) == 12
    assert part.factors(1)[0].enlarged.blanket == pytest.approx(part.blanket)


def test_wide_sets_are_taken_in_few_blocks():
    parts = [FLIP(5_000, None, 3.0).column_loss, FLIP(9_000, 800, 3.0).column_loss, ColumnLoss(1.0, 0.6)]
    assert len(factors(parts, 200)) <= 200
    assert sum(law.rate for law in factors(parts, 200)) == pytest.approx(7.0, rel=0.02)
    assert 0 < shuffled_delta(parts, 10_000, 0.5).value < 1
    exact = FLIP(5_000, None, 3.0).loss
    coarse = ColumnLoss(exact.pure(), math.exp(-exact.pure()))
    assert exact.delta(0.2) <= composed_delta(parts[:1], 0.2) < 0.01 * composed_delta([coarse], 0.2)


def test_powers_are_products():
    for law in (
        BinaryLaw.of(0.3),
        DominatingLaw(0.3, 0.9),
        DominatingLaw(0.3, 0.9).enlarged,
        IndependentLaw(0.4, 0.85).enlarged,
    ):
        assert law.power(4) == pytest.approx(power(law, 4), rel=1e-13)


def test_a_law_has_mean_one():
    for law in (
        BinaryLaw.of(1.0),
        DominatingLaw(1.0, 0.6).enlarged,
        IndependentLaw(1.0, 0.7),
        IndependentLaw(1.0, 0.3).enlarged,
    ):
        ratio = math.exp(law.rate)
        assert law.differ * (ratio + 1) + law.equal_mass + law.both_mass * ratio == pytest.approx(1.0)
        assert 2 * law.differ + law.equal_mass + law.both_mass == pytest.approx(law.blanket)
        assert sum(law.ratio_masses) == pytest.approx(1.0)


def test_sets_cost_less_than_by_loss_and_blanket_alone():
    """Groceries: 169 items, at most 8, n = 9,835."""
    flip = FLIP(169, 8, 7.988)
    coarse = ColumnLoss(flip.loss.pure(), flip.blanket)
    assert shuffled_delta([flip.column_loss], 9_835, 1.0).value < 1.01e-6
    assert shuffled_delta([coarse], 9_835, 1.0).value > 1e-3
    profile = shuffled_profile([flip.column_loss], ShuffledRows(9_835))
    assert profile(1.0) == pytest.approx(shuffled_delta([flip.column_loss], 9_835, 1.0).value)
    assert composed_epsilon([flip.column_loss], 1e-6) < composed_epsilon([coarse], 1e-6)


def test_counts_are_whole_numbers():
    for count in (0, 1.5, True):
        with pytest.raises(ParameterError, match="count must be a whole number of"):
            ItemsLoss(1.0, 0.6, count)
