"""Gaussian noise on rows of numbers: on every face, its estimates and their coverage, what it costs, its refusals."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import exact_columns, exact_delta, refused
from conftest import KEY

import dpframe as dpf
from dpframe.accounting.gaussian_dp import composed_steps, step_delta
from dpframe.channels import Gaussian, WideGaussian, WithNull
from dpframe.errors import ColumnError, ParameterError
from dpframe.plan.build import build_plan
from dpframe.plan.plan import Plan
from dpframe.spaces import Datetime, Integer, Nullable, Ordinal, Real

SPACES: dict[str, Any] = {
    "age": (0, 120),
    "paid": Nullable(Real(0, 100, steps=1_000)),
    "born": Datetime("1990-01-01", "1994-12-31", "D"),
    "sex": ["F", "M"],
}
GAUSSIAN = {"age": "gaussian", "paid": "gaussian", "born": "gaussian"}
OPTIONS: dict[str, Any] = {
    "epsilon": 12.0,
    "delta": 1e-5,
    "spaces": SPACES,
    "mechanisms": GAUSSIAN,
    "shuffle": False,
    "measure": None,
}


def frame(rows: int = 4_000) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    days = pd.to_timedelta(rng.integers(0, 1_800, rows), unit="D")
    return pd.DataFrame(
        {
            "age": rng.normal(45, 15, rows).clip(0, 120).round().astype(np.int64),
            "paid": np.where(rng.random(rows) < 0.2, np.nan, rng.gamma(2, 10, rows).clip(0, 100).round(1)),
            "born": pd.Timestamp("1990-01-01") + days,
            "sex": rng.choice(["F", "M"], rows),
        }
    )


@pytest.mark.slow
def test_released_numbers_go_beyond_the_bounds_and_keep_their_types(tmp_path: Any) -> None:
    table = frame()
    safe = table.dp.sanitize(**OPTIONS, key=KEY)
    assert safe.dtypes.equals(table.dtypes)
    assert safe["age"].min() < 0 < 120 < safe["age"].max()
    assert safe["born"].min() < pd.Timestamp("1990-01-01")
    assert safe["paid"].isna().any()
    assert safe.dp.verify()
    plan = safe.dp.release.plan
    assert Plan.from_json(plan.to_json()) == plan
    assert {name: plan[name].mechanism.tag for name in GAUSSIAN} == {
        "age": "wide_gaussian",
        "paid": "nullable_wide_gaussian",
        "born": "wide_gaussian",
    }
    assert plan.summary()["mechanism"]["age"] == "gaussian"
    assert plan.verify().ok
    # Every face releases the same.
    table.to_parquet(tmp_path / "in.parquet")
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, key=KEY)
    pd.testing.assert_frame_equal(dpf.read(tmp_path / "out.parquet"), safe)
    arrow = dpf.sanitize(pa.Table.from_pandas(table, preserve_index=False), plan=plan, key=KEY)
    assert arrow.column("age").to_pylist() == safe["age"].tolist()
    assert pq.read_schema(tmp_path / "out.parquet").field("age").type == pa.int64()


def test_a_replaced_row_changes_one_released_row() -> None:
    found = dpf.audit(frame(300), frame(300).dp.plan(**OPTIONS), runs=20, random_state=0)
    assert not found.failures


@pytest.mark.slow
def test_intervals_of_means_sums_and_moments_hold() -> None:
    """24 keys; of 95 % intervals fewer than 16 hold with probability below 2e-6 each."""
    table, held = frame(), {}
    plan = table.dp.plan(**OPTIONS)
    for k in range(24):
        e = dpf.sanitize(table, plan=plan, key=bytes([k]) * 32).dp
        by = e.mean("age", by="sex")
        asked = {
            "mean": (e.mean("age"), table["age"].mean()),
            "nullable": (e.mean("paid"), table["paid"].mean()),
            "sum": (e.sum("age"), table["age"].sum()),
            "var": (e.var("age"), table["age"].var()),
            "women": (by.loc["F"], table.loc[table["sex"] == "F", "age"].mean()),
            "nulls": (e.null_rate("paid"), table["paid"].isna().mean()),
            "median": (e.quantile("age", 0.5), table["age"].median()),
            "range": (e.count({"age": (30, 50)}), table["age"].between(30, 50).sum()),
            "bin": (e.histogram("age", [0, 40, 121]).iloc[0], (table["age"] < 40).sum()),
        }
        for name, (found, truth) in asked.items():
            held[name] = held.get(name, 0) + (found["lower"] <= truth <= found["upper"])
    assert min(held.values()) >= 16, held


@pytest.mark.slow
def test_estimates_lie_within_their_errors() -> None:
    """Five standard errors are exceeded with probability 6e-7 each."""
    table = frame()
    e = dpf.sanitize(table, **OPTIONS, key=KEY).dp
    for found, truth in [
        (e.mean("age"), table["age"].mean()),
        (e.mean("paid"), table["paid"].mean()),
        (e.sum("paid"), table["paid"].sum()),
        (e.var("age"), table["age"].var()),
        (e.mean("age", by="sex").loc["M"], table.loc[table["sex"] == "M", "age"].mean()),
        (e.null_rate("paid"), table["paid"].isna().mean()),
    ]:
        assert abs(found["estimate"] - truth) < 5 * found["std_error"]
    days = (e.mean("born")["estimate"] - table["born"].mean()) / pd.Timedelta("1D")
    assert abs(days) < 5 * (e.mean("born")["std_error"] / pd.Timedelta("1D"))
    for bins in (None, 4):
        counts = e.value_counts("age", bins=bins) if bins else e.value_counts("age")
        assert counts["estimate"].sum() == pytest.approx(len(table))
        assert counts.attrs["method"] == "em"
    with pytest.warns(dpf.InferenceWarning, match="no two columns show dependence beyond noise"):
        drawn = e.synthesize()
    assert drawn["age"].between(0, 120).all()
    assert len(e.crosstab("sex", "age", bins={"age": 3})) == 2


def test_what_has_no_estimate_is_refused_with_the_way_out() -> None:
    e = dpf.sanitize(frame(500), **OPTIONS, key=KEY).dp
    no_counts = "column 'age' has gaussian noise, which leaves no counts of its values without bias; "
    refused(ParameterError, no_counts + "method=.em. fits them", lambda: e.value_counts("age", method="inverse"))
    refused(ParameterError, no_counts + "group by another column", lambda: e.mean("paid", by="age", bins=3))
    refused(ParameterError, no_counts, lambda: e.count({"age": 40}, method="inverse"))


def test_refusals(tmp_path: Any) -> None:
    table = frame(500)

    def planned(**options: Any) -> Any:
        return lambda: table.dp.sanitize(**{**OPTIONS, **options})

    refused(ParameterError, "'age': gaussian noise on rows of numbers needs delta above 0; raise", planned(delta=0))
    wide = {"spaces": SPACES | {"born": Datetime("1900-01-01", "1999-12-31", "D")}, "epsilon": 0.1}
    refused(ParameterError, "'born': noise would reach beyond the years 1 to 9999; use laplace", planned(**wide))
    small = table.astype({"age": "int8"})
    refused(
        ColumnError,
        "'age': has type int8, too narrow for gaussian noise.*; convert the column to a wider type",
        lambda: small.dp.sanitize(**OPTIONS),
    )
    # Where another column's space is still to be inferred nothing is paid for either.
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 10.0, 1e-5)
    some: Any = {"spaces": {"age": SPACES["age"]}, "mechanisms": {"age": "gaussian"}, "drop": ["born"]}
    for verb in (small.dp.plan, small.dp.sanitize):
        refused(
            ColumnError,
            "'age': has type int8, too narrow for gaussian noise",
            lambda verb=verb: verb(1.0, 1e-6, ledger=ledger, dataset="survey", **some),
        )
    assert ledger.spent("survey").epsilon == 0
    ranks = {"epsilon": 1.0, "delta": 1e-6, "mechanisms": {"r": "gaussian"}}
    refused(
        ParameterError,
        "'r': mechanism gaussian is for numbers and times, and space ordinal has no values beyond its ends; use",
        lambda: build_plan({"r": Ordinal(["low", "high"])}, **ranks),
    )
    refused(
        ParameterError,
        "gaussian is for at most 1048576 steps, .* use laplace or fewer steps",
        lambda: build_plan({"r": Integer(0, 2**21)}, **ranks),
    )
    refused(
        ParameterError,
        "mechanism gaussian of column 'age' goes beyond the bounds, which must be declared: spaces=",
        planned(spaces={"sex": ["F", "M"]}, drop=["paid", "born"], mechanisms={"age": "gaussian"}),
    )
    refused(ParameterError, "span must be", lambda: WideGaussian(0, 1.0, 1e-6))
    refused(ParameterError, "slack is smaller than.*; raise delta", lambda: WideGaussian(9, 1.0, 1e-40))


@pytest.mark.parametrize("contributions", [1, 3])
def test_columns_compose_within_the_promise(contributions: int) -> None:
    """The claim is checked against the composition of the columns' steps, by another formula than the planner's."""
    plan = build_plan(
        {"a": (0, 50), "b": (0, 9), "c": Real(0, 1)},
        epsilon=2.0,
        delta=1e-6,
        n=1_000,
        shuffle=False,
        contributions=contributions,
        mechanisms=dict.fromkeys("abc", "gaussian"),
    )
    steps = [unit.step for unit in plan.units if unit.step is not None]
    row = plan.terms.sampled_budget
    assert 0.999 * row.delta < step_delta(composed_steps(steps), row.epsilon) <= row.delta
    # Twice the noise's scale too small breaks the promise.
    broken = [type(step)(2 * step.mu, step.delta) for step in steps]
    assert step_delta(composed_steps(broken), row.epsilon) > 100 * row.delta


@pytest.mark.slow
def test_more_columns_make_it_worth_more_and_plans_say_so() -> None:
    ratios = []
    for count in (1, 12):
        spaces = {f"x{i}": (0, 100) for i in range(count)}
        told: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "n": 10_000, "shuffle": False}
        laplace = build_plan(spaces, **told)
        plan = build_plan(spaces, **told, mechanisms=dict.fromkeys(spaces, "gaussian"))
        errors = [float(p.forecast().loc[("mean", "x0"), "std_error"]) for p in (plan, laplace)]
        ratios.append(errors[0] / errors[1])
        if count > 1:
            continue
        levers = plan.explain().levers["errors"]
        found = levers['laplace in place of gaussian noise on numbers (mechanisms={column: "laplace"})']
        assert found == pytest.approx(errors[1] / errors[0], rel=0.02)
        assert not any("gaussian" in lever for lever in laplace.explain().levers.index)
    assert 3 < ratios[0] < 4
    assert 1 < ratios[1] < 1.25


def test_forecasts_are_met() -> None:
    """The mean's standard error over 40 keys: off by a third with probability below 1e-3; keys are fixed."""
    table = frame(1_000)[["age"]]
    told = OPTIONS | {"spaces": {"age": (0, 120)}, "mechanisms": {"age": "gaussian"}, "epsilon": 4.0}
    plan = table.dp.plan(**told)
    means = [dpf.sanitize(table, plan=plan, key=bytes([k]) * 32)["age"].mean() for k in range(40)]
    expected = float(plan.forecast().loc[("mean", "age"), "std_error"])
    assert np.std(means) == pytest.approx(expected, rel=0.35)
    assert abs(np.mean(means) - table["age"].mean()) < 5 * expected / math.sqrt(40)


