"""What one row, one plan written by hand, or one odd budget must not do to the promise."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from strategies import examples

import dpframe as dpf
from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import composed_steps, promise_step, step_delta
from dpframe.channels import RandomizedResponse
from dpframe.errors import ColumnError, InferenceWarning, ParameterError, PlanError
from dpframe.inference.cost import Histogram, spend
from dpframe.plan.build import build_plan
from dpframe.plan.certificate import certify
from dpframe.plan.plan import Plan

KEY = bytes(range(32))


def objects(values: list[Any]) -> pd.DataFrame:
    column = pd.Series([None] * len(values), dtype=object)
    for i, value in enumerate(values):
        column.iat[i] = value
    return pd.DataFrame({"c": column})


@pytest.mark.parametrize("odd", ["text", {"a": 1}, b"x", Decimal(1), [["a"]], [{"a": 1}], object(), 10**400])
def test_no_row_makes_the_release_of_an_inferred_set_column_fail(odd: Any) -> None:
    # Chance that neither item reaches its threshold: far below 1e-9.
    released = dpf.sanitize(objects([["x", "y"], ["y"]] * 300 + [odd]), epsilon=8.0, delta=1e-6, key=KEY)
    assert len(released) == 601
    with pytest.raises(ColumnError):
        dpf.sanitize(objects([["x"], odd]), epsilon=8.0, spaces={"c": dpf.Subset(("x", "y"))})


def test_no_row_makes_inference_of_python_strings_fail() -> None:
    frame = pd.DataFrame({"c": pd.Series(["A", "B"] * 300 + ["\ud800"], dtype=object).astype("string[python]")})
    assert len(dpf.sanitize(frame, epsilon=8.0, key=KEY)) == 601


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 45.0, 700.0])
@pytest.mark.parametrize("delta", [1e-4, 1e-12, 1e-24, 1e-28, 1e-310])
@pytest.mark.parametrize("contributions", [1, 7])
def test_inference_claims_no_more_than_its_tables_keep(epsilon: float, delta: float, contributions: int) -> None:
    try:
        spending = spend(
            Budget(epsilon, delta), [Histogram("values", 8, 1.0), Histogram("intervals", 1, 0.3)], 1000, contributions
        )
    except ParameterError as error:
        assert "too small to infer spaces" in str(error)
        assert delta < 1e-20 or epsilon < 0.01
        return
    assert spending.step is not None
    assert step_delta(spending.step, epsilon) <= delta


@pytest.mark.slow
def test_neither_does_it_of_persons_of_many_rows() -> None:
    spending = spend(Budget(1.0, 1e-4), [Histogram("values", 8, 1.0), Histogram("intervals", 1, 0.3)], 1000, 50)
    assert spending.step is not None
    assert step_delta(spending.step, 1.0) <= 1e-4


@pytest.mark.slow
def test_a_certificate_compares_inference_with_the_noise_of_its_counts() -> None:
    for n, delta in ((1001, 1e-6), (1002, 0.0)):
        plan = dpf.plan(pd.DataFrame({"a": range(n)}), 1.0, delta, infer_share=0.5)
        assert plan.verify().ok
        data = json.loads(plan.to_json())
        if delta:
            short = {**data, "inferred": data["inferred"] | {"epsilon": 1e-9}}
            assert "its step has delta=" in Plan.from_json(json.dumps(short)).verify().failures[0]
            bare = {**data, "inferred": data["inferred"] | {"measured": [], "mu": 0.0, "slack": 0.0}}
            assert "its counts are not those that were asked for" in " ".join(
                Plan.from_json(json.dumps(bare)).verify().failures
            )
            data["inferred"] |= {"mu": 1e-9}
        else:
            data["inferred"] |= {"epsilon": 1e-9}
            data |= {"epsilon": 0.5 + 2e-9}
        failures = Plan.from_json(json.dumps(data)).verify().failures
        assert failures
        assert "less noise" in failures[0]


def test_numbers_of_rows_beyond_all_tables_are_refused_in_one_line() -> None:
    data = json.loads(build_plan({"a": (0, 9), "b": ["x", "y"]}, epsilon=1.0, n=1000).to_json())
    for n in (1 << 62, 10**400):
        with pytest.raises(PlanError, match=r"n must be a number of rows, below 2\^62"):
            Plan.from_json(json.dumps(data | {"n": n}))


def test_a_claim_whose_delta_vanishes_per_row_is_not_certified() -> None:
    plan = build_plan({"a": (0, 9), "b": ["x", "y"]}, epsilon=1.0, n=1000)
    assert not certify(plan, Budget(1.0, 1e-323), 2).ok


def ledger(folder: Path) -> dpf.Ledger:
    found = dpf.Ledger(folder / "ledger.sqlite")
    found.create("survey", epsilon=10.0, delta=1e-3, accounting="basic")
    return found


def test_spaces_of_a_plan_that_no_ledger_has_are_paid_for_once(tmp_path: Path) -> None:
    frame, kept = pd.DataFrame({"c": ["A", "B"] * 501}), ledger(tmp_path)
    account = {"ledger": kept, "dataset": "survey"}
    unpaid = dpf.plan(frame, 1.0)
    assert unpaid.inferred is not None
    found = unpaid.inferred.budget.epsilon
    for total in (1.0, 2.0):
        dpf.sanitize(frame, epsilon=1.0, spaces=unpaid, **account)
        assert kept.spent("survey").epsilon == pytest.approx(found + total)
    frame.to_parquet(tmp_path / "in.parquet", index=False)
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", 1.0, spaces=unpaid, **account)
    assert kept.spent("survey").epsilon == pytest.approx(found + 3)
    # A plan that takes them says what they cost, and whoever releases under it pays that once as well.
    second = dpf.plan(frame, 1.0, spaces=unpaid)
    kept.create("another", 9.0, 1e-4, accounting="basic")
    for total in (1.0, 2.0):
        dpf.sanitize(frame, plan=second, ledger=kept, dataset="another")
        assert kept.spent("another").epsilon == pytest.approx(found + total)
    paid = dpf.plan(frame, 1.0, infer_share=0.2, **account)
    assert paid.inferred is not None
    dpf.sanitize(frame, epsilon=1.0, spaces=paid, **account)
    assert kept.spent("survey").epsilon == pytest.approx(found + 4 + paid.inferred.budget.epsilon)


def test_a_column_of_type_null_stays_null(tmp_path: Path) -> None:
    """The type is public, and says that nothing is there; plans of older versions leave the column out."""
    table, kept = pa.table({"c": pa.nulls(10), "a": pa.array(range(10))}), ledger(tmp_path)
    pq.write_table(table, tmp_path / "in.parquet")
    options: dict[str, Any] = {"epsilon": 1.0, "spaces": {"a": (0, 10)}}
    safe = dpf.sanitize(table, **options, ledger=kept, dataset="survey")
    assert safe.schema.types == table.schema.types
    info = dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", **options)
    assert info.plan.names == ("c", "a")
    older = dpf.plan(table, **options, drop=["c"])
    assert dpf.sanitize(table, plan=older).column_names == ["a"]
    assert kept.history("survey")["what"].tolist() == ["release"]


@pytest.mark.parametrize("given", ["laplace", "bitflip", RandomizedResponse(7, 0.1)], ids=str)
def test_a_mechanism_that_an_inferred_space_does_not_take_gives_way(tmp_path: Path, given: Any) -> None:
    """What objects are shows once it is paid for: the release is made all the same, with the space's own mechanism."""
    frame, kept = pd.DataFrame({"a": pd.Series(["x", "y", "z"] * 1_000, dtype=object)}), ledger(tmp_path)
    with pytest.warns(InferenceWarning, match=r"^mechanisms of a do.*the inferred spaces.*declare"):
        safe = dpf.sanitize(frame, epsilon=1.0, mechanisms={"a": given}, ledger=kept, dataset="survey")
    plan = safe.dp.release.plan
    assert plan["a"].mechanism.tag == "randomized_response"
    assert plan["a"].mechanism.size == plan["a"].space.size
    assert plan.verify().ok
    assert kept.history("survey")["what"].tolist() == ["release"]


