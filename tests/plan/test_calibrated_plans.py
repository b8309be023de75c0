"""From the promise of a whole release to its columns: calibration, allocation, levers, rows, secret samples."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checks import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from strategies import examples

import dpframe as dpf
from dpframe.accounting import ColumnLoss, composed_delta, sampled, shuffled_delta
from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step
from dpframe.channels import Geometric, Matrix, RandomizedResponse, Staircase
from dpframe.inference.inferred import Inferred, Measured
from dpframe.noise.keystream import Keystream
from dpframe.plan.build import build_plan
from dpframe.plan.calibration import AccountingContext, calibrate
from dpframe.plan.columns import Column
from dpframe.plan.plan import Plan
from dpframe.release.rows import Selection, order_words, permutation, rank
from dpframe.spaces import Categorical, Integer, Nullable, Subset

SPACES: dict[str, Any] = {"age": (0, 120), "sex": ["F", "M"]}


@cache
def shuffled_plan():
    return build_plan(SPACES, epsilon=1.0, n=1_000)


KEY = bytes(range(32))


def scaled(plan: Plan, factor: float) -> list[Column]:
    """Return a plan's columns, each calibrated to so many times its loss."""
    return [column.remade(column.mechanism.epsilon * factor, 0.0) for column in plan.columns]


def spent(plan: Plan) -> float:
    """Return what the accountant says, without the plan's own terms."""
    parts = [c.mechanism.column_loss for c in plan.columns]
    rows = plan.n if plan.sample is None else plan.sample
    assert rows is not None
    return shuffled_delta(parts, rows, plan.terms.sampled_budget.epsilon).value


# --- the promise --------------------------------------------------------------------------------------
KINDS = [
    ["a", "b"],
    ["a", "b", "c"],
    list("abcdefghij"),
    (0, 1),
    (0, 120),
    Nullable(Integer(0, 9)),
    Subset(list("abcd"), 2),
]


@settings(max_examples=examples(25))
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    epsilon=st.floats(0.05, 6),
    delta=st.sampled_from([None, 1e-8, 1e-4]),
    n=st.integers(20, 10**6),
    contributions=st.integers(1, 3),
    share=st.sampled_from([None, 1, 4, 30]),
)
@pytest.mark.slow
def test_a_promise_is_kept_and_used_up(
    kinds: list[Any], epsilon: float, delta: float | None, n: int, contributions: int, share: int | None
) -> None:
    """δ is never exceeded; either 98 % of it is used or a thousandth more loss would exceed it."""
    spaces = {f"c{i}": kind for i, kind in enumerate(kinds)}
    sample = None if share is None else max(1, n // share)
    delta = None if delta is None else min(delta, 1 / n)
    try:
        plan = build_plan(spaces, epsilon=epsilon, delta=delta, n=n, contributions=contributions, sample=sample)
    except dpf.ParameterError as error:
        assert "too small" in str(error)
        return
    allowed, cost = plan.terms.sampled_budget.delta, plan.terms.delta_of(plan.units).value
    assert cost <= allowed
    assert cost == spent(plan)
    assert all(column.mechanism.delta == 0 for column in plan.columns)
    more = scaled(plan, 1 + 1e-3)  # the odds of a bit flip have few digits
    assert cost >= 0.98 * allowed or not plan.terms.allow(more) or max(c.epsilon for c in more) > 40
    assert plan.verify().ok
    assert Plan.from_json(plan.to_json()) == plan


def test_the_cost_of_a_person_is_re_derived() -> None:
    """Sampling outside, the shuffle within it, then the row: each lever by its own formula."""
    plan = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=5_000, sample=1_000)
    parts = [c.column_loss for c in plan.columns]
    inside = plan.terms.sampled_budget
    cost = shuffled_delta(parts, 1_000, inside.epsilon).value
    epsilon, delta = sampled(inside.epsilon, cost, 1_000, 5_000)
    assert epsilon <= 1.0
    assert 0.99e-6 <= delta <= 1e-6
    assert cost == plan.terms.delta_of(plan.units).value


