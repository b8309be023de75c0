"""The table of audits: what is claimed, and the ε that black-box attacks prove to be lost, at the same δ.

`pytest -n 0 -s tests/accounting/test_audit_table.py -k table` prints it. Every bound holds with confidence 1 − 1e-6,
and keys are fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from audited_inference import BASKETS, BUDGET, counts_of, scores, spent, table_counts, with_scale
from audited_inference import CASES as NEIGHBOURS
from audited_inference import RUNS as INFERENCES
from audited_releases import CASES, DELTA, EPSILON, KEYS, SHARE, counted, made, sampler
from audited_wishart import audited
from audits import drawn, far_apart, leaky, nulls_in_place, released, seen, two_columns, without_tails
from examples import plans_with

from dpframe.accounting.audit import AuditResult, audit
from dpframe.accounting.budget import Budget
from dpframe.channels import MECHANISMS, Geometric, RandomizedResponse, WithNull
from dpframe.channels.process import Process
from dpframe.inference.categories import CutRows
from dpframe.inference.cost import Histogram
from dpframe.totals.answers import Portion
from dpframe.totals.counts import Values
from dpframe.totals.wishart import WishartNoise

pytestmark = pytest.mark.slow

RUNS = 50_000
RELEASES = 100_000


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    what: str
    epsilon: float
    found: AuditResult

    def __str__(self) -> str:
        return f"{self.what:<72} {self.epsilon:>8.3g} {self.found.delta:>8.3g} {self.found.epsilon_lower:>10.3f}"


def strongest(lines: Iterator[Line]) -> Line:
    """Return the line whose attack comes nearest to its claim, or beyond it."""
    return max(lines, key=lambda line: line.found.epsilon_lower / line.epsilon)


def mechanisms(delta: float) -> Iterator[Line]:
    """Yield every mechanism of the registry, on whichever of its spaces is attacked best."""
    for tag in sorted(MECHANISMS):
        if delta or not MECHANISMS[tag].takes_delta:
            yield strongest(_attacks(tag, delta))


def _attacks(tag: str, delta: float) -> Iterator[Line]:
    for plan in plans_with(tag, 2.0, delta):
        (unit,) = plan.units
        for pair in far_apart(unit.space):
            view = seen(unit.space, pair, 2 if isinstance(unit.mechanism.inner, Process) else 1)
            a, b = (released(plan, code, key) for key, code in enumerate(pair))
            found = audit(lambda n, a=a, view=view: view(a(n)), lambda n, b=b, view=view: view(b(n)), RUNS, plan.delta)
            yield Line(tag, unit.mechanism.loss.epsilon(plan.delta), found)


def pipeline(tables: bool) -> Iterator[Line]:
    """Yield whole releases, rows in secret order beside measured tables; broken, rows know nothing of the tables."""
    for name, (columns, away, options) in CASES.items():
        names = tuple(f"c{i}" for i in range(len(columns)))
        plan = made(columns, measure=[names], measure_share=SHARE, **options)
        rows = plan if tables else made(columns, measure=None, **options)
        direction = counted(away) - counted(columns)
        samplers = [
            sampler(table, direction, rows, key, plan) for table, key in zip((columns, away), KEYS, strict=True)
        ]
        what = f"rows and tables, {name}" + ("" if tables else ": rows spend the tables' share too")
        # What is broken exceeds its claim by little, which more releases show on every machine.
        yield Line(what, EPSILON, audit(*samplers, RELEASES if tables else 4 * RELEASES, DELTA))


def inferred(what: str, one: Any, other: Any, noises: Any, threshold: int) -> Line:
    """Return the audit of one round of noisy counts of two tables, by their log-likelihood ratio."""
    told = [
        np.clip(scores(mine, one, other, noises, threshold, key), -1e3, 1e3)
        for mine, key in ((one, "one"), (other, "other"))
    ]
    samplers = [lambda n, runs=runs: runs[:n] for runs in told]
    return Line(f"inference, {what}", BUDGET.epsilon, audit(*samplers, INFERENCES, BUDGET.delta))


def inference() -> Iterator[Line]:
    for name, (task, one, other) in NEIGHBOURS.items():
        yield inferred(name, table_counts(task, one), table_counts(task, other), *spent(task))


def wishart() -> Iterator[Line]:
    for pair in ("one number", "orthogonal rows"):
        noise = WishartNoise.of(1 if pair == "one number" else 2, 1.0, Portion(Budget(2.0, 0.01)))
        yield Line(f"additive Wishart noise, {pair}", 2.0, audited(noise, pair, 0.01))


# ------------------------------------------------------------------------------------------------------- broken


def broken_mechanisms() -> Iterator[Line]:
    """Yield mechanisms that are broken as others were."""
    for claim, wrong in (
        (1.0, Geometric(100, 1.2)),
        (1.0, WithNull(Geometric, (100,), 1.2)),
        (1.0, RandomizedResponse(4, 1.2)),
    ):
        found = audit(drawn(wrong, 0, 1), drawn(wrong, wrong.size - 1, 2), 2 * RUNS)
        yield Line(f"{wrong.tag}: noise for 1.2 times the claim", claim, found)
    response, grid, null = RandomizedResponse(5, 0.5), Geometric(100, 1.0), WithNull(Geometric, (100,), 1.0)
    same = audit(two_columns(response, 0, "aa", 1), two_columns(response, 1, "aa", 2), RUNS)
    yield Line("one noise for two columns", 0.5, same)
    yield Line("noise without tails", 1.0, audit(without_tails(grid, 0, 1), without_tails(grid, 100, 2), RUNS))
    kept = audit(nulls_in_place(null, null.null, 1), nulls_in_place(null, 0, 2), RUNS)
    yield Line("nulls left in place", 1.0, kept)
    wide = RandomizedResponse(1_000, 1.0)
    yield Line("one row in a hundred as it is", 1.0, audit(leaky(wide, 0, 1), leaky(wide, 1, 2), 2 * RUNS))


def broken_inference() -> Iterator[Line]:
    """Yield counts with too little noise, of rows that are not cut, and thresholds that are too low."""
    task, one, other = NEIGHBOURS["another basket"]
    one, other = table_counts(task, one), table_counts(task, other)
    noises, threshold = spent(task)
    yield inferred("noise of half the scale", one, other, with_scale(noises, 0.5), threshold)
    yield inferred("a basket that counts as one", one, other, *spent(task, [Histogram("values", 1, 1.0)]))
    uncut = []
    for items in (range(32), range(40, 72)):
        rows = Values(CutRows(32, bytes(range(32))))
        rows.add(pa.array([[f"item{i}" for i in items], *BASKETS]))
        uncut.append(counts_of(rows))
    yield inferred("baskets that are not cut", *uncut, noises, threshold)
    task, one, other = NEIGHBOURS["a unique category"]
    noises, _ = spent(task)
    low = round(2.5 * noises[0].variance ** 0.5)
    yield inferred("a threshold that is too low", table_counts(task, one), table_counts(task, other), noises, low)


def broken_wishart() -> Iterator[Line]:
    for pair, size in (("one number", 1), ("orthogonal rows", 2)):
        printed = WishartNoise(size, 1.5, size + 1)
        yield Line(f"Wishart noise as printed, {pair}", 1.0, audited(printed, pair, 0.01))


HEAD = f"\n{'':<72} {'claimed':>8} {'delta':>8} {'at least':>10}"


def test_table_of_what_is_kept() -> None:
    """No claim is refuted."""
    lines = [*mechanisms(0.0), *mechanisms(0.05), *wishart(), *inference(), *pipeline(tables=True)]
    print(HEAD, *lines, sep="\n")
    assert {line.what for line in lines} >= set(MECHANISMS)
    assert [str(line) for line in lines if line.found.refutes(line.epsilon)] == []
    # An audit that finds next to nothing would refute nothing.
    assert sum(line.found.epsilon_lower > line.epsilon / 2 for line in lines) > len(lines) / 2


def test_table_of_what_is_caught() -> None:
    """Every mechanism that was broken on purpose is."""
    lines = [*broken_mechanisms(), *broken_wishart(), *broken_inference(), *pipeline(tables=False)]
    print(HEAD, *lines, sep="\n")
    assert [str(line) for line in lines if not line.found.refutes(line.epsilon)] == []
