"""Whole releases by brute force: private inference, the plan that follows from its outcome, tables and rows, summed.

Of two neighbouring tables of a few rows the law of all that leaves is summed: every outcome of inference that tells
them apart, the space that the library makes of it, the plan that it makes of that, the noise of the tables which that
plan measures, and the rows as its channel and order release them. Run with ``-s`` to see claims beside exact values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exact_laws import Inferring, Pair, shuffled_law, tables_law

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, promise_step, step_delta
from dpframe.inference.categories import Items, Texts
from dpframe.inference.column import Task
from dpframe.inference.cost import GaussianNoise, Spending
from dpframe.inference.histogram_specs import HistogramSpecs
from dpframe.inference.numbers import Numbers
from dpframe.inference.private import Inference, Measurement
from dpframe.noise.gaussian import gaussian_table
from dpframe.plan.plan import Plan
from dpframe.release.planning import CheckedRequest, Request
from dpframe.spaces import Space
from dpframe.spaces.field import Field
from dpframe.tables.frames import Frame, wrap

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

PROMISE = Budget(12.0, 0.05)
"""Large, so that inference finds what there is in five rows, and its outcomes decide on something."""
EPSILONS = (0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0)
RAREST = 1e-5
"""Mass of a space below which no plan is made of it: it is left out, and counts against the claim."""
SHUFFLED = {"infer_share": 0.7, "measure": [("x",)]}
ROWS_ONLY = {"infer_share": 0.7, "measure": None}
"""Bounds of a single round are so wide that the noise of sums has too many points to be enumerated."""
IN_ORDER = {"infer_share": 0.9, "measure": None, "shuffle": False}
KEY = bytes(range(32))


@dataclass(frozen=True)
class Found:
    """A measurement that came out as it is said to, in place of one that draws."""

    columns: tuple[Field, ...]
    inference: Inference
    asked: HistogramSpecs | None

    def draw(self, *_: Any) -> Inference:
        return self.inference


@dataclass(frozen=True)
class Case:
    """Rows that are all alike, and one in its place; how far inference's noise is enumerated, and what is asked for."""

    task: Task
    value: Any
    other: Any
    reaches: tuple[int, ...]
    options: Mapping[str, Any]
    type: pa.DataType
    n: int = 5
    seed: int = 0

    @cached_property
    def columns(self) -> tuple[pa.Array, pa.Array]:
        rest = [self.value] * (self.n - 1)
        return pa.array([*rest, self.value], self.type), pa.array([*rest, self.other], self.type)

    @cached_property
    def frames(self) -> tuple[Frame, Frame]:
        schema = pa.schema([pa.field("x", self.type, nullable=self.task.field.nullable)])
        one, other = (wrap(pa.table([column], schema=schema)) for column in self.columns)
        return one, other

    @cached_property
    def valid(self) -> CheckedRequest:
        request = Request(PROMISE.epsilon, PROMISE.delta, options=dict(self.options), release=False)
        valid = CheckedRequest.of(self.frames[0], request)
        assert valid.measurement is not None
        assert valid.allowed is not None
        assert valid.allowed.step is not None
        own, rounds = valid.measurement, len(self.task.histograms)
        if len(own.histograms) == rounds:
            return valid
        # So few rows are asked once; those that are asked more often are too many to be enumerated.
        made = Measurement.of(own.columns, own.n, own.budget, own.contributions, own.most_items, rounds=rounds)
        return replace(valid, measurement=made)

    @property
    def spending(self) -> Spending:
        assert self.valid.measurement.histograms == tuple(("x", i) for i in range(len(self.task.histograms)))
        return self.valid.measurement.spending

    def plan(self, space: Space) -> Plan:
        """The plan that the library makes where inference finds a space."""
        made = self.valid.measurement
        found = Found(made.columns, Inference({"x": space}, (), None, {}), made.asked)
        return replace(self.valid, measurement=found).measured(self.frames[0], KEY, None)

    def beside(self, plan: Plan) -> Pair:
        """The law of tables and rows under a plan."""
        codes = [frame.codes(plan.spaces, plan.nulls, plan.imputed) for frame in self.frames]
        mechanism = plan["x"].mechanism
        one, other = (int(np.ravel(one["x"][-1])[0]) for one in codes)
        if plan.shuffle:
            rows = shuffled_law(mechanism, one, other, self.n)
        else:  # of rows in their places the one alone tells
            rows = Pair(mechanism.law(one), mechanism.law(other))
        return tables_law(plan, codes, 6.0).times(rows)

    def law(self, spending: Spending | None = None) -> tuple[Pair, list[Plan]]:
        """The law of all that leaves, and the plans that it leaves under."""
        inferring = Inferring(self.task, self.columns, spending or self.spending, self.reaches, self.seed)
        parts, plans = [], []
        for space, law in inferring.by_space().items():
            if max(law.one.sum(), law.other.sum()) > RAREST:
                plans.append(self.plan(space))
                parts.append(law.merged().times(self.beside(plans[-1])).merged())
        return Pair.joined(parts), plans