@pytest.mark.parametrize("k", [2, 3, 7])
def test_rows_of_one_person_are_paid_for_by_group_privacy(k: int) -> None:
    """The row's (ε/k, δ·(e^(ε/k) − 1)/(e^ε − 1)): composing k such steps gives back (ε, δ)."""
    plan = build_plan(SPACES, epsilon=1.5, delta=1e-6, n=2_000, contributions=k)
    budget, cost = plan.terms.budget.per_row(k), plan.terms.delta_of(plan.units).value
    assert budget.epsilon * k <= 1.5
    total = sum(cost * math.exp(i * budget.epsilon) for i in range(k))
    assert 0.99e-6 <= total <= 1e-6
    single = build_plan(SPACES, epsilon=1.5, delta=1e-6, n=2_000)
    assert plan["sex"].mechanism.epsilon < single["sex"].mechanism.epsilon
    with pytest.raises(dpf.errors.PlanError, match="lower a column's epsilon"):
        replace(plan, contributions=k + 1)


def test_more_rows_and_more_credit_never_cost_noise() -> None:
    losses = [build_plan(SPACES, epsilon=1.0, delta=1e-6, n=n).local_sum.epsilon for n in (1, 10, 100, 1_000, 10**6)]
    assert losses == sorted(losses)
    assert losses[0] == pytest.approx(1.0, rel=1e-3)
    assert losses[-1] > 10
    shares = build_plan(SPACES, epsilon=1.0, n=1_000, allocation={"age": 0.75})
    assert shares["age"].mechanism.epsilon == pytest.approx(3 * shares["sex"].mechanism.epsilon, rel=1e-12)


def test_default_delta() -> None:
    assert build_plan(SPACES, epsilon=1.0).delta == 0
    assert [build_plan(SPACES, epsilon=1.0, n=n).delta for n in (0, 1, 100, 10_000)] == [1e-6] * 4
    assert build_plan(SPACES, epsilon=1.0, n=10**6).delta == 1e-9
    with pytest.warns(dpf.DpframeWarning, match=r"delta=0\.01 is above 1/n,.*may be revealed"):
        build_plan(SPACES, epsilon=1.0, delta=0.01, n=1_000)


# --- where there is no credit -------------------------------------------------------------------------
WITHOUT: dict[str, Mapping[str, Any]] = {
    "kept: positions are not protected": {"n": 1_000, "shuffle": False},
    "it earns no credit, as columns are passed through": {"n": 1_000, "passthrough": ["id"]},
    "it earns no credit, as delta is 0": {"n": 1_000, "delta": 0},
    "it earns no credit, as n is not known": {"delta": 1e-6},
}


@pytest.mark.parametrize("says", WITHOUT)
def test_no_credit_is_taken_where_the_order_is_not_secret(says: str) -> None:
    plan = build_plan({**SPACES, "town": list("abcd")}, epsilon=1.0, **WITHOUT[says])
    assert plan.terms.shuffled_rows is None
    assert plan.local == plan.release
    assert any(line.endswith(says) for line in plan.lines())
    assert plan.terms.delta_of(plan.units).method == "composition"
    if plan.delta == 0:
        assert [c.mechanism.epsilon for c in plan.columns] == pytest.approx([1 / 3] * 3)
        assert Fraction(plan.local_sum.epsilon) <= 1
    else:
        parts = [c.column_loss for c in plan.columns]
        assert 0.5e-6 <= composed_delta(parts, 1.0) <= 1e-6
    plan.check_rows(1)  # nothing rests on the number of rows
    credited = build_plan({**SPACES, "town": list("abcd")}, epsilon=1.0, n=1_000)
    assert plan["sex"].mechanism.epsilon < 0.5 * credited["sex"].mechanism.epsilon


def test_optimal_composition_beats_basic_where_columns_are_many() -> None:
    spaces = {f"c{i}": list("abcdef") for i in range(20)}
    basic = build_plan(spaces, epsilon=1.0, delta=0, shuffle=False)
    optimal = build_plan(spaces, epsilon=1.0, delta=1e-6, n=1_000, shuffle=False)
    assert basic.local_sum.epsilon == pytest.approx(1.0)
    assert optimal.local_sum.epsilon > 1.2
    assert not replace(optimal.terms, budget=Budget(1.0, 0.9e-6)).allow(scaled(optimal, 1.001))


