"""What private inference measures of neighbouring tables: exact counts, the noise it adds, and what a run tells."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpframe.accounting.budget import Budget
from dpframe.inference.categories import Items, Texts
from dpframe.inference.column import Presence
from dpframe.inference.cost import GaussianNoise, spend
from dpframe.inference.numbers import Numbers
from dpframe.inference.vectors import Lists
from dpframe.noise.gaussian import gaussian_table
from dpframe.noise.keystream import Keystream
from dpframe.spaces import Boolean
from dpframe.spaces.field import Field
from dpframe.totals.counts import Values

RUNS = 400_000
KEY = bytes(range(32))
BUDGET = Budget(1.0, 1e-5)
Counts = dict[bytes, int]


def counts_of(counter) -> Counts:
    """Exact counts by cell, as the counters of inference make them."""
    nulls, *cells = counter.counts.tolist()
    found = {b"%d" % i: count for i, count in enumerate(cells)}
    if isinstance(counter, Values):
        values, counts = counter.listed()
        found = dict(zip(values.to_pylist(), counts.tolist(), strict=True))
    return found | {b"null": nulls}


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