def numbers(n: int, rounds: int = 3) -> Numbers:
    return Numbers(Field("x", pa.uint16(), False), n, rounds)


CASES = {
    "numbers": Case(numbers(6), 6, 7, (2, 2, 2), SHUFFLED, pa.uint16(), 6),
    "numbers in one round": Case(numbers(6, rounds=1), 6, 9, (2,), ROWS_ONLY, pa.uint16(), 6),
    "numbers in two rounds": Case(numbers(5, rounds=2), 6, 7, (3, 3), SHUFFLED, pa.uint16()),
    "numbers of four rows": Case(numbers(4), 5, 7, (2, 2, 2), SHUFFLED, pa.uint16(), 4),
    "numbers in their order": Case(numbers(5), 6, 7, (2, 2, 2), IN_ORDER, pa.uint16()),
    "text": Case(Texts(Field("x", pa.string(), False)), "a", "b", (6,), SHUFFLED, pa.string()),
    "text of two rows": Case(Texts(Field("x", pa.string(), True)), "a", None, (6,), SHUFFLED, pa.string(), 2),
    "text in its order": Case(Texts(Field("x", pa.string(), False)), "a", "b", (6,), IN_ORDER, pa.string()),
    "sets": Case(
        Items(Field("x", pa.list_(pa.string()), False), 2, KEY),
        ["a", "b"],
        ["c"],
        (4,),
        {**SHUFFLED, "max_items": 2},
        pa.list_(pa.string()),
    ),
}
SLOW = ("numbers of four rows",)


@lru_cache
def whole(name: str) -> tuple[Pair, list[Plan]]:
    return CASES[name].law()


def excess(law: Pair, claim: Step) -> float:
    """The most by which the profile certainly exceeds a claim; above 0 the claim is false."""
    return max(law.least(epsilon) - step_delta(claim, epsilon) for epsilon in EPSILONS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES]
)
def test_what_leaves_in_all_keeps_the_promise(name):
    law, plans = whole(name)
    claim = promise_step(PROMISE)
    print(f"\n{name}: claimed mu={claim.mu:.4f}, slack={claim.delta:.3g}")
    print(f"  {len(plans)} plans; left out {law.left_out:.1e}")
    for epsilon in EPSILONS:
        print(f"  epsilon={epsilon:4.1f}  exact {law.most(epsilon):.6f}  claimed {step_delta(claim, epsilon):.6f}")
    assert len(plans) > 1
    assert all(law.most(epsilon) <= step_delta(claim, epsilon) for epsilon in EPSILONS)
    assert law.most(PROMISE.epsilon) <= PROMISE.delta
    assert all(plan.release == PROMISE for plan in plans)


@pytest.mark.parametrize("name", ["numbers", "numbers in their order", "text", "sets"])
def test_an_inference_that_is_not_charged_is_caught(name):
    """What tables and rows claim, without what inference gave away before them."""
    law, plans = whole(name)
    assert min(excess(law, plan.step_beside_inference) for plan in plans) > 0


def test_noise_for_one_changed_count_is_caught():
    """Of σ² half as large, as if a replaced row changed one count of each round, not two."""
    right = CASES["numbers"].spending
    thin = tuple(GaussianNoise(gaussian_table(noise.variance / 2)) for noise in right.noises)
    law, _ = CASES["numbers"].law(replace(right, noises=thin))
    assert law.least(PROMISE.epsilon) > PROMISE.delta
