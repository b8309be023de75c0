"""Inference by brute force: the law of all its rounds on two neighbouring tables, summed, beside what is claimed.

Rounds are asked as the library decides on the noisy counts of those before, noise has the law of the tables that it is
drawn from, and what far outcomes hold counts against the claim. The profile is compared at several ε, not at one.
Run with ``-s`` to see claims beside exact values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from exact_laws import Inferring, Pair

from dpframe.accounting.discrete_gaussian import IntegerNoise, noise_step
from dpframe.accounting.gaussian_dp import Step, step_delta
from dpframe.inference.categories import CutRows, Items, Texts
from dpframe.inference.column import Task
from dpframe.inference.cost import Histogram, Spending, spend
from dpframe.inference.numbers import Numbers, Times
from dpframe.inference.objects import Objects
from dpframe.inference.vectors import Lists
from dpframe.inference.words import NumbersAndWords, read_words
from dpframe.spaces.field import Field
from dpframe.spaces.object_reading import read_as
from dpframe.totals.counts import Cells, Values

EPSILONS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
KEY = bytes(range(32))
SHORT, VECTOR, VECTORS = pa.uint16(), pa.list_(pa.float64(), 2), pa.list_(pa.float64())
TEXTS = pa.list_(pa.string())
MOST = Step(3.0, 1e-4)
"""As much as inference takes: with less, nothing is found in so few rows, and rounds decide nothing."""


def numbers(n: int, nullable: bool = False, rounds: int = 3) -> Numbers:
    return Numbers(Field("x", SHORT, nullable), n, rounds)


def sets(cap: int) -> Items:
    return Items(Field("x", TEXTS, False), cap, KEY)


@dataclass(frozen=True)
class Case:
    """Neighbouring tables of one column, how far noise is enumerated in each round, and what may be spent."""

    task: Task
    one: Any
    other: Any
    reaches: tuple[int, ...]
    allowed: Step = MOST

    @property
    def spending(self) -> Spending:
        return spend(self.allowed, self.task.histograms, len(self.one))

    def law(self, seed: int = 0, spending: Spending | None = None, task: Task | None = None) -> Pair:
        return Inferring(task or self.task, (self.one, self.other), spending or self.spending, self.reaches, seed).law()


CASES = {
    "a neighbour that the first grid does not tell apart": Case(
        numbers(5), pa.array([6] * 5, SHORT), pa.array([6] * 4 + [7], SHORT), (3, 3, 3)
    ),
    "a null": Case(numbers(5, True), pa.array([6] * 5, SHORT), pa.array([6] * 4 + [None], SHORT), (3, 3, 3)),
    "an only round": Case(
        numbers(5, rounds=1), pa.array([6] * 5, SHORT), pa.array([6] * 4 + [900], SHORT), (6,), Step(2.0, 1e-4)
    ),
    "two rounds": Case(numbers(5, True, rounds=2), pa.array([6] * 5, SHORT), pa.array([6] * 4 + [None], SHORT), (4, 4)),
    "a later day": Case(
        Times(Field("x", pa.date32(), False), 6),
        pa.array([9000] * 6, pa.date32()),
        pa.array([9000] * 5 + [10_000], pa.date32()),
        (3, 3, 3),
    ),
    "two rows": Case(
        Lists(Field("x", VECTOR, False), 2),
        pa.array([[3.0, 4.0], [3.0, 4.0]], VECTOR),
        pa.array([[3.0, 4.0], [1e-3, 1e-3]], VECTOR),
        (3, 3),
    ),
    "another norm": Case(
        Lists(Field("x", VECTOR, False), 6),
        pa.array([[3.0, 4.0]] * 6, VECTOR),
        pa.array([[3.0, 4.0]] * 5 + [[300.0, 0.0]], VECTOR),
        (3, 3),
    ),
    "another norm, with more noise": Case(
        Lists(Field("x", VECTOR, False), 6),
        pa.array([[3.0, 4.0]] * 6, VECTOR),
        pa.array([[3.0, 4.0]] * 5 + [[300.0, 0.0]], VECTOR),
        (10, 9),
        Step(1.5, 1e-4),
    ),
    "no vector": Case(
        Lists(Field("x", VECTOR, True), 6),
        pa.array([[3.0, 4.0]] * 6, VECTOR),
        pa.array([[3.0, 4.0]] * 5 + [[3.0, None]], VECTOR),
        (3, 3),
    ),
    "another length": Case(
        Lists(Field("x", VECTORS, True), 12),
        pa.array([[3.0, 4.0]] * 12, VECTORS),
        pa.array([[3.0, 4.0]] * 11 + [[300.0]], VECTORS),
        (5, 3, 3),
    ),
    "objects of another kind": Case(
        Objects(Field("x", pa.null(), True), 6, 2, KEY), [6] * 6, [6] * 5 + ["a"], (5, 2, 2, 2), Step(3.0, 0.01)
    ),
    "a word among numbers": Case(
        NumbersAndWords(Field("x", pa.int64(), True), 6),
        read_words(read_as, pa.int64(), [6] * 4 + ["a"] * 2),
        read_words(read_as, pa.int64(), [6] * 4 + ["a", 7]),
        (4, 3, 3),
        Step(3.0, 0.05),
    ),
    "a word of its own among numbers": Case(
        NumbersAndWords(Field("x", pa.int64(), True), 6),
        read_words(read_as, pa.int64(), [6] * 5 + ["a"]),
        read_words(read_as, pa.int64(), [6] * 5 + ["b"]),
        (6, 3, 3),
        Step(3.0, 0.05),
    ),
    "objects with words": Case(
        Objects(Field("x", pa.null(), True), 6, 2, KEY),
        [6] * 4 + ["a"] * 2,
        [6] * 5 + ["a"],
        (5, 3, 2, 2),
        Step(3.0, 0.05),
    ),
    "a text of its own": Case(
        Texts(Field("x", pa.string(), False)),
        pa.array(["a"] * 5 + ["b"]),
        pa.array(["a"] * 5 + ["c"]),
        (6,),
        Step(3.0, 0.05),
    ),
    "a text that others have": Case(
        Texts(Field("x", pa.string(), True)),
        pa.array(["a"] * 3 + ["b"] * 3),
        pa.array(["a"] * 4 + ["b"] * 2),
        (6,),
        Step(3.0, 0.2),
    ),
    "items of its own": Case(
        sets(2),
        pa.array([["a", "b"]] * 5 + [["a", "b"]], TEXTS),
        pa.array([["a", "b"]] * 5 + [["c", "d"]], TEXTS),
        (3,),
        Step(3.0, 0.05),
    ),
    "items that others have": Case(
        sets(2),
        pa.array([["a", "b"]] * 5 + [["c", "d"]] * 5, TEXTS),
        pa.array([["a", "b"]] * 4 + [["c", "d"]] * 6, TEXTS),
        (3,),
        Step(3.0, 0.05),
    ),
    "a larger set, cut": Case(
        sets(2),
        pa.array([["a", "b"]] * 5 + [[]], TEXTS),
        pa.array([["a", "b"]] * 5 + [["a", "b", "c", "d", "e"]], TEXTS),
        (3,),
        Step(3.0, 0.05),
    ),
}

FAR = Case(numbers(5), pa.array([6] * 5, SHORT), pa.array([6] * 4 + [40_000], SHORT), (3, 3, 3))
"""Apart from the first grid on: every round's outcomes are gone through, 64 and 4,096 of the rounds that decide."""