def test_a_single_column_without_credit_takes_delta_itself() -> None:
    terms = {"epsilon": 1.0, "delta": 1e-6, "n": 500, "shuffle": False}
    (column,) = build_plan({"age": (0, 120)}, **terms, numbers="square_wave").columns
    assert column.mechanism == Staircase(120, 1.0, 1e-6)
    (column,) = build_plan({"age": (0, 120)}, **terms).columns
    assert column.mechanism == Geometric(120, 1.0, 1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_hardly_any_rows(n: int) -> None:
    plan = build_plan(SPACES, epsilon=1.0, n=n)
    assert plan.terms.allow(plan.units)
    assert plan.local_sum.epsilon == pytest.approx(1.0, rel=0.05)
    assert plan.verify().ok
    assert isinstance(str(plan), str)
    frame = pd.DataFrame({"age": np.arange(n), "sex": pd.Categorical(["F", "M", "F"][:n], ["F", "M"])})
    safe = frame.dp.sanitize(plan=plan)
    assert len(safe) == n


def test_no_columns_at_all() -> None:
    assert build_plan({}, epsilon=1.0, n=100, drop=["id"]).local_sum.epsilon == 5e-324
    assert calibrate([], [], [], AccountingContext(Budget(1.0, 1e-6), 10)) == []


# --- claims that are refused --------------------------------------------------------------------------
EXCESS = r"the plan claims epsilon=1\.0, delta=1e-06.* need delta=0\.67 at epsilon=1 .*epsilon=3\.7\d* per row"


@pytest.mark.parametrize(
    "change",
    [
        {"shuffle": False},
        {"passthrough": ("id",)},
        {"n": None},
        {"n": 900},
        {"contributions": 2},
        {"epsilon": 1 - 1e-4},
        {"delta": 0.99e-6},
        {"delta": 0.0},
    ],
)
def test_what_the_credit_rests_on_cannot_be_taken_away(change: Mapping[str, Any]) -> None:
    refused(dpf.errors.PlanError, r"lower a column's epsilon$", lambda: replace(shuffled_plan(), **change))
    stated = {k: list(v) if isinstance(v, tuple) else v for k, v in change.items()}
    data = json.loads(shuffled_plan().to_json()) | stated
    with pytest.raises(dpf.errors.PlanError, match="its columns need delta="):
        Plan.from_json(json.dumps(data))


def test_the_excess_is_told() -> None:
    with pytest.raises(dpf.errors.PlanError, match=EXCESS):
        replace(shuffled_plan(), shuffle=False)
    assert replace(shuffled_plan(), n=1_001).n == 1_001  # more rows hide each other better


REFUSED: list[tuple[Mapping[str, Any], str]] = [
    ({"n": 10, "sample": 11}, 'sample must be a whole number of rows from 1 to 10, or "optimal"'),
    ({"n": 10, "sample": 0}, "sample must be a whole number of rows from 1 to 10"),
    ({"n": 10, "sample": True}, "sample must be a whole number of rows from 1 to 10"),
    ({"n": 10, "sample": 2.5}, "sample must be a whole number of rows from 1 to 10"),
    ({"n": 10, "sample": "best"}, 'sample must be a whole number of rows from 1 to 10, or "optimal"'),
    ({"sample": 5}, 'sample must be a whole number of rows from 1, or "optimal"'),
    ({"sample": "optimal"}, 'sample must be a whole number of rows from 1, or "optimal"'),
    ({"n": 0, "sample": "optimal"}, "sample must be a whole number of rows from 1 to 0"),
    ({"n": 100, "delta": 1.0}, r"delta must lie in \[0, 1\)"),
    ({"n": 100, "epsilon": 1e-19, "delta": 0}, r"column 'age': epsilon=.* is too small for a grid of 120 steps"),
    ({"n": 100, "allocation": "errors"}, 'allocation must be "uniform", "error" or a mapping'),
    ({"n": 100, "shuffle": "yes"}, "shuffle must be True or False"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_bad_options_are_refused(options: Mapping[str, Any], message: str) -> None:
    refused(dpf.ParameterError, message, lambda: build_plan(SPACES, **{"epsilon": 1.0, **options}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample": 0}, "sample must be a whole number of rows, at least 1"),
        ({"sample": True}, "sample must be a whole number of rows, at least 1"),
        ({"sample": "optimal"}, "sample must be a whole number of rows, at least 1"),
        ({"sample": 1_001}, "sample=1,001 rows cannot be chosen: there are 1,000; leave sample out or lower it"),
        ({"sample": 5, "n": None}, "sample=5 rows cannot be chosen: the plan does not know how many there are"),
    ],
)
def test_bad_samples_of_a_plan_are_refused(change: Mapping[str, Any], message: str) -> None:
    with pytest.raises(dpf.ParameterError, match=message):
        replace(shuffled_plan(), **change)
    with pytest.raises(dpf.errors.PlanError, match="the plan is not valid: sample"):
        Plan.from_json(json.dumps(json.loads(shuffled_plan().to_json()) | change))


# --- ready mechanisms ---------------------------------------------------------------------------------
def test_ready_mechanisms_share_the_credit() -> None:
    own = Matrix.of([[0.7, 0.3], [0.2, 0.8]])
    plan = build_plan(SPACES, epsilon=1.0, n=1_000, mechanisms={"sex": own})
    assert plan["sex"].mechanism == own
    assert 0.99e-6 <= plan.terms.delta_of(plan.units).value <= 1e-6
    # What the matrix spares or takes beside an equal share, the age gets or gives.
    assert own.epsilon < shuffled_plan()["sex"].mechanism.epsilon
    assert plan["age"].mechanism.epsilon > shuffled_plan()["age"].mechanism.epsilon
    assert plan.replan(10**5)["sex"].mechanism == own
    assert plan.replan(10**5)["age"].mechanism.epsilon > plan["age"].mechanism.epsilon


def test_ready_mechanisms_that_spend_all_are_refused() -> None:
    loud = RandomizedResponse(2, 30.0)
    refused(dpf.ParameterError, "epsilon", lambda: build_plan(SPACES, epsilon=0.1, n=50, mechanisms={"sex": loud}))
    # All ready, and too much: no calibration stands between, and the plan itself refuses.
    with pytest.raises(dpf.errors.PlanError, match="its columns need delta="):
        build_plan({"sex": ["F", "M"]}, epsilon=0.1, n=50, mechanisms={"sex": loud})


def test_ready_mechanisms_with_a_delta_fall_back_to_basic_composition() -> None:
    given_delta = RandomizedResponse(2, 0.5, 1e-7)
    plan = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=10_000, mechanisms={"sex": given_delta})
    assert plan.local_sum.epsilon <= 1.0
    assert plan.terms.delta_of(plan.units).method == "composition"
    assert plan.verify().ok


# --- allocation="error" -------------------------------------------------------------------------------
@pytest.mark.slow
@settings(max_examples=examples(12))
@given(
    kinds=st.lists(st.sampled_from(KINDS[:6]), min_size=2, max_size=4),
    epsilon=st.floats(0.3, 4),
    options=st.sampled_from([{}, {"shuffle": False}, {"delta": 0}]),
    n=st.sampled_from([200, 5_000, 200_000]),
)
def test_the_total_error_is_never_above_that_of_equal_shares(
    kinds: list[Any], epsilon: float, options: Mapping[str, Any], n: int
) -> None:
    spaces = {f"c{i}": kind for i, kind in enumerate(kinds)}

    def total(allocation: str) -> float:
        plan = build_plan(spaces, epsilon=epsilon, n=n, allocation=allocation, **options)
        assert plan.terms.allow(plan.units)
        return sum(c.expected_error / (c.space.diameter or 1.0) for c in plan.columns)

    assert total("error") <= total("uniform")


@pytest.mark.slow
def test_error_allocation_finds_what_a_scan_finds() -> None:
    spaces = {"coarse": ["a", "b"], "fine": [f"{i:03}" for i in range(200)]}

    def total(allocation: Any) -> float:
        plan = build_plan(spaces, epsilon=1.0, n=20_000, allocation=allocation)
        return sum(c.expected_error / c.space.diameter for c in plan.columns)

    scan = min(total({"fine": share}) for share in np.linspace(0.3, 0.95, 14))
    assert total("error") <= scan * 1.02
    assert total("error") < 0.97 * total("uniform")


def test_error_allocation_counts_a_group_for_each_of_its_columns() -> None:
    spaces = {"a": ["x", "y"], "b": ["x", "y", "z"], "c": ["x", "y"]}
    plan = build_plan(spaces, epsilon=1.0, n=5_000, allocation="error", groups=[("a", "b")])
    assert plan.terms.allow(plan.units)
    group, alone = plan.units
    assert group.mechanism.epsilon > alone.mechanism.epsilon


# --- levers and words ---------------------------------------------------------------------------------
def test_levers_show_what_each_accounting_is_worth() -> None:
    table = shuffled_plan().accounting_gains()
    assert table.index.tolist() == ["basic composition", "optimal composition", "secret order"]
    assert table["in_force"].tolist() == [False, False, True]
    assert table["noise"].iloc[-1] == 1.0
    assert table["noise"].is_monotonic_decreasing
    assert table["row_epsilon"].iloc[-1] == pytest.approx(shuffled_plan().local_sum.epsilon, rel=1e-4)
    assert table["row_epsilon"].iloc[0] == pytest.approx(1.0, rel=1e-6)
    kept = build_plan(SPACES, epsilon=1.0, n=1_000, shuffle=False)
    assert kept.accounting_gains().index.tolist() == ["basic composition", "optimal composition"]
    pure = build_plan(SPACES, epsilon=1.0, delta=0, n=1_000)
    assert pure.accounting_gains().index.tolist() == ["basic composition"]
    drawn = build_plan(SPACES, epsilon=1.0, n=1_000, sample=100)
    assert drawn.accounting_gains().index.tolist()[-2:] == ["secret order", "secret sample"]
    assert drawn.accounting_gains()["row_epsilon"].iloc[-1] == pytest.approx(drawn.local_sum.epsilon, rel=1e-4)


def test_the_words_of_a_credited_plan() -> None:
    lines = shuffled_plan().lines()
    assert lines[0] == "Release: epsilon=1, delta=1e-06 (replace-one, per person with one row)"
    assert lines[1].startswith("Local: epsilon=3.73")
    assert lines[1].endswith("each row, even against someone who knows which output row it became")
    assert lines[2] == (
        "Order: secret, uniformly random among 1,000 rows; accounted for by the privacy blanket of these columns"
    )
    assert lines[3].startswith("With the order kept (shuffle=False) about 6")
    kept = build_plan(SPACES, epsilon=1.0, n=1_000, shuffle=False).lines()
    assert any(line.startswith("Without the credit of a secret order about 6") for line in kept)
    drawn = build_plan(SPACES, epsilon=1.0, n=1_000, sample=100)
    assert "Sample: 100 of 1,000 rows, chosen in secret" in drawn.lines()
    assert "uniformly random among 100 rows" in drawn.lines()[2]
    kept = build_plan(SPACES, epsilon=1.0, n=1_000, sample=100, shuffle=False).lines()
    assert any(line.endswith("chosen in secret; without a secret order that earns no credit") for line in kept)


def test_the_local_promise_is_what_the_row_loses() -> None:
    plan = build_plan({f"c{i}": list("abc") for i in range(12)}, epsilon=1.0, n=50_000)
    assert plan.release == Budget(1.0, plan.delta)
    assert plan.delta == plan.local.delta
    assert 1.0 < plan.local.epsilon < plan.local_sum.epsilon
    parts = [unit.column_loss for unit in plan.units]
    assert composed_delta(parts, plan.local.epsilon) <= plan.delta
    assert composed_delta(parts, plan.local.epsilon * (1 - 1e-6)) > plan.delta


# --- another number of rows ---------------------------------------------------------------------------
def test_fewer_rows_are_refused_and_more_are_welcome() -> None:
    shuffled_plan().check_rows(1_000)
    shuffled_plan().check_rows(5_000)
    message = (
        r"^the plan was made for 1,000 rows and the table has 999: fewer rows hide each other less; "
        r"plan\.replan\(999\) calibrates it anew$"
    )
    with pytest.raises(dpf.errors.PlanError, match=message):
        shuffled_plan().check_rows(999)
    frame = pd.DataFrame({"age": np.arange(999) % 120, "sex": ["F", "M", "F"] * 333})
    with pytest.raises(dpf.errors.PlanError, match=message):
        frame.dp.sanitize(plan=shuffled_plan())
    assert len(frame.dp.sanitize(plan=shuffled_plan().replan(999))) == 999


def test_fewer_rows_in_parquet_are_refused(tmp_path: Any) -> None:
    frame = pd.DataFrame({"age": np.arange(999) % 120, "sex": ["F", "M", "F"] * 333})
    frame.to_parquet(tmp_path / "in.parquet", index=False)
    with pytest.raises(dpf.errors.PlanError, match="made for 1,000 rows and the table has 999"):
        dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=shuffled_plan())
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_a_plan_that_needs_no_credit_serves_fewer_rows() -> None:
    build_plan(SPACES, epsilon=1.0, delta=0, n=1_000).check_rows(3)
    quiet = build_plan(SPACES, epsilon=1.0, n=1_000)
    # Columns that add up to no more than the promise, whatever the order earns.
    modest = replace(quiet, columns=tuple(scaled(quiet, 0.2)))
    modest.check_rows(1)


@pytest.mark.parametrize("options", [{}, {"sample": 100}, {"allocation": {"age": 0.7}}, {"contributions": 2}])
def test_replanning_is_planning_anew(options: Mapping[str, Any]) -> None:
    plan = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=1_000, **options)
    wanted = dict(options) | ({"sample": 2_000} if "sample" in options else {})
    anew = build_plan(SPACES, epsilon=1.0, delta=1e-6, n=20_000, **wanted)
    found = plan.replan(20_000)
    assert (found.n, found.sample, found.delta) == (20_000, anew.sample, 1e-6)
    for one, other in zip(found.columns, anew.columns, strict=True):
        assert one.mechanism.epsilon == pytest.approx(other.mechanism.epsilon, rel=1e-4)
    back = found.replan(1_000)
    assert back.local_sum.epsilon == pytest.approx(plan.local_sum.epsilon, rel=1e-4)
    for n in (0, -1, True, 2.5):
        with pytest.raises(dpf.ParameterError, match=r"n must be a.*at least 1"):
            plan.replan(n)