def test_old_plans_keep_their_saturated_noise() -> None:
    old = {"mechanism": "gaussian", "span": 3, "epsilon": 8.0, "delta": 1e-3}
    text = build_plan({"x": (0, 3)}, epsilon=8.0, delta=1e-3, mechanisms={"x": Gaussian(3, 8.0, 1e-3)}).to_json()
    assert json.loads(text)["columns"][0]["mechanism"] == old
    plan = Plan.from_json(text)
    assert isinstance(plan["x"].mechanism, Gaussian)
    assert plan["x"].released == plan["x"].space
    safe = dpf.sanitize(pd.DataFrame({"x": [0, 1, 2, 3] * 50}), plan=plan, key=KEY)
    assert set(safe["x"]) <= {0, 1, 2, 3}
    assert isinstance(plan["x"].remade(9.0, 1e-3).mechanism, Gaussian)


def test_null_has_a_flag_and_the_whole_noise() -> None:
    mechanism = WithNull(WideGaussian, (100,), 1.0, 1e-6)
    assert mechanism.loss.delta(1.0) <= 1e-6
    assert isinstance(mechanism.inner, WideGaussian)
    assert mechanism.inner.sigma == WideGaussian(100, 1.0, 1e-6).sigma
    assert mechanism.outputs == mechanism.inner.outputs + 1
    space = mechanism.released(Nullable(Integer(0, 100)))
    assert (space.size, space.has_null) == (mechanism.outputs, True)


