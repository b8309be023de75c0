"""An audit of what inference measures, on neighbouring tables: the counts it makes of them, with noise, 4·10^5 times.

The events are the sharpest there are: half-lines of the log-likelihood ratio of the noisy counts that the plan
keeps, and that a value shows which one table lacks. Everything else in a plan is made of these. A promise that
is kept fails an audit with probability below 1e-4 for a random key; the key is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import beta

from dpframe.accounting.budget import Budget
from dpframe.infer.categories import Items, Texts, _Rows, _Values
from dpframe.infer.column import Presence, _Nulls
from dpframe.infer.cost import GaussianNoise, Histogram, spend
from dpframe.infer.numbers import Numbers, _InCells
from dpframe.infer.vectors import Lists, _Lengths, _Norms
from dpframe.noise.gaussian import gaussian_table
from dpframe.noise.keystream import Keystream
from dpframe.spaces import Boolean
from dpframe.spaces.field import Field

pytestmark = pytest.mark.once

RUNS = 400_000
KEY = bytes(range(32))
BUDGET = Budget(1.0, 1e-5)
ERROR = 1e-6
"""Error probability of every confidence bound; each audit takes some 80 of them."""


def lower(hits: int) -> float:
    """Clopper–Pearson."""
    return float(beta.ppf(ERROR, hits, RUNS - hits + 1)) if hits else 0.0


def upper(hits: int) -> float:
    return float(beta.isf(ERROR, hits + 1, RUNS - hits)) if hits < RUNS else 1.0


Counts = dict[bytes, int]


def counts_of(counter) -> Counts:
    """Exact counts by cell, as the counters of inference make them."""
    if isinstance(counter, _Values):
        values, counts = counter.counts()
        found = dict(zip(values.to_pylist(), counts.tolist(), strict=True))
    elif isinstance(counter, _InCells | _Lengths | _Norms):
        found = {b"%d" % i: count for i, count in enumerate(counter.counts.tolist())}
    else:
        assert isinstance(counter, _Nulls)
        return {b"null": counter.count}
    return found | {b"null": counter.nulls if hasattr(counter, "nulls") else 0}


def table_counts(task, array: pa.Array) -> Counts:
    counter = task.counter()
    counter.add(array)
    return counts_of(counter)


def scores(table: Counts, one: Counts, other: Counts, noises, threshold: int, name: str) -> np.ndarray:
    """Log-likelihood ratio of runs on a table; infinite where a value shows that one of the two lacks."""
    total = np.zeros(RUNS)
    for r, noise in enumerate(noises):
        for i, cell in enumerate(sorted(one.keys() | other.keys())):
            if one.get(cell) == other.get(cell) or cell not in table:
                continue
            stream = Keystream(KEY).column(f"{name}-{r}-{i}", "infer")
            noisy = noise.add(np.full(RUNS, table[cell]), stream)
            if cell in one and cell in other:
                # With a threshold, counts below it are not seen; seeing them only helps the attacker.
                step = one[cell] - other[cell]
                total += step * (noisy - (one[cell] + other[cell]) / 2) / noise.variance
            else:
                total[noisy >= threshold] = np.inf if cell in one else -np.inf
    return total


def violation(one: Counts, other: Counts, noises: Sequence[GaussianNoise], threshold: int = 0) -> float:
    """The largest certain excess of P(A) over e^ε·P'(A) + δ; above 0 the promise is false."""
    first = scores(one, one, other, noises, threshold, "one")
    second = scores(other, one, other, noises, threshold, "other")
    worst = -1.0
    for p, q in ((first, second), (-second, -first)):
        for level in (*np.linspace(-1, 6, 40), 1e300):
            sure = lower(int((p > level).sum())) - np.exp(BUDGET.epsilon) * upper(int((q > level).sum()))
            worst = max(worst, sure - BUDGET.delta)
    return worst


def with_scale(noises, factor: float):
    return [GaussianNoise(gaussian_table(max(0.25, noise.variance * factor**2))) for noise in noises]


AGES = [*range(20, 60)] * 20
BASKETS = [[f"item{i % 80}", f"item{i % 7}"] for i in range(400)]

CURVES = [[i / 100, 0.5] for i in range(400)]


def found_length(task: Lists, length: int) -> Lists:
    """A task that is asked for norms next."""
    task.length = length
    return task