def test_counts_of_inference_are_of_the_rows_it_measured() -> None:
    """What was found in 2,000 rows is no less for a plan for 500: 500 of 2,000 rows hold other values than the two."""
    counts = Measured("sex", "values", ("F", "M"), (700, 690), 400.0)
    inferred = Inferred(Budget(0.1, 1e-7), ("sex",), (counts,), (("sex", 100),))
    plan = build_plan({"sex": ["F", "M", "other"]}, epsilon=1.0, delta=1e-6, n=2_000, inferred=inferred)
    smaller = plan.replan(500)
    assert [one.why for one in plan.not_found] == ["more than a fifth of the rows seems to hold other values"]
    assert smaller.not_found == plan.not_found
    assert (smaller.n, smaller.inferred_rows, smaller.replan(900).inferred_rows) == (500, 2_000, 2_000)
    assert Plan.from_json(smaller.to_json()) == smaller
    assert smaller.replan(2_000).inferred == inferred
    for rows in (-1, True, "2000"):
        data = json.loads(smaller.to_json())
        data["inferred"]["rows"] = rows
        with pytest.raises(dpf.errors.PlanError, match=r"^the rows of an.*a whole number"):
            Plan.from_json(json.dumps(data))


def test_replanning_keeps_groups() -> None:
    plan = build_plan({**SPACES, "town": list("abc")}, epsilon=1.0, n=500, groups=[("sex", "town")])
    found = plan.replan(50_000)
    assert [unit.label for unit in found.units] == ["age", "sex × town"]
    assert found["town"] == found.groups[0].column("town")
    assert found.groups[0].mechanism.epsilon > plan.groups[0].mechanism.epsilon