@pytest.mark.walk(4)
@pytest.mark.filterwarnings("ignore::dpframe.errors.DpframeWarning")
@pytest.mark.parametrize("given", ["gaussian", RandomizedResponse(3, 0.3)], ids=str)
@pytest.mark.parametrize("values", [("x", "y"), ("x", "y", "z"), (1, 2)], ids=str)
def test_unshuffled_rows_have_one_cost_whether_or_not_a_mechanism_gives_way(values: Any, given: Any) -> None:
    """What gives way moves the other column's share: rows would lose (0.3, 2.16) or (1.23, 1.23), by what was inferred.

    Each is within a promise of δ = 1e-5 beside inference as a Gaussian step; the worst choice between both has 1.05e-5.
    So inference is subtracted from the promise, whatever it finds.
    """
    frame = pd.DataFrame({"x": pd.Series([*values] * (3_000 // len(values)), dtype=object), "y": [*range(50)] * 60})
    plan = dpf.plan(frame, 3.0, 1e-5, mechanisms={"x": given}, shuffle=False)
    pure = dpf.plan(frame, 3.0, 1e-5, mechanisms={"x": "laplace"}, shuffle=False)  # has the share of all columns
    assert [p.inferred is not None and p.inferred.step is not None for p in (plan, pure)] == [False, True]
    assert plan.verify().ok


def test_a_categorical_column_without_values_is_measured_like_one_with_a_single_value() -> None:
    found = []
    for values in ([None] * 403, [None] * 402 + ["x"]):
        frame = pd.DataFrame({"c": pd.Series(values, dtype=object).astype("category")})
        found.append(dpf.sanitize(frame, epsilon=5.0, delta=1e-6, key=KEY).attrs["dpframe"])
    noises, thresholds = zip(
        *(
            (inferred["measured"][0]["variance"], inferred["thresholds"])
            for inferred in (json.loads(text)["plan"]["inferred"] for text in found)
        ),
        strict=True,
    )
    assert noises[0] == noises[1]
    assert thresholds[0] == thresholds[1]


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
@pytest.mark.parametrize("epsilon", [0.1, 6.0])
def test_inference_that_is_subtracted_is_proved_from_its_own_noise(epsilon):
    """In known order, where shares follow from what was found: its counts keep its own (ε, δ), less noise does not."""
    frame = pd.DataFrame({"x": np.arange(3_000) % 90, "y": np.arange(3_000) % 3 == 0})
    plan = dpf.plan(frame, epsilon, 1e-6, shuffle=False, allocation="error")
    assert plan.inferred.step is None
    assert plan.verify().ok
    data = json.loads(plan.to_json())
    asked = [histogram for group in data["inferred"]["asked"] for histogram in group["histograms"]]
    for counted in (*data["inferred"]["measured"], *asked):
        counted["variance"] *= 0.9
    failures = dpf.Plan.from_json(json.dumps(data)).verify().failures
    assert failures == (
        f"inference claims {plan.inferred.budget.stated()} but its counts have less noise than that asks for",
    )


def test_what_is_precommitted_is_enough_beside_a_mechanism_that_fails(tmp_path: Path) -> None:
    """A ready mechanism's δ is no part of a curve: the release enters what dominates its whole promise."""
    frame = pd.DataFrame({"c": ["A", "B"] * 501, "x": np.arange(1_002) % 2 == 0})
    kept = dpf.Ledger(tmp_path / "gaussian.sqlite")
    kept.create("survey", 9.0, 1e-4)
    own = RandomizedResponse(2, 0.2, 1e-8)
    safe = dpf.sanitize(frame, epsilon=1.0, delta=1e-6, mechanisms={"x": own}, ledger=kept, dataset="survey")
    plan = safe.dp.release.plan
    assert plan.inferred is not None
    (entry,) = kept.history("survey").to_dict("records")
    assert entry["mu"] >= plan.step.mu
    assert entry["slack"] >= plan.step.delta
    assert entry["slack"] >= 1e-8
    # Without it the whole lies under one curve, which costs less.
    kept.create("curved", 9.0, 1e-4)
    safe = dpf.sanitize(frame, epsilon=1.0, delta=1e-6, ledger=kept, dataset="curved")
    (curved,) = kept.history("curved").to_dict("records")
    assert safe.dp.release.plan.step.mu <= curved["mu"] < entry["mu"]


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
def test_a_transformer_pays_once_for_spaces_of_a_plan_that_no_ledger_has(tmp_path: Path) -> None:
    frame, kept = pd.DataFrame({"c": ["A", "B"] * 501}), ledger(tmp_path)
    unpaid = dpf.plan(frame, 1.0)
    assert unpaid.inferred is not None
    model = dpf.Sanitizer(1.0, spaces=unpaid, ledger=kept, dataset="survey")
    for total in (1.0, 2.0):
        model.fit(frame).transform(frame)
        assert kept.spent("survey").epsilon == pytest.approx(unpaid.inferred.budget.epsilon + total)
    assert list(kept.history("survey")["what"]) == ["inference", "release", "release"]


@pytest.mark.filterwarnings("ignore::dpframe.errors.RepeatedReleaseWarning")
@given(st.floats(0.05, 8), st.floats(0.01, 0.99))
@settings(max_examples=examples(3), phases=[Phase.explicit, Phase.generate])
def test_the_spend_is_inside_the_promise(epsilon: float, share: float) -> None:
    frame = pd.DataFrame({"x": np.arange(500) % 7, "y": np.arange(500) % 2 == 0})
    plan = dpf.plan(frame, epsilon, 1e-6, infer_share=share)
    whole, steps = promise_step(plan.release), plan.steps
    # Shares are of the square: what was asked for, up to the twelve digits in which budgets are told.
    assert float(steps["inference"].square / whole.square) == pytest.approx(share, rel=0.1)
    assert float(steps["inference"].square / whole.square) <= share * (1 + 1e-9)
    together = composed_steps(steps.values())
    assert together.square <= whole.square
    assert together.delta <= whole.delta
    assert step_delta(together, epsilon) <= 1e-6
    assert plan.verify().ok
    assert plan.inferred is not None
    assert plan.inferred.columns == ("x",)