@pytest.mark.parametrize(
    ("space", "steps", "ends"),
    [
        (Integer(0, 10, 2), 3, [-6, 16]),
        (Real(0.0, 1.0, steps=10), 5, [-0.5, 1.5]),
        (Datetime("2020-01-10", "2020-01-20", "D"), 9, ["2020-01-01", "2020-01-29"]),
        (Datetime("PT0S", "PT10S", "s"), 2, ["-1 day, 23:59:58", "0:00:12"]),
    ],
    ids=repr,
)
def test_widened_grids(space: Any, steps: int, ends: list[Any]) -> None:
    wide = space.widened(steps)
    assert wide.size == space.size + 2 * steps
    found = wide.decode(np.array([0, wide.size - 1])).to_pylist()
    assert [pytest.approx(v) if isinstance(v, float) else v if isinstance(v, int) else str(v) for v in found] == ends
    inside = space.decode(np.arange(space.size))
    assert wide.encode(inside).tolist() == list(range(steps, steps + space.size))
    with pytest.raises(ParameterError, match="has no values beyond its ends"):
        Ordinal(["a", "b"]).widened(1)


@pytest.mark.parametrize(("span", "epsilon", "delta"), [(12, 2.0, 1e-5), (120, 1.0, 1e-6), (30, 8.0, 1e-6)])
def test_the_loss_beside_dp_accounting(span: int, epsilon: float, delta: float) -> None:
    """Their loss is rounded up to multiples of 1e-5, which is at most 1e-3 of δ here."""
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_distribution as pld

    mechanism = WideGaussian(span, epsilon, delta)
    theirs = pld.from_discrete_gaussian_mechanism(mechanism.sigma, sensitivity=span, value_discretization_interval=1e-5)
    own = mechanism.loss.delta(epsilon)
    assert own <= theirs.get_delta_for_epsilon(epsilon) <= own * (1 + 1e-3)
    assert mechanism.loss.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-5)


def test_noise_too_small_is_caught_by_its_own_integers() -> None:
    """Half the noise under the same claim: the exact δ of its integers, over all pairs, is far beyond it."""
    right = WideGaussian(12, 2.0, 1e-5)
    wrong = WideGaussian(12, 4.0, 1e-5)
    for mechanism, kept in ((right, True), (wrong, False)):
        columns, total = exact_columns(mechanism)
        assert (exact_delta(columns, total, 2.0) <= 1e-5) == kept