# --- secret samples -----------------------------------------------------------------------------------
def drawing(sample: int | None, n: int, **options: Any) -> Plan:
    return build_plan({"row": (0, max(1, n - 1))}, epsilon=1.0, delta=0, n=n, sample=sample, **options)


@settings(max_examples=examples(60))
@given(data=st.data(), n=st.integers(1, 300), key=st.binary(min_size=32, max_size=32))
def test_a_selection_is_the_lowest_words(data: st.DataObject, n: int, key: bytes) -> None:
    """Against sorting all words as whole numbers; and however the rows are cut into stretches."""
    m = data.draw(st.integers(1, n))
    plan = drawing(m, n)
    words = Keystream(key, plan.digest).column("", domain="sample").words(0, 0, n, bits=128)
    numbers = [int(high) << 64 | int(low) for low, high in words]
    expected = set(sorted(range(n), key=numbers.__getitem__)[:m])
    selection = Selection(plan, key, n)
    mask = selection.mask(0, n)
    assert mask is not None
    assert set(np.flatnonzero(mask)) == expected
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=4))), n]
    pieces = [selection.mask(a, b - a) for a, b in itertools.pairwise(cuts)]
    assert np.array_equal(np.concatenate([piece for piece in pieces if piece is not None]), mask)


def test_a_selection_of_many_rows() -> None:
    """More rows than one pass holds at a time (2^18), and a sample of nearly all, of half, of one."""
    n = 300_000
    for m in (1, 150_000, n - 1, n):
        plan = drawing(m, n)
        words = Keystream(KEY, plan.digest).column("", domain="sample").words(0, 0, n, bits=128)
        mask = Selection(plan, KEY, n).mask(0, n)
        assert mask is not None
        assert mask.sum() == m
        assert np.array_equal(np.flatnonzero(mask), np.sort(np.lexsort((words[:, 0], words[:, 1]))[:m]))