def shown(name: str, law: Pair, claim: Step) -> None:
    print(f"\n{name}: claimed mu={claim.mu:.4f}, slack={claim.delta:.3g}; left out {law.left_out:.1e}")
    for epsilon in EPSILONS:
        print(f"  epsilon={epsilon:3.1f}  exact {law.most(epsilon):.6f}  claimed {step_delta(claim, epsilon):.6f}")


def excess(law: Pair, claim: Step) -> float:
    """The most by which the profile certainly exceeds a claim; above 0 the claim is false."""
    return max(law.least(epsilon) - step_delta(claim, epsilon) for epsilon in EPSILONS)


def keeps(law: Pair, claim: Step) -> bool:
    return all(law.most(epsilon) <= step_delta(claim, epsilon) for epsilon in EPSILONS)


@pytest.mark.walk(2)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_all_rounds_of_an_inference_keep_its_claim(case, seed):
    claim = CASES[case].spending.step
    law = CASES[case].law(seed)
    shown(case, law, claim)
    assert law.least(0.0) > 0
    assert keeps(law, claim)


@pytest.mark.slow
def test_all_rounds_keep_their_claim_where_each_of_them_tells_the_tables_apart():
    law, claim = FAR.law(), FAR.spending.step
    shown("an outlier", law, claim)
    assert keeps(law, claim)
    assert law.least(0.0) > 0.98 * step_delta(claim, 0.0)


