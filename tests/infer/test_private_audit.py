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
from audited_inference import (
    BASKETS,
    BUDGET,
    CASES,
    KEY,
    RUNS,
    Counts,
    counts_of,
    scores,
    spent,
    table_counts,
    with_scale,
)
from scipy.stats import beta

from dpframe.inference.categories import CutRows
from dpframe.inference.cost import GaussianNoise, Histogram
from dpframe.totals.counts import Values

pytestmark = pytest.mark.slow

ERROR = 1e-6
"""Error probability of every confidence bound; each audit takes some 80 of them."""


def lower(hits: int) -> float:
    """Clopper–Pearson."""
    return float(beta.ppf(ERROR, hits, RUNS - hits + 1)) if hits else 0.0


def upper(hits: int) -> float:
    return float(beta.isf(ERROR, hits + 1, RUNS - hits)) if hits < RUNS else 1.0


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
    noises, threshold = spent(task, [Histogram("values", 1, 1.0)])
    assert violation(table_counts(task, one), table_counts(task, other), noises, threshold) > 0.02


def test_the_audit_catches_baskets_that_are_not_cut():
    task, _, _ = CASES["another basket"]
    uncut = Values(CutRows(32, KEY))
    uncut.add(pa.array([[f"item{i}" for i in range(32)], *BASKETS]))
    other = Values(CutRows(32, KEY))
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
    assert 0 < sum(map(abs, change)) <= 2 * task.histograms[0].cells