def test_all_rows_need_no_selection() -> None:
    assert Selection(drawing(None, 5), KEY, 5).mask(0, 5) is None
    assert permutation(drawing(None, 5, shuffle=False), KEY, 5) is None


def test_more_rows_than_planned_are_drawn_from_too() -> None:
    assert Selection(drawing(5, 10), KEY, 40).mask(0, 40).sum() == 5
    with pytest.raises(dpf.errors.PlanError, match=r"the plan samples 5.*4; plan\.replan\(4\) fits it"):
        Selection(drawing(5, 10), KEY, 4)


@pytest.mark.slow
def test_every_row_is_drawn_as_often() -> None:
    """Over 4,000 keys; a fair sampler fails with probability 1e-6 (χ², and pairs by their frequencies)."""
    n, m, keys = 8, 3, 4_000
    plan = drawing(m, n)
    rows, pairs = np.zeros(n), np.zeros((n, n))
    for i in range(keys):
        mask = Selection(plan, i.to_bytes(32, "little"), n).mask(0, n)
        assert mask is not None
        rows += mask
        pairs += np.outer(mask, mask)
    # Draws without replacement: Σ (count − keys·m/n)²·(n−1)/(keys·m/n·(n−m)) is χ² with n − 1 degrees of freedom.
    expected = keys * m / n
    score = float(((rows - expected) ** 2).sum()) * (n - 1) / (expected * (n - m))
    assert stats.chi2.sf(score, n - 1) > 1e-6
    together = pairs[np.triu_indices(n, 1)]
    p = m * (m - 1) / (n * (n - 1))
    tails = 2 * stats.norm.sf(np.abs(together - keys * p) / math.sqrt(keys * p * (1 - p)))
    assert tails.min() * len(tails) > 1e-6