def for_one_count(case: Case) -> Step:
    """What the same noise would cost if one row changed one count of a histogram."""
    noises = [noise for noise, h in zip(case.spending.noises, case.task.histograms, strict=True) if h.branch is None]
    return noise_step([IntegerNoise(noise.variance, 1) for noise in noises], 1, 1e-7)


@pytest.mark.walk(2)
@pytest.mark.parametrize(
    "case", ["a null", "another norm", "another norm, with more noise", "no vector", "another length"]
)
def test_a_claim_for_one_changed_count_is_caught(case):
    assert excess(CASES[case].law(), for_one_count(CASES[case])) > 0.02


def touching_twice(counter: Cells) -> Cells:
    """A counter that counts every row in the cell after the next one too, and nulls once."""

    def twice(values):
        counts = counter.of(values)
        counts[3:] += counts[1:-2].copy()
        return counts

    return replace(counter, of=twice)


class TwiceRefined(Numbers):
    """A column of numbers whose second and third pass have cells that overlap: a row is in two of them."""

    def counter(self):
        counter = super().counter()
        return touching_twice(counter) if self.rounds else counter


class TwiceNormed(Lists):
    """Vectors whose second pass of norms has cells that overlap."""

    def counter(self):
        counter = super().counter()
        return touching_twice(counter) if self.rounds else counter


@pytest.mark.parametrize(
    ("case", "broken"),
    [
        ("a null", TwiceRefined(Field("x", SHORT, True), 5)),
        ("another norm", TwiceNormed(Field("x", VECTOR, False), 6)),
    ],
)
@pytest.mark.slow
def test_a_pass_whose_cells_a_row_is_in_twice_is_caught(case, broken):
    near = replace(CASES[case], reaches=tuple(2 for _ in CASES[case].reaches))
    assert excess(near.law(), near.spending.step) < 0
    assert excess(near.law(task=broken), near.spending.step) > 0


@pytest.mark.slow
def test_sets_that_are_charged_as_one_item_are_caught():
    case = CASES["items that others have"]
    cheap = spend(case.allowed, [Histogram("values", 1, 1.0)], len(case.one))
    assert excess(case.law(spending=cheap), cheap.step) > 0


class Uncut(Items):
    def counter(self):
        return Values(CutRows(4, self.key))


@pytest.mark.slow
def test_sets_that_are_not_cut_are_caught():
    rows = [["a", "b", "c"]] * 9
    one, other = pa.array([[], *rows], TEXTS), pa.array([["a", "b", "c"], *rows], TEXTS)
    case = Case(Uncut(Field("x", TEXTS, False), 1, KEY), one, other, (4,))
    assert excess(case.law(), case.spending.step) > 0


@pytest.mark.slow
@pytest.mark.parametrize("case", ["a text of its own", "a word of its own among numbers", "items of its own"])
def test_a_threshold_that_is_too_low_is_caught(case):
    right = CASES[case].spending
    low = Spending(right.histograms, right.noises, tuple(t - 2 * (t > 0) for t in right.thresholds), right.step)
    law = CASES[case].law(spending=low)
    assert law.least(8.0) > right.step.delta