CASES = {
    "an extreme outlier": (
        Numbers(Field("x", pa.float64(), False), 800),
        pa.array([50.0, *AGES], pa.float64()),
        pa.array([-1e300, *AGES], pa.float64()),
    ),
    "a curve of another norm": (
        found_length(Lists(Field("x", pa.list_(pa.float64()), True), 800), 2),
        pa.array([[0.5, 0.5], *CURVES]),
        pa.array([[1e300, 0.5], *CURVES]),
    ),
    "a curve of another length": (
        Lists(Field("x", pa.list_(pa.float64()), True), 800),
        pa.array([[0.5, 0.5], *CURVES]),
        pa.array([[0.5, 0.5, 0.5], *CURVES]),
    ),
    "a unique category": (
        Texts(Field("x", pa.string(), False)),
        pa.array(["a", *["a", "b"] * 400]),
        pa.array(["swordfish", *["a", "b"] * 400]),
    ),
    "a basket of 32": (
        Items(Field("x", pa.list_(pa.string()), False), 8, KEY),
        pa.array([[f"item{i}" for i in range(32)], *BASKETS]),
        pa.array([[f"new{i}" for i in range(32)], *BASKETS]),
    ),
    "another basket": (
        Items(Field("x", pa.list_(pa.string()), False), 8, KEY),
        pa.array([[f"item{i}" for i in range(8)], *BASKETS]),
        pa.array([[f"item{i}" for i in range(20, 28)], *BASKETS]),
    ),
    "a single null": (
        Numbers(Field("x", pa.int64(), True), 800),
        pa.array([None, *AGES], pa.int64()),
        pa.array([50, *AGES], pa.int64()),
    ),
    "a null in a flag": (
        Presence(Field("x", pa.bool_(), True), Boolean()),
        pa.array([None, *[True] * 99]),
        pa.array([False, *[True] * 99]),
    ),
}


def spent(task, histograms=None):
    asked = task.histograms if histograms is None else histograms
    spending = spend(BUDGET, asked, 800)
    return spending.noises, max(spending.thresholds)


@pytest.mark.parametrize("case", CASES)
def test_plans_of_neighbours_differ_by_no_more_than_is_spent(case):
    task, one, other = CASES[case]
    one, other = table_counts(task, one), table_counts(task, other)
    assert one != other
    noises, threshold = spent(task)
    assert violation(one, other, noises, threshold) <= 0


@pytest.mark.parametrize("case", ["an extreme outlier", "another basket", "a single null"])
def test_the_audit_catches_noise_of_half_the_scale(case):
    task, one, other = CASES[case]
    noises, threshold = spent(task)
    assert violation(table_counts(task, one), table_counts(task, other), with_scale(noises, 0.5), threshold) > 0


def test_the_audit_catches_a_basket_that_counts_as_one_change():
    task, one, other = CASES["another basket"]
    noises, threshold = spent(task, [Histogram(1, 1.0, unknown=True)])
    assert violation(table_counts(task, one), table_counts(task, other), noises, threshold) > 0.02


def test_the_audit_catches_baskets_that_are_not_cut():
    task, _, _ = CASES["another basket"]
    uncut = _Rows(32, KEY)
    uncut.add(pa.array([[f"item{i}" for i in range(32)], *BASKETS]))
    other = _Rows(32, KEY)
    other.add(pa.array([[f"item{i}" for i in range(40, 72)], *BASKETS]))
    noises, threshold = spent(task)
    assert violation(counts_of(uncut), counts_of(other), noises, threshold) > 0


def test_the_audit_catches_a_threshold_that_is_too_low():
    task, one, other = CASES["a unique category"]
    noises, threshold = spent(task)
    low = round(2.5 * noises[0].variance ** 0.5)
    assert low < threshold
    assert violation(table_counts(task, one), table_counts(task, other), noises, low) > 0


@pytest.mark.parametrize("case", CASES)
def test_one_row_changes_no_more_counts_than_the_price_assumes(case):
    """ℓ2² of the difference, over cells that both or one of the tables have."""
    task, one, other = CASES[case]
    one, other = table_counts(task, one), table_counts(task, other)
    change = [one.get(cell, 0) - other.get(cell, 0) for cell in one.keys() | other.keys()]
    assert set(change) <= {-1, 0, 1}
    assert 0 < sum(map(abs, change)) <= task.histograms[0].changes(1)