def test_sample_and_order_are_independent() -> None:
    """Rank correlation of the two planes over 20,000 rows; independent planes fail with probability 1e-6."""
    n = 20_000
    plan = drawing(n // 2, n)
    chosen = Keystream(KEY, plan.digest).column("", domain="sample").words(0, 0, n, bits=128)
    order = order_words(plan, KEY, 0, n)
    assert not np.array_equal(chosen, order)
    assert stats.spearmanr(chosen[:, 1], order[:, 1]).pvalue > 1e-6
    noise = Keystream(KEY, plan.digest).column("", domain="noise").words(0, 0, n, bits=128)
    assert stats.spearmanr(chosen[:, 1], noise[:, 1]).pvalue > 1e-6


def test_a_permutation_is_the_chosen_rows_in_order_of_their_words() -> None:
    plan = drawing(40, 100)
    positions = permutation(plan, KEY, 100)
    assert positions is not None
    assert len(set(positions)) == 40
    words = order_words(plan, KEY, 0, 100)
    numbers = [int(high) << 64 | int(low) for low, high in words]
    assert [numbers[i] for i in positions] == sorted(numbers[i] for i in positions)
    assert set(positions) == set(np.flatnonzero(Selection(plan, KEY, 100).mask(0, 100)))
    everyone = permutation(drawing(None, 100), KEY, 100)
    assert np.array_equal(everyone, rank(order_words(drawing(None, 100), KEY, 0, 100)))
    kept = permutation(drawing(40, 100, shuffle=False), KEY, 100)
    assert kept is not None
    assert (np.diff(kept) > 0).all()


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_sample_is_the_same_in_memory_and_in_parquet(tmp_path: Any, shuffle: bool) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"age": rng.integers(0, 121, 3_000), "sex": rng.choice(["F", "M"], 3_000)})
    frame.to_parquet(tmp_path / "in.parquet", index=False)
    plan = build_plan(SPACES, epsilon=2.0, n=3_000, sample=700, shuffle=shuffle)
    safe = frame.dp.sanitize(plan=plan, key=KEY)
    assert len(safe) == 700
    for rows in (64, 1_000, 10_000):
        out = tmp_path / f"out-{rows}.parquet"
        info = dpf.sanitize(tmp_path / "in.parquet", out, plan=plan, key=KEY, batch_rows=rows)
        assert info.n == 700
        assert info.digest == safe.dp.release.digest
        assert dpf.read(out).reset_index(drop=True).astype(str).equals(safe.reset_index(drop=True).astype(str))
        assert dpf.verify(out).ok


@pytest.mark.slow
def test_an_optimal_sample_has_the_least_error_of_marginals() -> None:
    """Beside a secret order that is all rows; without δ sampling is the only credit, and a part of them is best."""
    spaces = {"a": Categorical(list(range(40))), "b": Categorical(list(range(30)))}
    assert build_plan(spaces, epsilon=0.5, n=20_000, sample="optimal").sample is None
    plan = build_plan(spaces, epsilon=0.1, delta=0, n=20_000, sample="optimal")
    assert plan.sample is not None
    curve = plan.replan(20_000).sample_curve("marginal", points=12)
    assert abs(math.log(int(curve["std_error"].idxmin()) / plan.sample)) < 0.2
    assert build_plan({"a": (0, 100)}, epsilon=4.0, n=100, sample="optimal").sample is None


def test_a_sample_in_a_known_order_earns_nothing() -> None:
    whole, drawn = (build_plan(SPACES, epsilon=1.0, n=1_000, sample=m, shuffle=False) for m in (None, 100))
    assert drawn.terms.sampled_budget == drawn.terms.budget
    assert [c.mechanism for c in drawn.columns] == [c.mechanism for c in whole.columns]
    secret = build_plan(SPACES, epsilon=1.0, delta=0, n=1_000, sample=100)
    assert secret.local_sum.epsilon == pytest.approx(math.log1p(10 * math.expm1(1.0)), rel=1e-6)
    assert Fraction(secret.local_sum.epsilon) <= Fraction(math.log1p(10 * math.expm1(1.0))) + Fraction(1, 10**12)


@pytest.mark.parametrize("total", [3.0, 5.0, 28.0, 60.0])
@pytest.mark.parametrize("rows", [10, 1_000])
def test_rows_whose_profile_is_not_proved_are_not_allowed(total: float, rows: int) -> None:
    """Beside central steps: where no certificate is found the bound is 1, not the step that would be allowed."""
    terms = AccountingContext(Budget(1.0, 1e-6), rows, central=Step(0.1, 1e-9))
    losses = [ColumnLoss(total, math.exp(-total) / 2)] * 2
    assert terms.delta_of_losses(losses).value > 1e-6


def test_known_order_beside_central_steps_does_not_follow_from_spaces() -> None:
    """Losses are the same whatever inference gave, and so is their bound: two outcomes of each column's own ε."""
    terms = AccountingContext(Budget(1.0, 1e-6), 1_000, secret=False, central=Step(0.1, 1e-9))
    small, large = (
        calibrate(
            [lambda e, d, k=k: Column("a", Categorical(range(k)), RandomizedResponse(k, e, d))] * 2,
            [0.5, 0.5],
            [],
            terms,
        )
        for k in (2, 1_000)
    )
    assert [u.mechanism.epsilon for u in small] == [u.mechanism.epsilon for u in large]
    one, other = (terms.delta_of_losses([ColumnLoss(0.3, mass)]).value for mass in (0.85, 0.999))
    assert one == other


def test_a_search_that_comes_back_to_the_total_of_basic_composition_ends():
    """δ leaps over what is allowed just above it, and rounded down it was tried: for ever, before."""
    values = [str(value) for value in range(300)]
    spaces = {"a": (0, 120), "b": Nullable((0, 9)), "c": Nullable((0, 9)), "d": values, "e": values}
    shares = [1.5196552766909441e-05, 7.265422247917424e-05, 0.0010783049750886374, 0.30967868286367184]
    allocation = dict(zip(spaces, [*shares, 0.6891551613859934], strict=True))
    plan = build_plan(spaces, epsilon=0.2913217882432328, delta=1e-9, n=864, allocation=allocation, shuffle=False)
    assert plan.epsilon < plan.local_sum.epsilon < 1.001 * plan.epsilon
    assert plan.verify().ok
